package verdict

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/test/golden"
)

// cell returns a cell vf-onload/tcp-64 with one metric, a round for each value, and enough samples for any percentile.
func cell(metric v1alpha1.Metric, values ...int64) Cell {
	c := Cell{Variant: "vf-onload", Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}}
	for _, v := range values {
		c.Rounds = append(c.Rounds, Round{Samples: 100_000_000, Values: map[v1alpha1.Metric]stats.Observation{metric: stats.Exact(v)}})
	}
	return c
}

func (c Cell) named(variant, name string) Cell {
	c.Variant, c.Name = variant, name
	return c
}

func (c Cell) streaming() Cell {
	c.Name, c.Stream = "tcp-stream-65536", true
	return c
}

func (c Cell) inHalves() Cell {
	c.HalfRTT = true
	return c
}

func (c Cell) blocked(reason, message string) Cell {
	c.Blockers = append(c.Blockers, Blocker{reason, message})
	return c
}

func (c Cell) incomparable(reason, message string) Cell {
	c.Incomparable = append(c.Incomparable, Blocker{reason, message})
	return c
}

// with adds the same value of another metric to every round.
func (c Cell) with(metric v1alpha1.Metric, value int64) Cell {
	for _, r := range c.Rounds {
		r.Values[metric] = stats.Exact(value)
	}
	return c
}

func (c Cell) sampled(samples int64) Cell {
	c.Rounds = slices.Clone(c.Rounds)
	c.Rounds[len(c.Rounds)-1].Samples = samples
	return c
}

// stepped rounds every value.
func (c Cell) stepped(step int64) Cell {
	for _, r := range c.Rounds {
		for m, o := range r.Values {
			r.Values[m] = stats.Rounded(o.Value, step)
		}
	}
	return c
}

// around returns n values within a few percent of a center.
func around(center int64, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		// -2 to +2 percent, in an order that is not sorted.
		out[i] = center + center*int64((i*7+3)%5-2)/100
	}
	return out
}

func against(rules ...v1alpha1.Rule) v1alpha1.Criteria {
	return v1alpha1.Criteria{Rules: rules, Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineBenchmark, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: "before"}}}}
}

const (
	pass         = v1alpha1.VerdictPass
	fail         = v1alpha1.VerdictFail
	inconclusive = v1alpha1.VerdictInconclusive
)

