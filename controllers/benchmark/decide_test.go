package benchmark

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/preflight"
)

type decision struct {
	changes []func(*world)
	// kind and reason are the ones of the step.
	kind   stepKind
	reason string
	// message has parts of the step's message.
	message []string
	// again is compared if it is not zero; if none is true, it must be zero.
	again time.Duration
	none  bool
	// run, attempt and address are compared if they are set.
	run     string
	attempt int32
	taken   bool
	address string
}

func on(changes ...func(*world)) []func(*world) { return changes }

// evicted makes a pod one that kubectl drain evicts: the API server sets the condition and deletes the pod.
func evicted(p *corev1.Pod) {
	p.DeletionTimestamp = &metav1.Time{Time: noon}
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"})
}

func cordoned(node string) func(*world) { return func(w *world) { w.cordoned = []string{node} } }

// A user of the namespace can evict pods, and cannot cordon nodes.
func TestDecideDrained(t *testing.T) {
	checkDecisions(t, map[string]decision{
		"a drain of the client's node": {
			changes: on(active(time.Minute), withServer(running), withClient(running, evicted), cordoned("a")),
			kind:    stepConclude, reason: v1alpha1.OutcomeEvicted, message: []string{"drain of node a", "client"},
		},
		"a drain of the server's node": {
			changes: on(active(time.Minute), withServer(running, evicted), withClient(running), cordoned("b")),
			kind:    stepConclude, reason: v1alpha1.OutcomeEvicted, message: []string{"drain of node b", "server"},
		},
		"an eviction by a user": {
			changes: on(active(time.Minute), withServer(running), withClient(running, evicted), cordoned("b")),
			kind:    stepFollow, reason: v1alpha1.ReasonRunning,
		},
		"a drain after the end": {
			changes: on(active(time.Minute), withServer(succeeded(time.Second)), withClient(succeeded(time.Second), evicted), cordoned("a")),
			kind:    stepCollect, reason: v1alpha1.ReasonRunning,
		},
	})
}

func checkDecisions(t *testing.T, cases map[string]decision) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(c.changes...)
			before := w.benchmark.DeepCopy()
			got := decide(w)
			if got.kind != c.kind || got.reason != c.reason {
				t.Fatalf("got %q, %s (%s); want %q, %s", got.kind, got.reason, got.message, c.kind, c.reason)
			}
			for _, part := range c.message {
				if !strings.Contains(got.message, part) {
					t.Errorf("message %q does not say %q", got.message, part)
				}
			}
			if got.message == "" && got.kind != stepRelease {
				t.Error("no message")
			}
			if c.again != 0 && got.again != c.again || c.none && got.again != 0 {
				t.Errorf("looks again after %s, want %s", got.again, c.again)
			}
			if got.taken != c.taken {
				t.Errorf("names are taken: got %t, want %t", got.taken, c.taken)
			}
			if c.run != "" && got.run.Name != c.run || c.attempt != 0 && got.attempt != c.attempt || c.address != "" && got.address != c.address {
				t.Errorf("got run %q, attempt %d, address %q; want %q, %d, %q", got.run.Name, got.attempt, got.address, c.run, c.attempt, c.address)
			}
			if diff := cmp.Diff(before, w.benchmark); diff != "" {
				t.Errorf("deciding changed the benchmark:\n%s", diff)
			}
		})
	}
}

const noPlugin = v1alpha1.OutcomeDevicePluginUnavailable

// missingFor sets how long ago a device plugin was first seen not to run.
func missingFor(d time.Duration) func(*world) {
	return func(w *world) {
		w.benchmark.Status.DeviceWaitStartTime = new(metav1.NewMicroTime(ago(d)))
	}
}

// begun makes the benchmark one that has already claimed its nodes.
func begun(w *world) { w.benchmark.Status.StartTime = &metav1.Time{Time: ago(time.Hour)} }

// overVF makes the benchmark request a VF, which no node advertises.
func overVF(w *world) {
	w.benchmark.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "amd.com/sf_vf", IPAM: &v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: "198.18.0.0/24"}}}}
	w.accepted.Networks = map[string]*preflight.NetworkDefinition{plan.DefaultVariant: {Name: "perf/x"}}
}

// podAndVF makes the benchmark compare the pod network with VFs, which no node advertises.
func podAndVF(w *world) {
	overVF(w)
	vf := w.benchmark.Spec.Network
	w.benchmark.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkPod}
	w.benchmark.Spec.Variants = []v1alpha1.Variant{{Name: "pod"}, {Name: "vf", Network: &vf}}
	w.accepted.Networks = map[string]*preflight.NetworkDefinition{"vf": {Name: "perf/x"}}
}

