package v1alpha1

// NetworkType names a way to the peer.
// +kubebuilder:validation:Enum=Pod;Host;VF;PF;NAD
type NetworkType string

// The network types.
const (
	// NetworkPod is the cluster's primary pod network.
	NetworkPod NetworkType = "Pod"
	// NetworkHost is the node's own network namespace. Benchmark pods then run with hostNetwork, which the
	// operator refuses unless it was started with --allow-host-network.
	NetworkHost NetworkType = "Host"
	// NetworkVF is an SR-IOV virtual function, taken from a device plugin and attached by Multus.
	NetworkVF NetworkType = "VF"
	// NetworkPF is a whole physical function, taken from a device plugin and attached by Multus.
	NetworkPF NetworkType = "PF"
	// NetworkNAD is an interface that Multus attaches from a NetworkAttachmentDefinition without a device of its own,
	// such as macvlan or ipvlan.
	NetworkNAD NetworkType = "NAD"
)

// Attached says whether a network is attached to the pods by Multus, beside the primary one.
func (t NetworkType) Attached() bool { return t.HasDevice() || t == NetworkNAD }

// HasDevice says whether a network is a device of its own, which a device plugin gives to the pod.
func (t NetworkType) HasDevice() bool { return t == NetworkVF || t == NetworkPF }

// Network is the way from client to server.
//
// +kubebuilder:validation:XValidation:rule="!(self.type in ['VF', 'PF']) || has(self.resourceName)",message="resourceName is required when type is VF or PF: name the device plugin's resource, such as amd.com/sf_vf"
// +kubebuilder:validation:XValidation:rule="!(self.type in ['VF', 'PF']) || has(self.networkRef) != has(self.ipam)",message="a network of type VF or PF needs either networkRef, an existing NetworkAttachmentDefinition, or ipam, with which the operator makes one; give exactly one"
// +kubebuilder:validation:XValidation:rule="self.type != 'NAD' || has(self.networkRef)",message="networkRef is required when type is NAD: name the NetworkAttachmentDefinition to attach"
// +kubebuilder:validation:XValidation:rule="self.type in ['VF', 'PF', 'NAD'] || !has(self.networkRef)",message="networkRef belongs to types VF, PF and NAD; remove it or set type"
// +kubebuilder:validation:XValidation:rule="self.type in ['VF', 'PF'] || !has(self.resourceName)",message="resourceName belongs to types VF and PF; remove it or set type"
// +kubebuilder:validation:XValidation:rule="self.type in ['VF', 'PF'] || !has(self.ipam)",message="ipam belongs to types VF and PF, of which the operator can make the network; remove it or set type"
// +kubebuilder:validation:XValidation:rule="has(self.ipam) || !has(self.mtu)",message="mtu belongs to networks that the operator makes: give ipam, or set the MTU in the NetworkAttachmentDefinition"
// +kubebuilder:validation:XValidation:rule="has(self.ipam) || !has(self.vlan)",message="vlan belongs to networks that the operator makes: give ipam, or set the VLAN in the NetworkAttachmentDefinition"
// +kubebuilder:validation:XValidation:rule="self.type == 'VF' || !has(self.vlan)",message="vlan belongs to type VF, whose PF tags its frames; remove it"
// +kubebuilder:validation:XValidation:rule="self.type == 'Host' || !has(self.interface)",message="interface belongs to type Host; attached networks are always net1"
type Network struct {
	// type is Pod (the primary network), Host (the node's own, needs --allow-host-network), VF or PF (a device of
	// its own from resourceName), or NAD (an attached network without a device, such as macvlan or ipvlan); default Pod.
	// +optional
	// +kubebuilder:default=Pod
	Type NetworkType `json:"type,omitempty"`

	// interface is, with type Host, the node's interface that is measured; default the one with the node's address.
	// +optional
	// +kubebuilder:validation:Pattern=`^[^/\s:]{1,15}$`
	Interface string `json:"interface,omitempty"`

	// networkRef names the NetworkAttachmentDefinition that Multus attaches to both pods as net1.
	// +optional
	NetworkRef *NetworkRef `json:"networkRef,omitempty"`

	// resourceName is the extended resource that gives a VF or PF, with its prefix, such as amd.com/sf_vf: a device plugin
	// advertises it, or a DeviceClass has it as extendedResourceName. One is requested for each pod. It must equal the
	// annotation k8s.v1.cni.cncf.io/resourceName of the NetworkAttachmentDefinition.
	// +optional
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="must be a resource name with its prefix, such as amd.com/sf_vf"
	ResourceName string `json:"resourceName,omitempty"`

	// ipam makes the operator make the NetworkAttachmentDefinition, in the benchmark's namespace and gone with it: for a
	// VF with the CNI plugin sriov, for a PF with host-device. It says where the addresses come from.
	// +optional
	IPAM *IPAM `json:"ipam,omitempty"`

	// mtu is the MTU that a network made by the operator gets, in bytes; default the device's own.
	// +optional
	// +kubebuilder:validation:Minimum=576
	// +kubebuilder:validation:Maximum=9600
	MTU int32 `json:"mtu,omitempty"`

	// vlan is the VLAN into which the PF puts a VF of a network made by the operator, 1 to 4094; default none.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4094
	VLAN int32 `json:"vlan,omitempty"`
}

