package preflight

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

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
	occupying := Pod{Name: p.Namespace + "/" + p.Name, Node: p.Spec.NodeName, Requests: requests(&p.Spec)}
	if p.Spec.Priority != nil {
		occupying.Priority = *p.Spec.Priority
	}
	return occupying, true
}

// requests is what the scheduler counts for a pod: its containers together with its sidecars, or what an init container
// needs together with the sidecars before it, whichever is more; what the pod as a whole asks for takes their place; the
// overhead comes on top. A container that is being resized counts with what it will have.
func requests(spec *corev1.PodSpec) map[corev1.ResourceName]int64 {
	total := map[corev1.ResourceName]int64{}
	for i := range spec.Containers {
		add(total, spec.Containers[i].Resources.Requests)
	}
	if len(spec.InitContainers) > 0 {
		sidecars, start := map[corev1.ResourceName]int64{}, map[corev1.ResourceName]int64{}
		for i := range spec.InitContainers {
			c := &spec.InitContainers[i]
			if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
				add(total, c.Resources.Requests)
				add(sidecars, c.Resources.Requests)
				continue
			}
			for name, q := range c.Resources.Requests {
				start[name] = max(start[name], sidecars[name]+amount(name, q))
			}
		}
		for name, n := range start {
			total[name] = max(total[name], n)
		}
	}
	if spec.Resources != nil {
		for name, q := range spec.Resources.Requests {
			if name == corev1.ResourceCPU || name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
				total[name] = amount(name, q)
			}
		}
	}
	add(total, spec.Overhead)
	return total
}

func add(total map[corev1.ResourceName]int64, list corev1.ResourceList) {
	for name, q := range list {
		total[name] += amount(name, q)
	}
}

// amount is a quantity as Pod.Requests counts it.
func amount(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}
