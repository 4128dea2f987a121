package standing

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/observe"
)

const unseen = "the operator has not processed this yet; is it running?"

// Of returns the standing of an object with a verdict, and may read others for it.
func Of(ctx context.Context, api client.Reader, o client.Object) (Standing, error) {
	switch o := o.(type) {
	case *v1alpha1.LatencyBenchmark:
		return OfBenchmark(o), nil
	case *v1alpha1.LatencyMatrix:
		return OfBenchmark(o.Overview()), nil
	case *v1alpha1.LatencyGate:
		return OfGateNow(ctx, api, o)
	case *v1alpha1.LatencyVerification:
		gate := &v1alpha1.LatencyGate{ObjectMeta: metav1.ObjectMeta{UID: types.UID(o.Status.GateUID)}} // One that is gone leaves its results.
		if err := client.IgnoreNotFound(api.Get(ctx, client.ObjectKey{Name: o.Spec.GateName}, gate)); err != nil {
			return Standing{}, fmt.Errorf("reading LatencyGate %s: %w", o.Spec.GateName, err)
		}
		node := &corev1.Node{}
		err := api.Get(ctx, client.ObjectKey{Name: o.Spec.NodeName}, node)
		return ofNode(o, gate.UID, node), err
	}
	return Standing{}, fmt.Errorf("%T has no verdict", o)
}

// OfNode returns a LatencyVerification's standing, by its current Node. The status applies only to
// the Node that it names: one replaced or changed since is not verified.
func OfNode(v *v1alpha1.LatencyVerification, node *corev1.Node) Standing {
	return ofNode(v, types.UID(v.Status.GateUID), node)
}

func ofNode(v *v1alpha1.LatencyVerification, gate types.UID, node *corev1.Node) Standing {
	if v.Status.State == "" || v.Status.OfDeletedGate() {
		return OfVerification(v)
	}
	subject := identity.Subject{Node: node}
	is := identity.Recorded(&v.Status).Compare(v, gate, subject, time.Now())
	switch {
	case is.Stale == v1alpha1.ReasonNodeReplaced:
		return Standing{Open: true, Reason: is.Stale, Message: "the Node was deleted and created again since; " + unseen}
	case is.Stale == v1alpha1.ReasonGateReplaced:
		return Standing{Open: true, Reason: is.Stale, Message: "the gate was deleted and created again since; " + unseen}
	case !v.Status.State.Passed():
	case len(is.Seen) > 0:
		return Standing{Open: true, Reason: v1alpha1.ReasonIdentityChanged, Message: identity.Sentence(is.Seen) + "; " + unseen}
	default:
		if why := identity.NotReady(subject); why != "" {
			return Standing{Open: true, Reason: v1alpha1.ReasonNodeNotReady, Message: why}
		}
	}
	return OfVerification(v)
}

// OfGateNow: a Pass counts only if each Node is still the verified one: conditions may be old.
func OfGateNow(ctx context.Context, api client.Reader, g *v1alpha1.LatencyGate) (Standing, error) {
	s := OfGate(g)
	if s.Outcome != v1alpha1.VerdictPass {
		return s, nil
	}
	changed, err := changedNodes(ctx, api, g)
	if err != nil || len(changed) == 0 {
		return s, err
	}
	slices.SortFunc(changed, func(a, b changedNode) int { return cmp.Compare(a.name, b.name) })
	s = Standing{Open: true, Reason: changed[0].Reason, Message: fmt.Sprintf("%d of its nodes have changed since they were verified; %s", len(changed), unseen)}
	if slices.ContainsFunc(changed, func(n changedNode) bool { return n.Reason == v1alpha1.ReasonNodeNotReady }) {
		s.Message = fmt.Sprintf("%d of its nodes are not ready, or have changed since they were verified", len(changed))
	}
	for _, n := range changed[:min(len(changed), v1alpha1.MaxNodeLines)] {
		s.Details = append(s.Details, fmt.Sprintf("%s: %s, %s", n.name, n.Reason, n.Message))
	}
	return s, nil
}

// changedNode is a node of a gate that is not verified in its current state.
type changedNode struct {
	name string
	Standing
}

func changedNodes(ctx context.Context, api client.Reader, g *v1alpha1.LatencyGate) ([]changedNode, error) {
	known := map[string]*v1alpha1.LatencyVerification{}
	err := observe.Each(ctx, api, func() client.ObjectList { return &v1alpha1.LatencyVerificationList{} }, func(o runtime.Object) error {
		if v := o.(*v1alpha1.LatencyVerification); v.DeletionTimestamp.IsZero() {
			known[v.Spec.NodeName] = v
		}
		return nil
	}, client.MatchingFields{"spec.gateName": g.Name})
	if err != nil {
		return nil, fmt.Errorf("listing the LatencyVerifications of LatencyGate %s: %w", g.Name, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(&g.Spec.NodeSelector)
	if err != nil {
		return nil, fmt.Errorf("spec.nodeSelector of LatencyGate %s: %w", g.Name, err)
	}
	var changed []changedNode
	look := func(node *corev1.Node, v *v1alpha1.LatencyVerification) {
		if s := ofNode(v, g.UID, node); s.Outcome != v1alpha1.VerdictPass {
			changed = append(changed, changedNode{node.Name, s})
		}
	}
	err = observe.Each(ctx, api, func() client.ObjectList { return &corev1.NodeList{} }, func(o runtime.Object) error {
		node := o.(*corev1.Node)
		switch v, ok := known[node.Name]; {
		case !node.DeletionTimestamp.IsZero():
		case !ok:
			changed = append(changed, changedNode{node.Name, Standing{Reason: v1alpha1.ReasonNewNode, Message: "the node is new to the gate; " + unseen}})
		default:
			look(node, v)
		}
		delete(known, node.Name)
		return nil
	}, client.MatchingLabelsSelector{Selector: selector})
	if err != nil {
		return nil, fmt.Errorf("listing the nodes of LatencyGate %s: %w", g.Name, err)
	}
	// The remaining nodes belong to the gate, but its selector no longer selects them.
	for name, v := range known {
		node, err := observe.Get[corev1.Node](ctx, api, "", name)
		if err != nil {
			return nil, fmt.Errorf("LatencyGate %s: %w", g.Name, err)
		}
		if node != nil && node.DeletionTimestamp.IsZero() && !v.Status.OfDeletedGate() {
			look(node, v)
		}
	}
	return changed, nil
}
