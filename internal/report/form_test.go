package report

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/sfntpingpong"
	"github.com/tailgate-dev/tailgate/test/golden"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// experiment returns a benchmark of a tool and a workload, with cells of one second.
func experiment(name string, t v1alpha1.Tool, w v1alpha1.Workload, variants ...v1alpha1.Variant) *v1alpha1.LatencyBenchmark {
	w.Duration = metav1.Duration{Duration: time.Second}
	return &v1alpha1.LatencyBenchmark{
		ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: name},
		Spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
			Tool: t, Workload: w, Rounds: 1, Variants: variants, LatencyType: v1alpha1.LatencyRTT,
			Placement: v1alpha1.Placement{CPUs: 1}, Network: v1alpha1.Network{Type: v1alpha1.NetworkPod},
		}},
	}
}

// measured returns all runs of a benchmark. fill sets the results of each cell.
func measured(b *v1alpha1.LatencyBenchmark, fill func(run plan.Run, c *result.Cell)) []result.Stored {
	var all []result.Stored
	for _, run := range plan.Runs(b) {
		s := result.Stored{
			Client:     result.Document{Run: run.Name, Variant: run.Variant.Name, Role: v1alpha1.RoleClient, Evidence: evidence("a", "boot-a")},
			Server:     result.Document{Run: run.Name, Variant: run.Variant.Name, Role: v1alpha1.RoleServer, Evidence: evidence("b", "boot-b")},
			ClientSeen: looked("c"), ServerSeen: looked("s"),
		}
		for _, e := range []*result.Evidence{&s.Client.Evidence, &s.Server.Evidence} {
			if asked := run.Variant.Network.Interface(); asked != "" {
				e.Interface = asked
			}
		}
		for _, cell := range run.Cells {
			c := result.Cell{Cell: cell, ToolVersion: "1.0"}
			fill(run, &c)
			s.Client.Cells = append(s.Client.Cells, c)
		}
		s.Client.Evidence.Paths = resulttest.ThroughKernel(s.Client.Cells)
		if run.Variant.Acceleration.Type == v1alpha1.AccelerationOnload {
			s.Client.Evidence.Paths = resulttest.PastKernel(s.Client.Cells)
		}
		s.Server.Evidence.Paths = s.Client.Evidence.Paths
		all = append(all, s)
	}
	return all
}

// printed returns the output of a form.
func printed(t *testing.T, form string, b *v1alpha1.LatencyBenchmark, runs []result.Stored) string {
	t.Helper()
	f, err := FormNamed(form)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := f.Write(&out, b, runs); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestFormNamed(t *testing.T) {
	for _, f := range Forms() {
		if got, err := FormNamed(f.Name); err != nil || got.Name != f.Name || got.Shows == "" {
			t.Errorf("%s: %+v, %v", f.Name, got, err)
		}
	}
	_, err := FormNamed("xml")
	if !errors.Is(err, ErrUnknownForm) || !strings.Contains(err.Error(), "table, wide, sfnt, networks, matrix, ladder, json, csv, pairs") {
		t.Errorf("got %v, want an error that names the known ones", err)
	}
}

// The general table is printed from the stored runs and not from the status.
func TestFormTableIsOfTheStoredRuns(t *testing.T) {
	b := experiment("x", v1alpha1.ToolPinger, v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}})
	b.Status.Results = []v1alpha1.CellResult{{Variant: "default", Name: "of-the-status", LatencyType: "RTT"}}
	got := printed(t, "table", b, measured(b, func(_ plan.Run, c *result.Cell) { c.Histogram = histogram(t, 2_000, 1, 1_000) }))
	if strings.Contains(got, "of-the-status") || !strings.Contains(got, "tcp-64") {
		t.Errorf("got\n%s", got)
	}
	if b.Status.Results[0].Name != "of-the-status" {
		t.Error("printing changed the benchmark")
	}
}

