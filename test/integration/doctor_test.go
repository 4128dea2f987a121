package integration

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/internal/cli"
	"github.com/tailgate-dev/tailgate/internal/doctor"
	"github.com/tailgate-dev/tailgate/internal/pods"
)

var _ = Describe("kubectl tailgate doctor", func() {
	It("needs the rights that its page names, and no others, and leaves no pod", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		nurse := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "nurse-" + namespace}
		cluster := roleOf("tailgate-doctor")
		cluster.Name = nurse.Name
		there := &rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "doctor"},
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create", "get", "list", "delete"}},
				{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
				{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"list"}},
			},
		}
		clusterBinding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: nurse.Name}, Subjects: []rbacv1.Subject{nurse},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: cluster.Name},
		}
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "doctor"}, Subjects: []rbacv1.Subject{nurse},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: there.Name},
		}
		node := localNode("node-of-" + namespace)
		allocatable := node.Status
		for _, o := range []client.Object{cluster, there, clusterBinding, binding, &node} {
			Expect(k8s.Create(ctx, o)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(k8s.Delete(ctx, o)).To(Succeed()) })
		}
		node.Status = allocatable
		Expect(k8s.Status().Update(ctx, &node)).To(Succeed())

		_, kubeconfig := addUser(environment, envtest.User{Name: nurse.Name}, nil)

		By("no kubelet is there: the pods are refused as one would")
		var stdout, stderr bytes.Buffer
		code := make(chan int, 1)
		go func() {
			code <- cli.Run(ctx, []string{"doctor", node.Name, "-n", namespace, "--kubeconfig", kubeconfig, "--image", "bench:v1", "-o", "json"}, &stdout, &stderr)
		}()
		list := &corev1.PodList{}
		Eventually(func(g Gomega) int {
			g.Expect(k8s.List(ctx, list, client.InNamespace(namespace), client.HasLabels{pods.LabelDoctor})).To(Succeed())
			return len(list.Items)
		}).Should(Equal(2))
		for i := range list.Items {
			Expect(list.Items[i].Status.QOSClass).To(BeElementOf(corev1.PodQOSGuaranteed, corev1.PodQOSBurstable))
			list.Items[i].Status.Phase, list.Items[i].Status.Reason = corev1.PodFailed, "UnexpectedAdmissionError"
			Expect(k8s.Status().Update(ctx, &list.Items[i])).To(Succeed())
		}
		Eventually(code).Should(Receive(Equal(1)), stderr.String())
		var r doctor.Report
		Expect(json.Unmarshal(stdout.Bytes(), &r)).To(Succeed(), stdout.String())
		levels := map[string]doctor.Level{}
		for _, l := range r.Lines {
			levels[l.Check] = l.Level
			Expect(l.Found).NotTo(ContainSubstring("you may not"), l.Check)
		}
		Expect(levels).To(And(HaveKeyWithValue("crds", doctor.Good), HaveKeyWithValue("manager", doctor.Error),
			HaveKeyWithValue("inspect", doctor.Error), HaveKeyWithValue("free-cpus", doctor.Warning)), stdout.String())
		Expect(k8s.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		Expect(list.Items).To(BeEmpty())
	})
})

// roleOf returns a ClusterRole for users from its manifest.
func roleOf(name string) *rbacv1.ClusterRole {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", "users.yaml"))
	Expect(err).NotTo(HaveOccurred())
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		role := &rbacv1.ClusterRole{}
		Expect(yaml.Unmarshal([]byte(document), role)).To(Succeed())
		if role.Name == name {
			role.Labels = nil
			return role
		}
	}
	Fail("no ClusterRole " + name)
	return nil
}
