package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/rand"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
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
		Short: "Prove where a running pod of yours runs: CPUs, threads, NUMA nodes, device, interrupts",
		Long: "Prove, with one command, where a container of a running pod runs: CPUs of its own, every thread, NUMA nodes of CPUs, memory and\n" +
			"device, VF or PF, MTU, link, interrupts, quota. Each line is Proved, Failed or Unknown, or only notes a value; what is not Proved\n" +
			"says what repairs it, or what would make it provable.\n\n" +
			"It adds an ephemeral container with the agent to the pod: with the user and the group of the container, and no more rights. It\n" +
			"ends within seconds, and stays in the list of the pod until the pod is deleted. Meanwhile its memory, less than 32 MiB, counts in\n" +
			"the pod: a pod that may not have that much left under its limit is refused. It starts nothing in the container, and neither stops\n" +
			"nor restarts it.\n\n" +
			"With --require or --like, the exit code is that of gate:\n\n" +
			"  0  every required check is Proved, in every pod\n" +
			"  1  at least one is Failed\n" +
			"  2  none is Failed, but at least one is Unknown, or only notes a value\n" +
			"  3  none is Failed, but a pod cannot be inspected\n\n" +
			"The command needs ClusterRole tailgate-inspect in the namespace, and no operator. docs/inspect.md describes all checks.",
		Example: "  " + name + " inspect pod/feed-0 -n trading\n" +
			"  " + name + " inspect sts/feed -c handler --require CPUsExclusive,NUMALocal,Function=VF,MTU=9000\n" +
			"  " + name + " inspect -l app=feed --like lbench/x2522",
		Args:        takes("pods, Deployments or StatefulSets", 0, math.MaxInt),
		Annotations: map[string]string{exitsByVerdict: "true"},
		RunE: func(cmd *cobra.Command, args []string) error {
			return call.run(cmd.Context(), args, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&call.container, "container", "c", "", "container; default: that of annotation kubectl.kubernetes.io/default-container, or the first")
	flags.StringVarP(&call.selector, "selector", "l", "", "inspect the running pods with these labels, such as app=feed")
	flags.StringVarP(&call.form, "output", "o", inspectForms[0], "format: "+strings.Join(inspectForms, ", "))
	flags.StringVar(&call.require, "require", "", "checks that must be Proved, such as CPUsExclusive,NUMALocal,Function=VF,MTU=9000")
	flags.StringVar(&call.like, "like", "", "a LatencyBenchmark, NAME or NAME/VARIANT, whose client had the conditions that the pod must have")
	flags.StringVar(&call.iface, "interface", "", "interface of the pod; default: those that are devices or that Multus attached, or else all")
	flags.StringVar(&call.image, "image", "", "bench image of the agent; default: that of the manager")
	flags.BoolVar(&call.memoryFree, "memory-free", false, "inspect although the memory that the pod uses is not known: you know that "+pods.EphemeralMemory.String()+" are free below its limit")
	flags.DurationVar(&call.timeout, "timeout", time.Minute, "time limit of each pod, including the pull of the image")
	return cmd
}

var inspectForms = []string{"table", "json"}

type inspectCall struct {
	*cluster
	container, selector, form, require, like, iface, image string
	memoryFree                                             bool
	timeout                                                time.Duration

	api          client.Client
	policy       corev1.PullPolicy
	requirements []proof.Requirement
	asked        proof.WorkloadPod
	benchmark    *likened
}

// likened is the evidence that pods must resemble.
type likened struct {
	name     string
	criteria v1alpha1.Criteria
	evidence result.Evidence
}

// inspected is the report about one pod.
type inspected struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	Node      string `json:"node"`
	// Ephemeral is the container that inspected, and stays in the pod's list.
	Ephemeral string `json:"ephemeral"`
	// Outcome is Pass, Fail or Inconclusive by the requirements; empty without any.
	Outcome  v1alpha1.VerdictOutcome `json:"outcome,omitempty"`
	Lines    []proof.WorkloadLine    `json:"lines"`
	Workload *result.Workload        `json:"workload"`
}

