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

// world is everything that decide looks at: one node of one gate.
type world struct {
	// now is the time of the observation.
	now time.Time
	// gate and verification as they were got.
	gate         *v1alpha1.LatencyGate
	verification *v1alpha1.LatencyVerification
	// node is nil when it does not exist.
	node *corev1.Node
	// owner is the gate that has the node: the oldest that selects it; nil when none does.
	owner *v1alpha1.LatencyGate
	// benchmark is status.benchmark's, whichever client created it; nil when there is none of that name.
	benchmark *v1alpha1.LatencyBenchmark
	// edited is true when its spec is not the one with which it was made.
	edited bool
	// drift is the verdict on the benchmark's results against the first of the epoch; nil while the benchmark has not
	// passed, or when that is what it was compared with.
	drift *v1alpha1.Verdict
	// peerVerified says whether the benchmark's peer is verified now.
	peerVerified bool
	// otherPeer says whether the node could be measured with yet another peer.
	otherPeer bool
	// replaced is the result with which the benchmark was compared, or with which it must be compared too, if the benchmark
	// of that name is not the one that was accepted; empty when all are.
	replaced string
	// named is the benchmark that annotation AnnotationAccept names; nil when there is none.
	named *v1alpha1.LatencyBenchmark
	// baselineTrouble is what is wrong with the stored results of the accepted and the first result.
	baselineTrouble string
}

// The steps that decide may choose.
const (
	stepForget   = "forget"   // the node is gone, or is another one that the gate does not have
	stepRelease  = "release"  // the gate has not selected the node for as long as it was retained
	stepKeep     = "keep"     // nothing has happened
	stepUnverify = "unverify" // a new verification begins: the node is held back at once
	stepRepeat   = "repeat"   // the same verification continues with another benchmark
	stepConclude = "conclude" // it is over
	stepAccept   = "accept"   // a user accepted a result
	stepRefuse   = "refuse"   // and that cannot be
)

// step is what decide chose, and why.
type step struct {
	kind string
	// reason and message are those of the new state, or, with stepRefuse, of an event.
	reason, message string
	// changed is what made the node unverified, for stepUnverify.
	changed []v1alpha1.IdentityChange
	// state that the verification ends in, for stepConclude.
	state v1alpha1.VerificationState
	// outcome of the current benchmark, for stepConclude and stepRepeat; empty when it has none and does not count.
	outcome v1alpha1.VerdictOutcome
	// suspect is the peer with which the node failed, for stepRepeat with ReasonSecondPeer.
	suspect string
	// again is when to look again if nothing happens; zero: only when something does.
	again time.Duration
}

const (
	// maxLost is how many benchmarks in a row are made again that users delete or edit.
	maxLost = 2
	// patience is how long a benchmark may wait for what its nodes do not give, for pods that do not go, or for its verdict,
	// and keep other nodes waiting meanwhile.
	patience = 5 * time.Minute
	// queuePatience is how long it may wait for other benchmarks, of which each has a bound of its own.
	queuePatience = 30 * time.Minute
	// cellAllowance and runAllowance are beyond what the benchmark's own deadlines allow a run, and each of its cells.
	cellAllowance, runAllowance = 30 * time.Second, 15 * time.Minute
)

// decide chooses the next step for a node. It is pure.
//
// Nothing but a result that passed, or was accepted manually, leads to Verified. What depends on the time only ever holds a
// node back, except that a node which its gate does not select is released after spec.releaseAfter.
func decide(w *world) step {
	v := w.verification
	if w.node == nil || w.lost() && v.Status.NodeUID != "" && v.Status.NodeUID != string(w.node.UID) {
		return step{kind: stepForget, message: fmt.Sprintf("node %s is gone", v.Spec.NodeName)}
	}
	left := w.retainedFor()
	if w.lost() && left <= 0 {
		return step{kind: stepRelease, reason: v1alpha1.ReasonReleased, message: fmt.Sprintf(
			"LatencyGate %s has not selected node %s for %s (spec.releaseAfter)", w.gate.Name, v.Spec.NodeName, w.gate.Spec.ReleaseAfter.Duration)}
	}
	s := decideState(w)
	if w.lost() {
		s.again = controllers.Soonest(s.again, left)
	}
	return s
}

