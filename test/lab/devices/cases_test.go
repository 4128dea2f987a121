//go:build e2e

package devices

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/lab"
)

const (
	four = "192.168.40.0/24"
	// otherFour is for a second pair beside another one.
	otherFour = "192.168.41.0/24"
	six       = "fd00:40::/64"
)

// TestFunctions measures over virtual functions, removes them, and measures over the physical functions, because a device
// plugin offers no PF that has VFs.
func TestFunctions(t *testing.T) {
	vfs := makeVFs(t)
	t.Run("VF", func(t *testing.T) {
		functions := [2]string{vfs[0][0], vfs[1][0]}
		good(t, v1alpha1.NetworkVF, functions)
		badVFs(t, functions, [2]string{vfs[0][1], vfs[1][1]})
	})
	removeVFs(t)
	t.Run("PF", func(t *testing.T) {
		functions := physical(t)
		good(t, v1alpha1.NetworkPF, functions)
		badPFs(t, functions)
	})
}

// good measures over each MTU and address family, and checks every line of the evidence and of the proof.
func good(t *testing.T, kind v1alpha1.NetworkType, functions [2]string) {
	for i, n := range []network{{kind, 1500, four}, {kind, 1500, six}, {kind, 9000, four}, {kind, 9000, six}} {
		name := fmt.Sprintf("MTU %d, %s", n.mtu, n.subnet)
		t.Run(name, func(t *testing.T) {
			p := attachPair(t, n, functions)
			if i == 0 {
				p.inspect(t)
			}
			program := v1alpha1.ToolPinger
			if i == 2 { // sockperf accepts only IPv4 addresses
				program = v1alpha1.ToolSockperf
			}
			o := p.measure(t, measurement{program: program})
			o.proved(t, p, nil)
			if o.stored != nil {
				p.evidence(t, o)
			}
		})
	}
}

// badVFs measures over VFs with faults that must prevent a proof, or fail the run. Independent faults at the two ends share a run.
func badVFs(t *testing.T, functions, others [2]string) {
	// A spec without an MTU requires the same MTU at both ends.
	p := attachPair(t, network{v1alpha1.NetworkVF, 0, four}, functions)
	t.Run("VFs of the far node", func(t *testing.T) {
		o := p.measure(t, measurement{cpus: [2]string{cores[1], cores[0]}})
		differences := map[string]line{}
		for i, role := range roles {
			far := 1 - i
			maps.Copy(differences, map[string]line{
				role + " CPUsExclusive":  proved(cores[far], "0-3"),
				role + " NUMALocal":      failed(fmt.Sprintf("CPU %d on NUMA node %d", 2*far, far), fmt.Sprintf("net1 on %d", i)),
				role + " CPUsOnNUMANode": proved(fmt.Sprintf("NUMA node %d", far)),
				role + " SMTSiblings":    proved(cores[far]),
			})
		}
		o.proved(t, p, differences)
	})
	t.Run("half a core and CPUs of both nodes; the environment names another VF", func(t *testing.T) {
		o := p.measure(t, measurement{cpus: [2]string{"0,3", ""}, allocated: [2]string{"", others[1]}})
		o.proved(t, p, map[string]line{
			"client CPUsExclusive":  proved("0,3", "0-3"),
			"client CPUsOnNUMANode": failed("0-1"),
			"client SMTSiblings":    failed("0-1"),
			"server Device":         failed("environment "+others[1], "sysfs "+functions[1], "network-status "+functions[1]),
		})
	})
	t.Run("different MTUs; the firmware does not name the NUMA node", func(t *testing.T) {
		p.setMTU(t, 1400)
		setNUMANode(t, functions[1], -1)
		o := p.measure(t, measurement{})
		o.proved(t, p, map[string]line{"client MTU": failed("1400"), "server MTU": failed("1500"), "server NUMALocal": {state: v1alpha1.ProofUnknown}})
		p.setMTU(t, 1500)
		setNUMANode(t, functions[1], 1)
	})
	t.Run("the PF is down during the run", func(t *testing.T) {
		pf := physical(t)[0]
		o := p.measure(t, p.outage(t, func(up bool) { setUp(t, pf, up) }))
		o.proved(t, p, map[string]line{"client Link": failed("changed")})
	})
	t.Run("the driver is unbound during the run", func(t *testing.T) {
		p.measure(t, eventful(endless, func() {
			if err := os.WriteFile("/sys/bus/pci/drivers/igbvf/unbind", []byte(functions[0]), 0o200); err != nil {
				t.Error(err)
			}
		})).failed(t)
	})
	t.Run("the VFs are removed during the run", func(t *testing.T) {
		// The first pair still has its addresses.
		p := attachPair(t, network{v1alpha1.NetworkVF, 0, otherFour}, others)
		p.measure(t, eventful(endless, func() { removeVFs(t) })).failed(t)
	})
}

