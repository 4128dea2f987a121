// Package verdict judges the rules of spec.criteria on a benchmark's rounds, with the numbers that led
// to the verdict. It is pure: controllers and command line get the same verdict.
//
// The method is non-inferiority on rounds. A round is one observation. Every candidate round is
// compared with every baseline round, and the exact Mann-Whitney distribution gives a 95 % interval
// of their ratio, 1 in 40 a side; for an absolute limit, that of the median round. A rule passes
// only if the whole interval is within its limit and at most one round in ten is slow beyond it,
// fails only if the whole interval is beyond it, and is otherwise Inconclusive.
//
// docs/internals/error-rates.md has the probabilities of errors, and what invalidates them.
//
// The caller passes what forbids a comparison as Blockers; then nothing passes and nothing fails.
package verdict

import (
	"cmp"
	"math"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

type Round struct {
	Samples int64 // round trips behind the percentiles, lost messages included; 0 for streams
	// Values are of the round, all 0 or more: latencies in ns of the full round trip, with
	// stats.Exact(stats.Infinite) if losses reach them, throughput in bit/s, lost in messages.
	Values map[v1alpha1.Metric]stats.Observation
}

// Blocker is the reason why a cell gives no verdict.
type Blocker struct {
	Reason  string // one word, such as NUMAMismatch
	Message string // a line for users
}

func (b *Blocker) Error() string { return b.Message }

// Cell contains the measurements of one kind of traffic over one variant.
type Cell struct {
	// Variant and Name distinguish cells, and match those of candidate and baseline.
	Variant, Name string
	v1alpha1.Traffic
	Uncounted    bool      // a planned cell whose result cannot have lost messages
	HalfRTT      bool      // latencies are shown, and limits given, as half of the round trip
	Rounds       []Round   // in any order
	Blockers     []Blocker // a candidate's apply to every rule, a baseline's to comparisons
	Incomparable []Blocker // why a candidate cannot be compared with its baseline
	// References replace the rounds of a baseline in comparisons of ratios.
	References map[v1alpha1.Metric]Reference
}

// Observations returns a metric of all rounds, and a round's fewest samples; nil if a round lacks
// the metric: none is excluded, because those are rarely the fast ones.
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

type Input struct {
	Criteria  v1alpha1.Criteria
	Candidate []Cell // the benchmark's own
	// Baseline has the cells to compare with; ignored with criteria.baseline.variant.
	Baseline []Cell
	// Rounds and MaxRounds are when the data are judged; once if the second is 0 or the same.
	Rounds, MaxRounds int
	Together          int    // judged together, as the pairs of a matrix; 0 and 1 mean this alone
	BaselineRounds    int    // that an unmeasured baseline will have; 0 if unknown
	Note              string // a limit of the whole verdict, printed before its message; or empty
}

type Judgement struct {
	Outcome     v1alpha1.VerdictOutcome // empty if there are no rules
	Rules       []RuleJudgement         // in the order of the criteria
	Comparisons int
	// Beyond: one in how many looks so bad if all true values are within their limits; 40 fails.
	Beyond              stats.OneIn
	MoreRoundsMayDecide bool // the data are to be judged again with more rounds

	looks          int  // how often the data are judged
	sameSession    bool // no rule compares with another time's rounds, maybe of another boot
	autocorrelated bool // wider for correlated rounds: the error is estimated, not bounded

	note string
}

// RuleJudgement is the outcome of one rule with its comparisons.
type RuleJudgement struct {
	Rule        string // as text
	Outcome     v1alpha1.VerdictOutcome
	Comparisons []Comparison
}

// Judge evaluates all rules. It returns an error only for a rule that the API rejects.
func Judge(in Input) (Judgement, error) {
	rules, selected, comparisons, err := in.selected()
	if err != nil || len(rules) == 0 {
		return Judgement{}, err
	}
	baselines, variant := in.baselines(), in.Criteria.BaselineOf(v1alpha1.BaselineVariant)
	j := Judgement{note: in.Note, looks: 1, Comparisons: comparisons}
	if in.MaxRounds > in.Rounds {
		j.looks = 2
	}
	j.sameSession = variant != "" || !slices.ContainsFunc(in.Criteria.Rules, func(r v1alpha1.Rule) bool { return r.Compares() })
	var all []Comparison
	for i, r := range rules {
		for _, c := range selected[i] {
			all = append(all, compare(r, c, baselines[cellKey{cmp.Or(variant, c.Variant), c.Name}], variant != ""))
		}
	}
	beyond := make([]stats.OneIn, len(all))
	for i, c := range all {
		if c.evidence != nil && c.evidence.k >= 0 {
			beyond[i] = c.evidence.beyond
		}
	}
	failsAt, together := stats.Hochberg(beyond)
	j.Beyond = together
	for i, next := 0, all; i < len(rules); i++ {
		judged := RuleJudgement{Rule: rules[i].String(), Outcome: v1alpha1.VerdictPass, Comparisons: next[:len(selected[i])]}
		next = next[len(selected[i]):]
		for k := range judged.Comparisons {
			c := &judged.Comparisons[k]
			if c.evidence != nil {
				j.autocorrelated = j.autocorrelated || c.evidence.factor > 1
				c.decide(failsAt, len(all))
			}
			judged.Outcome = slices.MaxFunc([]v1alpha1.VerdictOutcome{judged.Outcome, c.Outcome}, v1alpha1.VerdictOutcome.Compare)
		}
		if len(judged.Comparisons) == 0 {
			judged.Outcome = v1alpha1.VerdictInconclusive
		}
		j.Outcome = slices.MaxFunc([]v1alpha1.VerdictOutcome{j.Outcome, judged.Outcome}, v1alpha1.VerdictOutcome.Compare)
		j.Rules = append(j.Rules, judged)
	}
	j.MoreRoundsMayDecide = in.mayDecide(j, all)
	return j, nil
}

// mayDecide reports whether a second look may let all comparisons pass, or one fail. It may also
// confirm a Fail that is not certain enough among all benchmarks together.
func (in Input) mayDecide(j Judgement, all []Comparison) bool {
	rounds, fails := 0, false
	passes := !slices.ContainsFunc(j.Rules, func(r RuleJudgement) bool { return len(r.Comparisons) == 0 })
	for _, c := range all {
		baseline := c.BaselineRounds
		if in.Criteria.Against(v1alpha1.BaselineVariant) {
			baseline = in.MaxRounds // It is measured on.
		}
		rounds = max(rounds, c.CandidateRounds)
		within, beyond := c.may(baseline, in.MaxRounds)
		passes, fails = passes && within, fails || beyond
	}
	switch {
	case rounds == 0 || rounds >= in.MaxRounds:
		return false
	case j.Outcome == v1alpha1.VerdictFail:
		return j.Beyond < stats.EachSide.Among(in.Together)
	}
	return j.Outcome == v1alpha1.VerdictInconclusive && (passes || fails)
}

type cellKey struct{ variant, name string }

func (in Input) baselines() map[cellKey]*Cell {
	cells := in.Baseline
	if in.Criteria.Against(v1alpha1.BaselineVariant) {
		cells = in.Candidate
	}
	all := map[cellKey]*Cell{}
	for i, c := range cells {
		all[cellKey{c.Variant, c.Name}] = &cells[i]
	}
	return all
}

// Worst returns the worst comparison with the rule's outcome; nil if it selected no cell.
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

// excess is larger the worse a comparison is for its limit; infinite without numbers.
func (c Comparison) excess() float64 {
	if math.IsNaN(c.Bounds.Estimate) {
		return math.Inf(1)
	}
	if c.rule.metric.LowerIsWorse {
		return -c.Bounds.Estimate
	}
	return c.Bounds.Estimate
}
