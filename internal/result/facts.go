package result

import (
	_ "embed"
	"strings"
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
	// Name is in lower case, from the general to the particular. A * at its end makes it match all names with that prefix.
	Name string
	// Fingerprint is true if the values must be equal for two results to be comparable.
	Fingerprint bool
	// Meaning describes the value, its unit, and where it is read.
	Meaning string
}

// Keys are the conditions of a measurement by which results are compared. "The CPU" is the CPU to which the tool was pinned, "the NIC"
// the interface that carries the messages. A value that cannot be read has no key.
//
// The fingerprint contains the definition of the measurement, and settings that were made on purpose and change latency. It does not
// contain what a scheduler or a device plugin assigns to each pod (the CPU, its siblings and caches; the number of a VF is not compared
// at all), values that only name the place of something else, and values that the machine changes by itself.
//
// DeltaKeys are the keys of Evidence.Deltas: the growth of the kernel's counters while the endpoint's tools ran, summed over all cells.
//
// Files and Counters name the files of /proc and /sys with the values of some keys, with {cpu} for the number of the CPU and {iface} for
// the NIC.
var Keys, DeltaKeys, Files, Counters = keys()

// KeyFrequency names the frequencies of Path.
const KeyFrequency = "cpu.mhz"

// find returns the entry for a name: the entry with that name, or else the longest matching entry with a *.
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
