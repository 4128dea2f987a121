package summary

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/rounds"
)

// largestStatus returns the status of a legal benchmark of 400 runs and 400 cells whose attempts failed with long messages.
func largestStatus() *v1alpha1.LatencyBenchmarkStatus {
	s := &v1alpha1.LatencyBenchmarkStatus{}
	number := func() *int64 { return new(int64(12_345_678)) }
	text := strings.Repeat
	for i := range 400 {
		r := v1alpha1.CellResult{
			Variant: fmt.Sprintf("variant-%d", i%4), Name: fmt.Sprintf("multicast-%d-at-1000000", i/4), Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolMulticast, MessageSize: 1400, RatePerSecond: 1_000_000}, LatencyType: "HalfRTT", CountedFrom: "Intended", Rounds: 100, Samples: 1e9, Lost: 1e6,
			LostFrom: "p99.9999", MinNanoseconds: number(), MeanNanoseconds: number(), StddevNanoseconds: number(), MaxNanoseconds: number(),
			Outliers: text("o", 300),
		}
		for _, p := range rounds.Percentiles() {
			r.Percentiles = append(r.Percentiles, v1alpha1.PercentileResult{Name: p, Nanoseconds: 12_345_678})
			r.Spread = append(r.Spread, v1alpha1.Spread{Percentile: p, Rounds: 100, MinNanoseconds: 1_234_567, MedianNanoseconds: 1_234_567, MaxNanoseconds: 1_234_567})
		}
		for _, p := range []v1alpha1.Percentile{"p50", "p99", "p99.9"} {
			r.Ratios = append(r.Ratios, v1alpha1.Ratio{Percentile: p, Estimate: "123.45", Lower: "123.45", Upper: "123.45"})
		}
		s.Results = append(s.Results, r)
		run := fmt.Sprintf("%s-variant-%d-r%d", text("n", 45), i%4, i/4)
		s.Stored = append(s.Stored, v1alpha1.StoredResult{
			ConfigMap: run + "-abcdefghij", Run: run, SHA256: text("a", 64), ServerSHA256: text("b", 64), PodsSHA256: text("c", 64),
		})
	}
	for i := range 300 {
		s.Attempts = append(s.Attempts, v1alpha1.Attempt{Run: s.Stored[i].Run, Attempt: 3, MeasuredMilliseconds: 1e7,
			Outcome: v1alpha1.Outcome{Reason: v1alpha1.OutcomeToolFailed, Message: text("m", 600)}})
	}
	for i := range 32 {
		e := v1alpha1.Endpoint{
			Variant: fmt.Sprintf("variant-%d", i/2), Role: []string{v1alpha1.RoleClient, v1alpha1.RoleServer}[i%2], Node: text("n", 60), Kernel: text("k", 60),
			CPUs: "2-3", Interface: "net1", Address: "192.168.100.100", Driver: "mlx5_core", PCIAddress: "0000:3b:02.1", ToolVersion: text("t", 60),
		}
		for k := range 24 {
			state := v1alpha1.ProofProved
			if k%3 == 0 {
				state = v1alpha1.ProofFailed
			}
			e.Proof = append(e.Proof, v1alpha1.ProofLine{Check: fmt.Sprintf("Check%d", k), State: state, Expected: text("e", 80), Found: text("f", 80)})
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	s.Summary = &v1alpha1.Summary{
		Variant: text("v", 63), Cell: text("c", 63), P50: text("p", 1024), P99: text("p", 1024), P999: text("p", 1024), Variants: text("p", 1024),
		P50Nanoseconds: new(int64(math.MaxInt64)), P99Nanoseconds: new(int64(math.MaxInt64)), P999Nanoseconds: new(int64(math.MaxInt64)),
	}
	s.Verdict = &v1alpha1.Verdict{Message: text("v", 1024)}
	for i := range 32 {
		s.Verdict.Rules = append(s.Verdict.Rules, v1alpha1.RuleVerdict{Rule: text("r", 512), Reason: v1alpha1.ReasonLimitInsideBounds, Message: text("m", 1024)})
		if i > 0 {
			s.Warnings = append(s.Warnings, v1alpha1.Warning{Reason: fmt.Sprintf("Warning%d", i), Message: text("w", 1024)})
		}
	}
	return s
}

func size(t *testing.T, s *v1alpha1.LatencyBenchmarkStatus) int {
	t.Helper()
	encoded, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return len(encoded)
}

func TestBound(t *testing.T) {
	s := largestStatus()
	before := size(t, s)
	Bound(s)
	after := size(t, s)
	t.Logf("%d bytes, Bounded to %d", before, after)
	if before <= maxStatus || after > maxStatus {
		t.Errorf("%d bytes, Bounded to %d; at most %d are written", before, after, maxStatus)
	}
	if len(s.Results) != 400 || len(s.Stored) != 400 || len(s.Endpoints) != 32 || s.Results[0].Percentile(v1alpha1.P999) == nil {
		t.Error("results are lost")
	}
	if newest := s.Attempts[len(s.Attempts)-1]; newest.Run != s.Stored[299].Run || newest.Outcome.Message == "" {
		t.Errorf("the newest attempt is %v", newest)
	}
	if len(s.Warnings) != 32 {
		t.Errorf("%d warnings", len(s.Warnings))
	}
	for _, part := range shed {
		if !strings.Contains(shortened(s), part.what) {
			t.Errorf("%q does not say that it leaves out %s", shortened(s), part.what)
		}
	}
}

// The status of a matrix never needs to omit anything.
func TestLargestStatusOfAMatrix(t *testing.T) {
	name := strings.Repeat("n", 253)
	pair := v1alpha1.Pair{ClientNode: name, ServerNode: name}
	var cells []v1alpha1.CellResult
	for i := range 400 {
		cells = append(cells, cellWith(fmt.Sprintf("multicast-%d-at-1000000", i), 12_345_678, 12_345_678))
	}
	var measured []*v1alpha1.LatencyBenchmark
	for i := range 20 {
		b := pairWith(i, cells...)
		b.Name, b.Status.Pair = name, &pair
		measured = append(measured, b)
	}
	summary := SummarizePairs(measured)
	s := v1alpha1.LatencyMatrixStatus{
		Server: name, Summary: summary.Headline, Slowest: summary.Slowest, Cells: summary.Cells, Verdict: largestStatus().Verdict,
	}
	for range v1alpha1.MaxStarClients {
		s.Nodes = append(s.Nodes, name)
	}
	for range 50 {
		s.Running = append(s.Running, v1alpha1.RunningPair{Number: 4950, Pair: pair, UID: strings.Repeat("u", 64)})
	}
	encoded, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if t.Logf("%d bytes", len(encoded)); len(encoded) > maxStatus {
		t.Errorf("%d bytes, want at most %d", len(encoded), maxStatus)
	}
}

// shortened returns the warning of a status about the parts that it omits.
func shortened(s *v1alpha1.LatencyBenchmarkStatus) string {
	for _, w := range s.Warnings {
		if w.Reason == v1alpha1.WarningStatusShortened {
			return w.Message
		}
	}
	return ""
}

// A status names exactly the parts that it omits, also after more attempts are added.
func TestBoundSaysWhatIsLeftOut(t *testing.T) {
	s := largestStatus()
	s.Results, s.Endpoints = s.Results[:100], nil
	attempts := s.Attempts
	more := func(size int) { s.Attempts = append(s.Attempts[:0:0], attempts[:size]...) }
	more(290)
	s.Results[0].Outliers = strings.Repeat("o", maxStatus)
	for range 2 {
		Bound(s)
		if got := shortened(s); !strings.Contains(got, "all attempts but the last 50; spread and outliers;") || strings.Contains(got, "ratios") {
			t.Errorf("it says %q", got)
		}
		if len(s.Attempts) != 50 || s.Results[0].Spread != nil || s.Results[0].Ratios == nil {
			t.Errorf("there are %d attempts, or spread, or no ratios", len(s.Attempts))
		}
		more(290)
		s.Attempts[0].Outcome.Message = strings.Repeat("m", maxStatus)
	}
}

func TestBoundLeavesWhatFits(t *testing.T) {
	s := largestStatus()
	s.Results, s.Attempts, s.Verdict, s.Warnings = s.Results[:50], s.Attempts[:51], nil, nil
	before := size(t, s)
	Bound(s)
	if after := size(t, s); after != before || len(s.Warnings) > 0 {
		t.Errorf("%d bytes became %d, with %d warnings", before, after, len(s.Warnings))
	}
}
