package stats

import (
	"math"
	"math/big"
	"slices"
	"sync"
)

// OneIn is an error of exactly one in N, at least 2: 4+4 rounds can decide at 40, 3+3 cannot.
type OneIn int64

// EachSide is the error of each bound of a shown interval, and of each verdict: both together are
// 95 % confidence, and two looks at growing data err at most one in 20 on each side.
const EachSide OneIn = 40

// Among returns each comparison's probability that limits all together to a (Bonferroni).
func (a OneIn) Among(comparisons int) OneIn { return a * OneIn(max(comparisons, 1)) }

// Hochberg returns the significance at which comparisons differ so that EachSide bounds any wrong
// one, 0 if none does, and that of all together: the r-th from the end needs r times EachSide.
func Hochberg(all []OneIn) (at, together OneIn) {
	sorted := slices.Sorted(slices.Values(all))
	for i, one := range slices.Backward(sorted) {
		r := OneIn(i + 1)
		together = max(together, one/r)
		if one/r >= EachSide {
			at = r * EachSide
		}
	}
	return at, together
}

// Null is a count's distribution without a difference: k has at most one in element k, down to two.
type Null []OneIn

// Most returns the largest k with P(count <= k) <= alpha; -1 with too few observations.
func (n Null) Most(alpha OneIn) int {
	k := len(n) - 1
	for k >= 0 && n[k] < alpha {
		k--
	}
	return k
}

// OneIn returns one in how many, rounded down, has a count of at most k.
func (n Null) OneIn(k int) OneIn {
	if k < len(n) {
		return n[k]
	}
	return 1
}

// Pairs returns the distribution of Mann-Whitney's U of m and n observations; see Tally.
func Pairs(m, n int) Null { return known(nullKey{min(m, n), max(m, n)}, pairs) }

// Signs returns the distribution of the number of n observations that lie beyond their true median.
func Signs(n int) Null { return known(nullKey{-1, n}, signs) }

// MannWhitney returns the largest k with P(U <= k) <= alpha; -1 if there is none.
func MannWhitney(m, n int, alpha OneIn) int { return Pairs(m, n).Most(alpha) }

// Sign returns the largest k with P(at most k of n beyond their median) <= alpha, or -1.
func Sign(n int, alpha OneIn) int { return Signs(n).Most(alpha) }

type nullKey struct{ m, n int }

// nulls caches distributions: 20 and 20 take half a millisecond, and comparisons repeat.
var nulls sync.Map

func known(key nullKey, compute func(m, n int) Null) Null {
	if n, known := nulls.Load(key); known {
		return n.(Null)
	}
	n := compute(key.m, key.n)
	nulls.Store(key, n)
	return n
}

func pairs(m, n int) Null {
	// Half of all arrangements have U <= m*n/2, which is more than any alpha.
	half := m * n / 2
	// ways[u] counts arrangements with U = u: coefficients of the Gaussian binomial, the product of
	// (1 - q^(n+i)) / (1 - q^i) for i from 1 to m, as power series.
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
	return newNull(ways, new(big.Int).Binomial(int64(m+n), int64(m)))
}

func signs(_, n int) Null {
	ways := make([]big.Int, n/2+1)
	for a := range ways {
		ways[a].Binomial(int64(n), int64(a))
	}
	return newNull(ways, new(big.Int).Lsh(big.NewInt(1), uint(n)))
}

// newNull returns the distribution of a count that ways[k] of all equally probable cases have.
func newNull(ways []big.Int, all *big.Int) Null {
	out := make(Null, len(ways))
	var sum, oneIn big.Int
	for k := range ways {
		out[k] = math.MaxInt64
		if oneIn.Quo(all, sum.Add(&sum, &ways[k])); oneIn.IsInt64() {
			out[k] = OneIn(oneIn.Int64())
		}
	}
	return out
}

// ShareBound bounds the true share of count of n, 95 % one-sided (Clopper-Pearson).
func ShareBound(count, n int) float64 {
	low, high := 0.0, 1.0
	for count < n && high-low > 1e-9 {
		share := (low + high) / 2
		atMost, ways := 0.0, 0.0 // The logarithm of the number of ways, because powers underflow.
		for k := range count + 1 {
			atMost += math.Exp(ways + float64(k)*math.Log(share) + float64(n-k)*math.Log1p(-share))
			ways += math.Log(float64(n-k) / float64(k+1))
		}
		if atMost > 0.05 {
			low = share
		} else {
			high = share
		}
	}
	return high
}

// EachPair returns the distribution of Pairs for as many rounds on each side.
func EachPair(n int) Null { return Pairs(n, n) }

// FewestRounds returns the fewest rounds that can decide anything: with Signs an absolute limit,
// with EachPair a comparison. 64 suffice for any probability that fits in 64 bits.
func FewestRounds(null func(n int) Null, alpha OneIn) int {
	n := 1
	for n < 64 && null(n).Most(alpha) < 0 {
		n++
	}
	return n
}
