package sfntpingpong

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

var (
	tcp64  = tool.Cell{Name: "tcp-64", Protocol: v1alpha1.ProtocolTCP, MessageSize: 64, Duration: 3 * time.Second, Warmup: 500 * time.Millisecond}
	udp0   = tool.Cell{Name: "udp-0", Protocol: v1alpha1.ProtocolUDP, MessageSize: 0, Duration: 100 * time.Millisecond}
	target = tool.Target{Address: "10.99.0.2", Port: 2048, Scratch: "/scratch/a"}
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
				"--minms=3500", "--maxms=3500", "--miniter=1000", "--maxiter=3501000", "--timeout=2", "tcp", "10.99.0.2"}, Env: []string{"SFNT_AVOID_FORK=1"}},
		}},
		"UDP": {udp0, commands{
			Server: tool.Command{Path: "sfnt-pingpong", Args: []string{"--port=2048"}, Env: []string{"SFNT_AVOID_FORK=1"}},
			Client: tool.Command{Path: "sfnt-pingpong", Args: []string{"--port=2048", "--affinity=any;any", "--sizes=0", "--rtt", "--raw=/scratch/a/raw",
				"--minms=100", "--maxms=100", "--miniter=1000", "--maxiter=101000", "--timeout=2", "udp", "10.99.0.2"}, Env: []string{"SFNT_AVOID_FORK=1"}},
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
	if got, want := d.Deadline(tcp64), 34*time.Second+375*time.Millisecond; got != want {
		t.Errorf("deadline %s, want %s", got, want)
	}
}

func TestValidate(t *testing.T) {
	cell := func(p v1alpha1.Protocol, size int32) tool.Cell {
		return tool.Cell{Protocol: p, MessageSize: size, Duration: time.Second}
	}
	cases := map[string]struct {
		cell tool.Cell
		ok   bool
	}{
		"TCP of 0 measures nothing":           {cell("TCP", 0), false},
		"TCP of 1":                            {cell("TCP", 1), true},
		"TCP of 65536":                        {cell("TCP", 65_536), true},
		"TCP of 65537 overruns the buffer":    {cell("TCP", 65_537), false},
		"UDP of less than nothing":            {cell("UDP", -1), false},
		"UDP of 0":                            {cell("UDP", 0), true},
		"UDP of 65507":                        {cell("UDP", 65_507), true},
		"UDP of more than a datagram":         {cell("UDP", 65_508), false},
		"another protocol":                    {cell("SCTP", 64), false},
		"no time":                             {tool.Cell{Protocol: "TCP", MessageSize: 1}, false},
		"a warm-up that ends before it began": {tool.Cell{Protocol: "TCP", MessageSize: 1, Duration: 1, Warmup: -1}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if err := New().Validate(c.cell); (err == nil) != c.ok {
				t.Errorf("got %v", err)
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
