package driven

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// Whatever happens to one write, the end is the same.
var _ = Describe("A gate with a fault at each write", func() {
	for _, effect := range Effects {
		It("holds a slow node back in the end, and never lets it in, "+effect.String(), func(ctx SpecContext) {
			ofGates := func(write Write) bool { return write.Controller != "latencybenchmark" }
			writes := AtEachWrite(effect, ofGates, func(fault Fault) {
				w := NewGateWorld(ctx)
				w.Fault = fault
				w.SlowNode(w.A)
				w.Start()
				letIn := w.LetIn(ctx, w.A)
				w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) {
					s.Enforcement.HoldPod = &v1alpha1.GateHoldPod{}
					s.Template.Spec.Rounds = 6
					s.Template.Spec.Criteria.Rules = []v1alpha1.Rule{Under("8us")}
				}))
				// A manager that dies is followed by another one.
				eventually(func() string {
					if w.managers[len(w.managers)-1].Dead() {
						w.Start()
					}
					return w.Says(ctx, w.A)
				}).WithTimeout(patience * 10).Should(Equal("Failed Fail" + HeldBack))
				Expect(letIn()).To(BeEmpty())
				w.Settle()
				Expect(w.History(ctx, w.A)).To(HaveLen(1))
				Expect(strings.HasSuffix(w.History(ctx, w.A)[0], " Fail Fail")).To(BeTrue())
				Expect(w.Benchmarks(ctx, w.A)).To(HaveLen(1), "what no status knows is deleted")
			})
			Expect(writes).To(BeNumerically(">", 10))
		})
	}
})
