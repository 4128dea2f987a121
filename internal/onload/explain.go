package onload

import (
	"bytes"
	"cmp"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Failure is a reason why a tool could not use Onload.
type Failure struct {
	// Outcome is AccelerationFailed, or ResourceUnavailable if another attempt may succeed.
	Outcome string
	// Why is the reason, Remedy the advice, Words the line that was printed.
	Why, Remedy, Words string
	// Device: Onload's device could not be opened. Missing: its library was not preloaded.
	Device, Missing bool
}

// libraryName matches Onload's library: libcitransport0.so when built, libonload.so when installed,
// also with a version. libonload_ext.so calls it; libonload_zf.so is TCPDirect.
var libraryName = regexp.MustCompile(`^lib(?:citransport.*|onload(?:[.-].*)?)$`)

// IsLibrary reports whether a path is that of Onload's library.
func IsLibrary(path string) bool { return libraryName.MatchString(filepath.Base(path)) }

// find returns the first of the known messages that a line has, with its groups by name.
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
	// Failure is why the tool could not use Onload: the first cause, or else the first consequence.
	Failure *Failure
	// Warnings are about settings and surroundings, each line once, in order.
	Warnings []string
	// Rest is the output without the lines that Onload always prints.
	Rest []byte
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
