package rounds

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

var spec = v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
	Tool: v1alpha1.ToolPinger, Rounds: 5, LatencyType: v1alpha1.LatencyHalfRTT, Network: v1alpha1.Network{Type: v1alpha1.NetworkPod},
	Workload: v1alpha1.Workload{
		Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, MessageSizes: []int32{64}, Duration: metav1.Duration{Duration: time.Second},
	},
	Placement: v1alpha1.Placement{CPUs: 1},
}}

func stored(c result.Cell, captured ...result.Captured) result.Stored {
	document := func(role string) result.Document {
		return result.Document{Run: "x-r1", Variant: "default", Role: role}
	}
	s := result.Stored{Client: document(v1alpha1.RoleClient), Server: document(v1alpha1.RoleServer)}
	c.Name = "tcp-64"
	s.Client.Cells, s.Server.Captured = []result.Cell{c}, captured
	return s
}

func TestAddRefusesWhatCannotBeRead(t *testing.T) {
	bad := result.Histogram{Encoded: "nonsense", Count: 1}
	for name, run := range map[string]result.Stored{
		"a histogram": stored(result.Cell{Histogram: bad}),
		"a capture":   stored(result.Cell{Own: &tool.Own{}}, result.Captured{Cell: "tcp-64", Histogram: bad}),
	} {
		if err := New(spec).Add(run); !errors.Is(err, result.ErrCorrupt) {
			t.Errorf("%s that cannot be read: %v", name, err)
		}
	}
}

