package sfntstream

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
	udp64 = tool.Cell{
		Name: "udp-64-at-23000", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolUDP, MessageSize: 64, RatePerSecond: 23_000},
		Duration: 3 * time.Second, Warmup: 500 * time.Millisecond,
	}
	target = tool.Target{Address: "10.99.0.2", LocalAddress: "10.99.0.1", Port: 2048, Scratch: "/scratch/a", CPUs: []int{4, 6}, ServerCPU: 8}
)

func with(change func(*tool.Cell)) tool.Cell {
	c := udp64
	change(&c)
	return c
}

func TestCommands(t *testing.T) {
	server := tool.Command{Path: "sfnt-stream", Args: []string{"--port=2048"}, Env: []string{"SFNT_AVOID_FORK=1"}}
	cases := map[string]struct {
		cell tool.Cell
		args []string
	}{
		"UDP": {udp64, []string{"--port=2048", "--affinity=4,6;8", "--msgsize=64", "--rates=23000", "--millisec=3551", "--samples=81673", "--stop=90",
			"--maxburst=13800", "--rtt", "--rtt-iter=1000", "--raw=/scratch/a/raw", "--connect", "--ttl=64", "udp", "10.99.0.2"}},
		"a group, spinning in epoll": {
			with(func(c *tool.Cell) {
				c.Protocol, c.MulticastGroup, c.Wait, c.Muxer = v1alpha1.ProtocolMulticast, "239.192.0.7", v1alpha1.WaitSpin, v1alpha1.MuxerEpoll
			}),
			[]string{"--port=2048", "--affinity=4,6;8", "--msgsize=64", "--rates=23000", "--millisec=3551", "--samples=81673", "--stop=90",
				"--maxburst=13800", "--rtt", "--rtt-iter=1000", "--raw=/scratch/a/raw", "--connect", "--spin", "--muxer=epoll",
				"--ttl=1;64", "--mcastintf=10.99.0.1;10.99.0.2", "--mcast=239.192.0.7", "udp", "10.99.0.2"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			want := []tool.Command{server, {Path: "sfnt-stream", Args: c.args, Env: server.Env, Routed: true}}
			if diff := cmp.Diff(want, []tool.Command{New().Server(c.cell, target), New().Client(c.cell, target)}); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The tool divides the number of messages by the number of samples to find how many messages there are per timed
// message.
func TestScheduleIsTheToolsOwn(t *testing.T) {
	for _, rate := range []int32{1, 100, 101, 23_000, 99_999, 300_000, 1_000_000, 10_000_000} {
		for _, d := range []time.Duration{time.Millisecond, 100 * time.Millisecond, 3*time.Second + 1, 94 * time.Second, 12 * time.Hour} {
			s := scheduleOf(with(func(c *tool.Cell) { c.RatePerSecond, c.Duration = rate, d }))
			replyEvery := max(uint64(rate)*uint64(s.ms)/1000/uint64(s.timed), 1)
			if int64(replyEvery) != s.every || s.timed < 1 || s.timed > mostTimed {
				t.Errorf("%d/s for %s: one of %d is timed, not of %d; %d samples", rate, d, replyEvery, s.every, s.timed)
			}
			if s.duration() < udp64.Warmup+d || s.ms > 1<<31-1 {
				t.Errorf("%d/s for %s: runs for %d ms", rate, d, s.ms)
			}
			// The rate determines the number of messages to within one per second. That many messages must be sent
			// after the measuring time.
			if uncertain, spare := s.ms/1000+1, int64(rate)*int64(s.duration()-udp64.Warmup-d)/int64(time.Second); rate >= minRate && uncertain > spare {
				t.Errorf("%d/s for %s: %d messages after the measuring time, and %d may not be told", rate, d, spare, uncertain)
			}
		}
	}
}

func TestDriver(t *testing.T) {
	d := New()
	if d.Name() != v1alpha1.ToolSfntStream {
		t.Errorf("name %q", d.Name())
	}
	if d.Listens(udp64) != v1alpha1.ProtocolTCP {
		t.Error("the control connection is TCP whatever is measured")
	}
	if got, want := d.Deadline(udp64), 83551*time.Millisecond; got != want {
		t.Errorf("deadline %s, want %s", got, want)
	}
	if got, want := d.Memory(udp64), int64(81_673*80); got != want {
		t.Errorf("memory %d, want %d", got, want)
	}
	if got := d.CPUs(udp64); got != 2 {
		t.Errorf("%d CPUs", got)
	}
	hour := with(func(c *tool.Cell) { c.Duration = time.Hour })
	if got := d.Memory(hour); got > 80*mostTimed || got < 79*mostTimed {
		t.Errorf("an hour takes %d bytes", got)
	}
	for name, want := range map[string]struct {
		cell tool.Cell
		most int64
	}{"all are timed": {udp64, 69_000}, "one of 93 is timed": {hour, 82_800_000 / 93}} {
		if n, known := d.MostSamples(want.cell); n != want.most || !known {
			t.Errorf("%s: %d samples, %t, want %d", name, n, known, want.most)
		}
	}
}

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		change func(*tool.Cell)
		says   string // "": it can be measured
	}{
		"UDP at a rate":                       {func(*tool.Cell) {}, ""},
		"multicast at a rate":                 {func(c *tool.Cell) { c.Protocol = "Multicast" }, ""},
		"TCP":                                 {func(c *tool.Cell) { c.Protocol = "TCP" }, `measures UDP and Multicast, not "TCP"`},
		"another protocol":                    {func(c *tool.Cell) { c.Protocol = "SCTP" }, `not "SCTP"`},
		"ping-pong":                           {func(c *tool.Cell) { c.RatePerSecond = 0 }, "none is given"},
		"a stream as fast as it goes":         {func(c *tool.Cell) { c.Stream, c.RatePerSecond = true, 0 }, "measures no bandwidth"},
		"the slowest":                         {func(c *tool.Cell) { c.RatePerSecond = 100 }, ""},
		"too slow":                            {func(c *tool.Cell) { c.RatePerSecond = 99 }, "100 to 10000000 messages a second, not 99"},
		"the smallest":                        {func(c *tool.Cell) { c.MessageSize = 24 }, ""},
		"too small":                           {func(c *tool.Cell) { c.MessageSize = 23 }, "24 to 65507 bytes, not of 23"},
		"the largest":                         {func(c *tool.Cell) { c.MessageSize = 65_507 }, ""},
		"too large":                           {func(c *tool.Cell) { c.MessageSize = 65_508 }, "24 to 65507 bytes, not of 65508"},
		"spinning in select":                  {func(c *tool.Cell) { c.Wait, c.Muxer = "Spin", "Select" }, ""},
		"another muxer":                       {func(c *tool.Cell) { c.Muxer = "Kqueue" }, `not with "Kqueue"`},
		"no time":                             {func(c *tool.Cell) { c.Duration = 0 }, "cannot measure for 0s"},
		"a warm-up that ends before it began": {func(c *tool.Cell) { c.Warmup = -1 }, "cannot measure for 3s after -1ns"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			err := New().Validate(with(test.change))
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
