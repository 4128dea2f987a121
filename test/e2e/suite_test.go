//go:build e2e

// Package e2e tests Tailgate as users have it: installed from its images in a cluster of real kubelets, driven through the
// API. By default each process of the suite starts its own local cluster. The clusters are removed at the end, even if specs
// failed. With E2E_VALUES a single process uses the cluster of KUBECONFIG, which that file describes, and leaves it
// unchanged; see docs/internals/e2e.md. With E2E_LAB the nodes of its cluster are emulated machines (docs/internals/lab.md).
package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/test/e2e/values"
	"github.com/tailgate-dev/tailgate/test/localcluster"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
	"github.com/tailgate-dev/tailgate/test/localcluster/install"
)

var (
	// soon is the time limit for a step or two of the controller.
	soon = 30 * time.Second
	// measured is the time limit for a whole benchmark of a few short runs.
	measured = 4 * time.Minute
	// collected is the time limit for the garbage collector, which looks for new kinds every half a minute, and has to after an
	// installation.
	collected = 2 * time.Minute
	// kube reads and writes the cluster's API without a cache.
	kube client.WithWatch
	// options describes the local cluster of this process.
	options = localcluster.Options{Log: GinkgoWriter, Lab: os.Getenv("E2E_LAB") != ""}
	// built holds the images of Tailgate, which the first process builds for all processes.
	built []images.Image
	// elsewhere is true on a cluster other than the local one; here describes the cluster.
	elsewhere = os.Getenv("E2E_VALUES") != ""
	here      values.Values
	// kubeconfig, namespace and managerNamespace of the cluster.
	kubeconfig, namespace, managerNamespace string
	// ours selects the namespaces whose benchmarks belong to the suite: all namespaces of the local cluster.
	ours = client.InNamespace("")
)

