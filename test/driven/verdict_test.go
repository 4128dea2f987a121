package driven

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// The agents of these specs measure round trips of 10000 to 11999 ns in every round, which are 5 to 6 µs as half RTT, with a median
// of 5.5 µs and a p90 of 5.9 µs, unless a spec makes them slower.

// undecided is a rule that the agents of the tests never give enough samples for, and more rounds do not help.
var undecided = v1alpha1.Rule{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "1s"}}

// under returns a rule that limits p90 to an absolute value.
func under(limit string) v1alpha1.Rule {
	return v1alpha1.Rule{Metric: v1alpha1.MetricP90, Max: v1alpha1.Limit{Text: limit}}
}

// within returns a rule that limits the increase of p90 over its baseline.
func within(tolerance string) v1alpha1.Rule {
	return v1alpha1.Rule{Metric: v1alpha1.MetricP90, MaxIncrease: v1alpha1.Limit{Text: tolerance}}
}

// slower returns a change for Kubelet.Agents that doubles the round trips of some runs.
func slower(runs ...string) func(*result.Document) {
	return func(d *result.Document) {
		for _, run := range runs {
			if !strings.HasPrefix(d.Run, run) {
				continue
			}
			for i := range d.Cells {
				var err error
				if d.Cells[i].Histogram, err = histogramFrom(20_000); err != nil {
					panic(err)
				}
			}
		}
	}
}

// setCriteria changes the rules of a benchmark as a user does.
func setCriteria(ctx context.Context, b *v1alpha1.LatencyBenchmark, change func(*v1alpha1.LatencyBenchmarkSpec)) {
	GinkgoHelper()
	Edit(ctx, b, func(b *v1alpha1.LatencyBenchmark) { change(&b.Spec) })
}

// reasons returns the outcomes and reasons of the verdict's rules.
func reasons(ctx context.Context, b *v1alpha1.LatencyBenchmark) []string {
	GinkgoHelper()
	var all []string
	if v := Get(ctx, b).Status.Verdict; v != nil {
		for _, r := range v.Rules {
			all = append(all, fmt.Sprintf("%s %s", r.Outcome, r.Reason))
		}
	}
	return all
}
