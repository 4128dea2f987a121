// Package judge judges stored results by criteria: what internal/rounds collected becomes the input
// of internal/verdict, and evidence the reasons that prevent a verdict. It is pure: controllers and
// command line get one verdict from the same results.
//
// A verdict needs a proof of placement, device and acceleration, rounds under equal conditions, and
// a baseline under the same ones. A simulated NIC is only reported with it.
package judge

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/sessions"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/tool"
	tools "github.com/tailgate-dev/tailgate/internal/tool/all"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

type Results struct {
	*rounds.Collection
	Trouble   *verdict.Blocker    // why runs are missing, or nothing can be judged; or nil
	OfFiles   bool                // from files: nothing proves the rounds, and the verdict says so
	Together  int                 // benchmarks that are judged together, as in verdict.Input
	Reference *sessions.Reference // of a LatencyGate's baseline, the node's sessions; else nil
}

// Evaluate judges results; baseline has another benchmark's, if named. Errors are about rules.
func Evaluate(criteria v1alpha1.Criteria, candidate Results, baseline *Results) (verdict.Judgement, error) {
	metrics := []v1alpha1.Metric{v1alpha1.MetricLost}
	for _, rule := range criteria.Rules {
		metrics = append(metrics, rule.Metric)
	}
	in := verdict.Input{Criteria: criteria, Candidate: Cells(candidate, metrics...), Together: candidate.Together}
	in.Rounds, in.MaxRounds = int(candidate.Spec.Rounds), int(plan.MaxRounds(candidate.Spec))
	hint := meantHint
	if candidate.OfFiles {
		in.Note, hint = "nothing was proved of these files, which do not have lost messages", ""
	}
	if candidate.Simulated || baseline != nil && baseline.Trouble == nil && baseline.Simulated {
		in.Note = "on a simulated NIC"
	}
	switch {
	case baseline != nil && baseline.Trouble != nil:
		for i := range in.Candidate {
			in.Candidate[i].Incomparable = []verdict.Blocker{*baseline.Trouble}
		}
	case baseline != nil:
		in.Baseline = Cells(*baseline, metrics...)
		for i := range in.Baseline {
			b := &in.Baseline[i]
			for j := range b.Blockers {
				b.Blockers[j].Message = "the baseline: " + b.Blockers[j].Message
			}
			if baseline.Reference != nil {
				b.References = map[v1alpha1.Metric]verdict.Reference{}
				for _, m := range metrics {
					rounds, between := baseline.Reference.Of(v1alpha1.ComparedValue{Variant: b.Variant, Cell: b.Name, Metric: m})
					b.References[m] = verdict.Reference{Rounds: rounds, Between: between, LeaveOut: baseline.Reference.LeaveOut}
				}
			}
		}
		for i := range in.Candidate {
			c := &in.Candidate[i]
			of, own := baseline.Variant(c.Variant), candidate.Variant(c.Variant)
			c.Incomparable = incomparable(criteria, *c, of, own, hint, func(d result.Difference) bool { return d.Fingerprint })
		}
	case criteria.Against(v1alpha1.BaselineVariant):
		for i := range in.Candidate {
			c := &in.Candidate[i]
			of, own := candidate.Variant(criteria.BaselineOf(v1alpha1.BaselineVariant)), candidate.Variant(c.Variant)
			c.Incomparable = incomparable(criteria, *c, of, own, hint, func(d result.Difference) bool {
				return d.BetweenRounds() && !intended(d, of, own)
			})
		}
	}
	return verdict.Judge(in)
}

// Session returns the first rounds of a benchmark's compared values from which one may conclude.
func Session(candidate Results) (all []v1alpha1.ValueRounds) {
	values := candidate.Spec.Session
	var metrics []v1alpha1.Metric
	for _, v := range values {
		metrics = append(metrics, v.Metric)
	}
	for _, c := range Cells(candidate, metrics...) {
		for _, v := range values {
			if v.Variant != c.Variant || v.Cell != c.Name || len(c.Blockers) > 0 {
				continue
			}
			if rounds, _ := c.Observations(v.Metric); len(rounds) > 0 {
				all = append(all, sessions.Rounds(v, rounds, sessions.FirstRounds))
			}
		}
	}
	return all
}

const (
	// redrawn boots are drawn, of which the share unchangedPass must pass in all compared values.
	redrawn, unchangedPass = 300, 0.95
	center                 = 1e9 // a level of which a millionth is a whole number
)

// Recommend returns the smallest tolerances, as shares, with which 95 % of unchanged boots pass in
// all values together, against a number of accepted boots. It draws boots that differ as the gate's
// do, of independent values, and searches the common factor to the tolerances of normal theory.
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

type values = map[v1alpha1.Metric]stats.Observation

// Cells returns every cell of the spec, also captured ones, with a round for each run, which has
// only the given metrics, if any: all of the largest benchmark take 100 MiB.
func Cells(r Results, metrics ...v1alpha1.Metric) []verdict.Cell {
	var all []verdict.Cell
	for _, v := range r.Variants {
		add := func(cell verdict.Cell, countsLost bool) {
			cell.Blockers = blockers(r, v)
			for i := range cell.Rounds {
				if r.OfFiles || !countsLost {
					delete(cell.Rounds[i].Values, v1alpha1.MetricLost)
				}
			}
			if len(metrics) > 0 {
				narrow(cell.Rounds, metrics)
			}
			all = append(all, cell)
		}
		for _, c := range v.Cells {
			cell := measured(v.Name, c, r.Spec.LatencyType)
			add(cell, tools.Limits(r.Spec.Tool).CountsLost(c.Traffic))
			if v.Capture == v1alpha1.CaptureServer && !c.Stream {
				add(captured(cell, c), true)
			}
		}
	}
	return all
}

