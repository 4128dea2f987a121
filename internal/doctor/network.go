package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/internal/result"
)

func nics(i *result.Inspection) []Line {
	if len(i.NICs) == 0 {
		return good("", "none on the PCI bus")
	}
	var all, nowhere []string
	for _, c := range i.NICs {
		text := fmt.Sprintf("%s %s %s", c.PCIAddress, c.ID, cmp.Or(c.Driver, "without driver"))
		if c.NUMANode >= 0 {
			text += fmt.Sprintf(", NUMA node %d", c.NUMANode)
		} else if !i.Evidence.OneNUMANode() || i.Evidence.SeveralPlaces() != "" {
			nowhere = append(nowhere, c.PCIAddress)
		}
		if c.TotalVFs > 0 {
			text += fmt.Sprintf(", %d of %d VFs", c.VFs, c.TotalVFs)
		}
		all = append(all, text)
	}
	found := strings.Join(all, "; ")
	if len(nowhere) > 0 {
		return advice{"the CPUs near the NIC are unknown to the kubelet and to Tailgate: results do not verify with placement.numaPolicy: Required",
			"update the machine's firmware, or check its setting of NUMA nodes per socket"}.
			warn("", "the firmware does not report the NUMA node of %s (%s)", strings.Join(nowhere, ", "), found)
	}
	return good("", "%s", found)
}

func devices(o Observed, n Node) []Line {
	var lines []Line
	var seen []string
	for _, network := range o.Networks {
		name := network.Resource
		if name == "" || slices.Contains(seen, name) || o.Capacity[corev1.ResourceName(name)] == 0 {
			continue // If nothing provides the resource, networks reports this.
		}
		seen = append(seen, name)
		lines = append(lines, device(o, n, name)...)
	}
	return lines
}

func device(o Observed, n Node, name string) []Line {
	capacity, allocatable := n.Node.Status.Capacity[corev1.ResourceName(name)], n.Node.Status.Allocatable[corev1.ResourceName(name)]
	used := n.Requested()[corev1.ResourceName(name)]
	bad := advice{effect: "benchmarks over it cannot run there"}
	class := o.Classes[corev1.ResourceName(name)]
	claimed := slices.Contains(n.Claimed, corev1.ResourceName(name))
	switch {
	case capacity.Sign() == 0 && class != "":
		bad.remedy = "let the driver of DeviceClass " + class + ", or a device plugin, run there, if the node has the NIC"
		return bad.warn(name, "the node advertises none, and DeviceClass %s selects no device of its ResourceSlices", class)
	case capacity.Sign() == 0:
		bad.remedy = "let the device plugin (or a SriovNetworkNodePolicy) select the node's NIC, if it has one"
		return bad.warn(name, "the node advertises none")
	case allocatable.Sign() == 0:
		bad.remedy = "check that the device plugin's pod runs there, and that the links of its devices are up"
		return bad.err(name, "0 of %s are healthy: its device plugin does not run, or reports them as unhealthy", capacity.String())
	case o.Unseen["pods"] == "" && used > allocatable.Value():
		bad.effect = "benchmarks wait until one is free"
		bad.remedy = "end the pods that use them, and then restart the device plugin there: it was started while they used devices, and did not find those"
		return bad.warn(name, "%d are in use, and only %s are allocatable", used, allocatable.String())
	case o.Unseen["pods"] == "" && used == allocatable.Value():
		bad.effect = "benchmarks wait until one is free"
		bad.remedy = "wait for the end of the pods that use them, or drain the node and create more VFs"
		return bad.warn(name, "all %s are in use", allocatable.String())
	case claimed:
		return good(name, "%s of DeviceClass %s, %d in use", allocatable.String(), class, used)
	}
	return good(name, "%s of %s healthy, %d in use", allocatable.String(), capacity.String(), used)
}

