package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Condition types of a LatencyBenchmark.
const (
	// ConditionAccepted is True when the cluster can provide what the spec requests. When it is False, the message names
	// what is missing; the condition is evaluated again when the cluster changes.
	ConditionAccepted = "Accepted"
	// ConditionSucceeded is True when every run was measured and stored, False when that has become impossible, and
	// Unknown while the benchmark runs or waits; the reason is its state.
	ConditionSucceeded = "Succeeded"
	// ConditionPassed is True when the verdict is Pass, False when it is Fail, and Unknown when it is
	// Inconclusive or there is none yet. A benchmark without criteria does not have it.
	ConditionPassed = "Passed"
)

// Condition types of every kind, for tools that evaluate the readiness of any object, such as kstatus in Helm and Flux. They have
// the reason of the verdict.
const (
	// ConditionReady is True when the verdict is Pass or, without criteria, when every run was measured; it is False when only a
	// user can change that there is no Pass, and Unknown until then.
	ConditionReady = "Ready"
	// ConditionReconciling is True while the verdict may still change without a user's action, and absent otherwise.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True when only a user can change that there is no Pass, and absent otherwise.
	ConditionStalled = "Stalled"
)

// Reasons of ConditionAccepted.
const (
	ReasonAccepted        = "Accepted"        // when the cluster can provide what the spec requests
	ReasonCellUnsupported = "CellUnsupported" // when the tool cannot measure what spec.workload requests
	ReasonNoMatchingNode  = "NoMatchingNode"  // when a node selector, or the one of pods.runtimeClassName, matches no node that the bench image is for
	// ReasonNodeNotReady surfaces, like every reason about nodes, when most of the selected nodes were rejected for it:
	// they are not ready, cordoned, or have taints that pods.tolerations does not tolerate.
	ReasonNodeNotReady = "NodeNotReady"
	ReasonNodeDraining = "NodeDraining" // when sriov-network-operator drains or reboots the selected nodes, or is about to
	// ReasonNodeNotSynced surfaces when sriov-network-operator configures the NICs of the selected nodes, or failed to.
	ReasonNodeNotSynced   = "NodeNotSynced"
	ReasonInsufficientCPU = "InsufficientCPU" // when no selected node has as many allocatable CPUs as requested
	// ReasonInsufficientMemory surfaces when the tool may need more memory than requested, or no selected node has
	// as much allocatable memory as requested.
	ReasonInsufficientMemory = "InsufficientMemory"
	// ReasonInsufficientHugepages surfaces when no selected node has as many allocatable huge pages as requested.
	ReasonInsufficientHugepages = "InsufficientHugepages"
	// ReasonResourceNotAdvertised surfaces when no selected node advertises resourceName of the network or of
	// the acceleration.
	ReasonResourceNotAdvertised = "ResourceNotAdvertised"
	// ReasonNodeBusy surfaces when the selected nodes have the requested resources, but pods other than benchmark pods use them;
	// the message names the pod that uses most.
	ReasonNodeBusy = "NodeBusy"
	// ReasonTopologyInsufficient surfaces when placement.numaPolicy is Required and no NUMA node of the selected nodes has both
	// the CPUs and the device, or if Dynamic Resource Allocation provides the resource of alignWith.
	ReasonTopologyInsufficient = "TopologyInsufficient"
	ReasonSameNode             = "SameNode" // when the selectors leave the same single node for both endpoints
	// ReasonPercentileOutOfReach surfaces when highestPercentile needs more samples than the cells can give.
	ReasonPercentileOutOfReach = "PercentileOutOfReach"
	// ReasonRuleUndecidable surfaces when a rule can neither pass nor fail, whatever is measured: it selects no cell, or the planned rounds or
	// samples are too few.
	ReasonRuleUndecidable  = "RuleUndecidable"
	ReasonCaptureForbidden = "CaptureForbidden" // when capture is requested and the operator does not allow it
	// ReasonHostNetworkForbidden surfaces when network type Host is requested and the operator does not allow it.
	ReasonHostNetworkForbidden      = "HostNetworkForbidden"
	ReasonNetworkNamespaceForbidden = "NetworkNamespaceForbidden" // when the operator does not allow networkRef.namespace
	// ReasonOccupationTooLong surfaces when the plan takes longer than the operator lets a benchmark hold its nodes.
	ReasonOccupationTooLong = "OccupationTooLong"
	// ReasonPodStuck surfaces when a pod of an attempt that is over does not terminate and keeps its resources on a node.
	ReasonPodStuck        = "PodStuck"
	ReasonNetworkNotFound = "NetworkNotFound" // when the NetworkAttachmentDefinition, or its CRD, does not exist
	ReasonNetworkMismatch = "NetworkMismatch" // when resourceName differs from the one in the NetworkAttachmentDefinition
	// ReasonNetworkNameTaken surfaces when a NetworkAttachmentDefinition of another owner has the name of the
	// one that the operator would create.
	ReasonNetworkNameTaken        = "NetworkNameTaken"
	ReasonNetworkRangeTooSmall    = "NetworkRangeTooSmall"    // when ipam of type Static leaves no two addresses
	ReasonClassNotFound           = "ClassNotFound"           // when pods.runtimeClassName or pods.priorityClassName does not exist
	ReasonAccelerationUnsupported = "AccelerationUnsupported" // when Onload is requested on the pod network
	ReasonProfileNotFound         = "ProfileNotFound"         // when the ConfigMap of acceleration.onload.profileRef does not exist
	ReasonProfileInvalid          = "ProfileInvalid"          // when that ConfigMap contains anything but Onload's settings
)

