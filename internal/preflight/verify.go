package preflight

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// Verify compares what the two agents of a run of a variant observed with what was asked, and returns what does not
// hold, each reason at most once.
func Verify(spec v1alpha1.LatencyBenchmarkSpec, v v1alpha1.Variant, client, server result.Evidence) []v1alpha1.Warning {
	var warnings []v1alpha1.Warning
	add := func(reason, format string, args ...any) {
		for _, w := range warnings {
			if w.Reason == reason {
				return
			}
		}
		warnings = append(warnings, v1alpha1.Warning{Reason: reason, Message: fmt.Sprintf(format, args...)})
	}

	if Simulated(client, server) {
		add(v1alpha1.WarningSimulatedNIC,
			"simulated NIC: both endpoints ran on one kernel (same boot id), so these are real timings of virtual Ethernet on one machine, not of a NIC and a wire")
	}
	if *v.Capture && server.AgentCPU == server.MeasuringCPU {
		add(v1alpha1.WarningCaptureSharesCPU,
			"server on %s captured packets on CPU %d, which also measured; set placement.cpus to 2 or more", server.Node, server.MeasuringCPU)
	}
	for _, end := range []struct {
		role     string
		evidence result.Evidence
	}{{v1alpha1.RoleClient, client}, {v1alpha1.RoleServer, server}} {
		e := end.evidence
		allowed, err := CountCPUs(e.CPUsAllowed)
		switch {
		case err != nil:
			add(v1alpha1.WarningCPUsNotExclusive, "%s on %s: %v", end.role, e.Node, err)
		case int32(allowed) != spec.Placement.CPUs:
			add(v1alpha1.WarningCPUsNotExclusive,
				"%s on %s may use CPUs %s, not %d of its own; give the kubelet cpuManagerPolicy: static", end.role, e.Node, e.CPUsAllowed, spec.Placement.CPUs)
		}
		if v.Network.ResourceName == "" {
			continue
		}
		switch {
		case e.DeviceNUMANode < 0 || e.CPUNUMANode < 0:
			add(v1alpha1.WarningNUMAUnknown, "%s on %s: the NUMA node of %s or of CPU %d is unknown", end.role, e.Node, e.Interface, e.MeasuringCPU)
		case e.DeviceNUMANode != e.CPUNUMANode:
			add(v1alpha1.WarningNUMAMismatch, "%s on %s measured from CPU %d on NUMA node %d, but %s is on NUMA node %d; give the kubelet topologyManagerPolicy: single-numa-node",
				end.role, e.Node, e.MeasuringCPU, e.CPUNUMANode, e.Interface, e.DeviceNUMANode)
		}
	}
	return warnings
}

// Simulated says whether both ends of a run were on one kernel, and so no NIC and no wire between them.
func Simulated(client, server result.Evidence) bool {
	return client.BootID != "" && client.BootID == server.BootID
}

// CountCPUs counts the CPUs of a list in the kernel's format, such as 1,3-5.
func CountCPUs(list string) (int, error) {
	cpus, err := ParseCPUs(list)
	return len(cpus), err
}

// maxCPU bounds a list, so that a bad one cannot fill the memory. Linux knows at most 8192 CPUs today.
const maxCPU = 1 << 15

// ParseCPUs reads a list of CPUs in the kernel's format, such as 1,3-5.
func ParseCPUs(list string) ([]int, error) {
	var cpus []int
	for part := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		low, high, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(low)
		if err != nil {
			return nil, fmt.Errorf("CPU list %q: %q is not a number", list, low)
		}
		last := first
		if isRange {
			if last, err = strconv.Atoi(high); err != nil {
				return nil, fmt.Errorf("CPU list %q: %q is not a number", list, high)
			}
		}
		if first < 0 || last < first || last >= maxCPU {
			return nil, fmt.Errorf("CPU list %q: bad range %q", list, part)
		}
		for cpu := first; cpu <= last; cpu++ {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}
