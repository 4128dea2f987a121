package integration

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// A manager dies at a write, which it does not perform.

// notes returns a death at a status write after which a condition holds.
func notes(what func(v1alpha1.LatencyBenchmarkStatus) bool) death {
	return func(verb string, object client.Object) bool {
		b, ok := object.(*v1alpha1.LatencyBenchmark)
		return ok && verb == "status" && what(b.Status)
	}
}

var _ = Describe("A manager that dies", func() {

	It("while it measures is followed by one that waits for the end", func(ctx SpecContext) {
		w := NewWorld(ctx)
		first := w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B))
		server, peer := w.Kubelet.RunBoth(ctx, "x-r1", 1)
		ExpectSucceeded(ctx, b, "^Unknown Running")
		first.Stop()

		w.Start()
		w.Patiently(ctx, b, func() any { return PodsLeft(ctx, b) }, HaveLen(2))
		w.Kubelet.Succeed(ctx, server)
		w.Kubelet.Succeed(ctx, peer)
		w.Kubelet.Gone(ctx, server, peer)
		ExpectSucceeded(ctx, b, "^True Complete")
		Expect(w.Kubelet.Created()).To(HaveLen(2))
	})
})
