package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

func inspectTable(all []inspected) []byte {
	var out bytes.Buffer
	for n, r := range all {
		if n > 0 {
			out.WriteByte('\n')
		}
		fmt.Fprintf(&out, "pod %s/%s, container %s, on %s; inspected by %s, which stays in the pod's list\n", r.Namespace, r.Pod, r.Container, r.Node, r.Ephemeral)
		for _, l := range r.Lines {
			fmt.Fprintf(&out, "  %-8s %-15s %s\n", l.State, l.Check, l.Found)
			if l.Advice != "" {
				fmt.Fprintf(&out, "  %-24s expected: %s\n  %-24s to do: %s\n", "", l.Expected, "", l.Advice)
			}
		}
		threads := slices.SortedStableFunc(slices.Values(r.Workload.Threads), func(a, b result.Thread) int {
			return cmp.Or(cmp.Compare(b.Migrations, a.Migrations), cmp.Compare(b.RunNS, a.RunNS))
		})
		rows := text.NewColumns(&out, 0)
		fmt.Fprintln(rows, "  THREAD\tNAME\tMAY USE\tRAN ON\tMIGRATIONS\tRAN")
		shown := min(len(threads), maxThreadRows)
		for _, t := range threads[:shown] {
			moved, ran := "not known", "not known"
			if t.Migrations >= 0 {
				moved = fmt.Sprint(t.Migrations)
			}
			if t.RunNS >= 0 {
				ran = time.Duration(t.RunNS).Round(time.Millisecond).String()
			}
			fmt.Fprintf(rows, "  %d\t%s\t%s\t%s\t%s\t%s\n", t.TID, t.Name, t.CPUs, t.Ran, moved, ran)
		}
		_ = rows.Flush() // a buffer takes all
		if more := len(threads) - shown + r.Workload.Omitted; more > 0 {
			fmt.Fprintf(&out, "  and %d others (-o json)\n", more)
		}
		if r.Outcome != "" {
			fmt.Fprintf(&out, "  %s\n", r.Outcome)
		}
	}
	return out.Bytes()
}

// watched prints a look: whole as JSON, or the first as a table and of later ones what changed.
func (c *inspectCall) watched(stdout io.Writer, one inspected, before map[string]v1alpha1.ProofState) error {
	if c.form == "json" {
		return json.NewEncoder(stdout).Encode(one)
	}
	var out bytes.Buffer
	first := len(before) == 0
	if first {
		out.Write(inspectTable([]inspected{one}))
	}
	for _, l := range one.Lines {
		key, _, _ := strings.Cut(l.Found, ": ") // a check has a line for each interface
		if !slices.ContainsFunc(one.Workload.Interfaces, func(e result.Evidence) bool { return e.Interface == key }) {
			key = ""
		}
		key += l.Check
		if was := cmp.Or(before[key], "not there"); !first && was != l.State {
			fmt.Fprintf(&out, "%s %s/%s %s: %s, was %s: %s\n", one.Workload.Time.Local().Format(time.TimeOnly), one.Namespace, one.Pod, l.Check, l.State, was, l.Found)
		}
		before[key] = l.State
	}
	return emit(stdout, out.Bytes(), nil)
}

// follow passes on each inspection in an agent's log until it ends, also after a connection breaks,
// or if the kubelet provides the log a moment later.
func (c *inspectCall) follow(ctx context.Context, pod *corev1.Pod, own string, stays func() (bool, error), look func(result.Inspection) error) error {
	var latest time.Time
	seen, problem := false, result.ErrMissing
	for tries := 4; tries > 0; {
		over, err := stays()
		if err != nil {
			return err
		}
		if over {
			tries--
		}
		log, err := c.log(ctx, client.ObjectKeyFromObject(pod), own, true)
		if apierrors.IsForbidden(err) {
			return err
		} else if problem = err; err != nil {
			continue
		}
		for found, err := range result.Inspections(log) {
			switch {
			case err != nil:
				problem = err
				continue
			case seen && found.Workload != nil && !found.Workload.Time.After(latest):
				continue
			}
			now := &corev1.Pod{}
			if err = c.api.Get(ctx, client.ObjectKeyFromObject(pod), now); err == nil {
				*pod = *now
			} // else stays reports what lasts
			if err = look(found); err != nil {
				return err
			}
			seen, latest = true, found.Workload.Time
		}
		if _ = log.Close(); over && seen {
			return nil
		}
	}
	return fmt.Errorf("reading the inspection: %w; is %s a Tailgate bench image?", cmp.Or(problem, result.ErrMissing), c.image)
}

func (c *inspectCall) await(ctx context.Context, pod *corev1.Pod, own string) (over bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	last := "the kubelet has not started it"
	if slices.ContainsFunc(pod.Status.EphemeralContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == own && s.State.Running != nil }) {
		last = "the agent still runs, as beside a program that leaves it no CPU time"
	}
	for pause(ctx, inspectPoll) {
		if err := c.api.Get(ctx, client.ObjectKeyFromObject(pod), pod); apierrors.IsNotFound(err) {
			return true, errors.New("the pod was deleted during the inspection")
		} else if err != nil {
			last = oneLine(err)
			continue
		}
		for _, s := range pod.Status.EphemeralContainerStatuses {
			switch end, waiting := s.State.Terminated, s.State.Waiting; {
			case s.Name != own:
			case end != nil && end.ExitCode == 0:
				return true, nil
			case end != nil:
				t, _ := result.ParseTermination(end.Message) // or the message is not the agent's
				return true, fmt.Errorf("the agent ended with exit code %d (%s): %s", end.ExitCode, end.Reason, text.OneLine(cmp.Or(t.Message, end.Message, "without a message"), 400))
			case waiting != nil:
				last = text.OneLine(waiting.Reason+": "+waiting.Message, 400)
				if slices.Contains([]string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}, waiting.Reason) {
					return true, fmt.Errorf("image %s cannot be pulled, for which only the pod's own imagePullSecrets count: %s", c.image, last)
				}
			default:
				return false, nil
			}
		}
	}
	return true, fmt.Errorf("no inspection within %s (%s); raise --timeout, or see kubectl describe pod", c.timeout, last)
}
