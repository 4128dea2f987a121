package gate

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
)

// Everything that changes the status of a LatencyVerification is here, and pure: next has the steps that decide chose,
// begun, due and refused have what the gate does with a node.

// next is the status after a step.
func (w *world) next(s step) (v1alpha1.LatencyVerificationStatus, error) {
	status := *w.verification.Status.DeepCopy()
	status.BaselineTrouble, status.Retained = w.baselineTrouble, w.retention()
	switch s.kind {
	case stepKeep, stepRefuse:
		if s.kind == stepRefuse {
			status.AcceptRefused = &v1alpha1.AcceptRefusal{
				Benchmark: identity.Bounded(w.verification.Annotations[v1alpha1.AnnotationAccept], maxName),
				Message:   identity.Bounded(s.message, maxMessage), RefusedAt: metav1.Time{Time: w.now},
			}
		}
		// Keys may have been added to the gate, or removed.
		status.Identity = identity.KeysOf(w.gate).Of(w.node)
		return status, nil
	case stepForget, stepRelease:
		return status, nil
	case stepUnverify:
		if s.reason == v1alpha1.ReasonNodeReplaced {
			// Another machine, as far as is known: nothing of the old one counts.
			status = v1alpha1.LatencyVerificationStatus{Number: status.Number, Retained: status.Retained}
		}
		status.NodeUID, status.Identity, status.Changed = string(w.node.UID), identity.KeysOf(w.gate).Of(w.node), s.changed
		status.AcceptRefused = nil
		s.state = v1alpha1.VerificationUnverified
		begin(&status)
	case stepRepeat:
		if err := w.record(&status, s); err != nil {
			return status, err
		}
		s.state = v1alpha1.VerificationUnverified
		w.repeat(&status, s)
	case stepConclude:
		if err := w.record(&status, s); err != nil {
			return status, err
		}
		if s.state == v1alpha1.VerificationVerified {
			status.Accepted = w.accepted(w.benchmark, status.Benchmark.Peer, v1alpha1.AcceptedByPass)
			if status.First == nil {
				status.First = status.Accepted
			}
			status.Changed = nil
		}
		begin(&status)
	case stepAccept:
		result := find(status.History, w.verification.Annotations[v1alpha1.AnnotationAccept])
		status.Accepted = w.accepted(w.named, result.Peer, v1alpha1.AcceptedByHand)
		status.First, status.Changed, status.AcceptRefused = status.Accepted, nil, nil
		s.state = v1alpha1.VerificationVerified
		begin(&status)
	}
	enter(&status, s.state, s.reason, s.message, w.now)
	return status, nil
}

// begin forgets the current benchmark, and how the tries of a verification that is over went.
func begin(status *v1alpha1.LatencyVerificationStatus) {
	status.Benchmark, status.Setback = nil, nil
	status.Retried, status.Lost, status.SuspectPeer = 0, 0, ""
}

// repeat counts a try that decided nothing.
func (w *world) repeat(status *v1alpha1.LatencyVerificationStatus, s step) {
	switch s.reason {
	case v1alpha1.ReasonSecondPeer:
		status.SuspectPeer, status.Setback = s.suspect, nil
	case v1alpha1.ReasonRetry:
		status.Retried, status.Setback = status.Retried+1, nil
	case v1alpha1.ReasonNotAccepted, v1alpha1.ReasonNoProgress:
		status.Setback = setback(status.Setback, s.reason, s.message, w.now)
		peers := slices.DeleteFunc(slices.Clone(status.Setback.Peers), func(p string) bool { return p == status.Benchmark.Peer })
		peers = slices.Insert(peers, 0, status.Benchmark.Peer)
		status.Setback.Peers = peers[:min(len(peers), maxSetbackPeers)]
	default:
		status.Lost++
	}
	status.Benchmark = nil
}

// enter puts a node into a state.
func enter(status *v1alpha1.LatencyVerificationStatus, state v1alpha1.VerificationState, reason, message string, now time.Time) {
	if status.State != state || status.Since == nil {
		status.Since = &metav1.Time{Time: now}
	}
	status.State, status.Reason, status.Message = state, reason, identity.Bounded(message, maxMessage)
}

// begun is the status of a node whose benchmark was made.
func begun(status v1alpha1.LatencyVerificationStatus, b v1alpha1.VerificationBenchmark) v1alpha1.LatencyVerificationStatus {
	status.Benchmark = &b
	enter(&status, v1alpha1.VerificationMeasuring, v1alpha1.ReasonMeasuring,
		fmt.Sprintf("LatencyBenchmark %s measures it with %s; %s", b.Name, b.Peer, status.Message), b.StartedAt.Time)
	return status
}

// due is the status of a node whose turn it is by the schedule.
func due(status v1alpha1.LatencyVerificationStatus, schedule string, now time.Time) v1alpha1.LatencyVerificationStatus {
	status.Changed = nil
	begin(&status)
	enter(&status, v1alpha1.VerificationUnverified, v1alpha1.ReasonScheduleDue, "it is its turn by the schedule, "+schedule, now)
	return status
}

