package report

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// waysToPeer are three variants, of which the first is what the others are compared with.
func waysToPeer() []v1alpha1.Variant {
	vf := v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{NetworkRef: &v1alpha1.NetworkRef{Name: "sf-vf"}, ResourceName: "amd.com/sf_vf"}}}
	return []v1alpha1.Variant{
		{Name: "host-kernel", Network: &v1alpha1.Network{Type: v1alpha1.NetworkHost, Host: &v1alpha1.HostNetwork{Interface: "enp59s0f0"}}},
		{Name: "pod"},
		{Name: "vf-onload", Network: &vf, Wait: v1alpha1.WaitSpin,
			Acceleration: &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{Profile: v1alpha1.OnloadProfileLatency}}},
	}
}

// slower is how many percent of the first variant's latencies a variant has.
var slower = map[string]int64{"host-kernel": 100, "pod": 154, "vf-onload": 31}

// compared is a benchmark of UDP round trips and a stream over three ways, with its status. Rounds differ by 2 %.
func compared(t *testing.T, rounds int32, count int64, change ...func(plan.Run, *result.Cell)) *v1alpha1.LatencyBenchmark {
	t.Helper()
	b := experiment("ways", v1alpha1.ToolSockperf, v1alpha1.Workload{
		Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolUDP}, MessageSizes: []int32{64},
		Streams: []v1alpha1.Stream{{Protocol: v1alpha1.ProtocolTCP, MessageSize: 65536}},
	}, waysToPeer()...)
	b.Spec.Rounds = rounds
	runs := measured(b, func(run plan.Run, c *result.Cell) {
		share := slower[run.Variant.Name] * int64(98+2*run.Round)
		if c.Stream {
			c.Bandwidth = &tool.Bandwidth{BitsPerSecond: 1e13 / float64(share), SentBitsPerSecond: 1e13 / float64(share)}
		} else {
			c.Histogram = tailed(t, share, count)
		}
		for _, f := range change {
			f(run, c)
		}
	})
	s := summarize(t, b.Spec, runs...)
	b.Status.Results, b.Status.Warnings, b.Status.Endpoints, b.Status.Summary = s.Results, s.Warnings, s.Endpoints, s.Headline
	return b
}

// tailed has count samples, of which one in eight is slower than most, one of eight of these slower still, and so on.
func tailed(t *testing.T, ns, count int64) result.Histogram {
	t.Helper()
	r := result.NewRecorder()
	for slower := count / 8; slower > 0; slower /= 8 {
		r.RecordN(ns, count-slower)
		ns, count = ns*5/4, slower
	}
	r.RecordN(ns, count)
	h, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// ofVariant are the ratios of a variant's first cell.
func ofVariant(b *v1alpha1.LatencyBenchmark, variant string) []v1alpha1.Ratio {
	for _, r := range b.Status.Results {
		if r.Variant == variant {
			return r.Ratios
		}
	}
	return nil
}

func TestRatios(t *testing.T) {
	ratio := func(p v1alpha1.Percentile, estimate, lower, upper string) v1alpha1.Ratio {
		return v1alpha1.Ratio{Percentile: p, Estimate: estimate, Lower: lower, Upper: upper}
	}
	cases := map[string]struct {
		rounds int32
		count  int64
		change func(plan.Run, *result.Cell)
		want   []v1alpha1.Ratio
	}{
		// Of 4+4 rounds the bounds are the extremes: 1.54*100/106 and 1.54*106/100, and a thousandth more for the buckets.
		"four rounds have bounds": {
			rounds: 4, count: 10_000,
			want: []v1alpha1.Ratio{ratio("p50", "1.54", "1.45", "1.64"), ratio("p99", "1.54", "1.45", "1.64"), ratio("p99.9", "1.54", "1.45", "1.64")},
		},
		// Of 10+10 rounds the 23 smallest and largest ratios are left out: 1.456 and 1.629 are next, and outwards from
		// them the hundredths and the buckets. All rounds together have samples enough for p99.9.
		"ten rounds have no rare values": {
			rounds: 10, count: 1_000,
			want: []v1alpha1.Ratio{ratio("p50", "1.54", "1.45", "1.63"), ratio("p99", "1.54", "1.45", "1.63"), ratio("p99.9", "1.54", "", "")},
		},
		"three rounds have no interval": {
			rounds: 3, count: 1_000, want: []v1alpha1.Ratio{ratio("p50", "1.54", "", ""), ratio("p99", "1.54", "", "")},
		},
		"nor has one": {
			rounds: 1, count: 1_000, want: []v1alpha1.Ratio{ratio("p50", "1.54", "", ""), ratio("p99", "1.54", "", "")},
		},
		// 4 x 4,000 samples are enough for p99.9, those of a round are not.
		"rounds with too few samples are put together": {
			rounds: 4, count: 4_000,
			want: []v1alpha1.Ratio{ratio("p50", "1.54", "1.45", "1.64"), ratio("p99", "1.54", "1.45", "1.64"), ratio("p99.9", "1.54", "", "")},
		},
		// A round is not left out: what the others show may be what it lacks.
		"one round with too few samples, too": {
			rounds: 4, count: 1_000,
			change: func(run plan.Run, c *result.Cell) {
				if run.Round == 2 && run.Variant.Name == "pod" && !c.Stream {
					c.Histogram = tailed(t, 154*102, 100)
				}
			},
			want: []v1alpha1.Ratio{ratio("p50", "1.54", "1.45", "1.64"), ratio("p99", "1.54", "", "")},
		},
		"a percentile that is lost in one round of four has no upper bound": {
			rounds: 4, count: 1_000,
			change: func(run plan.Run, c *result.Cell) {
				if run.Round == 4 && run.Variant.Name == "pod" && !c.Stream {
					c.Lost = 20
				}
			},
			want: []v1alpha1.Ratio{ratio("p50", "1.54", "1.45", "1.64"), ratio("p99", "1.54", "1.45", "")},
		},
		"a percentile that is lost in most rounds has no ratio": {
			rounds: 4, count: 1_000,
			change: func(run plan.Run, c *result.Cell) {
				if run.Round > 1 && run.Variant.Name == "pod" && !c.Stream {
					c.Lost = 20
				}
			},
			want: []v1alpha1.Ratio{ratio("p50", "1.54", "1.45", "1.64")},
		},
		"a percentile that the first variant lost has no ratio": {
			rounds: 3, count: 1_000,
			change: func(run plan.Run, c *result.Cell) {
				if run.Variant.Name == "host-kernel" && !c.Stream {
					c.Lost = 1_100
				}
			},
		},
		"a tool that rounds has wider bounds": {
			rounds: 4, count: 1_000,
			change: func(run plan.Run, c *result.Cell) {
				if !c.Stream {
					ns := slower[run.Variant.Name] * 1_000
					c.Histogram, c.Own = result.Histogram{}, &tool.Own{Count: 1_000, MeanNs: float64(ns), P50Ns: ns, P99Ns: ns, StepNs: 1_000}
				}
			},
			// 153.5/100.5 to 154.5/99.5.
			want: []v1alpha1.Ratio{ratio("p50", "1.54", "1.52", "1.56"), ratio("p99", "1.54", "1.52", "1.56")},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.change == nil {
				c.change = func(plan.Run, *result.Cell) {}
			}
			b := compared(t, c.rounds, c.count, c.change)
			if diff := cmp.Diff(c.want, ofVariant(b, "pod")); diff != "" {
				t.Errorf("ratios of pod (-want +got):\n%s", diff)
			}
			if first := ofVariant(b, "host-kernel"); first != nil {
				t.Errorf("the first variant has ratios: %v", first)
			}
		})
	}
}

