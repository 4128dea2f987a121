package htmlreport

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// Curves have pointsPerDecade percentiles of the samples, not interpolated, per decade of 1/(1-p).
const (
	pointsPerDecade = 24
	decades         = 8
)

const share = 1_000_000_000_000 // the denominator of the curves' percentiles

// grid returns the curves' percentiles, ascending, with those of the ladder.
func grid() []stats.Percentile {
	all := []stats.Percentile{{Name: "p0", Num: 1, Den: share}}
	for k := 1; k <= pointsPerDecade*decades; k++ {
		beyond := int64(math.Round(share * math.Pow(10, -float64(k)/pointsPerDecade)))
		all = append(all, stats.Percentile{Num: share - beyond, Den: share})
	}
	all = append(all, stats.P50, stats.P75, stats.P95) // Others of the ladder are powers of ten.
	slices.SortFunc(all, func(a, b stats.Percentile) int {
		return int(math.Copysign(1, fraction(a)-fraction(b)))
	})
	return all
}

func fraction(p stats.Percentile) float64 { return float64(p.Num) / float64(p.Den) }

type group struct {
	groupData
	Ladders []ladder
	Strips  []strip
}

type ladder struct {
	Name, Ways string
	table
}

type strip struct {
	Name    string
	Rows    []stripRow
	Slowest *slowest
}

type stripRow struct {
	Round                int32
	Intervals            int
	Length               string
	P50, P99, Max, MaxAt string // the range of p50, the highest p99, the longest, at MaxAt
	Lost                 int64
	LostAt               string // the intervals in which messages were lost; empty if none were
}

// data is the script's input. Latencies are whole ns as shown: HalfRTT is half of RTT.
type data struct {
	X      []float64   `json:"x"` // positions of the grid: log10 of 1/(1-p)
	Groups []groupData `json:"groups"`
}

// groupData is a plot: its name in the page, its name for people, and what its latencies count.
type groupData struct {
	ID     string     `json:"id"`
	Label  string     `json:"label"`
	Counts string     `json:"counts"`
	Lines  []lineData `json:"lines"`
}

// lineData is a variant. Its curves end with too few samples, or at lost messages.
type lineData struct {
	Name   string       `json:"name"`
	Color  int          `json:"color"` // the number of the line among all lines
	All    []int64      `json:"all"`
	Rounds []roundData  `json:"rounds"`
	Course []courseData `json:"course,omitempty"` // of each round; absent if no tool kept it
}

type roundData struct {
	N int32   `json:"n"`
	V []int64 `json:"v"`
}

// courseData is the course of a round over time. An interval without samples is null.
type courseData struct {
	N int32 `json:"n"`
	// Step is an interval's length in ms, End the last one's end. T: starts of unequal ones.
	Step int64         `json:"step"`
	T    []int64       `json:"t,omitempty"`
	End  int64         `json:"end"`
	P50  []*int64      `json:"p50"`
	P99  []*int64      `json:"p99"`
	Max  []*int64      `json:"max"`
	Lost map[int]int64 `json:"lost,omitempty"` // lost messages by interval, where there are any
	Slow [][3]int64    `json:"slow,omitempty"` // the slowest: time in ms, latency, index in places
}

func newGroups(all []export.Benchmark, names []string) ([]group, data, error) {
	points := grid()
	most := slowestShown(all)
	d := data{Groups: []groupData{}}
	for _, p := range points {
		d.X = append(d.X, math.Round(-math.Log10(1-fraction(p))*1e5)/1e5)
	}
	var groups []group
	var colors []string
	for n, b := range all {
		for _, c := range report.AllSeries(b.Object, b.Runs) {
			key := c.Cell + " " + c.Counts() // Captures and actual sends are groups of their own.
			i := slices.IndexFunc(groups, func(g group) bool { return g.Label == key })
			if i < 0 {
				i = len(groups)
				groups = append(groups, group{groupData: groupData{ID: fmt.Sprintf("g%d", i), Label: key, Counts: c.Counts()}})
			}
			columns, err := c.Columns()
			if err != nil {
				return nil, data{}, err
			}
			name := lineName(names, n, b, c.Variant.Name)
			if !slices.Contains(colors, name) {
				colors = append(colors, name)
			}
			line := lineData{Name: name, Color: slices.Index(colors, name), Rounds: []roundData{}}
			for k, column := range columns {
				curve := curveOf(column, points, c.Shown)
				if k < len(c.Rounds) {
					line.Rounds = append(line.Rounds, roundData{column.Round, curve})
				}
				line.All = curve
			}
			groups[i].Ladders = append(groups[i].Ladders, ladderOf(name, c, columns))
			if s, course := courseOf(name, c, most); len(course) > 0 {
				groups[i].Strips = append(groups[i].Strips, s)
				line.Course = course
			}
			groups[i].Lines = append(groups[i].Lines, line)
		}
	}
	for _, g := range groups {
		d.Groups = append(d.Groups, g.groupData)
	}
	return groups, d, nil
}

// lineName returns a name that distinguishes a variant of the benchmark names[i] from all others.
func lineName(names []string, i int, b export.Benchmark, variant string) string {
	switch {
	case len(names) == 1:
		return variant
	case len(b.Object.Spec.Variants) == 0:
		return names[i]
	}
	return names[i] + "/" + variant
}

