package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

type ladderTable struct {
	heading string
	lines   [][]string
}

// ladder prints percentiles of each round and all; actual sends and captures have own tables.
func ladder(w io.Writer, s sheet) error {
	var all []ladderTable
	for _, one := range AllSeries(s.benchmark, s.runs) {
		columns, err := one.Columns()
		if err != nil {
			return err
		}
		heading := fmt.Sprintf("variant %s (%s), %s: %s, µs", one.Variant.Name, Ways(one.Variant), one.Cell, one.Counts())
		all = append(all, ladderTable{heading, one.ladder(columns)})
	}
	all = append(all, s.publishedLadders()...)
	if len(all) == 0 {
		return fmt.Errorf("%w: no cell has samples (netperf reports none, and streams have none)", ErrNothingToShow)
	}
	fmt.Fprintln(w, s.title())
	for _, t := range all {
		if err := writeLines(w, t.heading, t.lines); err != nil {
			return fmt.Errorf("writing the ladder: %w", err)
		}
	}
	Notes(w, "", warningLines(s.benchmark))
	return nil
}

// CaptureLadder writes the ladder of one distribution of captured times.
func CaptureLadder(w io.Writer, heading string, c Column) error {
	return writeLines(w, heading, Series{LatencyType: v1alpha1.ResultInToOut}.ladder([]Column{c}))
}

// Column holds the distribution of a round, or of all rounds together.
type Column struct {
	Round int32 // 0 for all rounds
	result.Distribution
	Lost int64 // without samples that are out of the histograms' range
}

// Columns returns one for each round and, of several, all together, or wraps result.ErrCorrupt.
func (s Series) Columns() ([]Column, error) {
	var columns []Column
	all, lost := result.NewMerger(), int64(0)
	for _, r := range s.Rounds {
		d, err := all.Add(r.Histogram)
		if err != nil {
			label := summary.Label(v1alpha1.CellResult{Variant: s.Variant.Name, Name: s.Name})
			return nil, fmt.Errorf("reading round %d of %s: %w", r.Number, label, err)
		}
		columns, lost = append(columns, Column{r.Number, d, r.Lost}), lost+r.Lost
	}
	if len(columns) > 1 {
		columns = append(columns, Column{0, all.Distribution(), lost})
	}
	return columns, nil
}

func ladderLine[C any](name string, columns []C, value func(C) (us, events string)) []string {
	line := []string{name}
	for _, c := range columns {
		us, events := value(c)
		line = append(line, us, events)
	}
	return line
}

func percentileTitle(name string) string { return strings.TrimPrefix(name, "p") + "%" }

func (s Series) ladder(columns []Column) [][]string {
	extreme := func(c Column, ns int64) (us, events string) {
		if c.Count+c.OverRange == 0 {
			return "-", "0"
		}
		return micros(s.Shown(ns)), fmt.Sprint(c.UpTo(ns))
	}
	lines := [][]string{
		ladderLine("PERCENTILE", columns, func(c Column) (us, events string) {
			if c.Round == 0 {
				return "ALL", "EVENTS"
			}
			return fmt.Sprintf("ROUND %d", c.Round), "EVENTS"
		}),
		ladderLine("MIN", columns, func(c Column) (us, events string) { return extreme(c, c.Min) }),
	}
	for _, p := range stats.Ladder() {
		lines = append(lines, ladderLine(percentileTitle(p.Name), columns, func(c Column) (us, events string) {
			switch r := c.Percentile(p, c.Lost); {
			case r.Lost:
				return "lost", "-"
			case r.Needs > 0:
				return fmt.Sprintf("needs %d", r.Needs), "-"
			default:
				return micros(s.Shown(r.Ns)), fmt.Sprint(c.UpTo(r.Ns))
			}
		}))
	}
	return append(lines,
		ladderLine("MAX", columns, func(c Column) (us, events string) { return extreme(c, c.Max) }),
		ladderLine("LOST", columns, func(c Column) (us, events string) { return "-", fmt.Sprint(c.Lost + c.OverRange) }))
}

// publishedLadders returns those of imported results, which have percentiles, no samples.
func (s sheet) publishedLadders() []ladderTable {
	var all []ladderTable
	for _, v := range s.collected.Variants {
		for _, c := range v.Cells {
			for _, one := range []struct {
				interval    string
				latencyType v1alpha1.ResultLatencyType
				rounds      rounds.Rounds
			}{
				{string(s.benchmark.Spec.LatencyType), v1alpha1.ResultLatencyType(s.benchmark.Spec.LatencyType), c.Measured},
				{"IN to OUT", v1alpha1.ResultInToOut, c.Captured},
			} {
				var columns []tool.Own
				for _, r := range one.rounds.Found() {
					if r.Own != nil && len(r.Own.Ladder) > 0 {
						columns = append(columns, *r.Own)
					}
				}
				if len(columns) > 0 {
					heading := fmt.Sprintf("variant %s, %s: %s as published, µs", v.Name, c.Name, one.interval)
					all = append(all, ladderTable{heading, publishedLines(columns, summary.Shown(one.latencyType))})
				}
			}
		}
	}
	return all
}

