package integration

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/admission"
)

var _ = Describe("A matrix", func() {
	var w *World
	BeforeEach(func(ctx SpecContext) {
		w = NewWorld(ctx)
		w.Group(ctx, "1", "2", "3", "4")
	})

	It("measures each pair by a benchmark of its own, and never two on one node", func(ctx SpecContext) {
		w.Kubelet.Auto(ctx)
		w.MeasuresAllPairs(ctx)
	})
})

// matrixManifest returns the smallest matrix in a namespace.
func matrixManifest(namespace string) *unstructured.Unstructured {
	object := admission.Matrix("{}", "{}")
	object.SetNamespace(namespace)
	return object
}

var _ = Describe("The API of a matrix", func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	It("has good defaults", func(ctx SpecContext) {
		object := matrixManifest(namespace)
		Expect(k8s.Create(ctx, object)).To(Succeed())
		m := asType(object).(*v1alpha1.LatencyMatrix)
		Expect(m.Spec.Parallelism).To(BeEquivalentTo(1))
		Expect(m.Spec.Template.Spec.Rounds).To(BeEquivalentTo(6))
		Expect(m.Spec.Template.Spec.Placement.Client).To(Equal(&v1alpha1.EndpointPlacement{}))
	})

	It("answers in one line, and says the rest in wide columns", func(ctx SpecContext) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		Expect(k8s.Get(ctx, client.ObjectKey{Name: "latencymatrices.tailgate.dev"}, crd)).To(Succeed())
		Expect(crd.Spec.Names.ShortNames).To(Equal([]string{"lmatrix"}))
		var narrow, wide []string
		for _, c := range crd.Spec.Versions[0].AdditionalPrinterColumns {
			if c.Priority == 0 {
				narrow = append(narrow, c.Name)
			} else {
				wide = append(wide, c.Name)
			}
		}
		Expect(narrow).To(Equal([]string{"State", "Topology", "Pairs", "Complete", "Failed", "Slowest", "Type", "P50", "P99", "Verdict", "Age"}))
		Expect(wide).To(Equal([]string{"P50-ns", "P99-ns", "Runs", "Tool", "Message"}))
	})

	It("refuses each change of an accepted spec that could affect its results", func(ctx SpecContext) {
		object := matrixManifest(namespace)
		Expect(k8s.Create(ctx, object)).To(Succeed())
		changed := object.DeepCopy()
		Expect(unstructured.SetNestedField(changed.Object, "Ring", "spec", "topology")).To(Succeed())
		Expect(k8s.Update(ctx, changed, client.DryRunAll)).To(Succeed(), "it is not accepted yet")
		status := map[string]any{"nodes": []any{"a", "b"}, "counts": map[string]any{"total": int64(1), "running": int64(0), "complete": int64(0), "failed": int64(0)}}
		Expect(unstructured.SetNestedMap(object.Object, status, "status")).To(Succeed())
		Expect(k8s.Status().Update(ctx, object)).To(Succeed())

		criteria := map[string]any{"rules": []any{map[string]any{"metric": "p99", "max": "2us"}}}
		change := func(value any, path ...string) error {
			changed := object.DeepCopy()
			Expect(unstructured.SetNestedField(changed.Object, value, path...)).To(Succeed())
			return k8s.Update(ctx, changed, client.DryRunAll)
		}
		Expect(change(true, "spec", "suspend")).To(Succeed())
		Expect(change(int64(60), "spec", "ttlSecondsAfterFinished")).To(Succeed())
		Expect(change(criteria, "spec", "template", "spec", "criteria")).To(Succeed())
		Expect(change(int64(5), "spec", "template", "spec", "priority")).To(Succeed())
		refused := MatchError(ContainSubstring("spec cannot change after it was accepted"))
		Expect(change("Ring", "spec", "topology")).To(refused)
		Expect(change("a", "spec", "nodes", "nodeName")).To(refused)
		Expect(change(map[string]any{"nodeName": "a"}, "spec", "server")).To(refused)
		Expect(change(int64(2), "spec", "parallelism")).To(refused)
		Expect(change(map[string]any{"a": "b"}, "spec", "template", "metadata", "labels")).To(refused)
		for name, value := range changesOfSpec {
			if name == "session" {
				continue // no part of a template
			}
			Expect(change(value, "spec", "template", "spec", name)).To(refused, name)
		}
	})
})
