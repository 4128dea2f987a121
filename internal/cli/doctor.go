package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/admit"
	"github.com/tailgate-dev/tailgate/internal/doctor"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/report"
	"github.com/tailgate-dev/tailgate/internal/result"
)

func newDoctor(c *cluster) *cobra.Command {
	d := &doctorCall{cluster: c, like: &v1alpha1.LatencyBenchmark{}}
	cmd := &cobra.Command{
		Use:   "doctor [NODE...]",
		Short: "Check whether the cluster is suitable for latency measurements",
		Long: "Check whether the cluster, or some of its nodes, are suitable for latency measurements. On each node, short-lived unprivileged\n" +
			"pods check the resources that benchmarks would get: exclusive CPUs, networks with their devices, Onload. On each network, pairs\n" +
			"of nodes then try to reach each other. With -f, the pods request the resources that this object would request. To check a\n" +
			"running pod of your own, use kubectl tailgate inspect. The level of each check is good, warning, error, or unknown if the check\n" +
			"was not possible. The findings come first, then a line for each node; -o wide shows the checks without findings, too. The\n" +
			"command deletes the pods before it ends, even if you interrupt it. docs/internals/doctor.md describes all checks.\n\n" +
			"Without names, the command checks all nodes except nodes whose taints keep pods away. If you name a node, its taints are\n" +
			"tolerated.\n\n" +
			"The exit code is 0 if there are no findings, and 1 if there is an error. Without an error, the code is 3 if a check was not\n" +
			"possible or the input is invalid, and 2 if there are only warnings.",
		Example: "  " + name + " doctor\n" +
			"  " + name + " doctor -f x2522.yaml\n" +
			"  " + name + " doctor worker-1 worker-2 --network sriov/sf-vf -o json",
		Annotations: map[string]string{exitsByVerdict: "yes", removesPods: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			d.nodes = args
			if d.file != "" {
				if err := d.resemble(cmd.Context(), cmd.InOrStdin()); err != nil {
					return err
				}
			}
			return d.run(cmd.Context(), cmd.OutOrStdout(), newScreen(cmd.OutOrStdout()), newScreen(cmd.ErrOrStderr()))
		},
	}
	fileFlag(cmd, &d.file, kinds()...)
	cmd.Flags().StringVar(&d.image, "image", "", "bench image of the pods; default: that of the manager")
	cmd.Flags().StringArrayVar(&d.networks, "network", nil,
		"NetworkAttachmentDefinition to try, [NAMESPACE/]NAME; may be repeated; default: those of the namespace")
	cmd.Flags().StringVar(&d.onload, "onload", "", "resource of Onload's devices to try; default: amd.com/onload, if a node has it")
	cmd.Flags().IntVar(&d.parallel, "parallel", 8, "number of nodes to check at the same time")
	cmd.Flags().DurationVar(&d.timeout, "timeout", 2*time.Minute, "time limit of each pod, including the pull of its image")
	outputFlag(cmd, &d.form, "table", "wide", "json")
	return cmd
}

const leastTimeout = 5 * time.Second // less than any pod needs

type doctorCall struct {
	*cluster
	nodes, networks []string
	file            string
	onload, form    string
	parallel        int
	timeout         time.Duration
	// image is the image of the pods, policy when it is pulled, and serviceAccount the pods'.
	image, serviceAccount string
	policy                corev1.PullPolicy
	// like is the file's benchmark, without settings if there is no file; variants are its own.
	like     *v1alpha1.LatencyBenchmark
	variants []v1alpha1.Variant

	imageless    error // why the image of no manager may be used
	api          client.Client
	podNamespace string
	call         string // value of the label of its pods; made counts them, for their names
	made         atomic.Int32
}

