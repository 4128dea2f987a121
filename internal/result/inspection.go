package result

import (
	"encoding/json"
	"fmt"
	"io"
)

// InspectionVersion is that of Inspection. A reader refuses any other: the bench image is then of another version than the
// command.
const InspectionVersion = 1

// Inspection is what the agent of an inspect pod saw.
type Inspection struct {
	Version int `json:"version"`
	// Evidence is as that of a benchmark's endpoint, of the first of the pod's CPUs and of one interface. Interface is
	// empty when the pod has none of the name that was asked for.
	Evidence Evidence `json:"evidence"`
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

// Fact is a condition as the agent found it; empty where there is no inspection, or none of that condition.
func (i *Inspection) Fact(key string) string {
	if i == nil {
		return ""
	}
	return i.Evidence.Facts[key]
}

// Virtual says whether the machine is known to be a virtual one.
func (i *Inspection) Virtual() bool { return i.Fact("cpu.hypervisor") == "yes" }

// frameInspection names the frame of an inspection.
const frameInspection = "inspection"

// Write frames an inspection on a log.
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

// ReadInspection finds the inspection on the log of a pod.
func ReadInspection(log io.Reader) (Inspection, error) {
	i, err := readFrame(log, frameInspection, InspectionVersion, func(content []byte, digest string) (i Inspection, err error) {
		err = inflate(content, digest, InspectionVersion, &i)
		return i, err
	})
	if err != nil {
		return Inspection{}, fmt.Errorf("reading the inspection: %w; is the image a Tailgate bench image?", err)
	}
	return i, nil
}
