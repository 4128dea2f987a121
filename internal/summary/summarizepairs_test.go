package summary

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// pairWith returns the benchmark of the pair with a number, with results.
func pairWith(number int, results ...v1alpha1.CellResult) *v1alpha1.LatencyBenchmark {
	b := &v1alpha1.LatencyBenchmark{}
	b.Name = fmt.Sprintf("x-p%d", number)
	b.Status.Pair = &v1alpha1.Pair{ClientNode: fmt.Sprintf("c%d", number), ServerNode: fmt.Sprintf("s%d", number)}
	b.Status.Results = results
	return b
}

// cellWith returns a result with a median and a p99. A negative value is lost; 0 has too few samples.
func cellWith(cell string, p50, p99 int64) v1alpha1.CellResult {
	c := v1alpha1.CellResult{Variant: "default", Name: cell, LatencyType: v1alpha1.ResultLatencyType(v1alpha1.LatencyHalfRTT), Samples: 2000}
	for _, p := range []struct {
		name v1alpha1.Percentile
		ns   int64
	}{{v1alpha1.P50, p50}, {v1alpha1.P99, p99}} {
		switch {
		case p.ns > 0:
			c.Percentiles = append(c.Percentiles, v1alpha1.PercentileResult{Name: p.name, Nanoseconds: p.ns})
		case p.ns < 0 && c.LostFrom == "":
			c.LostFrom = p.name
		}
	}
	return c
}

func streamWith(bits int64) v1alpha1.CellResult {
	return v1alpha1.CellResult{Variant: "default", Name: "tcp-stream-65536", Traffic: v1alpha1.Traffic{Stream: true}, Bandwidth: &v1alpha1.BandwidthResult{BitsPerSecond: bits}}
}

// atRate returns a result of messages at a rate, which has both.
func atRate(p50, p99, bits int64) v1alpha1.CellResult {
	c := cellWith("udp-64-1000", p50, p99)
	c.Bandwidth = &v1alpha1.BandwidthResult{BitsPerSecond: bits}
	return c
}

// slowestLines lists the slowest pairs as "benchmark client>server p99".
func slowestLines(s PairsSummary) []string {
	var lines []string
	for _, w := range s.Slowest {
		line := fmt.Sprintf("%s %s>%s", w.Benchmark, w.ClientNode, w.ServerNode)
		switch {
		case w.Percentile(v1alpha1.P99) != nil:
			line += fmt.Sprintf(" %d", *w.Percentile(v1alpha1.P99))
		case w.LostFrom != "":
			line += " lost from " + string(w.LostFrom)
		case w.BitsPerSecond != nil:
			line += fmt.Sprintf(" %d b/s", *w.BitsPerSecond)
		}
		lines = append(lines, line)
	}
	return lines
}

// spreadLine formats the spread of pairs as "min median max benchmark".
func spreadLine(l *v1alpha1.PairsLatency) string {
	if l == nil {
		return "unknown"
	}
	text := ""
	for _, ns := range []*int64{l.MinNanoseconds, l.MedianNanoseconds, l.MaxNanoseconds} {
		if ns == nil {
			text += "lost "
		} else {
			text += fmt.Sprintf("%d ", *ns)
		}
	}
	return text + l.MaxBenchmark
}

