package proof

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	onloadlib "github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// The checks of a workload that a benchmark's endpoint does not have.
const (
	ThreadsOnCPUs = "ThreadsOnCPUs"
	ThreadsStay   = "ThreadsStay"
	MemoryLocal   = "MemoryLocal"
	Interrupts    = "Interrupts"
	HugePages     = "HugePages"
	Frequency     = "Frequency"
	IdleStates    = "IdleStates"
	Mitigations   = "Mitigations"
	Like          = "Like"
)

// WorkloadLine is a line about a workload. Advice says what repairs it or, if it is Unknown, what would make it provable.
type WorkloadLine struct {
	v1alpha1.ProofLine
	Advice string `json:"advice,omitempty"`
}

// WorkloadPod is what the API server knows of the container of a workload and its pod. The zero value is that of a program that inspects
// itself.
type WorkloadPod struct {
	result.Seen
	RuntimeClass string
	// CPUs is the number of CPUs that the container must have for itself; 0: it did not request whole ones.
	CPUs int32
	// Networks are those that Multus attached. Devices are the PCI addresses that the kubelet allocated, by resource.
	Networks []foreign.Status
	Devices  map[string][]string
	// SharesProcesses is true if the containers of the pod, or of the node, have one process namespace.
	SharesProcesses bool
	// MTU and Function are required ones; 0 and empty: none is.
	MTU      int32
	Function string
}

// workload is a container of a user, from the view of one interface of its pod.
type workload struct {
	endpoint
	result.Workload
	pod WorkloadPod
}