func TestJudge(t *testing.T) {
	p99 := v1alpha1.MetricP99
	fivePercent := v1alpha1.Rule{Metric: p99, MaxIncrease: v1alpha1.Limit{Text: "5%"}}
	fourMicros := v1alpha1.Rule{Metric: p99, Max: v1alpha1.Limit{Text: "4us"}}
	lost, throughput := v1alpha1.MetricLost, v1alpha1.MetricThroughput
	manyCells := func(n int, metric v1alpha1.Metric, values ...int64) []Cell {
		var out []Cell
		for i := range n {
			out = append(out, cell(metric, values...).named("vf-onload", fmt.Sprintf("tcp-%d", i+1)))
		}
		return out
	}
	// The vectors of the description of the method.
	reference := []int64{9180, 9205, 9170, 9240, 9195, 9210, 9188, 9222, 9176, 9231, 9199, 9215}
	cases := []struct {
		name     string
		criteria v1alpha1.Criteria
		cells    []Cell
		base     []Cell
		outcome  v1alpha1.VerdictOutcome
		reason   string
		more     bool
	}{
		{name: "an increase within the tolerance", criteria: against(fivePercent), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(p99, around(3620, 10)...)}, base: []Cell{cell(p99, around(3600, 10)...)}},
		{name: "an improvement", criteria: against(fivePercent), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(p99, around(3000, 10)...)}, base: []Cell{cell(p99, around(3600, 10)...)}},
		{name: "equal to the baseline", criteria: against(fivePercent), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(p99, 3600, 3600, 3600, 3600, 3600)}, base: []Cell{cell(p99, 3600, 3600, 3600, 3600, 3600)}},
		{name: "slower, and yet within the tolerance", criteria: against(v1alpha1.Rule{Metric: p99, MaxIncrease: v1alpha1.Limit{Text: "20%"}}), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(p99, around(4000, 10)...)}, base: []Cell{cell(p99, around(3600, 10)...)}},
		{name: "an increase beyond the tolerance", criteria: against(fivePercent), outcome: fail, reason: v1alpha1.ReasonBeyondLimit,
			cells: []Cell{cell(p99, around(4000, 10)...)}, base: []Cell{cell(p99, around(3600, 10)...)}},
		{name: "an increase about as large as the tolerance", criteria: against(fivePercent), outcome: inconclusive, reason: v1alpha1.ReasonLimitInsideBounds,
			cells: []Cell{cell(p99, around(3760, 10)...)}, base: []Cell{cell(p99, around(3600, 10)...)}},
		{name: "every ratio is the tolerance itself, which is allowed", criteria: against(fivePercent), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(p99, 4200, 4200, 4200, 4200)}, base: []Cell{cell(p99, 4000, 4000, 4000, 4000)}},
		{name: "every ratio is a nanosecond beyond the tolerance", criteria: against(fivePercent), outcome: fail, reason: v1alpha1.ReasonBeyondLimit,
			cells: []Cell{cell(p99, 4201, 4201, 4201, 4201)}, base: []Cell{cell(p99, 4000, 4000, 4000, 4000)}},
		{name: "two rounds show nothing", criteria: against(fivePercent), outcome: inconclusive, reason: v1alpha1.ReasonTooFewRounds, more: true,
			cells: []Cell{cell(p99, 9000, 9000)}, base: []Cell{cell(p99, 4000, 4000)}},
		{name: "one round a side shows nothing, however far apart", criteria: against(fivePercent), outcome: inconclusive, reason: v1alpha1.ReasonTooFewRounds,
			cells: []Cell{cell(p99, 9_000_000)}, base: []Cell{cell(p99, 4000)}},
		{name: "three rounds a side show nothing", criteria: against(fivePercent), outcome: inconclusive, reason: v1alpha1.ReasonTooFewRounds, more: true,
			cells: []Cell{cell(p99, 4000, 4000, 4000)}, base: []Cell{cell(p99, 4000, 4000, 4000)}},
		{name: "more rounds on one side", criteria: against(fivePercent), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(p99, around(3600, 16)...)}, base: []Cell{cell(p99, around(3600, 10)...)}},
		{name: "a round with too few samples", criteria: against(fivePercent), outcome: inconclusive, reason: v1alpha1.ReasonTooFewSamples,
			cells: []Cell{cell(p99, around(3600, 10)...)}, base: []Cell{cell(p99, around(3600, 10)...).sampled(9_999)}},
		{name: "just enough samples", criteria: against(fivePercent), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(p99, around(3600, 10)...).sampled(10_000)}, base: []Cell{cell(p99, around(3600, 10)...)}},
		{name: "a wide tolerance needs fewer samples", criteria: against(v1alpha1.Rule{Metric: p99, MaxIncrease: v1alpha1.Limit{Text: "20%"}}), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(p99, around(3600, 10)...).sampled(2_500)}, base: []Cell{cell(p99, around(3600, 10)...)}},
		{name: "a mean needs no samples beyond", criteria: against(v1alpha1.Rule{Metric: v1alpha1.MetricMean, MaxIncrease: v1alpha1.Limit{Text: "5%"}}), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(v1alpha1.MetricMean, around(3600, 10)...).sampled(10)}, base: []Cell{cell(v1alpha1.MetricMean, around(3600, 10)...)}},
		{name: "a mean without the lost messages says so", criteria: against(v1alpha1.Rule{Metric: v1alpha1.MetricMean, MaxIncrease: v1alpha1.Limit{Text: "5%"}}), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(v1alpha1.MetricMean, around(3600, 10)...).with(lost, 3)}, base: []Cell{cell(v1alpha1.MetricMean, around(3600, 10)...)}},
		{name: "whole microseconds hide the tolerance", criteria: against(fivePercent), outcome: inconclusive, reason: v1alpha1.ReasonStepTooCoarse,
			cells: []Cell{cell(p99, 7000, 7000, 7000, 7000, 7000).stepped(1000)}, base: []Cell{cell(p99, 7000, 7000, 7000, 7000, 7000).stepped(1000)}},
		{name: "whole microseconds do not hide a large change", criteria: against(fivePercent), outcome: fail, reason: v1alpha1.ReasonBeyondLimit,
			cells: []Cell{cell(p99, 9000, 9000, 9000, 9000, 9000).stepped(1000)}, base: []Cell{cell(p99, 7000, 7000, 7000, 7000, 7000).stepped(1000)}},
		{name: "unverified placement never passes", criteria: against(fivePercent), outcome: inconclusive, reason: "NUMAMismatch",
			cells: []Cell{cell(p99, around(3000, 10)...).blocked("NUMAMismatch", "the client measured from CPU 3 on NUMA node 1, but the device is on NUMA node 0")},
			base:  []Cell{cell(p99, around(3600, 10)...)}},
		{name: "unverified placement never fails either", criteria: against(fourMicros), outcome: inconclusive, reason: "NotAccelerated",
			cells: []Cell{cell(p99, around(8000, 10)...).blocked("NotAccelerated", "the server's socket is not accelerated by Onload")}},
		{name: "unverified placement is reported before missing results", criteria: against(fivePercent), outcome: inconclusive, reason: "NUMAMismatch",
			cells: []Cell{cell(p99).blocked("NUMAMismatch", "the device is on NUMA node 0")}},
		{name: "a baseline of another firmware never passes", criteria: against(fivePercent), outcome: inconclusive, reason: "FingerprintDiffers",
			cells: []Cell{cell(p99, around(3600, 10)...).incomparable("FingerprintDiffers", "firmware variant rx1 there, rx0 here")},
			base:  []Cell{cell(p99, around(3600, 10)...)}},
		{name: "an absolute limit does not ask for the baseline's firmware", criteria: against(fourMicros), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(p99, around(3600, 10)...).incomparable("FingerprintDiffers", "firmware variant rx1 there, rx0 here")},
			base:  []Cell{cell(p99, around(3600, 10)...)}},
		{name: "a baseline whose own placement was not verified never passes", criteria: against(fivePercent), outcome: inconclusive, reason: "NUMAMismatch",
			cells: []Cell{cell(p99, around(3000, 10)...)},
			base:  []Cell{cell(p99, around(3600, 10)...).blocked("NUMAMismatch", "the baseline: the device is on NUMA node 0")}},
		{name: "an absolute limit does not ask for the baseline's placement", criteria: against(fourMicros), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(p99, around(3600, 10)...)},
			base:  []Cell{cell(p99, around(3600, 10)...).blocked("NUMAMismatch", "the baseline: the device is on NUMA node 0")}},
		{name: "the reason of a missing baseline is reported", criteria: against(fivePercent), outcome: inconclusive, reason: "BaselineMissing",
			cells: []Cell{cell(p99, around(3600, 10)...).incomparable("BaselineMissing", "the baseline does not exist")}},
		{name: "so few samples that there is nothing to show", criteria: against(fivePercent), outcome: inconclusive, reason: v1alpha1.ReasonTooFewSamples,
			cells: []Cell{cell(p99, around(3600, 10)...)}, base: []Cell{cell(p99, around(3600, 10)...).sampled(999)}},
		{name: "no baseline", criteria: against(fivePercent), outcome: inconclusive, reason: v1alpha1.ReasonNoBaseline,
			cells: []Cell{cell(p99, around(3600, 10)...)}},
		{name: "a baseline of another cell", criteria: against(fivePercent), outcome: inconclusive, reason: v1alpha1.ReasonNoBaseline,
			cells: []Cell{cell(p99, around(3600, 10)...)}, base: []Cell{cell(p99, around(3600, 10)...).named("vf-onload", "udp-64")}},
		{name: "the tool does not tell the metric", criteria: against(v1alpha1.Rule{Metric: v1alpha1.MetricP9999, Max: v1alpha1.Limit{Text: "4us"}}), outcome: inconclusive, reason: v1alpha1.ReasonNotMeasured,
			cells: []Cell{cell(p99, around(3600, 10)...)}},
		{name: "the baseline does not tell the metric", criteria: against(fivePercent), outcome: inconclusive, reason: v1alpha1.ReasonNotMeasured,
			cells: []Cell{cell(p99, around(3600, 10)...)}, base: []Cell{cell(v1alpha1.MetricP50, around(3600, 10)...)}},
		{name: "no rounds at all", criteria: against(fourMicros), outcome: inconclusive, reason: v1alpha1.ReasonNotMeasured,
			cells: []Cell{cell(p99)}},
		{name: "a rule that selects nothing", criteria: against(v1alpha1.Rule{Metric: p99, Max: v1alpha1.Limit{Text: "4us"}, Variants: []string{"pf-onload"}, MessageSizes: []int32{1, 2, 3, 4, 5, 6}}),
			outcome: inconclusive, reason: v1alpha1.ReasonNoCells, cells: []Cell{cell(p99, around(3600, 10)...)}},

		{name: "within an absolute limit", criteria: against(fourMicros), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(p99, around(3600, 6)...)}},
		{name: "at an absolute limit", criteria: against(fourMicros), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(p99, 4000, 4000, 4000, 4000, 4000, 4000)}},
		{name: "one round of ten beyond an absolute limit", criteria: against(fourMicros), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(p99, append(around(3600, 9), 4001)...)}},
		{name: "two rounds of ten beyond an absolute limit", criteria: against(fourMicros), outcome: inconclusive, reason: v1alpha1.ReasonLimitInsideBounds, more: true,
			cells: []Cell{cell(p99, append(around(3600, 8), 4004, 4005)...)}},
		{name: "half of the rounds beyond an absolute limit", criteria: against(fourMicros), outcome: inconclusive, reason: v1alpha1.ReasonLimitInsideBounds,
			cells: []Cell{cell(p99, 3900, 3900, 3900, 3900, 3900, 4100, 4100, 4100, 4100, 4100)}},
		{name: "five rounds of twenty a hundred times beyond an absolute limit", criteria: against(fourMicros), outcome: inconclusive, reason: v1alpha1.ReasonSlowRounds,
			cells: []Cell{cell(p99, append(around(3600, 15), slices.Repeat([]int64{400_000}, 5)...)...)}},
		{name: "two rounds of twenty beyond an absolute limit", criteria: against(fourMicros), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(p99, append(around(3600, 18), slices.Repeat([]int64{400_000}, 2)...)...)}},
		{name: "one round of six beyond an absolute limit", criteria: against(fourMicros), outcome: inconclusive, reason: v1alpha1.ReasonLimitInsideBounds, more: true,
			cells: []Cell{cell(p99, append(around(3600, 5), 400_000)...)}},
		{name: "one round of nine beyond an absolute limit", criteria: against(fourMicros), outcome: inconclusive, reason: v1alpha1.ReasonSlowRounds, more: true,
			cells: []Cell{cell(p99, append(around(3600, 8), 400_000)...)}},
		{name: "one round of six far slower than the baseline", criteria: against(fivePercent), outcome: inconclusive, reason: v1alpha1.ReasonSlowRounds, more: true,
			cells: []Cell{cell(p99, 9310, 9295, 9342, 9330, 9288, 15600)}, base: []Cell{cell(p99, reference...)}},
		{name: "slow rounds as in the baseline", criteria: against(fivePercent), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(p99, append(around(3600, 18), 9000, 9100)...)}, base: []Cell{cell(p99, append(around(3600, 18), 9000, 9100)...)}},
		{name: "rounds that differ by more than the tolerance", criteria: against(fivePercent), outcome: inconclusive, reason: v1alpha1.ReasonTooNoisy, more: true,
			cells: []Cell{cell(p99, 3600, 4300, 3100, 3900, 3500, 4000)}, base: []Cell{cell(p99, 3700, 4200, 3000, 3800, 3600, 4100)}},
		{name: "a first part that is faster than the rest, which is near the tolerance", criteria: against(fivePercent), outcome: inconclusive, reason: v1alpha1.ReasonRoundsDrift, more: true,
			cells: []Cell{cell(p99, slices.Concat(slices.Repeat([]int64{3600}, 6), slices.Repeat([]int64{3760}, 6))...)}, base: []Cell{cell(p99, slices.Repeat([]int64{3600}, 12)...)}},
		{name: "a first part that is slower than the rest, which is near the tolerance", criteria: against(fivePercent), outcome: inconclusive, reason: v1alpha1.ReasonRoundsDrift, more: true,
			cells: []Cell{cell(p99, slices.Concat(slices.Repeat([]int64{4000}, 6), slices.Repeat([]int64{3810}, 6))...)}, base: []Cell{cell(p99, slices.Repeat([]int64{3600}, 12)...)}},
		{name: "rounds that drift far within the tolerance", criteria: against(v1alpha1.Rule{Metric: p99, MaxIncrease: v1alpha1.Limit{Text: "20%"}}), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(p99, slices.Concat(slices.Repeat([]int64{3600}, 6), slices.Repeat([]int64{3760}, 6))...)}, base: []Cell{cell(p99, slices.Repeat([]int64{3600}, 12)...)}},
		{name: "rounds that drift beneath an absolute limit", criteria: against(fourMicros), outcome: inconclusive, reason: v1alpha1.ReasonRoundsDrift, more: true,
			cells: []Cell{cell(p99, slices.Concat(slices.Repeat([]int64{3700}, 6), slices.Repeat([]int64{3980}, 6))...)}},
		{name: "throughput that breaks down in one round of six", criteria: against(v1alpha1.Rule{Metric: throughput, MaxDecrease: v1alpha1.Limit{Text: "5%"}}), outcome: inconclusive, reason: v1alpha1.ReasonSlowRounds, more: true,
			cells: []Cell{cell(throughput, append(around(9_400_000_000, 5), 100_000_000)...).streaming()}, base: []Cell{cell(throughput, around(9_400_000_000, 12)...).streaming()}},
		{name: "beyond an absolute limit", criteria: against(fourMicros), outcome: fail, reason: v1alpha1.ReasonBeyondLimit,
			cells: []Cell{cell(p99, around(4400, 6)...)}},
		{name: "five rounds show nothing of an absolute limit", criteria: against(fourMicros), outcome: inconclusive, reason: v1alpha1.ReasonTooFewRounds, more: true,
			cells: []Cell{cell(p99, 1, 1, 1, 1, 1)}},
		{name: "a limit on the half round trip", criteria: against(fourMicros), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(p99, around(7200, 6)...).inHalves()}},
		{name: "beyond a limit on the half round trip", criteria: against(fourMicros), outcome: fail, reason: v1alpha1.ReasonBeyondLimit,
			cells: []Cell{cell(p99, 8001, 8001, 8001, 8001, 8001, 8001).inHalves()}},
		{name: "whole microseconds at an absolute limit", criteria: against(fourMicros), outcome: inconclusive, reason: v1alpha1.ReasonStepTooCoarse,
			cells: []Cell{cell(p99, 4000, 4000, 4000, 4000, 4000, 4000).stepped(1000)}},

		{name: "a percentile that lost messages reach fails", criteria: against(fivePercent), outcome: fail, reason: v1alpha1.ReasonBeyondLimit,
			cells: []Cell{cell(p99, slices.Repeat([]int64{stats.Infinite}, 6)...)}, base: []Cell{cell(p99, around(3600, 6)...)}},
		{name: "lost against lost", criteria: against(fivePercent), outcome: inconclusive, reason: v1alpha1.ReasonUndefinedRatio,
			cells: []Cell{cell(p99, slices.Repeat([]int64{stats.Infinite}, 6)...)}, base: []Cell{cell(p99, slices.Repeat([]int64{stats.Infinite}, 6)...)}},
		{name: "a limit on the half round trip, lost", criteria: against(fourMicros), outcome: fail, reason: v1alpha1.ReasonBeyondLimit,
			cells: []Cell{cell(p99, slices.Repeat([]int64{stats.Infinite}, 6)...).inHalves()}},
		{name: "better than a baseline that was lost", criteria: against(fivePercent), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(p99, around(3600, 6)...)}, base: []Cell{cell(p99, slices.Repeat([]int64{stats.Infinite}, 6)...)}},

		{name: "nothing lost", criteria: against(v1alpha1.Rule{Metric: lost, Max: v1alpha1.Limit{Text: "0"}}), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(lost, 0, 0, 0, 0, 0, 0)}},
		{name: "one round of ten lost a thousand", criteria: against(v1alpha1.Rule{Metric: lost, Max: v1alpha1.Limit{Text: "0"}}), outcome: inconclusive, reason: v1alpha1.ReasonWorstRoundBeyondLimit,
			cells: []Cell{cell(lost, 0, 0, 0, 0, 1000, 0, 0, 0, 0, 0)}},
		{name: "one round of ten lost one more than allowed", criteria: against(v1alpha1.Rule{Metric: lost, Max: v1alpha1.Limit{Text: "5"}}), outcome: inconclusive, reason: v1alpha1.ReasonWorstRoundBeyondLimit,
			cells: []Cell{cell(lost, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0)}},
		{name: "every round lost some", criteria: against(v1alpha1.Rule{Metric: lost, Max: v1alpha1.Limit{Text: "0"}}), outcome: fail, reason: v1alpha1.ReasonBeyondLimit,
			cells: []Cell{cell(lost, 1, 2, 1, 3, 1, 2)}},
		{name: "no message lost, and none in the baseline", criteria: against(v1alpha1.Rule{Metric: lost, MaxIncrease: v1alpha1.Limit{Text: "0"}}), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(lost, 0, 0, 0, 0)}, base: []Cell{cell(lost, 0, 0, 0, 0)}},
		{name: "messages lost in two of ten rounds, and none in the baseline", criteria: against(v1alpha1.Rule{Metric: lost, MaxIncrease: v1alpha1.Limit{Text: "10"}}), outcome: inconclusive, reason: v1alpha1.ReasonWorstRoundBeyondLimit,
			cells: []Cell{cell(lost, 0, 700, 0, 0, 0, 0, 0, 800, 0, 0)}, base: []Cell{cell(lost, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)}},
		{name: "no more lost than the baseline and the limit", criteria: against(v1alpha1.Rule{Metric: lost, MaxIncrease: v1alpha1.Limit{Text: "10"}}), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(lost, 12, 14, 9, 11, 13)}, base: []Cell{cell(lost, 10, 12, 14, 9, 11)}},
		{name: "more lost than the baseline and the limit", criteria: against(v1alpha1.Rule{Metric: lost, MaxIncrease: v1alpha1.Limit{Text: "10"}}), outcome: fail, reason: v1alpha1.ReasonBeyondLimit,
			cells: []Cell{cell(lost, 32, 34, 29, 31, 33)}, base: []Cell{cell(lost, 10, 12, 14, 9, 11)}},
		{name: "lost about as many more as allowed", criteria: against(v1alpha1.Rule{Metric: lost, MaxIncrease: v1alpha1.Limit{Text: "10"}}), outcome: inconclusive, reason: v1alpha1.ReasonLimitInsideBounds, more: true,
			cells: []Cell{cell(lost, 22, 17, 19, 21, 18)}, base: []Cell{cell(lost, 10, 12, 14, 9, 11)}},

		{name: "throughput above an absolute limit", criteria: against(v1alpha1.Rule{Metric: throughput, Min: v1alpha1.Limit{Text: "9G"}}), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(throughput, around(9_400_000_000, 6)...).streaming()}},
		{name: "throughput below an absolute limit", criteria: against(v1alpha1.Rule{Metric: throughput, Min: v1alpha1.Limit{Text: "9G"}}), outcome: fail, reason: v1alpha1.ReasonBeyondLimit,
			cells: []Cell{cell(throughput, around(8_000_000_000, 6)...).streaming()}},
		{name: "throughput at an absolute limit", criteria: against(v1alpha1.Rule{Metric: throughput, Min: v1alpha1.Limit{Text: "9G"}}), outcome: inconclusive, reason: v1alpha1.ReasonLimitInsideBounds,
			cells: []Cell{cell(throughput, around(9_080_000_000, 10)...).streaming()}},
		{name: "throughput within the tolerance", criteria: against(v1alpha1.Rule{Metric: throughput, MaxDecrease: v1alpha1.Limit{Text: "5%"}}), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(throughput, around(9_400_000_000, 10)...).streaming()}, base: []Cell{cell(throughput, around(9_400_000_000, 10)...).streaming()}},
		{name: "throughput gained", criteria: against(v1alpha1.Rule{Metric: throughput, MaxDecrease: v1alpha1.Limit{Text: "5%"}}), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: []Cell{cell(throughput, around(20_000_000_000, 10)...).streaming()}, base: []Cell{cell(throughput, around(9_400_000_000, 10)...).streaming()}},
		{name: "throughput lost", criteria: against(v1alpha1.Rule{Metric: throughput, MaxDecrease: v1alpha1.Limit{Text: "5%"}}), outcome: fail, reason: v1alpha1.ReasonBeyondLimit,
			cells: []Cell{cell(throughput, around(8_000_000_000, 10)...).streaming()}, base: []Cell{cell(throughput, around(9_400_000_000, 10)...).streaming()}},
		{name: "throughput about as much lower as the tolerance", criteria: against(v1alpha1.Rule{Metric: throughput, MaxDecrease: v1alpha1.Limit{Text: "5%"}}), outcome: inconclusive, reason: v1alpha1.ReasonLimitInsideBounds,
			cells: []Cell{cell(throughput, around(8_990_000_000, 10)...).streaming()}, base: []Cell{cell(throughput, around(9_400_000_000, 10)...).streaming()}},
		{name: "no throughput on either side", criteria: against(v1alpha1.Rule{Metric: throughput, MaxDecrease: v1alpha1.Limit{Text: "5%"}}), outcome: inconclusive, reason: v1alpha1.ReasonUndefinedRatio,
			cells: []Cell{cell(throughput, 0, 0, 0, 0, 0).streaming()}, base: []Cell{cell(throughput, 0, 0, 0, 0, 0).streaming()}},

		{name: "a variant against another", outcome: fail, reason: v1alpha1.ReasonBeyondLimit,
			criteria: v1alpha1.Criteria{Rules: []v1alpha1.Rule{fivePercent}, Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineVariant, Variant: &v1alpha1.ObjectName{Name: "host-kernel"}}},
			cells:    []Cell{cell(p99, around(3600, 10)...).named("host-kernel", "tcp-64"), cell(p99, around(7200, 10)...)},
			base:     []Cell{cell(p99, around(7200, 10)...)}},
		{name: "the variant that is compared with is not compared with itself", outcome: inconclusive, reason: v1alpha1.ReasonNoCells,
			criteria: v1alpha1.Criteria{Rules: []v1alpha1.Rule{fivePercent}, Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineVariant, Variant: &v1alpha1.ObjectName{Name: "host-kernel"}}},
			cells:    []Cell{cell(p99, around(3600, 10)...).named("host-kernel", "tcp-64")}},
		{name: "an absolute limit holds for the variant that is compared with", outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			criteria: v1alpha1.Criteria{Rules: []v1alpha1.Rule{fourMicros}, Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineVariant, Variant: &v1alpha1.ObjectName{Name: "host-kernel"}}},
			cells:    []Cell{cell(p99, around(3600, 10)...).named("host-kernel", "tcp-64")}},

		{name: "twenty comparisons of five rounds fail together", criteria: against(fivePercent), outcome: fail, reason: v1alpha1.ReasonBeyondLimit,
			cells: manyCells(20, p99, 8000, 8000, 8000, 8000, 8000), base: manyCells(20, p99, 4000, 4000, 4000, 4000, 4000)},
		{name: "one of twenty comparisons of five rounds cannot fail", criteria: against(fivePercent), outcome: inconclusive, reason: v1alpha1.ReasonTooFewRounds, more: true,
			cells: append(manyCells(19, p99, 4000, 4000, 4000, 4000, 4000), cell(p99, 8000, 8000, 8000, 8000, 8000).named("vf-onload", "tcp-20")), base: manyCells(20, p99, 4000, 4000, 4000, 4000, 4000)},
		{name: "one of twenty comparisons of six rounds can fail", criteria: against(fivePercent), outcome: fail, reason: v1alpha1.ReasonBeyondLimit,
			cells: append(manyCells(19, p99, 4000, 4000, 4000, 4000, 4000, 4000), cell(p99, 8000, 8000, 8000, 8000, 8000, 8000).named("vf-onload", "tcp-20")), base: manyCells(20, p99, 4000, 4000, 4000, 4000, 4000, 4000)},
		{name: "among twenty comparisons five rounds can pass", criteria: against(fivePercent), outcome: pass, reason: v1alpha1.ReasonWithinLimit,
			cells: manyCells(20, p99, 4000, 4010, 4020, 4000, 4010), base: manyCells(20, p99, 4000, 4010, 4020, 4000, 4010)},
		{name: "a failure among cells that pass, and one that is inconclusive", criteria: against(fivePercent), outcome: fail, reason: v1alpha1.ReasonBeyondLimit,
			cells: []Cell{cell(p99, around(3600, 10)...), cell(p99, around(4500, 10)...).named("vf-onload", "tcp-1024"), cell(p99, around(4200, 10)...).named("vf-onload", "tcp-512"),
				cell(p99, around(3600, 10)...).named("vf-onload", "udp-64")},
			base: []Cell{cell(p99, around(3600, 10)...), cell(p99, around(3600, 10)...).named("vf-onload", "tcp-1024"), cell(p99, around(3600, 10)...).named("vf-onload", "tcp-512")}},
	}
	var lines strings.Builder
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			j, err := Judge(Input{Criteria: c.criteria, Candidate: c.cells, Baseline: c.base, MaxRounds: 20})
			if err != nil {
				t.Fatal(err)
			}
			v := j.Status()
			fmt.Fprintf(&lines, "%s\n\t%s\n", c.name, v.Message)
			got := fmt.Sprint(v.Outcome, v.Rules[0].Outcome, v.Rules[0].Reason, j.MoreRoundsMayDecide)
			if want := fmt.Sprint(c.outcome, c.outcome, c.reason, c.more); got != want {
				t.Errorf("got %s, want %s: %s", got, want, v.Message)
			}
			if c.outcome == inconclusive && c.reason == v1alpha1.ReasonTooFewRounds && v.Rules[0].NeedsRounds == 0 {
				t.Error("it does not tell how many rounds are needed")
			}
			checkLimits(t, v)
		})
	}
	golden.Check(t, "messages.txt", lines.String())
}

