package integration

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/admit"
	"github.com/tailgate-dev/tailgate/test/admission"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// changesOfSpec holds other values for the fields that cannot change once a spec was accepted.
var changesOfSpec = map[string]any{
	"tool": "pinger", "workload": map[string]any{"duration": "4s"}, "rounds": int64(8), "maxRounds": int64(30),
	"placement": map[string]any{"client": map[string]any{}, "server": map[string]any{}, "cpus": int64(2)},
	"network":   map[string]any{"type": "Host"}, "variants": []any{map[string]any{"name": "a"}}, "capture": "Server",
	"latencyType": "RTT", "highestPercentile": "p99", "headline": map[string]any{"protocol": "TCP"},
	"acceleration": map[string]any{"type": "Onload"}, "pods": map[string]any{"runtimeClassName": "fast"},
	"notes":   []any{map[string]any{"name": "bios", "value": "low latency"}},
	"session": []any{map[string]any{"variant": "default", "cell": "tcp-64", "metric": "p99"}},
	"custom": map[string]any{
		"image": "registry.example.com/engine:1", "client": map[string]any{"command": []any{"/client"}}, "server": map[string]any{"command": []any{"/server"}},
		"output": map[string]any{"format": "Values"},
	},
}

// manifest returns the smallest benchmark in a namespace.
func manifest(namespace string) *unstructured.Unstructured {
	object := admission.Benchmark("{}")
	object.SetNamespace(namespace)
	return object
}

