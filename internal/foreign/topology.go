package foreign

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var NodeResourceTopologyKind = schema.GroupVersionKind{Group: "topology.node.k8s.io", Version: "v1alpha2", Kind: "NodeResourceTopology"}

const ZoneTypeNode = "Node" // of a zone that is a NUMA node

// NodeResourceTopology is the part of the kind (noderesourcetopology-api v0.1.3) that Tailgate
// reads: the resources of a node's NUMA nodes, by its name, without spec and status. Agents such as
// node-feature-discovery update it some seconds after a change.
type NodeResourceTopology struct {
	metav1.ObjectMeta `json:"metadata"`
	Zones             []Zone `json:"zones"`
}

type Zone struct {
	Name      string         `json:"name"` // node- and the number, for a NUMA node
	Type      string         `json:"type"`
	Resources []ZoneResource `json:"resources"`
}

// ZoneResource is a zone's resource; one whose plugin reports no NUMA node is in no zone.
type ZoneResource struct {
	// Name is cpu, memory, hugepages-SIZE, or the name of a device plugin's resource.
	Name string `json:"name"`
	// Allocatable is for pods, Available what no pod has exclusively.
	Allocatable resource.Quantity `json:"allocatable"`
	Available   resource.Quantity `json:"available"`
}

func List(kind schema.GroupVersionKind) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	return list
}

// Decode reads an unstructured object of the kind that T is named after.
func Decode[T any](object map[string]any) (T, error) {
	var read, zero T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &read); err != nil {
		return zero, fmt.Errorf("reading a %s: %w", reflect.TypeFor[T]().Name(), err)
	}
	return read, nil
}

var ModuleKind = schema.GroupVersionKind{Group: "kmm.sigs.x-k8s.io", Version: "v1beta1", Kind: "Module"}

// Module is the part of KMM 2.6's kind that Tailgate reads. KMM 2 unloads the kernel module from a
// node with a taint NoSchedule or NoExecute, also a cordon's, that the Module does not tolerate;
// its own components tolerate only pressure. Before 2.3, there are no tolerations.
type Module struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              ModuleSpec `json:"spec"`
}

type ModuleSpec struct {
	Selector    map[string]string   `json:"selector"`
	Tolerations []corev1.Toleration `json:"tolerations"`
}
