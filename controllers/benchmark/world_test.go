package benchmark

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/queue"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// The worlds of the tests derive from a fixed one at noon: benchmark perf/x, of two rounds of one
// cell, is accepted for the nodes a (client) and b (server), and nothing has started.

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// ago returns a time before noon.
func ago(d time.Duration) time.Time { return noon.Add(-d) }

// fakeDriver measures everything, in at most a minute a cell.
type fakeDriver struct{ tool.Driver }

func (fakeDriver) Name() v1alpha1.Tool              { return v1alpha1.ToolSockperf }
func (fakeDriver) Validate(tool.Cell) error         { return nil }
func (fakeDriver) Memory(tool.Cell) int64           { return 0 }
func (fakeDriver) CPUs(tool.Cell) int               { return 1 }
func (fakeDriver) Limits() tool.Base                { return tool.Base{} }
func (fakeDriver) Deadline(tool.Cell) time.Duration { return time.Minute }

func makeWorld(changes ...func(*world)) *world {
	b := &v1alpha1.LatencyBenchmark{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "perf", UID: "uid-x", CreationTimestamp: metav1.NewTime(ago(time.Hour))},
		Spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
			Tool: v1alpha1.ToolSockperf, Rounds: 2,
			Workload: v1alpha1.Workload{
				Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, MessageSizes: []int32{64},
				Duration: metav1.Duration{Duration: 3 * time.Second},
			},
			Placement: v1alpha1.Placement{CPUs: 1, Memory: resource.MustParse("512Mi")},
			Network:   v1alpha1.Network{Type: v1alpha1.NetworkPod},
		}},
		Status: v1alpha1.LatencyBenchmarkStatus{Pair: &v1alpha1.Pair{ClientNode: "a", ServerNode: "b"}},
	}
	w := &world{
		now: noon, settings: Settings{StartTimeout: 2 * time.Minute, MaxAttempts: 3},
		benchmark: b, driver: fakeDriver{}, attempt: attempt{events: map[types.UID][]corev1.Event{}},
	}
	w.accepted = preflight.Observed{Benchmark: b, Driver: w.driver, Nodes: []corev1.Node{readyNode("a"), readyNode("b")}}
	for _, change := range changes {
		change(w)
	}
	w.runs, w.turn = plan.Runs(w.benchmark), w.looksCloser()
	return w
}

// testScheme returns a scheme with the kinds that the controller reads.
func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), clientgoscheme.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}

func readyNode(name string) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")},
		},
	}
}

func notAccepted(w *world) { w.benchmark.Status.Pair = nil }

func suspended(w *world) { w.benchmark.Spec.Suspend = true }

func withNodes(nodes ...corev1.Node) func(*world) {
	return func(w *world) { w.accepted.Nodes = nodes }
}

// withOther adds another benchmark on the same nodes, created age before noon.
func withOther(age time.Duration, active bool) func(*world) {
	return func(w *world) {
		w.others = append(w.others, queue.Entry{
			Name: "perf/other", UID: "uid-other", Created: ago(age), Pair: *w.benchmark.Status.Pair, Active: active,
		})
	}
}

func withForeign(name string) func(*world) {
	return func(w *world) { w.blocking = append(w.blocking, blockingPod{name: name}) }
}

// withUnseen adds an older benchmark that no worker has looked at; accepted is how long before noon the benchmark was accepted.
func withUnseen(accepted time.Duration) func(*world) {
	return func(w *world) {
		w.unseen = "perf/older"
		c := v1alpha1.Condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "")
		c.LastTransitionTime = metav1.NewTime(ago(accepted))
		w.benchmark.SetCondition(c)
	}
}

// stuck makes the last foreign pod one that should have ended long ago.
func stuck(w *world) { w.blocking[len(w.blocking)-1].stuck = true }

// seenEnded sets how long before noon it was first seen that a pod had ended.
func seenEnded(d time.Duration) func(*world) {
	return func(w *world) { w.benchmark.Status.Active.EndTime = new(metav1.NewMicroTime(ago(d))) }
}

// notReadyNode makes a node not ready, first seen d before noon.
func notReadyNode(node string, d time.Duration) func(*world) {
	return func(w *world) {
		w.notReady = []string{node}
		w.benchmark.Status.Active.NotReadyTime = new(metav1.NewMicroTime(ago(d)))
	}
}

// withRefusal adds a refusal of the API server, first seen since before noon, with the next attempt retry after noon.
func withRefusal(since, retry time.Duration) func(*world) {
	return func(w *world) {
		w.benchmark.Status.Active.Refused = &v1alpha1.Refusal{
			Reason: v1alpha1.OutcomePodRefused, Message: "a webhook does not answer",
			StartTime: metav1.NewMicroTime(ago(since)), RetryTime: metav1.NewMicroTime(noon.Add(retry)),
		}
	}
}

// heldBefore sets how long finished attempts held the nodes, with a limit of an hour.
func heldBefore(d time.Duration) func(*world) {
	return func(w *world) {
		w.settings.MaxOccupation = time.Hour
		w.benchmark.Status.OccupiedSeconds = int64(d.Seconds())
	}
}

// withAttempt adds a finished attempt.
func withAttempt(run string, attempt int32, outcome string, ended time.Duration) func(*world) {
	return func(w *world) {
		w.benchmark.Status.Attempts = append(w.benchmark.Status.Attempts, v1alpha1.Attempt{
			Run: run, Attempt: attempt,
			Outcome: v1alpha1.Outcome{Reason: outcome, Message: "it went wrong", CompletionTime: metav1.NewMicroTime(ago(ended))},
		})
	}
}

