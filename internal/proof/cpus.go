package proof

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/tool"
	tools "github.com/tailgate-dev/tailgate/internal/tool/all"
)

// mostTaken bounds the part of the measured time, 1/100, that other threads, waiting or a
// hypervisor may take. TestMostTaken simulates how much longer round trips become.
const mostTaken = 100

// mostOfWake is the tool's own part of the wait: from each wake-up until its CPU runs it.
const mostOfWake = 20 * time.Microsecond

// cpusExclusive checks that the CPUs were chosen for the endpoint, and that the counters agree: a
// CPU manager keeps only other pods off, not the node's threads; containers may share a cpuset.
func cpusExclusive(e endpoint) finding {
	f := cpusChosen(e)
	if f.state != v1alpha1.ProofProved {
		return f
	}
	const advice = "keep all other threads off its CPUs: processes of the node (isolcpus, or systemd's CPUAffinity), threads that are pinned there, and containers with the same cpuset"
	own, elapsed := e.own.Deltas, e.own.Deltas["elapsed-ms"]*1000
	others, counted := e.otherThreads()
	waited, known := e.waited()
	waited -= max(own["cgroup.stopped-us"], own["cgroup.throttled-us"]) + e.own.VoluntarySwitches*mostOfWake.Microseconds()
	_, read := own["cpu.threads-ms"] // of /proc/stat, which each kernel has
	switch away := e.ranElsewhere(); {
	case away*mostTaken > elapsed:
		return e.alone(unknown(f.expected, fmt.Sprintf("%s, but the tool ran on other CPUs than those it was started on for %s", f.found, part(away, elapsed)),
			"let a program keep its affinity, and keep agents that change cpusets off the pod"))
	case counted && others*mostTaken > elapsed:
		return e.alone(failed(f.expected, fmt.Sprintf("%s, but other threads ran on CPU %d for %s", f.found, e.own.MeasuringCPU, part(others, elapsed)), advice))
	case known && waited*mostTaken > elapsed:
		return e.alone(unknown(f.expected, fmt.Sprintf("%s, but the tool waited for CPU %d for %s", f.found, e.own.MeasuringCPU, part(waited, elapsed)), advice))
	case read && !counted && !known:
		return e.alone(unknown(f.expected, f.found+", and whether other threads ran there is not known", "measure with a kernel that has /proc/schedstat (CONFIG_SCHEDSTATS)"))
	case counted:
		f.found += fmt.Sprintf("; other threads ran on CPU %d for %s", e.own.MeasuringCPU, part(others, elapsed))
	}
	if interrupts := (own["cpu.irq-ms"] + own["cpu.softirq-ms"]) * 1000; interrupts*mostTaken > elapsed {
		f.found += "; interrupts took " + part(interrupts, elapsed)
	}
	return f
}

// part describes a part of the measured time, both in µs.
func part(of, elapsed int64) string {
	return fmt.Sprintf("%s of %s (%.3g %%)", microseconds(of), microseconds(elapsed), 100*float64(of)/float64(max(elapsed, 1)))
}

// alone only notes a finding if one kernel simulates both nodes: see WarningSimulatedNIC.
func (e endpoint) alone(f finding) finding {
	if result.SameKernel(e.own, e.peer) && e.own.Node != e.peer.Node {
		return noted(f.found + "; both nodes are simulated on one machine")
	}
	return f
}

// otherThreads returns how long other threads ran on the measuring CPU, in µs, as far as the kernel
// counts it: interrupts are apart, and a hypervisor's time is that of the thread. A tool that forks
// hides its children's time, and two threads' may be of two CPUs: the result is then the least.
func (e endpoint) otherThreads() (int64, bool) {
	own := e.own.Deltas
	busy, counted := own["cpu.busy-ns"]
	tool, told := own["tool.cpu-ns"]
	interrupts := (own["cpu.irq-ms"] + own["cpu.softirq-ms"] + own["cpu.steal-ms"]) * 1_000_000
	return max(0, busy-tool-interrupts) / 1000, counted && told && !e.forks()
}

// forks reports whether the tool's processes fork, so that its main thread does not measure.
func (e endpoint) forks() bool {
	return tools.Limits(e.spec.Tool).Forks && e.role == v1alpha1.RoleServer
}

