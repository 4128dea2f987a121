// Package agent is the program in both pods of a run: it pins and runs the tools, gathers evidence,
// and writes the result to its log. control.go describes the protocol between the agents. While a
// cell is measured, both collect no garbage, poll nothing and write nothing; only a capture empties
// its ring.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

type Agent struct {
	Task           plan.Task
	Node, PodIP    string
	Key            string // the secret that only the pods of the benchmark have
	Tools          tool.Registry
	Scratch        string
	Log            io.Writer // gets the framed result, and a line for each event between cells
	TerminationLog string    // the file that becomes the container's termination message
	Root           string    // "/", except in tests
}

// Run performs the task. It always writes a termination message, and returns the error, if any.
func (a *Agent) Run(ctx context.Context) error {
	work, cancel := context.WithTimeout(ctx, a.Task.Deadline)
	defer cancel()

	document, err := a.measure(work)
	if err == nil {
		err = a.handOver(a.Log, document)
	}
	t := result.Termination{}
	if err != nil {
		t = result.Termination{Reason: reasonOf(err, v1alpha1.OutcomeAgentFailed), Message: err.Error()}
		if errors.Is(work.Err(), context.DeadlineExceeded) {
			t.Reason = reasonOf(err, v1alpha1.OutcomeDeadlineExceeded)
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			// The cancellation caused any other error.
			t = result.Termination{Reason: v1alpha1.OutcomePodLost, Message: "the kubelet stopped the pod before the end of the run"}
		}
	}
	if err := errors.Join(err, t.WriteFile(a.TerminationLog)); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(a.Task.Linger):
	}
	return nil
}

func reasonOf(err error, otherwise string) string {
	if f, ok := errors.AsType[*tool.Failure](err); ok {
		return f.Reason
	}
	return otherwise
}

// handOver writes the result to a log, within its share of the ConfigMap that will store it.
func (a *Agent) handOver(log io.Writer, d result.Document) error {
	d, err := result.Fit(d, result.Share(d.Role, a.Task.Capture))
	if errors.Is(err, result.ErrTooLarge) {
		return tool.Fail(v1alpha1.OutcomeResultTooLarge, "%v; measure fewer message sizes or rates in one benchmark", err)
	}
	if err != nil {
		return err
	}
	return result.WriteFrame(log, d)
}

func (a *Agent) measure(ctx context.Context) (result.Document, error) {
	driver, err := a.Tools.Get(a.Task.Tool)
	if err != nil {
		return result.Document{}, tool.Fail(v1alpha1.OutcomeToolMissing, "the agent does not know the tool %s: do the bench image and the operator have the same version?", a.Task.Tool)
	}
	// A garbage collection in the middle of a cell would show in the tail of its latencies.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(256 << 20)

	environ := environment(os.Environ(), a.Task)
	h := host{root: a.Root, parent: a.Task.Parent, borrowed: a.Task.Borrowed}
	cpus, allowed, err := h.cpusAllowed()
	if err != nil {
		return result.Document{}, err
	}
	iface := chosenInterface(a.Task.Interface, a.PodIP).Name
	_, device, _ := h.device(iface, allocatedDevices(environ))
	cpus = h.order(cpus, h.deviceNode(iface, device))
	toolCPUs := 1
	for _, c := range a.Task.Cells {
		toolCPUs = max(toolCPUs, tool.CPUsOf(driver, c, a.Task.Role))
	}
	watched := cpus[:1]
	if driver.Limits().Opaque {
		watched = cpus[:min(toolCPUs, len(cpus))]
		if err := adoptStrays(); err != nil {
			return result.Document{}, fmt.Errorf("adopting processes: %w", err)
		}
	}
	e := endpoint{
		Agent: a, driver: driver, environ: environ, cpus: cpus, cpusAllowed: allowed, watched: watched,
		settings: map[string]string{}, measuringCPU: cpus[0], agentCPU: h.agentCPU(cpus, toolCPUs),
	}
	if err := pinSelf(e.agentCPU); err != nil {
		return result.Document{}, err
	}
	work := e.drive
	if a.Task.Role == v1alpha1.RoleServer {
		work = e.serve
	}
	document, err := work(ctx)
	if err != nil && e.interfaceGone() {
		err = tool.Fail(v1alpha1.OutcomeInterfaceLost, "interface %s disappeared during the run: was its driver unbound, or were the VFs of its PF removed?", e.iface.Name)
	}
	return document, err
}

