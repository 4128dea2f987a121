package gate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/standing"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

// All changes of a verification's status are here, and pure, except for markFailures, holdPod and
// holdPodFailure, which say what was published. The table lists every field that an event changes;
// next also changes those of observed.

type nodeEvent string

// The events that change neither a node's state nor a counter.
const (
	eventNothing  nodeEvent = "Nothing"
	eventGone     nodeEvent = "Gone"     // the Node has not existed for spec.releaseAfter
	eventReleased nodeEvent = "Released" // the gate has not selected the node for spec.releaseAfter
)

const (
	eventReplaced    nodeEvent = "NodeReplaced"
	eventReturned    nodeEvent = "NodeReturned"
	eventAway        nodeEvent = "NodeDeleted"
	eventDismissed   nodeEvent = "GateDeleted"
	eventAdopted     nodeEvent = "GateReplaced"
	eventChanged     nodeEvent = "Changed"
	eventAsked       nodeEvent = "TurnRequested" // a user requested a measurement
	eventDue         nodeEvent = "Due"
	eventGivenBack   nodeEvent = "GivenBack" // the turn of a verified node ended without a result
	eventStarted     nodeEvent = "Started"
	eventRefused     nodeEvent = "BenchmarkRefused"
	eventOtherPeer   nodeEvent = "SecondPeer"
	eventAlone       nodeEvent = "NoSecondPeer"
	eventHeldUp      nodeEvent = "HeldUp"
	eventDiscarded   nodeEvent = "Discarded"
	eventPassed      nodeEvent = "Passed"
	eventFailed      nodeEvent = "Failed"
	eventUndecided   nodeEvent = "Undecided"
	eventAccepted    nodeEvent = "AcceptedByHand"
	eventNotAccepted nodeEvent = "NotAccepted" // a user named a result that cannot be accepted
	eventNameTaken   nodeEvent = "NameTaken"   // another object has the name of the benchmark
)

type transition struct {
	event  nodeEvent
	when   string
	from   []v1alpha1.VerificationState // in which the event can happen; nil: all
	to     v1alpha1.VerificationState   // after the event; empty: unchanged
	clears []statusField                // cleared by the event, before does in this order
	does   []effect
}

type effect struct {
	sets  []statusField
	apply func(c *change)
}

type change struct {
	step
	now    time.Time
	world  *world // nil for the events of the gates' reconciler
	before *v1alpha1.LatencyVerificationStatus
	status *v1alpha1.LatencyVerificationStatus
	err    error
}

type statusField string

const (
	fieldBenchmark     statusField = "benchmark"
	fieldDiscarded     statusField = "discarded"
	fieldSuspectPeer   statusField = "suspectPeer"
	fieldStepFailure   statusField = "stepFailure"
	fieldChanged       statusField = "changed"
	fieldAcceptRefused statusField = "acceptRefused"
	fieldPreexisting   statusField = "preexisting"
	fieldFailConfirmed statusField = "failConfirmed"
	fieldTurn          statusField = "turn"
	fieldTurnRequest   statusField = "turnRequestTime"
	// fieldAll spares number (names of benchmarks), markFailures (of the Node), requests (spec).
	fieldAll statusField = "all but number, retained, markFailures, requests"
)

var (
	measuringOnly  = []v1alpha1.VerificationState{v1alpha1.VerificationMeasuring}
	unverifiedOnly = []v1alpha1.VerificationState{v1alpha1.VerificationUnverified}
	verifiedOnly   = []v1alpha1.VerificationState{v1alpha1.VerificationVerified}
	// tries are cleared when a verification ends, confirmed when one begins.
	tries     = []statusField{fieldBenchmark, fieldDiscarded, fieldSuspectPeer, fieldStepFailure, fieldTurn, fieldTurnRequest}
	confirmed = slices.Concat(tries, []statusField{fieldFailConfirmed})
	forgotten = slices.Concat(confirmed, []statusField{fieldChanged, fieldAcceptRefused})
)

