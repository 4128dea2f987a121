package htmlreport

import (
	"cmp"
	"math"
	"strconv"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

// judgedRule is a rule with its picture: the limit in the middle of an axis, the estimate and its interval.
type judgedRule struct {
	v1alpha1.RuleVerdict
	// Bar is nil if there is nothing to draw.
	Bar *bar
	// Marks are the values at the beginning of the axis, its middle and its end.
	Marks []string
	limit verdict.Limit
}

// Least means that lower values are beyond the limit.
func (j judgedRule) Least() bool { return j.limit.Least }

// Picture is the picture in words.
func (j judgedRule) Picture() string {
	words := "Limit " + j.Marks[1] + ", estimate " + orNone(j.Estimate)
	if j.Lower != "" || j.Upper != "" {
		words += ", " + stats.Confidence + " " + orNone(j.Lower) + " to " + orNone(j.Upper)
	}
	return words
}

func orNone(text string) string {
	if text == "" {
		return "without a bound"
	}
	return text
}

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

// draw makes the picture. A ratio, a latency or a throughput has an axis of multiples of the limit; numbers of messages, which may be 0,
// have one of differences from it.
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
	var at func(float64) float64
	var from, to float64
	if j.Unit == v1alpha1.UnitMessages || limit <= 0 {
		reach := 1.0
		for _, v := range []*float64{estimate, lower, upper} {
			if v != nil && !math.IsInf(*v, 0) {
				reach = max(reach, math.Abs(*v-limit))
			}
		}
		at, from, to = func(v float64) float64 { return 50 + 50*(v-limit)/reach }, limit-reach, limit+reach
	} else {
		var multiples []*float64
		for _, v := range []*float64{estimate, lower, upper} {
			if v != nil && !math.IsInf(*v, 0) {
				multiples = append(multiples, new(*v/limit))
			}
		}
		a := axisFor(multiples)
		at, from, to = func(v float64) float64 { return a.at(v / limit) }, limit/float64(a), limit*float64(a)
	}
	j.Bar = newBar(at, *estimate, lower, upper)
	for _, v := range []float64{from, limit, to} {
		j.Marks = append(j.Marks, j.inUnit(v))
	}
}

// inUnit formats a value on the axis.
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
