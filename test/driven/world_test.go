package driven

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

func TestDriven(t *testing.T) {
	log.SetLogger(zap.New(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true)))
	RegisterFailHandler(Fail)
	// Worlds are small, and their garbage is not.
	debug.SetGCPercent(800)
	RunSpecs(t, "Driven")
}

var (
	// present is the world of the spec that runs.
	present *World
	// k8s is the client of its users.
	k8s client.Client
)

// World has the objects of one spec, and their cluster.
type World struct {
	*Cluster
	Place
}

// NewWorld makes a cluster with two nodes, which is the present one from now on.
func NewWorld(ctx context.Context) *World {
	GinkgoHelper()
	const namespace = "spec"
	w := &World{Cluster: New(namespace), Place: Place{Namespace: namespace, A: namespace + "-a", B: namespace + "-b"}}
	present, k8s = w, w.Store.Client("user")
	Use(Suite{
		Client: k8s, User: "alice", Ready: func() time.Time { return Began },
		Await: func(actual any, matcher gomegatypes.GomegaMatcher) {
			GinkgoHelper()
			eventually(actual).Should(matcher)
		},
		Write: func(write func() error) { GinkgoHelper(); Expect(write()).To(Succeed()) },
	})
	w.AddNode(ctx, MakeNode(w.A))
	w.AddNode(ctx, MakeNode(w.B))
	return w
}

// AddNode creates a node with the taints and status of the builder.
func (w *World) AddNode(ctx context.Context, n *NodeBuilder) *corev1.Node {
	GinkgoHelper()
	node := n.Obj()
	Expect(k8s.Create(ctx, node)).To(Succeed())
	return node
}

// Start starts a manager, as cmd/manager does.
func (w *World) Start(dies ...Fault) *Manager {
	GinkgoHelper()
	var fault Fault
	if len(dies) > 0 {
		fault = dies[0]
	}
	m, err := w.Cluster.Start(fault)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(m.Stop)
	return m
}

// dies makes a manager die instead of the first write for which a condition holds.
func dies(at func(Write) bool) Fault {
	return func(w Write) Effect {
		if at(w) {
			return DieBefore
		}
		return Nothing
	}
}

// Wake makes the controllers reconcile an object: it changes an annotation that only the watch notices.
func Wake(ctx context.Context, o client.Object) {
	GinkgoHelper()
	current := o.DeepCopyObject().(client.Object)
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(o), current)).To(Succeed())
	annotations := current.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations["test.tailgate.dev/woken"] = fmt.Sprint(present.turns)
	current.SetAnnotations(annotations)
	Expect(k8s.Update(ctx, current)).To(Succeed())
}

// Patiently checks that a condition holds however long the controllers wait: longer than any of their timers.
func (w *World) Patiently(_ context.Context, _ client.Object, actual func() any, matcher gomegatypes.GomegaMatcher) {
	GinkgoHelper()
	w.Settle()
	consistently(actual, 12*time.Second).Should(matcher)
}

// NoPod checks that there is no pod of that name, now or however long benchmark b waits.
func (w *World) NoPod(ctx context.Context, b *v1alpha1.LatencyBenchmark, run string, attempt int32, role string) {
	GinkgoHelper()
	w.Patiently(ctx, b, func() any {
		return k8s.Get(ctx, types.NamespacedName{Namespace: w.Namespace, Name: pods.Name(run, attempt, role)}, &corev1.Pod{})
	}, MatchError(apierrors.IsNotFound, "IsNotFound"))
}

// The steps of kubelets, for specs that take them one by one.

// Pod waits for a pod of an attempt and binds it to its node, as the scheduler does.
func (k *Kubelet) Pod(ctx context.Context, run string, attempt int32, role string) *corev1.Pod {
	GinkgoHelper()
	labels := client.MatchingLabels{v1alpha1.LabelRun: run, v1alpha1.LabelAttempt: fmt.Sprint(attempt), v1alpha1.LabelRole: role}
	list := &corev1.PodList{}
	eventually(func() ([]corev1.Pod, error) {
		err := k8s.List(ctx, list, client.InNamespace(k.namespace), labels)
		return list.Items, err
	}).Should(HaveLen(1))
	pod := &list.Items[0]
	Expect(k.bind(pod)).To(Succeed())
	return pod
}

