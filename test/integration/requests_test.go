package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// mostRequests is how many requests a run may cost the API server, with those for the logs of its pods, and mostPerSecond those of looks at
// the pods while it lasts, because a busy machine takes longer.
const mostRequests, mostPerSecond = 44, 2.5

// requestCount counts the requests of managers by verb and resource.
type requestCount struct {
	sync.Mutex
	by map[string]int
}

// ofResource matches the path of a request for objects of a resource.
var ofResource = regexp.MustCompile(`^/apis?/(?:[^/]+\.[^/]+/)?v[^/]+/(?:namespaces/[^/]+/)?([^/]+)(/[^/]+)?(/status)?$`)

// count counts the requests of a world's managers from now on, except watches, discovery and those that skip matches.
func count(w *World, skip *regexp.Regexp) *requestCount {
	all := &requestCount{by: map[string]int{}}
	asked := func(r *http.Request) {
		if m := ofResource.FindStringSubmatch(r.URL.Path); m != nil && (skip == nil || !skip.MatchString(r.URL.Path)) {
			verb := r.Method
			if verb == http.MethodGet && m[2] == "" {
				verb = "LIST"
			}
			all.add(verb + " " + m[1] + m[3])
		}
	}
	w.asked.Store(&asked)
	return all
}

func (r *requestCount) add(what string) {
	r.Lock()
	defer r.Unlock()
	r.by[what]++
}

// total returns the number of requests, and lists them.
func (r *requestCount) total() (n int, list string) {
	r.Lock()
	defer r.Unlock()
	for _, times := range r.by {
		n += times
	}
	return n, fmt.Sprint(r.by)
}

// starts reports the steps in which a kubelet reports the start of a pod: three statuses before its container runs.
func starts(ctx context.Context, w *World, pod *corev1.Pod) {
	GinkgoHelper()
	for _, condition := range []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReadyToStartContainers, corev1.ContainersReady} {
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue})
		Expect(w.Kubelet.report(ctx, pod)).To(Succeed())
	}
	w.Kubelet.Run(ctx, pod)
}

var _ = Describe("The requests of the manager", func() {
	var w *World
	BeforeEach(func(ctx SpecContext) { w = NewWorld(ctx) })

	It("are few for a run", func(ctx SpecContext) {
		all, log := count(w, nil), &Journal{}
		w.Log = zap.New(zap.WriteTo(log))
		w.Logs = func(ctx context.Context, pod types.NamespacedName, follow bool) (io.ReadCloser, error) {
			all.add("GET pods/log")
			return w.Kubelet.Logs(ctx, pod, follow)
		}
		w.Start()
		const runs = 5
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(runs).On(w.A, w.B))
		first, list, began := 0, "", time.Time{}
		for n := range runs {
			run := fmt.Sprintf("x-r%d", n+1)
			server := w.Kubelet.Pod(ctx, run, 1, v1alpha1.RoleServer)
			if n == 1 {
				first, list = all.total()
				began = time.Now()
			}
			starts(ctx, w, server)
			peer := w.Kubelet.Pod(ctx, run, 1, v1alpha1.RoleClient)
			starts(ctx, w, peer)
			time.Sleep(time.Second)
			w.Kubelet.Succeed(ctx, peer)
			w.Kubelet.Succeed(ctx, server)
		}
		ExpectSucceeded(ctx, b, "^True Complete")
		last, lists := all.total()
		Expect(log.Lines(func(l map[string]any) bool { return l["level"] == "error" })).To(BeEmpty())
		seconds := time.Since(began).Seconds() / (runs - 1)
		AddReportEntry("requests of a run", fmt.Sprintf("%.1f in %.1f s; first %s, then %s", float64(last-first)/(runs-1), seconds, list, lists))
		Expect(float64(last-first)/(runs-1)).To(BeNumerically("<=", mostRequests+mostPerSecond*seconds), "first %s, then %s", list, lists)
	})

	It("are none for benchmarks that wait while nothing changes for them", func(ctx SpecContext) {
		installMultus()
		CreateNetwork(ctx, w.Namespace, "sf-vf", "")
		w.Settings.StartTimeout = time.Hour
		manager := w.Start()
		first := w.Create(ctx, MakeBenchmark(w.Namespace, "first").Rounds(2).On(w.A, w.B))
		w.Kubelet.Pod(ctx, "first-r1", 1, v1alpha1.RoleServer)
		var waiting []*v1alpha1.LatencyBenchmark
		for n := range 10 {
			b := MakeBenchmark(w.Namespace, fmt.Sprintf("later-%d", n)).NAD("sf-vf").On(w.A, w.B)
			waiting = append(waiting, w.Create(ctx, b))
			ExpectSucceeded(ctx, waiting[n], "^Unknown Queued: waiting: .*first is measuring")
		}
		for _, b := range waiting {
			manager.Sees(ctx, Get(ctx, b))
		}
		// Those of the benchmark that measures name it, or its pods' events.
		all := count(w, regexp.MustCompile("/first|/events$"))
		for n := range 3 {
			By("waking all of them by a change of a node")
			node := &corev1.Node{}
			Expect(k8s.Get(ctx, types.NamespacedName{Name: w.A}, node)).To(Succeed())
			node.Labels["test.tailgate.dev/turn"] = fmt.Sprint(n)
			Expect(k8s.Update(ctx, node)).To(Succeed())
			time.Sleep(2 * time.Second)
		}
		n, list := all.total()
		Expect(n).To(BeZero(), list)
		Expect(strings.Contains(Get(ctx, first).Status.Progress.Runs, "0/2")).To(BeTrue())
	})
})
