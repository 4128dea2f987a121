package specs

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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// ListenLine is the first line that servers' agents write.
var ListenLine = result.ListenLine(netip.MustParseAddr("10.244.0.2"))

// PodEvent is the creation or the deletion of a pod.
type PodEvent struct {
	Pod, Benchmark string
	Gone           bool
}

// Kubelets is what the stand-ins for the scheduler, kubelets and agents of both suites do, step by step: the Kubelet of each suite has
// one, and takes the steps when their time has come. It keeps the logs of pods, and records every pod that was ever created.
type Kubelets struct {
	Namespace string
	Client    client.Client
	// Now returns the time of the managers. The clocks of the nodes are behind by Late.
	Now  func() time.Time
	Late time.Duration
	// Report updates the status of a pod, and Remove removes a pod that is being deleted.
	Report, Remove func(ctx context.Context, pod *corev1.Pod) error
	// Observe, if it is set, completes what the agent of a pod observes.
	Observe func(pod *corev1.Pod, d *result.Document)

	mu      sync.Mutex // Readers of logs have goroutines of their own.
	logs    map[types.NamespacedName]string
	history []PodEvent
	agents  func(*result.Document)
}

// Note records the creation or the deletion of a pod.
func (k *Kubelets) Note(pod client.Object, gone bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.history = append(k.history, PodEvent{pod.GetName(), pod.GetLabels()[v1alpha1.LabelBenchmark], gone})
}

// History returns the events of pods, in order.
func (k *Kubelets) History() []PodEvent {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.history)
}

// Created returns the names of all pods that were ever created, with repetitions.
func (k *Kubelets) Created() []string {
	var names []string
	for _, e := range k.History() {
		if !e.Gone {
			names = append(names, e.Pod)
		}
	}
	return names
}

// Agents changes the results that agents report from now on.
func (k *Kubelets) Agents(change func(*result.Document)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.agents = change
}

// AgentsFirst adds a change before the present one.
func (k *Kubelets) AgentsFirst(change func(*result.Document)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	present := k.agents
	k.agents = func(d *result.Document) {
		change(d)
		if present != nil {
			present(d)
		}
	}
}

// Logs is a LogReader of the agents' logs.
func (k *Kubelets) Logs(_ context.Context, pod types.NamespacedName, _ bool) (io.ReadCloser, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	log, ok := k.logs[pod]
	if !ok {
		return nil, fmt.Errorf("no log of %s", pod)
	}
	return io.NopCloser(strings.NewReader(log)), nil
}

// SetLog replaces the log of a pod.
func (k *Kubelets) SetLog(pod *corev1.Pod, log string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.logs == nil {
		k.logs = map[types.NamespacedName]string{}
	}
	k.logs[client.ObjectKeyFromObject(pod)] = log
}

// Pod waits for a pod of an attempt and binds it to its node, as the scheduler does.
func (k *Kubelets) Pod(ctx context.Context, run string, attempt int32, role string) *corev1.Pod {
	GinkgoHelper()
	labels := client.MatchingLabels{v1alpha1.LabelRun: run, v1alpha1.LabelAttempt: fmt.Sprint(attempt), v1alpha1.LabelRole: role}
	list := &corev1.PodList{}
	suite.Await(func() ([]corev1.Pod, error) {
		err := suite.Client.List(ctx, list, client.InNamespace(k.Namespace), labels)
		return list.Items, err
	}, HaveLen(1))
	pod := &list.Items[0]
	Expect(k.Bind(ctx, pod)).To(Succeed())
	return pod
}

// Bind binds a pod to its node, unless it is bound.
func (k *Kubelets) Bind(ctx context.Context, pod *corev1.Pod) error {
	if pod.Spec.NodeName != "" {
		return nil
	}
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: pods.Node(pod)}}
	if err := k.Client.SubResource("binding").Create(ctx, pod, binding); err != nil {
		return err
	}
	return k.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
}

// Pending reports why a pod's container does not start.
func (k *Kubelets) Pending(ctx context.Context, pod *corev1.Pod, reason, message string) {
	GinkgoHelper()
	pod.Status.Phase = corev1.PodPending
	setContainer(pod, false, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
	Expect(suite.Client.Status().Update(ctx, pod)).To(Succeed())
}

// NetworkStatus annotates a pod as Multus does, with the default network first.
func (k *Kubelets) NetworkStatus(ctx context.Context, pod *corev1.Pod, network, address string) {
	GinkgoHelper()
	Expect(k.attach(ctx, pod, network, address)).To(Succeed())
}

func (k *Kubelets) attach(ctx context.Context, pod *corev1.Pod, network, address string) error {
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, foreign.AnnotationNetworkStatus, fmt.Sprintf(
		`[{"name":"cbr0","interface":"eth0","ips":["10.244.0.99"],"default":true},{"name":%q,"interface":"net1","ips":[%q]}]`, network, address))
	return k.Client.Update(ctx, pod)
}

