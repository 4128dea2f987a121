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
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/test/localcluster/install"
)

var _ = Describe("The manager", Label("placement"), func() {
	It("serves metrics to those who may read them, and to nobody else", func(ctx context.Context) {
		reader := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "scraper", Namespace: namespace}}
		binding := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "e2e-scraper"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "tailgate-metrics-reader"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: reader.Name, Namespace: namespace}},
		}
		Expect(kube.Create(ctx, reader)).To(Succeed())
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(kube.Delete(ctx, reader))).To(Succeed())
			Expect(client.IgnoreNotFound(kube.Delete(ctx, binding))).To(Succeed())
		})
		var token bytes.Buffer
		Expect(install.Kubectl(ctx, options, &token, "-n", namespace, "create", "token", reader.Name)).To(Succeed())

		status, _ := managerGet(ctx, managerNamespace, nil, "/metrics", "")
		Expect(status).To(Equal(http.StatusUnauthorized))
		status, _ = managerGet(ctx, managerNamespace, nil, "/metrics", token.String())
		Expect(status).To(Equal(http.StatusForbidden), "it is known, and has no right yet")
		Expect(kube.Create(ctx, binding)).To(Succeed())
		var body string
		// The manager remembers a refusal for half a minute.
		Eventually(func() int {
			status, body = managerGet(ctx, managerNamespace, nil, "/metrics", token.String())
			return status
		}).WithTimeout(2 * time.Minute).Should(Equal(http.StatusOK))
		Expect(body).To(ContainSubstring(`controller_runtime_reconcile_total{controller="latencybenchmark"`))
		Expect(body).To(ContainSubstring("\ntailgate_exporting 1\n"))
	})
})

// managerGet reads a path of the manager in a namespace with a bearer token, or none, through a forwarded port, and returns
// status and body. The CAs are those that may have signed its certificate; nil: it has signed it itself. The port is
// forwarded anew each time: kubectl gives up after a connection that one end has cut off.
func managerGet(ctx context.Context, namespace string, cas *x509.CertPool, path, token string) (int, string) {
	GinkgoHelper()
	ctx, cancel := context.WithTimeout(ctx, soon)
	out, in := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// It ends by being cancelled, which is an error nobody needs.
		_ = install.Kubectl(ctx, options, in, "-n", namespace, "port-forward", "deployment/manager", ":8443")
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
