package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// +kubebuilder:validation:Enum=pinger;sfnt-pingpong;sfnt-stream;netperf;sockperf;Custom
type Tool string

// The tools. Each is a folder of internal/tool.
const (
	// ToolPinger is Tailgate's own: ping-pong over TCP or UDP that counts every sample.
	ToolPinger Tool = "pinger"
	// ToolSfntPingpong is AMD's sfnt-pingpong (cns-sfnettest): closed-loop ping-pong over TCP or UDP.
	ToolSfntPingpong Tool = "sfnt-pingpong"
	// ToolSfntStream is AMD's sfnt-stream (cns-sfnettest): UDP messages at a rate, of which a run times up to 900,000.
	ToolSfntStream Tool = "sfnt-stream"
	// ToolNetperf is netperf: request/response and stream tests over TCP or UDP, without samples.
	ToolNetperf Tool = "netperf"
	// ToolSockperf is sockperf: ping-pong, under load at a rate, and throughput, over TCP or UDP.
	ToolSockperf Tool = "sockperf"
	// ToolCustom is the program of spec.custom.
	ToolCustom Tool = "Custom"
)

// Tools are all of them, the default first.
var Tools = []Tool{ToolPinger, ToolSfntPingpong, ToolSfntStream, ToolNetperf, ToolSockperf, ToolCustom}

func (t Tool) OfSfnettest() bool { return t == ToolSfntPingpong || t == ToolSfntStream }

// Protocol is the transport that carries the messages.
// +kubebuilder:validation:Enum=TCP;UDP;Multicast
type Protocol string

const (
	ProtocolTCP       Protocol = "TCP"
	ProtocolUDP       Protocol = "UDP"
	ProtocolMulticast Protocol = "Multicast"
)

// +kubebuilder:validation:Enum=Block;Spin
type WaitMode string

const (
	WaitBlock WaitMode = "Block"
	WaitSpin  WaitMode = "Spin"
)

// Muxer is the system call with which an end waits for its sockets.
// +kubebuilder:validation:Enum=None;Select;Poll;Epoll
type Muxer string

const (
	MuxerNone   Muxer = "None"
	MuxerSelect Muxer = "Select"
	MuxerPoll   Muxer = "Poll"
	MuxerEpoll  Muxer = "Epoll"
)

// +kubebuilder:validation:Enum=None;Server
type CaptureMode string

const (
	CaptureNone   CaptureMode = "None"
	CaptureServer CaptureMode = "Server"
)

// LatencyType says what a latency counts.
// +kubebuilder:validation:Enum=HalfRTT;RTT
type LatencyType string

const (
	LatencyHalfRTT LatencyType = "HalfRTT"
	LatencyRTT     LatencyType = "RTT"
)

// +kubebuilder:validation:Enum=p50;p75;p90;p95;p99;p99.9;p99.99;p99.999;p99.9999
type Percentile string

const (
	P50     Percentile = "p50"
	P75     Percentile = "p75"
	P90     Percentile = "p90"
	P95     Percentile = "p95"
	P99     Percentile = "p99"
	P999    Percentile = "p99.9"
	P9999   Percentile = "p99.99"
	P99999  Percentile = "p99.999"
	P999999 Percentile = "p99.9999"
)

// HeadlinePercentiles returns the percentiles of short overviews.
func HeadlinePercentiles() []Percentile { return []Percentile{P50, P99, P999} }

