package imported

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/tool/sfntpingpong"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// printed returns a benchmark in a form.
func printed(t *testing.T, b export.Benchmark, form string) string {
	t.Helper()
	f, err := report.FormNamed(form)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := f.Write(&out, b.Object, b.Runs); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// The form sfnt prints each number of the six published tables.
func TestPublishedSweeps(t *testing.T) {
	entries, err := Entries()
	if err != nil {
		t.Fatal(err)
	}
	tables := 0
	for _, e := range entries {
		if e.Tool != v1alpha1.ToolSfntPingpong {
			continue
		}
		tables++
		b, err := Named(e.Name)
		if err != nil {
			t.Fatal(err)
		}
		_, got, err := sfntpingpong.ParseTable([]byte(printed(t, b, "sfnt")))
		if err != nil {
			t.Fatal(err)
		}
		content, err := files.ReadFile("published/" + e.File)
		if err != nil {
			t.Fatal(err)
		}
		_, want, err := sfntpingpong.ParseTable(content)
		if err != nil || len(want) != 17 {
			t.Fatalf("%d rows, %v", len(want), err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", e.Name, diff)
		}
	}
	if tables != 6 {
		t.Errorf("%d tables, want 6", tables)
	}
}

// The form networks prints the 32 published figures.
func TestPublishedNetworks(t *testing.T) {
	b, err := Named("netperf-sparc-t7-1")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(printed(t, b, "networks")), " ")
	for _, want := range []string{
		"native 58.000 58.000 9100 9900 assigned 51.000 51.000 9400 9900 sr-iov 58.000 59.000 9400 9900 paravirtual 91.000 91.000 4800 9800 UDP",
		"native 57.000 57.000 9100 9900 assigned 51.000 51.000 9400 9900 sr-iov 66.000 63.000 9400 9900 paravirtual 98.000 97.000 4800 9800 Imported",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
}

// The form ladder prints the published latencies and events of each line of the six rounds.
func TestPublishedLadders(t *testing.T) {
	b, err := Named("ember-onload")
	if err != nil {
		t.Fatal(err)
	}
	got := printed(t, b, "ladder")
	text, err := os.ReadFile("../verdict/testdata/published-ladder.txt")
	if err != nil {
		t.Fatal(err)
	}
	compared, variant, round := 0, 0, 0
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), " : ")
		switch {
		case strings.HasPrefix(line, "Onload"):
			variant++
		case strings.HasPrefix(line, "Round "):
			round, _ = strconv.Atoi(strings.Trim(line, "Round :\n"))
		case len(fields) == 3 && fields[0] != "Percentile" && variant > 0:
			name := strings.Replace(strings.TrimSuffix(fields[0], ", TOTAL"), ".0%", "%", 1)
			table := strings.Split(got, "\n\n")[variant]
			for row := range strings.Lines(table) {
				if columns := strings.Fields(row); columns[0] == name {
					if columns[2*round-1] != fields[1]+"00" || columns[2*round] != fields[2] {
						t.Errorf("%s of round %d: %q, published %q", name, round, columns, fields)
					}
					compared++
				}
			}
		}
	}
	if compared != 6*11 {
		t.Errorf("%d lines compared, want 66", compared)
	}
}

