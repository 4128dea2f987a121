package stats

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"testing"
)

func TestMannWhitney(t *testing.T) {
	cases := []struct {
		m, n  int
		alpha OneIn
		want  int
	}{
		// The table in the description of the method.
		{5, 5, 20, 4}, {8, 8, 20, 15}, {10, 10, 20, 27}, {5, 10, 20, 11},
		// Exactly one in 20, which a float would represent only by luck.
		{3, 3, 20, 0}, {3, 3, 21, -1}, {3, 3, EachSide, -1},
		// What a reference of 12, 18 or 36 rounds allows in 6 and in 20 rounds.
		{12, 6, EachSide, 14}, {18, 6, EachSide, 24}, {36, 6, EachSide, 53}, {12, 20, EachSide, 69}, {36, 20, EachSide, 245}, {6, 6, EachSide, 5},
		// Published tables: one-sided 0.05 and 0.025.
		{20, 20, 20, 138}, {20, 20, EachSide, 127}, {4, 4, EachSide, 0}, {10, 10, EachSide, 23}, {7, 9, 20, 15},
		{2, 5, 20, 0}, {2, 4, 20, -1}, {1, 19, 20, 0}, {1, 18, 20, -1},
		{0, 10, 20, -1}, {0, 0, 20, -1}, {1, 1, 20, -1},
	}
	for _, c := range cases {
		for range 2 { // The second answer comes from the cache.
			if got := MannWhitney(c.m, c.n, c.alpha); got != c.want {
				t.Errorf("%d and %d at one in %d: got %d, want %d", c.m, c.n, c.alpha, got, c.want)
			}
			if got := MannWhitney(c.n, c.m, c.alpha); got != c.want {
				t.Errorf("%d and %d at one in %d: got %d, want %d", c.n, c.m, c.alpha, got, c.want)
			}
		}
	}
}

// TestMannWhitneyAgainstEnumeration counts U in every possible order of m and n observations.
func TestMannWhitneyAgainstEnumeration(t *testing.T) {
	for m := 1; m <= 7; m++ {
		for n := m; n <= 8; n++ {
			ways := make([]int64, m*n+1)
			var all int64
			for order := range uint64(1) << (m + n) {
				if bits.OnesCount64(order) != m {
					continue
				}
				all++
				u, others := 0, 0
				for i := range m + n {
					if order>>i&1 == 0 {
						others++
					} else {
						u += others
					}
				}
				ways[u]++
			}
			for _, alpha := range []OneIn{2, 3, 10, 20, 40, 100, 1000} {
				want, sum := -1, int64(0)
				for u := range ways {
					if sum += ways[u]; sum*int64(alpha) > all {
						break
					}
					want = u
				}
				// No alpha reaches beyond half of the distribution.
				want = min(want, m*n/2)
				if want >= 0 && (pairs(m, n).OneIn(want) < alpha || pairs(m, n).OneIn(want+1) >= alpha && want < m*n/2) {
					t.Errorf("%d and %d: one in %d has at most %d", m, n, pairs(m, n).OneIn(want), want)
				}
				if got := pairs(m, n).Most(alpha); got != want {
					t.Errorf("%d and %d at one in %d: got %d, enumerated %d", m, n, alpha, got, want)
				}
			}
		}
	}
}

func TestSign(t *testing.T) {
	want := map[int]int{
		0: -1, 1: -1, 2: -1, 3: -1, 4: -1, 5: 0, 6: 0, 7: 0, 8: 1, 9: 1, 10: 1, 11: 2, 12: 2, 13: 3, 14: 3, 15: 3, 16: 4, 17: 4,
		18: 5, 19: 5, 20: 5, 100: 41,
	}
	for n, a := range want {
		if got := Sign(n, 20); got != a {
			t.Errorf("%d rounds: got %d, want %d", n, got, a)
		}
	}
	// The definition, for every number of rounds that a benchmark may have.
	for n := range 201 {
		all := new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), uint(n)))
		probability := func(a int) *big.Rat {
			sum := new(big.Int)
			for i := 0; i <= a; i++ {
				sum.Add(sum, new(big.Int).Binomial(int64(n), int64(i)))
			}
			return new(big.Rat).Quo(new(big.Rat).SetInt(sum), all)
		}
		a, alpha := Sign(n, EachSide), big.NewRat(1, int64(EachSide))
		if probability(a).Cmp(alpha) > 0 || probability(a+1).Cmp(alpha) <= 0 {
			t.Errorf("%d rounds: %d is not the largest", n, a)
		}
	}
}

func TestFewestRounds(t *testing.T) {
	cases := []struct {
		alpha        OneIn
		pairs, level int
	}{{20, 3, 5}, {EachSide, 4, 6}, {OneIn(20).Among(20), 6, 9}, {OneIn(20).Among(1600), 9, 15}, {2, 1, 1}, {1 << 62, 33, 62}}
	for _, c := range cases {
		if pairs, level := FewestRounds(EachPair, c.alpha), FewestRounds(Signs, c.alpha); pairs != c.pairs || level != c.level {
			t.Errorf("one in %d: got %d and %d rounds, want %d and %d", c.alpha, pairs, level, c.pairs, c.level)
		}
	}
	if OneIn(20).Among(0) != 20 || OneIn(20).Among(3) != 60 {
		t.Error("an alpha is divided among the comparisons")
	}
}

func BenchmarkMannWhitney(b *testing.B) {
	for _, n := range []int{10, 20, 100} {
		b.Run(fmt.Sprintf("%d+%d", n, n), func(b *testing.B) {
			for b.Loop() {
				pairs(n, n)
			}
		})
	}
}

func TestShareBound(t *testing.T) {
	for _, c := range []struct {
		count, n int
		want     float64
	}{{1, 20, 0.2161}, {0, 6, 0.3930}, {0, 11, 0.2384}, {1, 18, 0.2377}, {5, 20, 0.4556}, {6, 6, 1}, {0, 0, 1}, {100, 100, 1}, {99, 100, 0.9995}} {
		if got := ShareBound(c.count, c.n); math.Abs(got-c.want) > 5e-5 {
			t.Errorf("%d of %d: %.4f, want %.4f", c.count, c.n, got, c.want)
		}
	}
}

// A change of all comparisons needs no more rounds than a change of one, and more comparisons do not let a smaller change fail.
func TestHochberg(t *testing.T) {
	for name, c := range map[string]struct {
		beyond []OneIn
		at     OneIn
		all    OneIn
	}{
		"nothing":                    {nil, 0, 0},
		"one of one":                 {[]OneIn{40}, 40, 40},
		"not quite":                  {[]OneIn{39}, 0, 39},
		"one of two":                 {[]OneIn{1, 80}, 80, 40},
		"not quite one of two":       {[]OneIn{1, 79}, 0, 39},
		"both of two":                {[]OneIn{40, 40}, 40, 40},
		"two of three":               {[]OneIn{80, 1, 80}, 80, 40},
		"all, one of them by far":    {[]OneIn{1000, 40, 40}, 40, 333},
		"one by far fails alone":     {[]OneIn{1000, 39, 39}, 120, 333},
		"one of ten, and not enough": {[]OneIn{1, 1, 1, 1, 1, 1, 1, 1, 1, 399}, 0, 39},
	} {
		if at, all := Hochberg(c.beyond); at != c.at || all != c.all {
			t.Errorf("%s: at %d, and one in %d together, not %d and %d", name, at, all, c.at, c.all)
		}
	}
}