// MeasurementSpec describes a measurement, for a LatencyBenchmark and the templates of other kinds.
// +kubebuilder:validation:XValidation:rule="self.tool != 'pinger' || !has(self.workload.messageSizes) || self.workload.messageSizes.all(s, s >= 1)",message="spec.workload.messageSizes: pinger measures messages of at least 1 byte; use sizes from 1"
// +kubebuilder:validation:XValidation:rule="self.tool != 'sfnt-pingpong' || !('TCP' in self.workload.protocols) || !has(self.workload.messageSizes) || self.workload.messageSizes.all(s, s >= 1)",message="spec.workload.messageSizes: sfnt-pingpong cannot measure TCP messages of 0 bytes; use sizes from 1, or UDP alone"
// +kubebuilder:validation:XValidation:rule="self.tool != 'sockperf' || !has(self.workload.messageSizes) || self.workload.messageSizes.all(s, s >= 14 && s <= 65507)",message="spec.workload.messageSizes: sockperf needs 14 to 65507 bytes (its own header takes 14); use pinger or sfnt-pingpong for other sizes"
// +kubebuilder:validation:XValidation:rule="self.workload.protocols.all(p, p == 'TCP') || !has(self.workload.messageSizes) || self.workload.messageSizes.all(s, s <= 65507)",message="spec.workload.messageSizes: a UDP datagram carries at most 65507 bytes; use smaller sizes, or TCP alone"
// +kubebuilder:validation:XValidation:rule="!has(self.workload.ratesPerSecond) || self.tool in ['pinger', 'sockperf', 'sfnt-stream', 'Custom']",message="spec.workload.ratesPerSecond: only pinger, sockperf and sfnt-stream send at a rate; use one of them, or remove ratesPerSecond"
// +kubebuilder:validation:XValidation:rule="self.tool != 'sfnt-stream' || has(self.workload.ratesPerSecond)",message="spec.workload.ratesPerSecond: sfnt-stream sends at a rate; give at least one, or use pinger, sfnt-pingpong, sockperf or netperf for ping-pong"
// +kubebuilder:validation:XValidation:rule="self.tool != 'sfnt-stream' || !('TCP' in self.workload.protocols)",message="spec.workload.protocols: sfnt-stream sends UDP only; use protocols: [UDP], or pinger or sockperf for TCP at a rate"
// +kubebuilder:validation:XValidation:rule="self.tool != 'sfnt-stream' || !has(self.workload.messageSizes) || self.workload.messageSizes.all(s, s >= 24)",message="spec.workload.messageSizes: sfnt-stream needs at least 24 bytes (its own header takes them); use larger sizes, or pinger"
// +kubebuilder:validation:XValidation:rule="self.tool != 'sfnt-stream' || (has(self.placement.client) && has(self.placement.client.cpus) ? self.placement.client.cpus >= 2 : !has(self.placement.cpus) || self.placement.cpus >= 2)",message="spec.placement.cpus: sfnt-stream needs two CPUs at the client's end, one to send and one to receive; set 2 or more, or set client.cpus"
// +kubebuilder:validation:XValidation:rule="!has(self.workload.streams) || self.tool in ['netperf', 'sockperf']",message="spec.workload.streams: only netperf and sockperf measure bandwidth; use one of them, or remove streams"
// +kubebuilder:validation:XValidation:rule="!has(self.workload.lossAfter) || self.tool == 'pinger' && self.workload.protocols.exists(p, p != 'TCP')",message="spec.workload.lossAfter: only pinger has this setting, for UDP and Multicast; use it, or remove lossAfter"
// +kubebuilder:validation:XValidation:rule="!has(self.highestPercentile) || self.tool != 'netperf' || self.highestPercentile in ['p50', 'p90', 'p99']",message="spec.highestPercentile: netperf reports only p50, p90 and p99; use one of these, or pinger, sfnt-pingpong, sfnt-stream or sockperf"
// +kubebuilder:validation:XValidation:rule="!has(self.variants) || self.rounds * self.variants.size() <= 400",message="spec.rounds: rounds times variants must be at most 400"
// +kubebuilder:validation:XValidation:rule="!has(self.variants) || !has(self.maxRounds) || self.maxRounds * self.variants.size() <= 400",message="spec.maxRounds: maxRounds times variants must be at most 400"
// +kubebuilder:validation:XValidation:rule="!has(self.maxRounds) || self.maxRounds >= self.rounds",message="spec.maxRounds: must be at least spec.rounds; the same number means that the rules are evaluated once"
// +kubebuilder:validation:XValidation:rule="!has(self.criteria) || !has(self.criteria.baseline) || !has(self.criteria.baseline.variant) || has(self.variants) && self.variants.exists(v, v.name == self.criteria.baseline.variant.name)",message="spec.criteria.baseline.variant.name: must be one of spec.variants"
// +kubebuilder:validation:XValidation:rule="!has(self.criteria) || self.criteria.rules.all(r, !has(r.variants) || r.variants.all(n, has(self.variants) ? self.variants.exists(v, v.name == n) : n == 'default'))",message="spec.criteria.rules: variants must be among spec.variants; without spec.variants there is one variant, named default"
// +kubebuilder:validation:XValidation:rule="!has(self.headline) || !has(self.headline.protocol) || self.headline.protocol in self.workload.protocols",message="spec.headline.protocol: must be one of workload.protocols"
// +kubebuilder:validation:XValidation:rule="!has(self.headline) || (has(self.workload.messageSizes) ? !has(self.headline.messageSize) || self.headline.messageSize in self.workload.messageSizes : !has(self.workload.streams) && (!has(self.headline.messageSize) || self.headline.messageSize == 64))",message="spec.headline.messageSize: must be one of workload.messageSizes (64 if unset; none if only streams are measured)"
// +kubebuilder:validation:XValidation:rule="!has(self.headline) || !has(self.headline.ratePerSecond) || has(self.workload.ratesPerSecond) && self.headline.ratePerSecond in self.workload.ratesPerSecond",message="spec.headline.ratePerSecond: must be one of workload.ratesPerSecond"
// +kubebuilder:validation:XValidation:rule="has(self.custom) == (self.tool == 'Custom')",message="spec.custom: describes the program of tool Custom, which needs it; no other tool has it"
// +kubebuilder:validation:XValidation:rule="self.tool != 'Custom' || (!has(self.capture) || self.capture == 'None') && (!has(self.variants) || self.variants.all(v, !has(v.capture) || v.capture == 'None'))",message="spec.capture: the packets of tool Custom cannot be matched, because its messages may have any form; remove capture"
// +kubebuilder:validation:XValidation:rule="!has(self.highestPercentile) || !has(self.custom) || self.custom.output.format != 'SfntPingpong' || self.highestPercentile in ['p50', 'p99']",message="spec.highestPercentile: the table of sfnt-pingpong has only p50 and p99; use one of these, or another spec.custom.output.format"
type MeasurementSpec struct {
	// tool is the program that measures: pinger, sfnt-pingpong, sfnt-stream, netperf, sockperf, or your own (Custom).
	// +required
	Tool Tool `json:"tool"`

	// custom is your own program, which tool Custom measures with: see docs/your-application.md.
	Custom *Custom `json:"custom,omitempty"`

	// workload is the traffic that is measured, and its duration.
	// +optional
	// +kubebuilder:default={}
	Workload Workload `json:"workload,omitzero"`

	// rounds is how many times all is measured, each time with new pods. An absolute limit needs at least 6 rounds.
	// +kubebuilder:default=6
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Rounds int32 `json:"rounds,omitempty"`

	// maxRounds is how many rounds an Inconclusive verdict may extend to, at least rounds; default 20, or rounds if more.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	MaxRounds int32 `json:"maxRounds,omitempty"`

	// placement selects the nodes of client and server, and their CPUs and memory.
	// +optional
	// +kubebuilder:default={}
	Placement Placement `json:"placement,omitzero"`

	// network is the network between client and server; default the primary pod network. Variants may have others.
	// +optional
	// +kubebuilder:default={type: Pod}
	Network Network `json:"network,omitzero"`

	// acceleration is the network stack of the tools' sockets: the kernel (default) or Onload.
	Acceleration *Acceleration `json:"acceleration,omitempty"`

	// variants are the configurations to compare, each measured in every round. If unset, there is one, named default.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.map(v, has(v.env) ? v.env.size() : 0).sum() <= 64",message="all variants together have at most 64 variables in env; give those of all variants in spec.pods.env"
	Variants []Variant `json:"variants,omitempty"`

	// capture says which end captures packets: None (default) or Server, for the time from a request's arrival at the
	// server to its answer. Server needs the operator's flag --allow-packet-capture and, to avoid a warning, 2 CPUs.
	Capture CaptureMode `json:"capture,omitempty"`

	// latencyType is HalfRTT (half of the round-trip time, not one way) or RTT. Stored histograms always hold the RTT.
	// +kubebuilder:default=HalfRTT
	LatencyType LatencyType `json:"latencyType,omitempty"`

	// headline selects the cell of status.summary, of a matrix's slowest pairs and of a gate's metrics; default the first.
	Headline *Headline `json:"headline,omitempty"`

	// highestPercentile must be in the results: a spec that cannot provide it is refused. If unset, none is guaranteed.
	HighestPercentile Percentile `json:"highestPercentile,omitempty"`

	// pods has additional settings of the benchmark pods that a cluster may need.
	Pods *PodSettings `json:"pods,omitempty"`

	// priority orders waiting benchmarks, highest first; default 0. A minute of waiting adds one. Running ones continue.
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000
	Priority int32 `json:"priority,omitempty"`

	// notes are facts that agents cannot read, such as the BIOS profile, at most 16. Notes never prevent a comparison.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Notes []Note `json:"notes,omitempty"`

	// criteria are the limits that the results must meet. After a change, the stored results are judged again.
	Criteria *Criteria `json:"criteria,omitempty"`
}

