package agent

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

const (
	// settled is how long both agents of TestSilence do nothing before the counting starts, and counted is how long that
	// takes.
	settled = time.Second
	counted = 8 * time.Second
	// mostSwitches and mostCalls are what both agents together may need during that time. They need none; a check once a
	// second, or a timer that fires each second, needs more.
	mostSwitches = 6
	mostCalls    = 12
)

// TestSilence counts, from outside, what two agents do while a cell is measured: each is a process of its own, as in its
// pod, and the tools only sleep. Context switches come from /proc; system calls are counted by perf events, and that part
// is skipped if these are not available.
func TestSilence(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes 10 s")
	}
	agents, ended := map[string]*exec.Cmd{}, map[string]chan error{}
	dirs := map[string]string{}
	for _, role := range []string{v1alpha1.RoleServer, v1alpha1.RoleClient} {
		dirs[role] = t.TempDir()
		var output bytes.Buffer
		c := exec.Command(os.Args[0], role, dirs[role])
		c.Env = append(os.Environ(), helperVariable+"=agent")
		c.Stdout, c.Stderr = &output, &output
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		agents[role], ended[role] = c, make(chan error, 1)
		go func() {
			err := c.Wait()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, output.String())
			}
			ended[role] <- err
			close(ended[role])
		}()
		t.Cleanup(func() {
			_ = c.Process.Signal(syscall.SIGTERM)
			if err := <-ended[role]; err != nil && t.Failed() {
				t.Logf("the %s's agent ended with %v", role, err)
			}
		})
	}
	switchesOfAll := func() map[string]int64 {
		all := map[string]int64{}
		for role, a := range agents {
			all[role] = switchesOf(t, a.Process.Pid)
		}
		return all
	}
	cell := filepath.Join(dirs[v1alpha1.RoleClient], "tcp-1")
	for deadline := time.Now().Add(patience); ; {
		_, err := os.Stat(filepath.Join(cell, beganFile))
		before := switchesOfAll()
		time.Sleep(settled)
		if err == nil && maps.Equal(before, switchesOfAll()) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the cell does not begin (%v), or the agents do not fall silent", err)
		}
	}

	var threads []int
	for _, a := range agents {
		threads = append(threads, threadsOf(t, a.Process.Pid)...)
	}
	calls, notCounted := countCalls(t, threads)
	if notCounted == nil {
		checkCounter(t)
	}
	before := switchesOfAll()
	time.Sleep(counted)
	var switches int64
	for role, after := range switchesOfAll() {
		n := after - before[role]
		t.Logf("context switches of the %s's agent in %s of a cell: %d", role, counted, n)
		switches += n
	}
	if switches > mostSwitches {
		t.Errorf("the agents switched context %d times within %s, want at most %d", switches, counted, mostSwitches)
	}
	t.Run("system calls", func(t *testing.T) {
		if notCounted != nil {
			t.Skipf("context switches were counted, system calls were not: %v", notCounted)
		}
		n, err := calls()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("system calls of both agents in %s of a cell, by perf events on raw_syscalls:sys_enter: %d", counted, n)
		if n > mostCalls {
			t.Errorf("the agents called the system %d times within %s, want at most %d", n, counted, mostCalls)
		}
	})
	for role := range agents {
		select {
		case <-ended[role]:
			t.Errorf("the %s's agent ended before all was counted", role)
		default:
		}
	}
	if err := os.WriteFile(filepath.Join(cell, enoughFile), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for role := range agents {
		if err := <-ended[role]; err != nil {
			t.Errorf("the %s's agent ended with %v", role, err)
		}
	}
}

// beganFile is the file that the tool of TestSilence writes when it begins, and enoughFile the file that makes it end.
const beganFile, enoughFile = "began", "enough"

