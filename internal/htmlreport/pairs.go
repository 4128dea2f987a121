package htmlreport

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/summary"
)

// matrix is a percentile of a cell of all pairs, with clients as rows and servers as columns.
type matrix struct {
	Cell, Variant, Percentile string
	// Small is true if there are too many nodes for a number in each field.
	Small   bool
	Servers []string
	Rows    []matrixRow
	// Lowest and Highest are the extremes of all pairs.
	Lowest, Highest string
	// Worst holds the pairs with the highest figures.
	Worst []worstPair
	// Waiting holds the pairs without results, with their state.
	Waiting []string
}

type matrixRow struct {
	Client string
	Fields []matrixField
}

// matrixField is a pair: with a figure, without a figure yet, or not measured.
type matrixField struct {
	// Class is h0 (the lowest) to h8 (the highest), lost, wait or none.
	Class, Text string
}

type worstPair struct {
	Client, Server, Benchmark string
	Figures                   []figure
	Verified                  bool
}

const (
	// levels is the number of colours.
	levels = 9
	// mostNumbered is the largest number of nodes of a matrix with a number in each field.
	mostNumbered = 16
	// mostWorst is the largest number of pairs that are listed.
	mostWorst = 10
)

// matricesOf returns matrices of p50, p99 and p99.9 of each cell, for the percentiles that any pair has.
func matricesOf(b export.Benchmark) []matrix {
	if b.Matrix == nil {
		return nil
	}
	pairs := export.Objects(b.Pairs)
	nodes, waiting := report.NodesOf(pairs), report.WithoutResults(pairs)
	var servers []string
	for _, p := range pairs {
		if server := summary.PairOf(p).ServerNode; server != "" {
			servers = append(servers, server)
		}
	}
	slices.Sort(servers)
	servers = slices.Compact(servers)
	var all []matrix
	for _, results := range report.PairCells(pairs) {
		for _, p := range v1alpha1.HeadlinePercentiles() {
			m := matrix{Cell: results[0].Name, Variant: results[0].Variant, Percentile: string(p), Small: len(nodes) > mostNumbered, Servers: servers}
			if m.fill(pairs, results, p, nodes) {
				all = append(all, m)
			}
		}
	}
	if len(all) > 0 {
		all[len(all)-1].Waiting = waiting
	} else if len(waiting) > 0 {
		all = append(all, matrix{Waiting: waiting})
	}
	return all
}

// fill adds the figures of the pairs; it returns false if no pair has a figure.
func (m *matrix) fill(pairs []v1alpha1.LatencyBenchmark, results []report.PairResult, p v1alpha1.Percentile, nodes []string) bool {
	of := map[v1alpha1.Pair]*report.PairResult{}
	for _, b := range pairs {
		of[summary.PairOf(b)] = nil
	}
	var measured []*report.PairResult
	lowest, highest := int64(-1), int64(-1)
	for i := range results {
		r := &results[i]
		of[r.Pair] = r
		if r.Rank(p) >= 0 {
			measured = append(measured, r)
		}
		if ns := r.Percentile(p); ns != nil {
			if lowest < 0 || *ns < lowest {
				lowest = *ns
			}
			highest = max(highest, *ns)
		}
	}
	if len(measured) == 0 {
		return false
	}
	if lowest >= 0 {
		m.Lowest, m.Highest = micros(lowest), micros(highest)
	}
	for _, client := range nodes {
		row, any := m.row(of, client, p, lowest, highest)
		if any {
			m.Rows = append(m.Rows, row)
		}
	}
	slices.SortStableFunc(measured, func(x, y *report.PairResult) int { return cmp.Compare(y.Rank(p), x.Rank(p)) })
	for _, f := range measured[:min(mostWorst, len(measured))] {
		m.Worst = append(m.Worst, worst(f))
	}
	return true
}

// row returns the row of a client; any reports whether it is the client of a pair.
func (m *matrix) row(of map[v1alpha1.Pair]*report.PairResult, client string, p v1alpha1.Percentile, lowest, highest int64) (row matrixRow, any bool) {
	row.Client = client
	for _, server := range m.Servers {
		f := matrixField{Class: "none"}
		if one, isPair := of[v1alpha1.Pair{ClientNode: client, ServerNode: server}]; isPair {
			any = true
			f.Class, f.Text = "wait", "?"
			if one != nil {
				ns := one.Percentile(p)
				switch {
				case ns != nil:
					f.Class, f.Text = fmt.Sprintf("h%d", level(*ns, lowest, highest, levels)), micros(*ns)
				case summary.IsLost(one.CellResult, p):
					f.Class, f.Text = "lost", "lost"
				}
			}
		}
		row.Fields = append(row.Fields, f)
	}
	return row, any
}

// worst returns the line of a pair in the list of the slowest.
func worst(r *report.PairResult) worstPair {
	w := worstPair{Client: r.Pair.ClientNode, Server: r.Pair.ServerNode, Benchmark: r.Benchmark, Verified: r.Placement == v1alpha1.PlacementVerified}
	for _, q := range v1alpha1.HeadlinePercentiles() {
		w.Figures = append(w.Figures, percentile(r.CellResult, q))
	}
	w.Figures = append(w.Figures, number(r.Lost))
	return w
}
