package gate

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

// ended makes the current benchmark one that failed, with the outcome of its last attempt and a number of stored results.
func ended(outcome string, stored int) func(*world) {
	return func(w *world) {
		running(w)
		w.benchmark.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonFailed, "run r1 failed 3 times: "+outcome))
		w.benchmark.Status.Attempts = []v1alpha1.Attempt{{Outcome: v1alpha1.Outcome{Reason: v1alpha1.OutcomeToolFailed}}, {Outcome: v1alpha1.Outcome{Reason: outcome}}}
		w.benchmark.Status.Stored = make([]v1alpha1.StoredResult, stored)
	}
}

// A benchmark that failed because of the cluster says nothing about the node, and one that failed in another way needs a user.
func TestBenchmarkFailed(t *testing.T) {
	stepFailure := func(count int32) func(*world) {
		return status(func(s *v1alpha1.LatencyVerificationStatus) {
			s.StepFailure = &v1alpha1.StepFailure{Count: count, Reason: "x", Message: "x"}
		})
	}
	for name, c := range map[string]struct {
		changes []func(*world)
		event   nodeEvent
		reason  string
	}{
		"three evictions":                         {[]func(*world){ended(v1alpha1.OutcomePodLost, 0)}, eventHeldUp, v1alpha1.ReasonEnvironmentFailed},
		"the kubelet evicted a pod":               {[]func(*world){ended(v1alpha1.OutcomeEvicted, 3), stepFailure(9)}, eventHeldUp, v1alpha1.ReasonEnvironmentFailed},
		"a webhook that is down":                  {[]func(*world){ended(v1alpha1.OutcomePodRefused, 0), stepFailure(9)}, eventHeldUp, v1alpha1.ReasonEnvironmentFailed},
		"the peer is gone":                        {[]func(*world){ended(v1alpha1.OutcomeNodeLost, 1)}, eventHeldUp, v1alpha1.ReasonEnvironmentFailed},
		"a quota for the results":                 {[]func(*world){ended(v1alpha1.OutcomeStoreRefused, 1)}, eventHeldUp, v1alpha1.ReasonEnvironmentFailed},
		"pods deleted after results, once":        {[]func(*world){ended(v1alpha1.OutcomePodLost, 2)}, eventHeldUp, v1alpha1.ReasonEnvironmentFailed},
		"pods deleted after results, again":       {[]func(*world){ended(v1alpha1.OutcomePodLost, 2), status(func(s *v1alpha1.LatencyVerificationStatus) { s.Discarded = maxDiscarded })}, eventUndecided, v1alpha1.ReasonBenchmarkFailed},
		"pods deleted without results, again":     {[]func(*world){ended(v1alpha1.OutcomePodLost, 0), stepFailure(9)}, eventHeldUp, v1alpha1.ReasonEnvironmentFailed},
		"the tool failed":                         {[]func(*world){ended(v1alpha1.OutcomeToolFailed, 0)}, eventUndecided, v1alpha1.ReasonBenchmarkFailed},
		"the network between the two":             {[]func(*world){ended(v1alpha1.OutcomePeerUnreachable, 0)}, eventUndecided, v1alpha1.ReasonBenchmarkFailed},
		"a wrong network":                         {[]func(*world){ended(v1alpha1.OutcomeWrongNetwork, 0)}, eventUndecided, v1alpha1.ReasonBenchmarkFailed},
		"a result that does not match its digest": {[]func(*world){ended(v1alpha1.OutcomeResultCorrupt, 0)}, eventUndecided, v1alpha1.ReasonBenchmarkFailed},
		"Onload is missing":                       {[]func(*world){ended(v1alpha1.OutcomeAccelerationFailed, 0)}, eventUndecided, v1alpha1.ReasonBenchmarkFailed},
	} {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(c.changes...)
			got := decide(w)
			if got.event != c.event || got.reason != c.reason {
				t.Errorf("%s %s: %s", got.event, got.reason, got.message)
			}
			next, err := w.next(got)
			if err != nil {
				t.Fatal(err)
			}
			if c.event == eventHeldUp && (next.State != v1alpha1.VerificationUnverified || next.StepFailure == nil || !next.StepFailure.RetryTime.After(noon) || len(next.StepFailure.Peers) == 0 || len(next.History) != len(w.verification.Status.History)) {
				t.Errorf("%s, stepFailure %+v", next.State, next.StepFailure)
			}
		})
	}
}