// transitions are all transitions; docs/internals/transitions.md shows this table.
var transitions = []transition{
	{event: eventChanged, when: "the node is new, its identity changed, or `spec.verify` requests it", to: v1alpha1.VerificationUnverified,
		clears: slices.Concat(confirmed, []statusField{fieldAcceptRefused}), does: []effect{noteChanges, processVerify, begin}},
	{event: eventReplaced, when: "the Node was deleted and created again for another machine", to: v1alpha1.VerificationUnverified,
		clears: []statusField{fieldAll}, does: []effect{begin}},
	{event: eventReturned, when: "the same, and the machine is the same or unknown", to: v1alpha1.VerificationUnverified,
		clears: forgotten, does: []effect{notFound, begin}},
	{event: eventAway, when: "the Node was deleted", to: v1alpha1.VerificationUnverified, clears: forgotten, does: []effect{notFound}},
	{event: eventDismissed, when: "the gate was deleted", to: v1alpha1.VerificationUnverified, clears: forgotten, does: []effect{retain}},
	{event: eventAdopted, when: "the gate was deleted and created again", to: v1alpha1.VerificationUnverified,
		clears: slices.Concat(confirmed, []statusField{fieldAcceptRefused}), does: []effect{noteChanges, begin}},
	{event: eventAsked, when: "`spec.verify` requests a measurement of a verified node, or of one in its turn", does: []effect{processVerify, awaitTurn}},
	{event: eventDue, when: "its turn begins, by the schedule or because a user requested it", from: verifiedOnly, to: v1alpha1.VerificationUnverified,
		clears: []statusField{fieldTurnRequest}, does: []effect{lend}},
	{event: eventGivenBack, when: "the turn ended without a result", from: []v1alpha1.VerificationState{v1alpha1.VerificationUnverified, v1alpha1.VerificationMeasuring},
		to: v1alpha1.VerificationVerified, clears: []statusField{fieldBenchmark, fieldTurn}, does: []effect{countStepFailure}},
	{event: eventStarted, when: "a slot and a peer are free, and the benchmark was created", from: unverifiedOnly, to: v1alpha1.VerificationMeasuring,
		does: []effect{setBenchmark, takeNumber}},
	{event: eventNameTaken, when: "another object has the name of the benchmark", from: unverifiedOnly, does: []effect{takeNumber}},
	{event: eventRefused, when: "the API server refused the benchmark", from: unverifiedOnly, does: []effect{countStepFailure}},
	{event: eventHeldUp, when: "the benchmark was not accepted, made no progress, or failed because of the cluster", from: measuringOnly, to: v1alpha1.VerificationUnverified,
		clears: []statusField{fieldBenchmark}, does: []effect{countStepFailure, countChosen}},
	{event: eventDiscarded, when: "a user deleted or edited the benchmark", from: measuringOnly, to: v1alpha1.VerificationUnverified,
		clears: []statusField{fieldBenchmark}, does: []effect{countDiscarded}},
	{event: eventOtherPeer, when: "the verdict is Fail for the first time, and there is another peer", from: measuringOnly, to: v1alpha1.VerificationUnverified,
		clears: []statusField{fieldBenchmark, fieldStepFailure, fieldTurn}, does: []effect{record, suspectPeer}},
	{event: eventAlone, when: "the verdict was Fail, and there is no other peer any more", from: unverifiedOnly, to: v1alpha1.VerificationFailed, clears: tries},
	{event: eventPassed, when: "the verdict is Pass", from: measuringOnly, to: v1alpha1.VerificationVerified,
		clears: slices.Concat(confirmed, []statusField{fieldChanged}), does: []effect{record, acceptPass}},
	{event: eventFailed, when: "the verdict is Fail", from: measuringOnly, to: v1alpha1.VerificationFailed, clears: tries, does: []effect{record, confirmFail}},
	{event: eventUndecided, when: "nothing can be concluded", from: measuringOnly, to: v1alpha1.VerificationInconclusive, clears: confirmed, does: []effect{record}},
	{event: eventAccepted, when: "a user accepted a result", to: v1alpha1.VerificationVerified, clears: forgotten, does: []effect{acceptByHand, processAccept}},
	{event: eventNotAccepted, when: "a user named a result that cannot be accepted", does: []effect{refuseAccept, processAccept}},
}

