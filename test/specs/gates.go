package specs

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// GateLabel selects the nodes of a gate. Its value is the namespace of the spec.
const GateLabel = "test.tailgate.dev/gate"

// GateBuilder builds a LatencyGate.
type GateBuilder struct{ v1alpha1.LatencyGate }

// MakeGate returns a builder with a gate that requires a p90 of five rounds below 8 µs and within 10 % of the accepted result, with
// label and taint. It is named after the namespace, because gates are cluster-scoped.
func MakeGate(namespace string) *GateBuilder {
	return &GateBuilder{v1alpha1.LatencyGate{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: v1alpha1.LatencyGateSpec{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{GateLabel: namespace}}, Namespace: namespace,
			Template:    v1alpha1.LatencyBenchmarkTemplate{Spec: MakeBenchmark(namespace, "").Rounds(6).Rule(Under("8us")).Rule(Within("10%")).AgainstGate("").Free().Spec.MeasurementSpec},
			Enforcement: v1alpha1.Enforcement{Label: &v1alpha1.GateLabel{}, Taint: &v1alpha1.GateTaint{Effect: corev1.TaintEffectNoSchedule}},
		},
	}}
}

// With applies a change to the spec.
func (g *GateBuilder) With(change func(*v1alpha1.LatencyGateSpec)) *GateBuilder {
	change(&g.Spec)
	return g
}

// Alone makes the gate select only one node, with a peer that it does not select.
func (g *GateBuilder) Alone(node, peer string) *GateBuilder {
	g.Spec.NodeSelector = metav1.LabelSelector{MatchLabels: map[string]string{NodeLabel: node}}
	g.Spec.Template.Spec.Placement.Server = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: peer}}
	return g
}

// Obj returns the gate.
func (g *GateBuilder) Obj() *v1alpha1.LatencyGate { return g.DeepCopy() }

// Identified sets the fields that a kubelet would report for its node.
func Identified(n *corev1.Node) {
	n.Status.NodeInfo.BootID, n.Status.NodeInfo.KernelVersion, n.Status.NodeInfo.KubeletVersion = "boot-1 of "+n.Name, "6.1.0", "v1.36.0"
}

// Tainted adds a taint of the gate's key, as the gate does.
func Tainted(n *corev1.Node) {
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: v1alpha1.NodeTaintUnverified, Effect: corev1.TaintEffectNoSchedule})
}
