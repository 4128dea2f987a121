// Package compare holds the results of two benchmarks, or of two variants, against each other: what differs between the
// conditions under which they were measured, and how the one's rounds relate to the other's. It is pure.
//
// It asks another question than a gate. A gate has a tolerance, and passes or fails; here it is only asked whether a
// difference was shown at all. The ratios are a gate's: of all candidate rounds to all baseline rounds, with the bounds of
// the exact Mann-Whitney distribution. Each bound is wrong in at most one of 40 cases, so that both together are an
// interval of 95 %, and a difference that does not exist is shown in at most one comparison of 20. Who makes many
// comparisons must expect some such.
package compare

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/judge"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

// What can stand in the way of a comparison, for errors.Is.
var (
	// ErrNoVariant is returned for a variant that a benchmark does not have.
	ErrNoVariant = errors.New("no such variant")
	// ErrNothingInCommon is returned for sides without a cell that both have.
	ErrNothingInCommon = errors.New("nothing to compare")
)

// Side is one of the two that are compared.
type Side struct {
	// Name by which the user knows it.
	Name string
	// Variant is the only one of its variants that counts; empty: all.
	Variant string
	Results judge.Results
}

// Comparison is what came out.
type Comparison struct {
	Baseline  string `json:"baseline"`
	Candidate string `json:"candidate"`
	// LatencyType is what the latencies count, on both sides: that of the candidate.
	LatencyType v1alpha1.LatencyType `json:"latencyType"`
	// Differences between the conditions, those first that forbid a gate to compare.
	Differences []Difference `json:"differences"`
	// Explaining is how many more there are that forbid nothing, and were left out.
	Explaining int `json:"explaining,omitempty"`
	// Notes are what else limits what the figures say.
	Notes   []string `json:"notes,omitempty"`
	Figures []Figure `json:"figures"`

	// ends is how many ends were looked at for differences.
	ends int
}

// Difference is a condition that was not the same on both sides.
type Difference struct {
	Key string `json:"key"`
	// Baseline and Candidate are its values; empty where there was none, or it could not be read.
	Baseline  string `json:"baseline"`
	Candidate string `json:"candidate"`
	// Fingerprint is true for a condition that must be equal for results to be comparable.
	Fingerprint bool `json:"fingerprint"`
	// Note is true for one of spec.notes, which the authors of the benchmarks wrote.
	Note bool `json:"note,omitempty"`
	// Ends are where it is so: the role of the end, after the variant where there are several; empty for a note.
	Ends []string `json:"ends,omitempty"`
}

// The units of figures.
const (
	UnitNanoseconds   = "Nanoseconds"
	UnitBitsPerSecond = "BitsPerSecond"
	UnitMessages      = "Messages"
)

// Shown says what was shown of the candidate.
type Shown string

// What can be shown.
const (
	ShownNothing Shown = ""
	ShownLower   Shown = "Lower"
	ShownHigher  Shown = "Higher"
)

// Figure is one metric of one cell.
type Figure struct {
	BaselineVariant  string          `json:"baselineVariant"`
	CandidateVariant string          `json:"candidateVariant"`
	Cell             string          `json:"cell"`
	Metric           v1alpha1.Metric `json:"metric"`
	Unit             string          `json:"unit"`
	BaselineRounds   int             `json:"baselineRounds"`
	CandidateRounds  int             `json:"candidateRounds"`
	// Baseline and Candidate are the median rounds' values, of lost the sum of all rounds; nil where a round was not
	// measured, or lost messages reach the percentile.
	Baseline  *int64 `json:"baseline,omitempty"`
	Candidate *int64 `json:"candidate,omitempty"`
	// Ratio is the median of the ratios of all candidate to all baseline rounds, Lower and Upper bound it. Each is nil
	// where it is unknown.
	Ratio *float64 `json:"ratio,omitempty"`
	Lower *float64 `json:"lower,omitempty"`
	Upper *float64 `json:"upper,omitempty"`
	// Shown is whether the candidate was shown to be lower or higher than the baseline. Nothing is not: equal.
	Shown Shown `json:"shown,omitempty"`
	// Lacks says what a figure lacks that cannot be known, or shown; empty otherwise.
	Lacks string `json:"lacks,omitempty"`
}