var (
	setBenchmark = effect{[]statusField{fieldBenchmark}, func(c *change) { c.status.Benchmark = c.benchmark }}
	takeNumber   = effect{[]statusField{"number"}, func(c *change) { c.status.Number++ }}
	awaitTurn    = effect{[]statusField{fieldTurnRequest}, func(c *change) { c.status.TurnRequestTime = &metav1.Time{Time: c.now} }}
	lend         = effect{[]statusField{fieldTurn}, func(c *change) {
		verified := c.before.Verified()
		c.status.Turn = &v1alpha1.Turn{StartTime: metav1.Time{Time: c.now}, Reason: verified.Reason, Message: verified.Message}
	}}
	countDiscarded = effect{[]statusField{fieldDiscarded}, func(c *change) { c.status.Discarded++ }}
	countChosen    = effect{[]statusField{fieldDiscarded}, func(c *change) {
		if c.chosen {
			c.status.Discarded++
		}
	}}
	suspectPeer = effect{[]statusField{fieldSuspectPeer}, func(c *change) { c.status.SuspectPeer = c.suspect }}
	confirmFail = effect{[]statusField{fieldFailConfirmed}, func(c *change) { c.status.FailConfirmed = c.before.SuspectPeer != "" }}
	retain      = effect{[]statusField{"retained"}, func(c *change) { c.status.Retained = c.retained }}
	noteChanges = effect{[]statusField{fieldChanged, fieldPreexisting, "history"}, func(c *change) {
		c.status.Changed = c.changed
		for _, was := range c.status.History { // A result of devices that do not exist any more cannot be accepted.
			identity.Outdate(was.Identity, c.changed)
		}
		if len(c.changed) > 0 {
			notFound.apply(c)
		}
	}}
	// notFound: the node is not preexisting. Mode Observe finds nodes as they are at its end.
	notFound = effect{[]statusField{fieldPreexisting}, func(c *change) {
		c.status.Preexisting = c.status.Preexisting && c.world.gate.Observes()
	}}
	countStepFailure = effect{[]statusField{fieldStepFailure}, func(c *change) {
		next := turns.OfNode.StepFailure(c.status.StepFailure, c.reason, c.message, c.now)
		if b := c.before.Benchmark; b != nil {
			next.StartTime = cmp.Or(next.StartTime, &b.StartTime)
			peers := slices.DeleteFunc(slices.Clone(next.Peers), func(p string) bool { return p == b.Peer })
			peers = slices.Insert(peers, 0, b.Peer)
			next.Peers = peers[:min(len(peers), maxStepFailurePeers)]
		}
		c.status.StepFailure = next
	}}
	refuseAccept = effect{[]statusField{fieldAcceptRefused}, func(c *change) {
		c.status.AcceptRefused = &v1alpha1.AcceptRefusal{
			Benchmark: c.world.verification.Spec.Accept.Benchmark,
			Message:   text.Shorten(c.message, turns.MaxMessage), RefusalTime: metav1.Time{Time: c.now},
		}
	}}
	processAccept = effect{[]statusField{"requests"}, func(c *change) {
		r := c.requests()
		r.Accept, r.AcceptTime = c.world.verification.Spec.Accept, new(metav1.NewMicroTime(c.now))
	}}
	processVerify = effect{[]statusField{"requests"}, func(c *change) {
		if c.event == eventAsked || c.reason == v1alpha1.ReasonVerifyRequested {
			r := c.requests()
			r.Verify, r.VerifyTime = c.world.verification.Spec.Verify, new(metav1.NewMicroTime(c.now))
		}
	}}
	begin = effect{[]statusField{fieldPreexisting, "introduced", "markFailures", "nodeUID", "gateUID", "systemUUID", "identity", "absent"}, func(c *change) {
		w, status := c.world, c.status
		status.Preexisting = status.Preexisting || c.reason == v1alpha1.ReasonNewNode && turns.FoundBy(w.gate, w.node) ||
			c.event == eventReplaced && w.gate.Observes()
		status.Introduced = status.Introduced || c.reason == v1alpha1.ReasonNewNode && turns.Older(w.node, w.gate)
		if c.before.NodeUID != string(w.node.UID) {
			status.MarkFailures = nil // They are about a Node that does not exist any more.
		}
		status.NodeUID, status.GateUID = string(w.node.UID), string(w.gate.UID)
		status.SystemUUID = identity.LatestUUID(w.node.Status.NodeInfo.SystemUUID, status.SystemUUID)
		if is := w.compare(); c.event == eventReplaced {
			status.Identity = identity.KeysOf(w.gate).Of(w.subject())
		} else {
			status.Identity, status.Absent = is.Values, is.Absent
		}
	}}
	acceptPass = effect{[]statusField{"accepted", "reference"}, func(c *change) {
		c.status.Accepted = c.world.accepted(c.status.History[0], v1alpha1.AcceptedByPass)
		c.world.extend(c.status, c.world.benchmark)
	}}
	acceptByHand = effect{[]statusField{"accepted", "reference", "recent"}, func(c *change) {
		c.status.Accepted = c.world.accepted(*acceptable(c.world.verification), v1alpha1.AcceptedByHand)
		c.status.Accepted.RequestedBy = c.world.verification.Spec.Accept.RequestedBy
		c.status.Reference, c.status.Recent = nil, nil // A user decides: nothing before counts.
		c.world.remember(c.status, c.world.named, c.status.Accepted.Peer, true)
		c.world.extend(c.status, c.world.named)
	}}
	record = effect{[]statusField{"lastMeasurementTime", "recent", "evidence", "history"}, func(c *change) {
		if c.outcome != "" {
			c.err = c.world.record(c.status, c.before.Benchmark, c.step)
		}
	}}
)

