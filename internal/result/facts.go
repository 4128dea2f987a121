package result

import "strings"

// Key is the name of a value that an agent observes.
type Key struct {
	// Name is in lower case, from the general to the particular, separated by dots; names from Linux or Onload are kept
	// unchanged. A * at its end makes it match all names with that prefix.
	Name string
	// Fingerprint is true if the values must be equal for two results to be comparable. All other keys help to explain a
	// difference.
	Fingerprint bool
	// Meaning describes the value, its unit, and where it is read.
	Meaning string
}

// Keys are the conditions of a measurement by which results are compared: the fields of Evidence, the fields of the cells, and
// Evidence.Facts. A key that is not listed here is not part of the fingerprint.
//
// "The CPU" is the CPU to which the tool was pinned, "the NIC" the interface that carries the messages. A value that cannot be
// read has no key: many files are absent in virtual machines or for virtual interfaces, or hidden from pods.
//
// The fingerprint contains the definition of the measurement, and settings that were made on purpose and change latency. It
// does not contain values that a scheduler or a device plugin assigns to each pod (the CPU, and with it its siblings and
// caches; the number of a VF is not compared at all), values that only name the place of something else, and values that the
// machine changes by itself.
var Keys = []Key{
	{"role", true, "client or server"},
	{"tool.name", true, "the tool; of the client only, like all that begins with tool or cell, but for tool.sha256"},
	{"tool.version", true, "the tool's own words for its version"},
	{"tool.sha256", false, "begin of the SHA-256 of the tool's program, which tells builds of one version apart"},
	{"cell.*", true, "cell.NAME.FIELD: what a cell consists of, durations in ns; compared where both have the cell"},
	{"agent.version", false, "commit from which the agent was built"},
	{"runtime.sandbox", true, "software that runs the container on another kernel than the node's, if that kernel shows it"},
	{"image.os", false, "distribution of the bench image (PRETTY_NAME of /etc/os-release)"},
	{"env.*", true, "env.NAME: variables of the tool that change its sockets: EF_*, VMA_*, XLIO_*, LD_PRELOAD etc."},

	{"node", true, "name of the node"},
	{"dmi.sys_vendor", true, "who made the machine (/sys/class/dmi/id)"},
	{"dmi.product_name", true, "its model"},
	{"dmi.bios_version", true, "version of its firmware"},
	{"dmi.*", false, "the board and the firmware's date and maker"},

	{"kernel.release", true, "uname -r"},
	{"kernel.version", true, "uname -v: number and kind (PREEMPT_RT) of the build"},
	{"kernel.boot-id", false, "random, new with each boot"},
	{"kernel.cmdline", false, "the whole command line, at most 2048 bytes"},
	{"kernel.arg.*", true, "kernel.arg.NAME: the arguments that change latency; set: without a value"},
	{"kernel.clocksource", true, "the clock behind clock_gettime"},
	{"kernel.clocksources", false, "those that the kernel would also take"},
	{"kernel.tainted", false, "/proc/sys/kernel/tainted, a sum of bits"},
	{"module.*", true, "module.NAME.version: version of sfc, onload and the modules that come with it"},
	{"module.srcversion.*", false, "module.srcversion.NAME: checksum of a module's sources"},
	{"module.intel_idle.max_cstate", true, "deepest C-state that intel_idle may choose"},
	{"sysctl.kernel.numa_balancing", true, "whether the kernel moves pages to the CPUs that use them"},
	{"sysctl.net.core.busy_poll", true, "µs for which poll and select poll the NIC"},
	{"sysctl.net.core.busy_read", true, "µs for which a read polls the NIC"},
	{"sysctl.net.ipv4.tcp_congestion_control", true, "congestion control of TCP"},
	{"sysctl.net.ipv4.tcp_timestamps", true, "whether TCP's segments carry timestamps"},
	{"sysctl.*", false, "sysctl.NAME: other settings of the kernel, and of this network namespace"},

	{"cpu.model", true, "model name of /proc/cpuinfo; on arm64 the numbers of its maker and design"},
	{"cpu.microcode", true, "version of the microcode"},
	{"cpu.hypervisor", true, "yes in a virtual machine, no on bare metal, as the CPU's flags, the firmware's tables and the PCI bus show"},
	{"cpu.tsc-flags", false, "what the CPU's flags say of its time stamp counter"},
	{"cpu.vulnerability.*", true, "cpu.vulnerability.NAME: how the kernel mitigates a weakness that the CPU has"},
	{"cpu.online", false, "the node's CPUs"},
	{"cpu.allowed", false, "the CPUs that the endpoint might use"},
	{"cpu.allowed-count", true, "how many these are: pods with CPUs of their own have as many as they asked for"},
	{"cpu.measuring", false, "number of the CPU"},
	{"cpu.agent", false, "number of the CPU on which the agent sleeps meanwhile"},
	{"cpu.smt.active", true, "1 when SMT is in use on the node"},
	{"cpu.smt.control", false, "on, off, forceoff or notsupported"},
	{"cpu.smt.siblings", false, "the CPUs of the CPU's core"},
	{"cpu.smt.sibling", true, "the core's other CPUs: none; own: of this endpoint; others: other containers may run there"},
	{"cpu.l3.shared", false, "the CPUs with which it shares its third-level cache"},
	{"cpu.l3.size", true, "size of that cache"},
	{"cpu.isolated", true, "whether the scheduler leaves the CPU alone (isolcpus, or an isolated cpuset): yes or no"},
	{"cpu.isolated-cpus", false, "all isolated CPUs of the node, or none"},
	{"cpu.nohz-full", true, "whether the CPU has no tick while one task runs: yes or no"},
	{"cpu.nohz-full-cpus", false, "all such CPUs of the node, or none"},
	{"cpu.governor", true, "cpufreq governor of the CPU"},
	{"cpu.freq-driver", true, "cpufreq driver"},
	{"cpu.freq-min", false, "lowest frequency that may be chosen, kHz"},
	{"cpu.freq-max", false, "highest frequency that may be chosen, kHz; the cores of one CPU may differ"},
	{"cpu.energy-preference", true, "energy_performance_preference"},
	{"cpu.pstate", true, "status of intel_pstate or amd_pstate: active, passive, guided or off"},
	{"cpu.turbo", true, "whether frequencies beyond the nominal one may be chosen: on or off"},
	{"cpu.idle-driver", true, "cpuidle driver"},
	{"cpu.idle-governor", true, "cpuidle governor"},
	{"cpu.cstates", true, "the CPU's idle states with their exit latency; those that are disabled in brackets"},
	{"cpu.cstates-entered", false, "those that the CPU entered within a second of idleness; of kubectl tailgate doctor only"},
	{"cpu.pm-qos-us", true, "exit latency that the CPU may have, µs; n/a: none at all; 0: not limited"},
	{"irq.default-affinity", false, "mask of the CPUs to which new interrupts go"},
	{"irq.on-cpu", false, "how many of the node's interrupts are directed at the CPU"},

	{"cgroup.version", false, "1 or 2: of the hierarchy that limits the endpoint's CPUs"},
	{"cgroup.cpus", false, "CPUs of the endpoint's cpuset"},
	{"cgroup.cpus-set", false, "CPUs to which the container was limited on purpose, as a CPU manager does it; none: it inherited those of its pod"},
	{"cgroup.mems", false, "NUMA nodes from which its memory may come"},
	{"cgroup.partition", false, "the scheduling partition of the cpuset: member, root or isolated"},
	{"cgroup.cpu-max", true, "CPU time that the endpoint may use in a period, µs, by the tightest limit of the cgroups that it sees: \"max 100000\" is without limit"},

	{"numa.relation", true, "local when the CPU and the NIC are on one NUMA node, or the machine has only one with CPUs; remote when not"},
	{"numa.cpu", false, "NUMA node of the CPU"},
	{"numa.cpus", false, "NUMA nodes of all CPUs that the endpoint might use"},
	{"numa.device", false, "NUMA node of the NIC"},
	{"numa.borrowed", false, "NUMA node of the device that alignWith requests"},
	{"numa.distance", false, "from the CPU's node to the NIC's; 10 is local"},
	{"numa.nodes", false, "the machine's NUMA nodes that have CPUs; 0 also if the kernel is built without NUMA"},

	{"mm.thp", false, "transparent huge pages: always, madvise or never"},
	{"mm.thp-defrag", false, "when memory is moved to make one"},
	{"mm.ksm", false, "1 when the kernel looks for equal pages"},
	{"mm.hugepages.*", false, "mm.hugepages.SIZE: number of huge pages of the node"},

	{"nic.name", true, "name of the interface in the pod"},
	{"nic.function", true, "PF, VF, SF (scalable function), PCI (PF or VF: virtual machines do not tell) or virtual (not on the PCI bus)"},
	{"nic.parent", true, "name, on the node, of the interface below one of type ipvlan, macvlan, vlan or ipoib, if the network names it; nic.port and so on are of its device"},
	{"nic.port", true, "PCI address of the PF, or of that whose VF it is"},
	{"nic.pci-id", true, "vendor:device"},
	{"nic.pci-subsystem", true, "vendor:device of the board"},
	{"nic.pcie", false, "speed and width of the PCIe link; of a PF only"},
	{"nic.driver", true, "ethtool -i"},
	{"nic.driver-version", true, "ethtool -i; kernel: the driver has no version of its own"},
	{"nic.firmware", true, "ethtool -i"},
	{"nic.firmware-variant", true, "full-feature, ultra-low-latency, packed-stream, rules-engine or dpdk; of sfc only"},
	{"nic.mtu", true, "bytes"},
	{"nic.speed", true, "Mbit/s"},
	{"nic.duplex", true, "full or half"},
	{"nic.carrier", false, "1 when the link is up"},
	{"nic.fec", true, "forward error correction in use, ethtool --show-fec"},
	{"nic.pause.*", false, "nic.pause.rx, .tx: pause frames, ethtool -a"},
	{"nic.feature.*", true, "nic.feature.NAME: on or off, ethtool -k"},
	{"nic.coalesce.*", true, "nic.coalesce.NAME: interrupt moderation, ethtool -c"},
	{"nic.ring.*", true, "nic.ring.rx, .tx: descriptors, ethtool -g"},
	{"nic.channels.*", true, "nic.channels.rx, .tx, .combined, .other: ethtool -l"},
	{"nic.private-flags", true, "flags of its own that the driver has and that are on, ethtool --show-priv-flags"},
	{"nic.timestamping", false, "where messages can be stamped, ethtool -T"},
	{"nic.hwtstamp", true, "what the NIC stamps now: numbers of tx_type and rx_filter"},
	{"nic.gro-flush-timeout", true, "ns"},
	{"nic.napi-defer-hard-irqs", true, "polls without messages before interrupts are enabled again"},
	{"nic.threaded", true, "1 when NAPI polls in threads of its own"},
	{"nic.txqueuelen", false, "packets"},
	{"nic.qdisc", true, "queueing discipline"},
	{"nic.rps", false, "CPUs to which receive packet steering moves messages, or none"},
	{"nic.irqs", false, "number of the NIC's interrupts"},
	{"nic.irq-cpus", false, "CPUs at which these are directed"},
	{"nic.irq-on-cpu", false, "whether the CPU is among them: yes or no"},

	{"onload.mapped", true, "path of the Onload library that the tool's server had mapped; of the server only"},
	{"onload.library", true, "version of the Onload library, as it reported on the tool's standard error"},
	{"onload.preload-file", true, "Onload's library in /etc/ld.so.preload of the container"},
	{"onload.setting.*", true, "onload.setting.NAME: a setting in effect, of those that the library prints with EF_CONFIG_DUMP=1"},
	{"onload.stack.*", true, "onload.stack.NAME: a setting in effect of the stack of the tool's server that is not the default of the release; of the server only"},
	{"onload.stack-interfaces", true, "architectures of the virtual interfaces of this stack, such as EF10CT, which an X4 calls Express"},
	{"onload.stack-settings", false, "how many settings of this stack were read, or why none were"},

	{"facts.omitted-fingerprint", true, "begin of the SHA-256 of those of the fingerprint that were left out"},
	{"facts.omitted", false, "number of facts that were left out because there were too many"},
}

