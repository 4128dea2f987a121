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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

	It("holds a node back until it has passed, and again when it has changed", func(ctx SpecContext) { NewGateWorld(ctx).HoldsBackUntilPassed(ctx) })

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
			Eventually(func() string {
				w.collectGarbage(ctx, w.Benchmark(w.A, 2))
				return w.Says(ctx, w.A)
			}).Should(Equal("Failed Fail"+HeldBack), func() string { return fmt.Sprintf("%+v", w.Verification(ctx, w.A).Status) })
			Expect(letIn()).To(BeEmpty())
			Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
		},
		Entry("setting its condition", writes("status", isNode)),
		Entry("judging", notes(func(s v1alpha1.LatencyBenchmarkStatus) bool { return s.Verdict != nil })),
	)

	DescribeTable("holds a changed node back with all others, and says so within a moment:",
		func(ctx SpecContext, resources []string, expression string, tried func(*corev1.Node), says, mark string) {
			w := NewGateWorld(ctx)
			w.HoldsBackWithout(ctx, mark, says, func() func() {
				return w.Policy(ctx, resources, expression, "", func() bool {
					_, err := dry(ctx, w.A, resources[0] == statusOnly[0], tried)
					return err != nil && strings.Contains(err.Error(), "the node pool manages this")
				})
			}, func(g *v1alpha1.LatencyGate) {
				code, output := gateExit(ctx, adminKubeconfig(w.Namespace), "lgate/"+g.Name)
				Expect(code).To(Equal(2), output)
				code, body, err := call(http.MethodPost, Verdicts()+"/verdict/latencygates/"+g.Name+"/nodes/"+w.A, adminToken)
				Expect(err).NotTo(HaveOccurred())
				Expect(code).To(Equal(http.StatusPreconditionFailed), body)
			})
		},
		Entry("the taint", nodesOnly, noTaints, Tainted, ": False false -", "Taint"),
	)

	It("is dropped by a mutating policy or not deleted, and says why", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.SaysWhatIsDropped(ctx, func() func() {
			return w.Policy(ctx, nodesOnly, "has(object.spec.taints) && object.spec.taints.exists(t, t.key == 'tailgate.dev/latency-unverified')",
				"[JSONPatch{op: 'replace', path: '/spec/taints', value: object.spec.taints.filter(t, t.key != 'tailgate.dev/latency-unverified')}]", func() bool {
					n, err := dry(ctx, w.A, false, Tainted)
					return err == nil && len(n.Spec.Taints) == 0
				})
		}, func() func() {
			return w.Policy(ctx, nodesOnly, `has(object.spec.taints)`, "", func() bool {
				_, err := dry(ctx, w.A, false, func(n *corev1.Node) { n.Spec.Taints = nil })
				return err != nil && strings.Contains(err.Error(), "the node pool manages this")
			})
		})
	})

	It("forgets a deleted node and its results after spec.releaseAfter", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.ForgetsNode(ctx, func(verification func() types.UID) {
			w.Clock.ahead.Add(int64(61 * time.Minute))
			Wake(ctx, w.Verification(ctx, w.A))
			Eventually(verification).Should(BeEmpty())
			w.Clock.ahead.Store(0)
			// No garbage collector deletes the benchmark here. The benchmark of the new node is still another one.
		})
	})

	It("keeps a budget over the hold pods, which follows the number of nodes, and leaves that of another owner alone", func(ctx SpecContext) { NewGateWorld(ctx, "c").KeepsBudget(ctx) })
})
