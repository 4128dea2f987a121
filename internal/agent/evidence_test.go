package agent

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/internal/result"
)

// server2 is a machine with two NUMA nodes and a NIC on the second; eth0 is a virtual interface, and eth1 and eth2 are
// interfaces of virtual machines, with their odd devices. A content that begins with -> is a link.
//
// The files are written for each test, because a Go module cannot contain links or names with colons.
var server2 = map[string]string{
	"proc/self/status":                                                  "Name:\ttailgate-agent\nCpus_allowed:\t0c\nCpus_allowed_list:\t2-3\nMems_allowed_list:\t0-1\n",
	"proc/sys/kernel/osrelease":                                         "6.1.0-37-amd64\n",
	"proc/sys/kernel/random/boot_id":                                    "0f5ad5a8-8c0b-4e27-a0e5-0a1a2a3a4a5a\n",
	"proc/cpuinfo":                                                      "processor\t: 0\nmodel name\t: AMD EPYC 9374F 32-Core Processor\nflags\t\t: fpu vme\n\nprocessor\t: 1\nmodel name\t: another\n",
	"sys/devices/system/cpu/online":                                     "0-7\n",
	"sys/devices/system/node/has_cpu":                                   "0-1\n",
	"sys/devices/system/node/node0/cpulist":                             "0-1,4-5\n",
	"sys/devices/system/node/node1/cpulist":                             "2-3,6-7\n",
	"sys/devices/system/node/node2/cpulist":                             "\n", // memory without CPUs
	"sys/devices/system/cpu/cpu2/topology/thread_siblings_list":         "2,6\n",
	"sys/devices/system/clocksource/clocksource0/current_clocksource":   "tsc\n",
	"sys/devices/pci0000:60/0000:60:01.0/0000:65:02.3/numa_node":        "1\n",
	"sys/devices/pci0000:00/0000:00:03.0/virtio0/net/eth1/address":      "52:54:00:00:00:01\n",
	"sys/devices/pci0000:00/0000:00:03.0/numa_node":                     "0\n",
	"sys/devices/pci0000:60/0000:60:01.0/0000:65:02.3/net/net1/device":  "->../../../0000:65:02.3",
	"sys/class/net/net1":                                                "->../../devices/pci0000:60/0000:60:01.0/0000:65:02.3/net/net1",
	"sys/devices/pci0000:00/0000:00:03.0/virtio0/net/eth1/device":       "->../../../virtio0",
	"sys/class/net/eth1":                                                "->../../devices/pci0000:00/0000:00:03.0/virtio0/net/eth1",
	"sys/class/net/eth2/device":                                         "->../../../devices/vmbus/7f3c",
	"sys/devices/vmbus/7f3c/numa_node":                                  "0\n",
	"sys/class/net/eth0/mtu":                                            "1500\n",
	"sys/bus/pci/devices/0000:65:02.4":                                  "->../../../devices/pci0000:60/0000:60:01.0/0000:65:02.4",
	"sys/devices/pci0000:60/0000:60:01.0/0000:65:02.4/numa_node":        "1\n",
	"sys/devices/pci0000:60/0000:60:01.0/0000:65:02.4/net/eth3/mtu":     "1500\n",
	"sys/bus/pci/devices/0000:65:02.5":                                  "->../../../devices/pci0000:60/0000:60:01.0/0000:65:02.5",
	"sys/devices/pci0000:60/0000:60:01.0/0000:65:02.5/numa_node":        "-1\n",
	"sys/class/net/eth5/address":                                        "02:00:00:00:00:05\n",
	"sys/devices/pci0000:60/0000:60:01.0/0000:65:02.4/net/ens5/address": "02:00:00:00:00:05\n",
	"sys/class/net/lo/address":                                          "00:00:00:00:00:00\n",
	"sys/devices/pci0000:60/0000:60:01.0/0000:65:02.5/net/lo5/address":  "00:00:00:00:00:00\n",
}

