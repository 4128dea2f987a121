package preflight

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// owners are the components that set a taint and remove it themselves, by the key or, with a * at its end, the beginning of the key,
// or with a * at its beginning, the end.
var owners = []struct{ key, owner string }{
	{corev1.TaintNodeNotReady, "the node is not ready"},
	{corev1.TaintNodeUnreachable, "the node does not respond"},
	{corev1.TaintNodeMemoryPressure, "the kubelet needs memory"},
	{corev1.TaintNodeDiskPressure, "the kubelet needs disk space"},
	{corev1.TaintNodePIDPressure, "the kubelet needs process IDs"},
	{corev1.TaintNodeNetworkUnavailable, "the network of the node is not set up"},
	{corev1.TaintNodeUnschedulable, "who cordoned the node uncordons it"},
	{v1alpha1.NodeTaintUnverified, "a LatencyGate holds the node until it is verified"},
	{"node.cloudprovider.kubernetes.io/uninitialized", "the cloud controller manager initializes the node"},
	{"node.cloudprovider.kubernetes.io/shutdown", "the cloud provider has shut the node down"},
	{"node.cluster.x-k8s.io/*", "Cluster API prepares the node"},
	{"ToBeDeletedByClusterAutoscaler", "the cluster autoscaler is about to delete the node"},
	{"startup-taint.cluster-autoscaler.kubernetes.io/*", "a component that the cluster autoscaler knows starts on the node"},
	{"ignore-taint.cluster-autoscaler.kubernetes.io/*", "a component that the cluster autoscaler knows starts on the node"},
	{"karpenter.sh/unregistered", "Karpenter registers the node"},
	{"karpenter.sh/disrupted", "Karpenter is about to remove the node"},
	{"karpenter.sh/disruption", "Karpenter is about to remove the node"},
	{"aws-node-termination-handler/*", "the node is about to be terminated"},
	{"medik8s.io/remediation", "medik8s repairs the node"},
	{"medik8s.io/drain", "medik8s maintains the node"},
	{"readiness.k8s.io/*", "the node readiness controller waits for conditions of the node"},
	{"*/agent-not-ready", "the component that set the taint starts its agent on the node"},
	{"node.cilium.io/agent-not-ready", "Cilium starts its agent on the node"},
}

// Passing returns the reason for a taint that the component removes that set it, or whose node goes away; empty if the component is
// unknown, so that only a user can remove the taint.
func Passing(key string) string {
	found := ""
	for _, o := range owners {
		begin, isBegin := strings.CutSuffix(o.key, "*")
		end, isEnd := strings.CutPrefix(o.key, "*")
		if key == o.key || isBegin && strings.HasPrefix(key, begin) || isEnd && strings.HasSuffix(key, end) {
			found = o.owner
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
