package doctor

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// TroubleKind is the kind of reason why an inspect pod did not succeed.
type TroubleKind string

// The kinds of trouble.
const (
	// TroubleRefused means that the API server refuses the pod: rights, quotas, pod security.
	TroubleRefused TroubleKind = "Refused"
	// TroubleUnschedulable means that the node lacks something, according to the scheduler.
	TroubleUnschedulable TroubleKind = "Unschedulable"
	// TroubleImage means that the image cannot be pulled.
	TroubleImage TroubleKind = "Image"
	// TroubleContainer means that the container cannot be created or started.
	TroubleContainer TroubleKind = "Container"
	// TroubleNetwork means that Multus or a CNI plugin cannot set up a network.
	TroubleNetwork TroubleKind = "Network"
	// TroubleTopology means that the kubelet cannot assign CPUs and devices of one NUMA node.
	TroubleTopology TroubleKind = "Topology"
	// TroubleAdmission means that the kubelet refuses the pod for another reason.
	TroubleAdmission TroubleKind = "Admission"
	// TroubleAgent means that the agent failed, or that its output cannot be read.
	TroubleAgent TroubleKind = "Agent"
	// TroubleTimeout means that the pod takes too long for an unknown reason.
	TroubleTimeout TroubleKind = "Timeout"
)

// Trouble is the reason why an inspect pod did not succeed.
type Trouble struct {
	Kind TroubleKind
	// Said is the message of the cluster.
	Said string
	// Passing is true if the trouble often ends by itself: a caller should wait some more seconds.
	Passing bool
}

// TroubleOf returns the trouble of a pod, from its status and its warning events, the oldest first; nil if it has no trouble.
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

// failed returns the trouble of a failed pod.
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

// perCore matches the kubelet's words for a request that is no multiple of the CPUs of a core.
var perCore = regexp.MustCompile(`not multiple cpus per core = (\d{1,3})\b`)

// WholeCore returns how many CPUs a core has, if the kubelet rejected the pod because it gives only whole cores (option
// full-pcpus-only of its CPU manager); 0 for all other troubles.
func (t *Trouble) WholeCore() int {
	if t == nil || t.Kind != TroubleAdmission {
		return 0
	}
	if found := perCore.FindStringSubmatch(t.Said); found != nil {
		n, _ := strconv.Atoi(found[1]) // the pattern is a number
		return n
	}
	return 0
}

// maxSaid bounds the messages of other components, in bytes.
const maxSaid = 600

// words joins a reason and a message in one bounded line.
func words(reason, message string) string {
	return strings.TrimSuffix(text.Ends(strings.TrimPrefix(reason+": "+message, ": "), maxSaid), ":")
}
