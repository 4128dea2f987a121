package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2/types"
)

// counts are numbers of tests: of functions without subtests, of the last level of subtests, and of specs.
type counts struct{ passed, failed, skipped int }

func (c *counts) add(d counts) {
	c.passed, c.failed, c.skipped = c.passed+d.passed, c.failed+d.failed, c.skipped+d.skipped
}

func (c counts) total() int { return c.passed + c.failed + c.skipped }

// test is what can be repeated alone: a test function with its subtests, or a spec.
type test struct {
	// Package and Run find it: the arguments of go test, or the focus of Ginkgo.
	Package, Run string
	counts
	skips []string
	took  time.Duration
}

// report is what a run of a suite reported.
type report struct {
	// Tests has the tests by their names.
	Tests map[string]*test
	// Broken says why the tests do not show whether the suite passed.
	Broken []string
}

func broken(format string, args ...any) report {
	return report{Broken: []string{fmt.Sprintf(format, args...)}}
}

func (r *report) breaks(format string, args ...any) {
	r.Broken = append(r.Broken, fmt.Sprintf(format, args...))
}

func (r *report) count() (all counts) {
	for _, t := range r.Tests {
		all.add(t.counts)
	}
	return all
}

// failures returns the names of the failed tests.
func (r *report) failures() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r.Tests)), func(name string) bool { return r.Tests[name].failed == 0 })
}

// skip is a skipped test and the reason.
type skip struct{ test, why string }

func (r *report) skips() (all []skip) {
	for _, name := range slices.Sorted(maps.Keys(r.Tests)) {
		for _, why := range r.Tests[name].skips {
			all = append(all, skip{name, why})
		}
	}
	return all
}

// slowest prints the slowest tests.
func (r *report) slowest(out io.Writer) {
	names := slices.SortedFunc(maps.Keys(r.Tests), func(a, b string) int { return int(r.Tests[b].took - r.Tests[a].took) })
	fmt.Fprintln(out, "The slowest tests:")
	for _, name := range names[:min(len(names), 20)] {
		fmt.Fprintf(out, "%7.1f s  %s\n", r.Tests[name].took.Seconds(), name)
	}
}

// event is a line of go test -json (go doc test2json).
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// crash begins the message of a program that ends without running its other tests.
var crash = regexp.MustCompile(`^(panic: |fatal error: |signal: )`)

// readGo reads the events of go test.
func readGo(file string) (report, error) {
	r := report{Tests: map[string]*test{}}
	f, err := os.Open(file)
	if err != nil {
		return r, errors.New("go test wrote no report")
	}
	defer f.Close()
	type id struct{ pkg, name string }
	ends, said, took, failing := map[id]string{}, map[id][]string{}, map[id]float64{}, map[string]int{}
	crashes := map[string]string{}
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		var e event
		if err == nil {
			err = json.Unmarshal(line, &e)
		}
		if err != nil {
			return r, fmt.Errorf("reading %s: %w", file, err)
		}
		of := id{e.Package, e.Test}
		switch {
		case e.Action == "build-fail":
			r.breaks("%s does not compile", e.ImportPath)
		case e.Action == "output":
			said[of] = append(said[of], e.Output)
			if crash.MatchString(e.Output) {
				crashes[e.Package] = strings.TrimSpace(e.Output)
			}
		case e.Action == "run":
			ends[of] = ""
		case e.Test == "" && e.Action == "fail":
			failing[e.Package] += 0
		case e.Test != "" && slices.Contains([]string{"pass", "fail", "skip"}, e.Action):
			ends[of], took[of] = e.Action, e.Elapsed
			if e.Action == "fail" {
				failing[e.Package]++
			}
		}
	}
	parents := map[id]bool{}
	for of := range ends {
		for i, c := range of.name {
			if c == '/' {
				parents[id{of.pkg, of.name[:i]}] = true
			}
		}
	}
	// Subtests come before their test, which counts only if it failed by itself.
	for _, of := range slices.SortedFunc(maps.Keys(ends), func(a, b id) int { return strings.Compare(b.name, a.name) }) {
		end := ends[of]
		top, _, _ := strings.Cut(of.name, "/")
		name := of.pkg + " " + top
		t := r.Tests[name]
		if t == nil {
			t = &test{Package: of.pkg, Run: "^" + regexp.QuoteMeta(top) + "$"}
			r.Tests[name] = t
		}
		if of.name == top {
			t.took = time.Duration(took[of] * float64(time.Second))
		}
		switch {
		case end == "":
			r.breaks("%s %s did not end", of.pkg, of.name)
		case end == "fail" && (!parents[of] || of.name == top && t.failed == 0):
			t.failed++
		case parents[of]:
		case end == "pass":
			t.passed++
		case end == "skip":
			t.skipped++
			t.skips = append(t.skips, reason(said[of], strings.TrimPrefix(of.name, top)))
		}
	}
	for pkg, n := range failing {
		if crashes[pkg] != "" {
			r.breaks("%s crashed: %s", pkg, crashes[pkg])
		}
		if n == 0 && len(r.Broken) == 0 {
			r.breaks("%s failed outside of a test", pkg)
		}
	}
	slices.Sort(r.Broken)
	return r, nil
}

