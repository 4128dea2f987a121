package v1alpha1

// +kubebuilder:validation:Enum=Pod;Host;VF;PF;NAD
type NetworkType string

const (
	NetworkPod  NetworkType = "Pod"
	NetworkHost NetworkType = "Host"
	NetworkVF   NetworkType = "VF"
	NetworkPF   NetworkType = "PF"
	NetworkNAD  NetworkType = "NAD"
)

// Attached reports whether Multus attaches the network to the pods, in addition to the primary one.
func (t NetworkType) Attached() bool { return t.HasDevice() || t == NetworkNAD }

// HasDevice reports whether the network is a device of its own, which a device plugin gives to the pod.
func (t NetworkType) HasDevice() bool { return t == NetworkVF || t == NetworkPF }

// Network is the network between client and server: a union whose type selects the one member that is set.
// +union
// +kubebuilder:validation:XValidation:rule="(self.type == 'VF') == has(self.vf)",message="vf belongs to type VF, which requires it: give vf.resourceName and vf.networkRef or vf.ipam, or remove vf"
// +kubebuilder:validation:XValidation:rule="(self.type == 'PF') == has(self.pf)",message="pf belongs to type PF, which requires it: give pf.resourceName and pf.networkRef or pf.ipam, or remove pf"
// +kubebuilder:validation:XValidation:rule="(self.type == 'NAD') == has(self.nad)",message="nad belongs to type NAD, which requires it: give nad.networkRef, or remove nad"
// +kubebuilder:validation:XValidation:rule="self.type == 'Host' || !has(self.host)",message="host belongs to type Host: set type: Host, or remove host"
type Network struct {
	// type is Pod (primary), Host (the node's own, by --allow-host-network), VF or PF (SR-IOV), or NAD (without a device).
	// +unionDiscriminator
	// +required
	Type NetworkType `json:"type"`

	// host has the settings of type Host.
	// +unionMember
	Host *HostNetwork `json:"host,omitempty"`

	// vf has the settings of type VF.
	// +unionMember
	VF *VFNetwork `json:"vf,omitempty"`

	// pf has the settings of type PF.
	// +unionMember
	PF *PFNetwork `json:"pf,omitempty"`

	// nad has the settings of type NAD.
	// +unionMember
	NAD *NADNetwork `json:"nad,omitempty"`
}

// HostNetwork has the settings of the node's own network.
type HostNetwork struct {
	// interface is the interface of the node that is measured; default the interface with the node's address.
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[^/\s:]{1,15}$`
	Interface string `json:"interface,omitempty"`

	Alignment `json:",inline"`
}

// Alignment ties the CPUs of pods without a device of the network to the NIC.
type Alignment struct {
	// alignWith is an extended resource of the NIC. Each pod requests a device, unused, to get CPUs of its NUMA node.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="must be a resource name with its prefix, such as openshift.io/sf_x2_vf"
	AlignWith string `json:"alignWith,omitempty"`
}

// DeviceNetwork has the common settings of networks of types VF and PF.
// +kubebuilder:validation:XValidation:rule="has(self.networkRef) != has(self.ipam)",message="give exactly one of networkRef, an existing NetworkAttachmentDefinition, and ipam, with which the operator creates one"
// +kubebuilder:validation:XValidation:rule="has(self.ipam) || !has(self.mtu)",message="mtu is for networks that the operator creates: give ipam, or set the MTU in the NetworkAttachmentDefinition"
type DeviceNetwork struct {
	// resourceName is the extended resource of the VFs or PFs, such as openshift.io/sf_x2_vf, of a device plugin or a
	// DeviceClass. networkRef's annotation k8s.v1.cni.cncf.io/resourceName must equal it.
	// +required
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="must be a resource name with its prefix, such as openshift.io/sf_x2_vf"
	ResourceName string `json:"resourceName"`

	// networkRef names the NetworkAttachmentDefinition that Multus attaches to both pods as net1.
	NetworkRef *NetworkRef `json:"networkRef,omitempty"`

	// ipam is the source of addresses of a network that the operator creates by CNI plugin sriov (VF) or host-device (PF).
	IPAM *IPAM `json:"ipam,omitempty"`

	// mtu is the MTU of a network that the operator creates, in bytes; default the device's own.
	// +kubebuilder:validation:Minimum=576
	// +kubebuilder:validation:Maximum=9600
	MTU int32 `json:"mtu,omitempty"`
}

// VFNetwork has the settings of a network of SR-IOV virtual functions.
// +kubebuilder:validation:XValidation:rule="has(self.ipam) || !has(self.vlan)",message="vlan is for networks that the operator creates: give ipam, or set the VLAN in the NetworkAttachmentDefinition"
type VFNetwork struct {
	DeviceNetwork `json:",inline"`

	// vlan is the VLAN of the frames of the VF, 1 to 4094, in a network that the operator creates; default none.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	VLAN int32 `json:"vlan,omitempty"`
}

// PFNetwork has the settings of a network of whole physical functions.
type PFNetwork struct {
	DeviceNetwork `json:",inline"`
}

// NADNetwork has the settings of an attached network without a device.
type NADNetwork struct {
	// networkRef names the NetworkAttachmentDefinition that Multus attaches to both pods as net1.
	// +required
	NetworkRef NetworkRef `json:"networkRef"`

	Alignment `json:",inline"`
}

// device returns the settings that VFs and PFs have in common, empty for other networks.
func (n *Network) device() DeviceNetwork {
	switch {
	case n.VF != nil:
		return n.VF.DeviceNetwork
	case n.PF != nil:
		return n.PF.DeviceNetwork
	}
	return DeviceNetwork{}
}

func (n *Network) ResourceName() string { return n.device().ResourceName }

func (n *Network) AlignWith() string {
	switch {
	case n.Host != nil:
		return n.Host.AlignWith
	case n.NAD != nil:
		return n.NAD.AlignWith
	}
	return ""
}

func (n *Network) IPAM() *IPAM { return n.device().IPAM }

func (n *Network) MTU() int32 { return n.device().MTU }

func (n *Network) NetworkRef() *NetworkRef {
	if n.NAD != nil {
		return &n.NAD.NetworkRef
	}
	return n.device().NetworkRef
}

func (n *Network) Interface() string {
	if n.Host == nil {
		return ""
	}
	return n.Host.Interface
}

type NetworkRef struct {
	// name is the NetworkAttachmentDefinition's name.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the name of a NetworkAttachmentDefinition alone: its namespace is networkRef.namespace, and the interface is always net1"
	Name string `json:"name"`

	// namespace is the NetworkAttachmentDefinition's namespace; default the benchmark's own.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace,omitempty"`
}

