package htmlreport

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/summary"
)

// matrix is a percentile of a cell of all pairs, with clients as rows and servers as columns.
type matrix struct {
	Cell, Variant, Percentile string
	Interval                  string // what the latencies measure
	// Small: too many nodes for numbers in fields. Turned: names above columns are turned.
	Small, Turned           bool
	Servers                 []string // the columns, which Parts divides into tables
	Rows                    []matrixRow
	Parts                   [][2]int
	Lowest, Median, Highest string // the pairs' extremes; the colours compare with the median
	Worst                   []summary.PairResult
	Waiting                 []string // pairs without results, with their state
}

type matrixRow struct {
	Client string
	Fields []matrixField
}

type matrixField struct {
	Class, Text string // Class: h0 to h8 (see steps), lost, few (too few samples), wait or none
}

const (
	mostNumbered = 16  // nodes of a matrix with a number in each field
	smallField   = 6.6 // points on paper: the width of a field without a number
	mostWorst    = 10
)

// steps are the lowest figures of h1 to h8, in percent of the median, which one pair does not move.
var steps = []int64{50, 80, 95, 105, 125, 150, 200, 400}

func level(ns, median int64) int {
	n := 0
	for n < len(steps) && ns*100 >= median*steps[n] {
		n++
	}
	return n
}

type legendItem struct{ Class, Text string }

func (m matrix) Legend() []legendItem {
	all := []legendItem{{"h0", "below"}}
	for i, percent := range steps {
		all = append(all, legendItem{fmt.Sprintf("h%d", i+1), strconv.FormatFloat(float64(percent)/100, 'f', -1, 64)})
	}
	return all
}

// matricesOf returns matrices of each cell's p50, p99 and p99.9 that any pair has.
func matricesOf(b export.Benchmark) []matrix {
	if b.Matrix == nil {
		return nil
	}
	pairs := export.Objects(b.Pairs)
	clients, servers := report.NodesOf(pairs)
	small := sets.New(clients...).Insert(servers...).Len() > mostNumbered
	waiting := report.WithoutResults(pairs)
	var all []matrix
	for _, results := range report.PairCells(pairs) {
		for _, p := range v1alpha1.HeadlinePercentiles() {
			m := matrix{Cell: results[0].Name, Variant: results[0].Variant, Percentile: string(p), Interval: report.Interval(*results[0].CellResult), Small: small, Servers: servers}
			if m.fill(pairs, results, p, clients) {
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

func (m *matrix) fill(pairs []*v1alpha1.LatencyBenchmark, results []summary.PairResult, p v1alpha1.Percentile, clients []string) bool {
	of := map[v1alpha1.Pair]*v1alpha1.CellResult{}
	for _, b := range pairs {
		of[summary.PairOf(b)] = nil
	}
	var measured []summary.PairResult
	var figures []int64
	for _, r := range results {
		of[r.Pair()] = r.CellResult
		if r.Rank(p) >= 0 {
			measured = append(measured, r)
		}
		if ns := r.Percentile(p); ns != nil {
			figures = append(figures, *ns)
		}
	}
	if len(measured) == 0 {
		return false
	}
	var median int64
	if len(figures) > 0 {
		slices.Sort(figures)
		median = figures[(len(figures)-1)/2]
		m.Lowest, m.Median, m.Highest = micros(figures[0]), micros(median), micros(figures[len(figures)-1])
	}
	for _, client := range clients {
		row := matrixRow{Client: client}
		for _, server := range m.Servers {
			one, isPair := of[v1alpha1.Pair{ClientNode: client, ServerNode: server}]
			row.Fields = append(row.Fields, fieldOf(one, isPair, p, median))
		}
		m.Rows = append(m.Rows, row)
	}
	m.divide()
	slices.SortStableFunc(measured, func(x, y summary.PairResult) int { return cmp.Compare(y.Rank(p), x.Rank(p)) })
	m.Worst = measured[:min(mostWorst, len(measured))]
	return true
}

// divide sets the parts, which fit on paper. Names wider than the figures are turned.
func (m *matrix) divide() {
	var clients []string
	widths := make([]float64, len(m.Servers))
	for i, r := range m.Rows {
		clients = append(clients, r.Client)
		for j, f := range r.Fields {
			widths[j] = max(widths[j], columnWidth(f.Text))
			m.Turned = m.Turned || i == 0 && columnWidth(m.Servers[j]) > widths[j]+padding
		}
	}
	for j, server := range m.Servers {
		switch {
		case m.Small:
			widths[j] = smallField
		case !m.Turned:
			widths[j] = max(widths[j], columnWidth(server))
		}
	}
	m.Parts = divided(nameWidth(clients...), widths)
}

func fieldOf(r *v1alpha1.CellResult, isPair bool, p v1alpha1.Percentile, median int64) matrixField {
	switch {
	case !isPair:
		return matrixField{Class: "none"}
	case r == nil:
		return matrixField{"wait", "?"}
	case r.Percentile(p) != nil:
		return matrixField{fmt.Sprintf("h%d", level(*r.Percentile(p), median)), micros(*r.Percentile(p))}
	case summary.IsLost(*r, p):
		return matrixField{"lost", "lost"}
	}
	return matrixField{"few", percentile(*r, p).Text}
}
