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
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// Observed is what Accept looks at.
type Observed struct {
	// Benchmark whose spec is checked.
	Benchmark *v1alpha1.LatencyBenchmark
	// Driver of the benchmark's tool, and Tools all that there are: a refusal names those that can.
	Driver tool.Driver
	Tools  tool.Registry
	// Nodes of the cluster, all of them.
	Nodes []corev1.Node
	// Networks are, by name of the variant, what was found of the NetworkAttachmentDefinitions; a variant that names
	// none has no entry.
	Networks map[string]*NetworkDefinition
	// AllowHostNetwork and AllowPacketCapture are the operator's settings.
	AllowHostNetwork   bool
	AllowPacketCapture bool
}

// NetworkDefinition is what was found of the NetworkAttachmentDefinition that a variant names.
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
	for _, check := range []func(Observed) *Rejection{cellCount, cells, percentile, toolMemory, toolCPUs, hostNetwork, capture, networkExists, networkMatches} {
		if r := check(o); r != nil {
			return v1alpha1.Pair{}, r
		}
	}
	return choosePair(o)
}

// maxCells is how many cells a status has room for, all variants together; a cell that is captured too counts twice.
const maxCells = 400

func cellCount(o Observed) *Rejection {
	n := 0
	for _, v := range plan.Variants(o.Benchmark.Spec) {
		cells := len(plan.Cells(o.Benchmark.Spec, v))
		if *v.Capture {
			cells *= 2
		}
		n += cells
	}
	if n > maxCells {
		return rejectf(v1alpha1.ReasonCellUnsupported, "spec.workload: it makes %d cells (variants, protocols, sizes and rates multiplied), and a benchmark has room for %d; split it", n, maxCells)
	}
	return nil
}

// cells asks the driver about each cell. What CEL can say was refused at admission already.
func cells(o Observed) *Rejection {
	return eachCell(o, func(_ v1alpha1.Variant, c tool.Cell) *Rejection {
		err := o.Driver.Validate(c)
		if err == nil {
			return nil
		}
		var able []string
		for name, d := range o.Tools {
			if d.Validate(c) == nil {
				able = append(able, string(name))
			}
		}
		sort.Strings(able)
		if len(able) == 0 {
			return rejectf(v1alpha1.ReasonCellUnsupported, "spec.workload: %v; no tool can", err)
		}
		return rejectf(v1alpha1.ReasonCellUnsupported, "spec.workload: %v; tools that can: %s", err, strings.Join(able, ", "))
	})
}

// eachCell asks about every cell of every variant until one is rejected.
func eachCell(o Observed, check func(v1alpha1.Variant, tool.Cell) *Rejection) *Rejection {
	for _, v := range plan.Variants(o.Benchmark.Spec) {
		for _, c := range plan.Cells(o.Benchmark.Spec, v) {
			if r := check(v, c); r != nil {
				return r
			}
		}
	}
	return nil
}

// percentile compares the highest percentile that has to come out with the most samples that a cell can give. How
// many a closed loop gives is known only when it was measured.
func percentile(o Observed) *Rejection {
	spec := o.Benchmark.Spec
	if spec.HighestPercentile == "" {
		return nil
	}
	wanted, ok := stats.Named(string(spec.HighestPercentile))
	if !ok {
		return rejectf(v1alpha1.ReasonPercentileOutOfReach, "spec.highestPercentile: there is no percentile %q", spec.HighestPercentile)
	}
	return eachCell(o, func(_ v1alpha1.Variant, c tool.Cell) *Rejection {
		if c.Stream {
			return nil
		}
		most, known := o.Driver.MostSamples(c)
		if total := most * int64(spec.Rounds); known && total < wanted.Needs() {
			return rejectf(v1alpha1.ReasonPercentileOutOfReach,
				"spec.highestPercentile: %s needs %d samples, and %s gives at most %d for %s in %d rounds of %s; measure longer, at a higher rate, or more rounds",
				spec.HighestPercentile, wanted.Needs(), spec.Tool, total, c.Name, spec.Rounds, c.Duration)
		}
		return nil
	})
}

// agentMemory is what an endpoint needs beside the tool, in bytes.
const agentMemory = 64 << 20

// toolMemory compares what the tool may come to use with what the endpoints get: a client that is killed for
// its memory at the end of an hour has measured nothing.
func toolMemory(o Observed) *Rejection {
	memory := o.Benchmark.Spec.Placement.Memory
	return eachCell(o, func(_ v1alpha1.Variant, c tool.Cell) *Rejection {
		if need := o.Driver.Memory(c) + agentMemory; memory.CmpInt64(need) < 0 {
			return rejectf(v1alpha1.ReasonInsufficientMemory,
				"spec.placement.memory: %s keeps every sample and may need %dMi for %s, but each endpoint gets %s; ask for that much, or measure more rounds of a shorter duration",
				o.Benchmark.Spec.Tool, (need+1<<20-1)>>20, c.Duration, memory.String())
		}
		return nil
	})
}

// toolCPUs compares the CPUs that the tool needs for itself with what the endpoints get.
func toolCPUs(o Observed) *Rejection {
	return eachCell(o, func(_ v1alpha1.Variant, c tool.Cell) *Rejection {
		if need := o.Driver.CPUs(c); int(o.Benchmark.Spec.Placement.CPUs) < need {
			return rejectf(v1alpha1.ReasonInsufficientCPU, "spec.placement.cpus: %s needs %d CPUs at the client's end, and %d asked for; ask for more",
				o.Benchmark.Spec.Tool, need, o.Benchmark.Spec.Placement.CPUs)
		}
		return nil
	})
}