func TestDecideWithoutAnAttempt(t *testing.T) {
	cordoned := readyNode("a")
	cordoned.Spec.Unschedulable = true
	checkDecisions(t, map[string]decision{
		"a new benchmark is accepted": {
			changes: on(notAccepted),
			kind:    stepAccept, reason: v1alpha1.ReasonQueued,
		},
		"a benchmark that the cluster cannot run is rejected, and checked again": {
			changes: on(notAccepted, withNodes(readyNode("a"))),
			kind:    stepReject, reason: v1alpha1.ReasonSameNode, again: waitAgain,
		},
		"an accepted one is rejected when its node goes away": {
			changes: on(withNodes(cordoned, readyNode("b"), readyNode("c"))),
			kind:    stepReject, reason: v1alpha1.ReasonNodeNotReady, message: []string{"node a"}, again: waitAgain,
		},
		"a tool that this operator does not know": {
			changes: on(func(w *world) { w.driver = nil }),
			kind:    stepReject, reason: v1alpha1.ReasonCellUnsupported, message: []string{"spec.tool", "sockperf", "upgrade"},
		},
		"the first run is claimed": {
			kind: stepClaim, reason: v1alpha1.ReasonStarting, run: "x-r1", attempt: 1,
		},
		"one that measures on a node is waited for": {
			changes: on(withOther(time.Minute, true)),
			kind:    stepWait, reason: v1alpha1.ReasonQueued, message: []string{"waiting", "perf/other", "measuring"}, again: waitAgain,
		},
		"one that came first is waited for": {
			changes: on(withOther(2*time.Hour, false)),
			kind:    stepWait, reason: v1alpha1.ReasonQueued, message: []string{"perf/other", "precedes it"},
		},
		"one that came first is not waited for by a higher priority": {
			changes: on(withOther(2*time.Hour, false), func(w *world) { w.benchmark.Spec.Priority = 1000 }),
			kind:    stepClaim, reason: v1alpha1.ReasonStarting,
		},
		"one that came first is not waited for by one that has started": {
			changes: on(withOther(2*time.Hour, false), func(w *world) { w.benchmark.Status.StartTime = &metav1.Time{Time: ago(time.Minute)} }),
			kind:    stepClaim, reason: v1alpha1.ReasonStarting,
		},
		"one that came later is not": {
			changes: on(withOther(time.Minute, false)),
			kind:    stepClaim, reason: v1alpha1.ReasonStarting,
		},
		"a pod that is not gone is waited for": {
			changes: on(withForeign("perf/y-r1-a1-server on b")),
			kind:    stepWait, reason: v1alpha1.ReasonQueued, message: []string{"perf/y-r1-a1-server on b"}, again: lookAgain,
		},
		"an older one that no worker has looked at is waited for": {
			changes: on(withUnseen(time.Second)),
			kind:    stepWait, reason: v1alpha1.ReasonQueued, message: []string{"perf/older"}, again: lookSoon,
		},
		"nothing new begins in the namespace that has most while the memory ends": {
			changes: on(func(w *world) { w.most = 900 }),
			kind:    stepReject, reason: v1alpha1.ReasonMemoryShort, message: []string{"this one, which has 900", "memory limit"}, again: waitAgain,
		},
		"not for long": {
			changes: on(withUnseen(unseenGrace)),
			kind:    stepClaim, reason: v1alpha1.ReasonStarting,
		},
		"a pod that should be gone for long frees the other node": {
			changes: on(withForeign("perf/y-r1-a1-server on b"), stuck, withOther(2*time.Hour, false)),
			kind:    stepReject, reason: v1alpha1.ReasonPodStuck, message: []string{"perf/y-r1-a1-server on b", "delete the Node object"}, again: waitAgain,
		},
		"one that has held its nodes for as long as it may has failed": {
			changes: on(withStored("x-r1"), heldBefore(time.Hour)),
			kind:    stepFail, reason: v1alpha1.ReasonFailed, message: []string{"1 of 2 runs", "1h0m0s", "--max-occupation"},
		},
		"one that has not goes on": {
			changes: on(withStored("x-r1"), heldBefore(time.Hour-time.Second)),
			kind:    stepClaim, reason: v1alpha1.ReasonStarting,
		},
		"after the first run comes the second": {
			changes: on(withStored("x-r1"), withAttempt("x-r1", 1, v1alpha1.OutcomeMeasured, time.Second)),
			kind:    stepClaim, reason: v1alpha1.ReasonStarting, run: "x-r2", attempt: 1,
		},
		"a run that was skipped comes before the next": {
			changes: on(withStored("x-r2")),
			kind:    stepClaim, reason: v1alpha1.ReasonStarting, run: "x-r1", attempt: 1,
		},
		"an undecided benchmark is extended": {
			changes: on(withStored("x-r1"), withStored("x-r2"), undecided),
			kind:    stepExtend, reason: v1alpha1.ReasonQueued, message: []string{"4 more rounds", "2 rounds were not enough", "p99 is Inconclusive"}, none: true,
		},
		"an extended plan has more runs": {
			changes: on(withStored("x-r1"), withStored("x-r2"), func(w *world) { w.benchmark.Status.ExtendedRounds = 4 }),
			kind:    stepClaim, reason: v1alpha1.ReasonStarting, run: "x-r3", attempt: 1,
		},
		"after the last run it is complete": {
			changes: on(withStored("x-r1"), withStored("x-r2")),
			kind:    stepComplete, reason: v1alpha1.ReasonComplete, message: []string{"2 of 2"}, none: true,
		},
		"complete needs no node": {
			changes: on(withStored("x-r1"), withStored("x-r2"), withNodes()),
			kind:    stepComplete, reason: v1alpha1.ReasonComplete,
		},
		"a failed run rests": {
			changes: on(withAttempt("x-r1", 1, v1alpha1.OutcomeToolFailed, 2*time.Second)),
			kind:    stepWait, reason: v1alpha1.ReasonRetrying, message: []string{"x-r1", "ToolFailed", "attempt 1 of 3", "it went wrong"}, again: 3 * time.Second,
		},
		"after the second failure it rests longer": {
			changes: on(withAttempt("x-r1", 1, v1alpha1.OutcomeToolFailed, time.Minute), withAttempt("x-r1", 2, v1alpha1.OutcomeToolFailed, 6*time.Second)),
			kind:    stepWait, reason: v1alpha1.ReasonRetrying, again: 4 * time.Second,
		},
		"a rested run is tried again": {
			changes: on(withAttempt("x-r1", 1, v1alpha1.OutcomeToolFailed, 6*time.Second)),
			kind:    stepClaim, reason: v1alpha1.ReasonStarting, run: "x-r1", attempt: 2,
		},
		"while it rests, nothing asks whether it could start": {
			changes: on(withAttempt("x-r1", 1, v1alpha1.OutcomeNodeLost, time.Second), withNodes()),
			kind:    stepWait, reason: v1alpha1.ReasonRetrying,
		},
		"after the last attempt it has failed": {
			changes: on(withAttempt("x-r1", 1, v1alpha1.OutcomeToolFailed, 3*time.Minute), withAttempt("x-r1", 2, v1alpha1.OutcomeToolFailed, 2*time.Minute), withAttempt("x-r1", 3, v1alpha1.OutcomePodLost, time.Minute)),
			kind:    stepFail, reason: v1alpha1.ReasonFailed, message: []string{"x-r1", "PodLost", "attempt 3", "it went wrong"}, none: true,
		},
		"each run has its own attempts": {
			changes: on(withAttempt("x-r1", 1, v1alpha1.OutcomeToolFailed, time.Hour), withAttempt("x-r1", 2, v1alpha1.OutcomeToolFailed, time.Hour), withAttempt("x-r1", 3, v1alpha1.OutcomeMeasured, time.Hour), withStored("x-r1")),
			kind:    stepClaim, reason: v1alpha1.ReasonStarting, run: "x-r2", attempt: 1,
		},
		"an incurable failure ends the run at once": {
			changes: on(withAttempt("x-r1", 1, v1alpha1.OutcomeToolMissing, time.Hour)),
			kind:    stepFail, reason: v1alpha1.ReasonFailed, message: []string{"ToolMissing", "attempt 1"},
		},
		"a suspended one is not even accepted": {
			changes: on(notAccepted, suspended),
			kind:    stepHold, reason: v1alpha1.ReasonBenchmarkSuspended, message: []string{"0 of 2 runs", "spec.suspend"}, none: true,
		},
		"a suspended benchmark keeps its results and starts no run": {
			changes: on(withStored("x-r1"), suspended),
			kind:    stepHold, reason: v1alpha1.ReasonBenchmarkSuspended, message: []string{"1 of 2 runs"}, none: true,
		},
		"a suspended one asks for no nodes": {
			changes: on(suspended, withNodes()),
			kind:    stepHold, reason: v1alpha1.ReasonBenchmarkSuspended,
		},
		"a suspended one does not rest between attempts": {
			changes: on(suspended, withAttempt("x-r1", 1, v1alpha1.OutcomeToolFailed, time.Second)),
			kind:    stepHold, reason: v1alpha1.ReasonBenchmarkSuspended,
		},
		"suspending a failed benchmark changes nothing": {
			changes: on(suspended, withAttempt("x-r1", 1, v1alpha1.OutcomeToolMissing, time.Hour)),
			kind:    stepFail, reason: v1alpha1.ReasonFailed,
		},
		"suspending a complete benchmark changes nothing": {
			changes: on(suspended, withStored("x-r1"), withStored("x-r2")),
			kind:    stepComplete, reason: v1alpha1.ReasonComplete,
		},
		"an attempt that was suspended does not count, but its number is used": {
			changes: on(withAttempt("x-r1", 1, v1alpha1.OutcomeSuspended, time.Second), withAttempt("x-r1", 2, v1alpha1.OutcomeSuspended, time.Second), withAttempt("x-r1", 3, v1alpha1.OutcomeSuspended, time.Second)),
			kind:    stepClaim, reason: v1alpha1.ReasonStarting, run: "x-r1", attempt: 4,
		},
		"those that failed before it was suspended do": {
			changes: on(withAttempt("x-r1", 1, v1alpha1.OutcomeToolFailed, 3*time.Minute), withAttempt("x-r1", 2, v1alpha1.OutcomeSuspended, 2*time.Minute), withAttempt("x-r1", 3, v1alpha1.OutcomeToolFailed, time.Minute), withAttempt("x-r1", 4, v1alpha1.OutcomeToolFailed, time.Minute)),
			kind:    stepFail, reason: v1alpha1.ReasonFailed, message: []string{"attempt 4"},
		},
		"a run that failed before the suspension still rests": {
			changes: on(withAttempt("x-r1", 1, v1alpha1.OutcomeToolFailed, 2*time.Second), withAttempt("x-r1", 2, v1alpha1.OutcomeSuspended, time.Second)),
			kind:    stepWait, reason: v1alpha1.ReasonRetrying, message: []string{"attempt 1 of 3"}, again: 3 * time.Second,
		},
		"a run whose stored result was deleted is measured again, under the next number": {
			changes: on(withAttempt("x-r1", 1, v1alpha1.OutcomeMeasured, time.Hour)),
			kind:    stepClaim, reason: v1alpha1.ReasonStarting, run: "x-r1", attempt: 2,
		},
		"a run whose name was taken is tried again under another name": {
			changes: on(withAttempt("x-r1", 1, v1alpha1.OutcomeNameTaken, 6*time.Second)),
			kind:    stepClaim, reason: v1alpha1.ReasonStarting, run: "x-r1", attempt: 2, taken: true,
		},
		"no number of attempts without a device plugin makes a run fail, and each is waited for longer": {
			changes: on(withAttempt("x-r1", 1, noPlugin, time.Hour), withAttempt("x-r1", 2, noPlugin, time.Hour), withAttempt("x-r1", 3, noPlugin, time.Hour), withAttempt("x-r1", 4, noPlugin, 12*time.Second), missingFor(2*time.Minute)),
			kind:    stepWait, reason: v1alpha1.ReasonDevicePluginUnavailable, message: []string{"x-r1", "device plugin", "it went wrong"}, again: 8 * time.Second,
		},
		"a run whose device plugin runs again is tried again": {
			changes: on(withAttempt("x-r1", 1, noPlugin, 6*time.Second), missingFor(time.Minute)),
			kind:    stepClaim, reason: v1alpha1.ReasonStarting, run: "x-r1", attempt: 2,
		},
		"attempts without a device plugin do not count beside others": {
			changes: on(withAttempt("x-r1", 1, v1alpha1.OutcomeToolFailed, time.Hour), withAttempt("x-r1", 2, noPlugin, time.Hour), withAttempt("x-r1", 3, v1alpha1.OutcomeToolFailed, 2*time.Second)),
			kind:    stepWait, reason: v1alpha1.ReasonRetrying, message: []string{"attempt 2 of 3"}, again: 8 * time.Second,
		},
		"a device plugin that never runs is not waited for forever": {
			changes: on(withAttempt("x-r1", 1, noPlugin, time.Second), missingFor(plan.PluginPatience+2*time.Second)),
			kind:    stepFail, reason: v1alpha1.ReasonFailed, message: []string{"x-r1", "30m1s", "it went wrong"}, none: true,
		},
		"one that has started waits for a device that its node has lost": {
			changes: on(overVF, begun),
			kind:    stepReject, reason: v1alpha1.ReasonDevicePluginUnavailable, message: []string{"x-r1", "at most 30m0s", "amd.com/sf_vf"}, again: waitAgain,
		},
		"not forever": {
			changes: on(overVF, begun, missingFor(plan.PluginPatience+time.Second)),
			kind:    stepFail, reason: v1alpha1.ReasonFailed, message: []string{"30m0s", "amd.com/sf_vf"}, none: true,
		},
		"a benchmark whose next run needs no device measures it": {
			changes: on(podAndVF, begun),
			kind:    stepClaim, reason: v1alpha1.ReasonStarting, run: "x-pod-r1", attempt: 1,
		},
		"a benchmark whose next run needs the device waits": {
			changes: on(podAndVF, begun, withStored("x-pod-r1")),
			kind:    stepReject, reason: v1alpha1.ReasonDevicePluginUnavailable, message: []string{"x-vf-r1", "spec.variants[1].network", "amd.com/sf_vf"}, again: waitAgain,
		},
		"one that has not started is rejected even if its first run needs no device": {
			changes: on(podAndVF),
			kind:    stepReject, reason: v1alpha1.ReasonResourceNotAdvertised, message: []string{"amd.com/sf_vf"}, again: waitAgain,
		},
		"one that has not started is rejected": {
			changes: on(overVF),
			kind:    stepReject, reason: v1alpha1.ReasonResourceNotAdvertised, message: []string{"amd.com/sf_vf"}, again: waitAgain,
		},
		"a few taken names make no run fail, and each is waited for": {
			changes: on(withAttempt("x-r1", 1, v1alpha1.OutcomeNameTaken, time.Hour), withAttempt("x-r1", 2, v1alpha1.OutcomeNameTaken, time.Hour), withAttempt("x-r1", 3, v1alpha1.OutcomeNameTaken, 2*time.Second)),
			kind:    stepWait, reason: v1alpha1.ReasonRetrying, message: []string{"under other names", "it went wrong"}, again: 3 * time.Second,
		},
		"thirty taken names are three failures": {
			changes: slices.Repeat(on(withAttempt("x-r1", 1, v1alpha1.OutcomeNameTaken, time.Hour)), 30),
			kind:    stepFail, reason: v1alpha1.ReasonFailed, message: []string{"x-r1"},
		},
		"no number of deleted results makes a run fail": {
			changes: on(withAttempt("x-r1", 1, v1alpha1.OutcomeMeasured, 3*time.Hour), withAttempt("x-r1", 2, v1alpha1.OutcomeMeasured, 2*time.Hour), withAttempt("x-r1", 3, v1alpha1.OutcomeMeasured, time.Hour)),
			kind:    stepClaim, reason: v1alpha1.ReasonStarting, run: "x-r1", attempt: 4,
		},
		"failures before the run was measured do not count": {
			changes: on(withAttempt("x-r1", 1, v1alpha1.OutcomeToolFailed, 3*time.Hour), withAttempt("x-r1", 2, v1alpha1.OutcomeToolFailed, 2*time.Hour), withAttempt("x-r1", 3, v1alpha1.OutcomeMeasured, time.Hour), withAttempt("x-r1", 4, v1alpha1.OutcomeToolFailed, time.Second)),
			kind:    stepWait, reason: v1alpha1.ReasonRetrying, message: []string{"attempt 1 of 3"},
		},
	})
}

