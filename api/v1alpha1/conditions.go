package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of a LatencyBenchmark.
const (
	ConditionAccepted  = "Accepted"  // True when the cluster can provide what the spec requests
	ConditionSucceeded = "Succeeded" // True when every run is stored, False when that has become impossible
	ConditionPassed    = "Passed"    // Unknown with verdict Inconclusive or without a verdict, absent without criteria
)

// Condition types of every kind for generic tools, such as kstatus in Helm and Flux, with the reason of the verdict.
const (
	ConditionReady       = "Ready"       // True with Pass or, without criteria, all runs measured; False with Stalled
	ConditionReconciling = "Reconciling" // True while the verdict may change without a user's action, otherwise absent
	ConditionStalled     = "Stalled"     // True when only a user can change that there is no Pass, otherwise absent
)

// Reasons of ConditionAccepted. docs/internals/reasons.md explains this and every other reason.
const (
	ReasonAccepted                  = "Accepted"                  // when the cluster can provide what the spec requests
	ReasonCellUnsupported           = "CellUnsupported"           // when the tool cannot measure spec.workload
	ReasonNoMatchingNode            = "NoMatchingNode"            // when no node matches the selectors and the image
	ReasonNodeNotReady              = "NodeNotReady"              // when the nodes are not ready, cordoned or tainted
	ReasonNodeDraining              = "NodeDraining"              // when sriov-network-operator drains the nodes
	ReasonNodeNotSynced             = "NodeNotSynced"             // when sriov-network-operator configures the NICs
	ReasonInsufficientCPU           = "InsufficientCPU"           // when no node has as many allocatable CPUs
	ReasonInsufficientMemory        = "InsufficientMemory"        // when no node has it, or the tool may need more
	ReasonInsufficientHugepages     = "InsufficientHugepages"     // when no node has as many as requested
	ReasonResourceNotAdvertised     = "ResourceNotAdvertised"     // when no node advertises a resourceName
	ReasonNodeBusy                  = "NodeBusy"                  // when pods of others use the resources
	ReasonTopologyInsufficient      = "TopologyInsufficient"      // when no NUMA node has both the CPUs and the device
	ReasonSameNode                  = "SameNode"                  // when the selectors leave one node for both ends
	ReasonPercentileOutOfReach      = "PercentileOutOfReach"      // when highestPercentile needs more samples
	ReasonRuleUndecidable           = "RuleUndecidable"           // when a rule can neither pass nor fail
	ReasonCaptureForbidden          = "CaptureForbidden"          // when capture is not allowed
	ReasonHostNetworkForbidden      = "HostNetworkForbidden"      // when network type Host is not allowed
	ReasonImageForbidden            = "ImageForbidden"            // when the image of custom is not allowed
	ReasonNetworkNamespaceForbidden = "NetworkNamespaceForbidden" // when networkRef.namespace is not allowed
	ReasonOccupationTooLong         = "OccupationTooLong"         // when the plan takes longer than the operator allows
	ReasonPodStuck                  = "PodStuck"                  // when a pod of an ended attempt does not terminate
	ReasonMemoryShort               = "MemoryShort"               // when the manager has little memory left, and the namespace has most of its work
	ReasonNetworkNotFound           = "NetworkNotFound"           // when the network, or its CRD, is missing
	ReasonNetworkMismatch           = "NetworkMismatch"           // when the network has another resourceName
	ReasonNetworkNameTaken          = "NetworkNameTaken"          // when the name belongs to another owner
	ReasonNetworkRangeTooSmall      = "NetworkRangeTooSmall"      // when ipam of type Static leaves no two addresses
	ReasonClassNotFound             = "ClassNotFound"             // when a class of spec.pods does not exist
	ReasonAccelerationUnsupported   = "AccelerationUnsupported"   // when Onload is requested on the pod network
	ReasonProfileNotFound           = "ProfileNotFound"           // when the ConfigMap of profileRef does not exist
	ReasonProfileInvalid            = "ProfileInvalid"            // when it contains anything but Onload's settings
)

