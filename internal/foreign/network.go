// Package foreign has the few types of other projects that Tailgate reads and writes, a file for
// each. Their Go modules would add whole operators' dependencies, and upgrades of Kubernetes would
// wait for all. Tests compare the types with the definitions and with recorded objects.
package foreign

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersionKind is the kind NetworkAttachmentDefinition of the De-facto Standard, version 1.3.
// Of definitions that it did not create, Tailgate reads only metadata, Parent and Deviceless.
var GroupVersionKind = schema.GroupVersionKind{Group: "k8s.cni.cncf.io", Version: "v1", Kind: "NetworkAttachmentDefinition"}

const (
	// AnnotationResourceName is the extended resource of a definition's device.
	AnnotationResourceName = "k8s.v1.cni.cncf.io/resourceName"
	// AnnotationNetworks on a pod requests attachments; see Selection.
	AnnotationNetworks = "k8s.v1.cni.cncf.io/networks"
	// AnnotationNetworkStatus on a pod lists the attached networks; see Status.
	AnnotationNetworkStatus = "k8s.v1.cni.cncf.io/network-status"
)

func Object() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(GroupVersionKind)
	return o
}

// Definition returns a NetworkAttachmentDefinition whose device is of an extended resource.
func Definition(namespace, name, resourceName string, config NetworkConfig) *unstructured.Unstructured {
	data, _ := json.Marshal(config) // Texts and numbers can always be encoded.
	o := Object()
	o.Object["spec"] = map[string]any{"config": string(data)}
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetAnnotations(map[string]string{AnnotationResourceName: resourceName})
	return o
}

// Selection is one element of AnnotationNetworks.
type Selection struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Interface string   `json:"interface"`     // inside the pod, at most 15 characters
	IPs       []string `json:"ips,omitempty"` // with prefix length; the plugin needs capability ips
}

func Annotation(selections ...Selection) string {
	data, _ := json.Marshal(selections) // Texts can always be encoded.
	return string(data)
}

// Status is one element of AnnotationNetworkStatus.
type Status struct {
	// Name is namespace/name of the definition, or the default network's.
	Name      string   `json:"name"`
	Interface string   `json:"interface"`
	IPs       []string `json:"ips,omitempty"`
	// MAC and MTU, in bytes, are empty and 0 if the CNI plugin reported none.
	MAC     string `json:"mac,omitempty"`
	MTU     int    `json:"mtu,omitempty"`
	Default bool   `json:"default,omitempty"`
	// DeviceInfo is from the file of a device plugin or the CNI plugin, if any.
	DeviceInfo *DeviceInfo `json:"device-info,omitempty"`
}

// DeviceInfo is the Device Information Specification 1.1.0 of PCI devices, and of type vdpa.
type DeviceInfo struct {
	Type string     `json:"type"`
	PCI  *PCIDevice `json:"pci,omitempty"`
	VDPA *PCIDevice `json:"vdpa,omitempty"`
}

// Device returns the function that device information names, or an empty one.
func (s *Status) Device() PCIDevice {
	if s == nil || s.DeviceInfo == nil {
		return PCIDevice{}
	}
	return *cmp.Or(s.DeviceInfo.PCI, s.DeviceInfo.VDPA, &PCIDevice{})
}

type PCIDevice struct {
	// Address is the function's, as 0000:65:02.3, PFAddress its PF's, or empty.
	Address   string `json:"pci-address,omitempty"`
	PFAddress string `json:"pf-pci-address,omitempty"`
}

// OtherPrimary returns the default network's first address if none of its addresses is the pod's,
// as in a namespace with a primary user-defined network of OVN-Kubernetes.
func OtherPrimary(annotation, podIP string) string {
	var all []Status
	if len(annotation) > maxNetworkStatus || json.Unmarshal([]byte(annotation), &all) != nil {
		return ""
	}
	for _, s := range all {
		if s.Default && len(s.IPs) > 0 && !slices.Contains(s.IPs, podIP) {
			return s.IPs[0]
		}
	}
	return ""
}

const maxNetworkStatus = 64 << 10 // bytes of AnnotationNetworkStatus: some hundred for each network

func Statuses(annotation string) ([]Status, error) {
	if len(annotation) > maxNetworkStatus {
		return nil, fmt.Errorf("annotation %s has %d KiB, and at most %d KiB are read", AnnotationNetworkStatus, len(annotation)>>10, maxNetworkStatus>>10)
	}
	var all []Status
	if err := json.Unmarshal([]byte(annotation), &all); err != nil {
		return nil, fmt.Errorf("reading annotation %s: %w", AnnotationNetworkStatus, err)
	}
	return all, nil
}

