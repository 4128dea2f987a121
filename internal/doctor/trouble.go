package doctor

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// TroubleKind is why an inspect pod did not come to its end.
type TroubleKind string

// The kinds of trouble.
const (
	// TroubleRefused is an API server that does not take the pod: rights, quotas, pod security.
	TroubleRefused TroubleKind = "Refused"
	// TroubleUnschedulable is a node that lacks something, by the scheduler's words.
	TroubleUnschedulable TroubleKind = "Unschedulable"
	// TroubleImage is an image that cannot be pulled.
	TroubleImage TroubleKind = "Image"
	// TroubleContainer is a container that cannot be made or started.
	TroubleContainer TroubleKind = "Container"
	// TroubleNetwork is a network that Multus or a CNI plugin cannot set up.
	TroubleNetwork TroubleKind = "Network"
	// TroubleTopology is a kubelet that cannot give CPUs and devices of one NUMA node.
	TroubleTopology TroubleKind = "Topology"
	// TroubleAdmission is a kubelet that refuses the pod for another reason.
	TroubleAdmission TroubleKind = "Admission"
	// TroubleAgent is an agent that failed, or whose words cannot be read.
	TroubleAgent TroubleKind = "Agent"
	// TroubleTimeout is a pod that takes too long for an unknown reason.
	TroubleTimeout TroubleKind = "Timeout"
)

// Trouble is why an inspect pod did not come to its end.
type Trouble struct {
	Kind TroubleKind
	// Said is what the cluster says of it.
	Said string
	// Passing is true of what often ends by itself: a caller that waits should wait some seconds more.
	Passing bool
}

// TroubleOf reads from a pod and its warning events, the oldest first, what keeps it from its end; nil when nothing does.
func TroubleOf(p *corev1.Pod, warnings []corev1.Event) *Trouble {
	if p.Status.Phase == corev1.PodFailed {
		return failed(p)
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Waiting == nil {
			continue
		}
		switch reason, said := c.State.Waiting.Reason, words(c.State.Waiting.Reason, c.State.Waiting.Message); {
		case pods.CannotPull(reason):
			return &Trouble{Kind: TroubleImage, Said: said}
		case pods.CannotRun(reason):
			return &Trouble{Kind: TroubleContainer, Said: said}
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return &Trouble{Kind: TroubleUnschedulable, Said: words("", c.Message), Passing: true}
		}
	}
	for _, e := range slices.Backward(warnings) {
		if pods.CannotAttach(e.Reason) {
			return &Trouble{Kind: TroubleNetwork, Said: words("", e.Message), Passing: true}
		}
	}
	return nil
}

// failed is what became of a pod that is over without success.
func failed(p *corev1.Pod) *Trouble {
	said := words(p.Status.Reason, p.Status.Message)
	switch p.Status.Reason {
	case "TopologyAffinityError":
		return &Trouble{Kind: TroubleTopology, Said: said}
	case "DeadlineExceeded":
		return &Trouble{Kind: TroubleTimeout, Said: said}
	case "":
	default:
		return &Trouble{Kind: TroubleAdmission, Said: said}
	}
	for _, c := range p.Status.ContainerStatuses {
		end := c.State.Terminated
		switch {
		case end == nil:
		case end.Reason == "StartError", end.Reason == "ContainerCannotRun":
			return &Trouble{Kind: TroubleContainer, Said: words(end.Reason, end.Message)}
		default:
			return &Trouble{Kind: TroubleAgent, Said: words(end.Reason, end.Message)}
		}
	}
	return &Trouble{Kind: TroubleAgent, Said: "the pod failed for an unknown reason"}
}

// maxSaid bounds what is kept of others' words, in bytes.
const maxSaid = 600

// words are a reason and a message in one bounded line.
func words(reason, message string) string {
	return strings.TrimSuffix(text.Ends(strings.TrimPrefix(reason+": "+message, ": "), maxSaid), ":")
}
