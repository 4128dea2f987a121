package summary

import (
	"math"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

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

// Bounded reports whether a ratio has a bound.
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
