package metrics

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/test/golden"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *metav1.Time { return &metav1.Time{Time: noon.Add(-d)} }

// cache is the cache that a Collector reads.
type cache struct {
	client.Reader
	objects
	err error
}

func (c *cache) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch l := list.(type) {
	case *v1alpha1.LatencyBenchmarkList:
		l.Items = c.benchmarks
	case *v1alpha1.LatencyMatrixList:
		l.Items = c.matrices
	case *v1alpha1.LatencyGateList:
		l.Items = c.gates
	case *v1alpha1.LatencyVerificationList:
		l.Items = c.verifications
	}
	return c.err
}

// registryOf returns a registry with the collector of a manager that leads.
func registryOf(c *cache) *prometheus.Registry {
	elected := make(chan struct{})
	close(elected)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(c, elected))
	return registry
}

// scrape returns the text that Prometheus reads.
func scrape(t testing.TB, registry prometheus.Gatherer) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}

// series returns the lines of a scrape with a prefix.
func series(text, prefix string) []string {
	var all []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, prefix) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

func condition(conditionType string, status metav1.ConditionStatus, reason string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, LastTransitionTime: *ago(time.Hour)}
}

func makeBenchmark(name string, changes ...func(*v1alpha1.LatencyBenchmark)) v1alpha1.LatencyBenchmark {
	b := v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: name, CreationTimestamp: *ago(2 * time.Hour)}}
	b.Status.Conditions = []metav1.Condition{condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted)}
	for _, change := range changes {
		change(&b)
	}
	return b
}

// makeMatrix returns a matrix of six pairs, one of which failed.
func makeMatrix() v1alpha1.LatencyMatrix {
	m := v1alpha1.LatencyMatrix{ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "mesh", CreationTimestamp: *ago(2 * time.Hour)}}
	m.Spec.Template.Spec.Criteria = &v1alpha1.Criteria{}
	m.Status = v1alpha1.LatencyMatrixStatus{
		Conditions: []metav1.Condition{
			condition(v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonFailed),
			condition(v1alpha1.ConditionPassed, metav1.ConditionFalse, v1alpha1.ReasonFail),
		},
		Counts:         v1alpha1.PairCounts{Total: 6, Complete: 5, Failed: 1},
		Progress:       &v1alpha1.Progress{Done: 25, Total: 30},
		CompletionTime: ago(20 * time.Minute),
		Cells: []v1alpha1.MatrixCell{{
			Variant: "default", Cell: "tcp-64", LatencyType: "HalfRTT", Pairs: 5,
			P50: &v1alpha1.PairsLatency{MinNanoseconds: new(int64(1000)), MedianNanoseconds: new(int64(1100)), MaxNanoseconds: new(int64(1200))},
			// Messages of a pair were lost, so its p99 is unbounded.
			P99: &v1alpha1.PairsLatency{MinNanoseconds: new(int64(1300)), MedianNanoseconds: new(int64(1400))},
		}},
	}
	return m
}

// stands sets condition Succeeded.
func stands(status metav1.ConditionStatus, reason string) func(*v1alpha1.LatencyBenchmark) {
	return func(b *v1alpha1.LatencyBenchmark) {
		b.Status.Conditions = append(b.Status.Conditions, condition(v1alpha1.ConditionSucceeded, status, reason))
	}
}

// judged gives the benchmark criteria, and sets condition Passed.
func judged(status metav1.ConditionStatus, reason string) func(*v1alpha1.LatencyBenchmark) {
	return func(b *v1alpha1.LatencyBenchmark) {
		b.Spec.Criteria = &v1alpha1.Criteria{}
		b.Status.Conditions = append(b.Status.Conditions, condition(v1alpha1.ConditionPassed, status, reason))
	}
}

func labelled(key, value string) func(*v1alpha1.LatencyBenchmark) {
	return func(b *v1alpha1.LatencyBenchmark) { b.Labels = map[string]string{key: value} }
}

