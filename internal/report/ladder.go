package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// ladder prints a table for each variant and cell, with the percentiles of each round and of all rounds together, up to the
// highest that a stored histogram can give. An open loop whose tool keeps both start times has a table counted from the
// intended send and one counted from the actual send. Captures of the server have a table of their own.
func ladder(w io.Writer, s sheet) error {
	all := AllSeries(s.benchmark, s.runs)
	published := s.publishedLadders()
	if len(all) == 0 && len(published) == 0 {
		return fmt.Errorf("%w: no cell has samples (netperf reports none, and streams have none)", ErrNothingToShow)
	}
	fmt.Fprintln(w, s.title())
	for _, one := range all {
		if err := one.ladder(w); err != nil {
			return err
		}
	}
	for _, p := range published {
		if err := writeLines(w, p.heading, p.lines()); err != nil {
			return fmt.Errorf("writing a published ladder: %w", err)
		}
	}
	Notes(w, "", warningLines(s.benchmark))
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
	all, lost := result.NewMerger(), int64(0)
	for _, r := range s.Rounds {
		d, err := all.Add(r.Histogram)
		if err != nil {
			return nil, fmt.Errorf("reading round %d of %s: %w", r.Number, s.label(), err)
		}
		columns, lost = append(columns, Column{r.Number, d, r.Lost}), lost+r.Lost
	}
	if len(columns) > 1 {
		columns = append(columns, Column{0, all.Distribution(), lost})
	}
	return columns, nil
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

// publishedLadder is the ladder of a cell of an imported result, whose rounds have percentiles instead of samples.
type publishedLadder struct {
	heading string
	rounds  []tool.Own
	shown   func(int64) int64
}

// publishedLadders returns the ladders of imported results.
func (s sheet) publishedLadders() []publishedLadder {
	var all []publishedLadder
	for _, v := range s.collected.Variants {
		for _, c := range v.Cells {
			for _, one := range []struct {
				interval string
				rounds   rounds.Rounds
				shown    func(int64) int64
			}{
				{string(s.benchmark.Spec.LatencyType), c.Measured, summary.Shown(s.benchmark.Spec.LatencyType)},
				{"IN to OUT", c.Captured, func(ns int64) int64 { return ns }},
			} {
				p := publishedLadder{heading: fmt.Sprintf("variant %s, %s: %s as published, µs", v.Name, c.Name, one.interval), shown: one.shown}
				for _, r := range one.rounds.Found() {
					if r.Own != nil && len(r.Own.Ladder) > 0 {
						p.rounds = append(p.rounds, *r.Own)
					}
				}
				if len(p.rounds) > 0 {
					all = append(all, p)
				}
			}
		}
	}
	return all
}

// lines returns the published percentiles, with a column for each round.
func (p publishedLadder) lines() [][]string {
	title := []string{"PERCENTILE"}
	largest := []string{"MAX"}
	var names []v1alpha1.Percentile
	of := map[v1alpha1.Percentile][]string{}
	for i, own := range p.rounds {
		title = append(title, fmt.Sprintf("ROUND %d", i+1), "EVENTS")
		largest = append(largest, micros(p.shown(own.MaxNs)), fmt.Sprint(own.Count))
		for _, step := range own.Ladder {
			if of[step.Name] == nil {
				names = append(names, step.Name)
			}
			for len(of[step.Name]) < 2*i {
				of[step.Name] = append(of[step.Name], "-")
			}
			of[step.Name] = append(of[step.Name], micros(p.shown(step.Ns)), fmt.Sprint(step.Events))
		}
	}
	lines := [][]string{title}
	for _, name := range names {
		label := strings.TrimPrefix(string(name), "p") + "%"
		if label == "0%" {
			label = "MIN"
		}
		lines = append(lines, append([]string{label}, of[name]...))
	}
	return append(lines, largest)
}
