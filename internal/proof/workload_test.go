package proof

import (
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

// right is what an agent found on a local cluster of a Guaranteed pod with one CPU and one VF at net1; other programs of the machine left
// its CPU alone, its memory is on the node of its CPU, and nothing hides SMT siblings.
func right(t *testing.T) (WorkloadPod, result.Workload) {
	t.Helper()
	w := *resulttest.Workload()
	w.Memory = map[string]int64{"1": 4096}
	for n := range w.Interfaces {
		w.Interfaces[n].Facts["cpu.hypervisor"] = "no"
	}
	return WorkloadPod{
		Seen:     result.Seen{QOSClass: "Guaranteed", Requests: map[string]string{"cpu": "1"}, NodeBootID: w.Interfaces[0].BootID},
		Networks: []foreign.Status{{Name: "default/sf-vf", Interface: "net1", MAC: net1(&w).MAC, MTU: 1500, DeviceInfo: &foreign.DeviceInfo{Type: "pci", PCI: &foreign.PCIDevice{Address: "0000:3b:02.1"}}}},
		Devices:  map[string][]string{"tailgate.test/sf_vf": {"0000:3b:02.1"}}, MTU: 1500, Function: "VF",
	}, w
}

func net1(w *result.Workload) *result.Evidence {
	for n := range w.Interfaces {
		if w.Interfaces[n].Interface == "net1" {
			return &w.Interfaces[n]
		}
	}
	panic("no net1")
}

// every calls a function for the evidence of every interface.
func every(w *result.Workload, change func(*result.Evidence)) {
	for n := range w.Interfaces {
		change(&w.Interfaces[n])
	}
}

// onNode makes a workload one of Onload that was inspected from its node.
func onNode(w *result.Workload, in, out, kernel int64) {
	w.FromNode, w.StackEvents = true, map[string]int64{result.PathStackIn: in, result.PathStackOut: out}
	w.Processes[0].Look = &result.Look{Library: "/libonload.so", Onload: 1, Sockets: 2}
	every(w, func(e *result.Evidence) {
		for _, name := range []string{"tcp.InSegs", "tcp.OutSegs", "tcp.RetransSegs", "udp.OutDatagrams"} {
			e.Deltas[name] = 0
		}
		e.Deltas["udp.InDatagrams"] = kernel
	})
}

func TestWorkload(t *testing.T) {
	pod, w := right(t)
	asked := "CPUsExclusive,SMTSiblings,ThreadsOnCPUs,ThreadsStay,CPUsOnNUMANode,MemoryLocal,Interrupts,CPUQuota,NUMALocal,Device,Function=VF,MTU=1500,Link"
	requirements, err := ParseRequirements(asked, &pod)
	if err != nil {
		t.Fatal(err)
	}
	lines := Workload(pod, w)
	if got := Met(requirements, lines); got != v1alpha1.VerdictPass {
		t.Fatalf("%s: %+v", got, lines)
	}
	cases := map[string]struct {
		change func(*WorkloadPod, *result.Workload)
		check  string
		want   v1alpha1.ProofState
	}{
		"the CPUs that all share": {func(_ *WorkloadPod, w *result.Workload) {
			every(w, func(e *result.Evidence) { e.CPUsAllowed = "0-1" })
		}, "CPUsExclusive", v1alpha1.ProofFailed},
		"an affinity that its cpuset contradicts": {func(_ *WorkloadPod, w *result.Workload) {
			every(w, func(e *result.Evidence) { e.Facts["cgroup.cpus"] = "0-1" })
		}, "CPUsExclusive", v1alpha1.ProofUnknown},
		"a pool that has its CPU":            {func(_ *WorkloadPod, w *result.Workload) { w.PoolCPUs = "0-1" }, "CPUsExclusive", v1alpha1.ProofFailed},
		"an unknown pool":                    {func(_ *WorkloadPod, w *result.Workload) { w.PoolCPUs = "?" }, "CPUsExclusive", v1alpha1.ProofUnknown},
		"a burstable pod on CPUs of its own": {func(p *WorkloadPod, _ *result.Workload) { p.QOSClass = "Burstable" }, "CPUsExclusive", v1alpha1.ProofUnknown},
		"a part of a CPU":                    {func(p *WorkloadPod, _ *result.Workload) { p.Requests["cpu"] = "500m" }, "CPUsExclusive", v1alpha1.ProofUnknown},
		"fewer CPUs than requested":          {func(p *WorkloadPod, _ *result.Workload) { p.Requests["cpu"] = "2" }, "CPUsExclusive", v1alpha1.ProofFailed},
		"a kernel of its own":                {func(p *WorkloadPod, _ *result.Workload) { p.NodeBootID = "another" }, "CPUsExclusive", v1alpha1.ProofUnknown},
		"a runtime class that may have one": {func(p *WorkloadPod, w *result.Workload) {
			p.RuntimeClass, p.NodeBootID = "kata", ""
			every(w, func(e *result.Evidence) { e.Facts["cpu.hypervisor"] = "yes" })
		}, "CPUsExclusive", v1alpha1.ProofUnknown},
		"others on its CPU": {func(_ *WorkloadPod, w *result.Workload) {
			every(w, func(e *result.Evidence) { e.Deltas["cpu.threads-ms"] = e.Deltas["elapsed-ms"] / 2 })
		}, "CPUsExclusive", v1alpha1.ProofUnknown},
		"its own threads on its CPU": {func(_ *WorkloadPod, w *result.Workload) {
			every(w, func(e *result.Evidence) {
				e.Deltas["cpu.threads-ms"], w.Threads[0].RunNS = e.Deltas["elapsed-ms"], e.Deltas["elapsed-ms"]*1e6
			})
		}, "CPUsExclusive", v1alpha1.ProofProved},
		"inside, where the cpuset does not tell": {func(_ *WorkloadPod, w *result.Workload) { w.PoolCPUs = "" }, "CPUsExclusive", v1alpha1.ProofUnknown},
		"siblings of others": {func(_ *WorkloadPod, w *result.Workload) {
			every(w, func(e *result.Evidence) { e.Facts["cpu.smt.sibling"], e.ThreadSiblings = "others", "0-1" })
		}, "SMTSiblings", v1alpha1.ProofFailed},
		"a virtual machine": {func(_ *WorkloadPod, w *result.Workload) {
			every(w, func(e *result.Evidence) { e.Facts["cpu.hypervisor"] = "yes" })
		}, "SMTSiblings", v1alpha1.ProofUnknown},
		"a thread that was moved": {func(_ *WorkloadPod, w *result.Workload) { w.Threads[3].CPUs = "0" }, "ThreadsOnCPUs", v1alpha1.ProofFailed},
		"a thread that ran elsewhere": {func(_ *WorkloadPod, w *result.Workload) {
			w.Threads[3].Ran, w.Threads[3].RunNS = "0-1", 1
		}, "ThreadsOnCPUs", v1alpha1.ProofFailed},
		"a thread that ran elsewhere for an unknown time": {func(_ *WorkloadPod, w *result.Workload) {
			w.Threads[3].Ran, w.Threads[3].RunNS = "0-1", -1
		}, "ThreadsOnCPUs", v1alpha1.ProofFailed},
		"a thread that sleeps since its CPUs were set": {func(_ *WorkloadPod, w *result.Workload) {
			w.Threads[3].Ran, w.Threads[3].RunNS = "0", 0
		}, "ThreadsOnCPUs", v1alpha1.ProofProved},
		"a thread on an unknown CPU":  {func(_ *WorkloadPod, w *result.Workload) { w.Threads[3].Ran = "" }, "ThreadsOnCPUs", v1alpha1.ProofUnknown},
		"no thread":                   {func(_ *WorkloadPod, w *result.Workload) { w.Threads = nil }, "ThreadsOnCPUs", v1alpha1.ProofUnknown},
		"no thread that stays":        {func(_ *WorkloadPod, w *result.Workload) { w.Threads = nil }, "ThreadsStay", v1alpha1.ProofUnknown},
		"too many threads":            {func(_ *WorkloadPod, w *result.Workload) { w.Omitted = 1 }, "ThreadsOnCPUs", v1alpha1.ProofUnknown},
		"a process in another cgroup": {func(_ *WorkloadPod, w *result.Workload) { w.Elsewhere = []string{"stray (7)"} }, "ThreadsOnCPUs", v1alpha1.ProofUnknown},
		"one process namespace for all": {func(p *WorkloadPod, w *result.Workload) {
			p.SharesProcesses, w.Elsewhere = true, []string{"pause (1)"}
		}, "ThreadsOnCPUs", v1alpha1.ProofProved},
		"another user, on shared CPUs": {func(p *WorkloadPod, w *result.Workload) {
			w.Unread, w.PoolCPUs = []string{"cgroup"}, "0-1"
		}, "ThreadsOnCPUs", v1alpha1.ProofUnknown},
		"another user, on CPUs of its own": {func(_ *WorkloadPod, w *result.Workload) { w.Unread = []string{"cgroup"} }, "ThreadsOnCPUs", v1alpha1.ProofProved},
		"a thread that changes its CPU":    {func(_ *WorkloadPod, w *result.Workload) { w.Threads[2].Migrations = 3 }, "ThreadsStay", v1alpha1.ProofFailed},
		"a new thread":                     {func(_ *WorkloadPod, w *result.Workload) { w.Threads[2].Migrations = -1 }, "ThreadsStay", v1alpha1.ProofUnknown},
		"CPUs of two NUMA nodes": {func(_ *WorkloadPod, w *result.Workload) {
			every(w, func(e *result.Evidence) { e.AllowedNUMANodes = "0-1" })
		}, "CPUsOnNUMANode", v1alpha1.ProofFailed},
		"CPUs of two NUMA nodes, and a VF": {func(_ *WorkloadPod, w *result.Workload) {
			every(w, func(e *result.Evidence) { e.AllowedNUMANodes = "0-1" })
		}, "NUMALocal", v1alpha1.ProofFailed},
		"CPUs of unknown NUMA nodes": {func(_ *WorkloadPod, w *result.Workload) {
			every(w, func(e *result.Evidence) { e.AllowedNUMANodes = "" })
		}, "NUMALocal", v1alpha1.ProofUnknown},
		"a VF of another NUMA node":    {func(_ *WorkloadPod, w *result.Workload) { net1(w).DeviceNUMANode = 0 }, "NUMALocal", v1alpha1.ProofFailed},
		"a VF of an unknown NUMA node": {func(_ *WorkloadPod, w *result.Workload) { net1(w).DeviceNUMANode = -1 }, "NUMALocal", v1alpha1.ProofUnknown},
		"memory elsewhere":             {func(_ *WorkloadPod, w *result.Workload) { w.Memory["0"] = 4096 }, "MemoryLocal", v1alpha1.ProofFailed},
		"hidden memory":                {func(_ *WorkloadPod, w *result.Workload) { w.Memory = nil }, "MemoryLocal", v1alpha1.ProofUnknown},
		"interrupts": {func(_ *WorkloadPod, w *result.Workload) {
			every(w, func(e *result.Evidence) { e.Deltas["irq"], e.Deltas["irq.36.eth"] = 1, 1 })
		}, "Interrupts", v1alpha1.ProofFailed},
		"interrupts that may come": {func(_ *WorkloadPod, w *result.Workload) { w.Directed = []string{"36 eth"} }, "Interrupts", v1alpha1.ProofUnknown},
		"interrupts that are hidden": {func(_ *WorkloadPod, w *result.Workload) {
			every(w, func(e *result.Evidence) { delete(e.Deltas, "irq") })
		}, "Interrupts", v1alpha1.ProofUnknown},
		"throttled": {func(_ *WorkloadPod, w *result.Workload) { w.Throttled = 1 }, "CPUQuota", v1alpha1.ProofFailed},
		"a hidden quota": {func(_ *WorkloadPod, w *result.Workload) {
			every(w, func(e *result.Evidence) { delete(e.Facts, "cgroup.cpu-max") })
		}, "CPUQuota", v1alpha1.ProofUnknown},
		"huge pages that it does not use": {func(p *WorkloadPod, w *result.Workload) {
			p.Requests["hugepages-2Mi"] = "4Mi"
			w.HugePages = map[string]int64{"2Mi": 0}
		}, "HugePages", v1alpha1.ProofFailed},
		"huge pages that it uses": {func(p *WorkloadPod, w *result.Workload) {
			p.Requests["hugepages-2Mi"] = "4Mi"
			w.HugePages = map[string]int64{"2Mi": 2 << 20}
		}, "HugePages", v1alpha1.ProofProved},
		"huge pages that nobody shows":  {func(p *WorkloadPod, w *result.Workload) { p.Requests["hugepages-2Mi"] = "4Mi"; w.HugePages = nil }, "HugePages", v1alpha1.ProofUnknown},
		"another VF than the allocated": {func(_ *WorkloadPod, w *result.Workload) { net1(w).PCIAddress = "0000:3b:02.7" }, "Device", v1alpha1.ProofFailed},
		"another VF by network-status":  {func(p *WorkloadPod, _ *result.Workload) { p.Networks[0].DeviceInfo.PCI.Address = "0000:3b:02.7" }, "Device", v1alpha1.ProofFailed},
		"another MAC address":           {func(p *WorkloadPod, _ *result.Workload) { p.Networks[0].MAC = "02:00:00:00:00:99" }, "Device", v1alpha1.ProofFailed},
		"a device that only sysfs knows": {func(p *WorkloadPod, w *result.Workload) {
			p.Networks, p.Devices = nil, nil
			every(w, func(e *result.Evidence) { e.AllocatedDevices = nil })
		}, "Device", v1alpha1.ProofUnknown},
		"a device that no source ties to the interface": {func(p *WorkloadPod, w *result.Workload) {
			p.Networks[0].DeviceInfo, net1(w).PCISource = nil, ""
		}, "Device", v1alpha1.ProofUnknown},
		"one of several devices": {func(p *WorkloadPod, w *result.Workload) {
			p.Devices["tailgate.test/sf_vf"] = []string{"0000:3b:02.1"}
			every(w, func(e *result.Evidence) {
				e.AllocatedDevices = map[string]string{"PCIDEVICE_A": "0000:3b:02.9,0000:3b:02.1"}
			})
		}, "Device", v1alpha1.ProofProved},
		"none of several devices": {func(_ *WorkloadPod, w *result.Workload) {
			every(w, func(e *result.Evidence) {
				e.AllocatedDevices = map[string]string{"PCIDEVICE_A": "0000:3b:02.8,0000:3b:02.9"}
			})
		}, "Device", v1alpha1.ProofFailed},
		"a device without an interface": {func(p *WorkloadPod, _ *result.Workload) { p.Devices["a.com/dpdk"] = []string{"0000:3b:03.0"} }, "Device", v1alpha1.ProofUnknown},
		"a PF":                          {func(_ *WorkloadPod, w *result.Workload) { net1(w).Facts["nic.function"] = "PF" }, "Function", v1alpha1.ProofFailed},
		"a small MTU":                   {func(_ *WorkloadPod, w *result.Workload) { net1(w).MTU = 1400 }, "MTU", v1alpha1.ProofFailed},
		"no carrier":                    {func(_ *WorkloadPod, w *result.Workload) { net1(w).Facts["nic.carrier"] = "0" }, "Link", v1alpha1.ProofFailed},
		"Onload, with sockets of its own": {func(_ *WorkloadPod, w *result.Workload) {
			w.Processes[0].Look = &result.Look{Library: "/libonload.so", Onload: 1, Sockets: 2}
		}, "Acceleration", v1alpha1.ProofUnknown},
		"Onload, with sockets of the kernel": {func(_ *WorkloadPod, w *result.Workload) {
			w.Processes[0].Look = &result.Look{Library: "/libonload.so", Sockets: 2}
		}, "Acceleration", v1alpha1.ProofFailed},
		"Onload, preloaded into nothing": {func(_ *WorkloadPod, w *result.Workload) {
			w.Processes[0].Look = &result.Look{}
			every(w, func(e *result.Evidence) { e.Facts["env.LD_PRELOAD"] = "/opt/libonload.so" })
		}, "Acceleration", v1alpha1.ProofFailed},
		"Onload, from the node, with all traffic": {func(_ *WorkloadPod, w *result.Workload) { onNode(w, 12, 9, 0) }, "Acceleration", v1alpha1.ProofProved},
		"Onload, from the node, with a part":      {func(_ *WorkloadPod, w *result.Workload) { onNode(w, 12, 9, 1) }, "Acceleration", v1alpha1.ProofUnknown},
		"Onload, from the node, without traffic":  {func(_ *WorkloadPod, w *result.Workload) { onNode(w, 0, 0, 0) }, "Acceleration", v1alpha1.ProofUnknown},
		"Onload, from the node, beside a hidden process": {func(_ *WorkloadPod, w *result.Workload) {
			onNode(w, 12, 9, 0)
			w.Processes = append(w.Processes, result.Process{PID: 8})
		}, "Acceleration", v1alpha1.ProofUnknown},
		"Onload, from the node, without its stacks": {func(_ *WorkloadPod, w *result.Workload) {
			onNode(w, 12, 9, 0)
			w.StackEvents = nil
		}, "Acceleration", v1alpha1.ProofUnknown},
		"Onload, from the node, without the kernel's counters": {func(_ *WorkloadPod, w *result.Workload) {
			onNode(w, 12, 9, 0)
			every(w, func(e *result.Evidence) { delete(e.Deltas, "udp.InDatagrams") })
		}, "Acceleration", v1alpha1.ProofUnknown},
		"a program whose memory map is hidden": {func(_ *WorkloadPod, w *result.Workload) { w.Processes[0].Look = nil }, "Acceleration", v1alpha1.ProofUnknown},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pod, w := right(t)
			c.change(&pod, &w)
			worst, said := v1alpha1.ProofState(""), ""
			for _, l := range Workload(pod, w) {
				if l.Check == c.check && (worst == "" || badness(l.State) > badness(worst)) {
					worst, said = l.State, l.Found
				}
				if badness(l.State) > 0 && l.Advice == "" {
					t.Errorf("%s says %q and not what to do", l.Check, l.Found)
				}
			}
			if worst != c.want {
				t.Errorf("%s is %s (%s), want %s", c.check, worst, said, c.want)
			}
		})
	}
}