// Reasons of ConditionSucceeded. A pod that does not start has the outcome that its attempt will have.
const (
	ReasonNotAccepted             = "NotAccepted"             // while Accepted is False
	ReasonQueued                  = "Queued"                  // while another benchmark has a node, or goes first
	ReasonStarting                = "Starting"                // while pods start; the message says what delays them
	ReasonRunning                 = "Running"                 // while the tools measure
	ReasonDevicePluginUnavailable = "DevicePluginUnavailable" // also in Accepted; the benchmark fails after 30 minutes
	ReasonRetrying                = "Retrying"                // while a failed run waits for its next attempt
	ReasonBenchmarkSuspended      = "Suspended"               // while spec.suspend is true and runs are left
	ReasonEnding                  = "Ending"                  // while the pods of a finished attempt are removed
	ReasonComplete                = "Complete"                // when every run is stored
	ReasonFailed                  = "Failed"                  // when a run failed and is not retried
)

// Reasons of ConditionPassed. With Unknown they say why there is no verdict.
const (
	ReasonPass                    = "Pass"                    // when all rules pass
	ReasonFail                    = "Fail"                    // when a rule fails
	ReasonInconclusive            = "Inconclusive"            // when no rule fails and not all pass
	ReasonNotJudged               = "NotJudged"               // until all runs are measured
	ReasonBenchmarkFailed         = "BenchmarkFailed"         // also of its rules
	ReasonResultsMissing          = "ResultsMissing"          // when a stored result is gone or changed
	ReasonRuleInvalid             = "RuleInvalid"             // when this operator does not understand a rule
	ReasonBaselineMissing         = "BaselineMissing"         // when the benchmark to compare with does not exist
	ReasonBaselineNotComplete     = "BaselineNotComplete"     // when it is not finished, or failed
	ReasonBaselineResultsMissing  = "BaselineResultsMissing"  // when a user deleted or changed a result of it
	ReasonBaselineDigestDiffers   = "BaselineDigestDiffers"   // when the export is not the one of sha256
	ReasonBaselineUnreadable      = "BaselineUnreadable"      // when the export is too large, damaged or unknown
	ReasonBaselineUnlike          = "BaselineUnlike"          // when the export is of another tool or latencyType
	ReasonBaselineWithoutEvidence = "BaselineWithoutEvidence" // when evidence of an end of a run is missing
)

// ReasonKept is of the event for a benchmark that is not deleted, because it is the baseline of another one.
const ReasonKept = "Kept"

// ReasonExpired is of the event for a finished benchmark that was deleted.
const ReasonExpired = "Expired"

// ReasonExtended is of the event for more rounds after an Inconclusive verdict.
const ReasonExtended = "Extended"

