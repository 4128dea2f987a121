// Package proof determines whether a run measured on the requested nodes, CPUs and devices: an
// ordered chain of pure checks of the agents' observations, the API's data and the spec.
//
// A fact without a source is Unknown: not found. Contradictory sources prove nothing.
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

type endpoint struct {
	spec    v1alpha1.LatencyBenchmarkSpec
	variant v1alpha1.Variant
	role    string
	// own and peer are the agents' observations, seen and peerSeen the API server's.
	own, peer      result.Evidence
	seen, peerSeen result.Seen
	cells          []result.Cell // the client's; what they say of acceleration covers both ends
	pool           string        // the CPUs of containers without their own, if an agent saw them
}

func endpoints(spec v1alpha1.LatencyBenchmarkSpec, v v1alpha1.Variant, run result.Stored) [2]endpoint {
	client := endpoint{
		spec: spec, variant: v, role: v1alpha1.RoleClient, own: run.Client.Evidence, peer: run.Server.Evidence,
		seen: run.ClientSeen, peerSeen: run.ServerSeen, cells: run.Client.Cells,
	}
	server := client
	server.role, server.own, server.peer, server.seen, server.peerSeen = v1alpha1.RoleServer, client.peer, client.own, run.ServerSeen, run.ClientSeen
	return [2]endpoint{client, server}
}

func (e endpoint) network() *v1alpha1.Network { return e.variant.Network }

type check struct {
	name            string
	run             func(endpoint) finding // no state if it does not apply: spec, variant, role
	failed, unknown string                 // of the warnings; empty: the check only notes a value
}

type finding struct {
	state           v1alpha1.ProofState
	expected, found string
	advice, reason  string // the remedy; the warning's reason, if it is not the check's
}

func noted(found string) finding { return finding{state: v1alpha1.ProofNoted, found: found} }

func proved(expected, found string) finding {
	return finding{state: v1alpha1.ProofProved, expected: expected, found: found}
}

func failed(expected, found, advice string) finding {
	return finding{state: v1alpha1.ProofFailed, expected: expected, found: found, advice: advice}
}

func unknown(expected, found, advice string) finding {
	return finding{state: v1alpha1.ProofUnknown, expected: expected, found: found, advice: advice}
}

const notKnown = "not known"

func orNotKnown(value string) string { return cmp.Or(value, notKnown) }

func known(n, least int32) string {
	if n < least {
		return notKnown
	}
	return fmt.Sprint(n)
}

var chain = []check{
	{v1alpha1.ProofCPUsExclusive, cpusExclusive, v1alpha1.WarningCPUsNotExclusive, v1alpha1.WarningCPUsNotExclusive},
	{v1alpha1.ProofNUMALocal, numaLocal, v1alpha1.WarningNUMAMismatch, v1alpha1.WarningNUMAUnknown},
	{v1alpha1.ProofCPUsOnNUMANode, cpusOnNUMANode, v1alpha1.WarningNUMAMismatch, v1alpha1.WarningNUMAUnknown},
	{v1alpha1.ProofCPUIsolated, cpuIsolated, "", ""},
	{v1alpha1.ProofSMTSiblings, smtSiblings, v1alpha1.WarningSMTShared, v1alpha1.WarningSMTShared},
	{v1alpha1.ProofCPUQuota, cpuQuota, v1alpha1.WarningCPUThrottled, v1alpha1.WarningCPUThrottled},
	{v1alpha1.ProofCaptureCPU, captureCPU, v1alpha1.WarningCaptureSharesCPU, v1alpha1.WarningCaptureSharesCPU},
	{v1alpha1.ProofInterface, interfaceAsked, v1alpha1.WarningInterfaceMismatch, v1alpha1.WarningInterfaceMismatch},
	{v1alpha1.ProofDevice, device, v1alpha1.WarningDeviceUnproved, v1alpha1.WarningDeviceUnproved},
	{v1alpha1.ProofFunction, function, v1alpha1.WarningFunctionMismatch, v1alpha1.WarningFunctionMismatch},
	{v1alpha1.ProofMTU, mtu, v1alpha1.WarningMTUMismatch, v1alpha1.WarningMTUMismatch},
	{v1alpha1.ProofLink, link, v1alpha1.WarningLinkNotUp, v1alpha1.WarningLinkNotUp},
	{v1alpha1.ProofDriver, func(e endpoint) finding { return same(e.own.Driver, e.peer.Driver) }, "", ""},
	{v1alpha1.ProofFirmware, func(e endpoint) finding { return same(e.own.Firmware, e.peer.Firmware) }, "", ""},
	{v1alpha1.ProofFirmwareVariant, func(e endpoint) finding {
		return same(e.own.Facts["nic.firmware-variant"], e.peer.Facts["nic.firmware-variant"])
	}, "", ""},
	{v1alpha1.ProofAcceleration, onload, v1alpha1.WarningNotAccelerated, v1alpha1.WarningNotAccelerated},
	{v1alpha1.ProofAcceleration, kernel, v1alpha1.WarningAccelerated, v1alpha1.WarningAccelerated},
	{v1alpha1.ProofMessagesOnce, messagesOnce, v1alpha1.WarningMessagesRepeated, v1alpha1.WarningMessagesRepeated},
	{v1alpha1.ProofSendPath, sendPath, "", ""},
	{v1alpha1.ProofPodUnchanged, podUnchanged, v1alpha1.WarningPodChanged, v1alpha1.WarningPodChanged},
	{v1alpha1.ProofImage, image, v1alpha1.WarningPodChanged, v1alpha1.WarningPodChanged},
	{v1alpha1.ProofHypervisor, hypervisor, "", ""},
}

