package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/tool/all"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// samples returns the files with the samples, including the experiments.
func samples() []string {
	var files []string
	for _, pattern := range []string{"*.yaml", "experiments/*.yaml"} {
		found, err := filepath.Glob(filepath.Join("..", "..", "config", "samples", pattern))
		if err != nil || len(found) == 0 {
			panic(fmt.Sprintf("no samples %s: %v", pattern, err)) // Without it, there would be no specs.
		}
		for _, file := range found {
			if filepath.Base(file) != "kustomization.yaml" {
				files = append(files, file)
			}
		}
	}
	return files
}

// localNetworks returns the NetworkAttachmentDefinitions of the local cluster, by name.
func localNetworks() map[string]*unstructured.Unstructured {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join("..", "localcluster", "testdata", "manifests.yaml"))
	Expect(err).NotTo(HaveOccurred())
	networks := map[string]*unstructured.Unstructured{}
	for document := range strings.SplitSeq(string(content), "---\n") {
		object := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed())
		if object.GetKind() == foreign.GroupVersionKind.Kind {
			networks[object.GetName()] = object
		}
	}
	Expect(networks).NotTo(BeEmpty())
	return networks
}

// localNode returns a node of the local cluster on a machine with two cores.
func localNode(name string) corev1.Node {
	n := MakeNode(name).Obj()
	n.Labels[corev1.LabelHostname] = name
	n.Status.Allocatable = corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("4Gi"), "tailgate.test/sf_vf": resource.MustParse("4"), "tailgate.test/sf_pf": resource.MustParse("1"),
	}
	return *n
}

// asType converts a LatencyBenchmark or LatencyMatrix to its Go type.
func asType(object *unstructured.Unstructured) client.Object {
	GinkgoHelper()
	var o client.Object = &v1alpha1.LatencyBenchmark{}
	if object.GetKind() == "LatencyMatrix" {
		o = &v1alpha1.LatencyMatrix{}
	}
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, o)).To(Succeed())
	return o
}

// accept checks a LatencyBenchmark or LatencyMatrix, as the API server returned it, against nodes and NetworkAttachmentDefinitions. The
// latter are by name.
func accept(object *unstructured.Unstructured, nodes []corev1.Node, networks map[string]*unstructured.Unstructured) (v1alpha1.Pair, *preflight.Rejection) {
	GinkgoHelper()
	o := asType(object)
	b := Overview(o)
	driver, err := all.Registry().Get(b.Spec.Tool)
	Expect(err).NotTo(HaveOccurred())
	observed := preflight.Observed{
		Benchmark: b, Driver: driver, Tools: all.Registry(), Nodes: nodes,
		Networks: map[string]*preflight.NetworkDefinition{}, Settings: preflight.Settings{AllowHostNetwork: true},
	}
	for _, v := range plan.Variants(b.Spec) {
		ref := v.Network.NetworkRef()
		if ref == nil {
			continue
		}
		definition := &preflight.NetworkDefinition{Name: ref.Name}
		if network := networks[definition.Name]; network != nil {
			definition.Found, definition.ResourceName = true, network.GetAnnotations()[foreign.AnnotationResourceName]
		}
		observed.Networks[v.Name] = definition
	}
	m, ofMatrix := o.(*v1alpha1.LatencyMatrix)
	if !ofMatrix {
		return preflight.Accept(observed)
	}
	chosen, rejection := preflight.AcceptMatrix(observed, m.Spec)
	if rejection != nil {
		return v1alpha1.Pair{}, rejection
	}
	return plan.Matrix(m.Spec, chosen.Names, chosen.Server)[0][0], nil
}

var _ = Describe("A sample", func() {
	for _, file := range samples() {
		It("is taken by the API and accepted on the local cluster: "+filepath.Base(file), func(ctx SpecContext) {
			content, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			object := &unstructured.Unstructured{}
			Expect(yaml.Unmarshal(content, &object.Object)).To(Succeed())
			object.SetNamespace(newNamespace(ctx))
			By("creating it, with fields that do not exist refused")
			Expect(k8s.Create(ctx, object, client.DryRunAll, client.FieldValidation("Strict"))).To(Succeed())

			By("checking what the API server made of it as the operator does")
			pair, rejection := accept(object, []corev1.Node{localNode("node-a"), localNode("node-b")}, localNetworks())
			Expect(rejection).To(BeNil())
			Expect(pair).To(Equal(v1alpha1.Pair{ClientNode: "node-a", ServerNode: "node-b"}))
		})
	}
})
