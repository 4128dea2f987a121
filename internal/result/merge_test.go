package result

import "fmt"

// Merge decodes histograms and combines them, with the fewest digits of any of them. The error wraps ErrCorrupt if the buckets
// of a histogram contradict its other fields.
func Merge(hs ...Histogram) (Distribution, error) {
	m := NewMerger()
	for i, h := range hs {
		if _, err := m.Add(h); err != nil {
			return Distribution{}, fmt.Errorf("histogram %d of %d: %w", i+1, len(hs), err)
		}
	}
	return m.Distribution(), nil
}
