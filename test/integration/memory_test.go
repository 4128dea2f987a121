package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/observe"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// cacheOf and cacheOfKinds are variables for a separate process: the kubeconfig of the API server whose objects TestCache reads, and the
// kinds, separated by commas.
const cacheOf, cacheOfKinds = "TAILGATE_TEST_CACHE_OF", "TAILGATE_TEST_CACHE_KINDS"

// cachedKinds are the kinds of objects that users, or agents on nodes, can write and that the manager watches: what it caches and, if it
// also lists the kind live before a benchmark claims its nodes, that list and its options.
var cachedKinds = map[string]struct {
	cached client.Object
	list   func() client.ObjectList
	live   []client.ListOption
}{
	"pods":       {&corev1.Pod{}, func() client.ObjectList { return &corev1.PodList{} }, nil},
	"configmaps": {partialConfigMap(), func() client.ObjectList { return partialConfigMaps() }, nil},
	"nodes":      {&corev1.Node{}, func() client.ObjectList { return &corev1.NodeList{} }, nil},
	"benchmarks": {&v1alpha1.LatencyBenchmark{}, func() client.ObjectList { return &v1alpha1.LatencyBenchmarkList{} },
		[]client.ListOption{client.MatchingFields{"status.completionTime": ""}}},
	"matrices": {&v1alpha1.LatencyMatrix{}, func() client.ObjectList { return &v1alpha1.LatencyMatrixList{} }, nil},
}

func partialConfigMap() *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	return o
}

func partialConfigMaps() *metav1.PartialObjectMetadataList {
	o := &metav1.PartialObjectMetadataList{}
	o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	return o
}

