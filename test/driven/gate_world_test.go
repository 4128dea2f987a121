package driven

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// The agents of these specs measure round trips from 10000 to 11999 ns in every round, with a p90 of 5.9 µs as half RTT, unless a
// spec changes that.

// Gate creates a gate of the world's nodes.
func (w *World) Gate(ctx context.Context, g *GateBuilder) *v1alpha1.LatencyGate {
	GinkgoHelper()
	created := g.Obj()
	Expect(k8s.Create(ctx, created)).To(Succeed())
	return created
}

// NewGateWorld returns a world whose nodes its gate selects, and whose pods run without the spec.
func NewGateWorld(ctx context.Context, more ...string) *World {
	GinkgoHelper()
	w := NewWorld(ctx)
	w.Kubelet.Auto()
	for _, name := range []string{w.A, w.B} {
		w.ChangeNode(ctx, name, func(n *corev1.Node) { n.Labels[GateLabel] = w.Namespace })
		w.ChangeNodeStatus(ctx, name, Identified)
	}
	for _, name := range more {
		w.AddGateNode(ctx, w.Namespace+"-"+name)
	}
	return w
}

// AddGateNode creates a node of the gate.
func (w *World) AddGateNode(ctx context.Context, name string) {
	GinkgoHelper()
	n := MakeNode(name)
	n.Labels[GateLabel] = w.Namespace
	Identified(&n.Node)
	w.AddNode(ctx, n)
}

// ChangeNode changes a node as a user would.
func (w *World) ChangeNode(ctx context.Context, name string, change func(*corev1.Node)) {
	GinkgoHelper()
	Edit(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, change)
}

// ChangeNodeStatus changes the status that a node's kubelet reports.
func (w *World) ChangeNodeStatus(ctx context.Context, name string, change func(*corev1.Node)) {
	GinkgoHelper()
	n := Get(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	change(n)
	Expect(k8s.Status().Update(ctx, n)).To(Succeed())
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

// Expect waits until Says of a node returns a text.
func (w *World) Expect(ctx context.Context, node, says string) {
	GinkgoHelper()
	eventually(func() string { return w.Says(ctx, node) }).Should(Equal(says), func() string {
		return fmt.Sprintf("%+v", w.Verification(ctx, node).Status)
	})
}

// AskVerify requests a new measurement of a node, as users do.
func (w *World) AskVerify(ctx context.Context, node string) {
	GinkgoHelper()
	w.ask(ctx, node, map[string]any{"verify": by("alice")})
}

// AskAccept requests that a result of a node is accepted, as users do.
func (w *World) AskAccept(ctx context.Context, node, benchmark string) {
	GinkgoHelper()
	w.ask(ctx, node, map[string]any{"accept": v1alpha1.AcceptRequest{Benchmark: benchmark, UserRequest: by("alice")}})
}

func by(user string) v1alpha1.UserRequest {
	return v1alpha1.UserRequest{RequestedBy: user, RequestTime: time.Now().Format(time.RFC3339Nano)}
}

func (w *World) ask(ctx context.Context, node string, spec map[string]any) {
	GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"spec": spec})
	Expect(err).NotTo(HaveOccurred())
	Expect(k8s.Patch(ctx, w.Verification(ctx, node), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
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

// SlowNode doubles the latency of every run with a node at one of its ends.
func (w *World) SlowNode(node string) {
	w.SamplesFrom(func(b *v1alpha1.LatencyBenchmark) int64 {
		if p := b.Status.Pair; p != nil && (p.ClientNode == node || p.ServerNode == node) {
			return 20_000
		}
		return 10_000
	})
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
	var ofNode, ofPods []string
	follow(w, func(before, after *corev1.Node) {
		if before == nil || after == nil || after.Name != node {
			return
		}
		was, now := marksOf(before), marksOf(after)
		if now.condition > was.condition || now.label > was.label || now.taint > was.taint {
			ofNode = append(ofNode, fmt.Sprintf("from %+v to %+v", was, now))
		}
	})
	held := false
	see := func(pod *corev1.Pod) {
		if pod == nil || pod.Labels[v1alpha1.LabelHold] != "true" || pod.Labels[v1alpha1.LabelNode] != node {
			return
		}
		verified := pod.Labels[v1alpha1.NodeLabelVerified] == "true" || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == v1alpha1.NodeConditionVerified && c.Status == corev1.ConditionTrue
		})
		if held && verified {
			ofPods = append(ofPods, fmt.Sprintf("hold pod %s, version %s, says that its node is verified", pod.Name, pod.ResourceVersion))
		}
		held = held || !verified
	}
	present := &corev1.PodList{}
	Expect(k8s.List(ctx, present, client.InNamespace(w.Namespace))).To(Succeed())
	for i := range present.Items {
		see(&present.Items[i])
	}
	follow(w, func(_, after *corev1.Pod) { see(after) })
	return func() []string { return append(ofNode, ofPods...) }
}

// follow calls see with each change of the objects of a type from now on: before is nil for a new one, and after for a deleted one.
func follow[O client.Object](w *World, see func(before, after O)) {
	w.Store.watch(func(c change) {
		var before, after O
		_, ok := any(before), false
		if c.before != nil {
			before, ok = c.before.copy().(O)
		}
		if c.after != nil {
			after, ok = c.after.copy().(O)
		}
		if ok {
			see(before, after)
		}
	})
}

// Stays checks that a node's state does not change however long the controllers wait: longer than any of their intervals and time
// limits. No version of the Node in between may let it in.
func (w *World) Stays(ctx context.Context, node, says string) {
	GinkgoHelper()
	letIn := w.LetIn(ctx, node)
	w.Settle()
	consistently(func() string { return w.Says(ctx, node) }, 40*time.Minute).Should(Equal(says))
	Expect(letIn()).To(BeEmpty())
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
