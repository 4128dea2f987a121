// Package verdict judges the rules of spec.criteria on the rounds of a benchmark: Pass, Fail or Inconclusive, with the
// numbers that led to it. It is pure: the same rounds and rules give the same verdict in the controllers and in the command
// line.
//
// The method is non-inferiority on rounds. A round is one observation. Every candidate round is compared with every baseline
// round, and the exact Mann-Whitney distribution gives bounds of their ratio. A rule passes only if even the pessimistic
// bound is within its tolerance, fails only if even the optimistic one is beyond it, and is otherwise Inconclusive. Absolute
// limits are compared with bounds of the median round.
//
// Errors: a comparison whose true value is just beyond its limit passes with a probability of at most 1 in 20. This
// probability is not divided among the comparisons, because all of them must pass. A comparison whose true value is just
// within its limit fails with a probability of at most 1 in 20 divided by the number of comparisons, so that the probability
// of any wrong Fail is at most 1 in 20. With extendRounds the data are judged twice, each time with half of these
// probabilities. testdata/error-rates.md shows the results of a simulation of this code, and what invalidates them: rounds
// that are not independent of each other.
//
// The package does not decide whether a result may be compared at all. The caller derives that from the evidence and passes
// it in as Blockers; with a Blocker, nothing passes and nothing fails.
package verdict

