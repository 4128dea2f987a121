package specs

import (
	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Undecided is a rule that the agents of the tests never give enough samples for, and more rounds do not help.
var Undecided = v1alpha1.Rule{Metric: v1alpha1.MetricP99, Max: v1alpha1.Limit{Text: "1s"}}

// Under returns a rule that limits p90 to an absolute value.
func Under(limit string) v1alpha1.Rule {
	return v1alpha1.Rule{Metric: v1alpha1.MetricP90, Max: v1alpha1.Limit{Text: limit}}
}

// Within returns a rule that limits the increase of p90 over its baseline.
func Within(tolerance string) v1alpha1.Rule {
	return v1alpha1.Rule{Metric: v1alpha1.MetricP90, MaxIncrease: v1alpha1.Limit{Text: tolerance}}
}
