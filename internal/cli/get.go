package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/export"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/standing"
	"github.com/tailgate-dev/tailgate/internal/text"
)

func newGet(c *cluster) *cobra.Command {
	explained := text.Of(report.Forms(), func(f report.Form) string { return fmt.Sprintf("  %-9s %s", f.Name, f.Shows) })
	var form string
	cmd := &cobra.Command{
		Use:   "get [NAME|lmatrix/NAME|lgate/NAME|PATH]",
		Short: "Print the results of a LatencyBenchmark, LatencyMatrix or LatencyGate",
		Long: "Print the results of a LatencyBenchmark from its stored histograms, after verifying their digests. For a LatencyMatrix\n" +
			"(lmatrix/NAME), print the results of each pair from the status of its benchmark. For a LatencyGate (lgate/NAME), print the\n" +
			"last result of each node, as a table or as JSON. Without a name, list the LatencyBenchmarks and LatencyMatrices of the\n" +
			"namespace, as a table or as JSON.\n\n" +
			"NAME is an object in the cluster, PATH an export, which begins with ./ or /.\n\n" +
			"Formats:\n" + strings.Join(explained, "\n"),
		Example: "  " + name + " get sweep -n perf -o sfnt\n  " + name + " get ./results/sweep -o csv",
		Args:    takes("the name of at most one LatencyBenchmark", 0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				out, err := (&overview{cluster: c, form: form}).print(cmd.Context(), false)
				return emit(cmd.OutOrStdout(), out, err)
			}
			if of, err := parseSubject(args[0]); err == nil && of.kind == gates {
				text, err := c.fleet(cmd.Context(), of, form)
				return emit(cmd.OutOrStdout(), text, err)
			}
			if _, err := formNamed(form); err != nil { // An invalid format is refused before the cluster is contacted.
				return err
			}
			m, err := c.load(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			text, err := printed(m, form)
			return emit(cmd.OutOrStdout(), text, err)
		},
	}
	formFlag(cmd, &form)
	return cmd
}

func formFlag(cmd *cobra.Command, form *string) {
	known := text.Of(report.Forms(), func(f report.Form) string { return f.Name })
	cmd.Flags().StringVarP(form, "output", "o", "", fmt.Sprintf("format: %s (default %s, for a LatencyMatrix %s)",
		strings.Join(known, ", "), known[0], report.FormPairs))
}

func formNamed(name string) (report.Form, error) {
	f, err := report.FormNamed(cmp.Or(name, report.Forms()[0].Name))
	if err != nil {
		return report.Form{}, fmt.Errorf("--output: %w", err)
	}
	return f, nil
}

// printed returns a benchmark or matrix in a format; empty is its kind's default.
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

var fleetForms = []string{"table", "json"}

type fleetNode struct {
	Node     string `json:"node"`
	State    string `json:"state"`
	P50      string `json:"p50,omitempty"`
	P99      string `json:"p99,omitempty"`
	Ratio    string `json:"ratio,omitempty"`
	Outcome  string `json:"outcome,omitempty"`
	Measured string `json:"measured,omitempty"`
	Peer     string `json:"peer,omitempty"`
	Message  string `json:"message,omitempty"`
	// Held, Since, Ends and User are those of the gate's status, for the nodes that it names.
	Held  bool   `json:"held,omitempty"`
	Since string `json:"since,omitempty"`
	Ends  string `json:"ends,omitempty"`
	User  bool   `json:"user,omitempty"`
}

// fleet returns a gate's nodes' last results in a format, highest ratio to baseline first.
func (c *cluster) fleet(ctx context.Context, of subject, form string) ([]byte, error) {
	form = cmp.Or(form, fleetForms[0])
	if err := oneOf("--output", form, fleetForms); err != nil {
		return nil, err
	}
	api, _, err := c.client()
	if err != nil {
		return nil, err
	}
	all, err := verificationsOf(ctx, api, of.key.Name)
	if err != nil {
		return nil, err
	}
	gate := &v1alpha1.LatencyGate{}
	if err := api.Get(ctx, of.key, gate); client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	rows := []fleetNode{}
	for i := range all.Items {
		v := &all.Items[i]
		row := fleetNode{Node: v.Spec.NodeName, State: string(cmp.Or(v.Status.State, v1alpha1.VerificationUnverified)), Message: v.Status.Verified().Message}
		if len(v.Status.History) > 0 {
			h := v.Status.History[0]
			row.P50, row.P99, row.Ratio, row.Outcome, row.Peer = h.P50, h.P99, h.Ratio, string(h.Outcome), h.Peer
			row.Measured = h.CompletionTime.UTC().Format(time.RFC3339)
		}
		if n := slices.IndexFunc(gate.Status.NotVerified, func(l v1alpha1.NodeLine) bool { return l.Name == row.Node }); n >= 0 {
			line := gate.Status.NotVerified[n]
			row.Message, row.Held, row.Ends, row.User = line.Message, line.Held, line.Ends, line.User
			if line.Since != nil {
				row.Since = line.Since.UTC().Format(time.RFC3339)
			}
		}
		rows = append(rows, row)
	}
	ratio := func(r fleetNode) float64 { f, _ := strconv.ParseFloat(r.Ratio, 64); return f } // 0 if there is none
	slices.SortStableFunc(rows, func(a, b fleetNode) int { return cmp.Or(cmp.Compare(ratio(b), ratio(a)), cmp.Compare(a.Node, b.Node)) })
	var out bytes.Buffer
	if form == "json" {
		err := report.WriteJSON(&out, rows)
		return out.Bytes(), err
	}
	t := text.NewColumns(&out, 0)
	fmt.Fprintln(t, "NODE\tSTATE\tP50\tP99\tRATIO\tOUTCOME\tMEASURED\tPEER")
	for _, r := range rows {
		cells := []string{r.Node, r.State, r.P50, r.P99, r.Ratio, r.Outcome, r.Measured, r.Peer}
		for i := range cells {
			cells[i] = cmp.Or(cells[i], "-")
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	if err = t.Flush(); err != nil || len(gate.Status.NotVerified) == 0 {
		return out.Bytes(), err
	}
	nodes := gate.Status.Nodes
	fmt.Fprintf(t, "\nNot verified: %d of %d nodes", nodes.Total-nodes.Verified, nodes.Total)
	if n := len(gate.Status.NotVerified); int(nodes.Total-nodes.Verified) > n {
		fmt.Fprintf(t, ", the worst %d", n)
	}
	fmt.Fprintln(t, "\nNODE\tSTATE\tHELD\tSINCE\tUSER MUST ACT\tENDS WITH\tWHY")
	for _, line := range gate.Status.NotVerified {
		row := fleetNode{}
		if i := slices.IndexFunc(rows, func(r fleetNode) bool { return r.Node == line.Name }); i >= 0 {
			row = rows[i]
		}
		fmt.Fprintln(t, strings.Join([]string{line.Name, string(line.State), yesNo(line.Held), cmp.Or(row.Since, "-"), yesNo(line.User), cmp.Or(line.Ends, "-"), line.Message}, "\t"))
	}
	err = t.Flush()
	return out.Bytes(), err
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

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

type overviewLine struct {
	Object  string `json:"object"`
	State   string `json:"state"`
	P50     string `json:"p50,omitempty"`
	P99     string `json:"p99,omitempty"`
	Message string `json:"message,omitempty"`
}

// print returns the objects; active leaves out finished ones and adds gates and their nodes.
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

// ofGates returns a line for each gate and each unverified node; none without the right.
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
