package gate

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// world is the input of decide: one node of one gate.
type world struct {
	// now is the time of the observation.
	now time.Time
	// gate and verification are the objects as they were read.
	gate         *v1alpha1.LatencyGate
	verification *v1alpha1.LatencyVerification
	// node is nil if it does not exist.
	node *corev1.Node
	// owner is the gate that owns the node: the oldest gate that selects it; nil if no gate does.
	owner *v1alpha1.LatencyGate
	// benchmark is the one in status.benchmark; nil if it does not exist, or if the benchmark of that name has another UID.
	benchmark *v1alpha1.LatencyBenchmark
	// edited is true if its spec has changed since it was created.
	edited bool
	// drift is the verdict on the benchmark's results in comparison with the first result of the epoch; nil while the benchmark
	// has not passed, or if the benchmark itself was compared with that result.
	drift *v1alpha1.Verdict
	// peerVerified is true if the benchmark's peer is verified now.
	peerVerified bool
	// otherPeer is true if the node could be measured with another peer.
	otherPeer bool
	// replaced is the name of a result with which the benchmark was compared, or must also be compared, if the benchmark
	// of that name is not the one that was accepted; empty if there is no such result.
	replaced string
	// named is the benchmark that annotation AnnotationAccept names; nil if there is none.
	named *v1alpha1.LatencyBenchmark
	// baselineTrouble describes a defect of the accepted or the first result; empty if there is none.
	baselineTrouble string
}

// step is the step that decide chose, and why.
type step struct {
	// event is what happened to the node.
	event nodeEvent
	// reason and message belong to the new state or, with eventNotAccepted and eventReleased, to a Kubernetes event.
	reason, message string
	// changed are the changes that made the node unverified, for eventChanged.
	changed []v1alpha1.IdentityChange
	// outcome is the outcome of the current benchmark; empty if it has none and does not count.
	outcome v1alpha1.VerdictOutcome
	// suspect is the peer with which the node failed, for eventOtherPeer.
	suspect string
	// again is when to look again if nothing happens; zero: only when something does.
	again time.Duration
}

const (
	// maxLost is the number of benchmarks of a verification that are created again after users deleted or edited them.
	maxLost = 2
	// patience is how long a benchmark may wait for resources that its nodes do not provide, for pods that cannot be removed, or
	// for its verdict, while other nodes wait for its slot.
	patience = 5 * time.Minute
	// queuePatience is how long it may wait for other benchmarks, each of which has its own limit.
	queuePatience = 30 * time.Minute
	// pluginPatience is how long it may wait for a device plugin that restarts: a container that exits repeatedly is started only every
	// 5 minutes.
	pluginPatience = 30 * time.Minute
	// cellAllowance and runAllowance exceed the time that the benchmark's own deadlines allow for each cell and for a run.
	cellAllowance, runAllowance = 30 * time.Second, 15 * time.Minute
)

// decide chooses the next step for a node. It is pure.
//
// Only a result that passed, or was accepted manually, leads to Verified. Decisions that depend on the time only hold a
// node back, except that a node that its gate does not select is released after spec.releaseAfter.
func decide(w *world) step {
	v := w.verification
	left := w.retainedFor()
	switch {
	case w.node == nil && (left <= 0 || v.Status.State == ""):
		return step{event: eventGone, message: fmt.Sprintf("node %s is gone", v.Spec.NodeName)}
	case w.node == nil && v.Status.Verified().Reason != v1alpha1.ReasonNodeDeleted:
		return step{event: eventAway, reason: v1alpha1.ReasonNodeDeleted, message: "the Node was deleted", again: left}
	case w.node == nil:
		return step{event: eventNothing, again: left}
	case w.lost() && left <= 0:
		return step{event: eventReleased, reason: v1alpha1.ReasonReleased, message: fmt.Sprintf(
			"LatencyGate %s has not selected node %s for %s (spec.releaseAfter)", w.gate.Name, v.Spec.NodeName, w.gate.Spec.ReleaseAfter.Duration)}
	}
	s := decideState(w)
	if w.lost() {
		s.again = controllers.Soonest(s.again, left)
	}
	return s
}

// lost reports whether the gate does not own the node now: no gate selects it, or another gate owns it.
func (w *world) lost() bool { return w.owner == nil || w.owner.Name != w.gate.Name }

// foreign reports whether the verification is of an earlier gate with the name of this one.
func (w *world) foreign() bool { return foreign(w.verification, w.gate) }

// foreign reports whether a verification is of another gate than the given one, of its name.
func foreign(v *v1alpha1.LatencyVerification, gate *v1alpha1.LatencyGate) bool {
	return v.Status.GateUID != "" && v.Status.GateUID != string(gate.UID)
}

