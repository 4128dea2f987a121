package gate

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/queue"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/sessions"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/turns"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

type world struct {
	now          time.Time
	gate         *v1alpha1.LatencyGate
	verification *v1alpha1.LatencyVerification
	node         *corev1.Node               // nil if it does not exist
	owner        *v1alpha1.LatencyGate      // the oldest gate that selects it; nil if no gate does
	benchmark    *v1alpha1.LatencyBenchmark // of status.benchmark, with its UID; nil if it is gone
	edited       bool
	others       []sessions.Node // of the gate's other nodes, if they were read
	formers      []*v1alpha1.LatencyVerification
	// otherPeer: the node could be measured with another peer; peerVerified: the peer of a finished
	// benchmark has been verified since it began.
	otherPeer, peerVerified bool
	named                   *v1alpha1.LatencyBenchmark // of spec.accept; nil if there is none
	baselineTrouble         string                     // a defect of the accepted result; or empty
}

type step struct {
	event nodeEvent
	// reason and message are of the new state, or of an event (eventNotAccepted, eventReleased).
	reason, message string
	changed         []v1alpha1.IdentityChange // what made the node unverified, for eventChanged
	chosen          bool                      // a user may have chosen what was measured
	outcome         v1alpha1.VerdictOutcome   // of the benchmark; empty if it does not count
	// suspect is the peer of a failure (eventOtherPeer), benchmark the new one (eventStarted).
	suspect   string
	benchmark *v1alpha1.VerificationBenchmark
	retained  *v1alpha1.Retention // why the verification is kept, for eventDismissed
	again     time.Duration       // when to look again; zero: only when something happens
}

const (
	maxDiscarded  = 2                // benchmarks created again after users deleted or edited them
	patience      = 5 * time.Minute  // without progress, while other nodes wait for the slot
	queuePatience = 30 * time.Minute // for other benchmarks, each of which has its own limit
	// The allowances exceed what the benchmark's own deadlines allow for a cell and for a run.
	cellAllowance, runAllowance = 30 * time.Second, 15 * time.Minute
)

// decide chooses the next step for a node. It is pure.
//
// Only a result that passed, or was accepted by a user, leads to Verified. What depends on the time
// only holds a node back, except that one not selected is released after spec.releaseAfter.
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
	case w.disowned() && left <= 0:
		return step{event: eventReleased, reason: v1alpha1.ReasonReleased, message: fmt.Sprintf(
			"LatencyGate %s has not selected node %s for %s (spec.releaseAfter)", w.gate.Name, v.Spec.NodeName, w.gate.Spec.ReleaseAfter.Duration)}
	}
	s := decideState(w)
	if w.disowned() {
		s.again = queue.Soonest(s.again, left)
	}
	return s
}

func (w *world) disowned() bool { return w.owner == nil || w.owner.Name != w.gate.Name }

// holds reports whether the gate may hold the node back: it owns the node, or no gate does.
func (w *world) holds() bool { return w.node != nil && (w.owner == nil || !w.disowned()) }

func (w *world) ofEarlierGate() bool { return ofEarlierGate(w.verification, w.gate) }

func ofEarlierGate(v *v1alpha1.LatencyVerification, gate *v1alpha1.LatencyGate) bool {
	return v.Status.GateUID != "" && v.Status.GateUID != string(gate.UID)
}

const lookAgain = 30 * time.Second // between the two looks after which a node is released

// retainedFor returns how long a lost node stays retained: at most spec.releaseAfter, until a
// second look finds it over, as clocks jump. A Node that registered again is retained from then on.
func (w *world) retainedFor() time.Duration {
	whole, r := w.gate.Spec.ReleaseAfter.Duration, w.verification.Status.Retained
	if r == nil || r.Reason == v1alpha1.ReasonNodeDeleted && w.node != nil {
		return whole
	}
	return leftOf(r, whole, w.now)
}

func leftOf(r *v1alpha1.Retention, whole time.Duration, now time.Time) time.Duration {
	left := min(whole, whole-now.Sub(r.StartTime.Time))
	switch due := r.DueTime; {
	case left > 0:
		return left
	case due == nil || due.After(now):
		return lookAgain
	default:
		return lookAgain - now.Sub(due.Time)
	}
}

