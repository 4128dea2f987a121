package judge

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/sessions"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

const (
	// redrawn is how many boots are drawn, each with all compared values, and unchangedPass the share of them that must pass.
	redrawn, unchangedPass = 300, 0.95
	// center is a level of which a millionth is a whole number.
	center = 1e9
)

// Recommend returns the smallest tolerances, as shares, with which 95 % of unchanged boots of a node pass in all compared values
// together, against a number of accepted boots. It draws boots that differ as the gate's do, judges them as a gate does, and searches the
// factor by which all tolerances of normal theory must be larger. The values of a boot are drawn independently of each other.
func Recommend(values []sessions.Calibration, boots int) []float64 {
	tolerances := func(factor float64) []float64 {
		all := make([]float64, len(values))
		for i, c := range values {
			all[i] = min(max(math.Exp(factor*math.Log1p(c.Tolerance(boots)))-1, 1e-5), 99)
		}
		return all
	}
	low, high := 0.5, 4.0
	for range 7 {
		factor := math.Sqrt(low * high)
		// The same boots are drawn for each factor.
		if passes(rand.New(rand.NewPCG(1, 1)), values, boots, tolerances(factor)) >= unchangedPass {
			high = factor
		} else {
			low = factor
		}
	}
	return tolerances(high)
}

// passes returns the share of redrawn boots that pass.
func passes(random *rand.Rand, values []sessions.Calibration, boots int, tolerances []float64) float64 {
	passed, criteria := 0, v1alpha1.Criteria{}
	for i, t := range tolerances {
		criteria.Rules = append(criteria.Rules, v1alpha1.Rule{Metric: v1alpha1.MetricMean, MaxIncrease: v1alpha1.Limit{Text: fmt.Sprintf("%.3f%%", 100*t)}, Cells: []string{fmt.Sprint(i)}})
	}
	for range redrawn {
		in := verdict.Input{Criteria: criteria, Rounds: sessions.LaterRounds, MaxRounds: sessions.LastLook}
		var candidates [][]stats.Observation
		for i, c := range values {
			candidate, rounds, between := c.Redraw(random, center, boots)
			name := fmt.Sprint(i)
			base := redrawnCell(name, candidate)
			base.References = map[v1alpha1.Metric]verdict.Reference{v1alpha1.MetricMean: {Rounds: rounds, Between: between}}
			in.Baseline, candidates = append(in.Baseline, base), append(candidates, candidate)
		}
		for _, n := range []int{in.Rounds, in.MaxRounds} {
			in.Candidate = nil
			for i, candidate := range candidates {
				in.Candidate = append(in.Candidate, redrawnCell(fmt.Sprint(i), candidate[:n]))
			}
			j, err := verdict.Judge(in)
			if err == nil && j.Outcome == v1alpha1.VerdictPass {
				passed++
			}
			if err != nil || !j.MoreRoundsMayDecide {
				break
			}
		}
	}
	return float64(passed) / redrawn
}

func redrawnCell(name string, rounds []stats.Observation) verdict.Cell {
	c := verdict.Cell{Name: name, Traffic: v1alpha1.Traffic{Protocol: v1alpha1.ProtocolUDP, MessageSize: 64}}
	for _, o := range rounds {
		c.Rounds = append(c.Rounds, verdict.Round{Samples: math.MaxInt64, Values: map[v1alpha1.Metric]stats.Observation{v1alpha1.MetricMean: o}})
	}
	return c
}
