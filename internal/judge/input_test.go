package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/sessions"
	"github.com/tailgate-dev/tailgate/internal/turns"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

// The tests of this file check what Evaluate hands to a verdict: the sessions of a reference, the number of looks, and its note.

// inOrder returns runs of the default variant, one for each half round trip in ns.
func inOrder(t *testing.T, s v1alpha1.LatencyBenchmarkSpec, name string, halves []int64, change ...func(*result.Stored)) Results {
	t.Helper()
	var runs []result.Stored
	for i, half := range halves {
		runs = append(runs, run(fmt.Sprintf("%s-r%d", name, i+1), "default", s, histogram(t, 2*half, 0, 1000), change...))
	}
	return collected(t, s, runs...)
}

// sixOf returns six rounds of each half round trip.
func sixOf(halves ...int64) []int64 {
	var all []int64
	for _, half := range halves {
		all = append(all, slices.Repeat([]int64{half}, 6)...)
	}
	return all
}

// A gate compares with all accepted sessions of a node, not with the last one: small losses in each of them would add up.
func TestReferenceReplacesTheRoundsOfTheBaseline(t *testing.T) {
	criteria := v1alpha1.Criteria{
		Rules:    []v1alpha1.Rule{{Metric: v1alpha1.MetricP50, MaxIncrease: v1alpha1.Limit{Text: "5%"}}},
		Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineGate},
	}
	for name, c := range map[string]struct {
		// sessions holds the rounds of each accepted session, and last those of the stored results of the last one.
		sessions        [][]int64
		last, candidate []int64
		of              v1alpha1.Metric
		warmUp          v1alpha1.Factor
		// spread is the standard deviation between boots of the gate's nodes.
		spread  int64
		outcome v1alpha1.VerdictOutcome
		message string
	}{
		"as quick as all sessions": {
			sessions: [][]int64{sixOf(5000), sixOf(5000)}, last: sixOf(5000), candidate: sixOf(5000), outcome: "Pass", message: "6+12 rounds of 2 boots",
		},
		"as quick as the last session, slower than those of the reference": {
			sessions: [][]int64{sixOf(5000), sixOf(5000)}, last: sixOf(6000), candidate: sixOf(6000), outcome: "Fail", message: "6.00µs against 5.00µs",
		},
		"slower than the last session, as quick as those of the reference": {
			sessions: [][]int64{sixOf(6000), sixOf(6000)}, last: sixOf(5000), candidate: sixOf(6000), outcome: "Pass", message: "6.00µs against 6.00µs",
		},
		"slower by less than the tolerance, and boots are alike": {
			sessions: [][]int64{sixOf(5000), sixOf(5000)}, last: sixOf(5000), candidate: sixOf(5100), outcome: "Pass",
		},
		"slower by less than the tolerance, and boots differ": {
			sessions: [][]int64{sixOf(5000), sixOf(5000)}, last: sixOf(5000), candidate: sixOf(5100), spread: 30_000, outcome: "Inconclusive",
		},
		"the reference has another metric": {
			sessions: [][]int64{sixOf(5000), sixOf(5000)}, last: sixOf(5000), candidate: sixOf(5000), of: v1alpha1.MetricP99, outcome: "Pass", message: "6+6 rounds of 1 boots",
		},
		"without a warm-up, all rounds count": {
			sessions: [][]int64{sixOf(6000, 5000), sixOf(6000, 5000)}, last: sixOf(5000), candidate: sixOf(6000, 5000), outcome: "Pass", message: "12+24 rounds",
		},
		"after a warm-up, as quick": {
			sessions: [][]int64{sixOf(6000, 5000), sixOf(6000, 5000)}, last: sixOf(5000), candidate: sixOf(6000, 5000), warmUp: "1.2", outcome: "Pass", message: "6+12 rounds",
		},
		"after a warm-up, slower": {
			sessions: [][]int64{sixOf(6000, 5000), sixOf(6000, 5000)}, last: sixOf(5000), candidate: sixOf(6000, 6000), warmUp: "1.2", outcome: "Fail", message: "6.00µs against 5.00µs",
		},
	} {
		t.Run(name, func(t *testing.T) {
			key := v1alpha1.ComparedValue{Variant: "default", Cell: "tcp-64", Metric: cmp.Or(c.of, v1alpha1.MetricP50)}
			status := &v1alpha1.LatencyVerificationStatus{}
			for i, halves := range c.sessions {
				rounds := v1alpha1.ValueRounds{ComparedValue: key}
				for _, half := range halves {
					rounds.Values = append(rounds.Values, 2*half)
				}
				status.Reference = append(status.Reference, v1alpha1.ReferenceSession{
					BootID: fmt.Sprint("boot-", i), Peer: "b", Rounds: []v1alpha1.ValueRounds{rounds},
				})
			}
			gate := &v1alpha1.LatencyGateStatus{Spread: []v1alpha1.SessionSpread{{ComparedValue: key, Nodes: 20, Differences: 60, Deviation: v1alpha1.FactorOf(float64(cmp.Or(c.spread, 1000))/1e6, 6), WarmUp: c.warmUp}}}
			baseline := inOrder(t, spec(), "before", c.last)
			baseline.Reference = new(sessions.For(status, gate, "boot-9", "b"))
			j, err := Evaluate(criteria, inOrder(t, spec(), "x", c.candidate), &baseline)
			if err != nil {
				t.Fatal(err)
			}
			if v := j.Status(); v.Outcome != c.outcome || !strings.Contains(v.Message, c.message) {
				t.Errorf("want %s, %q: %s", c.outcome, c.message, v.Message)
			}
		})
	}
}

