package gate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// All changes of the status of a LatencyVerification, except for its hold pod, are in this file, and pure: next is for the steps
// that decide chose; begun, due and refused are for the actions of the gate. The table transitions lists the fields that an event
// changes.

// nodeEvent is what happened to a node.
type nodeEvent string

// The events that change neither the state of a node nor a counter in its status.
const (
	// eventNothing: nothing has happened.
	eventNothing nodeEvent = "Nothing"
	// eventGone: the node is gone, or was replaced by one that the gate does not own.
	eventGone nodeEvent = "Gone"
	// eventReleased: the gate has not selected the node for spec.releaseAfter.
	eventReleased nodeEvent = "Released"
	// eventNotAccepted: a user named a result that cannot be accepted.
	eventNotAccepted nodeEvent = "NotAccepted"
)

// The events of the table transitions.
const (
	eventReplaced  nodeEvent = "NodeReplaced"
	eventChanged   nodeEvent = "Changed"
	eventDue       nodeEvent = "ScheduleDue"
	eventStarted   nodeEvent = "Started"
	eventRefused   nodeEvent = "BenchmarkRefused"
	eventRetry     nodeEvent = "Retry"
	eventOtherPeer nodeEvent = "SecondPeer"
	eventHeldUp    nodeEvent = "HeldUp"
	eventLost      nodeEvent = "Lost"
	eventPassed    nodeEvent = "Passed"
	eventFailed    nodeEvent = "Failed"
	eventUndecided nodeEvent = "Undecided"
	eventAccepted  nodeEvent = "AcceptedByHand"
)

// transition is the effect of an event on a status.
type transition struct {
	event nodeEvent
	// when says in words when the event happens.
	when string
	// from are the states in which the event can happen; nil: all.
	from []v1alpha1.VerificationState
	// to is the state after the event; empty: unchanged.
	to v1alpha1.VerificationState
	// resets are the fields that the event clears, and counts is the field that it increments or sets.
	resets []field
	counts field
}

// field is a field of the status that transitions clear, increment or set.
type field string

// The fields.
const (
	fieldBenchmark     field = "benchmark"
	fieldRetried       field = "retried"
	fieldLost          field = "lost"
	fieldSuspectPeer   field = "suspectPeer"
	fieldSetback       field = "setback"
	fieldChanged       field = "changed"
	fieldAcceptRefused field = "acceptRefused"
	// fieldAll is all fields except number, which is part of the names of benchmarks, and retained.
	fieldAll field = "all but number, retained"
)

var (
	measuringOnly  = []v1alpha1.VerificationState{v1alpha1.VerificationMeasuring}
	unverifiedOnly = []v1alpha1.VerificationState{v1alpha1.VerificationUnverified}
	concluded      = []v1alpha1.VerificationState{v1alpha1.VerificationVerified, v1alpha1.VerificationFailed, v1alpha1.VerificationInconclusive}
	// tries are the fields that are cleared when a verification ends or begins.
	tries = []field{fieldBenchmark, fieldRetried, fieldLost, fieldSuspectPeer, fieldSetback}
)

