package report

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/stats"
)

// Screen describes how a plot may be drawn.
type Screen struct {
	// Width is how many characters a line has.
	Width int
	// Unicode allows braille, of which a character has eight dots; otherwise each curve has a letter of its own.
	Unicode bool
	// Colored gives each curve a colour of the terminal's palette.
	Colored bool
}

// Curve is a distribution of latencies to be plotted.
type Curve struct {
	Name string
	// Distribution is of times as they are stored, Lost how many messages have none.
	Distribution result.Distribution
	Lost         int64
	// Shown converts a time in nanoseconds to the one that is displayed.
	Shown func(ns int64) int64
}

// Curve is the series over all rounds, by the name of its variant. The error wraps result.ErrCorrupt.
func (s Series) Curve() (Curve, error) {
	d, err := s.Merged()
	return Curve{s.Variant.Name, d, s.Lost(), s.Shown}, err
}

// samplesBeyond is how many samples lie beyond the last point of a curve at least, as of every percentile in a table.
const samplesBeyond = 10

// plotRows is how many lines the curves have.
const plotRows = 16

// The dots of a character of braille, across and down.
const (
	dotsAcross = 2
	dotsDown   = 4
)

// plotColors are escape sequences of the curves in turn.
var plotColors = []string{"\x1b[36m", "\x1b[33m", "\x1b[35m", "\x1b[32m", "\x1b[31m", "\x1b[34m"}

const colorOff = "\x1b[0m"

// plotLetters are the curves' characters where there is no Unicode.
const plotLetters = "*o+x#@%&"

// point is one of a curve: nines is log10(1/(1-p)), 2 for p99.
type point struct{ nines, ns float64 }

// Plot draws latency by percentile, as HdrHistogram's plotter does: the axis of percentiles is that of their nines, and a
// curve ends with the highest percentile that has ten samples beyond it. Latency is on a linear axis, or on a logarithmic
// one where the highest is more than ten times the lowest.
func Plot(w io.Writer, title string, curves []Curve, s Screen) error {
	points := make([][]point, len(curves))
	var all []point
	for i, c := range curves {
		points[i] = c.points()
		all = append(all, points[i]...)
	}
	if len(all) == 0 {
		return fmt.Errorf("%w: %s has too few samples for a plot", ErrNothingToShow, title)
	}
	// Without colours, the dots of one curve could not be distinguished from those of another.
	s.Unicode = s.Unicode && (s.Colored || len(curves) == 1)
	p := newPlot(all, s)
	for i, curve := range points {
		p.draw(i, curve)
	}
	scale := "linear"
	if p.log {
		scale = "logarithmic"
	}
	fmt.Fprintf(w, "\n%s, %s\n", title, scale)
	p.write(w)
	var legend []string
	for i, c := range curves {
		legend = append(legend, p.paint(i, p.mark(i))+" "+c.Name)
	}
	if _, err := fmt.Fprintf(w, "%*s %s\n", axisWidth, "", strings.Join(legend, "   ")); err != nil {
		return fmt.Errorf("writing the plot: %w", err)
	}
	return nil
}

// points are those of a curve up to the highest percentile with samples enough: at each bucket the share of messages that
// were not slower, lost ones counted as slower than all.
func (c Curve) points() []point {
	total := c.Distribution.Count + c.Distribution.OverRange + c.Lost
	end := total - samplesBeyond
	var all []point
	var below int64
	for _, b := range c.Distribution.Buckets {
		if below > end {
			break
		}
		// The curve steps up to the bucket at the share of those below it, and keeps its height to that of those in it.
		for _, n := range []int64{below, min(below+b.Count, end)} {
			all = append(all, point{math.Log10(float64(total) / float64(total-n)), float64(c.Shown(b.High))})
		}
		below += b.Count
	}
	return all
}

// plot is a field of dots.
type plot struct {
	screen       Screen
	across       int
	lowest, most float64
	highestNines float64
	log          bool
	dots         [plotRows][]rune
	owners       [plotRows][]int
	stepX, stepY int
}

// axisWidth is how many characters the labels of the latency's axis have.
const axisWidth = 9

// fewestAcross is how many characters the curves have at least, however narrow the terminal is.
const fewestAcross = 20

func newPlot(all []point, s Screen) *plot {
	p := &plot{screen: s, across: max(s.Width-axisWidth-2, fewestAcross), lowest: math.Inf(1), stepX: 1, stepY: 1}
	for _, at := range all {
		p.lowest, p.most = min(p.lowest, at.ns), max(p.most, at.ns)
		p.highestNines = max(p.highestNines, at.nines)
	}
	p.log = p.lowest > 0 && p.most > 10*p.lowest
	if p.most <= p.lowest {
		p.most = p.lowest + 1
	}
	if s.Unicode {
		p.stepX, p.stepY = dotsAcross, dotsDown
	}
	for row := range p.dots {
		p.dots[row], p.owners[row] = make([]rune, p.across), make([]int, p.across)
	}
	return p
}

