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

// Difference is a key with different values in two results.
type Difference struct {
	Key         string
	A, B        string // empty if a result does not have the key
	Fingerprint bool   // it makes the results incomparable
}

// String returns the difference as part of a sentence, such as: nic.mtu "1500", then "9000".
func (d Difference) String() string {
	return fmt.Sprintf("%s %s, then %s", d.Key, shown(d.A), shown(d.B))
}

const Remote = "remote" // numa.relation's, if the CPU and the NIC are on different NUMA nodes

const keyBoot = "kernel.boot-id" // changes with each boot of the node

// BetweenRounds reports whether two rounds with it cannot be compared; nor can other boots.
func (d Difference) BetweenRounds() bool { return d.Fingerprint || d.Key == keyBoot }

const maxNamed = 3

// Unequal lists the first relevant differences of two results of a role, and counts the others.
func Unequal(a, b Document, matters func(Difference) bool) string {
	var found []string
	for _, d := range Differences(a, b) {
		if matters(d) {
			found = append(found, d.String())
		}
	}
	return text.List(found, maxNamed, "; ")
}

const maxShown = 60

func shown(value string) string {
	if value == "" {
		return "absent"
	}
	return strconv.Quote(text.Shorten(value, maxShown))
}

// Differences returns the conditions that differ in two results of a role, by CompareKeys.
func Differences(a, b Document) []Difference {
	ca, cb := Conditions(a), Conditions(b)
	var all []Difference
	keys := maps.Clone(ca)
	maps.Copy(keys, cb)
	for key := range keys {
		if ca[key] != cb[key] && !ofOneOnly(key, a, b) {
			all = append(all, Difference{Key: key, A: ca[key], B: cb[key], Fingerprint: inFingerprint(key)})
		}
	}
	slices.SortFunc(all, func(x, y Difference) int { return CompareKeys(x.Key, y.Key) })
	return all
}

// OtherImage is the difference of two runs of users' programs whose images may not be the same.
func OtherImage(a, b Stored) (Difference, bool) {
	custom := func(run Stored) bool {
		return slices.ContainsFunc(run.Client.Cells, func(c Cell) bool { return c.Custom != nil })
	}
	for _, end := range [][2]string{{a.ClientSeen.ImageID, b.ClientSeen.ImageID}, {a.ServerSeen.ImageID, b.ServerSeen.ImageID}} {
		_, before, _ := strings.Cut(end[0], "@")
		_, after, _ := strings.Cut(end[1], "@")
		if custom(a) && custom(b) && (before != after || before == "" && end[0] != end[1]) {
			return Difference{Key: "tool.image", A: end[0], B: end[1], Fingerprint: true}, true
		}
	}
	return Difference{}, false
}

// CompareKeys orders the keys of conditions: those of the fingerprint first, then by name.
func CompareKeys(a, b string) int {
	if first := inFingerprint(a); first != inFingerprint(b) {
		if first {
			return -1
		}
		return 1
	}
	return cmp.Compare(a, b)
}

// Conditions returns all conditions that an agent reported, without what identifies a pod
// (addresses, a VF's number, allocated devices), BootedAt, whose readings differ, and events.
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
	switch known := e.CPUNUMANode >= 0 && e.DeviceNUMANode >= 0; {
	case known && e.CPUNUMANode != e.DeviceNUMANode && !e.OneNUMANode():
		set("numa.relation", Remote)
	case e.SeveralPlaces() == "" && (known || e.OneNUMANode()):
		set("numa.relation", "local")
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
			if field != "name" && field != "custom" {
				set(cellKey(c.Name, field), value)
			}
		}
		if c.Custom != nil {
			for field, value := range fields(c.Custom) {
				set("tool.custom."+field, value)
			}
		}
		set(cellKey(c.Name, "start"), string(c.Start))
		set(cellKey(c.Name, "accelerated.client"), string(c.Accelerated.Client))
		set(cellKey(c.Name, "accelerated.server"), string(c.Accelerated.Server))
	}
	return all
}

// OneNUMANode reports whether one NUMA node has CPUs; others may have memory.
func (e Evidence) OneNUMANode() bool {
	nodes, err := ParseCPUs(e.Facts["numa.nodes"])
	return err == nil && nodes.Size() == 1 && (e.CPUNUMANode < 0 || nodes.Contains(int(e.CPUNUMANode)))
}

// SeveralPlaces says why the CPU's NUMA node may hide several, so that CPUs and devices on it may
// be far from each other; empty if nothing speaks against one place.
func (e Evidence) SeveralPlaces() string {
	packages, err := ParseCPUs(e.Facts["numa.packages"]) // such lists have the format of CPU lists
	numa := strings.Fields(e.Facts["kernel.arg.numa"])
	apart := e.OneNUMANode() && e.DeviceNUMANode >= 0 && e.DeviceNUMANode != e.CPUNUMANode
	switch {
	case err == nil && packages.Size() > 1:
		return "its CPUs are in several sockets (packages " + packages.String() + "), which the firmware or the kernel hides"
	case slices.Contains(numa, "off"), slices.Contains(numa, "noacpi"), e.Facts["kernel.arg.acpi"] == "off":
		return "the kernel was booted without the machine's NUMA nodes"
	case apart && e.Facts["kernel.arg.nr_cpus"]+e.Facts["kernel.arg.possible_cpus"] != "":
		return "the kernel was booted with a part of the CPUs (nr_cpus, possible_cpus), and the others may be those of the device's NUMA node"
	case apart && e.Facts["cpu.offline"] != "":
		return "CPUs " + e.Facts["cpu.offline"] + " are offline, and may be those of the device's NUMA node"
	case e.Facts["cpu.hypervisor"] == "yes" && e.OneNUMANode():
		return "it is the only one of a virtual machine, whose hypervisor may hide those of the machine"
	}
	return ""
}

const cellPrefix = "cell."

func cellKey(cell, field string) string { return cellPrefix + cell + "." + field }

// fields returns a value's fields by their JSON names, except omitted ones.
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
