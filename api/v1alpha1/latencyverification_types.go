package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +kubebuilder:validation:Enum=Unverified;Measuring;Verified;Away;Failed;Inconclusive
type VerificationState string

// The states. A node in any state but Verified is held back. docs/internals/transitions.md lists all transitions.
const (
	// VerificationUnverified is for a node that is new or has changed, and waits to be measured.
	VerificationUnverified VerificationState = "Unverified"
	// VerificationMeasuring is for a node that has a benchmark.
	VerificationMeasuring VerificationState = "Measuring"
	// VerificationVerified is for a node whose result passed, or was accepted manually, and that has not changed since.
	VerificationVerified VerificationState = "Verified"
	// VerificationAway is for a verified node that is not ready: it may return changed.
	VerificationAway VerificationState = "Away"
	// VerificationFailed is for a node whose result failed.
	VerificationFailed VerificationState = "Failed"
	// VerificationInconclusive is for a node about which nothing could be concluded.
	VerificationInconclusive VerificationState = "Inconclusive"
)

// +kubebuilder:validation:Enum=Pass;Hand
type AcceptedBy string

const (
	AcceptedByPass AcceptedBy = "Pass"
	AcceptedByHand AcceptedBy = "Hand"
)

// The fields of a LatencyVerification by which users and tools request an action, as messages name them.
const (
	FieldVerify = "spec.verify"
	FieldAccept = "spec.accept"
)

// FinalizerNode keeps a LatencyVerification until its node's marks are updated, and a gate until its last one is gone.
const FinalizerNode = "tailgate.dev/published-on-node"

// The marks that a gate publishes on a Node. The benchmarks of gates tolerate the taint.
const (
	NodeConditionVerified  = "tailgate.dev/LatencyVerified"    // of the Node, and of the hold pod
	NodeConditionRegressed = "tailgate.dev/LatencyRegressed"   // True: the node failed, as a second peer confirms
	NodeLabelVerified      = "tailgate.dev/latency-verified"   // "true" or "false"
	NodeTaintUnverified    = "tailgate.dev/latency-unverified" // the key
)

