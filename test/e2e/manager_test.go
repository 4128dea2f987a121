//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
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
		metrics := forward(ctx, "8443") + "/metrics"

		status, _ := fetch(ctx, metrics, "")
		Expect(status).To(Equal(http.StatusUnauthorized))
		status, _ = fetch(ctx, metrics, token.String())
		Expect(status).To(Equal(http.StatusForbidden), "it is known, and has no right yet")
		Expect(kube.Create(ctx, binding)).To(Succeed())
		Eventually(func() int { status, _ := fetch(ctx, metrics, token.String()); return status }).WithTimeout(soon).Should(Equal(http.StatusOK))
		_, body := fetch(ctx, metrics, token.String())
		Expect(body).To(ContainSubstring(`controller_runtime_reconcile_total{controller="latencybenchmark"`))
	})
})

// forward forwards a port of the manager to this machine until the spec ends, and returns the base of its URL.
func forward(ctx context.Context, port string) string {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(ctx)
	out, in := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		// It ends by being cancelled, which is an error nobody needs.
		_ = install.Kubectl(ctx, options, in, "-n", managerNamespace, "port-forward", "deployment/manager", ":"+port)
		_ = in.Close()
	}()
	DeferCleanup(func() { cancel(); _ = out.Close(); <-done })
	line, err := bufio.NewReader(out).ReadString('\n')
	Expect(err).NotTo(HaveOccurred())
	local := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	Expect(local).NotTo(BeEmpty(), line)
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return "https://" + local
}

// fetch gets a URL with a bearer token, or none, and returns status and body. The endpoint signs its own certificate.
func fetch(ctx context.Context, url, token string) (int, string) {
	GinkgoHelper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	Expect(err).NotTo(HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", fmt.Sprintf("Bearer %s", strings.TrimSpace(token)))
	}
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := c.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(body)
}