// NetworkRef names a NetworkAttachmentDefinition.
type NetworkRef struct {
	// name is the NetworkAttachmentDefinition's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// namespace is the NetworkAttachmentDefinition's namespace; default the benchmark's own.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// IPAMType says who gives addresses.
// +kubebuilder:validation:Enum=Static;Whereabouts
type IPAMType string

// The IPAM types.
const (
	// IPAMStatic is for addresses that the operator assigns: the first of the range to the server, the next to the
	// client. Reserve the range for this benchmark. It needs the CNI plugin static.
	IPAMStatic IPAMType = "Static"
	// IPAMWhereabouts is for addresses from the IPAM plugin whereabouts, which gives each once in the whole cluster.
	IPAMWhereabouts IPAMType = "Whereabouts"
)

// IPAM says where the addresses of a network come from that the operator makes.
//
// +kubebuilder:validation:XValidation:rule="!has(self.rangeStart) || cidr(self.range).containsIP(self.rangeStart)",message="rangeStart must be an address of range"
type IPAM struct {
	// type is Static (the operator gives two addresses of the range itself) or Whereabouts.
	// +required
	Type IPAMType `json:"type"`

	// range is the subnet, such as 192.168.40.0/24 or fd00:40::/64.
	// +required
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self).masked() == cidr(self) && cidr(self).prefixLength() <= (cidr(self).ip().family() == 4 ? 30 : 126)",message="must be a subnet with room for two addresses, such as 192.168.40.0/24"
	Range string `json:"range"`

	// rangeStart is the first address to be given; default the second of the range.
	// +optional
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="must be an IP address"
	RangeStart string `json:"rangeStart,omitempty"`
}

// AccelerationType says who carries the tools' messages.
// +kubebuilder:validation:Enum=Kernel;Onload
type AccelerationType string

// The acceleration types.
const (
	// AccelerationKernel is the kernel's own network stack.
	AccelerationKernel AccelerationType = "Kernel"
	// AccelerationOnload is AMD's Onload, which serves the sockets of a process in user space.
	AccelerationOnload AccelerationType = "Onload"
)

// OnloadProfile names a set of Onload's settings that comes with Tailgate.
// +kubebuilder:validation:Enum=latency
type OnloadProfile string

// OnloadProfileLatency is Onload's own profile of that name: it polls for 100 ms before it sleeps, and does without TCP's
// fast start.
const OnloadProfileLatency OnloadProfile = "latency"

// OnloadSource says where the Onload library comes from.
// +kubebuilder:validation:Enum=DevicePlugin;Image
type OnloadSource string

// The sources of Onload.
const (
	// OnloadFromDevicePlugin is for the library that the device plugin of AMD's Onload operator mounts.
	OnloadFromDevicePlugin OnloadSource = "DevicePlugin"
	// OnloadFromImage is for a library in the bench image. Onload's devices still come from the device plugin.
	OnloadFromImage OnloadSource = "Image"
)

// Acceleration is how the tools' sockets work.
//
// +kubebuilder:validation:XValidation:rule="self.type == 'Onload' || !has(self.profile) && !has(self.profileRef) && !has(self.resourceName) && !has(self.source) && !has(self.library)",message="profile, profileRef, resourceName, source and library belong to type Onload; remove them or set type: Onload"
// +kubebuilder:validation:XValidation:rule="!has(self.profile) || !has(self.profileRef)",message="give profile or profileRef, not both"
type Acceleration struct {
	// type is Kernel or Onload.
	// +required
	Type AccelerationType `json:"type"`

	// profile is a set of Onload's settings: latency. Absent, as profileRef: Onload's defaults.
	// +optional
	Profile OnloadProfile `json:"profile,omitempty"`

	// profileRef names a ConfigMap in the benchmark's namespace whose keys are Onload's settings, EF_POLL_USEC and so
	// on, with their values.
	// +optional
	ProfileRef *ProfileRef `json:"profileRef,omitempty"`

	// resourceName is the extended resource that gives a pod Onload's devices; default amd.com/onload.
	// +optional
	// +kubebuilder:validation:MinLength=3
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",message="must be a resource name with its prefix, such as amd.com/onload"
	ResourceName string `json:"resourceName,omitempty"`

	// source is where the Onload library comes from: DevicePlugin (default), which mounts it into the pod, or Image,
	// the bench image.
	// +optional
	Source OnloadSource `json:"source,omitempty"`

	// library is the path of the library in the pod. Default, with source DevicePlugin:
	// /opt/onload/usr/lib64/libonload.so, where AMD's device plugin mounts it unless the Onload resource says otherwise;
	// with source Image: wherever the dynamic linker finds libonload.so.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	// +kubebuilder:validation:XValidation:rule="self.matches('^/[A-Za-z0-9._/+-]+/libonload[A-Za-z0-9._+-]*$')",message="must be the absolute path of a library whose name begins with libonload"
	Library string `json:"library,omitempty"`
}

// ProfileRef names a ConfigMap of Onload's settings.
type ProfileRef struct {
	// name is the ConfigMap's name.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}