// FindStatus returns the status with this name and interface: a network may be attached twice.
func FindStatus(annotation, name, iface string) (Status, error) {
	all, err := Statuses(annotation)
	if err != nil {
		return Status{}, err
	}
	unnamed := false
	for _, s := range all {
		if s.Name == name && s.Interface == iface {
			return s, nil
		}
		unnamed = unnamed || s.Name == name && s.Interface == ""
	}
	if unnamed {
		return Status{}, fmt.Errorf("annotation %s names no interface of network %s: set cniVersion to 0.3.1 or later in its NetworkAttachmentDefinition, "+
			"because older results do not name it", AnnotationNetworkStatus, name)
	}
	return Status{}, fmt.Errorf("annotation %s has no network %s at interface %s", AnnotationNetworkStatus, name, iface)
}

const CNIVersion = "1.0.0" // the newest version of configurations that all plugins used support

// NetworkConfig is a list of CNI plugins, each working on the result of the one before it.
type NetworkConfig struct {
	CNIVersion string      `json:"cniVersion"`
	Name       string      `json:"name"`
	Plugins    []CNIPlugin `json:"plugins"`
}

// CNIPlugin is a plugin of a list, with Tailgate's keys. Multus adds the device (deviceID,
// pciBusID), and what a pod requests by the plugin's capabilities (runtimeConfig).
type CNIPlugin struct {
	Type string `json:"type"` // sriov (sriov-cni), host-device or tuning (CNI plugins)
	// VLAN is a key of sriov: the VLAN into which the PF puts the VF; 0 leaves the VF unchanged.
	VLAN int32 `json:"vlan,omitempty"`
	// MTU is a key of tuning, in bytes; the plugin returns the device with its original MTU.
	MTU  int32    `json:"mtu,omitempty"`
	IPAM *CNIIPAM `json:"ipam,omitempty"`
	// Capabilities are what it, or its IPAM plugin, takes from annotations.
	Capabilities map[string]bool `json:"capabilities,omitempty"`
}

// UnnamedParent is the default route's, or one in a file on the node. No interface has this name.
const UnnamedParent = "an unnamed interface of the node"

// Parent returns the node's interface above which a network, by its CNI configuration, makes its
// own: the master of ipvlan, macvlan, vlan or ipoib, or UnnamedParent (also of a bond), or nothing.
func Parent(config string) string {
	type plugin struct {
		Type            string `json:"type"`
		Master          string `json:"master"`
		LinkInContainer bool   `json:"linkInContainer"`
	}
	if strings.TrimSpace(config) == "" {
		return UnnamedParent
	}
	// A configuration that cannot be read has no parent; the pod's network then fails by itself.
	plugins, _ := Plugins[plugin](config)
	for _, p := range plugins {
		if slices.Contains([]string{"ipvlan", "macvlan", "macvtap", "vlan", "ipoib", "bond"}, p.Type) && !p.LinkInContainer {
			return cmp.Or(p.Master, UnnamedParent)
		}
	}
	return ""
}

// Deviceless reports whether a network needs no device although its definition names a resource, as
// that of a marker of nodes with a bridge, or what applications use beside it (RDMA).
func Deviceless(config, resource string) bool {
	plugins, _ := Plugins[CNIPlugin](config)
	if len(plugins) == 0 {
		return false
	}
	kind := plugins[0].Type
	return slices.Contains([]string{"bridge", "cnv-bridge", "ipvlan", "macvlan", "vlan"}, kind) || kind == "ovs" && strings.HasPrefix(resource, "ovs-cni.network.kubevirt.io/")
}

func Version(config string) (string, error) {
	var network struct {
		CNIVersion string `json:"cniVersion"`
	}
	err := json.Unmarshal([]byte(config), &network)
	return network.CNIVersion, err
}

// Plugins reads a CNI configuration: a plugin or a list of them.
func Plugins[T any](config string) ([]T, error) {
	var network map[string]json.RawMessage
	if err := json.Unmarshal([]byte(config), &network); err != nil {
		return nil, fmt.Errorf("its configuration is not a JSON object: %w", err)
	}
	list, several := network["plugins"]
	if !several {
		list = json.RawMessage("[" + config + "]")
	}
	var plugins []T
	if err := json.Unmarshal(list, &plugins); err != nil {
		return nil, fmt.Errorf("its list of plugins cannot be read: %w", err)
	}
	return plugins, nil
}

// CNIIPAM is the part of a plugin's configuration for its IPAM plugin.
type CNIIPAM struct {
	// Type is static (CNI plugins), which takes the addresses from capability ips, or whereabouts.
	Type string `json:"type"`
	// Range and RangeStart are whereabouts's subnet and first address.
	Range      string `json:"range,omitempty"`
	RangeStart string `json:"range_start,omitempty"`
}
