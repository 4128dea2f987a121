package stats

import (
	"fmt"
	"math"
)

// Plausible returns an error if samples in these buckets, at least one, cannot have these extremes and sums. An extreme outside of lowest
// and highest is of a sample that is in no bucket.
func Plausible(buckets []Bucket, smallest, largest, lowest, highest, sum int64, sumOfSquares float64) error {
	first, last := buckets[0], buckets[len(buckets)-1]
	if smallest >= lowest && (smallest < first.Low || smallest > first.High) {
		return fmt.Errorf("the smallest sample is %d ns, but the first bucket %d to %d ns", smallest, first.Low, first.High)
	}
	if largest <= highest && (largest < last.Low || largest > last.High) {
		return fmt.Errorf("the largest sample is %d ns, but the last bucket %d to %d ns", largest, last.Low, last.High)
	}
	var least, most float64
	for _, b := range buckets {
		least += float64(b.Low) * float64(b.Count)
		most += float64(b.High) * float64(b.Count)
	}
	// The error of adding floats is far below this part of the sum.
	slack := most * 1e-9
	if sum < 0 || float64(sum) < least-slack || float64(sum) > most+slack {
		return fmt.Errorf("the sum is %d ns, but the buckets add up to %.0f to %.0f ns", sum, least, most)
	}
	if s := sumOfSquares; math.IsNaN(s) || math.IsInf(s, 0) || s < 0 {
		return fmt.Errorf("the sum of squares is %g", s)
	}
	return nil
}
