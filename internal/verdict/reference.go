package verdict

import (
	"fmt"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// Reference replaces the rounds of a baseline in one metric: the rounds of several sessions, and how much sessions differ.
type Reference struct {
	Rounds  []stats.Observation
	Between stats.Between
}

// widen adds the difference between sessions to the interval. A comparison passes or fails only if the whole interval is on one side of
// the limit.
func (e *evidence) widen() {
	if e.rule.kind != byRatio || e.between.Share == 0 {
		return
	}
	pass, fail := e.between.Half(e.rule.tolerance, e.pass), e.between.Half(e.rule.tolerance, e.fail)
	passes, fails := e.bounds.Widen(pass), e.bounds.Widen(fail)
	if e.rule.lowerIsWorse() {
		e.bounds.Lower, e.bounds.Upper = passes.Lower, fails.Upper
	} else {
		e.bounds.Lower, e.bounds.Upper = fails.Lower, passes.Upper
	}
	worse, better, limit := e.bounds.Upper, e.bounds.Lower, e.scaledLimit()
	if e.rule.lowerIsWorse() {
		worse, better, limit = -e.bounds.Lower, -e.bounds.Upper, -limit
	}
	if worse > limit {
		e.tally.Possibly = e.tally.All
	}
	if better <= limit {
		e.tally.Surely = 0
	}
}

// sessions describes the sessions of the baseline; empty for one session of the same boot, or a baseline without a reference.
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

// Compared returns the rounds of the candidate for each comparison of a rule with maxIncrease or maxDecrease, with its cell and metric.
func Compared(gate v1alpha1.Criteria, cells []Cell, each func(c Cell, m v1alpha1.Metric, rounds []stats.Observation)) {
	for _, r := range gate.Rules {
		parsed, err := parseRule(r)
		if err != nil || parsed.kind != byRatio {
			continue
		}
		for _, c := range cells {
			if rounds, _ := c.Observations(r.Metric); parsed.selects(c, "") && len(rounds) > 0 {
				each(c, r.Metric, rounds)
			}
		}
	}
}
