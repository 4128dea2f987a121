package metrics

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

var (
	gatePassed = newGauge("tailgate_gate_passed",
		"1 while condition Passed of the gate is True for its spec as it is now and each of its nodes is Verified and ready; otherwise 0.", "gate")
	gateOperational = newGauge("tailgate_gate_operational",
		"1 while condition Operational of the gate is True for its spec as it is now; otherwise 0.", "gate")
	gateNodes = newGauge("tailgate_gate_nodes",
		"Nodes of the gate by state, as its status counts them.", "gate", "state")

	gateUnplaced = newGauge("tailgate_gate_unplaced_nodes",
		"Nodes of the gate that are due by the schedule or by a request and are not measured, because they or their peers have no room.", "gate")
	nodeVerified = newGauge("tailgate_node_verified",
		"1 while the node is in state Verified and ready; otherwise 0.", "gate", "node")
	nodeMarkFailing = newGauge("tailgate_node_mark_failing",
		"1 while the node does not have a mark (Condition, Label or Taint) as it should, because the API server refuses or drops it or another client changes it back; otherwise there is no series.",
		"gate", "node", "mark", "reason")
	nodeState = newGauge("tailgate_node_state",
		"1 for the state that the node is in; other states have no series.", "gate", "node", "state")
	nodeStateTime = newGauge("tailgate_node_state_timestamp_seconds",
		"Start of the node's current state.", "gate", "node")
	nodeMeasuredTime = newGauge("tailgate_node_measured_timestamp_seconds",
		"Time at which the outcome of the node's last benchmark was recorded.", "gate", "node")
	nodeAcceptedTime = newGauge("tailgate_node_accepted_timestamp_seconds",
		"Time of the node's last accepted result, the baseline of the next.", "gate", "node")
	nodeLatency = newGauge("tailgate_node_latency_seconds",
		"A percentile of the headline's cell of the node's last finished benchmark, whatever its outcome.",
		"gate", "node", "type", "percentile")
	nodeIdentity = newGauge("tailgate_node_identity_info",
		"Properties of the node that its gate checks; identity is a digest of all of them, which changes with an upgrade.",
		"gate", "node", "identity", "kernel", "kubelet", "os_image", "container_runtime", "driver", "firmware")
)

// states are the states of a node, in the order of NodeCounts.
var states = []v1alpha1.VerificationState{
	v1alpha1.VerificationVerified, v1alpha1.VerificationUnverified, v1alpha1.VerificationMeasuring,
	v1alpha1.VerificationFailed, v1alpha1.VerificationInconclusive, v1alpha1.VerificationAway,
}

func collectGates(ch chan<- prometheus.Metric, all objects) {
	namespaces := map[string]string{} // of gates' benchmarks
	held := map[string]bool{}         // A node is held back before the status of its gate shows it.
	for i := range all.verifications {
		if v := &all.verifications[i]; v.Status.State != v1alpha1.VerificationVerified && !v.Status.Record() {
			held[v.Spec.GateName] = true
		}
	}
	for i := range all.gates {
		g := &all.gates[i]
		namespaces[g.Name] = g.Spec.Namespace
		gatePassed.sendBool(ch, !held[g.Name] && isTrue(g.Status.Conditions, v1alpha1.ConditionPassed, g.Generation), g.Name)
		gateUnplaced.send(ch, float64(g.Status.Nodes.Unplaced), g.Name)
		gateOperational.sendBool(ch, isTrue(g.Status.Conditions, v1alpha1.ConditionOperational, g.Generation), g.Name)
		n := g.Status.Nodes
		for k, count := range []int32{n.Verified, n.Unverified, n.Measuring, n.Failed, n.Inconclusive, n.Away} {
			gateNodes.send(ch, float64(count), g.Name, string(states[k]))
		}
	}
	measured := map[string]*v1alpha1.LatencyBenchmark{} // by namespace/name
	for i := range all.benchmarks {
		if b := &all.benchmarks[i]; b.Labels[v1alpha1.LabelGate] != "" {
			measured[b.Namespace+"/"+b.Name] = b
		}
	}
	for i := range all.verifications {
		v := &all.verifications[i]
		if v.Name != v1alpha1.VerificationName(v.Spec.GateName, v.Spec.NodeName) {
			continue // of another owner; two verifications of one node would be duplicate series
		}
		for _, mark := range v.Status.MarkFailures { // also if a deleted gate cannot release it
			nodeMarkFailing.send(ch, 1, v.Spec.GateName, v.Spec.NodeName, string(mark.Mark), mark.Reason)
		}
		if v.Status.Record() {
			continue // there is no such node or no such gate
		}
		var last *v1alpha1.LatencyBenchmark
		if len(v.Status.History) > 0 {
			last = measured[namespaces[v.Spec.GateName]+"/"+v.Status.History[0].Benchmark]
		}
		collectNode(ch, v, last)
	}
}

// collectNode sends a node's series; last is its last finished benchmark, or nil.
func collectNode(ch chan<- prometheus.Metric, v *v1alpha1.LatencyVerification, last *v1alpha1.LatencyBenchmark) {
	gate, node, status := v.Spec.GateName, v.Spec.NodeName, &v.Status
	// A new verification has no state yet; an unknown state holds the node back.
	state := cmp.Or(status.State, v1alpha1.VerificationUnverified)
	nodeVerified.sendBool(ch, state == v1alpha1.VerificationVerified, gate, node)
	nodeState.send(ch, 1, gate, node, string(state))
	nodeStateTime.sendTime(ch, status.LastTransitionTime, gate, node)
	nodeMeasuredTime.sendTime(ch, status.LastMeasurementTime, gate, node)
	if status.Accepted != nil {
		nodeAcceptedTime.sendTime(ch, &status.Accepted.AcceptanceTime, gate, node)
	}
	if last != nil && len(last.Status.Results) > 0 {
		first := last.Status.Headline()
		for _, p := range v1alpha1.HeadlinePercentiles() {
			nodeLatency.sendSeconds(ch, first.Percentile(p), gate, node, string(first.LatencyType), string(p))
		}
	}
	if len(status.Identity) > 0 {
		found := map[string]string{}
		for _, line := range status.Evidence {
			found[line.Check] = line.Found
		}
		is := func(key v1alpha1.IdentityKey) string { return bounded(status.Identity[string(key)]) }
		digest, _ := result.Digest(status.Identity) // Strings can always be encoded.
		nodeIdentity.send(ch, 1, gate, node, digest[:8],
			is(v1alpha1.IdentityKernel), is(v1alpha1.IdentityKubelet), is(v1alpha1.IdentityOSImage), is(v1alpha1.IdentityContainerRuntime),
			bounded(found[v1alpha1.ProofDriver]), bounded(found[v1alpha1.ProofFirmware]))
	}
}

// isTrue reports whether a condition is True for a generation, which may be unprocessed.
func isTrue(conditions []metav1.Condition, conditionType string, generation int64) bool {
	c := meta.FindStatusCondition(conditions, conditionType)
	return c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == generation
}

// bounded returns a label value that fits a table. Prometheus refuses invalid UTF-8.
func bounded(value string) string { return text.Shorten(value, 64) }
