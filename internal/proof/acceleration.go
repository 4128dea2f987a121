package proof

import (
	"fmt"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

func (e endpoint) word(c result.Cell) tool.Acceleration {
	if e.role == v1alpha1.RoleServer {
		return c.Accelerated.Server
	}
	return c.Accelerated.Client
}

func (e endpoint) ways() []CellWay {
	var all []CellWay
	for _, c := range e.cells {
		all = append(all, e.way(c))
	}
	return all
}

func (w CellWay) inCell() string {
	if len(w.Witnesses) == 0 {
		return w.Cell + ": " + w.Why
	}
	return w.Cell + ": " + w.Why + " [" + strings.Join(w.Witnesses, "; ") + "]"
}

func (w CellWay) redirected(expected string) finding {
	return finding{
		state: v1alpha1.ProofFailed, expected: expected, found: w.inCell(), reason: v1alpha1.WarningRedirected,
		advice: "take the namespace of the benchmark out of the mesh whose proxy sends the messages on, such as Istio's ambient mode or Cilium's ztunnel; or find what else has sockets in the pod's network namespace",
	}
}

// onload checks, if Onload was requested, that the messages of every cell bypassed the kernel.
func onload(e endpoint) finding {
	if e.variant.Acceleration.Type != v1alpha1.AccelerationOnload {
		return finding{}
	}
	const expected = "Onload carries the messages of every cell"
	advice := "see docs/onload.md for the possible reasons: an interface that Onload does not accelerate, datagrams above the MTU, EF_UDP or EF_TCP, a missing device or library"
	ways := e.ways()
	if len(ways) == 0 {
		return unknown(expected, notKnown+": nothing was measured", advice)
	}
	for _, w := range ways {
		switch w.Way {
		case NotAccelerated, Partly:
			return failed(expected, w.inCell(), advice)
		case Repeated:
			return w.redirected(expected)
		}
	}
	for _, w := range ways {
		if w.Way == Unknown {
			return unknown(expected, w.inCell(), advice)
		}
	}
	module := orNotKnown(e.own.Facts["module.onload.version"])
	if module == e.path(e.cells[0]).Banner {
		return proved(expected, fmt.Sprintf("in all %d cells; %s", len(ways), ways[0].inCell()))
	}
	return proved(expected, fmt.Sprintf("in all %d cells; module %s; %s", len(ways), module, ways[0].inCell()))
}

// kernel checks, for the kernel's stack, that no message bypassed it and nothing interfered.
func kernel(e endpoint) finding {
	if e.variant.Acceleration.Type == v1alpha1.AccelerationOnload {
		return finding{}
	}
	const expected = "the kernel carries all messages"
	advice := "find the component that adds the library to the pod, or compare with a variant of acceleration.type Onload"
	ways := e.ways()
	if len(ways) == 0 {
		return unknown(expected, notKnown+": nothing was measured", advice)
	}
	if found := e.replaced(); found != "" {
		return failed(expected, found, advice)
	}
	for _, w := range ways {
		switch {
		case w.Way == Repeated:
			return w.redirected(expected)
		case w.Bypassed > 1-leastThrough:
			return failed(expected, w.inCell(), advice)
		}
	}
	for _, of := range []struct{ name, fact string }{{"LD_PRELOAD", "env.LD_PRELOAD"}, {"LD_AUDIT", "env.LD_AUDIT"}, {"/etc/ld.so.preload", "preload-file"}} {
		if libraries := e.own.Facts[of.fact]; libraries != "" {
			return unknown(expected, of.name+" names "+libraries, advice)
		}
	}
	uncounted := e.network().Type == v1alpha1.NetworkHost || e.opaque()
	for i, w := range ways {
		// The counters cannot exclude Onload here, but Onload needs a library.
		if w.Way == Unknown && !(uncounted && len(e.own.Paths) > i) {
			return unknown(expected, w.inCell(), advice)
		}
		c := e.cells[i]
		if why := fewPackets(c, e.path(c)); e.opaque() && why != "" {
			return unknown(expected, why, advice)
		}
		if e.opaque() && e.network().Type != v1alpha1.NetworkHost {
			if why := e.repeated(c, e.path(c)); why != "" {
				return unknown(expected, c.Name+": "+why+": a proxy may send the messages on, unless the program itself does this", advice)
			}
		}
	}
	if uncounted {
		return proved(expected, "no library of Onload in the server's process")
	}
	return proved(expected, fmt.Sprintf("in all %d cells; %s: %s", len(ways), ways[0].Cell, ways[0].Witnesses[0]))
}

func (e endpoint) otherVersion() string {
	module := e.own.Facts["module.onload.version"]
	for _, p := range e.own.Paths {
		if e.variant.Acceleration.Type == v1alpha1.AccelerationOnload && module != "" && p.Banner != "" && p.Banner != module {
			return fmt.Sprintf("Onload's library has version %s, and its kernel module %s; use one version of both", p.Banner, module)
		}
	}
	return ""
}

func (e endpoint) replaced() string {
	if path := e.own.Facts["onload.preload-file"]; path != "" {
		return "/etc/ld.so.preload names " + path
	}
	for _, c := range e.cells {
		p := e.path(c)
		for _, l := range []*result.Look{p.Begun, p.Ended} {
			if l != nil && (l.Library != "" || l.Onload > 0) {
				return fmt.Sprintf("Onload's library %s in the process of %s", l.Library, c.Name)
			}
		}
		if word := e.word(c); p.Banner != "" || word == tool.AccelerationYes || word == tool.AccelerationNo {
			return "Onload's library in the process of " + c.Name
		}
	}
	return ""
}
