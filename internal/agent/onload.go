package agent

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// How Onload shows in /proc, according to its sources (github.com/Xilinx-CNS/onload; the same in its releases from 8.1 to
// 9.2 and in what becomes 10.0): its library is mapped into the process, and a descriptor of its own file system is a link
// to onload:[KIND:STACK:ENDPOINT] (onloadfs_dname in src/driver/linux_onload/onloadfs.c, OO_FDFLAG_TYPE_STR in
// src/include/onload/common.h). KIND is tcp and udp of sockets, tcpl of those that listen, moved of those that went to
// another stack, os_sock of those that were handed to the kernel, piper and pipew of pipes; onload:[stack:STACK] is a
// handle. The kernel's own sockets are socket:[INODE].
//
// A descriptor does not say which way the messages go. Onload hands a TCP or UDP socket over to the kernel when it binds or
// connects to an address, or is accepted from one, that is not on a NIC of Onload's: its descriptor is then the kernel's.
// But a UDP socket that is not connected, or has joined a group, stays Onload's whichever way its datagrams go, and
// datagrams that need several packets always go through the kernel. So the counters decide, and the descriptors only
// support them.
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
	// maxMaps bounds what is read of the memory of a process, in bytes, and maxDescriptors how many of its descriptors
	// are looked at.
	maxMaps        = 1 << 20
	maxDescriptors = 4096
	// maxLibrary bounds what is read of Onload's library, in bytes: it has 3 MiB.
	maxLibrary = 64 << 20
)

// look looks at a process whose messages are those of a protocol. It returns nil when the process cannot be seen, or ends:
// it then loses its memory first and its descriptors next, and so those are read first.
func (h host) look(pid int, p v1alpha1.Protocol) *result.Look {
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
	var l result.Look
	for _, name := range names {
		// One that was closed in between leads nowhere.
		target, err := os.Readlink(filepath.Join(dir, "fd", name))
		if err == nil {
			countDescriptor(&l, target, p)
		}
	}
	maps, err := os.Open(filepath.Join(dir, "maps"))
	if err != nil {
		return nil
	}
	defer maps.Close()
	if l.Library, err = mappedOnload(io.LimitReader(maps, maxMaps)); err != nil {
		return nil
	}
	return &l
}

