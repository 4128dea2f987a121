package summary

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

func IsLost(c v1alpha1.CellResult, p v1alpha1.Percentile) bool {
	all := rounds.Percentiles()
	return c.LostFrom != "" && slices.Index(all, p) >= slices.Index(all, c.LostFrom)
}

// Label names a cell, with its variant if there is more than one.
func Label(c v1alpha1.CellResult) string {
	if c.Variant == plan.DefaultVariant {
		return c.Name
	}
	return c.Variant + " " + c.Name
}

type cell struct {
	v1alpha1.CellResult
	// rounds has percentiles with enough samples in every round, of the full round trip.
	rounds map[v1alpha1.Percentile][]stats.Observation
}

// summarizeCell combines a cell's runs of a variant: a line for what the clients measured, and one
// for what the servers captured, if any run has it.
func summarizeCell(latencyType v1alpha1.LatencyType, variant string, of *rounds.Cell) []cell {
	measured := v1alpha1.ResultLatencyType(latencyType)
	if of.Stream {
		measured = ""
	}
	var lines []cell
	for _, m := range []struct {
		suffix      string
		latencyType v1alpha1.ResultLatencyType
		rounds      *rounds.Rounds
	}{{"", measured, &of.Measured}, {result.CapturedSuffix, v1alpha1.ResultInToOut, &of.Captured}} {
		each := m.rounds.Found()
		if len(each) == 0 {
			continue
		}
		line := cell{rounds: map[v1alpha1.Percentile][]stats.Observation{}, CellResult: v1alpha1.CellResult{
			Variant: variant, Name: of.Name + m.suffix, Traffic: of.Traffic, LatencyType: m.latencyType,
			CountedFrom: string(each[0].Start), Rounds: int32(len(each)),
		}}
		for _, r := range each {
			line.Lost += r.Lost
		}
		if slices.ContainsFunc(each, func(r rounds.Round) bool { return r.Bandwidth != nil }) {
			line.Bandwidth = bandwidth(each)
		}
		switch shown := Shown(m.latencyType); {
		case m.latencyType == "":
		case each[0].Own != nil:
			ownStatistics(&line, each, shown)
		default:
			distribution(&line, each, m.rounds.Merged(), shown)
			line.Outliers = outliers(m.rounds.Attribution())
		}
		lines = append(lines, line)
	}
	return lines
}

// distribution sets the figures of all rounds' samples, whose merged distribution is d.
func distribution(line *cell, each []rounds.Round, d result.Distribution, shown func(int64) int64) {
	line.Samples = d.Count
	line.Lost += d.OverRange
	if d.Count > 0 {
		line.MinNanoseconds, line.MaxNanoseconds = new(shown(d.Min)), new(shown(d.Max))
		line.MeanNanoseconds, line.StddevNanoseconds = new(shown(d.Mean())), new(shown(d.StdDev()))
	}
	for i, name := range rounds.Percentiles() {
		p, _ := stats.Named(string(name))
		switch r := d.Percentile(p, line.Lost-d.OverRange); {
		case r.Lost:
			line.LostFrom = cmp.Or(line.LostFrom, name)
		case r.Needs > 0:
			line.NeedsSamples = cmp.Or(line.NeedsSamples, r.Needs)
		default:
			line.Percentiles = append(line.Percentiles, v1alpha1.PercentileResult{Name: name, Nanoseconds: shown(r.Ns)})
		}
		var values []int64
		var observed []stats.Observation
		for _, round := range each {
			if round.Samples == nil {
				continue
			}
			p := round.Samples.Percentiles[i]
			if p.Reported.Needs > 0 {
				continue
			}
			observed = append(observed, p.Observed)
			if !p.Reported.Lost {
				values = append(values, shown(p.Reported.Ns))
			}
		}
		line.observe(name, observed)
		line.Spread = appendSpread(line.Spread, name, values)
	}
}

