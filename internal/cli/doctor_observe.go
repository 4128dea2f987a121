package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/config/crd"
	"github.com/tailgate-dev/tailgate/internal/doctor"
	"github.com/tailgate-dev/tailgate/internal/dra"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/preflight"
)

// benchImage is the image of benchmarks, with its pull policy and the service account that pulls it.
type benchImage struct {
	name   string
	policy corev1.PullPolicy
	// serviceAccount is the service account of the pods.
	serviceAccount string
}

// mostNetworks is how many networks of a namespace are tried if the user names no networks: each needs a pod on each node.
const mostNetworks = 8

// errNoNode is returned when all nodes are tainted.
var errNoNode = errors.New("all nodes have taints that keep pods away; name those to check, such as `" + name + " doctor NODE`")

// observe reads the state of the cluster from the API server. It records the kinds that the user may not read; nodes are required.
func (d *doctorCall) observe(ctx context.Context, api client.Client, namespace string) (doctor.Observed, benchImage, error) {
	o := doctor.Observed{Namespace: namespace, Unseen: map[string]string{}, Asked: len(d.networks) > 0, OnloadAsked: d.onload != ""}
	nodes := &corev1.NodeList{}
	if err := api.List(ctx, nodes); err != nil {
		return o, benchImage{}, fmt.Errorf("listing the nodes: %w", err)
	}
	// note records why a kind was not read. Errors other than refusals end the command.
	note := func(what string, err error) error {
		switch {
		case err == nil:
			return nil
		case apierrors.IsForbidden(err):
			o.Unseen[what] = "you may not list " + what
			return nil
		}
		return fmt.Errorf("listing %s: %w", what, err)
	}
	if err := note("network-attachment-definitions", d.definitionsOfNetworks(ctx, api, namespace, &o)); err != nil {
		return o, benchImage{}, err
	}
	claimed, err := d.drivers(ctx, api, &o, nodes.Items, note)
	if err != nil {
		return o, benchImage{}, err
	}
	if err := d.choose(&o, nodes.Items, claimed); err != nil {
		return o, benchImage{}, err
	}
	image, err := d.manager(ctx, api, &o)
	if err := note("deployments", err); err != nil {
		return o, image, err
	}
	o.Definitions, err = definitions(ctx, api)
	if err := note("customresourcedefinitions", err); err != nil {
		return o, image, err
	}
	var suppliers []preflight.Supplier
	if suppliers, err = multusWorkloads(ctx, api, &o); note("daemonsets", err) != nil {
		return o, image, note("daemonsets", err)
	}
	if err := note("latencygates", intolerant(ctx, api, &o, suppliers, nodes.Items)); err != nil {
		return o, image, err
	}
	if err := note("pods", podsOf(ctx, api, o.Nodes)); err != nil {
		return o, image, err
	}
	topologies(ctx, api, o.Nodes)
	for i := range o.Nodes {
		o.Nodes[i].NotLooked = notLooked(&o.Nodes[i], image)
	}
	return o, image, nil
}

// drivers searches the drivers of Dynamic Resource Allocation for resources of networks and of Onload that a node does not
// advertise. It adds them to the nodes as if a device plugin advertised them, and returns the added resources by node.
func (d *doctorCall) drivers(ctx context.Context, api client.Client, o *doctor.Observed, nodes []corev1.Node, note func(string, error) error) (map[string][]corev1.ResourceName, error) {
	names := []string{d.onload}
	for _, n := range o.Networks {
		names = append(names, n.Resource)
	}
	names = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(names))), func(name string) bool {
		return name == "" || !slices.ContainsFunc(nodes, func(n corev1.Node) bool {
			q := n.Status.Allocatable[corev1.ResourceName(name)]
			return q.Sign() == 0
		})
	})
	if len(names) == 0 {
		return nil, nil
	}
	classes := &resourcev1.DeviceClassList{}
	// An API server without this kind has no such drivers.
	if err := note("deviceclasses", client.IgnoreNotFound(api.List(ctx, classes))); err != nil {
		return nil, err
	}
	var all *resourcev1.ResourceSliceList
	claimed := map[string][]corev1.ResourceName{}
	o.Classes = map[corev1.ResourceName]string{}
	for _, text := range names {
		name := corev1.ResourceName(text)
		class := dra.Class(classes.Items, name)
		if class == nil {
			continue
		}
		o.Classes[name] = class.Name
		if all == nil {
			all = &resourcev1.ResourceSliceList{}
			if err := note("resourceslices", client.IgnoreNotFound(api.List(ctx, all))); err != nil {
				return nil, err
			}
		}
		count := dra.Devices(ctx, class, all.Items)
		for i := range nodes {
			if dra.Advertise(nodes[i:i+1], name, count) {
				claimed[nodes[i].Name] = append(claimed[nodes[i].Name], name)
			}
		}
	}
	return claimed, nil
}