func (c *inspectCall) check(args []string) (err error) {
	if err := oneOf("--output", c.form, inspectForms); err != nil {
		return err
	}
	switch {
	case len(args) == 0 && c.selector == "":
		return errors.New("inspect takes the names of pods, Deployments or StatefulSets, or --selector")
	case len(args) > 0 && c.selector != "":
		return errors.New("--selector and names exclude each other; give one of them")
	case c.timeout < leastTimeout:
		return fmt.Errorf("--timeout: no pod can be inspected in %s; give %s or more", c.timeout, leastTimeout)
	}
	if c.require != "" {
		if c.requirements, err = proof.ParseRequirements(c.require, &c.asked); err != nil {
			return fmt.Errorf("--require: %w", err)
		}
	}
	return nil
}

func (c *inspectCall) run(ctx context.Context, args []string, stdout io.Writer) error {
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
		return err
	}
	if err := c.findImage(ctx); err != nil {
		return err
	}
	reports, code := []inspected{}, exitPass
	var refusals []error
	for n := range targets {
		one, err := c.inspect(ctx, &targets[n])
		if err != nil {
			refusals = append(refusals, fmt.Errorf("pod %s/%s: %w", targets[n].Namespace, targets[n].Name, err))
			code = worse(code, exitError)
			continue
		}
		if len(c.requirements) > 0 {
			one.Outcome = proof.Met(c.requirements, one.Lines)
			code = worse(code, map[v1alpha1.VerdictOutcome]int{v1alpha1.VerdictFail: exitFail, v1alpha1.VerdictInconclusive: exitInconclusive}[one.Outcome])
		}
		reports = append(reports, one)
	}
	if c.form == "json" {
		err = report.WriteJSON(stdout, reports)
	} else {
		err = emit(stdout, inspectTable(reports), nil)
	}
	if err != nil || code == exitPass {
		return err
	}
	return ended{code: code, err: joined(refusals)}
}

// joined makes one error of one line of all.
func joined(all []error) error {
	var said []string
	for _, err := range all {
		said = append(said, oneLine(err))
	}
	if len(said) == 0 {
		return nil
	}
	return errors.New(strings.Join(said, "; "))
}

// likeness reads the evidence of the last run of a benchmark, or of its variant.
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
	var variants []string
	var found *likened
	for _, run := range m.Runs {
		if !slices.Contains(variants, run.Client.Variant) {
			variants = append(variants, run.Client.Variant)
		}
		if variant == "" || run.Client.Variant == variant {
			found = &likened{name: c.like, criteria: ptr.Deref(m.Object.Spec.Criteria, v1alpha1.Criteria{}), evidence: run.Client.Evidence}
		}
	}
	switch {
	case found == nil:
		return nil, fmt.Errorf("%s has no results of variant %q; there are %s", benchmark, variant, strings.Join(variants, ", "))
	case variant == "" && len(variants) > 1:
		return nil, fmt.Errorf("%s has several variants; name one, as %s/%s", benchmark, benchmark, variants[0])
	}
	return found, nil
}

// targets returns the pods that are named, those of workloads that are named, or those of the selector.
func (c *inspectCall) targets(ctx context.Context, namespace string, args []string) ([]corev1.Pod, error) {
	list := func(of string, selector labels.Selector) ([]corev1.Pod, error) {
		all := &corev1.PodList{}
		if err := c.api.List(ctx, all, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
			return nil, granted(fmt.Errorf("listing pods: %w", err))
		}
		all.Items = slices.DeleteFunc(all.Items, func(p corev1.Pod) bool { return pods.Ended(&p) || p.DeletionTimestamp != nil })
		if len(all.Items) == 0 {
			return nil, fmt.Errorf("%s has no running pod in namespace %s", of, namespace)
		}
		return all.Items, nil
	}
	if c.selector != "" {
		selector, err := labels.Parse(c.selector)
		if err != nil {
			return nil, fmt.Errorf("--selector: %w", err)
		}
		return list("selector "+c.selector, selector)
	}
	var all []corev1.Pod
	for _, arg := range args {
		kind, name, qualified := strings.Cut(arg, "/")
		if !qualified {
			kind, name = "pod", arg
		}
		var o client.Object
		var selector func() *metav1.LabelSelector
		switch strings.ToLower(kind) {
		case "pod", "pods", "po":
			o = &corev1.Pod{}
		case "deploy", "deployment", "deployments", "deployment.apps":
			d := &appsv1.Deployment{}
			o, selector = d, func() *metav1.LabelSelector { return d.Spec.Selector }
		case "sts", "statefulset", "statefulsets", "statefulset.apps":
			s := &appsv1.StatefulSet{}
			o, selector = s, func() *metav1.LabelSelector { return s.Spec.Selector }
		default:
			return nil, fmt.Errorf("%q is neither pod/NAME, deploy/NAME nor sts/NAME", arg)
		}
		if err := c.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o); err != nil {
			return nil, granted(fmt.Errorf("getting %s: %w", arg, err))
		}
		if pod, ok := o.(*corev1.Pod); ok {
			all = append(all, *pod)
			continue
		}
		parsed, err := metav1.LabelSelectorAsSelector(selector())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", arg, err)
		}
		of, err := list(arg, parsed)
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	return all, nil
}

