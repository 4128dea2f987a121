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
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/cli"
	. "github.com/tailgate-dev/tailgate/test/specs"
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

const noTaints = `!has(object.spec.taints) || object.spec.taints.all(t, t.key != 'tailgate.dev/latency-unverified')`

// writes returns a death at a write of a verb to a matching object.
func writes(verb string, of func(client.Object) bool) death {
	return func(v string, object client.Object) bool { return v == verb && of(object) }
}

// The specs of gates are in test/driven. Those that are here, too, show that the watches, rights and caches of a real manager, and
// policies of admission, do at a real API server what the driven world assumes.
var _ = Describe("A gate at an API server", func() {
	isNode := func(o client.Object) bool { _, ok := o.(*corev1.Node); return ok }

	It("holds a node back until it has passed, and again when it has changed", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace))
		w.Expect(ctx, w.A, IsVerified)
		w.Expect(ctx, w.B, IsVerified)
		Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
		Eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(Equal("True AllVerified: all 2 nodes are verified"))
		first := Get(ctx, w.Benchmark(w.A, 1))
		Expect(first.Spec.Criteria.Rules).To(HaveLen(1), "there was nothing to compare with")
		Expect(*first.Status.Pair).To(Equal(v1alpha1.Pair{ClientNode: w.A, ServerNode: w.B}))

		By("an upgrade of a node")
		w.Upgrade(ctx, w.A, "6.2.0")
		Eventually(func() string { return w.Says(ctx, w.A) }).Should(HaveSuffix(HeldBack))
		Eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("Unknown NotAllVerified: 1 of 2 nodes are not verified: " + w.A))
		w.Expect(ctx, w.A, IsVerified)
		Expect(w.Accepted(ctx, w.A)).To(Equal("-2 since -1"))
		second := Get(ctx, w.Benchmark(w.A, 2))
		Expect(second.Spec.Criteria.Rules).To(HaveLen(2))
		Expect(second.Spec.Rounds).To(Equal(first.Spec.Rounds/2), "the first session of a reference has twice as many rounds")
		Expect(second.Spec.Criteria.Baseline.Gate.Name).To(Equal(g.Name))
		Expect(second.Status.Verdict.Baseline.Benchmark).To(Equal(first.Name))
		Expect(second.Spec.Criteria.IgnoreDifferences).To(BeEmpty(), "the peer is the same")
		status := w.Verification(ctx, w.A).Status
		Expect(status.Verified().Reason).To(Equal(v1alpha1.ReasonProvisional))
		Expect(status.Verified().Message).To(ContainSubstring("its reference is one boot"))
		Expect(second.Status.Verdict.Rules[1].Message).To(ContainSubstring("of 1 boots, which differ by SD"))
		Expect(status.Reference).To(HaveLen(2))
		for i, kernel := range []string{"6.1.0", "6.2.0"} {
			Expect(status.Recent[i].Identity).To(And(HaveKeyWithValue("Kernel", kernel), Not(HaveKey("BootID"))))
			Expect(status.Recent[i].Accepted).To(BeTrue())
		}
		Eventually(func() int32 {
			current := &v1alpha1.LatencyGate{}
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(g), current)).To(Succeed())
			return current.Status.Spread[0].Differences
		}).Should(BeEquivalentTo(1))
		Expect(status.Identity).To(HaveKeyWithValue("Kernel", "6.2.0"))
		Expect(status.Accepted.Identity).To(Equal(status.Identity))
		Expect(w.Benchmarks(ctx, w.B)).To(ConsistOf("-1"), "the other node was left alone")

		By("looks at what has not changed: the controllers write nothing")
		version := w.Verification(ctx, w.A).ResourceVersion
		w.Stays(ctx, w.A, IsVerified)
		Expect(w.Verification(ctx, w.A).ResourceVersion).To(Equal(version))
	})

	DescribeTable("never lets a slow node in, when its manager dies",
		func(ctx SpecContext, dies death) {
			w := NewGateWorld(ctx)
			var armed atomic.Bool
			first := w.Start(func(verb string, o client.Object) bool { return armed.Load() && dies(verb, o) })
			w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
			w.Expect(ctx, w.A, IsVerified)
			w.SlowNode(w.A)
			letIn := w.LetIn(ctx, w.A)
			armed.Store(true)
			w.Upgrade(ctx, w.A, "6.2.0")
			Eventually(first.client.dead.Load).Should(BeTrue())
			first.Stop()
			w.Start()
			w.Expect(ctx, w.A, "Failed Fail"+HeldBack, w.Benchmark(w.A, 2))
			Expect(letIn()).To(BeEmpty())
			Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
		},
		Entry("setting its condition", writes("status", isNode)),
		Entry("judging", notes(func(s v1alpha1.LatencyBenchmarkStatus) bool { return s.Verdict != nil })),
	)

	DescribeTable("holds a changed node back with all others, and says so within a moment:",
		func(ctx SpecContext, resources []string, expression string, tried func(*corev1.Node), says, mark string) {
			w := NewGateWorld(ctx)
			w.Start()
			g := w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.HoldPod = &v1alpha1.GateHoldPod{} }))
			w.Expect(ctx, w.A, IsVerified)
			end := w.Policy(ctx, resources, expression, "", func() bool {
				_, err := dry(ctx, w.A, resources[0] == statusOnly[0], tried)
				return err != nil && strings.Contains(err.Error(), "the node pool manages this")
			})
			w.SlowNode(w.A)
			// Not the kernel and the boot, which a policy on the status may concern: a label of the identity.
			w.ChangeNodeStatus(ctx, w.A, func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.36.3" })
			Eventually(func() string { return w.Says(ctx, w.A) }).Should(HaveSuffix(says))
			Eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(And(HavePrefix("False NodeRefused: 1 nodes: "), ContainSubstring("the node pool manages this")))
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
			Eventually(func() string { return w.Says(ctx, w.A) }).Should(HaveSuffix(HeldBack))
			AddReportEntry(fmt.Sprintf("%s: held back by all marks %s after the end of the refusal", mark, time.Since(ended).Round(time.Second)))
			Expect(time.Since(ended)).To(BeNumerically("<", 100*time.Second))
			w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
			Eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix("True Operational"))
			Expect(letIn()).To(BeEmpty())
		},
		Entry("the taint", nodesOnly, noTaints, Tainted, ": False false -", "Taint"),
	)

	It("is dropped by a mutating policy or not deleted, and says why", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, IsVerified)
		drops := w.Policy(ctx, nodesOnly, "has(object.spec.taints) && object.spec.taints.exists(t, t.key == 'tailgate.dev/latency-unverified')",
			"[JSONPatch{op: 'replace', path: '/spec/taints', value: object.spec.taints.filter(t, t.key != 'tailgate.dev/latency-unverified')}]", func() bool {
				n, err := dry(ctx, w.A, false, Tainted)
				return err == nil && len(n.Spec.Taints) == 0
			})
		w.SlowNode(w.A)
		w.Upgrade(ctx, w.A, "6.2.0")
		Eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix("False NodeWriteDropped: 1 nodes: taint of node " + w.A))
		Expect(w.Says(ctx, w.A)).To(Equal("Unverified IdentityChanged: False false -"))
		drops()
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		By("the deletion of a gate that may not clean up")
		refuses := w.Policy(ctx, nodesOnly, `has(object.spec.taints)`, "", func() bool {
			_, err := dry(ctx, w.A, false, func(n *corev1.Node) { n.Spec.Taints = nil })
			return err != nil && strings.Contains(err.Error(), "the node pool manages this")
		})
		Expect(k8s.Delete(ctx, g)).To(Succeed())
		Eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(And(HavePrefix("False NodeRefused: 1 nodes cannot be released: "), ContainSubstring("the node pool manages this")))
		refuses()
		Eventually(func() bool { return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(g), g)) }).Should(BeTrue())
		Expect(w.Says(ctx, w.A)).To(HaveSuffix(": - - -"))
	})

	It("forgets a deleted node and its results after spec.releaseAfter", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace))
		w.Expect(ctx, w.A, IsVerified)
		w.Expect(ctx, w.B, IsVerified)
		uid := w.Verification(ctx, w.A).UID
		w.SlowNode(w.A)
		Expect(k8s.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.A}})).To(Succeed())
		Eventually(func() v1alpha1.VerificationState { return w.Verification(ctx, w.A).Status.State }).Should(Equal(v1alpha1.VerificationUnverified))
		Eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(Equal("True AllVerified: all 1 nodes are verified"))
		w.Clock.ahead.Add(int64(61 * time.Minute))
		w.Annotate(ctx, w.A, "test.tailgate.dev/woken", "")
		Eventually(func() types.UID { return w.Verification(ctx, w.A).UID }).Should(BeEmpty())
		w.Clock.ahead.Store(0)
		// No garbage collector deletes the benchmark here. The benchmark of the new node is still another one.
		w.AddGateNode(ctx, w.A)
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		Expect(w.Verification(ctx, w.A).UID).NotTo(Equal(uid))
		Expect(w.Accepted(ctx, w.A)).To(Equal("none since none"))
	})

	It("keeps a budget over the hold pods, which follows the number of nodes, and leaves that of another owner alone", func(ctx SpecContext) {
		w := NewGateWorld(ctx, "c")
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) {
			s.Enforcement.HoldPod = &v1alpha1.GateHoldPod{Budget: &v1alpha1.GateBudget{}}
		}))
		budget := &policyv1.PodDisruptionBudget{}
		name := client.ObjectKey{Namespace: w.Namespace, Name: "tailgate-hold-" + g.Name}
		least := func() string {
			if err := k8s.Get(ctx, name, budget); err != nil {
				return string(apierrors.ReasonForError(err))
			}
			return fmt.Sprintf("%s %s", budget.Spec.MinAvailable, *budget.Spec.UnhealthyPodEvictionPolicy)
		}
		By("one of three nodes may be drained")
		Eventually(least).Should(Equal("2 AlwaysAllow"))
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func(g Gomega) {
			held := &corev1.PodList{}
			g.Expect(k8s.List(ctx, held, client.InNamespace(w.Namespace), client.MatchingLabelsSelector{Selector: selector})).To(Succeed())
			g.Expect(held.Items).To(HaveLen(3))
		}).Should(Succeed())
		By("a node leaves")
		w.ChangeNode(ctx, w.Namespace+"-c", func(n *corev1.Node) { delete(n.Labels, GateLabel) })
		Eventually(least).Should(Equal("1 AlwaysAllow"))

		change := func(budget *v1alpha1.GateBudget) {
			GinkgoHelper()
			Eventually(func() error {
				if err := k8s.Get(ctx, client.ObjectKeyFromObject(g), g); err != nil {
					return err
				}
				g.Spec.Enforcement.HoldPod.Budget = budget
				return k8s.Update(ctx, g)
			}).Should(Succeed())
		}
		By("the option is taken back")
		change(nil)
		Eventually(least).Should(Equal("NotFound"))
		By("another owner has a budget of this name")
		other := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
		other.Spec.MinAvailable, other.Spec.UnhealthyPodEvictionPolicy = new(intstr.FromInt32(7)), new(policyv1.IfHealthyBudget)
		Expect(k8s.Create(ctx, other)).To(Succeed())
		change(&v1alpha1.GateBudget{MaxUnavailable: 2})
		Eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(ContainSubstring("exists and does not belong to this gate; delete it"))
		Expect(least()).To(Equal("7 IfHealthyBudget"))
		Expect(k8s.Delete(ctx, other)).To(Succeed())
		Eventually(least).WithTimeout(time.Minute).Should(Equal("0 AlwaysAllow"))
	})
})
