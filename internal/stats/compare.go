package stats

import (
	"math"
	"math/bits"
	"slices"
)

// A comparison has one observation per round, a complete run with new pods: rounds, not samples,
// are independent. Counting decides: how many of all pairs of candidate and baseline rounds are
// beyond the limit? The exact Mann-Whitney distribution gives the largest count too small to be
// chance. That equals comparing the ratio's bounds with the limit, in integers: a value at the
// limit is within it.

const Infinite = math.MaxInt64 // a lost message's percentile: slower than anything measured

// Observation is the value of one round, 0 or more, with the range of the true value.
type Observation struct {
	Value, Low, High int64
}

// Exact returns the observation of a value that was not rounded, or was rounded only to the unit.
func Exact(value int64) Observation { return Observation{value, value, value} }

// Rounded returns a value that is known to half a step on each side. Truncated values have ratios
// in the same range, because both sides are off in the same direction.
func Rounded(value, step int64) Observation {
	if value == Infinite || step <= 1 {
		return Exact(value)
	}
	half := step/2 + step%2
	high := int64(Infinite)
	if value < Infinite-half {
		high = value + half
	}
	return Observation{value, max(value-half, 0), high}
}

// Within returns the observation of a value that is known to lie between two others.
func Within(low, value, high int64) Observation {
	return Observation{value, min(low, value), max(high, value)}
}

// Observe returns a percentile of samples, lost messages and unknown latencies. Its range is from
// the bucket with the latter below all samples to the one with them above, its value; Infinite for
// a message without a sample. It does not check whether there are enough samples.
func (p Percentile) Observe(buckets []Bucket, lost, unknown int64) Observation {
	rank := p.rank(Count(buckets) + lost + unknown)
	// All other output reports the value of the upper bucket, too.
	o := Observation{Value: at(buckets, rank).High, High: at(buckets, rank).High}
	if rank > unknown {
		o.Low = at(buckets, rank-unknown).Low
	}
	return o
}

