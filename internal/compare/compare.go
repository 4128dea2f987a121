// Package compare compares two benchmarks' results, or two variants': the differences of their
// conditions, and the ratios of their rounds. It is pure.
//
// It has no tolerance: it says whether a difference was shown at all, with exact Mann-Whitney bounds,
// so that one of 20 comparisons may show a difference that does not exist.
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
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

var (
	ErrNoVariant       = errors.New("no such variant")
	ErrNothingInCommon = errors.New("nothing to compare")
)

type Side struct {
	Name    string
	Variant string // the only variant to compare; empty for all
	Results judge.Results
}

type Comparison struct {
	Baseline    string               `json:"baseline"`
	Candidate   string               `json:"candidate"`
	LatencyType v1alpha1.LatencyType `json:"latencyType"` // the candidate's, of both sides
	Differences []Difference         `json:"differences"` // those that stop a gate come first
	// Explaining is the number of omitted differences, which do not prevent a comparison.
	Explaining int      `json:"explaining,omitempty"`
	Notes      []string `json:"notes,omitempty"` // other limits of the figures
	Figures    []Figure `json:"figures"`

	// ends is how many endpoints were compared; imported: a side is not Tailgate's.
	ends     int
	imported bool
}

// Difference is a condition that was not the same on both sides.
type Difference struct {
	Key string `json:"key"`
	// Baseline and Candidate are its values; empty if the value is absent or could not be read.
	Baseline    string   `json:"baseline"`
	Candidate   string   `json:"candidate"`
	Fingerprint bool     `json:"fingerprint"`    // must be equal for results to be comparable
	Note        bool     `json:"note,omitempty"` // one of spec.notes, which the authors wrote
	Ends        []string `json:"ends,omitempty"` // roles, maybe after the variant; empty: a note
}

// Shown is the difference that was shown for the candidate.
type Shown string

const (
	ShownNothing Shown = ""
	ShownLower   Shown = "Lower"
	ShownHigher  Shown = "Higher"
	ShownRatio   Shown = "RatioOnly" // published or imported: too few rounds for an interval
)

// Figure is one metric of one cell.
type Figure struct {
	BaselineVariant  string          `json:"baselineVariant"`
	CandidateVariant string          `json:"candidateVariant"`
	Cell             string          `json:"cell"`
	Metric           v1alpha1.Metric `json:"metric"`
	Unit             v1alpha1.Unit   `json:"unit"`
	BaselineRounds   int             `json:"baselineRounds"`
	CandidateRounds  int             `json:"candidateRounds"`
	// Baseline and Candidate are median rounds, or sums of lost; nil: unmeasured, lost.
	Baseline  *int64 `json:"baseline,omitempty"`
	Candidate *int64 `json:"candidate,omitempty"`
	// Ratio is the median of all candidate to all baseline rounds, with bounds, or nil.
	Ratio *float64 `json:"ratio,omitempty"`
	Lower *float64 `json:"lower,omitempty"`
	Upper *float64 `json:"upper,omitempty"`
	Shown Shown    `json:"shown,omitempty"` // of the candidate; ShownNothing is not equal
	// Lacks says what is missing if the figure is unknown or nothing can be shown; empty otherwise.
	Lacks string `json:"lacks,omitempty"`
}

// Compare compares a candidate with a baseline. The error wraps ErrNoVariant or ErrNothingInCommon.
func Compare(baseline, candidate Side) (Comparison, error) {
	c := Comparison{
		Baseline: baseline.Name, Candidate: candidate.Name, LatencyType: candidate.Results.Spec.LatencyType,
		Differences: []Difference{}, Figures: []Figure{}, imported: baseline.imported() || candidate.imported(),
	}
	pairs, err := pairVariants(baseline, candidate)
	if err != nil {
		return Comparison{}, err
	}
	if err := unlike(baseline, candidate); err != nil {
		return Comparison{}, err
	}
	before, after := judge.Cells(baseline.Results), judge.Cells(candidate.Results)
	told := map[string]bool{}
	for _, p := range pairs {
		c.addDifferences(p, len(pairs) > 1, baseline.Results, candidate.Results)
		before, after := of(before, p.baseline), of(after, p.candidate)
		c.addNotes(p, baseline, candidate, before, after, told)
		for _, a := range after {
			b := named(before, a.Name)
			if b == nil && c.imported {
				b = c.ofUnknownSize(before, a)
			}
			if b != nil && len(b.Rounds) > 0 && len(a.Rounds) > 0 {
				c.addFigures(*b, a)
			}
		}
	}
	if b, a := baseline.Results.Spec.LatencyType, c.LatencyType; b != a {
		c.Notes = append(c.Notes, fmt.Sprintf("%s is of type %s: its latencies are given as %s, like those of %s", c.Baseline, b, a, c.Candidate))
	}
	for _, side := range []Side{baseline, candidate} {
		for _, n := range side.Results.Spec.Notes {
			if side.imported() && strings.HasPrefix(n.Name, "caveat") {
				c.Notes = append(c.Notes, fmt.Sprintf("%s: %s: %s", side.Name, n.Name, n.Value))
			}
		}
	}
	for i := range c.Figures {
		if f := &c.Figures[i]; c.imported && f.Shown == ShownNothing && f.Lower == nil && f.Upper == nil && f.Ratio != nil {
			f.Shown, f.Lacks = ShownRatio, ""
		}
	}
	c.addNotesOfUsers(baseline.Results.Spec.Notes, candidate.Results.Spec.Notes)
	slices.SortStableFunc(c.Differences, func(x, y Difference) int { return result.CompareKeys(x.Key, y.Key) })
	if len(c.Figures) == 0 {
		return Comparison{}, fmt.Errorf("%w: %s and %s have no measured cell in common", ErrNothingInCommon, baseline.Name, candidate.Name)
	}
	return c, nil
}

