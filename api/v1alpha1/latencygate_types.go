package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// IdentityKey names a property of a node whose change makes a verified node unverified.
// +kubebuilder:validation:Enum=BootID;Kernel;Kubelet;ContainerRuntime;OSImage;Devices
type IdentityKey string

// The identity keys. All but Devices are fields of status.nodeInfo of the Node.
const (
	IdentityBootID           IdentityKey = "BootID"
	IdentityKernel           IdentityKey = "Kernel"
	IdentityKubelet          IdentityKey = "Kubelet"
	IdentityContainerRuntime IdentityKey = "ContainerRuntime"
	IdentityOSImage          IdentityKey = "OSImage"
	IdentityDevices          IdentityKey = "Devices"
)

// GateIdentity lists the properties of a node whose change invalidates its result.
type GateIdentity struct {
	// keys are BootID, Kernel, Kubelet, ContainerRuntime, OSImage and Devices (the number of allocatable devices of the
	// template's extended resources, without DRA); default all.
	// +listType=set
	// +kubebuilder:default={BootID,Kernel,Kubelet,ContainerRuntime,OSImage,Devices}
	// +kubebuilder:validation:MaxItems=6
	Keys []IdentityKey `json:"keys,omitempty"`

	// labels are keys of node labels in the identity, at most 16. An absent value is kept for a while (status.absent).
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:XValidation:rule="self.all(l, l.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && (!l.contains('/') || l.indexOf('/') <= 253))",message="must be keys that a label can have, such as example.com/nic-firmware"
	// +kubebuilder:validation:XValidation:rule="!('tailgate.dev/latency-verified' in self)",message="tailgate.dev/latency-verified: the gate itself sets this label"
	Labels []string `json:"labels,omitempty"`
}

// GateTaint keeps pods away from nodes that are not verified.
type GateTaint struct {
	// effect is NoSchedule, or NoExecute, which evicts running pods, too, without regard to PodDisruptionBudgets.
	// +required
	// +kubebuilder:validation:Enum=NoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect"`
}

// +kubebuilder:validation:Enum=Enforce;EnforceChanges;Observe
type EnforcementMode string

const (
	EnforcementAll     EnforcementMode = "Enforce"
	EnforcementChanges EnforcementMode = "EnforceChanges"
	EnforcementObserve EnforcementMode = "Observe"
)

// Enforcement lists what a gate sets on nodes in addition to the Node condition, and which nodes it holds back.
type Enforcement struct {
	// mode is which nodes that are not verified are held back: Enforce all, EnforceChanges all but nodes that are as the
	// gate found them (status.preexisting). Observe holds back no node and marks none. Each mode measures all nodes.
	// +kubebuilder:default=Enforce
	Mode EnforcementMode `json:"mode,omitempty"`

	// label sets the node label tailgate.dev/latency-verified to "true" or "false". If unset, the gate sets no label.
	Label *GateLabel `json:"label,omitempty"`

	// taint taints nodes that are not verified with tailgate.dev/latency-unverified, which pods that a measurement needs
	// (CNI, device plugins) must tolerate. Even if unset, a taint of a node's registration stays until it is verified.
	Taint *GateTaint `json:"taint,omitempty"`

	// holdPod runs a pod on each node, in the gate's namespace, which is Ready unless the node is held back; default none.
	HoldPod *GateHoldPod `json:"holdPod,omitempty"`
}

// GateLabel has the settings of the node label. There are no settings yet: write label: {}.
type GateLabel struct{}

// GateHoldPod has the settings of the hold pods. Without settings, write holdPod: {}.
type GateHoldPod struct {
	// budget keeps a PodDisruptionBudget over the hold pods: drains by eviction wait while too many of them are not ready.
	// A hold pod that is not ready can be evicted at any time. If unset, there is no budget.
	Budget *GateBudget `json:"budget,omitempty"`
}

type GateBudget struct {
	// maxUnavailable is how many of the gate's nodes may be drained or not verified at the same time; default 1.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=5000
	MaxUnavailable int32 `json:"maxUnavailable,omitempty"`
}

// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.placement.client) || !has(self.template.spec.placement.client.nodeName) && !has(self.template.spec.placement.client.nodeNames) && !has(self.template.spec.placement.client.nodeSelector)",message="template.spec.placement.client: must be {}, because the gate sets it to the node that it verifies; nodeSelector of the gate selects these nodes"
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.custom) || self.template.spec.custom.image.contains('@sha256:')",message="template.spec.custom.image: a gate needs the image by digest (NAME@sha256:DIGEST), because a tag may name another program later"
// +kubebuilder:validation:XValidation:rule="has(self.template.spec.criteria)",message="template.spec.criteria: the rules are required; a gate without rules cannot hold anything back"
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.criteria) || !has(self.template.spec.criteria.ignoreDifferences) || self.template.spec.criteria.ignoreDifferences.size() <= 31",message="template.spec.criteria.ignoreDifferences: at most 31, because the gate adds the key node when the peer of a node is not the peer of its baseline"
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.criteria) || !has(self.template.spec.criteria.baseline) || !has(self.template.spec.criteria.baseline.gate)",message="template.spec.criteria.baseline.gate: must be absent, because each node is compared with the result that this gate has accepted of it"
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.criteria) || !has(self.template.spec.criteria.baseline) || self.template.spec.criteria.baseline.type != 'Matrix'",message="template.spec.criteria.baseline.type: only the template of a LatencyMatrix compares with another one; use type Gate"
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.criteria) || !has(self.template.spec.criteria.baseline) || !has(self.template.spec.criteria.baseline.benchmark) || has(self.template.spec.criteria.baseline.benchmark.uid)",message="template.spec.criteria.baseline.benchmark.uid: is required in a gate, because another benchmark can have the name later; kubectl get latencybenchmarks.tailgate.dev NAME -o jsonpath={.metadata.uid}"
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.criteria) || !has(self.template.spec.maxRounds) || self.template.spec.maxRounds >= 6 || self.template.spec.criteria.rules.all(r, !has(r.max) && !has(r.min))",message="template.spec.maxRounds: rules with max or min can neither pass nor fail with fewer than 6 rounds"
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.criteria) || !has(self.template.spec.maxRounds) || self.template.spec.maxRounds >= 8 || self.template.spec.maxRounds >= 4 && self.template.spec.rounds >= 2 || self.template.spec.maxRounds == 3 && self.template.spec.rounds == 3 || self.template.spec.criteria.rules.all(r, !has(r.maxIncrease) && !has(r.maxDecrease))",message="template.spec.maxRounds: rules with maxIncrease or maxDecrease can neither pass nor fail with so few rounds; set rounds and maxRounds to at least 3"
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.pods) || !has(self.template.spec.pods.tolerations) || self.template.spec.pods.tolerations.size() <= 15",message="template.spec.pods.tolerations: at most 15, because the gate adds a toleration of its own taint"
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.variants) || self.template.spec.variants.all(v, v.name.size() <= 16)",message="template.spec.variants: names have at most 16 characters, because the gate's benchmarks are named after nodes"
// +kubebuilder:validation:XValidation:rule="!has(self.timeZone) || has(self.schedule)",message="timeZone: applies only to a schedule; remove it, or set schedule"
// +kubebuilder:validation:XValidation:rule="!has(self.scheduleWindow) || has(self.schedule)",message="scheduleWindow: applies only to a schedule; remove it, or set schedule"
type LatencyGateSpec struct {
	// nodeSelector selects the nodes, and must not be empty. Of several gates, the oldest outside mode Observe owns a node.
	// +required
	// +kubebuilder:validation:XValidation:rule="has(self.matchLabels) && self.matchLabels.size() > 0 || has(self.matchExpressions) && self.matchExpressions.size() > 0",message="nodeSelector: must have matchLabels or matchExpressions; to select every node, use matchExpressions: [{key: kubernetes.io/hostname, operator: Exists}]"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="matchExpressions: operator must be In or NotIn with 1 to 64 values, or Exists or DoesNotExist without values"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchLabels) || self.matchLabels.all(k, k.size() <= 317)",message="matchLabels: a key has at most 317 characters"
	NodeSelector metav1.LabelSelector `json:"nodeSelector"`

	// namespace is the namespace of the gate's benchmarks, including those with the accepted results.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot change, because it contains the accepted results: delete the gate and apply it again"
	Namespace string `json:"namespace"`

	// template is the benchmark of a node. placement.client selects no nodes; placement.server the peers, {} the gate's
	// nodes. criteria is required: baseline {type: Gate} is the accepted boots. A change makes no node unverified.
	// +required
	Template LatencyBenchmarkTemplate `json:"template"`

	// releaseAfter is how long a node that the gate no longer selects stays, held back unless verified: 1m to 8760h.
	// Results of a deleted Node or gate stay as long. To release a node at once, delete its LatencyVerification.
	// +optional
	// +kubebuilder:default="1h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('8760h')",message="must be a duration from 1m to 8760h, such as 1h"
	ReleaseAfter metav1.Duration `json:"releaseAfter,omitzero"`

	// identity lists the properties of a node of which any change makes the node unverified.
	// +optional
	// +kubebuilder:default={}
	Identity GateIdentity `json:"identity,omitzero"`

	// schedule is when verified nodes are measured again, in turn: five cron fields, @daily or the like; default never.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=100
	// +kubebuilder:validation:XValidation:rule="!self.contains('TZ') && !self.startsWith('@every')",message="give the time zone in timeZone, and times of day rather than @every"
	// +kubebuilder:validation:XValidation:rule="self.startsWith('@') ? self in ['@yearly', '@annually', '@monthly', '@weekly', '@daily', '@midnight', '@hourly'] : self.matches('^ *[^ ]+( +[^ ]+){4} *$')",message="must be the five fields minute, hour, day of month, month and day of week, or @yearly, @annually, @monthly, @weekly, @daily, @midnight or @hourly"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^ *[^ @]+( +[^ ]+){4} *$') || self.lowerAscii().matches('^ *([*?]|([0-5]?[0-9])(-([0-5]?[0-9]))?)(/[1-9][0-9]*)?(,([*?]|([0-5]?[0-9])(-([0-5]?[0-9]))?)(/[1-9][0-9]*)?)* +([*?]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]*)?(,([*?]|([01]?[0-9]|2[0-3])(-([01]?[0-9]|2[0-3]))?)(/[1-9][0-9]*)?)* +([*?]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]*)?(,([*?]|(0?[1-9]|[12][0-9]|3[01])(-(0?[1-9]|[12][0-9]|3[01]))?)(/[1-9][0-9]*)?)* +([*?]|(0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(-(0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))?)(/[1-9][0-9]*)?(,([*?]|(0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)(-(0?[1-9]|1[0-2]|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))?)(/[1-9][0-9]*)?)* +([*?]|(0?[0-6]|sun|mon|tue|wed|thu|fri|sat)(-(0?[0-6]|sun|mon|tue|wed|thu|fri|sat))?)(/[1-9][0-9]*)?(,([*?]|(0?[0-6]|sun|mon|tue|wed|thu|fri|sat)(-(0?[0-6]|sun|mon|tue|wed|thu|fri|sat))?)(/[1-9][0-9]*)?)* *$')",message="each field must be *, a value, a range a-b, a step such as */5, or a list of these: minute 0 to 59, hour 0 to 23, day of month 1 to 31, month 1 to 12 or JAN to DEC, day of week 0 to 6 or SUN to SAT (Sunday is 0)"
	// +kubebuilder:validation:XValidation:rule="self.startsWith('@') || self.findAll('[0-9]{1,4}-[0-9]{1,4}').all(r, int(r.split('-')[0]) <= int(r.split('-')[1])) && self.lowerAscii().findAll('[a-z]{3}-[a-z]{3}').all(r, 'jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|sun|mon|tue|wed|thu|fri|sat'.indexOf(r.substring(0, 3)) <= 'jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|sun|mon|tue|wed|thu|fri|sat'.indexOf(r.substring(4)))",message="a range must not end before it begins: write two ranges, such as 22-23,0-4"
	Schedule string `json:"schedule,omitempty"`

	// scheduleWindow is how long after each time turns may begin, 1m to 8760h; default until all nodes had their turn.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('1m') && duration(self) <= duration('8760h')",message="must be a duration from 1m to 8760h, such as 4h"
	ScheduleWindow metav1.Duration `json:"scheduleWindow,omitzero"`

	// timeZone is the time zone of schedule, such as Europe/Zurich; default UTC.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$') && self.lowerAscii() != 'local' && timestamp('2000-01-01T00:00:00Z').getHours(self) >= 0",message="must be the name of a time zone, such as Europe/Zurich"
	TimeZone string `json:"timeZone,omitempty"`

	// enforcement lists what the gate sets in addition to the Node condition.
	// +optional
	Enforcement Enforcement `json:"enforcement,omitzero"`

	// maxUnverified is how many nodes may be not Verified before Passed is False; default any number. One Failed suffices.
	// +kubebuilder:validation:Minimum=0
	MaxUnverified *int32 `json:"maxUnverified,omitempty"`

	// maxParallel is how many nodes are measured at once: 1 to 100, or a percentage, rounded up; 1 if ipam is Static.
	// +kubebuilder:default="10%"
	// +kubebuilder:validation:MaxLength=4
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 1 && self <= 100 : self.matches('^(100|[1-9][0-9]?)%$')",message="must be a number from 1 to 100, or a percentage from 1% to 100%, such as 10%"
	MaxParallel *intstr.IntOrString `json:"maxParallel,omitempty"`

	// historyLimit is how many benchmarks of each node are kept, besides the accepted one, 1 to 10; default 3.
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10
	HistoryLimit int32 `json:"historyLimit,omitempty"`

	// suspend stops the start of benchmarks. Verified nodes can still become unverified.
	Suspend bool `json:"suspend,omitempty"`

	// workloads are applications whose last kubectl tailgate inspect is in the status. Inspections change no node's state.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Workloads []GateWorkload `json:"workloads,omitempty"`
}

