package verdict

import (
	"fmt"
	"sort"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// Reference replaces the rounds of a baseline by those of several sessions. The first LeaveOut rounds of the candidate are not compared.
type Reference struct {
	Rounds   []stats.Observation
	Between  stats.Between
	LeaveOut int
}

// widen adds the difference between sessions to the interval. A comparison passes or fails only if the whole interval, and one that is wider
// for the correlation of successive rounds, is on one side of the limit; how certain a Fail is follows from the most confident such interval.
func (e *evidence) widen(null stats.Null) {
	beyond := e.beyond >= stats.EachSide
	if e.rule.kind == byRatio && e.between.Share > 0 {
		e.half = e.between.Half(e.rule.tolerance, stats.EachSide)
		_, surely := e.clear(e.bounds.Widen(1, e.between.HalfToFail(e.rule.tolerance, stats.EachSide)))
		e.bounds = e.bounds.Widen(1, e.half)
		in, out := e.clear(e.bounds)
		e.doubt = beyond && out && !surely
		e.within, beyond = e.within && in, beyond && surely
	}
	decides := e.k >= 0 && (e.within || beyond)
	if e.factor = 1; decides && !e.rule.counted() {
		e.correlation, e.factor = stats.Memory(len(e.candidate), e.inOrder()...)
	}
	if e.half == 0 && e.factor == 1 {
		return
	}
	in, _ := e.clear(e.interval(e.k).Widen(e.factor, e.half))
	e.within = e.within && in
	surely := e.tally.All - e.tally.Surely
	e.beyond = null.OneIn(surely + sort.Search(max(len(null)-surely, 0), func(more int) bool {
		k := surely + more
		_, out := e.clear(e.interval(k).Widen(e.factor, e.between.HalfToFail(e.rule.tolerance, null[k])))
		return out
	}))
	e.remembers = decides && !e.within && e.beyond < stats.EachSide
}

// inOrder returns the values in the order of time: ratios of rounds in turns, which share what drifts, or each side of one session.
func (e *evidence) inOrder() [][]float64 {
	candidate, baseline := stats.Values(e.candidate), stats.Values(e.baseline)
	switch {
	case e.rule.kind == absolute || e.between.Sessions > 1:
		return [][]float64{candidate}
	case !e.inTurns || len(baseline) != len(candidate):
		return [][]float64{candidate, baseline}
	}
	for i := range candidate {
		candidate[i] /= baseline[i]
	}
	return [][]float64{candidate}
}

// clear reports whether an interval of a ratio is wholly within the limit, or wholly beyond it.
func (e *evidence) clear(b stats.Bounds) (within, beyond bool) {
	limit := e.scaledLimit()
	if e.rule.metric.LowerIsWorse {
		return b.Lower >= limit, b.Upper < limit
	}
	return b.Upper <= limit, b.Lower > limit
}

// attainable reports whether any number of rounds can show either: rounds do not narrow the difference between sessions.
func (e *evidence) attainable(alpha stats.OneIn) (within, beyond bool) {
	if e.half == 0 {
		return true, true
	}
	at := stats.Bounds{Estimate: e.bounds.Estimate, Lower: e.bounds.Estimate, Upper: e.bounds.Estimate}
	within, _ = e.clear(at.Widen(1, e.between.Half(e.rule.tolerance, alpha)))
	_, beyond = e.clear(at.Widen(1, e.between.HalfToFail(e.rule.tolerance, alpha)))
	return within, beyond
}

func (c Comparison) sessions() string {
	if c.between.Share == 0 {
		return ""
	}
	sigma, _ := c.between.Sigma(c.rule.tolerance)
	source := "measured"
	if c.between.Differences == 0 {
		source = "assumed"
	}
	return fmt.Sprintf(" of %d boots, which differ by SD %.1f %% (%s)", max(c.between.Sessions, 1), 100*sigma, source)
}

// Compared calls each with cell, metric and tolerance of rules with a relative limit in percent.
func Compared(criteria v1alpha1.Criteria, cells []Cell, each func(Cell, v1alpha1.Metric, stats.Tolerance)) {
	for _, r := range criteria.Rules {
		parsed, err := parseRule(r)
		if err != nil || parsed.kind != byRatio {
			continue
		}
		for _, c := range cells {
			if parsed.selects(c, "") {
				each(c, r.Metric, parsed.tolerance)
			}
		}
	}
}
