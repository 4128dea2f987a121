package htmlreport

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/compare"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/judge"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

// comparison has the rows of a table; its differences prevent a rule from comparing, or are notes.
type comparison struct {
	compare.Comparison
	Rows    []comparisonRow
	Scale   []string // marks of the axis of ratios: its beginning, middle and end
	Missing string   // why there is no comparison; empty otherwise
}

func (c comparison) differences(notes bool) []compare.Difference {
	return slices.DeleteFunc(slices.Clone(c.Differences), func(d compare.Difference) bool { return d.Note != notes })
}

type comparisonRow struct {
	Cell, Rounds string
	Begin        bool
	Texts        []string // the metric, the baseline, the candidate, the ratio, the interval
	Shown        string   // better, worse, same (no difference was shown) or none (no ratio)
	Bar          *bar     // the ratio on the axis; nil if there is no ratio
}

type bar struct {
	From, Width, At float64
	HasInterval     bool // false if the estimate has no bounds
	Open, Beyond    ends // ends of the interval without a bound; ends farther than the axis
}

type ends struct{ Left, Right bool }

func (b *bar) Estimated() bool {
	return (b.At > 0 || !b.Beyond.Left) && (b.At < 100 || !b.Beyond.Right)
}

// newBar places an estimate, infinite without a bound, and its bounds, where nil means none.
func newBar(at func(float64) float64, estimate float64, lower, upper *float64) *bar {
	place := func(v float64) float64 { return math.Round(min(max(at(v), 0), 100)*10) / 10 }
	b := &bar{At: place(estimate), From: 0, HasInterval: lower != nil || upper != nil, Open: ends{lower == nil, upper == nil}}
	to := 100.0
	if lower != nil {
		b.From = place(*lower)
	}
	if upper != nil {
		to = place(*upper)
	}
	b.Width = math.Round((to-b.From)*10) / 10
	for _, v := range []*float64{&estimate, lower, upper} {
		if v != nil {
			b.Beyond.Left, b.Beyond.Right = b.Beyond.Left || at(*v) < 0, b.Beyond.Right || at(*v) > 100
		}
	}
	return b
}

