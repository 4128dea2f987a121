package proof

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
)

const (
	isProved  = v1alpha1.ProofProved
	isFailed  = v1alpha1.ProofFailed
	isUnknown = v1alpha1.ProofUnknown
	isNoted   = v1alpha1.ProofNoted
)

// checkCase changes a good run. The test checks one line of the client.
type checkCase struct {
	change func(*world)
	state  v1alpha1.ProofState
	found  string
}

func own(change func(*result.Evidence)) func(*world) {
	return client(func(e *result.Evidence, _ *result.Seen) { change(e) })
}

func pod(change func(*result.Seen)) func(*world) {
	return client(func(_ *result.Evidence, s *result.Seen) { change(s) })
}

// both makes several changes.
func both(changes ...func(*world)) func(*world) {
	return func(w *world) {
		for _, change := range changes {
			change(w)
		}
	}
}

// images sets the images of both ends.
func images(own, peer string) func(*world) {
	return both(pod(func(s *result.Seen) { s.ImageID = own }), server(func(_ *result.Evidence, s *result.Seen) { s.ImageID = peer }))
}

// status changes Multus's report.
func status(change func(*foreign.Status)) func(*world) {
	return pod(func(s *result.Seen) { change(s.Network) })
}

func numa(policy v1alpha1.NUMAPolicy) func(*world) {
	return func(w *world) { w.spec.Placement.NUMAPolicy = policy }
}

// numaOf sets the policy of one endpoint.
func numaOf(role string, policy v1alpha1.NUMAPolicy) func(*world) {
	return func(w *world) {
		e := &w.spec.Placement.Client
		if role == v1alpha1.RoleServer {
			e = &w.spec.Placement.Server
		}
		*e = &v1alpha1.EndpointPlacement{NUMAPolicy: policy}
	}
}

// numaOfVariant sets the policy of the only variant.
func numaOfVariant(policy v1alpha1.NUMAPolicy) func(*world) {
	return func(w *world) {
		w.spec.Variants = []v1alpha1.Variant{{Name: plan.DefaultVariant, NUMAPolicy: policy}}
	}
}

// An endpoint and a variant may have a NUMA policy of their own. Whether a warning blocks a verdict depends on the policy of
// its endpoint, whichever endpoint was seen first.
func TestNUMAPolicies(t *testing.T) {
	farClient := client(func(e *result.Evidence, _ *result.Seen) { e.DeviceNUMANode = 0 })
	farServer := server(func(e *result.Evidence, _ *result.Seen) { e.DeviceNUMANode = 0 })
	const role = v1alpha1.RoleClient
	cases := map[string]struct {
		change []func(*world)
		// want is the endpoint of the warning; empty if there is no warning.
		want   string
		blocks bool
	}{
		"required of both":                           {[]func(*world){farClient, farServer}, "client", true},
		"preferred at the client, which is far":      {[]func(*world){numaOf(role, "Preferred"), farClient}, "client", false},
		"preferred at the client, the server is far": {[]func(*world){numaOf(role, "Preferred"), farServer}, "server", true},
		"preferred at the client, both are far":      {[]func(*world){numaOf(role, "Preferred"), farClient, farServer}, "server", true},
		"ignored at the client, which is far":        {[]func(*world){numaOf(role, "Ignore"), farClient}, "", false},
		"ignored at the client, both are far":        {[]func(*world){numaOf(role, "Ignore"), farClient, farServer}, "server", true},
		"required at the server alone":               {[]func(*world){numa("Ignore"), numaOf(v1alpha1.RoleServer, "Required"), farClient, farServer}, "server", true},
		"the variant's before that of its endpoints": {[]func(*world){numaOf(role, "Required"), numaOfVariant("Ignore"), farClient, farServer}, "", false},
		"the variant's before that of the spec":      {[]func(*world){numa("Ignore"), numaOfVariant("Required"), farServer}, "server", true},
		"the default of a network with devices":      {[]func(*world){numa(""), farServer}, "server", true},
		"the variant's before the network's default": {[]func(*world){numa(""), numaOfVariant("Preferred"), farServer}, "server", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := good(c.change...)
			got := Warnings(w.spec, w.variant(), w.run)
			if c.want == "" {
				if len(got) > 0 {
					t.Fatalf("warned: %+v", got)
				}
				return
			}
			if len(got) != 1 || got[0].Reason != v1alpha1.WarningNUMAMismatch || !strings.Contains(got[0].Message, "x-r1, "+c.want+" on ") || got[0].Blocks != c.blocks {
				t.Errorf("%+v, want one of the %s, blocking %t", got, c.want, c.blocks)
			}
		})
	}
}

// The remedy of a CPU that is far from its NIC names a setting that the network has.
func TestNUMARemedies(t *testing.T) {
	for want, network := range map[string]v1alpha1.Network{
		"set topologyManagerPolicy": {Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "amd.com/sf_vf"}}},
		"let network.nad.alignWith name a resource of devices of the NIC, or":                {Type: v1alpha1.NetworkNAD, NAD: &v1alpha1.NADNetwork{}},
		"let network.host.alignWith name a resource of devices of the NIC, or":               {Type: v1alpha1.NetworkHost},
		"set placement.numaPolicy to Preferred: no setting aligns CPUs with the pod network": {Type: v1alpha1.NetworkPod},
	} {
		w := good(numa("Required"), client(func(e *result.Evidence, _ *result.Seen) { e.DeviceNUMANode = 0 }), func(w *world) { w.spec.Network = network })
		found := false
		for _, warning := range Warnings(w.spec, w.variant(), w.run) {
			if warning.Reason == v1alpha1.WarningNUMAMismatch {
				found = true
				if !strings.Contains(warning.Message, want) {
					t.Errorf("%s: %q does not say %q", network.Type, warning.Message, want)
				}
			}
		}
		if !found {
			t.Errorf("%s: no warning", network.Type)
		}
	}
}

// Of several warnings with one reason, the first is kept, unless it does not block and a later one does.
func TestAddWarning(t *testing.T) {
	of := func(message string, blocks bool) Warning {
		return Warning{v1alpha1.Warning{Reason: v1alpha1.WarningNUMAMismatch, Message: message}, blocks}
	}
	var all []Warning
	for _, w := range []Warning{of("1", false), of("2", false), of("3", true), of("4", true), of("5", false)} {
		all = AddWarning(all, w)
	}
	if diff := cmp.Diff([]Warning{of("3", true)}, all); diff != "" {
		t.Error(diff)
	}
}

