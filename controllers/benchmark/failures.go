package benchmark

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// trouble is the reason why a pod does not start.
type trouble struct {
	// reason is the outcome of the attempt if the trouble persists.
	reason string
	// message has the observation and what to do; empty while nothing is wrong.
	message string
	// final is true when waiting cannot help.
	final bool
}

// A pod that cannot start because of an error waits for the start timeout, because most errors pass: a device is still being
// reset, an address is released in a moment, a registry was restarted.

// startTrouble reads from a pending pod and its warning events why it does not start. The first match decides:
// the pod's own status comes before its events.
func startTrouble(p *corev1.Pod, warnings []corev1.Event) trouble {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Waiting == nil {
			continue
		}
		switch reason := c.State.Waiting.Reason; {
		case pods.CannotPull(reason):
			image, option := unpulled(p, c)
			return troubled(v1alpha1.OutcomeImagePullFailed,
				"image %s cannot be pulled (%s); check the operator's %s and the node's access to its registry", image, reason, option)
		case pods.CannotRun(reason):
			return troubled(v1alpha1.OutcomeContainerConfig, "the container cannot be created (%s): %s", reason, oneLine(c.State.Waiting.Message))
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return troubled(v1alpha1.OutcomeUnschedulable,
				"the scheduler cannot place it on %s: %s; free what the message names, or request less", pods.Node(p), oneLine(c.Message))
		}
	}
	for _, e := range slices.Backward(warnings) {
		switch {
		case pods.CannotAttach(e.Reason):
			return networkTrouble(e, pods.Node(p))
		case e.Reason == "FailedMount", e.Reason == "FailedAttachVolume":
			return troubled(v1alpha1.OutcomeContainerConfig, "its volumes cannot be mounted: %s", oneLine(e.Message))
		}
	}
	return trouble{reason: v1alpha1.OutcomeStartTimeout}
}

// unpulled returns the image that a container waits for, and the options of the operator that name it. The kubelet reports the image of
// a volume as it reports that of the container, and only its message has the name; a runtime's message may have neither.
func unpulled(p *corev1.Pod, c corev1.ContainerStatus) (image, option string) {
	image, option = c.Image, "--bench-image"
	for _, v := range p.Spec.Volumes {
		if v.Image == nil || c.Image != "" && strings.Contains(c.State.Waiting.Message, c.Image) {
			continue
		}
		if strings.Contains(c.State.Waiting.Message, v.Image.Reference) {
			return v.Image.Reference, "--sfnettest-image"
		}
		image, option = image+" or "+v.Image.Reference, option+" and --sfnettest-image"
	}
	return image, option
}

func troubled(reason, format string, args ...any) trouble {
	return trouble{reason: reason, message: fmt.Sprintf(format, args...)}
}

// networkTrouble classifies an error of Multus or a CNI plugin by its text, which is the only information.
func networkTrouble(e corev1.Event, node string) trouble {
	said := text.Ends(e.Message, maxSaid)
	switch {
	case e.Reason == "NoNetworkFound", strings.Contains(e.Message, "cannot find a network-attachment-definition"):
		t := troubled(v1alpha1.OutcomeNetworkMissing, "Multus on %s finds no such network: %s; create the NetworkAttachmentDefinition, and check that Multus may read its namespace", node, said)
		t.final = true
		return t
	case strings.Contains(e.Message, "pci addr is required"), strings.Contains(e.Message, `or "pciBusID"`):
		t := troubled(v1alpha1.OutcomeDeviceMissing, "the CNI plugin on %s received no device: %s; check that the NetworkAttachmentDefinition has annotation k8s.v1.cni.cncf.io/resourceName, and that Multus can read the kubelet's podresources socket", node, said)
		t.final = true
		return t
	}
	return troubled(v1alpha1.OutcomeNetworkFailed, "its network cannot be set up: %s; check spec.network and the CNI plugins of %s", said, node)
}

