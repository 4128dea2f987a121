package agent

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// fakeTool drives helpers of this test binary. Without commands of its own it pings an echo server 1000 times.
type fakeTool struct {
	tool.Driver    // for the methods that the agent does not call
	server, client tool.Command
	deadline       time.Duration
	// says is how long the tool says that it measured; 0: it does not say.
	says time.Duration
	// unrecorded is the number of messages whose latency it does not know.
	unrecorded int64
}

const samples = 1000

// toolVariable is set only for the fake tool, not in the environment of its agent.
const toolVariable = "EF_TEST"

func (fakeTool) Limits() tool.Base                   { return tool.Base{RawFiles: true} }
func (fakeTool) Name() v1alpha1.Tool                 { return v1alpha1.ToolSockperf }
func (fakeTool) Validate(tool.Cell) error            { return nil }
func (fakeTool) Listens(tool.Cell) v1alpha1.Protocol { return v1alpha1.ProtocolTCP }

func (f fakeTool) Server(_ tool.Cell, t tool.Target) tool.Command {
	if f.server.Path != "" {
		return f.server
	}
	return withVariable(asTool("echo", net.JoinHostPort(t.Address, fmt.Sprint(t.Port))), v1alpha1.RoleServer)
}

func (f fakeTool) Client(_ tool.Cell, t tool.Target) tool.Command {
	if f.client.Path != "" {
		return f.client
	}
	return withVariable(asTool("ping", fmt.Sprintf("%s:%d", t.Address, t.Port), strconv.Itoa(samples), filepath.Join(t.Scratch, "raw")), v1alpha1.RoleClient)
}

func withVariable(c tool.Command, value string) tool.Command {
	c.Env = append(c.Env, toolVariable+"="+value)
	return c
}

func (fakeTool) Memory(tool.Cell) int64 { return 0 }
func (fakeTool) CPUs(tool.Cell) int     { return 1 }

func (f fakeTool) Deadline(tool.Cell) time.Duration {
	if f.deadline != 0 {
		return f.deadline
	}
	return time.Minute
}

func (f fakeTool) Parse(_ tool.Cell, out tool.Output, record, _ func(rtt, count int64)) (tool.Measurement, error) {
	if out.ExitCode != 0 {
		return tool.Measurement{}, tool.Failf("exit code %d", out.ExitCode)
	}
	if err := out.Clocks.CheckRun("ping", f.says, f.says, 0); err != nil {
		return tool.Measurement{}, err
	}
	if err := out.Clocks.CheckSteady("ping", out.Clocks.Monotonic); err != nil {
		return tool.Measurement{}, err
	}
	raw, err := out.OpenRaw("raw")
	if err != nil {
		return tool.Measurement{}, err
	}
	defer raw.Close()
	data, err := io.ReadAll(raw)
	if err != nil {
		return tool.Measurement{}, err
	}
	for line := range strings.Lines(string(data)) {
		rtt, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
		if err != nil {
			return tool.Measurement{}, err
		}
		record(rtt, 1)
	}
	m := tool.Measurement{Version: "ping 1", Unrecorded: f.unrecorded, Warnings: []string{strings.TrimSpace(string(out.Stdout))}}
	if out.Server != nil {
		m.Figures = []tool.Figure{{Name: "server", Value: string(out.Server)}}
	}
	return m, nil
}

// restore undoes, after the test, what an agent changes in its process; outside of tests, an agent has its process to
// itself.
func restore(t *testing.T) {
	t.Helper()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	procs, percent, limit := runtime.GOMAXPROCS(0), debug.SetGCPercent(100), debug.SetMemoryLimit(-1)
	t.Cleanup(func() {
		runtime.GOMAXPROCS(procs)
		debug.SetGCPercent(percent)
		debug.SetMemoryLimit(limit)
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		for _, thread := range threads {
			if id, err := strconv.Atoi(thread.Name()); err == nil {
				_ = unix.SchedSetaffinity(id, &before)
			}
		}
	})
}

// ending holds the log, the error and the termination message of an agent that has ended.
type ending struct {
	log         string
	err         error
	termination result.Termination
}

