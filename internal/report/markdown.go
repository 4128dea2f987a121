package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/summary"
)

// markdown writes the same as Table for a document or a ticket, but without the checks of the placement: for each variant it
// writes its description, its nodes, and whether its placement was verified.
func markdown(w io.Writer, s sheet) error {
	b := s.benchmark
	fmt.Fprintf(w, "## %s\n\n", Escape(s.title()))
	for _, line := range noted(b.Spec.Notes) {
		fmt.Fprintf(w, "- %s\n", Escape(line))
	}
	for _, v := range plan.Variants(b.Spec) {
		var nodes []string
		own, _, _ := Ends(b.Status.Endpoints, v.Name)
		for _, e := range own {
			nodes = append(nodes, e.Node)
		}
		if len(own) > 0 {
			fmt.Fprintf(w, "- variant %s (%s): %s, placement %s\n", Escape(v.Name), Escape(Ways(v)), Escape(strings.Join(nodes, " to ")), summary.Placement(own))
		}
	}
	for _, t := range tables(b) {
		MarkdownTable(w, t.heading, t.lines(), AlignRight)
	}
	MarkdownList(w, limits(b))
	MarkdownList(w, verdict(b.Status.Verdict))
	return nil
}

// markdownPairs writes a line for each cell of each pair of a matrix.
func markdownPairs(w io.Writer, m *v1alpha1.LatencyMatrix, pairs []v1alpha1.LatencyBenchmark) {
	fmt.Fprintf(w, "## %s\n", Escape(fmt.Sprintf("%s/%s: %s, %s, %s of %d pairs", m.Namespace, m.Name, m.Spec.Template.Spec.Tool, m.Spec.Template.Spec.LatencyType, m.Spec.Topology, len(pairs))))
	columns := []tableColumn{variantColumn, cellColumn, {"INTERVAL", Interval}, roundsColumn, samplesColumn, lostColumn,
		percentileColumn(v1alpha1.P50), percentileColumn(v1alpha1.P99), percentileColumn(v1alpha1.P999)}
	lines := [][]string{{"CLIENT", "SERVER"}}
	for _, c := range columns {
		lines[0] = append(lines[0], c.title)
	}
	for _, p := range pairs {
		nodes := summary.PairOf(p)
		for _, r := range p.Status.Results {
			if summary.Streams(r) {
				continue
			}
			line := []string{nodes.ClientNode, nodes.ServerNode}
			for _, c := range columns {
				line = append(line, c.value(r))
			}
			lines = append(lines, line)
		}
	}
	MarkdownTable(w, "LATENCY of each pair", lines, AlignRight)
	MarkdownList(w, verdict(m.Status.Verdict))
}

// The alignments of the columns of a table in Markdown.
const (
	AlignLeft  = "---|"
	AlignRight = "---:|"
)

// MarkdownTable writes a table with a heading. The first line holds the titles.
func MarkdownTable(w io.Writer, heading string, lines [][]string, alignment string) {
	fmt.Fprintf(w, "\n%s\n\n", Escape(heading))
	for i, values := range lines {
		escaped := make([]string, len(values))
		for j, text := range values {
			escaped[j] = Escape(text)
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(escaped, " | "))
		if i == 0 {
			fmt.Fprintf(w, "|%s\n", strings.Repeat(alignment, len(values)))
		}
	}
}

// MarkdownList writes a list after a blank line.
func MarkdownList(w io.Writer, lines []string) {
	for i, line := range lines {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "- %s\n", Escape(strings.TrimSpace(line)))
	}
}

// Escape escapes a text so that Markdown shows it unchanged.
func Escape(text string) string {
	return strings.NewReplacer("|", `\|`, "~", `\~`, "*", `\*`, "<", "&lt;", "_", `\_`, "[", `\[`, "`", "\\`").Replace(text)
}
