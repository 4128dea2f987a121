package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
)

// cacheOf is a variable for a separate process: the kubeconfig of the API server whose objects TestCache reads into a cache.
const cacheOf = "TAILGATE_TEST_CACHE_OF"

// TestCache reads the objects that the manager watches into the manager's cache, reads live what it lists before a benchmark claims its
// nodes, and prints the peak memory usage.
func TestCache(t *testing.T) {
	path := os.Getenv(cacheOf)
	if path == "" {
		t.Skip("it is run by the spec of the cache, in a process of its own")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	options := controllers.CacheOptions()
	options.Scheme = scheme
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := cache.New(config, options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error)
	go func() { ended <- c.Start(ctx) }()
	configMap := &metav1.PartialObjectMetadata{}
	configMap.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	for _, o := range []client.Object{&corev1.Pod{}, configMap, &corev1.Node{}, &v1alpha1.LatencyBenchmark{}, &v1alpha1.LatencyMatrix{}} {
		if _, err := c.GetInformer(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	if !c.WaitForCacheSync(ctx) {
		t.Fatal("the cache did not sync")
	}
	seen := map[string]int{}
	for _, list := range []client.ObjectList{&corev1.PodList{}, &corev1.NodeList{}, &v1alpha1.LatencyBenchmarkList{}, &v1alpha1.LatencyMatrixList{}} {
		if err := c.List(ctx, list); err != nil {
			t.Fatal(err)
		}
		seen[fmt.Sprintf("%T", list)] = meta.LenList(list)
	}
	live, err := client.New(controllers.Bounded(config), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	count := func(name string, list func() client.ObjectList, options ...client.ListOption) {
		count := func(runtime.Object) error { seen[name]++; return nil }
		if err := controllers.Each(ctx, live, list, count, options...); err != nil {
			t.Fatal(err)
		}
	}
	count("live benchmarks", func() client.ObjectList { return &v1alpha1.LatencyBenchmarkList{} }, client.MatchingFields{"status.completionTime": ""})
	count("live pods", func() client.ObjectList { return &corev1.PodList{} }, client.HasLabels{v1alpha1.LabelRole})
	for name, n := range seen {
		if n < hostile {
			t.Errorf("%d objects of %s, not %d", n, name, hostile)
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%s\n", regexp.MustCompile(`VmHWM:\s+\d+`).FindString(string(status)))
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

// hostile is the number of objects of each kind that other users create: with the manager's labels, and with annotations that are nearly
// as long as the API accepts. 400 of five kinds are 500 MB; the variable TAILGATE_HOSTILE is for a machine that has the time for more.
var hostile = func() int {
	if n, err := strconv.Atoi(os.Getenv("TAILGATE_HOSTILE")); err == nil {
		return n
	}
	return 400
}()

var _ = Describe("The cache of the manager", func() {
	const (
		longAnnotations = 250 << 10
		// managerMiB is the memory limit of the manager's container.
		managerMiB = 512
	)

	It("stays within its memory while it reads the objects of hostile users", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		metaOf := func(i int) metav1.ObjectMeta {
			return metav1.ObjectMeta{
				Namespace: namespace, Name: fmt.Sprintf("hostile-%d", i),
				Labels:      map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate, v1alpha1.LabelRole: v1alpha1.RoleClient},
				Annotations: map[string]string{"long": strings.Repeat("x", longAnnotations)},
			}
		}
		nodes := make([]*corev1.Node, hostile)
		creating, creatingCtx := errgroup.WithContext(ctx)
		creating.SetLimit(8)
		for i := range hostile {
			creating.Go(func() error {
				benchmark := MakeBenchmark(namespace, "x")
				if i%2 == 0 {
					benchmark = benchmark.Suspended()
				}
				matrix := MakeBenchmark(namespace, "x").AllPairs(1)
				benchmark.ObjectMeta, matrix.ObjectMeta = metaOf(i), metaOf(i)
				node := &corev1.Node{ObjectMeta: metaOf(i)}
				node.Namespace, node.Name = "", fmt.Sprintf("%s-%d", namespace, i)
				nodes[i] = node
				for _, o := range []client.Object{
					&corev1.ConfigMap{ObjectMeta: metaOf(i)}, &corev1.Pod{ObjectMeta: metaOf(i), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
					benchmark.Obj(), &matrix.LatencyMatrix, node,
				} {
					if err := k8s.Create(creatingCtx, o); err != nil {
						return err
					}
				}
				return nil
			})
		}
		DeferCleanup(func(ctx SpecContext) {
			for _, node := range nodes {
				if node != nil {
					Expect(client.IgnoreNotFound(k8s.Delete(ctx, node))).To(Succeed())
				}
			}
		})
		Expect(creating.Wait()).To(Succeed())

		child := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestCache$")
		child.Env = append(os.Environ(), cacheOf+"="+adminKubeconfig(namespace), fmt.Sprintf("GOMEMLIMIT=%dMiB", managerMiB/10*9))
		out, err := child.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
		peak := regexp.MustCompile(`VmHWM:\s+(\d+)`).FindSubmatch(out)
		Expect(peak).NotTo(BeNil(), "%s", out)
		kib, err := strconv.Atoi(string(peak[1]))
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry(fmt.Sprintf("a peak of %d MiB", kib>>10))
		Expect(kib>>10).To(BeNumerically("<", managerMiB*3/4), "MiB")
	})
})