// run runs the agent of a role for its part of x-r1, over loopback.
func run(ctx context.Context, t *testing.T, role string, driver tool.Driver, changes ...func(*Agent)) ending {
	t.Helper()
	var log bytes.Buffer
	a := &Agent{
		Task: plan.Task{
			Run: "x-r1", Attempt: 2, Role: role, Tool: v1alpha1.ToolSockperf,
			Cells:    []tool.Cell{{Name: "tcp-64", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 64}}, {Name: "tcp-1", Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolTCP, MessageSize: 1}}},
			Deadline: time.Minute,
		},
		Node: "node-" + role, PodIP: "127.0.0.1", Key: "key",
		Tools: tool.NewRegistry(driver), Scratch: t.TempDir(), Log: &log,
		TerminationLog: filepath.Join(t.TempDir(), "termination-log"), Root: "/",
	}
	if role == v1alpha1.RoleClient {
		a.Task.ServerAddress = "127.0.0.1"
	}
	for _, change := range changes {
		change(a)
	}
	e := ending{err: a.Run(ctx)}
	e.log = log.String()
	data, err := os.ReadFile(a.TerminationLog)
	if err != nil {
		t.Errorf("the %s left no termination message: %v", role, err)
	} else if e.termination, err = result.ParseTermination(string(data)); err != nil {
		t.Errorf("the %s's termination message %q: %v", role, data, err)
	}
	return e
}

// exchange runs both ends until they end.
func exchange(t *testing.T, serverDriver, clientDriver tool.Driver) (server, client ending) {
	t.Helper()
	restore(t)
	done := make(chan ending, 1)
	go func() { done <- run(t.Context(), t, v1alpha1.RoleServer, serverDriver) }()
	client = run(t.Context(), t, v1alpha1.RoleClient, clientDriver)
	return <-done, client
}

func document(t *testing.T, e ending) result.Document {
	t.Helper()
	if e.err != nil {
		t.Fatalf("%v (%+v)", e.err, e.termination)
	}
	framed, err := result.ReadFrame(strings.NewReader(e.log))
	if err != nil {
		t.Fatalf("the log holds no result: %v\n%s", err, e.log)
	}
	return framed.Document
}

// The kubelet stops an agent whose result has been taken.
func TestLingers(t *testing.T) {
	restore(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	server := make(chan ending, 1)
	go func() { server <- run(ctx, t, v1alpha1.RoleServer, fakeTool{}) }()
	var log stopping
	client := run(ctx, t, v1alpha1.RoleClient, fakeTool{}, func(a *Agent) {
		a.Task.Linger = time.Hour
		log = stopping{Writer: a.Log, stop: stop}
		a.Log = &log
	})
	document(t, client)
	document(t, <-server)
	if ctx.Err() == nil {
		t.Error("the agent did not wait to be stopped")
	}
}

// stopping stops the agent a moment after its result was written.
type stopping struct {
	io.Writer
	stop func()
}

func (s *stopping) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("tailgate-log end")) {
		time.AfterFunc(50*time.Millisecond, s.stop)
	}
	return s.Writer.Write(p)
}

// A tool's server that prints its counts only when it is interrupted can pass them to the client's driver.
func TestServerIsInterrupted(t *testing.T) {
	tally := asTool("tally", toolAddress)
	tally.Interrupt = true
	_, c := exchange(t, fakeTool{server: tally}, fakeTool{})
	want := []tool.Figure{{Name: "server", Value: "# echo: ready\ninterrupted once\n"}}
	if diff := cmp.Diff(want, document(t, c).Cells[0].Figures); diff != "" {
		t.Errorf("what the server said (-want +got):\n%s", diff)
	}
	_, c = exchange(t, fakeTool{server: asTool("tally", toolAddress)}, fakeTool{})
	if got := document(t, c).Cells[0].Figures; got != nil {
		t.Errorf("a server that is not to be interrupted said %v", got)
	}
}

func TestWholeExchange(t *testing.T) {
	_, allowed, err := host{root: "/"}.cpusAllowed()
	if err != nil {
		t.Fatal(err)
	}
	s, c := exchange(t, fakeTool{}, fakeTool{})
	server, client := document(t, s), document(t, c)

	for role, d := range map[string]result.Document{v1alpha1.RoleServer: server, v1alpha1.RoleClient: client} {
		if d.Run != "x-r1" || d.Attempt != 2 || d.Role != role {
			t.Errorf("the %s's result is of %s of %s, attempt %d", role, d.Role, d.Run, d.Attempt)
		}
		e := d.Evidence
		if e.Node != "node-"+role || e.Interface != "lo" || e.Address != "127.0.0.1" || e.Kernel == "" || e.BootID == "" {
			t.Errorf("the %s's evidence: %+v", role, e)
		}
		if e.Facts["kernel.version"] == "" || len(e.Facts["tool.sha256"]) != 16 || e.Facts["env."+toolVariable] != role {
			t.Errorf("the %s's facts: %v", role, e.Facts)
		}
		if e.Deltas["elapsed-ms"] == 0 || e.Deltas["nic.rx-packets"] < samples {
			t.Errorf("the %s's deltas: %v", role, e.Deltas)
		}
		if e.VoluntarySwitches == 0 {
			t.Errorf("the %s's tools never switched context, though they wait for each other", role)
		}
	}
	// Only the first agent of this process sees the CPUs as they were, because each agent pins itself. In a pod, each agent
	// has its own process.
	if got := []string{server.Evidence.CPUsAllowed, client.Evidence.CPUsAllowed}; got[0] != allowed && got[1] != allowed {
		t.Errorf("CPUs allowed: %q, want %q, as before the agent pinned itself", got, allowed)
	}
	if len(server.Cells) != 0 {
		t.Errorf("the server measured %d cells", len(server.Cells))
	}
	var names []string
	for _, cell := range client.Cells {
		names = append(names, cell.Name)
		if cell.Histogram.Count != samples {
			t.Errorf("%s: %d samples, want %d", cell.Name, cell.Histogram.Count, samples)
		}
		if cell.Tool != "sockperf" || cell.ToolVersion != "ping 1" || len(cell.Command) != 4 || !cell.FinishedAt.After(cell.StartedAt) {
			t.Errorf("%s: %+v", cell.Name, cell)
		}
	}
	if diff := cmp.Diff([]string{"tcp-64", "tcp-1"}, names); diff != "" {
		t.Errorf("cells (-want +got):\n%s", diff)
	}
}

