package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// earlierCRDs are the CRDs without the newest field of benchmarks. No version of this API was published yet.
func earlierCRDs() []*apiextensionsv1.CustomResourceDefinition {
	GinkgoHelper()
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "crd", "tailgate.dev_*.yaml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(files).NotTo(BeEmpty())
	var all []*apiextensionsv1.CustomResourceDefinition
	for _, file := range files {
		text, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		crd := &apiextensionsv1.CustomResourceDefinition{}
		Expect(yaml.UnmarshalStrict(text, crd)).To(Succeed(), file)
		if crd.Spec.Names.Kind == "LatencyBenchmark" {
			fields := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties
			Expect(fields).To(HaveKey("ttlSecondsAfterFinished"))
			delete(fields, "ttlSecondsAfterFinished")
		}
		all = append(all, crd)
	}
	return all
}

// testdata/upgrade has a finished benchmark as it was stored.
var _ = Describe("An upgrade by the Helm chart", func() {
	It("keeps what there is, and its removal keeps it, too", func(ctx SpecContext) {
		old := &envtest.Environment{CRDInstallOptions: envtest.CRDInstallOptions{CRDs: earlierCRDs()}}
		oldConfig, err := old.Start()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(old.Stop)
		api, err := client.New(oldConfig, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tailgate-system"}}
		Expect(api.Create(ctx, namespace)).To(Succeed())
		text, err := os.ReadFile(filepath.Join("testdata", "upgrade", "benchmark.yaml"))
		Expect(err).NotTo(HaveOccurred())
		before := &v1alpha1.LatencyBenchmark{}
		Expect(yaml.UnmarshalStrict(text, before)).To(Succeed())
		status := before.Status
		Expect(api.Create(ctx, before)).To(Succeed())
		before.Status = status
		Expect(api.Status().Update(ctx, before)).To(Succeed())
		Expect(before.Status.Verdict).NotTo(BeNil())
		Expect(before.Status.Results).NotTo(BeEmpty())

		user, err := old.AddUser(envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
		Expect(err).NotTo(HaveOccurred())
		kubeconfig, err := user.KubeConfig()
		Expect(err).NotTo(HaveOccurred())
		path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(os.WriteFile(path, kubeconfig, 0o600)).To(Succeed())
		helm := func(args ...string) {
			GinkgoHelper()
			c := exec.CommandContext(ctx, "go", append([]string{"tool", "-modfile=hack/tools/helm.mod", "helm", "-n", namespace.Name}, args...)...)
			c.Dir, c.Stdout, c.Stderr = filepath.Join("..", ".."), GinkgoWriter, GinkgoWriter
			c.Env = append(os.Environ(), "KUBECONFIG="+path)
			Expect(c.Run()).To(Succeed(), "helm %s", strings.Join(args, " "))
		}
		same := func() {
			GinkgoHelper()
			now := &v1alpha1.LatencyBenchmark{}
			Expect(api.Get(ctx, client.ObjectKeyFromObject(before), now)).To(Succeed())
			Expect(now.UID).To(Equal(before.UID))
			Expect(now.Spec).To(Equal(before.Spec))
			Expect(now.Status).To(Equal(before.Status))
		}

		// The CRDs were there without Helm.
		helm("install", "tailgate", "config/helm", "--take-ownership", "--force-conflicts")
		same()

		By("a field that the earlier version did not have")
		before.Spec.TTLSecondsAfterFinished = new(int32(3600))
		Eventually(func() error {
			now := &v1alpha1.LatencyBenchmark{}
			Expect(api.Get(ctx, client.ObjectKeyFromObject(before), now)).To(Succeed())
			now.Spec.TTLSecondsAfterFinished = before.Spec.TTLSecondsAfterFinished
			return api.Update(ctx, now)
		}).Should(Succeed())
		Eventually(func() *int32 {
			now := &v1alpha1.LatencyBenchmark{}
			Expect(api.Get(ctx, client.ObjectKeyFromObject(before), now)).To(Succeed())
			return now.Spec.TTLSecondsAfterFinished
		}).Should(HaveValue(BeEquivalentTo(3600)))
		same()

		helm("upgrade", "tailgate", "config/helm", "--set", "replicas=2")
		same()
		helm("uninstall", "tailgate")
		same()
		services := &corev1.ServiceList{}
		Expect(api.List(ctx, services, client.InNamespace(namespace.Name))).To(Succeed())
		Expect(services.Items).To(BeEmpty())

		By("the removal of the CRDs, which takes everything along and waits for nobody")
		for _, kind := range []string{"latencybenchmarks", "latencymatrices", "latencygates", "latencyverifications"} {
			crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: kind + ".tailgate.dev"}}
			Expect(api.Delete(ctx, crd)).To(Succeed())
			Eventually(func() bool {
				return apierrors.IsNotFound(api.Get(ctx, client.ObjectKeyFromObject(crd), crd))
			}).Should(BeTrue())
		}
	})
})