func look(r *v1alpha1.Retention, now time.Time) {
	switch over := !now.Before(r.EndTime.Time); {
	case !over || r.DueTime != nil && r.DueTime.After(now):
		r.DueTime = nil
	case r.DueTime == nil:
		r.DueTime = &metav1.Time{Time: now}
	}
}

// keepsFail reports whether a deletion must wait for a Pass: it would forget accepted results, or
// that the node is not as the gate found it.
func (w *world) keepsFail() bool {
	v := w.verification
	if w.gate == nil || !w.gate.DeletionTimestamp.IsZero() || w.node == nil || w.disowned() || w.ofEarlierGate() ||
		v.Status.Accepted == nil && (v.Status.Preexisting || !turns.FoundBy(w.gate, w.node)) {
		return false
	}
	is := w.compare()
	return !v.Status.State.Passed() || identity.NotReady(w.subject()) != "" || is.Stale != "" || len(is.Absent) > 0
}

func (w *world) subject() identity.Subject { return identity.Subject{Node: w.node} }

func (w *world) compare() identity.Comparison {
	return identity.KeysOf(w.gate).Compare(w.verification, w.gate.UID, w.subject(), w.now)
}

func decideState(w *world) step {
	v, is := w.verification, w.compare()
	switch is.Stale {
	case v1alpha1.ReasonNewNode:
		return step{event: eventChanged, reason: is.Stale, message: "the node is new to the gate"}
	case v1alpha1.ReasonNodeReplaced:
		return w.recreated()
	case v1alpha1.ReasonGateReplaced:
		s := step{event: eventAdopted, reason: is.Stale, changed: is.Changes, message: "the gate was deleted and created again; the accepted results are kept"}
		if len(s.changed) > 0 {
			s.message += "; meanwhile " + identity.Sentence(s.changed)
		}
		return s
	}
	found := is.Changes
	if v.Status.Turn == nil && (v.Status.State == v1alpha1.VerificationUnverified || v.Status.State == v1alpha1.VerificationMeasuring) {
		found = slices.DeleteFunc(found, identity.FilledIn)
	}
	s := step{event: eventNothing}
	switch accepts, verifies := v.Requests(); {
	case len(found) > 0:
		s = changed(w, is.Values, found)
	case accepts != nil:
		s = accept(w, *accepts, is.Values)
	case verifies != nil && (v.Status.State.Passed() || v.Status.Turn != nil):
		s = step{event: eventAsked, reason: v1alpha1.ReasonVerifyRequested}
	case verifies != nil:
		s = requested(verifies)
		s.event = eventChanged
	case v.Status.State == v1alpha1.VerificationMeasuring:
		s = measuring(w).orGivenBack(v.Status.Turn)
	case v.Status.Turn != nil && w.disowned(): // The gate does not choose among nodes that it lost.
		s = step{event: eventHeldUp, reason: w.retention().Reason, message: w.retention().Message}.orGivenBack(v.Status.Turn)
	}
	for _, key := range is.Absent {
		s.again = queue.Soonest(s.again, key.EndTime.Sub(w.now))
	}
	return s
}

func requested(by *v1alpha1.UserRequest) step {
	return step{event: eventDue, reason: v1alpha1.ReasonVerifyRequested, message: fmt.Sprintf("%s requested it: %s", by.RequestedBy, v1alpha1.FieldVerify)}
}

// findings are the reasons of verdicts that may be the node's own doing.
var findings = []string{v1alpha1.ReasonInconclusive, v1alpha1.ReasonBenchmarkFailed, v1alpha1.ReasonSlowerThanGroup}

// orGivenBack returns the step that gives a node back if this one ends its turn without a result.
func (s step) orGivenBack(turn *v1alpha1.Turn) step {
	fruitless := s.event == eventHeldUp || s.event == eventRefused || s.event == eventDiscarded ||
		s.event == eventUndecided && !slices.Contains(findings, s.reason)
	if turn == nil || !fruitless {
		return s
	}
	return step{event: eventGivenBack, reason: s.reason, message: "its turn ended without a result, and the node is verified as before: " + s.message, again: s.again}
}

