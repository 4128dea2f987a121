package custom

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

func cell(output v1alpha1.CustomOutput) tool.Cell {
	return tool.Cell{
		Name: "udp-64-at-100", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolUDP, MessageSize: 64, RatePerSecond: 100}, Duration: 3 * time.Second, Warmup: 500 * time.Millisecond,
		Custom: &v1alpha1.Custom{
			Image:  "registry.example.com/engine:1",
			Client: v1alpha1.CustomProgram{Command: []string{"/app/orders", "--to", "$(TAILGATE_PEER):$(TAILGATE_PORT)"}, Args: []string{"$(HOME)", "$(TAILGATE_OUTPUT)"}, CPUs: 2},
			Server: v1alpha1.CustomProgram{Command: []string{"/app/engine"}, Env: []v1alpha1.CustomVariable{{Name: "BOOK", Value: "a=b"}}},
			Output: output, Timeout: metav1.Duration{Duration: 5 * time.Second},
		},
	}
}

func TestCommands(t *testing.T) {
	d, c := New(), cell(v1alpha1.CustomOutput{Path: "out", Format: v1alpha1.CustomValues})
	target := tool.Target{Address: "192.0.2.2", LocalAddress: "192.0.2.1", Port: 22048, Interface: "net1", CPUs: []int{2, 3}, Scratch: "/scratch/x"}
	common := []string{
		"TAILGATE_PORT=22048", "TAILGATE_INTERFACE=net1", "TAILGATE_CPUS=2,3", "TAILGATE_PROTOCOL=UDP", "TAILGATE_GROUP=", "TAILGATE_SIZE=64", "TAILGATE_RATE=100",
		"TAILGATE_DURATION_MS=3000", "TAILGATE_WARMUP_MS=500", "TAILGATE_WAIT=Block", "TAILGATE_MUXER=None",
	}
	want := tool.Command{
		Path: "/app/orders", Args: []string{"--to", "192.0.2.2:22048", "$(HOME)", "/scratch/x/out"},
		Env: slices.Concat([]string{"TAILGATE_ROLE=client", "TAILGATE_ADDRESS=192.0.2.1", "TAILGATE_PEER=192.0.2.2"}, common, []string{"TAILGATE_OUTPUT=/scratch/x/out"}),
	}
	if diff := cmp.Diff(want, d.Client(c, target)); diff != "" {
		t.Errorf("client (-want +got):\n%s", diff)
	}
	want = tool.Command{Path: "/app/engine", Args: []string{}, Env: slices.Concat([]string{"TAILGATE_ROLE=server", "TAILGATE_ADDRESS=192.0.2.2", "TAILGATE_PEER=192.0.2.1"}, common, []string{"BOOK=a=b"})}
	if diff := cmp.Diff(want, d.Server(c, target)); diff != "" {
		t.Errorf("server (-want +got):\n%s", diff)
	}
	if got := d.Deadline(c); got != 8500*time.Millisecond {
		t.Errorf("a client may take %s", got)
	}
	if d.CPUs(c) != 2 || c.ServerCPUs() != 1 || d.Listens(c) != v1alpha1.ProtocolUDP {
		t.Error("CPUs or the protocol of the server")
	}
	if c.Custom.Ready = v1alpha1.ProtocolTCP; d.Listens(c) != v1alpha1.ProtocolTCP {
		t.Error("a server that is ready over TCP")
	}
	if c.Custom = nil; d.Validate(c) == nil {
		t.Error("a cell without a program is valid")
	}
}

