package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/text"
)

func newAccept(c *cluster) *cobra.Command {
	o := &operator{cluster: c}
	cmd := &cobra.Command{
		Use:   "accept (GATE NODE | VERIFICATION) BENCHMARK | GATE -l SELECTOR",
		Short: "Accept a result of a node manually: it becomes the baseline, and the node is verified",
		Long: "Accept the result of a LatencyBenchmark that a LatencyGate created for a node, whatever its verdict. The result becomes the\n" +
			"baseline of the node's next result, and the node is verified. BENCHMARK is one of status.history of the node's\n" +
			"LatencyVerification GATE.NODE. The flag --selector selects nodes of the gate by labels: the command then accepts the last result of\n" +
			"each node that is Failed or Inconclusive.\n\n" +
			"The command prints the result, and waits until the operator has accepted or refused the result. The command needs the rights\n" +
			"to get and patch latencyverifications (ClusterRole tailgate-gate-operate) and, with --selector, to list nodes.",
		Example: "  " + name + " accept upgrade node-a upgrade-node-a-3\n" +
			"  " + name + " accept upgrade.node-a upgrade-node-a-3\n" +
			"  " + name + " accept upgrade -l rack=r7",
		Args: o.takes("a gate and a node, or a LatencyVerification, and then the name of a LatencyBenchmark", 2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.selector != "" {
				return o.send(cmd, args, o.acceptLast)
			}
			last := len(args) - 1
			return o.send(cmd, args[:last], func(ctx context.Context, v *v1alpha1.LatencyVerification) error {
				return o.accept(ctx, v, args[last])
			})
		},
	}
	o.addFlags(cmd)
	return cmd
}

func newVerify(c *cluster) *cobra.Command {
	o := &operator{cluster: c}
	cmd := &cobra.Command{
		Use:   "verify GATE NODE | VERIFICATION | GATE -l SELECTOR",
		Short: "Request a new measurement of a node by its LatencyGate",
		Long: "Request a new measurement of a node by its LatencyGate. The gate holds the node back until it passes, as after an upgrade.\n" +
			"With --selector, the command requests a measurement of each node of the gate that has these labels.\n\n" +
			"The command waits until the operator has accepted the request, not until the node is measured. To wait for the measurement,\n" +
			"use `" + name + " gate lgate/GATE --wait`. The command needs the rights to get and patch latencyverifications (ClusterRole\n" +
			"tailgate-gate-operate) and, with --selector, to list nodes.",
		Example: "  " + name + " verify upgrade node-a\n  " + name + " verify upgrade -l rack=r7",
		Args:    o.takes("a gate and a node, or a LatencyVerification", 1, 2),
		RunE:    func(cmd *cobra.Command, args []string) error { return o.send(cmd, args, o.verify) },
	}
	o.addFlags(cmd)
	return cmd
}

type operator struct {
	*cluster
	timeout time.Duration
	// selector selects a gate's nodes by label; empty: the arguments name one.
	selector       string
	api            client.Client
	stdout, stderr io.Writer
	self           *authenticationv1.SelfSubjectReview // the user; nil until the first request
}

func (o *operator) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "labels of the Nodes whose nodes are meant, such as rack=r7; give only the gate then")
	cmd.Flags().DurationVar(&o.timeout, "timeout", time.Minute, "how long to wait for the operator to process the request")
}

// takes checks the number of arguments: with a selector there is only the gate.
func (o *operator) takes(what string, least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if o.selector != "" {
			return takes("only a gate with --selector", 1, 1)(cmd, args)
		}
		return takes(what, least, most)(cmd, args)
	}
}

var errUnanswered = errors.New("the operator has not answered")

// send asks for each chosen node in turn, until the operator does not answer: all errors.
func (o *operator) send(cmd *cobra.Command, args []string, request func(context.Context, *v1alpha1.LatencyVerification) error) error {
	o.stdout, o.stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
	chosen, err := o.chosen(cmd.Context(), args)
	if err != nil {
		return err
	}
	var failed []error
	for i := range chosen {
		err := request(cmd.Context(), &chosen[i])
		failed = append(failed, err)
		if errors.Is(err, errUnanswered) {
			break
		}
	}
	return errors.Join(failed...)
}

