// Package onload is pure: how AMD's Onload joins a benchmark's tools, and what it prints.
package onload

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"maps"
	"path/filepath"
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

// defaults make Onload report to standard error, print its settings, and fail instead of using a
// kernel socket when resources run out. One is no report: a connection that the tool closed first
// keeps its stack for twice this time, in seconds, by default 25 (opts_netif_def.h and tcp_timer.c,
// 201811-u1 to 9.2).
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

// texts are no decimal numbers (ci_netif_config_opts_getenv in netif_init.c, and startup.c and
// stackname.c, of Onload 9.2 and commit ef17681).
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

type Failure struct {
	Outcome string // AccelerationFailed, or ResourceUnavailable if another attempt may succeed
	// Why is the reason, Remedy the advice, Words the line that was printed.
	Why, Remedy, Words string
	// Device: Onload's device could not be opened. Missing: its library was not preloaded.
	Device, Missing bool
}

// libraryName matches Onload's library: libcitransport0.so when built, libonload.so when installed,
// also with a version. libonload_ext.so calls it; libonload_zf.so is TCPDirect.
var libraryName = regexp.MustCompile(`^lib(?:citransport.*|onload(?:[.-].*)?)$`)

func IsLibrary(path string) bool { return libraryName.MatchString(filepath.Base(path)) }

func find(line string) (*message, map[string]string) {
	for i, m := range messages {
		found := m.says.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		groups := map[string]string{}
		for g, name := range m.says.SubexpNames() {
			groups[name] = found[g]
		}
		if library, ok := groups["library"]; ok && !IsLibrary(library) {
			continue
		}
		return &messages[i], groups
	}
	return nil, nil
}

// Warns reports whether a line is a warning of Onload, which is never the reason of a failure.
func Warns(line string) bool {
	said, ours := words(line)
	m, _ := find(line)
	return ours && (m != nil && m.rank == warning || m == nil && strings.Contains(said, "WARNING: "))
}

const maxWarnings = 16

// Said is what Onload, or the dynamic linker about it, printed on a tool's standard error.
type Said struct {
	// Banner is the version printed at a stack's first use, Settings are by EF_CONFIG_DUMP.
	Banner   string
	Settings map[string]string
	Failure  *Failure // why it could not use Onload: the first cause, or else the first consequence
	Warnings []string // about settings and surroundings, each line once, in order
	Rest     []byte   // the output without the lines that Onload always prints
}

func Read(stderr []byte) Said {
	said, best := Said{Settings: map[string]string{}}, warning
	for raw := range bytes.Lines(stderr) {
		line := string(raw)
		words, ours := words(line)
		if found := banner.FindStringSubmatch(words); found != nil && ours && said.Banner == "" {
			said.Banner = found[1]
		}
		if found := setting.FindStringSubmatch(words); found != nil && ours && found[2] != "" {
			said.Settings[found[1]] = found[2]
		}
		if !Chatter(line) {
			said.Rest = append(said.Rest, raw...)
		}
		m, groups := find(line)
		switch {
		case m == nil:
		case m.rank < best:
			why := m.why
			if n, err := strconv.Atoi(groups["errno"]); err == nil {
				why = cmp.Or(m.byErrno[max(n, -n)], why)
			}
			best, said.Failure = m.rank, new(*why)
			said.Failure.Words = words
		case m.rank == warning && len(said.Warnings) < maxWarnings && !slices.Contains(said.Warnings, words):
			said.Warnings = append(said.Warnings, words)
		}
	}
	return said
}

//go:embed messages.tsv
var lines string

// rank orders messages: the first cause decides, else the first consequence, never a warning.
type rank int

const (
	cause rank = iota
	consequence
	warning
)

type message struct {
	says *regexp.Regexp // matches a part of its line
	rank
	why     *Failure // its reason, unless byErrno has one
	byErrno map[int]*Failure
}

// reasons say why a tool could not use Onload, by name. A line's first matching message counts.
var reasons, messages = read()