func curveOf(c report.Column, points []stats.Percentile, shown func(int64) int64) []int64 {
	curve := []int64{}
	for _, p := range points {
		r := c.Percentile(p, c.Lost)
		if r.Lost || r.Needs > 0 {
			break
		}
		curve = append(curve, shown(r.Ns))
	}
	return curve
}

// ladderOf returns a variant's percentiles, up to the first that no column has, all rounds first.
func ladderOf(name string, c report.Series, columns []report.Column) ladder {
	l := ladder{Name: name, Ways: report.Ways(c.Variant), table: table{Texts: []string{"Percentile"}}}
	if last := len(columns) - 1; columns[last].Round == 0 {
		columns = slices.Insert(slices.Clone(columns[:last]), 0, columns[last])
	}
	row := func(name string, of func(report.Column) figure) tableRow {
		r := tableRow{Texts: []string{name}}
		for _, column := range columns {
			r.Figures = append(r.Figures, of(column))
		}
		return r
	}
	for _, column := range columns {
		text := "all rounds"
		if column.Round > 0 {
			text = fmt.Sprintf("round %d", column.Round)
		}
		l.Columns = append(l.Columns, text)
	}
	extreme := func(of func(report.Column) int64) func(report.Column) figure {
		return func(column report.Column) figure {
			if column.Count+column.OverRange == 0 {
				return absent
			}
			return latency(c.Shown(of(column)))
		}
	}
	l.Rows = append(l.Rows, row("min", extreme(func(c report.Column) int64 { return c.Min })))
	for _, p := range stats.Ladder() {
		r := row(p.Name, func(column report.Column) figure {
			switch r := column.Percentile(p, column.Lost); {
			case r.Lost:
				return lost
			case r.Needs > 0:
				return needs(r.Needs)
			default:
				return latency(c.Shown(r.Ns))
			}
		})
		l.Rows = append(l.Rows, r)
		if !slices.ContainsFunc(r.Figures, func(f figure) bool { return !f.Muted }) {
			break
		}
	}
	l.Rows = append(l.Rows,
		row("max", extreme(func(c report.Column) int64 { return c.Max })),
		row("samples", func(c report.Column) figure { return number(c.Count) }),
		row("lost", func(c report.Column) figure { return number(c.Lost + c.OverRange) }))
	return l
}

const fewestIntervals = 3 // that are shown as a course

// courseOf returns a cell's course, with most slow samples a round, if it has enough intervals.
func courseOf(name string, c report.Series, most int) (strip, []courseData) {
	s := strip{Name: name}
	var course []courseData
	enough := false
	for _, r := range c.Rounds {
		if len(r.Intervals) == 0 {
			continue
		}
		enough = enough || len(r.Intervals) >= fewestIntervals
		one := courseData{N: r.Number}
		s.Rows = append(s.Rows, one.fill(r.Intervals, c.Shown))
		if a := r.Attribution; a != nil && len(a.Slowest) > 0 {
			enough = true
			if s.Slowest == nil {
				s.Slowest = &slowest{Halved: c.Shown(2) == 1}
			}
			one.Slow = s.Slowest.add(r.Number, *a, most, c.Shown)
		}
		course = append(course, one)
	}
	if !enough {
		return strip{}, nil
	}
	return s, course
}

func (c *courseData) fill(intervals []tool.Interval, shown func(int64) int64) stripRow {
	row := stripRow{Round: c.N, Intervals: len(intervals), Length: seconds(intervals[0].LengthNs)}
	c.Step, c.Lost = intervals[0].LengthNs/1e6, map[int]int64{}
	even := true
	var measured []tool.Interval
	var p50, p99, highest []int64
	var lostAt []string
	for i, in := range intervals {
		c.T = append(c.T, in.StartNs/1e6)
		even = even && in.StartNs/1e6 == int64(i)*c.Step
		c.End = (in.StartNs + in.LengthNs) / 1e6
		if in.Lost > 0 {
			c.Lost[i] = in.Lost
			row.Lost += in.Lost
			lostAt = append(lostAt, span(in))
		}
		if in.Count == 0 {
			c.P50, c.P99, c.Max = append(c.P50, nil), append(c.P99, nil), append(c.Max, nil)
			continue
		}
		p50, p99, highest = append(p50, shown(in.P50Ns)), append(p99, shown(in.P99Ns)), append(highest, shown(in.MaxNs))
		c.P50, c.P99, c.Max = append(c.P50, new(shown(in.P50Ns))), append(c.P99, new(shown(in.P99Ns))), append(c.Max, new(shown(in.MaxNs)))
		measured = append(measured, in)
	}
	if even {
		c.T = nil
	}
	if len(measured) > 0 {
		most := slices.Max(highest)
		row.P50, row.P99 = micros(slices.Min(p50))+" to "+micros(slices.Max(p50)), micros(slices.Max(p99))
		row.Max, row.MaxAt = micros(most), span(measured[slices.Index(highest, most)])
	}
	row.LostAt = text.List(lostAt, 6, ", ")
	return row
}

func span(in tool.Interval) string {
	return fmt.Sprintf("%s to %s", seconds(in.StartNs), seconds(in.StartNs+in.LengthNs))
}

// seconds formats a time exact to the microsecond: readers look it up in a log.
func seconds(ns int64) string {
	return strconv.FormatFloat(float64(ns/1000)/1e6, 'f', -1, 64) + " s"
}
