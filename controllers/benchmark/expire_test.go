package benchmark

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// makeBenchmark returns a benchmark that was created age before noon and completed a minute later.
func makeBenchmark(name string, age time.Duration, changes ...func(*v1alpha1.LatencyBenchmark)) v1alpha1.LatencyBenchmark {
	b := v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{
		Namespace: "perf", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(noon.Add(-age)),
	}}
	b.Status.CompletionTime = &metav1.Time{Time: noon.Add(-age + time.Minute)}
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, ""))
	for _, change := range changes {
		change(&b)
	}
	return b
}

func ttl(seconds int32) func(*v1alpha1.LatencyBenchmark) {
	return func(b *v1alpha1.LatencyBenchmark) { b.Spec.TTLSecondsAfterFinished = &seconds }
}

func series(name string, limit int32) func(*v1alpha1.LatencyBenchmark) {
	return func(b *v1alpha1.LatencyBenchmark) {
		b.Labels, b.Spec.HistoryLimit = map[string]string{v1alpha1.LabelSeries: name}, limit
	}
}

func unsuccessful(b *v1alpha1.LatencyBenchmark) {
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonFailed, ""))
}

func unfinished(b *v1alpha1.LatencyBenchmark) {
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonRunning, ""))
	b.Status.CompletionTime = nil
}

func going(b *v1alpha1.LatencyBenchmark) { b.DeletionTimestamp = &metav1.Time{Time: noon} }

func against(name string) func(*v1alpha1.LatencyBenchmark) {
	return func(b *v1alpha1.LatencyBenchmark) {
		b.Spec.Criteria = &v1alpha1.Criteria{Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineBenchmark, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: name}}}}
	}
}

func ownedBy(apiVersion, kind, uid string) func(*v1alpha1.LatencyBenchmark) {
	return func(b *v1alpha1.LatencyBenchmark) {
		b.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, UID: types.UID(uid), Controller: new(true)}}
	}
}