func read() (reasons map[string]*Failure, messages []message) {
	reasons = map[string]*Failure{}
	tables := map[string]map[int]*Failure{}
	for line := range strings.Lines(lines) {
		switch c := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); {
		case c[0] == "reason":
			reasons[c[1]] = &Failure{Outcome: c[2], Why: c[3], Remedy: c[4], Device: c[1] == "noDevice", Missing: c[1] == "notPreloaded"}
		case c[0] == "errno":
			tables[c[1]] = map[int]*Failure{}
			for _, entry := range strings.Fields(c[2]) {
				number, reason, _ := strings.Cut(entry, "=")
				n, _ := strconv.Atoi(number)
				tables[c[1]][n] = reasons[reason]
			}
		case len(c) == 4:
			r := rank(slices.Index([]string{"cause", "consequence", "warning"}, c[0]))
			messages = append(messages, message{regexp.MustCompile(c[3]), r, reasons[c[1]], tables[c[2]]})
		}
	}
	return reasons, messages
}

// prefix matches how Onload's lines begin, as oo:sfnt-pingpong[9773]: Using Onload 9.0.2 [3], after
// numbers with EF_LOG_THREAD and EF_LOG_TIMESTAMPS. The device's have a function's name.
var prefix = regexp.MustCompile(`^(?:[0-9a-f]+ ){0,2}oo:[^\[\]]*\[\d+\]: `)

var (
	setting = regexp.MustCompile(`^(EF_[A-Z0-9_]+)=(.*)$`)
	// Releases until 2018 have the copyright in the same line.
	banner  = regexp.MustCompile(`^(?:Using|Sharing|Importing) [A-Za-z]*Onload (.*?)(?: Copyright .*?)?\s*(?:\[[^\]]*\])?$`)
	chatter = []string{"Using ", "Sharing ", "Importing ", "Copyright ", "GNU_LIB", "ci_glibc_uses_nptl", "ci_is_multithreaded"}
)

func words(line string) (string, bool) {
	line = strings.TrimSpace(line)
	start := prefix.FindString(line)
	return line[len(start):], start != ""
}

// Chatter reports whether a line is one that Onload always prints: its banner and its settings.
func Chatter(line string) bool {
	said, ok := words(line)
	always := slices.ContainsFunc(chatter, func(start string) bool { return strings.HasPrefix(said, start) })
	return ok && (always || setting.MatchString(said))
}

// stackSetting matches onload_stackdump's opts, such as EF_MAX_PACKETS: 4096 (default: 32768); a
// default has no parentheses (ci_netif_config_opts_dump in netif_debug.c).
var stackSetting = regexp.MustCompile(`^\s*(EF_[A-Z0-9_]+): (.*?)( \(default: .*\))?$`)

// StackSettings returns onload_stackdump's settings that are no defaults, and how many all are.
func StackSettings(dump []byte) (changed map[string]string, all int) {
	changed = map[string]string{}
	for line := range strings.Lines(string(dump)) {
		found := stackSetting.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if found == nil {
			continue
		}
		all++
		if found[3] != "" {
			changed[found[1]] = found[2]
		}
	}
	return changed, all
}

// stackInterface matches how onload_stackdump's netif begins a stack's virtual interface:
// architecture (enum ef_vi_arch in etherfabric/ef_vi.h), variant and revision.
var stackInterface = regexp.MustCompile(`^ci_netif_dump_vi: .* hw=(\d+)\D\d+\s*$`)

// architectures are named by number. An X4 has two, each with its own datapath.
var architectures = map[string]string{
	"0": "Falcon", "1": "EF10 (on an X4: Enterprise)", "2": "EF100", "3": "EFCT", "4": "AF_XDP", "5": "EF10CT (on an X4: Express)",
}

// StackInterfaces returns the architectures of a stack's virtual interfaces, in order.
func StackInterfaces(dump []byte) []string {
	var all []string
	for line := range strings.Lines(string(dump)) {
		if found := stackInterface.FindStringSubmatch(line); found != nil {
			all = append(all, cmp.Or(architectures[found[1]], "architecture "+found[1]))
		}
	}
	return all
}
