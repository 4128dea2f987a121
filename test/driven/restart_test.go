package driven

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// A manager dies at a write, which it does not perform.

// creates returns a condition: the write creates the pod of a role.
func creates(role string) func(Write) bool {
	return func(w Write) bool {
		pod, ok := Is[*corev1.Pod](w, "create")
		return ok && pod.Labels[v1alpha1.LabelRole] == role
	}
}

// stores is true if a write stores a result, removes if it deletes a pod.
func stores(w Write) bool {
	_, ok := Is[*corev1.ConfigMap](w, "create")
	return ok
}

func removes(w Write) bool {
	_, ok := Is[*corev1.Pod](w, "delete")
	return ok
}

// notes returns a condition: the write is one of a status for which something is true.
func notes(what func(v1alpha1.LatencyBenchmarkStatus) bool) func(Write) bool {
	return func(w Write) bool {
		b, ok := Is[*v1alpha1.LatencyBenchmark](w, "status")
		return ok && what(b.Status)
	}
}

var _ = Describe("A manager that dies", func() {
	DescribeTable("is followed by one that measures nothing twice,",
		func(ctx SpecContext, at func(Write) bool) {
			w := NewWorld(ctx)
			w.Kubelet.Auto()
			first := w.Start(dies(at))
			b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(2).On(w.A, w.B))
			eventually(first.Dead).Should(BeTrue())
			first.Stop()

			w.Start()
			ExpectSucceeded(ctx, b, "^True Complete: 2 of 2")
			Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 Measured", "x-r2 a1 Measured"}))
			Expect(w.Kubelet.Created()).To(ConsistOf("x-r1-a1-server", "x-r1-a1-client", "x-r2-a1-server", "x-r2-a1-client"))
			Expect(PodsLeft(ctx, b)).To(BeEmpty())
			Expect(ConfigMaps(ctx, b)).To(HaveLen(2))
		},
		Entry("before it accepts", notes(func(s v1alpha1.LatencyBenchmarkStatus) bool { return s.Pair != nil })),
		Entry("before it claims", notes(func(s v1alpha1.LatencyBenchmarkStatus) bool { return s.Active != nil })),
		Entry("having claimed, before there is a pod", creates(v1alpha1.RoleServer)),
		Entry("before it creates the client", creates(v1alpha1.RoleClient)),
		Entry("when both pods have ended, before it notes the digests", notes(func(s v1alpha1.LatencyBenchmarkStatus) bool { return s.Active != nil && s.Active.Collected != nil })),
		Entry("having noted the digests, before it stores the result", stores),
		Entry("having stored the result, without saying so", notes(func(s v1alpha1.LatencyBenchmarkStatus) bool { return len(s.Stored) == 1 })),
		Entry("knowing the outcome, before the pods are removed", removes),
		Entry("having removed the pods, before it claims the nodes for the next run", notes(func(s v1alpha1.LatencyBenchmarkStatus) bool { return len(s.Attempts) == 1 })),
		Entry("before it says that all is done", notes(func(s v1alpha1.LatencyBenchmarkStatus) bool { return s.CompletionTime != nil })),
	)

	DescribeTable("before it can record a pod is followed by one that does not trust the pod,",
		func(ctx SpecContext, at func(Write) bool) {
			w := NewWorld(ctx)
			first := w.Start(dies(at))
			b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B))
			w.Kubelet.Auto()
			eventually(first.Dead).Should(BeTrue())
			first.Stop()

			w.Start()
			ExpectSucceeded(ctx, b, "^True Complete: 1 of 1")
			Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 NameTaken", "x-r1 a2 Measured"}))
			Expect(PodsLeft(ctx, b)).To(BeEmpty())
		},
		Entry("the server's", notes(func(s v1alpha1.LatencyBenchmarkStatus) bool { return s.Active != nil && s.Active.ServerPodUID != "" })),
		Entry("the client's", notes(func(s v1alpha1.LatencyBenchmarkStatus) bool { return s.Active != nil && s.Active.ClientPodUID != "" })),
	)

	It("having stored the result is followed by one that takes it, though the pods are gone", func(ctx SpecContext) {
		w := NewWorld(ctx)
		first := w.Start(dies(notes(func(s v1alpha1.LatencyBenchmarkStatus) bool { return len(s.Stored) == 1 })))
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B))
		server, peer := w.Kubelet.RunBoth(ctx, "x-r1", 1)
		w.Kubelet.Succeed(ctx, server)
		w.Kubelet.Succeed(ctx, peer)
		eventually(first.Dead).Should(BeTrue())
		first.Stop()
		for _, pod := range []*corev1.Pod{server, peer} {
			Expect(k8s.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		}

		w.Start()
		ExpectSucceeded(ctx, b, "^True Complete")
		Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 Measured"}))
		Expect(w.Kubelet.Created()).To(HaveLen(2))
	})

	It("while it measures is followed by one that waits for the end", func(ctx SpecContext) { NewWorld(ctx).WaitsForTheEnd(ctx) })

	It("is followed by one that takes those that came meanwhile in their order", func(ctx SpecContext) {
		w := NewWorld(ctx)
		w.Kubelet.Auto()
		var all []*v1alpha1.LatencyBenchmark
		for i := range 20 {
			// Creation times have a resolution of a second; benchmarks with the same time are ordered by name.
			all = append(all, w.Create(ctx, MakeBenchmark(w.Namespace, fmt.Sprintf("x-%02d", i)).On(w.A, w.B)))
		}
		w.Start()
		for i, b := range all {
			ExpectSucceeded(ctx, b, "^True Complete")
			if i > 0 {
				before, after := Get(ctx, all[i-1]).Status.StartTime, Get(ctx, b).Status.StartTime
				Expect(after.Before(before)).To(BeFalse(), "%s before %s", b.Name, all[i-1].Name)
			}
		}
	})
})