// lost says whether the node is not the gate's now: no gate selects it, or another one has it.
func (w *world) lost() bool { return w.owner == nil || w.owner.Name != w.gate.Name }

// retainedFor is how long a node that the gate lost is still retained. Clocks that go back make it no longer than it was.
func (w *world) retainedFor() time.Duration {
	whole := w.gate.Spec.ReleaseAfter.Duration
	if r := w.verification.Status.Retained; r != nil {
		return min(whole, whole-w.now.Sub(r.StartTime.Time))
	}
	return whole
}

// decideState chooses the next step of a node that there is.
func decideState(w *world) step {
	v := w.verification
	switch {
	case v.Status.State == "":
		return step{kind: stepUnverify, reason: v1alpha1.ReasonNewNode, message: "the node is new to the gate"}
	case v.Status.NodeUID != string(w.node.UID):
		return step{kind: stepUnverify, reason: v1alpha1.ReasonNodeReplaced, message: "the Node was deleted and created again"}
	}
	current := identity.KeysOf(w.gate).Of(w.node)
	if found := identity.Changes(v.Status.Identity, current); len(found) > 0 {
		return changed(w, current, found)
	}
	if name, ok := v.Annotations[v1alpha1.AnnotationAccept]; ok {
		return accept(w, name, current)
	}
	if _, ok := v.Annotations[v1alpha1.AnnotationVerify]; ok {
		return step{kind: stepUnverify, reason: v1alpha1.ReasonVerifyRequested, message: "a user requested it: annotation " + v1alpha1.AnnotationVerify}
	}
	if v.Status.State == v1alpha1.VerificationMeasuring {
		return measuring(w)
	}
	return step{kind: stepKeep}
}

// changed is for a node that is not what it was. It reports the difference from what was accepted, which may have
// come about in several steps.
func changed(w *world, current map[string]string, found []v1alpha1.IdentityChange) step {
	if accepted := w.verification.Status.Accepted; accepted != nil {
		if all := identity.Changes(accepted.Identity, current); len(all) > 0 {
			found = all
		}
	}
	return step{kind: stepUnverify, reason: v1alpha1.ReasonIdentityChanged, message: identity.Sentence(found), changed: found}
}

// accept is for a result that a user wants to have accepted.
func accept(w *world, name string, current map[string]string) step {
	refuse := func(format string, args ...any) step {
		return step{kind: stepRefuse, reason: v1alpha1.ReasonAcceptRefused, message: fmt.Sprintf(format, args...)}
	}
	result := find(w.verification.Status.History, name)
	digest, err := digestOf(current)
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
	return step{kind: stepAccept, reason: v1alpha1.ReasonAcceptedByHand, message: fmt.Sprintf("%s was accepted manually, with outcome %s", name, result.Outcome)}
}

// find finds a benchmark in a history; nil when it is not there.
func find(history []v1alpha1.VerificationResult, name string) *v1alpha1.VerificationResult {
	if i := slices.IndexFunc(history, func(r v1alpha1.VerificationResult) bool { return r.Benchmark == name }); i >= 0 {
		return &history[i]
	}
	return nil
}

// measuring is for a node that has a benchmark.
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
		return inconclusive(w, v1alpha1.ReasonBenchmarkFailed, meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSucceeded).Message)
	case b.Spec.Criteria == nil:
		return step{
			kind: stepConclude, state: v1alpha1.VerificationInconclusive, outcome: v1alpha1.VerdictInconclusive, reason: v1alpha1.ReasonNothingToCompare,
			message: fmt.Sprintf("there is no accepted result to compare with, and no rule with maxLatency, maxMessages or minBitsPerSecond; check LatencyBenchmark %s and accept it: kubectl annotate lver %s %s=%s",
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

// unfinished is for a benchmark that waits or measures. One of which nothing is measured is given up after a while: others
// wait for its slot.
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
		return waits(w, accepted.LastTransitionTime.Time, patience, v1alpha1.ReasonNotAccepted, accepted.Reason+": "+accepted.Message)
	case accepted != nil:
		return waits(w, progress(w), queuePatience, v1alpha1.ReasonNoProgress, message)
	}
	return waits(w, progress(w), patience, v1alpha1.ReasonNoProgress, message)
}

