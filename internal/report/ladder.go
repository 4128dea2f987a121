package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// ladder prints the percentiles of each round, and of all together, up to the highest that a stored histogram can give:
// a table for each variant and cell. An open loop whose tool keeps both has a table counted from the intended and one
// from the actual send; what the server captured has one of its own.
func ladder(w io.Writer, s sheet) error {
	var all []steps
	for _, v := range plan.Variants(s.benchmark.Spec) {
		for _, cell := range plan.Cells(s.benchmark.Spec, v) {
			all = append(all, s.steps(v, cell.Name)...)
		}
	}
	if len(all) == 0 {
		return fmt.Errorf("%w: no cell has samples (netperf tells none, and streams have none)", ErrNothingToShow)
	}
	fmt.Fprintln(w, s.title())
	for _, one := range all {
		if err := one.write(w); err != nil {
			return err
		}
	}
	notes(w, "", s.warnings())
	return nil
}

// steps is a table of the ladder.
type steps struct {
	// heading says what was measured.
	heading string
	// shown is what is shown of a latency in a histogram.
	shown func(int64) int64
	// rounds are in the order in which they were measured.
	rounds []roundOf
}

// roundOf is what one round says of a cell.
type roundOf struct {
	number    int32
	histogram result.Histogram
	lost      int64
}

// steps are the tables of one cell of a variant.
func (s sheet) steps(v v1alpha1.Variant, cell string) []steps {
	numbers := map[string]int32{}
	for _, run := range plan.Runs(s.benchmark) {
		numbers[run.Name] = run.Round
	}
	var start string
	var roundTrips, fromActual, captured []roundOf
	for _, run := range result.OfVariant(s.runs, v.Name) {
		number := numbers[run.Client.Run]
		for _, c := range run.Client.Cells {
			if c.Name != cell || c.Stream || c.Own != nil {
				continue
			}
			start = string(c.Start)
			roundTrips = append(roundTrips, roundOf{number, c.Histogram, c.Lost})
			if c.ActualStart != nil {
				fromActual = append(fromActual, roundOf{number, *c.ActualStart, c.Lost})
			}
		}
		for _, c := range run.Server.Captured {
			if c.Cell == cell && c.Incomplete == "" {
				captured = append(captured, roundOf{number, c.Histogram, c.Unanswered})
			}
		}
	}
	heading := fmt.Sprintf("variant %s (%s), %s", v.Name, Ways(v), cell)
	latencyType := s.benchmark.Spec.LatencyType
	var tables []steps
	add := func(what string, shown func(int64) int64, rounds []roundOf) {
		if len(rounds) > 0 {
			tables = append(tables, steps{heading: fmt.Sprintf("%s: %s, µs", heading, what), shown: shown, rounds: rounds})
		}
	}
	add(string(latencyType)+countedFrom(start), showing(latencyType), roundTrips)
	add(string(latencyType)+countedFrom("Actual"), showing(latencyType), fromActual)
	add("IN to OUT, captured by the server", func(ns int64) int64 { return ns }, captured)
	return tables
}

// column is one of a table's: a round, or all of them.
type column struct {
	title string
	d     result.Distribution
	// lost does not count what is out of the histogram's range.
	lost int64
}

func (t steps) columns() ([]column, error) {
	var columns []column
	var histograms []result.Histogram
	total := column{title: "ALL"}
	for _, r := range t.rounds {
		d, err := result.Merge(r.histogram)
		if err != nil {
			return nil, fmt.Errorf("reading round %d of %s: %w", r.number, t.heading, err)
		}
		columns = append(columns, column{fmt.Sprintf("ROUND %d", r.number), d, r.lost})
		histograms = append(histograms, r.histogram)
		total.lost += r.lost
	}
	if len(columns) == 1 {
		return columns, nil
	}
	var err error
	if total.d, err = result.Merge(histograms...); err != nil {
		return nil, fmt.Errorf("merging the rounds of %s: %w", t.heading, err)
	}
	return append(columns, total), nil
}

func (t steps) write(w io.Writer) error {
	columns, err := t.columns()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s\n", t.heading)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(name string, value func(column) string) {
		fmt.Fprintf(table, "%s\t", name)
		for _, c := range columns {
			fmt.Fprintf(table, "%s\t", value(c))
		}
		fmt.Fprintln(table)
	}
	line("PERCENTILE", func(c column) string { return c.title })
	line("MIN", func(c column) string { return t.extreme(c, c.d.Min) })
	for _, p := range stats.Ladder() {
		line(strings.TrimPrefix(p.Name, "p")+"%", func(c column) string { return t.step(c, p) })
	}
	line("MAX", func(c column) string { return t.extreme(c, c.d.Max) })
	line("SAMPLES", func(c column) string { return fmt.Sprint(c.d.Count) })
	line("LOST", func(c column) string { return fmt.Sprint(c.lost + c.d.OverRange) })
	if err := table.Flush(); err != nil {
		return fmt.Errorf("writing the ladder: %w", err)
	}
	return nil
}

// step is a percentile, or why there is none.
func (t steps) step(c column, p stats.Percentile) string {
	switch r := c.d.Percentile(p, c.lost); {
	case r.Lost:
		return "lost"
	case r.Needs > 0:
		return fmt.Sprintf("needs %d", r.Needs)
	default:
		return micros(t.shown(r.Ns))
	}
}

// extreme is the smallest or the largest sample; a dash where there is none.
func (t steps) extreme(c column, ns int64) string {
	if c.d.Count+c.d.OverRange == 0 {
		return "-"
	}
	return micros(t.shown(ns))
}
