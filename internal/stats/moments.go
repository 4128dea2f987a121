package stats

import (
	"fmt"
	"math"
)

// Mean returns the mean of count samples, rounded to the nearest integer; 0 without samples.
func Mean(sum, count int64) int64 {
	if count <= 0 {
		return 0
	}
	mean := sum / count
	if sum%count >= count-count/2 {
		mean++
	}
	return mean
}

// StdDev returns the standard deviation (with n-1) of samples, rounded to the nearest; 0 below two.
func StdDev(sum int64, sumOfSquares float64, count int64) int64 {
	if count < 2 {
		return 0
	}
	n := float64(count)
	mean := float64(sum) / n
	// Rounding can make the difference of equal samples slightly negative.
	variance := max(sumOfSquares-mean*float64(sum), 0) / (n - 1)
	return int64(math.Round(math.Sqrt(variance)))
}

// HalfRTT halves nanoseconds, rounded down as sfnt-pingpong does. The order of values stays.
func HalfRTT(rtt int64) int64 { return rtt / 2 }

// Plausible returns an error if samples in these buckets, at least one, cannot have these extremes
// and sums. Extremes outside of lowest and highest are in no bucket.
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
