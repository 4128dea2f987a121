package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of a LatencyGate. It also has ConditionPassed.
const (
	// ConditionReady is True while the gate does its work, and False, with what stands in the way, while it cannot do all
	// of it.
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
	// ReasonReady surfaces when nothing stands in the way.
	ReasonReady = "Ready"
	// ReasonScheduleInvalid surfaces when schedule or timeZone cannot be understood: nothing is measured by it.
	ReasonScheduleInvalid = "ScheduleInvalid"
	// ReasonBenchmarkRefused surfaces when a benchmark of the gate cannot be made: its namespace does not exist, a quota is
	// used up, a webhook denies it. It is also a reason of state Unverified. Other nodes are measured meanwhile.
	// With ConditionSucceeded of a LatencyMatrix it says the same of the benchmark of a pair.
	ReasonBenchmarkRefused = "BenchmarkRefused"
	// ReasonNoProgress surfaces when a benchmark of the gate was given up, because for minutes nothing of it was measured: a
	// pod that cannot be removed from a dead node, or nodes that are busy. It is also a reason of state Unverified. The node
	// is measured again, with another peer if there is one.
	ReasonNoProgress = "NoProgress"
	// ReasonHoldPodRefused surfaces when a hold pod cannot be made.
	ReasonHoldPodRefused = "HoldPodRefused"
	// ReasonHoldPodEnded surfaces when a hold pod does not stay: its node evicts or rejects it.
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
	// ReasonTaken surfaces while another gate has the node.
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
	// ReasonNoNodes surfaces with Unknown when the gate selects no node: there is nothing that could have passed.
	ReasonNoNodes = "NoNodes"
)

// Reasons of state Unverified: why the node is held back, or measured once more.
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
	// ReasonSecondPeer surfaces when the node failed with a peer that is not verified itself: another peer tells which of
	// the two is slow.
	ReasonSecondPeer = "SecondPeer"
	// ReasonRetry surfaces when nothing could be concluded, and onInconclusive asks for another measurement.
	ReasonRetry = "Retry"
	// ReasonBenchmarkDeleted surfaces when a user deleted the benchmark that measured the node. The gate creates it again
	// twice; then this is a reason of state Inconclusive.
	ReasonBenchmarkDeleted = "BenchmarkDeleted"
	// ReasonBenchmarkEdited surfaces, likewise, when a user edited it.
	ReasonBenchmarkEdited = "BenchmarkEdited"
)

// Reasons of the other states. Failed and Inconclusive also have those of the benchmark's condition Passed. Unverified also
// has ReasonNotAccepted when a benchmark waited too long for resources that the node does not provide.
const (
	// ReasonMeasuring surfaces with Measuring.
	ReasonMeasuring = "Measuring"
	// ReasonPassed surfaces with Verified when the result passed.
	ReasonPassed = "Passed"
	// ReasonAcceptedByHand surfaces with Verified when a user accepted the result.
	ReasonAcceptedByHand = "AcceptedByHand"
	// ReasonDrifted surfaces with Failed when the result holds its rules against the accepted one, but not against the
	// first of its epoch.
	ReasonDrifted = "Drifted"
	// ReasonDriftUnknown surfaces with Inconclusive when it holds them against the accepted one, and nothing can be
	// concluded from the first.
	ReasonDriftUnknown = "DriftUnknown"
	// ReasonNothingToCompare surfaces with Inconclusive when the node has no accepted result, and the template no rule that
	// needs none.
	ReasonNothingToCompare = "NothingToCompare"
)

// Reasons of events that are not those of a state.
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
