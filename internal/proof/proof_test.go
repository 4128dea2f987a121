package proof

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/test/resulttest"
)

const sfVF = "amd.com/sf_vf"

// world is a benchmark with one variant and a run of it.
type world struct {
	spec v1alpha1.LatencyBenchmarkSpec
	run  result.Stored
}

func (w *world) variant() v1alpha1.Variant  { return plan.Variants(w.spec)[0] }
func (w *world) client() *result.Evidence   { return &w.run.Client.Evidence }
func (w *world) server() *result.Evidence   { return &w.run.Server.Evidence }
func (w *world) network() *v1alpha1.Network { return &w.spec.Network }

// evidence returns the evidence of an end that has everything it requested: two CPUs and a VF on NUMA node 1, without Onload.
// Its address and similar values end in its number.
func evidence(node, number string) result.Evidence {
	return result.Evidence{
		Node: node, BootID: "boot-" + node, CPUsAllowed: "2-3", OnlineCPUs: "0-7", MeasuringCPU: 2, AgentCPU: 3,
		CPUNUMANode: 1, DeviceNUMANode: 1, AllowedNUMANodes: "1", ThreadSiblings: "2-3",
		Interface: "net1", Address: "192.0.2." + number, Addresses: []string{"192.0.2." + number + "/24", "fd00::" + number + "/64"},
		MAC: "00:0f:53:4a:81:0" + number, MTU: 9000, Driver: "sfc", Firmware: "8.5.2.1000 rx0 tx0",
		PCIAddress: "0000:65:02." + number, PCISource: result.PCIFromSysfs,
		AllocatedDevices: map[string]string{"PCIDEVICE_AMD_COM_SF_VF": "0000:65:02." + number},
		Facts: map[string]string{
			"cpu.smt.sibling": "own", "cpu.smt.active": "1", "cpu.isolated": "yes", "cpu.nohz-full": "no", "cpu.hypervisor": "no",
			"cgroup.cpus": "2-3", "cgroup.cpus-set": "2-3", "cgroup.version": "2", "cgroup.cpu-max": "max 100000", "numa.nodes": "0-1",
			"nic.function": "VF", "nic.port": "0000:65:00.0", "nic.carrier": "1", "nic.speed": "25000", "nic.firmware-variant": "full-feature",
		},
		Deltas: map[string]int64{"elapsed-ms": 10_000, "cgroup.throttled": 0, "cgroup.stopped-us": 0, "nic.carrier-changes": 0},
	}
}

func seen(number string) result.Seen {
	return result.Seen{
		PodUID: "uid-" + number, ImageID: "sha256:ab", Requests: map[string]string{"cpu": "2", sfVF: "1"},
		Network: &foreign.Status{
			Name: "perf/sf-vf", Interface: "net1", IPs: []string{"192.0.2." + number, "fd00::" + number}, MAC: "00:0F:53:4A:81:0" + number,
			DeviceInfo: &foreign.DeviceInfo{Type: "pci", PCI: &foreign.PCIDevice{Address: "0000:65:02." + number}},
		},
	}
}

// good returns a run over VFs with everything proved; change modifies it.
func good(change ...func(*world)) *world {
	w := &world{
		spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
			Placement: v1alpha1.Placement{CPUs: 2, NUMAPolicy: v1alpha1.NUMARequired},
			Network:   v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: sfVF, NetworkRef: &v1alpha1.NetworkRef{Name: "sf-vf"}}}},
		}},
		run: result.Stored{
			Client: result.Document{
				Run: "x-r1", Variant: plan.DefaultVariant, Role: v1alpha1.RoleClient, Evidence: evidence("a", "1"),
				Cells: []result.Cell{cellOf("tcp-64", v1alpha1.ProtocolTCP), cellOf("udp-64", v1alpha1.ProtocolUDP)},
			},
			Server:     result.Document{Run: "x-r1", Variant: plan.DefaultVariant, Role: v1alpha1.RoleServer, Evidence: evidence("b", "2")},
			ClientSeen: seen("1"), ServerSeen: seen("2"),
		},
	}
	w.client().Paths = resulttest.ThroughKernel(w.run.Client.Cells)
	w.server().Paths = resulttest.ThroughKernel(w.run.Client.Cells)
	for _, f := range change {
		f(w)
	}
	return w
}

