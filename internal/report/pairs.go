package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/summary"
)

// mostNodes is the largest number of nodes for which a matrix is shown, mostPairs the largest number of pairs in a list.
const (
	mostNodes = 20
	mostPairs = 20
)

// PairResult is the result of one pair in one cell.
type PairResult struct {
	v1alpha1.CellResult
	Pair v1alpha1.Pair
	// Benchmark is the name of the pair's LatencyBenchmark.
	Benchmark string
	Placement v1alpha1.PlacementState
}

// Pairs writes p50 and p99 of every pair of a LatencyMatrix for each cell and variant, from the status of the benchmarks of
// the pairs: matrices of up to 20 nodes, the distribution over all pairs, and the slowest pairs. Pairs without results come
// last, with their state. The error wraps ErrNothingToShow if no cell measured round trips.
func Pairs(w io.Writer, m *v1alpha1.LatencyMatrix, pairs []v1alpha1.LatencyBenchmark) error {
	cells := PairCells(pairs)
	waiting := WithoutResults(pairs)
	measured := 0
	for _, p := range pairs {
		measured += min(1, len(p.Status.Results))
	}
	if len(cells) == 0 && measured > 0 {
		return fmt.Errorf("%w: no cell measured round trips", ErrNothingToShow)
	}
	fmt.Fprintf(w, "%s/%s: %s, %s, %s of %d pairs, %d of them with results\n",
		m.Namespace, m.Name, m.Spec.Template.Spec.Tool, m.Spec.Template.Spec.LatencyType, m.Spec.Topology, len(pairs), measured)
	nodes := NodesOf(pairs)
	for _, results := range cells {
		first := results[0]
		fmt.Fprintf(w, "\nLATENCY of %s: %s\n", summary.Label(first.CellResult), Interval(first.CellResult))
		for _, p := range []v1alpha1.Percentile{v1alpha1.P50, v1alpha1.P99} {
			if len(nodes) > mostNodes {
				break
			}
			if err := pairMatrix(w, p, nodes, pairs, results); err != nil {
				return fmt.Errorf("writing the matrix of %s: %w", summary.Label(first.CellResult), err)
			}
		}
		if err := overPairs(w, results); err != nil {
			return fmt.Errorf("writing the pairs of %s: %w", summary.Label(first.CellResult), err)
		}
		if err := worstPairs(w, results); err != nil {
			return fmt.Errorf("writing the worst pairs of %s: %w", summary.Label(first.CellResult), err)
		}
	}
	notes(w, "", waiting)
	return nil
}

// PairCells returns the round-trip results of the pairs in blocks of one cell and variant. The blocks of a cell are
// adjacent.
func PairCells(pairs []v1alpha1.LatencyBenchmark) [][]PairResult {
	type key struct{ cell, variant string }
	of := map[key][]PairResult{}
	var order []key
	for _, b := range pairs {
		for _, r := range b.Status.Results {
			if summary.Streams(r) {
				continue
			}
			k := key{r.Name, r.Variant}
			if of[k] == nil {
				order = append(order, k)
			}
			ends, _, _ := Ends(b.Status.Endpoints, r.Variant)
			of[k] = append(of[k], PairResult{CellResult: r, Pair: summary.PairOf(b), Benchmark: b.Name, Placement: summary.Placement(ends)})
		}
	}
	var cells []string
	for _, k := range order {
		if !slices.Contains(cells, k.cell) {
			cells = append(cells, k.cell)
		}
	}
	slices.SortStableFunc(order, func(a, b key) int { return cmp.Compare(slices.Index(cells, a.cell), slices.Index(cells, b.cell)) })
	var all [][]PairResult
	for _, k := range order {
		all = append(all, of[k])
	}
	return all
}

// NodesOf returns the names of all nodes of the pairs, sorted.
func NodesOf(pairs []v1alpha1.LatencyBenchmark) []string {
	nodes := map[string]bool{}
	for _, b := range pairs {
		p := summary.PairOf(b)
		nodes[p.ClientNode], nodes[p.ServerNode] = true, true
	}
	delete(nodes, "")
	return slices.Sorted(maps.Keys(nodes))
}