// choose selects the nodes to check, and counts the devices of all nodes.
func (d *doctorCall) choose(o *doctor.Observed, nodes []corev1.Node, claimed map[string][]corev1.ResourceName) error {
	o.Capacity = map[corev1.ResourceName]int64{}
	for _, n := range nodes {
		for name, q := range n.Status.Capacity {
			o.Capacity[name] += q.Value()
		}
	}
	if o.Onload = d.onload; o.Onload == "" && o.Capacity[plan.DefaultOnloadResource] > 0 {
		o.Onload = plan.DefaultOnloadResource
	}
	slices.SortFunc(nodes, func(a, b corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, name := range d.nodes {
		if !slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Name == name }) {
			return fmt.Errorf("there is no node %s; see `kubectl get nodes`", name)
		}
	}
	o.LeftOut = map[string]string{}
	selected := preflight.Matching(preflight.Observed{Benchmark: d.like, Nodes: nodes})
	tolerations := pods.Tolerations(d.like, v1alpha1.RoleClient, v1alpha1.RoleServer)
	for _, n := range nodes {
		named := slices.Contains(d.nodes, n.Name)
		if !named && (len(d.nodes) > 0 || !slices.Contains(selected, n.Name)) {
			continue
		}
		if taint := keepsAway(n, tolerations); taint != "" && !named {
			o.LeftOut[n.Name] = taint
			continue
		}
		o.Nodes = append(o.Nodes, doctor.Node{Node: n, Named: named, Claimed: claimed[n.Name]})
	}
	if len(o.Nodes) == 0 {
		return errNoNode
	}
	return nil
}

// keepsAway returns a taint that keeps pods with these tolerations from a node permanently; empty if the node has no such taint. The taints of
// Kubernetes itself describe a state that may pass, and the pods of Tailgate tolerate Tailgate's own taint.
func keepsAway(n corev1.Node, tolerations []corev1.Toleration) string {
	for _, t := range n.Spec.Taints {
		passing := strings.HasPrefix(t.Key, "node.kubernetes.io/") || t.Key == v1alpha1.NodeTaintUnverified
		alone := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{t}}}
		if !passing && preflight.UntoleratedTaint(alone, tolerations) != nil {
			return t.ToString()
		}
	}
	return ""
}

// managerLabels select Tailgate's manager.
var managerLabels = client.MatchingLabels{"app.kubernetes.io/name": "tailgate", "app.kubernetes.io/component": "manager"}

// manager looks for Tailgate's Deployment, and for the bench image in its arguments.
func (d *doctorCall) manager(ctx context.Context, api client.Client, o *doctor.Observed) (benchImage, error) {
	image := benchImage{name: d.image, policy: corev1.PullIfNotPresent}
	list := &appsv1.DeploymentList{}
	if err := api.List(ctx, list, managerLabels); err != nil || len(list.Items) == 0 {
		return image, err
	}
	m := list.Items[0]
	o.Manager = &doctor.Manager{Name: m.Namespace + "/" + m.Name, Ready: m.Status.ReadyReplicas, Wanted: 1}
	if m.Spec.Replicas != nil {
		o.Manager.Wanted = *m.Spec.Replicas
	}
	var args []string
	o.Manager.Image, args = benchArgs(m)
	image.serviceAccount = flagValue(args, "bench-service-account")
	if policy := flagValue(args, "bench-image-pull-policy"); policy != "" {
		image.policy = corev1.PullPolicy(policy)
	}
	if image.name == "" {
		image.name = flagValue(args, "bench-image")
	}
	return image, nil
}

// benchArgs returns the image and the arguments of the manager in its Deployment: the container with a bench image. Both are empty
// if there is none.
func benchArgs(m appsv1.Deployment) (image string, args []string) {
	for _, c := range m.Spec.Template.Spec.Containers {
		if args = slices.Concat(c.Command, c.Args); flagValue(args, "bench-image") != "" {
			return c.Image, args
		}
	}
	return "", nil
}

// flagValue returns the value of a flag among arguments; empty if the flag is absent.
func flagValue(args []string, flag string) string {
	for i, arg := range args {
		name, value, joined := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		switch {
		case !strings.HasPrefix(arg, "-") || name != flag:
		case joined:
			return value
		case i+1 < len(args):
			return args[i+1]
		}
	}
	return ""
}

