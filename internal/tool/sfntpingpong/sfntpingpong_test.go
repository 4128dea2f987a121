package sfntpingpong

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

var (
	tcp64       = tool.Cell{Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}, Duration: 3 * time.Second, Warmup: 500 * time.Millisecond}
	udp0        = tool.Cell{Name: "udp-0", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolUDP, MessageSize: 0}, Duration: 100 * time.Millisecond}
	multicast64 = tool.Cell{
		Name: "multicast-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolMulticast, MessageSize: 64}, MulticastGroup: "239.192.0.7",
		Wait: v1alpha1.WaitSpin, Muxer: v1alpha1.MuxerPoll, Duration: 3 * time.Second, Warmup: 500 * time.Millisecond,
	}
	target = tool.Target{Address: "10.99.0.2", LocalAddress: "10.99.0.1", Port: 2048, Scratch: "/scratch/a"}
)

func TestCommands(t *testing.T) {
	type commands struct{ Server, Client tool.Command }
	cases := map[string]struct {
		cell tool.Cell
		want commands
	}{
		"TCP": {tcp64, commands{
			Server: tool.Command{Path: "sfnt-pingpong", Args: []string{"--port=2048"}, Env: []string{"SFNT_AVOID_FORK=1"}},
			Client: tool.Command{Path: "sfnt-pingpong", Args: []string{"--port=2048", "--affinity=any;any", "--sizes=64", "--rtt", "--raw=/scratch/a/raw",
				"--minms=3500", "--maxms=3500", "--miniter=1000", "--maxiter=3501000", "--timeout=2", "tcp", "10.99.0.2"}, Env: []string{"SFNT_AVOID_FORK=1"}, Routed: true},
		}},
		"UDP": {udp0, commands{
			Server: tool.Command{Path: "sfnt-pingpong", Args: []string{"--port=2048"}, Env: []string{"SFNT_AVOID_FORK=1"}},
			Client: tool.Command{Path: "sfnt-pingpong", Args: []string{"--port=2048", "--affinity=any;any", "--sizes=0", "--rtt", "--raw=/scratch/a/raw",
				"--minms=100", "--maxms=100", "--miniter=1000", "--maxiter=101000", "--timeout=2", "--ttl=64", "udp", "10.99.0.2"}, Env: []string{"SFNT_AVOID_FORK=1"}, Routed: true},
		}},
		"a group, spinning in poll": {multicast64, commands{
			Server: tool.Command{Path: "sfnt-pingpong", Args: []string{"--port=2048"}, Env: []string{"SFNT_AVOID_FORK=1"}},
			Client: tool.Command{Path: "sfnt-pingpong", Args: []string{"--port=2048", "--affinity=any;any", "--sizes=64", "--rtt", "--raw=/scratch/a/raw",
				"--minms=3500", "--maxms=3500", "--miniter=1000", "--maxiter=3501000", "--timeout=2", "--spin", "--muxer=poll",
				"--ttl=1;64", "--mcastintf=10.99.0.1;10.99.0.2", "--mcast=239.192.0.7", "udp", "10.99.0.2"}, Env: []string{"SFNT_AVOID_FORK=1"}, Routed: true},
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := commands{New().Server(c.cell, target), New().Client(c.cell, target)}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestLongestMeasurementFitsTheToolsInts(t *testing.T) {
	c := tcp64
	c.Duration, c.Warmup = time.Hour, time.Minute
	got := New().Client(c, target).Args
	for _, want := range []string{"--maxms=3660000", "--maxiter=2000000000"} {
		found := false
		for _, a := range got {
			found = found || a == want
		}
		if !found {
			t.Errorf("no %s in %v", want, got)
		}
	}
}

func TestDriver(t *testing.T) {
	d := New()
	if d.Name() != v1alpha1.ToolSfntPingpong {
		t.Errorf("name %q", d.Name())
	}
	if d.Listens(udp0) != v1alpha1.ProtocolTCP || d.Listens(tcp64) != v1alpha1.ProtocolTCP {
		t.Error("the control connection is TCP whatever is measured")
	}
	// The 3.5 s of the cell and a quarter of it, 12 s to set up, and the minimum of 11,000 messages on a path of 10 ms.
	if got, want := d.Deadline(tcp64), 126*time.Second+375*time.Millisecond; got != want {
		t.Errorf("deadline %s, want %s", got, want)
	}
}

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		change func(*tool.Cell)
		says   string // "": it can be measured
	}{
		"TCP of 0 measures nothing":           {func(c *tool.Cell) { c.MessageSize = 0 }, "1 to 65536 bytes, not of 0"},
		"TCP of 1":                            {func(c *tool.Cell) { c.MessageSize = 1 }, ""},
		"TCP of 65536":                        {func(c *tool.Cell) { c.MessageSize = 65_536 }, ""},
		"TCP of 65537 overruns the buffer":    {func(c *tool.Cell) { c.MessageSize = 65_537 }, "1 to 65536 bytes, not of 65537"},
		"UDP of less than nothing":            {func(c *tool.Cell) { c.Protocol, c.MessageSize = "UDP", -1 }, "0 to 65507 bytes, not of -1"},
		"UDP of 0":                            {func(c *tool.Cell) { c.Protocol, c.MessageSize = "UDP", 0 }, ""},
		"UDP of 65507":                        {func(c *tool.Cell) { c.Protocol, c.MessageSize = "UDP", 65_507 }, ""},
		"UDP of more than a datagram":         {func(c *tool.Cell) { c.Protocol, c.MessageSize = "UDP", 65_508 }, "0 to 65507 bytes, not of 65508"},
		"multicast":                           {func(c *tool.Cell) { c.Protocol = "Multicast" }, ""},
		"multicast of more than a datagram":   {func(c *tool.Cell) { c.Protocol, c.MessageSize = "Multicast", 65_508 }, "Multicast messages of 0 to 65507"},
		"another protocol":                    {func(c *tool.Cell) { c.Protocol = "SCTP" }, `not "SCTP"`},
		"spinning in epoll":                   {func(c *tool.Cell) { c.Wait, c.Muxer = "Spin", "Epoll" }, ""},
		"sleeping in select":                  {func(c *tool.Cell) { c.Wait, c.Muxer = "Block", "Select" }, ""},
		"another muxer":                       {func(c *tool.Cell) { c.Muxer = "Kqueue" }, `not with "Kqueue"`},
		"another way to wait":                 {func(c *tool.Cell) { c.Wait = "Dream" }, `not with "Dream"`},
		"a rate":                              {func(c *tool.Cell) { c.RatePerSecond = 23_000 }, "not 23000 messages a second"},
		"a stream":                            {func(c *tool.Cell) { c.Stream = true }, "no bandwidth"},
		"no time":                             {func(c *tool.Cell) { c.Duration = 0 }, "cannot measure for 0s"},
		"a warm-up that ends before it began": {func(c *tool.Cell) { c.Warmup = -1 }, "cannot measure for 3s after -1ns"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			c := tcp64
			test.change(&c)
			err := New().Validate(c)
			if (err == nil) != (test.says == "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("says %v, not %q", err, test.says)
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
