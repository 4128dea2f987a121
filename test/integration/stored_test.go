package integration

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/tailgate-dev/tailgate/test/specs"
)

var _ = Describe("A ConfigMap", func() {
	var w *World
	BeforeEach(func(ctx SpecContext) { w = NewWorld(ctx) })

	// noMore creates a quota that allows no ConfigMap. The quota controller does not run here, so noMore sets the status.
	noMore := func(ctx SpecContext) *corev1.ResourceQuota {
		GinkgoHelper()
		quota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "no-more"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/configmaps": resource.MustParse("0")}},
		}
		Expect(k8s.Create(ctx, quota)).To(Succeed())
		quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{"count/configmaps": resource.MustParse("0")}}
		Expect(k8s.Status().Update(ctx, quota)).To(Succeed())
		return quota
	}

	It("that a quota refuses for a moment is created when the quota is lifted", func(ctx SpecContext) {
		quota := noMore(ctx)
		w.Start()
		b, server, peer := w.Measuring(ctx)
		w.Kubelet.Succeed(ctx, server)
		w.Kubelet.Succeed(ctx, peer)
		ExpectSucceeded(ctx, b, "^Unknown StoreRefused")
		Expect(k8s.Delete(ctx, quota)).To(Succeed())
		ExpectSucceeded(ctx, b, "^True Complete")
		Expect(Attempts(ctx, b)).To(Equal([]string{"x-r1 a1 Measured"}))
	})
})
