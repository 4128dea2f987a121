package localcluster

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/test/localcluster/thread"
)

// netnsDir is the folder of named network namespaces, as for the ip command.
const netnsDir = "/run/netns/"

// netnsExists reports whether the named network namespace exists, and not only the file that it was mounted on.
func netnsExists(name string) bool {
	return isMountOf(netnsDir+name, unix.NSFS_MAGIC)
}

// isMountOf reports whether path is in a file system of the given kind.
func isMountOf(path string, magic int64) bool {
	var fs unix.Statfs_t
	return unix.Statfs(path, &fs) == nil && fs.Type == magic
}

// folderIsOurs in the marker means that the cluster also created the folder, and not only the mount on it.
const folderIsOurs = "folder"

// prepareNetnsDir makes the folder of named network namespaces a shared mount point before the first namespace is mounted
// in it, as `ip netns add` does. If that command did so afterwards, it would cover the cluster's mounts, and nothing could
// unmount them. The marker shows Down that the cluster made the mount. It is written first, so that a mount or a folder
// without a marker never belongs to a cluster, and removed if the mount fails.
func prepareNetnsDir(p paths) (err error) {
	dir := filepath.Clean(netnsDir)
	points, err := mountsUnder(dir)
	if err != nil {
		return err
	}
	if slices.Contains(points, dir) {
		return nil
	}
	marker := ""
	if _, err := os.Stat(dir); os.IsNotExist(err) {
		marker = folderIsOurs
	}
	if err := os.WriteFile(p.netnsMarker(), []byte(note(marker)), 0o600); err != nil {
		return fmt.Errorf("noting the mount of %s: %w", dir, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, releaseNetnsDir(p), os.RemoveAll(p.netnsMarker()))
		}
	}()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", dir, err)
	}
	if err := unix.Mount(dir, dir, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mounting %s on itself: %w", dir, err)
	}
	if err := unix.Mount("", dir, "none", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("sharing %s: %w", dir, err)
	}
	return nil
}

// releaseNetnsDir undoes prepareNetnsDir, unless other programs have created namespaces there meanwhile.
func releaseNetnsDir(p paths) error {
	// Without the marker, the mount, if there is one, does not belong to this cluster.
	marker, err := os.ReadFile(p.netnsMarker())
	if os.IsNotExist(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("looking for whose mount %s is: %w", netnsDir, err)
	}
	text, valid := noted(string(marker))
	if !valid {
		return nil
	}
	left, err := os.ReadDir(netnsDir)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("listing network namespaces: %w", err)
	}
	if len(left) > 0 {
		return leaveNetnsDir(p, marker)
	}
	dir := filepath.Clean(netnsDir)
	// Without the mount, unmounting fails with an error that depends on the caller's capabilities.
	points, err := mountsUnder(dir)
	if err != nil {
		return err
	}
	if slices.Contains(points, dir) {
		if err := unix.Unmount(dir, 0); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("unmounting %s: %w", dir, err)
		}
	}
	if text != folderIsOurs {
		return nil
	}
	// Other programs may use the folder since it was unmounted.
	err = unix.Rmdir(dir)
	if err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("removing %s: %w", dir, err)
	}
	return nil
}

// leaveNetnsDir moves the marker to another cluster that is up, whose Down then undoes prepareNetnsDir.
func leaveNetnsDir(p paths, marker []byte) error {
	for s := range workersSite + 1 {
		other := sitePaths(s)
		if _, err := os.Stat(other.generationFile()); err != nil || s == p.site {
			continue
		}
		if err := os.WriteFile(other.netnsMarker(), marker, 0o600); err != nil {
			return fmt.Errorf("leaving the mount of %s to another cluster: %w", netnsDir, err)
		}
		return nil
	}
	return nil
}

// createNetns creates a named network namespace with its loopback up.
func createNetns(name string) error {
	return thread.Run(func() error {
		// The plain file that a removed namespace leaves behind would prevent the creation.
		if err := os.Remove(netnsDir + name); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("creating network namespace %s: %w", name, err)
		}
		handle, err := netns.NewNamed(name)
		if err != nil {
			return fmt.Errorf("creating network namespace %s: %w", name, err)
		}
		defer closeFD(int(handle))
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("looking for the loopback of %s: %w", name, err)
		}
		if err := netlink.LinkSetUp(lo); err != nil {
			return fmt.Errorf("starting the loopback of %s: %w", name, err)
		}
		return nil
	})
}

