package integration

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/admission"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

var _ = Describe("A matrix", func() {
	var w *World
	BeforeEach(func(ctx SpecContext) {
		w = NewWorld(ctx)
		w.Group(ctx, "1", "2", "3", "4")
	})

	It("measures each pair by a benchmark of its own, and never two on one node", func(ctx SpecContext) {
		w.Kubelet.Auto(ctx)
		w.Kubelet.Agents(Slower("x-p4-"))
		w.Start()
		b := w.CreateMatrix(ctx, MakeBenchmark(w.Namespace, "x").Rounds(2).AllPairs(2))
		ExpectAccepted(ctx, b, "^True Accepted: 4 nodes: 6 pairs, in 3 slots of at most 2 at once$")
		ExpectSucceeded(ctx, b, `^Unknown Running: \d of 6 pairs done; measuring x-p`)
		By("a node that comes later, which does not change the plan")
		w.Group(ctx, "5")
		ExpectMeasured(ctx, b, "^True Complete: 6 of 6 pairs measured; the slowest is x-p4$")

		all := Children(ctx, b)
		Expect(w.PairsOf(all)).To(Equal(AllPairsOfFour))
		w.ExpectApart(all, 2)
		Expect(w.Kubelet.Created()).To(HaveLen(6 * 2 * 2))
		for _, c := range all {
			owner := metav1.GetControllerOf(&c)
			Expect(owner.UID).To(Equal(b.UID))
			Expect(owner.BlockOwnerDeletion).To(HaveValue(BeTrue()))
			Expect(c.Status.Results[0].Rounds).To(BeEquivalentTo(2))
			Expect(ConfigMaps(ctx, &c)).To(HaveLen(2))
		}

		By("what the status says")
		status := Get(ctx, b).Status
		Expect(*status.Progress).To(Equal(v1alpha1.Progress{Runs: "12/12", Done: 12, Total: 12}))
		Expect(status.StartTime).NotTo(BeNil())
		Expect(status.CompletionTime).NotTo(BeNil())
		Expect(status.ObservedGeneration).To(BeEquivalentTo(1))
		Expect(status.Nodes).To(HaveExactElements(HaveSuffix("-1"), HaveSuffix("-2"), HaveSuffix("-3"), HaveSuffix("-4")))
		Expect(status.Counts).To(Equal(v1alpha1.PairCounts{Total: 6, Complete: 6}))
		Expect(status.Slots).To(BeEquivalentTo(3))
		Expect(status.Running).To(BeEmpty())
		Expect(status.Slowest).To(HaveLen(6))
		slowest := status.Slowest[0]
		Expect(slowest.Benchmark).To(Equal("x-p4"))
		Expect(slowest.Pair).To(Equal(v1alpha1.Pair{ClientNode: w.Namespace + "-3", ServerNode: w.Namespace + "-1"}))
		Expect(slowest.LatencyType).To(BeEquivalentTo(v1alpha1.LatencyHalfRTT))
		Expect(*slowest.Percentile(v1alpha1.P99)).To(BeNumerically("~", 10_990, 10))
		Expect(status.Cells).To(HaveLen(1))
		line := status.Cells[0]
		Expect([]any{line.Variant, line.Cell, line.Pairs, line.P99.MaxBenchmark}).To(Equal([]any{"default", "tcp-64", int32(6), "x-p4"}))
		Expect(*line.P99.MedianNanoseconds).To(BeNumerically("~", 5990, 10))
		Expect(*line.P50.MaxNanoseconds).To(BeNumerically("~", 10_500, 10))
		Expect(status.Summary.Cell).To(Equal("tcp-64, slowest of 6 pairs"))
		Expect(status.Summary.P99).To(Equal("10.99µs"))

		By("what the events tell")
		Eventually(ToldOf).WithArguments(ctx, b).Should(ConsistOf(
			HavePrefix("Normal Accepted: 4 nodes"), HavePrefix("Normal Complete: 6 of 6"),
			HavePrefix("Normal PairMeasured: measured x-p1, client on "+w.Namespace+"-1, server on "+w.Namespace+"-4"),
			HavePrefix("Normal PairMeasured: measured x-p2, "), HavePrefix("Normal PairMeasured: measured x-p3, "),
			HavePrefix("Normal PairMeasured: measured x-p4, "), HavePrefix("Normal PairMeasured: measured x-p5, "),
			HavePrefix("Normal PairMeasured: measured x-p6, "),
		))

		By("nothing more being written")
		written := Get(ctx, b).Status
		w.Patiently(ctx, b, func() any { return Get(ctx, b).Status }, Equal(written))
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
