//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/test/localcluster"
)

var _ = Describe("A gate's nodes stay held, whatever", Label("gate"), needs("admission policies of its own"), SpecPriority(2), func() {
	AfterEach(endGate)

	It("an editor of the gate's namespace, or who may write Nodes, tries", func(ctx context.Context) {
		editor := account(ctx, "editor", binding("edit", namespace), binding("tailgate-gate-operate", ""))
		operator := account(ctx, "operator", &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "e2e-nodes"},
			Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{""}, Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"get", "patch", "update"},
			}},
		}, binding("e2e-nodes", ""))
		applyAdmission(ctx)

		labelNodes(ctx, gated, "")
		// No network meets this limit: the nodes are held until the end. The rounds give time to try.
		g := undemandingGate()
		g.Spec.Template.Spec.Criteria.Rules[0].Max.Text = "1ns"
		g.Spec.Template.Spec.Workload.Duration.Duration, g.Spec.Template.Spec.Rounds = 5*time.Second, 12
		Expect(kube.Create(ctx, g)).To(Succeed())
		node := here.Client
		held := func() {
			GinkgoHelper()
			Eventually(func() string { return published(ctx, node) + ", " + holds(ctx, node) }).
				WithTimeout(measured).WithPolling(200 * time.Millisecond).Should(Equal(heldBack + ", Running False False"))
		}
		held()
		letIn := watchLetIn(ctx, node)

		By("the key of the pair: a change and a replacement are refused; a deleted one is created again for the next run")
		b := runningBenchmark(ctx)
		key := &corev1.Secret{}
		Expect(editor.Get(ctx, types.NamespacedName{Namespace: namespace, Name: pods.SecretName(b)}, key)).
			To(Succeed(), "role edit allows to read Secrets: docs/security.md says so")
		Expect(write(ctx, editor, key, `{"stringData":{"key":"mine"}}`)).To(MatchError(ContainSubstring("immutable")))
		Expect(editor.Delete(ctx, key)).To(Succeed())
		mine := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: key.Name}, StringData: map[string]string{"key": "mine"}}
		Expect(editor.Create(ctx, mine)).To(MatchError(ContainSubstring("are the manager's to create")))

		By("hold pods: refused to create, directly and by a workload")
		const refusal = "pods with label tailgate.dev/hold are the gate's to create and to change"
		refused := MatchError(ContainSubstring(refusal))
		labels := map[string]string{v1alpha1.LabelHold: "true", v1alpha1.LabelGate: g.Name, v1alpha1.LabelNode: node}
		Expect(editor.Create(ctx, anyPod(ctx, "forged", labels))).To(refused)
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "forgery"}, Spec: appsv1.ReplicaSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: anyPod(ctx, "forged", nil).Spec},
		}}
		Expect(editor.Create(ctx, set)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(kube.Delete(ctx, set)).To(Succeed()) })
		Eventually(func() []appsv1.ReplicaSetCondition {
			Expect(kube.Get(ctx, client.ObjectKeyFromObject(set), set)).To(Succeed())
			return set.Status.Conditions
		}).WithTimeout(soon).Should(ContainElement(And(
			HaveField("Type", appsv1.ReplicaSetReplicaFailure), HaveField("Message", ContainSubstring(refusal)))))

		By("refused: an ordinary pod that gets the label later")
		plain := anyPod(ctx, "plain", nil)
		Expect(editor.Create(ctx, plain)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(client.IgnoreNotFound(kube.Delete(ctx, plain))).To(Succeed()) })
		for _, value := range []string{"true", "false"} {
			Expect(write(ctx, editor, plain, fmt.Sprintf(`{"metadata":{"labels":{"tailgate.dev/hold":%q}}}`, value))).To(refused)
		}

		By("refused: labels, image and status of the gate's own")
		own := holdPod(ctx, node)
		for _, change := range []string{
			`{"metadata":{"labels":{"tailgate.dev/hold":null}}}`, `{"metadata":{"labels":{"tailgate.dev/hold":"false"}}}`,
			`{"metadata":{"labels":{"tailgate.dev/gate":"other"}}}`, `{"metadata":{"labels":null}}`, `{"spec":{"activeDeadlineSeconds":1}}`,
		} {
			Expect(write(ctx, editor, own, change)).To(Or(refused, MatchError(ContainSubstring("stay as they are"))), change)
		}
		image := own.DeepCopy()
		image.ResourceVersion = "" // The gate and the kubelet write it, too.
		image.Spec.Containers[0].Image = manager(ctx).Image
		Expect(editor.Update(ctx, image)).To(refused)
		ready := []byte(`{"status":{"conditions":[{"type":"Ready","status":"True"}]}}`)
		Expect(editor.Status().Patch(ctx, own.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, ready))).
			To(MatchError(ContainSubstring("cannot patch resource")))

		By("undone: its deletion")
		Expect(editor.Delete(ctx, own, client.GracePeriodSeconds(0))).To(Succeed())
		Expect(editor.Create(ctx, anyPod(ctx, own.Name, maps.Clone(own.Labels)))).To(refused)
		held()
		again := holdPod(ctx, node)
		Expect(again.UID).NotTo(Equal(own.UID))

		By("no hold pod: a pod without the label that takes its name")
		squatter := anyPod(ctx, own.Name, nil)
		Eventually(func() error {
			Expect(client.IgnoreNotFound(editor.Delete(ctx, anyPod(ctx, own.Name, nil), client.GracePeriodSeconds(0)))).To(Succeed())
			return editor.Create(ctx, squatter)
		}).WithTimeout(soon).WithPolling(time.Millisecond).Should(Succeed(), "it is faster than the gate")
		Eventually(func() *v1alpha1.StepFailure { return verification(ctx, node).Status.HoldPodFailure }).WithTimeout(soon).
			Should(HaveValue(HaveField("Message", ContainSubstring("does not belong to this gate"))))
		Expect(published(ctx, node) + ", " + holds(ctx, node)).To(Equal(heldBack + ", "))
		Expect(editor.Delete(ctx, squatter, client.GracePeriodSeconds(0))).To(Succeed())

		By("refused: marks and label of a Node, and its verification")
		for _, change := range []string{
			`{"metadata":{"labels":{"tailgate.dev/latency-verified":"true"}}}`, `{"metadata":{"labels":{"tailgate.dev/latency-verified":null}}}`,
			`{"spec":{"taints":null}}`, fmt.Sprintf(`{"metadata":{"labels":{%q:null}}}`, gated),
		} {
			Expect(write(ctx, editor, gateNode(ctx, node), change)).To(MatchError(ContainSubstring("cannot patch resource")), change)
			Expect(write(ctx, operator, gateNode(ctx, node), change)).
				To(MatchError(ContainSubstring("latency of node "+node+" is not verified")), change)
		}
		passed := fmt.Appendf(nil, `{"status":{"conditions":[{"type":%q,"status":"True"}]}}`, v1alpha1.NodeConditionVerified)
		Expect(operator.Status().Patch(ctx, gateNode(ctx, node), client.RawPatch(types.StrategicMergePatchType, passed))).
			To(MatchError(ContainSubstring("is the gate's to write")))
		v := verification(ctx, node)
		Expect(write(ctx, editor, v, `{"metadata":{"finalizers":null,"labels":{"any":"label"}}}`)).
			To(MatchError(ContainSubstring("allows only spec.verify and spec.accept")))
		Expect(editor.Status().Patch(ctx, v, client.RawPatch(types.MergePatchType, []byte(`{"status":{"state":"Verified"}}`)))).
			To(MatchError(ContainSubstring("cannot patch resource")))
		Expect(editor.Delete(ctx, v)).To(MatchError(ContainSubstring("cannot delete resource")))
		Expect(editor.Delete(ctx, g.DeepCopy())).To(MatchError(ContainSubstring("cannot delete resource")))

		By("undone in the end")
		Eventually(func() types.UID {
			fresh := &corev1.Secret{}
			Expect(client.IgnoreNotFound(kube.Get(ctx, client.ObjectKeyFromObject(key), fresh))).To(Succeed())
			return fresh.UID
		}).WithTimeout(2 * soon).Should(Not(BeElementOf(types.UID(""), key.UID)))
		held()
		Expect(holdPod(ctx, node).UID).NotTo(Equal(again.UID))
		Expect(letIn()).To(BeEmpty(), "the node admitted pods in between")
	})
})

