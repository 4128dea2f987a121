package preflight

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
)

// Aligned reports whether an endpoint requires devices on the NUMA node of its CPUs.
func Aligned(o Observed) bool {
	return len(aligned(o, v1alpha1.RoleClient)) > 0 || len(aligned(o, v1alpha1.RoleServer)) > 0
}

// aligned lists each variant's devices that must be on the NUMA node of its CPUs.
func aligned(o Observed, role string) [][]corev1.ResourceName {
	var all [][]corev1.ResourceName
	for _, v := range o.variants() {
		if o.Benchmark.Spec.Placement.NUMAPolicyOf(v, role) != v1alpha1.NUMARequired {
			continue
		}
		var devices []corev1.ResourceName
		for _, name := range v.Resources() {
			devices = append(devices, corev1.ResourceName(name))
		}
		if len(devices) > 0 {
			all = append(all, devices)
		}
	}
	return all
}

// misaligned rejects nodes without a NUMA node of CPUs and devices, as far as sources report.
func (c *choice) misaligned(n *corev1.Node) string {
	topology, ok := c.o.Topologies[n.Name]
	if !ok {
		return ""
	}
	// The available amounts are late, and lack what a benchmark uses now, or just did.
	empty := c.o.Benchmark.Status.Pair != nil || c.o.Empty || c.o.Others[n.Name] > 0
	for _, devices := range c.aligned {
		if why := misaligned(topology, devices, c.o.leastCPUs().Of(c.role), empty); why != "" {
			return why
		}
	}
	return ""
}

// misaligned looks for a NUMA node with CPUs and one of each device; if empty, of all amounts.
func misaligned(topology foreign.NodeResourceTopology, devices []corev1.ResourceName, cpus int32, empty bool) string {
	zones, known := map[string]map[string]int64{}, map[string]bool{}
	for _, z := range topology.Zones {
		if z.Type != foreign.ZoneTypeNode {
			continue
		}
		zone := map[string]int64{}
		for _, r := range z.Resources {
			q := r.Available
			if empty {
				q = r.Allocatable
			}
			zone[r.Name], known[r.Name] = q.Value(), true
		}
		zones[strings.TrimPrefix(z.Name, "node-")] = zone
	}
	var wanted []string
	for _, name := range devices {
		if known[string(name)] {
			wanted = append(wanted, string(name))
		}
	}
	if wanted == nil || !known[string(corev1.ResourceCPU)] {
		return ""
	}
	var near []string
	for _, name := range slices.Sorted(maps.Keys(zones)) {
		zone := zones[name]
		if slices.ContainsFunc(wanted, func(device string) bool { return zone[device] < 1 }) {
			continue
		}
		if zone[string(corev1.ResourceCPU)] >= int64(cpus) {
			return ""
		}
		near = append(near, name)
	}
	if near == nil {
		return "no NUMA node with a free " + strings.Join(wanted, " and ")
	}
	return fewer(cpus, "whole CPUs on NUMA node "+strings.Join(near, " or "))
}
