package stats

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func exactly(values ...int64) []Observation {
	out := make([]Observation, len(values))
	for i, v := range values {
		out[i] = Exact(v)
	}
	return out
}

func TestRounded(t *testing.T) {
	cases := map[string]struct {
		value, step int64
		want        Observation
	}{
		"whole microseconds are known to half of one":       {8000, 1000, Observation{8000, 7500, 8500}},
		"an odd step is rounded outwards":                   {100, 5, Observation{100, 97, 103}},
		"no step is exact":                                  {100, 0, Exact(100)},
		"a step of one is exact":                            {100, 1, Exact(100)},
		"nothing is below nothing":                          {200, 1000, Observation{200, 0, 700}},
		"infinity is not rounded":                           {Infinite, 1000, Exact(Infinite)},
		"a value above infinity is infinity":                {Infinite - 1, 1000, Observation{Infinite - 1, Infinite - 501, Infinite}},
		"a value of nothing is rounded in one direction":    {0, 10, Observation{0, 0, 5}},
		"a step below nothing is no step, and nothing more": {7, -4, Exact(7)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Rounded(c.value, c.step); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestObserve(t *testing.T) {
	buckets := []Bucket{{Low: 100, High: 100, Count: 50}, {Low: 200, High: 209, Count: 49}, {Low: 900, High: 950, Count: 1}}
	cases := map[string]struct {
		buckets       []Bucket
		lost, unknown int64
		p             Percentile
		want          Observation
	}{
		"a bucket of one value":            {buckets, 0, 0, P50, Exact(100)},
		"a bucket of several":              {buckets, 0, 0, P90, Observation{209, 200, 209}},
		"the last sample of a bucket":      {buckets, 0, 0, P99, Observation{209, 200, 209}},
		"beyond it":                        {buckets, 0, 0, P999, Observation{950, 900, 950}},
		"lost messages move it":            {buckets, 1, 0, P99, Observation{950, 900, 950}},
		"lost messages reach it":           {buckets, 2, 0, P99, Exact(Infinite)},
		"nothing but lost messages":        {nil, 5, 0, P50, Exact(Infinite)},
		"a bucket of nothing holds no one": {[]Bucket{{Low: 1, High: 1}, {Low: 7, High: 7, Count: 3}}, 0, 0, P50, Exact(7)},
		"unknown latencies at both ends":   {buckets, 0, 2, P50, Observation{209, 100, 209}},
		"unknown latencies may be above":   {buckets, 0, 2, P99, Observation{Infinite, 200, Infinite}},
		"unknown latencies may be all":     {buckets, 0, 101, P50, Observation{Infinite, 0, Infinite}},
		"unknown latencies and lost ones":  {buckets, 1, 2, P99, Observation{Infinite, 900, Infinite}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := c.p.Observe(c.buckets, c.lost, c.unknown); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestMedian(t *testing.T) {
	cases := map[string]struct {
		rounds []Observation
		want   int64
	}{
		"no rounds":                         {nil, 0},
		"one":                               {exactly(7), 7},
		"the middle one of an odd number":   {exactly(9, 1, 5), 5},
		"the lower one of an even number":   {exactly(9, 1, 5, 4), 4},
		"infinity is the highest of rounds": {exactly(Infinite, 1, 5), 5},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Median(c.rounds); got != c.want {
				t.Errorf("got %d, want %d", got, c.want)
			}
		})
	}
}

func TestNeedsToGate(t *testing.T) {
	cases := []struct {
		p         Percentile
		tolerance Tolerance
		want      int64
	}{
		// The table in the description of the method, for tolerances up to 10 %.
		{P99, 10_000, 10_000}, {P999, 10_000, 100_000}, {P9999, 10_000, 1_000_000}, {P99999, 10_000, 10_000_000},
		{P99, 5_000, 10_000}, {P99, 0, 10_000}, {P50, 0, 200},
		{P99, 10_001, 10_000}, {P99, 20_000, 2_500}, {P99, 25_000, 1_600}, {P99, 31_000, 1_100}, {P99, 32_000, 1_000},
		{P99, 1_000_000, 1_000},
	}
	for _, c := range cases {
		if got := c.p.NeedsToGate(c.tolerance); got != c.want {
			t.Errorf("%s at %d thousandths of a percent: got %d samples, want %d", c.p.Name, c.tolerance, got, c.want)
		}
	}
	for _, p := range Ladder() {
		for t1 := Tolerance(0); t1 < 100_000; t1 += 500 {
			if p.NeedsToGate(t1) < p.Needs() || p.NeedsToGate(t1) < p.NeedsToGate(t1+500) {
				t.Fatalf("%s: what is judged is shown, and a wider tolerance needs no more samples, but not at %d", p.Name, t1)
			}
		}
	}
}

func TestTally(t *testing.T) {
	five := Tolerance(5_000)
	cases := map[string]struct {
		got, want Tally
	}{
		"a ratio at the limit is within it": {TallyAbove(exactly(100, 100), exactly(105, 106), five.Above()), Tally{4, 2, 2}},
		"a decrease to the limit is within": {TallyBelow(exactly(100), exactly(95, 94, 96), five.Below()), Tally{3, 1, 1}},
		"a difference that rounding may hide is possible": {
			TallyAbove([]Observation{Rounded(1000, 100)}, []Observation{Rounded(1100, 100), Rounded(1300, 100), Rounded(900, 100)}, five.Above()), Tally{3, 1, 2}},
		"the same of a decrease": {
			TallyBelow([]Observation{Rounded(1000, 100)}, []Observation{Rounded(1100, 100), Rounded(800, 100), Rounded(1000, 100)}, five.Below()), Tally{3, 1, 2}},
		"lost is beyond any limit":                           {TallyAbove(exactly(100), exactly(Infinite), Factor{1_000_000, 1}), Tally{1, 1, 1}},
		"nothing is beyond a lost baseline":                  {TallyAbove(exactly(Infinite), exactly(100), five.Above()), Tally{1, 0, 0}},
		"lost against lost is not known":                     {TallyAbove(exactly(Infinite), exactly(Infinite), five.Above()), Tally{1, 0, 1}},
		"nothing against nothing is not known":               {TallyAbove(exactly(0), exactly(0), five.Above()), Tally{1, 0, 1}},
		"something against nothing is beyond":                {TallyAbove(exactly(0), exactly(1), five.Above()), Tally{1, 1, 1}},
		"no throughput is a decrease":                        {TallyBelow(exactly(10), exactly(0), five.Below()), Tally{1, 1, 1}},
		"no throughput against no throughput is unknown":     {TallyBelow(exactly(0), exactly(0), five.Below()), Tally{1, 0, 1}},
		"throughput against no throughput is not a decrease": {TallyBelow(exactly(0), exactly(10), five.Below()), Tally{1, 0, 0}},
		"a product of more than 64 bits does not wrap":       {TallyAbove(exactly(1<<61), exactly(1<<61+1), Factor{1 << 40, 1 << 40}), Tally{1, 1, 1}},
		"a difference":                      {TallyDifference(exactly(0, 5), exactly(5, 11), 5), Tally{4, 2, 2}},
		"a rounded difference":              {TallyDifference([]Observation{Rounded(10, 4)}, []Observation{Rounded(14, 4), Rounded(30, 4)}, 5), Tally{2, 1, 2}},
		"lost minus lost is not known":      {TallyDifference(exactly(Infinite), exactly(Infinite), 5), Tally{1, 0, 1}},
		"lost minus some is beyond":         {TallyDifference(exactly(5), exactly(Infinite), 5), Tally{1, 1, 1}},
		"some minus lost is within":         {TallyDifference(exactly(Infinite), exactly(5), 5), Tally{1, 0, 0}},
		"a level at the limit is within it": {TallyLevel(exactly(1999, 2000, 2001), 2000), Tally{3, 1, 1}},
		"a rounded level":                   {TallyLevel([]Observation{Rounded(2000, 1000), Rounded(3000, 1000), Rounded(1000, 1000)}, 2000), Tally{3, 1, 2}},
		"a level that is lost":              {TallyLevel(exactly(5, Infinite), Infinite-1), Tally{2, 1, 1}},
		"a lost level at a lost limit":      {TallyLevel(exactly(5, Infinite), Infinite), Tally{2, 0, 0}},
		"a lost level is not below":         {TallyLevelBelow(exactly(0, Infinite), Infinite), Tally{2, 1, 1}},
		"nothing is below nothing":          {TallyLevelBelow(exactly(0, 1, Infinite), 0), Tally{3, 0, 0}},
		"a level from below":                {TallyLevelBelow(exactly(1999, 2000, 2001), 2000), Tally{3, 1, 1}},
		"a rounded level from below":        {TallyLevelBelow([]Observation{Rounded(2000, 1000), Rounded(3000, 1000), Rounded(1000, 1000)}, 2000), Tally{3, 1, 2}},
		"no rounds":                         {TallyAbove(nil, nil, five.Above()), Tally{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if c.got != c.want {
				t.Errorf("got %+v, want %+v", c.got, c.want)
			}
		})
	}
}

// TestTallyAgainstBounds compares the decision by counting with the bounds of exact fractions: the rule of the method is Pass
// if the upper bound is at most the limit, and Fail if the lower bound is above it.
func TestTallyAgainstBounds(t *testing.T) {
	decided := 0
	for seed := range uint64(3_000) {
		random := rand.New(rand.NewPCG(seed, 2))
		m, n := 3+random.IntN(8), 3+random.IntN(8)
		draw := func(count int, step int64) []Observation {
			out := make([]Observation, count)
			for i := range out {
				// Use few values, so that there are ties with each other and with the limit.
				out[i] = Rounded(100+5*random.Int64N(6)*(1+int64(seed%2)), step)
			}
			return out
		}
		step := int64(seed%3) * 2
		baseline, candidate := draw(m, step), draw(n, step)
		limit := Tolerance(random.Int64N(5) * 5_000).Above()
		k := MannWhitney(m, n, 20)

		var lows, highs []*big.Rat
		for _, c := range candidate {
			for _, b := range baseline {
				lows, highs = append(lows, big.NewRat(c.Low, b.High)), append(highs, big.NewRat(c.High, b.Low))
			}
		}
		slices.SortFunc(lows, (*big.Rat).Cmp)
		slices.SortFunc(highs, (*big.Rat).Cmp)
		lower, upper, exact := lows[k], highs[m*n-k-1], big.NewRat(limit.Num, limit.Den)

		tally := TallyAbove(baseline, candidate, limit)
		if got, want := tally.Passes(k), upper.Cmp(exact) <= 0; got != want {
			t.Fatalf("seed %d: passes %v, but the upper bound is %v and the limit %v", seed, got, upper, exact)
		}
		if got, want := fails(tally, k), lower.Cmp(exact) > 0; got != want {
			t.Fatalf("seed %d: fails %v, but the lower bound is %v and the limit %v", seed, got, lower, exact)
		}
		if tally.Passes(k) || fails(tally, k) {
			decided++
		}
		bounds := Ratios(baseline, candidate, k, k)
		wantLower, _ := lower.Float64()
		wantUpper, _ := upper.Float64()
		if bounds.Lower != wantLower || bounds.Upper != wantUpper {
			t.Fatalf("seed %d: bounds %v to %v, want %v to %v", seed, bounds.Lower, bounds.Upper, wantLower, wantUpper)
		}
		// A decrease is equivalent to an increase with the roles exchanged.
		if below := TallyBelow(candidate, baseline, Factor{limit.Den, limit.Num}); below != tally {
			t.Fatalf("seed %d: %+v the other way round, %+v this way", seed, below, tally)
		}
	}
	if decided < 300 || decided > 2_700 {
		t.Errorf("%d of 3000 were decided: the test does not see both sides", decided)
	}
}

func TestBounds(t *testing.T) {
	infinity := math.Inf(1)
	cases := map[string]struct {
		got, want Bounds
	}{
		"three against three are bounded by the least and the greatest ratio": {
			Ratios(exactly(10, 20, 40), exactly(20, 40, 80), 0, 0), Bounds{2, 2, 2, 0.5, 8}},
		"without bounds": {
			Ratios(exactly(10, 20), exactly(20), -1, -1), Bounds{1.5, 1.5, 1.5, 0, infinity}},
		"rounding widens": {
			Ratios([]Observation{Rounded(8, 4)}, []Observation{Rounded(12, 4)}, 0, 0), Bounds{1.5, 1, 14. / 6, 1, 14. / 6}},
		"some are lost":           {Ratios(exactly(10), exactly(10, 20, Infinite), 0, 0), Bounds{2, 2, 2, 1, infinity}},
		"nothing against nothing": {Ratios(exactly(0), exactly(0), 0, 0), Bounds{infinity, 0, infinity, 0, infinity}},
		"against a lost baseline": {Ratios(exactly(Infinite), exactly(7), 0, 0), Bounds{0, 0, 0, 0, 0}},
		"differences":             {Differences(exactly(0, 0, 2), exactly(1, 1, 9), 0, 0), Bounds{1, 1, 1, -1, 9}},
		"differences unbounded":   {Differences(exactly(0), exactly(1), -1, -1), Bounds{1, 1, 1, math.Inf(-1), infinity}},
		"a level":                 {Level(exactly(5, 1, 3, 2, 4, 6), 0, 1), Bounds{3.5, 3.5, 3.5, 1, 5}},
		"a level that is lost":    {Level(exactly(5, Infinite, Infinite), 0, 0), Bounds{infinity, infinity, infinity, 5, infinity}},
		"no rounds":               {Level(nil, 0, 0), Bounds{math.NaN(), 0, infinity, 0, infinity}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, c.got, cmpopts.EquateNaNs()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestExcess(t *testing.T) {
	five, quarter := Tolerance(5_000).Above(), Tolerance(25_000)
	reference := exactly(9180, 9205, 9170, 9240, 9195, 9210, 9188, 9222, 9176, 9231, 9199, 9215)
	cases := map[string]struct {
		got, want int
	}{
		"no round is slow":                        {ExcessAbove(reference, exactly(9310, 9295, 9342, 9330, 9288, 9325), five), 0},
		"one of six is beyond every reference":    {ExcessAbove(reference, exactly(9310, 9295, 9342, 9330, 9288, 15600), five), 12},
		"equal shares of slow rounds":             {ExcessAbove(exactly(100, 100, 170, 170), exactly(100, 170), five), 0},
		"a larger share of slow rounds":           {ExcessAbove(exactly(100, 100, 100, 170), exactly(100, 170), five), 2},
		"a value at the limit is within":          {ExcessAbove(exactly(100), exactly(105), five), 0},
		"rounding counts against the candidate":   {ExcessAbove([]Observation{Rounded(100, 2)}, []Observation{Rounded(104, 2)}, five), 1},
		"lost messages in one round":              {ExcessAbove(exactly(100, 100), exactly(100, Infinite), five), 2},
		"lost messages on both sides":             {ExcessAbove(exactly(100, Infinite), exactly(100, Infinite), five), 0},
		"throughput that breaks down in one":      {ExcessBelow(exactly(100, 100), exactly(100, 10), quarter.Below()), 2},
		"throughput at its limit":                 {ExcessBelow(exactly(100, 100), exactly(100, 75), quarter.Below()), 0},
		"throughput that breaks down on one each": {ExcessBelow(exactly(100, 10), exactly(100, 10), quarter.Below()), 0},
	}
	for name, c := range cases {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", name, c.got, c.want)
		}
	}
}

// fails reports whether the true value is shown to be beyond the limit.
func fails(t Tally, k int) bool { return t.All-t.Surely <= k }
