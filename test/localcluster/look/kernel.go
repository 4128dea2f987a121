package look

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/test/localcluster/thread"
)

// ownLinks is the prefix of the names of the local clusters' links on the host.
const ownLinks = "tailgate"

// inotifyInstances is how many inotify instances must be free. A cluster that had just started had 20.
const inotifyInstances = 32

// earliest is a time before which no machine runs this version: a clock without a battery begins in the past, and then neither packages nor
// modules can be verified.
var earliest = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Kernel returns a line for everything that the kernel does not provide, with its remedy. It tries the calls in namespaces of a thread
// that ends, so that it changes nothing. The caller is root.
func Kernel() []string {
	var list []string
	lacks := func(what, format string, args ...any) {
		list = append(list, "- "+what+": "+fmt.Sprintf(format, args...))
	}
	if now := time.Now(); now.Before(earliest) {
		lacks("the right time", "this machine's clock says %s; set it, for example with date -s", now.Format(time.DateTime))
	}
	if made := clusterMade(states); time.Until(made) > time.Minute {
		lacks("the time of the cluster", "this machine's clock says %s, and its local cluster was made at %s; the clock was set back: set it, or make cluster-down",
			time.Now().Format(time.DateTime), made.Format(time.DateTime))
	}
	if err := thread.Run(tryMounts); err != nil {
		lacks("mounts in a mount namespace", "%v; the cluster needs Linux 5.2 or later and, in a container, a privileged one "+
			"(docker run --privileged) whose runtime does not block open_tree and move_mount", err)
	}
	if err := thread.Run(tryLinks); err != nil {
		lacks("network namespaces, bridges and virtual Ethernet", "%v; load the modules (modprobe bridge veth), and reboot first if the kernel "+
			"was updated since the last boot; in a container, use a privileged one", err)
	}
	conflicts, err := subnetConflicts()
	if err != nil {
		lacks("a readable routing table", "%v", err)
	}
	for _, c := range conflicts {
		lacks("the network "+Subnet, "%s; the cluster uses this network, so disconnect or remove the other one until make cluster-down", c)
	}
	if free := freeInotify(inotifyInstances); free < inotifyInstances && !clusterRuns() {
		lacks(fmt.Sprintf("%d free inotify instances", inotifyInstances), "%d are free; sysctl -w fs.inotify.max_user_instances=512", free)
	}
	return list
}

// states matches the kubeconfigs of the local clusters, each of which is written when its cluster is made.
const states = "/var/lib/tailgate-localcluster*/admin.kubeconfig"

// clusterMade returns when the last of the clusters was made.
func clusterMade(pattern string) (made time.Time) {
	files, _ := filepath.Glob(pattern) // The pattern is valid.
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && info.ModTime().After(made) {
			made = info.ModTime()
		}
	}
	return made
}

// tryMounts makes the calls with which a node's mount namespace is made.
func tryMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making / private: %w", err)
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, "/dev", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return fmt.Errorf("open_tree: %w", err)
	}
	defer func() { _ = unix.Close(tree) }()
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mounting sysfs: %w", err)
	}
	if err := unix.Mount("tailgate", "/var/lib", "tmpfs", 0, "size=64k"); err != nil {
		return fmt.Errorf("mounting tmpfs: %w", err)
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, "/var/lib", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("move_mount: %w", err)
	}
	return nil
}

// tryLinks makes a bridge and a pair of virtual Ethernet links in a new network namespace.
func tryLinks() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("opening a netlink socket: %w", err)
	}
	defer h.Close()
	bridge, veth := netlink.NewLinkAttrs(), netlink.NewLinkAttrs()
	bridge.Name, veth.Name = "bridge", "veth"
	if err := h.LinkAdd(&netlink.Bridge{LinkAttrs: bridge}); err != nil {
		return fmt.Errorf("making a bridge: %w", err)
	}
	if err := h.LinkAdd(&netlink.Veth{LinkAttrs: veth, PeerName: "peer"}); err != nil {
		return fmt.Errorf("making a veth: %w", err)
	}
	return nil
}

// freeInotify returns how many inotify instances this user can still create, at most wanted.
func freeInotify(wanted int) int {
	var fds []int
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	for len(fds) < wanted {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			break
		}
		fds = append(fds, fd)
	}
	return len(fds)
}

// clusterRuns reports whether a local cluster has its link on this host, and so its inotify instances.
func clusterRuns() bool {
	_, err := netlink.LinkByName(ownLinks + "0")
	return err == nil
}