func publishedLines(columns []tool.Own, shown func(int64) int64) [][]string {
	number := 0
	lines := [][]string{ladderLine("PERCENTILE", columns, func(tool.Own) (us, events string) {
		number++
		return fmt.Sprintf("ROUND %d", number), "EVENTS"
	})}
	var names []v1alpha1.Percentile
	for _, own := range columns {
		for _, step := range own.Ladder {
			if !slices.Contains(names, step.Name) {
				names = append(names, step.Name)
			}
		}
	}
	for _, name := range names {
		title := percentileTitle(string(name))
		if name == "p0" {
			title = "MIN"
		}
		lines = append(lines, ladderLine(title, columns, func(own tool.Own) (us, events string) {
			i := slices.IndexFunc(own.Ladder, func(step tool.OwnPercentile) bool { return step.Name == name })
			if i < 0 {
				return "-", "-"
			}
			return micros(shown(own.Ladder[i].Ns)), fmt.Sprint(own.Ladder[i].Events)
		}))
	}
	return append(lines, ladderLine("MAX", columns, func(own tool.Own) (us, events string) { return micros(shown(own.MaxNs)), fmt.Sprint(own.Count) }))
}

// Series is the latencies of a cell by round: its result's, from the actual send, or captured.
type Series struct {
	Variant     v1alpha1.Variant
	Cell, Name  string                     // Name has a suffix for the actual send and for captures
	LatencyType v1alpha1.ResultLatencyType // what is measured
	CountedFrom string                     // of a rate: the send, Intended or Actual
	Rounds      []SeriesRound
}

// SeriesRound contains the latencies of one round of a cell.
type SeriesRound struct {
	Number                int32
	StartedAt, FinishedAt time.Time
	Histogram             result.Histogram  // whole round trips or captured times: see Shown
	Lost                  int64             // messages without a sample
	Intervals             []tool.Interval   // counted like Histogram; nil if the tool kept none
	Attribution           *tool.Attribution // of the slowest samples; nil if the tool has none
}

// AllSeries returns all variants' and cells' series. Cells without samples have none.
func AllSeries(b *v1alpha1.LatencyBenchmark, runs []result.Stored) []Series {
	var all []Series
	for _, v := range plan.Variants(b.Spec) {
		for _, cell := range plan.Cells(b.Spec, v) {
			all = append(all, seriesOf(b, v, cell.Name, result.OfVariant(runs, v.Name))...)
		}
	}
	return all
}

func seriesOf(b *v1alpha1.LatencyBenchmark, v v1alpha1.Variant, cell string, runs []result.Stored) []Series {
	numbers := plan.RoundNumbers(b)
	latencyType := v1alpha1.ResultLatencyType(b.Spec.LatencyType)
	roundTrips := Series{Variant: v, Cell: cell, Name: cell, LatencyType: latencyType}
	fromActual := Series{Variant: v, Cell: cell, Name: cell + "-from-actual", LatencyType: latencyType, CountedFrom: string(tool.StartActual)}
	captured := Series{Variant: v, Cell: cell, Name: cell + result.CapturedSuffix, LatencyType: v1alpha1.ResultInToOut}
	for i := range runs {
		round := SeriesRound{Number: numbers[runs[i].Client.Run]}
		c, whole := runs[i].Cell(cell)
		if c != nil {
			round.StartedAt, round.FinishedAt = c.StartedAt, c.FinishedAt
		}
		if c != nil && !c.Stream && c.Own == nil {
			roundTrips.CountedFrom = string(c.Start)
			timed := round
			timed.Intervals, timed.Attribution = c.Intervals, c.Attribution
			roundTrips.add(timed, c.Histogram, c.Lost)
			if c.ActualStart != nil {
				fromActual.add(round, *c.ActualStart, c.Lost)
			}
		}
		if whole != nil && whole.Own == nil {
			captured.add(round, whole.Histogram, whole.Unanswered)
		}
	}
	return slices.DeleteFunc([]Series{roundTrips, fromActual, captured}, func(s Series) bool { return len(s.Rounds) == 0 })
}

func (s *Series) add(round SeriesRound, h result.Histogram, lost int64) {
	round.Histogram, round.Lost = h, lost
	s.Rounds = append(s.Rounds, round)
}

func (s Series) Counts() string {
	if s.LatencyType == v1alpha1.ResultInToOut {
		return "IN to OUT, captured by the server"
	}
	return string(s.LatencyType) + countedFrom(s.CountedFrom)
}

// Shown converts a time of the histogram to the displayed time, in nanoseconds.
func (s Series) Shown(ns int64) int64 { return summary.Shown(s.LatencyType)(ns) }
