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
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// Onload in /proc (sources 8.1 to 9.2, and the development of 10.0): its library is mapped, and a
// descriptor links to onload:[KIND:STACK:ENDPOINT] (onloadfs_dname, OO_FDFLAG_TYPE_STR). KIND is
// tcp, udp, tcpl (listening), moved (from another stack), os_sock (the kernel's), piper or pipew.
// onload:[stack:STACK] is a handle.
//
// A descriptor does not show the path: Onload gives a socket to the kernel if its address is on no
// NIC of Onload, but keeps UDP that is not connected or joined a group, while fragmented datagrams
// use the kernel. So the counters decide; descriptors support them.
const (
	kernelSocket = "socket:["
	onloadFile   = "onload:["
)

// carriers are the Onload sockets that carry a protocol's messages, besides moved.
var carriers = map[v1alpha1.Protocol]string{v1alpha1.ProtocolTCP: "tcp", v1alpha1.ProtocolUDP: "udp", v1alpha1.ProtocolMulticast: "udp"}

const (
	// maxMaps and maxLibrary (Onload's has 3 MiB) are bytes, maxDescriptors are inspected.
	maxMaps        = 1 << 20
	maxDescriptors = 4096
	maxLibrary     = 64 << 20
)

// look inspects a process; nil if it is not visible or ending. Memory goes before descriptors.
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
		// A descriptor that was closed since it was listed has no target.
		target, err := os.Readlink(filepath.Join(dir, "fd", name))
		kind, ok := strings.CutPrefix(target, onloadFile)
		kind, _, _ = strings.Cut(kind, ":")
		switch {
		case err != nil:
		case ok && (kind == "moved" || kind == carriers[p]):
			l.Onload++
			l.Sockets++
		case strings.HasPrefix(target, kernelSocket), ok && slices.Contains([]string{"tcp", "tcpl", "udp", "os_sock"}, kind):
			l.Sockets++
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

var errNoMemory = errors.New("the process has no memory any more")

func mappedOnload(maps io.Reader) (string, error) {
	lines, err := bufio.NewScanner(maps), errNoMemory
	for lines.Scan() {
		err = nil
		// 7f3a1c000000-7f3a1c021000 r-xp 00001000 08:01 4711 /usr/lib64/libonload.so
		_, path, found := strings.Cut(lines.Text(), " /")
		if path = "/" + strings.TrimSuffix(path, " (deleted)"); found && onload.IsLibrary(path) {
			return line(path, maxValue), nil
		}
	}
	return "", cmp.Or(lines.Err(), err)
}

// stacks adds the events of the Onload stacks of own processes to grown, and returns their IDs. A line
// of /proc/driver/onload/stacks (since 8.1; efab_stacks_seq_show) has ID, process (0 if hidden)
// and, last, rx_evs and tx_evs. A server's stack is as old as its process: it counts the cell.
func (h host) stacks(own func(pid int) bool, grown map[string]int64) (ids []int) {
	for l := range strings.Lines(h.read("proc/driver/onload/stacks")) {
		fields := strings.Fields(l)
		if len(fields) < 5 {
			continue
		}
		pid, err := strconv.Atoi(fields[1])
		if err != nil || pid <= 0 {
			continue // the heading, or a stack whose process cannot be seen
		}
		if !own(pid) {
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

func inGroup(group int) func(int) bool {
	return func(pid int) bool {
		g, err := unix.Getpgid(pid)
		return err == nil && g == group
	}
}

// lookBegun inspects the tool's server when it is ready and the dynamic linker done. It kills a
// process without the requested library, or with settings that it does not know: an error.
func (e *endpoint) lookBegun(p *process, protocol v1alpha1.Protocol) error {
	l := host{root: e.Root}.look(p.cmd.Process.Pid, protocol)
	p.path.Begun, p.protocol = l, protocol
	if l == nil || !e.accelerated() {
		return nil
	}
	if l.Library == "" {
		p.kill() // its output is complete only then
		return cmp.Or(e.onloadFailure(p), tool.Fail(v1alpha1.OutcomeAccelerationFailed,
			"%s ran without Onload: %s is not in its memory, for an unknown reason; is the tool linked statically?", e.Task.Tool, e.Task.Library))
	}
	names, err := host{root: e.Root}.unknownSettings(l.Library, e.Task.Env)
	if err != nil || len(names) == 0 {
		// Gathered once, before the client starts: some servers end with their client.
		if ids := (host{root: e.Root}).stacks(inGroup(p.cmd.Process.Pid), map[string]int64{}); len(ids) > 0 && e.stack == nil {
			e.stack = stackFacts(ids[0])
		}
		return nil // A library that cannot be read has no settings to compare with.
	}
	p.kill()
	return tool.Fail(v1alpha1.OutcomeAccelerationFailed, "Onload's library %s does not know the setting %s; correct the profile or env, or use the Onload that has it",
		l.Library, strings.Join(names, ", "))
}

func (e *endpoint) lookEnded(p *process) {
	if p.ended() {
		return
	}
	p.path.Ended = host{root: e.Root}.look(p.cmd.Process.Pid, p.protocol)
	p.stackEvents = map[string]int64{}
	for _, id := range (host{root: e.Root}).stacks(inGroup(p.cmd.Process.Pid), p.stackEvents) {
		if out, err := dumpStack(id, "dump"); err == nil {
			addSockets(p.stackEvents, out, p.protocol)
		}
	}
}

// stackdump is Onload's program that prints a stack's settings and sockets to its creator. AMD's
// device plugin does not mount it: the image needs the module's version.
const (
	stackdump        = "onload_stackdump"
	stackdumpTimeout = 5 * time.Second
)

// stackFacts returns a stack's settings that are not the defaults, and its virtual interfaces.
func stackFacts(id int) facts {
	f := facts{}
	out, err := dumpStack(id, "netif", "opts")
	changed, all := onload.StackSettings(out)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		f.set("onload.stack-settings", "not read: the bench image has no "+stackdump)
		return f
	case err == nil && all == 0:
		err = errors.New("it printed no settings")
	}
	if err != nil {
		f.set("onload.stack-settings", fmt.Sprintf("not read: %s: %v: %s", stackdump, err, out))
		return f
	}
	f.set("onload.stack-interfaces", strings.Join(onload.StackInterfaces(out), ", "))
	f.set("onload.stack-settings", fmt.Sprintf("%d read, %d not the default", all, len(changed)))
	for name, value := range changed {
		f.set("onload.stack."+name, value)
	}
	return f
}

func dumpStack(id int, operations ...string) ([]byte, error) {
	program, err := exec.LookPath(stackdump)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), stackdumpTimeout)
	defer cancel()
	var out capped
	cmd := exec.CommandContext(ctx, program, append([]string{"--nopids", strconv.Itoa(id)}, operations...)...)
	// It refuses to run with Onload, which the device plugin preloads into the container.
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = environment(os.Environ(), plan.Task{}), &out, &out, outputGrace
	err = cmd.Run()
	return out.Bytes(), err
}

// unknownSettings returns a task's variables that Onload's library lacks (ef_names, startup.c).
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
	// A file that is named like the library but has none of the settings is not Onload's library.
	if !bytes.Contains(data, []byte("EF_NO_FAIL\x00")) {
		return nil, errors.New("it has no settings")
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(env)), func(name string) bool {
		return !strings.HasPrefix(name, onloadPrefix) || bytes.Contains(data, []byte(name+"\x00"))
	}), nil
}

