package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/admit"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/standing"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/internal/text"
)

const fieldOwner = client.FieldOwner("kubectl-tailgate")

func newRun(c *cluster) *cobra.Command {
	r := &runner{cluster: c}
	cmd := &cobra.Command{
		Use:   "run -f FILE | run --client NODE --server NODE",
		Short: "Create a LatencyBenchmark or LatencyMatrix, show its progress and print its results",
		Long: "Apply the LatencyBenchmark or LatencyMatrix of a file or of flags (server-side apply), show its progress, and print its results\n" +
			"like get. The progress goes to standard error. On a terminal, one line shows the progress; otherwise, each new state and each\n" +
			"quarter of the runs has a line.\n\n" +
			"The exit code is 0 (Pass), 1 (Fail), 2 (Inconclusive) or 3 (error). Without criteria, the exit code is 0 if the benchmark was\n" +
			"measured, and 1 if it failed.\n\n" +
			"If you interrupt the command, or --timeout ends it, the benchmark continues. The same command shows its progress again.",
		Example: "  " + name + " run -f first.yaml\n" +
			"  " + name + " run --client node-a --server node-b --network sf-x2-vf --onload --size 64,1024 --rounds 10\n" +
			"  " + name + " run --client node-a --server node-b --dry-run=client -o yaml",
		Args:        takes("a file by -f", 0, 0),
		Annotations: map[string]string{exitsByVerdict: "true"},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return r.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), newScreen(cmd.ErrOrStderr()))
		},
	}
	fileFlag(cmd, &r.file, benchmarks, matrices)
	r.pair.addFlags(cmd, c)
	formFlag(cmd, &r.form)
	cmd.Flags().StringVar(&r.dryRun, "dry-run", dryRunNone, "none, or client, which only prints the manifest, as -o yaml or json")
	cmd.Flags().DurationVar(&r.timeout, "timeout", 0, "how long to wait for the results, such as 2h (default as long as it takes)")
	return cmd
}

const (
	dryRunNone   = "none"
	dryRunClient = "client"
)

type runner struct {
	*cluster
	pair    pairFlags
	file    string
	dryRun  string
	form    string
	timeout time.Duration
}

func (r *runner) run(ctx context.Context, stdin io.Reader, stdout io.Writer, s *screen) error {
	if r.timeout < 0 {
		return fmt.Errorf("--timeout: %s is invalid; give a positive duration", r.timeout)
	}
	if err := oneOf("--dry-run", r.dryRun, []string{dryRunNone, dryRunClient}); err != nil {
		return err
	}
	if _, err := formNamed(r.form); err != nil && r.dryRun == dryRunNone {
		return err
	}
	manifest, err := r.manifestOf(ctx, stdin, s)
	if err != nil {
		return err
	}
	if r.dryRun == dryRunClient {
		return r.print(manifest, stdout)
	}
	api, _, err := r.client()
	if err != nil {
		return err
	}
	if err := apply(ctx, api, manifest); err != nil {
		return err
	}
	of := subject{kindOf(manifest), client.ObjectKeyFromObject(manifest)}
	applied := of.kind.object()
	if err := read(ctx, api, of, applied); err != nil {
		return err
	}
	o, err := r.watch(ctx, api, of, applied, s)
	s.clear()
	if err != nil {
		return err
	}
	return r.conclude(ctx, api, of, o, stdout)
}

func (r *runner) manifestOf(ctx context.Context, stdin io.Reader, s *screen) (*unstructured.Unstructured, error) {
	switch {
	case r.file == "":
		return r.pair.benchmark(ctx, r.cluster, s.say)
	case r.pair.client != "":
		return nil, errors.New("--filename: a file describes the whole benchmark; remove the flag, or --client and --server")
	}
	r.overrides.ClusterInfo.Server = r.pair.server
	return r.manifest(r.file, stdin, benchmarks, matrices)
}

func (r *runner) print(manifest *unstructured.Unstructured, stdout io.Writer) error {
	form := cmp.Or(r.form, "yaml")
	if err := oneOf("--output", form, []string{"yaml", "json"}); err != nil {
		return err
	}
	out, err := yaml.Marshal(manifest.Object)
	if form == "json" {
		out, err = result.EncodeJSON(manifest.Object)
	}
	return emit(stdout, out, err)
}

// apply creates or changes an object by server-side apply; the manifest becomes the object.
func apply(ctx context.Context, api client.Client, manifest *unstructured.Unstructured, opts ...client.ApplyOption) error {
	of := subject{kindOf(manifest), client.ObjectKeyFromObject(manifest)}
	switch err := api.Apply(ctx, client.ApplyConfigurationFromUnstructured(manifest), append(opts, fieldOwner)...); {
	case apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict):
		return fmt.Errorf("%s differs, and another field manager owns the difference: change it with the tool that set it, or use another name in the file; %w", of, err)
	case apierrors.IsConflict(err):
		return fmt.Errorf("%s was changed or created again at the same moment: run the command again; %w", of, err)
	case err != nil:
		return inWords("applying", of, err)
	}
	return nil
}

