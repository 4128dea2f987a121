package gate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/queue"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

func (r *Verifications) enforce(ctx context.Context, w *world, v *v1alpha1.LatencyVerification, p turns.Publication) (time.Duration, error) {
	publishes, err := r.publishes(ctx, w, p)
	if err != nil {
		return 0, err
	}
	before := v.DeepCopy()
	var again time.Duration
	var markErr error
	if !publishes {
		v.Status.MarkFailures = nil
	} else if again, markErr = r.mark(ctx, w.node, v, p); markErr == nil && len(v.Status.MarkFailures) == 0 {
		r.observeHold(w.node, v, p)
	}
	pruneErr := r.prune(ctx, w.gate.Spec.Namespace, v)
	holdAgain, holdErr := r.hold(ctx, w, v)
	if err := r.writeMarkFailures(ctx, before, v, w.node); err != nil {
		return 0, err
	}
	return queue.Soonest(again, holdAgain), cmp.Or(holdErr, pruneErr, markErr)
}

func (r *Verifications) writeMarkFailures(ctx context.Context, before, v *v1alpha1.LatencyVerification, node *corev1.Node) error {
	written, err := r.WriteStatus(ctx, before, v)
	if written && node != nil {
		r.Tell(ctx, node, markNotices(before, v)...)
	}
	return err
}

// publishes reports whether the gate owns the node, or no gate does. No record may hold a node that
// is released without a Pass.
func (r *Verifications) publishes(ctx context.Context, w *world, p turns.Publication) (bool, error) {
	if w.node == nil || w.owner != nil && !w.owner.Observes() || p.HoldsBack() {
		return w.holds(), nil
	}
	others, err := r.others(ctx, w.verification)
	if err != nil {
		return false, err
	}
	return w.holds() && !slices.ContainsFunc(others, func(o v1alpha1.LatencyVerification) bool { return !o.Status.State.Passed() }), nil
}

// others returns, live, the node's other verifications, without deleted ones and mere records.
func (r *Verifications) others(ctx context.Context, v *v1alpha1.LatencyVerification) ([]v1alpha1.LatencyVerification, error) {
	list := &v1alpha1.LatencyVerificationList{}
	if err := r.Live.List(ctx, list, client.MatchingFields{"spec.nodeName": v.Spec.NodeName}); err != nil {
		return nil, fmt.Errorf("listing the node's verifications: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(o v1alpha1.LatencyVerification) bool {
		return o.Name == v.Name || !o.DeletionTimestamp.IsZero() || o.Status.Record()
	}), nil
}

// observeHold measures how long it took to hold a changed node back. node is the Node before.
func (r *Verifications) observeHold(node *corev1.Node, v *v1alpha1.LatencyVerification, p turns.Publication) {
	c, ready := turns.NodeCondition(node, v1alpha1.NodeConditionVerified), turns.NodeCondition(node, corev1.NodeReady)
	changed := p.HoldsBack() && v.Status.Verified().Reason == v1alpha1.ReasonIdentityChanged
	if changed && c != nil && c.Status == corev1.ConditionTrue && ready != nil && !ready.LastHeartbeatTime.IsZero() {
		r.Activity.ObserveHold(r.Clock.Since(ready.LastHeartbeatTime.Time))
	}
}

// prune deletes the node's benchmarks that the status does not name, but not those being created.
func (r *Verifications) prune(ctx context.Context, namespace string, v *v1alpha1.LatencyVerification) error {
	list := &v1alpha1.LatencyBenchmarkList{}
	if err := r.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{indexOwner: string(v.UID)}); err != nil {
		return fmt.Errorf("listing the node's benchmarks: %w", err)
	}
	for i := range list.Items {
		b := &list.Items[i]
		if needed(v.Status, string(b.UID)) || turns.NumberOf(b.Name) > v.Status.Number {
			continue
		}
		if err := controllers.Delete(ctx, r.Client, b, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			return err
		}
	}
	return nil
}

// needed reports whether a status refers to a benchmark by its UID, not by its name.
func needed(s v1alpha1.LatencyVerificationStatus, uid string) bool {
	return s.Benchmark != nil && s.Benchmark.UID == uid || s.Accepted != nil && s.Accepted.UID == uid ||
		slices.ContainsFunc(s.History, func(r v1alpha1.VerificationResult) bool { return r.UID == uid })
}

// finalize removes the finalizer once the marks are right for afterwards, and says what is refused.
// The hold pod and the benchmarks have the verification as their owner.
func (r *Verifications) finalize(ctx context.Context, v *v1alpha1.LatencyVerification, node *corev1.Node, gates []v1alpha1.LatencyGate) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(v, v1alpha1.FinalizerNode) {
		return 0, nil
	}
	if node != nil {
		if again, err := r.release(ctx, v, node, gates); err != nil || len(v.Status.MarkFailures) > 0 {
			return again, err
		}
	}
	r.Memory.contests.forget(types.UID(v.Status.NodeUID))
	r.Memory.held.Delete(v.Name)
	return 0, patchFinalizer(ctx, r.Client, v, controllerutil.RemoveFinalizer)
}

