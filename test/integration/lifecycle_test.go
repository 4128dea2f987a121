package integration

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

var _ = Describe("A benchmark", func() {
	var w *World
	BeforeEach(func(ctx SpecContext) { w = NewWorld(ctx) })

	It("is taken from the logs as soon as it is there, before the kubelets report that the pods have ended", func(ctx SpecContext) {
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(1).On(w.A, w.B))
		server := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
		w.Kubelet.Run(ctx, server)
		peer := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleClient)
		Expect(w.Kubelet.HandOver(server)).To(Succeed())
		Expect(w.Kubelet.HandOver(peer)).To(Succeed())
		w.Kubelet.Run(ctx, peer)
		w.Kubelet.Gone(ctx, server, peer)
		ExpectSucceeded(ctx, b, "^True Complete")
		Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 Measured"}))
		Expect(StoredRuns(ctx, b)).To(HaveLen(1))
	})

	It("is measured round by round and completes", func(ctx SpecContext) { w.MeasuresRoundByRound(ctx) })
})
