// Package localcluster runs a real two-node Kubernetes cluster on one Linux machine, for the demo and the tests. It
// needs root, two cores and the Go toolchain, but no container engine and no registry.
//
// Everything runs in its own network namespaces. The only link on the host is tailgate0, which leads to the API
// server:
//
//	host            tailgate-cp                                    tailgate-a, tailgate-b
//	tailgate0 ───── bridge cp0 198.19.0.1/24, 10.96.0.1/32 ─────── eth0 198.19.0.11 and .12
//	198.19.0.2      etcd, API server on :443, scheduler,           kubelet, containerd, device plugin, DRA driver,
//	                controller manager                             bridge cni0 198.19.1.1/24 and 198.19.2.1/24
//	                                                                 │ ens1f0, ens1f0v0..3, ens2f0, ens2f0v0..3, ens3f0, ens4f0, ens4f0v0..3
//	                tailgate-fabric: bridge "fabric" ────────────────┘
//
// The fabric stands for the embedded switches of the nodes' network cards and the cables between them: every PF and VF
// is a veth whose far end is a port of its bridge. The service address of the API server is an address of the bridge
// cp0, so that it answers pods without a kube-proxy.
//
// A node is a network namespace and a mount namespace. In the mount namespace, the paths that cannot be configured in
// the kubelet and containerd are the node's own, and /sys shows a machine with two NUMA nodes and the cards. The CPUs
// that a node gives to pods are chosen so that the two ends of a measurement never share a CPU.
//
// Every process carries an environment variable that names the state folder. Down, and an Up that repairs a cluster,
// find what exists by this variable, the names of the namespaces and the prefix of the cgroups, whatever was killed
// before. A cluster in a container of this machine has the same names, but its own state folder, which distinguishes them.
//
// The user's environment does not reach the cluster, see package environment. One lock of the machine, whatever the user's home is,
// keeps commands apart that change or use the cluster. Up keeps what runs.
//
// The names and addresses above belong to the cluster with number 0; other clusters can run beside it.
package localcluster
