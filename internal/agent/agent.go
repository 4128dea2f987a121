// Package agent is the program in the pods of a run: it pins and runs the tools, gathers evidence, and hands
// over the result. One agent is the server's, one the client's; see control.go for what they say to each
// other.
//
// While a cell is measured both agents sleep: the client's in wait for its tool, the server's in wait for the
// next request. They collect no garbage, poll nothing and write nothing. Counters and processes they read before the cell
// and after it (path.go).
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
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// Agent is one endpoint of a run.
type Agent struct {
	// Task is what to do.
	Task plan.Task
	// Node and PodIP are what the pod knows of itself.
	Node, PodIP string
	// Key is the secret that only the pods of the benchmark have.
	Key string
	// Tools are the drivers.
	Tools tool.Registry
	// Scratch is a writable folder, for a client whose tool writes files.
	Scratch string
	// Log takes the framed result, and a line for each thing that happens between the cells.
	Log io.Writer
	// TerminationLog is the path of the file that becomes the container's termination message.
	TerminationLog string
	// Root is "/"; tests give another one to read the machine's facts from.
	Root string
}

// failure is an end without a result, with its outcome.
type failure struct {
	reason  string
	message string
}

func (f *failure) Error() string { return f.message }

func fail(reason, format string, args ...any) error {
	return &failure{reason: reason, message: fmt.Sprintf(format, args...)}
}