// position is the file and the line of a message of a test.
var position = regexp.MustCompile(`^\s*\S+\.go:\d+: `)

// reason returns why a test was skipped, from its output.
func reason(said []string, subtest string) string {
	var lines []string
	for _, line := range said {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			lines = append(lines, position.ReplaceAllString(line, ""))
		}
	}
	why := strings.Join(lines, " ")
	if why == "" {
		why = "without a reason"
	}
	if subtest != "" {
		why = strings.TrimPrefix(subtest, "/") + ": " + why
	}
	return why
}

// readGinkgo reads Ginkgo's report. Specs that a filter leaves out have no reason and are not counted.
func readGinkgo(file string) (report, error) {
	r := report{Tests: map[string]*test{}}
	content, err := os.ReadFile(file)
	if err != nil {
		return r, errors.New("ginkgo wrote no report")
	}
	var suites []types.Report
	if err := json.Unmarshal(content, &suites); err != nil {
		return r, fmt.Errorf("reading %s: %w", file, err)
	}
	for _, s := range suites {
		r.Broken = append(r.Broken, s.SpecialSuiteFailureReasons...)
		for _, spec := range s.SpecReports {
			r.add(spec)
		}
	}
	return r, nil
}

func (r *report) add(spec types.SpecReport) {
	name := spec.FullText()
	if spec.LeafNodeType != types.NodeTypeIt {
		if spec.State.Is(types.SpecStateFailureStates) {
			r.breaks("%s %s failed: %s", spec.LeafNodeType, spec.LeafNodeText, spec.Failure.Message)
		}
		return
	}
	t := r.Tests[name]
	if t == nil {
		t = &test{Package: filepath.Dir(spec.LeafNodeLocation.FileName), Run: regexp.QuoteMeta(name) + "$"}
	}
	if spec.IsInOrderedContainer { // Its specs need those before them.
		t.Run = regexp.QuoteMeta(spec.ContainerHierarchyTexts[0]) + " "
	}
	t.took += spec.RunTime
	switch {
	case spec.State.Is(types.SpecStateInterrupted | types.SpecStateAborted):
		r.breaks("%s: %s", name, spec.State)
	case spec.State.Is(types.SpecStateFailureStates):
		t.failed++
	case spec.State.Is(types.SpecStatePassed):
		t.passed++
	case spec.State.Is(types.SpecStatePending):
		t.skipped++
		t.skips = append(t.skips, "pending")
	case spec.State.Is(types.SpecStateSkipped) && spec.Failure.Message != "":
		t.skipped++
		t.skips = append(t.skips, spec.Failure.Message)
	default:
		return
	}
	r.Tests[name] = t
}