// opaque reports whether the tool is a user's program, of which the agent counts all CPUs.
func (e endpoint) opaque() bool { return tools.Limits(e.spec.Tool).Opaque }

// ranElsewhere returns how long, at least, the tool ran on other CPUs, in µs. The agent counts all
// CPUs of a user's program, and one of other tools, which use a second one for some messages.
func (e endpoint) ranElsewhere() int64 {
	busy, counted := e.own.Deltas["cpu.busy-ns"]
	ran, told := e.own.Deltas["tool.cpu-ns"]
	if !counted || !told || !e.opaque() && e.usesMoreCPUs() {
		return 0
	}
	return max(0, ran-busy) / 1000
}

func (e endpoint) usesMoreCPUs() bool {
	driver, err := tools.Registry().Get(e.spec.Tool)
	return err == nil && slices.ContainsFunc(e.cells, func(c result.Cell) bool { return tool.CPUsOf(driver, c.Cell, e.role) > 1 })
}

// cpusChosen checks that a CPU manager chose the CPUs: those that pods share may be as many.
func cpusChosen(e endpoint) finding {
	const advice = "set cpuManagerPolicy: static and reservedSystemCPUs for the kubelet as docs/prepare-nodes.md says: it does not start with the state of another policy"
	expected := "1 exclusive CPU"
	asked := e.cpus()
	if asked != 1 {
		expected = fmt.Sprintf("%d exclusive CPUs", asked)
	}
	allowed, err := result.ParseCPUs(e.own.CPUsAllowed)
	if err != nil {
		return unknown(expected, notKnown, advice)
	}
	found := fmt.Sprintf("%s of the node's %s", e.own.CPUsAllowed, orNotKnown(e.own.OnlineCPUs))
	if foreign := e.foreignKernel(); foreign != "" {
		return unknown(expected, found+", "+foreign, "measure with a runtime that runs containers on the node's kernel, such as runc or crun, on a node that is no container")
	}
	class := e.seen.QOSClass
	pool, errPool := result.ParseCPUs(e.pool)
	if e.pool != "" {
		switch found += ", and containers without CPUs of their own have " + e.pool; {
		case errPool != nil, pool.IsEmpty():
			return unknown(expected, found, advice)
		case !allowed.Intersection(pool).IsEmpty():
			return failed(expected, found, advice)
		case asked < 1, class != string(corev1.PodQOSGuaranteed):
			return unknown(expected, fmt.Sprintf("%s, but a kubelet gives CPUs only to Guaranteed pods that request whole CPUs, and this one is %s", found, orNotKnown(class)), advice)
		}
	}
	if allowed.Size() != asked {
		return failed(expected, found, advice)
	}
	online, err := result.ParseCPUs(e.own.OnlineCPUs)
	if err != nil {
		return unknown(expected, found, advice)
	}
	if allowed.Size() >= online.Size() {
		return failed(expected, found, "reserve CPUs for other pods: "+advice)
	}
	if offline := allowed.Difference(online); !offline.IsEmpty() {
		return unknown(expected, fmt.Sprintf("%s, though CPU %s is not online", found, offline), advice)
	}
	if !allowed.Contains(int(e.own.MeasuringCPU)) {
		return unknown(expected, fmt.Sprintf("%s, though it measured on CPU %d", found, e.own.MeasuringCPU), advice)
	}
	if e.seen.Bare {
		return e.bareCPUs(expected, found)
	}
	// An affinity that a process narrowed looks exclusive, but not the cpuset.
	if list, ok := e.own.Facts["cgroup.cpus"]; ok {
		if cpus, err := result.ParseCPUs(list); err != nil || !cpus.Equals(allowed) {
			return unknown(expected, fmt.Sprintf("%s, though its cpuset is %s", found, list), advice)
		}
	}
	if e.pool != "" {
		return proved(expected, found)
	}
	// The CPU manager also writes the shared pool into other containers' cpusets.
	if class != "" && class != string(corev1.PodQOSGuaranteed) {
		return failed(expected, fmt.Sprintf("%s, but the pod is %s: a CPU manager gives such pods the CPUs that all share", found, class),
			"find what changed the pod's requests or added a container without limits, see PodUnchanged")
	}
	set := e.own.Facts["cgroup.cpus-set"]
	switch cpus, err := result.ParseCPUs(set); {
	case set == "none":
		return failed(expected, found+", but nothing limited its container to them: other pods may run there", advice)
	case set == "" && e.own.Facts["cgroup.version"] == "1":
		return unknown(expected, found+", though cgroup version 1 does not show whether a CPU manager chose them", "use cgroup version 2")
	case err != nil || !cpus.Equals(allowed):
		return unknown(expected, fmt.Sprintf("%s, though its container was limited to %s", found, orNotKnown(set)), advice)
	}
	return proved(expected, found)
}