// cells gives the benchmark results of n cells.
func cells(n int) func(*v1alpha1.LatencyBenchmark) {
	return func(b *v1alpha1.LatencyBenchmark) {
		for i := range n {
			size := int32(64 * (i + 1))
			b.Status.Results = append(b.Status.Results, v1alpha1.CellResult{
				Variant: "default", Name: fmt.Sprintf("tcp-%d", size), Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: size},
				LatencyType: "HalfRTT", Samples: 100000, Percentiles: []v1alpha1.PercentileResult{
					{Name: v1alpha1.P50, Nanoseconds: 1500}, {Name: v1alpha1.P90, Nanoseconds: 1600}, {Name: v1alpha1.P99, Nanoseconds: 1720},
					{Name: v1alpha1.P999, Nanoseconds: 2050}, {Name: v1alpha1.P9999, Nanoseconds: 9000},
				},
			})
		}
	}
}

func makeVerification(node string, changes ...func(*v1alpha1.LatencyVerification)) v1alpha1.LatencyVerification {
	v := v1alpha1.LatencyVerification{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.VerificationName("up", node)},
		Spec:       v1alpha1.LatencyVerificationSpec{GateName: "up", NodeName: node},
		Status: v1alpha1.LatencyVerificationStatus{
			State: v1alpha1.VerificationVerified, LastTransitionTime: ago(time.Hour), LastMeasurementTime: ago(time.Hour),
			Identity: map[string]string{"BootID": "boot-1", "Kernel": "6.1.0-1", "Kubelet": "v1.36.3", "OSImage": "Debian 12", "ContainerRuntime": "containerd://2.2.9", "Devices/amd.com/sf_vf": "8"},
			Evidence: []v1alpha1.ProofLine{{Check: v1alpha1.ProofDriver, Found: "sfc 6.3"}, {Check: v1alpha1.ProofFirmware, Found: "1.3.2 rx0 tx0"}},
			Accepted: &v1alpha1.AcceptedResult{Benchmark: "up-" + node + "-1", AcceptanceTime: *ago(time.Hour)},
			History:  []v1alpha1.VerificationResult{{Benchmark: "up-" + node + "-1", Outcome: v1alpha1.VerdictPass}},
		},
	}
	for _, change := range changes {
		change(&v)
	}
	return v
}

