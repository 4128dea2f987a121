package retention

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// requests is the queue of the controller.
type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

// The steps that decide may choose.
const (
	stepKeep   = "keep"
	stepDelete = "delete"
)

const (
	// soon is when one is looked at again that changed meanwhile.
	soon = time.Millisecond
	// KeptAgain is how often one is looked at that would go if it were not a baseline. It is a fallback for the watches.
	KeptAgain = 10 * time.Minute
)

// step is what decide chose. The message says why it is deleted, or what alone keeps it.
type step struct {
	kind    string
	message string
	// again is when to look again if nothing happens; zero: only when something does.
	again time.Duration
}

// limited says whether a benchmark may have to be deleted some time: it is finished, its spec limits how long it is kept,
// and nothing of Tailgate's owns it, with which it would go.
func limited(b *v1alpha1.LatencyBenchmark) bool {
	return b.Finished() && b.DeletionTimestamp.IsZero() && (b.Spec.TTLSecondsAfterFinished != nil || b.Spec.HistoryLimit > 0) && !owned(b)
}

// decide says what becomes of a benchmark that is limited, given all benchmarks of its namespace. It is pure.
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

// Overdue says why a benchmark or matrix with that spec.ttlSecondsAfterFinished has to be deleted; if it does not, empty, and
// after how long it does, zero for never.
func Overdue(ttlSeconds *int32, completed *metav1.Time, now time.Time) (why string, again time.Duration) {
	if ttlSeconds == nil || completed == nil {
		return "", 0
	}
	if left := completed.Add(time.Duration(*ttlSeconds) * time.Second).Sub(now); left > 0 {
		return "", left
	}
	return fmt.Sprintf("spec.ttlSecondsAfterFinished is %d, and it finished at %s", *ttlSeconds, completed.UTC().Format(time.RFC3339)), 0
}

// outnumbered says that as many newer benchmarks of the series are complete as are kept. Failed ones do not count: they
// replace no result.
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

// isNewer orders by creation, and what was created within one second by name.
func isNewer(a, b *v1alpha1.LatencyBenchmark) bool {
	if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
		return order > 0
	}
	return a.Name > b.Name
}

// userOf is the name of a benchmark that has this one as its baseline; empty if none has.
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

// owned says whether something of Tailgate's, a matrix or a gate's verification, decides when a benchmark
// goes.
func owned(b *v1alpha1.LatencyBenchmark) bool {
	owner := metav1.GetControllerOfNoCopy(b)
	if owner == nil {
		return false
	}
	group, err := schema.ParseGroupVersion(owner.APIVersion)
	return err == nil && group.Group == v1alpha1.GroupVersion.Group
}

// complete says whether everything of a benchmark was measured.
func complete(b *v1alpha1.LatencyBenchmark) bool {
	return meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionSucceeded)
}

// baselineOf is the name of the benchmark that a benchmark's gate compares with; empty when it names none.
func baselineOf(o client.Object) string {
	b, ok := o.(*v1alpha1.LatencyBenchmark)
	if !ok {
		return ""
	}
	return b.Spec.Criteria.BaselineBenchmark()
}
