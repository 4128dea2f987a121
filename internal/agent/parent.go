package agent

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

const maxLower = 4

// lower returns the lowest interface below a virtual one of the namespace, as of a VLAN, or the one that has several, as a bond.
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

// lowers returns the interfaces on which one is built directly.
func (h host) lowers(iface string) []string {
	return text.Of(h.glob("sys/class/net/"+iface+"/lower_*"), func(path string) string { return strings.TrimPrefix(filepath.Base(path), "lower_") })
}

// ports returns the interfaces on which a bond, a team, a bridge or a VRF is built, or a VLAN above one of these; nil if messages take
// only one. Which port carries them is not known, and may change.
func (h host) ports(iface string) []string {
	if found := h.lowers(h.lower(iface)); len(found) > 1 {
		return found
	}
	return nil
}

// interfaceName matches a name that systemd derives from a device's location: the index on the
// board, the slot, or bus and device, the latter two after a domain other than 0. Function, port,
// and the number of a VF or its representor follow.
var interfaceName = regexp.MustCompile(`^(?:en|ib)(?:o(\d+)|(?:P(\d+))?(?:s(\d+)|p(\d+)s(\d+))(?:f(\d+))?)(?:n[a-z0-9]+?|d\d+)?(?:v(\d+)|r\d+)?$`)

// parentDevice returns the folder of the parent's PCI device by the location in its name, as it is
// in the node's namespace; empty unless one fits. A NIC may be renamed: the name proves nothing.
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

// number returns a number without sign; 0 for text.
func number(text string, base int) int64 {
	n, _ := strconv.ParseUint(text, base, 32)
	return int64(n)
}
