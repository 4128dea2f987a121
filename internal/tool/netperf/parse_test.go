package netperf

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
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

// parse fails when a sample is recorded: the tool tells none.
func parse(t testing.TB, c tool.Cell, exit int, stdout string) (tool.Measurement, error) {
	t.Helper()
	return New().Parse(c, tool.Output{Stdout: []byte(stdout), ExitCode: exit}, func(rtt, count int64) { t.Errorf("%d samples of %d ns", count, rtt) })
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

// printed reads a value as text, with nothing of the parser.
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

func TestParseRoundTrips(t *testing.T) {
	for _, version := range []string{"2.7.0", "2.7.1"} {
		for _, test := range []string{"tcp-rr", "udp-rr"} {
			t.Run(version+" "+test, func(t *testing.T) {
				stdout := file(t, version+"-"+test+".txt")
				of := func(name string) float64 { return printed(t, stdout, name) }
				m, err := parse(t, cell(strings.ToUpper(strings.ReplaceAll(test, "-", "_")), 64, 2*time.Second), 0, stdout)
				if err != nil {
					t.Fatal(err)
				}
				want := tool.Own{
					Count: int64(of("LOCAL_BYTES_RECVD") / 64), MeanNs: 1e9 / of("TRANSACTION_RATE"), StepNs: m.Own.StepNs,
					MinNs: int64(1e3 * of("MIN_LATENCY")), MaxNs: int64(1e3 * of("MAX_LATENCY")), StdDevNs: int64(math.Round(1e3 * of("STDDEV_LATENCY"))),
					P50Ns: int64(1e3 * of("P50_LATENCY")), P90Ns: int64(1e3 * of("P90_LATENCY")), P99Ns: int64(1e3 * of("P99_LATENCY")),
				}
				if diff := cmp.Diff(want, *m.Own); diff != "" {
					t.Errorf("-want +got:\n%s", diff)
				}
				if exact := 1e3 * of("RT_LATENCY"); math.Abs(m.Own.MeanNs-exact) > 1e-4*exact {
					t.Errorf("a mean of %g ns, but netperf printed %g", m.Own.MeanNs, exact)
				}
				if len(m.Figures) != len(roundTripValues) || m.Bandwidth != nil || m.Lost != 0 || len(m.Warnings) > 0 {
					t.Errorf("%d figures, bandwidth %v, %d lost, warnings %q", len(m.Figures), m.Bandwidth, m.Lost, m.Warnings)
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
				m, err := parse(t, cell(strings.ToUpper(strings.ReplaceAll(test, "-", "_")), size, 2*time.Second), 0, stdout)
				if err != nil {
					t.Fatal(err)
				}
				want := tool.Bandwidth{BitsPerSecond: 1e3 * of("REMOTE_RECV_THROUGHPUT"), SentBitsPerSecond: 1e3 * max(of("LOCAL_SEND_THROUGHPUT"), of("REMOTE_RECV_THROUGHPUT"))}
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
					t.Errorf("%d figures, statistics %v, %d lost, warnings %q", len(m.Figures), m.Own, m.Lost, m.Warnings)
				}
			})
		}
	}
}

// TestCapturedFailures goes through what was captured of each way in which a measurement can end. Exit code 0 is common.
func TestCapturedFailures(t *testing.T) {
	cases := map[string]struct {
		size int32
		says []string
	}{
		"TCP_RR, nobody listens":                   {64, []string{"exit code 255", "no server listens", "10.66.2.2 at port 23456"}},
		"TCP_RR, server killed":                    {64, []string{"exit code 1", "the server ended before the test did"}},
		"UDP_RR, server killed":                    {64, []string{"exit code 1", "the server ended before the test did"}},
		"TCP_STREAM, server killed":                {65536, []string{"exit code -1", "a signal ended it: the server ended before the test did"}},
		"UDP_STREAM, server killed":                {1472, []string{"exit code 1", "the server ended before the test did", "errno 111"}},
		"UDP_RR, a request lost":                   {64, []string{"a datagram was lost", "then got no answer any more"}},
		"UDP_RR, an answer lost":                   {64, []string{"a datagram was lost", "then got no answer any more"}},
		"TCP_RR, the path cut until after the end": {64, []string{"the path stalled", "then got no answer any more"}},
		"UDP_RR, the server's route taken away":    {64, []string{"the server's end failed: network is unreachable"}},
		"UDP_RR, a message longer than a datagram": {65508, []string{"messages of 65508 bytes are too long", "errno 90"}},
		"TCP_XX, a test that it does not know":     {64, []string{"does not take the options", "unknown to this netperf"}},
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

// values is an output that is as it must be, of 2 s, to be spoiled.
type values map[string]string

func (v values) with(pairs ...string) values {
	out := values{}
	for name, value := range v {
		out[name] = value
	}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

func (v values) String() string {
	var b strings.Builder
	for name, value := range v {
		if value != "-" {
			fmt.Fprintf(&b, "%s=%s\n", name, value)
		}
	}
	return b.String()
}

var (
	goodRoundTrips = values{
		"TRANSACTION_RATE": "50000.000", "RT_LATENCY": "20.000", "MEAN_LATENCY": "19.95", "MIN_LATENCY": "11", "P50_LATENCY": "19",
		"P90_LATENCY": "22", "P99_LATENCY": "54", "MAX_LATENCY": "1234", "STDDEV_LATENCY": "4.56", "ELAPSED_TIME": "2.00", "REQUEST_SIZE": "64",
		"RESPONSE_SIZE": "64", "LOCAL_BYTES_SENT": "6400000", "LOCAL_BYTES_RECVD": "6400000", "REMOTE_BYTES_RECVD": "6400000", "LOCAL_TRANSPORT_RETRANS": "0",
	}
	goodStream = values{
		"REMOTE_RECV_THROUGHPUT": "4000000.00", "LOCAL_SEND_THROUGHPUT": "4000000.00", "THROUGHPUT_UNITS": "10^3bits/s", "ELAPSED_TIME": "2.00",
		"LOCAL_SEND_SIZE": "1000", "LOCAL_BYTES_SENT": "1000000000", "REMOTE_BYTES_RECVD": "1000000000", "LOCAL_TRANSPORT_RETRANS": "7",
	}
)

func TestParseOwn(t *testing.T) {
	good := tool.Own{Count: 100_000, MeanNs: 20_000, MinNs: 11_000, P50Ns: 19_000, P90Ns: 22_000, P99Ns: 54_000, MaxNs: 1_234_000, StdDevNs: 4_560, StepNs: 1_000}
	with := func(change func(*tool.Own)) tool.Own {
		own := good
		change(&own)
		return own
	}
	cases := map[string]struct {
		printed values
		want    tool.Own
		warning string
	}{
		"all is well": {goodRoundTrips, good, ""},
		"the end interrupted the last round trip":                 {goodRoundTrips.with("LOCAL_BYTES_SENT", "6400064", "REMOTE_BYTES_RECVD", "6400064"), good, ""},
		"the tool was held up between round trips, and lost none": {goodRoundTrips.with("MEAN_LATENCY", "12.00"), good, ""},
		"a percentile below 100 µs is of whole microseconds":      {goodRoundTrips.with("P99_LATENCY", "99"), with(func(o *tool.Own) { o.P99Ns = 99_000 }), ""},
		"from 100 µs on it lies in a bucket of 10 µs":             {goodRoundTrips.with("P99_LATENCY", "104"), with(func(o *tool.Own) { o.P99Ns, o.StepNs = 104_000, 10_000 }), ""},
		"from 1 ms on in one of 100 µs":                           {goodRoundTrips.with("P99_LATENCY", "1000"), with(func(o *tool.Own) { o.P99Ns, o.StepNs = 1_000_000, 100_000 }), ""},
		"interpolated beyond the extremes":                        {goodRoundTrips.with("P50_LATENCY", "10", "P99_LATENCY", "1290"), with(func(o *tool.Own) { o.P50Ns, o.P99Ns, o.StepNs = 11_000, 1_234_000, 100_000 }), ""},
		"a deviation that is no number":                           {goodRoundTrips.with("STDDEV_LATENCY", "-nan"), with(func(o *tool.Own) { o.StdDevNs = 0 }), ""},
		"more round trips than its counters hold": {
			goodRoundTrips.with("TRANSACTION_RATE", "69444.444", "RT_LATENCY", "14.400", "ELAPSED_TIME", "43200.00", "MEAN_LATENCY", "-5", "P50_LATENCY", "-7",
				"LOCAL_BYTES_SENT", "192000000000", "LOCAL_BYTES_RECVD", "192000000000", "REMOTE_BYTES_RECVD", "192000000000"),
			tool.Own{Count: 3_000_000_000, MeanNs: 1e9 / 69444.444, StepNs: 1_000}, "no percentiles of 3000000000 round trips",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m, err := parse(t, cell("UDP_RR", 64, 2*time.Second), 0, c.printed.String())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&c.want, m.Own); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if said := strings.Join(m.Warnings, "; "); !strings.Contains(said, c.warning) || (c.warning == "" && said != "") {
				t.Errorf("warns %q, not %q", said, c.warning)
			}
		})
	}
}

func TestParseBandwidth(t *testing.T) {
	cases := map[string]struct {
		test     string
		printed  values
		want     tool.Bandwidth
		wantLost int64
	}{
		"TCP": {"TCP_STREAM", goodStream, tool.Bandwidth{BitsPerSecond: 4e9, SentBitsPerSecond: 4e9, Retransmits: new(int64(7))}, 0},
		"the last message of TCP was cut, and a part of it arrived": {"TCP_STREAM", goodStream.with("LOCAL_BYTES_SENT", "999999000", "LOCAL_SEND_THROUGHPUT", "3999996.00"),
			tool.Bandwidth{BitsPerSecond: 4e9, SentBitsPerSecond: 4e9, Retransmits: new(int64(7))}, 0},
		"a system that does not tell retransmits": {"TCP_STREAM", goodStream.with("LOCAL_TRANSPORT_RETRANS", "-1"), tool.Bandwidth{BitsPerSecond: 4e9, SentBitsPerSecond: 4e9}, 0},
		"UDP": {"UDP_STREAM", goodStream.with("LOCAL_TRANSPORT_RETRANS", "-1"), tool.Bandwidth{BitsPerSecond: 4e9, SentBitsPerSecond: 4e9, Sent: 1_000_000, Received: 1_000_000}, 0},
		"UDP, a quarter lost": {"UDP_STREAM", goodStream.with("REMOTE_BYTES_RECVD", "750000000", "REMOTE_RECV_THROUGHPUT", "3000000.00"),
			tool.Bandwidth{BitsPerSecond: 3e9, SentBitsPerSecond: 4e9, Sent: 1_000_000, Received: 750_000}, 250_000},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m, err := parse(t, cell(c.test, 1000, 2*time.Second), 0, c.printed.String())
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
	m, err := parse(t, c, 0, file(t, "2.7.0-udp-stream-no-protocols.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"netperf has no warm-up, so the 500ms asked for were left out; set spec.workload.warmup to 0s if that is as it should be",
		"netperf: enable_enobufs failed: getprotobyname (datagrams that the sender's own queue drops count as sent)",
	}
	if diff := cmp.Diff(want, m.Warnings); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if m, err = parse(t, c, 0, strings.Repeat("WARNING! "+strings.Repeat("word ", 200)+"\n", 50)+goodStream.with("LOCAL_SEND_SIZE", "1472",
		"LOCAL_BYTES_SENT", "1472000", "REMOTE_BYTES_RECVD", "1472000", "LOCAL_SEND_THROUGHPUT", "5888.00", "REMOTE_RECV_THROUGHPUT", "5888.00").String()); err != nil {
		t.Fatal(err)
	}
	if said := strings.Join(m.Warnings, ""); len(m.Warnings) != 1+mostWarnings || len(said) > 3000 {
		t.Errorf("%d warnings of %d bytes", len(m.Warnings), len(said))
	}
}

func TestParseFails(t *testing.T) {
	rr, udp, stream := cell("TCP_RR", 64, 2*time.Second), cell("UDP_RR", 64, 2*time.Second), cell("UDP_STREAM", 1000, 2*time.Second)
	cases := map[string]struct {
		cell   tool.Cell
		stdout string
		says   string
	}{
		"nothing":                                   {rr, "", "printed no"},
		"a value is missing":                        {rr, goodRoundTrips.with("P99_LATENCY", "-").String(), "printed no P99_LATENCY: is it 2.7.0"},
		"a value twice":                             {rr, goodRoundTrips.String() + "P99_LATENCY=55\n", "printed P99_LATENCY twice"},
		"a value without an end":                    {rr, goodRoundTrips.with("MAX_LATENCY", "").String(), `MAX_LATENCY is ""`},
		"a rate that is no number":                  {rr, goodRoundTrips.with("TRANSACTION_RATE", "nan").String(), "TRANSACTION_RATE is"},
		"an infinite rate":                          {rr, goodRoundTrips.with("TRANSACTION_RATE", "inf").String(), "TRANSACTION_RATE is"},
		"a latency below 0":                         {rr, goodRoundTrips.with("MIN_LATENCY", "-1").String(), "MIN_LATENCY is"},
		"a latency of hours":                        {rr, goodRoundTrips.with("MAX_LATENCY", "9223372036854775").String(), "MAX_LATENCY is"},
		"another size":                              {rr, goodRoundTrips.with("REQUEST_SIZE", "1").String(), "REQUEST_SIZE is 1 and not 64"},
		"another size of answers":                   {rr, goodRoundTrips.with("RESPONSE_SIZE", "1").String(), "RESPONSE_SIZE is 1 and not 64"},
		"half a message":                            {rr, goodRoundTrips.with("LOCAL_BYTES_RECVD", "6399999").String(), "no number of messages of 64 bytes"},
		"more answers than messages":                {rr, goodRoundTrips.with("LOCAL_BYTES_SENT", "6399936").String(), "99999 messages sent"},
		"two without an answer":                     {rr, goodRoundTrips.with("LOCAL_BYTES_SENT", "6400128", "REMOTE_BYTES_RECVD", "6400128").String(), "100002 messages sent"},
		"more arrived than were sent":               {udp, goodRoundTrips.with("REMOTE_BYTES_RECVD", "6400064").String(), "100001 arrived"},
		"a rate of another time":                    {rr, goodRoundTrips.with("ELAPSED_TIME", "2.50").String(), "in 2.5 s are not 50000 a second"},
		"a round trip of another rate":              {rr, goodRoundTrips.with("RT_LATENCY", "10.000").String(), "are not 50000 a second"},
		"round trips that do not fit":               {rr, goodRoundTrips.with("MEAN_LATENCY", "25.00").String(), "do not fit into 2 s"},
		"percentiles out of order":                  {rr, goodRoundTrips.with("P50_LATENCY", "23").String(), "percentiles of 23000, 22000"},
		"extremes out of order":                     {rr, goodRoundTrips.with("MIN_LATENCY", "1235").String(), "latencies of 1235000 to 1234000"},
		"a test that ended early":                   {rr, goodRoundTrips.with("ELAPSED_TIME", "1.89").String(), "measured 1.89s of 2s"},
		"no answer":                                 {udp, goodRoundTrips.with("LOCAL_BYTES_SENT", "64", "LOCAL_BYTES_RECVD", "0", "REMOTE_BYTES_RECVD", "0", "TRANSACTION_RATE", "0.000", "RT_LATENCY", "inf").String(), "got no answer in 2s: a datagram was lost"},
		"no answer to the last message":             {udp, goodRoundTrips.with("LOCAL_BYTES_SENT", "6400064", "REMOTE_BYTES_RECVD", "6400064", "MEAN_LATENCY", "18.79").String(), "timed 1.88s of 2.00s and then got no answer any more (100001 sent, 100000 answered): a datagram was lost"},
		"the last message did not arrive":           {udp, goodRoundTrips.with("LOCAL_BYTES_SENT", "6400064").String(), "1 of 100001 messages did not arrive at the server: a datagram was lost"},
		"a stall of TCP":                            {rr, goodRoundTrips.with("LOCAL_BYTES_SENT", "6400064", "REMOTE_BYTES_RECVD", "6400064", "MEAN_LATENCY", "10.00").String(), "the path stalled"},
		"a stream in another unit":                  {stream, goodStream.with("THROUGHPUT_UNITS", "10^6bits/s").String(), "THROUGHPUT_UNITS is"},
		"a stream of another size":                  {stream, goodStream.with("LOCAL_SEND_SIZE", "16384").String(), "LOCAL_SEND_SIZE is 16384 and not 1000"},
		"a stream that ended early":                 {stream, goodStream.with("ELAPSED_TIME", "1.00").String(), "measured 1s of 2s"},
		"a stream of which nothing arrived":         {stream, goodStream.with("REMOTE_BYTES_RECVD", "0", "REMOTE_RECV_THROUGHPUT", "0.00").String(), "nothing of the 1000000000 bytes"},
		"a stream of another bandwidth":             {stream, goodStream.with("REMOTE_RECV_THROUGHPUT", "4100000.00").String(), "are not 4e+09 and 4.1e+09 bits a second"},
		"a stream that was sent at another":         {stream, goodStream.with("LOCAL_SEND_THROUGHPUT", "4100000.00").String(), "are not 4.1e+09 and 4e+09 bits a second"},
		"more datagrams than were sent":             {stream, goodStream.with("REMOTE_BYTES_RECVD", "1000001000").String(), "1000001 datagrams arrived, but netperf sent only 1000000"},
		"half a datagram":                           {stream, goodStream.with("REMOTE_BYTES_RECVD", "999999999").String(), "no number of messages of 1000 bytes"},
		"retransmits that are no number":            {cell("TCP_STREAM", 1000, 2*time.Second), goodStream.with("LOCAL_TRANSPORT_RETRANS", "-2").String(), "LOCAL_TRANSPORT_RETRANS is"},
		"a cell that Validate would have refused":   {cell("TCP_RR", 0, 2*time.Second), goodRoundTrips.String(), "REQUEST_SIZE is 64 and not 0"},
		"round trips of a tool that streamed":       {rr, goodStream.String(), "printed no REQUEST_SIZE"},
		"the words of another program, and success": {rr, "#!/bin/sh\nusage: x\n", "printed no"},
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
		"killed":                     {-1, "", "", "exit code -1): a signal ended it: the server ended before the test did, or the client was killed"},
		"a hanging server":           {1, "recv_response_timed_n: no response received. errno 0 counter 0\n", "", "the server hangs"},
		"a server that failed":       {255, "netperf: remote error 99", "Cannot assign requested address\n", "the server's end failed: cannot assign requested address"},
		"a number that is no error":  {255, "netperf: remote error 99999", "", "unexpected way"},
		"no way":                     {1, "", "netperf: send_omni: connect_data_socket failed: No route to host\n", "there is no way to the server"},
		"the path's messages":        {1, "send_data: data send error: Message too long (errno 90)\n", "", "messages of 64 bytes are too long"},
		"options it does not have":   {1, "\nUsage: netperf [global options] -- [test options] \n" + strings.Repeat("more\n", 500), "", "use 2.7.0 or later"},
		"values beside the failure":  {1, "MIN_LATENCY=5\nwords\n", "", "unexpected way: words"},
		"bytes that are no text":     {1, "\xff\xfe\x00words\n", "", "words"},
		"a server that closed early": {1, "send_data: data send error: Broken pipe (errno 32)", "", "the server ended before the test did"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := New().Parse(cell("TCP_RR", 64, time.Second), tool.Output{ExitCode: c.exit, Stdout: []byte(c.stdout), Stderr: []byte(c.stderr)}, nil)
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
			// All of one size, which is that of the cells below.
			stdout = strings.NewReplacer("SIZE=1048576", "SIZE=64", "SIZE=1472", "SIZE=64").Replace(stdout)
			f.Add(stdout, "", 0, uint8(i))
			f.Add(file(f, version+"failures.txt"), "netperf: remote error 101", 1, uint8(i))
		}
	}
	f.Add(goodRoundTrips.String(), "", 0, uint8(1))
	f.Add(goodStream.with("LOCAL_SEND_SIZE", "64").String(), "", 0, uint8(2))
	f.Fuzz(func(t *testing.T, stdout, stderr string, exit int, which uint8) {
		c := cell(tests[int(which)%len(tests)], 64, 2*time.Second)
		c.Warmup = time.Duration(which)
		m, err := New().Parse(c, tool.Output{Stdout: []byte(stdout), Stderr: []byte(stderr), ExitCode: exit}, func(int64, int64) { t.Error("a sample") })
		if err != nil {
			asFailure(t, err)
			return
		}
		if exit != 0 || m.Lost < 0 || (m.Own == nil) == (m.Bandwidth == nil) || (m.Bandwidth != nil) != c.Stream || len(m.Figures) == 0 {
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
			if o.Count <= 0 || o.MinNs < 0 || o.MinNs > o.P50Ns || o.P50Ns > o.P90Ns || o.P90Ns > o.P99Ns || o.P99Ns > o.MaxNs || o.StdDevNs < 0 || o.StepNs < 1_000 {
				t.Errorf("%+v", o)
			}
		}
		if b := m.Bandwidth; b != nil {
			finite(b.BitsPerSecond, b.SentBitsPerSecond)
			if b.BitsPerSecond == 0 || b.Received > b.Sent || m.Lost != b.Sent-b.Received || (b.Retransmits != nil && *b.Retransmits < 0) {
				t.Errorf("%+v, %d lost", b, m.Lost)
			}
		}
	})
}
