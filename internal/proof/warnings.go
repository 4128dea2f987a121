package proof

import (
	"fmt"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// Warnings are what a run of a variant, which has everything filled in, did not prove, each reason at most once: of the
// client, if both ends have it. A run on a simulated NIC has a warning of that, too.
func Warnings(spec v1alpha1.LatencyBenchmarkSpec, v v1alpha1.Variant, run result.Stored) []v1alpha1.Warning {
	var warnings []v1alpha1.Warning
	if Simulated(run.Client.Evidence, run.Server.Evidence) {
		warnings = append(warnings, v1alpha1.Warning{Reason: v1alpha1.WarningSimulatedNIC, Message: "simulated NIC: both endpoints ran on one kernel (the same boot), so these are real timings of virtual Ethernet on one machine, not of a NIC and a wire"})
	}
	for _, e := range endpoints(spec, v, run) {
		for _, c := range chain {
			f := c.run(e)
			var reason string
			switch f.state {
			case v1alpha1.ProofFailed:
				reason = c.failed
			case v1alpha1.ProofUnknown:
				reason = c.unknown
			default:
				continue
			}
			if slices.ContainsFunc(warnings, func(w v1alpha1.Warning) bool { return w.Reason == reason }) {
				continue
			}
			l := c.line(f)
			warnings = append(warnings, v1alpha1.Warning{Reason: reason, Message: Bounded(fmt.Sprintf("in %s, %s on %s: %s: expected %s, found %s; %s",
				run.Client.Run, e.role, e.own.Node, c.name, l.Expected, l.Found, f.advice), maxMessage)})
		}
	}
	return warnings
}

// Blocks says whether nothing can be concluded from results with a warning of the proof. It is so of all but a simulated
// NIC, and of what is not on one NUMA node unless that is required.
func Blocks(spec v1alpha1.LatencyBenchmarkSpec, v v1alpha1.Variant, reason string) bool {
	switch reason {
	case v1alpha1.WarningSimulatedNIC:
		return false
	case v1alpha1.WarningNUMAMismatch, v1alpha1.WarningNUMAUnknown:
		return spec.Placement.NUMAOf(v.Network.Type) == v1alpha1.NUMARequired
	}
	return true
}

// Simulated says whether both ends of a run were on one kernel, and so no NIC and no wire between them.
func Simulated(client, server result.Evidence) bool {
	return result.SameKernel(client, server)
}
