package integration

import (
	"context"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// groupLabel selects several nodes of a spec: its value is the spec's namespace.
const groupLabel = "test.tailgate.dev/group"

// AllPairs measures all nodes of the spec's group with each other.
func (b *BenchmarkBuilder) AllPairs(maxParallel int32) *BenchmarkBuilder {
	b.Spec.Placement.Pairing, b.Spec.Placement.MaxParallelPairs = v1alpha1.PairingAllPairs, maxParallel
	b.Spec.Placement.Nodes = b.group()
	return b
}

// Star measures all nodes of the spec's group with one server.
func (b *BenchmarkBuilder) Star(server string) *BenchmarkBuilder {
	b.Spec.Placement.Pairing = v1alpha1.PairingStar
	b.Spec.Placement.Client, b.Spec.Placement.Server = b.group(), &v1alpha1.NodeSelection{NodeName: server}
	return b
}

func (b *BenchmarkBuilder) group() *v1alpha1.NodeSelection {
	return &v1alpha1.NodeSelection{NodeSelector: map[string]string{groupLabel: b.Namespace}}
}

// Group adds nodes to be measured with each other.
func (w *World) Group(ctx SpecContext, names ...string) {
	GinkgoHelper()
	for _, name := range names {
		n := MakeNode(w.Namespace + "-" + name)
		n.Labels[groupLabel] = w.Namespace
		n.Status.Allocatable[vf] = resource.MustParse("4")
		w.AddNode(ctx, n)
	}
}

// children are the benchmarks of the pairs, by name.
func children(ctx context.Context, b *v1alpha1.LatencyBenchmark) map[string]v1alpha1.LatencyBenchmark {
	GinkgoHelper()
	list := &v1alpha1.LatencyBenchmarkList{}
	Expect(k8s.List(ctx, list, client.InNamespace(b.Namespace), client.MatchingLabels{v1alpha1.LabelParent: b.Name})).To(Succeed())
	all := map[string]v1alpha1.LatencyBenchmark{}
	for _, child := range list.Items {
		all[child.Name] = child
	}
	return all
}

// child waits for the benchmark of a pair.
func child(ctx context.Context, b *v1alpha1.LatencyBenchmark, number int32) *v1alpha1.LatencyBenchmark {
	GinkgoHelper()
	c := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.PairName(number)}}
	Eventually(func() error { return k8s.Get(ctx, client.ObjectKeyFromObject(c), c) }).Should(Succeed())
	return c
}

// remove deletes a benchmark and what it owns, as the garbage collector does.
func remove(ctx context.Context, b *v1alpha1.LatencyBenchmark) {
	GinkgoHelper()
	Expect(k8s.Delete(ctx, b)).To(Succeed())
	for _, cm := range configMaps(ctx, b) {
		Expect(k8s.Delete(ctx, &cm)).To(Succeed())
	}
	for _, pod := range podsLeft(ctx, b) {
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, &pod, client.GracePeriodSeconds(0)))).To(Succeed())
	}
}

// toldOf are the events about a benchmark, as "type reason: note".
func toldOf(ctx context.Context, b *v1alpha1.LatencyBenchmark) ([]string, error) {
	list := &eventsv1.EventList{}
	err := k8s.List(ctx, list, client.InNamespace(b.Namespace))
	var all []string
	for _, e := range list.Items {
		if e.Regarding.Name == b.Name {
			all = append(all, fmt.Sprintf("%s %s: %s", e.Type, e.Reason, e.Note))
		}
	}
	return all, err
}

// pairsOf lists the pairs of a plan as "client>server", without the namespace in the names.
func (w *World) pairsOf(all map[string]v1alpha1.LatencyBenchmark) map[string]string {
	pairs := map[string]string{}
	for name, c := range all {
		p := c.Spec.Placement
		pairs[name] = strings.ReplaceAll(p.Client.NodeName+">"+p.Server.NodeName, w.Namespace+"-", "")
	}
	return pairs
}

