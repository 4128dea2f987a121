package v1alpha1

// The checks of an endpoint's proof, in the order of the status. An agent reports its findings inside the
// pod, and they are compared with the API server's data about the pod. If the two contradict each other, nothing is
// proved.
const (
	// ProofCPUsExclusive checks that the endpoint may use exactly as many CPUs as it requested, by its affinity and by its
	// cpuset, that these are fewer than the node has, and that it measured on one of them. The kubelet gives such CPUs to no
	// other container. It also checks that other threads ran on the measuring CPU for at most 1/100 of the time, or, if the
	// kernel does not count them, that the tool waited for it for at most 1/100.
	ProofCPUsExclusive = "CPUsExclusive"
	// ProofNUMALocal checks that the measuring CPU is on the NUMA node of the interface's PCI device, by sysfs, or that the
	// node has only one NUMA node, and nothing says that it hides several (sockets, boot arguments, a hypervisor). For networks without such a device there is nothing to prove.
	ProofNUMALocal = "NUMALocal"
	// ProofCPUsOnNUMANode checks that all CPUs of the endpoint are on one NUMA node, by sysfs.
	ProofCPUsOnNUMANode = "CPUsOnNUMANode"
	// ProofCPUIsolated notes whether the kernel keeps other tasks (isolcpus) and its tick (nohz_full) off the measuring CPU.
	ProofCPUIsolated = "CPUIsolated"
	// ProofSMTSiblings checks that no other container may run on the other CPUs of the measuring CPU's core: there are none,
	// SMT is off, or they are the endpoint's own. A virtual machine that shows none proves nothing.
	ProofSMTSiblings = "SMTSiblings"
	// ProofCPUQuota checks that no CFS quota, of its cgroup or of one above, stopped the endpoint while the tools ran, and that a
	// hypervisor withheld the measuring CPU for at most 1/100 of the time.
	ProofCPUQuota = "CPUQuota"
	// ProofCaptureCPU checks that packets were captured on another CPU than the measuring CPU; only for servers that capture.
	ProofCaptureCPU = "CaptureCPU"
	// ProofInterface checks that the messages went over the requested interface, from an address of its own. An interface
	// that Multus attached without a device must also have the MAC address and the addresses in network-status.
	ProofInterface = "Interface"
	// ProofDevice checks that the interface is the one device that was allocated. Its PCI address is known from three sources:
	// PCIDEVICE_* in the environment, sysfs behind the interface, and network-status. All known addresses must agree,
	// and at least two must be known; and the interface must have the MAC address and the addresses in network-status.
	ProofDevice = "Device"
	// ProofFunction checks that the device is a VF or PF as requested, by sysfs, and that a VF belongs to the PF in
	// network-status. A VF on a firmware variant without VFs is a contradiction.
	ProofFunction = "Function"
	// ProofMTU checks that the interface has the requested MTU or, if none is requested, the MTU of the other end.
	ProofMTU = "MTU"
	// ProofLink checks that the interface has a carrier and did not lose it while the tools ran.
	ProofLink = "Link"
	// ProofDriver, ProofFirmware and ProofFirmwareVariant note these properties of the NIC, and whether the other end differs.
	ProofDriver          = "Driver"
	ProofFirmware        = "Firmware"
	ProofFirmwareVariant = "FirmwareVariant"
	// ProofAcceleration checks, with Onload, that the messages of every cell bypassed the kernel at this end; with Kernel, that
	// they all went through it, once. The counters of the endpoint's network namespace before and after each cell decide, compared
	// with the number of messages; Onload's library in the memory of the tool's server, its banner, its stacks, its
	// descriptors, the counters of the interface and the tool's own report must agree. In the network of the host, whose
	// counters include all processes of the host, the result may remain unknown.
	ProofAcceleration = "Acceleration"
	// ProofMessagesOnce checks, for round trips of datagrams without message numbers (sfnt-pingpong and netperf), that as many
	// datagrams arrived at this end as the other end sent: after one that arrives twice, such a tool takes each answer for that
	// to its next message. The kernel's counters at both ends decide; in the network of the host, and for messages that bypass
	// the kernel, this remains unknown.
	ProofMessagesOnce = "MessagesOnce"
	// ProofSendPath notes, with Onload, what the driver counted of CTPIO, the send path of Solarflare NICs with the lowest latency,
	// while the tools ran: successful sends, fallbacks to DMA and poisoned frames. These are counters of the whole port and of all
	// its programs.
	ProofSendPath = "SendPath"
	// ProofPodUnchanged checks that no admission webhook changed a part of the pod that matters for the measurement.
	ProofPodUnchanged = "PodUnchanged"
	// ProofImage notes the digest of the image that ran. It fails if ends with equal CPUs had different images.
	ProofImage = "Image"
	// ProofHypervisor notes whether the node is a virtual machine.
	ProofHypervisor = "Hypervisor"
)
