package sfntstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// session is a run of the tool, computed as its source computes it, for tests to corrupt. Times are ticks of a clock of
// 2.5 GHz; at one message per millisecond the interval is 2.5 million ticks.
type session struct {
	cell     tool.Cell
	messages []message
	restarts int
	header   string
	row      row // nil: computed from the messages
	heading  string
	tail     string // after the last sample
	noRaw    bool
	exit     int
	stderr   string
}

// message is a message that was sent.
type message struct {
	due, late, rtt uint64
	// dropped: lost on the way to the server; lost: lost on the way back.
	dropped, lost bool
	// twice: its answer arrives again, at once.
	twice bool
}

const (
	hz  = 2_500_000_000
	tsc = "# tsc_hz: 2500000000\n"
)

// newSession returns a session in which all messages of a cell are sent on time and answered after 10 µs.
func newSession(c tool.Cell) *session {
	s := &session{cell: c, header: "# cmdline: sfnt-stream --rtt udp h\n# version: 1.6.0\n# src: abc\n" + tsc + "# percentile=99\n# reporting: RTT\n# msgsize=64\n# return_latency=4999\n",
		heading: "#send-target(ns)\tsend-actual(ns)\tlatency(ns)\n"}
	ticks := hz / uint64(c.RatePerSecond)
	for due := uint64(0); due <= uint64(scheduleOf(c).ms)*hz/1000; due += ticks {
		s.messages = append(s.messages, message{due: due, rtt: 25_000})
	}
	return s
}

// hold delays the sender by this many ticks at message n. The sender then catches up at once, without reading the
// clock.
func (s *session) hold(n int, ticks uint64) {
	until := s.messages[n].due + ticks
	for i := n; i < len(s.messages) && s.messages[i].due < until; i++ {
		s.messages[i].late = until - s.messages[i].due
	}
}

// ns converts ticks as the tool does, including its overflow.
func ns(ticks uint64) uint64 { return ticks * 1_000_000_000 / hz }

func seconds(ns uint64) string { return fmt.Sprintf("%d.%09d", ns/1e9, ns%1e9) }

func (s *session) output() tool.Output {
	every := int(scheduleOf(s.cell).every)
	var raw bytes.Buffer
	raw.WriteString(s.heading)
	r := make(row, len(columns))
	drops, least, most, pending := int64(0), int64(1)<<62, int64(0), false
	for i, m := range s.messages {
		pending = pending || (i+1)%every == 0
		if m.dropped {
			drops++
			continue
		}
		if !pending {
			continue
		}
		pending = false
		if m.lost {
			continue
		}
		// A message that is late by 2³² ticks appears to be on time.
		intended := m.due + m.late - uint64(uint32(m.late))
		for range map[bool]int{false: 1, true: 2}[m.twice] {
			fmt.Fprintf(&raw, "%s\t%s\t%s\n", seconds(ns(intended)), seconds(ns(m.due+m.late)), seconds(ns(m.rtt)))
			r[9]++
		}
		least, most = min(least, int64(ns(m.rtt))), max(most, int64(ns(m.rtt)))
	}
	raw.WriteString(s.tail)
	ms := scheduleOf(s.cell).ms
	sent := int64(len(s.messages))
	r[0], r[1], r[2] = int64(s.cell.RatePerSecond), sent*1000/ms, (sent-drops)*1000/ms
	r[4], r[6], r[13], r[15] = least, most, int64(s.restarts), drops
	if s.row != nil {
		r = s.row
	}
	line := strings.Trim(fmt.Sprint([]int64(r)), "[]")
	return tool.Output{
		Stdout: []byte(s.header + "#\n#mps\tmps\n#" + strings.Join(columns, "\t") + "\n" + strings.ReplaceAll(line, " ", "\t") + "\n"),
		Stderr: []byte(s.stderr), ExitCode: s.exit,
		OpenRaw: func(name string) (io.ReadCloser, error) {
			if want := fmt.Sprintf("raw-%d-%d.dat", s.cell.MessageSize, s.cell.RatePerSecond); s.noRaw || name != want {
				return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
			}
			return io.NopCloser(&raw), nil
		},
	}
}

