package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/internal/result"
)

// tuned holds further files of server2: a bare-metal machine that was set up for low latency, seen from a pod.
var tuned = map[string]string{
	"proc/cmdline":                        "BOOT_IMAGE=/vmlinuz root=UUID=1 isolcpus=managed_irq,domain,2-3 nohz_full=2-3 rcu-nocbs=2-3 intel_idle.max_cstate=1 nosmt dyndbg=\"file x +p\" pci=realloc pci=nomsi -- idle=poll\n",
	"proc/cpuinfo":                        "processor\t: 0\nmodel name\t: AMD EPYC 9374F 32-Core Processor\nmicrocode\t: 0xa101148\nflags\t\t: fpu constant_tsc nonstop_tsc rdtscp\n",
	"proc/sys/kernel/version":             "#1 SMP PREEMPT_RT Debian 6.1.140-1 (2025-05-22)\n",
	"proc/sys/kernel/tainted":             "4096\n",
	"proc/sys/vm/stat_interval":           "120\n",
	"proc/sys/net/ipv4/tcp_rmem":          "4096\t131072\t6291456\n",
	"proc/irq/default_smp_affinity":       "03\n",
	"proc/irq/40/effective_affinity_list": "2\n", "proc/irq/40/smp_affinity_list": "0-7\n",
	"proc/irq/41/effective_affinity_list": "1\n",
	// Moved away from CPU 2, and not raised since.
	"proc/irq/43/effective_affinity_list": "2\n", "proc/irq/43/smp_affinity_list": "6\n",
	"proc/irq/42/smp_affinity_list":       "0-3\n",
	"proc/self/cgroup":                    "0::/\n",
	"proc/self/mountinfo":                 "30 25 0:26 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n",
	"sys/fs/cgroup/cpuset.cpus.effective": "2-3\n", "sys/fs/cgroup/cpuset.mems.effective": "1\n",
	"sys/fs/cgroup/cpu.max":          "max 100000\n",
	"sys/devices/system/node/online": "0-2\n", "sys/devices/system/node/node1/distance": "32 10 20\n",
	"sys/devices/system/cpu/isolated": "2-3\n", "sys/devices/system/cpu/nohz_full": "(null)\n",
	"sys/devices/system/cpu/smt/active": "1\n", "sys/devices/system/cpu/smt/control": "on\n",
	"sys/devices/system/cpu/cpu2/cpufreq/scaling_governor": "performance\n", "sys/devices/system/cpu/cpu2/cpufreq/scaling_driver": "acpi-cpufreq\n",
	"sys/devices/system/cpu/cpufreq/boost":            "0\n",
	"sys/devices/system/cpu/cpu2/cpuidle/state0/name": "POLL\n", "sys/devices/system/cpu/cpu2/cpuidle/state0/latency": "0\n", "sys/devices/system/cpu/cpu2/cpuidle/state0/disable": "0\n",
	"sys/devices/system/cpu/cpu2/cpuidle/state10/name": "C6\n", "sys/devices/system/cpu/cpu2/cpuidle/state10/latency": "133\n", "sys/devices/system/cpu/cpu2/cpuidle/state10/disable": "1\n",
	"sys/devices/system/cpu/cpu2/cpuidle/state9/name":                 "C1\n",
	"sys/devices/system/cpu/cpuidle/current_driver":                   "acpi_idle\n",
	"sys/devices/system/cpu/cpu2/cache/index2/level":                  "2\n",
	"sys/devices/system/cpu/cpu2/cache/index3/level":                  "3\n",
	"sys/devices/system/cpu/cpu2/cache/index3/size":                   "32768K\n",
	"sys/devices/system/cpu/vulnerabilities/meltdown":                 "Not affected\n",
	"sys/devices/system/cpu/vulnerabilities/spectre_v2":               "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional\n",
	"sys/kernel/mm/transparent_hugepage/enabled":                      "always [madvise] never\n",
	"sys/module/onload/version":                                       "9.0.2.140\n",
	"sys/module/sfc/version":                                          "6.1.2.1012\n",
	"sys/module/sfc/srcversion":                                       "5C2E2DD9E0B5D0A\n",
	"sys/class/dmi/id/product_name":                                   "ProLiant DL365 Gen11\n",
	"sys/devices/pci0000:60/0000:60:01.0/0000:65:02.3/physfn":         "->../0000:65:00.1",
	"sys/devices/pci0000:60/0000:60:01.0/0000:65:00.1/sriov_totalvfs": "8\n",
	"sys/devices/pci0000:60/0000:60:01.0/0000:65:02.3/vendor":         "0x1924\n", "sys/devices/pci0000:60/0000:60:01.0/0000:65:02.3/device": "0x1b03\n",
	"sys/devices/pci0000:60/0000:60:01.0/0000:65:02.3/current_link_speed": "Unknown\n", "sys/devices/pci0000:60/0000:60:01.0/0000:65:02.3/current_link_width": "0\n",
	"sys/devices/pci0000:60/0000:60:01.0/0000:65:02.3/msi_irqs/40": "msix\n", "sys/devices/pci0000:60/0000:60:01.0/0000:65:02.3/msi_irqs/41": "msix\n",
	"sys/devices/pci0000:60/0000:60:01.0/0000:65:02.3/net/net1/speed": "10000\n", "sys/devices/pci0000:60/0000:60:01.0/0000:65:02.3/net/net1/tx_queue_len": "1000\n",
	"sys/devices/pci0000:60/0000:60:01.0/0000:65:02.3/net/net1/queues/rx-0/rps_cpus": "00000000,00000000\n",
	"sys/class/net/eth0/speed": "-1\n", "sys/class/net/eth0/queues/rx-0/rps_cpus": "3\n", "sys/class/net/eth0/queues/rx-1/rps_cpus": "3\n",
}

