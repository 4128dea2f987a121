package report

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/test/golden"
)

// matrixOf returns a matrix of the nodes node-01, node-02 and so on, and the benchmarks of its pairs, which fill completes.
func matrixOf(topology v1alpha1.Topology, nodes int, fill func(b *v1alpha1.LatencyBenchmark)) (*v1alpha1.LatencyMatrix, []*v1alpha1.LatencyBenchmark) {
	var names []string
	for i := range nodes {
		names = append(names, fmt.Sprintf("node-%02d", i+1))
	}
	template := experiment("mesh", v1alpha1.ToolPinger, v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolUDP}, MessageSizes: []int32{64}})
	var all []*v1alpha1.LatencyBenchmark
	for _, slot := range plan.Matrix(v1alpha1.LatencyMatrixSpec{Topology: topology, Parallelism: int32(nodes)}, names, names[0]) {
		for _, p := range slot {
			b := template.DeepCopy()
			b.Name = fmt.Sprintf("mesh-%s-%s", p.ClientNode[5:], p.ServerNode[5:])
			b.Spec.Placement = v1alpha1.Placement{
				Client: &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: p.ClientNode}}, Server: &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: p.ServerNode}},
			}
			fill(b)
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b *v1alpha1.LatencyBenchmark) int { return strings.Compare(a.Name, b.Name) })
	m := &v1alpha1.LatencyMatrix{ObjectMeta: template.ObjectMeta, Spec: v1alpha1.LatencyMatrixSpec{
		Topology: topology, Template: v1alpha1.LatencyBenchmarkTemplate{Spec: template.Spec.MeasurementSpec},
	}}
	return m, all
}

// found adds a result of a variant to the status of a pair's benchmark.
func found(b *v1alpha1.LatencyBenchmark, variant string, p50, p99 int64, verified bool) {
	b.Status.Results = append(b.Status.Results, v1alpha1.CellResult{
		Variant: variant, Name: "udp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolUDP}, LatencyType: "RTT", Rounds: 1, Samples: 1_000,
		Percentiles: []v1alpha1.PercentileResult{{Name: v1alpha1.P50, Nanoseconds: p50}, {Name: v1alpha1.P99, Nanoseconds: p99}},
	})
	for _, role := range []string{v1alpha1.RoleClient, v1alpha1.RoleServer} {
		b.Status.Endpoints = append(b.Status.Endpoints, v1alpha1.Endpoint{Variant: variant, Role: role, Placement: summary.PlacementState(verified)})
	}
}

func printedPairs(t *testing.T, m *v1alpha1.LatencyMatrix, of []*v1alpha1.LatencyBenchmark) string {
	t.Helper()
	var out bytes.Buffer
	if err := Pairs(&out, m, of); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestPairs(t *testing.T) {
	m, of := matrixOf(v1alpha1.TopologyAllPairs, 5, func(b *v1alpha1.LatencyBenchmark) {
		p := summary.PairOf(b)
		distance := int64(len(b.Name)) + int64(p.ClientNode[6]-'0')*10 + int64(p.ServerNode[6]-'0')
		switch b.Name {
		case "mesh-01-02":
			b.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSucceeded, Reason: v1alpha1.ReasonQueued, Message: "node-01 is taken by perf/other"}}
		default:
			found(b, "pod", 10_000+distance*10, 20_000+distance*10, true)
			found(b, "vf", 1_000+distance, 2_000+distance, b.Name != "mesh-02-03")
		}
		if b.Name == "mesh-03-04" {
			b.Status.Results[1].Percentiles, b.Status.Results[1].LostFrom, b.Status.Results[1].Lost = b.Status.Results[1].Percentiles[:1], v1alpha1.P99, 70
		}
		if b.Name == "mesh-04-05" {
			b.Status.Results[1].Percentiles, b.Status.Results[1].NeedsSamples = b.Status.Results[1].Percentiles[:1], 1_000
		}
	})
	golden.Check(t, "pairs.txt", printedPairs(t, m, of))
}

