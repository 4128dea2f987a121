package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/standing"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// overview is what the verbs status, and get without a name, print.
type overview struct {
	*cluster
	all  bool
	form string
}

func newStatus(c *cluster) *cobra.Command {
	o := &overview{cluster: c}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print what runs, waits and is held back, and why",
		Long: "Print a line for each unfinished LatencyBenchmark and LatencyMatrix of the namespace, for each LatencyGate, and\n" +
			"for each node that a gate holds back, with the reason. `" + name + " explain REASON` explains a reason.",
		Example: "  " + name + " status -A",
		Args:    takes("no arguments", 0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			out, err := o.print(cmd.Context(), true)
			return emit(cmd.OutOrStdout(), out, err)
		},
	}
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "the objects of all namespaces")
	cmd.Flags().StringVarP(&o.form, "output", "o", "", fmt.Sprintf("format: %s (default %s)", strings.Join(fleetForms, ", "), fleetForms[0]))
	return cmd
}

// overviewLine is one object, or one node that a gate holds back.
type overviewLine struct {
	Object  string `json:"object"`
	State   string `json:"state"`
	P50     string `json:"p50,omitempty"`
	P99     string `json:"p99,omitempty"`
	Message string `json:"message,omitempty"`
}

// print returns the objects of the namespace or, with all, of all; active leaves out finished ones, and adds gates and their nodes.
func (o *overview) print(ctx context.Context, active bool) ([]byte, error) {
	form := cmp.Or(o.form, fleetForms[0])
	if err := oneOf("--output", form, fleetForms); err != nil {
		return nil, err
	}
	api, namespace, err := o.client()
	if err != nil {
		return nil, err
	}
	if o.all {
		namespace = ""
	}
	lines := []overviewLine{}
	var measured v1alpha1.LatencyBenchmarkList
	var pairs v1alpha1.LatencyMatrixList
	for of, list := range map[*kind]client.ObjectList{benchmarks: &measured, matrices: &pairs} {
		if err := api.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, inWords("listing", subject{kind: of}, err)
		}
	}
	add := func(of *kind, b *v1alpha1.LatencyBenchmark) {
		if active && b.Finished() {
			return
		}
		s := standing.OfMeasurement(b)
		line := overviewLine{Object: of.short + "/" + b.Name, State: string(cmp.Or(s.Outcome, v1alpha1.VerdictOutcome(s.Reason))), Message: s.Message}
		if o.all {
			line.Object = b.Namespace + " " + line.Object
		}
		if sum := b.Status.Summary; sum != nil {
			line.P50, line.P99 = sum.P50, sum.P99
		}
		lines = append(lines, line)
	}
	for i := range measured.Items {
		add(benchmarks, &measured.Items[i])
	}
	for i := range pairs.Items {
		add(matrices, pairs.Items[i].Overview())
	}
	slices.SortFunc(lines, func(a, b overviewLine) int { return cmp.Compare(a.Object, b.Object) })
	if active {
		held, err := ofGates(ctx, api)
		if err != nil {
			return nil, err
		}
		lines = append(lines, held...)
	}
	var out bytes.Buffer
	if form == "json" {
		err := report.WriteJSON(&out, lines)
		return out.Bytes(), err
	}
	if len(lines) == 0 {
		what := "There is no LatencyBenchmark or LatencyMatrix"
		if active {
			what = "Nothing runs, waits or is held back"
		}
		if o.all {
			return []byte(what + " in any namespace.\n"), nil
		}
		return fmt.Appendf(nil, "%s in namespace %s.\n", what, namespace), nil
	}
	t := text.NewColumns(&out, 0)
	fmt.Fprintln(t, "OBJECT\tSTATE\tP50\tP99\tMESSAGE")
	for _, l := range lines {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", l.Object, l.State, cmp.Or(l.P50, "-"), cmp.Or(l.P99, "-"), text.Shorten(text.Line(l.Message), 160))
	}
	err = t.Flush()
	return out.Bytes(), err
}

// ofGates returns a line for each gate, and for each node that it names as not verified. Who may not list gates sees the rest.
func ofGates(ctx context.Context, api client.Client) ([]overviewLine, error) {
	var all v1alpha1.LatencyGateList
	switch err := api.List(ctx, &all); {
	case apierrors.IsForbidden(err):
		return []overviewLine{{Object: gates.plural, State: "Unknown", Message: "you may not list them; bind ClusterRole tailgate-gate-reader"}}, nil
	case err != nil:
		return nil, inWords("listing", subject{kind: gates}, err)
	}
	var lines []overviewLine
	for i := range all.Items {
		g := &all.Items[i]
		s := standing.OfGate(g)
		lines = append(lines, overviewLine{Object: gates.short + "/" + g.Name, State: string(cmp.Or(s.Outcome, v1alpha1.VerdictOutcome(s.Reason))), Message: s.Message})
		for _, n := range g.Status.NotVerified {
			line := overviewLine{Object: "  node/" + n.Name, State: string(n.State), Message: n.Message}
			if n.Held {
				line.State += ", held"
			}
			lines = append(lines, line)
		}
	}
	return lines, nil
}
