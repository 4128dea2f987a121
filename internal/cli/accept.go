package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// newAccept returns the verb that makes a result the baseline of a node.
func newAccept(c *cluster) *cobra.Command {
	o := &operator{cluster: c}
	cmd := &cobra.Command{
		Use:   "accept (GATE NODE | VERIFICATION) BENCHMARK",
		Short: "Accept a result of a node manually: it becomes the baseline, and the node is verified",
		Long: "Accept the result of a LatencyBenchmark that a LatencyGate created for a node, whatever its verdict. The result becomes\n" +
			"the baseline of the node's next result, and the node is verified. BENCHMARK is one of status.history of the node's\n" +
			"LatencyVerification GATE.NODE.\n\n" +
			"The command waits until the operator has accepted or refused the result. It needs the rights to get and patch\n" +
			"latencyverifications (ClusterRole tailgate-gate-operate).",
		Example: "  " + name + " accept upgrade node-a upgrade-node-a-3\n" +
			"  " + name + " accept upgrade.node-a upgrade-node-a-3",
		Args:              takes("a gate and a node, or a LatencyVerification, and then the name of a LatencyBenchmark", 2, 3),
		ValidArgsFunction: c.completeNames(1, verifications),
		RunE: func(cmd *cobra.Command, args []string) error {
			last := len(args) - 1
			return o.accept(cmd.Context(), verificationName(args[:last]), args[last], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.addTimeout(cmd)
	return cmd
}

// newVerify returns the verb that requests a new measurement of a node.
func newVerify(c *cluster) *cobra.Command {
	o := &operator{cluster: c}
	cmd := &cobra.Command{
		Use:   "verify GATE NODE | VERIFICATION",
		Short: "Request a new measurement of a node by its LatencyGate",
		Long: "Request a new measurement of a node by its LatencyGate. The gate holds the node back until it passes, as after an\n" +
			"upgrade.\n\n" +
			"The command waits until the operator has accepted the request, not until the node is measured: for this, use\n" +
			"`" + name + " gate lgate/GATE --wait`. It needs the rights to get and patch latencyverifications\n" +
			"(ClusterRole tailgate-gate-operate).",
		Example:           "  " + name + " verify upgrade node-a",
		Args:              takes("a gate and a node, or a LatencyVerification", 1, 2),
		ValidArgsFunction: c.completeNames(1, verifications),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.verify(cmd.Context(), verificationName(args), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.addTimeout(cmd)
	return cmd
}

// verificationName returns the name of a LatencyVerification, given either as such or as gate and node.
func verificationName(args []string) string {
	if len(args) == 1 {
		return args[0]
	}
	return v1alpha1.VerificationName(args[0], args[1])
}

// operator is an invocation of a verb that sends a request to the operator and waits for its answer.
type operator struct {
	*cluster
	timeout time.Duration
}

func (o *operator) addTimeout(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&o.timeout, "timeout", time.Minute, "how long to wait for the operator to process the request")
}

func (o *operator) accept(ctx context.Context, verification, benchmark string, stdout, stderr io.Writer) error {
	if benchmark == "" {
		return errors.New("BENCHMARK: name one of the node's LatencyBenchmarks")
	}
	api, v, err := o.verification(ctx, verification)
	if err != nil {
		return err
	}
	if byHand(v, benchmark) {
		return say(stdout, "%s is already accepted manually: node %s is %s\n", benchmark, v.Spec.NodeName, v.Status.State)
	}
	var known []string
	for _, r := range v.Status.History {
		known = append(known, r.Benchmark)
	}
	if !slices.Contains(known, benchmark) {
		return fmt.Errorf("LatencyVerification %s has no result %s; it has %s", v.Name, benchmark, orNone(known))
	}
	after, err := o.ask(ctx, api, v, v1alpha1.AnnotationAccept, benchmark, stderr)
	if err != nil {
		return err
	}
	if !byHand(after, benchmark) {
		if r := after.Status.AcceptRefused; r != nil && r.Benchmark == benchmark {
			return fmt.Errorf("the operator refused it: %s", r.Message)
		}
		return fmt.Errorf("it is no longer accepted: node %s is %s: %s", after.Spec.NodeName, after.Status.State, after.Status.Verified().Message)
	}
	return say(stdout, "%s accepted: node %s is %s\n", benchmark, after.Spec.NodeName, after.Status.State)
}

// byHand reports whether a result was accepted manually and is the baseline.
func byHand(v *v1alpha1.LatencyVerification, benchmark string) bool {
	a := v.Status.Accepted
	return v.Status.State == v1alpha1.VerificationVerified && a != nil && a.By == v1alpha1.AcceptedByHand && a.Benchmark == benchmark
}

func (o *operator) verify(ctx context.Context, verification string, stdout, stderr io.Writer) error {
	api, v, err := o.verification(ctx, verification)
	if err != nil {
		return err
	}
	after, err := o.ask(ctx, api, v, v1alpha1.AnnotationVerify, "", stderr)
	if err != nil {
		return err
	}
	return say(stdout, "node %s is %s and will be measured: %s\n", after.Spec.NodeName, after.Status.State, after.Status.Verified().Message)
}

// verification reads a LatencyVerification.
func (o *operator) verification(ctx context.Context, name string) (client.Client, *v1alpha1.LatencyVerification, error) {
	if o.timeout <= 0 {
		return nil, nil, fmt.Errorf("--timeout: %s is invalid; give a positive duration", o.timeout)
	}
	if name == "" || strings.Contains(name, "/") {
		return nil, nil, fmt.Errorf("%q is not a name of a LatencyVerification: give GATE NODE, or GATE.NODE", name)
	}
	api, _, err := o.client()
	if err != nil {
		return nil, nil, err
	}
	v := &v1alpha1.LatencyVerification{}
	return api, v, read(ctx, api, subject{verifications, verifications.key("", name)}, v)
}

// ask sets an annotation and waits until the operator has processed the request; the operator then removes the annotation.
func (o *operator) ask(ctx context.Context, api client.Client, v *v1alpha1.LatencyVerification, annotation, value string, stderr io.Writer) (*v1alpha1.LatencyVerification, error) {
	of := subject{verifications, client.ObjectKeyFromObject(v)}
	asked := v.DeepCopy()
	if asked.Annotations == nil {
		asked.Annotations = map[string]string{}
	}
	asked.Annotations[annotation] = value
	if err := api.Patch(ctx, asked, client.MergeFrom(v)); err != nil {
		return nil, inWords("annotating", of, err)
	}
	limited, cancel := timeLimit(ctx, o.timeout)
	defer cancel()
	after := asked
	f := follower{api: api, subject: of, uid: v.UID, trouble: troubleTeller(stderr), look: func(_ context.Context, object client.Object) (bool, error) {
		after = object.(*v1alpha1.LatencyVerification)
		_, waits := after.Annotations[annotation]
		return !waits, nil
	}}
	if err := f.follow(limited); err != nil {
		if limited.Err() == nil {
			return nil, err
		}
		return nil, fmt.Errorf("the operator has not answered within %s; is it running? `kubectl annotate %s %s %s-` withdraws the request", o.timeout, verifications.resource(), v.Name, annotation)
	}
	return after, nil
}

func say(w io.Writer, format string, args ...any) error {
	return emit(w, fmt.Sprintf(format, args...), nil)
}

func orNone(names []string) string { return cmp.Or(strings.Join(names, ", "), "none") }