// checkLimits compares a status with the limits of the API.
func checkLimits(t *testing.T, v *v1alpha1.Verdict) {
	t.Helper()
	for _, r := range v.Rules {
		for _, text := range []struct {
			value string
			most  int
		}{{r.Rule, 512}, {r.Message, 1024}, {r.Reason, 64}, {r.Estimate, 32}, {r.Lower, 32}, {r.Upper, 32}} {
			if len(text.value) > text.most || strings.Contains(text.value, "\n") || strings.Contains(text.value, "NaN") {
				t.Errorf("%q does not suit the API", text.value)
			}
		}
		if r.Passed+r.Failed+r.Inconclusive == 0 && r.Reason != v1alpha1.ReasonNoCells {
			t.Errorf("%s: no cell is counted", r.Rule)
		}
	}
}

func TestStatus(t *testing.T) {
	criteria := against(
		v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "5%"}, Variants: []string{"vf-onload"}},
		v1alpha1.Rule{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "2us"}},
		v1alpha1.Rule{Metric: v1alpha1.MetricLost, MaxIncrease: v1alpha1.Limit{Text: "3"}})
	candidate := cell(v1alpha1.MetricP99, 3700, 3720, 3740, 3760, 3780, 3790).inHalves().with(v1alpha1.MetricLost, 4)
	baseline := cell(v1alpha1.MetricP99, 3600, 3620, 3640, 3660, 3680, 3690).inHalves().with(v1alpha1.MetricLost, 2)
	j, err := Judge(Input{Criteria: criteria, Candidate: []Cell{candidate}, Baseline: []Cell{baseline}, Rounds: 6, MaxRounds: 20})
	if err != nil {
		t.Fatal(err)
	}
	const within = ", 0 of 6 beyond the limit from the baseline's worst, 1.85µs (95 % sure: at most 40 %)"
	want := &v1alpha1.Verdict{
		Outcome: pass, Message: "all 3 rules pass, in 3 comparisons", Comparisons: 3, Evaluations: 2, BeyondOneIn: 1,
		Rules: []v1alpha1.RuleVerdict{{
			Rule: "p99 maxIncrease 5% of variants vf-onload", Outcome: pass, Reason: v1alpha1.ReasonWithinLimit, Passed: 1, Variant: "vf-onload", Cell: "tcp-64",
			Message: "p99 of vf-onload/tcp-64: 1.87µs against 1.82µs, ratio 1.027, 95 % interval [1.013, 1.042] over 6+6 rounds, worst 1.90µs" + within + ": Pass, within maxIncrease 5%, higher than the baseline",
			Unit:    "Nanoseconds", Candidate: new(int64(1870)), Baseline: new(int64(1820)), CandidateRounds: 6, BaselineRounds: 6,
			Estimate: "1.027", Lower: "1.013", Upper: "1.042", WorstRound: new(int64(1895)),
		}, {
			Rule: "p99 max 2µs", Outcome: pass, Reason: v1alpha1.ReasonWithinLimit, Passed: 1, Variant: "vf-onload", Cell: "tcp-64",
			Message: "p99 of vf-onload/tcp-64: 1.87µs, 95 % interval [1.85µs, 1.90µs] over 6 rounds, worst 1.90µs, 0 of 6 beyond the limit (95 % sure: at most 40 %): Pass, within max 2µs",
			Unit:    "Nanoseconds", Candidate: new(int64(1870)), CandidateRounds: 6, Estimate: "1875", Lower: "1850", Upper: "1895", WorstRound: new(int64(1895)),
		}, {
			Rule: "lost maxIncrease 3", Outcome: pass, Reason: v1alpha1.ReasonWithinLimit, Passed: 1, Variant: "vf-onload", Cell: "tcp-64",
			Message: "lost of vf-onload/tcp-64: 4 against 2 a round, difference 2, 95 % interval [2, 2] over 6+6 rounds: Pass, within maxIncrease 3",
			Unit:    "Messages", Candidate: new(int64(4)), Baseline: new(int64(2)), CandidateRounds: 6, BaselineRounds: 6, Estimate: "2", Lower: "2", Upper: "2",
		}},
	}
	if diff := cmp.Diff(want, j.Status()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDrift: the status has the reason and the remedy, and rounds that were measured in turns and drift together do not drift.
func TestDrift(t *testing.T) {
	rising := slices.Concat(slices.Repeat([]int64{3600}, 6), slices.Repeat([]int64{3760}, 6))
	in := Input{Criteria: against(v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "5%"}}), Candidate: []Cell{cell(v1alpha1.MetricP99, rising...)},
		Baseline: []Cell{cell(v1alpha1.MetricP99, slices.Repeat([]int64{3600}, 12)...)}, Rounds: 12, MaxRounds: 20}
	j, err := Judge(in)
	if err != nil {
		t.Fatal(err)
	}
	got := j.Status().Rules[0]
	if want := "each resembles the one before (correlation 0.6"; got.Reason != v1alpha1.ReasonRoundsDrift || !strings.Contains(got.Message, want) || !strings.Contains(got.Message, "a larger maxRounds") {
		t.Errorf("%s: %s, without %q", got.Reason, got.Message, want)
	}
	in.Criteria.Baseline = &v1alpha1.Baseline{Type: v1alpha1.BaselineVariant, Variant: &v1alpha1.ObjectName{Name: "base"}}
	in.Candidate = append(in.Candidate, cell(v1alpha1.MetricP99, rising...).named("base", in.Candidate[0].Name))
	if j, err = Judge(in); err != nil || j.Outcome != pass {
		t.Errorf("both drift together: %v, %v", j.Rules, err)
	}
}