func TestDecideToSuspend(t *testing.T) {
	checkDecisions(t, map[string]decision{
		"a claim without a pod is given back": {
			changes: on(active(0), suspended),
			kind:    stepWithdraw, reason: v1alpha1.ReasonBenchmarkSuspended,
		},
		"a server that starts ends": {
			changes: on(active(0), suspended, withServer()),
			kind:    stepConclude, reason: v1alpha1.OutcomeSuspended, message: []string{"spec.suspend", "does not count"},
		},
		"so does a run that measures": {
			changes: on(active(time.Minute), suspended, withServer(running), withClient(running)),
			kind:    stepConclude, reason: v1alpha1.OutcomeSuspended,
		},
		"so does one of which only one end is over": {
			changes: on(active(time.Minute), suspended, withServer(succeeded(time.Second)), withClient(running)),
			kind:    stepConclude, reason: v1alpha1.OutcomeSuspended,
		},
		"a measured result is collected": {
			changes: on(active(time.Minute), suspended, withServer(succeeded(time.Second)), withClient(succeeded(time.Second))),
			kind:    stepCollect, reason: v1alpha1.ReasonRunning,
		},
		"a stored result is kept": {
			changes: on(active(time.Minute), suspended, withServer(succeeded(time.Second)), withClient(succeeded(time.Second)), collectedAs(keptWhole)),
			kind:    stepStore, reason: v1alpha1.ReasonRunning,
		},
		"a failed attempt stays failed": {
			changes: on(active(time.Minute), suspended, withServer(running), withClient(refused("Evicted", "the node was low on memory"))),
			kind:    stepConclude, reason: v1alpha1.OutcomeEvicted,
		},
		"a lost pod is a lost pod": {
			changes: on(active(time.Minute), suspended, withServer(running), withClient(), func(w *world) { w.client = nil }),
			kind:    stepConclude, reason: v1alpha1.OutcomePodLost,
		},
		"its pods are removed": {
			changes: on(active(time.Minute), suspended, withServer(running), withClient(running), withOutcome(v1alpha1.OutcomeSuspended)),
			kind:    stepRemove, reason: v1alpha1.ReasonEnding,
		},
	})
}

