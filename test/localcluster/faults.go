package localcluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/cpuset"

	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/localcluster/thread"
)

// existingProcess returns the running cluster and one of its processes by name.
func existingProcess(ctx context.Context, o Options, name string) (*cluster, process, error) {
	c, err := existing(ctx, o)
	if err != nil {
		return nil, process{}, err
	}
	pr, err := c.process(name)
	return c, pr, err
}

// KillProcess kills a process of the cluster with SIGKILL: Etcd, APIServer, ControllerManager or Scheduler, or the
// kubelet, containerd, deviceplugin, fragileplugin or dradriver of a node, such as "kubelet-node-a". Its children keep
// running. It returns when the process has ended. An unknown name is an error.
func KillProcess(ctx context.Context, o Options, name string) error {
	c, pr, err := existingProcess(ctx, o, name)
	if err != nil {
		return err
	}
	return killAll(ctx, c.runs(pr.Name, pr.Args[0]))
}

// StartProcess starts a process that KillProcess has killed. It does nothing if the process runs. It does not wait until
// the process is ready; Up does.
func StartProcess(ctx context.Context, o Options, name string) error {
	c, pr, err := existingProcess(ctx, o, name)
	if err != nil {
		return err
	}
	return c.ensure(pr)
}

// PauseProcess stops a process of the cluster until ResumeProcess. The names are those of KillProcess. The process keeps its
// connections and its memory.
func PauseProcess(ctx context.Context, o Options, name string) error {
	return signalProcess(ctx, o, name, unix.SIGSTOP)
}

// ResumeProcess resumes a process that PauseProcess has stopped. It has no effect on a process that runs.
func ResumeProcess(ctx context.Context, o Options, name string) error {
	return signalProcess(ctx, o, name, unix.SIGCONT)
}

func signalProcess(ctx context.Context, o Options, name string, signal unix.Signal) error {
	c, pr, err := existingProcess(ctx, o, name)
	if err != nil {
		return err
	}
	running, err := findProcesses(c.runs(pr.Name, pr.Args[0]))
	if err != nil {
		return err
	}
	if len(running) != 1 {
		return fmt.Errorf("%d processes of %s run, not one", len(running), name)
	}
	if err := unix.Kill(running[0].PID, signal); err != nil {
		return fmt.Errorf("sending %s to %s: %w", unix.SignalName(signal), name, err)
	}
	return nil
}

// KillDevicePlugin kills the device plugin of a node, "node-a" or "node-b". Pods that have its devices keep them. From then
// on, the kubelet rejects pods that request its devices (TopologyAffinityError of the topology manager), but the scheduler
// assigns such pods to the node until the kubelet's next report, up to a second later.
func KillDevicePlugin(ctx context.Context, o Options, node string) error {
	return KillProcess(ctx, o, nodeProcess("deviceplugin", node))
}

// StartDevicePlugin restarts the device plugin of a node. The kubelet reports its devices within a second.
func StartDevicePlugin(ctx context.Context, o Options, node string) error {
	return StartProcess(ctx, o, nodeProcess("deviceplugin", node))
}

// StartFragilePlugin starts the device plugin of a node that advertises ResourceFragile and exits when an interface of the
// node's cards appears or disappears.
func StartFragilePlugin(ctx context.Context, o Options, node string) error {
	return StartProcess(ctx, o, nodeProcess("fragileplugin", node))
}

// KillFragilePlugin undoes StartFragilePlugin.
func KillFragilePlugin(ctx context.Context, o Options, node string) error {
	return KillProcess(ctx, o, nodeProcess("fragileplugin", node))
}

// KillKubelet kills the kubelet of a node, "node-a" or "node-b", with SIGKILL.
func KillKubelet(ctx context.Context, o Options, node string) error {
	return KillProcess(ctx, o, nodeProcess("kubelet", node))
}

// FreeCPUs returns the number of exclusive CPUs of a node that are free according to the checkpoint of its kubelet's CPU
// manager. A restarted kubelet admits its first pods by that checkpoint.
func FreeCPUs(ctx context.Context, o Options, node string) (int, error) {
	c, n, err := existingNode(ctx, o, node)
	if err != nil {
		return 0, err
	}
	checkpoint, err := c.readCheckpoint(n)
	if err != nil {
		return 0, err
	}
	shared, err := result.ParseCPUs(checkpoint.Shared)
	return shared.Size() - len(n.Reserved), err
}