func parse(c tool.Cell, out tool.Output) ([]int64, tool.Measurement, error) {
	samples, _, m, err := parseBoth(c, out)
	return samples, m, err
}

// parseBoth returns the samples from the intended and from the actual start.
func parseBoth(c tool.Cell, out tool.Output) (samples, actual []int64, m tool.Measurement, err error) {
	m, err = New().Parse(c, out, func(rtt, _ int64) { samples = append(samples, rtt) }, func(rtt, _ int64) { actual = append(actual, rtt) })
	return samples, actual, m, err
}

// second is a cell of 100 messages of warm-up and 1,000 that count.
var second = with(func(c *tool.Cell) {
	c.RatePerSecond, c.Warmup, c.Duration = 1_000, 100*time.Millisecond, time.Second
})

func TestParse(t *testing.T) {
	s := newSession(second)
	s.messages[99].rtt, s.messages[100].rtt, s.messages[1_099].rtt, s.messages[1_100].rtt = 27_500, 2_500, 250_000, 30_000
	samples, actual, m, err := parseBoth(second, s.output())
	if err != nil {
		t.Fatal(err)
	}
	if len(samples) != 1_000 || samples[0] != 1_000 || samples[999] != 100_000 || samples[500] != 10_000 {
		t.Errorf("%d samples from %d to %d", len(samples), samples[0], samples[len(samples)-1])
	}
	if len(actual) != 1_000 || actual[999] != 100_000 {
		t.Errorf("from the actual start: %d samples", len(actual))
	}
	want := tool.Measurement{Version: "1.6.0 (src abc)", Start: tool.StartIntended,
		Bandwidth: &tool.Bandwidth{BitsPerSecond: 1_000 * 64 * 8, SentBitsPerSecond: 1_000 * 64 * 8},
		Figures: []tool.Figure{
			{Name: "target (messages/s)", Value: "1000"}, {Name: "send (messages/s)", Value: "1000"}, {Name: "recv (messages/s)", Value: "1000"},
			{Name: "mean (ns, RTT)", Value: "0"}, {Name: "min (ns, RTT)", Value: "1000"}, {Name: "median (ns, RTT)", Value: "0"}, {Name: "max (ns, RTT)", Value: "100000"},
			{Name: "percentile 99 (ns, RTT)", Value: "0"}, {Name: "stddev (ns, RTT)", Value: "0"}, {Name: "samples", Value: "1157"},
			{Name: "sendjit mean (ns)", Value: "0"}, {Name: "sendjit min (ns)", Value: "0"}, {Name: "sendjit max (ns)", Value: "0"}, {Name: "behind", Value: "0"},
			{Name: "n_gaps", Value: "0"}, {Name: "n_drops", Value: "0"}, {Name: "n_ooo", Value: "0"},
			{Name: "return_latency (ns, half RTT when idle)", Value: "4999"}, {Name: "tsc_hz", Value: "2500000000"},
		}}
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A delayed sender shows in the samples measured from the intended start, but not in those measured from the actual
// start.
func TestParseDelayedSender(t *testing.T) {
	s := newSession(second)
	s.hold(600, 200*hz/1000)
	samples, actual, m, err := parseBoth(second, s.output())
	if err != nil {
		t.Fatal(err)
	}
	// Message 600 is the 501st that counts. The next message is a millisecond less late.
	want := []int64{10_000, 200_010_000, 199_010_000, 198_010_000}
	if diff := cmp.Diff(want, samples[499:503]); diff != "" || samples[700] != 10_000 {
		t.Errorf("-want +got:\n%s", diff)
	}
	for i, rtt := range actual {
		if rtt != 10_000 {
			t.Fatalf("from the actual start, sample %d: %d", i, rtt)
		}
	}
	if m.Lost != 0 || len(m.Warnings) != 0 {
		t.Errorf("lost %d, warnings %q", m.Lost, m.Warnings)
	}
}

// The tool's nanoseconds wrap after each 7.4 s of a clock of 2.5 GHz.
func TestParseLongerThanTheCounter(t *testing.T) {
	c := second
	c.Duration = time.Minute
	s := newSession(c)
	s.hold(7_300, 200*hz/1000) // late on both sides of the first wrap
	s.messages[14_757], s.messages[14_758] = s.messages[14_758], s.messages[14_757]
	s.messages[14_758].rtt += 2_501_000 // at the second wrap the later message is answered first
	samples, m, err := parse(c, s.output())
	if err != nil {
		t.Fatal(err)
	}
	if len(samples) != 60_000 || m.Lost != 0 {
		t.Errorf("%d samples, %d lost", len(samples), m.Lost)
	}
	if got, want := samples[7_300-100+60], int64(200_000_000-60*1_000_000+10_000); got < want-1 || got > want+1 {
		t.Errorf("a late message at the turn took %d ns, not %d", got, want)
	}
	for i, v := range samples[14_000:] {
		want := int64(10_000)
		if 14_000+i == 14_758-100 {
			want += 1_000_400
		}
		if v != want {
			t.Fatalf("sample %d is %d ns", 14_000+i, v)
		}
	}
}

func TestParseLost(t *testing.T) {
	cases := map[string]struct {
		change   func(*session)
		lost     int64
		samples  int
		warnings []string
	}{
		"one on the way there":              {func(s *session) { s.messages[500].dropped = true }, 1, 999, []string{"its server missed in their order: 1;"}},
		"one on the way back":               {func(s *session) { s.messages[500].lost = true }, 1, 999, nil},
		"the first that counts":             {func(s *session) { s.messages[100].lost = true }, 1, 999, nil},
		"the last that counts":              {func(s *session) { s.messages[1_099].lost = true }, 1, 999, nil},
		"all at the end":                    {func(s *session) { lose(s.messages[1_090:]) }, 10, 990, nil},
		"one of the warm-up":                {func(s *session) { s.messages[99].lost = true }, 0, 1_000, nil},
		"a sample after the measuring time": {func(s *session) { s.messages[1_100].lost = true }, 0, 1_000, nil},
		"the sender did not end":            {func(s *session) { s.messages = s.messages[:1_090] }, 0, 990, []string{"were not sent: 10"}},
		"answers that arrive twice":         {func(s *session) { repeat(s.messages) }, 0, 1_000, []string{"duplicated answers, which do not count: 1157"}},
		"half is lost, and half arrives twice": {func(s *session) {
			repeat(s.messages)
			for i := 0; i < len(s.messages); i += 2 {
				s.messages[i].lost = true
			}
		}, 500, 500, []string{"duplicated answers, which do not count: 578"}},
		"a delayed sender's arrive twice": {func(s *session) {
			s.hold(600, 200*hz/1000)
			repeat(s.messages)
		}, 0, 1_000, []string{"duplicated answers, which do not count: 1157"}},
		"after the schedule was restarted, and each arrives twice": {func(s *session) {
			lose(s.messages[300:310])
			repeat(s.messages)
			s.restarts = 2
		}, 9, 990, []string{"duplicated answers", "restarted its schedule, 2 times"}},
		"after the schedule was restarted": {func(s *session) {
			lose(s.messages[300:310])
			s.restarts = 2
			for i := range s.messages[400:] {
				s.messages[400+i].due += 123_457
			}
		}, 9, 990, []string{"restarted its schedule, 2 times"}}, // one less, for the second of the run
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSession(second)
			c.change(s)
			samples, m, err := parse(second, s.output())
			if err != nil {
				t.Fatal(err)
			}
			if m.Lost != c.lost || len(samples) != c.samples || len(m.Warnings) != len(c.warnings) {
				t.Errorf("%d lost of %d samples, warnings %q", m.Lost, len(samples), m.Warnings)
			}
			for i, says := range c.warnings {
				if !strings.Contains(m.Warnings[i], says) {
					t.Errorf("warns of %q, not %q", m.Warnings[i], says)
				}
			}
		})
	}
}

