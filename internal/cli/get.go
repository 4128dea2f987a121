package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/report"
)

// newGet is the verb that prints results.
func newGet(c *cluster) *cobra.Command {
	var explained []string
	for _, f := range report.Forms() {
		explained = append(explained, fmt.Sprintf("  %-9s %s", f.Name, f.Shows))
	}
	var form string
	var plotted bool
	get := &cobra.Command{
		Use:   "get NAME|lmatrix/NAME|PATH",
		Short: "Print the results of a LatencyBenchmark or LatencyMatrix",
		Long: "Print the results of a LatencyBenchmark from its stored histograms, after verifying their digests, or those of a\n" +
			"LatencyMatrix (lmatrix/NAME) from the status of the benchmark of each pair.\n\n" +
			"NAME is an object in the cluster, PATH an export, which begins with ./ or /.\n\n" +
			"Formats:\n" + strings.Join(explained, "\n"),
		Example:           "  " + name + " get sweep -n perf -o sfnt\n  " + name + " get ./results/sweep -o csv",
		ValidArgsFunction: c.completeResults(1, benchmarks, matrices),
		Args:              takes("the name of one LatencyBenchmark", 1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := get(cmd.Context(), c, args[0], form, plotted, plotScreen(cmd.OutOrStdout()))
			return emit(cmd.OutOrStdout(), text, err)
		},
	}
	formFlag(get, &form)
	plotFlag(get, &plotted)
	return get
}

// formFlag is the flag with the name of a form.
func formFlag(cmd *cobra.Command, form *string) {
	var known []string
	for _, f := range report.Forms() {
		known = append(known, f.Name)
	}
	cmd.Flags().StringVarP(form, "output", "o", "", fmt.Sprintf("format: %s (default %s, for a LatencyMatrix %s)",
		strings.Join(known, ", "), known[0], report.FormPairs))
	completeFlag(cmd, "output", known...)
}

// checkForm is an error for a form that does not exist, or that has no place for plots. A mistake costs no wait for a
// cluster, and no measurement.
func checkForm(form string, plotted bool) error {
	if _, err := formNamed(form); err != nil {
		return err
	}
	return checkPlot(form, plotted)
}

// get prints a benchmark's stored results, or those of its pairs, in a form; by default in the one that suits it.
func get(ctx context.Context, c *cluster, arg, form string, plotted bool, s report.Screen) ([]byte, error) {
	if err := checkForm(form, plotted); err != nil {
		return nil, err
	}
	m, err := c.load(ctx, arg)
	if err != nil {
		return nil, err
	}
	text, err := printed(m, form)
	if err != nil || !plotted {
		return text, err
	}
	plots, err := plotsOf(m, s)
	return append(text, plots...), err
}

// formNamed finds a form; the general one where no name is given.
func formNamed(name string) (report.Form, error) {
	f, err := report.FormNamed(cmp.Or(name, report.Forms()[0].Name))
	if err != nil {
		return report.Form{}, fmt.Errorf("--output: %w", err)
	}
	return f, nil
}

// printed is a benchmark in a form; where it is empty, in the one that suits it.
func printed(m export.Benchmark, form string) ([]byte, error) {
	f, err := formNamed(form)
	if err != nil {
		return nil, err
	}
	b := m.Object
	var out bytes.Buffer
	if m.Matrix != nil {
		if form == "" {
			if f, err = formNamed(report.FormPairs); err != nil {
				return nil, err
			}
		}
		if !f.ShowsPairs() {
			return nil, onePair(fmt.Sprintf("--output=%s does not show a matrix, --output=%s does", form, report.FormPairs), m)
		}
		if err := f.WritePairs(&out, m.Matrix, export.Objects(m.Pairs)); err != nil {
			return nil, fmt.Errorf("LatencyMatrix %s/%s: %w", b.Namespace, b.Name, err)
		}
		return out.Bytes(), nil
	}
	if len(m.Runs) == 0 {
		return nil, noResults(b)
	}
	if err := f.Write(&out, b, m.Runs); err != nil {
		if errors.Is(err, report.ErrNothingToShow) {
			return nil, fmt.Errorf("--output=%s: %w; use --output=table", f.Name, err)
		}
		return nil, err
	}
	return out.Bytes(), nil
}
