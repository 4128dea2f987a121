package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// oneCell returns a spec of a single cell.
func oneCell(workload v1alpha1.Workload) v1alpha1.LatencyBenchmarkSpec {
	s := spec()
	s.Workload = workload
	return s
}

// stored returns a run of a variant with one cell.
func stored(variant string, c result.Cell) result.Stored {
	s := result.Stored{
		Client:     result.Document{Run: "b-r1", Variant: variant, Role: v1alpha1.RoleClient, Evidence: evidence("a", "boot-a"), Cells: []result.Cell{c}},
		Server:     result.Document{Run: "b-r1", Variant: variant, Role: v1alpha1.RoleServer, Evidence: evidence("b", "boot-b")},
		ClientSeen: looked("c"), ServerSeen: looked("s"),
	}
	s.Client.Evidence.Paths = resulttest.ThroughKernel(s.Client.Cells)
	s.Server.Evidence.Paths = s.Client.Evidence.Paths
	return s
}

func summarize(t *testing.T, s v1alpha1.LatencyBenchmarkSpec, runs ...result.Stored) summary.Summary {
	t.Helper()
	collected, err := rounds.Of(s, runs...)
	if err != nil {
		t.Fatal(err)
	}
	return summary.Summarize(collected)
}

// A lost message counts as slower than any sample: the percentiles that it reaches are unknown, and the others count it.
func TestLostMessagesReachPercentiles(t *testing.T) {
	s := oneCell(v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolUDP}})
	s.LatencyType = v1alpha1.LatencyRTT
	// 200 of 100,000 messages were lost: 0.2 %, which does not reach p99 but reaches p99.9.
	c := result.Cell{Cell: tool.Cell{Name: "udp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolUDP, MessageSize: 64}}, Histogram: histogram(t, 1, 1, 99_800), Lost: 200}
	got := summarize(t, s, stored(plan.DefaultVariant, c))
	r := got.Results[0]
	if r.Percentile(v1alpha1.P99) == nil || *r.Percentile(v1alpha1.P99) < 99_000 || *r.Percentile(v1alpha1.P99) > 99_100 {
		t.Errorf("p99 is %v, want that of 100,000 messages, 99,000 ns", r.Percentile(v1alpha1.P99))
	}
	if r.Percentile(v1alpha1.P999) != nil || r.LostFrom != v1alpha1.P999 {
		t.Errorf("p99.9 is %v and lost from %q; want it lost", r.Percentile(v1alpha1.P999), r.LostFrom)
	}
	if got.Headline.P99 == "" || got.Headline.P999 != "lost" {
		t.Errorf("headline %+v", got.Headline)
	}
	for _, p := range []v1alpha1.Percentile{v1alpha1.P999, v1alpha1.P99999} {
		if got := percentile(r, p, stats.FormatLatency); got != "lost" {
			t.Errorf("the table shows %q as %s, want lost", got, p)
		}
	}
}

// Messages of an unknown latency are neither samples nor lost, and a percentile that may be one of them is unknown.
func TestSummarizeUnrecorded(t *testing.T) {
	s := oneCell(v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}})
	h := histogram(t, 20_000, 0, 10_000)
	h.Unrecorded = 300
	cell := result.Cell{Cell: tool.Cell{Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}}, Histogram: h}
	r := summarize(t, s, stored(plan.DefaultVariant, cell), stored(plan.DefaultVariant, cell)).Results[0]
	if r.Samples != 20_000 || r.Lost != 0 || r.LostFrom != v1alpha1.P99 || r.Percentile(v1alpha1.P95) == nil || r.Percentile(v1alpha1.P99) != nil {
		t.Errorf("got %+v", r)
	}
}

func TestSummarizeKeepsVariantsApart(t *testing.T) {
	s := oneCell(v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}})
	s.Variants = []v1alpha1.Variant{{Name: "block"}, {Name: "spin", Wait: v1alpha1.WaitSpin}}
	cell := func(ns int64) result.Cell {
		return result.Cell{Cell: tool.Cell{Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}}, Histogram: histogram(t, ns, 0, 1_000)}
	}
	got := summarize(t, s, stored("spin", cell(8_000)), stored("block", cell(100_000)), stored("block", cell(120_000)))
	var lines []string
	for _, r := range got.Results {
		lines = append(lines, r.Variant+" "+r.Name)
	}
	if diff := cmp.Diff([]string{"block tcp-64", "spin tcp-64"}, lines); diff != "" {
		t.Fatalf("results (-want +got):\n%s", diff)
	}
	if block, spin := got.Results[0], got.Results[1]; block.Rounds != 2 || *block.MaxNanoseconds != 60_000 || spin.Rounds != 1 || *spin.MaxNanoseconds != 4_000 {
		t.Errorf("block %+v, spin %+v", block, spin)
	}
	if len(got.Endpoints) != 4 || got.Endpoints[3].Variant != "spin" || got.Endpoints[3].Role != v1alpha1.RoleServer {
		t.Errorf("endpoints %+v", got.Endpoints)
	}
}

