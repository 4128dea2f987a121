package report

import (
	"fmt"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// messagesLost counts them, and says what they mean for percentiles, where there are any.
func messagesLost(r v1alpha1.CellResult) string {
	if r.LatencyType == "" {
		return fmt.Sprintf("%d messages were lost", r.Lost)
	}
	return fmt.Sprintf("%d of %d messages were lost; a percentile counts them as slower than any sample", r.Lost, r.Samples+r.Lost)
}