// cellOf returns a measured cell with 1000 round trips of messages of 64 bytes.
func cellOf(name string, p v1alpha1.Protocol) result.Cell {
	return result.Cell{
		Cell:      tool.Cell{Name: name, Traffic: v1alpha1.Traffic{Protocol: p, MessageSize: 64}, Duration: time.Second},
		Histogram: result.Histogram{Count: 1000},
	}
}

// network changes the run's network, with the evidence that both ends then show.
func network(t v1alpha1.NetworkType, iface string) func(*world) {
	return func(w *world) {
		w.spec.Network = v1alpha1.Network{Type: t}
		for _, e := range []*result.Evidence{w.client(), w.server()} {
			e.Interface, e.PCIAddress, e.PCISource, e.DeviceNUMANode, e.AllocatedDevices = iface, "", "", -1, nil
			e.Facts["nic.function"] = "virtual"
		}
		w.run.ClientSeen.Network, w.run.ServerSeen.Network = nil, nil
		if t.Attached() {
			w.run.ClientSeen.Network = &foreign.Status{Name: "perf/macvlan", Interface: iface, MAC: w.client().MAC, IPs: []string{"192.0.2.1"}}
		}
	}
}

// hostNIC changes the network to Host on a NIC.
func hostNIC(w *world) {
	network(v1alpha1.NetworkHost, "enp59s0f0")(w)
	w.spec.Network.Host = &v1alpha1.HostNetwork{Interface: "enp59s0f0"}
	for _, e := range []*result.Evidence{w.client(), w.server()} {
		e.PCIAddress, e.PCISource, e.DeviceNUMANode, e.Facts["nic.function"] = "0000:3b:00.0", result.PCIFromSysfs, 1, "PF"
	}
}

// aligned changes the network to Host on a NIC, with a borrowed device whose address and NUMA node the agents report, and without
// a NUMA policy.
func aligned(address, node string) func(*world) {
	return func(w *world) {
		hostNIC(w)
		w.spec.Placement.NUMAPolicy = ""
		w.spec.Network.Host.AlignWith = "openshift.io/sf_vf"
		for _, e := range []*result.Evidence{w.client(), w.server()} {
			e.AllocatedDevices, e.Facts["numa.borrowed"] = map[string]string{"PCIDEVICE_OPENSHIFT_IO_SF_VF": address}, node
		}
	}
}

// onLocalCluster replaces VFs by the local cluster's devices: veths, for which sysfs has no device.
func onLocalCluster(w *world) {
	for _, e := range []*result.Evidence{w.client(), w.server()} {
		e.PCISource, e.Driver, e.Firmware = "", "veth", ""
		delete(e.Facts, "nic.firmware-variant")
	}
}

// withOnload makes a run in which Onload carried all messages as requested.
func withOnload(w *world) {
	w.spec.Acceleration = &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload}
	for _, e := range []*result.Evidence{w.client(), w.server()} {
		e.Paths = resulttest.PastKernel(w.run.Client.Cells)
		e.Facts["module.onload.version"] = "9.0.1"
		e.Facts["env.LD_PRELOAD"] = "/opt/onload/usr/lib64/libonload.so"
	}
}

// client and server change the evidence of an end.
func client(change func(*result.Evidence, *result.Seen)) func(*world) {
	return func(w *world) { change(w.client(), &w.run.ClientSeen) }
}

func server(change func(*result.Evidence, *result.Seen)) func(*world) {
	return func(w *world) { change(w.server(), &w.run.ServerSeen) }
}

// fact sets a fact of the client; empty: the fact is not known.
func fact(key, value string) func(*world) {
	return func(w *world) {
		if w.client().Facts[key] = value; value == "" {
			delete(w.client().Facts, key)
		}
	}
}

