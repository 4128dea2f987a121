// Package observe reads what the checks before a measurement need, by any client.
package observe

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/dra"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/queue"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// +kubebuilder:rbac:groups=sriovnetwork.openshift.io,resources=sriovnetworknodestates,verbs=list
// +kubebuilder:rbac:groups=node.k8s.io,resources=runtimeclasses,verbs=get
// +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,verbs=get;list
// +kubebuilder:rbac:groups=topology.node.k8s.io,resources=noderesourcetopologies,verbs=list
// +kubebuilder:rbac:groups=resource.k8s.io,resources=deviceclasses;resourceslices,verbs=list
// +kubebuilder:rbac:groups=resource.k8s.io,resources=resourceclaims,verbs=get

type Cluster struct {
	Cache    client.Reader // lists nodes and benchmarks, which must not be changed
	Live     client.Reader
	Clock    clock.PassiveClock
	Tools    tool.Registry
	Settings preflight.Settings
	absent   absentKinds // the optional kinds that the cluster does not have
}

// Preflight reads a benchmark's input, or a matrix's by its overview, without pods: see Room.
func (c *Cluster) Preflight(ctx context.Context, b *v1alpha1.LatencyBenchmark) (preflight.Observed, error) {
	nodes := &corev1.NodeList{}
	if err := c.Cache.List(ctx, nodes); err != nil {
		return preflight.Observed{}, fmt.Errorf("listing nodes: %w", err)
	}
	var others []queue.Entry
	err := Whole(ctx, c.Cache, func() client.ObjectList { return &v1alpha1.LatencyBenchmarkList{} }, func(object runtime.Object) error {
		if o := object.(*v1alpha1.LatencyBenchmark); o.UID != b.UID && queue.Competes(o) {
			others = append(others, queue.EntryOf(o))
		}
		return nil
	})
	if err != nil {
		return preflight.Observed{}, fmt.Errorf("listing benchmarks: %w", err)
	}
	o := c.Known(b, nodes.Items, others)
	return o, c.Read(ctx, &o)
}

// Known returns the input without reading, by the nodes and the benchmarks that compete.
func (c *Cluster) Known(b *v1alpha1.LatencyBenchmark, nodes []corev1.Node, others []queue.Entry) preflight.Observed {
	o := preflight.Observed{Benchmark: b, Driver: c.Tools[b.Spec.Tool], Tools: c.Tools, Nodes: nodes, Settings: c.Settings, Others: map[string]int{}}
	for _, other := range others {
		o.Others[other.Pair.ClientNode]++
		o.Others[other.Pair.ServerNode]++
	}
	return o
}

// Read adds what it reads live, but nothing in a namespace that is not allowed.
func (c *Cluster) Read(ctx context.Context, o *preflight.Observed) (err error) {
	if preflight.NetworkNamespace(*o) != nil {
		return nil
	}
	if err := c.readDrivers(ctx, o); err != nil {
		return err
	}
	o.Networks, o.Profiles = map[string]*preflight.NetworkDefinition{}, map[string]*corev1.ConfigMap{}
	for _, v := range plan.Variants(o.Benchmark.Spec) {
		if v.Network.Type.Attached() {
			if o.Networks[v.Name], err = c.networkDefinition(ctx, o.Benchmark, v); err != nil {
				return err
			}
		}
		if ref := v.Acceleration.OnloadSettings().ProfileRef; ref != nil {
			if o.Profiles[v.Name], err = Get[corev1.ConfigMap](ctx, c.Live, o.Benchmark.Namespace, ref.Name); err != nil {
				return err
			}
		}
	}
	if err := c.readClasses(ctx, o); err != nil {
		return err
	}
	nodes := preflight.Matching(*o)
	if o.NodeStates, err = ofNodes[foreign.SriovNetworkNodeState](ctx, c, foreign.SriovNetworkNodeStateKind, nodes); err != nil {
		return err
	}
	if preflight.Aligned(*o) {
		o.Topologies, err = ofNodes[foreign.NodeResourceTopology](ctx, c, foreign.NodeResourceTopologyKind, nodes)
	}
	return err
}