func fakeRoot(t *testing.T, files map[string]string) host {
	t.Helper()
	root := t.TempDir()
	for path, content := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(content, "->"); ok {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return host{root: root}
}

func TestDevice(t *testing.T) {
	const variable = "PCIDEVICE_AMD_COM_SF-VF"
	cases := map[string]struct {
		iface    string
		environ  []string
		wantPCI  string
		wantNUMA int32
		// bySysfs is true if sysfs shows interface and device together.
		bySysfs bool
	}{
		"an interface that is a PCI device": {iface: "net1", wantPCI: "0000:65:02.3", wantNUMA: 1, bySysfs: true},
		"its own device comes before an allocated one": {
			iface: "net1", environ: []string{variable + "=0000:65:02.4"}, wantPCI: "0000:65:02.3", wantNUMA: 1, bySysfs: true,
		},
		"a virtual interface over an allocated device": {
			iface: "eth0", environ: []string{variable + "=0000:65:02.4", variable + "_INFO={}", "PATH=/bin"}, wantPCI: "0000:65:02.4", wantNUMA: 1,
		},
		"a device with an unknown NUMA node": {
			iface: "eth0", environ: []string{variable + "=0000:65:02.5"}, wantPCI: "0000:65:02.5", wantNUMA: -1,
		},
		"a device that is not there": {
			iface: "eth0", environ: []string{variable + "=0000:99:00.0"}, wantPCI: "0000:99:00.0", wantNUMA: -1,
		},
		"two devices of one resource: ambiguous": {
			iface: "eth0", environ: []string{variable + "=0000:65:02.3,0000:65:02.4"}, wantNUMA: -1,
		},
		"devices of two resources: ambiguous": {
			iface: "eth0", environ: []string{variable + "=0000:65:02.3", "PCIDEVICE_OTHER=0000:65:02.4"}, wantNUMA: -1,
		},
		"the device knows its interface": {
			iface: "eth3", environ: []string{variable + "=0000:65:02.4"}, wantPCI: "0000:65:02.4", wantNUMA: 1, bySysfs: true,
		},
		"the second of two devices of one resource knows": {
			iface: "eth3", environ: []string{variable + "=0000:65:02.5,0000:65:02.4"}, wantPCI: "0000:65:02.4", wantNUMA: 1, bySysfs: true,
		},
		"one of two resources with prefixes of their own knows": {
			iface: "eth3", environ: []string{"PCIDEVICE_INTEL_COM_A=0000:65:02.5", "PCIDEVICE_OPENSHIFT_IO_B-C=0000:65:02.4"},
			wantPCI: "0000:65:02.4", wantNUMA: 1, bySysfs: true,
		},
		"another device of the pod knows it not": {
			iface: "eth0", environ: []string{variable + "=0000:65:02.4,0000:65:02.5"}, wantNUMA: -1,
		},
		"a device with the interface's MAC address, although another was allocated": {
			iface: "eth5", environ: []string{variable + "=0000:65:02.5"}, wantPCI: "0000:65:02.4", wantNUMA: 1, bySysfs: true,
		},
		"an empty MAC address matches no interface": {iface: "lo", wantNUMA: -1},
		"one device under two names": {
			iface: "eth0", environ: []string{variable + "=0000:65:02.4", "PCIDEVICE_OTHER=0000:65:02.4"}, wantPCI: "0000:65:02.4", wantNUMA: 1,
		},
		"one PCI device beside another kind": {
			iface: "eth0", environ: []string{variable + "=0000:65:02.4", "PCIDEVICE_OTHER=sfc-0"}, wantPCI: "0000:65:02.4", wantNUMA: 1,
		},
		"a resource whose name ends like that of the other variable": {
			iface: "eth0", environ: []string{"PCIDEVICE_AMD_COM_INFO=0000:65:02.4", "PCIDEVICE_AMD_COM_INFO_INFO={}"}, wantPCI: "0000:65:02.4", wantNUMA: 1,
		},
		"an empty allocation":                 {iface: "eth0", environ: []string{variable + "="}, wantNUMA: -1},
		"a virtual interface":                 {iface: "eth0", wantNUMA: -1},
		"an interface that is not there":      {iface: "eth9", wantNUMA: -1},
		"a virtio device is behind a PCI one": {iface: "eth1", wantPCI: "0000:00:03.0", wantNUMA: 0, bySysfs: true},
		"a virtual device on no PCI bus":      {iface: "eth2", wantNUMA: -1},
		"a device that is no PCI address":     {iface: "eth0", environ: []string{variable + "=sfc-0"}, wantNUMA: -1},
		"variables that only look like one":   {iface: "eth0", environ: []string{"PCIDEVICE=0000:65:02.4", "XPCIDEVICE_A=1"}, wantNUMA: -1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := fakeRoot(t, server2).gather(2, nil, net.Interface{Name: c.iface}, c.environ)
			if e.PCIAddress != c.wantPCI || e.DeviceNUMANode != c.wantNUMA {
				t.Errorf("got %q on NUMA node %d, want %q on %d", e.PCIAddress, e.DeviceNUMANode, c.wantPCI, c.wantNUMA)
			}
			if got := e.PCISource == result.PCIFromSysfs; got != c.bySysfs || e.PCISource != "" && !got {
				t.Errorf("the source is %q, want sysfs: %t", e.PCISource, c.bySysfs)
			}
		})
	}
}

// The ports of a virtual switch keep their addresses, and the switch has that of one of them.
func TestPortOfASwitch(t *testing.T) {
	files := map[string]string{
		"sys/class/net/br-ex/address": "02:00:00:00:00:01\n", "sys/bus/pci/devices/0000:17:00.0/net/a/address": "02:00:00:00:00:01\n",
		"sys/bus/pci/devices/0000:b1:00.0/net/b/address": "02:00:00:00:00:02\n", "sys/bus/pci/devices/0000:17:00.0/net/a/upper_ovs-system": "",
	}
	device := func() string {
		pci, _, _ := fakeRoot(t, files).device("br-ex", nil)
		return pci
	}
	if got := device(); got != "0000:17:00.0" {
		t.Errorf("a switch of one port: %q", got)
	}
	files["sys/bus/pci/devices/0000:b1:00.0/net/b/upper_ovs-system"] = ""
	if got := device(); got != "" {
		t.Errorf("a switch of two: %q", got)
	}
}

