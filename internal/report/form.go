// Package report prints results, which package summary computes: tables and documents.
package report

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/internal/text"
)

var (
	ErrUnknownForm   = errors.New("unknown format")
	ErrNothingToShow = errors.New("nothing to show") // of a form that cannot show the results
)

// FormPairs is the name of the form of a LatencyMatrix, which has no stored runs of its own.
const FormPairs = "pairs"

// Form is a layout in which the results of a benchmark are printed.
type Form struct {
	Name  string
	Shows string // in a few words, what the form prints

	write func(w io.Writer, s sheet) error // prints stored runs; nil: it shows matrices only
	// pairs prints the results of a matrix; nil for a form that shows stored runs only.
	pairs func(w io.Writer, m *v1alpha1.LatencyMatrix, pairs []*v1alpha1.LatencyBenchmark) error
}

type sheet struct {
	benchmark *v1alpha1.LatencyBenchmark // has the results of runs in its status
	runs      []result.Stored            // oldest first; collected is their collection
	collected *rounds.Collection
}

func newSheet(b *v1alpha1.LatencyBenchmark, runs []result.Stored) (sheet, error) {
	collected, err := rounds.Of(b.Spec, runs...)
	if err != nil {
		return sheet{}, err
	}
	computed := summary.Summarize(collected)
	b = b.DeepCopy()
	b.Status.Results, b.Status.Warnings, b.Status.Endpoints = computed.Results, computed.Warnings, computed.Endpoints
	return sheet{benchmark: b, runs: runs, collected: collected}, nil
}

// Forms returns all layouts, the general one first; sfnt and others follow published tables.
func Forms() []Form {
	return []Form{
		{Name: "table", Shows: "every cell with the ratios between variants, the limits of the results, the verdict, and a line about the placement of each variant",
			write: func(w io.Writer, s sheet) error { return Table(w, s.benchmark) }},
		{Name: "wide", Shows: "the same, with every check of the placement, and every value of every round", write: wide},
		{Name: "sfnt", Shows: "the columns of sfnt-pingpong, nanoseconds by message size, a block for each variant", write: sfnt},
		{Name: "networks", Shows: "mean latency and bandwidth, with networks as rows and MTUs as columns, a table for each protocol", write: networks},
		{Name: "matrix", Shows: "min, mean, percentiles and max by rate and message size, in microseconds", write: matrix},
		{Name: "ladder", Shows: "percentiles from 50 to 99.999999, a column for each round, in microseconds", write: ladder},
		documentForm("json", "all results and those of each round, in integer nanoseconds", func(w io.Writer, d Document) error { return WriteJSON(w, d) }),
		documentForm("csv", "a line for each cell in each round (scope round) and over all rounds (scope all)", writeCSV),
		{Name: FormPairs, Shows: "for a LatencyMatrix: p50 and p99 with clients as rows and servers as columns, and the slowest pairs", pairs: Pairs},
	}
}

func documentForm(name, shows string, write func(io.Writer, Document) error) Form {
	return Form{Name: name, Shows: shows,
		write: func(w io.Writer, s sheet) error {
			d, err := s.document()
			if err != nil {
				return err
			}
			return write(w, d)
		},
		pairs: func(w io.Writer, m *v1alpha1.LatencyMatrix, pairs []*v1alpha1.LatencyBenchmark) error {
			return write(w, documentOfMatrix(m, pairs))
		},
	}
}

// FormNamed returns the form with a name. The error wraps ErrUnknownForm and lists the known forms.
func FormNamed(name string) (Form, error) {
	var known []string
	for _, f := range Forms() {
		if f.Name == name {
			return f, nil
		}
		known = append(known, f.Name)
	}
	return Form{}, fmt.Errorf("%w %q; known are %s", ErrUnknownForm, name, strings.Join(known, ", "))
}

// Write prints stored runs, not the status. The error wraps ErrNothingToShow without such cells.
func (f Form) Write(w io.Writer, b *v1alpha1.LatencyBenchmark, runs []result.Stored) error {
	if f.write == nil {
		return fmt.Errorf("%w: the benchmark measures one pair of nodes", ErrNothingToShow)
	}
	s, err := newSheet(b, runs)
	if err != nil {
		return err
	}
	return f.write(w, s)
}

func (f Form) ShowsPairs() bool { return f.pairs != nil }

// WritePairs prints a matrix from its pairs' status; the error may wrap ErrNothingToShow.
func (f Form) WritePairs(w io.Writer, m *v1alpha1.LatencyMatrix, pairs []*v1alpha1.LatencyBenchmark) error {
	if f.pairs == nil {
		return fmt.Errorf("%w: a LatencyMatrix measures many pairs of nodes", ErrNothingToShow)
	}
	return f.pairs(w, m, pairs)
}

func (s sheet) title() string {
	b := s.benchmark
	if source := result.Imported(s.runs); source != "" {
		return fmt.Sprintf("%s/%s: %s, %s", b.Namespace, b.Name, b.Spec.Tool, source)
	}
	return fmt.Sprintf("%s/%s: %s, %d of %d runs, %s a cell", b.Namespace, b.Name, b.Spec.Tool, len(s.runs), len(plan.Runs(b)), b.Spec.Workload.Duration.Duration)
}

// block is what a table's results have in common: variant, and traffic that no line shows.
type block struct {
	variant string
	v1alpha1.Traffic
}

func (s sheet) roundTrips(key func(r v1alpha1.CellResult) block) [][]v1alpha1.CellResult {
	return grouped(slices.DeleteFunc(slices.Clone(s.benchmark.Status.Results), func(r v1alpha1.CellResult) bool {
		return r.LatencyType != v1alpha1.ResultLatencyType(s.benchmark.Spec.LatencyType)
	}), key)
}

func warningLines(b *v1alpha1.LatencyBenchmark) []string {
	return text.Of(b.Status.Warnings, func(w v1alpha1.Warning) string { return w.Reason + ": " + w.Message })
}

// Notes prints lines below the tables, each with a prefix, after a blank line.
func Notes(w io.Writer, prefix string, lines []string) {
	for i, line := range lines {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%s%s\n", prefix, line)
	}
}

// Ways describes a variant shortly: network, wait mode, muxer and acceleration, if any.
func Ways(v v1alpha1.Variant) string {
	text := fmt.Sprintf("network %s, %s", network(v.Network), strings.ToLower(string(v.Wait)))
	if v.Muxer != v1alpha1.MuxerNone {
		text += " with " + strings.ToLower(string(v.Muxer))
	}
	if a := v.Acceleration; a != nil && a.Type != v1alpha1.AccelerationKernel {
		text += ", " + string(a.Type)
		switch settings := a.OnloadSettings(); {
		case settings.Profile != "":
			text += fmt.Sprintf(" with profile %s", settings.Profile)
		case settings.ProfileRef != nil:
			text += fmt.Sprintf(" with the settings of ConfigMap %s", settings.ProfileRef.Name)
		}
	}
	return text
}

func countedFrom(start string) string {
	if start == "" {
		return ""
	}
	return fmt.Sprintf(" from the %s send", strings.ToLower(start))
}

func micros(ns int64) string { return fmt.Sprintf("%d.%03d", ns/1_000, ns%1_000) }
