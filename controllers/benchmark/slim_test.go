package benchmark

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/queue"
	"github.com/tailgate-dev/tailgate/internal/standing"
)

// Of a benchmark with a long spec the cache keeps what is read of other benchmarks: the queue, the index of baselines, the metrics and the
// expiry decide the same.
func TestLongSpecsDecideTheSame(t *testing.T) {
	var slim cache.ByObject
	for o, by := range controllers.CacheOptions(nil).ByObject {
		if _, ok := o.(*v1alpha1.LatencyBenchmark); ok {
			slim = by
		}
	}
	waiting := metav1.Condition{Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonQueued}
	complete := metav1.Condition{Type: v1alpha1.ConditionSucceeded, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonComplete}
	for name, change := range map[string]func(*v1alpha1.LatencyBenchmark){
		"waiting":        func(b *v1alpha1.LatencyBenchmark) { b.Status.Conditions = append(b.Status.Conditions, waiting) },
		"suspended":      func(b *v1alpha1.LatencyBenchmark) { b.Spec.Suspend = true },
		"of a benchmark": func(b *v1alpha1.LatencyBenchmark) { b.Spec.Criteria.Baseline = baseline(v1alpha1.BaselineBenchmark) },
		"of a gate":      func(b *v1alpha1.LatencyBenchmark) { b.Spec.Criteria.Baseline = baseline(v1alpha1.BaselineGate) },
		"of an export":   func(b *v1alpha1.LatencyBenchmark) { b.Spec.Criteria.Baseline = baseline(v1alpha1.BaselineExport) },
		"complete": func(b *v1alpha1.LatencyBenchmark) {
			b.Status.Conditions = append(b.Status.Conditions, complete)
			b.Spec.TTLSecondsAfterFinished, b.Spec.HistoryLimit = new(int32(5)), 3
		},
	} {
		whole := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "perf", UID: "u"}}
		whole.Spec.Tool, whole.Spec.Priority = v1alpha1.ToolPinger, 7
		whole.Spec.Notes = []v1alpha1.Note{{Name: "n", Value: strings.Repeat("x", 9<<10)}}
		whole.Spec.Criteria = &v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricP99}}}
		whole.Status.Pair = &v1alpha1.Pair{ClientNode: "a", ServerNode: "b"}
		change(whole)
		kept := whole.DeepCopy()
		if _, err := slim.Transform(kept); err != nil {
			t.Fatal(err)
		}
		if controllers.IsWhole(kept) || !controllers.IsWhole(whole) || kept.Spec.Notes != nil {
			t.Errorf("%s: kept %+v", name, kept.Spec)
		}
		expiry := func(b *v1alpha1.LatencyBenchmark) []any {
			return []any{limited(b), b.Spec.TTLSecondsAfterFinished, outnumbered(b, nil), userOf(b, []v1alpha1.LatencyBenchmark{*b})}
		}
		decisions := func(b *v1alpha1.LatencyBenchmark) []any {
			return slices.Concat(expiry(b), []any{queue.EntryOf(b), queue.Competes(b), baselineKeys(b), unseenBefore(b, whole), standing.OfBenchmark(b).Outcome, b.Spec.Criteria != nil})
		}
		if want, got := decisions(whole), decisions(kept); !reflect.DeepEqual(want, got) {
			t.Errorf("%s: %v, of the whole spec %v", name, got, want)
		}
	}
}

func baseline(kind v1alpha1.BaselineType) *v1alpha1.Baseline {
	name := v1alpha1.ObjectName{Name: "before"}
	return &v1alpha1.Baseline{Type: kind, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: name}, Gate: &name, Export: &v1alpha1.ExportedBaseline{ConfigMapName: "before"}}
}
