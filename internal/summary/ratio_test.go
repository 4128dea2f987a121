package summary

import (
	"math"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// The line stays within the limit of the API for the longest names and ratios.
func TestSummaryOfVariantsIsBounded(t *testing.T) {
	var s v1alpha1.LatencyBenchmarkSpec
	var results []v1alpha1.CellResult
	for i := range 16 {
		name := strings.Repeat("v", 18) + string(rune('a'+i))
		s.Variants = append(s.Variants, v1alpha1.Variant{Name: name})
		results = append(results, v1alpha1.CellResult{Variant: name, Name: "tcp-64", LatencyType: "RTT",
			Ratios: []v1alpha1.Ratio{{Percentile: v1alpha1.P50, Estimate: stats.FormatRatio(60_000_000_000, math.Round)}}})
	}
	if line := variantsLine(s, "tcp-64", results); len(line) > 1024 || strings.Count(line, ", ") != 15 {
		t.Errorf("%d bytes: %s", len(line), line)
	}
}
