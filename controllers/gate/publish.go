package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
)

// publication is the set of marks that a Node should have. The zero value is for a node without a verification: no marks.
type publication struct {
	// condition is nil if there should be none.
	condition *corev1.NodeCondition
	// label is empty if there should be none.
	label string
	// taint is nil if there should be none.
	taint *corev1.Taint
}

// publicationOf returns the marks for a verification. While the node waits and is measured, the condition says why it is held
// back, but not how far the measurement is, which would need one more write.
func publicationOf(gate *v1alpha1.LatencyGate, v *v1alpha1.LatencyVerification) publication {
	status := v.Status
	p := publication{condition: &corev1.NodeCondition{Type: v1alpha1.NodeConditionVerified, Status: corev1.ConditionFalse}}
	see := "see kubectl get lver " + v.Name + " -o wide"
	verified := status.State == v1alpha1.VerificationVerified
	switch status.State {
	case v1alpha1.VerificationVerified:
		p.condition.Status, p.condition.Reason, p.condition.Message = corev1.ConditionTrue, status.Verified().Reason, see
	case v1alpha1.VerificationFailed, v1alpha1.VerificationInconclusive:
		p.condition.Reason, p.condition.Message = string(status.State), status.Verified().Reason+"; "+see
	default:
		p.condition.Reason, p.condition.Message = string(v1alpha1.VerificationUnverified), see
		if len(status.Changed) > 0 {
			p.condition.Message = identity.Sentence(status.Changed) + "; " + see
		}
	}
	enforcement := gate.Spec.Enforcement
	if enforcement.Label != nil {
		p.label = fmt.Sprint(verified)
	}
	if enforcement.Taint != nil && !verified {
		p.taint = &corev1.Taint{Key: v1alpha1.NodeTaintUnverified, Effect: enforcement.Taint.Effect}
	}
	return p
}

// published reports whether a Node has the marks that it should have, as far as other programs act on them.
func published(node *corev1.Node, p publication) bool {
	return conditionPublished(node, p) && labelPublished(node, p) && taintPublished(node, p)
}

func conditionPublished(node *corev1.Node, p publication) bool {
	c := nodeCondition(node)
	if c == nil || p.condition == nil {
		return c == nil && p.condition == nil
	}
	return c.Status == p.condition.Status && c.Reason == p.condition.Reason && c.Message == p.condition.Message
}

func labelPublished(node *corev1.Node, p publication) bool {
	return node.Labels[v1alpha1.NodeLabelVerified] == p.label
}

func taintPublished(node *corev1.Node, p publication) bool {
	return slices.EqualFunc(node.Spec.Taints, p.taints(node), func(a, b corev1.Taint) bool { return a == b })
}

// nodeCondition returns the condition that gates set; nil if there is none.
func nodeCondition(node *corev1.Node) *corev1.NodeCondition {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == v1alpha1.NodeConditionVerified })
	if i < 0 {
		return nil
	}
	return &node.Status.Conditions[i]
}

// taints returns all taints that a node should have: the taints of others, and the gate's. If a kubelet registered its node
// with the gate's taint, it remains unchanged.
func (p publication) taints(node *corev1.Node) []corev1.Taint {
	var all []corev1.Taint
	found := false
	for _, t := range node.Spec.Taints {
		if t.Key != v1alpha1.NodeTaintUnverified {
			all = append(all, t)
		} else if p.taint != nil && t.Effect == p.taint.Effect && !found {
			all, found = append(all, t), true
		}
	}
	if p.taint != nil && !found {
		all = append(all, *p.taint)
	}
	return all
}

// holdsBack reports whether the marks hold a node back.
func (p publication) holdsBack() bool {
	return p.condition != nil && p.condition.Status != corev1.ConditionTrue
}

// publish writes the marks of a Node: label and taint in one write, the condition in another. A taint is added before
// the condition is written, and removed after it, so that no pod is admitted while the condition is False. Marks that release a
// node are written only to the version of the Node that was read: another gate may have begun to hold it back.
func publish(ctx context.Context, c client.Client, live client.Reader, node *corev1.Node, p publication, now metav1.Time) error {
	if p.holdsBack() {
		if err := holdMetadata(ctx, c, live, node, p); err != nil {
			return err
		}
		_, err := publishCondition(ctx, c, node, p, now, "")
		return err
	}
	node, err := publishCondition(ctx, c, node, p, now, node.ResourceVersion)
	if err != nil {
		return err
	}
	return publishMetadata(ctx, c, node, p)
}

// holdMetadata writes label and taint of a node that is held back. Taints are a list that can only be replaced, so that the
// write is only for the version that was read; because Nodes have many other writers, it is retried after a conflict.
func holdMetadata(ctx context.Context, c client.Client, live client.Reader, node *corev1.Node, p publication) error {
	current := node
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		err := publishMetadata(ctx, c, current, p)
		if apierrors.IsConflict(err) {
			fresh := &corev1.Node{}
			if getErr := live.Get(ctx, client.ObjectKeyFromObject(node), fresh); getErr != nil {
				return getErr
			}
			current = fresh
		}
		return err
	})
}

// publishMetadata writes label and taint to the version of the Node that was read.
func publishMetadata(ctx context.Context, c client.Client, node *corev1.Node, p publication) error {
	if labelPublished(node, p) && taintPublished(node, p) {
		return nil
	}
	metadata := map[string]any{"resourceVersion": node.ResourceVersion}
	patch := map[string]any{"metadata": metadata}
	if !labelPublished(node, p) {
		var value any
		if p.label != "" {
			value = p.label
		}
		metadata["labels"] = map[string]any{v1alpha1.NodeLabelVerified: value}
	}
	if !taintPublished(node, p) {
		patch["spec"] = map[string]any{"taints": p.taints(node)}
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return fmt.Errorf("encoding label and taint: %w", err)
	}
	err = c.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}, client.RawPatch(types.MergePatchType, data))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("labelling and tainting node %s: %w", node.Name, err)
	}
	return nil
}

// publishCondition writes the condition, which the API server merges by type with the conditions of the kubelet. If version is not
// empty, it writes only to that version of the Node. It returns the resulting Node.
func publishCondition(ctx context.Context, c client.Client, node *corev1.Node, p publication, now metav1.Time, version string) (*corev1.Node, error) {
	if conditionPublished(node, p) {
		return node, nil
	}
	var condition any = map[string]any{"type": v1alpha1.NodeConditionVerified, "$patch": "delete"}
	if p.condition != nil {
		new := p.condition.DeepCopy()
		new.LastHeartbeatTime, new.LastTransitionTime = now, now
		if before := nodeCondition(node); before != nil && before.Status == new.Status {
			new.LastTransitionTime = before.LastTransitionTime
		}
		condition = new
	}
	patch := map[string]any{"status": map[string]any{"conditions": []any{condition}}}
	if version != "" {
		patch["metadata"] = map[string]any{"resourceVersion": version}
	}
	data, err := json.Marshal(patch)
	if err != nil {
		return nil, fmt.Errorf("encoding a condition: %w", err)
	}
	written := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name}}
	switch err := c.Status().Patch(ctx, written, client.RawPatch(types.StrategicMergePatchType, data)); {
	case apierrors.IsNotFound(err):
		return node, nil
	case err != nil:
		return nil, fmt.Errorf("setting the condition of node %s: %w", node.Name, err)
	}
	return written, nil
}