func (r *runner) watch(ctx context.Context, api client.Client, of subject, o client.Object, s *screen) (client.Object, error) {
	k, b := of.kind, overviewOf(o)
	if b.Finished() {
		s.say(fmt.Sprintf("%s was measured before; `%s rerun %s/%s` measures again", of, name, k.short, b.Name))
	}
	ctx, cancel := timeLimit(ctx, r.timeout)
	defer cancel()
	p := &progress{screen: s}
	p.look(b)
	f := follower{
		api: api, subject: of, uid: b.UID, each: p.draw,
		trouble: func(err error) { s.say(fmt.Sprintf("%s; trying again", oneLine(err))) },
		look: func(ctx context.Context, seen client.Object) (bool, error) {
			o, b = seen, overviewOf(seen)
			p.look(b)
			if !b.Finished() || b.Spec.Criteria == nil {
				return b.Finished(), nil
			}
			open, err := stillOpen(ctx, api, b.Namespace, standing.OfBenchmark(b))
			return !open, err
		},
	}
	err := f.follow(ctx)
	if err == nil || ctx.Err() == nil {
		return o, err
	}
	again := fmt.Sprintf("`%s run -f %s -n %s` watches it again", name, r.file, b.Namespace)
	if r.file == stdinName || r.file == "" {
		again = fmt.Sprintf("`%s gate %s/%s -n %s --wait` waits for it, `%[1]s get %[2]s/%[3]s -n %[4]s` prints its results", name, k.short, b.Name, b.Namespace)
	}
	return nil, fmt.Errorf("%s; %s continues: %s, `kubectl delete %s %s -n %s` ends it", endOf(ctx), of, again, k.resource(), b.Name, b.Namespace)
}

func (r *runner) conclude(ctx context.Context, api client.Client, of subject, o client.Object, stdout io.Writer) error {
	e, b := ended{}, overviewOf(o)
	if succeeded := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSucceeded); succeeded.Status == metav1.ConditionFalse {
		e = ended{exitFail, fmt.Errorf("%s failed: %s", of, succeeded.Message)}
	}
	if b.Spec.Criteria != nil {
		e.code = exitCode(standing.OfBenchmark(b).Outcome)
	}
	var text []byte
	m, err := measured(ctx, api, o)
	if err == nil {
		text, err = printed(m, r.form)
	}
	// If the benchmark failed before a result was stored, only its failure is printed.
	if err == nil || e.err == nil || len(b.Status.Stored) > 0 {
		if err := emit(stdout, text, err); err != nil {
			return err
		}
	}
	if e.code == exitPass {
		return nil
	}
	return e
}

type progress struct {
	*screen

	benchmark *v1alpha1.LatencyBenchmark
	// run is the active run while tools measure; since is when it was seen first.
	run   string
	since time.Time
	step  string // the step that was shown last, if there is no terminal
}

func (p *progress) look(b *v1alpha1.LatencyBenchmark) {
	p.benchmark = b
	run := ""
	if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSucceeded); b.Status.Active != nil && c != nil && c.Reason == v1alpha1.ReasonRunning {
		run = fmt.Sprintf("%s %d", b.Status.Active.Run, b.Status.Active.Attempt)
	}
	if run != p.run {
		p.run, p.since = run, time.Now()
	}
	p.draw()
}

// draw shows the state. Only a terminal shows each run and the time left: its line is rewritten.
func (p *progress) draw() {
	if p.live() {
		var measured time.Duration
		if p.run != "" {
			measured = time.Since(p.since)
		}
		p.show(progressLine(p.benchmark, measured))
		return
	}
	word, c, rest := progressLine(p.benchmark, 0)
	step := word + rest
	switch word {
	case v1alpha1.ReasonStarting, v1alpha1.ReasonRunning, v1alpha1.ReasonEnding:
		step = "measuring"
		if runs := p.benchmark.Status.Progress; runs != nil && runs.Total > 0 {
			step += fmt.Sprint(4 * runs.Done / runs.Total)
		}
	}
	if step != p.step {
		p.step = step
		p.show(word, c, rest)
	}
}

