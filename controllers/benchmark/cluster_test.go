package benchmark

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/preflight"
)

// apiServer answers the requests of observeCluster, with two objects a page, and records them.
type apiServer struct {
	client.Reader
	pods     []corev1.Pod
	objects  map[string][]unstructured.Unstructured // objects of other kinds that exist
	networks map[string]metav1.ObjectMeta
	profiles map[string]map[string]string
	runtimes []nodev1.RuntimeClass
	classes  []schedulingv1.PriorityClass
	asked    []string
	fails    error
}

const pageSize = 2

func (s *apiServer) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *unstructured.Unstructured:
		network, ok := s.networks[key.String()]
		switch {
		case s.networks == nil:
			return &meta.NoKindMatchError{}
		case !ok:
			return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
		}
		o.SetAnnotations(network.Annotations)
		o.SetOwnerReferences(network.OwnerReferences)
	case *corev1.ConfigMap:
		data, ok := s.profiles[key.String()]
		if !ok {
			return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
		}
		o.Data = data
	case *nodev1.RuntimeClass:
		for _, class := range s.runtimes {
			if class.Name == key.Name {
				*o = class
				return nil
			}
		}
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	case *schedulingv1.PriorityClass:
		for _, class := range s.classes {
			if class.Name == key.Name {
				*o = class
				return nil
			}
		}
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return nil
}

func (s *apiServer) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(options).AsListOptions()
	selector, err := fields.ParseSelector(o.FieldSelector)
	if err != nil {
		return err
	}
	first := 0
	if o.Continue == "" {
		kind := list.GetObjectKind().GroupVersionKind().Kind
		s.asked = append(s.asked, fmt.Sprintf("%s %s", cmp.Or(kind, reflect.TypeOf(list).Elem().Name()), o.FieldSelector))
	} else if first, err = strconv.Atoi(o.Continue); err != nil {
		return err
	}
	if s.fails != nil {
		return s.fails
	}
	more := 0
	switch l := list.(type) {
	case *schedulingv1.PriorityClassList:
		l.Items = s.classes
	case *corev1.PodList:
		for i, p := range s.pods[first:] {
			if len(l.Items) == pageSize {
				more = first + i
				break
			}
			if selector.Matches(fields.Set{"spec.nodeName": p.Spec.NodeName, "status.phase": string(p.Status.Phase)}) {
				l.Items = append(l.Items, p)
			}
		}
	case *unstructured.UnstructuredList:
		items, ok := s.objects[l.GetKind()]
		if !ok {
			return fmt.Errorf("asking: %w", &meta.NoKindMatchError{})
		}
		for i, item := range items[first:] {
			if len(l.Items) == pageSize {
				more = first + i
				break
			}
			if selector.Matches(fields.Set{"metadata.name": item.GetName()}) {
				l.Items = append(l.Items, item)
			}
		}
	}
	if more > 0 {
		list.SetContinue(strconv.Itoa(more))
	}
	return nil
}

// podOn returns a running pod with one CPU.
func podOn(node, name string, change ...func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: name},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")},
		}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

// nodeState returns the state of a node that sriov-network-operator reports.
func nodeState(node, sync string) unstructured.Unstructured {
	return unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": node}, "status": map[string]any{"syncStatus": sync},
	}}
}

func manyNodes(n int) []corev1.Node {
	var all []corev1.Node
	for i := range n {
		all = append(all, readyNode(fmt.Sprintf("n%02d", i)))
	}
	return all
}

const (
	askedStates  = "SriovNetworkNodeStateList "
	askedZones   = "NodeResourceTopologyList "
	askedClasses = "PriorityClassList "
	askedPods    = "PodList "
	notEnded     = "status.phase!=Succeeded,status.phase!=Failed"
)

// readerOf returns a reconciler that reads from a server.
func readerOf(server *apiServer) *Reconciler {
	return &Reconciler{Cluster: &observe.Cluster{Live: server, Clock: clocktesting.NewFakePassiveClock(noon)}}
}