// newComparisons compares variants with a benchmark's first, and benchmarks with the first.
func newComparisons(all []export.Benchmark, benchmarks []benchmark) ([]comparison, error) {
	var out []comparison
	side := func(i int, variant string) compare.Side {
		name := benchmarks[i].Name
		if variant != "" {
			name += "/" + variant
		}
		return compare.Side{Name: name, Variant: variant, Results: judge.Results{Collection: benchmarks[i].collected}}
	}
	add := func(baseline, candidate compare.Side) error {
		c, err := newComparison(baseline, candidate)
		out = append(out, c)
		return err
	}
	for i, b := range all {
		variants := plan.Variants(b.Object.Spec)
		for _, v := range variants[1:] {
			if len(b.Runs) == 0 {
				break
			}
			if err := add(side(i, variants[0].Name), side(i, v.Name)); err != nil {
				return nil, err
			}
		}
	}
	for i := 1; i < len(all); i++ {
		if j := slices.IndexFunc([]export.Benchmark{all[0], all[i]}, func(b export.Benchmark) bool { return len(b.Runs) == 0 }); j >= 0 {
			missing := fmt.Sprintf("%s has no results to compare: it is not measured yet, or it is a LatencyMatrix, whose pairs are not compared", benchmarks[i*j].Name)
			out = append(out, without(side(0, ""), side(i, ""), missing))
		} else if err := add(side(0, ""), side(i, "")); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func without(baseline, candidate compare.Side, missing string) comparison {
	return comparison{Comparison: compare.Comparison{Baseline: baseline.Name, Candidate: candidate.Name}, Missing: missing}
}

func newComparison(baseline, candidate compare.Side) (comparison, error) {
	c, err := compare.Compare(baseline, candidate)
	if errors.Is(err, compare.ErrNothingInCommon) {
		return without(baseline, candidate, err.Error()), nil
	}
	if err != nil {
		return comparison{}, err
	}
	var ratios []*float64
	for _, f := range c.Figures {
		ratios = append(ratios, f.Ratio, f.Lower, f.Upper)
	}
	axis := axisFor(ratios)
	out := comparison{Comparison: c.WithoutExplaining(), Scale: axis.marks()}
	for i, f := range c.Figures {
		row := comparisonRow{Cell: f.Cell, Rounds: f.Rounds(), Begin: c.Begins(i), Texts: f.Row(), Shown: "none", Bar: axis.bar(f)}
		if baseline.Variant == "" && f.CandidateVariant != plan.DefaultVariant {
			row.Cell = f.CandidateVariant + " " + f.Cell
		}
		switch {
		case f.Shown == compare.ShownRatio || f.Shown == compare.ShownNothing && f.Ratio != nil:
			row.Shown = "same"
		case f.Shown == compare.ShownNothing:
		case (f.Shown == compare.ShownLower) == (f.Metric.Kind().LowerIsWorse):
			row.Shown = "worse"
		default:
			row.Shown = "better"
		}
		out.Rows = append(out.Rows, row)
	}
	return out, nil
}

// axis is a logarithmic axis of ratios with 1 in its middle, up to its value.
type axis float64

var reaches = []float64{1.1, 1.25, 1.5, 2, 3, 5, 10, 30, 100}

func axisFor(ratios []*float64) axis {
	most := 1.0
	for _, v := range ratios {
		if v != nil && *v > 0 {
			most = max(most, *v, 1 / *v)
		}
	}
	i, _ := slices.BinarySearch(reaches, most)
	return axis(reaches[min(i, len(reaches)-1)])
}

func (a axis) at(ratio float64) float64 { return 50 + 50*math.Log(ratio)/math.Log(float64(a)) }

func (a axis) marks() []string {
	return []string{fmt.Sprintf("%.3g", 1/a), "1", fmt.Sprintf("%.3g", a)}
}

func (a axis) bar(f compare.Figure) *bar {
	if f.Ratio == nil {
		return nil
	}
	return newBar(a.at, *f.Ratio, f.Lower, f.Upper)
}

// judgedRule is a rule with its picture: the limit in the middle of an axis, estimate and interval.
type judgedRule struct {
	v1alpha1.RuleVerdict
	Bar   *bar     // nil if there is nothing to draw
	Marks []string // the values at the axis's beginning, middle and end
	limit verdict.Limit
}

func (j judgedRule) Least() bool { return j.limit.Least }

func (j judgedRule) Picture() string {
	words := "Limit " + j.Marks[1] + ", estimate " + orNone(j.Estimate)
	if j.Lower != "" || j.Upper != "" {
		words += ", " + stats.Confidence + " " + orNone(j.Lower) + " to " + orNone(j.Upper)
	}
	return words
}

func orNone(text string) string { return cmp.Or(text, "without a bound") }

func judgedRules(rules []v1alpha1.Rule, verdicts []v1alpha1.RuleVerdict) []judgedRule {
	var all []judgedRule
	for _, v := range verdicts {
		j := judgedRule{RuleVerdict: v}
		var known bool
		if j.limit, known = verdict.LimitOf(rules, v.Rule); known && v.CandidateRounds > 0 {
			j.draw(j.limit.Value)
		}
		all = append(all, j)
	}
	return all
}

// draw makes the picture, on an axis of multiples of the limit, of messages of differences from it.
func (j *judgedRule) draw(limit float64) {
	value := func(text string) *float64 {
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			return &v
		}
		return nil
	}
	estimate, lower, upper := value(j.Estimate), value(j.Lower), value(j.Upper)
	unbounded := math.Inf(1) // because messages were lost
	estimate = cmp.Or(estimate, &unbounded)
	finite := slices.DeleteFunc([]*float64{estimate, lower, upper}, func(v *float64) bool { return v == nil || math.IsInf(*v, 0) })
	var at func(float64) float64
	var from, to float64
	if j.Unit == v1alpha1.UnitMessages || limit <= 0 {
		reach := 1.0
		for _, v := range finite {
			reach = max(reach, math.Abs(*v-limit))
		}
		at, from, to = func(v float64) float64 { return 50 + 50*(v-limit)/reach }, limit-reach, limit+reach
	} else {
		var multiples []*float64
		for _, v := range finite {
			multiples = append(multiples, new(*v/limit))
		}
		a := axisFor(multiples)
		at, from, to = func(v float64) float64 { return a.at(v / limit) }, limit/float64(a), limit*float64(a)
	}
	j.Bar = newBar(at, *estimate, lower, upper)
	j.Marks = text.Of([]float64{from, limit, to}, j.inUnit)
}

func (j *judgedRule) inUnit(v float64) string {
	switch {
	case j.limit.Ratio:
		return strconv.FormatFloat(v, 'g', 4, 64) + " ×"
	case j.Unit == v1alpha1.UnitNanoseconds:
		return micros(int64(math.Round(v))) + " µs"
	case j.Unit == v1alpha1.UnitBitsPerSecond:
		return stats.FormatBitRate(int64(math.Round(v)))
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}