// UserRequest says who requests something, and when. With another requestTime, it is a new request.
type UserRequest struct {
	// requestedBy is the user. The API server refuses the name of any user except the user who writes the request.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=512
	RequestedBy string `json:"requestedBy"`
	// requestTime is when the user requested it, by the user's clock: a time of RFC 3339.
	// +required
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9]{2}:[0-9]{2})$`
	RequestTime string `json:"requestTime"`
}

// AcceptRequest requests that a complete result becomes the baseline of a node that has not changed since.
type AcceptRequest struct {
	// benchmark is one of status.history.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Benchmark string `json:"benchmark"`
	// uid binds the request to that very benchmark; absent: to its name.
	// +kubebuilder:validation:MaxLength=64
	UID         string `json:"uid,omitempty"`
	UserRequest `json:",inline"`
}

// ProcessedRequests are the last requests that the operator has processed.
type ProcessedRequests struct {
	// accept is the last spec.accept.
	Accept *AcceptRequest `json:"accept,omitempty"`
	// acceptTime is when the operator processed it.
	AcceptTime *metav1.MicroTime `json:"acceptTime,omitempty"`
	// verify is the last spec.verify.
	Verify *UserRequest `json:"verify,omitempty"`
	// verifyTime is when the operator processed it.
	VerifyTime *metav1.MicroTime `json:"verifyTime,omitempty"`
}

// LatencyVerificationSpec names the node and its gate, and has the requests of users.
// +kubebuilder:validation:XValidation:rule="self.gateName == oldSelf.gateName && self.nodeName == oldSelf.nodeName",message="gateName and nodeName cannot change"
type LatencyVerificationSpec struct {
	// gateName is the LatencyGate.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	GateName string `json:"gateName"`
	// nodeName is the Node.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	NodeName string `json:"nodeName"`
	// accept requests that a result becomes the node's baseline and the node verified.
	Accept *AcceptRequest `json:"accept,omitempty"`
	// verify requests that the node is measured again. A verified node that has not changed keeps its state until then.
	Verify *UserRequest `json:"verify,omitempty"`
}

// IdentityChange is a change of a key of a node's identity.
type IdentityChange struct {
	// key is a key of identity.
	// +kubebuilder:validation:MaxLength=330
	Key string `json:"key"`
	// from is the previous value; absent if the key did not exist.
	// +kubebuilder:validation:MaxLength=512
	From string `json:"from,omitempty"`
	// to is the present value; absent if the key does not exist.
	// +kubebuilder:validation:MaxLength=512
	To string `json:"to,omitempty"`
}

// VerificationBenchmark is the benchmark that measures a node now.
type VerificationBenchmark struct {
	// name of the LatencyBenchmark, in the gate's namespace.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid of the LatencyBenchmark. A benchmark with the same name and another uid does not count.
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
	// specSHA256 is the digest of the spec at creation, in hex: the result of an edited benchmark does not count.
	// +kubebuilder:validation:MaxLength=64
	SpecSHA256 string `json:"specSHA256"`
	// peer is the node at the other end.
	// +kubebuilder:validation:MaxLength=253
	Peer string `json:"peer"`
	// peerVerified says whether the peer was verified when the benchmark was created.
	PeerVerified bool `json:"peerVerified,omitempty"`
	// startTime is when the benchmark was created.
	StartTime metav1.Time `json:"startTime"`
}

// ResultPin identifies a result. A name does not: another object can have it later.
type ResultPin struct {
	// uid of the LatencyBenchmark.
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
	// specSHA256 is the digest of its spec without the priority, in hex.
	// +kubebuilder:validation:MaxLength=64
	SpecSHA256 string `json:"specSHA256,omitempty"`
	// storedSHA256 is the digest of its status.stored, which has the digests of its stored results, in hex.
	// +kubebuilder:validation:MaxLength=64
	StoredSHA256 string `json:"storedSHA256,omitempty"`
}

// AcceptedResult is the result with which the next results of the node are compared.
type AcceptedResult struct {
	// benchmark is the name of the LatencyBenchmark that has it, in the gate's namespace.
	// +kubebuilder:validation:MaxLength=253
	Benchmark string `json:"benchmark"`
	ResultPin `json:",inline"`
	// acceptanceTime is when the result was accepted.
	AcceptanceTime metav1.Time `json:"acceptanceTime"`
	// by is Pass, or Hand: a user accepted it by spec.accept.
	By AcceptedBy `json:"by"`
	// requestedBy is the user who accepted it by hand.
	// +kubebuilder:validation:MaxLength=512
	RequestedBy string `json:"requestedBy,omitempty"`
	// peer is the node at the other end.
	// +kubebuilder:validation:MaxLength=253
	Peer string `json:"peer"`
	// identity is the identity of the node when it was measured.
	// +kubebuilder:validation:MaxProperties=64
	Identity map[string]string `json:"identity,omitempty"`
}

// AcceptRefusal is why the operator did not accept a result that a user named.
type AcceptRefusal struct {
	// benchmark is the one in spec.accept.
	// +kubebuilder:validation:MaxLength=253
	Benchmark string `json:"benchmark,omitempty"`
	// message has the reason, and what to do.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
	// refusalTime is when it was refused.
	RefusalTime metav1.Time `json:"refusalTime"`
}

// VerificationResult is a finished benchmark of the node.
type VerificationResult struct {
	// benchmark is the name of the LatencyBenchmark, in the gate's namespace.
	// +kubebuilder:validation:MaxLength=253
	Benchmark string `json:"benchmark"`
	ResultPin `json:",inline"`
	// completionTime is when its outcome was recorded.
	CompletionTime metav1.Time `json:"completionTime"`
	// outcome is Pass, Fail or Inconclusive.
	Outcome VerdictOutcome `json:"outcome"`
	// reason of the outcome as one word.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// peer is the node at the other end.
	// +kubebuilder:validation:MaxLength=253
	Peer string `json:"peer"`
	// identity is the identity of the node at the measurement. A value of more than 128 bytes ends in its digest.
	// +kubebuilder:validation:MaxProperties=64
	Identity map[string]string `json:"identity,omitempty"`
	// p50 is status.summary.p50 of the benchmark.
	// +kubebuilder:validation:MaxLength=1024
	P50 string `json:"p50,omitempty"`
	// p99 is status.summary.p99 of the benchmark.
	// +kubebuilder:validation:MaxLength=1024
	P99 string `json:"p99,omitempty"`
	// ratio is the highest estimate of a rule that compares latencies with the baseline, such as 1.04.
	// +kubebuilder:validation:MaxLength=32
	Ratio string `json:"ratio,omitempty"`
}

// StepFailure is a step that did not succeed, with the time of the next attempt.
type StepFailure struct {
	// reason is the reason as one word, such as NoProgress.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message explains the reason, and what to do.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
	// count is the number of consecutive failures. The wait doubles with each.
	// +kubebuilder:validation:Minimum=1
	Count int32 `json:"count"`
	// startTime is when the first of the attempts began.
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// failureTime is when the last of the attempts ended.
	FailureTime *metav1.MicroTime `json:"failureTime,omitempty"`
	// retryTime is the time of the next attempt.
	RetryTime metav1.Time `json:"retryTime"`
	// peers are the nodes with which a measurement made no progress, newest first. Other nodes are preferred.
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MaxLength=253
	Peers []string `json:"peers,omitempty"`
}

// Turn is the measurement of a node that is verified and has not changed. Without a result, the node keeps its state.
type Turn struct {
	// startTime is when the gate began to hold the node back for it.
	StartTime metav1.Time `json:"startTime"`
	// reason is the reason of condition Verified before the turn.
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason"`
	// message is the message of condition Verified before the turn.
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message"`
}

