package gate

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
)

// enforce brings the cluster in line with the status: it updates the Node's marks, deletes benchmarks that are not needed, and
// updates the hold pod. A hold pod that cannot be created stops nothing else. It returns when to look at the hold pod again.
func (r *Verifications) enforce(ctx context.Context, w *world, v *v1alpha1.LatencyVerification) (time.Duration, error) {
	p := publicationOf(w.gate, v)
	publishes, err := r.publishes(ctx, w, p)
	if err != nil {
		return 0, err
	}
	if publishes {
		if err := publish(ctx, r.Client, r.Live, w.node, p, metav1.Time{Time: w.now}); err != nil {
			return 0, err
		}
		r.observeHold(w.node, v, p)
	}
	if err := r.prune(ctx, w.gate, v); err != nil {
		return 0, err
	}
	before := v.Status.HoldPodSetback.DeepCopy()
	again, err := r.hold(ctx, w, v)
	if !equality.Semantic.DeepEqual(before, v.Status.HoldPodSetback) {
		if err := r.Client.Status().Update(ctx, v); err != nil {
			return 0, fmt.Errorf("writing the status: %w", err)
		}
	}
	return again, err
}

// publishes reports whether this verification may write the marks on the Node: its gate owns the node, or no gate does. In
// the latter case another retained verification may hold the node back; then this one does not release it.
func (r *Verifications) publishes(ctx context.Context, w *world, p publication) (bool, error) {
	if w.owner != nil || p.holdsBack() {
		return !w.lost() || w.owner == nil, nil
	}
	others, err := r.others(ctx, w.verification)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(others, func(o v1alpha1.LatencyVerification) bool { return o.Status.State != v1alpha1.VerificationVerified }), nil
}

// others returns the other verifications of the same node that are not being deleted, read live.
func (r *Verifications) others(ctx context.Context, v *v1alpha1.LatencyVerification) ([]v1alpha1.LatencyVerification, error) {
	list := &v1alpha1.LatencyVerificationList{}
	if err := r.Live.List(ctx, list, client.MatchingFields{"spec.nodeName": v.Spec.NodeName}); err != nil {
		return nil, fmt.Errorf("listing the node's verifications: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(o v1alpha1.LatencyVerification) bool {
		return o.Name == v.Name || !o.DeletionTimestamp.IsZero()
	}), nil
}

// observeHold records in the metrics how long it took to hold back a node that changed. node is the Node before it was marked.
func (r *Verifications) observeHold(node *corev1.Node, v *v1alpha1.LatencyVerification, p publication) {
	c := nodeCondition(node)
	if c == nil || c.Status != corev1.ConditionTrue || !p.holdsBack() || v.Status.Verified().Reason != v1alpha1.ReasonIdentityChanged {
		return
	}
	for _, ready := range node.Status.Conditions {
		if ready.Type == corev1.NodeReady && !ready.LastHeartbeatTime.IsZero() {
			r.Activity.ObserveHold(r.Clock.Since(ready.LastHeartbeatTime.Time))
		}
	}
}

// prune deletes the node's benchmarks that the status does not name, except benchmarks with a higher number than the status
// has, which are being created.
func (r *Verifications) prune(ctx context.Context, gate *v1alpha1.LatencyGate, v *v1alpha1.LatencyVerification) error {
	list := &v1alpha1.LatencyBenchmarkList{}
	if err := r.Client.List(ctx, list, client.InNamespace(gate.Spec.Namespace), client.MatchingFields{indexOwner: string(v.UID)}); err != nil {
		return fmt.Errorf("listing the node's benchmarks: %w", err)
	}
	for i := range list.Items {
		b := &list.Items[i]
		if needed(v.Status, b.Name) || numberOf(b.Name) > v.Status.Number {
			continue
		}
		if err := controllers.Delete(ctx, r.Client, b, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
			return err
		}
	}
	return nil
}

// needed reports whether a status names a benchmark.
func needed(s v1alpha1.LatencyVerificationStatus, name string) bool {
	return s.Benchmark != nil && s.Benchmark.Name == name || s.Accepted != nil && s.Accepted.Benchmark == name ||
		s.First != nil && s.First.Benchmark == name || find(s.History, name) != nil
}

// numberOf returns the number at the end of a benchmark's name; 0 if there is none.
func numberOf(name string) int64 {
	number, err := strconv.ParseInt(name[strings.LastIndex(name, "-")+1:], 10, 64)
	if err != nil {
		return 0
	}
	return number
}

// finalize updates the marks on the Node for the end of the verification: if a gate owns the node, the marks of that gate, which
// hold the node back until it is verified; otherwise the marks of another retained verification, if there is one; otherwise none.
// The hold pod and the benchmarks are deleted with the verification, which owns them.
func (r *Verifications) finalize(ctx context.Context, v *v1alpha1.LatencyVerification) error {
	if !controllerutil.ContainsFinalizer(v, v1alpha1.FinalizerNode) {
		return nil
	}
	node, gates, err := r.nodeAndGates(ctx, v)
	if err != nil {
		return err
	}
	if node != nil {
		p, err := r.afterwards(ctx, v, node, gates)
		if err != nil {
			return err
		}
		if err := publish(ctx, r.Client, r.Live, node, p, metav1.Time{Time: r.Clock.Now()}); err != nil {
			return err
		}
	}
	return patchFinalizer(ctx, r.Client, v, controllerutil.RemoveFinalizer)
}

// afterwards returns the marks of a Node when one of its verifications is gone.
func (r *Verifications) afterwards(ctx context.Context, v *v1alpha1.LatencyVerification, node *corev1.Node, gates []v1alpha1.LatencyGate) (publication, error) {
	others, err := r.others(ctx, v)
	if err != nil {
		return publication{}, err
	}
	if owner := ownerOf(node, gates); owner != nil {
		heir := &v1alpha1.LatencyVerification{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.VerificationName(owner.Name, node.Name)}}
		if i := slices.IndexFunc(others, func(o v1alpha1.LatencyVerification) bool { return metav1.IsControlledBy(&o, owner) }); i >= 0 {
			heir = &others[i]
		}
		return publicationOf(owner, heir), nil
	}
	var p publication
	for i := range others {
		gate := gateOf(&others[i], gates)
		if gate == nil || !gate.DeletionTimestamp.IsZero() || p.holdsBack() {
			continue
		}
		p = publicationOf(gate, &others[i])
	}
	return p, nil
}