// bareCPUs checks that no other process of a host runs on the endpoint's CPUs: the scheduler leaves
// them alone, or they are a scheduling partition (cgroup version 2 only).
func (e endpoint) bareCPUs(expected, found string) finding {
	allowed, _ := result.ParseCPUs(e.own.CPUsAllowed) // the caller has checked it
	isolated, errIsolated := result.ParseCPUs(e.own.Facts["cpu.isolated-cpus"])
	set, errSet := result.ParseCPUs(e.own.Facts["cgroup.cpus"])
	kind := e.own.Facts["cgroup.partition"]
	switch {
	case errIsolated == nil && allowed.IsSubsetOf(isolated):
		return proved(expected, found+", which the scheduler leaves alone")
	case errSet == nil && set.Equals(allowed) && e.own.Facts["cgroup.version"] == "2" && (kind == "root" || kind == "isolated"):
		return proved(expected, found+", a scheduling partition of its own")
	}
	return unknown(expected, found+", and nothing keeps other processes of the host off them",
		"boot with isolcpus, or start the agent in a partition of cpuset (docs/bare.md)")
}

// foreignKernel describes a runtime with a kernel of its own, whose CPUs have other numbers.
func (e endpoint) foreignKernel() string {
	runtime := "its runtime"
	if t := e.spec.Pods; t != nil && t.RuntimeClassName != "" {
		runtime = "RuntimeClass " + t.RuntimeClassName
	}
	if sandbox := e.own.Facts["runtime.sandbox"]; sandbox != "" {
		runtime += " (" + sandbox + ")"
	}
	node, own := e.seen.NodeBootID, e.own.BootID
	switch {
	case e.own.Facts["runtime.sandbox"] != "":
		return "which are CPUs of a sandbox or a virtual machine: " + runtime + " does not run it on the node's kernel"
	case node != "" && own != "" && node != own:
		return "which are CPUs of a sandbox or a virtual machine, because its boot ID is not the node's: " + runtime + " does not run it on the node's kernel, or the node is a container (LXC) whose boot ID is made up"
	case (node == "" || own == "") && strings.HasPrefix(runtime, "RuntimeClass") && e.own.Facts["cpu.hypervisor"] != "no":
		return "and it is not known whether " + runtime + " runs it on the node's kernel"
	}
	return ""
}

// cpus returns the number of CPUs that the spec or else the pod requests; 0 if unknown.
func (e endpoint) cpus() int {
	if n := e.spec.Placement.Of(e.role).CPUs; n != 0 {
		return int(n)
	}
	n, err := strconv.Atoi(e.seen.Requests["cpu"])
	if err != nil {
		return 0
	}
	return n
}

func cpuIsolated(e endpoint) finding {
	return noted(fmt.Sprintf("isolated: %s, nohz_full: %s", orNotKnown(e.own.Facts["cpu.isolated"]), orNotKnown(e.own.Facts["cpu.nohz-full"])))
}

// smtSiblings checks whether anything besides the tool may run on the core of the measuring CPU.
func smtSiblings(e endpoint) finding {
	const (
		expected = "no SMT siblings, or only its own"
		advice   = "request whole cores (leave placement.cpus unset, or make it even) with the CPU manager's option full-pcpus-only, or disable SMT"
	)
	told := e.own.Facts["cpu.smt.sibling"]
	if told == "" && e.own.Facts["cpu.smt.active"] == "0" {
		told = "none"
	}
	found := map[string]string{"none": "none", "own": "its own", "others": "other containers may run there"}[told]
	if e.own.ThreadSiblings != "" {
		found += ": core of CPUs " + e.own.ThreadSiblings
	}
	switch {
	case told == "others":
		return failed(expected, found, advice)
	case told != "own" && told != "none":
		return unknown(expected, notKnown, advice)
	case !siblingsAgree(e, told):
		return unknown(expected, fmt.Sprintf("%s, though its CPUs are %s", found, orNotKnown(e.own.CPUsAllowed)), advice)
	case told == "none" && e.own.Facts["cpu.hypervisor"] == "yes":
		return e.alone(unknown(expected, found+", in a virtual machine, whose hypervisor may hide them: another guest may run there",
			"let the hypervisor give the guest whole cores and show it their threads, or measure on the machine itself"))
	}
	return proved(expected, found)
}

