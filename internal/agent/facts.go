package agent

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"

	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

const (
	// maxValue bounds the value of a fact, and maxCmdline the kernel's command line, in bytes.
	maxValue   = 512
	maxCmdline = 2048
	maxKey     = 128     // bytes of a key, which may come from the environment
	maxFacts   = 8 << 10 // bytes of all facts together, as JSON
	none       = "none"  // the value of a list that was read and is empty
)

// facts holds conditions by the keys of result.Keys, as far as they could be read.
type facts map[string]string

func (f facts) set(key, value string) { f.setUpTo(maxValue, key, value) }

func (f facts) setUpTo(limit int, key, value string) {
	if value = line(value, limit); value != "" && len(key) <= maxKey {
		f[key] = value
	}
}

// line returns at most limit bytes in one line; a cut one ends in a digest, and still differs.
func line(value string, limit int) string {
	value = text.Line(value)
	if len(value) <= limit {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	end := " " + hex.EncodeToString(sum[:4])
	return text.Shorten(value, limit-len(end)) + end
}

// bounded leaves out facts that make the evidence too long, those of the fingerprint last.
func (f facts) bounded(limit int) facts {
	keys := slices.SortedFunc(maps.Keys(f), result.CompareKeys)
	kept, size, omitted := facts{}, 0, 0
	// Fingerprints that differ must not look equal: a digest of omitted facts remains.
	missing := sha256.New()
	for _, key := range keys {
		// Four quotes, a colon and a comma.
		if size += len(key) + len(f[key]) + 6; size > limit {
			if k, _ := result.FindKey(key); k.Fingerprint {
				fmt.Fprintf(missing, "%s=%s\n", key, f[key])
				kept.set("facts.omitted-fingerprint", hex.EncodeToString(missing.Sum(nil)[:8]))
			}
			omitted++
			continue
		}
		kept[key] = f[key]
	}
	if omitted > 0 {
		kept.set("facts.omitted", strconv.Itoa(omitted))
	}
	return kept
}

func (h host) facts(cpu int, own []int, iface net.Interface, environ []string) facts {
	f, in := facts{}, place(cpu, iface.Name)
	for key, path := range result.Files {
		f.set(key, h.read(in.Replace(path)))
	}
	h.machineFacts(f)
	h.cpuFacts(f, cpu, own)
	h.idleFacts(f, cpu)
	h.cgroupFacts(f)
	h.nicFacts(f, cpu, iface, environ)
	environmentFacts(f, environ)
	file := "etc/ld.so.preload"
	if h.pid != 0 {
		file = h.proc("root/" + file)
	}
	if !h.node { // whose files a link of the container could name
		f.set("preload-file", strings.Join(preloads(h.read(file)), " "))
	}
	return f
}

func place(cpu int, iface string) *strings.Replacer {
	return strings.NewReplacer("{cpu}", strconv.Itoa(cpu), "{iface}", iface)
}

func (h host) machineFacts(f facts) {
	var numa []int
	for _, node := range h.cpuNUMANodes() {
		numa = append(numa, int(node))
	}
	f.set("numa.nodes", cpuset.New(numa...).String())
	present, _ := result.ParseCPUs(h.read("sys/devices/system/cpu/present"))
	if online, err := result.ParseCPUs(h.read("sys/devices/system/cpu/online")); err == nil {
		f.set("cpu.offline", present.Difference(online).String())
	}
	f.set("runtime.sandbox", h.sandbox())
	for _, key := range []string{"mm.thp", "mm.thp-defrag"} {
		f.set(key, chosen(f[key]))
	}
	cmdline := h.read("proc/cmdline")
	f.setUpTo(maxCmdline, "kernel.cmdline", cmdline)
	for name, value := range kernelArgs(cmdline) {
		if module, _, _ := strings.Cut(name, "."); slices.Contains(latencyArgs, name) || slices.Contains(latencyArgs, module+".") {
			f.set("kernel.arg."+name, value)
		}
	}
}

func chosen(choices string) string {
	_, after, _ := strings.Cut(choices, "[")
	if word, _, ok := strings.Cut(after, "]"); ok {
		return word
	}
	return choices
}

var argument = regexp.MustCompile(`(?:"[^"]*"?|[^"\s])+`)

// kernelArgs parses as the kernel does; what follows -- is for init. Repeated values are joined.
func kernelArgs(cmdline string) map[string]string {
	args := map[string]string{}
	for _, word := range argument.FindAllString(cmdline, -1) {
		if word == "--" {
			break
		}
		name, value, valued := strings.Cut(word, "=")
		name, value = strings.ReplaceAll(strings.Trim(name, `"`), "-", "_"), strings.Trim(value, `"`)
		if !valued {
			value = "set"
		}
		if before, ok := args[name]; ok {
			value = before + " " + value
		}
		args[name] = value
	}
	return args
}

// latencyArgs are the kernel's arguments that affect latency; with a final dot, a module's.
var latencyArgs = []string{
	"isolcpus", "nohz", "nohz_full", "rcu_nocbs", "rcu_nocb_poll", "kthread_cpus", "irqaffinity", "acpi_irq_nobalance",
	"threadirqs", "skew_tick", "highres", "preempt", "nosmt", "maxcpus", "nr_cpus", "possible_cpus", "numa", "acpi", "numa_balancing", "psi",
	"idle", "processor.max_cstate", "intel_idle.", "cpuidle.", "intel_pstate", "amd_pstate", "amd_prefcore", "cpufreq.",
	"mitigations", "pti", "nopti", "kpti", "nospectre_v1", "nospectre_v2", "spectre_v2", "spectre_v2_user", "spectre_bhi",
	"spec_store_bypass_disable", "l1tf", "mds", "tsx", "tsx_async_abort", "mmio_stale_data", "retbleed",
	"gather_data_sampling", "reg_file_data_sampling", "srbds", "spec_rstack_overflow",
	"clocksource", "tsc", "hpet", "nowatchdog", "nosoftlockup", "nmi_watchdog", "watchdog_thresh", "mce", "audit", "selinux",
	"iommu", "intel_iommu", "amd_iommu", "iommu.", "pcie_aspm", "pcie_port_pm", "pci", "transparent_hugepage",
	"rcupdate.", "rcutree.", "workqueue.", "onload.", "sfc.", "sfc_resource.",
}

func (h host) cpuFacts(f facts, cpu int, own []int) {
	dir := fmt.Sprintf("sys/devices/system/cpu/cpu%d/", cpu)
	f.set("cpu.microcode", h.cpuInfo(cpu, "microcode"))
	f.set("cpu.core-type", h.coreType(cpu))
	f.set("numa.packages", h.packages(cpu))
	f.set("cpu.pstate", h.either("sys/devices/system/cpu/intel_pstate/status", "sys/devices/system/cpu/amd_pstate/status"))
	switch boost := h.either("sys/devices/system/cpu/cpufreq/boost", dir+"cpufreq/boost"); {
	case h.read("sys/devices/system/cpu/intel_pstate/no_turbo") == "0" || boost == "1":
		f.set("cpu.turbo", "on")
	case h.read("sys/devices/system/cpu/intel_pstate/no_turbo") == "1" || boost == "0":
		f.set("cpu.turbo", "off")
	}

	f.set("cpu.hypervisor", h.hypervisor(f, cpu))
	for _, file := range h.glob("sys/devices/system/cpu/vulnerabilities/*") {
		if state := h.read(file); state != "Not affected" {
			f.set("cpu.vulnerability."+filepath.Base(file), state)
		}
	}
	h.cpuList(f, "cpu.isolated", "sys/devices/system/cpu/isolated", cpu)
	h.cpuList(f, "cpu.nohz-full", "sys/devices/system/cpu/nohz_full", cpu)

	if len(own) > 0 {
		f.set("cpu.allowed-count", strconv.Itoa(len(own)))
	}
	if siblings := h.siblings(cpu); siblings != nil {
		f.set("cpu.smt.sibling", sibling(cpu, siblings, own))
	}
	for _, cache := range h.glob(dir + "cache/index*") {
		if h.read(filepath.Join(cache, "level")) == "3" {
			f.set("cpu.l3.shared", h.read(filepath.Join(cache, "shared_cpu_list")))
			f.set("cpu.l3.size", h.read(filepath.Join(cache, "size")))
		}
	}
	if irqs := h.directed(cpu); len(irqs) > 0 {
		f.set("irq.on-cpu", strconv.Itoa(len(irqs)))
	}
}

// virtual are the makers and models in the firmware's tables that only virtual machines have.
var virtual = []string{
	"QEMU", "KVM", "KubeVirt", "oVirt", "RHEV", "OpenStack", "Nutanix AHV", "VMware", "VMW", "innotek GmbH", "VirtualBox", "Xen", "Bochs", "Parallels",
	"BHYVE", "Virtual Machine", "Apple Virtualization", "Firecracker",
}

// clouds have virtual machines unless the model says metal. Where a CPU has flags, these decide.
var clouds = []string{
	"Google Google Compute Engine", "Alibaba Cloud", "Huawei HUAWEICLOUD", "Huawei OpenStack", "Huawei Cloud", "Tencent Cloud", "DigitalOcean", "Hetzner", "Scaleway", "Vultr", "Akamai", "Linode",
	"UpCloud", "Yandex", "OVHcloud",
}

// virtualVendors make devices of virtual machines only. Real cards may emulate virtio devices.
var virtualVendors = []string{"0x1b36", "0x15ad", "0x80ee", "0x5853"}

// hypervisor returns yes, no, or nothing. Only x86 has the flag, which a hypervisor may hide.
func (h host) hypervisor(f facts, cpu int) string {
	flags := strings.Fields(h.cpuInfo(cpu, "flags"))
	words := []string{f["dmi.sys_vendor"], f["dmi.product_name"], f["dmi.bios_vendor"], f["dmi.board_vendor"]}
	// The host bridge of QEMU's machines has the vendor of virtio as its subsystem.
	bridge, vendors := h.read("sys/bus/pci/devices/0000:00:00.0/subsystem_vendor"), text.Of(h.glob("sys/bus/pci/devices/*/vendor"), h.read)
	switch {
	case slices.Contains(flags, "hypervisor"),
		slices.ContainsFunc(words, func(word string) bool {
			return slices.ContainsFunc(virtual, func(v string) bool { return strings.HasPrefix(word, v) })
		}),
		words[0] == "Amazon EC2" && !strings.Contains(words[1], ".metal"),
		h.exists("sys/firmware/devicetree/base/hypervisor"), h.exists("proc/device-tree/hypervisor"), h.exists("sys/bus/vmbus"),
		h.read("sys/hypervisor/type") != "" && h.read("sys/hypervisor/guest_type") != "Dom0",
		strings.Contains(h.read("proc/sysinfo"), "VM00 "),
		bridge == "0x1af4", slices.ContainsFunc(vendors, func(v string) bool { return slices.Contains(virtualVendors, v) }):
		return yesNo(true)
	case len(flags) > 0:
		return yesNo(false)
	case !strings.Contains(words[1], "metal") && slices.ContainsFunc(clouds, func(v string) bool { return strings.HasPrefix(words[0]+" "+words[1], v) }):
		return yesNo(true)
	}
	return ""
}

// cpuInfo returns a CPU's value in /proc/cpuinfo, or the first one if it does not list CPUs.
func (h host) cpuInfo(cpu int, name string) string {
	file, err := os.Open(filepath.Join(h.root, "proc/cpuinfo"))
	if err != nil {
		return ""
	}
	defer file.Close()
	first, of := "", ""
	for lines := bufio.NewScanner(file); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		switch key, value = strings.TrimSpace(key), strings.TrimSpace(value); {
		case key == "processor":
			of = value
		case key != name:
		case of == strconv.Itoa(cpu):
			return value
		default:
			first = cmp.Or(first, value)
		}
	}
	return first
}

