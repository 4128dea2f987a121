package agent

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// How Onload shows in /proc, as its sources have it (github.com/Xilinx-CNS/onload; the same in its releases from 8.1 to
// 9.2 and in what becomes 10.0): its library is mapped into the process, and a descriptor of its own file system is a link
// to onload:[KIND:STACK:ENDPOINT] (onloadfs_dname in src/driver/linux_onload/onloadfs.c, OO_FDFLAG_TYPE_STR in
// src/include/onload/common.h). KIND is tcp and udp of sockets, tcpl of those that listen, moved of those that went to
// another stack, os_sock of those that were handed to the kernel, piper and pipew of pipes; onload:[stack:STACK] is a
// handle. The kernel's own sockets are socket:[INODE].
//
// What listens is Onload's wherever its connections come from, and so proves nothing. A tcp socket that connects, or is
// accepted, over another NIC than Onload's is handed to the kernel; a udp socket is in connect alone.
const (
	kernelSocket = "socket:["
	onloadFile   = "onload:["
)

// onloadSockets are the kinds of Onload's sockets that can carry the messages of a protocol.
func onloadSockets(p v1alpha1.Protocol) []string {
	if p == v1alpha1.ProtocolTCP {
		return []string{"tcp", "moved"}
	}
	return []string{"udp", "moved"}
}

const (
	// firstLook is how long after its start a tool's process is looked at for the first time. From look to look it takes
	// twice as long, and there are at most maxLooks: until 1.3 s after the start.
	firstLook = 10 * time.Millisecond
	maxLooks  = 7

	// maxMaps bounds what is read of the memory of a process, in bytes, and maxDescriptors how many of its descriptors
	// are looked at.
	maxMaps        = 1 << 20
	maxDescriptors = 4096
)

// glimpse is what /proc shows of a process at one moment.
type glimpse struct {
	// library is the path of Onload's library in its memory; empty when there is none.
	library string
	// sockets is how many sockets it has, onload how many of Onload among them can carry a protocol's messages.
	sockets, onload int32
}

// glimpse looks at a process whose messages are those of a protocol. It is nil when the process cannot be seen, or ends: it
// then loses its memory first and its descriptors next, and so those are looked at first.
func (h host) glimpse(pid int, p v1alpha1.Protocol) *glimpse {
	dir := filepath.Join(h.root, fmt.Sprintf("proc/%d", pid))
	descriptors, err := os.Open(filepath.Join(dir, "fd"))
	if err != nil {
		return nil
	}
	defer descriptors.Close()
	names, err := descriptors.Readdirnames(maxDescriptors)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	var g glimpse
	for _, name := range names {
		// One that was closed in between leads nowhere.
		target, err := os.Readlink(filepath.Join(dir, "fd", name))
		if err == nil {
			g.count(target, p)
		}
	}
	maps, err := os.Open(filepath.Join(dir, "maps"))
	if err != nil {
		return nil
	}
	defer maps.Close()
	if g.library, err = mappedOnload(io.LimitReader(maps, maxMaps)); err != nil {
		return nil
	}
	return &g
}

// count takes note of where a descriptor leads.
func (g *glimpse) count(target string, p v1alpha1.Protocol) {
	kind, ok := strings.CutPrefix(target, onloadFile)
	kind, _, _ = strings.Cut(kind, ":")
	switch {
	case strings.HasPrefix(target, kernelSocket):
		g.sockets++
	case ok && slices.Contains(onloadSockets(p), kind):
		g.sockets++
		g.onload++
	case ok && slices.Contains([]string{"tcp", "tcpl", "udp", "os_sock"}, kind):
		g.sockets++
	}
}

// errNoMemory is that of a process that ends.
var errNoMemory = errors.New("the process has no memory any more")

// mappedOnload is the path of Onload's library among the lines of /proc/PID/maps; empty when it is not among them.
func mappedOnload(maps io.Reader) (string, error) {
	lines, err := bufio.NewScanner(maps), errNoMemory
	for lines.Scan() {
		err = nil
		// 7f3a1c000000-7f3a1c021000 r-xp 00001000 08:01 4711                       /usr/lib64/libonload.so
		_, path, found := strings.Cut(lines.Text(), " /")
		if path = "/" + strings.TrimSuffix(path, " (deleted)"); found && isOnload(path) {
			return line(path, maxValue), nil
		}
	}
	return "", cmp.Or(lines.Err(), err)
}

// accelerated says whether the tools are to run with Onload.
func (e *endpoint) accelerated() bool { return e.Task.Acceleration == v1alpha1.AccelerationOnload }

// look looks what became of Onload in a tool's process that was just started. The dynamic linker is done with a process
// that has a socket, and none measures without one. So there are looks until there is one, of Onload where that is asked,
// and none any more while it measures; one more look comes soon after, as a socket that connects may yet be handed to
// the kernel. Without Onload in its memory the process is killed, and an error says so.
//
// Of a process that cannot be seen, or ended, nothing is noted.
func (e *endpoint) look(ctx context.Context, p *process) error {
	wait, seen := firstLook, false
	for range maxLooks {
		select {
		case <-p.done:
			return nil
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if err := e.glance(p); err != nil || p.seen == nil || seen {
			return err
		}
		wait *= 2
		if seen = p.seen.sockets > 0 && (p.seen.onload > 0 || !e.accelerated()); seen {
			wait = firstLook
		}
	}
	return nil
}

// glance looks once at a tool's process. One that ends meanwhile was as it was seen last with a socket.
func (e *endpoint) glance(p *process) error {
	g := host{e.Root}.glimpse(p.cmd.Process.Pid, p.protocol)
	if g == nil && p.seen != nil && p.seen.sockets > 0 {
		return nil
	}
	p.seen = g
	if g != nil && e.accelerated() && g.sockets > 0 && g.library == "" {
		return e.notAccelerated(p)
	}
	return nil
}

// note adds what was seen of a process to the evidence.
func (e *endpoint) note(p *process) {
	if p.seen == nil {
		return
	}
	if e.onload == nil {
		e.onload = &result.Onload{Sockets: p.seen.onload}
		for _, entry := range e.environ {
			if value, ok := strings.CutPrefix(entry, preloadVariable+"="); ok {
				e.onload.Preloaded = line(value, maxValue)
			}
		}
	}
	o := e.onload
	o.Checked++
	if p.seen.library != "" {
		o.MappedIn++
		o.Mapped = cmp.Or(o.Mapped, p.seen.library)
	}
	o.Sockets = min(o.Sockets, p.seen.onload)
}
