package summary

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// PairsSummary is what a LatencyMatrix's status has of its pairs' results.
type PairsSummary struct {
	Slowest  []v1alpha1.MatrixPair
	Cells    []v1alpha1.MatrixCell
	Headline *v1alpha1.Summary
}

type PairResult struct {
	*v1alpha1.CellResult
	Of *v1alpha1.LatencyBenchmark
}

// Rank returns a percentile: Infinite if lost, -1 if unknown.
func (r PairResult) Rank(p v1alpha1.Percentile) int64 {
	switch ns := r.Percentile(p); {
	case ns != nil:
		return *ns
	case IsLost(*r.CellResult, p):
		return stats.Infinite
	}
	return -1
}

func (r PairResult) Pair() v1alpha1.Pair { return PairOf(r.Of) }

// Placement returns Verified if both endpoints of the result's variant are verified.
func (r PairResult) Placement() v1alpha1.PlacementState {
	return Placement(slices.DeleteFunc(slices.Clone(r.Of.Status.Endpoints), func(e v1alpha1.Endpoint) bool { return e.Variant != r.Variant }))
}

// Slower orders the pairs of a cell by the highest p99, then p50; streams by the lowest bandwidth.
func Slower(a, b PairResult) int {
	if a.Stream && a.Bandwidth != nil && b.Bandwidth != nil {
		return slowerStream(a, b)
	}
	p99 := func(r PairResult) int64 { return max(r.Rank(v1alpha1.P99), r.Rank(v1alpha1.P50)) } // At least p50, if too few samples show it.
	return cmp.Or(cmp.Compare(p99(b), p99(a)), cmp.Compare(b.Rank(v1alpha1.P50), a.Rank(v1alpha1.P50)))
}

func slowerStream(a, b PairResult) int {
	return cmp.Compare(a.Bandwidth.BitsPerSecond, b.Bandwidth.BitsPerSecond)
}

// PairCells groups pairs' results by cell and variant, in the order of appearance.
func PairCells(pairs []*v1alpha1.LatencyBenchmark) [][]PairResult {
	var all [][]PairResult
	places := map[[2]string]int{}
	for _, b := range pairs {
		for i := range b.Status.Results {
			r := &b.Status.Results[i]
			place, known := places[[2]string{r.Variant, r.Name}]
			if !known {
				place = len(all)
				places[[2]string{r.Variant, r.Name}] = place
				all = append(all, nil)
			}
			all[place] = append(all[place], PairResult{r, b})
		}
	}
	return all
}

// SummarizePairs compares pairs measured under equal conditions, by their benchmarks in the plan's
// order: the slowest in the headline's cell, and the spread of every cell.
func SummarizePairs(pairs []*v1alpha1.LatencyBenchmark) PairsSummary {
	var s PairsSummary
	cells := PairCells(pairs)
	if len(cells) == 0 {
		return s
	}
	for _, measured := range cells[:min(len(cells), v1alpha1.MaxMatrixCells)] {
		s.Cells = append(s.Cells, cellOfPairs(measured))
	}
	first := cells[0][0].Of.Status.Headline()
	measured := cells[slices.IndexFunc(cells, func(c []PairResult) bool { return c[0].CellResult == first })]
	slices.SortStableFunc(measured, Slower)
	for _, p := range measured[:min(len(measured), v1alpha1.MaxSlowestPairs)] {
		s.Slowest = append(s.Slowest, p.line())
	}
	s.Headline = headlineOf(measured)
	return s
}

// headlineOf is the worst pair's; its placement is Verified only if every pair's is.
func headlineOf(measured []PairResult) *v1alpha1.Summary {
	worst := measured[0]
	h := headline(worst.Name, *worst.CellResult)
	h.Cell = fmt.Sprintf("%s, slowest of %d pairs", worst.Name, len(measured))
	if own := worst.Of.Status.Summary; own != nil {
		h.Variants = own.Variants
	}
	for _, m := range measured {
		if own := m.Of.Status.Summary; own != nil && h.Placement != v1alpha1.PlacementUnverified {
			h.Placement = own.Placement
		}
	}
	return h
}

func (r PairResult) line() v1alpha1.MatrixPair {
	line := v1alpha1.MatrixPair{Benchmark: r.Of.Name, Pair: r.Pair(), LatencyType: r.LatencyType, LostFrom: r.LostFrom}
	line.Percentiles = slices.DeleteFunc(slices.Clone(r.Percentiles), func(p v1alpha1.PercentileResult) bool {
		return !slices.Contains(v1alpha1.HeadlinePercentiles(), p.Name)
	})
	if r.Bandwidth != nil {
		line.BitsPerSecond = new(r.Bandwidth.BitsPerSecond)
	}
	return line
}

func cellOfPairs(pairs []PairResult) v1alpha1.MatrixCell {
	c := pairs[0]
	line := v1alpha1.MatrixCell{
		Variant: c.Variant, Cell: c.Name, LatencyType: c.LatencyType, Pairs: int32(len(pairs)),
		P50: spreadOfPairs(pairs, v1alpha1.P50), P99: spreadOfPairs(pairs, v1alpha1.P99),
	}
	streams := slices.DeleteFunc(slices.Clone(pairs), func(r PairResult) bool { return r.Bandwidth == nil })
	if n := len(streams); n > 0 {
		slices.SortStableFunc(streams, slowerStream)
		line.Bandwidth = &v1alpha1.PairsBandwidth{
			MinBitsPerSecond:    streams[0].Bandwidth.BitsPerSecond,
			MedianBitsPerSecond: streams[(n-1)/2].Bandwidth.BitsPerSecond,
			MaxBitsPerSecond:    streams[n-1].Bandwidth.BitsPerSecond,
			MinBenchmark:        streams[0].Of.Name,
		}
	}
	return line
}

func spreadOfPairs(pairs []PairResult, p v1alpha1.Percentile) *v1alpha1.PairsLatency {
	var all []int64
	highest, benchmark := int64(-1), ""
	for _, c := range pairs {
		ns := c.Rank(p)
		if ns < 0 {
			continue
		}
		all = append(all, ns)
		if ns > highest {
			highest, benchmark = ns, c.Of.Name
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	at := func(i int) *int64 {
		if all[i] == stats.Infinite {
			return nil
		}
		return new(all[i])
	}
	return &v1alpha1.PairsLatency{MinNanoseconds: at(0), MedianNanoseconds: at((len(all) - 1) / 2), MaxNanoseconds: at(len(all) - 1), MaxBenchmark: benchmark}
}
