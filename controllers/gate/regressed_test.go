package gate

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

// Only a Fail that a second peer confirms is a problem of the node that a tool may repair. A node that waits, is
// measured, is inconclusive, or failed with the only peer is not.
func TestRegressed(t *testing.T) {
	failed, passed := measured(metav1.ConditionFalse, v1alpha1.ReasonFail), measured(metav1.ConditionTrue, v1alpha1.ReasonPass)
	was := func(state v1alpha1.VerificationState, confirmed bool) func(*world) {
		return status(func(s *v1alpha1.LatencyVerificationStatus) { s.State, s.FailConfirmed = state, confirmed })
	}
	for name, c := range map[string]struct {
		change func(*world)
		want   corev1.ConditionStatus
	}{
		"with a verified peer, and another":       {failed, corev1.ConditionFalse},
		"with two verified peers":                 {all(failed, suspected), corev1.ConditionTrue},
		"with the only peer, verified":            {all(failed, func(w *world) { w.otherPeer = false }), corev1.ConditionFalse},
		"with the only peer, without a reference": {all(failed, otherPeer, func(w *world) { w.otherPeer = false }), corev1.ConditionFalse},
		"with a second peer":                      {all(failed, peerNotVerified, suspected), corev1.ConditionTrue},
		"with a peer that is not verified":        {all(failed, peerNotVerified), corev1.ConditionFalse},
		"with the only peer":                      {all(failed, peerNotVerified, func(w *world) { w.otherPeer = false }), corev1.ConditionFalse},
		"a pass":                                  {passed, corev1.ConditionFalse},
		"an inconclusive result":                  {measured(metav1.ConditionUnknown, v1alpha1.ReasonInconclusive), corev1.ConditionFalse},
		"a confirmed Fail, later":                 {was(v1alpha1.VerificationFailed, true), corev1.ConditionTrue},
		"a Fail that was not confirmed":           {was(v1alpha1.VerificationFailed, false), corev1.ConditionFalse},
		"a failed node that was booted":           {all(was(v1alpha1.VerificationFailed, true), booted), corev1.ConditionFalse},
		"a failed node, measured on request":      {all(was(v1alpha1.VerificationFailed, true), asksVerify), corev1.ConditionFalse},
	} {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(c.change)
			next, err := w.next(decide(w))
			if err != nil {
				t.Fatal(err)
			}
			v := w.verification.DeepCopy()
			v.Status = next
			p := turns.PublicationOf(w.gate, v)
			if p.Regressed.Status != c.want || (p.Regressed.Message != "") != (c.want == corev1.ConditionTrue) {
				t.Errorf("state %s: %+v", next.State, p.Regressed)
			}
			node := p.On(makeNode("a"))
			node.Status.Conditions[len(node.Status.Conditions)-1].Reason = "Other"
			if p.IsOn(node) {
				t.Error("a condition that another client changed is not set again")
			}
		})
	}
}
