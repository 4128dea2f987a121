package stats

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFormatRatio(t *testing.T) {
	for _, c := range []struct {
		v              float64
		down, near, up string
	}{
		{1, "1.000", "1.000", "1.000"},
		{1.5449, "1.544", "1.545", "1.545"},
		{1.1, "1.100", "1.100", "1.100"}, // 1.1 times 1000 is 1100.0000000000002 as a float.
		{0.05001, "0.0500", "0.0500", "0.0501"},
		{0.0000123456, "0.0000123", "0.0000123", "0.0000124"},
		{0.99994, "0.999", "0.9999", "0.99994"},
		{1.0004, "1.0004", "1.0004", "1.001"},
		{0.9957, "0.995", "0.996", "0.996"},
		{1 - 1e-8, "0.999", "0.99999999", "0.99999999"},
		{1 + 2e-16, "1.000", "1.000", "1.000"},
		{60_000_000_000, "60000000000.000", "60000000000.000", "60000000000.000"},
		{0, "0.000000000", "0.000000000", "0.000000000"},
	} {
		if down, near, up := FormatRatio(c.v, math.Floor), FormatRatio(c.v, math.Round), FormatRatio(c.v, math.Ceil); down != c.down || near != c.near || up != c.up {
			t.Errorf("%v is %s, %s, %s; want %s, %s, %s", c.v, down, near, up, c.down, c.near, c.up)
		}
	}
}

func TestOutwards(t *testing.T) {
	for _, c := range []struct{ v, down, up float64 }{
		// The first is 1.1 times 100 as a float.
		{110.00000000000001, 110, 110}, {110.001, 110, 111}, {109.9999999, 110, 110}, {0, 0, 0}, {math.Inf(1), math.Inf(1), math.Inf(1)},
	} {
		if down, up := Outwards(c.v, math.Floor), Outwards(c.v, math.Ceil); down != c.down || up != c.up {
			t.Errorf("%v: got %v and %v, want %v and %v", c.v, down, up, c.down, c.up)
		}
	}
}

func TestRank(t *testing.T) {
	cases := map[string]struct {
		p     Percentile
		count int64
		want  int64
	}{
		"the median of an odd number is the middle one":        {P50, 5, 3},
		"the median of an even number is the lower of two":     {P50, 4, 2},
		"one sample is every percentile":                       {P99999999, 1, 1},
		"99.9 % of 1000 is 999, without a float's error":       {P999, 1_000, 999},
		"99.9 % of 1001 is 1000":                               {P999, 1_001, 1_000},
		"99.99 % of 10000 is 9999":                             {P9999, 10_000, 9_999},
		"no sample gives rank 1":                               {P50, 0, 1},
		"a count with a product of 128 bits does not overflow": {P99999999, math.MaxInt64, bigRank(P99999999, math.MaxInt64)},
		"a count just beyond 64 bits of product":               {P99999999, 1 << 40, bigRank(P99999999, 1<<40)},
		"99 % of 250 is rounded up to 248":                     {P99, 250, 248},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := c.p.rank(c.count); got != c.want {
				t.Errorf("rank of %s in %d samples: got %d, want %d", c.p.Name, c.count, got, c.want)
			}
		})
	}
}

func bigRank(p Percentile, count int64) int64 {
	n := new(big.Int).Mul(big.NewInt(count), big.NewInt(p.Num))
	n.Add(n, big.NewInt(p.Den-1))
	return n.Div(n, big.NewInt(p.Den)).Int64()
}

func TestEligible(t *testing.T) {
	want := map[string]int64{
		"p50": 20, "p75": 40, "p90": 100, "p95": 200, "p99": 1_000, "p99.9": 10_000, "p99.99": 100_000, "p99.999": 1_000_000,
		"p99.9999": 10_000_000, "p99.99999": 100_000_000, "p99.999999": 1_000_000_000,
	}
	got := map[string]int64{}
	for _, p := range Ladder() {
		got[p.Name] = p.Needs()
		if n := p.Needs(); !p.Eligible(n) || p.Eligible(n-1) {
			t.Errorf("%s: eligibility does not begin at %d samples", p.Name, n)
		}
		if beyond := p.Needs() - p.rank(p.Needs()); beyond != samplesBeyond {
			t.Errorf("%s of %d samples has %d beyond", p.Name, p.Needs(), beyond)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("samples needed (-want +got):\n%s", diff)
	}
	// A run of the published measurements had 2.15 million events and quoted p99.99999 and p99.999999.
	if !P99999.Eligible(2_150_000) || P999999.Eligible(2_150_000) {
		t.Error("2.15 million samples stand behind p99.999 and not behind p99.9999")
	}
}

func TestQuantile(t *testing.T) {
	buckets := []Bucket{{Low: 10, High: 10, Count: 5}, {Low: 11, High: 12, Count: 0}, {Low: 20, High: 21, Count: 4}, {Low: 30, High: 31, Count: 1}}
	cases := map[string]struct {
		buckets []Bucket
		p       Percentile
		want    int64
	}{
		"no samples":                             {nil, P50, 0},
		"empty buckets only":                     {[]Bucket{{Low: 1, High: 2}}, P50, 0},
		"the last sample of a bucket is in it":   {buckets, P50, 10},
		"an empty bucket is passed over":         {buckets, Percentile{"p51", 51, 100}, 21},
		"the bucket's upper edge":                {buckets, P90, 21},
		"the last sample":                        {buckets, P99, 31},
		"every percentile of one sample is that": {[]Bucket{{Low: 7, High: 7, Count: 1}}, P99999999, 7},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Quantile(c.buckets, c.p); got != c.want {
				t.Errorf("%s: got %d, want %d", c.p.Name, got, c.want)
			}
		})
	}
}

