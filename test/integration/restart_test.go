package integration

import (
	. "github.com/onsi/ginkgo/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
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
	It("while it measures is followed by one that waits for the end", func(ctx SpecContext) { NewWorld(ctx).WaitsForTheEnd(ctx) })
})
