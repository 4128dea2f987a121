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
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

const maxOutput = 4 << 20 // bytes of a tool's output that are kept

const outputGrace = time.Second // for the output of a tool that ended

type process struct {
	cmd            *exec.Cmd
	stdout, stderr capped
	done           chan struct{}
	interrupt      bool              // as in its tool.Command
	runDelay       int64             // ns that the main thread waited for a CPU; -1: unknown
	clocks         tool.Clocks       // how far they advanced from before its start until its end
	protocol       v1alpha1.Protocol // of its messages, and path is the path that they took
	path           result.Path
	// stackEvents count its Onload stacks, linkBefore the agents' connection.
	stackEvents, linkBefore map[string]int64
}

func start(c tool.Command, cpus []int, dir string, environ []string) (*process, error) {
	path, err := present(c.Path)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(path, c.Args...), done: make(chan struct{}), interrupt: c.Interrupt}
	p.cmd.Env = slices.Concat(environ, c.Env)
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	// A child that left the group and keeps the tool's output open must not block the agent.
	p.cmd.WaitDelay = outputGrace
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	begin := readClocks()
	if err := StartOn(p.cmd, cpus); err != nil {
		return nil, tool.Fail(v1alpha1.OutcomeToolFailed, "starting %s: %v", c.Path, err)
	}
	started.Store(p.cmd.Process.Pid, true)
	go func() {
		// After Wait has reaped the process, the kernel no longer reports its run delay.
		p.runDelay = awaitRunDelay(p.cmd.Process.Pid)
		_ = p.cmd.Wait() // The exit code is that of the process state.
		started.Delete(p.cmd.Process.Pid)
		p.clocks = readClocks().since(begin)
		p.clocks.Waited = time.Duration(max(p.runDelay, 0))
		close(p.done)
	}()
	return p, nil
}

// StartOn starts a command with the affinity of CPUs, which a child inherits from its thread.
func StartOn(cmd *exec.Cmd, cpus []int) error { return onCPUs(cpus, cmd.Start) }

func onCPUs(cpus []int, call func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return fmt.Errorf("reading the affinity: %w", err)
	}
	for _, cpu := range cpus {
		own.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &own); err != nil {
		return fmt.Errorf("pinning to CPUs %v: %w", cpus, err)
	}
	err := call()
	if restore := unix.SchedSetaffinity(0, &before); restore != nil {
		err = errors.Join(err, fmt.Errorf("restoring the affinity: %w", restore))
	}
	return err
}

// wait waits for the process, kills it if the context ends first, and reports which.
func (p *process) wait(ctx context.Context) bool {
	select {
	case <-p.done:
		return true
	case <-ctx.Done():
		p.kill()
		return false
	}
}

func (p *process) end(grace time.Duration) {
	if p.interrupt && grace > 0 && !p.ended() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT)
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	p.wait(ctx)
}

func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	_ = p.cmd.Process.Kill() // It may have left its group.
	<-p.done
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// exitCode returns the exit code of a process that ended, or -1 if it was killed.
func (p *process) exitCode() int { return p.cmd.ProcessState.ExitCode() }

func (p *process) ending() string {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	switch {
	case !ok || !status.Signaled():
		return fmt.Sprintf("ended with exit code %d", p.exitCode())
	case status.Signal() == syscall.SIGSYS:
		return "was killed by SIGSYS: the pod's seccomp profile forbids a system call"
	}
	return fmt.Sprintf("was killed by %s (%s)", unix.SignalName(status.Signal()), status.Signal())
}

// lastWords returns the last line of standard error or output, without Onload's usual ones.
func (p *process) lastWords() string {
	for _, out := range [][]byte{p.stderr.Bytes(), p.stdout.Bytes()} {
		last := ""
		for l := range strings.Lines(string(out)) {
			if l = strings.TrimSpace(l); l != "" && !onload.Chatter(l) && !onload.Warns(l) {
				last = l
			}
		}
		if last != "" {
			return last
		}
	}
	return ""
}

// capped keeps the first maxOutput bytes and discards the rest.
type capped struct {
	bytes.Buffer
	truncated bool
}

func (c *capped) Write(data []byte) (int, error) {
	room := min(maxOutput-c.Len(), len(data))
	c.Buffer.Write(data[:room])
	c.truncated = c.truncated || room < len(data)
	return len(data), nil
}

// ReadFrom replaces that of the buffer, which has no bound and which io.Copy prefers to Write.
func (c *capped) ReadFrom(r io.Reader) (int64, error) { return io.Copy(struct{ io.Writer }{c}, r) }