func TestDecideWhilePodsStart(t *testing.T) {
	hostInterface := func(w *world) {
		w.benchmark.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkHost, Host: &v1alpha1.HostNetwork{Interface: "ens1f0"}}
	}
	secondary := func(w *world) {
		w.benchmark.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkNAD, NAD: &v1alpha1.NADNetwork{NetworkRef: v1alpha1.NetworkRef{Name: "sf-vf"}}}
	}
	warned := func(reason, message string) func(*world) {
		return func(w *world) { w.events["uid-server"] = []corev1.Event{{Reason: reason, Message: message}} }
	}
	checkDecisions(t, map[string]decision{
		"a server that has just ended, whose pod does not say how yet, gets no client": {
			changes: on(active(0), withServer(running, failed(time.Second, ""), func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })),
			kind:    stepWatch, reason: v1alpha1.ReasonStarting, message: []string{"server"},
		},
		"a claim is followed by the server": {
			changes: on(active(0)),
			kind:    stepCreateServer, reason: v1alpha1.ReasonStarting, message: []string{"x-r1, attempt 1"},
		},
		"a server that the API server has just refused is waited for": {
			changes: on(active(time.Minute), withRefusal(time.Minute, 5*time.Second)),
			kind:    stepWatch, reason: v1alpha1.OutcomePodRefused, message: []string{"a webhook does not answer"}, again: 5 * time.Second,
		},
		"then it is created again": {
			changes: on(active(time.Minute), withRefusal(time.Minute, 0)),
			kind:    stepCreateServer, reason: v1alpha1.ReasonStarting,
		},
		"until it should have started": {
			changes: on(active(3*time.Minute), withRefusal(121*time.Second, time.Second)),
			kind:    stepConclude, reason: v1alpha1.OutcomePodRefused, message: []string{"a webhook does not answer"},
		},
		"so is a client": {
			changes: on(active(3*time.Minute), withServer(created(3*time.Minute), running), withRefusal(121*time.Second, time.Second)),
			kind:    stepConclude, reason: v1alpha1.OutcomePodRefused,
		},
		"a refused server gives way, too": {
			changes: on(active(0), withRefusal(0, time.Second), withOther(2*time.Hour, true)),
			kind:    stepWithdraw, reason: v1alpha1.ReasonQueued,
		},
		"a server that is not recorded is not ours": {
			changes: on(active(0), withServer(), func(w *world) { w.benchmark.Status.Active.ServerPodUID = "" }),
			kind:    stepConclude, reason: v1alpha1.OutcomeNameTaken, message: []string{"x-r1-a1-server", "does not record"},
		},
		"nor is a client": {
			changes: on(active(0), withServer(running), withClient(running), func(w *world) { w.benchmark.Status.Active.ClientPodUID = "" }),
			kind:    stepConclude, reason: v1alpha1.OutcomeNameTaken, message: []string{"x-r1-a1-client", "does not record"},
		},
		"of two claims on one node, one gives way": {
			changes: on(active(0), withOther(2*time.Hour, true)),
			kind:    stepWithdraw, reason: v1alpha1.ReasonQueued, message: []string{"gave way", "perf/other"},
		},
		"one that only waits is no reason to give way": {
			changes: on(active(0), withOther(2*time.Hour, false)),
			kind:    stepCreateServer, reason: v1alpha1.ReasonStarting,
		},
		"a benchmark with a server does not give way": {
			changes: on(active(0), withServer(), withOther(2*time.Hour, true)),
			kind:    stepWatch, reason: v1alpha1.ReasonStarting,
		},
		"a tool that an older operator does not know": {
			changes: on(active(0), func(w *world) { w.driver = nil }),
			kind:    stepConclude, reason: v1alpha1.OutcomeAgentFailed, message: []string{"sockperf", "upgrade"},
		},
		"a server's name that is taken": {
			changes: on(active(0), withServer(stranger)),
			kind:    stepConclude, reason: v1alpha1.OutcomeNameTaken, message: []string{"x-r1-a1-server"},
		},
		"a client's name that is taken": {
			changes: on(active(0), withServer(running), withClient(stranger)),
			kind:    stepConclude, reason: v1alpha1.OutcomeNameTaken, message: []string{"x-r1-a1-client"},
		},
		"a server that starts is watched": {
			changes: on(active(0), withServer()),
			kind:    stepWatch, reason: v1alpha1.ReasonStarting, message: []string{"x-r1, attempt 1: server"}, again: lookAgain,
		},
		"a server whose image cannot be pulled is reported": {
			changes: on(active(0), withServer(waiting("ImagePullBackOff", ""))),
			kind:    stepWatch, reason: v1alpha1.OutcomeImagePullFailed, message: []string{"server's pod does not start", "bench:v0"},
		},
		"a pod that waits for a device whose plugin ended gives the nodes back": {
			changes: on(active(0), withServer(unscheduled("0/2 nodes are available: 1 Insufficient amd.com/onload.")), func(w *world) { w.unplugged = "node b has no allocatable amd.com/onload" }),
			kind:    stepConclude, reason: noPlugin, message: []string{"server", "node b has no allocatable amd.com/onload", "does not count"},
		},
		"a server that cannot be scheduled is reported": {
			changes: on(active(0), withServer(unscheduled("0/2 nodes are available: 1 Insufficient cpu."))),
			kind:    stepWatch, reason: v1alpha1.OutcomeUnschedulable, message: []string{"on b", "Insufficient cpu"},
		},
		"a sandbox that fails is reported": {
			changes: on(active(0), withServer(), warned("FailedCreatePodSandBox", "plugin type=\"sriov\" failed: already allocated")),
			kind:    stepWatch, reason: v1alpha1.OutcomeNetworkFailed, message: []string{"already allocated"},
		},
		"one that will fail forever ends the attempt at once": {
			changes: on(active(0), withServer(), warned("FailedCreatePodSandBox", "plugin type=\"sriov\" failed: VF pci addr is required")),
			kind:    stepConclude, reason: v1alpha1.OutcomeDeviceMissing, message: []string{"VF pci addr"}, none: true,
		},
		"trouble that lasts ends the attempt with its reason": {
			changes: on(active(3*time.Minute), withServer(created(121*time.Second), waiting("ErrImagePull", ""))),
			kind:    stepConclude, reason: v1alpha1.OutcomeImagePullFailed, message: []string{"server", "2m0s", "bench:v0"}, none: true,
		},
		"so does silence": {
			changes: on(active(3*time.Minute), withServer(created(121*time.Second))),
			kind:    stepConclude, reason: v1alpha1.OutcomeStartTimeout, message: []string{"server", "2m0s"},
		},
		"a server that runs is followed by the client": {
			changes: on(active(0), withServer(running)),
			kind:    stepCreateClient, reason: v1alpha1.ReasonStarting, address: "10.244.1.17",
		},
		"on a named interface of the host, with the address that the server reports": {
			changes: on(hostInterface, active(0), withServer(running), func(w *world) { w.listening = "10.0.0.12" }),
			kind:    stepCreateClient, reason: v1alpha1.ReasonStarting, address: "10.0.0.12",
		},
		"on a named interface of the host, before the server has reported its address": {
			changes: on(hostInterface, active(0), withServer(running), func(w *world) { w.noAddress = "no server says" }),
			kind:    stepWatch, reason: v1alpha1.ReasonStarting, message: []string{"no server says"}, again: lookSoon,
		},
		"on a secondary network, with its address there": {
			changes: on(secondary, active(0), withServer(running, annotated(`[{"name":"perf/sf-vf","interface":"net1","ips":["192.168.100.12"]}]`))),
			kind:    stepCreateClient, reason: v1alpha1.ReasonStarting, address: "192.168.100.12",
		},
		"in a later run, the client does not wait for the report that the server's container runs": {
			changes: on(secondary, withStored("x-r1"), active(0), withServer(annotated(`[{"name":"perf/sf-vf","interface":"net1","ips":["192.168.100.12"]}]`))),
			kind:    stepCreateClient, reason: v1alpha1.ReasonStarting, address: "192.168.100.12",
		},
		"in the first run, it does: the node may pull the image for minutes": {
			changes: on(secondary, active(0), withServer(annotated(`[{"name":"perf/sf-vf","interface":"net1","ips":["192.168.100.12"]}]`))),
			kind:    stepWatch, reason: v1alpha1.ReasonStarting, message: []string{"server"}, again: lookAgain,
		},
		"in a later run, a server whose container cannot start gets no client": {
			changes: on(secondary, withStored("x-r1"), active(0), withServer(waiting("ImagePullBackOff", ""), annotated(`[{"name":"perf/sf-vf","interface":"net1","ips":["192.168.100.12"]}]`))),
			kind:    stepWatch, reason: v1alpha1.OutcomeImagePullFailed,
		},
		"without an address the client waits": {
			changes: on(secondary, active(0), withServer(running)),
			kind:    stepWatch, reason: v1alpha1.ReasonStarting, message: []string{"Multus"}, again: lookSoon,
		},
		"not forever": {
			changes: on(secondary, active(3*time.Minute), withServer(created(121*time.Second), running)),
			kind:    stepConclude, reason: v1alpha1.OutcomeNetworkFailed, message: []string{"Multus"},
		},
		"a client that starts is watched": {
			changes: on(active(0), withServer(running), withClient()),
			kind:    stepWatch, reason: v1alpha1.ReasonStarting, message: []string{"client"},
		},
		"a client that does not start ends the attempt": {
			changes: on(active(4*time.Minute), withServer(created(4*time.Minute), running), withClient(created(121*time.Second), unscheduled("0/2 nodes"))),
			kind:    stepConclude, reason: v1alpha1.OutcomeUnschedulable, message: []string{"client", "on a"},
		},
		"both running are measuring": {
			changes: on(active(0), withServer(running), withClient(running, since(2500*time.Millisecond))),
			kind:    stepWatch, reason: v1alpha1.ReasonRunning, message: []string{"round 1 of 2"}, again: time.Second / 2,
		},
		"by a wrong clock measuring takes long": {
			changes: on(active(0), withServer(running), withClient(running, since(-time.Hour))),
			kind:    stepWatch, reason: v1alpha1.ReasonRunning, message: []string{"round 1 of 2"}, again: waitAgain,
		},
		"both may be done: their logs are followed": {
			changes: on(active(0), withServer(running), withClient(running, since(3*time.Second))),
			kind:    stepFollow, reason: v1alpha1.ReasonRunning, message: []string{"round 1 of 2"}, again: waitAgain,
		},
		"measuring goes on beyond the time to start": {
			changes: on(active(5*time.Minute), withServer(created(5*time.Minute), running), withClient(created(5*time.Minute), running)),
			kind:    stepFollow, reason: v1alpha1.ReasonRunning,
		},
	})
}

