// Package text shortens what people read in messages, events and statuses.
package text

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

const mark = "…"

// controls replaces what controls a terminal, reorders or is invisible, but tabs and line ends.
var controls = func() *strings.Replacer {
	var all []string
	for c := range rune(0xa0) {
		if unicode.IsControl(c) && c != '\n' && c != '\t' {
			all = append(all, string(c), string(unicode.ReplacementChar))
		}
	}
	for c := rune(0xa0); c <= unicode.MaxRune; c++ {
		if unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp) {
			all = append(all, string(c), string(unicode.ReplacementChar))
		}
	}
	return strings.NewReplacer(all...)
}()

// Writer returns a writer that replaces the characters that control a terminal.
func Writer(to io.Writer) io.Writer { return &writer{Writer: to} }

type writer struct {
	io.Writer
	// part is the beginning of a character whose rest has not been written yet.
	part []byte
}

// Write implements io.Writer. It passes bytes on that are no characters.
func (w *writer) Write(p []byte) (int, error) {
	all := slices.Concat(w.part, p)
	whole := len(all)
	for n := 1; n < utf8.UTFMax && n <= len(all); n++ {
		if last := all[len(all)-n:]; utf8.RuneStart(last[0]) {
			if !utf8.FullRune(last) {
				whole -= n
			}
			break
		}
	}
	w.part = all[whole:]
	if _, err := controls.WriteString(w.Writer, string(all[:whole])); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (w *writer) Unwrap() io.Writer { return w.Writer }

// Shorten returns at most limit bytes of UTF-8 without control characters; cut, it ends in "…".
func Shorten(s string, limit int) string {
	s = controls.Replace(strings.ToValidUTF8(s, "?"))
	if len(s) <= limit {
		return s
	}
	return start(s, limit-len(mark)) + mark
}

// OneLine returns a message of another component as one line of at most limit bytes.
func OneLine(s string, limit int) string { return Shorten(Line(s), limit) }

// Ends returns a component's message as one line of at most limit bytes: the first third and the
// end, as CRI-O and Multus write hundreds of bytes between the component and the cause.
func Ends(s string, limit int) string {
	s = Line(s)
	if len(s) <= limit {
		return s
	}
	first := start(s, limit/3)
	return first + mark + strings.ToValidUTF8(s[len(s)-(limit-len(first)-len(mark)):], "")
}

// Printable replaces the characters that control a terminal, and returns at most limit bytes.
func Printable(s string, limit int) string {
	return Shorten(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, strings.ToValidUTF8(s, "?")), limit)
}

// Of returns a text for each item; nil if there are none.
func Of[T any](items []T, say func(T) string) (texts []string) {
	for _, item := range items {
		texts = append(texts, say(item))
	}
	return texts
}

// First returns the first items, at most limit. If there are more, another item says how many.
func First(items []string, limit int) []string {
	if more := len(items) - limit; more > 0 {
		return append(slices.Clip(items[:limit]), fmt.Sprintf("and %d more", more))
	}
	return items
}

// List joins the first items, at most limit. If there are more, the end says how many.
func List(items []string, limit int, separator string) string {
	return strings.Join(First(items, limit), separator)
}

func start(s string, bytes int) string { return strings.ToValidUTF8(s[:max(bytes, 0)], "") }

// Line returns a message of another component as one line, without control characters.
func Line(s string) string {
	return strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, "?"), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
}

// filler stands for the second place of a wide character. No text contains this noncharacter.
const filler = "\uffff"

// Columns aligns cells that tabs end. A tabwriter counts characters: wide ones get a filler.
type Columns struct{ aligned *tabwriter.Writer }

// NewColumns returns a writer of columns with a tabwriter's flags, to w when it is flushed.
func NewColumns(w io.Writer, flags uint) Columns {
	return Columns{tabwriter.NewWriter(unfilled{w}, 0, 0, 2, ' ', flags)}
}

func (c Columns) Write(text []byte) (int, error) {
	var filled strings.Builder
	for _, r := range string(text) {
		filled.WriteRune(r)
		if kind := width.LookupRune(r).Kind(); kind == width.EastAsianWide || kind == width.EastAsianFullwidth {
			filled.WriteString(filler)
		}
	}
	if _, err := io.WriteString(c.aligned, filled.String()); err != nil {
		return 0, err
	}
	return len(text), nil
}

func (c Columns) Flush() error { return c.aligned.Flush() }

type unfilled struct{ io.Writer }

func (u unfilled) Write(text []byte) (int, error) {
	if _, err := u.Writer.Write(bytes.ReplaceAll(text, []byte(filler), nil)); err != nil {
		return 0, err
	}
	return len(text), nil
}