// failed checks the result of a run whose client lost its interface.
func (o *outcome) failed(t *testing.T) {
	t.Helper()
	if o.words[0].Reason != v1alpha1.OutcomeInterfaceLost || !strings.Contains(o.words[0].Message, "interface net1 disappeared during the run") || o.words[1].Reason == "" {
		t.Errorf("the run ended with %+v", o.words)
	}
	t.Logf("ended in %s: %s", o.took.Round(100*time.Millisecond), o.words[0].Message)
}

// badPFs measures over PFs with faults that must prevent a proof, or with a link that comes up late.
func badPFs(t *testing.T, functions [2]string) {
	t.Run("the link is slow to come up", func(t *testing.T) {
		setLink(t, 1, false)
		// The kernel does not bind sockets to an IPv6 address while the link is down.
		p := attachPair(t, network{v1alpha1.NetworkPF, 1500, six}, functions)
		o := p.measure(t, measurement{before: func() {
			setLink(t, 1, false)
			time.AfterFunc(3*time.Second, func() { setLink(t, 1, true) })
		}})
		o.proved(t, p, nil)
	})
	p := attachPair(t, network{v1alpha1.NetworkPF, 1500, four}, functions)
	t.Run("a VF was asked for", func(t *testing.T) {
		o := p.measure(t, measurement{kind: v1alpha1.NetworkVF})
		o.proved(t, p, map[string]line{"client Function": failed("PF"), "server Function": failed("PF")})
	})
	t.Run("the cable is out during the run", func(t *testing.T) {
		o := p.measure(t, p.outage(t, func(up bool) { setLink(t, 0, up) }))
		o.proved(t, p, map[string]line{"client Link": failed("changed")})
	})
}

// endless is the duration of a measurement that only an event ends.
const endless = 10 * patience

// eventful returns a measurement that calls during. It uses UDP, because the pinger counts lost datagrams.
func eventful(duration time.Duration, during func()) measurement {
	return measurement{duration: duration, protocols: []v1alpha1.Protocol{v1alpha1.ProtocolUDP}, during: during}
}

// outage returns a measurement during which the client's link goes down and comes up again. The tool ends at most 25 s after its
// duration, and an outage takes longer on a busy machine. Therefore the duration is at least that of the slowest correct run.
func (p *pair) outage(t *testing.T, set func(up bool)) measurement {
	return eventful(max(5*time.Second, slowest), func() {
		for _, up := range []bool{false, true} {
			set(up)
			eventually(t, fmt.Sprintf("the link is up: %t", up), func() bool { return linkIs(p.ends[0].space, up) })
		}
	})
}

// setNUMANode overrides the NUMA node that the firmware has reported to the kernel.
func setNUMANode(t *testing.T, function string, node int) {
	t.Helper()
	if err := os.WriteFile(pci+function+"/numa_node", fmt.Append(nil, node), 0o644); err != nil {
		t.Fatal(err)
	}
}

// setLink connects or disconnects the cable of a NUMA node's card.
func setLink(t *testing.T, node int, up bool) {
	if err := lab.SetLink(node, up); err != nil {
		t.Error(err)
	}
}

