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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
)

// cacheOf is a variable for a separate process: the kubeconfig of the API server whose objects TestCache reads into a cache.
const cacheOf = "TAILGATE_TEST_CACHE_OF"

// TestCache reads the pods and ConfigMaps that the manager watches into the manager's cache and prints the peak memory usage.
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
	for _, o := range []client.Object{&corev1.Pod{}, configMap} {
		if _, err := c.GetInformer(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	if !c.WaitForCacheSync(ctx) {
		t.Fatal("the cache did not sync")
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods); err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%d pods\n%s\n", len(pods.Items), regexp.MustCompile(`VmHWM:\s+\d+`).FindString(string(status)))
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

var _ = Describe("The cache of the manager", func() {
	const (
		// hostile is the number of pods, and of ConfigMaps, to which another user gives the manager's label, each with the longest
		// annotations that the API accepts.
		hostile         = 750
		longAnnotations = 250 << 10
		// managerMiB is the memory limit of the manager's container.
		managerMiB = 512
	)

	It("stays within its memory while it reads the objects of hostile users", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		meta := func(i int) metav1.ObjectMeta {
			return metav1.ObjectMeta{
				Namespace: namespace, Name: fmt.Sprintf("hostile-%d", i),
				Labels:      map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate},
				Annotations: map[string]string{"long": strings.Repeat("x", longAnnotations)},
			}
		}
		creating, creatingCtx := errgroup.WithContext(ctx)
		creating.SetLimit(8)
		for i := range hostile {
			creating.Go(func() error {
				if err := k8s.Create(creatingCtx, &corev1.ConfigMap{ObjectMeta: meta(i)}); err != nil {
					return err
				}
				return k8s.Create(creatingCtx, &corev1.Pod{ObjectMeta: meta(i), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}})
			})
		}
		Expect(creating.Wait()).To(Succeed())

		child := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestCache$")
		child.Env = append(os.Environ(), cacheOf+"="+adminKubeconfig(namespace))
		out, err := child.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
		peak := regexp.MustCompile(`(\d+) pods\nVmHWM:\s+(\d+)`).FindSubmatch(out)
		Expect(peak).NotTo(BeNil(), "%s", out)
		Expect(strconv.Atoi(string(peak[1]))).To(BeNumerically(">=", hostile))
		kib, err := strconv.Atoi(string(peak[2]))
		Expect(err).NotTo(HaveOccurred())
		AddReportEntry(fmt.Sprintf("a peak of %d MiB", kib>>10))
		Expect(kib>>10).To(BeNumerically("<", managerMiB*3/4), "MiB")
	})
})
