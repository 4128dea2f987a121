package driven

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/tool"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

var _ = Describe("One fault", func() {
	// third adds a node to the world.
	third := func(ctx SpecContext, w *World) string {
		GinkgoHelper()
		name := w.Namespace + "-c"
		w.AddNode(ctx, MakeNode(name))
		return name
	}
	setReady := func(ctx context.Context, name string, ready corev1.ConditionStatus) {
		GinkgoHelper()
		node := &corev1.Node{}
		Expect(k8s.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
		node.Status.Conditions[0].Status = ready
		Expect(k8s.Status().Update(ctx, node)).To(Succeed())
	}
	start := func(ctx context.Context, w *World, attempt int32) (server, peer *corev1.Pod) {
		GinkgoHelper()
		return w.Kubelet.RunBoth(ctx, "x-r1", attempt)
	}

	It("on a node that is dead frees the other node, and not the dead one", func(ctx SpecContext) {
		w := NewWorld(ctx)
		// Creation times of pods are those of the API server's clock, which is not put forward.
		w.Settings.StartTimeout = 10 * time.Minute
		c := third(ctx, w)
		w.Start()
		x := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B))
		server, peer := start(ctx, w, 1)
		ExpectSucceeded(ctx, x, "^Unknown Running")
		y := w.Create(ctx, MakeBenchmark(w.Namespace, "y").On(w.A, c))
		ExpectSucceeded(ctx, y, "^Unknown Queued")

		setReady(ctx, w.B, corev1.ConditionUnknown)
		eventually(func() *metav1.MicroTime { return Get(ctx, x).Status.Active.NotReadyTime }).ShouldNot(BeNil())
		w.Pass(61 * time.Second)
		w.Kubelet.Gone(ctx, peer)
		ExpectSucceeded(ctx, x, "^Unknown Ending: .*"+server.Name)
		w.Pass(121 * time.Second)
		eventually(func() []string { return Attempts(ctx, x) }).Should(Equal([]string{"x-r1 a1 NodeLost"}))
		Expect(Get(ctx, x).Status.LeftPods).To(Equal([]v1alpha1.LeftPod{{Name: server.Name, UID: string(server.UID)}}))
		w.Pass(10 * time.Second)
		w.Kubelet.Measure(ctx, "y-r1", 1)
		ExpectSucceeded(ctx, y, "^True Complete")

		// The node is back, and its pod still occupies its resources.
		setReady(ctx, w.B, corev1.ConditionTrue)
		ExpectAccepted(ctx, x, "^False PodStuck: .*"+server.Name+" on "+w.B+".*delete the Node object")
		z := w.Create(ctx, MakeBenchmark(w.Namespace, "z").On(c, w.B))
		ExpectAccepted(ctx, z, "^False PodStuck: .*"+server.Name)
		w.Kubelet.Gone(ctx, server)
		w.Kubelet.Auto()
		ExpectSucceeded(ctx, x, "^True Complete")
		ExpectSucceeded(ctx, z, "^True Complete")
		Expect(Attempts(ctx, x)).To(Equal([]string{"x-r1 a1 NodeLost", "x-r1 a2 Measured"}))
		Expect(Get(ctx, x).Status.LeftPods).To(BeEmpty())
	})

	It("of clocks of nodes that are an hour late is none", func(ctx SpecContext) {
		w := NewWorld(ctx)
		w.Kubelet.Late = time.Hour
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B))
		server, peer := start(ctx, w, 1)
		w.Kubelet.Succeed(ctx, peer)
		ExpectSucceeded(ctx, b, "^Unknown Running: waiting for both ends")
		w.Kubelet.Succeed(ctx, server)
		w.Kubelet.Gone(ctx, server, peer)
		ExpectSucceeded(ctx, b, "^True Complete")
		Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 Measured"}))
	})
})

var _ = Describe("A pod that another user created", func() {
	It("with the labels of a benchmark's keeps no node", func(ctx SpecContext) {
		w := NewWorld(ctx)
		forged := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "forged", Labels: map[string]string{
				v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate, v1alpha1.LabelRole: v1alpha1.RoleServer, v1alpha1.LabelBenchmark: "other",
			}},
			Spec: corev1.PodSpec{NodeName: w.A, Containers: []corev1.Container{{Name: "agent", Image: "somebody:else"}}},
		}
		Expect(k8s.Create(ctx, forged)).To(Succeed())
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B))
		w.Kubelet.Measure(ctx, "x-r1", 1)
		ExpectSucceeded(ctx, b, "^True Complete")
	})

	It("with the name and the owner of a run's pod takes no part in the run", func(ctx SpecContext) {
		w := NewWorld(ctx)
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B).Suspended())
		forged, err := pods.Build(pods.Endpoint{
			Benchmark: b, Image: "somebody:else", Node: w.B, Variant: plan.Variants(b.Spec)[0],
			Task: plan.Task{Run: "x-r1", Attempt: 1, Role: v1alpha1.RoleServer, Cells: []tool.Cell{{Name: "tcp-64"}}, Deadline: time.Minute},
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(k8s.Create(ctx, forged)).To(Succeed())
		w.Start()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":false}}`))
		Expect(k8s.Patch(ctx, b.DeepCopy(), patch)).To(Succeed())
		w.Kubelet.Gone(ctx, forged)
		w.Kubelet.Measure(ctx, "x-r1", 2)
		ExpectSucceeded(ctx, b, "^True Complete")
		Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 NameTaken", "x-r1 a2 Measured"}))
	})
})
