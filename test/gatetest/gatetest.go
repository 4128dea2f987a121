// Package gatetest makes the gates, nodes and verifications of tests: node a of gate up was verified
// with peer b by benchmark up-a-3, after up-a-1 began its epoch, and nothing has changed since Noon.
package gatetest

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
)

// P99 is the value that the gate compares.
var P99 = v1alpha1.ComparedValue{Variant: "default", Cell: "udp-64", Metric: v1alpha1.MetricP99}

// Rounds returns rounds of P99, and Levels a level of it, for a status.
func Rounds(values ...int64) []v1alpha1.ValueRounds {
	return []v1alpha1.ValueRounds{{ComparedValue: P99, Values: values}}
}

func Levels(level int64) []v1alpha1.ValueLevel {
	return []v1alpha1.ValueLevel{{ComparedValue: P99, Level: level}}
}

// Noon is the time of the tests.
var Noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// Ago returns a time before noon, and At the same for a status.
func Ago(d time.Duration) time.Time { return Noon.Add(-d) }

func At(d time.Duration) *metav1.Time { return &metav1.Time{Time: Ago(d)} }

// Gate returns gate up.
func Gate(changes ...func(*v1alpha1.LatencyGate)) *v1alpha1.LatencyGate {
	g := &v1alpha1.LatencyGate{
		ObjectMeta: metav1.ObjectMeta{Name: "up", UID: "uid-gate", CreationTimestamp: metav1.NewTime(Ago(24 * time.Hour))},
		Spec: v1alpha1.LatencyGateSpec{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"role": "fast"}}, Namespace: "perf", MaxParallel: new(intstr.FromInt32(1)), HistoryLimit: 3,
			ReleaseAfter: metav1.Duration{Duration: time.Hour},
			Identity: v1alpha1.GateIdentity{
				Keys:   []v1alpha1.IdentityKey{v1alpha1.IdentityBootID, v1alpha1.IdentityKernel, v1alpha1.IdentityDevices},
				Labels: []string{"onload"},
			},
			Template: v1alpha1.LatencyBenchmarkTemplate{Spec: v1alpha1.MeasurementSpec{
				Tool: v1alpha1.ToolPinger, Rounds: 10,
				Workload:  v1alpha1.Workload{Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolUDP}, MessageSizes: []int32{64}},
				Placement: v1alpha1.Placement{Client: &v1alpha1.EndpointPlacement{}, Server: &v1alpha1.EndpointPlacement{}},
				Network:   v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "amd.com/sf_vf", NetworkRef: &v1alpha1.NetworkRef{Name: "vf"}}}},
				Criteria: &v1alpha1.Criteria{
					Rules: []v1alpha1.Rule{
						{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "20us"}},
						{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "10%"}},
					},
					Baseline:          &v1alpha1.Baseline{Type: v1alpha1.BaselineGate},
					IgnoreDifferences: []string{"kernel.*"},
				},
			}},
		},
	}
	g.Status.Spread = []v1alpha1.SessionSpread{{ComparedValue: P99, Nodes: 20, Differences: 40, Deviation: "0.01"}}
	for _, change := range changes {
		change(g)
	}
	return g
}

