// Package onload is pure: how AMD's Onload joins a benchmark's tools, and what it prints.
package onload

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

const (
	// DevicePluginLibrary is where AMD's Onload operator mounts the library by default.
	DevicePluginLibrary = "/opt/onload/usr/lib64/libonload.so"
	// ImageLibrary is found by the loader, wherever the image has it.
	ImageLibrary = "libonload.so"
)

const (
	MaxSettings = 64
	// MaxName and MaxValue are in bytes.
	MaxName  = 64
	MaxValue = 256
)

var settingName = regexp.MustCompile(`^EF_[A-Z0-9_]+$`)

// defaults make Onload report to standard error instead of the kernel's log, print its settings,
// and fail instead of using a kernel socket when resources run out. One is no report: a connection
// that the tool closed first keeps its stack for twice this time, in seconds, after the tool's end;
// by default 25 (opts_netif_def.h and tcp_timer.c, 201811-u1 to 9.2).
var defaults = map[string]string{
	"EF_LOG_VIA_IOCTL":  "0",
	"EF_CONFIG_DUMP":    "1",
	"EF_NO_FAIL":        "0",
	"EF_TCP_TCONST_MSL": "1",
}

// profiles are those of Onload's scripts/onload_profiles/latency.opf and latency-best.opf, the same
// in 201811-u1, 8.1 to 9.2 and commit ef17681 of 2026-07-22. Shell code of the latter and
// EF_TPH_MODE=2, which 8.1 does not know, are left out.
var profiles = map[v1alpha1.OnloadProfile]map[string]string{
	v1alpha1.OnloadProfileLatency: {
		"EF_POLL_USEC":          "100000",
		"EF_TCP_FASTSTART_INIT": "0",
		"EF_TCP_FASTSTART_IDLE": "0",
	},
	v1alpha1.OnloadProfileLatencyBest: {
		"EF_POLL_USEC":          "100000",
		"EF_TCP_FASTSTART_INIT": "0",
		"EF_TCP_FASTSTART_IDLE": "0",
		SwitchBypass:            "1",
		"EF_EPOLL_MT_SAFE":      "1",
	},
}

// Library returns what the tools preload, as a path or a name that the loader finds; empty for the
// kernel's stack. The acceleration has to be complete, as plan.Variants returns it.
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

// Environment returns the variables of a variant's tools. Its own override its profile, which may
// be the data of a ConfigMap whose unusable keys are an error, and that overrides the defaults.
func Environment(v v1alpha1.Variant, configMap map[string]string) (map[string]string, error) {
	env := map[string]string{}
	if v.Acceleration.Type == v1alpha1.AccelerationOnload {
		settings := v.Acceleration.OnloadSettings()
		maps.Copy(env, defaults)
		maps.Copy(env, profiles[settings.Profile])
		if ref := settings.ProfileRef; ref != nil {
			if err := validate(configMap); err != nil {
				return nil, fmt.Errorf("ConfigMap %s: %w", ref.Name, err)
			}
			maps.Copy(env, configMap)
		}
	}
	for _, e := range v.Env {
		env[e.Name] = e.Value
	}
	return env, nil
}

// SwitchBypass makes Onload send by CTPIO even if the firmware has the NIC's switch.
const SwitchBypass = "EF_CTPIO_SWITCH_BYPASS"

// Enabled reports whether the value of a setting is a number other than 0.
func Enabled(value string) bool {
	n, err := strconv.Atoi(strings.TrimSpace(value))
	return err == nil && n != 0
}

// spins are the settings by which socket calls poll before they wait; EF_POLL_USEC sets all.
var spins = []string{"EF_TCP_RECV_SPIN", "EF_UDP_RECV_SPIN", "EF_SELECT_SPIN", "EF_POLL_SPIN", "EF_EPOLL_SPIN"}

// Polls reports whether waiting calls poll: it is on, and has a time (startup.c).
func Polls(env map[string]string) bool {
	time := "EF_POLL_USEC"
	if env["EF_SPIN_USEC"] != "" {
		time = "EF_SPIN_USEC"
	}
	on := Enabled(env["EF_POLL_USEC"]) || slices.ContainsFunc(spins, func(name string) bool { return Enabled(env[name]) })
	return on && Enabled(env[time])
}

// texts are the settings that are not decimal numbers (ci_netif_config_opts_getenv in netif_init.c, and startup.c and stackname.c, of
// Onload 9.2 and commit ef17681).
var texts = []string{
	"EF_CLUSTER_NAME", "EF_CTPIO_MODE", "EF_FORK_NETIF", "EF_INTERFACE_BLACKLIST", "EF_INTERFACE_WHITELIST", "EF_LD_PRELOAD", "EF_LOG",
	"EF_LOG_FILE", "EF_LOG_THREAD", "EF_NAME", "EF_NETIF_DTOR", "EF_ONLOAD_IRQ_CORES", "EF_RX_DATAPATH", "EF_RX_TIMESTAMPING_ORDERING",
	"EF_RX_TIMESTAMPING_TRAILER_FORMAT", "EF_SCALABLE_FILTERS", "EF_SIGNALS_NOPOSTPONE", "EF_SOCKET_CACHE_PORTS", "EF_STRIPE_NETMASK",
	"EF_TCP_FORCE_REUSEPORT", "EF_TCP_ISN_MODE", "EF_TCP_RX_CHECKS", "EF_TCP_RX_LOG_FLAGS", "EF_TCP_SYN_OPTS", "EF_TCP_URG_MODE",
	"EF_TX_DATAPATH", "EF_UDP_FORCE_REUSEPORT", "EF_UNIX_LOG", "EF_VI_CLUSTER_SOCKET", "EF_VI_COMPAT_MODE", "EF_VI_CTPIO_MODE",
	"EF_VI_PD_FLAGS", "EF_XDP_MODE",
}

var number = regexp.MustCompile(`^ *[+-]?[0-9]+ *$`)

// Misread reports whether Onload takes a setting's value for 0, or ignores it, and goes on.
func Misread(name, value string) bool {
	return settingName.MatchString(name) && value != "" && !slices.Contains(texts, name) && !number.MatchString(value)
}

// validate refuses too many settings, or the first key by name that is no valid one.
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
		case Misread(name, value):
			return fmt.Errorf("the value of %s, %.80q, is not a decimal number, so that Onload would ignore it or read 0; "+
				"correct it, or set a variable of this name in the variant's env", name, value)
		}
	}
	return nil
}
