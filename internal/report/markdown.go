package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
)

// markdown writes what Table does for a document or a ticket, without the lines of the proof: of each variant its way to
// the peer, its nodes, and whether its placement was verified.
func markdown(w io.Writer, s sheet) error {
	b := s.benchmark
	fmt.Fprintf(w, "## %s\n\n", escape(s.title()))
	for _, line := range noted(b.Spec.Notes) {
		fmt.Fprintf(w, "- %s\n", escape(line))
	}
	for _, v := range plan.Variants(b.Spec) {
		var own []v1alpha1.Endpoint
		var nodes []string
		for _, e := range b.Status.Endpoints {
			if e.Variant == v.Name {
				own = append(own, e)
				nodes = append(nodes, e.Node)
			}
		}
		if len(own) > 0 {
			fmt.Fprintf(w, "- variant %s (%s): %s, placement %s\n", escape(v.Name), escape(Ways(v)), escape(strings.Join(nodes, " to ")), placement(own))
		}
	}
	for _, t := range tables(b) {
		markdownTable(w, t.heading, t.lines())
	}
	markdownList(w, limits(b))
	markdownList(w, verdict(b.Status.Verdict))
	return nil
}

// markdownPairs writes, of a matrix, a line for each cell of each.
func markdownPairs(w io.Writer, m *v1alpha1.LatencyMatrix, pairs []v1alpha1.LatencyBenchmark) {
	fmt.Fprintf(w, "## %s\n", escape(fmt.Sprintf("%s/%s: %s, %s, %s of %d pairs", m.Namespace, m.Name, m.Spec.Template.Spec.Tool, m.Spec.Template.Spec.LatencyType, m.Spec.Topology, len(pairs))))
	columns := []tableColumn{variantColumn, cellColumn, roundsColumn, samplesColumn, lostColumn,
		percentileColumn(v1alpha1.P50), percentileColumn(v1alpha1.P99), percentileColumn(v1alpha1.P999)}
	lines := [][]string{{"CLIENT", "SERVER"}}
	for _, c := range columns {
		lines[0] = append(lines[0], c.title)
	}
	for _, p := range pairs {
		nodes := PairOf(p)
		for _, r := range p.Status.Results {
			if streams(r) {
				continue
			}
			line := []string{nodes.ClientNode, nodes.ServerNode}
			for _, c := range columns {
				line = append(line, c.value(r))
			}
			lines = append(lines, line)
		}
	}
	markdownTable(w, "LATENCY of each pair", lines)
	markdownList(w, verdict(m.Status.Verdict))
}

// markdownTable writes a table with a heading, its first line the titles.
func markdownTable(w io.Writer, heading string, lines [][]string) {
	fmt.Fprintf(w, "\n%s\n\n", escape(heading))
	for i, values := range lines {
		escaped := make([]string, len(values))
		for j, text := range values {
			escaped[j] = escape(text)
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(escaped, " | "))
		if i == 0 {
			// Numbers are aligned to the right.
			fmt.Fprintf(w, "|%s\n", strings.Repeat("---:|", len(values)))
		}
	}
}

func markdownList(w io.Writer, lines []string) {
	for i, line := range lines {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "- %s\n", escape(strings.TrimSpace(line)))
	}
}

// escape makes of a text one that Markdown shows as it is.
func escape(text string) string {
	return strings.NewReplacer("|", `\|`, "~", `\~`, "*", `\*`, "<", "&lt;", "_", `\_`, "[", `\[`, "`", "\\`").Replace(text)
}