// A link that comes up after the server was started is up in its evidence.
func TestLinkComesUpBeforeTheClient(t *testing.T) {
	restore(t)
	_, allowed, err := host{root: "/"}.cpusAllowed()
	if err != nil {
		t.Fatal(err)
	}
	h := fakeRoot(t, map[string]string{"proc/self/status": "Cpus_allowed_list:\t" + allowed + "\n", "sys/class/net/lo/carrier": "0\n"})
	done := make(chan ending, 1)
	go func() {
		done <- run(t.Context(), t, v1alpha1.RoleServer, fakeTool{}, func(a *Agent) { a.Root = h.root })
	}()
	for began := time.Now(); time.Since(began) < patience; time.Sleep(10 * time.Millisecond) {
		if listening, err := isListening(v1alpha1.ProtocolTCP, plan.ControlPort); listening || err != nil {
			break
		}
	}
	write(t, h, map[string]string{"sys/class/net/lo/carrier": "1\n"})
	run(t.Context(), t, v1alpha1.RoleClient, fakeTool{})
	if got := document(t, <-done).Evidence.Facts["nic.carrier"]; got != "1" {
		t.Errorf("the carrier in the server's evidence is %q", got)
	}
}

func TestExchangesThatFail(t *testing.T) {
	missing := tool.Command{Path: "no-such-tool"}
	cases := map[string]struct {
		server, client fakeTool
		// serverReason and clientReason are the reasons of the two ends, and words are parts of the client's message.
		serverReason, clientReason string
		words                      []string
	}{
		"a client whose tool fails": {
			client:       fakeTool{client: asTool("fail", "it went wrong")},
			clientReason: v1alpha1.OutcomeToolFailed, serverReason: v1alpha1.OutcomePeerUnreachable,
			words: []string{"tcp-64", "exit code 3", "(server: # echo: ready)"},
		},
		"a client whose tool says that it ran for longer than it existed": {
			client:       fakeTool{says: time.Hour},
			clientReason: v1alpha1.OutcomeClockWrong, serverReason: v1alpha1.OutcomePeerUnreachable,
			words: []string{"tcp-64", "measured for 1h0m0s, but its process existed for"},
		},
		"a client whose tool hangs": {
			client:       fakeTool{client: asTool("sleep"), deadline: 50 * time.Millisecond},
			clientReason: v1alpha1.OutcomeToolTimeout, serverReason: v1alpha1.OutcomePeerUnreachable,
			words: []string{"tcp-64", "killed after 50ms"},
		},
		"a client whose image lacks the tool": {
			client:       fakeTool{client: missing},
			clientReason: v1alpha1.OutcomeToolMissing, serverReason: v1alpha1.OutcomePeerUnreachable,
			words: []string{"no-such-tool", "bench-image"},
		},
		"a server whose tool fails": {
			server:       fakeTool{server: asTool("fail", "address already in use")},
			clientReason: v1alpha1.OutcomeToolFailed, serverReason: v1alpha1.OutcomePeerUnreachable,
			words: []string{"server:", "exit code 3", "address already in use"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			server, client := exchange(t, c.server, c.client)
			for role, end := range map[string]struct {
				ending
				want string
			}{v1alpha1.RoleServer: {server, c.serverReason}, v1alpha1.RoleClient: {client, c.clientReason}} {
				if end.err == nil || end.termination.Reason != end.want {
					t.Errorf("the %s ended with %v, %+v; want %s", role, end.err, end.termination, end.want)
				}
				if strings.Contains(end.log, "tailgate-log begin") {
					t.Errorf("the %s left a result all the same", role)
				}
			}
			for _, w := range c.words {
				if !strings.Contains(client.termination.Message, w) {
					t.Errorf("the client's message %q does not say %q", client.termination.Message, w)
				}
			}
		})
	}
}

