package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// ladder prints the percentiles of each round, and of all together, up to the highest that a stored histogram can give:
// a table for each variant and cell. An open loop whose tool keeps both has a table counted from the intended and one
// from the actual send; what the server captured has one of its own.
func ladder(w io.Writer, s sheet) error {
	all := AllSeries(s.benchmark, s.runs)
	if len(all) == 0 {
		return fmt.Errorf("%w: no cell has samples (netperf tells none, and streams have none)", ErrNothingToShow)
	}
	fmt.Fprintln(w, s.title())
	for _, one := range all {
		if err := one.ladder(w); err != nil {
			return err
		}
	}
	notes(w, "", s.warnings())
	return nil
}

// column is one of a table's: a round, or all of them.
type column struct {
	title string
	d     result.Distribution
	// lost does not count what is out of the histogram's range.
	lost int64
}

func (s Series) columns() ([]column, error) {
	var columns []column
	for _, r := range s.Rounds {
		d, err := result.Merge(r.Histogram)
		if err != nil {
			return nil, fmt.Errorf("reading round %d of %s: %w", r.Number, s.label(), err)
		}
		columns = append(columns, column{fmt.Sprintf("ROUND %d", r.Number), d, r.Lost})
	}
	if len(columns) == 1 {
		return columns, nil
	}
	d, err := s.Merged()
	if err != nil {
		return nil, err
	}
	return append(columns, column{"ALL", d, s.Lost()}), nil
}

// ladder writes a table with a column for each round.
func (s Series) ladder(w io.Writer) error {
	columns, err := s.columns()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\nvariant %s (%s), %s: %s, µs\n", s.Variant.Name, Ways(s.Variant), s.Cell, s.Counts())
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	line := func(name string, value func(column) string) {
		fmt.Fprintf(table, "%s\t", name)
		for _, c := range columns {
			fmt.Fprintf(table, "%s\t", value(c))
		}
		fmt.Fprintln(table)
	}
	line("PERCENTILE", func(c column) string { return c.title })
	line("MIN", func(c column) string { return s.extreme(c, c.d.Min) })
	for _, p := range stats.Ladder() {
		line(strings.TrimPrefix(p.Name, "p")+"%", func(c column) string { return s.step(c, p) })
	}
	line("MAX", func(c column) string { return s.extreme(c, c.d.Max) })
	line("SAMPLES", func(c column) string { return fmt.Sprint(c.d.Count) })
	line("LOST", func(c column) string { return fmt.Sprint(c.lost + c.d.OverRange) })
	if err := table.Flush(); err != nil {
		return fmt.Errorf("writing the ladder: %w", err)
	}
	return nil
}

// step is a percentile, or why there is none.
func (s Series) step(c column, p stats.Percentile) string {
	switch r := c.d.Percentile(p, c.lost); {
	case r.Lost:
		return "lost"
	case r.Needs > 0:
		return fmt.Sprintf("needs %d", r.Needs)
	default:
		return micros(s.Shown(r.Ns))
	}
}

// extreme is the smallest or the largest sample; a dash where there is none.
func (s Series) extreme(c column, ns int64) string {
	if c.d.Count+c.d.OverRange == 0 {
		return "-"
	}
	return micros(s.Shown(ns))
}
