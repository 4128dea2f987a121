package gate

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
)

const (
	// maxBenchmarkName is the 57 characters that the names of a benchmark and of a variant may have together, minus
	// the 16 that a variant of a gate may have.
	maxBenchmarkName = 41
	// maxLabel is the maximum length of a label's value.
	maxLabel = 63
	// keyNode is the key of the evidence that names the node; see internal/result.
	keyNode = "node"
)

// baseName returns the first part of the names of a node's objects in the gate's namespace. It has no dots, which would
// lead to unexpected host names of pods. Two nodes may have the same one.
func baseName(gate, node string, limit int) string {
	name := v1alpha1.Shortened(gate+"-"+node, limit)
	return strings.ReplaceAll(name, ".", "-")
}

// holdPodName returns the name of a node's hold pod. The digest distinguishes nodes a.b and a-b, and node b-c of gate a from node c
// of gate a-b.
func holdPodName(gate, node string) string {
	sum := sha256.Sum256([]byte(v1alpha1.VerificationName(gate, node)))
	suffix := fmt.Sprintf("-%x-hold", sum[:4])
	return baseName(gate, node, maxPodName-len(suffix)) + suffix
}

// benchmarkName returns the name of a node's benchmark with a number.
func benchmarkName(gate, node string, number int64) string {
	suffix := fmt.Sprintf("-%d", number)
	return baseName(gate, node, maxBenchmarkName-len(suffix)) + suffix
}

// labelsOf returns the labels of all objects in the gate's namespace that belong to a gate's node.
func labelsOf(v *v1alpha1.LatencyVerification) map[string]string {
	return map[string]string{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate,
		v1alpha1.LabelGate:      v.Spec.GateName,
		v1alpha1.LabelNode:      v1alpha1.Shortened(v.Spec.NodeName, maxLabel),
	}
}

// goesWith returns the owner reference of an object that is deleted with its verification.
func goesWith(v *v1alpha1.LatencyVerification) metav1.OwnerReference {
	return *metav1.NewControllerRef(v, v1alpha1.GroupVersion.WithKind("LatencyVerification"))
}

// benchmarkOf returns the benchmark that measures a node with a peer: the gate's template with the node as client and the
// peer as server, a toleration of the gate's own taint, and the node's accepted result as baseline. The baseline is named
// in the spec, so that a later acceptance does not change the comparison.
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

// podsOf returns the pod settings of a gate's template, with a toleration of the gate's own taint.
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

// rulesOf returns the criteria of a node's benchmark. If there is no accepted result yet, the rules that compare with one are
// left out; if no rule remains, it returns nil.
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

// compareWith makes an accepted result the baseline of the criteria of a node that is measured with a peer.
func compareWith(gate *v1alpha1.Criteria, accepted v1alpha1.AcceptedResult, peer string) {
	gate.Baseline = &v1alpha1.Baseline{BenchmarkRef: &v1alpha1.ObjectName{Name: accepted.Benchmark}}
	if accepted.Peer != peer && !slices.Contains(gate.IgnoreDifferences, keyNode) {
		// The client's node is the same, by its name, so that only the peer's node can differ.
		gate.IgnoreDifferences = append(gate.IgnoreDifferences, keyNode)
	}
}

// specDigest returns a digest of a benchmark's spec without its priority, which may be edited because it changes no result.
func specDigest(spec v1alpha1.LatencyBenchmarkSpec) (string, error) {
	spec.Priority = 0
	return controllers.Digest(spec)
}
