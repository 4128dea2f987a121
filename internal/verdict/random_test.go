package verdict

import (
	"math"
	"math/rand/v2"
)

func newRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 5)) }

// normal draws n normal values around a center with a relative standard deviation.
func normal(random *rand.Rand, center, deviation float64, n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(math.Round(center * (1 + deviation*random.NormFloat64())))
	}
	return out
}