// Room adds what pods use on the nodes and, without a priority class, the default one. Pods are
// most of a large cluster's data: they are not read for a rejected benchmark.
func (c *Cluster) Room(ctx context.Context, o *preflight.Observed) error {
	if o.Driver == nil || preflight.NetworkNamespace(*o) != nil {
		return nil
	}
	if _, rejection := preflight.Accept(*o); rejection != nil {
		return nil
	}
	if o.PriorityClass == nil {
		err := Each(ctx, c.Live, func() client.ObjectList { return &schedulingv1.PriorityClassList{} }, func(object runtime.Object) error {
			if class := object.(*schedulingv1.PriorityClass); class.GlobalDefault {
				o.PriorityClass = class
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("listing priority classes: %w", err)
		}
	}
	o.Pods = nil
	return PodsOn(ctx, c.Live, preflight.Matching(*o), func(p *corev1.Pod) {
		if p, ok := preflight.Occupying(p); ok {
			o.Pods = append(o.Pods, p)
		}
	})
}

func (c *Cluster) readClasses(ctx context.Context, o *preflight.Observed) (err error) {
	template := o.Benchmark.Spec.Pods
	if template == nil {
		return nil
	}
	if name := template.RuntimeClassName; name != "" {
		if o.RuntimeClass, err = Get[nodev1.RuntimeClass](ctx, c.Live, "", name); err != nil {
			return err
		}
	}
	if name := template.PriorityClassName; name != "" {
		o.PriorityClass, err = Get[schedulingv1.PriorityClass](ctx, c.Live, "", name)
	}
	return err
}

func (c *Cluster) networkDefinition(ctx context.Context, b *v1alpha1.LatencyBenchmark, v v1alpha1.Variant) (*preflight.NetworkDefinition, error) {
	namespace, name := pods.NetworkName(b, v)
	definition := &preflight.NetworkDefinition{Name: namespace + "/" + name}
	object := foreign.Object()
	err := c.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, object)
	switch {
	case meta.IsNoMatchError(err):
		definition.KindMissing = true
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, fmt.Errorf("getting NetworkAttachmentDefinition %s: %w", definition.Name, err)
	default:
		definition.Found, definition.Own = true, metav1.IsControlledBy(object, b)
		definition.ResourceName = object.GetAnnotations()[foreign.AnnotationResourceName]
		config, _, _ := unstructured.NestedString(object.Object, "spec", "config")
		definition.Deviceless = foreign.Deviceless(config, definition.ResourceName)
	}
	return definition, nil
}

// PodsOn visits the unfinished pods of nodes.
func PodsOn(ctx context.Context, live client.Reader, nodes []string, visit func(*corev1.Pod)) error {
	matching := sets.New(nodes...)
	running := []fields.Selector{
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	}
	for _, selector := range selectors("spec.nodeName", nodes, running...) {
		err := Each(ctx, live, func() client.ObjectList { return &corev1.PodList{} }, func(o runtime.Object) error {
			if p := o.(*corev1.Pod); matching.Has(p.Spec.NodeName) {
				visit(p)
			}
			return nil
		}, selector)
		if err != nil {
			return fmt.Errorf("listing pods: %w", err)
		}
	}
	return nil
}

// ofNodes reads objects named after nodes, and merges those of one node; nil without the kind.
func ofNodes[T any](ctx context.Context, c *Cluster, kind schema.GroupVersionKind, nodes []string) (map[string]T, error) {
	if c.absent.known(kind, c.Clock.Now()) {
		return nil, nil
	}
	matching := sets.New(nodes...)
	list := func() client.ObjectList { return foreign.List(kind) }
	all := map[string]T{}
	for _, selector := range selectors(metav1.ObjectNameField, nodes) {
		err := Each(ctx, c.Live, list, func(o runtime.Object) error {
			u := o.(*unstructured.Unstructured)
			if !matching.Has(u.GetName()) {
				return nil
			}
			decoded, err := foreign.Decode[T](u.Object)
			if err != nil {
				return fmt.Errorf("%s: %w", u.GetName(), err)
			}
			if other, ok := all[u.GetName()]; ok {
				if merging, ok := any(other).(interface{ Merge(o T) T }); ok {
					decoded = merging.Merge(decoded)
				}
			}
			all[u.GetName()] = decoded
			return nil
		}, selector)
		switch {
		case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
			c.absent.add(kind, c.Clock.Now())
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("listing %s: %w", kind.Kind, err)
		}
	}
	return all, nil
}

func (c *Cluster) readDrivers(ctx context.Context, o *preflight.Observed) error {
	all, err := c.Drivers(ctx, o.Nodes, preflight.Matching(*o), plan.Resources(o.Benchmark.Spec))
	for _, d := range all {
		if len(d.Nodes) > 0 {
			o.Claimed = append(o.Claimed, d.Resource)
		}
	}
	return err
}

// Driven is a resource that a DeviceClass provides on nodes that do not advertise it themselves.
type Driven struct {
	Resource, Class string
	Nodes           []string
}

// Drivers looks for resources that a node does not advertise among the devices of Dynamic Resource
// Allocation. Nodes have them allocatable, as if a plugin advertised them.
func (c *Cluster) Drivers(ctx context.Context, nodes []corev1.Node, names, resources []string) ([]Driven, error) {
	matching := sets.New(names...)
	missing := slices.DeleteFunc(resources, func(name string) bool {
		return !slices.ContainsFunc(nodes, func(n corev1.Node) bool {
			q := n.Status.Allocatable[corev1.ResourceName(name)]
			return q.Sign() == 0 && matching.Has(n.Name)
		})
	})
	kind := resourcev1.SchemeGroupVersion.WithKind("DeviceClass")
	if len(missing) == 0 || c.absent.known(kind, c.Clock.Now()) {
		return nil, nil
	}
	classes := &resourcev1.DeviceClassList{}
	switch err := c.Live.List(ctx, classes); {
	case meta.IsNoMatchError(err) || apierrors.IsNotFound(err):
		c.absent.add(kind, c.Clock.Now())
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("listing device classes: %w", err)
	}
	var all []resourcev1.ResourceSlice
	var found []Driven
	for _, name := range missing {
		class := dra.Class(classes.Items, corev1.ResourceName(name))
		if class == nil {
			continue
		}
		if all == nil {
			var err error
			if all, err = c.resourceSlices(ctx, names...); err != nil {
				return nil, err
			}
		}
		on := dra.Advertise(nodes, corev1.ResourceName(name), dra.Devices(ctx, class, all))
		found = append(found, Driven{Resource: name, Class: class.Name, Nodes: on})
	}
	return found, nil
}

// resourceSlices reads drivers' devices on nodes, with more than fewNodes also others'.
func (c *Cluster) resourceSlices(ctx context.Context, nodes ...string) ([]resourcev1.ResourceSlice, error) {
	var all []resourcev1.ResourceSlice
	for _, selector := range selectors(resourcev1.ResourceSliceSelectorNodeName, nodes) {
		err := Each(ctx, c.Live, func() client.ObjectList { return &resourcev1.ResourceSliceList{} }, func(o runtime.Object) error {
			all = append(all, *o.(*resourcev1.ResourceSlice))
			return nil
		}, selector)
		if err != nil {
			return nil, fmt.Errorf("listing resource slices: %w", err)
		}
	}
	return all, nil
}

// ClaimedDevice returns the PCI address of a resource's device in a pod's claim, or nothing.
func (c *Cluster) ClaimedDevice(ctx context.Context, p *corev1.Pod, resource string) (string, error) {
	if p.Spec.NodeName == "" || p.Status.ExtendedResourceClaimStatus == nil {
		return "", nil
	}
	claim, err := Get[resourcev1.ResourceClaim](ctx, c.Live, p.Namespace, p.Status.ExtendedResourceClaimStatus.ResourceClaimName)
	if err != nil || claim == nil {
		return "", err
	}
	all, err := c.resourceSlices(ctx, p.Spec.NodeName)
	if err != nil {
		return "", err
	}
	return dra.Address(p, corev1.ResourceName(resource), claim, all), nil
}

// Suppliers reads what may supply devices, as far as it may. visit, or nil, gets each DaemonSet.
func Suppliers(ctx context.Context, live client.Reader, visit func(*appsv1.DaemonSet)) ([]preflight.Supplier, error) {
	var all []preflight.Supplier
	for _, list := range []func() client.ObjectList{
		func() client.ObjectList { return foreign.List(foreign.ModuleKind) }, func() client.ObjectList { return &appsv1.DaemonSetList{} },
	} {
		err := Each(ctx, live, list, func(o runtime.Object) error {
			if d, ok := o.(*appsv1.DaemonSet); ok {
				if s, ok := preflight.OfDaemonSet(d); ok {
					all = append(all, s)
				}
				if visit != nil {
					visit(d)
				}
				return nil
			}
			m, err := foreign.Decode[foreign.Module](o.(*unstructured.Unstructured).Object)
			all = append(all, preflight.OfModule(m))
			return err
		})
		if err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("listing what supplies nodes with devices: %w", err)
		}
	}
	return all, nil
}

