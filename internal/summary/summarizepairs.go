package summary

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// PairsSummary is the part of the status of a LatencyMatrix that is computed from the results of its pairs.
type PairsSummary struct {
	Slowest  []v1alpha1.MatrixPair
	Cells    []v1alpha1.MatrixCell
	Headline *v1alpha1.Summary
}

// SummarizePairs compares pairs that were measured under equal conditions, given by their benchmarks in the order of the
// plan: the slowest pairs in the cell of the headline, and the spread of every cell. The first pair with results determines
// the cells.
func SummarizePairs(pairs []*v1alpha1.LatencyBenchmark) PairsSummary {
	var s PairsSummary
	pairs = slices.DeleteFunc(slices.Clone(pairs), func(b *v1alpha1.LatencyBenchmark) bool { return len(b.Status.Results) == 0 })
	if len(pairs) == 0 {
		return s
	}
	cells := pairs[0].Status.Results
	cells = cells[:min(len(cells), v1alpha1.MaxMatrixCells)]
	for i := range cells {
		s.Cells = append(s.Cells, cellOfPairs(&cells[i], measuredIn(pairs, i, &cells[i])))
	}
	measured := measuredIn(pairs, 0, pairs[0].Status.Headline())
	slices.SortFunc(measured, worseFirst)
	for _, p := range measured[:min(len(measured), v1alpha1.MaxSlowestPairs)] {
		s.Slowest = append(s.Slowest, p.line())
	}
	s.Headline = headlineOf(measured)
	return s
}

// measuredIn returns the results of one cell in the pairs that have it. The cell is usually at the index place.
func measuredIn(pairs []*v1alpha1.LatencyBenchmark, place int, cell *v1alpha1.CellResult) []cellOfPair {
	var measured []cellOfPair
	for order := range pairs {
		if r := resultOf(pairs[order].Status.Results, place, cell); r != nil {
			measured = append(measured, cellOfPair{order, pairs[order], r})
		}
	}
	return measured
}

// headlineOf returns the headline of the worst pair, with a placement that is Verified only if that of every pair is.
func headlineOf(measured []cellOfPair) *v1alpha1.Summary {
	worst := measured[0]
	h := headline(worst.result.Name, *worst.result)
	h.Cell = fmt.Sprintf("%s, slowest of %d pairs", worst.result.Name, len(measured))
	if own := worst.benchmark.Status.Summary; own != nil {
		h.Variants = own.Variants
	}
	for _, m := range measured {
		if own := m.benchmark.Status.Summary; own != nil && h.Placement != v1alpha1.PlacementUnverified {
			h.Placement = own.Placement
		}
	}
	return h
}

// resultOf returns a cell of a pair's results. All pairs have the same order, so that the cell is usually at the index
// place.
func resultOf(results []v1alpha1.CellResult, place int, cell *v1alpha1.CellResult) *v1alpha1.CellResult {
	same := func(r *v1alpha1.CellResult) bool { return r.Variant == cell.Variant && r.Name == cell.Name }
	if place < len(results) && same(&results[place]) {
		return &results[place]
	}
	for i := range results {
		if same(&results[i]) {
			return &results[i]
		}
	}
	return nil
}

// cellOfPair is one cell of one pair.
type cellOfPair struct {
	// order is the pair's place in the plan.
	order int
	// benchmark is the benchmark of the pair.
	benchmark *v1alpha1.LatencyBenchmark
	result    *v1alpha1.CellResult
}

func (c cellOfPair) line() v1alpha1.MatrixPair {
	r := v1alpha1.MatrixPair{
		Benchmark: c.benchmark.Name, Pair: PairOf(*c.benchmark), LatencyType: c.result.LatencyType, LostFrom: c.result.LostFrom,
	}
	for _, p := range c.result.Percentiles {
		if slices.Contains(v1alpha1.HeadlinePercentiles(), p.Name) {
			r.Percentiles = append(r.Percentiles, p)
		}
	}
	if c.result.Bandwidth != nil {
		r.BitsPerSecond = new(c.result.Bandwidth.BitsPerSecond)
	}
	return r
}

// worseFirst orders pairs by the highest p99, then p50; streams by the lowest bandwidth. Equal pairs keep the order of the
// plan.
func worseFirst(a, b cellOfPair) int {
	if x, y := a.result.Bandwidth, b.result.Bandwidth; x != nil && y != nil {
		return cmp.Or(cmp.Compare(x.BitsPerSecond, y.BitsPerSecond), cmp.Compare(a.order, b.order))
	}
	for _, p := range []v1alpha1.Percentile{v1alpha1.P99, v1alpha1.P50} {
		if c := cmp.Compare(Rank(b.result, p), Rank(a.result, p)); c != 0 {
			return c
		}
	}
	return cmp.Compare(a.order, b.order)
}

// cellOfPairs summarizes a cell over the pairs that have it.
func cellOfPairs(c *v1alpha1.CellResult, pairs []cellOfPair) v1alpha1.MatrixCell {
	line := v1alpha1.MatrixCell{
		Variant: c.Variant, Cell: c.Name, LatencyType: c.LatencyType, Pairs: int32(len(pairs)),
		P50: spreadOfPairs(pairs, v1alpha1.P50), P99: spreadOfPairs(pairs, v1alpha1.P99),
	}
	if c.Bandwidth != nil {
		streams := slices.DeleteFunc(slices.Clone(pairs), func(p cellOfPair) bool { return p.result.Bandwidth == nil })
		slices.SortFunc(streams, worseFirst)
		n := len(streams)
		line.Bandwidth = &v1alpha1.PairsBandwidth{
			MinBitsPerSecond:    streams[0].result.Bandwidth.BitsPerSecond,
			MedianBitsPerSecond: streams[(n-1)/2].result.Bandwidth.BitsPerSecond,
			MaxBitsPerSecond:    streams[n-1].result.Bandwidth.BitsPerSecond,
			MinBenchmark:        streams[0].benchmark.Name,
		}
	}
	return line
}

// spreadOfPairs returns the spread of a percentile over the pairs; nil if no pair has it.
func spreadOfPairs(pairs []cellOfPair, p v1alpha1.Percentile) *v1alpha1.PairsLatency {
	var all []int64
	highest, benchmark := int64(-1), ""
	for _, c := range pairs {
		ns := Rank(c.result, p)
		if ns < 0 {
			continue
		}
		all = append(all, ns)
		if ns > highest {
			highest, benchmark = ns, c.benchmark.Name
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