func TestNote(t *testing.T) {
	j, err := Judge(Input{Criteria: against(v1alpha1.Rule{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "2us"}}), Candidate: []Cell{cell(v1alpha1.MetricP99, around(1800, 5)...)}, Note: "on a simulated NIC"})
	if err != nil {
		t.Fatal(err)
	}
	if v := j.Status(); v.Message != "on a simulated NIC: "+v.Rules[0].Message {
		t.Errorf("got %q", v.Message)
	}
}

// The bounds shown are the bounds that decide, and those of a comparison: 1 in 40 on each side, whatever the number of comparisons.
func TestShownBounds(t *testing.T) {
	var from1to20, twenties []int64
	for i := range int64(20) {
		from1to20, twenties = append(from1to20, 1000*(i+1)), append(twenties, 20_000)
	}
	candidate, baseline := cell("", from1to20...), cell("", twenties...)
	observed := func(c Cell) (all []stats.Observation) {
		for _, r := range c.Rounds {
			all = append(all, r.Values[""])
		}
		return all
	}
	of := func(b stats.Bounds) [2]float64 { return [2]float64{b.Lower, b.Upper} }
	interval, bounded := stats.Interval(observed(baseline), observed(candidate))
	ratios := of(interval)
	if !bounded {
		t.Fatal(interval)
	}
	cases := map[string]struct {
		rule    v1alpha1.Rule
		halfRTT bool
		want    [2]float64
	}{
		"an upper limit":                  {v1alpha1.Rule{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "1ms"}}, false, [2]float64{6000, 15_000}},
		"an upper limit, of half trips":   {v1alpha1.Rule{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "1ms"}}, true, [2]float64{3000, 7500}},
		"a lower limit":                   {v1alpha1.Rule{Metric: v1alpha1.MetricThroughput, Min: v1alpha1.Limit{Text: "1G"}}, false, [2]float64{6000, 15_000}},
		"an increase":                     {v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "5%"}}, false, ratios},
		"an increase, of half trips":      {v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "5%"}}, true, ratios},
		"a decrease":                      {v1alpha1.Rule{Metric: v1alpha1.MetricThroughput, MaxDecrease: v1alpha1.Limit{Text: "5%"}}, false, ratios},
		"an increase of lost messages":    {v1alpha1.Rule{Metric: v1alpha1.MetricLost, MaxIncrease: v1alpha1.Limit{Text: "5"}}, false, of(stats.Differences(observed(baseline), observed(candidate), 127, 127))},
		"an upper limit of lost messages": {v1alpha1.Rule{Metric: v1alpha1.MetricLost, Max: v1alpha1.Limit{Text: "5"}}, false, [2]float64{6000, 15_000}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			in := Input{Criteria: against(c.rule)}
			for i := range 20 {
				side := func(values []int64) Cell {
					made := cell(c.rule.Metric, values...).named("vf", fmt.Sprintf("cell-%d", i))
					made.Stream, made.HalfRTT = c.rule.Metric == v1alpha1.MetricThroughput, c.halfRTT
					return made
				}
				in.Candidate, in.Baseline = append(in.Candidate, side(from1to20)), append(in.Baseline, side(twenties))
			}
			j, err := Judge(in)
			if err != nil {
				t.Fatal(err)
			}
			if got := of(j.Rules[0].Comparisons[0].Bounds); got != c.want || got[0] == got[1] {
				t.Errorf("%v is shown, not %v", got, c.want)
			}
		})
	}
}

