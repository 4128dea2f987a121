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

// ignored says whether the user lets a key of the evidence differ.
func ignored(gate v1alpha1.Criteria, key string) bool {
	return slices.Contains(gate.IgnoreDifferences, key) || matchesAny(gate.IgnoreDifferences, key) && !mustBeNamed(key)
}

// mustBeNamed says of which keys a pattern lets no difference pass: a firmware with another latency, another way into
// the NIC, and a socket that is not accelerated are what a verdict is there to notice.
func mustBeNamed(key string) bool {
	return key == "nic.firmware-variant" || key == "nic.function" || matchesAny(ofAcceleration, key)
}

// ofAcceleration are the keys that tell whether a cell's sockets were accelerated.
var ofAcceleration = []string{"cell.*.accelerated.client", "cell.*.accelerated.server"}

// ofNetwork are the keys that may have other values on another way to the peer: of the interface and its place, and of
// the pod's network namespace.
var ofNetwork = []string{"nic.*", "numa.*", "sysctl.net.*"}

// declared are the keys, as patterns, that differ between two variants of a benchmark because its spec says so.
func declared(spec v1alpha1.LatencyBenchmarkSpec, one, other string) []string {
	a, foundA := variantOf(spec, one)
	b, foundB := variantOf(spec, other)
	if !foundA || !foundB {
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

// keyCapture names, for ignoreDifferences, what the evidence has no key for: whether packets were captured, which costs
// the measuring CPU some time for each.
const keyCapture = "capture"

// capture is why a variant cannot be compared with another of which packets were captured, or were not.
func capture(
	gate v1alpha1.Criteria, baseline v1alpha1.LatencyBenchmarkSpec, of string, candidate v1alpha1.LatencyBenchmarkSpec, variant string,
) []verdict.Blocker {
	a, foundA := variantOf(baseline, of)
	b, foundB := variantOf(candidate, variant)
	if !foundA || !foundB || a.Capture == b.Capture || ignored(gate, keyCapture) {
		return nil
	}
	return []verdict.Blocker{{Reason: v1alpha1.WarningEvidenceDiffers, Message: fmt.Sprintf(
		"packets were captured on one side only, which slows it: capture %s, then %s%s", a.Capture, b.Capture, meantHint)}}
}

// meantHint ends the text about a difference.
const meantHint = " (list intended differences in ignoreDifferences)"

// matchesAny says whether a key is what one of several patterns, with at most one * each, stands for.
func matchesAny(patterns []string, key string) bool {
	for _, pattern := range patterns {
		before, after, found := strings.Cut(pattern, "*")
		if key == pattern || found && len(key) >= len(before)+len(after) && strings.HasPrefix(key, before) && strings.HasSuffix(key, after) {
			return true
		}
	}
	return false
}

// incomparable is why a cell of a run cannot be compared with that of the baseline's run. Where a run is missing there
// is nothing to say: nothing is compared.
func incomparable(
	cell verdict.Cell, baseline, candidate *result.Stored, matters func(result.Difference) bool,
) []verdict.Blocker {
	if candidate == nil || baseline == nil {
		return nil
	}
	own := "cell." + strings.TrimSuffix(cell.Name, result.CapturedSuffix) + "."
	message := rounds.Unequal(*baseline, *candidate, func(d result.Difference) bool {
		return matters(d) && (!strings.HasPrefix(d.Key, "cell.") || strings.HasPrefix(d.Key, own))
	})
	if message == "" {
		return nil
	}
	return []verdict.Blocker{{Reason: v1alpha1.WarningEvidenceDiffers, Message: message + meantHint}}
}