// The percentiles of all variants are in the headline, and those of the first are numbers, too.
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

func TestSummaryOfVariants(t *testing.T) {
	b := compared(t, 3, 1_000)
	if got, want := b.Status.Summary.Variants, "host-kernel 1.00, pod 1.54, vf-onload 0.31"; got != want {
		t.Errorf("variants %q, want %q", got, want)
	}
	b = compared(t, 3, 1_000, func(run plan.Run, c *result.Cell) {
		if run.Variant.Name == "pod" && !c.Stream {
			c.Histogram = histogram(t, 1_000, 0, 5)
		}
	})
	if got, want := b.Status.Summary.Variants, "host-kernel 1.00, pod -, vf-onload 0.31"; got != want {
		t.Errorf("variants %q, want %q", got, want)
	}
	b = compared(t, 3, 1_000, func(_ plan.Run, c *result.Cell) {
		if !c.Stream {
			c.Histogram = histogram(t, 1_000, 0, 5)
		}
	})
	if got, want := b.Status.Summary.Variants, "host-kernel -, pod -, vf-onload -"; got != want {
		t.Errorf("variants %q, want %q", got, want)
	}
	one := summarize(t, spec(), run(histogram(t, 2_000, 0, 1_000)))
	if one.Headline.Variants != "" {
		t.Errorf("one variant is compared: %q", one.Headline.Variants)
	}
}

// The API bounds the line, whatever the variants are called and however they differ.
func TestSummaryOfVariantsIsBounded(t *testing.T) {
	var s v1alpha1.LatencyBenchmarkSpec
	var results []v1alpha1.CellResult
	for i := range 16 {
		name := strings.Repeat("v", 18) + string(rune('a'+i))
		s.Variants = append(s.Variants, v1alpha1.Variant{Name: name})
		results = append(results, v1alpha1.CellResult{Variant: name, Name: "tcp-64", LatencyType: "RTT",
			Ratios: []v1alpha1.Ratio{{Percentile: v1alpha1.P50, Estimate: decimals(60_000_000_000, func(v float64) float64 { return v })}}})
	}
	if line := variantsLine(s, "tcp-64", results); len(line) > 1024 || strings.Count(line, ", ") != 15 {
		t.Errorf("%d bytes: %s", len(line), line)
	}
}

func TestDecimals(t *testing.T) {
	up := func(v float64) string { return ratioBound(v, func(v float64) float64 { return float64(int64(v) + 1) }) }
	for _, c := range []struct {
		got, want string
	}{
		{decimals(1.545, func(float64) float64 { return 155 }), "1.55"},
		// 1.1 times 100 is 110.00000000000001 as a float.
		{up(1.1), "1.10"}, {up(1.1001), "1.11"}, {up(0.05), "0.0500"}, {up(0.05001), "0.0501"}, {up(0), ""},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}
