package gate

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
)

// clusterFaults are the outcomes of attempts that say nothing about the latency of a node: the cluster did not let the pods start, or
// removed them.
var clusterFaults = []string{
	v1alpha1.OutcomeEvicted, v1alpha1.OutcomeNodeLost, v1alpha1.OutcomePodLost, v1alpha1.OutcomePodRefused, v1alpha1.OutcomeNetworkRefused,
	v1alpha1.OutcomeStoreRefused, v1alpha1.OutcomeUnschedulable, v1alpha1.OutcomeImagePullFailed, v1alpha1.OutcomeUnexpectedAdmission,
	v1alpha1.OutcomeAdmissionRejected, v1alpha1.OutcomeDevicePluginUnavailable, v1alpha1.OutcomeStartTimeout,
}

// benchmarkFailed returns the step of a node whose benchmark failed: it is measured again, after a pause, if the cluster is the cause.
// A user who deletes pods can choose the results that are completed, so that a benchmark that already had results and lost
// a pod is repeated at most maxDiscarded times.
func benchmarkFailed(w *world) step {
	b := w.benchmark
	message := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSucceeded).Message
	fault := ""
	if n := len(b.Status.Attempts); n > 0 {
		fault = b.Status.Attempts[n-1].Outcome.Reason
	}
	setback := w.verification.Status.Setback
	chosen := fault == v1alpha1.OutcomePodLost && len(b.Status.Stored) > 0 && setback != nil && setback.Count >= maxDiscarded
	if !slices.Contains(clusterFaults, fault) || chosen {
		return inconclusive(v1alpha1.ReasonBenchmarkFailed, message)
	}
	return step{event: eventHeldUp, reason: v1alpha1.ReasonEnvironmentFailed, message: fmt.Sprintf(
		"LatencyBenchmark %s with peer %s failed because of the cluster: %s", b.Name, w.verification.Status.Benchmark.Peer, message)}
}

// heldUp returns why a benchmark does not start, or waits for another attempt; empty if it waits only for its turn, or runs.
func heldUp(b *v1alpha1.LatencyBenchmark) string {
	if b.Finished() {
		return ""
	}
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionAccepted); c != nil && c.Status == metav1.ConditionFalse && b.Status.Active == nil {
		return c.Reason + ": " + c.Message
	}
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSucceeded)
	if c == nil || slices.Contains([]string{v1alpha1.ReasonQueued, v1alpha1.ReasonStarting, v1alpha1.ReasonRunning, v1alpha1.ReasonEnding}, c.Reason) {
		return ""
	}
	return c.Reason + ": " + c.Message
}

// heldUpChanges passes the changes of a benchmark that change whether and why it is held up.
var heldUpChanges = controllers.Updates(func(before, after *v1alpha1.LatencyBenchmark) bool { return heldUp(before) != heldUp(after) })

// observeHeldUp reads from the cache which benchmarks of the gate are held up.
func (r *Gates) observeHeldUp(ctx context.Context, s *survey, measuring []v1alpha1.LatencyVerification) error {
	s.heldUp = map[string]string{}
	for i := range measuring {
		v := &measuring[i]
		if v.Spec.GateName != s.gate.Name || v.Status.Benchmark == nil {
			continue
		}
		b := &v1alpha1.LatencyBenchmark{}
		if err := r.Client.Get(ctx, client.ObjectKey{Namespace: s.gate.Spec.Namespace, Name: v.Status.Benchmark.Name}, b); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("getting LatencyBenchmark %s: %w", v.Status.Benchmark.Name, err)
		}
		if why := heldUp(b); why != "" {
			s.heldUp[v.Spec.NodeName] = why
		}
	}
	return nil
}
