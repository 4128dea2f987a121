package sockperf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

func file(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// output returns the output of a client, without a log if log is nil.
func output(stdout, log []byte) tool.Output {
	return tool.Output{Stdout: stdout, OpenRaw: func(name string) (io.ReadCloser, error) {
		if log == nil || name != "log.csv" {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
		return io.NopCloser(bytes.NewReader(log)), nil
	}}
}

func parse(c tool.Cell, out tool.Output) ([]int64, tool.Measurement, error) {
	var samples []int64
	m, err := New().Parse(c, out, func(rtt, _ int64) { samples = append(samples, rtt) }, func(int64, int64) {})
	return samples, m, err
}

// column returns the latencies of a log as text, without using the parser.
func column(log []byte) (sent, latency []string) {
	for _, m := range regexp.MustCompile(`(?m)^\d+, (\S+), \S+, (\S+)$`).FindAllStringSubmatch(string(log), -1) {
		sent = append(sent, strings.ReplaceAll(m[1], ".", ""))
		latency = append(latency, strings.TrimLeft(strings.ReplaceAll(m[2], ".", ""), "0"))
	}
	return sent, latency
}

func TestParseCaptured(t *testing.T) {
	cases := map[string]struct {
		rate  int32 // 0: ping-pong
		about int   // number of samples in 200 ms
		start tool.StartTime
	}{
		"udp":            {0, 200, ""},
		"tcp":            {0, 200, ""},
		"under-load-udp": {500, 100, tool.StartIntended},
		"under-load-tcp": {500, 100, tool.StartIntended},
	}
	for name, captured := range cases {
		t.Run(name, func(t *testing.T) {
			log := file(t, name+".csv")
			c := cell("UDP", 64, 200*time.Millisecond, 450*time.Millisecond)
			c.RatePerSecond = captured.rate
			samples, m, err := parse(c, output(file(t, name+".stdout"), log))
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			sent, latency := column(log)
			var first int64
			for i := range sent {
				var at int64
				fmt.Sscan(strings.TrimLeft(sent[i], "0"), &at)
				if i == 0 {
					first = at
				}
				// The head of 400 ms is not in the log, so 50 ms of it are still warm-up; the head of the closed loops is up to
				// a round trip shorter.
				if after := time.Duration(at - first); after >= 50*time.Millisecond && after < 250*time.Millisecond {
					want = append(want, latency[i])
				}
			}
			var got []string
			for _, s := range samples {
				got = append(got, fmt.Sprint(s))
			}
			if captured.rate > 0 {
				want = got // see TestIntended
			}
			if diff := cmp.Diff(want, got); diff != "" || len(got) < captured.about-5 || len(got) > captured.about+5 {
				t.Errorf("%d samples of about %d, -want +got:\n%s", len(got), captured.about, diff)
			}
			if m.Version != "3.7-no.git" || m.Lost != 0 || len(m.Warnings) > 0 || m.Start != captured.start {
				t.Errorf("version %q, %d lost, warnings %q, start %q", m.Version, m.Lost, m.Warnings, m.Start)
			}
		})
	}
}

func TestFigures(t *testing.T) {
	// Captured with half round trips, and before the parser handled colours.
	session := string(file(t, "pingpong-tcp.txt"))
	client, _, _ := strings.Cut(session, "--- server output")
	r, err := readReport(client)
	if err != nil {
		t.Fatal(err)
	}
	want := report{version: "3.7-no.git", ran: 2 * time.Second, logged: 1550 * time.Millisecond, sent: 122099, received: 122098, due: 96186, rows: 96186, figures: []tool.Figure{
		{Name: "run time (s)", Value: "2.000"}, {Name: "sent", Value: "122099"}, {Name: "received", Value: "122098"}, {Name: "observations", Value: "96186"},
		{Name: "avg (us, half RTT)", Value: "8.024"}, {Name: "std-dev (us, half RTT)", Value: "5.648"}, {Name: "max (us, half RTT)", Value: "1425.498"},
		{Name: "percentile 99.999 (us, half RTT)", Value: "418.801"}, {Name: "percentile 99.990 (us, half RTT)", Value: "165.817"},
		{Name: "percentile 99.900 (us, half RTT)", Value: "23.420"}, {Name: "percentile 99.000 (us, half RTT)", Value: "12.250"},
		{Name: "percentile 90.000 (us, half RTT)", Value: "8.575"}, {Name: "percentile 75.000 (us, half RTT)", Value: "7.906"},
		{Name: "percentile 50.000 (us, half RTT)", Value: "7.709"}, {Name: "percentile 25.000 (us, half RTT)", Value: "7.566"},
		{Name: "min (us, half RTT)", Value: "5.656"}, {Name: "dropped", Value: "0"}, {Name: "duplicated", Value: "0"}, {Name: "out-of-order", Value: "0"},
	}}
	if diff := cmp.Diff(want, r, cmp.AllowUnexported(report{})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if got := strings.Count(string(file(t, "udp.stdout")), "\x1b["); got == 0 {
		t.Error("the captured output has no colours, which it must have to show that they do no harm")
	}
}

// session generates a report and a log of consecutive round trips of 10 µs over a whole run.
type session struct {
	rows           []row
	sent, received int64
	errors         [3]int
	column         string
	half           bool
	tail           string // after the last row
}

func newSession(seconds int) *session {
	s := &session{column: "rtt(usec)", tail: rule + "\n"}
	for at := int64(2_400_000_000); at < 2_000_000_000+int64(seconds)*1_000_000_000-50_000_000; at += 10_100 {
		s.rows = append(s.rows, row{at, at + 10_000})
	}
	s.received = int64(len(s.rows)) + 45_000
	s.sent = s.received + 1
	return s
}

func (s *session) output() tool.Output {
	var stdout, log bytes.Buffer
	fmt.Fprintf(&stdout, "sockperf: \x1b[2;35m== version #3.7-no.git == \x1b[0m\nsockperf: [Total Run] RunTime=2.000 sec; Warm up time=400 msec; SentMessages=%d; ReceivedMessages=%d\n", s.sent, s.received)
	fmt.Fprintf(&stdout, "sockperf: [Valid Duration] RunTime=1.550 sec; SentMessages=%d; ReceivedMessages=%d\n", len(s.rows), len(s.rows))
	fmt.Fprintf(&stdout, "sockperf: \x1b[2;35m====> avg-rtt=10.000 (std-dev=0.000)\x1b[0m\n")
	fmt.Fprintf(&stdout, "sockperf: # dropped messages = %d; # duplicated messages = %d; # out-of-order messages = %d\n", s.errors[0], s.errors[1], s.errors[2])
	fmt.Fprintf(&log, "%s\npacket, txTime(sec), rxTime(sec), %s\n", rule, s.column)
	for i, r := range s.rows {
		latency := r.answered - r.sent
		if s.half {
			latency /= 2
		}
		fmt.Fprintf(&log, "%d, %d.%09d, %d.%09d, %d.%03d\n", i, r.sent/1e9, r.sent%1e9, r.answered/1e9, r.answered%1e9, latency/1000, latency%1000)
	}
	log.WriteString(s.tail)
	return output(stdout.Bytes(), log.Bytes())
}

var second = cell("UDP", 64, time.Second, 500*time.Millisecond) // a run of 2 s

func TestParseHalvesAreMadeWhole(t *testing.T) {
	s := newSession(2)
	s.half, s.column = true, "latency(usec)"
	samples, _, err := parse(second, s.output())
	if err != nil {
		t.Fatal(err)
	}
	if len(samples) != 99_010 || samples[0] != 10_000 {
		t.Errorf("%d samples of %d", len(samples), samples[0])
	}
	log := file(t, "half.csv")
	samples, _, err = parse(cell("UDP", 64, 200*time.Millisecond, 0), output(file(t, "half.stdout"), log))
	if err != nil {
		t.Fatal(err)
	}
	_, halves := column(log)
	var half int64
	fmt.Sscan(halves[0], &half)
	if samples[0] < 2*half-1 || samples[0] > 2*half+1 {
		t.Errorf("a half of %d ns became %d", half, samples[0])
	}
}

func TestParseLost(t *testing.T) {
	cases := map[string]struct {
		unanswered int64
		want       int64
	}{
		"all were answered":                    {0, 0},
		"one was interrupted by the end":       {1, 0},
		"one was lost and another interrupted": {2, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSession(2)
			s.sent = s.received + c.unanswered
			_, m, err := parse(second, s.output())
			if err != nil {
				t.Fatal(err)
			}
			if m.Lost != c.want {
				t.Errorf("%d lost, want %d", m.Lost, c.want)
			}
		})
	}
}

func TestParseWarns(t *testing.T) {
	s := newSession(2)
	s.errors = [3]int{0, 0, 1}
	_, m, err := parse(second, s.output())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"sockperf: 1 out-of-order messages, whose latency is unknown"}, m.Warnings); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestParseFails(t *testing.T) {
	cases := map[string]struct {
		spoil func(*session)
		says  string
	}{
		"answers that arrived twice": {func(s *session) { s.errors = [3]int{0, 3, 0} }, "3 answers arrived twice"},
		"a log without its end":      {func(s *session) { s.tail = "" }, "within the rows"},
		"a row that was cut off":     {func(s *session) { s.tail = "153466, 3.95" }, "within the rows"},
		"an invalid row":             {func(s *session) { s.tail = "x\n" + rule + "\n" }, "is not row"},
		"a row out of order":         {func(s *session) { s.tail = "7, 3.000000000, 3.000000001, 0.001\n" + rule + "\n" }, "is not row"},
		"a latency that is not the time's": {func(s *session) {
			s.tail = fmt.Sprintf("%d, 3.990000000, 3.990010000, 10.010\n%s\n", len(s.rows), rule)
		}, "is not row"},
		"an answer before its message":    {func(s *session) { s.rows[5].answered = s.rows[5].sent - 1 }, "is not row"},
		"an answer at once":               {func(s *session) { s.rows[5].answered = s.rows[5].sent }, "was answered at"},
		"a message before the one before": {func(s *session) { s.rows[5] = s.rows[3] }, "stands behind"},
		"another number of rows": {func(s *session) {
			s.tail = fmt.Sprintf("%d, 3.990000000, 3.990010000, 10.000\n%s\n", len(s.rows), rule)
		}, "scratch volume full"},
		"no column names":                 {func(s *session) { s.column = "\n" }, "is not row"},
		"no answer in the measuring time": {func(s *session) { s.rows = s.rows[:9_000] }, "measured 0s of 1s and then got no more answers"},
		"no answer from the middle on":    {func(s *session) { s.rows = s.rows[:60_000] }, "datagram was lost"},
		"a pause over the whole time":     {func(s *session) { s.rows = append(s.rows[:1000:1000], s.rows[120_000:]...) }, "no message after the warm-up"},
		"more answers than messages":      {func(s *session) { s.sent = s.received - 1 }, "sent"},
		"no message answered":             {func(s *session) { s.received = 0 }, "0 answered"},
		"more measured than answered":     {func(s *session) { s.received = 5 }, "5 answered"},
		"a negative number of messages":   {func(s *session) { s.sent = -1 }, "reported nothing"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := newSession(2)
			c.spoil(s)
			_, _, err := parse(second, s.output())
			if f := asFailure(t, err); !strings.Contains(f.Message, c.says) || strings.Contains(f.Message, "\n") {
				t.Errorf("says %q, not %q", f.Message, c.says)
			}
		})
	}
}

