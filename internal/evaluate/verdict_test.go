package evaluate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// makeBenchmark returns a benchmark of two rounds of one cell.
func makeBenchmark() *v1alpha1.LatencyBenchmark {
	return &v1alpha1.LatencyBenchmark{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "perf", UID: "uid-x"},
		Spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
			Tool: v1alpha1.ToolSockperf, Rounds: 2,
			Workload: v1alpha1.Workload{
				Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, MessageSizes: []int32{64},
				Duration: metav1.Duration{Duration: 3 * time.Second},
			},
			Placement: v1alpha1.Placement{CPUs: 1, Memory: resource.MustParse("512Mi")},
			Network:   v1alpha1.Network{Type: v1alpha1.NetworkPod},
		}},
		Status: v1alpha1.LatencyBenchmarkStatus{Pair: &v1alpha1.Pair{ClientNode: "a", ServerNode: "b"}},
	}
}

// testScheme returns a scheme with the kinds that are read.
func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), clientgoscheme.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}

func TestUnreadable(t *testing.T) {
	for reason, err := range map[string]error{
		v1alpha1.ReasonRuleInvalid:    errors.New("rules[0]:\nwhat is that"),
		v1alpha1.ReasonResultsMissing: fmt.Errorf("x-r1, tcp-64: %w", result.ErrCorrupt),
	} {
		v := unreadable(err)
		if v.Outcome != v1alpha1.VerdictInconclusive || len(v.Rules) != 1 || v.Rules[0].Reason != reason {
			t.Errorf("%v: got %+v", err, v)
		}
	}
}

// A Pass or Fail remains when its baseline is deleted; in all other cases a missing baseline makes the verdict Inconclusive.
func TestBaselineDeleted(t *testing.T) {
	named := &v1alpha1.Baseline{Type: v1alpha1.BaselineBenchmark, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: "before"}}}
	pinned := &v1alpha1.Baseline{Type: v1alpha1.BaselineBenchmark, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: "before"}, UID: "uid-1"}}
	accepted := &v1alpha1.Baseline{Type: v1alpha1.BaselineGate, Gate: &v1alpha1.ObjectName{Name: "up"}}
	before := func(uid types.UID) *v1alpha1.LatencyBenchmark {
		return &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "before", UID: uid}}
	}
	again := func(t *testing.T, kube client.Client, _ *v1alpha1.LatencyBenchmark) {
		if err := kube.Create(t.Context(), before("uid-2")); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		baseline *v1alpha1.Baseline
		outcome  v1alpha1.VerdictOutcome
		and      func(*testing.T, client.Client, *v1alpha1.LatencyBenchmark)
		reason   string
	}{
		"a Pass":     {named, v1alpha1.VerdictPass, nil, ""},
		"a Fail":     {named, v1alpha1.VerdictFail, nil, ""},
		"no outcome": {named, v1alpha1.VerdictInconclusive, nil, v1alpha1.ReasonBaselineMissing},
		"a Pass, and the criteria change": {named, v1alpha1.VerdictPass, func(_ *testing.T, _ client.Client, b *v1alpha1.LatencyBenchmark) {
			b.Spec.Criteria.IgnoreDifferences = []string{"node"}
		}, v1alpha1.ReasonBaselineMissing},
		"a Pass, and its own results change": {named, v1alpha1.VerdictPass, func(_ *testing.T, _ client.Client, b *v1alpha1.LatencyBenchmark) {
			b.Status.Stored = []v1alpha1.StoredResult{{Run: "x-r1", ConfigMap: "x-r1"}}
		}, v1alpha1.ReasonBaselineMissing},
		"a Pass, and a benchmark of the same name is created":                            {named, v1alpha1.VerdictPass, again, v1alpha1.ReasonBaselineNotComplete},
		"a Pass against a UID, and a benchmark of the same name is created":              {pinned, v1alpha1.VerdictPass, again, ""},
		"no outcome against a UID, and a benchmark of the same name is created":          {pinned, v1alpha1.VerdictInconclusive, again, v1alpha1.ReasonBaselineMissing},
		"a Pass against an accepted result":                                              {accepted, v1alpha1.VerdictPass, nil, ""},
		"a Pass against an accepted result, and a benchmark of the same name is created": {accepted, v1alpha1.VerdictPass, again, ""},
		"no outcome, and a benchmark of the accepted result's name is created":           {accepted, v1alpha1.VerdictInconclusive, again, v1alpha1.ReasonBaselineMissing},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			kube := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(before("uid-1")).Build()
			r := &Store{Live: kube}
			b := makeBenchmark()
			b.Spec.Rounds, b.Spec.Criteria = 0, &v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricP50, MaxIncrease: v1alpha1.Limit{Text: "10%"}}}, Baseline: c.baseline}
			b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, ""))
			b.Status.Verdict = &v1alpha1.Verdict{Outcome: c.outcome}
			if c.baseline == accepted {
				b.Status.Verdict.Baseline = &v1alpha1.VerdictBaseline{Gate: "up", Namespace: "perf", Benchmark: "before", UID: "uid-1"}
			}
			compared, err := r.baseline(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			if b.Status.Verdict.Inputs, err = r.inputs(t.Context(), b, compared); err != nil {
				t.Fatal(err)
			}
			if err := kube.Delete(t.Context(), before("uid-1")); err != nil {
				t.Fatal(err)
			}
			if c.and != nil {
				c.and(t, kube, b)
			}
			if err := r.Judge(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			if v := b.Status.Verdict; c.reason == "" && v.Outcome != c.outcome || c.reason != "" && (len(v.Rules) == 0 || v.Rules[0].Reason != c.reason) {
				t.Errorf("got %+v, want %s %s", v, c.outcome, c.reason)
			}
		})
	}
}