// Compare holds a candidate against a baseline. The error wraps ErrNoVariant or ErrNothingInCommon.
func Compare(baseline, candidate Side) (Comparison, error) {
	c := Comparison{
		Baseline: baseline.Name, Candidate: candidate.Name, LatencyType: candidate.Results.Spec.LatencyType,
		Differences: []Difference{}, Figures: []Figure{},
	}
	pairs, err := pairVariants(baseline, candidate)
	if err != nil {
		return Comparison{}, err
	}
	before, after := judge.Cells(baseline.Results), judge.Cells(candidate.Results)
	for _, p := range pairs {
		c.addDifferences(p, len(pairs) > 1, baseline.Results, candidate.Results)
		c.addNotes(p, baseline, candidate, before, after)
		for _, a := range of(after, p.candidate) {
			if b := named(before, p.baseline, a.Name); b != nil && len(b.Rounds) > 0 && len(a.Rounds) > 0 {
				c.addFigures(*b, a)
			}
		}
	}
	c.addNotesOfUsers(baseline.Results.Spec.Notes, candidate.Results.Spec.Notes)
	sortDifferences(c.Differences)
	if len(c.Figures) == 0 {
		return Comparison{}, fmt.Errorf("%w: %s and %s have no measured cell in common", ErrNothingInCommon, baseline.Name, candidate.Name)
	}
	return c, nil
}

// WithoutExplaining leaves out the differences that forbid nothing, but for those of notes.
func (c Comparison) WithoutExplaining() Comparison {
	all := c.Differences
	c.Differences = slices.DeleteFunc(slices.Clone(all), func(d Difference) bool { return !d.Fingerprint && !d.Note })
	c.Explaining += len(all) - len(c.Differences)
	return c
}

// pair are two variants that are compared.
type pair struct{ baseline, candidate string }

func (p pair) String() string {
	if p.baseline == p.candidate {
		return p.candidate
	}
	return p.baseline + " to " + p.candidate
}

// pairVariants pairs the variants of the same name. The only one of a side is paired with the only one of the other,
// whatever their names.
func pairVariants(baseline, candidate Side) ([]pair, error) {
	before, err := variantsOf(baseline)
	if err != nil {
		return nil, err
	}
	after, err := variantsOf(candidate)
	if err != nil {
		return nil, err
	}
	if len(before) == 1 && len(after) == 1 {
		return []pair{{before[0], after[0]}}, nil
	}
	var pairs []pair
	for _, v := range after {
		if slices.Contains(before, v) {
			pairs = append(pairs, pair{v, v})
		}
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("%w: %s has %s, %s has %s; name one of each as NAME/VARIANT",
			ErrNothingInCommon, baseline.Name, variantList(before), candidate.Name, variantList(after))
	}
	return pairs, nil
}

func variantList(names []string) string { return "variants " + strings.Join(names, ", ") }

func variantsOf(s Side) ([]string, error) {
	var names []string
	for _, v := range plan.Variants(s.Results.Spec) {
		names = append(names, v.Name)
	}
	switch {
	case s.Variant == "":
		return names, nil
	case !slices.Contains(names, s.Variant):
		return nil, fmt.Errorf("%w: %s; there are %s", ErrNoVariant, s.Name, strings.Join(names, ", "))
	}
	return []string{s.Variant}, nil
}

// addDifferences adds what differs between the conditions of two variants at both ends. The first runs stand for all: see
// addNotes for those that were not measured alike.
func (c *Comparison) addDifferences(p pair, several bool, before, after judge.Results) {
	b, a := before.Variant(p.baseline).First, after.Variant(p.candidate).First
	if b == nil || a == nil {
		return
	}
	for _, ends := range [][2]result.Document{{b.Client, a.Client}, {b.Server, a.Server}} {
		c.ends++
		where := ends[1].Role
		if several {
			where = p.candidate + "/" + where
		}
		for _, d := range result.Differences(ends[0], ends[1]) {
			c.addDifference(Difference{Key: d.Key, Baseline: d.A, Candidate: d.B, Fingerprint: d.Fingerprint, Ends: []string{where}})
		}
	}
}

// addDifference adds one, or only where it is so if it is that of another end.
func (c *Comparison) addDifference(d Difference) {
	for i := range c.Differences {
		if known := &c.Differences[i]; known.Key == d.Key && known.Baseline == d.Baseline && known.Candidate == d.Candidate {
			known.Ends = append(known.Ends, d.Ends...)
			return
		}
	}
	c.Differences = append(c.Differences, d)
}