// logOf returns an HdrHistogram log of samples, with a comment.
func logOf(t testing.TB, comment string, samples ...int64) string {
	t.Helper()
	h := hdr.New(1, 3_600_000_000_000, 3)
	var out bytes.Buffer
	w := hdr.NewHistogramLogWriter(&out)
	err := errors.Join(w.OutputLogFormatVersion(), w.OutputComment(comment), w.OutputLegend())
	for _, s := range samples {
		err = errors.Join(err, h.RecordValue(s))
	}
	if err := errors.Join(err, w.OutputIntervalHistogram(h)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func parse(c tool.Cell, content string, change func(*tool.Output)) (tool.Measurement, []int64, error) {
	var all []int64
	out := tool.Output{
		Stdout: []byte("begin\nlast words\n"), Clocks: tool.Clocks{Monotonic: 4 * time.Second},
		OpenRaw: func(name string) (io.ReadCloser, error) {
			if name != "out" {
				return nil, os.ErrNotExist
			}
			return io.NopCloser(strings.NewReader(content)), nil
		},
	}
	if change != nil {
		change(&out)
	}
	m, err := New().Parse(c, out, func(rtt, count int64) {
		for range count {
			all = append(all, rtt)
		}
	}, nil)
	return m, all, err
}

func TestParse(t *testing.T) {
	cases := map[string]struct {
		output  v1alpha1.CustomOutput
		content string
		want    []int64
		own     *tool.Own
	}{
		"ns":          {v1alpha1.CustomOutput{Format: "Values"}, "1000\n2000\n", []int64{1000, 2000}, nil},
		"µs":          {v1alpha1.CustomOutput{Format: "Values", Unit: "us"}, "1\n12.5\n 0.001 \n1e2\n", []int64{1000, 12_500, 1, 100_000}, nil},
		"ms":          {v1alpha1.CustomOutput{Format: "Values", Unit: "ms"}, "0.25\n", []int64{250_000}, nil},
		"s":           {v1alpha1.CustomOutput{Format: "Values", Unit: "s"}, "0.000001\n", []int64{1000}, nil},
		"a log":       {v1alpha1.CustomOutput{Format: "HdrHistogram"}, logOf(t, "", 1000, 1000, 2000), []int64{1000, 1000, 2000}, nil},
		"a log of µs": {v1alpha1.CustomOutput{Format: "HdrHistogram", Unit: "us"}, logOf(t, "[in usec]", 20, 40), []int64{19_996, 39_984}, nil},
		"a table, halves": {v1alpha1.CustomOutput{Format: "SfntPingpong"}, sfntTable, nil, &tool.Own{
			Count: 1000, MeanNs: 4000, MinNs: 2000, MaxNs: 20_000, StdDevNs: 200, P50Ns: 3800, P99Ns: 10_000, StepNs: 2,
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.output.Path = "out"
			m, got, err := parse(cell(c.output), c.content, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.own, m.Own); diff != "" {
				t.Errorf("own (-want +got):\n%s", diff)
			}
			near := slices.EqualFunc(c.want, got, func(a, b int64) bool { return a-b <= a/1000 && b-a <= a/1000 })
			if !near || len(m.Figures) != 2 {
				t.Errorf("%v, want %v; %v", got, c.want, m.Figures)
			}
		})
	}
}

const sfntTable = `# cmdline: sfnt-pingpong tcp 192.0.2.2
# version: 1.5.0
# reporting: 1/2 RTT
# percentile: 99
# tsc_hz: 2500000000
#	size	mean	min	median	max	%ile	stddev	iter
	64	2000	1000	1900	10000	5000	100	1000
`

func TestParseRefuses(t *testing.T) {
	values := v1alpha1.CustomOutput{Format: "Values", Path: "out"}
	micro := v1alpha1.CustomOutput{Format: "Values", Path: "out", Unit: "us"}
	log := v1alpha1.CustomOutput{Format: "HdrHistogram", Path: "out"}
	table := v1alpha1.CustomOutput{Format: "SfntPingpong", Path: "out"}
	cases := map[string]struct {
		output        v1alpha1.CustomOutput
		content, says string
		change        func(*tool.Output)
	}{
		"a part of a ns":           {values, "1000\n1.5\n", "line 2", nil},
		"a header":                 {values, "latency\n1\n", "line 1", nil},
		"an empty line":            {values, "1\n\n", "line 2", nil},
		"less than a ns":           {micro, "0.0001\n", "line 1", nil},
		"more than a minute":       {micro, "60000001\n", "line 1", nil},
		"NaN of a larger unit":     {micro, "nan\n", "line 1", nil},
		"infinity":                 {micro, "inf\n", "line 1", nil},
		"a number that is too big": {micro, "1e400\n", "line 1", nil},
		"µs, read as ns":           {values, "31\n25\n28\n", "its mean round trip is 28 ns, and no two nodes are so near: the unit of its numbers is not ns", nil},
		"longer than it ran":       {micro, "4000001\n", "ran for 4s: the unit of its numbers is not us", nil},
		"another unit in the log":  {log, logOf(t, "[values are in microseconds]", 20), "another unit", nil},
		"a log without samples":    {log, logOf(t, ""), "no latencies", nil},
		"values instead of a log":  {log, "1000\n", "line 1", nil},
		"an export's log":          {log, strings.Replace(logOf(t, "x", 20), "#x", "#[Tailgate: an interval is a round, in ns of whole round trips (RTT), shown as RTT]", 1), "export", nil},
		"no table":                 {table, "hello\n", "0 rows", nil},
		"a row of another size":    {table, strings.Replace(sfntTable, "\t64\t", "\t128\t", 1), "and none of 64 bytes", nil},
		"a table without a clock":  {table, strings.Replace(sfntTable, "# tsc_hz: 2500000000\n", "", 1), "no plausible rate", nil},
		"a table that was cut":     {table, strings.TrimSuffix(sfntTable, "0\n"), "line 7: the last line has no end", nil},
		"a list that was cut":      {values, "1000\n10", "line 2: the last line has no end", nil},
		"a hexadecimal number":     {micro, "0x1p3\n", "line 1", nil},
		"a p95 as the percentile":  {table, strings.Replace(sfntTable, "percentile: 99", "percentile: 95", 1), "p95", nil},
		"too much":                 {values, strings.Repeat("1000000000\n", mostOutput/11+1), "more than 256 MiB", nil},
		"another name":             {v1alpha1.CustomOutput{Format: "Values", Path: "other"}, "", "left no output", nil},
		"an exit code":             {values, "1\n", "exit code 4", func(o *tool.Output) { o.ExitCode = 4 }},
		"words on standard error":  {values, "x\n", "printed last: order 17 rejected", func(o *tool.Output) { o.Stderr = []byte("\norder 17 rejected\n") }},
		"last lines":               {values, "x\n", "begin | last words", nil},
		"silence":                  {values, "x\n", "printed last: nothing", func(o *tool.Output) { o.Stdout = nil }},
		"output that was cut":      {v1alpha1.CustomOutput{Format: "Values"}, "", "output.path", func(o *tool.Output) { o.Truncated = true }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, _, err := parse(cell(c.output), c.content, c.change)
			var failure *tool.Failure
			if !errors.As(err, &failure) || failure.Reason != v1alpha1.OutcomeToolFailed || !strings.Contains(failure.Message, c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for i, content := range []string{"1000\n2000\n", logOf(f, "", 1000), sfntTable, "NaN\n", "-1\n", ""} {
		f.Add(content, uint8(i))
	}
	formats := []v1alpha1.CustomFormat{v1alpha1.CustomValues, v1alpha1.CustomHdrHistogram, v1alpha1.CustomSfntPingpong}
	f.Fuzz(func(t *testing.T, content string, which uint8) {
		output := v1alpha1.CustomOutput{Format: formats[int(which)%3], Path: "out", Unit: []string{"ns", "us", "ms", "s"}[int(which/3)%4]}
		m, err := New().Parse(cell(output), tool.Output{
			Clocks: tool.Clocks{Monotonic: 4 * time.Second}, OpenRaw: func(string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil },
		}, func(rtt, count int64) {
			if rtt < 1 || rtt > int64(time.Minute) || count < 1 {
				t.Errorf("recorded %d of %d", count, rtt)
			}
		}, nil)
		if err == nil && (len(m.Figures) != 2 || m.Own != nil && m.Own.Count < 1) {
			t.Error(fmt.Sprint(m))
		}
	})
}