// KeyFrequency names the frequencies of Path.
const KeyFrequency = "cpu.mhz"

// DeltaKeys are the keys of Evidence.Deltas: the growth of the kernel's counters while the endpoint's tools ran, from before a
// tool's start to after its end, summed over all cells. They are results of a run and not its conditions.
var DeltaKeys = []Key{
	{Name: "elapsed-ms", Meaning: "the time itself, warm-ups included"},
	{Name: "tool.run-delay-ns", Meaning: "time that the tool's main thread was ready to run and did not"},
	{Name: "tool.cpu-ns", Meaning: "CPU time of the tool"},
	{Name: "tool.major-faults", Meaning: "page faults of the tool that had to wait for a disk"},
	{Name: "cpu.busy-ns", Meaning: "time that any thread ran on the CPU"},
	{Name: "cpu.run-delay-ns", Meaning: "time that any thread waited for the CPU"},
	{Name: "cpu.schedules", Meaning: "how often the CPU's scheduler was called; counted while sysctl kernel.sched_schedstats is on"},
	{Name: "cpu.steal-ms", Meaning: "time that a hypervisor took from the CPU, in steps of 10 ms like the next two"},
	{Name: "cpu.irq-ms", Meaning: "time of the CPU in interrupts"},
	{Name: "cpu.softirq-ms", Meaning: "time of the CPU in softirqs"},
	{Name: "cpu.cstate.*", Meaning: "cpu.cstate.NAME: how often the CPU entered an idle state"},
	{Name: KeyFrequency, Meaning: "frequency of the CPU in MHz before and after each cell, by the time of dependent additions; not among Deltas"},
	{Name: "cpu.thermal-throttles", Meaning: "how often the CPU's core was slowed because it was hot"},
	{Name: "cgroup.throttled", Meaning: "periods at whose end a cgroup that the endpoint sees had used up its CPU time"},
	{Name: "cgroup.throttled-us", Meaning: "time that these cgroups were stopped for that"},
	{Name: "cgroup.stopped-us", Meaning: "time that the endpoint was stopped because a quota was used up, also one of a cgroup that it does not see; kernels since 6.7"},
	{Name: "cgroup.pressure-us", Meaning: "time that any thread of the endpoint waited for a CPU"},
	{Name: "irq", Meaning: "interrupts of devices on the CPU"},
	{Name: "irq.*", Meaning: "irq.NUMBER.DEVICE: those of one device; the most frequent only"},
	{Name: "interrupt.*", Meaning: "interrupt.NAME: others of the CPU, such as loc (timer) and res, cal, tlb (from CPUs)"},
	{Name: "softirq.*", Meaning: "softirq.NAME: softirqs on the CPU"},
	{Name: "nic.*", Meaning: "nic.NAME: the interface's packets, errors, drops and changes of its carrier; nic.ctpio_NAME, nic.exp_NAME: of CTPIO and of an X4's Express datapath, as its driver counts for the whole port"},
	{Name: "lo.*", Meaning: "lo.NAME: packets of the loopback interface, which only a proxy in this network namespace uses"},
	{Name: "tcp.*", Meaning: "tcp.NAME: of this network namespace, such as RetransSegs"},
	{Name: "udp.*", Meaning: "udp.NAME: of this network namespace, such as RcvbufErrors"},
	{Name: "udp6.*", Meaning: "udp6.NAME: the same over IPv6"},
	{Name: "ip.*", Meaning: "ip.NAME: of this network namespace, such as ReasmOKs; InOctets and OutOctets are bytes"},
	{Name: "ip6.*", Meaning: "ip6.NAME: the same over IPv6"},
}

// find returns the entry for a name: the entry with that name, or else the longest matching entry with a *.
func find(keys []Key, name string) (Key, bool) {
	var best Key
	for _, k := range keys {
		if k.Name == name {
			return k, true
		}
		prefix, all := strings.CutSuffix(k.Name, "*")
		if all && strings.HasPrefix(name, prefix) && len(k.Name) > len(best.Name) {
			best = k
		}
	}
	return best, best.Name != ""
}

// FindKey returns the entry for the key of a condition, and whether there is one.
func FindKey(name string) (Key, bool) { return find(Keys, name) }

// FindDeltaKey returns the entry for a key of Evidence.Deltas, and whether there is one.
func FindDeltaKey(name string) (Key, bool) { return find(DeltaKeys, name) }
