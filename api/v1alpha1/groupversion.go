// Package v1alpha1 is the API of Tailgate: its kinds, their conditions and reasons, and the labels of what it creates.
//
// Latencies are int64 nanoseconds. The latencyType beside one says whether it is a round-trip time (RTT) or half of it.
//
// +kubebuilder:object:generate=true
// +groupName=tailgate.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var GroupVersion = schema.GroupVersion{Group: "tailgate.dev", Version: "v1alpha1"}

func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &LatencyBenchmark{}, &LatencyBenchmarkList{}, &LatencyMatrix{}, &LatencyMatrixList{}, &LatencyGate{}, &LatencyGateList{},
		&LatencyVerification{}, &LatencyVerificationList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
