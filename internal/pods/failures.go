package pods

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

type Trouble struct {
	Outcome string
	// Said has the observation, and Remedy what to do; both are empty while nothing is wrong.
	Said, Remedy string
	Final        bool
}

func (t Trouble) Message() string {
	if t.Remedy == "" {
		return t.Said
	}
	return t.Said + "; " + t.Remedy
}

// Most errors of a pod's start pass: a device is being reset, a registry was restarted.

// StartTrouble reads why a pending pod does not start: its status first, then its warnings.
func StartTrouble(p *corev1.Pod, warnings []corev1.Event) Trouble {
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Waiting == nil {
			continue
		}
		switch reason := c.State.Waiting.Reason; reason {
		case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError",
			// These come from CRI-O, and the kubelet passes them on.
			"RegistryUnavailable", "SignatureValidationFailed":
			image, option := unpulled(p, c)
			remedy := "check " + option + " and the node's access to its registry"
			if strings.Contains(c.State.Waiting.Message, "no match for platform") {
				remedy = "build the image of " + option + " for the architecture of the node, too, or select other nodes (kubernetes.io/arch)"
			}
			said := reason
			if words := text.Ends(oneLine(c.State.Waiting.Message), maxSaid); words != "" {
				said += ": " + words
			}
			return troubled(v1alpha1.OutcomeImagePullFailed, remedy, "image %s cannot be pulled (%s)", image, said)
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return troubled(v1alpha1.OutcomeContainerConfig, "", "the container cannot be created (%s): %s", reason, oneLine(c.State.Waiting.Message))
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return unscheduled(p, c)
		}
	}
	for _, e := range slices.Backward(warnings) {
		switch e.Reason {
		case "FailedCreatePodSandBox", "NoNetworkFound":
			return NetworkTrouble(e, Node(p))
		case "FailedMount", "FailedAttachVolume":
			return troubled(v1alpha1.OutcomeContainerConfig, "", "its volumes cannot be mounted: %s", oneLine(e.Message))
		}
	}
	return Trouble{Outcome: v1alpha1.OutcomeStartTimeout}
}

// unscheduled explains why the scheduler has not placed a pod: not only room may be missing.
func unscheduled(p *corev1.Pod, c corev1.PodCondition) Trouble {
	if c.Reason == corev1.PodReasonSchedulingGated {
		gates := text.Of(p.Spec.SchedulingGates, func(g corev1.PodSchedulingGate) string { return g.Name })
		return troubled(v1alpha1.OutcomeUnschedulable, "a webhook of the cluster added them, for example of Kueue: let its owner admit the pod, or except the namespace",
			"the scheduler does not look at it, because it has the scheduling gates %s", strings.Join(gates, ", "))
	}
	remedy := unschedulable[slices.IndexFunc(unschedulable, func(u cause) bool { return strings.Contains(c.Message, u.said) })].remedy
	if c.Reason == corev1.PodReasonSchedulerError {
		remedy = "the scheduler tries again; look into its log"
	}
	return troubled(v1alpha1.OutcomeUnschedulable, remedy, "the scheduler cannot place it on %s: %s", Node(p), oneLine(c.Message))
}

// unschedulable are parts of the scheduler's messages; a reason of the pod's only node goes first.
var unschedulable = []cause{
	{"Insufficient", "free what the message names, or request less"},
	{"cannot allocate", "free the devices that it claims, or claim fewer"},
	{"untolerated taint", "tolerate the taint in spec.pods.tolerations, or wait until who set it removes it"},
	{"unschedulable", "the node is cordoned: uncordon it when its maintenance is over"},
	{"Too many pods", "the node has its most pods: remove some, or raise maxPods of its kubelet"},
	{"node affinity", "look whether the node still exists under its name"},
	{"", "change what the message names"},
}

