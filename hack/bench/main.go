// Command bench compares the pinger with sfnt-pingpong, sockperf and netperf: in two network namespaces that a pair of
// virtual interfaces joins, each end on a CPU of its own, over TCP and UDP, polling and blocking. The tools take turns
// in every round, because rounds differ by more than tools do. As root:
//
//	SFNETTEST_BIN=/path/to/folder go run ./hack/bench
//
// It prints what every tool measured, and for each mode a line such as
//
//	RATIO tcp-spin min=0.98 p50=0.99 against sfnt-pingpong
//
// of the pinger's smallest round trip and its best median, divided by the smallest of the others. netperf knows whole
// microseconds only and is shown, but not compared with.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tailgate-dev/tailgate/bench-image/pinger"
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
	rounds := flags.Int("rounds", 10, "rounds; in each of them every tool measures every mode once")
	duration := flags.Duration("duration", time.Second, "measuring time of each, in whole seconds")
	size := flags.Int("size", 64, "bytes of a message, 14 to 65507")
	only := flags.String("modes", "", "modes to run, with commas between; empty: all")
	clientCPU := flags.String("client-cpu", "0", "CPU of the clients")
	serverCPU := flags.String("server-cpu", "1", "CPU of the servers")
	if err := flags.Parse(args); err != nil {
		return err
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
	tools, err := available(program, os.Getenv("SFNETTEST_BIN"), stdout)
	if err != nil {
		return err
	}
	ends, err := newNamespaces()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ends.Close()) }()
	p := pair{Pair: ends, clientCPU: *clientCPU, serverCPU: *serverCPU, duration: *duration, size: *size}
	results := map[string]map[string]best{}
	for round := range *rounds {
		for _, m := range chosen {
			for i := range tools {
				t := tools[(i+round)%len(tools)]
				if m.spin && !t.spins {
					continue
				}
				measured, err := p.run(ctx, t, m)
				// sockperf now and then gives up a connection that is still being made.
				for again := 0; err != nil && again < 3 && t.name != "pinger" && ctx.Err() == nil; again++ {
					fmt.Fprintf(stderr, "%s, %s, round %d, once more: %v\n", m.name, t.name, round+1, err)
					measured, err = p.run(ctx, t, m)
				}
				if err != nil && (t.name == "pinger" || ctx.Err() != nil) {
					return fmt.Errorf("%s, %s: %w", m.name, t.name, err)
				} else if err != nil {
					fmt.Fprintf(stderr, "%s, %s, round %d, left out: %v\n", m.name, t.name, round+1, err)
					continue
				}
				if results[m.name] == nil {
					results[m.name] = map[string]best{}
				}
				results[m.name][t.name] = results[m.name][t.name].with(measured)
			}
		}
	}
	report(stdout, chosen, tools, results)
	return nil
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

// best is the least of some rounds, and the median of their medians.
type best struct {
	latency
	medians []float64
}

func (b best) with(l latency) best {
	if len(b.medians) == 0 {
		b.latency = l
	}
	b.min, b.p50 = min(b.min, l.min), min(b.p50, l.p50)
	b.medians = append(b.medians, l.p50)
	return b
}

func (b best) typical() float64 {
	sorted := slices.Sorted(slices.Values(b.medians))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// report prints a table and the ratios.
func report(w io.Writer, chosen []mode, tools []benchTool, results map[string]map[string]best) {
	fmt.Fprintf(w, "%-10s %-14s %10s %10s %14s  (round trip, µs)\n", "mode", "tool", "min", "best p50", "median of p50")
	for _, m := range chosen {
		for _, t := range tools {
			if b, ok := results[m.name][t.name]; ok {
				fmt.Fprintf(w, "%-10s %-14s %10.3f %10.3f %14.3f\n", m.name, t.name, b.min/1e3, b.p50/1e3, b.typical()/1e3)
			}
		}
	}
	for _, m := range chosen {
		fmt.Fprintln(w, ratio(m, tools, results[m.name]))
	}
}

// ratio compares with the quickest of the others, in each of the two numbers.
func ratio(m mode, tools []benchTool, results map[string]best) string {
	ours := results[tools[0].name]
	var byMin, byMedian string
	for _, t := range tools[1:] {
		b, ok := results[t.name]
		if !ok || t.coarse {
			continue
		}
		if byMin == "" || b.min < results[byMin].min {
			byMin = t.name
		}
		if byMedian == "" || b.p50 < results[byMedian].p50 {
			byMedian = t.name
		}
	}
	if byMin == "" {
		return fmt.Sprintf("RATIO %s has nothing to compare with", m.name)
	}
	line := fmt.Sprintf("RATIO %s min=%.2f p50=%.2f against %s", m.name, ours.min/results[byMin].min, ours.p50/results[byMedian].p50, byMedian)
	if byMin != byMedian {
		line += fmt.Sprintf(" (min: %s)", byMin)
	}
	return line
}

// available are the tools that can be run, the pinger first. It says which are missing.
func available(program, sfnt string, w io.Writer) ([]benchTool, error) {
	tools := []benchTool{pingerTool(program)}
	if sfnt == "" {
		fmt.Fprintln(w, "sfnt-pingpong is left out: SFNETTEST_BIN does not name the folder that holds it")
	} else {
		path := filepath.Join(sfnt, "sfnt-pingpong")
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("looking for the tool that SFNETTEST_BIN promises: %w", err)
		}
		tools = append(tools, sfntTool(path))
	}
	for _, t := range []benchTool{sockperfTool(), netperfTool()} {
		if _, err := exec.LookPath(t.name); err != nil {
			fmt.Fprintf(w, "%s is left out: it is not in PATH\n", t.name)
			continue
		}
		tools = append(tools, t)
	}
	return tools, nil
}
