// Package gate reconciles LatencyGate and LatencyVerification.
//
// There is a LatencyVerification for each node of a gate, which alone holds the state of that node.
// Two reconcilers share the work:
//
//	Verifications  one node: observe, decide, next (the transition table), report, enforce
//	Gates          one gate: observe, place (turns.Choose, with room), start, summarize, report
//
// The decisions are pure: decide and the table here, and whose turn it is in internal/turns.
// What a node shows is written by marks.go, hold.go and enforce.go, and by nothing else.
//
// docs/internals/transitions.md has the states of a node. The state is written first, and then the
// Node is marked: if a manager dies in between, the next marks it. A benchmark is only created for a
// marked node, before the state shows it, under a new number: one in no status is deleted. An unknown
// state holds a node back. Decisions read live data; lists of all nodes and verifications come from
// the cache, and lead only to choices that are checked live, or written with the version read.
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
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/queue"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

type Gates struct {
	controllers.API
	Cluster    *observe.Cluster        // says if a benchmark would be accepted; nil: each would
	Memory     *Memory                 // shared with the controller of the verifications
	Protection *controllers.Protection // what the installation lacks; nil: it is not checked
}

// +kubebuilder:rbac:groups=tailgate.dev,resources=latencygates,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=tailgate.dev,resources=latencygates/status;latencyverifications/status;latencyverifications/finalizers,verbs=update
// +kubebuilder:rbac:groups=tailgate.dev,resources=latencyverifications,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=tailgate.dev,resources=latencybenchmarks,verbs=get;list;watch;create
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=kmm.sigs.x-k8s.io,resources=modules,verbs=list
// +kubebuilder:rbac:groups=apps,resources=daemonsets,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

const (
	gather      = 500 * time.Millisecond // gathers events before a gate looks at all nodes
	maxCreated  = 500                    // verifications, before a status is written
	budgetAgain = time.Minute            // between two looks at the budget over the hold pods
)

func (r *Gates) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	g := &v1alpha1.LatencyGate{}
	if err := r.Live.Get(ctx, req.NamespacedName, g); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !g.DeletionTimestamp.IsZero() {
		return controllers.Written(0, r.finalize(ctx, g))
	}
	if !controllerutil.ContainsFinalizer(g, v1alpha1.FinalizerNode) {
		return controllers.Written(0, patchFinalizer(ctx, r.Client, g, controllerutil.AddFinalizer))
	}
	ctx = controllers.With(ctx, "gate", g.Name)
	old := g.DeepCopy()
	controllers.SettleTimes(&g.Status, r.Clock.Now())
	all, err := r.observe(ctx, g)
	if err != nil {
		return ctrl.Result{}, err
	}
	again, err := r.observeSettling(ctx, all)
	if err != nil {
		return ctrl.Result{}, err
	}
	next, memberErr := time.Millisecond, error(nil)
	if old.Status.Unsettled == g.Status.Unsettled { // Otherwise the status is written first: it says which nodes are held back.
		next, memberErr = r.members(ctx, all)
	}
	next = queue.Soonest(next, again)
	chosen := r.place(ctx, all)
	// An error with one node does not prevent the measurement of others.
	startErr := r.start(ctx, all, chosen)
	budgetErr := r.budget(ctx, all)
	all.refused = cmp.Or(refusal(memberErr, startErr, budgetErr), r.Memory.firstRefusal(all.Verifications))
	all.unprotected = r.Protection.Problem()
	summarize(all, chosen)
	if err := r.report(ctx, old, g); err != nil {
		return controllers.Written(0, err)
	}
	if g.Spec.Enforcement.HoldPod != nil && g.Spec.Enforcement.HoldPod.Budget != nil {
		next = queue.Soonest(next, budgetAgain) // Another client may have changed it, which no watch reports.
	}
	return controllers.Written(queue.Soonest(queue.Soonest(next, all.Schedule.Next), chosen.Again), errors.Join(memberErr, startErr, budgetErr))
}

type snapshot struct {
	*turns.Snapshot
	unprotected string            // what the installation lacks; empty: nothing
	refused     string            // the API server's error about a verification, or empty
	unsettled   *metav1.Condition // Operational, if the gate could never verify its nodes
	heldUp      map[string]string // why benchmarks do not start, by the names of their nodes
}

