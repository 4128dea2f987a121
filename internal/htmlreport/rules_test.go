package htmlreport

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/compare"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// TestRulePictures draws the limit of each kind of rule in the middle, and the estimate and its interval on their sides of it.
func TestRulePictures(t *testing.T) {
	rule := func(metric v1alpha1.Metric, r v1alpha1.Rule) v1alpha1.Rule { r.Metric = metric; return r }
	limit := func(text string) v1alpha1.Limit { return v1alpha1.Limit{Text: text} }
	for name, tt := range map[string]struct {
		rule                   v1alpha1.Rule
		text                   string
		estimate, lower, upper string
		unit                   v1alpha1.Unit
		marks                  []string
		want                   bar
	}{
		"a latency": {
			rule("p99", v1alpha1.Rule{Max: limit("10us")}), "p99 max 10µs", "8000", "8000", "10000", v1alpha1.UnitNanoseconds,
			[]string{"8.000 µs", "10.000 µs", "12.500 µs"}, bar{From: 0, Width: 50, At: 0, HasInterval: true},
		},
		"a latency without a bound": {
			rule("p99", v1alpha1.Rule{Max: limit("10us")}), "p99 max 10µs", "", "11000", "", v1alpha1.UnitNanoseconds,
			[]string{"9.091 µs", "10.000 µs", "11.000 µs"}, bar{From: 100, At: 100, HasInterval: true, Open: ends{Right: true}, Beyond: ends{Right: true}},
		},
		"a ratio": {
			rule("p50", v1alpha1.Rule{MaxIncrease: limit("10%")}), "p50 maxIncrease 10%", "1.1", "1", "1.21", v1alpha1.UnitNanoseconds,
			[]string{"1 ×", "1.1 ×", "1.21 ×"}, bar{From: 0, Width: 100, At: 50, HasInterval: true},
		},
		"a throughput far below its limit": {
			rule("throughput", v1alpha1.Rule{Min: limit("1G")}), "throughput min " + stats.FormatBitRate(1e9), "1000", "900", "1100", v1alpha1.UnitBitsPerSecond,
			[]string{stats.FormatBitRate(1e7), stats.FormatBitRate(1e9), stats.FormatBitRate(1e11)}, bar{At: 0, HasInterval: true, Beyond: ends{Left: true}},
		},
		"no message may be lost": {
			rule("lost", v1alpha1.Rule{Max: limit("0")}), "lost max 0", "3", "", "4", v1alpha1.UnitMessages,
			[]string{"-4", "0", "4"}, bar{From: 0, Width: 100, At: 87.5, HasInterval: true, Open: ends{Left: true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := v1alpha1.RuleVerdict{Rule: tt.text, Estimate: tt.estimate, Lower: tt.lower, Upper: tt.upper, Unit: tt.unit, CandidateRounds: 10}
			got := judgedRules([]v1alpha1.Rule{tt.rule}, []v1alpha1.RuleVerdict{v})[0]
			if got.Bar == nil {
				t.Fatal("there is no picture")
			}
			if diff := cmp.Diff(tt.want, *got.Bar); diff != "" || !slices.Equal(got.Marks, tt.marks) {
				t.Errorf("marks %q, want %q; %s", got.Marks, tt.marks, diff)
			}
			if got.Least() != (tt.rule.Metric == "throughput") {
				t.Errorf("lower values are beyond the limit: %v", got.Least())
			}
		})
	}
	other := v1alpha1.RuleVerdict{Rule: "p99 max 9µs", Estimate: "8000", Unit: v1alpha1.UnitNanoseconds, CandidateRounds: 10}
	if got := judgedRules([]v1alpha1.Rule{rule("p99", v1alpha1.Rule{Max: limit("10us")})}, []v1alpha1.RuleVerdict{other}); got[0].Bar != nil {
		t.Error("a verdict of earlier criteria has a picture with the limit of the present ones")
	}
}

// TestBarsBeyondTheAxis tells a value that is farther than the axis from one at its end, and from a side without a bound.
func TestBarsBeyondTheAxis(t *testing.T) {
	a := axis(100)
	for name, tt := range map[string]struct {
		ratio, lower, upper float64
		want                bar
	}{
		"at the end": {100, 10, 100, bar{From: 75, Width: 25, At: 100, HasInterval: true}},
		"farther":    {5.9e10, 10, 6e10, bar{From: 75, Width: 25, At: 100, HasInterval: true, Beyond: ends{Right: true}}},
		"no bound":   {10, 1, 0, bar{From: 50, Width: 50, At: 75, HasInterval: true, Open: ends{Right: true}}},
	} {
		f := compare.Figure{Ratio: &tt.ratio, Lower: &tt.lower, Upper: &tt.upper}
		if tt.upper == 0 {
			f.Upper = nil
		}
		if diff := cmp.Diff(&tt.want, a.bar(f)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestColoursOnGreyPaper tells fast pairs from slow ones without colours: where the lightness is nearly the same, a fast one has a mark.
func TestColoursOnGreyPaper(t *testing.T) {
	style, err := os.ReadFile("assets/style.css")
	if err != nil {
		t.Fatal(err)
	}
	lightness := func(class int) float64 {
		m := regexp.MustCompile(fmt.Sprintf(`\.h%d \{ background: #(..)(..)(..);`, class)).FindSubmatch(style)
		if m == nil {
			t.Fatalf("no colour of .h%d", class)
		}
		y := 0.0
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			v, err := strconv.ParseUint(string(m[i+1]), 16, 8)
			if err != nil {
				t.Fatal(err)
			}
			y += weight * math.Pow((float64(v)/255+0.055)/1.055, 2.4)
		}
		return 116*math.Cbrt(y) - 16
	}
	marked := map[int]bool{}
	for _, m := range regexp.MustCompile(`((?:\.h\d, )*\.h\d) \{ background-image:`).FindAllStringSubmatch(string(style), -1) {
		for _, class := range regexp.MustCompile(`\d`).FindAllString(m[1], -1) {
			n, _ := strconv.Atoi(class)
			marked[n] = true
		}
	}
	const middle = 3 // the colour of the median
	for fast := range middle {
		for slow := middle + 1; slow <= len(steps); slow++ {
			if d := math.Abs(lightness(fast) - lightness(slow)); d < 3 && !marked[fast] {
				t.Errorf("on grey paper, .h%d and .h%d differ by %.1f", fast, slow, d)
			}
		}
	}
}