type endpoint struct {
	*Agent
	driver                 tool.Driver
	environ                []string
	cpus                   []int  // the agent and the tool may use them, in the order of host.order
	cpusAllowed            string // the CPUs that the agent might use before it pinned itself
	watched                []int  // events on them count: the measuring CPU, or all of a user's program
	measuringCPU, agentCPU int
	// command is the last process's; voluntary and involuntary count switches of ended ones.
	watch                  *watch
	command                tool.Command
	voluntary, involuntary int64
	// settings are those that Onload's library printed, stack is of the tool's server.
	paths    []result.Path
	settings map[string]string
	stack    facts
	iface    net.Interface
	captured []result.Captured
}

func (e *endpoint) logf(format string, args ...any) {
	fmt.Fprintf(e.Log, format+"\n", args...)
}

func (e *endpoint) document(address string) result.Document {
	evidence := (host{root: e.Root, parent: e.Task.Parent, borrowed: e.Task.Borrowed}).gather(e.measuringCPU, e.cpus, e.iface, e.environ)
	e.watch = host{root: e.Root}.watch(e.iface.Name, e.watched...)
	evidence.Node, evidence.Address = e.Node, address
	evidence.CPUsAllowed, evidence.AgentCPU = e.cpusAllowed, int32(e.agentCPU)
	return result.Document{
		Version: result.Version, Run: e.Task.Run, Variant: e.Task.Variant, Attempt: e.Task.Attempt, Role: e.Task.Role, Evidence: evidence,
	}
}

// scratch makes an empty folder for a tool that writes files; its path is empty for others.
func (e *endpoint) scratch(name string) (string, error) {
	if !e.driver.Limits().RawFiles {
		return "", nil
	}
	dir := filepath.Join(e.Scratch, name)
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return "", fmt.Errorf("making the scratch folder: %w", err)
	}
	return dir, nil
}

func (e *endpoint) start(c tool.Command, cpus []int, dir string, l *link) (*process, error) {
	e.command = c
	before, mhz := l.traffic(), speed(e.measuringCPU)
	e.watch.begin()
	p, err := start(c, cpus, dir, e.environ)
	if err != nil {
		return nil, err
	}
	p.linkBefore, p.path.MHzBefore = before, mhz
	return p, nil
}

func (e *endpoint) account(p *process, cell string, l *link) {
	grown := e.watch.end()
	p.path.MHzAfter = speed(e.measuringCPU)
	e.recordPath(p, cell, grown, l)
	e.watch.add("tool.run-delay-ns", p.runDelay)
	if usage, ok := p.cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		e.watch.add("tool.cpu-ns", usage.Utime.Nano()+usage.Stime.Nano())
		e.watch.add("tool.major-faults", usage.Majflt)
		e.voluntary += usage.Nvcsw
		e.involuntary += usage.Nivcsw
	}
}

func (e *endpoint) conclude(evidence *result.Evidence) {
	evidence.VoluntarySwitches, evidence.InvoluntarySwitches = e.voluntary, e.involuntary
	e.watch.settle()
	evidence.Deltas, evidence.Paths = e.watch.deltas(), e.paths
	f := facts(evidence.Facts)
	environmentFacts(f, e.command.Env)
	f.set("onload.preload-file", host{root: e.Root}.preloadFile())
	for name, value := range e.settings {
		f.set("onload.setting."+name, value)
	}
	maps.Copy(f, e.stack)
	f.set("tool.sha256", programDigest(e.command.Path))
	evidence.Facts = f.bounded(maxFacts)
}

// pinSelf moves every thread of the agent to one CPU, which later threads inherit.
func pinSelf(cpu int) error {
	runtime.GOMAXPROCS(1)
	var set unix.CPUSet
	set.Set(cpu)
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return fmt.Errorf("listing the agent's threads: %w", err)
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return fmt.Errorf("listing the agent's threads: %w", err)
		}
		// The thread may have ended since it was listed.
		if err := unix.SchedSetaffinity(id, &set); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("pinning the agent to CPU %d: %w", cpu, err)
		}
	}
	return nil
}