// tunedServer returns the files of server2 and of tuned.
func tunedServer() map[string]string {
	files := maps.Clone(server2)
	maps.Copy(files, tuned)
	return files
}

func TestFacts(t *testing.T) {
	environ := []string{"PATH=/bin", "EF_POLL_USEC=100000", "EF_EMPTY=", "LD_PRELOAD=libonload.so", "EFX=1", "TAILGATE_TASK={}"}
	got := fakeRoot(t, tunedServer()).gather(2, []int{2, 3}, net.Interface{Name: "net1"}, environ).Facts
	want := map[string]string{
		"cgroup.cpu-max": "max 100000", "cgroup.cpus": "2-3", "cgroup.cpus-set": "none", "cgroup.mems": "1", "cgroup.version": "2",
		"cpu.allowed-count": "2", "cpu.cstates": "POLL 0us, C1, [C6 133us]", "cpu.freq-driver": "acpi-cpufreq", "cpu.governor": "performance",
		"cpu.hypervisor": "no", "cpu.idle-driver": "acpi_idle", "cpu.isolated": "yes", "cpu.isolated-cpus": "2-3", "cpu.l3.size": "32768K",
		"cpu.microcode": "0xa101148", "cpu.nohz-full": "no", "cpu.nohz-full-cpus": "none", "cpu.smt.active": "1", "cpu.smt.control": "on",
		"cpu.smt.sibling": "others", "cpu.turbo": "off",
		"cpu.vulnerability.spectre_v2": "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional",
		"dmi.product_name":             "ProLiant DL365 Gen11",
		"env.EF_EMPTY":                 `""`, "env.EF_POLL_USEC": "100000", "env.LD_PRELOAD": "libonload.so",
		"irq.default-affinity": "03", "irq.on-cpu": "2",
		"kernel.arg.intel_idle.max_cstate": "1", "kernel.arg.isolcpus": "managed_irq,domain,2-3", "kernel.arg.nohz_full": "2-3",
		"kernel.arg.nosmt": "set", "kernel.arg.pci": "realloc nomsi", "kernel.arg.rcu_nocbs": "2-3",
		"kernel.cmdline": strings.TrimSpace(tuned["proc/cmdline"]), "kernel.tainted": "4096",
		"kernel.version":        "#1 SMP PREEMPT_RT Debian 6.1.140-1 (2025-05-22)",
		"mm.thp":                "madvise",
		"module.onload.version": "9.0.2.140", "module.sfc.version": "6.1.2.1012", "module.srcversion.sfc": "5C2E2DD9E0B5D0A",
		"nic.function": "VF", "nic.irq-cpus": "1-2", "nic.irq-on-cpu": "yes", "nic.irqs": "2", "nic.pci-id": "1924:1b03",
		"nic.port": "0000:65:00.1", "nic.rps": "none", "nic.speed": "10000", "nic.txqueuelen": "1000",
		"numa.nodes":               "0-1",
		"sysctl.net.ipv4.tcp_rmem": "4096 131072 6291456", "sysctl.vm.stat_interval": "120",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
}

// A fact that a machine does not show is absent: only what the agent knows by itself remains.
func TestFactsOfAMachineThatReportsNothing(t *testing.T) {
	got := fakeRoot(t, nil).gather(2, []int{2}, net.Interface{Name: "net1"}, nil).Facts
	if diff := cmp.Diff(map[string]string{"cpu.allowed-count": "1"}, got); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
}

func TestFactsOfOneFile(t *testing.T) {
	cpu := "sys/devices/system/cpu/"
	pf := "sys/devices/pci0000:60/0000:60:01.0/0000:65:02.3/"
	cases := map[string]struct {
		// files replace files of the tuned server; an empty one is left out.
		files map[string]string
		iface string
		key   string
		want  string
	}{
		"turbo of intel_pstate":           {files: map[string]string{cpu + "intel_pstate/no_turbo": "0\n", cpu + "cpufreq/boost": ""}, key: "cpu.turbo", want: "on"},
		"no turbo of intel_pstate":        {files: map[string]string{cpu + "intel_pstate/no_turbo": "1\n", cpu + "cpufreq/boost": ""}, key: "cpu.turbo", want: "off"},
		"boost of one CPU":                {files: map[string]string{cpu + "cpu2/cpufreq/boost": "1\n", cpu + "cpufreq/boost": ""}, key: "cpu.turbo", want: "on"},
		"unknown turbo":                   {files: map[string]string{cpu + "cpufreq/boost": ""}, key: "cpu.turbo"},
		"amd_pstate":                      {files: map[string]string{cpu + "amd_pstate/status": "active\n"}, key: "cpu.pstate", want: "active"},
		"a virtual machine":               {files: map[string]string{"proc/cpuinfo": "flags : tsc hypervisor\n"}, key: "cpu.hypervisor", want: "yes"},
		"an arm64 guest of a cloud":       {files: map[string]string{"proc/cpuinfo": "Features : fp asimd\n", "sys/class/dmi/id/sys_vendor": "Google\n", "sys/class/dmi/id/product_name": "Google Compute Engine\n"}, key: "cpu.hypervisor", want: "yes"},
		"an arm64 machine of a cloud":     {files: map[string]string{"proc/cpuinfo": "Features : fp asimd\n", "sys/class/dmi/id/sys_vendor": "Alibaba Cloud\n", "sys/class/dmi/id/product_name": "ecs.ebmg8y.metal\n"}, key: "cpu.hypervisor"},
		"two nodes with the same CPUs":    {files: map[string]string{"sys/devices/system/node/node0/cpulist": "0-3\n", "sys/devices/system/node/node1/cpulist": "0-3\n"}, key: "numa.nodes"},
		"CPUs that are offline":           {files: map[string]string{"sys/devices/system/cpu/present": "0-39\n", "sys/devices/system/cpu/online": "0-19\n"}, key: "cpu.offline", want: "20-39"},
		"a processor that has no flags":   {files: map[string]string{"proc/cpuinfo": "Features : fp asimd\n"}, key: "cpu.hypervisor"},
		"no CPU is isolated":              {files: map[string]string{cpu + "isolated": "\n"}, key: "cpu.isolated", want: "no"},
		"another CPU is isolated":         {files: map[string]string{cpu + "isolated": "4-7\n"}, key: "cpu.isolated", want: "no"},
		"an invalid list":                 {files: map[string]string{cpu + "isolated": "most\n"}, key: "cpu.isolated"},
		"a kernel without nohz_full":      {files: map[string]string{cpu + "nohz_full": ""}, key: "cpu.nohz-full"},
		"a core without another CPU":      {files: map[string]string{cpu + "cpu2/topology/thread_siblings_list": "2\n"}, key: "cpu.smt.sibling", want: "none"},
		"a core that is the endpoint's":   {files: map[string]string{cpu + "cpu2/topology/thread_siblings_list": "2-3\n"}, key: "cpu.smt.sibling", want: "own"},
		"unknown core":                    {files: map[string]string{cpu + "cpu2/topology/thread_siblings_list": ""}, key: "cpu.smt.sibling"},
		"a PF":                            {files: map[string]string{pf + "physfn": "", pf + "sriov_totalvfs": "8\n"}, key: "nic.function", want: "PF"},
		"a PF is its own port":            {files: map[string]string{pf + "physfn": ""}, key: "nic.port", want: "0000:65:02.3"},
		"a PF without VFs":                {files: map[string]string{pf + "physfn": ""}, key: "nic.function", want: "PF"},
		"a function in a virtual machine": {files: map[string]string{pf + "physfn": "", "proc/cpuinfo": "flags : hypervisor\n"}, key: "nic.function", want: "PCI"},
		"unknown port":                    {files: map[string]string{pf + "physfn": "", "proc/cpuinfo": "flags : hypervisor\n"}, key: "nic.port"},
		"a PF in a virtual machine":       {files: map[string]string{pf + "physfn": "", pf + "sriov_totalvfs": "8\n", "proc/cpuinfo": "flags : hypervisor\n"}, key: "nic.port", want: "0000:65:02.3"},
		"a PF's link":                     {files: map[string]string{pf + "current_link_speed": "8.0 GT/s PCIe\n", pf + "current_link_width": "8\n"}, key: "nic.pcie", want: "8.0 GT/s PCIe x8"},
		"a virtual interface":             {iface: "eth0", key: "nic.function", want: "virtual"},
		"a virtual interface has no port": {iface: "eth0", key: "nic.port"},
		"an interface that is not there":  {iface: "eth9", key: "nic.function"},
		"a speed that is unknown":         {iface: "eth0", key: "nic.speed"},
		"packets that are steered":        {iface: "eth0", key: "nic.rps", want: "3"},
		"a quota of version 1":            {files: map[string]string{"proc/self/cgroup": "1:cpu,cpuacct:/\n", "proc/self/mountinfo": "1 2 0:1 / /cg rw - cgroup c rw,cpu,cpuacct\n", "cg/cpu.cfs_quota_us": "200000\n", "cg/cpu.cfs_period_us": "100000\n"}, key: "cgroup.cpu-max", want: "200000 100000"},
		"no quota of version 1":           {files: map[string]string{"proc/self/cgroup": "1:cpu:/\n", "proc/self/mountinfo": "1 2 0:1 / /cg rw - cgroup c rw,cpu\n", "cg/cpu.cfs_quota_us": "-1\n", "cg/cpu.cfs_period_us": "100000\n"}, key: "cgroup.cpu-max", want: "max 100000"},
		"a cpuset of version 1":           {files: map[string]string{"proc/self/cgroup": "1:cpuset:/\n", "proc/self/mountinfo": "1 2 0:1 / /cg rw - cgroup c rw,cpuset\n", "cg/cpuset.effective_cpus": "5\n"}, key: "cgroup.cpus", want: "5"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			files := tunedServer()
			for path, content := range c.files {
				if files[path] = content; content == "" {
					delete(files, path)
				}
			}
			iface := c.iface
			if iface == "" {
				iface = "net1"
			}
			if got := fakeRoot(t, files).gather(2, []int{2, 3}, net.Interface{Name: iface}, nil).Facts[c.key]; got != c.want {
				t.Errorf("%s is %q, want %q", c.key, got, c.want)
			}
		})
	}
}

