package benchmark

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/queue"
)

// +kubebuilder:rbac:groups=sriovnetwork.openshift.io,resources=sriovnetworknodestates,verbs=list
// +kubebuilder:rbac:groups=node.k8s.io,resources=runtimeclasses,verbs=get
// +kubebuilder:rbac:groups=scheduling.k8s.io,resources=priorityclasses,verbs=get;list
// +kubebuilder:rbac:groups=topology.node.k8s.io,resources=noderesourcetopologies,verbs=list

// observeCluster reads live the preflight's input other than the nodes themselves.
func (r *Reconciler) observeCluster(ctx context.Context, w *world) error {
	b, accepted := w.benchmark, &w.accepted
	if preflight.NetworkNamespace(*accepted) != nil {
		// Objects in a namespace that is not allowed are not read.
		return nil
	}
	if err := r.observeDrivers(ctx, accepted); err != nil {
		return err
	}
	accepted.Networks, accepted.Profiles = map[string]*preflight.NetworkDefinition{}, map[string]*preflight.Profile{}
	for _, v := range plan.Variants(b.Spec) {
		var err error
		if v.Network.Type.Attached() {
			if accepted.Networks[v.Name], err = r.networkDefinition(ctx, b, v); err != nil {
				return err
			}
		}
		if ref := v.Acceleration.OnloadSettings().ProfileRef; ref != nil {
			if accepted.Profiles[v.Name], err = r.profile(ctx, b.Namespace, ref.Name); err != nil {
				return err
			}
		}
	}

	if err := r.observeClasses(ctx, w); err != nil {
		return err
	}
	accepted.Others = map[string]int{}
	for _, other := range w.others {
		accepted.Others[other.Pair.ClientNode]++
		accepted.Others[other.Pair.ServerNode]++
	}

	if !w.looksCloser() {
		return nil
	}
	nodes := preflight.Matching(*accepted)
	var err error
	if accepted.NodeStates, err = ofNodes[foreign.SriovNetworkNodeState](ctx, r, foreign.SriovNetworkNodeStateKind, nodes); err != nil {
		return err
	}
	if preflight.Aligned(*accepted) {
		if accepted.Topologies, err = ofNodes[foreign.NodeResourceTopology](ctx, r, foreign.NodeResourceTopologyKind, nodes); err != nil {
			return err
		}
	}
	// The benchmark of each pair of a matrix reads the pods itself, when its turn has come.
	if w.driver == nil || w.ofMatrix {
		return nil
	}
	// In a large cluster, most of the data are pods: they are not read for a benchmark that is rejected anyway.
	if _, rejection := preflight.Accept(*accepted); rejection != nil {
		return nil
	}
	return r.observePods(ctx, w, nodes)
}

// observeClasses reads the classes that the template names.
func (r *Reconciler) observeClasses(ctx context.Context, w *world) (err error) {
	template := w.benchmark.Spec.Pods
	if template == nil {
		return nil
	}
	if name := template.RuntimeClassName; name != "" {
		if w.accepted.RuntimeClass, err = controllers.Get[nodev1.RuntimeClass](ctx, r.Live, "", name); err != nil {
			return err
		}
	}
	if name := template.PriorityClassName; name != "" {
		w.accepted.PriorityClass, err = controllers.Get[schedulingv1.PriorityClass](ctx, r.Live, "", name)
	}
	return err
}

// observePods reads the resources that pods use on nodes and, if the benchmark names no priority class, the default
// priority class, which decides which pods the benchmark's pods would preempt.
func (r *Reconciler) observePods(ctx context.Context, w *world, nodes []string) (err error) {
	if w.accepted.PriorityClass == nil {
		list := &schedulingv1.PriorityClassList{}
		if err := r.Live.List(ctx, list); err != nil {
			return fmt.Errorf("listing priority classes: %w", err)
		}
		for i := range list.Items {
			if list.Items[i].GlobalDefault {
				w.accepted.PriorityClass = &list.Items[i]
			}
		}
	}
	w.accepted.Pods, err = r.occupying(ctx, nodes)
	return err
}

// looksCloser reports whether the use of the nodes by others matters now: when a pair is chosen, when the turn of the
// benchmark has come, and while it is rejected, which may be the reason.
func (w *world) looksCloser() bool {
	b := w.benchmark
	if b.Status.Pair == nil || meta.IsStatusConditionFalse(b.Status.Conditions, v1alpha1.ConditionAccepted) {
		return true
	}
	turn, _ := queue.Admit(entry(b), w.others)
	return turn && len(w.foreign) == 0
}

