//go:build e2e

// Package e2e tests Tailgate as its users have it: installed from its images in a cluster of real kubelets,
// driven through the API. By default each process of the suite starts a local cluster of its own, and they are removed at
// the end, even when specs failed. With E2E_KUBECONFIG a single process uses another cluster, on which Tailgate is
// installed already, and leaves that as it is. With E2E_LAB the nodes of its cluster are emulated machines (docs/lab.md).
package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/localcluster"
	"github.com/tailgate-dev/tailgate/test/localcluster/install"
)

const (
	namespace        = "default"
	managerNamespace = "tailgate-system"
)

var (
	// soon is for what takes the controller a step or two.
	soon = 30 * time.Second
	// measured is for a whole benchmark of a few short runs.
	measured = 4 * time.Minute
	// kube reads and writes the cluster's API, live.
	kube client.WithWatch
	// options of the local cluster of this process.
	options = localcluster.Options{Log: GinkgoWriter, Lab: os.Getenv("E2E_LAB") != ""}
)

func TestE2E(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "e2e")
}

// installCluster starts the local cluster of this process and installs Tailgate there.
func installCluster(ctx context.Context) {
	if os.Getenv("E2E_KUBECONFIG") == "" {
		options.Number, options.Log = GinkgoParallelProcess()-1, os.Stderr
		began := time.Now()
		Expect(install.Install(ctx, options)).To(Succeed())
		if options.Lab {
			// How long emulated machines take depends on this one; a local cluster is installed in about half a minute.
			pace := 4 + time.Since(began)/(30*time.Second)
			soon, measured = pace*soon, pace*measured
			AddReportEntry(fmt.Sprintf("installed after %s", time.Since(began).Round(time.Second)))
		}
	}
}

// The first cluster starts before the others and ends after them; see localcluster.Options.
var _ = SynchronizedBeforeSuite(installCluster, func(ctx context.Context) {
	if GinkgoParallelProcess() > 1 {
		installCluster(ctx)
	}
	kubeconfig := cmp.Or(os.Getenv("E2E_KUBECONFIG"), localcluster.Kubeconfig(options))
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	scheme := runtime.NewScheme()
	Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	kube, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	deleteAll(ctx)
})

var _ = SynchronizedAfterSuite(func() {}, func(ctx context.Context) {
	if os.Getenv("E2E_KUBECONFIG") == "" {
		Expect(localcluster.Down(ctx, localcluster.Options{Log: os.Stderr, Lab: options.Lab})).To(Succeed())
	}
})

var _ = AfterEach(deleteAll)

// deleteAll deletes all matrices and benchmarks and waits until nothing of them is left.
func deleteAll(ctx context.Context) {
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
	}).WithTimeout(2 * soon).WithPolling(200 * time.Millisecond).Should(Succeed())
}

var managed = client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate}

// benchmarkPods are the names of all benchmark pods in the cluster.
func benchmarkPods(ctx context.Context) []string {
	GinkgoHelper()
	list := &corev1.PodList{}
	Expect(kube.List(ctx, list, managed)).To(Succeed())
	var names []string
	for _, p := range list.Items {
		names = append(names, p.Name)
	}
	return names
}

// storedResults are the names of all stored results in the cluster.
func storedResults(ctx context.Context) []string {
	GinkgoHelper()
	list := &corev1.ConfigMapList{}
	Expect(kube.List(ctx, list, managed)).To(Succeed())
	var names []string
	for _, c := range list.Items {
		names = append(names, c.Name)
	}
	return names
}
