package benchmark

import (
	"cmp"
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
)

// +kubebuilder:rbac:groups=tailgate.dev,resources=latencybenchmarks,verbs=delete

// expire deletes a finished benchmark, with its results, if its own spec requests it: a time after it has finished, or when a
// number of newer benchmarks of its series are complete. The spec of a benchmark never deletes another benchmark. The only state
// is the completion time, so that a new manager continues where another one died. expire returns when to look again if nothing
// happens.
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

// limited reports whether a benchmark may have to be deleted at some time: it is finished, its spec limits how long it is kept,
// and no object of Tailgate owns it.
func limited(b *v1alpha1.LatencyBenchmark) bool {
	return b.Finished() && b.DeletionTimestamp.IsZero() && (b.Spec.TTLSecondsAfterFinished != nil || b.Spec.HistoryLimit > 0) && !owned(b)
}

// expiryOf returns why a limited benchmark must be deleted, and the name of a benchmark that has it as its baseline, given all
// benchmarks of its namespace. If it need not be deleted yet, why is empty, and again is when to look again; zero: only when
// something happens. It is pure.
func expiryOf(b *v1alpha1.LatencyBenchmark, all []v1alpha1.LatencyBenchmark, now time.Time) (why, user string, again time.Duration) {
	overdue, again := controllers.Overdue(b.Spec.TTLSecondsAfterFinished, b.CreationTimestamp, b.Status.CompletionTime, now)
	return cmp.Or(overdue, outnumbered(b, all)), userOf(b, all), again
}

// outnumbered returns why a benchmark must be deleted if spec.historyLimit newer benchmarks of its series are complete; otherwise
// it returns an empty string. Failed benchmarks do not count, because they replace no result.
func outnumbered(b *v1alpha1.LatencyBenchmark, all []v1alpha1.LatencyBenchmark) string {
	series := b.Labels[v1alpha1.LabelSeries]
	if b.Spec.HistoryLimit == 0 || series == "" {
		return ""
	}
	newer := int32(0)
	for i := range all {
		o := &all[i]
		complete := o.Succeeded() == metav1.ConditionTrue && o.DeletionTimestamp.IsZero()
		if o.Labels[v1alpha1.LabelSeries] == series && complete && !owned(o) && controllers.CompareAge(o, b) > 0 {
			newer++
		}
	}
	if newer < b.Spec.HistoryLimit {
		return ""
	}
	return fmt.Sprintf("spec.historyLimit is %d, and %d newer benchmarks of series %s are complete", b.Spec.HistoryLimit, newer, series)
}

// userOf returns the name of a benchmark that has this one as its baseline; empty if there is none.
func userOf(b *v1alpha1.LatencyBenchmark, all []v1alpha1.LatencyBenchmark) string {
	for i := range all {
		o := &all[i]
		if o.UID == b.UID || !o.DeletionTimestamp.IsZero() || metav1.IsControlledBy(o, b) {
			continue
		}
		if o.Spec.Criteria.BaselineBenchmark() == b.Name {
			return o.Name
		}
	}
	return ""
}

// owned reports whether an object of Tailgate, a matrix or a gate's verification, decides when a benchmark
// is deleted.
func owned(b *v1alpha1.LatencyBenchmark) bool {
	owner := metav1.GetControllerOfNoCopy(b)
	if owner == nil {
		return false
	}
	group, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && group.Group == v1alpha1.GroupVersion.Group
}

// completions passes the events that add a complete benchmark to a series.
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

// baselineChanges passes the deletion of a benchmark, and the changes that give it another baseline.
var baselineChanges = controllers.Updates(func(before, after *v1alpha1.LatencyBenchmark) bool {
	return before.Spec.Criteria.BaselineBenchmark() != after.Spec.Criteria.BaselineBenchmark()
})

func baselines(_ context.Context, o client.Object) []reconcile.Request {
	name := o.(*v1alpha1.LatencyBenchmark).Spec.Criteria.BaselineBenchmark()
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}