// x and y are the dots at which a point is, from the left and from the top.
func (p *plot) x(nines float64) int {
	return int(math.Round(nines / max(p.highestNines, 1e-9) * float64(p.across*p.stepX-1)))
}

func (p *plot) y(ns float64) int {
	share := (ns - p.lowest) / (p.most - p.lowest)
	if p.log {
		share = math.Log(ns/p.lowest) / math.Log(p.most/p.lowest)
	}
	return int(math.Round((1 - share) * float64(plotRows*p.stepY-1)))
}

// latencyAt is the latency of a row's middle.
func (p *plot) latencyAt(row int) int64 {
	share := 1 - float64(row)/float64(plotRows-1)
	if p.log {
		return int64(p.lowest * math.Pow(p.most/p.lowest, share))
	}
	return int64(p.lowest + share*(p.most-p.lowest))
}

// draw draws a curve: in each column from the lowest to the highest of its points, and on at the same height to the next.
func (p *plot) draw(curve int, points []point) {
	columns := make(map[int][2]int)
	for _, at := range points {
		x, y := p.x(at.nines), p.y(at.ns)
		span, ok := columns[x]
		if !ok {
			span = [2]int{y, y}
		}
		columns[x] = [2]int{min(span[0], y), max(span[1], y)}
	}
	last, drawn := 0, false
	for x := range p.across * p.stepX {
		span, ok := columns[x]
		if !ok {
			if drawn && x <= p.x(points[len(points)-1].nines) {
				p.dot(curve, x, last)
			}
			continue
		}
		for y := span[0]; y <= span[1]; y++ {
			p.dot(curve, x, y)
		}
		last, drawn = span[0], true
	}
}

// brailleDots are the bits of a character's dots, by row and column.
var brailleDots = [dotsDown][dotsAcross]rune{{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}

const emptyBraille = 0x2800

func (p *plot) dot(curve, x, y int) {
	row, column := y/p.stepY, x/p.stepX
	p.owners[row][column] = curve
	if !p.screen.Unicode {
		p.dots[row][column] = rune(plotLetters[curve%len(plotLetters)])
		return
	}
	p.dots[row][column] = max(p.dots[row][column], emptyBraille) | brailleDots[y%dotsDown][x%dotsAcross]
}

// mark is a curve's sign in the legend.
func (p *plot) mark(curve int) string {
	if p.screen.Unicode {
		return "━━"
	}
	return string(plotLetters[curve%len(plotLetters)])
}

// paint gives a text the colour of a curve.
func (p *plot) paint(curve int, text string) string {
	if !p.screen.Colored {
		return text
	}
	return plotColors[curve%len(plotColors)] + text + colorOff
}

// noOwner is the owner of a character without a dot.
const noOwner = -1

// ownerAt is the curve whose colour a character has: the last of those that have dots there.
func (p *plot) ownerAt(row, column int) int {
	if p.dots[row][column] == 0 {
		return noOwner
	}
	return p.owners[row][column]
}

// labelEach is after how many rows there is a label on the axis of latency.
const labelEach = 5

func (p *plot) write(w io.Writer) {
	bar, corner, line := "│", "└", "─"
	if !p.screen.Unicode {
		bar, corner, line = "|", "+", "-"
	}
	for row := range p.dots {
		label := ""
		if row%labelEach == 0 {
			label = stats.FormatLatency(p.latencyAt(row))
			if !p.screen.Unicode {
				label = strings.Replace(label, "µ", "u", 1)
			}
		}
		fmt.Fprintf(w, "%*s %s", axisWidth, label, bar)
		var text strings.Builder
		for column := 0; column < p.across; {
			owner, from := p.ownerAt(row, column), column
			for column < p.across && p.ownerAt(row, column) == owner {
				column++
			}
			if owner == noOwner {
				text.WriteString(strings.Repeat(" ", column-from))
			} else {
				text.WriteString(p.paint(owner, string(p.dots[row][from:column])))
			}
		}
		fmt.Fprintln(w, strings.TrimRight(text.String(), " "))
	}
	fmt.Fprintf(w, "%*s %s%s\n", axisWidth, "", corner, strings.Repeat(line, p.across))
	fmt.Fprintf(w, "%*s  %s\n", axisWidth, "", p.percentiles())
}

// percentiles are the labels below, each under where it is.
func (p *plot) percentiles() string {
	line := []rune(strings.Repeat(" ", p.across))
	end := 0
	for _, label := range append([]stats.Percentile{{Name: "p0", Num: 0, Den: 1}}, stats.Ladder()...) {
		nines := math.Log10(float64(label.Den) / float64(label.Den-label.Num))
		at := min(p.x(nines)/p.stepX, p.across-len(label.Name))
		if nines > p.highestNines+1e-9 || at < end {
			continue
		}
		copy(line[at:], []rune(label.Name))
		end = at + len(label.Name) + 1
	}
	return strings.TrimRight(string(line), " ")
}