func (d *doctorCall) resemble(ctx context.Context, stdin io.Reader) error {
	manifest, err := d.manifest(d.file, stdin, kinds()...)
	if err != nil {
		return err
	}
	if err := admit.Object(ctx, manifest); err != nil {
		return fmt.Errorf("%s: %w", d.file, err)
	}
	o := kindOf(manifest).object()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(manifest.Object, o); err != nil {
		return fmt.Errorf("reading the %s: %w", manifest.GetKind(), err)
	}
	if gate, ok := o.(*v1alpha1.LatencyGate); ok {
		d.like = &v1alpha1.LatencyBenchmark{Spec: gate.Spec.Template.Benchmark()}
		d.like.Namespace, d.like.Name = gate.Spec.Namespace, gate.Name
		d.like.Spec.Placement.Client = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeSelector: &gate.Spec.NodeSelector}}
	} else {
		d.like = overviewOf(o)
	}
	d.variants = plan.Variants(d.like.Spec)
	for _, v := range d.variants {
		if d.onload == "" {
			d.onload = v.Acceleration.OnloadSettings().ResourceName
		}
		if v.Network.Type.Attached() && v.Network.NetworkRef() != nil {
			namespace, name := pods.NetworkName(d.like, v)
			d.networks = append(d.networks, namespace+"/"+name)
		}
	}
	slices.Sort(d.networks)
	d.networks = slices.Compact(d.networks)
	return nil
}

func (d *doctorCall) check() error {
	switch {
	case d.parallel < 1:
		return fmt.Errorf("--parallel: %d is invalid; give 1 or more", d.parallel)
	case d.timeout < leastTimeout:
		return fmt.Errorf("--timeout: no pod can finish in %s; give %s or more", d.timeout, leastTimeout)
	case d.onload != "" && (!strings.Contains(d.onload, "/") || len(validation.IsQualifiedName(d.onload)) > 0):
		return fmt.Errorf("--onload: %q is not a name of an extended resource, such as amd.com/onload", d.onload)
	}
	for _, network := range d.networks {
		namespace, name, qualified := strings.Cut(network, "/")
		if !qualified {
			namespace, name = "default", network
		}
		if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
			return fmt.Errorf("--network: %q is not a [NAMESPACE/]NAME of a NetworkAttachmentDefinition", network)
		}
	}
	return nil
}

func (d *doctorCall) run(ctx context.Context, stdout io.Writer, out, progress *screen) error {
	if err := d.check(); err != nil {
		return err
	}
	api, namespace, err := d.client()
	if err != nil {
		return err
	}
	d.api, d.podNamespace, d.call = api, cmp.Or(d.like.Namespace, namespace), rand.String(8)
	observed, err := d.observe(ctx)
	if err != nil {
		return err
	}
	if err := d.inspect(ctx, &observed, progress); err != nil {
		return err
	}
	diagnosis := doctor.Diagnose(observed)
	if d.form == "json" {
		err = report.WriteJSON(stdout, diagnosis)
	} else {
		err = emit(stdout, diagnosis.Table(d.form == "wide", out.paint), nil)
	}
	if err != nil {
		return err
	}
	if code := doctorCodes[diagnosis.Result]; code != exitPass {
		return ended{code: code}
	}
	return nil
}

var doctorCodes = map[doctor.Level]int{
	doctor.Good: exitPass, doctor.Error: exitFail, doctor.Warning: exitInconclusive, doctor.Unknown: exitError,
}

func (s *screen) paint(l doctor.Level, word string) string {
	if !s.colored {
		return word
	}
	return string(map[doctor.Level]color{doctor.Error: red, doctor.Unknown: yellow, doctor.Warning: yellow, doctor.Good: green}[l]) + word + colorOff
}

var errInterrupted = errors.New("interrupted; the inspect pods are removed")

const (
	inspectPoll  = 250 * time.Millisecond // between reads of a pod
	eventPoll    = 2 * time.Second        // between those of its events
	passingGrace = 25 * time.Second       // for troubles that may end: a kubelet tries again
	removalLimit = 15 * time.Second
)