// +kubebuilder:validation:Enum=Condition;Label;Taint
type NodeMark string

const (
	MarkCondition NodeMark = "Condition"
	MarkLabel     NodeMark = "Label"
	MarkTaint     NodeMark = "Taint"
)

// MarkFailure is a mark that the Node does not have although it should, or that it has although it should not.
type MarkFailure struct {
	// mark is Condition, Label or Taint. The gate writes each independently of the others.
	Mark NodeMark `json:"mark"`
	// reason is NodeRefused, NodeWriteDropped or NodeContested.
	StepFailure `json:",inline"`
}

// HoldPod is the hold pod of a node, as the API server created it.
type HoldPod struct {
	// uid of the Pod.
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
	// image of its container.
	// +kubebuilder:validation:MaxLength=1024
	Image string `json:"image,omitempty"`
}

// AbsentKey is a key of the identity that the node does not report now.
type AbsentKey struct {
	// key is a key of identity, which has its last value.
	// +kubebuilder:validation:MaxLength=330
	Key string `json:"key"`
	// startTime is since when the node does not report the key.
	StartTime metav1.Time `json:"startTime"`
	// endTime is until when the last value is kept. From then on, the absence of the key is a change.
	EndTime metav1.Time `json:"endTime"`
	// renewed is true if the SR-IOV network operator creates the devices again, which is a change in any case.
	Renewed bool `json:"renewed,omitempty"`
}

// Retention is the reason why a LatencyVerification is kept although its node is not the gate's.
type Retention struct {
	// startTime is when the gate lost the node.
	StartTime metav1.Time `json:"startTime"`
	// endTime is when the retention ends.
	EndTime metav1.Time `json:"endTime"`
	// dueTime is when the operator first found that endTime has passed. The release follows half a minute later.
	DueTime *metav1.Time `json:"dueTime,omitempty"`
	// reason is NotSelected, Taken (by another gate), NodeDeleted or GateDeleted; the last two leave only a record.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message explains the reason, and when the retention ends.
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message"`
}

