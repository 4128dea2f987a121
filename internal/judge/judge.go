// Package judge holds a benchmark's stored results against its criteria. It stands between internal/result and
// internal/verdict: it takes from what internal/rounds has collected of the results what a verdict is made of, and reads in the evidence what
// forbids one. It is pure: the controllers and the command line get the same verdict from the same results.
//
// What forbids a verdict: placement, device and acceleration that were not proved, rounds that did not run under equal conditions, and, for
// comparisons, a baseline under other conditions. A simulated NIC does not forbid one, and is reported with it.
package judge

import (
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

// Results are what a benchmark has to show.
type Results struct {
	*rounds.Collection
	// Trouble is why the runs are not all there, or there is nothing to judge at all; nil when all is well.
	Trouble *verdict.Blocker
}

// Gate judges a benchmark's results. The baseline is that of criteria.baseline.benchmarkRef, and nil when there is none.
// The error is that of a rule which cannot be read.
func Gate(gate v1alpha1.Criteria, candidate Results, baseline *Results) (verdict.Judgement, error) {
	metrics := []v1alpha1.Metric{v1alpha1.MetricLost}
	for _, rule := range gate.Rules {
		metrics = append(metrics, rule.Metric)
	}
	in := verdict.Input{Gate: gate, Candidate: Cells(candidate, metrics...)}
	if candidate.Simulated || baseline != nil && baseline.Trouble == nil && baseline.Simulated {
		in.Note = "on a simulated NIC"
	}
	switch {
	case baseline != nil && baseline.Trouble != nil:
		for i := range in.Candidate {
			in.Candidate[i].Incomparable = []verdict.Blocker{*baseline.Trouble}
		}
	case baseline != nil:
		in.Baseline = Cells(*baseline, metrics...)
		for i := range in.Baseline {
			b := &in.Baseline[i]
			for j := range b.Blockers {
				b.Blockers[j].Message = "the baseline: " + b.Blockers[j].Message
			}
		}
		for i := range in.Candidate {
			c := &in.Candidate[i]
			matters := func(d result.Difference) bool { return d.Fingerprint && !ignored(gate, d.Key) }
			c.Incomparable = append(capture(gate, baseline.Spec, c.Variant, candidate.Spec, c.Variant),
				incomparable(*c, firstRun(*baseline, c.Variant), firstRun(candidate, c.Variant), matters)...)
		}
	case gate.Baseline != nil && gate.Baseline.Variant != "":
		for i := range in.Candidate {
			c := &in.Candidate[i]
			meant := declared(candidate.Spec, c.Variant, gate.Baseline.Variant)
			matters := func(d result.Difference) bool {
				return d.BetweenRounds() && !ignored(gate, d.Key) && !matchesAny(meant, d.Key)
			}
			c.Incomparable = append(capture(gate, candidate.Spec, gate.Baseline.Variant, candidate.Spec, c.Variant),
				incomparable(*c, firstRun(candidate, gate.Baseline.Variant), firstRun(candidate, c.Variant), matters)...)
		}
	}
	return verdict.Judge(in)
}

// firstRun is the first of a variant's runs, nil when there is none. It stands for all: their conditions are equal, or
// nothing is concluded from any.
func firstRun(r Results, variant string) *result.Stored {
	if v := r.Variant(variant); v != nil {
		return v.First
	}
	return nil
}

// variantOf finds a variant with all that it inherits.
func variantOf(spec v1alpha1.LatencyBenchmarkSpec, name string) (v1alpha1.Variant, bool) {
	all := plan.Variants(spec)
	i := slices.IndexFunc(all, func(v v1alpha1.Variant) bool { return v.Name == name })
	if i < 0 {
		return v1alpha1.Variant{}, false
	}
	return all[i], true
}
