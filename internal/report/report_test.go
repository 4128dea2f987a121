package report

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/test/golden"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// spec returns a spec that measures TCP and UDP in one size over a VF.
func spec() v1alpha1.LatencyBenchmarkSpec {
	return v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
		Tool: v1alpha1.ToolSockperf,
		Workload: v1alpha1.Workload{
			Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP}, MessageSizes: []int32{64},
			Duration: metav1.Duration{Duration: time.Second},
		},
		Rounds:      2,
		Placement:   v1alpha1.Placement{CPUs: 1},
		Network:     v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{NetworkRef: &v1alpha1.NetworkRef{Name: "sf-vf"}, ResourceName: "amd.com/sf_vf"}}},
		LatencyType: v1alpha1.LatencyHalfRTT,
	}}
}

// histogram returns count samples that start at first and increase by step, in nanoseconds of RTT.
func histogram(t *testing.T, first, step, count int64) result.Histogram {
	t.Helper()
	r := result.NewRecorder()
	for i := range count {
		r.Record(first + i*step)
	}
	h, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// evidence returns the evidence of an endpoint that proves everything that a spec can request, except Onload.
func evidence(node, boot string) result.Evidence {
	return result.Evidence{
		Node: node, Kernel: "6.1.0", BootID: boot, CPUsAllowed: "3", OnlineCPUs: "0-7", MeasuringCPU: 3, CPUNUMANode: 1, DeviceNUMANode: 1,
		Interface: "net1", Address: "192.0.2.1", MTU: 1500, Driver: "sfc", PCIAddress: "0000:3b:02.0", PCISource: result.PCIFromSysfs,
		AllocatedDevices: map[string]string{"PCIDEVICE_AMD_COM_SF_VF": "0000:3b:02.0"},
		Facts: map[string]string{
			"cpu.smt.sibling": "none", "cgroup.cpus-set": "3", "cgroup.cpu-max": "max 100000", "nic.carrier": "1", "nic.speed": "25000", "nic.function": "VF", "nic.port": "0000:3b:00.0",
			"cpu.hypervisor": "no",
		},
		Deltas: map[string]int64{"cgroup.stopped-us": 0, "nic.carrier-changes": 0},
	}
}

// looked returns the observation of a pod that was not changed.
func looked(pod string) result.Seen { return result.Seen{PodUID: pod, ImageID: "sha256:ab"} }

// run returns a stored run in which each protocol has the given histogram; change modifies it.
func run(h result.Histogram, change ...func(*result.Stored)) result.Stored {
	cell := func(name string, p v1alpha1.Protocol) result.Cell {
		return result.Cell{Cell: tool.Cell{Name: name, Traffic: v1alpha1.Traffic{Protocol: p, MessageSize: 64}}, ToolVersion: "3.7", Histogram: h}
	}
	s := result.Stored{
		Client: result.Document{Run: "b-r1", Variant: plan.DefaultVariant, Role: v1alpha1.RoleClient, Evidence: evidence("a", "boot-a"),
			Cells: []result.Cell{cell("udp-64", v1alpha1.ProtocolUDP), cell("tcp-64", v1alpha1.ProtocolTCP)}},
		Server:     result.Document{Run: "b-r1", Variant: plan.DefaultVariant, Role: v1alpha1.RoleServer, Evidence: evidence("b", "boot-b")},
		ClientSeen: looked("c"), ServerSeen: looked("s"),
	}
	for _, f := range change {
		f(&s)
	}
	s.Client.Evidence.Paths = resulttest.ThroughKernel(s.Client.Cells)
	s.Server.Evidence.Paths = s.Client.Evidence.Paths
	return s
}

func TestSummarizeMergesRoundsInTheOrderOfTheSpec(t *testing.T) {
	// Two rounds of 5,000 samples: 2000, 2002, … and 12000, 12002, … ns of RTT.
	got := summarize(t, spec(), run(histogram(t, 2_000, 2, 5_000)), run(histogram(t, 12_000, 2, 5_000)))
	if len(got.Results) != 2 || got.Results[0].Name != "tcp-64" || got.Results[1].Name != "udp-64" {
		t.Fatalf("results %+v; want tcp-64, then udp-64", got.Results)
	}
	r := got.Results[0]
	// Halves of 10,000 values from 2000 to 21998: p50 is half of 11998, to three digits.
	within := func(name string, got *int64, want int64) {
		t.Helper()
		if got == nil || *got < want || float64(*got) > float64(want)*1.001 {
			t.Errorf("%s is %v; want %d, to three digits", name, got, want)
		}
	}
	within("p50", r.Percentile(v1alpha1.P50), 5_999)
	within("p90", r.Percentile(v1alpha1.P90), 9_999)
	within("p99", r.Percentile(v1alpha1.P99), 10_899)
	within("p99.9", r.Percentile(v1alpha1.P999), 10_989)
	if r.Percentile(v1alpha1.P9999) != nil || r.NeedsSamples != 100_000 {
		t.Errorf("p99.99 is %v and needs %d; want none, and 100000", r.Percentile(v1alpha1.P9999), r.NeedsSamples)
	}
	want := v1alpha1.CellResult{
		Variant: "default", Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}, LatencyType: "HalfRTT",
		Rounds: 2, Samples: 10_000, NeedsSamples: 100_000,
		MinNanoseconds: new(int64(1_000)), MaxNanoseconds: new(int64(10_999)), MeanNanoseconds: new(int64(5_999)), StddevNanoseconds: new(int64(2_887)),
		// Each round alone has half of the samples and therefore no p99.9. Values are those of buckets.
		Spread: []v1alpha1.Spread{
			{Percentile: v1alpha1.P50, Rounds: 2, MinNanoseconds: 3_499, MedianNanoseconds: 3_499, MaxNanoseconds: 8_503},
			{Percentile: v1alpha1.P75, Rounds: 2, MinNanoseconds: 4_751, MedianNanoseconds: 4_751, MaxNanoseconds: 9_751},
			{Percentile: v1alpha1.P90, Rounds: 2, MinNanoseconds: 5_499, MedianNanoseconds: 5_499, MaxNanoseconds: 10_503},
			{Percentile: v1alpha1.P95, Rounds: 2, MinNanoseconds: 5_751, MedianNanoseconds: 5_751, MaxNanoseconds: 10_751},
			{Percentile: v1alpha1.P99, Rounds: 2, MinNanoseconds: 5_951, MedianNanoseconds: 5_951, MaxNanoseconds: 10_951},
		},
	}
	r.Percentiles = nil
	if diff := cmp.Diff(want, r); diff != "" {
		t.Errorf("first cell (-want +got):\n%s", diff)
	}
	if len(got.Warnings) != 0 {
		t.Errorf("warnings of two good runs: %v", got.Warnings)
	}
	if got.Headline == nil || got.Headline.Cell != "tcp-64" || got.Headline.Samples != 10_000 || got.Headline.P50 != "6.00µs" {
		t.Errorf("headline %+v", got.Headline)
	}
	if got.Endpoints[0].Role != v1alpha1.RoleClient || got.Endpoints[0].ToolVersion != "3.7" || got.Endpoints[1].Node != "b" {
		t.Errorf("endpoints %+v", got.Endpoints)
	}
	for _, e := range got.Endpoints {
		if e.Placement != v1alpha1.PlacementVerified || len(e.Proof) == 0 {
			t.Errorf("%s of two good runs: placement %s, proof %v", e.Role, e.Placement, e.Proof)
		}
	}
}

