package result

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/internal/text"
)

// Difference is a key that has not the same value in two results.
type Difference struct {
	// Key is one of Keys.
	Key string
	// A and B are the values; empty where a result does not have the key: it was not set, or could not be read.
	A, B string
	// Fingerprint is true when the results are not comparable because of it.
	Fingerprint bool
}

// String is the difference in a sentence's part, such as: nic.mtu "1500", then "9000".
func (d Difference) String() string {
	return fmt.Sprintf("%s %s, then %s", d.Key, shown(d.A), shown(d.B))
}

// keyBoot is new with each boot of the node.
const keyBoot = "kernel.boot-id"

// BetweenRounds says whether two rounds of one benchmark are not comparable because of the difference: those share the
// boot, too, which results of different days need not.
func (d Difference) BetweenRounds() bool { return d.Fingerprint || d.Key == keyBoot }

// maxNamed is how many differences a sentence names.
const maxNamed = 3

// Unequal names the first of the differences between two results of one role that matter, and how many more there are;
// it is empty when none does.
func Unequal(a, b Document, matters func(Difference) bool) string {
	var found []string
	for _, d := range Differences(a, b) {
		if matters(d) {
			found = append(found, d.String())
		}
	}
	return text.List(found, maxNamed, "; ")
}

// maxShown bounds a value in a sentence, in bytes.
const maxShown = 60

func shown(value string) string {
	if value == "" {
		return "absent"
	}
	return strconv.Quote(text.Shorten(value, maxShown))
}

// Differences are the conditions that differ between two results of one role, those of the fingerprint first, then by
// key. It is empty for two pods on a machine that did not change, but for what they were dealt: see Keys.
func Differences(a, b Document) []Difference {
	ca, cb := Conditions(a), Conditions(b)
	var all []Difference
	add := func(key string) {
		if ca[key] != cb[key] && !ofOneOnly(key, a, b) {
			all = append(all, Difference{Key: key, A: ca[key], B: cb[key], Fingerprint: inFingerprint(key)})
		}
	}
	for key := range ca {
		add(key)
	}
	for key := range cb {
		if _, ok := ca[key]; !ok {
			add(key)
		}
	}
	slices.SortFunc(all, func(x, y Difference) int {
		if x.Fingerprint != y.Fingerprint {
			if x.Fingerprint {
				return -1
			}
			return 1
		}
		return cmp.Compare(x.Key, y.Key)
	})
	return all
}

// Conditions are all that an agent reported about the conditions of its measurement, under one set of keys. Unknown values
// have no key. Left out is what names one pod and never equals another's: addresses, the number of a VF, the devices
// that were allocated; and what proves the placement and the acceleration that the spec asks for.
func Conditions(d Document) map[string]string {
	all := map[string]string{}
	maps.Copy(all, d.Evidence.Facts)
	set := func(key, value string) {
		if value != "" {
			all[key] = value
		}
	}
	number := func(key string, n int32) {
		if n >= 0 {
			all[key] = strconv.Itoa(int(n))
		}
	}
	e := d.Evidence
	set("role", d.Role)
	set("node", e.Node)
	set("agent.version", e.AgentVersion)
	set("kernel.release", e.Kernel)
	set(keyBoot, e.BootID)
	set("kernel.clocksource", e.Clocksource)
	set("cpu.model", e.CPUModel)
	set("cpu.online", e.OnlineCPUs)
	set("cpu.allowed", e.CPUsAllowed)
	number("cpu.measuring", e.MeasuringCPU)
	number("cpu.agent", e.AgentCPU)
	set("cpu.smt.siblings", e.ThreadSiblings)
	number("numa.cpu", e.CPUNUMANode)
	set("numa.cpus", e.AllowedNUMANodes)
	number("numa.device", e.DeviceNUMANode)
	if e.CPUNUMANode >= 0 && e.DeviceNUMANode >= 0 {
		relation := "remote"
		if e.CPUNUMANode == e.DeviceNUMANode {
			relation = "local"
		}
		set("numa.relation", relation)
	}
	set("nic.name", e.Interface)
	number("nic.mtu", e.MTU)
	set("nic.driver", e.Driver)
	set("nic.firmware", e.Firmware)
	for _, p := range e.Paths {
		if p.Begun != nil {
			set("onload.mapped", p.Begun.Library)
		}
		set("onload.library", p.Banner)
	}
	for _, c := range d.Cells {
		set("tool.name", c.Tool)
		set("tool.version", c.ToolVersion)
		for field, value := range fields(c.Cell) {
			if field != "name" {
				set(cellKey(c.Name, field), value)
			}
		}
		set(cellKey(c.Name, "start"), string(c.Start))
		set(cellKey(c.Name, "accelerated.client"), string(c.Accelerated.Client))
		set(cellKey(c.Name, "accelerated.server"), string(c.Accelerated.Server))
	}
	return all
}

const cellPrefix = "cell."

func cellKey(cell, field string) string { return cellPrefix + cell + "." + field }

// fields are the fields of a value by the names that they have in JSON, so that none can be forgotten here; those that
// are left out of the JSON are left out here.
func fields(v any) map[string]string {
	data, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil
	}
	all := map[string]string{}
	for name, value := range raw {
		var text string
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		all[name] = text
	}
	return all
}

// ofOneOnly says whether a key is of a cell that only one of two results has: there is nothing to compare it with. The
// tool is compared where both have cells.
func ofOneOnly(key string, a, b Document) bool {
	if strings.HasPrefix(key, "tool.") && key != "tool.sha256" {
		return len(a.Cells) == 0 || len(b.Cells) == 0
	}
	if !strings.HasPrefix(key, cellPrefix) {
		return false
	}
	has := func(d Document) bool {
		return slices.ContainsFunc(d.Cells, func(c Cell) bool { return strings.HasPrefix(key, cellKey(c.Name, "")) })
	}
	return !has(a) || !has(b)
}

func inFingerprint(key string) bool {
	k, _ := FindKey(key)
	return k.Fingerprint
}
