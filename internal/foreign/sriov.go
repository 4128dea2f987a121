package foreign

import (
	"cmp"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var SriovNetworkNodeStateKind = schema.GroupVersionKind{Group: "sriovnetwork.openshift.io", Version: "v1", Kind: "SriovNetworkNodeState"}

// The annotations, and the values that they and the status have while nothing happens.
const (
	// Idle, Drain_Required, Reboot_Required, Draining or DrainComplete; absent before a first look.
	AnnotationDesiredState = "sriovnetwork.openshift.io/desired-state"
	AnnotationCurrentState = "sriovnetwork.openshift.io/current-state"
	// AnnotationNodeState is the desired state on the Node; Idle when the VFs are recreated.
	AnnotationNodeState = "sriovnetwork.openshift.io/state"
	SriovIdle           = "Idle"      // of all while no operator drains the node
	SriovSucceeded      = "Succeeded" // the node's NICs have their settings
)

const VendorSolarflare = "1924" // the PCI vendor of Solarflare NICs

// SriovNetworkNodeState is the part of the kind (sriov-network-operator v1.6.0) that Tailgate
// reads: the NICs of the node of that name that the operator knows, as its daemon sees them.
type SriovNetworkNodeState struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              SriovSpec   `json:"spec"`
	Status            SriovStatus `json:"status"`
	Others            []string    `json:"-"` // the namespaces of the node's other states, see Merge
}

// Drains returns the drain state that the operator reports or requests, or Idle, also if the node's
// daemon is done and asks for Idle: the uncordon may wait for a measurement of the node.
func (s SriovNetworkNodeState) Drains() string {
	current, desired := s.Annotations[AnnotationCurrentState], s.Annotations[AnnotationDesiredState]
	if desired == SriovIdle && s.Status.SyncStatus == SriovSucceeded {
		return SriovIdle
	}
	for _, state := range []string{current, desired} {
		if state = cmp.Or(state, SriovIdle); state != SriovIdle {
			return state
		}
	}
	return SriovIdle
}

// Merge returns what counts of two states of one node: each operator has a namespace, and an
// uninstalled one leaves its states. A drain in either counts; the rest is that of the state
// written last or, if unknown, of the one that is not synced.
func (s SriovNetworkNodeState) Merge(o SriovNetworkNodeState) SriovNetworkNodeState {
	later := o.written().Compare(s.written())
	if later > 0 || later == 0 && s.Status.SyncStatus == SriovSucceeded {
		s, o = o, s
	}
	if s.Drains() == SriovIdle {
		s.Annotations = o.Annotations
	}
	s.Others = slices.Sorted(slices.Values(slices.Concat(s.Others, o.Others, []string{o.Namespace})))
	return s
}

// written returns when the state was last written, as far as the API server shows it.
func (s SriovNetworkNodeState) written() time.Time {
	last := s.CreationTimestamp.Time
	for _, f := range s.ManagedFields {
		if f.Time != nil && f.Time.After(last) {
			last = f.Time.Time
		}
	}
	return last
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
	ResourceName string `json:"resourceName"` // without a prefix
}

type SriovStatus struct {
	Interfaces []SriovInterface `json:"interfaces"`
	// SyncStatus is empty until the daemon has looked, then InProgress, Succeeded or Failed.
	SyncStatus    string `json:"syncStatus"`
	LastSyncError string `json:"lastSyncError"`
}

// SriovInterface is a PF.
type SriovInterface struct {
	Name string `json:"name"`
	// Vendor and DeviceID are of the PCI device, in four hexadecimal digits each.
	Vendor   string `json:"vendor"`
	DeviceID string `json:"deviceID"`
	// NumVFs is how many VFs the PF has now, and TotalVFs how many its firmware allows.
	NumVFs   int `json:"numVfs"`
	TotalVFs int `json:"totalvfs"`
}
