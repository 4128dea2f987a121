package foreign

import "encoding/json"

// CNIVersion of the network configurations that Tailgate writes: the newest one that all of their plugins know.
const CNIVersion = "1.0.0"

// NetworkConfig is a list of CNI plugins, each working on what the one before it has made.
type NetworkConfig struct {
	CNIVersion string      `json:"cniVersion"`
	Name       string      `json:"name"`
	Plugins    []CNIPlugin `json:"plugins"`
}

// CNIPlugin is one plugin of a list, with those of its keys that Tailgate sets. Multus adds the device (deviceID,
// pciBusID), and what a pod asks for by the plugin's capabilities (runtimeConfig).
type CNIPlugin struct {
	// Type is sriov (sriov-cni), host-device or tuning (CNI plugins).
	Type string `json:"type"`
	// VLAN is sriov's: the VLAN into which the PF puts the VF; 0 leaves the VF as it is.
	VLAN int32 `json:"vlan,omitempty"`
	// MTU is tuning's, in bytes; it gives the device back with the one that it had.
	MTU  int32    `json:"mtu,omitempty"`
	IPAM *CNIIPAM `json:"ipam,omitempty"`
	// Capabilities are what the plugin, or its IPAM plugin, takes from the pod's annotation.
	Capabilities map[string]bool `json:"capabilities,omitempty"`
}

// Parent returns the name of the interface on the node above which a network, given by its CNI configuration, makes its own:
// what an ipvlan or macvlan plugin names as its master. Empty when it names none.
func Parent(config string) string {
	type plugin struct {
		Type            string `json:"type"`
		Master          string `json:"master"`
		LinkInContainer bool   `json:"linkInContainer"`
	}
	var network struct {
		plugin
		Plugins []plugin `json:"plugins"`
	}
	// A configuration that cannot be read names none; the pod's network then fails by itself.
	_ = json.Unmarshal([]byte(config), &network)
	for _, p := range append([]plugin{network.plugin}, network.Plugins...) {
		if (p.Type == "ipvlan" || p.Type == "macvlan") && !p.LinkInContainer {
			return p.Master
		}
	}
	return ""
}

// CNIIPAM is the part of a plugin's configuration that is for its IPAM plugin.
type CNIIPAM struct {
	// Type is static (CNI plugins), which takes the addresses from capability ips, or whereabouts.
	Type string `json:"type"`
	// Range and RangeStart are whereabouts': a subnet, and the first of its addresses to be given.
	Range      string `json:"range,omitempty"`
	RangeStart string `json:"range_start,omitempty"`
}
