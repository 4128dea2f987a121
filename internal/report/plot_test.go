package report

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/golden"
)

// curve has many samples of one length and some ten times as long.
func curve(t *testing.T, name string, ns, many, few int64) Curve {
	t.Helper()
	r := result.NewRecorder()
	r.RecordN(ns, many)
	if few > 0 {
		r.RecordN(10*ns, few)
	}
	h, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	d, err := result.Merge(h)
	if err != nil {
		t.Fatal(err)
	}
	return Curve{name, d, 0, func(ns int64) int64 { return ns }}
}

func plotted(t *testing.T, s Screen, curves ...Curve) string {
	t.Helper()
	var out bytes.Buffer
	if err := Plot(&out, "tcp-64: RTT by percentile", curves, s); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestPlot(t *testing.T) {
	before, after := curve(t, "before", 10_000, 99_000, 1_000), curve(t, "after", 5_000, 99_900, 100)
	for name, c := range map[string]struct {
		screen Screen
		curves []Curve
	}{
		"plot-ascii.txt":   {Screen{Width: 80}, []Curve{before, after}},
		"plot-unicode.txt": {Screen{Width: 80, Unicode: true}, []Curve{before}},
		"plot-colors.txt":  {Screen{Width: 60, Unicode: true, Colored: true}, []Curve{before, after}},
	} {
		golden.Check(t, name, plotted(t, c.screen, c.curves...))
	}
}

// No line is wider than the screen, and without Unicode there is none.
func TestPlotFits(t *testing.T) {
	c := curve(t, "c", 10_000, 1_000_000, 1_000)
	for _, width := range []int{1, 40, 80, 200} {
		for line := range strings.Lines(plotted(t, Screen{Width: width}, c, c)) {
			line = strings.TrimSuffix(line, "\n")
			if n := utf8.RuneCountInString(line); n > max(width, fewestAcross+axisWidth+2) && !strings.HasPrefix(line, "tcp-64") {
				t.Errorf("%d characters on %d: %q", n, width, line)
			}
			if len(line) != utf8.RuneCountInString(line) {
				t.Errorf("not ASCII: %q", line)
			}
		}
	}
}

// A curve ends where ten samples are left; messages that were lost are slower than all.
func TestPlotEndsWithTheSamples(t *testing.T) {
	c := curve(t, "c", 10_000, 99_995, 5)
	points := c.points()
	if last := points[len(points)-1]; last.ns != 10_007 || last.nines != 4 {
		t.Errorf("it ends with %+v", last)
	}
	c.Lost = 100_000
	points = c.points()
	if last := points[len(points)-1]; last.nines > 0.302 {
		t.Errorf("with as many lost it ends with %+v, not with the median", last)
	}
	if err := Plot(&bytes.Buffer{}, "few", []Curve{curve(t, "c", 10_000, 5, 0)}, Screen{Width: 80}); !errors.Is(err, ErrNothingToShow) {
		t.Errorf("got %v", err)
	}
}
