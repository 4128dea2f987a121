package htmlreport

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// matrix is a percentile of a cell of all pairs: clients down, servers across.
type matrix struct {
	Cell, Variant, Percentile string
	// Small is true where there are too many nodes for a number in each field.
	Small   bool
	Servers []string
	Rows    []matrixRow
	// Lowest and Highest are those of all pairs.
	Lowest, Highest string
	// Worst are the pairs with the highest figures.
	Worst []worstPair
	// Waiting are the pairs without results, with what they wait for.
	Waiting []string
}

type matrixRow struct {
	Client string
	Fields []matrixField
}

// matrixField is a pair: with a figure, with none yet, or none that is measured.
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
	// levels of colour.
	levels = 9
	// mostNumbered are the nodes of a matrix with a number in each field.
	mostNumbered = 16
	// mostWorst are the pairs that are listed.
	mostWorst = 10
)

// matricesOf are p50, p99 and p99.9 of each cell, as far as some pair has them.
func matricesOf(b export.Benchmark) []matrix {
	if b.Matrix == nil {
		return nil
	}
	type cell struct{ name, variant string }
	var cells []cell
	nodes := map[string]bool{}
	servers := map[string]bool{}
	var waiting []string
	for _, p := range b.Pairs {
		pair := report.PairOf(*p.Object)
		nodes[pair.ClientNode], nodes[pair.ServerNode], servers[pair.ServerNode] = true, true, true
		if len(p.Object.Status.Results) == 0 {
			waiting = append(waiting, fmt.Sprintf("%s to %s, LatencyBenchmark %s: %s", orDash(pair.ClientNode), orDash(pair.ServerNode), p.Object.Name, report.Standing(p.Object)))
		}
		for _, r := range p.Object.Status.Results {
			if c := (cell{r.Name, r.Variant}); r.LatencyType != "" && !slices.Contains(cells, c) {
				cells = append(cells, c)
			}
		}
	}
	delete(nodes, "")
	delete(servers, "")
	const mostWaiting = 20
	if more := len(waiting) - mostWaiting; more > 0 {
		waiting = append(waiting[:mostWaiting], fmt.Sprintf("%d more pairs have no results", more))
	}
	var all []matrix
	for _, c := range cells {
		for _, p := range v1alpha1.HeadlinePercentiles() {
			m := matrix{Cell: c.name, Variant: c.variant, Percentile: string(p), Small: len(nodes) > mostNumbered, Servers: slices.Sorted(maps.Keys(servers))}
			if m.fill(b.Pairs, c.name, c.variant, p, slices.Sorted(maps.Keys(nodes))) {
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

// found is the result of a pair in the cell of a matrix.
type found struct {
	result v1alpha1.CellResult
	pair   v1alpha1.Pair
	of     *v1alpha1.LatencyBenchmark
}

// rank is the percentile for comparisons: a pair whose percentile falls among lost messages is slower than any number.
func (f *found) rank(p v1alpha1.Percentile) int64 {
	if ns := f.result.Percentile(p); ns != nil {
		return *ns
	}
	return stats.Infinite
}

// fill puts in what the pairs have; it is false when none has a figure.
func (m *matrix) fill(pairs []export.Benchmark, name, variant string, p v1alpha1.Percentile, nodes []string) bool {
	of := map[v1alpha1.Pair]*found{}
	var measured []*found
	lowest, highest := int64(-1), int64(-1)
	for _, b := range pairs {
		pair := report.PairOf(*b.Object)
		of[pair] = nil
		for _, r := range b.Object.Status.Results {
			if r.Name != name || r.Variant != variant {
				continue
			}
			of[pair] = &found{r, pair, b.Object}
			if ns := r.Percentile(p); ns != nil {
				if lowest < 0 || *ns < lowest {
					lowest = *ns
				}
				highest = max(highest, *ns)
				measured = append(measured, of[pair])
			} else if report.IsLost(r, p) {
				measured = append(measured, of[pair])
			}
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
	slices.SortStableFunc(measured, func(x, y *found) int { return cmp.Compare(y.rank(p), x.rank(p)) })
	for _, f := range measured[:min(mostWorst, len(measured))] {
		m.Worst = append(m.Worst, f.worst(variant))
	}
	return true
}

// row is that of a client; any says whether it is the client of a pair.
func (m *matrix) row(of map[v1alpha1.Pair]*found, client string, p v1alpha1.Percentile, lowest, highest int64) (row matrixRow, any bool) {
	row.Client = client
	for _, server := range m.Servers {
		f := matrixField{Class: "none"}
		if one, isPair := of[v1alpha1.Pair{ClientNode: client, ServerNode: server}]; isPair {
			any = true
			f.Class, f.Text = "wait", "?"
			if one != nil {
				ns := one.result.Percentile(p)
				switch {
				case ns != nil:
					f.Class, f.Text = fmt.Sprintf("h%d", level(*ns, lowest, highest, levels)), micros(*ns)
				case report.IsLost(one.result, p):
					f.Class, f.Text = "lost", "lost"
				}
			}
		}
		row.Fields = append(row.Fields, f)
	}
	return row, any
}

// worst is the line of a pair in the list of the slowest.
func (f *found) worst(variant string) worstPair {
	w := worstPair{Client: f.pair.ClientNode, Server: f.pair.ServerNode, Benchmark: f.of.Name, Verified: true}
	for _, q := range v1alpha1.HeadlinePercentiles() {
		w.Figures = append(w.Figures, percentile(f.result, q))
	}
	w.Figures = append(w.Figures, number(f.result.Lost))
	ends := 0
	for _, e := range f.of.Status.Endpoints {
		if e.Variant == variant {
			ends++
			w.Verified = w.Verified && e.Verified
		}
	}
	w.Verified = w.Verified && ends == 2
	return w
}
