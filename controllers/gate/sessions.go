package gate

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/sessions"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

func (w *world) remember(status *v1alpha1.LatencyVerificationStatus, b *v1alpha1.LatencyBenchmark, peer string, accepted bool) {
	if s := b.Status.Session; s != nil && len(s.Rounds) > 0 {
		status.Recent = sessions.Remember(status.Recent, v1alpha1.MeasuredSession{
			Time: metav1.Time{Time: w.now}, BootID: s.BootID, Peer: peer,
			Identity: identity.Kept(status.Identity), Accepted: accepted, Levels: sessions.Levels(s.Rounds),
		})
	}
}

func (w *world) extend(status *v1alpha1.LatencyVerificationStatus, b *v1alpha1.LatencyBenchmark) {
	if s := b.Status.Session; s != nil && len(s.Rounds) > 0 {
		status.Reference = sessions.Extend(status.Reference, v1alpha1.ReferenceSession{
			Benchmark: status.Accepted.Benchmark, Time: metav1.Time{Time: w.now}, BootID: s.BootID, Peer: status.Accepted.Peer, Rounds: s.Rounds,
		}, &w.gate.Status)
	}
}

// first says whether a node's first session is slower than that of its machine under another name,
// or than its group's, or that these are too few.
func (w *world) first(session []v1alpha1.ValueLevel, tolerances sessions.Tolerances) (slower, note string) {
	if slower = w.former(session, tolerances); slower != "" {
		return slower, ""
	}
	return w.group(session, tolerances)
}

// former compares with the machine under another name; it also says if nothing can be compared.
func (w *world) former(session []v1alpha1.ValueLevel, tolerances sessions.Tolerances) (slower string) {
	for _, v := range w.formers {
		known, compared := sessions.OfNode(v), false
		for _, own := range session {
			was, tolerance := sessions.Group([]sessions.Node{known}, known.Group, own.ComparedValue), tolerances[own.ComparedValue]
			if len(was) == 0 || was[0] == 0 {
				continue
			}
			compared = true
			if ratio := float64(own.Level) / float64(was[0]); ratio > tolerance.Above().Float64() {
				return fmt.Sprintf("its machine was node %s of this gate (the same system UUID), and is %.0f %% slower than there in %s", v.Spec.NodeName, 100*(ratio-1), own.ComparedValue)
			}
		}
		if !compared && !v.Status.State.Passed() {
			return fmt.Sprintf("its machine was node %s of this gate (the same system UUID), which is %s", v.Spec.NodeName, v.Status.State)
		}
	}
	return ""
}

func (w *world) group(session []v1alpha1.ValueLevel, tolerances sessions.Tolerances) (slower, note string) {
	group := sessions.OfNode(w.verification).Group
	for _, own := range session {
		tolerance, compared := tolerances[own.ComparedValue]
		levels := sessions.Group(w.others, group, own.ComparedValue)
		ratio, known := sessions.SlowerThanGroup(own.Level, levels, tolerance)
		switch {
		case !compared:
		case ratio > 0:
			return fmt.Sprintf("its first session is %.0f %% slower than those of %d nodes of its group in %s", 100*(ratio-1), len(levels), own.ComparedValue), ""
		case !known:
			note = "; too few nodes of its group are known to say whether it is a slow boot"
		}
	}
	return "", note
}

// pool sets how much sessions differ and what changes did to all nodes, which no single node may
// show. It never changes the state of a node.
func (s *snapshot) pool() {
	all := make([]sessions.Node, 0, len(s.Verifications))
	for _, v := range s.Verifications {
		all = append(all, sessions.OfNode(v))
	}
	status, tolerances := &s.Gate.Status, turns.Tolerances(s.Gate.Spec.Template.Benchmark())
	status.Spread, status.Changes = sessions.Spread(all), sessions.Fleet(all, tolerances)
	last := sessions.Decisive(status.Changes)
	if last == nil {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionChangeShifted)
		return
	}
	c := v1alpha1.Condition(v1alpha1.ConditionChangeShifted, metav1.ConditionFalse, v1alpha1.ReasonWithinLimit, fmt.Sprintf(
		"%s: %s of %d nodes is %s times as much as before [%s, %s]", identity.Sentence(last.Changed), last.Of, last.Nodes, last.Median, last.Lower, last.Upper))
	if last.Shifted {
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonChangeShifted
		c.Message += ", more than half of the tolerance; undo the change, or accept the results of the nodes: " + v1alpha1.FieldAccept
	}
	s.Gate.SetCondition(c)
}
