package pods

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// TestUnscheduled holds each remedy against the condition that the scheduler wrote, in the words of Kubernetes 1.36.
func TestUnscheduled(t *testing.T) {
	for name, tt := range map[string]struct {
		reason, message string
		gates           []string
		want, never     string
	}{
		"gates of Kueue": {
			corev1.PodReasonSchedulingGated, "Scheduling is blocked due to non-empty scheduling gates", []string{"kueue.x-k8s.io/admission", "example.com/quota"},
			"the scheduling gates kueue.x-k8s.io/admission, example.com/quota; a webhook of the cluster added them", "free",
		},
		"an error of the scheduler": {corev1.PodReasonSchedulerError, "volume scheduling: etcdserver: request timed out", nil, "the scheduler tries again", "free"},
		"no device": {
			corev1.PodReasonUnschedulable, "0/3 nodes are available: 1 Insufficient amd.com/sf_vf, 2 node(s) didn't match Pod's node affinity/selector.", nil,
			"free what the message names, or request less", "exists",
		},
		"a taint": {
			corev1.PodReasonUnschedulable, "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint {dedicated: trading}.", nil,
			"tolerate the taint", "free",
		},
		"cordoned": {
			corev1.PodReasonUnschedulable, "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) were unschedulable.", nil, "uncordon", "free",
		},
		"full":   {corev1.PodReasonUnschedulable, "0/2 nodes are available: 1 Too many pods, 1 node(s) didn't match Pod's node affinity/selector.", nil, "maxPods", "free"},
		"claims": {corev1.PodReasonUnschedulable, "0/2 nodes are available: 1 cannot allocate all claims, 1 node(s) didn't match Pod's node affinity/selector.", nil, "claim fewer", "cordon"},
		"gone":   {corev1.PodReasonUnschedulable, "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.", nil, "still exists", "free"},
		"others": {corev1.PodReasonUnschedulable, `0/1 nodes are available: persistentvolumeclaim "x" not found.`, nil, "change what the message names", "free"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &corev1.Pod{}
			for _, g := range tt.gates {
				p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: g})
			}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: tt.reason, Message: tt.message}}
			got := StartTrouble(p, nil)
			if got.Outcome != v1alpha1.OutcomeUnschedulable || !strings.Contains(got.Message(), tt.want) || strings.Contains(got.Remedy, tt.never) {
				t.Errorf("%s: %s", got.Outcome, got.Message())
			}
		})
	}
}