func repeat(messages []message) {
	for i := range messages {
		messages[i].twice = true
	}
}

func lose(messages []message) {
	for i := range messages {
		messages[i].lost = true
	}
}

// If there are more messages than the tool can time, it times every n-th. When that message is dropped, the next is
// answered instead.
func TestParseTimesSome(t *testing.T) {
	c := with(func(c *tool.Cell) { c.RatePerSecond, c.Warmup, c.Duration = 1_000_000, 0, time.Second })
	s := newSession(c)
	if every := scheduleOf(c).every; every != 2 {
		t.Fatalf("one of %d", every)
	}
	s.messages[300_001].lost = true
	s.messages[600_001].dropped = true
	s.messages[900_000].dropped = true // not to be timed
	samples, m, err := parse(c, s.output())
	if err != nil {
		t.Fatal(err)
	}
	if len(samples) != 499_999 || m.Lost != 2 {
		t.Errorf("%d samples, %d lost", len(samples), m.Lost)
	}
	if len(m.Warnings) != 2 || !strings.Contains(m.Warnings[0], "one of 2 messages is timed") {
		t.Errorf("warnings %q", m.Warnings)
	}
}

func TestParseCaptured(t *testing.T) {
	cases := map[string]struct {
		protocol v1alpha1.Protocol
		version  string
		first    [2]int64 // sample, measured from the intended and from the actual start
		most     [2]int64
	}{
		"udp":       {"UDP", "no-version-modified (src 799b5332e00ece1103853ac32418f51d)", [2]int64{888210, 127026}, [2]int64{22048023, 4063025}},
		"rc2":       {"UDP", "no-version-modified (src 90b95efce4ec5ab3987cb432a34702e0)", [2]int64{2174415, 97733}, [2]int64{8432497, 3951663}},
		"multicast": {"Multicast", "no-version-modified (src 799b5332e00ece1103853ac32418f51d)", [2]int64{2179867, 1588627}, [2]int64{51843109, 4470421}},
	}
	for name, want := range cases {
		t.Run(name, func(t *testing.T) {
			c := with(func(c *tool.Cell) {
				c.Protocol, c.RatePerSecond, c.Warmup, c.Duration = want.protocol, 1_000, 50*time.Millisecond, 200*time.Millisecond
			})
			samples, actual, m, err := parseBoth(c, captured(t, name))
			if err != nil {
				t.Fatal(err)
			}
			var most [2]int64
			for i, v := range samples {
				most[0], most[1] = max(most[0], v), max(most[1], actual[i])
			}
			if first := [2]int64{samples[0], actual[0]}; len(samples) != 200 || first != want.first || most != want.most {
				t.Errorf("%d samples, the first %d, the slowest %d", len(samples), first, most)
			}
			if m.Version != want.version || m.Lost != 0 || m.Start != tool.StartIntended || m.Bandwidth.BitsPerSecond != 512_000 {
				t.Errorf("%+v, bandwidth %+v", m, m.Bandwidth)
			}
		})
	}
}

