package sessions

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/test/golden"
)

const (
	// sdPairs is how much a pair of nodes differs from another one.
	sdPairs  = 0.03
	sdOfBoot = 0.01
)

// pair is a simulated pair of a node and a peer: what it differs from others, and its sessions so far.
type pair struct {
	offset    float64
	reference []v1alpha1.ReferenceSession
}

// couple returns a pair with a number of accepted boots.
func couple(random *rand.Rand, name string, boots int) pair {
	p := pair{offset: sdPairs * random.NormFloat64()}
	for s := range boots {
		m := measured(draw(random, p.offset+sdOfBoot*random.NormFloat64(), 12))
		p.reference = Extend(p.reference, keeps(v1alpha1.ReferenceSession{BootID: fmt.Sprint(s), Peer: name}, m), &v1alpha1.LatencyGateStatus{})
	}
	return p
}

// TestPeers compares what may follow a result that is no Pass. The first peer has five accepted boots with the node.
func TestPeers(t *testing.T) {
	gate := &v1alpha1.LatencyGateStatus{Spread: []v1alpha1.SessionSpread{{ComparedValue: series, Nodes: 20, Differences: 200, Deviation: "0.0136"}}}
	const tolerance, draws = 0.05, 2000
	type outcome = v1alpha1.VerdictOutcome
	pass, fail, inconclusive := v1alpha1.VerdictPass, v1alpha1.VerdictFail, v1alpha1.VerdictInconclusive
	type design struct {
		name string
		// second is the number of accepted boots with a second peer; -1 if there is none.
		second int
		// undecided measures also after an Inconclusive, and control measures a third node with the same peer.
		undecided, control bool
	}
	designs := []design{
		{"no other peer", -1, false, false}, {"second peer without a reference", 0, false, false}, {"with one of 1 boot", 1, false, false}, {"with one of 5 boots", 5, false, false},
		{"with one of 5 boots, also after Inconclusive", 5, true, false}, {"control pair", -1, false, true}, {"control pair, also after Inconclusive", -1, true, true},
	}
	var table strings.Builder
	table.WriteString("| Pass / Fail, measurements |")
	for _, d := range designs {
		table.WriteString(" " + d.name + " |")
	}
	table.WriteString("\n|---" + strings.Repeat("|---", len(designs)) + "|\n")
	for _, c := range []struct {
		name       string
		node, peer float64
		// mostFail and mostPass are the largest percentages of the designs with a second opinion.
		mostFail, mostPass float64
	}{
		{"nothing changed", 0, 0, 0.5, 100},
		{"node +10 % of the round trip", 0.10, 0, 100, 5},
		{"first peer +10 %, node unchanged", 0, 0.10, 5, 100},
		{"both +10 %", 0.10, 0.10, 100, 5},
		{"node +10 %, first peer -10 %", 0.10, -0.10, 100, 100},
	} {
		table.WriteString("| " + c.name + " |")
		for _, d := range designs {
			random := rand.New(rand.NewPCG(7, 1))
			passes, fails, measured := 0, 0, 0
			node, peer := math.Log(1+c.node), math.Log(1+c.peer)
			for range draws {
				first, second, third := couple(random, "first", 5), couple(random, "second", max(d.second, 0)), couple(random, "first", 5)
				boot := node + sdOfBoot*random.NormFloat64()
				all := slices.Concat(first.reference, second.reference)
				judge := func(reference []v1alpha1.ReferenceSession, with string, level float64) (outcome, stats.Bounds) {
					got, b, _ := judged(For(&v1alpha1.LatencyVerificationStatus{Reference: reference}, gate, "now", with), draw(random, level, 20), tolerance)
					return got, b
				}
				got, b := judge(all, "first", boot+peer+first.offset)
				measured++
				if again := got == fail || d.undecided && got == inconclusive; again && d.control {
					_, control := judge(third.reference, "first", peer+third.offset+sdOfBoot*random.NormFloat64())
					measured++
					at := math.Log(b.Estimate / control.Estimate)
					upper := at + math.Hypot(math.Log(b.Upper/b.Estimate), math.Log(control.Estimate/control.Lower))
					lower := at - math.Hypot(math.Log(b.Estimate/b.Lower), math.Log(control.Upper/control.Estimate))
					got = inconclusive
					if upper <= math.Log(1+tolerance) {
						got = pass
					} else if lower > math.Log(1+tolerance) {
						got = fail
					}
				} else if again && d.second >= 0 {
					was := got
					got, _ = judge(all, "second", boot+second.offset)
					measured++
					if got == fail && was != fail {
						got = inconclusive
					}
				}
				switch got {
				case pass:
					passes++
				case fail:
					fails++
				}
			}
			fmt.Fprintf(&table, " %.0f / %.0f, %.1f |", percent(passes, draws), percent(fails, draws), float64(measured)/draws)
			if d.second < 0 && !d.control {
				continue
			}
			// An untried pair differs by itself: a Pass with it is provisional.
			untried := 0.
			if d.second == 0 {
				untried = 5
			}
			if p, f := percent(passes, draws), percent(fails, draws); p > c.mostPass+untried || f > c.mostFail+untried {
				t.Errorf("%s, %s: %.1f %% pass and %.1f %% fail", c.name, d.name, p, f)
			}
		}
		table.WriteString("\n")
	}
	golden.Check(t, "peers.md", table.String())
}
