package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Table shows a report to people: what is not good, the worst first, with its effect and remedy; then the cluster and each
// node in one line. With all it has the good lines, too. Paint colours a word by its level; nil: no colours.
func (r Report) Table(all bool, paint func(Level, string) string) string {
	if paint == nil {
		paint = func(_ Level, word string) string { return word }
	}
	lines := slices.DeleteFunc(slices.Clone(r.Lines), func(l Line) bool { return l.Level == Good && !all })
	slices.SortStableFunc(lines, func(a, b Line) int {
		return cmp.Compare(slices.Index(Levels, a.Level), slices.Index(Levels, b.Level))
	})
	whatWidth, placeWidth := 0, 0
	for _, place := range append([]string{""}, r.Nodes...) {
		placeWidth = max(placeWidth, utf8.RuneCountInString(placeOf(place)))
	}
	for _, l := range lines {
		whatWidth = max(whatWidth, utf8.RuneCountInString(l.what()))
	}
	var out strings.Builder
	begin := func(level Level, place string) {
		fmt.Fprintf(&out, "%s%s  %s", paint(level, string(level)), pad(string(level), len(Warning)), placeOf(place)+pad(placeOf(place), placeWidth))
	}
	for _, l := range lines {
		begin(l.Level, l.Node)
		fmt.Fprintf(&out, "  %s  %s\n", l.what()+pad(l.what(), whatWidth), printable(l.Found))
		for _, more := range []struct{ name, text string }{{"effect", l.Effect}, {"remedy", l.Remedy}} {
			if more.text != "" {
				fmt.Fprintf(&out, "           %-8s %s\n", more.name+":", printable(more.text))
			}
		}
	}
	if len(lines) > 0 {
		out.WriteString("\n")
	}
	for _, place := range append([]string{""}, r.Nodes...) {
		of := r.of(place)
		begin(of.Result, place)
		fmt.Fprintf(&out, "  %s\n", of.counts())
	}
	fmt.Fprintf(&out, "\n%s: %s\n", paint(r.Result, string(r.Result)), r.summary())
	return out.String()
}

// placeOf is the name of a line's node, or the cluster.
func placeOf(node string) string { return cmp.Or(node, "cluster") }

// pad is what a text lacks to a width.
func pad(text string, width int) string {
	return strings.Repeat(" ", width-utf8.RuneCountInString(text))
}

// of is the part of a report that is of a node, or of the cluster.
func (r Report) of(node string) Report {
	part := Report{Lines: slices.DeleteFunc(slices.Clone(r.Lines), func(l Line) bool { return l.Node != node })}
	part.Result = worst(part.Lines)
	return part
}

// what was looked at.
func (l Line) what() string { return strings.TrimSuffix(l.Check+" "+l.Subject, " ") }

// summary has the number of nodes, and of lines of each level.
func (r Report) summary() string {
	nodes := "1 node"
	if len(r.Nodes) != 1 {
		nodes = fmt.Sprintf("%d nodes", len(r.Nodes))
	}
	return nodes + ", " + r.counts()
}

// counts are how many lines of each level there are.
func (r Report) counts() string {
	var parts []string
	for _, level := range Levels {
		switch n := r.Count(level); {
		case n == 0 && level != Good:
		case n != 1 && (level == Error || level == Warning):
			parts = append(parts, fmt.Sprintf("%d %ss", n, level))
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, level))
		}
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
