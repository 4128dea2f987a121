package sessions

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// Calibration has standard deviations of natural logarithms of unchanged values, 0 if unknown.
type Calibration struct {
	Of    v1alpha1.ComparedValue
	Group string // of the nodes; empty if all nodes are of one group
	// Rounds is the deviation between a session's rounds, Sessions that between a node's session
	// levels, from a number of Differences of a number of Nodes.
	Rounds, Sessions   float64
	Differences, Nodes int
	Peers              float64 // between levels of a node with two peers, from a number of Pairs
	Pairs              int
}

func Calibrate(nodes []Node) []Calibration {
	var all []Calibration
	for _, s := range Spread(nodes) {
		c := Calibration{Of: s.ComparedValue, Group: s.Group, Sessions: s.Deviation.Value(), Differences: int(s.Differences), Nodes: int(s.Nodes)}
		squares, free, peers := 0.0, 0.0, []float64(nil)
		for _, n := range nodes {
			if s.Group != "" && n.Group != s.Group {
				continue
			}
			levels := map[string]int64{}
			for _, r := range n.Reference {
				var logs []float64
				for _, o := range roundsOf(r, s.ComparedValue) {
					if o.Value > 0 && o.Value != stats.Infinite {
						logs = append(logs, math.Log(float64(o.Value)))
					}
				}
				if len(logs) < LaterRounds {
					continue
				}
				mid := median(logs)
				for _, l := range logs {
					squares += (l - mid) * (l - mid)
				}
				free += float64(len(logs) - 1)
				if levels[r.Peer] == 0 {
					levels[r.Peer] = Level(roundsOf(r, s.ComparedValue))
				}
			}
			if names := Peers(n.Reference); len(names) == maxPeers && levels[names[0]] > 0 && levels[names[1]] > 0 {
				peers = append(peers, math.Abs(math.Log(float64(levels[names[0]])/float64(levels[names[1]])))/math.Sqrt2)
			}
		}
		if free > 0 {
			c.Rounds = math.Sqrt(squares / free)
		}
		if c.Pairs = len(peers); c.Pairs >= fewestDifferences {
			c.Peers = robust * median(slices.Clone(peers))
		}
		all = append(all, c)
	}
	return all
}

const (
	ofMedian = 0.215 // the variance of the median of 6 rounds, in parts of that of a round
	LastLook = 20
	// hodgesLehmann is the estimate's standard error, in parts of a mean's, ofLevel the variance of
	// a level of many rounds, in parts of a mean's; by normal theory.
	hodgesLehmann, ofLevel = 1.02, 1.29
)

// Boots returns the standard deviation between boots, without the noise of the rounds in a level.
func (c Calibration) Boots() float64 {
	return math.Sqrt(max(c.Sessions*c.Sessions-ofMedian*c.Rounds*c.Rounds, 0))
}

// Tolerance returns the smallest share with which 95 % of unchanged boots would pass against some
// accepted ones, by normal theory with a known spread: where judge.Recommend begins to search.
func (c Calibration) Tolerance(boots int) float64 {
	first, later := float64(FirstRounds), float64(LaterRounds*(boots-1))
	m := first + later
	share := (first*first + later*LaterRounds) / (m * m)
	s, v := c.Sessions*c.Sessions, c.Rounds*c.Rounds
	level := 1.645 * math.Sqrt(c.Boots()*c.Boots()+s*share+ofLevel*v/LastLook)
	half := 1.96 * math.Sqrt(s*share+hodgesLehmann*hodgesLehmann*v*(1.0/LastLook+1/m))
	return math.Exp(level+half) - 1
}

// Redraw draws an unchanged boot around a level: its last look, a reference of a number of accepted
// boots, and what is known of how boots differ.
func (c Calibration) Redraw(random *rand.Rand, center float64, boots int) (candidate, reference []stats.Observation, b stats.Between) {
	draw := func(n int) (rounds []stats.Observation) {
		boot := c.Boots() * random.NormFloat64()
		for range n {
			rounds = append(rounds, stats.Exact(int64(center*math.Exp(boot+c.Rounds*random.NormFloat64()))))
		}
		return rounds
	}
	b = stats.Between{SD: c.Sessions, Differences: c.Differences, Sessions: boots}
	before, squares := 0.0, 0
	for i := range boots {
		n := LaterRounds
		if i == 0 {
			n = FirstRounds
		}
		rounds := draw(n)
		level := math.Log(float64(Level(rounds)))
		if i > 0 {
			b.Own = append(b.Own, (level-before)/math.Sqrt2)
		}
		before, reference, squares = level, append(reference, rounds...), squares+n*n
	}
	b.Share = float64(squares) / float64(len(reference)*len(reference))
	return draw(LastLook), reference, b
}

// Enough returns the fewest rounds, 6 to 20, that widen an interval no more than the boots do.
func (c Calibration) Enough() int {
	share := 36. / 144 // About that of four to five boots.
	for n := LaterRounds; n < LastLook; n++ {
		if c.Rounds*c.Rounds*(1/float64(n)+1./36) <= c.Sessions*c.Sessions*share {
			return n
		}
	}
	return LastLook
}
