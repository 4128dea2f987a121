package htmlreport

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/cpuset"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

type evidence struct {
	Columns   []evidenceColumn // the endpoints of each variant: their line's name, and their role
	Different []evidenceRow    // between rounds, variants, benchmarks or endpoints
	Same      []evidenceRow
	Counters  []evidenceRow // events counted on the endpoints while they measured
}

type evidenceColumn struct{ Of, Role string }

// Conditions returns the parts of the table of what differs, Events those of the counters.
func (e *evidence) Conditions() [][2]int { return e.parts(e.Different, 230, 72) }
func (e *evidence) Events() [][2]int     { return e.parts(e.Counters, 150, paperWidth) }

// parts returns the parts of the columns beside names. A column has at most most points; it wraps.
func (e *evidence) parts(rows []evidenceRow, names, most float64) [][2]int {
	if len(rows) == 0 {
		return nil
	}
	widths := make([]float64, len(e.Columns))
	for i, c := range e.Columns {
		for _, r := range rows {
			widths[i] = max(widths[i], lineWidth(r.Values[i])+padding)
		}
		widths[i] = max(min(widths[i], most), columnWidth(c.Of, c.Role))
	}
	return divided(names, widths)
}

type evidenceRow struct {
	Key, Meaning           string
	Fingerprint            bool
	Rounds, Variants, Ends bool     // several values in a column; a role's columns differ; ends do
	Values                 []string // one for each column, or one that is equal everywhere
}

type column struct {
	evidenceColumn
	documents  []result.Document
	numbers    []int
	conditions []map[string]string
}

// newEvidence returns nil without runs. names are those of all benchmarks in the report.
func newEvidence(all []export.Benchmark, names []string) *evidence {
	var columns []column
	for i, b := range all {
		numbers := plan.RoundNumbers(b.Object)
		for _, v := range plan.Variants(b.Object.Spec) {
			own := result.OfVariant(b.Runs, v.Name)
			if len(own) == 0 || result.Imported(own) != "" {
				continue
			}
			client := column{evidenceColumn: evidenceColumn{lineName(names, i, b, v.Name), v1alpha1.RoleClient}}
			server := column{evidenceColumn: evidenceColumn{client.Of, v1alpha1.RoleServer}}
			for _, run := range own {
				client.add(run.Client, numbers[run.Client.Run])
				server.add(run.Server, numbers[run.Server.Run])
			}
			columns = append(columns, client, server)
		}
	}
	if len(columns) == 0 {
		return nil
	}
	e := &evidence{}
	keys := sets.New[string]()
	for _, c := range columns {
		e.Columns = append(e.Columns, c.evidenceColumn)
		for _, conditions := range c.conditions {
			keys.Insert(slices.Collect(maps.Keys(conditions))...)
		}
	}
	for _, key := range sets.List(keys.Delete("role")) {
		row := conditionRow(key, columns)
		if row.Rounds || row.Variants || row.Ends {
			e.Different = append(e.Different, row)
		} else {
			row.Values = row.Values[:1]
			e.Same = append(e.Same, row)
		}
	}
	// Conditions that must be equal and are not come first.
	rank := func(r evidenceRow) int {
		switch {
		case r.Rounds && r.Fingerprint:
			return 0
		case r.Variants && r.Fingerprint:
			return 1
		case r.Rounds, r.Variants:
			return 2
		}
		return 3
	}
	slices.SortStableFunc(e.Different, func(a, b evidenceRow) int { return rank(a) - rank(b) })
	e.Counters = counters(columns)
	return e
}

func (c *column) add(d result.Document, number int32) {
	c.documents = append(c.documents, d)
	c.numbers = append(c.numbers, int(number))
	c.conditions = append(c.conditions, joinCells(result.Conditions(d)))
}

const ofCell = "cell." // begins the conditions that are reported for each cell

