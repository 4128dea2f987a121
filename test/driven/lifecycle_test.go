package driven

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

var _ = Describe("A benchmark", func() {
	var w *World
	BeforeEach(func(ctx SpecContext) { w = NewWorld(ctx) })

	It("measures a run again if a user deleted its stored result", func(ctx SpecContext) {
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(2).On(w.A, w.B))
		w.Kubelet.Measure(ctx, "x-r1", 1)
		eventually(func() []corev1.ConfigMap { return ConfigMaps(ctx, b) }).Should(HaveLen(1))
		stored := ConfigMaps(ctx, b)[0]
		Expect(k8s.Delete(ctx, &stored)).To(Succeed())
		w.Kubelet.Measure(ctx, "x-r2", 1)
		eventually(func() string { return Get(ctx, b).Status.Progress.Runs }).Should(Equal("1/2"))
		w.Kubelet.Measure(ctx, "x-r1", 2)
		ExpectSucceeded(ctx, b, "^True Complete: 2 of 2")
		Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 Measured", "x-r2 a1 Measured", "x-r1 a2 Measured"}))
		Expect(Get(ctx, b).Status.Results[0].Rounds).To(BeEquivalentTo(2))
	})

	It("ends pods that a user deletes with a grace period of a year, also without their benchmark", func(ctx SpecContext) {
		w.Start()
		w.Kubelet.Deaf()
		w.Kubelet.Auto("x", "gone", "y")
		for _, name := range []string{"x", "gone"} {
			w.Pause(name + "-r1")
			b := w.Create(ctx, MakeBenchmark(w.Namespace, name).Rounds(1).On(w.A, w.B))
			server := w.Kubelet.Pod(ctx, name+"-r1", 1, v1alpha1.RoleServer)
			eventually(func() corev1.PodPhase {
				Expect(k8s.Get(ctx, client.ObjectKeyFromObject(server), server)).To(Succeed())
				return server.Status.Phase
			}).Should(Equal(corev1.PodRunning))
			began := w.Clock.Now()
			Expect(k8s.Delete(ctx, server, client.GracePeriodSeconds(31536000))).To(Succeed())
			if name == "gone" {
				Expect(k8s.Delete(ctx, b)).To(Succeed())
			}
			eventually(func() bool { return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(server), server)) }).Should(BeTrue())
			Expect(w.Clock.Now().Sub(began)).To(BeNumerically("<", 10*time.Second))
			if name == "x" {
				Expect(k8s.Delete(ctx, b)).To(Succeed())
			}
		}
		ExpectSucceeded(ctx, w.Create(ctx, MakeBenchmark(w.Namespace, "y").Rounds(1).On(w.A, w.B)), "^True Complete")
	})

	It("measures every variant in every round, in an order that rotates", func(ctx SpecContext) {
		seen := NewVersions()
		watchVersions(w, seen)
		w.Start()
		b := MakeBenchmark(w.Namespace, "x").Rounds(2).On(w.A, w.B)
		b.Spec.Variants = []v1alpha1.Variant{{Name: "block"}, {Name: "poll", Muxer: v1alpha1.MuxerPoll}}
		b.Spec.Tool = v1alpha1.ToolSfntPingpong
		created := w.Create(ctx, b)
		for _, run := range []string{"x-block-r1", "x-poll-r1", "x-poll-r2", "x-block-r2"} {
			w.Kubelet.Measure(ctx, run, 1)
		}
		ExpectSucceeded(ctx, created, "^True Complete: 4 of 4")
		Expect(Attempts(ctx, created)).To(Equal([]string{"x-block-r1 a1 Measured", "x-poll-r1 a1 Measured", "x-poll-r2 a1 Measured", "x-block-r2 a1 Measured"}))
		// Three writes: creation, acceptance, and the claim of the nodes. Seven writes per run: server, client, measuring, one has ended,
		// collected, stored, and the next claim or the end.
		Expect(seen.Of("x")).To(BeNumerically("<=", 3+4*7))
		status := Get(ctx, created).Status
		Expect(status.Results).To(HaveLen(2))
		for i, name := range []string{"block", "poll"} {
			Expect(status.Results[i].Variant).To(Equal(name))
			Expect(status.Results[i].Rounds).To(BeEquivalentTo(2))
			Expect(status.Results[i].Spread).NotTo(BeEmpty())
			Expect(status.Endpoints[2*i].Variant).To(Equal(name))
		}
		Expect(status.Summary.Variant).To(Equal("block"))
		Expect(status.Summary.P50).To(MatchRegexp(`^block [0-9.]+µs, poll [0-9.]+µs$`))
		Expect(status.Summary.P50Nanoseconds).To(HaveValue(Equal(*status.Results[0].Percentile(v1alpha1.P50))))
		By("comparing the second with the first")
		Expect(status.Results[0].Ratios).To(BeEmpty())
		Expect(status.Results[1].Ratios).NotTo(BeEmpty())
		Expect(status.Summary.Variants).To(MatchRegexp(`^block 1\.000, poll [0-9]+\.[0-9]+$`))
		Expect(status.Summary.Placement).NotTo(BeEmpty())
	})

	It("records changes of a pod with the result", func(ctx SpecContext) {
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(1).On(w.A, w.B))
		server := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
		built := server.Spec.Containers[0].Image
		server.Spec.Containers[0].Image = "mirror.example.com/bench:v0"
		Expect(k8s.Update(ctx, server)).To(Succeed())
		w.Kubelet.Run(ctx, server)
		peer := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleClient)
		w.Kubelet.Run(ctx, peer)
		w.Kubelet.Succeed(ctx, peer)
		w.Kubelet.Succeed(ctx, server)
		ExpectSucceeded(ctx, b, "^True Complete")

		stored := StoredRuns(ctx, b)
		Expect(stored).To(HaveLen(1))
		s := stored[0]
		Expect(s.ServerSeen.Changed).To(Equal([]string{"image: mirror.example.com/bench:v0 instead of " + built}))
		Expect(s.ClientSeen.Changed).To(BeEmpty())
	})

	It("gives each endpoint a whole core when its spec leaves the CPUs open", func(ctx SpecContext) {
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").CPUs(0).Rounds(1).On(w.A, w.B))
		server := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
		Expect(server.Spec.Containers[0].Resources.Requests.Cpu().String()).To(Equal("2"))
		w.Kubelet.Measure(ctx, "x-r1", 1)
		ExpectSucceeded(ctx, b, "^True Complete")
		status := Get(ctx, b).Status
		Expect(status.CPUs).To(Equal(&v1alpha1.EndpointCPUs{Client: 2, Server: 2}))
		Expect(StoredRuns(ctx, b)[0].ClientSeen.Changed).To(BeEmpty())
	})

	It("reports on acceptance what cannot be verified, and passes the parent of an attached interface to the agents", func(ctx SpecContext) {
		installMultus()
		CreateConfiguredNetwork(ctx, w.Namespace, "net", "", `{"type":"ipvlan","master":"enp59s0f0"}`)
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").NAD("net").On(w.A, w.B))
		ExpectAccepted(ctx, b, "^True Accepted: client on .*; placement.cpus is 1 for the client and 1 for the server: .*SMTSiblings.*; variant default: .*firmware")
		task, err := TaskOf(w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer))
		Expect(err).NotTo(HaveOccurred())
		Expect(task.Parent).To(Equal("enp59s0f0"))
	})

	It("is measured round by round and completes", func(ctx SpecContext) { w.MeasuresRoundByRound(ctx) })

	It("leaves only its owned objects when it is deleted while it runs", func(ctx SpecContext) {
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(2).On(w.A, w.B))
		w.Kubelet.Measure(ctx, "x-r1", 1)
		server := w.Kubelet.Pod(ctx, "x-r2", 1, v1alpha1.RoleServer)
		w.Kubelet.Run(ctx, server)
		w.Kubelet.Pod(ctx, "x-r2", 1, v1alpha1.RoleClient)
		Expect(k8s.Delete(ctx, b)).To(Succeed())

		left := []client.Object{}
		for _, pod := range PodsLeft(ctx, b) {
			left = append(left, &pod)
		}
		for _, cm := range ConfigMaps(ctx, b) {
			left = append(left, &cm)
		}
		Expect(left).To(HaveLen(3))
		for _, object := range left {
			owner := metav1.GetControllerOf(object)
			Expect(owner).NotTo(BeNil())
			Expect(owner.UID).To(Equal(b.UID))
			Expect(owner.BlockOwnerDeletion).To(HaveValue(BeTrue()))
			Expect(object.GetFinalizers()).To(BeEmpty())
		}
		By("nothing that is made for a benchmark that is gone")
		after := w.Create(ctx, MakeBenchmark(w.Namespace, "after").On(w.A, w.B))
		ExpectSucceeded(ctx, after, "^Unknown Queued")
		w.Patiently(ctx, after, func() any { return w.Kubelet.Created() }, HaveLen(4))
	})

	DescribeTable("whose deletion leaves its pods keeps no node from others", func(ctx SpecContext, restarts bool, deleted func(context.Context, *v1alpha1.LatencyBenchmark, []*corev1.Pod)) {
		m := w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(1).On(w.A, w.B))
		ends := []*corev1.Pod{w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)}
		w.Kubelet.Run(ctx, ends[0])
		ends = append(ends, w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleClient))
		w.Kubelet.Run(ctx, ends[1])
		if restarts {
			m.Stop()
		}
		deleted(ctx, Get(ctx, b), ends)
		if restarts {
			w.Start()
		}
		after := w.Create(ctx, MakeBenchmark(w.Namespace, "after").On(w.A, w.B))
		w.Pass(time.Minute)
		for _, p := range ends {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
			Expect(p.DeletionTimestamp).NotTo(BeNil(), p.Name)
		}
		Expect(Get(ctx, after).Status.Active).To(BeNil(), "the pods are still there")
		w.Kubelet.Gone(ctx, ends...)
		w.Pass(time.Minute)
		Expect(Get(ctx, after).Status.Active).NotTo(BeNil())
	},
		Entry("by a finalizer of a user", false, keptByFinalizer),
		Entry("by a finalizer of a user, and another manager", true, keptByFinalizer),
		Entry("without owners", false, func(ctx context.Context, b *v1alpha1.LatencyBenchmark, ends []*corev1.Pod) {
			Expect(k8s.Delete(ctx, b)).To(Succeed())
			for _, p := range ends { // as the garbage collector does for propagationPolicy: Orphan
				Expect(k8s.Get(ctx, client.ObjectKeyFromObject(p), p)).To(Succeed())
				p.OwnerReferences = nil
				Expect(k8s.Update(ctx, p)).To(Succeed())
			}
		}),
	)

	It("of a name that was there before waits until its pods are gone", func(ctx SpecContext) {
		w.Start()
		before := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B))
		server := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
		// There is no garbage collector, so the pod stays until the test deletes it. The new benchmark uses other nodes.
		Expect(k8s.Delete(ctx, before)).To(Succeed())
		c := MakeNode(w.Namespace + "-c")
		d := MakeNode(w.Namespace + "-d")
		w.AddNode(ctx, c)
		w.AddNode(ctx, d)
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(c.Name, d.Name))
		ExpectSucceeded(ctx, b, "^Unknown Queued: waiting: pod .*x-r1-a1-server.* still exists")
		Expect(k8s.Delete(ctx, server, client.GracePeriodSeconds(0))).To(Succeed())
		w.Kubelet.Gone(ctx, server)
		w.Kubelet.Measure(ctx, "x-r1", 1)
		ExpectSucceeded(ctx, b, "^True Complete")
		Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 Measured"}))
	})
})

