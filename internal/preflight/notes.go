package preflight

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
)

// Labels that node-feature-discovery sets on nodes.
const (
	labelThreads = "feature.node.kubernetes.io/cpu-hardware_multithreading"
	labelNUMA    = "feature.node.kubernetes.io/memory-numa"
)

// Notes lists what the proof may be unable to show for an accepted benchmark, with remedies, before it is measured. The
// benchmark uses a pair of nodes, with the given number of CPUs at each end.
func Notes(o Observed, pair v1alpha1.Pair, cpus v1alpha1.EndpointCPUs) []string {
	var notes []string
	add := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	ends := []struct{ role, node string }{{v1alpha1.RoleClient, pair.ClientNode}, {v1alpha1.RoleServer, pair.ServerNode}}
	var odd []string
	for _, end := range ends {
		if n := cpus.Of(end.role); n%wholeCore != 0 && !o.labelled(end.node, labelThreads, "false") {
			odd = append(odd, fmt.Sprintf("%d for the %s", n, end.role))
		}
	}
	if odd != nil {
		add("placement.cpus is %s: on nodes with SMT other pods may use the other thread of a core (SMTSiblings), and kubelets with full-pcpus-only reject such pods; an even number avoids both",
			strings.Join(odd, " and "))
	}
	for _, n := range o.Nodes {
		measured := n.Name == pair.ClientNode || n.Name == pair.ServerNode
		if measured && o.SfnettestImage != "" && o.Benchmark.Spec.Tool.OfSfnettest() && !mountsImages(n) {
			add("node %s has kubelet %s, which mounts --sfnettest-image only with feature gate ImageVolume, and not before v1.33: upgrade it, or use a bench image that has %s",
				n.Name, n.Status.NodeInfo.KubeletVersion, o.Benchmark.Spec.Tool)
		}
	}
	if names := strings.Join(tails(o.Benchmark.Spec.Criteria), ", "); names != "" {
		if w := o.Benchmark.Spec.Workload; w.RatesPerSecond == nil && (w.MessageSizes != nil || w.Streams == nil) {
			add("the rule on %s is of ping-pong, where a stall is one slow sample, however many messages an application would have sent meanwhile: workload.ratesPerSecond counts each of them", names)
		}
		if o.Benchmark.Spec.LatencyType == v1alpha1.LatencyHalfRTT {
			add("the rule on %s is of half round trips, which halve the stall of one end: latencyType RTT shows it whole", names)
		}
	}
	for _, v := range plan.Variants(o.Benchmark.Spec) {
		matters, away := false, false
		for _, end := range ends {
			policy := o.Benchmark.Spec.Placement.NUMAPolicyOf(v, end.role)
			matters = matters || policy != v1alpha1.NUMAIgnore
			away = away || policy == v1alpha1.NUMARequired || policy == v1alpha1.NUMAPreferred && o.labelled(end.node, labelNUMA, "true")
		}
		t := v.Network.Type
		if slices.Contains(o.Claimed, v.Network.ResourceName()) && matters {
			add("variant %s: Dynamic Resource Allocation provides %s, and the kubelet's topology manager does not align its devices with CPUs, so that the CPUs may be on another NUMA node (NUMALocal): reserve the CPUs of the other NUMA nodes (reservedSystemCPUs)",
				v.Name, v.Network.ResourceName())
		}
		if t != v1alpha1.NetworkHost && t != v1alpha1.NetworkNAD {
			continue
		}
		if away && v.Network.AlignWith() == "" {
			add("variant %s: the kubelet does not know which NIC network %s uses, so that its CPUs may be on another NUMA node (NUMALocal): set %s.alignWith to a resource of devices of that NIC, or reserve the CPUs of the other NUMA nodes (reservedSystemCPUs)",
				v.Name, t, memberPath(o, v))
		}
		if t == v1alpha1.NetworkNAD {
			add("variant %s: pods with network NAD cannot read the firmware of the NIC, so that an upgrade of it is not noticed: compare it in a variant with network VF or Host", v.Name)
		}
	}
	return notes
}

// tails returns the percentiles beyond p90 that rules limit, in the order of the rules.
func tails(c *v1alpha1.Criteria) []string {
	if c == nil {
		return nil
	}
	var all []string
	for _, r := range c.Rules {
		if m := string(r.Metric); strings.HasPrefix(m, "p9") && m != string(v1alpha1.MetricP90) && !slices.Contains(all, m) {
			all = append(all, m)
		}
	}
	return all
}

// mountsImages reports whether the version of a node's kubelet mounts images as volumes by default. A version that cannot be read does.
func mountsImages(n corev1.Node) bool {
	var minor int
	_, err := fmt.Sscanf(n.Status.NodeInfo.KubeletVersion, "v1.%d", &minor)
	return err != nil || minor >= 35
}

func (o Observed) labelled(node, label, value string) bool {
	return slices.ContainsFunc(o.Nodes, func(n corev1.Node) bool { return n.Name == node && n.Labels[label] == value })
}