// A star has one column. The nodes of a pair are the chosen ones as soon as they are known.
func TestPairsOfAStar(t *testing.T) {
	m, of := matrixOf(v1alpha1.TopologyStar, 3, func(b *v1alpha1.LatencyBenchmark) {
		found(b, "default", 10_000, 20_000, true)
		if b.Name == "mesh-03-01" {
			b.Status.Pair = &v1alpha1.Pair{ClientNode: "node-09", ServerNode: "node-01"}
		}
	})
	got := strings.Join(strings.Fields(printedPairs(t, m, of)), " ")
	for _, want := range []string{"Star of 2 pairs, 2 of them with results LATENCY of udp-64: RTT", " 1 node-01 1 - node-02 2 10.000 node-09 3 10.000 "} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
}

// With more than 20 nodes there is no matrix, only the quantiles over all pairs and a list of the slowest.
func TestPairsOfManyNodes(t *testing.T) {
	worst := int64(0)
	m, of := matrixOf(v1alpha1.TopologyAllPairs, 21, func(b *v1alpha1.LatencyBenchmark) {
		worst += 1_000
		found(b, "default", worst, 2*worst, true)
	})
	got := printedPairs(t, m, of)
	if strings.Contains(got, "clients are rows") {
		t.Errorf("a matrix of 21 nodes:\n%s", got)
	}
	// There are 210 pairs of 1 to 210 µs; the quantiles are the 105th, the 189th and the 208th.
	for _, want := range []string{
		"p50 210 1.00µs 105.00µs 189.00µs 208.00µs 210.00µs ", "p99 210 2.00µs 210.00µs 378.00µs 416.00µs 420.00µs ",
		"BENCHMARK node-", " 210.00µs 420.00µs ", " 191.00µs 382.00µs ",
	} {
		if !strings.Contains(strings.Join(strings.Fields(got), " "), want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if n := strings.Count(got, " Verified "); n != 20 {
		t.Errorf("%d pairs are listed, want 20", n)
	}
	if strings.Contains(got, " 190.00µs") {
		t.Error("the 21st of the worst is listed")
	}
	if _, twenty := matrixOf(v1alpha1.TopologyRing, 20, func(b *v1alpha1.LatencyBenchmark) { found(b, "default", 1, 1, true) }); !strings.Contains(printedPairs(t, m, twenty), "clients are rows") {
		t.Error("no matrix of 20 nodes")
	}
}

func TestPairsWithoutResults(t *testing.T) {
	m, of := matrixOf(v1alpha1.TopologyAllPairs, 8, func(*v1alpha1.LatencyBenchmark) {})
	got := printedPairs(t, m, of)
	for _, want := range []string{"AllPairs of 28 pairs, 0 of them with results", "node-01 to node-02 has no results", "\n8 more pairs have no results\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	m, of = matrixOf(v1alpha1.TopologyAllPairs, 3, func(b *v1alpha1.LatencyBenchmark) {
		b.Status.Results = []v1alpha1.CellResult{{Variant: "default", Name: "tcp-stream-64", Traffic: v1alpha1.Traffic{Stream: true}, Bandwidth: &v1alpha1.BandwidthResult{BitsPerSecond: 1}}}
	})
	var out bytes.Buffer
	if err := Pairs(&out, m, of); !errors.Is(err, ErrNothingToShow) || out.Len() > 0 {
		t.Errorf("streams: %v and %q, want ErrNothingToShow and nothing", err, &out)
	}
}

// A pair that lost its slowest messages ranks worse than any other; a pair with too few samples does not rank best.
func TestRank(t *testing.T) {
	for _, c := range []struct {
		r    v1alpha1.CellResult
		want int64
	}{
		{v1alpha1.CellResult{Percentiles: []v1alpha1.PercentileResult{{Name: v1alpha1.P99, Nanoseconds: 5}}}, 5},
		{v1alpha1.CellResult{LostFrom: v1alpha1.P90}, stats.Infinite},
		{v1alpha1.CellResult{LostFrom: v1alpha1.P999}, -1},
	} {
		if got := (summary.PairResult{CellResult: &c.r}).Rank(v1alpha1.P99); got != c.want {
			t.Errorf("%+v: %d, want %d", c.r, got, c.want)
		}
	}
}
