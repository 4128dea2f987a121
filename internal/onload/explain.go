package onload

import (
	"bytes"
	"cmp"
	_ "embed"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

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

// message is what Onload, or the dynamic linker about a library, prints on standard error.
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