func asFailure(t *testing.T, err error) *tool.Failure {
	t.Helper()
	var f *tool.Failure
	if !errors.As(err, &f) {
		t.Fatalf("got %v, want a *tool.Failure", err)
	}
	return f
}

func TestCapturedFailures(t *testing.T) {
	sections := map[string][]byte{}
	for _, section := range strings.Split(string(file(t, "failures.txt")), "### ")[1:] {
		title, said, _ := strings.Cut(section, "\n")
		sections[title] = []byte(said)
	}
	cases := map[string]struct {
		stdout []byte
		exit   int
		says   []string
	}{
		"refused":                       {file(t, "tcp-no-server.stdout"), 0, []string{"no server listens", "errno=111 Connection refused"}},
		"refused, elsewhere":            {sections["no server, tcp"], 0, []string{"no server listens"}},
		"no answer":                     {file(t, "udp-no-server.stdout"), 0, []string{"no message was answered"}},
		"no answer, elsewhere":          {sections["no server, udp"], 0, []string{"no message was answered"}},
		"server killed, TCP":            {file(t, "tcp-server-killed.stdout"), 7, []string{"server ended before the test", "forcibly closed"}},
		"server killed, TCP, elsewhere": {sections["server killed (same moment), tcp ping-pong"], 7, []string{"server ended before the test"}},
		// Two messages in the log's time, but none is measured: --no-rdtsc makes the head longer than the run.
		"nothing left of the run": {file(t, "no-rdtsc.stdout"), 0, []string{"no answers came"}},
		"a size it does not take": {file(t, "bad-size.stdout"), 0, []string{"does not accept its options", "Invalid message size: 13"}},
		"an option it has not":    {file(t, "bad-option.stdout"), 0, []string{"does not accept its options"}},
		"an address of IPv6":      {[]byte("sockperf: '-i' Invalid address: ::1\nping-pong (pp): Run\n\nUsage: sockperf ping-pong [options] [args]...\n"), 0, []string{"IPv4 addresses only", "Invalid address: ::1"}},
		"refused, spinning":       {file(t, "tcp-spin-no-server.stdout"), 0, []string{"no server listens, or there is no route", "errno=115"}},
		"no way, spinning":        {file(t, "tcp-spin-no-way.stdout"), 7, []string{"no route to the server", "errno=113"}},
		"nothing went out":        {[]byte("sockperf: Test ended\nsockperf: No messages were sent\n"), 0, []string{"nothing could be sent"}},
		"another server's group":  {[]byte("sockperf: ERROR: Number of servers more than expected (errno=0 Success)\n"), 1, []string{"choose another spec.workload.multicastGroup"}},
		"too fast":                {[]byte("sockperf: ERROR: _seqN > m_maxSequenceNo\n"), 1, []string{"use sfnt-pingpong"}},
		"no memory":               {[]byte("terminate called after throwing an instance of 'std::bad_alloc'\n  what():  std::bad_alloc\n"), -1, []string{"placement.memory"}},
		"killed":                  {nil, -1, []string{"it reported nothing", "exit code -1"}},
		"no way":                  {[]byte("sockperf: ERROR: Can`t connect socket (errno=113 No route to host)\n"), 0, []string{"no route to the server"}},
		"a report without losses": {bytes.Replace(file(t, "udp.stdout"), []byte("# dropped"), nil, 1), 0, []string{"report of version", "3.7-no.git", "use 3.7 or later"}},
		"a report and a failure":  {file(t, "udp.stdout"), 7, []string{"failed nonetheless", "exit code 7"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.stdout == nil && name != "killed" {
				t.Fatal("no such capture")
			}
			out := output(c.stdout, nil)
			out.ExitCode = c.exit
			_, _, err := parse(second, out)
			f := asFailure(t, err)
			for _, says := range c.says {
				if !strings.Contains(f.Message, says) {
					t.Errorf("%q does not say %q", f.Message, says)
				}
			}
			if strings.ContainsAny(f.Message, "\n\x1b") || len(f.Message) > 600 {
				t.Errorf("a message of more than one short line: %q", f.Message)
			}
		})
	}
}

