package verdict

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// String returns the comparison in one line, candidate before baseline: p99 of vf-onload/tcp-64:
// 1.91µs against 1.80µs, ratio 1.061, 95 % interval [1.020, 1.100] over 10+10 rounds, worst ...
func (c Comparison) String() string {
	return fmt.Sprintf("%s of %s/%s: %s%s, %s", c.rule.Metric, c.Variant, c.Cell, c.numbers(), c.Outcome, c.detail)
}

func (c Comparison) numbers() string {
	if c.CandidateRounds == 0 {
		return ""
	}
	perRound := ""
	if c.rule.counted() {
		perRound = " a round"
	}
	line, rounds, form := c.value(c.Candidate)+perRound, c.sides(), c.bound
	switch c.rule.kind {
	case byRatio:
		line, form = fmt.Sprintf("%s against %s, ratio %s", line, c.value(c.Baseline), decimal(c.Bounds.Estimate, 3)), ratioBound
	case byDifference:
		line = fmt.Sprintf("%s against %s a round, difference %s", c.value(c.Candidate), c.value(c.Baseline), decimal(c.Bounds.Estimate, -1))
		form = func(v float64, _ func(float64) float64) string { return decimal(v, -1) }
	}
	if !c.Bounded {
		return fmt.Sprintf("%s, no %s with %s: ", line, stats.Confidence, rounds)
	}
	line = fmt.Sprintf("%s, %s [%s, %s] over %s", line, stats.Confidence, form(c.Bounds.Lower, math.Floor), form(c.Bounds.Upper, math.Ceil), rounds)
	if c.rule.counted() {
		return line + ": "
	}
	limit := "the limit"
	if c.rule.kind != absolute {
		limit += " from the baseline's worst, " + c.value(c.WorstBaseline)
	}
	share := math.Ceil(100 * stats.ShareBound(c.RoundsBeyond, c.CandidateRounds))
	return fmt.Sprintf("%s, worst %s, %d of %d beyond %s (95 %% sure: at most %.0f %%): ", line, c.value(c.Worst),
		c.RoundsBeyond, c.CandidateRounds, limit, share)
}

func (c Comparison) sides() string {
	if c.rule.kind == absolute {
		return fmt.Sprintf("%d rounds", c.CandidateRounds)
	}
	return fmt.Sprintf("%d+%d rounds%s", c.CandidateRounds, c.BaselineRounds, c.sessions())
}

func (c Comparison) value(v int64) string {
	switch unit := c.rule.metric.Unit; {
	case v == stats.Infinite:
		return "lost"
	case unit == v1alpha1.UnitNanoseconds:
		return stats.FormatLatency(v)
	case unit == v1alpha1.UnitBitsPerSecond:
		return stats.FormatBitRate(v)
	}
	return strconv.FormatInt(v, 10)
}

// bound formats a bound of the median round, rounded outwards: within a limit stays within it.
func (c Comparison) bound(v float64, round func(float64) float64) string {
	if math.IsInf(v, 0) || v == 0 {
		return decimal(v, 0)
	}
	// Two decimals of the unit are shown, or none for bit rates below a gigabit.
	step := 1.0
	for unit := 1e3; unit <= v && unit <= 1e9 && c.rule.metric.Unit != v1alpha1.UnitMessages; unit *= 1e3 {
		step = unit
		if unit == 1e9 || c.rule.metric.Unit == v1alpha1.UnitNanoseconds {
			step = unit / 100
		}
	}
	return c.value(int64(stats.Outwards(v/step, round) * step))
}

func ratioBound(v float64, round func(float64) float64) string {
	if math.IsInf(v, 0) || v == 0 {
		return decimal(v, 0)
	}
	return stats.FormatRatio(v, round)
}

