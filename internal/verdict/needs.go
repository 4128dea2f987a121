package verdict

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// The rounds that would decide are an estimate: the width of the bounds falls with the square root
// of their number, the estimate stays, and the bound is on one side in four of five cases.

// zPower is the normal quantile of four in five; without it, half of the cases would decide.
const zPower = 0.8416

const mostRounds = 1000

func (r rule) fewestRounds(alpha stats.OneIn) int {
	if r.kind == absolute {
		return stats.FewestRounds(stats.Signs, alpha)
	}
	return stats.FewestRounds(stats.EachPair, alpha)
}

// may reports whether a second look may show the value within the limit, or beyond it. A share on
// the wrong side near a half leaves no hope; to stop then decides nothing, and so changes no error.
func (c Comparison) may(baseline, candidate int) (within, beyond bool) {
	e := c.evidence
	if e == nil || c.Outcome != v1alpha1.VerdictInconclusive {
		return c.Outcome == v1alpha1.VerdictPass, c.Outcome == v1alpha1.VerdictFail
	}
	all := baseline * candidate
	if e.rule.kind == absolute {
		all = candidate
	}
	k := e.rule.null(baseline, candidate).Most(stats.EachSide)
	hope := func(wrong int) bool { return k >= 0 && (e.k < 0 || 4*wrong*all <= e.tally.All*(2*k+all)) }
	switch c.Reason {
	case v1alpha1.ReasonTooFewRounds, v1alpha1.ReasonSlowRounds, v1alpha1.ReasonTooNoisy, v1alpha1.ReasonLimitInsideBounds,
		v1alpha1.ReasonRoundsDrift, v1alpha1.ReasonProvisional:
		within, beyond = e.attainable(stats.EachSide)
		within = within && hope(e.tally.Possibly) && (e.rule.kind != absolute || e.tally.Possibly <= candidate/10)
		return within, beyond && hope(e.tally.All-e.tally.Surely)
	}
	return false, false
}

func (e *evidence) scaledLimit() float64 {
	switch {
	case e.rule.kind != byRatio:
		return float64(e.limit)
	case e.rule.metric.LowerIsWorse:
		return e.rule.tolerance.Below().Float64()
	}
	return e.rule.tolerance.Above().Float64()
}

// tooCoarse reports whether rounding, which rounds do not reduce, covers the limit.
func (e *evidence) tooCoarse() bool {
	limit := e.scaledLimit()
	return e.bounds.Lowest < e.bounds.Highest && e.bounds.Lowest <= limit && limit <= e.bounds.Highest
}

// noise is how far the worse bound is beyond the estimate and its rounding, as a logarithm.
func (e *evidence) noise() float64 {
	if e.rule.metric.LowerIsWorse {
		return math.Log(e.bounds.Lowest / e.bounds.Lower)
	}
	return math.Log(e.bounds.Upper / e.bounds.Highest)
}

func (e *evidence) tooNoisy() bool {
	return e.rule.kind == byRatio && e.noise() > math.Abs(math.Log(e.scaledLimit()))
}

// withPower is by what factor a bound must be nearer to the estimate than the limit is.
var withPower = 1 + zPower/normalQuantile(stats.EachSide)

// tolerable returns the least whole percent that an unchanged result would mostly pass, if any.
func (e *evidence) tolerable() string {
	rounds := e.ofRounds(e.noise()) * withPower
	for percent := range 9999 {
		t := stats.Tolerance(1000 * (percent + 1))
		limit := t.Above()
		if e.rule.metric.LowerIsWorse {
			limit = t.Below()
		}
		if math.Hypot(rounds, e.between.Half(t, stats.EachSide)) <= math.Abs(math.Log(limit.Float64())) {
			return fmt.Sprintf("%d%%", percent+1)
		}
	}
	return ""
}

// ofRounds returns the part of a width that rounds narrow: without the sessions'. Logarithms.
func (e *evidence) ofRounds(width float64) float64 {
	return math.Sqrt(max(width*width-e.half*e.half, 0))
}

// needsRounds returns about how many rounds a side would decide; 0: unknown or above mostRounds.
func (e *evidence) needsRounds() int {
	limit := e.scaledLimit()
	// More rounds could show the side on which the estimate lies.
	within := e.bounds.Highest < limit
	if e.rule.metric.LowerIsWorse {
		within = e.bounds.Lowest > limit
	}
	rounds := len(e.candidate)
	var needs float64
	switch {
	case e.rule.kind == absolute:
		needs = e.needsForLevel(within)
	case e.tooNoisy():
		rounds = min(rounds, len(e.baseline))
		needs = e.needsForPairs(e.noise(), math.Abs(math.Log(limit)))
	default:
		rounds = min(rounds, len(e.baseline))
		scale := math.Log
		if e.rule.kind == byDifference {
			scale = func(v float64) float64 { return v }
		}
		if within != e.rule.metric.LowerIsWorse {
			needs = e.needsForPairs(scale(e.bounds.Upper)-scale(e.bounds.Highest), scale(limit)-scale(e.bounds.Highest))
		} else {
			needs = e.needsForPairs(scale(e.bounds.Lowest)-scale(e.bounds.Lower), scale(e.bounds.Lowest)-scale(limit))
		}
	}
	if math.IsNaN(needs) || needs > mostRounds {
		return 0
	}
	return max(int(math.Ceil(needs)), rounds+1, e.rule.fewestRounds(stats.EachSide))
}