func TestNothingJudged(t *testing.T) {
	j, err := Judge(Input{Candidate: []Cell{cell(v1alpha1.MetricP99, 1)}})
	if err != nil || j.Outcome != "" || j.Status() != nil || j.MoreRoundsMayDecide {
		t.Errorf("without rules nothing is judged: %+v, %v", j, err)
	}
}

// TestMoreRounds checks when more rounds are worth measuring: if only rounds are missing.
func TestMoreRounds(t *testing.T) {
	rule := v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "5%"}}
	undecided, base := cell(v1alpha1.MetricP99, around(3730, 10)...), cell(v1alpha1.MetricP99, around(3600, 10)...)
	good, bad := cell(v1alpha1.MetricP99, around(3600, 10)...), cell(v1alpha1.MetricP99, around(7200, 10)...)
	blocked := good.blocked("NotAccelerated", "not accelerated")
	slower, nearly, at := cell(v1alpha1.MetricP99, around(3830, 10)...), cell(v1alpha1.MetricP99, around(3735, 10)...), cell(v1alpha1.MetricP99, around(3780, 10)...)
	cases := map[string]struct {
		cells []Cell
		want  bool
	}{
		"one cell is undecided":                        {[]Cell{undecided, good.named("vf-onload", "udp-64")}, true},
		"another cell fails already":                   {[]Cell{undecided, bad.named("vf-onload", "udp-64")}, false},
		"another cell can never be judged":             {[]Cell{undecided, blocked.named("vf-onload", "udp-64")}, false},
		"everything passes":                            {[]Cell{good}, false},
		"another cell has no baseline, which stays so": {[]Cell{undecided, good.named("vf-onload", "udp-1")}, false},
		"it may fail beside one that is not judged":    {[]Cell{slower, blocked.named("vf-onload", "udp-64")}, true},
		"it may pass beside one that may not fail":     {[]Cell{undecided, nearly.named("vf-onload", "udp-64")}, true},
		"it is at the limit, and so it would stay":     {[]Cell{at}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			in := Input{Criteria: against(rule), Candidate: c.cells, Baseline: []Cell{base, base.named("vf-onload", "udp-64")}, Rounds: 10, MaxRounds: 20}
			j, err := Judge(in)
			if err != nil || j.MoreRoundsMayDecide != c.want {
				t.Errorf("got %v and %v, want %v", j.MoreRoundsMayDecide, err, c.want)
			}
			in.Together = 1_000_000
			if j, err := Judge(in); err != nil || j.Outcome == fail && !j.MoreRoundsMayDecide {
				t.Error("a Fail that is not certain among a million benchmarks is final", err)
			}
			in.MaxRounds = 10
			if j, err := Judge(in); err != nil || j.MoreRoundsMayDecide {
				t.Error("there is no second look", err)
			}
		})
	}
}

