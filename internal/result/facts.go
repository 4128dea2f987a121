package result

import (
	"cmp"
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"
)

//go:embed keys.tsv
var table string

func keys() (conditions, events []Key, files, counters map[string]string) {
	files, counters = map[string]string{}, map[string]string{}
	for line := range strings.Lines(table) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(columns) < 3 {
			continue // a comment or an empty line
		}
		all, of, event := &conditions, files, columns[1] == "event"
		if event {
			all, of = &events, counters
		}
		if columns[2] != "" {
			*all = append(*all, Key{Name: columns[0], Fingerprint: columns[1] == "fingerprint", Meaning: columns[2]})
		}
		if len(columns) > 3 {
			of[columns[0]] = columns[3]
		}
	}
	return conditions, events, files, counters
}

// Key is the name of a value that an agent observes.
type Key struct {
	Name        string // in lower case, general to particular; a final * matches any rest
	Fingerprint bool   // the values must be equal for two results to be comparable
	Meaning     string // describes the value, its unit, and where it is read
}

// Keys are the conditions by which results are compared: "the CPU" is the tool's, "the NIC" the
// interface with the messages. A value that cannot be read has no key.
//
// The fingerprint is the measurement's definition and deliberate settings that change latency, without
// names of places, and without what a scheduler, a device plugin or the machine changes.
//
// DeltaKeys are those of Evidence.Deltas: the growth of kernel counters over all cells. Files and
// Counters name some keys' files of /proc and /sys; {cpu} and {iface} are filled in.
var Keys, DeltaKeys, Files, Counters = keys()

const KeyFrequency = "cpu.mhz" // the frequencies of Path

func find(keys []Key, name string) (Key, bool) {
	var best Key
	for _, k := range keys {
		if k.Name == name {
			return k, true
		}
		prefix, all := strings.CutSuffix(k.Name, "*")
		if all && strings.HasPrefix(name, prefix) && len(k.Name) > len(best.Name) {
			best = k
		}
	}
	return best, best.Name != ""
}

func FindKey(name string) (Key, bool) { return find(Keys, name) }

func FindDeltaKey(name string) (Key, bool) { return find(DeltaKeys, name) }

var cpuList = regexp.MustCompile(`^[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*$`)

const maxCPUs = 8192 // that Linux supports; cpuset creates every CPU of each range

// ParseCPUs reads a list of CPUs in the kernel's format, such as 1,3-5. An empty list is an error.
func ParseCPUs(list string) (cpuset.CPUSet, error) {
	list = strings.TrimSpace(list)
	if !cpuList.MatchString(list) {
		return cpuset.New(), fmt.Errorf("%.64q is no list of CPUs", list)
	}
	cpus := 0
	for part := range strings.SplitSeq(list, ",") {
		first, last, _ := strings.Cut(part, "-")
		from, _ := strconv.Atoi(first) // digits
		to, _ := strconv.Atoi(cmp.Or(last, first))
		if cpus += max(1, to-from+1); cpus > maxCPUs {
			return cpuset.New(), fmt.Errorf("%.64q lists more than %d CPUs", list, maxCPUs)
		}
	}
	return cpuset.Parse(list)
}