func topology(_ Observed, n Node) []Line {
	remote := advice{"every message crosses the link between the sockets: about 100 ns each way, more under load; with placement.numaPolicy: Required results do not verify",
		"set topologyManagerPolicy: single-numa-node in the kubelet, and let the device plugin give NUMA hints (not excludeTopology; networks Host and NAD need alignWith); or measure from CPUs of the NIC's node"}
	var lines []Line
	for _, l := range n.Looks {
		if l.Trouble != nil && l.Trouble.Outcome == v1alpha1.OutcomeTopologyAffinity {
			lines = append(lines, advice{"benchmarks over it do not start there",
				"free CPUs on the device's NUMA node, let the kubelet reserve others (reservedSystemCPUs), or use a NIC of the other NUMA node"}.
				err(l.Network, "the kubelet finds no CPU and device of one NUMA node: %s", l.Trouble.Said)...)
			continue
		}
		if l.Inspection == nil || l.Kind != KindNetwork || l.Inspection.Evidence.PCIAddress == "" {
			continue
		}
		e := l.Inspection.Evidence
		found := fmt.Sprintf("CPU %d on NUMA node %s, device %s on %s", e.MeasuringCPU, number(e.CPUNUMANode), e.PCIAddress, number(e.DeviceNUMANode))
		switch proof.Near(e) {
		case v1alpha1.ProofFailed:
			lines = append(lines, remote.err(l.Network, "%s: different NUMA nodes", found)...)
		case v1alpha1.ProofProved:
			if e.OneNUMANode() {
				found += ": the only NUMA node with CPUs"
			}
			lines = append(lines, good(l.Network, "%s", found)...)
		case v1alpha1.ProofUnknown, v1alpha1.ProofNoted:
			if hidden := e.SeveralPlaces(); hidden != "" {
				found += "; " + hidden
			}
			remote.effect = "it is unknown whether messages cross the link between the sockets; with placement.numaPolicy: Required results do not verify"
			lines = append(lines, remote.warn(l.Network, "%s", found)...)
		}
	}
	switch i := n.seen(); {
	case len(lines) > 0 || i == nil || !i.Evidence.OneNUMANode():
	case i.Evidence.SeveralPlaces() != "":
		return remote.warn("", "the kernel shows one NUMA node with CPUs, but %s", i.Evidence.SeveralPlaces())
	default:
		return good("", "the machine has one NUMA node with CPUs")
	}
	return lines
}

func number(n int32) string {
	if n < 0 {
		return "not known"
	}
	return strconv.Itoa(int(n))
}

func ofNetworks(check func(Observed, Look) []Line) func(Observed, Node) []Line {
	return func(o Observed, n Node) []Line {
		var lines []Line
		for _, l := range n.Looks {
			if l.Kind == KindNetwork {
				lines = append(lines, check(o, l)...)
			}
		}
		return lines
	}
}

func attached(_ Observed, l Look) []Line {
	bad := advice{"benchmarks over it fail there", "see the events of a pod with this network"}
	if t := l.Trouble; t != nil {
		switch bad.remedy = cmp.Or(t.Remedy, bad.remedy); {
		case t.Outcome == v1alpha1.OutcomeTopologyAffinity:
			return nil // topology reports this.
		case unclear(t):
			return unknown(l.Network, t.Said, "run doctor again with a longer --timeout")
		}
		return bad.err(l.Network, "%s", t.Said)
	}
	status, err := foreign.FindStatus(l.NetworkStatus, l.Network, pods.Interface)
	e := l.Inspection.Evidence
	switch {
	case l.NetworkStatus == "":
		bad.remedy = "make the configuration of Multus the first in /etc/cni/net.d of the node, and check that its pod there is ready"
		return bad.err(l.Network, "the pod ran without it: no annotation %s", foreign.AnnotationNetworkStatus)
	case err != nil:
		return bad.err(l.Network, "%s", err)
	case e.Interface == "":
		return bad.err(l.Network, "network-status has %s, which the pod did not have", pods.Interface)
	case len(status.IPs) == 0:
		bad.remedy = "give the NetworkAttachmentDefinition an ipam section"
		return bad.err(l.Network, "the interface got no address")
	}
	return good(l.Network, "%s with %s, MTU %d", status.Interface, strings.Join(status.IPs, ", "), e.MTU)
}

// paravirtual are drivers that only hypervisors need. Real cards may emulate virtio.
var paravirtual = []string{"virtio_net", "vmxnet3", "hv_netvsc", "xen-netfront", "vif", "gve"}

// emulatedBoards begin the PCI subsystems of cards that QEMU and VMware emulate.
var emulatedBoards = []string{proof.EmulatedBoard, "15ad:", "8086:0000"}

func ofHypervisor(i *result.Inspection) bool {
	board := i.Fact("nic.pci-subsystem")
	return i.Fact("cpu.hypervisor") != "no" && slices.Contains(paravirtual, i.Evidence.Driver) ||
		i.Virtual() && slices.ContainsFunc(emulatedBoards, func(prefix string) bool { return strings.HasPrefix(board, prefix) })
}

const longCoalescing = 10 // µs of delay of interrupts that are too long

