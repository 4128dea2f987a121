// Package matrix reconciles LatencyMatrices by the verbs of package benchmark: get, observe,
// decide, apply, report. A matrix measures nothing: it creates a LatencyBenchmark for each pair,
// with its own claims, attempts, results and verdict, and summarizes them in its status.
//
//	accepted ──claim──▶ claimed ──create──▶ queued, measured by package benchmark ──finished──▶ released
//	                       ▲                             │
//	                       └───────── deleted ◀──────────┘
//
// The nodes are chosen once and determine the plan: a pair is identified by its number, its
// benchmark by its name. A claim on one of spec.parallelism's places is a status write with the
// resourceVersion that was read, before the benchmark is created: whenever a manager dies, the next
// one recognises the state. A missing benchmark is created, also if a user deleted a measured one.
// Benchmarks are read from the cache, where they may be late but never wrong: a finished one does
// not continue. Before a step depends on whether one exists, it is read live by name.
package matrix

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/queue"
)

type Reconciler struct {
	controllers.API // reads benchmarks, nodes and other matrices from the cache
	Cluster         *observe.Cluster
	Namespaces      controllers.Named
}

// +kubebuilder:rbac:groups=tailgate.dev,resources=latencymatrices,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=tailgate.dev,resources=latencymatrices/status;latencymatrices/finalizers,verbs=update
// +kubebuilder:rbac:groups=tailgate.dev,resources=latencybenchmarks,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if !r.Namespaces.Has(req.Namespace) {
		return ctrl.Result{}, nil
	}
	m := &v1alpha1.LatencyMatrix{}
	if err := r.Live.Get(ctx, req.NamespacedName, m); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !m.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // The garbage collector deletes the pairs' benchmarks.
	}
	ctx = controllers.With(ctx, "matrix", req.String())
	old := m.DeepCopy()
	controllers.SettleTimes(&m.Status, r.Clock.Now())
	world, err := r.observe(ctx, m)
	if err != nil {
		return ctrl.Result{}, err
	}
	steps := decide(world)
	log.FromContext(ctx).V(1).Info("decided", "release", steps.release, "postpone", steps.postpone, "create", steps.create,
		"claim", steps.claim, "update", steps.update)
	again, err := r.apply(ctx, world, steps)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return controllers.Written(0, err)
	}
	if err != nil {
		return ctrl.Result{}, errors.Join(err, r.report(ctx, old, world))
	}
	if err := r.report(ctx, old, world); err != nil {
		return controllers.Written(0, err)
	}
	expires, err := r.expire(ctx, m)
	return controllers.Written(queue.Soonest(again, expires), err)
}

func (r *Reconciler) expire(ctx context.Context, m *v1alpha1.LatencyMatrix) (time.Duration, error) {
	if !m.Finished() {
		return 0, nil
	}
	why, again := controllers.Overdue(m.Spec.TTLSecondsAfterFinished, m.CreationTimestamp, m.Status.CompletionTime, r.Clock.Now())
	if why == "" {
		return again, nil
	}
	list := &v1alpha1.LatencyMatrixList{}
	if err := r.Client.List(ctx, list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing the matrices beside it: %w", err)
	}
	user := ""
	for i := range list.Items {
		if o := &list.Items[i]; o.DeletionTimestamp.IsZero() && baselineOf(o) == m.Name {
			user = o.Name
		}
	}
	return r.Expire(ctx, m.DeepCopy(), why, user)
}

// SetupWithManager registers the controller. Nodes matter to a matrix while it is not accepted.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.Client = controllers.Logged(r.Client)
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.LatencyBenchmark{}, indexMatrix, matrixOf); err != nil {
		return fmt.Errorf("indexing benchmarks by %s: %w", indexMatrix, err)
	}
	unaccepted := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return controllers.Requests(ctx, mgr.GetClient(), &v1alpha1.LatencyMatrixList{}, func(m *v1alpha1.LatencyMatrix) bool { return !accepted(m) })
	})
	compared := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return controllers.Requests(ctx, mgr.GetClient(), &v1alpha1.LatencyMatrixList{}, func(m *v1alpha1.LatencyMatrix) bool {
			return m.Namespace == o.GetNamespace() && (baselineOf(m) == o.GetName() || baselineOf(o.(*v1alpha1.LatencyMatrix)) == m.Name)
		})
	})
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.LatencyMatrix{}).
		Owns(&v1alpha1.LatencyBenchmark{}, builder.WithPredicates(childChanges)).
		Watches(&corev1.Node{}, unaccepted, builder.WithPredicates(controllers.NodeChanges)).
		Watches(&v1alpha1.LatencyMatrix{}, compared, builder.WithPredicates(planChanges)).
		Complete(r)
}

const kind = "LatencyMatrix"

// indexMatrix finds pairs' benchmarks by their owner's UID: any user can change a label.
const indexMatrix = "matrix"

func matrixOf(o client.Object) []string {
	if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == kind {
		return []string{string(owner.UID)}
	}
	return nil
}

func accepted(m *v1alpha1.LatencyMatrix) bool { return len(m.Status.Nodes) > 0 }

// childChanges drops writes about pods that start and end, most of a pair's benchmark.
var childChanges = controllers.Updates(func(before, after *v1alpha1.LatencyBenchmark) bool { return childFacts(before) != childFacts(after) })

func childFacts(b *v1alpha1.LatencyBenchmark) string {
	facts := []any{b.Generation, b.DeletionTimestamp.IsZero(), b.Status.StartTime != nil}
	if owner := metav1.GetControllerOfNoCopy(b); owner != nil {
		facts = append(facts, owner.UID)
	}
	if b.Status.Progress != nil {
		facts = append(facts, *b.Status.Progress)
	}
	for _, c := range b.Status.Conditions {
		switch c.Type {
		case v1alpha1.ConditionSucceeded:
			facts = append(facts, c.Type, c.Status)
		case v1alpha1.ConditionAccepted, v1alpha1.ConditionPassed:
			facts = append(facts, c.Type, c.Status, c.Reason, c.Message, c.ObservedGeneration)
		}
	}
	return fmt.Sprintln(facts...)
}

var planChanges = controllers.Updates(func(before, after *v1alpha1.LatencyMatrix) bool {
	return before.UID != after.UID || accepted(before) != accepted(after) || baselineOf(before) != baselineOf(after)
})

func failed(child *v1alpha1.LatencyBenchmark) bool {
	return meta.IsStatusConditionFalse(child.Status.Conditions, v1alpha1.ConditionSucceeded)
}
