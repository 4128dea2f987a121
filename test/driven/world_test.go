package driven

import (
	"context"
	"fmt"
	"runtime/debug"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
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
	c := New(namespace)
	w := &World{Cluster: c, Place: Place{Namespace: namespace, A: namespace + "-a", B: namespace + "-b", Kubelets: c.Kubelet.Kubelets}}
	w.Patiently, w.Stays, w.LetIn = w.patiently, w.stays, w.letIn
	w.Manage = func() func() { GinkgoHelper(); return w.Start().Stop }
	present, k8s = w, w.Store.Client("user")
	Use(Suite{
		Client: k8s, User: "alice", Ready: func() time.Time { return Began },
		Await: func(actual any, matcher gomegatypes.GomegaMatcher, description ...any) {
			GinkgoHelper()
			eventually(actual).Should(matcher, description...)
		},
		AddNode: func(ctx context.Context, n *NodeBuilder) *corev1.Node {
			GinkgoHelper()
			node := n.Obj()
			Expect(k8s.Create(ctx, node)).To(Succeed())
			return node
		},
		AddGate: func(ctx context.Context, g *GateBuilder) *v1alpha1.LatencyGate {
			GinkgoHelper()
			gate := g.Obj()
			Expect(k8s.Create(ctx, gate)).To(Succeed())
			return gate
		},
		Write: func(write func() error) { GinkgoHelper(); Expect(write()).To(Succeed()) },
	})
	w.AddNode(ctx, MakeNode(w.A))
	w.AddNode(ctx, MakeNode(w.B))
	return w
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

// patiently checks that a condition holds however long the controllers wait: longer than any of their timers.
func (w *World) patiently(_ context.Context, _ client.Object, actual func() any, matcher gomegatypes.GomegaMatcher) {
	GinkgoHelper()
	w.Settle()
	consistently(actual, 12*time.Second).Should(matcher)
}

// Warn emits an event about a pod.
func (k *Kubelet) Warn(ctx context.Context, pod *corev1.Pod, reason, message string) {
	GinkgoHelper()
	now := metav1.NewTime(k.cluster.Clock.Now())
	Expect(k8s.Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: k.Namespace, GenerateName: pod.Name + "."},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Type:           corev1.EventTypeWarning, Reason: reason, Message: message, FirstTimestamp: now, LastTimestamp: now,
	})).To(Succeed())
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