// +kubebuilder:validation:Enum=Static;Whereabouts
type IPAMType string

const (
	IPAMStatic      IPAMType = "Static"
	IPAMWhereabouts IPAMType = "Whereabouts"
)

// IPAM is the source of the addresses of a network that the operator creates.
// +kubebuilder:validation:XValidation:rule="!has(self.rangeStart) || cidr(self.range).containsIP(self.rangeStart)",message="rangeStart must be an address of range"
type IPAM struct {
	// type is Static (the operator itself assigns two addresses of the range) or Whereabouts.
	// +required
	Type IPAMType `json:"type"`

	// range is the subnet, such as 192.168.40.0/24 or fd00:40::/64.
	// +required
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self).masked() == cidr(self) && cidr(self).prefixLength() <= (cidr(self).ip().family() == 4 ? 30 : 126)",message="must be a subnet with room for two addresses, such as 192.168.40.0/24"
	Range string `json:"range"`

	// rangeStart is the first address to assign; default the second of the range.
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an IP address"
	RangeStart string `json:"rangeStart,omitempty"`
}

// AccelerationType names the network stack that carries the tools' messages.
// +kubebuilder:validation:Enum=Kernel;Onload
type AccelerationType string

const (
	AccelerationKernel AccelerationType = "Kernel"
	AccelerationOnload AccelerationType = "Onload"
)

// OnloadProfile names a set of Onload's settings that comes with Tailgate.
// +kubebuilder:validation:Enum=latency;latency-best
type OnloadProfile string

// The built-in profiles. Their names are those of Onload's own profiles.
const (
	// OnloadProfileLatency polls for 100 ms before it sleeps, and does without TCP's fast start.
	OnloadProfileLatency OnloadProfile = "latency"
	// OnloadProfileLatencyBest is latency with EF_CTPIO_SWITCH_BYPASS=1 (full-feature firmware) and EF_EPOLL_MT_SAFE=1.
	OnloadProfileLatencyBest OnloadProfile = "latency-best"
)

// +kubebuilder:validation:Enum=DevicePlugin;Image
type OnloadSource string

const (
	OnloadFromDevicePlugin OnloadSource = "DevicePlugin"
	OnloadFromImage        OnloadSource = "Image"
)

// Acceleration is the network stack of the tools' sockets: a union whose type selects the one member that may be set.
// +union
// +kubebuilder:validation:XValidation:rule="self.type == 'Onload' || !has(self.onload)",message="onload belongs to type Onload: set type: Onload, or remove onload"
type Acceleration struct {
	// type is Kernel or Onload.
	// +unionDiscriminator
	// +required
	Type AccelerationType `json:"type"`

	// onload has the settings of type Onload.
	// +unionMember
	Onload *Onload `json:"onload,omitempty"`
}

// +kubebuilder:validation:XValidation:rule="!has(self.profile) || !has(self.profileRef)",message="give profile or profileRef, not both"
type Onload struct {
	// profile is latency, or latency-best, which sends by CTPIO, too; default, without profileRef, Onload's defaults.
	Profile OnloadProfile `json:"profile,omitempty"`

	// profileRef names a ConfigMap of the namespace whose keys are Onload's settings, such as EF_POLL_USEC.
	ProfileRef *ObjectName `json:"profileRef,omitempty"`

	// resourceName is the extended resource that gives a pod Onload's devices; default amd.com/onload.
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="must be a resource name with its prefix, such as amd.com/onload"
	ResourceName string `json:"resourceName,omitempty"`

	// source is the source of the Onload library: DevicePlugin (default), or Image, the bench image.
	Source OnloadSource `json:"source,omitempty"`

	// library is its path in the pod; default /opt/onload/usr/lib64/libonload.so, with source Image the linker's choice.
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^/[A-Za-z0-9._/+-]+/lib(onload([.-][A-Za-z0-9._+-]*)?|citransport[A-Za-z0-9._+-]*)$')",message="must be the absolute path of Onload's library, such as /usr/lib64/libonload.so, or libcitransport0.so as it is built; libonload_ext and libonload_zf are other libraries"
	Library string `json:"library,omitempty"`
}

func (a *Acceleration) OnloadSettings() Onload {
	if a == nil || a.Onload == nil {
		return Onload{}
	}
	return *a.Onload
}
