package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

var _ = Describe("The API of gates", func() {
	// gateManifest returns the smallest gate with top-level fields of its spec, and of the template's spec, replaced.
	gateManifest := func(name, spec, template string) *unstructured.Unstructured {
		object := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(`
apiVersion: tailgate.dev/v1alpha1
kind: LatencyGate
spec:
  nodeSelector: {matchLabels: {test.tailgate.dev/gate: none}}
  namespace: default
  template:
    spec:
      tool: sockperf
      placement: {client: {}, server: {}}
      criteria: {rules: [{metric: p99, max: 5us}]}
`), &object.Object)).To(Succeed())
		object.SetName(name)
		fields := object.Object["spec"].(map[string]any)
		inner := fields["template"].(map[string]any)["spec"].(map[string]any)
		for text, into := range map[string]map[string]any{spec: fields, template: inner} {
			var changes map[string]any
			Expect(yaml.Unmarshal([]byte(text), &changes)).To(Succeed())
			for field, value := range changes {
				if into[field] = value; value == nil {
					delete(into, field)
				}
			}
		}
		return object
	}
	differences := "criteria: {rules: [{metric: p99, maxIncrease: 5%}], baseline: {accepted: {}}, ignoreDifferences: ["
	tolerations := "pods: {tolerations: ["
	for i := range 32 {
		differences += fmt.Sprintf("key-%d, ", i)
		if i < 16 {
			tolerations += fmt.Sprintf("{key: key-%d, operator: Exists}, ", i)
		}
	}
	DescribeTable("refuses, naming the field and what to do,",
		func(ctx SpecContext, name, spec, template string, parts ...string) {
			err := k8s.Create(ctx, gateManifest(name, spec, template))
			Expect(err).To(HaveOccurred())
			for _, part := range parts {
				Expect(err.Error()).To(ContainSubstring(part))
			}
		},
		Entry("a name with a dot", "a.b", "{}", "{}", "metadata.name", "no dot"),
		Entry("a long name", strings.Repeat("x", 64), "{}", "{}", "metadata.name", "at most 63"),
		Entry("no selector", "small", "nodeSelector: null", "{}", "spec.nodeSelector", "Required value"),
		Entry("an empty selector", "small", "nodeSelector: {}", "{}", "spec.nodeSelector", "operator: Exists"),
		Entry("a selector with empty lists", "small", "nodeSelector: {matchLabels: {}, matchExpressions: []}", "{}", "spec.nodeSelector", "must have matchLabels or matchExpressions"),
		Entry("a selector with an unknown operator", "small", "nodeSelector: {matchExpressions: [{key: rack, operator: Gt, values: ['1']}]}", "{}", "spec.nodeSelector", "operator must be In or NotIn"),
		Entry("a selector with an operator without its values", "small", "nodeSelector: {matchExpressions: [{key: rack, operator: In}]}", "{}", "spec.nodeSelector", "1 to 64 values"),
		Entry("a selector with an operator that takes no values", "small", "nodeSelector: {matchExpressions: [{key: rack, operator: Exists, values: ['1']}]}", "{}", "spec.nodeSelector", "without values"),
		Entry("no namespace", "small", "namespace: null", "{}", "spec.namespace", "Required value"),
		Entry("a namespace that cannot exist", "small", "namespace: perf/up", "{}", "spec.namespace", "should match"),
		Entry("no template", "small", "template: null", "{}", "spec.template", "Required value"),
		Entry("a template whose fixed baseline any editor of the namespace can refill", "small", "{}", "criteria: {rules: [{metric: p99, maxIncrease: 5%}], baseline: {benchmarkRef: {name: golden}}}", "template.spec.criteria.baseline.benchmarkRef.uid", "another benchmark can have the name later"),
		Entry("a template that compares with a matrix", "small", "{}", "criteria: {rules: [{metric: p99, maxIncrease: 5%}], baseline: {matrixRef: {name: m}}}", "template.spec.criteria.baseline.matrixRef", "use accepted"),
		Entry("a template that names its client", "small", "{}", "placement: {client: {nodeName: a}, server: {}}", "template.spec.placement.client", "must be {}"),
		Entry("a template that selects its client", "small", "{}", "placement: {client: {nodeSelector: {matchLabels: {a: b}}}, server: {}}", "template.spec.placement.client", "must be {}"),
		Entry("a template without rules", "small", "{}", "criteria: null", "template.spec.criteria", "rules are required"),
		Entry("a rule against nothing", "small", "{}", "criteria: {rules: [{metric: p99, maxIncrease: 5%}]}", "spec.template.spec.criteria", "accepted"),
		Entry("the results of another gate", "small", "{}", "criteria: {rules: [{metric: p99, maxIncrease: 5%}], baseline: {accepted: {gateName: other}}}", "template.spec.criteria.baseline.accepted.gateName", "must be absent"),
		Entry("no room for node among the differences", "small", "{}", differences+"]}", "template.spec.criteria.ignoreDifferences", "at most 31"),
		Entry("no room for a toleration", "small", "{}", tolerations+"]}", "template.spec.pods.tolerations", "at most 15"),
		Entry("a variant with a long name", "small", "{}", "variants: [{name: seventeen-letters}]", "template.spec.variants", "at most 16"),
		Entry("a label that the operator writes", "small", "template: {metadata: {labels: {tailgate.dev/gate: x}}, spec: {tool: pinger, placement: {client: {}, server: {}}, criteria: {rules: [{metric: p99, max: 5us}]}}}", "{}", "spec.template.metadata.labels", "the operator's own"),
		Entry("a label that no object can have", "small", "template: {metadata: {labels: {team: 'a b'}}, spec: {tool: pinger, placement: {client: {}, server: {}}, criteria: {rules: [{metric: p99, max: 5us}]}}}", "{}", "spec.template.metadata.labels.team", "should match"),
		Entry("an annotation of the operator", "small", "template: {metadata: {annotations: {tailgate.dev/accept: x}}, spec: {tool: pinger, placement: {client: {}, server: {}}, criteria: {rules: [{metric: p99, max: 5us}]}}}", "{}", "spec.template.metadata.annotations", "the operator's own"),
		Entry("a template that no benchmark could have", "small", "{}", "{tool: netperf, highestPercentile: p99.9}", "spec.template", "netperf reports only"),
		Entry("an unknown key of the identity", "small", "identity: {keys: [Colour]}", "{}", "spec.identity.keys[0]", "supported values"),
		Entry("a time zone without a schedule", "small", "timeZone: Europe/Zurich", "{}", "timeZone", "applies only to a schedule"),
		Entry("a time zone in the schedule", "small", "schedule: 'TZ=UTC 0 3 * * *'", "{}", "spec.schedule", "time zone in timeZone"),
		Entry("a schedule without times of day", "small", "schedule: '@every 1h'", "{}", "spec.schedule", "times of day"),
		Entry("hold pods as a boolean", "small", "enforcement: {holdPod: true}", "{}", "spec.enforcement.holdPod", "must be of type object"),
		Entry("an unknown effect", "small", "enforcement: {taint: {effect: PreferNoSchedule}}", "{}", "spec.enforcement.taint.effect", "supported values"),
		Entry("no slot", "small", "maxParallel: 0", "{}", "spec.maxParallel", "must be a number from 1 to 100"),
		Entry("more than all nodes", "small", "maxParallel: 101%", "{}", "spec.maxParallel", "must be a number from 1 to 100"),
		Entry("a text as the number of slots", "small", "maxParallel: many", "{}", "spec.maxParallel", "must be a number from 1 to 100"),
		Entry("a negative number of nodes", "small", "maxUnverified: -1", "{}", "spec.maxUnverified", "greater than or equal to 0"),
		Entry("no history", "small", "historyLimit: 0", "{}", "spec.historyLimit", "greater than or equal to 1"),
	)

	DescribeTable("refuses a LatencyVerification that names what cannot exist,",
		func(ctx SpecContext, gate, node, field string) {
			v := &v1alpha1.LatencyVerification{Spec: v1alpha1.LatencyVerificationSpec{GateName: gate, NodeName: node}}
			v.Name = "names"
			Expect(k8s.Create(ctx, v, client.DryRunAll)).To(MatchError(And(ContainSubstring(field), ContainSubstring("should match"))))
		},
		Entry("a gate with a slash", "a/b", "node-a", "spec.gateName"),
		Entry("no gate", "", "node-a", "spec.gateName"),
		Entry("a node with a slash", "gate", "a/b", "spec.nodeName"),
		Entry("no node", "gate", "", "spec.nodeName"),
	)

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
		object := gateManifest("small", "{}", "{}")
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
