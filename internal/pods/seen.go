package pods

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// Seen returns the state of an endpoint's pod in the API, with the fields that differ from the pod that Build makes for the
// endpoint. Of the endpoint's task, only the role is compared, unless the pod's own task cannot be read: the inputs of the
// task, such as a profile's settings, may have been different when the pod was created.
func Seen(e Endpoint, pod *corev1.Pod) (result.Seen, error) {
	s := result.Seen{PodUID: string(pod.UID), QOSClass: string(pod.Status.QOSClass)}
	for _, c := range pod.Spec.Containers {
		if c.Name != Container {
			continue
		}
		s.Requests = map[string]string{}
		for name, quantity := range c.Resources.Requests {
			s.Requests[string(name)] = quantity.String()
		}
		for _, v := range c.Env {
			if v.Name != plan.EnvTask {
				continue
			}
			if task, err := plan.DecodeTask(v.Value); err == nil && task.Role == e.Task.Role {
				e.Task = task
			}
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == Container {
			s.ImageID = c.ImageID
		}
	}
	if e.Variant.Network.Type.Attached() {
		namespace, name := NetworkName(e.Benchmark, e.Variant)
		// Without a status, the proof says that nothing was reported.
		if status, err := foreign.FindStatus(pod.Annotations[foreign.AnnotationNetworkStatus], namespace+"/"+name, Interface); err == nil {
			s.Network = &status
		}
	}

	built, err := Build(e)
	if err != nil {
		return result.Seen{}, fmt.Errorf("building the %s's pod again, to compare: %w", e.Task.Role, err)
	}
	s.Changed = Changed(built, pod)
	return s, nil
}