// The tool reports no samples: the mean covers all round trips, the percentiles are medians over the rounds.
func TestSummarizeOwnStatistics(t *testing.T) {
	s := oneCell(v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}})
	s.LatencyType = v1alpha1.LatencyRTT
	own := func(count int64, mean float64, p50 int64) result.Stored {
		return stored(plan.DefaultVariant, result.Cell{
			Cell: tool.Cell{Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}},
			Own:  &tool.Own{Count: count, MeanNs: mean, MinNs: p50 - 5_000, MaxNs: 10 * p50, StdDevNs: 2_000, P50Ns: p50, P90Ns: p50 + 1_000, P99Ns: p50 + 9_000, StepNs: 1_000},
		})
	}
	r := summarize(t, s, own(1_000, 50_000.5, 50_000), own(3_000, 40_000, 40_000), own(1_000, 60_000, 61_000)).Results[0]
	want := v1alpha1.CellResult{
		Variant: plan.DefaultVariant, Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}, LatencyType: "RTT", Rounds: 3,
		Samples: 5_000, StepNanoseconds: 1_000, MeanNanoseconds: new(int64(46_000)), MinNanoseconds: new(int64(35_000)), MaxNanoseconds: new(int64(610_000)),
		StddevNanoseconds: new(int64(2_000)),
		Percentiles:       []v1alpha1.PercentileResult{{Name: v1alpha1.P50, Nanoseconds: 50_000}, {Name: v1alpha1.P90, Nanoseconds: 51_000}, {Name: v1alpha1.P99, Nanoseconds: 59_000}},
		Spread: []v1alpha1.Spread{
			{Percentile: v1alpha1.P50, Rounds: 3, MinNanoseconds: 40_000, MedianNanoseconds: 50_000, MaxNanoseconds: 61_000},
			{Percentile: v1alpha1.P90, Rounds: 3, MinNanoseconds: 41_000, MedianNanoseconds: 51_000, MaxNanoseconds: 62_000},
			{Percentile: v1alpha1.P99, Rounds: 3, MinNanoseconds: 49_000, MedianNanoseconds: 59_000, MaxNanoseconds: 70_000},
		},
	}
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func TestSummarizeStreams(t *testing.T) {
	s := oneCell(v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, Streams: []v1alpha1.Stream{{Protocol: v1alpha1.ProtocolTCP, MessageSize: 65536}}})
	stream := func(bits float64, retransmits *int64) result.Stored {
		return stored(plan.DefaultVariant, result.Cell{
			Cell:      tool.Cell{Name: "tcp-stream-65536", Traffic: v1alpha1.Traffic{Stream: true, Protocol: v1alpha1.ProtocolTCP, MessageSize: 65536}},
			Bandwidth: &tool.Bandwidth{BitsPerSecond: bits, SentBitsPerSecond: bits + 1e6, Retransmits: retransmits},
		})
	}
	got := summarize(t, s, stream(9.41e9, new(int64(2))), stream(9.39e9, new(int64(0))), stream(8e9, nil))
	want := v1alpha1.CellResult{
		Variant: plan.DefaultVariant, Name: "tcp-stream-65536", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 65536, Stream: true}, Rounds: 3,
		Bandwidth: &v1alpha1.BandwidthResult{BitsPerSecond: 9_390_000_000, MinBitsPerSecond: 8_000_000_000, MaxBitsPerSecond: 9_410_000_000, SentBitsPerSecond: 9_391_000_000, Retransmits: new(int64(2))},
	}
	if diff := cmp.Diff([]v1alpha1.CellResult{want}, got.Results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	var table bytes.Buffer
	b := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "x"}, Spec: s}
	b.Status.Results = got.Results
	if err := Table(&table, b); err != nil {
		t.Fatal(err)
	}
	if text := table.String(); !strings.Contains(text, "9.39Gb/s") || strings.Contains(text, "SAMPLES") {
		t.Errorf("the table has no bandwidth, or a line of latencies:\n%s", text)
	}
}

