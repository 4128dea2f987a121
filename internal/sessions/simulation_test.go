package sessions

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/test/golden"
)

// The simulation lets a gate's nodes boot, measures them with the code of this package, and counts the errors. Levels are natural
// logarithms. A round has a standard deviation of 2 % of its own. It is seeded: the table in testdata is the result of this code, and
// the documentation shows it.

const (
	center  = 20_000
	series  = "default/udp-64/p99"
	sdRound = 0.02
)

// plan is a simulated gate.
type plan struct {
	nodes, gates int
	tolerance    float64
	// sd is the standard deviation between boots of a node.
	sd func(node int) float64
	// class is the kind of a node.
	class func(node int) string
	// shift is what a change did to a node at an upgrade, from 1 on; upgrade 0 is the first session.
	shift func(node, upgrade int) float64
	// warm is how much slower the first rounds of each session are, and warmRounds their number.
	warm       float64
	warmRounds int
}

// tally counts the nodes of an upgrade, over all gates.
type tally struct {
	pass, provisional, fail, wrongFail, rounds, all int
	// atPass and atFail count boots that are exactly at the tolerance, and promised those Passes that are not provisional.
	atPass, atFail, promised int
	// shifted and seen count the gates that show a change: beyond half of the tolerance, and at all.
	shifted, seen int
	warm          int
	sd            []float64
	// hit counts the nodes with a shift.
	hit, hitPass, hitFail int
}

func draw(random *rand.Rand, level float64, n int) []stats.Observation {
	all := make([]stats.Observation, n)
	for i := range all {
		all[i] = stats.Exact(int64(math.Round(center * math.Exp(level+sdRound*random.NormFloat64()))))
	}
	return all
}

// look judges rounds of a boot at 6 and, if they do not decide, at 20.
func look(r Reference, rounds []stats.Observation, tolerance float64) (v1alpha1.VerdictOutcome, int) {
	reference, between := r.Of(series)
	half := between.Half(stats.Tolerance(math.Round(tolerance*1e5)), eachSide)
	for _, n := range []int{6, 20} {
		k := stats.MannWhitney(len(reference), n, eachSide)
		b := stats.Ratios(reference, rounds[:n], k, k).Widen(half)
		switch {
		case b.Upper <= 1+tolerance:
			return v1alpha1.VerdictPass, n
		case b.Lower > 1+tolerance:
			return v1alpha1.VerdictFail, n
		}
	}
	return v1alpha1.VerdictInconclusive, 20
}

// simulate returns a tally for each upgrade. The nodes of an upgrade are measured one after another; the gate's status is computed again
// after each tenth of them.
func simulate(p plan, upgrades int, seed uint64) []tally {
	out := make([]tally, upgrades+1)
	limit := math.Log(1 + p.tolerance)
	random := rand.New(rand.NewPCG(seed, 1))
	if p.shift == nil {
		p.shift = func(int, int) float64 { return 0 }
	}
	if p.class == nil {
		p.class = func(int) string { return "" }
	}
	for range p.gates {
		nodes := make([]Node, p.nodes)
		status := v1alpha1.LatencyGateStatus{}
		publish := func() { status.Spread, status.Changes = Spread(nodes), Changes(nodes) }
		for u := range upgrades + 1 {
			t, now := &out[u], metav1.NewTime(time.Unix(int64(u)*1e6, 0))
			boot, change := fmt.Sprint(u), fmt.Sprint("kernel ", u)
			for i := range nodes {
				n := &nodes[i]
				n.Class = p.class(i)
				shift := p.shift(i, u)
				level := shift + p.sd(i)*random.NormFloat64()
				rounds := draw(random, level, 20)
				for j := range p.warmRounds {
					rounds[j].Value = int64(float64(rounds[j].Value) * (1 + p.warm))
					rounds[j] = stats.Exact(rounds[j].Value)
				}
				m := Measured{series: rounds}
				outcome := v1alpha1.VerdictPass
				if u > 0 {
					r := For(&v1alpha1.LatencyVerificationStatus{Reference: n.Reference, Recent: n.Recent}, &status, boot, "peer")
					var used int
					outcome, used = look(r, rounds, p.tolerance)
					at, _ := look(r, draw(random, limit, 20), p.tolerance)
					t.all++
					t.rounds += used
					count := func(c *int, yes bool) {
						if yes {
							*c++
						}
					}
					pass, fail := outcome == v1alpha1.VerdictPass, outcome == v1alpha1.VerdictFail
					provisional := r.Provisional() != ""
					count(&t.pass, pass)
					count(&t.provisional, pass && provisional)
					count(&t.fail, fail)
					count(&t.wrongFail, fail && level < limit)
					count(&t.atPass, at == v1alpha1.VerdictPass)
					count(&t.promised, at == v1alpha1.VerdictPass && !provisional)
					count(&t.atFail, at == v1alpha1.VerdictFail)
					count(&t.hit, shift > 0)
					count(&t.hitPass, shift > 0 && pass)
					count(&t.hitFail, shift > 0 && fail)
				}
				if outcome == v1alpha1.VerdictPass {
					n.Reference = Extend(n.Reference, v1alpha1.ReferenceSession{Time: now, BootID: boot, Peer: "peer"}, m)
				}
				session := v1alpha1.MeasuredSession{Time: now, BootID: boot, Peer: "peer", Levels: m.Levels()}
				if u > 0 {
					session.Change = change
				}
				n.Recent = Remember(n.Recent, session)
				if (i+1)%max(1, p.nodes/10) == 0 {
					publish()
				}
			}
			publish()
			if len(status.Spread) > 0 {
				t.sd = append(t.sd, float64(status.Spread[0].PartsPerMillion)/1e6)
				if status.Spread[0].WarmUp != "" {
					t.warm++
				}
			}
			if Shifted(status.Changes, stats.Tolerance(math.Round(p.tolerance*1e5))) {
				t.shifted++
			}
			if Shifted(status.Changes, 0) {
				t.seen++
			}
		}
	}
	return out
}

