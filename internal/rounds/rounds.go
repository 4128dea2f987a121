// Package rounds reduces stored results, one at a time, to the input of verdicts and statuses: a
// few numbers per round of each cell, the merged histogram of all rounds, and the conditions that
// must hold for all runs. A result need not stay in memory.
package rounds

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// Percentiles returns the percentiles of a round in ascending order.
func Percentiles() []v1alpha1.Percentile {
	return []v1alpha1.Percentile{
		v1alpha1.P50, v1alpha1.P75, v1alpha1.P90, v1alpha1.P95, v1alpha1.P99, v1alpha1.P999, v1alpha1.P9999, v1alpha1.P99999, v1alpha1.P999999,
	}
}

// Collection combines the stored runs of a benchmark.
type Collection struct {
	Spec v1alpha1.LatencyBenchmarkSpec
	Runs int
	// Variants are the spec's variants in its order, including variants without runs.
	Variants []*Variant
	// Simulated is true if both ends of a run were on one kernel.
	Simulated bool
	// Incomplete is the first incomplete capture, Reduced the first reduced result.
	Incomplete, Reduced string
	// Frequency is the first run with a throttled CPU, or another frequency.
	Frequency string
	// first is the first run that was added, of any variant, without its measurements.
	first *result.Stored
	// Merges: cells have all rounds' samples, 140 KiB of memory each.
	Merges bool
	// tools are the first mostTexts different warnings of the tools.
	tools []toolWarning
}

type Variant struct {
	v1alpha1.Variant
	Runs int
	// First and Last are the first and the last run without their measurements; nil without runs.
	First, Last *result.Stored
	// Warnings are what runs did not prove, one a reason: the first, or a blocking one.
	Warnings []proof.Warning
	// Unequal is how a run's conditions differ from the first's, or empty.
	Unequal string
	Proof   proof.Runs
	Cells   []*Cell
}

// Cell is one cell of a variant, over all its runs.
type Cell struct {
	tool.Cell
	// Measured are clients' rounds, Captured servers', from packets: one of each per run.
	Measured, Captured Rounds
}

// Rounds are the rounds of a cell, one for each run of the variant, in the order of measurement.
type Rounds struct {
	Each []Round
	all  *result.Merger
}

// Round is the result of one run for one cell. Latencies are full round trips, except for captures.
type Round struct {
	// Found: the run has the cell and, captured, whole; otherwise all is empty.
	Found bool
	Lost  int64
	// Samples is nil for streams and for tools that report no samples.
	Samples *Samples
	// Own, Bandwidth, Attribution and Start are the tool's, without slow samples.
	Own         *tool.Own
	Bandwidth   *tool.Bandwidth
	Attribution *tool.Attribution
	Start       tool.StartTime
}

// Samples contains the values that are kept of a round's histogram.
type Samples struct {
	// Count is of samples, OverRange of those out of range (lost), Unrecorded of unknown latencies.
	Count, OverRange, Unrecorded int64
	// Min, Mean and StdDev are in nanoseconds; meaningless without samples.
	Min, Mean, StdDev int64
	// Percentiles are in the order of the function Percentiles.
	Percentiles [9]Percentile
}

// Percentile is a percentile of a round, including its lost messages.
type Percentile struct {
	Reported stats.Reported
	Observed stats.Observation
}

func New(spec v1alpha1.LatencyBenchmarkSpec) *Collection {
	c := NewUnmerged(spec)
	c.Merges = true
	for _, v := range c.Variants {
		for _, cell := range v.Cells {
			cell.Measured.all, cell.Captured.all = result.NewMerger(), result.NewMerger()
		}
	}
	return c
}

// NewUnmerged returns a collection for verdicts only: its rounds are not merged.
func NewUnmerged(spec v1alpha1.LatencyBenchmarkSpec) *Collection {
	c := &Collection{Spec: spec}
	for _, v := range plan.Variants(spec) {
		variant := &Variant{Variant: v}
		for _, planned := range plan.Cells(spec, v) {
			variant.Cells = append(variant.Cells, &Cell{Cell: planned})
		}
		c.Variants = append(c.Variants, variant)
	}
	return c
}