func (e *endpoint) accelerated() bool { return e.Task.Acceleration == v1alpha1.AccelerationOnload }

func (e *endpoint) onloadFailure(p *process) error {
	if !e.accelerated() {
		return nil
	}
	f := onload.Read(p.stderr.Bytes()).Failure
	if f == nil {
		return nil
	}
	why, remedy := f.Why, f.Remedy
	if f.Device {
		why = cmp.Or(host{root: e.Root}.deviceTrouble(), why)
	}
	if f.Missing {
		remedy = cmp.Or(e.elsewhere(), remedy)
	}
	return tool.Fail(f.Outcome, "%s could not use Onload: %s (%s); %s", e.Task.Tool, why, line(f.Words, maxValue), remedy)
}

// ranWithout returns why a tool that worked did not use Onload: without its control plane, Onload
// leaves sockets to the kernel. nil: a stack was made, or EF_NO_FAIL allows it.
func (e *endpoint) ranWithout(p *process) error {
	if onload.Read(p.stderr.Bytes()).Banner != "" || e.Task.Env["EF_NO_FAIL"] != "0" {
		return nil
	}
	return e.onloadFailure(p)
}

// planeParameter: seconds to wait for the control plane; by default 10, if negative without limit.
const (
	planeParameter = "sys/module/onload/parameters/cplane_init_timeout"
	maxPlaneWait   = time.Minute
)

// listenLimit is longer than Onload waits, so that it can say what is missing.
func (e *endpoint) listenLimit() time.Duration {
	seconds, err := strconv.ParseUint(host{root: e.Root}.read(planeParameter), 10, 16)
	switch {
	case !e.accelerated():
		return listenTimeout
	case err != nil: // negative, or not known
		return listenTimeout + maxPlaneWait
	}
	return listenTimeout + min(time.Duration(seconds)*time.Second, maxPlaneWait)
}