func (c check) line(f finding) v1alpha1.ProofLine {
	return v1alpha1.ProofLine{Check: c.name, State: f.state, Expected: text.Shorten(f.expected, maxText), Found: text.Shorten(f.found, maxText)}
}

// maxText bounds a line's expected and found, maxMessage a warning's, in characters, as the API.
const (
	maxText    = 256
	maxMessage = 1024
)

// Endpoints returns the proof of a complete run's two ends: a line for each check, in order.
func Endpoints(spec v1alpha1.LatencyBenchmarkSpec, v v1alpha1.Variant, run result.Stored) (client, server []v1alpha1.ProofLine) {
	var lines [2][]v1alpha1.ProofLine
	if run.Client.Imported != "" {
		return nil, nil
	}
	for i, e := range endpoints(spec, v, run) {
		for _, c := range chain {
			if f := c.run(e); f.state != "" {
				lines[i] = append(lines[i], c.line(f))
			}
		}
	}
	return lines[0], lines[1]
}

// Runs is the proof of a variant's two ends over all its runs. The zero value is ready to use.
type Runs struct {
	ends [2][]standing
	last string
}

type standing struct {
	v1alpha1.ProofLine
	run string
}

// Add adds the run that was measured after the runs added before.
func (r *Runs) Add(spec v1alpha1.LatencyBenchmarkSpec, v v1alpha1.Variant, run result.Stored) {
	client, server := Endpoints(spec, v, run)
	r.last = run.Client.Run
	for end, lines := range [2][]v1alpha1.ProofLine{client, server} {
		for i, l := range lines {
			switch all := r.ends[end]; {
			case i == len(all):
				r.ends[end] = append(all, standing{l, r.last})
			case badness(l.State) >= badness(all[i].State):
				all[i] = standing{l, r.last}
			}
		}
	}
}

// Lines returns the last run's line for each check, or that of a worse run, which it names.
func (r *Runs) Lines() (client, server []v1alpha1.ProofLine) {
	var ends [2][]v1alpha1.ProofLine
	for end, all := range r.ends {
		for _, l := range all {
			if l.run != r.last {
				l.Found = text.Shorten(l.Found+" (in "+l.run+")", maxText)
			}
			ends[end] = append(ends[end], l.ProofLine)
		}
	}
	return ends[0], ends[1]
}

func badness(s v1alpha1.ProofState) int {
	return slices.Index([]v1alpha1.ProofState{v1alpha1.ProofUnknown, v1alpha1.ProofFailed}, s) + 1
}

// Verified reports whether every requested property was found as requested.
func Verified(lines []v1alpha1.ProofLine) bool {
	return len(lines) > 0 && !slices.ContainsFunc(lines, func(l v1alpha1.ProofLine) bool { return badness(l.State) > 0 })
}

// Warning is a property that a run did not prove.
type Warning struct {
	v1alpha1.Warning
	Blocks bool // results with this warning allow no conclusion
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