func TestSummarizeShowsRTTWhenAsked(t *testing.T) {
	s := spec()
	s.LatencyType = v1alpha1.LatencyRTT
	got := summarize(t, s, run(histogram(t, 2_000, 0, 1_000)))
	if r := got.Results[0]; *r.MinNanoseconds != 2_000 || *r.Percentile(v1alpha1.P50) != 2_000 || r.LatencyType != "RTT" {
		t.Errorf("got %+v; want the whole round trip of 2000 ns", r)
	}
}

func TestSummarizeWarns(t *testing.T) {
	h := histogram(t, 2_000, 1, 1_000)
	cases := map[string]struct {
		second func(*result.Stored)
		want   string
	}{
		"rounds on one kernel":               {func(s *result.Stored) { s.Server.Evidence.BootID = "boot-a" }, v1alpha1.WarningSimulatedNIC},
		"CPUs that were not exclusive":       {func(s *result.Stored) { s.Client.Evidence.CPUsAllowed = "0-7" }, v1alpha1.WarningCPUsNotExclusive},
		"a device on another NUMA node":      {func(s *result.Stored) { s.Server.Evidence.DeviceNUMANode = 0 }, v1alpha1.WarningNUMAMismatch},
		"a device on nobody knows which":     {func(s *result.Stored) { s.Server.Evidence.DeviceNUMANode = -1 }, v1alpha1.WarningNUMAUnknown},
		"messages that were lost":            {func(s *result.Stored) { s.Client.Cells[0].Lost = 3 }, v1alpha1.WarningMessagesLost},
		"samples out of the histogram":       {func(s *result.Stored) { s.Client.Cells[1].Histogram = overRange(t) }, v1alpha1.WarningMessagesLost},
		"a tool that warned":                 {func(s *result.Stored) { s.Client.Cells[0].Warnings = []string{"tsc_hz changed"} }, v1alpha1.WarningTool},
		"a result that was made smaller":     {func(s *result.Stored) { s.Server.Reduced = []string{"fewer digits"} }, v1alpha1.WarningResolutionReduced},
		"a kernel that changed in between":   {func(s *result.Stored) { s.Client.Evidence.Kernel = "6.2.0" }, v1alpha1.WarningEvidenceDiffers},
		"a firmware that changed in between": {func(s *result.Stored) { s.Server.Evidence.Firmware = "8.2" }, v1alpha1.WarningEvidenceDiffers},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := summarize(t, spec(), run(h), run(h, c.second))
			var reasons []string
			for _, w := range got.Warnings {
				reasons = append(reasons, w.Reason)
				if w.Message == "" {
					t.Errorf("%s has no message", w.Reason)
				}
			}
			if !strings.Contains(strings.Join(reasons, " "), c.want) {
				t.Errorf("warnings %v; want %s", reasons, c.want)
			}
		})
	}
}

