//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("The manager", Label("placement"), func() {
	It("serves metrics only to users with the right to read them", func(ctx context.Context) {
		// There are two accounts, because the manager caches a refusal for half a minute.
		stranger := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "stranger", Namespace: namespace}}
		refused, accepted := tokenOf(ctx, stranger), scraper(ctx)

		By("asking the manager that leads, the only one that exports what it does")
		var leader string
		Eventually(func(g Gomega) {
			// Between two managers none leads, and the lease names a killed manager for a while.
			lease := &coordinationv1.Lease{}
			g.Expect(kube.Get(ctx, client.ObjectKey{Namespace: managerNamespace, Name: "manager.tailgate.dev"}, lease)).To(Succeed())
			g.Expect(lease.Spec.HolderIdentity).To(HaveValue(Not(BeEmpty())))
			leads := &corev1.Pod{}
			pod, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
			g.Expect(kube.Get(ctx, client.ObjectKey{Namespace: managerNamespace, Name: pod}, leads)).To(Succeed())
			g.Expect(leads.DeletionTimestamp).To(BeNil())
			leader = "pod/" + pod
		}).WithTimeout(soon).Should(Succeed())
		status, _ := managerGet(ctx, managerNamespace, leader, nil, "/metrics", "")
		Expect(status).To(Equal(http.StatusUnauthorized))
		status, _ = managerGet(ctx, managerNamespace, leader, nil, "/metrics", refused)
		Expect(status).To(Equal(http.StatusForbidden), "it is known, and has no right")
		Eventually(func() string {
			status, body := managerGet(ctx, managerNamespace, leader, nil, "/metrics", accepted)
			Expect(status).To(Equal(http.StatusOK))
			return body
		}).WithTimeout(soon).Should(And(
			ContainSubstring(`controller_runtime_reconcile_total{controller="latencybenchmark"`), ContainSubstring("\ntailgate_exporting 1\n")))
	})
})

// tokenOf creates a service account and other objects until the spec ends, and returns a token of the account.
func tokenOf(ctx context.Context, account *corev1.ServiceAccount, others ...client.Object) string {
	GinkgoHelper()
	for _, o := range append(others, account) {
		Expect(kube.Create(ctx, o)).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(kube.Delete(ctx, o)).To(Succeed()) })
	}
	var token bytes.Buffer
	Expect(kubectl(ctx, &token, "-n", account.Namespace, "create", "token", account.Name)).To(Succeed())
	return token.String()
}

// scraper returns the token of an account that may read the manager's metrics until the spec ends.
func scraper(ctx context.Context) string {
	GinkgoHelper()
	reader := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "scraper", Namespace: namespace}}
	return tokenOf(ctx, reader, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-scraper"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tailgate-metrics-reader"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: reader.Name, Namespace: namespace}},
	})
}

// manager returns the manager's container.
func manager(ctx context.Context) corev1.Container {
	GinkgoHelper()
	deployment := &appsv1.Deployment{}
	Expect(kube.Get(ctx, client.ObjectKey{Namespace: managerNamespace, Name: "manager"}, deployment)).To(Succeed())
	return deployment.Spec.Template.Spec.Containers[0]
}

// benchImage returns the image of benchmark pods.
func benchImage(ctx context.Context) string {
	GinkgoHelper()
	for _, arg := range manager(ctx).Args {
		if image, ok := strings.CutPrefix(arg, "--bench-image="); ok {
			return image
		}
	}
	Fail("the manager has no flag --bench-image")
	return ""
}

// anyManager is the target for requests that any manager can answer, such as verdicts.
const anyManager = "deployment/manager"

// managerGet requests a path of a manager in a namespace with a bearer token, or without one, through a forwarded port, and
// returns the status and the body. cas are the CAs that may have signed its certificate; nil accepts a self-signed one. The
// port is forwarded again each time, because kubectl stops after a connection that one side has cut off.
func managerGet(ctx context.Context, namespace, target string, cas *x509.CertPool, path, token string) (int, string) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, soon)
	out, in := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// It ends because it is cancelled; this error does not matter.
		_ = kubectl(ctx, in, "-n", namespace, "port-forward", target, ":8443")
		_ = in.Close()
	}()
	defer func() { cancel(); _ = out.Close(); <-done }()
	line, err := bufio.NewReader(out).ReadString('\n')
	Expect(err).NotTo(HaveOccurred())
	local := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	Expect(local).NotTo(BeEmpty(), line)
	go func() { _, _ = io.Copy(io.Discard, out) }()

	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+local+path, nil)
	Expect(err).NotTo(HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
	}
	c := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: cas, ServerName: "metrics." + namespace + ".svc", InsecureSkipVerify: cas == nil,
	}}}
	response, err := c.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(body)
}