func (h host) deviceTrouble() string {
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

func (e *endpoint) elsewhere() string {
	h := host{root: e.Root}
	for _, path := range preloads(os.Getenv(preloadVariable)) {
		if onload.IsLibrary(path) && path != e.Task.Library && h.exists(path) {
			return "the device plugin mounted " + path + ": set acceleration.onload.library to it"
		}
	}
	return ""
}

// The lines of a socket in a dump, in hexadecimal: heading (citp_waitable_dump2), and counters of
// ci_udp_state_dump and ci_tcp_state_dump. TCP counts received packets: each message is answered.
var (
	socketLine     = regexp.MustCompile(`^(\S+) \d+:\d+(?: |$)`)
	socketCounters = map[string][]socketCounter{
		"UDP": {
			{regexp.MustCompile(`^  rcv: .*\btot_pkts=(\d+)`), 10, []string{result.PathSocketIn}}, {regexp.MustCompile(`^  rcv: os=(\d+)`), 10, []string{result.PathSocketKernelIn}},
			{regexp.MustCompile(`^  snd: .*\bul=(\d+)`), 10, []string{result.PathSocketOut}}, {regexp.MustCompile(`^  snd: .*\bos=(\d+)`), 10, []string{result.PathSocketKernelOut}},
		},
		"TCP": {{regexp.MustCompile(`^  rcv: .*\btot_pkts=([0-9a-f]+)`), 16, []string{result.PathSocketIn, result.PathSocketOut}}},
	}
)

// socketCounter is a number in a socket's line, its base, and its counters of a path.
type socketCounter struct {
	pattern *regexp.Regexp
	base    int
	names   []string
}

func addSockets(grown map[string]int64, dump []byte, protocol v1alpha1.Protocol) {
	wanted, kind := "UDP", ""
	if protocol == v1alpha1.ProtocolTCP {
		wanted = "TCP"
	}
	for line := range strings.Lines(string(dump)) {
		if found := socketLine.FindStringSubmatch(line); found != nil {
			kind = found[1]
		}
		if kind != wanted {
			continue
		}
		for _, c := range socketCounters[kind] {
			if found := c.pattern.FindStringSubmatch(line); found != nil {
				n, _ := strconv.ParseInt(found[1], c.base, 40) // the largest number, if it is beyond its range
				for _, name := range c.names {
					grown[name] += n
				}
			}
		}
	}
}

const (
	preloadVariable = "LD_PRELOAD"
	onloadPrefix    = "EF_"
	agentPrefix     = "TAILGATE_"
)

// environment returns the container's variables without the agent's inputs, tools' options and
// Onload's settings, plus the task's. LD_PRELOAD does not reach the agent: it is linked statically.
func environment(container []string, task plan.Task) []string {
	all := map[string]string{}
	for _, entry := range container {
		if name, value, ok := strings.Cut(entry, "="); ok {
			all[name] = value
		}
	}
	maps.DeleteFunc(all, func(name, _ string) bool {
		return begins(name, optionPrefixes) || strings.HasPrefix(name, onloadPrefix) || strings.HasPrefix(name, agentPrefix)
	})
	maps.Copy(all, task.Env)
	if task.Acceleration == v1alpha1.AccelerationOnload {
		// AMD's device plugin preloads its own library, even if the image's is meant.
		all[preloadVariable] = strings.TrimSuffix(task.Library+":"+withoutOnload(all[preloadVariable]), ":")
	} else {
		maps.DeleteFunc(all, func(name, _ string) bool { return strings.HasPrefix(name, onloadPrefix) })
		if all[preloadVariable] = withoutOnload(all[preloadVariable]); all[preloadVariable] == "" {
			delete(all, preloadVariable)
		}
	}
	return text.Of(slices.Sorted(maps.Keys(all)), func(name string) string { return name + "=" + all[name] })
}

func withoutOnload(list string) string {
	return strings.Join(slices.DeleteFunc(preloads(list), onload.IsLibrary), ":")
}

func preloads(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ':' || unicode.IsSpace(r) })
}

// preloadFile returns Onload's library in /etc/ld.so.preload, which is loaded into every process.
func (h host) preloadFile() string {
	for line := range strings.Lines(h.read("etc/ld.so.preload")) {
		paths, _, _ := strings.Cut(line, "#")
		for _, path := range preloads(paths) {
			if onload.IsLibrary(path) {
				return path
			}
		}
	}
	return ""
}
