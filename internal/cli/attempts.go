package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/internal/text"
)

func newAttempts(c *cluster) *cobra.Command {
	var form string
	cmd := &cobra.Command{
		Use:   "attempts NAME",
		Short: "List the attempts of a LatencyBenchmark, and the state of the current pods",
		Long: "List every attempt at every run of a LatencyBenchmark, with its start, its duration, its measuring time and its\n" +
			"outcome. For the current attempt, print the state of its pods, and the last lines of their logs if you may\n" +
			"read them.",
		Example: "  " + name + " attempts sweep -n perf",
		Args:    takes("the name of one LatencyBenchmark", 1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := attempts(cmd.Context(), c, args[0], form)
			return emit(cmd.OutOrStdout(), text, err)
		},
	}
	outputFlag(cmd, &form, "table", "json")
	return cmd
}

func attempts(ctx context.Context, c *cluster, benchmark, form string) ([]byte, error) {
	api, namespace, err := c.client()
	if err != nil {
		return nil, err
	}
	b := &v1alpha1.LatencyBenchmark{}
	if err := read(ctx, api, subject{benchmarks, benchmarks.key(namespace, benchmark)}, b); err != nil {
		return nil, err
	}
	if form == "json" {
		return result.EncodeJSON(map[string]any{"attempts": b.Status.Attempts, "active": b.Status.Active})
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s/%s: %s\n", b.Namespace, b.Name, summary.Standing(b))
	if err := pastAttempts(&out, b.Status.Attempts); err != nil {
		return nil, fmt.Errorf("writing the attempts: %w", err)
	}
	if b.Status.Active != nil {
		activeAttempt(ctx, &out, c, api, b)
	}
	return out.Bytes(), nil
}

const mostAttempts = 300

func pastAttempts(w io.Writer, all []v1alpha1.Attempt) error {
	if len(all) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	if len(all) >= mostAttempts {
		fmt.Fprintf(w, "the last %d attempts; earlier ones are not kept\n", len(all))
	}
	t := text.NewColumns(w, 0)
	fmt.Fprintln(t, "RUN\tATTEMPT\tBEGAN\tTOOK\tMEASURED\tENDED AS\tMESSAGE")
	for _, a := range all {
		measured := "-"
		if a.MeasuredMilliseconds > 0 {
			measured = seconds(time.Duration(a.MeasuredMilliseconds) * time.Millisecond)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\n", a.Run, a.Attempt, moment(a.StartTime), seconds(a.Outcome.CompletionTime.Sub(a.StartTime.Time)),
			measured, a.Outcome.Reason, printable(cmp.Or(a.Outcome.Message, "-")))
	}
	return t.Flush()
}

func moment(t metav1.MicroTime) string { return t.UTC().Format(time.RFC3339) }

// seconds formats a duration; between its ends, a clock may have been set back.
func seconds(d time.Duration) string {
	if d < 0 {
		return "-"
	}
	return d.Round(100 * time.Millisecond).String()
}

func activeAttempt(ctx context.Context, w io.Writer, c *cluster, api client.Client, b *v1alpha1.LatencyBenchmark) {
	a := b.Status.Active
	fmt.Fprintf(w, "\nnow: %s, attempt %d, since %s\n", a.Run, a.Attempt, moment(a.StartTime))
	if a.Outcome != nil {
		fmt.Fprintf(w, "it has ended as %s, and its pods are being removed: %s\n", a.Outcome.Reason, printable(cmp.Or(a.Outcome.Message, "-")))
	}
	for _, end := range []struct{ role, node string }{{v1alpha1.RoleServer, a.Pair.ServerNode}, {v1alpha1.RoleClient, a.Pair.ClientNode}} {
		key := types.NamespacedName{Namespace: b.Namespace, Name: pods.NameOf(a, end.role)}
		fmt.Fprintf(w, "\n%s on %s, pod %s: ", end.role, end.node, key.Name)
		pod := &corev1.Pod{}
		switch err := api.Get(ctx, key, pod); {
		case apierrors.IsNotFound(err):
			fmt.Fprintln(w, "it does not exist")
			continue
		case err != nil:
			fmt.Fprintf(w, "it cannot be read: %s\n", printable(oneLine(err)))
			continue
		case !metav1.IsControlledBy(pod, b):
			fmt.Fprintln(w, "it exists and does not belong to this benchmark")
			continue
		}
		fmt.Fprintln(w, standingOf(pod))
		if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Waiting != nil {
			continue // There is no log yet.
		}
		lines, err := lastWords(ctx, c, key)
		if err != nil {
			fmt.Fprintf(w, "  its log cannot be read: %s\n", printable(oneLine(err)))
		}
		for _, line := range lines {
			fmt.Fprintf(w, "  | %s\n", line)
		}
	}
}

func standingOf(pod *corev1.Pod) string {
	told := []string{string(pod.Status.Phase)}
	add := func(reason, message string) {
		for _, said := range []string{reason, message} {
			if said != "" {
				told = append(told, printable(text.Line(said)))
			}
		}
	}
	add(pod.Status.Reason, pod.Status.Message)
	for _, c := range pod.Status.Conditions {
		if c.Status == corev1.ConditionFalse && c.Type == corev1.PodScheduled {
			add(c.Reason, c.Message)
		}
	}
	for _, c := range pod.Status.ContainerStatuses {
		switch {
		case c.State.Waiting != nil:
			add(c.State.Waiting.Reason, c.State.Waiting.Message)
		case c.State.Terminated != nil:
			add(fmt.Sprintf("exit code %d", c.State.Terminated.ExitCode), c.State.Terminated.Reason)
		}
	}
	if pod.DeletionTimestamp != nil {
		add("being removed", "")
	}
	return strings.Join(told, ", ")
}

const (
	mostLines     = 8
	mostLineBytes = 64 << 10
)

func lastWords(ctx context.Context, c *cluster, pod types.NamespacedName) ([]string, error) {
	log, err := c.log(ctx, pod, pods.Container, false)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	var last []string
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, mostLineBytes)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || result.Framing(line) {
			continue
		}
		last = append(last, printable(line))
		last = last[max(0, len(last)-mostLines):]
	}
	if err := lines.Err(); err != nil {
		return nil, err // The lines read so far are not the end of the log.
	}
	return last, nil
}

const mostShown = 1024 // bytes of a text from another component that are shown

func printable(s string) string { return text.Printable(s, mostShown) }
