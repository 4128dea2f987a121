package specs

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// GateSays returns a condition of a gate as text.
func GateSays(ctx context.Context, g *v1alpha1.LatencyGate, conditionType string) string {
	GinkgoHelper()
	current := &v1alpha1.LatencyGate{}
	Expect(suite.Client.Get(ctx, client.ObjectKeyFromObject(g), current)).To(Succeed())
	c := meta.FindStatusCondition(current.Status.Conditions, conditionType)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// ExpectGate waits until a condition of a gate as text matches.
func ExpectGate(ctx context.Context, g *v1alpha1.LatencyGate, conditionType string, matcher gomegatypes.GomegaMatcher) {
	GinkgoHelper()
	suite.Await(func() string { return GateSays(ctx, g, conditionType) }, matcher)
}

// Verification returns the verification of a node.
func (p *Place) Verification(ctx context.Context, node string) *v1alpha1.LatencyVerification {
	GinkgoHelper()
	v := &v1alpha1.LatencyVerification{}
	Expect(client.IgnoreNotFound(suite.Client.Get(ctx, types.NamespacedName{Name: v1alpha1.VerificationName(p.Namespace, node)}, v))).To(Succeed())
	return v
}

// Says returns the state and reason of a node's LatencyVerification, and the condition, label and taint of the Node, such as
// IsVerified.
func (p *Place) Says(ctx context.Context, node string) string {
	GinkgoHelper()
	n := &corev1.Node{}
	Expect(suite.Client.Get(ctx, types.NamespacedName{Name: node}, n)).To(Succeed())
	condition, label, taint := Published(n)
	status := p.Verification(ctx, node).Status
	state := string(status.State)
	if reason := status.Verified().Reason; reason == v1alpha1.ReasonProvisional {
		state += " " + v1alpha1.ReasonPassed // In small fleets every Pass against another boot is provisional; a spec of its own tells them apart.
	} else if status.State != "" {
		state += " " + reason
	}
	return fmt.Sprintf("%s: %s %s %s", state, condition, label, taint)
}

const (
	// IsVerified is what Says returns for a node that is verified and let in.
	IsVerified = "Verified Passed: True true -"
	// HeldBack is the end of Says for a node that is not verified.
	HeldBack = ": False false NoSchedule"
)

// Expect waits until Says of a node returns a text.
func (p *Place) Expect(ctx context.Context, node, says string) {
	GinkgoHelper()
	suite.Await(func() string { return p.Says(ctx, node) }, Equal(says), func() string {
		return fmt.Sprintf("%+v", p.Verification(ctx, node).Status)
	})
}

// within waits until what a function returns matches, and checks that this took less than a limit on the clock of the managers.
func (p *Place) within(limit time.Duration, actual any, matcher gomegatypes.GomegaMatcher) (took time.Duration) {
	GinkgoHelper()
	began := p.Kubelets.Now()
	suite.Await(actual, matcher)
	took = p.Kubelets.Now().Sub(began)
	Expect(took).To(BeNumerically("<", limit))
	return took
}

// AskVerify requests a new measurement of a node, as users do.
func (p *Place) AskVerify(ctx context.Context, node string) {
	GinkgoHelper()
	p.ask(ctx, node, map[string]any{"verify": RequestBy(suite.User)})
}

// AskAccept requests that a result of a node is accepted, as users do.
func (p *Place) AskAccept(ctx context.Context, node, benchmark string) {
	GinkgoHelper()
	p.ask(ctx, node, map[string]any{"accept": v1alpha1.AcceptRequest{Benchmark: benchmark, UserRequest: RequestBy(suite.User)}})
}

func RequestBy(user string) v1alpha1.UserRequest {
	return v1alpha1.UserRequest{RequestedBy: user, RequestTime: time.Now().Format(time.RFC3339Nano)}
}

func (p *Place) ask(ctx context.Context, node string, spec map[string]any) {
	GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"spec": spec})
	Expect(err).NotTo(HaveOccurred())
	Expect(suite.Client.Patch(ctx, p.Verification(ctx, node), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

// History returns a node's results, newest first, as "name outcome reason".
func (p *Place) History(ctx context.Context, node string) []string {
	GinkgoHelper()
	var all []string
	for _, r := range p.Verification(ctx, node).Status.History {
		all = append(all, fmt.Sprintf("%s %s %s", strings.TrimPrefix(r.Benchmark, p.Namespace+"-"+node), r.Outcome, r.Reason))
	}
	return all
}

// Benchmarks returns the names of a node's existing benchmarks, without their common prefix.
func (p *Place) Benchmarks(ctx context.Context, node string) []string {
	GinkgoHelper()
	list := &v1alpha1.LatencyBenchmarkList{}
	Expect(suite.Client.List(ctx, list, client.InNamespace(p.Namespace), client.MatchingLabels{v1alpha1.LabelNode: node})).To(Succeed())
	var all []string
	for _, b := range list.Items {
		all = append(all, strings.TrimPrefix(b.Name, p.Namespace+"-"+node))
	}
	return all
}

// Accepted returns the names of the accepted benchmark and of the first benchmark of the reference.
func (p *Place) Accepted(ctx context.Context, node string) string {
	GinkgoHelper()
	status := p.Verification(ctx, node).Status
	accepted, first := "none", "none"
	if status.Accepted != nil {
		accepted = strings.TrimPrefix(status.Accepted.Benchmark, p.Namespace+"-"+node)
	}
	if len(status.Reference) > 0 {
		first = strings.TrimPrefix(status.Reference[0].Benchmark, p.Namespace+"-"+node)
	}
	return accepted + " since " + first
}

// Benchmark returns a benchmark of a node by its number.
func (p *Place) Benchmark(node string, number int) *v1alpha1.LatencyBenchmark {
	return &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: fmt.Sprintf("%s-%s-%d", p.Namespace, node, number)}}
}

// Marks holds the condition, label and taint of one version of a Node. Each is "" while it holds the node back or is absent. Otherwise,
// it is the value that lets the node in.
type Marks struct {
	Version                 string
	Kernel                  string
	Condition, Label, Taint string
}

// MarksOf returns the marks of a Node.
func MarksOf(n *corev1.Node) Marks {
	m := Marks{Version: n.ResourceVersion, Kernel: n.Status.NodeInfo.KernelVersion, Taint: "untainted"}
	for _, c := range n.Status.Conditions {
		if c.Type == v1alpha1.NodeConditionVerified && c.Status == corev1.ConditionTrue {
			m.Condition = "True"
		}
	}
	if n.Labels[v1alpha1.NodeLabelVerified] == "true" {
		m.Label = "true"
	}
	for _, t := range n.Spec.Taints {
		if t.Key == v1alpha1.NodeTaintUnverified {
			m.Taint = ""
		}
	}
	return m
}

// LetsInAfter reports whether these marks let a node in that those of the version before did not let in.
func (m Marks) LetsInAfter(before Marks) bool {
	return m.Condition > before.Condition || m.Label > before.Label || m.Taint > before.Taint
}

// SaysVerified reports whether a hold pod says that its node is verified.
func SaysVerified(pod *corev1.Pod) bool {
	return pod.Labels[v1alpha1.NodeLabelVerified] == "true" || slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == v1alpha1.NodeConditionVerified && c.Status == corev1.ConditionTrue
	})
}

// Published returns the condition, the label and the taint of a gate on a node; what is not there is "-".
func Published(n *corev1.Node) (condition, label, taint string) {
	condition, label, taint = "-", "-", "-"
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
	return condition, label, taint
}
