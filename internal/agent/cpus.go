package agent

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"

	"github.com/tailgate-dev/tailgate/internal/result"
)

// cpusAllowed are the CPUs that the agent may use, ascending, with the kernel's own words for them.
func (h host) cpusAllowed() ([]int, string, error) {
	list := h.field("proc/self/status", "Cpus_allowed_list")
	cpus, err := result.ParseCPUs(list)
	if err != nil {
		return nil, "", fmt.Errorf("reading the allowed CPUs: %w", err)
	}
	return cpus.List(), list, nil
}

// cpuNUMANodes are the NUMA nodes of the machine's CPUs, by CPU.
func (h host) cpuNUMANodes() map[int]int32 {
	nodes := map[int]int32{}
	for _, dir := range h.glob("sys/devices/system/node/node[0-9]*") {
		number, err := strconv.ParseInt(strings.TrimPrefix(filepath.Base(dir), "node"), 10, 32)
		if err != nil {
			continue
		}
		// A node of memory alone has no CPUs.
		cpus, err := result.ParseCPUs(h.read(filepath.Join(dir, "cpulist")))
		if err != nil {
			continue
		}
		for _, cpu := range cpus.UnsortedList() {
			nodes[cpu] = int32(number)
		}
	}
	return nodes
}

// cpuNUMANode is the NUMA node of a CPU.
func (h host) cpuNUMANode(cpu int) int32 {
	if node, ok := h.cpuNUMANodes()[cpu]; ok {
		return node
	}
	return unknown
}

// allowedNUMANodes are the NUMA nodes of CPUs, as the kernel lists them; empty when that of one of them is unknown.
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

// siblings are the CPUs of a CPU's core, itself included; nil when they are unknown.
func (h host) siblings(cpu int) []int {
	cpus, err := result.ParseCPUs(h.read(fmt.Sprintf("sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu)))
	if err != nil {
		return nil
	}
	return cpus.List()
}

// order sorts an endpoint's CPUs by how well they suit a tool that measures over a device on a NUMA node: those of that
// node come first, among them those that the scheduler leaves alone (isolcpus), among them the lower numbers. The first
// is the measuring CPU. Its SMT siblings come last, as what runs there slows it down.
func (h host) order(cpus []int, node int32) []int {
	nodes := h.cpuNUMANodes()
	// An empty list is no list.
	isolated, _ := result.ParseCPUs(h.read("sys/devices/system/cpu/isolated"))
	var siblings []int
	rank := func(cpu int) (rank int) {
		if slices.Contains(siblings, cpu) {
			rank += 4
		}
		if n, known := nodes[cpu]; !known || n != node {
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

// agentCPU is where the agent sleeps while a tool uses the first of its ordered CPUs: the last of the others that is no
// SMT sibling of the measuring CPU, or else the last of all.
func (h host) agentCPU(ordered []int, used int) int {
	siblings := h.siblings(ordered[0])
	for _, cpu := range slices.Backward(ordered[min(used, len(ordered)):]) {
		if !slices.Contains(siblings, cpu) {
			return cpu
		}
	}
	return ordered[len(ordered)-1]
}
