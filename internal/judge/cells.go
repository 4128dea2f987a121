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

type values = map[v1alpha1.Metric]stats.Observation

// Cells returns every cell of the spec, measured or not, and the captured ones, with a round for
// each run, which has only the given metrics, if any: all of the largest benchmark take 100 MiB.
func Cells(r Results, metrics ...v1alpha1.Metric) []verdict.Cell {
	var all []verdict.Cell
	for _, v := range r.Variants {
		// Each cell has its own slice of blockers, so that a change to one does not affect another.
		add := func(cell verdict.Cell) {
			cell.Blockers = blockers(r, v)
			for i := range cell.Rounds {
				if r.OfFiles {
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
			add(cell)
			if v.Capture == v1alpha1.CaptureServer && !c.Stream {
				add(captured(cell, c))
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

// blockers returns the reasons why nothing can be concluded from a variant's runs.
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

// ownRound is of a tool without samples. What it did not report is absent; if messages were lost,
// so are all percentiles, which leave them out and cannot be corrected.
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
