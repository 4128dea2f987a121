// Package standing determines a verdict's state, the same for command line and HTTP.
package standing

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// Standing is the state of a verdict.
type Standing struct {
	Outcome v1alpha1.VerdictOutcome // empty while there is no verdict
	Open    bool                    // it may still become Pass or Fail without a user's action
	// Baseline or BaselineMatrix is awaited: the verdict is open unless it failed or is missing.
	Baseline, BaselineMatrix string
	Reason                   string   // of a condition, or the state of the object, if there is one
	Message                  string   // explains the verdict, or says what it waits for
	Details                  []string // lines about the rules that did not pass, or the nodes
}

const (
	ReasonNoCriteria  = "NoCriteria"  // for a benchmark without rules
	ReasonNotObserved = "NotObserved" // the operator has not processed the current version
)

// String returns the standing in one line, and one more line for each detail.
func (s Standing) String() string {
	outcome := cmp.Or(s.Outcome, "not judged")
	return strings.Join(append([]string{string(outcome) + ": " + s.Message}, s.Details...), "\n  ")
}

// current returns a condition written for the current spec, or nil.
func current(o client.Object, conditions []metav1.Condition, conditionType string) *metav1.Condition {
	c := meta.FindStatusCondition(conditions, conditionType)
	if c == nil || c.ObservedGeneration < o.GetGeneration() {
		return nil
	}
	return c
}

func Passed(v *v1alpha1.Verdict) metav1.Condition {
	status, reason := metav1.ConditionUnknown, inconclusive(v)
	switch v.Outcome {
	case v1alpha1.VerdictInconclusive:
	case v1alpha1.VerdictPass:
		status, reason = metav1.ConditionTrue, v1alpha1.ReasonPass
	case v1alpha1.VerdictFail:
		status, reason = metav1.ConditionFalse, v1alpha1.ReasonFail
	}
	return v1alpha1.Condition(v1alpha1.ConditionPassed, status, reason, v.Message)
}

// inconclusive returns the first inconclusive rule's reason if it applies to the whole benchmark.
func inconclusive(v *v1alpha1.Verdict) string {
	whole := []string{
		v1alpha1.ReasonBenchmarkFailed, v1alpha1.ReasonResultsMissing, v1alpha1.ReasonRuleInvalid,
		v1alpha1.ReasonBaselineMissing, v1alpha1.ReasonBaselineNotComplete, v1alpha1.ReasonBaselineResultsMissing,
		v1alpha1.ReasonBaselineDigestDiffers, v1alpha1.ReasonBaselineUnreadable, v1alpha1.ReasonBaselineUnlike, v1alpha1.ReasonBaselineWithoutEvidence,
	}
	first := slices.IndexFunc(v.Rules, func(r v1alpha1.RuleVerdict) bool { return r.Outcome == v1alpha1.VerdictInconclusive })
	if first >= 0 && slices.Contains(whole, v.Rules[first].Reason) {
		return v.Rules[first].Reason
	}
	return v1alpha1.ReasonInconclusive
}

// OfBenchmark returns the standing of a LatencyBenchmark, from its condition Passed.
func OfBenchmark(b *v1alpha1.LatencyBenchmark) Standing {
	passed := current(b, b.Status.Conditions, v1alpha1.ConditionPassed)
	switch {
	case b.Spec.Criteria == nil:
		return Standing{Outcome: v1alpha1.VerdictInconclusive, Reason: ReasonNoCriteria, Message: "it has no criteria, so there is no verdict; add rules to spec.criteria"}
	case passed != nil && passed.Reason != v1alpha1.ReasonNotJudged:
		// A matrix may have this verdict before it is finished: it fails when its first pair fails.
	case b.Spec.Suspend && !b.Finished(), refused(b):
		return Standing{Reason: v1alpha1.ReasonNotJudged, Message: summary.Standing(b)}
	case passed == nil && b.Finished():
		return Standing{Open: true, Reason: v1alpha1.ReasonNotJudged, Message: "all runs are measured, but the rules are not evaluated yet"}
	default:
		return Standing{Open: true, Reason: v1alpha1.ReasonNotJudged, Message: summary.Standing(b)}
	}
	s := Standing{Outcome: v1alpha1.VerdictInconclusive, Reason: passed.Reason, Message: passed.Message, Details: notPassed(b.Status.Verdict)}
	switch {
	case passed.Status == metav1.ConditionTrue:
		s.Outcome = v1alpha1.VerdictPass
	case passed.Status == metav1.ConditionFalse:
		s.Outcome = v1alpha1.VerdictFail
	case passed.Reason == v1alpha1.ReasonBaselineNotComplete:
		s.Baseline, s.BaselineMatrix = b.Spec.Criteria.BaselineOf(v1alpha1.BaselineBenchmark), b.Spec.Criteria.BaselineOf(v1alpha1.BaselineMatrix)
	}
	return s
}

