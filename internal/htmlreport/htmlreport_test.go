package htmlreport

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/golden"
)

// written returns the report of benchmarks.
func written(t *testing.T, all []export.Benchmark) string {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, all); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestWrite compares a whole report, except its assets, with a golden file.
func TestWrite(t *testing.T) {
	all := gatedSample(t, 1.35, 0.03, simulated)
	got := written(t, all)
	if again := written(t, gatedSample(t, 1.35, 0.03, simulated)); again != got {
		t.Error("the same results made another report")
	}
	p, err := newPage(all)
	if err != nil {
		t.Fatal(err)
	}
	for _, asset := range []string{p.Style, p.Library, p.Script} {
		if n := strings.Count(got, asset); n != 1 {
			t.Errorf("an asset that begins with %.40q is in the page %d times", asset, n)
		}
		got = strings.ReplaceAll(got, asset, "…")
	}
	// The policy contains the digests of the assets.
	got = regexp.MustCompile(`content="default-src [^"]*"`).ReplaceAllString(got, `content="…"`)
	golden.Check(t, "report.html", strings.ReplaceAll(got, "><", ">\n<"))
}

// The tool of a published table reported p50 and p99 only: both have a column, and none says how many samples it needs. The stamp is
// about the benchmarks that are marked.
func TestWritePublished(t *testing.T) {
	got := written(t, append(publishedSample(t), gatedSample(t, 0.6, 0.02, simulated)...))
	want := `<th scope="col">p50</th><th scope="col">p99</th><th scope="col">max</th>`
	if n := strings.Count(got, want); n != 3 {
		t.Errorf("%d tables have p50 and p99, want 3", n)
	}
	if !strings.Contains(got, "</strong> Both ends of those marked below ran on one kernel") || strings.Count(got, "simulated NIC</span>") != 1 {
		t.Error("the stamp is about all benchmarks")
	}
}

// Reports are sent by mail and opened on phones: one of twenty cells in ten rounds, with their course over time, must stay
// small.
func TestWriteStaysBelowAMegabyte(t *testing.T) {
	if n := len(written(t, largeSample(t))); n >= 1_000_000 {
		t.Errorf("%d bytes", n)
	}
}

func TestWriteEscapes(t *testing.T) {
	got := written(t, hostileSample(t))
	for _, evil := range []string{`<script>document`, `<img src=x`, `"'><b>`} {
		if strings.Contains(got, evil) {
			t.Errorf("%s is in the page as it is", evil)
		}
	}
	if !strings.Contains(got, "&lt;img src=x onerror=alert(1)&gt;") {
		t.Error("the name is not shown")
	}
}

// The facts list the notes of each benchmark, and the comparison lists those that differ.
func TestWriteShowsNotes(t *testing.T) {
	all := beforeAfterSample(t)
	all[0].Object.Spec.Notes = []v1alpha1.Note{{Name: "bios", Value: "default"}, {Name: "switch", Value: "leaf-7"}}
	all[1].Object.Spec.Notes = []v1alpha1.Note{{Name: "bios", Value: "<low latency>"}, {Name: "switch", Value: "leaf-7"}}
	got := written(t, all)
	for _, want := range []string{
		"<dt>Note: bios</dt><dd>default</dd>", "<dt>Note: switch</dt><dd>leaf-7</dd>", "1 note that differs",
		"<code>note.bios</code></th><td>default</td><td>&lt;low latency&gt;</td>",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s", want)
		}
	}
}

