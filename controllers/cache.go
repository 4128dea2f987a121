// Package controllers has the code that the controllers share.
package controllers

import (
	"encoding/json"
	"runtime/debug"
	"runtime/metrics"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// reconciliationTimeout is longer than an API server takes for one request.
const reconciliationTimeout = 2 * time.Minute

func Config() config.Controller {
	return config.Controller{
		ReconciliationTimeout: reconciliationTimeout,
		// With priorities, a new manager would see changes before what exists: a benchmark would
		// claim nodes before an older one is accepted. Such a queue may also block for ever at its
		// shutdown (controller-runtime issue 3538).
		UsePriorityQueue: new(false),
	}
}

// CacheOptions returns a cache of what watches and lists need: the rest takes hundreds of megabytes
// with thousands of nodes. Do not write back its objects, which lack the rest.
func CacheOptions(named Named) cache.Options {
	in := map[string]cache.Config{}
	for _, namespace := range named {
		in[namespace] = cache.Config{}
	}
	ours := labels.SelectorFromSet(labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate})
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			// Who may create pods or ConfigMaps can give them our label and 1 MB of data.
			&corev1.Pod{}:       {Label: ours, Transform: slimPod},
			&corev1.ConfigMap{}: {Label: ours, Transform: slim(func(o client.Object) { slimAny(o) }), Namespaces: in},
			&corev1.Node{}: {Transform: slim(func(n *corev1.Node) {
				// Users cannot write them, but agents on the nodes do.
				kept := map[string]string{}
				for _, name := range []string{foreign.AnnotationMachineConfig, foreign.AnnotationNodeState} {
					if value := n.Annotations[name]; value != "" && len(value) <= maxText {
						kept[name] = value
					}
				}
				n.Annotations, n.Status.Images = kept, nil
			})},
			&v1alpha1.LatencyMatrix{}: {Transform: slim(func(m *v1alpha1.LatencyMatrix) {
				slimMeta(m)
				// Only the compared matrix is read.
				kept := v1alpha1.LatencyMatrixSpec{}
				if c := m.Spec.Template.Spec.Criteria; c != nil && c.Baseline != nil {
					kept.Template.Spec.Criteria = &v1alpha1.Criteria{Baseline: &v1alpha1.Baseline{Type: c.Baseline.Type, Matrix: c.Baseline.Matrix}}
				}
				m.Spec = kept
			})},
			&v1alpha1.LatencyBenchmark{}: {Transform: slim(func(b *v1alpha1.LatencyBenchmark) {
				slimMeta(b)
				slimPlacement(b.Spec.Placement.Client)
				slimPlacement(b.Spec.Placement.Server)
				short := memoryShort()
				slimSpec(&b.Spec, short)
				// A gate has several for each node, a matrix one for each pair to compare.
				ofGate, ofPair := b.Labels[v1alpha1.LabelGate] != "", b.Labels[v1alpha1.LabelMatrix] != ""
				if ofGate || ofPair || short {
					b.Status.Warnings, b.Status.Endpoints, b.Status.Attempts, b.Status.Stored = nil, nil, nil, nil
				}
				if ofGate || short { // Editors may store thousands of statuses at their maximum.
					b.Status.Results = headline(&b.Status)
					if b.Status.Verdict != nil {
						b.Status.Verdict.Rules = nil
					}
				}
			})},
		},
	}
}

// maxText bounds a cached text that users write, in bytes: more than a note that wakes us.
const maxText = 1 << 10

func slimMeta(o metav1.Object) {
	o.SetFinalizers(nil)
	if length(o.GetAnnotations()) > maxText {
		o.SetAnnotations(nil)
	}
	if length(o.GetLabels()) > maxText {
		keepOurLabels(o)
	}
	controller := metav1.GetControllerOf(o)
	o.SetOwnerReferences(nil)
	if c := controller; c != nil && len(c.APIVersion)+len(c.Kind)+len(c.Name)+len(c.UID) <= maxText {
		o.SetOwnerReferences([]metav1.OwnerReference{*c})
	}
}

func length(texts map[string]string) int {
	sum := 0
	for key, value := range texts {
		sum += len(key) + len(value)
	}
	return sum
}

// slimPlacement removes what may be large; benchmarks of pairs and gates name one node.
func slimPlacement(p *v1alpha1.EndpointPlacement) {
	if p != nil {
		p.NodeNames, p.NodeSelector = nil, nil
	}
}

// maxSpec bounds a cached spec, in bytes of JSON: editors may create thousands at their maximum.
const maxSpec = 8 << 10

