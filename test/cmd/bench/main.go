// Command bench compares the pinger with sfnt-pingpong, sockperf and netperf: in two network namespaces that are joined by a pair
// of virtual interfaces, each end on a CPU of its own, over TCP and UDP, polling and blocking. In every round the pinger and each
// other tool take turns, because a machine's speed changes by more than the tools differ. sockperf and netperf come from the
// bench image's packages. While they measure, a request of the kernel's power management (pm_qos) keeps idle CPUs from sleeping,
// as hosts for low latency are set up: waking a CPU would take longer than the tools differ by. As root:
//
//	SFNETTEST_BIN=/path/to/folder go run ./test/cmd/bench
//
// With -rounds 30 -turns 3 -tools sfnt-pingpong, the interval of that comparison is narrower.
//
// It prints the results of every tool, and for each mode and other tool a line such as
//
//	RATIO tcp-spin to sfnt-pingpong, p50: 1.003, 95 % interval [0.998, 1.009], the median of 30 paired rounds; min 0.98, best p50 0.99
//
// and such lines for p99 and p99.9. Each round has one ratio of the pinger's percentile to the other tool's, both the geometric mean
// of the round's turns. The median of these ratios remains valid when the medians of a mode jump between two values; its interval is
// the interval of the sign test. The ratios of the smallest round trips and of the best percentiles are printed beside it. netperf
// reports whole microseconds only; it is shown, but not compared.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/test/cached"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
	"github.com/tailgate-dev/tailgate/test/pinger"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		os.Exit(1)
	}
}

// mode selects the protocol of the messages and how the ends wait for them.
type mode struct {
	name      string
	udp, spin bool
}

var modes = []mode{{"tcp-spin", false, true}, {"udp-spin", true, true}, {"tcp-block", false, false}, {"udp-block", true, false}}

// otherTools are the tools that the pinger is compared with.
var otherTools = []string{"sfnt-pingpong", "sockperf", "netperf"}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	rounds := flags.Int("rounds", 10, "rounds; in each of them the pinger and each other tool take turns in every mode")
	turns := flags.Int("turns", 1, "turns of a round; in each of them both tools measure twice, and a round has the mean of all")
	duration := flags.Duration("duration", time.Second, "measuring time of each, in whole seconds")
	size := flags.Int("size", 64, "bytes of a message, 14 to 65507")
	only := flags.String("modes", "", "modes to run, with commas between; empty: all")
	against := flags.String("tools", "", "other tools to run, with commas between; empty: all")
	clientCPU := flags.String("client-cpu", "0", "CPU of the clients")
	serverCPU := flags.String("server-cpu", "1", "CPU of the servers")
	kubeconfig := flags.String("timeline", "", "kubeconfig of a running local cluster; instead of comparing tools, print where the time between two runs goes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *kubeconfig != "" {
		return printTimeline(ctx, *kubeconfig, stdout)
	}
	chosen, err := choose("mode", *only, modes, func(m mode) string { return m.name })
	if err != nil {
		return err
	}
	others, err := choose("tool", *against, otherTools, func(name string) string { return name })
	if err != nil {
		return err
	}
	if *rounds < 1 || *turns < 1 || *duration < time.Second || *size < 14 || *size > 65507 || flags.NArg() > 0 {
		return errors.New("wants at least one round of one turn of a second, messages of 14 to 65507 bytes, and no arguments but flags")
	}
	dir, remove, err := cached.Temporary(os.TempDir())
	if err != nil {
		return err
	}
	defer remove()
	program := filepath.Join(dir, pinger.Program)
	if err := pinger.Build(ctx, ".", program); err != nil {
		return err
	}
	tools, err := unpackTools(ctx, dir, program, stdout, stderr)
	if err != nil {
		return err
	}
	awake, err := keepAwake()
	if err != nil {
		fmt.Fprintln(stdout, "idle CPUs may sleep, which widens the intervals of the blocking modes:", err)
	}
	defer awake.Close()
	ends, err := newNamespaces()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ends.Close()) }()
	p := pair{Pair: ends, clientCPU: *clientCPU, serverCPU: *serverCPU, duration: *duration, size: *size}
	results := map[contest][]paired{}
	for round := range *rounds {
		for _, m := range chosen {
			for _, t := range tools[1:] {
				if !slices.Contains(others, t.name) {
					continue
				}
				measured, err := measure(slices.Repeat(inTurns(tools[0], t, round), *turns), func(t benchTool) (latency, error) { return p.try(ctx, t, m, stderr) })
				if err != nil {
					return fmt.Errorf("%s, round %d: %w", m.name, round+1, err)
				}
				if theirs, ok := measured[t.name]; ok {
					key := contest{m.name, t.name}
					results[key] = append(results[key], paired{measured[tools[0].name], theirs})
				}
			}
		}
	}
	report(stdout, chosen, tools, results)
	return nil
}

