package doctor

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Table shows a report to people: the lines of the cluster, then those of each node, and under each that is not good its
// effect and remedy. Paint colours a word by its level; nil: no colours.
func (r Report) Table(paint func(Level, string) string) string {
	if paint == nil {
		paint = func(_ Level, word string) string { return word }
	}
	width := 0
	for _, l := range r.Lines {
		width = max(width, utf8.RuneCountInString(l.what()))
	}
	var out strings.Builder
	for i, l := range r.Lines {
		switch {
		case l.Node == "" && i == 0:
			out.WriteString("cluster\n")
		case l.Node != "" && (i == 0 || r.Lines[i-1].Node != l.Node):
			fmt.Fprintf(&out, "\nnode %s\n", l.Node)
		}
		level := paint(l.Level, string(l.Level)) + strings.Repeat(" ", len(Warning)-len(l.Level))
		what := l.what() + strings.Repeat(" ", width-utf8.RuneCountInString(l.what()))
		fmt.Fprintf(&out, "  %s  %s  %s\n", level, what, printable(l.Found))
		for _, more := range []struct{ name, text string }{{"effect", l.Effect}, {"remedy", l.Remedy}} {
			if more.text != "" {
				fmt.Fprintf(&out, "             %-8s %s\n", more.name+":", printable(more.text))
			}
		}
	}
	fmt.Fprintf(&out, "\n%s: %s\n", paint(r.Result, string(r.Result)), r.counts())
	return out.String()
}

// what was looked at.
func (l Line) what() string { return strings.TrimSuffix(l.Check+" "+l.Subject, " ") }

// counts are how many lines of each level there are.
func (r Report) counts() string {
	nodes := "1 node"
	if len(r.Nodes) != 1 {
		nodes = fmt.Sprintf("%d nodes", len(r.Nodes))
	}
	parts := []string{nodes}
	for _, level := range Levels {
		part := fmt.Sprintf("%d %s", r.Count(level), level)
		if r.Count(level) != 1 && (level == Error || level == Warning) {
			part += "s"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// printable is what others said without what would move a terminal's cursor.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}
