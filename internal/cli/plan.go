package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/admit"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/sessions"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/tool"
	"github.com/tailgate-dev/tailgate/internal/turns"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

func newPlan(c *cluster) *cobra.Command {
	p := &planner{cluster: c}
	cmd := &cobra.Command{
		Use:   "plan -f FILE",
		Short: "Show the runs, nodes, order and duration of a LatencyBenchmark, LatencyMatrix or LatencyGate, without creating it",
		Long: "Show the runs, nodes, order and duration of the LatencyBenchmark or LatencyMatrix of a file, and the problems that would\n" +
			"prevent them, without creating it. For a LatencyGate, show which nodes it would measure at the same time, with which peers,\n" +
			"and which nodes it would hold back. The API server validates the file in a dry run. The command checks the cluster as the\n" +
			"operator does, as far as you may read it. With --nodes, the command contacts no cluster: it reads the nodes from that file,\n" +
			"and validates the object with its own definition of the kind.\n\n" +
			"The command exits with 1 if there is a problem.",
		Example: "  " + name + " plan -f x2522.yaml\n" +
			"  kubectl get nodes -o yaml > nodes.yaml; " + name + " plan -f x2522.yaml --nodes nodes.yaml",
		Args: takes("a file by -f", 0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			planned, err := p.plan(cmd.Context(), cmd.InOrStdin())
			if err != nil {
				return err
			}
			text, err := planned.text(p.form)
			if err := emit(cmd.OutOrStdout(), text, err); err != nil {
				return err
			}
			if o := planned.Obstacle; o != nil {
				return fmt.Errorf("%s %s would not be accepted now (%s): %s", planned.Kind, planned.path(), o.Reason, o)
			}
			return nil
		},
	}
	fileFlag(cmd, &p.file, kinds()...)
	cmd.Flags().StringVar(&p.nodesFile, "nodes", "", "YAML or JSON of the nodes, as from kubectl get nodes -o yaml; the command then contacts no cluster")
	outputFlag(cmd, &p.form, "table", "json")
	return cmd
}

type planner struct {
	*cluster
	file, nodesFile, form string
}

type Planned struct {
	Kind        string               `json:"kind"`
	Namespace   string               `json:"namespace"`
	Name        string               `json:"name"`
	Tool        v1alpha1.Tool        `json:"tool"`
	LatencyType v1alpha1.LatencyType `json:"latencyType"`
	Obstacle    *preflight.Rejection `json:"obstacle,omitempty"`
	// Slots are the pairs in their order, a slot's at the same time; empty with an Obstacle.
	Slots [][]v1alpha1.Pair `json:"slots"`
	// LeftOut counts the selected nodes of a LatencyMatrix that cannot be measured, by reason.
	LeftOut  string                   `json:"leftOut,omitempty"`
	Variants []report.DocumentVariant `json:"variants"` // with all inherited settings
	// Runs are a pair's, in order; for a matrix, with the first pair's names.
	Runs []PlannedRun `json:"runs"`
	// MeasuringSeconds is with warm-ups, without pods' start and end; pairs at once count once.
	MeasuringSeconds float64 `json:"measuringSeconds"`
	// MoreRounds are added once if the planned ones do not decide; MoreSeconds is their time.
	MoreRounds  int32   `json:"moreRounds,omitempty"`
	MoreSeconds float64 `json:"moreSeconds,omitempty"`
	// Gate is a LatencyGate's; its slots are the nodes measured at once, as clients, with peers.
	Gate  *PlannedGate `json:"gate,omitempty"`
	Notes []string     `json:"notes,omitempty"`
}

// PlannedRun is a client pod and a server pod that measure all cells of a variant once.
type PlannedRun struct {
	Name             string   `json:"name"`
	Round            int32    `json:"round"`
	Variant          string   `json:"variant"`
	Cells            []string `json:"cells"`
	MeasuringSeconds float64  `json:"measuringSeconds"`
}

// PlannedGate is what a gate would do with the nodes.
type PlannedGate struct {
	Nodes   int                 `json:"nodes"` // their number; Held are held back now
	Held    []string            `json:"held"`
	Waiting []v1alpha1.NodeLine `json:"waiting,omitempty"` // could not be measured, with reasons
}

