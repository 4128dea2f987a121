package verdict

import (
	"slices"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// The difference between boots widens the interval on both sides: it keeps a small difference from a Fail, and a second look is taken only
// where rounds can decide.
func TestReference(t *testing.T) {
	reference := []int64{9180, 9205, 9170, 9240, 9195, 9210, 9188, 9222, 9176, 9231, 9199, 9215}
	times := func(factor float64) []int64 {
		values := make([]int64, 6)
		for i := range values {
			values[i] = int64(factor * float64(reference[i]))
		}
		return values
	}
	inDoubt := stats.Between{Sessions: 1, Share: 1, Doubt: true}
	measured := func(sd float64) stats.Between { return stats.Between{SD: sd, Differences: 56, Sessions: 1, Share: 1} }
	p99, slower := v1alpha1.MetricP99, v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "5%"}}
	throughput, lower := v1alpha1.MetricThroughput, v1alpha1.Rule{Metric: v1alpha1.MetricThroughput, MaxDecrease: v1alpha1.Limit{Text: "5%"}}
	for name, c := range map[string]struct {
		rule    v1alpha1.Rule
		factor  float64
		between stats.Between
		// others is the number of other cells, which are unchanged.
		others int
		want   v1alpha1.VerdictOutcome
		reason string
		more   bool
		text   string
	}{
		"the same boot":                        {slower, 1.056, stats.Between{Sessions: 1}, 0, fail, v1alpha1.ReasonBeyondLimit, false, "over 6+12 rounds,"},
		"no slower":                            {slower, 1.01, measured(0.012), 0, pass, v1alpha1.ReasonWithinLimit, false, "of 1 boots, which differ by SD 1.2 % (measured)"},
		"as much slower as boots may be":       {slower, 1.056, measured(0.012), 0, inconclusive, v1alpha1.ReasonLimitInsideBounds, false, ""},
		"slower than boots are":                {slower, 1.09, measured(0.012), 0, fail, v1alpha1.ReasonBeyondLimit, false, ""},
		"slower than boots are, in many cells": {slower, 1.09, measured(0.012), 7, inconclusive, v1alpha1.ReasonLimitInsideBounds, true, "boots differ so much that it is not certain among 8 comparisons"},
		"much slower, in many cells":           {slower, 1.2, measured(0.012), 7, fail, v1alpha1.ReasonBeyondLimit, false, ""},
		"boots about which nothing is known":   {slower, 1.07, stats.Between{Sessions: 1, Share: 1}, 0, inconclusive, v1alpha1.ReasonLimitInsideBounds, false, "SD 1.2 % (assumed)"},
		"slower, in doubt":                     {slower, 1.10, inDoubt, 0, inconclusive, v1alpha1.ReasonProvisional, false, "too little is known of how much boots differ for a Fail"},
		"much slower, in doubt":                {slower, 1.18, inDoubt, 0, fail, v1alpha1.ReasonBeyondLimit, false, ""},
		"no slower, in doubt":                  {slower, 1.01, inDoubt, 0, pass, v1alpha1.ReasonWithinLimit, false, "SD 1.2 % (assumed)"},
		"boots that differ by the tolerance":   {slower, 1.0, measured(0.05), 0, inconclusive, v1alpha1.ReasonTooNoisy, false, "the rounds and boots differ so much"},
		"no less throughput":                   {lower, 0.99, measured(0.012), 0, pass, v1alpha1.ReasonWithinLimit, false, ""},
		"as much less as boots may have":       {lower, 0.945, measured(0.012), 0, inconclusive, v1alpha1.ReasonLimitInsideBounds, false, ""},
		"less than boots have":                 {lower, 0.91, measured(0.012), 0, fail, v1alpha1.ReasonBeyondLimit, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			metric := p99
			if c.rule.MaxDecrease.Text != "" {
				metric = throughput
			}
			in := Input{Criteria: against(c.rule), Rounds: 6, MaxRounds: 20}
			for i := range 1 + c.others {
				candidate, baseline := cell(metric, times(1)...), cell(metric, reference[:6]...)
				if i == 0 {
					candidate = cell(metric, times(c.factor)...)
				}
				for _, side := range []*Cell{&candidate, &baseline} {
					side.Variant, side.Stream = strings.Repeat("v", i+1), metric == throughput
				}
				rounds, _ := cell(metric, reference...).Observations(metric)
				baseline.References = map[v1alpha1.Metric]Reference{metric: {Rounds: rounds, Between: c.between}}
				in.Candidate, in.Baseline = append(in.Candidate, candidate), append(in.Baseline, baseline)
			}
			j, err := Judge(in)
			if err != nil {
				t.Fatal(err)
			}
			got := j.Rules[0].Comparisons[0]
			if got.Outcome != c.want || got.Reason != c.reason || j.MoreRoundsMayDecide != c.more || !strings.Contains(got.String(), c.text) {
				t.Errorf("%s %s, more %v, %s", got.Outcome, got.Reason, j.MoreRoundsMayDecide, got)
			}
		})
	}
}

