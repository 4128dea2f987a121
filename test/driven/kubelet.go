package driven

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// samplesPerRun is the number of samples in each cell of a run.
const samplesPerRun = 2000

// runTime is how long a run takes.
const runTime = time.Second

// listenLine is the first line that servers' agents write.
var listenLine = result.ListenLine(netip.MustParseAddr("10.244.0.2"))

// Kubelet is the stand-in for the scheduler, kubelets and agents: pods follow the spec or, after Auto, behave like agents. It keeps
// their logs, and records every pod of its namespace that was ever created.
type Kubelet struct {
	cluster   *Cluster
	namespace string
	api       client.Client

	mu      sync.Mutex // Readers of logs have goroutines of their own.
	logs    map[types.NamespacedName]string
	history []PodEvent
	agents  func(*result.Document)
	all     bool
	auto    map[string]bool
	paused  map[string]bool
	dead    string // the node whose pods do nothing
	deaf    bool   // processes ignore SIGTERM
	// threads: the nodes have eight CPUs on four cores. wholeCores: their CPU managers allocate only whole cores.
	threads, wholeCores bool
	// late is the delay of the nodes' clocks.
	late time.Duration
}

// PodEvent is the creation or the deletion of a pod.
type PodEvent struct {
	Pod, Benchmark string
	Gone           bool
}

func newKubelet(c *Cluster, namespace string) *Kubelet {
	k := &Kubelet{
		cluster: c, namespace: namespace, api: c.Store.Client("kubelet"), logs: map[types.NamespacedName]string{},
		auto: map[string]bool{}, paused: map[string]bool{},
	}
	c.Store.watch(func(ch change) {
		o := ch.after
		if o == nil {
			o = ch.before
		}
		if ch.kind.Kind == "Pod" && o.GetNamespace() == namespace && (ch.before == nil || ch.after == nil) {
			k.history = append(k.history, PodEvent{o.GetName(), o.GetLabels()[v1alpha1.LabelBenchmark], ch.after == nil})
		}
	})
	return k
}

// History returns the events of pods, in order.
func (k *Kubelet) History() []PodEvent { return slices.Clone(k.history) }

// Created returns the names of all pods that were ever created, with repetitions.
func (k *Kubelet) Created() []string {
	var names []string
	for _, e := range k.history {
		if !e.Gone {
			names = append(names, e.Pod)
		}
	}
	return names
}

// Agents changes the results that agents report from now on.
func (k *Kubelet) Agents(change func(*result.Document)) { k.agents = change }

// Threads gives the nodes two threads per core, and sets the option full-pcpus-only of their CPU managers.
func (k *Kubelet) Threads(fullPCPUsOnly bool) { k.threads, k.wholeCores = true, fullPCPUsOnly }

// Late delays the clocks of the nodes.
func (k *Kubelet) Late(by time.Duration) { k.late = by }

// Deaf makes the processes in pods ignore SIGTERM: they end when their grace periods are over.
func (k *Kubelet) Deaf() { k.deaf = true }

// Die stops everything on a node.
func (k *Kubelet) Die(node string) { k.dead = node }

// Auto starts the pods of some benchmarks, or of all if none are given, lets them measure and succeed, and removes them. Both pods
// of an attempt end together, a second after both run.
func (k *Kubelet) Auto(benchmarks ...string) {
	k.all = k.all || len(benchmarks) == 0
	for _, name := range benchmarks {
		k.auto[name] = true
	}
}

// Logs is a LogReader of the agents' logs. A log that has no result yet cannot be followed: the agents have ended before a manager
// would have found the result.
func (k *Kubelet) Logs(_ context.Context, pod types.NamespacedName, follow bool) (io.ReadCloser, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	log, ok := k.logs[pod]
	if !ok || follow {
		return nil, fmt.Errorf("no log of %s", pod)
	}
	return io.NopCloser(strings.NewReader(log)), nil
}

// SetLog replaces the log of a pod.
func (k *Kubelet) SetLog(pod *corev1.Pod, log string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.logs[client.ObjectKeyFromObject(pod)] = log
}

// act does the next thing that kubelets and agents do on their own.
func (k *Kubelet) act(now time.Time) (acted bool, next time.Time) {
	list := &corev1.PodList{}
	if err := k.cluster.Store.List(context.Background(), list); err != nil {
		panic(err)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if k.dead != "" && pods.Node(pod) == k.dead || !k.all && !k.auto[pod.Labels[v1alpha1.LabelBenchmark]] || pod.Namespace != k.namespace {
			continue
		}
		done, again, err := k.turn(pod, list.Items, now)
		if err != nil {
			k.cluster.note("kubelet: %s: %v", pod.Name, err)
		}
		if done {
			k.cluster.note("kubelet: %s", pod.Name)
			return true, next
		}
		if !again.IsZero() && (next.IsZero() || again.Before(next)) {
			next = again
		}
	}
	return false, next
}

