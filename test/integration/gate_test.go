package integration

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// The agents of these specs measure round trips from 10000 to 11999 ns in every round, with a p90 of 5.9 µs as half RTT, unless a
// spec changes that.

// gateLabel selects the nodes of a gate. Its value is the namespace of the spec.
const gateLabel = "test.tailgate.dev/gate"

// GateBuilder builds a LatencyGate.
type GateBuilder struct{ v1alpha1.LatencyGate }

// MakeGate returns a builder with a gate that requires a p90 of five rounds below 8 µs and within 10 % of the accepted result, with
// label and taint. It is named after the namespace, because gates are cluster-scoped.
func MakeGate(namespace string) *GateBuilder {
	return &GateBuilder{v1alpha1.LatencyGate{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: v1alpha1.LatencyGateSpec{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{gateLabel: namespace}}, Namespace: namespace,
			Template:    v1alpha1.LatencyBenchmarkTemplate{Spec: MakeBenchmark(namespace, "").Rounds(6).Rule(under("8us")).Rule(within("10%")).AgainstGate("").Free().Spec},
			Enforcement: v1alpha1.Enforcement{Label: &v1alpha1.GateLabel{}, Taint: &v1alpha1.GateTaint{Effect: corev1.TaintEffectNoSchedule}},
		},
	}}
}

// With applies a change to the spec.
func (g *GateBuilder) With(change func(*v1alpha1.LatencyGateSpec)) *GateBuilder {
	change(&g.Spec)
	return g
}

// Alone makes the gate select only one node, with a peer that it does not select.
func (g *GateBuilder) Alone(node, peer string) *GateBuilder {
	g.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{nodeLabel: node}}
	g.Spec.Template.Spec.Placement.Server = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: peer}}
	return g
}

// Obj returns the gate.
func (g *GateBuilder) Obj() *v1alpha1.LatencyGate { return g.DeepCopy() }

// Gate creates a gate of the world's nodes. It is removed at the end of the spec, even without a manager.
func (w *World) Gate(ctx SpecContext, g *GateBuilder) *v1alpha1.LatencyGate {
	GinkgoHelper()
	created := g.Obj()
	Expect(k8s.Create(ctx, created)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, created))).To(Succeed())
		list := &v1alpha1.LatencyVerificationList{}
		Expect(k8s.List(ctx, list, client.MatchingFields{"spec.gateName": created.Name})).To(Succeed())
		none := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
		for i := range list.Items {
			Expect(client.IgnoreNotFound(k8s.Delete(ctx, &list.Items[i]))).To(Succeed())
			Expect(client.IgnoreNotFound(k8s.Patch(ctx, &list.Items[i], none))).To(Succeed())
		}
		Expect(client.IgnoreNotFound(k8s.Patch(ctx, created, none))).To(Succeed())
	})
	return created
}

// NewGateWorld returns a world whose nodes its gate selects, and whose pods run without the spec.
func NewGateWorld(ctx SpecContext, more ...string) *World {
	GinkgoHelper()
	w := NewWorld(ctx)
	w.Kubelet.Auto(ctx)
	for _, name := range []string{w.A, w.B} {
		w.ChangeNode(ctx, name, func(n *corev1.Node) { n.Labels[gateLabel] = w.Namespace })
		w.ChangeNodeStatus(ctx, name, identified)
	}
	for _, name := range more {
		w.AddGateNode(ctx, w.Namespace+"-"+name)
	}
	return w
}

// AddGateNode creates a node of the gate.
func (w *World) AddGateNode(ctx SpecContext, name string) {
	GinkgoHelper()
	n := MakeNode(name)
	n.Labels[gateLabel] = w.Namespace
	identified(&n.Node)
	w.AddNode(ctx, n)
}

// identified sets the fields that a kubelet would report for its node.
func identified(n *corev1.Node) {
	n.Status.NodeInfo.BootID, n.Status.NodeInfo.KernelVersion, n.Status.NodeInfo.KubeletVersion = "boot-1 of "+n.Name, "6.1.0", "v1.36.0"
}

// ChangeNode changes a node as a user would.
func (w *World) ChangeNode(ctx context.Context, name string, change func(*corev1.Node)) {
	GinkgoHelper()
	Edit(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, change)
}

// ChangeNodeStatus changes the status that a node's kubelet reports.
func (w *World) ChangeNodeStatus(ctx context.Context, name string, change func(*corev1.Node)) {
	GinkgoHelper()
	Eventually(func() error {
		n := &corev1.Node{}
		if err := k8s.Get(ctx, types.NamespacedName{Name: name}, n); err != nil {
			return err
		}
		change(n)
		return k8s.Status().Update(ctx, n)
	}).Should(Succeed())
}

// Upgrade changes the kernel and the boot ID of a node.
func (w *World) Upgrade(ctx context.Context, name, kernel string) {
	GinkgoHelper()
	w.ChangeNodeStatus(ctx, name, func(n *corev1.Node) {
		n.Status.NodeInfo.KernelVersion, n.Status.NodeInfo.BootID = kernel, "boot of "+kernel+" of "+name
	})
}

// Verification returns the verification of a node.
func (w *World) Verification(ctx context.Context, node string) *v1alpha1.LatencyVerification {
	GinkgoHelper()
	v := &v1alpha1.LatencyVerification{}
	Expect(client.IgnoreNotFound(k8s.Get(ctx, types.NamespacedName{Name: v1alpha1.VerificationName(w.Namespace, node)}, v))).To(Succeed())
	return v
}

// Says returns the state and reason of a node's LatencyVerification, and the condition, label and taint of the Node, such as
// isVerified.
func (w *World) Says(ctx context.Context, node string) string {
	GinkgoHelper()
	n := &corev1.Node{}
	Expect(k8s.Get(ctx, types.NamespacedName{Name: node}, n)).To(Succeed())
	condition, label, taint := "-", "-", "-"
	for _, c := range n.Status.Conditions {
		if c.Type == v1alpha1.NodeConditionVerified {
			condition = string(c.Status)
		}
	}
	if value, ok := n.Labels[v1alpha1.NodeLabelVerified]; ok {
		label = value
	}
	for _, t := range n.Spec.Taints {
		if t.Key == v1alpha1.NodeTaintUnverified {
			taint = string(t.Effect)
		}
	}
	status := w.Verification(ctx, node).Status
	state := string(status.State)
	if reason := status.Verified().Reason; reason == v1alpha1.ReasonProvisional {
		state += " " + v1alpha1.ReasonPassed // In small fleets every Pass against another boot is provisional; a spec of its own tells them apart.
	} else if status.State != "" {
		state += " " + reason
	}
	return fmt.Sprintf("%s: %s %s %s", state, condition, label, taint)
}

const (
	isVerified = "Verified Passed: True true -"
	// heldBack is the end of Says for a node that is not verified.
	heldBack = ": False false NoSchedule"
)

// Expect waits until Says of a node returns a text. Meanwhile it collects the garbage of benchmarks that may be deleted.
func (w *World) Expect(ctx context.Context, node, says string, garbage ...*v1alpha1.LatencyBenchmark) {
	GinkgoHelper()
	Eventually(func() string {
		for _, b := range garbage {
			w.collectGarbage(ctx, b)
		}
		return w.Says(ctx, node)
	}).Should(Equal(says), func() string {
		return fmt.Sprintf("%+v", w.Verification(ctx, node).Status)
	})
}

// Annotate annotates a node's verification as users do.
func (w *World) Annotate(ctx context.Context, node, key, value string) {
	GinkgoHelper()
	v := w.Verification(ctx, node)
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, key, value))
	Expect(k8s.Patch(ctx, v, patch)).To(Succeed())
}

// History returns a node's results, newest first, as "name outcome reason".
func (w *World) History(ctx context.Context, node string) []string {
	GinkgoHelper()
	var all []string
	for _, r := range w.Verification(ctx, node).Status.History {
		all = append(all, fmt.Sprintf("%s %s %s", strings.TrimPrefix(r.Benchmark, w.Namespace+"-"+node), r.Outcome, r.Reason))
	}
	return all
}

// Benchmarks returns the names of a node's existing benchmarks, without their common prefix.
func (w *World) Benchmarks(ctx context.Context, node string) []string {
	GinkgoHelper()
	list := &v1alpha1.LatencyBenchmarkList{}
	Expect(k8s.List(ctx, list, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelNode: node})).To(Succeed())
	var all []string
	for _, b := range list.Items {
		all = append(all, strings.TrimPrefix(b.Name, w.Namespace+"-"+node))
	}
	return all
}

// Accepted returns the names of the accepted benchmark and of the first benchmark of the reference.
func (w *World) Accepted(ctx context.Context, node string) string {
	GinkgoHelper()
	status := w.Verification(ctx, node).Status
	accepted, first := "none", "none"
	if status.Accepted != nil {
		accepted = strings.TrimPrefix(status.Accepted.Benchmark, w.Namespace+"-"+node)
	}
	if len(status.Reference) > 0 {
		first = strings.TrimPrefix(status.Reference[0].Benchmark, w.Namespace+"-"+node)
	}
	return accepted + " since " + first
}

// Benchmark returns a benchmark of a node by its number.
func (w *World) Benchmark(node string, number int) *v1alpha1.LatencyBenchmark {
	return &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: fmt.Sprintf("%s-%s-%d", w.Namespace, node, number)}}
}

// SamplesFrom changes the round trips that agents measure: from returns the first sample of a benchmark's runs.
func (w *World) SamplesFrom(from func(b *v1alpha1.LatencyBenchmark) int64) {
	w.Kubelet.Agents(func(d *result.Document) {
		b := &v1alpha1.LatencyBenchmark{}
		name := d.Run[:strings.LastIndex(d.Run, "-")]
		if err := k8s.Get(context.Background(), types.NamespacedName{Namespace: w.Namespace, Name: name}, b); err != nil {
			// The benchmark was deleted meanwhile, and its results will not be read.
			return
		}
		for i := range d.Cells {
			var err error
			if d.Cells[i].Histogram, err = histogramFrom(from(b)); err != nil {
				panic(err)
			}
		}
	})
}

