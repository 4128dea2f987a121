package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
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

// listenLine is the first line that servers' agents write.
var listenLine = result.ListenLine(netip.MustParseAddr("10.244.0.2"))

// Kubelet simulates the scheduler, kubelets and agents of a namespace: pods follow the spec or, while Auto runs,
// behave like agents. It keeps their logs, and records every pod that was ever created.
type Kubelet struct {
	namespace string
	// now returns the time of the nodes, which is the time of the managers.
	now func() time.Time

	mu      sync.Mutex
	logs    map[types.NamespacedName]string
	history []PodEvent
	// seen holds the pods of the namespace as the watch saw them last; changed is closed, and replaced, when they change.
	seen    map[types.UID]*corev1.Pod
	changed chan struct{}
	agents  func(*result.Document)
	dead    string // the node whose pods do nothing
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

// NewKubelet watches the pods of a namespace until the spec ends.
func NewKubelet(ctx SpecContext, namespace string, now func() time.Time) *Kubelet {
	GinkgoHelper()
	k := &Kubelet{
		namespace: namespace, now: now, logs: map[types.NamespacedName]string{},
		seen: map[types.UID]*corev1.Pod{}, changed: make(chan struct{}),
	}
	follow(ctx, &corev1.PodList{}, func(event watch.EventType, o client.Object) { k.note(event, o.(*corev1.Pod)) }, client.InNamespace(namespace))
	return k
}

// note records an event of a pod.
func (k *Kubelet) note(event watch.EventType, pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if event == watch.Added || event == watch.Deleted {
		k.history = append(k.history, PodEvent{pod.Name, pod.Labels[v1alpha1.LabelBenchmark], event == watch.Deleted})
	}
	switch {
	case event == watch.Deleted:
		delete(k.seen, pod.UID)
	case !k.isOld(pod):
		k.seen[pod.UID] = pod
	}
	close(k.changed)
	k.changed = make(chan struct{})
}

// isOld reports whether a newer version of a pod is known.
func (k *Kubelet) isOld(pod *corev1.Pod) bool {
	known := k.seen[pod.UID]
	if known == nil {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(known.ResourceVersion, pod.ResourceVersion)
	return err == nil && order > 0
}

// report updates a pod's status. The next turn sees the new status even before the watch does.
func (k *Kubelet) report(ctx context.Context, pod *corev1.Pod) error {
	err := k8s.Status().Update(ctx, pod)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && k.seen[pod.UID] != nil && !k.isOld(pod) {
		k.seen[pod.UID] = pod.DeepCopy()
	}
	return err
}

// present returns copies of the existing pods, and a channel that is closed when they change.
func (k *Kubelet) present() (all []*corev1.Pod, changed <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, pod := range k.seen {
		all = append(all, pod.DeepCopy())
	}
	return all, k.changed
}

// History returns the events of pods, in order.
func (k *Kubelet) History() []PodEvent {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.history)
}

// Agents changes the results that agents report from now on.
func (k *Kubelet) Agents(change func(*result.Document)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.agents = change
}

// rejects reports whether the CPU manager cannot allocate as many CPUs as a pod requests.
func (k *Kubelet) rejects(pod *corev1.Pod) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.wholeCores && pod.Spec.Containers[0].Resources.Requests.Cpu().Value()%2 != 0
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

// Created returns the names of all pods that were ever created, with repetitions.
func (k *Kubelet) Created() []string {
	var names []string
	for _, e := range k.History() {
		if !e.Gone {
			names = append(names, e.Pod)
		}
	}
	return names
}

// Logs is a LogReader of the agents' logs.
func (k *Kubelet) Logs(_ context.Context, pod types.NamespacedName, _ bool) (io.ReadCloser, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	log, ok := k.logs[pod]
	if !ok {
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

// Pod waits for a pod of an attempt and binds it to its node, as the scheduler does.
func (k *Kubelet) Pod(ctx context.Context, run string, attempt int32, role string) *corev1.Pod {
	GinkgoHelper()
	labels := client.MatchingLabels{v1alpha1.LabelRun: run, v1alpha1.LabelAttempt: fmt.Sprint(attempt), v1alpha1.LabelRole: role}
	list := &corev1.PodList{}
	Eventually(func() ([]corev1.Pod, error) {
		err := k8s.List(ctx, list, client.InNamespace(k.namespace), labels)
		return list.Items, err
	}).Should(HaveLen(1))
	pod := &list.Items[0]
	Expect(k.bind(ctx, pod)).To(Succeed())
	return pod
}

// NoPod checks that there is no pod of that name, now or however long benchmark b waits.
func (w *World) NoPod(ctx context.Context, b *v1alpha1.LatencyBenchmark, run string, attempt int32, role string) {
	GinkgoHelper()
	w.Patiently(ctx, b, func() any {
		return k8s.Get(ctx, types.NamespacedName{Namespace: w.Namespace, Name: pods.Name(run, attempt, role)}, &corev1.Pod{})
	}, MatchError(apierrors.IsNotFound, "IsNotFound"))
}

func (k *Kubelet) bind(ctx context.Context, pod *corev1.Pod) error {
	if pod.Spec.NodeName != "" {
		return nil
	}
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: pods.Node(pod)}}
	if err := k8s.SubResource("binding").Create(ctx, pod, binding); err != nil {
		return err
	}
	return k8s.Get(ctx, client.ObjectKeyFromObject(pod), pod)
}

// Pending reports why a pod's container does not start.
func (k *Kubelet) Pending(ctx context.Context, pod *corev1.Pod, reason, message string) {
	GinkgoHelper()
	pod.Status.Phase = corev1.PodPending
	k.setContainer(pod, false, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
	Expect(k8s.Status().Update(ctx, pod)).To(Succeed())
}

// NetworkStatus annotates a pod as Multus does, with the default network first.
func (k *Kubelet) NetworkStatus(ctx context.Context, pod *corev1.Pod, network, address string) {
	GinkgoHelper()
	Expect(k.attach(ctx, pod, network, address)).To(Succeed())
}

func (k *Kubelet) attach(ctx context.Context, pod *corev1.Pod, network, address string) error {
	pod.Annotations[foreign.AnnotationNetworkStatus] = fmt.Sprintf(
		`[{"name":"cbr0","interface":"eth0","ips":["10.244.0.99"],"default":true},{"name":%q,"interface":"net1","ips":[%q]}]`, network, address)
	return k8s.Update(ctx, pod)
}

// attachAll attaches the networks of a pod, as Multus does.
func (k *Kubelet) attachAll(ctx context.Context, pod *corev1.Pod) error {
	asked := pod.Annotations[foreign.AnnotationNetworks]
	if asked == "" || pod.Annotations[foreign.AnnotationNetworkStatus] != "" {
		return nil
	}
	var networks []foreign.Selection
	if err := json.Unmarshal([]byte(asked), &networks); err != nil {
		return err
	}
	return k.attach(ctx, pod, networks[0].Namespace+"/"+networks[0].Name, "192.168.100.12")
}

// Run starts a pod: its container runs. A server listens.
func (k *Kubelet) Run(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	Expect(k.run(ctx, pod)).To(Succeed())
}

func (k *Kubelet) run(ctx context.Context, pod *corev1.Pod) error {
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "10.244.0.2"
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.244.0.2"}}
	k.setContainer(pod, true, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: k.now()}}})
	return k.report(ctx, pod)
}

