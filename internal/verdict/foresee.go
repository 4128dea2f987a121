package verdict

import (
	"cmp"
	"fmt"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// Foreseen is what a rule can show with the planned rounds and samples, whatever the results.
type Foreseen struct {
	// Says is a line for users.
	Says string
	// Never is why the rule can neither pass nor fail, with the remedy; empty if it can.
	Never string
}

// Foresee returns what each rule can show. most returns the most samples that a round of a cell gives, and whether that is known.
func Foresee(in Input, most func(Cell) (int64, bool)) ([]Foreseen, error) {
	rules, selected, all, err := in.selected()
	all *= max(1, in.Together)
	out := make([]Foreseen, len(rules))
	for i, r := range rules {
		f := &out[i]
		fewest, one := r.fewestRounds(stats.EachSide), r.fewestRounds(stats.EachSide.Among(all))
		f.Says = fmt.Sprintf("rule %s: can pass with %s", r, r.rounds(fewest))
		if all == 1 {
			f.Says += ", and fail with as many"
		} else {
			f.Says += fmt.Sprintf(", and fail with as many if all %d comparisons do, with %s if one does", all, r.rounds(one))
		}
		switch {
		case len(selected[i]) == 0:
			f.Never = fmt.Sprintf("rule %s selects no cell of this benchmark; change its selectors, or the workload", r)
		case !in.decidable(r):
			f.Never = fmt.Sprintf("rule %s can neither pass nor fail with %d rounds; set maxRounds to at least %d", r, in.MaxRounds, fewest)
		}
		if r.percentile == nil {
			continue
		}
		needs := r.percentile.NeedsToGate(r.tolerance)
		f.Says += fmt.Sprintf("; each round needs %d samples", needs)
		for _, c := range selected[i] {
			if n, known := most(c); known && n < needs {
				f.Never = fmt.Sprintf("rule %s can neither pass nor fail: a round of %s has at most %d samples, and %s needs %d; "+
					"measure longer, at a higher rate, or a lower percentile", r, c.Name, n, r.Metric, needs)
			}
		}
	}
	return out, err
}

// mostKept is the largest number of rounds that a gate keeps of a baseline; others rarely have more.
const mostKept = 36

func (in Input) decidable(r rule) bool {
	switch {
	case r.kind == absolute:
		return in.MaxRounds >= r.fewestRounds(stats.EachSide)
	case in.Criteria.Against(v1alpha1.BaselineVariant):
		return stats.MannWhitney(in.MaxRounds, in.MaxRounds, stats.EachSide) >= 0
	}
	return stats.MannWhitney(cmp.Or(in.BaselineRounds, mostKept), in.MaxRounds, stats.EachSide) >= 0
}

func (r rule) rounds(n int) string {
	if r.kind == absolute {
		return fmt.Sprintf("%d rounds", n)
	}
	return fmt.Sprintf("%d+%d rounds", n, n)
}

// selected returns the rules, the candidate's cells that each selects, and how many these are. Its error is about a rule.
func (in Input) selected() (rules []rule, cells [][]Cell, all int, err error) {
	for i, given := range in.Criteria.Rules {
		r, err := parseRule(given)
		if err != nil {
			return nil, nil, 0, fmt.Errorf("rules[%d]: %w", i, err)
		}
		var own []Cell
		for _, c := range in.Candidate {
			if r.selects(c, in.Criteria.BaselineOf(v1alpha1.BaselineVariant)) {
				own = append(own, c)
			}
		}
		rules, cells, all = append(rules, r), append(cells, own), all+len(own)
	}
	return rules, cells, all, nil
}
