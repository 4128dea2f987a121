package pinger_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tailgate-dev/tailgate/test/localcluster/images"
	"github.com/tailgate-dev/tailgate/test/pinger"
)

// The programs under test: as shipped, with the sanitizers, and the unit tests.
var program, sanitized, unitTest string

// With PINGER_ARCH=arm64 the tests run on the program for that architecture, in QEMU's emulator. The kernel's clock source that
// it sees is the architectural counter, so it uses that. The sanitizers cannot run there.
var (
	emulated = os.Getenv("PINGER_ARCH") == "arm64"
	emulator []string
	cross    = images.Options{Root: "../..", Log: os.Stderr, Arch: "arm64"}
)

// skipUnknown skips a test that the emulator cannot run.
func skipUnknown(t *testing.T, protocol string) {
	t.Helper()
	if emulated && protocol == "multicast" {
		t.Skip("QEMU's emulator does not pass on the socket option IP_MULTICAST_IF")
	}
}

// command returns a command that runs one of the programs.
func command(path string, args ...string) *exec.Cmd {
	argv := append(append(slices.Clone(emulator), path), args...)
	return exec.Command(argv[0], argv[1:]...)
}

// emulate compiles the programs for arm64, and creates the root folder that the emulator shows them.
func emulate(dir string) error {
	toolchain, err := images.Toolchain(context.Background(), cross)
	if err != nil {
		return err
	}
	emulator = []string{filepath.Join(toolchain, "usr/bin/qemu-aarch64-static"), "-L", filepath.Join(dir, "root")}
	sanitized, unitTest = program, program+".unit_test"
	clocks := filepath.Join(dir, "root/sys/devices/system/clocksource/clocksource0")
	return errors.Join(
		os.MkdirAll(clocks, 0o755),
		os.WriteFile(filepath.Join(clocks, "current_clocksource"), []byte("arch_sys_counter\n"), 0o644),
		os.Symlink(filepath.Join(toolchain, "usr/aarch64-linux-gnu/lib"), filepath.Join(dir, "root/lib")),
		compile(program),
		compile(unitTest),
	)
}

// compile builds one of the Makefile's programs, for this machine or for the emulated one.
func compile(path string, variables ...string) error {
	if emulated {
		return images.Compile(context.Background(), cross, path)
	}
	return pinger.Build(context.Background(), "../..", path, variables...)
}

const key = "000102030405060708090a0b0c0d0e0f"

func TestMain(m *testing.M) {
	// The workers of a fuzz test need none of these programs.
	flag.Parse()
	if worker := flag.Lookup("test.fuzzworker"); worker != nil && worker.Value.String() == "true" {
		os.Exit(m.Run())
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "pinger-test-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		program, sanitized = filepath.Join(dir, pinger.Program), filepath.Join(dir, "sanitized")
		unitTest = sanitized + ".unit_test"
		if emulated {
			if err := emulate(dir); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
			return m.Run()
		}
		for path, variables := range map[string][]string{
			program:   nil,
			sanitized: {"SANITIZE=address,undefined", "CFLAGS=-O1"},
			unitTest:  {"SANITIZE=address,undefined", "CFLAGS=-O1", "PROGRAM=" + sanitized},
		} {
			if err := compile(path, variables...); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		return m.Run()
	}())
}

// result is the part of a client's output that the tests check.
type result struct {
	Cells []cellResult
	Clock struct{ Source string }
	Scan  struct {
		Client, Server struct{ Interruptions histogram }
	}
}

type cellResult struct {
	Protocol, Loop                                            string
	Size                                                      int
	Spin                                                      bool
	Sent, Received, Lost, Late, Duplicates, Reordered, Strays int64
	Elapsed                                                   int64 `json:"elapsed_ns"`
	RTT                                                       histogram
	Intended                                                  histogram `json:"rtt_from_intended"`
	Idle, Lateness                                            histogram
	Attribution                                               attribution
	Client, Server                                            endpoint
	Intervals                                                 struct{ Log [][6]int64 }
}

type histogram struct {
	Count   int64
	Over    int64   `json:"over_range"`
	Min     int64   `json:"min_ns"`
	Max     int64   `json:"max_ns"`
	Sum     float64 `json:"sum_ns"`
	Buckets [][2]int64
}

// quantile returns the lower edge of the quantile's bucket.
func (h histogram) quantile(q float64) time.Duration {
	var seen int64
	for _, b := range h.Buckets {
		if seen += b[1]; float64(seen) >= q*float64(h.Count) {
			return time.Duration(b[0])
		}
	}
	return time.Duration(h.Max)
}

type attribution struct {
	Beyond, Examined, Client, Server, Both, Neither, Undetermined int64
	Excess                                                        float64 `json:"excessNs"`
	ClientExcess                                                  float64 `json:"clientExcessNs"`
	ServerExcess                                                  float64 `json:"serverExcessNs"`
	Slowest                                                       []outlier
}

