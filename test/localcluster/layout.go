package localcluster

import (
	"fmt"
	"path/filepath"
)

// Addresses are from the range that RFC 2544 sets apart for benchmarks, which no network in use should have.
const (
	prefixLength = 24
	serviceIP    = "10.96.0.1"
	serviceCIDR  = "10.96.0.0/16"
	// dnsIP answers nothing: there is no DNS in the cluster. Without any address the kubelet would warn about each pod.
	dnsIP         = "10.96.0.10"
	apiServerPort = 443
)

// fabricBridge is the cable between the cards, in a network namespace of its own.
const fabricBridge = "fabric"

// site is a cluster's Number. The names and addresses of two clusters differ, so that they can run side by side.
type site int

// name begins with the same word for everything that the machine has of a cluster.
func (s site) name(what string) string {
	if s == 0 {
		return "tailgate-" + what
	}
	return fmt.Sprintf("tailgate%d-%s", s, what)
}

func (s site) controlPlaneNetns() string { return s.name("cp") }
func (s site) fabricNetns() string       { return s.name("fabric") }
func (s site) cgroupPrefix() string      { return s.name("node-") }

// hostLink is the only link of the cluster on the host.
func (s site) hostLink() string { return fmt.Sprintf("tailgate%d", s) }

// ip is an address in the subnet of the control plane and the nodes (0), or in that of a node's pods.
func (s site) ip(subnet, last int) string { return fmt.Sprintf("198.19.%d.%d", 4*int(s)+subnet, last) }

func (s site) controlPlaneIP() string { return s.ip(0, 1) }
func (s site) hostIP() string         { return s.ip(0, 2) }

func (s site) netnsNames() []string {
	return []string{s.controlPlaneNetns(), s.fabricNetns(), s.name("a"), s.name("b")}
}

// Sizes of packets in bytes. Every interface begins with the first, but for the PFs with VFs: these and the fabric
// carry more, as a cable between two cards does, for what a network attachment gives another.
const (
	mtu       = 1500
	fabricMTU = 9000
)

// node is one of the two Kubernetes nodes.
type node struct {
	site site
	// Name as Kubernetes knows it.
	Name string
	// Letter is a or b.
	Letter string
	IP     string
	// PodCIDR has PodGateway as its first address.
	PodCIDR, PodGateway string
	// Reserved CPUs are kept from pods, Exclusive ones are given to them.
	Reserved, Exclusive []int
	// NearNUMA is the NUMA node of the exclusive CPUs and of the first card, FarNUMA the other.
	NearNUMA, FarNUMA int
	// Guest is a node of the lab.
	Guest bool
	// Components is a guest with a site's own CNI and device plugins.
	Components bool
	// WholeCores makes the kubelet give no pod a part of a core.
	WholeCores bool
}

// nodes lays out the two nodes on a machine whose NUMA nodes, as shown to the kubelets, have the given CPUs.
func (s site) nodes(numa [2][]int) []node {
	return []node{
		{
			site: s, Name: "node-a", Letter: "a", IP: s.ip(0, 11), PodCIDR: s.ip(1, 0) + "/24", PodGateway: s.ip(1, 1),
			Reserved: numa[0], Exclusive: numa[1], NearNUMA: 1, FarNUMA: 0,
		},
		{
			site: s, Name: "node-b", Letter: "b", IP: s.ip(0, 12), PodCIDR: s.ip(2, 0) + "/24", PodGateway: s.ip(2, 1),
			Reserved: numa[1], Exclusive: numa[0], NearNUMA: 0, FarNUMA: 1,
		},
	}
}

func (n node) netns() string { return n.site.name(n.Letter) }

// cgroup is the parent of the cgroups of all of the node's pods.
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
	// MAC is the hardware address: with it an agent finds in sysfs the device to which an interface belongs.
	MAC string
	// VFs of a PF.
	VFs []nic
}

// port is where the fabric has a PF or VF of the node plugged in.
func (n node) port(device nic) string { return n.Letter + "-" + device.Name }

// maxVFs is how many VFs each card can have.
const maxVFs = 4

// nics are the cards of a node: three beside its exclusive CPUs, of which the first and the last have VFs, and one with VFs
// on the other NUMA node.
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
	// Locally administered; the nodes' differ in the letter.
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

// claimable are the VFs that no device plugin advertises: pods have them by Dynamic Resource Allocation. fragile are those
// of a plugin that exits when interfaces move. Both are of the card pf.
func (n node) claimable() (pf nic, vfs []nic) { pf = n.nics()[3]; return pf, pf.VFs[:maxVFs/2] }
func (n node) fragile() pool {
	return pool{Resource: ResourceFragile, Devices: n.nics()[3].VFs[maxVFs/2:], NoHint: true}
}

// pools share out the other devices. None is in two, and none is a PF with VFs, which the SR-IOV device plugin never offers.
func (n node) pools() []pool {
	cards := n.nics()
	if n.Guest {
		return []pool{{Resource: ResourceVF, Devices: cards[0].VFs}, {Resource: ResourcePF, Devices: cards[1:]}}
	}
	far := cards[1].VFs
	return []pool{
		{Resource: ResourceVF, Devices: cards[0].VFs},
		{Resource: ResourceVFFar, Devices: far[:maxVFs/2]},
		{Resource: ResourceVFNoHint, Devices: far[maxVFs/2:], NoHint: true},
		{Resource: ResourcePF, Devices: cards[2:3]},
	}
}

// paths of the state folder of a cluster.
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

// namespaces is a file system of its own that holds the nodes' mount namespaces.
func (p paths) namespaces() string { return p.join("ns") }

func (p paths) mountNamespace(n node) string { return p.join("ns", n.Name) }

// ipam is where host-local keeps the addresses of secondary networks, for both nodes so that each is given once.
func (p paths) ipam() string { return p.join("ipam") }

// tuning is where the CNI plugin of that name keeps what it changed of interfaces.
func (p paths) tuning() string { return p.join("tuning") }

// node returns a path in the node's own folder.
func (p paths) node(n node, elem ...string) string {
	return p.join(append([]string{n.Name}, elem...)...)
}

// containerdSocket is the path on the host of what is /run/containerd/containerd.sock on the node.
func (p paths) containerdSocket(n node) string {
	return p.node(n, "run", "containerd", "containerd.sock")
}
