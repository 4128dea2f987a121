package stats

import (
	"fmt"
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
		{5, 5, OneLook, 4}, {8, 8, OneLook, 15}, {10, 10, OneLook, 27}, {5, 10, OneLook, 11},
		// Exactly one in 20, which a float would represent only by luck.
		{3, 3, OneLook, 0}, {3, 3, 21, -1}, {3, 3, TwoLooks, -1},
		// Published tables: one-sided 0.05 and 0.025.
		{20, 20, OneLook, 138}, {20, 20, TwoLooks, 127}, {4, 4, TwoLooks, 0}, {10, 10, TwoLooks, 23}, {7, 9, OneLook, 15},
		{2, 5, OneLook, 0}, {2, 4, OneLook, -1}, {1, 19, OneLook, 0}, {1, 18, OneLook, -1},
		{0, 10, OneLook, -1}, {0, 0, OneLook, -1}, {1, 1, OneLook, -1},
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
				if got := mannWhitney(m, n, alpha); got != want {
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
		if got := Sign(n, OneLook); got != a {
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
		a, alpha := Sign(n, TwoLooks), big.NewRat(1, int64(TwoLooks))
		if probability(a).Cmp(alpha) > 0 || probability(a+1).Cmp(alpha) <= 0 {
			t.Errorf("%d rounds: %d is not the largest", n, a)
		}
	}
}

func TestFewestRounds(t *testing.T) {
	cases := []struct {
		alpha        OneIn
		pairs, level int
	}{{OneLook, 3, 5}, {TwoLooks, 4, 6}, {OneLook.Among(20), 6, 9}, {OneLook.Among(1600), 9, 15}, {2, 1, 1}, {1 << 62, 33, 62}}
	for _, c := range cases {
		if pairs, level := FewestRounds(c.alpha), FewestRoundsForLevel(c.alpha); pairs != c.pairs || level != c.level {
			t.Errorf("one in %d: got %d and %d rounds, want %d and %d", c.alpha, pairs, level, c.pairs, c.level)
		}
	}
	if OneLook.Among(0) != OneLook || OneLook.Among(3) != 60 {
		t.Error("an alpha is divided among the comparisons")
	}
}

func BenchmarkMannWhitney(b *testing.B) {
	for _, n := range []int{10, 20, 100} {
		b.Run(fmt.Sprintf("%d+%d", n, n), func(b *testing.B) {
			for b.Loop() {
				mannWhitney(n, n, OneLook)
			}
		})
	}
}
