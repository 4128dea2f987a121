package cni

import (
	"encoding/json"
	"fmt"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
)

// deviceInfoVersion is the version of the device information specification.
const deviceInfoVersion = "1.1.0"

// NetworkStatus is one element of the network-status annotation.
type NetworkStatus struct {
	// Name is the configuration's name for the default network, namespace/name for the others.
	Name      string `json:"name"`
	Interface string `json:"interface,omitempty"`
	// IPs have no prefix length.
	IPs []string `json:"ips,omitempty"`
	MAC string   `json:"mac,omitempty"`
	// MTU is the MTU, in bytes, that the plugin reported. Few plugins report it, and tuning does not correct it.
	MTU int `json:"mtu,omitempty"`
	// Default marks the network of the pod's primary address.
	Default    bool        `json:"default,omitempty"`
	DNS        types.DNS   `json:"dns"`
	DeviceInfo *DeviceInfo `json:"device-info,omitempty"`
}

// DeviceInfo describes the device behind an interface.
type DeviceInfo struct {
	Type    string    `json:"type"`
	Version string    `json:"version"`
	PCI     PCIDevice `json:"pci"`
}

// PCIDevice is a device on the PCI bus.
type PCIDevice struct {
	Address string `json:"pci-address"`
}

// networkStatuses returns an element for each interface of one network in the pod. Addresses without an
// interface belong to the last one.
func networkStatuses(a *attachment, result *current.Result, isDefault bool) []NetworkStatus {
	status := NetworkStatus{Name: a.Network, Default: isDefault, DNS: result.DNS}
	if a.DeviceID != "" {
		status.DeviceInfo = &DeviceInfo{
			Type: "pci", Version: deviceInfoVersion, PCI: PCIDevice{Address: a.DeviceID},
		}
	}
	var inPod []int
	for i, iface := range result.Interfaces {
		if iface.Sandbox != "" {
			inPod = append(inPod, i)
		}
	}
	if len(inPod) == 0 {
		// Results before CNI 0.3.0 have no interfaces.
		status.Interface = a.IfName
		for _, ip := range result.IPs {
			status.IPs = append(status.IPs, ip.Address.IP.String())
		}
		return []NetworkStatus{status}
	}
	var statuses []NetworkStatus
	for n, i := range inPod {
		s := status
		s.Interface, s.MAC, s.MTU = result.Interfaces[i].Name, result.Interfaces[i].Mac, result.Interfaces[i].Mtu
		for _, ip := range result.IPs {
			if (ip.Interface != nil && *ip.Interface == i) || (ip.Interface == nil && n == len(inPod)-1) {
				s.IPs = append(s.IPs, ip.Address.IP.String())
			}
		}
		statuses = append(statuses, s)
	}
	return statuses
}

// statusAnnotation returns the value of the network-status annotation, indented as Multus indents it.
func statusAnnotation(statuses []NetworkStatus) (string, error) {
	text, err := json.MarshalIndent(statuses, "", "    ")
	if err != nil {
		return "", fmt.Errorf("writing the network status: %w", err)
	}
	return string(text), nil
}
