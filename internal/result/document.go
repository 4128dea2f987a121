// Package result is what an agent hands to the controller and how it is kept: the document, its frame on the
// log with a digest, the histograms inside, and the ConfigMap in which a finished run is stored.
package result

import (
	"time"

	"github.com/tailgate-dev/tailgate/internal/tool"
)

// Version of the document's format. A reader refuses any other.
const Version = 1

// Document is what one agent has to say of one attempt.
type Document struct {
	// Version is the constant of this package.
	Version int `json:"version"`
	// Run is the name of the run, Variant that of its variant, Attempt the number of the try, Role client or server:
	// the reader compares them with what it expects.
	Run     string `json:"run"`
	Variant string `json:"variant"`
	Attempt int32  `json:"attempt"`
	Role    string `json:"role"`
	// Evidence is what the agent observed.
	Evidence Evidence `json:"evidence"`
	// Cells are the measurements, of the client only.
	Cells []Cell `json:"cells,omitempty"`
	// Captured are what the server's agent took from packets, of the server of a variant with capture only.
	Captured []Captured `json:"captured,omitempty"`
	// Reduced says, a sentence each, what was left out or made coarser so that the result fits where it is kept.
	Reduced []string `json:"reduced,omitempty"`
}

// Captured is the latency of the server in one cell: from the arrival of each request at its interface to the
// departure of the answer, by the kernel's timestamps.
type Captured struct {
	// Cell is the name of the cell.
	Cell string `json:"cell"`
	// Histogram of the times in nanoseconds; empty when Incomplete.
	Histogram Histogram `json:"histogram"`
	// Incomplete says why there are no samples, or not all: they are dropped then. Empty when all is well.
	Incomplete string `json:"incomplete,omitempty"`
	// Packets were captured, and Drops lost for lack of room.
	Packets int64 `json:"packets"`
	Drops   int64 `json:"drops"`
	// Requests came in after the warm-up; Matched of them have an answer, Unanswered have none; Stray are answers
	// without a request.
	Requests   int64 `json:"requests"`
	Matched    int64 `json:"matched"`
	Unanswered int64 `json:"unanswered"`
	Stray      int64 `json:"stray"`
	// ByOrder is how many answers found their request by order alone, as they did not repeat its first bytes.
	ByOrder int64 `json:"byOrder"`
	// Late is the number of packets whose time was taken only when they were copied.
	Late int64 `json:"late"`
}

// CapturedSuffix ends the name, in results and rules, of what was captured of a cell.
const CapturedSuffix = "-captured"

// MeasuredTime is how long the tools ran, their own start and warm-ups included.
func (d Document) MeasuredTime() time.Duration {
	var sum time.Duration
	for _, c := range d.Cells {
		sum += c.FinishedAt.Sub(c.StartedAt)
	}
	return sum
}

// withoutMeasurements is the document without what was measured: what Conditions reads is left.
func (d Document) withoutMeasurements() Document {
	cells := make([]Cell, 0, len(d.Cells))
	for _, c := range d.Cells {
		cells = append(cells, Cell{Cell: c.Cell, Tool: c.Tool, ToolVersion: c.ToolVersion, Start: c.Start, Accelerated: c.Accelerated})
	}
	d.Cells, d.Captured, d.Reduced = cells, nil, nil
	return d
}

// Cell is the measurement of one cell.
type Cell struct {
	tool.Cell
	// Tool is the name of the tool, ToolVersion its own words for its version.
	Tool        string `json:"tool"`
	ToolVersion string `json:"toolVersion,omitempty"`
	// Command is the client's argument vector.
	Command []string `json:"command"`
	// StartedAt is when the client process was started, FinishedAt when it had ended.
	StartedAt  time.Time `json:"startedAt"`
	FinishedAt time.Time `json:"finishedAt"`
	// Histogram of the round-trip times in nanoseconds, with the exact extremes. Empty when Own or Bandwidth is set.
	Histogram Histogram `json:"histogram"`
	// Start says from when the round trips of an open loop count, and ActualStart holds them once more, counted
	// from when each message was really sent, when Histogram counts from when it should have been.
	Start       tool.StartTime `json:"start,omitempty"`
	ActualStart *Histogram     `json:"actualStart,omitempty"`
	// Own are the statistics of a tool that tells no samples.
	Own *tool.Own `json:"own,omitempty"`
	// Bandwidth is what a cell that streams found.
	Bandwidth *tool.Bandwidth `json:"bandwidth,omitempty"`
	// Attribution, Intervals and Accelerated are what the tool knows of the slowest samples, of the course of the
	// measurement, and of its sockets.
	Attribution *tool.Attribution `json:"attribution,omitempty"`
	Intervals   []tool.Interval   `json:"intervals,omitempty"`
	Accelerated tool.Accelerated  `json:"accelerated,omitzero"`
	// Lost is the number of messages sent and not answered.
	Lost int64 `json:"lost"`
	// Figures are the tool's own results, Warnings its own warnings.
	Figures  []tool.Figure `json:"figures,omitempty"`
	Warnings []string      `json:"warnings,omitempty"`
}