// Node returns a ready node with the identity of a verified one.
func Node(name string, changes ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"role": "fast", "onload": "9.0"}},
		Status: corev1.NodeStatus{
			NodeInfo:    corev1.NodeSystemInfo{BootID: "boot-1", KernelVersion: "6.1.0"},
			Allocatable: corev1.ResourceList{"amd.com/sf_vf": resource.MustParse("8")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
	for _, change := range changes {
		change(n)
	}
	return n
}

// Verification returns the verification of a verified node.
func Verification(node string, changes ...func(*v1alpha1.LatencyVerification)) *v1alpha1.LatencyVerification {
	g := Gate()
	current := identity.KeysOf(g).Of(identity.Subject{Node: Node(node)})
	v := &v1alpha1.LatencyVerification{
		ObjectMeta: metav1.ObjectMeta{
			Name: v1alpha1.VerificationName("up", node), UID: types.UID("uid-v-" + node), Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(g, v1alpha1.GroupVersion.WithKind("LatencyGate"))},
		},
		Spec: v1alpha1.LatencyVerificationSpec{GateName: "up", NodeName: node},
		Status: v1alpha1.LatencyVerificationStatus{
			State: v1alpha1.VerificationVerified, Conditions: VerifiedBecause(v1alpha1.ReasonPassed, "all 2 rules pass"), LastTransitionTime: At(time.Hour),
			NodeUID: "uid-" + node, GateUID: "uid-gate", Identity: current, Number: 3, LastMeasurementTime: At(time.Hour),
			Accepted: &v1alpha1.AcceptedResult{Benchmark: "up-" + node + "-3", ResultPin: v1alpha1.ResultPin{UID: "uid-3"}, AcceptanceTime: *At(time.Hour), By: v1alpha1.AcceptedByPass, Peer: "b", Identity: current},
			Reference: []v1alpha1.ReferenceSession{
				{Benchmark: "up-" + node + "-1", Time: *At(9 * time.Hour), BootID: "boot-0", Peer: "b", Rounds: Rounds(1000, 1010, 990, 1000, 1010, 990, 1000, 1010, 990, 1000, 1010, 990)},
				{Benchmark: "up-" + node + "-3", Time: *At(time.Hour), BootID: "boot-1", Peer: "b", Rounds: Rounds(1000, 1010, 990, 1000, 1010, 990)},
			},
			Recent: []v1alpha1.MeasuredSession{
				{Time: *At(12 * time.Hour), BootID: "boot-a", Peer: "b", Identity: withKernel(current, "6.0.0"), Accepted: true, Levels: Levels(1000)},
				{Time: *At(11 * time.Hour), BootID: "boot-b", Peer: "b", Identity: withKernel(current, "6.0.0"), Accepted: true, Levels: Levels(1000)},
				{Time: *At(10 * time.Hour), BootID: "boot-c", Peer: "b", Identity: withKernel(current, "6.0.0"), Accepted: true, Levels: Levels(1000)},
				{Time: *At(9 * time.Hour), BootID: "boot-0", Peer: "b", Identity: withKernel(current, "6.0.0"), Accepted: true, Levels: Levels(1000)},
				{Time: *At(time.Hour), BootID: "boot-1", Peer: "b", Identity: identity.Kept(current), Accepted: true, Levels: Levels(1000)},
			},
			History: []v1alpha1.VerificationResult{
				{Benchmark: "up-" + node + "-3", ResultPin: v1alpha1.ResultPin{UID: "uid-3"}, CompletionTime: *At(time.Hour), Outcome: v1alpha1.VerdictPass, Reason: v1alpha1.ReasonPassed, Peer: "b", Identity: identity.Measured(current)},
				{Benchmark: "up-" + node + "-2", ResultPin: v1alpha1.ResultPin{UID: "uid-2"}, CompletionTime: *At(2 * time.Hour), Outcome: v1alpha1.VerdictFail, Reason: v1alpha1.ReasonFail, Peer: "b", Identity: map[string]string{"BootID": "boot-0"}},
			},
		},
	}
	for _, change := range changes {
		change(v)
	}
	return v
}

// VerifiedBecause returns condition Verified with a reason and a message.
func VerifiedBecause(reason, message string) []metav1.Condition {
	return []metav1.Condition{{Type: v1alpha1.ConditionVerified, Reason: reason, Message: message}}
}

// Unverified makes the node one that has waited for a minute.
func Unverified(reason string) func(*v1alpha1.LatencyVerification) {
	return func(v *v1alpha1.LatencyVerification) {
		v.Status.State, v.Status.Conditions, v.Status.LastTransitionTime = v1alpha1.VerificationUnverified, VerifiedBecause(reason, "because"), At(time.Minute)
	}
}

// Lent makes the node one whose turn began a minute ago.
func Lent(v *v1alpha1.LatencyVerification) {
	v.Status.Turn = &v1alpha1.Turn{StartTime: *At(time.Minute), Reason: v1alpha1.ReasonProvisional, Message: "as before"}
}

// In sets the state of the node.
func In(state v1alpha1.VerificationState) func(*v1alpha1.LatencyVerification) {
	return func(v *v1alpha1.LatencyVerification) { v.Status.State = state }
}

// WaitingSince makes the node a new one that has waited for some time.
func WaitingSince(d time.Duration) func(*v1alpha1.LatencyVerification) {
	return func(v *v1alpha1.LatencyVerification) {
		Unverified(v1alpha1.ReasonNewNode)(v)
		v.Status.LastTransitionTime, v.Status.Accepted, v.Status.Reference = At(d), nil, nil
	}
}

// withKernel returns what a session keeps of an identity, with another kernel.
func withKernel(all map[string]string, kernel string) map[string]string {
	kept := identity.Kept(all)
	kept[string(v1alpha1.IdentityKernel)] = kernel
	return kept
}