// retainedFor returns how long a node that the gate lost is still retained: at most spec.releaseAfter, even if a clock went back. A
// Node that registered again is retained from then on.
func (w *world) retainedFor() time.Duration {
	whole := w.gate.Spec.ReleaseAfter.Duration
	if r := w.verification.Status.Retained; r != nil && (r.Reason != v1alpha1.ReasonNodeDeleted || w.node == nil) {
		return min(whole, whole-w.now.Sub(r.StartTime.Time))
	}
	return whole
}

// keepsFail reports whether a requested deletion of the verification must wait: the node has not passed since it was compared with an
// accepted result, which would be forgotten.
func (w *world) keepsFail() bool {
	v := w.verification
	return w.gate != nil && w.gate.DeletionTimestamp.IsZero() && w.node != nil && !w.lost() && v.Status.Accepted != nil && !w.foreign() &&
		(v.Status.State != v1alpha1.VerificationVerified || identity.NotReady(w.node) != "" || w.changed())
}

// changed reports whether the node, verified or not, differs from the one in the status.
func (w *world) changed() bool {
	current, _ := w.present()
	return w.verification.Status.NodeUID != string(w.node.UID) || len(identity.Changes(w.verification.Status.Identity, current)) > 0
}

// decideState chooses the next step of a node that exists.
func decideState(w *world) step {
	v := w.verification
	switch {
	case v.Status.State == "":
		return step{event: eventChanged, reason: v1alpha1.ReasonNewNode, message: "the node is new to the gate"}
	case v.Status.NodeUID != string(w.node.UID):
		return w.recreated()
	case w.foreign():
		return step{event: eventAdopted, reason: v1alpha1.ReasonGateReplaced, message: "the gate was deleted and created again; the accepted results are kept"}
	}
	current, absent := w.present()
	found := identity.Changes(v.Status.Identity, current)
	if v.Status.State == v1alpha1.VerificationUnverified || v.Status.State == v1alpha1.VerificationMeasuring {
		found = slices.DeleteFunc(found, identity.FilledIn)
	}
	s := step{event: eventNothing}
	switch name, accepts := v.Annotations[v1alpha1.AnnotationAccept]; {
	case len(found) > 0:
		s = changed(w, current, found)
	case accepts:
		s = accept(w, name, current)
	case metav1.HasAnnotation(v.ObjectMeta, v1alpha1.AnnotationVerify):
		s = step{event: eventChanged, reason: v1alpha1.ReasonVerifyRequested, message: "a user requested it: annotation " + v1alpha1.AnnotationVerify}
	case v.Status.State == v1alpha1.VerificationMeasuring:
		s = measuring(w)
	}
	for _, key := range absent {
		s.again = controllers.Soonest(s.again, key.EndTime.Sub(w.now))
	}
	return s
}

// recreated returns the step of a node whose Node was deleted and created again. Only a machine that is known to be another one has
// nothing to do with the results: otherwise a Fail would be forgotten with the Node object.
func (w *world) recreated() step {
	was, is := w.verification.Status.SystemUUID, w.node.Status.NodeInfo.SystemUUID
	s := step{event: eventReturned, reason: v1alpha1.ReasonNodeReplaced, message: "the Node was deleted and created again"}
	switch {
	case was != "" && is != "" && was != is:
		s.event, s.message = eventReplaced, s.message+fmt.Sprintf(" for another machine: its system UUID was %q and is %q", was, text.Shorten(is, 64))
	case w.verification.Status.Accepted != nil:
		s.message += "; the accepted results of its machine are kept"
	}
	return s
}

// changed returns the step of a node whose identity changed. It reports the difference from the accepted identity, which may have
// arisen in several steps.
func changed(w *world, current map[string]string, found []v1alpha1.IdentityChange) step {
	if accepted := w.verification.Status.Accepted; accepted != nil {
		if all := identity.Changes(accepted.Identity, current); len(all) > 0 {
			found = all
		}
	}
	return step{event: eventChanged, reason: v1alpha1.ReasonIdentityChanged, message: identity.Sentence(found), changed: found}
}

