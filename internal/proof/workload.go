package proof

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	onloadlib "github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/pods"
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

// WorkloadLine has Advice, which says what repairs it or, if it is Unknown, would make it provable.
type WorkloadLine struct {
	v1alpha1.ProofLine
	Advice string `json:"advice,omitempty"`
}

// WorkloadPod is what the API server knows; it is zero for a program that inspects itself.
type WorkloadPod struct {
	result.Seen
	RuntimeClass string
	// Networks are Multus's; Devices are PCI addresses that the kubelet allocated, by resource.
	Networks        []foreign.Status
	Devices         map[string][]string
	SharesProcesses bool // its containers, or the node's, have one process namespace
	// MTU and Function are required ones; 0 and empty: none is.
	MTU      int32
	Function v1alpha1.NetworkType
	FromNode bool // a helper on its node inspects it
}

// Of adds to what is required what a container and its pod say of themselves.
func (p WorkloadPod) Of(pod *corev1.Pod, target *corev1.Container) (_ WorkloadPod, err error) {
	p.Seen, p.RuntimeClass = pods.SeenOf(pod, target), ptr.Deref(pod.Spec.RuntimeClassName, "")
	p.SharesProcesses = pod.Spec.HostPID || ptr.Deref(pod.Spec.ShareProcessNamespace, false)
	if annotation := pod.Annotations[foreign.AnnotationNetworkStatus]; annotation != "" {
		if p.Networks, err = foreign.Statuses(annotation); err != nil {
			return p, err
		}
	}
	p.Devices = map[string][]string{}
	for _, s := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		for _, allocated := range s.AllocatedResourcesStatus {
			for _, health := range allocated.Resources {
				if id := string(health.ResourceID); result.PCIAddress.MatchString(id) {
					p.Devices[string(allocated.Name)] = append(p.Devices[string(allocated.Name)], id)
				}
			}
		}
	}
	return p, nil
}

// workload is a container of a user, from the view of one interface of its pod.
type workload struct {
	endpoint
	result.Workload
	pod WorkloadPod
}

func (p WorkloadPod) by(w result.Workload, own result.Evidence) workload {
	e := endpoint{role: v1alpha1.RoleClient, own: own, seen: p.Seen, pool: w.PoolCPUs}
	e.spec.Placement.NUMAPolicy = v1alpha1.NUMARequired
	e.spec.Pods = &v1alpha1.PodSettings{RuntimeClassName: p.RuntimeClass}
	e.variant.Network = &v1alpha1.Network{Type: v1alpha1.NetworkNAD}
	if at := slices.IndexFunc(p.Networks, func(s foreign.Status) bool { return s.Interface == own.Interface }); at >= 0 {
		e.seen.Network = &p.Networks[at]
	}
	return workload{e, w, p}
}

// Workload returns the lines of CPUs, threads and memory, then those of interfaces that count.
func Workload(pod WorkloadPod, w result.Workload) []WorkloadLine {
	var lines []WorkloadLine
	add := func(prefix string, at workload, checks []workloadCheck) {
		for _, c := range checks {
			f := c.run(at)
			if f.state == "" {
				continue
			}
			f.found = prefix + f.found
			l := WorkloadLine{ProofLine: check{name: c.name}.line(f)}
			if badness(f.state) > 0 {
				l.Advice = cmp.Or(c.advice, f.advice)
			}
			lines = append(lines, l)
		}
	}
	add("", pod.by(w, w.Interfaces[0]), ofContainer)
	if len(lines) > 0 && lines[0].Check == v1alpha1.ProofCPUsExclusive && lines[0].State == v1alpha1.ProofFailed {
		for n := range lines { // on CPUs that all share, nothing else helps
			if slices.Contains([]string{v1alpha1.ProofSMTSiblings, v1alpha1.ProofCPUsOnNUMANode, MemoryLocal, Interrupts}, lines[n].Check) && lines[n].Advice != "" {
				lines[n].Advice = "give the container exclusive CPUs first (CPUsExclusive)"
			}
		}
	}
	for _, own := range w.Interfaces {
		if at := pod.by(w, own); at.counts() {
			add(orNotKnown(own.Interface)+": ", at, ofInterface)
		}
	}
	for _, resource := range slices.Sorted(maps.Keys(pod.Devices)) {
		for _, address := range pod.Devices[resource] {
			if !slices.ContainsFunc(w.Interfaces, func(e result.Evidence) bool { return strings.EqualFold(e.PCIAddress, address) }) {
				add(address+" of "+resource+": ", workload{}, withoutInterface)
			}
		}
	}
	return lines
}