// Workload returns the lines about a container: those of its CPUs, threads and memory, then those of each interface that counts.
func Workload(pod WorkloadPod, w result.Workload) []WorkloadLine {
	var lines []WorkloadLine
	of := func(own result.Evidence) workload {
		e := endpoint{role: v1alpha1.RoleClient, own: own, seen: pod.Seen}
		e.spec.Placement.NUMAPolicy, e.spec.Placement.Client = v1alpha1.NUMARequired, &v1alpha1.EndpointPlacement{CPUs: pod.CPUs}
		if pod.RuntimeClass != "" {
			e.spec.Pods = &v1alpha1.PodSettings{RuntimeClassName: pod.RuntimeClass}
		}
		e.variant.Network = &v1alpha1.Network{Type: v1alpha1.NetworkNAD}
		e.seen.Network = nil
		if at := slices.IndexFunc(pod.Networks, func(s foreign.Status) bool { return s.Interface == own.Interface }); at >= 0 {
			e.seen.Network = &pod.Networks[at]
		}
		return workload{e, w, pod}
	}
	add := func(prefix string, at workload, checks []workloadCheck) {
		for _, c := range checks {
			f := c.run(at)
			if f.state == "" {
				continue
			}
			l := WorkloadLine{ProofLine: check{name: c.name}.line(f)}
			if l.Found = text.Shorten(prefix+f.found, maxText); badness(f.state) > 0 {
				l.Advice = cmp.Or(c.advice, f.advice)
			}
			lines = append(lines, l)
		}
	}
	add("", of(w.Interfaces[0]), ofContainer)
	for _, own := range w.Interfaces {
		at := of(own)
		if at.counts() {
			add(orNotKnown(own.Interface)+": ", at, ofInterface)
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(pod.Devices)) {
		for _, address := range pod.Devices[resource] {
			if !slices.ContainsFunc(w.Interfaces, func(e result.Evidence) bool { return strings.EqualFold(e.PCIAddress, address) }) {
				f := unknown("an interface of each allocated device", fmt.Sprintf("%s of %s is allocated, and no interface of the pod is known to be it", address, resource),
					"a device that a program drives itself (DPDK) has no interface; otherwise check the network of the pod")
				lines = append(lines, WorkloadLine{ProofLine: check{name: v1alpha1.ProofDevice}.line(f), Advice: f.advice})
			}
		}
	}
	return lines
}

type workloadCheck struct {
	name string
	run  func(workload) finding
	// advice replaces that of a check of benchmarks.
	advice string
}

const (
	visible    = "run the program as the user and group of its container (runAsUser, runAsGroup), without capabilities that no inspection has, so that the kernel shows it"
	topology   = "set topologyManagerPolicy: single-numa-node in the kubelet's configuration; the kernel and the firmware must report the NUMA nodes (numa_node in sysfs)"
	wholeCores = "request whole cores with the CPU manager's option full-pcpus-only, or disable SMT; a virtual machine may hide that others share the core"
)

var (
	ofContainer = []workloadCheck{
		{v1alpha1.ProofCPUsExclusive, workload.cpusExclusive, ""},
		{v1alpha1.ProofSMTSiblings, func(w workload) finding { return smtSiblings(w.endpoint) }, wholeCores},
		{ThreadsOnCPUs, workload.threadsOnCPUs, ""},
		{ThreadsStay, workload.threadsStay, "pin each thread that matters to one CPU of its own (pthread_setaffinity_np, taskset)"},
		{v1alpha1.ProofCPUsOnNUMANode, workload.cpusOnNUMANode, topology},
		{MemoryLocal, workload.memoryLocal, ""},
		{Interrupts, workload.interrupts, "move the interrupts to other CPUs (irqbalance with banned CPUs, irqaffinity=, or annotation irq-load-balancing.crio.io of CRI-O)"},
		{v1alpha1.ProofCPUQuota, workload.cpuQuota, ""},
		{HugePages, workload.hugePages, ""},
		{v1alpha1.ProofAcceleration, workload.onload, ""},
		{v1alpha1.ProofCPUIsolated, func(w workload) finding { return cpuIsolated(w.endpoint) }, ""},
		{Frequency, func(w workload) finding {
			return w.notes("governor", "cpu.governor", "highest kHz", "cpu.freq-max", "turbo", "cpu.turbo")
		}, ""},
		{IdleStates, func(w workload) finding { return w.notes("states", "cpu.cstates", "governor", "cpu.idle-governor") }, ""},
		{Mitigations, workload.mitigations, ""},
		{v1alpha1.ProofHypervisor, func(w workload) finding { return hypervisor(w.endpoint) }, ""},
	}
	ofInterface = []workloadCheck{
		{v1alpha1.ProofNUMALocal, workload.numaLocal, topology},
		{v1alpha1.ProofDevice, workload.device, ""},
		{v1alpha1.ProofFunction, workload.function, ""},
		{v1alpha1.ProofMTU, workload.mtu, ""},
		{v1alpha1.ProofLink, func(w workload) finding {
			f := link(w.endpoint)
			f.expected = "up during the inspection"
			return f
		}, ""},
		{v1alpha1.ProofDriver, func(w workload) finding { return noted(orNotKnown(w.own.Driver)) }, ""},
		{v1alpha1.ProofFirmware, func(w workload) finding { return noted(orNotKnown(w.own.Firmware)) }, ""},
	}
)

// counts reports whether an interface is one of a device, or one that Multus attached; if no interface is, all count.
func (w workload) counts() bool {
	special := func(e result.Evidence) bool {
		return e.PCIAddress != "" || slices.ContainsFunc(w.pod.Networks, func(s foreign.Status) bool { return s.Interface == e.Interface && !s.Default })
	}
	return special(w.own) || !slices.ContainsFunc(w.Interfaces, special)
}

func (w workload) hidden(what string) bool { return slices.Contains(w.Unread, what) }

// cpusExclusive checks that the container has the CPUs that it requested, and that they are none of those that containers share. An agent
// beside it has these: the kubelet gives no ephemeral container CPUs of its own. Inside, only the cpuset tells.
func (w workload) cpusExclusive() finding {
	const advice = "let the pod be Guaranteed (requests equal limits) with whole CPUs, and set cpuManagerPolicy: static in the kubelet's configuration; after a change of the kubelet, start the pod again"
	expected := fmt.Sprintf("%d CPUs that no other container may use", w.pod.CPUs)
	if w.pod.CPUs < 1 {
		expected = "whole CPUs that no other container may use"
	}
	allowed, err := result.ParseCPUs(w.own.CPUsAllowed)
	if err != nil {
		return unknown(expected, notKnown, advice)
	}
	if w.PoolCPUs == "" {
		return w.busy(cpusChosen(w.endpoint))
	}
	found := fmt.Sprintf("%s of the node's %s, and containers without CPUs of their own have %s", w.own.CPUsAllowed, orNotKnown(w.own.OnlineCPUs), w.PoolCPUs)
	pool, err := result.ParseCPUs(w.PoolCPUs)
	switch foreign := w.foreignKernel(); {
	case err != nil, pool.IsEmpty():
		return unknown(expected, found, advice)
	case foreign != "":
		return unknown(expected, found+"; these are CPUs "+foreign, "use a runtime that runs containers on the node's kernel, such as runc or crun")
	case !allowed.Intersection(pool).IsEmpty():
		return failed(expected, found, advice)
	case w.seen.QOSClass != string(corev1.PodQOSGuaranteed), w.pod.CPUs < 1:
		return unknown(expected, fmt.Sprintf("%s, but the kubelet gives CPUs only to Guaranteed pods that request whole CPUs, and this one is %s", found, orNotKnown(w.seen.QOSClass)), advice)
	case allowed.Size() != int(w.pod.CPUs):
		return failed(expected, found, advice)
	}
	return w.busy(proved(expected, found))
}

// mostOthers bounds, in 1/n of the time, what else may run on the CPUs: the kernel counts the time of CPUs in steps of 10 ms.
const mostOthers = 10

// busy doubts that the CPUs are the container's alone if they executed much more than its threads.
func (w workload) busy(f finding) finding {
	own, counted := int64(0), w.BusyNS >= 0 && w.Omitted == 0
	for _, t := range w.Threads {
		own += max(t.RunNS, 0)
	}
	if others := w.BusyNS - own; f.state == v1alpha1.ProofProved && counted && others*mostOthers > w.Window {
		return unknown(f.expected, fmt.Sprintf("%s, but they executed %s in %s, and the threads of the container only %s", f.found,
			microseconds(w.BusyNS/1000), microseconds(w.Window/1000), microseconds(own/1000)),
			"find out what else runs there: threads of the node (ps -eLo pid,tid,psr,comm), processes of kubectl exec or of probes; keep it off with isolcpus or systemd's CPUAffinity. A CPU of nohz_full counts late: inspect again")
	}
	return f
}

func (w workload) threadsOnCPUs() finding {
	expected := "every thread may use, and uses, only CPUs " + orNotKnown(w.own.CPUsAllowed)
	const advice = "find out who moved the thread: an administrator (taskset, cset), a daemon (irqbalance, tuned) or another cgroup; start the pod again"
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
		return failed(expected, text.List(off, maxThreadsNamed, "; "), advice)
	case w.Omitted > 0:
		return unknown(expected, fmt.Sprintf("%s, and %d threads that were not inspected", found, w.Omitted), fmt.Sprintf("at most %d threads are inspected", result.MaxThreads))
	case len(w.Elsewhere) > 0 && !w.pod.SharesProcesses:
		return unknown(expected, found+", and processes in other cgroups: "+text.List(w.Elsewhere, maxThreadsNamed, ", "),
			"end other ephemeral containers (kubectl debug) with this target; otherwise find out who moved the process to another cgroup")
	case w.hidden("cgroup"):
		if pool, err := result.ParseCPUs(w.PoolCPUs); err != nil || int(w.pod.CPUs) != allowed.Size() || !allowed.Intersection(pool).IsEmpty() {
			return unknown(expected, found+", and the cpuset of the container is hidden", visible)
		}
	}
	return proved(expected, found)
}