// decimal formats a number; digits -1 means as many digits as necessary.
func decimal(v float64, digits int) string {
	switch {
	case math.IsInf(v, 1):
		return "∞"
	case math.IsInf(v, -1):
		return "-∞"
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

func (c Comparison) wouldDecide() string {
	switch {
	case c.NeedsRounds == 0 && c.rule.kind == absolute && !c.rule.counted():
		return "more rounds pass only if at most one in ten is beyond it"
	case c.NeedsRounds == 0:
		return "it is too near the limit for any reasonable number of rounds"
	}
	return fmt.Sprintf("about %s would be enough", c.rule.rounds(c.NeedsRounds))
}

const maxMessage = 1024

// Status returns the verdict for the status of a benchmark, or nil if no rule was evaluated.
func (j Judgement) Status() *v1alpha1.Verdict {
	if len(j.Rules) == 0 {
		return nil
	}
	v := &v1alpha1.Verdict{
		Outcome: j.Outcome, Comparisons: int32(j.Comparisons), Evaluations: int32(j.looks), BeyondOneIn: int64(j.Beyond),
		Message: fmt.Sprintf("all %d rules pass, in %d comparisons", len(j.Rules), j.Comparisons),
	}
	if j.sameSession && !j.autocorrelated {
		v.WrongOneIn = int64(stats.EachSide) / int64(j.looks)
	}
	for _, r := range j.Rules {
		v.Rules = append(v.Rules, r.status())
	}
	first := slices.IndexFunc(v.Rules, func(r v1alpha1.RuleVerdict) bool { return r.Outcome == j.Outcome })
	if first >= 0 && (j.Outcome != v1alpha1.VerdictPass || len(j.Rules) == 1) {
		v.Message = v.Rules[first].Message
	}
	if j.note != "" {
		v.Message = text.Shorten(j.note+": "+v.Message, maxMessage)
	}
	return v
}

func (r RuleJudgement) status() v1alpha1.RuleVerdict {
	v := v1alpha1.RuleVerdict{Rule: text.Shorten(r.Rule, 512), Outcome: r.Outcome}
	worst := r.Worst()
	if worst == nil {
		v.Reason = v1alpha1.ReasonNoCells
		v.Message = text.Shorten(fmt.Sprintf("%s: Inconclusive, it selects no measured cell", r.Rule), maxMessage)
		return v
	}
	by := map[v1alpha1.VerdictOutcome]int32{}
	for _, c := range r.Comparisons {
		by[c.Outcome]++
	}
	v.Passed, v.Failed, v.Inconclusive = by[v1alpha1.VerdictPass], by[v1alpha1.VerdictFail], by[v1alpha1.VerdictInconclusive]
	v.Reason, v.Message = worst.Reason, worst.String()
	if len(r.Comparisons) > 1 {
		v.Message += fmt.Sprintf(" (the worst of %d cells: %s)", len(r.Comparisons), counts(by))
	}
	v.Message = text.Shorten(v.Message, maxMessage)
	worst.fillStatus(&v)
	return v
}

func counts(by map[v1alpha1.VerdictOutcome]int32) string {
	var words []string
	for _, outcome := range []v1alpha1.VerdictOutcome{v1alpha1.VerdictFail, v1alpha1.VerdictInconclusive, v1alpha1.VerdictPass} {
		if n := by[outcome]; n > 0 {
			words = append(words, fmt.Sprintf("%d %s", n, outcome))
		}
	}
	return strings.Join(words, ", ")
}

func (c Comparison) fillStatus(v *v1alpha1.RuleVerdict) {
	v.Variant, v.Cell = c.Variant, c.Cell
	v.NeedsRounds, v.NeedsSamples = int32(c.NeedsRounds), c.NeedsSamples
	if c.CandidateRounds == 0 {
		return
	}
	v.Unit = c.rule.metric.Unit
	v.CandidateRounds, v.BaselineRounds = int32(c.CandidateRounds), int32(c.BaselineRounds)
	if c.Candidate != stats.Infinite {
		v.Candidate = new(c.Candidate)
	}
	if c.BaselineRounds > 0 && c.Baseline != stats.Infinite {
		v.Baseline = new(c.Baseline)
	}
	digits := -1
	if c.rule.kind == byRatio {
		digits = 3
	}
	if !math.IsInf(c.Bounds.Estimate, 0) {
		v.Estimate = decimal(c.Bounds.Estimate, digits)
	}
	if !c.rule.counted() {
		v.RoundsBeyond = int32(c.RoundsBeyond)
		if c.Worst != stats.Infinite {
			v.WorstRound = new(c.Worst)
		}
	}
	if c.Bounded && !math.IsInf(c.Bounds.Lower, 0) {
		v.Lower = c.machineBound(c.Bounds.Lower, math.Floor)
	}
	if !math.IsInf(c.Bounds.Upper, 0) {
		v.Upper = c.machineBound(c.Bounds.Upper, math.Ceil)
	}
}

func (c Comparison) machineBound(v float64, round func(float64) float64) string {
	if c.rule.kind == byRatio {
		return ratioBound(v, round)
	}
	return decimal(stats.Outwards(v, round), 0)
}
