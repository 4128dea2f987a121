package netperf

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// cell returns a cell of the given test, such as TCP_RR or UDP_STREAM, without a warm-up.
func cell(test string, size int32, duration time.Duration) tool.Cell {
	protocol, kind, _ := strings.Cut(test, "_")
	return tool.Cell{
		Traffic: v1alpha1.Traffic{Protocol: v1alpha1.Protocol(protocol), Stream: kind == "STREAM", MessageSize: size}, Duration: duration,
	}
}

func TestCommands(t *testing.T) {
	const (
		roundTrips = " -k TRANSACTION_RATE,RT_LATENCY,MEAN_LATENCY,MIN_LATENCY,P50_LATENCY,P90_LATENCY,P99_LATENCY," +
			"MAX_LATENCY,STDDEV_LATENCY,ELAPSED_TIME,REQUEST_SIZE,RESPONSE_SIZE,LOCAL_BYTES_SENT,LOCAL_BYTES_RECVD," +
			"REMOTE_BYTES_RECVD,LOCAL_TRANSPORT_RETRANS"
		streams = " -k REMOTE_RECV_THROUGHPUT,LOCAL_SEND_THROUGHPUT,THROUGHPUT_UNITS,ELAPSED_TIME,LOCAL_SEND_SIZE," +
			"LOCAL_BYTES_SENT,REMOTE_BYTES_RECVD,LOCAL_TRANSPORT_RETRANS"
	)
	four := tool.Target{Address: "10.99.0.2", Port: 11111, LocalAddress: "10.99.0.1"}
	cases := map[string]struct {
		cell           tool.Cell
		target         tool.Target
		server, client string
	}{
		"round trips over TCP": {
			cell("TCP_RR", 64, 3*time.Second), four,
			"-D -f -N -L 10.99.0.2 -p 11111",
			"-H 10.99.0.2 -p 11111 -t TCP_RR -l 3 -P 0 -- -H 10.99.0.2 -L 10.99.0.1 -r 64,64" + roundTrips,
		},
		"round trips over UDP and IPv6": {
			cell("UDP_RR", 1, 12*time.Hour), tool.Target{Address: "fd00::2", Port: 12, LocalAddress: "fd00::1"},
			"-D -f -N -L fd00::2 -p 12",
			"-H fd00::2 -p 12 -t UDP_RR -l 43200 -P 0 -- -H fd00::2 -L fd00::1 -r 1,1" + roundTrips,
		},
		"a stream over TCP": {
			cell("TCP_STREAM", 1<<20, time.Second), four,
			"-D -f -N -L 10.99.0.2 -p 11111",
			"-H 10.99.0.2 -p 11111 -t TCP_STREAM -l 1 -P 0 -f k -- -H 10.99.0.2 -L 10.99.0.1 -m 1048576 -R 1" + streams,
		},
		"a stream over UDP, from any address": {
			cell("UDP_STREAM", 1472, time.Second), tool.Target{Address: "10.99.0.2", Port: 12},
			"-D -f -N -L 10.99.0.2 -p 12",
			"-H 10.99.0.2 -p 12 -t UDP_STREAM -l 1 -P 0 -f k -- -H 10.99.0.2 -m 1472 -R 1" + streams,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			want := []tool.Command{
				{Path: "netserver", Args: strings.Fields(c.server)}, {Path: "netperf", Args: strings.Fields(c.client)},
			}
			got := []tool.Command{New().Server(c.cell, c.target), New().Client(c.cell, c.target)}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestDriver(t *testing.T) {
	d := New()
	if d.Name() != v1alpha1.ToolNetperf {
		t.Errorf("name %q", d.Name())
	}
	if got := d.Listens(cell("UDP_RR", 64, time.Second)); got != v1alpha1.ProtocolTCP {
		t.Errorf("listens over %s, though the control connection comes first", got)
	}
	if got := d.Deadline(cell("TCP_RR", 64, 3*time.Second)); got != 33*time.Second {
		t.Errorf("deadline %s", got)
	}
	if _, known := d.MostSamples(cell("TCP_RR", 64, time.Second)); known {
		t.Error("how many round trips a closed loop makes cannot be known")
	}
}

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		// change is applied to a cell of round trips of 64 bytes over TCP, of 3 s.
		change func(*tool.Cell)
		// says is a part of the error; empty: the tool can measure the cell.
		says string
	}{
		"round trips over TCP":   {func(*tool.Cell) {}, ""},
		"the largest datagram":   {func(c *tool.Cell) { c.Protocol, c.MessageSize = "UDP", 65_507 }, ""},
		"the largest stream":     {func(c *tool.Cell) { c.Stream, c.MessageSize = true, 1<<20 }, ""},
		"a stream of one byte":   {func(c *tool.Cell) { c.Protocol, c.Stream, c.MessageSize = "UDP", true, 1 }, ""},
		"a warm-up":              {func(c *tool.Cell) { c.Warmup = 500 * time.Millisecond }, ""},
		"no muxer, by name":      {func(c *tool.Cell) { c.Muxer = v1alpha1.MuxerNone }, ""},
		"sleeping, by name":      {func(c *tool.Cell) { c.Wait = v1alpha1.WaitBlock }, ""},
		"a rate":                 {func(c *tool.Cell) { c.RatePerSecond = 1 }, "rate"},
		"polling":                {func(c *tool.Cell) { c.Wait = v1alpha1.WaitSpin }, "poll"},
		"a muxer":                {func(c *tool.Cell) { c.Muxer = v1alpha1.MuxerEpoll }, "Epoll"},
		"a stream with a muxer":  {func(c *tool.Cell) { c.Stream, c.Muxer = true, v1alpha1.MuxerPoll }, "Poll"},
		"multicast":              {func(c *tool.Cell) { c.Protocol = v1alpha1.ProtocolMulticast }, "Multicast"},
		"no bytes":               {func(c *tool.Cell) { c.Protocol, c.MessageSize = "UDP", 0 }, "1 to 65507"},
		"a stream of nothing":    {func(c *tool.Cell) { c.Stream, c.MessageSize = true, 0 }, "1 to 1048576"},
		"more than a datagram":   {func(c *tool.Cell) { c.Protocol, c.MessageSize = "UDP", 65_508 }, "65508"},
		"more than a spec asks":  {func(c *tool.Cell) { c.MessageSize = 1<<20 + 1 }, "1048577"},
		"part of a second":       {func(c *tool.Cell) { c.Duration = 900 * time.Millisecond }, "1s instead of 900ms"},
		"a second and a part":    {func(c *tool.Cell) { c.Duration = 1500 * time.Millisecond }, "2s instead of 1.5s"},
		"no time":                {func(c *tool.Cell) { c.Duration = 0 }, "cannot measure for 0s"},
		"time back":              {func(c *tool.Cell) { c.Duration = -time.Second }, "cannot measure for -1s"},
		"a warm-up back in time": {func(c *tool.Cell) { c.Warmup = -1 }, "after -1ns"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			asked := cell("TCP_RR", 64, 3*time.Second)
			c.change(&asked)
			err := New().Validate(asked)
			switch {
			case c.says == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
				t.Errorf("got %v, which does not say %q", err, c.says)
			}
		})
	}
}
