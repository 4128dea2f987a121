// Package plan turns a benchmark into its ordered runs. It is pure and deterministic: equal specs
// and nodes give equal runs and names, in the controller, the command line and tests.
//
// Rounds are outermost, so that drift (temperature, neighbours) affects all cells alike; the order
// of cells rotates by round, so that none is always first. For variants see ordered.
package plan

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

const DefaultVariant = "default" // the only variant of a spec without variants

// DefaultOnloadResource is the resource of AMD's device plugin that gives a pod Onload's devices.
const DefaultOnloadResource = "amd.com/onload"

const DefaultMessageSize = 64 // bytes, for specs with neither message sizes nor streams

// Run is one client pod and one server pod that measure every cell of one variant once.
type Run struct {
	// Name is unique in the benchmark's namespace; pods and the stored result are named after it.
	Name    string
	Round   int32
	Variant v1alpha1.Variant // complete: with the settings that it inherits from the spec
	Cells   []tool.Cell      // in the order of measurement
}

// Rounds returns the spec's rounds and those by which the plan was extended, which come last.
func Rounds(b *v1alpha1.LatencyBenchmark) int32 { return b.Spec.Rounds + b.Status.ExtendedRounds }

const defaultMaxRounds = 20 // after which the rules are evaluated for the last time

// MaxRounds returns after how many rounds the rules are evaluated last; without rules, the spec's.
func MaxRounds(spec v1alpha1.LatencyBenchmarkSpec) int32 {
	if spec.Criteria == nil {
		return spec.Rounds
	}
	return max(spec.Rounds, cmp.Or(spec.MaxRounds, defaultMaxRounds))
}

// Runs returns a benchmark's runs: rounds outermost, variants in an order that changes.
func Runs(b *v1alpha1.LatencyBenchmark) []Run {
	variants := Variants(b.Spec)
	rounds := Rounds(b)
	runs := make([]Run, 0, int(rounds)*len(variants))
	for round := int32(1); round <= rounds; round++ {
		for _, v := range ordered(variants, int(round-1)) {
			name := fmt.Sprintf("%s-r%d", b.Name, round)
			if len(b.Spec.Variants) > 0 {
				name = fmt.Sprintf("%s-%s-r%d", b.Name, v.Name, round)
			}
			runs = append(runs, Run{Name: name, Round: round, Variant: v, Cells: rotate(Cells(b.Spec, v), int(round-1))})
		}
	}
	return runs
}

func RoundNumbers(b *v1alpha1.LatencyBenchmark) map[string]int32 {
	numbers := map[string]int32{}
	for _, run := range Runs(b) {
		numbers[run.Name] = run.Round
	}
	return numbers
}

// ordered returns the variants' order after a number of rounds. Those with devices of one resource
// form a group, also those without: AMD's device plugin for Onload exits when an interface appears
// or disappears. The groups rotate by round, a group's variants whenever each group has been first.
func ordered(variants []v1alpha1.Variant, rounds int) []v1alpha1.Variant {
	var groups [][]v1alpha1.Variant
	of := map[string]int{}
	for _, v := range variants {
		at, known := of[v.Network.ResourceName()]
		if !known {
			at = len(groups)
			of[v.Network.ResourceName()] = at
			groups = append(groups, nil)
		}
		groups[at] = append(groups[at], v)
	}
	all := make([]v1alpha1.Variant, 0, len(variants))
	for _, group := range rotate(groups, rounds) {
		all = append(all, rotate(group, rounds/len(groups))...)
	}
	return all
}

// PluginPatience is how long a started benchmark, or its gate, waits for a device plugin, and devices may
// be absent from an unchanged node. A container that exits repeatedly starts again within 5 minutes.
const PluginPatience = 30 * time.Minute

// Variants returns the variants with all inherited settings, in order; at least one, named default.
func Variants(spec v1alpha1.LatencyBenchmarkSpec) []v1alpha1.Variant {
	given := spec.Variants
	if len(given) == 0 {
		given = []v1alpha1.Variant{{Name: DefaultVariant}}
	}
	variants := make([]v1alpha1.Variant, 0, len(given))
	for _, v := range given {
		v.Network = cmp.Or(v.Network, &spec.Network).DeepCopy()
		v.Acceleration = acceleration(cmp.Or(v.Acceleration, spec.Acceleration))
		v.Env = environment(spec.Pods, v.Env)
		v.Wait = cmp.Or(v.Wait, spec.Workload.Wait, v1alpha1.WaitBlock)
		v.Muxer = cmp.Or(v.Muxer, spec.Workload.Muxer, v1alpha1.MuxerNone)
		v.Capture = cmp.Or(v.Capture, spec.Capture, v1alpha1.CaptureNone)
		variants = append(variants, v)
	}
	return variants
}

