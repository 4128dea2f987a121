package integration

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

var _ = Describe("A namespace that is being deleted", func() {
	It("keeps no benchmark, and a benchmark nothing in it", func(ctx SpecContext) {
		w := NewWorld(ctx)
		w.Start()
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").On(w.A, w.B))
		server := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
		w.Kubelet.Run(ctx, server)
		peer := w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleClient)
		Expect(k8s.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}})).To(Succeed())
		// There is no namespace controller, which would delete the objects in its own order.
		for _, pod := range []*corev1.Pod{server, peer} {
			Expect(k8s.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		}
		Eventually(Attempts).WithArguments(ctx, b).Should(ContainElement("x-r1 a1 PodLost"))
		By("the time of the second attempt")
		w.Patiently(ctx, b, func() any { return PodsLeft(ctx, b) }, BeEmpty())
		Expect(k8s.Delete(ctx, b)).To(Succeed())
		Eventually(IsGone(ctx, b)).Should(BeTrue(), "no finalizer holds it")
	})
})