// SlowNode doubles the latency of every run with a node at one of its ends.
func (w *World) SlowNode(node string) {
	w.SamplesFrom(func(b *v1alpha1.LatencyBenchmark) int64 {
		if p := b.Status.Pair; p != nil && (p.ClientNode == node || p.ServerNode == node) {
			return 20_000
		}
		return 10_000
	})
}

// Pause prevents the agents of a run from reporting their results until goOn is called. wait returns when the agents wait.
func (w *World) Pause(run string) (wait, goOn func()) {
	reached, going := make(chan struct{}), make(chan struct{})
	reach, release := sync.OnceFunc(func() { close(reached) }), sync.OnceFunc(func() { close(going) })
	w.Kubelet.mu.Lock()
	before := w.Kubelet.agents
	w.Kubelet.mu.Unlock()
	w.Kubelet.Agents(func(d *result.Document) {
		if d.Run == run {
			reach()
			<-going
		}
		if before != nil {
			before(d)
		}
	})
	DeferCleanup(release)
	return func() { GinkgoHelper(); Eventually(reached).Should(BeClosed()) }, release
}

// marks holds the condition, label and taint of one version of a Node. Each is "" while it holds the node back or is absent. Otherwise,
// it is the value that lets the node in.
type marks struct {
	version                 string
	kernel                  string
	condition, label, taint string
}

// marksOf returns the marks of a Node.
func marksOf(n *corev1.Node) marks {
	m := marks{version: n.ResourceVersion, kernel: n.Status.NodeInfo.KernelVersion, taint: "untainted"}
	for _, c := range n.Status.Conditions {
		if c.Type == v1alpha1.NodeConditionVerified && c.Status == corev1.ConditionTrue {
			m.condition = "True"
		}
	}
	if n.Labels[v1alpha1.NodeLabelVerified] == "true" {
		m.label = "true"
	}
	for _, t := range n.Spec.Taints {
		if t.Key == v1alpha1.NodeTaintUnverified {
			m.taint = ""
		}
	}
	return m
}

// LetIn watches every version of a Node, and of its hold pods, from now on. found returns the changes by which a version lets the
// node in (by its condition, label or taint, or because a hold pod reports it as verified) and the version before did not. A Node
// that is deleted and created again is another Node.
func (w *World) LetIn(ctx context.Context, node string) (found func() []string) {
	GinkgoHelper()
	nodes, err := k8s.Watch(context.WithoutCancel(ctx), &corev1.NodeList{}, client.MatchingFields{"metadata.name": node})
	Expect(err).NotTo(HaveOccurred())
	pods, err := k8s.Watch(context.WithoutCancel(ctx), &corev1.PodList{}, client.InNamespace(w.Namespace),
		client.MatchingLabels{v1alpha1.LabelHold: "true", v1alpha1.LabelNode: node})
	Expect(err).NotTo(HaveOccurred())
	var group sync.WaitGroup
	var ofNode, ofPods []string
	end := fmt.Sprint("end-", time.Now().UnixNano())
	group.Go(func() {
		var before *marks
		for event := range nodes.ResultChan() {
			n, ok := event.Object.(*corev1.Node)
			if !ok {
				continue
			}
			if event.Type == watch.Deleted {
				before = nil
				continue
			}
			now := marksOf(n)
			if before != nil && (now.condition > before.condition || now.label > before.label || now.taint > before.taint) {
				ofNode = append(ofNode, fmt.Sprintf("from %+v to %+v", *before, now))
			}
			if before = &now; n.Annotations[end] != "" {
				return
			}
		}
	})
	group.Go(func() {
		held := false
		for event := range pods.ResultChan() {
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				continue
			}
			verified := pod.Labels[v1alpha1.NodeLabelVerified] == "true" || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == v1alpha1.NodeConditionVerified && c.Status == corev1.ConditionTrue
			})
			if held && verified {
				ofPods = append(ofPods, fmt.Sprintf("hold pod %s, version %s, says that its node is verified", pod.Name, pod.ResourceVersion))
			}
			held = held || !verified
		}
	})
	DeferCleanup(func() { nodes.Stop(); pods.Stop() })
	return func() []string {
		// When the watch sees this version of the Node, it has seen all earlier ones.
		w.ChangeNode(ctx, node, func(n *corev1.Node) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, end, "true") })
		pods.Stop()
		group.Wait()
		return append(ofNode, ofPods...)
	}
}

// Stays checks that a node's state does not change however long the controllers wait: it puts the clock forward by more than any of
// their intervals and time limits, and makes them reconcile the node after each step. No version of the Node in between may let it
// in.
func (w *World) Stays(ctx context.Context, node, says string) {
	GinkgoHelper()
	defer w.Clock.ahead.Store(w.Clock.ahead.Load())
	letIn := w.LetIn(ctx, node)
	for range 4 {
		w.Look(ctx, node, 10*time.Minute)
		Expect(w.Says(ctx, node)).To(Equal(says))
	}
	Expect(letIn()).To(BeEmpty())
}

// Look puts the clock forward, and returns when the controllers of gates have reconciled the node since. It wakes them twice,
// because the first reconcile that ends may have started before the clock was put forward.
func (w *World) Look(ctx context.Context, node string, by time.Duration) {
	GinkgoHelper()
	for range 2 {
		gates, verifications := reconciles("latencygate"), reconciles("latencyverification")
		w.Pass(ctx, node, by)
		Eventually(reconciles).WithArguments("latencygate").Should(BeNumerically(">", gates))
		Eventually(reconciles).WithArguments("latencyverification").Should(BeNumerically(">", verifications))
		by = 0
	}
}

// Pass puts the clock forward and changes a label of a Node, which wakes its verifications and all gates.
func (w *World) Pass(ctx context.Context, node string, by time.Duration) {
	GinkgoHelper()
	w.Clock.ahead.Add(int64(by))
	w.ChangeNode(ctx, node, func(n *corev1.Node) {
		metav1.SetMetaDataLabel(&n.ObjectMeta, "test.tailgate.dev/woken", fmt.Sprint(time.Now().UnixNano()))
	})
}

// refusals returns the events about refused acceptances of a verification.
func (w *World) refusals(ctx context.Context, node string) []string {
	GinkgoHelper()
	list := &eventsv1.EventList{}
	Expect(k8s.List(ctx, list)).To(Succeed())
	var all []string
	for _, e := range list.Items {
		if e.Reason == v1alpha1.ReasonAcceptRefused && e.Regarding.Name == v1alpha1.VerificationName(w.Namespace, node) {
			all = append(all, e.Note)
		}
	}
	return all
}

// collectGarbage deletes the pods of a deleted benchmark, as the garbage collector does, which does not run here: a pod may be
// created while its benchmark is deleted.
func (w *World) collectGarbage(ctx context.Context, b *v1alpha1.LatencyBenchmark) {
	GinkgoHelper()
	if apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(b), b.DeepCopy())) {
		Expect(k8s.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelBenchmark: b.Name}, client.GracePeriodSeconds(0))).To(Succeed())
	}
}

// gateSays returns a condition of a gate as text.
func gateSays(ctx context.Context, g *v1alpha1.LatencyGate, conditionType string) string {
	GinkgoHelper()
	current := &v1alpha1.LatencyGate{}
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(g), current)).To(Succeed())
	c := meta.FindStatusCondition(current.Status.Conditions, conditionType)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

