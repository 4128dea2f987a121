package driven

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// refuse makes the API server refuse the requests about objects of a type for which a condition holds, as a policy of admission does.
func refuse[O client.Object](w *World, verb func(string) bool, when func(O) bool) (end func()) {
	return w.Store.Admit(func(r Request) error {
		if o, ok := r.Object.(O); ok && verb(r.Verb) && when(o) {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, o.GetName(), errors.New("ValidatingAdmissionPolicy denied request: the node pool manages this"))
		}
		return nil
	})
}

func ofObjects(verb string) bool { return verb == "update" || verb == "patch" }

func ofStatus(verb string) bool { return verb == "status" }

func isTainted(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.NodeTaintUnverified })
}

var _ = Describe("A gate whose marks are refused", func() {
	DescribeTable("holds a changed node back with all others, and says so within a moment:",
		func(ctx SpecContext, verb func(string) bool, refused func(*corev1.Node) bool, says, mark string) {
			w := NewGateWorld(ctx)
			w.HoldsBackWithout(ctx, mark, says, func() func() { return refuse(w, verb, refused) }, func(g *v1alpha1.LatencyGate) {
				expectOpen(ctx, g)
				code, body := call(http.MethodPost, "/verdict/latencygates/"+g.Name+"/nodes/"+w.A)
				Expect(code).To(Equal(http.StatusPreconditionFailed), body)
			})
		},
		Entry("the taint", ofObjects, isTainted, ": False false -", "Taint"),
		Entry("the label", ofObjects, func(n *corev1.Node) bool { return n.Labels[v1alpha1.NodeLabelVerified] == "false" }, ": False true NoSchedule", "Label"),
		Entry("the status", ofStatus, func(n *corev1.Node) bool {
			return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
				return c.Type == v1alpha1.NodeConditionVerified && c.Status != corev1.ConditionTrue
			})
		}, ": True false NoSchedule", "Condition"),
	)

	It("holds a changed node back although its state cannot be written", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, IsVerified)
		end := refuse(w, ofStatus, func(v *v1alpha1.LatencyVerification) bool { return v.Status.State != v1alpha1.VerificationVerified })
		w.SlowNode(w.A)
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, "Verified Passed"+HeldBack)
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("Unknown NotAllVerified: 1 of 1"))
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix("False VerificationRefused: "))
		expectOpen(ctx, g)
		letIn := w.LetIn(ctx, w.A)
		end()
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		Expect(letIn()).To(BeEmpty())
	})

	It("is dropped by a mutating policy or not deleted, and says why", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.SaysWhatIsDropped(ctx, func() func() {
			return w.Store.Admit(func(r Request) error {
				if n, ok := r.Object.(*corev1.Node); ok && ofObjects(r.Verb) {
					n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.NodeTaintUnverified })
				}
				return nil
			})
		}, func() func() {
			return refuse(w, ofObjects, func(n *corev1.Node) bool { return len(n.Spec.Taints) == 0 })
		})
	})

	It("writes no more than a few times a minute against another client, and says which", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Suspend = true }))
		w.Expect(ctx, w.A, "Unverified NewNode"+HeldBack)
		stripped, active := 0, true
		other := w.Store.Client("srcdst")
		w.Actors = append(w.Actors, func(time.Time) (bool, time.Time) {
			n := Get(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.A}})
			if !active || len(n.Spec.Taints) == 0 || n.Spec.Taints[len(n.Spec.Taints)-1].Key != v1alpha1.NodeTaintUnverified {
				return false, time.Time{}
			}
			stripped++
			n.Spec.Taints = []corev1.Taint{{Key: "srcdst", Value: fmt.Sprint(stripped), Effect: corev1.TaintEffectPreferNoSchedule}}
			Expect(other.Update(ctx, n)).To(Succeed())
			return true, time.Time{}
		})
		says := map[string]bool{}
		consistently(func() bool { says[GateSays(ctx, g, v1alpha1.ConditionOperational)] = true; return true }, time.Minute).Should(BeTrue())
		AddReportEntry(fmt.Sprintf("another client removed the taint %d times in a minute", stripped))
		Expect(stripped).To(And(BeNumerically(">", 5), BeNumerically("<", 15)))
		Expect(says).To(HaveKey(And(HavePrefix("False NodeContested: 1 nodes: "), ContainSubstring("srcdst"))))
		active = false
		w.ChangeNode(ctx, w.A, func(n *corev1.Node) { n.Spec.Taints = nil })
		// When it stops, the node is held back as before.
		w.Expect(ctx, w.A, "Unverified NewNode"+HeldBack)
	})
})

