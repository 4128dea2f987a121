package integration

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/admission"
)

var _ = Describe("The API of gates", func() {
	It("takes the samples, whose benchmarks the local cluster can carry out", func(ctx SpecContext) {
		files, err := filepath.Glob(filepath.Join("..", "..", "config", "samples", "gates", "*.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(files).NotTo(BeEmpty())
		for _, file := range files {
			content, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			object := &unstructured.Unstructured{}
			Expect(yaml.Unmarshal(content, &object.Object)).To(Succeed())
			if object.GetKind() != "LatencyGate" {
				continue
			}
			Expect(k8s.Create(ctx, object, client.DryRunAll)).To(Succeed(), file)
			template, _, err := unstructured.NestedMap(object.Object, "spec", "template", "spec")
			Expect(err).NotTo(HaveOccurred())
			delete(template, "criteria")
			b := &unstructured.Unstructured{Object: map[string]any{"spec": template}}
			b.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("LatencyBenchmark"))
			b.SetNamespace("default")
			b.SetName("sample")
			Expect(k8s.Create(ctx, b, client.DryRunAll)).To(Succeed(), file)
			_, rejection := accept(b, []corev1.Node{localNode("node-a"), localNode("node-b")}, localNetworks())
			Expect(rejection).To(BeNil(), file)
		}
	})

	It("has defaults, and keeps the namespace", func(ctx SpecContext) {
		object := admission.Gate("small", "{}", "{}")
		Expect(k8s.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(k8s.Delete(ctx, object)).To(Succeed()) })
		g := &v1alpha1.LatencyGate{}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(object), g)).To(Succeed())
		Expect(g.Spec.Identity.Keys).To(HaveLen(6))
		Expect(g.Spec.MaxParallel).To(HaveValue(Equal(intstr.FromString("10%"))))
		Expect(g.Spec.HistoryLimit).To(BeEquivalentTo(3))
		Expect(g.Spec.Template.Spec.Rounds).To(BeEquivalentTo(6), "as a benchmark's")
		g.Spec.Namespace = "kube-system"
		Expect(k8s.Update(ctx, g)).To(MatchError(ContainSubstring("spec.namespace: Invalid value")))
	})
})
