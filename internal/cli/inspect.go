package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/rand"
	stats "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/judge"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/proof"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

func newInspect(c *cluster) *cobra.Command {
	call := &inspectCall{cluster: c}
	cmd := &cobra.Command{
		Use:   "inspect [POD|pod/NAME|deploy/NAME|sts/NAME...]",
		Short: "Check CPUs, threads, NUMA nodes, device and interrupts of a running pod of your own",
		Long: "Check the resources of a container of a running pod: exclusive CPUs, every thread, NUMA nodes of CPUs, memory and device, VF or\n" +
			"PF, MTU, link, interrupts, quota. Each line is Proved, Failed, Unknown or Noted. A line that is Failed or Unknown has the\n" +
			"remedy.\n\n" +
			"The command adds an ephemeral container with the agent to the pod, with the user, the group and the rights of the container. The\n" +
			"ephemeral container ends within seconds, and stays in the pod's list until the pod is deleted. While it runs, its memory of less\n" +
			"than 32 MiB counts in the pod: the command refuses a pod that may have less memory left under its limit. The command starts no\n" +
			"process in the inspected container, and neither stops nor restarts the container.\n\n" +
			"With --watch, the ephemeral container repeats the inspection until --watch-for is over, even if the command ends earlier. The\n" +
			"command prints each change of a check, or, as JSON, a line for each inspection. Only the first inspection can prove\n" +
			"CPUsExclusive: the ephemeral container keeps the shared CPUs of its start. The watch ends if the pod is deleted, or if the\n" +
			"container restarts or has less than 32 MiB of memory left. The worst inspection determines the exit code.\n\n" +
			"With --from node, a privileged pod on the node inspects instead. The command deletes that pod afterwards, and adds nothing to the\n" +
			"inspected pod, whose free memory does not matter. The privileged pod sees processes of other users, masked files of the kernel,\n" +
			"and which traffic Onload carries: --require then accepts Acceleration. --from node/NAMESPACE names a namespace that allows it.\n\n" +
			"With --require or --like, the exit codes are:\n\n" +
			"  0  every required check is Proved, in every pod\n" +
			"  1  at least one check is Failed\n" +
			"  2  no check is Failed, but at least one is Unknown or Noted\n" +
			"  3  no check is Failed, but a pod cannot be inspected\n\n" +
			"The command needs ClusterRole tailgate-inspect in the namespace (--from node: and tailgate-inspect-node), and no operator. docs/inspect.md describes all checks.",
		Example: "  " + name + " inspect pod/feed-0 -n trading\n" +
			"  " + name + " inspect sts/feed -c handler --require CPUsExclusive,NUMALocal,Function=VF,MTU=9000\n" +
			"  " + name + " inspect -l app=feed --like lbench/x2522\n" +
			"  " + name + " inspect -l app=feed --watch=30s --watch-for 1h\n" +
			"  " + name + " inspect feed-0 --from node/kube-system --require Acceleration",
		Args:        takes("pods, Deployments or StatefulSets", 0, math.MaxInt),
		Annotations: map[string]string{exitsByVerdict: "true", removesPods: "true"},
		RunE: func(cmd *cobra.Command, args []string) error {
			return call.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&call.container, "container", "c", "", "container; default: that of annotation kubectl.kubernetes.io/default-container, or the first")
	flags.StringVarP(&call.selector, "selector", "l", "", "inspect the running pods with these labels, such as app=feed")
	outputFlag(cmd, &call.form, "table", "json")
	flags.StringVar(&call.require, "require", "", "checks that must be Proved, such as CPUsExclusive,NUMALocal,Function=VF,MTU=9000")
	flags.StringVar(&call.like, "like", "", "a LatencyBenchmark, NAME or NAME/VARIANT, whose client had the conditions that the pod must have")
	flags.StringVar(&call.iface, "interface", "", "interface of the pod; default: those that are devices or that Multus attached, or else all")
	flags.StringVar(&call.image, "image", "", "bench image of the agent; default: that of the manager")
	flags.StringVar(&call.from, "from", "", "node or node/NAMESPACE: inspect once by a privileged pod on the node, in this namespace, instead of an ephemeral container")
	flags.BoolVar(&call.memoryFree, "memory-free", false, "inspect although the memory that the pod uses is not known: you know that "+pods.EphemeralMemory.String()+" are free below its limit")
	flags.DurationVar(&call.timeout, "timeout", time.Minute, "time limit of each pod, including the pull of the image")
	flags.DurationVar(&call.every, "watch", 0, "repeat the inspection, and show what changes; --watch=30s gives the time between two inspections, 5s or more")
	flags.Lookup("watch").NoOptDefVal = "10s"
	flags.DurationVar(&call.length, "watch-for", 0, fmt.Sprintf("time after which a watch ends, at most %s; default: 10m", longestWatch))
	return cmd
}

type inspectCall struct {
	*cluster
	container, selector, form, require, like, iface, image, from string
	memoryFree                                                   bool
	timeout, every, length                                       time.Duration

	api          client.Client
	policy       corev1.PullPolicy
	requirements []string
	asked        proof.WorkloadPod
	benchmark    *likened
}

type inspected struct {
	Namespace   string                  `json:"namespace"`
	Pod         string                  `json:"pod"`
	Container   string                  `json:"container"`
	Node        string                  `json:"node"`
	InspectedBy string                  `json:"inspectedBy"`       // an ephemeral container, which stays, or the helper pod
	Outcome     v1alpha1.VerdictOutcome `json:"outcome,omitempty"` // by the requirements; empty without any
	Lines       []proof.WorkloadLine    `json:"lines"`
	Workload    *result.Workload        `json:"workload"`
}

func (c *inspectCall) check(args []string) (err error) {
	switch {
	case len(args) == 0 && c.selector == "":
		return errors.New("inspect takes the names of pods, Deployments or StatefulSets, or --selector")
	case len(args) > 0 && c.selector != "":
		return errors.New("--selector and names exclude each other; give one of them")
	case c.from != "" && c.from != "node" && !strings.HasPrefix(c.from, "node/"):
		return fmt.Errorf("--from %s: give node or node/NAMESPACE", c.from)
	case c.from != "" && c.every != 0:
		return errors.New("--watch and --from exclude each other; give one of them")
	case c.timeout < leastTimeout:
		return fmt.Errorf("--timeout: no pod can be inspected in %s; give %s or more", c.timeout, leastTimeout)
	case c.every == 0 && c.length != 0:
		return errors.New("--watch-for belongs to --watch; add that")
	case c.every != 0:
		c.length = cmp.Or(c.length, 10*time.Minute)
		if c.every < leastTimeout || c.length < c.every || c.length > longestWatch {
			return fmt.Errorf("--watch=%s --watch-for %s: give an interval of %s or more, and %s or less as a whole", c.every, c.length, leastTimeout, longestWatch)
		}
	}
	if c.asked.FromNode = c.from != ""; c.require != "" {
		if c.requirements, err = proof.ParseRequirements(c.require, &c.asked); err != nil {
			return fmt.Errorf("--require: %w", err)
		}
	}
	return nil
}

func (c *inspectCall) run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if err := c.check(args); err != nil {
		return err
	}
	api, namespace, err := c.client()
	if err != nil {
		return err
	}
	if c.api = api; c.like != "" {
		if c.benchmark, err = c.likeness(ctx); err != nil {
			return fmt.Errorf("--like: %w", err)
		}
		c.requirements = append(c.requirements, proof.Like)
	}
	targets, err := c.targets(ctx, namespace, args)
	if err != nil {
		return granted(err)
	}
	if c.every != 0 && len(targets) > maxWatched {
		return fmt.Errorf("these are %d pods, and one watch takes at most %d: name fewer", len(targets), maxWatched)
	}
	if err := c.findImage(ctx); err != nil {
		return err
	}
	reports, code := []inspected{}, exitPass
	var lock sync.Mutex
	var group errgroup.Group
	if c.every == 0 {
		group.SetLimit(1)
	}
	for n := range targets {
		group.Go(func() error {
			before := map[string]v1alpha1.ProofState{}
			err := c.inspect(ctx, &targets[n], func(one inspected) error {
				lock.Lock()
				defer lock.Unlock()
				if one.Outcome != "" {
					code = worse(code, exitCode(one.Outcome))
				}
				if c.every == 0 {
					reports = append(reports, one)
					return nil
				}
				return c.watched(stdout, one, before)
			})
			if err != nil && ctx.Err() != nil {
				err = errors.New("interrupted; what inspects the pod ends by itself")
			}
			if err != nil {
				lock.Lock()
				defer lock.Unlock()
				code = worse(code, exitError)
				fmt.Fprintf(stderr, "%s: pod %s/%s: %s\n", name, targets[n].Namespace, targets[n].Name, oneLine(granted(err)))
			}
			return nil
		})
	}
	_ = group.Wait() // each pod has reported its error
	switch {
	case c.every != 0:
	case c.form == "json":
		err = report.WriteJSON(stdout, reports)
	default:
		err = emit(stdout, inspectTable(reports), nil)
	}
	if err != nil || code == exitPass {
		return err
	}
	return ended{code: code}
}