const (
	listenTimeout = 10 * time.Second // for a tool's start, apart from Onload's control plane
	listenPoll    = 10 * time.Millisecond
	tcpListen     = "0A" // the state of a listening TCP socket in /proc/net/tcp
)

// awaitListening waits until a port is bound, by the kernel's tables: a tool counts connections.
func awaitListening(ctx context.Context, p *process, protocol v1alpha1.Protocol, port int, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(listenPoll)
	defer tick.Stop()
	for {
		if listening, err := isListening(protocol, port); err != nil || listening {
			return err
		}
		select {
		case <-p.done:
			return tool.Fail(v1alpha1.OutcomeToolFailed, "the tool's server %s before it listened: %s", p.ending(), p.lastWords())
		case <-ctx.Done():
			p.kill() // its output is complete only then
			return tool.Fail(v1alpha1.OutcomeToolFailed, "the tool's server does not listen on %s port %d after %s: %s", protocol, port, limit, cmp.Or(p.lastWords(), "it printed nothing"))
		case <-tick.C:
		}
	}
}

func isListening(protocol v1alpha1.Protocol, port int) (bool, error) {
	for _, suffix := range []string{"", "6"} {
		f, err := os.Open("/proc/self/net/" + strings.ToLower(string(protocol)) + suffix)
		if os.IsNotExist(err) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return false, fmt.Errorf("reading the sockets: %w", err)
		}
		found, err := hasListener(f, protocol, port)
		f.Close()
		if err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// hasListener looks for a port in a table in the format of /proc/net/tcp and /proc/net/udp.
func hasListener(table io.Reader, protocol v1alpha1.Protocol, port int) (bool, error) {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 {
			continue
		}
		_, hex, ok := strings.Cut(fields[1], ":")
		if !ok {
			continue // the heading
		}
		local, err := strconv.ParseUint(hex, 16, 16)
		if err != nil {
			return false, fmt.Errorf("reading the sockets: port %q: %w", hex, err)
		}
		if int(local) == port && (protocol == v1alpha1.ProtocolUDP || fields[3] == tcpListen) {
			return true, nil
		}
	}
	return false, lines.Err()
}

const (
	// strayLimit bounds how long the processes that a program left behind may take to end.
	strayLimit     = 5 * time.Second
	maxStraysNamed = 3
)

// started has the numbers of the agent's own processes that have not ended.
var started sync.Map

// adoptStrays makes the agent the parent of processes that outlive theirs: it sees all.
func adoptStrays() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// endStrays ends what a user's program left, adds its CPU time, and fails: nothing shows what it
// did. Only a server's own group, which is killed with it, may be left.
func (e *endpoint) endStrays(p *process) error {
	if !e.driver.Limits().Opaque {
		return nil
	}
	left, group := map[int]string{}, strconv.Itoa(p.cmd.Process.Pid)
	for begun := time.Now(); time.Since(begun) < strayLimit; time.Sleep(listenPoll) {
		all := strays()
		if len(all) == 0 {
			break
		}
		for pid, stat := range all {
			if stat.state != "Z" && !(e.Task.Role == v1alpha1.RoleServer && stat.group == group) {
				left[pid] = fmt.Sprintf("%s (%d)", stat.name, pid)
			}
			_ = unix.Kill(pid, unix.SIGKILL)
			var usage unix.Rusage
			if reaped, _ := unix.Wait4(pid, nil, unix.WNOHANG, &usage); reaped == pid {
				e.watch.add("tool.cpu-ns", usage.Utime.Nano()+usage.Stime.Nano())
			}
		}
	}
	if len(left) == 0 && len(strays()) == 0 {
		return nil
	}
	return tool.Fail(v1alpha1.OutcomeToolFailed, "the %s's program left processes running, which were killed: %s; let it stay in the foreground, and wait for its children: %s",
		e.Task.Role, text.List(slices.Sorted(maps.Values(left)), maxStraysNamed, ", "), p.lastWords())
}

type strayStat struct{ name, state, group string }

func strays() map[int]strayStat {
	h, all := host{root: "/"}, map[int]strayStat{}
	for _, dir := range h.glob("proc/[0-9]*") {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		stat := h.read(filepath.Join(dir, "stat"))
		name, after, _ := strings.Cut(stat, "(")
		end := strings.LastIndex(after, ")")
		if _, own := started.Load(pid); own || name == "" || end < 0 {
			continue
		}
		if fields := strings.Fields(after[end+1:]); len(fields) > 2 && fields[1] == strconv.Itoa(unix.Getpid()) {
			all[pid] = strayStat{name: line(after[:end], maxKey), state: fields[0], group: fields[2]}
		}
	}
	return all
}
