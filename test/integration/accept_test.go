package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// createNetwork creates a NetworkAttachmentDefinition, of a device if resourceName is not empty. It retries while the kind is
// new, and also if a slow API server created the object but did not answer in time.
func createNetwork(ctx context.Context, namespace, name, resourceName string) {
	GinkgoHelper()
	createConfiguredNetwork(ctx, namespace, name, resourceName, "")
}

func createConfiguredNetwork(ctx context.Context, namespace, name, resourceName, config string) {
	GinkgoHelper()
	network := &unstructured.Unstructured{}
	network.SetGroupVersionKind(foreign.GroupVersionKind)
	network.SetNamespace(namespace)
	network.SetName(name)
	if resourceName != "" {
		network.SetAnnotations(map[string]string{foreign.AnnotationResourceName: resourceName})
	}
	if config != "" {
		network.Object["spec"] = map[string]any{"config": config}
	}
	Eventually(func() error { return client.IgnoreAlreadyExists(k8s.Create(ctx, network)) }).Should(Succeed())
}

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
		createNetwork(ctx, w.Namespace, "macvlan", "")
		ExpectAccepted(ctx, b, "^True")
		w.Kubelet.Pod(ctx, "x-r1", 1, v1alpha1.RoleServer)
		Eventually(func() error {
			current := Get(ctx, b)
			current.Spec.Network.NAD.AlignWith = ""
			return k8s.Update(ctx, current)
		}).Should(MatchError(ContainSubstring("spec cannot change after it was accepted")))
	})
})
