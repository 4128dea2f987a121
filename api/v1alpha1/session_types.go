package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// MaxSeries is the number of compared values of a session. Others are compared with the last accepted result only.
const MaxSeries = 32

// ComparedValue is a value that sessions compare: a metric of a cell of a variant.
type ComparedValue struct {
	// variant is the variant of the cell.
	// +kubebuilder:validation:MaxLength=63
	Variant string `json:"variant"`
	// cell is the name of the cell, such as udp-64.
	// +kubebuilder:validation:MaxLength=63
	Cell string `json:"cell"`
	// metric is the metric of the rounds.
	Metric Metric `json:"metric"`
}

// String returns the value for messages, such as default/udp-64/p99.
func (v ComparedValue) String() string { return v.Variant + "/" + v.Cell + "/" + string(v.Metric) }

// ValueRounds are the first rounds of a session in a compared value, at most 12.
type ValueRounds struct {
	ComparedValue `json:",inline"`
	// values of the rounds in the order of measurement, in ns of the round trip, or bit/s.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=12
	Values []int64 `json:"values"`
	// low bounds each value from below; absent if all are exact.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=12
	Low []int64 `json:"low,omitempty"`
	// high bounds each value from above; absent if all are exact.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=12
	High []int64 `json:"high,omitempty"`
}

// ValueLevel is the level of a session in a compared value.
type ValueLevel struct {
	ComparedValue `json:",inline"`
	// level is the median of the first 6 rounds, in ns of the round trip, or bit/s.
	Level int64 `json:"level"`
}

// Session is what a benchmark measured of the values of spec.session on one boot of the client's node.
type Session struct {
	// bootID is the boot ID of the client's node.
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`
	// rounds are the first rounds, by value; none if a defect of the results prevents every conclusion.
	// +listType=map
	// +listMapKey=variant
	// +listMapKey=cell
	// +listMapKey=metric
	// +kubebuilder:validation:MaxItems=32
	Rounds []ValueRounds `json:"rounds,omitempty"`
	// reference is what the verdict compared the session with; absent without accepted sessions of the node.
	Reference *SessionReference `json:"reference,omitempty"`
}

// SessionReference describes the accepted sessions with which a session was compared.
type SessionReference struct {
	// description says what was compared, such as: compared with 3 accepted boots with peer b.
	// +kubebuilder:validation:MaxLength=512
	Description string `json:"description"`
	// samePeer says whether they are of the pair of nodes that was measured.
	SamePeer bool `json:"samePeer,omitempty"`
	// provisional is why a Pass is no promise; absent if it is one.
	// +kubebuilder:validation:MaxLength=512
	Provisional string `json:"provisional,omitempty"`
}

// ReferenceSession contains rounds of an accepted measurement of one boot: 12 of the first, and 6 of each later boot.
type ReferenceSession struct {
	// benchmark is the name of the LatencyBenchmark that measured it.
	// +kubebuilder:validation:MaxLength=253
	Benchmark string `json:"benchmark"`
	// time is when it was accepted.
	Time metav1.Time `json:"time"`
	// bootID is the boot ID of the node.
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`
	// peer is the node at the other end.
	// +kubebuilder:validation:MaxLength=253
	Peer string `json:"peer"`
	// rounds are the first rounds, by value.
	// +listType=map
	// +listMapKey=variant
	// +listMapKey=cell
	// +listMapKey=metric
	// +kubebuilder:validation:MaxItems=32
	Rounds []ValueRounds `json:"rounds,omitempty"`
}

// MeasuredSession is the level of a measurement of one boot.
type MeasuredSession struct {
	// time is when it was measured.
	Time metav1.Time `json:"time"`
	// bootID is the boot ID of the node.
	// +kubebuilder:validation:MaxLength=64
	BootID string `json:"bootID,omitempty"`
	// peer is the node at the other end.
	// +kubebuilder:validation:MaxLength=253
	Peer string `json:"peer"`
	// identity is the identity of the node without BootID. A value of more than 128 bytes ends in its digest.
	// +kubebuilder:validation:MaxProperties=64
	Identity map[string]string `json:"identity,omitempty"`
	// accepted says whether its result was accepted.
	Accepted bool `json:"accepted,omitempty"`
	// levels of the session, by value.
	// +listType=map
	// +listMapKey=variant
	// +listMapKey=cell
	// +listMapKey=metric
	// +kubebuilder:validation:MaxItems=32
	Levels []ValueLevel `json:"levels,omitempty"`
}
