package stats

import (
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

// StdDev returns the standard deviation (with n-1) of count samples with a sum and a sum of squares, rounded to the
// nearest; 0 with fewer than two samples.
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
