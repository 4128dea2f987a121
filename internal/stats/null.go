package stats

import (
	"math/big"
	"sync"
)

// OneIn is a probability of error as one in N, with N at least 2: 20 is 5 %. All error probabilities of this package are exact
// fractions of this form: 3 rounds against 3 can decide at one in 20, but at no lower probability.
type OneIn int64

// The error probabilities of the gate.
const (
	// OneLook is the probability for a verdict on data that are judged once.
	OneLook OneIn = 20
	// TwoLooks is the probability of each of two verdicts, the second of which evaluates more rounds because the first did
	// not decide.
	TwoLooks OneIn = 40
)

// Among returns the probability for each of a number of comparisons that limits the probability of all of them together to a
// (Bonferroni).
func (a OneIn) Among(comparisons int) OneIn { return a * OneIn(max(comparisons, 1)) }

// MannWhitney returns the largest k with P(U <= k) <= alpha, where U is the Mann-Whitney statistic of m and n observations
// of one distribution: the number of pairs in which the first is larger. It is -1 if even U = 0 is more probable
// than alpha: there are too few observations to show a difference.
//
// The distribution is exact for observations without ties. How ties are treated depends on how k is used: see Tally.
func MannWhitney(m, n int, alpha OneIn) int {
	key := mannWhitneyKey{min(m, n), max(m, n), alpha}
	if k, known := mannWhitneyKnown.Load(key); known {
		return k.(int)
	}
	k := mannWhitney(key.m, key.n, alpha)
	mannWhitneyKnown.Store(key, k)
	return k
}

type mannWhitneyKey struct {
	m, n  int
	alpha OneIn
}

// mannWhitneyKnown caches results: 20 and 20 take half a millisecond, and all comparisons of a benchmark need the same values.
var mannWhitneyKnown sync.Map

func mannWhitney(m, n int, alpha OneIn) int {
	// Half of all arrangements have U <= m*n/2, which is more than any alpha.
	half := m * n / 2
	// ways[u] is the number of arrangements with U = u: the coefficients of the Gaussian binomial, the product of
	// (1 - q^(n+i)) / (1 - q^i) for i from 1 to m, multiplied and divided as power series.
	ways := make([]big.Int, half+1)
	ways[0].SetInt64(1)
	for i := 1; i <= m; i++ {
		for u := half; u >= n+i; u-- {
			ways[u].Sub(&ways[u], &ways[u-n-i])
		}
		for u := i; u <= half; u++ {
			ways[u].Add(&ways[u], &ways[u-i])
		}
	}
	all := new(big.Int).Binomial(int64(m+n), int64(m))
	return largest(alpha, all, half, func(u int) *big.Int { return &ways[u] })
}

// Sign returns the largest a with P(B <= a) <= alpha, where B is the number of n observations that lie beyond their true median.
// It is -1 if even B = 0 is more probable than alpha.
func Sign(n int, alpha OneIn) int {
	all := new(big.Int).Lsh(big.NewInt(1), uint(n))
	return largest(alpha, all, n, func(a int) *big.Int { return new(big.Int).Binomial(int64(n), int64(a)) })
}

// largest returns the largest k up to last with (ways(0) + ... + ways(k)) / all <= alpha, or -1.
func largest(alpha OneIn, all *big.Int, last int, ways func(int) *big.Int) int {
	var sum, scaled big.Int
	scale := big.NewInt(int64(alpha))
	for k := 0; k <= last; k++ {
		sum.Add(&sum, ways(k))
		if scaled.Mul(&sum, scale).Cmp(all) > 0 {
			return k - 1
		}
	}
	return last
}

// FewestRounds returns the smallest number of rounds on each side with which a comparison can decide at all.
func FewestRounds(alpha OneIn) int {
	return fewest(func(n int) bool { return MannWhitney(n, n, alpha) >= 0 })
}

// FewestRoundsForLevel returns the smallest number of rounds with which an absolute limit can be decided at all.
func FewestRoundsForLevel(alpha OneIn) int {
	return fewest(func(n int) bool { return Sign(n, alpha) >= 0 })
}

// fewest returns the smallest sufficient n. 64 rounds are sufficient for any probability that fits in 64 bits.
func fewest(enough func(n int) bool) int {
	n := 1
	for n < 64 && !enough(n) {
		n++
	}
	return n
}
