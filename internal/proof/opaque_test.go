package proof

import (
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// Of a user's program, nothing that needs the number of its messages is proved, and what the kernel counts of it is.
func TestOpaque(t *testing.T) {
	custom := func(w *world) {
		w.spec.Tool = v1alpha1.ToolCustom
		for i := range w.run.Client.Cells {
			w.run.Client.Cells[i].Tool = string(v1alpha1.ToolCustom)
		}
		for _, e := range []*result.Evidence{w.client(), w.server()} {
			e.Deltas["cpu.busy-ns"], e.Deltas["tool.cpu-ns"] = 5_000_000_000, 4_990_000_000
		}
	}
	delta := func(name string, n int64) func(*world) {
		return func(w *world) { w.client().Deltas[name] = n }
	}
	grown := func(name string, n int64) func(*world) {
		return func(w *world) { w.client().Paths[0].Grown[name] = n }
	}
	for name, c := range map[string]struct {
		check  string
		change []func(*world)
		state  v1alpha1.ProofState
		found  string
	}{
		"kernel sockets":                     {v1alpha1.ProofAcceleration, nil, "Proved", "no library of Onload in the server's process"},
		"with Onload, whatever was counted":  {v1alpha1.ProofAcceleration, []func(*world){withOnload}, "Unknown", "the number of messages is unknown"},
		"Onload in a process, not asked for": {v1alpha1.ProofAcceleration, []func(*world){func(w *world) { w.client().Paths[0].Begun = &result.Look{Library: "/x/libonload.so"} }}, "Failed", "libonload.so"},
		"another library":                    {v1alpha1.ProofAcceleration, []func(*world){fact("env.LD_PRELOAD", "/x/libvma.so")}, "Unknown", "libvma"},
		"no counters":                        {v1alpha1.ProofAcceleration, []func(*world){func(w *world) { w.client().Paths = nil }}, "Unknown", "number of messages"},
		"packets over loopback":              {v1alpha1.ProofAcceleration, []func(*world){grown(result.PathLocal, 5000)}, "Unknown", "5000 packets went over the loopback"},
		"packets that the kernel never saw":  {v1alpha1.ProofAcceleration, []func(*world){grown(result.PathTCPOut, 5), grown(result.PathUDPOut, 0)}, "Unknown", "the kernel sent 5 packets"},
		"its own CPUs":                       {v1alpha1.ProofCPUsExclusive, nil, "Proved", "other threads ran on CPU 2 for 10ms"},
		"other threads on its CPUs":          {v1alpha1.ProofCPUsExclusive, []func(*world){delta("tool.cpu-ns", 4_000_000_000)}, "Failed", "other threads ran"},
		"it took another CPU":                {v1alpha1.ProofCPUsExclusive, []func(*world){delta("tool.cpu-ns", 5_200_000_000)}, "Unknown", "ran on other CPUs than those it was started on for 200ms"},
		"a little more than was counted":     {v1alpha1.ProofCPUsExclusive, []func(*world){delta("tool.cpu-ns", 5_050_000_000)}, "Proved", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := good(append([]func(*world){custom}, c.change...)...)
			lines, _ := Endpoints(w.spec, w.variant(), w.run)
			for _, l := range lines {
				if l.Check == c.check {
					if l.State != c.state || !strings.Contains(l.Found, c.found) {
						t.Errorf("%s: %s, want %s: %s", l.State, l.Found, c.state, c.found)
					}
					return
				}
			}
			t.Errorf("no line %s", c.check)
		})
	}
}
