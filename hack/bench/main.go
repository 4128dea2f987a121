// Command bench compares the pinger with sfnt-pingpong, sockperf and netperf: in two network namespaces that a pair of
// virtual interfaces joins, each end on a CPU of its own, over TCP and UDP, polling and blocking. Every tool measures twice
// in every round, because rounds differ by more than tools do. sockperf and netperf are those of the bench image's
// packages. As root:
//
//	SFNETTEST_BIN=/path/to/folder go run ./hack/bench
//
// It prints what every tool measured, and for each mode and other tool a line such as
//
//	RATIO tcp-spin to sfnt-pingpong: 1.003, 95 % interval [0.998, 1.009], the median of 30 paired rounds; min 0.98, best p50 0.99
//
// Each round gives one ratio of the pinger's median to the other tool's. Their median holds where the medians of a mode
// jump between two values; its interval is that of the sign test. The ratios of the smallest round trips and of the best
// medians stand beside it. netperf knows whole microseconds only and is shown, but not compared with.
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

	"github.com/tailgate-dev/tailgate/bench-image/pinger"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
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

// mode is how messages are sent and waited for.
type mode struct {
	name      string
	udp, spin bool
}

var modes = []mode{{"tcp-spin", false, true}, {"udp-spin", true, true}, {"tcp-block", false, false}, {"udp-block", true, false}}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	rounds := flags.Int("rounds", 10, "rounds; in each of them every tool measures every mode twice")
	duration := flags.Duration("duration", time.Second, "measuring time of each, in whole seconds")
	size := flags.Int("size", 64, "bytes of a message, 14 to 65507")
	only := flags.String("modes", "", "modes to run, with commas between; empty: all")
	clientCPU := flags.String("client-cpu", "0", "CPU of the clients")
	serverCPU := flags.String("server-cpu", "1", "CPU of the servers")
	kubeconfig := flags.String("timeline", "", "kubeconfig of a running local cluster; instead of comparing tools, print where the time between two runs goes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *kubeconfig != "" {
		return printTimeline(ctx, *kubeconfig, stdout)
	}
	chosen, err := choose(*only)
	if err != nil {
		return err
	}
	if *rounds < 1 || *duration < time.Second || *size < 14 || *size > 65507 || flags.NArg() > 0 {
		return errors.New("wants at least one round of a second, messages of 14 to 65507 bytes, and no arguments but flags")
	}
	dir, err := os.MkdirTemp("", "tailgate-bench-")
	if err != nil {
		return fmt.Errorf("making a folder: %w", err)
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, pinger.Program)
	if err := pinger.Build(ctx, ".", program); err != nil {
		return err
	}
	tools, err := unpackTools(ctx, dir, program, stdout, stderr)
	if err != nil {
		return err
	}
	ends, err := newNamespaces()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ends.Close()) }()
	p := pair{Pair: ends, clientCPU: *clientCPU, serverCPU: *serverCPU, duration: *duration, size: *size}
	results := map[string]map[string]series{}
	for round := range *rounds {
		// The tools take turns at being first.
		first := round % len(tools)
		order := slices.Concat(tools[first:], tools[:first])
		for _, m := range chosen {
			measured, err := measure(order, func(t benchTool) (latency, error) { return p.try(ctx, t, m, stderr) })
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", m.name, round+1, err)
			}
			if results[m.name] == nil {
				results[m.name] = map[string]series{}
			}
			for name, l := range measured {
				if results[m.name][name] == nil {
					results[m.name][name] = series{}
				}
				results[m.name][name][round] = l
			}
		}
	}
	report(stdout, chosen, tools, results)
	return nil
}

// errLeftOut is for a tool that did not measure, and of which the round has nothing.
var errLeftOut = errors.New("left out")

