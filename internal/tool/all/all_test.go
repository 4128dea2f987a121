package all

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

var names = []v1alpha1.Tool{
	v1alpha1.ToolPinger, v1alpha1.ToolSfntPingpong, v1alpha1.ToolSfntStream, v1alpha1.ToolNetperf, v1alpha1.ToolSockperf,
}

func TestRegistry(t *testing.T) {
	for _, name := range names {
		d, err := Registry().Get(name)
		if err != nil {
			t.Fatal(err)
		}
		if d.Name() != name {
			t.Errorf("%s is found as %s", d.Name(), name)
		}
	}
	if _, err := Registry().Get("iperf"); err == nil {
		t.Errorf("got %v", err)
	}
}

// Only the clients of these tools have a volume.
func TestWritesFiles(t *testing.T) {
	cell := tool.Cell{Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64, RatePerSecond: 1000}, Duration: time.Second}
	target := tool.Target{Address: "127.0.0.1", Port: 1, CPUs: []int{0, 1}, Scratch: "/only/here"}
	here := func(c tool.Command) bool {
		return slices.ContainsFunc(slices.Concat(c.Args, c.Env), func(word string) bool { return strings.Contains(word, target.Scratch) })
	}
	for _, name := range names {
		d, err := Registry().Get(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := here(d.Client(cell, target)); got != d.Limits().RawFiles {
			t.Errorf("the client of %s has the name of its folder: %t", name, got)
		}
		if here(d.Server(cell, target)) {
			t.Errorf("the server of %s writes files", name)
		}
	}
}