// A warm-up that a gate leaves out makes a candidate no slower, unless it has no other rounds.
func TestWarmUpIsLeftOut(t *testing.T) {
	p99 := v1alpha1.MetricP99
	slow, usual := []int64{1400, 1401, 1402, 1399, 1398, 1400}, []int64{1000, 1001, 1002, 999, 998, 1000}
	reference, _ := cell(p99, append(usual, usual...)...).Observations(p99)
	for name, c := range map[string]struct {
		rounds   []int64
		leaveOut int
		want     v1alpha1.VerdictOutcome
		counted  int
	}{
		"compared":        {append(slow, usual...), 0, inconclusive, 12},
		"left out":        {append(slow, usual...), 6, pass, 6},
		"no other rounds": {slow, 6, fail, 6},
	} {
		baseline := cell(p99, usual...)
		baseline.References = map[v1alpha1.Metric]Reference{p99: {Rounds: reference, Between: stats.Between{Sessions: 1}, LeaveOut: c.leaveOut}}
		rule := v1alpha1.Rule{Metric: p99, MaxIncrease: v1alpha1.Limit{Text: "5%"}}
		j, err := Judge(Input{Criteria: against(rule), Rounds: 12, Candidate: []Cell{cell(p99, c.rounds...)}, Baseline: []Cell{baseline}})
		if err != nil {
			t.Fatal(err)
		}
		if got := j.Rules[0].Comparisons[0]; got.Outcome != c.want || got.CandidateRounds != c.counted {
			t.Errorf("%s: %s over %d rounds", name, got, got.CandidateRounds)
		}
	}
}

// An interval that ends exactly on the limit is within it, and not beyond it: a Fail needs more than the limit.
func TestIntervalsThatEndOnTheLimit(t *testing.T) {
	for name, c := range map[string]struct {
		rule           v1alpha1.Rule
		lower, upper   float64
		within, beyond bool
	}{
		"ends on maxIncrease":   {v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "50%"}}, 1, 1.5, true, false},
		"begins on maxIncrease": {v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "50%"}}, 1.5, 2, false, false},
		"only maxIncrease":      {v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "50%"}}, 1.5, 1.5, true, false},
		"beyond maxIncrease":    {v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "50%"}}, 1.75, 2, false, true},
		"begins on maxDecrease": {v1alpha1.Rule{Metric: v1alpha1.MetricThroughput, MaxDecrease: v1alpha1.Limit{Text: "50%"}}, 0.5, 1, true, false},
		"ends on maxDecrease":   {v1alpha1.Rule{Metric: v1alpha1.MetricThroughput, MaxDecrease: v1alpha1.Limit{Text: "50%"}}, 0.25, 0.5, false, false},
		"only maxDecrease":      {v1alpha1.Rule{Metric: v1alpha1.MetricThroughput, MaxDecrease: v1alpha1.Limit{Text: "50%"}}, 0.5, 0.5, true, false},
		"beyond maxDecrease":    {v1alpha1.Rule{Metric: v1alpha1.MetricThroughput, MaxDecrease: v1alpha1.Limit{Text: "50%"}}, 0.125, 0.25, false, true},
	} {
		parsed, err := parseRule(c.rule)
		if err != nil {
			t.Fatal(err)
		}
		e := &evidence{rule: parsed}
		if e.scaledLimit() != 1.5 && e.scaledLimit() != 0.5 {
			t.Fatalf("the limit is %v, and no interval of this test ends on it", e.scaledLimit())
		}
		if within, beyond := e.clear(stats.Bounds{Lower: c.lower, Upper: c.upper}); within != c.within || beyond != c.beyond {
			t.Errorf("%s: within %t, beyond %t", name, within, beyond)
		}
		// Rounding leaves it open whether a limit at the edge of what is known was reached, unless all is known exactly.
		e.bounds = stats.Bounds{Lowest: c.lower, Highest: c.upper}
		if open := c.lower < c.upper && c.lower <= e.scaledLimit() && e.scaledLimit() <= c.upper; e.tooCoarse() != open {
			t.Errorf("%s: too coarse %t", name, e.tooCoarse())
		}
	}
}

