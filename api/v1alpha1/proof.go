package v1alpha1

// The checks of an endpoint's proof, in the order of the status. An agent reports what it found inside the
// pod; this is compared with what the API server reports about the pod. Where two of them contradict each other nothing is
// proved.
const (
	// ProofCPUsExclusive is that the endpoint may use exactly as many CPUs as it asked for, by its affinity and by its
	// cpuset, that these are fewer than the node has, and that it measured on one of them. The kubelet gives such CPUs to no
	// other container.
	ProofCPUsExclusive = "CPUsExclusive"
	// ProofNUMALocal is that the measuring CPU is on the NUMA node of the interface's PCI device, by sysfs, or that the
	// node has only one. Of networks without such a device there is nothing to prove.
	ProofNUMALocal = "NUMALocal"
	// ProofCPUsOnNUMANode is that all CPUs of the endpoint are on one NUMA node, by sysfs.
	ProofCPUsOnNUMANode = "CPUsOnNUMANode"
	// ProofCPUIsolated notes whether the kernel keeps others (isolcpus) and its tick (nohz_full) off the measuring CPU.
	ProofCPUIsolated = "CPUIsolated"
	// ProofSMTSiblings is that no other container may run on the other CPUs of the measuring CPU's core: there are none, SMT is
	// off, or they are the endpoint's own.
	ProofSMTSiblings = "SMTSiblings"
	// ProofCPUQuota is that the endpoint's cgroup has no CFS quota, or that it was never used up while the tools ran.
	ProofCPUQuota = "CPUQuota"
	// ProofCaptureCPU is that packets were captured on another CPU than that which measured; of servers that capture.
	ProofCaptureCPU = "CaptureCPU"
	// ProofInterface is that the messages went over the interface asked for, from an address of its own. One that Multus
	// attached without a device also has the MAC address and the addresses that network-status tells.
	ProofInterface = "Interface"
	// ProofDevice is that the interface is the one device that was allocated. Its PCI address is known in three ways:
	// from PCIDEVICE_* in the environment, from sysfs behind the interface, and from network-status. All that are known
	// must agree, and two at least must be known; and the interface has the MAC address and the addresses that
	// network-status tells.
	ProofDevice = "Device"
	// ProofFunction is that the device is a VF or PF as asked, by sysfs, and of the PF that network-status tells. A VF on
	// a firmware variant that has none is a contradiction.
	ProofFunction = "Function"
	// ProofMTU is that the interface has the MTU asked for, or else that of the other end.
	ProofMTU = "MTU"
	// ProofLink is that the interface has a carrier and did not lose it while the tools ran.
	ProofLink = "Link"
	// ProofDriver, ProofFirmware and ProofFirmwareVariant note those of the NIC, and whether the other end has others.
	ProofDriver          = "Driver"
	ProofFirmware        = "Firmware"
	ProofFirmwareVariant = "FirmwareVariant"
	// ProofAcceleration is, with Onload, that the messages of every cell bypassed the kernel at this end; with Kernel, that
	// they all went through it. The counters of the endpoint's network namespace before and after each cell decide, held
	// against the number of messages; Onload's library in the memory of the tool's server, its banner, its stacks, its
	// descriptors, the counters of the interface and the word of the tool have to agree. In the network of the host, whose
	// counters are those of all its processes, it may remain unknown.
	ProofAcceleration = "Acceleration"
	// ProofPodUnchanged is that no admission webhook changed what the pod was made with, as far as it matters for the
	// measurement.
	ProofPodUnchanged = "PodUnchanged"
	// ProofImage notes the digest of the image that ran.
	ProofImage = "Image"
	// ProofHypervisor notes whether the node is a virtual machine.
	ProofHypervisor = "Hypervisor"
)