const maxThreadsNamed = 3

func (w workload) threadsStay() finding {
	expected := fmt.Sprintf("no thread changes its CPU in %s", time.Duration(w.Window).Round(time.Millisecond))
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
		return finding{state: v1alpha1.ProofUnknown, expected: expected, found: fmt.Sprintf("%d of %d threads were not counted: they began meanwhile, or the kernel does not count (CONFIG_SCHED_DEBUG)", uncounted, len(w.Threads)+w.Omitted)}
	}
	return proved(expected, fmt.Sprintf("%d threads stayed", len(w.Threads)))
}

func (w workload) cpusOnNUMANode() finding {
	return cpusOnNUMANode(w.endpoint)
}

// memoryLocal checks that anonymous memory is on the NUMA nodes of the CPUs, by the counters of the cgroup. That of files, such as shared
// libraries, may be anywhere: who reads a file first places it.
func (w workload) memoryLocal() finding {
	nodes := w.own.AllowedNUMANodes
	expected := "memory on the NUMA node of its CPUs, " + orNotKnown(nodes)
	list, err := result.ParseCPUs(nodes)
	switch hidden := w.own.SeveralPlaces(); {
	case err != nil, list.IsEmpty():
		return unknown(expected, notKnown, topology)
	case hidden != "":
		return unknown(expected, hidden, topology)
	case len(w.Memory) == 0 && w.own.Facts["numa.memory-nodes"] == nodes && list.Size() == 1:
		return proved(expected, "the node has no other memory")
	case len(w.Memory) == 0:
		return unknown(expected, "the counters of its cgroup (memory.numa_stat) are hidden", visible)
	}
	local, all := int64(0), int64(0)
	var told []string
	for _, node := range slices.Sorted(maps.Keys(w.Memory)) {
		bytes := w.Memory[node]
		all += bytes
		if on, err := result.ParseCPUs(node); err == nil && on.IsSubsetOf(list) {
			local += bytes
		}
		told = append(told, fmt.Sprintf("%s KiB on %s", fmt.Sprint(bytes>>10), node))
	}
	found := strings.Join(told, ", ")
	if local == all {
		return proved(expected, found)
	}
	return failed(expected, found, "set memoryManagerPolicy: Static and topologyManagerPolicy: single-numa-node in the kubelet's configuration, and start the pod again: the kernel does not move memory back")
}

