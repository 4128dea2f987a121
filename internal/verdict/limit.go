package verdict

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/internal/stats"
)

// The limits of rules are text in the API: numbers with their units. They are read exactly, or refused; the same
// patterns stand in the API's validation.

// maxLatency is the longest latency that a histogram holds, in nanoseconds.
const maxLatency = 60_000_000_000

// unit is a name for a number of the smallest unit, 10 to the power of its digits.
type unit struct {
	name   string
	digits int
}

var (
	// latencyUnits are those of nanoseconds. Of the two letters for micro the first is the sign and the second Greek.
	latencyUnits = []unit{{"ns", 0}, {"us", 3}, {"µs", 3}, {"μs", 3}, {"ms", 6}, {"s", 9}}
	// rateUnits are those of bits per second.
	rateUnits = []unit{{"kb/s", 3}, {"Mb/s", 6}, {"Gb/s", 9}, {"Tb/s", 12}, {"b/s", 0}}
)

// ParseLatency reads a latency such as 2us, 1.75ms or 840ns: whole nanoseconds from 1ns to 60s.
func ParseLatency(text string) (int64, error) {
	ns, ok := parseUnits(text, latencyUnits)
	if !ok || ns < 1 || ns > maxLatency {
		return 0, fmt.Errorf("%q is no latency; give whole nanoseconds from 1ns to 60s, such as 2us or 1.75ms", text)
	}
	return ns, nil
}

// ParseBitRate reads a rate such as 9Gb/s or 940Mb/s: whole bits per second, above 0 and below 1000Tb/s.
func ParseBitRate(text string) (int64, error) {
	bits, ok := parseUnits(text, rateUnits)
	if !ok || bits < 1 || bits >= 1_000_000_000_000_000 {
		return 0, fmt.Errorf("%q is no bit rate; give whole bits above 0b/s and below 1000Tb/s, such as 9Gb/s", text)
	}
	return bits, nil
}

// ParsePercent reads a percentage such as 5% or 2.5%, with at most three decimals, below a number of percent.
func ParsePercent(text string, below int64) (stats.Tolerance, error) {
	thousandths, ok := parseUnits(text, []unit{{"%", 3}})
	if !ok || thousandths >= below*1000 {
		return 0, fmt.Errorf("%q is no percentage; give at most three decimals and less than %d%%, such as 2.5%%", text, below)
	}
	return stats.Tolerance(thousandths), nil
}

// ParseMessages reads a number of messages, up to 999999999999.
func ParseMessages(text string) (int64, error) {
	n, ok := parseDecimal(text, 0)
	if !ok || n > 999_999_999_999 {
		return 0, fmt.Errorf("%q is no number of messages; give digits only, such as 0 or 10", text)
	}
	return n, nil
}

// parseUnits reads a decimal number with one of the units, of which the first that fits is meant.
func parseUnits(text string, units []unit) (int64, bool) {
	for _, u := range units {
		if number, found := strings.CutSuffix(text, u.name); found {
			if value, ok := parseDecimal(number, u.digits); ok {
				return value, true
			}
		}
	}
	return 0, false
}

// parseDecimal reads a plain decimal number and shifts it by a number of digits. It takes no sign, no exponent, no
// leading zero before another digit, and no more decimals than the shift makes whole.
func parseDecimal(text string, digits int) (int64, bool) {
	integer, fraction, hasPoint := strings.Cut(text, ".")
	switch {
	case !isDigits(integer) || len(integer) > 1 && integer[0] == '0':
		return 0, false
	case hasPoint && (!isDigits(fraction) || len(fraction) > digits):
		return 0, false
	}
	value, err := strconv.ParseInt(integer+fraction+strings.Repeat("0", digits-len(fraction)), 10, 64)
	return value, err == nil
}

func isDigits(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return text != ""
}
