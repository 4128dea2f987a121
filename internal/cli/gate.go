package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/judge"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/sessions"
	"github.com/tailgate-dev/tailgate/internal/standing"
	"github.com/tailgate-dev/tailgate/internal/text"
)

func newGate(c *cluster) *cobra.Command {
	g := &gate{cluster: c}
	cmd := &cobra.Command{
		Use:   "gate NAME|PATH...",
		Short: "Print verdicts and exit with 0 (Pass), 1 (Fail) or 2 (Inconclusive)",
		Long: "Print the verdicts of LatencyBenchmarks (NAME or lbench/NAME), LatencyMatrices (lmatrix/NAME) and LatencyGates\n" +
			"(lgate/NAME), and return them as the exit code, for scripts, jobs and upgrade tools:\n\n" +
			"  0  every verdict is Pass\n" +
			"  1  at least one verdict is Fail\n" +
			"  2  no verdict is Fail, but at least one is Inconclusive or, without --wait, does not exist yet\n" +
			"  3  no verdict is Fail, but an object does not exist, cannot be read, or had no verdict before --timeout\n\n" +
			"The output has a line for each verdict, for each rule that did not pass, and for each node that is not verified. With\n" +
			"--wait, the command waits until each verdict is Pass or Fail, or until a user must act for a Pass or Fail. The wait\n" +
			"continues over restarts of the API server.\n\n" +
			"A LatencyGate passes only if none of its nodes has changed since it was verified. The command itself compares the\n" +
			"nodes, even while the operator does not run.\n\n" +
			"The PATH of an export, which begins with ./ or /, gives the verdict at the time of the export.\n\n" +
			"The command needs the right to get the objects, and for a gate the right to get and list nodes and\n" +
			"latencyverifications, too (ClusterRole tailgate-gate-reader). In a pod, it uses the service account of the pod.",
		Example:     "  " + name + " gate before after -n perf --wait --timeout 2h\n  " + name + " gate lgate/upgrade",
		Args:        takes("the names of LatencyBenchmarks, LatencyMatrices or LatencyGates", 1, math.MaxInt),
		Annotations: map[string]string{exitsByVerdict: "true"},
		RunE: func(cmd *cobra.Command, args []string) error {
			return g.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().BoolVar(&g.wait, "wait", false, "wait for verdicts that can still become Pass or Fail")
	cmd.Flags().DurationVar(&g.timeout, "timeout", 0, "how long to wait, such as 2h (default as long as it takes)")
	outputFlag(cmd, &g.form, "table", "json")
	return cmd
}

type gate struct {
	*cluster
	wait    bool
	timeout time.Duration
	form    string
}

type gateLine struct {
	Object  string                  `json:"object"`
	Verdict v1alpha1.VerdictOutcome `json:"verdict,omitempty"`
	Reason  string                  `json:"reason,omitempty"`
	Message string                  `json:"message,omitempty"`
	Details []string                `json:"details,omitempty"`
}

type answer struct {
	of       string
	standing standing.Standing
	err      error
}

func exitCode(outcome v1alpha1.VerdictOutcome) int {
	switch outcome {
	case v1alpha1.VerdictPass:
		return exitPass
	case v1alpha1.VerdictFail:
		return exitFail
	case v1alpha1.VerdictInconclusive:
	}
	return exitInconclusive
}

// worse returns the worse exit code. Fail is the worst: unknown verdicts do not change it.
func worse(a, b int) int {
	for _, code := range []int{exitFail, exitError, exitInconclusive} {
		if a == code || b == code {
			return code
		}
	}
	return exitPass
}

func (g *gate) run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	switch {
	case g.timeout < 0:
		return fmt.Errorf("--timeout: %s is invalid; give a positive duration", g.timeout)
	case g.timeout > 0 && !g.wait:
		return errors.New("--timeout belongs to --wait; add that")
	}
	subjects := make([]subject, len(args))
	inCluster := false
	for i, arg := range args {
		var err error
		if isPath(arg) {
			_, err = exportDir(arg)
		} else {
			inCluster = true
			subjects[i], err = parseSubject(arg)
		}
		if err != nil {
			return err
		}
	}
	var api client.Client
	var namespace string
	if inCluster {
		var err error
		if api, namespace, err = g.client(); err != nil {
			return err
		}
	}
	ctx, cancel := timeLimit(ctx, g.timeout)
	defer cancel()
	tell := troubleTeller(stderr)
	answers := make([]chan answer, len(args))
	for i, arg := range args {
		answers[i] = make(chan answer, 1)
		go func() {
			if isPath(arg) {
				answers[i] <- g.exported(ctx, arg)
				return
			}
			s := subjects[i]
			s.key = s.kind.key(namespace, s.key.Name)
			answers[i] <- g.answer(ctx, api, s, tell)
		}()
	}
	code := exitPass
	var failures []string
	lines := []gateLine{}
	for i, arg := range args {
		a := <-answers[i]
		if a.err != nil {
			code = worse(code, exitError)
			failures = append(failures, a.err.Error())
			lines = append(lines, gateLine{Object: arg, Message: a.err.Error()})
			continue
		}
		code = worse(code, exitCode(a.standing.Outcome))
		lines = append(lines, gateLine{a.of, a.standing.Outcome, a.standing.Reason, a.standing.Message, a.standing.Details})
		if g.form == "json" {
			continue
		}
		if err := say(stdout, "%s: %s\n", a.of, a.standing); err != nil {
			return err
		}
	}
	if g.form == "json" {
		if err := report.WriteJSON(stdout, lines); err != nil {
			return err
		}
	}
	switch {
	case len(failures) > 0:
		return ended{code, errors.New(strings.Join(failures, "; "))}
	case code != exitPass:
		return ended{code: code}
	}
	return nil
}

// exported returns a benchmark's standing when it was exported, which is final.
func (g *gate) exported(ctx context.Context, path string) answer {
	m, err := g.load(ctx, path)
	if err != nil {
		return answer{err: err}
	}
	of := subject{benchmarks, client.ObjectKeyFromObject(m.Object)}
	if m.Matrix != nil {
		of.kind = matrices
	}
	return answer{of: fmt.Sprintf("%s of %s", of, m.Dir), standing: standing.OfBenchmark(m.Object)}
}

func (g *gate) answer(ctx context.Context, api client.Client, s subject, tell func(error)) answer {
	if !g.wait {
		o := s.kind.object()
		if err := read(ctx, api, s, o); err != nil {
			return answer{err: err}
		}
		current, err := standing.Of(ctx, api, o)
		return answer{of: s.String(), standing: current, err: err}
	}
	var last standing.Standing
	f := follower{api: api, subject: s, trouble: tell, look: func(ctx context.Context, o client.Object) (bool, error) {
		current, err := standing.Of(ctx, api, o)
		if err != nil {
			return false, err
		}
		last = current
		open, err := stillOpen(ctx, api, s.key.Namespace, last)
		return !open, err
	}}
	return answer{s.String(), last, late(ctx, f.follow(ctx), s, last.Message)}
}

// stillOpen reports whether a standing may change without a user. If the verdict waits for a
// baseline, it reads that: a complete one does not end the wait, as the operator will judge.
func stillOpen(ctx context.Context, api client.Client, namespace string, s standing.Standing) (bool, error) {
	k := benchmarks
	if s.BaselineMatrix != "" {
		k = matrices
	}
	baseline := k.key(namespace, s.Baseline+s.BaselineMatrix)
	if baseline.Name == "" {
		return s.Open, nil
	}
	o := k.object()
	switch err := read(ctx, api, subject{k, baseline}, o); {
	case isAbsent(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("reading the baseline: %w", err)
	default:
		return !meta.IsStatusConditionFalse(overviewOf(o).Status.Conditions, v1alpha1.ConditionSucceeded), nil
	}
}

func timeLimit(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if limit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}

// late names the subject and its last message if the context ended; it keeps other errors.
func late(ctx context.Context, err error, s subject, last string) error {
	if err == nil || ctx.Err() == nil {
		return err
	}
	why := endOf(ctx)
	if last == "" {
		return fmt.Errorf("%s before the first answer about %s", why, s)
	}
	return fmt.Errorf("%s before the verdict of %s: %s", why, s, last)
}

func endOf(ctx context.Context) string {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return "timed out"
	}
	return "interrupted"
}

// troubleTeller returns a function, for concurrent use, that prints why a request is retried.
func troubleTeller(w io.Writer) func(error) {
	var one sync.Mutex
	return func(err error) {
		one.Lock()
		defer one.Unlock()
		fmt.Fprintf(w, "%s: %s; trying again\n", name, oneLine(err))
	}
}

// follower gets one object again and again, with no other right. It calls look whenever it has
// changed, and at least once in lookAgain, because other data that look reads may change.
type follower struct {
	api client.Client
	subject
	look func(context.Context, client.Object) (enough bool, err error)
	each func()
	// trouble is called once for each period in which requests fail.
	trouble func(error)

	uid types.UID
	// version is the last that look returned for without error; looked is when.
	version string
	looked  time.Time
	// troubled is true from a failed request until look next returns without error.
	troubled bool
}

const (
	getAgain  = time.Second
	lookAgain = time.Minute
)

// follow returns nil when look returns true, or why it cannot; it tolerates API servers' restarts.
func (f *follower) follow(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, getAgain, true, f.once)
}