func (p *planner) plan(ctx context.Context, stdin io.Reader) (Planned, error) {
	if p.file == stdinName && p.nodesFile == stdinName {
		return Planned{}, errors.New("--nodes: standard input is the LatencyBenchmark already; give the nodes as a file")
	}
	manifest, err := p.manifest(p.file, stdin, kinds()...)
	if err != nil {
		return Planned{}, err
	}
	g, notes, err := p.look(ctx, manifest, stdin)
	if err != nil {
		return Planned{}, err
	}
	o := kindOf(manifest).object()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(manifest.Object, o); err != nil {
		return Planned{}, fmt.Errorf("reading the %s: %w", manifest.GetKind(), err)
	}
	if of, ok := o.(*v1alpha1.LatencyGate); ok {
		return planGate(ctx, g, of, notes)
	}
	m, _ := o.(*v1alpha1.LatencyMatrix)
	b := overviewOf(o)
	if total := len(plan.Runs(b)); len(b.Status.Stored) > 0 {
		notes = append(notes, fmt.Sprintf("it exists, and %d of %d runs are measured", len(b.Status.Stored), total))
	}
	// The progress does not matter; pair, CPUs and extension do.
	b.Status = v1alpha1.LatencyBenchmarkStatus{Pair: b.Status.Pair, CPUs: b.Status.CPUs, ExtendedRounds: b.Status.ExtendedRounds}
	observed, err := g.observe(ctx, b, m == nil && b.Status.Pair == nil)
	if err != nil {
		return Planned{}, err
	}
	planned := planOf(b, m, observed)
	notes = append(notes, preflight.Foreknown(b.Spec, len(slices.Concat(planned.Slots...)), observed.Profiles)...)
	if m == nil && planned.Obstacle == nil {
		notes = append(notes, preflight.Notes(observed, planned.Slots[0][0], preflight.CPUs(observed))...)
	}
	planned.Notes = slices.Concat(notes, g.hints(b, planned.nodes(), observed))
	return planned, nil
}

// planGate returns a gate's plan, by its own choice of nodes and peers, and the operator's checks.
func planGate(ctx context.Context, g *glimpse, of *v1alpha1.LatencyGate, notes []string) (Planned, error) {
	nodes, others, known := &corev1.NodeList{}, &v1alpha1.LatencyGateList{}, &v1alpha1.LatencyVerificationList{}
	for _, list := range []client.ObjectList{nodes, others, known} {
		if err := g.List(ctx, list); err != nil {
			return Planned{}, err
		}
	}
	out := turns.Foresee(of, nodes.Items, others.Items, known.Items, time.Now())
	b := out.Benchmark
	if b == nil {
		b = &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: of.Spec.Namespace, Name: of.Name}, Spec: of.Spec.Template.Benchmark()}
	}
	var clients, servers []string // Any of the pairs is enough for the gate to begin.
	for _, wave := range out.Waves {
		for _, pair := range wave {
			clients, servers = append(clients, pair.ClientNode), append(servers, pair.ServerNode)
		}
	}
	b.Spec.Placement.Client = b.Spec.Placement.Client.On(v1alpha1.NodeSelection{NodeNames: clients})
	b.Spec.Placement.Server = b.Spec.Placement.Server.On(v1alpha1.NodeSelection{NodeNames: servers})
	observed, err := g.observe(ctx, b, true)
	if err != nil {
		return Planned{}, err
	}
	p := planOf(b, nil, observed)
	p.Obstacle = p.Obstacle.InTemplate()
	p.Kind, p.Namespace, p.Name = gates.name, "", of.Name
	p.Gate = &PlannedGate{Nodes: len(out.Nodes), Held: slices.Concat([]string{}, out.Held), Waiting: out.Waiting}
	switch never := preflight.Undecidable(of, observed.Driver); {
	case never != nil:
		p.Obstacle = never
	case out.Never != "":
		p.Obstacle = &preflight.Rejection{Reason: v1alpha1.ReasonCannotSettle, Message: out.Never}
	case len(out.Waves) == 0 && len(out.Waiting) == 0:
		p.Obstacle = nil // Without a node to be measured there is no pair to be checked.
	}
	if p.Slots = [][]v1alpha1.Pair{}; p.Obstacle == nil {
		p.Slots = slices.Concat(p.Slots, out.Waves)
	}
	p.MeasuringSeconds *= float64(len(out.Waves))
	p.MoreSeconds *= float64(len(out.Waves))
	rules := of.Spec.Template.Spec.Criteria.Rules
	unbounded := verdict.Unbounded(rules, rules, preflight.Planned(of.Spec.Template.Benchmark()))
	switch first := text.List(out.First, fewCells, ", "); {
	case len(out.First) == 0:
	case unbounded == "":
		notes = append(notes, fmt.Sprintf("%d nodes have no accepted result, so that only the rules with absolute limits apply to the next one: %s", len(out.First), first))
	default:
		notes = append(notes, fmt.Sprintf("no rule has an absolute limit for %s, so that the next result of %d nodes without an accepted result is Inconclusive: %s; accept it with `%s accept %s -l SELECTOR`",
			unbounded, len(out.First), first, name, of.Name))
	}
	if len(out.Nodes) < sessions.FewestNodes && of.Spec.Template.Spec.Criteria.Against(v1alpha1.BaselineGate) {
		notes = append(notes, fmt.Sprintf("%d nodes are too few to show how much boots differ: a Pass against an earlier boot is provisional with fewer than %d", len(out.Nodes), sessions.FewestNodes))
	}
	if server := of.Spec.Template.Spec.Placement.Server; len(out.Nodes) == 2 && (server == nil || server.Any()) {
		notes = append(notes, "there is no second peer to confirm a Fail: a Failed node is held back, and its condition tailgate.dev/LatencyRegressed stays False")
	}
	if of.Spec.Suspend {
		notes = append(notes, "spec.suspend is set: the gate measures no node until it is removed")
	}
	// Only a node without an accepted result has no rules that compare.
	foreknown := b.Spec
	foreknown.Criteria = of.Spec.Template.Spec.Criteria
	p.Notes = slices.Concat(notes, preflight.Foreknown(foreknown, 1, observed.Profiles), g.hints(b, p.nodes(), observed))
	return p, nil
}

