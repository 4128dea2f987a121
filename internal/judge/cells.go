package judge

import (
	"math"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

// values are the metrics of a round.
type values = map[v1alpha1.Metric]stats.Observation

// Cells are the results by variant and cell, in the order of the spec, with a round for each run of the variant. Every
// cell of the spec is there, measured or not, and so is every captured one of a variant that captures. The rounds have the
// given metrics only, or all of them without any: those of the largest benchmark would take 100 MiB.
func Cells(r Results, metrics ...v1alpha1.Metric) []verdict.Cell {
	var all []verdict.Cell
	for _, v := range r.Variants {
		// Each cell has blockers of its own, so that a change to those of one does not change those of another.
		add := func(cell verdict.Cell) {
			cell.Blockers = blockers(r, v)
			if len(metrics) > 0 {
				narrow(cell.Rounds, metrics)
			}
			all = append(all, cell)
		}
		for _, c := range v.Cells {
			cell := measured(v.Name, c, r.Spec.LatencyType)
			add(cell)
			if v.Capture == v1alpha1.CaptureServer && !c.Stream {
				add(captured(cell, c))
			}
		}
	}
	return all
}

// narrow leaves the given metrics in rounds.
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

// blockers are why nothing can be concluded from a variant's runs.
func blockers(r Results, v *rounds.Variant) []verdict.Blocker {
	var all []verdict.Blocker
	if r.Trouble != nil {
		all = append(all, *r.Trouble)
	}
	for _, w := range v.Warnings {
		if w.Blocks {
			all = append(all, verdict.Blocker{Reason: w.Reason, Message: w.Message})
		}
	}
	if v.Unequal != "" {
		all = append(all, verdict.Blocker{Reason: v1alpha1.WarningEvidenceDiffers, Message: v.Unequal})
	}
	return all
}

// measured is a cell as the clients measured it. A run that does not have it, which agents do not let happen, gives a
// round without values: nothing is concluded without it.
func measured(variant string, c *rounds.Cell, latencyType v1alpha1.LatencyType) verdict.Cell {
	cell := verdict.Cell{
		Variant: variant, Name: c.Name, Protocol: c.Protocol, MessageSize: c.MessageSize,
		RatePerSecond: c.RatePerSecond, Stream: c.Stream, HalfRTT: latencyType != v1alpha1.LatencyRTT,
	}
	for _, round := range c.Measured.Each {
		cell.Rounds = append(cell.Rounds, roundOf(round))
	}
	return cell
}

// roundOf is what a run found in a cell. Latencies are of the full round trip, but those of a capture. Samples out of the
// histogram's range count as lost.
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

// histogramRound is a round of which the samples are known.
func histogramRound(s rounds.Samples, lost int64) verdict.Round {
	lost += s.OverRange
	round := verdict.Round{Samples: s.Count + lost, Values: values{v1alpha1.MetricLost: stats.Exact(lost)}}
	if round.Samples > 0 {
		for i, p := range rounds.Percentiles() {
			// The API has a metric of each percentile but the highest.
			if p != v1alpha1.P999999 {
				round.Values[v1alpha1.Metric(p)] = s.Percentiles[i].Observed
			}
		}
	}
	if s.Count > 0 {
		round.Values[v1alpha1.MetricMin] = stats.Exact(s.Min)
		round.Values[v1alpha1.MetricMean] = stats.Exact(s.Mean)
		round.Values[v1alpha1.MetricStdDev] = stats.Exact(s.StdDev)
	}
	return round
}

// ownRound is a round of a tool that tells no samples. What it did not tell is not there, and when messages were lost
// none of its percentiles: they leave the lost ones out, and they cannot be added.
func ownRound(own tool.Own, lost int64) verdict.Round {
	round := verdict.Round{Samples: own.Count + lost, Values: values{v1alpha1.MetricLost: stats.Exact(lost)}}
	told := map[v1alpha1.Metric]int64{v1alpha1.MetricMin: own.MinNs, v1alpha1.MetricStdDev: own.StdDevNs}
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
func captured(cell verdict.Cell, c *rounds.Cell) verdict.Cell {
	cell.Name, cell.HalfRTT, cell.Rounds = c.Name+result.CapturedSuffix, false, nil
	for _, round := range c.Captured.Each {
		cell.Rounds = append(cell.Rounds, roundOf(round))
	}
	return cell
}