// observe keeps a percentile that every round has: those without are rarely fast.
func (c *cell) observe(p v1alpha1.Percentile, each []stats.Observation) {
	if len(each) == int(c.Rounds) {
		c.rounds[p] = each
	}
}

// appendSpread adds the spread of a percentile over the rounds. A single value has none.
func appendSpread(all []v1alpha1.Spread, p v1alpha1.Percentile, values []int64) []v1alpha1.Spread {
	if len(values) < 2 {
		return all
	}
	return append(all, v1alpha1.Spread{
		Percentile: p, Rounds: int32(len(values)),
		MinNanoseconds: slices.Min(values), MedianNanoseconds: median(values), MaxNanoseconds: slices.Max(values),
	})
}

// median sorts values and returns the middle or the lower of two: a measured value.
func median(values []int64) int64 {
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// ownStatistics sets what a tool without samples reports: the mean over all round trips, else the
// median over rounds, because percentiles cannot be merged.
func ownStatistics(line *cell, each []rounds.Round, shown func(int64) int64) {
	var sum, weights float64
	var least, most, deviations []int64
	of := map[v1alpha1.Percentile][]int64{}
	observed := map[v1alpha1.Percentile][]stats.Observation{}
	known := func(to []int64, ns int64) []int64 {
		if ns > 0 {
			to = append(to, shown(ns))
		}
		return to
	}
	for _, c := range each {
		if c.Own == nil {
			continue
		}
		line.Samples += c.Own.Count
		weight := float64(max(c.Own.Count, 1)) // A publication may give a mean without the number of samples.
		sum, weights = sum+c.Own.MeanNs*weight, weights+weight
		line.StepNanoseconds = max(line.StepNanoseconds, shown(c.Own.StepNs))
		least, most, deviations = known(least, c.Own.MinNs), known(most, c.Own.MaxNs), known(deviations, c.Own.StdDevNs)
		for _, p := range c.Own.Percentiles() {
			of[p.Name] = known(of[p.Name], p.Ns)
			line.StepNanoseconds = max(line.StepNanoseconds, shown(decade(p.HighNs-p.LowNs)))
			// The tool's percentiles leave out lost messages.
			if named, known := stats.Named(string(p.Name)); known && c.Lost == 0 && named.Eligible(c.Own.Count) {
				observed[p.Name] = append(observed[p.Name], stats.Within(p.LowNs, p.Ns, p.HighNs))
			}
		}
	}
	if sum > 0 {
		line.MeanNanoseconds = new(shown(int64(math.Round(sum / weights))))
	}
	if len(least) > 0 {
		line.MinNanoseconds = new(slices.Min(least))
	}
	if len(most) > 0 {
		line.MaxNanoseconds = new(slices.Max(most))
	}
	if len(deviations) > 0 {
		line.StddevNanoseconds = new(median(deviations))
	}
	for _, p := range rounds.Percentiles() {
		line.observe(p, observed[p])
		values := of[p]
		if len(values) == 0 {
			continue
		}
		line.Percentiles = append(line.Percentiles, v1alpha1.PercentileResult{Name: p, Nanoseconds: median(values)})
		line.Spread = appendSpread(line.Spread, p, values)
	}
}

func decade(ns int64) int64 {
	power := int64(1)
	for power <= ns/10 {
		power *= 10
	}
	return power
}

func bandwidth(each []rounds.Round) *v1alpha1.BandwidthResult {
	var received, sent []int64
	b := &v1alpha1.BandwidthResult{}
	for _, c := range each {
		if c.Bandwidth == nil {
			continue
		}
		received = append(received, int64(math.Round(c.Bandwidth.BitsPerSecond)))
		sent = append(sent, int64(math.Round(c.Bandwidth.SentBitsPerSecond)))
		if n := c.Bandwidth.Retransmits; n != nil {
			b.Retransmits = cmp.Or(b.Retransmits, new(int64(0)))
			*b.Retransmits += *n
		}
	}
	b.BitsPerSecond, b.SentBitsPerSecond = median(received), median(sent)
	b.MinBitsPerSecond, b.MaxBitsPerSecond = slices.Min(received), slices.Max(received)
	return b
}

// outliers says with which interruptions the slowest samples coincide, if known.
func outliers(a *tool.Attribution) string {
	if a == nil {
		return ""
	}
	share := func(n int64) float64 { return 100 * float64(n) / float64(a.Examined) }
	text := fmt.Sprintf("of the %d slowest of %d samples beyond p99.9, %.0f %% coincide with an interruption of the client's CPU, %.0f %% of the server's, %.0f %% of both, %.0f %% of neither",
		a.Examined, a.Beyond, share(a.Client), share(a.Server), share(a.Both), share(a.Neither))
	if a.Undetermined > 0 {
		text += fmt.Sprintf(", %.0f %% unknown", share(a.Undetermined))
	}
	if !a.ClientSeesGaps || !a.ServerSeesGaps {
		text += "; the ends sleep while they wait, so that only interruptions in send are visible"
	}
	return text
}

// ratios are to a reference, as in comparisons, or of merged rounds if one has few samples.
func ratios(reference, c cell) []v1alpha1.Ratio {
	var all []v1alpha1.Ratio
	for _, p := range v1alpha1.HeadlinePercentiles() {
		baseline, candidate := reference.rounds[p], c.rounds[p]
		whole, wholeReference := c.Percentile(p), reference.Percentile(p)
		switch {
		case len(baseline) > 0 && len(candidate) > 0:
			b, _ := stats.Interval(baseline, candidate)
			// There is no ratio if lost messages reach the percentile in half of the rounds.
			if b.Estimate > 0 && !math.IsInf(b.Estimate, 1) {
				all = append(all, v1alpha1.Ratio{
					Percentile: p, Estimate: factor(b.Estimate, math.Round), Lower: ratioBound(b.Lower, math.Floor), Upper: ratioBound(b.Upper, math.Ceil),
				})
			}
		case whole != nil && wholeReference != nil && *wholeReference > 0:
			all = append(all, v1alpha1.Ratio{Percentile: p, Estimate: factor(float64(*whole)/float64(*wholeReference), math.Round)})
		}
	}
	return all
}

// ratioBound formats a bound of a ratio, rounded; empty if it bounds nothing.
func ratioBound(v float64, round func(float64) float64) v1alpha1.Factor {
	if v == 0 || math.IsInf(v, 1) {
		return ""
	}
	return factor(v, round)
}

func factor(v float64, round func(float64) float64) v1alpha1.Factor {
	return v1alpha1.Factor(stats.FormatRatio(v, round))
}

// RatioOf returns a percentile's ratio to the reference's, 1 for itself; false: unknown.
func RatioOf(r v1alpha1.CellResult, reference string, p v1alpha1.Percentile) (v1alpha1.Ratio, bool) {
	if r.Variant == reference {
		return v1alpha1.Ratio{Percentile: p, Estimate: factor(1, math.Round)}, r.Percentile(p) != nil
	}
	i := slices.IndexFunc(r.Ratios, func(ratio v1alpha1.Ratio) bool { return ratio.Percentile == p })
	if i < 0 {
		return v1alpha1.Ratio{}, false
	}
	return r.Ratios[i], true
}

func Bounded(r v1alpha1.Ratio) bool { return r.Lower != "" || r.Upper != "" }

// variantsLine returns each variant's p50 as a multiple of the first's; empty without variants.
func variantsLine(spec v1alpha1.LatencyBenchmarkSpec, cell string, results []v1alpha1.CellResult) string {
	if len(spec.Variants) < 2 {
		return ""
	}
	var told []string
	for _, r := range results {
		if r.Name != cell || r.LatencyType == "" {
			continue
		}
		text := "-"
		if ratio, found := RatioOf(r, spec.Variants[0].Name, v1alpha1.P50); found {
			text = string(ratio.Estimate)
		}
		told = append(told, r.Variant+" "+text)
	}
	return strings.Join(told, ", ")
}