// inspect runs inspect pods on all nodes, d.parallel at a time, and deletes them at the end.
func (d *doctorCall) inspect(ctx context.Context, o *doctor.Observed, progress *screen) error {
	d.sweep(ctx)
	defer d.remove(context.WithoutCancel(ctx))
	var done atomic.Int32
	tell := func() {
		if progress.live() {
			progress.show("looking", yellow, fmt.Sprintf(" at %d nodes, %d seen", len(o.Nodes), done.Load()))
		}
	}
	tell()
	defer progress.clear()
	var group errgroup.Group
	group.SetLimit(d.parallel)
	for n := range o.Nodes {
		group.Go(func() error {
			d.node(ctx, o, &o.Nodes[n])
			done.Add(1)
			tell()
			return ctx.Err()
		})
	}
	if group.Wait() == nil {
		d.connect(ctx, o)
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	return nil
}

// node inspects a node from pods on shared CPUs and with whole CPUs at once. Unless the latter
// fails, networks and Onload follow in turn, because no other CPU may be free.
func (d *doctorCall) node(ctx context.Context, o *doctor.Observed, n *doctor.Node) {
	if n.NotLooked != "" {
		return
	}
	shared := make(chan doctor.Look)
	go func() { shared <- d.look(ctx, n, doctor.Look{Kind: doctor.KindShared}, pods.Inspection{}) }()
	cpus := int32(1) // As many as a benchmark gets.
	if asked := d.like.CPUs(); asked != (v1alpha1.EndpointCPUs{}) {
		cpus = max(asked.Client, asked.Server)
	} else if o.Unseen["pods"] == "" && n.FreeCPUs() > 1 {
		cpus = 2
	}
	whole := d.look(ctx, n, doctor.Look{Kind: doctor.KindCPU}, pods.Inspection{CPUs: cpus})
	// A kubelet that gives whole cores says their CPUs, as benchmarks then fail.
	if core := doctor.WholeCore(whole.Trouble); core > int(cpus) && d.like.CPUs() == (v1alpha1.EndpointCPUs{}) {
		cpus = int32(core)
		whole = d.look(ctx, n, doctor.Look{Kind: doctor.KindCPU}, pods.Inspection{CPUs: cpus})
	}
	n.Looks = []doctor.Look{<-shared, whole}
	if whole.Trouble != nil {
		return
	}
	for _, network := range o.Networks {
		if network.Attachable() && !slices.ContainsFunc(network.Resources(), func(resource string) bool { return !has(n, resource) }) {
			n.Looks = append(n.Looks, d.look(ctx, n, doctor.Look{Kind: doctor.KindNetwork, Network: network.Name}, pods.Inspection{CPUs: cpus, Devices: network.Resources()}))
		}
	}
	if o.Onload != "" && has(n, o.Onload) {
		n.Looks = append(n.Looks, d.look(ctx, n, doctor.Look{Kind: doctor.KindOnload}, pods.Inspection{CPUs: cpus, Devices: []string{o.Onload}}))
	}
}

func has(n *doctor.Node, resource string) bool {
	allocatable := n.Node.Status.Allocatable[corev1.ResourceName(resource)]
	return allocatable.Value() > n.Requested()[corev1.ResourceName(resource)]
}

func (d *doctorCall) look(ctx context.Context, n *doctor.Node, l doctor.Look, spec pods.Inspection) doctor.Look {
	l.CPUs = int(spec.CPUs)
	pod, trouble := d.launch(ctx, n, l.Network, spec)
	if l.Trouble = trouble; pod == nil {
		return l
	}
	defer d.end(ctx, pod)
	l.NetworkStatus = pod.Annotations[foreign.AnnotationNetworkStatus]
	for _, c := range pod.Status.ContainerStatuses {
		l.ImageID = c.ImageID
	}
	if l.Trouble != nil {
		return l
	}
	inspection, err := d.inspection(ctx, client.ObjectKeyFromObject(pod), pods.Container)
	if err != nil {
		l.Trouble = &pods.Trouble{Outcome: v1alpha1.OutcomeAgentFailed, Said: oneLine(err)}
		return l
	}
	l.Inspection = &inspection
	return l
}

// launch creates a node's pod and waits until it has succeeded or, if it answers, runs; or nil.
func (d *doctorCall) launch(ctx context.Context, n *doctor.Node, network string, spec pods.Inspection) (*corev1.Pod, *pods.Trouble) {
	spec.Namespace, spec.Name, spec.Call = d.podNamespace, fmt.Sprintf("tailgate-doctor-%s-%d", d.call, d.made.Add(1)), d.call
	spec.Node, spec.Named, spec.Benchmark = n.Node.Name, n.Named, d.like
	spec.Image, spec.PullPolicy, spec.ServiceAccount = d.image, d.policy, d.serviceAccount
	spec.Deadline = d.timeout + time.Minute
	if namespace, name, attached := strings.Cut(network, "/"); attached {
		spec.Network = &foreign.Selection{Namespace: namespace, Name: name, Interface: pods.Interface}
	}
	pod := pods.Inspect(spec)
	if err := d.api.Create(ctx, pod); err != nil {
		return nil, &pods.Trouble{Outcome: v1alpha1.OutcomePodRefused, Said: oneLine(err)}
	}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	return pod, d.await(ctx, pod, spec.Answers)
}

// await waits until a pod has succeeded or, with running, runs; it returns what prevents it.
func (d *doctorCall) await(ctx context.Context, pod *corev1.Pod, running bool) *pods.Trouble {
	var since, looked time.Time
	var warnings []corev1.Event
	last := "its state is unknown"
	for {
		if !pause(ctx, inspectPoll) {
			return &pods.Trouble{Outcome: v1alpha1.OutcomeStartTimeout, Said: last}
		}
		switch err := d.api.Get(ctx, client.ObjectKeyFromObject(pod), pod); {
		case apierrors.IsNotFound(err):
			return &pods.Trouble{Outcome: v1alpha1.OutcomeAgentFailed, Said: "another client deleted the pod"}
		case err != nil:
			last = oneLine(err)
			continue
		}
		if pod.Status.Phase == corev1.PodSucceeded || running && pod.Status.Phase == corev1.PodRunning {
			return nil
		}
		if now := time.Now(); pod.Status.Phase == corev1.PodPending && now.Sub(looked) > eventPoll {
			looked, warnings = now, d.warnings(ctx, pod)
		}
		last = standingOf(pod)
		t := doctor.TroubleOf(pod, warnings)
		switch {
		case t == nil:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		if t != nil && (!doctor.Passing(t) || time.Since(since) > passingGrace) {
			return t
		}
	}
}

// warnings returns the warning events of a pod, the oldest first; nil if they cannot be listed.
func (d *doctorCall) warnings(ctx context.Context, pod *corev1.Pod) []corev1.Event {
	list := &corev1.EventList{}
	selector := fields.Set{"involvedObject.uid": string(pod.UID), "type": corev1.EventTypeWarning}.AsSelector()
	if err := d.api.List(ctx, list, client.InNamespace(pod.Namespace), client.MatchingFieldsSelector{Selector: selector}); err != nil {
		return nil
	}
	slices.SortStableFunc(list.Items, func(a, b corev1.Event) int {
		return a.LastTimestamp.Compare(b.LastTimestamp.Time)
	})
	return list.Items
}

// inspection reads an inspection from a container's log, which the kubelet may have a moment later.
func (c *cluster) inspection(ctx context.Context, pod types.NamespacedName, container string) (result.Inspection, error) {
	once := func() (result.Inspection, error) {
		log, err := c.log(ctx, pod, container, false)
		if err != nil {
			return result.Inspection{}, fmt.Errorf("reading the log of pod %s: %w", pod, err)
		}
		defer log.Close()
		return result.ReadInspection(log)
	}
	for try := 1; ; try++ {
		inspection, err := once()
		if err == nil || apierrors.IsForbidden(err) || try == 4 || !pause(ctx, inspectPoll) {
			return inspection, err
		}
	}
}

// end removes a pod, and waits if it had not ended: the next may need its resources.
func (d *doctorCall) end(ctx context.Context, pod *corev1.Pod) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalLimit)
	defer cancel()
	if err := d.api.Delete(ctx, pod); err != nil {
		return
	}
	for !pods.Ended(pod) && d.api.Get(ctx, client.ObjectKeyFromObject(pod), pod) == nil && pause(ctx, inspectPoll) {
	}
}