// Reasons of ConditionSucceeded. While a pod does not start, the reason is the outcome that the attempt will have
// if the pod does not start in time, such as ImagePullFailed.
const (
	ReasonNotAccepted = "NotAccepted" // while Accepted is False
	ReasonQueued      = "Queued"      // while another benchmark uses a node of this one, or is before it in the queue
	ReasonStarting    = "Starting"    // while the pods of a run start; the message says what delays them
	ReasonRunning     = "Running"     // while the tools measure
	// ReasonDevicePluginUnavailable surfaces, also in condition Accepted, while a benchmark that has started waits for a
	// device plugin. After 30 minutes the benchmark fails.
	ReasonDevicePluginUnavailable = "DevicePluginUnavailable"
	ReasonRetrying                = "Retrying"  // while a failed run waits for its next attempt
	ReasonBenchmarkSuspended      = "Suspended" // while spec.suspend is true and something is left to be measured
	ReasonEnding                  = "Ending"    // while the pods of a finished attempt are removed
	ReasonComplete                = "Complete"  // when every run is stored
	ReasonFailed                  = "Failed"    // when a run failed and is not retried; the message has the reason of its last attempt
)

// Reasons of ConditionPassed. With Unknown they say why there is no verdict.
const (
	ReasonPass = "Pass" // when all rules pass
	ReasonFail = "Fail" // when a rule fails
	// ReasonInconclusive surfaces when no rule fails and not all pass; the message has the first such rule's reason.
	ReasonInconclusive = "Inconclusive"
	ReasonNotJudged    = "NotJudged" // until all runs are measured
	// ReasonBenchmarkFailed surfaces when the benchmark failed. Its rules have this reason, too.
	ReasonBenchmarkFailed = "BenchmarkFailed"
	// ReasonResultsMissing surfaces when a user deleted or changed a stored result. Its rules have this reason, too.
	ReasonResultsMissing = "ResultsMissing"
	ReasonRuleInvalid    = "RuleInvalid" // when this operator does not understand a rule
	// ReasonBaselineMissing surfaces when a rule compares with a benchmark that does not exist. The next two reasons, too,
	// are about that benchmark.
	ReasonBaselineMissing     = "BaselineMissing"
	ReasonBaselineNotComplete = "BaselineNotComplete" // when that benchmark is not finished, or failed
	// ReasonBaselineResultsMissing surfaces when a user deleted or changed one of that benchmark's stored results.
	ReasonBaselineResultsMissing = "BaselineResultsMissing"
	// ReasonBaselineDigestDiffers surfaces when criteria.baseline.export names a ConfigMap with another export than sha256 says. The
	// next three reasons, too, are about that export.
	ReasonBaselineDigestDiffers = "BaselineDigestDiffers"
	ReasonBaselineUnreadable    = "BaselineUnreadable" // when it is too large, damaged, or of another version
	ReasonBaselineUnlike        = "BaselineUnlike"     // when it is of another tool or latencyType
	// ReasonBaselineWithoutEvidence surfaces when it does not have the evidence of both ends of all its runs.
	ReasonBaselineWithoutEvidence = "BaselineWithoutEvidence"
)

