package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// mostNodes bounds the nodes of a matrix that is shown, mostPairs the pairs of a list.
const (
	mostNodes = 20
	mostPairs = 20
)

// Pairs writes p50 and p99 of all pairs for each cell: matrices of up to 20 nodes, the distribution
// and the slowest pairs, from the status. The error wraps ErrNothingToShow without round trips.
func Pairs(w io.Writer, m *v1alpha1.LatencyMatrix, pairs []*v1alpha1.LatencyBenchmark) error {
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
	clients, servers := NodesOf(pairs)
	nodes := sets.List(sets.New(slices.Concat(clients, servers)...))
	for _, results := range cells {
		first := *results[0].CellResult
		fmt.Fprintf(w, "\nLATENCY of %s: %s\n", summary.Label(first), Interval(first))
		tables := []func() error{
			func() error { return pairMatrix(w, v1alpha1.P50, nodes, servers, pairs, results) },
			func() error { return pairMatrix(w, v1alpha1.P99, nodes, servers, pairs, results) },
			func() error { return overPairs(w, results) },
			func() error { return worstPairs(w, results) },
		}
		if len(nodes) > mostNodes {
			tables = tables[2:]
		}
		for _, write := range tables {
			if err := write(); err != nil {
				return fmt.Errorf("writing the pairs of %s: %w", summary.Label(first), err)
			}
		}
	}
	Notes(w, "", waiting)
	return nil
}

// PairCells returns the pairs' round-trip results by cell and variant, a cell's adjacent.
func PairCells(pairs []*v1alpha1.LatencyBenchmark) [][]summary.PairResult {
	blocks := slices.DeleteFunc(summary.PairCells(pairs), func(b []summary.PairResult) bool { return b[0].Stream })
	return slices.Concat(grouped(blocks, func(b []summary.PairResult) string { return b[0].Name })...)
}

// NodesOf returns the names of the clients and of the servers of the pairs, sorted.
func NodesOf(pairs []*v1alpha1.LatencyBenchmark) (clients, servers []string) {
	from, to := sets.New[string](), sets.New[string]()
	for _, b := range pairs {
		from.Insert(summary.PairOf(b).ClientNode)
		to.Insert(summary.PairOf(b).ServerNode)
	}
	return sets.List(from.Delete("")), sets.List(to.Delete(""))
}

func pairMatrix(w io.Writer, p v1alpha1.Percentile, nodes, servers []string, pairs []*v1alpha1.LatencyBenchmark, results []summary.PairResult) error {
	values := map[v1alpha1.Pair]string{}
	for _, b := range pairs {
		values[summary.PairOf(b)] = "?"
	}
	for _, r := range results {
		switch ns := r.Percentile(p); {
		case ns != nil:
			values[r.Pair()] = micros(*ns)
		case summary.IsLost(*r.CellResult, p):
			values[r.Pair()] = "lost"
		default:
			values[r.Pair()] = "few"
		}
	}
	lines := [][]string{append([]string{"", ""}, text.Of(servers, func(server string) string { return strconv.Itoa(slices.Index(nodes, server) + 1) })...)}
	for i, client := range nodes {
		cells := text.Of(servers, func(server string) string {
			return cmp.Or(values[v1alpha1.Pair{ClientNode: client, ServerNode: server}], "-")
		})
		lines = append(lines, append([]string{client, strconv.Itoa(i + 1)}, cells...))
	}
	return writeLines(w, fmt.Sprintf("%s in µs, clients are rows, servers are columns; -: no pair, ?: not measured yet, few: too few samples", p), lines)
}

func overPairs(w io.Writer, results []summary.PairResult) error {
	lines := [][]string{{"OVER PAIRS", "PAIRS", "MIN", "50%", "90%", "99%", "MAX"}}
	for _, p := range v1alpha1.HeadlinePercentiles() {
		var each []stats.Bucket
		for _, r := range results {
			if ns := r.Rank(p); ns >= 0 {
				each = append(each, stats.Bucket{Low: ns, High: ns, Count: 1})
			}
		}
		if len(each) == 0 {
			continue
		}
		slices.SortFunc(each, func(a, b stats.Bucket) int { return cmp.Compare(a.High, b.High) })
		line := []string{string(p), strconv.Itoa(len(each)), orLost(each[0].Low)}
		for _, q := range []stats.Percentile{stats.P50, stats.P90, stats.P99} {
			line = append(line, orLost(stats.Quantile(each, q)))
		}
		lines = append(lines, append(line, orLost(each[len(each)-1].High)))
	}
	return writeLines(w, "", lines)
}

func orLost(ns int64) string {
	if ns == stats.Infinite {
		return "lost"
	}
	return stats.FormatLatency(ns)
}

func worstPairs(w io.Writer, results []summary.PairResult) error {
	by := v1alpha1.P99
	if !slices.ContainsFunc(results, func(r summary.PairResult) bool { return r.Rank(by) >= 0 }) {
		by = v1alpha1.P50
	}
	worst := slices.Clone(results)
	slices.SortStableFunc(worst, summary.Slower)
	lines := [][]string{{"CLIENT", "SERVER", "P50", "P99", "P99.9", "LOST", "PLACEMENT", "BENCHMARK"}}
	for _, r := range worst[:min(mostPairs, len(worst))] {
		line := []string{r.Pair().ClientNode, r.Pair().ServerNode}
		for _, p := range v1alpha1.HeadlinePercentiles() {
			line = append(line, percentile(*r.CellResult, p, stats.FormatLatency))
		}
		lines = append(lines, append(line, strconv.FormatInt(r.Lost, 10), orDash(string(r.Placement())), r.Of.Name))
	}
	return WriteLeft(w, fmt.Sprintf("slowest pairs by %s", by), lines)
}

// WithoutResults returns lines that describe the state of the pairs without results.
func WithoutResults(pairs []*v1alpha1.LatencyBenchmark) []string {
	pairs = slices.DeleteFunc(slices.Clone(pairs), func(p *v1alpha1.LatencyBenchmark) bool { return len(p.Status.Results) > 0 })
	var lines []string
	for _, b := range pairs[:min(mostPairs, len(pairs))] {
		p := summary.PairOf(b)
		lines = append(lines, fmt.Sprintf("%s to %s has no results, LatencyBenchmark %s: %s",
			orDash(p.ClientNode), orDash(p.ServerNode), b.Name, summary.Standing(b)))
	}
	if rest := len(pairs) - len(lines); rest > 0 {
		lines = append(lines, fmt.Sprintf("%d more pairs have no results", rest))
	}
	return lines
}
