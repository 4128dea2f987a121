// Package retention deletes finished benchmarks, with their results, when their own spec requests it: a time after they have
// finished, or when a number of newer benchmarks of their series are complete. The spec of a benchmark never deletes another
// benchmark. The only state is the completion time of the benchmark, so that a new manager continues where another one died.
package retention

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
)

// Reconciler deletes finished LatencyBenchmarks that their spec does not keep.
type Reconciler struct {
	// Client deletes. The other benchmarks of the namespace are read from its cache.
	Client client.Client
	// Live reads from the API server, past the cache.
	Live client.Reader
	// Recorder emits events.
	Recorder events.EventRecorder
	// Clock tells the time.
	Clock clock.PassiveClock
}

// +kubebuilder:rbac:groups=tailgate.dev,resources=latencybenchmarks,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile deletes one benchmark if its spec requests it.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	b := &v1alpha1.LatencyBenchmark{}
	if err := r.Live.Get(ctx, req.NamespacedName, b); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !limited(b) {
		return ctrl.Result{}, nil
	}
	list := &v1alpha1.LatencyBenchmarkList{}
	if err := r.Client.List(ctx, list, client.InNamespace(b.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("listing the benchmarks beside it: %w", err)
	}
	s := decide(b, list.Items, r.Clock.Now())
	switch s.kind {
	case stepKeep:
		if s.message != "" {
			r.Recorder.Eventf(b, nil, corev1.EventTypeNormal, v1alpha1.ReasonKept, "Delete", "%s", s.message)
		}
	case stepDelete:
		err := Delete(ctx, r.Client, b.DeepCopy())
		if apierrors.IsConflict(err) {
			return ctrl.Result{RequeueAfter: soon}, nil
		}
		if client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, fmt.Errorf("deleting it: %w", err)
		}
		if err == nil {
			r.Recorder.Eventf(b, nil, corev1.EventTypeNormal, v1alpha1.ReasonExpired, "Delete", "%s", s.message)
		}
	}
	return ctrl.Result{RequeueAfter: s.again}, nil
}

// Delete deletes an object and its dependents, but only in the version that was read: its spec may just have been edited.
func Delete(ctx context.Context, c client.Writer, o client.Object) error {
	uid, version := o.GetUID(), o.GetResourceVersion()
	return c.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationBackground))
}

// SetupWithManager registers the controller. A benchmark is reconciled when it changes, when another benchmark of its series is
// complete, and when a benchmark that had it as its baseline is deleted or names another baseline.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	ofSeries := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return seriesOf(ctx, mgr.GetClient(), o)
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("retention").
		For(&v1alpha1.LatencyBenchmark{}, builder.WithPredicates(predicate.NewPredicateFuncs(func(o client.Object) bool {
			b, ok := o.(*v1alpha1.LatencyBenchmark)
			return ok && limited(b)
		}))).
		Watches(&v1alpha1.LatencyBenchmark{}, ofSeries, builder.WithPredicates(completions)).
		Watches(&v1alpha1.LatencyBenchmark{}, handler.EnqueueRequestsFromMapFunc(baselines), builder.WithPredicates(controllers.NotCreated, baselineChanges)).
		Complete(r)
}

// completions passes the events that add a complete benchmark to a series.
var completions = predicate.And(controllers.NotCreated, predicate.Funcs{DeleteFunc: func(event.DeleteEvent) bool { return false }},
	controllers.Updates(func(before, after *v1alpha1.LatencyBenchmark) bool {
		return complete(after) && (!complete(before) || before.Labels[v1alpha1.LabelSeries] != after.Labels[v1alpha1.LabelSeries])
	}))

// seriesOf returns requests for the limited benchmarks in the series of an object.
func seriesOf(ctx context.Context, c client.Reader, o client.Object) []reconcile.Request {
	series := o.GetLabels()[v1alpha1.LabelSeries]
	if series == "" {
		return nil
	}
	return controllers.Requests(ctx, c, &v1alpha1.LatencyBenchmarkList{}, limited, client.InNamespace(o.GetNamespace()), client.MatchingLabels{v1alpha1.LabelSeries: series})
}

// baselineChanges passes the deletion of a benchmark, and the changes that give it another baseline.
var baselineChanges = controllers.Updates(func(before, after *v1alpha1.LatencyBenchmark) bool { return baselineOf(before) != baselineOf(after) })

// baselines returns the request for the baseline of a benchmark.
func baselines(_ context.Context, o client.Object) []reconcile.Request {
	name := baselineOf(o)
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}
