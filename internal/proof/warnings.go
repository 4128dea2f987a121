package proof

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// Warning is a property that a run did not prove.
type Warning struct {
	v1alpha1.Warning
	// Blocks is true if results with this warning allow no conclusion.
	Blocks bool
}

// AddWarning adds a warning, one for each reason: the first, or the first that blocks.
func AddWarning(all []Warning, w Warning) []Warning {
	i := slices.IndexFunc(all, func(known Warning) bool { return known.Reason == w.Reason })
	switch {
	case i < 0:
		return append(all, w)
	case w.Blocks && !all[i].Blocks:
		all[i] = w
	}
	return all
}

// EmulatedBoard begins the PCI subsystem of QEMU's network devices, and of virtio's.
const EmulatedBoard = "1af4:"

// Warnings returns what a complete run did not prove, one for each reason: the client's, if both
// ends have it and both or neither block. A simulated or emulated NIC is one, too.
func Warnings(spec v1alpha1.LatencyBenchmarkSpec, v v1alpha1.Variant, run result.Stored) []Warning {
	if source := cmp.Or(run.Client.Imported, run.Server.Imported); source != "" {
		return []Warning{warning(true, v1alpha1.WarningImported,
			"not measured by Tailgate, so that nothing proves it and no gate can be based on it: %s", source)}
	}
	var warnings []Warning
	if result.SameKernel(run.Client.Evidence, run.Server.Evidence) {
		warnings = AddWarning(warnings, warning(false, v1alpha1.WarningSimulatedNIC,
			"simulated NIC: both endpoints ran on one kernel (the same boot), so these are real timings of virtual Ethernet, or of NICs of one machine, not of a wire between two machines"))
	}
	for _, e := range []result.Evidence{run.Client.Evidence, run.Server.Evidence} {
		if board := e.Facts["nic.pci-subsystem"]; strings.HasPrefix(board, EmulatedBoard) {
			warnings = AddWarning(warnings, warning(false, v1alpha1.WarningEmulatedNIC,
				"emulated NIC: that of node %s is a device of a virtual machine (PCI subsystem %s), so these are real timings of software, not of a NIC and a wire", e.Node, board))
		}
	}
	for _, e := range endpoints(spec, v, run) {
		if found := e.otherVersion(); found != "" {
			warnings = AddWarning(warnings, warning(false, v1alpha1.WarningOnloadVersions, "in %s, %s on %s: %s", run.Client.Run, e.role, e.own.Node, found))
		}
		for _, c := range chain {
			f := c.run(e)
			var reason string
			switch f.state {
			case v1alpha1.ProofFailed:
				reason = cmp.Or(f.reason, c.failed)
			case v1alpha1.ProofUnknown:
				reason = c.unknown
			case v1alpha1.ProofProved, v1alpha1.ProofNoted, "":
				continue
			}
			l := c.line(f)
			warnings = AddWarning(warnings, warning(e.blocks(reason), reason, "in %s, %s on %s: %s: expected %s, found %s; %s",
				run.Client.Run, e.role, e.own.Node, c.name, l.Expected, l.Found, f.advice))
		}
	}
	return warnings
}

func warning(blocks bool, reason, format string, args ...any) Warning {
	return Warning{Blocks: blocks, Warning: v1alpha1.Warning{Reason: reason, Message: text.Shorten(fmt.Sprintf(format, args...), maxMessage)}}
}

// blocks reports whether a warning prevents a conclusion, as all but NUMA ones not required.
func (e endpoint) blocks(reason string) bool {
	switch reason {
	case v1alpha1.WarningNUMAMismatch, v1alpha1.WarningNUMAUnknown:
		return e.numaPolicy() == v1alpha1.NUMARequired
	}
	return true
}
