package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/config/crd"
	"github.com/tailgate-dev/tailgate/internal/doctor"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/protection"
	"github.com/tailgate-dev/tailgate/internal/text"
)

const mostNetworks = 8 // to try if the user names none: each needs a pod on each node

var errNoNode = errors.New("all nodes have taints that keep pods away; name those to check, such as `" + name + " doctor NODE`")

// observe reads the cluster. It records kinds that the user may not read; nodes are required.
func (d *doctorCall) observe(ctx context.Context) (doctor.Observed, error) {
	o := doctor.Observed{Namespace: d.podNamespace, Unseen: map[string]string{}, Asked: len(d.networks) > 0, OnloadAsked: d.onload != ""}
	nodes := &corev1.NodeList{}
	if err := d.api.List(ctx, nodes); err != nil {
		return o, fmt.Errorf("listing the nodes: %w", err)
	}
	g := &glimpse{Client: d.api, scheme: d.api.Scheme()}
	if err := d.observeKinds(ctx, g, &o, nodes.Items); err != nil {
		return o, err
	}
	for _, kind := range g.kinds {
		mapping, err := d.api.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return o, err
		}
		o.Unseen[mapping.Resource.Resource] = "you may not list " + mapping.Resource.Resource
	}
	for i := range o.Nodes {
		o.Nodes[i].NotLooked = d.notLooked(&o.Nodes[i])
	}
	return o, nil
}

func (d *doctorCall) observeKinds(ctx context.Context, g *glimpse, o *doctor.Observed, nodes []corev1.Node) error {
	if err := d.definitionsOfNetworks(ctx, g, o); err != nil {
		return err
	}
	cluster := &observe.Cluster{Live: g, Clock: clock.RealClock{}}
	names := text.Of(nodes, func(n corev1.Node) string { return n.Name })
	driven, err := cluster.Drivers(ctx, nodes, names, d.resources(o))
	if err != nil {
		return err
	}
	if err := d.choose(o, nodes, driven); err != nil {
		return err
	}
	if err := d.manager(ctx, g, o); err != nil {
		return err
	}
	if o.Definitions, err = definitions(ctx, g); err != nil {
		return err
	}
	if err := policies(ctx, g, o); err != nil {
		return err
	}
	if err := gateTaints(ctx, g, o, nodes); err != nil {
		return err
	}
	return podsOf(ctx, g, o.Nodes)
}

func (d *doctorCall) resources(o *doctor.Observed) []string {
	all := sets.New(d.onload)
	for _, n := range o.Networks {
		all.Insert(n.Resource)
	}
	return sets.List(all.Delete(""))
}

func (d *doctorCall) choose(o *doctor.Observed, nodes []corev1.Node, driven []observe.Driven) error {
	o.Capacity, o.Classes = map[corev1.ResourceName]int64{}, map[corev1.ResourceName]string{}
	claimed := map[string][]corev1.ResourceName{}
	for _, r := range driven {
		o.Classes[corev1.ResourceName(r.Resource)] = r.Class
		for _, node := range r.Nodes {
			claimed[node] = append(claimed[node], corev1.ResourceName(r.Resource))
		}
	}
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

// keepsAway returns an untolerated permanent taint: those of Kubernetes may pass; not our own.
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

// manager looks for Tailgate's Deployment, and for the settings of the pods in its arguments.
func (d *doctorCall) manager(ctx context.Context, api client.Reader, o *doctor.Observed) (err error) {
	var args []string
	check := mayRunFor(ctx, d.api)
	if o.Manager, args, err = managerOf(ctx, api, func(m *doctor.Manager) error {
		if d.image == "" {
			d.imageless = check(m)
		}
		return d.imageless
	}); err != nil && d.imageless == nil {
		return err
	}
	d.image, d.serviceAccount = cmp.Or(d.image, flagValue(args, "bench-image")), flagValue(args, "bench-service-account")
	d.policy = corev1.PullPolicy(cmp.Or(flagValue(args, "bench-image-pull-policy"), string(corev1.PullIfNotPresent)))
	if !slices.Contains([]corev1.PullPolicy{corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever}, d.policy) {
		return fmt.Errorf("the manager has the invalid setting --bench-image-pull-policy=%s; correct it", d.policy)
	}
	return nil
}

// managerOf returns Tailgate's manager, one with a bench image first, and its arguments. It passes
// over those that check, unless nil, refuses, and returns the error if there is no other.
func managerOf(ctx context.Context, api client.Reader, check func(*doctor.Manager) error) (*doctor.Manager, []string, error) {
	list := &appsv1.DeploymentList{}
	labels := client.MatchingLabels{"app.kubernetes.io/name": "tailgate", "app.kubernetes.io/component": "manager"}
	if err := api.List(ctx, list, labels); err != nil {
		return nil, nil, fmt.Errorf("listing deployments: %w", err)
	}
	var first *doctor.Manager
	var refused error
	for _, m := range list.Items {
		found := &doctor.Manager{Name: m.Namespace + "/" + m.Name, User: "system:serviceaccount:" + m.Namespace + ":" + m.Spec.Template.Spec.ServiceAccountName, Ready: m.Status.ReadyReplicas, Wanted: ptr.Deref(m.Spec.Replicas, 1)}
		for _, c := range m.Spec.Template.Spec.Containers {
			args := slices.Concat(c.Command, c.Args)
			if flagValue(args, "bench-image") == "" {
				continue
			}
			if check != nil {
				if err := check(found); err != nil {
					first, refused = cmp.Or(first, found), err
					continue
				}
			}
			found.Image = c.Image
			return found, args, nil
		}
		first = cmp.Or(first, found)
	}
	return first, nil, refused
}

// mayRunFor returns a check of the manager's rights: who may write in any namespace can give a
// Deployment the manager's labels, and an image that would run beside the pods of others.
func mayRunFor(ctx context.Context, api client.Client) func(*doctor.Manager) error {
	return func(m *doctor.Manager) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: m.User, ResourceAttributes: &authorizationv1.ResourceAttributes{Group: v1alpha1.GroupVersion.Group, Resource: "managers", Verb: "act"},
		}}
		switch err := api.Create(ctx, review); {
		case err != nil:
			return fmt.Errorf("asking whether Deployment %s is Tailgate's manager: %w; give its bench image with --image", m.Name, err)
		case !review.Status.Allowed:
			return fmt.Errorf("Deployment %s has the labels of Tailgate's manager and not its rights; give a bench image with --image", m.Name)
		}
		return nil
	}
}

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

