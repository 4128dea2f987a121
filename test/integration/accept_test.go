package integration

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

var _ = Describe("A benchmark of a secondary network", func() {
	It("is measured as soon as the network exists, and keeps to the device beside which it was accepted", func(ctx SpecContext) {
		w := NewWorld(ctx)
		installMultus()
		for _, name := range []string{"c", "d"} {
			n := MakeNode(w.Namespace + "-" + name)
			n.Status.Allocatable[VF] = resource.MustParse("1")
			w.AddNode(ctx, n)
		}
		w.Start()
		builder := MakeBenchmark(w.Namespace, "x").NAD("macvlan").On(w.Namespace+"-c", w.Namespace+"-d")
		builder.Spec.Network.NAD.AlignWith = VF
		b := w.Create(ctx, builder)
		ExpectAccepted(ctx, b, "^False NetworkNotFound: .*create it")
		Expect(Condition(ctx, b, v1alpha1.ConditionSucceeded)).To(HavePrefix("Unknown NotAccepted: spec."))
		// No controller watches networks: the benchmark is reconciled again every ten seconds, without an event.
		CreateNetwork(ctx, w.Namespace, "macvlan", "")
		ExpectAccepted(ctx, b, "^True")
		w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
		Eventually(func() error {
			current := Get(ctx, b)
			current.Spec.Network.NAD.AlignWith = ""
			return k8s.Update(ctx, current)
		}).Should(MatchError(ContainSubstring("spec cannot change after it was accepted")))
	})
})