// accept returns the step for a result that a user wants to accept.
func accept(w *world, name string, current map[string]string) step {
	refuse := func(format string, args ...any) step {
		return step{event: eventNotAccepted, reason: v1alpha1.ReasonAcceptRefused, message: fmt.Sprintf(format, args...)}
	}
	result := find(w.verification.Status.History, name)
	digest, err := controllers.Digest(current)
	switch {
	case err != nil:
		return refuse("%v", err)
	case result == nil:
		return refuse("%q is not among the benchmarks of status.history: only a finished result of this node can be accepted", text.Shorten(name, 64))
	case w.named == nil || !metav1.IsControlledBy(w.named, w.verification):
		return refuse("LatencyBenchmark %s does not exist any more", name)
	case !meta.IsStatusConditionTrue(w.named.Status.Conditions, v1alpha1.ConditionSucceeded):
		return refuse("LatencyBenchmark %s is not complete: only a complete result can be accepted", name)
	case result.IdentitySHA256 != digest:
		return refuse("LatencyBenchmark %s measured the node before it changed; request a new measurement: annotation %s", name, v1alpha1.AnnotationVerify)
	}
	return step{event: eventAccepted, reason: v1alpha1.ReasonAcceptedByHand, message: fmt.Sprintf("%s was accepted manually, with outcome %s", name, result.Outcome)}
}

// find returns the entry of a benchmark in a history; nil if there is none.
func find(history []v1alpha1.VerificationResult, name string) *v1alpha1.VerificationResult {
	if i := slices.IndexFunc(history, func(r v1alpha1.VerificationResult) bool { return r.Benchmark == name }); i >= 0 {
		return &history[i]
	}
	return nil
}

// measuring returns the step of a node in state Measuring.
func measuring(w *world) step {
	b, current := w.benchmark, w.verification.Status.Benchmark
	switch {
	case current == nil, b == nil, string(b.UID) != current.UID, !b.DeletionTimestamp.IsZero():
		return gone(w, v1alpha1.ReasonBenchmarkDeleted, "a user deleted the benchmark that measured the node")
	case w.edited:
		return gone(w, v1alpha1.ReasonBenchmarkEdited, "a user edited or suspended the benchmark that measured the node; edit or suspend the gate instead")
	case !b.Finished():
		return unfinished(w)
	case meta.IsStatusConditionFalse(b.Status.Conditions, v1alpha1.ConditionSucceeded):
		return benchmarkFailed(w)
	case b.Spec.Criteria == nil:
		return step{
			event: eventUndecided, outcome: v1alpha1.VerdictInconclusive, reason: v1alpha1.ReasonNothingToCompare,
			message: fmt.Sprintf("there is no accepted result to compare with, and no rule with maxLatency, maxMessages or minBitsPerSecond; check LatencyBenchmark %s and accept it: kubectl annotate latencyverifications.tailgate.dev %s %s=%s",
				b.Name, w.verification.Name, v1alpha1.AnnotationAccept, b.Name),
		}
	}
	passed := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionPassed)
	if passed == nil || passed.ObservedGeneration != b.Generation || passed.Reason == v1alpha1.ReasonNotJudged {
		return waits(w, progress(w), patience, v1alpha1.ReasonNoProgress, "it is finished without a verdict")
	}
	switch {
	case passed.Status == metav1.ConditionTrue && w.replaced != "":
		return inconclusive(w, v1alpha1.ReasonBaselineMissing, fmt.Sprintf("LatencyBenchmark %s, with which it was compared, is not the one that was accepted; accept another result: annotation %s",
			w.replaced, v1alpha1.AnnotationAccept))
	case passed.Status == metav1.ConditionTrue:
		return drift(w, passed.Message)
	case passed.Status == metav1.ConditionFalse:
		return failed(w, v1alpha1.ReasonFail, passed.Message)
	default:
		return inconclusive(w, passed.Reason, passed.Message)
	}
}

// unfinished returns the step of a node whose benchmark waits or measures. A benchmark without progress is abandoned after a
// while, because other nodes wait for its slot.
func unfinished(w *world) step {
	b := w.benchmark
	message := "its status has no condition yet"
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSucceeded); c != nil {
		message = fmt.Sprintf("%s: %s", c.Reason, c.Message)
	}
	accepted := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionAccepted)
	active := b.Status.Active
	switch {
	case active != nil && active.Outcome == nil:
		return waits(w, progress(w), runPatience(b.Spec), v1alpha1.ReasonNoProgress, message)
	case active != nil:
		return waits(w, progress(w), patience, v1alpha1.ReasonNoProgress, message)
	case accepted != nil && accepted.Status == metav1.ConditionFalse:
		limit := patience
		if accepted.Reason == v1alpha1.ReasonDevicePluginUnavailable { // for which the benchmark itself waits as long
			limit = pluginPatience
		}
		return waits(w, accepted.LastTransitionTime.Time, limit, v1alpha1.ReasonNotAccepted, accepted.Reason+": "+accepted.Message)
	case accepted != nil:
		return waits(w, progress(w), queuePatience, v1alpha1.ReasonNoProgress, message)
	}
	return waits(w, progress(w), patience, v1alpha1.ReasonNoProgress, message)
}

