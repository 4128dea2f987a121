package standing

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// maxMessage is the maximum length of a message of condition Ready, in bytes. Another condition has the whole message.
const maxMessage = 512

// Publish sets the conditions Ready, Reconciling and Stalled of an object with a generation, as kstatus defines them. Reconciling
// and Stalled are absent rather than False.
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

// OfMeasurement returns the standing from which the conditions of a LatencyBenchmark, or of the overview of a LatencyMatrix, are
// published. Without criteria there is no verdict to wait for: it passes when every run was measured.
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

// lasting are the reasons of condition Accepted that depend only on the spec and on the settings of the operator: a change of the
// cluster does not remove them.
var lasting = []string{
	v1alpha1.ReasonCellUnsupported, v1alpha1.ReasonPercentileOutOfReach, v1alpha1.ReasonRuleUndecidable, v1alpha1.ReasonCaptureForbidden,
	v1alpha1.ReasonHostNetworkForbidden,
	v1alpha1.ReasonNetworkNamespaceForbidden, v1alpha1.ReasonOccupationTooLong, v1alpha1.ReasonAccelerationUnsupported,
}

// refused reports whether a benchmark is not accepted until a user changes its spec or the settings of the operator.
func refused(b *v1alpha1.LatencyBenchmark) bool {
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionAccepted)
	return c != nil && c.Status == metav1.ConditionFalse && slices.Contains(lasting, c.Reason) && b.Status.Active == nil
}