var _ = Describe("Two benchmarks on the same nodes", func() {
	It("never overlap, and the second names the benchmark for which it waits", func(ctx SpecContext) {
		w := NewWorld(ctx)
		w.Start()
		first := w.Create(ctx, MakeBenchmark(w.Namespace, "first").Rounds(2).On(w.A, w.B))
		server := w.Kubelet.Pod(ctx, "first-r1", 1, v1alpha1.RoleServer)
		second := w.Create(ctx, MakeBenchmark(w.Namespace, "second").Rounds(2).On(w.B, w.A))
		ExpectSucceeded(ctx, second, fmt.Sprintf("^Unknown Queued: waiting: %s/first is measuring on node %s and node %s$", w.Namespace, w.B, w.A))
		w.NoPod(ctx, second, "second-r1", 1, v1alpha1.RoleServer)

		// From here on, pods run without the spec.
		Expect(server.Name).To(Equal("first-r1-a1-server"))
		w.Kubelet.Auto()
		ExpectSucceeded(ctx, first, "^True Complete")
		ExpectSucceeded(ctx, second, "^True Complete")

		present, order := map[string]string{}, []string{}
		for _, e := range w.Kubelet.History() {
			if e.Gone {
				delete(present, e.Pod)
				continue
			}
			present[e.Pod] = e.Benchmark
			for pod, benchmark := range present {
				Expect(benchmark).To(Equal(e.Benchmark), "%s and %s were there at once", pod, e.Pod)
			}
			order = append(order, e.Benchmark)
		}
		// Two rounds of two pods each; rounds of two benchmarks never interleave.
		Expect(order).To(Equal(append(slices.Repeat([]string{"first"}, 4), slices.Repeat([]string{"second"}, 4)...)))
	})

	It("do not hold each other up when the older cannot run", func(ctx SpecContext) {
		w := NewWorld(ctx)
		w.Start()
		older := w.Create(ctx, MakeBenchmark(w.Namespace, "older").Memory("2Gi").On(w.A, w.B))
		ExpectAccepted(ctx, older, "^True")
		server := w.Kubelet.Pod(ctx, "older-r1", 1, v1alpha1.RoleServer)
		w.Kubelet.Fail(ctx, server, v1alpha1.OutcomeToolFailed, "once")
		w.Kubelet.Gone(ctx, server)
		ExpectSucceeded(ctx, older, "^Unknown Retrying")

		// Its node no longer has enough memory for it, but enough for another benchmark.
		node := &corev1.Node{}
		Expect(k8s.Get(ctx, client.ObjectKey{Name: w.A}, node)).To(Succeed())
		node.Status.Allocatable[corev1.ResourceMemory] = *MakeBenchmark("", "").Memory("1Gi").Spec.Placement.Memory.ToDec()
		Expect(k8s.Status().Update(ctx, node)).To(Succeed())
		w.Pass(6 * time.Second)
		ExpectAccepted(ctx, older, "^False InsufficientMemory")

		younger := w.Create(ctx, MakeBenchmark(w.Namespace, "younger").On(w.A, w.B))
		w.Kubelet.Measure(ctx, "younger-r1", 1)
		ExpectSucceeded(ctx, younger, "^True Complete")
	})
})

func keptByFinalizer(ctx context.Context, b *v1alpha1.LatencyBenchmark, _ []*corev1.Pod) {
	b.Finalizers = []string{"example.com/kept"}
	Expect(k8s.Update(ctx, b)).To(Succeed())
	Expect(k8s.Delete(ctx, b)).To(Succeed())
}