// makeWorld returns objects with every exported metric.
func makeWorld() *cache {
	gate := v1alpha1.LatencyGate{ObjectMeta: metav1.ObjectMeta{Name: "up"}, Spec: v1alpha1.LatencyGateSpec{Namespace: "gates"}}
	gate.Status.Nodes = v1alpha1.NodeCounts{Total: 3, Verified: 1, Failed: 1, Unverified: 1}
	gate.Status.Conditions = []metav1.Condition{
		condition(v1alpha1.ConditionOperational, metav1.ConditionTrue, v1alpha1.ReasonOperational),
		condition(v1alpha1.ConditionPassed, metav1.ConditionFalse, v1alpha1.ReasonNodesFailed),
	}
	inGates := func(b *v1alpha1.LatencyBenchmark) { b.Namespace = "gates" }
	return &cache{objects: objects{
		gates: []v1alpha1.LatencyGate{gate},
		verifications: []v1alpha1.LatencyVerification{
			makeVerification("a"),
			makeVerification("b", func(v *v1alpha1.LatencyVerification) {
				v.Status.State, v.Status.Accepted, v.Status.History[0].Outcome = v1alpha1.VerificationFailed, nil, v1alpha1.VerdictFail
			}),
			makeVerification("c", func(v *v1alpha1.LatencyVerification) {
				v.Status = v1alpha1.LatencyVerificationStatus{MarkFailures: []v1alpha1.MarkFailure{{Mark: v1alpha1.MarkTaint, StepFailure: v1alpha1.StepFailure{Reason: v1alpha1.ReasonNodeRefused, Count: 3}}}}
			}),
			makeVerification("gone", func(v *v1alpha1.LatencyVerification) {
				v.Status.State, v.Status.Retained = v1alpha1.VerificationUnverified, &v1alpha1.Retention{Reason: v1alpha1.ReasonNodeDeleted}
			}),
		},
		benchmarks: []v1alpha1.LatencyBenchmark{
			makeBenchmark("up-a-1", inGates, labelled(v1alpha1.LabelGate, "up"), stands("True", v1alpha1.ReasonComplete), cells(1)),
			makeBenchmark("up-b-1", inGates, labelled(v1alpha1.LabelGate, "up"), stands("True", v1alpha1.ReasonComplete), cells(1), func(b *v1alpha1.LatencyBenchmark) {
				b.Status.Results[0].Percentiles = b.Status.Results[0].Percentiles[:3] // too few samples
			}),
			makeBenchmark("up-c-1", inGates, labelled(v1alpha1.LabelGate, "up"), stands("Unknown", v1alpha1.ReasonQueued)),
			makeBenchmark("x2", stands("True", v1alpha1.ReasonComplete), judged("True", v1alpha1.ReasonPass), cells(2), func(b *v1alpha1.LatencyBenchmark) {
				b.Status.CompletionTime = ago(30 * time.Minute)
				b.Status.Progress = &v1alpha1.Progress{Done: 5, Total: 5}
				open := &b.Status.Results[1]
				open.Name, open.Protocol, open.RatePerSecond, open.Lost = "udp-128-at-23000", v1alpha1.ProtocolUDP, 23000, 20
				open.Percentiles = open.Percentiles[:3]
				b.Status.Results = append(b.Status.Results, v1alpha1.CellResult{
					Variant: "default", Name: "tcp-stream-65536",
					Traffic:   v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 65536, Stream: true},
					Bandwidth: &v1alpha1.BandwidthResult{BitsPerSecond: 9_600_000_000},
				})
			}),
			makeBenchmark("running", stands("Unknown", v1alpha1.ReasonRunning), judged("Unknown", v1alpha1.ReasonNotJudged), func(b *v1alpha1.LatencyBenchmark) {
				b.Status.Active = &v1alpha1.ActiveAttempt{Run: "running-r2"}
				b.Status.Progress = &v1alpha1.Progress{Done: 1, Total: 5}
			}),
			makeBenchmark("mesh-p1", labelled(v1alpha1.LabelMatrix, "mesh"), stands("True", v1alpha1.ReasonComplete), cells(1)),
		},
		matrices: []v1alpha1.LatencyMatrix{makeMatrix()},
	}}
}

func TestCollector(t *testing.T) {
	registry := registryOf(makeWorld())
	NewActivity(registry)
	text := scrape(t, registry)
	golden.Check(t, "metrics.txt", text)
}

// makeWorld has every metric, so that each use of a name can be compared with the golden file.
func TestWorldHasEveryMetric(t *testing.T) {
	text := scrape(t, registryOf(makeWorld()))
	for _, desc := range described {
		name := strings.SplitN(desc.String(), `"`, 3)[1]
		if len(series(text, name+" ")) == 0 && len(series(text, name+"{")) == 0 {
			t.Errorf("no series of %s", name)
		}
	}
}

