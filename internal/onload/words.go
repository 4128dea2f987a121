package onload

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Failure is a reason why a tool could not use Onload.
type Failure struct {
	// Outcome is AccelerationFailed, or ResourceUnavailable if another attempt may succeed.
	Outcome string
	// Why is the reason, Remedy the advice, and Words the text that Onload printed.
	Why, Remedy, Words string
	// Device is true when Onload's device could not be opened.
	Device bool
}

// prefix matches the beginning of a line that Onload prints on standard error, such as oo:sfnt-pingpong[9773]: Using Onload
// 9.0.2 [3]. With EF_LOG_THREAD and EF_LOG_TIMESTAMPS, hexadecimal and decimal numbers precede it. Messages of the device have the
// name of a function instead.
var prefix = regexp.MustCompile(`^(?:[0-9a-f]+ ){0,2}oo:[^\[\]]*\[\d+\]: `)

var (
	setting = regexp.MustCompile(`^(EF_[A-Z0-9_]+)=(.*)$`)
	// The verb says whether the process made the stack, or uses one of another process. Releases until 2018 have the copyright in
	// the same line.
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
	if !ok {
		return false
	}
	for _, start := range chatter {
		if strings.HasPrefix(said, start) {
			return true
		}
	}
	return setting.MatchString(said)
}

// Banner returns the version in Onload's banner, which the library prints when it makes a stack or begins to use one; empty if
// there is no banner.
func Banner(stderr []byte) string {
	for line := range strings.Lines(string(stderr)) {
		if said, ok := words(line); ok {
			if found := banner.FindStringSubmatch(said); found != nil {
				return found[1]
			}
		}
	}
	return ""
}

// Settings returns the settings in effect, which Onload printed because of EF_CONFIG_DUMP.
func Settings(stderr []byte) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(string(stderr)) {
		if said, ok := words(line); ok {
			if found := setting.FindStringSubmatch(said); found != nil && found[2] != "" {
				all[found[1]] = found[2]
			}
		}
	}
	return all
}

// stackSetting matches a line of onload_stackdump's opts, such as EF_MAX_PACKETS: 4096 (default: 32768). The part in
// parentheses is missing if the value is the default (ci_netif_config_opts_dump in its netif_debug.c).
var stackSetting = regexp.MustCompile(`^\s*(EF_[A-Z0-9_]+): (.*?)( \(default: .*\))?$`)

// StackSettings returns the settings in effect of a stack that differ from the defaults of its release, from the output of
// onload_stackdump, and the number of all settings there.
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

// stackInterface matches the line with which onload_stackdump's netif begins a virtual interface of a stack: its
// architecture (enum ef_vi_arch in etherfabric/ef_vi.h), variant and revision.
var stackInterface = regexp.MustCompile(`^ci_netif_dump_vi: .* hw=(\d+)\D\d+\s*$`)

// architectures holds the names of the architectures by number. An X4 has two, each with its own datapath.
var architectures = map[string]string{
	"0": "Falcon", "1": "EF10 (on an X4: Enterprise)", "2": "EF100", "3": "EFCT", "4": "AF_XDP", "5": "EF10CT (on an X4: Express)",
}

// StackInterfaces returns the architectures of a stack's virtual interfaces, in the order in which onload_stackdump printed
// them.
func StackInterfaces(dump []byte) []string {
	var all []string
	for line := range strings.Lines(string(dump)) {
		if found := stackInterface.FindStringSubmatch(line); found != nil {
			all = append(all, cmp.Or(architectures[found[1]], "architecture "+found[1]))
		}
	}
	return all
}

const (
	remedyModule = "check that the node has the module (lsmod), and that the pod's resource provides /dev/onload, which every user may open"
	remedyBuild  = "use the library of the module's version, and load the modules again after an upgrade"
	remedyNIC    = "attach an interface, which is up, of a NIC that Onload supports and whose driver was loaded before Onload's module"
	remedyVI     = "end other processes that use Onload on the node, and their orphaned stacks (onload_stackdump lists both), or share a stack"
	remedyMemory = "free memory of the node, because its kernel allocates the stack; on an X3 or X4 give the endpoint huge pages of 2Mi (pods.hugepages) for its receive queues"
	remedyPlane  = "check the kernel's log of the node: the module starts the control plane with the program that `kubectl tailgate doctor` shows, which is crictl with AMD's operator and must exist on the node"
	remedyAny    = "check the kernel's log of the node"
)