func hostNetwork(o Observed) *Rejection {
	for _, v := range plan.Variants(o.Benchmark.Spec) {
		if v.Network.Type == v1alpha1.NetworkHost && !o.AllowHostNetwork {
			return rejectf(v1alpha1.ReasonHostNetworkForbidden,
				"%s.type: Host gives benchmark pods the node's network; the operator must be started with --allow-host-network, or choose Pod, VF, PF or NAD", networkPath(o, v))
		}
	}
	return nil
}

// capture needs a capability that the operator grants, and a tool whose every message is answered.
func capture(o Observed) *Rejection {
	for _, v := range plan.Variants(o.Benchmark.Spec) {
		switch {
		case !*v.Capture:
		case !o.AllowPacketCapture:
			return rejectf(v1alpha1.ReasonCaptureForbidden,
				"spec.capture: it gives the server's pod the capability NET_RAW (variant %s); the operator must be started with --allow-packet-capture, or remove it", v.Name)
		case o.Benchmark.Spec.Tool == v1alpha1.ToolSfntStream:
			return rejectf(v1alpha1.ReasonCellUnsupported,
				"spec.capture: sfnt-stream has few of its messages answered, so nothing can be told from packets (variant %s); use pinger or sockperf, or remove it", v.Name)
		}
	}
	return nil
}

// networkPath is the field in which a variant's network stands.
func networkPath(o Observed, v v1alpha1.Variant) string {
	for i, given := range o.Benchmark.Spec.Variants {
		if given.Name == v.Name && given.Network != nil {
			return fmt.Sprintf("spec.variants[%d].network", i)
		}
	}
	return "spec.network"
}

func networkExists(o Observed) *Rejection {
	for _, v := range plan.Variants(o.Benchmark.Spec) {
		n, path := o.Networks[v.Name], networkPath(o, v)
		switch {
		case n == nil || n.Found:
		case n.KindMissing:
			return rejectf(v1alpha1.ReasonNetworkNotFound,
				"%s.networkRef: the cluster has no kind NetworkAttachmentDefinition; install Multus to use attached networks", path)
		default:
			return rejectf(v1alpha1.ReasonNetworkNotFound,
				"%s.networkRef: NetworkAttachmentDefinition %s does not exist; create it, or name one of `kubectl get network-attachment-definitions -A`", path, n.Name)
		}
	}
	return nil
}

// networkMatches compares both ways: a pod that requests no device gets none, and the CNI plugin then fails
// with words that nobody understands ("VF pci addr is required").
func networkMatches(o Observed) *Rejection {
	for _, v := range plan.Variants(o.Benchmark.Spec) {
		n, path := o.Networks[v.Name], networkPath(o, v)
		switch {
		case n == nil || n.ResourceName == v.Network.ResourceName:
		case n.ResourceName == "":
			return rejectf(v1alpha1.ReasonNetworkMismatch,
				"%s.resourceName: NetworkAttachmentDefinition %s has no annotation k8s.v1.cni.cncf.io/resourceName, so it takes no device; remove resourceName", path, n.Name)
		default:
			return rejectf(v1alpha1.ReasonNetworkMismatch,
				"%s.resourceName: %q, but NetworkAttachmentDefinition %s takes its device from %q; set resourceName to that",
				path, v.Network.ResourceName, n.Name, n.ResourceName)
		}
	}
	return nil
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
func candidates(o Observed, path string, selection *v1alpha1.NodeSelection, kept string) ([]string, *Rejection) {
	spec := o.Benchmark.Spec
	nodes := o.Nodes
	if selection == nil {
		selection = &v1alpha1.NodeSelection{}
	}

	if kept != "" {
		// Its labels were looked at when it was chosen.
		nodes = filter(nodes, func(n corev1.Node) bool { return n.Name == kept })
		if len(nodes) == 0 {
			return nil, rejectf(v1alpha1.ReasonNodeNotReady,
				"%s: node %s, on which this benchmark measures, is gone; bring it back, or delete the benchmark and apply it anew", path, kept)
		}
	} else {
		nodes = filter(nodes, func(n corev1.Node) bool {
			return (selection.NodeName == "" || selection.NodeName == n.Name) &&
				labels.SelectorFromSet(selection.NodeSelector).Matches(labels.Set(n.Labels))
		})
		if len(nodes) == 0 && selection.NodeName != "" {
			return nil, rejectf(v1alpha1.ReasonNoMatchingNode, "%s.nodeName: there is no node %s; see `kubectl get nodes`", path, selection.NodeName)
		}
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

	for _, v := range plan.Variants(spec) {
		name := corev1.ResourceName(v.Network.ResourceName)
		if name == "" {
			continue
		}
		nodes = filter(nodes, has(name, *resource.NewQuantity(1, resource.DecimalSI)))
		if len(nodes) == 0 {
			return nil, rejectf(v1alpha1.ReasonResourceNotAdvertised,
				"%s.resourceName: no node matching %s advertises %s; check that its device plugin runs there (`kubectl describe node`, Allocatable)", networkPath(o, v), path, name)
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
