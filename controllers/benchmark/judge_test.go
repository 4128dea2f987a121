package benchmark

import (
	"errors"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

func TestPassed(t *testing.T) {
	rule := func(outcome v1alpha1.VerdictOutcome, reason string) v1alpha1.RuleVerdict {
		return v1alpha1.RuleVerdict{Outcome: outcome, Reason: reason}
	}
	within := rule(v1alpha1.VerdictPass, v1alpha1.ReasonWithinLimit)
	cases := map[string]struct {
		outcome v1alpha1.VerdictOutcome
		rules   []v1alpha1.RuleVerdict
		status  metav1.ConditionStatus
		reason  string
	}{
		"a Pass":                 {v1alpha1.VerdictPass, []v1alpha1.RuleVerdict{within}, "True", v1alpha1.ReasonPass},
		"a Fail":                 {v1alpha1.VerdictFail, []v1alpha1.RuleVerdict{within, rule(v1alpha1.VerdictFail, v1alpha1.ReasonBeyondLimit)}, "False", v1alpha1.ReasonFail},
		"a cell's own trouble":   {v1alpha1.VerdictInconclusive, []v1alpha1.RuleVerdict{within, rule(v1alpha1.VerdictInconclusive, v1alpha1.ReasonTooFewRounds)}, "Unknown", v1alpha1.ReasonInconclusive},
		"the baseline's trouble": {v1alpha1.VerdictInconclusive, []v1alpha1.RuleVerdict{within, rule(v1alpha1.VerdictInconclusive, v1alpha1.ReasonBaselineMissing)}, "Unknown", v1alpha1.ReasonBaselineMissing},
		"trouble of a later rule": {v1alpha1.VerdictInconclusive, []v1alpha1.RuleVerdict{
			rule(v1alpha1.VerdictInconclusive, v1alpha1.ReasonTooFewSamples), rule(v1alpha1.VerdictInconclusive, v1alpha1.ReasonBaselineMissing),
		}, "Unknown", v1alpha1.ReasonInconclusive},
		"no outcome at all": {"", nil, "Unknown", v1alpha1.ReasonInconclusive},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := passed(&v1alpha1.Verdict{Outcome: c.outcome, Rules: c.rules, Message: "because"})
			if got.Status != c.status || got.Reason != c.reason || got.Message != "because" {
				t.Errorf("got %s, %s, %q; want %s, %s", got.Status, got.Reason, got.Message, c.status, c.reason)
			}
		})
	}
}

func TestUnreadable(t *testing.T) {
	for reason, err := range map[string]error{
		v1alpha1.ReasonRuleInvalid:    errors.New("rules[0]:\nwhat is that"),
		v1alpha1.ReasonResultsMissing: fmt.Errorf("x-r1, tcp-64: %w", result.ErrCorrupt),
	} {
		v := unreadable(err)
		if c := passed(v); c.Status != metav1.ConditionUnknown || c.Reason != reason || v.Rules == nil {
			t.Errorf("%v: got %+v", err, c)
		}
	}
}

