package preflight

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
)

// Pod is what a pod takes of its node.
type Pod struct {
	// Name is namespace/name.
	Name string
	Node string
	// Requests are those of all its containers together: of CPU in thousandths, of everything else in its own unit.
	Requests map[corev1.ResourceName]int64
	// Priority is the pod's: those of higher priority may take its place.
	Priority int32
}

// Occupying returns what a pod takes of its node, and false if that is nothing, because it has no node or has ended. Pods
// of benchmarks do not count, neither one's own nor those of others: they hold nothing any more before a run begins, which
// is the queue's business.
func Occupying(p *corev1.Pod) (Pod, bool) {
	_, benchmark := p.Labels[v1alpha1.LabelRole]
	benchmark = benchmark && p.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedByTailgate
	if p.Spec.NodeName == "" || pods.Ended(p) || benchmark {
		return Pod{}, false
	}
	occupying := Pod{Name: p.Namespace + "/" + p.Name, Node: p.Spec.NodeName, Requests: requests(p)}
	if p.Spec.Priority != nil {
		occupying.Priority = *p.Spec.Priority
	}
	return occupying, true
}

// requests is what the scheduler counts for a pod. A container that is being resized counts with what it will have.
func requests(p *corev1.Pod) map[corev1.ResourceName]int64 {
	total := map[corev1.ResourceName]int64{}
	for name, q := range resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}) {
		total[name] = amount(name, q)
	}
	return total
}

// amount is a quantity as Pod.Requests counts it.
func amount(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}
