// Package pairing reconciles LatencyBenchmarks of many pairs in the same five verbs as package benchmark: get, observe,
// decide, apply, report. Such a benchmark measures nothing itself. It makes a benchmark for each pair, which has claims,
// attempts, results and a verdict of its own, and tells in its status what they come to.
//
//	accepted ──claim──▶ claimed ──create──▶ queued, measured by package benchmark ──finished──▶ released
//	                       ▲                             │
//	                       └───────── deleted ◀──────────┘
//
// The nodes are chosen once and the plan follows from them, so a pair is known by its number and its benchmark by its
// name. A claim on one of the places that maxParallelPairs gives is a status write with the resourceVersion that was got,
// made before the pair's benchmark is; a manager that dies at any point leaves what the next one recognises. Whatever is
// missing is made: also the benchmark of a pair that was measured, if somebody deleted it.
//
// What the pairs' benchmarks have come to is read from the cache, where it may be late and never wrong: nothing that was
// finished is taken up again. Whether one exists is asked of the API server, by its name, before anything rests on it.
package pairing

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers/benchmark"
	"github.com/tailgate-dev/tailgate/internal/preflight"
)

// Preflight observes what the checks before a benchmark's acceptance look at.
type Preflight func(ctx context.Context, b *v1alpha1.LatencyBenchmark) (preflight.Observed, error)

// Reconciler reconciles LatencyBenchmarks of many pairs.
type Reconciler struct {
	// Client writes. From its cache the benchmarks of the pairs are read.
	Client client.Client
	// Live reads from the API server, past the cache.
	Live client.Reader
	// Preflight is package benchmark's.
	Preflight Preflight
	// Recorder emits events.
	Recorder events.EventRecorder
	// Clock tells the time.
	Clock clock.PassiveClock
}

// +kubebuilder:rbac:groups=tailgate.dev,resources=latencybenchmarks,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups=tailgate.dev,resources=latencybenchmarks/status,verbs=update
// +kubebuilder:rbac:groups=tailgate.dev,resources=latencybenchmarks/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile takes the next steps of one benchmark of many pairs.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	b := &v1alpha1.LatencyBenchmark{}
	if err := r.Live.Get(ctx, req.NamespacedName, b); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !b.ManyPairs() || !b.DeletionTimestamp.IsZero() {
		// Owner references take the pairs' benchmarks along.
		return ctrl.Result{}, nil
	}
	old := b.DeepCopy()
	world, err := r.observe(ctx, b)
	if err != nil {
		return ctrl.Result{}, err
	}
	steps := decide(world)
	log.FromContext(ctx).V(1).Info("decided", "release", steps.release, "postpone", steps.postpone, "create", steps.create,
		"claim", steps.claim, "update", steps.update)
	again, err := r.apply(ctx, world, steps)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return benchmark.Written(0, err)
	}
	if err != nil {
		// What was done is recorded all the same.
		return ctrl.Result{}, errors.Join(err, r.report(ctx, old, world))
	}
	return benchmark.Written(again, r.report(ctx, old, world))
}

// SetupWithManager registers the controller: it is woken by its benchmarks and those of their pairs, by the nodes for
// those that are not accepted yet, and by the benchmarks of many pairs that are baselines.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	indexer := mgr.GetFieldIndexer()
	for field, value := range map[string]client.IndexerFunc{indexParent: parentOf, indexManyPairs: manyPairs} {
		if err := indexer.IndexField(context.Background(), &v1alpha1.LatencyBenchmark{}, field, value); err != nil {
			return fmt.Errorf("indexing benchmarks by %s: %w", field, err)
		}
	}
	unaccepted := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return requests(ctx, mgr.GetClient(), func(b *v1alpha1.LatencyBenchmark) bool { return b.Status.Pairs == nil })
	})
	ofBaseline := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return requests(ctx, mgr.GetClient(), func(b *v1alpha1.LatencyBenchmark) bool {
			return b.Namespace == o.GetNamespace() && baselineOf(b) == o.GetName()
		})
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("pairing").
		For(&v1alpha1.LatencyBenchmark{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			b, ok := o.(*v1alpha1.LatencyBenchmark)
			return ok && b.ManyPairs()
		}))).
		Owns(&v1alpha1.LatencyBenchmark{}, builder.WithPredicates(childChanges)).
		Watches(&corev1.Node{}, unaccepted, builder.WithPredicates(benchmark.NodeChanges)).
		Watches(&v1alpha1.LatencyBenchmark{}, ofBaseline, builder.WithPredicates(planChanges)).
		Complete(r)
}

