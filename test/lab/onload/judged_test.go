//go:build e2e

package onload

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/judge"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/test/lab"
)

// The variants of the benchmark that is judged.
const variantKernel, variantOnload = "kernel", "onload"

// rules pass with any latency, because latencies on an emulated machine are not meaningful. A mean needs no minimum number of
// samples; a busy machine takes few.
var rules = []v1alpha1.Rule{
	{Metric: v1alpha1.MetricMean, Max: v1alpha1.Limit{Text: "10s"}, Variants: []string{variantKernel}},
	{Metric: v1alpha1.MetricMean, Max: v1alpha1.Limit{Text: "10s"}, Variants: []string{variantOnload}},
}

// compared are the criteria for the benchmark after the upgrade, which a LatencyGate compares with the accepted benchmark.
var compared = v1alpha1.Criteria{
	Rules:    append(slices.Clone(rules), v1alpha1.Rule{Metric: v1alpha1.MetricMean, MaxIncrease: v1alpha1.Limit{Text: "9999%"}, Variants: []string{variantOnload}}),
	Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineBenchmark, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: "accepted"}}},
	// The addresses without acceleration are on another interface.
	IgnoreDifferences: []string{"nic.*", "numa.*"},
}

// TestVerdict compares the kernel's sockets with Onload's, and judges the results as the controllers do: the rules pass while the
// NIC is accelerated. When it no longer is, as after an upgrade, the verdict about Onload is inconclusive.
func TestVerdict(t *testing.T) {
	setup(t)
	accepted := measureVariants(t, "accepted", false)
	verdict := judged(t, v1alpha1.Criteria{Rules: rules}, accepted, nil)
	if verdict.Outcome != v1alpha1.VerdictPass {
		t.Errorf("accelerated: %s, want %s", verdict.Outcome, v1alpha1.VerdictPass)
	}
	computed := summary.Summarize(accepted.Collection)
	holdRatios(t, computed)
	holdAcceleration(t, computed, v1alpha1.ProofProved)

	upgraded := measureVariants(t, "upgraded", true)
	holdAcceleration(t, summary.Summarize(upgraded.Collection), v1alpha1.ProofFailed)
	verdict = judged(t, compared, upgraded, &accepted)
	if verdict.Outcome != v1alpha1.VerdictInconclusive {
		t.Errorf("no longer accelerated: %s, want %s", verdict.Outcome, v1alpha1.VerdictInconclusive)
	}
	for i, rule := range verdict.Rules {
		want, reason := v1alpha1.VerdictInconclusive, v1alpha1.WarningNotAccelerated
		if slices.Contains(compared.Rules[i].Variants, variantKernel) {
			want, reason = v1alpha1.VerdictPass, rule.Reason
		}
		if rule.Outcome != want || rule.Reason != reason {
			t.Errorf("no longer accelerated, %s: %s, %s; want %s, %s", rule.Rule, rule.Outcome, rule.Reason, want, reason)
		}
	}
}

// measureVariants measures a benchmark with two variants, over the NICs that Onload accelerates or over the others. Each run has
// its own processes and stacks.
func measureVariants(t *testing.T, name string, unregistered bool) judge.Results {
	t.Helper()
	c := testCase{
		name: name, program: v1alpha1.ToolPinger, protocols: slices.Concat(tcp, udp), duration: 3 * time.Second,
		profile: latency, unregistered: unregistered,
	}
	c.prepare(t)
	b := c.benchmark()
	b.Name, b.UID, b.Spec.Rounds = name, types.UID(name), 6 // as many as a verdict by a limit needs
	b.Spec.Workload.Warmup = metav1.Duration{Duration: 500 * time.Millisecond}
	b.Spec.Variants = []v1alpha1.Variant{{Name: variantKernel, Acceleration: &v1alpha1.Acceleration{Type: v1alpha1.AccelerationKernel}}, {Name: variantOnload}}
	var all []result.Stored
	for _, run := range plan.Runs(b) {
		var o *outcome
		lab.Undisturbed(t, func() (v1alpha1.LatencyBenchmarkSpec, v1alpha1.Variant, *result.Stored) {
			endStacks(t)
			o = c.measure(t, b, run, nil)
			return b.Spec, run.Variant, o.stored
		})
		if o.stored == nil {
			reason, message := o.failure()
			t.Fatalf("%s: %s: %s", run.Name, reason, message)
		}
		t.Logf("%s took %s", run.Name, o.took.Round(time.Millisecond))
		all = append(all, *o.stored)
	}
	collection, err := rounds.Of(b.Spec, all...)
	if err != nil {
		t.Fatal(err)
	}
	return judge.Results{Collection: collection}
}

// judged returns the verdict that a benchmark's status would have.
func judged(t *testing.T, criteria v1alpha1.Criteria, candidate judge.Results, baseline *judge.Results) *v1alpha1.Verdict {
	t.Helper()
	j, err := judge.Evaluate(criteria, candidate, baseline)
	if err != nil {
		t.Fatal(err)
	}
	verdict := j.Status()
	t.Logf("%s: %s", verdict.Outcome, verdict.Message)
	for _, rule := range verdict.Rules {
		t.Logf("%s: %s, %s: %s", rule.Rule, rule.Outcome, rule.Reason, rule.Message)
	}
	return verdict
}

// holdRatios checks that every cell of Onload's variant has a ratio to the kernel's, with bounds.
func holdRatios(t *testing.T, s summary.Summary) {
	t.Helper()
	cells := 0
	for _, line := range s.Results {
		if line.Variant != variantOnload {
			continue
		}
		cells++
		bounded := false
		for _, r := range line.Ratios {
			t.Logf("%s, %s of Onload to the kernel: %s [%s, %s]", line.Name, r.Percentile, r.Estimate, r.Lower, r.Upper)
			bounded = bounded || r.Percentile == v1alpha1.P50 && r.Lower != "" && r.Upper != ""
		}
		if !bounded {
			t.Errorf("%s has no ratio of the medians with bounds: %+v", line.Name, line.Ratios)
		}
	}
	if cells != 2 {
		t.Errorf("%d cells of variant %s, want 2", cells, variantOnload)
	}
}

// holdAcceleration checks that the proof of acceleration has the wanted state at both ends of Onload's variant, and is proved at
// both ends of the kernel's.
func holdAcceleration(t *testing.T, s summary.Summary, want v1alpha1.ProofState) {
	t.Helper()
	if len(s.Endpoints) != 4 {
		t.Errorf("%d endpoints, want 4", len(s.Endpoints))
	}
	for _, e := range s.Endpoints {
		line, state := acceleration(e.Proof), v1alpha1.ProofProved
		if e.Variant == variantOnload {
			state = want
		}
		t.Logf("%s, %s: acceleration %s: expected %q, found %q", e.Variant, e.Role, line.State, line.Expected, line.Found)
		if line.State != state {
			t.Errorf("%s, %s: the proof says %s, want %s", e.Variant, e.Role, line.State, state)
		}
	}
	for _, w := range s.Warnings {
		t.Logf("warning %s: %s", w.Reason, w.Message)
	}
}