// ownDefinitions returns the CustomResourceDefinitions of Tailgate's kinds that are built into this command.
var ownDefinitions = sync.OnceValues(func() ([]*apiextensionsv1.CustomResourceDefinition, error) {
	var all []*apiextensionsv1.CustomResourceDefinition
	for _, text := range [][]byte{crd.LatencyBenchmarks, crd.LatencyMatrices, crd.LatencyGates, crd.LatencyVerifications} {
		d := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, d); err != nil {
			return nil, fmt.Errorf("reading this command's CustomResourceDefinitions: %w", err)
		}
		all = append(all, d)
	}
	return all, nil
})

// definitions compares the cluster's CustomResourceDefinitions with those of this command.
func definitions(ctx context.Context, api client.Client) ([]doctor.Definition, error) {
	known, err := ownDefinitions()
	if err != nil {
		return nil, err
	}
	var all []doctor.Definition
	for _, own := range known {
		there := &apiextensionsv1.CustomResourceDefinition{}
		found := doctor.Definition{Name: own.Name}
		switch err := api.Get(ctx, types.NamespacedName{Name: own.Name}, there); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, err
		default:
			found.Found, found.Same = true, sameSchema(own, there)
			found.Established = slices.ContainsFunc(there.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
			})
		}
		all = append(all, found)
	}
	return all, nil
}

// sameSchema reports whether two definitions have the same schema for the API version that this command uses.
func sameSchema(a, b *apiextensionsv1.CustomResourceDefinition) bool {
	schema := func(d *apiextensionsv1.CustomResourceDefinition) []byte {
		for _, v := range d.Spec.Versions {
			if v.Name == v1alpha1.GroupVersion.Version {
				// A schema that was decoded from JSON can be encoded.
				data, _ := json.Marshal(v.Schema)
				return data
			}
		}
		return nil
	}
	return bytes.Equal(schema(a), schema(b))
}

// multusWorkloads finds the DaemonSets whose names contain multus, and returns all DaemonSets.
func multusWorkloads(ctx context.Context, api client.Client, o *doctor.Observed) (all []preflight.Supplier, err error) {
	list := &appsv1.DaemonSetList{}
	if err := api.List(ctx, list); err != nil {
		return nil, err
	}
	for _, s := range list.Items {
		all = append(all, preflight.OfDaemonSet(&s))
		if strings.Contains(s.Name, "multus") {
			o.Multus = append(o.Multus, doctor.Workload{Name: s.Namespace + "/" + s.Name, Ready: s.Status.NumberReady, Wanted: s.Status.DesiredNumberScheduled})
		}
	}
	return all, nil
}

// intolerant finds, for each gate that taints nodes, the DaemonSets and the Modules of Kernel Module Management of its nodes that do not
// tolerate the taint.
func intolerant(ctx context.Context, api client.Client, o *doctor.Observed, suppliers []preflight.Supplier, nodes []corev1.Node) error {
	gates := &v1alpha1.LatencyGateList{}
	if err := api.List(ctx, gates); err != nil {
		return client.IgnoreNotFound(err)
	}
	if len(gates.Items) == 0 {
		return nil
	}
	modules := &unstructured.UnstructuredList{}
	modules.SetGroupVersionKind(foreign.ModuleKind.GroupVersion().WithKind(foreign.ModuleKind.Kind + "List"))
	if err := api.List(ctx, modules); err != nil && !isAbsent(err) && !apierrors.IsNotFound(err) {
		return err
	}
	for _, m := range modules.Items {
		module, err := foreign.Decode[foreign.Module](m.Object)
		if err != nil {
			return err
		}
		suppliers = append(suppliers, preflight.OfModule(module))
	}
	for i := range gates.Items {
		gate := &gates.Items[i]
		selector, err := metav1.LabelSelectorAsSelector(&gate.Spec.NodeSelector)
		taint := preflight.HeldBy(gate)
		if err != nil || taint == nil {
			continue
		}
		var own []*corev1.Node
		for j := range nodes {
			if selector.Matches(labels.Set(nodes[j].Labels)) {
				own = append(own, &nodes[j])
			}
		}
		o.Gates = append(o.Gates, doctor.Gate{Name: gate.Name, Intolerant: preflight.Intolerant(suppliers, own, *taint)})
	}
	return nil
}

