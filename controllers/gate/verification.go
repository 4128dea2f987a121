package gate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/metrics"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/queue"
	"github.com/tailgate-dev/tailgate/internal/sessions"
	"github.com/tailgate-dev/tailgate/internal/standing"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

type Verifications struct {
	controllers.API
	Activity       *metrics.Activity // nil measures nothing
	Image          string
	PullPolicy     corev1.PullPolicy
	ServiceAccount string // of hold pods; empty: the namespace's default

	Memory *Memory
}

// +kubebuilder:rbac:groups=tailgate.dev,resources=latencygates,verbs=get;list;watch
// +kubebuilder:rbac:groups=tailgate.dev,resources=latencyverifications,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=tailgate.dev,resources=latencyverifications/status,verbs=update
// +kubebuilder:rbac:groups=tailgate.dev,resources=latencybenchmarks,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups="",resources=nodes/status;pods/status,verbs=patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete

const workers = 8 // nodes that are reconciled at once; they do not depend on each other

func (r *Verifications) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	v := &v1alpha1.LatencyVerification{}
	if err := r.Live.Get(ctx, req.NamespacedName, v); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	return controllers.Written(r.step(ctx, v))
}

func (r *Verifications) step(ctx context.Context, v *v1alpha1.LatencyVerification) (time.Duration, error) {
	ctx = controllers.With(ctx, "gate", v.Spec.GateName, "node", v.Spec.NodeName)
	old := v.DeepCopy()
	controllers.SettleTimes(&v.Status, r.Clock.Now())
	world, gates, err := r.observe(ctx, v)
	if err != nil {
		return 0, err
	}
	switch {
	case !v.DeletionTimestamp.IsZero() && !world.keepsFail():
		return r.finalize(ctx, v, world.node, gates)
	case world.gate == nil, !world.gate.DeletionTimestamp.IsZero(), world.ofEarlierGate() && world.disowned():
		return r.dismiss(ctx, world, v, gates)
	case !controllerutil.ContainsFinalizer(v, v1alpha1.FinalizerNode) && v.DeletionTimestamp.IsZero():
		return time.Millisecond, patchFinalizer(ctx, r.Client, v, controllerutil.AddFinalizer)
	}
	s := decide(world)
	log.FromContext(ctx).V(1).Info("decided", "event", s.event, "reason", s.reason, "message", s.message)
	if s.reason != "" {
		ctx = controllers.With(ctx, "event", s.event, "why", s.reason)
	}
	if s.event == eventReleased || s.event == eventGone {
		err := controllers.Delete(ctx, r.Client, v)
		if err == nil && s.event == eventReleased {
			r.Recorder.Eventf(v, nil, corev1.EventTypeWarning, s.reason, "Release", "%s", s.message)
		}
		return 0, err
	}
	if v.Status, err = world.next(s); err != nil {
		return 0, err
	}
	if v.Status.NodeUID != old.Status.NodeUID || world.node == nil {
		r.Memory.contests.forget(types.UID(old.Status.NodeUID))
	}
	p := turns.PublicationOf(world.gate, v)
	retryMarks(v, turns.PublicationOf(world.gate, old), p, world.now)
	err = r.report(ctx, old, v, s)
	r.Memory.setRefusal(v.Name, err)
	if err != nil {
		return 0, cmp.Or(r.holdAnyway(ctx, world, v, p, err), err)
	}
	holdAgain, err := r.enforce(ctx, world, v, p)
	return queue.Soonest(s.again, holdAgain), err
}

// holdAnyway holds a node back whose state could not be written; the next reconcile finds the same.
func (r *Verifications) holdAnyway(ctx context.Context, w *world, v *v1alpha1.LatencyVerification, p turns.Publication, cause error) error {
	if apierrors.IsConflict(cause) || apierrors.IsNotFound(cause) || !p.HoldsBack() || !w.holds() {
		return cause
	}
	_, err := r.mark(ctx, w.node, v.DeepCopy(), p)
	return errors.Join(cause, err)
}

