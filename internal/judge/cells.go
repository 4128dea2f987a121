package judge

import (
	"fmt"
	"math"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

// values are the metrics of a round.
type values = map[v1alpha1.GateMetric]stats.Observation

// Cells are the results by variant and cell, in the order of the spec, with a round for each run of the variant. Every
// cell of the spec is there, measured or not, and so is every captured one of a variant that captures.
func Cells(r Results) ([]verdict.Cell, error) {
	var all []verdict.Cell
	for _, v := range plan.Variants(r.Spec) {
		own := result.OfVariant(r.Runs, v.Name)
		blockers := blockers(r, v, own)
		for _, planned := range plan.Cells(r.Spec, v) {
			cell, err := measured(v.Name, planned, r.Spec.LatencyType, own)
			if err != nil {
				return nil, err
			}
			cell.Blockers = blockers
			all = append(all, cell)
			if !*v.Capture || planned.Stream {
				continue
			}
			if cell, err = captured(cell, planned.Name, own); err != nil {
				return nil, err
			}
			all = append(all, cell)
		}
	}
	// Each has blockers of its own, so that nobody changes those of another.
	for i := range all {
		all[i].Blockers = append([]verdict.Blocker(nil), all[i].Blockers...)
	}
	return all, nil
}

// blockers are why nothing can be concluded from a variant's runs.
func blockers(r Results, v v1alpha1.Variant, own []result.Stored) []verdict.Blocker {
	var all []verdict.Blocker
	if r.Trouble != nil {
		all = append(all, *r.Trouble)
	}
	seen := map[string]bool{}
	for _, run := range own {
		for _, w := range proof.Warnings(r.Spec, v, run) {
			if !seen[w.Reason] && proof.Blocks(r.Spec, w.Reason) {
				seen[w.Reason] = true
				all = append(all, verdict.Blocker{Reason: w.Reason, Message: w.Message})
			}
		}
	}
	for _, run := range own {
		if message := unequal(own[0], run, result.Difference.BetweenRounds); message != "" {
			return append(all, verdict.Blocker{Reason: v1alpha1.WarningEvidenceDiffers, Message: message})
		}
	}
	return all
}

// measured is a cell as the clients measured it. A run that does not have it, which agents do not let happen, gives a
// round without values: nothing is concluded without it.
func measured(
	variant string, planned tool.Cell, latencyType v1alpha1.LatencyType, own []result.Stored,
) (verdict.Cell, error) {
	cell := verdict.Cell{
		Variant: variant, Name: planned.Name, Protocol: planned.Protocol, MessageSize: planned.MessageSize,
		RatePerSecond: planned.RatePerSecond, Stream: planned.Stream, HalfRTT: latencyType != v1alpha1.LatencyRTT,
	}
	for _, run := range own {
		round := verdict.Round{}
		for _, c := range run.Client.Cells {
			if c.Name != planned.Name {
				continue
			}
			var err error
			if round, err = roundOf(c); err != nil {
				return cell, fmt.Errorf("%s, %s: %w", run.Client.Run, c.Name, err)
			}
		}
		cell.Rounds = append(cell.Rounds, round)
	}
	return cell, nil
}

// roundOf is what a run found in a cell. Latencies are of the full round trip.
func roundOf(c result.Cell) (verdict.Round, error) {
	switch {
	case c.Stream:
		round := verdict.Round{Values: values{v1alpha1.MetricLost: stats.Exact(c.Lost)}}
		if c.Bandwidth != nil {
			round.Values[v1alpha1.MetricThroughput] = stats.Exact(int64(math.Round(c.Bandwidth.BitsPerSecond)))
		}
		return round, nil
	case c.Own != nil:
		return ownRound(*c.Own, c.Lost), nil
	}
	return histogramRound(c.Histogram, c.Lost)
}

// histogramRound is a round of which the samples are known. Samples out of the histogram's range count as lost.
func histogramRound(h result.Histogram, lost int64) (verdict.Round, error) {
	d, err := result.Merge(h)
	if err != nil {
		return verdict.Round{}, err
	}
	lost += d.OverRange
	round := verdict.Round{Samples: d.Count + lost, Values: values{v1alpha1.MetricLost: stats.Exact(lost)}}
	if round.Samples > 0 {
		for metric, p := range percentiles {
			round.Values[metric] = p.Observe(d.Buckets, lost)
		}
	}
	if d.Count > 0 {
		round.Values[v1alpha1.MetricMin] = stats.Exact(d.Min)
		round.Values[v1alpha1.MetricMean] = stats.Exact(d.Mean())
		round.Values[v1alpha1.MetricStdDev] = stats.Exact(d.StdDev())
	}
	return round, nil
}

// percentiles are the metrics that are percentiles of samples.
var percentiles = map[v1alpha1.GateMetric]stats.Percentile{
	v1alpha1.MetricP50: stats.P50, v1alpha1.MetricP90: stats.P90, v1alpha1.MetricP99: stats.P99,
	v1alpha1.MetricP999: stats.P999, v1alpha1.MetricP9999: stats.P9999, v1alpha1.MetricP99999: stats.P99999,
}

// ownRound is a round of a tool that tells no samples. What it did not tell is not there, and when messages were lost
// none of its percentiles: they leave the lost ones out, and nobody can put them in.
func ownRound(own tool.Own, lost int64) verdict.Round {
	round := verdict.Round{Samples: own.Count + lost, Values: values{v1alpha1.MetricLost: stats.Exact(lost)}}
	told := map[v1alpha1.GateMetric]int64{v1alpha1.MetricMin: own.MinNs, v1alpha1.MetricStdDev: own.StdDevNs}
	if lost == 0 {
		told[v1alpha1.MetricP50], told[v1alpha1.MetricP90], told[v1alpha1.MetricP99] = own.P50Ns, own.P90Ns, own.P99Ns
	}
	for metric, ns := range told {
		if ns > 0 {
			round.Values[metric] = stats.Rounded(ns, own.StepNs)
		}
	}
	if own.MeanNs > 0 {
		round.Values[v1alpha1.MetricMean] = stats.Exact(int64(math.Round(own.MeanNs)))
	}
	return round
}

// captured is the cell as the servers' agents took it from packets: how long the server's end had each message. A
// capture that is not whole gives a round without values.
func captured(cell verdict.Cell, name string, own []result.Stored) (verdict.Cell, error) {
	cell.Name, cell.HalfRTT, cell.Rounds = name+result.CapturedSuffix, false, nil
	for _, run := range own {
		round := verdict.Round{}
		for _, c := range run.Server.Captured {
			if c.Cell != name || c.Incomplete != "" {
				continue
			}
			var err error
			if round, err = histogramRound(c.Histogram, c.Unanswered); err != nil {
				return cell, fmt.Errorf("%s, capture of %s: %w", run.Server.Run, name, err)
			}
		}
		cell.Rounds = append(cell.Rounds, round)
	}
	return cell, nil
}