func progressLine(b *v1alpha1.LatencyBenchmark, measured time.Duration) (word string, c color, rest string) {
	word, c, message := state(b)
	parts := []string{message}
	if p := b.Status.Progress; p != nil {
		left := time.Duration(p.MeasuringSecondsLeft) * time.Second
		if a := b.Status.Active; a != nil {
			parts = append(parts, fmt.Sprintf("run %d of %d", min(p.Done+1, p.Total), p.Total))
			left -= min(measured, lengthOf(b, a.Run))
		} else if p.Total > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d runs done", p.Done, p.Total))
		}
		if left > 0 {
			parts = append(parts, left.Round(time.Second).String()+" to measure")
		}
	}
	if s := b.Status.Summary; s != nil && s.P50 != "" {
		text := fmt.Sprintf("%s so far p50 %s", s.Cell, s.P50)
		for _, p := range []struct{ name, value string }{{"p99", s.P99}, {"p99.9", s.P999}} {
			if p.value != "" {
				text += fmt.Sprintf(" %s %s", p.name, p.value)
			}
		}
		parts = append(parts, text)
	}
	return word, c, ": " + strings.Join(parts, "; ")
}

func state(b *v1alpha1.LatencyBenchmark) (word string, c color, message string) {
	accepted := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionAccepted)
	succeeded := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSucceeded)
	switch {
	case accepted != nil && accepted.Status == metav1.ConditionFalse && !b.Finished():
		return v1alpha1.ReasonNotAccepted, red, fmt.Sprintf("%s (%s)", accepted.Message, accepted.Reason)
	case succeeded == nil:
		return "Waiting", yellow, summary.Standing(b)
	case succeeded.Status == metav1.ConditionFalse:
		return succeeded.Reason, red, succeeded.Message
	case succeeded.Status == metav1.ConditionTrue, succeeded.Reason == v1alpha1.ReasonRunning:
		return succeeded.Reason, green, succeeded.Message
	}
	return succeeded.Reason, yellow, succeeded.Message
}

func lengthOf(b *v1alpha1.LatencyBenchmark, run string) time.Duration {
	for _, r := range plan.Runs(b) {
		if r.Name == run {
			return plan.MeasuringTime(r.Cells)
		}
	}
	return 0
}

type pairFlags struct {
	client, server, network, tool, name string
	onload                              bool
	sizes                               []int32
	rounds                              int32
}

func (p *pairFlags) addFlags(cmd *cobra.Command, c *cluster) {
	f := cmd.Flags()
	f.StringVar(&p.client, "client", "", "node of the client, to run a benchmark without a file")
	f.StringVarP(&p.server, "server", "s", "", "node of the server; with -f, the API server, as of all verbs")
	f.StringVar(&p.network, "network", "", "Host, a NetworkAttachmentDefinition ([NAMESPACE/]NAME), or the resource of its devices, such as openshift.io/sf_x2_vf (default the pod network)")
	f.StringVar(&p.tool, "tool", string(v1alpha1.Tools[0]), "tool that measures")
	f.BoolVar(&p.onload, "onload", false, "accelerate the sockets with Onload")
	f.Int32SliceVar(&p.sizes, "size", []int32{64}, "message sizes in bytes")
	f.Int32Var(&p.rounds, "rounds", 0, "number of rounds (default that of the API)")
	f.StringVar(&p.name, "name", "", "name of the LatencyBenchmark (default one that follows from the other flags)")
	tools := text.Of(v1alpha1.Tools, func(t v1alpha1.Tool) string { return string(t) })
	nodes := func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		list := &corev1.NodeList{}
		if api, _, err := c.client(); err != nil || api.List(cmd.Context(), list) != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return text.Of(list.Items, func(n corev1.Node) string { return n.Name }), cobra.ShellCompDirectiveNoFileComp
	}
	for flag, complete := range map[string]cobra.CompletionFunc{
		"client": nodes, "server": nodes, "tool": cobra.FixedCompletions(tools, cobra.ShellCompDirectiveNoFileComp),
	} {
		if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
			panic(err) // the flag was added above
		}
	}
}

func (p *pairFlags) benchmark(ctx context.Context, c *cluster, say func(string)) (*unstructured.Unstructured, error) {
	switch {
	case p.client == "" || p.server == "":
		return nil, errors.New("--filename: name a file, or describe a benchmark by --client NODE and --server NODE")
	case strings.Contains(p.server, "://"):
		return nil, fmt.Errorf("--server: %s is no node; choose the API server by --context or --kubeconfig", p.server)
	}
	namespace, _, err := c.namespace()
	if err != nil {
		return nil, err
	}
	var sizes []any
	for _, s := range p.sizes {
		sizes = append(sizes, int64(s))
	}
	spec := map[string]any{
		"tool":      p.tool,
		"workload":  map[string]any{"protocols": []any{string(v1alpha1.ProtocolTCP)}, "messageSizes": sizes},
		"placement": map[string]any{"client": map[string]any{"nodeName": p.client}, "server": map[string]any{"nodeName": p.server}},
	}
	if p.rounds != 0 {
		spec["rounds"] = int64(p.rounds)
	}
	if p.onload {
		spec["acceleration"] = map[string]any{"type": string(v1alpha1.AccelerationOnload)}
	}
	if p.network != "" {
		api, _, err := c.client()
		if err != nil {
			return nil, err
		}
		network, found, err := p.networkIn(ctx, api, namespace)
		if err != nil {
			return nil, fmt.Errorf("--network: %w", err)
		}
		say(fmt.Sprintf("--network %s is %s", p.network, found))
		spec["network"] = network
	}
	u := newUnstructured(benchmarks)
	u.SetNamespace(namespace)
	u.SetName(p.name)
	u.Object["spec"] = spec
	if p.name == "" {
		digest, err := result.Digest(spec)
		if err != nil {
			return nil, err
		}
		u.SetName("run-" + digest[:8])
	}
	return u, admit.Object(ctx, u.DeepCopy())
}

