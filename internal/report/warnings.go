package report

import (
	"fmt"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// toolWarnings has each different warning of the tools once, with the first measurement that has it and how many more
// do; all of them are in the stored results. Empty when no tool warned.
func toolWarnings(runs []result.Stored) string {
	const most = 4
	var texts []string
	first, more := map[string]string{}, map[string]int{}
	for _, run := range runs {
		for _, c := range run.Client.Cells {
			for _, text := range c.Warnings {
				if _, known := first[text]; known {
					more[text]++
					continue
				}
				texts = append(texts, text)
				first[text] = run.Client.Run + ", " + c.Name
			}
		}
	}
	var told []string
	for _, text := range texts[:min(most, len(texts))] {
		from := first[text]
		if n := more[text]; n > 0 {
			from = fmt.Sprintf("%s and %d more", from, n)
		}
		told = append(told, fmt.Sprintf("%s (%s)", text, from))
	}
	if rest := len(texts) - len(told); rest > 0 {
		told = append(told, fmt.Sprintf("%d other warnings are in the stored results", rest))
	}
	return strings.Join(told, "; ")
}

// messagesLost counts them, and says what they mean for percentiles, where there are any.
func messagesLost(r v1alpha1.CellResult) string {
	if r.LatencyType == "" {
		return fmt.Sprintf("%d messages were lost", r.Lost)
	}
	return fmt.Sprintf("%d of %d messages were lost; a percentile counts them as slower than any sample", r.Lost, r.Samples+r.Lost)
}
