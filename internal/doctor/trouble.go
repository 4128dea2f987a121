package doctor

import (
	"regexp"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
)

// TroubleOf returns the reason why an inspect pod did not succeed, from its status and its warning events, the oldest first; nil
// if there is none.
func TroubleOf(p *corev1.Pod, warnings []corev1.Event) *pods.Trouble {
	var t pods.Trouble
	switch p.Status.Phase {
	case corev1.PodFailed:
		t = pods.FailureOf(p)
	case corev1.PodPending:
		t = pods.StartTrouble(p, warnings)
	}
	if t.Said == "" {
		return nil
	}
	return &t
}

// Passing reports whether a trouble often ends by itself: a caller should wait some more seconds.
func Passing(t *pods.Trouble) bool {
	return t.Outcome == v1alpha1.OutcomeUnschedulable || t.Outcome == v1alpha1.OutcomeNetworkFailed
}

// unclear reports whether a trouble says nothing about the node.
func unclear(t *pods.Trouble) bool {
	return slices.Contains([]string{
		v1alpha1.OutcomePodRefused, v1alpha1.OutcomeStartTimeout, v1alpha1.OutcomeDeadlineExceeded, v1alpha1.OutcomeEvicted,
		v1alpha1.OutcomeAgentFailed, v1alpha1.OutcomePodLost,
	}, t.Outcome)
}

// perCore matches the kubelet's words for a request that is no multiple of the CPUs of a core.
var perCore = regexp.MustCompile(`not multiple cpus per core = (\d{1,3})\b`)

// WholeCore returns how many CPUs a core has, if the kubelet rejected the pod because it gives only whole cores (option
// full-pcpus-only of its CPU manager); 0 for all other troubles.
func WholeCore(t *pods.Trouble) int {
	if t == nil || t.Outcome != v1alpha1.OutcomeSMTAlignment {
		return 0
	}
	if found := perCore.FindStringSubmatch(t.Said); found != nil {
		n, _ := strconv.Atoi(found[1]) // the pattern is a number
		return n
	}
	return 0
}