// targets returns the pods that are named, those of named workloads, or those of the selector.
func (c *inspectCall) targets(ctx context.Context, namespace string, args []string) (all []corev1.Pod, err error) {
	if c.selector != "" {
		return c.selected(ctx, namespace, "selector "+c.selector, c.selector)
	}
	for _, arg := range args {
		if _, err := time.ParseDuration(arg); err == nil && c.every != 0 {
			return nil, fmt.Errorf("%s is not the name of a pod; write --watch=%s", arg, arg)
		}
		kind, name, qualified := strings.Cut(arg, "/")
		if !qualified {
			kind, name = "pod", arg
		}
		key, scale := client.ObjectKey{Namespace: namespace, Name: name}, &autoscalingv1.Scale{}
		var some []corev1.Pod
		switch strings.TrimSuffix(strings.ToLower(kind), ".apps") {
		case "pod", "pods", "po":
			some = []corev1.Pod{{}}
			err = c.api.Get(ctx, key, &some[0])
		case "deploy", "deployment", "deployments":
			err = c.api.SubResource("scale").Get(ctx, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, scale)
		case "sts", "statefulset", "statefulsets":
			err = c.api.SubResource("scale").Get(ctx, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, scale)
		default:
			err = errors.New("this is neither pod/NAME, deploy/NAME nor sts/NAME")
		}
		if err == nil && some == nil {
			some, err = c.selected(ctx, namespace, arg, scale.Status.Selector)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", arg, err)
		}
		all = append(all, some...)
	}
	return all, nil
}

