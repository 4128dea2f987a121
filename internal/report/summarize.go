// Package report turns stored results into what people and the status show: a line for each cell over all
// rounds, what the endpoints were, and what limits the numbers.
package report

import (
	"fmt"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// Summary is the part of a benchmark's status that follows from its stored results.
type Summary struct {
	Results   []v1alpha1.CellResult
	Warnings  []v1alpha1.Warning
	Endpoints []v1alpha1.Endpoint
	Headline  *v1alpha1.Summary
}

// Summarize computes the summary of a benchmark's stored runs, oldest first.
func Summarize(spec v1alpha1.LatencyBenchmarkSpec, runs []result.Stored) (Summary, error) {
	var s Summary
	if len(runs) == 0 {
		return s, nil
	}
	for _, cell := range plan.Cells(spec) {
		line, found, err := summarizeCell(spec.LatencyType, cell.Name, runs)
		if err != nil {
			return Summary{}, err
		}
		if found {
			s.Results = append(s.Results, line)
		}
	}
	if len(s.Results) > 0 {
		s.Headline = headline(s.Results[0])
	}
	last := runs[len(runs)-1]
	s.Endpoints = []v1alpha1.Endpoint{endpoint(last.Client), endpoint(last.Server)}
	s.Endpoints[0].ToolVersion = toolVersion(last.Client)
	s.Warnings = warnings(spec, runs, s.Results)
	return s, nil
}

// summarizeCell merges one cell of all runs that have it.
func summarizeCell(latencyType v1alpha1.LatencyType, name string, runs []result.Stored) (v1alpha1.CellResult, bool, error) {
	var histograms []result.Histogram
	line := v1alpha1.CellResult{Name: name, LatencyType: latencyType}
	for _, run := range runs {
		for _, c := range run.Client.Cells {
			if c.Name != name {
				continue
			}
			line.Protocol, line.MessageSizeBytes = c.Protocol, c.MessageSize
			line.Rounds++
			line.Lost += c.Lost
			histograms = append(histograms, c.Histogram)
		}
	}
	if len(histograms) == 0 {
		return line, false, nil
	}
	d, err := result.Merge(histograms...)
	if err != nil {
		return line, false, fmt.Errorf("merging the rounds of %s: %w", name, err)
	}
	shown := func(rtt int64) int64 {
		if latencyType == v1alpha1.LatencyHalfRTT {
			return stats.HalfRTT(rtt)
		}
		return rtt
	}
	line.Samples = d.Count
	line.Lost += d.OverRange
	line.MinNanoseconds = shown(d.Min)
	line.MaxNanoseconds = shown(d.Max)
	line.MeanNanoseconds = shown(d.Mean())
	line.StddevNanoseconds = shown(d.StdDev())
	for _, p := range []struct {
		percentile stats.Percentile
		field      **int64
	}{
		{stats.P50, &line.P50Nanoseconds},
		{stats.P90, &line.P90Nanoseconds},
		{stats.P99, &line.P99Nanoseconds},
		{stats.P999, &line.P999Nanoseconds},
		{stats.P9999, &line.P9999Nanoseconds},
		{stats.P99999, &line.P99999Nanoseconds},
	} {
		if !p.percentile.Eligible(d.Count) {
			line.NeedsSamples = p.percentile.Needs()
			break
		}
		*p.field = new(shown(min(max(stats.Quantile(d.Buckets, p.percentile), d.Min), d.Max)))
	}
	return line, true, nil
}

// headline is the first cell for kubectl get.
func headline(c v1alpha1.CellResult) *v1alpha1.Summary {
	return &v1alpha1.Summary{
		Cell: c.Name, Samples: c.Samples,
		P50: latency(c.P50Nanoseconds), P99: latency(c.P99Nanoseconds), P999: latency(c.P999Nanoseconds),
	}
}

// latency is a percentile for people, and empty when it is absent.
func latency(ns *int64) string {
	if ns == nil {
		return ""
	}
	return stats.FormatLatency(*ns)
}

func endpoint(d result.Document) v1alpha1.Endpoint {
	e := d.Evidence
	return v1alpha1.Endpoint{
		Role: d.Role, Node: e.Node, Kernel: e.Kernel, CPUs: e.CPUsAllowed, MeasuringCPU: e.MeasuringCPU, CPUNUMANode: e.CPUNUMANode,
		Interface: e.Interface, Address: e.Address, MTU: e.MTU, Driver: e.Driver, PCIAddress: e.PCIAddress, DeviceNUMANode: e.DeviceNUMANode,
	}
}

// toolVersion is the client's: it is the end that measures.
func toolVersion(client result.Document) string {
	for _, c := range client.Cells {
		if c.ToolVersion != "" {
			return c.ToolVersion
		}
	}
	return ""
}

// warnings gathers what limits the numbers, each reason once: the message of the first run that has it.
func warnings(spec v1alpha1.LatencyBenchmarkSpec, runs []result.Stored, results []v1alpha1.CellResult) []v1alpha1.Warning {
	var all []v1alpha1.Warning
	seen := map[string]bool{}
	add := func(w v1alpha1.Warning) {
		if !seen[w.Reason] {
			seen[w.Reason] = true
			all = append(all, w)
		}
	}
	for _, run := range runs {
		for _, w := range preflight.Verify(spec, run.Client.Evidence, run.Server.Evidence) {
			add(w)
		}
	}
	for _, r := range results {
		if r.Lost > 0 {
			add(v1alpha1.Warning{Reason: v1alpha1.WarningMessagesLost, Message: fmt.Sprintf(
				"%s: %d messages were sent and not answered, or answered too late to count; they are not in the percentiles", r.Name, r.Lost)})
		}
	}
	for _, run := range runs {
		for _, c := range run.Client.Cells {
			if len(c.Warnings) > 0 {
				add(v1alpha1.Warning{Reason: v1alpha1.WarningTool, Message: fmt.Sprintf("%s, %s: %s", run.Client.Run, c.Name, strings.Join(c.Warnings, "; "))})
			}
		}
	}
	for _, run := range runs[1:] {
		for _, ends := range [][2]result.Evidence{{runs[0].Client.Evidence, run.Client.Evidence}, {runs[0].Server.Evidence, run.Server.Evidence}} {
			if difference := differs(ends[0], ends[1]); difference != "" {
				add(v1alpha1.Warning{Reason: v1alpha1.WarningEvidenceDiffers, Message: fmt.Sprintf(
					"%s and %s did not run under equal conditions: %s", runs[0].Client.Run, run.Client.Run, difference)})
			}
		}
	}
	return all
}

// differs names the first fact that must be equal in all rounds and is not.
func differs(a, b result.Evidence) string {
	for _, fact := range []struct{ name, a, b string }{
		{"node", a.Node, b.Node},
		{"boot id", a.BootID, b.BootID},
		{"kernel", a.Kernel, b.Kernel},
		{"interface", a.Interface, b.Interface},
		{"driver", a.Driver, b.Driver},
		{"firmware", a.Firmware, b.Firmware},
		{"MTU", fmt.Sprint(a.MTU), fmt.Sprint(b.MTU)},
		{"clock source", a.Clocksource, b.Clocksource},
		{"NUMA node of the CPU", fmt.Sprint(a.CPUNUMANode), fmt.Sprint(b.CPUNUMANode)},
		{"NUMA node of the device", fmt.Sprint(a.DeviceNUMANode), fmt.Sprint(b.DeviceNUMANode)},
	} {
		if fact.a != fact.b {
			return fmt.Sprintf("%s %q, then %q", fact.name, fact.a, fact.b)
		}
	}
	return ""
}
