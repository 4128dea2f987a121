// Package proof tells whether a run measured where, and on what, its benchmark asked: "placement is proved, not hoped".
// It is an ordered chain of checks, pure functions of what the agents observed, of what the API server said about their
// pods, and of the spec. Each says what was expected and what was found.
//
// What no source reports is Unknown and as good as not found. Of several ways to know a thing all that are known have to
// agree: evidence that contradicts itself proves nothing.
package proof

import (
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// endpoint is all that is known of one end of a run, and what was requested of it.
type endpoint struct {
	spec    v1alpha1.LatencyBenchmarkSpec
	variant v1alpha1.Variant
	// role is client or server.
	role string
	// own is what its agent observed, peer what the other end's did, and seen what the API server said about its pod.
	own, peer result.Evidence
	seen      result.Seen
	// cells are what the client measured. What they say of acceleration they say of both ends.
	cells []result.Cell
}

// endpoints are client and server of a run of a variant, which has everything filled in.
func endpoints(spec v1alpha1.LatencyBenchmarkSpec, v v1alpha1.Variant, run result.Stored) [2]endpoint {
	client := endpoint{
		spec: spec, variant: v, role: v1alpha1.RoleClient, own: run.Client.Evidence, peer: run.Server.Evidence,
		seen: run.ClientSeen, cells: run.Client.Cells,
	}
	server := client
	server.role, server.own, server.peer, server.seen = v1alpha1.RoleServer, client.peer, client.own, run.ServerSeen
	return [2]endpoint{client, server}
}

// network is the variant's.
func (e endpoint) network() *v1alpha1.Network { return e.variant.Network }

// check is one link of the chain.
type check struct {
	// name is one of the API's, v1alpha1.ProofCPUsExclusive and so on.
	name string
	// run is the check itself. A finding without a state is that of a check which does not apply; whether it does may
	// depend on the spec, the variant and the role only.
	run func(endpoint) finding
	// failed and unknown are the reasons of the warnings; empty for checks that only note.
	failed, unknown string
}

// finding is what a check came to.
type finding struct {
	state           v1alpha1.ProofState
	expected, found string
	// advice is what to do about it.
	advice string
}

func noted(found string) finding { return finding{state: v1alpha1.ProofNoted, found: found} }

func proved(expected, found string) finding {
	return finding{state: v1alpha1.ProofProved, expected: expected, found: found}
}

func failed(expected, found, advice string) finding {
	return finding{v1alpha1.ProofFailed, expected, found, advice}
}

func unknown(expected, found, advice string) finding {
	return finding{v1alpha1.ProofUnknown, expected, found, advice}
}

// notKnown is what was found where there is nothing.
const notKnown = "not known"

// orNotKnown is a value, or that there is none.
func orNotKnown(value string) string {
	if value == "" {
		return notKnown
	}
	return value
}

// chain is all checks in the order in which they are reported.
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
	{v1alpha1.ProofDriver, driver, "", ""},
	{v1alpha1.ProofFirmware, firmware, "", ""},
	{v1alpha1.ProofFirmwareVariant, firmwareVariant, "", ""},
	{v1alpha1.ProofAcceleration, onload, v1alpha1.WarningNotAccelerated, v1alpha1.WarningNotAccelerated},
	{v1alpha1.ProofAcceleration, kernel, v1alpha1.WarningAccelerated, v1alpha1.WarningAccelerated},
	{v1alpha1.ProofPodUnchanged, podUnchanged, v1alpha1.WarningPodChanged, v1alpha1.WarningPodChanged},
	{v1alpha1.ProofImage, image, "", ""},
	{v1alpha1.ProofHypervisor, hypervisor, "", ""},
}

// line is a finding as the status shows it.
func (c check) line(f finding) v1alpha1.ProofLine {
	return v1alpha1.ProofLine{Check: c.name, State: f.state, Expected: text.Shorten(f.expected, maxText), Found: text.Shorten(f.found, maxText)}
}

// maxText is the longest that a line's expected and found may be, maxMessage a warning's message: those of the API, in
// characters. What is found comes from agents and pods.
const (
	maxText    = 256
	maxMessage = 1024
)

// Endpoints are the proof of the two ends of a run of a variant, which has everything filled in: a line for each check
// that applies, in the order of the chain.
func Endpoints(spec v1alpha1.LatencyBenchmarkSpec, v v1alpha1.Variant, run result.Stored) (client, server []v1alpha1.ProofLine) {
	var lines [2][]v1alpha1.ProofLine
	for i, e := range endpoints(spec, v, run) {
		for _, c := range chain {
			if f := c.run(e); f.state != "" {
				lines[i] = append(lines[i], c.line(f))
			}
		}
	}
	return lines[0], lines[1]
}

// Runs is the proof of a variant's two ends over all its runs; ready to use when zero.
type Runs struct {
	ends [2][]standing
	last string
}

// standing is a line with the run that it is of.
type standing struct {
	v1alpha1.ProofLine
	run string
}

// Add adds the run that was measured after those added before. All runs have the same checks: whether one applies follows
// from the spec.
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

// Lines are those of the last run, but where a check failed in an earlier one, or else came to nothing there, that line,
// which names the run.
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

// badness orders the states.
func badness(s v1alpha1.ProofState) int {
	return slices.Index([]v1alpha1.ProofState{v1alpha1.ProofUnknown, v1alpha1.ProofFailed}, s) + 1
}

// Verified says whether nothing that was asked was found otherwise, or could not be found out.
func Verified(lines []v1alpha1.ProofLine) bool {
	return len(lines) > 0 && !slices.ContainsFunc(lines, func(l v1alpha1.ProofLine) bool { return badness(l.State) > 0 })
}