func siblingsAgree(e endpoint, told string) bool {
	siblings, err := result.ParseCPUs(e.own.ThreadSiblings)
	if err != nil {
		return e.own.ThreadSiblings == ""
	}
	if told == "none" {
		return siblings.Size() == 1
	}
	allowed, err := result.ParseCPUs(e.own.CPUsAllowed)
	return err == nil && siblings.IsSubsetOf(allowed)
}

// cpuQuota checks that the kernel did not throttle the endpoint for its cgroup or an ancestor. A
// pod does not see all ancestors: what they withheld is measured.
func cpuQuota(e endpoint) finding {
	const (
		expected = "no CFS quota at any level, or never throttled"
		advice   = "let the kubelet set no quota for exclusive CPUs (since 1.33, feature gate DisableCPUQuotaWithExclusiveCPUs), or CRI-O (pods.annotations, cpu-quota.crio.io); the kubelet's cpuCFSQuota: false lifts the CPU limits of all pods of the node"
	)
	limit, found := quota(e.own)
	elapsed, stolen := e.own.Deltas["elapsed-ms"]*1000, e.own.Deltas["cpu.steal-ms"]*1000
	periods, counted := e.own.Deltas["cgroup.throttled"]
	stopped, told := e.own.Deltas["cgroup.stopped-us"]
	switch {
	case counted && periods > 0:
		return failed(expected, fmt.Sprintf("%s; periods used up: %d", found, periods), advice)
	case told && stopped > 0:
		return failed(expected, fmt.Sprintf("%s; stopped for %s by a quota of a cgroup above", found, microseconds(stopped)), advice)
	case stolen*mostTaken > elapsed:
		return e.alone(unknown(expected, fmt.Sprintf("%s; the hypervisor withheld the CPU for %s", found, part(stolen, elapsed)),
			"give the guest CPUs of its own, neither shared nor burstable, or measure on the machine itself"))
	case told:
		return proved(expected, found+", never stopped by a quota")
	case limit != "" && limit != "max" && !counted:
		return unknown(expected, found, advice)
	}
	waited, known := e.waited()
	if !known || elapsed == 0 {
		return unknown(expected, found+"; what withheld the CPU is not known", "use a kernel since 6.7, or one that counts run delays (schedstats) or pressure (psi)")
	}
	found += fmt.Sprintf("; the tool waited %s of %s for a CPU", microseconds(waited), microseconds(elapsed))
	if waited*mostTaken <= elapsed {
		return proved(expected, found)
	}
	found += fmt.Sprintf(", more than 1/%d", mostTaken)
	if others, ok := e.otherThreads(); ok {
		found += fmt.Sprintf("; other threads ran there for %s", microseconds(others))
	}
	return e.alone(unknown(expected, found, "keep other threads off its CPUs, and "+advice))
}

// quota returns what the tightest visible quota allows, max or empty if unknown, and its text.
func quota(e result.Evidence) (limit, told string) {
	limit, period, known := strings.Cut(e.Facts["cgroup.cpu-max"], " ")
	switch {
	case !known:
		return "", "quota " + notKnown
	case limit == "max":
		return limit, "no quota in the visible cgroups"
	}
	return limit, fmt.Sprintf("%s µs in each %s µs", limit, period)
}

// waited returns how long the measuring thread waited for a CPU, in µs. A quota stops all threads
// of a cgroup. The main thread measures, unless the tool forks: there, or uncounted, all count.
func (e endpoint) waited() (int64, bool) {
	delays := []struct {
		name string
		ns   int64
	}{{"tool.run-delay-ns", 1}, {"cpu.run-delay-ns", 1}, {"cgroup.pressure-us", 1000}}
	if e.forks() || e.opaque() {
		delays = delays[1:]
	}
	for _, of := range delays {
		if delay, known := e.own.Deltas[of.name]; known {
			return delay * of.ns / 1000, true
		}
	}
	return 0, false
}

