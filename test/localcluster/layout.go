package localcluster

import (
	"fmt"
	"path/filepath"
)

// Addresses are from the range that RFC 2544 sets apart for benchmarks, which no network in use should have.
const (
	hostIP         = "198.19.0.2"
	controlPlaneIP = "198.19.0.1"
	prefixLength   = 24
	serviceIP      = "10.96.0.1"
	serviceCIDR    = "10.96.0.0/16"
	// dnsIP answers nothing: there is no DNS in the cluster. Without any address the kubelet would warn about each pod.
	dnsIP         = "10.96.0.10"
	apiServerPort = 443
)

// Names of the network namespaces, of the bridge in one of them, and of the only link on the host.
const (
	controlPlaneNetns = "tailgate-cp"
	fabricNetns       = "tailgate-fabric"
	fabricBridge      = "fabric"
	hostLink          = "tailgate0"
	cgroupPrefix      = "tailgate-node-"
)

// Sizes of packets in bytes. The nodes' and pods' interfaces have the first; the fabric and the PFs carry more, as a
// cable between two cards does, for those that a network attachment gives another.
const (
	mtu       = 1500
	fabricMTU = 9000
)

// node is one of the two Kubernetes nodes.
type node struct {
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
}

// nodes lays out the two nodes on a machine whose NUMA nodes, as shown to the kubelets, have the given CPUs.
func nodes(numa [2][]int) []node {
	return []node{
		{
			Name: "node-a", Letter: "a", IP: "198.19.0.11", PodCIDR: "198.19.1.0/24", PodGateway: "198.19.1.1",
			Reserved: numa[0], Exclusive: numa[1], NearNUMA: 1, FarNUMA: 0,
		},
		{
			Name: "node-b", Letter: "b", IP: "198.19.0.12", PodCIDR: "198.19.2.0/24", PodGateway: "198.19.2.1",
			Reserved: numa[1], Exclusive: numa[0], NearNUMA: 0, FarNUMA: 1,
		},
	}
}

func (n node) netns() string { return "tailgate-" + n.Letter }

// cgroup is the parent of the cgroups of all of the node's pods.
func (n node) cgroup() string { return cgroupPrefix + n.Letter }

// nic is a PF or a VF.
type nic struct {
	// Name of the network device on the node.
	Name string
	// BDF is the PCI address.
	BDF  string
	NUMA int
	// VFs of a PF.
	VFs []nic
}

// nics are the cards of a node: one beside its exclusive CPUs and one on the other NUMA node, which provokes
// TopologyAffinityError.
func (n node) nics() []nic {
	return []nic{card("ens1f0", "3b", n.NearNUMA, 4), card("ens2f0", "5e", n.FarNUMA, 2)}
}

func card(name, bus string, numa, vfs int) nic {
	pf := nic{Name: name, BDF: fmt.Sprintf("0000:%s:00.0", bus), NUMA: numa}
	for i := range vfs {
		pf.VFs = append(pf.VFs, nic{
			Name: fmt.Sprintf("%sv%d", name, i),
			BDF:  fmt.Sprintf("0000:%s:02.%d", bus, i),
			NUMA: numa,
		})
	}
	return pf
}

// paths of the state folder.
type paths struct{ state string }

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
