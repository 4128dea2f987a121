package verdict

import (
	"math"

	"github.com/tailgate-dev/tailgate/internal/stats"
)

// The number of rounds that would decide is an estimate. It assumes that the width of the bounds falls with the square root
// of the number of rounds while the estimate stays the same, and requires the bound to be on one side of the limit in four
// of five cases.

// zPower is the normal quantile of four in five. Without it, the bound would be expected at the limit itself, and beyond it
// in half of the cases.
const zPower = 0.8416

// mostRounds is the largest number of rounds that is suggested.
const mostRounds = 1000

// fewestRounds returns the smallest number of rounds with which anything can be shown.
func (e *evidence) fewestRounds(alpha stats.OneIn) int {
	if e.rule.kind == absolute {
		return stats.FewestRoundsForLevel(alpha)
	}
	return stats.FewestRounds(alpha)
}

// scaledLimit returns the limit in the unit of the bounds.
func (e *evidence) scaledLimit() float64 {
	switch {
	case e.rule.kind != byRatio:
		return float64(e.limit)
	case e.rule.lowerIsWorse():
		return e.rule.tolerance.Below().Float64()
	}
	return e.rule.tolerance.Above().Float64()
}

// tooCoarse reports whether the limit lies within the uncertainty due to rounding, which more rounds do not reduce.
func (e *evidence) tooCoarse() bool {
	limit := e.scaledLimit()
	return e.bounds.Lowest < e.bounds.Highest && e.bounds.Lowest <= limit && limit <= e.bounds.Highest
}

// needsRounds returns the approximate number of rounds on each side that would decide, or 0 if it is unknown or larger than
// mostRounds.
func (e *evidence) needsRounds() int {
	limit := e.scaledLimit()
	// More rounds could show the side on which the estimate lies.
	within := e.bounds.Highest < limit
	if e.rule.lowerIsWorse() {
		within = e.bounds.Lowest > limit
	}
	alpha, k, rounds := e.fail, e.kFail, len(e.candidate)
	if within {
		alpha, k = e.pass, e.kPass
	}
	if e.rule.kind != absolute {
		rounds = min(rounds, len(e.baseline))
	}
	var needs float64
	switch {
	case k < 0:
		// Without a bound there is no estimate; the result is the smallest number of rounds that gives a bound.
	case e.rule.kind == absolute:
		needs = e.needsForLevel(within, normalQuantile(alpha))
	default:
		needs = e.needsForPairs(limit, within != e.rule.lowerIsWorse(), normalQuantile(alpha))
	}
	if math.IsNaN(needs) || needs > mostRounds {
		return 0
	}
	return max(int(math.Ceil(needs)), rounds+1, e.fewestRounds(alpha))
}

// normalQuantile returns the value that a standard normal variable exceeds with a probability of 1/alpha.
func normalQuantile(alpha stats.OneIn) float64 { return math.Sqrt2 * math.Erfinv(1-2/float64(alpha)) }

// needsForPairs returns the number of rounds on each side with which the bound towards the limit would stay clear of it. The
// bound is z standard errors away from the estimate.
func (e *evidence) needsForPairs(limit float64, limitIsAbove bool, z float64) float64 {
	scale := math.Log
	if e.rule.kind == byDifference {
		scale = func(v float64) float64 { return v }
	}
	width, distance := scale(e.bounds.Lowest)-scale(e.bounds.Lower), scale(e.bounds.Lowest)-scale(limit)
	if limitIsAbove {
		width, distance = scale(e.bounds.Upper)-scale(e.bounds.Highest), scale(limit)-scale(e.bounds.Highest)
	}
	m, n := float64(len(e.baseline)), float64(len(e.candidate))
	ratio := width / distance * (z + zPower) / z
	return 2 * m * n / (m + n) * ratio * ratio
}

// needsForLevel returns the number of rounds with which the share of rounds on the wrong side of the limit would be shown to
// be less than a half.
func (e *evidence) needsForLevel(within bool, z float64) float64 {
	wrong := float64(e.tally.All-e.tally.Surely) / float64(e.tally.All)
	if within {
		wrong = float64(e.tally.Possibly) / float64(e.tally.All)
	}
	if wrong >= 0.5 {
		return math.NaN()
	}
	ratio := (z + zPower) / (1 - 2*wrong)
	return ratio * ratio
}