func microseconds(n int64) time.Duration {
	return (time.Duration(n) * time.Microsecond).Round(time.Millisecond)
}

func captureCPU(e endpoint) finding {
	if e.variant.Capture != v1alpha1.CaptureServer || e.role != v1alpha1.RoleServer {
		return finding{}
	}
	const (
		expected = "packets captured on another CPU than the measuring CPU"
		advice   = "set placement.cpus to 2 or more"
	)
	found := fmt.Sprintf("captured on CPU %d, measured on CPU %d", e.own.AgentCPU, e.own.MeasuringCPU)
	switch {
	case e.own.AgentCPU < 0 || e.own.MeasuringCPU < 0:
		return unknown(expected, notKnown, advice)
	case e.own.AgentCPU == e.own.MeasuringCPU:
		return failed(expected, found, advice)
	}
	return proved(expected, found)
}

// mostOthers bounds, in 1/n of the time, what else runs on a workload's CPUs: steps are 10 ms.
const mostOthers = 10

// window is how long the events of a workload were counted, in µs.
func (w workload) window() int64 { return w.own.Deltas["elapsed-ms"] * 1000 }

// cpusExclusive doubts exclusive CPUs that executed much more than the container's threads.
func (w workload) cpusExclusive() finding {
	f := cpusChosen(w.endpoint)
	if class := w.seen.QOSClass; badness(f.state) > 0 && (w.cpus() == 0 || class != "" && class != string(corev1.PodQOSGuaranteed)) {
		f.expected, f.advice = "a Guaranteed pod that requests whole CPUs", "set requests equal to limits in all containers, with whole CPUs for this one, and replace the pod"
		return f
	}
	busy, counted := w.own.Deltas["cpu.threads-ms"]
	own := int64(0)
	for _, t := range w.Threads {
		own += max(t.RunNS, 0) / 1000
	}
	if f.state != v1alpha1.ProofProved || !counted || w.Omitted > 0 || (busy*1000-own)*mostOthers <= w.window() {
		return f
	}
	return unknown(f.expected, fmt.Sprintf("%s, but the CPUs of the container were busy for %s of %s, of which its threads used %s", f.found,
		microseconds(busy*1000), microseconds(w.window()), microseconds(own)),
		"find out what else runs there: threads of the node (ps -eLo psr,pcpu,pid,tid,comm), processes of kubectl exec or of probes; keep it off with isolcpus or systemd's CPUAffinity. A CPU of nohz_full counts late: inspect again")
}

const maxThreadsNamed = 3

const noThread = "no thread was seen"

func (w workload) threadsOnCPUs() finding {
	expected := "every thread may use, and uses, only CPUs " + orNotKnown(w.own.CPUsAllowed)
	allowed, err := result.ParseCPUs(w.own.CPUsAllowed)
	if err != nil {
		return unknown(expected, notKnown, visible)
	}
	if len(w.Threads) == 0 {
		return unknown(expected, noThread, visible)
	}
	var off []string
	for _, t := range w.Threads {
		mask, errMask := result.ParseCPUs(t.CPUs)
		ran, errRan := result.ParseCPUs(t.Ran)
		if errMask != nil || errRan != nil {
			return unknown(expected, t.String()+": its CPUs are not known", "use a kernel that shows them in /proc")
		}
		// The kernel shows where a thread that sleeps ran last, which may be before its CPUs were set.
		if !mask.IsSubsetOf(allowed) || t.RunNS != 0 && !ran.IsSubsetOf(allowed) {
			off = append(off, fmt.Sprintf("%s may use %s and ran on %s", t, t.CPUs, t.Ran))
		}
	}
	found := fmt.Sprintf("%d threads of %d processes", len(w.Threads), len(w.Processes))
	switch {
	case len(off) > 0:
		return failed(expected, text.List(off, maxThreadsNamed, "; "),
			"find out who moved the thread: an administrator (taskset, cset), a daemon (irqbalance, tuned) or another cgroup; start the pod again")
	case w.Omitted > 0:
		return unknown(expected, fmt.Sprintf("%s, and %d threads that were not inspected", found, w.Omitted), fmt.Sprintf("at most %d threads are inspected", result.MaxThreads))
	case len(w.Elsewhere) > 0 && !w.pod.SharesProcesses:
		return unknown(expected, found+", and processes in other cgroups: "+text.List(w.Elsewhere, maxThreadsNamed, ", "),
			"end other ephemeral containers (kubectl debug) with this target, and wait until watches of it end; otherwise find out who moved the process to another cgroup")
	case w.hidden("cgroup"):
		if pool, err := result.ParseCPUs(w.PoolCPUs); err != nil || w.cpus() != allowed.Size() || !allowed.Intersection(pool).IsEmpty() {
			return unknown(expected, found+", and the cpuset of the container is hidden", visible)
		}
	}
	return proved(expected, found)
}