// TestNeedsRounds measures the suggested number of rounds: with the same spread they mostly decide, and a quarter of them
// mostly do not.
func TestNeedsRounds(t *testing.T) {
	judge := func(seed uint64, n int, criteria v1alpha1.Criteria, shift float64) Comparison {
		random := newRandom(seed)
		draw := func(center float64) []int64 {
			return normal(random, center, 0.03, n)
		}
		j, err := Judge(Input{Criteria: criteria, Candidate: []Cell{cell(v1alpha1.MetricP99, draw(20_000*shift)...)}, Baseline: []Cell{cell(v1alpha1.MetricP99, draw(20_000)...)}})
		if err != nil {
			t.Fatal(err)
		}
		return j.Rules[0].Comparisons[0]
	}
	for name, c := range map[string]struct {
		rule  v1alpha1.Rule
		shift float64
	}{
		"a ratio that passes": {v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "5%"}}, 1.03},
		"a ratio that fails":  {v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "5%"}}, 1.07},
		"a level that fails":  {v1alpha1.Rule{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "19500ns"}}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			forecasts, decided, quarter := 0, 0, 0
			for seed := range uint64(200) {
				first := judge(seed, 10, against(c.rule), c.shift)
				if first.NeedsRounds == 0 || first.NeedsRounds > 80 {
					continue
				}
				if first.NeedsRounds <= 10 {
					t.Fatalf("10 rounds did not decide, and %d should: %s", first.NeedsRounds, first)
				}
				forecasts++
				if judge(seed+1000, first.NeedsRounds, against(c.rule), c.shift).Outcome != inconclusive {
					decided++
				}
				if judge(seed+1000, max(first.NeedsRounds/4, 6), against(c.rule), c.shift).Outcome != inconclusive {
					quarter++
				}
			}
			t.Logf("of %d forecasts, that number of rounds decided %d and a quarter of it %d", forecasts, decided, quarter)
			if forecasts < 40 || decided < forecasts*6/10 || quarter > decided*2/3 {
				t.Errorf("of %d forecasts, that number of rounds decided %d and a quarter of it %d", forecasts, decided, quarter)
			}
		})
	}
}