var _ = Describe("The API", func() {
	var namespace string
	BeforeEach(func(ctx SpecContext) { namespace = newNamespace(ctx) })

	It("says what internal/admit says of each case, and fills in the same defaults", func(ctx SpecContext) {
		var taken, refused int
		for _, c := range admission.Cases() {
			here := c.Object.DeepCopy()
			Expect(c.Check(admit.Object(ctx, here), c.Admit)).To(Succeed(), "internal/admit")
			Expect(c.Check(k8s.Create(ctx, c.Object, client.DryRunAll, client.FieldValidation("Strict")), c.Server)).To(Succeed(), "the API server")
			if len(c.Refusal) > 0 {
				refused++
				continue
			}
			taken++
			Expect(c.Object.Object["spec"]).To(Equal(here.Object["spec"]), c.Name)
		}
		Expect([]int{taken, refused}).To(HaveEach(BeNumerically(">=", 30)))
	})

	It("takes the samples of the documentation", func(ctx SpecContext) {
		var files []string
		for _, pattern := range []string{"*.yaml", "experiments/*.yaml"} {
			found, err := filepath.Glob(filepath.Join("..", "..", "config", "samples", pattern))
			Expect(err).NotTo(HaveOccurred())
			files = append(files, found...)
		}
		taken := 0
		for _, file := range files {
			content, err := os.ReadFile(file)
			Expect(err).NotTo(HaveOccurred())
			for part := range strings.SplitSeq(string(content), "\n---\n") {
				object := &unstructured.Unstructured{}
				Expect(yaml.UnmarshalStrict([]byte(part), &object.Object)).To(Succeed(), file)
				if object.GetKind() != "LatencyBenchmark" && object.GetKind() != "LatencyMatrix" {
					continue
				}
				object.SetNamespace(namespace)
				Expect(k8s.Create(ctx, object, client.FieldValidation(metav1.FieldValidationStrict))).To(Succeed(), file)
				taken++
			}
		}
		Expect(taken).To(BeNumerically(">=", 3))
	})

	It("has good defaults", func(ctx SpecContext) {
		object := manifest(namespace)
		Expect(k8s.Create(ctx, object)).To(Succeed())
		var want map[string]any
		Expect(yaml.Unmarshal([]byte(`
tool: sockperf
workload: {protocols: [TCP], wait: Block, muxer: None, duration: 3s, warmup: 500ms}
rounds: 6
placement: {client: {}, server: {}, memory: 512Mi}
network: {type: Pod}
latencyType: HalfRTT
`), &want)).To(Succeed())
		got, err := yaml.Marshal(object.Object["spec"])
		Expect(err).NotTo(HaveOccurred())
		wantYAML, err := yaml.Marshal(want)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(got)).To(Equal(string(wantYAML)))
	})

	It("answers in one line, and says the rest in wide columns", func(ctx SpecContext) {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		Expect(k8s.Get(ctx, types.NamespacedName{Name: "latencybenchmarks.tailgate.dev"}, crd)).To(Succeed())
		var narrow, wide []string
		for _, c := range crd.Spec.Versions[0].AdditionalPrinterColumns {
			if c.Priority == 0 {
				narrow = append(narrow, c.Name)
			} else {
				wide = append(wide, c.Name)
			}
		}
		Expect(narrow).To(Equal([]string{"State", "Runs", "Type", "P50", "P99", "Verdict", "Age"}))
		Expect(wide).To(Equal([]string{"P99.9", "P50-ns", "P99-ns", "P99.9-ns", "Tool", "Network", "Client", "Server", "Cell", "Samples", "Placement", "Ratios", "Message"}))
	})

	It("lets the spec change until it was accepted, and not after", func(ctx SpecContext) {
		object := manifest(namespace)
		Expect(k8s.Create(ctx, object)).To(Succeed())
		setRounds := func(n int64) error {
			Expect(unstructured.SetNestedField(object.Object, n, "spec", "rounds")).To(Succeed())
			return k8s.Update(ctx, object)
		}
		Expect(setRounds(7)).To(Succeed())

		status := map[string]any{"pair": map[string]any{"clientNode": "a", "serverNode": "b"}}
		Expect(unstructured.SetNestedMap(object.Object, status, "status")).To(Succeed())
		Expect(k8s.Status().Update(ctx, object)).To(Succeed())
		Expect(setRounds(8)).To(MatchError(And(ContainSubstring("spec cannot change"), ContainSubstring("delete the benchmark and apply it again"))))

		Expect(unstructured.SetNestedField(object.Object, int64(7), "spec", "rounds")).To(Succeed())
		object.SetLabels(map[string]string{"team": "latency"})
		Expect(k8s.Update(ctx, object)).To(Succeed(), "labels may change at any time")
	})

	It("refuses each change of an accepted spec that could affect its results", func(ctx SpecContext) {
		object := manifest(namespace)
		Expect(k8s.Create(ctx, object)).To(Succeed())
		status := map[string]any{"pair": map[string]any{"clientNode": "a", "serverNode": "b"}}
		Expect(unstructured.SetNestedMap(object.Object, status, "status")).To(Succeed())
		Expect(k8s.Status().Update(ctx, object)).To(Succeed())

		allowed := map[string]any{
			"priority": int64(5), "suspend": true, "ttlSecondsAfterFinished": int64(60), "historyLimit": int64(3),
			"criteria": map[string]any{"rules": []any{map[string]any{"metric": "p99", "max": "2us"}}},
		}
		for _, field := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.LatencyBenchmarkSpec]()) {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if field.Anonymous {
				continue
			}
			changed := object.DeepCopy()
			if value, ok := allowed[name]; ok {
				Expect(unstructured.SetNestedField(changed.Object, value, "spec", name)).To(Succeed())
				Expect(k8s.Update(ctx, changed, client.DryRunAll)).To(Succeed(), name)
				continue
			}
			Expect(changesOfSpec).To(HaveKey(name), "a field of the spec that this test does not change")
			Expect(unstructured.SetNestedField(changed.Object, changesOfSpec[name], "spec", name)).To(Succeed())
			Expect(k8s.Update(ctx, changed)).To(MatchError(ContainSubstring("spec cannot change")), name)
		}

		for _, limit := range []string{"2us", "3us"} {
			criteria := map[string]any{"rules": []any{map[string]any{"metric": "p99", "max": limit}}}
			Expect(unstructured.SetNestedMap(object.Object, criteria, "spec", "criteria")).To(Succeed())
			Expect(k8s.Update(ctx, object)).To(Succeed())
		}
		unstructured.RemoveNestedField(object.Object, "spec", "criteria")
		Expect(k8s.Update(ctx, object)).To(Succeed())
	})

	It("survives the Go types", func(ctx SpecContext) {
		b := MakeBenchmark(namespace, "typed").On("a", "b").Obj()
		Expect(k8s.Create(ctx, b)).To(Succeed())
		b.Status.Conditions = []metav1.Condition{}
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "yes"))
		Expect(k8s.Status().Update(ctx, b)).To(Succeed())
		Expect(Get(ctx, b).Spec).To(Equal(b.Spec))
	})
})
