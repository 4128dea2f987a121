package gate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// summarize sets a gate's status from its nodes. Nodes whose state has just changed are counted with the new state, and not with the
// state in the cache. It has no other effect.
func summarize(s *survey, chosen choice) {
	now := map[string]v1alpha1.VerificationState{}
	for _, begun := range chosen.starts {
		now[begun.verification.Spec.NodeName] = v1alpha1.VerificationMeasuring
	}
	for _, v := range chosen.due {
		now[v.Spec.NodeName] = v1alpha1.VerificationUnverified
	}
	lines := make([]v1alpha1.NodeLine, 0, len(s.lineup.verifications)+len(s.missing))
	for _, v := range s.lineup.verifications {
		line := v1alpha1.NodeLine{
			Name: v.Spec.NodeName, State: cmp.Or(now[v.Spec.NodeName], v.Status.State, v1alpha1.VerificationUnverified), Message: v.Status.Verified().Message,
		}
		if reason := chosen.waiting[line.Name]; reason != "" {
			line.Message = reason + "; " + line.Message
		}
		lines = append(lines, line)
	}
	for _, v := range s.retained {
		line := v1alpha1.NodeLine{Name: v.Spec.NodeName, State: cmp.Or(v.Status.State, v1alpha1.VerificationUnverified)}
		if v.Status.Retained != nil {
			line.Message = v.Status.Retained.Message
		}
		lines = append(lines, line)
	}
	for _, node := range s.missing {
		lines = append(lines, v1alpha1.NodeLine{Name: node.Name, State: v1alpha1.VerificationUnverified, Message: "the node is new to the gate"})
	}
	status := &s.gate.Status
	status.Nodes, status.NotVerified = count(lines), worst(lines)
	s.gate.SetCondition(ready(s))
	s.gate.SetCondition(passed(s))
}

// count counts the nodes by state.
func count(lines []v1alpha1.NodeLine) v1alpha1.NodeCounts {
	c := v1alpha1.NodeCounts{Total: int32(len(lines))}
	for _, line := range lines {
		switch line.State {
		case v1alpha1.VerificationVerified:
			c.Verified++
		case v1alpha1.VerificationMeasuring:
			c.Measuring++
		case v1alpha1.VerificationFailed:
			c.Failed++
		case v1alpha1.VerificationInconclusive:
			c.Inconclusive++
		default:
			c.Unverified++
		}
	}
	return c
}

// severity orders the states by how much they need attention.
var severity = map[v1alpha1.VerificationState]int{
	v1alpha1.VerificationFailed: 1, v1alpha1.VerificationInconclusive: 2, v1alpha1.VerificationMeasuring: 3, v1alpha1.VerificationUnverified: 4,
}

// worst returns the first MaxNodeLines nodes that are not verified, the most severe states first.
func worst(lines []v1alpha1.NodeLine) []v1alpha1.NodeLine {
	lines = slices.DeleteFunc(slices.Clone(lines), func(l v1alpha1.NodeLine) bool { return l.State == v1alpha1.VerificationVerified })
	slices.SortFunc(lines, func(a, b v1alpha1.NodeLine) int {
		return cmp.Or(cmp.Compare(severity[a.State], severity[b.State]), cmp.Compare(a.Name, b.Name))
	})
	lines = lines[:min(len(lines), v1alpha1.MaxNodeLines)]
	for i := range lines {
		lines[i].Message = text.Shorten(lines[i].Message, 512)
	}
	return lines
}

// ready returns condition Ready: whether the gate can do all of its work.
func ready(s *survey) metav1.Condition {
	no := func(reason, format string, args ...any) metav1.Condition {
		return v1alpha1.Condition(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, fmt.Sprintf(format, args...))
	}
	troubled := setbacks(s.lineup.verifications)
	switch {
	case s.invalid != "":
		return no(v1alpha1.ReasonScheduleInvalid, "%s", s.invalid)
	case len(troubled) > 0:
		return no(troubled[0].Reason, "%d nodes: %s", len(troubled), text.Shorten(troubled[0].Message, 1024))
	case len(s.taken) > 0:
		return no(v1alpha1.ReasonNodesTaken, "%s; a node belongs to the oldest gate that selects it", takenText(s.taken))
	case s.gate.Spec.Suspend:
		return no(v1alpha1.ReasonSuspended, "spec.suspend is set: the gate measures no node")
	}
	return v1alpha1.Condition(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, "the gate handles every selected node")
}

