package gate

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/sessions"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// The worlds of the tests derive from a fixed one at noon: node a of gate up was verified with peer b by
// benchmark up-a-3, after up-a-1 began its epoch, and nothing has changed since.

// p99 is the value that the gate compares.
const p99 = "default/udp-64/p99"

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

func at(d time.Duration) *metav1.Time { return &metav1.Time{Time: ago(d)} }

func makeGate(changes ...func(*v1alpha1.LatencyGate)) *v1alpha1.LatencyGate {
	g := &v1alpha1.LatencyGate{
		ObjectMeta: metav1.ObjectMeta{Name: "up", UID: "uid-gate", CreationTimestamp: metav1.NewTime(ago(24 * time.Hour))},
		Spec: v1alpha1.LatencyGateSpec{
			NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"role": "fast"}}, Namespace: "perf", MaxParallel: new(intstr.FromInt32(1)), HistoryLimit: 3,
			ReleaseAfter: metav1.Duration{Duration: time.Hour},
			Identity: v1alpha1.GateIdentity{
				Keys:   []v1alpha1.IdentityKey{v1alpha1.IdentityBootID, v1alpha1.IdentityKernel, v1alpha1.IdentityDevices},
				Labels: []string{"onload"},
			},
			Template: v1alpha1.LatencyBenchmarkTemplate{Spec: v1alpha1.LatencyBenchmarkSpec{
				Tool: v1alpha1.ToolPinger, Rounds: 10,
				Placement: v1alpha1.Placement{Client: &v1alpha1.EndpointPlacement{}, Server: &v1alpha1.EndpointPlacement{}},
				Network:   v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "amd.com/sf_vf", NetworkRef: &v1alpha1.NetworkRef{Name: "vf"}}}},
				Criteria: &v1alpha1.Criteria{
					Rules: []v1alpha1.Rule{
						{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "20us"}},
						{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "10%"}},
					},
					Baseline:          &v1alpha1.Baseline{Accepted: &v1alpha1.AcceptedBaseline{}},
					IgnoreDifferences: []string{"kernel.*"},
				},
			}},
		},
	}
	g.Status.Spread = []v1alpha1.SessionSpread{{Of: p99, Nodes: 20, Differences: 40, PartsPerMillion: 10_000}}
	for _, change := range changes {
		change(g)
	}
	return g
}

// makeNode returns a ready node with the identity of a verified one.
func makeNode(name string, changes ...func(*corev1.Node)) *corev1.Node {
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

// makeVerification returns the verification of a verified node.
func makeVerification(node string, changes ...func(*v1alpha1.LatencyVerification)) *v1alpha1.LatencyVerification {
	g := makeGate()
	current := identity.KeysOf(g).Of(makeNode(node))
	v := &v1alpha1.LatencyVerification{
		ObjectMeta: metav1.ObjectMeta{
			Name: v1alpha1.VerificationName("up", node), UID: types.UID("uid-v-" + node), Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(g, v1alpha1.GroupVersion.WithKind("LatencyGate"))},
		},
		Spec: v1alpha1.LatencyVerificationSpec{GateName: "up", NodeName: node},
		Status: v1alpha1.LatencyVerificationStatus{
			State: v1alpha1.VerificationVerified, Conditions: verifiedBecause(v1alpha1.ReasonPassed, "all 2 rules pass"), LastTransitionTime: at(time.Hour),
			NodeUID: "uid-" + node, GateUID: "uid-gate", Identity: current, Number: 3, LastMeasurementTime: at(time.Hour),
			Accepted: &v1alpha1.AcceptedResult{Benchmark: "up-" + node + "-3", ResultPin: v1alpha1.ResultPin{UID: "uid-3"}, AcceptanceTime: *at(time.Hour), By: v1alpha1.AcceptedByPass, Peer: "b", Identity: current},
			Reference: []v1alpha1.ReferenceSession{
				{Benchmark: "up-" + node + "-1", Time: *at(9 * time.Hour), BootID: "boot-0", Peer: "b", Rounds: map[string]v1alpha1.SessionRounds{p99: "1000 1010 990 1000 1010 990 1000 1010 990 1000 1010 990"}},
				{Benchmark: "up-" + node + "-3", Time: *at(time.Hour), BootID: "boot-1", Peer: "b", Rounds: map[string]v1alpha1.SessionRounds{p99: "1000 1010 990 1000 1010 990"}},
			},
			Recent: []v1alpha1.MeasuredSession{
				{Time: *at(9 * time.Hour), BootID: "boot-0", Peer: "b", Levels: map[string]int64{p99: 1000}},
				{Time: *at(time.Hour), BootID: "boot-1", Peer: "b", Change: "Kernel was \"6.0.0\" and is \"6.1.0\"", Levels: map[string]int64{p99: 1000}},
			},
			History: []v1alpha1.VerificationResult{
				{Benchmark: "up-" + node + "-3", ResultPin: v1alpha1.ResultPin{UID: "uid-3"}, CompletionTime: *at(time.Hour), Outcome: v1alpha1.VerdictPass, Reason: v1alpha1.ReasonPassed, Peer: "b", IdentitySHA256: mustDigest(current)},
				{Benchmark: "up-" + node + "-2", ResultPin: v1alpha1.ResultPin{UID: "uid-2"}, CompletionTime: *at(2 * time.Hour), Outcome: v1alpha1.VerdictFail, Reason: v1alpha1.ReasonFail, Peer: "b", IdentitySHA256: mustDigest(map[string]string{"BootID": "boot-0"})},
			},
		},
	}
	for _, change := range changes {
		change(v)
	}
	return v
}

