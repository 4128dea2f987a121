// Package guestnode is the first process of a guest that is a node of the lab's cluster: it loads modules, mounts the disk,
// creates VFs, sets the address of the cluster's network card, and keeps containerd, the kubelet and the device plugin
// running. The power button of the machine ends all processes and powers the machine off.
package guestnode

// Paths in the initramfs and on the disk.
const (
	InitPath    = "/init"
	ModulesPath = "/modules.json" // in the initramfs: paths of modules with parameters, in load order
	ConfigPath  = "/node.json"    // on the disk
)

// Port is the node's HTTP port. POST /images imports a tarball, as docker or an OCI tool saves it. GET /log/NAME returns
// the log of a process.
const Port = 8000

// Config holds the settings that differ between nodes.
type Config struct {
	Name string
	// Cluster is the MAC address of the network card for the cluster. The card becomes eth0 and gets Address, such as
	// 198.19.0.11/24. Routes holds gateways by destination.
	Cluster, Address string
	Routes           map[string]string
	Cards            []Card
	// Processes are the command lines of the processes to keep running, by name. Env is their environment.
	Processes map[string][]string
	Env       []string
	// Import is the command that imports images from its standard input.
	Import []string
}

// Card is a network card with virtual functions.
type Card struct {
	Name, MAC string
	MTU, VFs  int
}
