// Package v1alpha1 is the API of Tailgate: the kinds that users write and read, the conditions and
// reasons that controllers set, and the labels on everything they create.
//
// Latencies are int64 nanoseconds and carry the unit in their name. The LatencyType beside a latency says
// whether it is a round-trip time (RTT) or half of it.
//
// +kubebuilder:object:generate=true
// +groupName=tailgate.dev
package v1alpha1
