package proof

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// mostOthers bounds, in 1/n of the time, what else may run on the CPUs of a workload: the kernel counts their time in steps of 10 ms.
const mostOthers = 10

// window is how long the events of a workload were counted, in µs.
func (w workload) window() int64 { return w.own.Deltas["elapsed-ms"] * 1000 }

// cpusExclusive doubts that the CPUs are the container's alone if they executed much more than its threads.
func (w workload) cpusExclusive() finding {
	f := cpusChosen(w.endpoint)
	busy, counted := w.own.Deltas["cpu.threads-ms"]
	own := int64(0)
	for _, t := range w.Threads {
		own += max(t.RunNS, 0) / 1000
	}
	if f.state != v1alpha1.ProofProved || !counted || w.Omitted > 0 || (busy*1000-own)*mostOthers <= w.window() {
		return f
	}
	return unknown(f.expected, fmt.Sprintf("%s, but they executed %s in %s, and the threads of the container only %s", f.found,
		microseconds(busy*1000), microseconds(w.window()), microseconds(own)),
		"find out what else runs there: threads of the node (ps -eLo pid,tid,psr,comm), processes of kubectl exec or of probes; keep it off with isolcpus or systemd's CPUAffinity. A CPU of nohz_full counts late: inspect again")
}

const maxThreadsNamed = 3

func (w workload) threadsOnCPUs() finding {
	expected := "every thread may use, and uses, only CPUs " + orNotKnown(w.own.CPUsAllowed)
	allowed, err := result.ParseCPUs(w.own.CPUsAllowed)
	if err != nil {
		return unknown(expected, notKnown, visible)
	}
	var off []string
	for _, t := range w.Threads {
		mask, errMask := result.ParseCPUs(t.CPUs)
		ran, errRan := result.ParseCPUs(t.Ran)
		if errMask != nil || errRan != nil {
			return unknown(expected, t.String()+": its CPUs are not known", "use a kernel that shows them in /proc")
		}
		if !mask.IsSubsetOf(allowed) || !ran.IsSubsetOf(allowed) {
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
			"end other ephemeral containers (kubectl debug) with this target; otherwise find out who moved the process to another cgroup")
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

// cpuQuota checks that no quota stopped the container since it exists. A container whose cgroup has none is in a pod without one: the
// kubelet gives a pod the sum of its containers' quotas, and only if all have one.
func (w workload) cpuQuota() finding {
	const (
		expected = "no CFS quota, or never throttled"
		advice   = "remove the CPU limit, or let the kubelet set none for exclusive CPUs (since 1.33; before, cpuCFSQuota: false)"
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