// known lists the failures by parts of Onload's messages, as its sources have them (ci_log in src/lib/transport). Numbers
// are values of errno.
var known = []struct {
	says string
	Failure
}{
	{"Driver/Library version mismatch", Failure{Outcome: v1alpha1.OutcomeAccelerationFailed, Why: "library and kernel module are of different versions", Remedy: remedyBuild}},
	{"Driver/Library debug build mismatch", Failure{Outcome: v1alpha1.OutcomeAccelerationFailed, Why: "library and kernel module are of different builds", Remedy: remedyBuild}},
	{"cplane interface mismatch", Failure{Outcome: v1alpha1.OutcomeAccelerationFailed, Why: "library and control plane are of different versions", Remedy: remedyBuild}},
	{"control plane handle", Failure{Outcome: v1alpha1.OutcomeAccelerationFailed, Why: "its control plane does not run on the node", Remedy: remedyPlane}},
	{"failed to select control plane instance", Failure{Outcome: v1alpha1.OutcomeAccelerationFailed, Why: "its control plane does not run on the node", Remedy: remedyPlane}},
	{"Failed to open /dev/onload", Failure{Outcome: v1alpha1.OutcomeAccelerationFailed, Why: "its device cannot be opened", Remedy: remedyModule, Device: true}},
	{"failed to open driver", Failure{Outcome: v1alpha1.OutcomeAccelerationFailed, Why: "its device cannot be opened", Remedy: remedyModule, Device: true}},
	{": ENODEV.", Failure{Outcome: v1alpha1.OutcomeAccelerationFailed, Why: "no NIC that it can use", Remedy: remedyNIC}},
	{"Failed to allocate stack (rc=-1)", Failure{Outcome: v1alpha1.OutcomeAccelerationFailed, Why: "the pod may not make a stack", Remedy: remedyAny}},
	{"Failed to allocate stack (rc=-16)", Failure{Outcome: v1alpha1.OutcomeResourceUnavailable, Why: "no virtual interface of the NIC is left", Remedy: remedyVI}},
	{"Failed to allocate stack (rc=-28)", Failure{Outcome: v1alpha1.OutcomeResourceUnavailable, Why: "the NIC has no room for another stack, or the pod has no huge pages for it", Remedy: remedyVI + "; " + remedyMemory}},
	{"Failed to allocate stack (rc=-12)", Failure{Outcome: v1alpha1.OutcomeResourceUnavailable, Why: "no memory for a stack", Remedy: remedyMemory}},
	{"Failed to allocate stack", Failure{Outcome: v1alpha1.OutcomeAccelerationFailed, Why: "a stack cannot be made", Remedy: remedyAny}},
	{"alloc_efct_resources failed", Failure{Outcome: v1alpha1.OutcomeResourceUnavailable, Why: "no huge pages for receive queues", Remedy: remedyMemory}},
	{"Failed to allocate huge pages", Failure{Outcome: v1alpha1.OutcomeResourceUnavailable, Why: "no huge pages, which EF_USE_HUGE_PAGES=2 demands", Remedy: remedyMemory}},
	{"Insufficient packet buffers", Failure{Outcome: v1alpha1.OutcomeResourceUnavailable, Why: "no memory for packets", Remedy: remedyMemory}},
	{"Failed to map packets", Failure{Outcome: v1alpha1.OutcomeResourceUnavailable, Why: "no memory for packets", Remedy: remedyMemory}},
	{"oo_resource_mmap", Failure{Outcome: v1alpha1.OutcomeResourceUnavailable, Why: "a stack's memory cannot be mapped", Remedy: remedyMemory}},
	{"netif_tcp_helper_build failed", Failure{Outcome: v1alpha1.OutcomeResourceUnavailable, Why: "a stack's memory cannot be mapped", Remedy: remedyMemory}},
	{"Unknown option \"EF_", Failure{Outcome: v1alpha1.OutcomeAccelerationFailed, Why: "a setting that it does not know", Remedy: "correct the profile or env"}},
}

// Explain finds the reason why a tool could not use Onload in the standard error of the tool. ok is false if nothing there
// says that it could not.
func Explain(stderr []byte) (failure Failure, ok bool) {
	for _, k := range known {
		for line := range strings.Lines(string(stderr)) {
			if strings.Contains(line, k.says) {
				k.Words, _ = words(line)
				k.Words = cmp.Or(k.Words, k.says)
				return k.Failure, true
			}
		}
	}
	return Failure{}, false
}