// definitionsOfNetworks reads the NetworkAttachmentDefinitions that the user named, or else those of the namespace.
func (d *doctorCall) definitionsOfNetworks(ctx context.Context, api client.Client, namespace string, o *doctor.Observed) error {
	o.MultusKind = true
	read := func(u *unstructured.Unstructured) doctor.Network {
		config, _, _ := unstructured.NestedString(u.Object, "spec", "config")
		return doctor.Network{Name: u.GetNamespace() + "/" + u.GetName(), Found: true, Resource: u.GetAnnotations()[foreign.AnnotationResourceName], Config: config}
	}
	for _, network := range d.networks {
		key := types.NamespacedName{Namespace: namespace, Name: network}
		if in, name, qualified := strings.Cut(network, "/"); qualified {
			key = types.NamespacedName{Namespace: in, Name: name}
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(foreign.GroupVersionKind)
		switch err := api.Get(ctx, key, u); {
		case isAbsent(err):
			o.Networks = append(o.Networks, doctor.Network{Name: key.String()})
		case apierrors.IsNotFound(err):
			o.MultusKind = false
			return nil
		case err != nil:
			return err
		default:
			o.Networks = append(o.Networks, read(u))
		}
	}
	d.ofVariants(o)
	if len(d.networks) > 0 || d.file != "" {
		return nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(foreign.GroupVersionKind.GroupVersion().WithKind(foreign.GroupVersionKind.Kind + "List"))
	switch err := api.List(ctx, list, client.InNamespace(namespace)); {
	case apierrors.IsNotFound(err):
		o.MultusKind = false
		return nil
	case err != nil:
		return err
	}
	for i := range list.Items {
		if n := read(&list.Items[i]); len(o.Networks) < mostNetworks {
			o.Networks = append(o.Networks, n)
		} else {
			o.NetworksLeft = append(o.NetworksLeft, n.Name)
		}
	}
	return nil
}

// ofVariants adds what the variants of the user's benchmark request with their networks, and the networks that the operator creates.
func (d *doctorCall) ofVariants(o *doctor.Observed) {
	for _, v := range d.variants {
		if !v.Network.Type.Attached() {
			continue
		}
		namespace, name := pods.NetworkName(d.like, v)
		n := slices.IndexFunc(o.Networks, func(n doctor.Network) bool { return n.Name == namespace+"/"+name })
		if n < 0 {
			n = len(o.Networks)
			o.Networks = append(o.Networks, doctor.Network{Name: namespace + "/" + name, Made: true, Resource: v.Network.ResourceName()})
		}
		requests := slices.Concat(o.Networks[n].Requests, v.Resources())
		slices.Sort(requests)
		o.Networks[n].Requests = slices.Compact(requests)
	}
}

// podsOf reads the pods of the nodes, except inspect pods and finished pods.
func podsOf(ctx context.Context, api client.Client, nodes []doctor.Node) error {
	selector := fields.AndSelectors(
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)), fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)))
	if len(nodes) == 1 {
		selector = fields.AndSelectors(selector, fields.OneTermEqualSelector("spec.nodeName", nodes[0].Node.Name))
	}
	byNode := map[string][]corev1.Pod{}
	for next, more := "", true; more; more = next != "" {
		// Each page has its own list, so that the pods of earlier pages do not change.
		page := &corev1.PodList{}
		if err := api.List(ctx, page, client.MatchingFieldsSelector{Selector: selector}, client.Limit(500), client.Continue(next)); err != nil {
			return err
		}
		for _, p := range page.Items {
			if _, ours := p.Labels[pods.LabelDoctor]; !ours {
				byNode[p.Spec.NodeName] = append(byNode[p.Spec.NodeName], p)
			}
		}
		next = page.Continue
	}
	for i := range nodes {
		nodes[i].Pods = byNode[nodes[i].Node.Name]
	}
	return nil
}

// topologies reads the NodeResourceTopologies that agents of topology-aware scheduling write. It ignores errors, because the
// data only make a line more exact.
func topologies(ctx context.Context, api client.Client, nodes []doctor.Node) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(foreign.NodeResourceTopologyKind.GroupVersion().WithKind(foreign.NodeResourceTopologyKind.Kind + "List"))
	if err := api.List(ctx, list); err != nil {
		return
	}
	for _, item := range list.Items {
		topology, err := foreign.Decode[foreign.NodeResourceTopology](item.Object)
		for i := range nodes {
			if err == nil && nodes[i].Node.Name == topology.Name {
				nodes[i].Topology = &topology
			}
		}
	}
}

// notLooked returns the reason why no inspect pod is created on a node; empty if pods are created.
func notLooked(n *doctor.Node, image benchImage) string {
	for _, p := range n.Pods {
		// An inspection takes a CPU and a device, and would affect the results.
		if p.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedByTailgate && p.Labels[v1alpha1.LabelRole] != "" {
			return fmt.Sprintf("benchmark %s/%s measures there", p.Namespace, p.Labels[v1alpha1.LabelBenchmark])
		}
	}
	switch {
	case !preflight.NodeReady(n.Node):
		return "it is not ready"
	case n.Node.Spec.Unschedulable && !n.Named:
		return "it is cordoned"
	case image.name == "":
		return "no bench image is known; give one with --image"
	}
	return ""
}
