package report

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// waysToPeer returns three variants. The first is the reference of the others.
func waysToPeer() []v1alpha1.Variant {
	vf := v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{NetworkRef: &v1alpha1.NetworkRef{Name: "sf-vf"}, ResourceName: "amd.com/sf_vf"}}}
	return []v1alpha1.Variant{
		{Name: "host-kernel", Network: &v1alpha1.Network{Type: v1alpha1.NetworkHost, Host: &v1alpha1.HostNetwork{Interface: "enp59s0f0"}}},
		{Name: "pod"},
		{Name: "vf-onload", Network: &vf, Wait: v1alpha1.WaitSpin,
			Acceleration: &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{Profile: v1alpha1.OnloadProfileLatency}}},
	}
}

// slower holds the latency of each variant in percent of that of the first.
var slower = map[string]int64{"host-kernel": 100, "pod": 154, "vf-onload": 31}

// compared returns a benchmark of UDP round trips and a stream over three variants, with its status. Rounds differ by 2 %.
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

// tailed returns count samples: one in eight is slower than the others, one in eight of these is slower still, and so on.
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

// ofVariant returns the ratios of a variant's first cell.
func ofVariant(b *v1alpha1.LatencyBenchmark, variant string) []v1alpha1.Ratio {
	for _, r := range b.Status.Results {
		if r.Variant == variant {
			return r.Ratios
		}
	}
	return nil
}

func TestRatios(t *testing.T) {
	ratio := func(p v1alpha1.Percentile, estimate, lower, upper v1alpha1.Factor) v1alpha1.Ratio {
		return v1alpha1.Ratio{Percentile: p, Estimate: estimate, Lower: lower, Upper: upper}
	}
	cases := map[string]struct {
		rounds int32
		count  int64
		change func(plan.Run, *result.Cell)
		want   []v1alpha1.Ratio
	}{
		// With 4+4 rounds the bounds are the extremes: 1.54*100/106 and 1.54*106/100, widened by up to two thousandths for the buckets.
		"four rounds have bounds": {
			rounds: 4, count: 10_000,
			want: []v1alpha1.Ratio{ratio("p50", "1.539", "1.451", "1.633"), ratio("p99", "1.540", "1.450", "1.634"), ratio("p99.9", "1.540", "1.452", "1.634")},
		},
		// With 10+10 rounds the 23 smallest and largest ratios are excluded. The next are 1.456 and 1.629, widened by
		// the buckets. All rounds together have enough samples for p99.9.
		"ten rounds have no rare values": {
			rounds: 10, count: 1_000,
			want: []v1alpha1.Ratio{ratio("p50", "1.540", "1.455", "1.630"), ratio("p99", "1.540", "1.454", "1.630"), ratio("p99.9", "1.539", "", "")},
		},
		"three rounds have no interval": {
			rounds: 3, count: 1_000, want: []v1alpha1.Ratio{ratio("p50", "1.540", "", ""), ratio("p99", "1.539", "", "")},
		},
		"nor has one": {
			rounds: 1, count: 1_000, want: []v1alpha1.Ratio{ratio("p50", "1.540", "", ""), ratio("p99", "1.539", "", "")},
		},
		// 4 x 4,000 samples are enough for p99.9; the samples of one round are not.
		"rounds with too few samples are put together": {
			rounds: 4, count: 4_000,
			want: []v1alpha1.Ratio{ratio("p50", "1.539", "1.451", "1.633"), ratio("p99", "1.540", "1.450", "1.634"), ratio("p99.9", "1.539", "", "")},
		},
		// A round with too few samples is not excluded: it may be the one that contradicts the others.
		"one round with too few samples, too": {
			rounds: 4, count: 1_000,
			change: func(run plan.Run, c *result.Cell) {
				if run.Round == 2 && run.Variant.Name == "pod" && !c.Stream {
					c.Histogram = tailed(t, 154*102, 100)
				}
			},
			want: []v1alpha1.Ratio{ratio("p50", "1.539", "1.451", "1.633"), ratio("p99", "1.539", "", "")},
		},
		"a percentile that is lost in one round of four has no upper bound": {
			rounds: 4, count: 1_000,
			change: func(run plan.Run, c *result.Cell) {
				if run.Round == 4 && run.Variant.Name == "pod" && !c.Stream {
					c.Lost = 20
				}
			},
			want: []v1alpha1.Ratio{ratio("p50", "1.539", "1.451", "1.633"), ratio("p99", "1.540", "1.450", "")},
		},
		"a percentile that is lost in most rounds has no ratio": {
			rounds: 4, count: 1_000,
			change: func(run plan.Run, c *result.Cell) {
				if run.Round > 1 && run.Variant.Name == "pod" && !c.Stream {
					c.Lost = 20
				}
			},
			want: []v1alpha1.Ratio{ratio("p50", "1.539", "1.451", "1.633")},
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
			want: []v1alpha1.Ratio{ratio("p50", "1.540", "1.527", "1.553"), ratio("p99", "1.540", "1.527", "1.553")},
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

func TestSummaryOfVariants(t *testing.T) {
	b := compared(t, 3, 1_000)
	if got, want := b.Status.Summary.Variants, "host-kernel 1.000, pod 1.540, vf-onload 0.310"; got != want {
		t.Errorf("variants %q, want %q", got, want)
	}
	b = compared(t, 3, 1_000, func(run plan.Run, c *result.Cell) {
		if run.Variant.Name == "pod" && !c.Stream {
			c.Histogram = histogram(t, 1_000, 0, 5)
		}
	})
	if got, want := b.Status.Summary.Variants, "host-kernel 1.000, pod -, vf-onload 0.310"; got != want {
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

// Round trips and times that the server captured have no heading in common: they are different intervals.
func TestIntervalsHaveTables(t *testing.T) {
	results := []v1alpha1.CellResult{
		{Variant: "default", Name: "tcp-64", LatencyType: "HalfRTT"}, {Variant: "default", Name: "tcp-64-captured", LatencyType: v1alpha1.ResultInToOut},
		{Variant: "default", Name: "udp-64", LatencyType: "HalfRTT"}, {Variant: "default", Name: "udp-64-at-1000", LatencyType: "HalfRTT", CountedFrom: "Intended"},
		{Variant: "default", Name: "tcp-stream-64", Traffic: v1alpha1.Traffic{Stream: true}},
	}
	var got []string
	for _, table := range latencies(results) {
		got = append(got, table.heading+" "+table.rows[0].Name)
	}
	want := []string{"LATENCY of variant default: HalfRTT, µs, 0 rounds tcp-64", "LATENCY of variant default: InToOut, µs, 0 rounds tcp-64-captured",
		"LATENCY of variant default: HalfRTT from the intended send, µs, 0 rounds udp-64-at-1000"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