func TestDecideWhenPodsEnd(t *testing.T) {
	noted := func(server, client string) func(*world) {
		return func(w *world) {
			w.benchmark.Status.Active.ServerPodUID, w.benchmark.Status.Active.ClientPodUID = server, client
		}
	}
	const peer = `{"reason":"PeerUnreachable","message":"the server lost its client"}`
	const toolTimeout = `{"reason":"ToolTimeout","message":"sockperf, tcp-64: killed after 20s"}`
	checkDecisions(t, map[string]decision{
		"both well: the result is collected": {
			changes: on(active(0), withServer(succeeded(1)), withClient(succeeded(1))),
			kind:    stepCollect, reason: v1alpha1.ReasonRunning, none: true,
		},
		"both containers well, before the kubelet has written that the pods are done": {
			changes: on(active(0), withServer(succeeded(1), stillRunning), withClient(succeeded(1), stillRunning)),
			kind:    stepCollect, reason: v1alpha1.ReasonRunning, none: true,
		},
		"the logs of both have results, before their kubelets have seen the end": {
			changes: on(active(0), withServer(running), withClient(running), func(w *world) { w.found = true }),
			kind:    stepCollect, reason: v1alpha1.ReasonRunning, none: true,
		},
		"a client that failed has no result, whatever its log contains": {
			changes: on(active(0), withServer(running), withClient(failed(0, toolTimeout)), func(w *world) { w.found = true }),
			kind:    stepConclude, reason: v1alpha1.OutcomeToolTimeout,
		},
		"the client's container failed, before the kubelet has written that its pod did": {
			changes: on(active(0), withServer(succeeded(1), stillRunning), withClient(failed(1, peer), stillRunning)),
			kind:    stepWatch, reason: v1alpha1.ReasonRunning, message: []string{"both ends"}, again: lookAgain,
		},
		"the client first: the server is waited for": {
			changes: on(active(0), withServer(running), withClient(succeeded(time.Second))),
			kind:    stepWatch, reason: v1alpha1.ReasonRunning, message: []string{"both ends"}, again: lookAgain,
		},
		"the server first: the client is waited for": {
			changes: on(active(0), withServer(succeeded(time.Second)), withClient(running)),
			kind:    stepWatch, reason: v1alpha1.ReasonRunning, message: []string{"both ends"}, again: lookAgain,
		},
		"a server that does not follow its client": {
			changes: on(active(0), withServer(running), withClient(succeeded(0)), seenEnded(peerGrace+time.Second)),
			kind:    stepConclude, reason: v1alpha1.OutcomeAgentFailed, message: []string{"server has not"},
		},
		"a client that does not follow its server": {
			changes: on(active(0), withServer(succeeded(0)), withClient(running), seenEnded(peerGrace+time.Second)),
			kind:    stepConclude, reason: v1alpha1.OutcomeAgentFailed, message: []string{"client has not"},
		},
		"a client whose node's clock is an hour late has just ended": {
			changes: on(active(0), withServer(running), withClient(succeeded(time.Hour))),
			kind:    stepWatch, reason: v1alpha1.ReasonRunning, message: []string{"both ends"},
		},
		"a server whose node's clock is an hour late has just lost its client": {
			changes: on(active(0), withServer(failed(time.Hour, peer)), withClient(running)),
			kind:    stepWatch, reason: v1alpha1.ReasonRunning, message: []string{"both ends"},
		},
		"a server that ends before there is a client": {
			changes: on(active(0), withServer(succeeded(time.Second))),
			kind:    stepConclude, reason: v1alpha1.OutcomeAgentFailed, message: []string{"before there was a client"},
		},
		"a client that failed speaks for both": {
			changes: on(active(0), withServer(failed(time.Second, peer)), withClient(failed(time.Second, toolTimeout))),
			kind:    stepConclude, reason: v1alpha1.OutcomeToolTimeout, message: []string{"client on a", "killed after 20s"},
		},
		"a client that failed is not left waiting for its server": {
			changes: on(active(0), withServer(running), withClient(failed(time.Second, toolTimeout))),
			kind:    stepConclude, reason: v1alpha1.OutcomeToolTimeout,
		},
		"a server that knows why does not wait for its client": {
			changes: on(active(0), withServer(failed(time.Second, toolTimeout)), withClient(running)),
			kind:    stepConclude, reason: v1alpha1.OutcomeToolTimeout, message: []string{"server on b"},
		},
		"it knows more than a client that only lost it": {
			changes: on(active(0), withServer(refused("Evicted", "the node was low on memory")), withClient(failed(time.Second, peer))),
			kind:    stepConclude, reason: v1alpha1.OutcomeEvicted, message: []string{"server"},
		},
		"a server that only lost its client waits for that one's words": {
			changes: on(active(0), withServer(failed(time.Second, peer)), withClient(running)),
			kind:    stepWatch, reason: v1alpha1.ReasonRunning, message: []string{"both ends"}, again: lookAgain,
		},
		"not forever, of the server": {
			changes: on(active(0), withServer(failed(0, peer)), withClient(running), seenEnded(wordsGrace+time.Second)),
			kind:    stepConclude, reason: v1alpha1.OutcomePeerUnreachable, message: []string{"server on b"},
		},
		"a client that only lost its server waits for that one's words": {
			changes: on(active(0), withServer(running), withClient(failed(time.Second, peer))),
			kind:    stepWatch, reason: v1alpha1.ReasonRunning, message: []string{"both ends"}, again: lookAgain,
		},
		"not forever, of the client": {
			changes: on(active(0), withServer(running), withClient(failed(0, peer)), seenEnded(wordsGrace+time.Second)),
			kind:    stepConclude, reason: v1alpha1.OutcomePeerUnreachable, message: []string{"client on a"},
		},
		"two that lost each other": {
			changes: on(active(0), withServer(failed(time.Second, peer)), withClient(failed(time.Second, peer))),
			kind:    stepConclude, reason: v1alpha1.OutcomePeerUnreachable, message: []string{"client on a"},
		},
		"a server that failed though its client is content": {
			changes: on(active(0), withServer(failed(time.Second, peer)), withClient(succeeded(time.Second))),
			kind:    stepConclude, reason: v1alpha1.OutcomePeerUnreachable,
		},
		"a server that failed alone": {
			changes: on(active(0), withServer(failed(0, `{"reason":"ToolMissing","message":"the bench image has no sockperf"}`))),
			kind:    stepConclude, reason: v1alpha1.OutcomeToolMissing, message: []string{"no sockperf"},
		},
		"a server that the kubelet refused": {
			changes: on(active(0), withServer(refused("TopologyAffinityError", "Resources cannot be allocated with Topology locality"))),
			kind:    stepConclude, reason: v1alpha1.OutcomeTopologyAffinity, message: []string{"b", "NUMA"},
		},
		"a server that the kubelet refused for a device that its node may have lost": {
			changes: on(overVF, active(0), withServer(refused("TopologyAffinityError", "Resources cannot be allocated with Topology locality")), seenEnded(affinityGrace-time.Second)),
			kind:    stepWatch, reason: v1alpha1.OutcomeTopologyAffinity, message: []string{"NUMA", "waiting for the node"}, again: lookAgain,
		},
		"a server that the kubelet refused for a device that its node has lost": {
			changes: on(overVF, active(0), withServer(refused("TopologyAffinityError", "Resources cannot be allocated with Topology locality")), func(w *world) { w.unplugged = "node b has no allocatable amd.com/sf_vf" }),
			kind:    stepConclude, reason: noPlugin, message: []string{"NUMA", "node b has no allocatable amd.com/sf_vf", "does not count"},
		},
		"a server that the kubelet refused for a device that its node has": {
			changes: on(overVF, active(0), withServer(refused("TopologyAffinityError", "Resources cannot be allocated with Topology locality")), seenEnded(affinityGrace)),
			kind:    stepConclude, reason: v1alpha1.OutcomeTopologyAffinity, message: []string{"b", "NUMA"},
		},
		"a server that a user deleted": {
			changes: on(active(0), noted("uid-server", "")),
			kind:    stepConclude, reason: v1alpha1.OutcomePodLost, message: []string{"server"},
		},
		"a server that a user deleted and created again": {
			changes: on(active(0), withServer(running), noted("uid-before", "")),
			kind:    stepConclude, reason: v1alpha1.OutcomePodLost, message: []string{"server"},
		},
		"a client that a user deleted": {
			changes: on(active(0), withServer(running), noted("uid-server", "uid-client")),
			kind:    stepConclude, reason: v1alpha1.OutcomePodLost, message: []string{"client"},
		},
		"a client that a user deleted and created again": {
			changes: on(active(0), withServer(running), withClient(running), noted("uid-server", "uid-before")),
			kind:    stepConclude, reason: v1alpha1.OutcomePodLost, message: []string{"client"},
		},
		"a server deleted under a client that was not noted": {
			changes: on(active(0), withClient(running), noted("", "")),
			kind:    stepConclude, reason: v1alpha1.OutcomePodLost, message: []string{"server"},
		},
		"a result whose digests are in the status is stored": {
			changes: on(active(0), withServer(succeeded(1)), withClient(succeeded(1)), collectedAs(keptAbsent)),
			kind:    stepStore, reason: v1alpha1.ReasonRunning, none: true,
		},
		"so it is under another name, where the first is taken": {
			changes: on(active(0), withServer(succeeded(1)), withClient(succeeded(1)), collectedAs(keptOther)),
			kind:    stepStore, reason: v1alpha1.ReasonRunning,
		},
		"a ConfigMap with these digests is taken, whatever became of the pods": {
			changes: on(active(0), noted("uid-server", "uid-client"), collectedAs(keptWhole)),
			kind:    stepStore, reason: v1alpha1.ReasonRunning,
		},
		"a ConfigMap without these digests does not replace the pods": {
			changes: on(active(0), noted("uid-server", "uid-client"), collectedAs(keptOther)),
			kind:    stepConclude, reason: v1alpha1.OutcomePodLost, message: []string{"server's pod was deleted before its result was stored"},
		},
		"no ConfigMap counts before the status has its digests": {
			changes: on(active(0), withServer(running), func(w *world) { w.kept = keptWhole }),
			kind:    stepCreateClient, reason: v1alpha1.ReasonStarting,
		},
		"a node that is unready for a moment": {
			changes: on(active(2*time.Minute), withServer(running), notReadyNode("b", 59*time.Second)),
			kind:    stepCreateClient, reason: v1alpha1.ReasonStarting,
		},
		"a node that is lost": {
			changes: on(active(2*time.Minute), withServer(running), withClient(running), notReadyNode("a", 61*time.Second)),
			kind:    stepConclude, reason: v1alpha1.OutcomeNodeLost, message: []string{"node a"},
		},
		"a node that has rebooted, and starts the container again": {
			changes: on(active(time.Minute), withServer(running), withClient(waiting("ContainerCreating", ""), restarted)),
			kind:    stepConclude, reason: v1alpha1.OutcomeNodeLost, message: []string{"node a lost the container of the client"},
		},
		"a container that a user restarted with another image, and whose log has a result": {
			changes: on(active(time.Minute), withServer(succeeded(0)), withClient(succeeded(0), restarted), func(w *world) { w.found = true }),
			kind:    stepConclude, reason: v1alpha1.OutcomeNodeLost, message: []string{"lost the container of the client", "did a user change the pod's image?"},
		},
		"a container that was counted as restarted, before its log was read": {
			changes: on(active(time.Minute), withServer(running, func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 1 }), withClient(running), func(w *world) { w.found = true }),
			kind:    stepConclude, reason: v1alpha1.OutcomeNodeLost, message: []string{"lost the container of the server"},
		},
		"a node that has rebooted, and has the container without its sandbox": {
			changes: on(active(time.Minute), withServer(running), withClient(waiting("", ""), withContainer(corev1.ConditionFalse))),
			kind:    stepConclude, reason: v1alpha1.OutcomeNodeLost, message: []string{"node a lost the container of the client"},
		},
		"a container that is about to start": {
			changes: on(active(time.Minute), withServer(running), withClient(waiting("", ""), withContainer(corev1.ConditionTrue))),
			kind:    stepWatch, reason: v1alpha1.ReasonStarting, again: lookAgain,
		},
		"a run that holds the nodes for longer than the operator allows": {
			changes: on(heldBefore(58*time.Minute), active(121*time.Second), withServer(running), withClient(running)),
			kind:    stepConclude, reason: v1alpha1.OutcomeOccupationExceeded, message: []string{"0 of 2 runs", "1h0m1s"},
		},
		"a run that takes longer than it possibly should": {
			// One cell: a minute, 15 s to prepare it, two times 2 min to start, 30 s of patience.
			changes: on(active(5*time.Minute+46*time.Second), withServer(running), withClient(running)),
			kind:    stepConclude, reason: v1alpha1.OutcomeDeadlineExceeded, message: []string{"round 1 of 2", "5m45s"},
		},
		"and one that just does not": {
			changes: on(active(5*time.Minute+44*time.Second), withServer(running), withClient(running)),
			kind:    stepFollow, reason: v1alpha1.ReasonRunning,
		},
		"a known outcome: the pods are removed": {
			changes: on(active(0), withServer(running), withClient(running), withOutcome(v1alpha1.OutcomePodLost)),
			kind:    stepRemove, reason: v1alpha1.ReasonEnding, message: []string{"x-r1"}, again: lookAgain,
		},
		"one pod is left": {
			changes: on(active(0), withServer(succeeded(0)), withOutcome(v1alpha1.OutcomeMeasured)),
			kind:    stepRemove, reason: v1alpha1.ReasonEnding,
		},
		"the client's pod is left alone": {
			changes: on(active(0), withClient(running), withOutcome(v1alpha1.OutcomeMeasured)),
			kind:    stepRemove, reason: v1alpha1.ReasonEnding,
		},
		"one that is being deleted and has not ended": {
			changes: on(active(0), withServer(succeeded(0), stillRunning, deleted), withOutcome(v1alpha1.OutcomeMeasured)),
			kind:    stepRemove, reason: v1alpha1.ReasonEnding,
		},
		"those that have ended and are being deleted hold nothing": {
			changes: on(active(0), withServer(succeeded(0), deleted), withClient(succeeded(0), deleted), withOutcome(v1alpha1.OutcomeMeasured)),
			kind:    stepRelease,
		},
		"a pod that cannot go is named, with its node": {
			changes: on(active(0), withServer(running), withOutcome(v1alpha1.OutcomeNodeLost), notReadyNode("b", time.Hour)),
			kind:    stepRemove, reason: v1alpha1.ReasonEnding, message: []string{"x-r1-a1-server", "node b", "delete its Node"},
		},
		"in the end the nodes are given back without it": {
			changes: on(active(time.Hour), withServer(running), withOutcome(v1alpha1.OutcomeNodeLost), outcomeKnown(removeTimeout+time.Second), notReadyNode("b", time.Hour)),
			kind:    stepRelease,
		},
		"a pod that is not ours stays": {
			changes: on(active(0), withServer(stranger), withOutcome(v1alpha1.OutcomeNameTaken)),
			kind:    stepRelease,
		},
		"no pod is left: the nodes are given back": {
			changes: on(active(0), withOutcome(v1alpha1.OutcomeMeasured)),
			kind:    stepRelease,
		},
	})
}

