package foreign

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// NodeResourceTopologyKind is that of NodeResourceTopology.
var NodeResourceTopologyKind = schema.GroupVersionKind{Group: "topology.node.k8s.io", Version: "v1alpha2", Kind: "NodeResourceTopology"}

// ZoneTypeNode is the type of a zone that is a NUMA node.
const ZoneTypeNode = "Node"

// NodeResourceTopology is what Tailgate reads of the kind of that name (noderesourcetopology-api v0.1.3): what each
// NUMA node of a node has. It has neither spec nor status, and the name of its node. Agents such as
// node-feature-discovery write it some seconds after the fact.
type NodeResourceTopology struct {
	metav1.ObjectMeta `json:"metadata"`
	Zones             []Zone `json:"zones"`
}

// Zone is a part of a node.
type Zone struct {
	// Name of a NUMA node is node- and its number.
	Name string `json:"name"`
	// Type is ZoneTypeNode for a NUMA node.
	Type      string         `json:"type"`
	Resources []ZoneResource `json:"resources"`
}

// ZoneResource is a resource of a zone. One whose device plugin tells no NUMA node is in no zone.
type ZoneResource struct {
	// Name is cpu, memory, hugepages-SIZE, or that of a device plugin's resource.
	Name string `json:"name"`
	// Allocatable is what pods can get, Available what of it no pod has to itself.
	Allocatable resource.Quantity `json:"allocatable"`
	Available   resource.Quantity `json:"available"`
}

// DecodeNodeResourceTopology reads an unstructured object.
func DecodeNodeResourceTopology(object map[string]any) (NodeResourceTopology, error) {
	var t NodeResourceTopology
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &t); err != nil {
		return NodeResourceTopology{}, fmt.Errorf("reading a NodeResourceTopology: %w", err)
	}
	return t, nil
}