// Succeed ends a pod successfully, with its result in its log.
func (k *Kubelet) Succeed(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	Expect(k.succeed(ctx, pod)).To(Succeed())
}

func (k *Kubelet) succeed(ctx context.Context, pod *corev1.Pod) error {
	if err := k.HandOver(pod); err != nil {
		return err
	}
	return k.end(ctx, pod, corev1.PodSucceeded, result.Termination{})
}

// HandOver writes the result of a pod to its log.
func (k *Kubelet) HandOver(pod *corev1.Pod) error {
	var log bytes.Buffer
	fmt.Fprintln(&log, listenLine)
	document, err := documentOf(pod)
	if err != nil {
		return err
	}
	// The pod runs on the kernel that the kubelet reports, if it reports one.
	node := corev1.Node{}
	if err := k8s.Get(context.Background(), types.NamespacedName{Name: pod.Spec.NodeName}, &node); err == nil && node.Status.NodeInfo.BootID != "" {
		document.Evidence.BootID = node.Status.NodeInfo.BootID
	}
	k.mu.Lock()
	change, threads := k.agents, k.threads
	k.mu.Unlock()
	if threads {
		onThreads(pod, &document)
	}
	if change != nil {
		change(&document)
	}
	if err := result.WriteFrame(&log, document); err != nil {
		return err
	}
	k.SetLog(pod, log.String())
	return nil
}

