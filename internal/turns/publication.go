package turns

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
)

// Publication is the marks that a Node should have; the zero value, without a verification, none.
type Publication struct {
	Condition *corev1.NodeCondition
	Regressed *corev1.NodeCondition // for tools that repair nodes; nil if there should be none
	Label     string
	Taint     *corev1.Taint
}

// Held reports whether a gate holds back the node of a verification while it is not verified.
func Held(gate *v1alpha1.LatencyGate, v *v1alpha1.LatencyVerification) bool {
	spared := gate.Spec.Enforcement.Mode == v1alpha1.EnforcementChanges && v.Status.Preexisting || gate.Status.Unsettled && v.Status.Introduced && !measured(v)
	return !gate.Observes() && !spared
}

func Older(node *corev1.Node, gate *v1alpha1.LatencyGate) bool {
	return node.CreationTimestamp.Before(&gate.CreationTimestamp)
}

// FoundBy reports whether a gate finds a new node as it is: older, or the gate holds back none. It
// does not so find a node that another gate holds back.
func FoundBy(gate *v1alpha1.LatencyGate, node *corev1.Node) bool {
	if c := NodeCondition(node, v1alpha1.NodeConditionVerified); c != nil && c.Status == corev1.ConditionFalse {
		return false
	}
	return Older(node, gate) || gate.Observes()
}

// PublicationOf returns no marks for a node that is not held back whatever its state. The condition
// does not say how far a measurement is, which would need one more write.
func PublicationOf(gate *v1alpha1.LatencyGate, v *v1alpha1.LatencyVerification) Publication {
	status := v.Status
	passed := status.State.Passed()
	if gate.Observes() || !passed && !Held(gate, v) {
		return Publication{}
	}
	p := Publication{Condition: &corev1.NodeCondition{Type: v1alpha1.NodeConditionVerified, Status: corev1.ConditionFalse}}
	see := "see kubectl get latencyverifications.tailgate.dev " + v.Name + " -o wide"
	switch status.State {
	case v1alpha1.VerificationVerified:
		p.Condition.Status, p.Condition.Reason, p.Condition.Message = corev1.ConditionTrue, status.Verified().Reason, see
	case v1alpha1.VerificationAway:
		p.Condition.Status, p.Condition.Reason, p.Condition.Message = corev1.ConditionUnknown, status.Verified().Reason, see
	case v1alpha1.VerificationFailed, v1alpha1.VerificationInconclusive:
		p.Condition.Reason, p.Condition.Message = string(status.State), status.Verified().Reason+"; "+see
	case v1alpha1.VerificationUnverified, v1alpha1.VerificationMeasuring, "":
		p.Condition.Reason, p.Condition.Message = string(v1alpha1.VerificationUnverified), see
		if len(status.Changed) > 0 {
			p.Condition.Message = identity.Sentence(status.Changed) + "; " + see
		}
	}
	p.Regressed = &corev1.NodeCondition{Type: v1alpha1.NodeConditionRegressed, Status: corev1.ConditionFalse, Reason: "NoConfirmedFail"}
	if status.State == v1alpha1.VerificationFailed && status.FailConfirmed {
		p.Regressed.Status, p.Regressed.Reason, p.Regressed.Message = corev1.ConditionTrue, "ConfirmedFail", p.Condition.Message
	}
	enforcement := gate.Spec.Enforcement
	if enforcement.Label != nil {
		p.Label = fmt.Sprint(status.State == v1alpha1.VerificationVerified)
	}
	// A verified node that is not ready keeps its pods: Kubernetes keeps others away.
	if enforcement.Taint != nil && !passed {
		p.Taint = &corev1.Taint{Key: v1alpha1.NodeTaintUnverified, Effect: enforcement.Taint.Effect}
	}
	return p
}

// Marks are all marks, in the order in which they are reported.
var Marks = []v1alpha1.NodeMark{v1alpha1.MarkCondition, v1alpha1.MarkLabel, v1alpha1.MarkTaint}

