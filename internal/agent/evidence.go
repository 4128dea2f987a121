package agent

import (
	"cmp"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

const unknown = -1

// host reads what the pod sees of the machine, below a root. What cannot be read is unknown.
type host struct {
	root     string
	parent   string // the name, on the node, of the interface below an ipvlan or macvlan
	borrowed bool   // the allocated devices are not those of the interface
	pid      int    // a process of another container whose cgroups count; 0: the agent's own
	node     bool   // after Enter: the cgroups are the node's, and no file of the container is opened
}

// proc returns the path of a file in /proc of the process whose cgroups count.
func (h host) proc(name string) string {
	if h.pid == 0 {
		return "proc/self/" + name
	}
	return fmt.Sprintf("proc/%d/%s", h.pid, name)
}

func (h host) read(path string) string {
	data, err := h.content(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

const maxFile = 1 << 20 // bytes of a file of /proc, /sys or /etc; most have one line

func (h host) content(path string) ([]byte, error) {
	file, err := os.OpenFile(filepath.Join(h.root, path), os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe does not block
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxFile))
}

func (h host) either(first, second string) string { return cmp.Or(h.read(first), h.read(second)) }

func (h host) exists(path string) bool {
	_, err := os.Stat(filepath.Join(h.root, path))
	return err == nil
}

func (h host) glob(pattern string) []string {
	paths, err := filepath.Glob(filepath.Join(h.root, pattern))
	if err != nil {
		return nil
	}
	for i, path := range paths {
		paths[i] = h.below(path)
	}
	return paths
}

// resolve returns the target of a link, relative to the root; empty if there is none.
func (h host) resolve(path string) string {
	path, err := filepath.EvalSymlinks(filepath.Join(h.root, path))
	if err != nil {
		return ""
	}
	return h.below(path)
}

func (h host) below(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, strings.TrimSuffix(h.root, "/")), "/")
}

func (h host) number(path string) int32 {
	n, err := strconv.ParseInt(h.read(path), 10, 32)
	if err != nil {
		return unknown
	}
	return int32(n)
}

