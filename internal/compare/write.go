package compare

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

// Form is a layout in which a comparison is written.
type Form struct {
	// Name is the name by which users request the form.
	Name  string
	Write func(io.Writer, Comparison) error
}

// Forms returns all layouts, the one for terminals first.
func Forms() []Form {
	json := func(w io.Writer, c Comparison) error { return report.WriteJSON(w, c) }
	return []Form{{"table", Table}, {"json", json}, {"csv", CSV}, {"markdown", Markdown}}
}

// CSV writes the figures, a line for each, as plain numbers. It omits the differences between the conditions.
func CSV(w io.Writer, c Comparison) error {
	out := csv.NewWriter(w)
	lines := [][]string{{
		"baseline", "candidate", "baseline_variant", "candidate_variant", "cell", "metric", "unit", "baseline_rounds", "candidate_rounds",
		"baseline_value", "candidate_value", "ratio", "lower", "upper", "shown", "lacks",
	}}
	for _, f := range c.Figures {
		lines = append(lines, []string{
			c.Baseline, c.Candidate, f.BaselineVariant, f.CandidateVariant, f.Cell, string(f.Metric), f.Unit,
			strconv.Itoa(f.BaselineRounds), strconv.Itoa(f.CandidateRounds), integer(f.Baseline), integer(f.Candidate),
			decimal(f.Ratio), decimal(f.Lower), decimal(f.Upper), string(f.Shown), f.Lacks,
		})
	}
	return out.WriteAll(lines)
}

func integer(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}

func decimal(v *float64) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(*v, 'f', -1, 64)
}

// grid is a table with a heading. Its first column is left-aligned.
type grid struct {
	heading string
	rows    [][]string
}

// grids returns the tables of a comparison.
func (c Comparison) grids() []grid {
	var all []grid
	if len(c.Differences) > 0 {
		g := grid{"DIFFERENT CONDITIONS", [][]string{{"CONDITION", "BASELINE", "CANDIDATE", "AT", "COMPARABLE"}}}
		for _, d := range c.Differences {
			comparable := "yes"
			if d.Fingerprint {
				comparable = "no"
			}
			g.rows = append(g.rows, []string{d.Key, condition(d.Baseline), condition(d.Candidate), c.at(d), comparable})
		}
		all = append(all, g)
	}
	for i, f := range c.Figures {
		if i == 0 || f.Cell != c.Figures[i-1].Cell || f.CandidateVariant != c.Figures[i-1].CandidateVariant {
			all = append(all, grid{c.headingOf(f), [][]string{{"METRIC", "BASELINE", "CANDIDATE", "RATIO", strings.ToUpper(stats.Confidence)}}})
		}
		g := &all[len(all)-1]
		g.rows = append(g.rows, f.Row())
	}
	return all
}

// at returns the places where a condition differs.
func (c Comparison) at(d Difference) string {
	if d.Note {
		return "notes"
	}
	if len(d.Ends) == c.ends {
		return "all ends"
	}
	return strings.Join(d.Ends, ", ")
}

func (c Comparison) headingOf(f Figure) string {
	variant := f.CandidateVariant
	if f.BaselineVariant != variant {
		variant += " against " + f.BaselineVariant
	}
	return fmt.Sprintf("%s of %s, %s", f.Cell, variant, f.Rounds())
}

// Rounds says how many rounds are compared.
func (f Figure) Rounds() string {
	return fmt.Sprintf("%d rounds against %d", f.CandidateRounds, f.BaselineRounds)
}

// Row returns a figure for people: metric, baseline, candidate, ratio and interval. The ratio is ~ if nothing was shown.
func (f Figure) Row() []string {
	row := []string{string(f.Metric), f.value(f.Baseline), f.value(f.Candidate), "-", "-"}
	switch {
	case f.Metric == v1alpha1.MetricLost:
		return row
	case f.Lower != nil || f.Upper != nil:
		row[4] = fmt.Sprintf("[%s, %s]", bound(f.Lower, "0", math.Floor), bound(f.Upper, "∞", math.Ceil))
	case f.Lacks != "":
		row[4] = f.Lacks
	}
	switch {
	case f.Shown == ShownNothing && (f.Ratio != nil || f.Lower != nil || f.Upper != nil):
		row[3] = "~"
	case f.Ratio != nil:
		row[3] = stats.FormatRatio(*f.Ratio, math.Round)
	case f.Shown == ShownHigher:
		row[3] = "∞"
	case f.Shown == ShownLower:
		row[3] = "0"
	}
	return row
}

// value formats the value of a round for people.
func (f Figure) value(v *int64) string {
	switch {
	case v == nil:
		return "-"
	case f.Unit == verdict.UnitNanoseconds:
		return stats.FormatLatency(*v)
	case f.Unit == verdict.UnitBitsPerSecond:
		return stats.FormatBitRate(*v)
	}
	return strconv.FormatInt(*v, 10)
}

// bound formats a bound of a ratio, rounded outwards.
func bound(v *float64, none string, round func(float64) float64) string {
	if v == nil {
		return none
	}
	return stats.FormatRatio(*v, round)
}

// mostShown is the largest length of a condition in a table, in bytes; JSON has all of it.
const mostShown = 60

// condition formats a value for a table. Pods reported it, so control characters must not reach a terminal.
func condition(value string) string { return cmp.Or(text.Printable(value, mostShown), "-") }

// title names the compared benchmarks and says how many differences are omitted.
func (c Comparison) title() string {
	title := fmt.Sprintf("%s against %s, %s", c.Candidate, c.Baseline, c.LatencyType)
	if !slices.ContainsFunc(c.Differences, func(d Difference) bool { return !d.Note }) {
		title += ", under conditions that are equal where they must be"
	}
	if c.Explaining > 0 {
		title += fmt.Sprintf("; differences that need not be equal: %d", c.Explaining)
	}
	return title
}

// Table writes a comparison for people: the differences between the conditions, then a table for each cell, then the limits
// of the figures.
func Table(w io.Writer, c Comparison) error {
	fmt.Fprintln(w, c.title())
	for _, g := range c.grids() {
		fmt.Fprintf(w, "\n%s\n", g.heading)
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, row := range g.rows {
			fmt.Fprintln(t, "  "+strings.Join(row, "\t"))
		}
		if err := t.Flush(); err != nil {
			return fmt.Errorf("writing the comparison: %w", err)
		}
	}
	for i, note := range c.Notes {
		if i == 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, note)
	}
	return nil
}

// Markdown writes the same as Table in Markdown.
func Markdown(w io.Writer, c Comparison) error {
	fmt.Fprintf(w, "## %s\n", report.Escape(c.title()))
	for _, g := range c.grids() {
		report.MarkdownTable(w, g.heading, g.rows, report.AlignLeft)
	}
	report.MarkdownList(w, c.Notes)
	return nil
}
