package gate

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/sessions"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/text"
)

const maxChange = 160

func (w *world) remember(status *v1alpha1.LatencyVerificationStatus, peer string) {
	if len(w.measured) == 0 {
		return
	}
	changed := slices.DeleteFunc(slices.Clone(w.verification.Status.Changed), func(c v1alpha1.IdentityChange) bool { return c.Key == string(v1alpha1.IdentityBootID) })
	status.Recent = sessions.Remember(status.Recent, v1alpha1.MeasuredSession{
		Time: metav1.Time{Time: w.now}, BootID: w.bootID, Peer: peer, Change: text.Shorten(identity.Sentence(changed), maxChange), Levels: w.measured.Levels(),
	})
}

func (w *world) extend(status *v1alpha1.LatencyVerificationStatus) {
	if len(w.measured) == 0 {
		return
	}
	status.Reference = sessions.Extend(status.Reference, v1alpha1.ReferenceSession{
		Benchmark: status.Accepted.Benchmark, Time: metav1.Time{Time: w.now}, BootID: w.bootID, Peer: status.Accepted.Peer,
	}, w.measured, &w.gate.Status)
}

// group says whether the first session of a node is slower than those of its kind, or notes that there are too few of them.
func (w *world) group() (slower, note string) {
	kind := sessions.OfNode(w.verification).Class
	for key, level := range w.measured.Levels() {
		levels := sessions.Group(w.others, kind, key)
		ratio, known := sessions.SlowerThanGroup(level, levels, toleranceOf(w.gate.Spec.Template.Spec.Criteria, key))
		switch {
		case ratio > 0:
			return fmt.Sprintf("its first session is %.0f %% slower than those of %d nodes of its kind in %s", 100*(ratio-1), len(levels), key), ""
		case !known:
			note = "; too few nodes of its kind are known to say whether it is a slow boot"
		}
	}
	return "", note
}

// toleranceOf returns the smallest tolerance of the rules for a compared value.
func toleranceOf(c *v1alpha1.Criteria, key string) stats.Tolerance {
	smallest := stats.Tolerance(0)
	for _, r := range c.Rules {
		if !strings.HasSuffix(key, "/"+string(r.Metric)) {
			continue
		}
		if thousandths, err := cmp.Or(r.MaxIncrease, r.MaxDecrease).Thousandths(); err == nil && (smallest == 0 || stats.Tolerance(thousandths) < smallest) {
			smallest = stats.Tolerance(thousandths)
		}
	}
	return smallest
}

// pool sets how much sessions differ, and what the last changes did to all nodes. A change that made all nodes slower shows in no single
// node for certain; it never changes the state of a node.
func (s *snapshot) pool() {
	all := make([]sessions.Node, 0, len(s.Verifications))
	for _, v := range s.Verifications {
		all = append(all, sessions.OfNode(v))
	}
	status := &s.Gate.Status
	status.Spread, status.Changes = sessions.Spread(all), sessions.Changes(all)
	if len(status.Changes) == 0 || status.Changes[0].Lower == "" {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionChangeShifted)
		return
	}
	last := status.Changes[0]
	c := v1alpha1.Condition(v1alpha1.ConditionChangeShifted, metav1.ConditionFalse, v1alpha1.ReasonWithinLimit, fmt.Sprintf(
		"%s: %s of %d nodes is %s times as much as before [%s, %s]", last.Change, last.Of, last.Nodes, last.Median, last.Lower, last.Upper))
	if sessions.Shifted(status.Changes, toleranceOf(s.Gate.Spec.Template.Spec.Criteria, last.Of)) {
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonChangeShifted
		c.Message += ", more than half of the tolerance; undo the change, or accept the results of the nodes: annotation " + v1alpha1.AnnotationAccept
	}
	s.Gate.SetCondition(c)
}
