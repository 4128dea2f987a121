package integration

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/cli"
)

// rules of admission for Nodes, as providers have them.
var (
	nodesOnly  = []string{"nodes"}
	statusOnly = []string{"nodes/status"}
)

// Policy makes the API server refuse updates of the world's nodes for which the expression is false, and returns when it does, or, with
// mutations, change them. end removes it, and returns when it has no effect any more.
func (w *World) Policy(ctx SpecContext, resources []string, expression, mutation string, active func() bool) (end func()) {
	GinkgoHelper()
	name := fmt.Sprintf("%s-%d", w.Namespace, time.Now().UnixNano())
	match := &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{"UPDATE"},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{"", v1alpha1.GroupVersion.Group}, APIVersions: []string{"*"}, Resources: resources},
		}}}}
	ours := []admissionregistrationv1.MatchCondition{{Name: "ours", Expression: fmt.Sprintf("request.name.startsWith(%q)", w.Namespace)}}
	var objects []client.Object
	if mutation == "" {
		objects = []client.Object{
			&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				FailurePolicy: new(admissionregistrationv1.Fail), MatchConstraints: match, MatchConditions: ours,
				Validations: []admissionregistrationv1.Validation{{Expression: expression, Message: "the node pool manages this"}},
			}},
			&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{"Deny"}}},
		}
	} else {
		ours = append(ours, admissionregistrationv1.MatchCondition{Name: "has", Expression: expression})
		objects = []client.Object{
			&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
				FailurePolicy: new(admissionregistrationv1.Fail), ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy, MatchConstraints: match, MatchConditions: ours,
				Mutations: []admissionregistrationv1.Mutation{{PatchType: admissionregistrationv1.PatchTypeJSONPatch, JSONPatch: &admissionregistrationv1.JSONPatch{Expression: mutation}}},
			}},
			&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name}},
		}
	}
	for _, o := range objects {
		Expect(k8s.Create(ctx, o)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, o))).To(Succeed()) })
	}
	Eventually(active).Should(BeTrue())
	return func() {
		GinkgoHelper()
		for _, o := range objects {
			Expect(k8s.Delete(ctx, o)).To(Succeed())
		}
		Eventually(active).Should(BeFalse())
	}
}

// dry returns the result of an update of a Node that is only tried.
func dry(ctx context.Context, name string, status bool, change func(*corev1.Node)) (*corev1.Node, error) {
	n := &corev1.Node{}
	if err := k8s.Get(ctx, types.NamespacedName{Name: name}, n); err != nil {
		return nil, err
	}
	change(n)
	if status {
		return n, k8s.Status().Update(ctx, n, &client.SubResourceUpdateOptions{UpdateOptions: client.UpdateOptions{DryRun: []string{metav1.DryRunAll}}})
	}
	return n, k8s.Update(ctx, n, client.DryRunAll)
}

// gateExit returns the exit code and the output of kubectl tailgate gate.
func gateExit(ctx context.Context, kubeconfig string, args ...string) (int, string) {
	var out bytes.Buffer
	code := cli.Run(ctx, append([]string{"gate", "--kubeconfig", kubeconfig}, args...), &out, &out)
	return code, out.String()
}

// tainted adds a taint of the gate's key, as the gate does.
func tainted(n *corev1.Node) {
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: v1alpha1.NodeTaintUnverified, Effect: corev1.TaintEffectNoSchedule})
}

const noTaints = `!has(object.spec.taints) || object.spec.taints.all(t, t.key != 'tailgate.dev/latency-unverified')`