func TestLimited(t *testing.T) {
	cases := map[string]struct {
		b    v1alpha1.LatencyBenchmark
		want bool
	}{
		"without a limit it stays":           {b: makeBenchmark("x", time.Hour)},
		"with a time it may have to go":      {b: makeBenchmark("x", time.Hour, ttl(0)), want: true},
		"with a number, too":                 {b: makeBenchmark("x", time.Hour, series("s", 1)), want: true},
		"one that failed, too":               {b: makeBenchmark("x", time.Hour, ttl(0), unsuccessful), want: true},
		"one that is not finished stays":     {b: makeBenchmark("x", time.Hour, ttl(0), unfinished)},
		"one that goes anyway is left alone": {b: makeBenchmark("x", time.Hour, ttl(0), going)},
		"that of a pair goes with its owner": {b: makeBenchmark("x-p1", time.Hour, ttl(0), ownedBy("tailgate.dev/v1alpha1", "LatencyMatrix", "uid-x"))},
		"that of a gate, too":                {b: makeBenchmark("g-n-1", time.Hour, ttl(0), ownedBy("tailgate.dev/v1alpha1", "LatencyVerification", "uid-v"))},
		"a benchmark of a user's workflow does not wait for it": {
			b: makeBenchmark("x", time.Hour, ttl(0), ownedBy("argoproj.io/v1alpha1", "Workflow", "uid-w")), want: true,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := limited(&c.b); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}

func TestExpiry(t *testing.T) {
	cases := map[string]struct {
		b      v1alpha1.LatencyBenchmark
		others []v1alpha1.LatencyBenchmark
		gone   bool
		// message has parts of the reason and of the name of the user.
		message []string
		again   time.Duration
	}{
		"before its time is over it stays, and is looked at then": {
			b: makeBenchmark("x", time.Hour, ttl(3600)), again: time.Minute,
		},
		"at its time it goes": {
			b: makeBenchmark("x", time.Hour+time.Minute, ttl(3600)), gone: true,
			message: []string{"ttlSecondsAfterFinished is 3600", "2026-05-04T11:00:00Z"},
		},
		"with no time at all it goes at once": {
			b: makeBenchmark("x", time.Minute, ttl(0)), gone: true, message: []string{"is 0"},
		},
		"a time is counted from the end, not from the beginning": {
			b:     makeBenchmark("x", time.Hour, ttl(3600), func(b *v1alpha1.LatencyBenchmark) { b.Status.CompletionTime = &metav1.Time{Time: noon} }),
			again: time.Hour,
		},
		"without a completion time nothing is counted": {
			b: makeBenchmark("x", time.Hour, ttl(0), func(b *v1alpha1.LatencyBenchmark) { b.Status.CompletionTime = nil }),
		},
		"with fewer newer ones than are kept it stays": {
			b: makeBenchmark("x", time.Hour, series("s", 2)), others: []v1alpha1.LatencyBenchmark{makeBenchmark("y", time.Minute, series("s", 2))},
		},
		"with as many it goes": {
			b:      makeBenchmark("x", time.Hour, series("s", 2)),
			others: []v1alpha1.LatencyBenchmark{makeBenchmark("y", time.Minute, series("s", 9)), makeBenchmark("z", time.Minute, series("s", 0))},
			gone:   true, message: []string{"historyLimit is 2", "2 newer", "series s"},
		},
		"it does not count itself, older ones, failed ones, running ones, those that go, those of pairs, and other series": {
			b: makeBenchmark("x", time.Hour, series("s", 1)),
			others: []v1alpha1.LatencyBenchmark{
				makeBenchmark("older", 2*time.Hour, series("s", 1)), makeBenchmark("failed", time.Minute, series("s", 1), unsuccessful),
				makeBenchmark("running", time.Minute, series("s", 1), unfinished), makeBenchmark("going", time.Minute, series("s", 1), going),
				makeBenchmark("pair-p1", time.Minute, series("s", 1), ownedBy("tailgate.dev/v1alpha1", "LatencyMatrix", "uid-pair")),
				makeBenchmark("other", time.Minute, series("t", 1)), makeBenchmark("none", time.Minute),
			},
		},
		"of one second, the name decides": {
			b: makeBenchmark("x", time.Hour, series("s", 1)), others: []v1alpha1.LatencyBenchmark{makeBenchmark("w", time.Hour, series("s", 1))},
		},
		"of one second, the name decides against it": {
			b: makeBenchmark("x", time.Hour, series("s", 1)), others: []v1alpha1.LatencyBenchmark{makeBenchmark("y", time.Hour, series("s", 1))},
			gone: true,
		},
		"without the label there is no series": {
			b:      makeBenchmark("x", time.Hour, func(b *v1alpha1.LatencyBenchmark) { b.Spec.HistoryLimit = 1 }),
			others: []v1alpha1.LatencyBenchmark{makeBenchmark("y", time.Minute)},
		},
		"a failed one goes as others do": {
			b: makeBenchmark("x", time.Hour, series("s", 1), unsuccessful), others: []v1alpha1.LatencyBenchmark{makeBenchmark("y", time.Minute, series("s", 1))},
			gone: true,
		},
		"a number is enough where the time is not over": {
			b: makeBenchmark("x", time.Hour, series("s", 1), ttl(1e6)), others: []v1alpha1.LatencyBenchmark{makeBenchmark("y", time.Minute, series("s", 1))},
			gone: true,
		},
		"a baseline stays, and the event names its user": {
			b: makeBenchmark("x", time.Hour, ttl(0)), others: []v1alpha1.LatencyBenchmark{makeBenchmark("after", time.Minute, unfinished, against("x"))},
			message: []string{"ttlSecondsAfterFinished is 0", "; after"},
		},
		"so does one in a series": {
			b: makeBenchmark("x", time.Hour, series("s", 1)), others: []v1alpha1.LatencyBenchmark{makeBenchmark("y", time.Minute, series("s", 1), against("x"))},
			message: []string{"historyLimit is 1", "; y"},
		},
		"the baseline of one that goes may go": {
			b: makeBenchmark("x", time.Hour, ttl(0)), others: []v1alpha1.LatencyBenchmark{makeBenchmark("after", time.Minute, going, against("x"))},
			gone: true,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			why, user, again := expiryOf(&c.b, append(c.others, c.b), noon)
			if gone := why != "" && user == ""; gone != c.gone || why == "" && again != c.again {
				t.Fatalf("gone %t (%s; %s), again after %s; want %t, %s", gone, why, user, again, c.gone, c.again)
			}
			for _, part := range c.message {
				if !strings.Contains(why+"; "+user, part) {
					t.Errorf("%q, used by %q, does not say %q", why, user, part)
				}
			}
			if !c.gone && len(c.message) == 0 && why != "" {
				t.Errorf("message %q of nothing", why)
			}
		})
	}
}

func TestCompletions(t *testing.T) {
	cases := map[string]struct {
		before, after v1alpha1.LatencyBenchmark
		want          bool
	}{
		"completed":             {makeBenchmark("x", 0, unfinished), makeBenchmark("x", 0), true},
		"failed":                {makeBenchmark("x", 0, unfinished), makeBenchmark("x", 0, unsuccessful), false},
		"as before":             {makeBenchmark("x", 0), makeBenchmark("x", 0), false},
		"came to a series late": {makeBenchmark("x", 0), makeBenchmark("x", 0, series("s", 1)), true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := completions.Update(updated(&c.before, &c.after)); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}

func updated(before, after *v1alpha1.LatencyBenchmark) event.UpdateEvent {
	return event.UpdateEvent{ObjectOld: before, ObjectNew: after}
}
