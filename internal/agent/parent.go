package agent

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// maxLower bounds how many virtual interfaces are stacked on each other.
const maxLower = 4

// lower returns the lowest interface below a virtual one of the same network namespace, such as the NIC of a VLAN. It stops
// at an interface that has none below it, or several.
func (h host) lower(iface string) string {
	for range maxLower {
		found := h.glob("sys/class/net/" + iface + "/lower_*")
		if len(found) != 1 {
			break
		}
		iface = strings.TrimPrefix(filepath.Base(found[0]), "lower_")
	}
	return iface
}

// interfaceName matches a name that systemd gives to an interface by the location of its device. The parts of the name are
// the index of a device on the board; or the slot; or the domain, bus and slot on the PCI bus; then the function and the
// port. The name of a VF ends differently.
var interfaceName = regexp.MustCompile(`^en(o\d+|s\d+|(?:P\d+)?p\d+s\d+)(?:f(\d+))?(?:n[a-z0-9]+|d\d+)?$`)

// parentDevice returns the folder of the PCI device of the parent. The parent is in the network namespace of the node,
// where a pod cannot see it, but the PCI bus is the same everywhere, and the name gives the location on it. The folder is
// empty if the name gives no location, or if several devices fit.
func (h host) parentDevice() string {
	name := interfaceName.FindStringSubmatch(h.parent)
	if name == nil {
		return ""
	}
	var found []string
	for _, dir := range h.glob("sys/bus/pci/devices/*") {
		if strings.HasPrefix(h.read(filepath.Join(dir, "class")), "0x02") && h.isAt(dir, name[1], name[2]) ||
			h.exists(filepath.Join(dir, "net", h.parent)) {
			found = append(found, dir)
		}
	}
	if len(found) != 1 {
		return ""
	}
	return h.resolve(found[0])
}

// isAt reports whether a device, given by its folder, is at a location in systemd's notation. The name of a device that has
// only one function leaves out the function.
func (h host) isAt(dir, place, function string) bool {
	address := filepath.Base(dir)
	parts := strings.FieldsFunc(address, func(r rune) bool { return r == ':' || r == '.' })
	if !pciAddress.MatchString(address) || strings.TrimPrefix(function, "0") != strings.TrimPrefix(parts[3], "0") {
		return false
	}
	switch place[0] {
	case 'o':
		return place[1:] == h.either(filepath.Join(dir, "acpi_index"), filepath.Join(dir, "index"))
	case 's':
		slot, _, _ := strings.Cut(address, ".")
		return h.read("sys/bus/pci/slots/"+place[1:]+"/address") == slot
	}
	decimal := func(hex string) string {
		n, _ := strconv.ParseUint(hex, 16, 32)
		return strconv.FormatUint(n, 10)
	}
	bus := "p" + decimal(parts[1]) + "s" + decimal(parts[2])
	if parts[0] != "0000" {
		bus = "P" + decimal(parts[0]) + bus
	}
	return place == bus
}