func (c *inspectCall) selected(ctx context.Context, namespace, of, selector string) ([]corev1.Pod, error) {
	parsed, err := labels.Parse(selector)
	if err != nil {
		return nil, fmt.Errorf("--selector: %w", err)
	}
	all := &corev1.PodList{}
	if err := c.api.List(ctx, all, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: parsed}); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	all.Items = slices.DeleteFunc(all.Items, func(p corev1.Pod) bool { return pods.Ended(&p) || p.DeletionTimestamp != nil })
	if len(all.Items) == 0 {
		return nil, fmt.Errorf("%s has no running pod in namespace %s", of, namespace)
	}
	return all.Items, nil
}

func granted(err error) error {
	if apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "PodSecurity") {
		return fmt.Errorf("%w: grant ClusterRole tailgate-inspect (kubectl create rolebinding inspect -n NAMESPACE --clusterrole=tailgate-inspect --user=USER)", err)
	}
	return err
}

func (c *inspectCall) findImage(ctx context.Context) error {
	if c.policy = corev1.PullIfNotPresent; c.image != "" {
		return nil
	}
	_, args, err := managerOf(ctx, c.api, mayRunFor(ctx, c.api))
	c.image, c.policy = flagValue(args, "bench-image"), corev1.PullPolicy(cmp.Or(flagValue(args, "bench-image-pull-policy"), string(c.policy)))
	switch {
	case err != nil && !apierrors.IsForbidden(err):
		return err
	case c.image == "":
		return errors.New("no bench image is known, as no manager was found or may be read; give one with --image")
	}
	return nil
}

type likened struct {
	name     string
	criteria v1alpha1.Criteria
	evidence result.Evidence
}

func (c *inspectCall) likeness(ctx context.Context) (*likened, error) {
	benchmark, variant, err := cutVariant(strings.TrimPrefix(c.like, "lbench/"))
	if err != nil {
		return nil, err
	}
	m, err := c.load(ctx, benchmark)
	if err != nil {
		return nil, err
	}
	if err := onePair("--like", m); err != nil {
		return nil, err
	}
	found := &likened{name: c.like, criteria: ptr.Deref(m.Object.Spec.Criteria, v1alpha1.Criteria{})}
	var variants []string
	for _, run := range m.Runs {
		if of := run.Client.Variant; variant == "" || of == variant {
			found.evidence = run.Client.Evidence
			variants = append(variants, of)
		}
	}
	switch variants = slices.Compact(slices.Sorted(slices.Values(variants))); {
	case len(variants) == 0:
		return nil, fmt.Errorf("no results of variant %q: %w", variant, noResults(m.Object))
	case len(variants) > 1:
		return nil, fmt.Errorf("%s has several variants; name one, as %s/%s", benchmark, benchmark, variants[0])
	}
	return found, nil
}

