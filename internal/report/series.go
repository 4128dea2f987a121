package report

import (
	"slices"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// Series is the stored latencies of a variant's cell, by round. A cell may have several: its
// result's, those counted from the actual send, and those that the server captured.
type Series struct {
	Variant v1alpha1.Variant
	// Cell is its name. Name has a suffix for the actual send and for captures.
	Cell, Name string
	// LatencyType is what is measured, CountedFrom a rate's send: Intended or Actual.
	LatencyType v1alpha1.ResultLatencyType
	CountedFrom string
	Rounds      []SeriesRound
}

// SeriesRound contains the latencies of one round of a cell.
type SeriesRound struct {
	Number                int32
	StartedAt, FinishedAt time.Time
	// Histogram has whole round trips or captured times: see Shown.
	Histogram result.Histogram
	// Lost messages have no sample.
	Lost int64
	// Intervals holds the course of the round, counted like Histogram; nil if the tool kept none.
	Intervals []tool.Interval
	// Attribution is that of the slowest samples of Histogram; nil if the tool does not report it.
	Attribution *tool.Attribution
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

// Counts describes in words the interval that the latencies measure.
func (s Series) Counts() string {
	if s.LatencyType == v1alpha1.ResultInToOut {
		return "IN to OUT, captured by the server"
	}
	return string(s.LatencyType) + countedFrom(s.CountedFrom)
}

// Shown converts a time of the histogram to the displayed time, in nanoseconds.
func (s Series) Shown(ns int64) int64 { return summary.Shown(s.LatencyType)(ns) }
