package onload

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// prefix matches how Onload's lines begin, as oo:sfnt-pingpong[9773]: Using Onload 9.0.2 [3], after
// numbers with EF_LOG_THREAD and EF_LOG_TIMESTAMPS. The device's have a function's name.
var prefix = regexp.MustCompile(`^(?:[0-9a-f]+ ){0,2}oo:[^\[\]]*\[\d+\]: `)

var (
	setting = regexp.MustCompile(`^(EF_[A-Z0-9_]+)=(.*)$`)
	// Releases until 2018 have the copyright in the same line.
	banner  = regexp.MustCompile(`^(?:Using|Sharing|Importing) [A-Za-z]*Onload (.*?)(?: Copyright .*?)?\s*(?:\[[^\]]*\])?$`)
	chatter = []string{"Using ", "Sharing ", "Importing ", "Copyright ", "GNU_LIB", "ci_glibc_uses_nptl", "ci_is_multithreaded"}
)

// words returns the text that Onload printed in a line, and whether Onload printed the line.
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

// stackInterface matches the line with which onload_stackdump's netif begins a virtual interface of a stack: its architecture (enum
// ef_vi_arch in etherfabric/ef_vi.h), variant and revision.
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
