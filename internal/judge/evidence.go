package judge

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/rounds"
	"github.com/tailgate-dev/tailgate/internal/verdict"
)

func ignored(criteria v1alpha1.Criteria, d result.Difference) bool {
	return slices.Contains(criteria.IgnoreDifferences, d.Key) || matchesAny(criteria.IgnoreDifferences, d.Key) && !mustBeNamed(d.Key) ||
		slices.Contains(criteria.IgnoreDifferences, v1alpha1.IgnoreKernelUpgrade) && OfKernelUpgrade(d)
}

var (
	// ofKernel are keys that a distribution's other kernel changes by itself: no administrator's
	// choices (arguments, governors, sysctls), clock source, C-states, or Onload.
	ofKernel = []string{
		"kernel.release", "kernel.version", "cpu.microcode", "cpu.vulnerability.*", "module.sfc*.version", "nic.driver-version",
	}
	// newInKernel may be known to one kernel only. Two values must be equal.
	newInKernel = []string{
		"nic.feature.*", "nic.coalesce.*", "nic.hwtstamp", "nic.threaded", "nic.gro-flush-timeout", "nic.napi-defer-hard-irqs",
	}
)

// OfKernelUpgrade reports whether a difference is one that v1alpha1.IgnoreKernelUpgrade allows.
func OfKernelUpgrade(d result.Difference) bool {
	return matchesAny(ofKernel, d.Key) || (d.A == "" || d.B == "") && matchesAny(newInKernel, d.Key)
}

// mustBeNamed: no pattern allows a difference of the key; a verdict exists for these.
func mustBeNamed(key string) bool {
	return slices.Contains([]string{"nic.firmware-variant", "nic.function", keyRelation}, key) || matchesAny(ofAcceleration, key)
}

var ofAcceleration = []string{"cell.*.accelerated.client", "cell.*.accelerated.server"}

// intended reports whether two variants of a benchmark differ in a key because its spec says so.
func intended(d result.Difference, a, b *rounds.Variant) bool {
	return a != nil && b != nil && (matchesAny(declared(a, b), d.Key) || ofNetworks(d, a, b))
}

// declared returns patterns of what differs because specs do. A NUMA policy moves no CPUs.
func declared(a, b *rounds.Variant) []string {
	var keys []string
	if a.Wait != b.Wait {
		keys = append(keys, "cell.*.wait")
	}
	if a.Muxer != b.Muxer {
		keys = append(keys, "cell.*.muxer")
	}
	if !reflect.DeepEqual(a.Acceleration, b.Acceleration) {
		keys = append(keys, "env.EF_*", "env.LD_PRELOAD", "module.*", "onload.*")
		keys = append(keys, ofAcceleration...)
	}
	if !slices.Equal(a.Env, b.Env) {
		keys = append(keys, "env.*")
	}
	return keys
}

const keyRelation = "numa.relation" // whether the CPU and the NIC are on one NUMA node

var (
	// ofNetwork may differ between networks. Other keys follow from the type or its device.
	ofNetwork = []string{"nic.*", keyRelation, "sysctl.net.*"}
	// ofCard and ofPort are keys without a spec, which some interfaces do not report.
	ofCard = []string{"nic.firmware", "nic.firmware-variant"}
	ofPort = []string{"nic.speed", "nic.duplex", "nic.fec"}
	// settings are an administrator's, for an interface or namespace that has them.
	settings = []string{
		"nic.coalesce.*", "nic.gro-flush-timeout", "nic.napi-defer-hard-irqs", "nic.threaded", "nic.hwtstamp", "sysctl.net.*",
	}
)

