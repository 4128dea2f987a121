package gate

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

const interval = 20 * time.Second

// fleet is a gate with many nodes, whose controllers reconcile at each interval while anything happens.
type fleet struct {
	gate          *v1alpha1.LatencyGate
	verifications []*v1alpha1.LatencyVerification
	nodes         map[string]*corev1.Node
	now           time.Time
	ends          map[string]time.Time
	// of returns how long the benchmark of a node lasts now, and the outcome of its last attempt.
	of func(now time.Time) (time.Duration, string)
	// turns is the number of turns that have begun.
	turns int
}

func makeFleet(size int, schedule string, of func(now time.Time) (time.Duration, string)) *fleet {
	f := &fleet{nodes: map[string]*corev1.Node{}, ends: map[string]time.Time{}, now: noon.Add(-interval), of: of}
	f.gate = makeGate(func(g *v1alpha1.LatencyGate) {
		g.Spec.Schedule, g.Spec.MaxParallel = schedule, nil
		g.Spec.Enforcement.Taint = &v1alpha1.GateTaint{Effect: corev1.TaintEffectNoExecute}
		g.Status.Schedule = &v1alpha1.ScheduleStatus{Schedule: schedule, StartTime: *at(24 * time.Hour)}
	})
	for i := range size {
		v := makeVerification(fmt.Sprintf("n%03d", i))
		f.verifications, f.nodes[v.Spec.NodeName] = append(f.verifications, v), makeNode(v.Spec.NodeName)
	}
	return f
}

