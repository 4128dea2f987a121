package verdict

import (
	"math/big"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The patterns of the API's validation.
const (
	latencyPattern   = `^((0|[1-9][0-9]{0,10})ns|(0|[1-9][0-9]{0,7})([.][0-9]{1,3})?(us|µs|μs)|(0|[1-9][0-9]{0,4})([.][0-9]{1,6})?ms|(0|[1-9][0-9]?)([.][0-9]{1,9})?s)$`
	messagesPattern  = `^(0|[1-9][0-9]{0,11})$`
	increasePattern  = `^(0|[1-9][0-9]{0,3})([.][0-9]{1,3})?%$`
	decreasePattern  = `^(0|[1-9][0-9]?)([.][0-9]{1,3})?%$`
	bitRatePattern   = `^(0|[1-9][0-9]{0,2})([.][0-9]{1,12})?Tb/s$|^(0|[1-9][0-9]{0,5})([.][0-9]{1,9})?Gb/s$|^(0|[1-9][0-9]{0,8})([.][0-9]{1,6})?Mb/s$|^(0|[1-9][0-9]{0,11})([.][0-9]{1,3})?kb/s$|^(0|[1-9][0-9]{0,14})b/s$`
	noBitRatePattern = `^[0.]*[kMGT]?b/s$`
)

// TestPatternsAreTheAPIs holds the patterns of this test, with which the parsers agree, against those of the API.
func TestPatternsAreTheAPIs(t *testing.T) {
	types, err := os.ReadFile("../../api/v1alpha1/gate_types.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{latencyPattern, messagesPattern, increasePattern, decreasePattern, bitRatePattern, noBitRatePattern} {
		if !strings.Contains(string(types), `matches('`+pattern+`')`) {
			t.Errorf("the API does not validate with %s", pattern)
		}
	}
}

var (
	bitRate   = regexp.MustCompile(bitRatePattern)
	noBitRate = regexp.MustCompile(noBitRatePattern)
	number    = regexp.MustCompile(`^[0-9]+([.][0-9]+)?`)
)

// limits are the parsers with what they are held against: the API's pattern, and exact arithmetic.
var limits = []struct {
	name    string
	parse   func(string) (int64, error)
	matches func(string) bool
	units   map[string]int64
	min     int64
	below   int64
}{
	{"latency", ParseLatency, regexp.MustCompile(latencyPattern).MatchString,
		map[string]int64{"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}, 1, 60_000_000_001},
	{"bit rate", ParseBitRate, func(text string) bool { return bitRate.MatchString(text) && !noBitRate.MatchString(text) }, map[string]int64{"b/s": 1, "kb/s": 1e3, "Mb/s": 1e6, "Gb/s": 1e9, "Tb/s": 1e12}, 1, 1e15},
	{"messages", ParseMessages, regexp.MustCompile(messagesPattern).MatchString, map[string]int64{"": 1}, 0, 1e12},
	{"increase", func(text string) (int64, error) {
		t, err := ParsePercent(text, 10_000)
		return int64(t), err
	}, regexp.MustCompile(increasePattern).MatchString, map[string]int64{"%": 1000}, 0, 1e7},
	{"decrease", func(text string) (int64, error) {
		t, err := ParsePercent(text, 100)
		return int64(t), err
	}, regexp.MustCompile(decreasePattern).MatchString, map[string]int64{"%": 1000}, 0, 1e5},
}

// checkLimit holds every parser against a text, and returns the values of those that took it.
func checkLimit(t *testing.T, text string) map[string]int64 {
	got := map[string]int64{}
	for _, l := range limits {
		value, err := l.parse(text)
		want, ok := exactValue(text, l.units)
		ok = ok && l.matches(text) && want.Cmp(big.NewRat(l.min, 1)) >= 0 && want.Cmp(big.NewRat(l.below, 1)) < 0
		switch {
		case (err == nil) != ok:
			t.Errorf("%s %q: got %d and %v, but the API's pattern and range say %v", l.name, text, value, err, ok)
		case ok && new(big.Rat).SetInt64(value).Cmp(want) != 0:
			t.Errorf("%s %q: got %d, want %s", l.name, text, value, want)
		case ok:
			got[l.name] = value
		case value != 0:
			t.Errorf("%s %q: refused, and yet %d", l.name, text, value)
		case err != nil && strings.Contains(err.Error(), "\n"):
			t.Errorf("%s %q: more than one line: %v", l.name, text, err)
		}
	}
	return got
}

// exactValue is the number before the longest unit that fits, in the smallest unit.
func exactValue(text string, units map[string]int64) (*big.Rat, bool) {
	digits := number.FindString(text)
	scale, ok := units[text[len(digits):]]
	// A number beyond any limit costs much to multiply.
	if !ok || digits == "" || len(digits) > 40 {
		return nil, false
	}
	value, ok := new(big.Rat).SetString(digits)
	if !ok {
		return nil, false
	}
	return value.Mul(value, big.NewRat(scale, 1)), true
}

func TestParseLimits(t *testing.T) {
	cases := []struct {
		text string
		want map[string]int64
	}{
		{"2us", map[string]int64{"latency": 2_000}},
		{"1.75ms", map[string]int64{"latency": 1_750_000}},
		{"2.5µs", map[string]int64{"latency": 2_500}},
		{"2.5μs", map[string]int64{"latency": 2_500}},
		{"840ns", map[string]int64{"latency": 840}},
		{"60s", map[string]int64{"latency": 60_000_000_000}},
		{"0.000000001s", map[string]int64{"latency": 1}},
		{"9Gb/s", map[string]int64{"bit rate": 9_000_000_000}},
		{"9.41Gb/s", map[string]int64{"bit rate": 9_410_000_000}},
		{"940Mb/s", map[string]int64{"bit rate": 940_000_000}},
		{"1b/s", map[string]int64{"bit rate": 1}},
		{"5%", map[string]int64{"increase": 5_000, "decrease": 5_000}},
		{"2.5%", map[string]int64{"increase": 2_500, "decrease": 2_500}},
		{"0%", map[string]int64{"increase": 0, "decrease": 0}},
		{"100%", map[string]int64{"increase": 100_000}},
		{"9999.999%", map[string]int64{"increase": 9_999_999}},
		{"0", map[string]int64{"messages": 0}},
		{"999999999999", map[string]int64{"messages": 999_999_999_999}},
	}
	for _, c := range cases {
		got := checkLimit(t, c.text)
		if len(got) != len(c.want) {
			t.Errorf("%q: got %v, want %v", c.text, got, c.want)
		}
		for name, want := range c.want {
			if got[name] != want {
				t.Errorf("%q as %s: got %d, want %d", c.text, name, got[name], want)
			}
		}
	}
	for _, text := range []string{
		"", " ", "us", "2 us", " 2us", "2us ", "-2us", "+2us", "2e3ns", "0us", "0.0ms", "0.5ns", "1.0005us", "60.000000001s", "61s", "2m",
		"1h", "02us", ".5us", "2.us", "2,5us", "2US", "0x2us", "1_000ns", "٢us", "99999999999999999999ns", "inf", "NaN%", "5%%", "-5%", "05%",
		"10000%", "1.0001%", "5 %", "%", "9Gbps", "9gb/s", "9Gb", "0Gb/s", "0.0b/s", "1.5b/s", "1000Tb/s", "-1", "01", "1.0", "1000000000000", "5%\n",
	} {
		if got := checkLimit(t, text); len(got) > 0 {
			t.Errorf("%q was taken: %v", text, got)
		}
	}
}

func FuzzLimits(f *testing.F) {
	for _, text := range []string{"2us", "1.75ms", "2.5µs", "60s", "0ns", "9Gb/s", "999.999999999999Tb/s", "5%", "2.125%", "99.999%", "0", "17", "1.5.2us", "007", "٣%"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { checkLimit(t, text) })
}