// Each form refuses results that it cannot show, instead of printing a table without rows.
func TestFormsRefuseWhatTheyDoNotShow(t *testing.T) {
	streams := experiment("streams", v1alpha1.ToolNetperf, v1alpha1.Workload{Streams: []v1alpha1.Stream{{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}}})
	streamed := measured(streams, func(_ plan.Run, c *result.Cell) { c.Bandwidth = &tool.Bandwidth{BitsPerSecond: 1e9} })
	netperf := experiment("rr", v1alpha1.ToolNetperf, v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}})
	answered := measured(netperf, func(_ plan.Run, c *result.Cell) { c.Own = &tool.Own{Count: 1_000, MeanNs: 50_000, StepNs: 1_000} })
	for _, c := range []struct {
		form string
		b    *v1alpha1.LatencyBenchmark
		runs []result.Stored
	}{
		{"sfnt", streams, streamed}, {"matrix", streams, streamed}, {"ladder", streams, streamed}, {"ladder", netperf, answered},
		{"sfnt", netperf, nil}, {"networks", netperf, nil}, {"matrix", netperf, nil}, {"ladder", netperf, nil},
	} {
		f, err := FormNamed(c.form)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := f.Write(&out, c.b, c.runs); !errors.Is(err, ErrNothingToShow) || out.Len() > 0 {
			t.Errorf("%s of %s with %d runs: %v and %q, want ErrNothingToShow and nothing", c.form, c.b.Name, len(c.runs), err, &out)
		}
	}
}

func TestFormsRefuseACorruptHistogram(t *testing.T) {
	b := experiment("x", v1alpha1.ToolPinger, v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, RatesPerSecond: []int32{100}})
	runs := measured(b, func(_ plan.Run, c *result.Cell) {
		c.Histogram, c.ActualStart = histogram(t, 2_000, 1, 100), &result.Histogram{Encoded: "nonsense", Count: 1}
	})
	f, err := FormNamed("ladder")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Write(&bytes.Buffer{}, b, runs); !errors.Is(err, result.ErrCorrupt) {
		t.Errorf("got %v, want ErrCorrupt", err)
	}
}

func TestFormSfnt(t *testing.T) {
	vf := v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{NetworkRef: &v1alpha1.NetworkRef{Name: "sf-vf"}, ResourceName: "amd.com/sf_vf"}}}
	b := experiment("sweep", v1alpha1.ToolSfntPingpong,
		v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, MessageSizes: []int32{1, 64, 65536}},
		v1alpha1.Variant{Name: "pod"}, v1alpha1.Variant{Name: "vf", Network: &vf, Wait: v1alpha1.WaitSpin})
	b.Spec.Rounds, b.Spec.LatencyType = 2, v1alpha1.LatencyHalfRTT
	runs := measured(b, func(run plan.Run, c *result.Cell) {
		// 2,000 samples, from a round trip of 20 µs upwards; faster over the VF, slower in the second round, and fewer at 64 KiB.
		first, count := int64(20_000), int64(2_000)
		if run.Variant.Name == "vf" {
			first = 10_000
		}
		if c.MessageSize == 65536 {
			count = 300
		}
		c.Histogram = histogram(t, first+int64(run.Round)*400, 2, count)
	})
	got := printed(t, "sfnt", b, runs)
	golden.Check(t, "sfnt.txt", got)

	// The parser of the tool's own tables also parses ours, up to the dash of a percentile with too few samples.
	block, _, _ := strings.Cut(got, "\t65536\t")
	header, rows, err := sfntpingpong.ParseTable([]byte(block))
	if err != nil {
		t.Fatal(err)
	}
	want := []sfntpingpong.Row{
		{Size: 1, Mean: 11_299, Min: 10_200, Median: 11_303, Max: 12_399, Percentile: 12_359, StdDev: 586, Iterations: 4_000},
		{Size: 64, Mean: 11_299, Min: 10_200, Median: 11_303, Max: 12_399, Percentile: 12_359, StdDev: 586, Iterations: 4_000},
	}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if rtt, err := header.FullRTT(); rtt || err != nil {
		t.Errorf("full RTT %t, %v; want half of it", rtt, err)
	}
}