// recreated forgets the results only of another machine: else a Fail would go with the Node object.
func (w *world) recreated() step {
	was, is := w.verification.Status.SystemUUID, w.node.Status.NodeInfo.SystemUUID
	s := step{event: eventReturned, reason: v1alpha1.ReasonNodeReplaced, message: "the Node was deleted and created again"}
	switch {
	case identity.OtherMachine(was, is):
		s.event, s.message = eventReplaced, s.message+fmt.Sprintf(" for another machine: its system UUID was %q and is %q", was, text.Shorten(is, 64))
	case w.verification.Status.Accepted != nil:
		s.message += "; the accepted results of its machine are kept"
	}
	return s
}

// changed reports the difference from the accepted identity, which may have taken several steps.
func changed(w *world, current map[string]string, found []v1alpha1.IdentityChange) step {
	if accepted := w.verification.Status.Accepted; accepted != nil {
		if all := identity.Changes(accepted.Identity, current); len(all) > 0 {
			found = slices.Concat(all, slices.DeleteFunc(found, func(c v1alpha1.IdentityChange) bool { return !identity.Renewed(c) }))
		}
	}
	return step{event: eventChanged, reason: v1alpha1.ReasonIdentityChanged, message: identity.Sentence(found), changed: found}
}

func accept(w *world, request v1alpha1.AcceptRequest, current map[string]string) step {
	refuse := func(format string, args ...any) step {
		return step{event: eventNotAccepted, reason: v1alpha1.ReasonAcceptRefused, message: fmt.Sprintf(format, args...)}
	}
	name, uid := request.Benchmark, request.UID
	known := find(w.verification.Status.History, name)
	var is v1alpha1.ResultPin
	var err error
	if w.named != nil {
		is, err = pinOf(w.named)
	}
	switch {
	case err != nil:
		return refuse("%v", err)
	case known == nil:
		return refuse("%q is not among the benchmarks of status.history: only a finished result of this node can be accepted", text.Shorten(name, 64))
	case w.named == nil || !metav1.IsControlledBy(w.named, w.verification):
		return refuse("LatencyBenchmark %s does not exist any more", name)
	case uid != "" && uid != known.UID:
		return refuse("the result of LatencyBenchmark %s in status.history has UID %s, and not %s", name, known.UID, text.Shorten(uid, 64))
	case is != known.ResultPin:
		return refuse("LatencyBenchmark %s is not the one whose result is in status.history: it was created again, edited, or its stored results changed", name)
	case !meta.IsStatusConditionTrue(w.named.Status.Conditions, v1alpha1.ConditionSucceeded):
		return refuse("LatencyBenchmark %s is not complete: only a complete result can be accepted", name)
	case !identity.Same(known.Identity, identity.Measured(current)):
		return refuse("LatencyBenchmark %s measured the node before it changed, or by other keys; request a new measurement: %s", name, v1alpha1.FieldVerify)
	}
	return step{event: eventAccepted, reason: v1alpha1.ReasonAcceptedByHand, message: fmt.Sprintf("%s was accepted manually, with outcome %s", name, known.Outcome)}
}

// specDigest digests a spec without its priority, which changes no result and may be edited.
func specDigest(spec v1alpha1.LatencyBenchmarkSpec) (string, error) {
	spec.Priority = 0
	return result.Digest(spec)
}

func pinOf(b *v1alpha1.LatencyBenchmark) (v1alpha1.ResultPin, error) {
	spec, err := specDigest(b.Spec)
	if err != nil {
		return v1alpha1.ResultPin{}, err
	}
	stored, err := result.Digest(b.Status.Stored)
	return v1alpha1.ResultPin{UID: string(b.UID), SpecSHA256: spec, StoredSHA256: stored}, err
}

func acceptable(v *v1alpha1.LatencyVerification) *v1alpha1.VerificationResult {
	request, _ := v.Requests()
	if request == nil {
		return nil
	}
	return find(v.Status.History, request.Benchmark)
}

func find(history []v1alpha1.VerificationResult, name string) *v1alpha1.VerificationResult {
	if i := slices.IndexFunc(history, func(r v1alpha1.VerificationResult) bool { return r.Benchmark == name }); i >= 0 {
		return &history[i]
	}
	return nil
}