// captured returns the captured output of a client.
func captured(t testing.TB, name string) tool.Output {
	t.Helper()
	stdout, err := os.ReadFile("testdata/" + name + ".stdout")
	if err != nil {
		t.Fatal(err)
	}
	return tool.Output{Stdout: stdout, OpenRaw: func(string) (io.ReadCloser, error) { return os.Open("testdata/" + name + ".dat") }}
}

func TestParseFails(t *testing.T) {
	cases := map[string]struct {
		spoil func(*session)
		says  string
	}{
		"a row of another rate":               {func(s *session) { s.row = make(row, 17) }, "not the one of 1000 messages"},
		"other columns":                       {func(s *session) { s.header = "# target send\n" + s.header }, "columns"},
		"a row that was cut off":              {func(s *session) { s.row = row{1_000, 1_000} }, "2 columns, not 17"},
		"less than 90 % of the rate":          {func(s *session) { s.messages = s.messages[:1_000] }, "sent 865 of 1000 messages a second, less than 90 %"},
		"a negative rate":                     {func(s *session) { s.row = make(row, 17); s.row[0], s.row[1] = 1_000, -1 }, "column 2, send"},
		"halves of round trips":               {func(s *session) { s.header = tsc + "# reporting: 1/2 RTT\n" }, "half a round trip"},
		"neither RTT nor half of it":          {func(s *session) { s.header = tsc + "# reporting: one-way\n" }, "neither RTT"},
		"no rate of the clock":                {func(s *session) { s.header = "# reporting: RTT\n" }, "no plausible rate"},
		"a clock that stands still":           {func(s *session) { s.header = "# reporting: RTT\n# tsc_hz: 0\n" }, "no plausible rate"},
		"no samples":                          {func(s *session) { s.noRaw = true }, "left no samples"},
		"a sample without its line's end":     {func(s *session) { s.tail = "1.200000000\t1.200000000\t0.000010000" }, "cannot be read"},
		"a sample of two times":               {func(s *session) { s.tail = "1.200000000\t1.200000000\n" }, "not three times"},
		"a sample of four times":              {func(s *session) { s.tail = "1.200000000\t1.200000000\t0.000010000\t1\n" }, "not three times"},
		"a time of fewer decimals":            {func(s *session) { s.tail = "1.20000000\t1.200000000\t0.000010000\n" }, "not three times"},
		"a time before the beginning":         {func(s *session) { s.tail = "-1.200000000\t1.200000000\t0.000010000\n" }, "not three times"},
		"an invalid time":                     {func(s *session) { s.tail = "nan\tnan\tnan\n" }, "not three times"},
		"an empty line":                       {func(s *session) { s.tail = "\n" }, "not three times"},
		"a time of centuries":                 {func(s *session) { s.tail = "99999.000000000\t1.200000000\t0.000010000\n" }, "beyond the 7.37"},
		"a line without end":                  {func(s *session) { s.tail = strings.Repeat("1", 1<<20) }, "cannot be read"},
		"a round trip of no time":             {func(s *session) { s.messages[9].rtt = 0 }, "a round trip of 0 ns"},
		"fewer samples than were timed":       {func(s *session) { s.row = s.rowOf(); s.row[9]++ }, "timed 1158 messages, but left 1157"},
		"samples of another minimum":          {func(s *session) { s.row = s.rowOf(); s.row[4]-- }, "its table says 9999 to 10000"},
		"samples of another maximum":          {func(s *session) { s.row = s.rowOf(); s.row[6]++ }, "its table says 10000 to 10001"},
		"off the schedule":                    {func(s *session) { s.messages[500].due += 2_500 }, "1000 ns off the schedule"},
		"too late for the tool's counter":     {func(s *session) { s.hold(50, 3*hz/2) }, "sent 1.5s too late"},
		"an answer of 8 s, reported as 0.6 s": {func(s *session) { s.messages[1_000].rtt = 8 * hz; s.messages[1_001].rtt = 8*hz - hz/1000 }, "before the one above it"},
		"nothing answered in the time":        {func(s *session) { lose(s.messages[50:]) }, "no answer to a message of the measuring time"},
		"nothing answered from some moment":   {func(s *session) { *s = *newSession(minute()); lose(s.messages[20_000:]) }, "its last sample is of a message of 40.2"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSession(second)
			c.spoil(s)
			_, _, err := parse(s.cell, s.output())
			if f := asFailure(t, err); !strings.Contains(f.Message, c.says) || strings.Contains(f.Message, "\n") {
				t.Errorf("says %q, not %q", f.Message, c.says)
			}
		})
	}
}

