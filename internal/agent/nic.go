package agent

import (
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"k8s.io/utils/cpuset"

	"github.com/tailgate-dev/tailgate/internal/result"
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

// steering returns the masks of CPUs to which receive packet steering moves messages, each once.
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

// qdisc returns the root queueing discipline of an interface.
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