// IsOn reports whether a Node has its marks, as far as other programs act on them.
func (p Publication) IsOn(node *corev1.Node) bool {
	return !slices.ContainsFunc(Marks, func(m v1alpha1.NodeMark) bool { return !p.Has(node, m) })
}

func (p Publication) Has(node *corev1.Node, mark v1alpha1.NodeMark) bool {
	switch mark {
	case v1alpha1.MarkCondition:
		return len(p.Conditions(node, metav1.Time{})) == 0
	case v1alpha1.MarkLabel:
		return node.Labels[v1alpha1.NodeLabelVerified] == p.Label
	case v1alpha1.MarkTaint:
	}
	return slices.EqualFunc(node.Spec.Taints, p.Taints(node), func(a, b corev1.Taint) bool { return a == b })
}

// Value returns a mark as text; empty if there should be none.
func (p Publication) Value(mark v1alpha1.NodeMark) string {
	switch {
	case mark == v1alpha1.MarkCondition && p.Condition != nil:
		return fmt.Sprintf("%s %s %s", p.Condition.Status, p.Condition.Reason, p.Condition.Message)
	case mark == v1alpha1.MarkLabel:
		return p.Label
	case mark == v1alpha1.MarkTaint && p.Taint != nil:
		return string(p.Taint.Effect)
	}
	return ""
}

// Conditions returns the conditions in which a Node differs, by type; nil: it should have none.
func (p Publication) Conditions(node *corev1.Node, now metav1.Time) map[corev1.NodeConditionType]*corev1.NodeCondition {
	wanted := map[corev1.NodeConditionType]*corev1.NodeCondition{}
	for kind, want := range map[corev1.NodeConditionType]*corev1.NodeCondition{v1alpha1.NodeConditionVerified: p.Condition, v1alpha1.NodeConditionRegressed: p.Regressed} {
		is := NodeCondition(node, kind)
		switch {
		case want == nil && is != nil:
			wanted[kind] = nil
		case want != nil && (is == nil || is.Status != want.Status || is.Reason != want.Reason || is.Message != want.Message):
			want = want.DeepCopy()
			want.LastHeartbeatTime, want.LastTransitionTime = now, now
			if is != nil && is.Status == want.Status {
				want.LastTransitionTime = is.LastTransitionTime
			}
			wanted[kind] = want
		}
	}
	return wanted
}

// NodeCondition returns a condition of a Node; nil if it has none of this type.
func NodeCondition(node *corev1.Node, kind corev1.NodeConditionType) *corev1.NodeCondition {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &node.Status.Conditions[i]
}

// Taints returns the taints that a Node should have. It only adds to a Node that is held back: the
// kubelet may have registered it with the gate's key and another effect.
func (p Publication) Taints(node *corev1.Node) []corev1.Taint {
	all := slices.DeleteFunc(slices.Clone(node.Spec.Taints), func(t corev1.Taint) bool { return t.Key == v1alpha1.NodeTaintUnverified && !p.HoldsBack() })
	if p.Taint != nil && !slices.ContainsFunc(all, func(t corev1.Taint) bool { return t.Key == p.Taint.Key && t.Effect == p.Taint.Effect }) {
		all = append(all, *p.Taint)
	}
	return all
}

func (p Publication) HoldsBack() bool {
	return p.Condition != nil && p.Condition.Status != corev1.ConditionTrue
}

// On returns a copy of a Node that has these marks and no others of a gate.
func (p Publication) On(node *corev1.Node) *corev1.Node {
	node = node.DeepCopy()
	node.Spec.Taints = p.Taints(node)
	if delete(node.Labels, v1alpha1.NodeLabelVerified); p.Label != "" {
		node.Labels[v1alpha1.NodeLabelVerified] = p.Label
	}
	node.Status.Conditions = slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.NodeConditionVerified || c.Type == v1alpha1.NodeConditionRegressed
	})
	for _, c := range []*corev1.NodeCondition{p.Condition, p.Regressed} {
		if c != nil {
			node.Status.Conditions = append(node.Status.Conditions, *c)
		}
	}
	return node
}
