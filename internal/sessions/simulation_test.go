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
	sdRound = 0.02
)

var series = v1alpha1.ComparedValue{Variant: "default", Cell: "udp-64", Metric: v1alpha1.MetricP99}

// plan is a simulated gate.
type plan struct {
	nodes, gates int
	tolerance    float64
	// sd is the standard deviation between boots of a node.
	sd func(node int) float64
	// class is the group of a node.
	class func(node int) string
	// shift is what a change did to a node at an upgrade, from 1 on; upgrade 0 is the first session.
	shift func(node, upgrade int) float64
	// warm is how much slower the first rounds of each session are, and warmRounds their number.
	warm       float64
	warmRounds int
	// memory is the correlation of each round with the one before.
	memory float64
	// leftIn compares the warm-up, too, although it was found.
	leftIn bool
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
	return remembering(random, level, 0, n)
}

// remembering is draw with a correlation of each round with the one before.
func remembering(random *rand.Rand, level, correlation float64, n int) []stats.Observation {
	all, x := make([]stats.Observation, n), 0.
	for i := range all {
		if z := random.NormFloat64(); i == 0 {
			x = z
		} else {
			x = correlation*x + math.Sqrt(1-correlation*correlation)*z
		}
		all[i] = stats.Exact(int64(math.Round(center * math.Exp(level+sdRound*x))))
	}
	return all
}

// look judges rounds of a boot at 6 and, if they do not decide, at 20.
func look(r Reference, rounds []stats.Observation, tolerance float64) (v1alpha1.VerdictOutcome, int) {
	outcome, _, used := judged(r, rounds, tolerance)
	return outcome, used
}

// judged is look with the interval.
func judged(r Reference, rounds []stats.Observation, tolerance float64) (outcome v1alpha1.VerdictOutcome, b stats.Bounds, used int) {
	reference, between := r.Of(series)
	of := stats.Tolerance(math.Round(tolerance * 1e5))
	half, toFail := between.Half(of, eachSide), between.HalfToFail(of, eachSide)
	for _, n := range []int{6 + r.LeaveOut, 20} {
		k := stats.MannWhitney(len(reference), n-r.LeaveOut, eachSide)
		series := [][]float64{stats.Values(rounds[r.LeaveOut:n]), stats.Values(reference)}
		if between.Sessions > 1 {
			series = series[:1]
		}
		_, factor := stats.Memory(n-r.LeaveOut, series...)
		ratios := stats.Ratios(reference, rounds[r.LeaveOut:n], k, k)
		b = ratios.Widen(factor, half)
		switch {
		case b.Upper <= 1+tolerance:
			return v1alpha1.VerdictPass, b, n
		case ratios.Widen(factor, toFail).Lower > 1+tolerance:
			return v1alpha1.VerdictFail, b, n
		}
	}
	return v1alpha1.VerdictInconclusive, b, 20
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
		found := false
		publish := func() {
			status.Spread, status.Changes = Spread(nodes), Fleet(nodes, Tolerances{series: stats.Tolerance(math.Round(p.tolerance * 1e5))})
			found = WarmUp(&status) != ""
			for i := range status.Spread {
				if p.leftIn {
					status.Spread[i].WarmUp = ""
				}
			}
		}
		measure := func(level float64) []stats.Observation {
			rounds := remembering(random, level, p.memory, 20)
			for j := range p.warmRounds {
				rounds[j] = stats.Exact(int64(float64(rounds[j].Value) * (1 + p.warm)))
			}
			return rounds
		}
		for u := range upgrades + 1 {
			t, now := &out[u], metav1.NewTime(time.Unix(int64(u)*1e6, 0))
			boot := fmt.Sprint(u)
			for i := range nodes {
				n := &nodes[i]
				n.Group = p.class(i)
				shift := p.shift(i, u)
				level := shift + p.sd(i)*random.NormFloat64()
				rounds := measure(level)
				m := measured(rounds)
				outcome := v1alpha1.VerdictPass
				if u > 0 {
					r := For(&v1alpha1.LatencyVerificationStatus{Reference: n.Reference, Recent: n.Recent}, &status, boot, "peer")
					var used int
					outcome, used = look(r, rounds, p.tolerance)
					at := v1alpha1.VerdictInconclusive
					if printed(u) {
						at, _ = look(r, measure(limit), p.tolerance)
					}
					t.all++
					t.rounds += used
					count := func(c *int, yes bool) {
						if yes {
							*c++
						}
					}
					pass, fail := outcome == v1alpha1.VerdictPass, outcome == v1alpha1.VerdictFail
					provisional := r.Provisional(m) != ""
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
					n.Reference = Extend(n.Reference, keeps(v1alpha1.ReferenceSession{Time: now, BootID: boot, Peer: "peer"}, m), &status)
				}
				n.Recent = Remember(n.Recent, v1alpha1.MeasuredSession{
					Time: now, BootID: boot, Peer: "peer", Identity: kernel(boot), Accepted: outcome == v1alpha1.VerdictPass, Levels: Levels(m),
				})
				if (i+1)%max(1, p.nodes/10) == 0 {
					publish()
				}
			}
			publish()
			if len(status.Spread) > 0 {
				t.sd = append(t.sd, status.Spread[0].Deviation.Value())
			}
			if found {
				t.warm++
			}
			if len(status.Changes) > 0 && status.Changes[0].Shifted {
				t.shifted++
			}
			if seen(status.Changes) {
				t.seen++
			}
		}
	}
	return out
}