// Fail ends a pod with the termination message of its agent.
func (k *Kubelet) Fail(ctx context.Context, pod *corev1.Pod, reason, message string) {
	GinkgoHelper()
	Expect(k.end(ctx, pod, corev1.PodFailed, result.Termination{Reason: reason, Message: message})).To(Succeed())
}

func (k *Kubelet) end(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase, t result.Termination) error {
	message, err := json.Marshal(t)
	if err != nil {
		return err
	}
	terminated := &corev1.ContainerStateTerminated{Reason: "Completed", Message: string(message), FinishedAt: metav1.NewTime(k.now().Add(-k.late))}
	if phase == corev1.PodFailed {
		terminated.Reason, terminated.ExitCode = "Error", 1
	}
	pod.Status.Phase = phase
	k.setContainer(pod, false, corev1.ContainerState{Terminated: terminated})
	return k.report(ctx, pod)
}

func (k *Kubelet) setContainer(pod *corev1.Pod, started bool, state corev1.ContainerState) {
	// Only hold pods have a probe. The agent's own tests cover the comparison that the probe makes.
	probe := pod.Spec.Containers[0].ReadinessProbe
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, Started: &started, State: state,
		Ready: started && (probe == nil || probe.Exec.Command[1] == "verified"),
	}}
}

// Measure simulates a successful attempt.
func (k *Kubelet) Measure(ctx context.Context, run string, attempt int32) {
	GinkgoHelper()
	server := k.Pod(ctx, run, attempt, v1alpha1.RoleServer)
	k.Run(ctx, server)
	client := k.Pod(ctx, run, attempt, v1alpha1.RoleClient)
	k.Run(ctx, client)
	k.Succeed(ctx, server)
	k.Succeed(ctx, client)
	k.Gone(ctx, server, client)
}

// Gone waits until pods are deleted. It removes pods that have not ended, as their kubelets do.
func (k *Kubelet) Gone(ctx context.Context, all ...*corev1.Pod) {
	GinkgoHelper()
	for _, pod := range all {
		Eventually(func() (bool, error) { return k.letGo(ctx, pod) }).Should(BeTrue())
	}
}

// letGo reports whether a pod was deleted, and removes a pod that is being deleted.
func (k *Kubelet) letGo(ctx context.Context, pod *corev1.Pod) (bool, error) {
	current := &corev1.Pod{}
	err := k8s.Get(ctx, client.ObjectKeyFromObject(pod), current)
	if apierrors.IsNotFound(err) || err == nil && current.UID != pod.UID {
		return true, nil
	}
	if err == nil && !current.DeletionTimestamp.IsZero() {
		err = k.remove(ctx, current)
	}
	return false, err
}