func (s Side) imported() bool {
	return slices.ContainsFunc(s.Results.Variants, func(v *rounds.Variant) bool { return v.First != nil && v.First.Client.Imported != "" })
}

// unlike returns an error for results of two tools, which time other things; captures are alike.
func unlike(baseline, candidate Side) error {
	b, a := baseline.Results.Spec.Tool, candidate.Results.Spec.Tool
	if b == a || captures(baseline) && captures(candidate) {
		return nil
	}
	return fmt.Errorf("%w: tool: %s was measured by %s and %s by %s; measure both with the same tool", ErrNothingInCommon, baseline.Name, b, candidate.Name, a)
}

func captures(s Side) bool {
	return slices.ContainsFunc(s.Results.Variants, func(v *rounds.Variant) bool {
		return slices.ContainsFunc(v.Cells, func(c *rounds.Cell) bool { return len(c.Captured.Found()) > 0 })
	})
}

// ofUnknownSize returns the baseline's captured cell with the traffic of another, if the message
// size of one of them was not published, and notes it; or nil.
func (c *Comparison) ofUnknownSize(before []verdict.Cell, a verdict.Cell) *verdict.Cell {
	captured := func(c verdict.Cell) bool { return strings.HasSuffix(c.Name, result.CapturedSuffix) }
	for _, b := range before {
		if captured(a) && captured(b) && a.OfSize(0) == b.OfSize(0) && (a.MessageSize == 0) != (b.MessageSize == 0) {
			c.Notes = append(c.Notes, fmt.Sprintf("%s is compared with %s, whose message size was not published", a.Name, b.Name))
			return &b
		}
	}
	return nil
}

// WithoutExplaining omits the differences that do not prevent a comparison, except notes.
func (c Comparison) WithoutExplaining() Comparison {
	all := c.Differences
	c.Differences = slices.DeleteFunc(slices.Clone(all), func(d Difference) bool { return !d.Fingerprint && !d.Note })
	c.Explaining += len(all) - len(c.Differences)
	return c
}

type pair struct{ baseline, candidate string }

func (p pair) String() string {
	if p.baseline == p.candidate {
		return p.candidate
	}
	return p.baseline + " to " + p.candidate
}

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
	names := text.Of(plan.Variants(s.Results.Spec), func(v v1alpha1.Variant) string { return v.Name })
	switch {
	case s.Variant == "":
		return names, nil
	case !slices.Contains(names, s.Variant):
		return nil, fmt.Errorf("%w: %s; there are %s", ErrNoVariant, s.Name, strings.Join(names, ", "))
	}
	return []string{s.Variant}, nil
}

