package result

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"time"
)

// InspectionVersion is the version of Inspection's format. A reader rejects any other version.
const InspectionVersion = 1

// Inspection contains the observations of the agent in an inspect pod.
type Inspection struct {
	Version int `json:"version"`
	// Evidence is as that of an endpoint, for the pod's first CPU and an interface.
	Evidence Evidence `json:"evidence"`
	// NUMA contains the CPUs of each NUMA node, as lists such as 0-7,16-23, by its number.
	NUMA map[string]string `json:"numa,omitempty"`
	// NICs are the machine's network cards, without their VFs.
	NICs   []NIC  `json:"nics,omitempty"`
	Onload Onload `json:"onload,omitzero"`
	// Reach is how the agent reached the pod that it was given as a peer.
	Reach *Reach `json:"reach,omitempty"`
	// Workload is set by an agent that inspected a container; nil: it inspected the node.
	Workload *Workload `json:"workload,omitempty"`
}

// Reach is what an agent found between its pod and another one: each text is an error.
type Reach struct {
	// Route prevents all other tries: the messages would not leave by the network's interface.
	Route string `json:"route,omitempty"`
	// Control and Data are the errors of TCP connections to the two ports of a benchmark.
	Control string `json:"control,omitempty"`
	Data    string `json:"data,omitempty"`
	// Datagram is the error of one with Bytes of payload, the MTU's most.
	Datagram string `json:"datagram,omitempty"`
	Bytes    int    `json:"bytes"`
}

// NIC is a PF, or a network card that has no VFs, as the machine's PCI bus shows it.
type NIC struct {
	// PCIAddress is as 0000:65:00.0, ID vendor:device, Driver the kernel's or empty.
	PCIAddress string `json:"pciAddress"`
	ID         string `json:"id"`
	Driver     string `json:"driver,omitempty"`
	NUMANode   int32  `json:"numaNode"` // -1 if the firmware does not report it
	// VFs is the number of its VFs, and TotalVFs the largest possible number: 0 without SR-IOV.
	VFs      int32 `json:"vfs"`
	TotalVFs int32 `json:"totalVFs"`
}

// Onload describes the parts of Onload in a container.
type Onload struct {
	// Preload is the container's LD_PRELOAD, as its device plugin sets it.
	Preload string `json:"preload,omitempty"`
	// Library is the path of the library in the container, and empty if it is not there.
	Library string   `json:"library,omitempty"`
	Devices []string `json:"devices,omitempty"`
	// ControlPlane is the program that the module starts; empty: its default.
	ControlPlane string `json:"controlPlane,omitempty"`
}

func (i *Inspection) Fact(key string) string {
	if i == nil {
		return ""
	}
	return i.Evidence.Facts[key]
}

func (i *Inspection) Virtual() bool { return i.Fact("cpu.hypervisor") == "yes" }

const frameInspection = "inspection"

func (i Inspection) Write(w io.Writer) error {
	plain, err := json.Marshal(i)
	if err != nil {
		return fmt.Errorf("encoding the inspection: %w", err)
	}
	content, err := deflate(plain)
	if err != nil {
		return err
	}
	return writeFrame(w, frameInspection, InspectionVersion, content)
}

func ReadInspection(log io.Reader) (Inspection, error) {
	i, err := readFrame(log, frameInspection, InspectionVersion, openInspection)
	if err != nil {
		return Inspection{}, fmt.Errorf("reading the inspection: %w; is the image a Tailgate bench image?", err)
	}
	return i, nil
}

// Inspections yields the inspections in a log as an agent writes them, and what is wrong with others.
func Inspections(log io.Reader) iter.Seq2[Inspection, error] {
	return frames(log, frameInspection, InspectionVersion, openInspection)
}

func openInspection(content []byte, digest string) (i Inspection, err error) {
	err = inflate(content, digest, InspectionVersion, &i)
	return i, err
}

// Workload is what an agent found of another container of its pod, or of its own before the program
// runs. It says nothing of what it could not read.
type Workload struct {
	// Number counts the inspections of a watch from 1.
	Number int `json:"number,omitempty"`
	// Time is when the inspection began, by the node's clock.
	Time time.Time `json:"time,omitzero"`
	// PoolCPUs are the agent's own CPUs in another container's pod, which all containers share.
	// Empty: the agent was in the container itself.
	PoolCPUs string `json:"poolCPUs,omitempty"`
	// Processes and Threads are the container's, at most MaxThreads each; Omitted counts others.
	Processes []Process `json:"processes"`
	Threads   []Thread  `json:"threads"`
	Omitted   int       `json:"omitted,omitempty"`
	// Elsewhere are processes in its namespace, but in neither its cgroup nor the agent's.
	Elsewhere []string `json:"elsewhere,omitempty"`
	// FromNode: a helper on the node inspected it. StackEvents are what its Onload stacks sent and
	// received in the second; none without a stack that the agent sees.
	FromNode    bool             `json:"fromNode,omitempty"`
	StackEvents map[string]int64 `json:"stackEvents,omitempty"`
	// Unread names what the kernel does not show to the agent: environment, cgroup.
	Unread []string `json:"unread,omitempty"`
	// Interfaces are the evidence with each of the pod's, but lo; deltas are of all its CPUs.
	Interfaces []Evidence `json:"interfaces"`
	// Directed lists the interrupts that may be delivered to its CPUs, by number and name.
	Directed []string `json:"directed,omitempty"`
	// Throttled is how often its cgroups used up their quota since they exist; -1: unknown.
	Throttled int64 `json:"throttled"`
	// Memory is anonymous, by NUMA node, HugePages by size, such as 2Mi, both in bytes.
	Memory    map[string]int64 `json:"memory,omitempty"`
	HugePages map[string]int64 `json:"hugePages,omitempty"`
}

const MaxThreads = 4096

// MaxInterfaces bounds the interfaces of an inspected pod.
const MaxInterfaces = 8

// OfWorkload reports whether an inspection has a workload within the bounds of an agent.
func (i Inspection) OfWorkload() bool {
	w := i.Workload
	return w != nil && len(w.Interfaces) > 0 && len(w.Interfaces) <= MaxInterfaces && max(len(w.Threads), len(w.Processes)) <= MaxThreads
}

// Process is of the container. Look is nil if its memory map and descriptors are hidden.
type Process struct {
	PID  int    `json:"pid"`
	Name string `json:"name"`
	Look *Look  `json:"look,omitempty"`
}

type Thread struct {
	PID  int    `json:"pid"`
	TID  int    `json:"tid"`
	Name string `json:"name"`
	// CPUs and Mems are the CPUs and NUMA nodes that it may use, Ran the CPUs on which it was seen.
	CPUs string `json:"cpus"`
	Mems string `json:"mems,omitempty"`
	Ran  string `json:"ran,omitempty"`
	// Migrations counts changes of the CPU in the window; RunNS is how long it ran, DelayNS how
	// long it waited for a CPU; -1: unknown.
	Migrations int64 `json:"migrations"`
	RunNS      int64 `json:"runNS"`
	DelayNS    int64 `json:"delayNS"`
}

func (t Thread) String() string { return fmt.Sprintf("%s (%d)", t.Name, t.TID) }
