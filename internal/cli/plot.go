package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailgate-dev/tailgate/internal/compare"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/report"
)

// plotFlag gives a verb the flag that adds plots to what it prints.
func plotFlag(cmd *cobra.Command, plotted *bool) {
	cmd.Flags().BoolVar(plotted, "plot", false, "also plot latency by percentile, for each cell")
}

// checkPlot refuses plots after a form that programs read.
func checkPlot(form string, plotted bool) error {
	if plotted && slices.Contains([]string{"json", "yaml", "csv", "markdown", "sfnt"}, form) {
		return fmt.Errorf("--plot: not possible with --output=%s, which is for programs; omit one of them", form)
	}
	return nil
}

// plainWidth is how wide a plot is where there is no terminal, and COLUMNS does not give one.
const plainWidth = 100

// plotScreen is how plots can be drawn on an output. The dots of Unicode are used where the locale is of UTF-8, colours on
// a terminal only.
func plotScreen(out io.Writer) report.Screen {
	locale := cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG"))
	locale = strings.ReplaceAll(strings.ToLower(locale), "-", "")
	s := report.Screen{Width: plainWidth, Unicode: strings.Contains(locale, "utf8") && os.Getenv("TERM") != "dumb"}
	if columns, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && columns > 0 {
		s.Width = columns
	}
	if terminal := newScreen(out); terminal.live() {
		s.Width, s.Colored = terminal.width(), terminal.colored
	}
	return s
}

// plotsOf are the plots of a benchmark, one for each cell with a curve for each variant. It is an error when there are
// none.
func plotsOf(m export.Benchmark, s report.Screen) ([]byte, error) {
	if err := onePair("--plot", m); err != nil {
		return nil, err
	}
	all := report.AllSeries(m.Object, m.Runs)
	if len(all) == 0 {
		return nil, fmt.Errorf("--plot: LatencyBenchmark %s/%s has no samples: netperf reports none, and streams have none", m.Object.Namespace, m.Object.Name)
	}
	var out bytes.Buffer
	var drawn []string
	for _, first := range all {
		if slices.Contains(drawn, first.Name) {
			continue
		}
		drawn = append(drawn, first.Name)
		var curves []report.Curve
		for _, other := range all {
			if other.Name != first.Name {
				continue
			}
			curve, err := other.Curve()
			if err != nil {
				return nil, err
			}
			curves = append(curves, curve)
		}
		if err := report.Plot(&out, title(first), curves, s); err != nil {
			return nil, fmt.Errorf("--plot: %w", err)
		}
	}
	return out.Bytes(), nil
}

func title(s report.Series) string { return fmt.Sprintf("%s: %s by percentile", s.Cell, s.Counts()) }

// plotsOfSides are the plots of a comparison: of each pair of variants and cell that it has, baseline and candidate.
func plotsOfSides(c compare.Comparison, series [2][]report.Series, s report.Screen) ([]byte, error) {
	find := func(side int, variant, cell string) int {
		return slices.IndexFunc(series[side], func(s report.Series) bool { return s.Variant.Name == variant && s.Name == cell })
	}
	var out bytes.Buffer
	var drawn []string
	for _, f := range c.Figures {
		key := f.BaselineVariant + " " + f.CandidateVariant + " " + f.Cell
		before, after := find(0, f.BaselineVariant, f.Cell), find(1, f.CandidateVariant, f.Cell)
		if slices.Contains(drawn, key) || before < 0 || after < 0 {
			continue
		}
		drawn = append(drawn, key)
		// Both are shown as the candidate is.
		baseline, candidate := series[0][before], series[1][after]
		baseline.LatencyType = candidate.LatencyType
		var curves []report.Curve
		for i, one := range []report.Series{baseline, candidate} {
			curve, err := one.Curve()
			if err != nil {
				return nil, err
			}
			curve.Name = fmt.Sprintf("%s (%s)", []string{c.Baseline, c.Candidate}[i], one.Variant.Name)
			curves = append(curves, curve)
		}
		if err := report.Plot(&out, title(candidate), curves, s); err != nil {
			return nil, fmt.Errorf("--plot: %w", err)
		}
	}
	if len(drawn) == 0 {
		return nil, fmt.Errorf("--plot: %s and %s have no samples of the same cell", c.Baseline, c.Candidate)
	}
	return out.Bytes(), nil
}
