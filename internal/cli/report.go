package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/htmlreport"
)

// mostReported is how many benchmarks a report has room for.
const mostReported = 8

func newReport(c *cluster) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "report NAME|lmatrix/NAME|PATH... -o FILE",
		Short: "Write the results of LatencyBenchmarks as one HTML file",
		Long: "Write the results of LatencyBenchmarks as one HTML file that needs neither a network nor a cluster. It contains the\n" +
			"verdict, percentile plots, tables, comparisons with their intervals, the course over time, the causes of slow samples,\n" +
			"the matrices of LatencyMatrices (lmatrix/NAME), the proof of placement, the evidence with its differences, and the\n" +
			"manifest. The command reads the stored histograms after verifying their digests. If you name several benchmarks, it\n" +
			"compares the others with the first.\n\n" +
			"NAME is an object in the cluster, PATH an export, which begins with ./ or /.",
		Example: "  " + name + " report x2522 -o x2522.html\n  " + name + " report before after -n perf -o upgrade.html",
		Args:    takes("the names of LatencyBenchmarks", 1, mostReported),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output == "" {
				return fmt.Errorf("--output: name the file to write, such as -o report.html, or - for standard output")
			}
			var all []export.Benchmark
			for _, arg := range args {
				b, err := c.load(cmd.Context(), arg)
				if err != nil {
					return err
				}
				all = append(all, b)
			}
			return writeReport(cmd.OutOrStdout(), output, all)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "file to write; - for standard output")
	return cmd
}

// writeReport writes the report of benchmarks to a file; - is standard output.
func writeReport(stdout io.Writer, file string, all []export.Benchmark) error {
	var html bytes.Buffer
	err := htmlreport.Write(&html, all)
	if err != nil {
		return err
	}
	if file == "-" {
		_, err = stdout.Write(html.Bytes())
	} else {
		err = os.WriteFile(file, html.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}
