package benchmark

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/queue"
)

// +kubebuilder:rbac:groups=tailgate.dev,resources=latencybenchmarks,verbs=delete

// expire deletes a finished benchmark as its own spec requests, and returns when to look again.
func (r *Reconciler) expire(ctx context.Context, b *v1alpha1.LatencyBenchmark) (time.Duration, error) {
	if !limited(b) {
		return 0, nil
	}
	list := &v1alpha1.LatencyBenchmarkList{}
	if err := r.Client.List(ctx, list, client.InNamespace(b.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing the benchmarks beside it: %w", err)
	}
	why, user, again := expiryOf(b, list.Items, r.Clock.Now())
	if why == "" {
		return again, nil
	}
	return r.Expire(ctx, b.DeepCopy(), why, user)
}

func limited(b *v1alpha1.LatencyBenchmark) bool {
	return b.Finished() && b.DeletionTimestamp.IsZero() && (b.Spec.TTLSecondsAfterFinished != nil || b.Spec.HistoryLimit > 0) && !owned(b)
}

func expiryOf(b *v1alpha1.LatencyBenchmark, all []v1alpha1.LatencyBenchmark, now time.Time) (why, user string, again time.Duration) {
	overdue, again := controllers.Overdue(b.Spec.TTLSecondsAfterFinished, b.CreationTimestamp, b.Status.CompletionTime, now)
	return cmp.Or(overdue, outnumbered(b, all)), userOf(b, all), again
}

// outnumbered counts the newer benchmarks of a series. Failed ones replace no result.
func outnumbered(b *v1alpha1.LatencyBenchmark, all []v1alpha1.LatencyBenchmark) string {
	series := b.Labels[v1alpha1.LabelSeries]
	if b.Spec.HistoryLimit == 0 || series == "" {
		return ""
	}
	newer := int32(0)
	for i := range all {
		o := &all[i]
		complete := o.Succeeded() == metav1.ConditionTrue && o.DeletionTimestamp.IsZero()
		if o.Labels[v1alpha1.LabelSeries] == series && complete && !owned(o) && queue.CompareAge(o, b) > 0 {
			newer++
		}
	}
	if newer < b.Spec.HistoryLimit {
		return ""
	}
	return fmt.Sprintf("spec.historyLimit is %d, and %d newer benchmarks of series %s are complete", b.Spec.HistoryLimit, newer, series)
}

func userOf(b *v1alpha1.LatencyBenchmark, all []v1alpha1.LatencyBenchmark) string {
	for i := range all {
		o := &all[i]
		other := o.UID != b.UID && o.DeletionTimestamp.IsZero() && !metav1.IsControlledBy(o, b)
		if other && o.Spec.Criteria.BaselineOf(v1alpha1.BaselineBenchmark) == b.Name {
			return o.Name
		}
	}
	return ""
}

func owned(b *v1alpha1.LatencyBenchmark) bool {
	owner := metav1.GetControllerOfNoCopy(b)
	return owner != nil && strings.HasPrefix(owner.APIVersion, v1alpha1.GroupVersion.Group+"/")
}

var completions = predicate.And(controllers.NotCreated, predicate.Funcs{DeleteFunc: func(event.DeleteEvent) bool { return false }},
	controllers.Updates(func(before, after *v1alpha1.LatencyBenchmark) bool {
		added := before.Labels[v1alpha1.LabelSeries] != after.Labels[v1alpha1.LabelSeries]
		return after.Succeeded() == metav1.ConditionTrue && (before.Succeeded() != metav1.ConditionTrue || added)
	}))

func (r *Reconciler) ofSeries(ctx context.Context, o client.Object) []reconcile.Request {
	series := o.GetLabels()[v1alpha1.LabelSeries]
	if series == "" {
		return nil
	}
	return controllers.Requests(ctx, r.Client, &v1alpha1.LatencyBenchmarkList{}, limited,
		client.InNamespace(o.GetNamespace()), client.MatchingLabels{v1alpha1.LabelSeries: series})
}

var baselineChanges = controllers.Updates(func(before, after *v1alpha1.LatencyBenchmark) bool {
	return before.Spec.Criteria.BaselineOf(v1alpha1.BaselineBenchmark) != after.Spec.Criteria.BaselineOf(v1alpha1.BaselineBenchmark)
})

func baselines(_ context.Context, o client.Object) []reconcile.Request {
	name := o.(*v1alpha1.LatencyBenchmark).Spec.Criteria.BaselineOf(v1alpha1.BaselineBenchmark)
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}
