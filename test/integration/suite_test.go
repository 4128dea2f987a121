// Package integration tests the API and the controllers against a real API server (envtest), without kubelet,
// scheduler and garbage collector. The tests simulate those step by step; see kubelet_test.go.
//
// Each spec has its own namespace, manager and two nodes, so that specs do not depend on each other.
package integration

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

var (
	environment *envtest.Environment
	config      *rest.Config
	// managerConfig is the configuration of managers, with the rights of config/rbac.
	managerConfig *rest.Config
	scheme        = runtime.NewScheme()
	// k8s reads and writes without a cache.
	k8s client.WithWatch
)

// Users have tokens, because API servers, which take most of the suite's CPU time, would verify a client certificate at each request.
const adminToken, managerToken = "admin", "manager"

func TestIntegration(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Fatal("KUBEBUILDER_ASSETS is not set: run `make integration`, or set it to what `go run ./test/cmd/localcluster assets` prints")
	}
	RegisterFailHandler(Fail)
	// Conditions that usually hold at once may take long on a busy machine.
	SetDefaultEventuallyTimeout(3 * time.Minute)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	RunSpecs(t, "Integration")
}

// environmentLimit is the time limit for the start and the end of an API server, and until it serves new kinds.
const environmentLimit = 2 * time.Minute

// newEnvironment returns the environment of an API server with the CRDs of config/crd; it does not start it.
func newEnvironment() *envtest.Environment {
	return &envtest.Environment{
		CRDInstallOptions: envtest.CRDInstallOptions{
			Paths: []string{
				filepath.Join("..", "..", "config", "crd", "bases", "tailgate.dev_latencybenchmarks.yaml"),
				filepath.Join("..", "..", "config", "crd", "bases", "tailgate.dev_latencymatrices.yaml"),
				filepath.Join("..", "..", "config", "crd", "bases", "tailgate.dev_latencygates.yaml"),
				filepath.Join("..", "..", "config", "crd", "bases", "tailgate.dev_latencyverifications.yaml"),
			},
			ErrorIfPathMissing: true, MaxTime: environmentLimit,
		},
		// Several API servers start, and stop, at once on few cores, because each process of the suite has its own.
		ControlPlaneStartTimeout: environmentLimit, ControlPlaneStopTimeout: environmentLimit,
	}
}

// addUser adds a user to an API server. It returns the configuration of its clients, with the limits of base, and the path of its kubeconfig.
func addUser(server *envtest.Environment, user envtest.User, base *rest.Config) (own *rest.Config, kubeconfig string) {
	GinkgoHelper()
	added, err := server.AddUser(user, base)
	Expect(err).NotTo(HaveOccurred())
	content, err := added.KubeConfig()
	Expect(err).NotTo(HaveOccurred())
	kubeconfig = filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(kubeconfig, content, 0o600)).To(Succeed())
	return added.Config(), kubeconfig
}

var _ = BeforeSuite(func(ctx SpecContext) {
	log.SetLogger(zap.New(zap.WriteTo(GinkgoWriter), zap.UseDevMode(true)))
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())

	environment = newEnvironment()
	tokens := filepath.Join(GinkgoT().TempDir(), "tokens.csv")
	users := adminToken + ",admin,1,system:masters\n" + managerToken + "," + managerUser + ",2,system:serviceaccounts\n"
	Expect(os.WriteFile(tokens, []byte(users), 0o600)).To(Succeed())
	environment.ControlPlane.GetAPIServer().Configure().
		Append("enable-admission-plugins", "OwnerReferencesPermissionEnforcement").
		Append("token-auth-file", tokens)
	admin, err := environment.Start()
	Expect(err).NotTo(HaveOccurred())
	config = rest.AnonymousClientConfig(admin)
	config.BearerToken = adminToken
	// The tests poll more often than the default limits of clients allow.
	config.QPS, config.Burst = 1000, 1000
	k8s, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	managerConfig = newManagerUser(ctx)
	Use(Suite{
		Client: k8s, User: username(ctx), AddNode: addNode, AddGate: addGate, Ready: time.Now,
		Await: func(actual any, matcher gomegatypes.GomegaMatcher, description ...any) {
			GinkgoHelper()
			Eventually(actual).Should(matcher, description...)
		},
		Write: func(write func() error) { GinkgoHelper(); Eventually(write).Should(Succeed()) },
	})
})

var _ = AfterSuite(func() {
	if environment != nil {
		Expect(environment.Stop()).To(Succeed())
	}
})

// newNamespace creates a namespace for a spec. It empties the namespace when the spec ends, so that managers of other specs do not
// find its benchmarks or look for the owners of left objects.
func newNamespace(ctx SpecContext) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "spec-"}}
	Expect(k8s.Create(ctx, namespace)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		// The API server may not delete a thousand objects within the minute that a request may take. Each call continues with the rest.
		Eventually(func() error {
			return errors.Join(
				k8s.DeleteAllOf(ctx, &v1alpha1.LatencyMatrix{}, client.InNamespace(namespace.Name)),
				k8s.DeleteAllOf(ctx, &v1alpha1.LatencyBenchmark{}, client.InNamespace(namespace.Name)),
				k8s.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace.Name)),
				k8s.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace.Name), client.GracePeriodSeconds(0)))
		}).Should(Succeed())
	})
	return namespace.Name
}