func TestChecks(t *testing.T) {
	asIs := func(*world) {}
	cpus := func(n int32, list string) func(*world) {
		return func(w *world) {
			w.spec.Placement.CPUs = 9
			w.spec.Placement.Client = &v1alpha1.EndpointPlacement{CPUs: n}
			w.client().CPUsAllowed, w.client().Facts["cgroup.cpus"], w.client().Facts["cgroup.cpus-set"] = list, list, list
		}
	}
	far := own(func(e *result.Evidence) { e.DeviceNUMANode = 0 })
	nowhere := own(func(e *result.Evidence) { e.DeviceNUMANode = -1 })
	noCarrier := func(n int64) func(*world) {
		return own(func(e *result.Evidence) { e.Deltas["nic.carrier-changes"] = n })
	}
	environment := func(value string) func(*world) {
		return own(func(e *result.Evidence) { e.AllocatedDevices["PCIDEVICE_AMD_COM_SF_VF"] = value })
	}
	claimed := func(address string) func(*world) {
		return client(func(e *result.Evidence, s *result.Seen) {
			e.AllocatedDevices, s.ClaimedDevice = map[string]string{"SRIOVNETWORK_VF_DEVICE_0000_65_02_1": "0000:65:02.1"}, address
		})
	}
	noEnvironment := own(func(e *result.Evidence) { e.AllocatedDevices = nil })
	noStatus := pod(func(s *result.Seen) { s.Network = nil })
	noDeviceInfo := status(func(s *foreign.Status) { s.DeviceInfo = nil })
	noSysfs := own(func(e *result.Evidence) { e.PCISource = "" })
	throttled := func(limit string, periods int64) func(*world) {
		return all(fact("cgroup.cpu-max", limit), own(func(e *result.Evidence) {
			if e.Deltas["cgroup.throttled"] = periods; periods < 0 {
				delete(e.Deltas, "cgroup.throttled")
			}
		}))
	}
	// counted sets what else the kernel counted in 10 s.
	counted := func(deltas map[string]int64) func(*world) {
		return own(func(e *result.Evidence) {
			delete(e.Deltas, "cgroup.stopped-us")
			maps.Copy(e.Deltas, deltas)
		})
	}
	runtimeClass := func(name string) func(*world) {
		return func(w *world) { w.spec.Pods = &v1alpha1.PodSettings{RuntimeClassName: name} }
	}
	siblings := func(list string) func(*world) {
		return own(func(e *result.Evidence) { e.ThreadSiblings = list })
	}
	capture := func(change func(*result.Evidence)) func(*world) {
		return func(w *world) {
			w.spec.Capture = v1alpha1.CaptureServer
			change(w.server())
		}
	}
	macvlan := network(v1alpha1.NetworkNAD, "net1")
	primary := network(v1alpha1.NetworkPod, "eth0")

	oneKernel := func(w *world) { w.server().BootID = w.client().BootID }
	grown := func(name string, n int64) func(*world) { return own(func(e *result.Evidence) { e.Deltas[name] = n }) }
	// shared is a CPU on which other threads run for a part of 10 s.
	shared := func(ns int64) func(*world) {
		return all(grown("cpu.busy-ns", 9e9), grown("tool.cpu-ns", 9e9-ns), grown("tool.run-delay-ns", ns))
	}
	byName := all(fact("nic.parent", "enp59s0f0"), own(func(e *result.Evidence) { e.PCIAddress, e.DeviceNUMANode = "0000:3b:00.0", 1 }))
	bond := func(node int32) func(*world) {
		return all(fact("nic.ports", "ens1f0 ens7f0"), own(func(e *result.Evidence) { e.PCIAddress, e.PCISource, e.DeviceNUMANode = "", "", node }))
	}
	guest := all(fact("cpu.hypervisor", "yes"), fact("numa.nodes", "0"), own(func(e *result.Evidence) {
		e.CPUNUMANode, e.AllowedNUMANodes, e.DeviceNUMANode = 0, "0", 0
	}))
	hidden := all(fact("numa.nodes", "0"), own(func(e *result.Evidence) { e.CPUNUMANode, e.AllowedNUMANodes, e.DeviceNUMANode = 0, "0", -1 }))

	bare := pod(func(s *result.Seen) { s.Bare, s.PodUID = true, "" })
	cases := map[string]map[string]checkCase{
		"CPUsExclusive": {
			"bare, open to other processes": {bare, isUnknown, "2-3 of the node's 0-7, and nothing keeps other processes of the host off them"},
			"bare, one of them isolated":    {all(bare, fact("cpu.isolated-cpus", "2")), isUnknown, "2-3 of the node's 0-7, and nothing keeps other processes of the host off them"},
			"bare, isolated":                {all(bare, fact("cpu.isolated-cpus", "1-3")), isProved, "2-3 of the node's 0-7, which the scheduler leaves alone"},
			"bare, a partition":             {all(bare, fact("cgroup.version", "2"), fact("cgroup.partition", "root")), isProved, "2-3 of the node's 0-7, a scheduling partition of its own"},
			"bare, part of a partition": {all(bare, fact("cgroup.version", "2"), fact("cgroup.partition", "root"), fact("cgroup.cpus", "2-5")), isUnknown,
				"2-3 of the node's 0-7, and nothing keeps other processes of the host off them"},
			"bare, isolated, and used by a pinned process": {all(bare, fact("cpu.isolated-cpus", "1-3"), shared(4_900_000_000)), isFailed,
				"2-3 of the node's 0-7, which the scheduler leaves alone, but other threads ran on CPU 2 for 4.9s of 10s (49 %)"},
			"other threads ran for the largest part":      {shared(100_000_000), isProved, "2-3 of the node's 0-7; other threads ran on CPU 2 for 100ms of 10s (1 %)"},
			"other threads ran for more":                  {shared(101_000_000), isFailed, "2-3 of the node's 0-7, but other threads ran on CPU 2 for 101ms of 10s (1.01 %)"},
			"other threads of a simulation":               {all(oneKernel, shared(5e9)), isNoted, "2-3 of the node's 0-7, but other threads ran on CPU 2 for 5s of 10s (50 %); both nodes are simulated on one machine"},
			"interrupts are no threads":                   {all(shared(5e9), grown("tool.run-delay-ns", 50e6), grown("cpu.softirq-ms", 4000), grown("cpu.irq-ms", 950)), isProved, "2-3 of the node's 0-7; other threads ran on CPU 2 for 50ms of 10s (0.5 %); interrupts took 4.95s of 10s (49.5 %)"},
			"interrupts of others' traffic are shown":     {grown("cpu.softirq-ms", 6000), isProved, "2-3 of the node's 0-7; interrupts took 6s of 10s (60 %)"},
			"interrupts of the largest part are not":      {grown("cpu.softirq-ms", 100), isProved, "2-3 of the node's 0-7"},
			"nothing is counted":                          {all(counted(nil), grown("cpu.threads-ms", 9000)), isUnknown, "2-3 of the node's 0-7, and whether other threads ran there is not known"},
			"a second thread's time hides that of others": {all(shared(1e9), grown("tool.cpu-ns", 9e9)), isUnknown, "2-3 of the node's 0-7, but the tool waited for CPU 2 for 1s of 10s (10 %)"},
			"interrupts of idle time hide others":         {all(shared(3e9), grown("cpu.softirq-ms", 3000)), isUnknown, "2-3 of the node's 0-7, but the tool waited for CPU 2 for 3s of 10s (30 %)"},
			"a tool that blocks waits for each wake-up":   {all(shared(0), grown("tool.run-delay-ns", 1e9), own(func(e *result.Evidence) { e.VoluntarySwitches = 500_000 })), isProved, "2-3 of the node's 0-7; other threads ran on CPU 2 for 0s of 10s (0 %)"},
			"its cpuset changed while it ran":             {all(grown("cpu.busy-ns", 1e8), grown("tool.cpu-ns", 9.9e9)), isUnknown, "2-3 of the node's 0-7, but the tool ran on other CPUs than those it was started on for 9.8s of 10s (98 %)"},
			"it ran elsewhere for the largest part":       {all(grown("cpu.busy-ns", 9.8e9), grown("tool.cpu-ns", 9.9e9)), isProved, "2-3 of the node's 0-7; other threads ran on CPU 2 for 0s of 10s (0 %)"},
			"it ran elsewhere for more":                   {all(grown("cpu.busy-ns", 9.799e9), grown("tool.cpu-ns", 9.9e9)), isUnknown, "2-3 of the node's 0-7, but the tool ran on other CPUs than those it was started on for 101ms of 10s (1.01 %)"},
			"it waited for the largest part":              {grown("tool.run-delay-ns", 100e6), isProved, "2-3 of the node's 0-7"},
			"what ran is not counted, the tool waited":    {grown("tool.run-delay-ns", 2_168_361_105), isUnknown, "2-3 of the node's 0-7, but the tool waited for CPU 2 for 2.168s of 10s (21.7 %)"},
			"what ran is not counted, a quota stopped it": {all(grown("tool.run-delay-ns", 2e9), grown("cgroup.stopped-us", 1_950_000)), isProved, "2-3 of the node's 0-7"},
			"bare, of version 1": {all(bare, fact("cgroup.version", "1"), fact("cgroup.partition", "isolated")), isUnknown,
				"2-3 of the node's 0-7, and nothing keeps other processes of the host off them"},
			"as many as asked":      {asIs, isProved, "2-3 of the node's 0-7"},
			"one":                   {cpus(1, "2"), isProved, "2 of the node's 0-7"},
			"all, shared by all":    {cpus(2, "0-7"), isFailed, "0-7 of the node's 0-7"},
			"fewer":                 {cpus(3, "2-3"), isFailed, "2-3 of the node's 0-7"},
			"all, though it asked":  {cpus(8, "0-7"), isFailed, "0-7 of the node's 0-7"},
			"unreadable":            {cpus(2, ""), isUnknown, "not known"},
			"an unknown node":       {own(func(e *result.Evidence) { e.OnlineCPUs = "" }), isUnknown, "2-3 of the node's not known"},
			"offline":               {own(func(e *result.Evidence) { e.OnlineCPUs = "0-2,4-7" }), isUnknown, "2-3 of the node's 0-2,4-7, though CPU 3 is not online"},
			"measured elsewhere":    {own(func(e *result.Evidence) { e.MeasuringCPU = 5 }), isUnknown, "2-3 of the node's 0-7, though it measured on CPU 5"},
			"a narrowed affinity":   {fact("cgroup.cpus", "0-7"), isUnknown, "2-3 of the node's 0-7, though its cpuset is 0-7"},
			"an invalid cpuset":     {fact("cgroup.cpus", ""), isProved, "2-3 of the node's 0-7"},
			"a cpuset, other words": {fact("cgroup.cpus", "2,3"), isProved, "2-3 of the node's 0-7"},
			"a pool as large as the request": {fact("cgroup.cpus-set", "none"), isFailed,
				"2-3 of the node's 0-7, but nothing limited its container to them: other pods may run there"},
			"limited to others":  {fact("cgroup.cpus-set", "2-5"), isUnknown, "2-3 of the node's 0-7, though its container was limited to 2-5"},
			"limited by unknown": {fact("cgroup.cpus-set", ""), isUnknown, "2-3 of the node's 0-7, though its container was limited to not known"},
			"version 1": {all(fact("cgroup.cpus-set", ""), fact("cgroup.version", "1")), isUnknown,
				"2-3 of the node's 0-7, though cgroup version 1 does not show whether a CPU manager chose them"},
			"a guest kernel": {all(runtimeClass("kata"), pod(func(s *result.Seen) { s.NodeBootID = "boot-node" })), isUnknown,
				"2-3 of the node's 0-7, which are CPUs of a sandbox or a virtual machine, because its boot ID is not the node's: RuntimeClass kata does not run it on the node's kernel, or the node is a container (LXC) whose boot ID is made up"},
			"a guest kernel that shows it": {fact("runtime.sandbox", "Kata Containers"), isUnknown,
				"2-3 of the node's 0-7, which are CPUs of a sandbox or a virtual machine: its runtime (Kata Containers) does not run it on the node's kernel"},
			"a runtime on the node's kernel": {all(runtimeClass("performance"), fact("cpu.hypervisor", "yes"), pod(func(s *result.Seen) { s.NodeBootID = "boot-a" })), isProved, "2-3 of the node's 0-7"},
			"a runtime that is not known": {all(runtimeClass("kata-qemu"), fact("cpu.hypervisor", "yes")), isUnknown,
				"2-3 of the node's 0-7, and it is not known whether RuntimeClass kata-qemu runs it on the node's kernel"},
		},
		"CPUsOnNUMANode": {
			"one node of a guest":     {guest, isUnknown, "NUMA node 0, but it is the only one of a virtual machine, whose hypervisor may hide those of the machine"},
			"one node of two sockets": {all(hidden, fact("numa.packages", "0-1")), isUnknown, "NUMA node 0, but its CPUs are in several sockets (packages 0-1), which the firmware or the kernel hides"},
			"one node":                {asIs, isProved, "NUMA node 1"},
			"two nodes":               {own(func(e *result.Evidence) { e.AllowedNUMANodes = "0-1" }), isFailed, "NUMA nodes 0-1"},
			"unknown":                 {own(func(e *result.Evidence) { e.AllowedNUMANodes = "" }), isUnknown, "not known"},
			"one CPU is on one node":  {all(cpus(1, "2"), own(func(e *result.Evidence) { e.AllowedNUMANodes = "" })), isProved, "NUMA node 1"},
			"another node than that of the measuring CPU": {own(func(e *result.Evidence) { e.AllowedNUMANodes = "0" }), isUnknown,
				"NUMA node 0, though CPU 2 is on NUMA node 1"},
			"preferred":                         {all(numa("Preferred"), own(func(e *result.Evidence) { e.AllowedNUMANodes = "0-1" })), isFailed, "NUMA nodes 0-1"},
			"ignored":                           {all(numa("Ignore"), own(func(e *result.Evidence) { e.AllowedNUMANodes = "0-1" })), isNoted, "NUMA nodes 0-1"},
			"no device":                         {all(macvlan, numa("Preferred")), isNoted, "NUMA node 1"},
			"no device, though one is required": {macvlan, isProved, "NUMA node 1"},
		},
		"NUMALocal": {
			"one node":             {hidden, isProved, "NUMA node 0 is the only one of the node with CPUs"},
			"one node of a socket": {all(hidden, fact("numa.packages", "0")), isProved, "NUMA node 0 is the only one of the node with CPUs"},
			"a NIC at a socket that the kernel left out": {all(hidden, fact("kernel.arg.nr_cpus", "20"), own(func(e *result.Evidence) { e.DeviceNUMANode = 1 })), isUnknown, "CPU 2 on NUMA node 0, net1 on 1; the kernel was booted with a part of the CPUs (nr_cpus, possible_cpus), and the others may be those of the device's NUMA node"},
			"another name of that argument":              {all(hidden, fact("kernel.arg.possible_cpus", "20"), own(func(e *result.Evidence) { e.DeviceNUMANode = 1 })), isUnknown, "CPU 2 on NUMA node 0, net1 on 1; the kernel was booted with a part of the CPUs (nr_cpus, possible_cpus), and the others may be those of the device's NUMA node"},
			"a part of the CPUs, and a NIC beside them":  {all(hidden, fact("kernel.arg.nr_cpus", "20"), own(func(e *result.Evidence) { e.DeviceNUMANode = 0 })), isProved, "CPU 2 on NUMA node 0, net1 on 0"},
			"a NIC at a socket that is offline":          {all(hidden, fact("cpu.offline", "20-39"), own(func(e *result.Evidence) { e.DeviceNUMANode = 1 })), isUnknown, "CPU 2 on NUMA node 0, net1 on 1; CPUs 20-39 are offline, and may be those of the device's NUMA node"},
			"one node, numa=off":                         {all(hidden, fact("kernel.arg.numa", "off")), isUnknown, "CPU 2 on NUMA node 0, net1 on not known; the kernel was booted without the machine's NUMA nodes"},
			"one node of two sockets":                    {all(hidden, fact("numa.packages", "0-1")), isUnknown, "CPU 2 on NUMA node 0, net1 on not known; its CPUs are in several sockets (packages 0-1), which the firmware or the kernel hides"},
			"one node of a guest":                        {guest, isUnknown, "CPU 2 on NUMA node 0, net1 on 0; it is the only one of a virtual machine, whose hypervisor may hide those of the machine"},
			"a guest with two nodes":                     {fact("cpu.hypervisor", "yes"), isProved, "CPU 2 on NUMA node 1, net1 on 1"},
			"merged nodes":                               {fact("numa.packages", "2-3"), isUnknown, "CPU 2 on NUMA node 1, net1 on 1; its CPUs are in several sockets (packages 2-3), which the firmware or the kernel hides"},
			"local":                                      {asIs, isProved, "CPU 2 on NUMA node 1, net1 on 1"},
			"far":                                        {far, isFailed, "CPU 2 on NUMA node 1, net1 on 0"},
			"far, on a machine of one?":                  {all(far, fact("numa.nodes", "0")), isFailed, "CPU 2 on NUMA node 1, net1 on 0"},
			"an unknown device":                          {nowhere, isUnknown, "CPU 2 on NUMA node 1, net1 on not known"},
			"an unknown CPU":                             {own(func(e *result.Evidence) { e.CPUNUMANode = -1 }), isUnknown, "CPU 2 on NUMA node not known, net1 on 1"},
			"the only node":                              {all(nowhere, fact("numa.nodes", "1")), isProved, "NUMA node 1 is the only one of the node with CPUs"},
			"the only node is another":                   {all(nowhere, fact("numa.nodes", "0")), isUnknown, "CPU 2 on NUMA node 1, net1 on not known"},
			"far, preferred":                             {all(numa("Preferred"), far), isFailed, "CPU 2 on NUMA node 1, net1 on 0"},
			"far, ignored":                               {all(numa("Ignore"), far), isNoted, "CPU 2 on NUMA node 1, net1 on 0"},
			"no policy is the default":                   {all(numa(""), far), isFailed, "CPU 2 on NUMA node 1, net1 on 0"},
			"a NIC of the node":                          {hostNIC, isProved, "CPU 2 on NUMA node 1, enp59s0f0 on 1"},
			"a far NIC of the node":                      {all(hostNIC, far), isFailed, "CPU 2 on NUMA node 1, enp59s0f0 on 0"},
			"a NIC of the node, aligned":                 {aligned("0000:3b:02.3", "1"), isProved, "CPU 2 on NUMA node 1, enp59s0f0 on 1; aligned with openshift.io/sf_vf (0000:3b:02.3) on 1"},
			"aligned with another NIC":                   {all(aligned("0000:d8:02.3", "1"), far), isFailed, "CPU 2 on NUMA node 1, enp59s0f0 on 0; aligned with openshift.io/sf_vf (0000:d8:02.3) on 1"},
			"aligned, and no device came":                {all(aligned("", ""), far), isFailed, "CPU 2 on NUMA node 1, enp59s0f0 on 0; aligned with openshift.io/sf_vf (not known) on not known"},
			"an aligned bond, by default":                {all(aligned("0000:3b:02.3", "1"), own(func(e *result.Evidence) { e.PCIAddress, e.DeviceNUMANode = "", -1 })), isUnknown, "CPU 2 on NUMA node 1, enp59s0f0 is not a PCI device; aligned with openshift.io/sf_vf (0000:3b:02.3) on 1"},
			"a bond of the node":                         {all(network(v1alpha1.NetworkHost, "bond0"), numa("Preferred")), isNoted, "CPU 2 on NUMA node 1, bond0 is not a PCI device"},
			"no device":                                  {all(primary, numa("Preferred")), isNoted, "CPU 2 on NUMA node 1, eth0 is not a PCI device"},
			"a bond, required":                           {network(v1alpha1.NetworkHost, "bond0"), isUnknown, "CPU 2 on NUMA node 1, bond0 is not a PCI device"},
			"no device, required":                        {primary, isUnknown, "CPU 2 on NUMA node 1, eth0 is not a PCI device"},
			"the only node, no device":                   {all(primary, fact("numa.nodes", "1")), isProved, "NUMA node 1 is the only one of the node with CPUs"},
			"above an unnamed NIC":                       {all(macvlan, fact("nic.parent", foreign.UnnamedParent), numa("Preferred")), isUnknown, "CPU 2 on NUMA node 1, net1 over an unnamed interface of the node on not known"},
			"a NIC without a plugin":                     {all(macvlan, own(func(e *result.Evidence) { e.PCIAddress, e.DeviceNUMANode = "0000:3b:00.0", 0 }), numa("Preferred")), isFailed, "CPU 2 on NUMA node 1, net1 on 0"},
			"the NIC's node has only memory":             {all(far, fact("numa.nodes", "1")), isProved, "NUMA node 1 is the only one of the node with CPUs"},
			"by the parent's name":                       {all(macvlan, byName), isUnknown, "CPU 2 on NUMA node 1, net1 over enp59s0f0 on 1, by its name"},
			"by the name, and only preferred":            {all(macvlan, byName, numa("Preferred")), isNoted, "CPU 2 on NUMA node 1, net1 over enp59s0f0 on 1, by its name"},
			"by the name of the only node":               {all(macvlan, byName, fact("numa.nodes", "1")), isProved, "CPU 2 on NUMA node 1, net1 over enp59s0f0 on 1"},
			"by the node's own name":                     {all(macvlan, byName, own(func(e *result.Evidence) { e.PCISource = result.PCIFromSysfs })), isProved, "CPU 2 on NUMA node 1, net1 over enp59s0f0 on 1"},
			"by the name, as far as a borrowed device": {all(macvlan, byName, func(w *world) {
				w.spec.Network.NAD = &v1alpha1.NADNetwork{Alignment: v1alpha1.Alignment{AlignWith: sfVF}}
			}, fact("numa.borrowed", "1")), isProved,
				"CPU 2 on NUMA node 1, net1 over enp59s0f0 on 1; aligned with amd.com/sf_vf (not known) on 1"},
			"a bond over two nodes":            {all(hostNIC, numa("Required"), bond(-1)), isUnknown, "CPU 2 on NUMA node 1, enp59s0f0 over ens1f0 ens7f0 on not known"},
			"a bond over two NICs of one node": {all(hostNIC, numa("Required"), bond(1)), isProved, "CPU 2 on NUMA node 1, enp59s0f0 over ens1f0 ens7f0 on 1"},
			"the parent's name gives no place": {all(macvlan, fact("nic.parent", "bond0")), isUnknown, "CPU 2 on NUMA node 1, net1 over bond0 on not known"},
		},
		"CPUIsolated": {
			"isolated": {asIs, isNoted, "isolated: yes, nohz_full: no"},
			"unknown":  {all(fact("cpu.isolated", ""), fact("cpu.nohz-full", "")), isNoted, "isolated: not known, nohz_full: not known"},
		},
		"SMTSiblings": {
			"its own in a guest": {fact("cpu.hypervisor", "yes"), isProved, "its own: core of CPUs 2-3"},
			"none in a guest": {all(fact("cpu.hypervisor", "yes"), fact("cpu.smt.sibling", "none"), siblings("2")), isUnknown,
				"none: core of CPUs 2, in a virtual machine, whose hypervisor may hide them: another guest may run there"},
			"its own":                      {asIs, isProved, "its own: core of CPUs 2-3"},
			"none":                         {all(fact("cpu.smt.sibling", "none"), siblings("2")), isProved, "none: core of CPUs 2"},
			"anybody's":                    {all(fact("cpu.smt.sibling", "others"), siblings("2,6")), isFailed, "other containers may run there: core of CPUs 2,6"},
			"SMT is off":                   {all(fact("cpu.smt.sibling", ""), fact("cpu.smt.active", "0"), siblings("")), isProved, "none"},
			"SMT is on":                    {all(fact("cpu.smt.sibling", ""), siblings("")), isUnknown, "not known"},
			"its own, though not allowed":  {siblings("2,6"), isUnknown, "its own: core of CPUs 2,6, though its CPUs are 2-3"},
			"none, though the core has":    {fact("cpu.smt.sibling", "none"), isUnknown, "none: core of CPUs 2-3, though its CPUs are 2-3"},
			"off, though the core has two": {all(fact("cpu.smt.sibling", ""), fact("cpu.smt.active", "0")), isUnknown, "none: core of CPUs 2-3, though its CPUs are 2-3"},
			"a list of nonsense":           {siblings("two"), isUnknown, "its own: core of CPUs two, though its CPUs are 2-3"},
			"an unknown word":              {fact("cpu.smt.sibling", "perhaps"), isUnknown, "not known"},
		},
		"CPUQuota": {
			"none":                               {asIs, isProved, "no quota in the visible cgroups, never stopped by a quota"},
			"no value, and nothing counted":      {throttled("max 100000", -1), isProved, "no quota in the visible cgroups, never stopped by a quota"},
			"no value, and stopped nevertheless": {throttled("max 100000", 1), isFailed, "no quota in the visible cgroups; periods used up: 1"},
			"never used up":                      {throttled("200000 100000", 0), isProved, "200000 µs in each 100000 µs, never stopped by a quota"},
			"used up":                            {throttled("200000 100000", 3), isFailed, "200000 µs in each 100000 µs; periods used up: 3"},
			"not known, and stopped":             {throttled("", 2), isFailed, "quota not known; periods used up: 2"},
			"nonsense, and never stopped":        {throttled("nonsense", -1), isProved, "quota not known, never stopped by a quota"},
			"stopped by a quota above": {counted(map[string]int64{"cgroup.stopped-us": 412_400}), isFailed,
				"no quota in the visible cgroups; stopped for 412ms by a quota of a cgroup above"},
			"an older kernel, and nothing measured":         {counted(nil), isUnknown, "no quota in the visible cgroups; what withheld the CPU is not known"},
			"an older kernel, a quota, and nothing counted": {all(throttled("200000 100000", -1), counted(nil)), isUnknown, "200000 µs in each 100000 µs"},
			"an older kernel, hardly waited": {counted(map[string]int64{"cgroup.pressure-us": 20_000, "tool.run-delay-ns": 90_000_000, "cpu.busy-ns": 9_910_000_000, "tool.cpu-ns": 9_900_000_000}), isProved,
				"no quota in the visible cgroups; the tool waited 90ms of 10s for a CPU"},
			"an older kernel, waited for exactly the largest part": {counted(map[string]int64{"cgroup.pressure-us": 100_000}), isProved,
				"no quota in the visible cgroups; the tool waited 100ms of 10s for a CPU"},
			"an older kernel, waited": {counted(map[string]int64{"cgroup.pressure-us": 101_000}), isUnknown,
				"no quota in the visible cgroups; the tool waited 101ms of 10s for a CPU, more than 1/100"},
			"an older kernel, the main thread waited":              {counted(map[string]int64{"cgroup.pressure-us": 0, "tool.run-delay-ns": 4e9}), isUnknown, "no quota in the visible cgroups; the tool waited 4s of 10s for a CPU, more than 1/100"},
			"an older kernel, other threads waited":                {counted(map[string]int64{"cpu.run-delay-ns": 4e9, "cgroup.pressure-us": 4e6, "tool.run-delay-ns": 0}), isProved, "no quota in the visible cgroups; the tool waited 0s of 10s for a CPU"},
			"an older kernel without the main thread's time":       {counted(map[string]int64{"cpu.run-delay-ns": 4e9}), isUnknown, "no quota in the visible cgroups; the tool waited 4s of 10s for a CPU, more than 1/100"},
			"an older kernel, two tools of a simulation share it":  {all(oneKernel, counted(map[string]int64{"tool.run-delay-ns": 5e9, "cpu.busy-ns": 10e9, "tool.cpu-ns": 5e9})), isNoted, "no quota in the visible cgroups; the tool waited 5s of 10s for a CPU, more than 1/100; other threads ran there for 5s; both nodes are simulated on one machine"},
			"an older kernel, stopped and displaced by each other": {counted(map[string]int64{"tool.run-delay-ns": 5e9, "cpu.busy-ns": 8e9, "tool.cpu-ns": 5e9}), isUnknown, "no quota in the visible cgroups; the tool waited 5s of 10s for a CPU, more than 1/100; other threads ran there for 3s"},
			"a hypervisor withheld it":                             {grown("cpu.steal-ms", 6590), isUnknown, "no quota in the visible cgroups; the hypervisor withheld the CPU for 6.59s of 10s (65.9 %)"},
			"a hypervisor withheld the largest part":               {grown("cpu.steal-ms", 100), isProved, "no quota in the visible cgroups, never stopped by a quota"},
			"a hypervisor withheld it in a simulation":             {all(oneKernel, grown("cpu.steal-ms", 110)), isNoted, "no quota in the visible cgroups; the hypervisor withheld the CPU for 110ms of 10s (1.1 %); both nodes are simulated on one machine"},
			"an older kernel, an unknown quota":                    {all(throttled("", 0), counted(map[string]int64{"cgroup.pressure-us": 0})), isProved, "quota not known; the tool waited 0s of 10s for a CPU"},
		},
		"Interface": {
			"by the route, with an address of lo": {all(network(v1alpha1.NetworkHost, "eth0"), own(func(e *result.Evidence) { e.Address, e.Addresses = "192.0.2.184", []string{"198.51.100.1/31"} })), isNoted, "eth0"},
			"net1":                                {asIs, isProved, "net1"},
			"another":                             {own(func(e *result.Evidence) { e.Interface = "eth0" }), isFailed, "eth0"},
			"none":                                {own(func(e *result.Evidence) { e.Interface = "" }), isUnknown, "not known"},
			"from another address":                {own(func(e *result.Evidence) { e.Address = "10.0.0.7" }), isUnknown, "net1, though it does not have the address 10.0.0.7"},
			"no addresses known":                  {own(func(e *result.Evidence) { e.Addresses = nil }), isProved, "net1"},
			"an IPv6 address":                     {own(func(e *result.Evidence) { e.Address = "fd00::1" }), isProved, "net1"},
			"the node's":                          {hostNIC, isProved, "enp59s0f0"},
			"another of the node's":               {all(hostNIC, own(func(e *result.Evidence) { e.Interface = "eno1" })), isFailed, "eno1"},
			"any of the node's":                   {all(hostNIC, func(w *world) { w.network().Host = nil }), isNoted, "enp59s0f0"},
			"the primary network's":               {primary, isNoted, "eth0"},
			"macvlan":                             {macvlan, isProved, "net1"},
			"macvlan without a status": {
				all(macvlan, noStatus), isProved, "net1",
			},
			"macvlan, a stale MAC address": {
				all(macvlan, own(func(e *result.Evidence) { e.MAC = "02:00:00:00:00:09" })), isFailed,
				"net1, though its MAC address is 02:00:00:00:00:09, but 00:0f:53:4a:81:01 according to network-status",
			},
			"macvlan, a stale address": {
				all(macvlan, status(func(s *foreign.Status) { s.IPs = []string{"192.0.2.77"} })), isFailed,
				"net1, though it does not have the address 192.0.2.77 of network-status",
			},
		},
		"Device": {
			"three ways":            {asIs, isProved, "0000:65:02.1, by environment, sysfs, network-status"},
			"environment and sysfs": {noStatus, isProved, "0000:65:02.1, by environment, sysfs"},
			"device information of type vdpa": {all(noSysfs, status(func(s *foreign.Status) {
				s.DeviceInfo = &foreign.DeviceInfo{Type: "vdpa", VDPA: &foreign.PCIDevice{Address: "0000:65:02.1"}}
			})), isProved, "0000:65:02.1, by environment, network-status"},
			"no device information":      {noDeviceInfo, isProved, "0000:65:02.1, by environment, sysfs"},
			"sysfs and network-status":   {noEnvironment, isProved, "0000:65:02.1, by sysfs, network-status"},
			"in capitals":                {all(environment("0000:65:0A.1"), own(func(e *result.Evidence) { e.PCIAddress = "0000:65:0a.1" }), noDeviceInfo), isProved, "0000:65:0a.1, by environment, sysfs"},
			"environment and status":     {noSysfs, isProved, "0000:65:02.1, by environment, network-status"},
			"the environment alone":      {all(noSysfs, noDeviceInfo), isUnknown, "environment 0000:65:02.1, sysfs not known, network-status not known"},
			"sysfs alone":                {all(noEnvironment, noStatus), isUnknown, "environment not known, sysfs 0000:65:02.1, network-status not known"},
			"nothing":                    {all(noEnvironment, noSysfs, noStatus), isUnknown, "environment not known, sysfs not known, network-status not known"},
			"another resource's":         {all(noSysfs, noDeviceInfo, own(func(e *result.Evidence) { e.AllocatedDevices = map[string]string{"PCIDEVICE_OTHER": "0000:65:02.1"} })), isUnknown, "environment not known, sysfs not known, network-status not known"},
			"another in sysfs":           {own(func(e *result.Evidence) { e.PCIAddress = "0000:65:02.7" }), isFailed, "environment 0000:65:02.1, sysfs 0000:65:02.7, network-status 0000:65:02.1"},
			"another in the environment": {environment("0000:65:02.7"), isFailed, "environment 0000:65:02.7, sysfs 0000:65:02.1, network-status 0000:65:02.1"},
			"another in network-status": {status(func(s *foreign.Status) { s.DeviceInfo.PCI.Address = "0000:65:02.7" }), isFailed,
				"environment 0000:65:02.1, sysfs 0000:65:02.1, network-status 0000:65:02.7"},
			"two allocated": {environment("0000:65:02.1,0000:65:02.7"), isFailed, "2 were allocated: 0000:65:02.1, 0000:65:02.7"},
			"two requested": {pod(func(s *result.Seen) { s.Requests[sfVF] = "2" }), isFailed, `"2" requested`},
			"nothing requested": {pod(func(s *result.Seen) { delete(s.Requests, sfVF) }), isFailed,
				`"" requested`},
			"unknown requests": {pod(func(s *result.Seen) { s.Requests = nil }), isProved, "0000:65:02.1, by environment, sysfs, network-status"},
			"a stale MAC address": {status(func(s *foreign.Status) { s.MAC = "02:00:00:00:00:09" }), isFailed,
				"environment 0000:65:02.1, sysfs 0000:65:02.1, network-status 0000:65:02.1, though its MAC address is 00:0f:53:4a:81:01, but 02:00:00:00:00:09 according to network-status"},
			"a stale address": {status(func(s *foreign.Status) { s.IPs = []string{"192.0.2.1", "fd00::9"} }), isFailed,
				"environment 0000:65:02.1, sysfs 0000:65:02.1, network-status 0000:65:02.1, though it does not have the address fd00::9 of network-status"},
			"a status of another interface": {status(func(s *foreign.Status) { s.Interface = "net2" }), isFailed,
				"environment 0000:65:02.1, sysfs 0000:65:02.1, network-status 0000:65:02.1, though network-status is of net2"},
			"no MAC address, where only it ties them": {all(noSysfs, status(func(s *foreign.Status) { s.MAC = "" })), isUnknown,
				"environment 0000:65:02.1, sysfs not known, network-status 0000:65:02.1; whether it is net1, is unknown: no MAC address in network-status, or of the interface"},
			"no MAC address, where sysfs ties them": {status(func(s *foreign.Status) { s.MAC = "" }), isProved, "0000:65:02.1, by environment, sysfs, network-status"},
			"claim, all ways":                       {claimed("0000:65:02.1"), isProved, "0000:65:02.1, by environment, sysfs, network-status, ResourceClaim"},
			"claim, no variable":                    {all(claimed("0000:65:02.1"), noEnvironment, noStatus), isProved, "0000:65:02.1, by sysfs, ResourceClaim"},
			"claim, another in the claim": {claimed("0000:65:02.7"), isFailed,
				"environment 0000:65:02.1, sysfs 0000:65:02.1, network-status 0000:65:02.1, ResourceClaim 0000:65:02.7"},
			"claim, variables alone, and nothing of the interface": {all(claimed("0000:65:02.1"), noSysfs, noStatus), isUnknown,
				"environment 0000:65:02.1, sysfs not known, network-status not known, ResourceClaim 0000:65:02.1; whether it is net1, is unknown: no MAC address in network-status, or of the interface"},
			"claim, two allocated": {all(claimed("0000:65:02.1"), own(func(e *result.Evidence) { e.AllocatedDevices["SRIOVNETWORK_VF_DEVICE_0000_65_02_7"] = "0000:65:02.7" })), isFailed,
				"2 were allocated: 0000:65:02.1, 0000:65:02.7"},
			"claim, a variable without a claim": {all(noSysfs, noDeviceInfo, own(func(e *result.Evidence) {
				e.AllocatedDevices = map[string]string{"SRIOVNETWORK_VF_DEVICE_0000_65_02_1": "0000:65:02.1"}
			})), isUnknown, "environment not known, sysfs not known, network-status not known"},
		},
		"Function": {
			"a VF":                  {asIs, isProved, "VF of 0000:65:00.0"},
			"a PF":                  {fact("nic.function", "PF"), isFailed, "PF"},
			"not on the PCI bus":    {fact("nic.function", "virtual"), isFailed, "virtual"},
			"in a virtual machine":  {fact("nic.function", "PCI"), isUnknown, "PCI"},
			"unknown":               {fact("nic.function", ""), isUnknown, "not known"},
			"a PF as asked":         {all(fact("nic.function", "PF"), func(w *world) { w.network().Type = v1alpha1.NetworkPF }), isProved, "PF"},
			"a VF instead of a PF":  {func(w *world) { w.network().Type = v1alpha1.NetworkPF }, isFailed, "VF of 0000:65:00.0"},
			"a VF of which PF":      {fact("nic.port", ""), isProved, "VF"},
			"the PF agrees":         {status(func(s *foreign.Status) { s.DeviceInfo.PCI.PFAddress = "0000:65:00.0" }), isProved, "VF of 0000:65:00.0"},
			"of another PF":         {status(func(s *foreign.Status) { s.DeviceInfo.PCI.PFAddress = "0000:65:00.1" }), isFailed, "VF of 0000:65:00.0, and by network-status of 0000:65:00.1"},
			"firmware without VFs":  {fact("nic.firmware-variant", "ultra-low-latency"), isUnknown, "VF of 0000:65:00.0, though firmware variant ultra-low-latency has none"},
			"a PF of such firmware": {all(fact("nic.firmware-variant", "ultra-low-latency"), fact("nic.function", "PF"), func(w *world) { w.network().Type = v1alpha1.NetworkPF }), isProved, "PF"},
			"a NIC of the node":     {hostNIC, isNoted, "PF"},
		},
		"MTU": {
			"that of the other end":     {asIs, isProved, "9000"},
			"not that of the other end": {own(func(e *result.Evidence) { e.MTU = 1500 }), isFailed, "1500"},
			"unknown":                   {own(func(e *result.Evidence) { e.MTU = 0 }), isUnknown, "not known"},
			"the other end is unknown":  {server(func(e *result.Evidence, _ *result.Seen) { e.MTU = 0 }), isUnknown, "9000, and not known there"},
			"as asked":                  {func(w *world) { w.network().VF.MTU = 9000 }, isProved, "9000"},
			"not as asked":              {func(w *world) { w.network().VF.MTU = 1500 }, isFailed, "9000"},
			"as asked, unlike the other's": {
				all(func(w *world) { w.network().VF.MTU = 9000 }, server(func(e *result.Evidence, _ *result.Seen) { e.MTU = 1500 })), isProved, "9000",
			},
			"requested, and not known": {all(func(w *world) { w.network().VF.MTU = 9000 }, own(func(e *result.Evidence) { e.MTU = 0 })), isUnknown, "not known"},
		},
		"Link": {
			"up":                          {asIs, isProved, "up, 25000 Mbit/s"},
			"without a speed":             {fact("nic.speed", ""), isProved, "up"},
			"down":                        {fact("nic.carrier", "0"), isFailed, "down"},
			"unknown":                     {fact("nic.carrier", ""), isUnknown, "not known"},
			"changes that nothing counts": {own(func(e *result.Evidence) { delete(e.Deltas, "nic.carrier-changes") }), isUnknown, "up, 25000 Mbit/s, and whether it changed is not known"},
			"up again":                    {noCarrier(2), isFailed, "up, 25000 Mbit/s, and changed 2 times"},
		},
		"Driver": {
			"both":    {asIs, isNoted, "sfc"},
			"another": {own(func(e *result.Evidence) { e.Driver = "mlx5_core" }), isNoted, "mlx5_core; the other end: sfc"},
			"none":    {own(func(e *result.Evidence) { e.Driver = "" }), isNoted, "not known; the other end: sfc"},
		},
		"Firmware": {
			"both":    {asIs, isNoted, "8.5.2.1000 rx0 tx0"},
			"another": {own(func(e *result.Evidence) { e.Firmware = "8.2" }), isNoted, "8.2; the other end: 8.5.2.1000 rx0 tx0"},
		},
		"FirmwareVariant": {
			"both":    {asIs, isNoted, "full-feature"},
			"another": {fact("nic.firmware-variant", "ultra-low-latency"), isNoted, "ultra-low-latency; the other end: full-feature"},
			"none":    {fact("nic.firmware-variant", ""), isNoted, "not known; the other end: full-feature"},
		},
		"PodUnchanged": {
			"bare":        {bare, isNoted, "no pod: a host without Kubernetes"},
			"unchanged":   {asIs, isProved, "unchanged"},
			"changed":     {pod(func(s *result.Seen) { s.Changed = []string{"requests cpu: 3 instead of 2", "a container more: proxy"} }), isFailed, "requests cpu: 3 instead of 2; a container more: proxy"},
			"not checked": {pod(func(s *result.Seen) { *s = result.Seen{} }), isUnknown, "not known"},
		},
		"Image": {
			"known":                   {asIs, isNoted, "sha256:ab"},
			"unknown":                 {pod(func(s *result.Seen) { s.ImageID = "" }), isNoted, "not known"},
			"another":                 {pod(func(s *result.Seen) { s.ImageID = "sha256:cd" }), isFailed, "sha256:cd"},
			"another, of a registry":  {images("r/bench@sha256:cd", "r/bench@sha256:ab"), isFailed, "r/bench@sha256:cd"},
			"of a mirror":             {images("mirror/bench@sha256:ab", "r/bench@sha256:ab"), isNoted, "mirror/bench@sha256:ab"},
			"imported at one end":     {images("sha256:cd", "r/bench@sha256:ab"), isNoted, "sha256:cd"},
			"of another architecture": {both(images("r/bench@sha256:cd", "r/bench@sha256:ab"), own(func(e *result.Evidence) { e.CPUModel = "Neoverse-N1" })), isNoted, "r/bench@sha256:cd"},
		},
		"Hypervisor": {
			"none":    {asIs, isNoted, "bare metal"},
			"one":     {fact("cpu.hypervisor", "yes"), isNoted, "virtual machine"},
			"unknown": {fact("cpu.hypervisor", ""), isNoted, "not known"},
		},
	}
	for check, of := range cases {
		for name, c := range of {
			t.Run(check+"/"+name, func(t *testing.T) {
				w := good(c.change)
				lines, _ := Endpoints(w.spec, w.variant(), w.run)
				got := lineOf(lines, check)
				if got.State != c.state || got.Found != c.found {
					t.Errorf("%s, found %q; want %s, %q", got.State, got.Found, c.state, c.found)
				}
				if (got.Expected == "") != (got.State == isNoted) {
					t.Errorf("%s with expected %q", got.State, got.Expected)
				}
			})
		}
	}
	t.Run("CaptureCPU", func(t *testing.T) {
		for name, c := range map[string]checkCase{
			"another CPU":  {capture(func(*result.Evidence) {}), isProved, "captured on CPU 3, measured on CPU 2"},
			"the same CPU": {capture(func(e *result.Evidence) { e.AgentCPU = 2 }), isFailed, "captured on CPU 2, measured on CPU 2"},
			"unknown":      {capture(func(e *result.Evidence) { e.AgentCPU = -1 }), isUnknown, "not known"},
			"no capture":   {func(w *world) { w.server().AgentCPU = 2 }, "", ""},
		} {
			t.Run(name, func(t *testing.T) {
				w := good(c.change)
				_, lines := Endpoints(w.spec, w.variant(), w.run)
				if got := lineOf(lines, "CaptureCPU"); got.State != c.state || got.Found != c.found {
					t.Errorf("%s, found %q; want %s, %q", got.State, got.Found, c.state, c.found)
				}
			})
		}
	})
}