// observe lists from the cache, but measuring ones live: no slot or node is assigned twice.
func (r *Gates) observe(ctx context.Context, g *v1alpha1.LatencyGate) (*snapshot, error) {
	gates, nodes, verifications := &v1alpha1.LatencyGateList{}, &corev1.NodeList{}, &v1alpha1.LatencyVerificationList{}
	for _, list := range []client.ObjectList{gates, nodes, verifications} {
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing the objects that the gate needs: %w", err)
		}
	}
	measuring := &v1alpha1.LatencyVerificationList{}
	if err := r.Live.List(ctx, measuring, client.MatchingFields{"status.state": string(v1alpha1.VerificationMeasuring)}); err != nil {
		return nil, fmt.Errorf("listing the nodes that are being measured: %w", err)
	}
	s := &snapshot{Snapshot: turns.New(g, gates.Items, nodes.Items, verifications.Items, measuring.Items, r.Clock.Now())}
	return s, r.observeHeldUp(ctx, s, measuring.Items)
}

// refusal returns the first error that no other reconcile solves, or nothing.
func refusal(all ...error) string {
	for _, err := range all {
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return err.Error()
		}
	}
	return ""
}

func (r *Gates) members(ctx context.Context, s *snapshot) (time.Duration, error) {
	var first error
	if fresh := len(s.Verifications)+len(s.Retained)+len(s.Leaving) == 0; fresh && s.unsettled != nil && s.unsettled.Reason != v1alpha1.ReasonCannotSettle {
		return 0, nil // The marks would do harm, or stay for ever.
	}
	for i, node := range s.Missing {
		if i == maxCreated {
			return time.Millisecond, first
		}
		v := &v1alpha1.LatencyVerification{
			ObjectMeta: metav1.ObjectMeta{
				// Not the gate's: its deletion would take the accepted results along.
				Name:       v1alpha1.VerificationName(s.Gate.Name, node.Name),
				Finalizers: []string{v1alpha1.FinalizerNode},
			},
			Spec: v1alpha1.LatencyVerificationSpec{GateName: s.Gate.Name, NodeName: node.Name},
		}
		// It is ours, but not in the cache yet, or an earlier gate's.
		if err := r.Client.Create(controllers.With(ctx, "node", node.Name), v); err != nil && !apierrors.IsAlreadyExists(err) && first == nil {
			first = fmt.Errorf("creating the LatencyVerification of node %s: %w", node.Name, err)
		}
	}
	return 0, first
}

func (r *Gates) start(ctx context.Context, s *snapshot, chosen turns.Choice) error {
	var first error
	for _, begin := range chosen.Starts {
		first = cmp.Or(first, r.measure(ctx, s.Gate, begin))
	}
	for _, turn := range chosen.Due {
		first = cmp.Or(first, r.take(ctx, turn.Verification.DeepCopy(), due(s.Gate.Spec.Schedule, turn.Verification)))
	}
	for _, end := range chosen.Ended {
		v := end.Verification.DeepCopy()
		s := step{event: eventHeldUp, reason: v1alpha1.ReasonNoProgress, message: end.Why}.orGivenBack(v.Status.Turn)
		first = cmp.Or(first, r.take(ctx, v, s))
	}
	for _, end := range chosen.Alone {
		v := end.Verification.DeepCopy()
		s := step{event: eventAlone, reason: v1alpha1.ReasonFail, message: end.Why + ": " + v.Status.Verified().Message}
		first = cmp.Or(first, r.take(ctx, v, s))
	}
	return first
}

func conflict(v *v1alpha1.LatencyVerification) error {
	resource := v1alpha1.GroupVersion.WithResource("latencyverifications").GroupResource()
	return apierrors.NewConflict(resource, v.Name, errors.New("it changed meanwhile"))
}

func due(schedule string, v *v1alpha1.LatencyVerification) step {
	if requests := v.Status.Requests; v.Status.TurnRequestTime != nil && requests != nil && requests.Verify != nil {
		return requested(requests.Verify)
	}
	return step{event: eventDue, reason: v1alpha1.ReasonScheduleDue, message: "the schedule is due for the node, " + schedule}
}

func (r *Gates) take(ctx context.Context, v *v1alpha1.LatencyVerification, s step) error {
	status, err := s.apply(nil, v, v.Status, r.Clock.Now())
	if err != nil {
		return fmt.Errorf("LatencyVerification %s: %w", v.Name, err)
	}
	old := v.DeepCopy()
	v.Status = status
	if _, err := r.WriteStatus(ctx, old, v); err != nil {
		return fmt.Errorf("LatencyVerification %s: %w", v.Name, err)
	}
	logState(controllers.With(ctx, "node", v.Spec.NodeName), old, v)
	return nil
}

