package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// benchmark returns a benchmark with the protocols and sizes in this order. A cell takes 3.5 s.
func benchmark(rounds int32, protocols []v1alpha1.Protocol, sizes ...int32) *v1alpha1.LatencyBenchmark {
	return &v1alpha1.LatencyBenchmark{
		ObjectMeta: metav1.ObjectMeta{Name: "x2522", Namespace: "perf"},
		Spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
			Tool:   v1alpha1.ToolSockperf,
			Rounds: rounds,
			Workload: v1alpha1.Workload{
				Protocols:    protocols,
				MessageSizes: sizes,
				Duration:     metav1.Duration{Duration: 3 * time.Second},
				Warmup:       metav1.Duration{Duration: 500 * time.Millisecond},
			},
		}},
	}
}

func cellNames(cells []tool.Cell) string {
	names := make([]string, 0, len(cells))
	for _, c := range cells {
		names = append(names, c.Name)
	}
	return strings.Join(names, " ")
}

// Variants with devices of one resource are measured one after the other, and every variant is first in some round.
func TestVariantsOfOneResourceStayTogether(t *testing.T) {
	b := benchmark(6, []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, 64)
	vf, pf := &v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "amd.com/vf"}}}, &v1alpha1.Network{Type: v1alpha1.NetworkPF, PF: &v1alpha1.PFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "amd.com/pf"}}}
	b.Spec.Variants = []v1alpha1.Variant{{Name: "vf", Network: vf}, {Name: "pf", Network: pf}, {Name: "pod"}, {Name: "vf-onload", Network: vf}, {Name: "host", Network: &v1alpha1.Network{Type: v1alpha1.NetworkHost}}}
	var got []string
	for i, run := range Runs(b) {
		if i%5 == 0 {
			got = append(got, "")
		}
		got[len(got)-1] += " " + run.Variant.Name
	}
	want := []string{
		" vf vf-onload pf pod host", " pf pod host vf vf-onload", " pod host vf vf-onload pf",
		" vf-onload vf pf host pod", " pf host pod vf-onload vf", " host pod vf-onload vf pf",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rounds (-want +got):\n%s", diff)
	}
}

// The runs that were already measured keep their names and their order when the plan is extended.
func TestRunsOfAPlanThatGrew(t *testing.T) {
	b := benchmark(3, []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, 1, 64)
	b.Spec.Variants = []v1alpha1.Variant{{Name: "a"}, {Name: "b"}}
	before := Runs(b)
	b.Status.ExtendedRounds = 2
	after := Runs(b)
	if len(after) != 10 || Rounds(b) != 5 {
		t.Fatalf("%d runs in %d rounds, want 10 in 5", len(after), Rounds(b))
	}
	if diff := cmp.Diff(before, after[:len(before)]); diff != "" {
		t.Errorf("the planned runs (-before +after):\n%s", diff)
	}
	if got := after[6].Name + " " + after[9].Name; got != "x2522-b-r4 x2522-b-r5" {
		t.Errorf("the new runs are %s", got)
	}
}

func TestRuns(t *testing.T) {
	both := []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP}
	cases := map[string]struct {
		benchmark *v1alpha1.LatencyBenchmark
		// want has a line for each run: its name and its cells.
		want []string
	}{
		"one round of one cell": {
			benchmark: benchmark(1, both[:1], 64),
			want:      []string{"x2522-r1: tcp-64"},
		},
		"the order of the cells rotates, and comes round again": {
			benchmark: benchmark(4, both[:1], 64, 1, 1024),
			want: []string{
				"x2522-r1: tcp-64 tcp-1 tcp-1024",
				"x2522-r2: tcp-1 tcp-1024 tcp-64",
				"x2522-r3: tcp-1024 tcp-64 tcp-1",
				"x2522-r4: tcp-64 tcp-1 tcp-1024",
			},
		},
		"protocols are outermost, as the user wrote them": {
			benchmark: benchmark(2, []v1alpha1.Protocol{v1alpha1.ProtocolUDP, v1alpha1.ProtocolTCP}, 14, 64),
			want: []string{
				"x2522-r1: udp-14 udp-64 tcp-14 tcp-64",
				"x2522-r2: udp-64 tcp-14 tcp-64 udp-14",
			},
		},
		"without protocols there are runs of nothing": {
			benchmark: benchmark(2, nil, 64),
			want:      []string{"x2522-r1: ", "x2522-r2: "},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			runs := Runs(c.benchmark)
			var got []string
			for i, run := range runs {
				got = append(got, run.Name+": "+cellNames(run.Cells))
				if run.Round != int32(i+1) {
					t.Errorf("run %s is of round %d, want %d", run.Name, run.Round, i+1)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("runs (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(runs, Runs(c.benchmark.DeepCopy())); diff != "" {
				t.Errorf("the same benchmark gave other runs (-first +second):\n%s", diff)
			}
		})
	}
}