// granted adds to an error of missing rights what to grant.
func granted(err error) error {
	if apierrors.IsForbidden(err) && !strings.Contains(err.Error(), "PodSecurity") {
		return fmt.Errorf("%w: grant ClusterRole tailgate-inspect in the namespace (kubectl create rolebinding --clusterrole=tailgate-inspect)", err)
	}
	return err
}

func (c *inspectCall) findImage(ctx context.Context) error {
	c.policy = corev1.PullIfNotPresent
	if c.image != "" {
		return nil
	}
	_, args, err := managerOf(ctx, c.api)
	c.policy = corev1.PullPolicy(cmp.Or(flagValue(args, "bench-image-pull-policy"), string(c.policy)))
	if c.image = flagValue(args, "bench-image"); c.image != "" {
		return nil
	}
	if err != nil && !apierrors.IsForbidden(err) {
		return err
	}
	return errors.New("no bench image is known, as no manager was found or may be read; give one with --image")
}

// inspect inspects a container of one pod.
func (c *inspectCall) inspect(ctx context.Context, pod *corev1.Pod) (inspected, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	// Read again: earlier pods took time.
	if err := c.api.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		return inspected{}, granted(err)
	}
	target, status, err := pods.ContainerOf(pod, c.container)
	if err != nil {
		return inspected{}, err
	}
	if err := pods.Uninspectable(pod, status); err != nil {
		return inspected{}, err
	}
	if err := c.roomIn(ctx, pod); err != nil {
		return inspected{}, err
	}
	before, own := pod.DeepCopy(), "tailgate-inspect-"+rand.String(5)
	pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, pods.Ephemeral(pod, target, status, own, c.image, c.policy, c.iface))
	if err := c.api.SubResource("ephemeralcontainers").Patch(ctx, pod, client.StrategicMergeFrom(before)); err != nil {
		return inspected{}, granted(fmt.Errorf("adding an ephemeral container: %w", err))
	}
	if err := c.await(ctx, pod, own); err != nil {
		return inspected{}, err
	}
	log, err := c.log(ctx, client.ObjectKeyFromObject(pod), own)
	if err != nil {
		return inspected{}, granted(fmt.Errorf("reading the log of container %s: %w", own, err))
	}
	defer log.Close()
	found, err := result.ReadInspection(log)
	if err != nil {
		return inspected{}, err
	}
	if found.Workload == nil || len(found.Workload.Interfaces) == 0 {
		return inspected{}, fmt.Errorf("image %s has an agent of another version; use the bench image of this release", c.image)
	}
	_, after, err := pods.ContainerOf(pod, target.Name)
	if err != nil || after.ContainerID != status.ContainerID || after.RestartCount != status.RestartCount {
		return inspected{}, fmt.Errorf("container %s restarted during the inspection; inspect it again", target.Name)
	}
	known, err := c.workloadPod(ctx, pod, target)
	if err != nil {
		return inspected{}, err
	}
	r := inspected{Namespace: pod.Namespace, Pod: pod.Name, Container: target.Name, Node: pod.Spec.NodeName, Ephemeral: own, Workload: found.Workload}
	r.Lines = proof.Workload(known, *found.Workload)
	if b := c.benchmark; b != nil {
		r.Lines = append(r.Lines, b.line(found.Workload))
	}
	return r, nil
}