// TestCurable lists for the outcomes of an attempt whether another attempt may succeed.
func TestCurable(t *testing.T) {
	cases := map[string]bool{
		v1alpha1.OutcomeUnschedulable: true, v1alpha1.OutcomeTopologyAffinity: true, v1alpha1.OutcomeAdmissionRejected: true,
		v1alpha1.OutcomeNetworkFailed: true, v1alpha1.OutcomeStartTimeout: true, v1alpha1.OutcomeToolFailed: true,
		v1alpha1.OutcomeClockWrong: true, v1alpha1.OutcomeSamplesMissing: true,
		v1alpha1.OutcomeToolTimeout: true, v1alpha1.OutcomePeerUnreachable: true, v1alpha1.OutcomeAgentFailed: true,
		v1alpha1.OutcomeEvicted: true, v1alpha1.OutcomeNodeLost: true, v1alpha1.OutcomePodLost: true,
		v1alpha1.OutcomeDeadlineExceeded: true, v1alpha1.OutcomeResultMissing: true, v1alpha1.OutcomeResultCorrupt: true,
		v1alpha1.OutcomeInterfaceLost: true, v1alpha1.OutcomeWrongPeer: true,
		v1alpha1.OutcomeStoreRefused: true,
		v1alpha1.OutcomePodRefused:   true, v1alpha1.OutcomeNetworkRefused: true, v1alpha1.OutcomeOccupationExceeded: false,

		v1alpha1.OutcomeImagePullFailed: false, v1alpha1.OutcomeContainerConfig: false, v1alpha1.OutcomeToolMissing: false,
		v1alpha1.OutcomeWrongNetwork: false, v1alpha1.OutcomeOOMKilled: false, v1alpha1.OutcomeResultTooLarge: false,
		v1alpha1.OutcomeNameTaken: true, v1alpha1.OutcomeAccelerationFailed: false,
		v1alpha1.OutcomeVersionMismatch: true, // the attempt began before an upgrade, and the next one uses the present bench image
	}
	for outcome, want := range cases {
		if got := curable(outcome); got != want {
			t.Errorf("%s: got %t, want %t", outcome, got, want)
		}
	}
}