func TestHeldUp(t *testing.T) {
	condition := func(conditionType string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return v1alpha1.Condition(conditionType, status, reason, "why")
	}
	yes := condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)
	for _, c := range []struct {
		conditions []metav1.Condition
		active     bool
		want       string
	}{
		{nil, false, ""},
		{[]metav1.Condition{yes, condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonQueued)}, false, ""},
		{[]metav1.Condition{yes, condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonRunning)}, true, ""},
		{[]metav1.Condition{yes, condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.OutcomePodRefused)}, true, "PodRefused: why"},
		{[]metav1.Condition{yes, condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.OutcomeUnschedulable)}, true, "Unschedulable: why"},
		{[]metav1.Condition{yes, condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonRetrying)}, false, "Retrying: why"},
		{[]metav1.Condition{condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonNetworkNotFound), condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonNotAccepted)}, false, "NetworkNotFound: why"},
		{[]metav1.Condition{yes, condition(v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonFailed)}, false, ""},
	} {
		b := &v1alpha1.LatencyBenchmark{}
		b.Status.Conditions = c.conditions
		if c.active {
			b.Status.Active = &v1alpha1.ActiveAttempt{}
		}
		if got := heldUp(b); got != c.want {
			t.Errorf("%+v: %q, want %q", c.conditions, got, c.want)
		}
	}
}

// Condition Operational says what stands in the way, the first of these.
func TestOperationalSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*snapshot, *turns.Choice)
		want   string
	}{
		"a webhook that is down": {func(s *snapshot, _ *turns.Choice) {
			s.refused = "creating the LatencyVerification of node z: failed calling webhook"
		}, "False VerificationRefused creating the LatencyVerification of node z: failed calling webhook"},
		"no node that can be measured, and an invalid schedule": {func(s *snapshot, _ *turns.Choice) {
			s.Schedule.Invalid = "spec.schedule: no"
			s.cannotSettle(v1alpha1.ReasonCannotSettle, "none can be measured")
		}, "False CannotSettle none can be measured"},
		"a pod that is refused": {func(s *snapshot, _ *turns.Choice) { s.heldUp = map[string]string{"n0": "PodRefused: no"} }, "False MeasurementHeldUp 1 nodes: the benchmark of n0: PodRefused: no"},
		"a control plane": {func(_ *snapshot, c *turns.Choice) {
			c.Unmeasurable, c.Waiting = []string{"n0"}, map[string]string{"n0": "tainted"}
		}, "False NodesUnmeasurable 1 of 2 nodes cannot be measured; n0: tainted"},
		"a reboot that does not end": {func(_ *snapshot, c *turns.Choice) {
			c.Overlong, c.Waiting = []string{"n0"}, map[string]string{"n0": "the node is not ready"}
		}, "False NodesWaiting 1 nodes have waited for more than 30m0s; n0: the node is not ready"},
		"a schedule that is too short": {func(_ *snapshot, c *turns.Choice) { c.Overdue = 7 }, "False ScheduleTooShort 7 nodes were due"},
		"a schedule that is due again while the nodes are full": {func(s *snapshot, c *turns.Choice) {
			s.Schedule.Fired, c.Unplaced, c.Overdue = noon, map[string]string{"n0": "no CPU"}, 1
		}, "False NoRoom 1 nodes are due by the schedule or by a request, keep their state, and cannot be measured, because there is no room for the pods; n0: no CPU"},
		"nothing": {func(*snapshot, *turns.Choice) {}, "True Operational the gate handles every selected node"},
	} {
		t.Run(name, func(t *testing.T) {
			s, chosen := &snapshot{Snapshot: &turns.Snapshot{Gate: makeGate()}}, turns.Choice{}
			s.Now = noon
			s.Verifications = []*v1alpha1.LatencyVerification{makeVerification("n0", waitingSince(time.Minute)), makeVerification("n1")}
			c.change(s, &chosen)
			summarize(s, chosen)
			got := ""
			for _, x := range s.Gate.Status.Conditions {
				if x.Type == v1alpha1.ConditionOperational {
					got = string(x.Status) + " " + x.Reason + " " + x.Message
				}
			}
			if !strings.HasPrefix(got, c.want) {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if int(s.Gate.Status.Nodes.Unmeasurable) != len(chosen.Unmeasurable) {
				t.Errorf("%d nodes are unmeasurable", s.Gate.Status.Nodes.Unmeasurable)
			}
		})
	}
}

// A node that is being deleted is not the gate's any more, unless it failed.
func TestNodesThatAreBeingDeleted(t *testing.T) {
	for state, want := range map[v1alpha1.VerificationState]int32{
		v1alpha1.VerificationUnverified: 0, v1alpha1.VerificationVerified: 0, v1alpha1.VerificationInconclusive: 0, v1alpha1.VerificationFailed: 1,
	} {
		v := makeVerification("n0", in(state))
		going := func(n *corev1.Node) { n.DeletionTimestamp = at(0) }
		nodes := []corev1.Node{*makeNode("n0", going), *makeNode("unknown", going)}
		s := &snapshot{Snapshot: turns.New(makeGate(), nil, nodes, []v1alpha1.LatencyVerification{*v}, nil, noon)}
		summarize(s, turns.Choice{})
		if got := s.Gate.Status.Nodes; len(s.Retained) != 0 || got.Total != want || got.Failed != want {
			t.Errorf("%s: %+v", state, got)
		}
		if want > 0 && !strings.Contains(s.Gate.Status.NotVerified[0].Message, "is being deleted") {
			t.Errorf("%s: %+v", state, s.Gate.Status.NotVerified)
		}
	}
}