type LatencyBenchmarkSpec struct {
	MeasurementSpec `json:",inline"`

	// suspend ends the current attempt, which does not count as failed, and frees the nodes; false resumes the other runs.
	Suspend bool `json:"suspend,omitempty"`

	// ttlSecondsAfterFinished is the number of seconds after which a finished benchmark is deleted with its results, 0
	// to 315360000 (ten years); absent: never. A benchmark that is a baseline, or that a matrix or gate owns, is kept.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=315360000
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`

	// historyLimit is how many newer complete benchmarks of the namespace with the same label tailgate.dev/series lead to
	// the deletion of a finished benchmark, 1 to 1000; absent: never. A baseline is kept.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	HistoryLimit int32 `json:"historyLimit,omitempty"`

	// session are the values of which status.session keeps the first rounds, at most 32. A LatencyGate sets it.
	// +listType=map
	// +listMapKey=variant
	// +listMapKey=cell
	// +listMapKey=metric
	// +kubebuilder:validation:MaxItems=32
	Session []ComparedValue `json:"session,omitempty"`
}

type Headline struct {
	// protocol is the protocol of the cell, one of workload.protocols; default the first.
	Protocol Protocol `json:"protocol,omitempty"`
	// messageSize is the payload size of the cell in bytes, one of workload.messageSizes; default the first.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65536
	MessageSize *int32 `json:"messageSize,omitempty"`
	// ratePerSecond is the rate of the cell, one of workload.ratesPerSecond; default the first.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=10000000
	RatePerSecond int32 `json:"ratePerSecond,omitempty"`
}

// Note is a fact about the test that its author records.
type Note struct {
	// name is unique in the benchmark, such as bios, switch or ticket, at most 63 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$`
	Name string `json:"name"`

	// value is one line of text, at most 256 characters.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:Pattern=`^\P{C}+$`
	Value string `json:"value"`
}