var _ = Describe("A gate that loses a node", func() {
	// slower makes node a 50 % slower: more than the baseline allows, also in a small gate where a Fail must be certain, and less than the absolute limit.
	slower := func(w *World) {
		w.SamplesFrom(func(b *v1alpha1.LatencyBenchmark) int64 {
			if p := b.Status.Pair; p != nil && (p.ClientNode == w.A || p.ServerNode == w.A) {
				return 15_000
			}
			return 10_000
		})
	}
	failed := func(ctx SpecContext) (*World, *v1alpha1.LatencyGate) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace))
		w.Expect(ctx, w.A, IsVerified)
		w.Expect(ctx, w.B, IsVerified)
		slower(w)
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		return w, g
	}
	again := func(ctx SpecContext, w *World, label bool) {
		Expect(k8s.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.A}})).To(Succeed())
		n := MakeNode(w.A)
		Identified(&n.Node)
		n.Status.NodeInfo.KernelVersion, n.Status.NodeInfo.BootID = "6.2.0", "boot-9"
		if label {
			n.Labels[GateLabel] = w.Namespace
		}
		w.AddNode(ctx, n)
	}

	It("holds a Node back that registers again without its label, and does not forget that it failed", func(ctx SpecContext) {
		w, g := failed(ctx)
		again(ctx, w, false)
		w.Expect(ctx, w.A, "Unverified NodeReplaced"+HeldBack)
		eventually(func() *v1alpha1.Retention { return w.Verification(ctx, w.A).Status.Retained }).Should(HaveValue(HaveField("Reason", v1alpha1.ReasonNotSelected)))
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("Unknown NotAllVerified: 1 of 2"))
		expectOpen(ctx, g)
		w.Pass(50 * time.Minute)
		Expect(w.Says(ctx, w.A)).To(Equal("Unverified NodeReplaced" + HeldBack))
		By("the label, which comes back")
		letIn := w.LetIn(ctx, w.A)
		w.ChangeNode(ctx, w.A, func(n *corev1.Node) { n.Labels[GateLabel] = w.Namespace })
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
		By("the Node again, with its label")
		again(ctx, w, true)
		eventually(func() string { return w.Verification(ctx, w.A).Status.NodeUID }).ShouldNot(BeEmpty())
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		Expect(letIn()).To(BeEmpty())
		Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
	})

	It("does not forget a Fail when a tool replaces the gate by force, or a user deletes the LatencyVerification", func(ctx SpecContext) {
		w, g := failed(ctx)
		By("a forced replacement of the gate")
		again := MakeGate(w.Namespace)
		Expect(k8s.Delete(ctx, g)).To(Succeed())
		eventually(func() bool { return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(g), g)) }).Should(BeTrue())
		for _, node := range []string{w.A, w.B} {
			Expect(w.Says(ctx, node)).To(Equal("Unverified GateDeleted: - - -"))
			Expect(w.Verification(ctx, node).Finalizers).To(BeEmpty(), "without a manager, it can be deleted")
		}
		w.Gate(ctx, again)
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
		By("a deletion of the LatencyVerification")
		letIn := w.LetIn(ctx, w.A)
		Expect(k8s.Delete(ctx, w.Verification(ctx, w.A))).To(Succeed())
		eventually(func() []metav1.Condition { return w.Verification(ctx, w.A).Status.Conditions }).Should(ContainElement(And(
			HaveField("Type", v1alpha1.ConditionDeletable), HaveField("Status", metav1.ConditionFalse))))
		w.AskVerify(ctx, w.A)
		eventually(func() []string { return w.History(ctx, w.A) }).Should(HaveLen(3))
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		Expect(letIn()).To(BeEmpty())
		By("a node that passes: the deletion happens, and the node is measured as a new one")
		uid := w.Verification(ctx, w.A).UID
		w.Kubelet.Agents(nil)
		w.AskVerify(ctx, w.A)
		eventually(func() types.UID { return w.Verification(ctx, w.A).UID }).ShouldNot(BeElementOf(types.UID(""), uid))
		w.Expect(ctx, w.A, IsVerified)
		By("a deletion of the gate, and no other one")
		Expect(k8s.Delete(ctx, again.Obj())).To(Succeed())
		eventually(func() string { return w.Says(ctx, w.B) }).Should(Equal("Unverified GateDeleted: - - -"))
		eventually(func() string { return w.Says(ctx, w.B) }).WithTimeout(2*time.Hour).Should(Equal(": - - -"), "after spec.releaseAfter nothing is left")
	})

	It("passes for no reader while a verified node is not ready, and again when it returns unchanged", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		m := w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.Taint.Effect = corev1.TaintEffectNoExecute }))
		w.Expect(ctx, w.A, IsVerified)
		w.Expect(ctx, w.B, IsVerified)
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("True AllVerified"))
		ready := func(status corev1.ConditionStatus, reason string) {
			w.ChangeNodeStatus(ctx, w.A, func(n *corev1.Node) {
				for i := range n.Status.Conditions {
					if n.Status.Conditions[i].Type == corev1.NodeReady {
						n.Status.Conditions[i].Status, n.Status.Conditions[i].Reason = status, reason
					}
				}
			})
		}
		ready(corev1.ConditionUnknown, "NodeStatusUnknown")
		w.Expect(ctx, w.A, "Away NodeNotReady: Unknown false -")
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("Unknown NodesNotReady: 1 of 2"))
		Expect(expectOpen(ctx, g).Open).To(BeTrue(), "gate --wait goes on until its timeout")
		for _, path := range []string{"", "/nodes/" + w.A} {
			code, body := call(http.MethodPost, "/verdict/latencygates/"+g.Name+path)
			Expect(code).To(Equal(http.StatusPreconditionFailed), body)
			Expect(body).To(ContainSubstring(`"verdict":"Pending"`))
		}
		eventually(func() []string { return Scrape(m.Metrics) }).Should(ContainElements(
			fmt.Sprintf(`tailgate_gate_passed{gate=%q} 0`, g.Name), fmt.Sprintf(`tailgate_node_verified{gate=%q,node=%q} 0`, g.Name, w.A)))
		ready(corev1.ConditionTrue, "KubeletReady")
		w.Expect(ctx, w.A, IsVerified)
		eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("True AllVerified"))
		Expect(w.Benchmarks(ctx, w.A)).To(ConsistOf("-1"), "it was not measured again")
	})

	It("keeps the taint with which a kubelet registered until the node is verified, whatever it enforces", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.ChangeNode(ctx, w.A, Tainted)
		w.Start()
		w.SlowNode(w.A)
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.Taint = nil }))
		letIn := w.LetIn(ctx, w.A)
		w.Expect(ctx, w.A, "Failed Fail: False false NoSchedule")
		Expect(letIn()).To(BeEmpty())
		w.Kubelet.Agents(nil)
		w.AskVerify(ctx, w.A)
		w.Expect(ctx, w.A, IsVerified)
	})
})