// network holds a netlink handle for each network namespace of the cluster, and one for the host.
type network struct {
	host, controlPlane, fabric netnsHandle
	nodes                      map[string]netnsHandle
}

type netnsHandle struct {
	*netlink.Handle
	ns netns.NsHandle
}

func openNetns(name string) (netnsHandle, error) {
	var h netnsHandle
	var err error
	if name == "" {
		h.ns, err = netns.Get()
	} else {
		h.ns, err = netns.GetFromName(name)
	}
	if err != nil {
		return h, fmt.Errorf("opening network namespace %q: %w", name, err)
	}
	if h.Handle, err = netlink.NewHandleAt(h.ns); err != nil {
		closeFD(int(h.ns))
		return h, fmt.Errorf("talking to network namespace %q: %w", name, err)
	}
	return h, nil
}

func (h netnsHandle) close() {
	if h.Handle != nil {
		h.Close()
		closeFD(int(h.ns))
	}
}

func openNetwork(s site, nodes []node) (nw *network, err error) {
	nw = &network{nodes: map[string]netnsHandle{}}
	defer func() {
		if err != nil {
			nw.close()
		}
	}()
	if nw.host, err = openNetns(""); err != nil {
		return nil, err
	}
	if nw.controlPlane, err = openNetns(s.controlPlaneNetns()); err != nil {
		return nil, err
	}
	if nw.fabric, err = openNetns(s.fabricNetns()); err != nil {
		return nil, err
	}
	for _, n := range nodes {
		if nw.nodes[n.Name], err = openNetns(n.netns()); err != nil {
			return nil, err
		}
	}
	return nw, nil
}

func (nw *network) close() {
	nw.host.close()
	nw.controlPlane.close()
	nw.fabric.close()
	for _, h := range nw.nodes {
		h.close()
	}
}

// ensureNetwork creates the missing links, addresses and routes. The namespaces must exist.
func ensureNetwork(s site, nodes []node) error {
	nw, err := openNetwork(s, nodes)
	if err != nil {
		return err
	}
	defer nw.close()

	bridge, err := ensureBridge(nw.controlPlane, "cp0", mtu)
	if err != nil {
		return err
	}
	if err := errors.Join(
		ensureAddress(nw.controlPlane, bridge, s.controlPlaneIP(), prefixLength),
		ensureAddress(nw.controlPlane, bridge, serviceIP, 32),
		ensureVeth(nw.controlPlane, bridge, "host", nw.host, s.hostLink(), mtu, ""),
	); err != nil {
		return err
	}
	if err := ensureEndpoint(nw.host, s.hostLink(), s.hostIP()); err != nil {
		return err
	}
	if nodes[0].Guest {
		for _, n := range nodes {
			if err := errors.Join(ensureTap(nw.controlPlane, bridge, n), ensureRoute(nw.controlPlane, n.PodCIDR, n.IP)); err != nil {
				return err
			}
		}
		return nil
	}
	fabric, err := ensureBridge(nw.fabric, fabricBridge, fabricMTU)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		h := nw.nodes[n.Name]
		if err := ensureVeth(nw.controlPlane, bridge, n.Name, h, "eth0", mtu, ""); err != nil {
			return err
		}
		if err := ensureEndpoint(h, "eth0", n.IP); err != nil {
			return err
		}
		if err := errors.Join(ensureRoute(h, "", s.controlPlaneIP()), ensureRoute(nw.controlPlane, n.PodCIDR, n.IP)); err != nil {
			return err
		}
		for _, other := range nodes {
			if other.Name != n.Name {
				if err := ensureRoute(h, other.PodCIDR, other.IP); err != nil {
					return err
				}
			}
		}
		if err := enableForwarding(n); err != nil {
			return err
		}
		for _, pf := range n.nics() {
			for _, device := range append([]nic{pf}, pf.VFs...) {
				if err := ensureVeth(nw.fabric, fabric, n.port(device), h, device.Name, device.MTU, device.MAC); err != nil {
					return err
				}
				if err := prepareNIC(h, device); err != nil {
					return fmt.Errorf("preparing %s of %s: %w", device.Name, n.Name, err)
				}
			}
		}
	}
	return nil
}

