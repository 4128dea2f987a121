package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of a LatencyGate. It also has ConditionPassed.
const (
	// ConditionOperational is True while the gate can do all of its work. When it is False, the message says what prevents it.
	ConditionOperational = "Operational"
	// ConditionChangeShifted is True while the last change made the nodes, as a whole, slower by more than half of the tolerance; condition
	// Passed is then False. It is absent while fewer than 6 nodes were measured before and after a change.
	ConditionChangeShifted = "ChangeShifted"
	ReasonChangeShifted    = "ChangeShifted" // with ConditionChangeShifted and ConditionPassed
)

// Condition types of a LatencyVerification.
const (
	// ConditionVerified is True while the node is verified, False when its result failed, and Unknown while it waits, is
	// measured, or nothing could be concluded.
	ConditionVerified = "Verified"
	// ConditionDeletable is False while a deletion of the LatencyVerification waits for the node to pass, and otherwise absent.
	ConditionDeletable = "Deletable"
)

// Reasons of ConditionOperational.
const (
	ReasonOperational = "Operational" // when nothing prevents the work of the gate
	// ReasonCannotSettle surfaces when none of the nodes that were there before the gate can be measured until a user acts. The gate holds
	// back only nodes that join. Condition Ready is False.
	ReasonCannotSettle = "CannotSettle"
	// ReasonUnprotected surfaces when admission policies of the installation are missing or do not apply to the manager. The gate
	// works, and the API server does not refuse what they would refuse.
	ReasonUnprotected = "Unprotected"
	// ReasonScheduleInvalid surfaces when schedule or timeZone cannot be parsed: the schedule causes no measurements.
	ReasonScheduleInvalid = "ScheduleInvalid"
	// ReasonBenchmarkRefused surfaces when a benchmark of the gate cannot be created: its namespace does not exist, a quota is
	// used up, a webhook denies it. It is also a reason of state Unverified. Other nodes are measured meanwhile.
	// In ConditionSucceeded of a LatencyMatrix it says the same about the benchmark of a pair.
	ReasonBenchmarkRefused = "BenchmarkRefused"
	// ReasonNoProgress surfaces when the gate deleted a benchmark because it made no progress for minutes: a pod
	// cannot be removed from a dead node, or the nodes are busy; also when the turn of a verified node ended before it could be
	// measured. It is also a reason of state Unverified. The node is measured again, with another peer if there is one.
	ReasonNoProgress = "NoProgress"
	// ReasonNodeHeld and ReasonNodeReleased are on the Node when a gate holds it back, and when it does so no more.
	ReasonNodeHeld     = "NodeHeld"
	ReasonNodeReleased = "NodeReleased"
	// ReasonNodeRefused surfaces when the API server refuses a mark on a node: a webhook or policy denies it, for example because the
	// provider manages taints.
	ReasonNodeRefused = "NodeRefused"
	// ReasonNodeWriteDropped surfaces when the API server accepts the write of a mark and drops the mark: a mutating webhook or policy
	// removes it.
	ReasonNodeWriteDropped = "NodeWriteDropped"
	ReasonNodeContested    = "NodeContested" // when another client repeatedly changes a mark back
	// ReasonDevicesWithheld surfaces when the gate's own taint, or a cordon that its template tolerates, would unload a kernel module or
	// keep a device plugin away from its nodes. A gate without nodes then takes none.
	ReasonDevicesWithheld = "DevicesWithheld"
	// ReasonTemplateTooLong surfaces when the template measures cordoned nodes for longer than the tool waits that cordons them. A gate
	// without nodes then takes none.
	ReasonTemplateTooLong = "TemplateTooLong"
	// ReasonLabelMissing surfaces when no node of the gate has a label of spec.identity.labels: it is misspelt, or what sets it does not
	// run, and a change is not noticed.
	ReasonLabelMissing   = "LabelMissing"
	ReasonHoldPodRefused = "HoldPodRefused" // when a hold pod cannot be created, changed or deleted
	ReasonHoldPodEnded   = "HoldPodEnded"   // when a hold pod does not keep running: its node evicts or rejects it
	// ReasonHoldPodReplaced surfaces when the operator deleted a pod with the name of a hold pod, because it did not create it or
	// another client changed it.
	ReasonHoldPodReplaced = "HoldPodReplaced"
	// ReasonVerificationRefused surfaces when the API server refuses to create the LatencyVerification of a node, or to write its
	// status: a webhook denies it or does not answer.
	ReasonVerificationRefused = "VerificationRefused"
	// ReasonNodesUnmeasurable surfaces when nodes cannot be measured until a user acts: the template does not tolerate a
	// taint of a node, or there is no other node that could be a peer.
	ReasonNodesUnmeasurable = "NodesUnmeasurable"
	ReasonNodesWaiting      = "NodesWaiting" // when a node has waited for longer than 30 minutes for anything but its turn
	// ReasonMeasurementHeldUp surfaces while a benchmark of the gate cannot start: it is not accepted, or a pod of it is refused or
	// does not start.
	ReasonMeasurementHeldUp = "MeasurementHeldUp"
	// ReasonNoRoom surfaces when nodes have been due by the schedule for more than 30 minutes or since its last time but one, and they or
	// all their peers have no room for the pods of a benchmark. They keep their state.
	ReasonNoRoom = "NoRoom"
	// ReasonScheduleTooShort surfaces when nodes were not measured in the time from one time of the schedule to the next, or in
	// scheduleWindow.
	ReasonScheduleTooShort = "ScheduleTooShort"
	// ReasonSchedulePaused surfaces when turns of the schedule ended without a result, several in a row: something
	// prevents all measurements. The nodes were given back as they were, except those whose benchmark failed on the node.
	ReasonSchedulePaused = "SchedulePaused"
	// ReasonEnvironmentFailed surfaces when a benchmark failed because of the cluster and not because of a result: a pod
	// was evicted or refused, or a node was lost. It is also a reason of state Unverified. The node is measured again.
	ReasonEnvironmentFailed = "EnvironmentFailed"
	ReasonNodesTaken        = "NodesTaken" // when nodes that the gate selects belong to an older gate
	ReasonSuspended         = "Suspended"  // while spec.suspend is set
)

