package integration

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/controllers/gate"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// tally is a client that counts its writes.
type tally struct {
	client.Client
	mu     sync.Mutex
	writes map[string]int
}

func (t *tally) count(verb string, o client.Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes[verb+" "+strings.TrimPrefix(strings.TrimPrefix(fmt.Sprintf("%T", o), "*v1alpha1."), "*v1.")]++
}

// Take returns the counts since the last call.
func (t *tally) Take() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.writes
	t.writes = map[string]int{}
	return taken
}

func (t *tally) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	t.count("create", o)
	return t.Client.Create(ctx, o, options...)
}

func (t *tally) Delete(ctx context.Context, o client.Object, options ...client.DeleteOption) error {
	t.count("delete", o)
	return t.Client.Delete(ctx, o, options...)
}

func (t *tally) Patch(ctx context.Context, o client.Object, p client.Patch, options ...client.PatchOption) error {
	t.count("patch", o)
	return t.Client.Patch(ctx, o, p, options...)
}

func (t *tally) Status() client.SubResourceWriter { return &tallyStatus{t.Client.Status(), t} }

type tallyStatus struct {
	client.SubResourceWriter
	t *tally
}

func (s *tallyStatus) Update(ctx context.Context, o client.Object, options ...client.SubResourceUpdateOption) error {
	s.t.count("status", o)
	return s.SubResourceWriter.Update(ctx, o, options...)
}

func (s *tallyStatus) Patch(ctx context.Context, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
	s.t.count("status", o)
	return s.SubResourceWriter.Patch(ctx, o, p, options...)
}

// fakeRuns finishes every benchmark of a namespace as soon as it is created; finished returns its status.
func fakeRuns(ctx SpecContext, namespace string, finished func(*v1alpha1.LatencyBenchmark) *v1alpha1.LatencyBenchmark) {
	GinkgoHelper()
	created := make(chan *v1alpha1.LatencyBenchmark)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for b := range created {
				if err := k8s.Status().Update(context.Background(), finished(b)); client.IgnoreNotFound(err) != nil {
					fmt.Fprintln(GinkgoWriter, "run:", err)
				}
			}
		})
	}
	DeferCleanup(func() { close(created); group.Wait() })
	follow(ctx, &v1alpha1.LatencyBenchmarkList{}, func(event watch.EventType, o client.Object) {
		if event == watch.Added {
			created <- o.(*v1alpha1.LatencyBenchmark)
		}
	}, client.InNamespace(namespace))
}

// finished returns a benchmark that passed, with a status of realistic size.
func finished(b *v1alpha1.LatencyBenchmark) *v1alpha1.LatencyBenchmark {
	b.Status.Pair = &v1alpha1.Pair{ClientNode: b.Spec.Placement.Client.NodeName, ServerNode: b.Spec.Placement.Server.NodeName}
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, ""))
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, ""))
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, metav1.ConditionTrue, v1alpha1.ReasonPass, "all rules hold"))
	for i := range 10 {
		run := fmt.Sprintf("%s-r%d", b.Name, i+1)
		b.Status.Stored = append(b.Status.Stored, v1alpha1.StoredResult{ConfigMap: run, Run: run, SHA256: strings.Repeat("0", 64), ServerSHA256: strings.Repeat("0", 64)})
		b.Status.Attempts = append(b.Status.Attempts, v1alpha1.Attempt{Run: run, Attempt: 1, StartTime: metav1.NowMicro(), Outcome: v1alpha1.Outcome{Reason: v1alpha1.OutcomeMeasured, CompletionTime: metav1.NowMicro()}})
	}
	for _, size := range []string{"1", "64", "1024"} {
		b.Status.Results = append(b.Status.Results, v1alpha1.CellResult{Variant: "default", Name: "tcp-" + size, Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP}, Rounds: 10, Samples: 1_000_000, MinNanoseconds: new(int64(1234)), Percentiles: []v1alpha1.PercentileResult{{Name: v1alpha1.P50, Nanoseconds: 1500}, {Name: v1alpha1.P99, Nanoseconds: 1700}, {Name: v1alpha1.P999, Nanoseconds: 2000}}})
	}
	for _, role := range []string{v1alpha1.RoleClient, v1alpha1.RoleServer} {
		e := v1alpha1.Endpoint{Variant: "default", Role: role, Node: b.Status.Pair.ClientNode, Kernel: "6.1.0", Placement: v1alpha1.PlacementVerified}
		for i := range 16 {
			e.Proof = append(e.Proof, v1alpha1.ProofLine{Check: fmt.Sprintf("Check%d", i), State: v1alpha1.ProofProved, Expected: "as it should be", Found: "as it is"})
		}
		b.Status.Endpoints = append(b.Status.Endpoints, e)
	}
	return b
}