func TestE2E(t *testing.T) {
	var err error
	if here, err = values.Local(); elsewhere {
		here, err = values.Read(os.Getenv("E2E_VALUES"))
		kubeconfig = os.Getenv("KUBECONFIG")
		if _, missing := os.Stat(kubeconfig); missing != nil {
			err = errors.Join(err, errors.New("KUBECONFIG: the name of a file is missing, which E2E_VALUES describes the cluster of"))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	namespace, managerNamespace = here.Namespace, here.ManagerNamespace
	if elsewhere {
		ours = client.InNamespace(namespace)
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "e2e")
}

// needs labels specs that run only on the local cluster, because no other cluster has what they need.
func needs(what string) Labels { return Label("local", "needs "+what) }

var _ = BeforeEach(func() {
	if elsewhere {
		for _, label := range CurrentSpecReport().Labels() {
			if strings.HasPrefix(label, "needs ") {
				Skip("only on the local cluster: it " + label)
			}
		}
	}
})

// kubectl runs kubectl as the cluster's administrator and writes its output to out.
func kubectl(ctx context.Context, out io.Writer, args ...string) error {
	return install.Kubectl(ctx, kubeconfig, out, args...)
}

// setUp prepares the cluster for the specs of this process. The first process does so before the others; see
// localcluster.Options.
func setUp(ctx context.Context) {
	GinkgoHelper()
	if !elsewhere {
		options.Number, options.Log = GinkgoParallelProcess()-1, os.Stderr
		began := time.Now()
		if err := install.Install(ctx, options, built); err != nil {
			Fail(err.Error()) // in one line that says what is missing
		}
		if options.Lab {
			// The speed of emulated machines depends on this machine; a local cluster is installed in about half a minute.
			pace := 4 + time.Since(began)/(30*time.Second)
			soon, measured = pace*soon, pace*measured
			AddReportEntry(fmt.Sprintf("installed after %s", time.Since(began).Round(time.Second)))
		}
		kubeconfig = localcluster.Kubeconfig(options)
	} else if GinkgoParallelProcess() > 1 {
		Fail("one process at a time can use the nodes of a cluster: PROCS=1")
	}
	var err error
	kube, err = install.Client(kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	if here.Chart != nil {
		createNamespace(ctx, managerNamespace, nil)
		installChart(ctx)
	}
	createNamespace(ctx, namespace, here.NamespaceLabels)
	copyNetworks(ctx)
}

var _ = SynchronizedBeforeSuite(func(ctx context.Context) []byte {
	if !elsewhere {
		if !options.Lab {
			release, err := localcluster.Use(ctx, os.Stderr, "make e2e")
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(release)
			// A cluster left by the demo or a killed suite has benchmarks that no spec expects.
			Expect(localcluster.Down(ctx, localcluster.Options{Log: os.Stderr})).To(Succeed())
		}
		var err error
		built, err = install.Build(ctx, os.Stderr)
		Expect(err).NotTo(HaveOccurred())
	}
	setUp(ctx)
	encoded, err := json.Marshal(built)
	Expect(err).NotTo(HaveOccurred())
	return encoded
}, func(ctx context.Context, encoded []byte) {
	if GinkgoParallelProcess() > 1 {
		Expect(json.Unmarshal(encoded, &built)).To(Succeed())
		setUp(ctx)
	}
})

// createNamespace creates a namespace until the suite ends.
func createNamespace(ctx context.Context, name string, labels map[string]string) {
	GinkgoHelper()
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if !elsewhere {
		// A lab left by a killed suite may have it. The cluster ends with the suite.
		Expect(client.IgnoreNotFound(kube.Delete(ctx, own.DeepCopy()))).To(Succeed())
		eventuallyGone(ctx, own.DeepCopy())
	} else {
		DeferCleanup(func(ctx context.Context) {
			Expect(kube.Delete(ctx, own)).To(Succeed())
			eventuallyGone(ctx, own)
		})
	}
	Expect(kube.Create(ctx, own)).To(Succeed(), "namespaces of the suite must not exist before")
}

// installChart installs Tailgate with the chart's values until the suite ends.
func installChart(ctx context.Context) {
	GinkgoHelper()
	chart, err := yaml.Marshal(here.Chart)
	Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(GinkgoT().TempDir(), "values.yaml")
	Expect(os.WriteFile(file, chart, 0o600)).To(Succeed())
	DeferCleanup(func(ctx context.Context) {
		helm(ctx, nil, "uninstall", "tailgate", "--namespace", managerNamespace, "--wait", "--ignore-not-found")
	})
	helm(ctx, []string{"crds.keep=false"}, "install", "tailgate", "config/helm", "--namespace", managerNamespace, "--wait", "--timeout=5m", "--values", file)
}

// copyNetworks copies the NetworkAttachmentDefinitions that the values name.
func copyNetworks(ctx context.Context) {
	GinkgoHelper()
	if here.NetworksFrom == "" {
		return
	}
	networks := &unstructured.UnstructuredList{}
	networks.SetGroupVersionKind(foreign.GroupVersionKind)
	Expect(kube.List(ctx, networks, client.InNamespace(here.NetworksFrom))).To(Succeed())
	for _, n := range networks.Items {
		network := nadNamed(n.GetName(), "")
		network.SetAnnotations(n.GetAnnotations())
		network.Object["spec"] = n.Object["spec"]
		Expect(kube.Create(ctx, network)).To(Succeed())
	}
}

// eventuallyGone waits until an object is gone.
func eventuallyGone(ctx context.Context, object client.Object) {
	GinkgoHelper()
	Eventually(func() bool { return apierrors.IsNotFound(kube.Get(ctx, client.ObjectKeyFromObject(object), object)) }).
		WithTimeout(2 * time.Minute).WithPolling(200 * time.Millisecond).Should(BeTrue())
}

var _ = SynchronizedAfterSuite(func(ctx context.Context) {
	if GinkgoParallelProcess() > 1 {
		// The serial specs run after the other processes have ended, whose idle clusters would still use a third of a CPU.
		Expect(localcluster.Down(ctx, options)).To(Succeed())
	}
}, func(ctx context.Context) {
	if !elsewhere {
		Expect(localcluster.Down(ctx, localcluster.Options{Log: os.Stderr, Lab: options.Lab})).To(Succeed())
	}
})

var _ = AfterEach(func(ctx context.Context) { deleteAll(ctx, namespace) })

// deleteAll deletes all matrices and benchmarks of a namespace and waits until nothing is left of them.
func deleteAll(ctx context.Context, namespace string) {
	GinkgoHelper()
	Expect(kube.DeleteAllOf(ctx, &v1alpha1.LatencyMatrix{}, client.InNamespace(namespace))).To(Succeed())
	Expect(kube.DeleteAllOf(ctx, &v1alpha1.LatencyBenchmark{}, client.InNamespace(namespace))).To(Succeed())
	eventuallyNothingLeft(ctx)
}

// eventuallyNothingLeft waits until no benchmark has left a pod or a ConfigMap.
func eventuallyNothingLeft(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(benchmarkPods(ctx)).To(BeEmpty())
		g.Expect(storedResults(ctx)).To(BeEmpty())
	}).WithTimeout(max(2*soon, collected)).WithPolling(200 * time.Millisecond).Should(Succeed())
}

var managed = client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate}

// benchmarkPods returns the names of the benchmark pods of all specs.
func benchmarkPods(ctx context.Context) []string {
	GinkgoHelper()
	list := &corev1.PodList{}
	Expect(kube.List(ctx, list, managed, ours)).To(Succeed())
	var names []string
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	return names
}

// storedResults returns the names of the stored results of all specs.
func storedResults(ctx context.Context) []string {
	GinkgoHelper()
	list := &corev1.ConfigMapList{}
	Expect(kube.List(ctx, list, managed, ours)).To(Succeed())
	var names []string
	for _, c := range list.Items {
		names = append(names, c.Name)
	}
	return names
}
