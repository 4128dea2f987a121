package proof

import (
	"fmt"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

func cpusOnNUMANode(e endpoint) finding {
	const (
		expected = "all CPUs on one NUMA node"
		advice   = "set topologyManagerPolicy: single-numa-node in the kubelet's configuration"
	)
	nodes := e.own.AllowedNUMANodes
	if e.own.CPUNUMANode >= 0 && e.cpus() == 1 && nodes == "" {
		nodes = fmt.Sprint(e.own.CPUNUMANode)
	}
	found := "NUMA node " + nodes
	switch list, err := result.ParseCPUs(nodes); { // lists of NUMA nodes have the format of CPU lists
	case err != nil:
		return e.numa(unknown(expected, notKnown, numaUnknown))
	case list.Size() > 1:
		return e.numa(failed(expected, "NUMA nodes "+nodes, advice))
	case !list.Contains(int(e.own.CPUNUMANode)):
		return e.numa(unknown(expected, fmt.Sprintf("%s, though CPU %d is on NUMA node %s", found, e.own.MeasuringCPU, known(e.own.CPUNUMANode, 0)), numaUnknown))
	}
	if hidden := e.own.SeveralPlaces(); hidden != "" {
		return e.numa(unknown(expected, found+", but "+hidden, placesUnknown))
	}
	return e.numa(proved(expected, found))
}

func numaLocal(e endpoint) finding {
	expected := fmt.Sprintf("CPU on the NUMA node of %s", orNotKnown(e.own.Interface))
	advice := "set topologyManagerPolicy: single-numa-node in the kubelet's configuration"
	alignWith := "let network." + strings.ToLower(string(e.network().Type)) + ".alignWith name "
	borrowed := e.network().AlignWith()
	switch {
	case borrowed != "" && e.own.Facts["numa.borrowed"] == known(e.own.CPUNUMANode, 0):
		advice = alignWith + "devices of the NIC of the interface"
	case e.network().Type == v1alpha1.NetworkPod:
		advice = "set placement.numaPolicy to Preferred: no setting aligns CPUs with the pod network"
	case borrowed == "" && !e.network().Type.HasDevice():
		advice = alignWith + "a resource of devices of the NIC, or set placement.numaPolicy to Preferred"
	}
	cpu, nic := e.own.CPUNUMANode, e.own.DeviceNUMANode
	iface := orNotKnown(e.own.Interface)
	parent, ports := e.own.Facts["nic.parent"], e.own.Facts["nic.ports"]
	if parent != "" {
		iface += " over " + parent
	}
	if ports != "" {
		iface += " over " + ports
	}
	// A parent's name gives its place only among the node's names; a device beside it says more.
	byName := parent != "" && e.own.PCIAddress != "" && e.own.PCISource != result.PCIFromSysfs &&
		(borrowed == "" || e.own.Facts["numa.borrowed"] != known(nic, 0))
	found := fmt.Sprintf("CPU %d on NUMA node %s, %s on %s", e.own.MeasuringCPU, known(cpu, 0), iface, known(nic, 0))
	if !e.hasDevice() && ports == "" {
		found = fmt.Sprintf("CPU %d on NUMA node %s, %s is not a PCI device", e.own.MeasuringCPU, known(cpu, 0), orNotKnown(e.own.Interface))
	}
	if borrowed != "" {
		found += fmt.Sprintf("; aligned with %s (%s) on %s", borrowed,
			orNotKnown(e.own.AllocatedDevices[Variable(borrowed)]), orNotKnown(e.own.Facts["numa.borrowed"]))
	}
	switch Near(e.own) {
	case v1alpha1.ProofFailed:
		return e.numa(failed(expected, found, advice))
	case v1alpha1.ProofProved:
		if byName && !e.own.OneNUMANode() {
			if found += ", by its name"; e.numaPolicy() == v1alpha1.NUMARequired {
				return unknown(expected, found, alignWith+"devices of the NIC, which confirm its NUMA node, or set placement.numaPolicy to Preferred")
			}
			return noted(found)
		}
		if cpu < 0 || cpu != nic {
			found = fmt.Sprintf("NUMA node %s is the only one of the node with CPUs", e.own.Facts["numa.nodes"])
		}
		return e.numa(proved(expected, found))
	case v1alpha1.ProofUnknown, v1alpha1.ProofNoted:
	}
	unknownWhy := numaUnknown
	switch hidden := e.own.SeveralPlaces(); {
	case ports != "":
		unknownWhy = "it has several ports, on different NUMA nodes or on unknown ones: let the network name one NIC, or set placement.numaPolicy to Preferred"
	case hidden != "":
		found += "; " + hidden
		unknownWhy = placesUnknown
	case parent != "" && e.own.PCIAddress == "":
		unknownWhy = "the name " + parent + " does not give its place on the PCI bus: let the network's master be a NIC with a name such as enp59s0f0, or set placement.numaPolicy to Preferred"
	}
	return e.numa(unknown(expected, found, unknownWhy))
}

// Near determines whether the measuring CPU is on the device's NUMA node. If only one node has
// CPUs, none is nearer: such firmware seldom reports the device's node.
func Near(e result.Evidence) v1alpha1.ProofState {
	switch cpu, nic := e.CPUNUMANode, e.DeviceNUMANode; {
	case cpu >= 0 && nic >= 0 && cpu != nic && !e.OneNUMANode():
		return v1alpha1.ProofFailed
	case e.SeveralPlaces() != "", !e.OneNUMANode() && (cpu < 0 || nic < 0):
		return v1alpha1.ProofUnknown
	}
	return v1alpha1.ProofProved
}

const (
	numaUnknown = "measure on nodes whose kernel reports it (numa_node in sysfs), or set placement.numaPolicy to Preferred"
	// placesUnknown is the remedy for result.Evidence.SeveralPlaces.
	placesUnknown = "let the firmware and the kernel show the NUMA nodes (no node interleaving, no numa=off), and the hypervisor give the guest those of its CPUs and devices; or set placement.numaPolicy to Preferred"
)

// numa only notes a finding that the policy ignores, or without a device on a NUMA node.
func (e endpoint) numa(f finding) finding {
	policy := e.numaPolicy()
	if policy == v1alpha1.NUMAIgnore || policy != v1alpha1.NUMARequired && !e.hasDevice() {
		return noted(f.found)
	}
	return f
}

func (e endpoint) numaPolicy() v1alpha1.NUMAPolicy {
	return e.spec.Placement.NUMAPolicyOf(e.variant, e.role)
}

// hasDevice reports whether the network is on a PCI device: requested, of the node, or attached.
func (e endpoint) hasDevice() bool {
	switch n := e.variant.Network.Type; n {
	case v1alpha1.NetworkHost:
		return e.own.PCIAddress != ""
	case v1alpha1.NetworkNAD:
		return e.own.PCIAddress != "" || e.own.Facts["nic.parent"] != ""
	case v1alpha1.NetworkPod, v1alpha1.NetworkVF, v1alpha1.NetworkPF:
		return n.HasDevice()
	}
	return false
}