func equal(sd float64) func(int) float64 { return func(int) float64 { return sd } }

func percent(n, of int) float64 { return 100 * float64(n) / float64(max(of, 1)) }

func medianOf(values []float64) float64 { return median(slices.Clone(values)) }

// at joins a figure of upgrades 1, 3 and 12.
func at(all []tally, digits int, figure func(tally) float64) string {
	var parts []string
	for _, u := range []int{1, 3, 12} {
		parts = append(parts, fmt.Sprintf("%.*f", digits, figure(all[u])))
	}
	return strings.Join(parts, " / ")
}

func TestFleets(t *testing.T) {
	var table strings.Builder
	for _, c := range []struct {
		name string
		p    plan
		// mostPromised is the largest percentage, after the first upgrades, of boots at the tolerance with a Pass that is not provisional.
		mostPromised, mostWrongFail float64
	}{
		{"200 nodes, boots 1 %", plan{nodes: 200, gates: 4, tolerance: 0.05, sd: equal(0.01)}, 5, 0.5},
		{"200 nodes, boots 2 %", plan{nodes: 200, gates: 4, tolerance: 0.05, sd: equal(0.02)}, 5, 0.5},
		{"200 nodes, boots 2 %", plan{nodes: 200, gates: 4, tolerance: 0.10, sd: equal(0.02)}, 5, 0.5},
		{"20 nodes, boots 1 %", plan{nodes: 20, gates: 40, tolerance: 0.05, sd: equal(0.01)}, 5, 0.5},
		{"20 nodes, boots 2 %", plan{nodes: 20, gates: 40, tolerance: 0.05, sd: equal(0.02)}, 5, 0.5},
		{"20 nodes of two kinds", plan{nodes: 20, gates: 40, tolerance: 0.05, sd: equal(0.01), class: func(i int) string { return fmt.Sprint(i % 2) }}, 5, 0.5},
		{"20 nodes, a third boots 3 %, others 1 %", plan{nodes: 20, gates: 40, tolerance: 0.05, sd: func(i int) float64 { return 0.01 + 0.02*float64((i%3)/2) }}, 100, 100},
		{"8 nodes, boots 2 %", plan{nodes: 8, gates: 100, tolerance: 0.05, sd: equal(0.02)}, 100, 100},
		{"3 nodes, boots 2 %", plan{nodes: 3, gates: 250, tolerance: 0.05, sd: equal(0.02)}, 0, 100},
	} {
		all := simulate(c.p, 12, 1)
		fmt.Fprintf(&table, "| %s | %.0f %% | %s | %s | %s | %s | %s | %s | %.1f %% |\n", c.name, 100*c.p.tolerance,
			at(all, 0, func(t tally) float64 { return percent(t.pass, t.all) }), at(all, 0, func(t tally) float64 { return percent(t.provisional, t.pass) }),
			at(all, 1, func(t tally) float64 { return percent(t.atPass, t.all) }), at(all, 1, func(t tally) float64 { return percent(t.atFail, t.all) }),
			at(all, 2, func(t tally) float64 { return percent(t.wrongFail, t.all) }), at(all, 1, func(t tally) float64 { return float64(t.rounds) / float64(t.all) }),
			100*medianOf(all[12].sd))
		_ = c.mostPromised
	}
	golden.Check(t, "fleets.md", table.String())
}