func (o *operator) chosen(ctx context.Context, args []string) ([]v1alpha1.LatencyVerification, error) {
	if o.timeout <= 0 {
		return nil, fmt.Errorf("--timeout: %s is invalid; give a positive duration", o.timeout)
	}
	selector, err := labels.Parse(o.selector)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	name := args[0]
	if len(args) > 1 {
		name = v1alpha1.VerificationName(args[0], args[1])
	}
	if o.selector == "" && (name == "" || strings.Contains(name, "/")) {
		return nil, fmt.Errorf("%q is not a name of a LatencyVerification: give GATE NODE, or GATE.NODE", name)
	}
	if o.api, _, err = o.client(); err != nil {
		return nil, err
	}
	if o.selector == "" {
		v := v1alpha1.LatencyVerification{}
		err := read(ctx, o.api, subject{verifications, verifications.key("", name)}, &v)
		return []v1alpha1.LatencyVerification{v}, err
	}
	all, err := verificationsOf(ctx, o.api, name)
	if err != nil {
		return nil, err
	}
	nodes := &corev1.NodeList{}
	if err := o.api.List(ctx, nodes, client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("listing nodes: %w", err)
	}
	chosen := slices.DeleteFunc(all.Items, func(v v1alpha1.LatencyVerification) bool {
		return !slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == v.Spec.NodeName })
	})
	if len(chosen) == 0 {
		return nil, fmt.Errorf("--selector: no node of LatencyGate %s has %s; see `kubectl get nodes --show-labels`", name, selector)
	}
	return chosen, nil
}

func verificationsOf(ctx context.Context, api client.Client, gate string) (*v1alpha1.LatencyVerificationList, error) {
	if err := read(ctx, api, subject{gates, gates.key("", gate)}, &v1alpha1.LatencyGate{}); err != nil {
		return nil, err
	}
	all := &v1alpha1.LatencyVerificationList{}
	if err := api.List(ctx, all, client.MatchingFields{"spec.gateName": gate}); err != nil {
		return nil, fmt.Errorf("listing the LatencyVerifications of LatencyGate %s: %w", gate, err)
	}
	return all, nil
}

func (o *operator) acceptLast(ctx context.Context, v *v1alpha1.LatencyVerification) error {
	if v.Status.State != v1alpha1.VerificationFailed && v.Status.State != v1alpha1.VerificationInconclusive || len(v.Status.History) == 0 {
		return say(o.stdout, "node %s is %s: nothing to accept\n", v.Spec.NodeName, v.Status.State)
	}
	return o.accept(ctx, v, v.Status.History[0].Benchmark)
}

func (o *operator) accept(ctx context.Context, v *v1alpha1.LatencyVerification, benchmark string) error {
	if benchmark == "" {
		return errors.New("BENCHMARK: name one of the node's LatencyBenchmarks")
	}
	if byHand(v, benchmark) {
		return say(o.stdout, "%s is already accepted manually: node %s is %s\n", benchmark, v.Spec.NodeName, v.Status.State)
	}
	known := text.Of(v.Status.History, func(r v1alpha1.VerificationResult) string { return r.Benchmark })
	i := slices.Index(known, benchmark)
	if i < 0 {
		return fmt.Errorf("LatencyVerification %s has no result %s; it has %s", v.Name, benchmark, orNone(known))
	}
	result, has := v.Status.History[i], v.Status.Identity
	identity := text.Of(slices.Sorted(maps.Keys(has)), func(key string) string { return text.Printable(key+"="+has[key], maxShown) })
	err := say(o.stdout, "%s: %s (%s) with peer %s, %s, UID %s\nnode %s: %s\n", result.Benchmark, result.Outcome,
		text.Printable(result.Reason, maxShown), result.Peer, result.CompletionTime.UTC().Format(time.RFC3339), result.UID, v.Spec.NodeName, orNone(identity))
	if err != nil {
		return err
	}
	after, err := o.ask(ctx, v, v1alpha1.FieldAccept, func(spec *v1alpha1.LatencyVerificationSpec, by v1alpha1.UserRequest) {
		// The UID binds the request to the result that was just shown.
		spec.Accept = &v1alpha1.AcceptRequest{Benchmark: benchmark, UID: result.UID, UserRequest: by}
	})
	if err != nil {
		return err
	}
	if !byHand(after, benchmark) {
		if r := after.Status.AcceptRefused; r != nil && r.Benchmark == benchmark {
			return fmt.Errorf("the operator refused it: %s", r.Message)
		}
		return fmt.Errorf("it is no longer accepted: node %s is %s: %s", after.Spec.NodeName, after.Status.State, after.Status.Verified().Message)
	}
	return say(o.stdout, "%s accepted: node %s is %s\n", benchmark, after.Spec.NodeName, after.Status.State)
}