func TestObserveCluster(t *testing.T) {
	vf := func(w *world) {
		w.benchmark.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "amd.com/sf_vf", NetworkRef: &v1alpha1.NetworkRef{Name: "sf-vf"}}}}
		w.benchmark.Spec.Placement.NUMAPolicy = "" // one NUMA node is required by default
		for _, n := range w.accepted.Nodes {
			n.Status.Allocatable["amd.com/sf_vf"] = resource.MustParse("4")
		}
	}
	onePod := []preflight.Pod{{Name: "other/x", Node: "a", Requests: map[corev1.ResourceName]int64{corev1.ResourceCPU: 1000, corev1.ResourcePods: 1}}}
	cases := map[string]struct {
		server  apiServer
		changes []func(*world)
		// wantAsked are the lists that were requested, as kind and field selector, in order.
		wantAsked []string
		wantPods  []preflight.Pod
		// wantStates are the sync states by node.
		wantStates map[string]string
	}{
		"few nodes are listed one by one": {
			server: apiServer{
				pods:    []corev1.Pod{podOn("c", "z"), podOn("a", "x"), podOn("a", "ended", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })},
				objects: map[string][]unstructured.Unstructured{"SriovNetworkNodeStateList": {nodeState("a", "Succeeded"), nodeState("c", "Failed")}},
			},
			wantAsked: []string{
				askedStates + "metadata.name=a", askedStates + "metadata.name=b", askedClasses,
				askedPods + "spec.nodeName=a," + notEnded, askedPods + "spec.nodeName=b," + notEnded,
			},
			wantPods:   onePod,
			wantStates: map[string]string{"a": "Succeeded"},
		},
		"objects of many nodes are listed page by page, and those of other nodes are left out": {
			server: apiServer{
				pods: []corev1.Pod{podOn("elsewhere", "z"), podOn("n00", "x"), podOn("", "pending"), podOn("n16", "y"), podOn("n16", "w")},
				objects: map[string][]unstructured.Unstructured{
					"SriovNetworkNodeStateList": {nodeState("elsewhere", "Failed"), nodeState("n02", "Succeeded"), nodeState("n01", "Succeeded")},
				},
			},
			changes:   on(notAccepted, withNodes(manyNodes(17)...)),
			wantAsked: []string{askedStates, askedClasses, askedPods + notEnded},
			wantPods: []preflight.Pod{
				{Name: "other/x", Node: "n00", Requests: onePod[0].Requests}, {Name: "other/y", Node: "n16", Requests: onePod[0].Requests},
				{Name: "other/w", Node: "n16", Requests: onePod[0].Requests},
			},
			wantStates: map[string]string{"n01": "Succeeded", "n02": "Succeeded"},
		},
		"nodes that the selectors do not match are not asked about": {
			changes: on(notAccepted, withNodes(manyNodes(40)...), func(w *world) {
				w.benchmark.Spec.Placement.Client = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: "n03"}}
				w.benchmark.Spec.Placement.Server = &v1alpha1.EndpointPlacement{NodeSelection: v1alpha1.NodeSelection{NodeName: "n04"}}
			}),
			wantAsked: []string{askedStates + "metadata.name=n03", askedClasses, askedPods + "spec.nodeName=n03," + notEnded, askedPods + "spec.nodeName=n04," + notEnded},
		},
		"a device that has to be on the NUMA node of the CPUs takes the zones": {
			server:  apiServer{networks: map[string]metav1.ObjectMeta{"perf/sf-vf": {Annotations: map[string]string{foreign.AnnotationResourceName: "amd.com/sf_vf"}}}},
			changes: on(vf),
			wantAsked: []string{
				askedStates + "metadata.name=a", askedZones + "metadata.name=a", askedClasses,
				askedPods + "spec.nodeName=a," + notEnded, askedPods + "spec.nodeName=b," + notEnded,
			},
		},
		"a benchmark that is rejected anyway does not list pods": {
			server:    apiServer{networks: map[string]metav1.ObjectMeta{}},
			changes:   on(notAccepted, vf),
			wantAsked: []string{askedStates + "metadata.name=a", askedZones + "metadata.name=a"},
		},
		"one that waits for its turn asks nothing":            {changes: on(withOther(2*time.Hour, false))},
		"one that waits for pods of others asks nothing":      {changes: on(withForeign("perf/y on b"))},
		"a benchmark with an unknown tool does not list pods": {changes: on(func(w *world) { w.accepted.Driver = nil }), wantAsked: []string{askedStates + "metadata.name=a"}},
		"one that was rejected is looked at whoever goes first": {
			changes: on(withOther(2*time.Hour, false), func(w *world) {
				w.benchmark.SetCondition(v1alpha1.Condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonNodeBusy, ""))
			}),
			wantAsked: []string{askedStates + "metadata.name=a", askedClasses, askedPods + "spec.nodeName=a," + notEnded, askedPods + "spec.nodeName=b," + notEnded},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(c.changes...)
			r := readerOf(&c.server)
			if err := r.observeCluster(context.Background(), w); err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(c.wantAsked, c.server.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if diff := gocmp.Diff(c.wantPods, w.accepted.Pods); diff != "" {
				t.Errorf("pods (-want +got):\n%s", diff)
			}
			var states map[string]string
			for node, s := range w.accepted.NodeStates {
				if states == nil {
					states = map[string]string{}
				}
				states[node] = s.Status.SyncStatus
			}
			if diff := gocmp.Diff(c.wantStates, states); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
		})
	}
}

