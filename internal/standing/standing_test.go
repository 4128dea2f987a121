package standing

import (
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// A suspended benchmark gets no verdict until a user resumes it. But a matrix fails when its first pair fails, also if it is then
// suspended.
func TestOfSuspended(t *testing.T) {
	for name, c := range map[string]struct {
		passed metav1.Condition
		want   Standing
	}{
		"not judged": {
			v1alpha1.Condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonNotJudged, "the rules are evaluated later"),
			Standing{Reason: v1alpha1.ReasonNotJudged, Message: "Suspended (suspended)"},
		},
		"judged for an earlier spec": {
			metav1.Condition{Type: v1alpha1.ConditionPassed, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonFail, ObservedGeneration: -1},
			Standing{Reason: v1alpha1.ReasonNotJudged, Message: "Suspended (suspended)"},
		},
		"failed": {
			v1alpha1.Condition(v1alpha1.ConditionPassed, metav1.ConditionFalse, v1alpha1.ReasonFail, "mesh-p1: too slow"),
			Standing{Outcome: v1alpha1.VerdictFail, Reason: v1alpha1.ReasonFail, Message: "mesh-p1: too slow"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := &v1alpha1.LatencyMatrix{}
			m.Spec.Suspend, m.Spec.Template.Spec.Criteria = true, &v1alpha1.Criteria{}
			m.Status.Conditions = []metav1.Condition{
				v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonBenchmarkSuspended, "suspended"), c.passed,
			}
			if got := OfBenchmark(m.Overview()); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// With some reasons of Operational, no node is verified without a user: if all wait, waiting is of no use.
func TestOfGateThatCannotVerify(t *testing.T) {
	for name, c := range map[string]struct {
		operational string
		nodes       v1alpha1.NodeCounts
		want        v1alpha1.VerdictOutcome // empty: open
	}{
		"all nodes are unverified":               {v1alpha1.ReasonDevicesWithheld, v1alpha1.NodeCounts{Total: 2, Unverified: 2}, v1alpha1.VerdictInconclusive},
		"all nodes are unverified or away":       {v1alpha1.ReasonRuleUndecidable, v1alpha1.NodeCounts{Total: 2, Unverified: 1, Away: 1}, v1alpha1.VerdictInconclusive},
		"others were verified before":            {v1alpha1.ReasonDevicesWithheld, v1alpha1.NodeCounts{Total: 3, Verified: 1, Unverified: 2}, ""},
		"another node is measured":               {v1alpha1.ReasonTemplateTooLong, v1alpha1.NodeCounts{Total: 3, Measuring: 1, Unverified: 2}, ""},
		"the reason passes by":                   {v1alpha1.ReasonBenchmarkRefused, v1alpha1.NodeCounts{Total: 2, Unverified: 2}, ""},
		"the nodes that wait can be measured":    {v1alpha1.ReasonOperational, v1alpha1.NodeCounts{Total: 2, Unverified: 2}, ""},
		"the nodes that wait cannot be measured": {v1alpha1.ReasonOperational, v1alpha1.NodeCounts{Total: 2, Unverified: 2, Unmeasurable: 2}, v1alpha1.VerdictInconclusive},
	} {
		g := &v1alpha1.LatencyGate{}
		g.Status.Nodes, g.Status.Conditions = c.nodes, []metav1.Condition{
			v1alpha1.Condition(v1alpha1.ConditionOperational, metav1.ConditionFalse, c.operational, "because"),
			v1alpha1.Condition(v1alpha1.ConditionPassed, metav1.ConditionFalse, v1alpha1.ReasonTooManyUnverified, "too many"),
		}
		if got := OfGate(g); got.Outcome != c.want || got.Open != (c.want == "") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
