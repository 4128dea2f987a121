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

// newGet returns the verb that prints results.
func newGet(c *cluster) *cobra.Command {
	var explained []string
	for _, f := range report.Forms() {
		explained = append(explained, fmt.Sprintf("  %-9s %s", f.Name, f.Shows))
	}
	var form string
	cmd := &cobra.Command{
		Use:   "get NAME|lmatrix/NAME|PATH",
		Short: "Print the results of a LatencyBenchmark or LatencyMatrix",
		Long: "Print the results of a LatencyBenchmark from its stored histograms, after verifying their digests, or those of a\n" +
			"LatencyMatrix (lmatrix/NAME) from the status of the benchmark of each pair. Of a LatencyGate, kubectl get lver -o wide\n" +
			"prints the last result of each node.\n\n" +
			"NAME is an object in the cluster, PATH an export, which begins with ./ or /.\n\n" +
			"Formats:\n" + strings.Join(explained, "\n"),
		Example: "  " + name + " get sweep -n perf -o sfnt\n  " + name + " get ./results/sweep -o csv",
		Args:    takes("the name of one LatencyBenchmark", 1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := get(cmd.Context(), c, args[0], form)
			return emit(cmd.OutOrStdout(), text, err)
		},
	}
	formFlag(cmd, &form)
	return cmd
}

// formFlag adds the flag with the name of a format.
func formFlag(cmd *cobra.Command, form *string) {
	var known []string
	for _, f := range report.Forms() {
		known = append(known, f.Name)
	}
	cmd.Flags().StringVarP(form, "output", "o", "", fmt.Sprintf("format: %s (default %s, for a LatencyMatrix %s)",
		strings.Join(known, ", "), known[0], report.FormPairs))
}

// get returns the stored results of a benchmark, or the results of a matrix's pairs, in a format; see printed for the default.
func get(ctx context.Context, c *cluster, arg, form string) ([]byte, error) {
	if _, err := formNamed(form); err != nil { // An invalid format is refused before the cluster is contacted.
		return nil, err
	}
	m, err := c.load(ctx, arg)
	if err != nil {
		return nil, err
	}
	return printed(m, form)
}

// formNamed returns the format with a name; the first format if the name is empty.
func formNamed(name string) (report.Form, error) {
	f, err := report.FormNamed(cmp.Or(name, report.Forms()[0].Name))
	if err != nil {
		return report.Form{}, fmt.Errorf("--output: %w", err)
	}
	return f, nil
}

// printed returns a benchmark or matrix in a format; if form is empty, in the default format of its kind.
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
