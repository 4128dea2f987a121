package stats

import (
	"fmt"
	"math"
)

// FormatLatency formats nanoseconds with two decimals in a fitting unit: 840ns, 8.21µs, 1.72ms.
func FormatLatency(ns int64) string {
	if ns < 1_000 {
		return fmt.Sprintf("%dns", ns)
	}
	for _, u := range []struct {
		name string
		ns   int64
	}{{"µs", 1_000}, {"ms", 1_000_000}} {
		// The unit is chosen after rounding: 999.999µs is 1.00ms, not 1000.00µs.
		if hundredths := roundTo(ns, u.ns/100); hundredths < 100_000 {
			return fmt.Sprintf("%d.%02d%s", hundredths/100, hundredths%100, u.name)
		}
	}
	hundredths := roundTo(ns, 10_000_000)
	return fmt.Sprintf("%d.%02ds", hundredths/100, hundredths%100)
}

// Micros formats nanoseconds in microseconds with two decimals, for a column of one unit.
func Micros(ns int64) string {
	hundredths := roundTo(ns, 10)
	return fmt.Sprintf("%d.%02d", hundredths/100, hundredths%100)
}

// FormatBitRate formats a bit rate in the appropriate decimal unit: 940Mb/s, 9.41Gb/s.
func FormatBitRate(bitsPerSecond int64) string {
	for _, u := range []struct {
		name string
		bits int64
	}{{"b/s", 1}, {"kb/s", 1_000}, {"Mb/s", 1_000_000}} {
		if whole := roundTo(bitsPerSecond, u.bits); whole < 1_000 {
			return fmt.Sprintf("%d%s", whole, u.name)
		}
	}
	hundredths := roundTo(bitsPerSecond, 10_000_000)
	return fmt.Sprintf("%d.%02dGb/s", hundredths/100, hundredths%100)
}

func roundTo(ns, unit int64) int64 {
	n := ns / unit
	if ns%unit >= unit-unit/2 {
		n++
	}
	return n
}

// FormatRatio formats a ratio: three decimals, or three digits below 0.1, rounded by round as in
// Outwards. Beside 1 it has as many more as it needs to stay on its side of 1.
func FormatRatio(v float64, round func(float64) float64) string {
	const fewest, most = 3, 9
	for digits := fewest; ; digits++ {
		scale := math.Pow10(digits)
		rounded := Outwards(v*scale, round) / scale
		if hidden := rounded == 1 && math.Abs(v-1) >= 1/math.Pow10(most); digits == most || !hidden && v*scale >= 100 {
			return fmt.Sprintf("%.*f", digits, rounded)
		}
	}
}

// Outwards rounds a bound away from its value: round is math.Floor for a lower bound, math.Ceil for
// an upper one, but not by what floating point differs from a whole number.
func Outwards(v float64, round func(float64) float64) float64 {
	if nearest := math.Round(v); math.Abs(v-nearest) < 1e-6 {
		return nearest
	}
	return round(v)
}