// normalQuantile returns what a standard normal variable exceeds with a probability of 1/alpha.
func normalQuantile(alpha stats.OneIn) float64 { return math.Sqrt2 * math.Erfinv(1-2/float64(alpha)) }

// needsForPairs returns the rounds a side with which a bound would clear the limit: its width and
// the limit's distance are on one scale. It is infinite if sessions alone reach the limit.
func (e *evidence) needsForPairs(width, distance float64) float64 {
	m, n := float64(len(e.baseline)), float64(len(e.candidate))
	ratio := e.ofRounds(width) / e.ofRounds(distance) * withPower
	return 2 * m * n / (m + n) * ratio * ratio
}

// needsForLevel returns the rounds that show more than half of them beyond the limit; none for a
// median within it: they are enough for a Pass, or more than one in ten is beyond.
func (e *evidence) needsForLevel(within bool) float64 {
	wrong := float64(e.tally.All-e.tally.Surely) / float64(e.tally.All)
	if within || wrong >= 0.5 {
		return math.NaN()
	}
	ratio := (normalQuantile(stats.EachSide) + zPower) / (1 - 2*wrong)
	return ratio * ratio
}

// Foreseen is what a rule can show with the planned rounds and samples, whatever the results.
type Foreseen struct {
	Says  string // a line for users
	Never string // why it can neither pass nor fail, with the remedy; empty if it can
}

// Foresee returns what each rule can show. most returns a round's most samples, if known.
func Foresee(in Input, most func(Cell) (int64, bool)) ([]Foreseen, error) {
	rules, selected, all, err := in.selected()
	all *= max(1, in.Together)
	out := make([]Foreseen, len(rules))
	for i, r := range rules {
		f := &out[i]
		fewest, one := r.fewestRounds(stats.EachSide), r.fewestRounds(stats.EachSide.Among(all))
		f.Says = fmt.Sprintf("rule %s: can pass with %s", r, r.rounds(fewest))
		if all == 1 {
			f.Says += ", and fail with as many"
		} else {
			f.Says += fmt.Sprintf(", and fail with as many if all %d comparisons do, with %s if one does", all, r.rounds(one))
		}
		switch {
		case len(selected[i]) == 0:
			f.Never = fmt.Sprintf("rule %s selects no cell of this benchmark; change its selectors, or the workload", r)
		case r.counted() && slices.ContainsFunc(selected[i], func(c Cell) bool { return c.Uncounted }):
			f.Never = fmt.Sprintf("rule %s can neither pass nor fail: the tool does not count lost datagrams in ping-pong; use pinger, TCP or a capture", r)
		case !in.decidable(r):
			f.Never = fmt.Sprintf("rule %s can neither pass nor fail with %d rounds; set maxRounds to at least %d", r, in.MaxRounds, fewest)
		}
		if r.percentile == nil {
			continue
		}
		needs := r.percentile.NeedsToGate(r.tolerance)
		f.Says += fmt.Sprintf("; each round needs %d samples", needs)
		for _, c := range selected[i] {
			if n, known := most(c); known && n < needs {
				f.Never = fmt.Sprintf("rule %s can neither pass nor fail: a round of %s has at most %d samples, and %s needs %d; "+
					"measure longer, at a higher rate, or a lower percentile", r, c.Name, n, r.Metric, needs)
			}
		}
	}
	return out, err
}

const mostKept = 36 // rounds that a gate keeps of a baseline; others rarely have more

func (in Input) decidable(r rule) bool {
	switch {
	case r.kind == absolute:
		return in.MaxRounds >= r.fewestRounds(stats.EachSide)
	case in.Criteria.Against(v1alpha1.BaselineVariant):
		return stats.MannWhitney(in.MaxRounds, in.MaxRounds, stats.EachSide) >= 0
	}
	return stats.MannWhitney(cmp.Or(in.BaselineRounds, mostKept), in.MaxRounds, stats.EachSide) >= 0
}

func (r rule) rounds(n int) string {
	if r.kind == absolute {
		return fmt.Sprintf("%d rounds", n)
	}
	return fmt.Sprintf("%d+%d rounds", n, n)
}

// selected returns the rules, the cells that each selects, and their number. Errors are of a rule.
func (in Input) selected() (rules []rule, cells [][]Cell, all int, err error) {
	for i, given := range in.Criteria.Rules {
		r, err := parseRule(given)
		if err != nil {
			return nil, nil, 0, fmt.Errorf("rules[%d]: %w", i, err)
		}
		own := slices.DeleteFunc(slices.Clone(in.Candidate), func(c Cell) bool { return !r.selects(c, in.Criteria.BaselineOf(v1alpha1.BaselineVariant)) })
		rules, cells, all = append(rules, r), append(cells, own), all+len(own)
	}
	return rules, cells, all, nil
}
