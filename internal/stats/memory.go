package stats

import "math"

// Memory estimates the correlation of successive rounds from series' ranks in time (von Neumann's
// ratio, 2 if independent), and the factor, at least 1, by which an interval of n rounds is too
// narrow. It is 0 below 6 rounds, at most 1 - 4.5/n: few rounds show little.
func Memory(n int, series ...[]float64) (correlation, factor float64) {
	var steps, spread float64
	for _, s := range series {
		a, b := vonNeumann(s)
		steps, spread = steps+a, spread+b
	}
	// expected is what the sums of the series would be if rounds correlated by r, up to a factor.
	expected := func(r float64) (steps, spread float64) {
		for _, s := range series {
			all := float64(len(s))
			steps, spread = steps+2*(1-r)*(all-1), spread+all-inflation(r, all)
		}
		return steps, spread
	}
	for percent := 1; n >= 6 && percent <= 100-450/n; percent++ {
		next := float64(percent) / 100
		if a, b := expected(next); steps*b >= a*spread {
			break
		}
		correlation = next
	}
	of := inflation(correlation, float64(n))
	return correlation, math.Sqrt(of * float64(n-1) / (float64(n) - of))
}

// inflation returns the factor of a mean of n's variance by successive rounds' correlation.
func inflation(r, n float64) float64 {
	return (1+r)/(1-r) - 2*r*(1-math.Pow(r, n))/(n*(1-r)*(1-r))
}

// vonNeumann sums ranks' squared steps and deviations, in proportion to a series' length.
func vonNeumann(series []float64) (steps, spread float64) {
	n, before := float64(len(series)), 0.0
	for i, a := range series {
		rank := (1 - n) / 2
		for _, b := range series {
			switch {
			case b < a:
				rank++
			case b == a:
				rank += 0.5
			}
		}
		rank -= 0.5 // A round is equal to itself.
		if i > 0 {
			steps += (rank - before) * (rank - before) / (n * n)
		}
		before, spread = rank, spread+rank*rank/(n*n)
	}
	return steps, spread
}

func Values(rounds []Observation) []float64 {
	values := make([]float64, len(rounds))
	for i, r := range rounds {
		values[i] = float64(r.Value)
	}
	return values
}