// TestServerKilledUDP covers the case in which the tool itself notices nothing: a full report, exit code 0.
func TestServerKilledUDP(t *testing.T) {
	c := cell("UDP", 64, time.Second, 500*time.Millisecond)
	_, _, err := parse(c, output(file(t, "udp-server-killed.stdout"), file(t, "udp-server-killed.csv")))
	f := asFailure(t, err)
	for _, says := range []string{"of 1s and then got no more answers (650 sent, 649 answered)", "datagram was lost, or the server ended"} {
		if !strings.Contains(f.Message, says) {
			t.Errorf("%q does not say %q", f.Message, says)
		}
	}
	// The requested time had ended before, so this is not an error.
	c.Duration = 500 * time.Millisecond
	if samples, _, err := parse(c, output(file(t, "udp-server-killed.stdout"), file(t, "udp-server-killed.csv"))); err != nil || len(samples) < 200 {
		t.Errorf("%d samples, %v", len(samples), err)
	}
}

// underLoad returns a cell whose messages are sent at a rate, with the times of the captured logs.
func underLoad(rate int32) tool.Cell {
	c := cell("UDP", 64, time.Second, 500*time.Millisecond)
	c.RatePerSecond = rate
	return c
}

func TestUnderLoadFaults(t *testing.T) {
	_, m, err := parse(underLoad(500), output(file(t, "under-load-faults.stdout"), file(t, "under-load-faults.csv")))
	if err != nil {
		t.Fatal(err)
	}
	// The log covers 774 of the 1001 messages; doubled answers are counted from the beginning.
	want := []string{"sockperf: 10 duplicated messages", "sockperf: 8 out-of-order messages, whose latency is unknown"}
	if diff := cmp.Diff(want, m.Warnings); diff != "" || m.Lost != 8 {
		t.Errorf("%d lost, -want +got:\n%s", m.Lost, diff)
	}
}