// roomIn returns an error if the pod may not have the memory that the inspection needs: the kernel would end the pod's largest process.
func (c *inspectCall) roomIn(ctx context.Context, pod *corev1.Pod) error {
	limit := pods.MemoryLimit(pod)
	if limit == nil {
		return nil
	}
	need := pods.EphemeralMemory
	used, err := c.memoryOf(ctx, pod)
	for _, s := range pod.Status.ContainerStatuses {
		if r := s.State.Running; r != nil && time.Since(r.StartedAt.Time) < settled {
			err = fmt.Errorf("container %s started less than %s ago; try again then", s.Name, settled)
		}
	}
	switch room := limit.Value() - used - need.Value(); {
	case limit.Cmp(need) <= 0:
		return fmt.Errorf("its memory limit is %s, and the inspection needs %s below the limit: raise it", limit.String(), need.String())
	case used > 0 && room < 0:
		return fmt.Errorf("it uses %d of %d MiB of memory, and the inspection needs %s below the limit, or the kernel would end a process: raise the memory limit",
			used>>20, limit.Value()>>20, need.String())
	case err != nil && !c.memoryFree:
		return fmt.Errorf("how much of its memory limit %s is used, is not known (%w), and the inspection needs %s: install metrics-server, or say --memory-free if you know that this is free",
			limit.String(), err, need.String())
	}
	return nil
}

// memoryOf returns the memory that a pod uses, in bytes, from the metrics API, or else from its kubelet.
func (c *inspectCall) memoryOf(ctx context.Context, pod *corev1.Pod) (int64, error) {
	metrics := &unstructured.Unstructured{}
	metrics.SetGroupVersionKind(podMetrics)
	if err := c.api.Get(ctx, client.ObjectKeyFromObject(pod), metrics); err == nil {
		var sum resource.Quantity
		containers, _, err := unstructured.NestedSlice(metrics.Object, "containers")
		for _, container := range containers {
			of, ok := container.(map[string]any)
			usage, found, errUsage := unstructured.NestedString(of, "usage", "memory")
			amount, errAmount := resource.ParseQuantity(usage)
			if err = errors.Join(err, errUsage, errAmount); !ok || !found || err != nil {
				return 0, fmt.Errorf("reading its metrics: %w", err)
			}
			sum.Add(amount)
		}
		if len(containers) > 0 {
			return sum.Value(), nil
		}
	}
	config, err := c.config()
	if err != nil {
		return 0, err
	}
	core, err := typedcorev1.NewForConfig(config)
	if err != nil {
		return 0, err
	}
	data, err := core.RESTClient().Get().Resource("nodes").Name(pod.Spec.NodeName).SubResource("proxy", "metrics", "resource").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("no metrics, and from the kubelet: %w", err)
	}
	return workingSet(string(data), pod, time.Now())
}

// settled is how long a container must have run for its usage to be known: what a kubelet or metrics-server says is up to 30 s old.
const settled = 45 * time.Second

// usageAge is the greatest age of a usage that counts: a kubelet measures each 10 s or so.
const usageAge = time.Minute

// workingSet reads the memory of a pod from the metrics of its kubelet: a name with labels, a value, and a time in ms.
func workingSet(metrics string, pod *corev1.Pod, now time.Time) (int64, error) {
	name := fmt.Sprintf("pod_memory_working_set_bytes{namespace=%q,pod=%q}", pod.Namespace, pod.Name)
	for l := range strings.Lines(metrics) {
		fields := strings.Fields(l)
		if len(fields) != 3 || fields[0] != name {
			continue
		}
		used, err := strconv.ParseFloat(fields[1], 64)
		at, errTime := strconv.ParseInt(fields[2], 10, 64)
		if err = errors.Join(err, errTime); err != nil || used <= 0 || now.Sub(time.UnixMilli(at)) > usageAge {
			return 0, errors.New("the kubelet has no new measurement yet; try again in 20 s")
		}
		return int64(used), nil
	}
	return 0, errors.New("neither the metrics API nor the kubelet knows it")
}

// await waits until the ephemeral container has ended, and reads the pod.
func (c *inspectCall) await(ctx context.Context, pod *corev1.Pod, own string) error {
	last := "the kubelet has not started it"
	for pause(ctx, inspectPoll) {
		if err := c.api.Get(ctx, client.ObjectKeyFromObject(pod), pod); apierrors.IsNotFound(err) {
			return errors.New("the pod was deleted during the inspection")
		} else if err != nil {
			last = oneLine(err)
			continue
		}
		at := slices.IndexFunc(pod.Status.EphemeralContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == own })
		if at < 0 {
			continue
		}
		switch state := pod.Status.EphemeralContainerStatuses[at].State; {
		case state.Terminated != nil && state.Terminated.ExitCode == 0:
			return nil
		case state.Terminated != nil:
			said := state.Terminated.Message
			if t, err := result.ParseTermination(said); err == nil && t.Message != "" {
				said = t.Message
			}
			return fmt.Errorf("the agent ended with exit code %d (%s): %s", state.Terminated.ExitCode, state.Terminated.Reason, cmp.Or(text.OneLine(said, 400), "without a message"))
		case state.Waiting != nil:
			last = text.OneLine(state.Waiting.Reason+": "+state.Waiting.Message, 400)
			if slices.Contains([]string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}, state.Waiting.Reason) {
				return fmt.Errorf("image %s cannot be pulled, for which only the pod's own imagePullSecrets count: %s", c.image, last)
			}
		case state.Running != nil:
			last = "it runs"
		}
	}
	return fmt.Errorf("no inspection within %s (%s); raise --timeout, or see kubectl describe pod", c.timeout, last)
}