func (f *follower) once(ctx context.Context) (enough bool, err error) {
	if f.each != nil {
		f.each()
	}
	o := f.kind.object()
	err = read(ctx, f.api, f.subject, o)
	switch known := f.uid != ""; {
	case known && (isAbsent(err) || err == nil && o.GetUID() != f.uid):
		return false, fmt.Errorf("%s was deleted meanwhile", f.subject)
	case err != nil:
		return false, f.passing(ctx, err, known)
	}
	f.uid = o.GetUID()
	if o.GetResourceVersion() == f.version && time.Since(f.looked) < lookAgain {
		return false, nil
	}
	if enough, err = f.look(ctx, o); err != nil {
		return false, f.passing(ctx, err, f.version != "")
	}
	f.version, f.looked, f.troubled = o.GetResourceVersion(), time.Now(), false
	return enough, nil
}

// passing returns nil for an error that may pass. A refusal is permanent, unless a request was
// answered before: an API server that just started does not know all kinds and rights.
func (f *follower) passing(ctx context.Context, err error, before bool) error {
	var refused apierrors.APIStatus
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &refused) && !before:
		switch code := refused.Status().Code; {
		case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code == http.StatusGone,
			code >= http.StatusInternalServerError:
		default:
			return err
		}
	}
	if !f.troubled {
		f.troubled = true
		f.trouble(err)
	}
	return nil
}