// slimSpec reduces a longer spec, or any while memory is short, to what others need of it.
func slimSpec(s *v1alpha1.LatencyBenchmarkSpec, short bool) {
	if text, err := json.Marshal(s); err == nil && len(text) <= maxSpec && !short {
		return
	}
	kept := v1alpha1.LatencyBenchmarkSpec{Suspend: s.Suspend, TTLSecondsAfterFinished: s.TTLSecondsAfterFinished, HistoryLimit: s.HistoryLimit}
	kept.Priority = s.Priority
	if s.Criteria != nil {
		kept.Criteria = &v1alpha1.Criteria{Baseline: s.Criteria.Baseline}
	}
	*s = kept
}

// memoryShort reports whether more than half of the memory limit is in live use. Then the cache
// keeps less of each object and more is read live: slower, but the manager lives.
func memoryShort() bool { return liveShare() > 0.5 }

// MemoryEnds reports whether 3/4 of it are in use: the largest namespace begins no new work.
func MemoryEnds() bool { return liveShare() > 0.75 }

func liveShare() float64 {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return float64(live[0].Value.Uint64()) / float64(debug.SetMemoryLimit(-1))
}

// IsWhole reports whether the cache has a benchmark's whole spec, which always has a tool.
func IsWhole(b *v1alpha1.LatencyBenchmark) bool { return b.Spec.Tool != "" }

var labelsKept = []string{
	v1alpha1.LabelManagedBy, v1alpha1.LabelBenchmark, v1alpha1.LabelRun, v1alpha1.LabelRole, v1alpha1.LabelGate, v1alpha1.LabelNode,
	v1alpha1.LabelHold, v1alpha1.LabelMatrix, v1alpha1.NodeLabelVerified,
}

func keepOurLabels(o metav1.Object) {
	kept := map[string]string{}
	for _, name := range labelsKept {
		if value, ok := o.GetLabels()[name]; ok {
			kept[name] = value
		}
	}
	o.SetLabels(kept)
}

func slimAny(o metav1.Object) {
	slimMeta(o)
	o.SetAnnotations(nil)
	keepOurLabels(o)
}

// slimPod keeps owner, node, whether it ended, and a digest of what steps depend on.
var slimPod = slim(func(p *corev1.Pod) {
	facts := podFacts(p)
	slimAny(p)
	p.Spec = corev1.PodSpec{NodeName: pods.Node(p)}
	p.Status = corev1.PodStatus{Phase: p.Status.Phase, Message: facts}
})

// PodChanges passes the changes of a cached pod on which a step of its benchmark may depend.
var PodChanges = Updates(func(before, after *corev1.Pod) bool {
	return before.Status.Message != after.Status.Message || before.Status.Phase != after.Status.Phase || before.Spec.NodeName != after.Spec.NodeName ||
		before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() || len(before.OwnerReferences) != len(after.OwnerReferences)
})

// podFacts returns a digest of a pod's start and end, without conditions of mere progress.
func podFacts(p *corev1.Pod) string {
	facts := []any{p.Annotations[foreign.AnnotationNetworkStatus], p.Status.Reason, p.Status.Message, p.Status.PodIPs, p.Status.ExtendedResourceClaimStatus}
	began := false
	for _, c := range p.Status.ContainerStatuses {
		facts = append(facts, c.ImageID, c.ContainerID, c.RestartCount, c.State, c.LastTerminationState)
		began = began || c.ContainerID != ""
	}
	for _, c := range p.Status.Conditions {
		// To have a node is progress. A begun pod can lose its sandbox with its node.
		if c.Status == corev1.ConditionFalse && (c.Type == corev1.PodScheduled || began && c.Type == corev1.PodReadyToStartContainers) {
			facts = append(facts, c.Type, c.Status, c.Message)
		}
	}
	digest, err := result.Digest(facts)
	if err != nil {
		return p.ResourceVersion // Each change counts.
	}
	return digest
}

func slim[T client.Object](leaveOut func(T)) toolscache.TransformFunc {
	return func(object any) (any, error) {
		if o, ok := object.(T); ok {
			o.SetManagedFields(nil)
			leaveOut(o)
		}
		return object, nil
	}
}

// headline returns what metrics use of a gate's benchmark: the headline's percentiles.
func headline(status *v1alpha1.LatencyBenchmarkStatus) []v1alpha1.CellResult {
	first := status.Headline()
	if first == nil {
		return nil
	}
	return []v1alpha1.CellResult{{Variant: first.Variant, Name: first.Name, LatencyType: first.LatencyType, Percentiles: first.Percentiles}}
}