func Resources(spec v1alpha1.LatencyBenchmarkSpec) []string {
	var all []string
	for _, v := range Variants(spec) {
		for _, name := range v.Resources() {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

func acceleration(given *v1alpha1.Acceleration) *v1alpha1.Acceleration {
	if given == nil || given.Type != v1alpha1.AccelerationOnload {
		return &v1alpha1.Acceleration{Type: v1alpha1.AccelerationKernel}
	}
	settings := given.OnloadSettings()
	settings.ResourceName = cmp.Or(settings.ResourceName, DefaultOnloadResource)
	settings.Source = cmp.Or(settings.Source, v1alpha1.OnloadFromDevicePlugin)
	return &v1alpha1.Acceleration{Type: given.Type, Onload: &settings}
}

// environment returns a variant's: the template's variables that it leaves, then its own.
func environment(template *v1alpha1.PodSettings, own []v1alpha1.EnvVar) []v1alpha1.EnvVar {
	if template == nil {
		return own
	}
	var all []v1alpha1.EnvVar
	for _, e := range template.Env {
		if !slices.ContainsFunc(own, func(o v1alpha1.EnvVar) bool { return o.Name == e.Name }) {
			all = append(all, e)
		}
	}
	return append(all, own...)
}

// Cells returns the cells of a variant in the order in which results show them.
func Cells(spec v1alpha1.LatencyBenchmarkSpec, v v1alpha1.Variant) []tool.Cell {
	w := spec.Workload
	var cells []tool.Cell
	for _, t := range trafficOf(w) {
		c := tool.Cell{
			Name: t.CellName(), Traffic: t, Wait: v.Wait, Muxer: v.Muxer, Duration: w.Duration.Duration, Warmup: w.Warmup.Duration,
			Custom: spec.Custom,
		}
		if t.Protocol == v1alpha1.ProtocolMulticast {
			c.MulticastGroup = w.MulticastGroup
		}
		if t.Protocol != v1alpha1.ProtocolTCP && !t.Stream {
			c.LossAfter = w.LossAfter.Duration
		}
		cells = append(cells, c)
	}
	return cells
}

// trafficOf returns each cell's traffic: protocols outermost, then sizes and rates, then streams.
func trafficOf(w v1alpha1.Workload) []v1alpha1.Traffic {
	sizes, rates := w.MessageSizes, w.RatesPerSecond
	if len(sizes) == 0 && len(w.Streams) == 0 {
		sizes = []int32{DefaultMessageSize}
	}
	if len(rates) == 0 {
		rates = []int32{0}
	}
	var all []v1alpha1.Traffic
	for _, protocol := range w.Protocols {
		for _, size := range sizes {
			for _, rate := range rates {
				all = append(all, v1alpha1.Traffic{Protocol: protocol, MessageSize: size, RatePerSecond: rate})
			}
		}
	}
	for _, s := range w.Streams {
		all = append(all, v1alpha1.Traffic{Protocol: s.Protocol, MessageSize: s.MessageSize, Stream: true})
	}
	return all
}

// Workload returns the smallest workload whose cells have all of this traffic.
func Workload(all ...v1alpha1.Traffic) v1alpha1.Workload {
	var w v1alpha1.Workload
	for _, t := range all {
		if t.Stream {
			w.Streams = with(w.Streams, v1alpha1.Stream{Protocol: t.Protocol, MessageSize: t.MessageSize})
			continue
		}
		w.Protocols, w.MessageSizes = with(w.Protocols, t.Protocol), with(w.MessageSizes, t.MessageSize)
		if t.OpenLoop() {
			w.RatesPerSecond = with(w.RatesPerSecond, t.RatePerSecond)
		}
	}
	return w
}

func with[T comparable](all []T, value T) []T {
	if slices.Contains(all, value) {
		return all
	}
	return append(all, value)
}

// Headline returns the name of the cell that spec.headline selects; empty if it selects none.
func Headline(spec v1alpha1.LatencyBenchmarkSpec) string {
	h := spec.Headline
	if h == nil {
		return ""
	}
	cells := Cells(spec, v1alpha1.Variant{})
	i := slices.IndexFunc(cells, func(c tool.Cell) bool {
		return !c.Stream && c.Protocol == cmp.Or(h.Protocol, c.Protocol) && (h.MessageSize == nil || c.MessageSize == *h.MessageSize) &&
			c.RatePerSecond == cmp.Or(h.RatePerSecond, c.RatePerSecond)
	})
	if i < 0 {
		return ""
	}
	return cells[i].Name
}

// MeasuringTime returns how long measuring the cells takes, including warm-ups.
func MeasuringTime(cells []tool.Cell) time.Duration {
	var sum time.Duration
	for _, c := range cells {
		sum += c.Warmup + c.Duration
	}
	return sum
}

// Deadline returns the longest time that a client may take for all cells.
func Deadline(d tool.Driver, cells []tool.Cell) time.Duration {
	var sum time.Duration
	for _, c := range cells {
		sum += d.Deadline(c) + prepareAllowance
	}
	return sum
}

const prepareAllowance = 15 * time.Second // for a server to listen and raw samples to be read

func rotate[T any](all []T, by int) []T {
	if len(all) == 0 {
		return nil
	}
	by %= len(all)
	return append(append(make([]T, 0, len(all)), all[by:]...), all[:by]...)
}