// countDescriptor takes note of where a descriptor leads.
func countDescriptor(l *result.Look, target string, p v1alpha1.Protocol) {
	kind, ok := strings.CutPrefix(target, onloadFile)
	kind, _, _ = strings.Cut(kind, ":")
	switch {
	case strings.HasPrefix(target, kernelSocket):
		l.Sockets++
	case ok && slices.Contains(onloadSockets(p), kind):
		l.Sockets++
		l.Onload++
	case ok && slices.Contains([]string{"tcp", "tcpl", "udp", "os_sock"}, kind):
		l.Sockets++
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

// stacks adds up the events of the Onload stacks that belong to a process group, in /proc/driver/onload/stacks (since
// Onload 8.1; efab_stacks_seq_show in src/driver/linux_onload/linux_stats.c): a line for each stack, whose second field is
// the process that made it, 0 when the reader cannot see that, and whose last two are its rx_evs and tx_evs. The stack of a
// tool's server is as old as its process, so its counters are those of the cell. The first field is the stack's ID.
func (h host) stacks(group int, grown map[string]int64) (ids []int) {
	file, err := os.Open(filepath.Join(h.root, "proc/driver/onload/stacks"))
	if err != nil {
		return nil
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		pid, err := strconv.Atoi(fields[1])
		if err != nil || pid <= 0 {
			continue // the heading, or a stack of others
		}
		if g, err := unix.Getpgid(pid); err != nil || g != group {
			continue
		}
		in, errIn := strconv.ParseInt(fields[len(fields)-2], 10, 64)
		out, errOut := strconv.ParseInt(fields[len(fields)-1], 10, 64)
		if errIn == nil && errOut == nil {
			grown[result.PathStackIn] += in
			grown[result.PathStackOut] += out
		}
		if id, err := strconv.Atoi(strings.TrimSuffix(fields[0], ":")); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// lookBegun looks at the tool's server when it is ready: by then the dynamic linker is done with it. Without Onload's
// library, although that was asked for, the process is killed, and an error says why. So it is of settings that this
// library does not know: it would only mention them in the kernel's log.
func (e *endpoint) lookBegun(p *process, protocol v1alpha1.Protocol) error {
	l := host{root: e.Root}.look(p.cmd.Process.Pid, protocol)
	p.path.Begun, p.protocol = l, protocol
	if l == nil || !e.accelerated() {
		return nil
	}
	if l.Library == "" {
		return e.notAccelerated(p)
	}
	names, err := host{root: e.Root}.unknownSettings(l.Library, e.Task.Env)
	if err != nil || len(names) == 0 {
		e.lookAtStack(p)
		return nil //nolint:nilerr // a library that cannot be read has no settings to compare with
	}
	p.kill()
	return fail(v1alpha1.OutcomeAccelerationFailed, "Onload's library %s does not know the setting %s; correct the profile or env, or use the Onload that has it",
		l.Library, strings.Join(names, ", "))
}

// lookEnded looks at the tool's server after its client has ended.
func (e *endpoint) lookEnded(p *process) {
	if p.ended() {
		return
	}
	p.path.Ended = host{root: e.Root}.look(p.cmd.Process.Pid, p.protocol)
	p.stackEvents = map[string]int64{}
	host{root: e.Root}.stacks(p.cmd.Process.Pid, p.stackEvents)
}

// lookAtStack gathers the facts of the stack of the tool's server, once, before its client starts: some servers end with their
// client.
func (e *endpoint) lookAtStack(p *process) {
	ids := host{root: e.Root}.stacks(p.cmd.Process.Pid, map[string]int64{})
	if len(ids) > 0 && e.stack == nil {
		e.stack = stackFacts(ids[0])
	}
}

// stackdump is a program of Onload. It prints the settings of a stack to a process that has the user ID of the stack's maker. AMD's
// device plugin does not mount it: the bench image has to have it, of the module's version.
const (
	stackdump        = "onload_stackdump"
	stackdumpTimeout = 5 * time.Second
)

// stackFacts are the settings of a stack that are not the defaults and its virtual interfaces, or why they could not be read.
func stackFacts(id int) facts {
	f := facts{}
	program, err := exec.LookPath(stackdump)
	if err != nil {
		f.set("onload.stack-settings", "not read: the bench image has no "+stackdump)
		return f
	}
	ctx, cancel := context.WithTimeout(context.Background(), stackdumpTimeout)
	defer cancel()
	var out capped
	cmd := exec.CommandContext(ctx, program, "--nopids", strconv.Itoa(id), "netif", "opts")
	// It refuses to run with Onload, which the device plugin preloads into the container.
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = environment(os.Environ(), plan.Task{}), &out, &out, outputGrace
	err = cmd.Run()
	changed, all := onload.StackSettings(out.Bytes())
	if err == nil && all == 0 {
		err = errors.New("it printed no settings")
	}
	if err != nil {
		f.set("onload.stack-settings", fmt.Sprintf("not read: %s: %v: %s", stackdump, err, line(out.String(), maxWords)))
		return f
	}
	f.set("onload.stack-interfaces", strings.Join(onload.StackInterfaces(out.Bytes()), ", "))
	f.set("onload.stack-settings", fmt.Sprintf("%d read, %d not the default", all, len(changed)))
	for name, value := range changed {
		f.set("onload.stack."+name, value)
	}
	return f
}

// unknownSettings are the variables of a task that Onload's library does not know. It knows those whose names are among its
// strings (ef_names in its startup.c).
func (h host) unknownSettings(library string, env map[string]string) ([]string, error) {
	file, err := os.Open(filepath.Join(h.root, library))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxLibrary))
	if err != nil {
		return nil, err
	}
	// What is named like the library and has none of the settings is another.
	if !bytes.Contains(data, []byte("EF_NO_FAIL\x00")) {
		return nil, errors.New("it has no settings")
	}
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(env)) {
		if strings.HasPrefix(name, onloadPrefix) && !bytes.Contains(data, []byte(name+"\x00")) {
			unknown = append(unknown, name)
		}
	}
	return unknown, nil
}

// accelerated says whether the tools are to run with Onload.
func (e *endpoint) accelerated() bool { return e.Task.Acceleration == v1alpha1.AccelerationOnload }

// explained is a failure of a tool, or that of Onload where it is the reason.
func (e *endpoint) explained(p *process, err error) error {
	return cmp.Or(e.onloadFailure(p), err)
}

// onloadFailure says, by what a process printed, why it could not use Onload; nil when nothing tells.
func (e *endpoint) onloadFailure(p *process) error {
	if !e.accelerated() {
		return nil
	}
	if words := notPreloaded(p.stderr.Bytes()); words != "" {
		return fail(v1alpha1.OutcomeAccelerationFailed, "%s ran without Onload: %s%s", e.Task.Tool, words, e.elsewhere())
	}
	if f, ok := onload.Explain(p.stderr.Bytes()); ok {
		return fail(f.Outcome, "%s could not use Onload: %s; %s (Onload: %s)", e.Task.Tool, cmp.Or(host{root: e.Root}.deviceTrouble(f), f.Why), f.Remedy, line(f.Words, maxValue))
	}
	return nil
}

// deviceTrouble is why Onload's device cannot be opened, as far as the agent sees it.
func (h host) deviceTrouble(f onload.Failure) string {
	if !f.Device {
		return ""
	}
	switch {
	case !h.exists("sys/module/onload"):
		return "the kernel module onload is not loaded"
	case !h.exists("dev/onload"):
		return "the pod has no /dev/onload"
	case unix.Access(filepath.Join(h.root, "dev/onload"), unix.R_OK|unix.W_OK) != nil:
		return "the pod may not open /dev/onload"
	}
	return ""
}

// elsewhere says where the container has Onload's library, when it is not where the task expects it.
func (e *endpoint) elsewhere() string {
	h := host{root: e.Root}
	for _, path := range preloads(os.Getenv(preloadVariable)) {
		if isOnload(path) && path != e.Task.Library && h.exists(path) {
			return "; the device plugin mounted " + path + ": set acceleration.onload.library to it"
		}
	}
	return "; set acceleration.onload.library to where the Onload resource mounts the library"
}
