package deviceplugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
)

// Values of Resource.Functions: VFs, or PFs without VFs.
const (
	VFs = "VF"
	PFs = "PF"
)

// discover adds devices to the resources with Functions, by the rules of the SR-IOV device plugin: it excludes PFs that have
// VFs, and functions that the node's default routes use. busy holds the names of the network devices of these routes.
func (c *Config) discover(pci string, busy []string) error {
	for i := range c.Resources {
		r := &c.Resources[i]
		if r.Functions == "" {
			continue
		}
		devices, err := filepath.Glob(filepath.Join(pci, "*"))
		if err != nil {
			return err
		}
		for _, dir := range devices {
			d, ok, err := function(dir, r.Functions, busy)
			if err != nil {
				return err
			}
			if ok {
				r.Devices = append(r.Devices, d)
			}
		}
	}
	return nil
}

// function returns the device of a folder of sysfs, and whether it is of the wanted kind.
func function(dir, wanted string, busy []string) (Device, bool, error) {
	read := func(name string) (string, error) {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil
		}
		return strings.TrimSpace(string(text)), err
	}
	class, err1 := read("class")
	vfs, err2 := read("sriov_numvfs") // only PFs have it
	numa, err3 := read("numa_node")
	netdevs, err4 := filepath.Glob(filepath.Join(dir, "net", "*"))
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return Device{}, false, fmt.Errorf("reading %s: %w", dir, err)
	}
	_, err := os.Lstat(filepath.Join(dir, "physfn"))
	isVF := err == nil
	const ethernet = "0x0200"
	if !strings.HasPrefix(class, ethernet) || len(netdevs) != 1 || slices.Contains(busy, filepath.Base(netdevs[0])) ||
		wanted == VFs && !isVF || wanted == PFs && (isVF || vfs != "0") {
		return Device{}, false, nil
	}
	d := Device{ID: filepath.Base(dir), Netdev: filepath.Base(netdevs[0])}
	node, err := strconv.ParseInt(numa, 10, 64)
	if err != nil {
		return Device{}, false, fmt.Errorf("reading the NUMA node of %s: %w", dir, err)
	}
	d.NUMANode = &node
	return d, true, nil
}

// Discover adds the functions of this machine to the resources with Functions.
func (c *Config) Discover() error {
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Dst: nil}, netlink.RT_FILTER_DST)
	if err != nil {
		return fmt.Errorf("reading the default routes: %w", err)
	}
	var busy []string
	for _, r := range routes {
		link, err := netlink.LinkByIndex(r.LinkIndex)
		if err != nil {
			return fmt.Errorf("looking for the device of a default route: %w", err)
		}
		busy = append(busy, link.Attrs().Name)
	}
	return c.discover("/sys/bus/pci/devices", busy)
}

// writeInfos writes a file for each device, by the Network Plumbing Working Group's specification of device information.
func (c Config) writeInfos() error {
	if c.DeviceInfoDir == "" {
		return nil
	}
	if err := os.MkdirAll(c.DeviceInfoDir, 0o755); err != nil {
		return fmt.Errorf("making the folder of the devices' information: %w", err)
	}
	for _, r := range c.Resources {
		for _, d := range r.Devices {
			text, err := json.Marshal(map[string]any{"type": "pci", "version": "1.1.0", "pci": map[string]string{"pci-address": d.ID}})
			if err != nil {
				return err
			}
			name := fmt.Sprintf("%s-%s-device.json", strings.ReplaceAll(r.Name, "/", "-"), d.ID)
			if err := os.WriteFile(filepath.Join(c.DeviceInfoDir, name), text, 0o644); err != nil {
				return fmt.Errorf("writing the information of %s: %w", d.ID, err)
			}
		}
	}
	return nil
}