// podFailure classifies a failed pod: by the kubelet's reason if it was refused or removed, otherwise by the
// agent's own termination message, otherwise by how the container ended.
func podFailure(p *corev1.Pod) (reason, message string) {
	role := p.Labels[v1alpha1.LabelRole]
	node := pods.Node(p)
	switch p.Status.Reason {
	case "TopologyAffinityError":
		return v1alpha1.OutcomeTopologyAffinity, fmt.Sprintf(
			"the kubelet of %s cannot give the %s CPUs and device on one NUMA node (%s): free CPUs there, or use a device of another NUMA node", node, role, p.Status.Reason)
	case "SMTAlignmentError":
		return v1alpha1.OutcomeSMTAlignment, fmt.Sprintf(
			"the kubelet of %s gives the %s whole cores only: %s; set placement.cpus to a multiple of the CPUs of a core", node, role, oneLine(p.Status.Message))
	case "UnexpectedAdmissionError":
		if name := unallocated(p); name != "" {
			return v1alpha1.OutcomeDevicePluginUnavailable, fmt.Sprintf(
				"the kubelet of %s has no device of %s for the %s: %s; the attempt does not count, and the operator waits for the device plugin", node, name, role, oneLine(p.Status.Message))
		}
		return v1alpha1.OutcomeUnexpectedAdmission, fmt.Sprintf(
			"the kubelet of %s could not allocate what the scheduler had counted for the %s: %s", node, role, oneLine(p.Status.Message))
	case "Evicted", "Preempting", "Preempted", "Shutdown", "NodeShutdown", "Terminated":
		return v1alpha1.OutcomeEvicted, fmt.Sprintf("the %s was removed from %s (%s): %s", role, node, p.Status.Reason, oneLine(p.Status.Message))
	case "NodeLost":
		return v1alpha1.OutcomeNodeLost, fmt.Sprintf("node %s of the %s was lost", node, role)
	case "DeadlineExceeded":
		return v1alpha1.OutcomeDeadlineExceeded, fmt.Sprintf("the %s ran into its pod's active deadline", role)
	}
	if end := terminated(p); end != nil {
		if t, err := result.ParseTermination(end.Message); err == nil && t.Reason != "" {
			return t.Reason, fmt.Sprintf("%s on %s: %s", role, node, oneLine(t.Message))
		}
		if end.Reason == "OOMKilled" {
			return v1alpha1.OutcomeOOMKilled, fmt.Sprintf("the %s used more than placement.memory: request more, or measure for a shorter time", role)
		}
		if end.Reason == "StartError" || end.Reason == "ContainerCannotRun" {
			return v1alpha1.OutcomeContainerConfig, fmt.Sprintf("the %s's container cannot run on %s: %s; is --bench-image a Tailgate bench image?", role, node, oneLine(end.Message))
		}
		return v1alpha1.OutcomeAgentFailed, fmt.Sprintf("the %s's agent on %s ended with exit code %d (%s) and without a message", role, node, end.ExitCode, end.Reason)
	}
	if p.Status.Reason != "" {
		return v1alpha1.OutcomeAdmissionRejected, fmt.Sprintf("the kubelet of %s refused the %s (%s): %s", node, role, p.Status.Reason, oneLine(p.Status.Message))
	}
	return v1alpha1.OutcomePodLost, fmt.Sprintf("the %s's pod failed on %s for an unknown reason", role, node)
}

// maxSaid is the maximum length, in bytes, of a foreign message inside one of ours.
const maxSaid = 400

// unallocated returns the extended resource that the kubelet could not allocate although the scheduler had counted it: the
// scheduler learns up to ten seconds later than the kubelet that a device plugin ended. Just after the end of the plugin, the
// kubelet only reports that it could not call it.
func unallocated(p *corev1.Pod) string {
	var asked []string
	for _, c := range p.Spec.Containers {
		for name := range c.Resources.Requests {
			if !strings.Contains(string(name), "/") {
				continue
			}
			if strings.Contains(p.Status.Message, string(name)) {
				return string(name)
			}
			asked = append(asked, string(name))
		}
	}
	if !strings.Contains(p.Status.Message, "rpc error") {
		return ""
	}
	slices.Sort(asked)
	return strings.Join(asked, " or ")
}

// oneLine shortens a foreign message to one line of at most maxSaid bytes.
func oneLine(s string) string { return text.OneLine(s, maxSaid) }
