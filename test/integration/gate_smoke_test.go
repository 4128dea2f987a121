package integration

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// The specs of gates are in test/driven. Those that are here, too, show that the watches, rights and caches of a real manager do for
// a real API server what the driven world assumes.
var _ = Describe("A gate at an API server", func() {
	It("holds a node back until it has passed, and again when it has changed", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace))
		w.Expect(ctx, w.A, isVerified)
		w.Expect(ctx, w.B, isVerified)
		Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(Equal("True AllVerified: all 2 nodes are verified"))
		first := Get(ctx, w.Benchmark(w.A, 1))
		Expect(first.Spec.Criteria.Rules).To(HaveLen(1), "there was nothing to compare with")
		Expect(*first.Status.Pair).To(Equal(v1alpha1.Pair{ClientNode: w.A, ServerNode: w.B}))

		By("an upgrade of a node")
		w.Upgrade(ctx, w.A, "6.2.0")
		Eventually(func() string { return w.Says(ctx, w.A) }).Should(HaveSuffix(heldBack))
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("Unknown NotAllVerified: 1 of 2 nodes are not verified: " + w.A))
		w.Expect(ctx, w.A, isVerified)
		Expect(w.Accepted(ctx, w.A)).To(Equal("-2 since -1"))
		second := Get(ctx, w.Benchmark(w.A, 2))
		Expect(second.Spec.Criteria.Rules).To(HaveLen(2))
		Expect(second.Spec.Rounds).To(Equal(first.Spec.Rounds/2), "the first session of a reference has twice as many rounds")
		Expect(second.Spec.Criteria.Baseline.Accepted.GateName).To(Equal(g.Name))
		Expect(second.Status.Verdict.Baseline.Benchmark).To(Equal(first.Name))
		Expect(second.Spec.Criteria.IgnoreDifferences).To(BeEmpty(), "the peer is the same")
		status := w.Verification(ctx, w.A).Status
		Expect(status.Verified().Reason).To(Equal(v1alpha1.ReasonProvisional))
		Expect(status.Verified().Message).To(ContainSubstring("its reference is one boot"))
		Expect(second.Status.Verdict.Rules[1].Message).To(ContainSubstring("of 1 boots, which differ by SD"))
		Expect(status.Reference).To(HaveLen(2))
		Expect(status.Recent[1].Change).To(Equal(`Kernel was "6.1.0" and is "6.2.0"`))
		Eventually(func() int32 {
			current := &v1alpha1.LatencyGate{}
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(g), current)).To(Succeed())
			return current.Status.Spread[0].Differences
		}).Should(BeEquivalentTo(1))
		Expect(status.Identity).To(HaveKeyWithValue("Kernel", "6.2.0"))
		Expect(status.Accepted.Identity).To(Equal(status.Identity))
		Expect(w.Benchmarks(ctx, w.B)).To(ConsistOf("-1"), "the other node was left alone")

		By("looks at what has not changed: the controllers write nothing")
		version := w.Verification(ctx, w.A).ResourceVersion
		w.Stays(ctx, w.A, isVerified)
		Expect(w.Verification(ctx, w.A).ResourceVersion).To(Equal(version))
	})
})