// ExpectApart holds the history of the pods against the pairs: never two of them on one node, never more at once than
// may be, and on each node in the order of the plan.
func (w *World) ExpectApart(all map[string]v1alpha1.LatencyBenchmark, maxParallel int) {
	GinkgoHelper()
	present, last := map[string]int{}, map[string]string{}
	for _, e := range w.Kubelet.History() {
		if e.Gone {
			if present[e.Benchmark]--; present[e.Benchmark] == 0 {
				delete(present, e.Benchmark)
			}
			continue
		}
		present[e.Benchmark]++
		Expect(len(present)).To(BeNumerically("<=", maxParallel))
		used := map[string]string{}
		for name := range present {
			placement := all[name].Spec.Placement
			for _, node := range []string{placement.Client.NodeName, placement.Server.NodeName} {
				Expect(used).NotTo(HaveKey(node), "%s and %s were on %s at once", name, used[node], node)
				used[node] = name
			}
		}
		placement := all[e.Benchmark].Spec.Placement
		for _, node := range []string{placement.Client.NodeName, placement.Server.NodeName} {
			Expect(e.Benchmark >= last[node]).To(BeTrue(), "%s was on %s after %s", e.Benchmark, node, last[node])
			last[node] = e.Benchmark
		}
	}
}

// ExpectMeasured waits, for many runs, until condition Succeeded says something.
func ExpectMeasured(ctx context.Context, b *v1alpha1.LatencyBenchmark, pattern string) {
	GinkgoHelper()
	Eventually(func() string { return condition(ctx, b, v1alpha1.ConditionSucceeded) }).Should(MatchRegexp(pattern))
}

// allPairsOfFour is the plan of four nodes, two pairs at once.
var allPairsOfFour = map[string]string{"x-p1": "1>4", "x-p2": "2>3", "x-p3": "4>2", "x-p4": "3>1", "x-p5": "3>4", "x-p6": "1>2"}