func TestWorst(t *testing.T) {
	criteria := against(v1alpha1.Rule{Metric: v1alpha1.MetricThroughput, Min: v1alpha1.Limit{Text: "9G"}})
	slow := cell(v1alpha1.MetricThroughput, around(8_000_000_000, 10)...).streaming()
	slower := cell(v1alpha1.MetricThroughput, around(7_000_000_000, 10)...).streaming()
	slower.Variant = "host"
	j, err := Judge(Input{Criteria: criteria, Candidate: []Cell{slow, slower}})
	if err != nil {
		t.Fatal(err)
	}
	if worst := j.Rules[0].Worst(); worst.Variant != "host" {
		t.Errorf("the worst throughput is the lowest, not that of %s", worst.Variant)
	}
	if !math.IsInf(Comparison{Bounds: stats.Bounds{Estimate: math.NaN()}}.excess(), 1) {
		t.Error("what has no numbers is the worst")
	}
}

// The round with the fewest samples decides whether a percentile can be judged, at whatever index it is.
func TestFewestSamples(t *testing.T) {
	for i := range 6 {
		c := cell(v1alpha1.MetricP99, around(3600, 6)...)
		c.Rounds[i].Samples = 100
		j, err := Judge(Input{Criteria: against(v1alpha1.Rule{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "4us"}}), Candidate: []Cell{c}})
		if err != nil || j.Rules[0].Comparisons[0].Reason != v1alpha1.ReasonTooFewSamples {
			t.Errorf("round %d: %v, %v", i, j.Status(), err)
		}
	}
}