// A Pass or Fail remains when its baseline is deleted; in all other cases a missing baseline makes the verdict Inconclusive.
func TestBaselineDeleted(t *testing.T) {
	named := &v1alpha1.Baseline{BenchmarkRef: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: "before"}}}
	pinned := &v1alpha1.Baseline{BenchmarkRef: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: "before"}, UID: "uid-1"}}
	accepted := &v1alpha1.Baseline{Accepted: &v1alpha1.AcceptedBaseline{GateName: "up"}}
	before := func(uid types.UID) *v1alpha1.LatencyBenchmark {
		return &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "before", UID: uid}}
	}
	again := func(t *testing.T, kube client.Client, _ *v1alpha1.LatencyBenchmark) {
		if err := kube.Create(t.Context(), before("uid-2")); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		baseline *v1alpha1.Baseline
		outcome  v1alpha1.VerdictOutcome
		and      func(*testing.T, client.Client, *v1alpha1.LatencyBenchmark)
		reason   string
	}{
		"a Pass":     {named, v1alpha1.VerdictPass, nil, v1alpha1.ReasonPass},
		"a Fail":     {named, v1alpha1.VerdictFail, nil, v1alpha1.ReasonFail},
		"no outcome": {named, v1alpha1.VerdictInconclusive, nil, v1alpha1.ReasonBaselineMissing},
		"a Pass, and the criteria change": {named, v1alpha1.VerdictPass, func(_ *testing.T, _ client.Client, b *v1alpha1.LatencyBenchmark) {
			b.Spec.Criteria.IgnoreDifferences = []string{"node"}
		}, v1alpha1.ReasonBaselineMissing},
		"a Pass, and its own results change": {named, v1alpha1.VerdictPass, func(_ *testing.T, _ client.Client, b *v1alpha1.LatencyBenchmark) {
			b.Status.Stored = []v1alpha1.StoredResult{{Run: "x-r1", ConfigMap: "x-r1"}}
		}, v1alpha1.ReasonBaselineMissing},
		"a Pass, and a benchmark of the same name is created":                            {named, v1alpha1.VerdictPass, again, v1alpha1.ReasonBaselineNotComplete},
		"a Pass against a UID, and a benchmark of the same name is created":              {pinned, v1alpha1.VerdictPass, again, v1alpha1.ReasonPass},
		"no outcome against a UID, and a benchmark of the same name is created":          {pinned, v1alpha1.VerdictInconclusive, again, v1alpha1.ReasonBaselineMissing},
		"a Pass against an accepted result":                                              {accepted, v1alpha1.VerdictPass, nil, v1alpha1.ReasonPass},
		"a Pass against an accepted result, and a benchmark of the same name is created": {accepted, v1alpha1.VerdictPass, again, v1alpha1.ReasonPass},
		"no outcome, and a benchmark of the accepted result's name is created":           {accepted, v1alpha1.VerdictInconclusive, again, v1alpha1.ReasonBaselineMissing},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			kube := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(before("uid-1")).Build()
			r := &Reconciler{Live: kube}
			b := makeWorld().benchmark
			b.Spec.Rounds, b.Spec.Criteria = 0, &v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricP50, MaxIncrease: "10%"}}, Baseline: c.baseline}
			b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, ""))
			b.Status.Verdict = &v1alpha1.Verdict{Outcome: c.outcome}
			if c.baseline == accepted {
				b.Status.Verdict.Baseline = &v1alpha1.VerdictBaseline{Gate: "up", Namespace: "perf", Benchmark: "before", UID: "uid-1"}
			}
			compared, err := r.baseline(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			if b.Status.Verdict.Inputs, err = r.inputs(t.Context(), b, compared); err != nil {
				t.Fatal(err)
			}
			if err := kube.Delete(t.Context(), before("uid-1")); err != nil {
				t.Fatal(err)
			}
			if c.and != nil {
				c.and(t, kube, b)
			}
			if err := r.judge(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			if got := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionPassed); got == nil || got.Reason != c.reason {
				t.Errorf("got %+v, want %s", got, c.reason)
			}
		})
	}
}

func TestResultChanges(t *testing.T) {
	succeeded := func(status metav1.ConditionStatus) func(*world) {
		return func(w *world) {
			w.benchmark.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, status, "Reason", ""))
		}
	}
	judged := func(w *world) { w.benchmark.Status.Verdict = &v1alpha1.Verdict{Outcome: v1alpha1.VerdictPass} }
	cases := map[string]struct {
		before, after []func(*world)
		want          bool
	}{
		"it completes":             {before: on(succeeded("Unknown")), after: on(succeeded("True")), want: true},
		"it fails":                 {before: on(succeeded("Unknown")), after: on(succeeded("False")), want: true},
		"another of its name":      {before: on(succeeded("True")), after: on(succeeded("True"), func(w *world) { w.benchmark.UID = "another" }), want: true},
		"it goes on":               {before: on(succeeded("Unknown")), after: on(succeeded("Unknown"), active(0))},
		"its own verdict":          {before: on(succeeded("True")), after: on(succeeded("True"), judged)},
		"it is looked at at first": {after: on(succeeded("Unknown")), want: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := event.UpdateEvent{ObjectOld: makeWorld(c.before...).benchmark, ObjectNew: makeWorld(c.after...).benchmark}
			if got := resultChanges.Update(e); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
	if !resultChanges.Delete(event.DeleteEvent{}) || !resultChanges.Create(event.CreateEvent{}) {
		t.Error("a baseline that comes or goes wakes no controller")
	}
}

// judgedBy returns the verdict of criteria, which need not be the benchmark's own, on its results.
func judgedBy(t *testing.T, r *Reconciler, b *v1alpha1.LatencyBenchmark, gate *v1alpha1.Criteria) (*v1alpha1.Verdict, error) {
	t.Helper()
	with := b.DeepCopy()
	with.Spec.Criteria = gate
	baseline, err := r.baseline(t.Context(), with)
	if err != nil {
		return nil, err
	}
	j, err := r.judgement(t.Context(), with, baseline)
	return j.status, err
}
