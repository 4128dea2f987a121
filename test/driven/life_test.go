package driven

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// suspend sets spec.suspend.
func suspend(ctx context.Context, b client.Object, value bool) {
	GinkgoHelper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"suspend":%t}}`, value))
	Expect(k8s.Patch(ctx, b.DeepCopyObject().(client.Object), patch)).To(Succeed())
}

var _ = Describe("A benchmark that is suspended", func() {
	var w *World
	BeforeEach(func(ctx SpecContext) { w = NewWorld(ctx) })

	It("ends its attempt, keeps what it has, makes room for others, and goes on with what lacks", func(ctx SpecContext) {
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(2).On(w.A, w.B))
		other := w.Create(ctx, MakeBenchmark(w.Namespace, "y").On(w.B, w.A))
		w.Kubelet.Measure(ctx, "x-r1", 1)
		server, peer := w.Kubelet.RunBoth(ctx, "x-r2", 1)
		ExpectSucceeded(ctx, b, "^Unknown Running")

		suspend(ctx, b, true)
		w.Kubelet.Gone(ctx, server, peer)
		ExpectSucceeded(ctx, b, "^Unknown Suspended: suspended \\(spec.suspend\\) with 1 of 2 runs measured and stored")
		current := Get(ctx, b)
		Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 Measured", "x-r2 a1 Suspended"}))
		Expect(current.Status.Stored).To(HaveLen(1))
		Expect(current.Status.Results).To(HaveLen(1))
		Expect(current.Status.StartTime).To(BeNil())
		Expect(current.Status.ObservedGeneration).To(Equal(current.Generation))

		By("the next in the queue")
		w.Kubelet.Measure(ctx, "y-r1", 1)
		ExpectSucceeded(ctx, other, "^True Complete")
		w.NoPod(ctx, b, "x-r2", 2, v1alpha1.RoleServer)

		suspend(ctx, b, false)
		w.Kubelet.Measure(ctx, "x-r2", 2)
		ExpectSucceeded(ctx, b, "^True Complete: 2 of 2")
		Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 Measured", "x-r2 a1 Suspended", "x-r2 a2 Measured"}))
		Expect(Get(ctx, b).Status.StartTime).NotTo(BeNil())
		eventually(ToldOf).WithArguments(ctx, b).Should(ContainElement(HavePrefix("Normal Suspended: attempt 1 of x-r2")))
	})

	It("from the beginning asks for nothing, and may be edited until it goes on", func(ctx SpecContext) {
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, "nowhere").Suspended())
		ExpectSucceeded(ctx, b, "^Unknown Suspended: .* 0 of 1 runs")
		Expect(Condition(ctx, b, v1alpha1.ConditionAccepted)).To(BeEmpty())
		current := Get(ctx, b)
		current.Spec = MakeBenchmark(w.Namespace, "x").On(w.A, w.B).Spec
		Expect(k8s.Update(ctx, current)).To(Succeed())
		w.Kubelet.Measure(ctx, "x-r1", 1)
		ExpectSucceeded(ctx, b, "^True Complete")
	})

	It("as often as one likes has all its attempts left", func(ctx SpecContext) {
		w.Settings.MaxAttempts = 1
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B))
		for attempt := int32(1); attempt <= 3; attempt++ {
			server := w.Kubelet.Pod(ctx, "x-r1", attempt, v1alpha1.RoleServer)
			suspend(ctx, b, true)
			w.Kubelet.Gone(ctx, server)
			ExpectSucceeded(ctx, b, "^Unknown Suspended")
			suspend(ctx, b, false)
		}
		w.Kubelet.Measure(ctx, "x-r1", 4)
		ExpectSucceeded(ctx, b, "^True Complete")
	})

	DescribeTable("by a manager that dies is suspended by the next one",
		func(ctx SpecContext, podsGone bool, at func(Write) bool) {
			first := w.Start(dies(at))
			b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B))
			server := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
			w.Kubelet.Run(ctx, server)
			peer := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleClient)
			suspend(ctx, b, true)
			if podsGone {
				w.Kubelet.Gone(ctx, server, peer)
			}
			eventually(first.Dead).Should(BeTrue())
			first.Stop()

			w.Kubelet.Auto()
			w.Start()
			ExpectSucceeded(ctx, b, "^Unknown Suspended")
			Expect(PodsLeft(ctx, b)).To(BeEmpty())
			Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 Suspended"}))
			suspend(ctx, b, false)
			ExpectSucceeded(ctx, b, "^True Complete")
			Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 Suspended", "x-r1 a2 Measured"}))
		},
		Entry("knowing the outcome, before the pods are removed", false, removes),
		Entry("having removed the pods, before it says that it is suspended", true, notes(func(s v1alpha1.LatencyBenchmarkStatus) bool { return len(s.Attempts) == 1 && s.StartTime == nil })),
	)

	It("of many pairs, a matrix, suspends those of its pairs, and resumes with the others", func(ctx SpecContext) {
		w.Group(ctx, "1", "2", "3")
		w.Start()
		b := w.CreateMatrix(ctx, MakeBenchmark(w.Namespace, "x").AllPairs(1))
		w.Kubelet.Measure(ctx, "x-p1-r1", 1)
		server := w.Kubelet.Pod(ctx, "x-p2-r1", 1, v1alpha1.RoleServer)
		suspend(ctx, b, true)
		w.Kubelet.Gone(ctx, server)
		ExpectSucceeded(ctx, b, "^Unknown Suspended: suspended \\(spec.suspend\\) with 1 of 3 pairs done")
		ExpectSucceeded(ctx, Child(ctx, b, 2), "^Unknown Suspended")
		Expect(Child(ctx, b, 1).Spec.Suspend).To(BeFalse(), "it is finished")
		w.Patiently(ctx, b, func() any { return Children(ctx, b) }, HaveLen(2))
		suspend(ctx, b, false)
		w.Kubelet.Measure(ctx, "x-p2-r1", 2)
		w.Kubelet.Measure(ctx, "x-p3-r1", 1)
		ExpectSucceeded(ctx, b, "^True Complete: 3 of 3")
	})

	It("of many pairs, a matrix, chooses no nodes before it is accepted", func(ctx SpecContext) {
		w.Group(ctx, "1", "2")
		w.Start()
		b := w.CreateMatrix(ctx, MakeBenchmark(w.Namespace, "x").Suspended().AllPairs(1))
		ExpectSucceeded(ctx, b, "^Unknown Suspended")
		Expect(Get(ctx, b).Status.Nodes).To(BeEmpty())
		suspend(ctx, b, false)
		w.Kubelet.Measure(ctx, "x-p1-r1", 1)
		ExpectSucceeded(ctx, b, "^True Complete")
	})
})

var _ = Describe("A finished benchmark", func() {
	var w *World
	BeforeEach(func(ctx SpecContext) {
		w = NewWorld(ctx)
		w.Kubelet.Auto()
	})

	It("goes when its time is over, unless it is a baseline", func(ctx SpecContext) {
		w.Start()
		before := w.Create(ctx, MakeBenchmark(w.Namespace, "before").On(w.A, w.B).TTL(3600))
		free := w.Create(ctx, MakeBenchmark(w.Namespace, "free").On(w.A, w.B).TTL(3600))
		after := w.Create(ctx, MakeBenchmark(w.Namespace, "after").On(w.A, w.B).Rounds(4).Rule(v1alpha1.Rule{Metric: "p50", MaxIncrease: v1alpha1.Limit{Text: "5%"}}).Against("before"))
		for _, b := range []*v1alpha1.LatencyBenchmark{before, free, after} {
			ExpectSucceeded(ctx, b, "^True Complete")
		}
		passed := w.Clock.Now().Sub(Get(ctx, free).Status.CompletionTime.Time)
		w.Pass(59*time.Minute - passed)
		w.Patiently(ctx, free, func() any { return IsGone(ctx, free)() }, BeFalse())

		w.Pass(2 * time.Minute)
		eventually(IsGone(ctx, free)).Should(BeTrue())
		eventually(ToldOf).WithArguments(ctx, free).Should(ContainElement(HavePrefix("Normal Expired")))
		eventually(ToldOf).WithArguments(ctx, before).Should(ContainElement(MatchRegexp("^Normal Kept: .*baseline of LatencyBenchmark after")))
		w.Patiently(ctx, before, func() any { return IsGone(ctx, before)() }, BeFalse())

		By("the deletion of what compares with it")
		Expect(k8s.Delete(ctx, after)).To(Succeed())
		eventually(IsGone(ctx, before)).Should(BeTrue())
	})

	It("stays when its time is taken back", func(ctx SpecContext) {
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B).TTL(3600))
		ExpectSucceeded(ctx, b, "^True Complete")
		Expect(k8s.Patch(ctx, b.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"ttlSecondsAfterFinished":null}}`)))).To(Succeed())
		w.Pass(2 * time.Hour)
		w.Patiently(ctx, b, func() any { return IsGone(ctx, b)() }, BeFalse())
	})

	It("goes by the next manager when the first dies before it can delete it", func(ctx SpecContext) {
		first := w.Start(dies(func(w Write) bool {
			_, ok := Is[*v1alpha1.LatencyBenchmark](w, "delete")
			return ok
		}))
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B).TTL(0))
		eventually(first.Dead).Should(BeTrue())
		first.Stop()
		w.Start()
		eventually(IsGone(ctx, b)).Should(BeTrue())
	})

	It("of a series goes when enough newer ones are complete", func(ctx SpecContext) {
		w.Start()
		var all []*v1alpha1.LatencyBenchmark
		for _, name := range []string{"n1", "n2", "n3"} {
			b := w.Create(ctx, MakeBenchmark(w.Namespace, name).On(w.A, w.B).Series("nightly", 2))
			ExpectSucceeded(ctx, b, "^True Complete")
			all = append(all, b)
		}
		eventually(IsGone(ctx, all[0])).Should(BeTrue())
		w.Patiently(ctx, all[1], func() any { return IsGone(ctx, all[1])() }, BeFalse())
		list := &v1alpha1.LatencyBenchmarkList{}
		Expect(k8s.List(ctx, list, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelSeries: "nightly"})).To(Succeed())
		Expect(list.Items).To(HaveLen(2))
	})

	It("of many pairs, a matrix, goes when its time is over, unless it is a baseline", func(ctx SpecContext) {
		w.Group(ctx, "1", "2")
		w.Start()
		m := w.CreateMatrix(ctx, MakeBenchmark(w.Namespace, "x").TTL(3600).AllPairs(1))
		after := w.CreateMatrix(ctx, MakeBenchmark(w.Namespace, "after").Rounds(4).Rule(Within("10%")).AllPairs(1).Against("x"))
		ExpectSucceeded(ctx, m, "^True Complete")
		ExpectSucceeded(ctx, after, "^True Complete")
		Expect(Child(ctx, m, 1).Spec.TTLSecondsAfterFinished).To(BeNil())
		w.Pass(2 * time.Hour)
		eventually(ToldOf).WithArguments(ctx, m).Should(ContainElement(MatchRegexp("^Normal Kept: .*baseline of LatencyMatrix after")))
		w.Patiently(ctx, m, func() any { return IsGone(ctx, m)() }, BeFalse())

		By("the deletion of what compares with it")
		Expect(k8s.Delete(ctx, after)).To(Succeed())
		eventually(IsGone(ctx, m)).Should(BeTrue())
		eventually(ToldOf).WithArguments(ctx, m).Should(ContainElement(HavePrefix("Normal Expired: deleted with its results")))
	})
})