var _ = Describe("A benchmark of many pairs", func() {
	var w *World
	BeforeEach(func(ctx SpecContext) {
		w = NewWorld(ctx)
		w.Group(ctx, "1", "2", "3", "4")
	})

	It("measures each pair by a benchmark of its own, and never two on one node", func(ctx SpecContext) {
		w.Kubelet.Auto(ctx)
		w.Kubelet.Agents(slower("x-p4-"))
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(2).AllPairs(2))
		ExpectAccepted(ctx, b, "^True Accepted: 4 nodes: 6 pairs, in 3 slots of at most 2 at once$")
		ExpectSucceeded(ctx, b, `^Unknown Running: \d of 6 pairs done; measuring x-p`)
		By("a node that comes later, which does not change the plan")
		w.Group(ctx, "5")
		ExpectMeasured(ctx, b, "^True Complete: 6 of 6 pairs measured; the worst is x-p4$")

		all := children(ctx, b)
		Expect(w.pairsOf(all)).To(Equal(allPairsOfFour))
		w.ExpectApart(all, 2)
		Expect(w.Kubelet.Created()).To(HaveLen(6 * 2 * 2))
		for _, c := range all {
			owner := metav1.GetControllerOf(&c)
			Expect(owner.UID).To(Equal(b.UID))
			Expect(owner.BlockOwnerDeletion).To(HaveValue(BeTrue()))
			Expect(c.Status.Results[0].Rounds).To(BeEquivalentTo(2))
			Expect(configMaps(ctx, &c)).To(HaveLen(2))
		}

		By("what the status says")
		status := Get(ctx, b).Status
		Expect(status.Pair).To(BeNil())
		Expect(*status.Progress).To(Equal(v1alpha1.Progress{Runs: "12/12", Done: 12, Total: 12}))
		Expect(status.StartTime).NotTo(BeNil())
		Expect(status.CompletionTime).NotTo(BeNil())
		Expect(status.ObservedGeneration).To(BeEquivalentTo(1))
		pairs := status.Pairs
		Expect(pairs.Nodes).To(HaveExactElements(HaveSuffix("-1"), HaveSuffix("-2"), HaveSuffix("-3"), HaveSuffix("-4")))
		Expect([]int32{pairs.Total, pairs.Slots, pairs.Done, pairs.Failed}).To(Equal([]int32{6, 3, 6, 0}))
		Expect(pairs.Running).To(BeEmpty())
		Expect(pairs.Worst).To(HaveLen(6))
		worst := pairs.Worst[0]
		Expect(worst.Benchmark).To(Equal("x-p4"))
		Expect(worst.Pair).To(Equal(v1alpha1.Pair{ClientNode: w.Namespace + "-3", ServerNode: w.Namespace + "-1"}))
		Expect(worst.LatencyType).To(BeEquivalentTo(v1alpha1.LatencyHalfRTT))
		Expect(*worst.Percentile(v1alpha1.P99)).To(BeNumerically("~", 10_990, 10))
		Expect(pairs.Summary).To(HaveLen(1))
		line := pairs.Summary[0]
		Expect([]any{line.Variant, line.Cell, line.Pairs, line.P99.MaxBenchmark}).To(Equal([]any{"default", "tcp-64", int32(6), "x-p4"}))
		Expect(*line.P99.MedianNanoseconds).To(BeNumerically("~", 5990, 10))
		Expect(*line.P50.MaxNanoseconds).To(BeNumerically("~", 10_500, 10))
		Expect(status.Summary.Cell).To(Equal("tcp-64, worst of 6 pairs"))
		Expect(status.Summary.P99).To(Equal("10.99µs"))

		By("what the events tell")
		Eventually(toldOf).WithArguments(ctx, b).Should(ConsistOf(
			HavePrefix("Normal Accepted: 4 nodes"), HavePrefix("Normal Complete: 6 of 6"),
			HavePrefix("Normal PairMeasured: measured x-p1, client on "+w.Namespace+"-1, server on "+w.Namespace+"-4"),
			HavePrefix("Normal PairMeasured: measured x-p2, "), HavePrefix("Normal PairMeasured: measured x-p3, "),
			HavePrefix("Normal PairMeasured: measured x-p4, "), HavePrefix("Normal PairMeasured: measured x-p5, "),
			HavePrefix("Normal PairMeasured: measured x-p6, "),
		))

		By("nothing more being written")
		written := Get(ctx, b).Status
		w.Patiently(ctx, b, func() any { return Get(ctx, b).Status }, Equal(written))
	})

	It("of pairing Star has one server, which is no client", func(ctx SpecContext) {
		w.Kubelet.Auto(ctx)
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Star(w.Namespace+"-2"))
		ExpectSucceeded(ctx, b, "^True Complete: 3 of 3 pairs measured")
		Expect(condition(ctx, b, v1alpha1.ConditionAccepted)).To(Equal(
			"True Accepted: clients on 3 nodes, server on " + w.Namespace + "-2: 3 pairs, in 3 slots of at most 1 at once"))
		Expect(w.pairsOf(children(ctx, b))).To(Equal(map[string]string{"x-p1": "1>2", "x-p2": "3>2", "x-p3": "4>2"}))
		w.ExpectApart(children(ctx, b), 1)
	})

	It("says what it waits for, and is looked at again when the cluster changes", func(ctx SpecContext) {
		w.Start()
		builder := MakeBenchmark(w.Namespace, "x").AllPairs(0)
		builder.Spec.Placement.Nodes.NodeSelector = map[string]string{groupLabel: "later-" + w.Namespace}
		b := w.Create(ctx, builder.Rule(under("6us")))
		ExpectAccepted(ctx, b, "^False NoMatchingNode: spec.placement.nodes.*later-")
		ExpectSucceeded(ctx, b, "^Unknown NotAccepted: spec.placement.nodes")
		ExpectPassed(ctx, b, "^Unknown NotJudged")
		label := func(name string) {
			node := &corev1.Node{}
			Expect(k8s.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
			node.Labels[groupLabel] = "later-" + w.Namespace
			Expect(k8s.Update(ctx, node)).To(Succeed())
		}
		label(w.A)
		ExpectAccepted(ctx, b, "^False SameNode: spec.placement.nodes: only node "+w.A)
		label(w.B)
		ExpectAccepted(ctx, b, "^True Accepted: 2 nodes: 1 pairs, in 1 slots of at most 1 at once")
		w.Kubelet.Measure(ctx, "x-p1-r1", 1)
		ExpectSucceeded(ctx, b, "^True Complete: 1 of 1")
	})

	DescribeTable("is measured once, whenever its manager dies:",
		func(ctx SpecContext, dies death) {
			w.Kubelet.Auto(ctx)
			first := w.Start(dies)
			b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").AllPairs(2))
			Eventually(first.client.dead.Load).Should(BeTrue())
			first.Stop()
			w.Start()
			ExpectMeasured(ctx, b, "^True Complete: 6 of 6")
			Expect(w.pairsOf(children(ctx, b))).To(Equal(allPairsOfFour))
			Expect(w.Kubelet.Created()).To(HaveLen(6 * 2))
			w.ExpectApart(children(ctx, b), 2)
			Eventually(toldOf).WithArguments(ctx, b).Should(ContainElement(HavePrefix("Normal Complete")))
			Expect(toldOf(ctx, b)).NotTo(ContainElement(HavePrefix("Warning")))
		},
		Entry("before it accepts", notesPairs(func(p *v1alpha1.PairsStatus) bool { return true })),
		Entry("before it claims", notesPairs(func(p *v1alpha1.PairsStatus) bool { return len(p.Running) > 0 })),
		Entry("having claimed, before there is a benchmark", createsChild("x-p1")),
		Entry("having made one of two", createsChild("x-p2")),
		Entry("having made them, without saying so", notesPairs(func(p *v1alpha1.PairsStatus) bool { return len(p.Running) > 0 && p.Running[0].UID != "" })),
		Entry("when one is finished, before it says so", notesPairs(func(p *v1alpha1.PairsStatus) bool { return p.Done >= 1 })),
		Entry("before it says that all is done", notesPairs(func(p *v1alpha1.PairsStatus) bool { return p.Done == 6 })),
	)

	It("measures again what somebody deletes, even when everything was measured", func(ctx SpecContext) {
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Star(w.Namespace+"-1"))
		By("while it is measured")
		server := w.Kubelet.Pod(ctx, "x-p1-r1", 1, v1alpha1.RoleServer)
		Eventually(func() []v1alpha1.RunningPair { return Get(ctx, b).Status.Pairs.Running }).Should(ConsistOf(HaveField("UID", Not(BeEmpty()))))
		first := child(ctx, b, 1)
		remove(ctx, first)
		w.Kubelet.Gone(ctx, server)
		Eventually(toldOf).WithArguments(ctx, b).Should(ContainElement("Warning PairDeleted: x-p1 was deleted before everything was measured; its results are lost, and it is measured again"))
		w.Kubelet.Measure(ctx, "x-p1-r1", 1)
		w.Kubelet.Measure(ctx, "x-p2-r1", 1)
		w.Kubelet.Measure(ctx, "x-p3-r1", 1)
		ExpectSucceeded(ctx, b, "^True Complete: 3 of 3")
		Expect(child(ctx, b, 1).UID).NotTo(Equal(first.UID))

		By("when all are measured")
		w.Kubelet.Agents(slower("x-p2-"))
		remove(ctx, child(ctx, b, 2))
		ExpectSucceeded(ctx, b, "^Unknown .*: 2 of 3 pairs done")
		Expect(Get(ctx, b).Status.CompletionTime).To(BeNil())
		w.Kubelet.Measure(ctx, "x-p2-r1", 1)
		ExpectSucceeded(ctx, b, "^True Complete: 3 of 3 pairs measured; the worst is x-p2")
		Eventually(toldOf).WithArguments(ctx, b).Should(ContainElement(HavePrefix("Warning PairDeleted: the benchmarks of finished pairs were deleted (1)")))
	})

	It("fails when a pair does, after all others were measured", func(ctx SpecContext) {
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Star(w.Namespace+"-1"))
		server := w.Kubelet.Pod(ctx, "x-p1-r1", 1, v1alpha1.RoleServer)
		w.Kubelet.Fail(ctx, server, v1alpha1.OutcomeToolMissing, "no such program")
		w.Kubelet.Gone(ctx, server)
		w.Kubelet.Measure(ctx, "x-p2-r1", 1)
		ExpectSucceeded(ctx, b, "^Unknown .*: 2 of 3 pairs done")
		w.Kubelet.Measure(ctx, "x-p3-r1", 1)
		ExpectSucceeded(ctx, b, "^False Failed: 1 of 3 pairs failed, first x-p1: run x-p1-r1 failed .ToolMissing.*no such program")
		status := Get(ctx, b).Status
		Expect([]int32{status.Pairs.Done, status.Pairs.Failed}).To(Equal([]int32{3, 1}))
		Expect(status.Pairs.Worst).To(HaveLen(2))
		Expect(status.CompletionTime).NotTo(BeNil())
		Eventually(toldOf).WithArguments(ctx, b).Should(ContainElements(HavePrefix("Warning PairFailed: x-p1 failed: run x-p1-r1"), HavePrefix("Warning Failed: 1 of 3")))

		By("the failed one's being deleted, to measure it again")
		remove(ctx, child(ctx, b, 1))
		w.Kubelet.Measure(ctx, "x-p1-r1", 1)
		ExpectSucceeded(ctx, b, "^True Complete: 3 of 3")
	})

	It("does not wait for a node that has long been away, but for that alone", func(ctx SpecContext) {
		ready := func(name string, status corev1.ConditionStatus) {
			GinkgoHelper()
			node := &corev1.Node{}
			Expect(k8s.Get(ctx, client.ObjectKey{Name: w.Namespace + "-" + name}, node)).To(Succeed())
			node.Status.Conditions[0].Status = status
			Expect(k8s.Status().Update(ctx, node)).To(Succeed())
		}
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(2).Star(w.Namespace+"-1"))
		w.Kubelet.Measure(ctx, "x-p1-r1", 1)
		server := w.Kubelet.Pod(ctx, "x-p1-r2", 1, v1alpha1.RoleServer)
		w.Clock.Stop()
		ready("2", corev1.ConditionFalse)
		w.Kubelet.Fail(ctx, server, v1alpha1.OutcomeToolFailed, "once")
		w.Kubelet.Gone(ctx, server)
		ExpectSucceeded(ctx, child(ctx, b, 1), "^Unknown Retrying")
		w.Advance(ctx, 6*time.Second, child(ctx, b, 1))
		ExpectSucceeded(ctx, b, "^Unknown NotAccepted: 0 of 3 pairs done; x-p1: .*-2.*")

		first := child(ctx, b, 1)
		// The clock stands still: with it, all pods would become old.
		since := func(ago time.Duration) {
			GinkgoHelper()
			Eventually(func() error {
				current := child(ctx, b, 1)
				meta.FindStatusCondition(current.Status.Conditions, v1alpha1.ConditionAccepted).LastTransitionTime = metav1.NewTime(w.Clock.Now().Add(-ago))
				return k8s.Status().Update(ctx, current)
			}).Should(Succeed())
			Wake(ctx, b)
		}
		By("for a while")
		since(8 * time.Minute)
		w.Patiently(ctx, b, func() any { return child(ctx, b, 1).UID }, Equal(first.UID))
		By("and not for ever")
		since(11 * time.Minute)
		Eventually(func() bool { return k8s.Get(ctx, client.ObjectKeyFromObject(first), first) != nil }).Should(BeTrue())
		for _, cm := range configMaps(ctx, first) {
			Expect(k8s.Delete(ctx, &cm)).To(Succeed())
		}
		for _, run := range []string{"x-p2-r1", "x-p2-r2", "x-p3-r1", "x-p3-r2"} {
			w.Kubelet.Measure(ctx, run, 1)
		}
		ExpectSucceeded(ctx, b, "^Unknown NotAccepted: 2 of 3 pairs done; x-p1: ")
		Eventually(toldOf).WithArguments(ctx, b).Should(ContainElement(HavePrefix("Warning PairPostponed: x-p1 is measured, from its first round on, after the others: ")))
		By("the node's return")
		ready("2", corev1.ConditionTrue)
		w.Kubelet.Measure(ctx, "x-p1-r1", 1)
		w.Kubelet.Measure(ctx, "x-p1-r2", 1)
		ExpectSucceeded(ctx, b, "^True Complete: 3 of 3")
	})

	It("measures first where nobody else does", func(ctx SpecContext) {
		w.Start()
		other := w.Create(ctx, MakeBenchmark(w.Namespace, "other").On(w.Namespace+"-2", w.B))
		server := w.Kubelet.Pod(ctx, "other-r1", 1, v1alpha1.RoleServer)
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Star(w.Namespace+"-1"))
		w.Kubelet.Measure(ctx, "x-p2-r1", 1)
		w.Kubelet.Measure(ctx, "x-p3-r1", 1)
		ExpectSucceeded(ctx, b, "^Unknown Queued: 2 of 3 pairs done; queued x-p1")
		w.Kubelet.Run(ctx, server)
		peer := w.Kubelet.Pod(ctx, "other-r1", 1, v1alpha1.RoleClient)
		w.Kubelet.Run(ctx, peer)
		w.Kubelet.Succeed(ctx, server)
		w.Kubelet.Succeed(ctx, peer)
		w.Kubelet.Gone(ctx, server, peer)
		ExpectSucceeded(ctx, other, "^True Complete")
		w.Kubelet.Measure(ctx, "x-p1-r1", 1)
		ExpectSucceeded(ctx, b, "^True Complete: 3 of 3")
	})

	It("leaves only what goes with it when it is deleted", func(ctx SpecContext) {
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").AllPairs(2))
		child(ctx, b, 1)
		child(ctx, b, 2)
		Expect(k8s.Delete(ctx, b)).To(Succeed())
		changed := child(ctx, b, 1)
		changed.Spec.Priority++
		Expect(k8s.Update(ctx, changed)).To(Succeed(), "which wakes the controller of pairs")
		w.Patiently(ctx, child(ctx, b, 2), func() any { return values(children(ctx, b)) }, HaveLen(2))
		for _, c := range children(ctx, b) {
			Expect(metav1.GetControllerOf(&c).UID).To(Equal(b.UID))
			Expect(c.Finalizers).To(BeEmpty())
		}

		By("one of its name, which waits until they are gone")
		again := w.Create(ctx, MakeBenchmark(w.Namespace, "x").AllPairs(2))
		ExpectSucceeded(ctx, again, "^Unknown Queued: 0 of 6 pairs done; LatencyBenchmark x-p1 is not gone yet")
		remove(ctx, child(ctx, b, 1))
		Eventually(func() bool { return metav1.IsControlledBy(child(ctx, again, 1), again) }).Should(BeTrue())
	})

	It("says who has the name that a pair needs", func(ctx SpecContext) {
		other := w.Create(ctx, MakeBenchmark(w.Namespace, "x-p1").On(w.A, w.B))
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Star(w.Namespace+"-1"))
		ExpectSucceeded(ctx, b, "^Unknown NameTaken: 0 of 3 pairs done; LatencyBenchmark x-p1 exists and is not of this one; delete it")
		Expect(Get(ctx, other).OwnerReferences).To(BeEmpty())
		remove(ctx, other)
		Eventually(func() bool { return metav1.IsControlledBy(child(ctx, b, 1), b) }).Should(BeTrue())
	})

	It("says what keeps the benchmark of a pair from being made", func(ctx SpecContext) {
		const counted = corev1.ResourceName("count/latencybenchmarks.tailgate.dev")
		limit := corev1.ResourceList{counted: resource.MustParse("1")}
		quota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "few"}, Spec: corev1.ResourceQuotaSpec{Hard: limit},
		}
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Star(w.Namespace+"-1"))
		server := w.Kubelet.Pod(ctx, "x-p1-r1", 1, v1alpha1.RoleServer)
		Expect(k8s.Create(ctx, quota)).To(Succeed())
		// There is no controller of quotas.
		quota.Status = corev1.ResourceQuotaStatus{Hard: limit, Used: limit}
		Expect(k8s.Status().Update(ctx, quota)).To(Succeed())
		w.Kubelet.Run(ctx, server)
		peer := w.Kubelet.Pod(ctx, "x-p1-r1", 1, v1alpha1.RoleClient)
		w.Kubelet.Run(ctx, peer)
		w.Kubelet.Succeed(ctx, server)
		w.Kubelet.Succeed(ctx, peer)
		w.Kubelet.Gone(ctx, server, peer)
		ExpectSucceeded(ctx, b, "^Unknown Queued: 1 of 3 pairs done; the API server refuses LatencyBenchmark x-p2: .*exceeded quota: few")
		Expect(k8s.Delete(ctx, quota)).To(Succeed())
		child(ctx, b, 2)
	})

	It("passes gate and priority on, and passes when every pair does", func(ctx SpecContext) {
		w.Kubelet.Auto(ctx)
		w.Kubelet.Agents(slower("x-p2-"))
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(5).Star(w.Namespace+"-1").Rule(under("6us")))
		ExpectPassed(ctx, b, "^Unknown NotJudged: 0 of 3 pairs pass, 3 not judged yet")
		By("a pair that fails, before all are measured")
		Eventually(func() string { return condition(ctx, b, v1alpha1.ConditionPassed) }).Should(
			HavePrefix("False Fail: 1 of 3 pairs pass, 1 failed, 1 not judged yet; x-p2: p90 of default/tcp-64"))
		ExpectMeasured(ctx, b, "^True Complete")
		ExpectPassed(ctx, b, "^False Fail: 2 of 3 pairs pass, 1 failed; x-p2: p90")
		verdict := Get(ctx, b).Status.Verdict
		Expect(verdict.Outcome).To(Equal(v1alpha1.GateFail))
		Expect(verdict.Comparisons).To(BeEquivalentTo(3))
		Expect(verdict.Rules).To(HaveLen(1))
		Expect([]int32{verdict.Rules[0].Passed, verdict.Rules[0].Failed, verdict.Rules[0].Inconclusive}).To(Equal([]int32{2, 1, 0}))
		created := len(w.Kubelet.Created())

		By("an edit of the rules, and of the priority")
		setGate(ctx, b, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Criteria.Rules, s.Priority = []v1alpha1.GateRule{under("20us")}, 7
		})
		ExpectPassed(ctx, b, "^True Pass: 3 of 3 pairs pass")
		current := Get(ctx, b)
		Expect(current.Status.ObservedGeneration).To(Equal(current.Generation))
		for _, c := range children(ctx, b) {
			Expect(c.Spec.Criteria.Rules[0]).To(Equal(under("20us")))
			Expect(c.Spec.Priority).To(BeEquivalentTo(7))
		}

		By("somebody's edit of one pair")
		setGate(ctx, child(ctx, b, 1), func(s *v1alpha1.LatencyBenchmarkSpec) { s.Criteria = nil })
		Eventually(func() *v1alpha1.Criteria { return child(ctx, b, 1).Spec.Criteria }).ShouldNot(BeNil())
		ExpectPassed(ctx, b, "^True Pass: 3 of 3 pairs pass")

		By("the gate's removal")
		setGate(ctx, b, func(s *v1alpha1.LatencyBenchmarkSpec) { s.Criteria = nil })
		Eventually(func() string { return condition(ctx, b, v1alpha1.ConditionPassed) }).Should(BeEmpty())
		Eventually(func() *v1alpha1.Criteria { return child(ctx, b, 3).Spec.Criteria }).Should(BeNil())
		Expect(w.Kubelet.Created()).To(HaveLen(created), "nothing was measured again")
		Eventually(told).WithArguments(ctx, w.Namespace).Should(ContainElements("Warning Fail", "Normal Pass"))
	})

	It("compares each pair with the same nodes of the baseline", func(ctx SpecContext) {
		w.Kubelet.Auto(ctx)
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "after").Rounds(5).Star(w.Namespace+"-1").Rule(within("10%")).Against("before"))
		ExpectMeasured(ctx, b, "^True Complete")
		ExpectPassed(ctx, b, "^Unknown BaselineMissing: 0 of 3 pairs pass, 3 inconclusive; after-p1: .*LatencyBenchmark before-p0, does not exist")

		refs := func() map[string]string {
			all := map[string]string{}
			for name, c := range children(ctx, b) {
				all[name] = c.Spec.Criteria.Baseline.BenchmarkRef.Name
			}
			return all
		}
		By("a baseline of one pair")
		single := w.Create(ctx, MakeBenchmark(w.Namespace, "before").Rounds(5).On(w.Namespace+"-3", w.Namespace+"-1"))
		ExpectPassed(ctx, b, "^Unknown BaselineMissing: 1 of 3 pairs pass, 2 inconclusive")
		Expect(refs()).To(Equal(map[string]string{"after-p1": "before-p0", "after-p2": "before", "after-p3": "before-p0"}))
		remove(ctx, single)

		By("a baseline of fewer clients, whose numbers are others")
		builder := MakeBenchmark(w.Namespace, "before").Rounds(5).Star(w.Namespace + "-1")
		builder.Spec.Placement.Client.NodeSelector[nodeLabel] = w.Namespace + "-3"
		before := w.Create(ctx, builder)
		ExpectSucceeded(ctx, before, "^True Complete: 1 of 1")
		Eventually(refs).Should(Equal(map[string]string{"after-p1": "before-p0", "after-p2": "before-p1", "after-p3": "before-p0"}))
		ExpectPassed(ctx, b, "^Unknown BaselineMissing: 1 of 3 pairs pass, 2 inconclusive")
		By("a benchmark of one pair that names it")
		one := w.Create(ctx, MakeBenchmark(w.Namespace, "one").On(w.Namespace+"-3", w.Namespace+"-1").Rule(within("10%")).Against("before"))
		ExpectPassed(ctx, one, "^Unknown BaselineMissing: .*LatencyBenchmark before, is of many pairs; name .* such as before-p1")

		By("one of all of them")
		Expect(k8s.Delete(ctx, before)).To(Succeed())
		remove(ctx, child(ctx, before, 1))
		before = w.Create(ctx, MakeBenchmark(w.Namespace, "before").Rounds(5).Star(w.Namespace+"-1"))
		ExpectMeasured(ctx, before, "^True Complete: 3 of 3")
		ExpectPassed(ctx, b, "^True Pass: 3 of 3 pairs pass")
	})

	It("gives pairs that run at once addresses of their own", func(ctx SpecContext) {
		installMultus()
		w.Start()
		builder := MakeBenchmark(w.Namespace, "x").AllPairs(2)
		builder.Spec.Network = v1alpha1.Network{
			Type: v1alpha1.NetworkVF, ResourceName: vf, IPAM: &v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: "192.168.40.0/30"},
		}
		b := w.Create(ctx, builder)
		ExpectAccepted(ctx, b, "^False NetworkRangeTooSmall: spec.network.ipam: 2 pairs are measured at once, and 192.168.40.0/30 has two addresses for each of 1; give a larger range")
		Eventually(func() error {
			current := Get(ctx, b)
			current.Spec.Network.IPAM.Range = "192.168.40.0/29"
			return k8s.Update(ctx, current)
		}).Should(Succeed())
		ExpectAccepted(ctx, b, "^True")
		Expect(child(ctx, b, 1).Spec.Network.IPAM.RangeStart).To(Equal("192.168.40.1"))
		Expect(child(ctx, b, 2).Spec.Network.IPAM.RangeStart).To(Equal("192.168.40.3"))
	})

	It("is named and changed as the API allows", func(ctx SpecContext) {
		create := func(name string, variants ...string) error {
			b := MakeBenchmark(w.Namespace, name).Variants(variants...).AllPairs(2).Obj()
			return k8s.Create(ctx, b, client.DryRunAll)
		}
		Expect(create(strings.Repeat("x", 46))).To(Succeed())
		Expect(create(strings.Repeat("x", 47))).To(MatchError(ContainSubstring("metadata.name: at most 46 characters with pairing Star, Ring or AllPairs")))
		Expect(create(strings.Repeat("x", 41), strings.Repeat("v", 10))).To(Succeed())
		Expect(create(strings.Repeat("x", 41), strings.Repeat("v", 11))).To(MatchError(ContainSubstring("together have at most 51 characters")))

		By("an accepted one")
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").AllPairs(2))
		ExpectAccepted(ctx, b, "^True")
		Eventually(func() error {
			current := Get(ctx, b)
			current.Spec.Rounds = 7
			return k8s.Update(ctx, current)
		}).Should(MatchError(ContainSubstring("spec cannot change once it was accepted")))
	})
})

// createsChild is the creation of the benchmark of a pair.
func createsChild(name string) death {
	return func(verb string, object client.Object) bool {
		_, ok := object.(*v1alpha1.LatencyBenchmark)
		return ok && verb == "create" && object.GetName() == name
	}
}

// notesPairs is a status write after which something holds of the pairs.
func notesPairs(what func(*v1alpha1.PairsStatus) bool) death {
	return notes(func(s v1alpha1.LatencyBenchmarkStatus) bool { return s.Pairs != nil && what(s.Pairs) })
}

func values(all map[string]v1alpha1.LatencyBenchmark) []v1alpha1.LatencyBenchmark {
	var list []v1alpha1.LatencyBenchmark
	for _, b := range all {
		list = append(list, b)
	}
	return list
}
