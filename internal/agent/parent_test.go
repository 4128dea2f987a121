package agent

import (
	"net"
	"path/filepath"
	"testing"
)

// cards holds a card in slot 7 with two ports, cards on the board, a card behind a bridge in another domain, and a VF of
// the first card.
var cards = map[string]string{
	"sys/bus/pci/devices/0000:3b:00.0/class":       "0x020000\n",
	"sys/bus/pci/devices/0000:3b:00.0/numa_node":   "1\n",
	"sys/bus/pci/devices/0000:3b:00.0/vendor":      "0x1924\n",
	"sys/bus/pci/devices/0000:3b:00.0/device":      "0x0b03\n",
	"sys/bus/pci/devices/0000:3b:00.0/driver":      "->../../../../module/sfc",
	"sys/bus/pci/devices/0000:3b:00.1/class":       "0x020000\n",
	"sys/bus/pci/devices/0000:3b:08.0/class":       "0x020000\n",
	"sys/bus/pci/devices/0000:3b:01.0/class":       "0x020000\n",
	"sys/bus/pci/devices/0000:18:00.0/class":       "0x020000\n",
	"sys/bus/pci/devices/0000:18:00.0/acpi_index":  "3\n",
	"sys/bus/pci/devices/0000:19:00.0/class":       "0x020000\n",
	"sys/bus/pci/devices/0000:19:00.0/index":       "4\n",
	"sys/bus/pci/devices/10001:01:00.0/class":      "0x020000\n",
	"sys/bus/pci/devices/0000:00:1f.0/class":       "0x060100\n",
	"sys/bus/pci/devices/0000:66:00.0/net/ens9/up": "1\n",
	"sys/bus/pci/slots/7/address":                  "0000:3b:00\n",
	"sys/module/sfc/version":                       "6.2.1.1000\n",
	"sys/class/net/lo/address":                     "00:00:00:00:00:00\n",
}

func TestParentDevice(t *testing.T) {
	h := fakeRoot(t, cards)
	for parent, want := range map[string]string{
		"enp59s0f0":    "0000:3b:00.0",
		"enp59s0":      "0000:3b:00.0",
		"enp59s0f1":    "0000:3b:00.1",
		"enp59s0f0np0": "0000:3b:00.0",
		"enp59s0f1d1":  "0000:3b:00.1",
		"ens7f1":       "0000:3b:00.1",
		"ens7f0np0":    "0000:3b:00.0",
		"eno3":         "0000:18:00.0",
		"eno4":         "0000:19:00.0",
		"enP65537p1s0": "10001:01:00.0",
		"ens9":         "0000:66:00.0",
		"enp59s8":      "0000:3b:08.0",
		"enp59s0f0.42": "0000:3b:00.0", "enp59s0f1r3": "0000:3b:00.1", "enp59s1f8": "0000:3b:01.0", "ens7f8": "",
		// The location has no card, or no network card; or the name gives no location.
		"enp59s0f2": "", "enp60s0": "", "ens8": "", "eno5": "", "enp0s31": "", "enp59s0f0v1": "",
		"bond0": "", "eth0": "", "": "", "*": "", "../../etc": "",
	} {
		h.parent = parent
		if got := h.parentDevice(); got != "" && filepath.Base(got) != want || got == "" && want != "" {
			t.Errorf("%q: got %q, want %s", parent, got, want)
		}
	}
}

// An interface above a NIC has the NUMA node, the driver and the identity of the NIC.
func TestEvidenceOfParent(t *testing.T) {
	h := fakeRoot(t, cards)
	h.parent = "enp59s0f0"
	e := h.gather(0, []int{0}, net.Interface{Name: "lo"}, nil)
	if e.PCIAddress != "0000:3b:00.0" || e.PCISource != "" || e.DeviceNUMANode != 1 || e.Driver != "sfc" || e.Firmware != "" {
		t.Errorf("got device %s (%q) on NUMA node %d, driver %q, firmware %q", e.PCIAddress, e.PCISource, e.DeviceNUMANode, e.Driver, e.Firmware)
	}
	for key, want := range map[string]string{
		"nic.parent": "enp59s0f0", "nic.function": "virtual", "nic.pci-id": "1924:0b03", "nic.driver-version": "6.2.1.1000",
	} {
		if e.Facts[key] != want {
			t.Errorf("%s: got %q, want %q", key, e.Facts[key], want)
		}
	}
}

// A VLAN or bond of the node is identified by the only NIC below it.
func TestLower(t *testing.T) {
	h := fakeRoot(t, map[string]string{
		"sys/class/net/ens7f0.40/lower_bond1": "->../bond1", "sys/class/net/bond1/lower_ens7f0": "->../ens7f0",
		"sys/class/net/bond0/lower_ens7f0": "->../ens7f0", "sys/class/net/bond0/lower_ens7f1": "->../ens7f1",
		"sys/class/net/ens7f0/address": "x", "sys/class/net/ens7f1/address": "x",
	})
	for iface, want := range map[string]string{"ens7f0": "ens7f0", "ens7f0.40": "ens7f0", "bond1": "ens7f0", "bond0": "bond0", "gone": "gone"} {
		if got := h.lower(iface); got != want {
			t.Errorf("%s: got %s, want %s", iface, got, want)
		}
	}
}