// addDifferences adds those of two variants' conditions at both endpoints, by their first runs.
func (c *Comparison) addDifferences(p pair, several bool, before, after judge.Results) {
	b, a := before.Variant(p.baseline).First, after.Variant(p.candidate).First
	if b == nil || a == nil || b.Client.Imported != "" || a.Client.Imported != "" {
		return // Of an imported result nothing was observed.
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
	if d, ok := result.OtherImage(*b, *a); ok {
		c.addDifference(Difference{Key: d.Key, Baseline: d.A, Candidate: d.B, Fingerprint: true, Ends: []string{a.Client.Role}})
	}
}

// addDifference adds a difference. If another endpoint already has it, only the endpoint is added.
func (c *Comparison) addDifference(d Difference) {
	for i := range c.Differences {
		if known := &c.Differences[i]; known.Key == d.Key && known.Baseline == d.Baseline && known.Candidate == d.Candidate {
			known.Ends = append(known.Ends, d.Ends...)
			return
		}
	}
	c.Differences = append(c.Differences, d)
}

func (c *Comparison) addNotesOfUsers(before, after []v1alpha1.Note) {
	value := func(notes []v1alpha1.Note, name string) string {
		for _, n := range notes {
			if n.Name == name {
				return n.Value
			}
		}
		return ""
	}
	for _, n := range slices.Concat(before, after) {
		if a, b := value(before, n.Name), value(after, n.Name); a != b {
			c.addDifference(Difference{Key: "note." + n.Name, Baseline: a, Candidate: b, Note: true})
		}
	}
}

// addNotes adds, once for each kind, why a gate would draw no conclusion from one of two variants,
// the cells that only one of them has, and whether packets were captured for only one.
func (c *Comparison) addNotes(p pair, baseline, candidate Side, before, after []verdict.Cell, told map[string]bool) {
	note := func(kind, text string) {
		if !told[kind] {
			told[kind] = true
			c.Notes = append(c.Notes, kind+text)
		}
	}
	for _, side := range []struct {
		name          string
		cells, others []verdict.Cell
	}{{baseline.Name, before, after}, {candidate.Name, after, before}} {
		for _, cell := range side.cells {
			for _, b := range cell.Blockers {
				note(fmt.Sprintf("%s: %s: ", side.name, b.Reason), b.Message)
			}
			if other := named(side.others, cell.Name); len(cell.Rounds) > 0 && (other == nil || len(other.Rounds) == 0) {
				note(fmt.Sprintf("only %s has %s/%s", side.name, cell.Variant, cell.Name), "")
			}
		}
	}
	old, recent := baseline.Results.Variant(p.baseline).First, candidate.Results.Variant(p.candidate).First
	if old != nil && recent != nil {
		for _, text := range []string{result.Frequency(old.Client, recent.Client), result.Frequency(old.Server, recent.Server)} {
			if text != "" {
				note(text, "")
			}
		}
	}
	if baseline.Results.Variant(p.baseline).Capture != candidate.Results.Variant(p.candidate).Capture {
		note(fmt.Sprintf("packets of %s were captured on one side only, which slows it", p), "")
	}
}

func of(cells []verdict.Cell, variant string) []verdict.Cell {
	return slices.DeleteFunc(slices.Clone(cells), func(c verdict.Cell) bool { return c.Variant != variant })
}

func named(cells []verdict.Cell, name string) *verdict.Cell {
	i := slices.IndexFunc(cells, func(c verdict.Cell) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &cells[i]
}

// addFigures adds a cell's metrics: percentiles up to the first with too few samples.
func (c *Comparison) addFigures(before, after verdict.Cell) {
	for _, kind := range v1alpha1.MetricKinds() {
		m := kind.Metric
		if !kind.Compared || !kind.Of(after.Traffic) || kind.Unit == v1alpha1.UnitMessages {
			continue
		}
		has := func(r verdict.Round) bool {
			_, ok := r.Values[m]
			return ok
		}
		if !slices.ContainsFunc(before.Rounds, has) && !slices.ContainsFunc(after.Rounds, has) {
			continue
		}
		f, enough := figureOf(m, before, after)
		c.Figures = append(c.Figures, f)
		if !enough {
			break
		}
	}
	// The number of lost messages has no ratio, because that of the baseline is mostly 0.
	lost := func(c verdict.Cell) *int64 {
		var n int64
		for _, r := range c.Rounds {
			n += r.Values[v1alpha1.MetricLost].Value
		}
		return &n
	}
	f := newFigure(v1alpha1.MetricLost, before, after)
	if f.Baseline, f.Candidate = lost(before), lost(after); *f.Baseline+*f.Candidate > 0 {
		c.Figures = append(c.Figures, f)
	}
}

func newFigure(m v1alpha1.Metric, before, after verdict.Cell) Figure {
	return Figure{
		BaselineVariant: before.Variant, CandidateVariant: after.Variant, Cell: after.Name, Metric: m, Unit: m.Kind().Unit,
		BaselineRounds: len(before.Rounds), CandidateRounds: len(after.Rounds),
	}
}

// figureOf compares a metric; enough is false if a round has too few samples for it.
func figureOf(m v1alpha1.Metric, before, after verdict.Cell) (f Figure, enough bool) {
	f = newFigure(m, before, after)
	b, ofBaseline := before.Observations(m)
	a, ofCandidate := after.Observations(m)
	if p, isPercentile := stats.Named(string(m)); isPercentile {
		if fewest := min(ofBaseline, ofCandidate); !p.Eligible(fewest) {
			f.Lacks = fmt.Sprintf("a round has %d samples and %s needs %d", fewest, m, p.Needs())
			return f, false
		}
	}
	show := func(rounds []stats.Observation) *int64 {
		value := stats.Median(rounds)
		switch {
		case len(rounds) == 0 || value == stats.Infinite:
			return nil
		case f.Unit == v1alpha1.UnitNanoseconds && after.HalfRTT:
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

func (f *Figure) compare(before, after []stats.Observation) {
	bounds, bounded := stats.Interval(before, after)
	known := func(v float64) *float64 {
		if v > 0 && !math.IsInf(v, 1) {
			return &v
		}
		return nil
	}
	f.Ratio = known(bounds.Estimate)
	if !bounded {
		n := stats.FewestRounds(stats.EachPair, stats.EachSide)
		f.Lacks = fmt.Sprintf("too few rounds for a comparison; it needs at least %d+%d", n, n)
		return
	}
	f.Lower, f.Upper = known(bounds.Lower), known(bounds.Upper)
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
