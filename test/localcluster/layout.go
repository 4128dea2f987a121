package localcluster

import (
	"fmt"
	"path/filepath"
)

// Addresses are from the range that RFC 2544 reserves for benchmarks, which no production network should use.
const (
	prefixLength = 24
	serviceIP    = "10.96.0.1"
	serviceCIDR  = "10.96.0.0/16"
	// dnsIP is not served: there is no DNS in the cluster. Without an address, the kubelet would warn about each pod.
	dnsIP         = "10.96.0.10"
	apiServerPort = 443
)

// fabricBridge is the cable between the cards, in a network namespace of its own.
const fabricBridge = "fabric"

// site is a cluster's Number. The names and addresses of two clusters differ, so that they can run side by side.
type site int

// name returns the name of a part of the cluster on this machine. All of them have the cluster's prefix.
func (s site) name(what string) string {
	if s == 0 {
		return "tailgate-" + what
	}
	return fmt.Sprintf("tailgate%d-%s", s, what)
}

func (s site) controlPlaneNetns() string { return s.name("cp") }
func (s site) fabricNetns() string       { return s.name("fabric") }
func (s site) cgroupPrefix() string      { return s.name("node-") }

// cgroups are the names of the nodes' cgroups. Others can begin like them.
func (s site) cgroups() []string { return []string{s.cgroupPrefix() + "a", s.cgroupPrefix() + "b"} }

// hostLink is the only link of the cluster on the host.
func (s site) hostLink() string { return fmt.Sprintf("tailgate%d", s) }

// ip returns an address in the subnet of the control plane and the nodes (0), or in the subnet of a node's pods.
func (s site) ip(subnet, last int) string { return fmt.Sprintf("198.19.%d.%d", 4*int(s)+subnet, last) }

func (s site) controlPlaneIP() string { return s.ip(0, 1) }
func (s site) hostIP() string         { return s.ip(0, 2) }

func (s site) netnsNames() []string {
	return []string{s.controlPlaneNetns(), s.fabricNetns(), s.name("a"), s.name("b")}
}

// MTUs in bytes. Every interface starts with mtu, except the PFs with VFs: these and the fabric carry larger packets, as
// the cable between two cards does, for interfaces that a network attachment gives a larger MTU.
const (
	mtu       = 1500
	fabricMTU = 9000
)

// node is one of the two Kubernetes nodes.
type node struct {
	site site
	// Name is the name of the Node object.
	Name string
	// Letter is a or b.
	Letter string
	IP     string
	// PodGateway is the first address of PodCIDR.
	PodCIDR, PodGateway string
	// Reserved CPUs are withheld from pods, Exclusive CPUs are given to them.
	Reserved, Exclusive []int
	// NearNUMA is the NUMA node of the exclusive CPUs and of the first card, FarNUMA is the other one.
	NearNUMA, FarNUMA int
	// Guest marks a node of the lab.
	Guest bool
	// Components marks a guest with a site's own CNI and device plugins.
	Components bool
	// WholeCores makes the kubelet allocate only whole cores to pods.
	WholeCores bool
}

// nodes returns the two nodes on a machine whose NUMA nodes, as shown to the kubelets, have the given CPUs.
func (s site) nodes(numa [2][]int) []node {
	first, second := "node-a", "node-b"
	if s == workersSite {
		first, second = "worker-1", "worker-2"
	}
	return []node{
		{
			site: s, Name: first, Letter: "a", IP: s.ip(0, 11), PodCIDR: s.ip(1, 0) + "/24", PodGateway: s.ip(1, 1),
			Reserved: numa[0], Exclusive: numa[1], NearNUMA: 1, FarNUMA: 0,
		},
		{
			site: s, Name: second, Letter: "b", IP: s.ip(0, 12), PodCIDR: s.ip(2, 0) + "/24", PodGateway: s.ip(2, 1),
			Reserved: numa[1], Exclusive: numa[0], NearNUMA: 0, FarNUMA: 1,
		},
	}
}

func (n node) netns() string { return n.site.name(n.Letter) }

// cgroup returns the parent of the cgroups of all pods of the node.
func (n node) cgroup() string {
	if n.Guest {
		return "" // it has a machine of its own
	}
	return n.site.cgroupPrefix() + n.Letter
}

// nic is a PF or a VF.
type nic struct {
	// Name of the network device on the node.
	Name string
	// BDF is the PCI address.
	BDF  string
	NUMA int
	MTU  int
	// MAC is the hardware address. An agent uses it to find the device of an interface in sysfs.
	MAC string
	// VFs are the virtual functions of a PF.
	VFs []nic
}

// port returns the name of the fabric's port that a PF or VF of the node is plugged into.
func (n node) port(device nic) string { return n.Letter + "-" + device.Name }