func definitions(ctx context.Context, api client.Reader) ([]doctor.Definition, error) {
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
			return nil, fmt.Errorf("getting CustomResourceDefinition %s: %w", own.Name, err)
		default:
			found.Same = sameSchema(own, there)
			found.Served = slices.ContainsFunc(there.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
			})
		}
		all = append(all, found)
	}
	return all, nil
}

func policies(ctx context.Context, api client.Reader, o *doctor.Observed) error {
	var policies admissionregistrationv1.ValidatingAdmissionPolicyList
	var bindings admissionregistrationv1.ValidatingAdmissionPolicyBindingList
	if err := api.List(ctx, &policies, client.HasLabels{protection.Label}); err != nil {
		return fmt.Errorf("listing ValidatingAdmissionPolicies: %w", err)
	}
	if err := api.List(ctx, &bindings); err != nil {
		return fmt.Errorf("listing ValidatingAdmissionPolicyBindings: %w", err)
	}
	o.Policies, o.PolicyBindings = policies.Items, bindings.Items
	return nil
}

func sameSchema(a, b *apiextensionsv1.CustomResourceDefinition) bool {
	schema := func(d *apiextensionsv1.CustomResourceDefinition) []byte {
		for _, v := range d.Spec.Versions {
			if v.Name == v1alpha1.GroupVersion.Version {
				data, _ := json.Marshal(v.Schema) // It was decoded from JSON.
				return data
			}
		}
		return nil
	}
	return bytes.Equal(schema(a), schema(b))
}

// gateTaints finds DaemonSets like multus, and suppliers that do not tolerate their gate's taint.
func gateTaints(ctx context.Context, api client.Reader, o *doctor.Observed, nodes []corev1.Node) error {
	suppliers, err := observe.Suppliers(ctx, api, func(s *appsv1.DaemonSet) {
		if strings.Contains(s.Name, "multus") {
			o.Multus = append(o.Multus, *s)
		}
	})
	if err != nil {
		return err
	}
	gates := &v1alpha1.LatencyGateList{}
	if err := api.List(ctx, gates); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("listing latencygates: %w", err)
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

// definitionsOfNetworks reads the user's NetworkAttachmentDefinitions, or the namespace's.
func (d *doctorCall) definitionsOfNetworks(ctx context.Context, g *glimpse, o *doctor.Observed) error {
	o.MultusKind = true
	kind := foreign.GroupVersionKind
	read := func(u *unstructured.Unstructured) doctor.Network {
		config, _, _ := unstructured.NestedString(u.Object, "spec", "config")
		return doctor.Network{Name: u.GetNamespace() + "/" + u.GetName(), Found: true, Resource: u.GetAnnotations()[foreign.AnnotationResourceName], Config: config}
	}
	for _, network := range d.networks {
		key := types.NamespacedName{Namespace: d.podNamespace, Name: network}
		if in, name, qualified := strings.Cut(network, "/"); qualified {
			key = types.NamespacedName{Namespace: in, Name: name}
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(kind)
		switch err := g.Get(ctx, key, u); {
		case meta.IsNoMatchError(err):
			o.MultusKind = false
			return nil
		case !g.sees(kind.Kind, key.String()):
			return nil
		case apierrors.IsNotFound(err):
			o.Networks = append(o.Networks, doctor.Network{Name: key.String()})
		case err != nil:
			return fmt.Errorf("getting NetworkAttachmentDefinition %s: %w", key, err)
		default:
			o.Networks = append(o.Networks, read(u))
		}
	}
	d.ofVariants(o)
	if len(d.networks) > 0 || d.file != "" {
		return nil
	}
	list := foreign.List(kind)
	switch err := g.List(ctx, list, client.InNamespace(d.podNamespace)); {
	case apierrors.IsNotFound(err):
		o.MultusKind = false
	case err != nil:
		return fmt.Errorf("listing NetworkAttachmentDefinitions: %w", err)
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

func podsOf(ctx context.Context, api client.Reader, nodes []doctor.Node) error {
	names := text.Of(nodes, func(n doctor.Node) string { return n.Node.Name })
	byNode := map[string][]corev1.Pod{}
	err := observe.PodsOn(ctx, api, names, func(p *corev1.Pod) {
		if _, ours := p.Labels[pods.LabelDoctor]; !ours {
			byNode[p.Spec.NodeName] = append(byNode[p.Spec.NodeName], *p)
		}
	})
	for i, name := range names {
		nodes[i].Pods = byNode[name]
	}
	return err
}

func (d *doctorCall) notLooked(n *doctor.Node) string {
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
	case d.image == "" && d.imageless != nil:
		return d.imageless.Error()
	case d.image == "":
		return "no bench image is known; give one with --image"
	}
	return ""
}