// transitions are all transitions; docs/gates.md shows this table.
var transitions = []transition{
	{event: eventChanged, when: "the node is new, its identity changed, or `tailgate.dev/verify` requests it", to: v1alpha1.VerificationUnverified,
		resets: slices.Concat(tries, []field{fieldAcceptRefused}), counts: fieldChanged},
	{event: eventReplaced, when: "the Node was deleted and created again", to: v1alpha1.VerificationUnverified, resets: []field{fieldAll}},
	{event: eventDue, when: "the schedule requests it", from: concluded, to: v1alpha1.VerificationUnverified, resets: slices.Concat(tries, []field{fieldChanged})},
	{event: eventStarted, when: "a slot and a peer are free, and the benchmark was created", from: unverifiedOnly, to: v1alpha1.VerificationMeasuring, counts: fieldBenchmark},
	{event: eventRefused, when: "the API server refused the benchmark", from: unverifiedOnly, counts: fieldSetback},
	{event: eventHeldUp, when: "the benchmark was not accepted, or made no progress", from: measuringOnly, to: v1alpha1.VerificationUnverified,
		resets: []field{fieldBenchmark}, counts: fieldSetback},
	{event: eventLost, when: "a user deleted or edited the benchmark", from: measuringOnly, to: v1alpha1.VerificationUnverified,
		resets: []field{fieldBenchmark}, counts: fieldLost},
	{event: eventRetry, when: "the verdict is Inconclusive, and a retry is left", from: measuringOnly, to: v1alpha1.VerificationUnverified,
		resets: []field{fieldBenchmark, fieldSetback}, counts: fieldRetried},
	{event: eventOtherPeer, when: "the verdict is Fail, the peer is not verified, and there is another peer", from: measuringOnly, to: v1alpha1.VerificationUnverified,
		resets: []field{fieldBenchmark, fieldSetback}, counts: fieldSuspectPeer},
	{event: eventPassed, when: "the verdict is Pass", from: measuringOnly, to: v1alpha1.VerificationVerified, resets: slices.Concat(tries, []field{fieldChanged})},
	{event: eventFailed, when: "the verdict is Fail", from: measuringOnly, to: v1alpha1.VerificationFailed, resets: tries},
	{event: eventUndecided, when: "nothing can be concluded, and no retry is left", from: measuringOnly, to: v1alpha1.VerificationInconclusive, resets: tries},
	{event: eventAccepted, when: "a user accepted a result", to: v1alpha1.VerificationVerified,
		resets: slices.Concat(tries, []field{fieldChanged, fieldAcceptRefused})},
}

// happening is an event with its details.
type happening struct {
	event           nodeEvent
	reason, message string
	now             time.Time
	// changed, suspect and benchmark are values that the event sets.
	changed   []v1alpha1.IdentityChange
	suspect   string
	benchmark *v1alpha1.VerificationBenchmark
}

// apply returns the status after an event. It returns an error if the event cannot happen in the state.
func (h happening) apply(v *v1alpha1.LatencyVerification, status v1alpha1.LatencyVerificationStatus) (v1alpha1.LatencyVerificationStatus, error) {
	t := h.event.transition()
	if t == nil || t.from != nil && !slices.Contains(t.from, status.State) {
		return status, fmt.Errorf("event %s cannot happen to a node in state %s", h.event, status.State)
	}
	h.count(&status, t.counts)
	for _, f := range t.resets {
		f.reset(&status)
	}
	if t.to == "" {
		return status, nil
	}
	if status.State != t.to || status.LastTransitionTime == nil {
		status.LastTransitionTime = &metav1.Time{Time: h.now}
	}
	status.State = t.to
	verified := metav1.ConditionUnknown
	switch t.to {
	case v1alpha1.VerificationVerified:
		verified = metav1.ConditionTrue
	case v1alpha1.VerificationFailed:
		verified = metav1.ConditionFalse
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionVerified, Status: verified, ObservedGeneration: v.Generation, LastTransitionTime: metav1.Time{Time: h.now},
		Reason: h.reason, Message: text.Shorten(h.message, maxMessage),
	})
	return status, nil
}

// reset clears a field.
func (f field) reset(status *v1alpha1.LatencyVerificationStatus) {
	switch f {
	case fieldBenchmark:
		status.Benchmark = nil
	case fieldRetried:
		status.Retried = 0
	case fieldLost:
		status.Lost = 0
	case fieldSuspectPeer:
		status.SuspectPeer = ""
	case fieldSetback:
		status.Setback = nil
	case fieldChanged:
		status.Changed = nil
	case fieldAcceptRefused:
		status.AcceptRefused = nil
	case fieldAll:
		*status = v1alpha1.LatencyVerificationStatus{Number: status.Number, Retained: status.Retained}
	}
}