// GateWorkload selects the pods of an application.
type GateWorkload struct {
	// name is the name of the workload in the status.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// namespace is the namespace of the pods.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`
	// selector selects the pods by their labels, as kubectl get pods --selector does, such as app=feed.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Selector string `json:"selector"`
	// require are the checks that must be Proved, as in kubectl tailgate inspect --require.
	// +kubebuilder:default="CPUsExclusive,ThreadsOnCPUs"
	// +kubebuilder:validation:MaxLength=256
	Require string `json:"require,omitempty"`
}

// WorkloadStatus is what the last inspections of a workload's pods found. Users can write it, too: it is no evidence.
type WorkloadStatus struct {
	// name is the name of the workload in the spec.
	Name string `json:"name"`
	// pods is the number of the pods.
	Pods int32 `json:"pods"`
	// proved is how many of the pods have all required checks Proved since their container started.
	Proved int32 `json:"proved"`
	// message is the reason why the pods cannot be read; absent otherwise.
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
	// others are the other pods, at most 20: those with Failed checks first.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	Others []WorkloadPod `json:"others,omitempty"`
}

// WorkloadPod is a pod of a workload of which not all required checks are Proved.
type WorkloadPod struct {
	// name is the name of the pod.
	Name string `json:"name"`
	// nodeName is the name of its Node.
	NodeName string `json:"nodeName"`
	// inspectionTime is when the last inspection since the start of its container ended; absent without one.
	InspectionTime *metav1.Time `json:"inspectionTime,omitempty"`
	// failed are the required checks that are Failed.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Failed []string `json:"failed,omitempty"`
	// unknown are the required checks that are neither Proved nor Failed.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Unknown []string `json:"unknown,omitempty"`
	// message is the reason why there is no inspection, or why it cannot be read; absent otherwise.
	// +kubebuilder:validation:MaxLength=256
	Message string `json:"message,omitempty"`
}