// line compares a workload, by its first interface with the benchmark's function, or the first.
func (b *likened) line(w *result.Workload) proof.WorkloadLine {
	own := w.Interfaces[max(0, slices.IndexFunc(w.Interfaces, func(e result.Evidence) bool {
		return e.Facts["nic.function"] == b.evidence.Facts["nic.function"]
	}))]
	differs, excused, hidden := judge.Alike(b.criteria, b.evidence, own, !slices.Contains(w.Unread, "environment"))
	l := proof.WorkloadLine{ProofLine: v1alpha1.ProofLine{
		Check: proof.Like, State: v1alpha1.ProofProved, Expected: "the conditions of the client of " + b.name, Found: "equal, by interface " + own.Interface,
	}}
	switch {
	case len(differs) > 0:
		l.State, l.Found, l.Advice = v1alpha1.ProofFailed, text.List(differs, maxDifferences, "; "), "give the pod the conditions of the benchmark, or measure it under those of the pod; criteria.ignoreDifferences of the benchmark excuses keys"
	case len(hidden) > 0:
		l.State, l.Found, l.Advice = v1alpha1.ProofUnknown, "not known of the pod: "+text.List(hidden, maxDifferences, ", "), "run the program as the user and group of its container, with the network and the node of the benchmark"
	}
	if len(excused) > 0 {
		l.Found += "; excused: " + text.List(excused, maxDifferences, "; ")
	}
	return l
}

const (
	maxWatched     = 50 // pods, each with a connection of its own
	longestWatch   = time.Hour
	maxDifferences = 8
	maxThreadRows  = 20 // of the threads that moved or ran most
)

// inspect inspects a pod once or, in a watch, again and again, and passes on what each look found.
func (c *inspectCall) inspect(ctx context.Context, pod *corev1.Pod, see func(inspected) error) (problem error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout+c.length+min(c.timeout, c.length)) // the last look may take long
	defer cancel()
	// Read again: earlier pods took time.
	if err := c.api.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		return err
	}
	target, status, err := pods.ContainerOf(pod, c.container)
	if err != nil {
		return err
	}
	if err := pods.Uninspectable(pod, status, c.from != ""); err != nil {
		return err
	}
	own, helper := pods.InspectPrefix+rand.String(5), pod
	agent := own // the name of its container
	if c.from != "" {
		agent = pods.Container
		if helper, err = c.addHelper(ctx, pod, status, own); helper != nil {
			defer func() { problem = errors.Join(problem, c.remove(ctx, helper)) }()
		}
	} else {
		err = c.addEphemeral(ctx, pod, target, status, own)
	}
	if err != nil {
		return err
	}
	stays := func() (over bool, err error) {
		over, failure := c.await(ctx, helper, agent)
		if now := (&corev1.Pod{}); helper != pod && ctx.Err() == nil {
			if err := c.api.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
				return true, fmt.Errorf("the pod cannot be read any more: %w", err)
			}
			*pod = *now
		}
		_, after, err := pods.ContainerOf(pod, target.Name)
		switch {
		case pod.DeletionTimestamp != nil:
			return true, errors.New("the pod is being deleted; inspect the pod that replaces it")
		case err != nil || after.ContainerID != status.ContainerID || after.RestartCount != status.RestartCount || after.State.Running == nil:
			return true, fmt.Errorf("container %s ended or restarted during the inspection; inspect it again when it runs", target.Name)
		}
		return over, failure
	}
	var first *proof.WorkloadLine
	look := func(found result.Inspection) error {
		if !found.OfWorkload() {
			return fmt.Errorf("image %s has an agent of another version; use the bench image of this release", c.image)
		}
		known, err := c.workloadPod(ctx, pod, target)
		if err != nil {
			return err
		}
		r := inspected{Namespace: pod.Namespace, Pod: pod.Name, Container: target.Name, Node: pod.Spec.NodeName, InspectedBy: own, Workload: found.Workload}
		r.Lines = proof.Workload(known, *found.Workload)
		if c.benchmark != nil {
			r.Lines = append(r.Lines, c.benchmark.line(found.Workload))
		}
		judged, exclusive := r.Lines, slices.IndexFunc(r.Lines, func(l proof.WorkloadLine) bool { return l.Check == v1alpha1.ProofCPUsExclusive })
		if first == nil {
			first = &judged[exclusive]
		} else {
			// The agent has the shared CPUs of its start; by now, they may be others.
			judged = append(slices.Clone(r.Lines), *first)
			if r.Lines[exclusive].State == v1alpha1.ProofProved {
				r.Lines = slices.Delete(r.Lines, exclusive, exclusive+1)
			}
		}
		if len(c.requirements) > 0 {
			r.Outcome = proof.Met(c.requirements, judged)
		}
		return see(r)
	}
	err = c.follow(ctx, helper, agent, stays, look)
	if helper != pod && apierrors.IsForbidden(err) {
		err = helperRefused(helper.Namespace, err)
	}
	return err
}

