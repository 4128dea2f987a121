package onload

import (
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
	// Why is the reason, Remedy the advice, and Words the line that Onload or the dynamic linker printed.
	Why, Remedy, Words string
	// Device is true when Onload's device could not be opened, and Missing when its library could not be preloaded.
	Device, Missing bool
}

// libraryName matches the names of Onload's library: libcitransport0.so when it is built, and libonload.so when it is installed,
// also with a version. Other libraries of the vendor have a name after libonload_: libonload_ext.so, whose functions call it, and
// libonload_zf.so, which is TCPDirect.
var libraryName = regexp.MustCompile(`^lib(?:citransport.*|onload(?:[.-].*)?)$`)

// IsLibrary reports whether a path is that of Onload's library.
func IsLibrary(path string) bool { return libraryName.MatchString(filepath.Base(path)) }

// find returns the first of the known messages that a line has, with its groups by name; nil if it has none.
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

// Explain finds the reason why a tool could not use Onload in the standard error of the tool: the first cause that Onload or the
// dynamic linker names, or else the first consequence. ok is false if nothing there says that the tool could not.
func Explain(stderr []byte) (failure Failure, ok bool) {
	best := warning
	for line := range strings.Lines(string(stderr)) {
		m, groups := find(line)
		if m == nil || m.rank >= best {
			continue
		}
		why := m.why
		if n, err := strconv.Atoi(groups["errno"]); err == nil {
			if of := m.byErrno[max(n, -n)]; of != nil {
				why = of
			}
		}
		best, failure, ok = m.rank, *why, true
		failure.Words, _ = words(line)
	}
	return failure, ok
}

// maxWarnings is the most warnings that Warnings returns.
const maxWarnings = 16

// Warnings returns what Onload says about its settings and surroundings in the standard error of a tool although it goes on: each
// line once, in order.
func Warnings(stderr []byte) []string {
	var all []string
	for line := range strings.Lines(string(stderr)) {
		if m, _ := find(line); m == nil || m.rank != warning || len(all) == maxWarnings {
			continue
		}
		if said, _ := words(line); !slices.Contains(all, said) {
			all = append(all, said)
		}
	}
	return all
}