// The table says that the tool reports no samples; lost messages reach the percentile.
func TestFormSfntOfOtherTools(t *testing.T) {
	b := experiment("x", v1alpha1.ToolNetperf, v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolUDP}, MessageSizes: []int32{1}})
	got := printed(t, "sfnt", b, measured(b, func(_ plan.Run, c *result.Cell) {
		c.Own = &tool.Own{Count: 1_000, MeanNs: 50_500, MinNs: 41_000, MaxNs: 90_000, StdDevNs: 2_000, P50Ns: 50_000, P99Ns: 70_000, StepNs: 1_000}
	}))
	for _, want := range []string{"\t1\t50500\t41000\t50000\t90000\t70000\t2000\t1000\n", "no samples", "# reporting: RTT\n", "# protocol: udp\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	b = experiment("x", v1alpha1.ToolPinger, v1alpha1.Workload{
		Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolUDP}, MessageSizes: []int32{64}, RatesPerSecond: []int32{1_000},
	})
	got = printed(t, "sfnt", b, measured(b, func(_ plan.Run, c *result.Cell) {
		c.Start, c.Histogram, c.Lost = tool.StartIntended, histogram(t, 20_000, 0, 900), 100
	}))
	for _, want := range []string{"\t64\t20000\t20000\t20000\t20000\tlost\t0\t900\n", "# rate: 1000 messages a second, counted from the intended send\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// TestFormNetworks prints the published table of four networking methods from results that hold its figures.
func TestFormNetworks(t *testing.T) {
	published := map[string]map[string][4]float64{ // MTU 1500, MTU 9000: latency in µs; then bandwidth in Mb/s
		"TCP": {"native": {58, 58, 9100, 9900}, "assigned": {51, 51, 9400, 9900}, "sr-iov": {58, 59, 9400, 9900}, "paravirtual": {91, 91, 4800, 9800}},
		"UDP": {"native": {57, 57, 9100, 9900}, "assigned": {51, 51, 9400, 9900}, "sr-iov": {66, 63, 9400, 9900}, "paravirtual": {98, 97, 4800, 9800}},
	}
	var variants []v1alpha1.Variant
	for _, method := range []string{"native", "assigned", "sr-iov", "paravirtual"} {
		variants = append(variants, v1alpha1.Variant{Name: method + "-1500"}, v1alpha1.Variant{Name: method + "-9000"})
	}
	// pod shares its row with no other variant.
	variants = append(variants, v1alpha1.Variant{Name: "pod"})
	b := experiment("networks", v1alpha1.ToolNetperf, v1alpha1.Workload{
		Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP}, MessageSizes: []int32{1},
		Streams: []v1alpha1.Stream{{Protocol: v1alpha1.ProtocolTCP, MessageSize: 1 << 20}, {Protocol: v1alpha1.ProtocolUDP, MessageSize: 65507}},
	}, variants...)
	b.Spec.Rounds = 3
	runs := measured(b, func(run plan.Run, c *result.Cell) {
		method, mtu, _ := strings.Cut(strings.Replace(run.Variant.Name, "sr-iov", "sr_iov", 1), "-")
		figures, ok := published[string(c.Protocol)][strings.Replace(method, "_", "-", 1)]
		if !ok {
			figures = [4]float64{120, 0, 3000, 0}
		}
		column := 0
		if mtu == "9000" {
			column = 1
		}
		// The rounds lie on both sides of the published value.
		off := float64(run.Round-2) * 0.01
		if c.Stream {
			c.Bandwidth = &tool.Bandwidth{BitsPerSecond: figures[2+column] * 1e6 * (1 + off)}
		} else {
			c.Own = &tool.Own{Count: 500_000, MeanNs: figures[column] * 1_000 * (1 + off), StepNs: 1_000}
		}
	})
	for i := range runs {
		if strings.Contains(runs[i].Client.Variant, "9000") {
			runs[i].Client.Evidence.MTU, runs[i].Server.Evidence.MTU = 9000, 9000
		}
	}
	for i := range runs { // The pod network is on another NIC.
		for _, e := range []result.Evidence{runs[i].Client.Evidence, runs[i].Server.Evidence} {
			if e.Facts["nic.port"] = "0000:3b:00.0"; runs[i].Client.Variant == "pod" {
				e.Facts["nic.port"], e.Facts["nic.speed"] = "0000:05:00.0", "1000"
			}
		}
	}
	got := printed(t, "networks", b, runs)
	golden.Check(t, "networks.txt", got)
	for protocol, methods := range published {
		_, table, _ := strings.Cut(got, protocol+": mean latency")
		for method, f := range methods {
			want := fmt.Sprintf("%s %.3f %.3f %.0f %.0f", method, f[0], f[1], f[2], f[3])
			if !strings.Contains(strings.Join(strings.Fields(table), " "), want) {
				t.Errorf("%s has no %q", protocol, want)
			}
		}
	}
}