func minute() tool.Cell {
	c := second
	c.Duration = time.Minute
	return c
}

// rowOf returns the row that follows from the messages.
func (s *session) rowOf() row {
	r := make(row, len(columns))
	r[0], r[1], r[2], r[4], r[6], r[9] = 1_000, 1_000, 1_000, 10_000, 10_000, int64(len(s.messages))
	return r
}

// TestCapturedFailures reads the captured failures, which are in one file.
func TestCapturedFailures(t *testing.T) {
	b, err := os.ReadFile("testdata/failures.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]string{
		"no server":                 "no server listened for 10s",
		"no way":                    "no route to the server",
		"server killed":             "the server ended before the test did",
		"interface taken down":      "no route to the server",
		"silence while spinning":    "no answer for 100ms, after which it gives up when it spins or uses a muxer",
		"lost before the beginning": "a datagram was lost before the measurement began",
		"path broken":               "no more answers came",
	}
	sections := strings.Split(string(b), "### ")[1:]
	if len(sections) != len(cases) {
		t.Errorf("%d sections", len(sections))
	}
	for _, section := range sections {
		name, said, _ := strings.Cut(section, "\n")
		t.Run(name, func(t *testing.T) {
			_, _, err := parse(udp64, tool.Output{ExitCode: 3, Stderr: []byte(said)})
			f := asFailure(t, err)
			if cases[name] == "" || !strings.Contains(f.Message, cases[name]) || !strings.Contains(f.Message, "exit code 3") || strings.Contains(f.Message, "\n") {
				t.Errorf("says %q, not %q", f.Message, cases[name])
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, name := range []string{"udp", "rc2", "multicast"} {
		out := captured(f, name)
		raw, err := os.ReadFile("testdata/" + name + ".dat")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(out.Stdout, []byte{}, raw[:len("#send-target(ns)\tsend-actual(ns)\tlatency(ns)\n")+3*len("0.000000000\t0.000000000\t0.000038698\n")], 0, int32(1_000))
	}
	failures, err := os.ReadFile("testdata/failures.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{}, failures, []byte{}, 3, int32(1_000))
	// A schedule that was kept, and one that was restarted after the counter had wrapped.
	f.Add([]byte(tsc+"# reporting: RTT\n1000\t1000\t1000\t0\t10000\t0\t10000\t0\t0\t2\t0\t0\t0\t0\t0\t0\t0\n"), []byte{},
		[]byte("#\n0.001000000\t0.001000000\t0.000010000\n0.002000000\t0.003000000\t0.000010000\n"), 0, int32(1_000))
	f.Add([]byte(tsc+"# reporting: RTT\n1000\t1000\t1000\t0\t10000\t0\t10000\t0\t0\t3\t0\t0\t0\t1\t0\t0\t0\n"), []byte{},
		[]byte("#\n0.001000000\t0.001000000\t0.000010000\n7.300000000\t7.300000000\t0.000010000\n0.050000000\t0.050000000\t0.000010000\n"), 0, int32(1_000))
	f.Fuzz(func(t *testing.T, stdout, stderr, raw []byte, exit int, rate int32) {
		cell := with(func(c *tool.Cell) {
			c.RatePerSecond, c.Warmup, c.Duration = rate, time.Millisecond, 200*time.Millisecond
		})
		out := tool.Output{Stdout: stdout, Stderr: stderr, ExitCode: exit, OpenRaw: func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(raw)), nil }}
		samples, actual, m, err := parseBoth(cell, out)
		if err != nil {
			var failure *tool.Failure
			if !errors.As(err, &failure) || strings.Contains(failure.Message, "\n") || failure.Message == "" {
				t.Errorf("got %v", err)
			}
			return
		}
		if len(samples) == 0 || len(samples) != len(actual) || m.Lost < 0 || exit != 0 {
			t.Errorf("%d samples of exit code %d: %+v", len(samples), exit, m)
		}
		for i, s := range samples {
			if actual[i] <= 0 || s < actual[i] {
				t.Errorf("a round trip of %d ns, from the actual start of %d", s, actual[i])
			}
		}
	})
}

// BenchmarkParse parses as many samples as the tool can time from the file into both histograms.
func BenchmarkParse(b *testing.B) {
	c := with(func(c *tool.Cell) { c.RatePerSecond, c.Warmup, c.Duration = 100_000, 0, 8_900*time.Millisecond })
	s := newSession(c)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range s.messages {
		s.messages[i].rtt += random.Uint64N(5_000) // less than the time between two messages, so that no message overtakes another
	}
	out := s.output()
	raw, err := out.OpenRaw("raw-64-100000.dat")
	if err != nil {
		b.Fatal(err)
	}
	file, err := io.ReadAll(raw)
	if err != nil {
		b.Fatal(err)
	}
	out.OpenRaw = func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(file)), nil }
	for b.Loop() {
		intended, actual := result.NewRecorder(), result.NewRecorder()
		if _, err := New().Parse(c, out, intended.RecordN, actual.RecordN); err != nil {
			b.Fatal(err)
		}
		for _, r := range []*result.Recorder{intended, actual} {
			if _, err := r.Histogram(); err != nil {
				b.Fatal(err)
			}
		}
	}
}
