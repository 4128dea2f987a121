package integration

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// The agents of these specs measure round trips of 10000 to 11999 ns in every round, which are 5 to 6 µs as half RTT, with a median
// of 5.5 µs and a p90 of 5.9 µs, unless a spec makes them slower.

var _ = Describe("A verdict", func() {
	var w *World
	BeforeEach(func(ctx SpecContext) {
		w = NewWorld(ctx)
		w.Kubelet.Auto(ctx)
	})

	It("is given when everything is measured, and again when only the rules change", func(ctx SpecContext) {
		manager := w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(6).On(w.A, w.B).Rule(Under("6us")).Rule(Under("5950ns")))
		ExpectPassed(ctx, b, "^Unknown NotJudged")
		ExpectSucceeded(ctx, b, "^True Complete")
		ExpectPassed(ctx, b, "^True Pass: all 2 rules pass, in 2 comparisons")
		v := Get(ctx, b).Status.Verdict
		Expect(v.Outcome).To(Equal(v1alpha1.VerdictPass))
		Expect(v.Comparisons).To(BeEquivalentTo(2))
		Expect(v.Rules[0].CandidateRounds).To(BeEquivalentTo(6))
		Expect(v.Rules[0].Candidate).To(HaveValue(BeNumerically("~", 5900, 10)))
		Expect(Reasons(ctx, b)).To(Equal([]string{"Pass WithinLimit", "Pass WithinLimit"}))
		pods := w.Kubelet.Created()

		By("an edit of the rules")
		SetCriteria(ctx, b, func(s *v1alpha1.LatencyBenchmarkSpec) { s.Criteria.Rules = []v1alpha1.Rule{Under("5us")} })
		ExpectPassed(ctx, b, "^False Fail: p90 of default/tcp-64: .*over 6 rounds, .*: Fail, beyond max 5µs")
		current := Get(ctx, b)
		Expect(current.Status.ObservedGeneration).To(Equal(current.Generation))
		for _, c := range current.Status.Conditions {
			Expect(c.ObservedGeneration).To(Equal(current.Generation), "kubectl wait for %s waits for that", c.Type)
		}

		By("an edit while no manager runs")
		// A manager that stops drops the events that it has not sent.
		Eventually(PassedEvents).WithArguments(ctx, w.Namespace).Should(ConsistOf("Normal Pass", "Warning Fail"))
		manager.Stop()
		SetCriteria(ctx, b, func(s *v1alpha1.LatencyBenchmarkSpec) { s.Criteria.Rules = []v1alpha1.Rule{Under("7us")} })
		w.Start()
		ExpectPassed(ctx, b, "^True Pass")

		By("nothing, which writes nothing")
		written := Get(ctx, b).Status
		w.Patiently(ctx, b, func() any { return Get(ctx, b).Status }, Equal(written))

		By("the gate's removal")
		SetCriteria(ctx, b, func(s *v1alpha1.LatencyBenchmarkSpec) { s.Criteria = nil })
		Eventually(func() *v1alpha1.Verdict { return Get(ctx, b).Status.Verdict }).Should(BeNil())
		Expect(Condition(ctx, b, v1alpha1.ConditionPassed)).To(BeEmpty())
		Expect(w.Kubelet.Created()).To(Equal(pods), "nothing was measured again")

		Eventually(PassedEvents).WithArguments(ctx, w.Namespace).Should(ConsistOf("Normal Pass", "Warning Fail", "Normal Pass"))
	})
})