func (s step) apply(w *world, v *v1alpha1.LatencyVerification, status v1alpha1.LatencyVerificationStatus, now time.Time) (
	v1alpha1.LatencyVerificationStatus, error,
) {
	t := s.event.transition()
	if t == nil || t.from != nil && !slices.Contains(t.from, status.State) {
		return status, fmt.Errorf("event %s cannot happen to a node in state %s", s.event, status.State)
	}
	c := &change{step: s, now: now, world: w, before: status.DeepCopy(), status: &status}
	for _, f := range t.clears {
		resets[f](&status)
	}
	for _, e := range t.does {
		if e.apply(c); c.err != nil {
			return *c.before, c.err
		}
	}
	if t.to == "" {
		return status, nil
	}
	if c.before.State != t.to || status.LastTransitionTime == nil {
		status.LastTransitionTime = &metav1.Time{Time: now}
	}
	status.State = t.to
	reason, message := s.reason, s.message
	if turn := c.before.Turn; s.event == eventGivenBack && turn != nil {
		reason, message = turn.Reason, turn.Message
	}
	verified := map[v1alpha1.VerificationState]metav1.ConditionStatus{
		v1alpha1.VerificationVerified: metav1.ConditionTrue, v1alpha1.VerificationFailed: metav1.ConditionFalse,
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionVerified, Status: cmp.Or(verified[t.to], metav1.ConditionUnknown), ObservedGeneration: v.Generation,
		LastTransitionTime: metav1.Time{Time: now}, Reason: reason, Message: text.Shorten(message, turns.MaxMessage),
	})
	status.ObservedGeneration = v.Generation
	standing.Publish(&status.Conditions, v.Generation, now, standing.OfVerification(&v1alpha1.LatencyVerification{Status: status}))
	return status, nil
}

var resets = map[statusField]func(status *v1alpha1.LatencyVerificationStatus){
	fieldBenchmark:     func(status *v1alpha1.LatencyVerificationStatus) { status.Benchmark = nil },
	fieldDiscarded:     func(status *v1alpha1.LatencyVerificationStatus) { status.Discarded = 0 },
	fieldSuspectPeer:   func(status *v1alpha1.LatencyVerificationStatus) { status.SuspectPeer = "" },
	fieldStepFailure:   func(status *v1alpha1.LatencyVerificationStatus) { status.StepFailure = nil },
	fieldChanged:       func(status *v1alpha1.LatencyVerificationStatus) { status.Changed = nil },
	fieldAcceptRefused: func(status *v1alpha1.LatencyVerificationStatus) { status.AcceptRefused = nil },
	fieldPreexisting:   func(status *v1alpha1.LatencyVerificationStatus) { status.Preexisting = false },
	fieldFailConfirmed: func(status *v1alpha1.LatencyVerificationStatus) { status.FailConfirmed = false },
	fieldTurn:          func(status *v1alpha1.LatencyVerificationStatus) { status.Turn = nil },
	fieldTurnRequest:   func(status *v1alpha1.LatencyVerificationStatus) { status.TurnRequestTime = nil },
	fieldAll: func(status *v1alpha1.LatencyVerificationStatus) {
		*status = v1alpha1.LatencyVerificationStatus{Number: status.Number, Retained: status.Retained, MarkFailures: status.MarkFailures, Requests: status.Requests}
	},
}

func (e nodeEvent) transition() *transition {
	for i := range transitions {
		if transitions[i].event == e {
			return &transitions[i]
		}
	}
	return nil
}

func (e nodeEvent) begins() bool {
	return e == eventChanged || e == eventReplaced || e == eventReturned || e == eventAdopted
}

