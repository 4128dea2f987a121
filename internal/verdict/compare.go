package verdict

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// Comparison is the evaluation of one rule for one cell.
type Comparison struct {
	Variant, Cell string
	Outcome       v1alpha1.VerdictOutcome
	Reason        string // one word
	// Candidate and Baseline are the median rounds, in ns of the cell's latency type, bit/s or
	// messages; stats.Infinite if lost. Without CandidateRounds they mean nothing.
	Candidate, Baseline, Worst, WorstBaseline int64
	CandidateRounds, BaselineRounds           int
	// RoundsBeyond may be beyond the limit, or against a baseline beyond its worst round's.
	RoundsBeyond int
	// Bounds are of the ratio, the difference of lost, or the median round, for latencies in ns of
	// the cell's own type. Bounded is false if there are too few rounds.
	Bounds       stats.Bounds
	Bounded      bool
	NeedsRounds  int   // about how many on each side would decide, if alike; 0: not even 1000
	NeedsSamples int64 // of each round; 0 if there are enough

	rule     rule
	detail   string
	between  stats.Between
	evidence *evidence
}

// compare evaluates one rule for one cell up to the conclusion, which depends on all: it gathers
// numbers and reasons against a conclusion. inTurns is true if both were measured in turns.
func compare(r rule, candidate Cell, baseline *Cell, inTurns bool) Comparison {
	c := Comparison{
		Variant: candidate.Variant, Cell: candidate.Name, rule: r,
		Bounds: stats.Bounds{Estimate: math.NaN(), Lower: math.Inf(-1), Upper: math.Inf(1)},
	}
	e, missing := gather(r, candidate, baseline)
	// A percentile of so few samples is not shown anywhere.
	if missing == nil && (r.percentile == nil || r.percentile.Eligible(e.samples)) {
		e.inTurns = inTurns
		e.count()
		c.fill(e)
	}
	if blocker := cmp.Or(forbids(r, candidate, baseline), missing); blocker != nil {
		c.conclude(v1alpha1.VerdictInconclusive, blocker.Reason, blocker.Message)
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
	c.evidence = e
	return c
}

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

type evidence struct {
	rule                rule
	candidate, baseline []stats.Observation
	samples             int64
	lost                int64
	limit               int64 // of an absolute rule, or of a difference, in the observations' unit
	halfRTT             bool

	// between is how sessions differ, half the half width that it adds, of natural logarithms.
	between stats.Between
	half    float64
	inTurns bool // round i of both sides was measured one after the other
	// correlation of successive rounds is estimated only if the rest decides; factor widens the
	// interval for it. autocorrelated: only that prevents a decision.
	correlation, factor float64
	autocorrelated      bool
	// doubt: beyond the limit, but too little is known of how sessions differ for a Fail.
	doubt  bool
	k      int // comparisons that may lie on the wrong side; -1: too few rounds
	tally  stats.Tally
	bounds stats.Bounds
	within bool
	// beyond is one in how many has such a tally and session if the true value is within the limit.
	beyond stats.OneIn
}

func gather(r rule, candidate Cell, baseline *Cell) (*evidence, *Blocker) {
	e := &evidence{rule: r, limit: r.limit}
	e.halfRTT = candidate.HalfRTT && r.metric.Unit == v1alpha1.UnitNanoseconds
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
	if ref, ok := baseline.References[r.Metric]; ok && r.kind == byRatio {
		e.between = ref.Between
		if len(ref.Rounds) > 0 {
			e.baseline = ref.Rounds
			if len(e.candidate) > ref.LeaveOut {
				e.candidate = e.candidate[ref.LeaveOut:]
			}
		}
	}
	e.samples = min(e.samples, samples)
	if len(e.baseline) == 0 {
		return nil, &Blocker{v1alpha1.ReasonNotMeasured,
			fmt.Sprintf("not every round of the baseline has %s", r.Metric)}
	}
	return e, nil
}

// null returns the distribution of comparisons on the wrong side, for numbers of rounds.
func (r rule) null(baseline, candidate int) stats.Null {
	if r.kind == absolute {
		return stats.Signs(candidate)
	}
	return stats.Pairs(baseline, candidate)
}

func (e *evidence) count() {
	null := e.rule.null(len(e.baseline), len(e.candidate))
	e.k = null.Most(stats.EachSide)
	e.tally = e.tallyOf(e.baseline)
	e.within, e.beyond = e.tally.Passes(e.k), null.OneIn(e.tally.All-e.tally.Surely)
	e.bounds = e.interval(e.k)
	e.widen(null)
}

// interval returns the value's interval with at most k on the wrong side, for independent rounds.
func (e *evidence) interval(k int) stats.Bounds {
	switch e.rule.kind {
	case byDifference:
		return stats.Differences(e.baseline, e.candidate, k, k)
	case byRatio:
		return stats.Ratios(e.baseline, e.candidate, k, k)
	}
	return stats.Level(e.candidate, k, k)
}

func (e *evidence) tallyOf(baseline []stats.Observation) stats.Tally {
	switch {
	case e.rule.kind == byDifference:
		return stats.TallyDifference(baseline, e.candidate, e.limit)
	case e.rule.kind == byRatio && e.rule.metric.LowerIsWorse:
		return stats.TallyBelow(baseline, e.candidate, e.rule.tolerance.Below())
	case e.rule.kind == byRatio:
		return stats.TallyAbove(baseline, e.candidate, e.rule.tolerance.Above())
	case e.rule.metric.LowerIsWorse:
		return stats.TallyLevelBelow(e.candidate, e.limit)
	}
	return stats.TallyLevel(e.candidate, e.limit)
}

// slow returns how many rounds are slow beyond limit and baseline, and the allowed one in ten.
func (e *evidence) slow() (rounds, allowed int) {
	allowed = len(e.candidate) / 10
	m := len(e.baseline)
	switch {
	case e.rule.kind == absolute:
		return e.tally.Possibly, allowed
	case e.rule.metric.LowerIsWorse:
		return (stats.ExcessBelow(e.baseline, e.candidate, e.rule.tolerance.Below()) + m - 1) / m, allowed
	}
	return (stats.ExcessAbove(e.baseline, e.candidate, e.rule.tolerance.Above()) + m - 1) / m, allowed
}

func (r rule) worst(rounds []stats.Observation) stats.Observation {
	return slices.MaxFunc(rounds, func(a, b stats.Observation) int {
		if r.metric.LowerIsWorse {
			a, b = b, a
		}
		return cmp.Compare(a.Value, b.Value)
	})
}

func (c *Comparison) fill(e *evidence) {
	c.CandidateRounds, c.BaselineRounds = len(e.candidate), len(e.baseline)
	c.Candidate, c.Baseline = stats.Median(e.candidate), stats.Median(e.baseline)
	c.Worst = e.rule.worst(e.candidate).Value
	c.Bounds, c.Bounded, c.between, c.RoundsBeyond = e.bounds, e.k >= 0, e.between, e.tally.Possibly
	if e.rule.kind != absolute {
		worst := e.rule.worst(e.baseline)
		c.WorstBaseline, c.RoundsBeyond = worst.Value, e.tallyOf([]stats.Observation{worst}).Possibly
	}
	if !e.halfRTT {
		return
	}
	for _, v := range []*int64{&c.Candidate, &c.Baseline, &c.Worst, &c.WorstBaseline} {
		*v = half(*v)
	}
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

// decide draws the conclusion. A comparison fails at the given probability, if any of all does.
func (c *Comparison) decide(failsAt stats.OneIn, all int) {
	e := c.evidence
	name, limit := e.rule.text()
	slow, allowed := e.slow()
	_, certain := e.attainable(stats.EachSide.Among(all))
	unsure := func(reason, format string, args ...any) {
		c.conclude(v1alpha1.VerdictInconclusive, reason, fmt.Sprintf(format, args...))
	}
	switch {
	case e.k < 0:
		c.NeedsRounds = e.rule.fewestRounds(stats.EachSide)
		unsure(v1alpha1.ReasonTooFewRounds, "too few rounds; the rule needs at least %s", e.rule.rounds(c.NeedsRounds))
	case e.autocorrelated:
		unsure(v1alpha1.ReasonRoundsDrift, "%s %s would be decided if rounds were independent, but each resembles the one before (correlation %.2f), "+
			"so that the interval is %.1f times as wide; find out what drifts on the nodes, or set a larger maxRounds", name, limit, e.correlation, e.factor)
	case e.within && e.rule.counted():
		if worst, allowed := e.worstLost(); worst > allowed {
			unsure(v1alpha1.ReasonWorstRoundBeyondLimit, "most rounds are within %s %s, but one lost %d and %d are allowed", name, limit, worst, allowed)
			return
		}
		c.conclude(v1alpha1.VerdictPass, v1alpha1.ReasonWithinLimit, fmt.Sprintf("within %s %s", name, limit))
	case e.within && slow > allowed && e.rule.kind == absolute:
		unsure(v1alpha1.ReasonSlowRounds, "the typical round is within %s %s, but %d of %d rounds are beyond it, and %d may be",
			name, limit, slow, len(e.candidate), allowed)
	case e.within && slow > allowed:
		unsure(v1alpha1.ReasonSlowRounds, "the typical round is within %s %s, but %d of %d rounds more than in the baseline are beyond it, "+
			"and %d may be", name, limit, slow, len(e.candidate), allowed)
	case e.within:
		c.conclude(v1alpha1.VerdictPass, v1alpha1.ReasonWithinLimit,
			fmt.Sprintf("within %s %s%s", name, limit, c.direction()))
	case failsAt > 0 && e.beyond >= failsAt:
		c.conclude(v1alpha1.VerdictFail, v1alpha1.ReasonBeyondLimit, fmt.Sprintf("beyond %s %s", name, limit))
	case e.doubt:
		unsure(v1alpha1.ReasonProvisional, "beyond %s %s, but too little is known of how much boots differ for a Fail, for which they are assumed "+
			"to differ by 80 %% of the tolerance; another boot, or more nodes, will show it", name, limit)
	case e.beyond >= stats.EachSide && !certain:
		unsure(v1alpha1.ReasonLimitInsideBounds, "beyond %s %s, but boots differ so much that it is not certain among %d comparisons", name, limit, all)
	case e.beyond >= stats.EachSide:
		c.NeedsRounds = max(e.rule.fewestRounds(stats.EachSide.Among(all)), len(e.candidate)+1)
		unsure(v1alpha1.ReasonTooFewRounds, "beyond %s %s, but that is not certain among %d comparisons; at least %s can be",
			name, limit, all, e.rule.rounds(c.NeedsRounds))
	case e.rule.kind == byRatio && e.bounds.Lowest == 0 && math.IsInf(e.bounds.Highest, 1):
		unsure(v1alpha1.ReasonUndefinedRatio,
			"the ratio is undefined, because both medians are zero or fall among the lost messages; use an absolute limit")
	case e.tooCoarse():
		unsure(v1alpha1.ReasonStepTooCoarse, "%s %s is finer than the ranges in "+
			"which the tool's values are known: more rounds do not help; use a tool that reports all samples", name, limit)
	case e.tooNoisy():
		c.NeedsRounds = e.needsRounds()
		tolerance := e.tolerable()
		if tolerance != "" {
			tolerance = ", and so would a tolerance of " + tolerance
		}
		differ := "rounds"
		if e.half > 0 {
			differ = "rounds and boots"
		}
		unsure(v1alpha1.ReasonTooNoisy, "the %s differ so much that even an unchanged result would not pass %s %s; %s%s",
			differ, name, limit, c.wouldDecide(), tolerance)
	default:
		c.NeedsRounds = e.needsRounds()
		unsure(v1alpha1.ReasonLimitInsideBounds, "%s %s lies inside the interval; %s", name, limit, c.wouldDecide())
	}
	if e.lost > 0 && e.rule.metric.WithoutLost {
		c.detail += fmt.Sprintf(" (without %d lost messages)", e.lost)
	}
}

func (c *Comparison) conclude(outcome v1alpha1.VerdictOutcome, reason, detail string) {
	c.Outcome, c.Reason, c.detail = outcome, reason, detail
}

// worstLost returns the largest loss of a round, and the largest that a Pass allows: the limit plus
// the baseline's worst. Nine rounds without losses do not make up for a tenth that lost a thousand.
func (e *evidence) worstLost() (worst, allowed int64) {
	for _, o := range e.candidate {
		worst = max(worst, o.High)
	}
	for _, o := range e.baseline {
		allowed = max(allowed, o.Low)
	}
	return worst, allowed + e.limit
}

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

// Reference replaces a baseline's rounds by several sessions', without LeaveOut candidate rounds.
type Reference struct {
	Rounds   []stats.Observation
	Between  stats.Between
	LeaveOut int
}

// widen adds the difference between sessions to the interval. A decision needs it wholly on one
// side, also widened for the correlation of rounds; a Fail is as certain as the most confident one.
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
	e.autocorrelated = decides && !e.within && e.beyond < stats.EachSide
}

// inOrder returns values by time: ratios of rounds in turns, which share drift, or each side.
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

func (e *evidence) clear(b stats.Bounds) (within, beyond bool) {
	limit := e.scaledLimit()
	if e.rule.metric.LowerIsWorse {
		return b.Lower >= limit, b.Upper < limit
	}
	return b.Upper <= limit, b.Lower > limit
}

// attainable reports whether any number of rounds can show either: sessions still differ.
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

// Unbounded returns a cell that a rule of compare compares and no rule of bound limits absolutely:
// stddev and lost say little of a latency. It is empty if each cell, or one at least, is limited.
func Unbounded(compare, bound []v1alpha1.Rule, cells []Cell) string {
	selected := func(rules []v1alpha1.Rule, c Cell, absolutely bool) bool {
		return slices.ContainsFunc(rules, func(r v1alpha1.Rule) bool {
			parsed, err := parseRule(r)
			level := parsed.metric.Unit == v1alpha1.UnitBitsPerSecond || parsed.metric.Percentile || r.Metric == v1alpha1.MetricMean || r.Metric == v1alpha1.MetricMin
			return err == nil && parsed.selects(c, "") && (absolutely && parsed.kind == absolute && level || !absolutely && parsed.kind == byRatio)
		})
	}
	limited := func(c Cell) bool { return selected(bound, c, true) }
	i := slices.IndexFunc(cells, func(c Cell) bool { return selected(compare, c, false) && !limited(c) })
	if i < 0 && (len(cells) == 0 || slices.ContainsFunc(cells, limited)) {
		return ""
	}
	return cells[max(i, 0)].Variant + "/" + cells[max(i, 0)].Name
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