type NodeCounts struct {
	// total is the number of nodes.
	Total int32 `json:"total"`
	// verified is the number of nodes in state Verified.
	Verified int32 `json:"verified"`
	// unverified is the number of nodes in state Unverified, which wait to be measured.
	Unverified int32 `json:"unverified"`
	// unmeasurable is the number of those that no measurement can verify, because of a taint or without a peer.
	Unmeasurable int32 `json:"unmeasurable,omitempty"`
	// unplaced is the number of nodes that are due by schedule or request and have no room for the benchmark's pods.
	Unplaced int32 `json:"unplaced,omitempty"`
	// measuring is the number of nodes in state Measuring.
	Measuring int32 `json:"measuring"`
	// failed is the number of nodes in state Failed.
	Failed int32 `json:"failed"`
	// inconclusive is the number of nodes in state Inconclusive.
	Inconclusive int32 `json:"inconclusive"`
	// away is the number of nodes in state Away, which are verified and not ready.
	Away int32 `json:"away"`
}

// NodeLine describes a node that is not verified.
type NodeLine struct {
	// name of the node.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// state is Unverified, Measuring, Failed, Inconclusive or Away.
	State VerificationState `json:"state"`
	// message has the reason, and what the node waits for.
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
	// held is true if the gate holds the node back.
	Held bool `json:"held,omitempty"`
	// since is since when the node is in this state.
	Since *metav1.Time `json:"since,omitempty"`
	// ends is what ends the state.
	// +kubebuilder:validation:MaxLength=160
	Ends string `json:"ends,omitempty"`
	// user is true if a user must act.
	User bool `json:"user,omitempty"`
}

