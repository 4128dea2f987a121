package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
)

// errDropped is the outcome of a write that the API server accepted without the mark.
var errDropped = errors.New("the API server accepted the write and dropped the mark; does a mutating webhook or policy remove it?")

const (
	// contestWindow is the time in which contestLimit changes of a mark by other clients are a contest.
	contestWindow, contestLimit = time.Minute, 5
)

// mark writes the marks of a Node and records in the status which of them failed, and when they are tried again. It returns when to
// look again, or a conflict.
func (r *Verifications) mark(ctx context.Context, node *corev1.Node, v *v1alpha1.LatencyVerification, p publication) (time.Duration, error) {
	now := r.Clock.Now()
	b := publisher{API: r.API, p: p, now: metav1.Time{Time: now}}
	for _, m := range marks {
		if last := setbackOf(v, m); ofMark.left(last, now) == 0 {
			b.marks = append(b.marks, m)
		}
	}
	conflict := b.publish(ctx, node)
	b.tell(ctx, node, v)
	var again time.Duration
	var setbacks []v1alpha1.MarkSetback
	for _, m := range marks {
		err, tried := b.outcomes[m]
		last, what := setbackOf(v, m), strings.ToLower(string(m))
		var next *v1alpha1.Setback
		fails := func(reason, format string, args ...any) {
			next = ofMark.setback(last, reason, fmt.Sprintf(format, args...), now)
		}
		switch undone := tried && err == nil && r.contests.wrote(node.UID, m, p.value(m), now); {
		case errors.Is(err, errDropped):
			fails(v1alpha1.ReasonNodeWriteDropped, "%s of node %s: %v", what, node.Name, err)
		case err != nil:
			fails(v1alpha1.ReasonNodeRefused, "the API server refuses to change the %s of node %s: %v", what, node.Name, err)
		case undone, tried && last != nil && last.Reason == v1alpha1.ReasonNodeContested:
			fails(v1alpha1.ReasonNodeContested, "another client, %s, repeatedly changes the %s of node %s back; configure it to leave %s alone",
				otherManager(node, m), what, node.Name, markNames[m])
		case !tried && last != nil && (!p.has(node, m) || last.Reason == v1alpha1.ReasonNodeContested && now.Sub(last.RetryTime.Time) < contestWindow):
			next = last
		}
		if next != nil {
			setbacks = append(setbacks, v1alpha1.MarkSetback{Mark: m, Setback: *next})
			again = controllers.Soonest(again, cmp.Or(ofMark.left(next, now), contestWindow))
		}
	}
	v.Status.MarkSetbacks = setbacks
	return again, conflict
}

// markNames are the names of the marks on a Node.
var markNames = map[v1alpha1.NodeMark]string{
	v1alpha1.MarkCondition: "condition " + v1alpha1.NodeConditionVerified,
	v1alpha1.MarkLabel:     "label " + v1alpha1.NodeLabelVerified,
	v1alpha1.MarkTaint:     "taint " + v1alpha1.NodeTaintUnverified,
}

// tell logs the marks that were written to a Node, given as it was before, and says on the Node when it is held back or released.
func (b *publisher) tell(ctx context.Context, node *corev1.Node, v *v1alpha1.LatencyVerification) {
	before, verified, failed := marksOf(node), v.Status.Verified(), false
	for _, m := range marks {
		err, tried := b.outcomes[m]
		failed = failed || err != nil
		if tried && err == nil {
			log.FromContext(ctx).Info("mark written", "mark", markNames[m], "from", before.value(m), "to", b.p.value(m), "state", v.Status.State,
				"because", verified.Reason, "message", verified.Message)
		}
	}
	held := before.holdsBack() || before.taint != nil
	if held == b.p.holdsBack() || failed || len(b.outcomes) == 0 {
		return
	}
	notice := controllers.Notice{Type: corev1.EventTypeNormal, Reason: v1alpha1.ReasonNodeReleased, Action: "Release", Related: v,
		Message: fmt.Sprintf("released by LatencyGate %s: %s", v.Spec.GateName, verified.Message)}
	if !held {
		notice.Type, notice.Reason, notice.Action = corev1.EventTypeWarning, v1alpha1.ReasonNodeHeld, "Hold"
		notice.Message = fmt.Sprintf("held back by LatencyGate %s until its latency is verified: %s", v.Spec.GateName, verified.Message)
	}
	b.Tell(ctx, node, notice)
}

