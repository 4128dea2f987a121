package summary

import (
	"math"
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// The line stays within the limit of the API for the longest names and ratios.
func TestSummaryOfVariantsIsBounded(t *testing.T) {
	var s v1alpha1.LatencyBenchmarkSpec
	var results []v1alpha1.CellResult
	for i := range 16 {
		name := strings.Repeat("v", 18) + string(rune('a'+i))
		s.Variants = append(s.Variants, v1alpha1.Variant{Name: name})
		results = append(results, v1alpha1.CellResult{Variant: name, Name: "tcp-64", LatencyType: "RTT",
			Ratios: []v1alpha1.Ratio{{Percentile: v1alpha1.P50, Estimate: v1alpha1.Factor(stats.FormatRatio(60_000_000_000, math.Round))}}})
	}
	if line := variantsLine(s, "tcp-64", results); len(line) > 1024 || strings.Count(line, ", ") != 15 {
		t.Errorf("%d bytes: %s", len(line), line)
	}
}

// The line of variants compares with the first one, also if there are only two; one variant is compared with nothing.
func TestLineOfVariants(t *testing.T) {
	of := func(variant string, ratio v1alpha1.Factor) v1alpha1.CellResult {
		r := v1alpha1.CellResult{Variant: variant, Name: "tcp-64", LatencyType: "RTT", Percentiles: []v1alpha1.PercentileResult{{Name: v1alpha1.P50, Nanoseconds: 1000}}}
		if ratio != "" {
			r.Ratios = []v1alpha1.Ratio{{Percentile: v1alpha1.P50, Estimate: ratio}}
		}
		return r
	}
	for _, c := range []struct {
		variants []string
		ratios   []string
		want     string
	}{
		{nil, nil, ""},
		{[]string{"a"}, []string{""}, ""},
		{[]string{"a", "b"}, []string{"", "1.2"}, "a 1.000, b 1.2"},
		{[]string{"a", "b", "c"}, []string{"", "1.2", ""}, "a 1.000, b 1.2, c -"},
	} {
		var s v1alpha1.LatencyBenchmarkSpec
		var results []v1alpha1.CellResult
		for i, name := range c.variants {
			s.Variants, results = append(s.Variants, v1alpha1.Variant{Name: name}), append(results, of(name, v1alpha1.Factor(c.ratios[i])))
		}
		if got := variantsLine(s, "tcp-64", results); got != c.want {
			t.Errorf("%v: %q, want %q", c.variants, got, c.want)
		}
	}
}

// Rounds without the tool's statistics leave out nothing of those that have them, in any order.
func TestOwnStatisticsOfUnequalRounds(t *testing.T) {
	with := rounds.Round{Found: true, Own: &tool.Own{Count: 10, MinNs: 1000, MeanNs: 2000, MaxNs: 3000}}
	without := rounds.Round{Found: true}
	for _, each := range [][]rounds.Round{{with}, {with, without}, {without, with}, {without, with, without}} {
		line := &cell{rounds: map[v1alpha1.Percentile][]stats.Observation{}}
		ownStatistics(line, each, func(ns int64) int64 { return ns })
		if line.Samples != 10 || line.MeanNanoseconds == nil || *line.MeanNanoseconds != 2000 {
			t.Errorf("%d rounds: %d samples, mean %v", len(each), line.Samples, line.MeanNanoseconds)
		}
	}
	// What no round has is absent, and not 0.
	for name, each := range map[string][]rounds.Round{"no mean": {{Found: true, Own: &tool.Own{Count: 10, P50Ns: 2000}}}, "nothing": {without}} {
		line := &cell{rounds: map[v1alpha1.Percentile][]stats.Observation{}}
		ownStatistics(line, each, func(ns int64) int64 { return ns })
		if line.MeanNanoseconds != nil || line.MinNanoseconds != nil || line.MaxNanoseconds != nil || line.StddevNanoseconds != nil {
			t.Errorf("%s: mean %v, min %v, max %v, stddev %v", name, line.MeanNanoseconds, line.MinNanoseconds, line.MaxNanoseconds, line.StddevNanoseconds)
		}
	}
}
