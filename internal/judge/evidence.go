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

// ignored reports whether the user allows a key of the evidence to differ.
func ignored(gate v1alpha1.Criteria, key string) bool {
	return slices.Contains(gate.IgnoreDifferences, key) || matchesAny(gate.IgnoreDifferences, key) && !mustBeNamed(key)
}

// mustBeNamed reports whether a difference of a key can be allowed only by its full name, not by a pattern. A verdict exists
// to notice these: a firmware with another latency, another function of the NIC, a socket that is not accelerated.
func mustBeNamed(key string) bool {
	return key == "nic.firmware-variant" || key == "nic.function" || matchesAny(ofAcceleration, key)
}

// ofAcceleration holds the keys that state whether a cell's sockets were accelerated.
var ofAcceleration = []string{"cell.*.accelerated.client", "cell.*.accelerated.server"}

// ofNetwork holds the keys that may differ between networks: those of the interface and its location, and of the pod's
// network namespace.
var ofNetwork = []string{"nic.*", "numa.*", "sysctl.net.*"}

// declared returns the keys, as patterns, that differ between two variants of a benchmark because its spec says so.
func declared(a, b *rounds.Variant) []string {
	if a == nil || b == nil {
		return nil
	}
	var keys []string
	if a.Wait != b.Wait {
		keys = append(keys, "cell.*.wait")
	}
	if a.Muxer != b.Muxer {
		keys = append(keys, "cell.*.muxer")
	}
	if !reflect.DeepEqual(a.Network, b.Network) {
		keys = append(keys, ofNetwork...)
	}
	if !reflect.DeepEqual(a.Acceleration, b.Acceleration) {
		keys = append(keys, "env.EF_*", "env.LD_PRELOAD", "module.*", "onload.*")
		keys = append(keys, ofAcceleration...)
	}
	if a.NUMAPolicy != b.NUMAPolicy {
		keys = append(keys, "numa.*")
	}
	if !slices.Equal(a.Env, b.Env) {
		keys = append(keys, "env.*")
	}
	return keys
}

// keyCapture is the name in ignoreDifferences of a condition that has no key in the evidence: whether packets were captured,
// which costs the measuring CPU some time for each packet.
const keyCapture = "capture"

// capture returns the reason why two variants cannot be compared if packets were captured for only one of them.
func capture(gate v1alpha1.Criteria, baseline, candidate *rounds.Variant) []verdict.Blocker {
	if baseline == nil || candidate == nil || baseline.Capture == candidate.Capture || ignored(gate, keyCapture) {
		return nil
	}
	return []verdict.Blocker{{Reason: v1alpha1.WarningEvidenceDiffers, Message: fmt.Sprintf(
		"packets were captured on one side only, which slows it: capture %s, then %s%s", baseline.Capture, candidate.Capture, meantHint)}}
}

// meantHint ends the text about a difference.
const meantHint = " (list intended differences in ignoreDifferences)"

// matchesAny reports whether a key matches one of several patterns, which have at most one * each.
func matchesAny(patterns []string, key string) bool {
	for _, pattern := range patterns {
		before, after, found := strings.Cut(pattern, "*")
		if key == pattern || found && len(key) >= len(before)+len(after) && strings.HasPrefix(key, before) && strings.HasSuffix(key, after) {
			return true
		}
	}
	return false
}

// incomparable returns the reason why a cell of a variant cannot be compared with that cell of the baseline's variant. The
// first run represents all runs of a variant: either their conditions are equal, or nothing is concluded from any of them. It
// returns nothing if a run is missing, because then nothing is compared.
func incomparable(
	cell verdict.Cell, baseline, candidate *rounds.Variant, matters func(result.Difference) bool,
) []verdict.Blocker {
	if baseline == nil || candidate == nil || baseline.First == nil || candidate.First == nil {
		return nil
	}
	own := "cell." + strings.TrimSuffix(cell.Name, result.CapturedSuffix) + "."
	message := rounds.Unequal(*baseline.First, *candidate.First, func(d result.Difference) bool {
		return matters(d) && (!strings.HasPrefix(d.Key, "cell.") || strings.HasPrefix(d.Key, own))
	})
	if message == "" {
		return nil
	}
	return []verdict.Blocker{{Reason: v1alpha1.WarningEvidenceDiffers, Message: message + meantHint}}
}
