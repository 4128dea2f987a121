package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of a LatencyGate. It also has ConditionPassed.
const (
	// ConditionReady is True while the gate can do all of its work. When it is False, the message says what prevents it.
	ConditionReady = "Ready"
)

// Condition types of a LatencyVerification.
const (
	// ConditionVerified is True while the node is verified, False when its result failed, and Unknown while it waits, is
	// measured, or nothing could be concluded.
	ConditionVerified = "Verified"
)

// Reasons of ConditionReady.
const (
	// ReasonReady surfaces when nothing prevents the work of the gate.
	ReasonReady = "Ready"
	// ReasonScheduleInvalid surfaces when schedule or timeZone cannot be parsed: the schedule causes no measurements.
	ReasonScheduleInvalid = "ScheduleInvalid"
	// ReasonBenchmarkRefused surfaces when a benchmark of the gate cannot be created: its namespace does not exist, a quota is
	// used up, a webhook denies it. It is also a reason of state Unverified. Other nodes are measured meanwhile.
	// In ConditionSucceeded of a LatencyMatrix it says the same about the benchmark of a pair.
	ReasonBenchmarkRefused = "BenchmarkRefused"
	// ReasonNoProgress surfaces when the gate deleted a benchmark because it made no progress for minutes: a pod
	// cannot be removed from a dead node, or the nodes are busy. It is also a reason of state Unverified. The node
	// is measured again, with another peer if there is one.
	ReasonNoProgress = "NoProgress"
	// ReasonHoldPodRefused surfaces when a hold pod cannot be created.
	ReasonHoldPodRefused = "HoldPodRefused"
	// ReasonHoldPodEnded surfaces when a hold pod does not keep running: its node evicts or rejects it.
	ReasonHoldPodEnded = "HoldPodEnded"
	// ReasonNodesTaken surfaces when nodes that the gate selects belong to an older gate.
	ReasonNodesTaken = "NodesTaken"
	// ReasonSuspended surfaces while spec.suspend is set.
	ReasonSuspended = "Suspended"
)

// Reasons of status.retained of a LatencyVerification.
const (
	// ReasonNotSelected surfaces while the gate's nodeSelector does not select the node.
	ReasonNotSelected = "NotSelected"
	// ReasonTaken surfaces while the node belongs to another gate.
	ReasonTaken = "Taken"
)

// Reasons of ConditionPassed of a LatencyGate. ReasonNodesTaken, too, makes it Unknown.
const (
	// ReasonAllVerified surfaces with True.
	ReasonAllVerified = "AllVerified"
	// ReasonNodesFailed surfaces with False when a node failed.
	ReasonNodesFailed = "NodesFailed"
	// ReasonTooManyUnverified surfaces with False when more than maxUnverified nodes are not verified.
	ReasonTooManyUnverified = "TooManyUnverified"
	// ReasonNotAllVerified surfaces with Unknown while nodes wait, are measured or are inconclusive.
	ReasonNotAllVerified = "NotAllVerified"
	// ReasonNoNodes surfaces with Unknown when the gate selects no node.
	ReasonNoNodes = "NoNodes"
)

// Reasons of state Unverified: why the node is held back, or measured again.
const (
	// ReasonNewNode surfaces when the gate sees a node for the first time.
	ReasonNewNode = "NewNode"
	// ReasonNodeReplaced surfaces when a Node was deleted and created again with the same name. It starts without the results of
	// the deleted one.
	ReasonNodeReplaced = "NodeReplaced"
	// ReasonIdentityChanged surfaces when a key of the node's identity changed.
	ReasonIdentityChanged = "IdentityChanged"
	// ReasonScheduleDue surfaces when the schedule asks for a measurement and it is the node's turn.
	ReasonScheduleDue = "ScheduleDue"
	// ReasonVerifyRequested surfaces when a user requested it with the annotation AnnotationVerify.
	ReasonVerifyRequested = "VerifyRequested"
	// ReasonSecondPeer surfaces when the node failed with a peer that is not verified: a measurement with another peer
	// shows which of the two is slow.
	ReasonSecondPeer = "SecondPeer"
	// ReasonRetry surfaces when nothing could be concluded, and onInconclusive asks for another measurement.
	ReasonRetry = "Retry"
	// ReasonBenchmarkDeleted surfaces when a user deleted the benchmark that measured the node. The gate creates it again
	// twice; then this is a reason of state Inconclusive.
	ReasonBenchmarkDeleted = "BenchmarkDeleted"
	// ReasonBenchmarkEdited surfaces, likewise, when a user edited it.
	ReasonBenchmarkEdited = "BenchmarkEdited"
)

// Reasons of the other states. Failed and Inconclusive also have the reasons of the benchmark's condition Passed. Unverified also
// has ReasonNotAccepted when a benchmark waited too long for resources that the node does not provide.
const (
	// ReasonMeasuring surfaces with Measuring.
	ReasonMeasuring = "Measuring"
	// ReasonPassed surfaces with Verified when the result passed.
	ReasonPassed = "Passed"
	// ReasonAcceptedByHand surfaces with Verified when a user accepted the result.
	ReasonAcceptedByHand = "AcceptedByHand"
	// ReasonDrifted surfaces with Failed when the result passes in comparison with the accepted result, but fails in
	// comparison with the first result of its epoch.
	ReasonDrifted = "Drifted"
	// ReasonDriftUnknown surfaces with Inconclusive when it passes in comparison with the accepted result, and the
	// comparison with the first result is inconclusive.
	ReasonDriftUnknown = "DriftUnknown"
	// ReasonNothingToCompare surfaces with Inconclusive when the node has no accepted result, and every rule of the
	// template compares with one.
	ReasonNothingToCompare = "NothingToCompare"
)

// Reasons of events that are not reasons of a state.
const (
	// ReasonAcceptRefused surfaces when annotation AnnotationAccept names a benchmark that cannot be accepted.
	ReasonAcceptRefused = "AcceptRefused"
	// ReasonReleased surfaces when the gate has not selected a node for spec.releaseAfter: it is not held back any more, and
	// its baselines are gone.
	ReasonReleased = "Released"
)

// SetCondition sets a condition for the current generation of the spec. The transition time changes with the status only.
func (g *LatencyGate) SetCondition(c metav1.Condition) {
	c.ObservedGeneration = g.Generation
	meta.SetStatusCondition(&g.Status.Conditions, c)
}
