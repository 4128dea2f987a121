package verdict

import (
	"fmt"
	"math"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// Comparison is one rule evaluated for one cell.
type Comparison struct {
	Variant, Cell, Pair string
	Outcome             v1alpha1.VerdictOutcome
	// Reason as one word.
	Reason string
	// Candidate and Baseline are the median rounds' values: ns of the cell's own latency type, bit/s or messages;
	// stats.Infinite when lost messages reach the percentile. They and the bounds mean nothing when the Rounds are 0.
	Candidate, Baseline             int64
	CandidateRounds, BaselineRounds int
	// Bounds of the ratio, of the difference of lost, or of the median round: of latencies in ns of the cell's own
	// latency type.
	Bounds stats.Bounds
	// NeedsRounds is about how many rounds on each side would decide, if they are like those so far; 0 when rounds are
	// not what is missing, or more than 1000 would be.
	NeedsRounds int
	// NeedsSamples is how many samples each round must have; 0 when there are enough.
	NeedsSamples int64

	rule    rule
	halfRTT bool
	detail  string
}

// mayDecide says whether a comparison is decided or lacks nothing but rounds.
func (c Comparison) mayDecide() bool {
	return c.Outcome != v1alpha1.VerdictInconclusive ||
		c.Reason == v1alpha1.ReasonLimitInsideBounds || c.Reason == v1alpha1.ReasonTooFewRounds
}

// compare holds one rule against one cell. It first gathers the numbers, then asks what forbids a conclusion, and then
// concludes.
func compare(r rule, candidate Cell, baseline *Cell, pass, fail stats.OneIn) Comparison {
	c := Comparison{
		Variant: candidate.Variant, Cell: candidate.Name, Pair: candidate.Pair, rule: r, halfRTT: candidate.HalfRTT,
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

// forbids is the first reason why nothing can be concluded, or nil.
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

// evidence is what a rule is judged on.
type evidence struct {
	rule                rule
	candidate, baseline []stats.Observation
	// samples is the fewest of any round.
	samples int64
	// lost is the number of messages that the candidate lost in all rounds.
	lost int64
	// limit of an absolute rule, or of a difference, in the unit of the observations.
	limit int64
	// halfRTT says that latencies are shown as halves of what was observed.
	halfRTT bool

	pass, fail stats.OneIn
	// kPass and kFail are how many comparisons may lie on the wrong side; -1 when there are too few rounds to tell.
	kPass, kFail int
	tally        stats.Tally
	bounds       stats.Bounds
}

// gather takes the rule's metric out of all rounds, or says what is missing.
func gather(r rule, candidate Cell, baseline *Cell) (*evidence, *Blocker) {
	e := &evidence{rule: r, limit: r.limit, samples: math.MaxInt64}
	e.halfRTT = candidate.HalfRTT && unitOf(r.Metric) == unitNanoseconds
	if e.halfRTT && r.kind == absolute {
		e.limit *= 2
	}
	var ok bool
	if e.candidate, ok = e.observe(candidate); !ok {
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
	if e.baseline, ok = e.observe(*baseline); !ok {
		return nil, &Blocker{v1alpha1.ReasonNotMeasured,
			fmt.Sprintf("not every round of the baseline has %s", r.Metric)}
	}
	return e, nil
}

// observe takes the rule's metric out of a cell's rounds; false when one does not have it, or there are none. A round
// is never left out: those that lack something are seldom the quick ones.
func (e *evidence) observe(c Cell) ([]stats.Observation, bool) {
	out := make([]stats.Observation, len(c.Rounds))
	for i, round := range c.Rounds {
		observation, ok := round.Values[e.rule.Metric]
		if !ok {
			return nil, false
		}
		out[i] = observation
		e.samples = min(e.samples, round.Samples)
	}
	return out, len(out) > 0
}

// tooFewToShow says whether a round has so few samples that its percentile is not shown anywhere, and so not here.
func (e *evidence) tooFewToShow() bool {
	return e.rule.percentile != nil && !e.rule.percentile.Eligible(e.samples)
}

// count counts the comparisons that are worse than the limit, and bounds what they compare. The bound on the worse side
// passes, the one on the better side fails.
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

// fill takes over the numbers that are shown.
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

// decide concludes from the counted comparisons.
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
		c.conclude(v1alpha1.VerdictInconclusive, v1alpha1.ReasonStepTooCoarse, fmt.Sprintf("%s %s is finer than the steps in which "+
			"the tool rounds: more rounds do not help; use a tool that reports samples", name, limit))
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

// worstLost is the most that a round lost, and the most that one may have lost for a Pass. A count of losses is no
// noisy level: nine rounds without any do not make up for a tenth that lost a thousand. So lost passes only when no
// round lost more than the limit, or, against a baseline, than its worst round and the limit together. Of other metrics
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

// direction says in which direction a ratio is shown to differ from 1, if it is.
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
