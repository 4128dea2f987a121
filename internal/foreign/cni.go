package foreign

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// CNIVersion is the newest version of network configurations that all plugins used support.
const CNIVersion = "1.0.0"

// NetworkConfig is a list of CNI plugins, each working on the result of the one before it.
type NetworkConfig struct {
	CNIVersion string      `json:"cniVersion"`
	Name       string      `json:"name"`
	Plugins    []CNIPlugin `json:"plugins"`
}

// CNIPlugin is a plugin of a list, with Tailgate's keys. Multus adds the device (deviceID,
// pciBusID), and what a pod requests by the plugin's capabilities (runtimeConfig).
type CNIPlugin struct {
	// Type is sriov (sriov-cni), host-device or tuning (CNI plugins).
	Type string `json:"type"`
	// VLAN is a key of sriov: the VLAN into which the PF puts the VF; 0 leaves the VF unchanged.
	VLAN int32 `json:"vlan,omitempty"`
	// MTU is a key of tuning, in bytes; the plugin returns the device with its original MTU.
	MTU  int32    `json:"mtu,omitempty"`
	IPAM *CNIIPAM `json:"ipam,omitempty"`
	// Capabilities are what it, or its IPAM plugin, takes from annotations.
	Capabilities map[string]bool `json:"capabilities,omitempty"`
}

// UnnamedParent is a Parent without a name in the configuration: that of the node's default route,
// or one in a file on the node. No interface has this name.
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

// Deviceless reports whether a network, by its CNI configuration, needs no device although its definition names a resource: one of a marker
// of nodes that have a bridge, or what applications use beside it (RDMA).
func Deviceless(config, resource string) bool {
	plugins, _ := Plugins[CNIPlugin](config)
	if len(plugins) == 0 {
		return false
	}
	kind := plugins[0].Type
	return slices.Contains([]string{"bridge", "cnv-bridge", "ipvlan", "macvlan", "vlan"}, kind) || kind == "ovs" && strings.HasPrefix(resource, "ovs-cni.network.kubevirt.io/")
}

// Version returns the cniVersion of a CNI configuration.
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