type workloadCheck struct {
	name   string
	run    func(workload) finding
	advice string // replaces that of a check of benchmarks
}

func ofChain(name string, run func(endpoint) finding, advice string) workloadCheck {
	return workloadCheck{name, func(w workload) finding { return run(w.endpoint) }, advice}
}

func facts(name string, namesAndKeys ...string) workloadCheck {
	return workloadCheck{name, func(w workload) finding {
		var all []string
		for pair := range slices.Chunk(namesAndKeys, 2) {
			all = append(all, pair[0]+": "+orNotKnown(w.own.Facts[pair[1]]))
		}
		return noted(strings.Join(all, "; "))
	}, ""}
}

const (
	visible    = "run the program as the user and group of its container (runAsUser, runAsGroup), without capabilities that no inspection has, so that the kernel shows it"
	topology   = "set topologyManagerPolicy: single-numa-node in the kubelet's configuration; the kernel and the firmware must report the NUMA nodes (numa_node in sysfs)"
	wholeCores = "request whole cores with the CPU manager's option full-pcpus-only, or disable SMT; a virtual machine may hide that others share the core"
)

var (
	ofContainer = []workloadCheck{
		{v1alpha1.ProofCPUsExclusive, workload.cpusExclusive, ""},
		ofChain(v1alpha1.ProofSMTSiblings, smtSiblings, wholeCores),
		{ThreadsOnCPUs, workload.threadsOnCPUs, ""},
		{ThreadsStay, workload.threadsStay, "pin each thread that matters to one CPU of its own (pthread_setaffinity_np, taskset)"},
		ofChain(v1alpha1.ProofCPUsOnNUMANode, cpusOnNUMANode, topology),
		{MemoryLocal, workload.memoryLocal, ""},
		{Interrupts, workload.interrupts, "move the interrupts to other CPUs (irqbalance with banned CPUs, irqaffinity=, or annotation irq-load-balancing.crio.io of CRI-O)"},
		{v1alpha1.ProofCPUQuota, workload.cpuQuota, ""},
		{HugePages, workload.hugePages, ""},
		{v1alpha1.ProofAcceleration, workload.onload, ""},
		ofChain(v1alpha1.ProofCPUIsolated, cpuIsolated, ""),
		facts(Frequency, "governor", "cpu.governor", "highest kHz", "cpu.freq-max", "turbo", "cpu.turbo"),
		facts(IdleStates, "states", "cpu.cstates", "governor", "cpu.idle-governor"),
		{Mitigations, workload.mitigations, ""},
		ofChain(v1alpha1.ProofHypervisor, hypervisor, ""),
	}
	ofInterface = []workloadCheck{
		{v1alpha1.ProofNUMALocal, workload.numaLocal, topology},
		{v1alpha1.ProofDevice, workload.device, ""},
		{v1alpha1.ProofFunction, workload.function, "let the network of the pod use a resource of such devices; virtual machines do not report what a device is"},
		{v1alpha1.ProofMTU, workload.mtu, ""},
		ofChain(v1alpha1.ProofLink, link, ""),
		ofChain(v1alpha1.ProofDriver, func(e endpoint) finding { return noted(orNotKnown(e.own.Driver)) }, ""),
		ofChain(v1alpha1.ProofFirmware, func(e endpoint) finding { return noted(orNotKnown(e.own.Firmware)) }, ""),
	}
	withoutInterface = []workloadCheck{{v1alpha1.ProofDevice, func(workload) finding {
		return unknown("an interface of each allocated device", "no interface of the pod is known to be it",
			"a device that a program drives itself (DPDK) has no interface; otherwise check the network of the pod")
	}, ""}}
)

// counts reports whether an interface is a device's or Multus's; if none is, all count.
func (w workload) counts() bool {
	special := func(e result.Evidence) bool {
		return e.PCIAddress != "" || slices.ContainsFunc(w.pod.Networks, func(s foreign.Status) bool { return s.Interface == e.Interface && !s.Default })
	}
	return special(w.own) || !slices.ContainsFunc(w.Interfaces, special)
}

func (w workload) hidden(what string) bool { return slices.Contains(w.Unread, what) }

