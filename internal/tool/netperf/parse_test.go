package netperf

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/internal/tool"
)

func file(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// parse fails when a sample is recorded: the tool reports none.
func parse(t testing.TB, c tool.Cell, exit int, stdout string) (tool.Measurement, error) {
	t.Helper()
	return New().Parse(c, tool.Output{Stdout: []byte(stdout), ExitCode: exit}, func(rtt, count int64) {
		t.Errorf("%d samples of %d ns", count, rtt)
	}, nil)
}

func asFailure(t testing.TB, err error) *tool.Failure {
	t.Helper()
	var f *tool.Failure
	if !errors.As(err, &f) {
		t.Fatalf("got %v, want a *tool.Failure", err)
	}
	if f.Message == "" || strings.Contains(f.Message, "\n") || len(f.Message) > 700 {
		t.Errorf("a message of more than one short line: %q", f.Message)
	}
	return f
}

// printed returns a value as text, without using the parser.
func printed(t *testing.T, stdout, name string) float64 {
	t.Helper()
	_, rest, ok := strings.Cut("\n"+stdout, "\n"+name+"=")
	text, _, _ := strings.Cut(rest, "\n")
	v, err := strconv.ParseFloat(text, 64)
	if !ok || err != nil {
		t.Fatalf("no %s in the captured output: %v", name, err)
	}
	return v
}

// testOf returns the name of a test from the name of its file.
func testOf(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }

func TestParseRoundTrips(t *testing.T) {
	for _, version := range []string{"2.7.0", "2.7.1"} {
		for _, test := range []string{"tcp-rr", "udp-rr"} {
			t.Run(version+" "+test, func(t *testing.T) {
				stdout := file(t, version+"-"+test+".txt")
				of := func(name string) float64 { return printed(t, stdout, name) }
				m, err := parse(t, cell(testOf(test), 64, 2*time.Second), 0, stdout)
				if err != nil {
					t.Fatal(err)
				}
				ns := func(name string) int64 { return int64(math.Round(1e3 * of(name))) }
				want := tool.Own{
					Count:  int64(of("LOCAL_BYTES_RECVD") / 64),
					MeanNs: 1e9 / of("TRANSACTION_RATE"),
					StepNs: 1_000, Ranges: m.Own.Ranges,
					MinNs: ns("MIN_LATENCY"), MaxNs: ns("MAX_LATENCY"), StdDevNs: ns("STDDEV_LATENCY"),
					P50Ns: ns("P50_LATENCY"), P90Ns: ns("P90_LATENCY"), P99Ns: ns("P99_LATENCY"),
				}
				if diff := cmp.Diff(want, *m.Own); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				if exact := 1e3 * of("RT_LATENCY"); math.Abs(m.Own.MeanNs-exact) > 1e-4*exact {
					t.Errorf("a mean of %g ns, but netperf printed %g", m.Own.MeanNs, exact)
				}
				if len(m.Figures) != len(roundTripValues) || m.Bandwidth != nil || m.Lost != 0 || len(m.Warnings) > 0 {
					t.Errorf("%d figures, bandwidth %v, %d lost, warnings %q",
						len(m.Figures), m.Bandwidth, m.Lost, m.Warnings)
				}
			})
		}
	}
}

func TestParseStreams(t *testing.T) {
	for _, version := range []string{"2.7.0", "2.7.1"} {
		for test, size := range map[string]int32{"tcp-stream": 1 << 20, "udp-stream": 1472} {
			t.Run(version+" "+test, func(t *testing.T) {
				stdout := file(t, version+"-"+test+".txt")
				of := func(name string) float64 { return printed(t, stdout, name) }
				m, err := parse(t, cell(testOf(test), size, 2*time.Second), 0, stdout)
				if err != nil {
					t.Fatal(err)
				}
				arrived, sent := 1e3*of("REMOTE_RECV_THROUGHPUT"), 1e3*of("LOCAL_SEND_THROUGHPUT")
				want := tool.Bandwidth{BitsPerSecond: arrived, SentBitsPerSecond: max(sent, arrived)}
				var lost int64
				if test == "udp-stream" {
					want.Sent, want.Received = int64(of("LOCAL_BYTES_SENT")/1472), int64(of("REMOTE_BYTES_RECVD")/1472)
					lost = want.Sent - want.Received
				} else {
					want.Retransmits = new(int64(of("LOCAL_TRANSPORT_RETRANS")))
				}
				if diff := cmp.Diff(want, *m.Bandwidth); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				if len(m.Figures) != len(streamValues) || m.Own != nil || m.Lost != lost || len(m.Warnings) > 0 {
					t.Errorf("%d figures, statistics %v, %d lost, warnings %q",
						len(m.Figures), m.Own, m.Lost, m.Warnings)
				}
			})
		}
	}
}

// TestCapturedFailures reads captured outputs of failed measurements, some of them with exit code 0.
func TestCapturedFailures(t *testing.T) {
	const serverEnded = "the server ended before the test did"
	cases := map[string]struct {
		size int32
		says []string
	}{
		"TCP_RR, no server listens": {64, []string{"(exit code 255)", "no server listens", "10.66.2.2 at port 23456"}},
		"TCP_RR, server killed":     {64, []string{"(exit code 1)", serverEnded}},
		"UDP_RR, server killed":     {64, []string{"(exit code 1)", serverEnded}},
		"TCP_STREAM, server killed": {65536, []string{"(exit code 1)", serverEnded}},
		"UDP_STREAM, server killed": {1472, []string{"(exit code 1)", serverEnded, "errno 111"}},
		"UDP_RR, a request lost":    {64, []string{"then got no more answers", "a datagram was lost"}},
		"UDP_RR, an answer lost":    {64, []string{"then got no more answers", "a datagram was lost"}},
		"TCP_STREAM, server killed, and the client by SIGPIPE": {
			65536, []string{"(exit code -1)", "a signal ended it", serverEnded},
		},
		"TCP_RR, the path cut until after the end": {
			64, []string{"then got no more answers", "the path stalled"},
		},
		"UDP_RR, the server's route taken away": {
			64, []string{"the server's end failed: network is unreachable"},
		},
		"UDP_RR, a message longer than a datagram": {
			65508, []string{"messages of 65508 bytes are too long", "errno 90"},
		},
		"TCP_XX, a test that it does not know": {
			64, []string{"does not accept its options", "unknown to this netperf"},
		},
	}
	for _, version := range []string{"2.7.0", "2.7.1"} {
		found := 0
		for _, section := range strings.Split(file(t, version+"-failures.txt"), "### ")[1:] {
			title, said, _ := strings.Cut(section, "\n")
			status, said, _ := strings.Cut(said, "\n")
			exit, err := strconv.Atoi(strings.TrimPrefix(status, "exit "))
			if err != nil {
				t.Fatalf("%s: %v", title, err)
			}
			c, ok := cases[title]
			if !ok {
				t.Errorf("nothing is expected of %q", title)
				continue
			}
			found++
			t.Run(version+" "+title, func(t *testing.T) {
				test, _, _ := strings.Cut(title, ",")
				_, err := parse(t, cell(test, c.size, 2*time.Second), exit, said)
				f := asFailure(t, err)
				for _, says := range c.says {
					if !strings.Contains(f.Message, says) {
						t.Errorf("%q does not say %q", f.Message, says)
					}
				}
			})
		}
		if found != len(cases) {
			t.Errorf("%d of %d failures of %s were captured", found, len(cases), version)
		}
	}
}

// Valid outputs of 2 s, for tests to corrupt: a thousand datagrams in a stream.
const (
	goodRoundTrips = `TRANSACTION_RATE=50000.000
RT_LATENCY=20.000
MEAN_LATENCY=19.95
MIN_LATENCY=11
P50_LATENCY=19
P90_LATENCY=22
P99_LATENCY=54
MAX_LATENCY=1234
STDDEV_LATENCY=4.56
ELAPSED_TIME=2.00
REQUEST_SIZE=64
RESPONSE_SIZE=64
LOCAL_BYTES_SENT=6400000
LOCAL_BYTES_RECVD=6400000
REMOTE_BYTES_RECVD=6400000
LOCAL_TRANSPORT_RETRANS=0
`
	goodStream = `REMOTE_RECV_THROUGHPUT=4000.00
LOCAL_SEND_THROUGHPUT=4000.00
THROUGHPUT_UNITS=10^3bits/s
ELAPSED_TIME=2.00
LOCAL_SEND_SIZE=1000
LOCAL_BYTES_SENT=1000000
REMOTE_BYTES_RECVD=1000000
LOCAL_TRANSPORT_RETRANS=7
`
)

// with replaces lines of an output with others of the same names, given with spaces between them. It panics when there
// is nothing to replace, because the test would then test nothing.
func with(stdout, lines string) string {
	for _, line := range strings.Fields(lines) {
		name, _, _ := strings.Cut(line, "=")
		old := regexp.MustCompile(`(?m)^` + name + `=.*$`)
		if !old.MatchString(stdout) {
			panic("no " + name)
		}
		stdout = old.ReplaceAllLiteralString(stdout, line)
	}
	return stdout
}

func TestParseOwn(t *testing.T) {
	good := tool.Own{
		Count: 100_000, MeanNs: 20_000, MinNs: 11_000, MaxNs: 1_234_000, StdDevNs: 4_560,
		P50Ns: 19_000, P90Ns: 22_000, P99Ns: 54_000, StepNs: 1_000,
		// Of the bucket below if it is the upper edge, and of a time that was cut to microseconds at both ends.
		Ranges: [3]tool.Range{{LowNs: 17_000, HighNs: 20_000}, {LowNs: 20_000, HighNs: 23_000}, {LowNs: 52_000, HighNs: 55_000}},
	}
	p99 := func(ns, low, high int64) func(*tool.Own) {
		return func(o *tool.Own) { o.P99Ns, o.Ranges[2] = ns, tool.Range{LowNs: low, HighNs: high} }
	}
	but := func(change func(*tool.Own)) tool.Own {
		own := good
		change(&own)
		return own
	}
	cases := map[string]struct {
		lines   string
		want    tool.Own
		warning string
	}{
		"all is well": {want: good},
		"the end interrupted the last round trip": {
			lines: "LOCAL_BYTES_SENT=6400064 REMOTE_BYTES_RECVD=6400064",
			want:  good,
		},
		"the tool was delayed between round trips and lost no message": {
			lines: "MEAN_LATENCY=12.00",
			want:  good,
		},
		"a percentile below 100 µs is of whole microseconds": {
			lines: "P99_LATENCY=99",
			want:  but(p99(99_000, 97_000, 100_000)),
		},
		"from 100 µs on it lies in a bucket of 10 µs": {
			lines: "P99_LATENCY=104",
			want:  but(p99(104_000, 99_000, 110_000)),
		},
		"on the lower edge of such a bucket, it may be of the bucket below": {
			lines: "P99_LATENCY=110",
			want:  but(p99(110_000, 99_000, 120_000)),
		},
		"the bucket below the first of them has 1 µs": {
			lines: "P99_LATENCY=100",
			want:  but(p99(100_000, 98_000, 110_000)),
		},
		"from 1 ms on in one of 100 µs": {
			lines: "P99_LATENCY=1000",
			want:  but(p99(1_000_000, 989_000, 1_100_000)),
		},
		"interpolated beyond the extremes": {
			lines: "P50_LATENCY=10 P99_LATENCY=1290",
			want: but(func(o *tool.Own) {
				p99(1_234_000, 1_199_000, 1_235_000)(o)
				o.P50Ns, o.Ranges[0] = 11_000, tool.Range{LowNs: 10_000, HighNs: 11_000}
			}),
		},
		"a deviation that is no number": {
			lines: "STDDEV_LATENCY=-nan",
			want:  but(func(o *tool.Own) { o.StdDevNs = 0 }),
		},
		"more round trips than its counters hold": {
			lines: "TRANSACTION_RATE=69444.444 RT_LATENCY=14.400 ELAPSED_TIME=43200.00 MEAN_LATENCY=-5 " +
				"P50_LATENCY=-7 LOCAL_BYTES_SENT=192000000000 LOCAL_BYTES_RECVD=192000000000 REMOTE_BYTES_RECVD=192000000000",
			want:    tool.Own{Count: 3_000_000_000, MeanNs: 1e9 / 69444.444, StepNs: 1_000},
			warning: "no percentiles of 3000000000 round trips",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			duration := 2 * time.Second
			if strings.Contains(c.lines, "ELAPSED_TIME=43200.00") {
				duration = 12 * time.Hour
			}
			m, err := parse(t, cell("UDP_RR", 64, duration), 0, with(goodRoundTrips, c.lines))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&c.want, m.Own); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			said := strings.Join(m.Warnings, "; ")
			if !strings.Contains(said, c.warning) || (c.warning == "" && said != "") {
				t.Errorf("warns %q, not %q", said, c.warning)
			}
		})
	}
}