// judgedBy returns the verdict of criteria, which need not be the benchmark's own, on its results.
func judgedBy(t *testing.T, r *Store, b *v1alpha1.LatencyBenchmark, criteria *v1alpha1.Criteria) (*v1alpha1.Verdict, error) {
	t.Helper()
	with := b.DeepCopy()
	with.Spec.Criteria = criteria
	baseline, err := r.baseline(t.Context(), with)
	if err != nil {
		return nil, err
	}
	judged, _, _, err := r.judge(t.Context(), with, baseline, 1)
	return judged, err
}

// few returns cells with samples of 5 µs.
func few(t *testing.T) func(string, []tool.Cell) []result.Cell {
	r := result.NewRecorder()
	r.RecordN(5000, 10_000)
	h, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	return func(_ string, cells []tool.Cell) (out []result.Cell) {
		for _, planned := range cells {
			out = append(out, result.Cell{Cell: planned, Tool: "pinger", ToolVersion: "1", Histogram: h})
		}
		return out
	}
}

// small returns a benchmark of six rounds of one cell, complete and stored.
func small(t *testing.T, name string) (*v1alpha1.LatencyBenchmark, func(run string) map[string][]byte) {
	b := makeBenchmark()
	b.Name, b.UID = name, types.UID("uid-"+name)
	b.Spec.Tool, b.Spec.Rounds, b.Spec.LatencyType = v1alpha1.ToolPinger, 6, v1alpha1.LatencyHalfRTT
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, ""))
	content := documents(t, few(t), b)
	store(b, content)
	return b, content
}

// A verdict needs every planned result of both sides, unchanged since the status recorded it.
func TestJudgeNeedsEveryResult(t *testing.T) {
	succeeded := func(b *v1alpha1.LatencyBenchmark, status metav1.ConditionStatus) {
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, status, "Reason", ""))
	}
	cases := map[string]struct {
		// change is made after a first verdict, which is a Pass, and is detected by new versions.
		change func(after, before *v1alpha1.LatencyBenchmark, spoiled map[string]bool)
		reason string
	}{
		"as stored":        {func(_, _ *v1alpha1.LatencyBenchmark, _ map[string]bool) {}, v1alpha1.ReasonWithinLimit},
		"a changed result": {func(_, _ *v1alpha1.LatencyBenchmark, spoiled map[string]bool) { spoiled["after-r3"] = true }, v1alpha1.ReasonResultsMissing},
		"a result that the status does not name": {func(after, _ *v1alpha1.LatencyBenchmark, _ map[string]bool) {
			after.Status.Stored = after.Status.Stored[:4]
		},
			v1alpha1.ReasonResultsMissing},
		"a failed benchmark":               {func(after, _ *v1alpha1.LatencyBenchmark, _ map[string]bool) { succeeded(after, metav1.ConditionFalse) }, v1alpha1.ReasonBenchmarkFailed},
		"a changed result of the baseline": {func(_, _ *v1alpha1.LatencyBenchmark, spoiled map[string]bool) { spoiled["before-r5"] = true }, v1alpha1.ReasonBaselineResultsMissing},
		"a baseline that failed": {func(_, before *v1alpha1.LatencyBenchmark, _ map[string]bool) {
			succeeded(before, metav1.ConditionFalse)
		}, v1alpha1.ReasonBaselineNotComplete},
		"a baseline that is not finished": {func(_, before *v1alpha1.LatencyBenchmark, _ map[string]bool) {
			succeeded(before, metav1.ConditionUnknown)
		}, v1alpha1.ReasonBaselineNotComplete},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			after, ofAfter := small(t, "after")
			before, ofBefore := small(t, "before")
			spoiled := map[string]bool{}
			api := &keeper{benchmarks: map[string]*v1alpha1.LatencyBenchmark{"after": after, "before": before}}
			api.content = func(run string) map[string][]byte {
				of := ofBefore
				if strings.HasPrefix(run, "after") {
					of = ofAfter
				}
				content := of(run)
				if spoiled[run] {
					content[result.KeyServer] = append(bytes.Clone(content[result.KeyServer]), 0)
				}
				return content
			}
			r := &Store{Live: api}
			judged := func() string {
				t.Helper()
				v, err := judgedBy(t, r, after, &v1alpha1.Criteria{
					Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineBenchmark, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: "before"}}},
					Rules:    []v1alpha1.Rule{{Metric: v1alpha1.MetricP50, MaxIncrease: v1alpha1.Limit{Text: "5%"}}},
				})
				if err != nil {
					t.Fatal(err)
				}
				if (v.Outcome == v1alpha1.VerdictPass) != (v.Rules[0].Reason == v1alpha1.ReasonWithinLimit) {
					t.Errorf("%s: %s", v.Outcome, v.Message)
				}
				return v.Rules[0].Reason
			}
			if got := judged(); got != v1alpha1.ReasonWithinLimit {
				t.Fatalf("got %s at first", got)
			}
			c.change(after, before, spoiled)
			api.version = "2"
			if got := judged(); got != c.reason {
				t.Errorf("got %s, want %s", got, c.reason)
			}
		})
	}
}

