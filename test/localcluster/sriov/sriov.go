// Package sriov is the local cluster's stand-in for sriov-cni, the CNI plugin that gives pods their VFs. The VFs of the
// local cluster are virtual Ethernet devices. The plugin finds the VF with a PCI address as sriov-cni does, leaves the move
// and the addresses to the host-device plugin, and rejects settings that such a device does not support. It is never
// shipped.
package sriov

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"
	"github.com/vishvananda/netlink"
)

// settings are the fields that sriov-cni sets through the PF's driver. A VLAN of 0 means no VLAN.
var settings = []string{
	"vlan", "vlanQoS", "vlanProto", "min_tx_rate", "max_tx_rate", "spoofchk", "trust", "link_state",
}

// Plugin implements the CNI commands.
type Plugin struct {
	// devices is the folder of the PCI devices.
	devices string
}

// New returns the plugin as it runs on a node.
func New() Plugin { return Plugin{devices: "/sys/bus/pci/devices"} }

// Funcs returns the commands in the form of the CNI library. CHECK checks nothing, as in sriov-cni.
func (p Plugin) Funcs() skel.CNIFuncs {
	return skel.CNIFuncs{Add: p.add, Del: p.del, Check: func(*skel.CmdArgs) error { return nil }}
}

func (p Plugin) add(args *skel.CmdArgs) error {
	result, err := p.attach(args.StdinData)
	if err != nil {
		return err
	}
	return result.Print()
}

// attach implements ADD. Errors that sriov-cni also has use its words.
func (p Plugin) attach(data []byte) (types.Result, error) {
	c, err := parse(data)
	if err != nil {
		return nil, fmt.Errorf("SRIOV-CNI failed to load netconf: LoadConf(): %w", err)
	}
	vf, err := p.netdev(c.deviceID)
	if err != nil {
		return nil, fmt.Errorf("SRIOV-CNI failed to load netconf: LoadConf(): %w", err)
	}
	link, err := netlink.LinkByName(vf)
	if err != nil {
		return nil, fmt.Errorf("looking for %s, the network device of the VF %s: %w", vf, c.deviceID, err)
	}
	r, err := invoke.DelegateAdd(context.Background(), "host-device", c.hostDevice, nil)
	if err != nil {
		return nil, fmt.Errorf("moving the VF %s into the pod: %w", c.deviceID, err)
	}
	result, err := current.NewResultFromResult(r)
	if err != nil {
		return nil, fmt.Errorf("reading the result of the host-device plugin: %w", err)
	}
	// Later plugins may change the MTU, but do not report it.
	for _, i := range result.Interfaces {
		i.Mtu = link.Attrs().MTU
	}
	return result.GetAsVersion(c.version)
}

// del does nothing if add failed because there was no device: sriov-cni only remembers attached devices.
func (p Plugin) del(args *skel.CmdArgs) error {
	c, err := parse(args.StdinData)
	if errors.Is(err, errNoDevice) {
		return nil
	}
	if err != nil {
		return err
	}
	return invoke.DelegateDel(context.Background(), "host-device", c.hostDevice, nil)
}

// netdev returns the name of a VF's network device on the node.
func (p Plugin) netdev(deviceID string) (string, error) {
	if _, err := os.Stat(filepath.Join(p.devices, deviceID, "physfn", "net")); err != nil {
		return "", fmt.Errorf("failed to get VF information: %w", err)
	}
	entries, err := os.ReadDir(filepath.Join(p.devices, deviceID, "net"))
	if err != nil || len(entries) == 0 {
		return "", fmt.Errorf("the VF %s does not have a interface name or a dpdk driver", deviceID)
	}
	return entries[0].Name(), nil
}

// conf is the part of the network configuration that this plugin uses.
type conf struct {
	version, deviceID string
	// hostDevice is the configuration for the host-device plugin.
	hostDevice []byte
}

var errNoDevice = errors.New("VF pci addr is required")

// parse reads the network configuration, as the runtime passes it on standard input.
func parse(data []byte) (conf, error) {
	var c struct {
		CNIVersion string `json:"cniVersion"`
		DeviceID   string `json:"deviceID"`
	}
	var fields map[string]json.RawMessage
	err := json.Unmarshal(data, &c)
	if err == nil {
		err = json.Unmarshal(data, &fields)
	}
	if err != nil {
		return conf{}, fmt.Errorf("failed to load netconf: %w", err)
	}
	if c.DeviceID == "" {
		return conf{}, errNoDevice
	}
	for _, name := range settings {
		if value, ok := fields[name]; ok && string(value) != "0" {
			return conf{}, fmt.Errorf("%s is %s, and the VFs of the local cluster can only be left as they are", name, value)
		}
	}
	// The host-device plugin's name for the deviceID of sriov-cni.
	fields["pciBusID"] = fields["deviceID"]
	hostDevice, err := json.Marshal(fields)
	if err != nil {
		return conf{}, fmt.Errorf("writing the configuration of the host-device plugin: %w", err)
	}
	return conf{version: c.CNIVersion, deviceID: c.DeviceID, hostDevice: hostDevice}, nil
}