// look validates the manifest by a dry run, and returns a view of the cluster or the nodes file.
func (p *planner) look(ctx context.Context, manifest *unstructured.Unstructured, stdin io.Reader) (*glimpse, []string, error) {
	scheme, err := newScheme()
	if err != nil {
		return nil, nil, err
	}
	if p.nodesFile != "" {
		nodes, err := readNodes(p.nodesFile, stdin)
		if err != nil {
			return nil, nil, err
		}
		if err := admit.Object(ctx, manifest); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", p.file, err)
		}
		return &glimpse{scheme: scheme, nodes: nodes}, nil, nil
	}
	api, _, err := p.client()
	if err != nil {
		return nil, nil, err
	}
	g := &glimpse{Client: api, scheme: scheme}
	switch err := apply(ctx, api, manifest, client.DryRunAll); {
	case apierrors.IsForbidden(err):
		if err := admit.Object(ctx, manifest); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", p.file, err)
		}
		return g, []string{fmt.Sprintf("you have no right to create it, so the API server did not check it: %s", oneLine(err))}, nil
	case err != nil:
		return nil, nil, err
	}
	return g, nil, nil
}

func readNodes(file string, stdin io.Reader) ([]corev1.Node, error) {
	content, err := readFile("--nodes", file, stdin, maxNodes)
	if err != nil {
		return nil, err
	}
	objects, err := parseObjects(content)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	var nodes []corev1.Node
	add := func(u *unstructured.Unstructured) error {
		if u.GetAPIVersion() != "v1" || u.GetKind() != "Node" {
			return fmt.Errorf("%s has apiVersion %q, kind %q; expected Nodes, as from `kubectl get nodes -o yaml`", file, u.GetAPIVersion(), u.GetKind())
		}
		var n corev1.Node
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &n); err != nil {
			return fmt.Errorf("%s, node %s: %w", file, u.GetName(), err)
		}
		nodes = append(nodes, n)
		return nil
	}
	for _, u := range objects {
		if !u.IsList() {
			if err := add(u); err != nil {
				return nil, err
			}
			continue
		}
		err := u.EachListItem(func(item runtime.Object) error { return add(item.(*unstructured.Unstructured)) })
		if err != nil {
			return nil, err
		}
	}
	if len(nodes) == 0 {
		return nil, fmt.Errorf("%s has no nodes; expected the output of `kubectl get nodes -o yaml`", file)
	}
	return nodes, nil
}

// planOf returns a benchmark's plan. m is the matrix whose overview is b, or nil.
func planOf(b *v1alpha1.LatencyBenchmark, m *v1alpha1.LatencyMatrix, o preflight.Observed) Planned {
	p := Planned{Kind: benchmarks.name, Namespace: b.Namespace, Name: b.Name, Tool: b.Spec.Tool, LatencyType: b.Spec.LatencyType, Slots: [][]v1alpha1.Pair{}}
	for _, v := range plan.Variants(b.Spec) {
		p.Variants = append(p.Variants, report.DocumentVariant{Name: v.Name, Way: report.Ways(v)})
	}
	switch {
	case o.Driver == nil:
		p.Obstacle = &preflight.Rejection{Reason: v1alpha1.ReasonCellUnsupported, Path: "spec.tool", Message: fmt.Sprintf("this command does not know %s; use a newer one", b.Spec.Tool)}
	case m != nil:
		nodes := preflight.Nodes{Names: m.Status.Nodes, Server: m.Status.Server} // Those for which it was accepted.
		if len(nodes.Names) == 0 {
			nodes, p.Obstacle = preflight.AcceptMatrix(o, m.Spec)
		}
		if p.Obstacle == nil {
			p.LeftOut = nodes.LeftOut
			p.Slots = plan.Matrix(m.Spec, nodes.Names, nodes.Server)
		}
	default:
		var pair v1alpha1.Pair
		if pair, p.Obstacle = preflight.Accept(o); p.Obstacle == nil {
			p.Slots = [][]v1alpha1.Pair{{pair}}
		}
	}
	ofPair := b.DeepCopy()
	if m != nil {
		p.Kind, ofPair.Name = matrices.name, m.PairName(1)
	}
	times := time.Duration(max(1, len(p.Slots)))
	var total time.Duration
	for _, r := range plan.Runs(ofPair) {
		length := plan.MeasuringTime(r.Cells)
		total += length
		cells := text.Of(r.Cells, func(c tool.Cell) string { return c.Name })
		p.Runs = append(p.Runs, PlannedRun{Name: r.Name, Round: r.Round, Variant: r.Variant.Name, MeasuringSeconds: length.Seconds(), Cells: cells})
	}
	p.MeasuringSeconds = (total * times).Seconds()
	p.MoreRounds = max(0, plan.MaxRounds(b.Spec)-plan.Rounds(b))
	p.MoreSeconds = (total * times * time.Duration(p.MoreRounds) / time.Duration(plan.Rounds(b))).Seconds()
	return p
}

