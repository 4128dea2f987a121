package htmlreport

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/compare"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/judge"
	"github.com/tailgate-dev/tailgate/internal/plan"
)

// comparison compares a candidate with a baseline.
type comparison struct {
	Baseline, Candidate string
	// Interval is the latency type in which the latencies of both are given.
	Interval string
	Notes    []string
	// Differences holds the different conditions that prevent a rule from comparing; Explaining is the number of other
	// differences.
	Differences []compare.Difference
	Explaining  int
	// DifferentNotes holds the notes of the users that differ.
	DifferentNotes []compare.Difference
	Rows           []comparisonRow
	// Scale holds the marks of the axis of ratios: at its beginning, in its middle and at its end.
	Scale []string
	// Missing is the reason why there is no comparison; empty otherwise.
	Missing string
}

// comparisonRow is one metric of a cell. Begin is true in the first row of a cell.
type comparisonRow struct {
	Cell, Rounds string
	Begin        bool

	Metric, Baseline, Candidate, Ratio, Interval string
	// Shown is better, worse, same (no difference was shown) or none (there is no ratio).
	Shown string
	// Bar is the ratio on the axis; nil if there is no ratio.
	Bar *bar
}

// bar is an interval on the axis of ratios: positions from 0 to 100.
type bar struct {
	From, Width, At float64
	// HasInterval is false if the ratio has no bounds.
	HasInterval bool
}

// newComparisons compares the variants of each benchmark with its first variant, and all benchmarks with the first
// benchmark. benchmarks holds their contents in the same order.
func newComparisons(all []export.Benchmark, benchmarks []benchmark) ([]comparison, error) {
	var out []comparison
	add := func(baseline, candidate compare.Side) error {
		c, err := newComparison(baseline, candidate)
		if err != nil {
			return err
		}
		out = append(out, c)
		return nil
	}
	side := func(i int, variant string) compare.Side {
		name := benchmarks[i].Name
		if variant != "" {
			name += "/" + variant
		}
		return compare.Side{Name: name, Variant: variant, Results: judge.Results{Collection: benchmarks[i].collected}}
	}
	for i, b := range all {
		if len(b.Runs) == 0 {
			continue
		}
		variants := plan.Variants(b.Object.Spec)
		for _, v := range variants[1:] {
			if err := add(side(i, variants[0].Name), side(i, v.Name)); err != nil {
				return nil, err
			}
		}
	}
	if len(all) > 1 {
		for i := 1; i < len(all); i++ {
			if j := slices.IndexFunc([]export.Benchmark{all[0], all[i]}, func(b export.Benchmark) bool { return len(b.Runs) == 0 }); j >= 0 {
				missing := fmt.Sprintf("%s has no results to compare: it is not measured yet, or it is a LatencyMatrix, whose pairs are not compared", benchmarks[i*j].Name)
				out = append(out, comparison{Baseline: benchmarks[0].Name, Candidate: benchmarks[i].Name, Missing: missing})
				continue
			}
			if err := add(side(0, ""), side(i, "")); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

func newComparison(baseline, candidate compare.Side) (comparison, error) {
	c, err := compare.Compare(baseline, candidate)
	if errors.Is(err, compare.ErrNothingInCommon) {
		return comparison{Baseline: baseline.Name, Candidate: candidate.Name, Missing: err.Error()}, nil
	}
	if err != nil {
		return comparison{}, err
	}
	few := c.WithoutExplaining()
	out := comparison{Baseline: c.Baseline, Candidate: c.Candidate, Interval: string(c.LatencyType), Notes: c.Notes, Explaining: few.Explaining}
	for _, d := range few.Differences {
		if d.Note {
			out.DifferentNotes = append(out.DifferentNotes, d)
		} else {
			out.Differences = append(out.Differences, d)
		}
	}
	axis := newAxis(c.Figures)
	out.Scale = axis.marks()
	for i, f := range c.Figures {
		texts := f.Row()
		row := comparisonRow{Cell: f.Cell, Rounds: f.Rounds(), Metric: texts[0], Baseline: texts[1], Candidate: texts[2], Ratio: texts[3], Interval: texts[4], Shown: "none", Bar: axis.bar(f)}
		row.Begin = i == 0 || f.Cell != c.Figures[i-1].Cell || f.CandidateVariant != c.Figures[i-1].CandidateVariant
		if baseline.Variant == "" && f.CandidateVariant != plan.DefaultVariant {
			row.Cell = f.CandidateVariant + " " + f.Cell
		}
		switch {
		case f.Shown == compare.ShownRatio:
			row.Shown = "same"
		case f.Shown != compare.ShownNothing && (f.Shown == compare.ShownLower) == (f.Metric == v1alpha1.MetricThroughput):
			row.Shown = "worse"
		case f.Shown != compare.ShownNothing:
			row.Shown = "better"
		case f.Ratio != nil:
			row.Shown = "same"
		}
		out.Rows = append(out.Rows, row)
	}
	return out, nil
}

// axis is a logarithmic axis of ratios with 1 in its middle.
type axis struct {
	// reach is the highest ratio; 1/reach is the lowest.
	reach float64
}

// reaches holds the possible values of reach.
var reaches = []float64{1.1, 1.25, 1.5, 2, 3, 5, 10, 30, 100}

// newAxis returns the smallest axis with room for all ratios and bounds, up to the largest reach.
func newAxis(figures []compare.Figure) axis {
	most := 1.0
	for _, f := range figures {
		for _, v := range []*float64{f.Ratio, f.Lower, f.Upper} {
			if v != nil && *v > 0 {
				most = max(most, *v, 1 / *v)
			}
		}
	}
	i := slices.IndexFunc(reaches, func(r float64) bool { return r >= most })
	if i < 0 {
		i = len(reaches) - 1
	}
	return axis{reaches[i]}
}

// at returns the position of a ratio, from 0 to 100.
func (a axis) at(ratio float64) float64 {
	place := 50 + 50*math.Log(ratio)/math.Log(a.reach)
	return math.Round(min(max(place, 0), 100)*10) / 10
}

// marks returns the ratios at the beginning, in the middle and at the end.
func (a axis) marks() []string {
	return []string{fmt.Sprintf("%.3g", 1/a.reach), "1", fmt.Sprintf("%.3g", a.reach)}
}

func (a axis) bar(f compare.Figure) *bar {
	if f.Ratio == nil {
		return nil
	}
	b := &bar{At: a.at(*f.Ratio)}
	if f.Lower != nil || f.Upper != nil {
		from, to := 0.0, 100.0
		if f.Lower != nil {
			from = a.at(*f.Lower)
		}
		if f.Upper != nil {
			to = a.at(*f.Upper)
		}
		b.From, b.Width, b.HasInterval = from, math.Round((to-from)*10)/10, true
	}
	return b
}
