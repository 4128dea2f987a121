package doctor

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/tailgate-dev/tailgate/internal/result"
)

// InspectionVersion is that of Inspection. A reader refuses any other: the bench image is then of another version than the
// command.
const InspectionVersion = 1

// Inspection is what the agent of an inspect pod saw.
type Inspection struct {
	Version int `json:"version"`
	// Evidence is as that of a benchmark's endpoint, of the first of the pod's CPUs and of one interface. Interface is
	// empty when the pod has none of the name that was asked for.
	Evidence result.Evidence `json:"evidence"`
	// NUMA are the CPUs of each of the machine's NUMA nodes, as lists such as 0-7,16-23, by the number of the node.
	NUMA map[string]string `json:"numa,omitempty"`
	// NICs are the machine's network cards, without their VFs.
	NICs []NIC `json:"nics,omitempty"`
	// Onload is what the container has of Onload.
	Onload Onload `json:"onload,omitzero"`
}

// NIC is a PF, or a network card that has no VFs, as the machine's PCI bus shows it.
type NIC struct {
	// PCIAddress is such as 0000:65:00.0, ID vendor:device, Driver the kernel's; the last may be empty.
	PCIAddress string `json:"pciAddress"`
	ID         string `json:"id"`
	Driver     string `json:"driver,omitempty"`
	// NUMANode is -1 when the firmware does not tell.
	NUMANode int32 `json:"numaNode"`
	// VFs is how many it has, TotalVFs how many it may have: 0 without SR-IOV.
	VFs      int32 `json:"vfs"`
	TotalVFs int32 `json:"totalVFs"`
}

// Onload is what a container has of Onload.
type Onload struct {
	// Preload is the container's LD_PRELOAD, as its device plugin sets it.
	Preload string `json:"preload,omitempty"`
	// Library is the path of the library where it is in the container, and empty where it is not.
	Library string `json:"library,omitempty"`
	// Devices are those of Onload's device files that the container has.
	Devices []string `json:"devices,omitempty"`
	// ControlPlane is the program by which the kernel module starts Onload's control plane on the node; empty: its own.
	ControlPlane string `json:"controlPlane,omitempty"`
}

const (
	// inspectionPrefix begins the line with the inspection on the pod's log.
	inspectionPrefix = "TAILGATE-INSPECTION "
	// maxInspection bounds that line, in bytes.
	maxInspection = 1 << 20
)

// Write writes an inspection as one line.
func (i Inspection) Write(w io.Writer) error {
	data, err := json.Marshal(i)
	if err != nil {
		return fmt.Errorf("encoding the inspection: %w", err)
	}
	if _, err := fmt.Fprintf(w, "%s%s\n", inspectionPrefix, data); err != nil {
		return fmt.Errorf("writing the inspection: %w", err)
	}
	return nil
}

// ReadInspection finds the inspection on the log of a pod.
func ReadInspection(log io.Reader) (Inspection, error) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, maxInspection)
	for lines.Scan() {
		data, found := strings.CutPrefix(lines.Text(), inspectionPrefix)
		if !found {
			continue
		}
		var i Inspection
		if err := json.Unmarshal([]byte(data), &i); err != nil {
			return Inspection{}, fmt.Errorf("reading the inspection: %w", err)
		}
		if i.Version != InspectionVersion {
			return Inspection{}, fmt.Errorf("reading the inspection: it is of version %d, and this command knows %d: use a bench image of the command's version", i.Version, InspectionVersion)
		}
		return i, nil
	}
	if err := lines.Err(); err != nil {
		return Inspection{}, fmt.Errorf("reading the inspection: %w", err)
	}
	return Inspection{}, fmt.Errorf("reading the inspection: the log has none: is the image a Tailgate bench image of this command's version?")
}