// With as many rounds as cells, each cell is measured first, second and so on equally often.
func TestEveryCellHasEveryPlaceOnce(t *testing.T) {
	b := benchmark(6, []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP}, 64, 256, 1024)
	type place struct {
		cell string
		at   int
	}
	times := map[place]int{}
	for _, run := range Runs(b) {
		for at, cell := range run.Cells {
			times[place{cell.Name, at}]++
		}
	}
	if len(times) != 36 {
		t.Fatalf("got %d pairs of cell and place, want 36", len(times))
	}
	for at, n := range times {
		if n != 1 {
			t.Errorf("%s was measured %d times at place %d, want once", at.cell, n, at.at)
		}
	}
}

// Runs must not share cells: changing one run must not change the others.
func TestRunsShareNothing(t *testing.T) {
	runs := Runs(benchmark(2, []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, 64))
	runs[0].Cells[0].Name = "changed"
	if got := runs[1].Cells[0].Name; got != "tcp-64" {
		t.Errorf("the second run's cell is now %q, want tcp-64", got)
	}
}

func TestCellsCarryTheWorkload(t *testing.T) {
	spec := benchmark(1, []v1alpha1.Protocol{v1alpha1.ProtocolMulticast}, 256).Spec
	spec.Workload.RatesPerSecond = []int32{1000, 23_000}
	spec.Workload.MulticastGroup, spec.Workload.LossAfter.Duration = "239.192.0.1", 20*time.Millisecond
	spec.Workload.Streams = []v1alpha1.Stream{{Protocol: v1alpha1.ProtocolTCP, MessageSize: 1 << 20}}
	spec.Variants = []v1alpha1.Variant{{Name: "spin", Wait: v1alpha1.WaitSpin}}
	cell := tool.Cell{Wait: v1alpha1.WaitSpin, Muxer: v1alpha1.MuxerNone, Duration: 3 * time.Second, Warmup: 500 * time.Millisecond}
	slow, stream := cell, cell
	slow.Name, slow.Protocol, slow.MessageSize, slow.RatePerSecond, slow.MulticastGroup = "multicast-256-at-1000", v1alpha1.ProtocolMulticast, 256, 1000, "239.192.0.1"
	slow.LossAfter = 20 * time.Millisecond
	quick := slow
	quick.Name, quick.RatePerSecond = "multicast-256-at-23000", 23_000
	stream.Name, stream.Protocol, stream.MessageSize, stream.Stream = "tcp-stream-1048576", v1alpha1.ProtocolTCP, 1<<20, true
	if diff := cmp.Diff([]tool.Cell{slow, quick, stream}, Cells(spec, Variants(spec)[0])); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
}

func TestHeadline(t *testing.T) {
	b := benchmark(1, []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP}, 64, 1024)
	b.Spec.Workload.Streams = []v1alpha1.Stream{{Protocol: v1alpha1.ProtocolUDP, MessageSize: 1472}}
	for want, headline := range map[string]*v1alpha1.Headline{
		"":               nil,
		"tcp-64-at-10":   {},
		"udp-64-at-10":   {Protocol: v1alpha1.ProtocolUDP},
		"tcp-1024-at-10": {MessageSize: new(int32(1024))},
		"udp-64-at-20":   {Protocol: v1alpha1.ProtocolUDP, RatePerSecond: 20},
	} {
		b.Spec.Workload.RatesPerSecond, b.Spec.Headline = []int32{10, 20}, headline
		if got := Headline(b.Spec); got != want {
			t.Errorf("headline %+v: %q, want %q", headline, got, want)
		}
	}
	b.Spec.Headline = &v1alpha1.Headline{MessageSize: new(int32(1472))}
	if got := Headline(b.Spec); got != "" {
		t.Errorf("the size of a stream selects %q", got)
	}
}

// The message size that is measured when a workload sets none.
func TestDefaultMessageSize(t *testing.T) {
	b := benchmark(1, []v1alpha1.Protocol{v1alpha1.ProtocolTCP})
	if got := cellNames(Runs(b)[0].Cells); got != "tcp-64" {
		t.Errorf("without sizes: %q, want tcp-64", got)
	}
	b.Spec.Workload.Streams = []v1alpha1.Stream{{Protocol: v1alpha1.ProtocolUDP, MessageSize: 1472}}
	if got := cellNames(Runs(b)[0].Cells); got != "udp-stream-1472" {
		t.Errorf("with a stream: %q, want the stream alone", got)
	}
}