// undecided gives the world criteria that request more rounds, and a verdict that needs them.
func undecided(w *world) {
	w.benchmark.Spec.Criteria, w.benchmark.Spec.MaxRounds = &v1alpha1.Criteria{}, 6
	w.undecided = "p99 is Inconclusive"
}

func withStored(run string) func(*world) {
	return func(w *world) {
		w.benchmark.Status.Stored = append(w.benchmark.Status.Stored, v1alpha1.StoredResult{ConfigMap: run, Run: run})
	}
}

// active makes attempt 1 of x-r1 the active attempt, claimed that long before noon.
func active(claimed time.Duration) func(*world) {
	return func(w *world) {
		w.benchmark.Status.Active = &v1alpha1.ActiveAttempt{
			Run: "x-r1", Round: 1, Attempt: 1, Pair: *w.benchmark.Status.Pair, StartTime: metav1.NewMicroTime(ago(claimed)),
		}
	}
}

func withOutcome(reason string) func(*world) {
	return func(w *world) {
		w.benchmark.Status.Active.Outcome = &v1alpha1.Outcome{Reason: reason, CompletionTime: metav1.NewMicroTime(ago(time.Second))}
	}
}

// outcomeKnown sets how long before noon the outcome was known.
func outcomeKnown(d time.Duration) func(*world) {
	return func(w *world) { w.benchmark.Status.Active.Outcome.CompletionTime = metav1.NewMicroTime(ago(d)) }
}

// collectedAs adds the digests of a verified result, and the state of its ConfigMap.
func collectedAs(k kept) func(*world) {
	return func(w *world) {
		w.benchmark.Status.Active.Collected = &v1alpha1.StoredResult{ConfigMap: "x-r1-abcde", Run: "x-r1", SHA256: "c", ServerSHA256: "s", PodsSHA256: "p"}
		w.benchmark.Status.Active.CollectionTime = new(metav1.NewMicroTime(ago(time.Second)))
		w.kept = k
	}
}

// withServer adds the server's pod, created 10 s before noon and recorded in the status.
func withServer(changes ...func(*corev1.Pod)) func(*world) {
	return func(w *world) {
		w.server = makePod(w.benchmark, v1alpha1.RoleServer, changes...)
		w.benchmark.Status.Active.ServerPodUID = "uid-server"
	}
}

// withClient adds the client's pod in the same way.
func withClient(changes ...func(*corev1.Pod)) func(*world) {
	return func(w *world) {
		w.client = makePod(w.benchmark, v1alpha1.RoleClient, changes...)
		w.benchmark.Status.Active.ClientPodUID = "uid-client"
	}
}

func makePod(b *v1alpha1.LatencyBenchmark, role string, changes ...func(*corev1.Pod)) *corev1.Pod {
	node := "a"
	if role == v1alpha1.RoleServer {
		node = "b"
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pods.Name("x-r1", 1, role), Namespace: b.Namespace, UID: types.UID("uid-" + role),
			Labels:            map[string]string{v1alpha1.LabelRole: role},
			OwnerReferences:   []metav1.OwnerReference{pods.Owner(b)},
			CreationTimestamp: metav1.NewTime(ago(10 * time.Second)),
		},
		Spec:   corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

// The states of a pod.

func created(age time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(ago(age)) }
}

func stranger(p *corev1.Pod) { p.UID, p.OwnerReferences[0].UID = "uid-stranger", "uid-other" }

// orphaned makes the pod one whose owner another client removed.
func orphaned(p *corev1.Pod) { p.OwnerReferences = nil }

func container(p *corev1.Pod, state corev1.ContainerState) {
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: pods.Container, Image: "bench:v0", State: state}}
}

func waiting(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		container(p, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
	}
}

// running makes the pod's container run, and gives the pod an address.
func running(p *corev1.Pod) {
	p.Status.Phase, p.Status.PodIP = corev1.PodRunning, "10.244.1.17"
	container(p, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
}

// restarted makes the pod's container one that ran before its node lost it.
func restarted(p *corev1.Pod) {
	p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "ContainerStatusUnknown", ExitCode: 137}
}

// withContainer gives the pod's container an ID, and the pod a sandbox or not.
func withContainer(sandbox corev1.ConditionStatus) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].ContainerID = "containerd://1"
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: sandbox})
	}
}

// since sets how long the pod's container has been running.
func since(d time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.ContainerStatuses[0].State.Running.StartedAt = metav1.NewTime(ago(d)) }
}

func succeeded(when time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodSucceeded
		container(p, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(ago(when))}})
	}
}

// stillRunning sets the phase that the pod keeps for a second after its container has ended.
func stillRunning(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }

func deleted(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(noon)) }

// failed makes the pod one whose agent left a termination message.
func failed(when time.Duration, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodFailed
		container(p, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 1, Reason: "Error", Message: message, FinishedAt: metav1.NewTime(ago(when)),
		}})
	}
}

// refused makes the pod one that the kubelet did not start, or removed.
func refused(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: reason, Message: message}
	}
}

func annotated(networkStatus string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{foreign.AnnotationNetworkStatus: networkStatus} }
}

func unscheduled(message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: message}}
	}
}
