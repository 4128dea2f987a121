package sockperf

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

func stream(p v1alpha1.Protocol) tool.Cell {
	c := cell(p, 1400, time.Second, 500*time.Millisecond)
	c.Stream = true
	return c
}

func TestParseStream(t *testing.T) {
	cases := map[string]struct {
		cell           tool.Cell
		stdout, server string // files; if server is empty, its output was not kept
		want           tool.Measurement
	}{
		"UDP, of which most was lost": {stream("UDP"), "stream-udp.stdout", "stream-udp.server", tool.Measurement{
			Lost:      98_931 - 38_479,
			Bandwidth: &tool.Bandwidth{BitsPerSecond: 38_479 * 1400 * 8, SentBitsPerSecond: 98_931 * 1400 * 8, Sent: 98_931, Received: 38_479},
			Figures: []tool.Figure{{Name: "run time (s)", Value: "1.000"}, {Name: "sent", Value: "98931"}, {Name: "bandwidth (MiB/s)", Value: "132.024"},
				{Name: "received by the server", Value: "38479"}},
		}},
		"TCP": {stream("TCP"), "stream-tcp.stdout", "stream-tcp.server", tool.Measurement{
			Bandwidth: &tool.Bandwidth{BitsPerSecond: 59_638 * 1400 * 8 / 1.001, SentBitsPerSecond: 59_638 * 1400 * 8 / 1.001},
			Figures: []tool.Figure{{Name: "run time (s)", Value: "1.001"}, {Name: "sent", Value: "59638"}, {Name: "bandwidth (MiB/s)", Value: "79.544"},
				{Name: "received by the server", Value: "59638"}},
		}},
		"a sender that spins": {stream("UDP"), "stream-skipped.stdout", "stream-skipped.server", tool.Measurement{
			Lost:      559 - 521,
			Bandwidth: &tool.Bandwidth{BitsPerSecond: 521 * 1400 * 8 / 1.007, SentBitsPerSecond: 559 * 1400 * 8 / 1.007, Sent: 559, Received: 521},
			Figures: []tool.Figure{{Name: "run time (s)", Value: "1.007"}, {Name: "sent", Value: "559"}, {Name: "skipped", Value: "203611"},
				{Name: "bandwidth (MiB/s)", Value: "0.741"}, {Name: "received by the server", Value: "521"}},
		}},
		"a server without kept output": {stream("UDP"), "stream-udp.stdout", "", tool.Measurement{
			Bandwidth: &tool.Bandwidth{SentBitsPerSecond: 98_931 * 1400 * 8, Sent: 98_931},
			Figures:   []tool.Figure{{Name: "run time (s)", Value: "1.000"}, {Name: "sent", Value: "98931"}, {Name: "bandwidth (MiB/s)", Value: "132.024"}},
			Warnings:  []string{"sockperf: it reports the sent messages, not the received ones"},
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			out := output(file(t, c.stdout), nil)
			if c.server != "" {
				out.Server = file(t, c.server)
			}
			samples, m, err := parse(c.cell, out)
			if err != nil {
				t.Fatal(err)
			}
			c.want.Version = "3.7-no.git"
			if diff := cmp.Diff(c.want, m, cmpopts.EquateApprox(1e-9, 0)); diff != "" || len(samples) > 0 {
				t.Errorf("%d samples, -want +got:\n%s", len(samples), diff)
			}
		})
	}
}

func TestParseStreamFails(t *testing.T) {
	long := stream("UDP")
	long.Duration = 1002 * time.Millisecond
	cases := map[string]struct {
		cell   tool.Cell
		stdout []byte
		server []byte
		exit   int
		says   string
	}{
		"nothing arrived":               {stream("UDP"), file(t, "stream-udp.stdout"), file(t, "nothing-received.server"), 0, "no message of sockperf reached the server"},
		"a server that ended or hangs":  {stream("UDP"), file(t, "stream-udp.stdout"), []byte{}, 0, "did not report what it received"},
		"a server that is out of range": {stream("UDP"), file(t, "stream-udp.stdout"), []byte("Total 99999999999999999999 messages received and handled"), 0, "99999999999999999999"},
		"more than was sent":            {stream("UDP"), file(t, "stream-udp.stdout"), []byte("Total 98932 messages received and handled"), 0, "98932 datagrams arrived, but sockperf sent only 98931"},
		"too short a time":              {long, file(t, "stream-udp.stdout"), file(t, "stream-udp.server"), 0, "measured for 1s of 2s"},
		"no time at all":                {stream("UDP"), []byte("Total of 1 messages sent in 0.000 sec\nBandWidth is 0.000 MBps"), nil, 0, "a run of 0.000 seconds"},
		"no server":                     {stream("TCP"), file(t, "tcp-no-server.stdout"), nil, 0, "no server listens"},
		"a server that was killed":      {stream("TCP"), file(t, "tcp-server-killed.stdout"), nil, 7, "the server ended before the test did"},
		"a report and a failure":        {stream("TCP"), file(t, "stream-tcp.stdout"), nil, 7, "failed nonetheless"},
		"a report of a ping-pong":       {stream("TCP"), file(t, "tcp.stdout"), nil, 0, "it reported nothing"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			out := output(c.stdout, nil)
			out.Server, out.ExitCode = c.server, c.exit
			_, _, err := parse(c.cell, out)
			if f := asFailure(t, err); !strings.Contains(f.Message, c.says) || strings.Contains(f.Message, "\n") {
				t.Errorf("says %q, not %q", f.Message, c.says)
			}
		})
	}
}
