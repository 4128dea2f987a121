package benchmark

import (
	"strings"
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
		// want has a line for each event: kind, reason, message.
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
		"waiting is not an event": {
			before: on(accepted), after: on(accepted, condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonQueued)),
		},
		"a run measured": {before: on(accepted), after: on(accepted, measured), want: []string{"Normal Measured measured x-r1 at attempt 2"}},
		"only the new failed attempt is reported": {
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
		"an attempt that takes the place of the oldest in a full list": {
			before: on(manyAttempts(1, maxAttempts)), after: on(manyAttempts(2, maxAttempts), withAttempt("x-r1", 999, v1alpha1.OutcomeToolFailed, time.Second)),
			want: []string{"Warning ToolFailed attempt 999 of x-r1: it went wrong"},
		},
		"a collected result gets another name": {
			before: on(active(0), collectedAs(keptOther)),
			after:  on(active(0), collectedAs(keptAbsent), func(w *world) { w.benchmark.Status.Active.Collected.ConfigMap = "x-r1-vwxyz" }),
			want: []string{
				"Warning NameTaken ConfigMap x-r1-abcde, intended for the result of x-r1, exists with other content; the operator uses ConfigMap x-r1-vwxyz instead",
			},
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

// manyAttempts adds the attempts with these numbers.
func manyAttempts(first, last int32) func(*world) {
	return func(w *world) {
		for n := first; n <= last; n++ {
			withAttempt("x-r1", n, v1alpha1.OutcomeToolFailed, time.Hour)(w)
		}
	}
}

// If the first claim is withdrawn before a pod was created, the benchmark has not started; if a later one is, the start remains.
func TestWithdraw(t *testing.T) {
	for name, c := range map[string]struct{ started, want *metav1.Time }{
		"the first claim": {started: new(metav1.NewTime(noon))},
		"a later one":     {started: new(metav1.NewTime(ago(time.Hour))), want: new(metav1.NewTime(ago(time.Hour)))},
	} {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(active(0), func(w *world) { w.benchmark.Status.StartTime = c.started })
			if _, err := (&Reconciler{}).apply(t.Context(), w, step{kind: stepWithdraw, reason: v1alpha1.ReasonQueued}); err != nil {
				t.Fatal(err)
			}
			if got := w.benchmark.Status; got.Active != nil || !got.StartTime.Equal(c.want) {
				t.Errorf("active %v, started %v, want %v", got.Active, got.StartTime, c.want)
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
			// A run takes 3.4 s: seconds are rounded up.
			w.benchmark.Spec.Workload.Warmup.Duration = 400 * time.Millisecond
			if diff := cmp.Diff(&c.want, progress(w.benchmark)); diff != "" {
				t.Errorf("progress (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAcceptanceSaysWhatOnloadWillNotCarry(t *testing.T) {
	b := &v1alpha1.LatencyBenchmark{Spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
		Acceleration: &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload},
		Workload:     v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolUDP}, MessageSizes: []int32{64, 2000}},
	}}}
	b.Status.Pair = &v1alpha1.Pair{ClientNode: "a", ServerNode: "b"}
	if got := (&world{benchmark: b}).acceptance(); !strings.HasPrefix(got, "client on a, server on b; variant default: unless") {
		t.Errorf("accepted with %q", got)
	}
	b.Spec.Acceleration = nil
	if got := (&world{benchmark: b}).acceptance(); got != "client on a, server on b" {
		t.Errorf("accepted with %q", got)
	}
}