func TestEndsWithoutAPeer(t *testing.T) {
	cases := map[string]struct {
		role   string
		driver fakeTool
		change func(*Agent)
		ended  bool
		want   string
		words  []string
	}{
		"a tool that this image does not drive": {
			role: v1alpha1.RoleClient, change: func(a *Agent) { a.Task.Tool = "netperf" },
			want: v1alpha1.OutcomeToolMissing, words: []string{"netperf"},
		},
		"a server whose image lacks the tool": {
			role: v1alpha1.RoleServer, driver: fakeTool{server: tool.Command{Path: "no-such-tool"}},
			want: v1alpha1.OutcomeToolMissing, words: []string{"no-such-tool"},
		},
		"a server with an invalid address": {
			role: v1alpha1.RoleServer, change: func(a *Agent) { a.PodIP = "" }, want: v1alpha1.OutcomeWrongNetwork,
		},
		"a server with an address of no interface": {
			role: v1alpha1.RoleServer, change: func(a *Agent) { a.PodIP = "192.0.2.1" },
			want: v1alpha1.OutcomeWrongNetwork, words: []string{"192.0.2.1"},
		},
		"a server whose network was not attached": {
			role: v1alpha1.RoleServer, change: func(a *Agent) { a.Task.Interface = "net-missing" },
			want: v1alpha1.OutcomeWrongNetwork, words: []string{"net-missing"},
		},
		"a server that has to end before its client comes": {
			role: v1alpha1.RoleServer, ended: true, want: v1alpha1.OutcomePodLost, words: []string{"stopped the pod"},
		},
		"a client whose time is over before its server answers": {
			role: v1alpha1.RoleClient, change: func(a *Agent) { a.Task.Deadline = 50 * time.Millisecond },
			want: v1alpha1.OutcomePeerUnreachable, words: []string{"127.0.0.1"},
		},
		"a client whose link is down": {
			role: v1alpha1.RoleClient, change: func(a *Agent) {
				a.Task.Deadline, a.Task.Interface = 50*time.Millisecond, "lo"
				status, err := os.ReadFile("/proc/self/status")
				if err != nil {
					t.Fatal(err)
				}
				a.Root = fakeRoot(t, map[string]string{"proc/self/status": string(status), "sys/class/net/lo/carrier": "0\n"}).root
			},
			want: v1alpha1.OutcomePeerUnreachable, words: []string{"; the link of lo is down"},
		},
		"an agent that cannot tell its CPUs": {
			role: v1alpha1.RoleServer, change: func(a *Agent) { a.Root = t.TempDir() },
			want: v1alpha1.OutcomeAgentFailed, words: []string{"CPU"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			restore(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.ended {
				cancel()
			}
			var changes []func(*Agent)
			if c.change != nil {
				changes = append(changes, c.change)
			}
			e := run(ctx, t, c.role, c.driver, changes...)
			if e.err == nil || e.termination.Reason != c.want {
				t.Errorf("ended with %v, %+v; want %s", e.err, e.termination, c.want)
			}
			for _, w := range c.words {
				if !strings.Contains(e.termination.Message, w) {
					t.Errorf("message %q does not say %q", e.termination.Message, w)
				}
			}
		})
	}
}

// An agent whose result is too large reports that itself: it leaves no frame for a controller to reject.
func TestResultTooLarge(t *testing.T) {
	restore(t)
	noise := make([]byte, result.Share(v1alpha1.RoleClient, false))
	rand.Read(noise)
	done := make(chan ending, 1)
	go func() { done <- run(t.Context(), t, v1alpha1.RoleServer, fakeTool{}) }()
	client := run(t.Context(), t, v1alpha1.RoleClient, fakeTool{}, func(a *Agent) { a.Task.Variant = base64.StdEncoding.EncodeToString(noise) })
	if client.termination.Reason != v1alpha1.OutcomeResultTooLarge || !strings.Contains(client.termination.Message, "measure fewer message sizes") {
		t.Errorf("the client ended with %+v, want %s", client.termination, v1alpha1.OutcomeResultTooLarge)
	}
	if strings.Contains(client.log, "tailgate-log") {
		t.Error("the client left a result all the same")
	}
	document(t, <-done)
}

// A client must not measure over an interface other than the requested one. TestNamedInterface covers interfaces that
// exist.
func TestMissingInterface(t *testing.T) {
	restore(t)
	client := run(t.Context(), t, v1alpha1.RoleClient, fakeTool{}, func(a *Agent) { a.Task.Interface = "net1" })
	wantOutcome(t, client.err, v1alpha1.OutcomeWrongNetwork, "no interface net1, only lo")
}