// memoryLocal judges anonymous memory by the cgroup: who reads a file first places its pages.
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
	judge := proved
	var told []string
	for _, node := range slices.Sorted(maps.Keys(w.Memory)) {
		bytes := w.Memory[node]
		if on, err := result.ParseCPUs(node); bytes > 0 && (err != nil || !on.IsSubsetOf(list)) {
			judge = func(expected, found string) finding {
				return failed(expected, found, "set memoryManagerPolicy: Static with reservedMemory, and topologyManagerPolicy: single-numa-node, for the kubelet, on a drained node without the old memory_manager_state; then start the pod again: the kernel does not move memory back")
			}
		}
		told = append(told, fmt.Sprintf("%d KiB on %s", bytes>>10, node))
	}
	return judge(expected, strings.Join(told, ", "))
}

func (w workload) hugePages() finding {
	var asked, used []string
	least := int64(1)
	for _, name := range slices.Sorted(maps.Keys(w.seen.Requests)) {
		size, ok := strings.CutPrefix(name, corev1.ResourceHugePagesPrefix)
		if !ok {
			continue
		}
		asked = append(asked, w.seen.Requests[name]+" of "+size)
		if n, told := w.HugePages[size]; told {
			used, least = append(used, fmt.Sprintf("%d KiB of %s", n>>10, size)), min(least, n)
		}
	}
	switch expected, found := "it uses the requested pages: "+strings.Join(asked, ", "), strings.Join(used, ", "); {
	case len(asked) == 0:
		return finding{}
	case len(used) < len(asked):
		return unknown(expected, orNotKnown(found), visible)
	case least == 0:
		return failed(expected, found, "mount them (volume with emptyDir.medium HugePages), and let the program map them")
	default:
		return proved(expected, found)
	}
}

// onload proves a bypass only from the node: beside the container, no device of Onload shows the
// traffic. The kernel's counters are those of the network namespace.
func (w workload) onload() finding {
	const (
		expected = "Onload carries the messages of the program"
		see      = "inspect it with --from node while it has traffic; a LatencyBenchmark proves the way of each message"
		wrong    = "see docs/onload.md for the possible reasons: a static program, a missing device, an interface that Onload does not accelerate"
	)
	preload := strings.FieldsFunc(w.own.Facts["env.LD_PRELOAD"]+" "+w.own.Facts["preload-file"], func(r rune) bool { return r == ' ' || r == ':' })
	var with, without []string
	hidden, carried := 0, int32(0)
	for _, p := range w.Processes {
		switch l := p.Look; {
		case l == nil:
			hidden++
		case l.Library != "":
			with = append(with, fmt.Sprintf("%s (%d) has %s, and %d of %d sockets are Onload's", p.Name, p.PID, l.Library, l.Onload, l.Sockets))
			carried += l.Onload
		default:
			without = append(without, fmt.Sprintf("%s (%d)", p.Name, p.PID))
		}
	}
	switch {
	case len(with) > 0 && carried > 0 && w.FromNode:
		events, kernel, known := w.traffic()
		found := fmt.Sprintf("%s; in a second, its stacks had %d events of the NIC, and the kernel carried %d TCP and UDP packets of the pod", text.List(with, maxThreadsNamed, "; "), events, kernel)
		if hidden > 0 {
			found += fmt.Sprintf("; %d more processes were not inspected", hidden)
		}
		if known && events > 0 && kernel == 0 && hidden == 0 {
			return proved(expected, found)
		}
		return unknown(expected, found, "inspect it again while it has traffic, and no other process of the pod has")
	case len(with) > 0 && carried > 0:
		return unknown(expected, text.List(with, maxThreadsNamed, "; ")+"; the way of each message is not known", see)
	case len(with) > 0:
		return failed(expected, text.List(with, maxThreadsNamed, "; "), wrong)
	case hidden > 0:
		return unknown(expected, fmt.Sprintf("the memory maps of %d processes are hidden", hidden), visible)
	case slices.ContainsFunc(preload, onloadlib.IsLibrary):
		return failed(expected, fmt.Sprintf("%s is preloaded, and not in the memory of %s", strings.Join(preload, " "), text.List(without, maxThreadsNamed, ", ")), wrong)
	}
	return noted("Onload is not loaded: the kernel carries all messages, unless the program brings a stack of its own")
}

// traffic returns what Onload's stacks and the kernel carried in the second, if both are known.
func (w workload) traffic() (events, kernel int64, known bool) {
	known = true
	sum := func(counters map[string]int64, names ...string) (total int64) {
		for _, name := range names {
			n, ok := counters[name]
			total, known = total+n, known && ok
		}
		return total
	}
	events = sum(w.StackEvents, result.PathStackIn, result.PathStackOut)
	kernel = sum(w.own.Deltas, "tcp.InSegs", "tcp.OutSegs", "tcp.RetransSegs", "udp.InDatagrams", "udp.OutDatagrams")
	return events, kernel + w.own.Deltas["udp6.InDatagrams"] + w.own.Deltas["udp6.OutDatagrams"], known // not without IPv6
}

