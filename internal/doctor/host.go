package doctor

import (
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tailgate-dev/tailgate/internal/result"
)

func smt(i *result.Inspection) []Line {
	sibling := i.Fact("cpu.smt.sibling")
	if sibling == "" && i.Fact("cpu.smt.active") == "0" {
		sibling = "none"
	}
	switch sibling {
	case "others":
		return advice{"a process on the CPU's sibling shares its core, whose speed then varies by tens of percent",
			"set full-pcpus-only in the kubelet's cpuManagerPolicyOptions and request whole cores, or disable SMT (nosmt)"}.
			warn("", "CPUs %s are one core, of which the pod had CPU %d", i.Evidence.ThreadSiblings, i.Evidence.MeasuringCPU)
	case "own":
		return good("", "the pod had the whole core: CPUs %s", i.Evidence.ThreadSiblings)
	case "none":
		return good("", "CPU %d has no SMT siblings", i.Evidence.MeasuringCPU)
	}
	return nil
}

func isolation(i *result.Inspection) []Line {
	isolated, quiet := i.Fact("cpu.isolated"), i.Fact("cpu.nohz-full")
	if isolated == "" && quiet == "" {
		return nil
	}
	found := fmt.Sprintf("CPU %d: isolated %s, nohz_full %s", i.Evidence.MeasuringCPU, cmp.Or(isolated, "not reported"), cmp.Or(quiet, "not reported"))
	if isolated == "yes" && quiet == "yes" {
		return good("", "%s", found)
	}
	remedy := "boot with isolcpus=managed_irq,domain,LIST nohz_full=LIST rcu_nocbs=LIST for the CPUs that the kubelet does not reserve"
	if isolated == "yes" {
		remedy = "boot with nohz_full=LIST rcu_nocbs=LIST for the CPUs that the kubelet does not reserve"
	}
	if list := i.Fact("kernel.arg.isolcpus"); strings.HasPrefix(list, "managed_irq") && !strings.Contains(list, "domain") {
		remedy = "on OpenShift, whose Node Tuning Operator owns the boot arguments: set cpu.balanceIsolated: false in the PerformanceProfile, or give benchmarks " +
			"its RuntimeClass and the annotation cpu-load-balancing.crio.io: disable (spec.pods)"
	}
	return advice{"the kernel's own threads and timer ticks interrupt the tool: some µs each, 100 to 1000 times a second; p99.9 and beyond", remedy}.
		warn("", "%s", found)
}

var disturbances = []struct {
	check, fact string
	disturbs    func(i *result.Inspection, value string) bool
	advice
}{
	{"thp", "mm.thp", func(_ *result.Inspection, value string) bool { return value == "always" }, advice{
		"the kernel merges pages of every process: page faults and khugepaged stop the tool for up to some ms", "`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`"}},
	{"watchdog", "sysctl.kernel.nmi_watchdog", func(_ *result.Inspection, value string) bool { return value == "1" }, advice{
		"a non-maskable interrupt on each CPU about every 10 s, and one performance counter less", "sysctl kernel.nmi_watchdog=0, or boot with nmi_watchdog=0"}},
	{"interrupts", "irq.on-cpu", func(i *result.Inspection, _ string) bool {
		return i.Fact("cpu.isolated") == "yes" || i.Fact("cpu.nohz-full") == "yes"
	}, advice{
		"devices interrupt the isolated CPU: some µs each", "boot with irqaffinity=LIST of the reserved CPUs, let irqbalance ban the isolated ones, or on OpenShift annotate pods with irq-load-balancing.crio.io: disable"}},
	{"cpu-quota", "cgroup.cpu-max", func(_ *result.Inspection, value string) bool { return !strings.HasPrefix(value, "max") }, advice{
		"the quota stops a busy process until the next period of 100 ms; kubelets before 1.33 also limit exclusive CPUs",
		"update the kubelet, or with CRI-O annotate pods with cpu-quota.crio.io: disable; cpuCFSQuota: false of the kubelet lifts the CPU limits of all pods of the node"}},
}

func disturbed(i *result.Inspection) []Line {
	var lines []Line
	for _, d := range disturbances {
		value := i.Fact(d.fact)
		if value == "" {
			continue
		}
		l := good("", "%s is %s", d.fact, value)[0]
		if d.disturbs(i, value) {
			l = d.warn("", "%s is %s", d.fact, value)[0]
		}
		l.Check = d.check
		lines = append(lines, l)
	}
	return lines
}