// maxVFs is the maximum number of VFs of a card.
const maxVFs = 4

// nics returns the cards of a node: three beside its exclusive CPUs, the first and the last with VFs, and one with VFs on the
// other NUMA node.
func (n node) nics() []nic {
	if n.Guest {
		return []nic{n.card("ens1f0", "3b", n.NearNUMA, guestVFs), n.card("ens3f0", "86", n.NearNUMA, 0)}
	}
	return []nic{
		n.card("ens1f0", "3b", n.NearNUMA, maxVFs), n.card("ens2f0", "5e", n.FarNUMA, maxVFs), n.card("ens3f0", "86", n.NearNUMA, 0),
		n.card("ens4f0", "d8", n.NearNUMA, maxVFs),
	}
}

func (n node) card(name, bus string, numa, vfs int) nic {
	// Locally administered addresses; those of the two nodes differ in the letter.
	mac := func(function int) string { return fmt.Sprintf("02:00:00:%x:%s:%02x", n.Letter, bus, function) }
	pf := nic{Name: name, BDF: fmt.Sprintf("0000:%s:00.0", bus), NUMA: numa, MTU: mtu, MAC: mac(0)}
	for i := range vfs {
		pf.MTU = fabricMTU
		pf.VFs = append(pf.VFs, nic{
			Name: fmt.Sprintf("%sv%d", name, i),
			BDF:  fmt.Sprintf("0000:%s:02.%d", bus, i),
			NUMA: numa,
			MTU:  mtu,
			MAC:  mac(i + 1),
		})
	}
	return pf
}

// pool is a resource that a node's device plugin advertises.
type pool struct {
	Resource string
	Devices  []nic
	// NoHint leaves the NUMA nodes of the devices out, as excludeTopology of the SR-IOV device plugin does.
	NoHint bool
}

// claimable returns the VFs that no device plugin advertises, with their PF: pods receive them by Dynamic Resource Allocation.
func (n node) claimable() (pf nic, vfs []nic) { pf = n.nics()[3]; return pf, pf.VFs[:maxVFs/2] }

// fragile returns the other VFs of the same card. Their device plugin exits when interfaces move.
func (n node) fragile() pool {
	return pool{Resource: ResourceFragile, Devices: n.nics()[3].VFs[maxVFs/2:], NoHint: true}
}

// pools returns the resources with the other devices. Each device is in one pool at most. PFs with VFs are in none, because the
// SR-IOV device plugin never offers them.
func (n node) pools() []pool {
	cards := n.nics()
	if n.Guest {
		return []pool{{Resource: ResourceVF, Devices: cards[0].VFs}, {Resource: ResourcePF, Devices: cards[1:]}}
	}
	far, near := cards[1].VFs, ResourceVF
	if n.site == workersSite {
		near = ResourceX2
	}
	return []pool{
		{Resource: near, Devices: cards[0].VFs},
		{Resource: ResourceVFFar, Devices: far[:maxVFs/2]},
		{Resource: ResourceVFNoHint, Devices: far[maxVFs/2:], NoHint: true},
		{Resource: ResourcePF, Devices: cards[2:3]},
	}
}

// paths holds the state folder of a cluster and returns the paths in it.
type paths struct {
	state string
	site
}

func (p paths) join(elem ...string) string {
	return filepath.Join(append([]string{p.state}, elem...)...)
}

func (p paths) pki(name string) string        { return p.join("pki", name) }
func (p paths) kubeconfig(user string) string { return p.join(user + ".kubeconfig") }
func (p paths) log(process string) string     { return p.join("logs", process+".log") }
func (p paths) netnsMarker() string           { return p.join("netns-dir-is-ours") }
func (p paths) bin(name string) string        { return p.join("bin", name) }

// namespaces returns the mount point of the file system that holds the nodes' mount namespaces.
func (p paths) namespaces() string { return p.join("ns") }

func (p paths) mountNamespace(n node) string { return p.join("ns", n.Name) }

// ipam returns the folder in which host-local keeps the addresses of secondary networks. The nodes share it, so that each
// address is assigned once.
func (p paths) ipam() string { return p.join("ipam") }

// tuning returns the folder in which the CNI plugin tuning keeps the original settings of interfaces.
func (p paths) tuning() string { return p.join("tuning") }

// node returns a path in the node's own folder.
func (p paths) node(n node, elem ...string) string {
	return p.join(append([]string{n.Name}, elem...)...)
}

// containerdSocket returns the path on the host of the socket that is /run/containerd/containerd.sock on the node.
func (p paths) containerdSocket(n node) string {
	return p.node(n, "run", "containerd", "containerd.sock")
}