// The status keeps what was measured of the values of a session, with rules or without, and nothing of results that do not count.
func TestSession(t *testing.T) {
	p50 := v1alpha1.ComparedValue{Variant: "default", Cell: "tcp-64", Metric: v1alpha1.MetricP50}
	limit := &v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricP50, Max: v1alpha1.Limit{Text: "1s"}}}}
	for name, c := range map[string]struct {
		criteria *v1alpha1.Criteria
		status   metav1.ConditionStatus
		values   []v1alpha1.ComparedValue
		// rounds is the number of rounds kept, and after the same after a result was changed; -1 without a session.
		rounds, after int
	}{
		"no rule":                {nil, metav1.ConditionTrue, []v1alpha1.ComparedValue{p50}, 6, 6},
		"rules":                  {limit, metav1.ConditionTrue, []v1alpha1.ComparedValue{p50}, 6, 0},
		"a failed benchmark":     {limit, metav1.ConditionFalse, []v1alpha1.ComparedValue{p50}, 0, 0},
		"one that is measured":   {limit, metav1.ConditionUnknown, []v1alpha1.ComparedValue{p50}, -1, -1},
		"a value it has not":     {nil, metav1.ConditionTrue, []v1alpha1.ComparedValue{{Variant: "x", Cell: "tcp-64", Metric: v1alpha1.MetricP50}}, 0, 0},
		"no value of a session":  {limit, metav1.ConditionTrue, nil, -1, -1},
		"no session and no rule": {nil, metav1.ConditionTrue, nil, -1, -1},
	} {
		b, content := small(t, "x")
		b.Spec.Session, b.Spec.Criteria = c.values, c.criteria
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, c.status, "Reason", ""))
		spoiled := false
		api := &keeper{benchmarks: map[string]*v1alpha1.LatencyBenchmark{"x": b}, content: func(run string) map[string][]byte {
			files := content(run)
			if spoiled && run == "x-r3" {
				files[result.KeyServer] = append(bytes.Clone(files[result.KeyServer]), 0)
			}
			return files
		}}
		r := &Store{Live: api}
		kept := func() int {
			if err := r.Judge(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			switch s := b.Status.Session; {
			case s == nil:
				return -1
			case len(s.Rounds) == 0:
				return 0
			case s.BootID == "" || s.Rounds[0].ComparedValue != p50 || s.Rounds[0].Values[0] < 4_900 || s.Rounds[0].Values[0] > 5_100:
				t.Errorf("%s: %+v", name, s)
			}
			return len(b.Status.Session.Rounds[0].Values)
		}
		if got := kept(); got != c.rounds {
			t.Errorf("%s: %d rounds", name, got)
		}
		spoiled, api.version = true, "2"
		if got := kept(); got != c.after {
			t.Errorf("%s, after a result was changed: %d rounds", name, got)
		}
	}
}

