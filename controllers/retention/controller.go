// Package retention deletes finished benchmarks, with their results, when their own spec says so: a time after they have
// finished, or when so many newer ones of their series are complete. A benchmark never deletes another one, and keeps
// nothing of its own but its completion time: a manager that dies at any point is followed by one that does the same.
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
	// Client deletes. From its cache the other benchmarks of the namespace are read.
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

// Reconcile looks whether one benchmark is to be deleted.
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

// Delete deletes the version of an object that was decided about, with what it owns: its spec may just have been edited.
func Delete(ctx context.Context, c client.Writer, o client.Object) error {
	uid, version := o.GetUID(), o.GetResourceVersion()
	return c.Delete(ctx, o, client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationBackground))
}

// SetupWithManager registers the controller. A benchmark is looked at when it changes, when another one of its series is
// complete, and when one that had it as its baseline goes or names another.
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
		Watches(&v1alpha1.LatencyBenchmark{}, handler.Funcs{
			UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue requests) {
				if name := baselineOf(e.ObjectOld); name != baselineOf(e.ObjectNew) {
					wake(queue, e.ObjectOld.GetNamespace(), name)
				}
			},
			DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue requests) {
				wake(queue, e.Object.GetNamespace(), baselineOf(e.Object))
			},
		}).
		Complete(r)
}

// completions passes the events after which a series has one complete benchmark more.
var completions = predicate.And(controllers.NotCreated, predicate.Funcs{DeleteFunc: func(event.DeleteEvent) bool { return false }},
	controllers.Updates(func(before, after *v1alpha1.LatencyBenchmark) bool {
		return complete(after) && (!complete(before) || before.Labels[v1alpha1.LabelSeries] != after.Labels[v1alpha1.LabelSeries])
	}))

// seriesOf are the benchmarks in the series of one.
func seriesOf(ctx context.Context, c client.Reader, o client.Object) []reconcile.Request {
	series := o.GetLabels()[v1alpha1.LabelSeries]
	if series == "" {
		return nil
	}
	return controllers.Requests(ctx, c, &v1alpha1.LatencyBenchmarkList{}, limited, client.InNamespace(o.GetNamespace()), client.MatchingLabels{v1alpha1.LabelSeries: series})
}

// wake looks again at the benchmark that was a baseline.
func wake(queue requests, namespace, name string) {
	if name != "" {
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	}
}
