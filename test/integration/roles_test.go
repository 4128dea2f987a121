package integration

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// clusterRoles returns the ClusterRoles of a file in config/rbac, by name.
func clusterRoles(file string) map[string]*rbacv1.ClusterRole {
	GinkgoHelper()
	text, err := os.Open(filepath.Join("..", "..", "config", "rbac", file))
	Expect(err).NotTo(HaveOccurred())
	defer text.Close()
	all := map[string]*rbacv1.ClusterRole{}
	decoder := utilyaml.NewYAMLOrJSONDecoder(text, 4096)
	for {
		role := &rbacv1.ClusterRole{}
		if decoder.Decode(role) != nil {
			return all
		}
		if role.Kind == "ClusterRole" {
			all[role.Name] = role
		}
	}
}

// verbs lists all verbs that a role could have.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

const (
	mayRead  = "get list watch"
	mayWrite = "create update patch delete deletecollection"
)

// The table checks with the API server every verb on every resource below. Rights that an entry does not list must be denied.
var _ = DescribeTable("A role for users grants only what its name says:",
	func(ctx SpecContext, name string, may map[string]string) {
		namespace := newNamespace(ctx)
		role := clusterRoles("users.yaml")[name]
		Expect(role).NotTo(BeNil())
		Expect(k8s.Create(ctx, role)).To(Succeed())
		user := "user-" + namespace
		subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user}, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		}
		Expect(k8s.Create(ctx, binding)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(k8s.Delete(ctx, binding)).To(Succeed())
			Expect(k8s.Delete(ctx, role)).To(Succeed())
		})
		allowed := func(verb, resource string) bool {
			kind, subresource, _ := strings.Cut(resource, "/")
			group := ""
			if strings.HasPrefix(kind, "latency") {
				group = v1alpha1.GroupVersion.Group
			}
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: user,
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: namespace, Verb: verb, Group: group, Resource: kind, Subresource: subresource,
				},
			}}
			Expect(k8s.Create(ctx, review)).To(Succeed())
			return review.Status.Allowed
		}
		// The authorizer learns of the binding by a watch.
		Eventually(func() bool { return allowed("get", firstOf(may)) }).Should(BeTrue())
		for _, resource := range []string{
			"latencybenchmarks", "latencybenchmarks/status", "latencybenchmarks/finalizers", "latencygates", "latencygates/status", "latencygates/finalizers",
			"latencyverifications", "latencyverifications/status", "latencyverifications/finalizers", "pods", "pods/log", "configmaps", "secrets", "nodes",
		} {
			for _, verb := range verbs {
				Expect(allowed(verb, resource)).To(Equal(strings.Contains(" "+may[resource]+" ", " "+verb+" ")), "%s %s", verb, resource)
			}
		}
	},
	Entry("tailgate-view", "tailgate-view", map[string]string{"latencybenchmarks": mayRead}),
	Entry("tailgate-edit", "tailgate-edit", map[string]string{"latencybenchmarks": mayRead + " " + mayWrite}),
	Entry("tailgate-gate-reader", "tailgate-gate-reader", map[string]string{"latencybenchmarks": mayRead, "latencygates": mayRead, "latencyverifications": mayRead, "nodes": "get list"}),
	Entry("tailgate-gate-view", "tailgate-gate-view", map[string]string{"latencygates": mayRead, "latencyverifications": mayRead}),
	Entry("tailgate-gate-operate", "tailgate-gate-operate", map[string]string{"latencygates": mayRead, "latencyverifications": mayRead + " patch"}),
)

func firstOf(may map[string]string) string {
	for _, resource := range []string{"latencybenchmarks", "latencygates"} {
		if may[resource] != "" {
			return resource
		}
	}
	return ""
}

var _ = Describe("The roles of config/rbac", func() {
	It("come to the roles of Kubernetes, and not those of gates", func() {
		const prefix = "rbac.authorization.k8s.io/aggregate-to-"
		want := map[string][]string{"tailgate-view": {"view"}, "tailgate-edit": {"edit", "admin"}}
		for name, role := range clusterRoles("users.yaml") {
			var got []string
			for label, value := range role.Labels {
				if to, ok := strings.CutPrefix(label, prefix); ok && value == "true" {
					got = append(got, to)
				}
			}
			Expect(got).To(ConsistOf(want[name]), name)
		}
	})

	It("let the manager create Secrets and read none, exec into no pod, and give no rights", func() {
		role := clusterRoles("role.yaml")["tailgate-manager"]
		Expect(role).NotTo(BeNil())
		for _, rule := range role.Rules {
			for _, verb := range []string{"*", "impersonate", "bind", "escalate", "deletecollection"} {
				Expect(rule.Verbs).NotTo(ContainElement(verb))
			}
			if slices.Contains(rule.Resources, "secrets") {
				Expect(rule.Verbs).To(Equal([]string{"create"}))
			}
			for _, resource := range []string{"*", "pods/exec", "pods/attach", "pods/portforward", "pods/ephemeralcontainers", "serviceaccounts", "serviceaccounts/token"} {
				Expect(rule.Resources).NotTo(ContainElement(resource))
			}
			Expect(rule.APIGroups).NotTo(ContainElement(rbacv1.GroupName))
		}
	})
})