const maxShown = 128 // bytes of a part of a result that are shown

func byHand(v *v1alpha1.LatencyVerification, benchmark string) bool {
	a := v.Status.Accepted
	return v.Status.State.Passed() && a != nil && a.By == v1alpha1.AcceptedByHand && a.Benchmark == benchmark
}

func (o *operator) verify(ctx context.Context, v *v1alpha1.LatencyVerification) error {
	after, err := o.ask(ctx, v, v1alpha1.FieldVerify, func(spec *v1alpha1.LatencyVerificationSpec, by v1alpha1.UserRequest) {
		spec.Verify = &by
	})
	if err != nil {
		return err
	}
	return say(o.stdout, "node %s is %s and will be measured: %s\n", after.Spec.NodeName, after.Status.State, after.Status.Verified().Message)
}

// ask writes a request into the spec, as the user's, and waits until the operator has processed it.
func (o *operator) ask(
	ctx context.Context, v *v1alpha1.LatencyVerification, field string, set func(*v1alpha1.LatencyVerificationSpec, v1alpha1.UserRequest),
) (*v1alpha1.LatencyVerification, error) {
	of := subject{verifications, client.ObjectKeyFromObject(v)}
	if o.self == nil {
		o.self = &authenticationv1.SelfSubjectReview{}
		if err := o.api.Create(ctx, o.self); err != nil {
			return nil, fmt.Errorf("reading the name of the user, for %s.requestedBy: %w", field, err)
		}
	}
	asked := v.DeepCopy()
	set(&asked.Spec, v1alpha1.UserRequest{RequestedBy: o.self.Status.UserInfo.Username, RequestTime: time.Now().UTC().Format(time.RFC3339Nano)})
	if err := o.api.Patch(ctx, asked, client.MergeFrom(v)); err != nil {
		return nil, inWords("patching", of, err)
	}
	limited, cancel := timeLimit(ctx, o.timeout)
	defer cancel()
	after := asked
	f := follower{api: o.api, subject: of, uid: v.UID, trouble: troubleTeller(o.stderr), look: func(_ context.Context, object client.Object) (bool, error) {
		after = object.(*v1alpha1.LatencyVerification)
		accept, verify := after.Requests()
		return (field != v1alpha1.FieldAccept || accept == nil) && (field != v1alpha1.FieldVerify || verify == nil), nil
	}}
	if err := f.follow(limited); err != nil {
		if limited.Err() == nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w within %s; is it running? `kubectl patch %s %s --type=merge -p '{\"spec\":{%q:null}}'` withdraws the request",
			errUnanswered, o.timeout, verifications.resource(), v.Name, strings.TrimPrefix(field, "spec."))
	}
	return after, nil
}

func say(w io.Writer, format string, args ...any) error {
	return emit(w, fmt.Sprintf(format, args...), nil)
}

func orNone(names []string) string { return cmp.Or(strings.Join(names, ", "), "none") }