// count increments a field, or sets it.
func (h happening) count(status *v1alpha1.LatencyVerificationStatus, f field) {
	switch f {
	case fieldBenchmark:
		status.Benchmark = h.benchmark
	case fieldRetried:
		status.Retried++
	case fieldLost:
		status.Lost++
	case fieldSuspectPeer:
		status.SuspectPeer = h.suspect
	case fieldChanged:
		status.Changed = h.changed
	case fieldSetback:
		status.Setback = setback(status.Setback, h.reason, h.message, h.now)
		if b := status.Benchmark; b != nil {
			peers := slices.DeleteFunc(slices.Clone(status.Setback.Peers), func(p string) bool { return p == b.Peer })
			peers = slices.Insert(peers, 0, b.Peer)
			status.Setback.Peers = peers[:min(len(peers), maxSetbackPeers)]
		}
	}
}

// transition returns the effect of an event on a status; nil if it has none.
func (e nodeEvent) transition() *transition {
	for i := range transitions {
		if transitions[i].event == e {
			return &transitions[i]
		}
	}
	return nil
}

// begins reports whether a new verification of the node as it is now begins with an event.
func (e nodeEvent) begins() bool { return e == eventChanged || e == eventReplaced }

// next returns the status after a step.
func (w *world) next(s step) (v1alpha1.LatencyVerificationStatus, error) {
	status := *w.verification.Status.DeepCopy()
	status.BaselineTrouble, status.Retained = w.baselineTrouble, w.retention()
	if s.event == eventNotAccepted {
		status.AcceptRefused = &v1alpha1.AcceptRefusal{
			Benchmark: text.Shorten(w.verification.Annotations[v1alpha1.AnnotationAccept], maxName),
			Message:   text.Shorten(s.message, maxMessage), RefusalTime: metav1.Time{Time: w.now},
		}
	}
	if s.event.transition() == nil {
		if w.node != nil { // Keys may have been added to the gate, or removed.
			status.Identity = identity.KeysOf(w.gate).Of(w.node)
		}
		return status, nil
	}
	if err := w.record(&status, s); err != nil {
		return status, err
	}
	switch s.event {
	case eventPassed:
		status.Accepted = w.accepted(w.benchmark, status.Benchmark.Peer, v1alpha1.AcceptedByPass)
		status.First = cmp.Or(status.First, status.Accepted)
	case eventAccepted:
		result := find(status.History, w.verification.Annotations[v1alpha1.AnnotationAccept])
		status.Accepted = w.accepted(w.named, result.Peer, v1alpha1.AcceptedByHand)
		status.First = status.Accepted
	}
	status, err := happening{event: s.event, reason: s.reason, message: s.message, now: w.now, changed: s.changed, suspect: s.suspect}.apply(w.verification, status)
	if s.event.begins() {
		status.NodeUID, status.Identity = string(w.node.UID), identity.KeysOf(w.gate).Of(w.node)
	}
	return status, err
}

// begun returns the status of a node whose benchmark was created.
func begun(v *v1alpha1.LatencyVerification, b v1alpha1.VerificationBenchmark) (v1alpha1.LatencyVerificationStatus, error) {
	return happening{event: eventStarted, reason: v1alpha1.ReasonMeasuring, now: b.StartTime.Time, benchmark: &b,
		message: fmt.Sprintf("LatencyBenchmark %s measures it with %s; %s", b.Name, b.Peer, v.Status.Verified().Message)}.apply(v, v.Status)
}

// due returns the status of a node that is due by the schedule.
func due(v *v1alpha1.LatencyVerification, schedule string, now time.Time) (v1alpha1.LatencyVerificationStatus, error) {
	return happening{event: eventDue, reason: v1alpha1.ReasonScheduleDue, message: "the schedule is due for the node, " + schedule, now: now}.apply(v, v.Status)
}

