package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/rand"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

func (c *inspectCall) inspect(ctx context.Context, pod *corev1.Pod) (inspected, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	// Read again: earlier pods took time.
	if err := c.api.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		return inspected{}, err
	}
	target, status, err := pods.ContainerOf(pod, c.container)
	if err != nil {
		return inspected{}, err
	}
	if err := pods.Uninspectable(pod, status); err != nil {
		return inspected{}, err
	}
	if err := c.roomIn(ctx, pod); err != nil {
		return inspected{}, err
	}
	before, own := pod.DeepCopy(), "tailgate-inspect-"+rand.String(5)
	pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, pods.Ephemeral(pod, target, status, own, c.image, c.policy, c.iface))
	if err := c.api.SubResource("ephemeralcontainers").Patch(ctx, pod, client.StrategicMergeFrom(before)); err != nil {
		return inspected{}, fmt.Errorf("adding an ephemeral container: %w", err)
	}
	failure := c.await(ctx, pod, own)
	_, after, err := pods.ContainerOf(pod, target.Name)
	switch {
	case err != nil || after.ContainerID != status.ContainerID || after.RestartCount != status.RestartCount:
		return inspected{}, fmt.Errorf("container %s restarted during the inspection; inspect it again", target.Name)
	case failure != nil:
		return inspected{}, failure
	}
	found, err := c.inspection(ctx, client.ObjectKeyFromObject(pod), own)
	if err != nil {
		return inspected{}, err
	}
	if found.Workload == nil || len(found.Workload.Interfaces) == 0 {
		return inspected{}, fmt.Errorf("image %s has an agent of another version; use the bench image of this release", c.image)
	}
	known, err := c.workloadPod(ctx, pod, target)
	if err != nil {
		return inspected{}, err
	}
	r := inspected{Namespace: pod.Namespace, Pod: pod.Name, Container: target.Name, Node: pod.Spec.NodeName, Ephemeral: own, Workload: found.Workload}
	r.Lines = proof.Workload(known, *found.Workload)
	if c.benchmark != nil {
		r.Lines = append(r.Lines, c.benchmark.line(found.Workload))
	}
	return r, nil
}

const (
	// usageAge is the greatest age of a usage that counts: a kubelet measures each 10 to 15 s, and metrics-server asks it as often.
	usageAge = 45 * time.Second
	// settled is how long all containers must have run at that time: a program that starts fills its memory.
	settled = 30 * time.Second
)

// roomIn returns an error if the pod may not have the memory that the inspection needs: the kernel would end the pod's largest process.
func (c *inspectCall) roomIn(ctx context.Context, pod *corev1.Pod) error {
	limit, need := pods.MemoryLimit(pod), pods.EphemeralMemory
	if limit == nil {
		return nil
	}
	used, at, err := c.memoryOf(ctx, pod)
	for _, s := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		run, last := s.State.Running, s.LastTerminationState.Terminated
		switch {
		case err != nil:
		case time.Since(at) > usageAge:
			err = fmt.Errorf("its last measurement is of %s; try again in %s", at.Format(time.TimeOnly), usageAge)
		case run != nil && at.Sub(run.StartedAt.Time) < settled:
			err = fmt.Errorf("container %s started less than %s before its last measurement; try again in %s", s.Name, settled, usageAge)
		case last != nil && last.Reason == "OOMKilled":
			err = fmt.Errorf("container %s has used up its limit before (OOMKilled)", s.Name)
		}
	}
	switch {
	case limit.Cmp(need) <= 0:
		return fmt.Errorf("its memory limit is %s, and the inspection needs %s below the limit: raise it", limit.String(), need.String())
	case used+need.Value() > limit.Value():
		return fmt.Errorf("it uses %d of %d MiB of memory, and the inspection needs %s below the limit, or the kernel would end a process: raise the memory limit",
			used>>20, limit.Value()>>20, need.String())
	case err != nil && !c.memoryFree:
		return fmt.Errorf("how much of its memory limit %s is used, is not known (%w), and the inspection needs %s: install metrics-server, or say --memory-free if you know that this is free",
			limit.String(), err, need.String())
	}
	return nil
}

