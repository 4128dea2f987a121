// Package deviceplugin is the local cluster's stand-in for the SR-IOV network device plugin. It advertises to
// the kubelet the devices named in a file, with their NUMA nodes, and answers an allocation with the same
// environment variables as the real plugin. It implements the kubelet's device plugin interface (v1beta1) and
// is never shipped.
package deviceplugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Config is the plugin's configuration.
type Config struct {
	// KubeletDir is the absolute path of the folder with the kubelet's registration socket. The plugin creates
	// its own sockets in it, one per resource.
	KubeletDir string `json:"kubeletDir"`
	// Fragile makes the plugin behave like AMD's device plugin of Onload; see Fragile.
	Fragile *Fragile `json:"fragile,omitempty"`
	// DeviceInfoDir is the folder for files that describe the devices; empty: no files.
	DeviceInfoDir string `json:"deviceInfoDir,omitempty"`
	// Resources are the extended resources to advertise; at least one.
	Resources []Resource `json:"resources"`
}

// Resource is a pool of devices under one name.
type Resource struct {
	// Name is the extended resource with its prefix, such as "tailgate.test/sf_vf".
	Name string `json:"name"`
	// Devices are the members of the pool; an empty pool is advertised as zero devices.
	Devices []Device `json:"devices"`
	// Functions makes the plugin find the devices in sysfs: VFs or PFs; empty: only the listed devices.
	Functions string `json:"functions,omitempty"`
}

// Device is one allocatable network function.
type Device struct {
	// ID is the PCI address, such as "0000:3b:02.0". It is unique in its resource.
	ID string `json:"id"`
	// Netdev is the name of its network interface on the node. Only the log uses it.
	Netdev string `json:"netdev,omitempty"`
	// NUMANode is the NUMA node that the plugin reports to the kubelet as a hint; absent or negative: no hint.
	NUMANode *int64 `json:"numaNode,omitempty"`
}

// LoadConfig reads and checks the configuration file at path. The error names the path and the first fault.
func LoadConfig(path string) (Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("opening the device plugin's configuration: %w", err)
	}
	defer f.Close()
	c, err := ParseConfig(f)
	if err != nil {
		return Config{}, fmt.Errorf("reading %s: %w", path, err)
	}
	return c, nil
}

// ParseConfig reads and checks a configuration. Unknown fields, relative folders, names that the kubelet
// would reject and duplicates are errors.
func ParseConfig(r io.Reader) (Config, error) {
	var c Config
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return Config{}, fmt.Errorf("parsing the configuration: %w", err)
	}
	if err := c.check(); err != nil {
		return Config{}, err
	}
	return c, nil
}

func (c Config) check() error {
	if !filepath.IsAbs(c.KubeletDir) {
		return fmt.Errorf("kubeletDir %q is not an absolute path", c.KubeletDir)
	}
	if len(c.Resources) == 0 {
		return errors.New("no resources")
	}
	sockets := map[string]string{}
	for _, r := range c.Resources {
		prefix, name, ok := strings.Cut(r.Name, "/")
		if !ok || prefix == "" || name == "" || strings.Contains(name, "/") {
			return fmt.Errorf("resource %q is not of the form prefix/name", r.Name)
		}
		if other, ok := sockets[socketName(r.Name)]; ok {
			return fmt.Errorf("resources %q and %q need the same socket", other, r.Name)
		}
		sockets[socketName(r.Name)] = r.Name
		seen := map[string]bool{}
		for _, d := range r.Devices {
			if d.ID == "" || strings.ContainsAny(d.ID, ", /") {
				return fmt.Errorf("resource %q: bad device id %q", r.Name, d.ID)
			}
			if seen[d.ID] {
				return fmt.Errorf("resource %q: device %q twice", r.Name, d.ID)
			}
			seen[d.ID] = true
		}
	}
	return nil
}

// socketName returns the file name of a resource's socket.
func socketName(resource string) string {
	return strings.ReplaceAll(resource, "/", "_") + ".sock"
}