// refused is the status of a node whose benchmark could not be made. It keeps its state, and its place in the queue.
func refused(status v1alpha1.LatencyVerificationStatus, message string, now time.Time) v1alpha1.LatencyVerificationStatus {
	status.Setback = setback(status.Setback, v1alpha1.ReasonBenchmarkRefused, message, now)
	return status
}

const (
	// maxMessage is the length of a message in a status, maxName that of a benchmark's name.
	maxMessage, maxName = 1024, 253
	// maxSetbackPeers is how many peers a setback names.
	maxSetbackPeers = 8
	// firstRest is how long something rests that did not succeed. It doubles each time, up to longestRest.
	firstRest, longestRest = 10 * time.Second, 10 * time.Minute
)

// setback is what follows from another one after the last, if there was one.
func setback(last *v1alpha1.Setback, reason, message string, now time.Time) *v1alpha1.Setback {
	next := &v1alpha1.Setback{}
	if last != nil {
		next = last.DeepCopy()
	}
	rest := min(firstRest<<min(next.Count, 10), longestRest)
	next.Count++
	next.Reason, next.Message, next.RetryAt = reason, identity.Bounded(message, maxMessage), metav1.Time{Time: now.Add(rest)}
	return next
}

// resting is how long something that did not succeed still rests; zero when it may be tried. A time that is further away
// than any rest is that of a clock which was set back.
func resting(last *v1alpha1.Setback, now time.Time) time.Duration {
	if last == nil {
		return 0
	}
	left := last.RetryAt.Sub(now)
	if left <= 0 || left > longestRest {
		return 0
	}
	return left
}

// retention is why the verification is kept although the node is not the gate's; nil when it is.
func (w *world) retention() *v1alpha1.Retention {
	if w.node == nil || !w.lost() {
		return nil
	}
	r := &v1alpha1.Retention{Since: metav1.Time{Time: w.now}}
	if before := w.verification.Status.Retained; before != nil {
		r.Since = before.Since
	}
	after := w.gate.Spec.ReleaseAfter.Duration
	until := r.Since.Add(after).UTC().Format(time.RFC3339)
	if w.owner != nil {
		r.Reason = v1alpha1.ReasonTaken
		r.Message = fmt.Sprintf("LatencyGate %s has the node; state and baselines are kept until %s (spec.releaseAfter: %s)", w.owner.Name, until, after)
		return r
	}
	r.Reason = v1alpha1.ReasonNotSelected
	r.Message = fmt.Sprintf("spec.nodeSelector does not select the node any more; state and baselines are kept until %s (spec.releaseAfter: %s); to release it at once: kubectl delete lver %s",
		until, after, w.verification.Name)
	return r
}

// accepted is a result of the node as it is now.
func (w *world) accepted(b *v1alpha1.LatencyBenchmark, peer string, by v1alpha1.AcceptedBy) *v1alpha1.AcceptedResult {
	return &v1alpha1.AcceptedResult{
		Benchmark: b.Name, UID: string(b.UID), At: metav1.Time{Time: w.now}, By: by, Peer: peer, Identity: w.verification.Status.Identity,
	}
}

// record puts the current benchmark into the history, if it has an outcome.
func (w *world) record(status *v1alpha1.LatencyVerificationStatus, s step) error {
	if s.outcome == "" || status.Benchmark == nil {
		return nil
	}
	digest, err := digestOf(status.Identity)
	if err != nil {
		return err
	}
	status.MeasuredAt = &metav1.Time{Time: w.now}
	status.Evidence = evidence(w.benchmark)
	status.History = slices.Insert(status.History, 0, v1alpha1.VerificationResult{
		Benchmark: status.Benchmark.Name, At: metav1.Time{Time: w.now}, Outcome: s.outcome, Reason: s.reason,
		Peer: status.Benchmark.Peer, IdentitySHA256: digest,
	})
	status.History = status.History[:min(len(status.History), int(w.gate.Spec.HistoryLimit))]
	return nil
}

// reportedChecks are the checks of an endpoint's proof that describe its NIC and of Onload.
var reportedChecks = []string{v1alpha1.ProofDriver, v1alpha1.ProofFirmware, v1alpha1.ProofFirmwareVariant, v1alpha1.ProofAcceleration}

// evidence is what the agent at the node reported about NIC and Onload.
func evidence(b *v1alpha1.LatencyBenchmark) []v1alpha1.ProofLine {
	for _, e := range b.Status.Endpoints {
		if e.Role != v1alpha1.RoleClient {
			continue
		}
		var all []v1alpha1.ProofLine
		for _, line := range e.Proof {
			if slices.Contains(reportedChecks, line.Check) {
				all = append(all, line)
			}
		}
		return all
	}
	return nil
}