// TestEndOfTCP: the end of the test may cut off a TCP round trip that waits for a retransmission.
func TestEndOfTCP(t *testing.T) {
	stdout := with(goodRoundTrips, "LOCAL_BYTES_SENT=6400064 REMOTE_BYTES_RECVD=6400064 MEAN_LATENCY=15.00")
	if m, err := parse(t, cell("TCP_RR", 64, 2*time.Second), 0, stdout); err != nil || m.Own.Count != 100_000 {
		t.Errorf("after 0.5 s: %+v, %v", m.Own, err)
	}
	_, err := parse(t, cell("UDP_RR", 64, 2*time.Second), 0, stdout)
	asFailure(t, err)
}

func TestParseBandwidth(t *testing.T) {
	cases := map[string]struct {
		test, lines string
		want        tool.Bandwidth
		wantLost    int64
	}{
		"TCP": {
			test: "TCP_STREAM",
			want: tool.Bandwidth{BitsPerSecond: 4e6, SentBitsPerSecond: 4e6, Retransmits: new(int64(7))},
		},
		"the last message of TCP was cut, and a part of it arrived": {
			test: "TCP_STREAM", lines: "LOCAL_BYTES_SENT=999000 LOCAL_SEND_THROUGHPUT=3996.00",
			want: tool.Bandwidth{BitsPerSecond: 4e6, SentBitsPerSecond: 4e6, Retransmits: new(int64(7))},
		},
		"a system that does not tell retransmits": {
			test: "TCP_STREAM", lines: "LOCAL_TRANSPORT_RETRANS=-1",
			want: tool.Bandwidth{BitsPerSecond: 4e6, SentBitsPerSecond: 4e6},
		},
		"UDP": {
			test: "UDP_STREAM", lines: "LOCAL_TRANSPORT_RETRANS=-1",
			want: tool.Bandwidth{BitsPerSecond: 4e6, SentBitsPerSecond: 4e6, Sent: 1_000, Received: 1_000},
		},
		"UDP, a quarter lost": {
			test: "UDP_STREAM", lines: "REMOTE_BYTES_RECVD=750000 REMOTE_RECV_THROUGHPUT=3000.00",
			want:     tool.Bandwidth{BitsPerSecond: 3e6, SentBitsPerSecond: 4e6, Sent: 1_000, Received: 750},
			wantLost: 250,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m, err := parse(t, cell(c.test, 1000, 2*time.Second), 0, with(goodStream, c.lines))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&c.want, m.Bandwidth); diff != "" || m.Lost != c.wantLost {
				t.Errorf("%d lost, want %d; -want +got:\n%s", m.Lost, c.wantLost, diff)
			}
		})
	}
}