func TestLint(t *testing.T) {
	registry := registryOf(makeWorld())
	NewActivity(registry)
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestDeletedObjectsHaveNoSeries(t *testing.T) {
	world := makeWorld()
	registry := registryOf(world)
	for _, name := range []string{`"a"`, `"x2"`, `"up"`} {
		if !strings.Contains(scrape(t, registry), name) {
			t.Fatalf("nothing of %s", name)
		}
	}
	world.verifications = world.verifications[1:]
	world.benchmarks = world.benchmarks[4:]
	world.gates = nil
	text := scrape(t, registry)
	for _, gone := range []string{`node="a"`, `"x2"`, "tailgate_gate_"} {
		if strings.Contains(text, gone) {
			t.Errorf("there still is %s:\n%s", gone, text)
		}
	}
	if !strings.Contains(text, `tailgate_node_verified{gate="up",node="b"} 0`) {
		t.Error("node b went, too")
	}
}

func TestNothingButTrueIsPassed(t *testing.T) {
	for name, change := range map[string]func(*[]metav1.Condition, *metav1.ObjectMeta){
		"no condition": func(c *[]metav1.Condition, _ *metav1.ObjectMeta) {
			meta.RemoveStatusCondition(c, v1alpha1.ConditionPassed)
		},
		"False":   func(c *[]metav1.Condition, _ *metav1.ObjectMeta) { set(c, metav1.ConditionFalse) },
		"Unknown": func(c *[]metav1.Condition, _ *metav1.ObjectMeta) { set(c, metav1.ConditionUnknown) },
		// The spec was edited, and no controller has processed it yet.
		"True of an older spec": func(c *[]metav1.Condition, o *metav1.ObjectMeta) {
			set(c, metav1.ConditionTrue)
			o.Generation++
		},
	} {
		t.Run(name, func(t *testing.T) {
			world := makeWorld()
			world.verifications = world.verifications[:1]
			g, b := &world.gates[0], &world.benchmarks[3]
			set(&g.Status.Conditions, metav1.ConditionTrue)
			set(&b.Status.Conditions, metav1.ConditionTrue)
			const gate, benchmark = `tailgate_gate_passed{gate="up"} `, `tailgate_benchmark_passed{benchmark="x2",namespace="perf"} `
			text := scrape(t, registryOf(world))
			if !strings.Contains(text, gate+"1") || !strings.Contains(text, benchmark+"1") {
				t.Fatalf("not passed although both are:\n%s", text)
			}
			change(&g.Status.Conditions, &g.ObjectMeta)
			change(&b.Status.Conditions, &b.ObjectMeta)
			text = scrape(t, registryOf(world))
			if !strings.Contains(text, gate+"0") || !strings.Contains(text, benchmark+"0") {
				t.Errorf("passed:\n%s", text)
			}
		})
	}
}

// The gate's status follows its nodes after a delay, during which no upgrade may continue.
func TestNodeHoldsTheGateBackAtOnce(t *testing.T) {
	for _, state := range append(slices.Clone(states[1:]), "") {
		world := makeWorld()
		set(&world.gates[0].Status.Conditions, metav1.ConditionTrue)
		world.verifications = world.verifications[:2]
		world.verifications[1].Status.State = v1alpha1.VerificationVerified
		if got := series(scrape(t, registryOf(world)), "tailgate_gate_passed"); len(got) != 1 || !strings.HasSuffix(got[0], " 1") {
			t.Fatalf("all verified: %v", got)
		}
		world.verifications[1].Status.State = state
		if got := series(scrape(t, registryOf(world)), "tailgate_gate_passed"); len(got) != 1 || !strings.HasSuffix(got[0], " 0") {
			t.Errorf("a node is %q: %v", state, got)
		}
	}
}

func set(conditions *[]metav1.Condition, status metav1.ConditionStatus) {
	meta.SetStatusCondition(conditions, metav1.Condition{Type: v1alpha1.ConditionPassed, Status: status, Reason: "Because"})
}

func TestVerdictOf(t *testing.T) {
	verdictOf := func(b v1alpha1.LatencyBenchmark) string {
		var all []string
		for _, line := range series(scrape(t, registryOf(&cache{objects: objects{benchmarks: []v1alpha1.LatencyBenchmark{b}}})), "tailgate_benchmark_verdict{") {
			line = strings.TrimPrefix(line, `tailgate_benchmark_verdict{benchmark="x",namespace="perf",verdict="`)
			all = append(all, strings.TrimSuffix(line, `"} 1`))
		}
		return strings.Join(all, " and ")
	}
	for _, c := range []struct {
		status metav1.ConditionStatus
		reason string
		want   string
	}{
		{metav1.ConditionTrue, v1alpha1.ReasonPass, "Pass"},
		{metav1.ConditionFalse, v1alpha1.ReasonFail, "Fail"},
		{metav1.ConditionUnknown, v1alpha1.ReasonInconclusive, "Inconclusive"},
		{metav1.ConditionUnknown, v1alpha1.ReasonResultsMissing, "Inconclusive"},
		{metav1.ConditionUnknown, v1alpha1.ReasonNotJudged, "NotJudged"},
	} {
		b := makeBenchmark("x", judged(c.status, c.reason))
		if got := verdictOf(b); got != c.want {
			t.Errorf("%s %s: %s, want %s", c.status, c.reason, got, c.want)
		}
		b.Spec.Suspend = true
		if got := verdictOf(b); got != c.want {
			t.Errorf("%s %s while suspended: %s, want %s", c.status, c.reason, got, c.want)
		}
		b.Generation++
		if got := verdictOf(b); got != "NotJudged" {
			t.Errorf("%s %s of an older spec: %s", c.status, c.reason, got)
		}
	}
}

func TestOnlyTheLeaderExports(t *testing.T) {
	elected := make(chan struct{})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(makeWorld(), elected))
	if text := scrape(t, registry); !strings.Contains(text, "\ntailgate_exporting 0\n") || strings.Contains(text, "tailgate_gate_passed") {
		t.Errorf("before the election:\n%s", text)
	}
	close(elected)
	if text := scrape(t, registry); !strings.Contains(text, "\ntailgate_exporting 1\n") || !strings.Contains(text, "tailgate_gate_passed") {
		t.Errorf("after the election:\n%s", text)
	}
}