// A verdict reads the results without merging them, but a later summary needs them merged.
func TestSummarizeAfterJudge(t *testing.T) {
	b, content := small(t, "x")
	r := &Store{Live: &keeper{benchmarks: map[string]*v1alpha1.LatencyBenchmark{"x": b}, content: content}}
	limit := &v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricP50, Max: v1alpha1.Limit{Text: "1s"}}}}
	for range 2 {
		if v, err := judgedBy(t, r, b, limit); err != nil || v.Outcome != v1alpha1.VerdictPass {
			t.Fatalf("%+v, %v", v, err)
		}
		if err := r.Summarize(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got := b.Status.Results[0].Samples; got != 60_000 {
			t.Errorf("%d samples in all rounds", got)
		}
	}
	if kept := r.kept; len(kept) != 1 || !kept[0].rounds.Merges {
		t.Errorf("%d benchmarks are kept, or one that is not merged", len(kept))
	}
}

// slowAPI does not answer for the results of one benchmark until it may.
type slowAPI struct {
	client.Reader
	slow             string
	asked, mayAnswer chan struct{}
}

func (s *slowAPI) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if _, ok := into.(*corev1.ConfigMap); ok && strings.HasPrefix(key.Name, s.slow+"-") {
		s.asked <- struct{}{}
		<-s.mayAnswer
	}
	return s.Reader.Get(ctx, key, into, options...)
}

func soon(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal(what + " waits")
	}
}

// While a result of one benchmark is read, others are read and judged.
func TestSlowRead(t *testing.T) {
	slow, fast, kept := pairOf(t, "slow", "fast")
	api := &slowAPI{slow: "slow", asked: make(chan struct{}, 100), mayAnswer: make(chan struct{}), Reader: kept}
	r := &Store{Live: api}
	summarize := func(b *v1alpha1.LatencyBenchmark) <-chan struct{} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			if err := r.Summarize(t.Context(), b); err != nil {
				t.Error(err)
			}
		}()
		return done
	}
	late := summarize(slow)
	soon(t, "the slow benchmark", api.asked)
	soon(t, "the other benchmark", summarize(fast))
	close(api.mayAnswer)
	soon(t, "the slow benchmark", late)
	if len(fast.Status.Results) == 0 || len(slow.Status.Results) == 0 {
		t.Error("a benchmark has no results")
	}
}

// Two benchmarks that are each other's baselines, and one that is its own, are judged at once.
func TestBaselinesInACircle(t *testing.T) {
	one, two, kept := pairOf(t, "one", "two")
	r := &Store{Live: kept}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var all sync.WaitGroup
		for range 50 {
			for _, pair := range [][2]*v1alpha1.LatencyBenchmark{{one, two}, {two, one}, {one, one}} {
				all.Go(func() {
					v, _, _, err := r.judge(t.Context(), withLimit(pair[0]), &compared{benchmark: pair[1]}, 1)
					if err != nil || v.Outcome != v1alpha1.VerdictPass {
						t.Errorf("%+v, %v", v, err)
					}
				})
			}
		}
		all.Wait()
	}()
	soon(t, "a verdict", done)
}

// pairOf returns two benchmarks and the API server that has the results of both.
func pairOf(t *testing.T, a, b string) (one, two *v1alpha1.LatencyBenchmark, api *keeper) {
	t.Helper()
	one, first := small(t, a)
	two, second := small(t, b)
	return one, two, &keeper{
		benchmarks: map[string]*v1alpha1.LatencyBenchmark{a: one, b: two},
		content: func(run string) map[string][]byte {
			if strings.HasPrefix(run, a+"-") {
				return first(run)
			}
			return second(run)
		},
	}
}

func withLimit(b *v1alpha1.LatencyBenchmark) *v1alpha1.LatencyBenchmark {
	b = b.DeepCopy()
	b.Spec.Criteria = &v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricP50, MaxIncrease: v1alpha1.Limit{Text: "5%"}}}}
	return b
}

// The pairs of a matrix are judged together; no other owner says how many benchmarks are.
func TestTogether(t *testing.T) {
	m := &v1alpha1.LatencyMatrix{ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "all", UID: "uid-1"}}
	m.Status.Counts.Total = 45
	for name, c := range map[string]struct {
		kind string
		uid  types.UID
		want int
	}{
		"a pair of the matrix":       {"LatencyMatrix", "uid-1", 45},
		"a pair of an earlier one":   {"LatencyMatrix", "uid-0", 1},
		"a benchmark of a gate":      {"LatencyVerification", "uid-1", 1},
		"a benchmark of no one else": {"", "", 1},
	} {
		b := makeBenchmark()
		b.Namespace = "perf"
		if c.kind != "" {
			owner := metav1.ObjectMeta{Name: "all", UID: c.uid}
			b.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&owner, v1alpha1.GroupVersion.WithKind(c.kind))}
		}
		r := &Store{Live: fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(m).Build()}
		if got, err := r.together(t.Context(), b); err != nil || got != c.want {
			t.Errorf("%s: %d, %v; want %d", name, got, err, c.want)
		}
	}
}