// inParallel calls do for 0 to n-1, eight calls at a time.
func inParallel(n int, do func(i int)) {
	var group sync.WaitGroup
	next := make(chan int)
	for range 8 {
		group.Go(func() {
			defer GinkgoRecover()
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	group.Wait()
}

// reconcileTimes returns the number of a controller's reconciles, and the upper bound of the 99th percentile of their duration, as
// text.
func reconcileTimes(controller string) (count uint64, p99 string) {
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_time_seconds" {
			continue
		}
		for _, m := range family.GetMetric() {
			own := false
			for _, label := range m.GetLabel() {
				own = own || label.GetName() == "controller" && label.GetValue() == controller
			}
			if !own {
				continue
			}
			count = m.GetHistogram().GetSampleCount()
			for _, bucket := range m.GetHistogram().GetBucket() {
				bound := bucket.GetUpperBound()
				if math.IsInf(bound, 1) {
					break
				}
				p99 = fmt.Sprintf("above %gs", bound)
				if float64(bucket.GetCumulativeCount()) >= 0.99*float64(count) {
					return count, fmt.Sprintf("at most %gs", bound)
				}
			}
		}
	}
	return count, p99
}

// memory returns the heap memory in use after a garbage collection, in MiB.
func memory() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc >> 20
}

// manyNodes creates nodes of the world's gate, which are deleted at the end.
func (w *World) manyNodes(ctx SpecContext, size int, name func(int) string, change func(*corev1.Node)) {
	GinkgoHelper()
	DeferCleanup(func(ctx SpecContext) {
		Eventually(func() error {
			return k8s.DeleteAllOf(ctx, &corev1.Node{}, client.MatchingLabels{GateLabel: w.Namespace})
		}).Should(Succeed())
	})
	inParallel(size, func(i int) {
		n := MakeNode(name(i))
		n.Labels[GateLabel] = w.Namespace
		Identified(&n.Node)
		change(&n.Node)
		node := n.Obj()
		Expect(k8s.Create(ctx, node)).To(Succeed())
		node.Spec.Taints, node.Status = nil, n.Status
		status := node.Status
		Expect(k8s.Update(ctx, node)).To(Succeed())
		node.Status = status
		Expect(k8s.Status().Update(ctx, node)).To(Succeed())
	})
}

// countWrites starts the controllers of gates, and counts what they write.
func (w *World) countWrites(ctx SpecContext) *tally {
	GinkgoHelper()
	common := controllers.Config()
	common.SkipNameValidation = new(true)
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Controller: common, Cache: controllers.CacheOptions(nil),
		// The log would stay in memory until the spec ends.
		Logger: zap.New(zap.WriteTo(io.Discard)),
	})
	Expect(err).NotTo(HaveOccurred())
	counted := &tally{Client: mgr.GetClient(), writes: map[string]int{}}
	api := controllers.API{Client: counted, Live: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("tailgate"), Clock: w.Clock}
	memory := &gate.Memory{}
	Expect((&gate.Gates{API: api, Memory: memory}).SetupWithManager(mgr)).To(Succeed())
	Expect((&gate.Verifications{API: api, Memory: memory}).SetupWithManager(mgr)).To(Succeed())
	run, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer GinkgoRecover()
		defer close(done)
		Expect(mgr.Start(run)).To(Succeed())
	}()
	DeferCleanup(func() { stop(); <-done })
	return counted
}

