package preflight

import (
	"fmt"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
)

// Labels that node-feature-discovery gives to nodes.
const (
	labelThreads = "feature.node.kubernetes.io/cpu-hardware_multithreading"
	labelNUMA    = "feature.node.kubernetes.io/memory-numa"
)

// Notes lists what the proof may not be able to show for an accepted benchmark, with the remedies, before it is measured.
// The benchmark uses a pair of nodes, with so many CPUs at each end.
func Notes(o Observed, pair v1alpha1.Pair, cpus int32) []string {
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	spec := o.Benchmark.Spec
	if cpus%wholeCore != 0 && o.count(pair, labelThreads, "false") < 2 {
		add("placement.cpus is %d: on nodes with SMT other pods may use the other thread of a core (SMTSiblings), and kubelets with full-pcpus-only reject such pods; an even number avoids both", cpus)
	}
	for _, v := range plan.Variants(spec) {
		policy := spec.Placement.NUMAOf(v.Network.Type)
		t := v.Network.Type
		if slices.Contains(o.Claimed, v.Network.ResourceName) && policy != v1alpha1.NUMAIgnore {
			add("variant %s: Dynamic Resource Allocation provides %s, and the kubelet's topology manager does not align its devices with CPUs, so that the CPUs may be on another NUMA node (NUMALocal): reserve the CPUs of the other NUMA nodes (reservedSystemCPUs)",
				v.Name, v.Network.ResourceName)
		}
		if t != v1alpha1.NetworkHost && t != v1alpha1.NetworkNAD {
			continue
		}
		if policy == v1alpha1.NUMARequired || policy == v1alpha1.NUMAPreferred && o.count(pair, labelNUMA, "true") > 0 {
			add("variant %s: the kubelet does not know which NIC network %s uses, so that its CPUs may be on another NUMA node (NUMALocal): reserve the CPUs of the other NUMA nodes (reservedSystemCPUs)", v.Name, t)
		}
		if t == v1alpha1.NetworkNAD {
			add("variant %s: pods with network NAD cannot read the firmware of the NIC, so that an upgrade of it is not noticed: compare it in a variant with network VF or Host", v.Name)
		}
	}
	return notes
}

// count is how many of the nodes of a pair have a label with this value.
func (o Observed) count(pair v1alpha1.Pair, label, value string) int {
	n := 0
	for i := range o.Nodes {
		name := o.Nodes[i].Name
		if (name == pair.ClientNode || name == pair.ServerNode) && o.Nodes[i].Labels[label] == value {
			n++
		}
	}
	return n
}