// outlier is one of the slowest samples, with the number of samples that it represents. ServerGap is nil if it is not known.
type outlier struct {
	At        int64 `json:"atNs"`
	RTT       int64 `json:"rttNs"`
	Samples   int64
	Where     string
	ClientGap int64  `json:"clientGapNs"`
	ServerGap *int64 `json:"serverGapNs"`
}

type endpoint struct {
	Accelerated, Clock string
	Served             int64
	Voluntary          *int64 `json:"voluntary_switches"`
}

// patience bounds operations that are immediate on an idle machine.
const patience = time.Minute

// process is a running pinger.
type process struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
	done           chan struct{}
}

func start(t *testing.T, path string, env []string, args ...string) *process {
	t.Helper()
	p := &process{Cmd: command(path, args...), done: make(chan struct{})}
	p.Env = append(os.Environ(), "TAILGATE_PINGER_KEY="+key)
	for _, v := range env {
		if emulated && strings.HasPrefix(v, "LD_PRELOAD=") {
			v = "QEMU_SET_ENV=" + v // for the program, not for the emulator
		}
		p.Env = append(p.Env, v)
	}
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	p.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	preferred(p.Process.Pid)
	go func() {
		_ = p.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.done
	})
	return p
}

// preferred gives a process most of its CPU, as far as that is permitted: the machine's other work interrupts the two ends just
// as the tests do. The kernel may weigh a whole session (autogroup) instead of its processes.
func preferred(pid int) {
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, pid, -10)
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte("-10"), 0)
}

// quietly repeats a test whose numbers are valid only while the two ends are not interrupted for long: on a machine with other
// work, such as building the next package's test, it makes ten tries, with increasing time between them. A defect of the program
// fails all of them.
func quietly(t *testing.T, test func(t *testing.T, try int) error) {
	t.Helper()
	for try := 1; ; try++ {
		err := test(t, try)
		if err == nil {
			return
		}
		if try == 10 {
			t.Fatal(err)
		}
		t.Logf("once more: %v", err)
		time.Sleep(time.Duration(try) * time.Second)
	}
}

// code waits for the end and returns the exit code.
func (p *process) code(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
		return p.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("%v does not end; stderr: %s", p.Args, p.stderr.String())
		return -1
	}
}

// freeze stops a process for a while.
func (p *process) freeze(t *testing.T, d time.Duration) {
	t.Helper()
	for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGCONT} {
		if err := p.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		if s == syscall.SIGSTOP {
			time.Sleep(d)
		}
	}
}

// freePort returns a port of 127.0.0.1 that is free for TCP and for UDP, and of 127.0.0.2 that is free for TCP. It is below the ports that Linux assigns to sockets
// without a requested port (from 32768 on), so that no other process gets it before the server does, and above those of the agent's tests.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(23_000 + rand.IntN(9_000))
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			continue
		}
		c, err := net.ListenPacket("udp", l.Addr().String())
		l.Close()
		if err != nil {
			continue
		}
		c.Close()
		// The relay of an earlier try listens until its test ends.
		if l, err = net.Listen("tcp", "127.0.0.2:"+port); err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("there is no free port")
	return ""
}

// serve starts a server and waits until it listens. If another process takes its port first, it tries another port.
func serve(t *testing.T, path string, env []string, args ...string) (server *process, port string) {
	t.Helper()
	for range 3 {
		port = freePort(t)
		server = start(t, path, env, append([]string{"server", "--bind", "127.0.0.1", "--port", port, "--deadline", "120"}, args...)...)
		if server.listens(port) {
			return server, port
		}
	}
	t.Fatalf("the server does not listen: %s", server.stderr.String())
	return nil, ""
}

// listens waits until a server listens on its port, and reports whether it does.
func (p *process) listens(port string) bool {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		select {
		case <-p.done:
			return false
		case <-time.After(10 * time.Millisecond):
		}
		// A connection that sends nothing is a probe: the server must survive it.
		if c, err := net.Dial("tcp", "127.0.0.1:"+port); err == nil {
			c.Close()
			return true
		}
	}
	return false
}

func clientArgs(port string, args ...string) []string {
	return append([]string{"client", "--server", "127.0.0.1", "--port", port, "--deadline", "50"}, args...)
}

// wantFailure checks that a client failed as expected: with a code and a line, and no output that resembles a result.
func wantFailure(t *testing.T, p *process, code int, words ...string) {
	t.Helper()
	if got := p.code(t); got != code {
		t.Errorf("exit code %d, want %d: %s", got, code, p.stderr.String())
	}
	if p.stdout.Len() > 0 {
		t.Errorf("it printed %.200q all the same", p.stdout.String())
	}
	said := p.stderr.String()
	if !strings.HasPrefix(said, "tailgate-pinger: ") || strings.Count(said, "\n") != 1 || !strings.HasSuffix(said, "\n") {
		t.Errorf("stderr is not one line: %q", said)
	}
	for _, w := range words {
		if !strings.Contains(said, w) {
			t.Errorf("%q does not say %q", said, w)
		}
	}
}