func TestSummarizePairs(t *testing.T) {
	cases := map[string]struct {
		pairs             []*v1alpha1.LatencyBenchmark
		slowest           []string
		p50, p99          string
		headline, headP99 string
	}{
		"none":                    {p50: "unknown", p99: "unknown"},
		"one without results yet": {pairs: []*v1alpha1.LatencyBenchmark{pairWith(1)}, p50: "unknown", p99: "unknown"},
		"the highest p99 first": {
			pairs:   []*v1alpha1.LatencyBenchmark{pairWith(1, cellWith("tcp-64", 10, 20)), pairWith(2, cellWith("tcp-64", 5, 40)), pairWith(3), pairWith(4, cellWith("tcp-64", 30, 31))},
			slowest: []string{"x-p2 c2>s2 40", "x-p4 c4>s4 31", "x-p1 c1>s1 20"},
			p50:     "5 10 30 x-p4", p99: "20 31 40 x-p2", headline: "tcp-64, slowest of 3 pairs", headP99: "40ns",
		},
		"of equal ones the first, and the lower one of two in the middle": {
			pairs:   []*v1alpha1.LatencyBenchmark{pairWith(1, cellWith("tcp-64", 1, 7)), pairWith(2, cellWith("tcp-64", 2, 9)), pairWith(3, cellWith("tcp-64", 3, 9)), pairWith(4, cellWith("tcp-64", 4, 8))},
			slowest: []string{"x-p3 c3>s3 9", "x-p2 c2>s2 9", "x-p4 c4>s4 8", "x-p1 c1>s1 7"},
			p50:     "1 2 4 x-p4", p99: "7 8 9 x-p2", headline: "tcp-64, slowest of 4 pairs", headP99: "9ns",
		},
		"a percentile that lost messages reach is higher than any number": {
			pairs:   []*v1alpha1.LatencyBenchmark{pairWith(1, cellWith("udp-64", 10, 20)), pairWith(2, cellWith("udp-64", 10, -1)), pairWith(3, cellWith("udp-64", -1, -1))},
			slowest: []string{"x-p3 c3>s3 lost from p50", "x-p2 c2>s2 lost from p99", "x-p1 c1>s1 20"},
			p50:     "10 10 lost x-p3", p99: "20 lost lost x-p2", headline: "udp-64, slowest of 3 pairs", headP99: "lost",
		},
		"too few samples for p99": {
			pairs:   []*v1alpha1.LatencyBenchmark{pairWith(1, cellWith("tcp-64", 10, 0)), pairWith(2, cellWith("tcp-64", 12, 0)), pairWith(3, cellWith("tcp-64", 11, 15))},
			slowest: []string{"x-p3 c3>s3 15", "x-p2 c2>s2", "x-p1 c1>s1"},
			p50:     "10 11 12 x-p2", p99: "15 15 15 x-p3", headline: "tcp-64, slowest of 3 pairs", headP99: "15ns",
		},
		"a pair that is so slow that it has too few samples for p99": {
			pairs:   []*v1alpha1.LatencyBenchmark{pairWith(1, cellWith("tcp-64", 20, 30)), pairWith(2, cellWith("tcp-64", 1500, 0)), pairWith(3, cellWith("tcp-64", 21, 31))},
			slowest: []string{"x-p2 c2>s2", "x-p3 c3>s3 31", "x-p1 c1>s1 30"},
			p50:     "20 21 1500 x-p2", p99: "30 30 31 x-p3", headline: "tcp-64, slowest of 3 pairs",
		},
		"at a rate: by latency, although each has a bandwidth": {
			pairs:   []*v1alpha1.LatencyBenchmark{pairWith(1, atRate(10, 20, 700)), pairWith(2, atRate(5, 40, 900)), pairWith(3, atRate(30, 31, 800))},
			slowest: []string{"x-p2 c2>s2 40", "x-p3 c3>s3 31", "x-p1 c1>s1 20"},
			p50:     "5 10 30 x-p3", p99: "20 31 40 x-p2", headline: "udp-64-1000, slowest of 3 pairs", headP99: "40ns",
		},
		"streams: the slowest first": {
			pairs:   []*v1alpha1.LatencyBenchmark{pairWith(1, streamWith(900)), pairWith(2, streamWith(700)), pairWith(3, streamWith(800))},
			slowest: []string{"x-p2 c2>s2 700 b/s", "x-p3 c3>s3 800 b/s", "x-p1 c1>s1 900 b/s"},
			p50:     "unknown", p99: "unknown", headline: "tcp-stream-65536, slowest of 3 pairs",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := SummarizePairs(c.pairs)
			if diff := cmp.Diff(c.slowest, slowestLines(got)); diff != "" {
				t.Errorf("slowest pairs (-want +got):\n%s", diff)
			}
			first := v1alpha1.MatrixCell{}
			if len(got.Cells) > 0 {
				first = got.Cells[0]
			}
			if diff := cmp.Diff([]string{c.p50, c.p99}, []string{spreadLine(first.P50), spreadLine(first.P99)}); diff != "" {
				t.Errorf("p50 and p99 (-want +got):\n%s", diff)
			}
			headline := v1alpha1.Summary{}
			if got.Headline != nil {
				headline = *got.Headline
			}
			if headline.Cell != c.headline || headline.P99 != c.headP99 {
				t.Errorf("headline %q with p99 %q, want %q with %q", headline.Cell, headline.P99, c.headline, c.headP99)
			}
		})
	}
}