const fewNodes = 16 // have their objects listed node by node; for more, all are listed

func selectors(field string, nodes []string, also ...fields.Selector) []client.ListOption {
	switch {
	case len(nodes) > fewNodes && len(also) == 0: // Not every client knows an empty selector.
		return []client.ListOption{&client.ListOptions{}}
	case len(nodes) > fewNodes:
		return []client.ListOption{client.MatchingFieldsSelector{Selector: fields.AndSelectors(also...)}}
	}
	var all []client.ListOption
	for _, name := range nodes {
		one := append([]fields.Selector{fields.OneTermEqualSelector(field, name)}, also...)
		all = append(all, client.MatchingFieldsSelector{Selector: fields.AndSelectors(one...)})
	}
	return all
}

const absentFor = time.Minute // without a request for a missing kind: each discovers all kinds

// absentKinds remembers when the cluster was last seen without a kind.
type absentKinds struct{ since sync.Map }

func (a *absentKinds) known(kind schema.GroupVersionKind, now time.Time) bool {
	since, found := a.since.Load(kind)
	return found && now.Sub(since.(time.Time)) < absentFor
}

func (a *absentKinds) add(kind schema.GroupVersionKind, now time.Time) { a.since.Store(kind, now) }

const (
	// maxPage is in bytes as sent: objects have up to 3 MiB; empty items take 25 times in memory.
	maxPage = 4 << 20
	// fewObjects are in a first page, or an unbounded one, mostObjects in later ones.
	fewObjects, mostObjects = 32, 500
)