// wantResult checks the conditions that apply to every result, and returns it.
func wantResult(t *testing.T, p *process, cells int) result {
	t.Helper()
	if code := p.code(t); code != 0 || p.stderr.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, p.stderr.String())
	}
	var r result
	if err := json.Unmarshal(p.stdout.Bytes(), &r); err != nil {
		t.Fatalf("the result cannot be read: %v", err)
	}
	if len(r.Cells) != cells {
		t.Fatalf("%d cells, want %d", len(r.Cells), cells)
	}
	for i, c := range r.Cells {
		name := fmt.Sprintf("cell %d (%s, %d bytes, %s loop)", i, c.Protocol, c.Size, c.Loop)
		if c.Sent != c.Received+c.Lost || c.Received == 0 || c.RTT.Count+c.RTT.Over != c.Received {
			t.Errorf("%s: %d sent, %d answered, %d lost, %d measured", name, c.Sent, c.Received, c.Lost, c.RTT.Count)
		}
		var counted int64
		for _, b := range c.RTT.Buckets {
			counted += b[1]
		}
		if counted != c.RTT.Count || c.RTT.Min > c.RTT.Max || c.RTT.Sum < float64(c.RTT.Min)*float64(c.RTT.Count) || c.RTT.Sum > float64(c.RTT.Max)*float64(c.RTT.Count) {
			t.Errorf("%s: %d in buckets of %d, %d to %d ns, sum %.0f", name, counted, c.RTT.Count, c.RTT.Min, c.RTT.Max, c.RTT.Sum)
		}
		var logged, lost int64
		for _, in := range c.Intervals.Log {
			logged, lost = logged+in[0], lost+in[5]
		}
		if logged != c.Received || lost != c.Lost || len(c.Intervals.Log) > 128 {
			t.Errorf("%s: the log's %d intervals have %d of %d, and %d of %d lost", name, len(c.Intervals.Log), logged, c.Received, lost, c.Lost)
		}
		if c.Loop == "open" && (c.Intended.Count+c.Intended.Over != c.Received || c.Intended.Sum < c.RTT.Sum*0.999) {
			t.Errorf("%s: %d measured from the intended time, %.0f ns, %.0f ns from the actual", name, c.Intended.Count, c.Intended.Sum, c.RTT.Sum)
		}
		// In a closed loop all time is part of a round trip, of a wait without success, or between two of these.
		if accounted := c.RTT.Sum + c.Idle.Sum; c.Loop == "closed" && c.Lost == 0 && (accounted < 0.99*float64(c.Elapsed) || accounted > 1.01*float64(c.Elapsed)) {
			t.Errorf("%s: of %d ns only %.0f are accounted for", name, c.Elapsed, accounted)
		}
		a := c.Attribution
		if a.Client+a.Server+a.Both+a.Neither+a.Undetermined != a.Examined || a.Examined > a.Beyond {
			t.Errorf("%s: the parts are not the whole: %+v", name, a)
		}
		largest := c.RTT.Max
		if c.Loop == "open" {
			largest = c.Intended.Max
		}
		var stoodFor int64
		for _, o := range a.Slowest {
			stoodFor += o.Samples
		}
		n := len(a.Slowest)
		if n > 64 || stoodFor > a.Examined || n < 64 && stoodFor < a.Examined || n > 0 && a.Slowest[0].RTT != largest {
			t.Errorf("%s: %d stand for %d of %d, the largest sample is of %d ns: %+v", name, n, stoodFor, a.Examined, largest, a.Slowest)
		}
		for k, o := range a.Slowest {
			if o.At < 0 || o.At > c.Elapsed || k > 0 && o.RTT > a.Slowest[k-1].RTT {
				t.Errorf("%s: number %d of the slowest is %+v", name, k, o)
			}
		}
	}
	return r
}

// during waits until a client measures its first cell, or has ended: it waits until the client has a socket for the messages
// besides the control connection, and half a second more for the remaining preparations.
func (p *process) during(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(patience); p.sockets() < 2; time.Sleep(10 * time.Millisecond) {
		select {
		case <-p.done:
			return
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v does not begin to measure; stderr: %s", p.Args, p.stderr.String())
		}
	}
	time.Sleep(500 * time.Millisecond)
}

// sockets returns the number of sockets of a process.
func (p *process) sockets() int {
	n := 0
	descriptors, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.Process.Pid))
	for _, d := range descriptors {
		// The link of a descriptor that was closed meanwhile cannot be read.
		if target, err := os.Readlink(d); err == nil && strings.HasPrefix(target, "socket:") {
			n++
		}
	}
	return n
}
