// Package matrix reconciles LatencyMatrices in the same five verbs as package benchmark: get, observe, decide, apply,
// report. A matrix measures nothing itself. It makes a LatencyBenchmark for each pair, which has claims, attempts, results
// and a verdict of its own, and summarizes them in its status.
//
//	accepted ──claim──▶ claimed ──create──▶ queued, measured by package benchmark ──finished──▶ released
//	                       ▲                             │
//	                       └───────── deleted ◀──────────┘
//
// The nodes are chosen once and the plan follows from them, so a pair is known by its number and its benchmark by its
// name. A claim on one of the places that spec.parallelism gives is a status write with the resourceVersion that was got,
// made before the pair's benchmark is; a manager that dies at any point leaves what the next one recognises. Whatever is
// missing is made: also the benchmark of a pair that was measured, if a user deleted it.
//
// The benchmarks of the pairs are read from the cache, where they may be late and never wrong: nothing that was
// finished is taken up again. Whether one exists is asked of the API server, by its name, before anything rests on it.
package matrix

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
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/controllers/benchmark"
	"github.com/tailgate-dev/tailgate/internal/preflight"
)

// Preflight observes what the checks before the acceptance of a matrix, given its overview, look at.
type Preflight func(ctx context.Context, b *v1alpha1.LatencyBenchmark, ofMatrix bool) (preflight.Observed, error)

// Reconciler reconciles LatencyMatrices.
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

// +kubebuilder:rbac:groups=tailgate.dev,resources=latencymatrices,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=tailgate.dev,resources=latencymatrices/status,verbs=update
// +kubebuilder:rbac:groups=tailgate.dev,resources=latencymatrices/finalizers,verbs=update
// +kubebuilder:rbac:groups=tailgate.dev,resources=latencybenchmarks,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile takes the next steps of one matrix.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	m := &v1alpha1.LatencyMatrix{}
	if err := r.Live.Get(ctx, req.NamespacedName, m); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !m.DeletionTimestamp.IsZero() {
		// Owner references take the pairs' benchmarks along.
		return ctrl.Result{}, nil
	}
	old := m.DeepCopy()
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
		// What was done is recorded all the same.
		return ctrl.Result{}, errors.Join(err, r.report(ctx, old, world))
	}
	if err := r.report(ctx, old, world); err != nil {
		return controllers.Written(0, err)
	}
	expires, err := r.expire(ctx, m)
	return controllers.Written(controllers.Soonest(again, expires), err)
}

// SetupWithManager registers the controller: it is woken by its matrices and the benchmarks of their pairs, by the nodes for
// those that are not accepted yet, and by the matrices that are baselines or have them.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
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
		Watches(&corev1.Node{}, unaccepted, builder.WithPredicates(benchmark.NodeChanges)).
		Watches(&v1alpha1.LatencyMatrix{}, compared, builder.WithPredicates(planChanges)).
		Complete(r)
}

// kind of all matrices.
const kind = "LatencyMatrix"

// indexMatrix finds the benchmarks of pairs by the UID of the matrix that owns them: any user can change a label.
const indexMatrix = "matrix"

func matrixOf(o client.Object) []string {
	if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == kind {
		return []string{string(owner.UID)}
	}
	return nil
}

// accepted says whether the nodes of a matrix were chosen.
func accepted(m *v1alpha1.LatencyMatrix) bool { return len(m.Status.Nodes) > 0 }

// childChanges passes the events after which the benchmark of a pair counts otherwise than before. Most of its writes,
// about pods that start and end, are not among them.
var childChanges = controllers.Updates(func(before, after *v1alpha1.LatencyBenchmark) bool { return countsOf(before) != countsOf(after) })

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

// planChanges passes the events after which a baseline has other pairs than before, or a matrix another baseline.
var planChanges = controllers.Updates(func(before, after *v1alpha1.LatencyMatrix) bool {
	return before.UID != after.UID || accepted(before) != accepted(after) || baselineOf(before) != baselineOf(after)
})

// failed says whether the benchmark of a pair is finished without having measured everything.
func failed(child *v1alpha1.LatencyBenchmark) bool {
	return meta.IsStatusConditionFalse(child.Status.Conditions, v1alpha1.ConditionSucceeded)
}
