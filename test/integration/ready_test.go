package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	kstatus "github.com/fluxcd/cli-utils/pkg/kstatus/status"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/standing"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// kindsOf returns the kinds of the API that have a status.
func kindsOf() []string {
	var kinds []string
	for kind, t := range scheme.KnownTypes(v1alpha1.GroupVersion) {
		if _, ok := t.FieldByName("Status"); ok && t.PkgPath() == reflect.TypeFor[v1alpha1.LatencyGate]().PkgPath() {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// kstatusOf returns how kstatus finds an object as the API server returns it.
func kstatusOf(ctx context.Context, o client.Object) kstatus.Status {
	GinkgoHelper()
	gvk, err := k8s.GroupVersionKindFor(o)
	Expect(err).NotTo(HaveOccurred())
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(o), u)).To(Succeed())
	result, err := kstatus.Compute(u)
	Expect(err).NotTo(HaveOccurred())
	return result.Status
}

// judgedBenchmark writes the status of a benchmark with a verdict, as the operator does.
func judgedBenchmark(ctx context.Context, b *v1alpha1.LatencyBenchmark, passed metav1.ConditionStatus, reason string) {
	GinkgoHelper()
	b.Status.ObservedGeneration = b.Generation
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, "all runs"))
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, passed, reason, "so the operator says"))
	standing.Publish(&b.Status.Conditions, b.Generation, time.Now(), standing.OfMeasurement(b))
	Expect(k8s.Status().Update(ctx, b)).To(Succeed())
}

// A chart with a benchmark and a gate.
const chartedObjects = `
apiVersion: tailgate.dev/v1alpha1
kind: LatencyBenchmark
metadata: {name: charted}
spec:
  tool: pinger
  workload: {protocols: [TCP], messageSizes: [64], duration: 500ms}
  placement: {client: {nodeName: nosuch}, server: {nodeName: node-b}}
  criteria: {rules: [{metric: p50, max: 5ms}]}
---
apiVersion: tailgate.dev/v1alpha1
kind: LatencyGate
metadata: {name: "{{ .Release.Namespace }}"}
spec:
  nodeSelector: {matchLabels: {grp: "{{ .Release.Namespace }}"}}
  namespace: "{{ .Release.Namespace }}"
  template:
    spec:
      tool: pinger
      workload: {protocols: [TCP], messageSizes: [64], duration: 500ms}
      placement: {client: {}, server: {}}
      criteria: {rules: [{metric: p50, max: 5ms}]}
`