// prepareNIC sets the MTU of a PF or VF, unless a pod has it. It starts a PF with VFs, for the macvlans on it.
func prepareNIC(h netnsHandle, device nic) error {
	link, err := h.LinkByName(device.Name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err == nil {
		err = h.LinkSetMTU(link, device.MTU)
	}
	if err == nil && len(device.VFs) > 0 {
		err = h.LinkSetUp(link)
	}
	return err
}

func ensureBridge(h netnsHandle, name string, bytes int) (netlink.Link, error) {
	link, err := h.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = name, bytes
		if err = h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err == nil {
			link, err = h.LinkByName(name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("creating bridge %s: %w", name, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return nil, fmt.Errorf("starting bridge %s: %w", name, err)
	}
	return link, nil
}

// ensureVeth creates a veth pair. One end is a port of the bridge. The other end is in another namespace, with its own MTU and, if
// peerMAC is not empty, this MAC address. If the port exists, the pair is complete: its other end may have moved into a pod.
func ensureVeth(h netnsHandle, bridge netlink.Link, port string, peer netnsHandle, peerName string, peerMTU int, peerMAC string) error {
	link, err := h.LinkByName(port)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.MTU = port, bridge.Attrs().MTU
		veth := &netlink.Veth{
			LinkAttrs: attrs, PeerName: peerName, PeerMTU: uint32(peerMTU), PeerNamespace: netlink.NsFd(int(peer.ns)),
		}
		if peerMAC != "" {
			if veth.PeerHardwareAddr, err = net.ParseMAC(peerMAC); err != nil {
				return fmt.Errorf("reading the MAC address of %s: %w", peerName, err)
			}
		}
		if err = h.LinkAdd(veth); err == nil {
			link, err = h.LinkByName(port)
		}
	}
	if err != nil {
		return fmt.Errorf("creating the link from %s to %s: %w", port, peerName, err)
	}
	if err := h.LinkSetMaster(link, bridge); err != nil {
		return fmt.Errorf("plugging %s into its bridge: %w", port, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("starting %s: %w", port, err)
	}
	return nil
}

// ensureEndpoint starts a link and sets its address on the cluster's network.
func ensureEndpoint(h netnsHandle, name, ip string) error {
	link, err := h.LinkByName(name)
	if err != nil {
		return fmt.Errorf("looking for %s: %w", name, err)
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	return ensureAddress(h, link, ip, prefixLength)
}

func ensureAddress(h netnsHandle, link netlink.Link, ip string, prefix int) error {
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(ip), Mask: net.CIDRMask(prefix, 32)}}
	if err := h.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("giving %s the address %s: %w", link.Attrs().Name, ip, err)
	}
	return nil
}

// ensureRoute routes cidr, or all destinations if it is empty, via a gateway.
func ensureRoute(h netnsHandle, cidr, via string) error {
	route := &netlink.Route{Gw: net.ParseIP(via)}
	if cidr == "" {
		cidr = "0.0.0.0/0"
	}
	_, dst, err := net.ParseCIDR(cidr)
	if err != nil {
		return fmt.Errorf("parsing a route: %w", err)
	}
	route.Dst = dst
	if err := h.RouteReplace(route); err != nil {
		return fmt.Errorf("routing %s via %s: %w", cidr, via, err)
	}
	return nil
}

// enableForwarding lets the node forward packets between its pods and the other node. The setting belongs to the node's
// network namespace.
func enableForwarding(n node) error {
	return thread.Run(func() error {
		handle, err := netns.GetFromName(n.netns())
		if err != nil {
			return fmt.Errorf("opening network namespace %s: %w", n.netns(), err)
		}
		defer closeFD(int(handle))
		if err := netns.Set(handle); err != nil {
			return fmt.Errorf("entering network namespace %s: %w", n.netns(), err)
		}
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
			return fmt.Errorf("enabling forwarding on %s: %w", n.Name, err)
		}
		return nil
	})
}

// removeNetwork deletes the host's link and the cluster's network namespaces with all links in them.
func removeNetwork(s site) error {
	var errs []error
	if link, err := netlink.LinkByName(s.hostLink()); err == nil {
		if err := netlink.LinkDel(link); err != nil {
			errs = append(errs, fmt.Errorf("deleting %s: %w", s.hostLink(), err))
		}
	}
	for _, name := range s.netnsNames() {
		if _, err := os.Lstat(netnsDir + name); err != nil {
			continue
		}
		// A namespace can be mounted on its file more than once.
		for unix.Unmount(netnsDir+name, unix.MNT_DETACH) == nil {
		}
		if err := os.Remove(netnsDir + name); err != nil {
			errs = append(errs, fmt.Errorf("deleting network namespace %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