// A variant whose endpoints have different MTUs is shown under the smaller one. Two variants never share a place; both are
// reported.
func TestFormNetworksKeepsVariantsApart(t *testing.T) {
	for _, names := range [][]string{{"vf", "vf-1500", "vf-9000"}, {"vf-1500", "vf", "vf-9000"}} {
		var variants []v1alpha1.Variant
		for _, name := range names {
			variants = append(variants, v1alpha1.Variant{Name: name})
		}
		b := experiment("x", v1alpha1.ToolPinger, v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}}, variants...)
		runs := measured(b, func(run plan.Run, c *result.Cell) {
			c.Histogram = histogram(t, map[string]int64{"vf": 11_000, "vf-1500": 12_000, "vf-9000": 13_000}[run.Variant.Name], 0, 100)
		})
		runs[2].Server.Evidence.MTU = 9000 // the client's is 1500
		got := strings.Join(strings.Fields(printed(t, "networks", b, runs)), " ")
		for _, want := range []string{
			" vf 11.000 ", " vf-1500 12.000 ", " vf-9000 13.000 ", "vf-9000: the endpoints had MTUs of 1500 9000; the table has it under the smallest",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in %s", want, got)
			}
		}
	}
}

func TestFormMatrix(t *testing.T) {
	b := experiment("matrix", v1alpha1.ToolPinger, v1alpha1.Workload{
		Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP, v1alpha1.ProtocolUDP}, MessageSizes: []int32{64, 1024}, RatesPerSecond: []int32{1_000, 50_000},
	})
	b.Spec.Rounds = 3
	runs := measured(b, func(_ plan.Run, c *result.Cell) {
		c.Start, c.Histogram = tool.StartIntended, histogram(t, 4_000+int64(c.MessageSize), 1, int64(c.RatePerSecond))
		if c.Protocol == v1alpha1.ProtocolUDP && c.RatePerSecond == 50_000 {
			c.Lost = 100
		}
	})
	golden.Check(t, "matrix.txt", printed(t, "matrix", b, runs))
}

// TestFormLadder prints published ladders, of three rounds without acceleration and three with it, from captures that hold
// their figures. Where there are enough samples, the percentiles must equal the published ones.
func TestFormLadder(t *testing.T) {
	b := experiment("ladder", v1alpha1.ToolPinger,
		v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, MessageSizes: []int32{256}, RatesPerSecond: []int32{23_000}},
		v1alpha1.Variant{Name: "off"}, v1alpha1.Variant{Name: "on", Wait: v1alpha1.WaitSpin})
	b.Spec.Rounds, b.Spec.Capture = 3, v1alpha1.CaptureServer
	runs := measured(b, func(run plan.Run, c *result.Cell) {
		// The client's samples; some are late because the sender was late.
		late := histogram(t, 30_000, 3, 20_000)
		c.Start, c.Histogram, c.ActualStart = tool.StartIntended, late, new(histogram(t, 30_000, 1, 20_000))
		if run.Variant.Name == "on" && run.Round == 2 {
			c.Lost = 3
		}
	})
	published := publishedLadders(t)
	for i, run := range runs {
		round := published[run.Client.Variant][run.Client.Run[len(run.Client.Run)-1:]]
		captured := result.Captured{Cell: "tcp-256-at-23000", Histogram: round.histogram(t)}
		runs[i].Server.Captured = []result.Captured{captured}
	}
	// A capture that missed packets is omitted.
	runs[5].Server.Captured = append(runs[5].Server.Captured, result.Captured{Cell: "tcp-256-at-23000", Incomplete: "packets were dropped"})
	got := printed(t, "ladder", b, runs)
	golden.Check(t, "ladder.txt", got)

	tables := strings.Split(got, "\n\n")
	for variant, rounds := range published {
		for _, table := range tables {
			if !strings.HasPrefix(table, "variant "+variant) || !strings.Contains(table, "IN to OUT") {
				continue
			}
			compared := 0
			for line := range strings.Lines(table) {
				fields := strings.Fields(line)
				for round := range 3 {
					want, ok := rounds[strconv.Itoa(round+1)].line(fields[0])
					if !ok || strings.Contains(line, "needs") {
						continue
					}
					us, err := strconv.ParseFloat(fields[1+2*round], 64)
					if err != nil || math.Round(us) != want.us || fields[2+2*round] != fmt.Sprint(want.events) {
						t.Errorf("%s, round %d, %s: %q, published %+v", variant, round+1, fields[0], fields[1+2*round:3+2*round], want)
					}
					compared++
				}
			}
			if want := 3 * 10; compared != want { // MIN, eight percentiles up to 99.999 %, MAX
				t.Errorf("%s: %d figures compared with the published ones, want %d", variant, compared, want)
			}
		}
	}
}

