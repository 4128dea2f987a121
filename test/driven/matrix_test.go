package driven

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// remove deletes a benchmark and the objects that it owns, as the garbage collector does.
func remove(ctx context.Context, b *v1alpha1.LatencyBenchmark) {
	GinkgoHelper()
	Expect(k8s.Delete(ctx, b)).To(Succeed())
	for _, cm := range ConfigMaps(ctx, b) {
		Expect(k8s.Delete(ctx, &cm)).To(Succeed())
	}
	for _, pod := range PodsLeft(ctx, b) {
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, &pod, client.GracePeriodSeconds(0)))).To(Succeed())
	}
}

var _ = Describe("A matrix", func() {
	var w *World
	BeforeEach(func(ctx SpecContext) {
		w = NewWorld(ctx)
		w.Group(ctx, "1", "2", "3", "4")
	})

	It("measures each pair by a benchmark of its own, and never two on one node", func(ctx SpecContext) {
		w.Kubelet.Auto()
		w.MeasuresAllPairs(ctx)
	})

	It("measures pairs by a template of which the cache keeps only a part", func(ctx SpecContext) {
		w.Kubelet.Auto()
		w.Start()
		x := MakeBenchmark(w.Namespace, "x").AllPairs(2)
		x.Spec.Template.Spec.Pods = &v1alpha1.PodSettings{}
		for i := range 32 {
			x.Spec.Template.Spec.Pods.Env = append(x.Spec.Template.Spec.Pods.Env, v1alpha1.EnvVar{Name: fmt.Sprint("EF_X", i), Value: strings.Repeat("x", 256)})
		}
		b := w.CreateMatrix(ctx, x)
		ExpectMeasured(ctx, b, "^True Complete: 6 of 6 pairs measured;")
		Expect(w.PairsOf(Children(ctx, b))).To(Equal(AllPairsOfFour))
		w.ExpectApart(Children(ctx, b), 2)
		Expect(w.Kubelet.Created()).To(HaveLen(6 * 2))
	})

	It("of topology Star has one server, which is not a client", func(ctx SpecContext) {
		w.Kubelet.Auto()
		w.Start()
		b := w.CreateMatrix(ctx, MakeBenchmark(w.Namespace, "x").Star(w.Namespace+"-2"))
		ExpectSucceeded(ctx, b, "^True Complete: 3 of 3 pairs measured")
		Expect(Condition(ctx, b, v1alpha1.ConditionAccepted)).To(Equal(
			"True Accepted: clients on 3 nodes, server on " + w.Namespace + "-2: 3 pairs, in 3 slots of at most 1 at once"))
		Expect(w.PairsOf(Children(ctx, b))).To(Equal(map[string]string{"x-p1": "1>2", "x-p2": "3>2", "x-p3": "4>2"}))
		w.ExpectApart(Children(ctx, b), 1)
	})

	It("says what it waits for, and is looked at again when the cluster changes", func(ctx SpecContext) {
		w.Start()
		builder := MakeBenchmark(w.Namespace, "x").MaxRounds(6).Rule(Undecided).AllPairs(0)
		builder.Spec.Nodes.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{GroupLabel: "later-" + w.Namespace}}
		b := w.CreateMatrix(ctx, builder)
		ExpectAccepted(ctx, b, "^False NoMatchingNode: spec.nodes.*later-")
		ExpectSucceeded(ctx, b, "^Unknown NotAccepted: spec.nodes")
		ExpectPassed(ctx, b, "^Unknown NotJudged")
		label := func(name string) {
			node := &corev1.Node{}
			Expect(k8s.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
			node.Labels[GroupLabel] = "later-" + w.Namespace
			Expect(k8s.Update(ctx, node)).To(Succeed())
		}
		label(w.A)
		ExpectAccepted(ctx, b, "^False SameNode: spec.nodes: only node "+w.A)
		label(w.B)
		ExpectAccepted(ctx, b, "^True Accepted: 2 nodes: 1 pairs, in 1 slots of at most 1 at once")
		w.Kubelet.Measure(ctx, "x-p1-r1", 1)
		ExpectSucceeded(ctx, b, "^True Complete: 1 of 1")
	})

	DescribeTable("is measured once, whenever its manager dies:",
		func(ctx SpecContext, at func(Write) bool) {
			w.Kubelet.Auto()
			first := w.Start(dies(at))
			b := w.CreateMatrix(ctx, MakeBenchmark(w.Namespace, "x").AllPairs(2))
			eventually(first.Dead).Should(BeTrue())
			first.Stop()
			w.Start()
			ExpectMeasured(ctx, b, "^True Complete: 6 of 6")
			Expect(w.PairsOf(Children(ctx, b))).To(Equal(AllPairsOfFour))
			for _, pair := range Children(ctx, b) {
				// The manager may die between the creation of another pair's pod and the record of it.
				ended := slices.DeleteFunc(Attempts(ctx, &pair), func(a string) bool { return strings.HasSuffix(a, v1alpha1.OutcomeNameTaken) })
				Expect(ended).To(HaveExactElements(HaveSuffix(" "+v1alpha1.OutcomeMeasured)), pair.Name)
			}
			w.ExpectApart(Children(ctx, b), 2)
			eventually(ToldOf).WithArguments(ctx, b).Should(ContainElement(HavePrefix("Normal Complete")))
			Expect(ToldOf(ctx, b)).NotTo(ContainElement(HavePrefix("Warning")))
		},
		Entry("before it accepts", notesMatrix(func(s v1alpha1.LatencyMatrixStatus) bool { return len(s.Nodes) > 0 })),
		Entry("before it claims", notesMatrix(func(s v1alpha1.LatencyMatrixStatus) bool { return len(s.Running) > 0 })),
		Entry("having claimed, before there is a benchmark", createsChild("x-p1")),
		Entry("having made one of two", createsChild("x-p2")),
		Entry("having made them, without saying so", notesMatrix(func(s v1alpha1.LatencyMatrixStatus) bool { return len(s.Running) > 0 && s.Running[0].UID != "" })),
		Entry("when one is finished, before it says so", notesMatrix(func(s v1alpha1.LatencyMatrixStatus) bool { return s.Counts.Done() >= 1 })),
		Entry("before it says that all is done", notesMatrix(func(s v1alpha1.LatencyMatrixStatus) bool { return s.Counts.Done() == 6 })),
	)

	It("measures a pair again if a user deletes its benchmark, even when everything was measured", func(ctx SpecContext) {
		w.Start()
		b := w.CreateMatrix(ctx, MakeBenchmark(w.Namespace, "x").Star(w.Namespace+"-1"))
		By("while it is measured")
		server := w.Kubelet.Pod(ctx, "x-p1-r1", 1, v1alpha1.RoleServer)
		eventually(func() []v1alpha1.RunningPair { return Get(ctx, b).Status.Running }).Should(ConsistOf(HaveField("UID", Not(BeEmpty()))))
		first := Child(ctx, b, 1)
		remove(ctx, first)
		w.Kubelet.Gone(ctx, server)
		eventually(ToldOf).WithArguments(ctx, b).Should(ContainElement("Warning PairDeleted: x-p1 was deleted before all runs were measured; its results are lost, and it is measured again"))
		w.Kubelet.Measure(ctx, "x-p1-r1", 1)
		w.Kubelet.Measure(ctx, "x-p2-r1", 1)
		w.Kubelet.Measure(ctx, "x-p3-r1", 1)
		ExpectSucceeded(ctx, b, "^True Complete: 3 of 3")
		Expect(Child(ctx, b, 1).UID).NotTo(Equal(first.UID))

		By("when all are measured")
		w.Kubelet.Agents(Slower("x-p2-"))
		remove(ctx, Child(ctx, b, 2))
		ExpectSucceeded(ctx, b, "^Unknown .*: 2 of 3 pairs done")
		Expect(Get(ctx, b).Status.CompletionTime).To(BeNil())
		w.Kubelet.Measure(ctx, "x-p2-r1", 1)
		ExpectSucceeded(ctx, b, "^True Complete: 3 of 3 pairs measured; the slowest is x-p2")
		eventually(ToldOf).WithArguments(ctx, b).Should(ContainElement(HavePrefix("Warning PairDeleted: the benchmarks of finished pairs were deleted (1)")))
	})

	It("fails when a pair does, after all others were measured", func(ctx SpecContext) {
		w.Start()
		b := w.CreateMatrix(ctx, MakeBenchmark(w.Namespace, "x").Star(w.Namespace+"-1"))
		server := w.Kubelet.Pod(ctx, "x-p1-r1", 1, v1alpha1.RoleServer)
		w.Kubelet.Fail(ctx, server, v1alpha1.OutcomeToolMissing, "no such program")
		w.Kubelet.Gone(ctx, server)
		w.Kubelet.Measure(ctx, "x-p2-r1", 1)
		ExpectSucceeded(ctx, b, "^Unknown .*: 2 of 3 pairs done")
		w.Kubelet.Measure(ctx, "x-p3-r1", 1)
		ExpectSucceeded(ctx, b, "^False Failed: 1 of 3 pairs failed, first x-p1: run x-p1-r1 failed .ToolMissing.*no such program")
		status := Get(ctx, b).Status
		Expect(status.Counts).To(Equal(v1alpha1.PairCounts{Total: 3, Complete: 2, Failed: 1}))
		Expect(status.Slowest).To(HaveLen(2))
		Expect(status.CompletionTime).NotTo(BeNil())
		eventually(ToldOf).WithArguments(ctx, b).Should(ContainElements(HavePrefix("Warning PairFailed: x-p1 failed: run x-p1-r1"), HavePrefix("Warning Failed: 1 of 3")))

		By("the failed one's being deleted, to measure it again")
		remove(ctx, Child(ctx, b, 1))
		w.Kubelet.Measure(ctx, "x-p1-r1", 1)
		ExpectSucceeded(ctx, b, "^True Complete: 3 of 3")
	})

	It("does not wait for a node that has long been away, but for that alone", func(ctx SpecContext) {
		w.Start()
		ready := func(name string, status corev1.ConditionStatus) {
			GinkgoHelper()
			node := &corev1.Node{}
			Expect(k8s.Get(ctx, client.ObjectKey{Name: w.Namespace + "-" + name}, node)).To(Succeed())
			node.Status.Conditions[0].Status = status
			Expect(k8s.Status().Update(ctx, node)).To(Succeed())
		}
		b := w.CreateMatrix(ctx, MakeBenchmark(w.Namespace, "x").Rounds(2).Star(w.Namespace+"-1"))
		w.Kubelet.Measure(ctx, "x-p1-r1", 1)
		server := w.Kubelet.Pod(ctx, "x-p1-r2", 1, v1alpha1.RoleServer)
		ready("2", corev1.ConditionFalse)
		w.Kubelet.Fail(ctx, server, v1alpha1.OutcomeToolFailed, "once")
		w.Kubelet.Gone(ctx, server)
		ExpectSucceeded(ctx, Child(ctx, b, 1), "^Unknown Retrying")
		ExpectSucceeded(ctx, b, "^Unknown NotAccepted: 0 of 3 pairs done; x-p1: .*-2.*")

		first := Child(ctx, b, 1)
		// The first time of a condition is that of the machine. The next write of the benchmark moves it to the time of the world.
		w.Pass(12 * time.Second)
		wake := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"any":"change"}}}`))
		Expect(k8s.Patch(ctx, b.DeepCopy(), wake)).To(Succeed())
		By("for a while")
		consistently(func() types.UID { return Child(ctx, b, 1).UID }, 9*time.Minute).Should(Equal(first.UID))
		By("and not forever")
		eventually(IsGone(ctx, first)).Should(BeTrue())
		for _, run := range []string{"x-p2-r1", "x-p2-r2", "x-p3-r1", "x-p3-r2"} {
			w.Kubelet.Measure(ctx, run, 1)
		}
		ExpectSucceeded(ctx, b, "^Unknown NotAccepted: 2 of 3 pairs done; x-p1: ")
		eventually(ToldOf).WithArguments(ctx, b).Should(ContainElement(HavePrefix("Warning PairPostponed: x-p1 is measured after the others, from its first round: ")))
		By("the node's return")
		ready("2", corev1.ConditionTrue)
		w.Kubelet.Measure(ctx, "x-p1-r1", 1)
		w.Kubelet.Measure(ctx, "x-p1-r2", 1)
		ExpectSucceeded(ctx, b, "^True Complete: 3 of 3")
	})

	It("measures first on nodes that no other benchmark uses", func(ctx SpecContext) {
		w.Start()
		other := w.Create(ctx, MakeBenchmark(w.Namespace, "other").On(w.Namespace+"-2", w.B))
		server := w.Kubelet.Pod(ctx, "other-r1", 1, v1alpha1.RoleServer)
		b := w.CreateMatrix(ctx, MakeBenchmark(w.Namespace, "x").Star(w.Namespace+"-1"))
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

	It("leaves only its owned objects when it is deleted", func(ctx SpecContext) {
		w.Start()
		b := w.CreateMatrix(ctx, MakeBenchmark(w.Namespace, "x").AllPairs(2))
		Child(ctx, b, 1)
		Child(ctx, b, 2)
		w.Uncollected = true
		Expect(k8s.Delete(ctx, b)).To(Succeed())
		changed := Child(ctx, b, 1)
		before := changed.DeepCopy()
		changed.Spec.Priority++
		Expect(k8s.Patch(ctx, changed, client.MergeFrom(before))).To(Succeed(), "which wakes the controller of matrices")
		w.Patiently(ctx, Child(ctx, b, 2), func() any { return values(Children(ctx, b)) }, HaveLen(2))
		for _, c := range Children(ctx, b) {
			Expect(metav1.GetControllerOf(&c).UID).To(Equal(b.UID))
			Expect(c.Finalizers).To(BeEmpty())
		}

		By("one of its name, which waits until they are gone")
		again := w.CreateMatrix(ctx, MakeBenchmark(w.Namespace, "x").AllPairs(2))
		ExpectSucceeded(ctx, again, "^Unknown Queued: 0 of 6 pairs done; LatencyBenchmark x-p1 still exists")
		remove(ctx, Child(ctx, b, 1))
		eventually(func() bool { return metav1.IsControlledBy(Child(ctx, again, 1), again) }).Should(BeTrue())
	})

	It("names the owner of the name that a pair needs", func(ctx SpecContext) {
		other := w.Create(ctx, MakeBenchmark(w.Namespace, "x-p1").On(w.A, w.B))
		w.Start()
		b := w.CreateMatrix(ctx, MakeBenchmark(w.Namespace, "x").Star(w.Namespace+"-1"))
		ExpectSucceeded(ctx, b, "^Unknown NameTaken: 0 of 3 pairs done; LatencyBenchmark x-p1 exists and does not belong to this matrix; delete it")
		Expect(Get(ctx, other).OwnerReferences).To(BeEmpty())
		remove(ctx, other)
		eventually(func() bool { return metav1.IsControlledBy(Child(ctx, b, 1), b) }).Should(BeTrue())
	})

	It("reports why the benchmark of a pair cannot be created", func(ctx SpecContext) {
		w.Start()
		b := w.CreateMatrix(ctx, MakeBenchmark(w.Namespace, "x").Star(w.Namespace+"-1"))
		server := w.Kubelet.Pod(ctx, "x-p1-r1", 1, v1alpha1.RoleServer)
		lift := exceeded[*v1alpha1.LatencyBenchmark](w, "few")
		w.Kubelet.Run(ctx, server)
		peer := w.Kubelet.Pod(ctx, "x-p1-r1", 1, v1alpha1.RoleClient)
		w.Kubelet.Run(ctx, peer)
		w.Kubelet.Succeed(ctx, server)
		w.Kubelet.Succeed(ctx, peer)
		w.Kubelet.Gone(ctx, server, peer)
		ExpectSucceeded(ctx, b, "^Unknown BenchmarkRefused: 1 of 3 pairs done; the API server refuses LatencyBenchmark x-p2: .*exceeded quota: few")
		lift()
		Child(ctx, b, 2)
	})

	It("passes gate and priority on, and passes when every pair does", func(ctx SpecContext) {
		w.Kubelet.Auto()
		w.Kubelet.Agents(Slower("x-p2-"))
		w.Start()
		b := w.CreateMatrix(ctx, MakeBenchmark(w.Namespace, "x").Rounds(7).Rule(Under("6us")).Star(w.Namespace+"-1"))
		ExpectPassed(ctx, b, "^Unknown NotJudged: 0 of 3 pairs pass, 3 not judged yet")
		By("a pair that fails, before all are measured")
		eventually(func() string { return Condition(ctx, b, v1alpha1.ConditionPassed) }).Should(
			HavePrefix("False Fail: 1 of 3 pairs pass, 1 failed, 1 not judged yet; x-p2: p90 of default/tcp-64"))
		ExpectMeasured(ctx, b, "^True Complete")
		ExpectPassed(ctx, b, "^False Fail: 2 of 3 pairs pass, 1 failed; x-p2: p90")
		verdict := Get(ctx, b).Status.Verdict
		Expect(verdict.Outcome).To(Equal(v1alpha1.VerdictFail))
		Expect(verdict.Comparisons).To(BeEquivalentTo(3))
		Expect(verdict.Rules).To(HaveLen(1))
		Expect([]int32{verdict.Rules[0].Passed, verdict.Rules[0].Failed, verdict.Rules[0].Inconclusive}).To(Equal([]int32{2, 1, 0}))
		created := len(w.Kubelet.Created())

		By("an edit of the rules, and of the priority")
		edit := func(change func(*v1alpha1.MeasurementSpec)) {
			GinkgoHelper()
			Edit(ctx, b, func(m *v1alpha1.LatencyMatrix) { change(&m.Spec.Template.Spec) })
		}
		edit(func(s *v1alpha1.MeasurementSpec) {
			s.Criteria.Rules, s.Priority = []v1alpha1.Rule{Under("20us")}, 7
		})
		ExpectPassed(ctx, b, "^True Pass: 3 of 3 pairs pass")
		current := Get(ctx, b)
		Expect(current.Status.ObservedGeneration).To(Equal(current.Generation))
		for _, c := range Children(ctx, b) {
			Expect(c.Spec.Criteria.Rules[0]).To(Equal(Under("20us")))
			Expect(c.Spec.Priority).To(BeEquivalentTo(7))
		}

		By("a user's edit of one pair")
		SetCriteria(ctx, Child(ctx, b, 1), func(s *v1alpha1.LatencyBenchmarkSpec) { s.Criteria = nil })
		eventually(func() *v1alpha1.Criteria { return Child(ctx, b, 1).Spec.Criteria }).ShouldNot(BeNil())
		ExpectPassed(ctx, b, "^True Pass: 3 of 3 pairs pass")

		By("the gate's removal")
		edit(func(s *v1alpha1.MeasurementSpec) { s.Criteria = nil })
		eventually(func() string { return Condition(ctx, b, v1alpha1.ConditionPassed) }).Should(BeEmpty())
		eventually(func() *v1alpha1.Criteria { return Child(ctx, b, 3).Spec.Criteria }).Should(BeNil())
		Expect(w.Kubelet.Created()).To(HaveLen(created), "nothing was measured again")
		eventually(PassedEvents).WithArguments(ctx, w.Namespace).Should(ContainElements("Warning Fail", "Normal Pass"))
	})

	It("compares each pair with the same nodes of the baseline", func(ctx SpecContext) {
		w.Kubelet.Auto()
		w.Start()
		b := w.CreateMatrix(ctx, MakeBenchmark(w.Namespace, "after").Rounds(6).Rule(Within("10%")).Star(w.Namespace+"-1").Against("before"))
		ExpectMeasured(ctx, b, "^True Complete")
		ExpectPassed(ctx, b, "^Unknown BaselineMissing: 0 of 3 pairs pass, 3 inconclusive; after-p1: .*LatencyBenchmark before-p0, does not exist")

		refs := func() map[string]string {
			all := map[string]string{}
			for name, c := range Children(ctx, b) {
				all[name] = c.Spec.Criteria.Baseline.Benchmark.Name
			}
			return all
		}
		By("a baseline of fewer clients, whose numbers are others")
		builder := MakeBenchmark(w.Namespace, "before").Rounds(6).Star(w.Namespace + "-1")
		builder.Spec.Nodes.NodeSelector.MatchLabels[NodeLabel] = w.Namespace + "-3"
		before := w.CreateMatrix(ctx, builder)
		ExpectSucceeded(ctx, before, "^True Complete: 1 of 1")
		eventually(refs).Should(Equal(map[string]string{"after-p1": "before-p0", "after-p2": "before-p1", "after-p3": "before-p0"}))
		ExpectPassed(ctx, b, "^Unknown BaselineMissing: 1 of 3 pairs pass, 2 inconclusive")
		By("one of all of them")
		Expect(k8s.Delete(ctx, before)).To(Succeed())
		remove(ctx, Child(ctx, before, 1))
		before = w.CreateMatrix(ctx, MakeBenchmark(w.Namespace, "before").Rounds(6).Star(w.Namespace+"-1"))
		ExpectMeasured(ctx, before, "^True Complete: 3 of 3")
		ExpectPassed(ctx, b, "^True Pass: 3 of 3 pairs pass")
	})

	It("gives pairs that run at once addresses of their own", func(ctx SpecContext) {
		installMultus()
		w.Start()
		builder := MakeBenchmark(w.Namespace, "x").AllPairs(2)
		builder.Spec.Template.Spec.Network = v1alpha1.Network{
			Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: VF, IPAM: &v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: "192.168.40.0/30"}}},
		}
		b := w.CreateMatrix(ctx, builder)
		ExpectAccepted(ctx, b, "^False NetworkRangeTooSmall: spec.template.spec.network.vf.ipam: 2 pairs are measured at once, and 192.168.40.0/30 has two addresses for each of 1; give a larger range")
		Edit(ctx, b, func(m *v1alpha1.LatencyMatrix) { m.Spec.Template.Spec.Network.IPAM().Range = "192.168.40.0/29" })
		ExpectAccepted(ctx, b, "^True")
		Expect(Child(ctx, b, 1).Spec.Network.IPAM().RangeStart).To(Equal("192.168.40.1"))
		Expect(Child(ctx, b, 2).Spec.Network.IPAM().RangeStart).To(Equal("192.168.40.3"))
	})
})

// createsChild returns a condition: the write creates the benchmark of a pair.
func createsChild(name string) func(Write) bool {
	return func(w Write) bool {
		b, ok := Is[*v1alpha1.LatencyBenchmark](w, "create")
		return ok && b.Name == name
	}
}

// notesMatrix returns a condition: the write is one of a matrix's status for which something is true.
func notesMatrix(what func(v1alpha1.LatencyMatrixStatus) bool) func(Write) bool {
	return func(w Write) bool {
		m, ok := Is[*v1alpha1.LatencyMatrix](w, "status")
		return ok && what(m.Status)
	}
}

func values(all map[string]v1alpha1.LatencyBenchmark) []v1alpha1.LatencyBenchmark {
	var list []v1alpha1.LatencyBenchmark
	for _, b := range all {
		list = append(list, b)
	}
	return list
}