// Median returns the middle round, or the lower of two; 0 without rounds.
func Median(rounds []Observation) int64 {
	if len(rounds) == 0 {
		return 0
	}
	values := make([]int64, len(rounds))
	for i, r := range rounds {
		values[i] = r.Value
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// Factor is an exact ratio of two non-negative integers, Den > 0.
type Factor struct {
	Num, Den int64
}

func (f Factor) Float64() float64 { return float64(f.Num) / float64(f.Den) }

// Tolerance is a share in thousandths of a percent: 5000 is 5 %.
type Tolerance int64

const whole = 100_000

// Above returns one plus the tolerance: 1.05 for 5 %.
func (t Tolerance) Above() Factor { return Factor{whole + int64(t), whole} }

// Below returns one minus the tolerance: 0.95 for 5 %.
func (t Tolerance) Below() Factor { return Factor{whole - int64(t), whole} }

// beyondToGate samples beyond a percentile suffice for any tolerance: the true share beyond the
// reported value is then, with 95 % confidence, 0.81 to 1.22 times the nominal one.
const beyondToGate = 100

// NeedsToGate returns the fewest samples to judge a percentile against a tolerance or an absolute
// limit. With x samples beyond it, the true share has a relative standard error of 1/sqrt(x), at
// most the tolerance: 100 samples up to 10 %, 25 for 20 %, from 32 % the 10 that any report needs.
func (p Percentile) NeedsToGate(t Tolerance) int64 {
	if t <= whole/10 {
		return p.needs(beyondToGate)
	}
	beyond := (whole*whole + int64(t)*int64(t) - 1) / (int64(t) * int64(t))
	return p.needs(max(beyond, samplesBeyond))
}

// Tally counts comparisons that are worse than a limit. Equal to it is within it: ties never fail,
// and pass only if the limit itself is allowed. What rounding hides may go both ways.
type Tally struct {
	// Of All comparisons, Surely are worse whatever rounding hides, Possibly because of it, too.
	All, Surely, Possibly int
}

// Passes reports whether the value is within the limit: beyond it, this would be improbable.
func (t Tally) Passes(k int) bool { return t.Possibly <= k }

// TallyAbove counts the pairs in which the candidate is more than limit times the baseline.
func TallyAbove(baseline, candidate []Observation, limit Factor) Tally {
	t := Tally{All: len(baseline) * len(candidate)}
	for _, c := range candidate {
		for _, b := range baseline {
			switch {
			// No value exceeds infinity, and a ratio to zero is unknown.
			case b.High != Infinite && more(c.Low, limit.Den, b.High, limit.Num):
				t.Surely++
				t.Possibly++
			case b.Low == 0 || c.High == Infinite || b.Low != Infinite && more(c.High, limit.Den, b.Low, limit.Num):
				t.Possibly++
			}
		}
	}
	return t
}

// TallyBelow counts the pairs in which the candidate is less than limit times the baseline.
func TallyBelow(baseline, candidate []Observation, limit Factor) Tally {
	// c/b < l is b/c > 1/l.
	return TallyAbove(candidate, baseline, Factor{limit.Den, limit.Num})
}

// TallyDifference counts pairs beyond baseline plus limit; two infinite values are unknown.
func TallyDifference(baseline, candidate []Observation, limit int64) Tally {
	t := Tally{All: len(baseline) * len(candidate)}
	for _, c := range candidate {
		for _, b := range baseline {
			if c.Low-b.High > limit {
				t.Surely++
			}
			if c.High-b.Low > limit || c.High == Infinite && b.Low == Infinite {
				t.Possibly++
			}
		}
	}
	return t
}

// TallyLevel counts the rounds that are above a limit.
func TallyLevel(rounds []Observation, limit int64) Tally {
	return TallyDifference([]Observation{Exact(0)}, rounds, limit)
}

// TallyLevelBelow counts the rounds that are below a limit.
func TallyLevelBelow(rounds []Observation, limit int64) Tally {
	// r < l is 0-r > -l.
	return TallyDifference(rounds, []Observation{Exact(0)}, -limit)
}

// ExcessAbove returns by how much, at most, the share of candidate rounds beyond limit times any
// value exceeds the share of baseline rounds beyond it, times both numbers of rounds. It bounds
// slow rounds that the median hides. What rounding hides counts against the candidate.
func ExcessAbove(baseline, candidate []Observation, limit Factor) int {
	return excess(baseline, candidate, func(c, b Observation) bool { return more(c.High, limit.Den, b.Low, limit.Num) },
		func(a, b Observation) bool { return a.Low > b.Low })
}

// ExcessBelow is ExcessAbove where lower is worse.
func ExcessBelow(baseline, candidate []Observation, limit Factor) int {
	return excess(baseline, candidate, func(c, b Observation) bool { return more(b.High, limit.Num, c.Low, limit.Den) },
		func(a, b Observation) bool { return a.High < b.High })
}

func excess(baseline, candidate []Observation, beyond, worse func(a, b Observation) bool) int {
	most := 0
	for _, b := range baseline {
		e := 0
		for _, c := range candidate {
			if beyond(c, b) {
				e += len(baseline)
			}
		}
		for _, other := range baseline {
			if worse(other, b) {
				e -= len(candidate)
			}
		}
		most = max(most, e)
	}
	return most
}

// more reports whether a*b > c*d; all of them must be 0 or more.
func more(a, b, c, d int64) bool {
	abHigh, abLow := bits.Mul64(uint64(a), uint64(b))
	cdHigh, cdLow := bits.Mul64(uint64(c), uint64(d))
	return abHigh > cdHigh || abHigh == cdHigh && abLow > cdLow
}

// Bounds are an estimate with its confidence bounds. They are for display: a Tally decides.
type Bounds struct {
	Estimate float64 // the median of all comparisons (Hodges-Lehmann)
	// Lowest and Highest hold if all rounding went one way. More rounds do not narrow them.
	Lowest, Highest float64
	// Lower and Upper, without a bound, are 0 (for differences -infinity) and infinity.
	Lower, Upper float64
}

// Ratios returns bounds of candidate to baseline: of all ratios in order, kLower+1 from below and
// kUpper+1 from above; -1: no bound. The ratio of 0 to 0 may be any value.
func Ratios(baseline, candidate []Observation, kLower, kUpper int) Bounds {
	s := newSpread(len(baseline)*len(candidate), isExact(baseline) && isExact(candidate))
	for _, c := range candidate {
		for _, b := range baseline {
			s.value = append(s.value, ratio(c.Value, b.Value, math.Inf(1)))
			if s.rounded {
				s.widen(ratio(c.Low, b.High, 0), ratio(c.High, b.Low, math.Inf(1)))
			}
		}
	}
	return s.bounds(0, kLower, kUpper)
}

const Confidence = "95 % interval" // the name of the confidence level in every output

// Interval returns the deciding 95 % interval (exact Mann-Whitney), or an estimate of few rounds.
func Interval(baseline, candidate []Observation) (b Bounds, bounded bool) {
	k := MannWhitney(len(baseline), len(candidate), EachSide)
	return Ratios(baseline, candidate, k, k), k >= 0
}

// isExact reports whether ratios to these rounds are exact; not to 0 or lost values.
func isExact(rounds []Observation) bool {
	return !slices.ContainsFunc(rounds, func(r Observation) bool { return r.Low != r.High || r.Value == 0 || r.Value == Infinite })
}

// ratio returns c/b, or unknown if both are 0 or both are infinite.
func ratio(c, b int64, unknown float64) float64 {
	switch {
	case c == b && (b == 0 || b == Infinite):
		return unknown
	case c == Infinite || b == 0:
		return math.Inf(1)
	case b == Infinite:
		return 0
	}
	return float64(c) / float64(b)
}

// Differences returns bounds of candidate minus baseline, as Ratios does.
func Differences(baseline, candidate []Observation, kLower, kUpper int) Bounds {
	s := newSpread(len(baseline)*len(candidate), false)
	for _, c := range candidate {
		for _, b := range baseline {
			s.value = append(s.value, float64(c.Value-b.Value))
			s.widen(float64(c.Low-b.High), float64(c.High-b.Low))
		}
	}
	return s.bounds(math.Inf(-1), kLower, kUpper)
}

// Level returns bounds of the median round: kLower+1 from below, kUpper+1 from above.
func Level(rounds []Observation, kLower, kUpper int) Bounds {
	s := newSpread(len(rounds), false)
	for _, r := range rounds {
		s.value = append(s.value, level(r.Value))
		s.widen(level(r.Low), level(r.High))
	}
	return s.bounds(0, kLower, kUpper)
}

func level(v int64) float64 {
	if v == Infinite {
		return math.Inf(1)
	}
	return float64(v)
}

type spread struct {
	value, lowest, highest []float64
	rounded                bool
}

func newSpread(n int, exact bool) *spread {
	s := &spread{value: make([]float64, 0, n), rounded: !exact}
	if s.rounded {
		s.lowest, s.highest = make([]float64, 0, n), make([]float64, 0, n)
	}
	return s
}

func (s *spread) widen(lowest, highest float64) {
	s.lowest, s.highest = append(s.lowest, lowest), append(s.highest, highest)
}

func (s *spread) bounds(none float64, kLower, kUpper int) Bounds {
	n := len(s.value)
	out := Bounds{Estimate: math.NaN(), Lowest: none, Highest: math.Inf(1), Lower: none, Upper: math.Inf(1)}
	if n == 0 {
		return out
	}
	// Sorted independently, each lowest value is at most the value at its position.
	slices.Sort(s.value)
	lowest, highest := s.value, s.value
	if s.rounded {
		lowest, highest = s.lowest, s.highest
		slices.Sort(lowest)
		slices.Sort(highest)
	}
	out.Estimate, out.Lowest, out.Highest = middle(s.value), middle(lowest), middle(highest)
	if kLower >= 0 && kLower < n {
		out.Lower = lowest[kLower]
	}
	if kUpper >= 0 && kUpper < n {
		out.Upper = highest[n-1-kUpper]
	}
	return out
}

func middle(sorted []float64) float64 {
	n := len(sorted)
	low, high := sorted[(n-1)/2], sorted[n/2]
	if low == high { // Infinities have no mean.
		return low
	}
	return low + (high-low)/2
}
