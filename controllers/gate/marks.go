package gate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/queue"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

type publisher struct {
	controllers.API
	marks    []v1alpha1.NodeMark // the marks that it may write
	p        turns.Publication
	now      metav1.Time
	outcomes map[v1alpha1.NodeMark]error // nil, or an error, of the marks that it tried to write
}

const fieldManager = client.FieldOwner("tailgate-gate")

// publish writes each mark by itself: a taint before the condition, and off after it, so that no
// pod is admitted while the condition is False. A release is written only to the version that was
// read: another gate may hold the node by now. It returns a conflict; other errors are outcomes.
func (b *publisher) publish(ctx context.Context, node *corev1.Node) error {
	b.outcomes = map[v1alpha1.NodeMark]error{}
	if b.p.HoldsBack() {
		conflict := b.publishMetadata(ctx, node)
		_, err := b.publishCondition(ctx, node, "")
		return cmp.Or(conflict, err)
	}
	node, err := b.publishCondition(ctx, node, node.ResourceVersion)
	if err != nil {
		return err
	}
	return b.publishMetadata(ctx, node)
}

// record notes the outcome of a write, and returns a conflict. A Node that is gone needs no marks.
func (b *publisher) record(mark v1alpha1.NodeMark, written *corev1.Node, err error) error {
	switch {
	case apierrors.IsConflict(err):
		return err
	case apierrors.IsNotFound(err):
	case err == nil && !b.p.Has(written, mark):
		b.outcomes[mark] = errDropped
	default:
		b.outcomes[mark] = err
	}
	return nil
}

// publishMetadata writes label and taint; if refused together, each alone.
func (b *publisher) publishMetadata(ctx context.Context, node *corev1.Node) error {
	wanted := slices.DeleteFunc([]v1alpha1.NodeMark{v1alpha1.MarkLabel, v1alpha1.MarkTaint}, func(mark v1alpha1.NodeMark) bool {
		return !slices.Contains(b.marks, mark) || b.p.Has(node, mark)
	})
	if len(wanted) == 0 {
		return nil
	}
	groups := [][]v1alpha1.NodeMark{wanted}
	for i := 0; i < len(groups); i++ {
		group := groups[i]
		written, err := b.writeMetadata(ctx, node, group)
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && len(group) > 1 {
			groups = append(groups, group[:1], group[1:])
			continue
		}
		for _, mark := range group {
			if conflict := b.record(mark, written, err); conflict != nil {
				return conflict
			}
		}
		if err == nil && written.ResourceVersion != "" {
			node = written
		}
	}
	return nil
}

// writeMetadata writes label and taint to the version that was read: taints are a list to be
// replaced. A write that holds back is repeated after a conflict: Nodes have many other writers.
func (b *publisher) writeMetadata(ctx context.Context, node *corev1.Node, group []v1alpha1.NodeMark) (*corev1.Node, error) {
	current, written := node, &corev1.Node{}
	again := func(err error) bool { return b.p.HoldsBack() && apierrors.IsConflict(err) }
	err := retry.OnError(retry.DefaultBackoff, again, func() error {
		if current == nil {
			current = &corev1.Node{}
			if err := b.Live.Get(ctx, client.ObjectKeyFromObject(node), current); err != nil {
				return err
			}
		}
		metadata := map[string]any{"resourceVersion": current.ResourceVersion}
		patch := map[string]any{"metadata": metadata}
		for _, mark := range group {
			if mark == v1alpha1.MarkTaint {
				patch["spec"] = map[string]any{"taints": b.p.Taints(current)}
				continue
			}
			var value any
			if b.p.Label != "" {
				value = b.p.Label
			}
			metadata["labels"] = map[string]any{v1alpha1.NodeLabelVerified: value}
		}
		data, err := json.Marshal(patch)
		if err != nil {
			return fmt.Errorf("encoding label and taint: %w", err)
		}
		current, written = nil, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
		return b.Client.Patch(ctx, written, client.RawPatch(types.MergePatchType, data), fieldManager)
	})
	return written, err
}