// setMTU sets the MTU of the client's VF and waits until the VF has a link again. As in attach, igbvf gives up when its PF does not
// answer in time, until its interface is brought up again.
func (p *pair) setMTU(t *testing.T, mtu int) {
	t.Helper()
	space := p.ends[0].space
	eventually(t, fmt.Sprintf("the client has a link with an MTU of %d", mtu), func() bool {
		if err := space.In(func() error {
			l, err := netlink.LinkByName(pods.Interface)
			if err != nil {
				return err
			}
			return errors.Join(netlink.LinkSetDown(l), netlink.LinkSetMTU(l, mtu), netlink.LinkSetUp(l))
		}); err != nil {
			t.Fatal(err)
		}
		return within(attachTime, func() bool { return linkIs(space, true) })
	})
}

// line is the expected content of a line of the proof: its state, and the values that it found.
type line struct {
	state  v1alpha1.ProofState
	values []string
}

func proved(values ...string) line { return line{v1alpha1.ProofProved, values} }
func failed(values ...string) line { return line{v1alpha1.ProofFailed, values} }
func noted(values ...string) line  { return line{v1alpha1.ProofNoted, values} }

// proved compares every line of the proof with the expected lines of a run over a pair. differences are the lines that a case
// changes.
func (o *outcome) proved(t *testing.T, p *pair, differences map[string]line) {
	t.Helper()
	if o.stored == nil {
		t.Errorf("the run failed: %+v", o.words)
		return
	}
	want := map[string]line{}
	for i, role := range roles {
		driver, firmware, function := "igb", "2.1.0", "PF"
		if p.kind == v1alpha1.NetworkVF {
			driver, firmware, function = "igbvf", "not known", "VF of "+physical(t)[i]
		}
		mtu := int32(1500)
		if p.mtu != 0 {
			mtu = p.mtu
		}
		node := fmt.Sprint(i)
		for check, l := range map[string]line{
			v1alpha1.ProofCPUsExclusive:   proved(cores[i], "0-3"),
			v1alpha1.ProofNUMALocal:       proved(fmt.Sprintf("CPU %d on NUMA node %d", 2*i, i), "net1 on "+node),
			v1alpha1.ProofCPUsOnNUMANode:  proved("NUMA node " + node),
			v1alpha1.ProofCPUIsolated:     noted("no"),
			v1alpha1.ProofSMTSiblings:     proved(cores[i]),
			v1alpha1.ProofCPUQuota:        proved("no quota"),
			v1alpha1.ProofInterface:       proved("net1"),
			v1alpha1.ProofDevice:          proved(p.ends[i].function, "environment", "sysfs", "network-status"),
			v1alpha1.ProofFunction:        proved(function),
			v1alpha1.ProofMTU:             proved(fmt.Sprint(mtu)),
			v1alpha1.ProofLink:            proved("up, 1000 Mbit/s"),
			v1alpha1.ProofDriver:          noted(driver),
			v1alpha1.ProofFirmware:        noted(firmware),
			v1alpha1.ProofFirmwareVariant: noted(),
			v1alpha1.ProofAcceleration:    proved(),
			v1alpha1.ProofPodUnchanged:    proved(),
			v1alpha1.ProofImage:           noted("sha256:bench"),
			v1alpha1.ProofHypervisor:      noted("virtual machine"),
		} {
			want[role+" "+check] = l
		}
	}
	maps.Copy(want, differences)
	got := lab.Proof(o.spec, o.variant, *o.stored)
	for name, l := range got {
		w, ok := want[name]
		if ok && w.state == v1alpha1.ProofProved && lab.Disturbed(l) {
			t.Logf("%s: each run was disturbed: %s", name, l.Found) // the limit of an emulated machine
			continue
		}
		if !ok || l.State != w.state || slices.ContainsFunc(w.values, func(v string) bool { return !strings.Contains(l.Found, v) }) {
			t.Errorf("%s: %s: expected %q, found %q; want %s with %q", name, l.State, l.Expected, l.Found, w.state, w.values)
		}
	}
	if len(got) != len(want) {
		t.Errorf("the proof has %d lines, want %d", len(got), len(want))
	}
	for _, cell := range o.stored.Client.Cells {
		if cell.Histogram.Count == 0 {
			t.Errorf("%s has no samples", cell.Name)
		}
	}
	t.Logf("%s measured in %s", o.spec.Tool, o.took.Round(100*time.Millisecond))
}

