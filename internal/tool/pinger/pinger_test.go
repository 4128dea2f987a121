package pinger

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

func cellOf(p v1alpha1.Protocol, size int32, duration, warmup time.Duration) tool.Cell {
	return tool.Cell{Traffic: v1alpha1.Traffic{Protocol: p, MessageSize: size}, Duration: duration, Warmup: warmup}
}

func TestCommands(t *testing.T) {
	type commands struct{ Server, Client tool.Command }
	c := cellOf("UDP", 1, 1500*time.Millisecond, 500*time.Millisecond)
	target := tool.Target{Address: "10.99.0.2", Port: 22048, Scratch: "/scratch/a", Key: "secret"}
	want := commands{
		tool.Command{Path: "tailgate-pinger", Env: []string{"TAILGATE_PINGER_KEY=secret"},
			Args: []string{"server", "--bind", "10.99.0.2", "--port", "22048", "--block", "--deadline", "92"}},
		tool.Command{Path: "tailgate-pinger", Env: []string{"TAILGATE_PINGER_KEY=secret"},
			Args: []string{"client", "--server", "10.99.0.2", "--port", "22048", "--protocol", "udp", "--sizes", "1", "--rates", "0",
				"--duration", "1500000000ns", "--warmup", "500000000ns", "--loss-after", "1000000000ns", "--block", "--deadline", "27"}},
	}
	if diff := cmp.Diff(want, commands{New().Server(c, target), New().Client(c, target)}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}

	c.LossAfter = 20 * time.Millisecond
	if args := New().Client(c, target).Args; !slices.Contains(args, "20000000ns") || slices.Contains(args, "1000000000ns") {
		t.Errorf("lost after 20 ms: %q", args)
	}

	c = spinning(at(23000, cellOf("Multicast", 64, time.Second, 0)))
	c.MulticastGroup = "239.192.0.1"
	target.LocalAddress = "10.99.0.1"
	want.Server.Args = []string{"server", "--bind", "10.99.0.2", "--port", "22048", "--spin", "--deadline", "102"}
	want.Client.Args = []string{"client", "--server", "10.99.0.2", "--port", "22048", "--protocol", "multicast", "--sizes", "64", "--rates", "23000",
		"--duration", "1000000000ns", "--warmup", "0ns", "--loss-after", "1000000000ns", "--spin", "--deadline", "37",
		"--local", "10.99.0.1", "--group", "239.192.0.1"}
	if diff := cmp.Diff(want, commands{New().Server(c, target), New().Client(c, target)}); diff != "" {
		t.Errorf("multicast at a rate, polling, -want +got:\n%s", diff)
	}
}

