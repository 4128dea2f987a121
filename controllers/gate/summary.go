package gate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/standing"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

// summarize sets a gate's status, with the new states of nodes that the cache does not have yet.
func summarize(s *snapshot, chosen turns.Choice) {
	now := map[string]v1alpha1.VerificationState{}
	for _, begun := range chosen.Starts {
		now[begun.Verification.Spec.NodeName] = v1alpha1.VerificationMeasuring
	}
	for _, turn := range chosen.Due {
		now[turn.Verification.Spec.NodeName] = v1alpha1.VerificationUnverified
	}
	lines := make([]v1alpha1.NodeLine, 0, len(s.Verifications)+len(s.Missing))
	for _, v := range s.Verifications {
		line := v1alpha1.NodeLine{
			Name: v.Spec.NodeName, State: cmp.Or(now[v.Spec.NodeName], v.Status.State, v1alpha1.VerificationUnverified), Message: v.Status.Verified().Message,
		}
		s.doubt(&line, v)
		if reason := cmp.Or(chosen.Waiting[line.Name], s.heldUp[line.Name]); reason != "" {
			line.Message = reason + "; " + line.Message
		}
		s.outlook(&line, v, slices.Contains(chosen.Unmeasurable, line.Name))
		lines = append(lines, line)
	}
	for _, v := range s.Leaving {
		line := v1alpha1.NodeLine{
			Name: v.Spec.NodeName, State: v.Status.State, Message: "the node is being deleted, and counts until it is gone; " + v.Status.Verified().Message,
		}
		s.outlook(&line, v, false)
		lines = append(lines, line)
	}
	for _, v := range s.Retained {
		line := v1alpha1.NodeLine{Name: v.Spec.NodeName, State: cmp.Or(v.Status.State, v1alpha1.VerificationUnverified)}
		if v.Status.Retained != nil {
			line.Message = v.Status.Retained.Message
		}
		s.doubt(&line, v)
		s.outlook(&line, v, false)
		lines = append(lines, line)
	}
	for _, node := range s.Missing {
		lines = append(lines, v1alpha1.NodeLine{Name: node.Name, State: v1alpha1.VerificationUnverified, Message: "the node is new to the gate"})
	}
	status := &s.Gate.Status
	status.Nodes, status.NotVerified = count(lines), worst(lines)
	status.Nodes.Unmeasurable, status.Nodes.Unplaced = int32(len(chosen.Unmeasurable)), int32(len(chosen.Unplaced))
	status.Schedule = s.Schedule.Status
	s.pool()
	s.Gate.SetCondition(operational(s, chosen))
	s.Gate.SetCondition(passed(s))
	standing.Publish(&status.Conditions, s.Gate.Generation, s.Now, standing.OfGate(s.Gate))
}

func (s *snapshot) outlook(line *v1alpha1.NodeLine, v *v1alpha1.LatencyVerification, unmeasurable bool) {
	line.Held, line.Since = turns.Held(s.Gate, v) && line.State != v1alpha1.VerificationAway, v.Status.LastTransitionTime
	judge := fmt.Sprintf("kubectl tailgate verify %s", v.Name)
	switch line.State {
	case v1alpha1.VerificationFailed:
		line.Ends, line.User = "a Pass after a repair: "+judge, true
	case v1alpha1.VerificationInconclusive:
		line.Ends, line.User = "a result that is accepted, or a Pass: "+judge, true
	case v1alpha1.VerificationMeasuring:
		line.Ends = "the verdict of its benchmark"
	case v1alpha1.VerificationAway:
		line.Ends = "its return: the node is ready, and has not changed"
	case v1alpha1.VerificationVerified:
	case v1alpha1.VerificationUnverified, "":
		switch r := v.Status.Retained; {
		case r != nil:
			line.Ends = "the end of its retention at " + r.EndTime.UTC().Format(time.RFC3339)
		case unmeasurable:
			line.Ends, line.User = "a measurement, which needs what the message says", true
		case s.Gate.Spec.Suspend:
			line.Ends, line.User = "a measurement, after the end of spec.suspend", true
		default:
			line.Ends = "a measurement"
		}
	}
	line.Ends = text.Shorten(line.Ends, 160)
}