// ofNetworks reports whether a difference follows from different networks. A NIC's settings and
// distance do not: they would be measured instead. The pod network has no NIC.
func ofNetworks(d result.Difference, a, b *rounds.Variant) bool {
	pod := a.Network.Type == v1alpha1.NetworkPod || b.Network.Type == v1alpha1.NetworkPod
	unreported := d.A == "" || d.B == ""
	switch {
	case reflect.DeepEqual(a.Network, b.Network) || !matchesAny(ofNetwork, d.Key):
		return false
	case d.Key == keyRelation:
		return pod && d.A != result.Remote && d.B != result.Remote
	case d.Key == "nic.mtu":
		return pod || a.Network.MTU() != b.Network.MTU()
	case matchesAny(settings, d.Key):
		return unreported || pod && strings.HasPrefix(d.Key, "nic.")
	case pod:
		return true
	case matchesAny(ofCard, d.Key):
		return unreported && together(a, b, func(port string) string { card, _, _ := strings.Cut(port, "."); return card })
	case matchesAny(ofPort, d.Key):
		return unreported && together(a, b, func(port string) string { return port })
	}
	return true
}

// together: two variants used one known place at each end: of returns the port's address.
func together(a, b *rounds.Variant, of func(string) string) bool {
	for _, ends := range [][2]result.Document{{a.First.Client, b.First.Client}, {a.First.Server, b.First.Server}} {
		first, second := ends[0].Evidence.Facts["nic.port"], ends[1].Evidence.Facts["nic.port"]
		if first == "" || second == "" || of(first) != of(second) {
			return false
		}
	}
	return true
}

const keyCapture = "capture" // in ignoreDifferences, allows a capture on one side, which costs CPU

const meantHint = " (list intended differences in ignoreDifferences; kubectl tailgate compare -o ignoreDifferences prints them)"

func matchesAny(patterns []string, key string) bool {
	for _, pattern := range patterns {
		before, after, found := strings.Cut(pattern, "*")
		if key == pattern || found && len(key) >= len(before)+len(after) && strings.HasPrefix(key, before) && strings.HasSuffix(key, after) {
			return true
		}
	}
	return false
}

// incomparable returns why a cell cannot be compared with the baseline's, by their first runs.
func incomparable(
	criteria v1alpha1.Criteria, cell verdict.Cell, baseline, candidate *rounds.Variant, hint string, matters func(result.Difference) bool,
) []verdict.Blocker {
	var all []verdict.Blocker
	differs := func(message string) {
		all = append(all, verdict.Blocker{Reason: v1alpha1.WarningEvidenceDiffers, Message: message + hint})
	}
	if baseline == nil || candidate == nil {
		return nil
	}
	if baseline.Capture != candidate.Capture && !ignored(criteria, result.Difference{Key: keyCapture}) {
		differs(fmt.Sprintf("packets were captured on one side only, which slows it: capture %s, then %s", baseline.Capture, candidate.Capture))
	}
	if baseline.First == nil || candidate.First == nil {
		return all
	}
	own := "cell." + strings.TrimSuffix(cell.Name, result.CapturedSuffix) + "."
	ofNUMA := false
	message := rounds.Unequal(*baseline.First, *candidate.First, func(d result.Difference) bool {
		counts := matters(d) && !ignored(criteria, d) && (!strings.HasPrefix(d.Key, "cell.") || strings.HasPrefix(d.Key, own))
		ofNUMA = ofNUMA || counts && d.Key == keyRelation
		return counts
	})
	if ofNUMA {
		message += "; alignWith aligns the CPUs of networks Host and NAD with the NIC"
	}
	if message != "" {
		differs(message)
	}
	return all
}

// Alike compares a workload with a benchmark's endpoint: what differs, what the criteria excuse,
// and what is not known of the workload. What only a measuring tool has does not count.
func Alike(criteria v1alpha1.Criteria, endpoint, workload result.Evidence, environmentRead bool) (differs, excused, hidden []string) {
	for _, d := range result.Differences(result.Document{Evidence: endpoint}, result.Document{Evidence: workload}) {
		switch {
		case !d.Fingerprint, strings.HasPrefix(d.Key, "tool."):
		case ignored(criteria, d):
			excused = append(excused, d.String())
		case d.B == "" && !(environmentRead && strings.HasPrefix(d.Key, "env.")):
			hidden = append(hidden, d.Key)
		default:
			differs = append(differs, d.String())
		}
	}
	return differs, excused, hidden
}
