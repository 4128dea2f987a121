// Package summary computes what statuses and reports show from stored results.
package summary

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// Summary is the part of a benchmark's status that is computed from its stored results.
type Summary struct {
	Results   []v1alpha1.CellResult
	Warnings  []v1alpha1.Warning
	Endpoints []v1alpha1.Endpoint
	Headline  *v1alpha1.Summary
}

func Summarize(c *rounds.Collection) Summary {
	var s Summary
	if c.Runs == 0 {
		return s
	}
	reference := map[string]cell{}
	for _, v := range c.Variants {
		if v.Runs == 0 {
			continue
		}
		for _, of := range v.Cells {
			for _, line := range summarizeCell(c.Spec.LatencyType, v.Name, of) {
				if line.Variant == c.Variants[0].Name {
					reference[line.Name] = line
				} else if first, found := reference[line.Name]; found {
					line.Ratios = ratios(first, line)
				}
				s.Results = append(s.Results, line.CellResult)
			}
		}
		if v.Last.Client.Imported != "" {
			continue // No agent observed its endpoints.
		}
		client, server := v.Proof.Lines()
		s.Endpoints = append(s.Endpoints, endpoint(v.Last.Client, client), endpoint(v.Last.Server, server))
	}
	if len(s.Results) > 0 {
		s.Headline = headline(plan.Headline(c.Spec), s.Results...)
		s.Headline.Variants = variantsLine(c.Spec, s.Headline.Cell, s.Results)
		s.Headline.Placement = Placement(s.Endpoints)
	}
	s.Warnings = warnings(c, s.Results)
	return s
}

// headline summarizes a cell of every variant for kubectl get: the named, or the first.
func headline(name string, results ...v1alpha1.CellResult) *v1alpha1.Summary {
	first := results[max(0, slices.IndexFunc(results, func(r v1alpha1.CellResult) bool { return r.Name == name }))]
	results = slices.DeleteFunc(slices.Clone(results), func(r v1alpha1.CellResult) bool { return r.Name != first.Name })
	h := &v1alpha1.Summary{Variant: first.Variant, Cell: first.Name, Samples: first.Samples}
	for _, p := range []struct {
		name   v1alpha1.Percentile
		text   *string
		number **int64
	}{{v1alpha1.P50, &h.P50, &h.P50Nanoseconds}, {v1alpha1.P99, &h.P99, &h.P99Nanoseconds}, {v1alpha1.P999, &h.P999, &h.P999Nanoseconds}} {
		if ns := first.Percentile(p.name); ns != nil {
			*p.number = new(*ns)
		}
		var texts []string
		known := false
		for _, r := range results {
			text := ""
			switch ns := r.Percentile(p.name); {
			case ns != nil:
				text = stats.FormatLatency(*ns)
			case IsLost(r, p.name):
				text = "lost"
			}
			known = known || text != ""
			if len(results) > 1 {
				text = r.Variant + " " + cmp.Or(text, "-")
			}
			texts = append(texts, text)
		}
		if known {
			*p.text = strings.Join(texts, ", ")
		}
	}
	return h
}

// Placement returns Verified if every endpoint is verified; empty without endpoints.
func Placement(endpoints []v1alpha1.Endpoint) v1alpha1.PlacementState {
	if len(endpoints) == 0 {
		return ""
	}
	return PlacementState(!slices.ContainsFunc(endpoints, func(e v1alpha1.Endpoint) bool { return e.Placement != v1alpha1.PlacementVerified }))
}

func PlacementState(verified bool) v1alpha1.PlacementState {
	if verified {
		return v1alpha1.PlacementVerified
	}
	return v1alpha1.PlacementUnverified
}

// The longest texts that the API accepts, in characters. Agents report texts of any length.
const (
	maxName    = 64
	maxNode    = 253
	maxText    = 256
	maxMessage = 1024
)

func endpoint(d result.Document, lines []v1alpha1.ProofLine) v1alpha1.Endpoint {
	e := d.Evidence
	return v1alpha1.Endpoint{
		Variant: d.Variant, ToolVersion: text.Shorten(toolVersion(d), maxText), Role: d.Role, Node: text.Shorten(e.Node, maxNode),
		Kernel: text.Shorten(e.Kernel, maxText), CPUs: text.Shorten(e.CPUsAllowed, maxText), MeasuringCPU: e.MeasuringCPU, CPUNUMANode: e.CPUNUMANode,
		Interface: text.Shorten(e.Interface, maxName), Address: text.Shorten(e.Address, maxName), MTU: e.MTU,
		Driver: text.Shorten(e.Driver, maxName), PCIAddress: text.Shorten(e.PCIAddress, maxName), DeviceNUMANode: e.DeviceNUMANode,
		Placement: PlacementState(proof.Verified(lines)), Proof: lines,
	}
}

// toolVersion returns the version of the tool. Only the client reports it, because it measures.
func toolVersion(d result.Document) string {
	for _, c := range d.Cells {
		if c.ToolVersion != "" {
			return c.ToolVersion
		}
	}
	return ""
}

