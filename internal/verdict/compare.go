package verdict

import (
	"fmt"
	"math"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// Comparison is the evaluation of one rule for one cell.
type Comparison struct {
	Variant, Cell string
	Outcome       v1alpha1.VerdictOutcome
	// Reason is one word.
	Reason string
	// Candidate and Baseline are the values of the median rounds: ns of the cell's own latency type, bit/s or messages;
	// stats.Infinite if lost messages reach the percentile. They and the bounds are meaningless if CandidateRounds is 0.
	Candidate, Baseline             int64
	CandidateRounds, BaselineRounds int
	// Bounds bounds the ratio, the difference of lost, or the median round; for latencies the latter is in ns of the cell's
	// own latency type.
	Bounds stats.Bounds
	// NeedsRounds is the approximate number of rounds on each side that would decide, if further rounds are like those so
	// far; 0 if more rounds would not decide, or more than 1000 would be necessary.
	NeedsRounds int
	// NeedsSamples is the number of samples that each round must have; 0 if there are enough.
	NeedsSamples int64

	rule    rule
	halfRTT bool
	detail  string
}

// mayDecide reports whether a comparison is decided or only lacks rounds.
func (c Comparison) mayDecide() bool {
	return c.Outcome != v1alpha1.VerdictInconclusive ||
		c.Reason == v1alpha1.ReasonLimitInsideBounds || c.Reason == v1alpha1.ReasonTooFewRounds
}

// compare evaluates one rule for one cell. It gathers the numbers, looks for reasons against a conclusion, and then
// concludes.
func compare(r rule, candidate Cell, baseline *Cell, pass, fail stats.OneIn) Comparison {
	c := Comparison{
		Variant: candidate.Variant, Cell: candidate.Name, rule: r, halfRTT: candidate.HalfRTT,
		Bounds: stats.Bounds{Estimate: math.NaN(), Lower: math.Inf(-1), Upper: math.Inf(1)},
	}
	e, missing := gather(r, candidate, baseline)
	if missing == nil && !e.tooFewToShow() {
		e.pass, e.fail = pass, fail
		e.count()
		c.fill(e)
	}
	if blocker := forbids(r, candidate, baseline); blocker != nil {
		c.conclude(v1alpha1.VerdictInconclusive, blocker.Reason, blocker.Message)
		return c
	}
	if missing != nil {
		c.conclude(v1alpha1.VerdictInconclusive, missing.Reason, missing.Message)
		return c
	}
	if r.percentile != nil {
		if needs := r.percentile.NeedsToGate(r.tolerance); e.samples < needs {
			c.NeedsSamples = needs
			c.conclude(v1alpha1.VerdictInconclusive, v1alpha1.ReasonTooFewSamples, fmt.Sprintf(
				"a round has %d samples and %s needs %d to be judged; measure longer", e.samples, r.Metric, needs))
			return c
		}
	}
	c.decide(e)
	return c
}

// forbids returns the first reason why nothing can be concluded, or nil.
func forbids(r rule, candidate Cell, baseline *Cell) *Blocker {
	switch {
	case len(candidate.Blockers) > 0:
		return &candidate.Blockers[0]
	case r.kind == absolute:
		return nil
	case len(candidate.Incomparable) > 0:
		return &candidate.Incomparable[0]
	case baseline != nil && len(baseline.Blockers) > 0:
		return &baseline.Blockers[0]
	}
	return nil
}

// evidence holds the data on which a rule is judged.
type evidence struct {
	rule                rule
	candidate, baseline []stats.Observation
	// samples is the smallest number of samples of any round.
	samples int64
	// lost is the number of messages that the candidate lost in all rounds.
	lost int64
	// limit is the limit of an absolute rule, or of a difference, in the unit of the observations.
	limit int64
	// halfRTT is true if latencies are shown as half of the observed values.
	halfRTT bool

	pass, fail stats.OneIn
	// kPass and kFail are the numbers of comparisons that may lie on the wrong side; -1 if there are too few rounds.
	kPass, kFail int
	tally        stats.Tally
	bounds       stats.Bounds
}

// gather returns the rule's metric of all rounds, or what is missing.
func gather(r rule, candidate Cell, baseline *Cell) (*evidence, *Blocker) {
	e := &evidence{rule: r, limit: r.limit}
	e.halfRTT = candidate.HalfRTT && UnitOf(r.Metric) == UnitNanoseconds
	if e.halfRTT && r.kind == absolute {
		e.limit *= 2
	}
	if e.candidate, e.samples = candidate.Observations(r.Metric); len(e.candidate) == 0 {
		return nil, &Blocker{v1alpha1.ReasonNotMeasured, fmt.Sprintf("not every round has %s", r.Metric)}
	}
	for _, round := range candidate.Rounds {
		e.lost += round.Values[v1alpha1.MetricLost].Value
	}
	if r.kind == absolute {
		return e, nil
	}
	if baseline == nil {
		return nil, &Blocker{v1alpha1.ReasonNoBaseline, "the baseline does not have this cell"}
	}
	var samples int64
	e.baseline, samples = baseline.Observations(r.Metric)
	e.samples = min(e.samples, samples)
	if len(e.baseline) == 0 {
		return nil, &Blocker{v1alpha1.ReasonNotMeasured,
			fmt.Sprintf("not every round of the baseline has %s", r.Metric)}
	}
	return e, nil
}

// tooFewToShow reports whether a round has so few samples that its percentile is not shown anywhere.
func (e *evidence) tooFewToShow() bool {
	return e.rule.percentile != nil && !e.rule.percentile.Eligible(e.samples)
}

// count counts the comparisons that are worse than the limit, and computes the bounds of the compared value. The bound on
// the worse side decides a Pass, the bound on the better side a Fail.
func (e *evidence) count() {
	m, n := len(e.baseline), len(e.candidate)
	if e.rule.kind == absolute {
		e.kPass, e.kFail = stats.Sign(n, e.pass), stats.Sign(n, e.fail)
	} else {
		e.kPass, e.kFail = stats.MannWhitney(m, n, e.pass), stats.MannWhitney(m, n, e.fail)
	}
	kLower, kUpper := e.kFail, e.kPass
	if e.rule.lowerIsWorse() {
		kLower, kUpper = e.kPass, e.kFail
	}
	switch {
	case e.rule.kind == byDifference:
		e.tally = stats.TallyDifference(e.baseline, e.candidate, e.limit)
		e.bounds = stats.Differences(e.baseline, e.candidate, kLower, kUpper)
	case e.rule.kind == byRatio && e.rule.lowerIsWorse():
		e.tally = stats.TallyBelow(e.baseline, e.candidate, e.rule.tolerance.Below())
		e.bounds = stats.Ratios(e.baseline, e.candidate, kLower, kUpper)
	case e.rule.kind == byRatio:
		e.tally = stats.TallyAbove(e.baseline, e.candidate, e.rule.tolerance.Above())
		e.bounds = stats.Ratios(e.baseline, e.candidate, kLower, kUpper)
	case e.rule.lowerIsWorse():
		e.tally = stats.TallyLevelBelow(e.candidate, e.limit)
		e.bounds = stats.Level(e.candidate, kLower, kUpper)
	default:
		e.tally = stats.TallyLevel(e.candidate, e.limit)
		e.bounds = stats.Level(e.candidate, kLower, kUpper)
	}
}

// fill sets the numbers that are shown.
func (c *Comparison) fill(e *evidence) {
	c.CandidateRounds, c.BaselineRounds = len(e.candidate), len(e.baseline)
	c.Candidate, c.Baseline = stats.Median(e.candidate), stats.Median(e.baseline)
	c.Bounds = e.bounds
	if !e.halfRTT {
		return
	}
	c.Candidate, c.Baseline = half(c.Candidate), half(c.Baseline)
	if e.rule.kind == absolute {
		for _, v := range []*float64{&c.Bounds.Estimate, &c.Bounds.Lowest, &c.Bounds.Highest, &c.Bounds.Lower, &c.Bounds.Upper} {
			*v /= 2
		}
	}
}

func half(rtt int64) int64 {
	if rtt == stats.Infinite {
		return rtt
	}
	return stats.HalfRTT(rtt)
}

// decide draws the conclusion from the counted comparisons.
func (c *Comparison) decide(e *evidence) {
	name, limit := e.rule.text()
	switch {
	case e.kPass < 0:
		c.NeedsRounds = e.fewestRounds(e.pass)
		c.conclude(v1alpha1.VerdictInconclusive, v1alpha1.ReasonTooFewRounds, fmt.Sprintf(
			"too few rounds; the rule needs at least %s", c.rounds(c.NeedsRounds)))
	case e.tally.Passes(e.kPass):
		if worst, allowed := e.worstLost(); worst > allowed {
			c.conclude(v1alpha1.VerdictInconclusive, v1alpha1.ReasonWorstRoundBeyondLimit, fmt.Sprintf(
				"most rounds are within %s %s, but one lost %d and %d are allowed", name, limit, worst, allowed))
			return
		}
		c.conclude(v1alpha1.VerdictPass, v1alpha1.ReasonWithinLimit,
			fmt.Sprintf("within %s %s%s", name, limit, c.direction()))
	case e.tally.Fails(e.kFail):
		c.conclude(v1alpha1.VerdictFail, v1alpha1.ReasonBeyondLimit, fmt.Sprintf("beyond %s %s", name, limit))
	case e.rule.kind == byRatio && e.bounds.Lowest == 0 && math.IsInf(e.bounds.Highest, 1):
		c.conclude(v1alpha1.VerdictInconclusive, v1alpha1.ReasonUndefinedRatio,
			"the ratio is undefined, because both medians are zero or fall among the lost messages; use an absolute limit")
	case e.tooCoarse():
		c.conclude(v1alpha1.VerdictInconclusive, v1alpha1.ReasonStepTooCoarse, fmt.Sprintf("%s %s is finer than the ranges in "+
			"which the tool's values are known: more rounds do not help; use a tool that reports all samples", name, limit))
	default:
		c.NeedsRounds = e.needsRounds()
		c.conclude(v1alpha1.VerdictInconclusive, v1alpha1.ReasonLimitInsideBounds, fmt.Sprintf(
			"%s %s lies inside the interval; %s", name, limit, c.wouldDecide()))
	}
	if e.lost > 0 && (e.rule.Metric == v1alpha1.MetricMean || e.rule.Metric == v1alpha1.MetricStdDev) {
		c.detail += fmt.Sprintf(" (without %d lost messages)", e.lost)
	}
}

func (c *Comparison) conclude(outcome v1alpha1.VerdictOutcome, reason, detail string) {
	c.Outcome, c.Reason, c.detail = outcome, reason, detail
}

// worstLost returns the largest loss of a round, and the largest loss that a Pass allows. A count of losses is not a noisy
// level: nine rounds without losses do not make up for a tenth that lost a thousand. Therefore lost passes only if no round
// lost more than the limit or, against a baseline, more than the sum of its worst round and the limit. For other metrics
// both are 0.
func (e *evidence) worstLost() (worst, allowed int64) {
	if e.rule.Metric != v1alpha1.MetricLost {
		return 0, 0
	}
	allowed = e.limit
	for _, o := range e.candidate {
		worst = max(worst, o.High)
	}
	if e.rule.kind == byDifference {
		var worstBaseline int64
		for _, o := range e.baseline {
			worstBaseline = max(worstBaseline, o.Low)
		}
		allowed += worstBaseline
	}
	return worst, allowed
}

// direction names the direction in which a ratio was shown to differ from 1, if it was.
func (c *Comparison) direction() string {
	switch {
	case c.rule.kind != byRatio:
		return ""
	case c.Bounds.Upper < 1:
		return ", lower than the baseline"
	case c.Bounds.Lower > 1:
		return ", higher than the baseline"
	}
	return ""
}
