package judge

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/verdict"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// spec returns a spec with one cell, tcp-64, of the default variant.
func spec(changes ...func(*v1alpha1.LatencyBenchmarkSpec)) v1alpha1.LatencyBenchmarkSpec {
	s := v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
		Tool: v1alpha1.ToolPinger, Rounds: 5, LatencyType: v1alpha1.LatencyHalfRTT, Network: v1alpha1.Network{Type: v1alpha1.NetworkPod},
		Workload: v1alpha1.Workload{
			Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, MessageSizes: []int32{64}, Duration: metav1.Duration{Duration: time.Second},
		},
		Placement: v1alpha1.Placement{CPUs: 1},
	}}
	for _, change := range changes {
		change(&s)
	}
	return s
}

// histogram returns count samples that start at first and increase by step.
func histogram(t *testing.T, first, step, count int64) result.Histogram {
	t.Helper()
	r := result.NewRecorder()
	for i := range count {
		r.Record(first + i*step)
	}
	return encoded(t, r)
}

func unrecorded(h result.Histogram, n int64) result.Histogram {
	h.Unrecorded = n
	return h
}

func encoded(t *testing.T, r *result.Recorder) result.Histogram {
	t.Helper()
	h, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// evidence returns the evidence of an endpoint that proves everything that a spec can request.
func evidence(role string, v v1alpha1.Variant) result.Evidence {
	e := result.Evidence{
		Node: "node-" + role, Kernel: "6.1.0", BootID: "boot-" + role, CPUsAllowed: "3", OnlineCPUs: "0-3", MeasuringCPU: 3, AgentCPU: 3,
		CPUNUMANode: 0, DeviceNUMANode: -1, Interface: "eth0", MTU: 1500,
		Facts:  map[string]string{"cpu.smt.sibling": "none", "cgroup.cpus-set": "3", "cgroup.cpu-max": "max 100000", "nic.carrier": "1"},
		Deltas: map[string]int64{"cgroup.stopped-us": 0, "nic.carrier-changes": 0},
	}
	if v.Network.Type.Attached() {
		e.Interface = "net1"
	}
	if v.Network.Type.HasDevice() {
		e.DeviceNUMANode, e.PCIAddress, e.PCISource = 0, "0000:3b:02.0", result.PCIFromSysfs
		e.AllocatedDevices = map[string]string{proof.Variable(v.Network.ResourceName()): e.PCIAddress}
		e.Facts["nic.function"] = string(v.Network.Type)
	}
	if v.Acceleration.Type == v1alpha1.AccelerationOnload {
		e.Facts["env.LD_PRELOAD"], e.Facts["env.EF_POLL_USEC"], e.Facts["module.onload.version"] = "/libonload.so", "100000", "9.0.1"
	}
	return e
}

// run returns a run of a variant in which every cell of the spec has the same histogram; change modifies it.
func run(name, variant string, s v1alpha1.LatencyBenchmarkSpec, h result.Histogram, change ...func(*result.Stored)) result.Stored {
	v, known := plan.Variants(s)[0], rounds.NewUnmerged(s).Variant(variant)
	if known != nil {
		v = known.Variant
	}
	document := func(role string) result.Document {
		return result.Document{Run: name, Variant: variant, Role: role, Evidence: evidence(role, v)}
	}
	out := result.Stored{
		Client: document(v1alpha1.RoleClient), Server: document(v1alpha1.RoleServer),
		ClientSeen: result.Seen{PodUID: "c"}, ServerSeen: result.Seen{PodUID: "s"},
	}
	if known != nil {
		for _, c := range plan.Cells(s, v) {
			cell := result.Cell{Cell: c, Tool: string(s.Tool), ToolVersion: "1", Histogram: h}
			if c.Stream {
				cell.Bandwidth = &tool.Bandwidth{BitsPerSecond: 1e9}
			}
			out.Client.Cells = append(out.Client.Cells, cell)
		}
	}
	out.Client.Evidence.Paths = resulttest.ThroughKernel(out.Client.Cells)
	if v.Acceleration.Type == v1alpha1.AccelerationOnload {
		out.Client.Evidence.Paths = resulttest.PastKernel(out.Client.Cells)
	}
	out.Server.Evidence.Paths = out.Client.Evidence.Paths
	for _, f := range change {
		f(&out)
	}
	return out
}

// only returns a change to the first cell of a run.
func only(change func(*result.Cell)) func(*result.Stored) {
	return func(s *result.Stored) { change(&s.Client.Cells[0]) }
}

func TestRoundOf(t *testing.T) {
	exact := stats.Exact
	overRange := func() result.Histogram {
		r := result.NewRecorder()
		r.RecordN(1000, 98)
		r.RecordN(int64(2*time.Minute), 2)
		return encoded(t, r)
	}
	cases := map[string]struct {
		cell result.Cell
		want verdict.Round
	}{
		"samples below 2 µs are known exactly": {
			cell: result.Cell{Histogram: histogram(t, 1000, 1, 100)},
			want: verdict.Round{Samples: 100, Values: values{
				"lost": exact(0), "min": exact(1000), "mean": exact(1050), "stddev": exact(29), "p50": exact(1049), "p75": exact(1074), "p90": exact(1089),
				"p95": exact(1094), "p99": exact(1098), "p99.9": exact(1099), "p99.99": exact(1099), "p99.999": exact(1099),
			}},
		},
		"samples above are known to their bucket": {
			cell: result.Cell{Histogram: histogram(t, 100_000, 1000, 3)},
			want: verdict.Round{Samples: 3, Values: values{
				"lost": exact(0), "min": exact(100_000), "mean": exact(101_000), "stddev": exact(1000),
				"p50": {Value: 101_055, Low: 100_992, High: 101_055}, "p75": {Value: 102_000, Low: 101_952, High: 102_000},
				"p90": {Value: 102_000, Low: 101_952, High: 102_000}, "p95": {Value: 102_000, Low: 101_952, High: 102_000},
				"p99": {Value: 102_000, Low: 101_952, High: 102_000}, "p99.9": {Value: 102_000, Low: 101_952, High: 102_000},
				"p99.99": {Value: 102_000, Low: 101_952, High: 102_000}, "p99.999": {Value: 102_000, Low: 101_952, High: 102_000},
			}},
		},
		"lost messages are slower than all samples": {
			cell: result.Cell{Histogram: histogram(t, 1000, 0, 95), Lost: 5},
			want: verdict.Round{Samples: 100, Values: values{
				"lost": exact(5), "min": exact(1000), "mean": exact(1000), "stddev": exact(0), "p50": exact(1000), "p75": exact(1000), "p90": exact(1000),
				"p95": exact(1000), "p99": exact(stats.Infinite), "p99.9": exact(stats.Infinite), "p99.99": exact(stats.Infinite), "p99.999": exact(stats.Infinite),
			}},
		},
		"a sample out of the histogram's range counts as lost": {
			cell: result.Cell{Histogram: overRange(), Lost: 1},
			want: verdict.Round{Samples: 101, Values: values{
				"lost": exact(3), "min": exact(1000), "mean": exact(1000), "stddev": exact(0), "p50": exact(1000), "p75": exact(1000), "p90": exact(1000),
				"p95": exact(1000), "p99": exact(stats.Infinite), "p99.9": exact(stats.Infinite), "p99.99": exact(stats.Infinite), "p99.999": exact(stats.Infinite),
			}},
		},
		"all lost": {
			cell: result.Cell{Histogram: histogram(t, 0, 0, 0), Lost: 7},
			want: verdict.Round{Samples: 7, Values: values{
				"lost": exact(7), "p50": exact(stats.Infinite), "p75": exact(stats.Infinite), "p90": exact(stats.Infinite), "p95": exact(stats.Infinite),
				"p99":   exact(stats.Infinite),
				"p99.9": exact(stats.Infinite), "p99.99": exact(stats.Infinite), "p99.999": exact(stats.Infinite),
			}},
		},
		"nothing measured has nothing but no loss": {
			cell: result.Cell{Histogram: histogram(t, 0, 0, 0)},
			want: verdict.Round{Values: values{"lost": exact(0)}},
		},
		"a tool's own figures are rounded, but for the mean": {
			cell: result.Cell{Own: &tool.Own{Count: 5000, MeanNs: 31_415.9, MinNs: 28_000, P50Ns: 31_000, P99Ns: 40_000, StepNs: 1000}},
			want: verdict.Round{Samples: 5000, Values: values{
				"lost": exact(0), "mean": exact(31_416), "min": stats.Within(27_000, 28_000, 29_000), "p50": stats.Rounded(31_000, 1000), "p99": stats.Rounded(40_000, 1000),
			}},
		},
		"a tool's own percentiles have the ranges of their buckets": {
			cell: result.Cell{Own: &tool.Own{Count: 5000, P50Ns: 101_000, P99Ns: 200_000, StepNs: 1000, Ranges: [3]tool.Range{{LowNs: 99_000, HighNs: 110_000}, {}, {LowNs: 189_000, HighNs: 210_000}}}},
			want: verdict.Round{Samples: 5000, Values: values{
				"lost": exact(0), "p50": stats.Within(99_000, 101_000, 110_000), "p99": stats.Within(189_000, 200_000, 210_000),
			}},
		},
		"messages of an unknown latency may be anywhere": {
			cell: result.Cell{Histogram: unrecorded(histogram(t, 1000, 1, 98), 2)},
			want: verdict.Round{Samples: 98, Values: values{
				"lost": exact(0), "min": {Value: 1000, High: 1000}, "mean": {Value: 1049, High: stats.Infinite}, "stddev": {Value: 28, High: stats.Infinite},
				"p50": stats.Within(1047, 1049, 1049), "p75": stats.Within(1072, 1074, 1074), "p90": stats.Within(1087, 1089, 1089),
				"p95": stats.Within(1092, 1094, 1094), "p99": stats.Within(1096, stats.Infinite, stats.Infinite),
				"p99.9": stats.Within(1097, stats.Infinite, stats.Infinite), "p99.99": stats.Within(1097, stats.Infinite, stats.Infinite),
				"p99.999": stats.Within(1097, stats.Infinite, stats.Infinite),
			}},
		},
		"a tool's own percentiles do not hold when messages were lost": {
			cell: result.Cell{Own: &tool.Own{Count: 5000, MeanNs: 31_415.9, P50Ns: 31_000, StdDevNs: 2000, StepNs: 1000}, Lost: 1},
			want: verdict.Round{Samples: 5001, Values: values{"lost": exact(1), "mean": exact(31_416), "stddev": stats.Within(1000, 2000, 3000)}},
		},
		"a stream": {
			cell: result.Cell{Cell: tool.Cell{Traffic: v1alpha1.Traffic{Stream: true}}, Bandwidth: &tool.Bandwidth{BitsPerSecond: 9_400_000_000.6}, Lost: 12},
			want: verdict.Round{Values: values{"lost": exact(12), "throughput": exact(9_400_000_001)}},
		},
		"a rate with a reported bandwidth is not a stream": {
			cell: result.Cell{Histogram: histogram(t, 0, 0, 0), Bandwidth: &tool.Bandwidth{BitsPerSecond: 1000}},
			want: verdict.Round{Values: values{"lost": exact(0)}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := spec()
			c.cell.Name = "tcp-64"
			if c.cell.Stream {
				s.Workload = v1alpha1.Workload{Streams: []v1alpha1.Stream{{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}}}
				c.cell.Name = "tcp-stream-64"
			}
			all := Cells(collected(t, s, run("x-r1", "default", s, result.Histogram{}, only(func(to *result.Cell) { *to = c.cell }))))
			if diff := cmp.Diff(c.want, all[0].Rounds[0]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestCells has two variants, one of which captures, with a cell at a rate and a stream.
func TestCells(t *testing.T) {
	s := spec(func(s *v1alpha1.LatencyBenchmarkSpec) {
		s.Tool = v1alpha1.ToolSockperf
		s.Workload.RatesPerSecond = []int32{1000}
		s.Workload.Streams = []v1alpha1.Stream{{Protocol: v1alpha1.ProtocolUDP, MessageSize: 1400}}
		s.Variants = []v1alpha1.Variant{{Name: "plain"}, {Name: "captured", Capture: v1alpha1.CaptureServer}}
		s.Placement.CPUs = 1
	})
	h := histogram(t, 1000, 0, 10)
	own := func(s *result.Stored) { s.Server.Evidence.AgentCPU = 4 }
	withCapture := func(c result.Captured) func(*result.Stored) {
		return func(s *result.Stored) { s.Server.Captured = []result.Captured{c} }
	}
	results := collected(t, s,
		run("x-plain-r1", "plain", s, h),
		run("x-captured-r1", "captured", s, h, own, withCapture(result.Captured{Cell: "tcp-64-at-1000", Histogram: h, Unanswered: 2})),
		run("x-captured-r2", "captured", s, h, own, withCapture(result.Captured{Cell: "tcp-64-at-1000", Incomplete: "packets were dropped"})),
		run("x-plain-r2", "plain", s, h, func(s *result.Stored) { s.Client.Cells = s.Client.Cells[:1] }),
	)
	all := Cells(results)
	for i, c := range Cells(results, v1alpha1.MetricP50) {
		for k, r := range c.Rounds {
			want := all[i].Rounds[k].Values[v1alpha1.MetricP50]
			if r.Values[v1alpha1.MetricP50] != want || len(r.Values) > 1 || r.Samples != all[i].Rounds[k].Samples {
				t.Errorf("of %s there is %+v, not the median %v alone", c.Name, r, want)
			}
		}
	}
	type line struct {
		Variant, Name  string
		Stream, Half   bool
		Rate           int32
		Samples, P50   []int64
		Blocked, Empty int
	}
	var got []line
	for _, c := range all {
		l := line{Variant: c.Variant, Name: c.Name, Stream: c.Stream, Half: c.HalfRTT, Rate: c.RatePerSecond, Blocked: len(c.Blockers)}
		for _, r := range c.Rounds {
			if len(r.Values) == 0 {
				l.Empty++
			}
			l.Samples = append(l.Samples, r.Samples)
			l.P50 = append(l.P50, r.Values[v1alpha1.MetricP50].Value)
		}
		got = append(got, l)
	}
	want := []line{
		{Variant: "plain", Name: "tcp-64-at-1000", Half: true, Rate: 1000, Samples: []int64{10, 10}, P50: []int64{1000, 1000}},
		{Variant: "plain", Name: "udp-stream-1400", Stream: true, Half: true, Samples: []int64{0, 0}, P50: []int64{0, 0}, Empty: 1},
		{Variant: "captured", Name: "tcp-64-at-1000", Half: true, Rate: 1000, Samples: []int64{10, 10}, P50: []int64{1000, 1000}},
		{Variant: "captured", Name: "tcp-64-at-1000-captured", Rate: 1000, Samples: []int64{12, 0}, P50: []int64{1000, 0}, Empty: 1},
		{Variant: "captured", Name: "udp-stream-1400", Stream: true, Half: true, Samples: []int64{0, 0}, P50: []int64{0, 0}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBlockers(t *testing.T) {
	h := histogram(t, 1000, 0, 10)
	device := func(s *v1alpha1.LatencyBenchmarkSpec) {
		s.Network = v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "amd.com/sf_vf"}}}
	}
	capture := func(s *v1alpha1.LatencyBenchmarkSpec) { s.Capture = v1alpha1.CaptureServer }
	preferred := func(s *v1alpha1.LatencyBenchmarkSpec) { s.Placement.NUMAPolicy = v1alpha1.NUMAPreferred }
	preferredAt := func(role string) func(*v1alpha1.LatencyBenchmarkSpec) {
		return func(s *v1alpha1.LatencyBenchmarkSpec) {
			e := &v1alpha1.EndpointPlacement{NUMAPolicy: v1alpha1.NUMAPreferred}
			if role == v1alpha1.RoleClient {
				s.Placement.Client = e
			} else {
				s.Placement.Server = e
			}
		}
	}
	far := func(s *result.Stored) { s.Server.Evidence.DeviceNUMANode = 1 }
	cases := map[string]struct {
		spec v1alpha1.LatencyBenchmarkSpec
		// second modifies the second of two runs.
		second  func(*result.Stored)
		trouble *verdict.Blocker
		want    []string
	}{
		"all is well": {spec: spec()},
		"a simulated NIC is no blocker": {
			spec: spec(), second: func(s *result.Stored) { s.Server.Evidence.BootID = s.Client.Evidence.BootID },
			// The boot differs from that of the round before, which is a blocker.
			want: []string{"EvidenceDiffers"},
		},
		"CPUs that were not exclusive":  {spec: spec(), second: func(s *result.Stored) { s.Client.Evidence.CPUsAllowed = "0-7" }, want: []string{"CPUsNotExclusive"}},
		"a device":                      {spec: spec(device)},
		"a device on another NUMA node": {spec: spec(device), second: far, want: []string{"NUMAMismatch", "EvidenceDiffers"}},
		"a far device where near is only preferred: different rounds block the verdict": {
			spec: spec(device, preferred), second: far, want: []string{"EvidenceDiffers"},
		},
		"a far device at the end where near is only preferred": {
			spec: spec(device, preferredAt(v1alpha1.RoleServer)), second: far, want: []string{"EvidenceDiffers"},
		},
		"a far device at the other end": {
			spec: spec(device, preferredAt(v1alpha1.RoleClient)), second: far, want: []string{"NUMAMismatch", "EvidenceDiffers"},
		},
		"a device with an unknown NUMA node": {
			spec: spec(device), second: func(s *result.Stored) { s.Server.Evidence.AllocatedDevices = nil }, want: []string{"DeviceUnproved"},
		},
		"a pod that was changed": {
			spec: spec(), second: func(s *result.Stored) { s.ServerSeen.Changed = []string{"requests cpu: 2 instead of 1"} }, want: []string{"PodChanged"},
		},
		"the pod was not observed":           {spec: spec(), second: func(s *result.Stored) { s.ClientSeen = result.Seen{} }, want: []string{"PodChanged"}},
		"no device, no NUMA node":            {spec: spec(), second: func(s *result.Stored) {}},
		"a capture on the CPU that measures": {spec: spec(capture), want: []string{"CaptureSharesCPU"}},
		"a firmware that changed in between": {spec: spec(), second: func(s *result.Stored) { s.Server.Evidence.Firmware = "8.2" }, want: []string{"EvidenceDiffers"}},
		"a boot in between":                  {spec: spec(), second: func(s *result.Stored) { s.Client.Evidence.BootID = "another" }, want: []string{"EvidenceDiffers"}},
		"trouble comes first":                {spec: spec(capture), trouble: &verdict.Blocker{Reason: "ResultsMissing", Message: "gone"}, want: []string{"ResultsMissing", "CaptureSharesCPU"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			change := func(*result.Stored) {}
			if c.second != nil {
				change = c.second
			}
			r := collected(t, c.spec, run("x-r1", "default", c.spec, h), run("x-r2", "default", c.spec, h, change))
			r.Trouble = c.trouble
			for _, cell := range Cells(r) {
				var got []string
				for _, b := range cell.Blockers {
					got = append(got, b.Reason)
					if b.Message == "" {
						t.Errorf("%s has no message", b.Reason)
					}
				}
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", cell.Name, diff)
				}
			}
		})
	}
}

// A tool that fails the attempt at a lost datagram cannot break a rule on lost messages; a capture can.
func TestLostMessagesThatNoResultHas(t *testing.T) {
	rate := []int32{1000}
	for name, c := range map[string]struct {
		tool     v1alpha1.Tool
		protocol v1alpha1.Protocol
		rates    []int32
		counts   bool
	}{
		"pinger":                     {v1alpha1.ToolPinger, v1alpha1.ProtocolUDP, nil, true},
		"sfnt-pingpong":              {v1alpha1.ToolSfntPingpong, v1alpha1.ProtocolUDP, nil, false},
		"sfnt-pingpong, Multicast":   {v1alpha1.ToolSfntPingpong, v1alpha1.ProtocolMulticast, nil, false},
		"sfnt-pingpong, TCP":         {v1alpha1.ToolSfntPingpong, v1alpha1.ProtocolTCP, nil, true},
		"netperf":                    {v1alpha1.ToolNetperf, v1alpha1.ProtocolUDP, nil, false},
		"sockperf":                   {v1alpha1.ToolSockperf, v1alpha1.ProtocolUDP, nil, false},
		"sockperf at a rate":         {v1alpha1.ToolSockperf, v1alpha1.ProtocolUDP, rate, true},
		"sfnt-stream":                {v1alpha1.ToolSfntStream, v1alpha1.ProtocolUDP, rate, true},
		"a user's program":           {v1alpha1.ToolCustom, v1alpha1.ProtocolUDP, nil, false},
		"a user's program at a rate": {v1alpha1.ToolCustom, v1alpha1.ProtocolUDP, rate, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(func(s *v1alpha1.LatencyBenchmarkSpec) {
				s.Tool, s.Workload.Protocols, s.Workload.RatesPerSecond = c.tool, []v1alpha1.Protocol{c.protocol}, c.rates
			})
			all := Cells(collected(t, s, run("x-r1", plan.DefaultVariant, s, histogram(t, 1000, 0, 10))))
			if len(all) != 1 {
				t.Fatalf("%d cells", len(all))
			}
			if _, counts := all[0].Rounds[0].Values[v1alpha1.MetricLost]; counts != c.counts {
				t.Errorf("lost is a value: %v", counts)
			}
		})
	}
}