// account creates a service account and its rights until the spec ends, and returns its client.
func account(ctx context.Context, name string, rights ...client.Object) client.Client {
	GinkgoHelper()
	own := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	for _, r := range rights {
		subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: namespace}}
		switch r := r.(type) {
		case *rbacv1.RoleBinding:
			r.Subjects = subjects
		case *rbacv1.ClusterRoleBinding:
			r.Subjects = subjects
		}
	}
	token := tokenOf(ctx, own, rights...)
	admin, err := localcluster.RESTConfig(kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = strings.TrimSpace(token)
	c, err := client.New(config, client.Options{Scheme: kube.Scheme(), Mapper: kube.RESTMapper()})
	Expect(err).NotTo(HaveOccurred())
	return c
}

// binding returns a binding of a ClusterRole in a namespace or, with "", in the cluster.
func binding(role, namespace string) client.Object {
	meta := metav1.ObjectMeta{Name: "e2e-" + role, Namespace: namespace}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	if namespace == "" {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref}
	}
	return &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref}
}

// applyAdmission applies the sample admission.yaml for the suite's gate until the spec ends, and waits until it is in force.
func applyAdmission(ctx context.Context) {
	GinkgoHelper()
	sample, err := os.ReadFile("../../config/samples/gates/admission.yaml")
	Expect(err).NotTo(HaveOccurred())
	our := strings.NewReplacer(`"latency" in`, `"`+gated+`" in`, `["latency"] == "gated"`, `["`+gated+`"] == ""`,
		"name: fast-nodes", "name: e2e")
	file := filepath.Join(GinkgoT().TempDir(), "admission.yaml")
	Expect(os.WriteFile(file, []byte(our.Replace(string(sample))), 0o600)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		Expect(kubectl(ctx, GinkgoWriter, "delete", "--ignore-not-found", "-f", file)).To(Succeed())
	})
	Expect(kubectl(ctx, GinkgoWriter, "apply", "-f", file)).To(Succeed())
	forged := anyPod(ctx, "forged", map[string]string{v1alpha1.LabelHold: "true"})
	Eventually(func() error { return kube.Create(ctx, forged.DeepCopy(), client.DryRunAll) }).WithTimeout(soon).ShouldNot(Succeed())
}