func TestVariable(t *testing.T) {
	for resource, want := range map[string]string{
		"amd.com/sf_vf": "PCIDEVICE_AMD_COM_SF_VF", "openshift.io/x2-VF": "PCIDEVICE_OPENSHIFT_IO_X2-VF",
		"intel.com/a.b": "PCIDEVICE_INTEL_COM_A_B",
	} {
		if got := Variable(resource); got != want {
			t.Errorf("%s: got %s, want %s", resource, got, want)
		}
	}
}

// FuzzEndpoints tries arbitrary data of agents and Multus.
func FuzzEndpoints(f *testing.F) {
	f.Add("2-3", "0-7", "0000:65:02.1", "192.0.2.1/24", "00:0f:53:4a:81:01", "max 100000", int32(1))
	f.Add("", "-", ",,", "fd00::1", "", "1", int32(-1))
	f.Fuzz(func(t *testing.T, cpus, online, pci, address, mac, limit string, number int32) {
		w := good(client(func(e *result.Evidence, s *result.Seen) {
			e.CPUsAllowed, e.OnlineCPUs, e.ThreadSiblings, e.AllowedNUMANodes = cpus, online, online, online
			e.AllocatedDevices[Variable(sfVF)], e.PCIAddress, e.Address, e.Addresses, e.MAC = pci, address, address, []string{address, pci}, mac
			e.MeasuringCPU, e.CPUNUMANode, e.MTU = number, number, number
			e.Facts["cgroup.cpus"], e.Facts["cgroup.cpu-max"], e.Facts["numa.nodes"] = online, limit, cpus
			e.Paths = []result.Path{{Cell: "tcp-64", Grown: map[string]int64{result.PathTCPIn: int64(number)}, Begun: &result.Look{Library: pci, Onload: number}, Banner: mac}}
			s.Network.IPs, s.Network.MAC = []string{address, mac}, pci
		}))
		for _, v := range plan.Variants(w.spec) {
			lines, _ := Endpoints(w.spec, v, w.run)
			if diff := cmp.Diff(names(lines), names(mustEndpoints(good()))); diff != "" {
				t.Errorf("other checks than of any run:\n%s", diff)
			}
		}
	})
}

