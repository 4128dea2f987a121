package turns

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

func TestBenchmarkOf(t *testing.T) {
	increase, limit := v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "10%"}}, v1alpha1.Rule{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "20us"}}
	against := func(name, uid string) *v1alpha1.Baseline {
		return &v1alpha1.Baseline{Type: v1alpha1.BaselineBenchmark, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: name}, UID: uid}}
	}
	nothing := func(v *v1alpha1.LatencyVerification) { v.Status.Accepted, v.Status.Reference = nil, nil }
	own := &v1alpha1.Baseline{Type: v1alpha1.BaselineGate, Gate: &v1alpha1.ObjectName{Name: "up"}}
	cases := map[string]struct {
		gate         func(*v1alpha1.LatencyGate)
		verification func(*v1alpha1.LatencyVerification)
		peer         string
		want         *v1alpha1.Criteria
	}{
		"against the accepted result, with its peer": {nil, nil, "b",
			&v1alpha1.Criteria{Rules: []v1alpha1.Rule{limit, increase}, Baseline: own, IgnoreDifferences: []string{"kernel.*"}}},
		"against it, with another peer": {nil, nil, "c",
			&v1alpha1.Criteria{Rules: []v1alpha1.Rule{limit, increase}, Baseline: own, IgnoreDifferences: []string{"kernel.*", "node"}}},
		"with another peer, that being ignored": {func(g *v1alpha1.LatencyGate) { g.Spec.Template.Spec.Criteria.IgnoreDifferences = []string{"node"} }, nil, "c",
			&v1alpha1.Criteria{Rules: []v1alpha1.Rule{limit, increase}, Baseline: own, IgnoreDifferences: []string{"node"}}},
		"nothing to compare with": {nil, nothing, "b", &v1alpha1.Criteria{Rules: []v1alpha1.Rule{limit}}},
		"nothing at all to hold to": {func(g *v1alpha1.LatencyGate) {
			g.Spec.Template.Spec.Criteria.Rules = []v1alpha1.Rule{increase, {Metric: "throughput", MaxDecrease: v1alpha1.Limit{Text: "1%"}}}
		}, nothing, "b", nil},
		"a baseline of its own": {func(g *v1alpha1.LatencyGate) {
			g.Spec.Template.Spec.Criteria.Baseline = against("golden", "uid-golden")
		}, nothing, "b",
			&v1alpha1.Criteria{Rules: []v1alpha1.Rule{limit, increase}, Baseline: against("golden", "uid-golden"), IgnoreDifferences: []string{"kernel.*"}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g, v := makeGate(), makeVerification("a")
			if c.gate != nil {
				c.gate(g)
			}
			if c.verification != nil {
				c.verification(v)
			}
			g.Spec.Template.Spec.Placement.Server.CPUs = 4
			before := g.DeepCopy()
			b := Benchmark(g, v, c.peer, 4)
			if first := len(v.Status.Reference) == 0 && g.Spec.Template.Spec.Criteria.Against(v1alpha1.BaselineGate); (b.Spec.Rounds == 12) != first {
				t.Errorf("%d rounds", b.Spec.Rounds)
			}
			if diff := cmp.Diff(c.want, b.Spec.Criteria); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, g); diff != "" {
				t.Error("the gate was changed:", diff)
			}
			if b.Namespace != "perf" || b.Name != "up-a-4" || b.Labels[v1alpha1.LabelGate] != "up" || b.Labels[v1alpha1.LabelNode] != "a" || b.OwnerReferences[0].UID != v.UID {
				t.Errorf("metadata %+v", b.ObjectMeta)
			}
			if b.Spec.Placement.Client.NodeName != "a" || b.Spec.Placement.Server.NodeName != c.peer || b.Spec.Placement.Server.NodeSelector != nil || b.Spec.Placement.Server.CPUs != 4 {
				t.Errorf("placement %+v", b.Spec.Placement)
			}
			if diff := cmp.Diff([]corev1.Toleration{{Key: "tailgate.dev/latency-unverified", Operator: "Exists"}}, b.Spec.Pods.Tolerations); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The first session of a reference has twice as many rounds, one of a gate with a warm-up has more, and maxRounds is never less than these: the API server would refuse it.
func TestRoundsOfSession(t *testing.T) {
	for _, c := range []struct{ rounds, most, wantRounds, wantMost int32 }{{4, 4, 8, 8}, {6, 20, 12, 20}, {6, 0, 12, 0}, {10, 10, 12, 12}, {30, 30, 30, 30}} {
		g, v := makeGate(), makeVerification("a")
		g.Spec.Template.Spec.Rounds, g.Spec.Template.Spec.MaxRounds = c.rounds, c.most
		if b := Benchmark(g, v, "b", 4); b.Spec.Rounds != c.rounds || b.Spec.MaxRounds != c.most {
			t.Errorf("with a reference: %d to %d rounds", b.Spec.Rounds, b.Spec.MaxRounds)
		}
		warm := g.DeepCopy()
		warm.Status.Spread = []v1alpha1.SessionSpread{{WarmUp: "1.0210"}}
		if b := Benchmark(warm, v, "b", 4); b.Spec.Rounds != max(c.rounds, min(c.rounds+6, 24)) || b.Spec.MaxRounds != 0 && b.Spec.MaxRounds < b.Spec.Rounds {
			t.Errorf("with a warm-up: %d to %d rounds", b.Spec.Rounds, b.Spec.MaxRounds)
		}
		v.Status.Accepted, v.Status.Reference = nil, nil
		if b := Benchmark(g, v, "b", 4); b.Spec.Rounds != c.wantRounds || b.Spec.MaxRounds != c.wantMost {
			t.Errorf("%d to %d rounds without a reference: %d to %d", c.rounds, c.most, b.Spec.Rounds, b.Spec.MaxRounds)
		}
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("n", 60)
	for _, c := range []struct {
		gate, node string
		number     int64
	}{{"up", "a", 1}, {long, long, 1}, {"up", long + "." + long, 99999}, {"up", "ip-10-0-1-2.eu-central-1.compute.internal", 123}} {
		name := benchmarkName(c.gate, c.node, c.number)
		if len(name) > maxBenchmarkName || strings.Contains(name, ".") || strings.Contains(name, "--") || NumberOf(name) != c.number {
			t.Errorf("%s, %s, %d: %s", c.gate, c.node, c.number, name)
		}
	}
	if a, b := benchmarkName(long, "a", 1), benchmarkName(long, "b", 1); a == b {
		t.Errorf("both are %s", a)
	}
	if got := benchmarkName("up", "node-a", 7); got != "up-node-a-7" {
		t.Errorf("got %s", got)
	}
	for name, want := range map[string]int64{"x": 0, "": 0, "up-a": 0, "up-a-12": 12} {
		if got := NumberOf(name); got != want {
			t.Errorf("%q has number %d", name, got)
		}
	}
}

// A benchmark that follows an abandoned one has the age of that in the queue, up to a limit.
func TestPriority(t *testing.T) {
	for name, c := range map[string]struct {
		template int32
		waited   time.Duration
		want     int32
	}{
		"at most": {900, 200 * time.Minute, 1000}, "a template's own": {-5, 0, -5}, "both": {-5, time.Hour, 55}, "years": {0, 9 * 365 * 24 * time.Hour, 1000}, "a clock that was set back": {7, -time.Hour, 7},
	} {
		if got := priority(c.template, &v1alpha1.StepFailure{StartTime: at(0), RetryTime: metav1.NewTime(noon.Add(c.waited))}); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if priority(3, nil) != 3 || priority(3, &v1alpha1.StepFailure{RetryTime: *at(0)}) != 3 {
		t.Error("a node without an abandoned benchmark has the priority of the template")
	}
}
