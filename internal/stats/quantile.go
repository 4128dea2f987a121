// Package stats computes what is reported of latency distributions. It is pure.
//
// A percentile is by nearest rank: the smallest value that at least that share of samples does not
// exceed. Shares are ratios of integers, so that 99.9 % of 1000 samples is surely rank 999.
package stats

import (
	"math/bits"
)

type Bucket struct {
	Low, High int64 // the smallest and largest value, in ns
	Count     int64 // samples between them
}

// Percentile is a share of the samples as an exact ratio, 0 < Num < Den.
type Percentile struct {
	Name     string // for people, such as p99.9
	Num, Den int64  // 999 and 1000 for p99.9
}

var (
	P50       = Percentile{"p50", 1, 2}
	P75       = Percentile{"p75", 3, 4}
	P90       = Percentile{"p90", 9, 10}
	P95       = Percentile{"p95", 19, 20}
	P99       = Percentile{"p99", 99, 100}
	P999      = Percentile{"p99.9", 999, 1_000}
	P9999     = Percentile{"p99.99", 9_999, 10_000}
	P99999    = Percentile{"p99.999", 99_999, 100_000}
	P999999   = Percentile{"p99.9999", 999_999, 1_000_000}
	P9999999  = Percentile{"p99.99999", 9_999_999, 10_000_000}
	P99999999 = Percentile{"p99.999999", 99_999_999, 100_000_000}
)

func Ladder() []Percentile {
	return []Percentile{P50, P75, P90, P95, P99, P999, P9999, P99999, P999999, P9999999, P99999999}
}

// Named returns the percentile of the ladder with a name such as p99.9.
func Named(name string) (Percentile, bool) {
	for _, p := range Ladder() {
		if p.Name == name {
			return p, true
		}
	}
	return Percentile{}, false
}

// samplesBeyond are required to report a percentile: the true share beyond it is then, with 95 %
// confidence, 0.48 to 1.84 times the nominal one. Fewer are just this run's largest samples.
const samplesBeyond = 10

// Needs returns the smallest number of samples with which a percentile is eligible.
func (p Percentile) Needs() int64 { return p.needs(samplesBeyond) }

func (p Percentile) needs(beyond int64) int64 {
	share := p.Den - p.Num
	return (beyond*p.Den + share - 1) / share
}

func (p Percentile) Eligible(count int64) bool { return count >= p.Needs() }

// rank returns which of count samples in ascending order, from 1, is the percentile.
func (p Percentile) rank(count int64) int64 {
	// 128 bits are needed, because the counts of merged rounds times 10^8 exceed 64 bits.
	hi, lo := bits.Mul64(uint64(count), uint64(p.Num))
	lo, carry := bits.Add64(lo, uint64(p.Den-1), 0)
	quotient, _ := bits.Div64(hi+carry, lo, uint64(p.Den))
	return max(int64(quotient), 1)
}

// Quantile returns a percentile of ascending buckets, or 0 without samples: its bucket's largest
// value, which exceeds it by at most the width. It does not check eligibility.
func Quantile(buckets []Bucket, p Percentile) int64 {
	if count := Count(buckets); count > 0 {
		return at(buckets, p.rank(count)).High
	}
	return 0
}

// at returns the bucket with the sample of a rank; beyond the last, one at Infinite.
func at(buckets []Bucket, rank int64) Bucket {
	for _, b := range buckets {
		rank -= b.Count
		if rank <= 0 && b.Count > 0 {
			return b
		}
	}
	return Bucket{Low: Infinite, High: Infinite}
}

// Reported is a percentile, or the reason why there is none.
type Reported struct {
	Ns    int64 // the percentile; meaningless when it needs more samples or is lost
	Needs int64 // the samples that it needs; 0 if there are enough
	Lost  bool  // so many messages have no latency that the percentile may be one
}

// Report returns a percentile. Messages without a sample count as slowest: otherwise a network that
// loses its slowest looks fast. Those with unknown latency do not make one eligible.
func Report(buckets []Bucket, lost, unknown int64, p Percentile) Reported {
	samples := Count(buckets)
	if !p.Eligible(samples + lost) {
		return Reported{Needs: p.Needs()}
	}
	rank := p.rank(samples + lost + unknown)
	if rank > samples {
		return Reported{Lost: true}
	}
	return Reported{Ns: at(buckets, rank).High}
}

func Count(buckets []Bucket) int64 {
	var n int64
	for _, b := range buckets {
		n += b.Count
	}
	return n
}
