package specs

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// VF is the resource of VFs.
const VF = "amd.com/sf_vf"

// NodeLabel selects the nodes of a spec. Its value is the name of a node.
const NodeLabel = "test.tailgate.dev/node"

// BenchmarkBuilder builds a LatencyBenchmark.
type BenchmarkBuilder struct{ v1alpha1.LatencyBenchmark }

// MakeBenchmark returns a builder with one round of one cell of sockperf.
func MakeBenchmark(namespace, name string) *BenchmarkBuilder {
	return &BenchmarkBuilder{v1alpha1.LatencyBenchmark{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{
			Tool: v1alpha1.ToolSockperf,
			Workload: v1alpha1.Workload{
				Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, MessageSizes: []int32{64},
				Duration: metav1.Duration{Duration: time.Second},
			},
			Rounds:    1,
			MaxRounds: 1,
			Placement: v1alpha1.Placement{CPUs: 1, Memory: resource.MustParse("512Mi")},
		}},
	}}
}

// Rounds sets the number of rounds of the only look.
func (b *BenchmarkBuilder) Rounds(n int32) *BenchmarkBuilder {
	b.Spec.Rounds, b.Spec.MaxRounds = n, n
	return b
}

// On sets the nodes of client and server.
func (b *BenchmarkBuilder) On(client, server string) *BenchmarkBuilder {
	b.Spec.Placement.Client = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{NodeLabel: client}}}}
	b.Spec.Placement.Server = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{NodeLabel: server}}}}
	return b
}

// CPUs sets the number of CPUs of each endpoint.
func (b *BenchmarkBuilder) CPUs(n int32) *BenchmarkBuilder {
	b.Spec.Placement.CPUs = n
	return b
}

// Memory sets the memory of each endpoint.
func (b *BenchmarkBuilder) Memory(quantity string) *BenchmarkBuilder {
	b.Spec.Placement.Memory = resource.MustParse(quantity)
	return b
}

// Sizes sets the message sizes.
func (b *BenchmarkBuilder) Sizes(sizes ...int32) *BenchmarkBuilder {
	b.Spec.Workload.MessageSizes = sizes
	return b
}

// Host selects the nodes' own network.
func (b *BenchmarkBuilder) Host() *BenchmarkBuilder {
	b.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkHost}
	return b
}

// VF selects a network of VFs.
func (b *BenchmarkBuilder) VF(network, resourceName string) *BenchmarkBuilder {
	b.Spec.Network = v1alpha1.Network{
		Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{NetworkRef: &v1alpha1.NetworkRef{Name: network}, ResourceName: resourceName}},
	}
	return b
}

// NAD selects an attached network without a device.
func (b *BenchmarkBuilder) NAD(network string) *BenchmarkBuilder {
	b.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkNAD, NAD: &v1alpha1.NADNetwork{NetworkRef: v1alpha1.NetworkRef{Name: network}}}
	return b
}

// Variants adds variants without differences.
func (b *BenchmarkBuilder) Variants(names ...string) *BenchmarkBuilder {
	for _, name := range names {
		b.Spec.Variants = append(b.Spec.Variants, v1alpha1.Variant{Name: name})
	}
	return b
}

// Rule adds a rule to the criteria.
func (b *BenchmarkBuilder) Rule(r v1alpha1.Rule) *BenchmarkBuilder {
	if b.Spec.Criteria == nil {
		b.Spec.Criteria = &v1alpha1.Criteria{}
	}
	b.Spec.Criteria.Rules = append(b.Spec.Criteria.Rules, r)
	return b
}

// Against makes another benchmark the baseline.
func (b *BenchmarkBuilder) Against(benchmark string) *BenchmarkBuilder {
	b.Spec.Criteria.Baseline = &v1alpha1.Baseline{Type: v1alpha1.BaselineBenchmark, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: benchmark}}}
	return b
}

// AgainstVariant makes a variant the baseline.
func (b *BenchmarkBuilder) AgainstVariant(name string) *BenchmarkBuilder {
	b.Spec.Criteria.Baseline = &v1alpha1.Baseline{Type: v1alpha1.BaselineVariant, Variant: &v1alpha1.ObjectName{Name: name}}
	return b
}

// AgainstGate makes the result that a gate has accepted for the client's node the baseline; no name means the gate of the template.
func (b *BenchmarkBuilder) AgainstGate(name string) *BenchmarkBuilder {
	b.Spec.Criteria.Baseline = &v1alpha1.Baseline{Type: v1alpha1.BaselineGate}
	if name != "" {
		b.Spec.Criteria.Baseline.Gate = &v1alpha1.ObjectName{Name: name}
	}
	return b
}

// Free lets client and server run on any node.
func (b *BenchmarkBuilder) Free() *BenchmarkBuilder {
	b.Spec.Placement.Client, b.Spec.Placement.Server = &v1alpha1.EndpointPlacement{}, &v1alpha1.EndpointPlacement{}
	return b
}

// Suspended creates the benchmark suspended.
func (b *BenchmarkBuilder) Suspended() *BenchmarkBuilder {
	b.Spec.Suspend = true
	return b
}

// TTL sets the number of seconds after which the finished benchmark is deleted.
func (b *BenchmarkBuilder) TTL(seconds int32) *BenchmarkBuilder {
	b.Spec.TTLSecondsAfterFinished = &seconds
	return b
}

// Series sets the label of a series, and the number of its benchmarks that are kept.
func (b *BenchmarkBuilder) Series(name string, limit int32) *BenchmarkBuilder {
	b.Labels = map[string]string{v1alpha1.LabelSeries: name}
	b.Spec.HistoryLimit = limit
	return b
}

// MaxRounds sets the number of rounds of the second look.
func (b *BenchmarkBuilder) MaxRounds(n int32) *BenchmarkBuilder {
	b.Spec.MaxRounds = n
	return b
}

// Obj returns the benchmark.
func (b *BenchmarkBuilder) Obj() *v1alpha1.LatencyBenchmark { return b.DeepCopy() }

// NodeBuilder builds a Node.
type NodeBuilder struct{ corev1.Node }

// MakeNode returns a builder with a ready node of 4 CPUs and 8Gi that is labelled with its name.
func MakeNode(name string) *NodeBuilder {
	since := metav1.NewTime(suite.Ready())
	return &NodeBuilder{corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{NodeLabel: name}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
				LastHeartbeatTime: since, LastTransitionTime: since,
			}},
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi")},
		},
	}}
}

// Obj returns the node.
func (n *NodeBuilder) Obj() *corev1.Node { return n.DeepCopy() }