func TestUnderLoadFails(t *testing.T) {
	cases := map[string]struct {
		rate int32
		says string
	}{
		"under-load-killed":  {500, "and then got no more answers (1001 sent, 587 answered): the server ended or hung"},
		"under-load-skipped": {500, "sent 392 messages a second, not 500"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, _, err := parse(underLoad(c.rate), output(file(t, name+".stdout"), file(t, name+".csv")))
			if f := asFailure(t, err); !strings.Contains(f.Message, c.says) {
				t.Errorf("says %q, not %q", f.Message, c.says)
			}
		})
	}
	r, err := readReport(colours.ReplaceAllString(string(file(t, "under-load-skipped.stdout")), ""))
	if err != nil {
		t.Fatal(err)
	}
	if want := "sockperf: 209 messages were due and not sent, because the socket was full"; len(r.warnings) == 0 || r.warnings[0] != want {
		t.Errorf("warnings %q, want %q", r.warnings, want)
	}
}

func TestRateIsKept(t *testing.T) {
	s := newSession(2)
	s.sent, s.received = 198_000, 198_000 // 99,000 a second
	out := s.output()
	cases := map[string]struct {
		rate  int32
		due   int
		warns string
		fails bool
	}{
		"kept":                  {99_000, 99_010, "", false},
		"a percent less":        {100_000, 100_000, "", false},
		"more than a percent":   {100_100, 100_100, "sockperf: it sent 99000 messages a second, not 100100", false},
		"almost ten percent":    {110_000, 110_011, "sockperf: it sent 99000 messages a second, not 110000", false},
		"more than ten percent": {110_100, 0, "", true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			samples, m, err := parse(underLoad(c.rate), out)
			if c.fails {
				if f := asFailure(t, err); !strings.Contains(f.Message, "cannot keep the rate") {
					t.Errorf("says %q", f.Message)
				}
				return
			}
			if err != nil || len(samples) != c.due || strings.Join(m.Warnings, ";") != c.warns {
				t.Errorf("%d samples, warnings %q, %v", len(samples), m.Warnings, err)
			}
		})
	}
}