// pairMatrix writes a matrix with a row for each client node and a column, titled with the number of the node, for each
// server node.
func pairMatrix(w io.Writer, p v1alpha1.Percentile, nodes []string, pairs []v1alpha1.LatencyBenchmark, results []PairResult) error {
	values := map[v1alpha1.Pair]string{}
	servers := map[string]bool{}
	for _, b := range pairs {
		values[summary.PairOf(b)], servers[summary.PairOf(b).ServerNode] = "?", true
	}
	for _, r := range results {
		switch ns := r.Percentile(p); {
		case ns != nil:
			values[r.Pair] = micros(*ns)
		case summary.IsLost(r.CellResult, p):
			values[r.Pair] = "lost"
		default:
			values[r.Pair] = "few"
		}
	}
	lines := [][]string{{"", ""}}
	for i, server := range nodes {
		if servers[server] {
			lines[0] = append(lines[0], strconv.Itoa(i+1))
		}
	}
	for i, client := range nodes {
		line := []string{client, strconv.Itoa(i + 1)}
		for _, server := range nodes {
			if servers[server] {
				line = append(line, cmp.Or(values[v1alpha1.Pair{ClientNode: client, ServerNode: server}], "-"))
			}
		}
		lines = append(lines, line)
	}
	return writeLines(w, fmt.Sprintf("%s in µs, clients are rows, servers are columns; -: no pair, ?: not measured yet, few: too few samples", p), lines)
}

// Rank returns a percentile for comparisons with other pairs: Infinite if it is lost, -1 if it is unknown.
func (r PairResult) Rank(p v1alpha1.Percentile) int64 { return summary.Rank(&r.CellResult, p) }

// overPairs writes how the percentiles of the pairs are distributed.
func overPairs(w io.Writer, results []PairResult) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w)
	fmt.Fprintln(t, "OVER PAIRS\tPAIRS\tMIN\t50%\t90%\t99%\tMAX\t")
	for _, p := range v1alpha1.HeadlinePercentiles() {
		var values []int64
		for _, r := range results {
			if ns := r.Rank(p); ns >= 0 {
				values = append(values, ns)
			}
		}
		if len(values) == 0 {
			continue
		}
		slices.Sort(values)
		each := make([]stats.Bucket, 0, len(values))
		for _, v := range values {
			each = append(each, stats.Bucket{Low: v, High: v, Count: 1})
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t", p, len(values), orLost(values[0]))
		for _, q := range []stats.Percentile{stats.P50, stats.P90, stats.P99} {
			fmt.Fprintf(t, "%s\t", orLost(stats.Quantile(each, q)))
		}
		fmt.Fprintf(t, "%s\t\n", orLost(values[len(values)-1]))
	}
	return t.Flush()
}

func orLost(ns int64) string {
	if ns == stats.Infinite {
		return "lost"
	}
	return stats.FormatLatency(ns)
}

// worstPairs lists the pairs with the highest p99, or p50 if no pair has enough samples for p99.
func worstPairs(w io.Writer, results []PairResult) error {
	by := v1alpha1.P99
	if !slices.ContainsFunc(results, func(r PairResult) bool { return r.Rank(by) >= 0 }) {
		by = v1alpha1.P50
	}
	worst := slices.Clone(results)
	slices.SortStableFunc(worst, func(a, b PairResult) int {
		return cmp.Or(cmp.Compare(b.Rank(by), a.Rank(by)), cmp.Compare(b.Rank(v1alpha1.P50), a.Rank(v1alpha1.P50)))
	})
	fmt.Fprintf(w, "\nslowest pairs by %s\n", by)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "  CLIENT\tSERVER\tP50\tP99\tP99.9\tLOST\tPLACEMENT\tBENCHMARK")
	for _, r := range worst[:min(mostPairs, len(worst))] {
		fmt.Fprintf(t, "  %s\t%s\t", r.Pair.ClientNode, r.Pair.ServerNode)
		for _, p := range v1alpha1.HeadlinePercentiles() {
			fmt.Fprintf(t, "%s\t", percentile(r.CellResult, p, stats.FormatLatency))
		}
		fmt.Fprintf(t, "%d\t%s\t%s\n", r.Lost, orDash(string(r.Placement)), r.Benchmark)
	}
	return t.Flush()
}

// WithoutResults returns lines that describe the state of the pairs without results.
func WithoutResults(pairs []v1alpha1.LatencyBenchmark) []string {
	pairs = slices.DeleteFunc(slices.Clone(pairs), func(p v1alpha1.LatencyBenchmark) bool { return len(p.Status.Results) > 0 })
	var lines []string
	for _, b := range pairs[:min(mostPairs, len(pairs))] {
		p := summary.PairOf(b)
		lines = append(lines, fmt.Sprintf("%s to %s has no results, LatencyBenchmark %s: %s",
			orDash(p.ClientNode), orDash(p.ServerNode), b.Name, summary.Standing(&b)))
	}
	if rest := len(pairs) - len(lines); rest > 0 {
		lines = append(lines, fmt.Sprintf("%d more pairs have no results", rest))
	}
	return lines
}