func TestObserveNetworksAndProfiles(t *testing.T) {
	w := makeWorld()
	uid := w.benchmark.UID
	own := metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{UID: uid, Controller: new(true)}}}
	network := func(n v1alpha1.DeviceNetwork) *v1alpha1.Network {
		n.ResourceName = "amd.com/sf_vf"
		return &v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: n}}
	}
	ipam := &v1alpha1.IPAM{Type: v1alpha1.IPAMWhereabouts, Range: "192.168.40.0/24"}
	onload := func(profile string) *v1alpha1.Acceleration {
		return &v1alpha1.Acceleration{Type: v1alpha1.AccelerationOnload, Onload: &v1alpha1.Onload{ProfileRef: &v1alpha1.ObjectName{Name: profile}}}
	}
	w.accepted.NetworkNamespaces = []string{"nets"}
	w.benchmark.Spec.Variants = []v1alpha1.Variant{
		{Name: "pod"},
		{Name: "named", Network: network(v1alpha1.DeviceNetwork{NetworkRef: &v1alpha1.NetworkRef{Namespace: "nets", Name: "sf-vf"}}), Acceleration: onload("mine")},
		{Name: "missing", Network: network(v1alpha1.DeviceNetwork{NetworkRef: &v1alpha1.NetworkRef{Name: "nowhere"}}), Acceleration: onload("nowhere")},
		{Name: "made", Network: network(v1alpha1.DeviceNetwork{IPAM: ipam})},
		{Name: "taken", Network: network(v1alpha1.DeviceNetwork{IPAM: ipam})},
		{Name: "new", Network: network(v1alpha1.DeviceNetwork{IPAM: ipam})},
	}
	r := readerOf(&apiServer{
		networks: map[string]metav1.ObjectMeta{
			"nets/sf-vf":   {Annotations: map[string]string{foreign.AnnotationResourceName: "amd.com/sf_vf"}},
			"perf/x-made":  own,
			"perf/x-taken": {},
		},
		profiles: map[string]map[string]string{"perf/mine": {"EF_POLL_USEC": "1"}},
	})
	if err := r.observeCluster(context.Background(), w); err != nil {
		t.Fatal(err)
	}
	wantNetworks := map[string]*preflight.NetworkDefinition{
		"named":   {Name: "nets/sf-vf", Found: true, ResourceName: "amd.com/sf_vf"},
		"missing": {Name: "perf/nowhere"},
		"made":    {Name: "perf/x-made", Found: true, Own: true},
		"taken":   {Name: "perf/x-taken", Found: true},
		"new":     {Name: "perf/x-new"},
	}
	if diff := gocmp.Diff(wantNetworks, w.accepted.Networks); diff != "" {
		t.Errorf("networks (-want +got):\n%s", diff)
	}
	found := w.accepted.Profiles["named"]
	missing, looked := w.accepted.Profiles["missing"]
	if len(w.accepted.Profiles) != 2 || found == nil || found.Data["EF_POLL_USEC"] != "1" || !looked || missing != nil {
		t.Errorf("profiles %v", w.accepted.Profiles)
	}

	w.accepted.Networks, w.accepted.NetworkNamespaces = nil, nil
	if err := r.observeCluster(context.Background(), w); err != nil {
		t.Fatal(err)
	}
	if w.accepted.Networks != nil {
		t.Error("networks of a namespace that is not allowed were read")
	}

	r.Cluster.Live, w.accepted.NetworkNamespaces = &apiServer{}, []string{"*"}
	if err := r.observeCluster(context.Background(), w); err != nil {
		t.Fatal(err)
	}
	if !w.accepted.Networks["named"].KindMissing {
		t.Error("a cluster without Multus was not recognised")
	}
}