// TestCache reads the objects of some kinds that the manager watches into the manager's cache, reads live what it lists before a benchmark
// claims its nodes, and prints the peak memory usage.
func TestCache(t *testing.T) {
	path := os.Getenv(cacheOf)
	if path == "" {
		t.Skip("it is run by the spec of the cache, in a process of its own")
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	options := controllers.CacheOptions(nil)
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
	kinds := strings.Split(os.Getenv(cacheOfKinds), ",")
	for _, name := range kinds {
		if _, err := c.GetInformer(ctx, cachedKinds[name].cached); err != nil {
			t.Fatal(err)
		}
	}
	if !c.WaitForCacheSync(ctx) {
		t.Fatal("the cache did not sync")
	}
	live, err := client.New(observe.Bounded(config), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range kinds {
		kind := cachedKinds[name]
		list := kind.list()
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			t.Fatal(err)
		}
		seen := meta.LenList(list)
		if kind.live != nil {
			read := 0
			if err := observe.Each(ctx, live, kind.list, func(runtime.Object) error { read++; return nil }, kind.live...); err != nil {
				t.Fatal(err)
			}
			seen = min(seen, read)
		}
		if seen < hostile {
			t.Errorf("%d %s, not %d", seen, name, hostile)
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

// hostile is the number of objects of each kind that other users create: with the manager's labels, with annotations that are nearly as long
// as the API accepts, and with specs at their maximum.
const hostile = 1000

// listed is the number of DaemonSets of hostile users, which the manager lists in pages and does not cache.
const listed = 300

// make nightly runs it.
var _ = Describe("The cache of the manager", Label("nightly"), func() {
	const (
		longAnnotations = 250 << 10
		// managerMiB is the memory limit of the manager's container.
		managerMiB = 512
	)

	It("stays within its memory while it reads the objects of hostile users", func(ctx SpecContext) {
		// An API server of its own ends with these objects, which are more than a gigabyte. Their deletion would take minutes.
		server := newEnvironment()
		DeferCleanup(func() { Expect(server.Stop()).To(Succeed()) })
		_, err := server.Start()
		Expect(err).NotTo(HaveOccurred())
		own, kubeconfig := addUser(server, envtest.User{Name: "hostile", Groups: []string{"system:masters"}}, &rest.Config{QPS: 1000, Burst: 1000})
		hostileUser, err := client.New(own, client.Options{Scheme: scheme})
		Expect(err).NotTo(HaveOccurred())

		metaOf := func(i int) metav1.ObjectMeta {
			return metav1.ObjectMeta{
				Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("hostile-%d", i),
				Labels:      map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate, v1alpha1.LabelRole: v1alpha1.RoleClient},
				Annotations: map[string]string{"long": strings.Repeat("x", longAnnotations)},
			}
		}
		creating, creatingCtx := errgroup.WithContext(ctx)
		creating.SetLimit(8)
		for i := range hostile {
			creating.Go(func() error {
				benchmark := MakeBenchmark(metav1.NamespaceDefault, "x")
				if i%2 == 0 {
					benchmark = benchmark.Suspended()
				}
				matrix := MakeBenchmark(metav1.NamespaceDefault, "x").AllPairs(1)
				benchmark.ObjectMeta, matrix.ObjectMeta = metaOf(i), metaOf(i)
				fill(&benchmark.Spec.MeasurementSpec)
				fill(&matrix.Spec.Template.Spec)
				node := &corev1.Node{ObjectMeta: metaOf(i)}
				node.Namespace = ""
				if i < 4 {
					node.Labels["measured"] = ""
				}
				others := []client.Object{}
				if i < listed {
					pod := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
					others = append(others, &appsv1.DaemonSet{ObjectMeta: metaOf(i), Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: pod.Labels}, Template: pod}})
				}
				for _, o := range append(others,
					&corev1.ConfigMap{ObjectMeta: metaOf(i)}, &corev1.Pod{ObjectMeta: metaOf(i), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
					benchmark.Obj(), &matrix.LatencyMatrix, node,
				) {
					if err := hostileUser.Create(creatingCtx, o); err != nil {
						return err
					}
				}
				return nil
			})
		}
		Expect(creating.Wait()).To(Succeed())

		peakOf := func(kinds string) int {
			child := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestCache$")
			child.Env = append(os.Environ(), cacheOf+"="+kubeconfig, cacheOfKinds+"="+kinds, fmt.Sprintf("GOMEMLIMIT=%dMiB", managerMiB/10*9))
			out, err := child.CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), "%s", out)
			peak := regexp.MustCompile(`VmHWM:\s+(\d+)`).FindSubmatch(out)
			Expect(peak).NotTo(BeNil(), "%s", out)
			kib, err := strconv.Atoi(string(peak[1]))
			Expect(err).NotTo(HaveOccurred())
			AddReportEntry(fmt.Sprintf("a peak of %d MiB of %d: %s", kib>>10, managerMiB, kinds))
			return kib >> 10
		}
		kinds := slices.Sorted(maps.Keys(cachedKinds))
		for _, kind := range kinds {
			Expect(peakOf(kind)).To(BeNumerically("<", managerMiB*3/4), kind)
		}
		Expect(peakOf(strings.Join(kinds, ","))).To(BeNumerically("<", managerMiB*3/4), "all at once")

		By("the whole manager in a memory cgroup, from its start, while it takes these benchmarks and matrices in, and a gate lists DaemonSets")
		if os.Getuid() != 0 {
			AddReportEntry("the manager did not run in a memory cgroup: that needs root")
			return
		}
		gate := MakeGate(metav1.NamespaceDefault).With(func(s *v1alpha1.LatencyGateSpec) {
			s.NodeSelector.MatchLabels = map[string]string{"measured": ""}
			s.Template.Spec.Pods = &v1alpha1.PodSettings{Tolerations: []corev1.Toleration{{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}}}
		}).Obj()
		Expect(hostileUser.Create(ctx, gate)).To(Succeed())
		manager, err := gexec.Build("github.com/tailgate-dev/tailgate/cmd/manager")
		Expect(err).NotTo(HaveOccurred())
		group := newMemoryGroup(managerMiB << 20)
		log := gbytes.NewBuffer()
		child := exec.CommandContext(ctx, "/bin/sh", "-c", `echo $$ > "$1/cgroup.procs" && shift && exec "$@"`, "sh", group.dir, manager, "--bench-image=i", "--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0")
		child.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, fmt.Sprintf("GOMEMLIMIT=%d", managerMiB<<20))
		child.Stdout, child.Stderr = log, log
		Expect(child.Start()).To(Succeed())
		ended := make(chan error, 1)
		go func() { ended <- child.Wait() }()
		Consistently(ended).WithTimeout(3*time.Minute).ShouldNot(Receive(), func() string { return string(log.Contents()[max(0, len(log.Contents())-2000):]) })
		AddReportEntry(fmt.Sprintf("the manager in its cgroup: at most %d MiB of %d in 3 minutes", group.peak()>>20, managerMiB))
		judged := 0
		Expect(observe.Each(ctx, hostileUser, func() client.ObjectList { return &v1alpha1.LatencyBenchmarkList{} }, func(o runtime.Object) error {
			if len(o.(*v1alpha1.LatencyBenchmark).Status.Conditions) > 0 {
				judged++
			}
			return nil
		})).To(Succeed())
		Expect(judged).To(BeNumerically(">=", 10), "benchmarks with conditions: %s", log.Contents())
		Expect(hostileUser.Get(ctx, client.ObjectKeyFromObject(gate), gate)).To(Succeed())
		Expect(gate.Status.Nodes.Total).To(BeEquivalentTo(4), "the gate's status: %+v\n%s", gate.Status, log.Contents())
		Expect(child.Process.Signal(syscall.SIGTERM)).To(Succeed())
		Eventually(ended).WithTimeout(time.Minute).Should(Receive())
	})
})