// ReasonKept is the reason of the event that says why a benchmark is not deleted although its spec requests it: another
// benchmark names it as its baseline.
const ReasonKept = "Kept"

// ReasonExpired is the reason of the event that says why a finished benchmark was deleted.
const ReasonExpired = "Expired"

// ReasonExtended is the reason of the event that says that a verdict was Inconclusive and more rounds are measured.
const ReasonExtended = "Extended"

// Reasons of an attempt's outcome.
const (
	OutcomeMeasured = "Measured" // when both results were verified and stored
	// OutcomeSuspended surfaces when spec.suspend ended the attempt. The attempt does not count as failed: the run keeps its
	// number of retries.
	OutcomeSuspended       = "Suspended"
	OutcomeImagePullFailed = "ImagePullFailed" // when the bench image, or that with the tools, could not be pulled in time
	// OutcomePodRefused surfaces when the API server refused a pod, or the Secret that its pods share: a quota, a Pod
	// Security Standard, a LimitRange, a webhook that denies or does not answer.
	OutcomePodRefused = "PodRefused"
	// OutcomeNetworkRefused surfaces when the API server refused the NetworkAttachmentDefinition that the operator creates.
	OutcomeNetworkRefused   = "NetworkRefused"
	OutcomeUnschedulable    = "Unschedulable"         // when the scheduler could not place a pod in time
	OutcomeTopologyAffinity = "TopologyAffinityError" // when the kubelet could not align CPUs and device on one NUMA node
	// OutcomeSMTAlignment surfaces when the kubelet allocates only whole cores, and the requested CPUs are not whole cores.
	OutcomeSMTAlignment = "SMTAlignmentError"
	// OutcomeDevicePluginUnavailable surfaces when the device plugin of a resource that the run needs did not run when a pod
	// started. The attempt does not count as failed, and the operator waits for the plugin for at most 30 minutes.
	OutcomeDevicePluginUnavailable = "DevicePluginUnavailable"
	// OutcomeUnexpectedAdmission surfaces when the kubelet could not allocate a resource other than a device, although the
	// scheduler had found it available.
	OutcomeUnexpectedAdmission = "UnexpectedAdmissionError"
	OutcomeAdmissionRejected   = "AdmissionRejected" // when the kubelet refused a pod for another reason
	OutcomeNetworkFailed       = "NetworkFailed"     // when the pod's network could not be set up in time
	// OutcomeNetworkMissing surfaces when the NetworkAttachmentDefinition was deleted after the spec was accepted.
	OutcomeNetworkMissing = "NetworkMissing"
	OutcomeNetworkChanged = "NetworkChanged" // when a user changed a NetworkAttachmentDefinition that the operator created
	// OutcomeProfileInvalid surfaces when the ConfigMap of an Onload profile was deleted, or is no longer a valid profile.
	OutcomeProfileInvalid  = "OnloadProfileInvalid"
	OutcomeDeviceMissing   = "DeviceMissing"        // when the CNI plugin did not receive the ID of the device to attach
	OutcomeStartTimeout    = "StartTimeout"         // when a pod did not start in time, and no component reported a reason
	OutcomeContainerConfig = "ContainerConfigError" // when the kubelet could not create the container
	OutcomeToolMissing     = "ToolMissing"          // when the bench image does not have the tool
	OutcomeToolFailed      = "ToolFailed"           // when a tool failed, or its output shows that it did not measure
	// OutcomeClockWrong surfaces when a clock by which the tool measured was set, slewed or calibrated wrongly during the run.
	OutcomeClockWrong = "ClockWrong"
	// OutcomeSamplesMissing surfaces when the latency of so many messages is unknown that no percentile holds: the tool left
	// them out, or did not send them in time.
	OutcomeSamplesMissing = "SamplesMissing"
	OutcomeToolTimeout    = "ToolTimeout" // when a tool was killed at its deadline
	// OutcomeAccelerationFailed surfaces when a tool could not use Onload although it was requested: the library could not
	// be preloaded, the kernel module is not loaded or its device not accessible, or a setting is unknown.
	OutcomeAccelerationFailed = "AccelerationFailed"
	// OutcomeResourceUnavailable surfaces when Onload could not create a stack because memory or the virtual interfaces
	// of the NIC were exhausted.
	OutcomeResourceUnavailable = "ResourceUnavailable"
	OutcomeWrongNetwork        = "WrongNetwork"    // when the messages would not have used the requested interface
	OutcomeInterfaceLost       = "InterfaceLost"   // when the measured interface disappeared during the run
	OutcomePeerUnreachable     = "PeerUnreachable" // when the client's agent could not reach the server's, or lost it
	// OutcomeWrongPeer surfaces when something else than the run's other end answered: it does not have the run's key.
	OutcomeWrongPeer   = "WrongPeer"
	OutcomeAgentFailed = "AgentFailed" // when an agent failed in another way; the message is its own
	OutcomeOOMKilled   = "OOMKilled"   // when an endpoint used more than placement.memory
	OutcomeEvicted     = "Evicted"     // when a pod was evicted, preempted or shut down with its node
	OutcomeNodeLost    = "NodeLost"    // when a node stopped responding while it ran a pod, or lost its container in a reboot
	OutcomePodLost     = "PodLost"     // when a pod of the run was deleted
	// OutcomeOccupationExceeded surfaces when the benchmark held its nodes for longer than the operator allows.
	OutcomeOccupationExceeded = "OccupationExceeded"
	OutcomeDeadlineExceeded   = "DeadlineExceeded" // when the run took longer than its deadline
	OutcomeResultMissing      = "ResultMissing"    // when a pod succeeded but its log holds no result
	OutcomeResultCorrupt      = "ResultCorrupt"    // when a result does not match its digest, or its run
	// OutcomeVersionMismatch surfaces when an agent cannot read its task, or the manager not its result, because they are of
	// different versions.
	OutcomeVersionMismatch = "VersionMismatch"
	OutcomeResultTooLarge  = "ResultTooLarge" // when a result does not fit a ConfigMap, not even with fewer digits
	OutcomeStoreRefused    = "StoreRefused"   // when the ConfigMap of a result could not be created in time: a quota, a webhook
	// OutcomeNameTaken surfaces when an object of another owner has a name that a run needs. The attempt does not count as
	// failed: the next attempt has pods with other names.
	OutcomeNameTaken = "NameTaken"
)