// Reasons of an attempt's outcome.
const (
	OutcomeMeasured                = "Measured"                 // when both results were verified and stored
	OutcomeSuspended               = "Suspended"                // by spec.suspend; the attempt does not count as failed
	OutcomeImagePullFailed         = "ImagePullFailed"          // when an image could not be pulled in time
	OutcomePodRefused              = "PodRefused"               // when the API server refused a pod or its Secret
	OutcomeNetworkRefused          = "NetworkRefused"           // when the API server refused the operator's network
	OutcomeUnschedulable           = "Unschedulable"            // when the scheduler could not place a pod in time
	OutcomeTopologyAffinity        = "TopologyAffinityError"    // when the kubelet could not align CPUs and device
	OutcomeSMTAlignment            = "SMTAlignmentError"        // when the kubelet allocates whole cores only
	OutcomeDevicePluginUnavailable = "DevicePluginUnavailable"  // the attempt does not count as failed
	OutcomeUnexpectedAdmission     = "UnexpectedAdmissionError" // when a resource other than a device is missing
	OutcomeAdmissionRejected       = "AdmissionRejected"        // when the kubelet refused a pod for another reason
	OutcomeNetworkFailed           = "NetworkFailed"            // when the pod's network could not be set up in time
	OutcomeNetworkMissing          = "NetworkMissing"           // when a user deleted the NetworkAttachmentDefinition
	OutcomeNetworkChanged          = "NetworkChanged"           // when a user changed the operator's network
	OutcomeProfileInvalid          = "OnloadProfileInvalid"     // when the profile of Onload is gone or invalid
	OutcomeDeviceMissing           = "DeviceMissing"            // when the CNI plugin got no device to attach
	OutcomeStartTimeout            = "StartTimeout"             // when a pod did not start in time, for no known reason
	OutcomeContainerConfig         = "ContainerConfigError"     // when the kubelet could not create the container
	OutcomeToolMissing             = "ToolMissing"              // when the bench image does not have the tool
	OutcomeToolFailed              = "ToolFailed"               // when a tool failed or did not measure
	OutcomeClockWrong              = "ClockWrong"               // when a clock was set, slewed or calibrated wrongly
	OutcomeSamplesMissing          = "SamplesMissing"           // when too many latencies are unknown
	OutcomeToolTimeout             = "ToolTimeout"              // when a tool was killed at its deadline
	OutcomeAccelerationFailed      = "AccelerationFailed"       // when a tool could not use Onload
	OutcomeResourceUnavailable     = "ResourceUnavailable"      // when Onload could not create a stack
	OutcomeWrongNetwork            = "WrongNetwork"             // when the interface would not be the requested one
	OutcomeInterfaceLost           = "InterfaceLost"            // when the measured interface disappeared
	OutcomePeerUnreachable         = "PeerUnreachable"          // when the client's agent lost the server's
	OutcomeWrongPeer               = "WrongPeer"                // when the other end did not have the run's key
	OutcomeAgentFailed             = "AgentFailed"              // when an agent failed in another way
	OutcomeOOMKilled               = "OOMKilled"                // when an endpoint used more than placement.memory
	OutcomeEvicted                 = "Evicted"                  // when a pod was evicted, preempted or shut down
	OutcomeNodeLost                = "NodeLost"                 // when a node stopped responding, or rebooted
	OutcomePodLost                 = "PodLost"                  // when a pod of the run was deleted
	OutcomeOccupationExceeded      = "OccupationExceeded"       // when the benchmark held its nodes for too long
	OutcomeDeadlineExceeded        = "DeadlineExceeded"         // when the run took longer than its deadline
	OutcomeResultMissing           = "ResultMissing"            // when a pod succeeded but its log holds no result
	OutcomeResultCorrupt           = "ResultCorrupt"            // when a result does not match its digest, or its run
	OutcomeVersionMismatch         = "VersionMismatch"          // when agent and manager are of different versions
	OutcomeResultTooLarge          = "ResultTooLarge"           // when a result does not fit a ConfigMap
	OutcomeStoreRefused            = "StoreRefused"             // when a result could not be stored in time
	OutcomeNameTaken               = "NameTaken"                // when an object of another owner has the name
)

// Reasons of a Warning.
const (
	WarningSimulatedNIC      = "SimulatedNIC"         // when both endpoints ran on one kernel
	WarningImported          = "Imported"             // when no agent measured the result
	WarningEmulatedNIC       = "EmulatedNIC"          // when a NIC is emulated by QEMU, or a virtio device
	WarningCPUsNotExclusive  = "CPUsNotExclusive"     // from here to PodChanged, a check failed or is unknown
	WarningNUMAMismatch      = "NUMAMismatch"         // when the measuring CPU and the device are not on one NUMA node
	WarningNUMAUnknown       = "NUMAUnknown"          // when one of these NUMA nodes is unknown
	WarningSMTShared         = "SMTShared"            // when other containers may run on an SMT sibling
	WarningCPUThrottled      = "CPUThrottled"         // when a CFS quota throttled an endpoint
	WarningCaptureSharesCPU  = "CaptureSharesCPU"     // when packets were captured on the CPU that measured
	WarningInterfaceMismatch = "InterfaceMismatch"    // when the messages did not use the requested interface
	WarningDeviceUnproved    = "DeviceUnproved"       // when the interface may not be the allocated device
	WarningFunctionMismatch  = "FunctionMismatch"     // when the device is not a VF or PF as requested
	WarningMTUMismatch       = "MTUMismatch"          // when an MTU is not as requested, or differs between the ends
	WarningLinkNotUp         = "LinkNotUp"            // when an interface had no carrier, or lost it during the run
	WarningNotAccelerated    = "NotAccelerated"       // when messages went through the kernel in spite of Onload
	WarningAccelerated       = "Accelerated"          // when messages bypassed the kernel's stack
	WarningRedirected        = "Redirected"           // when a proxy in the network namespace sends messages on
	WarningMessagesRepeated  = "MessagesRepeated"     // when more datagrams arrived than were sent
	WarningPodChanged        = "PodChanged"           // when a webhook changed a pod, or the images differ
	WarningOnloadVersions    = "OnloadVersionsDiffer" // when Onload's library and kernel module differ
	WarningMessagesLost      = "MessagesLost"         // when messages were not answered; no percentile has them
	WarningTooFewSamples     = "TooFewSamples"        // when there are too few samples for highestPercentile
	WarningCaptureIncomplete = "CaptureIncomplete"    // when the capture lost packets or could not match them
	WarningResolutionReduced = "ResolutionReduced"    // when a result was too large to be stored completely
	WarningStatusShortened   = "StatusShortened"      // when the status would be too large for the API server
	WarningTool              = "ToolWarning"          // when the tool printed a warning
	WarningFrequencyDiffers  = "FrequencyDiffers"     // when a measuring CPU was throttled, or changed its frequency
	WarningEvidenceDiffers   = "EvidenceDiffers"      // when the rounds did not run under equal conditions
)