// observe reads the Node live first, then the gates, which determine its owner. Marks that release
// are only written to that version, so that no other gate can have taken the node in between.
func (r *Verifications) observe(ctx context.Context, v *v1alpha1.LatencyVerification) (*world, []v1alpha1.LatencyGate, error) {
	w := &world{now: r.Clock.Now(), verification: v}
	var err error
	if w.node, err = observe.Get[corev1.Node](ctx, r.Live, "", v.Spec.NodeName); err != nil {
		return nil, nil, err
	}
	list := &v1alpha1.LatencyGateList{}
	if err := r.Live.List(ctx, list); err != nil {
		return nil, nil, fmt.Errorf("listing gates: %w", err)
	}
	gates := list.Items
	w.owner, w.gate = turns.Owner(w.node, gates), gateOf(v, gates)
	if w.gate == nil || !w.gate.DeletionTimestamp.IsZero() || !v.DeletionTimestamp.IsZero() && !w.keepsFail() {
		return w, gates, nil
	}
	if v.Status.Benchmark != nil && w.node != nil {
		if err := r.observeBenchmark(ctx, w); err != nil {
			return nil, nil, err
		}
	}
	// A user may write any text into spec.accept; the client fails for what cannot be a name.
	if result := acceptable(v); result != nil {
		if w.named, err = observe.Get[v1alpha1.LatencyBenchmark](ctx, r.Live, w.gate.Spec.Namespace, result.Benchmark); err != nil {
			return nil, nil, err
		}
	}
	w.baselineTrouble, err = r.baselineTrouble(ctx, w)
	return w, gates, err
}

func gateOf(v *v1alpha1.LatencyVerification, gates []v1alpha1.LatencyGate) *v1alpha1.LatencyGate {
	i := slices.IndexFunc(gates, func(g v1alpha1.LatencyGate) bool { return g.Name == v.Spec.GateName })
	if i < 0 {
		return nil
	}
	return &gates[i]
}

func (r *Verifications) observeBenchmark(ctx context.Context, w *world) error {
	status := w.verification.Status
	b, err := observe.Get[v1alpha1.LatencyBenchmark](ctx, r.Live, w.gate.Spec.Namespace, status.Benchmark.Name)
	if err != nil || b == nil || string(b.UID) != status.Benchmark.UID {
		return err
	}
	w.benchmark = b
	digest, err := specDigest(b.Spec)
	if err != nil {
		return err
	}
	w.edited = digest != status.Benchmark.SpecSHA256
	if w.edited || !b.Finished() {
		return nil
	}
	if w.peerVerified, err = r.stayedVerified(ctx, status.Benchmark); err != nil {
		return err
	}
	if meta.IsStatusConditionFalse(b.Status.Conditions, v1alpha1.ConditionPassed) || len(status.Reference) == 0 && b.Status.Session != nil {
		return r.observePeers(ctx, w)
	}
	return nil
}

func (r *Verifications) stayedVerified(ctx context.Context, of *v1alpha1.VerificationBenchmark) (bool, error) {
	node, err := observe.Get[corev1.Node](ctx, r.Live, "", of.Peer)
	if err != nil || node == nil {
		return false, err
	}
	list := &v1alpha1.LatencyVerificationList{}
	if err := r.Live.List(ctx, list, client.MatchingFields{"spec.nodeName": of.Peer}); err != nil {
		return false, fmt.Errorf("listing the verifications of peer %s: %w", of.Peer, err)
	}
	found := false
	for i := range list.Items {
		v := &list.Items[i]
		if v.Status.Record() {
			continue
		}
		since := v.Status.LastTransitionTime
		if found = standing.OfNode(v, node).Outcome == v1alpha1.VerdictPass && since != nil && !since.After(of.StartTime.Time); !found {
			return false, nil
		}
	}
	return found, nil
}