// LatencyVerificationStatus is the state of the node, with its measurements and accepted results.
type LatencyVerificationStatus struct {
	// observedGeneration is the generation of the spec that this status describes; -1 until the operator reads it.
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// state is Unverified, Measuring, Verified, Failed, Inconclusive, or Away: verified and not ready.
	State VerificationState `json:"state,omitempty"`
	// conditions are Verified, Deletable (False while a deletion waits for a pass), Ready, Reconciling and Stalled.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// lastTransitionTime is when the state last changed.
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`
	// nodeUID is the UID of the Node: a Node that was deleted and created again is new.
	// +kubebuilder:validation:MaxLength=64
	NodeUID string `json:"nodeUID,omitempty"`
	// systemUUID is the system UUID of the machine. A Node that is created again for it keeps the accepted results.
	// +kubebuilder:validation:MaxLength=128
	SystemUUID string `json:"systemUUID,omitempty"`
	// gateUID is the UID of the LatencyGate. A new gate of its name measures again, and keeps the accepted results.
	// +kubebuilder:validation:MaxLength=64
	GateUID string `json:"gateUID,omitempty"`
	// identity is the present identity of the node. The keys of labels are Label/NAME, and of devices Devices/RESOURCE.
	// +kubebuilder:validation:MaxProperties=64
	Identity map[string]string `json:"identity,omitempty"`
	// preexisting is true while the node is as the gate found it, or as it joined or changed in mode Observe.
	Preexisting bool `json:"preexisting,omitempty"`
	// introduced is true if the machine was there before the gate (see status.unsettled of the gate).
	Introduced bool `json:"introduced,omitempty"`
	// absent are identity keys that the node does not report, kept for 10 minutes (Devices: 30) without a measurement.
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=64
	Absent []AbsentKey `json:"absent,omitempty"`
	// changed are the changes since the accepted result that made the node unverified.
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MaxItems=64
	Changed []IdentityChange `json:"changed,omitempty"`
	// number is the number of benchmarks that were created for the node; it is the suffix of their names.
	// +kubebuilder:validation:Minimum=0
	Number int64 `json:"number,omitempty"`
	// benchmark is the benchmark that measures the node now.
	Benchmark *VerificationBenchmark `json:"benchmark,omitempty"`
	// turn is set while the gate measures a verified, unchanged node again, by its schedule or by request.
	Turn *Turn `json:"turn,omitempty"`
	// turnRequestTime is since when a requested turn waits for a slot and a peer.
	TurnRequestTime *metav1.Time `json:"turnRequestTime,omitempty"`
	// discarded is the number of benchmarks since then that users deleted or edited.
	// +kubebuilder:validation:Minimum=0
	Discarded int32 `json:"discarded,omitempty"`
	// suspectPeer is the peer with which the node failed first. Another peer shows which of the two is slow.
	// +kubebuilder:validation:MaxLength=253
	SuspectPeer string `json:"suspectPeer,omitempty"`
	// failConfirmed is true in state Failed if a second peer shows that it is this node that is slow.
	FailConfirmed bool `json:"failConfirmed,omitempty"`
	// stepFailure is the reason why the node, or its last turn in state Verified, could not be measured.
	StepFailure *StepFailure `json:"stepFailure,omitempty"`
	// holdPod is the hold pod that the operator created. The operator replaces any other pod of this name.
	HoldPod *HoldPod `json:"holdPod,omitempty"`
	// holdPodFailure is the reason why the node has no hold pod, or why its hold pod ended; absent otherwise.
	HoldPodFailure *StepFailure `json:"holdPodFailure,omitempty"`
	// markFailures are the marks that the Node does not have as it should.
	// +listType=map
	// +listMapKey=mark
	// +kubebuilder:validation:MaxItems=3
	MarkFailures []MarkFailure `json:"markFailures,omitempty"`
	// retained is set while the gate does not have the node, or either is gone. The state is kept for spec.releaseAfter.
	Retained *Retention `json:"retained,omitempty"`
	// accepted is the result that is the baseline of the next measurement.
	Accepted *AcceptedResult `json:"accepted,omitempty"`
	// reference are sessions accepted since the last by hand: the first 5 boots with each of 2 peers, and the oldest.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=11
	Reference []ReferenceSession `json:"reference,omitempty"`
	// recent are the levels of the last sessions since the reference began, whatever their outcomes, oldest first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=9
	Recent []MeasuredSession `json:"recent,omitempty"`
	// requests are the requests of spec that were processed last, with who requested them, and when.
	Requests *ProcessedRequests `json:"requests,omitempty"`
	// acceptRefused is why spec.accept was refused, until a result is accepted or the node becomes unverified.
	AcceptRefused *AcceptRefusal `json:"acceptRefused,omitempty"`
	// baselineTrouble is a defect of the accepted results: a verified node stays so, but its next result is Inconclusive.
	// +kubebuilder:validation:MaxLength=512
	BaselineTrouble string `json:"baselineTrouble,omitempty"`
	// lastMeasurementTime is when the outcome of the last benchmark was recorded; the schedule counts from it.
	LastMeasurementTime *metav1.Time `json:"lastMeasurementTime,omitempty"`
	// evidence is what the agent on the node reported about NIC and Onload in the last measurement.
	// +listType=map
	// +listMapKey=check
	// +kubebuilder:validation:MaxItems=8
	Evidence []ProofLine `json:"evidence,omitempty"`
	// history are the last finished benchmarks, newest first.
	// +listType=map
	// +listMapKey=benchmark
	// +kubebuilder:validation:MaxItems=10
	History []VerificationResult `json:"history,omitempty"`
}

// LatencyVerification is the state of a gate's node, named GATE.NODE. A deletion waits until a node held back passes.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=lver,categories=tailgate
// +kubebuilder:selectablefield:JSONPath=`.spec.gateName`
// +kubebuilder:selectablefield:JSONPath=`.spec.nodeName`
// +kubebuilder:selectablefield:JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Gate",type=string,JSONPath=`.spec.gateName`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Verified")].reason`
// +kubebuilder:printcolumn:name="P50",type=string,JSONPath=`.status.history[0].p50`
// +kubebuilder:printcolumn:name="P99",type=string,JSONPath=`.status.history[0].p99`
// +kubebuilder:printcolumn:name="Ratio",type=string,JSONPath=`.status.history[0].ratio`
// +kubebuilder:printcolumn:name="Measured",type=date,JSONPath=`.status.lastMeasurementTime`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.lastTransitionTime`
// +kubebuilder:printcolumn:name="Benchmark",type=string,JSONPath=`.status.benchmark.name`,priority=1
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.accepted.benchmark`,priority=1
// +kubebuilder:printcolumn:name="Retained",type=string,JSONPath=`.status.retained.reason`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Verified")].message`,priority=1
type LatencyVerification struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec names the node and its gate, and has the requests of users.
	// +required
	Spec LatencyVerificationSpec `json:"spec"`
	// status is the state of the node.
	// +optional
	// +kubebuilder:default={}
	Status LatencyVerificationStatus `json:"status,omitzero"`
}

