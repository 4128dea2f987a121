package doctor

import (
	"bytes"
	"fmt"
	"strings"
	"text/tabwriter"
)

// Table writes a report for people: the lines of the cluster, then those of each node, and under each that is not good its
// effect and how to mend it. Paint colours a word by its level; nil: no colours.
func (r Report) Table(paint func(Level, string) string) (string, error) {
	var plain bytes.Buffer
	t := tabwriter.NewWriter(&plain, 0, 0, 2, ' ', 0)
	group := "\x00"
	for _, l := range r.Lines {
		if l.Node != group {
			if group != "\x00" {
				fmt.Fprintln(t)
			}
			group = l.Node
			title := "node " + l.Node
			if l.Node == "" {
				title = "cluster"
			}
			fmt.Fprintln(t, title)
		}
		what := l.Check
		if l.Subject != "" {
			what += " " + l.Subject
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", l.Level, what, printable(l.Found))
		for _, more := range []struct{ name, text string }{{"effect", l.Effect}, {"mend", l.Mend}} {
			if more.text != "" {
				fmt.Fprintf(t, "  \t\t  %s: %s\n", more.name, more.text)
			}
		}
	}
	if err := t.Flush(); err != nil {
		return "", fmt.Errorf("writing the table: %w", err)
	}
	fmt.Fprintf(&plain, "\n%s: %s\n", r.Result, r.counts())
	if paint == nil {
		return plain.String(), nil
	}
	// Colours would count as characters of the columns.
	var out strings.Builder
	for line := range strings.Lines(plain.String()) {
		for _, level := range Levels {
			if rest, found := strings.CutPrefix(line, "  "+string(level)+" "); found {
				line = "  " + paint(level, string(level)) + " " + rest
			}
		}
		out.WriteString(line)
	}
	return out.String(), nil
}

// counts are how many lines of each level there are.
func (r Report) counts() string {
	var parts []string
	for _, level := range Levels {
		parts = append(parts, fmt.Sprintf("%d %s", r.Count(level), level))
	}
	nodes := "1 node"
	if len(r.Nodes) != 1 {
		nodes = fmt.Sprintf("%d nodes", len(r.Nodes))
	}
	return nodes + ", " + strings.Join(parts, ", ")
}

// printable is what others said without what would move a terminal's cursor, or the table's columns.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, text)
}
