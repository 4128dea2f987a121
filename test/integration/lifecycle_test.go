package integration

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
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

	It("is measured round by round and completes", func(ctx SpecContext) {
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(2).Sizes(64, 256).On(w.A, w.B))

		By("accepting it for the nodes that its selectors name")
		ExpectAccepted(ctx, b, "^True Accepted: client on "+w.A+", server on "+w.B)

		By("starting the server first")
		server := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
		Expect(server.Spec.NodeName).To(Equal(w.B))
		w.NoPod(ctx, b, "x-r1", 1, v1alpha1.RoleClient)
		ExpectSucceeded(ctx, b, "^Unknown Starting: .*x-r1.*server")
		Expect(Get(ctx, b).Status.Active.Pair).To(Equal(v1alpha1.Pair{ClientNode: w.A, ServerNode: w.B}))
		w.Kubelet.Run(ctx, server)

		By("sharing a Secret between both pods, whose content is in no pod")
		secret := &corev1.Secret{}
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: w.Namespace, Name: "tailgate-" + string(b.UID)}, secret)).To(Succeed())
		Expect(metav1.IsControlledBy(secret, b)).To(BeTrue())
		Expect(secret.Immutable).To(HaveValue(BeTrue()))
		Expect(len(secret.Data["key"])).To(BeNumerically(">=", 26))
		Expect(fmt.Sprint(server)).NotTo(ContainSubstring(string(secret.Data["key"])))

		By("starting the client with the server's address")
		peer := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleClient)
		Expect(peer.Spec.NodeName).To(Equal(w.A))
		task, err := TaskOf(peer)
		Expect(err).NotTo(HaveOccurred())
		Expect(task.ServerAddress).To(Equal("10.244.0.2"))
		w.Kubelet.Run(ctx, peer)
		ExpectSucceeded(ctx, b, "^Unknown Running: measuring round 1 of 2")

		By("storing the result and removing the pods")
		w.Kubelet.Succeed(ctx, peer)
		w.Kubelet.Succeed(ctx, server)
		w.Kubelet.Gone(ctx, server, peer)
		Eventually(func() string { return Get(ctx, b).Status.Progress.Runs }).Should(Equal("1/2"))

		By("measuring the second round with the cells in another order")
		w.Kubelet.Measure(ctx, "x-r2", 1)
		ExpectSucceeded(ctx, b, "^True Complete: 2 of 2")

		status := Get(ctx, b).Status
		Expect(status.Active).To(BeNil())
		Expect(status.StartTime).NotTo(BeNil())
		Expect(status.CompletionTime).NotTo(BeNil())
		Expect(status.ObservedGeneration).To(BeEquivalentTo(1))
		Expect(*status.Progress).To(Equal(v1alpha1.Progress{Runs: "2/2", Done: 2, Total: 2}))
		Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 Measured", "x-r2 a1 Measured"}))
		Expect(status.Attempts[0].MeasuredMilliseconds).To(BeNumerically("==", 2000))
		Expect(status.Results).To(HaveLen(2))
		for _, r := range status.Results {
			Expect(r.Rounds).To(BeEquivalentTo(2))
			Expect(r.Samples).To(BeEquivalentTo(2 * SamplesPerRun))
			Expect(*r.MinNanoseconds).To(BeEquivalentTo(5000), "half of the smallest round trip")
			Expect(r.Percentile(v1alpha1.P99)).NotTo(BeNil())
			Expect(r.Percentile(v1alpha1.P9999)).To(BeNil(), "too few samples")
		}
		Expect(status.Summary.Cell).To(Equal("tcp-64"))
		Expect(status.Summary.P50).To(HaveSuffix("µs"))
		Expect(status.Endpoints).To(HaveLen(2))
		Expect(status.Endpoints[0].Role).To(Equal(v1alpha1.RoleClient))
		Expect(status.Endpoints[0].Node).To(Equal(w.A))

		By("leaving nothing but the stored results, which go with the benchmark")
		Expect(PodsLeft(ctx, b)).To(BeEmpty())
		Expect(w.Kubelet.Created()).To(ConsistOf("x-r1-a1-server", "x-r1-a1-client", "x-r2-a1-server", "x-r2-a1-client"))
		stored := ConfigMaps(ctx, b)
		Expect(stored).To(HaveLen(2))
		for i := range stored {
			Expect(metav1.IsControlledBy(&stored[i], b)).To(BeTrue())
			Expect(stored[i].Immutable).To(HaveValue(BeTrue()))
		}
		for _, s := range StoredRuns(ctx, b) {
			for _, seen := range []result.Seen{s.ClientSeen, s.ServerSeen} {
				Expect(seen.PodUID).NotTo(BeEmpty())
				Expect(seen.Requests).To(HaveKey("cpu"))
				Expect(seen.Changed).To(BeEmpty(), "what the API server fills in is no change")
			}
		}

		By("reporting it in events")
		Eventually(func() ([]string, error) {
			list := &eventsv1.EventList{}
			err := k8s.List(ctx, list, client.InNamespace(w.Namespace))
			var events []string
			for _, e := range list.Items {
				events = append(events, fmt.Sprintf("%s %s %s", e.Type, e.Reason, e.Note))
			}
			return events, err
		}).Should(ConsistOf(
			ContainSubstring("Normal Accepted client on"),
			"Normal Measured measured x-r1 at attempt 1", "Normal Measured measured x-r2 at attempt 1",
			ContainSubstring("Normal Complete 2 of 2"),
		))
	})
})