// Pending reports why a pod's container does not start.
func (k *Kubelet) Pending(ctx context.Context, pod *corev1.Pod, reason, message string) {
	GinkgoHelper()
	pod.Status.Phase = corev1.PodPending
	setContainer(pod, false, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
	Expect(k8s.Status().Update(ctx, pod)).To(Succeed())
}

// Warn emits an event about a pod.
func (k *Kubelet) Warn(ctx context.Context, pod *corev1.Pod, reason, message string) {
	GinkgoHelper()
	now := metav1.NewTime(k.cluster.Clock.Now())
	Expect(k8s.Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: k.namespace, GenerateName: pod.Name + "."},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Type:           corev1.EventTypeWarning, Reason: reason, Message: message, FirstTimestamp: now, LastTimestamp: now,
	})).To(Succeed())
}

// NetworkStatus annotates a pod as Multus does, with the default network first.
func (k *Kubelet) NetworkStatus(_ context.Context, pod *corev1.Pod, network, address string) {
	GinkgoHelper()
	Expect(k.attach(pod, network, address)).To(Succeed())
}

// Run starts a pod: its container runs. A server listens.
func (k *Kubelet) Run(_ context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	Expect(k.run(pod)).To(Succeed())
}

// Succeed ends a pod successfully, with its result in its log.
func (k *Kubelet) Succeed(_ context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	Expect(k.succeed(pod)).To(Succeed())
}

// Fail ends a pod with the termination message of its agent.
func (k *Kubelet) Fail(_ context.Context, pod *corev1.Pod, reason, message string) {
	GinkgoHelper()
	Expect(k.end(pod, corev1.PodFailed, result.Termination{Reason: reason, Message: message})).To(Succeed())
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
		eventually(func() (bool, error) {
			current := &corev1.Pod{}
			err := k8s.Get(ctx, client.ObjectKeyFromObject(pod), current)
			if apierrors.IsNotFound(err) || err == nil && current.UID != pod.UID {
				return true, nil
			}
			if err == nil && !current.DeletionTimestamp.IsZero() {
				err = k.remove(current)
			}
			return false, err
		}).Should(BeTrue())
	}
}

// Pause prevents the agents of a run from reporting their results until goOn is called. wait returns when they would.
func (w *World) Pause(run string) (wait, goOn func()) {
	w.Kubelet.paused[run] = true
	wait = func() {
		GinkgoHelper()
		eventually(func() bool {
			list := &corev1.PodList{}
			Expect(k8s.List(context.Background(), list, client.MatchingLabels{v1alpha1.LabelRun: run})).To(Succeed())
			for i := range list.Items {
				if ends, ok := w.Kubelet.endOf(&list.Items[i], list.Items); ok && !w.Clock.Now().Before(ends) && list.Items[i].Status.Phase == corev1.PodRunning {
					return true
				}
			}
			return false
		}).Should(BeTrue(), "run %s measures", run)
	}
	return wait, func() { delete(w.Kubelet.paused, run) }
}

// SamplesFrom changes the round trips that agents measure: from returns the first sample of a benchmark's runs.
func (w *World) SamplesFrom(from func(b *v1alpha1.LatencyBenchmark) int64) {
	w.Kubelet.Agents(func(d *result.Document) {
		b := &v1alpha1.LatencyBenchmark{}
		name := d.Run[:strings.LastIndex(d.Run, "-")]
		if err := k8s.Get(context.Background(), types.NamespacedName{Namespace: w.Namespace, Name: name}, b); err != nil {
			// The benchmark was deleted meanwhile, and its results will not be read.
			return
		}
		for i := range d.Cells {
			var err error
			if d.Cells[i].Histogram, err = histogramFrom(from(b)); err != nil {
				panic(err)
			}
		}
	})
}

// AtEachWrite repeats a spec in a new world with an effect at the first write of a manager that matches, then at the second, and so on,
// until there are no more. It returns how many there are.
func AtEachWrite(effect Effect, match func(Write) bool, spec func(fault Fault)) (writes int) {
	GinkgoHelper()
	for n := 1; ; n++ {
		seen := 0
		By(fmt.Sprintf("%s at write %d", effect, n))
		spec(func(w Write) Effect {
			if !match(w) {
				return Nothing
			}
			if seen++; seen != n {
				return Nothing
			}
			present.note("--- %s: %s %T %s", effect, w.Verb, w.Object, w.Object.GetName())
			return effect
		})
		if seen < n {
			return n - 1
		}
	}
}
