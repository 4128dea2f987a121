package integration

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// The agents of these specs measure round trips from 10000 to 11999 ns in every round, with a p90 of 5.9 µs as half RTT, unless a
// spec changes that.

// addGate creates a gate. It is removed at the end of the spec, even without a manager.
func addGate(ctx context.Context, g *GateBuilder) *v1alpha1.LatencyGate {
	GinkgoHelper()
	created := g.Obj()
	Expect(k8s.Create(ctx, created)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, created))).To(Succeed())
		list := &v1alpha1.LatencyVerificationList{}
		Expect(k8s.List(ctx, list, client.MatchingFields{"spec.gateName": created.Name})).To(Succeed())
		none := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		for i := range list.Items {
			Expect(client.IgnoreNotFound(k8s.Delete(ctx, &list.Items[i]))).To(Succeed())
			Expect(client.IgnoreNotFound(k8s.Patch(ctx, &list.Items[i], none))).To(Succeed())
		}
		Expect(client.IgnoreNotFound(k8s.Patch(ctx, created, none))).To(Succeed())
	})
	return created
}

// NewGateWorld returns a world whose nodes its gate selects, and whose pods run without the spec.
func NewGateWorld(ctx SpecContext, more ...string) *World {
	GinkgoHelper()
	w := NewWorld(ctx)
	w.Kubelet.Auto(ctx)
	w.JoinGate(ctx, more...)
	return w
}

// username returns the name of the user who runs the specs.
func username(ctx context.Context) string {
	GinkgoHelper()
	self := &authenticationv1.SelfSubjectReview{}
	Expect(k8s.Create(ctx, self)).To(Succeed())
	return self.Status.UserInfo.Username
}

// Pause prevents the agents of a run from reporting their results until goOn is called. wait returns when the agents wait.
func (w *World) Pause(run string) (wait, goOn func()) {
	reached, going := make(chan struct{}), make(chan struct{})
	reach, release := sync.OnceFunc(func() { close(reached) }), sync.OnceFunc(func() { close(going) })
	w.Kubelet.AgentsFirst(func(d *result.Document) {
		if d.Run == run {
			reach()
			<-going
		}
	})
	DeferCleanup(release)
	return func() { GinkgoHelper(); Eventually(reached).Should(BeClosed()) }, release
}

// letInAll returns the number of the gate's nodes whose condition and label let them in.
func (w *World) letInAll(ctx context.Context) (n int) {
	GinkgoHelper()
	nodes := &corev1.NodeList{}
	Expect(k8s.List(ctx, nodes, client.MatchingLabels{GateLabel: w.Namespace})).To(Succeed())
	for i := range nodes.Items {
		if m := MarksOf(&nodes.Items[i]); m.Condition == "True" && m.Label == "true" {
			n++
		}
	}
	return n
}

// letIn is LetIn of Place.
func (w *World) letIn(ctx context.Context, node string) (found func() []string) {
	GinkgoHelper()
	var ofNode, ofPods []string
	end, ended := fmt.Sprint("end-", time.Now().UnixNano()), make(chan struct{})
	var before *Marks
	over := false
	stopNodes := follow(ctx, &corev1.NodeList{}, func(event watch.EventType, o client.Object) {
		n := o.(*corev1.Node)
		if event == watch.Deleted {
			before = nil
		}
		if event == watch.Deleted || over {
			return
		}
		now := MarksOf(n)
		if before != nil && now.LetsInAfter(*before) {
			ofNode = append(ofNode, fmt.Sprintf("from %+v to %+v", *before, now))
		}
		if before = &now; n.Annotations[end] != "" {
			over = true
			close(ended)
		}
	}, client.MatchingFields{"metadata.name": node})
	held := false
	stopPods := follow(ctx, &corev1.PodList{}, func(_ watch.EventType, o client.Object) {
		pod := o.(*corev1.Pod)
		verified := SaysVerified(pod)
		if held && verified {
			ofPods = append(ofPods, fmt.Sprintf("hold pod %s, version %s, says that its node is verified", pod.Name, pod.ResourceVersion))
		}
		held = held || !verified
	}, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelHold: "true", v1alpha1.LabelNode: node})
	return func() []string {
		GinkgoHelper()
		// When the watch sees this version of the Node, it has seen all earlier ones.
		w.ChangeNode(ctx, node, func(n *corev1.Node) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, end, "true") })
		Eventually(ended).Should(BeClosed())
		stopNodes()
		stopPods()
		return append(ofNode, ofPods...)
	}
}

// stays is Stays of Place: it puts the clock forward, and makes the controllers reconcile the node after each step.
func (w *World) stays(ctx context.Context, node, says string) {
	GinkgoHelper()
	defer w.Clock.ahead.Store(w.Clock.ahead.Load())
	letIn := w.LetIn(ctx, node)
	for range 4 {
		w.Look(ctx, node, 10*time.Minute)
		Expect(w.Says(ctx, node)).To(Equal(says))
	}
	Expect(letIn()).To(BeEmpty())
}

// Look puts the clock forward, and returns when the controllers of gates have reconciled the node since. It wakes them twice,
// because the first reconcile that ends may have started before the clock was put forward.
func (w *World) Look(ctx context.Context, node string, by time.Duration) {
	GinkgoHelper()
	for range 2 {
		gates, verifications := reconciles("latencygate"), reconciles("latencyverification")
		w.Pass(ctx, node, by)
		Eventually(reconciles).WithArguments("latencygate").Should(BeNumerically(">", gates))
		Eventually(reconciles).WithArguments("latencyverification").Should(BeNumerically(">", verifications))
		by = 0
	}
}

// Pass puts the clock forward and changes a label of a Node, which wakes its verifications and all gates.
func (w *World) Pass(ctx context.Context, node string, by time.Duration) {
	GinkgoHelper()
	w.Clock.ahead.Add(int64(by))
	w.ChangeNode(ctx, node, func(n *corev1.Node) {
		metav1.SetMetaDataLabel(&n.ObjectMeta, "test.tailgate.dev/woken", fmt.Sprint(time.Now().UnixNano()))
	})
}

// collectGarbage deletes the pods of a deleted benchmark, as the garbage collector does, which does not run here: a pod may be
// created while its benchmark is deleted.
func (w *World) collectGarbage(ctx context.Context, b *v1alpha1.LatencyBenchmark) {
	GinkgoHelper()
	if apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(b), b.DeepCopy())) {
		Expect(k8s.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelBenchmark: b.Name}, client.GracePeriodSeconds(0))).To(Succeed())
	}
}
