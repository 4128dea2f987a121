package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/standing"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// These specs simulate the tools of config/samples/gates: the behavior of each tool is taken from its source, which the comments name.
// The samples are those of the folder with other names. peers_test.go runs the tools that are available as Go modules.

// gateSamples is the folder of the samples.
var gateSamples = filepath.Join("..", "..", "config", "samples", "gates")

// readSample reads a sample. replace holds pairs of strings for strings.NewReplacer, to adapt the sample to a spec.
func readSample(file string, replace ...string) []byte {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(gateSamples, file))
	Expect(err).NotTo(HaveOccurred())
	return []byte(strings.NewReplacer(replace...).Replace(string(content)))
}

// objectsOf returns the objects of a sample.
func objectsOf(content []byte) []*unstructured.Unstructured {
	GinkgoHelper()
	var all []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		o := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(document), &o.Object)).To(Succeed())
		all = append(all, o)
	}
	return all
}

// decode decodes a tool's object into a struct with the fields that the specs use.
func decode(o *unstructured.Unstructured, into any) {
	GinkgoHelper()
	content, err := json.Marshal(o.Object)
	Expect(err).NotTo(HaveOccurred())
	Expect(json.Unmarshal(content, into)).To(Succeed())
}

// typed returns the object of a kind in a sample. Fields that its type does not have are errors.
func typed[T any](content []byte, kind string) T {
	GinkgoHelper()
	var into T
	for _, o := range objectsOf(content) {
		if o.GetKind() == kind {
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, &into, true)).To(Succeed())
			return into
		}
	}
	Fail("no " + kind + " in the sample")
	return into
}

// create creates objects until the spec ends. Unknown fields are errors.
func create(ctx SpecContext, objects ...*unstructured.Unstructured) {
	GinkgoHelper()
	for _, o := range objects {
		Expect(k8s.Create(ctx, o, client.FieldValidation("Strict"))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, o))).To(Succeed()) })
	}
}

// makeNamespace creates a namespace that a sample names, if it does not exist.
func makeNamespace(ctx SpecContext, name string) {
	GinkgoHelper()
	err := k8s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	Expect(client.IgnoreAlreadyExists(err)).To(Succeed())
}

// installTools installs the CustomResourceDefinitions of the tools. They stay, because they do not affect other specs.
func installTools() {
	GinkgoHelper()
	installKinds([]string{filepath.Join("testdata", "tools", "crds.yaml")})
}

// gateSaying creates a gate with the given condition Passed, without an operator.
func gateSaying(ctx SpecContext, namespace string, status metav1.ConditionStatus, reason string, nodes v1alpha1.NodeCounts) *v1alpha1.LatencyGate {
	GinkgoHelper()
	g := MakeGate(namespace).Obj()
	Expect(k8s.Create(ctx, g)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, g))).To(Succeed()) })
	say(ctx, g, status, reason, nodes)
	return g
}

// say sets the status of a gate, as the operator does.
func say(ctx context.Context, g *v1alpha1.LatencyGate, status metav1.ConditionStatus, reason string, nodes v1alpha1.NodeCounts) {
	GinkgoHelper()
	g.Status.ObservedGeneration, g.Status.Nodes = g.Generation, nodes
	g.SetCondition(v1alpha1.Condition(v1alpha1.ConditionOperational, metav1.ConditionTrue, v1alpha1.ReasonOperational, "ready"))
	g.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, status, reason, "so the operator says"))
	standing.Publish(&g.Status.Conditions, g.Generation, time.Now(), standing.OfGate(g))
	Expect(k8s.Status().Update(ctx, g)).To(Succeed())
}

// Numbers of nodes that match conditions.
var (
	allVerified     = v1alpha1.NodeCounts{Total: 2, Verified: 2}
	oneFailed       = v1alpha1.NodeCounts{Total: 2, Verified: 1, Failed: 1}
	oneMeasuring    = v1alpha1.NodeCounts{Total: 2, Verified: 1, Measuring: 1}
	oneInconclusive = v1alpha1.NodeCounts{Total: 2, Verified: 1, Inconclusive: 1}
)