func TestDriver(t *testing.T) {
	d, c := New(), cellOf("UDP", 64, time.Second, 0)
	if d.Name() != v1alpha1.ToolPinger || d.Listens(c) != v1alpha1.ProtocolTCP {
		t.Errorf("%s listens to %s", d.Name(), d.Listens(c))
	}
	if d.Deadline(c) != 31*time.Second {
		t.Errorf("deadline %s", d.Deadline(c))
	}
	if hour := cellOf("TCP", 64, time.Hour, 0); d.Memory(hour) != d.Memory(c) || d.Memory(c) > 32<<20 {
		t.Errorf("memory %d and %d: it must not grow with time", d.Memory(hour), d.Memory(c))
	}
	// The sample of runs of hours may be raised to the longest duration without more memory.
	if hours := cellOf("TCP", 256, 12*time.Hour, 0); d.Memory(at(50_000, hours)) != d.Memory(at(50_000, cellOf("TCP", 256, time.Second, 0))) {
		t.Errorf("12 hours take %d bytes, a second %d", d.Memory(at(50_000, hours)), d.Memory(at(50_000, c)))
	}
	if d.Deadline(at(23000, c)) != 42*time.Second {
		t.Errorf("deadline %s", d.Deadline(at(23000, c)))
	}
	for rate, window := range map[int32]int64{1: 1 << 10, 23_000: 1 << 16, 10_000_000: 1 << 20} {
		if got, want := d.Memory(at(rate, c)), 12<<20+8*window; got != want {
			t.Errorf("%d a second take %d bytes, want %d", rate, got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		cell tool.Cell
		ok   bool
	}{
		"nothing":                           {cellOf("TCP", 0, time.Second, 0), false},
		"a byte":                            {cellOf("TCP", 1, time.Second, 0), true},
		"a byte, UDP":                       {cellOf("UDP", 1, time.Second, 0), true},
		"the largest":                       {cellOf("TCP", 65_536, time.Second, 0), true},
		"more than the largest":             {cellOf("TCP", 65_537, time.Second, 0), false},
		"the largest, UDP":                  {cellOf("UDP", 65_507, time.Second, 0), true},
		"more than a datagram":              {cellOf("UDP", 65_508, time.Second, 0), false},
		"another protocol":                  {cellOf("SCTP", 64, time.Second, 0), false},
		"no time":                           {cellOf("TCP", 64, 0, 0), false},
		"a warm-up back in time":            {cellOf("TCP", 64, time.Second, -1), false},
		"an hour, a minute warm-up":         {cellOf("TCP", 64, time.Hour, time.Minute), true},
		"a rate":                            {at(23000, cellOf("TCP", 1, time.Second, 0)), true},
		"a rate of no message":              {at(1, cellOf("TCP", 64, 900*time.Millisecond, 0)), false},
		"a negative rate":                   {at(-1, cellOf("TCP", 64, time.Second, 0)), false},
		"a byte, 127 a second":              {at(127, cellOf("UDP", 1, time.Second, 0)), true},
		"a byte, 128 a second":              {at(128, cellOf("UDP", 1, time.Second, 0)), false},
		"a byte, 128 a second, lost sooner": {tool.Cell{Traffic: v1alpha1.Traffic{Protocol: "UDP", MessageSize: 1, RatePerSecond: 128}, Duration: time.Second, LossAfter: 500 * time.Millisecond}, true},
		"a byte, 128 a second, TCP":         {at(128, cellOf("TCP", 1, time.Second, 0)), true},
		"8 bytes, the highest rate":         {at(10_000_000, cellOf("UDP", 8, time.Second, 0)), true},
		"polling":                           {spinning(cellOf("UDP", 64, time.Second, 0)), true},
		"multicast":                         {cellOf("Multicast", 65_507, time.Second, 0), true},
		"multicast, a group":                {tool.Cell{Traffic: v1alpha1.Traffic{Protocol: "Multicast", MessageSize: 64}, Duration: time.Second, MulticastGroup: "239.192.0.1"}, true},
		"multicast, no group":               {tool.Cell{Traffic: v1alpha1.Traffic{Protocol: "Multicast", MessageSize: 64}, Duration: time.Second, MulticastGroup: "10.0.0.1"}, false},
		"multicast, IPv6":                   {tool.Cell{Traffic: v1alpha1.Traffic{Protocol: "Multicast", MessageSize: 64}, Duration: time.Second, MulticastGroup: "ff02::1"}, false},
		"no muxer":                          {tool.Cell{Traffic: v1alpha1.Traffic{Protocol: "TCP", MessageSize: 64}, Duration: time.Second, Muxer: v1alpha1.MuxerNone}, true},
		"a muxer":                           {tool.Cell{Traffic: v1alpha1.Traffic{Protocol: "TCP", MessageSize: 64}, Duration: time.Second, Muxer: v1alpha1.MuxerEpoll}, false},
		"a stream":                          {tool.Cell{Traffic: v1alpha1.Traffic{Stream: true, Protocol: "TCP", MessageSize: 64}, Duration: time.Second}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if err := New().Validate(c.cell); (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}