var _ = Describe("A gate whose marks are refused", func() {
	DescribeTable("holds a changed node back with all others, and says so within a moment:",
		func(ctx SpecContext, resources []string, expression string, tried func(*corev1.Node), says, mark string) {
			w := NewGateWorld(ctx)
			w.Start()
			g := w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.HoldPod = &v1alpha1.GateHoldPod{} }))
			w.Expect(ctx, w.A, isVerified)
			end := w.Policy(ctx, resources, expression, "", func() bool {
				_, err := dry(ctx, w.A, resources[0] == statusOnly[0], tried)
				return err != nil && strings.Contains(err.Error(), "the node pool manages this")
			})
			w.SlowNode(w.A)
			// Not the kernel and the boot, which a policy on the status may concern: a label of the identity.
			w.ChangeNodeStatus(ctx, w.A, func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.3" })
			Eventually(func() string { return w.Says(ctx, w.A) }).Should(HaveSuffix(says))
			Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(And(HavePrefix("False NodeRefused: 1 nodes: "), ContainSubstring("the node pool manages this")))
			code, output := gateExit(ctx, adminKubeconfig(w.Namespace), "lgate/"+g.Name)
			Expect(code).To(Equal(2), output)
			code, body, err := call(http.MethodPost, Verdicts()+"/verdict/latencygates/"+g.Name+"/nodes/"+w.A, adminToken)
			Expect(err).NotTo(HaveOccurred())
			Expect(code).To(Equal(http.StatusPreconditionFailed), body)
			Eventually(func() []string {
				list := &eventsv1.EventList{}
				Expect(k8s.List(ctx, list)).To(Succeed())
				var all []string
				for _, e := range list.Items {
					if e.Regarding.Kind == "Node" && e.Regarding.Name == w.A {
						all = append(all, e.Type+" "+e.Reason+" "+e.Action+": "+e.Note)
					}
				}
				return all
			}).Should(ContainElement(And(HavePrefix("Warning NodeRefused Mark"+mark), ContainSubstring("the node pool manages this"))))
			pods := &corev1.PodList{}
			Eventually(func() bool {
				Expect(k8s.List(ctx, pods, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelHold: "true"})).To(Succeed())
				return len(pods.Items) == 1 && pods.Items[0].Labels[v1alpha1.NodeLabelVerified] == "false"
			}).Should(BeTrue(), "the hold pod holds the node back")
			By("the end of the refusal, at most a minute later")
			letIn := w.LetIn(ctx, w.A)
			end()
			ended := time.Now()
			Eventually(func() string { return w.Says(ctx, w.A) }).Should(HaveSuffix(heldBack))
			AddReportEntry(fmt.Sprintf("%s: held back by all marks %s after the end of the refusal", mark, time.Since(ended).Round(time.Second)))
			Expect(time.Since(ended)).To(BeNumerically("<", 100*time.Second))
			w.Expect(ctx, w.A, "Failed Fail"+heldBack)
			Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix("True Operational"))
			Expect(letIn()).To(BeEmpty())
		},
		Entry("the taint", nodesOnly, noTaints, tainted, ": False false -", "Taint"),
		Entry("the label", nodesOnly, `object.metadata.labels[?"tailgate.dev/latency-verified"].orValue("") != "false"`,
			func(n *corev1.Node) { n.Labels[v1alpha1.NodeLabelVerified] = "false" }, ": False true NoSchedule", "Label"),
		Entry("the status", statusOnly, `object.status.conditions.all(c, c.type != "tailgate.dev/LatencyVerified" || c.status == "True")`,
			func(n *corev1.Node) {
				for i := range n.Status.Conditions {
					n.Status.Conditions[i].Status = corev1.ConditionFalse
				}
			}, ": True false NoSchedule", "Condition"),
	)

	It("holds a changed node back although its state cannot be written", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, isVerified)
		end := w.Policy(ctx, []string{"latencyverifications/status"}, `has(object.status.state) && object.status.state == "Verified"`, "", func() bool {
			v := w.Verification(ctx, w.A)
			v.Status.State = v1alpha1.VerificationUnverified
			return k8s.Status().Update(ctx, v, &client.SubResourceUpdateOptions{UpdateOptions: client.UpdateOptions{DryRun: []string{metav1.DryRunAll}}}) != nil
		})
		w.SlowNode(w.A)
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, "Verified Passed"+heldBack)
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("Unknown NotAllVerified: 1 of 1"))
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix("False VerificationRefused: "))
		code, output := gateExit(ctx, adminKubeconfig(w.Namespace), "lgate/"+g.Name)
		Expect(code).To(Equal(2), output)
		letIn := w.LetIn(ctx, w.A)
		end()
		w.Expect(ctx, w.A, "Failed Fail"+heldBack)
		Expect(letIn()).To(BeEmpty())
	})

	It("is dropped by a mutating policy or not deleted, and says why", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, isVerified)
		drops := w.Policy(ctx, nodesOnly, "has(object.spec.taints) && object.spec.taints.exists(t, t.key == 'tailgate.dev/latency-unverified')",
			"[JSONPatch{op: 'replace', path: '/spec/taints', value: object.spec.taints.filter(t, t.key != 'tailgate.dev/latency-unverified')}]", func() bool {
				n, err := dry(ctx, w.A, false, tainted)
				return err == nil && len(n.Spec.Taints) == 0
			})
		w.SlowNode(w.A)
		w.Upgrade(ctx, w.A, "6.2.0")
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix("False NodeWriteDropped: 1 nodes: taint of node " + w.A))
		Expect(w.Says(ctx, w.A)).To(Equal("Unverified IdentityChanged: False false -"))
		drops()
		w.Expect(ctx, w.A, "Failed Fail"+heldBack)
		By("the deletion of a gate that may not clean up")
		refuses := w.Policy(ctx, nodesOnly, `has(object.spec.taints)`, "", func() bool {
			_, err := dry(ctx, w.A, false, func(n *corev1.Node) { n.Spec.Taints = nil })
			return err != nil && strings.Contains(err.Error(), "the node pool manages this")
		})
		Expect(k8s.Delete(ctx, g)).To(Succeed())
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(And(HavePrefix("False NodeRefused: 1 nodes cannot be released: "), ContainSubstring("the node pool manages this")))
		refuses()
		Eventually(func() bool { return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(g), g)) }).Should(BeTrue())
		Expect(w.Says(ctx, w.A)).To(HaveSuffix(": - - -"))
	})

	It("writes no more than a few times a minute against another client, and says which", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Suspend = true }))
		w.Expect(ctx, w.A, "Unverified NewNode"+heldBack)
		var stripped atomic.Int64
		stop := follow(ctx, &corev1.NodeList{}, func(_ watch.EventType, o client.Object) {
			if n := o.(*corev1.Node); len(n.Spec.Taints) > 0 && n.Spec.Taints[len(n.Spec.Taints)-1].Key == v1alpha1.NodeTaintUnverified {
				n.Spec.Taints = []corev1.Taint{{Key: "srcdst", Value: fmt.Sprint(stripped.Load()), Effect: corev1.TaintEffectPreferNoSchedule}}
				if k8s.Update(context.WithoutCancel(ctx), n, client.FieldOwner("srcdst")) == nil {
					stripped.Add(1)
				}
			}
		}, client.MatchingFields{"metadata.name": w.A})
		says := map[string]bool{}
		// The gate gives up soon, and a busy machine takes longer until then.
		began := time.Now()
		for time.Since(began) < 20*time.Second || stripped.Load() <= 5 && time.Since(began) < 3*time.Minute {
			time.Sleep(20 * time.Millisecond)
			says[gateSays(ctx, g, v1alpha1.ConditionOperational)] = true
		}
		stop()
		AddReportEntry(fmt.Sprintf("another client removed the taint %d times in %s", stripped.Load(), time.Since(began).Round(time.Second)))
		Expect(stripped.Load()).To(And(BeNumerically(">", 5), BeNumerically("<", 15)))
		Expect(says).To(HaveKey(And(HavePrefix("False NodeContested: 1 nodes: "), ContainSubstring("srcdst"))))
		// When it stops, the node is held back as before.
		w.Expect(ctx, w.A, "Unverified NewNode"+heldBack)
	})
})

