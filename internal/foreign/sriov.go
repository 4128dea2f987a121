package foreign

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SriovNetworkNodeStateKind is that of SriovNetworkNodeState.
var SriovNetworkNodeStateKind = schema.GroupVersionKind{Group: "sriovnetwork.openshift.io", Version: "v1", Kind: "SriovNetworkNodeState"}

// What a SriovNetworkNodeState says of a node that is left alone.
const (
	// AnnotationDesiredState and AnnotationCurrentState are Idle, or what the node is on its way to: Drain_Required,
	// Reboot_Required, Draining, DrainComplete. Absent until the operator has looked at the node.
	AnnotationDesiredState = "sriovnetwork.openshift.io/desired-state"
	AnnotationCurrentState = "sriovnetwork.openshift.io/current-state"
	// SriovIdle is the value of both while no operator drains the node.
	SriovIdle = "Idle"
	// SriovSucceeded is the sync status of a node whose NICs have their settings; others are InProgress and Failed.
	SriovSucceeded = "Succeeded"
)

// VendorSolarflare is the PCI vendor of Solarflare NICs.
const VendorSolarflare = "1924"

// SriovNetworkNodeState is what Tailgate reads of the kind of that name (sriov-network-operator v1.6.0): the NICs of
// the node of its name, as its daemon there sees and configures them. NICs that the operator does not know are not
// listed at all.
type SriovNetworkNodeState struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              SriovSpec   `json:"spec"`
	Status            SriovStatus `json:"status"`
}

// SriovSpec is what the policies ask for.
type SriovSpec struct {
	Interfaces []SriovWanted `json:"interfaces"`
}

// SriovWanted is a PF that some policy selects.
type SriovWanted struct {
	VFGroups []SriovVFGroup `json:"vfGroups"`
}

// SriovVFGroup is the VFs of a PF that are of one resource.
type SriovVFGroup struct {
	// ResourceName has no prefix.
	ResourceName string `json:"resourceName"`
}

// SriovStatus is what there is.
type SriovStatus struct {
	Interfaces []SriovInterface `json:"interfaces"`
	// SyncStatus is empty until the daemon has looked, then InProgress, Succeeded or Failed.
	SyncStatus    string `json:"syncStatus"`
	LastSyncError string `json:"lastSyncError"`
}

// SriovInterface is a PF.
type SriovInterface struct {
	Name string `json:"name"`
	// Vendor is the PCI vendor, in four hexadecimal digits.
	Vendor string `json:"vendor"`
	// NumVFs is how many VFs the PF has now, and TotalVFs how many its firmware lets it have. (The odd cases are
	// theirs.)
	NumVFs   int `json:"numVfs"`
	TotalVFs int `json:"totalvfs"`
}

// DecodeSriovNetworkNodeState reads an unstructured object.
func DecodeSriovNetworkNodeState(object map[string]any) (SriovNetworkNodeState, error) {
	var s SriovNetworkNodeState
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &s); err != nil {
		return SriovNetworkNodeState{}, fmt.Errorf("reading a SriovNetworkNodeState: %w", err)
	}
	return s, nil
}