func (d *doctorCall) remove(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, removalLimit)
	defer cancel()
	list := &corev1.PodList{}
	for d.api.List(ctx, list, client.InNamespace(d.podNamespace), client.MatchingLabels{pods.LabelDoctor: d.call}) == nil && len(list.Items) > 0 {
		for n := range list.Items {
			if list.Items[n].DeletionTimestamp == nil {
				_ = d.api.Delete(ctx, &list.Items[n])
			}
		}
		if !pause(ctx, inspectPoll) {
			return
		}
	}
}

// sweep removes what earlier calls could not: pods older than their deadline.
func (d *doctorCall) sweep(ctx context.Context) {
	list := &corev1.PodList{}
	if err := d.api.List(ctx, list, client.InNamespace(d.podNamespace), client.HasLabels{pods.LabelDoctor}); err != nil {
		return
	}
	for n := range list.Items {
		p := &list.Items[n]
		if p.Spec.ActiveDeadlineSeconds == nil {
			continue
		}
		if life := time.Duration(*p.Spec.ActiveDeadlineSeconds) * time.Second; time.Since(p.CreationTimestamp.Time) > life {
			_ = d.api.Delete(ctx, p)
		}
	}
}

// connect lets nodes try the way to each other, two by two by name, the last odd one with the
// first, on the pod network, then each network in turn: a node may have only one free device.
func (d *doctorCall) connect(ctx context.Context, o *doctor.Observed) {
	for _, network := range append([]doctor.Network{{}}, o.Networks...) {
		var ends []*doctor.Node
		for n := range o.Nodes {
			if o.Nodes[n].Attached(network.Name) {
				ends = append(ends, &o.Nodes[n])
			}
		}
		tried := make([]doctor.Connection, (len(ends)+1)/2)
		var group errgroup.Group
		group.SetLimit(d.parallel)
		for n := 0; n+1 < len(ends); n += 2 {
			group.Go(func() error {
				tried[n/2] = d.pair(ctx, network, ends[n], ends[n+1])
				return nil
			})
		}
		_ = group.Wait() // no function returns an error
		switch last := len(ends) - 1; {
		case last < 1:
			continue
		case last%2 == 0:
			tried[last/2] = d.pair(ctx, network, ends[last], ends[0])
		}
		o.Connections = append(o.Connections, tried...)
	}
}

func (d *doctorCall) pair(ctx context.Context, network doctor.Network, server, from *doctor.Node) doctor.Connection {
	c := doctor.Connection{Network: network.Name, Server: server.Node.Name, Client: from.Node.Name}
	var end *corev1.Pod
	if end, c.Trouble = d.launch(ctx, server, network.Name, pods.Inspection{Devices: network.Resources(), Answers: true}); end != nil {
		defer d.end(ctx, end)
	}
	if c.Trouble != nil {
		return c
	}
	address, missing := pods.AddressOn(end, network.Name)
	if missing != "" {
		c.Trouble = &pods.Trouble{Outcome: v1alpha1.OutcomeNetworkFailed, Said: missing}
		return c
	}
	l := d.look(ctx, from, doctor.Look{Network: network.Name}, pods.Inspection{Devices: network.Resources(), Peer: address})
	if c.Trouble = l.Trouble; l.Inspection == nil {
		return c
	}
	c.Reach = l.Inspection.Reach
	// A pod that answers runs until it is deleted.
	if err := d.api.Get(ctx, client.ObjectKeyFromObject(end), end); err == nil {
		c.Trouble = doctor.TroubleOf(end, nil)
	}
	return c
}