// addNotesOfUsers adds the notes that only one of the benchmarks has, or that have another value. Both variants of one
// benchmark have the same.
func (c *Comparison) addNotesOfUsers(before, after []v1alpha1.Note) {
	for _, n := range slices.Concat(before, after) {
		if a, b := noted(before, n.Name), noted(after, n.Name); a != b {
			c.addDifference(Difference{Key: "note." + n.Name, Baseline: a, Candidate: b, Note: true})
		}
	}
}

// noted is the value of a note; empty when there is none.
func noted(notes []v1alpha1.Note, name string) string {
	i := slices.IndexFunc(notes, func(n v1alpha1.Note) bool { return n.Name == name })
	if i < 0 {
		return ""
	}
	return notes[i].Value
}

func sortDifferences(all []Difference) {
	slices.SortStableFunc(all, func(x, y Difference) int {
		if x.Fingerprint != y.Fingerprint {
			if x.Fingerprint {
				return -1
			}
			return 1
		}
		return strings.Compare(x.Key, y.Key)
	})
}

// addNotes adds why a gate would conclude nothing from one of two variants, which cells only one of them has, and
// whether packets were captured of one only.
func (c *Comparison) addNotes(p pair, baseline, candidate Side, before, after []verdict.Cell) {
	// Each kind is reported once: where one run is not as it should be, often all are.
	note := func(kind, text string) {
		if !slices.ContainsFunc(c.Notes, func(told string) bool { return strings.HasPrefix(told, kind) }) {
			c.Notes = append(c.Notes, kind+text)
		}
	}
	for _, side := range []struct {
		name, variant, other string
		cells, others        []verdict.Cell
	}{{baseline.Name, p.baseline, p.candidate, before, after}, {candidate.Name, p.candidate, p.baseline, after, before}} {
		for _, cell := range of(side.cells, side.variant) {
			for _, b := range cell.Blockers {
				note(fmt.Sprintf("%s: %s: ", side.name, b.Reason), b.Message)
			}
			if other := named(side.others, side.other, cell.Name); len(cell.Rounds) > 0 && (other == nil || len(other.Rounds) == 0) {
				note(fmt.Sprintf("only %s has %s/%s", side.name, side.variant, cell.Name), "")
			}
		}
	}
	if captures(baseline, p.baseline) != captures(candidate, p.candidate) {
		note(fmt.Sprintf("packets of %s were captured on one side only, which slows it", p), "")
	}
}

func captures(s Side, variant string) bool {
	all := plan.Variants(s.Results.Spec)
	i := slices.IndexFunc(all, func(v v1alpha1.Variant) bool { return v.Name == variant })
	return i >= 0 && all[i].Capture == v1alpha1.CaptureServer
}

// of are the cells of a variant.
func of(cells []verdict.Cell, variant string) []verdict.Cell {
	var own []verdict.Cell
	for _, c := range cells {
		if c.Variant == variant {
			own = append(own, c)
		}
	}
	return own
}

// named is a variant's cell of that name; nil when there is none.
func named(cells []verdict.Cell, variant, name string) *verdict.Cell {
	i := slices.IndexFunc(cells, func(c verdict.Cell) bool { return c.Variant == variant && c.Name == name })
	if i < 0 {
		return nil
	}
	return &cells[i]
}

// latencies are the metrics of a cell that is answered.
var latencies = []v1alpha1.Metric{
	v1alpha1.MetricMean, v1alpha1.MetricP50, v1alpha1.MetricP90, v1alpha1.MetricP99, v1alpha1.MetricP999, v1alpha1.MetricP9999, v1alpha1.MetricP99999,
}

// addFigures adds the metrics of a cell that either side has, and of percentiles those for which there are samples enough,
// and the next.
func (c *Comparison) addFigures(before, after verdict.Cell) {
	metrics := latencies
	if after.Stream {
		metrics = []v1alpha1.Metric{v1alpha1.MetricThroughput}
	}
	for _, m := range metrics {
		if !some(before, func(r verdict.Round) bool { return has(r, m) }) && !some(after, func(r verdict.Round) bool { return has(r, m) }) {
			continue
		}
		f, enough := figureOf(m, before, after)
		c.Figures = append(c.Figures, f)
		if !enough {
			break
		}
	}
	loses := func(r verdict.Round) bool { return r.Values[v1alpha1.MetricLost].Value > 0 }
	if some(before, loses) || some(after, loses) {
		c.Figures = append(c.Figures, lost(before, after))
	}
}