func patchFinalizer(ctx context.Context, c client.Client, o client.Object, change func(client.Object, string) bool) error {
	before := o.DeepCopyObject().(client.Object)
	if !change(o, v1alpha1.FinalizerNode) {
		return nil
	}
	if err := c.Patch(ctx, o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patching the finalizer: %w", err)
	}
	return nil
}

func (r *Verifications) release(ctx context.Context, v *v1alpha1.LatencyVerification, node *corev1.Node, gates []v1alpha1.LatencyGate) (time.Duration, error) {
	p, err := r.afterwards(ctx, v, node, gates)
	if err != nil {
		return 0, err
	}
	before := v.DeepCopy()
	again, err := r.mark(ctx, node, v, p)
	return again, cmp.Or(r.writeMarkFailures(ctx, before, v, node), err)
}

const defaultRetention = time.Hour // spec.releaseAfter's default, for a gate that is gone

// dismiss releases a node without a gate. For spec.releaseAfter it keeps accepted results, and that
// the node changed or joined, for a gate that a tool created again.
func (r *Verifications) dismiss(ctx context.Context, w *world, v *v1alpha1.LatencyVerification, gates []v1alpha1.LatencyGate) (time.Duration, error) {
	unchanged := w.node != nil && identity.Recorded(&v.Status).Compare(v, types.UID(v.Status.GateUID), w.subject(), w.now).Stale == ""
	if v.Status.State == "" || v.Status.Accepted == nil && v.Status.Preexisting && unchanged {
		return 0, controllers.Delete(ctx, r.Client, v)
	}
	if old := v.DeepCopy(); v.Status.Retained == nil || v.Status.Retained.Reason != v1alpha1.ReasonGateDeleted {
		after := defaultRetention
		if w.gate != nil {
			after = w.gate.Spec.ReleaseAfter.Duration
		}
		var err error
		if v.Status, err = w.dismissed(after); err != nil {
			return 0, err
		}
		if err := r.report(ctx, old, v, step{event: eventDismissed}); err != nil {
			return 0, err
		}
	}
	if controllerutil.ContainsFinalizer(v, v1alpha1.FinalizerNode) {
		if w.node != nil {
			if again, err := r.release(ctx, v, w.node, gates); err != nil || len(v.Status.MarkFailures) > 0 {
				return again, err
			}
		}
		// The namespace is the gate's, which exists unless a user removed its finalizer.
		if w.gate != nil && !w.ofEarlierGate() {
			if _, err := r.hold(ctx, w, v); err != nil {
				return 0, err
			}
			if err := r.prune(ctx, w.gate.Spec.Namespace, v); err != nil {
				return 0, err
			}
		}
		return v.Status.Retained.EndTime.Sub(w.now), patchFinalizer(ctx, r.Client, v, controllerutil.RemoveFinalizer)
	}
	old, kept := v.DeepCopy(), v.Status.Retained
	look(kept, w.now)
	if _, err := r.WriteStatus(ctx, old, v); err != nil {
		return 0, err
	}
	if left := leftOf(kept, kept.EndTime.Sub(kept.StartTime.Time), w.now); left > 0 {
		return left, nil
	}
	return 0, controllers.Delete(ctx, r.Client, v)
}

func (r *Verifications) afterwards(ctx context.Context, v *v1alpha1.LatencyVerification, node *corev1.Node, gates []v1alpha1.LatencyGate) (turns.Publication, error) {
	others, err := r.others(ctx, v)
	if err != nil {
		return turns.Publication{}, err
	}
	if owner := turns.Owner(node, gates); owner != nil {
		heir := &v1alpha1.LatencyVerification{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.VerificationName(owner.Name, node.Name)}}
		heir.Status.Preexisting = turns.FoundBy(owner, node)
		if i := slices.IndexFunc(others, func(o v1alpha1.LatencyVerification) bool {
			return o.Spec.GateName == owner.Name && !ofEarlierGate(&o, owner)
		}); i >= 0 {
			heir = &others[i]
		}
		return turns.PublicationOf(owner, heir), nil
	}
	var p turns.Publication
	for i := range others {
		gate := gateOf(&others[i], gates)
		if gate == nil || !gate.DeletionTimestamp.IsZero() || ofEarlierGate(&others[i], gate) || p.HoldsBack() {
			continue
		}
		p = turns.PublicationOf(gate, &others[i])
	}
	return p, nil
}
