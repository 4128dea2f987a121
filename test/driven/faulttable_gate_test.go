package driven

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/faults"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

var _ = Describe("A node of a gate that is upgraded while it is measured after an upgrade", func() {
	for _, state := range faults.States {
		It("stays held back until it is measured as it is then, "+string(state), func(ctx SpecContext) {
			w := NewWorld(ctx)
			w.ChangeNode(ctx, w.A, func(n *corev1.Node) { n.Labels[GateLabel] = w.Namespace })
			w.ChangeNodeStatus(ctx, w.A, Identified)
			first, second, third := w.Benchmark(w.A, 1), w.Benchmark(w.A, 2), w.Benchmark(w.A, 3)
			w.Kubelet.Auto(first.Name, third.Name)
			armed := false
			judges := notes(func(s v1alpha1.LatencyBenchmarkStatus) bool { return s.Verdict != nil })
			manager := w.Start(dies(func(write Write) bool { return armed && judges(write) }))
			w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
			w.Expect(ctx, w.A, IsVerified)
			letIn := w.LetIn(ctx, w.A)
			accepted := w.everAccepted(ctx, w.A)

			switch state {
			case faults.Waiting:
				w.Create(ctx, MakeBenchmark(w.Namespace, "ahead").On(w.A, w.B))
				w.Kubelet.Pod(ctx, "ahead-r1", 1, v1alpha1.RoleServer)
				w.Upgrade(ctx, w.A, "6.2.0")
				eventually(func() error { return k8s.Get(ctx, client.ObjectKeyFromObject(second), second) }).Should(Succeed())
				ExpectSucceeded(ctx, second, "^Unknown Queued")
			case faults.Judging:
				armed = true
				w.Kubelet.Auto(second.Name)
				w.Upgrade(ctx, w.A, "6.2.0")
				eventually(manager.Dead).Should(BeTrue())
				manager.Stop()
			default:
				w.Upgrade(ctx, w.A, "6.2.0")
				w.playTo(ctx, second.Name+"-r1", state)
			}
			w.Upgrade(ctx, w.A, "6.3.0")
			switch state {
			case faults.Waiting:
				w.Kubelet.Auto("ahead")
			case faults.Judging:
				w.Start()
			}

			By("the removal of the benchmark of the old node")
			eventually(func() []string { return w.Benchmarks(ctx, w.A) }).Should(ConsistOf("-1", "-3"))
			w.Kubelet.Auto(second.Name)
			eventually(func() string { return w.Accepted(ctx, w.A) }).Should(Equal("-3 since -1"))
			w.Expect(ctx, w.A, IsVerified)
			Expect(w.Verification(ctx, w.A).Status.Accepted.Identity).To(HaveKeyWithValue("Kernel", "6.3.0"))
			eventually(accepted).Should(Equal([]string{first.Name, third.Name}))
			Expect(letIn()).To(HaveLen(2), "the condition, then label and taint, once")
		})
	}
})

// playTo simulates the pods of the first attempt at a run until a state.
func (w *World) playTo(ctx context.Context, run string, state faults.State) {
	GinkgoHelper()
	server := w.Kubelet.Pod(ctx, run, 1, v1alpha1.RoleServer)
	if state == faults.Claimed {
		return
	}
	w.Kubelet.Run(ctx, server)
	peer := w.Kubelet.Pod(ctx, run, 1, v1alpha1.RoleClient)
	if state == faults.ServerUp {
		return
	}
	w.Kubelet.Run(ctx, peer)
	if state == faults.HandingOver {
		w.Kubelet.Succeed(ctx, peer)
	}
}

// everAccepted returns a function that returns the benchmarks that a node's verification has accepted in all of its versions since.
func (w *World) everAccepted(ctx context.Context, node string) func() []string {
	GinkgoHelper()
	current := w.Verification(ctx, node)
	names := []string{current.Status.Accepted.Benchmark}
	follow(w, func(_, after *v1alpha1.LatencyVerification) {
		if after == nil || after.Name != current.Name || after.Status.Accepted == nil {
			return
		}
		if a := after.Status.Accepted; a.Benchmark != names[len(names)-1] {
			names = append(names, a.Benchmark)
		}
	})
	return func() []string { return names }
}
