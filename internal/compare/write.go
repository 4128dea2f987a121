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

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/judge"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// Form is a layout in which a comparison is written.
type Form struct {
	Name  string
	Write func(io.Writer, ...Comparison) error // one comparison, or several with the same baseline
}

// Forms returns all layouts, the one for terminals first.
func Forms() []Form {
	json := func(w io.Writer, all ...Comparison) error {
		if len(all) == 1 {
			return report.WriteJSON(w, all[0])
		}
		return report.WriteJSON(w, all)
	}
	return []Form{{"table", Table}, {"json", json}, {"csv", CSV}, {"ignoreDifferences", Ignoring}}
}

// Ignoring writes the ignoreDifferences with which candidates can be judged, each key with the
// first difference that needs it. All that a kernel upgrade changes is one key.
func Ignoring(w io.Writer, all ...Comparison) error {
	var keys []string
	needed := map[string]string{}
	for _, c := range all {
		for _, d := range c.Differences {
			if !d.Fingerprint {
				continue
			}
			of, key := result.Difference{Key: d.Key, A: d.Baseline, B: d.Candidate}, d.Key
			if judge.OfKernelUpgrade(of) {
				key = v1alpha1.IgnoreKernelUpgrade
			}
			if needed[key] == "" {
				keys, needed[key] = append(keys, key), fmt.Sprintf("%s, at %s", of, c.at(d))
			}
		}
	}
	none := map[bool]string{true: " []"}[len(keys) == 0]
	fmt.Fprintf(w, "# what may differ between %s and what is judged against it\nignoreDifferences:%s\n", all[0].Baseline, none)
	t := text.NewColumns(w, 0)
	for _, key := range keys {
		fmt.Fprintf(t, "- %s\t# %s\n", key, needed[key])
	}
	return t.Flush()
}

// CSV writes the figures as plain numbers, a line for each, without the differences.
func CSV(w io.Writer, all ...Comparison) error {
	out := csv.NewWriter(w)
	lines := [][]string{{
		"baseline", "candidate", "baseline_variant", "candidate_variant", "cell", "metric", "unit", "baseline_rounds", "candidate_rounds",
		"baseline_value", "candidate_value", "ratio", "lower", "upper", "shown", "lacks",
	}}
	for _, c := range all {
		for _, f := range c.Figures {
			lines = append(lines, []string{
				c.Baseline, c.Candidate, f.BaselineVariant, f.CandidateVariant, f.Cell, string(f.Metric), string(f.Unit),
				strconv.Itoa(f.BaselineRounds), strconv.Itoa(f.CandidateRounds), plain(f.Baseline), plain(f.Candidate),
				plain(f.Ratio), plain(f.Lower), plain(f.Upper), string(f.Shown), f.Lacks,
			})
		}
	}
	return out.WriteAll(lines)
}

func plain[N int64 | float64](v *N) string {
	if v == nil {
		return ""
	}
	return strconv.FormatFloat(float64(*v), 'f', -1, 64)
}

type grid struct {
	heading string
	rows    [][]string
}

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
		if c.Begins(i) {
			all = append(all, grid{f.heading(), [][]string{{"METRIC", "BASELINE", "CANDIDATE", "RATIO", strings.ToUpper(stats.Confidence)}}})
		}
		g := &all[len(all)-1]
		g.rows = append(g.rows, f.Row())
	}
	return all
}

func (c Comparison) at(d Difference) string {
	if d.Note {
		return "notes"
	}
	if len(d.Ends) == c.ends {
		return "all ends"
	}
	return strings.Join(d.Ends, ", ")
}

func (f Figure) heading() string {
	variant := f.CandidateVariant
	if f.BaselineVariant != variant {
		variant += " against " + f.BaselineVariant
	}
	interval := ""
	if f.captured() {
		interval = ", " + string(v1alpha1.ResultInToOut)
	}
	return fmt.Sprintf("%s of %s, %s%s", f.Cell, variant, f.Rounds(), interval)
}

// captured reports whether a figure's latencies are of the server's packets, not its tool's.
func (f Figure) captured() bool { return strings.HasSuffix(f.Cell, result.CapturedSuffix) }

// latencies returns what all latencies count, but those of captured cells beside others.
func (c Comparison) latencies() string {
	if len(c.Figures) > 0 && !slices.ContainsFunc(c.Figures, func(f Figure) bool { return !f.captured() }) {
		return string(v1alpha1.ResultInToOut)
	}
	return string(c.LatencyType)
}

func (c Comparison) Begins(i int) bool {
	return i == 0 || c.Figures[i].Cell != c.Figures[i-1].Cell || c.Figures[i].CandidateVariant != c.Figures[i-1].CandidateVariant
}

