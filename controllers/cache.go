// Package controllers has what the controllers share.
package controllers

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
)

// reconciliationTimeout bounds each reconcile: longer than an API server takes for one request.
const reconciliationTimeout = 2 * time.Minute

// Config is what all controllers have in common.
func Config() config.Controller {
	return config.Controller{
		ReconciliationTimeout: reconciliationTimeout,
		// With priorities, changes precede what a new manager found, so that of two benchmarks the one that it accepts first
		// claims its nodes before the older one is accepted at all. And such a queue can block for ever when it is shut down
		// (controller-runtime issue 3538), so that the manager stops late.
		UsePriorityQueue: new(false),
	}
}

// CacheOptions keep in memory what the controllers' watches and lists need, and no more: whatever decides is read live. Of
// a cluster with thousands of nodes the rest would be hundreds of megabytes. Objects from the cache must not be written
// back: what was left out would be gone.
func CacheOptions() cache.Options {
	ours := labels.SelectorFromSet(labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate})
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			// Anyone who may create pods or ConfigMaps can give them our label, and a megabyte of whatever they like.
			&corev1.Pod{}:       {Label: ours, Transform: slimPod},
			&corev1.ConfigMap{}: {Label: ours, Transform: slimConfigMap},
			&corev1.Node{}:      {Transform: slim(func(n *corev1.Node) { n.Status.Images = nil })},
			&v1alpha1.LatencyBenchmark{}: {Transform: slim(func(b *v1alpha1.LatencyBenchmark) {
				// Of a gate's there are some for each node, and one for each pair of a matrix, whose results are compared.
				ofGate, ofPair := b.Labels[v1alpha1.LabelGate] != "", b.Labels[v1alpha1.LabelMatrix] != ""
				if ofGate || ofPair {
					b.Status.Warnings, b.Status.Endpoints, b.Status.Attempts, b.Status.Stored = nil, nil, nil, nil
				}
				if ofGate {
					b.Status.Results = headline(&b.Status)
					if b.Status.Verdict != nil {
						b.Status.Verdict.Rules = nil
					}
				}
			})},
		},
	}
}

// labelsKept are those for which the controllers look at cached pods and ConfigMaps.
var labelsKept = []string{
	v1alpha1.LabelManagedBy, v1alpha1.LabelBenchmark, v1alpha1.LabelRun, v1alpha1.LabelRole, v1alpha1.LabelGate, v1alpha1.LabelNode,
	v1alpha1.LabelHold, v1alpha1.NodeLabelVerified,
}

// slimMeta leaves of an object's metadata its identity, its controller and our labels.
func slimMeta(o metav1.Object) {
	o.SetManagedFields(nil)
	o.SetAnnotations(nil)
	o.SetFinalizers(nil)
	kept := map[string]string{}
	for _, name := range labelsKept {
		if value, ok := o.GetLabels()[name]; ok {
			kept[name] = value
		}
	}
	o.SetLabels(kept)
	controller := metav1.GetControllerOf(o)
	o.SetOwnerReferences(nil)
	if controller != nil {
		o.SetOwnerReferences([]metav1.OwnerReference{*controller})
	}
}

// slimPod leaves of a cached pod what is looked for there: whose it is, on which node, and whether it has ended.
func slimPod(object any) (any, error) {
	if p, ok := object.(*corev1.Pod); ok {
		slimMeta(p)
		p.Spec = corev1.PodSpec{NodeName: pods.Node(p)}
		p.Status = corev1.PodStatus{Phase: p.Status.Phase}
	}
	return object, nil
}

// slimConfigMap leaves of a cached ConfigMap, of which only the metadata is watched, whose it is.
func slimConfigMap(object any) (any, error) {
	if cm, ok := object.(metav1.Object); ok {
		slimMeta(cm)
	}
	return object, nil
}

// slim leaves out of cached objects what the controllers do not read there.
func slim[T client.Object](leaveOut func(T)) toolscache.TransformFunc {
	return func(object any) (any, error) {
		if o, ok := object.(T); ok {
			o.SetManagedFields(nil)
			leaveOut(o)
		}
		return object, nil
	}
}

// headline is the part of the results of a gate's benchmark that the metrics have: the percentiles of the headline's cell.
func headline(status *v1alpha1.LatencyBenchmarkStatus) []v1alpha1.CellResult {
	first := status.Headline()
	if first == nil {
		return nil
	}
	return []v1alpha1.CellResult{{Variant: first.Variant, Name: first.Name, LatencyType: first.LatencyType, Percentiles: first.Percentiles}}
}