func equal(sd float64) func(int) float64 { return func(int) float64 { return sd } }

func percent(n, of int) float64 { return 100 * float64(n) / float64(max(of, 1)) }

func medianOf(values []float64) float64 { return median(slices.Clone(values)) }

// printed reports whether the tables show an upgrade.
func printed(u int) bool { return u == 1 || u == 3 || u == 12 }

// at joins a figure of upgrades 1, 3 and 12.
func at(all []tally, digits int, figure func(tally) float64) string {
	var parts []string
	for _, u := range []int{1, 3, 12} {
		parts = append(parts, fmt.Sprintf("%.*f", digits, figure(all[u])))
	}
	return strings.Join(parts, " / ")
}

// TestFleets lets nothing change but the boot, over 12 upgrades.
func TestFleets(t *testing.T) {
	var table strings.Builder
	table.WriteString("| gate | tolerance | Pass | of these provisional | Pass of a boot at the tolerance | Fail of it | wrong Fail | rounds | SD between sessions found |\n|---|---|---|---|---|---|---|---|---|\n")
	const large, small = 2, 20
	for _, c := range []struct {
		name string
		p    plan
		// mostPromised is the largest percentage of boots at the tolerance that pass without being provisional, and mostWrong that of wrong
		// Fails; 100 where the method promises nothing.
		mostPromised, mostWrong float64
	}{
		{"200 nodes, boots 1 %", plan{nodes: 200, gates: large, tolerance: 0.05, sd: equal(0.01)}, 5, 0.5},
		{"200 nodes, boots 2 %", plan{nodes: 200, gates: large, tolerance: 0.05, sd: equal(0.02)}, 5, 0.5},
		{"200 nodes, boots 2 %", plan{nodes: 200, gates: large, tolerance: 0.10, sd: equal(0.02)}, 5, 0.5},
		{"20 nodes, boots 1 %", plan{nodes: 20, gates: small, tolerance: 0.05, sd: equal(0.01)}, 5, 0.5},
		{"20 nodes, boots 2 %", plan{nodes: 20, gates: small, tolerance: 0.05, sd: equal(0.02)}, 5, 0.5},
		{"20 nodes, boots of a third 3 %, of others 1 %", plan{nodes: 20, gates: small, tolerance: 0.05, sd: func(i int) float64 { return 0.01 + 0.02*float64(i%3/2) }}, 5, 100},
		{"8 nodes, boots 2 %", plan{nodes: 8, gates: 50, tolerance: 0.05, sd: equal(0.02)}, 5, 100},
		{"20 nodes, boots 1 %, rounds correlate by 0.6", plan{nodes: 20, gates: small, tolerance: 0.05, sd: equal(0.01), memory: 0.6}, 5, 0.5},
		{"20 nodes, boots 1 %, rounds correlate by 0.8", plan{nodes: 20, gates: small, tolerance: 0.05, sd: equal(0.01), memory: 0.8}, 10, 0.5},
		{"3 nodes, boots 2 %", plan{nodes: 3, gates: 130, tolerance: 0.05, sd: equal(0.02)}, 0, 100},
	} {
		all := simulate(c.p, 12, 1)
		fmt.Fprintf(&table, "| %s | %.0f %% | %s | %s | %s | %s | %s | %s | %.1f %% |\n", c.name, 100*c.p.tolerance,
			at(all, 0, func(t tally) float64 { return percent(t.pass, t.all) }), at(all, 0, func(t tally) float64 { return percent(t.provisional, t.pass) }),
			at(all, 1, func(t tally) float64 { return percent(t.atPass, t.all) }), at(all, 1, func(t tally) float64 { return percent(t.atFail, t.all) }),
			at(all, 1, func(t tally) float64 { return percent(t.wrongFail, t.all) }), at(all, 1, func(t tally) float64 { return float64(t.rounds) / float64(t.all) }),
			100*medianOf(all[12].sd))
		for u, a := range all[1:] {
			promised, wrong := percent(a.promised, a.all), percent(a.wrongFail, a.all)
			// One gate of 200 nodes more or less: three standard errors of 400 boots at 0.5 % are 1 %.
			if promised > c.mostPromised || wrong > c.mostWrong+1 {
				t.Errorf("%s at upgrade %d: %.1f %% of boots at the tolerance pass, and %.1f %% fail wrongly", c.name, u+1, promised, wrong)
			}
		}
	}
	golden.Check(t, "fleets.md", table.String())
}