// +kubebuilder:object:root=true
type LatencyVerificationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LatencyVerification `json:"items"`
}

// Requests returns the requests that the operator has not processed yet; nil if there is none.
func (v *LatencyVerification) Requests() (accept *AcceptRequest, verify *UserRequest) {
	accept, verify = v.Spec.Accept, v.Spec.Verify
	done := v.Status.Requests
	if done == nil {
		return accept, verify
	}
	if equality.Semantic.DeepEqual(accept, done.Accept) {
		accept = nil
	}
	if equality.Semantic.DeepEqual(verify, done.Verify) {
		verify = nil
	}
	return accept, verify
}

// Verified returns condition Verified, or an empty condition before the operator has looked at the node.
func (s *LatencyVerificationStatus) Verified() metav1.Condition {
	if c := meta.FindStatusCondition(s.Conditions, ConditionVerified); c != nil {
		return *c
	}
	return metav1.Condition{}
}

// Passed reports whether the result of the node counts, also while it is away.
func (s VerificationState) Passed() bool { return s == VerificationVerified || s == VerificationAway }

// Record reports whether the LatencyVerification is only a record of results: the Node or the gate does not exist.
func (s *LatencyVerificationStatus) Record() bool {
	return s.OfDeletedGate() || s.Retained != nil && s.Retained.Reason == ReasonNodeDeleted
}

// OfDeletedGate reports whether it is a record of a deleted gate, which a new registration of the Node does not end.
func (s *LatencyVerificationStatus) OfDeletedGate() bool {
	return s.Retained != nil && s.Retained.Reason == ReasonGateDeleted
}

// VerificationName returns the name of a node's LatencyVerification: both names and a dot, which no gate's name has.
func VerificationName(gate, node string) string { return Shortened(gate+"."+node, 253) }

// Shortened returns name if it has at most limit bytes, and otherwise its beginning and a digest of the whole name.
func Shortened(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	digest := hex.EncodeToString(sum[:])[:8]
	// A dot or a hyphen at the cut would stand directly before the hyphen of the digest.
	begin := name[:limit-len(digest)-1]
	for len(begin) > 0 && (begin[len(begin)-1] == '.' || begin[len(begin)-1] == '-') {
		begin = begin[:len(begin)-1]
	}
	return begin + "-" + digest
}