func attachedInterface(o Observed, l Look) []Line {
	if l.Inspection == nil || l.Inspection.Evidence.Interface == "" {
		return nil
	}
	i := l.Inspection
	e := i.Evidence
	parts := []string{"driver " + cmp.Or(e.Driver, "not reported")}
	for _, part := range []struct{ name, value string }{
		{"", i.Fact("nic.function")}, {"", e.PCIAddress}, {"firmware ", e.Firmware}, {"variant ", i.Fact("nic.firmware-variant")},
	} {
		if part.value != "" {
			parts = append(parts, part.name+part.value)
		}
	}
	if o.Onload != "" && proof.NeedsBypass(e.Facts) {
		parts = append(parts, "Onload sends without CTPIO (no onload.profile: latency-best)")
	}
	found := strings.Join(parts, ", ")
	usecs, _ := strconv.Atoi(i.Fact("nic.coalesce.rx-usecs"))
	switch {
	case i.Fact("nic.carrier") == "0":
		return advice{"it cannot be measured", "check the cable, the switch and the PF's link"}.
			err(l.Network, "its link is down: %s", found)
	case e.Driver == "veth" && e.PCIAddress != "":
		return advice{"it is virtual Ethernet that simulates a NIC: the latencies are those of the kernel, not of a NIC",
			"measure on machines that have the NIC; a simulation is suitable for trying Tailgate"}.warn(l.Network, "simulated: %s", found)
	case ofHypervisor(i):
		return advice{"the hypervisor copies every message: about 10 µs, and an additional tail", "pass a VF of the NIC through to the virtual machine"}.
			warn(l.Network, "paravirtual: %s", found)
	case i.Fact("nic.firmware-variant") == proof.VariantWithoutVFs && i.Fact("nic.function") == "VF":
		return advice{"this variant has no VFs: one of the two reports is incorrect, and results do not verify", "check the NIC with ethtool -i and sfboot"}.
			warn(l.Network, "%s", found)
	case i.Fact("nic.coalesce.adaptive-rx") == "1" || usecs >= longCoalescing:
		return advice{"the NIC delays interrupts to collect more messages, which delays kernel sockets that block; spinning processes and Onload are hardly affected",
			"`ethtool -C INTERFACE adaptive-rx off rx-usecs 0` on the node, if latency matters more than load; a VF has its own setting, which can be changed while no pod has the VF"}.
			warn(l.Network, "%s; interrupts wait up to %d µs%s", found, usecs, map[bool]string{true: ", adaptively"}[i.Fact("nic.coalesce.adaptive-rx") == "1"])
	case i.Fact("nic.feature.rx-lro") == "on":
		return advice{"the NIC merges TCP segments before the kernel sees them, which delays small messages", "`ethtool -K INTERFACE lro off` on the node; a VF has its own setting, which can be changed while no pod has the VF"}.
			warn(l.Network, "%s; LRO is on", found)
	}
	return good(l.Network, "%s", found)
}

func onload(o Observed, n Node) []Line {
	if o.Onload == "" || o.Capacity[corev1.ResourceName(o.Onload)] == 0 {
		return nil
	}
	l := n.look(KindOnload, "")
	if l == nil {
		return device(o, n, o.Onload)
	}
	bad := advice{"nothing is accelerated: sockets use the kernel's network stack, or benchmarks fail", "check that the pods of Onload's device plugin run there, and that its version is that of the module"}
	if t := l.Trouble; t != nil {
		if unclear(t) {
			return unknown(o.Onload, t.Said, "run doctor again with a longer --timeout")
		}
		return bad.err(o.Onload, "%s", t.Said)
	}
	has := l.Inspection.Onload
	module := "module version not reported"
	if v := l.Inspection.Fact("module.onload.version"); v != "" {
		module = "module " + v
	}
	switch {
	case has.Library == "" && has.Preload == "" && len(has.Devices) > 0:
		return advice{"benchmarks fail unless the bench image has the library (acceleration.onload.source: Image), or acceleration.onload.library names where the plugin mounts it",
			"set one of the two in the benchmarks, or let the device plugin mount the library (Onload resource: devicePlugin.setPreload or mountOnload)"}.
			warn(o.Onload, "the pod had %s, and no library of Onload at the plugin's default path", strings.Join(has.Devices, " "))
	case has.Library == "":
		bad.remedy = "let the device plugin mount it (Onload resource: devicePlugin.setPreload or mountOnload), set acceleration.onload.library if it is mounted elsewhere, or use acceleration.onload.source: Image with an image that has it"
		return bad.err(o.Onload, "the pod had the device, but no library of Onload (LD_PRELOAD %q)", has.Preload)
	case len(has.Devices) == 0:
		bad.remedy = "load the module (see the pods of KMM or onload-module), then restart the device plugin there"
		return bad.err(o.Onload, "%s is there, but no /dev/onload", has.Library)
	}
	controlPlane := ""
	if has.ControlPlane != "" {
		controlPlane = fmt.Sprintf(", control plane by %s, which the node has to have", has.ControlPlane)
	}
	return good(o.Onload, "%s, %s, %s%s", has.Library, strings.Join(has.Devices, " "), module, controlPlane)
}
