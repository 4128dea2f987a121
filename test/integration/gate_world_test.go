package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// The agents of these specs measure round trips from 10000 to 11999 ns in every round, with a p90 of 5.9 µs as half RTT, unless a
// spec changes that.

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
		w.ChangeNode(ctx, name, func(n *corev1.Node) { n.Labels[GateLabel] = w.Namespace })
		w.ChangeNodeStatus(ctx, name, Identified)
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

// AskVerify requests a new measurement of a node, as users do.
func (w *World) AskVerify(ctx context.Context, node string) {
	GinkgoHelper()
	w.ask(ctx, node, map[string]any{"verify": by(username(ctx))})
}

// AskAccept requests that a result of a node is accepted, as users do.
func (w *World) AskAccept(ctx context.Context, node, benchmark string) {
	GinkgoHelper()
	w.ask(ctx, node, map[string]any{"accept": v1alpha1.AcceptRequest{Benchmark: benchmark, UserRequest: by(username(ctx))}})
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

// username returns the name of the user who runs the specs.
func username(ctx context.Context) string {
	GinkgoHelper()
	self := &authenticationv1.SelfSubjectReview{}
	Expect(k8s.Create(ctx, self)).To(Succeed())
	return self.Status.UserInfo.Username
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

// letInAll returns the number of the gate's nodes whose condition and label let them in.
func (w *World) letInAll(ctx context.Context) (n int) {
	GinkgoHelper()
	nodes := &corev1.NodeList{}
	Expect(k8s.List(ctx, nodes, client.MatchingLabels{GateLabel: w.Namespace})).To(Succeed())
	for i := range nodes.Items {
		if m := marksOf(&nodes.Items[i]); m.condition == "True" && m.label == "true" {
			n++
		}
	}
	return n
}

// LetIn watches every version of a Node, and of its hold pods, from now on. found returns the changes by which a version lets the
// node in (by its condition, label or taint, or because a hold pod reports it as verified) and the version before did not. A Node
// that is deleted and created again is another Node.
func (w *World) LetIn(ctx context.Context, node string) (found func() []string) {
	GinkgoHelper()
	var ofNode, ofPods []string
	end, ended := fmt.Sprint("end-", time.Now().UnixNano()), make(chan struct{})
	var before *marks
	over := false
	stopNodes := follow(ctx, &corev1.NodeList{}, func(event watch.EventType, o client.Object) {
		n := o.(*corev1.Node)
		if event == watch.Deleted {
			before = nil
		}
		if event == watch.Deleted || over {
			return
		}
		now := marksOf(n)
		if before != nil && (now.condition > before.condition || now.label > before.label || now.taint > before.taint) {
			ofNode = append(ofNode, fmt.Sprintf("from %+v to %+v", *before, now))
		}
		if before = &now; n.Annotations[end] != "" {
			over = true
			close(ended)
		}
	}, client.MatchingFields{"metadata.name": node})
	held := false
	stopPods := follow(ctx, &corev1.PodList{}, func(_ watch.EventType, o client.Object) {
		pod := o.(*corev1.Pod)
		verified := pod.Labels[v1alpha1.NodeLabelVerified] == "true" || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == v1alpha1.NodeConditionVerified && c.Status == corev1.ConditionTrue
		})
		if held && verified {
			ofPods = append(ofPods, fmt.Sprintf("hold pod %s, version %s, says that its node is verified", pod.Name, pod.ResourceVersion))
		}
		held = held || !verified
	}, client.InNamespace(w.Namespace), client.MatchingLabels{v1alpha1.LabelHold: "true", v1alpha1.LabelNode: node})
	return func() []string {
		GinkgoHelper()
		// When the watch sees this version of the Node, it has seen all earlier ones.
		w.ChangeNode(ctx, node, func(n *corev1.Node) { metav1.SetMetaDataAnnotation(&n.ObjectMeta, end, "true") })
		Eventually(ended).Should(BeClosed())
		stopNodes()
		stopPods()
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
