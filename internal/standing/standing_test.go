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