// MaxSpreads and MaxChanges are the maximum numbers of entries of status.spread and status.changes of a LatencyGate.
const MaxSpreads, MaxChanges = 128, 40

// SessionSpread is how much the sessions of the nodes of a group differ in one compared value.
type SessionSpread struct {
	ComparedValue `json:",inline"`
	// group is the values of the labels in spec.identity.labels that the nodes share; empty for a single group.
	// +kubebuilder:validation:MaxLength=160
	Group string `json:"group"`
	// nodes is the number of nodes of the group with a difference between two boots.
	Nodes int32 `json:"nodes"`
	// differences is the number of differences that count, at most 200; with fewer than 8 nodes, of all groups.
	Differences int32 `json:"differences"`
	// deviation is the robust standard deviation of logarithms, without what 6 nodes share; absent below 4 differences.
	Deviation Factor `json:"deviation,omitempty"`
	// warmUp is the ratio of the first 6 rounds of first sessions to the next 6, if slower; 6 more then replace them.
	WarmUp Factor `json:"warmUp,omitempty"`
}

// FleetChange is the difference between the last accepted session before a change and the first session after it.
type FleetChange struct {
	// group is the group of the nodes, as in status.spread; absent for all nodes.
	// +kubebuilder:validation:MaxLength=160
	Group string `json:"group,omitempty"`
	// changed are the keys of the identity that changed, with the previous values; only BootID for a wave of boots.
	// +listType=map
	// +listMapKey=key
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Changed []IdentityChange `json:"changed"`
	// of is the compared value that became worst in parts of its tolerance.
	Of ComparedValue `json:"of"`
	// nodes is the number of nodes that were measured with the same peer before and after the change.
	Nodes int32 `json:"nodes"`
	// median is the median ratio of the nodes, after to before.
	Median Factor `json:"median"`
	// shifted is true while the nodes are slower by over half of the tolerance. Undo the change, or accept the results.
	Shifted bool `json:"shifted,omitempty"`
	// startTime is when the first of the nodes was measured after the change.
	StartTime metav1.Time `json:"startTime"`
	// endTime is when the last of the nodes was.
	EndTime metav1.Time `json:"endTime"`
	// shared are the median ratios of all compared values, from 6 nodes on.
	// +kubebuilder:validation:MaxProperties=32
	Shared map[string]Factor `json:"shared,omitempty"`
	// lower is the lower bound of the 95 % interval of the median; absent with too few nodes.
	Lower Factor `json:"lower,omitempty"`
	// upper is the upper bound of the 95 % interval of the median.
	Upper Factor `json:"upper,omitempty"`
}

// ScheduleStatus says from when the times of a schedule count, and how its turns ended.
type ScheduleStatus struct {
	// schedule is the schedule of the spec to which startTime belongs.
	// +kubebuilder:validation:MaxLength=100
	Schedule string `json:"schedule"`
	// timeZone is the time zone of schedule.
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
	// startTime is when the operator first saw this schedule, or the end of spec.suspend. Earlier times do not count.
	StartTime metav1.Time `json:"startTime"`
	// fruitless is how many turns or benchmarks in a row had no result. At 5, the schedule pauses until its next time.
	Fruitless int32 `json:"fruitless,omitempty"`
	// fruitlessTime is when the last of these ended.
	FruitlessTime *metav1.MicroTime `json:"fruitlessTime,omitempty"`
}