func all(changes ...func(*world)) func(*world) {
	return func(w *world) {
		for _, c := range changes {
			c(w)
		}
	}
}

// line is a v1alpha1.ProofLine in a shorter form.
type line struct {
	Check           string
	State           v1alpha1.ProofState
	Expected, Found string
}

func linesOf(lines []v1alpha1.ProofLine) []line {
	var all []line
	for _, l := range lines {
		all = append(all, line(l))
	}
	return all
}

// lineOf returns the line of a check; without a state if there is none.
func lineOf(lines []v1alpha1.ProofLine, check string) v1alpha1.ProofLine {
	for _, l := range lines {
		if l.Check == check {
			return l
		}
	}
	return v1alpha1.ProofLine{}
}

// names returns the names of the checks in the order of their lines.
func names(lines []v1alpha1.ProofLine) []string {
	var all []string
	for _, l := range lines {
		all = append(all, l.Check)
	}
	return all
}

// TestGood lists everything that is proved or noted for a good run, in order.
func TestGood(t *testing.T) {
	const proved, noted = v1alpha1.ProofProved, v1alpha1.ProofNoted
	cases := map[string]struct {
		change func(*world)
		want   []line
	}{
		"VF": {func(*world) {}, []line{
			{"CPUsExclusive", proved, "2 exclusive CPUs", "2-3 of the node's 0-7"},
			{"NUMALocal", proved, "CPU on the NUMA node of net1", "CPU 2 on NUMA node 1, net1 on 1"},
			{"CPUsOnNUMANode", proved, "all CPUs on one NUMA node", "NUMA node 1"},
			{"CPUIsolated", noted, "", "isolated: yes, nohz_full: no"},
			{"SMTSiblings", proved, "no SMT siblings, or only its own", "its own: core of CPUs 2-3"},
			{"CPUQuota", proved, "no CFS quota at any level, or never throttled", "no quota in the visible cgroups, never stopped by a quota"},
			{"Interface", proved, "net1", "net1"},
			{"Device", proved, "the one device of amd.com/sf_vf", "0000:65:02.1, by environment, sysfs, network-status"},
			{"Function", proved, "VF", "VF of 0000:65:00.0"},
			{"MTU", proved, "9000, equal to the other end", "9000"},
			{"Link", proved, "up throughout the run", "up, 25000 Mbit/s"},
			{"Driver", noted, "", "sfc"},
			{"Firmware", noted, "", "8.5.2.1000 rx0 tx0"},
			{"FirmwareVariant", noted, "", "full-feature"},
			{"Acceleration", proved, "the kernel carries all messages", "in all 2 cells; tcp-64: kernel 1000 sent, 1000 received of 1000 messages"},
			{"PodUnchanged", proved, "the pod as the operator created it", "unchanged"},
			{"Image", noted, "", "sha256:ab"},
			{"Hypervisor", noted, "", "bare metal"},
		}},
		"VF of the local cluster, by veth": {onLocalCluster, []line{
			{"CPUsExclusive", proved, "2 exclusive CPUs", "2-3 of the node's 0-7"},
			{"NUMALocal", proved, "CPU on the NUMA node of net1", "CPU 2 on NUMA node 1, net1 on 1"},
			{"CPUsOnNUMANode", proved, "all CPUs on one NUMA node", "NUMA node 1"},
			{"CPUIsolated", noted, "", "isolated: yes, nohz_full: no"},
			{"SMTSiblings", proved, "no SMT siblings, or only its own", "its own: core of CPUs 2-3"},
			{"CPUQuota", proved, "no CFS quota at any level, or never throttled", "no quota in the visible cgroups, never stopped by a quota"},
			{"Interface", proved, "net1", "net1"},
			{"Device", proved, "the one device of amd.com/sf_vf", "0000:65:02.1, by environment, network-status"},
			{"Function", proved, "VF", "VF of 0000:65:00.0"},
			{"MTU", proved, "9000, equal to the other end", "9000"},
			{"Link", proved, "up throughout the run", "up, 25000 Mbit/s"},
			{"Driver", noted, "", "veth"},
			{"Firmware", noted, "", "not known"},
			{"FirmwareVariant", noted, "", "not known"},
			{"Acceleration", proved, "the kernel carries all messages", "in all 2 cells; tcp-64: kernel 1000 sent, 1000 received of 1000 messages"},
			{"PodUnchanged", proved, "the pod as the operator created it", "unchanged"},
			{"Image", noted, "", "sha256:ab"},
			{"Hypervisor", noted, "", "bare metal"},
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := good(c.change)
			client, server := Endpoints(w.spec, w.variant(), w.run)
			if diff := cmp.Diff(c.want, linesOf(client)); diff != "" {
				t.Errorf("client (-want +got):\n%s", diff)
			}
			if !Verified(client) || !Verified(server) {
				t.Errorf("not verified: client %v, server %v", client, server)
			}
			if warnings := Warnings(w.spec, w.variant(), w.run); len(warnings) != 0 {
				t.Errorf("warnings: %v", warnings)
			}
		})
	}
}