// refused returns the status of a node whose benchmark could not be created. The node keeps its state, and its place in the queue.
func refused(v *v1alpha1.LatencyVerification, message string, now time.Time) (v1alpha1.LatencyVerificationStatus, error) {
	return happening{event: eventRefused, reason: v1alpha1.ReasonBenchmarkRefused, message: message, now: now}.apply(v, v.Status)
}

const (
	// maxMessage is the maximum length of a message in a status, and maxName of a benchmark's name.
	maxMessage, maxName = 1024, 253
	// maxSetbackPeers is the maximum number of peers in a setback.
	maxSetbackPeers = 8
	// firstRest is the pause after the first failure. It doubles with each failure, up to longestRest.
	firstRest, longestRest = 10 * time.Second, 10 * time.Minute
)

// setback returns the setback after one more failure; last is the previous one, or nil.
func setback(last *v1alpha1.Setback, reason, message string, now time.Time) *v1alpha1.Setback {
	next := &v1alpha1.Setback{}
	if last != nil {
		next = last.DeepCopy()
	}
	rest := min(firstRest<<min(next.Count, 10), longestRest)
	next.Count++
	next.Reason, next.Message, next.RetryTime = reason, text.Shorten(message, maxMessage), metav1.Time{Time: now.Add(rest)}
	return next
}

// resting returns the time until a retry after a setback; zero if it may happen now. If the retry time is further away than
// longestRest, the clock was set back, and it is ignored.
func resting(last *v1alpha1.Setback, now time.Time) time.Duration {
	if last == nil {
		return 0
	}
	left := last.RetryTime.Sub(now)
	if left <= 0 || left > longestRest {
		return 0
	}
	return left
}

// retention returns why the verification is kept although the gate does not own the node; nil if it does.
func (w *world) retention() *v1alpha1.Retention {
	if w.node == nil || !w.lost() {
		return nil
	}
	r := &v1alpha1.Retention{StartTime: metav1.Time{Time: w.now}}
	if before := w.verification.Status.Retained; before != nil {
		r.StartTime = before.StartTime
	}
	after := w.gate.Spec.ReleaseAfter.Duration
	until := r.StartTime.Add(after).UTC().Format(time.RFC3339)
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

// accepted returns a benchmark as the accepted result, with the present identity of the node.
func (w *world) accepted(b *v1alpha1.LatencyBenchmark, peer string, by v1alpha1.AcceptedBy) *v1alpha1.AcceptedResult {
	return &v1alpha1.AcceptedResult{
		Benchmark: b.Name, UID: string(b.UID), AcceptanceTime: metav1.Time{Time: w.now}, By: by, Peer: peer, Identity: w.verification.Status.Identity,
	}
}

// record adds the current benchmark to the history, if it has an outcome.
func (w *world) record(status *v1alpha1.LatencyVerificationStatus, s step) error {
	if s.outcome == "" || status.Benchmark == nil {
		return nil
	}
	digest, err := digestOf(status.Identity)
	if err != nil {
		return err
	}
	status.LastMeasurementTime = &metav1.Time{Time: w.now}
	status.Evidence = evidence(w.benchmark)
	status.History = slices.Insert(status.History, 0, v1alpha1.VerificationResult{
		Benchmark: status.Benchmark.Name, CompletionTime: metav1.Time{Time: w.now}, Outcome: s.outcome, Reason: s.reason,
		Peer: status.Benchmark.Peer, IdentitySHA256: digest,
	})
	status.History = status.History[:min(len(status.History), int(w.gate.Spec.HistoryLimit))]
	return nil
}

// reportedChecks are the checks of an endpoint's proof that describe its NIC and Onload.
var reportedChecks = []string{v1alpha1.ProofDriver, v1alpha1.ProofFirmware, v1alpha1.ProofFirmwareVariant, v1alpha1.ProofAcceleration}

// evidence returns what the agent on the node reported about NIC and Onload.
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