func measuring(w *world) step {
	b, current := w.benchmark, w.verification.Status.Benchmark
	switch {
	case current == nil, b == nil, string(b.UID) != current.UID, !b.DeletionTimestamp.IsZero():
		return measuredAgain(w, v1alpha1.ReasonBenchmarkDeleted, "a user deleted the benchmark that measured the node")
	case w.edited:
		return measuredAgain(w, v1alpha1.ReasonBenchmarkEdited, "a user edited or suspended the benchmark that measured the node; edit or suspend the gate instead")
	case !b.Finished():
		return unfinished(w)
	case meta.IsStatusConditionFalse(b.Status.Conditions, v1alpha1.ConditionSucceeded):
		return benchmarkFailed(w)
	case b.Spec.Criteria == nil:
		return step{
			event: eventUndecided, outcome: v1alpha1.VerdictInconclusive, reason: v1alpha1.ReasonNothingToCompare,
			message: fmt.Sprintf("there is no accepted result to compare with, and no rule with max or min; check LatencyBenchmark %s and accept it: kubectl tailgate accept %s %s",
				b.Name, w.verification.Name, b.Name),
		}
	}
	passed := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionPassed)
	if passed == nil || passed.ObservedGeneration != b.Generation || passed.Reason == v1alpha1.ReasonNotJudged {
		return waits(w, progress(w), patience, v1alpha1.ReasonNoProgress, "it is finished without a verdict")
	}
	switch {
	case passed.Status == metav1.ConditionTrue && discarded(b) != "":
		return measuredAgain(w, v1alpha1.ReasonBenchmarkEdited, "a user could have chosen the result, unless the path or the cluster caused it: "+discarded(b))
	case passed.Status == metav1.ConditionTrue:
		return accepted(w, passed.Message)
	case passed.Status == metav1.ConditionFalse:
		return failed(w, v1alpha1.ReasonFail, passed.Message)
	default:
		return inconclusive(passed.Reason, passed.Message)
	}
}

// discards are the outcomes with which a user who may write pods, networks or network policies, or
// run a command in a pod, can end an attempt. Where the cause was another, it is measured once more.
var discards = []string{
	v1alpha1.OutcomePodLost, v1alpha1.OutcomeSuspended, v1alpha1.OutcomeNodeLost, v1alpha1.OutcomeAgentFailed, v1alpha1.OutcomeDeadlineExceeded,
	v1alpha1.OutcomeNameTaken, v1alpha1.OutcomeResultMissing, v1alpha1.OutcomeResultCorrupt, v1alpha1.OutcomeOOMKilled,
	v1alpha1.OutcomePeerUnreachable, v1alpha1.OutcomeToolTimeout, v1alpha1.OutcomeWrongPeer, v1alpha1.OutcomeEvicted,
	v1alpha1.OutcomeNetworkMissing, v1alpha1.OutcomeNetworkChanged, v1alpha1.OutcomeProfileInvalid,
}

// discarded returns the attempt that a user may have ended to avoid its result; empty if none.
func discarded(b *v1alpha1.LatencyBenchmark) string {
	measured := map[string]bool{}
	for _, a := range b.Status.Attempts {
		switch {
		case measured[a.Run]:
			return fmt.Sprintf("%s was measured, and again in attempt %d", a.Run, a.Attempt)
		case slices.Contains(discards, a.Outcome.Reason):
			return fmt.Sprintf("attempt %d of %s ended with %s", a.Attempt, a.Run, a.Outcome.Reason)
		}
		measured[a.Run] = a.Outcome.Reason == v1alpha1.OutcomeMeasured
	}
	return ""
}

func unfinished(w *world) step {
	b := w.benchmark
	message := "its status has no condition yet"
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSucceeded); c != nil {
		message = fmt.Sprintf("%s: %s", c.Reason, c.Message)
	}
	accepted := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionAccepted)
	limit, since := patience, progress(w)
	switch active := b.Status.Active; {
	case active != nil && active.Outcome == nil:
		limit = runPatience(b.Spec)
	case active != nil:
	case accepted != nil && accepted.Status == metav1.ConditionFalse:
		if refused := accepted.LastTransitionTime.Time; !refused.After(w.now) {
			since = refused
		}
		if accepted.Reason == v1alpha1.ReasonDevicePluginUnavailable { // for which the benchmark itself waits as long
			limit = plan.PluginPatience
		}
		return waits(w, since, limit, v1alpha1.ReasonNotAccepted, accepted.Reason+": "+accepted.Message)
	case accepted != nil:
		limit = queuePatience
	}
	return waits(w, since, limit, v1alpha1.ReasonNoProgress, message)
}

