// Package controllers has what the controllers share.
package controllers

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// CacheOptions keep in memory what the controllers' watches and lists need, and no more: whatever decides is read live. Of
// a cluster with thousands of nodes the rest would be hundreds of megabytes. Objects from the cache must not be written
// back: what was left out would be gone.
func CacheOptions() cache.Options {
	ours := labels.SelectorFromSet(labels.Set{v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate})
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}:       {Label: ours},
			&corev1.ConfigMap{}: {Label: ours},
			&corev1.Node{}:      {Transform: slim(func(n *corev1.Node) { n.Status.Images = nil })},
			&v1alpha1.LatencyBenchmark{}: {Transform: slim(func(b *v1alpha1.LatencyBenchmark) {
				// Of a gate's there are some for each node, and one for each of many pairs, whose results are compared.
				ofGate, ofPair := b.Labels[v1alpha1.LabelGate] != "", b.Labels[v1alpha1.LabelParent] != ""
				if ofGate || ofPair {
					b.Status.Warnings, b.Status.Endpoints, b.Status.Attempts, b.Status.Stored = nil, nil, nil, nil
				}
				if ofGate {
					b.Status.Results = headline(b.Status.Results)
					if b.Status.Verdict != nil {
						b.Status.Verdict.Rules = nil
					}
				}
			})},
		},
	}
}

// slim leaves out of cached objects what nobody looks for there.
func slim[T client.Object](leaveOut func(T)) toolscache.TransformFunc {
	return func(object any) (any, error) {
		if o, ok := object.(T); ok {
			o.SetManagedFields(nil)
			leaveOut(o)
		}
		return object, nil
	}
}

// headline is what metrics tell of the results of a gate's benchmark: percentiles of the first cell.
func headline(results []v1alpha1.CellResult) []v1alpha1.CellResult {
	if len(results) == 0 {
		return nil
	}
	first := &results[0]
	return []v1alpha1.CellResult{{
		Variant: first.Variant, Name: first.Name, LatencyType: first.LatencyType,
		P50Nanoseconds: first.P50Nanoseconds, P99Nanoseconds: first.P99Nanoseconds, P999Nanoseconds: first.P999Nanoseconds,
	}}
}