var _ = Describe("A gate that loses a node", func() {
	// slower makes node a 25 % slower: more than the baseline allows, and less than the absolute limit.
	slower := func(w *World) {
		w.SamplesFrom(func(b *v1alpha1.LatencyBenchmark) int64 {
			if p := b.Status.Pair; p != nil && (p.ClientNode == w.A || p.ServerNode == w.A) {
				return 13_000
			}
			return 10_000
		})
	}
	failed := func(ctx SpecContext) (*World, *v1alpha1.LatencyGate) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace))
		w.Expect(ctx, w.A, isVerified)
		w.Expect(ctx, w.B, isVerified)
		slower(w)
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, "Failed Fail"+heldBack)
		return w, g
	}
	again := func(ctx SpecContext, w *World, label bool) {
		Expect(k8s.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.A}})).To(Succeed())
		n := MakeNode(w.A)
		identified(&n.Node)
		n.Status.NodeInfo.KernelVersion, n.Status.NodeInfo.BootID = "6.2.0", "boot-9"
		if label {
			n.Labels[gateLabel] = w.Namespace
		}
		w.AddNode(ctx, n)
	}

	It("holds a Node back that registers again without its label, and does not forget that it failed", func(ctx SpecContext) {
		w, g := failed(ctx)
		again(ctx, w, false)
		w.Expect(ctx, w.A, "Unverified NodeReplaced"+heldBack)
		Eventually(func() *v1alpha1.Retention { return w.Verification(ctx, w.A).Status.Retained }).Should(HaveValue(HaveField("Reason", v1alpha1.ReasonNotSelected)))
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("Unknown NotAllVerified: 1 of 2"))
		code, output := gateExit(ctx, adminKubeconfig(w.Namespace), "lgate/"+g.Name)
		Expect(code).To(Equal(2), output)
		w.Look(ctx, w.A, 50*time.Minute)
		Expect(w.Says(ctx, w.A)).To(Equal("Unverified NodeReplaced" + heldBack))
		w.Clock.ahead.Store(0)
		By("the label, which comes back")
		letIn := w.LetIn(ctx, w.A)
		w.ChangeNode(ctx, w.A, func(n *corev1.Node) { n.Labels[gateLabel] = w.Namespace })
		w.Expect(ctx, w.A, "Failed Fail"+heldBack)
		Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
		By("the Node again, with its label")
		again(ctx, w, true)
		Eventually(func() string { return w.Verification(ctx, w.A).Status.NodeUID }).ShouldNot(BeEmpty())
		w.Expect(ctx, w.A, "Failed Fail"+heldBack)
		Expect(letIn()).To(BeEmpty())
		Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
	})

	It("does not forget a Fail when a tool replaces the gate by force, or a user deletes the LatencyVerification", func(ctx SpecContext) {
		w, g := failed(ctx)
		By("a forced replacement of the gate")
		again := MakeGate(w.Namespace)
		Expect(k8s.Delete(ctx, g)).To(Succeed())
		Eventually(func() bool { return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(g), g)) }).Should(BeTrue())
		for _, node := range []string{w.A, w.B} {
			Expect(w.Says(ctx, node)).To(Equal("Unverified GateDeleted: - - -"))
			Expect(w.Verification(ctx, node).Finalizers).To(BeEmpty(), "without a manager, it can be deleted")
		}
		w.Gate(ctx, again)
		w.Expect(ctx, w.A, "Failed Fail"+heldBack)
		Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
		By("a deletion of the LatencyVerification")
		letIn := w.LetIn(ctx, w.A)
		Expect(k8s.Delete(ctx, w.Verification(ctx, w.A))).To(Succeed())
		Eventually(func() []metav1.Condition { return w.Verification(ctx, w.A).Status.Conditions }).Should(ContainElement(And(
			HaveField("Type", v1alpha1.ConditionDeletable), HaveField("Status", metav1.ConditionFalse))))
		w.Annotate(ctx, w.A, v1alpha1.AnnotationVerify, "")
		Eventually(func() []string { return w.History(ctx, w.A) }).Should(HaveLen(3))
		w.Expect(ctx, w.A, "Failed Fail"+heldBack)
		Expect(letIn()).To(BeEmpty())
		By("a node that passes: the deletion happens, and the node is measured as a new one")
		uid := w.Verification(ctx, w.A).UID
		w.Kubelet.Agents(nil)
		w.Annotate(ctx, w.A, v1alpha1.AnnotationVerify, "")
		Eventually(func() types.UID { return w.Verification(ctx, w.A).UID }).ShouldNot(BeElementOf(types.UID(""), uid))
		w.Expect(ctx, w.A, isVerified)
		By("a deletion of the gate, and no other one")
		Expect(k8s.Delete(ctx, again.Obj())).To(Succeed())
		Eventually(func() string { return w.Says(ctx, w.B) }).Should(Equal("Unverified GateDeleted: - - -"))
		Eventually(func() string {
			w.Pass(ctx, w.B, 20*time.Minute)
			return w.Says(ctx, w.B)
		}).Should(Equal(": - - -"), "after spec.releaseAfter nothing is left")
	})

	It("passes for no reader while a verified node is not ready, and again when it returns unchanged", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		m := w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.Taint.Effect = corev1.TaintEffectNoExecute }))
		w.Expect(ctx, w.A, isVerified)
		w.Expect(ctx, w.B, isVerified)
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("True AllVerified"))
		ready := func(status corev1.ConditionStatus, reason string) {
			w.ChangeNodeStatus(ctx, w.A, func(n *corev1.Node) {
				for i := range n.Status.Conditions {
					if n.Status.Conditions[i].Type == corev1.NodeReady {
						n.Status.Conditions[i].Status, n.Status.Conditions[i].Reason = status, reason
					}
				}
			})
		}
		base, kubeconfig := Verdicts(), adminKubeconfig(w.Namespace)
		ready(corev1.ConditionUnknown, "NodeStatusUnknown")
		w.Expect(ctx, w.A, "Verified NodeNotReady: Unknown false -")
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("Unknown NodesNotReady: 1 of 2"))
		code, output := gateExit(ctx, kubeconfig, "lgate/"+g.Name)
		Expect(code).To(Equal(2), output)
		code, output = gateExit(ctx, kubeconfig, "lgate/"+g.Name, "--wait", "--timeout=3s")
		Expect(code).To(Equal(3), output)
		for _, path := range []string{"", "/nodes/" + w.A} {
			code, body, err := call(http.MethodPost, base+"/verdict/latencygates/"+g.Name+path, adminToken)
			Expect(err).NotTo(HaveOccurred())
			Expect(code).To(Equal(http.StatusPreconditionFailed), body)
			Expect(body).To(ContainSubstring(`"verdict":"Pending"`))
		}
		Eventually(func() []string { return scrape(m.Metrics) }).Should(ContainElements(
			fmt.Sprintf(`tailgate_gate_passed{gate=%q} 0`, g.Name), fmt.Sprintf(`tailgate_node_verified{gate=%q,node=%q} 0`, g.Name, w.A)))
		ready(corev1.ConditionTrue, "KubeletReady")
		w.Expect(ctx, w.A, isVerified)
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("True AllVerified"))
		Expect(w.Benchmarks(ctx, w.A)).To(ConsistOf("-1"), "it was not measured again")
	})

	It("keeps the taint with which a kubelet registered until the node is verified, whatever it enforces", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.ChangeNode(ctx, w.A, tainted)
		w.Start()
		w.SlowNode(w.A)
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.Taint = nil }))
		letIn := w.LetIn(ctx, w.A)
		w.Expect(ctx, w.A, "Failed Fail: False false NoSchedule")
		Expect(letIn()).To(BeEmpty())
		w.Kubelet.Agents(nil)
		w.Annotate(ctx, w.A, v1alpha1.AnnotationVerify, "")
		w.Expect(ctx, w.A, isVerified)
	})
})