// unpulled returns an image and its setting. Only the kubelet tells a volume's image from others.
func unpulled(p *corev1.Pod, c corev1.ContainerStatus) (image, option string) {
	image, option = c.Image, "the operator's --bench-image"
	ofVolume := "the operator's --sfnettest-image"
	if len(p.Spec.Containers) > 0 && slices.Equal(p.Spec.Containers[0].Command, []string{agentFolder + Agent}) {
		option, ofVolume = "spec.custom.image", option
	}
	for _, v := range p.Spec.Volumes {
		if v.Image == nil || c.Image != "" && strings.Contains(c.State.Waiting.Message, c.Image) {
			continue
		}
		if strings.Contains(c.State.Waiting.Message, v.Image.Reference) {
			return v.Image.Reference, ofVolume
		}
		image, option = image+" or "+v.Image.Reference, option+" and "+strings.TrimPrefix(ofVolume, "the operator's ")
	}
	return image, option
}

func troubled(outcome, remedy, format string, args ...any) Trouble {
	return Trouble{Outcome: outcome, Said: fmt.Sprintf(format, args...), Remedy: remedy}
}

type cause struct{ said, remedy string }

// missingFile matches the path of a file that a plugin did not find.
var missingFile = regexp.MustCompile(`(/[^\s:"']+)"?: (?:connect: )?no such file`)

// causes are errors of Multus and CNI plugins by part of the text, or of a missing path, in order.
var causes = []cause{
	{"DHCP daemon", "run the plugin dhcp as a daemon on the node, or give the network another ipam"},
	{"dhcp: failed to get netns", "let the daemon of the plugin dhcp see the node's /run/netns (a mount with HostToContainer propagation), or give the network another ipam"},
	{"multus.sock", "let the pod of Multus run on the node"},
	{"failed to lookup master", "set master in spec.config to an interface that the node has"},
	{"failed to find plugin", "put the plugin's binary into the nodes' /opt/cni/bin, or correct the type in spec.config"},
	{"file of multus", "let the pods of Multus on the node end well, so that they write their configuration and token again"},
	{"file of calico", "let the pod calico-node run on the node: it writes the files that its plugin reads"},
	{"file of whereabouts", "let the pods of whereabouts run on the node: they write the kubeconfig that its plugin reads"},
	{"file of physfn", "check that the VF still exists on the node, and restart the device plugin"},
	{"no such file", "find the component that writes the named file on the node, and restart its pod there"},
	{"already allocated", "wait until the pod that used the device is deleted; if no pod uses it, delete the network namespace that /var/lib/cni/sriov/pci/ADDRESS on the node names (ip netns delete)"},
	{"", "check spec.network and the CNI plugins of the node"},
}

// causeOf cuts out a thick Multus's request before an error, and its configuration after it.
func causeOf(message string) string {
	if _, cause, ok := strings.Cut(message, "ERRORED: "); ok {
		message = cause
	}
	cause, _, _ := strings.Cut(message, "': StdinData: ")
	return strings.TrimRight(cause, "\n ")
}

// NetworkTrouble classifies an error of Multus or a CNI plugin, which has only a text.
func NetworkTrouble(e corev1.Event, node string) Trouble {
	e.Message = causeOf(e.Message)
	said := text.Ends(e.Message, maxSaid)
	has := func(part string) bool { return strings.Contains(e.Message, part) }
	switch {
	case e.Reason == "NoNetworkFound", has("cannot find a network-attachment-definition"):
		t := troubled(v1alpha1.OutcomeNetworkMissing, "create the NetworkAttachmentDefinition, and check that Multus may read its namespace",
			"Multus on %s finds no such network: %s", node, said)
		t.Final = true
		return t
	case has("pci addr is required"), has(`or "pciBusID"`):
		t := troubled(v1alpha1.OutcomeDeviceMissing,
			"check that the NetworkAttachmentDefinition has annotation k8s.v1.cni.cncf.io/resourceName, and that Multus can read the kubelet's podresources socket",
			"the CNI plugin on %s received no device: %s", node, said)
		t.Final = true
		return t
	}
	missing := ""
	if found := missingFile.FindStringSubmatch(e.Message); found != nil {
		missing = found[1]
	}
	known := slices.IndexFunc(causes, func(c cause) bool {
		owner, ofFile := strings.CutPrefix(c.said, "file of ")
		return !ofFile && has(c.said) || ofFile && strings.Contains(missing, owner)
	})
	return troubled(v1alpha1.OutcomeNetworkFailed, causes[known].remedy, "its network cannot be set up on %s: %s", node, said)
}