func governor(i *result.Inspection) []Line {
	switch g := i.Fact("cpu.governor"); {
	case g == "performance":
		return good("", "performance (%s)", cmp.Or(i.Fact("cpu.freq-driver"), "driver not reported"))
	case g != "":
		return advice{"the frequency follows the load: after a pause the CPU is slower by tens of percent, and rounds differ",
			"`cpupower frequency-set -g performance`, or a tuned profile such as network-latency"}.
			warn("", "%s (%s)", g, cmp.Or(i.Fact("cpu.freq-driver"), "driver not reported"))
	case i.Virtual():
		return good("", "none: the hypervisor controls the frequency")
	case i.Fact("cpu.hypervisor") == "":
		return good("", "none: the firmware, or a hypervisor, controls the frequency")
	}
	return good("", "none: the firmware controls the frequency")
}

const longestWake = 10 // µs of exit latency, above which an idle state is too deep

// idleStates checks how deep the idle states are that the kernel may choose or, if known, chose.
func idleStates(i *result.Inspection) []Line {
	states, entered := i.Fact("cpu.cstates"), strings.Split(i.Fact("cpu.cstates-entered"), ", ")
	limit, err := strconv.Atoi(i.Fact("cpu.pm-qos-us"))
	if err != nil || limit == 0 { // not limited
		limit = math.MaxInt
	}
	deepest, wake, chosen := "", 0, 0
	for state := range strings.SplitSeq(states, ", ") {
		fields := strings.Fields(state)
		if len(fields) < 2 || strings.HasPrefix(state, "[") { // It is disabled.
			continue
		}
		us, err := strconv.Atoi(strings.TrimSuffix(fields[len(fields)-1], "us"))
		if err != nil || us > limit {
			continue
		}
		name := strings.Join(fields[:len(fields)-1], " ")
		if us >= wake {
			deepest, wake = name, us
		}
		if slices.Contains(entered, name) {
			chosen = max(chosen, us)
		}
	}
	found := states
	if limit != math.MaxInt {
		found += fmt.Sprintf("; pm_qos forbids those with an exit latency above %d µs", limit)
	}
	switch {
	case states == "" && i.Fact("kernel.arg.idle") != "":
		return good("", "none: the kernel was booted with idle=%s", i.Fact("kernel.arg.idle"))
	case states == "" && i.Virtual():
		return good("", "none: the hypervisor controls the idle states")
	case states == "":
		return good("", "not reported")
	case i.Fact("cpu.pm-qos-us") == "n/a":
		return good("", "%s; pm_qos forbids those with an exit latency", states)
	case wake > longestWake && i.Fact("cpu.cstates-entered") != "" && chosen <= longestWake:
		return good("", "%s; the idle CPU entered only %s: a process such as tuned may limit it (/dev/cpu_dma_latency)", found, strings.Join(entered, ", "))
	case wake > longestWake:
		return advice{fmt.Sprintf("a CPU that sleeps while it waits for a message needs up to %d µs to wake up: this affects blocking processes and low rates", wake),
			"boot with intel_idle.max_cstate=1 processor.max_cstate=1, or a tuned profile such as network-latency, unless a process already holds /dev/cpu_dma_latency, which a pod does not see"}.
			warn("", "down to %s, %d µs to wake up (%s)", deepest, wake, found)
	}
	return good("", "%s", found)
}

func clock(i *result.Inspection) []Line {
	const remedy = "find the reason in the kernel's log why it did not use the TSC (unstable, or not invariant); if the TSC is reliable on this machine, boot with tsc=reliable"
	switch source := i.Evidence.Clocksource; source {
	case "":
		return nil
	case "tsc", "arch_sys_counter", "timebase", "tod":
		return good("", "%s", source)
	case "hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit":
		return advice{"each reading of the clock is a system call to a slow device, which takes 1 µs or more, twice in every sample", remedy}.err("", "%s", source)
	default:
		return advice{"each reading of the clock takes longer than with the TSC; the hypervisor determines how long", remedy}.warn("", "%s", source)
	}
}

func kernel(i *result.Inspection) []Line {
	preemption := "preemption not reported"
	words := strings.Fields(i.Fact("kernel.version"))
	if at := slices.IndexFunc(words, func(word string) bool { return strings.HasPrefix(word, "PREEMPT") }); at >= 0 {
		preemption = words[at]
		if preemption == "PREEMPT" && at+1 < len(words) && words[at+1] == "RT" { // kernels before 5.4
			preemption = "PREEMPT_RT"
		}
	}
	var args []string
	for _, key := range slices.Sorted(maps.Keys(i.Evidence.Facts)) {
		if name, ok := strings.CutPrefix(key, "kernel.arg."); ok && i.Fact(key) != "" {
			args = append(args, name+"="+i.Fact(key))
		}
	}
	arguments := "no arguments for latency"
	if len(args) > 0 {
		arguments = strings.Join(args, " ")
	}
	return good("", "%s, %s, %s", cmp.Or(i.Evidence.Kernel, "release not reported"), preemption, arguments)
}