func narrow(all []verdict.Round, metrics []v1alpha1.Metric) {
	for i := range all {
		left := make(values, len(metrics))
		for _, m := range metrics {
			if o, ok := all[i].Values[m]; ok {
				left[m] = o
			}
		}
		all[i].Values = left
	}
}

func blockers(r Results, v *rounds.Variant) []verdict.Blocker {
	var all []verdict.Blocker
	if r.Trouble != nil {
		all = append(all, *r.Trouble)
	}
	for _, w := range v.Warnings {
		if w.Blocks && !(r.OfFiles && w.Reason == v1alpha1.WarningImported) {
			all = append(all, verdict.Blocker{Reason: w.Reason, Message: w.Message})
		}
	}
	if v.Unequal != "" {
		all = append(all, verdict.Blocker{Reason: v1alpha1.WarningEvidenceDiffers, Message: v.Unequal})
	}
	return all
}

// measured returns a cell as clients measured it; a run without it has no values.
func measured(variant string, c *rounds.Cell, latencyType v1alpha1.LatencyType) verdict.Cell {
	cell := verdict.Cell{
		Variant: variant, Name: c.Name, Traffic: c.Traffic, HalfRTT: latencyType != v1alpha1.LatencyRTT,
	}
	for _, round := range c.Measured.Each {
		cell.Rounds = append(cell.Rounds, roundOf(round))
	}
	return cell
}

// roundOf returns a run's results: round trips, or a capture's; out of range is lost.
func roundOf(r rounds.Round) verdict.Round {
	switch {
	case !r.Found:
		return verdict.Round{}
	case r.Own != nil:
		return ownRound(*r.Own, r.Lost)
	case r.Samples != nil:
		return histogramRound(*r.Samples, r.Lost)
	}
	round := verdict.Round{Values: values{v1alpha1.MetricLost: stats.Exact(r.Lost)}}
	if r.Bandwidth != nil {
		round.Values[v1alpha1.MetricThroughput] = stats.Exact(int64(math.Round(r.Bandwidth.BitsPerSecond)))
	}
	return round
}

func histogramRound(s rounds.Samples, lost int64) verdict.Round {
	lost += s.OverRange
	round := verdict.Round{Samples: s.Count + lost, Values: values{v1alpha1.MetricLost: stats.Exact(lost)}}
	if round.Samples > 0 {
		for i, p := range rounds.Percentiles() {
			if m := v1alpha1.Metric(p); m.Kind().Percentile { // The highest is no metric.
				round.Values[m] = s.Percentiles[i].Observed
			}
		}
	}
	if s.Count > 0 {
		round.Values[v1alpha1.MetricMin] = stats.Exact(s.Min)
		round.Values[v1alpha1.MetricMean] = stats.Exact(s.Mean)
		round.Values[v1alpha1.MetricStdDev] = stats.Exact(s.StdDev)
	}
	if s.Count > 0 && s.Unrecorded > 0 {
		// Any latency is possible, also one that changes all of these.
		round.Values[v1alpha1.MetricMin] = stats.Within(0, s.Min, s.Min)
		round.Values[v1alpha1.MetricMean] = stats.Within(0, s.Mean, stats.Infinite)
		round.Values[v1alpha1.MetricStdDev] = stats.Within(0, s.StdDev, stats.Infinite)
	}
	return round
}

// ownRound is of a tool without samples. What it did not report is absent; a loss also removes all
// percentiles, which leave it out and cannot be corrected.
func ownRound(own tool.Own, lost int64) verdict.Round {
	round := verdict.Round{Samples: own.Count + lost, Values: values{v1alpha1.MetricLost: stats.Exact(lost)}}
	for metric, ns := range map[v1alpha1.Metric]int64{v1alpha1.MetricMin: own.MinNs, v1alpha1.MetricStdDev: own.StdDevNs} {
		if ns > 0 {
			// The tool subtracts two times that were cut to this step.
			round.Values[metric] = stats.Rounded(ns, 2*own.StepNs)
		}
	}
	for _, p := range own.Percentiles() {
		if lost == 0 {
			round.Values[v1alpha1.Metric(p.Name)] = stats.Within(p.LowNs, p.Ns, p.HighNs)
		}
	}
	if own.MeanNs > 0 {
		round.Values[v1alpha1.MetricMean] = stats.Exact(int64(math.Round(own.MeanNs)))
	}
	return round
}

// captured returns how long the server had messages; an incomplete capture has no values.
func captured(cell verdict.Cell, c *rounds.Cell) verdict.Cell {
	cell.Name, cell.HalfRTT, cell.Rounds = c.Name+result.CapturedSuffix, false, nil
	for _, round := range c.Captured.Each {
		cell.Rounds = append(cell.Rounds, roundOf(round))
	}
	return cell
}