// Rounds are outermost; the variants take turns at being first, and each has its own runs.
func TestRunsOfVariants(t *testing.T) {
	b := benchmark(3, []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, 64)
	b.Spec.Variants = []v1alpha1.Variant{{Name: "pod"}, {Name: "vf"}}
	var got []string
	for _, run := range Runs(b) {
		got = append(got, run.Name)
	}
	want := []string{"x2522-pod-r1", "x2522-vf-r1", "x2522-vf-r2", "x2522-pod-r2", "x2522-pod-r3", "x2522-vf-r3"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

func TestVariantsInherit(t *testing.T) {
	pod := v1alpha1.Network{Type: v1alpha1.NetworkPod}
	kernel := v1alpha1.Acceleration{Type: v1alpha1.AccelerationKernel}
	vf := v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{NetworkRef: &v1alpha1.NetworkRef{Name: "sf-vf"}, ResourceName: "amd.com/sf_vf"}}}
	spec := v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
		Network: pod, Capture: v1alpha1.CaptureServer, Workload: v1alpha1.Workload{Wait: v1alpha1.WaitSpin, Muxer: v1alpha1.MuxerEpoll},
		Acceleration: &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{Profile: v1alpha1.OnloadProfileLatency}},
		Pods:         &v1alpha1.PodSettings{Env: []v1alpha1.EnvVar{{Name: "EF_POLL_USEC", Value: "1"}, {Name: "EF_TPH_MODE", Value: "2"}}},
		Variants: []v1alpha1.Variant{
			{Name: "all"},
			{
				Name: "none", Network: &vf, Acceleration: &kernel, Wait: v1alpha1.WaitBlock, Muxer: v1alpha1.MuxerNone,
				Capture: v1alpha1.CaptureNone, Env: []v1alpha1.EnvVar{{Name: "EF_POLL_USEC", Value: "-1"}},
			},
		},
	}}
	onload := v1alpha1.Acceleration{
		Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{Profile: v1alpha1.OnloadProfileLatency, ResourceName: DefaultOnloadResource, Source: v1alpha1.OnloadFromDevicePlugin},
	}
	want := []v1alpha1.Variant{
		{
			Name: "all", Network: &pod, Acceleration: &onload, Wait: v1alpha1.WaitSpin, Muxer: v1alpha1.MuxerEpoll, Capture: v1alpha1.CaptureServer,
			Env: []v1alpha1.EnvVar{{Name: "EF_POLL_USEC", Value: "1"}, {Name: "EF_TPH_MODE", Value: "2"}},
		},
		{
			Name: "none", Network: &vf, Acceleration: &kernel, Wait: v1alpha1.WaitBlock, Muxer: v1alpha1.MuxerNone, Capture: v1alpha1.CaptureNone,
			Env: []v1alpha1.EnvVar{{Name: "EF_TPH_MODE", Value: "2"}, {Name: "EF_POLL_USEC", Value: "-1"}},
		},
	}
	got := Variants(spec)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("variants (-want +got):\n%s", diff)
	}
	got[1].Network.VF.ResourceName = "changed"
	if vf.ResourceName() != "amd.com/sf_vf" {
		t.Error("a resolved variant shares its network with the spec")
	}
	bare := []v1alpha1.Variant{{Name: DefaultVariant, Network: &v1alpha1.Network{}, Acceleration: &kernel, Wait: v1alpha1.WaitBlock, Muxer: v1alpha1.MuxerNone, Capture: v1alpha1.CaptureNone}}
	if diff := cmp.Diff(bare, Variants(v1alpha1.LatencyBenchmarkSpec{})); diff != "" {
		t.Errorf("the variant of a bare spec (-want +got):\n%s", diff)
	}
}

// deadlines is a driver that implements Deadline only: twice the measuring time.
type deadlines struct{ tool.Driver }

func (deadlines) Deadline(c tool.Cell) time.Duration { return 2 * (c.Warmup + c.Duration) }

func TestTimes(t *testing.T) {
	spec := benchmark(1, []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP}, 64, 256).Spec
	cells := Cells(spec, Variants(spec)[0])
	if got, want := MeasuringTime(cells), 14*time.Second; got != want {
		t.Errorf("measuring time of four cells: got %s, want %s", got, want)
	}
	if got, want := Deadline(deadlines{}, cells), 4*(7*time.Second+prepareAllowance); got != want {
		t.Errorf("deadline of four cells: got %s, want %s", got, want)
	}
	if got := MeasuringTime(nil) + Deadline(deadlines{}, nil); got != 0 {
		t.Errorf("no cells take %s, want no time", got)
	}
}