func TestParseRequirements(t *testing.T) {
	for list, want := range map[string]string{
		"CPUsExclusive,Nonsense": `"Nonsense"`, "": `""`, "MTU": "MTU=9000", "MTU=big": "MTU=9000", "Function=SF": "VF or PF", "NUMALocal=1": "no value",
		"Hypervisor": "not a check that can be proved",
	} {
		if _, err := ParseRequirements(list, &WorkloadPod{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", list, err)
		}
	}
}

// A pod on shared CPUs needs one thing first, whatever else is not as it should be.
func TestAdviceOnSharedCPUs(t *testing.T) {
	pod, w := right(t)
	pod.QOSClass, pod.Requests = "Burstable", nil
	w.Memory = map[string]int64{"0": 4096}
	every(&w, func(e *result.Evidence) { e.CPUsAllowed, e.AllowedNUMANodes, e.Deltas["irq"] = "0-1", "0-1", 3 })
	told := map[string]WorkloadLine{}
	for _, l := range Workload(pod, w) {
		told[l.Check] = l
	}
	if l := told["CPUsExclusive"]; l.Expected != "a Guaranteed pod that requests whole CPUs" || !strings.HasPrefix(l.Advice, "set requests equal to limits") {
		t.Errorf("%+v", l)
	}
	for _, check := range []string{"CPUsOnNUMANode", "Interrupts"} {
		if l := told[check]; l.State != v1alpha1.ProofFailed || l.Advice != "give the container exclusive CPUs first (CPUsExclusive)" {
			t.Errorf("%+v", l)
		}
	}
}

// Only from the node, a bypass of the kernel can be proved.
func TestParseRequirementOfAcceleration(t *testing.T) {
	for fromNode, want := range map[bool]bool{true: true, false: false} {
		_, err := ParseRequirements("Acceleration", &WorkloadPod{FromNode: fromNode})
		if (err == nil) != want {
			t.Errorf("from the node %t: %v", fromNode, err)
		}
	}
}

// A property that was not inspected does not pass.
func TestMet(t *testing.T) {
	of := func(state v1alpha1.ProofState) WorkloadLine {
		return WorkloadLine{ProofLine: v1alpha1.ProofLine{Check: "Device", State: state}}
	}
	for _, c := range []struct {
		lines []WorkloadLine
		want  v1alpha1.VerdictOutcome
	}{
		{nil, v1alpha1.VerdictInconclusive},
		{[]WorkloadLine{of(v1alpha1.ProofNoted)}, v1alpha1.VerdictInconclusive},
		{[]WorkloadLine{of(v1alpha1.ProofProved)}, v1alpha1.VerdictPass},
		{[]WorkloadLine{of(v1alpha1.ProofProved), of(v1alpha1.ProofUnknown)}, v1alpha1.VerdictInconclusive},
		{[]WorkloadLine{of(v1alpha1.ProofUnknown), of(v1alpha1.ProofFailed)}, v1alpha1.VerdictFail},
	} {
		if got := Met([]string{"Device"}, c.lines); got != c.want {
			t.Errorf("%+v: %s, want %s", c.lines, got, c.want)
		}
	}
}
