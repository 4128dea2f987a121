package benchmark

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

func TestEventsOf(t *testing.T) {
	condition := func(conditionType string, status metav1.ConditionStatus, reason string) func(*world) {
		return func(w *world) { w.benchmark.SetCondition(v1alpha1.Condition(conditionType, status, reason, "because")) }
	}
	accepted := condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	measured := withAttempt("x-r1", 2, v1alpha1.OutcomeMeasured, 0)
	cases := map[string]struct {
		before, after []func(*world)
		// want is a line for each event: kind, reason, message.
		want []string
	}{
		"nothing changed": {before: on(accepted, measured), after: on(accepted, measured)},
		"accepted":        {after: on(accepted), want: []string{"Normal Accepted because"}},
		"rejected": {
			after: on(condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonSameNode)),
			want:  []string{"Warning SameNode because"},
		},
		"rejected for another reason": {
			before: on(condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonSameNode)),
			after:  on(condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonNoMatchingNode)),
			want:   []string{"Warning NoMatchingNode because"},
		},
		"what it waits for is no event": {
			before: on(accepted), after: on(accepted, condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonQueued)),
		},
		"a run measured": {before: on(accepted), after: on(accepted, measured), want: []string{"Normal Measured measured x-r1 at attempt 2"}},
		"a run failed, and only the new attempt is told": {
			before: on(measured), after: on(measured, withAttempt("x-r2", 1, v1alpha1.OutcomeToolFailed, time.Second)),
			want: []string{"Warning ToolFailed attempt 1 of x-r2: it went wrong"},
		},
		"complete": {
			before: on(accepted), after: on(accepted, condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete)),
			want: []string{"Normal Complete because"},
		},
		"a verdict that waits is no event": {
			after: on(condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonNotJudged)),
		},
		"a Pass": {
			before: on(condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonNotJudged)),
			after:  on(condition(v1alpha1.ConditionPassed, metav1.ConditionTrue, v1alpha1.ReasonPass)),
			want:   []string{"Normal Pass because"},
		},
		"a Fail after a Pass": {
			before: on(condition(v1alpha1.ConditionPassed, metav1.ConditionTrue, v1alpha1.ReasonPass)),
			after:  on(condition(v1alpha1.ConditionPassed, metav1.ConditionFalse, v1alpha1.ReasonFail)),
			want:   []string{"Warning Fail because"},
		},
		"an Inconclusive verdict is no good news": {
			after: on(condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonInconclusive)),
			want:  []string{"Warning Inconclusive because"},
		},
		"a verdict that is Inconclusive for another reason": {
			before: on(condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonInconclusive)),
			after:  on(condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonResultsMissing)),
			want:   []string{"Warning ResultsMissing because"},
		},
		"more rounds": {
			before: on(accepted),
			after: on(accepted, condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonQueued), func(w *world) {
				w.benchmark.Status.ExtendedRounds = 4
			}),
			want: []string{"Normal Extended because"},
		},
		"failed": {
			before: on(accepted), after: on(accepted, condition(v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonFailed)),
			want: []string{"Warning Failed because"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range noticesOf(makeWorld(c.before...).benchmark, makeWorld(c.after...).benchmark) {
				got = append(got, e.Type+" "+e.Reason+" "+e.Message)
				if e.Action == "" {
					t.Errorf("%s has no action: the API server would refuse it", e.Reason)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestProgress(t *testing.T) {
	cases := map[string]struct {
		changes []func(*world)
		want    v1alpha1.Progress
	}{
		"nothing is done": {want: v1alpha1.Progress{Runs: "0/2", Total: 2, MeasuringSecondsLeft: 7}},
		"half is done":    {changes: on(withStored("x-r1")), want: v1alpha1.Progress{Runs: "1/2", Done: 1, Total: 2, MeasuringSecondsLeft: 4}},
		"the plan grew":   {changes: on(withStored("x-r1"), withStored("x-r2"), func(w *world) { w.benchmark.Status.ExtendedRounds = 1 }), want: v1alpha1.Progress{Runs: "2/3", Done: 2, Total: 3, MeasuringSecondsLeft: 4}},
		"everything is":   {changes: on(withStored("x-r1"), withStored("x-r2")), want: v1alpha1.Progress{Runs: "2/2", Done: 2, Total: 2}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(c.changes...)
			// 3.4 s a run: seconds are rounded up.
			w.benchmark.Spec.Workload.Warmup.Duration = 400 * time.Millisecond
			if diff := cmp.Diff(&c.want, progress(w.benchmark)); diff != "" {
				t.Errorf("progress (-want +got):\n%s", diff)
			}
		})
	}
}