// agentProcess runs one end of TestSilence, wired as in cmd/agent.
func agentProcess(role, dir string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	a := &Agent{
		Task: plan.Task{
			Run: "x-r1", Attempt: 1, Role: role, Tool: v1alpha1.ToolSockperf,
			Cells:    []tool.Cell{{Name: "tcp-1", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 1}}},
			Deadline: 5 * time.Minute, ServerAddress: "127.0.0.1",
		},
		PodIP: "127.0.0.1", Key: "key", Scratch: dir, Log: os.Stdout, Root: "/",
		TerminationLog: filepath.Join(dir, "termination-log"),
		Tools:          tool.NewRegistry(fakeTool{client: asTool("nap"), deadline: 5 * time.Minute}),
	}
	return a.Run(ctx)
}

// nap is a tool that has a socket, as all tools do, and sleeps.
func nap() error {
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer socket.Close()
	if err := os.WriteFile(beganFile, nil, 0o600); err != nil {
		return err
	}
	for _, err := os.Stat(enoughFile); err != nil; _, err = os.Stat(enoughFile) {
		time.Sleep(10 * time.Millisecond)
	}
	return os.WriteFile("raw", []byte("1000\n"), 0o600)
}

func threadsOf(t *testing.T, pid int) []int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	var all []int
	for _, e := range entries {
		id, err := strconv.Atoi(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, id)
	}
	return all
}

// switchesOf returns the context switches so far of all threads of a process, voluntary or not.
func switchesOf(t *testing.T, pid int) int64 {
	t.Helper()
	var sum int64
	for _, thread := range threadsOf(t, pid) {
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/status", pid, thread))
		if err != nil {
			t.Fatal(err)
		}
		lines := 0
		for line := range strings.Lines(string(status)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.HasSuffix(name, "voluntary_ctxt_switches") {
				n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				sum += n
				lines++
			}
		}
		if lines != 2 {
			t.Fatalf("%d lines of context switches, want 2:\n%s", lines, status)
		}
	}
	return sum
}

// countCalls counts the system calls of threads, and of the threads that they make, from now on. The error says why it
// cannot: it needs the kernel's tracepoints and the right to read them.
func countCalls(t *testing.T, threads []int) (sum func() (uint64, error), err error) {
	t.Helper()
	event, err := sysEnter(t)
	if err != nil {
		return nil, err
	}
	var counters []int
	for _, thread := range threads {
		fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
			Type: unix.PERF_TYPE_TRACEPOINT, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})), Config: event,
			Bits: unix.PerfBitInherit,
		}, thread, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			return nil, fmt.Errorf("perf_event_open: %w", err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		counters = append(counters, fd)
	}
	return func() (uint64, error) {
		var all uint64
		for _, fd := range counters {
			var n [8]byte
			if _, err := unix.Read(fd, n[:]); err != nil {
				return 0, fmt.Errorf("reading a perf event: %w", err)
			}
			all += binary.NativeEndian.Uint64(n[:])
		}
		return all, nil
	}, nil
}

// checkCounter counts a known number of system calls: a counter that counts nothing would report every process as silent.
func checkCounter(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	sum, err := countCalls(t, []int{unix.Gettid()})
	if err != nil {
		t.Fatal(err)
	}
	const known = 100
	for range known {
		unix.Getppid()
	}
	if n, err := sum(); err != nil || n < known {
		t.Fatalf("of %d system calls %d were counted, with error %v", known, n, err)
	}
}

// sysEnter returns the number of the tracepoint that each system call passes.
func sysEnter(t *testing.T) (uint64, error) {
	t.Helper()
	const file = "events/raw_syscalls/sys_enter/id"
	data, err := os.ReadFile("/sys/kernel/tracing/" + file)
	if errors.Is(err, os.ErrNotExist) {
		// Containers have no tracefs, though root may mount it.
		dir := t.TempDir()
		if err := unix.Mount("tracefs", dir, "tracefs", unix.MS_RDONLY, ""); err != nil {
			return 0, fmt.Errorf("mounting tracefs: %w", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
		data, err = os.ReadFile(filepath.Join(dir, file))
	}
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
}