func TestSummarizePairsOfStreams(t *testing.T) {
	got := SummarizePairs([]*v1alpha1.LatencyBenchmark{pairWith(1, streamWith(900)), pairWith(2, streamWith(700)), pairWith(3, streamWith(800)), pairWith(4, streamWith(1000))}).Cells
	want := []v1alpha1.MatrixCell{{
		Variant: "default", Cell: "tcp-stream-65536", Pairs: 4,
		Bandwidth: &v1alpha1.PairsBandwidth{MinBitsPerSecond: 700, MedianBitsPerSecond: 800, MaxBitsPerSecond: 1000, MinBenchmark: "x-p2"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
	rated := SummarizePairs([]*v1alpha1.LatencyBenchmark{pairWith(1, atRate(10, 20, 800)), pairWith(2, atRate(5, 40, 900)), pairWith(3, atRate(30, 31, 700))}).Cells[0]
	want[0].Bandwidth = &v1alpha1.PairsBandwidth{MinBitsPerSecond: 700, MedianBitsPerSecond: 800, MaxBitsPerSecond: 900, MinBenchmark: "x-p3"}
	if diff := cmp.Diff(want[0].Bandwidth, rated.Bandwidth); diff != "" {
		t.Errorf("bandwidth at a rate (-want +got):\n%s", diff)
	}
}

func TestSummarizePairsByHeadline(t *testing.T) {
	with := func(number int, tcp, udp int64) *v1alpha1.LatencyBenchmark {
		b := pairWith(number, cellWith("tcp-64", 5, tcp), cellWith("udp-64", 5, udp))
		b.Status.Summary = &v1alpha1.Summary{Variant: "default", Cell: "udp-64"}
		return b
	}
	got := SummarizePairs([]*v1alpha1.LatencyBenchmark{with(1, 30, 10), with(2, 10, 20)})
	if got.Slowest[0].Benchmark != "x-p2" || *got.Headline.P99Nanoseconds != 20 || !strings.HasPrefix(got.Headline.Cell, "udp-64, slowest of 2") {
		t.Errorf("slowest %+v, headline %+v, want those of udp-64", got.Slowest[0], got.Headline)
	}
	if got.Cells[0].Cell != "tcp-64" || got.Cells[1].Cell != "udp-64" {
		t.Errorf("cells %+v are not in the order of the results", got.Cells)
	}
}

// The placement in the headline is unverified if that of any pair is.
func TestSummarizePairsPlacement(t *testing.T) {
	with := func(number int, p99 int64, placement v1alpha1.PlacementState) *v1alpha1.LatencyBenchmark {
		b := pairWith(number, cellWith("tcp-64", 5, p99))
		b.Status.Summary = &v1alpha1.Summary{Variants: fmt.Sprintf("host 1.00, pod %d.00", number), Placement: placement}
		return b
	}
	verified, unverified := v1alpha1.PlacementVerified, v1alpha1.PlacementUnverified
	for want, pairs := range map[v1alpha1.PlacementState][]*v1alpha1.LatencyBenchmark{
		verified:   {with(1, 10, verified), with(2, 20, verified), with(3, 15, verified)},
		unverified: {with(1, 10, verified), with(2, 20, verified), with(3, 15, unverified)},
	} {
		got := SummarizePairs(pairs).Headline
		if got.Placement != want || got.Variants != "host 1.00, pod 2.00" {
			t.Errorf("placement %s, want %s; variants %q, want those of the second, which is the slowest", got.Placement, want, got.Variants)
		}
	}
}

// The API limits the lists of the status.
func TestSummarizePairsIsBounded(t *testing.T) {
	var pairs []*v1alpha1.LatencyBenchmark
	for number := range 20 {
		var results []v1alpha1.CellResult
		for cell := range 100 {
			results = append(results, cellWith(fmt.Sprintf("tcp-%d", cell), int64(number+1), int64(number+cell+1)))
		}
		if number == 7 {
			// One cell is missing, so that the others have different indexes.
			results = results[1:]
		}
		pairs = append(pairs, pairWith(number, results...))
	}
	got := SummarizePairs(pairs)
	if len(got.Slowest) != v1alpha1.MaxSlowestPairs || len(got.Cells) != v1alpha1.MaxMatrixCells {
		t.Errorf("%d slowest pairs and %d cells, want %d and %d", len(got.Slowest), len(got.Cells), v1alpha1.MaxSlowestPairs, v1alpha1.MaxMatrixCells)
	}
	for i, want := range map[int]int32{0: 19, 1: 20, 63: 20} {
		if got.Cells[i].Pairs != want {
			t.Errorf("%d pairs have cell %s, want %d", got.Cells[i].Pairs, got.Cells[i].Cell, want)
		}
	}
	if s := spreadLine(got.Cells[63].P99); s != "64 73 83 x-p19" {
		t.Errorf("p99 of the last cell: %s", s)
	}
}

// The summary shares no memory with its input: the API client decodes into the status of a LatencyMatrix, and the input
// belongs to a cache.
func TestSummarizePairsSharesNothing(t *testing.T) {
	pairs := []*v1alpha1.LatencyBenchmark{pairWith(1, cellWith("tcp-64", 10, 20))}
	got := SummarizePairs(pairs)
	*got.Slowest[0].Percentile(v1alpha1.P99), *got.Cells[0].P99.MaxNanoseconds = 1, 1
	if *pairs[0].Status.Results[0].Percentile(v1alpha1.P99) != 20 {
		t.Error("the summary shares a number with the results")
	}
}

func BenchmarkSummarizePairs(b *testing.B) {
	for _, cells := range []int{1, 64} {
		var pairs []*v1alpha1.LatencyBenchmark
		for number := range 4950 {
			var results []v1alpha1.CellResult
			for cell := range cells {
				results = append(results, cellWith(fmt.Sprintf("tcp-%d", cell), int64(number*7919%5003+1), int64(number*7907%5003+9000)))
			}
			pairs = append(pairs, pairWith(number, results...))
		}
		b.Run(fmt.Sprintf("4950 pairs of %d cells", cells), func(b *testing.B) {
			for b.Loop() {
				SummarizePairs(pairs)
			}
		})
	}
}

// The headline has the percentiles of all variants as text, and those of the first variant also as numbers.
func TestHeadlineOfVariants(t *testing.T) {
	result := func(variant, name string, p50, p99 int64) v1alpha1.CellResult {
		r := cellWith(name, p50, p99)
		r.Variant = variant
		return r
	}
	for name, c := range map[string]struct {
		name    string
		results []v1alpha1.CellResult
		want    v1alpha1.Summary
	}{
		"the cell of spec.headline": {
			"udp-64",
			[]v1alpha1.CellResult{result("a", "tcp-64", 12_300, 20_000), result("a", "udp-64", 5_000, 6_000), result("b", "tcp-64", 1, 2), result("b", "udp-64", 7_000, 8_000)},
			v1alpha1.Summary{Cell: "udp-64", Variant: "a", P50: "a 5.00µs, b 7.00µs", P99: "a 6.00µs, b 8.00µs", P50Nanoseconds: new(int64(5_000)), P99Nanoseconds: new(int64(6_000))},
		},
		"one variant": {
			"",
			[]v1alpha1.CellResult{result("a", "tcp-64", 12_300, 20_000), result("a", "udp-64", 1, 2)},
			v1alpha1.Summary{Variant: "a", P50: "12.30µs", P99: "20.00µs", P50Nanoseconds: new(int64(12_300)), P99Nanoseconds: new(int64(20_000))},
		},
		"two variants": {
			"",
			[]v1alpha1.CellResult{result("a", "tcp-64", 12_300, 20_000), result("a", "udp-64", 1, 2), result("b", "tcp-64", 9_800, 15_000)},
			v1alpha1.Summary{Variant: "a", P50: "a 12.30µs, b 9.80µs", P99: "a 20.00µs, b 15.00µs", P50Nanoseconds: new(int64(12_300)), P99Nanoseconds: new(int64(20_000))},
		},
		"a percentile that only the second has": {
			"",
			[]v1alpha1.CellResult{result("a", "tcp-64", 12_300, 0), result("b", "tcp-64", 9_800, 15_000)},
			v1alpha1.Summary{Variant: "a", P50: "a 12.30µs, b 9.80µs", P99: "a -, b 15.00µs", P50Nanoseconds: new(int64(12_300))},
		},
	} {
		c.want.Samples = c.results[0].Samples
		if c.name == "" {
			c.want.Cell = "tcp-64"
		}
		if diff := cmp.Diff(&c.want, headline(c.name, c.results...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