// A verdict states a probability only where it holds: for absolute limits and for variants that were measured in turns.
func TestWrongOneIn(t *testing.T) {
	limit := v1alpha1.Rule{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "4us"}}
	tolerance := v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "5%"}}
	variant := v1alpha1.Criteria{Rules: []v1alpha1.Rule{tolerance}, Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineVariant, Variant: &v1alpha1.ObjectName{Name: "base"}}}
	for name, c := range map[string]struct {
		criteria    v1alpha1.Criteria
		max         int
		looks, want int64
	}{
		"an absolute limit":             {against(limit), 20, 2, 20},
		"an absolute limit, one look":   {against(limit), 6, 1, 40},
		"a variant":                     {variant, 20, 2, 20},
		"another benchmark":             {against(limit, tolerance), 20, 2, 0},
		"another benchmark, one look":   {against(tolerance), 0, 1, 0},
		"a baseline that is not needed": {v1alpha1.Criteria{Rules: []v1alpha1.Rule{limit}}, 20, 2, 20},
	} {
		j, err := Judge(Input{Criteria: c.criteria, Candidate: []Cell{cell(v1alpha1.MetricP99, around(3600, 6)...)}, Rounds: 6, MaxRounds: c.max})
		if v := j.Status(); err != nil || int64(v.Evaluations) != c.looks || v.WrongOneIn != c.want {
			t.Errorf("%s: %d looks, wrong one in %d, %v", name, v.Evaluations, v.WrongOneIn, err)
		}
	}
	resembling := slices.Concat(slices.Repeat([]int64{3500, 3510}, 5), slices.Repeat([]int64{3700, 3710}, 5))
	j, err := Judge(Input{Criteria: against(limit), Candidate: []Cell{cell(v1alpha1.MetricP99, resembling...)}, Rounds: 6, MaxRounds: 20})
	if v := j.Status(); err != nil || v.WrongOneIn != 0 {
		t.Errorf("rounds that resemble each other: %s, wrong one in %d, %v", v.Message, v.WrongOneIn, err)
	}
}
