// Package v1alpha1 is the API of Tailgate: the kinds that users write and read, the conditions and
// reasons that controllers set, and the labels on everything they create.
//
// Latencies are int64 nanoseconds and carry the unit in their name. Whether a latency is a round-trip
// time (RTT) or half of one is said by the LatencyType beside it.
//
// +kubebuilder:object:generate=true
// +groupName=tailgate.dev
package v1alpha1
