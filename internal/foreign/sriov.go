package foreign

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SriovNetworkNodeStateKind is the kind SriovNetworkNodeState.
var SriovNetworkNodeStateKind = schema.GroupVersionKind{Group: "sriovnetwork.openshift.io", Version: "v1", Kind: "SriovNetworkNodeState"}

// The annotations of a SriovNetworkNodeState, and the values that they and the status have while nothing happens to the
// node.
const (
	// AnnotationDesiredState and AnnotationCurrentState are Idle, or a state on the way to which the node is:
	// Drain_Required, Reboot_Required, Draining, DrainComplete. They are absent until the operator has looked at the node.
	AnnotationDesiredState = "sriovnetwork.openshift.io/desired-state"
	AnnotationCurrentState = "sriovnetwork.openshift.io/current-state"
	// SriovIdle is the value of both while no operator drains the node.
	SriovIdle = "Idle"
	// SriovSucceeded is the sync status of a node whose NICs have their settings; the other values are InProgress and
	// Failed.
	SriovSucceeded = "Succeeded"
)

// VendorSolarflare is the PCI vendor of Solarflare NICs.
const VendorSolarflare = "1924"

// SriovNetworkNodeState is the part of the kind of that name (sriov-network-operator v1.6.0) that Tailgate reads: the NICs
// of the node with the same name, as the operator's daemon there sees and configures them. NICs that the operator does not
// know are not listed at all.
type SriovNetworkNodeState struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              SriovSpec   `json:"spec"`
	Status            SriovStatus `json:"status"`
}

// SriovSpec is the state that the policies request.
type SriovSpec struct {
	Interfaces []SriovWanted `json:"interfaces"`
}

// SriovWanted is a PF that some policy selects.
type SriovWanted struct {
	VFGroups []SriovVFGroup `json:"vfGroups"`
}

// SriovVFGroup is a group of VFs of a PF that belong to one resource.
type SriovVFGroup struct {
	// ResourceName has no prefix.
	ResourceName string `json:"resourceName"`
}

// SriovStatus is the actual state.
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
	// NumVFs is how many VFs the PF has now, and TotalVFs how many its firmware allows. (The inconsistent case is the
	// operator's.)
	NumVFs   int `json:"numVfs"`
	TotalVFs int `json:"totalvfs"`
}
