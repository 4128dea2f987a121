package cli

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/report"
)

// standing is what a verdict has come to.
type standing struct {
	// outcome is empty while there is no verdict.
	outcome v1alpha1.GateOutcome
	// open says that it may still become Pass or Fail without anybody's doing.
	open bool
	// baseline is the LatencyBenchmark for which it waits, if it does: open unless that one failed or does not exist.
	baseline string
	// message tells it to people, or what it waits for.
	message string
	// details are lines about the rules that did not pass, or the nodes.
	details []string
}

// String is the standing in a line, and one for each detail.
func (s standing) String() string {
	outcome := string(s.outcome)
	if outcome == "" {
		outcome = "not judged"
	}
	return strings.Join(append([]string{outcome + ": " + s.message}, s.details...), "\n  ")
}

// exitCode of a standing that is told as it is.
func (s standing) exitCode() int {
	switch s.outcome {
	case v1alpha1.GatePass:
		return exitPass
	case v1alpha1.GateFail:
		return exitFail
	}
	return exitInconclusive
}

// current is a condition that was written for the spec as it is now; nil when there is none.
func current(o client.Object, conditions []metav1.Condition, conditionType string) *metav1.Condition {
	c := meta.FindStatusCondition(conditions, conditionType)
	if c == nil || c.ObservedGeneration < o.GetGeneration() {
		return nil
	}
	return c
}

// benchmarkStanding is that of a LatencyBenchmark, by its condition Passed.
func benchmarkStanding(o client.Object) standing {
	b := o.(*v1alpha1.LatencyBenchmark)
	passed := current(b, b.Status.Conditions, v1alpha1.ConditionPassed)
	switch {
	case b.Spec.Gate == nil:
		return standing{outcome: v1alpha1.GateInconclusive, message: "it has no gate, so nothing is judged; give it rules in spec.gate"}
	case passed == nil && b.Finished():
		return standing{open: true, message: "everything is measured, and its gate is yet to be judged"}
	case passed == nil || passed.Reason == v1alpha1.ReasonNotJudged:
		return standing{open: true, message: report.Standing(b)}
	}
	s := standing{outcome: v1alpha1.GateInconclusive, message: passed.Message, details: notPassed(b.Status.Verdict)}
	switch {
	case passed.Status == metav1.ConditionTrue:
		s.outcome = v1alpha1.GatePass
	case passed.Status == metav1.ConditionFalse:
		s.outcome = v1alpha1.GateFail
	case passed.Reason == v1alpha1.ReasonBaselineNotComplete && b.Spec.Gate.Baseline != nil && b.Spec.Gate.Baseline.BenchmarkRef != nil:
		s.baseline = b.Spec.Gate.Baseline.BenchmarkRef.Name
	}
	return s
}

// gateStanding is that of a LatencyGate, by its condition Passed. Nodes of which nothing could be concluded stay so until
// somebody does something, and those that wait while the gate is suspended, or belong to another gate.
func gateStanding(o client.Object) standing {
	g := o.(*v1alpha1.LatencyGate)
	passed := current(g, g.Status.Conditions, v1alpha1.ConditionPassed)
	ready := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionReady)
	if passed == nil {
		return standing{open: true, message: "the operator has not looked at it as it is now; is it running?"}
	}
	s := standing{message: passed.Message}
	if ready != nil && ready.Status == metav1.ConditionFalse {
		s.message += fmt.Sprintf("; %s: %s", ready.Reason, ready.Message)
	}
	for _, n := range g.Status.NotVerified {
		s.details = append(s.details, fmt.Sprintf("%s: %s, %s", n.Name, n.State, n.Message))
	}
	n := g.Status.Nodes
	waiting := n.Unverified
	if g.Spec.Suspend {
		waiting = 0
	}
	switch {
	case passed.Status == metav1.ConditionTrue:
		s.outcome = v1alpha1.GatePass
	case passed.Status == metav1.ConditionFalse:
		s.outcome = v1alpha1.GateFail
	case passed.Reason != v1alpha1.ReasonNoNodes && waiting == 0 && n.Measuring == 0:
		s.outcome = v1alpha1.GateInconclusive
	default:
		s.open = true
	}
	return s
}

// stillOpen says whether a standing may change without anybody's doing, and looks at the baseline if it is what it waits
// for. One that is complete does not end the wait: the operator is about to judge again.
func (s standing) stillOpen(ctx context.Context, api client.Client, namespace string) (bool, error) {
	if s.baseline == "" {
		return s.open, nil
	}
	switch b, err := benchmarkNamed(ctx, api, namespace, s.baseline); {
	case isAbsent(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("looking at the baseline: %w", err)
	default:
		return !meta.IsStatusConditionFalse(b.Status.Conditions, v1alpha1.ConditionSucceeded), nil
	}
}

// notPassed are lines about the rules that did not pass, each with its message unless that is told already.
func notPassed(v *v1alpha1.Verdict) []string {
	if v == nil {
		return nil
	}
	var lines []string
	for _, r := range v.Rules {
		if r.Outcome == v1alpha1.GatePass {
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