// publishedRound holds a round as it was published: latencies in nanoseconds, and the number of events up to each.
type publishedRound struct {
	steps []struct{ ns, events int64 }
}

// step is a latency in microseconds, and the number of events up to it.
type step struct {
	us     float64
	events int64
}

// line returns the value and the events that our ladder must have in a line. A percentile of ours is the smallest latency
// that at least this share of the events does not exceed. The published ladders round the rank to the nearest instead:
// 2154538 of 2154560 events took up to 84 µs, which is 99.9989 % and was published as 99.999 %.
func (p publishedRound) line(name string) (_ step, ok bool) {
	last := p.steps[len(p.steps)-1]
	var rank float64
	switch percent, err := strconv.ParseFloat(strings.TrimSuffix(name, "%"), 64); {
	case name == "MIN":
		rank = 1
	case name == "MAX":
		rank = float64(last.events)
	case err != nil:
		return step{}, false
	default:
		rank = math.Ceil(percent / 100 * float64(last.events))
	}
	for _, s := range p.steps {
		if float64(s.events) >= rank {
			return step{float64(s.ns) / 1_000, s.events}, true
		}
	}
	return step{}, false
}

// histogram returns a histogram with the published number of events up to each of the published latencies.
func (p publishedRound) histogram(t *testing.T) result.Histogram {
	t.Helper()
	r := result.NewRecorder()
	var before int64
	for _, step := range p.steps {
		if step.events > before {
			r.RecordN(step.ns, step.events-before)
			before = step.events
		}
	}
	h, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// publishedLadders reads the published ladders, by variant and round.
func publishedLadders(t *testing.T) map[string]map[string]publishedRound {
	t.Helper()
	file, err := os.Open("../verdict/testdata/published-ladder.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	all := map[string]map[string]publishedRound{}
	var variant, round string
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		text := lines.Text()
		switch fields := strings.Split(text, " : "); {
		case text == "Onload disabled":
			variant = "off"
		case text == "Onload enabled":
			variant = "on"
		case strings.HasPrefix(text, "Round "):
			round = strings.Trim(text, "Round :")
			if all[variant] == nil {
				all[variant] = map[string]publishedRound{}
			}
			all[variant][round] = publishedRound{}
		case len(fields) == 3 && variant != "" && fields[0] != "Percentile":
			us, err := strconv.ParseFloat(fields[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			events, err := strconv.ParseInt(fields[2], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			p := all[variant][round]
			p.steps = append(p.steps, struct{ ns, events int64 }{int64(us * 1_000), events})
			all[variant][round] = p
		}
	}
	if err := lines.Err(); err != nil || len(all["off"]) != 3 || len(all["on"]) != 3 {
		t.Fatalf("published ladders %v, %v", all, err)
	}
	return all
}
