package verdict

import (
	"fmt"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// BenchmarkJudge judges 200 cells by 8 metrics with 10 and 20 rounds a side, as exact figures and as figures of a histogram
// whose buckets are 2 ns wide, and makes the status.
func BenchmarkJudge(b *testing.B) {
	metrics := []v1alpha1.Metric{"min", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "stddev"}
	var rules []v1alpha1.Rule
	for _, m := range metrics {
		rules = append(rules, v1alpha1.Rule{Metric: m, MaxIncrease: v1alpha1.Limit{Text: "5%"}})
	}
	for _, rounds := range []int{10, 20} {
		for _, step := range []int64{1, 2} {
			random := newRandom(1)
			cells := func() []Cell {
				var out []Cell
				for i := range 200 {
					c := cell(v1alpha1.MetricMin, make([]int64, rounds)...).named("vf-onload", fmt.Sprintf("tcp-%d", i))
					for _, m := range metrics {
						for r, v := range normal(random, 3_600, 0.03, rounds) {
							c.Rounds[r].Values[m] = stats.Rounded(v, step)
						}
					}
					out = append(out, c)
				}
				return out
			}
			in := Input{Criteria: against(rules...), Candidate: cells(), Baseline: cells()}
			b.Run(fmt.Sprintf("rounds=%d+%d/step=%d", rounds, rounds, step), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					j, err := Judge(in)
					if err != nil || j.Comparisons != 1600 || len(j.Status().Rules) != len(rules) {
						b.Fatal(j.Comparisons, err)
					}
				}
			})
		}
	}
}