// workloadPod collects what the API server knows of a container.
func (c *inspectCall) workloadPod(ctx context.Context, pod *corev1.Pod, target *corev1.Container) (proof.WorkloadPod, error) {
	known := c.asked
	known.PodUID, known.QOSClass, known.RuntimeClass = string(pod.UID), string(pod.Status.QOSClass), ptr.Deref(pod.Spec.RuntimeClassName, "")
	known.SharesProcesses = pod.Spec.HostPID || ptr.Deref(pod.Spec.ShareProcessNamespace, false)
	known.Requests, known.Devices = map[string]string{}, map[string][]string{}
	for name, quantity := range target.Resources.Requests {
		known.Requests[string(name)] = quantity.String()
	}
	if cpus := target.Resources.Requests[corev1.ResourceCPU]; cpus.MilliValue()%1000 == 0 {
		known.CPUs = int32(cpus.Value())
	}
	var err error
	if annotation := pod.Annotations[foreign.AnnotationNetworkStatus]; annotation != "" {
		if known.Networks, err = foreign.Statuses(annotation); err != nil {
			return known, err
		}
	}
	for _, s := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		for _, allocated := range s.AllocatedResourcesStatus {
			for _, health := range allocated.Resources {
				if id := string(health.ResourceID); result.PCIAddress.MatchString(id) {
					known.Devices[string(allocated.Name)] = append(known.Devices[string(allocated.Name)], id)
				}
			}
		}
	}
	node := &corev1.Node{}
	if err := c.api.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node); err == nil {
		known.NodeBootID = node.Status.NodeInfo.BootID
	}
	return known, nil
}

// line compares a workload with the benchmark. Its interface is the first that has the benchmark's function, or else the first.
func (b *likened) line(w *result.Workload) proof.WorkloadLine {
	own := w.Interfaces[0]
	for _, e := range slices.Backward(w.Interfaces) {
		if e.Facts["nic.function"] == b.evidence.Facts["nic.function"] {
			own = e
		}
	}
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
	maxDifferences = 8
	// maxThreadRows bounds the threads in a table, those that moved or ran first.
	maxThreadRows = 20
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
			if l.State == v1alpha1.ProofFailed || l.State == v1alpha1.ProofUnknown {
				fmt.Fprintf(&out, "  %-24s expected: %s\n", "", l.Expected)
			}
			if l.Advice != "" {
				fmt.Fprintf(&out, "  %-24s to do: %s\n", "", l.Advice)
			}
		}
		threads := slices.SortedStableFunc(slices.Values(r.Workload.Threads), func(a, b result.Thread) int {
			return cmp.Or(cmp.Compare(b.Migrations, a.Migrations), cmp.Compare(b.RunNS, a.RunNS))
		})
		rows := min(len(threads), maxThreadRows)
		fmt.Fprintf(&out, "  %-7s %-16s %-12s %-10s %-10s %s\n", "THREAD", "NAME", "MAY USE", "RAN ON", "MIGRATIONS", "RAN")
		for _, t := range threads[:rows] {
			fmt.Fprintf(&out, "  %-7d %-16s %-12s %-10s %-10s %s\n", t.TID, t.Name, t.CPUs, t.Ran, counted(t.Migrations), ranFor(t.RunNS))
		}
		if more := len(threads) - rows + r.Workload.Omitted; more > 0 {
			fmt.Fprintf(&out, "  and %d others (-o json)\n", more)
		}
		if r.Outcome != "" {
			fmt.Fprintf(&out, "  %s\n", r.Outcome)
		}
	}
	return out.Bytes()
}

func counted(n int64) string {
	if n < 0 {
		return "not known"
	}
	return fmt.Sprint(n)
}

func ranFor(ns int64) string {
	if ns < 0 {
		return "not known"
	}
	return time.Duration(ns).Round(time.Millisecond).String()
}