func (p Planned) nodes() []string {
	var names []string
	for _, pair := range slices.Concat(p.Slots...) {
		for _, name := range []string{pair.ClientNode, pair.ServerNode} {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

func (p Planned) path() string { return strings.TrimPrefix(p.Namespace+"/"+p.Name, "/") }

func (p Planned) text(form string) ([]byte, error) {
	var out bytes.Buffer
	if form == "json" {
		err := report.WriteJSON(&out, p)
		return out.Bytes(), err
	}
	err := p.table(&out)
	return out.Bytes(), err
}

func (p Planned) table(w io.Writer) error {
	pairs := len(slices.Concat(p.Slots...))
	fmt.Fprintf(w, "%s: %s, %s\n", p.path(), p.Tool, p.LatencyType)
	switch {
	case p.Obstacle != nil:
		fmt.Fprintf(w, "obstacle: %s (%s)\n", p.Obstacle, p.Obstacle.Reason)
	case pairs == 1:
		fmt.Fprintf(w, "client on %s, server on %s\n", p.Slots[0][0].ClientNode, p.Slots[0][0].ServerNode)
	}
	if p.Gate != nil {
		fmt.Fprintf(w, "%d nodes, of which it would measure %d, and hold back %d now: %s\n", p.Gate.Nodes, pairs, len(p.Gate.Held), cmp.Or(text.List(p.Gate.Held, fewCells, ", "), "none"))
		for _, line := range p.Gate.Waiting {
			fmt.Fprintf(w, "not measured: %s: %s\n", line.Name, line.Message)
		}
	}
	t := text.NewColumns(w, 0)
	fmt.Fprintln(t, "\nVARIANT\tWAY")
	for _, v := range p.Variants {
		fmt.Fprintf(t, "%s\t%s\n", v.Name, v.Way)
	}
	if pairs > 1 {
		fmt.Fprintln(t, "\nSLOT\tPAIRS (client to server)")
		for i, slot := range p.Slots {
			texts := text.Of(slot, func(pair v1alpha1.Pair) string { return pair.ClientNode + " to " + pair.ServerNode })
			fmt.Fprintf(t, "%d\t%s\n", i+1, strings.Join(texts, ", "))
		}
	}
	fmt.Fprintln(t, "\nRUN\tROUND\tVARIANT\tMEASURES\tCELLS")
	for _, r := range p.Runs {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\n", r.Name, r.Round, r.Variant, duration(r.MeasuringSeconds), cellsText(r.Cells))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("writing the plan: %w", err)
	}
	fmt.Fprintf(w, "\ntotal measuring time %s: %d runs", duration(p.MeasuringSeconds), len(p.Runs)*max(1, pairs))
	if pairs > 1 {
		fmt.Fprintf(w, ", %d of each of %d pairs in %d slots", len(p.Runs), pairs, len(p.Slots))
	}
	fmt.Fprintln(w, ", without the start and end of the pods of each run")
	if p.MoreRounds > 0 {
		fmt.Fprintf(w, "if the verdict is Inconclusive, %d more rounds, once: %s\n", p.MoreRounds, duration(p.MoreSeconds))
	}
	if p.LeftOut != "" {
		fmt.Fprintf(w, "left out: %s\n", p.LeftOut)
	}
	for _, note := range p.Notes {
		fmt.Fprintln(w, note)
	}
	return nil
}

const fewCells = 6

func cellsText(cells []string) string {
	if len(cells) <= fewCells {
		return strings.Join(cells, " ")
	}
	return fmt.Sprintf("%s ... (%d)", strings.Join(cells[:fewCells], " "), len(cells))
}

func duration(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Millisecond).String()
}
