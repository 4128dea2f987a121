// Command durations reads JSON reports of Ginkgo and prints how long each spec took, the slowest first.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/onsi/ginkgo/v2/types"
)

func main() {
	for _, file := range os.Args[1:] {
		if err := printAll(file); err != nil {
			fmt.Fprintln(os.Stderr, "durations:", err)
			os.Exit(1)
		}
	}
}

func printAll(file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the report: %w", err)
	}
	var suites []types.Report
	if err := json.Unmarshal(content, &suites); err != nil {
		return fmt.Errorf("parsing %s: %w", file, err)
	}
	for _, suite := range suites {
		specs := slices.DeleteFunc(suite.SpecReports, func(r types.SpecReport) bool { return r.RunTime == 0 })
		slices.SortFunc(specs, func(a, b types.SpecReport) int { return int(b.RunTime - a.RunTime) })
		fmt.Printf("%s took %s, its specs from the slowest on:\n", suite.SuiteDescription, suite.RunTime.Round(time.Second))
		for _, s := range specs {
			name := s.FullText()
			if s.LeafNodeType != types.NodeTypeIt {
				name = s.LeafNodeType.String() + " " + name
			}
			fmt.Printf("%7.1f s  %s\n", s.RunTime.Seconds(), name)
		}
	}
	return nil
}
