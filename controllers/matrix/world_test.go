package matrix

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// The worlds of the tests derive from a fixed one at noon: matrix perf/x of all pairs of the nodes a to d,
// of two rounds of one cell each, two pairs at once, is accepted, and nothing has started. Its pairs are, client first,
// 1: a d, 2: b c, 3: d b, 4: c a, 5: c d, 6: a b; every two of them form a slot.

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// ago returns a time before noon.
func ago(d time.Duration) metav1.Time { return metav1.NewTime(noon.Add(-d)) }

// names returns the names of n nodes: a, b and so on; n000, n001 and so on for more than 26.
func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%c", 'a'+i)
		if n > 26 {
			all[i] = fmt.Sprintf("n%03d", i)
		}
	}
	return all
}

func makeWorld(changes ...func(*world)) *world { return worldOf(4, 2, changes...) }

func worldOf(nodes int, parallel int32, changes ...func(*world)) *world {
	m := &v1alpha1.LatencyMatrix{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "perf", UID: "uid-x", Generation: 1},
		Spec: v1alpha1.LatencyMatrixSpec{
			Topology: v1alpha1.TopologyAllPairs, Parallelism: parallel,
			Template: v1alpha1.LatencyBenchmarkTemplate{Spec: v1alpha1.MeasurementSpec{
				Tool: v1alpha1.ToolSockperf, Rounds: 2,
				Workload: v1alpha1.Workload{
					Protocols: []v1alpha1.Protocol{v1alpha1.ProtocolTCP}, MessageSizes: []int32{64},
					Duration: metav1.Duration{Duration: 3 * time.Second},
				},
				Placement: v1alpha1.Placement{CPUs: 1},
				Network:   v1alpha1.Network{Type: v1alpha1.NetworkPod},
			}},
		},
		Status: v1alpha1.LatencyMatrixStatus{Nodes: names(nodes)},
	}
	w := &world{now: noon, matrix: m, busy: map[string]bool{}, unusable: map[string]bool{}, blocked: map[int32]blocker{}}
	w.pairs, w.slots = planOf(m)
	w.blocks = len(w.pairs)
	w.children = make([]*v1alpha1.LatencyBenchmark, len(w.pairs))
	for _, change := range changes {
		change(w)
	}
	return w
}

// withChild adds the benchmark of a pair as the controller creates it, with changes.
func withChild(number int32, changes ...func(*v1alpha1.LatencyBenchmark)) func(*world) {
	return func(w *world) {
		child := w.makeChild(number)
		child.UID, child.Generation = types.UID(fmt.Sprintf("uid-%d", number)), 1
		pair := w.pair(number)
		child.Status.Pair = &pair
		for _, change := range changes {
			change(child)
		}
		w.children[number-1] = child
	}
}

// running gives a pair a place, and adds its benchmark with changes.
func running(number int32, changes ...func(*v1alpha1.LatencyBenchmark)) func(*world) {
	return func(w *world) {
		claimed(number)(w)
		status := &w.matrix.Status
		status.Running[len(status.Running)-1].UID = fmt.Sprintf("uid-%d", number)
		withChild(number, changes...)(w)
	}
}

// claimed gives a place to a pair whose benchmark was not created yet.
func claimed(number int32) func(*world) {
	return func(w *world) {
		status := &w.matrix.Status
		status.Running = append(status.Running, v1alpha1.RunningPair{Number: number, Pair: w.pair(number)})
	}
}

// finishedPairs adds the benchmarks of pairs that were measured.
func finishedPairs(numbers ...int32) func(*world) {
	return func(w *world) {
		for _, number := range numbers {
			withChild(number, complete)(w)
		}
	}
}

func busy(nodes ...string) func(*world) {
	return func(w *world) {
		for _, n := range nodes {
			w.busy[n] = true
		}
	}
}

func unusable(nodes ...string) func(*world) {
	return func(w *world) {
		for _, n := range nodes {
			w.unusable[n] = true
		}
	}
}

// addresses sets for how many pairs at once there are addresses.
func addresses(blocks int) func(*world) { return func(w *world) { w.blocks = blocks } }