// Each published result is complete, says that it is not proved, and has a source and notes that the API accepts. An export of it can
// be read, unless its tool is not one of the API.
func TestPublishedAreExports(t *testing.T) {
	entries, err := Entries()
	if err != nil || len(entries) != 8 {
		t.Fatalf("%d entries, %v", len(entries), err)
	}
	for _, e := range entries {
		b, err := Named(e.Name)
		if err != nil {
			t.Fatal(err)
		}
		if text := printed(t, b, "table"); !strings.Contains(text, "Imported: not measured by Tailgate") || !strings.Contains(text, "hardware: ") || strings.Contains(text, "PLACEMENT") {
			t.Errorf("%s is shown as\n%s", e.Name, text)
		}
		for _, n := range b.Object.Spec.Notes {
			if len(n.Value) > 256 {
				t.Errorf("%s: the note %s has %d characters", e.Name, n.Name, len(n.Value))
			}
		}
		if e.Tool == "Ember" {
			continue
		}
		dir := filepath.Join(t.TempDir(), e.Name)
		if _, err := export.Write(dir, b, false); err != nil {
			t.Fatal(err)
		}
		read, err := export.ReadDir(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(printed(t, b, "csv"), printed(t, read, "csv")); diff != "" {
			t.Errorf("%s (-in memory +read):\n%s", e.Name, diff)
		}
	}
	if _, err := Named("sfnt"); !errors.Is(err, ErrNotPublished) {
		t.Errorf("got %v", err)
	}
}

// A variant may have fewer rounds than another: it has no run in the others, and the rounds that it has are those of its file.
func TestVariantsOfUnequalRounds(t *testing.T) {
	f, err := Sfnt([]byte(table))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Result{Name: "x", Tool: v1alpha1.ToolSfntPingpong, LatencyType: f.LatencyType, Variants: []Variant{
		{Name: "a", Rounds: f.Rounds}, {Name: "b", Rounds: []Round{f.Rounds[0], f.Rounds[0]}},
	}}.Benchmark()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, run := range b.Runs {
		got = append(got, run.Client.Variant)
	}
	slices.Sort(got)
	if want := []string{"a", "b", "b"}; !slices.Equal(got, want) || len(b.Object.Status.Stored) != 3 || b.Object.Spec.Rounds != 2 {
		t.Errorf("runs of %v, want %v; %d stored, %d rounds", got, want, len(b.Object.Status.Stored), b.Object.Spec.Rounds)
	}
}

const table = `# cmdline: ./sfnt-pingpong tcp 192.0.2.1
# percentile=99
# reporting: 1/2 RTT
# tsc_hz: 2500000000
#	size	mean	min	median	max	%ile	stddev	iter
	1	1500	1400	1490	9000	1600	40	1000
`

func TestSfntRefuses(t *testing.T) {
	for name, c := range map[string]struct{ old, text, want string }{
		"another percentile":          {"percentile=99", "percentile=99.9", "percentile: its %ile is p99.9"},
		"no percentile":               {"# percentile=99\n", "", "percentile: "},
		"an unknown interval":         {"1/2 RTT", "one way", `it reports "one way"`},
		"neither":                     {"# reporting: 1/2 RTT\n", "", ""},
		"no protocol":                 {" tcp ", " pipe ", "cmdline: it names neither tcp nor udp"},
		"multicast over TCP":          {" tcp ", " --mcast=239.1.2.3 tcp ", "cmdline: it names neither tcp nor udp"},
		"several pings, apart":        {" tcp ", " --n-pings 4 tcp ", "cmdline: --n-pings is 4"},
		"an unknown option":           {" tcp ", " --burst=4 tcp ", "cmdline: --burst is none of the options"},
		"another size than asked for": {" tcp ", " --sizes=64,256 tcp ", "cmdline: --sizes does not name size 1"},
		"a size without a row":        {" tcp ", " --sizes=1,64 tcp ", "cmdline: --sizes names 2 sizes, and there are 1 rows"},
		"cut in its last number":      {"\t1000\n", "\t100", "line 6: the last line has no end"},
		"a clock that stands still":   {"2500000000", "0", "tsc_hz: its clock has no plausible rate"},
		"no rate of the clock":        {"# tsc_hz: 2500000000\n", "", "tsc_hz: its clock has no plausible rate"},
		"a whole round trip":          {" tcp ", " --rtt tcp ", "it reports 1/2 RTT, and its command line has --rtt: true"},
		"a second calibration":        {"# reporting", "# WARNING: tsc_hz changed to 1 on recheck\n# reporting", "tsc_hz changed"},
		"two command lines":           {"# reporting", "# cmdline: sfnt-pingpong udp h\n# reporting", "line 3: a second cmdline"},
		"two headings":                {"#	size", "#\tsize\tmean\tmin\tmedian\tmax\t%ile\tstddev\titer\n#\tsize", "a second heading"},
		"another tool":                {"median", "n_gaps", "it is a table of sfnt-stream"},
		"no rows":                     {"\t1\t1500", "# 1500", "0 rows"},
		"a row twice":                 {"\t1\t1500\t1400\t1490\t9000\t1600\t40\t1000\n", strings.Repeat("\t1\t1500\t1400\t1490\t9000\t1600\t40\t1000\n", 2), "size 1: it has two rows"},
		"a median above the largest":  {"1490", "9001", "size 1: its figures contradict"},
		"a mean below the smallest":   {"1500", "1399", "size 1: its figures contradict"},
		"no iterations":               {"\t1000\n", "\t0\n", "size 1: its figures contradict"},
		"a stall":                     {"1400", "-4", "size 1: its figures contradict"},
		"too long":                    {"9000", "30000000001", "size 1: a round trip took more than"},
		"a size that is no size":      {"\t1\t1500", "\t4294967296\t1500", "size 4294967296: "},
		"other columns":               {"median", "p50", "columns"},
		"a number with too few parts": {"\t40\t1000", "\t40", "7 columns, not 8"},
		"too many sizes": {"\t1\t1500\t1400\t1490\t9000\t1600\t40\t1000\n", func() (all string) {
			for i := range 33 {
				all += fmt.Sprintf("\t%d\t1500\t1400\t1490\t9000\t1600\t40\t1000\n", i)
			}
			return all
		}(), "33 rows"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(table, c.old, c.text, 1)
			if text == table {
				t.Fatal("nothing was changed")
			}
			f, err := Sfnt([]byte(text))
			if c.want == "" { // Older builds report half a round trip without saying so.
				if err != nil || f.LatencyType != v1alpha1.LatencyHalfRTT {
					t.Errorf("got %s, %v", f.LatencyType, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line with %q", err, c.want)
			}
		})
	}
}

func TestNanoseconds(t *testing.T) {
	h, err := Nanoseconds(strings.NewReader("1000\n 2000 \n3001\n"), v1alpha1.LatencyHalfRTT)
	if err != nil || h.Count != 3 || h.MinNs != 2000 || h.MaxNs != 6002 || h.SumNs != 12_002 {
		t.Errorf("got %+v, %v", h, err)
	}
	for text, want := range map[string]string{
		"": "no samples", "1000\n\n": "line 2", "1000\n-1\n": "line 2", "1000\n1.5\n": "line 2", "60000000001\n": "from 1 to 60000000000", "x\n": "line 1",
		"10000\n10001\n10": "line 3: the last line has no end", "1e4\n": "line 1", "0x1p13\n": "line 1", "+5\n": "line 1", "1_0\n": "line 1",
		strings.Repeat("1", 70_000): "line 1",
	} {
		if _, err := Nanoseconds(strings.NewReader(text), v1alpha1.LatencyRTT); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: got %v, want %q", text, err, want)
		}
	}
}

// log returns a histogram log with an interval for each list of samples.
func log(t testing.TB, least, most int64, digits int, intervals ...[]int64) string {
	t.Helper()
	var out bytes.Buffer
	w := hdr.NewHistogramLogWriter(&out)
	err := errors.Join(w.OutputLogFormatVersion(), w.OutputLegend())
	for _, samples := range intervals {
		h := hdr.New(least, most, digits)
		for _, s := range samples {
			err = errors.Join(err, h.RecordValue(s))
		}
		err = errors.Join(err, w.OutputIntervalHistogram(h))
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// payload returns the encoded histogram of samples.
func payload(t testing.TB, samples ...int64) string {
	text := strings.TrimSpace(log(t, 1, 60_000_000_000, 3, samples))
	return text[strings.LastIndex(text, ",")+1:]
}

func TestHistogramLog(t *testing.T) {
	text := log(t, 1, 3_600_000_000_000, 3, []int64{1000, 1500}, []int64{2_000_000, 2_500_000})
	all, f, err := HistogramLog(strings.NewReader(text), v1alpha1.LatencyHalfRTT)
	if err != nil || len(all) != 1 || all[0].Count != 4 || all[0].OverRange != 0 || all[0].MinNs != 2000 || !f.At.IsZero() {
		t.Fatalf("got %+v, %v", all, err)
	}
	if _, err := resulttest.Merge(all...); err != nil {
		t.Error(err)
	}
	own := "#[Tailgate: an interval is a round, in ns of whole round trips (RTT), shown as HalfRTT]\n"
	each, f, err := HistogramLog(strings.NewReader(own+text), "")
	if err != nil || len(each) != 2 || each[0].MinNs != 1000 || each[0].MaxNs != 1500 || f.LatencyType != v1alpha1.LatencyHalfRTT {
		t.Errorf("got %+v, %v", each, err)
	}
	// A log of HdrHistogram_c has an interval's end, and one tag is no obstacle.
	a, b := payload(t, 1000, 1500), payload(t, 2000)
	c := `"StartTimestamp","EndTimestamp","Interval_Max","Interval_Compressed_Histogram"` + "\nTag=A,5.0,6.0,1,"
	all, f, err = HistogramLog(strings.NewReader(c+a+"\nTag=A,5.9991,7.0,1,"+b+"\n"), v1alpha1.LatencyRTT)
	if err != nil || len(all) != 1 || all[0].Count != 3 || f.Notes["tag"] != "A" {
		t.Errorf("got %+v, %+v, %v", all, f, err)
	}
	for comment, whole := range map[string]bool{
		"#[Unit: µs]": false, "#[Unit: μs]": false, "#[values in μsec]": false, "#[micros]": false, "#[MILLIS]": false, "#[latency_us]": false,
		"#[Unit: seconds]": false, "#[latencies in micro sec]": false, "#[Unit: ticks]": false, `"Start","Interval_Length","Interval_Max_us","H"`: false,
		"#[latencyMicros]": false, "#[valueUnitRatio 7]": false, "#[StartTime: 1726000000.0 (seconds since epoch), in ms]": false, "#[Unit: 100 ns]": false,
		"#[values of 100ns]": false, "#[Pause of 5 ms before the run]": false, "#[Einheit s]": false, "#[timeUnit=MICROSECONDS]": false, "#[㎲]": false, "#[TSC counts]": false, "#[мкс]": false, "#[time in minutes]": false,
		"#[Unit: ns]": true, "#[latency_ns]": true, "#[unit nanoSeconds]": true, "#[values are nanoseconds]": true, "#[Unit: ns, nsec/nanos]": true,
		"#[BaseTime: 1726000000.0 (seconds since epoch)]": true, "#[Logged with jHiccup version 2.0.5]": true, "#[music of the spheres]": true, "#[the engine's log]": true,
	} {
		_, _, err := HistogramLog(strings.NewReader(comment+"\n0.0,1.0,1,"+a+"\n"), v1alpha1.LatencyRTT)
		if whole != (err == nil) || err != nil && !strings.Contains(err.Error(), "line 1: ") {
			t.Errorf("%s: %v", comment, err)
		}
	}
	for at, want := range map[string]int{"1726000000.474": 2024, "0.000": 1, "9999999999": 1, "12.5": 1} {
		_, f, err := HistogramLog(strings.NewReader("#[StartTime: "+at+" (seconds since epoch), x]\n0.0,1.0,1,"+a+"\n"), v1alpha1.LatencyRTT)
		if err != nil || f.At.Year() != want {
			t.Errorf("%s: %s, %v", at, f.At, err)
		}
	}
	line := text[strings.LastIndex(strings.TrimSpace(text), "\n")+1:]
	for name, c := range map[string]struct{ text, want string }{
		"coarse":                   {log(t, 1, 1_000_000, 2, []int64{9}), "3 significant digits"},
		"microseconds":             {log(t, 1000, 1_000_000_000, 3, []int64{9000}), "nanoseconds from 1"},
		"a value beyond a minute":  {log(t, 1, 3_600_000_000_000, 3, []int64{70_000_000_000}), "nanoseconds from 1 to 60000000000"},
		"no intervals":             {"#[Histogram log format version 1.3]\n", "no intervals"},
		"no histogram":             {"1,2,3,what\n", "line 1: reading its header"},
		"no interval":              {"hello\n", `line 1: "hello" is not an interval`},
		"a cut line":               {text[:len(text)-40], "reading its"},
		"a longer line":            {strings.Repeat("1", 2<<20), "line 1"},
		"more after a line":        {strings.TrimSpace(text) + "AAAA\n", "another line is in it"},
		"an interval twice":        {text + line, "line 5: it is the same interval as in line 4"},
		"two headings":             {text + text, "a second heading"},
		"two start times":          {"#[StartTime: 1 (seconds since epoch), x]\n#[StartTime: 2 (seconds since epoch), x]\n" + text, "line 2: it has a second StartTime"},
		"another unit":             {"#[Values are in microseconds]\n" + text, "line 1: "},
		"a tag among none":         {text + "Tag=READ," + line, "it has the series READ"},
		"cumulative intervals":     {"0.0,1.0,1," + a + "\n0.0,2.0,1," + b + "\n", "line 2: it begins at 0s, and the interval before ends at 1s"},
		"overlapping intervals":    {"0.0,1.0,1," + a + "\n0.9,1.0,1," + b + "\n", "line 2: it begins at 900ms"},
		"a run after another":      {"0.0,1.0,1," + a + "\n1.0,1.0,1," + b + "\n#[x]\n0.0,1.0,1," + b + "\n", "line 4: it begins at 0s"},
		"an interval in two ways":  {"0.0,1.0,1," + a + "\n0.000,1.000,1.0," + a + "\n", "line 2: it is the same interval as in line 1"},
		"the end before the start": {c + a + "\nTag=A,7.0,6.0,1," + b + "\n", "line 3: 7.0 and 6.0 are not"},
		"centuries":                {"9223372036,9223372036,1," + a + "\n", "line 1: 9223372036 and"},
		"no number":                {"1.2.3,1,1," + a + "\n", "line 1: 1.2.3 and 1 are not"},
		"two times of 1970":        {"#[StartTime: 0 (seconds since epoch), x]\n#[StartTime: 0 (seconds since epoch), x]\n", "line 2: it has a second StartTime"},
		"only empty intervals":     {"0.0,1.0,0," + payload(t) + "\n1.0,1.0,0," + payload(t) + "\n", "it has no samples"},
		"an export's empty round":  {own + log(t, 1, 60_000_000_000, 3, []int64{5}, nil), "round 2: it has no samples"},
		"two tags":                 {"Tag=A,0.0,1.0,1," + a + "\nTag=B,0.0,1.0,1," + b + "\n", "it has the series A, B"},
		"the largest bound":        {log(t, 1, math.MaxInt64, 3, []int64{5}), "highest trackable value is 9223372036854775807, and it can be at most 1125899906842624"},
		"a DoubleHistogram":        {"0.0,1.0,1,DHISTwAAAA\n", "line 1: its histogram is a DoubleHistogram: record integers"},
		"reduced by an export":     {own + log(t, 1, 60_000_000_000, 2, []int64{5}), "name the directory to get, compare and report"},
		"lost messages":            {own + "#[Tailgate: not in this log are 1 lost, 0 unrecorded and 0 out-of-range messages of round 1]\n" + text, "line 2: "},
		"captured times":           {"#[Tailgate: an interval is a round, in ns of captured times (InToOut)]\n" + text, "captured times cannot be imported"},
		"two logs of exports":      {own + own + text, "several exports"},
	} {
		if _, _, err := HistogramLog(strings.NewReader(c.text), v1alpha1.LatencyRTT); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// Whatever a file contains, the parsers return a result that can be stored and read, or an error.
func FuzzParse(f *testing.F) {
	f.Add([]byte(table))
	f.Add([]byte("1000\n2000\n"))
	f.Add([]byte(log(f, 1, 60_000_000_000, 3, []int64{1000, 2000})))
	f.Fuzz(func(t *testing.T, content []byte) {
		cell := result.Cell{Cell: tool.Cell{Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 1}}}
		var rounds []Round
		if f, err := Sfnt(content); err == nil {
			rounds = append(rounds, f.Rounds...)
		}
		if h, err := Nanoseconds(bytes.NewReader(content), v1alpha1.LatencyHalfRTT); err == nil {
			cell.Histogram = h
			rounds = append(rounds, Round{cell})
		}
		if all, _, err := HistogramLog(bytes.NewReader(content), v1alpha1.LatencyHalfRTT); err == nil {
			cell.Histogram = all[0]
			rounds = append(rounds, Round{cell})
		}
		for _, round := range rounds {
			b, err := Result{
				Namespace: "imported", Name: "x", Source: "a test", At: time.Unix(1, 0), Tool: v1alpha1.ToolSfntPingpong, LatencyType: v1alpha1.LatencyHalfRTT,
				Variants: []Variant{{Name: plan.DefaultVariant, Rounds: []Round{round}}},
			}.Benchmark()
			if err != nil {
				t.Fatal(err)
			}
			for _, form := range []string{"table", "json"} {
				if text := printed(t, b, form); !slices.Contains(strings.Fields(text), "sfnt-pingpong,") && form == "table" {
					t.Errorf("got %s", text)
				}
			}
		}
	})
}
