package integration

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// The range of users of the namespace, as in annotation openshift.io/sa.scc.uid-range on OpenShift.
const firstUser, lastUser = 1000680000, 1000689999

// likeRestrictedV2 configures the API server to treat pods of a namespace as OpenShift does under the security context constraint
// restricted-v2, with Pod Security Standard restricted: a pod without a user, group or SELinux level gets that of its namespace,
// and a pod with a user outside the range is rejected.
func (w *World) likeRestrictedV2(ctx SpecContext) {
	GinkgoHelper()
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`))
	Expect(k8s.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}}, label)).To(Succeed())
	pods := &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.Namespace}},
		ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
		}}},
	}
	meta := metav1.ObjectMeta{Name: "scc-" + w.Namespace}
	const unset = "(!has(object.spec.securityContext) || !has(object.spec.securityContext.%s))"
	assign := fmt.Sprintf(`Object{
		metadata: Object.metadata{annotations: {"openshift.io/scc": "restricted-v2"}},
		spec: Object.spec{
			securityContext: Object.spec.securityContext{
				fsGroup: %[2]s ? %[1]d : object.spec.securityContext.fsGroup,
				seLinuxOptions: Object.spec.securityContext.seLinuxOptions{level: "s0:c26,c5"}},
			containers: object.spec.containers.map(c, Object.spec.containers{
				name: c.name,
				securityContext: Object.spec.containers.securityContext{
					runAsUser: %[3]s ? %[1]d : object.spec.securityContext.runAsUser}})}}`,
		firstUser, fmt.Sprintf(unset, "fsGroup"), fmt.Sprintf(unset, "runAsUser"))
	inRange := fmt.Sprintf("object.spec.containers.all(c, c.securityContext.runAsUser >= %d && c.securityContext.runAsUser <= %d)", firstUser, lastUser)
	groupInRange := fmt.Sprintf("object.spec.securityContext.fsGroup >= %d && object.spec.securityContext.fsGroup <= %d", firstUser, lastUser)
	for _, o := range []client.Object{
		&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints: pods, ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType:          admissionregistrationv1.PatchTypeApplyConfiguration,
				ApplyConfiguration: &admissionregistrationv1.ApplyConfiguration{Expression: assign},
			}},
		}},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: meta.Name}},
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: pods, Validations: []admissionregistrationv1.Validation{
				{Expression: inRange, Message: "runAsUser is not in the range of the namespace"},
				{Expression: groupInRange, Message: "fsGroup is not in the range of the namespace"},
			},
		}},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: meta.Name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		}},
	} {
		Expect(k8s.Create(ctx, o)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(k8s.Delete(ctx, o)).To(Succeed()) })
	}

	// The API server takes a moment to apply new policies.
	probe := func(user *int64) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, GenerateName: "probe-"},
			Spec: corev1.PodSpec{
				SecurityContext: &corev1.PodSecurityContext{
					RunAsNonRoot: new(true), RunAsUser: user, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
				Containers: []corev1.Container{{Name: "probe", Image: "probe:test", SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				}}},
			},
		}
	}
	Eventually(func() error { return k8s.Create(ctx, probe(new(int64(65532))), client.DryRunAll) }).Should(MatchError(ContainSubstring("not in the range")))
	Eventually(func() error { return k8s.Create(ctx, probe(nil), client.DryRunAll) }).Should(Succeed())
}

var _ = Describe("A namespace of OpenShift, with Pod Security Standard restricted and users of its own", func() {
	It("runs benchmarks, and its users are no change of their pods", func(ctx SpecContext) {
		w := NewWorld(ctx)
		w.likeRestrictedV2(ctx)
		w.Kubelet.Auto(ctx)
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B))
		ExpectSucceeded(ctx, b, "^True Complete")
		for _, e := range Get(ctx, b).Status.Endpoints {
			Expect(e.Proof).To(ContainElement(And(HaveField("Check", v1alpha1.ProofPodUnchanged), HaveField("State", v1alpha1.ProofProved))))
		}
	})

	It("lets hold pods run", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.likeRestrictedV2(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.HoldPod = &v1alpha1.GateHoldPod{} }))
		list := &corev1.PodList{}
		Eventually(func(g Gomega) {
			g.Expect(k8s.List(ctx, list, client.InNamespace(w.Namespace), client.HasLabels{v1alpha1.LabelHold})).To(Succeed())
			g.Expect(list.Items).NotTo(BeEmpty())
		}).Should(Succeed())
		Expect(*list.Items[0].Spec.Containers[0].SecurityContext.RunAsUser).To(BeEquivalentTo(firstUser))
	})
})
