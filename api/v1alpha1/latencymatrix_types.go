package v1alpha1

import (
	"cmp"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The maximum numbers of a LatencyMatrix.
const (
	MaxMatrixNodes  = 100 // nodes of topologies Ring and AllPairs: 4950 pairs with AllPairs
	MaxStarClients  = 500 // clients of topology Star
	MaxSlowestPairs = 10  // pairs in status.slowest
	MaxMatrixCells  = 64  // cells in status.cells
)

// ReasonTooManyNodes is a reason of ConditionAccepted: the topology does not allow as many nodes.
const ReasonTooManyNodes = "TooManyNodes"

// Reasons of the events that only a LatencyMatrix has.
const (
	ReasonPairMeasured  = "PairMeasured"  // when a pair was measured
	ReasonPairFailed    = "PairFailed"    // when the benchmark of a pair failed
	ReasonPairDeleted   = "PairDeleted"   // when a user deleted the benchmark of a pair
	ReasonNodeGone      = "NodeGone"      // when a Node is gone for 30 minutes, or not ready for 24 hours
	ReasonPairPostponed = "PairPostponed" // when a pair waits so that others can be measured
)

// +kubebuilder:validation:Enum=Star;Ring;AllPairs
type Topology string

const (
	TopologyStar     Topology = "Star"
	TopologyRing     Topology = "Ring"
	TopologyAllPairs Topology = "AllPairs"
)

// +kubebuilder:validation:XValidation:rule="(self.topology == 'Star') == has(self.server)",message="server: required by topology Star, and not allowed with Ring and AllPairs"
// +kubebuilder:validation:XValidation:rule="[self.template.spec.placement].all(p, (!has(p.client) || !has(p.client.nodeName) && !has(p.client.nodeNames) && !has(p.client.nodeSelector)) && (!has(p.server) || !has(p.server.nodeName) && !has(p.server.nodeNames) && !has(p.server.nodeSelector)))",message="template.spec.placement: client and server must not select nodes, because nodes and server of the matrix select them"
// +kubebuilder:validation:XValidation:rule="!has(self.template.spec.criteria) || !has(self.template.spec.criteria.baseline) || self.template.spec.criteria.baseline.type != 'Gate' || has(self.template.spec.criteria.baseline.gate)",message="template.spec.criteria.baseline.gate: name the LatencyGate whose accepted result is the baseline"
type LatencyMatrixSpec struct {
	// topology is Star (each node with server), Ring (each with the next, the last with the first), or AllPairs.
	// +required
	Topology Topology `json:"topology"`

	// nodes selects at most 100 nodes (Star: 500 clients). Nodes without the resources are left out: see Accepted.
	// +required
	Nodes NodeSelection `json:"nodes"`

	// server selects the server node of topology Star. A node that nodes does not select is preferred.
	Server *NodeSelection `json:"server,omitempty"`

	// parallelism is the number of pairs that are measured at once, without a common node; they may share a switch.
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=50
	Parallelism int32 `json:"parallelism,omitempty"`

	// template is the template of each pair's benchmark. Its spec.criteria and spec.priority may change at any time.
	// +required
	Template LatencyBenchmarkTemplate `json:"template"`

	// suspend stops the benchmarks of all pairs while it is true. A change is allowed at any time.
	Suspend bool `json:"suspend,omitempty"`

	// ttlSecondsAfterFinished deletes a finished matrix, unless it is a baseline: after 0 to 315360000 s; absent: never.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=315360000
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

type PairCounts struct {
	// total is the number of pairs of the plan.
	Total int32 `json:"total"`
	// running is the number of pairs that are being measured or wait for their nodes.
	Running int32 `json:"running"`
	// complete is the number of pairs that were measured.
	Complete int32 `json:"complete"`
	// failed is the number of pairs that could not be measured.
	Failed int32 `json:"failed"`
}

// MissingNode is a node of a matrix whose Node does not exist or is not ready.
type MissingNode struct {
	// name of the node.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// startTime is when the operator first found that there is no such Node, or that it is not ready.
	StartTime metav1.Time `json:"startTime"`
	// gone is true after 30 minutes without the Node, or 24 hours in which it was not ready: its open pairs failed.
	Gone bool `json:"gone,omitempty"`
}

func (c PairCounts) Done() int32 { return c.Complete + c.Failed }

// LatencyMatrixStatus is the observed state and the results. The benchmarks of the pairs have the details.
type LatencyMatrixStatus struct {
	// observedGeneration is the generation of the spec that this status describes; -1 until the operator reads it.
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are Accepted, Succeeded (False if a pair failed), Passed (of criteria), Ready, Reconciling and Stalled.
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// nodes are those that were chosen when the spec was accepted, with Star the clients; later nodes do not change them.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MaxLength=253
	Nodes []string `json:"nodes,omitempty"`

	// server is the server node of topology Star.
	// +kubebuilder:validation:MaxLength=253
	Server string `json:"server,omitempty"`

	// counts are the numbers of pairs by state. The other pairs wait for their turn.
	// +optional
	Counts PairCounts `json:"counts,omitzero"`

	// slots is the lowest possible number of steps in which all pairs can be measured.
	Slots int32 `json:"slots,omitempty"`

	// progress is the progress of the runs of all pairs.
	Progress *Progress `json:"progress,omitempty"`

	// verdict is the result of the criteria for all pairs.
	Verdict *Verdict `json:"verdict,omitempty"`

	// summary is the cell of template.spec.headline of the slowest pair as text, for kubectl get.
	Summary *Summary `json:"summary,omitempty"`

	// running are the claims of the pairs that are measured or wait for their nodes, at most spec.parallelism.
	// +listType=map
	// +listMapKey=number
	// +kubebuilder:validation:MaxItems=50
	Running []RunningPair `json:"running,omitempty"`

	// missingNodes are the nodes of the plan whose Node does not exist.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=501
	MissingNodes []MissingNode `json:"missingNodes,omitempty"`

	// slowest are up to ten pairs with the highest (or lost) p99 of the headline cell or lowest bandwidth, slowest first.
	// +listType=map
	// +listMapKey=benchmark
	// +kubebuilder:validation:MaxItems=10
	Slowest []MatrixPair `json:"slowest,omitempty"`

	// cells are the results of the cells over all measured pairs; of more than 64 cells, the first 64.
	// +listType=map
	// +listMapKey=variant
	// +listMapKey=cell
	// +kubebuilder:validation:MaxItems=64
	Cells []MatrixCell `json:"cells,omitempty"`

	// startTime is when the first pair was claimed.
	StartTime *metav1.Time `json:"startTime,omitempty"`

	// completionTime is when the last pair finished.
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
}

// RunningPair is the claim of a pair, which counts towards spec.parallelism.
type RunningPair struct {
	// number is the number of the pair in the plan, from 1.
	Number int32 `json:"number"`
	Pair   `json:",inline"`
	// uid is the UID of the pair's benchmark, when it has been created.
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`
}

// MatrixPair is a measured pair of a LatencyMatrix, with the percentiles of the cell of template.spec.headline.
type MatrixPair struct {
	// benchmark is the name of the pair's benchmark.
	// +kubebuilder:validation:MaxLength=253
	Benchmark string `json:"benchmark"`
	Pair      `json:",inline"`
	// latencyType is the type of the latencies; absent for streams.
	LatencyType ResultLatencyType `json:"latencyType,omitempty"`
	// lostFrom is the lowest percentile that is unknown because of lost messages; absent if all are known.
	LostFrom Percentile `json:"lostFrom,omitempty"`
	// percentiles are p50, p99 and p99.9, if known.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=9
	Percentiles []PercentileResult `json:"percentiles,omitempty"`
	// bitsPerSecond is the result of a stream, the median of the rounds.
	BitsPerSecond *int64 `json:"bitsPerSecond,omitempty"`
}

func (r *MatrixPair) Percentile(name Percentile) *int64 { return nanosecondsOf(r.Percentiles, name) }

// MatrixCell is the result of one cell over all measured pairs.
type MatrixCell struct {
	// variant is the name of the variant, default when the spec has none.
	// +kubebuilder:validation:MaxLength=63
	Variant string `json:"variant"`
	// cell is the name of the cell.
	// +kubebuilder:validation:MaxLength=63
	Cell string `json:"cell"`
	// latencyType is the type of the latencies; absent for streams.
	LatencyType ResultLatencyType `json:"latencyType,omitempty"`
	// pairs is the number of pairs that have the cell.
	Pairs int32 `json:"pairs"`
	// p50 is the variation of the pairs' medians.
	P50 *PairsLatency `json:"p50,omitempty"`
	// p99 is the variation of the pairs' 99th percentiles.
	P99 *PairsLatency `json:"p99,omitempty"`
	// bandwidth is the variation of the bandwidth of the pairs' streams.
	Bandwidth *PairsBandwidth `json:"bandwidth,omitempty"`
}

// PairsLatency is the variation of a percentile between pairs. A value that falls among the lost messages is absent.
type PairsLatency struct {
	// minNanoseconds is the lowest.
	MinNanoseconds *int64 `json:"minNanoseconds,omitempty"`
	// medianNanoseconds is the median, for an even number of pairs the lower median.
	MedianNanoseconds *int64 `json:"medianNanoseconds,omitempty"`
	// maxNanoseconds is the highest.
	MaxNanoseconds *int64 `json:"maxNanoseconds,omitempty"`
	// maxBenchmark names the benchmark of the pair that has the highest.
	// +kubebuilder:validation:MaxLength=253
	MaxBenchmark string `json:"maxBenchmark"`
}

// PairsBandwidth is the variation of the bandwidth of a stream between pairs.
type PairsBandwidth struct {
	// minBitsPerSecond is the lowest.
	MinBitsPerSecond int64 `json:"minBitsPerSecond"`
	// medianBitsPerSecond is the median, for an even number of pairs the lower median.
	MedianBitsPerSecond int64 `json:"medianBitsPerSecond"`
	// maxBitsPerSecond is the highest.
	MaxBitsPerSecond int64 `json:"maxBitsPerSecond"`
	// minBenchmark names the benchmark of the pair that has the lowest.
	// +kubebuilder:validation:MaxLength=253
	MinBenchmark string `json:"minBenchmark"`
}

// LatencyMatrix measures the latency between many pairs of nodes. A matrix owns one LatencyBenchmark for each pair.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=latencymatrices,singular=latencymatrix,shortName=lmatrix,categories=tailgate
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].reason`
// +kubebuilder:printcolumn:name="Topology",type=string,JSONPath=`.spec.topology`
// +kubebuilder:printcolumn:name="Pairs",type=integer,JSONPath=`.status.counts.total`
// +kubebuilder:printcolumn:name="Complete",type=integer,JSONPath=`.status.counts.complete`
// +kubebuilder:printcolumn:name="Failed",type=integer,JSONPath=`.status.counts.failed`
// +kubebuilder:printcolumn:name="Slowest",type=string,JSONPath=`.status.slowest[0].benchmark`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.template.spec.latencyType`
// +kubebuilder:printcolumn:name="P50",type=string,JSONPath=`.status.summary.p50`
// +kubebuilder:printcolumn:name="P99",type=string,JSONPath=`.status.summary.p99`
// +kubebuilder:printcolumn:name="Verdict",type=string,JSONPath=`.status.verdict.outcome`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="P50-ns",type=integer,JSONPath=`.status.summary.p50Nanoseconds`,priority=1
// +kubebuilder:printcolumn:name="P99-ns",type=integer,JSONPath=`.status.summary.p99Nanoseconds`,priority=1
// +kubebuilder:printcolumn:name="Runs",type=string,JSONPath=`.status.progress.runs`,priority=1
// +kubebuilder:printcolumn:name="Tool",type=string,JSONPath=`.spec.template.spec.tool`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Succeeded")].message`,priority=1
// +kubebuilder:validation:XValidation:rule="!has(self.spec.template.spec.criteria) || !has(self.spec.template.spec.criteria.baseline) || !has(self.spec.template.spec.criteria.baseline.matrix) || self.spec.template.spec.criteria.baseline.matrix.name != self.metadata.name",message="spec.template.spec.criteria.baseline.matrix: a matrix cannot be its own baseline; name another"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 46",message="metadata.name: at most 46 characters, because the benchmark of each pair is named after it"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.template.spec.variants) || self.spec.template.spec.variants.all(v, self.metadata.name.size() + v.name.size() <= 51)",message="spec.template.spec.variants: the names of the matrix and of a variant together have at most 51 characters, because the benchmark of each pair is named after both"
type LatencyMatrix struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// spec says which pairs of nodes are measured, and how.
	// +required
	Spec LatencyMatrixSpec `json:"spec"`
	// status is what was measured.
	// +optional
	// +kubebuilder:default={}
	Status LatencyMatrixStatus `json:"status,omitzero"`
}

// +kubebuilder:object:root=true
type LatencyMatrixList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []LatencyMatrix `json:"items"`
}

// PairName returns the name of the benchmark of a pair, given its number in the plan, from 1.
func (m *LatencyMatrix) PairName(number int32) string {
	return fmt.Sprintf("%s-p%d", m.Name, number)
}

func (m *LatencyMatrix) SetCondition(c metav1.Condition) {
	c.ObservedGeneration = m.Generation
	meta.SetStatusCondition(&m.Status.Conditions, c)
}

// Overview returns the matrix as a benchmark, with the nodes of the matrix and the status that both kinds have.
func (m *LatencyMatrix) Overview() *LatencyBenchmark {
	b := &LatencyBenchmark{ObjectMeta: m.ObjectMeta, Spec: m.Spec.Template.Benchmark(), Status: LatencyBenchmarkStatus{
		ObservedGeneration: m.Status.ObservedGeneration, Conditions: m.Status.Conditions, Progress: m.Status.Progress, Verdict: m.Status.Verdict,
		Summary: m.Status.Summary, StartTime: m.Status.StartTime, CompletionTime: m.Status.CompletionTime,
	}}
	b.Spec.Suspend, b.Spec.TTLSecondsAfterFinished = m.Spec.Suspend, m.Spec.TTLSecondsAfterFinished
	p := &b.Spec.Placement
	p.Client, p.Server = p.Client.On(m.Spec.Nodes), p.Server.On(*cmp.Or(m.Spec.Server, &m.Spec.Nodes))
	return b.DeepCopy()
}