// TestQuantileAgainstSorting compares Quantile with the exact percentile of sorted samples. Buckets are as wide as those of a
// histogram with three significant digits.
func TestQuantileAgainstSorting(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			samples := make([]int64, 1+random.IntN(20_000))
			for i := range samples {
				samples[i] = int64(math.Exp(random.NormFloat64()*2 + 9))
			}
			slices.Sort(samples)
			buckets := bucketsOf(samples)
			if got := Count(buckets); got != int64(len(samples)) {
				t.Fatalf("%d of %d samples in buckets", got, len(samples))
			}
			for _, p := range Ladder() {
				exact := samples[p.rank(int64(len(samples)))-1]
				got := Quantile(buckets, p)
				if got < exact || float64(got-exact) > float64(exact)/1000 {
					t.Errorf("%s of %d samples: got %d, exactly %d", p.Name, len(samples), got, exact)
				}
			}
		})
	}
}

// bucketsOf puts sorted samples into buckets that are at most 1/1024 of their value wide.
func bucketsOf(sorted []int64) []Bucket {
	var out []Bucket
	for _, v := range sorted {
		width := int64(1)
		for v/width >= 2048 {
			width *= 2
		}
		low := v / width * width
		if n := len(out); n > 0 && out[n-1].Low == low {
			out[n-1].Count++
			continue
		}
		out = append(out, Bucket{Low: low, High: low + width - 1, Count: 1})
	}
	return out
}

func TestMoments(t *testing.T) {
	cases := map[string]struct {
		samples      []int64
		mean, stddev int64
	}{
		"nothing":              {nil, 0, 0},
		"one sample":           {[]int64{7}, 7, 0},
		"equal samples":        {[]int64{1_000_003, 1_000_003, 1_000_003}, 1_000_003, 0},
		"a half is rounded up": {[]int64{1, 2}, 2, 1},
		"n-1":                  {[]int64{2, 4, 4, 4, 5, 5, 7, 9}, 5, 2},
		"a third is dropped":   {[]int64{1, 1, 2}, 1, 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var sum int64
			var squares float64
			for _, v := range c.samples {
				sum += v
				squares += float64(v) * float64(v)
			}
			n := int64(len(c.samples))
			if got := Mean(sum, n); got != c.mean {
				t.Errorf("mean: got %d, want %d", got, c.mean)
			}
			if got := StdDev(sum, squares, n); got != c.stddev {
				t.Errorf("standard deviation: got %d, want %d", got, c.stddev)
			}
		})
	}
}

func TestHalfRTT(t *testing.T) {
	if got := HalfRTT(8001); got != 4000 {
		t.Errorf("half of 8001 is rounded down to 4000, got %d", got)
	}
}

func TestFormatLatency(t *testing.T) {
	cases := map[int64]string{
		0: "0ns", 1: "1ns", 840: "840ns", 999: "999ns", 1_000: "1.00µs", 8_214: "8.21µs", 8_215: "8.22µs", 17_900: "17.90µs",
		41_020: "41.02µs", 999_994: "999.99µs", 999_995: "1.00ms", 1_720_000: "1.72ms", 999_994_999: "999.99ms", 999_995_000: "1.00s",
		2_310_000_000: "2.31s", 3_600_000_000_000: "3600.00s", math.MaxInt64: "9223372036.85s", -8_214: "-8214ns",
	}
	for ns, want := range cases {
		if got := FormatLatency(ns); got != want {
			t.Errorf("%d ns: got %s, want %s", ns, got, want)
		}
	}
}