func progress(w *world) time.Time {
	last := w.verification.Status.Benchmark.StartTime.Time
	note := func(t time.Time) {
		// The clock of the manager that wrote it may have been ahead.
		if t.After(last) && !t.After(w.now) {
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

// runPatience exceeds the benchmark's own deadline; it is for one that no manager reconciles.
func runPatience(spec v1alpha1.LatencyBenchmarkSpec) time.Duration {
	var longest time.Duration
	for _, v := range plan.Variants(spec) {
		cells := plan.Cells(spec, v)
		longest = max(longest, 2*plan.MeasuringTime(cells)+time.Duration(len(cells))*cellAllowance)
	}
	return longest + runAllowance
}

func waits(w *world, since time.Time, limit time.Duration, reason, message string) step {
	if left := limit - w.now.Sub(since); left > 0 {
		return step{event: eventNothing, again: min(left, limit)}
	}
	// There is no result to be judged, and so no outcome.
	return step{event: eventHeldUp, reason: reason, message: fmt.Sprintf("LatencyBenchmark %s with peer %s was abandoned after %s without progress (%s)",
		w.benchmark.Name, w.verification.Status.Benchmark.Peer, limit, message)}
}

// accepted returns the step for a Pass, provisional where too little is known of other boots.
func accepted(w *world, message string) step {
	s := step{event: eventPassed, outcome: v1alpha1.VerdictPass, reason: v1alpha1.ReasonPassed, message: message}
	session, current := ptr.Deref(w.benchmark.Status.Session, v1alpha1.Session{}), w.verification.Status.Benchmark
	template := w.gate.Spec.Template.Benchmark()
	r, tolerances := session.Reference, turns.Tolerances(template)
	if drifted := sessions.Drifted(w.verification.Status.Reference, current.Peer, session.Rounds, tolerances); drifted != "" {
		return inconclusive(v1alpha1.ReasonDrifted, fmt.Sprintf("%s; if that is right, accept it: %s: %s", drifted, v1alpha1.FieldAccept, message))
	}
	why := "its reference is one result, and how much boots differ is assumed"
	if r != nil {
		why = r.Provisional
	}
	if why == "" && len(tolerances) > v1alpha1.MaxSeries {
		why = fmt.Sprintf("%d of %d compared values are not in its reference, which keeps at most %d", len(tolerances)-v1alpha1.MaxSeries, len(tolerances), v1alpha1.MaxSeries)
	}
	if why == "" && (!current.PeerVerified || !w.peerVerified) {
		why = fmt.Sprintf("peer %s was not verified itself from begin to end", current.Peer)
	}
	if !template.Criteria.Against(v1alpha1.BaselineGate) {
		return s
	}
	switch unbounded := verdict.Unbounded(template.Criteria.Rules, w.benchmark.Spec.Criteria.Rules, preflight.Planned(template)); {
	case w.verification.Status.Accepted == nil && unbounded != "":
		return inconclusive(v1alpha1.ReasonNothingToCompare, fmt.Sprintf(
			"no rule has an absolute limit (max of a latency, min of a throughput) for %s, so that the first result shows nothing about it; check LatencyBenchmark %s and accept it: kubectl tailgate accept %s %s: %s",
			unbounded, w.benchmark.Name, w.verification.Name, w.benchmark.Name, message))
	case w.verification.Status.Accepted == nil:
		slower, note := w.first(sessions.Levels(session.Rounds), tolerances)
		if slower != "" {
			return inconclusive(v1alpha1.ReasonSlowerThanGroup, fmt.Sprintf("%s; if that is right, accept it: %s: %s", slower, v1alpha1.FieldAccept, message))
		}
		s.message = "this boot becomes the reference of the node" + note + ": " + message
		return s
	case why != "":
		s.reason, s.message = v1alpha1.ReasonProvisional, "provisional, because "+why+": "+message
	default:
		s.message = r.Description + ": " + message
	}
	return s
}

// failed fails a node only with two peers, if there are: one pair does not show which node is slow.
func failed(w *world, reason, message string) step {
	current, suspect := w.verification.Status.Benchmark, w.verification.Status.SuspectPeer
	doubt := ""
	if !current.PeerVerified {
		doubt = ", which was not verified itself"
	} else if s := w.benchmark.Status.Session; s != nil && s.Reference != nil && !s.Reference.SamePeer {
		doubt = ", with which the node has no reference"
	}
	switch {
	case suspect != "":
		message = fmt.Sprintf("with peer %s, as with %s: %s", current.Peer, suspect, message)
	case w.otherPeer:
		return step{
			event: eventOtherPeer, outcome: v1alpha1.VerdictFail, reason: v1alpha1.ReasonSecondPeer, suspect: current.Peer,
			message: fmt.Sprintf("it failed with peer %s%s; a measurement with another peer will show which of them is slow: %s", current.Peer, doubt, message),
		}
	default:
		message = fmt.Sprintf("with peer %s%s, and there is no other to show which of them is slow: %s", current.Peer, doubt, message)
	}
	return step{event: eventFailed, outcome: v1alpha1.VerdictFail, reason: reason, message: message}
}

// inconclusive does not measure again: another look would add to the error.
func inconclusive(reason, message string) step {
	return step{event: eventUndecided, outcome: v1alpha1.VerdictInconclusive, reason: reason, message: message}
}

func measuredAgain(w *world, reason, message string) step {
	if w.verification.Status.Discarded < maxDiscarded {
		return step{event: eventDiscarded, reason: reason, message: message + "; it is measured again"}
	}
	return step{event: eventUndecided, reason: reason, message: message + ", repeatedly; request a new measurement when that has stopped: " + v1alpha1.FieldVerify}
}

var clusterFaults = []string{
	v1alpha1.OutcomeEvicted, v1alpha1.OutcomeNodeLost, v1alpha1.OutcomePodLost, v1alpha1.OutcomePodRefused, v1alpha1.OutcomeNetworkRefused,
	v1alpha1.OutcomeStoreRefused, v1alpha1.OutcomeUnschedulable, v1alpha1.OutcomeImagePullFailed, v1alpha1.OutcomeUnexpectedAdmission,
	v1alpha1.OutcomeAdmissionRejected, v1alpha1.OutcomeDevicePluginUnavailable, v1alpha1.OutcomeStartTimeout,
}

// lentFaults are further outcomes after which a node in its turn is given back: the pods lacked
// something, or the operator was away. All others may be the node's own doing.
var lentFaults = []string{
	v1alpha1.OutcomeNetworkFailed, v1alpha1.OutcomeNetworkMissing, v1alpha1.OutcomeNetworkChanged, v1alpha1.OutcomeProfileInvalid,
	v1alpha1.OutcomeContainerConfig, v1alpha1.OutcomeToolMissing, v1alpha1.OutcomeVersionMismatch, v1alpha1.OutcomeOccupationExceeded,
}

// benchmarkFailed measures again if the cluster is the cause. A user who deletes pods chooses
// results: a benchmark with results that lost a pod is repeated at most maxDiscarded times.
func benchmarkFailed(w *world) step {
	b := w.benchmark
	message := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSucceeded).Message
	fault := ""
	if n := len(b.Status.Attempts); n > 0 {
		fault = b.Status.Attempts[n-1].Outcome.Reason
	}
	chosen := fault == v1alpha1.OutcomePodLost && len(b.Status.Stored) > 0
	cluster := slices.Contains(clusterFaults, fault) || w.verification.Status.Turn != nil && slices.Contains(lentFaults, fault)
	if !cluster || chosen && w.verification.Status.Discarded >= maxDiscarded {
		return inconclusive(v1alpha1.ReasonBenchmarkFailed, message)
	}
	return step{event: eventHeldUp, chosen: chosen, reason: v1alpha1.ReasonEnvironmentFailed, message: fmt.Sprintf(
		"LatencyBenchmark %s with peer %s failed because of the cluster: %s", b.Name, w.verification.Status.Benchmark.Peer, message)}
}
