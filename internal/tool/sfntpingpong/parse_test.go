package sfntpingpong

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// session is the output of a client, for tests to corrupt.
type session struct {
	header  string
	raw     []int64
	row     Row
	tail    string // after the last sample
	noRaw   bool
	exit    int
	stderr  string
	rawName string
}

// tcp64Session returns a measurement of tcp64 with samples of 10 µs.
func tcp64Session() *session {
	s := &session{header: "# cmdline: sfnt-pingpong --rtt tcp h\n# version: 1.6.0\n# src: abc\n# tsc_hz: 2499984086\n# percentile=99\n# reporting: RTT\n", rawName: "raw-64.dat"}
	for range 350_000 {
		s.raw = append(s.raw, 10_000)
	}
	return s.summed()
}

// summed adjusts the row to the samples.
func (s *session) summed() *session {
	s.row = Row{Size: 64, Mean: 10_000, Median: 10_000, Percentile: 10_000, Iterations: int64(len(s.raw)), Min: s.raw[0], Max: s.raw[0]}
	for _, v := range s.raw {
		s.row.Min, s.row.Max = min(s.row.Min, v), max(s.row.Max, v)
	}
	for _, of := range []*int64{&s.row.Mean, &s.row.Median, &s.row.Percentile} {
		*of = min(max(*of, s.row.Min), s.row.Max)
	}
	return s
}

