package proof

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// word is what the tool told of the endpoint's socket in a cell.
func (e endpoint) word(c result.Cell) tool.Acceleration {
	if e.role == v1alpha1.RoleServer {
		return c.Accelerated.Server
	}
	return c.Accelerated.Client
}

// inAll says whether the tool told one thing of the endpoint's sockets in every cell.
func (e endpoint) inAll(word tool.Acceleration) bool {
	return len(e.cells) > 0 && !slices.ContainsFunc(e.cells, func(c result.Cell) bool { return e.word(c) != word })
}

// inAny is the name of the first cell of which the tool told one of several things; empty when there is none.
func (e endpoint) inAny(words ...tool.Acceleration) string {
	for _, c := range e.cells {
		if slices.Contains(words, e.word(c)) {
			return c.Name
		}
	}
	return ""
}

// looked is what the agent saw in the processes of the tools, if it looked into one for each cell at least.
func (e endpoint) looked() (result.Onload, bool) {
	if e.own.Onload == nil {
		return result.Onload{}, false
	}
	return *e.own.Onload, len(e.cells) > 0 && int(e.own.Onload.Checked) >= len(e.cells)
}

// onload asks, where Onload was asked for, whether every socket was accelerated.
func onload(e endpoint) finding {
	if e.variant.Acceleration.Type != v1alpha1.AccelerationOnload {
		return finding{}
	}
	const expected = "Onload's sockets in every cell"
	advice := "see whether Onload's device plugin mounts the library and sets LD_PRELOAD, and what Onload says in the kernel's log"
	o, whole := e.looked()
	if cell := e.inAny(tool.AccelerationNo, tool.AccelerationAbsent); cell != "" {
		return failed(expected, "a kernel's socket in "+cell+preloaded(o), advice)
	}
	switch {
	case o.MappedIn < o.Checked:
		return failed(expected, fmt.Sprintf("its library was in %d of %d processes%s", o.MappedIn, o.Checked, preloaded(o)), advice)
	case o.Checked > 0 && o.Sockets == 0:
		return failed(expected, fmt.Sprintf("%s was there, and a process without a socket of it", orNotKnown(o.Mapped)), advice)
	case o.MappedIn > o.Checked || o.MappedIn > 0 && o.Mapped == "":
		return unknown(expected, "what the agent saw in the processes contradicts itself", advice)
	case !e.inAll(tool.AccelerationYes) && !(whole && o.Sockets > 0):
		return unknown(expected, notKnown+": neither the tool nor the agent saw it in every cell"+preloaded(o), advice)
	}
	found := fmt.Sprintf("in all %d cells; module %s", len(e.cells), orNotKnown(e.own.Facts["module.onload.version"]))
	if o.Mapped != "" {
		found += ", library " + o.Mapped
	}
	return proved(expected, found)
}

// preloaded tells of a library that was to be loaded.
func preloaded(o result.Onload) string {
	if o.Preloaded == "" {
		return ""
	}
	return ", LD_PRELOAD names " + o.Preloaded
}

// kernel asks, where the kernel's sockets were asked for, whether nothing else was in the way.
func kernel(e endpoint) finding {
	if e.variant.Acceleration.Type == v1alpha1.AccelerationOnload {
		return finding{}
	}
	const expected = "the kernel's sockets"
	advice := "see what adds the library to the pod, or compare with a variant of acceleration.type Onload"
	o, whole := e.looked()
	if cell := e.inAny(tool.AccelerationYes); cell != "" {
		return failed(expected, "Onload's socket in "+cell, advice)
	}
	if cell := e.inAny(tool.AccelerationNo); cell != "" {
		return failed(expected, "Onload's library in the process of "+cell, advice)
	}
	preload := cmp.Or(o.Preloaded, e.own.Facts["env.LD_PRELOAD"])
	switch {
	case o.MappedIn > 0 || o.Mapped != "" || o.Sockets > 0:
		return failed(expected, fmt.Sprintf("Onload's library %s in %d of %d processes", o.Mapped, o.MappedIn, o.Checked), advice)
	case preload != "":
		return unknown(expected, "LD_PRELOAD names "+preload, advice)
	case !e.inAll(tool.AccelerationAbsent) && !whole:
		return unknown(expected, notKnown+": neither the tool nor the agent looked into every process", advice)
	}
	return proved(expected, "no Onload in any process")
}