func Condition(conditionType string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message}
}

func (b *LatencyBenchmark) SetCondition(c metav1.Condition) {
	c.ObservedGeneration = b.Generation
	meta.SetStatusCondition(&b.Status.Conditions, c)
}

// Succeeded returns the status of condition Succeeded; empty if it was never set.
func (b *LatencyBenchmark) Succeeded() metav1.ConditionStatus {
	if c := meta.FindStatusCondition(b.Status.Conditions, ConditionSucceeded); c != nil {
		return c.Status
	}
	return ""
}

// Finished reports whether nothing more will be measured. The verdict may still change with the rules of spec.criteria.
func (b *LatencyBenchmark) Finished() bool { return finished(b.Status.Conditions) }

func (m *LatencyMatrix) Finished() bool { return finished(m.Status.Conditions) }

func finished(conditions []metav1.Condition) bool {
	c := meta.FindStatusCondition(conditions, ConditionSucceeded)
	return c != nil && c.Status != metav1.ConditionUnknown
}

// Observes reports whether the gate measures nodes, and neither marks them nor holds them back.
func (g *LatencyGate) Observes() bool { return g.Spec.Enforcement.Mode == EnforcementObserve }

// Verdict returns the verdict of the present spec; nil if there is none, or the spec changed since.
func (b *LatencyBenchmark) Verdict() *Verdict {
	if c := meta.FindStatusCondition(b.Status.Conditions, ConditionPassed); c != nil && c.ObservedGeneration < b.Generation {
		return nil
	}
	return b.Status.Verdict
}

// Suspended reports whether spec.suspend holds the benchmark: it has no active attempt and starts none.
func (b *LatencyBenchmark) Suspended() bool {
	return b.Spec.Suspend && b.Status.Active == nil && !b.Finished()
}

// Condition types of a LatencyGate. It also has ConditionPassed.
const (
	ConditionOperational   = "Operational"   // True while the gate can do all of its work
	ConditionChangeShifted = "ChangeShifted" // True while a change slowed 6 nodes by over half of the tolerance
	ReasonChangeShifted    = "ChangeShifted" // with ConditionChangeShifted, and with ConditionPassed, which is then False
)

// Condition types of a LatencyVerification.
const (
	ConditionVerified  = "Verified"  // False when the result of the node failed, Unknown while nothing is concluded
	ConditionDeletable = "Deletable" // False while a deletion waits for the node to pass, otherwise absent
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
	ReasonSlowerThanGroup  = "SlowerThanGroup"  // with Inconclusive when a first session is slower than its group
	ReasonNothingToCompare = "NothingToCompare" // with Inconclusive when every rule compares, with nothing
)

// Reasons of events that are not reasons of a state.
const (
	ReasonAcceptRefused = "AcceptRefused" // when spec.accept names a benchmark that cannot be accepted
	ReasonReleased      = "Released"      // when the gate has not selected a node for spec.releaseAfter
)

func (g *LatencyGate) SetCondition(c metav1.Condition) {
	c.ObservedGeneration = g.Generation
	meta.SetStatusCondition(&g.Status.Conditions, c)
}
