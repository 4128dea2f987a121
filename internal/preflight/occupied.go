package preflight

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
)

// Pod describes what a pod takes from its node.
type Pod struct {
	Name string // namespace/name
	Node string
	// Requests are its containers' together: CPU in thousandths, others in their own unit.
	Requests map[corev1.ResourceName]int64
	Priority int32
}

// Occupying returns what a pod takes from its node; false without a node, after its end, and for
// pods of benchmarks: the queue ensures that they hold nothing when a run begins.
func Occupying(p *corev1.Pod) (Pod, bool) {
	_, benchmark := p.Labels[v1alpha1.LabelRole]
	benchmark = benchmark && p.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedByTailgate
	if p.Spec.NodeName == "" || pods.Ended(p) || benchmark {
		return Pod{}, false
	}
	requests := map[corev1.ResourceName]int64{corev1.ResourcePods: 1}
	// A container that is being resized counts with its new size.
	for name, q := range resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}) {
		requests[name] = amount(name, q)
	}
	occupying := Pod{Name: p.Namespace + "/" + p.Name, Node: p.Spec.NodeName, Requests: requests}
	if p.Spec.Priority != nil {
		occupying.Priority = *p.Spec.Priority
	}
	return occupying, true
}

func amount(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}