// measure lets every tool measure twice, in an order and then in the reverse order: a machine that becomes slower meanwhile does so
// for all of them. Of each it returns the lesser minimum and the geometric mean of both medians, unless the tool was left out.
func measure(order []benchTool, run func(benchTool) (latency, error)) (map[string]latency, error) {
	back := slices.Clone(order)
	slices.Reverse(back)
	once, twice := map[string]latency{}, map[string]latency{}
	for _, t := range slices.Concat(order, back) {
		l, err := run(t)
		if errors.Is(err, errLeftOut) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.name, err)
		}
		if before, ok := once[t.name]; ok {
			twice[t.name] = latency{min(before.min, l.min), math.Sqrt(before.p50 * l.p50)}
		}
		once[t.name] = l
	}
	return twice, nil
}

// try lets a tool measure a mode, again if it fails: sockperf now and then gives up a connection that is still being made. The pinger
// may not fail.
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

func choose(names string) ([]mode, error) {
	if names == "" {
		return modes, nil
	}
	var chosen []mode
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(modes, func(m mode) bool { return m.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no mode %q", name)
		}
		chosen = append(chosen, modes[i])
	}
	return chosen, nil
}

// latency is what a tool measured in one round, in ns for the whole round trip.
type latency struct{ min, p50 float64 }

// series is what a tool measured, by the number of the round. Rounds in which it was left out are missing.
type series map[int]latency

// best is the smallest minimum and the smallest median.
func (s series) best() latency {
	best := latency{math.Inf(1), math.Inf(1)}
	for _, l := range s {
		best.min, best.p50 = min(best.min, l.min), min(best.p50, l.p50)
	}
	return best
}

// p50 are the medians in ascending order.
func (s series) p50() []float64 {
	var all []float64
	for _, l := range s {
		all = append(all, l.p50)
	}
	slices.Sort(all)
	return all
}

// paired are the ratios of the medians of the same rounds, in ascending order.
func (s series) paired(other series) []float64 {
	var all []float64
	for round, l := range s {
		if o, ok := other[round]; ok {
			all = append(all, l.p50/o.p50)
		}
	}
	slices.Sort(all)
	return all
}

// median of sorted values.
func median(sorted []float64) float64 {
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// oneSide is the probability of error of each end of an interval: both together are one of 95 %.
const oneSide stats.OneIn = 40

// report prints a table and the ratios.
func report(w io.Writer, chosen []mode, tools []benchTool, results map[string]map[string]series) {
	fmt.Fprintf(w, "%-10s %-14s %10s %10s %14s  (round trip, µs)\n", "mode", "tool", "min", "best p50", "median of p50")
	for _, m := range chosen {
		for _, t := range tools {
			if s, ok := results[m.name][t.name]; ok {
				fmt.Fprintf(w, "%-10s %-14s %10.3f %10.3f %14.3f\n", m.name, t.name, s.best().min/1e3, s.best().p50/1e3, median(s.p50())/1e3)
			}
		}
	}
	for _, m := range chosen {
		for _, t := range tools[1:] {
			if s, ok := results[m.name][t.name]; ok && !t.coarse {
				fmt.Fprintf(w, "RATIO %s to %s: %s\n", m.name, t.name, ratio(results[m.name][tools[0].name], s))
			}
		}
	}
}

// ratio compares the pinger with another tool.
func ratio(ours, theirs series) string {
	paired := ours.paired(theirs)
	interval := "too few rounds for an interval"
	if k := stats.Sign(len(paired), oneSide); k >= 0 {
		interval = fmt.Sprintf("%s [%.3f, %.3f]", stats.Confidence, paired[k], paired[len(paired)-1-k])
	}
	a, b := ours.best(), theirs.best()
	return fmt.Sprintf("%.3f, %s, the median of %d paired rounds; min %.2f, best p50 %.2f", median(paired), interval, len(paired),
		a.min/b.min, a.p50/b.p50)
}

// unpackTools returns the tools to compare, the pinger first. sockperf and netperf come with the libraries of the bench image,
// which are unpacked into a folder that is the root of their file system.
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
		tools = append(tools, sfntTool(path))
	}
	return append(tools, sockperfTool().in(unpacked), netperfTool().in(unpacked)), nil
}