// FailureOf classifies by the kubelet's reason, else the agent's message, else the container's end.
func FailureOf(p *corev1.Pod) Trouble {
	role := cmp.Or(p.Labels[v1alpha1.LabelRole], "inspect pod")
	node, said := Node(p), oneLine(p.Status.Message)
	switch p.Status.Reason {
	case "TopologyAffinityError":
		return troubled(v1alpha1.OutcomeTopologyAffinity, "free CPUs there, or use a device of another NUMA node",
			"the kubelet of %s cannot give the %s CPUs and device on one NUMA node (%s)", node, role, p.Status.Reason)
	case "SMTAlignmentError":
		return troubled(v1alpha1.OutcomeSMTAlignment, "set placement.cpus to a multiple of the CPUs of a core",
			"the kubelet of %s gives the %s whole cores only: %s", node, role, said)
	case "UnexpectedAdmissionError":
		if name := unallocated(p); name != "" {
			return troubled(v1alpha1.OutcomeDevicePluginUnavailable, "the attempt does not count, and the operator waits for the device plugin",
				"the kubelet of %s has no device of %s for the %s: %s", node, name, role, said)
		}
		return troubled(v1alpha1.OutcomeUnexpectedAdmission, "", "the kubelet of %s could not allocate what the scheduler had counted for the %s: %s", node, role, said)
	case "Evicted", "Preempting", "Preempted", "Shutdown", "NodeShutdown", "Terminated":
		return troubled(v1alpha1.OutcomeEvicted, "", "the %s was removed from %s (%s): %s", role, node, p.Status.Reason, said)
	case "NodeLost":
		return troubled(v1alpha1.OutcomeNodeLost, "", "node %s of the %s was lost", node, role)
	case "DeadlineExceeded":
		return troubled(v1alpha1.OutcomeDeadlineExceeded, "", "the %s ran into its pod's active deadline", role)
	}
	if end := Terminated(p); end != nil {
		if t, err := result.ParseTermination(end.Message); err == nil && result.OfAgent(t.Reason) {
			return troubled(t.Reason, "", "%s on %s: %s", role, node, oneLine(t.Message))
		}
		switch end.Reason {
		case "OOMKilled":
			return troubled(v1alpha1.OutcomeOOMKilled, "request more, or measure for a shorter time", "the %s used more than placement.memory", role)
		case "StartError", "ContainerCannotRun":
			return troubled(v1alpha1.OutcomeContainerConfig, "is --bench-image a Tailgate bench image?",
				"the %s's container cannot run on %s: %s", role, node, oneLine(end.Message))
		}
		return troubled(v1alpha1.OutcomeAgentFailed, "", "the %s's agent on %s ended with exit code %d (%s) and without a message", role, node, end.ExitCode, end.Reason)
	}
	if p.Status.Reason != "" {
		return troubled(v1alpha1.OutcomeAdmissionRejected, "", "the kubelet of %s refused the %s (%s): %s", node, role, p.Status.Reason, said)
	}
	return troubled(v1alpha1.OutcomePodLost, "", "the %s's pod failed on %s for an unknown reason", role, node)
}

func Terminated(p *corev1.Pod) *corev1.ContainerStateTerminated {
	if c := AgentOf(p); c != nil {
		return c.State.Terminated
	}
	return nil
}

// AgentOf returns the status of a pod's only container; nil before the kubelet has reported it.
func AgentOf(p *corev1.Pod) *corev1.ContainerStatus {
	for i := range p.Status.ContainerStatuses {
		if c := &p.Status.ContainerStatuses[i]; c.Name == Container {
			return c
		}
	}
	return nil
}

const maxSaid = 400 // bytes of a foreign message inside one of ours

// unallocated returns the resource that the kubelet lacks: the scheduler learns up to 10 s later
// that a device plugin ended. Just after, the kubelet only says that it could not call it.
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

func oneLine(s string) string { return text.OneLine(s, maxSaid) }
