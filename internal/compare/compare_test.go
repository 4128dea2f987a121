package compare

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/judge"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/test/golden"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// spec returns a spec with the cell tcp-64 and these variants; without any, with the default variant.
func spec(variants ...string) v1alpha1.LatencyBenchmarkSpec {
	s := v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
		Tool: v1alpha1.ToolPinger, LatencyType: v1alpha1.LatencyHalfRTT, Network: v1alpha1.Network{Type: v1alpha1.NetworkPod},
		Workload: v1alpha1.Workload{
			Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, MessageSizes: []int32{64}, Duration: metav1.Duration{Duration: time.Second},
		},
		Placement: v1alpha1.Placement{CPUs: 1},
	}}
	for _, v := range variants {
		s.Variants = append(s.Variants, v1alpha1.Variant{Name: v})
	}
	return s
}

// samples returns count round trips that start at first, 1 ns apart.
func samples(t *testing.T, first int64, count int) result.Histogram {
	t.Helper()
	r := result.NewRecorder()
	for i := range int64(count) {
		r.Record(first + i)
	}
	h, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// side returns a benchmark with 2,000 samples in each round of each variant. The samples of a round start at one of the
// latencies in begins. changes are applied to every run.
func side(t *testing.T, name string, s v1alpha1.LatencyBenchmarkSpec, begins []int64, changes ...func(*result.Stored)) Side {
	t.Helper()
	var runs []result.Stored
	for round, first := range begins {
		for _, v := range plan.Variants(s) {
			document := func(role string) result.Document {
				return result.Document{Run: fmt.Sprintf("%s-%s-r%d", name, v.Name, round+1), Variant: v.Name, Role: role, Evidence: result.Evidence{
					Node: "node-" + role, Kernel: "6.1.0", BootID: "boot-" + role, CPUsAllowed: "3", OnlineCPUs: "0-3", MeasuringCPU: 3, AgentCPU: 3,
					DeviceNUMANode: -1, Interface: "eth0", MTU: 1500,
					Facts:  map[string]string{"cpu.smt.sibling": "none", "cgroup.cpus-set": "3", "cgroup.cpu-max": "max 100000", "nic.carrier": "1"},
					Deltas: map[string]int64{"cgroup.stopped-us": 0, "nic.carrier-changes": 0},
				}}
			}
			run := result.Stored{Client: document(v1alpha1.RoleClient), Server: document(v1alpha1.RoleServer), ClientSeen: result.Seen{PodUID: "c"}, ServerSeen: result.Seen{PodUID: "s"}}
			for _, c := range plan.Cells(s, v) {
				run.Client.Cells = append(run.Client.Cells, result.Cell{Cell: c, Tool: string(s.Tool), ToolVersion: "1", Histogram: samples(t, first, 2000)})
			}
			run.Client.Evidence.Paths = resulttest.ThroughKernel(run.Client.Cells)
			run.Server.Evidence.Paths = run.Client.Evidence.Paths
			for _, change := range changes {
				change(&run)
			}
			runs = append(runs, run)
		}
	}
	collected, err := rounds.Of(s, runs...)
	if err != nil {
		t.Fatal(err)
	}
	return Side{Name: name, Results: judge.Results{Collection: collected}}
}

func cells(change func(*result.Cell)) func(*result.Stored) {
	return func(s *result.Stored) {
		for i := range s.Client.Cells {
			change(&s.Client.Cells[i])
		}
	}
}

var (
	quick = []int64{20_000, 20_100, 20_200, 20_300, 20_400}
	slow  = []int64{24_000, 24_100, 24_200, 24_300, 24_400}
)

func TestFigures(t *testing.T) {
	streams := spec()
	streams.Workload.MessageSizes, streams.Workload.Streams = nil, []v1alpha1.Stream{{Protocol: v1alpha1.ProtocolTCP, MessageSize: 1400}}
	bandwidth := func(bits float64) func(*result.Stored) {
		return cells(func(c *result.Cell) { c.Bandwidth = &tool.Bandwidth{BitsPerSecond: bits} })
	}
	rtt := spec()
	rtt.LatencyType = v1alpha1.LatencyRTT
	own := func(p99 int64) func(*result.Stored) {
		return cells(func(c *result.Cell) {
			c.Own = &tool.Own{Count: 5000, MeanNs: 30_000, P50Ns: 30_000, P99Ns: p99, StepNs: 1000}
		})
	}
	cases := map[string]struct {
		baseline, candidate Side
		// want holds the rows of the tables.
		want []string
	}{
		"nothing is shown of the same": {
			side(t, "a", spec(), quick), side(t, "b", spec(), quick), []string{
				"mean 10.60µs 10.60µs ~ [0.985, 1.015]", "p50 10.60µs 10.60µs ~ [0.985, 1.016]", "p90 11.00µs 11.00µs ~ [0.985, 1.015]", "p99 11.10µs 11.10µs ~ [0.985, 1.015]",
				"p99.9 - - - a round has 2000 samples and p99.9 needs 10000",
			},
		},
		"slower": {
			side(t, "a", spec(), quick), side(t, "b", spec(), slow), []string{
				"mean 10.60µs 12.60µs 1.189 [1.173, 1.204]", "p50 10.60µs 12.60µs 1.189 [1.172, 1.205]", "p90 11.00µs 13.00µs 1.182 [1.166, 1.198]", "p99 11.10µs 13.10µs 1.180 [1.165, 1.196]",
				"p99.9 - - - a round has 2000 samples and p99.9 needs 10000",
			},
		},
		"quicker": {
			side(t, "a", spec(), slow), side(t, "b", spec(), quick), []string{
				"mean 12.60µs 10.60µs 0.841 [0.830, 0.852]", "p50 12.60µs 10.60µs 0.841 [0.830, 0.853]", "p90 13.00µs 11.00µs 0.846 [0.835, 0.858]", "p99 13.10µs 11.10µs 0.847 [0.836, 0.859]",
				"p99.9 - - - a round has 2000 samples and p99.9 needs 10000",
			},
		},
		"three rounds show nothing": {
			side(t, "a", spec(), quick[:3]), side(t, "b", spec(), slow[:3]), []string{
				"mean 10.55µs 12.55µs ~ too few rounds for a comparison; it needs at least 4+4",
				"p50 10.55µs 12.55µs ~ too few rounds for a comparison; it needs at least 4+4",
				"p90 10.95µs 12.95µs ~ too few rounds for a comparison; it needs at least 4+4",
				"p99 11.04µs 13.04µs ~ too few rounds for a comparison; it needs at least 4+4",
				"p99.9 - - - a round has 2000 samples and p99.9 needs 10000",
			},
		},
		"both are shown as the candidate counts": {
			side(t, "a", spec(), quick), side(t, "b", rtt, slow), []string{
				"mean 21.20µs 25.20µs 1.189 [1.173, 1.204]", "p50 21.20µs 25.20µs 1.189 [1.172, 1.205]", "p90 22.00µs 26.00µs 1.182 [1.166, 1.198]", "p99 22.19µs 26.19µs 1.180 [1.165, 1.196]",
				"p99.9 - - - a round has 2000 samples and p99.9 needs 10000",
			},
		},
		"lost messages": {
			side(t, "a", spec(), quick), side(t, "b", spec(), quick, cells(func(c *result.Cell) { c.Lost = 30 })), []string{
				"mean 10.60µs 10.60µs ~ [0.985, 1.015]", "p50 10.60µs 10.61µs ~ [0.985, 1.016]", "p90 11.00µs 11.02µs ~ [0.987, 1.016]", "p99 11.10µs - ∞ it falls among the lost messages in the candidate",
				"p99.9 - - - a round has 2000 samples and p99.9 needs 10000", "lost 0 150 - -",
			},
		},
		"a tool that rounds": {
			side(t, "a", spec(), quick, own(40_000)), side(t, "b", spec(), quick, own(41_000)), []string{
				"mean 15.00µs 15.00µs ~ [1.000, 1.000]", "p50 15.00µs 15.00µs ~ [0.967, 1.034]", "p99 20.00µs 20.50µs ~ [1.000, 1.051]",
			},
		},
		"a round without the figure": {
			side(t, "a", spec(), quick, own(40_000)), side(t, "b", spec(), quick, own(0), func(s *result.Stored) {
				if strings.HasSuffix(s.Client.Run, "-r2") {
					own(40_000)(s)
				}
			}), []string{"mean 15.00µs 15.00µs ~ [1.000, 1.000]", "p50 15.00µs 15.00µs ~ [0.967, 1.034]", "p99 20.00µs - - not every round has it"},
		},
		"streams": {
			side(t, "a", streams, quick, bandwidth(9e9)), side(t, "b", streams, quick, bandwidth(9.9e9)), []string{"throughput 9.00Gb/s 9.90Gb/s 1.100 [1.100, 1.100]"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Compare(c.baseline, c.candidate)
			if err != nil {
				t.Fatal(err)
			}
			var rows []string
			for _, f := range got.Figures {
				rows = append(rows, strings.Join(f.Row(), " "))
			}
			if diff := cmp.Diff(c.want, rows); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDifferences(t *testing.T) {
	kernel := func(s *result.Stored) { s.Client.Evidence.Kernel, s.Server.Evidence.Kernel = "6.6.0", "6.6.0" }
	boot := func(s *result.Stored) { s.Server.Evidence.BootID = "another" }
	mtuOf := func(variant string) func(*result.Stored) {
		return func(s *result.Stored) {
			if s.Client.Variant == variant {
				s.Client.Evidence.MTU = 9000
			}
		}
	}
	a, b := side(t, "a", spec("pod", "vf"), quick), side(t, "b", spec("pod", "vf"), quick, kernel, boot, mtuOf("vf"))
	got, err := Compare(a, b)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"pod/client", "pod/server", "vf/client", "vf/server"}
	want := []Difference{
		{Key: "kernel.release", Baseline: "6.1.0", Candidate: "6.6.0", Fingerprint: true, Ends: all},
		{Key: "nic.mtu", Baseline: "1500", Candidate: "9000", Fingerprint: true, Ends: []string{"vf/client"}},
		{Key: "kernel.boot-id", Baseline: "boot-server", Candidate: "another", Ends: []string{"pod/server", "vf/server"}},
	}
	if diff := cmp.Diff(want, got.Differences); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	less := got.WithoutExplaining()
	if diff := cmp.Diff(want[:2], less.Differences); diff != "" || less.Explaining != 1 || len(got.Differences) != 3 {
		t.Errorf("%d explain; (-want +got):\n%s", less.Explaining, diff)
	}
	a.Variant, b.Variant = "vf", "vf"
	if got, err = Compare(a, b); err != nil || len(got.Differences) != 3 || strings.Join(got.Differences[0].Ends, " ") != "client server" {
		t.Errorf("of one variant: %v, %+v", err, got.Differences)
	}
}

// The notes of the authors are also compared. They come after the differences that prevent a comparison, and are always
// shown.
func TestDifferencesOfNotes(t *testing.T) {
	before, after := spec(), spec()
	before.Notes = []v1alpha1.Note{{Name: "bios", Value: "default"}, {Name: "switch", Value: "leaf-1"}, {Name: "ticket", Value: "OPS-1"}}
	after.Notes = []v1alpha1.Note{{Name: "fec", Value: "off"}, {Name: "switch", Value: "leaf-1"}, {Name: "bios", Value: "low latency"}}
	boot := func(s *result.Stored) { s.Server.Evidence.BootID = "another" }
	got, err := Compare(side(t, "a", before, quick), side(t, "b", after, quick, boot))
	if err != nil {
		t.Fatal(err)
	}
	want := []Difference{
		{Key: "kernel.boot-id", Baseline: "boot-server", Candidate: "another", Ends: []string{"server"}},
		{Key: "note.bios", Baseline: "default", Candidate: "low latency", Note: true},
		{Key: "note.fec", Candidate: "off", Note: true},
		{Key: "note.ticket", Baseline: "OPS-1", Note: true},
	}
	if diff := cmp.Diff(want, got.Differences); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	less := got.WithoutExplaining()
	if diff := cmp.Diff(want[1:], less.Differences); diff != "" || less.Explaining != 1 {
		t.Errorf("%d explain; (-want +got):\n%s", less.Explaining, diff)
	}
	if !strings.Contains(less.title(), "under conditions that are equal where they must be") {
		t.Errorf("title %q", less.title())
	}
}

func TestVariants(t *testing.T) {
	cases := map[string]struct {
		baseline, candidate          []string
		baselineChosen, chosen       string
		want                         []string
		wantError                    error
		wantMessage                  string
		baselineRounds, roundsNumber int
	}{
		"those of the same name":                    {baseline: []string{"pod", "vf", "pf"}, candidate: []string{"vf", "pod", "host"}, want: []string{"vf vf", "pod pod"}},
		"the only ones, whatever they are":          {baseline: []string{"pod"}, candidate: []string{"vf"}, want: []string{"pod vf"}},
		"those that were named":                     {baseline: []string{"pod", "vf"}, candidate: []string{"pod", "vf"}, baselineChosen: "pod", chosen: "vf", want: []string{"pod vf"}},
		"one that was named, of the other the same": {baseline: []string{"pod", "vf"}, candidate: []string{"pod", "vf"}, chosen: "vf", want: []string{"vf vf"}},
		"one that does not exist":                   {baseline: []string{"pod"}, candidate: []string{"vf"}, chosen: "pf", wantError: ErrNoVariant, wantMessage: "no such variant: b/pf; there are vf"},
		"no variant of the same name": {baseline: []string{"pod", "pf"}, candidate: []string{"vf"}, wantError: ErrNothingInCommon,
			wantMessage: "a has variants pod, pf, b has variants vf; name one of each as NAME/VARIANT"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a, b := side(t, "a", spec(c.baseline...), quick), side(t, "b", spec(c.candidate...), quick)
			a.Variant, b.Variant = c.baselineChosen, c.chosen
			if c.chosen != "" {
				b.Name += "/" + c.chosen
			}
			comparison, err := Compare(a, b)
			if !errors.Is(err, c.wantError) || err != nil && !strings.Contains(err.Error(), c.wantMessage) {
				t.Fatalf("got %v, want %q", err, c.wantMessage)
			}
			var got []string
			for _, f := range comparison.Figures {
				if f.Metric == v1alpha1.MetricP50 {
					got = append(got, f.BaselineVariant+" "+f.CandidateVariant)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNotes(t *testing.T) {
	more, capturing := spec(), spec()
	more.Workload.MessageSizes = []int32{64, 1024, 102}
	capturing.Capture = v1alpha1.CaptureServer
	apart := func(s *result.Stored) { s.Server.Evidence.AgentCPU = 4 }
	shared := func(s *result.Stored) { s.Server.Evidence.CPUsAllowed = "0-3" }
	changing := func(s *result.Stored) {
		if strings.HasSuffix(s.Client.Run, "-r2") {
			s.Client.Evidence.Kernel = "6.6.0"
		}
	}
	mhz := func(frequency int32) func(*result.Stored) {
		return func(s *result.Stored) {
			e := &s.Client.Evidence
			e.Facts = maps.Clone(e.Facts)
			e.Facts["cpu.hypervisor"] = "no"
			e.Paths = resulttest.ThroughKernel(s.Client.Cells)
			for i := range e.Paths {
				e.Paths[i].MHzBefore, e.Paths[i].MHzAfter = frequency, frequency
			}
		}
	}
	plain := func(changes ...func(*result.Stored)) Side { return side(t, "a", spec(), quick, changes...) }
	cases := map[string]struct {
		baseline, candidate Side
		want                []string
	}{
		"none":                    {plain(), side(t, "b", spec(), quick), nil},
		"nearly this frequency":   {plain(mhz(4800)), side(t, "b", spec(), quick, mhz(4700)), nil},
		"another frequency":       {plain(mhz(4800)), side(t, "b", spec(), quick, mhz(3900)), []string{"tcp-64: the client's CPU ran at 4800 MHz after the cell in a-default-r1, and at 3900 MHz in b-default-r1"}},
		"cells of one side":       {side(t, "a", more, quick), side(t, "b", spec(), quick), []string{"only a has default/tcp-1024", "only a has default/tcp-102"}},
		"CPUs that others used":   {plain(), side(t, "b", spec(), quick, shared), []string{"b: CPUsNotExclusive: in b-default-r1"}},
		"rounds that were unlike": {plain(changing), side(t, "b", spec(), quick), []string{"a: EvidenceDiffers: a-default-r1 and a-default-r2 did not run under equal conditions"}},
		"packets of one side":     {plain(), side(t, "b", capturing, quick, apart), []string{"only b has default/tcp-64-captured", "packets of default were captured on one side only"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Compare(c.baseline, c.candidate)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Notes) != len(c.want) {
				t.Fatalf("got %q", got.Notes)
			}
			for i, want := range c.want {
				if !strings.HasPrefix(got.Notes[i], want) {
					t.Errorf("got %q, want %q", got.Notes[i], want)
				}
			}
		})
	}
	if _, err := Compare(side(t, "a", spec(), nil), side(t, "b", spec(), quick)); !errors.Is(err, ErrNothingInCommon) {
		t.Errorf("a side without results: %v", err)
	}
}

func TestConditionsAreShownShort(t *testing.T) {
	for value, want := range map[string]string{
		"": "-", "6.1.0": "6.1.0", "\x1b[2Jµ": "\uFFFD[2Jµ", strings.Repeat("µ", 31): strings.Repeat("µ", 28) + "…",
	} {
		if got := condition(value); got != want {
			t.Errorf("of %q got %q, want %q", value, got, want)
		}
	}
}

// TestForms compares the output with testdata.
func TestForms(t *testing.T) {
	s := spec("pod", "vf")
	s.Workload.MessageSizes = []int32{64, 1024}
	upgrade := func(r *result.Stored) {
		r.Client.Evidence.Kernel, r.Server.Evidence.Kernel = "6.6.0", "6.6.0"
		r.Client.Evidence.Facts["kernel.cmdline"], r.Client.Evidence.Facts["cpu.isolated"] = strings.Repeat("isolcpus=2-7 ", 10), "yes"
		r.Server.Evidence.BootID = "another"
	}
	noted := s
	noted.Notes = []v1alpha1.Note{{Name: "bios", Value: "low | latency"}}
	c, err := Compare(side(t, "before", s, quick), side(t, "after", noted, []int64{20_010, 24_110, 20_190, 24_290, 24_410}, upgrade))
	if err != nil {
		t.Fatal(err)
	}
	c.Notes = append(c.Notes, "a note with a | in it")
	for _, f := range Forms() {
		for name, c := range map[string]Comparison{f.Name: c.WithoutExplaining(), f.Name + "-all": c} {
			t.Run(name, func(t *testing.T) {
				var got bytes.Buffer
				if err := f.Write(&got, c); err != nil {
					t.Fatal(err)
				}
				golden.Check(t, name+".txt", got.String())
			})
		}
	}
}

// Several candidates are in one table for each metric; conditions that must be equal and are not are named below it.
func TestSeveral(t *testing.T) {
	other := func(r *result.Stored) { r.Client.Evidence.Kernel, r.Server.Evidence.Kernel = "6.6.0", "6.6.0" }
	var all []Comparison
	for name, begins := range map[string][]int64{"one": {20_010, 24_110, 20_190, 24_290, 24_410}, "two": quick} {
		c, err := Compare(side(t, "before", spec(), quick), side(t, name, spec(), begins, map[string]func(*result.Stored){"one": other, "two": func(*result.Stored) {}}[name]))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c.WithoutExplaining())
	}
	slices.SortFunc(all, func(a, b Comparison) int { return strings.Compare(a.Candidate, b.Candidate) })
	for _, f := range Forms() {
		var got bytes.Buffer
		if err := f.Write(&got, all...); err != nil {
			t.Fatal(err)
		}
		golden.Check(t, f.Name+"-several.txt", got.String())
	}
}

// Results of two tools are not compared, but packets of servers are; an imported side has only a ratio, and no conditions.
func TestUnlikeAndImported(t *testing.T) {
	of := func(tool v1alpha1.Tool, name string, changes ...func(*result.Stored)) Side {
		s := spec()
		s.Tool = tool
		return side(t, name, s, quick[:1], changes...)
	}
	if _, err := Compare(of(v1alpha1.ToolPinger, "a"), of(v1alpha1.ToolSockperf, "b")); !errors.Is(err, ErrNothingInCommon) || !strings.Contains(err.Error(), "tool: a was measured by pinger and b by sockperf") {
		t.Errorf("two tools: %v", err)
	}
	published := func(r *result.Stored) {
		r.Client.Imported, r.Client.Evidence = "a table", result.Evidence{}
		r.Client.Cells[0].Histogram, r.Client.Cells[0].Own = result.Histogram{}, &tool.Own{Count: 5000, MeanNs: 20_000, P50Ns: 20_000, StepNs: 2}
	}
	c, err := Compare(of(v1alpha1.ToolPinger, "paper", published), of(v1alpha1.ToolPinger, "mine"))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Differences) != 0 || !strings.Contains(strings.Join(c.Notes, "\n"), "paper: Imported: not measured by Tailgate") || strings.Contains(c.title(), "equal") {
		t.Errorf("%s has differences %v, notes %q", c.title(), c.Differences, c.Notes)
	}
	for _, f := range c.Figures {
		if want := f.Metric == v1alpha1.MetricMean || f.Metric == v1alpha1.MetricP50; (f.Shown == ShownRatio) != want {
			t.Errorf("%s shows %q, %v", f.Metric, f.Shown, f.Ratio)
		}
	}
}

// A captured cell of an imported side whose message size was not published is compared with one of its rate. A size of 0 that was
// measured is a size.
func TestUnknownSize(t *testing.T) {
	of := func(name, source string, size, rate int32) Side {
		s := spec()
		s.Capture, s.Workload.MessageSizes, s.Workload.RatesPerSecond = v1alpha1.CaptureServer, []int32{size}, []int32{rate}
		return side(t, name, s, quick, func(r *result.Stored) {
			r.Client.Imported, r.Server.Evidence.AgentCPU = source, 4
			r.Server.Captured = []result.Captured{{Cell: r.Client.Cells[0].Name, Histogram: r.Client.Cells[0].Histogram}}
		})
	}
	c, err := Compare(of("paper", "a table", 0, 1000), of("mine", "", 256, 1000))
	if err != nil || len(c.Figures) == 0 || c.Figures[0].Cell != "tcp-256-at-1000-captured" ||
		!strings.Contains(strings.Join(c.Notes, "\n"), "tcp-256-at-1000-captured is compared with tcp-0-at-1000-captured, whose message size was not published") {
		t.Errorf("got %v, %v", c.Notes, err)
	}
	if title, heading := c.title(), c.grids()[len(c.grids())-1].heading; !strings.Contains(title, "against paper, InToOut") || !strings.HasSuffix(heading, ", InToOut") {
		t.Errorf("got %q, %q: these are no latencies of the tool", title, heading)
	}
	for name, baseline := range map[string]Side{
		"another rate": of("paper", "a table", 0, 2000), "another size": of("paper", "a table", 128, 1000), "measured": of("before", "", 0, 1000),
	} {
		if _, err := Compare(baseline, of("mine", "", 256, 1000)); !errors.Is(err, ErrNothingInCommon) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// For the same rounds, the status of a benchmark has the same interval as a comparison of its variants.
func TestIntervalIsThatOfTheStatus(t *testing.T) {
	n := int64(0)
	both := side(t, "x", spec("a", "b"), []int64{10_000, 10_300, 10_700, 11_200, 10_100, 10_900}, func(run *result.Stored) {
		if run.Client.Variant == "b" {
			n++
			run.Client.Cells[0].Histogram = samples(t, 12_000+250*n, 2_000)
		}
	})
	before, after := both, both
	before.Variant, after.Variant = "a", "b"
	c, err := Compare(before, after)
	if err != nil {
		t.Fatal(err)
	}
	results := summary.Summarize(both.Results.Collection).Results
	shown := 0
	for _, ratio := range results[len(results)-1].Ratios {
		for _, f := range c.Figures {
			if string(f.Metric) != string(ratio.Percentile) {
				continue
			}
			got := ratio.Lower + ".." + ratio.Upper
			if f.Lower == nil || f.Upper == nil {
				if got != ".." {
					t.Errorf("%s: a comparison has no interval, and the status %s", f.Metric, got)
				}
				continue
			}
			shown++
			row := f.Row()
			if want := fmt.Sprintf("[%s, %s]", ratio.Lower, ratio.Upper); row[4] != want || f.Shown != ShownNothing && row[3] != string(ratio.Estimate) {
				t.Errorf("%s: the status has %s %s, a comparison %s %s", f.Metric, ratio.Estimate, want, row[3], row[4])
			}
		}
	}
	if shown < 2 {
		t.Errorf("%d percentiles are in both: %v", shown, results)
	}
}
