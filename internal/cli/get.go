package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tailgate-dev/tailgate/internal/report"
)

// newGet is the verb that prints results.
func newGet(c *cluster) *cobra.Command {
	var known, explained []string
	for _, f := range report.Forms() {
		known = append(known, f.Name)
		explained = append(explained, fmt.Sprintf("  %-9s %s", f.Name, f.Shows))
	}
	var form string
	get := &cobra.Command{
		Use:   "get NAME",
		Short: "Print the results of a LatencyBenchmark",
		Long: "Print the results of a LatencyBenchmark from its stored histograms, after verifying their digests.\n\n" +
			"Formats:\n" + strings.Join(explained, "\n"),
		Example: "  " + name + " get sweep -n perf -o sfnt",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("get takes the name of one LatencyBenchmark, not %d arguments: %s get NAME", len(args), name)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := get(cmd.Context(), c, args[0], form)
			if err != nil {
				return err
			}
			if _, err := cmd.OutOrStdout().Write(text); err != nil {
				return fmt.Errorf("writing the results: %w", err)
			}
			return nil
		},
	}
	get.Flags().StringVarP(&form, "output", "o", known[0], "format: "+strings.Join(known, ", "))
	return get
}

// get reads a benchmark's stored results and prints them in a form.
func get(ctx context.Context, c *cluster, benchmark, form string) ([]byte, error) {
	f, err := report.FormNamed(form)
	if err != nil {
		return nil, fmt.Errorf("--output: %w", err)
	}
	api, namespace, err := c.client()
	if err != nil {
		return nil, err
	}
	b, runs, err := storedResults(ctx, api, namespace, benchmark)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := f.Write(&out, b, runs); err != nil {
		if errors.Is(err, report.ErrNothingToShow) {
			return nil, fmt.Errorf("--output=%s: %w; use --output=table", form, err)
		}
		return nil, err
	}
	return out.Bytes(), nil
}