func (k *Kubelet) turn(pod *corev1.Pod, all []corev1.Pod, now time.Time) (done bool, again time.Time, err error) {
	switch {
	case k.deaf && !pod.DeletionTimestamp.IsZero() && now.Before(pod.DeletionTimestamp.Time):
		return false, pod.DeletionTimestamp.Time, nil
	case !pod.DeletionTimestamp.IsZero():
		return true, again, k.remove(pod)
	case pod.Status.Phase == corev1.PodPending && pods.Node(pod) != "":
		if k.wholeCores && pod.Spec.Containers[0].Resources.Requests.Cpu().Value()%2 != 0 && pod.Labels[v1alpha1.LabelRun] != "" {
			pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "SMTAlignmentError"
			pod.Status.Message = "SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2"
			return true, again, k.api.Status().Update(context.Background(), pod)
		}
		if len(pod.Spec.Containers) == 0 || pod.Labels[v1alpha1.LabelManagedBy] == "" {
			return false, again, nil
		}
		if err := cmp.Or(k.bind(pod), k.attachAll(pod)); err != nil {
			return false, again, err
		}
		k.SetLog(pod, listenLine+"\n")
		return true, again, k.run(pod)
	case pod.Status.Phase == corev1.PodRunning && pod.Labels[v1alpha1.LabelRun] != "":
		if k.paused[pod.Labels[v1alpha1.LabelRun]] {
			return false, again, nil
		}
		ends, ok := k.endOf(pod, all)
		if !ok {
			return false, again, nil
		}
		if now.Before(ends) && !now.Before(ends.Add(-runTime)) { // Otherwise the clock was set back.
			return false, ends, nil
		}
		return true, again, k.succeed(pod)
	}
	return false, again, nil
}

// endOf returns when an agent has its result: a second after both pods of its attempt run.
func (k *Kubelet) endOf(pod *corev1.Pod, all []corev1.Pod) (time.Time, bool) {
	runsSince := func(p *corev1.Pod) time.Time {
		if all := p.Status.ContainerStatuses; p.Status.Phase == corev1.PodRunning && len(all) > 0 && all[0].State.Running != nil {
			return all[0].State.Running.StartedAt.Time
		}
		return time.Time{}
	}
	own := runsSince(pod)
	if own.IsZero() {
		return own, false
	}
	for i := range all {
		peer := &all[i]
		if peer.UID == pod.UID || peer.Labels[v1alpha1.LabelRun] != pod.Labels[v1alpha1.LabelRun] || peer.Labels[v1alpha1.LabelAttempt] != pod.Labels[v1alpha1.LabelAttempt] {
			continue
		}
		if peer.Status.Phase == corev1.PodSucceeded {
			return time.Time{}, true
		}
		if since := runsSince(peer); !since.IsZero() {
			if own.After(since) {
				since = own
			}
			return since.Add(runTime), true
		}
	}
	return time.Time{}, false
}

func (k *Kubelet) bind(pod *corev1.Pod) error {
	ctx := context.Background()
	if pod.Spec.NodeName != "" {
		return nil
	}
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: pods.Node(pod)}}
	if err := k.api.SubResource("binding").Create(ctx, pod, binding); err != nil {
		return err
	}
	return k.api.Get(ctx, client.ObjectKeyFromObject(pod), pod)
}

func (k *Kubelet) attach(pod *corev1.Pod, network, address string) error {
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, foreign.AnnotationNetworkStatus, fmt.Sprintf(
		`[{"name":"cbr0","interface":"eth0","ips":["10.244.0.99"],"default":true},{"name":%q,"interface":"net1","ips":[%q]}]`, network, address))
	return k.api.Update(context.Background(), pod)
}

// attachAll attaches the networks of a pod, as Multus does.
func (k *Kubelet) attachAll(pod *corev1.Pod) error {
	asked := pod.Annotations[foreign.AnnotationNetworks]
	if asked == "" || pod.Annotations[foreign.AnnotationNetworkStatus] != "" {
		return nil
	}
	var networks []foreign.Selection
	if err := json.Unmarshal([]byte(asked), &networks); err != nil {
		return err
	}
	return k.attach(pod, networks[0].Namespace+"/"+networks[0].Name, "192.168.100.12")
}

func (k *Kubelet) run(pod *corev1.Pod) error {
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "10.244.0.2"
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.244.0.2"}}
	setContainer(pod, true, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: k.cluster.Clock.Now()}}})
	return k.api.Status().Update(context.Background(), pod)
}

func (k *Kubelet) succeed(pod *corev1.Pod) error {
	if err := k.HandOver(pod); err != nil {
		return err
	}
	return k.end(pod, corev1.PodSucceeded, result.Termination{})
}

// HandOver writes the result of a pod to its log.
func (k *Kubelet) HandOver(pod *corev1.Pod) error {
	var log bytes.Buffer
	fmt.Fprintln(&log, listenLine)
	document, err := k.documentOf(pod)
	if err != nil {
		return err
	}
	// The pod runs on the kernel that the kubelet reports, if it reports one.
	node := corev1.Node{}
	if err := k.api.Get(context.Background(), types.NamespacedName{Name: pod.Spec.NodeName}, &node); err == nil && node.Status.NodeInfo.BootID != "" {
		document.Evidence.BootID = node.Status.NodeInfo.BootID
	}
	if k.threads {
		onThreads(pod, &document)
	}
	if k.agents != nil {
		k.agents(&document)
	}
	if err := result.WriteFrame(&log, document); err != nil {
		return err
	}
	k.SetLog(pod, log.String())
	return nil
}