// setbacks returns the setbacks of the nodes, in the order of their names.
func setbacks(verifications []*v1alpha1.LatencyVerification) []*v1alpha1.Setback {
	var all []*v1alpha1.Setback
	for _, v := range slices.SortedFunc(slices.Values(verifications), func(a, b *v1alpha1.LatencyVerification) int { return cmp.Compare(a.Spec.NodeName, b.Spec.NodeName) }) {
		if found := cmp.Or(v.Status.Setback, v.Status.HoldPodSetback); found != nil {
			all = append(all, found)
		}
	}
	return all
}

// takenText lists the first nodes that belong to other gates.
func takenText(taken map[string][]string) string {
	var parts []string
	for _, gate := range slices.Sorted(maps.Keys(taken)) {
		nodes := slices.Sorted(slices.Values(taken[gate]))
		parts = append(parts, fmt.Sprintf("LatencyGate %s has %s", gate, text.List(nodes, 5, ", ")))
	}
	return strings.Join(parts, "; ")
}

// passed returns condition Passed: whether all nodes are verified.
func passed(s *survey) metav1.Condition {
	n := s.gate.Status.Nodes
	notVerified := n.Total - n.Verified
	first := ""
	if len(s.gate.Status.NotVerified) > 0 {
		line := s.gate.Status.NotVerified[0]
		first = fmt.Sprintf(": %s is %s", line.Name, line.State)
		if notVerified > 1 {
			first += fmt.Sprintf(", and %d more", notVerified-1)
		}
	}
	is := func(status metav1.ConditionStatus, reason, format string, args ...any) metav1.Condition {
		return v1alpha1.Condition(v1alpha1.ConditionPassed, status, reason, fmt.Sprintf(format, args...))
	}
	switch limit := s.gate.Spec.MaxUnverified; {
	case n.Failed > 0:
		return is(metav1.ConditionFalse, v1alpha1.ReasonNodesFailed, "%d of %d nodes failed%s", n.Failed, n.Total, first)
	case limit != nil && notVerified > *limit:
		return is(metav1.ConditionFalse, v1alpha1.ReasonTooManyUnverified, "%d of %d nodes are not verified, and maxUnverified is %d%s", notVerified, n.Total, *limit, first)
	case notVerified > 0:
		return is(metav1.ConditionUnknown, v1alpha1.ReasonNotAllVerified, "%d of %d nodes are not verified%s", notVerified, n.Total, first)
	case len(s.taken) > 0:
		return is(metav1.ConditionUnknown, v1alpha1.ReasonNodesTaken, "%s, so this gate does not know their state", takenText(s.taken))
	case n.Total == 0:
		if _, err := metav1.LabelSelectorAsSelector(&s.gate.Spec.NodeSelector); err != nil {
			return is(metav1.ConditionUnknown, v1alpha1.ReasonNoNodes, "spec.nodeSelector: %v; correct the selector", err)
		}
		return is(metav1.ConditionUnknown, v1alpha1.ReasonNoNodes, "nodeSelector selects no node; see kubectl get nodes --show-labels")
	}
	return is(metav1.ConditionTrue, v1alpha1.ReasonAllVerified, "all %d nodes are verified", n.Total)
}

// gateNotices derives events from changes of the conditions. Waiting causes no event.
func gateNotices(old, g *v1alpha1.LatencyGate) []controllers.Notice {
	known := slices.DeleteFunc(slices.Clone(g.Status.Conditions), func(c metav1.Condition) bool { return c.Status == metav1.ConditionUnknown })
	return controllers.ConditionNotices(old.Status.Conditions, known, v1alpha1.ConditionReady, v1alpha1.ConditionPassed)
}
