// Package preflight has the checks that stand before and after a measurement, as ordered chains of pure
// functions: whether the cluster can give what a spec asks (Accept), and whether the endpoints were what
// was asked (Verify). Each check has a reason of the API and a message that says what to do.
package preflight

import (
	"fmt"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// Observed is what Accept looks at.
type Observed struct {
	// Benchmark whose spec is checked.
	Benchmark *v1alpha1.LatencyBenchmark
	// Driver of the benchmark's tool.
	Driver tool.Driver
	// Nodes of the cluster, all of them.
	Nodes []corev1.Node
	// Network is nil unless the spec names a NetworkAttachmentDefinition.
	Network *NetworkDefinition
	// AllowHostNetwork is the operator's setting.
	AllowHostNetwork bool
}

// NetworkDefinition is what was found of the NetworkAttachmentDefinition that the spec names.
type NetworkDefinition struct {
	// Name is namespace/name.
	Name string
	// KindMissing is true when the cluster does not know the kind at all.
	KindMissing bool
	// Found is true when it exists.
	Found bool
	// ResourceName is its annotation; empty when it needs no device.
	ResourceName string
}

// Rejection is why a spec cannot be carried out.
type Rejection struct {
	Reason  string
	Message string
}

func rejectf(reason, format string, args ...any) *Rejection {
	return &Rejection{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Accept runs the checks in order and returns the pair of nodes, or the first rejection.
func Accept(o Observed) (v1alpha1.Pair, *Rejection) {
	for _, check := range []func(Observed) *Rejection{cells, toolMemory, hostNetwork, networkExists, networkMatches} {
		if r := check(o); r != nil {
			return v1alpha1.Pair{}, r
		}
	}
	return choosePair(o)
}

// cells asks the driver about each cell. What CEL can say was refused at admission already.
func cells(o Observed) *Rejection {
	for _, c := range plan.Cells(o.Benchmark.Spec) {
		if err := o.Driver.Validate(c); err != nil {
			return rejectf(v1alpha1.ReasonCellUnsupported, "spec.workload: %v", err)
		}
	}
	return nil
}

// agentMemory is what an endpoint needs beside the tool, in bytes.
const agentMemory = 64 << 20

// toolMemory compares what the tool may come to use with what the endpoints get: a client that is killed for
// its memory at the end of an hour has measured nothing.
func toolMemory(o Observed) *Rejection {
	memory := o.Benchmark.Spec.Placement.Memory
	for _, c := range plan.Cells(o.Benchmark.Spec) {
		if need := o.Driver.Memory(c) + agentMemory; memory.CmpInt64(need) < 0 {
			return rejectf(v1alpha1.ReasonInsufficientMemory,
				"spec.placement.memory: %s keeps every sample and may need %dMi for %s, but each endpoint gets %s; ask for that much, or measure more rounds of a shorter duration",
				o.Benchmark.Spec.Tool, (need+1<<20-1)>>20, c.Duration, memory.String())
		}
	}
	return nil
}

func hostNetwork(o Observed) *Rejection {
	if o.Benchmark.Spec.Network.Type == v1alpha1.NetworkHost && !o.AllowHostNetwork {
		return rejectf(v1alpha1.ReasonHostNetworkForbidden,
			"spec.network.type: Host gives benchmark pods the node's network; the operator must be started with --allow-host-network, or choose Pod or Secondary")
	}
	return nil
}

func networkExists(o Observed) *Rejection {
	n := o.Network
	switch {
	case n == nil || n.Found:
		return nil
	case n.KindMissing:
		return rejectf(v1alpha1.ReasonNetworkNotFound,
			"spec.network.networkRef: the cluster has no kind NetworkAttachmentDefinition; install Multus to use secondary networks")
	default:
		return rejectf(v1alpha1.ReasonNetworkNotFound,
			"spec.network.networkRef: NetworkAttachmentDefinition %s does not exist; create it, or name one of `kubectl get network-attachment-definitions -A`", n.Name)
	}
}

// networkMatches compares both ways: a pod that requests no device gets none, and the CNI plugin then fails
// with words that nobody understands ("VF pci addr is required").
func networkMatches(o Observed) *Rejection {
	if o.Network == nil || o.Network.ResourceName == o.Benchmark.Spec.Network.ResourceName {
		return nil
	}
	if o.Network.ResourceName == "" {
		return rejectf(v1alpha1.ReasonNetworkMismatch,
			"spec.network.resourceName: NetworkAttachmentDefinition %s has no annotation k8s.v1.cni.cncf.io/resourceName, so it takes no device; remove resourceName", o.Network.Name)
	}
	return rejectf(v1alpha1.ReasonNetworkMismatch,
		"spec.network.resourceName: %q, but NetworkAttachmentDefinition %s takes its device from %q; set resourceName to that",
		o.Benchmark.Spec.Network.ResourceName, o.Network.Name, o.Network.ResourceName)
}

// choosePair filters the nodes of each role and takes the first two, by name, that differ. A pair that was
// chosen before is kept, and only checked again: rounds between other nodes would not be comparable.
func choosePair(o Observed) (v1alpha1.Pair, *Rejection) {
	placement := o.Benchmark.Spec.Placement
	var kept v1alpha1.Pair
	if o.Benchmark.Status.Pair != nil {
		kept = *o.Benchmark.Status.Pair
	}
	clients, r := candidates(o, "spec.placement.client", placement.Client, kept.ClientNode)
	if r != nil {
		return v1alpha1.Pair{}, r
	}
	servers, r := candidates(o, "spec.placement.server", placement.Server, kept.ServerNode)
	if r != nil {
		return v1alpha1.Pair{}, r
	}
	for _, client := range clients {
		for _, server := range servers {
			if client != server {
				return v1alpha1.Pair{ClientNode: client, ServerNode: server}, nil
			}
		}
	}
	return v1alpha1.Pair{}, rejectf(v1alpha1.ReasonSameNode,
		"spec.placement: client and server can only be node %s both; a latency between nodes needs two: change a nodeSelector", clients[0])
}

// candidates returns the names, sorted, of the nodes that can be one endpoint; of a kept node, that one. Each
// filter rejects when it leaves none, so the message names what was missing last.
func candidates(o Observed, path string, selection v1alpha1.NodeSelection, kept string) ([]string, *Rejection) {
	spec := o.Benchmark.Spec
	nodes := o.Nodes

	if kept != "" {
		// Its labels were looked at when it was chosen.
		nodes = filter(nodes, func(n corev1.Node) bool { return n.Name == kept })
		if len(nodes) == 0 {
			return nil, rejectf(v1alpha1.ReasonNodeNotReady,
				"%s: node %s, on which this benchmark measures, is gone; bring it back, or delete the benchmark and apply it anew", path, kept)
		}
	} else {
		nodes = filter(nodes, func(n corev1.Node) bool {
			return labels.SelectorFromSet(selection.NodeSelector).Matches(labels.Set(n.Labels))
		})
		if len(nodes) == 0 {
			return nil, rejectf(v1alpha1.ReasonNoMatchingNode,
				"%s.nodeSelector: no node has %s; see `kubectl get nodes --show-labels`", path, labels.FormatLabels(selection.NodeSelector))
		}
	}

	matching := nodes
	nodes = filter(nodes, usable)
	if len(nodes) == 0 {
		return nil, rejectf(v1alpha1.ReasonNodeNotReady,
			"%s: of the matching nodes (%s) none is ready, uncordoned and untainted", path, names(matching))
	}

	most := largest(nodes, corev1.ResourceCPU)
	nodes = filter(nodes, has(corev1.ResourceCPU, *resource.NewQuantity(int64(spec.Placement.CPUs), resource.DecimalSI)))
	if len(nodes) == 0 {
		return nil, rejectf(v1alpha1.ReasonInsufficientCPU,
			"spec.placement.cpus: %d asked for each endpoint, but no node matching %s can give more than %d whole CPUs; ask for fewer", spec.Placement.CPUs, path, wholeCPUs(most))
	}

	most = largest(nodes, corev1.ResourceMemory)
	nodes = filter(nodes, has(corev1.ResourceMemory, spec.Placement.Memory))
	if len(nodes) == 0 {
		return nil, rejectf(v1alpha1.ReasonInsufficientMemory,
			"spec.placement.memory: %s asked for each endpoint, but no node matching %s can give more than %s; ask for less", spec.Placement.Memory.String(), path, most.String())
	}

	if name := corev1.ResourceName(spec.Network.ResourceName); name != "" {
		nodes = filter(nodes, has(name, *resource.NewQuantity(1, resource.DecimalSI)))
		if len(nodes) == 0 {
			return nil, rejectf(v1alpha1.ReasonResourceNotAdvertised,
				"spec.network.resourceName: no node matching %s advertises %s; check that its device plugin runs there (`kubectl describe node`, Allocatable)", path, name)
		}
	}

	result := make([]string, 0, len(nodes))
	for _, n := range nodes {
		result = append(result, n.Name)
	}
	sort.Strings(result)
	return result, nil
}

// usable says whether the scheduler would put an ordinary pod on the node.
func usable(n corev1.Node) bool {
	if n.Spec.Unschedulable {
		return false
	}
	for _, t := range n.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute {
			return false
		}
	}
	return NodeReady(n)
}

// NodeReady says whether a node's kubelet reports it ready.
func NodeReady(n corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func has(name corev1.ResourceName, want resource.Quantity) func(corev1.Node) bool {
	return func(n corev1.Node) bool {
		q := n.Status.Allocatable[name]
		return q.Cmp(want) >= 0
	}
}

func largest(nodes []corev1.Node, name corev1.ResourceName) resource.Quantity {
	var most resource.Quantity
	for _, n := range nodes {
		if q := n.Status.Allocatable[name]; q.Cmp(most) > 0 {
			most = q
		}
	}
	return most
}

// wholeCPUs rounds down: half a CPU cannot be exclusive.
func wholeCPUs(q resource.Quantity) int64 { return q.MilliValue() / 1000 }

func filter(nodes []corev1.Node, keep func(corev1.Node) bool) []corev1.Node {
	var kept []corev1.Node
	for _, n := range nodes {
		if keep(n) {
			kept = append(kept, n)
		}
	}
	return kept
}

// names lists at most five nodes, sorted, so that a message stays short and does not flap.
func names(nodes []corev1.Node) string {
	all := make([]string, 0, len(nodes))
	for _, n := range nodes {
		all = append(all, n.Name)
	}
	sort.Strings(all)
	if len(all) > 5 {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:5], ", "), len(all)-5)
	}
	return strings.Join(all, ", ")
}