func TestNoLog(t *testing.T) {
	_, _, err := parse(cell("UDP", 64, 200*time.Millisecond, 0), output(file(t, "udp.stdout"), nil))
	if f := asFailure(t, err); !strings.Contains(f.Message, "left no log") {
		t.Errorf("says %q", f.Message)
	}
	_, _, err = parse(cell("UDP", 64, 200*time.Millisecond, 0), output(file(t, "udp.stdout"), []byte("\n")))
	if f := asFailure(t, err); !strings.Contains(f.Message, "no rows") {
		t.Errorf("says %q", f.Message)
	}
}

func TestParseRow(t *testing.T) {
	good := "12, 2.417649771, 2.417784332, 134.561"
	index, r, length := parseRow([]byte(good + "\n"))
	if length != len(good)+1 || index != 12 || r != (row{2_417_649_771, 2_417_784_332}) {
		t.Fatalf("row %d of %d bytes: %v", index, length, r)
	}
	for _, bad := range []string{"", "12", "12, ", good + ", ", good + ",", good + ", 1", good[:len(good)-1], "12,2.417649771,2.417784332,134.561",
		"x" + good, "-" + good, "12.0, 2.417649771, 2.417784332, 134.561", "12, 2.41764977, 2.417784332, 134.561", "12, 2, 2.417784332, 134.561",
		"12, .417649771, .417784332, 134.561", "12, 2.417.649771, 2.417784332, 134.561", "12, 2.417649771, 2.417784332, nan", "12, 2.417649771, 2.417784332, -134.561",
		"12, 12345678901.417649771, 12345678901.417784332, 134.561", ", 2.417649771, 2.417784332, 134.561"} {
		if index, r, length := parseRow([]byte(bad + "\n")); length > 0 {
			t.Errorf("%q became row %d: %v", bad, index, r)
		}
	}
}