// evidence checks the agents' observations of their devices, CPUs, NUMA nodes and cgroups: all facts of the NIC, the NUMA nodes
// and the cgroup, and those facts of the CPUs that the machine's description determines.
func (p *pair) evidence(t *testing.T, o *outcome) {
	t.Helper()
	for i, e := range []result.Evidence{o.stored.Client.Evidence, o.stored.Server.Evidence} {
		want := p.wanted(t, i)
		got := result.Evidence{
			Interface: e.Interface, MAC: e.MAC, MTU: e.MTU, PCIAddress: e.PCIAddress, PCISource: e.PCISource, Driver: e.Driver, Firmware: e.Firmware,
			CPUsAllowed: e.CPUsAllowed, OnlineCPUs: e.OnlineCPUs, MeasuringCPU: e.MeasuringCPU, AgentCPU: e.AgentCPU, ThreadSiblings: e.ThreadSiblings,
			CPUNUMANode: e.CPUNUMANode, DeviceNUMANode: e.DeviceNUMANode, AllowedNUMANodes: e.AllowedNUMANodes, Address: e.Address,
			AllocatedDevices: e.AllocatedDevices, Facts: map[string]string{},
		}
		for key, value := range e.Facts {
			group, _, _ := strings.Cut(key, ".")
			if _, ok := want.Facts[key]; ok || slices.Contains([]string{"nic", "numa", "cgroup"}, group) {
				got.Facts[key] = value
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("evidence of the %s (-want +got):\n%s", roles[i], diff)
		}
		// Each message is one packet, over the device itself.
		for counter, want := range map[string]bool{
			"nic.rx-packets": true, "nic.tx-packets": true, "irq": true, "nic.carrier-changes": false, "ip.FragCreates": false, "ip6.FragCreates": false,
		} {
			if n, ok := e.Deltas[counter]; !ok || (n > 0) != want {
				t.Errorf("the %s counted %s: %d, %t", roles[i], counter, n, ok)
			}
		}
	}
}

// wanted returns the evidence that an end must have. Further facts of the CPUs are allowed.
func (p *pair) wanted(t *testing.T, i int) result.Evidence {
	t.Helper()
	a := p.ends[i]
	want := result.Evidence{
		Interface: pods.Interface, MAC: a.status.MAC, MTU: p.mtu, PCIAddress: a.function, PCISource: result.PCIFromSysfs, Driver: "igb", Firmware: "2.1.0",
		CPUsAllowed: cores[i], OnlineCPUs: "0-3", MeasuringCPU: int32(2 * i), AgentCPU: int32(2*i + 1), ThreadSiblings: cores[i],
		CPUNUMANode: int32(i), DeviceNUMANode: int32(i), AllowedNUMANodes: fmt.Sprint(i), Address: a.status.IPs[0],
		AllocatedDevices: map[string]string{"PCIDEVICE_" + strings.ToUpper(strings.NewReplacer(".", "_", "/", "_").Replace(p.resourceName())): a.function},
		Facts: map[string]string{
			"cgroup.version": "2", "cgroup.cpus": cores[i], "cgroup.cpus-set": cores[i], "cgroup.mems": "0-1", "cgroup.partition": "member", "cgroup.cpu-max": "max 100000",
			"cpu.smt.active": "1", "cpu.smt.control": "on", "cpu.smt.sibling": "own", "cpu.allowed-count": "2", "cpu.l3.shared": cores[i], "cpu.hypervisor": "yes",
			"numa.nodes": "0-1", "numa.packages": fmt.Sprint(i),
			"nic.function": "PF", "nic.port": physical(t)[i], "nic.pci-id": "8086:10c9", "nic.pci-subsystem": "1af4:1100", "nic.pcie": "2.5 GT/s PCIe x1",
			"nic.driver-version": "kernel", "nic.carrier": "1", "nic.speed": "1000", "nic.duplex": "full",
			"nic.irqs": "9", "nic.irq-cpus": cores[i], "nic.irq-on-cpu": "yes", "nic.qdisc": "mq", "nic.rps": "none",
			"nic.ring.rx": "256", "nic.ring.tx": "256", "nic.pause.rx": "1", "nic.pause.tx": "1",
			"nic.coalesce.rx-usecs": "3", "nic.coalesce.tx-usecs": "3",
			"nic.channels.combined": "4", "nic.channels.other": "1", "nic.channels.rx": "0", "nic.channels.tx": "0",
			"nic.private-flags": "none", "nic.hwtstamp": "tx 0, rx 0", "nic.txqueuelen": "1000",
		},
	}
	for value, keys := range map[string]string{
		"0": "coalesce.rx-frames coalesce.rx-frames-irq coalesce.rx-usecs-irq coalesce.tx-frames coalesce.tx-frames-irq coalesce.tx-usecs-irq " +
			"coalesce.adaptive-rx coalesce.adaptive-tx gro-flush-timeout napi-defer-hard-irqs threaded",
		"on": "feature.rx-checksum feature.rx-gro feature.rx-hashing feature.tx-checksum-ip-generic feature.tx-generic-segmentation " +
			"feature.tx-scatter-gather feature.tx-tcp-segmentation feature.tx-udp-segmentation",
		"off": "feature.hw-tc-offload feature.rx-gro-hw feature.rx-gro-list feature.rx-lro feature.rx-ntuple-filter " +
			"feature.rx-udp-gro-forwarding feature.tx-checksum-ipv4 feature.tx-nocache-copy",
	} {
		for _, key := range strings.Fields(keys) {
			want.Facts["nic."+key] = value
		}
	}
	if p.kind == v1alpha1.NetworkVF {
		want.Driver, want.Firmware = "igbvf", ""
		maps.Copy(want.Facts, map[string]string{
			"nic.function": "VF", "nic.pci-id": "8086:10ca", "nic.irqs": "3", "nic.qdisc": "fq_codel", "nic.ring.rx": "1024", "nic.ring.tx": "1024",
			"nic.pause.rx": "0", "nic.pause.tx": "0", "nic.coalesce.tx-usecs": "0",
			"nic.feature.rx-hashing": "off", "nic.feature.tx-udp-segmentation": "off",
		})
		for _, key := range []string{"channels.combined", "channels.other", "channels.rx", "channels.tx", "private-flags", "hwtstamp"} {
			delete(want.Facts, "nic."+key) // the driver does not report it
		}
	}
	return want
}

// inspect checks the report about its node that a pod with a newly attached network makes for the doctor.
func (p *pair) inspect(t *testing.T) {
	t.Helper()
	a := p.ends[0]
	got := inspect(t, a.space, pods.Interface)
	vfs := int32(0)
	if p.kind == v1alpha1.NetworkVF {
		vfs = vfsPerPF
	}
	want := result.Inspection{NUMA: map[string]string{"0": cores[0], "1": cores[1]}}
	for node, pf := range physical(t) {
		want.NICs = append(want.NICs, result.NIC{PCIAddress: pf, ID: "8086:10c9", Driver: "igb", NUMANode: int32(node), VFs: vfs, TotalVFs: 7})
	}
	if diff := cmp.Diff(want, result.Inspection{NUMA: got.NUMA, NICs: got.NICs}); diff != "" {
		t.Errorf("inspection (-want +got):\n%s", diff)
	}
	e := got.Evidence
	if e.PCIAddress != a.function || e.DeviceNUMANode != 0 || e.Facts["nic.function"] != string(p.kind) || e.Facts["nic.carrier"] != "1" {
		t.Errorf("inspected %s %s on NUMA node %d, carrier %q", e.Facts["nic.function"], e.PCIAddress, e.DeviceNUMANode, e.Facts["nic.carrier"])
	}
}
