package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

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

// earlierCRDs returns the CRDs without the newest field of benchmarks. No version of this API was published yet.
func earlierCRDs() []byte {
	GinkgoHelper()
	files, err := filepath.Glob(filepath.Join("..", "..", "config", "crd", "bases", "tailgate.dev_*.yaml"))
	Expect(err).NotTo(HaveOccurred())
	Expect(files).NotTo(BeEmpty())
	var all []byte
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
		text, err = yaml.Marshal(crd)
		Expect(err).NotTo(HaveOccurred())
		all = append(append(all, "---\n"...), text...)
	}
	return all
}

// testdata/upgrade contains a finished benchmark as it was stored.
var _ = Describe("An upgrade", func() {
	It("with the documented commands keeps what there is, and the removal of the chart keeps it, too", func(ctx SpecContext) {
		old := &envtest.Environment{ControlPlaneStartTimeout: environmentLimit, ControlPlaneStopTimeout: environmentLimit}
		oldConfig, err := old.Start()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(old.Stop)
		_, path := addUser(old, envtest.User{Name: "admin", Groups: []string{"system:masters"}}, nil)
		earlier := filepath.Join(GinkgoT().TempDir(), "earlier.yaml")
		Expect(os.WriteFile(earlier, earlierCRDs(), 0o600)).To(Succeed())
		apply := func(args ...string) {
			GinkgoHelper()
			code, output := kubectl(ctx, path, append([]string{"apply", "--server-side"}, args...)...)
			Expect(code).To(BeZero(), output)
		}
		helm := func(args ...string) {
			GinkgoHelper()
			c := exec.CommandContext(ctx, "go", append([]string{"tool", "-modfile=hack/tools/helm.mod", "helm", "-n", "tailgate-system"}, args...)...)
			c.Dir, c.Stdout, c.Stderr = filepath.Join("..", ".."), GinkgoWriter, GinkgoWriter
			c.Env = append(os.Environ(), "KUBECONFIG="+path)
			Expect(c.Run()).To(Succeed(), "helm %s", strings.Join(args, " "))
		}

		By("the earlier CRDs, by kubectl")
		apply("-f", earlier)
		code, output := kubectl(ctx, path, "wait", "--for=condition=Established", "--timeout=1m", "-f", earlier)
		Expect(code).To(BeZero(), output)
		api, err := client.New(oldConfig, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())
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
		now := func() *v1alpha1.LatencyBenchmark {
			GinkgoHelper()
			b := &v1alpha1.LatencyBenchmark{}
			Expect(api.Get(ctx, client.ObjectKeyFromObject(before), b)).To(Succeed())
			return b
		}
		same := func() {
			GinkgoHelper()
			b := now()
			Expect(b.UID).To(Equal(before.UID))
			Expect(b.Spec).To(Equal(before.Spec))
			Expect(b.Status).To(Equal(before.Status))
		}
		// The API server serves new definitions a moment after it has accepted them.
		upgraded := func(value int32) {
			GinkgoHelper()
			before.Spec.TTLSecondsAfterFinished = &value
			Eventually(func() *int32 {
				b := now()
				b.Spec.TTLSecondsAfterFinished = &value
				Expect(api.Update(ctx, b)).To(Succeed())
				return now().Spec.TTLSecondsAfterFinished
			}).Should(HaveValue(Equal(value)))
			same()
		}
		same()

		By("the present kustomization, by kubectl, twice")
		for range 2 {
			apply("-k", filepath.Join("..", "..", "config", "default"))
		}
		upgraded(3600)

		By("the earlier CRDs again, without the field, and then the chart in place of the kustomization")
		apply("-f", earlier)
		before.Spec.TTLSecondsAfterFinished = nil
		Eventually(func() *int32 { return now().Spec.TTLSecondsAfterFinished }).Should(BeNil())
		helm("install", "tailgate", "config/helm", "--take-ownership", "--force-conflicts")
		upgraded(7200)

		helm("upgrade", "tailgate", "config/helm", "--set", "replicas=2")
		same()
		helm("uninstall", "tailgate")
		same()
		services := &corev1.ServiceList{}
		Expect(api.List(ctx, services, client.InNamespace("tailgate-system"))).To(Succeed())
		Expect(services.Items).To(BeEmpty())

		By("the removal of the CRDs, which deletes all objects and waits for no controller")
		for _, kind := range []string{"latencybenchmarks", "latencymatrices", "latencygates", "latencyverifications"} {
			crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: kind + ".tailgate.dev"}}
			removeKind(ctx, api, crd)
		}
	})
})

// removeKind deletes a CustomResourceDefinition, and returns when it is gone.
func removeKind(ctx context.Context, api client.Client, crd *apiextensionsv1.CustomResourceDefinition) {
	GinkgoHelper()
	Expect(api.Delete(ctx, crd)).To(Succeed())
	// The API server's controller of this lists the objects of the kind. While the cache of the kind is not ready ("storage is
	// (re)initializing"), it tries again after longer and longer times, and at each resync, every five minutes.
	Eventually(func() bool { return apierrors.IsNotFound(api.Get(ctx, client.ObjectKeyFromObject(crd), crd)) }).
		WithTimeout(12*time.Minute).Should(BeTrue(), func() string { return fmt.Sprintf("%s: %+v", crd.Name, crd.Status.Conditions) })
}