var observed = effect{[]statusField{"baselineTrouble", "retained", "gateUID", "identity", "absent", "systemUUID"}, func(c *change) {
	w, status := c.world, c.status
	status.BaselineTrouble, status.Retained, status.GateUID = w.baselineTrouble, w.retention(), string(w.gate.UID)
	if w.node != nil && !c.event.begins() {
		// The gate's keys may have changed, and unknown values are known now.
		is := w.compare()
		status.Identity, status.Absent = is.Values, is.Absent
		status.SystemUUID = identity.LatestUUID(w.node.Status.NodeInfo.SystemUUID, status.SystemUUID)
	}
}}

func (w *world) next(s step) (v1alpha1.LatencyVerificationStatus, error) {
	status := *w.verification.Status.DeepCopy()
	w.setDeletable(&status)
	observed.apply(&change{step: s, now: w.now, world: w, before: &w.verification.Status, status: &status})
	var err error
	if s.event.transition() != nil {
		status, err = s.apply(w, w.verification, status, w.now)
	}
	w.conclude(&status)
	return status, err
}

func (c *change) requests() *v1alpha1.ProcessedRequests {
	c.status.Requests = cmp.Or(c.status.Requests, &v1alpha1.ProcessedRequests{})
	return c.status.Requests
}

// conclude makes conditions agree with the state, the node's readiness and the generation.
func (w *world) conclude(status *v1alpha1.LatencyVerificationStatus) {
	w.confirm(status)
	status.ObservedGeneration = w.verification.Generation
	for i := range status.Conditions {
		status.Conditions[i].ObservedGeneration = w.verification.Generation
	}
	standing.Publish(&status.Conditions, w.verification.Generation, w.now, standing.OfVerification(&v1alpha1.LatencyVerification{Status: *status}))
}

func (w *world) confirm(status *v1alpha1.LatencyVerificationStatus) {
	if !status.State.Passed() || w.node == nil {
		return
	}
	why := identity.NotReady(w.subject())
	now := metav1.Time{Time: w.now}
	c := metav1.Condition{Type: v1alpha1.ConditionVerified, ObservedGeneration: w.verification.Generation, LastTransitionTime: now}
	switch {
	case (why == "") == (status.State == v1alpha1.VerificationVerified):
		return
	case why != "":
		status.State, c.Status, c.Reason = v1alpha1.VerificationAway, metav1.ConditionUnknown, v1alpha1.ReasonNodeNotReady
		c.Message = why + "; it is verified again when it returns unchanged"
	default:
		status.State, c.Status, c.Reason = v1alpha1.VerificationVerified, metav1.ConditionTrue, v1alpha1.ReasonPassed
		c.Message = "the node was not ready, and has not changed"
		if a := status.Accepted; a != nil {
			c.Message += "; its result is that of LatencyBenchmark " + a.Benchmark
			if result := find(status.History, a.Benchmark); a.By == v1alpha1.AcceptedByHand {
				c.Reason = v1alpha1.ReasonAcceptedByHand
			} else if result != nil {
				c.Reason = result.Reason // It may be provisional.
			}
		}
	}
	status.LastTransitionTime = &now
	meta.SetStatusCondition(&status.Conditions, c)
}

func (w *world) setDeletable(status *v1alpha1.LatencyVerificationStatus) {
	if w.verification.DeletionTimestamp.IsZero() {
		return
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionDeletable, Status: metav1.ConditionFalse, ObservedGeneration: w.verification.Generation,
		LastTransitionTime: metav1.Time{Time: w.now}, Reason: v1alpha1.ReasonNotAllVerified, Message: fmt.Sprintf(
			"the deletion waits until node %s passes or LatencyGate %s does not select it, so that its baselines are not forgotten; to accept its latency: %s",
			w.verification.Spec.NodeName, w.gate.Name, v1alpha1.FieldAccept),
	})
}

const (
	maxRetained         = 512
	maxStepFailurePeers = 8
)

// dismissed returns the status of a node without a gate; accepted results are kept for a while.
func (w *world) dismissed(after time.Duration) (v1alpha1.LatencyVerificationStatus, error) {
	v := w.verification
	s := step{event: eventDismissed, reason: v1alpha1.ReasonGateDeleted, message: fmt.Sprintf("LatencyGate %s was deleted", v.Spec.GateName)}
	s.retained = w.retained(v1alpha1.ReasonGateDeleted, after,
		"LatencyGate %s was deleted; the accepted results are kept for a gate of this name until %s; to forget them: kubectl delete latencyverifications.tailgate.dev %s", v.Spec.GateName)
	return s.apply(w, v, *v.Status.DeepCopy(), w.now)
}

