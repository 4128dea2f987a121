package htmlreport

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/text"
)

type figure struct {
	Text, Title string // short; the full text if it differs
	Muted       bool   // a text that is not a number
}

var (
	absent = figure{Text: "–", Title: "not reported", Muted: true}
	lost   = figure{Text: "lost", Title: "this percentile falls among the lost messages", Muted: true}
)

func latency(ns int64) figure { return figure{Text: micros(ns)} }

// rounded formats a latency in microseconds with the decimals of its tool's step (0: all three).
func rounded(ns *int64, step int64) figure {
	if ns == nil {
		return absent
	}
	f := latency(*ns)
	if step <= 1 {
		return f
	}
	f.Title = fmt.Sprintf("rounded by the tool to %s µs", micros(step))
	for digit := int64(10); digit <= 1000 && step%digit == 0; digit *= 10 {
		f.Text = strings.TrimSuffix(f.Text[:len(f.Text)-1], ".")
	}
	return f
}

func micros(ns int64) string {
	return thousands(ns/1000) + fmt.Sprintf(".%03d", ns%1000)
}

func number(n int64) figure { return figure{Text: thousands(n)} }

// thousands formats a number in groups of three digits; not a negative one.
func thousands(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

func needs(samples int64) figure {
	return figure{Text: "needs " + power(samples), Title: fmt.Sprintf("needs %s samples", thousands(samples)), Muted: true}
}

func power(n int64) string {
	digits := strconv.FormatInt(n, 10)
	if len(digits) < 5 || strings.Trim(digits[1:], "0") != "" || digits[0] != '1' {
		return thousands(n)
	}
	return "10" + strings.NewReplacer("0", "⁰", "1", "¹", "2", "²", "3", "³", "4", "⁴", "5", "⁵", "6", "⁶", "7", "⁷", "8", "⁸", "9", "⁹").
		Replace(strconv.Itoa(len(digits)-1))
}

func bitRate(n int64) figure { return figure{Text: stats.FormatBitRate(n)} }

func at(t *metav1.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}

// duration formats a time span to the second; empty if an end is missing or a clock was set back.
func duration(from, to *metav1.Time) string {
	if from.IsZero() || to.IsZero() || to.Before(from) {
		return ""
	}
	return to.Sub(from.Time).Round(time.Second).String()
}

func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// Browsers cut wide tables, which are divided for A4. Widths are in points, estimated from above.
const (
	paperWidth    = 510 // A4 without margins, 527, with a reserve for other fonts
	charWidth     = 4.1
	padding       = 6
	mostNameChars = 24 // characters, from which the print style wraps names
	narrowestName = 44 // the least width of a column of names
)

func columnWidth(texts ...string) float64 {
	most := 0.0
	for _, text := range texts {
		for word := range strings.FieldsSeq(text) {
			most = max(most, lineWidth(word))
		}
	}
	return most + padding
}

func lineWidth(text string) float64 {
	points := strings.Count(text, ",") + strings.Count(text, ".") // They have half the width of a digit.
	return (float64(utf8.RuneCountInString(text)) - float64(points)/2) * charWidth
}

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

func (t table) Parts() [][2]int {
	names, columns := 0.0, make([]float64, len(t.Columns))
	for i, title := range t.Texts {
		names += nameWidth(append(text.Of(t.Rows, func(r tableRow) string { return r.Texts[i] }), title)...)
	}
	for i, title := range t.Columns {
		columns[i] = columnWidth(append(text.Of(t.Rows, func(r tableRow) string { return r.Figures[i].Text }), title)...)
	}
	return divided(names, columns)
}