// Reasons of status.retained of a LatencyVerification.
const (
	ReasonNotSelected = "NotSelected" // while the gate's nodeSelector does not select the node
	ReasonTaken       = "Taken"       // while the node belongs to another gate
	// ReasonNodeDeleted surfaces while the Node does not exist. It is also a reason of state Unverified.
	ReasonNodeDeleted = "NodeDeleted"
	// ReasonGateDeleted surfaces after the gate was deleted. It is also a reason of state Unverified.
	ReasonGateDeleted = "GateDeleted"
)

// Reasons of ConditionPassed of a LatencyGate. ReasonNodesTaken, too, makes it Unknown.
const (
	ReasonAllVerified       = "AllVerified"       // with True
	ReasonNodesFailed       = "NodesFailed"       // with False when a node failed
	ReasonTooManyUnverified = "TooManyUnverified" // with False when more than maxUnverified nodes are not verified
	ReasonNotAllVerified    = "NotAllVerified"    // with Unknown while nodes wait, are measured or are inconclusive
	// ReasonNodesNotReady surfaces with Unknown when all nodes are verified, and some are not ready: their identity is unknown.
	ReasonNodesNotReady = "NodesNotReady"
	ReasonNoNodes       = "NoNodes" // with Unknown when the gate selects no node
)

// Reasons of state Unverified: why the node is held back, or measured again.
const (
	ReasonNewNode = "NewNode" // when the gate sees a node for the first time
	// ReasonNodeReplaced surfaces when a Node was deleted and created again with the same name. It keeps the accepted results, unless
	// it is for a machine with another system UUID.
	ReasonNodeReplaced = "NodeReplaced"
	// ReasonGateReplaced surfaces when the gate was deleted and created again with the same name. The node keeps the accepted results.
	ReasonGateReplaced    = "GateReplaced"
	ReasonIdentityChanged = "IdentityChanged" // when a key of the node's identity changed
	ReasonScheduleDue     = "ScheduleDue"     // when the schedule asks for a measurement and it is the node's turn
	ReasonVerifyRequested = "VerifyRequested" // when a user requested it by spec.verify
	// ReasonSecondPeer surfaces when the node failed with a peer that is not verified: a measurement with another peer
	// shows which of the two is slow.
	ReasonSecondPeer = "SecondPeer"
	// ReasonBenchmarkDeleted surfaces when a user deleted the benchmark that measured the node. The gate creates it again
	// twice; then this is a reason of state Inconclusive.
	ReasonBenchmarkDeleted = "BenchmarkDeleted"
	ReasonBenchmarkEdited  = "BenchmarkEdited" // likewise, when a user edited it
)

// Reasons of the other states. With Verified, ReasonNodeNotReady surfaces while the node is not ready, because it may return changed:
// condition Verified is Unknown. Failed and Inconclusive also have the reasons of the benchmark's condition Passed. Unverified also
// has ReasonNotAccepted when a benchmark waited too long for resources that the node does not provide.
const (
	ReasonMeasuring      = "Measuring"      // with Measuring
	ReasonPassed         = "Passed"         // with Verified when the result passed
	ReasonAcceptedByHand = "AcceptedByHand" // with Verified when a user accepted the result
	// ReasonProvisional surfaces with Verified when the result passed, and too little is known of how much boots differ for a promise: the
	// reference is one boot, of another peer, or lacks a compared value, fewer than 8 nodes of the kind, or too few boots of the node,
	// have shown it, or the first rounds of a session are slower than others. A result that would fail, if that were known, is
	// Inconclusive: its verdict has this reason.
	ReasonProvisional = "Provisional"
	// ReasonDrifted surfaces with Inconclusive when a result passed in comparison with later sessions, and is slower than the oldest
	// accepted session of the node, with another peer, by more than the tolerance.
	ReasonDrifted = "Drifted"
	// ReasonSlowerThanGroup surfaces with Inconclusive when the first session of a node is slower than those of its kind by more than the
	// tolerance.
	ReasonSlowerThanGroup = "SlowerThanGroup"
	// ReasonNothingToCompare surfaces with Inconclusive when the node has no accepted result, and every rule of the
	// template compares with one.
	ReasonNothingToCompare = "NothingToCompare"
)

// Reasons of events that are not reasons of a state.
const (
	ReasonAcceptRefused = "AcceptRefused" // when spec.accept names a benchmark that cannot be accepted
	// ReasonReleased surfaces when the gate has not selected a node for spec.releaseAfter: it is not held back any more, and
	// its baselines are gone.
	ReasonReleased = "Released"
)

// SetCondition sets a condition for the current generation of the spec. The transition time changes with the status only.
func (g *LatencyGate) SetCondition(c metav1.Condition) {
	c.ObservedGeneration = g.Generation
	meta.SetStatusCondition(&g.Status.Conditions, c)
}