func (h host) field(path, name string) string {
	for l := range strings.Lines(h.read(path)) {
		if key, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// scalableFunction matches the auxiliary devices of scalable functions, such as mlx5_core.sf.4.
var scalableFunction = regexp.MustCompile(`^\w+\.sf\.\d+$`)

// device returns an interface's PCI address and folder; the source is result.PCIFromSysfs if sysfs
// or the MAC address ties them, empty for the parent's device or the only allocated one.
func (h host) device(iface string, allocated map[string]string) (pci, dir, source string) {
	if h.ports(iface) != nil {
		return "", "", ""
	}
	dir = h.resolve(filepath.Join("sys/class/net", h.lower(iface), "device"))
	// A virtio device and a scalable function are not on the PCI bus themselves; their parents are.
	if base := filepath.Base(dir); strings.HasPrefix(base, "virtio") || scalableFunction.MatchString(base) {
		dir = filepath.Dir(dir)
	}
	if result.PCIAddress.MatchString(filepath.Base(dir)) {
		return filepath.Base(dir), dir, result.PCIFromSysfs
	}
	addresses := pciAddresses(allocated)
	if h.borrowed {
		addresses = nil
	}
	for _, address := range addresses {
		if dir := "sys/bus/pci/devices/" + address; h.exists(filepath.Join(dir, "net", iface)) {
			return address, h.resolve(dir), result.PCIFromSysfs
		}
	}
	// A simulated interface has at least the device's MAC address. All ports of a bond have one.
	if mac := h.read(filepath.Join("sys/class/net", iface, "address")); mac != "" && mac != "00:00:00:00:00:00" {
		var same []string
		for _, path := range h.glob("sys/bus/pci/devices/*/net/*/address") {
			if h.read(path) == mac {
				same = append(same, filepath.Dir(filepath.Dir(filepath.Dir(path))))
			}
		}
		if same = slices.Compact(same); len(same) == 1 && !h.oneOfSeveral(same[0]) {
			return filepath.Base(same[0]), h.resolve(same[0]), result.PCIFromSysfs
		}
	}
	if dir := h.parentDevice(); dir != "" {
		if nic, _, _ := strings.Cut(h.parent, "."); h.exists(filepath.Join(dir, "net", nic)) {
			source = result.PCIFromSysfs
		}
		return filepath.Base(dir), dir, source
	}
	if len(addresses) != 1 {
		return "", "", ""
	}
	return addresses[0], h.resolve("sys/bus/pci/devices/" + addresses[0]), ""
}

// oneOfSeveral: the ports of one bond, bridge or virtual switch may have the address of one.
func (h host) oneOfSeveral(dir string) bool {
	return slices.ContainsFunc(h.glob(filepath.Join(dir, "net/*/upper_*")), func(upper string) bool {
		return len(h.glob("sys/bus/pci/devices/*/net/*/"+filepath.Base(upper))) > 1
	})
}

// deviceNode returns the NUMA node of an interface's device, in a folder, or that of all its ports.
func (h host) deviceNode(iface, dir string) int32 {
	ports := h.ports(iface)
	if len(ports) == 0 {
		return h.number(filepath.Join(dir, "numa_node"))
	}
	var nodes []int32
	for _, port := range ports {
		_, dir, _ := h.device(port, nil)
		nodes = append(nodes, h.number(filepath.Join(dir, "numa_node")))
	}
	if slices.Sort(nodes); nodes[0] != nodes[len(nodes)-1] {
		return unknown
	}
	return nodes[0]
}

// allocatedDevices returns the variables that list devices, without their companions (_INFO).
func allocatedDevices(environ []string) map[string]string {
	devices := map[string]string{}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		plugin := strings.HasPrefix(name, "PCIDEVICE_") && !(strings.HasSuffix(name, "_INFO") && strings.HasPrefix(value, "{"))
		if plugin || strings.HasPrefix(name, result.VariableOfDriver) {
			devices[name] = value
		}
	}
	return devices
}

func pciAddresses(allocated map[string]string) []string {
	var addresses []string
	for _, list := range allocated {
		for address := range strings.SplitSeq(list, ",") {
			if result.PCIAddress.MatchString(address) {
				addresses = append(addresses, address)
			}
		}
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

// gather collects the evidence of an endpoint with these CPUs; the pinned agent sees only one.
func (h host) gather(measuringCPU int, own []int, iface net.Interface, environ []string) result.Evidence {
	devices := allocatedDevices(environ)
	e := result.Evidence{
		Kernel:           h.read("proc/sys/kernel/osrelease"),
		BootID:           h.read("proc/sys/kernel/random/boot_id"),
		BootedAt:         bootedAt(),
		CPUModel:         h.cpuModel(measuringCPU),
		OnlineCPUs:       h.read("sys/devices/system/cpu/online"),
		MeasuringCPU:     int32(measuringCPU),
		CPUNUMANode:      h.cpuNUMANode(measuringCPU),
		AllowedNUMANodes: h.allowedNUMANodes(own),
		ThreadSiblings:   h.read(fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", measuringCPU)),
		Clocksource:      h.read("sys/devices/system/clocksource/clocksource0/current_clocksource"),
		Interface:        iface.Name,
		MAC:              iface.HardwareAddr.String(),
		MTU:              int32(iface.MTU),
		AllocatedDevices: devices,
		AgentVersion:     version(),
	}
	var dir string
	e.PCIAddress, dir, e.PCISource = h.device(iface.Name, devices)
	e.DeviceNUMANode = h.deviceNode(iface.Name, dir)
	if addresses, err := iface.Addrs(); err == nil {
		e.Addresses = text.Of(addresses, net.Addr.String)
	}
	f := h.facts(measuringCPU, own, iface, environ)
	if addresses := pciAddresses(devices); h.borrowed && len(addresses) == 1 {
		if node := h.number(filepath.Join("sys/bus/pci/devices/"+addresses[0], "numa_node")); node >= 0 {
			f.set("numa.borrowed", strconv.Itoa(int(node)))
		}
	}
	var driverVersion string
	e.Driver, driverVersion, e.Firmware = driverInfo(h.lower(iface.Name))
	if h.parent != "" && dir != "" {
		// The kernel reports the firmware only in the network namespace of the parent.
		driver := h.resolve(filepath.Join(dir, "driver"))
		e.Driver, e.Firmware, driverVersion = strings.TrimPrefix(filepath.Base(driver), "."), "", h.read(filepath.Join("sys/module", filepath.Base(driver), "version"))
		f.set("nic.function", "virtual")
	}
	f.set("nic.parent", h.parent)
	f.set("nic.ports", strings.Join(h.ports(iface.Name), " "))
	f.set("nic.driver-version", ownVersion(driverVersion, e.Kernel))
	f.set("nic.firmware-variant", firmwareVariant(e.Driver, e.Firmware))
	e.Facts = f
	return e
}

func driverInfo(iface string) (driver, version, firmware string) {
	e, err := openEthtool(iface)
	if err != nil {
		return "", "", ""
	}
	defer e.close()
	info, err := unix.IoctlGetEthtoolDrvinfo(e.socket, iface)
	if err != nil {
		return "", "", ""
	}
	text := unix.ByteSliceToString
	if firmware = text(info.Fw_version[:]); firmware == "N/A" { // of VFs, for example from iavf
		firmware = ""
	}
	return text(info.Driver[:]), text(info.Version[:]), firmware
}

// ownVersion returns a driver's version. Without one, the kernel reports its own release.
func ownVersion(version, release string) string {
	if version == release && version != "" {
		return "kernel"
	}
	return version
}

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}

// bootedAt returns when the kernel booted, in ns since 1970; 0 if unknown.
func bootedAt() int64 {
	if now := readClocks(); now.wall > 0 && now.boot > 0 {
		return now.wall - now.boot
	}
	return 0
}

// seen holds the files in which a container sees what its node runs, by identity key.
var seen = map[v1alpha1.IdentityKey]string{
	v1alpha1.IdentityBootID: "proc/sys/kernel/random/boot_id",
	v1alpha1.IdentityKernel: "proc/sys/kernel/osrelease",
}

// Verified returns an error unless the node has the identity that was verified, as KEY=VALUE.
func Verified(root string, verified []string) error {
	for _, arg := range verified {
		key, was, ok := strings.Cut(arg, "=")
		path := seen[v1alpha1.IdentityKey(key)]
		if !ok || path == "" {
			return fmt.Errorf("%q is not %s=ID or %s=RELEASE", arg, v1alpha1.IdentityBootID, v1alpha1.IdentityKernel)
		}
		data, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return fmt.Errorf("reading what the node runs: %w", err)
		}
		if is := strings.TrimSpace(string(data)); is != was {
			return fmt.Errorf("the node has changed since it was verified: %s was %q and is %q", key, was, is)
		}
	}
	return nil
}