func some(c verdict.Cell, is func(verdict.Round) bool) bool { return slices.ContainsFunc(c.Rounds, is) }

func has(r verdict.Round, m v1alpha1.Metric) bool {
	_, ok := r.Values[m]
	return ok
}

func newFigure(m v1alpha1.Metric, unit string, before, after verdict.Cell) Figure {
	return Figure{
		BaselineVariant: before.Variant, CandidateVariant: after.Variant, Cell: after.Name, Metric: m, Unit: unit,
		BaselineRounds: len(before.Rounds), CandidateRounds: len(after.Rounds),
	}
}

// lost is how many messages were lost in all rounds together. There is no ratio: mostly it would be to nothing.
func lost(before, after verdict.Cell) Figure {
	sum := func(c verdict.Cell) *int64 {
		var n int64
		for _, r := range c.Rounds {
			n += r.Values[v1alpha1.MetricLost].Value
		}
		return &n
	}
	f := newFigure(v1alpha1.MetricLost, UnitMessages, before, after)
	f.Baseline, f.Candidate = sum(before), sum(after)
	return f
}

// figureOf holds one metric of a cell against the same of the baseline. There is not enough where a round of either has
// too few samples for the percentile.
func figureOf(m v1alpha1.Metric, before, after verdict.Cell) (f Figure, enough bool) {
	f = newFigure(m, UnitNanoseconds, before, after)
	if m == v1alpha1.MetricThroughput {
		f.Unit = UnitBitsPerSecond
	}
	if p, isPercentile := stats.Named(string(m)); isPercentile {
		if fewest := min(fewestSamples(before), fewestSamples(after)); !p.Eligible(fewest) {
			f.Lacks = fmt.Sprintf("a round has %d samples and %s needs %d", fewest, m, p.Needs())
			return f, false
		}
	}
	b, a := observations(m, before), observations(m, after)
	show := func(rounds []stats.Observation) *int64 {
		value := stats.Median(rounds)
		switch {
		case len(rounds) == 0 || value == stats.Infinite:
			return nil
		case f.Unit == UnitNanoseconds && after.HalfRTT:
			value = stats.HalfRTT(value)
		}
		return &value
	}
	f.Baseline, f.Candidate = show(b), show(a)
	if len(a) == 0 || len(b) == 0 {
		f.Lacks = "not every round has it"
		return f, true
	}
	f.compare(b, a)
	return f, true
}

func fewestSamples(c verdict.Cell) int64 {
	var fewest int64 = math.MaxInt64
	for _, r := range c.Rounds {
		fewest = min(fewest, r.Samples)
	}
	return fewest
}

// observations are a metric of a cell's rounds; none where a round does not have it.
func observations(m v1alpha1.Metric, c verdict.Cell) []stats.Observation {
	var rounds []stats.Observation
	for _, r := range c.Rounds {
		o, ok := r.Values[m]
		if !ok {
			return nil
		}
		rounds = append(rounds, o)
	}
	return rounds
}

// compare fills in the ratio, and what it shows.
func (f *Figure) compare(before, after []stats.Observation) {
	bounds, bounded := stats.Interval(before, after)
	if bounds.Estimate > 0 && !math.IsInf(bounds.Estimate, 1) {
		f.Ratio = &bounds.Estimate
	}
	if !bounded {
		n := stats.FewestForInterval()
		f.Lacks = fmt.Sprintf("too few rounds for a comparison; it needs at least %d+%d", n, n)
		return
	}
	if bounds.Lower > 0 && !math.IsInf(bounds.Lower, 1) {
		f.Lower = &bounds.Lower
	}
	if bounds.Upper > 0 && !math.IsInf(bounds.Upper, 1) {
		f.Upper = &bounds.Upper
	}
	switch {
	case math.IsInf(bounds.Lower, 1):
		f.Shown, f.Lacks = ShownHigher, "it falls among the lost messages in the candidate"
	case bounds.Upper == 0:
		f.Shown, f.Lacks = ShownLower, "it falls among the lost messages in the baseline"
	case bounds.Lower > 1:
		f.Shown = ShownHigher
	case bounds.Upper < 1:
		f.Shown = ShownLower
	}
}
