package benchmark

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
)

// What a manager wrote whose clock was a year ahead, as another one sees it: nothing waits until its own clock has reached that time.
func TestClockThatWasAhead(t *testing.T) {
	const year = 365 * 24 * time.Hour
	cases := map[string]struct {
		changes []func(*world)
		// after is how long later the step ends.
		after  time.Duration
		kind   stepKind
		reason string
	}{
		"a retry":                   {on(withAttempt("x-r1", 1, v1alpha1.OutcomeAgentFailed, -year)), retryAfter + time.Second, stepClaim, v1alpha1.ReasonStarting},
		"a retry under other names": {on(withAttempt("x-r1", 1, v1alpha1.OutcomeNameTaken, -year)), retryAfter + time.Second, stepClaim, v1alpha1.ReasonStarting},
		"a pod that does not end":   {on(active(-year), withServer(running), withOutcome(v1alpha1.OutcomeAgentFailed), outcomeKnown(-year)), removeTimeout + time.Second, stepRelease, ""},
		"a pod that does not start": {on(active(-year), withServer(created(-year))), 2*time.Minute + time.Second, stepConclude, v1alpha1.OutcomeStartTimeout},
		"a deadline":                {on(active(-year), withServer(running), withClient(running)), time.Hour, stepConclude, v1alpha1.OutcomeDeadlineExceeded},
		"a node that is not ready":  {on(active(-year), withServer(running), withClient(running), notReadyNode("a", -year)), nodeGrace + time.Second, stepConclude, v1alpha1.OutcomeNodeLost},
		"an end without the other":  {on(active(-year), withServer(running), withClient(succeeded(-year)), seenEnded(-year)), peerGrace + time.Second, stepConclude, v1alpha1.OutcomeAgentFailed},
		"a refusal":                 {on(active(-year), withRefusal(-year, year)), 0, stepCreateServer, v1alpha1.ReasonStarting},
		"a refusal that lasts":      {on(active(-year), withRefusal(-year, year)), 2*time.Minute + time.Second, stepConclude, v1alpha1.OutcomePodRefused},
		"a result that cannot be stored, or a device plugin that does not run": {on(withAttempt("x-r1", 1, v1alpha1.OutcomeDevicePluginUnavailable, -year)), retryAfter + time.Second, stepClaim, v1alpha1.ReasonStarting},
		"an older benchmark that was not seen":                                 {on(withUnseen(-year)), unseenGrace + time.Second, stepClaim, v1alpha1.ReasonStarting},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(c.changes...)
			controllers.SettleTimes(&w.benchmark.Status, w.now)
			if s := decide(w); s.again > time.Hour {
				t.Errorf("%s, again in %s", s.kind, s.again)
			}
			w.now = w.now.Add(c.after)
			if s := decide(w); s.kind != c.kind || s.reason != c.reason {
				t.Errorf("after %s: %s %s: %s; want %s %s", c.after, s.kind, s.reason, s.message, c.kind, c.reason)
			}
		})
	}
}

// A clock that was a year behind and is corrected in the middle ends the attempt, and does not use up the time for which a benchmark may hold nodes.
func TestClockThatWasBehind(t *testing.T) {
	w := makeWorld(active(365*24*time.Hour), withServer(running), withClient(running), heldBefore(0))
	s := decide(w)
	if s.kind != stepConclude || s.reason != v1alpha1.OutcomeDeadlineExceeded || !curable(s.reason) {
		t.Fatalf("%s %s: %s", s.kind, s.reason, s.message)
	}
	w.fail(&step{}, s.reason, s.message)
	w.release()
	if held := time.Duration(w.benchmark.Status.OccupiedSeconds) * time.Second; held > 30*time.Minute {
		t.Errorf("it counts as held for %s", held)
	}
}

// The UID that the status recorded identifies a pod, and no owner, which any client that may change the pod can remove.
func TestOrphanedPod(t *testing.T) {
	w := makeWorld(active(time.Minute), withServer(running, orphaned), withClient(running))
	if s := decide(w); s.kind != stepConclude || s.reason != v1alpha1.OutcomePodLost {
		t.Errorf("%s %s: %s", s.kind, s.reason, s.message)
	}
	w = makeWorld(active(time.Minute), withServer(running, orphaned), withClient(running), withOutcome(v1alpha1.OutcomePodLost))
	w.client = nil
	if s := decide(w); s.kind != stepRemove {
		t.Errorf("%s %s: its node is free while the pod runs", s.kind, s.reason)
	}
	foreign := makePod(w.benchmark, v1alpha1.RoleClient, stranger)
	api := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(w.server, foreign).Build()
	r := &Reconciler{API: controllers.API{Client: api}}
	for pod, stays := range map[*corev1.Pod]bool{w.server: false, foreign: true} {
		var at step
		if r.deletePods(t.Context(), w.benchmark, &at, pod); at.message != "" {
			t.Fatal(at.message)
		}
		if err := api.Get(t.Context(), client.ObjectKeyFromObject(pod), &corev1.Pod{}); (err == nil) != stays {
			t.Errorf("pod %s: %v", pod.Name, err)
		}
	}
	server := w.server
	w.release()
	if left := w.benchmark.Status.LeftPods; len(left) != 1 || left[0].UID != string(server.UID) || !ownsPod(w.benchmark, server) {
		t.Errorf("left pods %v", left)
	}
	if ownsPod(w.benchmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid-else"}}) || ownsPod(w.benchmark, nil) {
		t.Error("another pod is not its own")
	}
}

// Users can create and delete pods with the operator's labels at any rate: only the pods that a manager created wake benchmarks.
func TestDeletionsThatWake(t *testing.T) {
	r := &Reconciler{}
	r.made.add("uid-server")
	if r.gone("uid-foreign") || !r.gone("uid-server") || r.gone("uid-server") {
		t.Error("want a wake-up for the operator's own pod alone, and once")
	}
}