func newCalibrate(c *cluster) *cobra.Command {
	var form string
	cmd := &cobra.Command{
		Use:   "calibrate GATE",
		Short: "Say how much rounds, boots and peers of a LatencyGate differ, and recommend tolerance and rounds",
		Long: "Print how much the rounds of a session, the boots of a node and its peers differ without a change, as standard deviations. The\n" +
			"values come from the sessions that the LatencyVerifications of a LatencyGate have kept. To calibrate a new gate, reboot each\n" +
			"node once, unchanged, and wait until it is verified again.\n\n" +
			"TOLERANCE 1 and 5 are the smallest tolerances with which 95 % of unchanged boots pass in all values together: against one and\n" +
			"against five accepted boots. The command finds both by judging random boots that differ as the gate's boots do. With more\n" +
			"rounds than ROUNDS, the boots widen an interval more than the rounds do.\n\n" +
			"The command needs the rights to get the gate and to list latencyverifications (ClusterRole tailgate-gate-reader).",
		Example: "  " + name + " calibrate fast-nodes",
		Args:    takes("the name of one LatencyGate", 1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := calibrate(cmd.Context(), c, args[0], form)
			return emit(cmd.OutOrStdout(), text, err)
		},
	}
	outputFlag(cmd, &form, "table", "json")
	return cmd
}

