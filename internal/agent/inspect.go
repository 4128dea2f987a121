package agent

import (
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/cpuset"

	"github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// Inspector inspects a node from a pod, for kubectl tailgate doctor.
type Inspector struct {
	// Node and PodIP are the name of the pod's node and the pod's IP address.
	Node, PodIP string
	// Interface is the interface to inspect; if it is empty, the interface of PodIP.
	Interface string
	// Environ is the container's environment.
	Environ []string
	// Root is "/"; tests set another root from which to read the machine's facts.
	Root string
}

// maxNICs bounds how many network cards are reported.
const maxNICs = 64

// Inspect inspects the node. It needs no privilege and changes nothing.
func (i Inspector) Inspect() (result.Inspection, error) {
	h := host{root: i.Root}
	cpus, allowed, err := h.cpusAllowed()
	if err != nil {
		return result.Inspection{}, err
	}
	iface := chosenInterface(i.Interface, i.PodIP)
	// A link that was just attached needs seconds to come up.
	for began := time.Now(); h.carrier(iface.Name) == "0" && time.Since(began) < attachTimeout; {
		time.Sleep(listenPoll)
	}
	evidence := h.gather(cpus[0], cpus, iface, i.Environ)
	evidence.Node, evidence.Address, evidence.CPUsAllowed, evidence.AgentCPU = i.Node, i.PodIP, allowed, int32(cpus[0])
	f := facts(evidence.Facts)
	if evidence.Interface == "" {
		for key := range f {
			if strings.HasPrefix(key, "nic.") {
				delete(f, key)
			}
		}
	}
	evidence.Facts = f.bounded(maxFacts)
	return result.Inspection{
		Version: result.InspectionVersion, Evidence: evidence, NUMA: h.numaCPUs(), NICs: h.nics(), Onload: h.onload(i.Environ),
	}, nil
}

// numaCPUs returns the CPUs of each NUMA node that has any, by the number of the node.
func (h host) numaCPUs() map[string]string {
	nodes := map[int32][]int{}
	for cpu, node := range h.cpuNUMANodes() {
		nodes[node] = append(nodes[node], cpu)
	}
	lists := map[string]string{}
	for node, cpus := range nodes {
		lists[strconv.Itoa(int(node))] = cpuset.New(cpus...).String()
	}
	return lists
}

// nics returns the network cards on the PCI bus, which shows the whole machine in every pod, without VFs.
func (h host) nics() []result.NIC {
	var nics []result.NIC
	for _, dir := range h.glob("sys/bus/pci/devices/*") {
		network := strings.HasPrefix(h.read(filepath.Join(dir, "class")), "0x02")
		if !network && !h.exists(filepath.Join(dir, "sriov_totalvfs")) || h.exists(filepath.Join(dir, "physfn")) {
			continue
		}
		id := strings.TrimPrefix(h.read(filepath.Join(dir, "vendor")), "0x") + ":" + strings.TrimPrefix(h.read(filepath.Join(dir, "device")), "0x")
		nic := result.NIC{
			PCIAddress: filepath.Base(dir), ID: id, NUMANode: h.number(filepath.Join(dir, "numa_node")),
			VFs: max(h.number(filepath.Join(dir, "sriov_numvfs")), 0), TotalVFs: max(h.number(filepath.Join(dir, "sriov_totalvfs")), 0),
		}
		if driver := h.resolve(filepath.Join(dir, "driver")); driver != "" {
			nic.Driver = filepath.Base(driver)
		}
		if nics = append(nics, nic); len(nics) == maxNICs {
			break
		}
	}
	return nics
}

// onload returns what Onload's device plugin added to the container.
func (h host) onload(environ []string) result.Onload {
	var o result.Onload
	libraries := []string{onload.DevicePluginLibrary}
	for _, entry := range environ {
		if value, ok := strings.CutPrefix(entry, preloadVariable+"="); ok {
			o.Preload = line(value, maxValue)
			libraries = append(preloads(value), libraries...)
		}
	}
	for _, path := range libraries {
		if filepath.IsAbs(path) && isOnload(path) && h.exists(path) {
			o.Library = path
			break
		}
	}
	for _, device := range []string{"/dev/onload", "/dev/onload_epoll", "/dev/sfc_char"} {
		if h.exists(device) {
			o.Devices = append(o.Devices, device)
		}
	}
	o.ControlPlane = line(h.read("sys/module/onload/parameters/cplane_server_path"), maxValue)
	return o
}