var _ = Describe("A gate", func() {
	It("holds back none of the nodes that it finds if it can measure none, and says so", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		for _, name := range []string{w.A, w.B} {
			w.ChangeNode(ctx, name, func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
			})
		}
		node := func(name string) *corev1.Node {
			n := &corev1.Node{}
			Expect(k8s.Get(ctx, client.ObjectKey{Name: name}, n)).To(Succeed())
			return n
		}
		created := node(w.B).CreationTimestamp.Time
		Eventually(time.Now).Should(BeTemporally(">", created.Add(time.Second))) // Times of creation are in whole seconds.
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace))
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionReady) }).Should(And(HavePrefix("False CannotSettle: none of the 2 nodes can be measured"), ContainSubstring("tainted with gpu")))
		list := &v1alpha1.LatencyVerificationList{}
		Expect(k8s.List(ctx, list, client.MatchingFields{"spec.gateName": g.Name})).To(Succeed())
		Expect(list.Items).To(BeEmpty())
		for _, name := range []string{w.A, w.B} {
			Expect(node(name).Labels).NotTo(HaveKey(v1alpha1.NodeLabelVerified))
		}
		By("it measures them when it can")
		for _, name := range []string{w.A, w.B} {
			w.ChangeNode(ctx, name, func(n *corev1.Node) { n.Spec.Taints = nil })
		}
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionPassed) }).WithTimeout(3 * time.Minute).Should(HavePrefix("True AllVerified"))
	})

	It("holds a node back until it has passed, and again when it has changed", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace))
		w.Expect(ctx, w.A, isVerified)
		w.Expect(ctx, w.B, isVerified)
		Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(Equal("True AllVerified: all 2 nodes are verified"))
		first := Get(ctx, w.Benchmark(w.A, 1))
		Expect(first.Spec.Criteria.Rules).To(HaveLen(1), "there was nothing to compare with")
		Expect(*first.Status.Pair).To(Equal(v1alpha1.Pair{ClientNode: w.A, ServerNode: w.B}))

		By("an upgrade of a node")
		w.Upgrade(ctx, w.A, "6.2.0")
		Eventually(func() string { return w.Says(ctx, w.A) }).Should(HaveSuffix(heldBack))
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("Unknown NotAllVerified: 1 of 2 nodes are not verified: " + w.A))
		w.Expect(ctx, w.A, isVerified)
		Expect(w.Accepted(ctx, w.A)).To(Equal("-2 since -1"))
		second := Get(ctx, w.Benchmark(w.A, 2))
		Expect(second.Spec.Criteria.Rules).To(HaveLen(2))
		Expect(second.Spec.Rounds).To(Equal(first.Spec.Rounds/2), "the first session of a reference has twice as many rounds")
		Expect(second.Spec.Criteria.Baseline.Accepted.GateName).To(Equal(g.Name))
		Expect(second.Status.Verdict.Baseline.Benchmark).To(Equal(first.Name))
		Expect(second.Spec.Criteria.IgnoreDifferences).To(BeEmpty(), "the peer is the same")
		status := w.Verification(ctx, w.A).Status
		Expect(status.Verified().Reason).To(Equal(v1alpha1.ReasonProvisional))
		Expect(status.Verified().Message).To(ContainSubstring("its reference is one boot"))
		Expect(second.Status.Verdict.Rules[1].Message).To(ContainSubstring("of 1 boots, which differ by SD"))
		Expect(status.Reference).To(HaveLen(2))
		Expect(status.Recent[1].Change).To(Equal(`Kernel was "6.1.0" and is "6.2.0"`))
		Eventually(func() int32 {
			current := &v1alpha1.LatencyGate{}
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(g), current)).To(Succeed())
			return current.Status.Spread[0].Differences
		}).Should(BeEquivalentTo(1))
		Expect(status.Identity).To(HaveKeyWithValue("Kernel", "6.2.0"))
		Expect(status.Accepted.Identity).To(Equal(status.Identity))
		Expect(w.Benchmarks(ctx, w.B)).To(ConsistOf("-1"), "the other node was left alone")

		By("looks at what has not changed: the controllers write nothing")
		version := w.Verification(ctx, w.A).ResourceVersion
		w.Stays(ctx, w.A, isVerified)
		Expect(w.Verification(ctx, w.A).ResourceVersion).To(Equal(version))
	})

	DescribeTable("on nodes with two threads on each core",
		func(ctx SpecContext, fullPCPUsOnly bool, cpus int32, says, line string) {
			w := NewGateWorld(ctx)
			w.Kubelet.Threads(fullPCPUsOnly)
			w.Start()
			w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Template.Spec.Placement.CPUs = cpus }))
			w.Expect(ctx, w.A, says)
			w.Expect(ctx, w.B, says)
			b := Get(ctx, w.Benchmark(w.A, 1))
			if line == "" {
				Expect(b.Status.Endpoints).To(BeEmpty())
				Expect(condition(ctx, b, v1alpha1.ConditionSucceeded)).To(ContainSubstring("set placement.cpus to a multiple of the CPUs of a core"))
				return
			}
			for _, e := range b.Status.Endpoints {
				Expect(e.Proof).To(ContainElement(And(HaveField("Check", v1alpha1.ProofSMTSiblings), WithTransform(func(l v1alpha1.ProofLine) string {
					return fmt.Sprintf("%s: %s", l.State, l.Found)
				}, Equal(line)))))
			}
		},
		Entry("releases a node whose pods get whole cores, with full-pcpus-only", true, int32(0), isVerified, "Proved: its own: core of CPUs 1,5"),
		Entry("releases a node whose pods get whole cores, without full-pcpus-only", false, int32(0), isVerified, "Proved: its own: core of CPUs 1,5"),
		Entry("holds back a node whose pods share a core", false, int32(1), "Inconclusive Inconclusive"+heldBack, "Failed: other containers may run there: core of CPUs 1,5"),
		Entry("holds back a node whose kubelet rejects the pods", true, int32(1), "Inconclusive BenchmarkFailed"+heldBack, ""),
	)

	It("marks a node before it measures it, and again when a user removes the marks", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Suspend = true }))
		w.Expect(ctx, w.A, "Unverified NewNode"+heldBack)
		Expect(w.Kubelet.Created()).To(BeEmpty())
		w.ChangeNode(ctx, w.A, func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
			delete(n.Labels, v1alpha1.NodeLabelVerified)
		})
		w.ChangeNodeStatus(ctx, w.A, func(n *corev1.Node) {
			for i := range n.Status.Conditions {
				n.Status.Conditions[i].Status = corev1.ConditionTrue
			}
		})
		w.Expect(ctx, w.A, "Unverified NewNode"+heldBack)
		n := &corev1.Node{}
		Expect(k8s.Get(ctx, types.NamespacedName{Name: w.A}, n)).To(Succeed())
		Expect(n.Spec.Taints).To(HaveLen(2), "those of others stay")
		Expect(n.Status.Conditions).To(HaveLen(3), "Ready, LatencyVerified and LatencyRegressed")
	})

	It("holds back a node that failed until it changes, a user requests a measurement, or a user accepts a result", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		manager := w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace))
		w.Expect(ctx, w.A, isVerified)
		w.Expect(ctx, w.B, isVerified)
		w.SlowNode(w.A)
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, "Failed Fail"+heldBack)
		Expect(w.Verification(ctx, w.A).Status.Verified().Message).To(MatchRegexp(`with peer %s, and there is no other to show which of them is slow: p90 .*10.\d+µs`, w.B))
		Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("False NodesFailed: 1 of 2 nodes failed: " + w.A))

		By("another manager")
		manager.Stop()
		w.Start()
		w.Stays(ctx, w.A, "Failed Fail"+heldBack)
		By("acceptances that cannot be")
		w.Annotate(ctx, w.A, v1alpha1.AnnotationAccept, w.Benchmark(w.A, 1).Name)
		Eventually(func() []string { return w.refusals(ctx, w.A) }).Should(ContainElement(ContainSubstring("before it changed")))
		for _, name := range []string{"", "perf/up", "100%", "nonsense!"} {
			w.Annotate(ctx, w.A, v1alpha1.AnnotationAccept, name)
			Eventually(func() *v1alpha1.AcceptRefusal { return w.Verification(ctx, w.A).Status.AcceptRefused }).Should(HaveValue(And(
				HaveField("Benchmark", name), HaveField("Message", ContainSubstring("not among")))))
			Eventually(func() map[string]string { return w.Verification(ctx, w.A).Annotations }).ShouldNot(HaveKey(v1alpha1.AnnotationAccept))
		}
		Eventually(func() []string { return w.refusals(ctx, w.A) }).Should(ContainElement(ContainSubstring("not among")))
		Expect(w.Says(ctx, w.A)).To(Equal("Failed Fail" + heldBack))

		By("a request, of which the cause is not cured")
		w.Annotate(ctx, w.A, v1alpha1.AnnotationVerify, "")
		Eventually(func() []string { return w.History(ctx, w.A) }).Should(Equal([]string{"-3 Fail Fail", "-2 Fail Fail", "-1 Pass Passed"}))
		w.Expect(ctx, w.A, "Failed Fail"+heldBack)
		By("an acceptance by hand")
		w.Annotate(ctx, w.A, v1alpha1.AnnotationAccept, w.Benchmark(w.A, 3).Name)
		w.Expect(ctx, w.A, "Verified AcceptedByHand: True true -")
		Expect(w.Accepted(ctx, w.A)).To(Equal("-3 since -3"))
		Eventually(func() map[string]string { return w.Verification(ctx, w.A).Annotations }).ShouldNot(HaveKey(v1alpha1.AnnotationAccept))

		By("a request when the cause is cured, in the new epoch")
		w.Kubelet.Agents(nil)
		w.Annotate(ctx, w.A, v1alpha1.AnnotationVerify, "please")
		Eventually(func() string { return w.Accepted(ctx, w.A) }).Should(Equal("-4 since -3"))
		w.Expect(ctx, w.A, isVerified)
		Eventually(func() []string { return w.Benchmarks(ctx, w.A) }).Should(ConsistOf("-2", "-3", "-4"), "the history is three long")
		By("looks at a benchmark whose baseline the history has deleted: its verdict stays")
		w.Patiently(ctx, w.Benchmark(w.A, 2), func() any { return condition(ctx, w.Benchmark(w.A, 2), v1alpha1.ConditionPassed) }, HavePrefix("False Fail"))
	})

	It("holds back a node with an Inconclusive verdict, and does not measure it again", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) {
			s.Template.Spec.Criteria.Rules = []v1alpha1.Rule{undecided}
			s.MaxUnverified = new(int32(1))
		}))
		w.Expect(ctx, w.A, "Inconclusive Inconclusive"+heldBack)
		Expect(w.History(ctx, w.A)).To(Equal([]string{"-1 Inconclusive Inconclusive"}))
		Expect(w.Verification(ctx, w.A).Status.Verified().Message).To(ContainSubstring("p99 needs 10000 to be judged"))
		w.Expect(ctx, w.B, "Inconclusive Inconclusive"+heldBack)
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("False TooManyUnverified: 2 of 2"))
		w.Stays(ctx, w.A, "Inconclusive Inconclusive"+heldBack)
	})

	It("asks a user to accept a baseline when it has no rule for the first result", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Template.Spec.Criteria.Rules = []v1alpha1.Rule{within("10%")} }))
		w.Expect(ctx, w.A, "Inconclusive NothingToCompare"+heldBack)
		name := w.Benchmark(w.A, 1).Name
		Expect(w.Verification(ctx, w.A).Status.Verified().Message).To(ContainSubstring("kubectl annotate latencyverifications.tailgate.dev %s tailgate.dev/accept=%s", v1alpha1.VerificationName(w.Namespace, w.A), name))
		w.Annotate(ctx, w.A, v1alpha1.AnnotationAccept, name)
		w.Expect(ctx, w.A, "Verified AcceptedByHand: True true -")
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, isVerified)
		Expect(w.Accepted(ctx, w.A)).To(Equal("-2 since -1"))
	})

	It("does not let small losses add up", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, isVerified)
		// 3 % more each time is within the tolerance of 10 % and what two boots may differ; 6 % in all is not, although it is within the
		// tolerance, and further from it than 3 % is from the last accepted result.
		w.SamplesFrom(func(b *v1alpha1.LatencyBenchmark) int64 {
			switch b.Name {
			case w.Benchmark(w.A, 2).Name:
				return 10_300
			case w.Benchmark(w.A, 3).Name:
				return 10_800
			}
			return 10_000
		})
		w.Upgrade(ctx, w.A, "6.2.0")
		Eventually(func() string { return w.Accepted(ctx, w.A) }).Should(Equal("-2 since -1"))
		w.Upgrade(ctx, w.A, "6.3.0")
		w.Expect(ctx, w.A, "Inconclusive Inconclusive"+heldBack)
		Expect(w.Verification(ctx, w.A).Status.Verified().Message).To(ContainSubstring("of 2 boots, which differ by SD"))
		Expect(w.Accepted(ctx, w.A)).To(Equal("-2 since -1"))
	})

	It("distinguishes a slow node from its peer when all are new", func(ctx SpecContext) {
		w := NewGateWorld(ctx, "c")
		c := w.Namespace + "-c"
		w.SlowNode(w.B)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace))
		// Node a is measured with b, the slow node, first, and then with c.
		w.Expect(ctx, w.A, isVerified)
		w.Expect(ctx, c, isVerified)
		w.Expect(ctx, w.B, "Failed Fail"+heldBack)
		Expect(w.History(ctx, w.A)).To(Equal([]string{"-2 Pass Passed", "-1 Fail SecondPeer"}))
		Expect(w.Verification(ctx, w.A).Status.Accepted.Peer).To(Equal(c))
		Expect(w.History(ctx, w.B)).To(Equal([]string{"-2 Fail Fail", "-1 Fail SecondPeer"}))
	})

	It("forgets a deleted node and its results after spec.releaseAfter", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace))
		w.Expect(ctx, w.A, isVerified)
		w.Expect(ctx, w.B, isVerified)
		uid := w.Verification(ctx, w.A).UID
		w.SlowNode(w.A)
		Expect(k8s.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.A}})).To(Succeed())
		Eventually(func() v1alpha1.VerificationState { return w.Verification(ctx, w.A).Status.State }).Should(Equal(v1alpha1.VerificationUnverified))
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(Equal("True AllVerified: all 1 nodes are verified"))
		w.Clock.ahead.Add(int64(61 * time.Minute))
		w.Annotate(ctx, w.A, "test.tailgate.dev/woken", "")
		Eventually(func() types.UID { return w.Verification(ctx, w.A).UID }).Should(BeEmpty())
		w.Clock.ahead.Store(0)
		// No garbage collector deletes the benchmark here. The benchmark of the new node is still another one.
		w.AddGateNode(ctx, w.A)
		w.Expect(ctx, w.A, "Failed Fail"+heldBack)
		Expect(w.Verification(ctx, w.A).UID).NotTo(Equal(uid))
		Expect(w.Accepted(ctx, w.A)).To(Equal("none since none"))
	})

	DescribeTable("starts again with a Node that was deleted and created while no manager ran,",
		func(ctx SpecContext, machine string, accepted string, benchmarks ...string) {
			w := NewGateWorld(ctx)
			w.ChangeNodeStatus(ctx, w.A, func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = "uuid-1" })
			manager := w.Start()
			w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
			w.Expect(ctx, w.A, isVerified)
			manager.Stop()
			Expect(k8s.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.A}})).To(Succeed())
			w.AddGateNode(ctx, w.A)
			w.ChangeNodeStatus(ctx, w.A, func(n *corev1.Node) { n.Status.NodeInfo.SystemUUID = machine })
			w.Start()
			Eventually(func() string { return w.Accepted(ctx, w.A) }).Should(Equal(accepted))
			w.Expect(ctx, w.A, isVerified)
			Eventually(func() []string { return w.Benchmarks(ctx, w.A) }).Should(ConsistOf(benchmarks))
		},
		Entry("of another machine, without the results of the other", "uuid-2", "-2 since -2", "-2"),
		Entry("of the same machine, with its results", "uuid-1", "-2 since -1", "-1", "-2"),
	)

	It("leaves nothing on nodes when it is deleted", func(ctx SpecContext) {
		w := NewGateWorld(ctx, "c")
		w.Start()
		w.SlowNode(w.A)
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.HoldPod = &v1alpha1.GateHoldPod{} }))
		w.Expect(ctx, w.A, "Failed Fail"+heldBack)
		w.Expect(ctx, w.B, isVerified)
		Expect(k8s.Delete(ctx, g)).To(Succeed())
		w.Expect(ctx, w.A, ": - - -")
		for _, name := range []string{w.B, w.Namespace + "-c"} {
			Eventually(func() string { return w.Says(ctx, name) }).Should(HaveSuffix(": - - -"))
		}
		Eventually(func() bool { return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(g), g)) }).Should(BeTrue())
	})

	It("keeps a budget over the hold pods, which follows the number of nodes, and leaves that of another owner alone", func(ctx SpecContext) {
		w := NewGateWorld(ctx, "c")
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) {
			s.Enforcement.HoldPod = &v1alpha1.GateHoldPod{Budget: &v1alpha1.GateBudget{}}
		}))
		budget := &policyv1.PodDisruptionBudget{}
		name := client.ObjectKey{Namespace: w.Namespace, Name: "tailgate-hold-" + g.Name}
		least := func() string {
			if err := k8s.Get(ctx, name, budget); err != nil {
				return string(apierrors.ReasonForError(err))
			}
			return fmt.Sprintf("%s %s", budget.Spec.MinAvailable, *budget.Spec.UnhealthyPodEvictionPolicy)
		}
		By("one of three nodes may be drained")
		Eventually(least).Should(Equal("2 AlwaysAllow"))
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		Expect(err).NotTo(HaveOccurred())
		Eventually(func(g Gomega) {
			held := &corev1.PodList{}
			g.Expect(k8s.List(ctx, held, client.InNamespace(w.Namespace), client.MatchingLabelsSelector{Selector: selector})).To(Succeed())
			g.Expect(held.Items).To(HaveLen(3))
		}).Should(Succeed())
		By("a node leaves")
		w.ChangeNode(ctx, w.Namespace+"-c", func(n *corev1.Node) { delete(n.Labels, gateLabel) })
		Eventually(least).Should(Equal("1 AlwaysAllow"))

		change := func(budget *v1alpha1.GateBudget) {
			GinkgoHelper()
			Eventually(func() error {
				if err := k8s.Get(ctx, client.ObjectKeyFromObject(g), g); err != nil {
					return err
				}
				g.Spec.Enforcement.HoldPod.Budget = budget
				return k8s.Update(ctx, g)
			}).Should(Succeed())
		}
		By("the option is taken back")
		change(nil)
		Eventually(least).Should(Equal("NotFound"))
		By("another owner has a budget of this name")
		other := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
		other.Spec.MinAvailable, other.Spec.UnhealthyPodEvictionPolicy = new(intstr.FromInt32(7)), new(policyv1.IfHealthyBudget)
		Expect(k8s.Create(ctx, other)).To(Succeed())
		change(&v1alpha1.GateBudget{MaxUnavailable: 2})
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(ContainSubstring("exists and does not belong to this gate; delete it"))
		Expect(least()).To(Equal("7 IfHealthyBudget"))
		Expect(k8s.Delete(ctx, other)).To(Succeed())
		Eventually(least).WithTimeout(time.Minute).Should(Equal("0 AlwaysAllow"))
	})

	It("retains a node that loses its label, with its baselines, and continues when the label returns", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace))
		w.Expect(ctx, w.A, isVerified)
		w.Expect(ctx, w.B, isVerified)
		uid := w.Verification(ctx, w.A).UID
		label := func(value string) {
			w.ChangeNode(ctx, w.A, func(n *corev1.Node) {
				if n.Labels[gateLabel] = value; value == "" {
					delete(n.Labels, gateLabel)
				}
			})
		}
		retained := func() string {
			if r := w.Verification(ctx, w.A).Status.Retained; r != nil {
				return r.Reason
			}
			return ""
		}
		By("a verified node, which stays as it is")
		letIn := w.LetIn(ctx, w.A)
		label("")
		Eventually(retained).Should(Equal(v1alpha1.ReasonNotSelected))
		Expect(w.Says(ctx, w.A)).To(Equal(isVerified))
		By("an upgrade meanwhile, to a kernel that is slow")
		w.SlowNode(w.A)
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, "Unverified IdentityChanged"+heldBack)
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("Unknown NotAllVerified: 1 of 2"))
		for range 5 {
			w.Look(ctx, w.A, 11*time.Minute)
			Expect(w.Says(ctx, w.A)).To(Equal("Unverified IdentityChanged" + heldBack))
		}
		Expect(w.Verification(ctx, w.A).UID).To(Equal(uid))
		// Creation times of pods are those of the API server's clock.
		w.Clock.ahead.Store(0)
		By("the label, which comes back: the comparison has its baseline")
		label(w.Namespace)
		w.Expect(ctx, w.A, "Failed Fail"+heldBack)
		Expect(retained()).To(BeEmpty())
		second := Get(ctx, w.Benchmark(w.A, 2))
		Expect(second.Spec.Criteria.Rules).To(HaveLen(2))
		Expect(second.Status.Verdict.Baseline.Benchmark).To(Equal(w.Benchmark(w.A, 1).Name))
		Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
		By("a label that flaps")
		for range 5 {
			label("another")
			label(w.Namespace)
		}
		label("")
		Eventually(retained).Should(Equal(v1alpha1.ReasonNotSelected))
		w.Look(ctx, w.A, 50*time.Minute)
		Expect(w.Says(ctx, w.A)).To(Equal("Failed Fail" + heldBack))
		Expect(letIn()).To(BeEmpty())
		By("the end of the retention, which begins when the manager sees the last of the changes")
		Eventually(func() string {
			w.Pass(ctx, w.A, 11*time.Minute)
			return w.Says(ctx, w.A)
		}).Should(Equal(": - - -"))
	})

	It("holds back a node whose LatencyVerification is deleted, and releases one that it does not select", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.SlowNode(w.A)
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.NodeSelector.MatchLabels[gateLabel] = w.Namespace }))
		w.Expect(ctx, w.A, "Failed Fail"+heldBack)
		letIn := w.LetIn(ctx, w.A)
		old := w.Verification(ctx, w.A)
		Expect(k8s.Delete(ctx, old)).To(Succeed())
		Eventually(func() types.UID { return w.Verification(ctx, w.A).UID }).ShouldNot(BeElementOf(types.UID(""), old.UID))
		w.Expect(ctx, w.A, "Failed Fail"+heldBack)
		Expect(letIn()).To(BeEmpty())
		Expect(w.Accepted(ctx, w.A)).To(Equal("none since none"), "it had no accepted result, and began again")
		w.ChangeNode(ctx, w.A, func(n *corev1.Node) { delete(n.Labels, gateLabel) })
		Eventually(func() *v1alpha1.Retention { return w.Verification(ctx, w.A).Status.Retained }).ShouldNot(BeNil())
		Expect(k8s.Delete(ctx, w.Verification(ctx, w.A))).To(Succeed())
		w.Expect(ctx, w.A, ": - - -")
	})

	DescribeTable("hands its nodes over to the next gate, and no version of the Node lets it in:",
		func(ctx SpecContext, slow bool, replace func(ctx SpecContext, w *World, older *v1alpha1.LatencyGate)) {
			w := NewGateWorld(ctx)
			w.Start()
			if slow {
				w.SlowNode(w.A)
			}
			older := w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
			w.Expect(ctx, w.A, map[bool]string{true: "Failed Fail" + heldBack, false: isVerified}[slow])
			// Creation times have a resolution of a second.
			time.Sleep(time.Second)
			younger := MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Suspend = true })
			younger.Name = w.Namespace + "-younger"
			g := w.Gate(ctx, younger)
			Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix("False NodesTaken"))
			letIn := w.LetIn(ctx, w.A)
			replace(ctx, w, older)
			heir := &v1alpha1.LatencyVerification{}
			Eventually(func() (v1alpha1.VerificationState, error) {
				err := k8s.Get(ctx, types.NamespacedName{Name: v1alpha1.VerificationName(younger.Name, w.A)}, heir)
				return heir.Status.State, err
			}).Should(Equal(v1alpha1.VerificationUnverified))
			Eventually(func() string { return w.Says(ctx, w.A) }).Should(HaveSuffix(heldBack))
			// This is longer than the older gate retains the node.
			for range 8 {
				w.Look(ctx, w.A, 10*time.Minute)
				Expect(w.Says(ctx, w.A)).To(HaveSuffix(heldBack))
			}
			Expect(letIn()).To(BeEmpty())
		},
		Entry("of a failed node, when it is deleted", true, func(ctx SpecContext, _ *World, older *v1alpha1.LatencyGate) {
			Expect(k8s.Delete(ctx, older)).To(Succeed())
			Eventually(func() bool { return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(older), older)) }).Should(BeTrue())
		}),
		Entry("of a verified node, when it is deleted", false, func(ctx SpecContext, _ *World, older *v1alpha1.LatencyGate) {
			Expect(k8s.Delete(ctx, older)).To(Succeed())
			Eventually(func() bool { return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(older), older)) }).Should(BeTrue())
		}),
		Entry("of a failed node, when its selector is edited", true, func(ctx SpecContext, w *World, older *v1alpha1.LatencyGate) {
			Edit(ctx, older, func(older *v1alpha1.LatencyGate) {
				older.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{"test.tailgate.dev/none": ""}}
			})
			Eventually(func() string {
				if r := w.Verification(ctx, w.A).Status.Retained; r != nil {
					return r.Reason
				}
				return ""
			}).Should(Equal(v1alpha1.ReasonTaken))
		}),
	)

	It("runs hold pods that are Ready only on verified nodes", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement.HoldPod, s.Suspend = &v1alpha1.GateHoldPod{}, true }))
		holdPod := func() *corev1.Pod {
			GinkgoHelper()
			list := &corev1.PodList{}
			Expect(k8s.List(ctx, list, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelHold: "true", v1alpha1.LabelNode: w.A})).To(Succeed())
			if len(list.Items) == 0 {
				return nil
			}
			return &list.Items[0]
		}
		says := func() string {
			pod := holdPod()
			if pod == nil {
				return "not found"
			}
			for _, c := range pod.Status.Conditions {
				if c.Type == v1alpha1.NodeConditionVerified {
					return fmt.Sprintf("%s %s", c.Status, c.Reason)
				}
			}
			return ""
		}
		change := func(what func(*v1alpha1.LatencyGateSpec)) {
			GinkgoHelper()
			Edit(ctx, g, func(g *v1alpha1.LatencyGate) { what(&g.Spec) })
		}
		Eventually(says).Should(Equal("False Unverified"))
		pod := holdPod()
		Expect(pod.Spec.NodeName).To(Equal(w.A))
		Expect(pod.Spec.ReadinessGates).To(Equal([]corev1.PodReadinessGate{{ConditionType: v1alpha1.NodeConditionVerified}}))
		change(func(s *v1alpha1.LatencyGateSpec) { s.Suspend = false })
		Eventually(says).Should(Equal("True Verified"))
		probe := func() []string {
			current := holdPod()
			if current == nil {
				return nil
			}
			return current.Spec.Containers[0].ReadinessProbe.Exec.Command[1:]
		}
		Expect(probe()).To(Equal([]string{"verified", "BootID=boot-1 of " + w.A, "Kernel=6.1.0"}), "it compares what the container sees with what was verified")
		By("an upgrade")
		w.Upgrade(ctx, w.A, "6.2.0")
		Eventually(probe).Should(Equal([]string{"verified", "BootID=boot of 6.2.0 of " + w.A, "Kernel=6.2.0"}))
		Eventually(says).Should(Equal("True Verified"))
		By("a pod that is rejected, as under DiskPressure, again and again: each rest is twice as long")
		ends := func() types.UID {
			GinkgoHelper()
			var uid types.UID
			Eventually(func() error {
				pod := holdPod()
				if pod == nil || !pod.DeletionTimestamp.IsZero() {
					return errors.New("there is none")
				}
				uid = pod.UID
				pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted", "the node had DiskPressure"
				return k8s.Status().Update(ctx, pod)
			}).Should(Succeed())
			return uid
		}
		w.Clock.Stop()
		for count := int32(1); count <= 3; count++ {
			ends()
			Eventually(func() string {
				if s := w.Verification(ctx, w.A).Status.HoldPodSetback; s != nil {
					return fmt.Sprintf("%s %d", s.Reason, s.Count)
				}
				return ""
			}).Should(Equal(fmt.Sprintf("HoldPodEnded %d", count)))
			Eventually(holdPod).Should(BeNil())
			// Times in a status have a resolution of a second.
			rest := 10 * time.Second << (count - 1)
			w.Look(ctx, w.A, rest-2*time.Second)
			Expect(holdPod()).To(BeNil())
			w.Pass(ctx, w.A, 2*time.Second)
			Eventually(says).Should(Equal("True Verified"))
		}
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(MatchRegexp("^False HoldPodEnded: 1 nodes: pod .* ended: Evicted the node had DiskPressure"))
		Expect(w.Says(ctx, w.A)).To(Equal(isVerified))
		By("a gate that does not ask for it any more")
		change(func(s *v1alpha1.LatencyGateSpec) { s.Enforcement = v1alpha1.Enforcement{} })
		Eventually(says).Should(ContainSubstring("not found"))
		w.Expect(ctx, w.A, "Verified Passed: True - -")
	})

	It("does not take a node of an older gate", func(ctx SpecContext) {
		w := NewGateWorld(ctx, "c")
		c := w.Namespace + "-c"
		w.Start()
		older := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.NodeSelector.MatchLabels[nodeLabel] = w.A; s.Suspend = true }))
		Eventually(func() string { return gateSays(ctx, older, v1alpha1.ConditionOperational) }).Should(HavePrefix("False Suspended"))
		// Creation times have a resolution of a second.
		time.Sleep(time.Second)
		younger := MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Suspend = true })
		younger.Name = w.Namespace + "-younger"
		g := w.Gate(ctx, younger)
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix(
			fmt.Sprintf("False NodesTaken: LatencyGate %s has %s;", older.Name, w.A)))
		nodes := func(name string) []string {
			list := &v1alpha1.LatencyVerificationList{}
			Expect(k8s.List(ctx, list, client.MatchingFields{"spec.gateName": name})).To(Succeed())
			var all []string
			for _, v := range list.Items {
				all = append(all, v.Spec.NodeName)
			}
			return all
		}
		Eventually(nodes).WithArguments(g.Name).Should(ConsistOf(w.B, c))
		Expect(nodes(older.Name)).To(ConsistOf(w.A))
		Expect(k8s.Delete(ctx, older)).To(Succeed())
		Eventually(nodes).WithArguments(g.Name).Should(ConsistOf(w.A, w.B, c))
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix("False Suspended"))
		Eventually(func() string { return w.Says(ctx, w.A) }).Should(HaveSuffix(heldBack), "what is on the node is the younger's now")
	})

	It("is the baseline of any benchmark of the node, and neither a later acceptance nor a deletion changes the verdict", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		b := w.Create(ctx, MakeBenchmark(w.Namespace, "x").Rounds(6).On(w.A, w.B).Rule(within("10%")).AgainstGate(w.Namespace))
		By("no result yet, or one")
		w.Expect(ctx, w.A, isVerified)
		ExpectPassed(ctx, b, `^True Pass: .*over 6\+12 rounds`)
		first := Get(ctx, w.Benchmark(w.A, 1))
		baseline := &v1alpha1.VerdictBaseline{Gate: w.Namespace, Namespace: w.Namespace, Benchmark: first.Name, UID: string(first.UID)}
		settled := And(HaveField("Status.Verdict.Baseline", Equal(baseline)), HaveField("Status.Verdict.Outcome", v1alpha1.VerdictPass))
		Expect(Get(ctx, b)).To(settled)
		By("another acceptance")
		w.Upgrade(ctx, w.A, "6.2.0")
		Eventually(func() string { return w.Accepted(ctx, w.A) }).Should(Equal("-2 since -1"))
		w.Patiently(ctx, b, func() any { return Get(ctx, b) }, settled)
		By("the deletion of the baseline, and another benchmark of its name")
		Expect(k8s.Delete(ctx, first)).To(Succeed())
		w.Patiently(ctx, b, func() any { return Get(ctx, b) }, settled)
		w.Create(ctx, MakeBenchmark(w.Namespace, first.Name).Rounds(6).On(w.A, w.B).Suspended())
		w.Patiently(ctx, b, func() any { return Get(ctx, b) }, settled)
		By("other criteria, which need the baseline")
		setCriteria(ctx, b, func(s *v1alpha1.LatencyBenchmarkSpec) { s.Criteria.Rules = []v1alpha1.Rule{within("20%")} })
		ExpectPassed(ctx, b, "^Unknown BaselineMissing: .*"+first.Name+", does not exist")
		By("a node of which nothing was accepted, and a gate that there is not")
		reverse := w.Create(ctx, MakeBenchmark(w.Namespace, "y").Rounds(6).On(w.B, w.A).Rule(within("10%")).AgainstGate(w.Namespace))
		ExpectPassed(ctx, reverse, "^Unknown BaselineMissing: .*LatencyGate "+w.Namespace+", has no accepted result of the client's node")
	})

	It("names the reason why it cannot work", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Schedule = "0 0 31 2 *" }))
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(HavePrefix("False ScheduleInvalid: spec.schedule"))
		lost := MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) {
			s.Namespace, s.NodeSelector.MatchLabels = "there-is-none", map[string]string{gateLabel: "lost"}
		})
		lost.Name = w.Namespace + "-lost"
		for _, name := range []string{"x", "y"} {
			n := MakeNode(w.Namespace + "-" + name)
			n.Labels[gateLabel] = "lost"
			w.AddNode(ctx, n)
		}
		refused := w.Gate(ctx, lost)
		Eventually(func() string { return gateSays(ctx, refused, v1alpha1.ConditionOperational) }).Should(MatchRegexp(`^False BenchmarkRefused: \d nodes: .*"there-is-none" not found`))
	})

	It("measures by its schedule, one node at a time, and repeats a measurement with a date in the future", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		zone, err := time.LoadLocation("Asia/Kolkata")
		Expect(err).NotTo(HaveOccurred())
		// Half a day from now, because this spec puts the clock forward by hours, which must not make the schedule due.
		daily := fmt.Sprintf("0 %d * * *", time.Now().Add(12*time.Hour).In(zone).Hour())
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Schedule, s.TimeZone = daily, zone.String() }))
		measuredAt := func(node string, when time.Time) {
			GinkgoHelper()
			Eventually(func() error {
				v := w.Verification(ctx, node)
				v.Status.LastMeasurementTime = &metav1.Time{Time: when}
				return k8s.Status().Update(ctx, v)
			}).Should(Succeed())
		}
		w.Expect(ctx, w.A, isVerified)
		w.Expect(ctx, w.B, isVerified)
		w.Stays(ctx, w.A, isVerified)
		w.Stays(ctx, w.B, isVerified)
		Expect(w.Accepted(ctx, w.A) + w.Accepted(ctx, w.B)).To(Equal("-1 since -1-1 since -1"))
		By("yesterday's results, and a schedule that is older than they are")
		Eventually(func() error {
			if err := k8s.Get(ctx, client.ObjectKeyFromObject(g), g); err != nil {
				return err
			}
			g.Status.Schedule.StartTime = metav1.Time{Time: time.Now().Add(-72 * time.Hour)}
			return k8s.Status().Update(ctx, g)
		}).Should(Succeed())
		for _, node := range []string{w.A, w.B} {
			measuredAt(node, time.Now().Add(-25*time.Hour))
		}
		Eventually(func() int {
			both := 0
			for _, node := range []string{w.A, w.B} {
				if !strings.HasPrefix(w.Says(ctx, node), "Verified") {
					both++
				}
				Expect(w.Says(ctx, node)).To(Or(HavePrefix("Verified"), HavePrefix("Unverified ScheduleDue"), HavePrefix("Measuring")))
			}
			Expect(both).To(BeNumerically("<", 2), "the nodes take turns")
			return both
		}).Should(Equal(1))
		for _, node := range []string{w.A, w.B} {
			Eventually(func() string { return w.Accepted(ctx, node) }).Should(Equal("-2 since -1"))
			w.Expect(ctx, node, isVerified)
		}
		By("a result of a clock that had jumped")
		measuredAt(w.A, time.Now().Add(365*24*time.Hour))
		Eventually(func() string { return w.Accepted(ctx, w.A) }).Should(Equal("-3 since -1"))
		w.Expect(ctx, w.A, isVerified)
	})

	It("holds no full node for its schedule, and measures when pods end or only placeholders are in the way", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		daily := fmt.Sprintf("0 %d * * *", time.Now().Add(12*time.Hour).UTC().Hour())
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) { s.Schedule = daily }))
		nodes := []string{w.A, w.B}
		for _, node := range nodes {
			w.Expect(ctx, node, isVerified)
		}
		// fill takes all CPUs of both nodes.
		fill := func(name, class string) (free func()) {
			GinkgoHelper()
			var all []*corev1.Pod
			for _, node := range nodes {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name + "-" + node}, Spec: corev1.PodSpec{
					NodeName: node, PriorityClassName: class, Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
						Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("1Gi")},
					}}},
				}}
				Expect(k8s.Create(ctx, p)).To(Succeed())
				all = append(all, p)
			}
			return func() {
				GinkgoHelper()
				for _, p := range all {
					Expect(k8s.Delete(ctx, p, client.GracePeriodSeconds(0))).To(Succeed())
				}
			}
		}
		yesterday := func() {
			GinkgoHelper()
			Eventually(func() error {
				if err := k8s.Get(ctx, client.ObjectKeyFromObject(g), g); err != nil {
					return err
				}
				g.Status.Schedule.StartTime = metav1.Time{Time: time.Now().Add(-72 * time.Hour)}
				return k8s.Status().Update(ctx, g)
			}).Should(Succeed())
			for _, node := range nodes {
				Eventually(func() error {
					v := w.Verification(ctx, node)
					v.Status.LastMeasurementTime = &metav1.Time{Time: time.Now().Add(-25 * time.Hour)}
					return k8s.Status().Update(ctx, v)
				}).Should(Succeed())
			}
		}
		unplaced := func() int32 {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(g), g)).To(Succeed())
			return g.Status.Nodes.Unplaced
		}
		free := fill("app", "")
		yesterday()
		Eventually(unplaced).Should(BeEquivalentTo(2))
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionOperational) }).Should(And(
			HavePrefix("False NoRoom: 2 nodes are due by the schedule, keep their state"), ContainSubstring("/app-")))
		for _, node := range nodes {
			w.Stays(ctx, node, isVerified)
			Expect(w.Benchmarks(ctx, node)).To(ConsistOf("-1"), "nothing was created for it")
		}

		By("the pods end")
		free()
		w.Clock.ahead.Add(int64(6 * time.Minute))
		w.ChangeNode(ctx, w.A, func(n *corev1.Node) { n.Labels["look"] = "again" })
		for _, node := range nodes {
			Eventually(func() string { return w.Accepted(ctx, node) }).Should(Equal("-2 since -1"))
			w.Expect(ctx, node, isVerified)
		}
		Eventually(unplaced).Should(BeZero())

		By("placeholders fill the nodes")
		for _, o := range objectsOf(readSample("reserve.yaml", "tailgate-placeholder", w.Namespace, "namespace: gates", "namespace: "+w.Namespace)) {
			create(ctx, o)
		}
		free = fill("placeholder", w.Namespace)
		yesterday()
		for _, node := range nodes {
			Eventually(func() string { return w.Accepted(ctx, node) }).Should(Equal("-3 since -1"))
		}
		Expect(unplaced()).To(BeZero())
		free()
	})
})