// Reasons of a Warning.
const (
	// WarningSimulatedNIC surfaces when both endpoints ran on one kernel: the numbers are real timings of
	// virtual Ethernet, or of NICs of one machine, not of a wire between two machines.
	WarningSimulatedNIC = "SimulatedNIC"
	// WarningImported surfaces when a result was published or imported: no agent measured it, and nothing proves where and how.
	WarningImported = "Imported"
	// WarningEmulatedNIC surfaces when the NIC of an endpoint is a device that QEMU emulates, or a virtio device: the numbers
	// are real timings of software, not of a NIC and a wire.
	WarningEmulatedNIC = "EmulatedNIC"
	// WarningCPUsNotExclusive surfaces when an endpoint did not have exclusive use of exactly the CPUs it requested, or this is
	// unknown. This warning and the following ones, down to WarningPodChanged, mean that a check of the proof failed or is unknown.
	WarningCPUsNotExclusive = "CPUsNotExclusive"
	// WarningNUMAMismatch surfaces when the measuring CPU and the device are on different NUMA nodes, or the CPUs on
	// several.
	WarningNUMAMismatch = "NUMAMismatch"
	WarningNUMAUnknown  = "NUMAUnknown" // when one of these NUMA nodes is unknown
	// WarningSMTShared surfaces when other containers may run on an SMT sibling of the measuring CPU, or this is unknown.
	WarningSMTShared        = "SMTShared"
	WarningCPUThrottled     = "CPUThrottled"     // when an endpoint was throttled by its CFS quota, or this is unknown
	WarningCaptureSharesCPU = "CaptureSharesCPU" // when packets were captured on the CPU that measured
	// WarningInterfaceMismatch surfaces when the messages did not use the requested interface, or this is unknown.
	WarningInterfaceMismatch = "InterfaceMismatch"
	// WarningDeviceUnproved surfaces when the interface is not the device that was allocated, or too little is known.
	WarningDeviceUnproved   = "DeviceUnproved"
	WarningFunctionMismatch = "FunctionMismatch" // when the device is not a VF or PF as requested, or this is unknown
	// WarningMTUMismatch surfaces when an interface does not have the requested MTU, or the endpoints have different MTUs.
	WarningMTUMismatch = "MTUMismatch"
	WarningLinkNotUp   = "LinkNotUp" // when an interface had no carrier, lost it during the run, or its state is unknown
	// WarningNotAccelerated surfaces when Onload was requested and messages of a cell went through the kernel, or their path
	// is unknown.
	WarningNotAccelerated = "NotAccelerated"
	// WarningAccelerated surfaces when the kernel's stack was requested and messages of a cell bypassed it, or another
	// library was in the tools' processes, or their path is unknown.
	WarningAccelerated = "Accelerated"
	// WarningRedirected surfaces when the kernel of an endpoint carried messages more than once: a proxy in the pod's network
	// namespace, such as that of a mesh, sends them on.
	WarningRedirected = "Redirected"
	// WarningMessagesRepeated surfaces when more datagrams arrived than were sent, or this is unknown, and the tool cannot tell.
	WarningMessagesRepeated = "MessagesRepeated"
	// WarningPodChanged surfaces when an admission webhook changed a pod, or this is unknown, or when the two pods had different images.
	WarningPodChanged     = "PodChanged"
	WarningOnloadVersions = "OnloadVersionsDiffer" // when Onload's library and its kernel module have different versions
	WarningMessagesLost   = "MessagesLost"         // when messages were sent and not answered; they are not in the percentiles
	WarningTooFewSamples  = "TooFewSamples"        // when there are too few samples for highestPercentile
	// WarningCaptureIncomplete surfaces when packets were lost by the capture, or requests could not be matched with responses.
	WarningCaptureIncomplete = "CaptureIncomplete"
	// WarningResolutionReduced surfaces when a result was too large to be stored completely: its message says what was left
	// out or stored with less resolution.
	WarningResolutionReduced = "ResolutionReduced"
	// WarningStatusShortened surfaces when the status leaves parts out, because it would be too large for the API server.
	WarningStatusShortened = "StatusShortened"
	WarningTool            = "ToolWarning" // when the tool printed a warning
	// WarningFrequencyDiffers surfaces when the kernel throttled a measuring CPU because it was hot or, except on virtual machines, when its
	// frequency differed by more than 5 % before and after a cell, or between runs.
	WarningFrequencyDiffers = "FrequencyDiffers"
	WarningEvidenceDiffers  = "EvidenceDiffers" // when the rounds did not run under equal conditions
)

// Condition returns a condition of this API.
func Condition(conditionType string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message}
}

// SetCondition sets a condition for the current generation of the spec. The transition time changes with
// the status only.
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

// Finished reports whether nothing more will be measured of any pair.
func (m *LatencyMatrix) Finished() bool { return finished(m.Status.Conditions) }

func finished(conditions []metav1.Condition) bool {
	c := meta.FindStatusCondition(conditions, ConditionSucceeded)
	return c != nil && c.Status != metav1.ConditionUnknown
}

// Suspended reports whether spec.suspend holds the benchmark: it has no active attempt and starts none.
func (b *LatencyBenchmark) Suspended() bool {
	return b.Spec.Suspend && b.Status.Active == nil && !b.Finished()
}
