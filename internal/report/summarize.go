// Package report turns stored results into what people and the status show: a line for each cell over all
// rounds, what the endpoints were, and what limits the numbers.
package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/proof"
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
	variants := plan.Variants(spec)
	reference := map[string]cell{}
	add := func(c cell) {
		if c.Variant == variants[0].Name {
			reference[c.Name] = c
		} else if first, found := reference[c.Name]; found {
			c.Ratios = ratios(first, c)
		}
		s.Results = append(s.Results, c.CellResult)
	}
	for _, v := range variants {
		own := result.OfVariant(runs, v.Name)
		if len(own) == 0 {
			continue
		}
		for _, planned := range plan.Cells(spec, v) {
			c, found, err := summarizeCell(spec.LatencyType, v.Name, planned.Name, own)
			if err != nil {
				return Summary{}, err
			}
			if found {
				add(c)
			}
			c, found, err = summarizeCaptured(c.CellResult, own)
			if err != nil {
				return Summary{}, err
			}
			if found {
				add(c)
			}
		}
		last := own[len(own)-1]
		client, server := proof.OfVariant(spec, v, own)
		s.Endpoints = append(s.Endpoints, endpoint(last.Client, client), endpoint(last.Server, server))
	}
	if len(s.Results) > 0 {
		s.Headline = headline(s.Results[0])
		s.Headline.Variants = variantsLine(spec, s.Headline.Cell, s.Results)
		s.Headline.Placement = placement(s.Endpoints)
	}
	s.Warnings = warnings(spec, runs, s.Results)
	return s, nil
}

// headline is the first cell for kubectl get.
func headline(c v1alpha1.CellResult) *v1alpha1.Summary {
	h := &v1alpha1.Summary{Variant: c.Variant, Cell: c.Name, Samples: c.Samples}
	for _, p := range []struct {
		name  v1alpha1.Percentile
		field *string
	}{{v1alpha1.P50, &h.P50}, {v1alpha1.P99, &h.P99}, {v1alpha1.P999, &h.P999}} {
		switch ns := *PercentileOf(&c, p.name); {
		case ns != nil:
			*p.field = stats.FormatLatency(*ns)
		case IsLost(c, p.name):
			*p.field = "lost"
		}
	}
	return h
}

// placement is Verified when every endpoint is; empty without any.
func placement(endpoints []v1alpha1.Endpoint) v1alpha1.PlacementState {
	switch {
	case len(endpoints) == 0:
		return ""
	case slices.ContainsFunc(endpoints, func(e v1alpha1.Endpoint) bool { return !e.Verified }):
		return v1alpha1.PlacementUnverified
	}
	return v1alpha1.PlacementVerified
}

// endpoint is what an agent observed, with the proof of its end.
func endpoint(d result.Document, lines []v1alpha1.ProofLine) v1alpha1.Endpoint {
	e := d.Evidence
	return v1alpha1.Endpoint{
		Variant: d.Variant, ToolVersion: toolVersion(d),
		Role: d.Role, Node: e.Node, Kernel: e.Kernel, CPUs: e.CPUsAllowed, MeasuringCPU: e.MeasuringCPU, CPUNUMANode: e.CPUNUMANode,
		Interface: e.Interface, Address: e.Address, MTU: e.MTU, Driver: e.Driver, PCIAddress: e.PCIAddress, DeviceNUMANode: e.DeviceNUMANode,
		Verified: proof.Verified(lines), Proof: lines,
	}
}

// toolVersion is told by the client only: it is the end that measures.
func toolVersion(d result.Document) string {
	for _, c := range d.Cells {
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
	for _, v := range plan.Variants(spec) {
		for _, run := range result.OfVariant(runs, v.Name) {
			for _, w := range proof.Warnings(spec, v, run) {
				add(w)
			}
		}
	}
	for _, r := range results {
		if r.Lost > 0 {
			add(v1alpha1.Warning{Reason: v1alpha1.WarningMessagesLost, Message: label(r) + ": " + messagesLost(r)})
		}
		if p := spec.HighestPercentile; p != "" && r.Rounds >= spec.Rounds && r.LatencyType != "" && *PercentileOf(&r, p) == nil && !IsLost(r, p) {
			add(v1alpha1.Warning{Reason: v1alpha1.WarningTooFewSamples, Message: fmt.Sprintf(
				"%s: %d samples are too few for %s; the next percentile needs %d: measure longer, or more rounds", label(r), r.Samples, p, r.NeedsSamples)})
		}
	}
	for _, run := range runs {
		for _, c := range run.Server.Captured {
			if c.Incomplete != "" {
				add(v1alpha1.Warning{Reason: v1alpha1.WarningCaptureIncomplete, Message: fmt.Sprintf("%s, %s: %s", run.Server.Run, c.Cell, c.Incomplete)})
			}
		}
	}
	for _, run := range runs {
		for _, d := range []result.Document{run.Client, run.Server} {
			if len(d.Reduced) > 0 {
				add(v1alpha1.Warning{Reason: v1alpha1.WarningResolutionReduced, Message: fmt.Sprintf(
					"%s, %s: the result was too large to be kept whole: %s", d.Run, d.Role, strings.Join(d.Reduced, "; "))})
			}
		}
	}
	if message := toolWarnings(runs); message != "" {
		add(v1alpha1.Warning{Reason: v1alpha1.WarningTool, Message: message})
	}
	for _, v := range plan.Variants(spec) {
		own := result.OfVariant(runs, v.Name)
		for _, run := range own {
			for _, ends := range [][2]result.Document{{own[0].Client, run.Client}, {own[0].Server, run.Server}} {
				if difference := differs(ends[0], ends[1]); difference != "" {
					add(v1alpha1.Warning{Reason: v1alpha1.WarningEvidenceDiffers, Message: fmt.Sprintf(
						"%s and %s did not run under equal conditions at the %s's end: %s", ends[0].Run, ends[1].Run, ends[0].Role, difference)})
				}
			}
		}
	}
	return all
}

// differs names the first conditions that must be equal in all rounds and are not, and how many more there are.
func differs(a, b result.Document) string {
	return result.Unequal(a, b, result.Difference.BetweenRounds)
}