// The collection keeps nothing that grows with a run's samples, intervals or slow samples.
func TestMeasurementsAreNotKept(t *testing.T) {
	r := result.NewRecorder()
	r.Record(1000)
	h, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Of(spec, stored(result.Cell{
		Histogram: h, Intervals: make([]tool.Interval, 9), Attribution: &tool.Attribution{Examined: 1, Slowest: make([]tool.Outlier, 9)},
		Figures: make([]tool.Figure, 9), Warnings: []string{"a warning"}, Command: []string{"pinger"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	v := c.Variants[0]
	kept := v.First.Client.Cells[0]
	if kept.Histogram.Encoded != "" || kept.Intervals != nil || kept.Attribution != nil || kept.Figures != nil || kept.Warnings != nil || kept.Command != nil {
		t.Errorf("of a run %+v is kept", kept)
	}
	round := v.Cells[0].Measured.Each[0]
	if round.Attribution.Examined != 1 || round.Attribution.Slowest != nil || round.Samples.Count != 1 {
		t.Errorf("of a round %+v is kept", round)
	}
}

// Runs of a variant that the spec does not have do not count. Agents do not let this happen.
func TestAddLeavesOutOtherVariants(t *testing.T) {
	run := stored(result.Cell{Own: &tool.Own{}})
	run.Client.Variant = "another"
	c, err := Of(spec, run)
	if err != nil || c.Runs != 0 {
		t.Errorf("%d runs, %v", c.Runs, err)
	}
}

// The frequencies of all runs, also of other variants, are compared with those of the first run.
func TestFrequency(t *testing.T) {
	run := func(variant string, client, server int32) result.Stored {
		s := stored(result.Cell{Own: &tool.Own{}})
		s.Client.Run, s.Server.Run, s.Client.Variant, s.Server.Variant = variant+"-run", variant+"-run", variant, variant
		for d, mhz := range map[*result.Document]int32{&s.Client: client, &s.Server: server} {
			d.Evidence.Facts = map[string]string{"cpu.hypervisor": "no"}
			d.Evidence.Paths = []result.Path{{Cell: "tcp-64", MHzBefore: mhz, MHzAfter: mhz}}
		}
		return s
	}
	spec := spec
	spec.Variants = []v1alpha1.Variant{{Name: "a"}, {Name: "b"}}
	for name, c := range map[string]struct {
		runs []result.Stored
		want string
	}{
		"equal":           {runs: []result.Stored{run("a", 4800, 3000), run("b", 4800, 3000)}},
		"another variant": {runs: []result.Stored{run("a", 4800, 3000), run("b", 4800, 3200), run("a", 3000, 3000)}, want: "tcp-64: the server's CPU ran at 3000 MHz after the cell in a-run, and at 3200 MHz in b-run"},
		"another round":   {runs: []result.Stored{run("a", 4800, 3000), run("a", 3900, 3000)}, want: "tcp-64: the client's CPU ran at 4800 MHz after the cell in a-run, and at 3900 MHz in a-run"},
	} {
		collected, err := Of(spec, c.runs...)
		if err != nil {
			t.Fatal(err)
		}
		if collected.Frequency != c.want {
			t.Errorf("%s: got %q, want %q", name, collected.Frequency, c.want)
		}
	}
}

// Rounds of different images are not of equal conditions; an image that is not known is not another one.
func TestImageChanged(t *testing.T) {
	run := func(name, client, server string) result.Stored {
		var s result.Stored
		s.Client.Run, s.ClientSeen.ImageID, s.ServerSeen.ImageID = name, client, server
		return s
	}
	for want, second := range map[string]result.Stored{
		"": run("x-r2", "b@sha256:1", ""),
		"x-r1 and x-r2 did not run the same image at the client's end: b@sha256:1, then b@sha256:2": run("x-r2", "b@sha256:2", "b@sha256:1"),
		"x-r1 and x-r2 did not run the same image at the server's end: b@sha256:1, then b@sha256:3": run("x-r2", "b@sha256:1", "b@sha256:3"),
	} {
		if got := imageChanged(run("x-r1", "b@sha256:1", "b@sha256:1"), second); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	c := NewUnmerged(spec)
	v := c.Variants[0]
	v.prove(spec, run("x-r1", "b@sha256:1", "b@sha256:1"))
	v.prove(spec, run("x-r2", "b@sha256:1", "b@sha256:2"))
	if !strings.Contains(v.Unequal, "the same image") {
		t.Errorf("unequal: %q", v.Unequal)
	}
}

// The first incomplete capture and the first reduced result are reported; complete ones cause no warning.
func TestReportsOfRuns(t *testing.T) {
	whole, second := result.Captured{Cell: "tcp-64", Own: &tool.Own{}}, result.Captured{Cell: "tcp-64", Own: &tool.Own{}, Incomplete: "3 packets were dropped"}
	later := second
	later.Incomplete = "later"
	for name, c := range map[string]struct {
		captures   []result.Captured
		reduced    []string
		incomplete string
		less       bool
	}{
		"nothing was captured":           {},
		"complete captures":              {captures: []result.Captured{whole, whole}},
		"a complete and two others":      {captures: []result.Captured{whole, second, later}, incomplete: "3 packets were dropped"},
		"complete captures, and reduced": {captures: []result.Captured{whole}, reduced: []string{"intervals"}, less: true},
	} {
		run := stored(result.Cell{Own: &tool.Own{}}, c.captures...)
		run.Server.Reduced = c.reduced
		got, err := Of(spec, run, run)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(got.Incomplete, c.incomplete) || (got.Incomplete != "") != (c.incomplete != "") || (got.Reduced != "") != c.less || got.Frequency != "" || got.ToolWarnings() != "" {
			t.Errorf("%s: %q, %q, %q, %q", name, got.Incomplete, got.Reduced, got.Frequency, got.ToolWarnings())
		}
	}
}

// A round has percentiles only of messages: without any, it has none, and lost ones are slower than all others.
func TestPercentilesOfRounds(t *testing.T) {
	r := result.NewRecorder()
	r.RecordN(1000, 4)
	four, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	none, err := result.NewRecorder().Histogram()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		histogram result.Histogram
		lost      int64
		p50       stats.Observation
	}{
		"samples":               {four, 0, stats.Exact(1000)},
		"samples and as many":   {four, 5, stats.Within(0, stats.Infinite, stats.Infinite)},
		"no message at all":     {none, 0, stats.Observation{}},
		"the message is lost":   {none, 1, stats.Within(0, stats.Infinite, stats.Infinite)},
		"all messages are lost": {none, 2, stats.Within(0, stats.Infinite, stats.Infinite)},
	} {
		got, err := Of(spec, stored(result.Cell{Histogram: c.histogram, Lost: c.lost}))
		if err != nil {
			t.Fatal(err)
		}
		if p50 := got.Variants[0].Cells[0].Measured.Each[0].Samples.Percentiles[0].Observed; p50.Value != c.p50.Value {
			t.Errorf("%s: p50 %+v, want %+v", name, p50, c.p50)
		}
	}
}

// The sum over rounds has every part of each, and says that gaps were seen only if all rounds saw them.
func TestAttributionOfRounds(t *testing.T) {
	one := tool.Attribution{Beyond: 1, Examined: 2, Client: 3, Server: 4, Both: 5, Neither: 6, Undetermined: 7, ClientSeesGaps: true, ServerSeesGaps: true}
	blind := one
	blind.ClientSeesGaps, blind.ServerSeesGaps = false, false
	r := Rounds{Each: []Round{{Attribution: &one}, {}, {Attribution: &one}}}
	if got, want := r.Attribution(), (&tool.Attribution{Beyond: 2, Examined: 4, Client: 6, Server: 8, Both: 10, Neither: 12, Undetermined: 14, ClientSeesGaps: true, ServerSeesGaps: true}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	r.Each = append(r.Each, Round{Attribution: &blind})
	if got := r.Attribution(); got.ClientSeesGaps || got.ServerSeesGaps {
		t.Errorf("%+v", got)
	}
	for _, none := range [][]Round{nil, {{}}, {{Attribution: &tool.Attribution{Beyond: 3}}}} {
		if got := (&Rounds{Each: none}).Attribution(); got != nil {
			t.Errorf("%+v of rounds that examined nothing", got)
		}
	}
}

// A collection that is merged has the samples of all rounds; another has none.
func TestMerged(t *testing.T) {
	r := result.NewRecorder()
	r.RecordN(1000, 4)
	four, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*Collection{New(spec), NewUnmerged(spec)} {
		for range 3 {
			if err := c.Add(stored(result.Cell{Histogram: four})); err != nil {
				t.Fatal(err)
			}
		}
		want := int64(0)
		if c.Merges {
			want = 12
		}
		if got := c.Variants[0].Cells[0].Measured.Merged().Count; got != want || len(c.Variants[0].Cells[0].Measured.Found()) != 3 {
			t.Errorf("%d merged samples, want %d", got, want)
		}
	}
}

// A capture of a tool without samples has the tool's own statistics, and what was not answered is lost.
func TestCapturedRounds(t *testing.T) {
	own := &tool.Own{Count: 7, MeanNs: 1500}
	got, err := Of(spec, stored(result.Cell{Own: &tool.Own{}}, result.Captured{Cell: "tcp-64", Own: own, Unanswered: 3}))
	if err != nil {
		t.Fatal(err)
	}
	round := got.Variants[0].Cells[0].Captured.Each[0]
	if !round.Found || round.Lost != 3 || !reflect.DeepEqual(round.Own, own) || round.Samples != nil {
		t.Errorf("%+v", round)
	}
}