// unsettled are reasons of Operational with which no node can be verified without a user.
var unsettled = map[string]bool{v1alpha1.ReasonDevicesWithheld: true, v1alpha1.ReasonTemplateTooLong: true, v1alpha1.ReasonRuleUndecidable: true}

// OfGate returns a LatencyGate's standing, from Passed. Without a user, inconclusive nodes do not
// change, nor those that cannot be measured, are another's, or wait while it is suspended. More
// unverified nodes than maxUnverified are no Fail: they may pass.
func OfGate(g *v1alpha1.LatencyGate) Standing {
	passed := current(g, g.Status.Conditions, v1alpha1.ConditionPassed)
	operational := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionOperational)
	if passed == nil {
		return Standing{Open: true, Reason: ReasonNotObserved, Message: "the operator has not processed its present spec; is it running?"}
	}
	s := Standing{Reason: passed.Reason, Message: passed.Message}
	if operational != nil && operational.Status == metav1.ConditionFalse {
		s.Message += fmt.Sprintf("; %s: %s", operational.Reason, operational.Message)
	}
	s.Details = text.Of(g.Status.NotVerified, func(n v1alpha1.NodeLine) string { return fmt.Sprintf("%s: %s, %s", n.Name, n.State, n.Message) })
	n := g.Status.Nodes
	waiting := n.Unverified - n.Unmeasurable + n.Away
	if g.Spec.Suspend || waiting == n.Total && operational != nil && unsettled[operational.Reason] {
		waiting = 0
	}
	switch {
	case passed.Status == metav1.ConditionTrue:
		s.Outcome = v1alpha1.VerdictPass
	case passed.Status == metav1.ConditionFalse && passed.Reason != v1alpha1.ReasonTooManyUnverified:
		s.Outcome = v1alpha1.VerdictFail
	case operational != nil && operational.Reason == v1alpha1.ReasonCannotSettle:
		s.Outcome, s.Reason, s.Message = v1alpha1.VerdictInconclusive, operational.Reason, operational.Message
	case passed.Reason != v1alpha1.ReasonNoNodes && passed.Reason != v1alpha1.ReasonNodesNotReady && waiting == 0 && n.Measuring == 0:
		s.Outcome = v1alpha1.VerdictInconclusive
	default:
		s.Open = true
	}
	return s
}

// OfVerification returns a node's standing with its gate, which reports why it waits.
func OfVerification(v *v1alpha1.LatencyVerification) Standing {
	verified := v.Status.Verified()
	s := Standing{Reason: verified.Reason, Message: verified.Message}
	switch v.Status.State {
	case v1alpha1.VerificationVerified:
		s.Outcome = v1alpha1.VerdictPass
	case v1alpha1.VerificationAway:
		s.Open = true
	case v1alpha1.VerificationFailed:
		s.Outcome = v1alpha1.VerdictFail
	case v1alpha1.VerificationInconclusive:
		s.Outcome = v1alpha1.VerdictInconclusive
	case "", v1alpha1.VerificationUnverified, v1alpha1.VerificationMeasuring:
		s.Open = true
		s.Reason = cmp.Or(s.Reason, ReasonNotObserved)
		s.Message = cmp.Or(s.Message, "the operator has not processed it yet; is it running?")
	}
	return s
}

func notPassed(v *v1alpha1.Verdict) []string {
	if v == nil {
		return nil
	}
	var lines []string
	for _, r := range v.Rules {
		if r.Outcome == v1alpha1.VerdictPass {
			continue
		}
		line := fmt.Sprintf("%s: %s, %s", r.Rule, r.Outcome, r.Reason)
		if !strings.HasSuffix(v.Message, r.Message) {
			line += ": " + r.Message
		}
		lines = append(lines, line)
	}
	return lines
}

const maxMessage = 512