// writes returns a death at a write of a verb to a matching object.
func writes(verb string, of func(client.Object) bool) death {
	return func(v string, object client.Object) bool { return v == verb && of(object) }
}

// inState returns a death at the status write that sets a node's state.
func inState(state v1alpha1.VerificationState) death {
	return writes("status", func(o client.Object) bool {
		v, ok := o.(*v1alpha1.LatencyVerification)
		return ok && v.Status.State == state
	})
}

var _ = Describe("A gate, sabotaged,", func() {
	isNode := func(o client.Object) bool { _, ok := o.(*corev1.Node); return ok }
	isBenchmark := func(o client.Object) bool { _, ok := o.(*v1alpha1.LatencyBenchmark); return ok }
	isGate := func(o client.Object) bool { _, ok := o.(*v1alpha1.LatencyGate); return ok }
	isVerification := func(o client.Object) bool { _, ok := o.(*v1alpha1.LatencyVerification); return ok }

	DescribeTable("verifies all nodes after the next manager starts, and none before, when the first one died",
		func(ctx SpecContext, dies death) {
			w := NewGateWorld(ctx)
			first := w.Start(dies)
			w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
			Eventually(first.client.dead.Load).Should(BeTrue())
			first.Stop()
			says := w.Says(ctx, w.A)
			Expect(strings.Contains(says, ": True") && !strings.HasPrefix(says, "Verified")).To(BeFalse(), says)
			Expect(strings.HasPrefix(says, "Verified")).To(Equal(len(w.History(ctx, w.A)) == 1), "nothing is verified that was not measured")
			w.Start()
			w.Expect(ctx, w.A, isVerified, w.Benchmark(w.A, 1))
			Expect(w.History(ctx, w.A)).To(HaveLen(1))
			Eventually(func() []string { return w.Benchmarks(ctx, w.A) }).Should(HaveLen(1), "the benchmark of which no status knew is deleted")
		},
		Entry("adding the finalizer", writes("patch", isGate)),
		Entry("creating a verification", writes("create", isVerification)),
		Entry("noting that a node is unverified", inState(v1alpha1.VerificationUnverified)),
		Entry("labelling and tainting a node", writes("patch", isNode)),
		Entry("setting a node's condition", writes("status", isNode)),
		Entry("creating a benchmark", writes("create", isBenchmark)),
		Entry("noting that a node is measured", inState(v1alpha1.VerificationMeasuring)),
		Entry("storing a result", stores),
		Entry("noting that a node is verified", inState(v1alpha1.VerificationVerified)),
		Entry("saying so on the node", func() death {
			verified := false
			return func(verb string, o client.Object) bool {
				if v, ok := o.(*v1alpha1.LatencyVerification); ok && v.Status.State == v1alpha1.VerificationVerified {
					verified = true
				}
				return verified && verb == "status" && isNode(o)
			}
		}()),
		Entry("writing its summary", writes("status", isGate)),
	)

	DescribeTable("never lets a slow node in, when its manager dies",
		func(ctx SpecContext, dies death) {
			w := NewGateWorld(ctx)
			var armed atomic.Bool
			first := w.Start(func(verb string, o client.Object) bool { return armed.Load() && dies(verb, o) })
			w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
			w.Expect(ctx, w.A, isVerified)
			w.SlowNode(w.A)
			letIn := w.LetIn(ctx, w.A)
			armed.Store(true)
			w.Upgrade(ctx, w.A, "6.2.0")
			Eventually(first.client.dead.Load).Should(BeTrue())
			first.Stop()
			w.Start()
			w.Expect(ctx, w.A, "Failed Fail"+heldBack, w.Benchmark(w.A, 2))
			Expect(letIn()).To(BeEmpty())
			Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
		},
		Entry("noting that it has changed", inState(v1alpha1.VerificationUnverified)),
		Entry("labelling and tainting it", writes("patch", isNode)),
		Entry("setting its condition", writes("status", isNode)),
		Entry("creating its benchmark", writes("create", isBenchmark)),
		Entry("noting that it is measured", inState(v1alpha1.VerificationMeasuring)),
		Entry("storing a result", stores),
		Entry("judging", notes(func(s v1alpha1.LatencyBenchmarkStatus) bool { return s.Verdict != nil })),
		Entry("noting that it failed", inState(v1alpha1.VerificationFailed)),
		Entry("saying so on the node", func() death {
			failed := false
			return func(verb string, o client.Object) bool {
				if v, ok := o.(*v1alpha1.LatencyVerification); ok && v.Status.State == v1alpha1.VerificationFailed {
					failed = true
				}
				return failed && verb == "status" && isNode(o)
			}
		}()),
	)

	// measuring waits until a node's benchmark measures. Pause keeps it in this state.
	measuring := func(ctx SpecContext, w *World, node string) {
		GinkgoHelper()
		Eventually(func() string { return w.Says(ctx, node) }).Should(HavePrefix("Measuring"))
	}

	It("measures again, at most three times, when a user deletes or edits its benchmark", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, isVerified)
		w.SlowNode(w.A)
		w.Upgrade(ctx, w.A, "6.2.0")
		By("a deletion")
		measuring(ctx, w, w.A)
		Expect(k8s.Delete(ctx, w.Benchmark(w.A, 2))).To(Succeed())
		By("rules that are loosened, so that it passes")
		Eventually(func() error {
			return k8s.Get(ctx, client.ObjectKeyFromObject(w.Benchmark(w.A, 3)), &v1alpha1.LatencyBenchmark{})
		}).Should(Succeed())
		setCriteria(ctx, w.Benchmark(w.A, 3), func(s *v1alpha1.LatencyBenchmarkSpec) {
			s.Criteria = &v1alpha1.Criteria{Rules: []v1alpha1.Rule{under("1s")}}
		})
		By("a deletion again")
		Eventually(func() error {
			return k8s.Get(ctx, client.ObjectKeyFromObject(w.Benchmark(w.A, 4)), &v1alpha1.LatencyBenchmark{})
		}).Should(Succeed())
		measuring(ctx, w, w.A)
		Expect(w.Verification(ctx, w.A).Status.Discarded).To(BeEquivalentTo(2))
		Expect(k8s.Delete(ctx, w.Benchmark(w.A, 4))).To(Succeed())
		w.Expect(ctx, w.A, "Inconclusive BenchmarkDeleted"+heldBack)
		Expect(w.History(ctx, w.A)).To(Equal([]string{"-1 Pass Passed"}))
		Eventually(func() []string { return w.Benchmarks(ctx, w.A) }).Should(ConsistOf("-1"))
	})

	It("neither waits for nor uses a benchmark of a user with the name of its next one", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.SlowNode(w.A)
		forged := MakeBenchmark(w.Namespace, w.Benchmark(w.A, 1).Name).Rounds(6).Rule(under("1s")).Free()
		w.Create(ctx, forged)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Template.Spec.Criteria.Rules = []v1alpha1.Rule{under("8us")} }))
		w.Expect(ctx, w.A, "Failed Fail"+heldBack)
		Expect(w.History(ctx, w.A)).To(Equal([]string{"-2 Fail Fail"}))
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(forged.Obj()), &v1alpha1.LatencyBenchmark{})).To(Succeed(), "it is not the gate's to delete")
	})

	It("compares with nothing when a user deletes or edits an accepted result", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, isVerified)
		accepted := Get(ctx, w.Benchmark(w.A, 1))
		stored := configMaps(ctx, accepted)
		Expect(k8s.Delete(ctx, &stored[0])).To(Succeed())
		Expect(k8s.Create(ctx, remade(stored[0], flipBit))).To(Succeed())
		Eventually(func() string { return w.Verification(ctx, w.A).Status.BaselineTrouble }).Should(ContainSubstring("stored results of LatencyBenchmark " + accepted.Name))
		Expect(w.Says(ctx, w.A)).To(Equal(isVerified), "for what it was verified for")
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, "Inconclusive BaselineResultsMissing"+heldBack)

		By("a benchmark that is deleted")
		Expect(k8s.Delete(ctx, accepted)).To(Succeed())
		Eventually(func() string { return w.Verification(ctx, w.A).Status.BaselineTrouble }).Should(ContainSubstring("was deleted"))
		w.Annotate(ctx, w.A, v1alpha1.AnnotationVerify, "")
		w.Expect(ctx, w.A, "Inconclusive BaselineMissing"+heldBack)
		By("an acceptance by hand")
		w.Annotate(ctx, w.A, v1alpha1.AnnotationAccept, w.Benchmark(w.A, 3).Name)
		w.Expect(ctx, w.A, "Verified AcceptedByHand: True true -")
		Eventually(func() string { return w.Verification(ctx, w.A).Status.BaselineTrouble }).Should(BeEmpty())
	})

	DescribeTable("never lets a slow node in when a stored result is, during the measurement,",
		func(ctx SpecContext, says string, sabotage func(ctx SpecContext, stored, fast corev1.ConfigMap)) {
			w := NewGateWorld(ctx)
			w.Start()
			w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
			w.Expect(ctx, w.A, isVerified)
			fast := configMaps(ctx, w.Benchmark(w.A, 1))[0]
			w.SlowNode(w.A)
			letIn := w.LetIn(ctx, w.A)
			wait, goOn := w.Pause(w.Benchmark(w.A, 2).Name + "-r3")
			w.Upgrade(ctx, w.A, "6.2.0")
			wait()
			stored := configMaps(ctx, w.Benchmark(w.A, 2))
			Expect(stored).To(HaveLen(2))
			sabotage(ctx, stored[0], fast)
			goOn()
			w.Expect(ctx, w.A, "Failed Fail"+heldBack)
			Expect(letIn()).To(BeEmpty())
			Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
		},
		Entry("deleted, and so measured again", "Failed Fail", func(ctx SpecContext, stored, _ corev1.ConfigMap) {
			Expect(k8s.Delete(ctx, &stored)).To(Succeed())
		}),
		Entry("edited, and so measured again", "Failed Fail", func(ctx SpecContext, stored, _ corev1.ConfigMap) {
			Expect(k8s.Delete(ctx, &stored)).To(Succeed())
			Expect(k8s.Create(ctx, remade(stored, flipBit))).To(Succeed())
		}),
		Entry("replaced by one of the same run, faster and whole, and so measured again", "Failed Fail", func(ctx SpecContext, stored, fast corev1.ConfigMap) {
			Expect(k8s.Delete(ctx, &stored)).To(Succeed())
			Expect(k8s.Create(ctx, remade(stored, func(cm *corev1.ConfigMap) {
				cm.BinaryData[result.KeyClient] = ofRun(fast.BinaryData[result.KeyClient], stored.Labels[v1alpha1.LabelRun])
				cm.BinaryData[result.KeyServer] = ofRun(fast.BinaryData[result.KeyServer], stored.Labels[v1alpha1.LabelRun])
			}))).To(Succeed())
		}),
	)

	It("compares with nothing when a user deletes an accepted result and creates its benchmark again", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, isVerified)
		w.SlowNode(w.A)
		again := Get(ctx, w.Benchmark(w.A, 1))
		Expect(k8s.Delete(ctx, again)).To(Succeed())
		// There is no garbage collector here.
		Expect(k8s.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelBenchmark: again.Name})).To(Succeed())
		// A benchmark as slow as the node is now, with all copyable fields of the gate's benchmark.
		again.ResourceVersion, again.UID, again.Status = "", "", v1alpha1.LatencyBenchmarkStatus{}
		again.Spec.Criteria.Rules = []v1alpha1.Rule{under("1s")}
		Expect(k8s.Create(ctx, again.DeepCopy())).To(Succeed())
		Eventually(func() bool {
			return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(again), &v1alpha1.LatencyBenchmark{}))
		}).Should(BeTrue(), "the gate deletes what belongs to it and is not needed")
		again.OwnerReferences = nil
		Expect(k8s.Create(ctx, again)).To(Succeed())
		ExpectPassed(ctx, again, "^True Pass")
		trouble := func() string { return w.Verification(ctx, w.A).Status.BaselineTrouble }
		// A benchmark of a user does not make the gate look again.
		Eventually(trouble).Should(ContainSubstring("was deleted"))
		// Only the absolute rule, which this gate no longer has, would detect that the node is slow.
		Edit(ctx, g, func(g *v1alpha1.LatencyGate) { g.Spec.Template.Spec.Criteria.Rules = []v1alpha1.Rule{within("10%")} })
		Eventually(trouble).Should(ContainSubstring("deleted and created again"))
		letIn := w.LetIn(ctx, w.A)
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, "Inconclusive BaselineMissing"+heldBack)
		Expect(w.Verification(ctx, w.A).Status.Verified().Message).To(ContainSubstring(again.Name + ", does not exist: another one has its name"))
		Expect(letIn()).To(BeEmpty())
	})

	It("judges no percentile that has too few samples", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		letIn := w.LetIn(ctx, w.A)
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) {
			s.Template.Spec.Criteria.Rules = []v1alpha1.Rule{{Metric: v1alpha1.MetricP999, Max: v1alpha1.Limit{Text: "1s"}}}
		}))
		w.Expect(ctx, w.A, "Inconclusive Inconclusive"+heldBack)
		Expect(w.Verification(ctx, w.A).Status.Verified().Message).To(ContainSubstring("samples"))
		Expect(letIn()).To(BeEmpty())
	})

	It("verifies no node with a slow peer when there is no other peer", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.SlowNode(w.B)
		w.Start()
		letIn := []func() []string{w.LetIn(ctx, w.A), w.LetIn(ctx, w.B)}
		g := w.Gate(ctx, MakeGate(w.Namespace))
		Eventually(func() string { return gateSays(ctx, g, v1alpha1.ConditionPassed) }).Should(HavePrefix("False NodesFailed: 1 of 2 nodes failed"))
		// The node that was measured first has failed, so the other has no peer.
		failed, waits := w.A, w.B
		if w.Verification(ctx, w.B).Status.State == v1alpha1.VerificationFailed {
			failed, waits = waits, failed
		}
		w.Expect(ctx, failed, "Failed Fail"+heldBack)
		w.Expect(ctx, waits, "Unverified NewNode"+heldBack)
		w.Stays(ctx, failed, "Failed Fail"+heldBack)
		w.Stays(ctx, waits, "Unverified NewNode"+heldBack)
		for i := range letIn {
			Expect(letIn[i]()).To(BeEmpty())
		}
	})

	It("holds back a node that was deleted and created again while it was measured", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, isVerified)
		wait, goOn := w.Pause(w.Benchmark(w.A, 2).Name + "-r5")
		w.Upgrade(ctx, w.A, "6.2.0")
		wait()
		Expect(k8s.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.A}})).To(Succeed())
		w.SlowNode(w.A)
		w.AddGateNode(ctx, w.A)
		w.Upgrade(ctx, w.A, "6.2.0")
		letIn := w.LetIn(ctx, w.A)
		goOn()
		old := w.Benchmark(w.A, 2)
		Expect(client.IgnoreNotFound(k8s.Delete(ctx, old))).To(Succeed())
		w.Expect(ctx, w.A, "Failed Fail"+heldBack, old)
		Expect(letIn()).To(BeEmpty())
		Expect(w.Accepted(ctx, w.A)).To(Equal("-1 since -1"))
	})

	DescribeTable("never lets a slow node in, when the clock jumps",
		func(ctx SpecContext, jump time.Duration) {
			w := NewGateWorld(ctx)
			w.Start()
			w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Schedule = "@daily" }))
			w.Expect(ctx, w.A, isVerified)
			w.SlowNode(w.A)
			letIn := w.LetIn(ctx, w.A)
			wait, goOn := w.Pause(w.Benchmark(w.A, 2).Name + "-r3")
			w.Upgrade(ctx, w.A, "6.2.0")
			wait()
			w.Clock.ahead.Store(int64(jump))
			Wake(ctx, w.Benchmark(w.A, 2))
			if jump > 0 {
				// The attempt appears to have taken a year and is repeated. The next attempt is measured.
				Eventually(func() bool {
					active := Get(ctx, w.Benchmark(w.A, 2)).Status.Active
					return active != nil && active.Outcome != nil
				}).Should(BeTrue())
			}
			goOn()
			w.Expect(ctx, w.A, "Failed Fail"+heldBack)
			By("the clock set right")
			w.Clock.ahead.Store(0)
			w.Annotate(ctx, w.A, v1alpha1.AnnotationVerify, "")
			Eventually(func() []string { return w.History(ctx, w.A) }).Should(HaveLen(3))
			w.Expect(ctx, w.A, "Failed Fail"+heldBack)
			Expect(letIn()).To(BeEmpty())
		},
		Entry("a year forwards", 365*24*time.Hour),
		Entry("a year backwards", -365*24*time.Hour),
	)

	It("does not compare firmware variants", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		firmware := func(variant string) func(*result.Document) {
			return func(d *result.Document) { d.Evidence.Facts["nic.firmware-variant"] = variant }
		}
		w.Kubelet.Agents(firmware("full-feature"))
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B).With(func(s *v1alpha1.LatencyGateSpec) { s.Template.Spec.Criteria.IgnoreDifferences = []string{"kernel.*"} }))
		w.Expect(ctx, w.A, isVerified)
		w.Kubelet.Agents(firmware("ultra-low-latency"))
		w.Upgrade(ctx, w.A, "6.2.0")
		w.Expect(ctx, w.A, "Inconclusive Inconclusive"+heldBack)
		Expect(w.Verification(ctx, w.A).Status.Verified().Message).To(ContainSubstring(`nic.firmware-variant "full-feature", then "ultra-low-latency"`))
	})

	It("measures a node again that changes while it is measured", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, isVerified)
		w.Upgrade(ctx, w.A, "6.2.0")
		measuring(ctx, w, w.A)
		w.Upgrade(ctx, w.A, "6.3.0")
		Eventually(func() string {
			w.collectGarbage(ctx, w.Benchmark(w.A, 2))
			return w.Accepted(ctx, w.A)
		}).Should(Equal("-3 since -1"))
		w.Expect(ctx, w.A, isVerified)
		Expect(w.Verification(ctx, w.A).Status.Accepted.Identity).To(HaveKeyWithValue("Kernel", "6.3.0"))
		Eventually(func() []string { return w.Benchmarks(ctx, w.A) }).Should(ConsistOf("-1", "-3"))
	})

	// TAILGATE_OUTAGE is the duration of the outage. The shorter default finds the same errors.
	It("holds nodes back while the API server does not answer, and continues afterwards", func(ctx SpecContext) {
		outage := 3 * time.Second
		if text := os.Getenv("TAILGATE_OUTAGE"); text != "" {
			var err error
			outage, err = time.ParseDuration(text)
			Expect(err).NotTo(HaveOccurred())
		}
		w := NewGateWorld(ctx)
		w.Start()
		w.Gate(ctx, MakeGate(w.Namespace).Alone(w.A, w.B))
		w.Expect(ctx, w.A, isVerified)
		w.Upgrade(ctx, w.A, "6.2.0")
		measuring(ctx, w, w.A)
		w.Outage.Store(true)
		letIn := w.LetIn(ctx, w.A)
		w.Upgrade(ctx, w.A, "6.3.0")
		time.Sleep(outage)
		Expect(letIn()).To(BeEmpty())
		Expect(w.Says(ctx, w.A)).To(HaveSuffix(heldBack))
		w.Outage.Store(false)
		began := time.Now()
		Eventually(func() string {
			w.collectGarbage(ctx, w.Benchmark(w.A, 2))
			return w.Accepted(ctx, w.A)
		}).WithTimeout(3*time.Minute + 2*outage).Should(Equal("-3 since -1"))
		w.Expect(ctx, w.A, isVerified)
		AddReportEntry(fmt.Sprintf("verified %s after an outage of %s", time.Since(began).Round(time.Second), outage))
		Expect(w.Verification(ctx, w.A).Status.Accepted.Identity).To(HaveKeyWithValue("Kernel", "6.3.0"))
	})

	It("waits for a node that is not ready, and continues when it is", func(ctx SpecContext) {
		w := NewGateWorld(ctx)
		w.Start()
		ready := func(status corev1.ConditionStatus) {
			w.ChangeNodeStatus(ctx, w.B, func(n *corev1.Node) {
				for i := range n.Status.Conditions {
					if n.Status.Conditions[i].Type == corev1.NodeReady {
						n.Status.Conditions[i].Status = status
					}
				}
			})
		}
		ready(corev1.ConditionFalse)
		g := w.Gate(ctx, MakeGate(w.Namespace))
		lines := func() []string {
			Expect(k8s.Get(ctx, client.ObjectKeyFromObject(g), g)).To(Succeed())
			var all []string
			for _, line := range g.Status.NotVerified {
				all = append(all, line.Message)
			}
			return all
		}
		Eventually(lines).Should(ConsistOf(HavePrefix("no other node with which it can be measured is usable now; "+w.B+": the node is not ready"), HavePrefix("the node is not ready")))
		ready(corev1.ConditionTrue)
		w.Expect(ctx, w.A, isVerified)
		w.Expect(ctx, w.B, isVerified)
	})
})

