package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestVonNeumann compares the ratio with published critical values: the largest ratio, in hundredths, that at most 1 in 20 orders of n
// independent rounds have is that of Bartels (1982).
func TestVonNeumann(t *testing.T) {
	for n, critical := range map[int]float64{7: 0.86, 8: 0.93, 9: 0.98} {
		order := make([]float64, n)
		for i := range order {
			order[i] = float64(i)
		}
		var all, sum, within, beyond float64
		var permute func(k int)
		permute = func(k int) {
			if k == n {
				steps, spread := vonNeumann(order)
				all, sum = all+1, sum+steps/spread
				if steps/spread <= critical+0.005 {
					within++
				}
				if steps/spread <= critical+0.035 {
					beyond++
				}
				return
			}
			for i := k; i < n; i++ {
				order[k], order[i] = order[i], order[k]
				permute(k + 1)
				order[k], order[i] = order[i], order[k]
			}
		}
		permute(0)
		if mean := sum / all; math.Abs(mean-2) > 1e-9 {
			t.Errorf("%d rounds: the mean ratio is %g, not 2", n, mean)
		}
		if within/all > 0.05 || beyond/all <= 0.05 {
			t.Errorf("%d rounds: %.4f of all orders have at most %.2f, and %.4f slightly more", n, within/all, critical, beyond/all)
		}
	}
}

// remember draws rounds that correlate with the one before.
func remember(random *rand.Rand, n int, r float64) []float64 {
	out, x := make([]float64, n), random.NormFloat64()
	for i := range out {
		out[i] = x
		x = r*x + math.Sqrt(1-r*r)*random.NormFloat64()
	}
	return out
}

func TestMemory(t *testing.T) {
	increasing := func(n int) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = float64(i)
		}
		return out
	}
	step := slices.Concat(make([]float64, 10), []float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1})
	for _, c := range []struct {
		name                string
		n                   int
		series              [][]float64
		correlation, factor float64
	}{
		{"steadily slower", 20, [][]float64{increasing(20)}, 0.78, 3.02},
		{"few rounds show little", 6, [][]float64{increasing(6)}, 0.25, 1.30},
		{"too few rounds", 5, [][]float64{increasing(5)}, 0, 1},
		{"in turns slower and faster", 20, [][]float64{{1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2}}, 0, 1},
		{"all equal", 20, [][]float64{make([]float64, 20)}, 0, 1},
		{"a step", 20, [][]float64{step}, 0.78, 3.02},
		{"a lost round", 6, [][]float64{{1, 3, 2, Infinite, 1, 3}}, 0, 1},
		{"no series", 6, nil, 0, 1},
	} {
		r, factor := Memory(c.n, c.series...)
		if math.Abs(r-c.correlation) > 0.005 || math.Abs(factor-c.factor) > 0.005 {
			t.Errorf("%s: %.3f, %.3f, not %.2f, %.2f", c.name, r, factor, c.correlation, c.factor)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		r float64
		// least and most are limits of the mean estimate, and wide is the largest share of estimates above 0.4.
		least, most, wide float64
	}{{0, 0, 0.1, 0.05}, {0.3, 0.2, 0.35, 0.4}, {0.6, 0.45, 0.65, 1}} {
		sum, wide := 0.0, 0.0
		const draws = 2000
		for range draws {
			series := remember(random, 20, c.r)
			r, factor := Memory(20, series)
			for i := range series {
				series[i] = math.Exp(series[i])
			}
			if again, _ := Memory(20, series); again != r || factor < 1 {
				t.Fatalf("%g after a monotone change, not %g; factor %g", again, r, factor)
			}
			if sum += r / draws; r > 0.4 {
				wide += 1. / draws
			}
		}
		if sum < c.least || sum > c.most || wide > c.wide {
			t.Errorf("correlation %g: the mean estimate is %.3f, and %.3f of them are above 0.4", c.r, sum, wide)
		}
	}
}
