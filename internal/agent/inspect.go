package agent

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/cpuset"

	"github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/result"
)

type Inspector struct {
	Node, PodIP string
	Interface   string // to inspect; empty: the interface of PodIP
	Peer        string // another pod's address on the network of the interface; may be empty
	Environ     []string
	Root        string // "/", except in tests
	FromNode    bool   // after Enter: it has the processes and cgroups of the node
}

const maxNICs = 64

// Inspect inspects the node. It needs no privilege and changes nothing.
func (i Inspector) Inspect(ctx context.Context) (result.Inspection, error) {
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
		maps.DeleteFunc(f, func(key, _ string) bool { return strings.HasPrefix(key, "nic.") })
	}
	if len(cpus) <= 2 { // the CPUs of an inspect pod, not those that all pods share
		f.set("cpu.cstates-entered", h.enteredStates(cpus[0]))
	}
	evidence.Facts = f.bounded(maxFacts)
	inspection := result.Inspection{
		Version: result.InspectionVersion, Evidence: evidence, NUMA: h.numaCPUs(), NICs: h.nics(), Onload: h.onload(i.Environ),
	}
	if i.Peer != "" {
		inspection.Reach = i.reach(ctx)
	}
	return inspection, nil
}

// An idle CPU is watched for naps of this length. Leaving an idle state counts it.
const (
	idleNaps = 20
	idleNap  = 50 * time.Millisecond
)

// enteredStates returns the idle states that a CPU enters: they show /dev/cpu_dma_latency.
func (h host) enteredStates(cpu int) string {
	usage := func(state string) string { return h.read(filepath.Join(state, "usage")) }
	states, before, names := h.idleStates(cpu), map[string]string{}, []string(nil)
	for _, state := range states {
		before[state] = usage(state)
	}
	for range idleNaps {
		if len(states) > 0 {
			time.Sleep(idleNap)
		}
	}
	for _, state := range states {
		if usage(state) != before[state] {
			names = append(names, h.read(filepath.Join(state, "name")))
		}
	}
	return strings.Join(names, ", ")
}

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

func (h host) nics() []result.NIC {
	var nics []result.NIC
	for _, dir := range h.glob("sys/bus/pci/devices/*") {
		class, vendor := h.read(filepath.Join(dir, "class")), h.read(filepath.Join(dir, "vendor"))
		// AMD's cards with an FPGA are processing accelerators.
		network := strings.HasPrefix(class, "0x02") || strings.HasPrefix(class, "0x12") && (vendor == "0x1924" || vendor == "0x10ee")
		if !network || h.exists(filepath.Join(dir, "physfn")) {
			continue
		}
		id := strings.TrimPrefix(vendor, "0x") + ":" + strings.TrimPrefix(h.read(filepath.Join(dir, "device")), "0x")
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

func (h host) onload(environ []string) result.Onload {
	var o result.Onload
	libraries := []string{onload.DevicePluginLibrary}
	for _, entry := range environ {
		if value, ok := strings.CutPrefix(entry, preloadVariable+"="); ok {
			o.Preload = line(value, maxValue)
			libraries = append(preloads(value), libraries...)
		}
	}
	if i := slices.IndexFunc(libraries, func(path string) bool { return filepath.IsAbs(path) && onload.IsLibrary(path) && h.exists(path) }); i >= 0 {
		o.Library = libraries[i]
	}
	o.Devices = slices.DeleteFunc([]string{"/dev/onload", "/dev/onload_epoll", "/dev/sfc_char"}, func(device string) bool { return !h.exists(device) })
	o.ControlPlane = line(h.read("sys/module/onload/parameters/cplane_server_path"), maxValue)
	return o
}