var errLargePage = fmt.Errorf("a page of a list has more than %d bytes", maxPage)

type boundedPage struct{}

// Bounded returns a configuration whose clients refuse Each's pages above maxPage.
func Bounded(config *rest.Config) *rest.Config {
	own := rest.CopyConfig(config)
	own.Wrap(func(next http.RoundTripper) http.RoundTripper { return boundedTransport{next} })
	return own
}

type boundedTransport struct{ http.RoundTripper }

func (t boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := t.RoundTripper.RoundTrip(r)
	if read, ok := r.Context().Value(boundedPage{}).(*int); ok && err == nil {
		response.Body = &boundedBody{response.Body, read}
	}
	return response, err
}

// boundedBody ends after maxPage bytes, and counts them. client-go would log an error as the end.
type boundedBody struct {
	io.ReadCloser
	read *int
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if *b.read += n; *b.read > maxPage {
		return 0, io.EOF
	}
	return n, err
}

// Get reads an object; it returns nil if there is none.
func Get[T any, O interface {
	*T
	client.Object
}](ctx context.Context, from client.Reader, namespace, name string) (O, error) {
	o := O(new(T))
	err := from.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, o)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting %s %s: %w", reflect.TypeOf(o).Elem().Name(), name, err)
	}
	return o, nil
}

// Whole visits a cache's objects, which has no pages. They must not be changed.
func Whole(ctx context.Context, from client.Reader, list func() client.ObjectList, visit func(runtime.Object) error,
	options ...client.ListOption) error {
	all := list()
	if err := from.List(ctx, all, append([]client.ListOption{client.UnsafeDisableDeepCopy}, options...)...); err != nil {
		return err
	}
	return meta.EachListItem(all, visit)
}

// Each visits objects live, page by page, so that large ones are never in memory at once. A page
// above maxPage is read in parts, if the reader is Bounded.
func Each(ctx context.Context, from client.Reader, list func() client.ObjectList, visit func(runtime.Object) error,
	options ...client.ListOption) error {
	read, size, next := 0, fewObjects, ""
	ctx = context.WithValue(ctx, boundedPage{}, &read)
	for {
		page := list()
		read = 0
		err := from.List(ctx, page, append([]client.ListOption{client.Limit(size), client.Continue(next)}, options...)...)
		switch {
		case read > maxPage && size > 1:
			size = max(1, size/4)
			continue
		case read > maxPage:
			return errLargePage
		case err != nil:
			return err
		}
		if err := meta.EachListItem(page, visit); err != nil {
			return err
		}
		if next = page.GetContinue(); next == "" {
			return nil
		}
		if read > 0 {
			// Half of a page: a refused one costs the API server as much as one that is read.
			size = max(1, min(4*size, mostObjects, size*(maxPage/2)/read))
		}
	}
}