// marksOf returns the marks that a Node has.
func marksOf(node *corev1.Node) publication {
	p := publication{condition: nodeCondition(node, v1alpha1.NodeConditionVerified), label: node.Labels[v1alpha1.NodeLabelVerified]}
	if i := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.NodeTaintUnverified }); i >= 0 {
		p.taint = &node.Spec.Taints[i]
	}
	return p
}

// setbackOf returns the setback of a mark; nil if there is none.
func setbackOf(v *v1alpha1.LatencyVerification, mark v1alpha1.NodeMark) *v1alpha1.Setback {
	for i := range v.Status.MarkSetbacks {
		if v.Status.MarkSetbacks[i].Mark == mark {
			return &v.Status.MarkSetbacks[i].Setback
		}
	}
	return nil
}

// retryMarks lets the marks, and the hold pod, that must change now be tried at once.
func retryMarks(v *v1alpha1.LatencyVerification, before, after publication, now time.Time) {
	for i := range v.Status.MarkSetbacks {
		if s := &v.Status.MarkSetbacks[i]; before.value(s.Mark) != after.value(s.Mark) {
			s.RetryTime = metav1.Time{Time: now}
		}
	}
	if s := v.Status.HoldPodSetback; s != nil && s.Reason == v1alpha1.ReasonHoldPodRefused && before.holdsBack() != after.holdsBack() {
		s.RetryTime = metav1.Time{Time: now}
	}
}

// markNotices returns the events about marks that failed, or failed for another reason, about the Node.
func markNotices(old, v *v1alpha1.LatencyVerification) []controllers.Notice {
	var all []controllers.Notice
	for _, s := range v.Status.MarkSetbacks {
		if before := setbackOf(old, s.Mark); before == nil || before.Reason != s.Reason {
			all = append(all, controllers.Notice{Type: corev1.EventTypeWarning, Reason: s.Reason, Action: "Mark" + string(s.Mark), Message: s.Message, Related: v})
		}
	}
	return all
}

// otherManager returns the field manager that last changed a mark of a Node, other than the gate; if none is recorded for the mark,
// the one that changed the Node last.
func otherManager(node *corev1.Node, mark v1alpha1.NodeMark) string {
	field := map[v1alpha1.NodeMark]string{
		v1alpha1.MarkCondition: v1alpha1.NodeConditionVerified, v1alpha1.MarkLabel: `"f:` + v1alpha1.NodeLabelVerified, v1alpha1.MarkTaint: `"f:taints"`,
	}[mark]
	var found, last *metav1.ManagedFieldsEntry
	newer := func(e, than *metav1.ManagedFieldsEntry) bool {
		return than == nil || than.Time == nil || e.Time != nil && !e.Time.Before(than.Time)
	}
	for i := range node.ManagedFields {
		e := &node.ManagedFields[i]
		if e.Manager == string(fieldManager) {
			continue
		}
		if newer(e, last) {
			last = e
		}
		if e.FieldsV1 != nil && strings.Contains(e.FieldsV1.GetRawString(), field) && newer(e, found) {
			found = e
		}
	}
	if e := cmp.Or(found, last); e != nil {
		return "perhaps " + e.Manager
	}
	return "which the managed fields do not name"
}

// contests counts how often other clients change marks back. It is only in memory: a manager that starts counts from zero.
type contests struct {
	sync.Mutex
	written map[contested]*contest
}

// contested is a mark of a Node, and contest what was last written there, and when that was found changed.
type (
	contested struct {
		node types.UID
		mark v1alpha1.NodeMark
	}
	contest struct {
		value  string
		undone []time.Time
	}
)

// wrote notes that a value was written to a mark. It reports whether other clients have changed this value back too often.
func (c *contests) wrote(node types.UID, mark v1alpha1.NodeMark, value string, now time.Time) bool {
	c.Lock()
	defer c.Unlock()
	if c.written == nil {
		c.written = map[contested]*contest{}
	}
	key := contested{node, mark}
	before := c.written[key]
	if before == nil || before.value != value {
		c.written[key] = &contest{value: value}
		return false
	}
	before.undone = append(slices.DeleteFunc(before.undone, func(t time.Time) bool { return now.Sub(t) >= contestWindow || t.After(now) }), now)
	return len(before.undone) >= contestLimit
}

// forget removes what was written to a Node.
func (c *contests) forget(node types.UID) {
	c.Lock()
	defer c.Unlock()
	for _, mark := range marks {
		delete(c.written, contested{node, mark})
	}
}
