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
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

func inspectTable(all []inspected) []byte {
	var out bytes.Buffer
	for n, r := range all {
		if n > 0 {
			out.WriteByte('\n')
		}
		by := r.InspectedBy + ", which stays in the pod's list"
		if r.Workload.FromNode {
			by = "a pod on the node, which is deleted"
		}
		fmt.Fprintf(&out, "pod %s/%s, container %s, on %s; inspected by %s\n", r.Namespace, r.Pod, r.Container, r.Node, by)
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
func (c *inspectCall) follow(ctx context.Context, helper *corev1.Pod, own string, stays func() (bool, error), look func(result.Inspection) error) error {
	seen, problem := 0, result.ErrMissing // by number: the clock of a node may jump, and a log has an end only
	for tries := 4; tries > 0; {
		over, err := stays()
		if err != nil {
			return err
		}
		if over {
			tries--
		}
		log, err := c.log(ctx, client.ObjectKeyFromObject(helper), own, true)
		if apierrors.IsForbidden(err) {
			return err
		} else if problem = err; err != nil {
			continue
		}
		for found, err := range result.Inspections(log) {
			if err != nil {
				problem = err
				continue
			}
			number := 1
			if found.Workload != nil {
				number = max(1, found.Workload.Number)
			}
			switch {
			case number <= seen:
				continue
			case number > seen+1:
				return fmt.Errorf("inspections %d to %d are no longer in the log: watch again", seen+1, number-1)
			}
			now := &corev1.Pod{}
			if err = c.api.Get(ctx, client.ObjectKeyFromObject(helper), now); err == nil {
				*helper = *now
			} // else stays reports what lasts
			if err = look(found); err != nil {
				return err
			}
			seen = number
		}
		if _ = log.Close(); over && seen > 0 {
			return nil
		}
	}
	return fmt.Errorf("reading the inspection: %w; is %s a Tailgate bench image?", cmp.Or(problem, result.ErrMissing), c.image)
}

func (c *inspectCall) await(ctx context.Context, helper *corev1.Pod, own string) (over bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	last := "the kubelet has not started it"
	if slices.ContainsFunc(slices.Concat(helper.Status.EphemeralContainerStatuses, helper.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool { return s.Name == own && s.State.Running != nil }) {
		last = "the agent still runs, as beside a program that leaves it no CPU time"
	}
	for pause(ctx, inspectPoll) {
		if err := c.api.Get(ctx, client.ObjectKeyFromObject(helper), helper); apierrors.IsNotFound(err) {
			return true, errors.New("the pod was deleted during the inspection")
		} else if err != nil {
			last = oneLine(err)
			continue
		}
		if c.from != "" && helper.Status.Reason != "" { // by the kubelet, which may not start it
			return true, fmt.Errorf("the helper pod ended: %s: %s", helper.Status.Reason, text.OneLine(helper.Status.Message, 400))
		}
		for _, s := range slices.Concat(helper.Status.EphemeralContainerStatuses, helper.Status.ContainerStatuses) {
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
					return true, fmt.Errorf("image %s cannot be pulled, for which only the imagePullSecrets of pod %s/%s count: %s", c.image, helper.Namespace, helper.Name, last)
				}
			default:
				return false, nil
			}
		}
	}
	return true, fmt.Errorf("no inspection within %s (%s); raise --timeout, or see kubectl describe pod", c.timeout, last)
}

// addHelper returns a pod that must be removed, also with an error: it may have been created.
func (c *inspectCall) addHelper(ctx context.Context, pod *corev1.Pod, status *corev1.ContainerStatus, own string) (*corev1.Pod, error) {
	_, namespace, _ := strings.Cut(c.from, "/")
	helper := pods.FromNode(pod, status, cmp.Or(namespace, pod.Namespace), own, c.image, c.policy, c.iface, c.timeout)
	wanted := helper.DeepCopy()
	err := c.api.Create(ctx, helper)
	switch changed := pods.Changed(wanted, helper); {
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		return nil, helperRefused(helper.Namespace, err)
	case err != nil:
		return helper, helperRefused(helper.Namespace, err)
	case len(changed) > 0:
		return helper, fmt.Errorf("a webhook changed the helper pod (%s): exclude namespace %s from it, or give another one with --from node/NAMESPACE", text.List(changed, maxDifferences, "; "), helper.Namespace)
	}
	return helper, nil
}

func (c *inspectCall) addEphemeral(ctx context.Context, pod *corev1.Pod, target *corev1.Container, status *corev1.ContainerStatus, own string) error {
	if err := c.roomIn(ctx, pod); err != nil {
		return err
	}
	before := pod.DeepCopy()
	agent := pods.Ephemeral(pod, target, status, own, c.image, c.policy, c.iface)
	if c.every != 0 {
		agent.Command = append(agent.Command, c.every.String(), c.length.String())
	}
	pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, agent)
	if err := c.api.SubResource("ephemeralcontainers").Patch(ctx, pod, client.StrategicMergeFrom(before)); err != nil {
		if strings.Contains(err.Error(), "PodSecurity") {
			err = fmt.Errorf("its own containers may violate the level of the namespace, so that none can be added: inspect it with --from node/NAMESPACE: %w", err)
		}
		return fmt.Errorf("adding an ephemeral container: %w", err)
	}
	return nil
}

func helperRefused(namespace string, err error) error {
	switch {
	case strings.Contains(err.Error(), "PodSecurity"):
		return fmt.Errorf("namespace %s allows no privileged pod; give another one with --from node/NAMESPACE: %w", namespace, err)
	case strings.Contains(err.Error(), " cannot "): // the words of the API server for a missing right
		return fmt.Errorf("%s: grant ClusterRole tailgate-inspect-node (kubectl create rolebinding inspect-node -n %s --clusterrole=tailgate-inspect-node --user=USER)", oneLine(err), namespace)
	}
	return fmt.Errorf("creating a helper pod in namespace %s: %s", namespace, oneLine(err))
}

func (c *inspectCall) remove(ctx context.Context, helper *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalLimit)
	defer cancel()
	if err := client.IgnoreNotFound(c.api.Delete(ctx, helper)); err != nil {
		return fmt.Errorf("kubectl delete pod -n %s %s, which remains: %w", helper.Namespace, helper.Name, helperRefused(helper.Namespace, err))
	}
	return nil
}