func mustEndpoints(w *world) []v1alpha1.ProofLine {
	lines, _ := Endpoints(w.spec, w.variant(), w.run)
	return lines
}

func TestWaitedOfAServerThatForks(t *testing.T) {
	for tool, want := range map[v1alpha1.Tool]int64{v1alpha1.ToolNetperf: 4_000_000, v1alpha1.ToolSockperf: 0} {
		e := endpoint{spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{Tool: tool}}, role: v1alpha1.RoleServer}
		e.own.Deltas = map[string]int64{"cpu.run-delay-ns": 4e9, "tool.run-delay-ns": 0}
		if got, known := e.waited(); got != want || !known {
			t.Errorf("%s: %d µs, %v; expected %d µs", tool, got, known, want)
		}
	}
}

// At the limit, the median and the mean of a closed loop are at most 2 % longer, however long the others' slices of the CPU are. The 99th
// percentile may be twice as long.
func TestMostTaken(t *testing.T) {
	const roundTrip, roundTrips = 10_000.0, 1_000_000 // ns
	random := rand.New(rand.NewPCG(1, 2))
	for _, slice := range []float64{50, 1_000, 9_000, 100_000, 3_000_000} {
		next, now, samples := 0.0, 0.0, []float64(nil)
		for range roundTrips {
			took := roundTrip
			for next < now+took { // the others' slices begin at random, and take 1/100 of the time
				took += slice
				next += (0.5 + random.Float64()) * slice * (mostTaken - 1)
			}
			now += took
			samples = append(samples, took)
		}
		slices.Sort(samples)
		if median, mean, p99 := samples[roundTrips/2], now/roundTrips, samples[roundTrips*99/100]; median > 1.02*roundTrip || mean > 1.02*roundTrip || p99 > 2*roundTrip {
			t.Errorf("slices of %.0f ns: median %.0f ns, mean %.0f ns, p99 %.0f ns", slice, median, mean, p99)
		}
	}
}
