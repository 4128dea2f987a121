//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/x509"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/localcluster"
	"github.com/tailgate-dev/tailgate/test/localcluster/install"
)

// chartNamespace is the namespace in which the chart is installed.
const chartNamespace = "latency"

// The spec removes Tailgate from the cluster, and installs it again for the other specs.
var _ = Describe("An installation", Label("install"), needs("a Tailgate that it may remove"), SpecPriority(1), func() {
	It("can be removed while a benchmark runs, replaced by install.yaml, then by the chart, upgraded and removed without a trace", func(ctx context.Context) {
		defer func() { Expect(install.Install(ctx, options, built)).To(Succeed()) }()

		kubectl := func(args ...string) {
			GinkgoHelper()
			Expect(install.Kubectl(ctx, kubeconfig, GinkgoWriter, args...)).To(Succeed())
		}
		// As docs/install.md says: if benchmarks are deleted with their CRD, the garbage collector may keep their dependents.
		deleteObjects := func() {
			GinkgoHelper()
			kubectl("delete", "lgate", "--all", "--timeout=2m")
			kubectl("delete", "latencymatrices.tailgate.dev,latencybenchmarks.tailgate.dev", "-A", "--all", "--cascade=foreground", "--timeout=2m")
		}

		By("deleting everything in the middle of a measurement, in the documented order")
		running := benchmark("running", func(s *v1alpha1.LatencyBenchmarkSpec) { s.Workload.Duration.Duration = time.Minute })
		create(ctx, running)
		eventuallyMeasures(ctx, running)
		deleteObjects()
		kubectl("delete", "-k", filepath.Join(root, install.Overlay), "--timeout=2m")
		eventuallyNoTrace(ctx)

		By("applying install.yaml")
		file, chart, values := manifests(ctx)
		kubectl("apply", "--server-side", "-f", file)
		kubectl("set", "resources", "-n", managerNamespace, "deployment/manager", "--requests=cpu=0")
		kubectl("rollout", "status", "-n", managerNamespace, "deployment/manager", "--timeout=2m")
		// It is suspended and creates no objects, because the garbage collector would learn of them only after half a minute.
		b := benchmark("by-file", func(s *v1alpha1.LatencyBenchmarkSpec) { s.Suspend = true })
		create(ctx, b)
		Eventually(func() string { return condition(get(ctx, b), v1alpha1.ConditionSucceeded).Reason }).
			WithTimeout(soon).Should(Equal(v1alpha1.ReasonBenchmarkSuspended))
		kubectl("delete", "-f", file, "--timeout=12m") // If a cache is not ready, the API server tries again after up to five minutes.
		eventuallyNoTrace(ctx)

		By("installing the chart")
		helm(ctx, values, "install", "tailgate", chart, "--create-namespace", "--wait", "--timeout=2m")
		DeferCleanup(func(ctx context.Context) {
			Expect(kube.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: chartNamespace}})).To(Succeed())
		})
		b = benchmark("by-chart", single)
		create(ctx, b)
		measured := eventuallyCompletes(ctx, b)

		By("removing the release, which keeps the CRDs and what is in them, and installing it again")
		helm(ctx, nil, "uninstall", "tailgate", "--wait")
		Expect(get(ctx, b).Status).To(Equal(measured.Status))
		helm(ctx, append(values, "crds.keep=false"), "upgrade", "--install", "tailgate", chart, "--wait", "--timeout=2m")
		Expect(get(ctx, b).Status.Results).To(Equal(measured.Status.Results))
		Expect(get(ctx, b).UID).To(Equal(measured.UID))

		By("upgrading the release, with a certificate for the manager")
		certificate, key, err := cert.GenerateSelfSignedCertKeyWithFixtures("metrics."+chartNamespace+".svc", nil, nil, "")
		Expect(err).NotTo(HaveOccurred())
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "serving-cert", Namespace: chartNamespace}, Type: corev1.SecretTypeTLS,
			Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
		}
		Expect(kube.Create(ctx, secret)).To(Succeed())
		helm(ctx, append(values, "crds.keep=false", "metrics.certificate.secretName=serving-cert"), "upgrade", "tailgate", chart, "--wait", "--timeout=2m")
		Expect(get(ctx, b).Status.Results).To(Equal(measured.Status.Results))
		By("asking the manager, once the one without the certificate is gone")
		Eventually(func(g Gomega) {
			list := &corev1.PodList{}
			g.Expect(kube.List(ctx, list, client.InNamespace(chartNamespace))).To(Succeed())
			g.Expect(list.Items).To(HaveLen(2))
		}).WithTimeout(soon).Should(Succeed())
		cas := x509.NewCertPool()
		Expect(cas.AppendCertsFromPEM(certificate)).To(BeTrue())
		status, _ := managerGet(ctx, chartNamespace, anyManager, cas, "/metrics", "")
		Expect(status).To(Equal(http.StatusUnauthorized))

		By("removing the release with everything")
		deleteObjects()
		helm(ctx, nil, "uninstall", "tailgate", "--wait")
		eventuallyNoTrace(ctx)
	})
})