// doubt counts a verified node that is away, or changed but not yet held back, as that.
func (s *snapshot) doubt(line *v1alpha1.NodeLine, v *v1alpha1.LatencyVerification) {
	node := s.Nodes[line.Name]
	if !line.State.Passed() || node == nil {
		return
	}
	line.State = v1alpha1.VerificationVerified
	if why := identity.NotReady(identity.Subject{Node: node}); why != "" {
		line.State, line.Message = v1alpha1.VerificationAway, why
	} else if s.Compare(v, node).Stale != "" {
		line.State, line.Message = v1alpha1.VerificationUnverified, "the node has just changed"
	}
}

func count(lines []v1alpha1.NodeLine) v1alpha1.NodeCounts {
	by := map[v1alpha1.VerificationState]int32{}
	for _, line := range lines {
		by[line.State]++
	}
	return v1alpha1.NodeCounts{
		Total: int32(len(lines)), Verified: by[v1alpha1.VerificationVerified], Measuring: by[v1alpha1.VerificationMeasuring],
		Failed: by[v1alpha1.VerificationFailed], Inconclusive: by[v1alpha1.VerificationInconclusive],
		Unverified: by[v1alpha1.VerificationUnverified] + by[""], Away: by[v1alpha1.VerificationAway],
	}
}

var severity = map[v1alpha1.VerificationState]int{
	v1alpha1.VerificationFailed: 1, v1alpha1.VerificationInconclusive: 2, v1alpha1.VerificationMeasuring: 3, v1alpha1.VerificationUnverified: 4,
	v1alpha1.VerificationAway: 5,
}

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

func operational(s *snapshot, chosen turns.Choice) metav1.Condition {
	no := func(reason, format string, args ...any) metav1.Condition {
		return v1alpha1.Condition(v1alpha1.ConditionOperational, metav1.ConditionFalse, reason, fmt.Sprintf(format, args...))
	}
	troubled := stepFailures(slices.Concat(s.Verifications, s.Retained), s.Schedule.Status != nil)
	heldUp, unmeasurable, overlong := slices.Sorted(maps.Keys(s.heldUp)), chosen.Unmeasurable, chosen.Overlong
	switch {
	case s.unsettled != nil:
		return *s.unsettled
	case s.Schedule.Invalid != "":
		return no(v1alpha1.ReasonScheduleInvalid, "%s", s.Schedule.Invalid)
	case s.refused != "":
		return no(v1alpha1.ReasonVerificationRefused, "%s", text.Shorten(s.refused, 1024))
	case s.Schedule.Paused() && !slices.ContainsFunc(s.Verifications, unmarked):
		return no(v1alpha1.ReasonSchedulePaused, "the last %d measurements ended without a result; the schedule pauses until its next time%s",
			s.Schedule.Status.Fruitless, text.Shorten(lastTurn(s.Verifications), 1024))
	case len(troubled) > 0:
		return no(troubled[0].Reason, "%d nodes: %s", len(troubled), text.Shorten(troubled[0].Message, 1024))
	case len(heldUp) > 0:
		return no(v1alpha1.ReasonMeasurementHeldUp, "%d nodes: the benchmark of %s: %s", len(heldUp), heldUp[0], text.Shorten(s.heldUp[heldUp[0]], 1024))
	case len(unmeasurable) > 0:
		return no(v1alpha1.ReasonNodesUnmeasurable, "%d of %d nodes cannot be measured; %s: %s", len(unmeasurable), s.Gate.Status.Nodes.Total, unmeasurable[0], chosen.Waiting[unmeasurable[0]])
	case len(overlong) > 0:
		return no(v1alpha1.ReasonNodesWaiting, "%d nodes have waited for more than %s; %s: %s", len(overlong), turns.WaitLimit, overlong[0], chosen.Waiting[overlong[0]])
	case len(chosen.Unplaced) > 0 && (chosen.Overdue > 0 || s.Now.Sub(s.Schedule.Fired) > turns.WaitLimit):
		first := slices.Min(slices.Collect(maps.Keys(chosen.Unplaced)))
		return no(v1alpha1.ReasonNoRoom, "%d nodes are due by the schedule or by a request, keep their state, and cannot be measured, because there is no room for the pods; %s: %s",
			len(chosen.Unplaced), first, text.Shorten(chosen.Unplaced[first], 1024))
	case chosen.Overdue > 0:
		return no(v1alpha1.ReasonScheduleTooShort,
			"%d nodes were due by the schedule and not measured before its next time or the end of scheduleWindow; give them more time, or measure more at once (spec.maxParallel)", chosen.Overdue)
	case len(s.Taken) > 0:
		return no(v1alpha1.ReasonNodesTaken, "%s; a node belongs to the oldest gate that selects it", takenText(s.Taken))
	case s.unprotected != "":
		return no(v1alpha1.ReasonUnprotected, "%s", s.unprotected)
	case s.Gate.Spec.Suspend:
		return no(v1alpha1.ReasonSuspended, "spec.suspend is set: the gate measures no node")
	}
	if missing := s.missingLabel(); missing != "" {
		return no(v1alpha1.ReasonLabelMissing, "spec.identity.labels: no node of the gate has label %s, so that its change is not noticed; correct its name, or set it on the nodes", missing)
	}
	message := "the gate handles every selected node"
	switch s.Gate.Spec.Enforcement.Mode {
	case v1alpha1.EnforcementAll:
	case v1alpha1.EnforcementObserve:
		message += "; it holds none back: spec.enforcement.mode is Observe"
	case v1alpha1.EnforcementChanges:
		message += "; it holds back only nodes that changed: spec.enforcement.mode is EnforceChanges"
	}
	return v1alpha1.Condition(v1alpha1.ConditionOperational, metav1.ConditionTrue, v1alpha1.ReasonOperational, message)
}