// TestChanges lets a change make nodes slower at upgrade 6, for good.
func TestChanges(t *testing.T) {
	from := func(upgrade int, size float64, hit func(node int) bool) func(int, int) float64 {
		return func(node, u int) float64 {
			if u < upgrade || !hit(node) {
				return 0
			}
			return math.Log(1 + size)
		}
	}
	all := func(int) bool { return true }
	two := func(node int) string { return fmt.Sprint(node % 2) }
	var table strings.Builder
	table.WriteString("| 20 nodes | tolerance | slower nodes: Pass / Fail at 6 | Pass at 12 | others: Pass at 6 | gates that show a change at 6 | beyond half of the tolerance |\n|---|---|---|---|---|---|---|\n")
	for _, c := range []struct {
		name string
		p    plan
		// most and shown are the largest percentage of slower nodes that pass, and the smallest of gates that show the change.
		most, shown float64
	}{
		{"nothing changes", plan{tolerance: 0.10, sd: equal(0.01)}, 100, 0},
		{"one node +20 %", plan{tolerance: 0.10, sd: equal(0.01), shift: from(6, 0.20, func(i int) bool { return i == 0 })}, 0, 0},
		{"all nodes +5 %", plan{tolerance: 0.10, sd: equal(0.01), shift: from(6, 0.05, all)}, 100, 97},
		{"all nodes +10 %", plan{tolerance: 0.05, sd: equal(0.01), shift: from(6, 0.10, all)}, 1.5, 100},
		{"all nodes +20 %", plan{tolerance: 0.10, sd: equal(0.01), shift: from(6, 0.20, all)}, 0, 100},
		{"one of two groups +10 %", plan{tolerance: 0.05, sd: equal(0.01), class: two, shift: from(6, 0.10, func(i int) bool { return i%2 == 0 })}, 3, 90},
	} {
		c.p.nodes, c.p.gates = 20, 30
		u := simulate(c.p, 12, 2)
		six := u[6]
		fmt.Fprintf(&table, "| %s | %.0f %% | %.0f / %.0f | %.0f | %.0f | %.0f | %.0f |\n", c.name, 100*c.p.tolerance, percent(six.hitPass, six.hit), percent(six.hitFail, six.hit),
			percent(u[12].hitPass, u[12].hit), percent(six.pass-six.hitPass, six.all-six.hit), percent(six.seen, c.p.gates), percent(six.shifted, c.p.gates))
		if got := percent(six.hitPass, six.hit); got > c.most {
			t.Errorf("%s: %.1f %% of the slower nodes pass", c.name, got)
		}
		if got := percent(six.seen, c.p.gates); got < c.shown {
			t.Errorf("%s: %.0f %% of the gates show it", c.name, got)
		}
		if u[5].shifted > 0 || c.shown == 0 && six.shifted > 0 {
			t.Errorf("%s: %d and %d gates are said to have shifted", c.name, u[5].shifted, six.shifted)
		}
	}
	golden.Check(t, "changes.md", table.String())
}

// TestCreep makes every node 1 % slower with each upgrade.
func TestCreep(t *testing.T) {
	p := plan{nodes: 20, gates: 10, tolerance: 0.10, sd: equal(0.01), shift: func(_, u int) float64 { return 0.01 * float64(u) }}
	var held []float64
	for _, u := range simulate(p, 13, 3)[1:] {
		held = append(held, percent(u.all-u.pass, u.all))
	}
	half := slices.IndexFunc(held, func(h float64) bool { return h > 50 }) + 1
	if half < 8 || half > 11 || held[12] < 99 {
		t.Errorf("half of the nodes are held back at upgrade %d, and %.0f %% at 13: %.0f", half, held[12], held)
	}
}

