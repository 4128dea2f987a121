package integration

import (
	"context"
	"sync"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/faults"
)

var _ = Describe("A node of a gate that is upgraded while it is measured after an upgrade", func() {
	for _, state := range faults.States {
		It("stays held back until it is measured as it is then, "+string(state), func(ctx SpecContext) {
			w := NewWorld(ctx)
			w.ChangeNode(ctx, w.A, func(n *corev1.Node) { n.Labels[gateLabel] = w.Namespace })
			w.ChangeNodeStatus(ctx, w.A, identified)
			first, second, third := w.Benchmark(w.A, 1), w.Benchmark(w.A, 2), w.Benchmark(w.A, 3)
			w.Kubelet.Auto(ctx, first.Name, third.Name)
			var armed atomic.Bool
			judges := notes(func(s v1alpha1.LatencyBenchmarkStatus) bool { return s.Verdict != nil })
			manager := w.Start(func(verb string, o client.Object) bool { return armed.Load() && judges(verb, o) })
			w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
			w.Expect(ctx, w.A, isVerified)
			letIn := w.LetIn(ctx, w.A)
			accepted := w.everAccepted(ctx, w.A)

			switch state {
			case faults.Waiting:
				w.Create(ctx, MakeBenchmark(w.Namespace, "ahead").On(w.A, w.B))
				w.Kubelet.Pod(ctx, "ahead-r1", 1, v1alpha1.RoleServer)
				w.Upgrade(ctx, w.A, "6.2.0")
				Eventually(func() error { return k8s.Get(ctx, client.ObjectKeyFromObject(second), second) }).Should(Succeed())
				ExpectSucceeded(ctx, second, "^Unknown Queued")
			case faults.Judging:
				armed.Store(true)
				w.Kubelet.Auto(ctx, second.Name)
				w.Upgrade(ctx, w.A, "6.2.0")
				Eventually(manager.client.dead.Load).Should(BeTrue())
				manager.Stop()
			default:
				w.Upgrade(ctx, w.A, "6.2.0")
				w.playTo(ctx, second.Name+"-r1", state)
			}
			w.Upgrade(ctx, w.A, "6.3.0")
			switch state {
			case faults.Waiting:
				w.Kubelet.Auto(ctx, "ahead")
			case faults.Judging:
				w.Start()
			}

			By("the removal of the benchmark of the old node, whose pods the garbage collector would delete")
			Eventually(func() []string { return w.Benchmarks(ctx, w.A) }).Should(ConsistOf("-1", "-3"))
			Eventually(func() string {
				w.collectGarbage(ctx, second)
				return w.Accepted(ctx, w.A)
			}).Should(Equal("-3 since -1"))
			w.Expect(ctx, w.A, isVerified)
			Expect(w.Verification(ctx, w.A).Status.Accepted.Identity).To(HaveKeyWithValue("Kernel", "6.3.0"))
			Eventually(accepted).Should(Equal([]string{first.Name, third.Name}))
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
	var mu sync.Mutex
	follow(ctx, &v1alpha1.LatencyVerificationList{}, func(_ watch.EventType, o client.Object) {
		mu.Lock()
		defer mu.Unlock()
		if a := o.(*v1alpha1.LatencyVerification).Status.Accepted; a != nil && a.Benchmark != names[len(names)-1] {
			names = append(names, a.Benchmark)
		}
	}, client.MatchingFields{"metadata.name": current.Name})
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return names
	}
}
