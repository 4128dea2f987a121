// Package guestnode is the first process of a guest that is a node of the lab's cluster: it loads modules, mounts the disk,
// makes VFs, gives the cluster's network card its address, and keeps containerd, the kubelet and the device plugin running.
// Pressing the power button of the machine ends all processes and powers it off.
package guestnode

// Paths in the initramfs and on the disk.
const (
	InitPath    = "/init"
	ModulesPath = "/modules.json" // in the initramfs: paths with parameters, in the order in which they are loaded
	ConfigPath  = "/node.json"    // on the disk
)

// Port is where the node takes images: a POST to /images of a tarball, as docker or an OCI tool saves them. A GET of
// /log/NAME is the log of a process.
const Port = 8000

// Config is what differs between nodes.
type Config struct {
	Name string
	// Cluster is the MAC address of the network card for the cluster, which gets Address, such as 198.19.0.11/24, and
	// becomes eth0. Routes are gateways by their destinations.
	Cluster, Address string
	Routes           map[string]string
	Cards            []Card
	// Processes to keep running, by their names, with Env.
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
