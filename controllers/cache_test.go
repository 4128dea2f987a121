package controllers

import (
	"encoding/json"
	"math"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
)

// The cache keeps a few hundred bytes of a pod or a ConfigMap with our label, which any user can set.
func TestWhatIsCachedOfAnyonesObjectsIsSmall(t *testing.T) {
	large := strings.Repeat("x", 1<<20)
	meta := metav1.ObjectMeta{
		Name: "x", Namespace: "perf", UID: "u", Annotations: map[string]string{"a": large}, Finalizers: []string{large},
		Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate, v1alpha1.LabelRole: "client", large: "x"},
		OwnerReferences: []metav1.OwnerReference{
			{Name: large}, {Name: "b", Kind: "LatencyBenchmark", UID: "uid-b", Controller: new(true)},
		},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: large}},
	}
	pod := &corev1.Pod{
		ObjectMeta: meta,
		Spec:       corev1.PodSpec{NodeName: "a", Containers: []corev1.Container{{Name: large}}},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Message: large},
	}
	options := CacheOptions(nil).ByObject
	for name, o := range map[string]client.Object{"a pod": pod, "the metadata of a ConfigMap": &metav1.PartialObjectMetadata{ObjectMeta: meta}} {
		transform := options[find[*corev1.ConfigMap](options)].Transform
		if o == client.Object(pod) {
			transform = options[find[*corev1.Pod](options)].Transform
		}
		if _, err := transform(o); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 1024 {
			t.Errorf("of %s %d bytes are kept", name, len(text))
		}
		if !metav1.IsControlledBy(o, &metav1.ObjectMeta{UID: "uid-b"}) || o.GetLabels()[v1alpha1.LabelRole] != "client" || o.GetUID() != "u" {
			t.Errorf("of %s is kept %s", name, text)
		}
	}
	if pod.Spec.NodeName != "a" || pod.Status.Phase != corev1.PodRunning {
		t.Errorf("kept %+v, %+v", pod.Spec, pod.Status)
	}
}

// The cache keeps neither long annotations nor selections of nodes of the kinds that namespace users write.
func TestWhatIsCachedOfOwnKindsIsSmall(t *testing.T) {
	many := make([]string, 500)
	for i := range many {
		many[i] = strings.Repeat("n", 253)
	}
	selection := v1alpha1.NodeSelection{NodeNames: many, NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{strings.Repeat("k", 1<<16): "x"}}}
	text := strings.Repeat("x", 250<<10)
	measurement := v1alpha1.MeasurementSpec{
		Tool: v1alpha1.ToolPinger, Notes: []v1alpha1.Note{{Value: text}}, Pods: &v1alpha1.PodSettings{Annotations: map[string]string{"a": text}},
		Criteria: &v1alpha1.Criteria{IgnoreDifferences: many, Rules: []v1alpha1.Rule{{Cells: many}}, Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineGate, Gate: &v1alpha1.ObjectName{Name: "g"}}},
	}
	long := metav1.ObjectMeta{
		Name: "x", Annotations: map[string]string{foreign.AnnotationMachineConfig: text}, Labels: map[string]string{v1alpha1.LabelGate: "g", text: "x"},
		Finalizers: []string{text}, OwnerReferences: []metav1.OwnerReference{{Name: text, Controller: new(true)}, {Name: text}},
	}
	placement := v1alpha1.Placement{
		Client: &v1alpha1.EndpointPlacement{NodeSelection: selection}, Server: &v1alpha1.EndpointPlacement{NodeSelection: selection},
	}
	measurement.Placement = placement
	options := CacheOptions(nil).ByObject
	for key, o := range map[client.Object]client.Object{
		find[*v1alpha1.LatencyBenchmark](options): &v1alpha1.LatencyBenchmark{ObjectMeta: long, Spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: measurement}},
		find[*v1alpha1.LatencyMatrix](options): &v1alpha1.LatencyMatrix{ObjectMeta: long, Spec: v1alpha1.LatencyMatrixSpec{Nodes: selection, Server: &selection, Template: v1alpha1.LatencyBenchmarkTemplate{Spec: v1alpha1.MeasurementSpec{
			Placement: placement, Notes: []v1alpha1.Note{{Value: text}}, Pods: &v1alpha1.PodSettings{Annotations: long.Annotations},
			Criteria: &v1alpha1.Criteria{IgnoreDifferences: many, Baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineMatrix, Matrix: &v1alpha1.ObjectName{Name: "before"}}},
		}}}},
		find[*corev1.Node](options): &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: long.Annotations}},
	} {
		if _, err := options[key].Transform(o); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 2048 {
			t.Errorf("of %T %d bytes are kept", o, len(text))
		}
		if gate := o.GetLabels()[v1alpha1.LabelGate]; gate != "g" && o.GetName() != "" {
			t.Errorf("of %T the gate %q is kept", o, gate)
		}
	}
	// A note of a user stays, because its change makes the benchmark be reconciled.
	b := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"example.com/again": "1"}}}
	if _, err := options[find[*v1alpha1.LatencyBenchmark](options)].Transform(b); err != nil || len(b.Annotations) != 1 {
		t.Errorf("%v, %v", b.Annotations, err)
	}
}

// When memory is short, the cache keeps little of any benchmark.
func TestMemoryIsShort(t *testing.T) {
	options := CacheOptions(nil).ByObject
	transform := options[find[*v1alpha1.LatencyBenchmark](options)].Transform
	held := make([]byte, 64<<20)
	for limit, whole := range map[int64]bool{math.MaxInt64: true, 1 << 30: true, 100 << 20: false} {
		before := debug.SetMemoryLimit(limit)
		runtime.GC()
		b := &v1alpha1.LatencyBenchmark{Spec: v1alpha1.LatencyBenchmarkSpec{MeasurementSpec: v1alpha1.MeasurementSpec{Tool: v1alpha1.ToolPinger, Priority: 3}}}
		_, err := transform(b)
		debug.SetMemoryLimit(before)
		if err != nil || IsWhole(b) != whole || b.Spec.Priority != 3 {
			t.Errorf("with a limit of %d bytes, %t, %v", limit, IsWhole(b), err)
		}
	}
	runtime.KeepAlive(held)
}

// A manager of named namespaces watches ConfigMaps only there; it has no right to list others.
func TestNamed(t *testing.T) {
	for namespace, want := range map[string][2]bool{"perf": {true, true}, "other": {true, false}} {
		if got := [2]bool{Named(nil).Has(namespace), Named{"perf", "gates"}.Has(namespace)}; got != want {
			t.Errorf("%s: of all, and of named ones: %v, want %v", namespace, got, want)
		}
	}
	for want, named := range map[int]Named{0: nil, 2: {"perf", "gates"}} {
		options := CacheOptions(named).ByObject
		if got := options[find[*corev1.ConfigMap](options)].Namespaces; len(got) != want {
			t.Errorf("ConfigMaps of %v", got)
		}
	}
}

// find returns the key of a kind.
func find[T client.Object, V any](options map[client.Object]V) client.Object {
	for o := range options {
		if _, ok := o.(T); ok {
			return o
		}
	}
	return nil
}