func (w workload) threadsStay() finding {
	expected := "no thread changes its CPU in " + microseconds(w.window()).String()
	var moved []string
	uncounted := w.Omitted
	if len(w.Threads) == 0 {
		return unknown(expected, noThread, visible)
	}
	for _, t := range w.Threads {
		switch {
		case t.Migrations > 0:
			moved = append(moved, fmt.Sprintf("%s: %d times, on %s of its CPUs %s", t, t.Migrations, t.Ran, t.CPUs))
		case t.Migrations < 0:
			uncounted++
		}
	}
	switch {
	case len(moved) > 0:
		return failed(expected, text.List(moved, maxThreadsNamed, "; "), "")
	case uncounted > 0:
		return unknown(expected, fmt.Sprintf("%d of %d threads were not counted: they began meanwhile, or the kernel does not count (CONFIG_SCHED_DEBUG)", uncounted, len(w.Threads)+w.Omitted), "")
	}
	return proved(expected, fmt.Sprintf("%d threads stayed", len(w.Threads)))
}

func (w workload) interrupts() finding {
	const expected = "no interrupts of devices on its CPUs"
	all, counted := w.own.Deltas["irq"]
	var each []string
	for name, n := range w.own.Deltas {
		if irq, ok := strings.CutPrefix(name, "irq."); ok {
			each = append(each, fmt.Sprintf("%s: %d", irq, n))
		}
	}
	slices.Sort(each)
	switch {
	case all > 0:
		return failed(expected, fmt.Sprintf("in %s, by number: %s", microseconds(w.window()), text.List(each, maxThreadsNamed, ", ")), "")
	case !counted:
		return unknown(expected, "the kernel does not show them (/sys/kernel/irq)", "")
	case len(w.Directed) > 0:
		return unknown(expected, fmt.Sprintf("none in %s, but these may come: %s", microseconds(w.window()), text.List(w.Directed, maxThreadsNamed, ", ")), "")
	}
	return proved(expected, "none, and none may come")
}

// cpuQuota checks that no quota stopped the container since it exists. A cgroup without one is in a
// pod without one: the kubelet gives a pod its containers' sum only if all have one.
func (w workload) cpuQuota() finding {
	const (
		expected = "no CFS quota, or never throttled"
		advice   = "let the kubelet set no quota for exclusive CPUs (since 1.33; before, cpuCFSQuota: false lifts the CPU limits of all pods of the node); a pod without exclusive CPUs needs no CPU limit"
	)
	limit, found := quota(w.own)
	delay := time.Duration(0)
	for _, t := range w.Threads {
		delay = max(delay, time.Duration(t.DelayNS))
	}
	stopped := w.own.Deltas["cgroup.stopped-us"]
	switch {
	case limit == "", w.hidden("cgroup"):
		return unknown(expected, "quota "+notKnown+": the cgroup of the container is hidden", visible)
	case w.Throttled > 0, stopped > 0:
		return failed(expected, fmt.Sprintf("%s; periods used up since its start: %d; stopped during the inspection for %s", found, max(w.Throttled, 0), microseconds(stopped)), advice)
	case limit != "max" && w.Throttled < 0:
		return unknown(expected, found+"; whether it was throttled, is not known", advice)
	}
	return proved(expected, fmt.Sprintf("%s, never throttled; its threads waited at most %s of %s for a CPU", found, delay.Round(time.Millisecond), microseconds(w.window())))
}