func (r *Gates) measure(ctx context.Context, g *v1alpha1.LatencyGate, begin turns.Start) error {
	v := &v1alpha1.LatencyVerification{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(begin.Verification), v); err != nil {
		return err
	}
	if v.ResourceVersion != begin.Verification.ResourceVersion {
		return conflict(v) // It has changed since it was chosen.
	}
	b := turns.Benchmark(g, v, begin.Peer, v.Status.Number+1)
	switch err := r.Client.Create(controllers.With(ctx, "node", v.Spec.NodeName), b); {
	case apierrors.IsAlreadyExists(err):
		// Another client or a manager that died created it: the number is taken.
		return cmp.Or(r.take(ctx, v, step{event: eventNameTaken}), conflict(v))
	case err != nil: // The node keeps its state, and its place in the queue.
		return r.take(ctx, v, step{event: eventRefused, reason: v1alpha1.ReasonBenchmarkRefused, message: fmt.Sprintf(
			"LatencyBenchmark %s/%s of node %s was refused: %v", b.Namespace, b.Name, v.Spec.NodeName, err)}.orGivenBack(v.Status.Turn))
	}
	digest, err := specDigest(b.Spec) // as the API server returned it, with its defaults
	if err != nil {
		return err
	}
	err = r.take(ctx, v, step{
		event: eventStarted, reason: v1alpha1.ReasonMeasuring,
		message: fmt.Sprintf("LatencyBenchmark %s measures it with %s; %s", b.Name, begin.Peer, v.Status.Verified().Message),
		benchmark: &v1alpha1.VerificationBenchmark{
			Name: b.Name, UID: string(b.UID), SpecSHA256: digest, Peer: begin.Peer, PeerVerified: begin.PeerVerified,
			StartTime: metav1.Time{Time: r.Clock.Now()},
		},
	})
	if apierrors.IsConflict(err) {
		// No status names it; later, it would have pods.
		err = errors.Join(err, controllers.Delete(ctx, r.Client, b, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	}
	return err
}

func (r *Gates) report(ctx context.Context, old, g *v1alpha1.LatencyGate) error {
	g.Status.ObservedGeneration = g.Generation
	written, err := r.WriteStatus(ctx, old, g)
	if written {
		r.Tell(ctx, g, gateNotices(old, g)...)
	}
	return err
}

// finalize waits for the release of the nodes; until then, the gate says what prevents it.
func (r *Gates) finalize(ctx context.Context, g *v1alpha1.LatencyGate) error {
	list := &v1alpha1.LatencyVerificationList{}
	if err := r.Live.List(ctx, list, client.MatchingFields{"spec.gateName": g.Name}); err != nil {
		return fmt.Errorf("listing the gate's verifications: %w", err)
	}
	var left []*v1alpha1.LatencyVerification
	for i := range list.Items {
		if v := &list.Items[i]; controllerutil.ContainsFinalizer(v, v1alpha1.FinalizerNode) {
			left = append(left, v)
		}
	}
	if len(left) > 0 {
		old := g.DeepCopy()
		g.SetCondition(leaving(left))
		return r.report(ctx, old, g)
	}
	return patchFinalizer(ctx, r.Client, g, controllerutil.RemoveFinalizer)
}

// SetupWithManager registers the controller. A change of one gate may give or take nodes of others.
func (r *Gates) SetupWithManager(mgr ctrl.Manager) error {
	r.Client = controllers.Logged(r.Client)
	allGates := func(ctx context.Context, _ client.Object) []reconcile.Request {
		return controllers.Requests[*v1alpha1.LatencyGate](ctx, mgr.GetClient(), &v1alpha1.LatencyGateList{}, nil)
	}
	gateNamed := func(name string) []reconcile.Request {
		if name == "" { // a benchmark of a user
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
	}
	ofVerification := gathered(func(_ context.Context, o client.Object) []reconcile.Request {
		return gateNamed(o.(*v1alpha1.LatencyVerification).Spec.GateName)
	})
	ofBenchmark := gathered(func(_ context.Context, o client.Object) []reconcile.Request {
		return gateNamed(o.GetLabels()[v1alpha1.LabelGate])
	})
	gates := ctrl.NewControllerManagedBy(mgr)
	if r.Protection != nil {
		gates = gates.WatchesRawSource(source.Channel(r.Protection.Changed, gathered(allGates)))
	}
	return gates.
		Named("latencygate").
		Watches(&v1alpha1.LatencyGate{}, handler.EnqueueRequestsFromMapFunc(allGates), builder.WithPredicates(gateChanges)).
		Watches(&v1alpha1.LatencyVerification{}, ofVerification, builder.WithPredicates(stateChanges)).
		Watches(&v1alpha1.LatencyBenchmark{}, ofBenchmark, builder.WithPredicates(heldUpChanges)).
		Watches(&corev1.Node{}, gathered(allGates), builder.WithPredicates(nodeChanges)).
		WithOptions(controller.Options{RateLimiter: retries()}).
		Complete(r)
}

func gathered(requests func(context.Context, client.Object) []reconcile.Request) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(ctx context.Context, o client.Object, q queue) {
		for _, request := range requests(ctx, o) {
			q.AddAfter(request, gather)
		}
	}
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, e.Object, q) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, e.ObjectNew, q) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, e.Object, q) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) { add(ctx, e.Object, q) },
	}
}

