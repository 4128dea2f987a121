package v1alpha1

import "fmt"

// The bounds of a benchmark of many pairs.
const (
	// MaxPairingNodes is how many nodes pairings Ring and AllPairs take: 4950 pairs.
	MaxPairingNodes = 100
	// MaxStarClients is how many clients pairing Star takes.
	MaxStarClients = 500
	// MaxWorstPairs is how many pairs status.pairs.worst lists.
	MaxWorstPairs = 10
	// MaxPairsCells is how many cells status.pairs.summary lists.
	MaxPairsCells = 64
)

// ReasonTooManyNodes is a reason of ConditionAccepted. It surfaces when more nodes are selected than the pairing takes.
const ReasonTooManyNodes = "TooManyNodes"

// Reasons of the events that only benchmarks of many pairs send.
const (
	// ReasonPairMeasured surfaces when a pair was measured.
	ReasonPairMeasured = "PairMeasured"
	// ReasonPairFailed surfaces when the benchmark of a pair failed.
	ReasonPairFailed = "PairFailed"
	// ReasonPairDeleted surfaces when a user deleted the benchmark of a pair with its results: the pair is measured
	// again.
	ReasonPairDeleted = "PairDeleted"
	// ReasonPairPostponed surfaces when a pair makes room for others because one of its nodes has long been unable to give
	// what is asked.
	ReasonPairPostponed = "PairPostponed"
)

// ManyPairs says whether a benchmark is one of many pairs. It measures nothing itself: it makes a benchmark for each
// pair.
func (b *LatencyBenchmark) ManyPairs() bool {
	return b.Spec.Placement.Pairing != "" && b.Spec.Placement.Pairing != PairingPair
}

// PairName is the name of the benchmark of a pair, given its number in the plan, from 1.
func (b *LatencyBenchmark) PairName(number int32) string {
	return fmt.Sprintf("%s-p%d", b.Name, number)
}

// PairsStatus is where a benchmark of many pairs stands, and what it found.
type PairsStatus struct {
	// nodes are those that were chosen when the spec was accepted; with pairing Star, the clients'. Nodes that come or go
	// later do not change the plan.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	// +kubebuilder:validation:items:MaxLength=253
	Nodes []string `json:"nodes"`
	// server is the one node of the server, with pairing Star.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Server string `json:"server,omitempty"`
	// total is how many pairs the plan has. Each has a benchmark named after this one and its number, from NAME-p1 on, with
	// the label tailgate.dev/parent.
	Total int32 `json:"total"`
	// slots is how many times as many pairs as possible are measured at once, each node in one of them, until all are
	// measured; no plan has fewer.
	Slots int32 `json:"slots"`
	// done is how many pairs are finished, failed ones among them.
	Done int32 `json:"done"`
	// failed is how many pairs could not be measured.
	Failed int32 `json:"failed"`
	// running are the pairs that are being measured, or wait for their nodes: at most placement.maxParallelPairs. A pair
	// is noted here before its benchmark is made, and until that is finished.
	// +optional
	// +listType=map
	// +listMapKey=number
	// +kubebuilder:validation:MaxItems=50
	Running []RunningPair `json:"running,omitempty"`
	// worst are the measured pairs with the highest p99 of the first cell, at most ten, the worst first. A percentile that falls among the lost
	// messages is worse than any number. If the first cell is a stream, these are the slowest.
	// +optional
	// +listType=map
	// +listMapKey=benchmark
	// +kubebuilder:validation:MaxItems=10
	Worst []PairResult `json:"worst,omitempty"`
	// summary has a line for each cell, over all measured pairs; of more than 64 cells, the first 64.
	// +optional
	// +listType=map
	// +listMapKey=variant
	// +listMapKey=cell
	// +kubebuilder:validation:MaxItems=64
	Summary []PairsCell `json:"summary,omitempty"`
}