// A pod with a borrowed device measures over another interface: the device is never taken for that of the interface.
func TestBorrowedDevice(t *testing.T) {
	const variable = "PCIDEVICE_AMD_COM_SF_VF"
	cases := map[string]struct {
		iface, environ, wantPCI, wantBorrowed string
		wantNUMA                              int32
	}{
		"over a NIC":                      {iface: "eth1", environ: variable + "=0000:65:02.4", wantPCI: "0000:00:03.0", wantNUMA: 0, wantBorrowed: "1"},
		"over an interface without a NIC": {iface: "eth0", environ: variable + "=0000:65:02.4", wantNUMA: -1, wantBorrowed: "1"},
		"of an unknown NUMA node":         {iface: "eth1", environ: variable + "=0000:65:02.5", wantPCI: "0000:00:03.0", wantNUMA: 0},
		"two devices":                     {iface: "eth1", environ: variable + "=0000:65:02.4,0000:65:02.5", wantPCI: "0000:00:03.0", wantNUMA: 0},
		"no device":                       {iface: "eth1", environ: variable + "=", wantPCI: "0000:00:03.0", wantNUMA: 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h := fakeRoot(t, server2)
			h.borrowed = true
			e := h.gather(2, nil, net.Interface{Name: c.iface}, []string{c.environ})
			if e.PCIAddress != c.wantPCI || e.DeviceNUMANode != c.wantNUMA || e.Facts["numa.borrowed"] != c.wantBorrowed {
				t.Errorf("got %q on NUMA node %d, borrowed on %q; want %q, %d, %q",
					e.PCIAddress, e.DeviceNUMANode, e.Facts["numa.borrowed"], c.wantPCI, c.wantNUMA, c.wantBorrowed)
			}
		})
	}
}

func TestGather(t *testing.T) {
	cases := map[string]struct {
		files   map[string]string
		environ []string
		want    result.Evidence
	}{
		"a server": {
			files: server2, environ: []string{"PCIDEVICE_AMD_COM_SF_VF=0000:65:02.3", "PCIDEVICE_AMD_COM_SF_VF_INFO={}"},
			want: result.Evidence{
				Kernel: "6.1.0-37-amd64", BootID: "0f5ad5a8-8c0b-4e27-a0e5-0a1a2a3a4a5a", CPUModel: "AMD EPYC 9374F 32-Core Processor",
				OnlineCPUs: "0-7", MeasuringCPU: 2, CPUNUMANode: 1, DeviceNUMANode: 1, ThreadSiblings: "2,6", Clocksource: "tsc",
				Interface: "net1", MTU: 9000, PCIAddress: "0000:65:02.3",
				AllowedNUMANodes: "1", MAC: "00:0f:53:4a:81:c0", PCISource: result.PCIFromSysfs,
				AllocatedDevices: map[string]string{"PCIDEVICE_AMD_COM_SF_VF": "0000:65:02.3"},
			},
		},
		"a device of Dynamic Resource Allocation": {
			files:   map[string]string{"sys/bus/pci/devices/0000:d8:02.0/net/net1/": "", "sys/bus/pci/devices/0000:d8:02.0/numa_node": "1"},
			environ: []string{"SRIOVNETWORK_VF_DEVICE_0000_d8_02_0=0000:d8:02.0", "SRIOVNETWORK_NET_ATTACH_DEF_NAME="},
			want: result.Evidence{
				MeasuringCPU: 2, CPUNUMANode: -1, DeviceNUMANode: 1, Interface: "net1", MTU: 9000, MAC: "00:0f:53:4a:81:c0",
				PCIAddress: "0000:d8:02.0", PCISource: result.PCIFromSysfs,
				AllocatedDevices: map[string]string{"SRIOVNETWORK_VF_DEVICE_0000_d8_02_0": "0000:d8:02.0"},
			},
		},
		"a machine without this information": {
			want: result.Evidence{MeasuringCPU: 2, CPUNUMANode: -1, DeviceNUMANode: -1, Interface: "net1", MTU: 9000, MAC: "00:0f:53:4a:81:c0", AllocatedDevices: map[string]string{}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got := fakeRoot(t, c.files).gather(2, []int{2, 3}, net.Interface{Name: "net1", MTU: 9000, HardwareAddr: net.HardwareAddr{0, 0x0f, 0x53, 0x4a, 0x81, 0xc0}}, c.environ)
			if again := bootedAt(); !result.SameKernel(result.Evidence{BootedAt: again}, result.Evidence{BootedAt: got.BootedAt}) {
				t.Errorf("the kernel booted at %d, and then at %d", got.BootedAt, again)
			}
			// The version comes from the build; TestFacts checks the facts.
			got.AgentVersion, got.Facts, got.BootedAt = "", nil, 0
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("evidence (-want +got):\n%s", diff)
			}
		})
	}
}