// write patches an object with a merge patch.
func write(ctx context.Context, c client.Client, object client.Object, patch string) error {
	return c.Patch(ctx, object.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(patch)))
}

// anyPod returns a user's pod, which need not run.
func anyPod(ctx context.Context, name string, labels map[string]string) *corev1.Pod {
	GinkgoHelper()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "any", Image: benchImage(ctx)}}},
	}
}

// holdPod returns the hold pod of a node.
func holdPod(ctx context.Context, node string) *corev1.Pod {
	GinkgoHelper()
	list := &corev1.PodList{}
	Expect(kube.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelHold: "true"})).To(Succeed())
	for i := range list.Items {
		if list.Items[i].Spec.NodeName == node {
			return &list.Items[i]
		}
	}
	Fail("no hold pod on " + node)
	return nil
}

// runningBenchmark returns a benchmark of the suite's gate of which both pods run.
func runningBenchmark(ctx context.Context) *v1alpha1.LatencyBenchmark {
	GinkgoHelper()
	var found *v1alpha1.LatencyBenchmark
	Eventually(func() *v1alpha1.LatencyBenchmark {
		list := &v1alpha1.LatencyBenchmarkList{}
		Expect(kube.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		for i := range list.Items {
			if condition(&list.Items[i], v1alpha1.ConditionSucceeded).Reason == v1alpha1.ReasonRunning {
				found = &list.Items[i]
			}
		}
		return found
	}).WithTimeout(measured).WithPolling(100 * time.Millisecond).ShouldNot(BeNil())
	return found
}