func hypervisor(i *result.Inspection) []Line {
	machine := strings.Join(strings.Fields(i.Fact("dmi.sys_vendor")+" "+i.Fact("dmi.product_name")), " ")
	switch i.Fact("cpu.hypervisor") {
	case "yes":
		return advice{"the hypervisor can preempt the CPU, and handles interrupts and timers: this adds a tail of tens of µs to ms that does not come from the NIC",
			"measure on bare metal; or pin the machine's CPUs, with huge pages and the VF passed through"}.
			warn("", "a virtual machine (%s)", cmp.Or(machine, "model not reported"))
	case "no":
		return good("", "none (%s)", cmp.Or(machine, "model not reported"))
	}
	return nil
}

const driverX3 = "xilinx_efct" // of AMD's X3

func hugepages(o Observed, n Node) []Line {
	var sizes []string
	for name, q := range n.Node.Status.Allocatable {
		if size, found := strings.CutPrefix(string(name), corev1.ResourceHugePagesPrefix); found && q.Sign() > 0 {
			sizes = append(sizes, fmt.Sprintf("%s in pages of %s", q.String(), size))
		}
	}
	slices.Sort(sizes)
	if len(sizes) > 0 {
		return good("", "%s", strings.Join(sizes, ", "))
	}
	onload := resource.Quantity{}
	if o.Onload != "" {
		onload = n.Node.Status.Allocatable[corev1.ResourceName(o.Onload)]
	}
	remedy := "reserve huge pages of 2Mi (vm.nr_hugepages), restart the kubelet, and request them in spec.pods.hugepages"
	i := n.seen()
	switch {
	case onload.Sign() > 0 && i != nil && slices.ContainsFunc(i.NICs, func(c result.NIC) bool { return c.Driver == driverX3 }):
		return advice{"runs with Onload fail on an X3, whose receive queues need at least two huge pages of 2 MiB each", remedy}.
			err("", "none, and it has an X3")
	case onload.Sign() > 0:
		return advice{"Onload's packet buffers are in small pages: more misses in the translation caches of the IOMMU and the CPU", remedy}.
			warn("", "none")
	}
	return good("", "none; only Onload uses them")
}

// mitigationTexts are lines such as: entry in FILE FILE | TEXT. Their beginning describes them.
//
//go:embed mitigations.txt
var mitigationTexts string

// fitting returns the kind of the first text that fits a part of the kernel's file, or nothing.
func fitting(file, part string) string {
	for line := range strings.Lines(mitigationTexts) {
		where, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " | ")
		kind, files, some := strings.Cut(where, " in ")
		rest, begins := strings.CutPrefix(part, text)
		if ok && begins && (!some || slices.Contains(strings.Fields(files), file)) && (rest == "" || rest[0] == ' ') {
			return kind
		}
	}
	return ""
}

// atEntry returns whether the mitigation in a weakness's file works at each entry to the kernel or
// return, also if the text begins with Vulnerable, and whether all parts of the text are known.
func atEntry(file, state string) (works, known bool) {
	known = true
	for part := range strings.FieldsFuncSeq(strings.ToLower(state), func(r rune) bool { return r == ';' || r == ',' }) {
		part = strings.TrimSpace(part)
		for _, prefix := range []string{"kvm: mitigation", "mitigation", "vulnerable", "unknown"} {
			if rest, ok := strings.CutPrefix(part, prefix); ok {
				part = strings.TrimLeft(rest, ": (")
			}
		}
		if part == "" || part == "not affected" {
			continue
		}
		kind := fitting(file, part)
		works, known = works || kind == "entry", known && kind != ""
	}
	return works, known
}

func mitigations(i *result.Inspection) []Line {
	active := 0
	var slow, strange []string
	for key, state := range i.Evidence.Facts {
		file, found := strings.CutPrefix(key, "cpu.vulnerability.")
		if !found {
			continue
		}
		works, known := atEntry(file, state)
		// On bare metal, the kernel does not attempt this one without microcode.
		if file == "tsa" && strings.Contains(state, "attempted") && !i.Virtual() {
			works = false
		}
		if works || strings.HasPrefix(state, "Mitigation") {
			active++
		}
		if works {
			slow = append(slow, file)
		}
		if !known {
			strange = append(strange, fmt.Sprintf("%s %q", file, state))
		}
	}
	slices.Sort(slow)
	slices.Sort(strange)
	switch {
	case len(slow) > 0:
		return advice{"each system call and each interrupt takes about 100 ns to 1 µs longer; Onload makes few of them",
			"if only your own programs run there, boot with mitigations=off; in any case use the same setting on all nodes that you compare"}.
			warn("", "%d in use, of which %s act at each entry to the kernel", active, strings.Join(slow, ", "))
	case len(strange) > 0:
		return unknown("", "this command does not know the kernel's words "+strings.Join(strange, ", "), "use a newer version of this command")
	}
	return good("", "%d in use, none of which acts at each entry to the kernel", active)
}