// Publish sets Ready, Reconciling and Stalled as kstatus does; the latter absent, not False.
func Publish(conditions *[]metav1.Condition, generation int64, now time.Time, s Standing) {
	ready, why := metav1.ConditionFalse, v1alpha1.ConditionStalled
	switch {
	case s.Outcome == v1alpha1.VerdictPass:
		ready, why = metav1.ConditionTrue, ""
	case s.Open, s.Baseline+s.BaselineMatrix != "":
		ready, why = metav1.ConditionUnknown, v1alpha1.ConditionReconciling
	}
	set := func(conditionType string, status metav1.ConditionStatus) {
		c := v1alpha1.Condition(conditionType, status, s.Reason, text.Shorten(s.Message, maxMessage))
		c.ObservedGeneration, c.LastTransitionTime = generation, metav1.Time{Time: now}
		meta.SetStatusCondition(conditions, c)
	}
	set(v1alpha1.ConditionReady, ready)
	for _, abnormal := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		if abnormal == why {
			set(abnormal, metav1.ConditionTrue)
		} else {
			meta.RemoveStatusCondition(conditions, abnormal)
		}
	}
}

// OfMeasurement is what is published. Without criteria, it passes when all is measured.
func OfMeasurement(b *v1alpha1.LatencyBenchmark) Standing {
	succeeded := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSucceeded)
	switch {
	case b.Spec.Criteria != nil:
		return OfBenchmark(b)
	case succeeded == nil:
		return Standing{Open: true, Reason: ReasonNotObserved, Message: summary.Standing(b)}
	}
	s := Standing{Reason: succeeded.Reason, Message: succeeded.Message}
	switch succeeded.Status {
	case metav1.ConditionTrue:
		s.Outcome = v1alpha1.VerdictPass
	case metav1.ConditionUnknown:
		s.Open = !b.Spec.Suspend && !refused(b)
	}
	return s
}

// lasting are the reasons of condition Accepted that no change of the cluster removes.
var lasting = []string{
	v1alpha1.ReasonCellUnsupported, v1alpha1.ReasonPercentileOutOfReach, v1alpha1.ReasonRuleUndecidable, v1alpha1.ReasonCaptureForbidden,
	v1alpha1.ReasonHostNetworkForbidden, v1alpha1.ReasonImageForbidden,
	v1alpha1.ReasonNetworkNamespaceForbidden, v1alpha1.ReasonOccupationTooLong, v1alpha1.ReasonAccelerationUnsupported,
}

func refused(b *v1alpha1.LatencyBenchmark) bool {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionAccepted)
	return c != nil && c.Status == metav1.ConditionFalse && slices.Contains(lasting, c.Reason) && b.Status.Active == nil
}

const unseen = "the operator has not processed this yet; is it running?"

// Of returns the standing of an object with a verdict, and may read others for it.
func Of(ctx context.Context, api client.Reader, o client.Object) (Standing, error) {
	switch o := o.(type) {
	case *v1alpha1.LatencyBenchmark:
		return OfBenchmark(o), nil
	case *v1alpha1.LatencyMatrix:
		return OfBenchmark(o.Overview()), nil
	case *v1alpha1.LatencyGate:
		return OfGateNow(ctx, api, o)
	case *v1alpha1.LatencyVerification:
		gate := &v1alpha1.LatencyGate{ObjectMeta: metav1.ObjectMeta{UID: types.UID(o.Status.GateUID)}} // One that is gone leaves its results.
		if err := client.IgnoreNotFound(api.Get(ctx, client.ObjectKey{Name: o.Spec.GateName}, gate)); err != nil {
			return Standing{}, fmt.Errorf("reading LatencyGate %s: %w", o.Spec.GateName, err)
		}
		node := &corev1.Node{}
		err := api.Get(ctx, client.ObjectKey{Name: o.Spec.NodeName}, node)
		return ofNode(o, gate.UID, node), err
	}
	return Standing{}, fmt.Errorf("%T has no verdict", o)
}

// OfNode returns a verification's standing, which applies only to the Node that its status names.
func OfNode(v *v1alpha1.LatencyVerification, node *corev1.Node) Standing {
	return ofNode(v, types.UID(v.Status.GateUID), node)
}