func (f Figure) Rounds() string {
	return fmt.Sprintf("%d rounds against %d", f.CandidateRounds, f.BaselineRounds)
}

// Row is a figure for people: metric, baseline, candidate, ratio (~: not shown), interval.
func (f Figure) Row() []string {
	row := []string{string(f.Metric), f.value(f.Baseline), f.value(f.Candidate), "-", "-"}
	switch {
	case f.Unit == v1alpha1.UnitMessages:
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

func (f Figure) value(v *int64) string {
	switch {
	case v == nil:
		return "-"
	case f.Unit == v1alpha1.UnitNanoseconds:
		return stats.Micros(*v) + "µs"
	case f.Unit == v1alpha1.UnitBitsPerSecond:
		return stats.FormatBitRate(*v)
	}
	return strconv.FormatInt(*v, 10)
}

func bound(v *float64, none string, round func(float64) float64) string {
	if v == nil {
		return none
	}
	return stats.FormatRatio(*v, round)
}

const mostShown = 60 // bytes of a condition in a table; JSON has all of it

// condition formats a pod's value: control characters must not reach a terminal.
func condition(value string) string { return cmp.Or(text.Printable(value, mostShown), "-") }

func (c Comparison) title() string {
	title := fmt.Sprintf("%s against %s, %s", c.Candidate, c.Baseline, c.latencies())
	if !c.imported && !slices.ContainsFunc(c.Differences, func(d Difference) bool { return !d.Note }) {
		title += ", under conditions that are equal where they must be"
	}
	if c.Explaining > 0 {
		title += fmt.Sprintf("; differences that need not be equal: %d", c.Explaining)
	}
	return title
}

func (c Comparison) unequal() string {
	var keys []string
	for _, d := range c.Differences {
		if d.Fingerprint {
			keys = append(keys, d.Key)
		}
	}
	return text.List(keys, 6, ", ")
}

func (f Figure) label() string {
	if f.CandidateVariant == f.BaselineVariant && f.CandidateVariant != plan.DefaultVariant {
		return f.CandidateVariant + " " + f.Cell
	}
	return f.Cell
}

// gridsOf returns a table for each metric, a value and a ratio for each candidate, and the notes.
func gridsOf(all []Comparison) (grids []grid, notes []string) {
	grids = []grid{{"CANDIDATES", [][]string{{"NUMBER", "CANDIDATE", "LATENCIES"}}}}
	head := []string{"CELL", "BASELINE"}
	type place struct {
		metric v1alpha1.Metric
		label  string
	}
	rows := map[place][]string{}
	var order []place
	for i, c := range all {
		number := fmt.Sprint(i + 1)
		grids[0].rows = append(grids[0].rows, []string{number, c.Candidate, c.latencies()})
		head = append(head, number, "RATIO "+number)
		if unequal := c.unequal(); unequal != "" {
			notes = append(notes, fmt.Sprintf("%s: conditions that must be equal differ from the baseline's: %s; compare the two alone to see them", c.Candidate, unequal))
		}
		for _, note := range c.Notes {
			if !slices.Contains(notes, note) {
				notes = append(notes, note)
			}
		}
		for _, f := range c.Figures {
			texts, at := f.Row(), place{f.Metric, f.label()}
			if rows[at] == nil {
				order = append(order, at)
				rows[at] = append([]string{at.label, texts[1]}, slices.Repeat([]string{"-"}, 2*len(all))...)
			}
			rows[at][2+2*i], rows[at][3+2*i] = texts[2], strings.TrimSuffix(texts[3]+" "+texts[4], " -")
		}
	}
	for _, at := range order {
		i := slices.IndexFunc(grids, func(g grid) bool { return g.heading == string(at.metric) })
		if i < 0 {
			i, grids = len(grids), append(grids, grid{string(at.metric), [][]string{head}})
		}
		grids[i].rows = append(grids[i].rows, rows[at])
	}
	return grids, notes
}

// Table writes for people: differences, a table for each cell, the figures' limits.
func Table(w io.Writer, all ...Comparison) error {
	title, grids, notes := all[0].title(), all[0].grids(), all[0].Notes
	if len(all) > 1 {
		title = fmt.Sprintf("%d results against %s", len(all), all[0].Baseline)
		grids, notes = gridsOf(all)
	}
	fmt.Fprintln(w, title)
	for _, g := range grids {
		if err := report.WriteLeft(w, g.heading, g.rows); err != nil {
			return fmt.Errorf("writing the comparison: %w", err)
		}
	}
	report.Notes(w, "", notes)
	return nil
}