// Variant is a configuration that a benchmark compares. Fields that it does not set have the values of the spec.
type Variant struct {
	// name is unique in the benchmark, at most 20 characters; pods and results are named after it.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=20
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// network is the variant's network between client and server; default spec.network.
	Network *Network `json:"network,omitempty"`

	// acceleration is the network stack of the variant's sockets; default spec.acceleration.
	Acceleration *Acceleration `json:"acceleration,omitempty"`

	// wait is how both ends wait for a message; default spec.workload.wait.
	Wait WaitMode `json:"wait,omitempty"`

	// muxer is the system call with which both ends wait; default spec.workload.muxer.
	Muxer Muxer `json:"muxer,omitempty"`

	// capture says which end captures packets in this variant: None or Server; default spec.capture.
	Capture CaptureMode `json:"capture,omitempty"`

	// numaPolicy is the NUMA policy of both ends in this variant: Required, Preferred or Ignore; default theirs.
	NUMAPolicy NUMAPolicy `json:"numaPolicy,omitempty"`

	// env are environment variables of the variant's tools, which override variables of spec.pods with the same name.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Env []EnvVar `json:"env,omitempty"`
}

// Resources returns the extended resources of each pod of a variant whose inherited fields are filled in.
func (v Variant) Resources() []string {
	all := []string{v.Network.ResourceName(), v.Network.AlignWith(), v.Acceleration.OnloadSettings().ResourceName}
	return slices.DeleteFunc(all, func(name string) bool { return name == "" })
}