var _ = Describe("The samples for upgrade tools", func() {
	BeforeEach(installTools)

	// The samples that are patches of objects of the tools.
	patches := []string{"argocd.yaml", "hold-pod.yaml", "kmm.yaml", "kured.yaml", "taint.yaml"}

	It("are taken by the API server, without a field that a tool does not have", func(ctx SpecContext) {
		makeNamespace(ctx, "system-upgrade")
		makeNamespace(ctx, "gates")
		files, err := filepath.Glob(filepath.Join(gateSamples, "*.yaml"))
		Expect(err).NotTo(HaveOccurred())
		Expect(len(files)).To(BeNumerically(">", len(patches)))
		for _, file := range files {
			if slices.Contains(patches, filepath.Base(file)) {
				continue
			}
			for _, o := range objectsOf(readSample(filepath.Base(file))) {
				By(filepath.Base(file) + ": " + o.GetKind())
				Expect(k8s.Create(ctx, o, client.DryRunAll, client.FieldValidation("Strict"))).To(Succeed())
			}
		}
	})

	It("that are patches are taken by kubectl", func(ctx SpecContext) {
		namespace := newNamespace(ctx)
		admin := adminKubeconfig(namespace)
		daemonSet := func(name string) *appsv1.DaemonSet {
			label := map[string]string{"name": name}
			return &appsv1.DaemonSet{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
				Spec: appsv1.DaemonSetSpec{
					Selector: &metav1.LabelSelector{MatchLabels: label},
					Template: corev1.PodTemplateSpec{
						ObjectMeta: metav1.ObjectMeta{Labels: label},
						Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: "image", Command: []string{"/usr/bin/" + name}}}},
					},
				},
			}
		}
		kured, multus := daemonSet("kured"), daemonSet("multus")
		argocd := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "argocd-cm"}, Data: map[string]string{"url": "kept"}}
		g := MakeGate(namespace).Obj()
		for _, o := range []client.Object{kured, multus, argocd, g} {
			Expect(k8s.Create(ctx, o)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(k8s.Delete(ctx, o)).To(Succeed()) })
		}
		patch := func(file string, o client.Object, args ...string) {
			GinkgoHelper()
			code, out := kubectl(ctx, admin, append([]string{"patch", "--patch-file", filepath.Join(gateSamples, file)}, args...)...)
			Expect(code).To(Equal(0), out)
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		}
		patch("kured.yaml", kured, "daemonset", "kured")
		Expect(kured.Spec.Template.Spec.Containers).To(HaveLen(1))
		Expect(kured.Spec.Template.Spec.Containers[0].Image).To(Equal("image"))
		Expect(kured.Spec.Template.Spec.Containers[0].Command).To(ContainElement("--alert-filter-match-only=true"))
		patch("argocd.yaml", argocd, "configmap", "argocd-cm")
		Expect(argocd.Data).To(HaveLen(5))
		patch("hold-pod.yaml", g, "lgate", namespace, "--type=merge")
		Expect(g.Spec.Enforcement.HoldPod).NotTo(BeNil())
		Expect(g.Spec.Enforcement.Label).NotTo(BeNil())

		By("tolerating the taint where the patch says so, and nowhere else")
		tainted := corev1.Taint{Key: v1alpha1.NodeTaintUnverified, Effect: corev1.TaintEffectNoSchedule}
		tolerated := func(d *appsv1.DaemonSet) bool {
			return slices.ContainsFunc(d.Spec.Template.Spec.Tolerations, func(t corev1.Toleration) bool {
				return (t.Key == "" || t.Key == tainted.Key) && (t.Effect == "" || t.Effect == tainted.Effect) && t.Operator == corev1.TolerationOpExists
			})
		}
		Expect(tolerated(multus)).To(BeFalse())
		patch("taint.yaml", multus, "daemonset", "multus")
		Expect(tolerated(multus)).To(BeTrue())
		Expect(tolerated(kured)).To(BeTrue())
		Expect(kured.Spec.Template.Spec.Tolerations).To(ContainElement(corev1.Toleration{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule}), "of kured itself")
	})
})