// manifests returns the manifests in one file, the chart, and the values with which the local cluster can run it. They come
// from the release in the folder that E2E_RELEASE names, with its images by digest, or from the work tree.
func manifests(ctx context.Context) (file, chart string, values []string) {
	GinkgoHelper()
	// A node of the local cluster has a single CPU for pods.
	values = []string{"resources.requests.cpu=null"}
	dist := os.Getenv("E2E_RELEASE")
	if dist == "" {
		build := exec.CommandContext(ctx, "make", "build-installer", "IMG=localhost/tailgate:dev")
		build.Dir, build.Stdout, build.Stderr = root, GinkgoWriter, GinkgoWriter
		Expect(build.Run()).To(Succeed())
		return filepath.Join(root, "bin", "install.yaml"), "config/helm",
			append(values, "image.registry=localhost", "image.tag=dev", "benchImage.registry=localhost", "benchImage.tag=dev", "benchImage.pullPolicy=Never")
	}
	for _, image := range []string{"tailgate", "tailgate-bench"} {
		Expect(localcluster.LoadRelease(ctx, options, filepath.Join(dist, image+".oci.tar"), "ghcr.io/tailgate-dev/"+image)).To(Succeed())
	}
	charts, err := filepath.Glob(filepath.Join(dist, "tailgate-*.tgz"))
	Expect(err).NotTo(HaveOccurred())
	Expect(charts).To(HaveLen(1))
	return filepath.Join(dist, "install.yaml"), charts[0], values
}

// helmPath returns the path of the pinned Helm, which is built if needed.
func helmPath(ctx context.Context) string {
	GinkgoHelper()
	path := exec.CommandContext(ctx, "go", "tool", "-n", "-modfile=hack/tools/helm.mod", "helm")
	path.Dir, path.Stderr = root, GinkgoWriter
	out, err := path.Output()
	Expect(err).NotTo(HaveOccurred())
	return strings.TrimSpace(string(out))
}

// helm runs Helm as the cluster's administrator from the root of the repository, in the namespace of the chart unless args
// contain another --namespace.
func helm(ctx context.Context, values []string, args ...string) {
	GinkgoHelper()
	path := helmPath(ctx)
	args = append([]string{"--namespace", chartNamespace}, args...)
	for _, v := range values {
		args = append(args, "--set", v)
	}
	c := exec.CommandContext(ctx, path, args...)
	c.Dir, c.Stdout, c.Stderr = root, GinkgoWriter, GinkgoWriter
	c.Env = localcluster.Environment(kubeconfig)
	Expect(c.Run()).To(Succeed(), "helm %s", strings.Join(args, " "))
}

// eventuallyNoTrace waits until nothing cluster-wide is left of Tailgate, and no pods or results of benchmarks.
func eventuallyNoTrace(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var names bytes.Buffer
		err := install.Kubectl(ctx, kubeconfig, &names, "get", "-o", "name", "customresourcedefinitions,clusterroles,clusterrolebindings,deployments", "-A")
		g.Expect(err).NotTo(HaveOccurred())
		// The local cluster's own stand-in for Multus stays.
		left := strings.ReplaceAll(names.String(), "tailgate-multinet", "")
		g.Expect(left).NotTo(ContainSubstring("tailgate"))
		g.Expect(left).NotTo(ContainSubstring("deployment.apps/manager"))
		g.Expect(benchmarkPods(ctx)).To(BeEmpty())
		g.Expect(storedResults(ctx)).To(BeEmpty())
	}).WithTimeout(2 * time.Minute).WithPolling(time.Second).Should(Succeed())
}