// warnings are the numbers' limits, each reason once, with its first run's message.
func warnings(c *rounds.Collection, results []v1alpha1.CellResult) []v1alpha1.Warning {
	var all []v1alpha1.Warning
	add := func(reason, message string) {
		if message != "" && !slices.ContainsFunc(all, func(w v1alpha1.Warning) bool { return w.Reason == reason }) {
			all = append(all, v1alpha1.Warning{Reason: reason, Message: text.Shorten(message, maxMessage)})
		}
	}
	for _, v := range c.Variants {
		for _, w := range v.Warnings {
			add(w.Reason, w.Message)
		}
	}
	for _, r := range results {
		if r.Lost > 0 {
			add(v1alpha1.WarningMessagesLost, Label(r)+": "+messagesLost(r))
		}
		if p := c.Spec.HighestPercentile; p != "" && r.Rounds >= c.Spec.Rounds && r.LatencyType != "" && r.Percentile(p) == nil && !IsLost(r, p) {
			add(v1alpha1.WarningTooFewSamples, fmt.Sprintf(
				"%s: %d samples are too few for %s; the next percentile needs %d: measure longer, or more rounds", Label(r), r.Samples, p, r.NeedsSamples))
		}
	}
	add(v1alpha1.WarningCaptureIncomplete, c.Incomplete)
	add(v1alpha1.WarningResolutionReduced, c.Reduced)
	add(v1alpha1.WarningTool, c.ToolWarnings())
	add(v1alpha1.WarningFrequencyDiffers, c.Frequency)
	for _, v := range c.Variants {
		add(v1alpha1.WarningEvidenceDiffers, v.Unequal)
	}
	return all
}

func messagesLost(r v1alpha1.CellResult) string {
	if r.LatencyType == "" {
		return fmt.Sprintf("%d messages were lost", r.Lost)
	}
	return fmt.Sprintf("%d of %d messages were lost; a percentile counts them as slower than any sample", r.Lost, r.Samples+r.Lost)
}

// PairOf returns a benchmark's nodes: those chosen or, before, those that its spec names.
func PairOf(b *v1alpha1.LatencyBenchmark) v1alpha1.Pair {
	if b.Status.Pair != nil {
		return *b.Status.Pair
	}
	var p v1alpha1.Pair
	if c := b.Spec.Placement.Client; c != nil {
		p.ClientNode = c.NodeName
	}
	if s := b.Spec.Placement.Server; s != nil {
		p.ServerNode = s.NodeName
	}
	return p
}

// Standing describes the state of a benchmark without results.
func Standing(b *v1alpha1.LatencyBenchmark) string {
	for _, conditionType := range []string{v1alpha1.ConditionSucceeded, v1alpha1.ConditionAccepted} {
		if c := meta.FindStatusCondition(b.Status.Conditions, conditionType); c != nil {
			return fmt.Sprintf("%s (%s)", c.Reason, c.Message)
		}
	}
	return "the operator has not processed it yet; is it running?"
}

// Shown converts a time in ns to the displayed one: half of a round trip for HalfRTT.
func Shown[T ~string](t T) func(ns int64) int64 {
	if string(t) == string(v1alpha1.LatencyHalfRTT) {
		return stats.HalfRTT
	}
	return func(ns int64) int64 { return ns }
}

const (
	maxStatus   = 512 << 10 // bytes of JSON; etcd takes 1.5 MiB, and managed fields can be as large
	fewAttempts = 50
)

// shed is what a status omits, in order: the stored results have all but the attempts.
var shed = []struct {
	what     string
	leaveOut func(*v1alpha1.LatencyBenchmarkStatus)
}{
	{fmt.Sprintf("all attempts but the last %d", fewAttempts), func(s *v1alpha1.LatencyBenchmarkStatus) {
		s.Attempts = s.Attempts[max(0, len(s.Attempts)-fewAttempts):]
	}},
	{"spread and outliers", func(s *v1alpha1.LatencyBenchmarkStatus) {
		for i := range s.Results {
			s.Results[i].Spread, s.Results[i].Outliers = nil, ""
		}
	}},
	{"ratios", func(s *v1alpha1.LatencyBenchmarkStatus) {
		for i := range s.Results {
			s.Results[i].Ratios = nil
		}
	}},
	{"proved checks", func(s *v1alpha1.LatencyBenchmarkStatus) {
		for i := range s.Endpoints {
			s.Endpoints[i].Proof = slices.DeleteFunc(s.Endpoints[i].Proof, func(l v1alpha1.ProofLine) bool { return l.State == v1alpha1.ProofProved })
		}
	}},
	{"mean, standard deviation and all percentiles but p50, p99 and p99.9", func(s *v1alpha1.LatencyBenchmarkStatus) {
		for i := range s.Results {
			r := &s.Results[i]
			r.MeanNanoseconds, r.StddevNanoseconds = nil, nil
			r.Percentiles = slices.DeleteFunc(r.Percentiles, func(p v1alpha1.PercentileResult) bool {
				return !slices.Contains(v1alpha1.HeadlinePercentiles(), p.Name)
			})
		}
	}},
	{"checks that failed", func(s *v1alpha1.LatencyBenchmarkStatus) {
		for i := range s.Endpoints {
			s.Endpoints[i].Proof = nil
		}
	}},
}

// Bound omits parts of a status that would be refused, with a warning, so that it is written.
func Bound(s *v1alpha1.LatencyBenchmarkStatus) {
	isShortened := func(w v1alpha1.Warning) bool { return w.Reason == v1alpha1.WarningStatusShortened }
	before := ""
	if i := slices.IndexFunc(s.Warnings, isShortened); i >= 0 {
		before = s.Warnings[i].Message
	}
	for i := range shed {
		// A status can always be encoded.
		if encoded, _ := json.Marshal(s); len(encoded) <= maxStatus {
			return
		}
		shed[i].leaveOut(s)
		var parts []string
		for k, part := range shed {
			// What was omitted earlier is still missing, unless the results were computed again.
			if k <= i || strings.Contains(before, part.what) {
				parts = append(parts, part.what)
			}
		}
		s.Warnings = append(slices.DeleteFunc(s.Warnings, isShortened), v1alpha1.Warning{
			Reason: v1alpha1.WarningStatusShortened,
			Message: fmt.Sprintf("the status would be larger than %d KiB and omits: %s; kubectl tailgate get and report have everything except the attempts",
				maxStatus>>10, strings.Join(parts, "; ")),
		})
	}
}