func (r *Verifications) observePeers(ctx context.Context, w *world) error {
	nodes, verifications := &corev1.NodeList{}, &v1alpha1.LatencyVerificationList{}
	for _, list := range []client.ObjectList{nodes, verifications} {
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing peers: %w", err)
		}
	}
	ready := func(name string) bool {
		return slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == name && preflight.NodeReady(n) })
	}
	for i := range verifications.Items {
		v := &verifications.Items[i]
		if v.Spec.GateName == w.gate.Name && v.Spec.NodeName != w.node.Name {
			w.others = append(w.others, sessions.OfNode(v))
			// Two Nodes that are ready are two machines, whatever the firmware says.
			if identity.SameMachine(v.Status.SystemUUID, w.node.Status.NodeInfo.SystemUUID) && !ready(v.Spec.NodeName) {
				w.formers = append(w.formers, v)
			}
		}
	}
	w.otherPeer = turns.OtherPeer(w.gate, w.node.Name, w.verification.Status.Benchmark.Peer, nodes.Items, verifications.Items)
	return nil
}

// baselineTrouble describes a defect of the accepted result by the cache; the verdict reads live.
func (r *Verifications) baselineTrouble(ctx context.Context, w *world) (string, error) {
	accepted := w.verification.Status.Accepted
	if accepted == nil || !w.gate.Spec.Template.Spec.Criteria.Against(v1alpha1.BaselineGate) {
		return "", nil
	}
	b := &v1alpha1.LatencyBenchmark{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: w.gate.Spec.Namespace, Name: accepted.Benchmark}, b)
	trouble := ""
	switch c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionPassed); {
	case apierrors.IsNotFound(err):
		trouble = "LatencyBenchmark %s, with which results are compared, was deleted"
	case err != nil:
		return "", fmt.Errorf("getting LatencyBenchmark %s: %w", accepted.Benchmark, err)
	case string(b.UID) != accepted.UID:
		trouble = "LatencyBenchmark %s, with which results are compared, was deleted and created again"
	case c != nil && c.Reason == v1alpha1.ReasonResultsMissing:
		trouble = "stored results of LatencyBenchmark %s, with which results are compared, were deleted or changed"
	default:
		return "", nil
	}
	return fmt.Sprintf(trouble+"; accept another result: %s", accepted.Benchmark, v1alpha1.FieldAccept), nil
}

func (r *Verifications) report(ctx context.Context, old, v *v1alpha1.LatencyVerification, s step) error {
	if _, err := r.WriteStatus(ctx, old, v); err != nil {
		return err
	}
	logState(ctx, old, v)
	r.Send(v, notices(old, v, s)...)
	return nil
}

func logState(ctx context.Context, old, v *v1alpha1.LatencyVerification) {
	of := func(v *v1alpha1.LatencyVerification) (state, reason, message string) {
		if kept := v.Status.Retained; kept != nil {
			return "Retained", kept.Reason, kept.Message
		}
		return string(v.Status.State), v.Status.Verified().Reason, v.Status.Verified().Message
	}
	from, before, _ := of(old)
	if to, reason, message := of(v); from != to || before != reason {
		log.FromContext(ctx).Info("state of the node", "from", from, "to", to, "because", reason, "message", message)
	}
}

func notices(old, v *v1alpha1.LatencyVerification, s step) []controllers.Notice {
	switch {
	case s.event == eventNotAccepted:
		return []controllers.Notice{{Type: corev1.EventTypeWarning, Reason: s.reason, Action: "Accept", Message: s.message}}
	case v.Status.Retained != nil && (old.Status.Retained == nil || old.Status.Retained.Reason != v.Status.Retained.Reason):
		kind := corev1.EventTypeWarning
		if v.Status.Record() {
			kind = corev1.EventTypeNormal
		}
		return []controllers.Notice{{Type: kind, Reason: v.Status.Retained.Reason, Action: "Retain", Message: v.Status.Retained.Message}}
	case old.Status.State == v.Status.State && old.Status.Verified().Reason == v.Status.Verified().Reason, s.reason == v1alpha1.ReasonNewNode:
		return nil
	}
	kind := corev1.EventTypeWarning
	if v.Status.State.Passed() || s.event.begins() {
		kind = corev1.EventTypeNormal
	}
	verified := v.Status.Verified()
	return []controllers.Notice{{Type: kind, Reason: verified.Reason, Action: string(v.Status.State), Message: verified.Message}}
}