// Of collects runs that are in memory, in the order of measurement. The error is Add's.
func Of(spec v1alpha1.LatencyBenchmarkSpec, runs ...result.Stored) (*Collection, error) {
	c := New(spec)
	for _, run := range runs {
		if err := c.Add(run); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Variant returns the variant with a name; nil if the spec does not have it.
func (c *Collection) Variant(name string) *Variant {
	for _, v := range c.Variants {
		if v.Name == name {
			return v
		}
	}
	return nil
}

// Add adds the next run; after its error, which wraps result.ErrCorrupt, drop the collection.
func (c *Collection) Add(run result.Stored) error {
	v := c.Variant(run.Client.Variant)
	if v == nil {
		return nil
	}
	c.Runs++
	v.Runs++
	c.Simulated = c.Simulated || result.SameKernel(run.Client.Evidence, run.Server.Evidence)
	c.addReports(run)
	if c.first == nil {
		c.first = new(run.WithoutMeasurements())
	}
	if c.Frequency == "" {
		c.Frequency = cmp.Or(result.Frequency(c.first.Client, run.Client), result.Frequency(c.first.Server, run.Server))
	}
	v.prove(c.Spec, run)
	for _, cell := range v.Cells {
		client, server := run.Cell(cell.Name)
		if err := cell.Measured.add(measured(client)); err != nil {
			return fmt.Errorf("%s, %s: %w", run.Client.Run, cell.Name, err)
		}
		if err := cell.Captured.add(captured(server)); err != nil {
			return fmt.Errorf("%s, capture of %s: %w", run.Server.Run, cell.Name, err)
		}
	}
	return nil
}

// prove adds a run's proof, and whether its conditions equal the first run's.
func (v *Variant) prove(spec v1alpha1.LatencyBenchmarkSpec, run result.Stored) {
	for _, w := range proof.Warnings(spec, v.Variant, run) {
		v.Warnings = proof.AddWarning(v.Warnings, w)
	}
	lean := run.WithoutMeasurements()
	v.Proof.Add(spec, v.Variant, run)
	v.First = cmp.Or(v.First, &lean)
	v.Last = &lean
	if v.Unequal == "" {
		v.Unequal = cmp.Or(Unequal(*v.First, lean, result.Difference.BetweenRounds), imageChanged(*v.First, lean))
	}
}

func imageChanged(first, second result.Stored) string {
	for _, end := range []struct {
		role     string
		one, two result.Seen
	}{{v1alpha1.RoleClient, first.ClientSeen, second.ClientSeen}, {v1alpha1.RoleServer, first.ServerSeen, second.ServerSeen}} {
		if end.one.ImageID != end.two.ImageID && end.one.ImageID != "" && end.two.ImageID != "" {
			return fmt.Sprintf("%s and %s did not run the same image at the %s's end: %s, then %s",
				first.Client.Run, second.Client.Run, end.role, end.one.ImageID, end.two.ImageID)
		}
	}
	return ""
}

// Unequal lists the relevant conditions that differ between two runs; empty if there are none.
func Unequal(first, second result.Stored, matters func(result.Difference) bool) string {
	for _, ends := range [][2]result.Document{{first.Client, second.Client}, {first.Server, second.Server}} {
		if names := result.Unequal(ends[0], ends[1], matters); names != "" {
			return fmt.Sprintf("%s and %s did not run under equal conditions at the %s's end: %s",
				ends[0].Run, ends[1].Run, ends[0].Role, names)
		}
	}
	if d, ok := result.OtherImage(first, second); ok && matters(d) {
		return fmt.Sprintf("%s and %s did not run the same program: %s", first.Client.Run, second.Client.Run, d)
	}
	return ""
}

// measured returns a run's round, empty without the cell, and samples, if there are any.
func measured(c *result.Cell) (Round, *result.Histogram) {
	if c == nil {
		return Round{}, nil
	}
	round := Round{Found: true, Lost: c.Lost, Own: c.Own, Bandwidth: c.Bandwidth, Start: c.Start}
	if c.Attribution != nil {
		round.Attribution = new(*c.Attribution)
		round.Attribution.Slowest = nil
	}
	if c.Stream || c.Own != nil {
		return round, nil
	}
	return round, &c.Histogram
}

// captured is measured for a capture at the server, which may be missing or incomplete.
func captured(c *result.Captured) (Round, *result.Histogram) {
	if c == nil {
		return Round{}, nil
	}
	round := Round{Found: true, Lost: c.Unanswered, Own: c.Own}
	if c.Own != nil {
		return round, nil
	}
	return round, &c.Histogram
}

func (r *Rounds) add(round Round, h *result.Histogram) error {
	if h != nil {
		if err := r.merge(&round, *h); err != nil {
			return err
		}
	}
	r.Each = append(r.Each, round)
	return nil
}

func (r *Rounds) merge(round *Round, h result.Histogram) error {
	all := r.all
	if all == nil {
		all = result.NewMerger()
	}
	own, err := all.Add(h)
	if err != nil {
		return err
	}
	s := &Samples{
		Count: own.Count, OverRange: own.OverRange, Unrecorded: own.Unrecorded, Min: own.Min, Mean: own.Mean(), StdDev: own.StdDev(),
	}
	for i, name := range Percentiles() {
		p, _ := stats.Named(string(name))
		s.Percentiles[i].Reported = own.Percentile(p, round.Lost)
		if own.Count+own.OverRange+round.Lost > 0 {
			s.Percentiles[i].Observed = p.Observe(own.Buckets, round.Lost+own.OverRange, own.Unrecorded)
		}
	}
	round.Samples = s
	return nil
}

func (r *Rounds) Found() []Round {
	return slices.DeleteFunc(slices.Clone(r.Each), func(r Round) bool { return !r.Found })
}

// Merged returns the samples of all rounds together; empty in a collection that does not merge.
func (r *Rounds) Merged() result.Distribution {
	if r.all == nil {
		return result.Distribution{}
	}
	return r.all.Distribution()
}

// Attribution sums all rounds, without single samples; nil if none were examined.
func (r *Rounds) Attribution() *tool.Attribution {
	sum := tool.Attribution{ClientSeesGaps: true, ServerSeesGaps: true}
	for _, round := range r.Each {
		if a := round.Attribution; a != nil {
			sum.Beyond += a.Beyond
			sum.Examined += a.Examined
			sum.Client += a.Client
			sum.Server += a.Server
			sum.Both += a.Both
			sum.Neither += a.Neither
			sum.Undetermined += a.Undetermined
			sum.ClientSeesGaps = sum.ClientSeesGaps && a.ClientSeesGaps
			sum.ServerSeesGaps = sum.ServerSeesGaps && a.ServerSeesGaps
		}
	}
	if sum.Examined == 0 {
		return nil
	}
	return &sum
}

const (
	// mostTold bounds the tools' warnings that are reported, maxTold each, in bytes.
	mostTold, maxTold = 4, 400
	mostTexts         = 1024
)

type toolWarning struct {
	text, first string
	more        int
}

func (c *Collection) warn(said, from string) {
	said = text.Shorten(said, maxTold)
	i := slices.IndexFunc(c.tools, func(w toolWarning) bool { return w.text == said })
	switch {
	case i >= 0:
		c.tools[i].more++
	case len(c.tools) < mostTexts:
		c.tools = append(c.tools, toolWarning{text: strings.Clone(said), first: from})
	}
}

// ToolWarnings returns the tools' first different warnings; the stored results have all.
func (c *Collection) ToolWarnings() string {
	var told []string
	for _, w := range c.tools[:min(mostTold, len(c.tools))] {
		from := w.first
		if w.more > 0 {
			from = fmt.Sprintf("%s and %d more", from, w.more)
		}
		told = append(told, fmt.Sprintf("%s (%s)", w.text, from))
	}
	if rest := len(c.tools) - len(told); rest > 0 {
		told = append(told, fmt.Sprintf("%d other warnings are in the stored results", rest))
	}
	return strings.Join(told, "; ")
}

func (c *Collection) addReports(run result.Stored) {
	for _, cell := range run.Client.Cells {
		for _, said := range cell.Warnings {
			c.warn(said, run.Client.Run+", "+cell.Name)
		}
	}
	for _, captured := range run.Server.Captured {
		if captured.Incomplete != "" && c.Incomplete == "" {
			c.Incomplete = fmt.Sprintf("%s, %s: %s", run.Server.Run, captured.Cell, captured.Incomplete)
		}
	}
	for _, d := range []result.Document{run.Client, run.Server} {
		if len(d.Reduced) > 0 && c.Reduced == "" {
			c.Reduced = fmt.Sprintf("%s, %s: the result was too large to be kept whole: %s", d.Run, d.Role, strings.Join(d.Reduced, "; "))
		}
	}
}