// The wait for a device plugin begins with the first step that reports it, and ends when the run is measured or something else
// prevents it.
func TestWaitForADevicePluginIsRecorded(t *testing.T) {
	w := makeWorld()
	now, since := w.now, &w.benchmark.Status.DeviceWaitStartTime
	for i, c := range []struct {
		kind   stepKind
		reason string
		waits  bool
	}{
		{stepClaim, v1alpha1.ReasonStarting, false},
		{stepConclude, noPlugin, true},
		{stepReject, noPlugin, true},
		{stepClaim, v1alpha1.ReasonStarting, true},
		{stepCollect, v1alpha1.ReasonRunning, false},
		{stepReject, noPlugin, true},
		{stepReject, v1alpha1.ReasonNodeNotReady, false},
		{stepConclude, noPlugin, true},
		{stepHold, v1alpha1.ReasonBenchmarkSuspended, false},
	} {
		w.now = now.Add(time.Duration(i) * time.Minute)
		before := *since
		w.recordMissingPlugin(step{kind: c.kind, reason: c.reason})
		if (*since != nil) != c.waits {
			t.Errorf("after step %d (%s, %s) it waits: %t", i, c.kind, c.reason, *since != nil)
		}
		if before != nil && *since != nil && !before.Equal(*since) {
			t.Errorf("step %d (%s) changed since when it waits", i, c.kind)
		}
	}
}