// calibrated is a line of calibrate: deviations and tolerances are shares, 0 if unknown.
type calibrated struct {
	v1alpha1.ComparedValue
	Group          string  `json:"group,omitempty"`
	Nodes          int     `json:"nodes"`
	SDRounds       float64 `json:"sdRounds,omitempty"`
	SDBoots        float64 `json:"sdBoots,omitempty"`
	SDPeers        float64 `json:"sdPeers,omitempty"`
	ToleranceFirst float64 `json:"tolerance1,omitempty"`
	ToleranceLater float64 `json:"tolerance5,omitempty"`
	Rounds         int     `json:"rounds"`
}

func calibrate(ctx context.Context, c *cluster, gate, form string) ([]byte, error) {
	api, _, err := c.client()
	if err != nil {
		return nil, err
	}
	found, err := verificationsOf(ctx, api, gate)
	if err != nil {
		return nil, err
	}
	var nodes []sessions.Node
	for i := range found.Items {
		nodes = append(nodes, sessions.OfNode(&found.Items[i]))
	}
	all := sessions.Calibrate(nodes)
	if form == "json" {
		lines := []calibrated{}
		first, later := recommended(all, 1), recommended(all, 5)
		for i, c := range all {
			lines = append(lines, calibrated{c.Of, c.Group, c.Nodes, c.Rounds, c.Boots(), c.Peers, first[i], later[i], c.Enough()})
		}
		return result.EncodeJSON(lines)
	}
	var out bytes.Buffer
	writeCalibration(&out, all)
	return out.Bytes(), nil
}

func writeCalibration(w *bytes.Buffer, all []sessions.Calibration) {
	if len(all) == 0 {
		fmt.Fprintln(w, "no node of the gate has a session yet: a rule with maxIncrease or maxDecrease, and one verification of each node, are needed")
		return
	}
	share := func(sd float64, from int) string {
		if sd == 0 {
			return "unknown"
		}
		return fmt.Sprintf("%.1f%% (%d)", 100*sd, from)
	}
	t := text.NewColumns(w, 0)
	first, later := recommended(all, 1), recommended(all, 5)
	fmt.Fprintln(t, "VALUE\tSD ROUNDS\tSD BOOTS\tSD PEERS\tNODES\tTOLERANCE 1\tTOLERANCE 5\tROUNDS")
	for i, c := range all {
		rounds, recommended := "unknown", "unknown\tunknown\tunknown"
		if c.Rounds > 0 {
			rounds = fmt.Sprintf("%.1f%%", 100*c.Rounds)
		}
		if c.Sessions > 0 {
			recommended = fmt.Sprintf("%.1f%%\t%.1f%%\t%d", 100*first[i], 100*later[i], c.Enough())
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\n", strings.TrimSpace(c.Of.String()+" "+c.Group), rounds, share(c.Boots(), c.Differences), share(c.Peers, c.Pairs), c.Nodes, recommended)
	}
	_ = t.Flush() // A buffer cannot refuse text.
	for _, c := range all {
		if c.Nodes < 8 {
			fmt.Fprintf(w, "\nOnly %d nodes were measured on two boots; with fewer than 8, every Pass of the gate is provisional. A recommendation needs 4 differences.\n", c.Nodes)
			return
		}
	}
}

// recommended returns the tolerance of each value: a boot must pass in all values of its group.
func recommended(all []sessions.Calibration, boots int) []float64 {
	out := make([]float64, len(all))
	for i, c := range all {
		var group []sessions.Calibration
		var at []int
		for k, other := range all {
			if other.Group == c.Group && other.Sessions > 0 {
				group, at = append(group, other), append(at, k)
			}
		}
		if len(at) > 0 && at[0] == i {
			for k, tolerance := range judge.Recommend(group, boots) {
				out[at[k]] = tolerance
			}
		}
	}
	return out
}
