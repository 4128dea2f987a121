package benchmark

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/standing"
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
			got := standing.Passed(&v1alpha1.Verdict{Outcome: c.outcome, Rules: c.rules, Message: "because"})
			if got.Status != c.status || got.Reason != c.reason || got.Message != "because" {
				t.Errorf("got %s, %s, %q; want %s, %s", got.Status, got.Reason, got.Message, c.status, c.reason)
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