// A check that failed in any run is still reported after later runs.
func TestSummarizeProvesEveryRun(t *testing.T) {
	h := histogram(t, 2_000, 1, 1_000)
	shared := run(h, func(s *result.Stored) {
		s.Client.Run, s.Server.Run, s.Server.Evidence.CPUsAllowed = "b-r7", "b-r7", "0-7"
	})
	got := summarize(t, spec(), run(h), shared, run(h))
	client, server := got.Endpoints[0], got.Endpoints[1]
	if client.Placement != v1alpha1.PlacementVerified || client.Proof[0].State != v1alpha1.ProofProved {
		t.Errorf("client: %+v", client)
	}
	want := v1alpha1.ProofLine{Check: v1alpha1.ProofCPUsExclusive, State: v1alpha1.ProofFailed, Expected: "1 exclusive CPU", Found: "0-7 of the node's 0-7 (in b-r7)"}
	if diff := cmp.Diff(want, server.Proof[0]); diff != "" || server.Placement != v1alpha1.PlacementUnverified || server.CPUs != "3" {
		t.Errorf("server, placement %s, of CPUs %s (-want +got):\n%s", server.Placement, server.CPUs, diff)
	}
}

// overRange returns a histogram with a sample above its range.
func overRange(t *testing.T) result.Histogram {
	t.Helper()
	r := result.NewRecorder()
	r.Record(1_000)
	r.Record(int64(2 * time.Minute))
	h, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestSummarizeOfNothing(t *testing.T) {
	got := summarize(t, spec())
	if got.Headline != nil || len(got.Results) != 0 {
		t.Errorf("got %+v; want nothing", got)
	}
}

func TestTable(t *testing.T) {
	runs := []result.Stored{run(histogram(t, 2_000, 2, 10_000)), run(histogram(t, 2_000, 2, 10_000), func(s *result.Stored) {
		s.Client.Cells[0].Lost = 3
		s.Server.Evidence.Driver, s.Server.Evidence.CPUNUMANode = "", -1
	})}
	b := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "x2522"}, Spec: spec()}
	s := summarize(t, b.Spec, runs...)
	b.Status.Results, b.Status.Warnings, b.Status.Endpoints = s.Results, s.Warnings, s.Endpoints
	b.Status.Verdict = &v1alpha1.Verdict{Outcome: v1alpha1.VerdictInconclusive, Message: "p99 is undecided", Rules: []v1alpha1.RuleVerdict{
		{Rule: "p50 max 20us", Outcome: v1alpha1.VerdictPass, Reason: v1alpha1.ReasonWithinLimit,
			Message: "p50 of default/tcp-64: 5.99µs [0, 6.10µs] over 6 rounds: Pass, within max 20us"},
		{Rule: "p99 maxIncrease 5%", Outcome: v1alpha1.VerdictInconclusive, Reason: v1alpha1.ReasonBaselineMissing,
			Message: "p99 of default/tcp-64: Inconclusive, the baseline, LatencyBenchmark before, does not exist"},
	}}
	var got bytes.Buffer
	if err := Table(&got, b); err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "table.txt", got.String())
}
