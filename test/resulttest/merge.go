package resulttest

import (
	"fmt"

	"github.com/tailgate-dev/tailgate/internal/result"
)

// Merge decodes histograms and combines them, with the fewest digits of any of them. The error wraps ErrCorrupt if the buckets
// of a histogram contradict its other fields.
func Merge(hs ...result.Histogram) (result.Distribution, error) {
	m := result.NewMerger()
	for i, h := range hs {
		if _, err := m.Add(h); err != nil {
			return result.Distribution{}, fmt.Errorf("histogram %d of %d: %w", i+1, len(hs), err)
		}
	}
	return m.Distribution(), nil
}
