package sessions

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// TestTolerance compares the recommended tolerances with those of the method, and TestCalibrate what is found in simulated sessions with what
// they were drawn from.
func TestTolerance(t *testing.T) {
	for _, c := range []struct{ boots, rounds, one, five float64 }{
		{0.005, 0.02, 4.7, 3.0}, {0.01, 0.02, 6.1, 3.9}, {0.02, 0.02, 10.0, 6.3}, {0.02, 0.05, 14.3, 8.9}, {0.03, 0.02, 14.5, 9.1}, {0.05, 0.02, 24.4, 15.0},
	} {
		got := Calibration{Rounds: c.rounds, Sessions: math.Sqrt(c.boots*c.boots + ofMedian*c.rounds*c.rounds)}
		if one, five := 100*got.Tolerance(1), 100*got.Tolerance(5); math.Abs(one-c.one) > 0.1 || math.Abs(five-c.five) > 0.1 || math.Abs(got.Boots()-c.boots) > 1e-9 {
			t.Errorf("boots %g, rounds %g: %.1f and %.1f %%, want %.1f and %.1f %%", c.boots, c.rounds, one, five, c.one, c.five)
		}
	}
	for want, c := range map[int]Calibration{6: {Rounds: 0.01, Sessions: 0.02}, 20: {Rounds: 0.05, Sessions: 0.01}, 12: {Rounds: 0.03, Sessions: 0.02}} {
		if got := c.Enough(); got != want {
			t.Errorf("%+v: %d rounds", c, got)
		}
	}
}

func TestCalibrate(t *testing.T) {
	const boots, peers = 0.03, 0.10
	random := rand.New(rand.NewPCG(6, 1))
	nodes := make([]Node, 60)
	for i := range nodes {
		n := &nodes[i]
		for _, peer := range []string{"b", "c"} {
			pair := peers * random.NormFloat64()
			for u := range 5 {
				m := measured(draw(random, pair+boots*random.NormFloat64(), 20))
				id := fmt.Sprint(u)
				n.Reference = Extend(n.Reference, keeps(v1alpha1.ReferenceSession{BootID: id, Peer: peer}, m), &v1alpha1.LatencyGateStatus{})
				n.Recent = Remember(n.Recent, v1alpha1.MeasuredSession{Time: metav1.NewTime(time.Unix(int64(u)*1e6, 0)), BootID: id, Peer: peer, Levels: Levels(m)})
			}
		}
	}
	c := Calibrate(nodes)[0]
	near := func(got, want float64) bool { return math.Abs(got/want-1) < 0.15 }
	if !near(c.Rounds, sdRound) || !near(c.Boots(), boots) || !near(c.Peers, math.Hypot(peers, c.Sessions)) || c.Nodes != 60 || c.Pairs != 60 || c.Differences != 200 {
		t.Errorf("%+v, boots %.4f", c, c.Boots())
	}
	if got := Calibrate(nil); got != nil {
		t.Errorf("%+v of no node", got)
	}
}

// A node whose rounds with one peer are all lost has no level with it, and does not count among those that show how much peers differ.
func TestCalibrateWithoutALevel(t *testing.T) {
	var nodes []Node
	for range 10 {
		n := Node{}
		for _, peer := range []string{"b", "c"} {
			for u := range 3 {
				value := int64(1000 + 10*u)
				if peer == "c" {
					value = 0
				}
				m := measured(slices.Repeat([]stats.Observation{stats.Exact(value)}, FirstRounds))
				id := fmt.Sprint(u)
				n.Reference = Extend(n.Reference, keeps(v1alpha1.ReferenceSession{BootID: id, Peer: peer}, m), &v1alpha1.LatencyGateStatus{})
				n.Recent = Remember(n.Recent, v1alpha1.MeasuredSession{Time: metav1.NewTime(time.Unix(int64(u)*1e6, 0)), BootID: id, Peer: peer, Levels: Levels(m)})
			}
		}
		nodes = append(nodes, n)
	}
	for _, c := range Calibrate(nodes) {
		if c.Pairs != 0 || c.Peers != 0 || math.IsNaN(c.Rounds) || math.IsInf(c.Sessions, 0) {
			t.Errorf("%+v", c)
		}
	}
	if len(Calibrate(nodes)) == 0 {
		t.Error("nothing is calibrated")
	}
}
