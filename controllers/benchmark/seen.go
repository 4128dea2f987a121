package benchmark

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// seen is what the API server tells of the pod of an endpoint of a variant.
func seen(v v1alpha1.Variant, p *corev1.Pod) result.Seen {
	s := result.Seen{PodUID: string(p.UID)}
	for _, c := range p.Spec.Containers {
		if c.Name != pods.Container {
			continue
		}
		s.Requests = map[string]string{}
		for name, quantity := range c.Resources.Requests {
			s.Requests[string(name)] = quantity.String()
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.Name == pods.Container {
			s.ImageID = c.ImageID
		}
	}
	if v.Network.Type.Attached() {
		namespace, name := pods.NetworkName(p.Namespace, v)
		// Without it the proof says that nothing was told.
		if status, err := foreign.FindStatus(p.Annotations[foreign.AnnotationNetworkStatus], namespace+"/"+name, pods.Interface); err == nil {
			s.Network = &status
		}
	}
	return s
}