// Two exports of one benchmark, taken at different times, have the same name and UID.
func TestComparisonOfTwoExports(t *testing.T) {
	all := beforeAfterSample(t)
	newPage := func() page {
		p, err := newPage(all)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	want := newPage()
	all[1].Object.Name, all[1].Object.UID = all[0].Object.Name, all[0].Object.UID
	got := newPage()
	if diff := cmp.Diff(want.Comparisons[0].Rows, got.Comparisons[0].Rows); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	first, second := got.Benchmarks[0].Name, got.Benchmarks[1].Name
	if c := got.Comparisons[0]; first == second || c.Baseline != first || c.Candidate != second {
		t.Errorf("the benchmarks %s and %s are compared as %s and %s", first, second, c.Baseline, c.Candidate)
	}
	for i, g := range got.Data.Groups {
		if a, b := g.Lines[0], g.Lines[1]; a.Name != first || b.Name != second || a.Color == b.Color {
			t.Errorf("%s: lines %s of colour %d and %s of colour %d", got.Groups[i].Label, a.Name, a.Color, b.Name, b.Color)
		}
	}
	if e := got.Evidence.Columns; e[0].Of == e[2].Of {
		t.Errorf("the evidence of both is that of %s", e[0].Of)
	}
}

// Names that YAML reads as a number, a boolean or nothing stay names.
func TestManifest(t *testing.T) {
	for _, name := range []string{"vf", "123", "1e3", "true", "off", "null"} {
		b := export.Benchmark{Object: &v1alpha1.LatencyBenchmark{}}
		b.Object.Name, b.Object.Namespace = name, name
		manifest, err := manifestOf(b)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := yaml.Unmarshal([]byte(manifest), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]any{"name": name, "namespace": name}, got["metadata"]); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	var out bytes.Buffer
	if err := Write(&out, nil); !errors.Is(err, ErrNothingToShow) {
		t.Errorf("no benchmarks: %v", err)
	}
	corrupt := []export.Benchmark{measured(sample(t, "vf.yaml"), func(_ plan.Run, c *result.Cell) {
		c.Histogram = result.Histogram{Encoded: "nonsense", Count: 1}
	})}
	if err := Write(&out, corrupt); !errors.Is(err, result.ErrCorrupt) || out.Len() > 0 {
		t.Errorf("a histogram that cannot be read: %v, and %d bytes", err, out.Len())
	}
}

func TestGrid(t *testing.T) {
	points := grid()
	for i := 1; i < len(points); i++ {
		if fraction(points[i]) <= fraction(points[i-1]) {
			t.Fatalf("%v after %v", points[i], points[i-1])
		}
	}
	if n := len(points); n != pointsPerDecade*decades+4 {
		t.Errorf("%d points", n)
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{micros(1_234_567), "1,234.567"}, {micros(0), "0.000"}, {thousands(1_000), "1,000"}, {thousands(999), "999"}, {thousands(12_345_678), "12,345,678"},
		{needs(100_000).Text, "needs 10⁵"}, {needs(20).Text, "needs 20"}, {needs(1_000).Text, "needs 1,000"}, {needs(1_000_000_000).Title, "needs 1,000,000,000 samples"},
		{rounded(new(int64(57_000)), 1_000).Text, "57"}, {rounded(new(int64(28_500)), 500).Text, "28.5"}, {rounded(new(int64(28_500)), 0).Text, "28.500"}, {rounded(nil, 0).Text, "–"},
		{spread([]int64{5, 1, 9}), "5 (1 to 9)"}, {spread([]int64{-4, -4}), "-4"}, {spread(nil), missing},
		{seconds(113_700_000_000), "113.7 s"}, {seconds(39_441_250_000_000), "39441.25 s"}, {seconds(16_666_666), "0.016666 s"}, {seconds(0), "0 s"},
		{plural(1, "round"), "1 round"}, {plural(2, "round"), "2 rounds"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	for _, c := range []struct {
		value int64
		want  int
	}{{0, 0}, {499, 0}, {500, 1}, {949, 2}, {950, 3}, {1_000, 3}, {1_049, 3}, {1_050, 4}, {2_000, 7}, {3_999, 7}, {4_000, 8}, {4_000_000, 8}} {
		if got := level(c.value, 1_000); got != c.want {
			t.Errorf("level of %d is %d, want %d", c.value, got, c.want)
		}
	}
}