import (
	"fmt"
	"math"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// Round contains the results of one round of a cell.
type Round struct {
	// Samples is the number of round trips behind the percentiles, including lost messages; 0 for streams.
	Samples int64
	// Values holds the metrics that the round has: latencies in ns of the full round trip (a percentile that lost messages
	// reach is stats.Exact(stats.Infinite)), throughput in bit/s, lost in messages. Values that the tool rounds, or that are
	// known only to the width of a histogram's bucket, have their range. All must be 0 or more, and far below
	// stats.Infinite.
	Values map[v1alpha1.Metric]stats.Observation
}

// Blocker is the reason why a cell gives no verdict: its placement or acceleration was not verified, or it cannot be
// compared.
type Blocker struct {
	// Reason is one word, such as NUMAMismatch.
	Reason string
	// Message is a line for users.
	Message string
}

// Cell contains the measurements of one kind of traffic over one variant.
type Cell struct {
	// Variant and Name distinguish cells, and identify which cells of candidate and baseline belong together.
	Variant, Name string
	Protocol      v1alpha1.Protocol
	MessageSize   int32
	// RatePerSecond is 0 for ping-pong and streams.
	RatePerSecond int32
	// Stream is true for a cell that measures bandwidth.
	Stream bool
	// HalfRTT is true if latencies are shown, and limits given, as half of the round trip.
	HalfRTT bool
	// Rounds holds the rounds in any order.
	Rounds []Round
	// Blockers of a candidate apply to every rule, those of a baseline to comparisons with it.
	Blockers []Blocker
	// Incomparable holds the reasons why a candidate cannot be compared with its baseline: a difference that is not allowed,
	// or a missing baseline.
	Incomparable []Blocker
}

// Observations returns a metric of all rounds, and the smallest number of samples of a round. It returns nil if a round does not
// have the metric: rounds are never excluded, because those that lack a metric are rarely the fast ones.
func (c Cell) Observations(m v1alpha1.Metric) (all []stats.Observation, samples int64) {
	samples = math.MaxInt64
	for _, round := range c.Rounds {
		samples = min(samples, round.Samples)
		if observation, ok := round.Values[m]; ok {
			all = append(all, observation)
		}
	}
	if len(all) < len(c.Rounds) {
		return nil, samples
	}
	return all, samples
}

// Input contains the rules and the cells to evaluate.
type Input struct {
	Gate v1alpha1.Criteria
	// Candidate holds the benchmark's own cells.
	Candidate []Cell
	// Baseline holds the cells to compare with. With criteria.baseline.variant they are among Candidate, and this is ignored.
	Baseline []Cell
	// Note is a limit of the whole verdict, printed before its message; empty if there is no limit.
	Note string
}

// Judgement is a verdict with the judgements of its rules.
type Judgement struct {
	// Outcome is empty if there are no rules.
	Outcome v1alpha1.VerdictOutcome
	// Rules holds the judgements in the order of the criteria.
	Rules []RuleJudgement
	// Comparisons is the number of comparisons of all rules.
	Comparisons int
	// Pass and Fail are the probabilities of error of one comparison.
	Pass, Fail stats.OneIn
	// MoreRoundsMayDecide is true for an Inconclusive outcome that only lacks rounds.
	MoreRoundsMayDecide bool

	note string
}

// RuleJudgement is the outcome of one rule with its comparisons.
type RuleJudgement struct {
	// Rule is the rule as text.
	Rule        string
	Outcome     v1alpha1.VerdictOutcome
	Comparisons []Comparison
}

// Judge evaluates all rules. It returns an error only for a rule that the API rejects.
func Judge(in Input) (Judgement, error) {
	rules := make([]rule, 0, len(in.Gate.Rules))
	for i, r := range in.Gate.Rules {
		parsed, err := parseRule(r)
		if err != nil {
			return Judgement{}, fmt.Errorf("rules[%d]: %w", i, err)
		}
		rules = append(rules, parsed)
	}
	if len(rules) == 0 {
		return Judgement{}, nil
	}
	baselines := newBaselines(in)

	selected := make([][]Cell, len(rules))
	j := Judgement{note: in.Note}
	for i, r := range rules {
		for _, c := range in.Candidate {
			if r.selects(c, baselines.variant) {
				selected[i] = append(selected[i], c)
			}
		}
		j.Comparisons += len(selected[i])
	}
	j.Pass = stats.OneLook
	if in.Gate.ExtendRounds > 0 {
		j.Pass = stats.TwoLooks
	}
	j.Fail = j.Pass.Among(j.Comparisons)

	j.MoreRoundsMayDecide = true
	for i, r := range rules {
		judged := RuleJudgement{Rule: r.String(), Outcome: v1alpha1.VerdictPass}
		for _, c := range selected[i] {
			comparison := compare(r, c, baselines.of(c), j.Pass, j.Fail)
			judged.Outcome = slices.MaxFunc([]v1alpha1.VerdictOutcome{judged.Outcome, comparison.Outcome}, v1alpha1.VerdictOutcome.Compare)
			judged.Comparisons = append(judged.Comparisons, comparison)
			j.MoreRoundsMayDecide = j.MoreRoundsMayDecide && comparison.mayDecide()
		}
		if len(judged.Comparisons) == 0 {
			judged.Outcome = v1alpha1.VerdictInconclusive
			j.MoreRoundsMayDecide = false
		}
		j.Outcome = slices.MaxFunc([]v1alpha1.VerdictOutcome{j.Outcome, judged.Outcome}, v1alpha1.VerdictOutcome.Compare)
		j.Rules = append(j.Rules, judged)
	}
	j.MoreRoundsMayDecide = j.MoreRoundsMayDecide && j.Outcome == v1alpha1.VerdictInconclusive
	return j, nil
}

// baselines finds the cell with which another is compared.
type baselines struct {
	variant string
	cells   map[cellKey]*Cell
}

type cellKey struct{ variant, name string }

func newBaselines(in Input) baselines {
	b := baselines{cells: map[cellKey]*Cell{}}
	if in.Gate.Baseline == nil {
		return b
	}
	cells := in.Baseline
	if b.variant = in.Gate.Baseline.Variant; b.variant != "" {
		cells = in.Candidate
	}
	for i, c := range cells {
		b.cells[cellKey{c.Variant, c.Name}] = &cells[i]
	}
	return b
}

// of returns the cell with which a candidate is compared; nil if there is none.
func (b baselines) of(c Cell) *Cell {
	variant := c.Variant
	if b.variant != "" {
		variant = b.variant
	}
	return b.cells[cellKey{variant, c.Name}]
}

// Worst returns the comparison that decided a rule: the worst of those that have the outcome of the rule. It returns nil if
// the rule selected no cell.
func (r RuleJudgement) Worst() *Comparison {
	var worst *Comparison
	for i := range r.Comparisons {
		c := &r.Comparisons[i]
		if c.Outcome == r.Outcome && (worst == nil || c.excess() > worst.excess()) {
			worst = c
		}
	}
	return worst
}

// excess returns a number that is larger the worse a comparison is for its limit; infinite if it has no numbers.
func (c Comparison) excess() float64 {
	if math.IsNaN(c.Bounds.Estimate) {
		return math.Inf(1)
	}
	if c.rule.lowerIsWorse() {
		return -c.Bounds.Estimate
	}
	return c.Bounds.Estimate
}