func (p *pairFlags) networkIn(ctx context.Context, api client.Client, namespace string) (network map[string]any, found string, err error) {
	for _, t := range []v1alpha1.NetworkType{v1alpha1.NetworkPod, v1alpha1.NetworkHost} {
		if strings.EqualFold(p.network, string(t)) {
			return map[string]any{"type": string(t)}, "the network of type " + string(t), nil
		}
	}
	ref := map[string]any{}
	within, name, qualified := strings.Cut(p.network, "/")
	if qualified = qualified && !strings.Contains(within, "."); qualified { // The prefix of a resource is a domain.
		ref["namespace"] = within
	} else {
		within, name = namespace, p.network
	}
	list := foreign.List(foreign.GroupVersionKind)
	if err := api.List(ctx, list, client.InNamespace(within)); err != nil {
		return nil, "", fmt.Errorf("listing the NetworkAttachmentDefinitions of namespace %s: %w", within, err)
	}
	var same, known []string
	var chosen *unstructured.Unstructured
	for i := range list.Items {
		d := &list.Items[i]
		resource := d.GetAnnotations()[foreign.AnnotationResourceName]
		known = append(known, strings.TrimSpace(d.GetName()+" "+resource))
		switch {
		case d.GetName() == name:
			same, chosen = nil, d
		case !qualified && names(p.network, resource) && (chosen == nil || chosen.GetName() != name):
			same, chosen = append(same, d.GetName()), d
		}
	}
	switch {
	case len(same) > 1:
		return nil, "", fmt.Errorf("%d NetworkAttachmentDefinitions of namespace %s have devices of %s: name one of %s", len(same), within, p.network, text.List(same, 8, ", "))
	case chosen == nil:
		return nil, "", fmt.Errorf("namespace %s has no NetworkAttachmentDefinition %s, and none with devices of this name; it has %s%s",
			within, p.network, text.List(append(known, "no other")[:max(len(known), 1)], 8, ", "), p.unattached(ctx, api))
	}
	ref["name"] = chosen.GetName()
	resource := chosen.GetAnnotations()[foreign.AnnotationResourceName]
	config, _, _ := unstructured.NestedString(chosen.Object, "spec", "config")
	found = fmt.Sprintf("NetworkAttachmentDefinition %s/%s, ", within, chosen.GetName())
	if resource == "" || foreign.Deviceless(config, resource) {
		return map[string]any{"type": string(v1alpha1.NetworkNAD), "nad": map[string]any{"networkRef": ref}}, found + "without a device", nil
	}
	kind := v1alpha1.NetworkVF
	if plugins, _ := foreign.Plugins[foreign.CNIPlugin](config); len(plugins) > 0 && plugins[0].Type == "host-device" {
		kind = v1alpha1.NetworkPF
	}
	return map[string]any{"type": string(kind), strings.ToLower(string(kind)): map[string]any{"resourceName": resource, "networkRef": ref}},
		fmt.Sprintf("%swith a %s of %s", found, kind, resource), nil
}

// names reports whether a word names a resource, with or without its prefix; - stands for _.
func names(word, resource string) bool {
	plain := strings.NewReplacer("_", "-").Replace
	return resource != "" && (word == resource || strings.EqualFold(plain(word), plain(path.Base(resource))))
}

// unattached says which resource of the client's node --network names, which no network uses.
func (p *pairFlags) unattached(ctx context.Context, api client.Client) string {
	n := &corev1.Node{}
	if api.Get(ctx, client.ObjectKey{Name: p.client}, n) != nil {
		return ""
	}
	for resource := range n.Status.Allocatable {
		if names(p.network, string(resource)) {
			return fmt.Sprintf("; node %s has devices of %s: create a NetworkAttachmentDefinition for them, or write network.vf.ipam into a file", n.Name, resource)
		}
	}
	return ""
}
