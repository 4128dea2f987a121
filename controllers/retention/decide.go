package retention

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// The steps that decide may choose.
const (
	stepKeep   = "keep"
	stepDelete = "delete"
)

const (
	// soon is the wait before the next reconcile of a benchmark that changed meanwhile.
	soon = time.Millisecond
	// KeptAgain is the interval at which an expired object that is kept as a baseline is reconciled, if no watch wakes it earlier.
	KeptAgain = 10 * time.Minute
)

// step is the step that decide chose. The message says why the benchmark is deleted, or why it is kept although it should be deleted.
type step struct {
	kind    string
	message string
	// again is when to look again if nothing happens; zero: only when something does.
	again time.Duration
}

// limited reports whether a benchmark may have to be deleted at some time: it is finished, its spec limits how long it is kept,
// and no object of Tailgate owns it.
func limited(b *v1alpha1.LatencyBenchmark) bool {
	return b.Finished() && b.DeletionTimestamp.IsZero() && (b.Spec.TTLSecondsAfterFinished != nil || b.Spec.HistoryLimit > 0) && !owned(b)
}

// decide chooses the step for a limited benchmark, given all benchmarks of its namespace. It is pure.
func decide(b *v1alpha1.LatencyBenchmark, all []v1alpha1.LatencyBenchmark, now time.Time) step {
	why, again := Overdue(b.Spec.TTLSecondsAfterFinished, b.Status.CompletionTime, now)
	if why == "" {
		why = outnumbered(b, all)
	}
	if why == "" {
		return step{kind: stepKeep, again: again}
	}
	if user := userOf(b, all); user != "" {
		return step{kind: stepKeep, again: KeptAgain, message: fmt.Sprintf(
			"it is not deleted although %s: it is the baseline of LatencyBenchmark %s; delete that one first, or give its criteria another baseline", why, user)}
	}
	return step{kind: stepDelete, message: "deleted with its results: " + why}
}

// Overdue returns why a benchmark or matrix with that spec.ttlSecondsAfterFinished must be deleted. If it need not be deleted yet,
// why is empty, and again is the time until it must; zero for never.
func Overdue(ttlSeconds *int32, completed *metav1.Time, now time.Time) (why string, again time.Duration) {
	if ttlSeconds == nil || completed == nil {
		return "", 0
	}
	if left := completed.Add(time.Duration(*ttlSeconds) * time.Second).Sub(now); left > 0 {
		return "", left
	}
	return fmt.Sprintf("spec.ttlSecondsAfterFinished is %d, and it finished at %s", *ttlSeconds, completed.UTC().Format(time.RFC3339)), 0
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
		if o.Labels[v1alpha1.LabelSeries] == series && complete(o) && !owned(o) && o.DeletionTimestamp.IsZero() && isNewer(o, b) {
			newer++
		}
	}
	if newer < b.Spec.HistoryLimit {
		return ""
	}
	return fmt.Sprintf("spec.historyLimit is %d, and %d newer benchmarks of series %s are complete", b.Spec.HistoryLimit, newer, series)
}

// isNewer reports whether a is newer than b: by creation, and within the same second by name.
func isNewer(a, b *v1alpha1.LatencyBenchmark) bool {
	if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
		return order > 0
	}
	return a.Name > b.Name
}

// userOf returns the name of a benchmark that has this one as its baseline; empty if there is none.
func userOf(b *v1alpha1.LatencyBenchmark, all []v1alpha1.LatencyBenchmark) string {
	for i := range all {
		o := &all[i]
		if o.UID == b.UID || !o.DeletionTimestamp.IsZero() || metav1.IsControlledBy(o, b) {
			continue
		}
		if name := baselineOf(o); name == b.Name {
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

// complete reports whether all runs of a benchmark were measured.
func complete(b *v1alpha1.LatencyBenchmark) bool {
	return meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionSucceeded)
}

// baselineOf returns the name of the benchmark with which a benchmark's criteria compare; empty if they name none.
func baselineOf(o client.Object) string {
	b, ok := o.(*v1alpha1.LatencyBenchmark)
	if !ok {
		return ""
	}
	return b.Spec.Criteria.BaselineBenchmark()
}