var _ = Describe("A rolling upgrade", func() {
	It("stops at the one slow node of ten, and does not disturb the others", func(ctx SpecContext) {
		var names []string
		for i := 3; i <= 10; i++ {
			names = append(names, fmt.Sprintf("n%02d", i))
		}
		w := NewGateWorld(ctx, names...)
		nodes := []string{w.A, w.B}
		for _, name := range names {
			nodes = append(nodes, w.Namespace+"-"+name)
		}
		bad := nodes[4]
		// The latencies are pseudo-random for each benchmark and depend only on its name. The bad node is slow with its new kernel.
		w.SamplesFrom(func(b *v1alpha1.LatencyBenchmark) int64 {
			draw := int64(crc32.ChecksumIEEE([]byte(b.Name)) % 400)
			if strings.HasPrefix(b.Name, w.Namespace+"-"+bad) && !strings.HasSuffix(b.Name, "-1") {
				return 13_000 + draw
			}
			return 9_800 + draw
		})
		w.Start()
		g := w.Gate(ctx, MakeGate(w.Namespace).With(func(s *v1alpha1.LatencyGateSpec) {
			s.MaxParallel, s.MaxUnverified = new(intstr.FromInt32(5)), new(int32(1))
		}))
		began := time.Now()
		line := func(format string, args ...any) {
			AddReportEntry(fmt.Sprintf("%5.1fs  %s", time.Since(began).Seconds(), fmt.Sprintf(format, args...)))
		}
		passed := func() string { return gateSays(ctx, g, v1alpha1.ConditionPassed) }
		Eventually(passed).WithTimeout(3 * time.Minute).Should(HavePrefix("True AllVerified"))
		line("%s", passed())

		upgraded := 0
		for _, node := range nodes {
			w.Upgrade(ctx, node, "6.2.0")
			line("upgraded %s", node)
			upgraded++
			// The tool waits for the node, and stops when the gate has failed.
			Eventually(func() string { return w.Says(ctx, node) }).Should(HaveSuffix(heldBack))
			Eventually(func() string {
				if strings.HasPrefix(passed(), "False") {
					return "stop"
				}
				return w.Says(ctx, node)
			}).Should(Or(Equal("stop"), Equal(isVerified)))
			line("%s: %s", node, w.Says(ctx, node))
			if strings.HasPrefix(passed(), "False") {
				line("stopped: %s", passed())
				break
			}
		}
		Expect(upgraded).To(Equal(5))
		Expect(passed()).To(HavePrefix("False NodesFailed: 1 of 10 nodes failed: " + bad))
		for i, node := range nodes {
			switch {
			case node == bad:
				w.Expect(ctx, node, "Failed Fail"+heldBack)
			case i < upgraded:
				Expect(w.Says(ctx, node)).To(Equal(isVerified))
				Expect(w.Accepted(ctx, node)).To(Equal("-2 since -1"))
			default:
				Expect(w.Says(ctx, node)).To(Equal(isVerified))
				Expect(w.Accepted(ctx, node)).To(Equal("-1 since -1"), "it was left alone")
			}
		}
	})
})

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