// withGate adds a rule that p99 stays below a limit.
func withGate(limit time.Duration) func(*world) {
	return func(w *world) {
		w.matrix.Spec.Template.Spec.Criteria = &v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: limit.String()}}}}
	}
}

// The states of a pair's benchmark.

// suspended suspends the matrix, and held suspends the benchmark of a pair.
func suspended(w *world) { w.matrix.Spec.Suspend = true }

func held(b *v1alpha1.LatencyBenchmark) { b.Spec.Suspend = true }

func complete(b *v1alpha1.LatencyBenchmark) {
	measuring(b)
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, "2 of 2"))
	b.Status.Progress = &v1alpha1.Progress{Runs: "2/2", Done: 2, Total: 2}
}

func failing(b *v1alpha1.LatencyBenchmark) {
	measuring(b)
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionFalse, v1alpha1.ReasonFailed, "run "+b.Name+"-r2 failed"))
	b.Status.Progress = &v1alpha1.Progress{Runs: "1/2", Done: 1, Total: 2, MeasuringSecondsLeft: 3}
}

func measuring(b *v1alpha1.LatencyBenchmark) {
	b.Status.StartTime = new(ago(time.Minute))
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonRunning, "measuring round 2 of 2"))
	b.Status.Progress = &v1alpha1.Progress{Runs: "1/2", Done: 1, Total: 2, MeasuringSecondsLeft: 3}
}

// rejected makes the benchmark one that has been rejected for a while.
func rejected(since time.Duration) func(*v1alpha1.LatencyBenchmark) {
	return func(b *v1alpha1.LatencyBenchmark) {
		c := v1alpha1.Condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonNodeNotReady, "node d is not ready")
		c.LastTransitionTime = ago(since)
		b.SetCondition(c)
	}
}

func deleting(b *v1alpha1.LatencyBenchmark) { b.DeletionTimestamp = new(ago(time.Second)) }

func holdsNodes(b *v1alpha1.LatencyBenchmark) { b.Status.Active = &v1alpha1.ActiveAttempt{} }

// anotherUID makes the benchmark one that was created after the one in the status.
func anotherUID(b *v1alpha1.LatencyBenchmark) { b.UID = "uid-again" }

// ofEarlier makes the benchmark one of an earlier matrix of the same name.
func ofEarlier(b *v1alpha1.LatencyBenchmark) {
	earlier := &v1alpha1.LatencyMatrix{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "uid-earlier"}}
	b.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(earlier, v1alpha1.GroupVersion.WithKind(kind))}
}

// judgedAs gives the benchmark a verdict of one rule.
func judgedAs(outcome v1alpha1.VerdictOutcome, reason string) func(*v1alpha1.LatencyBenchmark) {
	return func(b *v1alpha1.LatencyBenchmark) {
		complete(b)
		rule := v1alpha1.RuleVerdict{Rule: "p99 max 2us", Outcome: outcome, Reason: reason, Message: "p99 is what it is"}
		switch outcome {
		case v1alpha1.VerdictPass:
			rule.Passed = 1
		case v1alpha1.VerdictFail:
			rule.Failed = 1
		default:
			rule.Inconclusive = 1
		}
		b.Status.Verdict = &v1alpha1.Verdict{
			Outcome: outcome, Message: rule.Message, Comparisons: 1, BeyondOneIn: map[v1alpha1.VerdictOutcome]int64{v1alpha1.VerdictFail: 1_000}[outcome], Rules: []v1alpha1.RuleVerdict{rule},
		}
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, reason, rule.Message))
	}
}

// numbers returns the pairs of a step as text.
func numbers(verb string, all []int32) []string {
	if len(all) == 0 {
		return nil
	}
	return []string{fmt.Sprint(verb, " ", all)}
}

// text returns steps as "claim [1 2]", each in a string of its own.
func (s steps) text() []string {
	return slices.Concat(
		numbers("release", s.release), numbers("postpone", s.postpone), numbers("create", s.create), numbers("claim", s.claim), numbers("update", s.update),
	)
}
