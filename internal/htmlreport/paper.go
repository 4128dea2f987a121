package htmlreport

import (
	"strings"
	"unicode/utf8"
)

// Paper does not scroll, and browsers cut what is wider: a wide table is divided into tables that
// fit on A4. Widths are in points, estimated from above for the print style.
const (
	// paperWidth is the width of A4 without margins, 527, with a reserve for other fonts.
	paperWidth = 510
	charWidth  = 4.1
	padding    = 6
	// mostNameChars is the width, in characters, from which the print style wraps names.
	mostNameChars = 24
	// narrowestName is the least width of a column of names.
	narrowestName = 44
)

// columnWidth returns the width of a column of texts that wrap between words.
func columnWidth(texts ...string) float64 {
	most := 0.0
	for _, text := range texts {
		for word := range strings.FieldsSeq(text) {
			most = max(most, lineWidth(word))
		}
	}
	return most + padding
}

// lineWidth returns the width of a text in one line.
func lineWidth(text string) float64 {
	points := strings.Count(text, ",") + strings.Count(text, ".") // They have half the width of a digit.
	return (float64(utf8.RuneCountInString(text)) - float64(points)/2) * charWidth
}

// nameWidth returns the width of a column of names, which wrap.
func nameWidth(names ...string) float64 {
	return max(min(columnWidth(names...), mostNameChars*charWidth+padding), narrowestName)
}

// divided returns the bounds of the parts of columns beside the names, each with one at least.
func divided(names float64, columns []float64) [][2]int {
	var parts [][2]int
	from, used := 0, names
	for i, width := range columns {
		if i > from && used+width > paperWidth {
			parts = append(parts, [2]int{from, i})
			from, used = i, names
		}
		used += width
	}
	return append(parts, [2]int{from, len(columns)})
}

func within[T any](columns []T, part [2]int) []T { return columns[part[0]:part[1]] }

// Parts returns the parts of the table's columns, each of which has all of its names beside it.
func (t table) Parts() [][2]int {
	names, columns := 0.0, make([]float64, len(t.Columns))
	for i, title := range t.Texts {
		texts := []string{title}
		for _, r := range t.Rows {
			texts = append(texts, r.Texts[i])
		}
		names += nameWidth(texts...)
	}
	for i, title := range t.Columns {
		texts := []string{title}
		for _, r := range t.Rows {
			texts = append(texts, r.Figures[i].Text)
		}
		columns[i] = columnWidth(texts...)
	}
	return divided(names, columns)
}