// checkpoint is the state of a kubelet's CPU manager: the CPUs that pods share, and those of containers by pod.
type checkpoint struct {
	Shared  string                       `json:"defaultCpuSet"`
	Entries map[string]map[string]string `json:"entries"`
}

func (c *cluster) readCheckpoint(n node) (checkpoint, error) {
	var all checkpoint
	content, err := os.ReadFile(c.node(n, cpuCheckpoint...))
	if err != nil {
		return all, fmt.Errorf("reading the checkpoint of the CPU manager of %s: %w", n.Name, err)
	}
	if err := json.Unmarshal(content, &all); err != nil {
		return all, fmt.Errorf("parsing the checkpoint of the CPU manager of %s: %w", n.Name, err)
	}
	return all, nil
}

// covers reports whether each of the CPUs is shared or belongs to a container.
func (all checkpoint) covers(cpus []int) (bool, error) {
	known, err := result.ParseCPUs(all.Shared)
	for _, containers := range all.Entries {
		for _, list := range containers {
			own, failed := result.ParseCPUs(list)
			known, err = known.Union(own), errors.Join(err, failed)
		}
	}
	return cpuset.New(cpus...).IsSubsetOf(known), err
}

// StartKubelet restarts the kubelet of a node. A kubelet releases a container's CPUs by two writes of its checkpoint: one
// without the container, one with its CPUs among the shared ones. No kubelet starts after one that was killed between them,
// until the file is removed.
func StartKubelet(ctx context.Context, o Options, node string) error {
	c, n, err := existingNode(ctx, o, node)
	if err != nil {
		return err
	}
	online, err := onlineCPUs()
	if err != nil {
		return err
	}
	all, err := c.readCheckpoint(n)
	if err == nil {
		var whole bool
		if whole, err = all.covers(online); err == nil && !whole {
			err = os.Remove(c.node(n, cpuCheckpoint...))
		}
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return StartProcess(ctx, o, nodeProcess("kubelet", node))
}

// StopPinning restarts the kubelet of a node without CPU manager and topology manager, and returns when the node is
// ready, after a few seconds. Pods that start afterwards share the CPUs with all others and get devices of any NUMA
// node; running pods keep their CPUs and devices. Up undoes it, and then the kubelet ends the pods that it would not have
// admitted.
func StopPinning(ctx context.Context, o Options, node string) error {
	c, n, err := existingNode(ctx, o, node)
	if err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, errors.New("it did not become ready in time"))
	defer cancel()
	return c.startKubelets(ctx, client, false, n)
}

// SetMTU sets the MTU, in bytes, of all devices of a resource on a node, at this end of the cable only. A pod that gets
// one of them has this MTU, unless its network sets another one. It fails while a pod has one of the devices. The initial
// MTU is 1500; Up restores it.
func SetMTU(o Options, node, resource string, bytes int) error {
	n, err := findNode(o.site().nodes([2][]int{}), node)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(n.pools(), func(p pool) bool { return p.Resource == resource })
	if i < 0 {
		return fmt.Errorf("no node has devices of %q", resource)
	}
	h, err := openNetns(n.netns())
	if err != nil {
		return err
	}
	defer h.close()
	for _, device := range n.pools()[i].Devices {
		link, err := h.LinkByName(device.Name)
		if err != nil {
			return fmt.Errorf("looking for %s of %s, which no pod may have: %w", device.Name, node, err)
		}
		if err := h.LinkSetMTU(link, bytes); err != nil {
			return fmt.Errorf("setting the MTU of %s of %s to %d: %w", device.Name, node, bytes, err)
		}
	}
	return nil
}

// AddAddress gives an interface of a node's cards, such as ens1f0, an address with its prefix length until remove is called. Pods
// with the node's network can then measure over that card.
func AddAddress(o Options, node, iface, address string) (remove func() error, err error) {
	n, err := findNode(o.site().nodes([2][]int{}), node)
	if err != nil {
		return nil, err
	}
	parsed, err := netlink.ParseAddr(address)
	if err != nil {
		return nil, fmt.Errorf("reading the address %q: %w", address, err)
	}
	change := func(how func(netnsHandle, netlink.Link) error) error {
		h, err := openNetns(n.netns())
		if err != nil {
			return err
		}
		defer h.close()
		link, err := h.LinkByName(iface)
		if err == nil {
			err = how(h, link)
		}
		if err != nil {
			return fmt.Errorf("changing the address %s of %s of %s: %w", address, iface, node, err)
		}
		return nil
	}
	remove = func() error { return change(func(h netnsHandle, l netlink.Link) error { return h.AddrDel(l, parsed) }) }
	return remove, change(func(h netnsHandle, l netlink.Link) error { return h.AddrReplace(l, parsed) })
}