// retained returns a retention since the loss. The message has: argument, end, verification's name.
func (w *world) retained(reason string, after time.Duration, format string, argument any) *v1alpha1.Retention {
	r := &v1alpha1.Retention{StartTime: metav1.Time{Time: w.now}, Reason: reason}
	owned := func(reason string) bool {
		return reason == v1alpha1.ReasonNotSelected || reason == v1alpha1.ReasonTaken
	}
	if before := w.verification.Status.Retained; before != nil && (before.Reason == reason || before.Reason == "" || owned(before.Reason) && owned(reason)) {
		r.StartTime, r.DueTime = before.StartTime, before.DueTime
	}
	r.EndTime = metav1.Time{Time: r.StartTime.Add(after)}
	look(r, w.now)
	r.Message = text.Shorten(fmt.Sprintf(format, argument, r.EndTime.UTC().Format(time.RFC3339), w.verification.Name), maxRetained)
	return r
}

func (w *world) retention() *v1alpha1.Retention {
	after := w.gate.Spec.ReleaseAfter.Duration
	switch {
	case w.node == nil:
		return w.retained(v1alpha1.ReasonNodeDeleted, after,
			"Node %s does not exist; the accepted results are kept, and a Node of this name is held back, until %s (spec.releaseAfter); to forget them: kubectl delete latencyverifications.tailgate.dev %s", w.verification.Spec.NodeName)
	case !w.disowned():
		return nil
	case w.owner != nil:
		return w.retained(v1alpha1.ReasonTaken, after, "LatencyGate %s has the node; state and baselines of %[3]s are kept until %[2]s (spec.releaseAfter)", w.owner.Name)
	}
	return w.retained(v1alpha1.ReasonNotSelected, after,
		"spec.nodeSelector of LatencyGate %s does not select the node; state and baselines are kept until %s (spec.releaseAfter); to release it at once: kubectl delete latencyverifications.tailgate.dev %s", w.gate.Name)
}

func (w *world) accepted(result v1alpha1.VerificationResult, by v1alpha1.AcceptedBy) *v1alpha1.AcceptedResult {
	return &v1alpha1.AcceptedResult{
		Benchmark: result.Benchmark, ResultPin: result.ResultPin, AcceptanceTime: metav1.Time{Time: w.now}, By: by, Peer: result.Peer,
		Identity: w.verification.Status.Identity,
	}
}

func (w *world) record(status *v1alpha1.LatencyVerificationStatus, of *v1alpha1.VerificationBenchmark, s step) error {
	pin, err := pinOf(w.benchmark)
	if err != nil {
		return err
	}
	status.LastMeasurementTime = &metav1.Time{Time: w.now}
	w.remember(status, w.benchmark, of.Peer, s.event == eventPassed)
	status.Evidence = evidence(w.benchmark)
	status.History = slices.Insert(status.History, 0, v1alpha1.VerificationResult{
		Benchmark: of.Name, CompletionTime: metav1.Time{Time: w.now}, Outcome: s.outcome, Reason: s.reason,
		Peer: of.Peer, Identity: identity.Measured(status.Identity), ResultPin: pin, Ratio: ratio(w.benchmark.Status.Verdict),
	})
	if s := w.benchmark.Status.Summary; s != nil {
		status.History[0].P50, status.History[0].P99 = s.P50, s.P99
	}
	status.History = status.History[:min(len(status.History), int(w.gate.Spec.HistoryLimit))]
	return nil
}

func ratio(verdict *v1alpha1.Verdict) string {
	highest, found := 0.0, ""
	if verdict == nil {
		return found
	}
	for _, r := range verdict.Rules {
		if value, err := strconv.ParseFloat(r.Estimate, 64); err == nil && r.Baseline != nil && r.Unit == "Nanoseconds" && value > highest {
			highest, found = value, r.Estimate
		}
	}
	return found
}

var reportedChecks = []string{v1alpha1.ProofDriver, v1alpha1.ProofFirmware, v1alpha1.ProofFirmwareVariant, v1alpha1.ProofAcceleration}

func evidence(b *v1alpha1.LatencyBenchmark) []v1alpha1.ProofLine {
	i := slices.IndexFunc(b.Status.Endpoints, func(e v1alpha1.Endpoint) bool { return e.Role == v1alpha1.RoleClient })
	if i < 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(b.Status.Endpoints[i].Proof), func(line v1alpha1.ProofLine) bool {
		return !slices.Contains(reportedChecks, line.Check)
	})
}