func (r *Reconciler) networkDefinition(ctx context.Context, b *v1alpha1.LatencyBenchmark, v v1alpha1.Variant) (*preflight.NetworkDefinition, error) {
	namespace, name := pods.NetworkName(b, v)
	definition := &preflight.NetworkDefinition{Name: namespace + "/" + name}
	object := foreign.Object()
	err := r.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, object)
	switch {
	case meta.IsNoMatchError(err):
		definition.KindMissing = true
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, fmt.Errorf("getting NetworkAttachmentDefinition %s: %w", definition.Name, err)
	default:
		definition.Found, definition.Own = true, metav1.IsControlledBy(object, b)
		definition.ResourceName = object.Annotations[foreign.AnnotationResourceName]
	}
	return definition, nil
}

// parent reads the name of the node's interface below the interfaces of a variant's network; empty if there is none.
func (r *Reconciler) parent(ctx context.Context, b *v1alpha1.LatencyBenchmark, v v1alpha1.Variant) (string, error) {
	namespace, name := pods.NetworkName(b, v)
	definition := &unstructured.Unstructured{}
	definition.SetGroupVersionKind(foreign.GroupVersionKind)
	if err := r.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, definition); err != nil {
		if apierrors.IsNotFound(err) {
			// Multus reports that for the pod.
			return "", nil
		}
		return "", refusedBy(err, v1alpha1.OutcomeNetworkRefused, "to show NetworkAttachmentDefinition "+name, namespace)
	}
	config, _, _ := unstructured.NestedString(definition.Object, "spec", "config")
	return foreign.Parent(config), nil
}

// profile reads the settings of Onload from a ConfigMap.
func (r *Reconciler) profile(ctx context.Context, namespace, name string) (*preflight.Profile, error) {
	p := &preflight.Profile{Name: namespace + "/" + name}
	cm, err := controllers.Get[corev1.ConfigMap](ctx, r.Live, namespace, name)
	if err != nil || cm == nil {
		return p, err
	}
	p.Found, p.Data = true, cm.Data
	return p, nil
}

// occupying reads the resources that pods use on nodes.
func (r *Reconciler) occupying(ctx context.Context, nodes []string) ([]preflight.Pod, error) {
	matching := sets.New(nodes...)
	var all []preflight.Pod
	running := []fields.Selector{
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodSucceeded)),
		fields.OneTermNotEqualSelector("status.phase", string(corev1.PodFailed)),
	}
	for _, selector := range selectors("spec.nodeName", nodes, running...) {
		err := controllers.Each(ctx, r.Live, func() client.ObjectList { return &corev1.PodList{} }, func(o runtime.Object) error {
			p, ok := preflight.Occupying(o.(*corev1.Pod))
			if ok && matching.Has(p.Node) {
				all = append(all, p)
			}
			return nil
		}, selector)
		if err != nil {
			return nil, fmt.Errorf("listing pods: %w", err)
		}
	}
	return all, nil
}

// ofNodes reads objects of another program that are named after nodes, and merges those of one node. It returns nil if the cluster
// does not have the kind.
func ofNodes[T any](ctx context.Context, r *Reconciler, kind schema.GroupVersionKind, nodes []string) (map[string]T, error) {
	if r.absent.known(kind, r.Clock.Now()) {
		return nil, nil
	}
	matching := sets.New(nodes...)
	list := func() client.ObjectList {
		l := &unstructured.UnstructuredList{}
		l.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		return l
	}
	all := map[string]T{}
	for _, selector := range selectors(metav1.ObjectNameField, nodes) {
		err := controllers.Each(ctx, r.Live, list, func(o runtime.Object) error {
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
			r.absent.note(kind, r.Clock.Now())
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("listing %s: %w", kind.Kind, err)
		}
	}
	return all, nil
}

// fewNodes is the highest number of nodes whose objects are listed node by node. For more nodes, all objects are listed.
const fewNodes = 16

// selectors returns the field selectors that list the objects of nodes.
func selectors(field string, nodes []string, also ...fields.Selector) []client.ListOption {
	switch {
	case len(nodes) > fewNodes && len(also) == 0:
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

// absentFor is how long a kind that the cluster does not have is not requested again: with each request, the client would
// discover all kinds again.
const absentFor = time.Minute

// absentKinds remembers when the cluster was last seen without a kind.
type absentKinds struct{ since sync.Map }

func (a *absentKinds) known(kind schema.GroupVersionKind, now time.Time) bool {
	since, found := a.since.Load(kind)
	return found && now.Sub(since.(time.Time)) < absentFor
}

func (a *absentKinds) note(kind schema.GroupVersionKind, now time.Time) { a.since.Store(kind, now) }