func (k *Kubelet) end(pod *corev1.Pod, phase corev1.PodPhase, t result.Termination) error {
	message, err := json.Marshal(t)
	if err != nil {
		return err
	}
	terminated := &corev1.ContainerStateTerminated{Reason: "Completed", Message: string(message), FinishedAt: metav1.NewTime(k.cluster.Clock.Now().Add(-k.late))}
	if phase == corev1.PodFailed {
		terminated.Reason, terminated.ExitCode = "Error", 1
	}
	pod.Status.Phase = phase
	setContainer(pod, false, corev1.ContainerState{Terminated: terminated})
	return k.api.Status().Update(context.Background(), pod)
}

// remove removes a pod that is being deleted, unless it has no grace period, as when it has ended: then the API server removes it.
func (k *Kubelet) remove(pod *corev1.Pod) error {
	err := k.api.Delete(context.Background(), pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func setContainer(pod *corev1.Pod, started bool, state corev1.ContainerState) {
	// Only hold pods have a probe. The agent's own tests cover the comparison that the probe makes.
	probe := pod.Spec.Containers[0].ReadinessProbe
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, Started: &started, State: state,
		Ready: started && (probe == nil || probe.Exec.Command[1] == "verified"),
	}}
}

// onThreads sets the agent's observations of the CPUs of its pod, which are allocated core by core. The first core is reserved.
func onThreads(pod *corev1.Pod, d *result.Document) {
	var cpus []string
	requested := int(pod.Spec.Containers[0].Resources.Requests.Cpu().Value())
	for i := range requested {
		cpus = append(cpus, fmt.Sprint(1+i/2+4*(i%2)))
	}
	e := &d.Evidence
	e.CPUsAllowed, e.ThreadSiblings = strings.Join(cpus, ","), "1,5"
	e.Facts["cgroup.cpus-set"] = e.CPUsAllowed
	e.Facts["cpu.smt.active"], e.Facts["cpu.smt.sibling"] = "1", "own"
	if requested == 1 {
		e.Facts["cpu.smt.sibling"] = "others"
	}
}

// taskOf returns the task in a pod's environment.
func taskOf(pod *corev1.Pod) (plan.Task, error) {
	for _, v := range pod.Spec.Containers[0].Env {
		if v.Name == plan.EnvTask {
			return plan.DecodeTask(v.Value)
		}
	}
	return plan.Task{}, fmt.Errorf("pod %s has no task", pod.Name)
}

// documentOf returns the result of a pod's agent.
func (k *Kubelet) documentOf(pod *corev1.Pod) (result.Document, error) {
	task, err := taskOf(pod)
	if err != nil {
		return result.Document{}, err
	}
	d := result.Document{
		Version: result.Version, Run: task.Run, Variant: task.Variant, Attempt: task.Attempt, Role: task.Role,
		Evidence: result.Evidence{
			Node: pod.Spec.NodeName, Kernel: "6.1.0-37-amd64", BootID: "boot-" + pod.Spec.NodeName, CPUsAllowed: "1", OnlineCPUs: "0-7",
			MeasuringCPU: 1, DeviceNUMANode: -1, Interface: "eth0", Address: "10.244.0.2", MTU: 1500,
			Facts:  map[string]string{"cpu.smt.sibling": "none", "cgroup.cpus-set": "1", "cgroup.cpu-max": "max 100000", "nic.carrier": "1"},
			Deltas: map[string]int64{"cgroup.stopped-us": 0, "nic.carrier-changes": 0},
		},
	}
	started := k.cluster.Clock.Now().Add(-runTime)
	for _, cell := range task.Cells {
		histogram, err := histogramFrom(10_000)
		if err != nil {
			return result.Document{}, err
		}
		d.Cells = append(d.Cells, result.Cell{
			Cell: cell, Tool: string(task.Tool), ToolVersion: "sockperf, version 3.10", Command: []string{"sockperf"},
			StartedAt: started, FinishedAt: started.Add(runTime), Histogram: histogram,
		})
	}
	d.Evidence.Paths = resulttest.ThroughKernel(d.Cells)
	if task.Acceleration == v1alpha1.AccelerationOnload {
		d.Evidence.Paths = resulttest.PastKernel(d.Cells)
	}
	if task.Role == v1alpha1.RoleServer {
		d.Cells = nil
	}
	return d, nil
}

// histogramFrom returns a histogram with samplesPerRun samples, one in each nanosecond from first on.
func histogramFrom(first int64) (result.Histogram, error) {
	recorder := result.NewRecorder()
	for i := range samplesPerRun {
		recorder.Record(first + int64(i))
	}
	return recorder.Histogram()
}
