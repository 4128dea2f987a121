package sockperf

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

func cell(p v1alpha1.Protocol, size int32, duration, warmup time.Duration) tool.Cell {
	return tool.Cell{Protocol: p, MessageSize: size, Duration: duration, Warmup: warmup}
}

func TestCommands(t *testing.T) {
	type commands struct{ Server, Client tool.Command }
	target := tool.Target{Address: "10.99.0.2", Port: 11111, Scratch: "/scratch/a"}
	cases := map[string]struct {
		cell tool.Cell
		want commands
	}{
		"TCP": {cell("TCP", 64, 3*time.Second, 500*time.Millisecond), commands{
			tool.Command{Path: "sockperf", Args: []string{"server", "-i", "10.99.0.2", "-p", "11111", "--tcp"}},
			tool.Command{Path: "sockperf", Args: []string{"ping-pong", "-i", "10.99.0.2", "-p", "11111", "-m", "64", "-t", "4", "--full-rtt", "--full-log", "/scratch/a/log.csv", "--tcp"}},
		}},
		"UDP": {cell("UDP", 14, time.Second, 0), commands{
			tool.Command{Path: "sockperf", Args: []string{"server", "-i", "10.99.0.2", "-p", "11111"}},
			tool.Command{Path: "sockperf", Args: []string{"ping-pong", "-i", "10.99.0.2", "-p", "11111", "-m", "14", "-t", "2", "--full-rtt", "--full-log", "/scratch/a/log.csv"}},
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
}

func TestDriver(t *testing.T) {
	d := New()
	if d.Name() != v1alpha1.ToolSockperf {
		t.Errorf("name %q", d.Name())
	}
	tcp, udp := cell("TCP", 64, 3*time.Second, 500*time.Millisecond), cell("UDP", 64, time.Second, 0)
	if d.Listens(tcp) != v1alpha1.ProtocolTCP || d.Listens(udp) != v1alpha1.ProtocolUDP {
		t.Error("there is no connection but that of the messages")
	}
	if got := d.Deadline(tcp); got != 23*time.Second {
		t.Errorf("deadline %s", got)
	}
}

func TestValidate(t *testing.T) {
	cases := map[string]struct {
		cell tool.Cell
		ok   bool
	}{
		"less than its header":   {cell("UDP", 13, 1, 0), false},
		"its header":             {cell("UDP", 14, 1, 0), true},
		"the largest":            {cell("UDP", 65_507, 1, 0), true},
		"the largest, TCP":       {cell("TCP", 65_507, 1, 0), true},
		"more than the largest":  {cell("TCP", 65_508, 1, 0), false},
		"another protocol":       {cell("SCTP", 64, 1, 0), false},
		"no time":                {cell("TCP", 64, 0, 0), false},
		"a warm-up back in time": {cell("TCP", 64, 1, -1), false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if err := New().Validate(c.cell); (err == nil) != c.ok {
				t.Errorf("got %v", err)
			}
		})
	}
}