// Every fact that the agents gather is documented in result.Keys.
func TestEveryFactIsDocumented(t *testing.T) {
	known := func(key string) {
		t.Helper()
		if _, ok := result.FindKey(key); !ok {
			t.Errorf("result.Keys does not have %s", key)
		}
	}
	loopback, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range []result.Evidence{
		fakeRoot(t, tunedServer()).gather(2, []int{2, 3}, net.Interface{Name: "net1"}, []string{"EF_A=1"}),
		host{root: "/"}.gather(aCPU(t), nil, *loopback, nil),
	} {
		for key := range e.Facts {
			known(key)
		}
	}
	for _, key := range []string{
		"nic.coalesce.adaptive-rx", "nic.ring.rx", "nic.channels.other", "nic.pause.tx", "nic.private-flags", "nic.hwtstamp", "nic.fec", // of NICs only
	} {
		known(key)
	}
	w := host{root: "/"}.watch("lo", aCPU(t))
	w.begin()
	w.end()
	for key := range w.deltas() {
		if _, ok := result.FindDeltaKey(key); !ok {
			t.Errorf("result.DeltaKeys does not have %s", key)
		}
	}
}

// Some facts are certain on any machine that runs the tests.
func TestFactsOfThisMachine(t *testing.T) {
	loopback, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	var uname unix.Utsname
	if err := unix.Uname(&uname); err != nil {
		t.Fatal(err)
	}
	h := host{root: "/"}
	cpu := aCPU(t)
	e := h.gather(cpu, []int{cpu}, *loopback, []string{"EF_POLL_USEC=1"})
	cmdline, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"kernel.version":    unix.ByteSliceToString(uname.Version[:]),
		"kernel.cmdline":    line(string(cmdline), maxCmdline),
		"cpu.allowed-count": "1",
		"env.EF_POLL_USEC":  "1",
		"nic.function":      "virtual",
		"nic.carrier":       "1",
		// The kernel's own answers to ethtool -k and to a request by netlink.
		"nic.feature.tx-tcp-segmentation": "on",
		"nic.qdisc":                       "noqueue",
	} {
		if got := e.Facts[key]; got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if e.Kernel != unix.ByteSliceToString(uname.Release[:]) {
		t.Errorf("kernel %q, want %q", e.Kernel, unix.ByteSliceToString(uname.Release[:]))
	}
	// The cgroup's CPUs include those that a process may use that was not pinned.
	if list := e.Facts["cgroup.cpus"]; list != "" {
		if cpus, err := result.ParseCPUs(list); err != nil || !cpus.Contains(cpu) {
			t.Errorf("the cgroup's CPUs are %q, without %d", list, cpu)
		}
	}
}

