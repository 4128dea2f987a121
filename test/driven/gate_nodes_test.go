package driven

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

var _ = Describe("A gate", func() {
	It("forgets a deleted node and its results after spec.releaseAfter", func(ctx SpecContext) {
		NewGateWorld(ctx).ForgetsNode(ctx, func(verification func() types.UID) {
			eventually(verification).WithTimeout(61 * time.Minute).Should(BeEmpty())
		})
	})

	DescribeTable("starts again with a Node that was deleted and created while no manager ran,",
		func(ctx SpecContext, machine string, accepted string, benchmarks ...string) {
			w := NewGateWorld(ctx)
			w.ChangeNodeStatus(ctx, w.A, func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = "uuid-1" })
			manager := w.Start()
			w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
			w.Expect(ctx, w.A, IsVerified)
			manager.Stop()
			Expect(k8s.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.A}})).To(Succeed())
			w.AddGateNode(ctx, w.A)
			w.ChangeNodeStatus(ctx, w.A, func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = machine })
			w.Start()
			eventually(func() string { return w.Accepted(ctx, w.A) }).Should(Equal(accepted))
			w.Expect(ctx, w.A, IsVerified)
			eventually(func() []string { return w.Benchmarks(ctx, w.A) }).Should(ConsistOf(benchmarks))
		},
		Entry("of another machine, without the results of the other", "uuid-2", "-2 since -2", "-2"),
		Entry("of the same machine, with its results", "uuid-1", "-2 since -1", "-1", "-2"),
	)

	It("leaves nothing on nodes when it is deleted", func(ctx SpecContext) {
		w := NewGateWorld(ctx, "c")
		w.Start()
		w.SlowNode(w.A)
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.HoldPod = &v1alpha1.GateHoldPod{} }))
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		w.Expect(ctx, w.B, IsVerified)
		Expect(k8s.Delete(ctx, g)).To(Succeed())
		w.Expect(ctx, w.A, "Unverified GateDeleted: - - -") // It joined, and a gate of this name within spec.releaseAfter must know that.
		for _, name := range []string{w.B, w.Namespace + "-c"} {
			eventually(func() string { return w.Says(ctx, name) }).Should(HaveSuffix(": - - -"))
		}
		eventually(func() bool { return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(g), g)) }).Should(BeTrue())
		eventually(func() types.UID { return w.Verification(ctx, w.A).UID }).WithTimeout(61 * time.Minute).Should(BeEmpty())
	})

	It("retains a node that loses its label, with its baselines, and continues when the label returns", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace))
		w.Expect(ctx, w.A, IsVerified)
		w.Expect(ctx, w.B, IsVerified)
		uid := w.Verification(ctx, w.A).UID
		label := func(value string) {
			w.ChangeNode(ctx, w.A, func(n *corev1.Node) {
				if n.Labels[GateLabel] = value; value == "" {
					delete(n.Labels, GateLabel)
				}
			})
		}
		retained := func() string {
			if r := w.Verification(ctx, w.A).Status.Retained; r != nil {
				return r.Reason
			}
			return ""
		}
		By("a verified node, which stays as it is")
		letIn := w.LetIn(ctx, w.A)
		label("")
		eventually(retained).Should(Equal(v1alpha1.ReasonNotSelected))
		Expect(w.Says(ctx, w.A)).To(Equal(IsVerified))
		By("an upgrade meanwhile, to a kernel that is slow")
		w.SlowNode(w.A)
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, "Unverified IdentityChanged"+HeldBack)
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("Unknown NotAllVerified: 1 of 2"))
		for range 5 {
			w.Pass(11 * time.Minute)
			Expect(w.Says(ctx, w.A)).To(Equal("Unverified IdentityChanged" + HeldBack))
		}
		Expect(w.Verification(ctx, w.A).UID).To(Equal(uid))
		By("the label, which comes back: the comparison has its baseline")
		label(w.Namespace)
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		Expect(retained()).To(BeEmpty())
		second := Get(ctx, w.Benchmark(w.A, 2))
		Expect(second.Spec.Criteria.Rules).To(HaveLen(2))
		Expect(second.Status.Verdict.Baseline.Benchmark).To(Equal(w.Benchmark(w.A, 1).Name))
		Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
		By("a label that flaps")
		for range 5 {
			label("another")
			label(w.Namespace)
		}
		label("")
		eventually(retained).Should(Equal(v1alpha1.ReasonNotSelected))
		w.Pass(50 * time.Minute)
		Expect(w.Says(ctx, w.A)).To(Equal("Failed Fail" + HeldBack))
		Expect(letIn()).To(BeEmpty())
		By("the end of the retention, which begins when the manager sees the last of the changes")
		eventually(func() string { return w.Says(ctx, w.A) }).WithTimeout(12 * time.Minute).Should(Equal(": - - -"))
	})

	It("holds back a node whose LatencyVerification is deleted, and releases one that it does not select", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.SlowNode(w.A)
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.NodeSelector.MatchLabels[GateLabel] = w.Namespace }))
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		letIn := w.LetIn(ctx, w.A)
		old := w.Verification(ctx, w.A)
		Expect(k8s.Delete(ctx, old)).To(Succeed())
		eventually(func() types.UID { return w.Verification(ctx, w.A).UID }).ShouldNot(BeElementOf(types.UID(""), old.UID))
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		Expect(letIn()).To(BeEmpty())
		Expect(w.Accepted(ctx, w.A)).To(Equal("none since none"), "it had no accepted result, and began again")
		w.ChangeNode(ctx, w.A, func(n *corev1.Node) { delete(n.Labels, GateLabel) })
		eventually(func() *v1alpha1.Retention { return w.Verification(ctx, w.A).Status.Retained }).ShouldNot(BeNil())
		Expect(k8s.Delete(ctx, w.Verification(ctx, w.A))).To(Succeed())
		w.Expect(ctx, w.A, ": - - -")
	})

	DescribeTable("hands its nodes over to the next gate, and no version of the Node lets it in:",
		func(ctx SpecContext, slow bool, replace func(ctx SpecContext, w *World, older *v1alpha1.LatencyGate)) {
			w := NewGateWorld(ctx)
			w.Start()
			if slow {
				w.SlowNode(w.A)
			}
			older := w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
			w.Expect(ctx, w.A, map[bool]string{true: "Failed Fail" + HeldBack, false: IsVerified}[slow])
			// Creation times have a resolution of a second.
			w.Pass(time.Second)
			younger := MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Suspend = true })
			younger.Name = w.Namespace + "-younger"
			g := w.Gate(ctx, younger)
			eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix("False NodesTaken"))
			letIn := w.LetIn(ctx, w.A)
			replace(ctx, w, older)
			heir := &v1alpha1.LatencyVerification{}
			eventually(func() (v1alpha1.VerificationState, error) {
				err := k8s.Get(ctx, types.NamespacedName{Name: v1alpha1.VerificationName(younger.Name, w.A)}, heir)
				return heir.Status.State, err
			}).Should(Equal(v1alpha1.VerificationUnverified))
			eventually(func() string { return w.Says(ctx, w.A) }).Should(HaveSuffix(HeldBack))
			// This is longer than the older gate retains the node.
			for range 8 {
				w.Pass(10 * time.Minute)
				Expect(w.Says(ctx, w.A)).To(HaveSuffix(HeldBack))
			}
			Expect(letIn()).To(BeEmpty())
		},
		Entry("of a failed node, when it is deleted", true, func(ctx SpecContext, _ *World, older *v1alpha1.LatencyGate) {
			Expect(k8s.Delete(ctx, older)).To(Succeed())
			eventually(func() bool { return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(older), older)) }).Should(BeTrue())
		}),
		Entry("of a verified node, when it is deleted", false, func(ctx SpecContext, _ *World, older *v1alpha1.LatencyGate) {
			Expect(k8s.Delete(ctx, older)).To(Succeed())
			eventually(func() bool { return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(older), older)) }).Should(BeTrue())
		}),
		Entry("of a failed node, when its selector is edited", true, func(ctx SpecContext, w *World, older *v1alpha1.LatencyGate) {
			Edit(ctx, older, func(older *v1alpha1.LatencyGate) {
				older.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"test.tailgate.dev/none": ""}}
			})
			eventually(func() string {
				if r := w.Verification(ctx, w.A).Status.Retained; r != nil {
					return r.Reason
				}
				return ""
			}).Should(Equal(v1alpha1.ReasonTaken))
		}),
	)

	It("does not take a node of an older gate", func(ctx SpecContext) {
		w := NewGateWorld(ctx, "c")
		c := w.Namespace + "-c"
		w.Start()
		older := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) {
			s.NodeSelector.MatchLabels[NodeLabel] = w.A
			// Without other peers, a gate that is introduced to one node cannot settle.
			s.Template.Spec.Placement.Server = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{
				NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{GateLabel: w.Namespace}}}}
			s.Suspend = true
		}))
		eventually(func() string { return GateSays(ctx, older, v1alpha1.ConditionOperational) }).Should(HavePrefix("False Suspended"))
		// Creation times have a resolution of a second.
		w.Pass(time.Second)
		younger := MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Suspend = true })
		younger.Name = w.Namespace + "-younger"
		g := w.Gate(ctx, younger)
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix(
			fmt.Sprintf("False NodesTaken: LatencyGate %s has %s;", older.Name, w.A)))
		nodes := func(name string) []string {
			list := &v1alpha1.LatencyVerificationList{}
			Expect(k8s.List(ctx, list, client.MatchingFields{"spec.gateName": name})).To(Succeed())
			var all []string
			for _, v := range list.Items {
				all = append(all, v.Spec.NodeName)
			}
			return all
		}
		eventually(nodes).WithArguments(g.Name).Should(ConsistOf(w.B, c))
		Expect(nodes(older.Name)).To(ConsistOf(w.A))
		Expect(k8s.Delete(ctx, older)).To(Succeed())
		eventually(nodes).WithArguments(g.Name).Should(ConsistOf(w.A, w.B, c))
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix("False Suspended"))
		eventually(func() string { return w.Says(ctx, w.A) }).Should(HaveSuffix(HeldBack), "what is on the node is the younger's now")
	})
})