func (s *snapshot) missingLabel() string {
	for _, label := range s.Gate.Spec.Identity.Labels {
		nodes, found := 0, false
		for _, v := range s.Verifications {
			if node := s.Nodes[v.Spec.NodeName]; node != nil {
				nodes++
				found = found || node.Labels[label] != "" || slices.ContainsFunc(v.Status.Absent, func(a v1alpha1.AbsentKey) bool { return a.Key == identity.Label(label) })
			}
		}
		if nodes > 0 && !found {
			return label
		}
	}
	return ""
}

func leaving(left []*v1alpha1.LatencyVerification) metav1.Condition {
	reason, message := v1alpha1.ReasonGateDeleted, fmt.Sprintf("%d nodes are being released", len(left))
	if troubled := stepFailures(left, false); len(troubled) > 0 {
		reason, message = troubled[0].Reason, fmt.Sprintf("%d nodes cannot be released: %s", len(troubled), text.Shorten(troubled[0].Message, 1024))
	}
	return v1alpha1.Condition(v1alpha1.ConditionOperational, metav1.ConditionFalse, reason, message)
}

func lastTurn(all []*v1alpha1.LatencyVerification) string {
	var last *v1alpha1.LatencyVerification
	for _, v := range all {
		if at := v.Status.StepFailure; at != nil && at.FailureTime != nil && v.Status.State.Passed() && (last == nil || last.Status.StepFailure.FailureTime.Before(at.FailureTime)) {
			last = v
		}
	}
	if last == nil {
		return ""
	}
	return fmt.Sprintf("; the last was that of %s: %s: %s", last.Spec.NodeName, last.Status.StepFailure.Reason, last.Status.StepFailure.Message)
}

func unmarked(v *v1alpha1.LatencyVerification) bool { return len(v.Status.MarkFailures) > 0 }