var _ = Describe("A simulated upgrade tool", func() {
	It("goes on while a node is verified, halts when it has failed, and goes on when it is accepted", func(ctx SpecContext) {
		installTools()
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.HoldPod = &v1alpha1.GateHoldPod{} }))
		reader, base, admin := NewReader(ctx, w.Namespace), Verdicts(), adminKubeconfig(w.Namespace)
		names := []string{"fast-nodes", w.Namespace, "{latency: gated}", fmt.Sprintf("{%s: %s}", GateLabel, w.Namespace), "latency: gated,", fmt.Sprintf("%s: %s,", GateLabel, w.Namespace)}
		var rule readinessRule
		Expect(yaml.Unmarshal(readSample("node-readiness-controller.yaml", names...), &rule)).To(Succeed())
		var upgrade, after upgradePlan
		plans := objectsOf(readSample("system-upgrade-controller.yaml", append(names, " upgraded-to: v1.36.2-k3s1,", "")...))
		decode(plans[0], &upgrade)
		decode(plans[1], &after)
		waits := typed[batchv1.Job](readSample("kubectl-wait.yaml", names...), "Job")
		gates := typed[batchv1.Job](readSample("gate-job.yaml", names...), "Job")
		var rollouts analysis
		Expect(yaml.Unmarshal(readSample("argo-rollouts.yaml", names...), &rollouts)).To(Succeed())
		canary := objectsOf(readSample("flagger.yaml", names...))[0]

		node := func(name string) *corev1.Node {
			GinkgoHelper()
			n := &corev1.Node{}
			Expect(k8s.Get(ctx, types.NamespacedName{Name: name}, n)).To(Succeed())
			return n
		}
		exits := func(kubeconfig string, args ...string) func() bool {
			return func() bool { code, _ := kubectl(ctx, kubeconfig, append(args, "--timeout=1s")...); return code == 0 }
		}
		wait := command(waits)
		Expect(wait[0]).To(Equal("kubectl"))
		Expect(wait[len(wait)-1]).To(Equal("--timeout=2h"))
		verification := v1alpha1.VerificationName(w.Namespace, w.A)
		// Functions that report whether a tool continues, for node A or for the gate.
		tools := map[string]func() bool{
			"kubectl wait for the gate":         exits(reader.Kubeconfig, wait[1:len(wait)-1]...),
			"kubectl wait for the verification": exits(admin, "wait", "lver/"+verification, "--for=condition=Verified"),
			"kubectl wait for the node":         exits(admin, "wait", "node/"+w.A, "--for=condition=tailgate.dev/LatencyVerified"),
			"the gate's command":                func() bool { code, _ := gateCommand(ctx, reader.Kubeconfig, "5s", command(gates)); return code == 0 },
			"prepare of the system-upgrade-controller": func() bool {
				code, _ := gateCommand(ctx, reader.Kubeconfig, "5s", upgrade.Spec.Prepare.Command)
				return code == 0
			},
			"a Plan by the label": func() bool {
				return slices.Contains(after.applying([]*corev1.Node{node(w.A), node(w.B)}, nil, nil), w.A)
			},
			"node-readiness-controller": func() bool { return !rule.taints(node(w.A)) },
			"the scheduler": func() bool {
				return !slices.ContainsFunc(node(w.A).Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.NodeTaintUnverified })
			},
			"k8s-operator-libs": func() bool { return validated(ctx, "tailgate.dev/hold=true,tailgate.dev/gate="+w.Namespace, w.A) },
			"Argo CD, the gate": func() bool {
				Expect(k8s.Get(ctx, client.ObjectKeyFromObject(g), g)).To(Succeed())
				return health(g) == "Healthy"
			},
			"Argo CD, the verification": func() bool { return health(w.Verification(ctx, w.A)) == "Healthy" },
			"Argo Rollouts":             func() bool { return rollouts.measure(base, reader.Token) == "Successful" },
			"Flagger":                   func() bool { return flagger(base, reader.Token, canary) == nil },
		}
		all := func(goOn bool) {
			GinkgoHelper()
			for name, goes := range tools {
				By(name)
				Eventually(goes).Should(Equal(goOn), name)
			}
		}
		w.Expect(ctx, w.A, IsVerified)
		w.Expect(ctx, w.B, IsVerified)
		all(true)

		w.SlowNode(w.A)
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, "Failed Fail"+HeldBack)
		all(false)
		By("the other node, which is not disturbed")
		Expect(rule.taints(node(w.B))).To(BeFalse())
		Expect(validated(ctx, "tailgate.dev/hold=true,tailgate.dev/gate="+w.Namespace, w.B)).To(BeTrue())
		Expect(rollouts.measure(base, reader.Token)).To(Equal("Failed"))
		Expect(flagger(base, reader.Token, canary)).To(MatchError(ContainSubstring(`"reason":"NodesFailed"`)))

		history := w.Verification(ctx, w.A).Status.History
		w.AskAccept(ctx, w.A, history[0].Benchmark)
		w.Expect(ctx, w.A, "Verified AcceptedByHand: True true -")
		all(true)
	})
})

// readConfig reads a file under config.
func readConfig(path ...string) []byte {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(append([]string{"..", "..", "config"}, path...)...))
	Expect(err).NotTo(HaveOccurred())
	return content
}
