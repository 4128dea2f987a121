package sockperf

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

func cell(p v1alpha1.Protocol, size int32, duration, warmup time.Duration) tool.Cell {
	return tool.Cell{Traffic: v1alpha1.Traffic{Protocol: p, MessageSize: size}, Duration: duration, Warmup: warmup}
}

func TestCommands(t *testing.T) {
	type commands struct{ Server, Client tool.Command }
	target := tool.Target{Address: "10.99.0.2", Port: 11111, LocalAddress: "10.99.0.1", Scratch: "/scratch/a", CPUs: []int{4, 6}, Key: "secret"}
	second := cell("UDP", 14, time.Second, 0)
	with := func(change func(*tool.Cell)) tool.Cell {
		c := second
		change(&c)
		return c
	}
	cases := map[string]struct {
		cell           tool.Cell
		server, client string
		interrupt      bool
	}{
		"TCP": {
			cell:   cell("TCP", 64, 3*time.Second, 500*time.Millisecond),
			server: "server -i 10.99.0.2 -p 11111 --tcp --uc-reuseaddr",
			client: "ping-pong -i 10.99.0.2 -p 11111 --tcp --client_ip 10.99.0.1 -m 64 -t 4 --full-rtt --full-log /scratch/a/log.csv",
		},
		"UDP": {
			cell:   second,
			server: "server -i 10.99.0.2 -p 11111",
			client: "ping-pong -i 10.99.0.2 -p 11111 --client_ip 10.99.0.1 -m 14 -t 2 --full-rtt --full-log /scratch/a/log.csv",
		},
		"ends that spin": {
			cell:   with(func(c *tool.Cell) { c.Wait = v1alpha1.WaitSpin }),
			server: "server -i 10.99.0.2 -p 11111 --nonblocked",
			client: "ping-pong -i 10.99.0.2 -p 11111 --nonblocked --client_ip 10.99.0.1 -m 14 -t 2 --full-rtt --full-log /scratch/a/log.csv",
		},
		"a multicast group": {
			cell: with(func(c *tool.Cell) {
				c.Protocol, c.MulticastGroup = v1alpha1.ProtocolMulticast, "239.192.0.1"
			}),
			server: "server -i 239.192.0.1 -p 11111 --mc-rx-if 10.99.0.2 --mc-tx-if 10.99.0.2",
			client: "ping-pong -i 239.192.0.1 -p 11111 --mc-rx-if 10.99.0.1 --mc-tx-if 10.99.0.1 -m 14 -t 2 --full-rtt --full-log /scratch/a/log.csv",
		},
		"a group that the ends choose": {
			cell:   with(func(c *tool.Cell) { c.Protocol = v1alpha1.ProtocolMulticast }),
			server: "server -i 239.192.232.229 -p 11111 --mc-rx-if 10.99.0.2 --mc-tx-if 10.99.0.2",
			client: "ping-pong -i 239.192.232.229 -p 11111 --mc-rx-if 10.99.0.1 --mc-tx-if 10.99.0.1 -m 14 -t 2 --full-rtt --full-log /scratch/a/log.csv",
		},
		"a rate": {
			cell:   with(func(c *tool.Cell) { c.RatePerSecond = 23_000 }),
			server: "server -i 10.99.0.2 -p 11111",
			client: "under-load -i 10.99.0.2 -p 11111 --client_ip 10.99.0.1 -m 14 -t 2 --mps 23000 --reply-every 1 --sender-affinity 4 --receiver-affinity 6 --full-rtt --full-log /scratch/a/log.csv",
		},
		"a stream": {
			cell:      with(func(c *tool.Cell) { c.Protocol, c.Stream = v1alpha1.ProtocolTCP, true }),
			server:    "server -i 10.99.0.2 -p 11111 --tcp --uc-reuseaddr",
			client:    "throughput -i 10.99.0.2 -p 11111 --tcp --client_ip 10.99.0.1 -m 14 -t 1",
			interrupt: true,
		},
	}
	command := func(args string) tool.Command { return tool.Command{Path: "sockperf", Args: strings.Fields(args)} }
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			want := commands{command(c.server), command(c.client)}
			want.Server.Interrupt = c.interrupt
			got := commands{New().Server(c.cell, target), New().Client(c.cell, target)}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestRunTime(t *testing.T) {
	cases := map[string]struct {
		duration, warmup, want time.Duration
	}{
		"the head is the warm-up":             {250 * time.Millisecond, 0, time.Second},
		"a millisecond more":                  {251 * time.Millisecond, 0, 2 * time.Second},
		"a short warm-up is within it":        {250 * time.Millisecond, 400 * time.Millisecond, time.Second},
		"a longer one takes its time":         {250 * time.Millisecond, 401 * time.Millisecond, 2 * time.Second},
		"the default":                         {3 * time.Second, 500 * time.Millisecond, 4 * time.Second},
		"the longest":                         {time.Hour, time.Minute, time.Hour + time.Minute + time.Second},
		"as if it had been made for a second": {650 * time.Millisecond, time.Second, 2 * time.Second},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := runTime(cell("TCP", 64, c.duration, c.warmup)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	slow := cell("UDP", 64, 650*time.Millisecond, 0)
	slow.RatePerSecond = 2
	if got := runTime(slow); got != 3*time.Second {
		t.Errorf("two messages a second: got %s, want three intervals more than the 1.4s of a ping-pong", got)
	}
	stream := cell("TCP", 64, 1001*time.Millisecond, 30*time.Second)
	stream.Stream = true
	if got := runTime(stream); got != 2*time.Second {
		t.Errorf("a stream: got %s, want its duration in whole seconds", got)
	}
}

func TestDriver(t *testing.T) {
	d := New()
	if d.Name() != v1alpha1.ToolSockperf {
		t.Errorf("name %q", d.Name())
	}
	at := func(rate int32) tool.Cell {
		c := cell("UDP", 64, 3*time.Second, 500*time.Millisecond)
		c.RatePerSecond = rate
		return c
	}
	stream := cell("TCP", 64, 3*time.Second, 0)
	stream.Stream = true
	type limits struct {
		Listens  v1alpha1.Protocol
		Deadline time.Duration
		Memory   int64
		CPUs     int
		Most     int64
		Known    bool
	}
	// A run takes 4 s, or 3 s if it streams.
	cases := map[string]struct {
		cell tool.Cell
		want limits
	}{
		"TCP":              {cell("TCP", 64, 3*time.Second, 500*time.Millisecond), limits{"TCP", 23 * time.Second, 8<<20 + 600_000*(16*5+24*4), 1, 0, false}},
		"UDP":              {at(0), limits{"UDP", 23 * time.Second, 8<<20 + 600_000*(16*5+24*4), 1, 0, false}},
		"Multicast":        {cell("Multicast", 64, 3*time.Second, 0), limits{"UDP", 23 * time.Second, 8<<20 + 600_000*(16*5+24*4), 1, 0, false}},
		"a rate":           {at(23_000), limits{"UDP", 23 * time.Second, 8<<20 + 23_000*(16*5+24*4), 2, 69_000, true}},
		"the highest rate": {at(10_000_000), limits{"UDP", 4*time.Second + 160*time.Second + 15*time.Second, 8<<20 + 10_000_000*(16*5+24*4), 2, 30_000_000, true}},
		"a stream":         {stream, limits{"TCP", 21 * time.Second, 8 << 20, 1, 0, false}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := limits{Listens: d.Listens(c.cell), Deadline: d.Deadline(c.cell), Memory: d.Memory(c.cell), CPUs: d.CPUs(c.cell)}
			got.Most, got.Known = d.MostSamples(c.cell)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	with := func(change func(*tool.Cell)) tool.Cell {
		c := cell("UDP", 64, 1, 0)
		change(&c)
		return c
	}
	multicast := func(group string) tool.Cell {
		return with(func(c *tool.Cell) { c.Protocol, c.MulticastGroup = v1alpha1.ProtocolMulticast, group })
	}
	cases := map[string]struct {
		cell tool.Cell
		says string // empty: it is measured
	}{
		"less than its header":   {cell("UDP", 13, 1, 0), "14 to 65507 bytes"},
		"its header":             {cell("UDP", 14, 1, 0), ""},
		"the largest":            {cell("UDP", 65_507, 1, 0), ""},
		"the largest, TCP":       {cell("TCP", 65_507, 1, 0), ""},
		"more than the largest":  {cell("TCP", 65_508, 1, 0), "14 to 65507 bytes"},
		"another protocol":       {cell("SCTP", 64, 1, 0), `not "SCTP"`},
		"no time":                {cell("TCP", 64, 0, 0), "cannot measure for 0s"},
		"a warm-up back in time": {cell("TCP", 64, 1, -1), "after -1ns"},
		"the highest rate":       {with(func(c *tool.Cell) { c.RatePerSecond = 10_000_000 }), ""},
		"a higher one":           {with(func(c *tool.Cell) { c.RatePerSecond = 10_000_001 }), "1 to 10000000 messages a second"},
		"a negative rate":        {with(func(c *tool.Cell) { c.RatePerSecond = -1 }), "1 to 10000000 messages a second"},
		"a stream":               {with(func(c *tool.Cell) { c.Stream = true }), ""},
		"a stream at a rate":     {with(func(c *tool.Cell) { c.Stream, c.RatePerSecond = true, 1 }), "as fast as it can"},
		"a stream to a group":    {with(func(c *tool.Cell) { c.Stream, c.Protocol = true, v1alpha1.ProtocolMulticast }), "not Multicast"},
		"blocking":               {with(func(c *tool.Cell) { c.Wait = v1alpha1.WaitBlock }), ""},
		"spinning":               {with(func(c *tool.Cell) { c.Wait = v1alpha1.WaitSpin }), ""},
		"waiting otherwise":      {with(func(c *tool.Cell) { c.Wait = "Nap" }), `not with "Nap"`},
		"no muxer":               {with(func(c *tool.Cell) { c.Muxer = v1alpha1.MuxerNone }), ""},
		"a muxer":                {with(func(c *tool.Cell) { c.Muxer = v1alpha1.MuxerEpoll }), "use sfnt-pingpong"},
		"its own group":          {multicast(""), ""},
		"a group":                {multicast("239.192.0.1"), ""},
		"no group's address":     {multicast("10.0.0.1"), `not "10.0.0.1"`},
		"a group of IPv6":        {multicast("ff02::1"), "IPv4 multicast group"},
		"no address":             {multicast("239.192.0"), "IPv4 multicast group"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := New().Validate(c.cell)
			if c.says == "" && err == nil {
				return
			}
			if err == nil || c.says == "" || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}
