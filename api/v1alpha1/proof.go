package v1alpha1

// The checks of an endpoint's proof, in the order of the status. An agent reports its findings inside the pod, and they
// are compared with the API server's data about the pod. If the two contradict each other, nothing is proved.
const (
	// ProofCPUsExclusive checks that the endpoint may use exactly as many CPUs as it requested, fewer than the node
	// has, that it measured on one of them, and that other threads took at most 1/100 of its time.
	ProofCPUsExclusive = "CPUsExclusive"
	// ProofNUMALocal checks that the measuring CPU is on the NUMA node of the interface's PCI device, by sysfs, or that
	// the node has only one NUMA node, and nothing says that it hides several.
	ProofNUMALocal = "NUMALocal"
	// ProofCPUsOnNUMANode checks that all CPUs of the endpoint are on one NUMA node, by sysfs.
	ProofCPUsOnNUMANode = "CPUsOnNUMANode"
	// ProofCPUIsolated notes whether the kernel keeps tasks (isolcpus) and its tick (nohz_full) off the measuring CPU.
	ProofCPUIsolated = "CPUIsolated"
	// ProofSMTSiblings checks that no other container may run on the other CPUs of the measuring CPU's core.
	ProofSMTSiblings = "SMTSiblings"
	// ProofCPUQuota checks that no CFS quota stopped the endpoint while the tools ran, and that a hypervisor withheld
	// the measuring CPU for at most 1/100 of the time.
	ProofCPUQuota = "CPUQuota"
	// ProofCaptureCPU checks that packets were captured on another CPU than the measuring CPU.
	ProofCaptureCPU = "CaptureCPU"
	// ProofInterface checks that the messages went over the requested interface, from an address of its own.
	ProofInterface = "Interface"
	// ProofDevice checks that the interface is the allocated device: at least two of environment, sysfs and
	// network-status know its PCI address, and all agree.
	ProofDevice = "Device"
	// ProofFunction checks that the device is a VF or PF as requested, and that a VF belongs to the right PF.
	ProofFunction = "Function"
	// ProofMTU checks that the interface has the requested MTU or, if none is requested, the MTU of the other end.
	ProofMTU = "MTU"
	// ProofLink checks that the interface has a carrier and did not lose it while the tools ran.
	ProofLink = "Link"
	// ProofDriver, ProofFirmware and ProofFirmwareVariant note these properties of the NIC, and whether the ends
	// differ.
	ProofDriver          = "Driver"
	ProofFirmware        = "Firmware"
	ProofFirmwareVariant = "FirmwareVariant"
	// ProofAcceleration checks that the messages of every cell bypassed the kernel with Onload, and with Kernel all
	// went through it, once. The counters of the network namespace decide.
	ProofAcceleration = "Acceleration"
	// ProofMessagesOnce checks, for round trips of datagrams without message numbers, that as many datagrams arrived at
	// this end as the other end sent.
	ProofMessagesOnce = "MessagesOnce"
	// ProofSendPath notes, with Onload, the sends by CTPIO, fallbacks to DMA and poisoned frames of the whole port.
	ProofSendPath = "SendPath"
	// ProofPodUnchanged checks that no admission webhook changed a part of the pod that matters for the measurement.
	ProofPodUnchanged = "PodUnchanged"
	// ProofImage notes the digest of the image that ran. It fails if ends with equal CPUs had different images.
	ProofImage = "Image"
	// ProofHypervisor notes whether the node is a virtual machine.
	ProofHypervisor = "Hypervisor"
)
