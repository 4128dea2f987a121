package pinger

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

func cellOf(p v1alpha1.Protocol, size int32, duration, warmup time.Duration) tool.Cell {
	return tool.Cell{Protocol: p, MessageSize: size, Duration: duration, Warmup: warmup}
}

func TestCommands(t *testing.T) {
	type commands struct{ Server, Client tool.Command }
	c := cellOf("UDP", 1, 1500*time.Millisecond, 500*time.Millisecond)
	target := tool.Target{Address: "10.99.0.2", Port: 22048, Scratch: "/scratch/a", Token: "uid"}
	want := commands{
		tool.Command{Path: "tailgate-pinger", Env: []string{"TAILGATE_PINGER_TOKEN=uid"},
			Args: []string{"server", "--bind", "10.99.0.2", "--port", "22048", "--deadline", "92"}},
		tool.Command{Path: "tailgate-pinger", Env: []string{"TAILGATE_PINGER_TOKEN=uid"},
			Args: []string{"client", "--server", "10.99.0.2", "--port", "22048", "--protocol", "udp", "--sizes", "1",
				"--duration", "1500000000ns", "--warmup", "500000000ns", "--block", "--deadline", "27"}},
	}
	if diff := cmp.Diff(want, commands{New().Server(c, target), New().Client(c, target)}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
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
}

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		cell tool.Cell
		ok   bool
	}{
		"nothing":                   {cellOf("TCP", 0, time.Second, 0), false},
		"a byte":                    {cellOf("TCP", 1, time.Second, 0), true},
		"a byte, UDP":               {cellOf("UDP", 1, time.Second, 0), true},
		"the largest":               {cellOf("TCP", 65_536, time.Second, 0), true},
		"more than the largest":     {cellOf("TCP", 65_537, time.Second, 0), false},
		"the largest, UDP":          {cellOf("UDP", 65_507, time.Second, 0), true},
		"more than a datagram":      {cellOf("UDP", 65_508, time.Second, 0), false},
		"another protocol":          {cellOf("SCTP", 64, time.Second, 0), false},
		"no time":                   {cellOf("TCP", 64, 0, 0), false},
		"a warm-up back in time":    {cellOf("TCP", 64, time.Second, -1), false},
		"an hour, a minute warm-up": {cellOf("TCP", 64, time.Hour, time.Minute), true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if err := New().Validate(c.cell); (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}