func findNode(nodes []node, name string) (node, error) {
	i := slices.IndexFunc(nodes, func(n node) bool { return n.Name == name })
	if i < 0 {
		return node{}, fmt.Errorf("no node %q, there are %s and %s", name, nodes[0].Name, nodes[1].Name)
	}
	return nodes[i], nil
}

// openFabric opens the network namespace of the cable between the cards and returns it with its bridge. The caller closes
// the namespace.
func openFabric(o Options) (netnsHandle, netlink.Link, error) {
	fabric, err := openNetns(o.site().fabricNetns())
	if err != nil {
		return netnsHandle{}, nil, err
	}
	bridge, err := fabric.LinkByName(fabricBridge)
	if err != nil {
		fabric.close()
		return netnsHandle{}, nil, fmt.Errorf("looking for the fabric: %w", err)
	}
	return fabric, bridge, nil
}

// CutFabric cuts the cable between the cards of the two nodes for a duration. Packets that the PFs and VFs send meanwhile
// are lost; the links of their interfaces stay up, as behind a switch. The nodes' own network is not affected.
func CutFabric(o Options, d time.Duration) error {
	if err := SetFabric(o, false); err != nil {
		return err
	}
	time.Sleep(d)
	return SetFabric(o, true)
}

// SetFabric connects the cable between the cards of the two nodes, or cuts it until it is connected again.
func SetFabric(o Options, connected bool) error {
	fabric, bridge, err := openFabric(o)
	if err != nil {
		return err
	}
	defer fabric.close()
	if connected {
		err = fabric.LinkSetUp(bridge)
	} else {
		err = fabric.LinkSetDown(bridge)
	}
	if err != nil {
		return fmt.Errorf("switching the fabric: %w", err)
	}
	return nil
}

// detour is the number of bridges that SlowCable inserts. A frame takes about half a microsecond to cross a bridge and the
// link to it.
const detour = 100

// SlowCable inserts a detour into the cable between the cards of the two nodes: frames between the nodes arrive tens of
// microseconds later. The sending CPU spends this time. RestoreCable undoes it, and so does Up.
func SlowCable(o Options) error {
	fabric, bridge, err := openFabric(o)
	if err != nil {
		return err
	}
	defer fabric.close()
	if err := silenceLinks(o.site().fabricNetns()); err != nil {
		return err
	}
	for i := range detour {
		hop := fmt.Sprintf("hop%d", i)
		if err := ensureVeth(fabric, bridge, hop, fabric, hop+"-far", fabricMTU, ""); err != nil {
			return err
		}
		if bridge, err = ensureBridge(fabric, fmt.Sprintf("detour%d", i), fabricMTU); err != nil {
			return err
		}
		if err := plugIn(fabric, hop+"-far", bridge); err != nil {
			return err
		}
	}
	return plugInFarNode(o, fabric, bridge)
}

// silenceLinks disables IPv6 on the links that a network namespace gets from now on. Two hundred new links would announce themselves on the
// cable for seconds, and the proof would find more packets at the pods than the ends sent.
func silenceLinks(namespace string) error {
	return thread.Run(func() error {
		if err := enterNetns(namespace); err != nil {
			return err
		}
		err := os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
			return fmt.Errorf("disabling IPv6 on new links of %s: %w", namespace, err)
		}
		return nil
	})
}

// RestoreCable undoes SlowCable. It has no effect if SlowCable was not called.
func RestoreCable(o Options) error {
	fabric, bridge, err := openFabric(o)
	if err != nil {
		return err
	}
	defer fabric.close()
	if err := plugInFarNode(o, fabric, bridge); err != nil {
		return err
	}
	// Deleting the detour would take many seconds, so it stays, disconnected.
	hop, err := fabric.LinkByName("hop0")
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = fabric.LinkSetDown(hop)
	}
	if err != nil {
		return fmt.Errorf("cutting off the detour: %w", err)
	}
	return nil
}