func TestObserveClasses(t *testing.T) {
	named := func(runtime, priority string) func(*world) {
		return func(w *world) {
			w.benchmark.Spec.Pods = &v1alpha1.PodSettings{RuntimeClassName: runtime, PriorityClassName: priority}
		}
	}
	class := func(name string, isDefault bool) schedulingv1.PriorityClass {
		return schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, GlobalDefault: isDefault}
	}
	cases := map[string]struct {
		server  apiServer
		changes []func(*world)
		// want has the names of the runtime class and the priority class, with a dash for a missing one.
		want string
	}{
		"none":                               {want: "- -"},
		"no default":                         {server: apiServer{classes: []schedulingv1.PriorityClass{class("high", false)}}, want: "- -"},
		"the default":                        {server: apiServer{classes: []schedulingv1.PriorityClass{class("high", false), class("usual", true)}}, want: "- usual"},
		"named ones":                         {server: apiServer{runtimes: []nodev1.RuntimeClass{{ObjectMeta: metav1.ObjectMeta{Name: "fast"}}}, classes: []schedulingv1.PriorityClass{class("high", false), class("usual", true)}}, changes: on(named("fast", "high")), want: "fast high"},
		"named ones that do not exist":       {server: apiServer{classes: []schedulingv1.PriorityClass{class("usual", true)}}, changes: on(named("fast", "high")), want: "- -"},
		"named ones while it waits its turn": {server: apiServer{classes: []schedulingv1.PriorityClass{class("high", false)}}, changes: on(named("", "high"), withOther(2*time.Hour, false)), want: "- -"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(c.changes...)
			r := readerOf(&c.server)
			if err := r.observeCluster(context.Background(), w); err != nil {
				t.Fatal(err)
			}
			runtime, priority := "-", "-"
			if w.accepted.RuntimeClass != nil {
				runtime = w.accepted.RuntimeClass.Name
			}
			if w.accepted.PriorityClass != nil {
				priority = w.accepted.PriorityClass.Name
			}
			if got := runtime + " " + priority; got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestOthersOnNodes(t *testing.T) {
	w := makeWorld(withOther(time.Minute, false), withOther(2*time.Minute, false))
	w.others[1].Pair = v1alpha1.Pair{ClientNode: "b", ServerNode: "c"}
	w.accepted = readerOf(&apiServer{}).Cluster.Known(w.benchmark, nil, w.others)
	if diff := gocmp.Diff(map[string]int{"a": 1, "b": 2, "c": 1}, w.accepted.Others); diff != "" {
		t.Errorf("others (-want +got):\n%s", diff)
	}
}

// A kind that the cluster does not have is not requested at every step, and is found when it is installed.
func TestAbsentKinds(t *testing.T) {
	server := &apiServer{}
	clock := clocktesting.NewFakePassiveClock(noon)
	cluster := &observe.Cluster{Live: server, Clock: clock}
	states := func() map[string]foreign.SriovNetworkNodeState {
		t.Helper()
		o := makeWorld().accepted
		if err := cluster.Read(t.Context(), &o); err != nil {
			t.Fatal(err)
		}
		return o.NodeStates
	}
	for range 3 {
		if states() != nil {
			t.Error("found what is not there")
		}
	}
	if len(server.asked) != 1 {
		t.Errorf("asked %q, want once", server.asked)
	}
	server.objects = map[string][]unstructured.Unstructured{"SriovNetworkNodeStateList": {nodeState("a", "Succeeded")}}
	clock.SetTime(noon.Add(59 * time.Second))
	if states() != nil {
		t.Error("asked again before a minute was over")
	}
	clock.SetTime(noon.Add(time.Minute))
	if len(states()) != 1 {
		t.Error("not found a minute later")
	}
	// It is removed again: the client still knows the kind, but the API server does not.
	server.fails = apierrors.NewNotFound(schema.GroupResource{}, "")
	if states() != nil {
		t.Error("found what was removed")
	}
}

func TestObserveClusterFails(t *testing.T) {
	cases := map[string]*apiServer{
		"the API server fails": {fails: errors.New("it fails")},
		"an object is not of its form": {objects: map[string][]unstructured.Unstructured{"SriovNetworkNodeStateList": {
			{Object: map[string]any{"metadata": map[string]any{"name": "a"}, "status": "fine"}},
		}}},
	}
	for name, server := range cases {
		t.Run(name, func(t *testing.T) {
			r := readerOf(server)
			if err := r.observeCluster(context.Background(), makeWorld()); err == nil {
				t.Error("no error")
			}
		})
	}
}
