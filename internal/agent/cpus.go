package agent

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"

	"github.com/tailgate-dev/tailgate/internal/result"
)

func (h host) cpusAllowed() ([]int, string, error) {
	list := h.field("proc/self/status", "Cpus_allowed_list")
	cpus, err := result.ParseCPUs(list)
	if list == "" && h.exists("proc/self/status") {
		return nil, "", fmt.Errorf("the container's runtime (%s) hides which CPUs the container may use, so that nothing can be proved: "+
			"use a RuntimeClass that runs containers on the node's kernel, such as runc or crun", cmp.Or(h.sandbox(), "a sandbox such as gVisor"))
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading the allowed CPUs: %w", err)
	}
	return cpus.List(), list, nil
}

// sandbox names the software that runs the container on its own kernel, if that shows it.
func (h host) sandbox() string {
	switch {
	case strings.Contains(h.read("proc/version"), "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016"): // in all releases
		return "gVisor"
	case strings.Contains(h.read("proc/cmdline"), "kata-containers"), strings.Contains(h.read("proc/self/mountinfo"), " kataShared "):
		return "Kata Containers"
	}
	return ""
}

// cpuNUMANodes returns each CPU's node, except where several nodes list it; without NUMA, 0.
func (h host) cpuNUMANodes() map[int]int32 {
	nodes, several := map[int]int32{}, map[int]bool{}
	if !h.exists("sys/devices/system/node") {
		online, _ := result.ParseCPUs(h.read("sys/devices/system/cpu/online"))
		for _, cpu := range online.UnsortedList() {
			nodes[cpu] = 0
		}
	}
	for _, dir := range h.glob("sys/devices/system/node/node[0-9]*") {
		number, err := strconv.ParseInt(strings.TrimPrefix(filepath.Base(dir), "node"), 10, 32)
		if err != nil {
			continue
		}
		// A NUMA node that has only memory has no CPUs.
		cpus, err := result.ParseCPUs(h.read(filepath.Join(dir, "cpulist")))
		if err != nil {
			continue
		}
		for _, cpu := range cpus.UnsortedList() {
			_, known := nodes[cpu]
			nodes[cpu], several[cpu] = int32(number), known
		}
	}
	maps.DeleteFunc(nodes, func(cpu int, _ int32) bool { return several[cpu] }) // numa=fake
	return nodes
}

func (h host) cpuNUMANode(cpu int) int32 {
	if node, ok := h.cpuNUMANodes()[cpu]; ok {
		return node
	}
	return unknown
}

// allowedNUMANodes returns the NUMA nodes of CPUs as a kernel list; empty if one is unknown.
func (h host) allowedNUMANodes(cpus []int) string {
	all := h.cpuNUMANodes()
	var nodes []int
	for _, cpu := range cpus {
		node, ok := all[cpu]
		if !ok {
			return ""
		}
		nodes = append(nodes, int(node))
	}
	return cpuset.New(nodes...).String()
}

// packages returns the sockets of all CPUs on a CPU's NUMA node as a kernel list, as far as known.
func (h host) packages(cpu int) string {
	var packages []int
	all := h.cpuNUMANodes()
	for other, node := range all {
		if node == all[cpu] {
			packages = append(packages, int(h.number(fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/physical_package_id", other))))
		}
	}
	return cpuset.New(slices.DeleteFunc(packages, func(n int) bool { return n < 0 })...).String()
}

func (h host) siblings(cpu int) []int {
	cpus, err := result.ParseCPUs(h.read(fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu)))
	if err != nil {
		return nil
	}
	return cpus.List()
}

// order sorts CPUs by how well they suit a device on a NUMA node: on the node, fast, isolated, low
// numbers. The first measures; its SMT siblings come last.
func (h host) order(cpus []int, node int32) []int {
	nodes := h.cpuNUMANodes()
	// An empty list does not parse, and no CPU is then isolated.
	isolated, _ := result.ParseCPUs(h.read("sys/devices/system/cpu/isolated"))
	var siblings []int
	rank := func(cpu int) (rank int) {
		if slices.Contains(siblings, cpu) {
			rank += 8
		}
		if n, known := nodes[cpu]; !known || n != node {
			rank += 4
		}
		if h.slow(cpu) {
			rank += 2
		}
		if !isolated.Contains(cpu) {
			rank++
		}
		return rank
	}
	compare := func(a, b int) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) }
	measuring := slices.MinFunc(cpus, compare)
	siblings = slices.DeleteFunc(h.siblings(measuring), func(cpu int) bool { return cpu == measuring })
	return slices.SortedFunc(slices.Values(cpus), compare)
}

func (h host) slow(cpu int) bool {
	kind := h.coreType(cpu)
	capacity, err := strconv.Atoi(kind)
	const most = 1024
	return kind == "atom" || kind == "lowpower" || err == nil && capacity < most
}

// agentCPU returns the agent's CPU: the last that is neither the tool's nor its SMT sibling.
func (h host) agentCPU(ordered []int, used int) int {
	siblings := h.siblings(ordered[0])
	for _, cpu := range slices.Backward(ordered[min(used, len(ordered)):]) {
		if !slices.Contains(siblings, cpu) {
			return cpu
		}
	}
	return ordered[len(ordered)-1]
}