// keepAwake asks the kernel for a wake-up latency of 0 µs, which holds until the file is closed
// (Documentation/power/pm_qos_interface.rst). The file is nil if there is an error.
func keepAwake() (*os.File, error) {
	f, err := os.OpenFile("/dev/cpu_dma_latency", os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(make([]byte, 4)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// errLeftOut is returned for a tool that did not measure, so that the round has no result of it.
var errLeftOut = errors.New("left out")

// inTurns returns the order in which the pinger and another tool measure in a round: one of them twice between two measurements
// of the other, so that a machine that slows down meanwhile affects both.
func inTurns(pinger, other benchTool, round int) []benchTool {
	switch {
	case other.coarse:
		return []benchTool{other}
	case round%2 == 0:
		return []benchTool{pinger, other, other, pinger}
	}
	return []benchTool{other, pinger, pinger, other}
}

// measure runs tools one after the other. For each it returns the smallest minimum and the geometric mean of its medians; it
// returns no results if one of them was left out.
func measure(order []benchTool, run func(benchTool) (latency, error)) (map[string]latency, error) {
	all := map[string][]latency{}
	for _, t := range order {
		l, err := run(t)
		if errors.Is(err, errLeftOut) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		all[t.name] = append(all[t.name], l)
	}
	means := map[string]latency{}
	for name, measured := range all {
		mean := latency{min: best(measured).min}
		for i := range quantiles {
			product := 1.0
			for _, l := range measured {
				product *= l.at[i]
			}
			mean.at[i] = math.Pow(product, 1/float64(len(measured)))
		}
		means[name] = mean
	}
	return means, nil
}

// try measures a mode with a tool, and repeats it if it fails: sockperf sometimes gives up a connection that is still being made.
// The pinger may not fail.
func (p pair) try(ctx context.Context, t benchTool, m mode, stderr io.Writer) (latency, error) {
	if m.spin && !t.spins {
		return latency{}, errLeftOut
	}
	for tries := 1; ; tries++ {
		l, err := p.run(ctx, t, m)
		if err == nil || t.name == "pinger" || ctx.Err() != nil {
			return l, err
		}
		fmt.Fprintf(stderr, "%s, %s, try %d: %v\n", m.name, t.name, tries, err)
		if tries == 4 {
			return latency{}, errLeftOut
		}
	}
}

// choose returns the elements of all that are named, separated by commas; all of them for an empty string.
func choose[T any](kind, names string, all []T, nameOf func(T) string) ([]T, error) {
	if names == "" {
		return all, nil
	}
	var chosen []T
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(all, func(o T) bool { return nameOf(o) == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no %s %q", kind, name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// quantiles are those that are compared, with their names.
var (
	quantiles = [...]float64{0.5, 0.99, 0.999}
	labels    = [...]string{"p50", "p99", "p99.9"}
)

// latency is the result of a tool in one round, in ns for the whole round trip: the smallest, and that at each quantile, by nearest
// rank.
type latency struct {
	min float64
	at  [len(quantiles)]float64
}

// contest is a mode and the tool that the pinger is compared with in it.
type contest struct{ mode, tool string }

// paired holds the results of the pinger and another tool in one round.
type paired struct{ ours, theirs latency }

func ours(p paired) latency   { return p.ours }
func theirs(p paired) latency { return p.theirs }

// of returns the pinger's or the other tool's result of each round.
func of(which func(paired) latency, rounds []paired) []latency {
	var all []latency
	for _, p := range rounds {
		all = append(all, which(p))
	}
	return all
}

// best returns the smallest minimum and the smallest value at each quantile.
func best(all []latency) latency {
	best := all[0]
	for _, l := range all {
		best.min = min(best.min, l.min)
		for i := range best.at {
			best.at[i] = min(best.at[i], l.at[i])
		}
	}
	return best
}

// median returns the median of values, which it sorts.
func median(values []float64) float64 {
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// report prints a table and the ratios.
func report(w io.Writer, chosen []mode, tools []benchTool, results map[contest][]paired) {
	fmt.Fprintf(w, "%-10s %-14s %10s %10s %10s %10s %10s  (round trip, µs; medians of the rounds)\n",
		"mode", "tool", "min", "best p50", labels[0], labels[1], labels[2])
	row := func(mode, tool string, all []latency) {
		fmt.Fprintf(w, "%-10s %-14s %10.3f %10.3f", mode, tool, best(all).min/1e3, best(all).at[0]/1e3)
		for i := range quantiles {
			var rounds []float64
			for _, l := range all {
				rounds = append(rounds, l.at[i]/1e3)
			}
			fmt.Fprintf(w, " %10.3f", median(rounds))
		}
		fmt.Fprintln(w)
	}
	var ratios strings.Builder
	for _, m := range chosen {
		var pinger []latency
		var others []benchTool
		for _, t := range tools[1:] {
			if rounds := results[contest{m.name, t.name}]; len(rounds) > 0 {
				others = append(others, t)
				if !t.coarse {
					pinger = append(pinger, of(ours, rounds)...)
					for i, name := range labels {
						fmt.Fprintf(&ratios, "RATIO %s to %s, %s: %s\n", m.name, t.name, name, ratio(rounds, i))
					}
				}
			}
		}
		if len(pinger) > 0 {
			row(m.name, tools[0].name, pinger)
		}
		for _, t := range others {
			row(m.name, t.name, of(theirs, results[contest{m.name, t.name}]))
		}
	}
	fmt.Fprint(w, ratios.String())
}

// ratio formats the comparison of the pinger with another tool at a quantile.
func ratio(rounds []paired, at int) string {
	var all []float64
	for _, p := range rounds {
		all = append(all, p.ours.at[at]/p.theirs.at[at])
	}
	middle, interval := median(all), "too few rounds for an interval"
	if k := stats.Sign(len(all), stats.EachSide); k >= 0 {
		interval = fmt.Sprintf("%s [%.3f, %.3f]", stats.Confidence, all[k], all[len(all)-1-k])
	}
	a, b := best(of(ours, rounds)), best(of(theirs, rounds))
	return fmt.Sprintf("%.3f, %s, the median of %d paired rounds; min %.2f, best %s %.2f",
		middle, interval, len(all), a.min/b.min, labels[at], a.at[at]/b.at[at])
}

// unpackTools returns the tools to compare, the pinger first. sockperf and netperf need the libraries of the bench image, which
// are unpacked into a folder that is the root of their file system.
func unpackTools(ctx context.Context, dir, program string, stdout, stderr io.Writer) ([]benchTool, error) {
	root, err := images.RepositoryRoot()
	if err != nil {
		return nil, err
	}
	o, err := images.DefaultOptions(root, stderr)
	if err != nil {
		return nil, err
	}
	unpacked := filepath.Join(dir, "root")
	if err := images.Unpack(ctx, o, unpacked); err != nil {
		return nil, err
	}
	tools := []benchTool{pingerTool(program)}
	if o.SFNetTestDir == "" {
		fmt.Fprintln(stdout, "sfnt-pingpong is left out: SFNETTEST_BIN does not name the folder that holds it")
	} else {
		path := filepath.Join(o.SFNetTestDir, "sfnt-pingpong")
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("looking for the tool in SFNETTEST_BIN: %w", err)
		}
		tools = append(tools, sfntTool(path, dir))
	}
	return append(tools, sockperfTool().in(unpacked), netperfTool().in(unpacked)), nil
}
