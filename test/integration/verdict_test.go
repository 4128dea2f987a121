package integration

import . "github.com/onsi/ginkgo/v2"

var _ = Describe("A verdict", func() {
	It("is given when everything is measured, and again when only the rules change", func(ctx SpecContext) {
		w := NewWorld(ctx)
		w.Kubelet.Auto(ctx)
		w.JudgesAgain(ctx)
	})
})
