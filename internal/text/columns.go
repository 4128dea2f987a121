package text

import (
	"bytes"
	"io"
	"strings"
	"text/tabwriter"

	"golang.org/x/text/width"
)

// filler stands for the second place that a wide character takes on a terminal. No text contains this noncharacter.
const filler = "\uffff"

// Columns aligns cells that tabs end. A tabwriter counts characters: wide ones get a filler.
type Columns struct{ aligned *tabwriter.Writer }

// NewColumns returns a writer of columns with flags of a tabwriter. It writes to w when it is flushed.
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

// unfilled writes a text without fillers.
type unfilled struct{ io.Writer }

func (u unfilled) Write(text []byte) (int, error) {
	if _, err := u.Writer.Write(bytes.ReplaceAll(text, []byte(filler), nil)); err != nil {
		return 0, err
	}
	return len(text), nil
}
