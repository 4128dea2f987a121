package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// ladder prints a table for each variant and cell, with the percentiles of each round and of all rounds together, up to the
// highest that a stored histogram can give. An open loop whose tool keeps both start times has a table counted from the
// intended send and one counted from the actual send. Captures of the server have a table of their own.
func ladder(w io.Writer, s sheet) error {
	all := AllSeries(s.benchmark, s.runs)
	if len(all) == 0 {
		return fmt.Errorf("%w: no cell has samples (netperf reports none, and streams have none)", ErrNothingToShow)
	}
	fmt.Fprintln(w, s.title())
	for _, one := range all {
		if err := one.ladder(w); err != nil {
			return err
		}
	}
	notes(w, "", warningLines(s.benchmark))
	return nil
}

// Column holds the distribution of a round, or of all rounds together.
type Column struct {
	// Round is the number of the round; 0 for all rounds.
	Round int32
	result.Distribution
	// Lost excludes samples that are out of the histograms' range.
	Lost int64
}

// Columns returns a column for each round and, if there are several, one for all rounds together. The error wraps
// result.ErrCorrupt.
func (s Series) Columns() ([]Column, error) {
	var columns []Column
	for _, r := range s.Rounds {
		d, err := result.Merge(r.Histogram)
		if err != nil {
			return nil, fmt.Errorf("reading round %d of %s: %w", r.Number, s.label(), err)
		}
		columns = append(columns, Column{r.Number, d, r.Lost})
	}
	if len(columns) == 1 {
		return columns, nil
	}
	d, err := s.Merged()
	if err != nil {
		return nil, err
	}
	return append(columns, Column{0, d, s.Lost()}), nil
}

// ladder writes a table with a column for each round.
func (s Series) ladder(w io.Writer) error {
	columns, err := s.Columns()
	if err != nil {
		return err
	}
	var lines [][]string
	line := func(name string, value func(Column) (us, events string)) {
		values := []string{name}
		for _, c := range columns {
			us, events := value(c)
			values = append(values, us, events)
		}
		lines = append(lines, values)
	}
	line("PERCENTILE", func(c Column) (string, string) {
		if c.Round == 0 {
			return "ALL", "EVENTS"
		}
		return fmt.Sprintf("ROUND %d", c.Round), "EVENTS"
	})
	line("MIN", func(c Column) (string, string) { return s.extreme(c, c.Min) })
	for _, p := range stats.Ladder() {
		line(strings.TrimPrefix(p.Name, "p")+"%", func(c Column) (string, string) { return s.step(c, p) })
	}
	line("MAX", func(c Column) (string, string) { return s.extreme(c, c.Max) })
	line("LOST", func(c Column) (string, string) { return "-", fmt.Sprint(c.Lost + c.OverRange) })
	if err := writeLines(w, fmt.Sprintf("variant %s (%s), %s: %s, µs", s.Variant.Name, Ways(s.Variant), s.Cell, s.Counts()), lines); err != nil {
		return fmt.Errorf("writing the ladder: %w", err)
	}
	return nil
}

// step formats a percentile with the number of samples up to it, or the reason why there is none.
func (s Series) step(c Column, p stats.Percentile) (us, events string) {
	switch r := c.Percentile(p, c.Lost); {
	case r.Lost:
		return "lost", "-"
	case r.Needs > 0:
		return fmt.Sprintf("needs %d", r.Needs), "-"
	default:
		return micros(s.Shown(r.Ns)), fmt.Sprint(c.UpTo(r.Ns))
	}
}

// extreme formats the smallest or the largest sample with the number of samples up to it; a dash if there are no samples.
func (s Series) extreme(c Column, ns int64) (us, events string) {
	if c.Count+c.OverRange == 0 {
		return "-", "0"
	}
	return micros(s.Shown(ns)), fmt.Sprint(c.UpTo(ns))
}