// remove removes a pod that is being deleted, unless it has no grace period, as when it has ended: then the API server removes it.
func (k *Kubelet) remove(ctx context.Context, pod *corev1.Pod) error {
	if grace := pod.DeletionGracePeriodSeconds; grace != nil && *grace == 0 {
		return nil
	}
	return client.IgnoreNotFound(k8s.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}))
}

// Auto starts the pods of some benchmarks, or of all if none are given, lets them measure and succeed, and removes them, until the
// spec ends. Both pods of an attempt end together, once both run.
func (k *Kubelet) Auto(ctx SpecContext, benchmarks ...string) {
	ctxAuto, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	DeferCleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ctxAuto.Err() == nil {
			all, changed := k.present()
			var again <-chan time.Time
			// The next turn handles pods that have changed meanwhile.
			if err := k.turn(ctxAuto, all, benchmarks); err != nil {
				fmt.Fprintln(GinkgoWriter, "kubelet:", err)
				again = time.After(20 * time.Millisecond)
			}
			select {
			case <-changed:
			case <-again:
			case <-ctxAuto.Done():
			}
		}
	}()
}

// Die stops the simulation of the pods of a node.
func (k *Kubelet) Die(node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dead = node
}

func (k *Kubelet) isDead(pod *corev1.Pod) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dead != "" && pods.Node(pod) == k.dead
}

func (k *Kubelet) turn(ctx context.Context, all []*corev1.Pod, benchmarks []string) error {
	running := map[string][]*corev1.Pod{}
	for _, pod := range all {
		if k.isDead(pod) || len(benchmarks) > 0 && !slices.Contains(benchmarks, pod.Labels[v1alpha1.LabelBenchmark]) {
			continue
		}
		var err error
		switch {
		case !pod.DeletionTimestamp.IsZero():
			err = k.remove(ctx, pod)
		case pod.Status.Phase == corev1.PodPending:
			if err = k.bind(ctx, pod); err == nil {
				err = k.attachAll(ctx, pod)
			}
			if err == nil && k.rejects(pod) {
				pod.Status.Phase, pod.Status.Reason = corev1.PodFailed, "SMTAlignmentError"
				pod.Status.Message = "SMT Alignment Error: requested 1 cpus not multiple cpus per core = 2"
				err = k.report(ctx, pod)
				break
			}
			if err == nil {
				k.SetLog(pod, listenLine+"\n")
				err = k.run(ctx, pod)
			}
		case pod.Status.Phase == corev1.PodRunning && pod.Labels[v1alpha1.LabelRun] != "":
			attempt := pod.Labels[v1alpha1.LabelRun] + "/" + pod.Labels[v1alpha1.LabelAttempt]
			running[attempt] = append(running[attempt], pod)
		}
		if err != nil {
			return err
		}
	}
	for _, both := range running {
		// One of them may have ended in a turn that was interrupted.
		if len(both) == 2 || peerEnded(all, both[0]) {
			for _, pod := range both {
				if err := k.succeed(ctx, pod); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func peerEnded(all []*corev1.Pod, pod *corev1.Pod) bool {
	for _, other := range all {
		if other.UID != pod.UID && other.Status.Phase == corev1.PodSucceeded &&
			other.Labels[v1alpha1.LabelRun] == pod.Labels[v1alpha1.LabelRun] && other.Labels[v1alpha1.LabelAttempt] == pod.Labels[v1alpha1.LabelAttempt] {
			return true
		}
	}
	return false
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
func documentOf(pod *corev1.Pod) (result.Document, error) {
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
	started := time.Now().Add(-time.Second)
	for _, cell := range task.Cells {
		histogram, err := histogramFrom(10_000)
		if err != nil {
			return result.Document{}, err
		}
		d.Cells = append(d.Cells, result.Cell{
			Cell: cell, Tool: string(task.Tool), ToolVersion: "sockperf, version 3.10", Command: []string{"sockperf"},
			StartedAt: started, FinishedAt: started.Add(time.Second), Histogram: histogram,
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
