package doctor

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tailgate-dev/tailgate/internal/text"
)

// Table returns a report as text: the lines that are not good, the worst first, with their effect and remedy; then one line for
// the cluster and for each node. If all is true, it also contains the good lines. paint colours a word by its level; nil means
// no colours.
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
		fmt.Fprintf(&out, "%s%*s  %-*s", paint(level, string(level)), len(Warning)-len(level), "", placeWidth, placeOf(place))
	}
	for _, l := range lines {
		begin(l.Level, l.Node)
		fmt.Fprintf(&out, "  %-*s  %s\n", whatWidth, l.what(), text.Printable(l.Found, math.MaxInt))
		for _, more := range []struct{ name, text string }{{"effect", l.Effect}, {"remedy", l.Remedy}} {
			if more.text != "" {
				fmt.Fprintf(&out, "           %-8s %s\n", more.name+":", text.Printable(more.text, math.MaxInt))
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
	nodes := "1 node"
	if len(r.Nodes) != 1 {
		nodes = fmt.Sprintf("%d nodes", len(r.Nodes))
	}
	fmt.Fprintf(&out, "\n%s: %s, %s\n", paint(r.Result, string(r.Result)), nodes, r.counts())
	return out.String()
}

func placeOf(node string) string { return cmp.Or(node, "cluster") }

// of returns the part of a report about a node, or, if node is empty, about the cluster.
func (r Report) of(node string) Report {
	part := Report{Lines: slices.DeleteFunc(slices.Clone(r.Lines), func(l Line) bool { return l.Node != node })}
	part.Result = worst(part.Lines)
	return part
}

func (l Line) what() string { return strings.TrimSuffix(l.Check+" "+l.Subject, " ") }

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