// joinCells replaces conditions that all cells share by one, such as the duration.
func joinCells(conditions map[string]string) map[string]string {
	joined := map[string]string{}
	values := map[string]sets.Set[string]{}
	field := func(key string) string {
		if rest, ok := strings.CutPrefix(key, ofCell); ok {
			if _, name, found := strings.Cut(rest, "."); found {
				return ofCell + "*." + name
			}
		}
		return key
	}
	for key, value := range conditions {
		values[field(key)] = sets.New(value).Union(values[field(key)])
	}
	for key, value := range conditions {
		if all := field(key); values[all].Len() == 1 {
			key = all
		}
		joined[key] = value
	}
	return joined
}

func conditionRow(key string, columns []column) evidenceRow {
	known, _ := result.FindKey(key)
	row := evidenceRow{Key: key, Meaning: known.Meaning, Fingerprint: known.Fingerprint}
	byRole, byEnds := map[string]string{}, map[string]string{}
	differs := func(from map[string]string, of, text string) bool {
		if _, seen := from[of]; !seen {
			from[of] = text
		}
		return from[of] != text
	}
	for _, c := range columns {
		text, several := c.value(key)
		row.Rounds = row.Rounds || several
		row.Variants = differs(byRole, c.Role, text) || row.Variants
		// Only the client reports the tool and its cells.
		clientsOnly := (strings.HasPrefix(key, "tool.") || strings.HasPrefix(key, ofCell)) && c.Role == v1alpha1.RoleServer && text == missing
		row.Ends = differs(byEnds, c.Of, text) && !clientsOnly || row.Ends
		row.Values = append(row.Values, text)
	}
	return row
}

const missing = "–" // a value that was not set or could not be read

// value returns all rounds' value, or each value with its rounds, abbreviated as 1-3,7.
func (c column) value(key string) (said string, several bool) {
	var values []string
	rounds := map[string][]int{}
	for i, conditions := range c.conditions {
		v, ok := conditions[key]
		if !ok {
			v = missing
		}
		if rounds[v] == nil {
			values = append(values, v)
		}
		rounds[v] = append(rounds[v], c.numbers[i])
	}
	if len(values) == 1 {
		return values[0], false
	}
	told := text.Of(values, func(v string) string {
		return fmt.Sprintf("%s (%s %s)", v, map[bool]string{true: "round", false: "rounds"}[len(rounds[v]) == 1], cpuset.New(rounds[v]...))
	})
	return strings.Join(told, "; "), true
}

// counters returns each counter's median and range of rounds, unless it is zero everywhere.
func counters(columns []column) []evidenceRow {
	keys := sets.New[string]()
	each := make([]map[string][]int64, len(columns))
	for i, c := range columns {
		each[i] = map[string][]int64{}
		for _, d := range c.documents {
			for key, values := range countersOf(d) {
				each[i][key] = append(each[i][key], values...)
				if slices.ContainsFunc(values, func(n int64) bool { return n != 0 }) {
					keys.Insert(key)
				}
			}
		}
	}
	var rows []evidenceRow
	for _, key := range sets.List(keys) {
		known, _ := result.FindDeltaKey(key)
		values := text.Of(each, func(column map[string][]int64) string { return spread(column[key]) })
		rows = append(rows, evidenceRow{Key: key, Meaning: known.Meaning, Values: values})
	}
	return rows
}

// countersOf returns a result's counters: one value, or two frequencies in MHz for each cell.
func countersOf(d result.Document) map[string][]int64 {
	all := map[string][]int64{
		"tool.voluntary-switches": {d.Evidence.VoluntarySwitches}, "tool.involuntary-switches": {d.Evidence.InvoluntarySwitches},
	}
	for key, n := range d.Evidence.Deltas {
		all[key] = []int64{n}
	}
	for _, p := range d.Evidence.Paths {
		for _, mhz := range []int32{p.MHzBefore, p.MHzAfter} {
			if mhz > 0 {
				all[result.KeyFrequency] = append(all[result.KeyFrequency], int64(mhz))
			}
		}
	}
	return all
}

// spread formats the median, with the extremes unless all values are equal.
func spread(values []int64) string {
	if len(values) == 0 {
		return missing
	}
	slices.Sort(values)
	low, high := values[0], values[len(values)-1]
	text := thousands(values[(len(values)-1)/2])
	if low != high {
		text += fmt.Sprintf(" (%s to %s)", thousands(low), thousands(high))
	}
	return text
}