func FuzzParse(f *testing.F) {
	first := func(log []byte, rows int) []byte {
		lines := bytes.SplitAfter(log, []byte("\n"))
		for i, l := range lines {
			if bytes.HasPrefix(l, []byte(logHead)) {
				return append(bytes.Join(lines[i:i+1+rows], nil), rule+"\n"...)
			}
		}
		return nil
	}
	three := func(stdout []byte) []byte {
		return regexp.MustCompile(`(Valid.*ReceivedMessages=)\d+`).ReplaceAll(stdout, []byte("${1}3"))
	}
	for _, name := range []string{"udp", "tcp", "half", "udp-server-killed", "under-load-udp", "under-load-faults", "under-load-skipped"} {
		for _, rate := range []int32{0, 500} {
			f.Add(three(file(f, name+".stdout")), first(file(f, name+".csv"), 3), []byte(nil), 0, false, rate)
		}
	}
	for _, name := range []string{"tcp-no-server", "udp-no-server", "tcp-server-killed", "no-rdtsc", "tcp-spin-no-way"} {
		f.Add(file(f, name+".stdout"), []byte{}, []byte(nil), 0, false, int32(0))
	}
	for _, name := range []string{"stream-udp", "stream-tcp", "stream-skipped"} {
		f.Add(file(f, name+".stdout"), []byte{}, file(f, name+".server"), 0, true, int32(0))
	}
	f.Fuzz(func(t *testing.T, stdout, log, server []byte, exit int, stream bool, rate int32) {
		out := output(stdout, log)
		out.ExitCode, out.Server = exit, server
		c := cell("UDP", 64, 1500*time.Microsecond, 0)
		c.Stream, c.RatePerSecond = stream, rate
		samples, m, err := parse(c, out)
		if err != nil {
			var failure *tool.Failure
			if !errors.As(err, &failure) || failure.Message == "" || strings.Contains(failure.Message, "\n") {
				t.Errorf("got %v", err)
			}
			return
		}
		if (len(samples) == 0) != stream || (m.Bandwidth != nil) != stream || exit != 0 || m.Lost < 0 {
			t.Errorf("%d samples of exit code %d: %+v", len(samples), exit, m)
		}
		for _, s := range samples {
			if s <= 0 {
				t.Errorf("a sample of %d ns", s)
			}
		}
		if b := m.Bandwidth; b != nil {
			for _, rate := range []float64{b.BitsPerSecond, b.SentBitsPerSecond} {
				if !(rate >= 0) || math.IsInf(rate, 0) {
					t.Errorf("a bandwidth of %g", rate)
				}
			}
		}
	})
}

// FuzzRow compares a parsed row with the result of the standard library.
func FuzzRow(f *testing.F) {
	for _, row := range []string{"12, 2.417649771, 2.417784332, 134.561", "0, 2.417649771, 2.417784332, 67.280", "9, 002.0, 1, 1",
		"1, 1.12345678:, 1.123456789, 0.000", "1, 1.:23456789, 1.123456789, 0.000", "1, 1.1234/6789, 1.123456789, 0.000"} {
		f.Add(row)
	}
	nanoseconds := func(t *testing.T, seconds string) int64 {
		whole, fraction, _ := strings.Cut(seconds, ".")
		n, err := strconv.ParseInt(whole+fraction, 10, 64)
		if err != nil || len(fraction) != 9 {
			t.Errorf("%q was taken for seconds: %v", seconds, err)
		}
		return n
	}
	f.Fuzz(func(t *testing.T, line string) {
		index, r, length := parseRow([]byte(line + "\nmore"))
		if length == 0 {
			return
		}
		line, _, _ = strings.Cut(line, "\n")
		columns := strings.Split(line, ", ")
		if number, err := strconv.ParseInt(columns[0], 10, 64); err != nil || number != index || length != len(line)+1 || len(columns) != 4 {
			t.Fatalf("%q became %d bytes of row %d", line, length, index)
		}
		if want := (row{nanoseconds(t, columns[1]), nanoseconds(t, columns[2])}); r != want {
			t.Errorf("%q became %v, not %v", line, r, want)
		}
	})
}

// BenchmarkParse parses a million rows from the log into a histogram.
func BenchmarkParse(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	s := newSession(2)
	s.rows = nil
	at := int64(2_400_000_000)
	for range 1_000_000 {
		rtt := 6_000 + random.Int64N(2_000)
		s.rows = append(s.rows, row{at, at + rtt})
		at += rtt + 100
	}
	s.received = int64(len(s.rows))
	s.sent = s.received
	made := s.output()
	made.Stdout = bytes.ReplaceAll(made.Stdout, []byte("RunTime=2.000"), []byte("RunTime=8.000"))
	raw, err := made.OpenRaw(logName)
	if err != nil {
		b.Fatal(err)
	}
	log, err := io.ReadAll(raw)
	if err != nil {
		b.Fatal(err)
	}
	c := cell("TCP", 64, 7*time.Second, 0)
	for b.Loop() {
		r := result.NewRecorder()
		if _, err := New().Parse(c, output(made.Stdout, log), r.RecordN, func(int64, int64) {}); err != nil {
			b.Fatal(err)
		}
		if _, err := r.Histogram(); err != nil {
			b.Fatal(err)
		}
	}
}