func ofNode(v *v1alpha1.LatencyVerification, gate types.UID, node *corev1.Node) Standing {
	if v.Status.State == "" || v.Status.OfDeletedGate() {
		return OfVerification(v)
	}
	subject := identity.Subject{Node: node}
	is := identity.Recorded(&v.Status).Compare(v, gate, subject, time.Now())
	switch {
	case is.Stale == v1alpha1.ReasonNodeReplaced:
		return Standing{Open: true, Reason: is.Stale, Message: "the Node was deleted and created again since; " + unseen}
	case is.Stale == v1alpha1.ReasonGateReplaced:
		return Standing{Open: true, Reason: is.Stale, Message: "the gate was deleted and created again since; " + unseen}
	case !v.Status.State.Passed():
	case len(is.Seen) > 0:
		return Standing{Open: true, Reason: v1alpha1.ReasonIdentityChanged, Message: identity.Sentence(is.Seen) + "; " + unseen}
	default:
		if why := identity.NotReady(subject); why != "" {
			return Standing{Open: true, Reason: v1alpha1.ReasonNodeNotReady, Message: why}
		}
	}
	return OfVerification(v)
}

// OfGateNow lets a Pass count only if each Node is still the verified one: conditions may be old.
func OfGateNow(ctx context.Context, api client.Reader, g *v1alpha1.LatencyGate) (Standing, error) {
	s := OfGate(g)
	if s.Outcome != v1alpha1.VerdictPass {
		return s, nil
	}
	changed, err := changedNodes(ctx, api, g)
	if err != nil || len(changed) == 0 {
		return s, err
	}
	slices.SortFunc(changed, func(a, b changedNode) int { return cmp.Compare(a.name, b.name) })
	s = Standing{Open: true, Reason: changed[0].Reason, Message: fmt.Sprintf("%d of its nodes have changed since they were verified; %s", len(changed), unseen)}
	if slices.ContainsFunc(changed, func(n changedNode) bool { return n.Reason == v1alpha1.ReasonNodeNotReady }) {
		s.Message = fmt.Sprintf("%d of its nodes are not ready, or have changed since they were verified", len(changed))
	}
	s.Details = text.Of(changed[:min(len(changed), v1alpha1.MaxNodeLines)], func(n changedNode) string { return fmt.Sprintf("%s: %s, %s", n.name, n.Reason, n.Message) })
	return s, nil
}

type changedNode struct {
	name string
	Standing
}

func changedNodes(ctx context.Context, api client.Reader, g *v1alpha1.LatencyGate) ([]changedNode, error) {
	known := map[string]*v1alpha1.LatencyVerification{}
	err := observe.Each(ctx, api, func() client.ObjectList { return &v1alpha1.LatencyVerificationList{} }, func(o runtime.Object) error {
		if v := o.(*v1alpha1.LatencyVerification); v.DeletionTimestamp.IsZero() {
			known[v.Spec.NodeName] = v
		}
		return nil
	}, client.MatchingFields{"spec.gateName": g.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the LatencyVerifications of LatencyGate %s: %w", g.Name, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(&g.Spec.NodeSelector)
	if err != nil {
		return nil, fmt.Errorf("spec.nodeSelector of LatencyGate %s: %w", g.Name, err)
	}
	var changed []changedNode
	look := func(node *corev1.Node, v *v1alpha1.LatencyVerification) {
		if s := ofNode(v, g.UID, node); s.Outcome != v1alpha1.VerdictPass {
			changed = append(changed, changedNode{node.Name, s})
		}
	}
	err = observe.Each(ctx, api, func() client.ObjectList { return &corev1.NodeList{} }, func(o runtime.Object) error {
		node := o.(*corev1.Node)
		switch v, ok := known[node.Name]; {
		case !node.DeletionTimestamp.IsZero():
		case !ok:
			changed = append(changed, changedNode{node.Name, Standing{Reason: v1alpha1.ReasonNewNode, Message: "the node is new to the gate; " + unseen}})
		default:
			look(node, v)
		}
		delete(known, node.Name)
		return nil
	}, client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return nil, fmt.Errorf("listing the nodes of LatencyGate %s: %w", g.Name, err)
	}
	for name, v := range known { // They belong to the gate, whose selector selects them no longer.
		node, err := observe.Get[corev1.Node](ctx, api, "", name)
		if err != nil {
			return nil, fmt.Errorf("LatencyGate %s: %w", g.Name, err)
		}
		if node != nil && node.DeletionTimestamp.IsZero() && !v.Status.OfDeletedGate() {
			look(node, v)
		}
	}
	return changed, nil
}
