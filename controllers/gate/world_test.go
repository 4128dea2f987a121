package gate

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/sessions"
	"github.com/tailgate-dev/tailgate/internal/turns"
	"github.com/tailgate-dev/tailgate/test/gatetest"
)

var p99 = gatetest.P99

var (
	noon             = gatetest.Noon
	ago, at          = gatetest.Ago, gatetest.At
	makeGate         = gatetest.Gate
	makeNode         = gatetest.Node
	makeVerification = gatetest.Verification
	verifiedBecause  = gatetest.VerifiedBecause
	unverified, in   = gatetest.Unverified, gatetest.In
	waitingSince     = gatetest.WaitingSince
	lent             = gatetest.Lent
)

// makeSnapshot returns a snapshot with the nodes of the verifications, each with the marks that it should have.
func makeSnapshot(g *v1alpha1.LatencyGate, verifications ...*v1alpha1.LatencyVerification) *snapshot {
	s := &snapshot{Snapshot: turns.New(g, nil, nil, nil, nil, noon)}
	s.Verifications = verifications
	for _, v := range verifications {
		name := v.Spec.NodeName
		s.Nodes[name], s.States[name] = turns.PublicationOf(g, v).On(makeNode(name)), v.Status.State
	}
	return s
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
	compared(w)
	return w
}

// compared notes in the session of the benchmark what the operator compares it with.
func compared(w *world) {
	if w.benchmark == nil || w.benchmark.Status.Session == nil {
		return
	}
	session := w.benchmark.Status.Session
	session.Reference = sessions.For(&w.verification.Status, &w.gate.Status, session.BootID, w.verification.Status.Benchmark.Peer).Status(w.verification.Status.Benchmark.Peer, session.Rounds)
}

// measured gives the node benchmark up-a-4 with peer b, which started four minutes ago and is complete; its condition Passed has
// the given status and reason.
func measured(passed metav1.ConditionStatus, reason string) func(*world) {
	return func(w *world) {
		running(w)
		b := w.benchmark
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, "10 of 10 runs"))
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, passed, reason, "p99 says so"))
		b.Status.Session = &v1alpha1.Session{BootID: "boot-2", Rounds: gatetest.Rounds(slices.Repeat([]int64{1005}, 10)...)}
	}
}

// running gives the node benchmark up-a-4 with the verified peer b, which still runs.
func running(w *world) {
	b := turns.Benchmark(w.gate, w.verification, "b", 4)
	b.UID, b.Generation = "uid-4", 1
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, ""))
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonRunning, "round 3 of 10"))
	w.benchmark = b
	s := &w.verification.Status
	s.State, s.Conditions, s.Number, s.LastTransitionTime = v1alpha1.VerificationMeasuring, verifiedBecause(v1alpha1.ReasonMeasuring, "it is measured"), 4, at(4*time.Minute)
	s.Benchmark = &v1alpha1.VerificationBenchmark{Name: b.Name, UID: string(b.UID), Peer: "b", PeerVerified: true, StartTime: *at(4 * time.Minute)}
	w.otherPeer, w.peerVerified = true, true
}