func TestParseWarns(t *testing.T) {
	c := cell("UDP_STREAM", 1472, 2*time.Second)
	c.Warmup = 500 * time.Millisecond
	stdout := file(t, "2.7.0-udp-stream-no-protocols.txt")
	m, err := parse(t, c, 0, stdout)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"netperf has no warm-up, so the requested 500ms were omitted; " +
			"set spec.workload.warmup to 0s if that is intended",
		"netperf: enable_enobufs failed: getprotobyname (datagrams that the sender's own queue drops count as sent)",
	}
	if diff := cmp.Diff(want, m.Warnings); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if m, err = parse(t, c, 0, strings.Repeat("WARNING! "+strings.Repeat("word ", 200)+"\n", 50)+stdout); err != nil {
		t.Fatal(err)
	}
	if said := strings.Join(m.Warnings, ""); len(m.Warnings) != 1+mostWarnings || len(said) > 3000 {
		t.Errorf("%d warnings of %d bytes", len(m.Warnings), len(said))
	}
}

func TestParseFails(t *testing.T) {
	cases := map[string]struct {
		// test is the requested test; TCP_RR by default.
		test string
		// lines are the lines to replace in a valid output of the test.
		lines string
		says  string
	}{
		"a value without an end":   {lines: "MAX_LATENCY=", says: `MAX_LATENCY is ""`},
		"a rate that is no number": {lines: "TRANSACTION_RATE=nan", says: "TRANSACTION_RATE is"},
		"an infinite rate":         {lines: "TRANSACTION_RATE=inf", says: "TRANSACTION_RATE is"},
		"a latency below 0":        {lines: "MIN_LATENCY=-1", says: "MIN_LATENCY is"},
		"a latency of hours":       {lines: "MAX_LATENCY=9223372036854775", says: "MAX_LATENCY is"},
		"another size":             {lines: "REQUEST_SIZE=1", says: "REQUEST_SIZE is 1 and not 64"},
		"another size of answers":  {lines: "RESPONSE_SIZE=1", says: "RESPONSE_SIZE is 1 and not 64"},
		"half a message":           {lines: "LOCAL_BYTES_RECVD=6399999", says: "no number of messages of 64 bytes"},
		"more answers than messages": {
			lines: "LOCAL_BYTES_SENT=6399936", says: "99999 messages sent",
		},
		"two without an answer": {
			lines: "LOCAL_BYTES_SENT=6400128 REMOTE_BYTES_RECVD=6400128", says: "100002 messages sent",
		},
		"more arrived than were sent": {
			test: "UDP_RR", lines: "REMOTE_BYTES_RECVD=6400064", says: "100001 arrived",
		},
		"a rate of another time":       {lines: "ELAPSED_TIME=2.03", says: "in 2.03 s are not 50000 a second"},
		"a round trip of another rate": {lines: "RT_LATENCY=10.000", says: "are not 50000 a second"},
		"round trips that do not fit":  {lines: "MEAN_LATENCY=27.00", says: "do not fit into 2 s"},
		"percentiles out of order":     {lines: "P50_LATENCY=23", says: "percentiles of 23000, 22000"},
		"extremes out of order":        {lines: "MIN_LATENCY=1235", says: "latencies of 1235000 to 1234000"},
		"a test that ended early":      {lines: "ELAPSED_TIME=1.89", says: "measured for 1.89s of 2s"},
		"no answer": {
			test: "UDP_RR",
			lines: "LOCAL_BYTES_SENT=64 LOCAL_BYTES_RECVD=0 REMOTE_BYTES_RECVD=0 TRANSACTION_RATE=0.000 " +
				"RT_LATENCY=inf",
			says: "got no answer in 2s: a datagram was lost",
		},
		"no answer to the last message": {
			test:  "UDP_RR",
			lines: "LOCAL_BYTES_SENT=6400064 REMOTE_BYTES_RECVD=6400064 MEAN_LATENCY=18.79",
			says: "timed 1.88s of 2.00s and then got no more answers (100001 sent, 100000 answered): " +
				"a datagram was lost",
		},
		"the last message did not arrive": {
			test: "UDP_RR", lines: "LOCAL_BYTES_SENT=6400064",
			says: "1 of 100001 messages did not arrive at the server: a datagram was lost",
		},
		"a stall of TCP": {
			lines: "LOCAL_BYTES_SENT=6400064 REMOTE_BYTES_RECVD=6400064 MEAN_LATENCY=10.00", says: "the path stalled",
		},
		"a stream in another unit": {
			test: "UDP_STREAM", lines: "THROUGHPUT_UNITS=10^6bits/s", says: "THROUGHPUT_UNITS is",
		},
		"a stream of another size": {
			test: "UDP_STREAM", lines: "LOCAL_SEND_SIZE=16384", says: "LOCAL_SEND_SIZE is 16384 and not 1000",
		},
		"a stream that ended early": {
			test: "UDP_STREAM", lines: "ELAPSED_TIME=1.00", says: "measured for 1s of 2s",
		},
		"a stream of which nothing arrived": {
			test: "UDP_STREAM", lines: "REMOTE_BYTES_RECVD=0 REMOTE_RECV_THROUGHPUT=0.00",
			says: "none of the 1000000 bytes",
		},
		"a stream of another bandwidth": {
			test: "UDP_STREAM", lines: "REMOTE_RECV_THROUGHPUT=4100.00",
			says: "1000000 bytes in 2 s are not 4.1e+06 bits a second",
		},
		"a stream that was sent at another": {
			test: "UDP_STREAM", lines: "LOCAL_SEND_THROUGHPUT=4100.00",
			says: "1000000 bytes in 2 s are not 4.1e+06 bits a second",
		},
		"more datagrams than were sent": {
			test: "UDP_STREAM", lines: "REMOTE_BYTES_RECVD=1001000",
			says: "1001 datagrams arrived, but netperf sent only 1000",
		},
		"half a datagram": {
			test: "UDP_STREAM", lines: "REMOTE_BYTES_RECVD=999999", says: "no number of messages of 1000 bytes",
		},
		"retransmits that are no number": {
			test: "TCP_STREAM", lines: "LOCAL_TRANSPORT_RETRANS=-2", says: "LOCAL_TRANSPORT_RETRANS is",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			asked, stdout := cell("TCP_RR", 64, 2*time.Second), goodRoundTrips
			switch {
			case strings.HasSuffix(c.test, "_STREAM"):
				asked, stdout = cell(c.test, 1000, 2*time.Second), goodStream
			case c.test != "":
				asked = cell(c.test, 64, 2*time.Second)
			}
			_, err := parse(t, asked, 0, with(stdout, c.lines))
			if f := asFailure(t, err); !strings.Contains(f.Message, c.says) {
				t.Errorf("says %q, not %q", f.Message, c.says)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	cases := map[string]struct {
		cell         tool.Cell
		stdout, says string
	}{
		"nothing": {cell("TCP_RR", 64, 2*time.Second), "", "printed no"},
		"a value is missing": {
			cell("TCP_RR", 64, 2*time.Second), strings.Replace(goodRoundTrips, "P99_LATENCY=54\n", "", 1),
			"printed no P99_LATENCY: is it 2.7.0",
		},
		"a value twice": {
			cell("TCP_RR", 64, 2*time.Second), goodRoundTrips + "P99_LATENCY=55\n", "printed P99_LATENCY twice",
		},
		"a cell that Validate would have refused": {
			cell("TCP_RR", 0, 2*time.Second), goodRoundTrips, "REQUEST_SIZE is 64 and not 0",
		},
		"a stream where round trips were asked for": {
			cell("TCP_RR", 64, 2*time.Second), goodStream, "printed no REQUEST_SIZE",
		},
		"the words of another program": {
			cell("UDP_STREAM", 64, 2*time.Second), "#!/bin/sh\nusage: x\n", "printed no",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := parse(t, c.cell, 0, c.stdout)
			if f := asFailure(t, err); !strings.Contains(f.Message, c.says) {
				t.Errorf("says %q, not %q", f.Message, c.says)
			}
		})
	}
}

func TestExplain(t *testing.T) {
	cases := map[string]struct {
		exit           int
		stdout, stderr string
		says           string
	}{
		"killed": {
			exit: -1, says: "(exit code -1): a signal ended it: the server ended before the test did, or the client",
		},
		"a hanging server": {
			exit: 1, stdout: "recv_response_timed_n: no response received. errno 0 counter 0\n",
			says: "the server hangs",
		},
		"a server that failed": {
			exit: 255, stdout: "netperf: remote error 99", stderr: "Cannot assign requested address\n",
			says: "the server's end failed: cannot assign requested address",
		},
		"a number that is no error": {exit: 255, stdout: "netperf: remote error 99999", says: "unexpected way"},
		"no way": {
			exit: 1, stderr: "netperf: send_omni: connect_data_socket failed: No route to host\n",
			says: "its control connection worked, but not the second one",
		},
		"too long for the path": {
			exit: 1, stdout: "send_data: data send error: Message too long (errno 90)\n",
			says: "messages of 64 bytes are too long",
		},
		"options it does not have": {
			exit: 1, stdout: "\nUsage: netperf [global options] -- [test options] \n" + strings.Repeat("more\n", 500),
			says: "use 2.7.0 or later",
		},
		"values beside the failure": {exit: 1, stdout: "MIN_LATENCY=5\nwords\n", says: "unexpected way: words"},
		"bytes that are no text":    {exit: 1, stdout: "\xff\xfe\x00words\n", says: "words"},
		"a server that closed early": {
			exit: 1, stdout: "send_data: data send error: Broken pipe (errno 32)",
			says: "the server ended before the test did",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			out := tool.Output{ExitCode: c.exit, Stdout: []byte(c.stdout), Stderr: []byte(c.stderr)}
			_, err := New().Parse(cell("TCP_RR", 64, time.Second), out, nil, nil)
			if f := asFailure(t, err); !strings.Contains(f.Message, c.says) {
				t.Errorf("says %q, not %q", f.Message, c.says)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	tests := []string{"TCP_RR", "UDP_RR", "TCP_STREAM", "UDP_STREAM"}
	for i, test := range tests {
		for _, version := range []string{"2.7.0-", "2.7.1-"} {
			stdout := file(f, version+strings.ReplaceAll(strings.ToLower(test), "_", "-")+".txt")
			// All messages have the size of the cells below.
			stdout = strings.NewReplacer("SIZE=1048576", "SIZE=64", "SIZE=1472", "SIZE=64").Replace(stdout)
			f.Add(stdout, "", 0, uint8(i))
			f.Add(file(f, version+"failures.txt"), "netperf: remote error 101", 1, uint8(i))
		}
	}
	f.Add(goodRoundTrips, "", 0, uint8(1))
	f.Add("REQUEST_SIZE="+strings.Repeat("0", 600)+"A", "0", 0, uint8(37))
	f.Add(with(goodStream, "LOCAL_SEND_SIZE=64"), "", 0, uint8(2))
	f.Fuzz(func(t *testing.T, stdout, stderr string, exit int, which uint8) {
		c := cell(tests[int(which)%len(tests)], 64, 2*time.Second)
		c.Warmup = time.Duration(which)
		out := tool.Output{Stdout: []byte(stdout), Stderr: []byte(stderr), ExitCode: exit}
		m, err := New().Parse(c, out, func(int64, int64) { t.Error("a sample") }, nil)
		if err != nil {
			asFailure(t, err)
			return
		}
		if exit != 0 || (m.Own == nil) != c.Stream || (m.Bandwidth != nil) != c.Stream || len(m.Figures) == 0 {
			t.Errorf("exit code %d: %+v", exit, m)
		}
		finite := func(values ...float64) {
			for _, v := range values {
				if !(v >= 0) || math.IsInf(v, 0) {
					t.Errorf("%g in %+v", v, m)
				}
			}
		}
		if o := m.Own; o != nil {
			finite(o.MeanNs)
			ladder := []int64{0, o.MinNs, o.P50Ns, o.P90Ns, o.P99Ns, o.MaxNs}
			if o.Count <= 0 || !slices.IsSorted(ladder) || o.StdDevNs < 0 || o.StepNs < 1_000 {
				t.Errorf("%+v", o)
			}
		}
		if b := m.Bandwidth; b != nil {
			finite(b.BitsPerSecond, b.SentBitsPerSecond)
			if b.BitsPerSecond == 0 || b.Received > b.Sent || m.Lost != b.Sent-b.Received ||
				(b.Retransmits != nil && *b.Retransmits < 0) {
				t.Errorf("%+v, %d lost", b, m.Lost)
			}
		}
	})
}