// The numbers of rounds of the spec say whether there is a second look: it is requested, and corrected for.
func TestRoundsOfTheSpecReachTheVerdict(t *testing.T) {
	criteria := v1alpha1.Criteria{
		Rules:    []v1alpha1.Rule{{Metric: v1alpha1.MetricP50, MaxIncrease: v1alpha1.Limit{Text: "5%"}}},
		Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineBenchmark, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: "before"}}},
	}
	noisy := []int64{5000, 5200, 5000, 5500, 5000, 5300}
	for name, c := range map[string]struct {
		halves            []int64
		rounds, maxRounds int32
		looks             int32
		more              bool
	}{
		"undecided, one look":               {noisy, 6, 6, 1, false},
		"undecided, and more rounds follow": {noisy, 6, 30, 2, true},
		"undecided, after the last look":    {append(slices.Clone(noisy), noisy...), 6, 12, 2, false},
		"passed":                            {sixOf(5000), 6, 30, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := spec(func(s *v1alpha1.LatencyBenchmarkSpec) {
				s.Rounds, s.MaxRounds, s.Criteria = c.rounds, c.maxRounds, &criteria
			})
			j, err := Evaluate(criteria, inOrder(t, s, "x", c.halves), new(inOrder(t, spec(), "before", sixOf(5000))))
			if err != nil {
				t.Fatal(err)
			}
			if v := j.Status(); j.MoreRoundsMayDecide != c.more || v.Evaluations != c.looks {
				t.Errorf("%d looks, more rounds: %t: %s", v.Evaluations, j.MoreRoundsMayDecide, v.Message)
			}
		})
	}
}

// A verdict says that a NIC was simulated on either side, but not because of results that cannot be used.
func TestSimulatedReachesTheVerdict(t *testing.T) {
	criteria := v1alpha1.Criteria{
		Rules:    []v1alpha1.Rule{{Metric: v1alpha1.MetricP50, MaxIncrease: v1alpha1.Limit{Text: "5%"}}},
		Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineBenchmark, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: "before"}}},
	}
	for _, c := range []struct{ candidate, baseline, trouble, note bool }{
		{note: false}, {candidate: true, note: true}, {baseline: true, note: true}, {candidate: true, baseline: true, note: true},
		{baseline: true, trouble: true, note: false}, {candidate: true, trouble: true, note: true},
	} {
		of := func(name string, simulated bool) Results {
			r := inOrder(t, spec(), name, sixOf(5000))
			r.Simulated = simulated
			return r
		}
		baseline := of("before", c.baseline)
		if c.trouble {
			baseline.Trouble = &verdict.Blocker{Reason: "BaselineMissing", Message: "there is no baseline"}
		}
		j, err := Evaluate(criteria, of("x", c.candidate), &baseline)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(j.Status().Message, "on a simulated NIC"); got != c.note {
			t.Errorf("%+v: %s", c, j.Status().Message)
		}
	}
}

// A session keeps the rounds that rules compare, and only these: what no rule compares is no reference.
func TestMeasuredIsWhatRulesCompare(t *testing.T) {
	increase := v1alpha1.Limit{Text: "5%"}
	r := inOrder(t, spec(), "x", []int64{5000, 5010})
	for name, c := range map[string]struct {
		rules []v1alpha1.Rule
		want  []string
	}{
		"a limit":                  {[]v1alpha1.Rule{{Metric: v1alpha1.MetricP50, Max: v1alpha1.Limit{Text: "9us"}}}, nil},
		"a comparison":             {[]v1alpha1.Rule{{Metric: v1alpha1.MetricP50, MaxIncrease: increase}}, []string{"default/tcp-64/p50"}},
		"a comparison and a limit": {[]v1alpha1.Rule{{Metric: v1alpha1.MetricP50, MaxIncrease: increase}, {Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "9us"}}}, []string{"default/tcp-64/p50"}},
		"of another variant":       {[]v1alpha1.Rule{{Metric: v1alpha1.MetricP50, MaxIncrease: increase, Variants: []string{"other"}}}, nil},
	} {
		planned := spec()
		planned.Criteria = &v1alpha1.Criteria{Rules: c.rules}
		r.Spec.Session = turns.Compared(planned)
		var keys []string
		for _, session := range Session(r) {
			keys = append(keys, session.String())
			if !slices.Equal(session.Values, []int64{10_000, 10_020}) {
				t.Errorf("%s: %s has %v", name, session, session.Values)
			}
		}
		if !slices.Equal(keys, c.want) {
			t.Errorf("%s: %v, want %v", name, keys, c.want)
		}
		r.Trouble = &verdict.Blocker{Reason: v1alpha1.ReasonResultsMissing}
		if got := Session(r); got != nil {
			t.Errorf("%s: a session of results that do not count: %+v", name, got)
		}
		r.Trouble = nil
	}
}
