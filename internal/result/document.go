// Package result defines an agent's document, its frame in the log, and the ConfigMap of a run.
package result

import (
	"regexp"
	"time"

	"github.com/tailgate-dev/tailgate/internal/tool"
)

// Version is the version of the document's format. A reader rejects any other version.
const Version = 1

// Document is the report of one agent about one attempt.
type Document struct {
	Version int `json:"version"`
	// Attempt is its number, Role client or server. Readers compare these four.
	Run     string `json:"run"`
	Variant string `json:"variant"`
	Attempt int32  `json:"attempt"`
	Role    string `json:"role"`
	// Imported is the source without an agent, which nothing proves; or empty.
	Imported string     `json:"imported,omitempty"`
	Evidence Evidence   `json:"evidence"`
	Cells    []Cell     `json:"cells,omitempty"`    // the measurements; only the client has them
	Captured []Captured `json:"captured,omitempty"` // from packets, at a server with capture
	Reduced  []string   `json:"reduced,omitempty"`  // left out or made coarser to fit the storage
}

// Captured is the server's latency in one cell, from each request's arrival to its answer.
type Captured struct {
	Cell      string    `json:"cell"`
	Histogram Histogram `json:"histogram"`     // in ns; empty if Incomplete
	Own       *tool.Own `json:"own,omitempty"` // published percentiles, without a histogram
	// Incomplete says why samples are missing; the others are dropped. Or empty.
	Incomplete string `json:"incomplete,omitempty"`
	// Packets were captured, Drops lost for lack of buffer space.
	Packets int64 `json:"packets"`
	Drops   int64 `json:"drops"`
	// Requests arrived after the warm-up: Matched have an answer, Unanswered do not. Stray counts
	// answers without a request.
	Requests   int64 `json:"requests"`
	Matched    int64 `json:"matched"`
	Unanswered int64 `json:"unanswered"`
	Stray      int64 `json:"stray"`
	// ByOrder answers did not repeat their request, and were matched by order.
	ByOrder int64 `json:"byOrder"`
	Late    int64 `json:"late"` // packets that were timestamped only when they were copied
}

// CapturedSuffix ends names of results and rules for a cell's captured latencies.
const CapturedSuffix = "-captured"

// MeasuredTime returns how long the tools ran, including their own start and warm-ups.
func (d Document) MeasuredTime() time.Duration {
	var sum time.Duration
	for _, c := range d.Cells {
		sum += c.FinishedAt.Sub(c.StartedAt)
	}
	return sum
}

// withoutMeasurements returns the document with only the values that Conditions reads.
func (d Document) withoutMeasurements() Document {
	cells := make([]Cell, 0, len(d.Cells))
	for _, c := range d.Cells {
		cells = append(cells, Cell{Cell: c.Cell, Tool: c.Tool, ToolVersion: c.ToolVersion, Start: c.Start, Accelerated: c.Accelerated})
	}
	d.Cells, d.Captured, d.Reduced = cells, nil, nil
	return d
}

type Cell struct {
	tool.Cell
	Tool        string    `json:"tool"`
	ToolVersion string    `json:"toolVersion,omitempty"`
	Command     []string  `json:"command"`
	StartedAt   time.Time `json:"startedAt"`
	FinishedAt  time.Time `json:"finishedAt"`
	// Histogram has round trips in ns. It is empty if Own or Bandwidth is set.
	Histogram Histogram `json:"histogram"`
	// The following fields are those of tool.Measurement.
	Start       tool.StartTime    `json:"start,omitempty"`
	ActualStart *Histogram        `json:"actualStart,omitempty"`
	Own         *tool.Own         `json:"own,omitempty"`
	Bandwidth   *tool.Bandwidth   `json:"bandwidth,omitempty"`
	Attribution *tool.Attribution `json:"attribution,omitempty"`
	Intervals   []tool.Interval   `json:"intervals,omitempty"`
	Accelerated tool.Accelerated  `json:"accelerated,omitzero"`
	Lost        int64             `json:"lost"`
	Figures     []tool.Figure     `json:"figures,omitempty"`
	Warnings    []string          `json:"warnings,omitempty"`
}

