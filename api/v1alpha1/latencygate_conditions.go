package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of a LatencyGate. It also has ConditionPassed.
const (
	// ConditionOperational is True while the gate can do all of its work.
	ConditionOperational = "Operational"
	// ConditionChangeShifted is True while the last change made at least 6 nodes, as a whole, slower by more than half
	// of the tolerance; condition Passed is then False.
	ConditionChangeShifted = "ChangeShifted"
	ReasonChangeShifted    = "ChangeShifted" // with ConditionChangeShifted and ConditionPassed
)

// Condition types of a LatencyVerification.
const (
	// ConditionVerified is False when the result of the node failed, and Unknown while nothing is concluded.
	ConditionVerified = "Verified"
	// ConditionDeletable is False while a deletion waits for the node to pass, and otherwise absent.
	ConditionDeletable = "Deletable"
)

// Reasons of ConditionOperational.
const (
	ReasonOperational         = "Operational"         // when nothing prevents the work of the gate
	ReasonCannotSettle        = "CannotSettle"        // when no node from before the gate can be measured
	ReasonUnprotected         = "Unprotected"         // when admission policies are missing or do not apply
	ReasonScheduleInvalid     = "ScheduleInvalid"     // when schedule or timeZone cannot be parsed
	ReasonBenchmarkRefused    = "BenchmarkRefused"    // also of state Unverified, and of a LatencyMatrix
	ReasonNoProgress          = "NoProgress"          // when a benchmark made no progress; also of state Unverified
	ReasonNodeHeld            = "NodeHeld"            // on the Node, when a gate begins to hold it back
	ReasonNodeReleased        = "NodeReleased"        // on the Node, when the gate ends that
	ReasonNodeRefused         = "NodeRefused"         // when the API server refuses a mark on a node
	ReasonNodeWriteDropped    = "NodeWriteDropped"    // when a webhook removes a mark that was written
	ReasonNodeContested       = "NodeContested"       // when another client repeatedly changes a mark back
	ReasonDevicesWithheld     = "DevicesWithheld"     // when the gate's own taint or cordon would withhold devices
	ReasonTemplateTooLong     = "TemplateTooLong"     // when the tool that cordons a node does not wait as long
	ReasonLabelMissing        = "LabelMissing"        // when no node has a label of spec.identity.labels
	ReasonHoldPodRefused      = "HoldPodRefused"      // when a hold pod cannot be created, changed or deleted
	ReasonHoldPodEnded        = "HoldPodEnded"        // when a hold pod does not keep running
	ReasonHoldPodReplaced     = "HoldPodReplaced"     // when a pod with the name of a hold pod was deleted
	ReasonVerificationRefused = "VerificationRefused" // when a LatencyVerification cannot be written
	ReasonNodesUnmeasurable   = "NodesUnmeasurable"   // when nodes cannot be measured until a user acts
	ReasonNodesWaiting        = "NodesWaiting"        // when a node waits for more than 30 minutes, not for its turn
	ReasonMeasurementHeldUp   = "MeasurementHeldUp"   // while a benchmark of the gate cannot start
	ReasonNoRoom              = "NoRoom"              // when nodes that are due, or their peers, have no room
	ReasonScheduleTooShort    = "ScheduleTooShort"    // when nodes were not measured before the next time
	ReasonSchedulePaused      = "SchedulePaused"      // when several turns in a row ended without a result
	ReasonEnvironmentFailed   = "EnvironmentFailed"   // when the cluster failed a benchmark; also of state Unverified
	ReasonNodesTaken          = "NodesTaken"          // when nodes that the gate selects belong to an older gate
	ReasonSuspended           = "Suspended"           // while spec.suspend is set
)

// Reasons of status.retained of a LatencyVerification.
const (
	ReasonNotSelected = "NotSelected" // while the gate's nodeSelector does not select the node
	ReasonTaken       = "Taken"       // while the node belongs to another gate
	ReasonNodeDeleted = "NodeDeleted" // while the Node does not exist; also of state Unverified
	ReasonGateDeleted = "GateDeleted" // after the gate was deleted; also of state Unverified
)

// Reasons of ConditionPassed of a LatencyGate. ReasonNodesTaken, too, makes it Unknown.
const (
	ReasonAllVerified       = "AllVerified"       // with True
	ReasonNodesFailed       = "NodesFailed"       // with False when a node failed
	ReasonTooManyUnverified = "TooManyUnverified" // with False when more than maxUnverified nodes are not verified
	ReasonNotAllVerified    = "NotAllVerified"    // with Unknown while nodes wait, are measured or are inconclusive
	ReasonNodesNotReady     = "NodesNotReady"     // with Unknown when verified nodes are not ready
	ReasonNoNodes           = "NoNodes"           // with Unknown when the gate selects no node
)

// Reasons of state Unverified: why the node is held back, or measured again.
const (
	ReasonNewNode          = "NewNode"          // when the gate sees a node for the first time
	ReasonNodeReplaced     = "NodeReplaced"     // when a Node was deleted and created again
	ReasonGateReplaced     = "GateReplaced"     // when the gate was deleted and created again
	ReasonIdentityChanged  = "IdentityChanged"  // when a key of the node's identity changed
	ReasonScheduleDue      = "ScheduleDue"      // when the schedule asks for a measurement and it is the node's turn
	ReasonVerifyRequested  = "VerifyRequested"  // when a user requested it by spec.verify
	ReasonSecondPeer       = "SecondPeer"       // when it failed with a peer that is not verified
	ReasonBenchmarkDeleted = "BenchmarkDeleted" // when a user deleted the benchmark; later of Inconclusive
	ReasonBenchmarkEdited  = "BenchmarkEdited"  // likewise, when a user edited it
)

// Reasons of the other states, besides those of the benchmark's condition Passed.
const (
	ReasonMeasuring        = "Measuring"        // with Measuring
	ReasonPassed           = "Passed"           // with Verified when the result passed
	ReasonAcceptedByHand   = "AcceptedByHand"   // with Verified when a user accepted the result
	ReasonProvisional      = "Provisional"      // with Verified, or of a verdict: too few boots are known
	ReasonDrifted          = "Drifted"          // with Inconclusive when it is slower than the oldest accepted session
	ReasonSlowerThanGroup  = "SlowerThanGroup"  // with Inconclusive when a first session is slower than its kind
	ReasonNothingToCompare = "NothingToCompare" // with Inconclusive when every rule compares, with nothing
)

// Reasons of events that are not reasons of a state.
const (
	ReasonAcceptRefused = "AcceptRefused" // when spec.accept names a benchmark that cannot be accepted
	ReasonReleased      = "Released"      // when the gate has not selected a node for spec.releaseAfter
)

// SetCondition sets a condition for the current generation of the spec.
func (g *LatencyGate) SetCondition(c metav1.Condition) {
	c.ObservedGeneration = g.Generation
	meta.SetStatusCondition(&g.Status.Conditions, c)
}