const (
	indexNode  = "spec.nodeName"
	indexGate  = "spec.gateName"
	indexOwner = "owner" // finds benchmarks by the UID of the verification that owns them
)

// SetupWithManager registers the controller. Nodes matter by sameNode, and a gate by its spec.
func (r *Verifications) SetupWithManager(mgr ctrl.Manager) error {
	r.Client = controllers.Logged(r.Client)
	index := func(o client.Object, field string, values client.IndexerFunc) error {
		return mgr.GetFieldIndexer().IndexField(context.Background(), o, field, values)
	}
	err := errors.Join(
		index(&v1alpha1.LatencyVerification{}, indexNode, func(o client.Object) []string { return []string{o.(*v1alpha1.LatencyVerification).Spec.NodeName} }),
		index(&v1alpha1.LatencyVerification{}, indexGate, func(o client.Object) []string { return []string{o.(*v1alpha1.LatencyVerification).Spec.GateName} }),
		index(&v1alpha1.LatencyBenchmark{}, indexOwner, func(o client.Object) []string {
			if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == "LatencyVerification" {
				return []string{string(owner.UID)}
			}
			return nil
		}),
	)
	if err != nil {
		return fmt.Errorf("indexing verifications and their benchmarks: %w", err)
	}
	found := func(field string) handler.EventHandler {
		return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
			return controllers.Requests[*v1alpha1.LatencyVerification](ctx, mgr.GetClient(), &v1alpha1.LatencyVerificationList{}, nil, client.MatchingFields{field: o.GetName()})
		})
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.LatencyVerification{}).
		Owns(&v1alpha1.LatencyBenchmark{}, builder.WithPredicates(benchmarkChanges)).
		Owns(&corev1.Pod{}).
		Watches(&corev1.Node{}, found(indexNode), builder.WithPredicates(nodeChanges)).
		Watches(&v1alpha1.LatencyGate{}, found(indexGate), builder.WithPredicates(gateChanges)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retries()}).
		Complete(r)
}

// retries doubles the pauses after errors: no node waits longer than a minute to be held back.
func retries() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, time.Minute)
}

func sameNode(a, b *corev1.Node) bool {
	conditions := func(n *corev1.Node) [3][3]string {
		var all [3][3]string
		for i, kind := range []corev1.NodeConditionType{corev1.NodeReady, v1alpha1.NodeConditionVerified, v1alpha1.NodeConditionRegressed} {
			if c := turns.NodeCondition(n, kind); c != nil {
				all[i] = [3]string{string(c.Status), c.Reason, c.Message}
			}
		}
		all[0][2] = "" // A kubelet that is not well changes the message of Ready again and again.
		return all
	}
	return a.UID == b.UID && a.Annotations[foreign.AnnotationNodeState] == b.Annotations[foreign.AnnotationNodeState] && a.Spec.Unschedulable == b.Spec.Unschedulable && equality.Semantic.DeepEqual(a.Status.NodeInfo, b.Status.NodeInfo) &&
		conditions(a) == conditions(b) && a.DeletionTimestamp.IsZero() == b.DeletionTimestamp.IsZero() &&
		equality.Semantic.DeepEqual(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Spec.Taints, b.Spec.Taints) &&
		equality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable)
}

var benchmarkChanges = controllers.Updates(func(before, after *v1alpha1.LatencyBenchmark) bool {
	facts := func(b *v1alpha1.LatencyBenchmark) string {
		all := []any{b.UID, b.Generation, b.DeletionTimestamp.IsZero()}
		for _, c := range b.Status.Conditions {
			switch c.Type {
			case v1alpha1.ConditionSucceeded:
				all = append(all, c.Type, c.Status, c.ObservedGeneration)
			case v1alpha1.ConditionAccepted, v1alpha1.ConditionPassed:
				all = append(all, c.Type, c.Status, c.ObservedGeneration, c.Reason)
			}
		}
		return fmt.Sprintln(all...)
	}
	return facts(before) != facts(after)
})