const (
	// usageAge bounds a usage's age: a kubelet measures every 10 to 15 s, and is asked as often.
	usageAge = 45 * time.Second
	// settled is for how long all containers had to run: a program that starts fills its memory.
	settled = 30 * time.Second
)

// roomIn fails unless the inspection surely has room: the kernel would end the largest process.
func (c *inspectCall) roomIn(ctx context.Context, pod *corev1.Pod) error {
	limit, need := pods.MemoryLimit(pod), pods.EphemeralMemory
	if limit == nil {
		return nil
	}
	if r := pod.Spec.Resources; r != nil && c.every != 0 && !r.Limits.Memory().IsZero() {
		return errors.New("its memory limit is that of the pod, and a watch sees only that of a container: inspect it without --watch")
	}
	used, at, err := c.memoryOf(ctx, pod)
	for _, s := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		run, last := s.State.Running, s.LastTerminationState.Terminated
		switch {
		case err != nil && run != nil && time.Since(run.StartedAt.Time) < usageAge:
			err = fmt.Errorf("container %s started less than %s ago, and was not measured; try again in %s", s.Name, usageAge, usageAge)
		case err != nil:
		case time.Since(at) > usageAge:
			err = fmt.Errorf("its last measurement is of %s; try again in %s", at.Format(time.TimeOnly), usageAge)
		case run != nil && at.Sub(run.StartedAt.Time) < settled:
			err = fmt.Errorf("container %s started less than %s before its last measurement; try again in %s", s.Name, settled, usageAge)
		case last != nil && last.Reason == "OOMKilled":
			err = fmt.Errorf("container %s has used up its limit before (OOMKilled)", s.Name)
		}
	}
	switch {
	case limit.Cmp(need) <= 0:
		return fmt.Errorf("its memory limit is %s, and the inspection needs %s below the limit: raise it, or inspect with --from node", limit.String(), need.String())
	case used+need.Value() > limit.Value():
		return fmt.Errorf("it uses %d of %d MiB of memory, and the inspection needs %s below the limit, or the kernel would end a process: raise the memory limit, or inspect with --from node",
			used>>20, limit.Value()>>20, need.String())
	case err != nil && !c.memoryFree:
		return fmt.Errorf("how much of its memory limit %s is used, is not known (%w), and the inspection needs %s: install metrics-server, say --memory-free if you know that this is free, or inspect with --from node",
			limit.String(), err, need.String())
	}
	return nil
}

// memoryOf returns a pod's used bytes and their time, from the metrics API or else its kubelet.
func (c *inspectCall) memoryOf(ctx context.Context, pod *corev1.Pod) (used int64, at time.Time, err error) {
	var metrics struct {
		Timestamp  time.Time
		Containers []struct{ Usage corev1.ResourceList }
	}
	if err := c.raw(ctx, &metrics, fmt.Sprintf("/apis/metrics.k8s.io/v1beta1/namespaces/%s/pods/%s", pod.Namespace, pod.Name)); err == nil && len(metrics.Containers) > 0 {
		for _, container := range metrics.Containers {
			used += container.Usage.Memory().Value()
		}
		return used, metrics.Timestamp, nil
	}
	var summary stats.Summary
	if err := c.raw(ctx, &summary, "/api/v1/nodes/"+pod.Spec.NodeName+"/proxy/stats/summary", "only_cpu_and_memory"); err != nil {
		return 0, at, fmt.Errorf("no metrics, and from the kubelet, for whose report nodes/proxy is needed: %s", oneLine(err))
	}
	for _, p := range summary.Pods {
		if m := p.Memory; p.PodRef.UID == string(pod.UID) && m != nil && ptr.Deref(m.WorkingSetBytes, 0) > 0 {
			return int64(*m.WorkingSetBytes), m.Time.Time, nil
		}
	}
	return 0, at, errors.New("neither the metrics API nor the kubelet knows it")
}

func (c *inspectCall) workloadPod(ctx context.Context, pod *corev1.Pod, target *corev1.Container) (proof.WorkloadPod, error) {
	known, err := c.asked.Of(pod, target)
	node := &corev1.Node{}
	if err := c.api.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node); err == nil {
		known.NodeBootID = node.Status.NodeInfo.BootID
	}
	return known, err
}