func TestUnreadableCacheExportsNothing(t *testing.T) {
	world := makeWorld()
	world.err = errors.New("not filled yet")
	text := scrape(t, registryOf(world))
	if !strings.Contains(text, "\ntailgate_exporting 0\n") || strings.Contains(text, "tailgate_gate_passed") {
		t.Errorf("%s", text)
	}
}

// Two verifications of one node would give duplicate series, which make the whole scrape fail.
func TestForgedVerificationIsLeftOut(t *testing.T) {
	world := makeWorld()
	world.verifications = append(world.verifications, makeVerification("a", func(v *v1alpha1.LatencyVerification) { v.Name = "mine" }))
	if got := series(scrape(t, registryOf(world)), `tailgate_node_verified{gate="up",node="a"}`); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

func TestUpgradeChangesTheIdentity(t *testing.T) {
	world := makeWorld()
	before := series(scrape(t, registryOf(world)), `tailgate_node_identity_info{`)
	world.verifications[0].Status.Identity["Devices/amd.com/sf_vf"] = "16"
	after := series(scrape(t, registryOf(world)), `tailgate_node_identity_info{`)
	if len(before) != 2 || len(after) != 2 || before[0] == after[0] || before[1] != after[1] {
		t.Errorf("before %v\nafter %v", before, after)
	}
}

func TestBounded(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "6.1.0": "6.1.0",
		strings.Repeat("x", 64): strings.Repeat("x", 64), strings.Repeat("x", 65): strings.Repeat("x", 61) + "…",
		strings.Repeat("x", 63) + "é": strings.Repeat("x", 61) + "…", "a\xffb": "a?b",
	} {
		if got := bounded(in); got != want {
			t.Errorf("bounded(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestBenchmarksAreBounded(t *testing.T) {
	world := &cache{}
	for i := range MaxBenchmarks {
		world.benchmarks = append(world.benchmarks, makeBenchmark(fmt.Sprintf("b%03d", i), stands("True", v1alpha1.ReasonComplete), cells(MaxCells)))
	}
	later := func(b *v1alpha1.LatencyBenchmark) { b.CreationTimestamp = *ago(time.Minute) }
	sooner := func(b *v1alpha1.LatencyBenchmark) { b.CreationTimestamp = *ago(24 * time.Hour) }
	world.benchmarks = append(world.benchmarks,
		makeBenchmark("old-running", sooner, stands("Unknown", v1alpha1.ReasonRunning)),
		makeBenchmark("old-complete", sooner, stands("True", v1alpha1.ReasonComplete)),
		makeBenchmark("large", later, stands("True", v1alpha1.ReasonComplete), cells(MaxCells+24)),
	)
	text := scrape(t, registryOf(world))
	// Two of the equal benchmarks are dropped for the two that come before them.
	for _, c := range []struct {
		prefix string
		want   int
	}{
		{`tailgate_benchmark_state{`, MaxBenchmarks},
		{`tailgate_benchmark_state{benchmark="old-running"`, 1},
		{`tailgate_benchmark_state{benchmark="old-complete"`, 0},
		{`tailgate_benchmark_state{benchmark="b197"`, 1},
		{`tailgate_benchmark_state{benchmark="b198"`, 0},
		{`tailgate_latency_seconds{benchmark="large"`, MaxCells * 5},
		{`tailgate_dropped_benchmarks 3`, 1},
		{`tailgate_dropped_cells{benchmark="large",namespace="perf"} 24`, 1},
		{`tailgate_dropped_cells{benchmark="b000",namespace="perf"} 0`, 1},
		{`tailgate_benchmarks{origin="User"} 203`, 1},
	} {
		if got := len(series(text, c.prefix)); got != c.want {
			t.Errorf("%d series of %s, want %d", got, c.prefix, c.want)
		}
	}
}

func TestQueue(t *testing.T) {
	queued := stands("Unknown", v1alpha1.ReasonQueued)
	accepted := func(d time.Duration) func(*v1alpha1.LatencyBenchmark) {
		return func(b *v1alpha1.LatencyBenchmark) { b.Status.Conditions[0].LastTransitionTime = *ago(d) }
	}
	world := &cache{objects: objects{benchmarks: []v1alpha1.LatencyBenchmark{
		makeBenchmark("a", queued, accepted(10*time.Minute)),
		makeBenchmark("b", queued, accepted(20*time.Minute), labelled(v1alpha1.LabelGate, "up")),
		// It has waited only since its last attempt.
		makeBenchmark("c", queued, accepted(time.Hour), func(b *v1alpha1.LatencyBenchmark) {
			b.Status.Attempts = []v1alpha1.Attempt{{Outcome: v1alpha1.Outcome{CompletionTime: metav1.NewMicroTime(noon.Add(-time.Minute))}}}
		}),
		makeBenchmark("d", stands("Unknown", v1alpha1.ReasonRunning), accepted(time.Hour)),
		makeBenchmark("e", accepted(time.Hour)),
	}}}
	text := scrape(t, registryOf(world))
	want := fmt.Sprintf("tailgate_queue_oldest_timestamp_seconds %v", float64(noon.Add(-20*time.Minute).Unix()))
	if got := series(text, "tailgate_queue_"); len(got) != 2 || got[0] != "tailgate_queue_length 3" || got[1] != want {
		t.Errorf("%v, want 3 and %s", got, want)
	}
	world.benchmarks = nil
	if got := series(scrape(t, registryOf(world)), "tailgate_queue_"); len(got) != 1 || got[0] != "tailgate_queue_length 0" {
		t.Errorf("of nobody: %v", got)
	}
}

func TestActivity(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	a := NewActivity(registry)
	attempt := func(run string, number int32, reason string) v1alpha1.Attempt {
		return v1alpha1.Attempt{Run: run, Attempt: number, MeasuredMilliseconds: 1500, Outcome: v1alpha1.Outcome{Reason: reason}}
	}
	old, b := makeBenchmark("x"), makeBenchmark("x")
	// It gave way once, before it had a pod.
	claimed := v1alpha1.ActiveAttempt{Run: "x-r1", StartTime: metav1.NewMicroTime(b.CreationTimestamp.Add(90 * time.Second))}
	b.Status.StartTime, b.Status.Active = &metav1.Time{Time: claimed.StartTime.Time}, claimed.DeepCopy()
	a.Observe(&old, &b)
	a.Observe(&b, &old)
	a.Observe(&old, &b)
	started := b.DeepCopy()
	started.Status.Active.ServerPodUID = "uid"
	a.Observe(&b, started)
	// A benchmark that was suspended and resumed has not waited since its creation.
	held := b.DeepCopy()
	held.Status.StartTime, held.Status.Active = nil, nil
	held.Status.Attempts = []v1alpha1.Attempt{attempt("x-r1", 1, v1alpha1.OutcomeEvicted)}
	resumed := started.DeepCopy()
	resumed.Status.Attempts = held.Status.Attempts
	a.Observe(held, resumed)
	next := b.DeepCopy()
	next.Status.Attempts = []v1alpha1.Attempt{attempt("x-r1", 1, v1alpha1.OutcomeEvicted), attempt("x-r1", 2, v1alpha1.OutcomeMeasured)}
	a.Observe(&b, next)
	a.Observe(next, next)
	// The API bounds the list: the oldest attempt was removed when a new one was added.
	last := next.DeepCopy()
	last.Status.Attempts = []v1alpha1.Attempt{attempt("x-r1", 2, v1alpha1.OutcomeMeasured), attempt("x-r2", 1, v1alpha1.OutcomeMeasured)}
	a.Observe(next, last)
	text := scrape(t, registry)
	for _, want := range []string{
		`tailgate_attempts_total{reason="Evicted"} 1`, `tailgate_attempts_total{reason="Measured"} 2`,
		"tailgate_measuring_seconds_total 4.5", `tailgate_queue_wait_seconds_bucket{le="60"} 0`,
		`tailgate_queue_wait_seconds_bucket{le="300"} 1`, "tailgate_queue_wait_seconds_count 1",
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	var none *Activity // a caller that does not count needs no Activity
	none.Observe(next, last)
	none.ObserveHold(time.Second)
}

// largeWorld returns a gate with a number of nodes, all verified three times, and MaxBenchmarks benchmarks of users.
func largeWorld(nodes int) *cache {
	world := makeWorld()
	world.verifications, world.benchmarks = nil, nil
	for i := range nodes {
		node := fmt.Sprintf("node-%04d.rack-%02d.example.com", i, i/100)
		world.verifications = append(world.verifications, makeVerification(node))
		for n := range 3 {
			world.benchmarks = append(world.benchmarks, makeBenchmark(fmt.Sprintf("up-%s-%d", node, n+1),
				labelled(v1alpha1.LabelGate, "up"), stands("True", v1alpha1.ReasonComplete), cells(1),
				func(b *v1alpha1.LatencyBenchmark) { b.Namespace = "gates" }))
		}
	}
	for i := range MaxBenchmarks {
		world.benchmarks = append(world.benchmarks, makeBenchmark(fmt.Sprintf("b%03d", i), stands("True", v1alpha1.ReasonComplete), cells(MaxCells)))
	}
	return world
}

func TestNodesAreBounded(t *testing.T) {
	const nodes = 300
	text := scrape(t, registryOf(largeWorld(nodes)))
	if got := len(series(text, "tailgate_node_")); got != nodes*PerNode {
		t.Errorf("%d series of %d nodes, want %d of each", got, nodes, PerNode)
	}
}

// BenchmarkScrape measures the time and the size of one scrape of 5,000 nodes and 200 benchmarks of 16 cells.
func BenchmarkScrape(b *testing.B) {
	registry := registryOf(largeWorld(5000))
	size := 0
	for b.Loop() {
		size = len(scrape(b, registry))
	}
	b.ReportMetric(float64(size)/(1<<20), "MiB/scrape")
	b.ReportMetric(float64(strings.Count(scrape(b, registry), "\ntailgate_")), "series")
}