func TestSummarizeOutliers(t *testing.T) {
	s := oneCell(v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}})
	told := func(a tool.Attribution) result.Stored {
		return stored(plan.DefaultVariant, result.Cell{Cell: tool.Cell{Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}}, Histogram: histogram(t, 2_000, 1, 100), Attribution: &a})
	}
	spin := tool.Attribution{Beyond: 150, Examined: 100, Client: 91, Server: 5, Both: 1, Neither: 3, ClientSeesGaps: true, ServerSeesGaps: true}
	r := summarize(t, s, told(spin), told(spin)).Results[0]
	want := "of the 200 slowest of 300 samples beyond p99.9, 91 % coincide with an interruption of the client's CPU, 5 % of the server's, 1 % of both, 3 % of neither"
	if r.Outliers != want {
		t.Errorf("got  %s\nwant %s", r.Outliers, want)
	}
	block := spin
	block.ServerSeesGaps, block.Undetermined = false, 40
	if r := summarize(t, s, told(block)).Results[0]; !strings.Contains(r.Outliers, "40 % unknown; the ends sleep") {
		t.Errorf("got %s", r.Outliers)
	}
}

// Each warning of a tool is reported once, however many measurements have it, and the number of warnings is limited.
func TestToolWarnings(t *testing.T) {
	cell := func(warnings ...string) result.Stored {
		return stored(plan.DefaultVariant, result.Cell{Cell: tool.Cell{Name: "tcp-64"}, Warnings: warnings})
	}
	told := func(runs ...result.Stored) string {
		collected, err := rounds.Of(oneCell(v1alpha1.Workload{}), runs...)
		if err != nil {
			t.Fatal(err)
		}
		return collected.ToolWarnings()
	}
	got := told(cell("no warm-up"), cell("no warm-up", "a reset"), cell("no warm-up", "1", "2", "3", "4", "4"))
	want := "no warm-up (b-r1, tcp-64 and 2 more); a reset (b-r1, tcp-64); 1 (b-r1, tcp-64); 2 (b-r1, tcp-64); 2 other warnings are in the stored results"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := told(cell()); got != "" {
		t.Errorf("without warnings: %q", got)
	}
}

// The captures of the server have a line of their own, with whole and not halved times; a capture that missed packets has
// none.
func TestSummarizeCaptured(t *testing.T) {
	s := oneCell(v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolUDP}})
	cell := tool.Cell{Name: "udp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolUDP, MessageSize: 64}}
	run := func(c result.Captured) result.Stored {
		r := stored(plan.DefaultVariant, result.Cell{Cell: cell, Histogram: histogram(t, 20_000, 0, 1_000)})
		c.Cell = "udp-64"
		r.Server.Captured = []result.Captured{c}
		return r
	}
	whole := result.Captured{Histogram: histogram(t, 2_000, 0, 1_000), Matched: 1_000, Unanswered: 1}
	got := summarize(t, s, run(whole), run(result.Captured{Incomplete: "the kernel dropped 7 of 2000 captured packets"}), run(whole))
	if len(got.Results) != 2 {
		t.Fatalf("results %+v, want the round trips and the capture", got.Results)
	}
	r := got.Results[1]
	if r.Name != "udp-64-captured" || r.LatencyType != v1alpha1.ResultInToOut || r.Rounds != 2 || r.Samples != 2_000 || r.Lost != 2 || *r.Percentile(v1alpha1.P50) != 2_000 {
		t.Errorf("captured %+v", r)
	}
	if len(got.Warnings) != 2 || got.Warnings[1].Reason != v1alpha1.WarningCaptureIncomplete || !strings.Contains(got.Warnings[1].Message, "dropped 7") {
		t.Errorf("warnings %v", got.Warnings)
	}
}

// A requested percentile that is unknown is reported once all rounds are present.
func TestSummarizeMissesThePercentile(t *testing.T) {
	s := oneCell(v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}})
	s.HighestPercentile = v1alpha1.P999
	c := result.Cell{Cell: tool.Cell{Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}}, Histogram: histogram(t, 2_000, 1, 4_999)}
	one := stored(plan.DefaultVariant, c)
	if got := summarize(t, s, one); len(got.Warnings) != 0 {
		t.Errorf("warned after one round of two: %v", got.Warnings)
	}
	got := summarize(t, s, one, one)
	if len(got.Warnings) != 1 || got.Warnings[0].Reason != v1alpha1.WarningTooFewSamples || !strings.Contains(got.Warnings[0].Message, "9998 samples are too few for p99.9") {
		t.Errorf("warnings %v", got.Warnings)
	}
}
