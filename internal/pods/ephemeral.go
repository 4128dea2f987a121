package pods

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// EphemeralMemory is what an inspection needs within the memory limit of the pod, with a margin. The agent itself used 14 MiB.
var EphemeralMemory = resource.MustParse("32Mi")

// maxEphemeral bounds the ephemeral containers of a pod, which cannot be removed: an object of the API has some 1.5 MiB at most.
const maxEphemeral = 200

// ContainerOf returns a container of a pod and its status: the one with a name or, without one, the pod's first.
func ContainerOf(p *corev1.Pod, name string) (*corev1.Container, *corev1.ContainerStatus, error) {
	if name == "" {
		name = cmp.Or(p.Annotations["kubectl.kubernetes.io/default-container"], p.Spec.Containers[0].Name)
	}
	// A sidecar is among the init containers.
	all, statuses := slices.Concat(p.Spec.Containers, p.Spec.InitContainers), slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses)
	at := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == name })
	if at < 0 {
		names := text.Of(p.Spec.Containers, func(c corev1.Container) string { return c.Name })
		return nil, nil, fmt.Errorf("it has no container %q; there are %s", name, strings.Join(names, ", "))
	}
	status := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if status < 0 { // no kubelet has started it
		return &all[at], &corev1.ContainerStatus{Name: name}, nil
	}
	return &all[at], &statuses[status], nil
}

// Uninspectable says why a container cannot be inspected, and what to do; nil: it can.
func Uninspectable(p *corev1.Pod, s *corev1.ContainerStatus) error {
	waiting, terminated := s.State.Waiting, s.LastTerminationState.Terminated
	switch {
	case p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows:
		return errors.New("it runs on Windows; only Linux shows where threads run")
	case p.Annotations[corev1.MirrorPodAnnotationKey] != "":
		return errors.New("it is a static pod, which takes no ephemeral container; run the program in a pod of the API server")
	case p.DeletionTimestamp != nil:
		return errors.New("it is being deleted; inspect the pod that replaces it")
	case Ended(p):
		return fmt.Errorf("it has ended (%s); inspect it while it runs", cmp.Or(p.Status.Reason, string(p.Status.Phase)))
	case len(p.Spec.EphemeralContainers) >= maxEphemeral:
		return fmt.Errorf("it has %d ephemeral containers, which Kubernetes cannot remove: start the pod again", len(p.Spec.EphemeralContainers))
	case waiting != nil && terminated != nil:
		return fmt.Errorf("container %s restarts again and again (%s, last exit code %d): repair it first, see kubectl logs --previous", s.Name, waiting.Reason, terminated.ExitCode)
	case s.State.Running == nil && waiting != nil:
		return fmt.Errorf("container %s does not run (%s); wait until it runs, see kubectl describe pod", s.Name, waiting.Reason)
	case s.State.Running == nil, s.ContainerID == "":
		return fmt.Errorf("container %s does not run; wait until it runs", s.Name)
	}
	return nil
}

// MemoryLimit returns what all containers of a pod may use together; nil: the pod has no limit, because a container has none.
func MemoryLimit(p *corev1.Pod) *resource.Quantity {
	limited := true
	limits := resourcehelper.PodLimits(p, resourcehelper.PodResourcesOptions{ContainerFn: func(of corev1.ResourceList, _ resourcehelper.ContainerType) {
		_, has := of[corev1.ResourceMemory]
		limited = limited && has
	}})
	if r := p.Spec.Resources; r != nil {
		_, has := r.Limits[corev1.ResourceMemory]
		limited = limited || has
	}
	if limit := limits[corev1.ResourceMemory]; limited {
		return &limit
	}
	return nil
}

// Ephemeral returns the container that inspects another one of its pod. It has the user and the group of the target and no more rights
// than it, so that the kernel shows what the target itself may see; it conforms to Pod Security level restricted if the target does.
func Ephemeral(p *corev1.Pod, target *corev1.Container, s *corev1.ContainerStatus, name, image string, pull corev1.PullPolicy, iface string) corev1.EphemeralContainer {
	own := &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true)}
	if c := target.SecurityContext; c != nil {
		own.RunAsUser, own.RunAsGroup, own.RunAsNonRoot = c.RunAsUser, c.RunAsGroup, c.RunAsNonRoot
		own.SeccompProfile, own.AppArmorProfile, own.SELinuxOptions, own.Capabilities = c.SeccompProfile, c.AppArmorProfile, c.SELinuxOptions, c.Capabilities.DeepCopy()
	}
	if c := p.Spec.SecurityContext; c != nil {
		own.RunAsUser, own.RunAsGroup = cmp.Or(own.RunAsUser, c.RunAsUser), cmp.Or(own.RunAsGroup, c.RunAsGroup)
	}
	// The image of the target may name the user.
	if s.User != nil && s.User.Linux != nil {
		own.RunAsUser, own.RunAsGroup = &s.User.Linux.UID, &s.User.Linux.GID
	}
	// Only root gets capabilities that a container adds or keeps; to read the processes of root, the agent needs those of the target.
	if own.RunAsUser == nil || *own.RunAsUser != 0 {
		own.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	}
	_, id, _ := strings.Cut(s.ContainerID, "://")
	e := corev1.EphemeralContainer{
		TargetContainerName: target.Name,
		EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: name, Image: image, ImagePullPolicy: pull, Command: []string{Agent, "inspect"}, SecurityContext: own,
			TerminationMessagePolicy: corev1.TerminationMessageReadFile,
			Env:                      []corev1.EnvVar{{Name: plan.EnvContainer, Value: id}, {Name: plan.EnvInterface, Value: iface}},
		},
	}
	for name, path := range map[string]string{plan.EnvNode: "spec.nodeName", plan.EnvPodIP: "status.podIP"} {
		e.Env = append(e.Env, fromField(name, path))
	}
	slices.SortFunc(e.Env, func(a, b corev1.EnvVar) int { return strings.Compare(a.Name, b.Name) })
	return e
}