// Workload is the traffic: every protocol with every size at every rate, and the streams in addition.
type Workload struct {
	// protocols are the transports to measure: TCP, UDP, Multicast (UDP over a group, both ways); default TCP.
	// +listType=set
	// +kubebuilder:default={TCP}
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	Protocols []Protocol `json:"protocols,omitempty"`

	// messageSizes are the payload sizes in bytes, 0 to 65536, at most 32; default 64, or none if there are streams.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Minimum=0
	// +kubebuilder:validation:items:Maximum=65536
	MessageSizes []int32 `json:"messageSizes,omitempty"`

	// ratesPerSecond are the rates of messages, at most 16. If unset, each message follows the answer to the last message.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=10000000
	RatesPerSecond []int32 `json:"ratesPerSecond,omitempty"`

	// streams are bandwidth tests, at most 16: messages in one direction, at the highest rate.
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Streams []Stream `json:"streams,omitempty"`

	// wait is how both ends wait for a message: Block sleeps in the kernel, unless Onload is set to spin; Spin polls.
	// +kubebuilder:default=Block
	Wait WaitMode `json:"wait,omitempty"`

	// muxer is the system call with which both ends wait for their socket: None (default) calls recv directly.
	// +kubebuilder:default=None
	Muxer Muxer `json:"muxer,omitempty"`

	// multicastGroup is the IPv4 group of protocol Multicast; default the tool's own.
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="self.matches('^2(2[4-9]|3[0-9])([.][0-9]{1,3}){3}$') && isIP(self)",message="must be an IPv4 multicast address, such as 239.192.0.1"
	MulticastGroup string `json:"multicastGroup,omitempty"`

	// duration is how long each cell is measured in a round, 100ms to 12h. A percentile needs ten samples beyond it.
	// +optional
	// +kubebuilder:default="3s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('100ms') && duration(self) <= duration('12h')",message="must be a duration from 100ms to 12h, such as 3s"
	Duration metav1.Duration `json:"duration,omitzero"`

	// warmup is how long each cell runs before its samples count, 0s to 60s; default 500ms.
	// +kubebuilder:default="500ms"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s|m|h))+$') && duration(self) >= duration('0s') && duration(self) <= duration('60s')",message="must be a duration from 0s to 60s, such as 500ms"
	Warmup metav1.Duration `json:"warmup,omitempty"`

	// lossAfter is the time after which pinger counts an unanswered datagram as lost, 10ms to 10s; default 1s.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]+([.][0-9]+)?(ms|s))+$') && duration(self) >= duration('10ms') && duration(self) <= duration('10s')",message="must be a duration from 10ms to 10s, such as 100ms"
	LossAfter metav1.Duration `json:"lossAfter,omitzero"`
}

// Stream is a bandwidth test.
// +kubebuilder:validation:XValidation:rule="self.protocol != 'Multicast'",message="protocol: streams are measured over TCP or UDP"
// +kubebuilder:validation:XValidation:rule="self.protocol == 'TCP' || self.messageSize <= 65507",message="messageSize: a UDP datagram carries at most 65507 bytes"
type Stream struct {
	// protocol is TCP or UDP.
	// +required
	Protocol Protocol `json:"protocol"`
	// messageSize is the number of bytes that the sender writes to its socket at once, 1 to 1048576.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1048576
	MessageSize int32 `json:"messageSize"`
}