// TestChecksThatApply lists the checks that each network adds and lacks.
func TestChecksThatApply(t *testing.T) {
	always := "CPUsExclusive CPUsOnNUMANode NUMALocal CPUIsolated SMTSiblings CPUQuota Interface MTU Link Driver Firmware FirmwareVariant " +
		"Acceleration PodUnchanged Image Hypervisor"
	cases := map[string]struct {
		change         func(*world)
		client, server string
	}{
		"VF":   {func(*world) {}, "Device Function", "Device Function"},
		"PF":   {func(w *world) { w.network().Type = v1alpha1.NetworkPF }, "Device Function", "Device Function"},
		"NAD":  {network(v1alpha1.NetworkNAD, "net1"), "", ""},
		"Pod":  {network(v1alpha1.NetworkPod, "eth0"), "", ""},
		"Host": {hostNIC, "Function", "Function"},
		"a server that captures": {
			all(network(v1alpha1.NetworkPod, "eth0"), func(w *world) { w.spec.Capture = v1alpha1.CaptureServer }), "", "CaptureCPU",
		},
		"Onload": {all(network(v1alpha1.NetworkNAD, "net1"), withOnload), "SendPath", "SendPath"},
		"nothing is known": {func(w *world) {
			w.run = result.Stored{Client: result.Document{Role: v1alpha1.RoleClient}, Server: result.Document{Role: v1alpha1.RoleServer}}
		}, "Device Function", "Device Function"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := good(c.change)
			client, server := Endpoints(w.spec, w.variant(), w.run)
			for _, end := range []struct {
				role  string
				lines []v1alpha1.ProofLine
				extra string
			}{{"client", client, c.client}, {"server", server, c.server}} {
				want := map[string]int{}
				for _, name := range strings.Fields(always + " " + end.extra) {
					want[name] = 1
				}
				got := map[string]int{}
				for _, name := range names(end.lines) {
					got[name]++
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s", end.role, diff)
				}
			}
		})
	}
}

// TestNothingKnownProvesNothing lists the states of a run about which nothing was reported.
func TestNothingKnownProvesNothing(t *testing.T) {
	blank := result.Evidence{MeasuringCPU: -1, AgentCPU: -1, CPUNUMANode: -1, DeviceNUMANode: -1}
	for name, onload := range map[string]func(*world){"Kernel": func(*world) {}, "Onload": withOnload} {
		t.Run(name, func(t *testing.T) {
			w := good(onload, func(w *world) {
				w.spec.Capture = v1alpha1.CaptureServer
				*w.client(), *w.server() = blank, blank
				w.run.ClientSeen, w.run.ServerSeen = result.Seen{}, result.Seen{}
			})
			_, server := Endpoints(w.spec, w.variant(), w.run)
			for _, l := range server {
				if l.State != v1alpha1.ProofUnknown && l.State != v1alpha1.ProofNoted {
					t.Errorf("%+v", l)
				}
			}
			if Verified(server) {
				t.Error("it is verified")
			}
			if got, want := len(Warnings(w.spec, w.variant(), w.run)), 12; got != want {
				t.Errorf("%d warnings, want %d", got, want)
			}
		})
	}
	if Verified(nil) {
		t.Error("no lines are verified")
	}
}