// publishCondition writes the conditions, to the given version if any, and returns the Node.
func (b *publisher) publishCondition(ctx context.Context, node *corev1.Node, version string) (*corev1.Node, error) {
	wanted := b.p.Conditions(node, b.now)
	if !slices.Contains(b.marks, v1alpha1.MarkCondition) || len(wanted) == 0 {
		return node, nil
	}
	var all []any
	for kind, want := range wanted {
		if want == nil {
			all = append(all, map[string]any{"type": kind, "$patch": "delete"})
			continue
		}
		// The type leaves out an empty message, and the merge would keep the old one.
		all = append(all, map[string]any{
			"type": kind, "status": want.Status, "reason": want.Reason, "message": want.Message, "lastHeartbeatTime": want.LastHeartbeatTime, "lastTransitionTime": want.LastTransitionTime,
		})
	}
	patch := map[string]any{"status": map[string]any{"conditions": all}}
	if version != "" {
		patch["metadata"] = map[string]any{"resourceVersion": version}
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return node, fmt.Errorf("encoding a condition: %w", err)
	}
	written := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	err = b.Client.Status().Patch(ctx, written, client.RawPatch(types.StrategicMergePatchType, data), fieldManager)
	if conflict := b.record(v1alpha1.MarkCondition, written, err); conflict != nil || err != nil {
		return node, conflict
	}
	return written, nil
}

var errDropped = errors.New("the API server accepted the write and dropped the mark; does a mutating webhook or policy remove it?")

const (
	// contestLimit changes by others within contestWindow are a contest.
	contestWindow, contestLimit = time.Minute, 5
)

func (r *Verifications) mark(ctx context.Context, node *corev1.Node, v *v1alpha1.LatencyVerification, p turns.Publication) (time.Duration, error) {
	now := r.Clock.Now()
	b := publisher{API: r.API, p: p, now: metav1.Time{Time: now}}
	for _, m := range turns.Marks {
		if last := stepFailureOf(v, m); turns.OfMark.Left(last, now) == 0 {
			b.marks = append(b.marks, m)
		}
	}
	conflict := b.publish(ctx, node)
	b.tell(ctx, node, v)
	var again time.Duration
	var stepFailures []v1alpha1.MarkFailure
	for _, m := range turns.Marks {
		err, tried := b.outcomes[m]
		last, what := stepFailureOf(v, m), strings.ToLower(string(m))
		var next *v1alpha1.StepFailure
		fails := func(reason, format string, args ...any) {
			next = turns.OfMark.StepFailure(last, reason, fmt.Sprintf(format, args...), now)
		}
		switch undone := tried && err == nil && r.Memory.contests.wrote(node.UID, m, p.Value(m), now); {
		case errors.Is(err, errDropped):
			fails(v1alpha1.ReasonNodeWriteDropped, "%s of node %s: %v", what, node.Name, err)
		case err != nil:
			fails(v1alpha1.ReasonNodeRefused, "the API server refuses to change the %s of node %s: %v", what, node.Name, err)
		case undone, tried && last != nil && last.Reason == v1alpha1.ReasonNodeContested:
			fails(v1alpha1.ReasonNodeContested, "another client, %s, repeatedly changes the %s of node %s back; configure it to leave %s alone",
				otherManager(node, m), what, node.Name, markNames[m])
		case !tried && last != nil && (!p.Has(node, m) || last.Reason == v1alpha1.ReasonNodeContested && now.Sub(last.RetryTime.Time) < contestWindow):
			next = last
		}
		if next != nil {
			stepFailures = append(stepFailures, v1alpha1.MarkFailure{Mark: m, StepFailure: *next})
			again = queue.Soonest(again, cmp.Or(turns.OfMark.Left(next, now), contestWindow))
		}
	}
	v.Status.MarkFailures = stepFailures
	return again, conflict
}

var markNames = map[v1alpha1.NodeMark]string{
	v1alpha1.MarkCondition: "condition " + v1alpha1.NodeConditionVerified,
	v1alpha1.MarkLabel:     "label " + v1alpha1.NodeLabelVerified,
	v1alpha1.MarkTaint:     "taint " + v1alpha1.NodeTaintUnverified,
}