// memoryGroup is a memory cgroup, v1 or v2, until the spec ends.
type memoryGroup struct{ dir, used string }

func newMemoryGroup(limit int) memoryGroup {
	GinkgoHelper()
	g, file := memoryGroup{dir: "/sys/fs/cgroup", used: "memory.peak"}, "memory.max"
	if _, err := os.Stat("/sys/fs/cgroup/memory"); err == nil {
		g, file = memoryGroup{dir: "/sys/fs/cgroup/memory", used: "memory.max_usage_in_bytes"}, "memory.limit_in_bytes"
	}
	g.dir += fmt.Sprintf("/tailgate-memory-%d", os.Getpid())
	Expect(os.Mkdir(g.dir, 0o755)).To(Succeed())
	DeferCleanup(func() {
		Eventually(func() error { return os.Remove(g.dir) }).WithTimeout(time.Minute).Should(Succeed())
	})
	Expect(os.WriteFile(g.dir+"/"+file, []byte(strconv.Itoa(limit)), 0o644)).To(Succeed())
	return g
}

// peak returns the highest usage in bytes.
func (g memoryGroup) peak() int {
	GinkgoHelper()
	text, err := os.ReadFile(g.dir + "/" + g.used)
	Expect(err).NotTo(HaveOccurred())
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	Expect(err).NotTo(HaveOccurred())
	return n
}

// fill gives a spec as much text as the API accepts in the parts that are largest.
func fill(s *v1alpha1.MeasurementSpec) {
	variables := func() (all []v1alpha1.EnvVar) {
		for i := range 32 {
			all = append(all, v1alpha1.EnvVar{Name: fmt.Sprintf("EF_%060d", i), Value: strings.Repeat("x", 256)})
		}
		return all
	}
	s.Pods = &v1alpha1.PodSettings{Env: variables()}
	s.Variants = []v1alpha1.Variant{{Name: "a", Env: variables()}, {Name: "b", Env: variables()}}
	s.Criteria = &v1alpha1.Criteria{}
	for i := range 32 {
		rule := v1alpha1.Rule{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: fmt.Sprintf("%dus", i+1)}}
		for k := range 8 {
			rule.Cells = append(rule.Cells, fmt.Sprintf("tcp-%058d", k))
		}
		s.Criteria.Rules = append(s.Criteria.Rules, rule)
	}
}
