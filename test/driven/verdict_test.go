package driven

import (
	"bytes"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// The agents of these specs measure round trips of 10000 to 11999 ns in every round, which are 5 to 6 µs as half RTT, with a median
// of 5.5 µs and a p90 of 5.9 µs, unless a spec makes them slower.

var _ = Describe("A verdict", func() {
	var w *World
	BeforeEach(func(ctx SpecContext) {
		w = NewWorld(ctx)
		w.Kubelet.Auto()
	})

	It("is given when everything is measured, and again when only the rules change", func(ctx SpecContext) { w.JudgesAgain(ctx) })

	It("is not measured if its rounds can decide nothing", func(ctx SpecContext) {
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(5).On(w.A, w.B).Rule(Under("1s")))
		eventually(func() string { return Condition(ctx, b, v1alpha1.ConditionAccepted) }).Should(Equal(
			"False RuleUndecidable: spec.criteria.rules: rule p90 max 1s can neither pass nor fail with 5 rounds; set maxRounds to at least 6"))
	})

	It("is Inconclusive when a round ran under other conditions, or on CPUs that were not its own", func(ctx SpecContext) {
		w.Start()
		w.Kubelet.Agents(func(d *result.Document) {
			if d.Role == v1alpha1.RoleServer && d.Run == "x-r3" {
				d.Evidence.Kernel = "6.2.0"
			}
			if d.Run == "y-r2" {
				d.Evidence.CPUsAllowed = "0-3"
			}
		})
		x := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(6).On(w.A, w.B).Rule(Under("6us")))
		ExpectPassed(ctx, x, `^Unknown Inconclusive: .*x-r1 and x-r3 did not run under equal conditions at the server's end: kernel.release "6.1.0-37-amd64", then "6.2.0"`)
		Expect(Reasons(ctx, x)).To(Equal([]string{"Inconclusive " + v1alpha1.WarningEvidenceDiffers}))
		y := w.Create(ctx, MakeBenchmark(w.Namespace, "y").Rounds(6).On(w.A, w.B).Rule(Under("6us")))
		ExpectPassed(ctx, y, "^Unknown Inconclusive: .*in y-r2, client on .*: CPUsExclusive: expected 1 exclusive CPU, found 0-3 of the node's 0-7; ")
		Expect(Reasons(ctx, y)).To(Equal([]string{"Inconclusive " + v1alpha1.WarningCPUsNotExclusive}))
	})

	It("does not outlive a stored result", func(ctx SpecContext) {
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(6).On(w.A, w.B).Rule(Under("6us")))
		ExpectPassed(ctx, b, "^True Pass")
		stored := ConfigMaps(ctx, b)
		Expect(stored).To(HaveLen(6))

		By("a deletion")
		Expect(k8s.Delete(ctx, &stored[2])).To(Succeed())
		ExpectPassed(ctx, b, "^Unknown ResultsMissing: .*results of 1 of 6 runs were deleted or changed")
		By("a result of another run in its place")
		other := remade(stored[2], func(cm *corev1.ConfigMap) { cm.BinaryData, cm.Data = stored[3].BinaryData, stored[3].Data })
		Expect(k8s.Create(ctx, other)).To(Succeed())
		w.Patiently(ctx, b, func() any { return Condition(ctx, b, v1alpha1.ConditionPassed) }, HavePrefix("Unknown ResultsMissing"))
		Expect(k8s.Delete(ctx, other)).To(Succeed())
		By("another server's part, which tells where the server ran")
		document := result.Document{Version: result.Version, Run: stored[2].Labels[v1alpha1.LabelRun], Variant: "default", Attempt: 1, Role: v1alpha1.RoleServer,
			Evidence: result.Evidence{Node: w.B, CPUsAllowed: "1", MeasuringCPU: 1, DeviceNUMANode: -1}}
		other = remade(stored[2], func(cm *corev1.ConfigMap) { cm.BinaryData[result.KeyServer] = framed(document).Compressed })
		Expect(k8s.Create(ctx, other)).To(Succeed())
		w.Patiently(ctx, b, func() any { return Condition(ctx, b, v1alpha1.ConditionPassed) }, HavePrefix("Unknown ResultsMissing"))
		Expect(k8s.Delete(ctx, other)).To(Succeed())
		By("its return")
		back := remade(stored[2])
		Expect(k8s.Create(ctx, back)).To(Succeed())
		ExpectPassed(ctx, b, "^True Pass")
		By("another bit in it")
		Expect(k8s.Delete(ctx, back)).To(Succeed())
		Expect(k8s.Create(ctx, remade(stored[2], flipBit))).To(Succeed())
		ExpectPassed(ctx, b, "^Unknown ResultsMissing")
		Expect(w.Kubelet.Created()).To(HaveLen(12), "nothing was measured again")
	})

	It("compares with another variant of the same rounds", func(ctx SpecContext) {
		w.Start()
		w.Kubelet.Agents(Slower("x-late-"))
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(6).On(w.A, w.B).Variants("early", "late").Rule(Within("10%")).AgainstVariant("early"))
		ExpectPassed(ctx, b, `^False Fail: p90 of late/tcp-64: 10.\d+µs against 5.90µs, ratio 1.\d+, .*over 6\+6 rounds, .*: Fail, beyond maxIncrease 10%`)
		SetCriteria(ctx, b, func(s *v1alpha1.LatencyBenchmarkSpec) { s.Criteria.Baseline.Variant.Name = "late" })
		ExpectPassed(ctx, b, `^True Pass: p90 of early/tcp-64: .*lower than the baseline`)
	})

	It("compares with another benchmark, and follows what becomes of that", func(ctx SpecContext) {
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "after").Rounds(6).On(w.A, w.B).Rule(Within("10%")).Against("before"))
		ExpectPassed(ctx, b, "^Unknown BaselineMissing: .*LatencyBenchmark before, does not exist")
		ExpectSucceeded(ctx, b, "^True Complete")
		pods := len(w.Kubelet.Created())

		before := w.Create(ctx, MakeBenchmark(w.Namespace, "before").Rounds(6).On(w.A, w.B))
		ExpectPassed(ctx, b, "^Unknown BaselineNotComplete: .*is not finished")
		ExpectPassed(ctx, b, `^True Pass: p90 of default/tcp-64: .*over 6\+6 rounds`)
		Expect(w.Kubelet.Created()).To(HaveLen(pods+12), "only the baseline was measured")

		By("a baseline whose results go")
		stored := ConfigMaps(ctx, before)
		Expect(k8s.Delete(ctx, &stored[0])).To(Succeed())
		ExpectPassed(ctx, b, "^Unknown BaselineResultsMissing: ")
		By("a baseline that goes")
		Expect(k8s.Delete(ctx, before)).To(Succeed())
		ExpectPassed(ctx, b, "^Unknown BaselineMissing: ")

		By("a baseline of other firmware")
		for _, cm := range ConfigMaps(ctx, before) {
			Expect(k8s.Delete(ctx, &cm)).To(Succeed())
		}
		w.Kubelet.Agents(func(d *result.Document) { d.Evidence.Facts["nic.firmware-variant"] = "full-feature" })
		w.Create(ctx, MakeBenchmark(w.Namespace, "before").Rounds(6).On(w.A, w.B))
		ExpectPassed(ctx, b, `^Unknown Inconclusive: .*nic.firmware-variant "full-feature", then absent`)
		Expect(Reasons(ctx, b)).To(Equal([]string{"Inconclusive " + v1alpha1.WarningEvidenceDiffers}))
		By("the same with a pattern, and in full")
		SetCriteria(ctx, b, func(s *v1alpha1.LatencyBenchmarkSpec) { s.Criteria.IgnoreDifferences = []string{"nic.*"} })
		eventually(func() bool { return Get(ctx, b).Status.ObservedGeneration == Get(ctx, b).Generation }).Should(BeTrue())
		Expect(Condition(ctx, b, v1alpha1.ConditionPassed)).To(HavePrefix("Unknown Inconclusive"))
		SetCriteria(ctx, b, func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Criteria.IgnoreDifferences = []string{"nic.firmware-variant"}
		})
		ExpectPassed(ctx, b, "^True Pass")
	})

	It("is never a Pass for a benchmark that failed", func(ctx SpecContext) {
		w.Start()
		w.Kubelet.Agents(func(d *result.Document) {
			if d.Run == "x-r6" {
				d.Run = "x-r1"
			}
		})
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(6).On(w.A, w.B).Rule(Under("6us")))
		for attempt := 1; attempt <= 3; attempt++ {
			eventually(func() []string { return Attempts(ctx, b) }).Should(ContainElement(fmt.Sprintf("x-r6 a%d ResultCorrupt", attempt)))
			w.Pass(20 * time.Second)
		}
		ExpectSucceeded(ctx, b, "^False Failed")
		ExpectPassed(ctx, b, "^Unknown BenchmarkFailed: .*with 5 rounds: Inconclusive, the benchmark failed")
	})

	DescribeTable("that is Inconclusive asks once for more rounds, across managers,",
		func(ctx SpecContext, late []string, passed string) {
			// The manager dies after it has decided to extend the rounds, and before it has written that.
			first := w.Start(dies(notes(func(s v1alpha1.LatencyBenchmarkStatus) bool { return s.ExtendedRounds > 0 })))
			w.Kubelet.Agents(Slower(late...))
			b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(6).On(w.A, w.B).Rule(Under("6us")).MaxRounds(10))
			eventually(first.Dead).Should(BeTrue())
			first.Stop()
			Expect(w.Kubelet.Created()).To(HaveLen(12))
			// The next manager writes it, and dies when it has measured two of the new rounds.
			second := w.Start(dies(notes(func(s v1alpha1.LatencyBenchmarkStatus) bool { return len(s.Stored) == 8 })))
			eventually(second.Dead).Should(BeTrue())
			second.Stop()
			Expect(Condition(ctx, b, v1alpha1.ConditionPassed)).To(HavePrefix("Unknown NotJudged: the verdict of the planned rounds is Inconclusive"))
			w.Start()
			ExpectSucceeded(ctx, b, "^True Complete: 10 of 10")
			ExpectPassed(ctx, b, passed)
			status := Get(ctx, b).Status
			Expect(status.ExtendedRounds).To(BeEquivalentTo(4))
			Expect(status.Verdict.Evaluations).To(BeEquivalentTo(2))
			Expect(status.Verdict.WrongOneIn).To(BeEquivalentTo(20), "each of two looks has 1 in 40")
			Expect(Attempts(ctx, b)).To(HaveLen(10))
			for round := 1; round <= 10; round++ {
				Expect(w.Kubelet.Created()).To(ContainElement(fmt.Sprintf("x-r%d-a1-client", round)))
			}
			By("and does not look a third time, whatever the rules say afterwards")
			SetCriteria(ctx, b, func(s *v1alpha1.LatencyBenchmarkSpec) { s.Criteria.Rules[0] = Under("6001ns") })
			eventually(func() bool { return Get(ctx, b).Status.ObservedGeneration == Get(ctx, b).Generation }).Should(BeTrue())
			Expect(Get(ctx, b).Status.Verdict.Evaluations).To(BeEquivalentTo(2))
			Expect(w.Kubelet.Created()).To(HaveLen(20))
		},
		Entry("which decide", []string{"x-r2"}, "^True Pass"),
		Entry("which do not", []string{"x-r2", "x-r8", "x-r10"}, "^Unknown Inconclusive"),
	)

	It("that more rounds could not decide requests no rounds", func(ctx SpecContext) {
		w.Start()
		p99 := v1alpha1.Rule{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "6us"}}
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(2).On(w.A, w.B).Rule(p99).MaxRounds(6))
		ExpectSucceeded(ctx, b, "^True Complete: 2 of 2")
		ExpectPassed(ctx, b, "^Unknown Inconclusive: .*has 2000 samples and p99 needs 10000 to be judged; measure longer")
	})
})

// framed returns a document in the form in which its agent sends it.
func framed(d result.Document) result.Framed {
	GinkgoHelper()
	var sent bytes.Buffer
	Expect(result.WriteFrame(&sent, d)).To(Succeed())
	f, err := result.ReadFrame(&sent)
	Expect(err).NotTo(HaveOccurred())
	return f
}