// MaxFruitless is the number of turns in a row without a result after which a schedule pauses.
const MaxFruitless = 5

// MaxNodeLines is the maximum number of nodes in status.notVerified of a LatencyGate.
const MaxNodeLines = 20

// LatencyGateStatus is the state of the gate's nodes. The LatencyVerification of each node has the details.
type LatencyGateStatus struct {
	// observedGeneration is the generation of the spec that this status describes; -1 until the operator reads it.
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Operational, Passed (True if all are verified, False if one failed), Ready, Reconciling and Stalled.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// nodes are the numbers of nodes by state, including retained nodes.
	// +optional
	Nodes NodeCounts `json:"nodes,omitzero"`

	// unsettled is true if no older node could be measured: the gate holds these back once measured, or after an edit.
	Unsettled bool `json:"unsettled,omitempty"`

	// schedule says from when the times of spec.schedule count; absent without it, and while the gate is suspended.
	Schedule *ScheduleStatus `json:"schedule,omitempty"`

	// notVerified are nodes that are not verified, at most 20, failed nodes first.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=20
	NotVerified []NodeLine `json:"notVerified,omitempty"`

	// spread is how much the sessions of a node differ although nothing changed, at most 32 values of a kind of node.
	// +listType=map
	// +listMapKey=variant
	// +listMapKey=cell
	// +listMapKey=metric
	// +listMapKey=group
	// +kubebuilder:validation:MaxItems=128
	Spread []SessionSpread `json:"spread,omitempty"`

	// changes are what the last changes did to the nodes, at most 40: those that made them slower, then the newest.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=40
	Changes []FleetChange `json:"changes,omitempty"`

	// workloads are the pods of spec.workloads, looked at each minute.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Workloads []WorkloadStatus `json:"workloads,omitempty"`
}

// LatencyGate holds nodes back until their latency is verified. A gate measures every node that is new or has changed.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=lgate,categories=tailgate
// +kubebuilder:printcolumn:name="Passed",type=string,JSONPath=`.status.conditions[?(@.type=="Passed")].status`
// +kubebuilder:printcolumn:name="Nodes",type=integer,JSONPath=`.status.nodes.total`
// +kubebuilder:printcolumn:name="Verified",type=integer,JSONPath=`.status.nodes.verified`
// +kubebuilder:printcolumn:name="Unverified",type=integer,JSONPath=`.status.nodes.unverified`
// +kubebuilder:printcolumn:name="Measuring",type=integer,JSONPath=`.status.nodes.measuring`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.nodes.failed`
// +kubebuilder:printcolumn:name="Inconclusive",type=integer,JSONPath=`.status.nodes.inconclusive`
// +kubebuilder:printcolumn:name="Away",type=integer,JSONPath=`.status.nodes.away`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Operational",type=string,JSONPath=`.status.conditions[?(@.type=="Operational")].reason`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Passed")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",message="metadata.name: at most 63 characters and no dot, because it is part of labels and of the names of LatencyVerifications"
type LatencyGate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec selects the nodes that are held back, and says how they are measured.
	// +required
	Spec LatencyGateSpec `json:"spec"`
	// status is the state of the nodes.
	// +optional
	// +kubebuilder:default={}
	Status LatencyGateStatus `json:"status,omitzero"`
}

// Parallel returns how many of a gate's nodes are measured at once: at least one, and only one if pairs would get the same addresses.
func (s *LatencyGateSpec) Parallel(nodes int) int {
	networks := []*Network{&s.Template.Spec.Network}
	for _, v := range s.Template.Spec.Variants {
		networks = append(networks, v.Network)
	}
	if slices.ContainsFunc(networks, func(n *Network) bool { return n != nil && n.IPAM() != nil && n.IPAM().Type == IPAMStatic }) {
		return 1
	}
	limit := intstr.FromString("10%")
	if s.MaxParallel != nil {
		limit = *s.MaxParallel
	}
	n, _ := intstr.GetScaledValueFromIntOrPercent(&limit, nodes, true) // The API server refuses other texts, for which n is 0.
	return max(1, n)
}

// +kubebuilder:object:root=true
type LatencyGateList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LatencyGate `json:"items"`
}
