package v1alpha1

// The checks of an endpoint's proof, in order. A contradiction between the agent and the API server proves nothing.
const (
	ProofCPUsExclusive   = "CPUsExclusive"  // has just the requested CPUs; others took at most 1/100 of the time
	ProofNUMALocal       = "NUMALocal"      // the measuring CPU is on the NUMA node of the interface's device
	ProofCPUsOnNUMANode  = "CPUsOnNUMANode" // all CPUs of the endpoint are on one NUMA node
	ProofCPUIsolated     = "CPUIsolated"    // notes isolcpus and nohz_full of the measuring CPU
	ProofSMTSiblings     = "SMTSiblings"    // no other container may run on the measuring CPU's core
	ProofCPUQuota        = "CPUQuota"       // no CFS quota stopped it; a hypervisor took at most 1/100 of the time
	ProofCaptureCPU      = "CaptureCPU"     // packets were captured on another CPU than the measuring CPU
	ProofInterface       = "Interface"      // messages went over the requested interface, from its own address
	ProofDevice          = "Device"         // two of environment, sysfs and network-status know the device; all agree
	ProofFunction        = "Function"       // a VF or PF as requested, and a VF of the right PF
	ProofMTU             = "MTU"            // the requested MTU or, if none is requested, that of the other end
	ProofLink            = "Link"           // the interface has a carrier, and kept it while the tools ran
	ProofDriver          = "Driver"         // notes the driver, the next two the firmware, and whether ends differ
	ProofFirmware        = "Firmware"
	ProofFirmwareVariant = "FirmwareVariant"
	ProofAcceleration    = "Acceleration" // by counters: Onload bypassed the kernel, or all went through it once
	ProofMessagesOnce    = "MessagesOnce" // as many datagrams without numbers arrived as the other end sent
	ProofSendPath        = "SendPath"     // notes sends by CTPIO, fallbacks to DMA and poisoned frames of the port
	ProofPodUnchanged    = "PodUnchanged" // no admission webhook changed what matters for the measurement
	ProofImage           = "Image"        // notes the image's digest; fails if ends with equal CPUs differ in it
	ProofHypervisor      = "Hypervisor"   // notes whether the node is a virtual machine
)
