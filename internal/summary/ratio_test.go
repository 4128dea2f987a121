package summary

import (
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// The line stays within the limit of the API for the longest names and ratios.
func TestSummaryOfVariantsIsBounded(t *testing.T) {
	var s v1alpha1.LatencyBenchmarkSpec
	var results []v1alpha1.CellResult
	for i := range 16 {
		name := strings.Repeat("v", 18) + string(rune('a'+i))
		s.Variants = append(s.Variants, v1alpha1.Variant{Name: name})
		results = append(results, v1alpha1.CellResult{Variant: name, Name: "tcp-64", LatencyType: "RTT",
			Ratios: []v1alpha1.Ratio{{Percentile: v1alpha1.P50, Estimate: Decimals(60_000_000_000, func(v float64) float64 { return v })}}})
	}
	if line := variantsLine(s, "tcp-64", results); len(line) > 1024 || strings.Count(line, ", ") != 15 {
		t.Errorf("%d bytes: %s", len(line), line)
	}
}

func TestDecimals(t *testing.T) {
	up := func(v float64) string { return ratioBound(v, func(v float64) float64 { return float64(int64(v) + 1) }) }
	for _, c := range []struct {
		got, want string
	}{
		{Decimals(1.545, func(float64) float64 { return 155 }), "1.55"},
		// 1.1 times 100 is 110.00000000000001 as a float.
		{up(1.1), "1.10"}, {up(1.1001), "1.11"}, {up(0.05), "0.0500"}, {up(0.05001), "0.0501"}, {up(0), ""},
	} {
		if c.got != c.want {
			t.Errorf("got %s, want %s", c.got, c.want)
		}
	}
}