// TestWarmUpIsFound makes the first 6 rounds of each session 2 % slower.
func TestWarmUpIsFound(t *testing.T) {
	for _, c := range []struct {
		nodes       int
		warm        float64
		least, most float64
	}{{20, 0.02, 97, 100}, {8, 0.02, 70, 100}, {20, 0, 0, 4}, {7, 0.02, 0, 0}} {
		const gates = 150
		u := simulate(plan{nodes: c.nodes, gates: gates, tolerance: 0.05, sd: equal(0.01), warm: c.warm, warmRounds: 6}, 0, 4)
		if got := percent(u[0].warm, gates); got < c.least || got > c.most {
			t.Errorf("%d nodes with %.0f %%: %.0f %% of the gates find it", c.nodes, 100*c.warm, got)
		}
	}
}

// TestWarmUpIsLeftOut compares what a warm-up does to the errors if it is compared, and if it is left out.
func TestWarmUpIsLeftOut(t *testing.T) {
	var table strings.Builder
	table.WriteString("| warm-up | nodes | it is | Pass | of these provisional | Pass of a boot at the tolerance, not provisional | wrong Fail | rounds |\n|---|---|---|---|---|---|---|---|\n")
	for _, c := range []struct {
		name        string
		warm        float64
		rounds      int
		nodes       int
		mostLeftOut float64
	}{
		{"none", 0, 0, 20, 5}, {"3 rounds +2 %", 0.02, 3, 20, 5}, {"6 rounds +2 %", 0.02, 6, 20, 5}, {"6 rounds +5 %", 0.05, 6, 20, 5},
		{"6 rounds +2 %", 0.02, 6, 8, 5}, {"6 rounds +5 %", 0.05, 6, 8, 5},
	} {
		for _, leftIn := range []bool{true, false} {
			all := simulate(plan{nodes: c.nodes, gates: 400 / c.nodes, tolerance: 0.05, sd: equal(0.01), warm: c.warm, warmRounds: c.rounds, leftIn: leftIn}, 12, 6)
			fmt.Fprintf(&table, "| %s | %d | %s | %s | %s | %s | %s | %s |\n", c.name, c.nodes, map[bool]string{true: "compared", false: "left out"}[leftIn],
				at(all, 0, func(t tally) float64 { return percent(t.pass, t.all) }), at(all, 0, func(t tally) float64 { return percent(t.provisional, t.pass) }),
				at(all, 1, func(t tally) float64 { return percent(t.promised, t.all) }), at(all, 1, func(t tally) float64 { return percent(t.wrongFail, t.all) }),
				at(all, 1, func(t tally) float64 { return float64(t.rounds) / float64(t.all) }))
			for u, a := range all[1:] {
				if got := percent(a.promised, a.all); !leftIn && got > c.mostLeftOut {
					t.Errorf("%s of %d nodes at upgrade %d: %.1f %% of boots at the tolerance pass", c.name, c.nodes, u+1, got)
				}
			}
		}
	}
	golden.Check(t, "warm-up.md", table.String())
}

// TestSlowFirstBoot draws first sessions of a node whose group has 20 others, whose boots differ by 1 %.
func TestSlowFirstBoot(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 1))
	const draws = 2000
	found := func(others int, size float64) float64 {
		n := 0
		for range draws {
			group := make([]int64, others)
			for i := range group {
				group[i] = Level(draw(random, 0.01*random.NormFloat64(), 12))
			}
			if ratio, _ := SlowerThanGroup(Level(draw(random, math.Log(1+size)+0.01*random.NormFloat64(), 12)), group, 10_000); ratio > 0 {
				n++
			}
		}
		return percent(n, draws)
	}
	for _, c := range []struct {
		others            int
		size, least, most float64
	}{{20, 0, 0, 0}, {20, 0.1, 0, 10}, {20, 0.2, 99, 100}, {8, 0.2, 80, 100}, {7, 0.7, 0, 0}} {
		if got := found(c.others, c.size); got < c.least || got > c.most {
			t.Errorf("%.0f %% slower than %d others: found in %.1f %%", 100*c.size, c.others, got)
		}
	}
}

// seen reports whether the reported change made nodes slower at all.
func seen(changes []v1alpha1.FleetChange) bool {
	told := Decisive(changes)
	if told == nil {
		return false
	}
	return told.Lower.Value() > 1
}