func (s *session) output() tool.Output {
	var raw bytes.Buffer
	for _, v := range s.raw {
		fmt.Fprintln(&raw, v)
	}
	raw.WriteString(s.tail)
	r := s.row
	return tool.Output{
		Stdout: fmt.Appendf(nil, "%s#\n#\tsize\tmean\tmin\tmedian\tmax\t%%ile\tstddev\titer\n\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n",
			s.header, r.Size, r.Mean, r.Min, r.Median, r.Max, r.Percentile, r.StdDev, r.Iterations),
		Stderr: []byte(s.stderr), ExitCode: s.exit,
		OpenRaw: func(name string) (io.ReadCloser, error) {
			if s.noRaw || name != s.rawName {
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			return io.NopCloser(&raw), nil
		},
	}
}

func parse(c tool.Cell, out tool.Output) ([]int64, tool.Measurement, error) {
	var samples []int64
	m, err := New().Parse(c, out, func(rtt, _ int64) { samples = append(samples, rtt) }, nil)
	return samples, m, err
}

func TestParse(t *testing.T) {
	s := tcp64Session()
	s.raw[49_999], s.raw[50_000], s.raw[349_999] = 10_001, 10_002, 10_003
	samples, m, err := parse(tcp64, s.summed().output())
	if err != nil {
		t.Fatal(err)
	}
	// 500 ms of 3.5 s are warm-up: the first 50,000 of 350,000 samples. The sums are a nanosecond off there.
	if len(samples) != 300_000 || samples[0] != 10_002 || samples[len(samples)-1] != 10_003 {
		t.Errorf("%d samples from %d to %d", len(samples), samples[0], samples[len(samples)-1])
	}
	want := tool.Measurement{Version: "1.6.0 (src abc)", Figures: []tool.Figure{
		{Name: "mean (ns, RTT)", Value: "10000"}, {Name: "min (ns, RTT)", Value: "10000"}, {Name: "median (ns, RTT)", Value: "10000"}, {Name: "max (ns, RTT)", Value: "10003"},
		{Name: "percentile 99 (ns, RTT)", Value: "10000"}, {Name: "stddev (ns, RTT)", Value: "0"}, {Name: "iterations", Value: "350000"}, {Name: "tsc_hz", Value: "2499984086"},
	}}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestParseCaptured(t *testing.T) {
	// The output of a build that supported --rtt but ran without it: raw samples are half round trips.
	stdout, stderr := captured(t, "raw.txt")
	lines := bytes.SplitAfter(stdout, []byte("\n"))
	kept := bytes.Join(lines[:len(lines)-2], nil) // the second row is of another size
	raw, err := os.ReadFile("testdata/raw-1.dat")
	if err != nil {
		t.Fatal(err)
	}
	cell := tool.Cell{Traffic: v1alpha1.Traffic{Protocol: "TCP", MessageSize: 1}, Duration: 20 * time.Millisecond, Warmup: 10 * time.Millisecond}
	out := tool.Output{Stdout: bytes.Replace(kept, []byte("2889\t3567\t1601462\t8146\t8373\t38000"), []byte("2926\t3567\t29553\t8146\t8373\t4000"), 1), Stderr: stderr,
		OpenRaw: func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }}
	samples, m, err := parse(cell, out)
	if err != nil {
		t.Fatal(err)
	}
	var elapsed int64
	var want []int64
	for line := range strings.Lines(string(raw)) {
		v, err := strconv.ParseInt(strings.TrimSuffix(line, "\n"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if elapsed >= int64(10*time.Millisecond) && elapsed < int64(30*time.Millisecond) {
			want = append(want, 2*v)
		}
		elapsed += 2 * v
	}
	if diff := cmp.Diff(want, samples); diff != "" || len(samples) < 1000 {
		t.Errorf("%d samples, -want +got:\n%s", len(samples), diff)
	}
	if m.Version != "bd7b04c-modified (src 799b5332e00ece1103853ac32418f51d)" || m.Figures[0] != (tool.Figure{Name: "mean (ns, half RTT)", Value: "3975"}) {
		t.Errorf("version %q, figures %v", m.Version, m.Figures)
	}
}

func TestParseDoublesHalves(t *testing.T) {
	s := tcp64Session()
	s.header = "# cmdline: sfnt-pingpong tcp h\n# version: 1.5.0\n# tsc_hz: 2500000000\n"
	for i := range s.raw {
		s.raw[i] = 5_000
	}
	samples, _, err := parse(tcp64, s.summed().output())
	if err != nil {
		t.Fatal(err)
	}
	if len(samples) != 300_000 || samples[0] != 10_000 {
		t.Errorf("%d samples of %d", len(samples), samples[0])
	}
}

func TestParseWarns(t *testing.T) {
	s := tcp64Session()
	s.header += "# WARNING: the moon is full\n# LD_PRELOAD=libonload.so\n"
	_, m, err := parse(tcp64, s.output())
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Warnings) != 1 || !strings.Contains(m.Warnings[0], "the moon is full") {
		t.Errorf("warnings %q", m.Warnings)
	}
}

func TestParseWrongClock(t *testing.T) {
	right := tool.Clocks{Raw: 5 * time.Second, Monotonic: 5 * time.Second, Wall: 5 * time.Second, Ticks: 12_500_000_000}
	cases := map[string]struct {
		spoil func(*session, *tool.Clocks)
		says  string
	}{
		"as it should be":                       {func(*session, *tool.Clocks) {}, ""},
		"an agent that cannot read the counter": {func(_ *session, c *tool.Clocks) { c.Ticks = 0 }, ""},
		"NTP corrects the rate":                 {func(_ *session, c *tool.Clocks) { c.Monotonic += c.Raw / 2000 }, ""},
		"the wall clock is set":                 {func(_ *session, c *tool.Clocks) { c.Wall += time.Hour }, ""},
		"a slewed clock":                        {func(_ *session, c *tool.Clocks) { c.Monotonic += c.Raw / 100 }, "the clock by which it measures advanced by 5.05s"},
		"a calibration that is 1 % too high":    {func(_ *session, c *tool.Clocks) { c.Ticks -= c.Ticks / 100 }, "but it made 2475000000"},
		"a calibration that is 1 % too low":     {func(_ *session, c *tool.Clocks) { c.Ticks += c.Ticks / 100 }, "but it made 2525000000"},
		"a second calibration that differs":     {func(s *session, _ *tool.Clocks) { s.header += "# WARNING: tsc_hz changed to 2600000000 on recheck\n" }, "and then: tsc_hz changed to 2600000000"},
		"a second calibration that overflowed": {func(s *session, c *tool.Clocks) {
			s.header += "# WARNING: tsc_hz changed to 103260805 on recheck\n"
			*c = tool.Clocks{Raw: 8 * time.Second, Monotonic: 8 * time.Second, Wall: 8 * time.Second, Ticks: 20_000_000_000}
		}, "cannot measure a path of this length"},
		"a header without a rate":                {func(s *session, _ *tool.Clocks) { s.header = strings.ReplaceAll(s.header, "tsc_hz", "x") }, "no plausible rate"},
		"round trips that do not fit their time": {func(s *session, _ *tool.Clocks) { s.raw = slices.Repeat(s.raw, 2) }, "began its last messages within"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, clocks := tcp64Session(), right
			s.header = strings.TrimRight(s.header, "\n") + "\n"
			if !strings.Contains(s.header, "tsc_hz") {
				s.header += "# tsc_hz: 2500000000\n"
			}
			c.spoil(s, &clocks)
			out := s.summed().output()
			out.Clocks = clocks
			_, _, err := parse(tcp64, out)
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

func TestParseFails(t *testing.T) {
	cases := map[string]struct {
		spoil func(*session)
		says  string
	}{
		"no row":                                         {func(s *session) { s.row.Size = 1 }, "not the one of 64 bytes"},
		"no samples":                                     {func(s *session) { s.noRaw = true }, "left no samples"},
		"fewer samples than measured":                    {func(s *session) { s.raw = s.raw[1:] }, "scratch volume full"},
		"a sample without its line's end":                {func(s *session) { s.tail = "10000" }, "cannot be read"},
		"a sample that is not a number":                  {func(s *session) { s.tail = "1e4\n" }, "not a number"},
		"a sample with a plus sign":                      {func(s *session) { s.tail = "+5\n" }, "not a number"},
		"an empty line":                                  {func(s *session) { s.tail = "\n" }, "not a number"},
		"a sample of many digits":                        {func(s *session) { s.tail = "1000000000000000000000\n" }, "not a number"},
		"a line without end":                             {func(s *session) { s.tail = strings.Repeat("1", 1<<20) }, "cannot be read"},
		"samples of another minimum":                     {func(s *session) { s.raw[9] = 9_999 }, "its table says"},
		"samples of another maximum":                     {func(s *session) { s.raw[9] = 10_001 }, "its table says"},
		"a negative minimum, as of 1.5.0":                {func(s *session) { s.row.Min = -896451469 }, "overflowed"},
		"a negative sample, as of 1.5.0":                 {func(s *session) { s.raw[9] = -896451469 }, "overflowed"},
		"a sample of no time":                            {func(s *session) { s.raw[9] = 0 }, "overflowed"},
		"a sample of centuries":                          {func(s *session) { s.raw[9] = 1e17 }, "overflowed"},
		"a stall that became a small number":             {func(s *session) { s.raw = s.raw[:200_000]; s.raw[9] = 353_000_000; s.summed() }, "a stall is not among them"},
		"neither RTT nor half of it":                     {func(s *session) { s.header = "# reporting: one-way\n" }, "neither RTT"},
		"nothing says whether it is half the round trip": {func(s *session) { s.header = "" }, "does not contain whether"},
		"other columns":                                  {func(s *session) { s.header = "# size time\n" }, "columns"},
		"stopped right after the warm-up": {func(s *session) {
			s.raw = s.raw[:1]
			s.raw[0] = int64(4 * time.Second)
			s.raw = append(s.raw, 1)
			s.summed()
		}, "no message after the warm-up"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := tcp64Session()
			c.spoil(s)
			_, _, err := parse(tcp64, s.output())
			if f := asFailure(t, err); !strings.Contains(f.Message, c.says) || strings.Contains(f.Message, "\n") {
				t.Errorf("says %q, not %q", f.Message, c.says)
			}
		})
	}
}

// TestCapturedFailures reads the captured failures, which are in one file.
func TestCapturedFailures(t *testing.T) {
	b, err := os.ReadFile("testdata/failures.txt")
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	for _, section := range strings.Split(string(b), "### ")[1:] {
		number, rest, _ := strings.Cut(section, ". ")
		said[number], _, _ = strings.Cut(rest, "-- server:")
	}
	udp := tcp64
	udp.Protocol = "UDP"
	cases := map[string]struct {
		section string
		cell    tool.Cell
		exit    int
		says    []string
	}{
		"no server listens":        {"1", tcp64, 3, []string{"no server listened for 10s", "111 Connection refused"}},
		"no way":                   {"1b", tcp64, 3, []string{"no route to the server", "113 No route to host"}},
		"no such name":             {"1c", tcp64, 3, []string{"Temporary failure in name resolution"}},
		"server killed, TCP":       {"2a", tcp64, 3, []string{"server ended before the test", "104 Connection reset by peer"}},
		"server killed, UDP":       {"2d", udp, 3, []string{"no answer within 2s", "datagram was lost", "errno=(11 "}},
		"no answer, TCP":           {"2d", tcp64, 3, []string{"no answer within 2s", "stalled"}},
		"a CPU it may not run on":  {"5b", tcp64, 2, []string{"may not run on the CPU", "core 7"}},
		"the server's CPU":         {"5", tcp64, 3, []string{"server ended before the test"}},
		"different builds":         {"6", tcp64, 2, []string{"different builds; use one bench image", "client=bd7b04c-modified server=no-version"}},
		"an option it has not":     {"7", tcp64, 1, []string{"does not accept its options", "--nosuch"}},
		"a datagram that was lost": {"9b", udp, 3, []string{"a datagram was lost"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if said[c.section] == "" {
				t.Fatalf("no section %s", c.section)
			}
			_, _, err := parse(c.cell, tool.Output{ExitCode: c.exit, Stderr: []byte(said[c.section])})
			f := asFailure(t, err)
			for _, says := range append(c.says, fmt.Sprintf("exit code %d", c.exit)) {
				if !strings.Contains(f.Message, says) {
					t.Errorf("%q does not say %q", f.Message, says)
				}
			}
			for _, not := range []string{"\n", "sfnt-pingpong.c:", "Test failed"} {
				if strings.Contains(f.Message, not) {
					t.Errorf("%q says %q", f.Message, not)
				}
			}
		})
	}
}

func TestOtherFailures(t *testing.T) {
	cases := map[string]struct {
		exit         int
		stderr, says string
	}{
		"killed":            {-1, "", "unexpected way"},
		"no memory":         {3, "ERROR: at sfnt-pingpong.c:1409\nERROR: (results != NULL) failed\n", "placement.memory"},
		"a full disk":       {3, "ERROR: Could not open output file '/scratch/raw-1.dat'\n", "cannot write its samples"},
		"too long a packet": {3, "ERROR: rc=-1 sz=65000 errno=(90 Message too long)\n", "64 bytes are too long"},
		"set up":            {2, "ERROR: Could not bind to 'x'\n", "could not set the test up"},
		"nothing said":      {3, "", "the test failed"},
		"very much said":    {3, "ERROR: " + strings.Repeat("µ", 5_000), "…"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, _, err := parse(tcp64, tool.Output{ExitCode: c.exit, Stderr: []byte(c.stderr)})
			if f := asFailure(t, err); !strings.Contains(f.Message, c.says) || len(f.Message) > 600 {
				t.Errorf("says %q, not %q", f.Message, c.says)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	raw, err := os.ReadFile("testdata/raw-1.dat")
	if err != nil {
		f.Fatal(err)
	}
	raw = raw[:len("3800\n3559\n3565\n")]
	for _, name := range []string{"tcp.txt", "udp.txt", "rtt.txt", "raw.txt", "avoidfork.txt", "1.5.0-tcp.txt",
		published + "sfnt-e5-2620v4-full-feature.txt", published + "sfnt-e5-2620v4-vm.txt"} {
		stdout, stderr := captured(f, name)
		f.Add(stdout, stderr, raw, 0, int32(64))
	}
	f.Add([]byte("# reporting: RTT\n\t1\t3641\t3559\t3565\t3800\t3800\t112\t3\n"), []byte{}, raw, 0, int32(1))
	failures, err := os.ReadFile("testdata/failures.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{}, failures, []byte{}, 3, int32(1))
	f.Fuzz(func(t *testing.T, stdout, stderr, raw []byte, exit int, size int32) {
		cell := tool.Cell{Traffic: v1alpha1.Traffic{Protocol: "UDP", MessageSize: size}, Duration: 5 * time.Microsecond, Warmup: time.Microsecond}
		out := tool.Output{Stdout: stdout, Stderr: stderr, ExitCode: exit, OpenRaw: func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }}
		samples, m, err := parse(cell, out)
		if err != nil {
			var failure *tool.Failure
			if !errors.As(err, &failure) || strings.Contains(failure.Message, "\n") || failure.Message == "" {
				t.Errorf("got %v", err)
			}
			return
		}
		if len(samples) == 0 || exit != 0 {
			t.Errorf("%d samples of exit code %d: %+v", len(samples), exit, m)
		}
		for _, s := range samples {
			if s <= 0 {
				t.Errorf("a sample of %d ns", s)
			}
		}
	})
}

// BenchmarkParse parses a million samples from the file into a histogram.
func BenchmarkParse(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	s := tcp64Session()
	s.raw = nil
	for range 1_000_000 {
		s.raw = append(s.raw, 3_000+random.Int64N(1_000)+random.Int64N(2)*random.Int64N(30_000))
	}
	s.summed()
	cell := tcp64
	cell.Duration = time.Minute
	cell.Warmup = 0
	var file bytes.Buffer
	for _, v := range s.raw {
		fmt.Fprintln(&file, v)
	}
	s.raw = s.raw[:1]
	out := s.output()
	out.OpenRaw = func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(file.Bytes())), nil }
	cell.Duration = 10 * time.Second
	for b.Loop() {
		r := result.NewRecorder()
		if _, err := New().Parse(cell, out, r.RecordN, nil); err != nil {
			b.Fatal(err)
		}
		if _, err := r.Histogram(); err != nil {
			b.Fatal(err)
		}
	}
}

// The sum of the samples stays a time: a file that would make it negative is refused at the sample that does.
func TestSamplesOfCenturies(t *testing.T) {
	for elapsed, fails := range map[int64]bool{math.MaxInt64 - 20_000: false, math.MaxInt64 - 19_999: true, math.MaxInt64: true, 0: false} {
		w := &window{elapsed: elapsed, record: func(int64, int64) {}}
		if err := w.addLine(1, []byte("10000")); (err != nil) != fails || w.elapsed < elapsed {
			t.Errorf("after %d ns: %v, then %d ns", elapsed, err, w.elapsed)
		}
	}
}
