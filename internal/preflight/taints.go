package preflight

import (
	_ "embed"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

//go:embed taints.tsv
var owners string

// Passing returns the reason for a taint that the component removes that set it, or whose node goes away; empty if the component is
// unknown, so that only a user can remove the taint.
func Passing(key string) string {
	found := ""
	for line := range strings.Lines(owners) {
		pattern, owner, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		begin, isBegin := strings.CutSuffix(pattern, "*")
		end, isEnd := strings.CutPrefix(pattern, "*")
		if key == pattern || isBegin && strings.HasPrefix(key, begin) || isEnd && strings.HasSuffix(key, end) {
			found = owner
		}
	}
	return found
}

// UntoleratedTaint returns the first taint because of which the scheduler would not place pods with these tolerations on a node; nil
// if it would.
func UntoleratedTaint(n *corev1.Node, tolerations []corev1.Toleration) *corev1.Taint {
	// The node gets the taint shortly after it is cordoned.
	if n.Spec.Unschedulable && !tolerated(cordon, tolerations) {
		return new(cordon)
	}
	for _, t := range n.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && !tolerated(t, tolerations) {
			return &t
		}
	}
	return nil
}