// progress returns when a part of the node's benchmark last started or ended.
func progress(w *world) time.Time {
	last := w.verification.Status.Benchmark.StartTime.Time
	note := func(t time.Time) {
		if t.After(last) {
			last = t
		}
	}
	status := w.benchmark.Status
	if a := status.Active; a != nil {
		note(a.StartTime.Time)
		if a.Outcome != nil {
			note(a.Outcome.CompletionTime.Time)
		}
	}
	if n := len(status.Attempts); n > 0 {
		note(status.Attempts[n-1].Outcome.CompletionTime.Time)
	}
	if status.CompletionTime != nil {
		note(status.CompletionTime.Time)
	}
	return last
}

// runPatience returns how long one run may take. The benchmark's own deadlines are shorter; this limit is for a benchmark that no
// manager reconciles.
func runPatience(spec v1alpha1.LatencyBenchmarkSpec) time.Duration {
	var longest time.Duration
	for _, v := range plan.Variants(spec) {
		cells := plan.Cells(spec, v)
		longest = max(longest, 2*plan.MeasuringTime(cells)+time.Duration(len(cells))*cellAllowance)
	}
	return longest + runAllowance
}

// waits returns the step of a node whose benchmark has waited since a time and may wait no longer than limit.
func waits(w *world, since time.Time, limit time.Duration, reason, message string) step {
	if left := limit - w.now.Sub(since); left > 0 {
		return step{event: eventNothing, again: min(left, limit)}
	}
	// It has no result that could be judged, so that it has no outcome.
	return step{event: eventHeldUp, reason: reason, message: fmt.Sprintf("LatencyBenchmark %s with peer %s was abandoned after %s without progress (%s)",
		w.benchmark.Name, w.verification.Status.Benchmark.Peer, limit, message)}
}

// drift returns the step for a result that passed: it must also pass in comparison with the first result of the epoch.
func drift(w *world, message string) step {
	first := w.verification.Status.First
	switch {
	case w.drift == nil || w.drift.Outcome == v1alpha1.VerdictPass:
		return step{event: eventPassed, outcome: v1alpha1.VerdictPass, reason: v1alpha1.ReasonPassed, message: message}
	case w.drift.Outcome == v1alpha1.VerdictFail:
		return failed(w, v1alpha1.ReasonDrifted, fmt.Sprintf("small regressions have added up since %s, the first result of this epoch: %s", first.Benchmark, w.drift.Message))
	default:
		return inconclusive(w, v1alpha1.ReasonDriftUnknown, fmt.Sprintf("it passed against the last accepted result, but not against %s, the first result of this epoch: %s", first.Benchmark, w.drift.Message))
	}
}

// failed returns the step for a result that failed. If the peer is not verified itself, the result does not show which node is slow.
func failed(w *world, reason, message string) step {
	current, suspect := w.verification.Status.Benchmark, w.verification.Status.SuspectPeer
	trusted := current.PeerVerified && w.peerVerified
	switch {
	case trusted:
		message = fmt.Sprintf("with peer %s: %s", current.Peer, message)
	case suspect != "":
		message = fmt.Sprintf("with peer %s, as with %s: %s", current.Peer, suspect, message)
	case w.otherPeer:
		return step{
			event: eventOtherPeer, outcome: v1alpha1.VerdictFail, reason: v1alpha1.ReasonSecondPeer, suspect: current.Peer,
			message: fmt.Sprintf("it failed with peer %s, which is not verified itself; a measurement with another peer will show which of them is slow: %s", current.Peer, message),
		}
	default:
		message = fmt.Sprintf("with peer %s, which is not verified itself, and there is no other: %s", current.Peer, message)
	}
	return step{event: eventFailed, outcome: v1alpha1.VerdictFail, reason: reason, message: message}
}

// inconclusive returns the step for a result from which nothing can be concluded.
func inconclusive(w *world, reason, message string) step {
	on := w.gate.Spec.OnInconclusive
	if on.Action == v1alpha1.InconclusiveRetry && w.verification.Status.Retried < max(1, on.Retries) {
		return step{event: eventRetry, outcome: v1alpha1.VerdictInconclusive, reason: v1alpha1.ReasonRetry, message: fmt.Sprintf("measuring again, because the result is inconclusive (%s): %s", reason, message)}
	}
	return step{event: eventUndecided, outcome: v1alpha1.VerdictInconclusive, reason: reason, message: message}
}

// gone returns the step for a benchmark that a user deleted or changed.
func gone(w *world, reason, message string) step {
	if w.verification.Status.Lost < maxLost {
		return step{event: eventLost, reason: reason, message: message + "; it is measured again"}
	}
	return step{event: eventUndecided, reason: reason, message: message + ", repeatedly; request a new measurement when that has stopped: annotation " + v1alpha1.AnnotationVerify}
}