// With TAILGATE_SCALE=5000, this test takes half an hour for 5000 nodes on two CPUs. Without the variable, it checks with a small
// number of nodes that each is verified with the same number of writes.
var _ = Describe("A gate of many nodes", func() {
	It("verifies each with at most twelve writes", func(ctx SpecContext) {
		size := 40
		if text := os.Getenv("TAILGATE_SCALE"); text != "" {
			var err error
			size, err = strconv.Atoi(text)
			Expect(err).NotTo(HaveOccurred())
		}
		// A busy machine takes long, and its figures are still reported.
		patience := time.Minute + time.Duration(size)*2*time.Second
		w := NewWorld(ctx)
		name := func(i int) string { return fmt.Sprintf("%s-n%04d", w.Namespace, i) }
		images := make([]corev1.ContainerImage, 50)
		for i := range images {
			images[i] = corev1.ContainerImage{Names: []string{fmt.Sprintf("registry.example/image-%d@sha256:%064d", i, i)}, SizeBytes: 1 << 30}
		}
		w.manyNodes(ctx, size, name, func(n *corev1.Node) { n.Status.Images = images })
		fakeRuns(ctx, w.Namespace, finished)
		before := memory()
		counted := w.countWrites(ctx)

		began := time.Now()
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.MaxParallel, s.HistoryLimit = new(intstr.FromInt32(100)), 1 }))
		verifications := func(accepted string) (int, error) {
			list := &v1alpha1.LatencyVerificationList{}
			err := k8s.List(ctx, list, client.MatchingFields{"spec.gateName": g.Name, "status.state": string(v1alpha1.VerificationVerified)})
			return len(slices.DeleteFunc(list.Items, func(v v1alpha1.LatencyVerification) bool {
				return !strings.HasSuffix(v.Status.Accepted.Benchmark, accepted)
			})), err
		}
		events := func() int {
			list := &eventsv1.EventList{}
			Expect(k8s.List(ctx, list)).To(Succeed())
			return len(slices.DeleteFunc(list.Items, func(e eventsv1.Event) bool { return e.Regarding.Kind != "LatencyVerification" }))
		}
		// settled waits until all nodes are verified with a benchmark and the writes have stopped, and reports the writes and times.
		settled := func(round, benchmark string, eventsBefore int) {
			GinkgoHelper()
			// On a busy machine, a list of so many objects may fail.
			Eventually(func() (int, error) { return verifications(benchmark) }).WithTimeout(patience).WithPolling(time.Second).Should(Equal(size))
			took := time.Since(began)
			Eventually(func() string { return GateSays(ctx, g, v1alpha1.ConditionPassed) }).WithTimeout(patience).Should(HavePrefix("True AllVerified"))
			time.Sleep(2 * time.Second)
			writes := counted.Take()
			writes["create Event"] = events() - eventsBefore
			total := 0
			for _, what := range slices.Sorted(maps.Keys(writes)) {
				AddReportEntry(fmt.Sprintf("%s: %-30s %6d, %.2f a node", round, what, writes[what], float64(writes[what])/float64(size)))
				total += writes[what]
			}
			AddReportEntry(fmt.Sprintf("%s: %d nodes in %s, %.2f writes a node", round, size, took.Round(time.Second), float64(total)/float64(size)))
			for _, controller := range []string{"latencygate", "latencyverification"} {
				count, p99 := reconcileTimes(controller)
				AddReportEntry(fmt.Sprintf("%s: so far %d reconciles of %s, p99 %s", round, count, controller, p99))
			}
			AddReportEntry(fmt.Sprintf("%s: memory of caches and controllers: %d MiB", round, memory()-before))
			// The gate writes its own status twice a second at most.
			ofGate := writes["status LatencyGate"]
			Expect(ofGate).To(BeNumerically("<=", 10+2*took.Seconds()))
			Expect(float64(total-ofGate) / float64(size)).To(BeNumerically("<=", 11.75))
		}
		settled("first", "-1", events())
		eventsBefore := events()
		began = time.Now()
		inParallel(size, func(i int) { w.Upgrade(ctx, name(i), "6.2.0") })
		settled("upgrade", "-2", eventsBefore)
		eventsBefore = events()
		began = time.Now()
		inParallel(size, func(i int) { w.Upgrade(ctx, name(i), "6.3.0") })
		settled("second upgrade", "-3", eventsBefore)
	})

	It("is introduced to 200 nodes without holding one, and measures an upgrade of all of them 10 % at a time", func(ctx SpecContext) {
		const size = 200
		w := NewWorld(ctx)
		name := func(i int) string { return fmt.Sprintf("%s-n%04d", w.Namespace, i) }
		w.manyNodes(ctx, size, name, func(*corev1.Node) {})
		fakeRuns(ctx, w.Namespace, finished)
		counted := w.countWrites(ctx)
		var mu sync.Mutex
		// most is the highest number of nodes that were measured at once, and twice is a node that was part of two measurements.
		measuring, most, twice := map[string]string{}, 0, ""
		stopMeasuring := follow(ctx, &v1alpha1.LatencyVerificationList{}, func(_ watch.EventType, o client.Object) {
			mu.Lock()
			defer mu.Unlock()
			v := o.(*v1alpha1.LatencyVerification)
			delete(measuring, v.Spec.NodeName)
			if v.Status.State == v1alpha1.VerificationMeasuring {
				measuring[v.Spec.NodeName] = v.Status.Benchmark.Peer
			}
			most = max(most, len(measuring))
			busy := map[string]bool{}
			for node, peer := range measuring {
				if busy[node] || busy[peer] {
					twice = node + " with " + peer
				}
				busy[node], busy[peer] = true, true
			}
		})
		held, marked := 0, 0
		stopNodes := follow(ctx, &corev1.NodeList{}, func(_ watch.EventType, o client.Object) {
			mu.Lock()
			defer mu.Unlock()
			n := o.(*corev1.Node)
			is := corev1.ConditionStatus("")
			for _, c := range n.Status.Conditions {
				if c.Type == v1alpha1.NodeConditionVerified {
					is = c.Status
				}
			}
			if is != "" {
				marked++
			}
			if is != "" && is != corev1.ConditionTrue || n.Labels[v1alpha1.NodeLabelVerified] == "false" || MarksOf(n).Taint == "" {
				held++
			}
		}, client.MatchingLabels{GateLabel: w.Namespace})

		began := time.Now()
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) {
			s.MaxParallel, s.HistoryLimit, s.Enforcement.Mode = nil, 1, v1alpha1.EnforcementObserve
		}))
		report := func(what string) {
			GinkgoHelper()
			mu.Lock()
			defer mu.Unlock()
			AddReportEntry(fmt.Sprintf("%s: %d nodes in %s, at most %d at once, writes %v", what, size, time.Since(began).Round(time.Second), most, counted.Take()))
		}
		passed := func() string { return GateSays(ctx, g, v1alpha1.ConditionPassed) }
		Eventually(passed).WithTimeout(10 * time.Minute).WithPolling(time.Second).Should(HavePrefix("True AllVerified: all 200"))
		Expect(GateSays(ctx, g, v1alpha1.ConditionOperational)).To(HaveSuffix("spec.enforcement.mode is Observe"))
		report("Observe")
		mu.Lock()
		Expect(marked).To(BeZero(), "in Observe mode, the gate marks no Node")
		mu.Unlock()

		began = time.Now()
		Expect(k8s.Patch(ctx, g, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"enforcement":{"mode":"Enforce"}}}`)))).To(Succeed())
		Eventually(w.letInAll).WithArguments(ctx).WithTimeout(5 * time.Minute).WithPolling(time.Second).Should(Equal(size))
		report("Enforce")
		mu.Lock()
		Expect(held).To(BeZero(), "a verified node is not held back when the mode changes")
		most = 0
		mu.Unlock()

		began = time.Now()
		inParallel(size, func(i int) { w.Upgrade(ctx, name(i), "6.2.0") })
		Eventually(passed).WithTimeout(time.Minute).ShouldNot(HavePrefix("True"))
		Eventually(passed).WithTimeout(10 * time.Minute).WithPolling(time.Second).Should(HavePrefix("True AllVerified: all 200"))
		report("upgrade")
		stopMeasuring()
		stopNodes()
		Expect(held).To(BeNumerically(">=", size))
		Expect(most).To(And(BeNumerically(">", 1), BeNumerically("<=", size/10)))
		Expect(twice).To(BeEmpty())
	})

	It("writes nothing to the Nodes, and evicts nothing, when all runtimes or labellers are away for a moment", func(ctx SpecContext) {
		const size, label = 200, "feature.node.kubernetes.io/nic"
		w := NewWorld(ctx)
		name := func(i int) string { return fmt.Sprintf("%s-n%04d", w.Namespace, i) }
		w.manyNodes(ctx, size, name, func(n *corev1.Node) {
			n.Labels[label] = "8.4"
			n.Status.NodeInfo.ContainerRuntimeVersion = "containerd://1.7.27"
		})
		fakeRuns(ctx, w.Namespace, finished)
		counted := w.countWrites(ctx)
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) {
			s.MaxParallel, s.HistoryLimit, s.Identity.Labels = new(intstr.FromInt32(100)), 1, []string{label}
			s.Enforcement.Taint.Effect = corev1.TaintEffectNoExecute
		}))
		passed := func() string { return GateSays(ctx, g, v1alpha1.ConditionPassed) }
		Eventually(passed).WithTimeout(10 * time.Minute).WithPolling(time.Second).Should(HavePrefix("True AllVerified: all 200"))
		absent := func() int {
			list := &v1alpha1.LatencyVerificationList{}
			Expect(k8s.List(ctx, list, client.MatchingFields{"spec.gateName": g.Name})).To(Succeed())
			return len(slices.DeleteFunc(list.Items, func(v v1alpha1.LatencyVerification) bool { return len(v.Status.Absent) == 0 }))
		}
		// No version of any Node may have a mark that holds it back: watched from here on.
		// The gate knows that a node is verified before it marks the Node.
		Eventually(w.letInAll).WithArguments(ctx).WithTimeout(5 * time.Minute).WithPolling(time.Second).Should(Equal(size))
		versions, held := 0, 0
		stop := follow(ctx, &corev1.NodeList{}, func(_ watch.EventType, o client.Object) {
			n := o.(*corev1.Node)
			versions++
			if MarksOf(n) != (Marks{Version: n.ResourceVersion, Kernel: n.Status.NodeInfo.KernelVersion, Condition: "True", Label: "true", Taint: "untainted"}) {
				held++
			}
		}, client.MatchingLabels{GateLabel: w.Namespace})
		counted.Take()
		blink := func(what string, gone, back func(i int), by time.Duration) {
			GinkgoHelper()
			inParallel(size, gone)
			Eventually(absent).WithPolling(time.Second).Should(Equal(size))
			Expect(passed()).To(HavePrefix("True AllVerified"))
			w.Clock.ahead.Add(int64(by))
			inParallel(size, back)
			Eventually(absent).WithPolling(time.Second).Should(BeZero())
			Expect(passed()).To(HavePrefix("True AllVerified"))
			AddReportEntry(fmt.Sprintf("%s: writes %v", what, counted.Take()))
		}
		runtimeIs := func(version string) func(int) {
			return func(i int) {
				w.ChangeNodeStatus(ctx, name(i), func(n *corev1.Node) { n.Status.NodeInfo.ContainerRuntimeVersion = version })
			}
		}
		blink("all runtimes Unknown for one status", runtimeIs("containerd://Unknown"), runtimeIs("containerd://1.7.27"), 0)
		blink("all labels of NFD gone for two minutes",
			func(i int) { w.ChangeNode(ctx, name(i), func(n *corev1.Node) { delete(n.Labels, label) }) },
			func(i int) { w.ChangeNode(ctx, name(i), func(n *corev1.Node) { n.Labels[label] = "8.4" }) }, 2*time.Minute)
		stop()
		AddReportEntry(fmt.Sprintf("%d versions of Nodes, of which %d held a node back", versions, held))
		Expect(held).To(BeZero())
		Expect(versions).To(BeNumerically("<=", 5*size), "the first, and those that the kubelets and the labeller wrote")
		benchmarks := &v1alpha1.LatencyBenchmarkList{}
		Expect(k8s.List(ctx, benchmarks, client.InNamespace(w.Namespace))).To(Succeed())
		Expect(benchmarks.Items).To(HaveLen(size), "nothing was measured again")
	})
})