// step reconciles all nodes, and then the gate. It returns for how long nothing will happen, at most until the next noon.
func (f *fleet) step(t *testing.T) (idle time.Duration) {
	t.Helper()
	f.now = f.now.Add(interval)
	outcome := ""
	var measuring, all []v1alpha1.LatencyVerification
	var nodes []corev1.Node
	for _, v := range f.verifications {
		name := v.Spec.NodeName
		if v.Status.State == v1alpha1.VerificationVerified {
			nodes, all = append(nodes, *f.nodes[name]), append(all, *v)
			continue // Nothing happens to it.
		}
		w := &world{now: f.now, gate: f.gate, owner: f.gate, verification: v, node: f.nodes[name], otherPeer: true}
		if b := v.Status.Benchmark; b != nil {
			w.benchmark = turns.Benchmark(f.gate, v, b.Peer, v.Status.Number)
			w.benchmark.UID, w.benchmark.Generation = types.UID(b.UID), 1
			w.benchmark.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonRunning, ""))
			w.benchmark.Status.Active = &v1alpha1.ActiveAttempt{StartTime: metav1.NewMicroTime(b.StartTime.Time)}
			var lasts time.Duration
			lasts, outcome = f.of(b.StartTime.Time)
			switch {
			case f.now.Before(b.StartTime.Add(lasts)):
			case outcome == "":
				w.benchmark.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, ""))
				w.benchmark.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, metav1.ConditionTrue, v1alpha1.ReasonPass, ""))
			default:
				w.benchmark.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonFailed, outcome))
				w.benchmark.Status.Attempts = []v1alpha1.Attempt{{Attempt: 3, Outcome: v1alpha1.Outcome{Reason: outcome}}}
			}
		}
		var err error
		if v.Status, err = w.next(decide(w)); err != nil {
			t.Fatal(err)
		}
		f.nodes[name] = turns.PublicationOf(f.gate, v).On(f.nodes[name])
		nodes, all = append(nodes, *f.nodes[name]), append(all, *v)
		if v.Status.State == v1alpha1.VerificationMeasuring {
			measuring = append(measuring, *v)
		}
	}
	s := &snapshot{Snapshot: turns.New(f.gate, []v1alpha1.LatencyGate{*f.gate}, nodes, all, measuring, f.now)}
	chosen := s.Choose(nil)
	take := func(v *v1alpha1.LatencyVerification, s step) {
		for _, own := range f.verifications {
			if own.Name == v.Name {
				var err error
				if own.Status, err = s.apply(nil, own, own.Status, f.now); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, begin := range chosen.Starts {
		take(begin.Verification, step{event: eventStarted, reason: v1alpha1.ReasonMeasuring, benchmark: &v1alpha1.VerificationBenchmark{
			Name: "x", UID: fmt.Sprint("uid-", begin.Verification.Status.Number+1), Peer: begin.Peer, PeerVerified: begin.PeerVerified, StartTime: metav1.Time{Time: f.now},
		}})
	}
	for _, turn := range chosen.Due {
		f.turns++
		take(turn.Verification, due(f.gate.Spec.Schedule, turn.Verification))
	}
	for _, end := range chosen.Ended {
		take(end.Verification, step{event: eventHeldUp, reason: v1alpha1.ReasonNoProgress, message: end.Why}.orGivenBack(end.Verification.Status.Turn))
	}
	f.gate.Status.Schedule = s.Schedule.Status
	if len(chosen.Starts)+len(chosen.Due)+len(chosen.Ended) > 0 || f.held() > 0 {
		return 0
	}
	const day = 24 * time.Hour
	idle = day - f.now.Sub(noon)%day
	if chosen.Again > 0 {
		idle = min(idle, chosen.Again)
	}
	return max(0, idle-interval)
}

// held is the number of nodes that the gate holds back.
func (f *fleet) held() (n int) {
	for _, v := range f.verifications {
		if turns.PublicationOf(f.gate, v).HoldsBack() {
			n++
		}
	}
	return n
}

// An outage of any kind and length, during the schedule of 200 nodes, holds at most maxParallel of them at once and none an hour later,
// and the schedule continues at its next time after it.
func TestOutagesDuringTheSchedule(t *testing.T) {
	kinds := map[string]struct {
		lasts   time.Duration
		outcome string
	}{
		"a webhook refuses pods":          {20 * time.Second, v1alpha1.OutcomePodRefused},
		"images are not pulled":           {3 * time.Minute, v1alpha1.OutcomeImagePullFailed},
		"CNI refuses the network":         {6 * time.Minute, v1alpha1.OutcomeNetworkRefused},
		"CNI sets up no network":          {6 * time.Minute, v1alpha1.OutcomeNetworkFailed},
		"no benchmark makes any progress": {1000 * time.Hour, ""},
	}
	for name, kind := range kinds {
		for _, length := range []time.Duration{5 * time.Minute, 30 * time.Hour} {
			t.Run(fmt.Sprintf("%s for %s", name, length), func(t *testing.T) {
				outage := func(now time.Time) (time.Duration, string) {
					if now.Sub(noon) < length {
						return kind.lasts, kind.outcome
					}
					return time.Minute, ""
				}
				f := makeFleet(200, "0 12 * * *", outage)
				const parallel = 20
				most := 0
				for f.now.Before(noon.Add(length + 25*time.Hour)) {
					idle := f.step(t)
					n := f.held()
					since := f.now.Sub(noon)
					if n > parallel {
						t.Fatalf("%s: %d unchanged nodes are held back", since, n)
					}
					again := since % (24 * time.Hour)
					if since >= time.Hour && since < length && again >= time.Hour && n > 0 {
						t.Fatalf("%s: %d unchanged nodes are held back an hour later", since, n)
					}
					most = max(most, n)
					f.now = f.now.Add(idle)
				}
				t.Logf("at most %d nodes held, %d turns", most, f.turns)
				for _, v := range f.verifications {
					if v.Status.State != v1alpha1.VerificationVerified || v.Status.LastMeasurementTime.Before(&metav1.Time{Time: noon.Add(length)}) {
						t.Fatalf("after the outage, %s is %s and was measured at %s; %+v", v.Spec.NodeName, v.Status.State, v.Status.LastMeasurementTime, f.gate.Status.Schedule)
					}
				}
			})
		}
	}
}

// What fails may be the node's own doing, so that it is held back; if that is so on each node, the schedule pauses before it holds many.
func TestToolsThatFailDuringTheSchedule(t *testing.T) {
	f := makeFleet(200, "0 12 * * *", func(time.Time) (time.Duration, string) { return time.Minute, v1alpha1.OutcomeToolFailed })
	const parallel = 20
	for f.now.Before(noon.Add(20 * time.Minute)) {
		f.step(t)
	}
	if n := f.held(); n < v1alpha1.MaxFruitless || n >= parallel+v1alpha1.MaxFruitless {
		t.Errorf("%d nodes are held back after 20 minutes", n)
	}
	if c := f.gate.Status.Schedule; c.Fruitless < v1alpha1.MaxFruitless {
		t.Errorf("%+v", c)
	}
}