func TestKernelArgs(t *testing.T) {
	cases := map[string]struct {
		cmdline string
		want    map[string]string
	}{
		"nothing":                         {"", map[string]string{}},
		"names and values":                {"quiet idle=poll  x.y=1,2\n", map[string]string{"quiet": "set", "idle": "poll", "x.y": "1,2"}},
		"hyphens are underscores":         {"rcu-nocbs=1-3 a_b=c-d", map[string]string{"rcu_nocbs": "1-3", "a_b": "c-d"}},
		"quotes keep spaces":              {`dyndbg="file a +p" b`, map[string]string{"dyndbg": "file a +p", "b": "set"}},
		"quotes around all":               {`"a=b c" d`, map[string]string{"a": "b c", "d": "set"}},
		"a quote that does not end":       {`a="b c`, map[string]string{"a": "b c"}},
		"repeated":                        {"hugepages=1 x hugepages=2", map[string]string{"hugepages": "1 2", "x": "set"}},
		"an empty value":                  {"a=", map[string]string{"a": ""}},
		"a value with an equals sign":     {"root=UUID=1", map[string]string{"root": "UUID=1"}},
		"arguments after -- are for init": {"a -- idle=poll", map[string]string{"a": "set"}},
		"two hyphens within a word":       {"a--b", map[string]string{"a__b": "set"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, kernelArgs(c.cmdline)); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}

func FuzzKernelArgs(f *testing.F) {
	f.Add(tuned["proc/cmdline"])
	f.Add("a=\"b\u00a0\" \"\" = == --")
	f.Fuzz(func(t *testing.T, cmdline string) {
		for name := range kernelArgs(cmdline) {
			if strings.ContainsAny(name, "=-") {
				t.Errorf("an argument is called %q", name)
			}
		}
	})
}

func TestLine(t *testing.T) {
	long := strings.Repeat("é", 300)
	cases := map[string]struct{ value, want string }{
		"spaces and ends of lines": {" a\tb\n\x00c ", "a b c"},
		"not UTF-8":                {"a\xffb", "a?b"},
		"one that fits":            {strings.Repeat("x", 512), strings.Repeat("x", 512)},
		"one that does not":        {long, strings.Repeat("é", 250) + "… 7250b666"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := line(c.value, 512); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	if line(long+"a", 512) == line(long+"b", 512) {
		t.Error("two values that differ at their ends became one")
	}
}

func FuzzLine(f *testing.F) {
	f.Add("a\tb")
	f.Add(strings.Repeat("é", 300))
	f.Fuzz(func(t *testing.T, value string) {
		got := line(value, 64)
		if len(got) > 64 || strings.ContainsAny(got, "\n\t\x00") || line(got, 64) != got {
			t.Errorf("got %q", got)
		}
	})
}

// The evidence of an endpoint stays small in any environment, and says that something was left out.
func TestEvidenceIsBounded(t *testing.T) {
	environ := []string{"EF_POLL_USEC=1"}
	for i := range 1000 {
		environ = append(environ, fmt.Sprintf("EF_%d=%s", i, strings.Repeat("x", 1000)))
	}
	files := tunedServer()
	files["proc/cmdline"] = strings.Repeat("a=b ", 1000)
	e := &endpoint{Agent: &Agent{Root: fakeRoot(t, files).root}, cpus: []int{2}, watch: host{root: "/"}.watch("lo", aCPU(t))}
	evidence := host{root: e.Root}.gather(2, e.cpus, net.Interface{Name: "net1"}, environ)
	e.watch.begin()
	e.watch.end()
	e.conclude(&evidence)
	data, err := json.Marshal(evidence)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 12<<10 {
		t.Errorf("the evidence takes %d bytes", len(data))
	}
	if evidence.Facts["facts.omitted"] == "" || evidence.Facts["cpu.governor"] != "performance" {
		t.Errorf("left out: %q; governor %q, want performance", evidence.Facts["facts.omitted"], evidence.Facts["cpu.governor"])
	}
}

// Two environments that differ only in omitted facts still differ.
func TestWhatIsLeftOutIsComparedToo(t *testing.T) {
	bounded := func(last string) facts {
		return facts{"env.EF_A": "1", "env.EF_B": last, "mm.ksm": "0", "cpu.governor": "performance"}.bounded(50)
	}
	one, other := bounded("1"), bounded("2")
	want := facts{"cpu.governor": "performance", "env.EF_A": "1", "facts.omitted": "2", "facts.omitted-fingerprint": "94f3dbe84ededeac"}
	if diff := cmp.Diff(want, one); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
	if one["facts.omitted-fingerprint"] == other["facts.omitted-fingerprint"] {
		t.Errorf("both have the digest %q", one["facts.omitted-fingerprint"])
	}
	// An omitted fact that only explains does not change the fingerprint.
	plain := facts{"cpu.governor": "performance", "mm.ksm": "0"}.bounded(32)
	if diff := cmp.Diff(facts{"cpu.governor": "performance", "facts.omitted": "1"}, plain); diff != "" {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
}

func TestCgroupDir(t *testing.T) {
	const (
		mount2 = "30 25 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		mount1 = "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n33 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
		pod    = "/kubepods/pod1/c1"
	)
	cases := map[string]struct{ mounts, own, controller, want string }{
		"version 2, on the node":             {mount2, "0::/system.slice/x\n", "", "/sys/fs/cgroup/system.slice/x"},
		"version 2, a namespace of its own":  {mount2, "0::/\n", "", "/sys/fs/cgroup"},
		"version 2, only its own is mounted": {strings.Replace(mount2, " / ", " "+pod+" ", 1), "0::" + pod + "\n", "", "/sys/fs/cgroup"},
		"version 2, one below it":            {strings.Replace(mount2, " / ", " "+pod+" ", 1), "0::" + pod + "/x\n", "", "/sys/fs/cgroup/x"},
		"version 2, seen from elsewhere":     {mount2, "0::/../other\n", "", "/sys/fs/cgroup"},
		"a name with the same beginning":     {strings.Replace(mount2, " / ", " "+pod+" ", 1), "0::" + pod + "2\n", "", "/sys/fs/cgroup"},
		"version 1":                          {mount1, "4:cpuset:/a\n1:cpu,cpuacct:/b\n", "cpuset", "/sys/fs/cgroup/cpuset/a"},
		"version 1, two in one":              {mount1, "4:cpuset:/a\n1:cpu,cpuacct:/b\n", "cpu", "/sys/fs/cgroup/cpu,cpuacct/b"},
		"both, by the second":                {mount1 + mount2, "4:cpuset:/a\n0::/b\n", "", "/sys/fs/cgroup/b"},
		"a controller that is not there":     {mount1, "4:cpuset:/a\n", "memory", ""},
		"no mount":                           {"", "0::/\n", "", ""},
		"no cgroup":                          {mount2, "", "", ""},
		"a place with a space":               {`30 25 0:26 / /a\040b rw - cgroup2 cgroup2 rw` + "\n", "0::/\n", "", "/a b"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got, top := cgroupDir(c.mounts, c.own, c.controller); got != c.want || !strings.HasPrefix(got, top) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func FuzzCgroupDir(f *testing.F) {
	f.Add("30 25 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/../x\n", "")
	f.Add("33 31 0:31 /a /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n", "4:cpuset:/a/b\n", "cpuset")
	f.Fuzz(func(t *testing.T, mounts, own, controller string) {
		dir, top := cgroupDir(mounts, own, controller)
		if len(top) > len(dir) && filepath.Clean(top) != dir {
			t.Errorf("got %q, at mount %q", dir, top)
		}
		for l := range strings.Lines(mounts) {
			// The folder is a mount point or below one.
			if fields := strings.Fields(l); len(fields) > 4 && strings.HasPrefix(dir, filepath.Clean(unescape.Replace(fields[4]))) {
				return
			}
		}
		if dir != "" {
			t.Errorf("got %q, which is below no mount", dir)
		}
	})
}

func TestProgramDigest(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tool"), []byte("#!\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	if got := programDigest("tool"); got != "26a66825c1fc56bd" {
		t.Errorf("got %q", got)
	}
	if got := programDigest("another"); got != "" {
		t.Errorf("a program that is not there: got %q", got)
	}
}

func TestOwnVersion(t *testing.T) {
	for _, tt := range []struct{ version, release, want string }{
		{"6.12.95+deb12-amd64", "6.12.95+deb12-amd64", "kernel"},
		{"6.2.1.1000", "6.12.95+deb12-amd64", "6.2.1.1000"},
		{"", "6.12.95+deb12-amd64", ""},
		{"", "", ""},
	} {
		if got := ownVersion(tt.version, tt.release); got != tt.want {
			t.Errorf("the version %q with kernel %q is recorded as %q, want %q", tt.version, tt.release, got, tt.want)
		}
	}
}