func (w workload) mitigations() finding {
	var all []string
	for key, value := range w.own.Facts {
		if name, ok := strings.CutPrefix(key, "cpu.vulnerability."); ok {
			all = append(all, name+": "+value)
		}
	}
	slices.Sort(all)
	return noted(cmp.Or(strings.Join(all, "; "), "none is known"))
}

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

// device checks that the pod's device is the interface's, tied to it by sysfs or MAC address.
func (w workload) device() finding {
	const (
		expected = "a device that was allocated to the pod"
		advice   = "check the annotation k8s.v1.cni.cncf.io/networks of the pod, its resources, and whether the device plugin or Multus was restarted"
		few      = "at least two sources must know the device, and sysfs or the MAC address must tie it to the interface"
	)
	sources := []source{w.sysfs(), w.networkStatus(), {name: "environment"}, {name: "kubelet"}}
	for _, list := range w.own.AllocatedDevices {
		sources[2].addresses = append(sources[2].addresses, strings.Split(list, ",")...)
	}
	for _, list := range w.pod.Devices {
		sources[3].addresses = append(sources[3].addresses, list...)
	}
	slices.Sort(sources[2].addresses)
	slices.Sort(sources[3].addresses)
	switch own, allocated := len(sources[0].addresses)+len(sources[1].addresses), len(sources[2].addresses)+len(sources[3].addresses); {
	case own+allocated == 0:
		return noted("no device")
	case own == 0:
		return unknown(expected, "the device of the interface is not known", few)
	}
	return w.agreed(expected, sources, advice, few)
}

func (w workload) function() finding {
	w.variant.Network = &v1alpha1.Network{Type: cmp.Or(w.pod.Function, v1alpha1.NetworkHost)}
	return function(w.endpoint)
}

func (w workload) mtu() finding {
	asked := w.pod.MTU
	if s := w.seen.Network; asked == 0 && s != nil {
		asked = int32(s.MTU)
	}
	if asked == 0 {
		return noted(known(w.own.MTU, 1))
	}
	return w.mtuIs(asked, fmt.Sprint(asked), "set the MTU in the network of the pod and on its PF, and find what else sets it")
}

// ParseRequirements reads checks that must be Proved. Two need a value: Function=VF,MTU=9000.
func ParseRequirements(list string, pod *WorkloadPod) (requirements []string, err error) {
	var known []string
	for _, c := range slices.Concat(ofContainer, ofInterface) {
		if !slices.Contains(neverProved, c.name) || pod.FromNode && c.name == v1alpha1.ProofAcceleration {
			known = append(known, c.name)
		}
	}
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
			if pod.Function = v1alpha1.NetworkType(value); !pod.Function.HasDevice() {
				return nil, errors.New("check Function needs VF or PF, such as Function=VF")
			}
		case name == v1alpha1.ProofAcceleration && !pod.FromNode:
			return nil, errors.New("check Acceleration can be proved only by kubectl tailgate inspect --from node")
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("%q is not a check that can be proved; these are %s", name, strings.Join(known, ", "))
		case valued:
			return nil, fmt.Errorf("%s takes no value", name)
		}
		if slices.Contains(requirements, name) {
			return nil, fmt.Errorf("%s is there twice", name)
		}
		requirements = append(requirements, name)
	}
	return requirements, nil
}

// neverProved are the checks that only note a value, and that of Onload, unless from the node.
var neverProved = []string{
	v1alpha1.ProofCPUIsolated, Frequency, IdleStates, Mitigations, v1alpha1.ProofHypervisor, v1alpha1.ProofDriver, v1alpha1.ProofFirmware, v1alpha1.ProofAcceleration,
}

// Met returns Pass if each requirement has lines, all Proved; Fail if one Failed; else Inconclusive.
func Met(requirements []string, lines []WorkloadLine) v1alpha1.VerdictOutcome {
	outcome := v1alpha1.VerdictPass
	for _, r := range requirements {
		states := map[v1alpha1.ProofState]bool{}
		for _, l := range lines {
			if l.Check == r {
				states[l.State] = true
			}
		}
		switch {
		case states[v1alpha1.ProofFailed]:
			return v1alpha1.VerdictFail
		case !states[v1alpha1.ProofProved], len(states) > 1:
			outcome = v1alpha1.VerdictInconclusive
		}
	}
	return outcome
}
