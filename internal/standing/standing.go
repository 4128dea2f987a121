// Package standing says what the verdict on an object has come to, the same to the command line and over HTTP.
package standing

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/summary"
)

// Standing is what a verdict has come to.
type Standing struct {
	// Outcome is empty while there is no verdict.
	Outcome v1alpha1.VerdictOutcome
	// Open says that it may still become Pass or Fail without a user's action.
	Open bool
	// Baseline is the LatencyBenchmark, or BaselineMatrix the LatencyMatrix, for which it waits, if it does: open unless that
	// one failed or does not exist.
	Baseline, BaselineMatrix string
	// Reason is one word, that of a condition or state of the object where there is one.
	Reason string
	// Message tells it to people, or what it waits for.
	Message string
	// Details are lines about the rules that did not pass, or the nodes.
	Details []string
}

// Reasons that no condition has.
const (
	// ReasonNoCriteria is for a benchmark without rules.
	ReasonNoCriteria = "NoCriteria"
	// ReasonNotObserved is for an object that the operator has not looked at as it is now.
	ReasonNotObserved = "NotObserved"
)

// String is the standing in a line, and one for each detail.
func (s Standing) String() string {
	outcome := string(s.Outcome)
	if outcome == "" {
		outcome = "not judged"
	}
	return strings.Join(append([]string{outcome + ": " + s.Message}, s.Details...), "\n  ")
}

// current is a condition that was written for the spec as it is now; nil when there is none.
func current(o client.Object, conditions []metav1.Condition, conditionType string) *metav1.Condition {
	c := meta.FindStatusCondition(conditions, conditionType)
	if c == nil || c.ObservedGeneration < o.GetGeneration() {
		return nil
	}
	return c
}

// OfBenchmark is that of a LatencyBenchmark, by its condition Passed.
func OfBenchmark(b *v1alpha1.LatencyBenchmark) Standing {
	passed := current(b, b.Status.Conditions, v1alpha1.ConditionPassed)
	switch {
	case b.Spec.Criteria == nil:
		return Standing{Outcome: v1alpha1.VerdictInconclusive, Reason: ReasonNoCriteria, Message: "it has no criteria, so there is no verdict; add rules to spec.criteria"}
	case b.Spec.Suspend && !b.Finished():
		// It does not change without a user's action.
		return Standing{Reason: v1alpha1.ReasonNotJudged, Message: summary.Standing(b)}
	case passed == nil && b.Finished():
		return Standing{Open: true, Reason: v1alpha1.ReasonNotJudged, Message: "all runs are measured, but the rules are not evaluated yet"}
	case passed == nil || passed.Reason == v1alpha1.ReasonNotJudged:
		return Standing{Open: true, Reason: v1alpha1.ReasonNotJudged, Message: summary.Standing(b)}
	}
	s := Standing{Outcome: v1alpha1.VerdictInconclusive, Reason: passed.Reason, Message: passed.Message, Details: notPassed(b.Status.Verdict)}
	switch {
	case passed.Status == metav1.ConditionTrue:
		s.Outcome = v1alpha1.VerdictPass
	case passed.Status == metav1.ConditionFalse:
		s.Outcome = v1alpha1.VerdictFail
	case passed.Reason == v1alpha1.ReasonBaselineNotComplete:
		s.Baseline, s.BaselineMatrix = b.Spec.Criteria.BaselineBenchmark(), b.Spec.Criteria.BaselineMatrix()
	}
	return s
}

// OfGate is that of a LatencyGate, by its condition Passed. Nodes of which nothing could be concluded stay so until
// a user acts, and those that wait while the gate is suspended, or belong to another gate.
func OfGate(g *v1alpha1.LatencyGate) Standing {
	passed := current(g, g.Status.Conditions, v1alpha1.ConditionPassed)
	ready := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionReady)
	if passed == nil {
		return Standing{Open: true, Reason: ReasonNotObserved, Message: "the operator has not processed its present spec; is it running?"}
	}
	s := Standing{Reason: passed.Reason, Message: passed.Message}
	if ready != nil && ready.Status == metav1.ConditionFalse {
		s.Message += fmt.Sprintf("; %s: %s", ready.Reason, ready.Message)
	}
	for _, n := range g.Status.NotVerified {
		s.Details = append(s.Details, fmt.Sprintf("%s: %s, %s", n.Name, n.State, n.Message))
	}
	n := g.Status.Nodes
	waiting := n.Unverified
	if g.Spec.Suspend {
		waiting = 0
	}
	switch {
	case passed.Status == metav1.ConditionTrue:
		s.Outcome = v1alpha1.VerdictPass
	case passed.Status == metav1.ConditionFalse:
		s.Outcome = v1alpha1.VerdictFail
	case passed.Reason != v1alpha1.ReasonNoNodes && waiting == 0 && n.Measuring == 0:
		s.Outcome = v1alpha1.VerdictInconclusive
	default:
		s.Open = true
	}
	return s
}

// OfVerification is that of a node with its gate. This does not cover why one waits: whether its gate is suspended, or
// has a peer for it, is reported by the gate.
func OfVerification(v *v1alpha1.LatencyVerification) Standing {
	verified := v.Status.Verified()
	s := Standing{Reason: verified.Reason, Message: verified.Message}
	switch v.Status.State {
	case v1alpha1.VerificationVerified:
		s.Outcome = v1alpha1.VerdictPass
	case v1alpha1.VerificationFailed:
		s.Outcome = v1alpha1.VerdictFail
	case v1alpha1.VerificationInconclusive:
		s.Outcome = v1alpha1.VerdictInconclusive
	default:
		s.Open = true
		s.Reason = cmp.Or(s.Reason, ReasonNotObserved)
		s.Message = cmp.Or(s.Message, "the operator has not processed it yet; is it running?")
	}
	return s
}

// notPassed are lines about the rules that did not pass, each with its message unless that is reported already.
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