// kind of all benchmarks.
const kind = "LatencyBenchmark"

const (
	// indexParent finds the benchmarks of pairs by the UID of the one that owns them: a label can be changed by anybody.
	indexParent = "parent"
	// indexManyPairs finds the benchmarks of many pairs by isManyPairs.
	indexManyPairs = "manyPairs"
	isManyPairs    = "yes"
)

func parentOf(o client.Object) []string {
	if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == kind {
		return []string{string(owner.UID)}
	}
	return nil
}

func manyPairs(o client.Object) []string {
	if b, ok := o.(*v1alpha1.LatencyBenchmark); ok && b.ManyPairs() {
		return []string{isManyPairs}
	}
	return nil
}

// requests are for the benchmarks of many pairs that are to be woken.
func requests(ctx context.Context, c client.Reader, wake func(*v1alpha1.LatencyBenchmark) bool) []reconcile.Request {
	list := &v1alpha1.LatencyBenchmarkList{}
	if err := c.List(ctx, list, client.MatchingFields{indexManyPairs: isManyPairs}, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "listing benchmarks of many pairs to wake")
		return nil
	}
	var all []reconcile.Request
	for i := range list.Items {
		if b := &list.Items[i]; wake(b) {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(b)})
		}
	}
	return all
}

// childChanges passes the events after which the benchmark of a pair counts otherwise than before. Most of its writes,
// about pods that start and end, are not among them.
var childChanges = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.LatencyBenchmark)
		after, ok2 := e.ObjectNew.(*v1alpha1.LatencyBenchmark)
		return ok && ok2 && countsOf(before) != countsOf(after)
	},
}

// counts is what counts of the benchmark of a pair.
type counts struct {
	owner            types.UID
	generation       int64
	deleted, started bool
	progress         v1alpha1.Progress
	succeeded        metav1.ConditionStatus
	accepted, passed said
}

// said is what a condition says.
type said struct {
	status          metav1.ConditionStatus
	reason, message string
	generation      int64
}

func countsOf(b *v1alpha1.LatencyBenchmark) counts {
	c := counts{generation: b.Generation, deleted: !b.DeletionTimestamp.IsZero(), started: b.Status.StartTime != nil}
	if owner := metav1.GetControllerOfNoCopy(b); owner != nil {
		c.owner = owner.UID
	}
	if b.Status.Progress != nil {
		c.progress = *b.Status.Progress
	}
	for _, found := range b.Status.Conditions {
		switch what := (said{found.Status, found.Reason, found.Message, found.ObservedGeneration}); found.Type {
		case v1alpha1.ConditionSucceeded:
			c.succeeded = found.Status
		case v1alpha1.ConditionAccepted:
			c.accepted = what
		case v1alpha1.ConditionPassed:
			c.passed = what
		}
	}
	return c
}

// planChanges passes the events after which a baseline has other pairs than before.
var planChanges = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.LatencyBenchmark)
		after, ok2 := e.ObjectNew.(*v1alpha1.LatencyBenchmark)
		return ok && ok2 && (before.UID != after.UID || (before.Status.Pairs == nil) != (after.Status.Pairs == nil) ||
			(before.Status.Pair == nil) != (after.Status.Pair == nil))
	},
}

// failed says whether the benchmark of a pair is finished without having measured everything.
func failed(child *v1alpha1.LatencyBenchmark) bool {
	return meta.IsStatusConditionFalse(child.Status.Conditions, v1alpha1.ConditionSucceeded)
}