func (w workload) interrupts() finding {
	const expected = "no interrupts of devices on its CPUs"
	var all []string
	for name, n := range w.Interrupts {
		all = append(all, fmt.Sprintf("%s: %d", name, n))
	}
	slices.Sort(all)
	switch {
	case len(all) > 0:
		return failed(expected, fmt.Sprintf("in %s, by number: %s", microseconds(w.Window/1000), text.List(all, maxThreadsNamed, ", ")), "")
	case w.Interrupts == nil:
		return finding{state: v1alpha1.ProofUnknown, expected: expected, found: "the kernel does not show them (/sys/kernel/irq)"}
	case len(w.Directed) > 0:
		return finding{state: v1alpha1.ProofUnknown, expected: expected, found: fmt.Sprintf("none in %s, but these may come: %s", microseconds(w.Window/1000), text.List(w.Directed, maxThreadsNamed, ", "))}
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
	limit, period, limited := strings.Cut(w.own.Facts["cgroup.cpu-max"], " ")
	found := "no quota"
	if limit != "max" {
		found = fmt.Sprintf("%s µs in each %s µs", limit, period)
	}
	delay := int64(0)
	for _, t := range w.Threads {
		delay = max(delay, t.DelayNS)
	}
	stopped := w.own.Deltas["cgroup.stopped-us"]
	switch {
	case !limited, w.hidden("cgroup"):
		return unknown(expected, "quota "+notKnown+": the cgroup of the container is hidden", visible)
	case w.Throttled > 0, stopped > 0:
		return failed(expected, fmt.Sprintf("%s; periods used up since its start: %s; stopped during the inspection for %s",
			found, known(int32(min(w.Throttled, 1<<30)), 0), microseconds(stopped)), advice)
	case limit != "max" && w.Throttled < 0:
		return unknown(expected, found+"; whether it was throttled, is not known", advice)
	}
	return proved(expected, fmt.Sprintf("%s, never throttled; its threads waited at most %s of %s for a CPU", found, microseconds(delay/1000), microseconds(w.Window/1000)))
}

func (w workload) hugePages() finding {
	var asked, used []string
	missing := false
	for name, amount := range w.seen.Requests {
		size, ok := strings.CutPrefix(name, corev1.ResourceHugePagesPrefix)
		if !ok {
			continue
		}
		asked = append(asked, amount+" of "+size)
		key := strings.NewReplacer("Mi", "MB", "Gi", "GB").Replace(size)
		n, told := w.HugePages[key]
		missing = missing || told && n == 0
		if told {
			used = append(used, fmt.Sprintf("%d KiB of %s", n>>10, size))
		}
	}
	slices.Sort(asked)
	slices.Sort(used)
	switch expected, found := "it uses the requested pages: "+strings.Join(asked, ", "), strings.Join(used, ", "); {
	case len(asked) == 0:
		return finding{}
	case len(used) < len(asked):
		return unknown(expected, orNotKnown(found), visible)
	case missing:
		return failed(expected, found, "mount them (volume with emptyDir.medium HugePages), and let the program map them")
	default:
		return proved(expected, found)
	}
}

// onload reports what is known of Onload. Beside the container there is no device of Onload, so the share of the traffic that bypasses the
// kernel is never known.
func (w workload) onload() finding {
	const (
		expected = "Onload carries the sockets of the program"
		see      = "read the stacks with onload_stackdump in a pod that has the device of Onload; a LatencyBenchmark proves the way of each message"
		wrong    = "see docs/onload.md for the possible reasons: a static program, a missing device, an interface that Onload does not accelerate"
	)
	preload := strings.Join([]string{w.own.Facts["env.LD_PRELOAD"], w.own.Facts["preload-file"]}, " ")
	asked := slices.ContainsFunc(strings.FieldsFunc(preload, func(r rune) bool { return r == ' ' || r == ':' }), onloadlib.IsLibrary)
	var with, without []string
	hidden, carried := 0, 0
	for _, p := range w.Processes {
		switch l := p.Look; {
		case l == nil:
			hidden++
		case l.Library != "":
			with = append(with, fmt.Sprintf("%s (%d) has %s, and %d of %d sockets are Onload's", p.Name, p.PID, l.Library, l.Onload, l.Sockets))
			carried += int(l.Onload)
		default:
			without = append(without, fmt.Sprintf("%s (%d)", p.Name, p.PID))
		}
	}
	switch {
	case len(with) > 0 && carried > 0:
		return unknown(expected, text.List(with, maxThreadsNamed, "; ")+"; the way of each message is not known", see)
	case len(with) > 0:
		return failed(expected, text.List(with, maxThreadsNamed, "; "), wrong)
	case hidden > 0:
		return unknown(expected, fmt.Sprintf("the memory maps of %d processes are hidden", hidden), visible)
	case asked:
		return failed(expected, fmt.Sprintf("%s is preloaded, and not in the memory of %s", strings.TrimSpace(preload), text.List(without, maxThreadsNamed, ", ")), wrong)
	}
	return noted("Onload is not loaded: the kernel carries all messages, unless the program brings a stack of its own")
}

func (w workload) notes(namesAndKeys ...string) finding {
	var all []string
	for pair := range slices.Chunk(namesAndKeys, 2) {
		all = append(all, pair[0]+": "+orNotKnown(w.own.Facts[pair[1]]))
	}
	return noted(strings.Join(all, "; "))
}

func (w workload) mitigations() finding {
	const prefix = "cpu.vulnerability."
	var all []string
	for key, value := range w.own.Facts {
		if name, ok := strings.CutPrefix(key, prefix); ok {
			all = append(all, name+": "+value)
		}
	}
	slices.Sort(all)
	if len(all) == 0 {
		return noted("none is known")
	}
	return noted(strings.Join(all, "; "))
}

// numaLocal checks that all CPUs, not only the one of the busiest thread, are on the NUMA node of the interface.
func (w workload) numaLocal() finding {
	nodes, err := result.ParseCPUs(w.own.AllowedNUMANodes)
	if w.own.PCIAddress != "" && (err != nil || nodes.Size() != 1) && !w.own.OneNUMANode() {
		expected, found := "all CPUs on the NUMA node of "+w.own.Interface, fmt.Sprintf("CPUs %s on %s, the device on %s",
			w.own.CPUsAllowed, orNotKnown(w.own.AllowedNUMANodes), known(w.own.DeviceNUMANode, 0))
		if err != nil {
			return unknown(expected, found, topology)
		}
		return failed(expected, found, topology)
	}
	if w.own.PCIAddress == "" && w.own.Facts["nic.function"] == "virtual" && w.own.Facts["nic.ports"] == "" {
		return noted("no PCI device of its own")
	}
	return numaLocal(w.endpoint)
}

// device checks that the interface is a device that was allocated to the pod, by the sources that know one. The interface itself must be
// tied to it, by sysfs or by its MAC address.
func (w workload) device() finding {
	const advice = "check the annotation k8s.v1.cni.cncf.io/networks of the pod, its resources, and whether the device plugin or Multus was restarted"
	var environment, kubelet []string
	for _, list := range w.own.AllocatedDevices {
		environment = append(environment, strings.Split(list, ",")...)
	}
	for _, list := range w.pod.Devices {
		kubelet = append(kubelet, list...)
	}
	own, tied := "", w.own.PCISource == result.PCIFromSysfs
	if tied {
		own = w.own.PCIAddress
	}
	status := ""
	if s := w.seen.Network; s != nil && s.DeviceInfo != nil && s.DeviceInfo.PCI != nil {
		status, tied = s.DeviceInfo.PCI.Address, tied || s.MAC != "" && strings.EqualFold(s.MAC, w.own.MAC)
	}
	address := cmp.Or(own, status)
	if address == "" && len(environment)+len(kubelet) == 0 {
		return noted("no device")
	}
	const expected = "a device that was allocated to the pod"
	told, agree := []string{"sysfs " + orNotKnown(own), "network-status " + orNotKnown(status)}, 0
	conflict := contradiction(w.endpoint)
	for _, known := range []string{own, status} {
		if known != "" && strings.EqualFold(known, address) {
			agree++
		} else if known != "" {
			conflict = cmp.Or(conflict, "these differ")
		}
	}
	for _, of := range []struct {
		name string
		list []string
	}{{"environment", environment}, {"kubelet", kubelet}} {
		slices.Sort(of.list)
		told = append(told, of.name+" "+orNotKnown(strings.Join(slices.Compact(of.list), " ")))
		if slices.ContainsFunc(of.list, func(a string) bool { return strings.EqualFold(a, address) }) {
			agree++
		} else if len(of.list) > 0 && address != "" {
			conflict = cmp.Or(conflict, "the interface is none of those of the "+of.name)
		}
	}
	switch all := strings.Join(told, ", "); {
	case conflict != "":
		return failed(expected, all+": "+conflict, advice)
	case agree < 2, !tied:
		return unknown(expected, all, "at least two sources must know the device, and sysfs or the MAC address must tie it to the interface")
	default:
		return proved(expected, all)
	}
}

func (w workload) function() finding {
	found := w.own.Facts["nic.function"]
	told := orNotKnown(found)
	if port := w.own.Facts["nic.port"]; port != "" && found != "PF" {
		told += " of " + port
	}
	const advice = "let the network of the pod use a resource of such devices"
	switch {
	case w.pod.Function == "":
		return noted(told)
	case found == "", found == "PCI":
		return unknown(w.pod.Function, told, "virtual machines do not report it")
	case found != w.pod.Function:
		return failed(w.pod.Function, told, advice)
	}
	return proved(w.pod.Function, told)
}

func (w workload) mtu() finding {
	asked, own := w.pod.MTU, known(w.own.MTU, 1)
	if s := w.seen.Network; asked == 0 && s != nil {
		asked = int32(s.MTU)
	}
	const advice = "set the MTU in the network of the pod and on its PF, and find what else sets it"
	switch {
	case asked == 0:
		return noted(own)
	case w.own.MTU <= 0:
		return unknown(fmt.Sprint(asked), own, advice)
	case w.own.MTU != asked:
		return failed(fmt.Sprint(asked), own, advice)
	}
	return proved(fmt.Sprint(asked), own)
}

// Requirement is a check that must be Proved, by every line that it has.
type Requirement string

// ParseRequirements reads names of checks, separated by commas. Function and MTU need a value: Function=VF,MTU=9000.
func ParseRequirements(list string, pod *WorkloadPod) ([]Requirement, error) {
	var known []string
	for _, c := range slices.Concat(ofContainer, ofInterface) {
		if !slices.Contains(neverProved, c.name) {
			known = append(known, c.name)
		}
	}
	var all []Requirement
	for item := range strings.SplitSeq(list, ",") {
		name, value, valued := strings.Cut(strings.TrimSpace(item), "=")
		switch {
		case name == v1alpha1.ProofMTU:
			n, err := strconv.ParseInt(value, 10, 32)
			if err != nil || n < 1 {
				return nil, errors.New("check MTU needs a number of bytes, such as MTU=9000")
			}
			pod.MTU = int32(n)
		case name == v1alpha1.ProofFunction:
			if value != "VF" && value != "PF" {
				return nil, errors.New("check Function needs VF or PF, such as Function=VF")
			}
			pod.Function = value
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("%q is not a check that can be proved; these are %s", name, strings.Join(known, ", "))
		case valued:
			return nil, fmt.Errorf("%s takes no value", name)
		}
		all = append(all, Requirement(name))
	}
	return all, nil
}

// neverProved are the checks that only note a value, and that of Onload.
var neverProved = []string{
	v1alpha1.ProofCPUIsolated, Frequency, IdleStates, Mitigations, v1alpha1.ProofHypervisor, v1alpha1.ProofDriver, v1alpha1.ProofFirmware, v1alpha1.ProofAcceleration,
}

// Met returns Pass if every requirement has a line and all its lines are Proved, Fail if one is Failed, and otherwise Inconclusive.
func Met(requirements []Requirement, lines []WorkloadLine) v1alpha1.VerdictOutcome {
	outcome := v1alpha1.VerdictPass
	for _, r := range requirements {
		found := false
		for _, l := range lines {
			if l.Check != string(r) {
				continue
			}
			found = true
			switch l.State {
			case v1alpha1.ProofFailed:
				return v1alpha1.VerdictFail
			case v1alpha1.ProofUnknown, v1alpha1.ProofNoted:
				outcome = v1alpha1.VerdictInconclusive
			case v1alpha1.ProofProved:
			}
		}
		if !found {
			outcome = v1alpha1.VerdictInconclusive
		}
	}
	return outcome
}
