// Package rounds reduces stored results, one at a time, to what verdicts and statuses are made of: for each cell of each
// variant a few numbers of every round and the merged histogram of all, and of the conditions what must hold for all runs.
// A result need not stay in memory after it was added.
package rounds

import (
	"fmt"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// Percentiles are those of a round, in ascending order.
func Percentiles() []v1alpha1.Percentile {
	return []v1alpha1.Percentile{
		v1alpha1.P50, v1alpha1.P75, v1alpha1.P90, v1alpha1.P95, v1alpha1.P99, v1alpha1.P999, v1alpha1.P9999, v1alpha1.P99999, v1alpha1.P999999,
	}
}

// Collection is what the stored runs of a benchmark say together.
type Collection struct {
	Spec v1alpha1.LatencyBenchmarkSpec
	// Runs is how many were added.
	Runs int
	// Variants of the spec in its order, also those without runs.
	Variants []*Variant
	// Simulated is true when a run had both ends on one kernel.
	Simulated bool
	// Incomplete describes the first capture that is not whole, Reduced the first result that was made smaller; empty if all are
	// whole.
	Incomplete, Reduced string
	// Merges says that the cells have the samples of all rounds together, which takes 140 KiB of memory a cell.
	Merges bool
	tools  toolWarnings
}

// Variant is what the runs of one variant say together.
type Variant struct {
	v1alpha1.Variant
	// Runs is how many there are.
	Runs int
	// First and Last are the first and the last run without their measurements; nil without runs.
	First, Last *result.Stored
	// Warnings are what runs did not prove, each reason once: the first, or the first that blocks a verdict.
	Warnings []proof.Warning
	// Unequal says how the conditions of a run differ from those of the first; empty when they do not.
	Unequal string
	// Proof is that of the two ends over all runs.
	Proof proof.Runs
	// Cells are those of the spec, in its order.
	Cells []*Cell
}

// Cell is one cell of a variant, over all its runs.
type Cell struct {
	tool.Cell
	// Measured are the rounds as the clients measured them, Captured as the servers' agents took them from packets: one of
	// each run.
	Measured, Captured Rounds
}

// Rounds are those of a cell, one of each run of the variant, in the order of measurement.
type Rounds struct {
	Each []Round
	// all is nil when rounds are not merged.
	all *result.Merger
}

// Round is what one run found in one cell. Latencies are of the full round trip, but those of a capture.
type Round struct {
	// Found is false where the run does not have the cell, or the capture is not whole; there is nothing else then.
	Found bool
	// Lost messages have no sample.
	Lost int64
	// Samples are nil of streams and of tools that tell no samples.
	Samples *Samples
	// Own, Bandwidth, Attribution and Start are what the tool said. Slow samples reported one by one are left out.
	Own         *tool.Own
	Bandwidth   *tool.Bandwidth
	Attribution *tool.Attribution
	Start       tool.StartTime
}

// Samples are what is kept of a round's histogram.
type Samples struct {
	// Count is the number of samples, OverRange of those out of the histogram's range, which count as lost.
	Count, OverRange int64
	// Min, Mean and StdDev in nanoseconds; meaningless without samples.
	Min, Mean, StdDev int64
	// Percentiles are in the order of the function Percentiles.
	Percentiles [9]Percentile
}

// Percentile of a round with its lost messages.
type Percentile struct {
	Reported stats.Reported
	Observed stats.Observation
}

// New makes the collection of a benchmark without runs.
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

// NewUnmerged makes one that is for verdicts only: its rounds are not merged.
func NewUnmerged(spec v1alpha1.LatencyBenchmarkSpec) *Collection {
	c := &Collection{Spec: spec, tools: newToolWarnings()}
	for _, v := range plan.Variants(spec) {
		variant := &Variant{Variant: v}
		for _, planned := range plan.Cells(spec, v) {
			variant.Cells = append(variant.Cells, &Cell{Cell: planned})
		}
		c.Variants = append(c.Variants, variant)
	}
	return c
}

// Of collects runs that are in memory, in the order of measurement. The error is that of Add.
func Of(spec v1alpha1.LatencyBenchmarkSpec, runs ...result.Stored) (*Collection, error) {
	c := New(spec)
	for _, run := range runs {
		if err := c.Add(run); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Variant finds a variant by its name; nil when the spec does not have it.
func (c *Collection) Variant(name string) *Variant {
	for _, v := range c.Variants {
		if v.Name == name {
			return v
		}
	}
	return nil
}

// Add adds the run that was measured after those added before; runs of variants that the spec does not have are left out.
// The error wraps result.ErrCorrupt; the collection is then not to be used any more.
func (c *Collection) Add(run result.Stored) error {
	v := c.Variant(run.Client.Variant)
	if v == nil {
		return nil
	}
	c.Runs++
	v.Runs++
	c.Simulated = c.Simulated || proof.Simulated(run.Client.Evidence, run.Server.Evidence)
	c.note(run)
	v.prove(c.Spec, run)
	for _, cell := range v.Cells {
		measured, captured := run.Cell(cell.Name)
		if err := cell.Measured.measure(measured); err != nil {
			return fmt.Errorf("%s, %s: %w", run.Client.Run, cell.Name, err)
		}
		if err := cell.Captured.capture(captured); err != nil {
			return fmt.Errorf("%s, capture of %s: %w", run.Server.Run, cell.Name, err)
		}
	}
	return nil
}

// prove adds what a run proves, and whether its conditions equal those of the first.
func (v *Variant) prove(spec v1alpha1.LatencyBenchmarkSpec, run result.Stored) {
	for _, w := range proof.Warnings(spec, v.Variant, run) {
		v.Warnings = proof.AddWarning(v.Warnings, w)
	}
	lean := run.WithoutMeasurements()
	v.Proof.Add(spec, v.Variant, run)
	if v.First == nil {
		v.First = &lean
	}
	v.Last = &lean
	if v.Unequal == "" {
		v.Unequal = Unequal(*v.First, lean, result.Difference.BetweenRounds)
	}
}

// Unequal names the conditions of two runs that matter and differ; empty when there are none.
func Unequal(first, second result.Stored, matters func(result.Difference) bool) string {
	for _, ends := range [][2]result.Document{{first.Client, second.Client}, {first.Server, second.Server}} {
		if names := result.Unequal(ends[0], ends[1], matters); names != "" {
			return fmt.Sprintf("%s and %s did not run under equal conditions at the %s's end: %s",
				ends[0].Run, ends[1].Run, ends[0].Role, names)
		}
	}
	return ""
}

// measure adds the round of a run that has the cell, or, with nil, of one that does not.
func (r *Rounds) measure(c *result.Cell) error {
	if c == nil {
		r.Each = append(r.Each, Round{})
		return nil
	}
	round := Round{Found: true, Lost: c.Lost, Own: c.Own, Bandwidth: c.Bandwidth, Start: c.Start}
	if c.Attribution != nil {
		round.Attribution = new(*c.Attribution)
		round.Attribution.Slowest = nil
	}
	if !c.Stream && c.Own == nil {
		if err := r.merge(&round, c.Histogram); err != nil {
			return err
		}
	}
	r.Each = append(r.Each, round)
	return nil
}

// capture adds what a run's server captured, or, with nil, that it did not, or not all.
func (r *Rounds) capture(c *result.Captured) error {
	round := Round{}
	if c != nil {
		round = Round{Found: true, Lost: c.Unanswered}
		if err := r.merge(&round, c.Histogram); err != nil {
			return err
		}
	}
	r.Each = append(r.Each, round)
	return nil
}

// merge takes from a histogram what is kept of the round.
func (r *Rounds) merge(round *Round, h result.Histogram) error {
	all := r.all
	if all == nil {
		all = result.NewMerger()
	}
	own, err := all.Add(h)
	if err != nil {
		return err
	}
	s := &Samples{Count: own.Count, OverRange: own.OverRange, Min: own.Min, Mean: own.Mean(), StdDev: own.StdDev()}
	for i, name := range Percentiles() {
		p, _ := stats.Named(string(name))
		s.Percentiles[i].Reported = own.Percentile(p, round.Lost)
		if own.Count+own.OverRange+round.Lost > 0 {
			s.Percentiles[i].Observed = p.Observe(own.Buckets, round.Lost+own.OverRange)
		}
	}
	round.Samples = s
	return nil
}

// Found are the rounds of the runs that have the cell.
func (r *Rounds) Found() []Round {
	return slices.DeleteFunc(slices.Clone(r.Each), func(r Round) bool { return !r.Found })
}

// Merged are the samples of all rounds together; empty in a collection that does not merge.
func (r *Rounds) Merged() result.Distribution {
	if r.all == nil {
		return result.Distribution{}
	}
	return r.all.Distribution()
}

// Attribution adds up those of all rounds, without the slow samples one by one; nil when none has examined samples.
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