// Run does the task. It leaves a termination message in any case: with the reason why there is no result on the log, which it
// also returns. With a result, it lingers.
func (a *Agent) Run(ctx context.Context) error {
	work, cancel := context.WithTimeout(ctx, a.Task.Deadline)
	defer cancel()

	document, err := a.measure(work)
	if err == nil {
		err = a.handOver(document)
	}
	t := result.Termination{}
	if err != nil {
		t = result.Termination{Reason: v1alpha1.OutcomeAgentFailed, Message: err.Error()}
		var f *failure
		switch {
		case errors.Is(ctx.Err(), context.Canceled):
			// What failed meanwhile failed because of that.
			t = result.Termination{Reason: v1alpha1.OutcomePodLost, Message: "the kubelet stopped the pod before the end of the run"}
		case errors.As(err, &f):
			t.Reason = f.reason
		case errors.Is(work.Err(), context.DeadlineExceeded):
			t.Reason = v1alpha1.OutcomeDeadlineExceeded
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

// handOver writes the result to the log, small enough for its share of the ConfigMap that will keep it.
func (a *Agent) handOver(d result.Document) error {
	d, err := result.Fit(d, result.Share(d.Role, a.Task.Capture))
	if errors.Is(err, result.ErrTooLarge) {
		return fail(v1alpha1.OutcomeResultTooLarge, "%v; measure fewer message sizes or rates in one benchmark", err)
	}
	if err != nil {
		return err
	}
	return result.WriteFrame(a.Log, d)
}

func (a *Agent) measure(ctx context.Context) (result.Document, error) {
	driver, err := a.Tools.Get(a.Task.Tool)
	if err != nil {
		return result.Document{}, fail(v1alpha1.OutcomeToolMissing, "the agent does not know the tool %s: do the bench image and the operator have the same version?", a.Task.Tool)
	}
	// The agent is small and short-lived; a collection in the middle of a cell would be seen in its tail.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(256 << 20)

	environ := environment(os.Environ(), a.Task)
	h := host{a.Root, a.Task.Parent}
	cpus, allowed, err := h.cpusAllowed()
	if err != nil {
		return result.Document{}, err
	}
	_, device, _ := h.device(a.likelyInterface(), allocatedDevices(environ))
	cpus = h.order(cpus, h.deviceNUMANode(device))
	e := endpoint{
		Agent: a, driver: driver, environ: environ, cpus: cpus, cpusAllowed: allowed,
		settings: map[string]string{}, measuringCPU: cpus[0], agentCPU: h.agentCPU(cpus, a.mostToolCPUs(driver)),
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
		err = fail(v1alpha1.OutcomeInterfaceLost, "interface %s disappeared during the run: was its driver unbound, or were the VFs of its PF removed?", e.iface.Name)
	}
	return document, err
}

// likelyInterface is the interface that will be measured, as far as that is known before anything was sent; empty when
// it is not.
func (a *Agent) likelyInterface() string {
	if a.Task.Interface != "" {
		return a.Task.Interface
	}
	iface, err := interfaceOf(net.ParseIP(a.PodIP))
	if err != nil {
		return ""
	}
	return iface.Name
}

// mostToolCPUs is how many CPUs the tools use at this end.
func (a *Agent) mostToolCPUs(driver tool.Driver) int {
	most := 1
	if a.Task.Role == v1alpha1.RoleClient {
		for _, c := range a.Task.Cells {
			most = max(most, driver.CPUs(c))
		}
	}
	return most
}

// endpoint is an agent at work.
type endpoint struct {
	*Agent
	driver tool.Driver
	// environ is the tools' environment.
	environ []string
	// cpus are those that the agent and the tool may use, in the order of host.order.
	cpus []int
	// cpusAllowed is what the agent might use before it pinned itself.
	cpusAllowed            string
	measuringCPU, agentCPU int
	// watch counts what happens while the tool's processes run; command is the last of them. Voluntary and
	// involuntary count the context switches of those that ended.
	watch                  *watch
	command                tool.Command
	voluntary, involuntary int64
	// paths are those of the cells' messages, settings those of Onload that its library printed, and stack are facts of the
	// server's stack, nil until there was one.
	paths    []result.Path
	settings map[string]string
	stack    facts
	// iface is the measured interface, and captured what a server took from packets there.
	iface    net.Interface
	captured []result.Captured
}

func (e *endpoint) logf(format string, args ...any) {
	fmt.Fprintf(e.Log, format+"\n", args...)
}

// document is the agent's result so far: who measured, and where.
func (e *endpoint) document(address string) result.Document {
	evidence := host{e.Root, e.Task.Parent}.gather(e.measuringCPU, e.cpus, e.iface, e.environ)
	e.watch = host{root: e.Root}.watch(e.measuringCPU, e.iface.Name)
	evidence.Node, evidence.Address = e.Node, address
	evidence.CPUsAllowed, evidence.AgentCPU = e.cpusAllowed, int32(e.agentCPU)
	return result.Document{
		Version: result.Version, Run: e.Task.Run, Variant: e.Task.Variant, Attempt: e.Task.Attempt, Role: e.Task.Role, Evidence: evidence,
	}
}

// scratch makes an empty folder for a tool that writes files; its name is empty for others.
func (e *endpoint) scratch(name string) (string, error) {
	if !tool.WritesFiles(e.driver) {
		return "", nil
	}
	dir := filepath.Join(e.Scratch, name)
	if err := os.RemoveAll(dir); err != nil {
		return "", fmt.Errorf("clearing the scratch folder: %w", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("making the scratch folder: %w", err)
	}
	return dir, nil
}

// toolCPUs are the first n CPUs of the endpoint, for the tool.
func (e *endpoint) toolCPUs(n int) ([]int, error) {
	if n > len(e.cpus) {
		return nil, fail(v1alpha1.OutcomeToolFailed, "%s needs %d CPUs at the client's end, and has %s; raise spec.placement.cpus", e.Task.Tool, n, e.cpusAllowed)
	}
	return e.cpus[:n], nil
}

// start starts a tool, and the watch over what happens meanwhile.
func (e *endpoint) start(c tool.Command, cpus []int, dir string, l *link) (*process, error) {
	e.command = c
	before := l.traffic()
	e.watch.begin()
	p, err := start(c, cpus, dir, e.environ)
	if err != nil {
		return nil, err
	}
	p.linkBefore = before
	return p, nil
}

// account adds what happened while a process ran that has ended, and what is known of the path of its messages.
func (e *endpoint) account(p *process, cell string, l *link) {
	e.recordPath(p, cell, e.watch.end(), l)
	e.watch.add("tool.run-delay-ns", p.runDelay)
	e.watch.add("tool.major-faults", p.majorFaults())
	voluntary, involuntary := p.switches()
	e.voluntary += voluntary
	e.involuntary += involuntary
}

// conclude completes the evidence when the last tool has ended.
func (e *endpoint) conclude(evidence *result.Evidence) {
	evidence.VoluntarySwitches, evidence.InvoluntarySwitches = e.voluntary, e.involuntary
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

// pinSelf moves every thread of the agent to one CPU; threads that come later inherit it.
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
		// A thread may end in between.
		if err := unix.SchedSetaffinity(id, &set); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("pinning the agent to CPU %d: %w", cpu, err)
		}
	}
	return nil
}
