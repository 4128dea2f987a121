package judge

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/sessions"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

// boots is a simulated gate whose nodes are booted and judged by the code of verdicts and sessions together. A round has a standard
// deviation of 2 %, the tolerance is 5 %, and the boots of each compared value differ by themselves.
type boots struct {
	name                 string
	nodes, gates, values int
	sd                   func(node int) float64
	kind                 func(node int) string
	peers                int
	upgrade              int
}

const bootTolerance = 0.05

// outcomes counts, of nodes that are judged at the last upgrade: those that fail although they are within the tolerance, those that pass,
// with one value at the tolerance, those that pass, and pass without being provisional, and, 3 tolerances slower, those that fail.
type outcomes struct{ all, wrongFail, pass, atPass, promised, threeFail int }

func (b boots) simulate(t *testing.T, random *rand.Rand) (e outcomes) {
	t.Helper()
	names := make([]string, b.values)
	rule := v1alpha1.Rule{Metric: v1alpha1.MetricP99, MaxIncrease: v1alpha1.Limit{Text: "5%"}}
	tolerances := sessions.Tolerances{}
	for i := range names {
		names[i] = fmt.Sprintf("c%02d", i)
		tolerances[v1alpha1.ComparedValue{Variant: "v", Cell: names[i], Metric: rule.Metric}] = 5000
	}
	type measurement map[string][]stats.Observation
	measure := func(levels []float64) measurement {
		m := measurement{}
		for i, name := range names {
			for range 20 {
				m[name] = append(m[name], stats.Exact(int64(20_000*math.Exp(levels[i]+0.02*random.NormFloat64()))))
			}
		}
		return m
	}
	measured := func(m measurement) (all []v1alpha1.ValueRounds) {
		for _, name := range names[:min(len(names), v1alpha1.MaxSeries)] {
			all = append(all, sessions.Rounds(v1alpha1.ComparedValue{Variant: "v", Cell: name, Metric: rule.Metric}, m[name], sessions.FirstRounds))
		}
		return all
	}
	judged := func(r sessions.Reference, m, last measurement) v1alpha1.VerdictOutcome {
		for n := 6 + r.LeaveOut; ; n = 20 {
			in := verdict.Input{Criteria: v1alpha1.Criteria{Rules: []v1alpha1.Rule{rule}}, Rounds: 6, MaxRounds: 20}
			for _, name := range names {
				cell := func(rounds []stats.Observation) verdict.Cell {
					c := verdict.Cell{Variant: "v", Name: name, Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolUDP, MessageSize: 64}}
					for _, o := range rounds {
						c.Rounds = append(c.Rounds, verdict.Round{Samples: math.MaxInt64, Values: map[v1alpha1.Metric]stats.Observation{rule.Metric: o}})
					}
					return c
				}
				base := cell(last[name])
				rounds, between := r.Of(v1alpha1.ComparedValue{Variant: "v", Cell: name, Metric: rule.Metric})
				base.References = map[v1alpha1.Metric]verdict.Reference{rule.Metric: {Rounds: rounds, Between: between, LeaveOut: r.LeaveOut}}
				in.Candidate, in.Baseline = append(in.Candidate, cell(m[name][:n])), append(in.Baseline, base)
			}
			j, err := verdict.Judge(in)
			if err != nil {
				t.Fatal(err)
			}
			if n == 20 || !j.MoreRoundsMayDecide {
				return j.Outcome
			}
		}
	}
	limit := math.Log1p(bootTolerance)
	for range b.gates {
		nodes, last := make([]sessions.Node, b.nodes), make([]measurement, b.nodes)
		gate := v1alpha1.LatencyGateStatus{}
		for u := range b.upgrade + 1 {
			for i := range nodes {
				n, boot, peer := &nodes[i], fmt.Sprint(u), fmt.Sprint("p", u%b.peers)
				identity := map[string]string{"Kernel": boot}
				if b.kind != nil {
					n.Group = "kind=" + b.kind(i)
					identity["Label/kind"] = b.kind(i)
				}
				levels := make([]float64, b.values)
				for v := range levels {
					levels[v] = b.sd(i) * random.NormFloat64()
				}
				m, outcome := measure(levels), v1alpha1.VerdictPass
				if u > 0 {
					status := &v1alpha1.LatencyVerificationStatus{Reference: n.Reference, Recent: n.Recent, Identity: identity}
					r := sessions.For(status, &gate, boot, peer)
					judge := func(levels []float64) (v1alpha1.VerdictOutcome, bool) {
						m := measure(levels)
						outcome := judged(r, m, last[i])
						if outcome == v1alpha1.VerdictPass && sessions.Drifted(n.Reference, peer, measured(m), tolerances) != "" {
							outcome = v1alpha1.VerdictInconclusive
						}
						return outcome, r.Provisional(measured(m)) != "" || b.values > v1alpha1.MaxSeries
					}
					outcome, _ = judge(levels)
					if u == b.upgrade {
						e.all++
						e.wrongFail += one(outcome == v1alpha1.VerdictFail && slices.Max(levels) < limit)
						e.pass += one(outcome == v1alpha1.VerdictPass)
						at := slices.Clone(levels)
						at[0] = limit
						outcome, provisional := judge(at)
						e.atPass += one(outcome == v1alpha1.VerdictPass)
						e.promised += one(outcome == v1alpha1.VerdictPass && !provisional)
						for v := range at {
							at[v] = levels[v] + 3*limit
						}
						outcome, _ = judge(at)
						e.threeFail += one(outcome == v1alpha1.VerdictFail)
					}
				}
				s := v1alpha1.MeasuredSession{Time: metav1.NewTime(time.Unix(int64(u)*1e6+int64(i), 0)), BootID: boot, Peer: peer, Identity: identity,
					Accepted: outcome == v1alpha1.VerdictPass, Levels: sessions.Levels(measured(m))}
				if s.Accepted {
					n.Reference, last[i] = sessions.Extend(n.Reference, v1alpha1.ReferenceSession{Time: s.Time, BootID: boot, Peer: peer, Rounds: measured(m)}, &gate), m
				}
				n.Recent = sessions.Remember(n.Recent, s)
				if (i+1)%max(1, b.nodes/4) == 0 || i == b.nodes-1 {
					gate.Spread, gate.Changes = sessions.Spread(nodes), sessions.Fleet(nodes, tolerances)
				}
			}
		}
	}
	return e
}

