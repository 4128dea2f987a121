package cli

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/compare"
	"github.com/tailgate-dev/tailgate/internal/judge"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/internal/text"
)

func newCompare(c *cluster) *cobra.Command {
	var form string
	var all bool
	cmd := &cobra.Command{
		Use:   "compare BASELINE CANDIDATE...",
		Short: "Compare the results of LatencyBenchmarks, or of variants, with a baseline",
		Long: "Compare the results of LatencyBenchmarks (NAME) or of variants (NAME/VARIANT), after verifying the digests of the\n" +
			"histograms. To compare results of another cluster or of another time, use the PATH of an export, which begins with ./ or /.\n" +
			"For a published result (kubectl tailgate published), use published/NAME. Several candidates are in one table for each\n" +
			"metric, with a row for each cell.\n\n" +
			"Nothing proves a published or imported result: the figures describe it, and no verdict follows. With too few rounds for an\n" +
			"interval, only the ratio is shown. Results of different tools are refused.\n\n" +
			"The output starts with the conditions that prevent a comparison, the notes that differ and, with --all, the other conditions\n" +
			"that differ. For each cell that both results have, the command then shows the median rounds and their ratio. The ratio is\n" +
			"the median of the ratios of all candidate rounds to all baseline rounds, with its 95 % interval (exact Mann-Whitney). A ~\n" +
			"replaces the ratio if the difference is not significant. Of twenty comparisons of equal distributions, one may be\n" +
			"significant by chance.",
		Example: "  " + name + " compare before after -n perf\n  " + name + " compare x2522/vf-kernel x2522/vf-onload\n" +
			"  " + name + " compare ./results/before after\n" +
			"  " + name + " compare published/sfnt-e5-2620v4-ull sweep/pf-onload sweep/vf-onload",
		Args: takes("the names of two LatencyBenchmarks", 2, mostReported),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := comparison(cmd.Context(), c, args, form, all)
			return emit(cmd.OutOrStdout(), text, err)
		},
	}
	outputFlag(cmd, &form, compareForms()...)
	cmd.Flags().BoolVar(&all, "all", false, "show all conditions that differ, also those that need not be equal")
	return cmd
}

func comparison(ctx context.Context, c *cluster, names []string, form string, all bool) ([]byte, error) {
	var sides []compare.Side
	var notes []string
	for _, arg := range names {
		side, note, err := c.sideOf(ctx, arg)
		if err != nil {
			return nil, err
		}
		sides = append(sides, side)
		if note != "" && !slices.Contains(notes, note) {
			notes = append(notes, note)
		}
	}
	var compared []compare.Comparison
	for _, candidate := range sides[1:] {
		one, err := compare.Compare(sides[0], candidate)
		if err != nil {
			return nil, err
		}
		one.Notes = append(slices.Clone(notes), one.Notes...)
		if !all {
			one = one.WithoutExplaining()
		}
		if len(compared) > 0 && compared[0].LatencyType != one.LatencyType {
			return nil, fmt.Errorf("latencyType: %s is of %s and %s of %s, which one table cannot show: compare each with the baseline alone",
				compared[0].Candidate, compared[0].LatencyType, one.Candidate, one.LatencyType)
		}
		compared = append(compared, one)
	}
	var out bytes.Buffer
	if err := compare.Forms()[slices.Index(compareForms(), form)].Write(&out, compared...); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func compareForms() []string {
	return text.Of(compare.Forms(), func(f compare.Form) string { return f.Name })
}

// sideOf reads results of NAME or NAME/VARIANT, and notes if the benchmark is not complete.
func (c *cluster) sideOf(ctx context.Context, arg string) (compare.Side, string, error) {
	benchmark, variant, err := cutVariant(arg)
	if err != nil {
		return compare.Side{}, "", err
	}
	m, err := c.load(ctx, benchmark)
	if err != nil {
		return compare.Side{}, "", err
	}
	b := m.Object
	if err := onePair("compare", m); err != nil {
		return compare.Side{}, "", err
	}
	if len(m.Runs) == 0 {
		return compare.Side{}, "", noResults(b)
	}
	note := ""
	if !meta.IsStatusConditionTrue(b.Status.Conditions, v1alpha1.ConditionSucceeded) {
		note = fmt.Sprintf("%s is not complete: %s", b.Name, summary.Standing(b))
	}
	collected, err := rounds.Of(b.Spec, m.Runs...)
	if err != nil {
		return compare.Side{}, "", fmt.Errorf("%s: %w", arg, err)
	}
	return compare.Side{Name: arg, Variant: variant, Results: judge.Results{Collection: collected}}, note, nil
}