// coreType tells cores of a machine apart: Intel's by their counters, arm64's by capacity to 1024.
func (h host) coreType(cpu int) string {
	for _, path := range h.glob("sys/devices/cpu_*/cpus") {
		if cpus, err := result.ParseCPUs(h.read(path)); err == nil && cpus.Contains(cpu) {
			return strings.TrimPrefix(filepath.Base(filepath.Dir(path)), "cpu_")
		}
	}
	if h.cpuInfo(cpu, "CPU part") == "" {
		return ""
	}
	return h.read(fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpu_capacity", cpu))
}

// cpuModel returns the CPU's name, the s390x machine, or the numbers of maker and design.
func (h host) cpuModel(cpu int) string {
	info := func(name string) string { return h.cpuInfo(cpu, name) }
	if name := cmp.Or(info("model name"), info("Model Name"), info("cpu")); name != "" {
		return name
	}
	if _, machine, ok := strings.Cut(info("processor 0"), "machine = "); ok {
		return "machine " + machine
	}
	var parts []string
	for _, name := range []string{"CPU implementer", "CPU part", "CPU variant", "CPU revision", "mvendorid", "marchid", "mimpid"} {
		if value := info(name); value != "" {
			parts = append(parts, strings.TrimPrefix(name, "CPU ")+" "+value)
		}
	}
	return strings.Join(parts, " ")
}

func (h host) cpuList(f facts, key, path string, cpu int) {
	data, err := h.content(path)
	if err != nil {
		return
	}
	list := strings.TrimSpace(string(data))
	if list == "" || list == "(null)" { // some kernels print an empty list so
		f.set(key+"-cpus", none)
		f.set(key, yesNo(false))
		return
	}
	if cpus, err := result.ParseCPUs(list); err == nil {
		f.set(key+"-cpus", list)
		f.set(key, yesNo(cpus.Contains(cpu)))
	}
}

// sibling returns whose the other CPUs of a core are: "own", "others", or none.
func sibling(cpu int, siblings, own []int) string {
	others := slices.DeleteFunc(slices.Clone(siblings), func(c int) bool { return c == cpu })
	switch {
	case len(others) == 0:
		return none
	case !slices.ContainsFunc(others, func(c int) bool { return !slices.Contains(own, c) }):
		return "own"
	}
	return "others"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// affinity returns the CPUs to which an interrupt is, or else may be, delivered.
func (h host) affinity(irq string) string {
	effective, allowed := h.read(filepath.Join(irq, "effective_affinity_list")), h.read(filepath.Join(irq, "smp_affinity_list"))
	now, err := result.ParseCPUs(effective)
	may, errAllowed := result.ParseCPUs(allowed)
	if err != nil || errAllowed == nil && now.Intersection(may).IsEmpty() {
		return allowed
	}
	return effective
}

func (h host) idleFacts(f facts, cpu int) {
	idle := "sys/devices/system/cpu/cpuidle/"
	f.set("cpu.idle-governor", h.either(idle+"current_governor_ro", idle+"current_governor"))
	var states []string
	for _, state := range h.idleStates(cpu) {
		text := h.read(filepath.Join(state, "name"))
		if latency := h.read(filepath.Join(state, "latency")); latency != "" {
			text += " " + latency + "us"
		}
		if h.read(filepath.Join(state, "disable")) == "1" {
			text = "[" + text + "]"
		}
		states = append(states, text)
	}
	f.set("cpu.cstates", strings.Join(states, ", "))
}

func (h host) idleStates(cpu int) []string {
	states := h.glob(fmt.Sprintf("sys/devices/system/cpu/cpu%d/cpuidle/state[0-9]*", cpu))
	// The numbers have no leading zeros.
	slices.SortFunc(states, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
	return states
}

// The variables that affect a tool's sockets (Onload, VMA, XLIO) or its libraries, and those that
// are options, which only a spec may set: sfnt tools read SFNT_OPTS first.
var (
	optionPrefixes = []string{"SFNT", "NETPERF", "SOCKPERF"}
	toolPrefixes   = append([]string{"EF", "VMA", "XLIO", "LD", "MALLOC", "GLIBC"}, optionPrefixes...)
)

func begins(name string, prefixes []string) bool {
	prefix, _, long := strings.Cut(name, "_")
	return long && slices.Contains(prefixes, prefix)
}

func environmentFacts(f facts, environ []string) {
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !begins(name, toolPrefixes) {
			continue
		}
		if value == "" {
			value = `""` // set, but empty
		}
		f.set("env."+name, value)
	}
}

// programDigest returns the beginning of the SHA-256 of a program in PATH, in hex.
func programDigest(program string) string {
	path, err := exec.LookPath(program)
	if err != nil {
		return ""
	}
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, file); err != nil {
		return ""
	}
	return hex.EncodeToString(digest.Sum(nil)[:8])
}