func stepFailures(verifications []*v1alpha1.LatencyVerification, scheduled bool) []*v1alpha1.StepFailure {
	var marks, others []*v1alpha1.StepFailure
	for _, v := range slices.SortedFunc(slices.Values(verifications), func(a, b *v1alpha1.LatencyVerification) int { return cmp.Compare(a.Spec.NodeName, b.Spec.NodeName) }) {
		measurement := v.Status.StepFailure
		if v.Status.State.Passed() && !scheduled {
			measurement = nil
		}
		if unmarked(v) {
			marks = append(marks, &v.Status.MarkFailures[0].StepFailure)
		} else if found := cmp.Or(measurement, v.Status.HoldPodFailure); found != nil {
			others = append(others, found)
		}
	}
	return append(marks, others...)
}

func takenText(taken map[string][]string) string {
	var parts []string
	for _, gate := range slices.Sorted(maps.Keys(taken)) {
		nodes := slices.Sorted(slices.Values(taken[gate]))
		parts = append(parts, fmt.Sprintf("LatencyGate %s has %s", gate, text.List(nodes, 5, ", ")))
	}
	return strings.Join(parts, "; ")
}

func passed(s *snapshot) metav1.Condition {
	n := s.Gate.Status.Nodes
	notVerified := n.Total - n.Verified
	first := ""
	if len(s.Gate.Status.NotVerified) > 0 {
		line := s.Gate.Status.NotVerified[0]
		first = fmt.Sprintf(": %s is %s", line.Name, line.State)
		if notVerified > 1 {
			first += fmt.Sprintf(", and %d more", notVerified-1)
		}
	}
	is := func(status metav1.ConditionStatus, reason, format string, args ...any) metav1.Condition {
		return v1alpha1.Condition(v1alpha1.ConditionPassed, status, reason, fmt.Sprintf(format, args...))
	}
	switch limit := s.Gate.Spec.MaxUnverified; {
	case n.Failed > 0:
		return is(metav1.ConditionFalse, v1alpha1.ReasonNodesFailed, "%d of %d nodes failed%s", n.Failed, n.Total, first)
	case meta.IsStatusConditionTrue(s.Gate.Status.Conditions, v1alpha1.ConditionChangeShifted):
		return is(metav1.ConditionFalse, v1alpha1.ReasonChangeShifted, "%s", meta.FindStatusCondition(s.Gate.Status.Conditions, v1alpha1.ConditionChangeShifted).Message)
	case limit != nil && notVerified > *limit:
		return is(metav1.ConditionFalse, v1alpha1.ReasonTooManyUnverified, "%d of %d nodes are not verified, and maxUnverified is %d%s", notVerified, n.Total, *limit, first)
	case notVerified > 0 && notVerified == n.Away:
		return is(metav1.ConditionUnknown, v1alpha1.ReasonNodesNotReady, "%d of %d nodes are verified and not ready, so that their identity is unknown%s", notVerified, n.Total, first)
	case notVerified > 0:
		return is(metav1.ConditionUnknown, v1alpha1.ReasonNotAllVerified, "%d of %d nodes are not verified%s", notVerified, n.Total, first)
	case len(s.Taken) > 0:
		return is(metav1.ConditionUnknown, v1alpha1.ReasonNodesTaken, "%s, so this gate does not know their state", takenText(s.Taken))
	case n.Total == 0:
		if _, err := metav1.LabelSelectorAsSelector(&s.Gate.Spec.NodeSelector); err != nil {
			return is(metav1.ConditionUnknown, v1alpha1.ReasonNoNodes, "spec.nodeSelector: %v; correct the selector", err)
		}
		return is(metav1.ConditionUnknown, v1alpha1.ReasonNoNodes, "nodeSelector selects no node; see kubectl get nodes --show-labels")
	}
	return is(metav1.ConditionTrue, v1alpha1.ReasonAllVerified, "all %d nodes are verified", n.Total)
}

func gateNotices(old, g *v1alpha1.LatencyGate) []controllers.Notice {
	known := slices.DeleteFunc(slices.Clone(g.Status.Conditions), func(c metav1.Condition) bool { return c.Status == metav1.ConditionUnknown })
	return controllers.ConditionNotices(old.Status.Conditions, known, v1alpha1.ConditionOperational, v1alpha1.ConditionPassed, v1alpha1.ConditionChangeShifted)
}
