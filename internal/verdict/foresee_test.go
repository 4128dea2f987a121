package verdict

import (
	"strings"
	"testing"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// What a plan foresees is what the verdict then shows: a rule that it refuses decides nothing, and one that it does not refuse can pass and fail.
func TestForesee(t *testing.T) {
	limit := v1alpha1.Rule{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "2us"}}
	tolerance := v1alpha1.Rule{Metric: v1alpha1.MetricMean, MaxIncrease: v1alpha1.Limit{Text: "5%"}}
	elsewhere := v1alpha1.Rule{Metric: v1alpha1.MetricP99, Max: limit.Max, Cells: []string{"udp-64"}}
	variant := func(rules ...v1alpha1.Rule) v1alpha1.Criteria {
		return v1alpha1.Criteria{Rules: rules, Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineVariant, Variant: &v1alpha1.ObjectName{Name: "base"}}}
	}
	two := []Cell{cell("").named("base", "tcp-64"), cell("").named("other", "tcp-64")}
	for name, c := range map[string]struct {
		criteria    v1alpha1.Criteria
		max         int
		together    int
		samples     int64
		says, never string
	}{
		"a limit of two cells":                   {against(limit), 20, 1, 10_000, "rule p99 max 2µs: can pass with 6 rounds, and fail with as many if all 2 comparisons do, with 7 rounds if one does; each round needs 10000 samples", ""},
		"a limit, with too few rounds":           {against(limit), 5, 1, 10_000, "can pass with 6 rounds", "can neither pass nor fail with 5 rounds; set maxRounds to at least 6"},
		"a variant":                              {variant(tolerance), 20, 1, 0, "rule mean maxIncrease 5%: can pass with 4+4 rounds, and fail with as many", ""},
		"a variant, too few rounds":              {variant(tolerance), 3, 1, 0, "", "can neither pass nor fail with 3 rounds; set maxRounds to at least 4"},
		"another benchmark may have more rounds": {against(tolerance), 3, 1, 0, "can pass with 4+4 rounds", ""},
		"another benchmark, one round":           {against(tolerance), 1, 1, 0, "", "can neither pass nor fail with 1 rounds; set maxRounds to at least"},
		"too few samples":                        {against(limit), 20, 1, 9_999, "", "a round of tcp-64 has at most 9999 samples, and p99 needs 10000; measure longer"},
		"no cell":                                {against(elsewhere), 20, 1, 10_000, "", "selects no cell of this benchmark"},
		"a hundred pairs":                        {against(limit), 20, 100, 10_000, "if all 200 comparisons do, with 13 rounds if one does", ""},
	} {
		all, err := Foresee(Input{Criteria: c.criteria, Candidate: two, MaxRounds: c.max, Together: c.together}, func(Cell) (int64, bool) { return c.samples, true })
		if err != nil || len(all) != 1 || !strings.Contains(all[0].Says, c.says) || !strings.Contains(all[0].Never, c.never) || (c.never == "") != (all[0].Never == "") {
			t.Errorf("%s: %+v, %v", name, all, err)
		}
	}
	// The numbers are those of verdicts: one of two comparisons fails from 7 rounds, both of them from 6.
	for rounds, want := range map[int]string{5: "TooFewRounds TooFewRounds", 6: "TooFewRounds BeyondLimit", 7: "BeyondLimit BeyondLimit"} {
		slow, quick := cell(v1alpha1.MetricP99, around(3000, rounds)...), cell(v1alpha1.MetricP99, around(1000, rounds)...)
		var got []string
		for _, second := range []Cell{quick, slow} {
			j, err := Judge(Input{Criteria: against(limit), Candidate: []Cell{slow, second.named("other", "tcp-64")}})
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, j.Rules[0].Comparisons[0].Reason)
		}
		if line := strings.Join(got, " "); line != want {
			t.Errorf("%d rounds: %s, not %s", rounds, line, want)
		}
	}
}