// memoryOf returns the memory that a pod uses, in bytes, and when it was measured, from the metrics API, or else from its kubelet.
func (c *inspectCall) memoryOf(ctx context.Context, pod *corev1.Pod) (used int64, at time.Time, err error) {
	var metrics struct {
		Timestamp  time.Time
		Containers []struct{ Usage corev1.ResourceList }
	}
	if err := c.raw(ctx, &metrics, fmt.Sprintf("/apis/metrics.k8s.io/v1beta1/namespaces/%s/pods/%s", pod.Namespace, pod.Name)); err == nil && len(metrics.Containers) > 0 {
		for _, container := range metrics.Containers {
			used += container.Usage.Memory().Value()
		}
		return used, metrics.Timestamp, nil
	}
	var summary stats.Summary
	if err := c.raw(ctx, &summary, "/api/v1/nodes/"+pod.Spec.NodeName+"/proxy/stats/summary", "only_cpu_and_memory"); err != nil {
		return 0, at, fmt.Errorf("no metrics, and from the kubelet: %w", err)
	}
	for _, p := range summary.Pods {
		if m := p.Memory; p.PodRef.UID == string(pod.UID) && m != nil && ptr.Deref(m.WorkingSetBytes, 0) > 0 {
			return int64(*m.WorkingSetBytes), m.Time.Time, nil
		}
	}
	return 0, at, errors.New("neither the metrics API nor the kubelet knows it")
}

// await waits until the ephemeral container has ended, and reads the pod.
func (c *inspectCall) await(ctx context.Context, pod *corev1.Pod, own string) error {
	last := "the kubelet has not started it"
	for pause(ctx, inspectPoll) {
		if err := c.api.Get(ctx, client.ObjectKeyFromObject(pod), pod); apierrors.IsNotFound(err) {
			return errors.New("the pod was deleted during the inspection")
		} else if err != nil {
			last = oneLine(err)
			continue
		}
		for _, s := range pod.Status.EphemeralContainerStatuses {
			switch end, waiting := s.State.Terminated, s.State.Waiting; {
			case s.Name != own:
			case end != nil && end.ExitCode == 0:
				return nil
			case end != nil:
				t, _ := result.ParseTermination(end.Message) // or the message is not the agent's
				return fmt.Errorf("the agent ended with exit code %d (%s): %s", end.ExitCode, end.Reason, text.OneLine(cmp.Or(t.Message, end.Message, "without a message"), 400))
			case waiting != nil:
				last = text.OneLine(waiting.Reason+": "+waiting.Message, 400)
				if slices.Contains([]string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}, waiting.Reason) {
					return fmt.Errorf("image %s cannot be pulled, for which only the pod's own imagePullSecrets count: %s", c.image, last)
				}
			default:
				last = "it runs"
			}
		}
	}
	return fmt.Errorf("no inspection within %s (%s); raise --timeout, or see kubectl describe pod", c.timeout, last)
}

// workloadPod collects what the API server knows of a container.
func (c *inspectCall) workloadPod(ctx context.Context, pod *corev1.Pod, target *corev1.Container) (known proof.WorkloadPod, err error) {
	known = c.asked
	known.Seen, known.RuntimeClass = pods.SeenOf(pod, target), ptr.Deref(pod.Spec.RuntimeClassName, "")
	known.SharesProcesses = pod.Spec.HostPID || ptr.Deref(pod.Spec.ShareProcessNamespace, false)
	if annotation := pod.Annotations[foreign.AnnotationNetworkStatus]; annotation != "" {
		if known.Networks, err = foreign.Statuses(annotation); err != nil {
			return known, err
		}
	}
	known.Devices = map[string][]string{}
	for _, s := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		for _, allocated := range s.AllocatedResourcesStatus {
			for _, health := range allocated.Resources {
				if id := string(health.ResourceID); result.PCIAddress.MatchString(id) {
					known.Devices[string(allocated.Name)] = append(known.Devices[string(allocated.Name)], id)
				}
			}
		}
	}
	node := &corev1.Node{}
	if err := c.api.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node); err == nil {
		known.NodeBootID = node.Status.NodeInfo.BootID
	}
	return known, nil
}
