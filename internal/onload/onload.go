// Package onload says how AMD's Onload gets into a benchmark's tools: which library is preloaded, and with which
// settings. It is pure; whether Onload then really carried the sockets is for the agent to see.
package onload

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// The libraries of the sources.
const (
	// DevicePluginLibrary is where the device plugin of AMD's Onload operator (kubernetes-onload) mounts the library,
	// unless its Onload resource says otherwise.
	DevicePluginLibrary = "/opt/onload/usr/lib64/libonload.so"
	// ImageLibrary is found by the loader, wherever the image has it.
	ImageLibrary = "libonload.so"
)

// The bounds of a profile from a ConfigMap.
const (
	MaxSettings = 64
	// MaxName and MaxValue are in bytes.
	MaxName  = 64
	MaxValue = 256
)

// settingName is how Onload's settings are named.
var settingName = regexp.MustCompile(`^EF_[A-Z0-9_]+$`)

// defaults make Onload tell what it does. Without the first its messages go to the kernel's log, as the standard error
// of a container is no terminal. The second makes it print its settings once, at its start. Without the third a socket
// that it cannot accelerate because resources ran out is a socket of the kernel, without a message.
var defaults = map[string]string{
	"EF_LOG_VIA_IOCTL": "0",
	"EF_CONFIG_DUMP":   "1",
	"EF_NO_FAIL":       "0",
}

// profiles are the built-in ones. They are Onload's own: what its scripts/onload_profiles/latency.opf sets in version
// 9.0.0, and still sets in commit ef17681 of 2026-07-22, on the way to 10.0.0.
var profiles = map[v1alpha1.OnloadProfile]map[string]string{
	v1alpha1.OnloadProfileLatency: {
		"EF_POLL_USEC":          "100000",
		"EF_TCP_FASTSTART_INIT": "0",
		"EF_TCP_FASTSTART_IDLE": "0",
	},
}

// Library returns what the tools have to preload, a path or a name that the loader finds; empty when the kernel's stack
// is measured. The acceleration has to be complete, as plan.Variants returns it.
func Library(a v1alpha1.Acceleration) string {
	settings := a.OnloadSettings()
	switch {
	case a.Type != v1alpha1.AccelerationOnload:
		return ""
	case settings.Library != "":
		return settings.Library
	case settings.Source == v1alpha1.OnloadFromImage:
		return ImageLibrary
	default:
		return DevicePluginLibrary
	}
}

// Environment returns the environment variables of a variant's tools: with Onload the defaults that make it tell what it
// does, over them its profile, and over all the variant's own. The profile is the built-in one that the variant names,
// or the data of the ConfigMap that it names, which the caller has read; an error then says which of its keys cannot be
// used.
func Environment(v v1alpha1.Variant, configMap map[string]string) (map[string]string, error) {
	env := map[string]string{}
	if v.Acceleration.Type == v1alpha1.AccelerationOnload {
		settings := v.Acceleration.OnloadSettings()
		maps.Copy(env, defaults)
		maps.Copy(env, profiles[settings.Profile])
		if ref := settings.ProfileRef; ref != nil {
			if err := validate(configMap); err != nil {
				return nil, fmt.Errorf("acceleration.onload.profileRef: ConfigMap %s: %w", ref.Name, err)
			}
			maps.Copy(env, configMap)
		}
	}
	for _, e := range v.Env {
		env[e.Name] = e.Value
	}
	return env, nil
}

// validate returns what is wrong with the first key, in their order, that is no setting of Onload.
func validate(settings map[string]string) error {
	if len(settings) > MaxSettings {
		return fmt.Errorf("it has %d keys; a profile has at most %d", len(settings), MaxSettings)
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		value := settings[name]
		switch {
		case !settingName.MatchString(name) || len(name) > MaxName:
			return fmt.Errorf("key %.80q is not a setting of Onload: keys are at most %d characters, such as EF_POLL_USEC", name, MaxName)
		case len(value) > MaxValue:
			return fmt.Errorf("the value of %s has %d bytes; give at most %d", name, len(value), MaxValue)
		case strings.ContainsFunc(value, unicode.IsControl):
			return fmt.Errorf("the value of %s, %.80q, has a line break or another control character; give one line", name, value)
		}
	}
	return nil
}