type LatencyBenchmarkStatus struct {
	// observedGeneration is the generation of the spec that this status describes; -1 until the operator reads it.
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Accepted, Succeeded (its reason is the state), Passed (of criteria), Ready, Reconciling and Stalled.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// progress is the progress of the measurement.
	Progress *Progress `json:"progress,omitempty"`

	// pair are the two nodes that were chosen when the spec was accepted.
	Pair *Pair `json:"pair,omitempty"`

	// cpus is how many CPUs each endpoint gets, by spec.placement or by the choice of the operator.
	CPUs *EndpointCPUs `json:"cpus,omitempty"`

	// extendedRounds is the number of rounds that were added, once, after an Inconclusive verdict.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	ExtendedRounds int32 `json:"extendedRounds,omitempty"`

	// verdict is the result of the rules of spec.criteria, after the measurement.
	Verdict *Verdict `json:"verdict,omitempty"`

	// session is what was measured of the values of spec.session, after the measurement.
	Session *Session `json:"session,omitempty"`

	// summary is the cell of spec.headline of every variant, for kubectl get.
	Summary *Summary `json:"summary,omitempty"`

	// results are the results of the cells, over all finished rounds.
	// +listType=map
	// +listMapKey=variant
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=400
	Results []CellResult `json:"results,omitempty"`

	// warnings are known defects of the results, and facts that were not verified.
	// +listType=map
	// +listMapKey=reason
	// +kubebuilder:validation:MaxItems=32
	Warnings []Warning `json:"warnings,omitempty"`

	// endpoints are the observations of the agents in the last finished run of each variant, client first.
	// +listType=map
	// +listMapKey=variant
	// +listMapKey=role
	// +kubebuilder:validation:MaxItems=32
	Endpoints []Endpoint `json:"endpoints,omitempty"`

	// active is the claim of the current attempt on its two nodes, from before its first pod until after its last.
	Active *ActiveAttempt `json:"active,omitempty"`

	// leftPods are pods of earlier attempts that could not be removed. Their nodes are not measured meanwhile.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	LeftPods []LeftPod `json:"leftPods,omitempty"`

	// occupiedSeconds is the total time for which finished attempts held their nodes.
	OccupiedSeconds int64 `json:"occupiedSeconds,omitempty"`

	// deviceWaitStartTime is when the wait for a device plugin of the next run began; unset when it has started.
	DeviceWaitStartTime *metav1.MicroTime `json:"deviceWaitStartTime,omitempty"`

	// attempts are the finished attempts of all runs, oldest first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=300
	Attempts []Attempt `json:"attempts,omitempty"`

	// stored are the ConfigMaps with the full histograms, one for each finished run.
	// +listType=map
	// +listMapKey=configMap
	// +kubebuilder:validation:MaxItems=400
	Stored []StoredResult `json:"stored,omitempty"`

	// startTime is when the first attempt was claimed, or the first after the benchmark was suspended.
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the last run finished, or the benchmark failed.
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

// Progress counts the runs. A run measures all cells once, in one pair of pods.
type Progress struct {
	// runs is done and total as text, such as 3/6.
	// +kubebuilder:validation:MaxLength=16
	Runs string `json:"runs"`
	// done is the number of runs whose results are stored.
	Done int32 `json:"done"`
	// total is the number of runs the plan has.
	Total int32 `json:"total"`
	// measuringSecondsLeft is the measuring time of the remaining runs in seconds, with warm-ups, without pod starts.
	MeasuringSecondsLeft int64 `json:"measuringSecondsLeft"`
}

type Pair struct {
	// clientNode is the name of the client's node.
	// +kubebuilder:validation:MaxLength=253
	ClientNode string `json:"clientNode"`
	// serverNode is the name of the server's node.
	// +kubebuilder:validation:MaxLength=253
	ServerNode string `json:"serverNode"`
}

// Summary is a cell of each variant as text: 12.30µs, a dash or empty with few samples, "lost" with lost messages.
type Summary struct {
	// variant is the name of the variant of the numeric percentiles: the first variant.
	// +kubebuilder:validation:MaxLength=63
	Variant string `json:"variant,omitempty"`
	// cell is the name of the cell.
	// +kubebuilder:validation:MaxLength=63
	Cell string `json:"cell"`
	// p50 is the median of each variant.
	// +kubebuilder:validation:MaxLength=1024
	P50 string `json:"p50,omitempty"`
	// p99 is the 99th percentile of each variant.
	// +kubebuilder:validation:MaxLength=1024
	P99 string `json:"p99,omitempty"`
	// p999 is the 99.9th percentile of each variant.
	// +kubebuilder:validation:MaxLength=1024
	P999 string `json:"p999,omitempty"`
	// p50Nanoseconds is the median of the variant above as a number, for sorting with kubectl get.
	P50Nanoseconds *int64 `json:"p50Nanoseconds,omitempty"`
	// p99Nanoseconds is its 99th percentile.
	P99Nanoseconds *int64 `json:"p99Nanoseconds,omitempty"`
	// p999Nanoseconds is its 99.9th percentile.
	P999Nanoseconds *int64 `json:"p999Nanoseconds,omitempty"`
	// samples is the number of samples of all rounds of this cell and variant.
	Samples int64 `json:"samples,omitempty"`
	// variants is p50 in each variant as a multiple of the first variant's, such as pod 1.54; absent with one variant.
	// +kubebuilder:validation:MaxLength=1024
	Variants string `json:"variants,omitempty"`
	// placement is Verified if all endpoints of all variants are Verified, otherwise Unverified.
	Placement PlacementState `json:"placement,omitempty"`
}

// ActiveAttempt is the claim of a running attempt on its two nodes.
type ActiveAttempt struct {
	// run is the run's name.
	// +kubebuilder:validation:MaxLength=253
	Run string `json:"run"`
	// variant is the name of the run's variant.
	// +kubebuilder:validation:MaxLength=63
	Variant string `json:"variant,omitempty"`
	// round is the run's round, from 1.
	Round int32 `json:"round"`
	// attempt is the number of the attempt, from 1.
	Attempt int32 `json:"attempt"`
	// podSuffix is the suffix of the names of the attempt's pods, if other pods have the names without it.
	// +kubebuilder:validation:MaxLength=16
	PodSuffix string `json:"podSuffix,omitempty"`
	// pair are the claimed nodes.
	Pair Pair `json:"pair"`
	// startTime is when the claim was written.
	StartTime metav1.MicroTime `json:"startTime"`
	// serverPodUID is set when the server's pod has been created: if the pod is then missing, it was lost.
	// +kubebuilder:validation:MaxLength=64
	ServerPodUID string `json:"serverPodUID,omitempty"`
	// clientPodUID is set when the client's pod has been created.
	// +kubebuilder:validation:MaxLength=64
	ClientPodUID string `json:"clientPodUID,omitempty"`
	// serverDevice is the PCI address of the device that a DRA driver allocated to the server's pod for the network.
	// +kubebuilder:validation:MaxLength=64
	ServerDevice string `json:"serverDevice,omitempty"`
	// clientDevice is the same of the client's pod.
	// +kubebuilder:validation:MaxLength=64
	ClientDevice string `json:"clientDevice,omitempty"`
	// collected is the verified result of both pods, written before its ConfigMap: no other content is accepted.
	Collected *StoredResult `json:"collected,omitempty"`
	// collectionTime is when collected was first written.
	CollectionTime *metav1.MicroTime `json:"collectionTime,omitempty"`
	// refused is set while the API server refuses to create an object of the attempt.
	Refused *Refusal `json:"refused,omitempty"`
	// endTime is when the operator first saw that a pod had ended, or that both had written their results.
	EndTime *metav1.MicroTime `json:"endTime,omitempty"`
	// notReadyTime is when the operator first saw that a node of the pair was not ready; unset while both are.
	NotReadyTime *metav1.MicroTime `json:"notReadyTime,omitempty"`
	// measuredMilliseconds is the time for which the tools ran, when it is known.
	MeasuredMilliseconds int64 `json:"measuredMilliseconds,omitempty"`
	// outcome is set when the attempt has ended and only its pods remain to be removed.
	Outcome *Outcome `json:"outcome,omitempty"`
}

// Refusal is a refusal of the API server that may be temporary: the operator retries at retryTime.
type Refusal struct {
	// reason is the reason of the attempt's outcome if the API server continues to refuse.
	// +kubebuilder:validation:MaxLength=63
	Reason string `json:"reason"`
	// message has the message of the API server, and what to do.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
	// startTime is the time of the first refusal.
	StartTime metav1.MicroTime `json:"startTime"`
	// retryTime is when the operator retries.
	RetryTime metav1.MicroTime `json:"retryTime"`
}

// LeftPod is a pod that has not ended although its attempt has.
type LeftPod struct {
	// name is the name of the pod.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid is the UID of the pod.
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid"`
}

type Outcome struct {
	// reason is Measured, or the reason of the failure.
	// +kubebuilder:validation:MaxLength=63
	Reason string `json:"reason"`
	// message explains a failure, and what to do.
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// completionTime is when the outcome was known.
	CompletionTime metav1.MicroTime `json:"completionTime"`
}

// Attempt is a finished attempt at a run.
type Attempt struct {
	// run is the run's name.
	// +kubebuilder:validation:MaxLength=253
	Run string `json:"run"`
	// attempt is the number of the attempt, from 1.
	Attempt int32 `json:"attempt"`
	// startTime is when the nodes were claimed.
	StartTime metav1.MicroTime `json:"startTime"`
	// measuredMilliseconds is the time for which the tools ran, their own start and warm-ups included.
	MeasuredMilliseconds int64 `json:"measuredMilliseconds,omitempty"`
	// outcome is the outcome of the attempt.
	Outcome Outcome `json:"outcome"`
}

// StoredResult refers to the ConfigMap of a finished run.
type StoredResult struct {
	// configMap is the name of the ConfigMap in the benchmark's namespace: the name of the run and a random suffix.
	// +kubebuilder:validation:MaxLength=253
	ConfigMap string `json:"configMap"`
	// run is the run's name.
	// +kubebuilder:validation:MaxLength=253
	Run string `json:"run"`
	// sha256 is the digest of the client's result in it, in hex, as its agent reported it.
	// +kubebuilder:validation:MaxLength=64
	SHA256 string `json:"sha256"`
	// serverSHA256 is the digest of the server's result.
	// +kubebuilder:validation:MaxLength=64
	ServerSHA256 string `json:"serverSHA256,omitempty"`
	// podsSHA256 is the SHA-256 of the two pods as the API server returned them, in hex.
	// +kubebuilder:validation:MaxLength=64
	PodsSHA256 string `json:"podsSHA256,omitempty"`
}

// LatencyBenchmark measures the latency between two nodes over one or more networks, and has the results in its status.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=lbench,categories=tailgate
// +kubebuilder:selectablefield:JSONPath=`.status.completionTime`
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].reason`
// +kubebuilder:printcolumn:name="Runs",type=string,JSONPath=`.status.progress.runs`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.latencyType`
// +kubebuilder:printcolumn:name="P50",type=string,JSONPath=`.status.summary.p50`
// +kubebuilder:printcolumn:name="P99",type=string,JSONPath=`.status.summary.p99`
// +kubebuilder:printcolumn:name="Verdict",type=string,JSONPath=`.status.verdict.outcome`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="P99.9",type=string,JSONPath=`.status.summary.p999`,priority=1
// +kubebuilder:printcolumn:name="P50-ns",type=integer,JSONPath=`.status.summary.p50Nanoseconds`,priority=1
// +kubebuilder:printcolumn:name="P99-ns",type=integer,JSONPath=`.status.summary.p99Nanoseconds`,priority=1
// +kubebuilder:printcolumn:name="P99.9-ns",type=integer,JSONPath=`.status.summary.p999Nanoseconds`,priority=1
// +kubebuilder:printcolumn:name="Tool",type=string,JSONPath=`.spec.tool`,priority=1
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=`.spec.network.type`,priority=1
// +kubebuilder:printcolumn:name="Client",type=string,JSONPath=`.status.pair.clientNode`,priority=1
// +kubebuilder:printcolumn:name="Server",type=string,JSONPath=`.status.pair.serverNode`,priority=1
// +kubebuilder:printcolumn:name="Cell",type=string,JSONPath=`.status.summary.cell`,priority=1
// +kubebuilder:printcolumn:name="Samples",type=integer,JSONPath=`.status.summary.samples`,priority=1
// +kubebuilder:printcolumn:name="Placement",type=string,JSONPath=`.status.summary.placement`,priority=1
// +kubebuilder:printcolumn:name="Ratios",type=string,JSONPath=`.status.summary.variants`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="!has(self.spec.criteria) || !has(self.spec.criteria.baseline) || !has(self.spec.criteria.baseline.benchmark) || self.spec.criteria.baseline.benchmark.name != self.metadata.name",message="spec.criteria.baseline.benchmark: a benchmark cannot be its own baseline; name another, or a variant"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.criteria) || !has(self.spec.criteria.baseline) || self.spec.criteria.baseline.type != 'Gate' || has(self.spec.criteria.baseline.gate)",message="spec.criteria.baseline.gate: name the LatencyGate whose accepted result is the baseline"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.criteria) || !has(self.spec.criteria.baseline) || self.spec.criteria.baseline.type != 'Matrix'",message="spec.criteria.baseline.type: only the template of a LatencyMatrix compares with another one; name the benchmark of one pair by type Benchmark"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 52",message="metadata.name: at most 52 characters, because pods are named after it"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.variants) || self.spec.variants.all(v, self.metadata.name.size() + v.name.size() <= 57)",message="spec.variants: the names of the benchmark and of a variant together have at most 57 characters, because pods are named after both"
type LatencyBenchmark struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec is fixed once accepted, except criteria, priority, suspend, ttlSecondsAfterFinished and historyLimit.
	// +required
	Spec LatencyBenchmarkSpec `json:"spec"`
	// status is the observed state and the results.
	// +optional
	// +kubebuilder:default={}
	Status LatencyBenchmarkStatus `json:"status,omitzero"`
}

// +kubebuilder:object:root=true
type LatencyBenchmarkList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LatencyBenchmark `json:"items"`
}