// heldUp returns why a benchmark does not start, or waits for another attempt, besides its turn.
func heldUp(b *v1alpha1.LatencyBenchmark) string {
	if b.Finished() {
		return ""
	}
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionAccepted); c != nil && c.Status == metav1.ConditionFalse && b.Status.Active == nil {
		return c.Reason + ": " + c.Message
	}
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSucceeded)
	if c == nil || slices.Contains([]string{v1alpha1.ReasonQueued, v1alpha1.ReasonStarting, v1alpha1.ReasonRunning, v1alpha1.ReasonEnding}, c.Reason) {
		return ""
	}
	return c.Reason + ": " + c.Message
}

var heldUpChanges = controllers.Updates(func(before, after *v1alpha1.LatencyBenchmark) bool { return heldUp(before) != heldUp(after) })

func (r *Gates) observeHeldUp(ctx context.Context, s *snapshot, measuring []v1alpha1.LatencyVerification) error {
	s.heldUp = map[string]string{}
	for i := range measuring {
		v := &measuring[i]
		if v.Spec.GateName != s.Gate.Name || v.Status.Benchmark == nil {
			continue
		}
		b := &v1alpha1.LatencyBenchmark{}
		if err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.Gate.Spec.Namespace, Name: v.Status.Benchmark.Name}, b); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("getting LatencyBenchmark %s: %w", v.Status.Benchmark.Name, err)
		}
		if why := heldUp(b); why != "" {
			s.heldUp[v.Spec.NodeName] = why
		}
	}
	return nil
}

var gateChanges = controllers.Updates(func(before, after *v1alpha1.LatencyGate) bool {
	return before.Generation != after.Generation || before.Status.Unsettled != after.Status.Unsettled || before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() || len(before.Finalizers) != len(after.Finalizers)
})

// stateChanges passes changes of a status, and of the finalizers, which a deleted gate awaits.
var stateChanges = controllers.Updates(func(before, after *v1alpha1.LatencyVerification) bool {
	return !equality.Semantic.DeepEqual(before.Status, after.Status) || len(before.Finalizers) != len(after.Finalizers)
})

var nodeChanges = controllers.Updates(func(before, after *corev1.Node) bool { return !sameNode(before, after) })

// suppliersFor is how long suppliers count, at least: any user may create DaemonSets to be read.
const suppliersFor = 10 * time.Second

func (r *Gates) observeSettling(ctx context.Context, s *snapshot) (time.Duration, error) {
	if r.Cluster != nil {
		if never := preflight.Undecidable(s.Gate, r.Cluster.Tools[s.Gate.Spec.Template.Spec.Tool]); never != nil {
			s.cannotSettle(never.Reason, never.String())
			return 0, nil
		}
	}
	if preflight.HeldBy(s.Gate) != nil || preflight.MeasuresCordoned(s.Gate) {
		all, err := r.Memory.suppliers.get(ctx, r.Live, s.Now)
		if err != nil {
			return 0, err
		}
		nodes := append([]*corev1.Node{}, s.Missing...)
		for _, v := range s.Verifications {
			nodes = append(nodes, s.Nodes[v.Spec.NodeName])
		}
		if reason, message := preflight.Unsettled(s.Gate, nodes, all); reason != "" {
			s.cannotSettle(reason, message)
			return suppliersFor, nil
		}
	}
	s.observeIntroduction()
	return 0, nil
}

func (s *snapshot) observeIntroduction() {
	if !s.Introducing() {
		return
	}
	why := s.Foresee().Never
	if why != "" {
		s.cannotSettle(v1alpha1.ReasonCannotSettle, fmt.Sprintf("none of the %d nodes can be measured, so that the gate holds back only nodes that join; %s",
			len(s.Missing)+len(s.Verifications), text.Shorten(why, 1024)))
	}
	s.Settle(why)
}

func (s *snapshot) cannotSettle(reason, message string) {
	s.unsettled = new(v1alpha1.Condition(v1alpha1.ConditionOperational, metav1.ConditionFalse, reason, message))
}

// get reads the suppliers unless it just did. A missing or forbidden kind has none.
func (c *suppliers) get(ctx context.Context, live client.Reader, now time.Time) ([]preflight.Supplier, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if age := now.Sub(c.read); age >= 0 && age < max(suppliersFor, 10*c.took) {
		return c.all, nil
	}
	started := time.Now()
	all, err := observe.Suppliers(ctx, live, nil)
	if err != nil {
		return nil, err
	}
	c.read, c.took, c.all = now, time.Since(started), all
	return all, nil
}
