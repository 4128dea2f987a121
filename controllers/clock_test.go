package controllers

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Every time of a status, in any depth, is treated alike: nothing that counts from it waits until the clock has reached it.
func TestSettleTimes(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	seconds := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(d)) }
	micros := func(d time.Duration) metav1.MicroTime { return metav1.NewMicroTime(now.Add(d)) }
	benchmark := func(d time.Duration) *v1alpha1.LatencyBenchmarkStatus {
		return &v1alpha1.LatencyBenchmarkStatus{
			Conditions: []metav1.Condition{{Type: "Accepted", LastTransitionTime: seconds(d)}}, StartTime: new(seconds(d)), DeviceWaitStartTime: new(micros(d)),
			CompletionTime: new(seconds(d)), Attempts: []v1alpha1.Attempt{{StartTime: micros(d), Outcome: v1alpha1.Outcome{CompletionTime: micros(d)}}},
			Active: &v1alpha1.ActiveAttempt{
				StartTime: micros(d), EndTime: new(micros(d)), NotReadyTime: new(micros(d)), CollectionTime: new(micros(d)),
				Refused: &v1alpha1.Refusal{StartTime: micros(d), RetryTime: micros(time.Minute)}, Outcome: &v1alpha1.Outcome{CompletionTime: micros(d)},
			},
		}
	}
	verification := func(d time.Duration) *v1alpha1.LatencyVerificationStatus {
		return &v1alpha1.LatencyVerificationStatus{
			LastTransitionTime: new(seconds(d)), Benchmark: &v1alpha1.VerificationBenchmark{StartTime: seconds(d)}, Accepted: &v1alpha1.AcceptedResult{AcceptanceTime: seconds(d)},
			Absent: []v1alpha1.AbsentKey{{StartTime: seconds(d), EndTime: seconds(d + 10*time.Minute)}}, Retained: &v1alpha1.Retention{StartTime: seconds(d), EndTime: seconds(d + time.Hour)},
			History: []v1alpha1.VerificationResult{{CompletionTime: seconds(d)}}, StepFailure: &v1alpha1.StepFailure{RetryTime: seconds(time.Minute)},
			MarkFailures: []v1alpha1.MarkFailure{{StepFailure: v1alpha1.StepFailure{RetryTime: seconds(time.Minute)}}}, LastMeasurementTime: new(seconds(time.Hour)),
		}
	}
	matrix := func(d time.Duration) *v1alpha1.LatencyMatrixStatus {
		return &v1alpha1.LatencyMatrixStatus{StartTime: new(seconds(d)), MissingNodes: []v1alpha1.MissingNode{{Name: "a", StartTime: seconds(d)}}}
	}
	const year = 365 * 24 * time.Hour
	for written, want := range map[time.Duration]time.Duration{year: 0, time.Second: 0, 0: 0, -time.Minute: -time.Minute, -year: -year} {
		for _, c := range []struct{ got, want any }{
			{benchmark(written), benchmark(want)}, {verification(written), verification(want)}, {matrix(written), matrix(want)}, {&v1alpha1.LatencyBenchmarkStatus{}, &v1alpha1.LatencyBenchmarkStatus{}},
		} {
			SettleTimes(c.got, now)
			if diff := cmp.Diff(c.want, c.got); diff != "" {
				t.Errorf("%s from now: %s", written, diff)
			}
		}
	}
}

func TestOverdue(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	for name, c := range map[string]struct {
		created, completed time.Duration
		overdue            bool
		again              time.Duration
	}{
		"in time":                         {2 * time.Hour, 59 * time.Minute, false, time.Minute},
		"overdue":                         {2 * time.Hour, time.Hour, true, 0},
		"finished while a clock was late": {10 * time.Minute, 365 * 24 * time.Hour, false, 50 * time.Minute},
	} {
		why, again := Overdue(new(int32(3600)), ago(c.created), new(ago(c.completed)), now)
		if (why != "") != c.overdue || again != c.again {
			t.Errorf("%s: %q, again in %s", name, why, again)
		}
	}
}