// No number of rounds shows that more than a half of them is beyond a limit if exactly a half is.
func TestAHalfOfTheRoundsBeyond(t *testing.T) {
	for surely, known := range map[int]bool{5: false, 4: false, 6: true} {
		e := &evidence{tally: stats.Tally{All: 10, Surely: surely}}
		if needs := e.needsForLevel(false); (needs > 0) != known { // NaN is unknown
			t.Errorf("%d of 10 surely beyond: %v rounds", surely, needs)
		}
	}
}

// There is hope in a second look up to a share on the wrong side, and with it; the suggested rounds are more than those that did not decide.
func TestLimitsOfHope(t *testing.T) {
	const candidate = 20
	parsed, err := parseRule(v1alpha1.Rule{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "5us"}})
	if err != nil {
		t.Fatal(err)
	}
	// The share may be a quarter, and half of the share that the null distribution of the second look allows.
	k := stats.Signs(candidate).Most(stats.EachSide)
	all := 2 * candidate
	most := all * (2*k + candidate) / (4 * candidate)
	if 4*most*candidate != all*(2*k+candidate) {
		t.Fatalf("with k %d, no whole number of rounds is on the limit", k)
	}
	for wrong, want := range map[int]bool{most - 1: true, most: true, most + 1: false} {
		e := &evidence{rule: parsed, k: k, tally: stats.Tally{All: all, Surely: all - wrong, Possibly: all}}
		c := Comparison{evidence: e}
		c.Outcome, c.Reason = v1alpha1.VerdictInconclusive, v1alpha1.ReasonTooNoisy
		if _, beyond := c.may(0, candidate); beyond != want {
			t.Errorf("%d of %d rounds on the wrong side: may be beyond %t, want %t", wrong, all, beyond, want)
		}
	}
	const many = 100 // rounds, of which all are beyond the limit: fewer would have been enough
	e := &evidence{rule: parsed, candidate: make([]stats.Observation, many), tally: stats.Tally{All: many, Surely: many, Possibly: many}}
	e.limit, e.bounds = 5000, stats.Bounds{Lowest: 6000, Highest: 6000}
	if got := e.needsRounds(); got != many+1 {
		t.Errorf("%d rounds did not decide, and %d would", many, got)
	}
}

// The order of rounds is a row in time for each side of one session, of the ratios of rounds in turns, or of the candidate alone: the rounds
// of several sessions are no row.
func TestRowsInTime(t *testing.T) {
	one, two := []stats.Observation{stats.Exact(10), stats.Exact(20)}, []stats.Observation{stats.Exact(5), stats.Exact(5)}
	increase, err := parseRule(v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "5%"}})
	if err != nil {
		t.Fatal(err)
	}
	limit, err := parseRule(v1alpha1.Rule{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "5us"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		e    evidence
		want [][]float64
	}{
		"a limit":                      {evidence{rule: limit, candidate: one}, [][]float64{{10, 20}}},
		"no session":                   {evidence{rule: increase, candidate: one, baseline: two}, [][]float64{{10, 20}, {5, 5}}},
		"one session":                  {evidence{rule: increase, candidate: one, baseline: two, between: stats.Between{Sessions: 1}}, [][]float64{{10, 20}, {5, 5}}},
		"two sessions":                 {evidence{rule: increase, candidate: one, baseline: two, between: stats.Between{Sessions: 2}}, [][]float64{{10, 20}}},
		"in turns":                     {evidence{rule: increase, candidate: one, baseline: two, inTurns: true}, [][]float64{{2, 4}}},
		"in turns, and one round less": {evidence{rule: increase, candidate: one, baseline: two[:1], inTurns: true}, [][]float64{{10, 20}, {5}}},
	} {
		if got := c.e.inOrder(); !slices.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