// Attach attaches the networks of a pod, as Multus does.
func (k *Kubelets) Attach(ctx context.Context, pod *corev1.Pod) error {
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
func (k *Kubelets) Run(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	Expect(k.Begin(ctx, pod)).To(Succeed())
}

// Begin is Run outside of the goroutine of a spec.
func (k *Kubelets) Begin(ctx context.Context, pod *corev1.Pod) error {
	pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "10.244.0.2"
	pod.Status.PodIPs = []corev1.PodIP{{IP: "10.244.0.2"}}
	setContainer(pod, true, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: k.Now()}}})
	return k.Report(ctx, pod)
}

// Succeed ends a pod successfully, with its result in its log.
func (k *Kubelets) Succeed(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	Expect(k.Finish(ctx, pod)).To(Succeed())
}

// Finish is Succeed outside of the goroutine of a spec.
func (k *Kubelets) Finish(ctx context.Context, pod *corev1.Pod) error {
	if err := k.HandOver(pod); err != nil {
		return err
	}
	return k.end(ctx, pod, corev1.PodSucceeded, result.Termination{})
}

// HandOver writes the result of a pod to its log.
func (k *Kubelets) HandOver(pod *corev1.Pod) error {
	var log bytes.Buffer
	fmt.Fprintln(&log, ListenLine)
	document, err := documentOf(pod, k.Now())
	if err != nil {
		return err
	}
	// The pod runs on the kernel that the kubelet reports, if it reports one.
	node := corev1.Node{}
	if err := k.Client.Get(context.Background(), types.NamespacedName{Name: pod.Spec.NodeName}, &node); err == nil && node.Status.NodeInfo.BootID != "" {
		document.Evidence.BootID = node.Status.NodeInfo.BootID
	}
	if k.Observe != nil {
		k.Observe(pod, &document)
	}
	k.mu.Lock()
	change := k.agents
	k.mu.Unlock()
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
func (k *Kubelets) Fail(ctx context.Context, pod *corev1.Pod, reason, message string) {
	GinkgoHelper()
	Expect(k.end(ctx, pod, corev1.PodFailed, result.Termination{Reason: reason, Message: message})).To(Succeed())
}

func (k *Kubelets) end(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase, t result.Termination) error {
	message, err := json.Marshal(t)
	if err != nil {
		return err
	}
	terminated := &corev1.ContainerStateTerminated{Reason: "Completed", Message: string(message), FinishedAt: metav1.NewTime(k.Now().Add(-k.Late))}
	if phase == corev1.PodFailed {
		terminated.Reason, terminated.ExitCode = "Error", 1
	}
	pod.Status.Phase = phase
	setContainer(pod, false, corev1.ContainerState{Terminated: terminated})
	return k.Report(ctx, pod)
}

func setContainer(pod *corev1.Pod, started bool, state corev1.ContainerState) {
	// Only hold pods have a probe. The agent's own tests cover the comparison that the probe makes.
	probe := pod.Spec.Containers[0].ReadinessProbe
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, Started: &started, State: state,
		Ready: started && (probe == nil || probe.Exec.Command[1] == "verified"),
	}}
}

// RunBoth starts both pods of an attempt, the server first.
func (k *Kubelets) RunBoth(ctx context.Context, run string, attempt int32) (server, peer *corev1.Pod) {
	GinkgoHelper()
	server = k.Pod(ctx, run, attempt, v1alpha1.RoleServer)
	k.Run(ctx, server)
	peer = k.Pod(ctx, run, attempt, v1alpha1.RoleClient)
	k.Run(ctx, peer)
	return server, peer
}

// Measure simulates a successful attempt.
func (k *Kubelets) Measure(ctx context.Context, run string, attempt int32) {
	GinkgoHelper()
	server, peer := k.RunBoth(ctx, run, attempt)
	k.Succeed(ctx, server)
	k.Succeed(ctx, peer)
	k.Gone(ctx, server, peer)
}

// Gone waits until pods are deleted. It removes pods that have not ended, as their kubelets do.
func (k *Kubelets) Gone(ctx context.Context, all ...*corev1.Pod) {
	GinkgoHelper()
	for _, pod := range all {
		suite.Await(func() (bool, error) { return k.letGo(ctx, pod) }, BeTrue())
	}
}

// letGo reports whether a pod was deleted, and removes a pod that is being deleted.
func (k *Kubelets) letGo(ctx context.Context, pod *corev1.Pod) (bool, error) {
	current := &corev1.Pod{}
	err := suite.Client.Get(ctx, client.ObjectKeyFromObject(pod), current)
	if apierrors.IsNotFound(err) || err == nil && current.UID != pod.UID {
		return true, nil
	}
	if err == nil && !current.DeletionTimestamp.IsZero() {
		err = k.Remove(ctx, current)
	}
	return false, err
}
