package stats

import (
	"math"
	"testing"
)

func TestQuantileT(t *testing.T) {
	for _, c := range []struct {
		exceeds       OneIn
		degrees, want float64
	}{{40, 6, 2.4469}, {40, 20, 2.0860}, {40, 1e6, 1.95997}, {20, 10, 1.8125}, {200, 6, 3.7074}, {2000, 6, 5.9588}, {100, 7, 2.9980}} {
		if got := QuantileT(c.exceeds, c.degrees); math.Abs(got-c.want) > 0.012*c.want {
			t.Errorf("1 in %d with %g degrees: %.4f, want %.4f", c.exceeds, c.degrees, got, c.want)
		}
	}
	if got := QuantileT(40, 6); math.Abs(got-2.4469) > 0.001 {
		t.Errorf("1 in 40 with 6 degrees: %.4f", got)
	}
}

// TestBetween uses the vectors of the method: 12 rounds of one accepted boot, SD 1.2 % with 20 degrees of freedom, tolerance 5 %.
func TestBetween(t *testing.T) {
	rounds := func(values ...int64) (all []Observation) {
		for _, v := range values {
			all = append(all, Exact(v))
		}
		return all
	}
	reference := rounds(9180, 9205, 9170, 9240, 9195, 9210, 9188, 9222, 9176, 9231, 9199, 9215)
	k := MannWhitney(12, 6, 40)
	cases := map[string]struct {
		candidate              []Observation
		half                   float64
		estimate, lower, upper float64
	}{
		"one boot":          {rounds(9310, 9295, 9342, 9330, 9288, 9325), 0, 1.0123, 1.0095, 1.0149},
		"another boot":      {rounds(9310, 9295, 9342, 9330, 9288, 9325), 0.012 * QuantileT(40, 20), 1.0123, 0.9872, 1.0381},
		"a slow round":      {rounds(9310, 9295, 9342, 9330, 9288, 15600), 0.012 * QuantileT(40, 20), 1.0129, 0.9877, 1.0390},
		"a slower one":      {rounds(9910, 9895, 9942, 9930, 9888, 9925), 0.012 * QuantileT(40, 20), 1.0776, 1.0508, 1.1050},
		"messages are lost": {rounds(Infinite, Infinite, Infinite, Infinite, Infinite, Infinite), 0.02, math.Inf(1), math.Inf(1), math.Inf(1)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := Ratios(reference, c.candidate, k, k).Widen(1, c.half)
			for i, v := range []float64{b.Estimate, b.Lower, b.Upper} {
				if want := []float64{c.estimate, c.lower, c.upper}[i]; v != want && math.Abs(v-want) > 0.00011 {
					t.Errorf("%v, want %.4f [%.4f, %.4f]", b, c.estimate, c.lower, c.upper)
				}
			}
		})
	}
	sigmas := map[string]struct {
		b              Between
		sigma, degrees float64
	}{
		"assumed":                        {Between{}, 0.0125, 6},
		"too few differences":            {Between{SD: 1, Differences: 3}, 0.0125, 6},
		"many differences":               {Between{SD: 0.01, Differences: 200}, math.Sqrt(6./56*0.0125*0.0125 + 50./56*0.01*0.01), 56},
		"a node whose boots differ more": {Between{SD: 0.01, Differences: 1e9, Own: []float64{0.03, 0.03, -0.03, 0.03, 0.03, 0.03}}, math.Sqrt((0.0001 + 6*0.0009) / 7), 0},
		"one that was once far away":     {Between{SD: 0.01, Differences: 1e9, Own: []float64{5}}, math.Sqrt((0.0001 + 0.0064) / 2), 0},
		"a coarse clock":                 {Between{SD: 0.01, Differences: 1e9, Step: 0.1}, 0.1 / math.Sqrt(12), 0},
	}
	for name, c := range sigmas {
		t.Run(name, func(t *testing.T) {
			if sigma, degrees := c.b.Sigma(5000); math.Abs(sigma-c.sigma) > 1e-6 || c.degrees != 0 && degrees != c.degrees {
				t.Errorf("%.5f with %g, want %.5f with %g", sigma, degrees, c.sigma, c.degrees)
			}
		})
	}
}

// Bounds around 0 or around no number have no logarithm: they stay as they are, so that no verdict compares with NaN.
func TestWidenWithoutALogarithm(t *testing.T) {
	for _, b := range []Bounds{{}, {Lower: 0, Upper: 5}, {Estimate: math.Inf(1), Lower: 1, Upper: math.Inf(1)}} {
		for _, by := range [][2]float64{{2, 0.1}, {1, 0.1}, {2, 0}, {1, 0}} {
			if got := b.Widen(by[0], by[1]); got != b {
				t.Errorf("%+v becomes %+v", b, got)
			}
		}
	}
	nan := Bounds{Estimate: math.NaN(), Lower: 1, Upper: 2}
	if got := nan.Widen(2, 0.1); got.Lower != 1 || got.Upper != 2 {
		t.Errorf("%+v", got)
	}
	one := Bounds{Estimate: 1, Lower: 1, Upper: 1}
	if got := one.Widen(1, 0.1); !(got.Lower < 1 && got.Upper > 1) {
		t.Errorf("%+v", got)
	}
}