// progress is when something of the node's benchmark was last begun or ended.
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

// runPatience is how long one run may take. The benchmark's own deadlines are shorter; it is for one that is not looked
// after.
func runPatience(spec v1alpha1.LatencyBenchmarkSpec) time.Duration {
	var longest time.Duration
	for _, v := range plan.Variants(spec) {
		cells := plan.Cells(spec, v)
		longest = max(longest, 2*plan.MeasuringTime(cells)+time.Duration(len(cells))*cellAllowance)
	}
	return longest + runAllowance
}

// waits is for a benchmark that has waited since a time, for something that it may wait for no longer than limit.
func waits(w *world, since time.Time, limit time.Duration, reason, message string) step {
	if left := limit - w.now.Sub(since); left > 0 {
		return step{kind: stepKeep, again: min(left, limit)}
	}
	// It has measured nothing that could be looked at, so that it has no outcome.
	return step{kind: stepRepeat, reason: reason, message: fmt.Sprintf("LatencyBenchmark %s with peer %s was abandoned after %s without progress (%s)",
		w.benchmark.Name, w.verification.Status.Benchmark.Peer, limit, message)}
}

// drift is for a result that passed: it must hold its rules against the first of the epoch, too.
func drift(w *world, message string) step {
	first := w.verification.Status.First
	switch {
	case w.drift == nil || w.drift.Outcome == v1alpha1.VerdictPass:
		return step{kind: stepConclude, state: v1alpha1.VerificationVerified, outcome: v1alpha1.VerdictPass, reason: v1alpha1.ReasonPassed, message: message}
	case w.drift.Outcome == v1alpha1.VerdictFail:
		return failed(w, v1alpha1.ReasonDrifted, fmt.Sprintf("small regressions have added up since %s, the first result of this epoch: %s", first.Benchmark, w.drift.Message))
	default:
		return inconclusive(w, v1alpha1.ReasonDriftUnknown, fmt.Sprintf("it passed against the last accepted result, but not against %s, the first result of this epoch: %s", first.Benchmark, w.drift.Message))
	}
}

// failed is for a result that failed. With a peer that is not verified itself it says nothing of the node yet.
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
			kind: stepRepeat, outcome: v1alpha1.VerdictFail, reason: v1alpha1.ReasonSecondPeer, suspect: current.Peer,
			message: fmt.Sprintf("it failed with peer %s, which is not verified itself; a measurement with another peer will show which of them is slow: %s", current.Peer, message),
		}
	default:
		message = fmt.Sprintf("with peer %s, which is not verified itself, and there is no other: %s", current.Peer, message)
	}
	return step{kind: stepConclude, state: v1alpha1.VerificationFailed, outcome: v1alpha1.VerdictFail, reason: reason, message: message}
}

// inconclusive is for a result from which nothing can be concluded.
func inconclusive(w *world, reason, message string) step {
	on := w.gate.Spec.OnInconclusive
	if on.Action == v1alpha1.InconclusiveRetry && w.verification.Status.Retried < max(1, on.Retries) {
		return step{kind: stepRepeat, outcome: v1alpha1.VerdictInconclusive, reason: v1alpha1.ReasonRetry, message: fmt.Sprintf("measuring again, because the result is inconclusive (%s): %s", reason, message)}
	}
	return step{kind: stepConclude, state: v1alpha1.VerificationInconclusive, outcome: v1alpha1.VerdictInconclusive, reason: reason, message: message}
}

// gone is for a benchmark that a user deleted or changed.
func gone(w *world, reason, message string) step {
	if w.verification.Status.Lost < maxLost {
		return step{kind: stepRepeat, reason: reason, message: message + "; it is measured again"}
	}
	return step{kind: stepConclude, state: v1alpha1.VerificationInconclusive, reason: reason, message: message + ", repeatedly; request a new measurement when that has stopped: annotation " + v1alpha1.AnnotationVerify}
}