var _ = Describe("Generic readiness", func() {
	It("finds no kind ready before the operator has looked at it", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		server := v1alpha1.NodeSelection{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		template := MakeBenchmark(namespace, "x").Obj().Spec
		template.Placement.Client, template.Placement.Server = &v1alpha1.EndpointPlacement{}, &v1alpha1.EndpointPlacement{}
		benchmark := MakeBenchmark(namespace, "x").Obj()
		objects := map[string]client.Object{
			"LatencyBenchmark": benchmark,
			"LatencyMatrix": &v1alpha1.LatencyMatrix{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "x"}, Spec: v1alpha1.LatencyMatrixSpec{
				Topology: v1alpha1.TopologyRing, Nodes: server, Template: v1alpha1.LatencyBenchmarkTemplate{Spec: template.MeasurementSpec},
			}},
			"LatencyGate":         MakeGate(namespace).Obj(),
			"LatencyVerification": &v1alpha1.LatencyVerification{ObjectMeta: metav1.ObjectMeta{Name: namespace + ".x"}, Spec: v1alpha1.LatencyVerificationSpec{GateName: namespace, NodeName: "x"}},
		}
		Expect(objects).To(HaveLen(len(kindsOf())))
		for _, kind := range kindsOf() {
			o := objects[kind]
			Expect(o).NotTo(BeNil(), kind)
			Expect(k8s.Create(ctx, o)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, o))).To(Succeed()) })
			Expect(kstatusOf(ctx, o)).To(Equal(kstatus.InProgressStatus), kind)
		}
		By("a status without an observed generation")
		Expect(k8s.Status().Patch(ctx, benchmark.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"status":{"observedGeneration":null,"startTime":"2026-01-01T00:00:00Z"}}`)))).To(Succeed())
		Expect(kstatusOf(ctx, benchmark)).To(Equal(kstatus.InProgressStatus))
		By("a verdict, and then another spec")
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(benchmark), benchmark)).To(Succeed())
		judgedBenchmark(ctx, benchmark, metav1.ConditionTrue, v1alpha1.ReasonPass)
		Expect(kstatusOf(ctx, benchmark)).To(Equal(kstatus.CurrentStatus))
		benchmark.Spec.Priority++
		Expect(k8s.Update(ctx, benchmark)).To(Succeed())
		Expect(kstatusOf(ctx, benchmark)).To(Equal(kstatus.InProgressStatus))
	})

	It("means that helm install --wait waits for the verdict", func(ctx SpecContext) {
		for _, c := range []struct {
			benchmark, gate metav1.ConditionStatus
			nodes           v1alpha1.NodeCounts
			reasons         [2]string
			timeout         string
			ends, says      string
		}{
			{timeout: "20s", ends: "error", says: "InProgress"},
			{"True", "True", allVerified, [2]string{v1alpha1.ReasonPass, v1alpha1.ReasonAllVerified}, "2m", "installed", "STATUS: deployed"},
			{"False", "True", allVerified, [2]string{v1alpha1.ReasonFail, v1alpha1.ReasonAllVerified}, "2m", "error", "LatencyBenchmark"},
			{"True", "False", oneFailed, [2]string{v1alpha1.ReasonPass, v1alpha1.ReasonNodesFailed}, "2m", "error", "LatencyGate"},
		} {
			namespace := newNamespace(ctx)
			chart := GinkgoT().TempDir()
			Expect(os.Mkdir(filepath.Join(chart, "templates"), 0o755)).To(Succeed())
			Expect(os.WriteFile(filepath.Join(chart, "Chart.yaml"), []byte("apiVersion: v2\nname: charted\nversion: 0.1.0\n"), 0o600)).To(Succeed())
			Expect(os.WriteFile(filepath.Join(chart, "templates", "all.yaml"), []byte(chartedObjects), 0o600)).To(Succeed())
			g := &v1alpha1.LatencyGate{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
			DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, g))).To(Succeed()) })

			command := exec.CommandContext(ctx, "go", "tool", "-modfile=hack/tools/helm.mod", "helm", "install", "charted", chart, "-n", namespace, "--wait", "--timeout", c.timeout)
			command.Dir, command.Env = filepath.Join("..", ".."), append(os.Environ(), "KUBECONFIG="+adminKubeconfig(namespace))
			var output []byte
			var err error
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				output, err = command.CombinedOutput()
			}()
			b := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "charted"}}
			for _, o := range []client.Object{b, g} {
				Eventually(func() error { return k8s.Get(ctx, client.ObjectKeyFromObject(o), o) }).WithTimeout(3 * time.Minute).Should(Succeed())
			}
			begin := time.Now()
			if c.benchmark != "" {
				By("it waits, and then there is a verdict: " + c.reasons[0] + ", " + c.reasons[1])
				Consistently(ended).WithTimeout(3 * time.Second).ShouldNot(BeClosed())
				judgedBenchmark(ctx, b, c.benchmark, c.reasons[0])
				say(ctx, g, c.gate, c.reasons[1], c.nodes)
			}
			Eventually(ended).WithTimeout(time.Minute).Should(BeClosed())
			Expect(time.Since(begin)).To(BeNumerically("<", time.Minute))
			Expect(err == nil).To(Equal(c.ends == "installed"), string(output))
			Expect(string(output)).To(ContainSubstring(c.says))
		}
	})

	It("has a health script for every kind in Argo CD", func() {
		var patch corev1.ConfigMap
		Expect(yaml.UnmarshalStrict(readSample("argocd.yaml"), &patch)).To(Succeed())
		var kinds []string
		for key := range patch.Data {
			kind, ok := strings.CutPrefix(key, "resource.customizations.health."+v1alpha1.GroupVersion.Group+"_")
			Expect(ok).To(BeTrue(), key)
			kinds = append(kinds, kind)
		}
		Expect(kinds).To(ConsistOf(kindsOf()))
	})
})