// verifiedBecause returns condition Verified with a reason and a message.
func verifiedBecause(reason, message string) []metav1.Condition {
	return []metav1.Condition{{Type: v1alpha1.ConditionVerified, Reason: reason, Message: message}}
}

func mustDigest(value any) string {
	digest, err := result.Digest(value)
	if err != nil {
		panic(err)
	}
	return digest
}

func mustPin(b *v1alpha1.LatencyBenchmark) v1alpha1.ResultPin {
	pin, err := pinOf(b)
	if err != nil {
		panic(err)
	}
	return pin
}

func makeWorld(changes ...func(*world)) *world {
	w := &world{now: noon, gate: makeGate(), verification: makeVerification("a"), node: makeNode("a")}
	w.owner = w.gate
	for _, change := range changes {
		change(w)
	}
	return w
}

// unverified makes the node one that has waited for a minute.
func unverified(reason string) func(*v1alpha1.LatencyVerification) {
	return func(v *v1alpha1.LatencyVerification) {
		v.Status.State, v.Status.Conditions, v.Status.LastTransitionTime = v1alpha1.VerificationUnverified, verifiedBecause(reason, "because"), at(time.Minute)
	}
}

// in sets the state of the node.
func in(state v1alpha1.VerificationState) func(*v1alpha1.LatencyVerification) {
	return func(v *v1alpha1.LatencyVerification) { v.Status.State = state }
}

// measured gives the node benchmark up-a-4 with peer b, which started four minutes ago and is complete; its condition Passed has
// the given status and reason.
func measured(passed metav1.ConditionStatus, reason string) func(*world) {
	return func(w *world) {
		running(w)
		b := w.benchmark
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, "10 of 10 runs"))
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, passed, reason, "p99 says so"))
		w.measured, w.bootID = sessions.Measured{p99: slices.Repeat([]stats.Observation{stats.Exact(1005)}, 10)}, "boot-2"
	}
}

// running gives the node benchmark up-a-4 with the verified peer b, which still runs.
func running(w *world) {
	b := benchmarkOf(w.gate, w.verification, "b", 4)
	b.UID, b.Generation = "uid-4", 1
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, ""))
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonRunning, "round 3 of 10"))
	w.benchmark = b
	s := &w.verification.Status
	s.State, s.Conditions, s.Number, s.LastTransitionTime = v1alpha1.VerificationMeasuring, verifiedBecause(v1alpha1.ReasonMeasuring, "it is measured"), 4, at(4*time.Minute)
	s.Benchmark = &v1alpha1.VerificationBenchmark{Name: b.Name, UID: string(b.UID), Peer: "b", PeerVerified: true, StartTime: *at(4 * time.Minute)}
	w.otherPeer = true
}