// Evidence is what an agent saw of its endpoint. Unknown numbers are -1, strings empty.
type Evidence struct {
	Node   string `json:"node"`
	Kernel string `json:"kernel"`
	BootID string `json:"bootID"`
	// BootedAt is by the kernel's own clocks, in ns since 1970; 0: unknown.
	BootedAt int64  `json:"bootedAt,omitempty"`
	CPUModel string `json:"cpuModel,omitempty"`
	// CPUsAllowed is the agent's Cpus_allowed_list, OnlineCPUs the node's.
	CPUsAllowed string `json:"cpusAllowed"`
	OnlineCPUs  string `json:"onlineCPUs"`
	// MeasuringCPU is the tool's, AgentCPU the agent's own.
	MeasuringCPU int32 `json:"measuringCPU"`
	AgentCPU     int32 `json:"agentCPU"`
	// CPUNUMANode and DeviceNUMANode are NUMA nodes as sysfs shows them.
	CPUNUMANode    int32 `json:"cpuNUMANode"`
	DeviceNUMANode int32 `json:"deviceNUMANode"`
	// AllowedNUMANodes are those of CPUsAllowed, as 0-1; empty if one is unknown.
	AllowedNUMANodes string `json:"allowedNUMANodes,omitempty"`
	// ThreadSiblings are the SMT siblings of the measuring CPU, including itself.
	ThreadSiblings string   `json:"threadSiblings,omitempty"`
	Clocksource    string   `json:"clocksource,omitempty"`
	Interface      string   `json:"interface"` // carries the messages
	Address        string   `json:"address"`
	Addresses      []string `json:"addresses,omitempty"`
	MAC            string   `json:"mac,omitempty"` // such as 00:0f:53:4a:81:c0
	MTU            int32    `json:"mtu"`
	Driver         string   `json:"driver,omitempty"`
	Firmware       string   `json:"firmware,omitempty"`
	// PCIAddress is the interface's device: in sysfs with PCIFromSysfs; with an empty source the
	// parent's, or the only one that the pod was allocated.
	PCIAddress   string `json:"pciAddress,omitempty"`
	PCISource    string `json:"pciSource,omitempty"`
	AgentVersion string `json:"agentVersion,omitempty"`
	// AllocatedDevices are PCIDEVICE_* and SRIOVNETWORK_VF_DEVICE_* by name.
	AllocatedDevices map[string]string `json:"allocatedDevices,omitempty"`
	Paths            []Path            `json:"paths,omitempty"`
	// Facts are further conditions that could be read, by this package's Keys.
	Facts map[string]string `json:"facts,omitempty"`
	// Deltas are the DeltaKeys: events on this end while its tools ran.
	Deltas map[string]int64 `json:"deltas,omitempty"`
	// VoluntarySwitches and InvoluntarySwitches are of the tool's process, in all cells.
	VoluntarySwitches   int64 `json:"voluntarySwitches"`
	InvoluntarySwitches int64 `json:"involuntarySwitches"`
}

// VariableOfDriver begins the variables in which the SR-IOV driver of DRA passes VFs' addresses.
const VariableOfDriver = "SRIOVNETWORK_VF_DEVICE_"

const PCIFromSysfs = "sysfs"

// PCIAddress matches the names of functions on the PCI bus in sysfs.
var PCIAddress = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// bootsApart is the least difference of two boots, in ns: reading clocks takes time. madeUpApart is
// that with different boot IDs, which LXC makes up: its agents then read one kernel's boot.
const bootsApart, madeUpApart = 50_000_000, 100_000

// SameKernel reports whether two agents ran on one kernel. A boot ID may be hidden.
func SameKernel(a, b Evidence) bool {
	if a.BootID != "" && a.BootID == b.BootID {
		return true
	}
	if a.Kernel != b.Kernel {
		return false // regardless of the clocks, which count in whole seconds when a machine boots
	}
	least := int64(bootsApart)
	if a.BootID != "" && b.BootID != "" {
		least = madeUpApart
	}
	apart := a.BootedAt - b.BootedAt
	return a.BootedAt > 0 && b.BootedAt > 0 && -least < apart && apart < least
}
