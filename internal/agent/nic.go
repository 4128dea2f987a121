package agent

import (
	"maps"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"k8s.io/utils/cpuset"

	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

func (h host) nicFacts(f facts, cpu int, iface net.Interface, environ []string) {
	dir := filepath.Join("sys/class/net", iface.Name)
	if h.parent != "" { // an interface above another one has no interrupts of its own
		maps.DeleteFunc(f, func(key, _ string) bool {
			return slices.Contains([]string{"nic.gro-flush-timeout", "nic.napi-defer-hard-irqs", "nic.threaded"}, key)
		})
	}
	// A driver that does not know its speed reports -1.
	if speed := h.number(dir + "/speed"); speed > 0 {
		f.set("nic.speed", strconv.Itoa(int(speed)))
	}
	f.set("nic.rps", steering(h, dir))
	f.set("nic.qdisc", qdisc(iface.Index))
	ethtoolFacts(f, iface.Name)

	switch _, device, _ := h.device(iface.Name, allocatedDevices(environ)); {
	case device != "":
		h.deviceFacts(f, device, cpu)
		if own := h.resolve(filepath.Join("sys/class/net", h.lower(iface.Name), "device")); scalableFunction.MatchString(filepath.Base(own)) {
			f.set("nic.function", "SF")
		}
	case h.exists(dir):
		f.set("nic.function", "virtual")
	}
}

func (h host) deviceFacts(f facts, device string, cpu int) {
	switch pf := h.resolve(filepath.Join(device, "physfn")); {
	case pf != "":
		f.set("nic.function", "VF")
		f.set("nic.port", filepath.Base(pf))
	// Without a hypervisor, every VF shows its PF.
	case h.exists(filepath.Join(device, "sriov_totalvfs")), f["cpu.hypervisor"] == yesNo(false):
		f.set("nic.function", "PF")
		f.set("nic.port", filepath.Base(device))
	default:
		f.set("nic.function", "PCI")
	}
	for key, of := range map[string]string{"nic.pci-id": "", "nic.pci-subsystem": "subsystem_"} {
		vendor, product := h.read(filepath.Join(device, of+"vendor")), h.read(filepath.Join(device, of+"device"))
		if vendor != "" && product != "" {
			f.set(key, strings.TrimPrefix(vendor, "0x")+":"+strings.TrimPrefix(product, "0x"))
		}
	}
	// A VF has no link of its own and reports Unknown.
	speed := h.read(filepath.Join(device, "current_link_speed"))
	width := h.read(filepath.Join(device, "current_link_width"))
	if speed != "" && speed != "Unknown" && width != "" {
		f.set("nic.pcie", speed+" x"+width)
	}

	cpus := cpuset.New()
	interrupts := h.glob(filepath.Join(device, "msi_irqs/[0-9]*"))
	for _, irq := range interrupts {
		if list, err := result.ParseCPUs(h.affinity(filepath.Join("proc/irq", filepath.Base(irq)))); err == nil {
			cpus = cpus.Union(list)
		}
	}
	if len(interrupts) > 0 {
		f.set("nic.irqs", strconv.Itoa(len(interrupts)))
	}
	if !cpus.IsEmpty() {
		f.set("nic.irq-cpus", cpus.String())
		f.set("nic.irq-on-cpu", yesNo(cpus.Contains(cpu)))
	}
}

func steering(h host, dir string) string {
	queues := h.glob(dir + "/queues/rx-*/rps_cpus")
	var masks []string
	for _, queue := range queues {
		if mask := h.read(queue); strings.Trim(mask, "0,") != "" && !slices.Contains(masks, mask) {
			masks = append(masks, mask)
		}
	}
	switch {
	case len(queues) == 0:
		return ""
	case len(masks) == 0:
		return none
	}
	return strings.Join(masks, " ")
}

func qdisc(index int) string {
	list, err := netlink.QdiscList(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index}})
	if err != nil {
		return ""
	}
	for _, q := range list {
		if q.Attrs().Parent == netlink.HANDLE_ROOT {
			return q.Type()
		}
	}
	return ""
}

const maxLower = 4

// lower returns the lowest interface below one such as a VLAN, or the one that has several.
func (h host) lower(iface string) string {
	for range maxLower {
		found := h.lowers(iface)
		if len(found) != 1 {
			break
		}
		iface = found[0]
	}
	return iface
}

func (h host) lowers(iface string) []string {
	return text.Of(h.glob("sys/class/net/"+iface+"/lower_*"), func(path string) string { return strings.TrimPrefix(filepath.Base(path), "lower_") })
}

// ports returns those of a bond, VRF or the like: any may carry messages. nil: there is only one.
func (h host) ports(iface string) []string {
	if found := h.lowers(h.lower(iface)); len(found) > 1 {
		return found
	}
	return nil
}

// interfaceName matches systemd's names by location: the index on the board, the slot, or bus and
// device (these two after a domain other than 0); function, port, and VF or representor follow.
var interfaceName = regexp.MustCompile(`^(?:en|ib)(?:o(\d+)|(?:P(\d+))?(?:s(\d+)|p(\d+)s(\d+))(?:f(\d+))?)(?:n[a-z0-9]+?|d\d+)?(?:v(\d+)|r\d+)?$`)

// parentDevice returns the one PCI device that fits the parent's name, which proves nothing.
func (h host) parentDevice() string {
	// The usual name of a VLAN is that of its NIC with the number of the VLAN.
	nic, _, _ := strings.Cut(h.parent, ".")
	name := interfaceName.FindStringSubmatch(nic)
	if name == nil {
		return ""
	}
	var found []string
	for _, dir := range h.glob("sys/bus/pci/devices/*") {
		if strings.HasPrefix(h.read(filepath.Join(dir, "class")), "0x02") && h.isAt(dir, name) || h.exists(filepath.Join(dir, "net", nic)) {
			found = append(found, dir)
		}
	}
	if len(found) != 1 {
		return ""
	}
	if vf := name[7]; vf != "" {
		return h.resolve(filepath.Join(found[0], "virtfn"+vf))
	}
	return h.resolve(found[0])
}

// isAt reports whether a device is at a name's location, which may leave out the function.
func (h host) isAt(dir string, name []string) bool {
	address := filepath.Base(dir)
	if !result.PCIAddress.MatchString(address) {
		return false
	}
	index, domain, slot, bus, device, function := name[1], number(name[2], 10), name[3], name[4], number(name[5], 10), number(name[6], 10)
	if index != "" {
		return index == h.either(filepath.Join(dir, "acpi_index"), filepath.Join(dir, "index"))
	}
	parts := strings.FieldsFunc(address, func(r rune) bool { return r == ':' || r == '.' })
	ownDevice, ownFunction := number(parts[2], 16), number(parts[3], 16)
	// With alternative routing (ARI), the numbers of device and function are one number of 8 bits.
	together := function > 7 && function == ownDevice*8+ownFunction
	if domain != number(parts[0], 16) || !together && function != ownFunction {
		return false
	}
	if slot == "" {
		return number(bus, 10) == number(parts[1], 16) && (device == ownDevice || together)
	}
	// The slot may contain a switch, with the device behind it.
	there := h.read("sys/bus/pci/slots/" + slot + "/address")
	return there != "" && slices.ContainsFunc(strings.Split(h.resolve(dir), "/"), func(part string) bool { return strings.HasPrefix(part, there+".") })
}

func number(text string, base int) int64 {
	n, _ := strconv.ParseUint(text, base, 32)
	return int64(n)
}