// plugInFarNode attaches the cards of node-b to a bridge of the fabric.
func plugInFarNode(o Options, fabric netnsHandle, bridge netlink.Link) error {
	far := o.site().nodes([2][]int{})[1]
	for _, pf := range far.nics() {
		for _, device := range append([]nic{pf}, pf.VFs...) {
			if err := plugIn(fabric, far.port(device), bridge); err != nil {
				return err
			}
		}
	}
	return nil
}

func plugIn(h netnsHandle, port string, bridge netlink.Link) error {
	link, err := h.LinkByName(port)
	if err == nil {
		err = h.LinkSetMaster(link, bridge)
	}
	if err == nil {
		err = h.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("plugging %s into %s: %w", port, bridge.Attrs().Name, err)
	}
	return nil
}

// Upgrade restarts the kubelet of a node as after an upgrade of its operating system: with another boot ID, which its
// containers also see, and with an OS image of that name. The containers are not restarted. It does not wait until the
// node is ready; Up does. Only Down undoes it.
func Upgrade(ctx context.Context, o Options, node, image string) error {
	c, n, err := existingNode(ctx, o, node)
	if err != nil {
		return err
	}
	if err := KillKubelet(ctx, o, node); err != nil {
		return err
	}
	// The kubelet reads both files when it starts. The file is not replaced, because it is mounted, also in containers.
	if err := os.WriteFile(c.node(n, "sys", bootFile), newBoot(), 0o644); err != nil {
		return fmt.Errorf("writing the boot ID of %s: %w", node, err)
	}
	if err := c.coverFile(n, "/etc/os-release", fmt.Sprintf("PRETTY_NAME=%q\n", image)); err != nil {
		return err
	}
	return StartKubelet(ctx, o, node)
}

// newBoot returns a new boot ID in the kernel's format.
func newBoot() []byte { return []byte(string(uuid.NewUUID()) + "\n") }

// coverFile changes the content of a file as the node sees it.
func (c *cluster) coverFile(n node, target, content string) error {
	own := c.node(n, "cover", filepath.Base(target))
	_, err := os.Stat(own)
	covered := err == nil
	if err := os.MkdirAll(filepath.Dir(own), 0o755); err != nil {
		return fmt.Errorf("creating the folder of what covers %s: %w", target, err)
	}
	// The file is not replaced, because it is mounted.
	if err := os.WriteFile(own, []byte(content), 0o644); err != nil {
		return fmt.Errorf("writing what covers %s: %w", target, err)
	}
	if covered {
		return nil
	}
	err = thread.Run(func() error {
		if err := enterNode(c.paths, n); err != nil {
			return err
		}
		return unix.Mount(own, target, "", unix.MS_BIND, "")
	})
	if err != nil {
		return fmt.Errorf("covering %s on %s: %w", target, n.Name, err)
	}
	return nil
}

// Load imports images into both nodes, from tarballs as docker or an OCI tool saves them, under the names in the tarballs.
func Load(ctx context.Context, o Options, tars ...string) error {
	c, err := existing(ctx, o)
	if err != nil {
		return err
	}
	return c.load(ctx, nil, tars...)
}

// LoadRelease imports an image of a release from its archive, under a name with the image's digest, as the manifests of a release
// name it. Without --local, ctr adds no digest to the name of an image that has a name in its archive.
func LoadRelease(ctx context.Context, o Options, tar, name string) error {
	c, err := existing(ctx, o)
	if err != nil {
		return err
	}
	return c.load(ctx, []string{"--local", "--digests", "--base-name=" + name}, tar)
}

// existing returns the cluster that is up.
func existing(ctx context.Context, o Options) (*cluster, error) {
	c, err := newCluster(ctx, o)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(c.generationFile()); err != nil {
		return nil, fmt.Errorf("no local cluster is up with its state in %s", c.state)
	}
	c.useOwnCommands()
	return c, nil
}

// existingNode returns the cluster that is up and one of its nodes by name.
func existingNode(ctx context.Context, o Options, name string) (*cluster, node, error) {
	c, err := existing(ctx, o)
	if err != nil {
		return nil, node{}, err
	}
	n, err := findNode(c.nodes, name)
	return c, n, err
}