// RunningPair is the claim of a pair on one of the places that placement.maxParallelPairs gives.
type RunningPair struct {
	// number is the pair's in the plan, from 1.
	Number int32 `json:"number"`
	Pair   `json:",inline"`
	// uid is that of the pair's benchmark, once it was made.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	UID string `json:"uid,omitempty"`
}

// PairResult is what the first cell of a pair gave.
type PairResult struct {
	// benchmark is the name of the pair's benchmark.
	// +kubebuilder:validation:MaxLength=253
	Benchmark string `json:"benchmark"`
	Pair      `json:",inline"`
	// latencyType says what the latencies count; absent for streams.
	// +optional
	LatencyType ResultLatencyType `json:"latencyType,omitempty"`
	// lostFrom is the lowest percentile that is unknown because of lost messages; absent if there is none.
	// +optional
	LostFrom Percentile `json:"lostFrom,omitempty"`
	// percentiles are p50, p99 and p99.9, if known.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=9
	Percentiles []PercentileResult `json:"percentiles,omitempty"`
	// bitsPerSecond is what a stream found, the median of the rounds.
	// +optional
	BitsPerSecond *int64 `json:"bitsPerSecond,omitempty"`
}

// Percentile is the value of a percentile in nanoseconds, nil if it is unknown.
func (r *PairResult) Percentile(name Percentile) *int64 { return nanosecondsOf(r.Percentiles, name) }

// PairsCell is what one cell gave over all measured pairs.
type PairsCell struct {
	// variant is the name of the variant, default when the spec has none.
	// +kubebuilder:validation:MaxLength=63
	Variant string `json:"variant"`
	// cell is the name of the cell.
	// +kubebuilder:validation:MaxLength=63
	Cell string `json:"cell"`
	// latencyType says what the latencies count; absent for streams.
	// +optional
	LatencyType ResultLatencyType `json:"latencyType,omitempty"`
	// pairs is how many pairs have the cell.
	Pairs int32 `json:"pairs"`
	// p50 is of the pairs' medians.
	// +optional
	P50 *PairsLatency `json:"p50,omitempty"`
	// p99 is of the pairs' 99th percentiles.
	// +optional
	P99 *PairsLatency `json:"p99,omitempty"`
	// bandwidth is of the pairs' streams.
	// +optional
	Bandwidth *PairsBandwidth `json:"bandwidth,omitempty"`
}

// PairsLatency is how a percentile differs between pairs, among those that have it. A pair whose lost messages reach it
// has it too, as one that is higher than any number: a field that falls on such a pair is absent.
type PairsLatency struct {
	// minNanoseconds is the lowest.
	// +optional
	MinNanoseconds *int64 `json:"minNanoseconds,omitempty"`
	// medianNanoseconds is the one in the middle, of an even number the lower one.
	// +optional
	MedianNanoseconds *int64 `json:"medianNanoseconds,omitempty"`
	// maxNanoseconds is the highest.
	// +optional
	MaxNanoseconds *int64 `json:"maxNanoseconds,omitempty"`
	// maxBenchmark names the benchmark of the pair that has the highest.
	// +kubebuilder:validation:MaxLength=253
	MaxBenchmark string `json:"maxBenchmark"`
}

// PairsBandwidth is how the bandwidth of a stream differs between pairs.
type PairsBandwidth struct {
	// minBitsPerSecond is the lowest.
	MinBitsPerSecond int64 `json:"minBitsPerSecond"`
	// medianBitsPerSecond is the one in the middle, of an even number the lower one.
	MedianBitsPerSecond int64 `json:"medianBitsPerSecond"`
	// maxBitsPerSecond is the highest.
	MaxBitsPerSecond int64 `json:"maxBitsPerSecond"`
	// minBenchmark names the benchmark of the pair that has the lowest.
	// +kubebuilder:validation:MaxLength=253
	MinBenchmark string `json:"minBenchmark"`
}