// tell logs the marks written to a Node, given as it was, and says there when it is held or freed.
func (b *publisher) tell(ctx context.Context, node *corev1.Node, v *v1alpha1.LatencyVerification) {
	before, verified, failed := marksOf(node), v.Status.Verified(), false
	for _, m := range turns.Marks {
		err, tried := b.outcomes[m]
		failed = failed || err != nil
		if tried && err == nil {
			log.FromContext(ctx).Info("mark written", "mark", markNames[m], "from", before.Value(m), "to", b.p.Value(m), "state", v.Status.State,
				"because", verified.Reason, "message", verified.Message)
		}
	}
	held := before.HoldsBack() || before.Taint != nil
	if held == b.p.HoldsBack() || failed || len(b.outcomes) == 0 {
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

func marksOf(node *corev1.Node) turns.Publication {
	p := turns.Publication{Condition: turns.NodeCondition(node, v1alpha1.NodeConditionVerified), Label: node.Labels[v1alpha1.NodeLabelVerified]}
	if i := slices.IndexFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.NodeTaintUnverified }); i >= 0 {
		p.Taint = &node.Spec.Taints[i]
	}
	return p
}

func stepFailureOf(v *v1alpha1.LatencyVerification, mark v1alpha1.NodeMark) *v1alpha1.StepFailure {
	for i := range v.Status.MarkFailures {
		if v.Status.MarkFailures[i].Mark == mark {
			return &v.Status.MarkFailures[i].StepFailure
		}
	}
	return nil
}

// retryMarks lets the marks that must change, and the hold pod, be tried at once.
func retryMarks(v *v1alpha1.LatencyVerification, before, after turns.Publication, now time.Time) {
	for i := range v.Status.MarkFailures {
		if s := &v.Status.MarkFailures[i]; before.Value(s.Mark) != after.Value(s.Mark) {
			s.RetryTime = metav1.Time{Time: now}
		}
	}
	if s := v.Status.HoldPodFailure; s != nil && s.Reason == v1alpha1.ReasonHoldPodRefused && before.HoldsBack() != after.HoldsBack() {
		s.RetryTime = metav1.Time{Time: now}
	}
}

func markNotices(old, v *v1alpha1.LatencyVerification) []controllers.Notice {
	var all []controllers.Notice
	for _, s := range v.Status.MarkFailures {
		if before := stepFailureOf(old, s.Mark); before == nil || before.Reason != s.Reason {
			all = append(all, controllers.Notice{Type: corev1.EventTypeWarning, Reason: s.Reason, Action: "Mark" + string(s.Mark), Message: s.Message, Related: v})
		}
	}
	return all
}

// otherManager returns the other field manager that last changed a mark, or else the Node.
func otherManager(node *corev1.Node, mark v1alpha1.NodeMark) string {
	field := map[v1alpha1.NodeMark]string{
		v1alpha1.MarkCondition: v1alpha1.NodeConditionVerified, v1alpha1.MarkLabel: `"f:` + v1alpha1.NodeLabelVerified, v1alpha1.MarkTaint: `"f:taints"`,
	}[mark]
	others := slices.DeleteFunc(slices.Clone(node.ManagedFields), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager == string(fieldManager)
	})
	writers := slices.DeleteFunc(slices.Clone(others), func(e metav1.ManagedFieldsEntry) bool {
		return e.FieldsV1 == nil || !strings.Contains(e.FieldsV1.GetRawString(), field)
	})
	for _, entries := range [][]metav1.ManagedFieldsEntry{writers, others} {
		if len(entries) > 0 {
			slices.Reverse(entries) // Of two that are equally new, the last one was written last.
			return "perhaps " + slices.MaxFunc(entries, func(a, b metav1.ManagedFieldsEntry) int {
				return ptr.Deref(a.Time, metav1.Time{}).Compare(ptr.Deref(b.Time, metav1.Time{}).Time)
			}).Manager
		}
	}
	return "which the managed fields do not name"
}