func one(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// wilson returns a share in percent with its 95 % interval.
func wilson(k, n int) (text string, low float64) {
	const z = 1.96
	p, of := float64(k)/float64(n), float64(n)
	mid := (p + z*z/(2*of)) / (1 + z*z/of)
	half := z * math.Sqrt(p*(1-p)/of+z*z/(4*of*of)) / (1 + z*z/of)
	return fmt.Sprintf("%.1f [%.1f, %.1f]", 100*p, 100*max(0, mid-half), 100*min(1, mid+half)), 100 * (mid - half)
}

// TestBoots checks what a gate promises of boots: a Pass that is not provisional is wrong in at most 5 %, and at most 0.5 % of unchanged
// boots fail, if boots differ by no more than the tolerance. With TAILGATE_BOOTS=1, it prints the table of docs/internals/boots.md, of more gates.
func TestBoots(t *testing.T) {
	equal := func(sd float64) func(int) float64 { return func(int) float64 { return sd } }
	some := func(each int, few, others float64) func(int) float64 {
		return func(i int) float64 {
			if i%each == 0 {
				return few
			}
			return others
		}
	}
	half := func(i int) string { return fmt.Sprint(i % 2) }
	rows := []boots{
		{name: "1 value, 3 nodes, boots 5 %", nodes: 3, gates: 400, values: 1, sd: equal(0.05), upgrade: 1},
		{name: "1 value, 20 nodes, boots 2 %", nodes: 20, gates: 60, values: 1, sd: equal(0.02), upgrade: 1},
		{name: "1 value, 20 nodes, boots 5 %", nodes: 20, gates: 60, values: 1, sd: equal(0.05), upgrade: 1},
		{name: "1 value, 20 nodes, boots 2 %", nodes: 20, gates: 60, values: 1, sd: equal(0.02), upgrade: 5},
		{name: "1 value, 20 nodes, boots of half 5 %, of others 1 %, kinds labelled", nodes: 20, gates: 60, values: 1, sd: some(2, 0.05, 0.01), kind: half, upgrade: 5},
		{name: "1 value, 20 nodes, boots of a tenth 5 %, of others 0.5 %", nodes: 20, gates: 60, values: 1, sd: some(10, 0.05, 0.005), upgrade: 5},
		{name: "1 value, 20 nodes, boots 2 %, two peers in turn", nodes: 20, gates: 60, values: 1, sd: equal(0.02), peers: 2, upgrade: 8},
		{name: "4 values, 20 nodes, boots 2 %", nodes: 20, gates: 30, values: 4, sd: equal(0.02), upgrade: 1},
		{name: "4 values, 20 nodes, boots 2 %", nodes: 20, gates: 30, values: 4, sd: equal(0.02), upgrade: 5},
		{name: "13 values, 20 nodes, boots 2 %", nodes: 20, gates: 20, values: 13, sd: equal(0.02), upgrade: 1},
		{name: "13 values, 20 nodes, boots 1 %", nodes: 20, gates: 20, values: 13, sd: equal(0.01), upgrade: 5},
		{name: "40 values, 20 nodes, boots 2 %", nodes: 20, gates: 20, values: 40, sd: equal(0.02), upgrade: 1},
		{name: "40 values, 20 nodes, boots 1 %", nodes: 20, gates: 10, values: 40, sd: equal(0.01), upgrade: 5},
	}
	many := os.Getenv("TAILGATE_BOOTS") != ""
	if !many {
		rows = rows[:5]
	}
	var table strings.Builder
	for i, b := range rows {
		if b.peers = max(1, b.peers); !many {
			b.gates /= 20
		}
		e := b.simulate(t, rand.New(rand.NewPCG(uint64(i), 1)))
		pass, _ := wilson(e.pass, e.all)
		wrong, surelyWrong := wilson(e.wrongFail, e.all)
		at, _ := wilson(e.atPass, e.all)
		promised, surelyPromised := wilson(e.promised, e.all)
		three, _ := wilson(e.threeFail, e.all)
		if surelyWrong > 0.5 || surelyPromised > 5 {
			t.Errorf("%s, upgrade %d: wrong Fail %s, wrong Pass %s", b.name, b.upgrade, wrong, promised)
		}
		row := fmt.Sprintf("| %s | %d | %s | %s | %s | %s | %s |", b.name, b.upgrade, pass, at, promised, wrong, three)
		fmt.Fprintln(&table, row)
		if many {
			fmt.Println(row)
		}
	}
	t.Log("\n" + table.String())
}