// Evidence is what an agent observed of its endpoint. Unknown numbers are -1, unknown strings empty.
type Evidence struct {
	Node   string `json:"node"`
	Kernel string `json:"kernel"`
	BootID string `json:"bootID"`
	// BootedAt is when the kernel booted by its own clocks, in ns since 1970; 0 when unknown. See SameKernel.
	BootedAt int64  `json:"bootedAt,omitempty"`
	CPUModel string `json:"cpuModel,omitempty"`
	// CPUsAllowed is the Cpus_allowed_list of the agent, OnlineCPUs that of the node.
	CPUsAllowed string `json:"cpusAllowed"`
	OnlineCPUs  string `json:"onlineCPUs"`
	// MeasuringCPU is where the tool was pinned, AgentCPU where the agent keeps itself.
	MeasuringCPU int32 `json:"measuringCPU"`
	AgentCPU     int32 `json:"agentCPU"`
	// CPUNUMANode and DeviceNUMANode are NUMA nodes as sysfs shows them.
	CPUNUMANode    int32 `json:"cpuNUMANode"`
	DeviceNUMANode int32 `json:"deviceNUMANode"`
	// AllowedNUMANodes are the NUMA nodes of all CPUs of CPUsAllowed, as a list such as 0 or 0-1; empty when that of one
	// of them is unknown.
	AllowedNUMANodes string `json:"allowedNUMANodes,omitempty"`
	// ThreadSiblings are the SMT siblings of the measuring CPU, itself included.
	ThreadSiblings string `json:"threadSiblings,omitempty"`
	Clocksource    string `json:"clocksource,omitempty"`
	// Interface carries the messages.
	Interface string   `json:"interface"`
	Address   string   `json:"address"`
	Addresses []string `json:"addresses,omitempty"`
	// MAC is the interface's hardware address, such as 00:0f:53:4a:81:c0.
	MAC      string `json:"mac,omitempty"`
	MTU      int32  `json:"mtu"`
	Driver   string `json:"driver,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	// PCIAddress is the device behind the interface. PCISource is PCIFromSysfs when sysfs shows it there; it is empty
	// when the interface is not on the PCI bus and PCIAddress is the device of its parent, or the one device that the pod
	// was allocated.
	PCIAddress   string `json:"pciAddress,omitempty"`
	PCISource    string `json:"pciSource,omitempty"`
	AgentVersion string `json:"agentVersion,omitempty"`
	// AllocatedDevices are the values of PCIDEVICE_* and SRIOVNETWORK_VF_DEVICE_* by name of the variable.
	AllocatedDevices map[string]string `json:"allocatedDevices,omitempty"`
	// Paths are what was recorded of the path of the messages, one for each cell.
	Paths []Path `json:"paths,omitempty"`
	// Facts are further conditions of the measurement, by the Keys of this package: only those that could be read.
	Facts map[string]string `json:"facts,omitempty"`
	// Deltas are the DeltaKeys: what happened on this end while its tools ran.
	Deltas map[string]int64 `json:"deltas,omitempty"`
	// VoluntarySwitches and InvoluntarySwitches count the context switches of the tool's process on this
	// end, summed over all cells.
	VoluntarySwitches   int64 `json:"voluntarySwitches"`
	InvoluntarySwitches int64 `json:"involuntarySwitches"`
}

// VariableOfDriver is what the names of the variables begin with by which the SR-IOV driver of Dynamic Resource Allocation
// tells a container the PCI address of a VF. They end in the name of the device, not in that of the resource.
const VariableOfDriver = "SRIOVNETWORK_VF_DEVICE_"

// PCIFromSysfs is the PCISource of an address that sysfs shows behind the interface.
const PCIFromSysfs = "sysfs"

// bootsApart is how far apart, in ns, the boots of two kernels are at least. Readings of one kernel differ by how long its
// clocks take to read.
const bootsApart = 50_000_000

// SameKernel says whether two agents ran on one kernel, so that there was no wire between them. A boot ID can be hidden
// from a container, but the clocks cannot.
func SameKernel(a, b Evidence) bool {
	if a.BootID != "" && a.BootID == b.BootID {
		return true
	}
	if a.Kernel != b.Kernel {
		return false // whatever the clocks say, which count in whole seconds when a machine boots
	}
	apart := a.BootedAt - b.BootedAt
	return a.BootedAt > 0 && b.BootedAt > 0 && -bootsApart < apart && apart < bootsApart
}
