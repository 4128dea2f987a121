package gate

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

const (
	// maxBenchmarkName leaves room, in the 57 characters that the names of a benchmark and of a variant have together, for
	// the 16 that a gate lets variants have.
	maxBenchmarkName = 41
	// maxLabel is the length of a label's value.
	maxLabel = 63
	// keyNode is the key of the evidence that names the node; see internal/result.
	keyNode = "node"
)

// baseName is what the objects of a gate's node in the gate's namespace are named after. Names with dots would make
// surprising host names of pods. Two nodes may have the same.
func baseName(gate, node string, limit int) string {
	name := v1alpha1.Shortened(gate+"-"+node, limit)
	return strings.ReplaceAll(name, ".", "-")
}

// holdPodName is the name of a node's hold pod. The digest keeps nodes a.b and a-b apart, and node b-c of gate a from node c of
// gate a-b.
func holdPodName(gate, node string) string {
	sum := sha256.Sum256([]byte(v1alpha1.VerificationName(gate, node)))
	suffix := fmt.Sprintf("-%x-hold", sum[:4])
	return baseName(gate, node, maxPodName-len(suffix)) + suffix
}

// benchmarkName is the name of the benchmark of a node with a number.
func benchmarkName(gate, node string, number int64) string {
	suffix := fmt.Sprintf("-%d", number)
	return baseName(gate, node, maxBenchmarkName-len(suffix)) + suffix
}

// labelsOf are those of everything in a namespace that belongs to a gate's node.
func labelsOf(v *v1alpha1.LatencyVerification) map[string]string {
	return map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate,
		v1alpha1.LabelGate:      v.Spec.GateName,
		v1alpha1.LabelNode:      v1alpha1.Shortened(v.Spec.NodeName, maxLabel),
	}
}

// goesWith makes an object go with its verification.
func goesWith(v *v1alpha1.LatencyVerification) metav1.OwnerReference {
	return *metav1.NewControllerRef(v, v1alpha1.GroupVersion.WithKind("LatencyVerification"))
}

// benchmarkOf makes the benchmark that measures a node with a peer: the gate's template with the node as client and the
// peer as server, a toleration of the gate's own taint, and the node's accepted result as baseline. It is what the
// verdict rests on, so that a later acceptance cannot change what it was compared with.
func benchmarkOf(gate *v1alpha1.LatencyGate, v *v1alpha1.LatencyVerification, peer string, number int64) *v1alpha1.LatencyBenchmark {
	spec := *gate.Spec.Template.Spec.DeepCopy()
	spec.Placement.Client = spec.Placement.Client.On(v1alpha1.NodeSelection{NodeName: v.Spec.NodeName})
	spec.Placement.Server = spec.Placement.Server.On(v1alpha1.NodeSelection{NodeName: peer})
	spec.Pods = podsOf(gate)
	spec.Criteria = rulesOf(spec.Criteria, v.Status.Accepted, peer)
	return &v1alpha1.LatencyBenchmark{
		ObjectMeta: gate.Spec.Template.Metadata.ObjectMeta(metav1.ObjectMeta{
			Namespace: gate.Spec.Namespace, Name: benchmarkName(gate.Name, v.Spec.NodeName, number),
			Labels: labelsOf(v), OwnerReferences: []metav1.OwnerReference{goesWith(v)},
		}),
		Spec: spec,
	}
}

// podsOf is what a gate's template gives to benchmark pods, with the toleration of the gate's own taint.
func podsOf(gate *v1alpha1.LatencyGate) *v1alpha1.PodSettings {
	pods := gate.Spec.Template.Spec.Pods.DeepCopy()
	if pods == nil {
		pods = &v1alpha1.PodSettings{}
	}
	own := corev1.Toleration{Key: v1alpha1.NodeTaintUnverified, Operator: corev1.TolerationOpExists}
	if !slices.Contains(pods.Tolerations, own) {
		pods.Tolerations = append(pods.Tolerations, own)
	}
	return pods
}

// rulesOf are the rules of a node's benchmark. Where there is nothing yet to compare with, those that compare are left
// out; nil when none remains.
func rulesOf(gate *v1alpha1.Criteria, accepted *v1alpha1.AcceptedResult, peer string) *v1alpha1.Criteria {
	if gate.BaselineAccepted() == nil {
		return gate
	}
	if accepted != nil {
		compareWith(gate, *accepted, peer)
		return gate
	}
	gate.Baseline, gate.IgnoreDifferences = nil, nil
	gate.Rules = slices.DeleteFunc(gate.Rules, func(r v1alpha1.Rule) bool { return r.Compares() })
	if len(gate.Rules) == 0 {
		return nil
	}
	return gate
}

// compareWith makes an accepted result the baseline of a node that is measured with a peer.
func compareWith(gate *v1alpha1.Criteria, accepted v1alpha1.AcceptedResult, peer string) {
	gate.Baseline = &v1alpha1.Baseline{BenchmarkRef: &v1alpha1.ObjectName{Name: accepted.Benchmark}}
	if accepted.Peer != peer && !slices.Contains(gate.IgnoreDifferences, keyNode) {
		// The client's node is the same by its name, so that this is about the peer's.
		gate.IgnoreDifferences = append(gate.IgnoreDifferences, keyNode)
	}
}

// specDigest tells whether a benchmark still is what it was made as. Its priority may be edited: that changes no result.
func specDigest(spec v1alpha1.LatencyBenchmarkSpec) (string, error) {
	spec.Priority = 0
	return digestOf(spec)
}