// TestRuns checks the combined proof of three runs.
func TestRuns(t *testing.T) {
	run := func(name string, change ...func(*world)) result.Stored {
		w := good(change...)
		w.run.Client.Run, w.run.Server.Run = name, name
		return w.run
	}
	shared := client(func(e *result.Evidence, _ *result.Seen) { e.CPUsAllowed = "0-7" })
	unread := client(func(e *result.Evidence, _ *result.Seen) { e.CPUsAllowed = "" })
	cases := map[string]struct {
		runs  []result.Stored
		state v1alpha1.ProofState
		found string
	}{
		"all good":                                 {[]result.Stored{run("r1"), run("r2")}, v1alpha1.ProofProved, "2-3 of the node's 0-7"},
		"the last run failed":                      {[]result.Stored{run("r1"), run("r2", shared)}, v1alpha1.ProofFailed, "0-7 of the node's 0-7"},
		"an earlier run failed":                    {[]result.Stored{run("r1"), run("r2", shared), run("r3")}, v1alpha1.ProofFailed, "0-7 of the node's 0-7 (in r2)"},
		"an earlier run is not known":              {[]result.Stored{run("r1", unread), run("r2")}, v1alpha1.ProofUnknown, "not known (in r1)"},
		"failed wins over not known":               {[]result.Stored{run("r1", shared), run("r2", unread), run("r3")}, v1alpha1.ProofFailed, "0-7 of the node's 0-7 (in r1)"},
		"of two that failed the last run's wins":   {[]result.Stored{run("r1", shared), run("r2", shared)}, v1alpha1.ProofFailed, "0-7 of the node's 0-7"},
		"unknown checks do not hide failed checks": {[]result.Stored{run("r1", unread), run("r2", shared)}, v1alpha1.ProofFailed, "0-7 of the node's 0-7"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := good()
			var all Runs
			for _, r := range c.runs {
				all.Add(w.spec, w.variant(), r)
			}
			client, server := all.Lines()
			want := v1alpha1.ProofLine{Check: "CPUsExclusive", State: c.state, Expected: "2 exclusive CPUs", Found: c.found}
			if diff := cmp.Diff(want, client[0]); diff != "" {
				t.Errorf("client (-want +got):\n%s", diff)
			}
			if Verified(client) != (c.state == v1alpha1.ProofProved) {
				t.Errorf("verified: %t", Verified(client))
			}
			if !Verified(server) || len(server) != len(client) {
				t.Errorf("server: %v", server)
			}
		})
	}
	if client, server := new(Runs).Lines(); client != nil || server != nil {
		t.Errorf("of no runs: %v, %v", client, server)
	}
}

// Text from agents and pods may have any length.
func TestLinesAreBounded(t *testing.T) {
	long := strings.Repeat("ä", 400)
	w := good(client(func(e *result.Evidence, s *result.Seen) { e.Interface, s.Changed = long, []string{long, "\xff"} }))
	lines, _ := Endpoints(w.spec, w.variant(), w.run)
	for _, l := range lines {
		if len([]rune(l.Expected)) > 256 || len([]rune(l.Found)) > 256 || strings.ToValidUTF8(l.Found, "") != l.Found {
			t.Errorf("%s: expected %d characters, found %d", l.Check, len([]rune(l.Expected)), len([]rune(l.Found)))
		}
	}
	if found := lineOf(lines, "PodUnchanged").Found; len(found) > 256 || !strings.HasSuffix(found, "…") {
		t.Errorf("found %q", found)
	}
	for _, warning := range Warnings(w.spec, w.variant(), w.run) {
		if len([]rune(warning.Message)) > 1024 {
			t.Errorf("%s has %d characters", warning.Reason, len([]rune(warning.Message)))
		}
	}
}
