package gate

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

// A user of the gate's namespace who deletes pods, or suspends the benchmark for a moment, chooses which attempt counts. A Pass is then
// measured again; a Fail stays one.
func TestAttemptsThatAUserEnded(t *testing.T) {
	cases := map[string]struct {
		passed metav1.ConditionStatus
		reason string
		lost   int32
		want   nodeEvent
	}{
		"all attempts ended by themselves":   {metav1.ConditionTrue, v1alpha1.OutcomeToolFailed, 0, eventPassed},
		"a pod was deleted":                  {metav1.ConditionTrue, v1alpha1.OutcomePodLost, 0, eventDiscarded},
		"a pod got another image":            {metav1.ConditionTrue, v1alpha1.OutcomeNodeLost, 0, eventDiscarded},
		"the agent was killed":               {metav1.ConditionTrue, v1alpha1.OutcomeAgentFailed, 0, eventDiscarded},
		"a user gave a pod a deadline":       {metav1.ConditionTrue, v1alpha1.OutcomeDeadlineExceeded, 0, eventDiscarded},
		"a user took the name of a pod":      {metav1.ConditionTrue, v1alpha1.OutcomeNameTaken, 0, eventDiscarded},
		"a policy cut the pods off":          {metav1.ConditionTrue, v1alpha1.OutcomePeerUnreachable, 0, eventDiscarded},
		"the same, while the tool measured":  {metav1.ConditionTrue, v1alpha1.OutcomeToolTimeout, 0, eventDiscarded},
		"a pod was evicted":                  {metav1.ConditionTrue, v1alpha1.OutcomeEvicted, 0, eventDiscarded},
		"the network was deleted":            {metav1.ConditionTrue, v1alpha1.OutcomeNetworkMissing, 0, eventDiscarded},
		"the profile of Onload was changed":  {metav1.ConditionTrue, v1alpha1.OutcomeProfileInvalid, 0, eventDiscarded},
		"a stored result was deleted":        {metav1.ConditionTrue, v1alpha1.OutcomeMeasured, 0, eventDiscarded},
		"it was suspended":                   {metav1.ConditionTrue, v1alpha1.OutcomeSuspended, 0, eventDiscarded},
		"it was suspended again and again":   {metav1.ConditionTrue, v1alpha1.OutcomeSuspended, maxDiscarded, eventUndecided},
		"it was suspended, and failed later": {metav1.ConditionFalse, v1alpha1.OutcomeSuspended, 0, eventFailed},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(measured(c.passed, v1alpha1.ReasonPass), func(w *world) {
				w.otherPeer, w.verification.Status.Discarded = false, c.lost
				w.benchmark.Status.Attempts = []v1alpha1.Attempt{
					{Run: "up-a-4-r1", Attempt: 1, Outcome: v1alpha1.Outcome{Reason: c.reason}}, {Run: "up-a-4-r1", Attempt: 2, Outcome: v1alpha1.Outcome{Reason: v1alpha1.OutcomeMeasured}},
				}
			})
			s := decide(w)
			if s.event != c.want {
				t.Fatalf("%s %s: %s; want %s", s.event, s.reason, s.message, c.want)
			}
			got, err := w.next(s)
			if err != nil {
				t.Fatal(err)
			}
			if accepted := got.Accepted.Benchmark == "up-a-4"; accepted != (c.want == eventPassed) {
				t.Errorf("accepted: %v", accepted)
			}
		})
	}
}

// The benchmark that follows one that was abandoned in the queue has its age: otherwise a node that is held back is overtaken for ever.
func TestAgeInTheQueue(t *testing.T) {
	v := makeVerification("a", unverified(v1alpha1.ReasonNewNode))
	w := makeWorld(func(w *world) { w.verification = v })
	running(w)
	v.Status.StepFailure = nil
	for count := range 4 {
		began := w.now
		v.Status.State, v.Status.Benchmark.StartTime = v1alpha1.VerificationMeasuring, metav1.NewTime(began)
		w.now = began.Add(queuePatience)
		s := decide(w)
		if s.event != eventHeldUp {
			t.Fatalf("%s: %s", s.event, s.message)
		}
		benchmark := *v.Status.Benchmark
		var err error
		if v.Status, err = w.next(s); err != nil {
			t.Fatal(err)
		}
		waited := v.Status.StepFailure.RetryTime.Sub(noon) / time.Minute
		if got := turns.Benchmark(w.gate, v, "b", 5).Spec.Priority; got != int32(waited) || got < 30*int32(count+1) {
			t.Errorf("after %d: priority %d, and it waited for %d minutes", count+1, got, waited)
		}
		w.now, v.Status.Benchmark = v.Status.StepFailure.RetryTime.Time, &benchmark
	}
}
