package localcluster

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// ensureNamespaceDir mounts the small file system that holds the nodes' mount namespaces. A mount namespace can only be
// pinned on a private mount, so that it is not propagated into itself.
func ensureNamespaceDir(p paths) error {
	dir := p.namespaces()
	if isMountOf(dir, unix.TMPFS_MAGIC) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("creating a place for mount namespaces: %w", err)
	}
	if err := unix.Mount("tailgate", dir, "tmpfs", 0, "size=64k"); err != nil {
		return fmt.Errorf("mounting a place for mount namespaces: %w", err)
	}
	if err := unix.Mount("", dir, "", unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the place for mount namespaces private: %w", err)
	}
	return nil
}

// createMountNamespace creates the node's mount namespace and pins it in the state folder. keep lists folders that must be
// visible on the node under their own paths, although mounts of the node hide their parents.
func createMountNamespace(p paths, n node, keep []string) error {
	pin := p.mountNamespace(n)
	if err := os.WriteFile(pin, nil, 0o600); err != nil {
		return fmt.Errorf("creating a file for the mount namespace of %s: %w", n.Name, err)
	}
	ready, pinned := make(chan int), make(chan struct{})
	result := make(chan error, 1)
	go func() {
		result <- inThread(func() error {
			if err := enterNetns(n.netns()); err != nil {
				return err
			}
			if err := populateMountNamespace(p, n, keep); err != nil {
				return err
			}
			ready <- unix.Gettid()
			<-pinned
			return nil
		})
	}()
	select {
	case err := <-result:
		return fmt.Errorf("making the mount namespace of %s: %w", n.Name, err)
	case tid := <-ready:
		// A mount namespace can only be mounted in a namespace older than itself, so a thread of the host does it.
		err := unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/mnt", tid), pin, "", unix.MS_BIND, "")
		close(pinned)
		<-result
		if err != nil {
			return fmt.Errorf("keeping the mount namespace of %s: %w", n.Name, err)
		}
		return nil
	}
}

const (
	// bootPath is the file with the kernel's boot ID. A node has its own boot ID in bootFile instead, which Upgrade changes.
	bootPath = "/proc/sys/kernel/random/boot_id"
	bootFile = "boot_id"
)

// tunables are the settings below /proc/sys that a kubelet (1.36, setupKernelTunables) changes unless they have these values. A
// node shows the kubelet files with these values, so that the kubelet does not change the machine's settings.
var tunables = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// writeTunables writes the files and returns them by the path on which each has to be mounted.
func writeTunables(dir string) (map[string]string, error) {
	files := map[string]string{}
	for name, value := range tunables {
		file := filepath.Join(dir, filepath.Base(name))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return nil, fmt.Errorf("writing the node's %s: %w", name, err)
		}
		files["/proc/sys/"+name] = file
	}
	return files, nil
}

// populateMountNamespace gives the calling thread a mount namespace with the node's view of the machine.
func populateMountNamespace(p paths, n node, keep []string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unsharing: %w", err)
	}
	// Mounts and unmounts on the host propagate to the node, but not in the other direction.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("cutting mounts off from the host: %w", err)
	}
	// These trees are copied before other mounts hide them, and attached on top of those mounts.
	cgroups, err := openTree("/sys/fs/cgroup")
	if err != nil {
		return err
	}
	defer closeFD(cgroups)
	kept := map[string]int{}
	for _, dir := range keep {
		if kept[dir], err = openTree(dir); err != nil {
			return err
		}
		defer closeFD(kept[dir])
	}
	sources, err := writeTunables(p.node(n, "sys"))
	if err != nil {
		return err
	}
	maps.Copy(sources, map[string]string{
		"/run":                     p.node(n, "run"),
		"/var/log":                 p.node(n, "log"),
		"/var/lib/kubelet":         p.node(n, "kubelet"),
		"/sys/devices/system/node": p.node(n, "sys", "node"),
		"/sys/bus/pci/devices":     p.node(n, "sys", "pci"),
		bootPath:                   p.node(n, "sys", bootFile),
	})
	own := map[string]int{}
	for target, dir := range sources {
		if own[target], err = openTree(dir); err != nil {
			return err
		}
		defer closeFD(own[target])
	}
	// A sysfs shows the network devices of the network namespace in which it was mounted.
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mounting /sys: %w", err)
	}
	if err := attach(cgroups, "/sys/fs/cgroup"); err != nil {
		return err
	}
	// The kubelet requires /var/lib/kubelet. With a new /var/lib, the folder need not exist on the host.
	if err := unix.Mount("tailgate", "/var/lib", "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mounting /var/lib: %w", err)
	}
	if err := os.Mkdir("/var/lib/kubelet", 0o755); err != nil {
		return fmt.Errorf("creating /var/lib/kubelet: %w", err)
	}
	for target, tree := range own {
		if err := attach(tree, target); err != nil {
			return err
		}
	}
	for _, dir := range keep {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("creating %s on the node: %w", dir, err)
		}
		if err := attach(kept[dir], dir); err != nil {
			return err
		}
	}
	// Volumes with mount propagation require a shared mount.
	if err := unix.Mount("", "/var/lib/kubelet", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("sharing /var/lib/kubelet: %w", err)
	}
	return nil
}

// openTree copies the mounts at dir and below, to be attached elsewhere.
func openTree(dir string) (int, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return -1, fmt.Errorf("taking the mounts of %s: %w", dir, err)
	}
	return fd, nil
}

// closeFD closes a file descriptor through which nothing was written, so that an error does not matter.
func closeFD(fd int) { _ = unix.Close(fd) }

func attach(tree int, target string) error {
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return fmt.Errorf("mounting on %s: %w", target, err)
	}
	return nil
}

// enterNetns moves the calling thread, which must be locked, into a named network namespace.
func enterNetns(name string) error { return enter(netnsDir+name, unix.CLONE_NEWNET) }

// enterNode moves the calling thread into the node's network and mount namespaces. The thread must be locked and cannot
// be used for anything else afterwards.
func enterNode(p paths, n node) error {
	if err := enterNetns(n.netns()); err != nil {
		return err
	}
	// A thread that shares its root and working directory with others cannot change its mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("separating a thread: %w", err)
	}
	return enter(p.mountNamespace(n), unix.CLONE_NEWNS)
}

func enter(path string, kind int) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening namespace %s: %w", path, err)
	}
	defer closeFD(fd)
	if err := unix.Setns(fd, kind); err != nil {
		return fmt.Errorf("entering namespace %s: %w", path, err)
	}
	return nil
}

// overlayWorks reports whether an overlay can be mounted in dir, which is impossible in many containers.
func overlayWorks(dir string) bool {
	err := inThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		try, err := os.MkdirTemp(dir, "overlay-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(try) }()
		var options []string
		for _, part := range []string{"lower", "upper", "work"} {
			path := filepath.Join(try, part)
			if err := os.Mkdir(path, 0o755); err != nil {
				return err
			}
			options = append(options, part+"dir="+path)
		}
		target := filepath.Join(try, "merged")
		if err := os.Mkdir(target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("overlay", target, "overlay", 0, strings.Join(options, ",")); err != nil {
			return err
		}
		return unix.Unmount(target, unix.MNT_DETACH)
	})
	return err == nil
}

// mountsUnder lists the mount points at dir and below as the host sees them, the deepest and latest first.
func mountsUnder(dir string) ([]string, error) {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading the mounts: %w", err)
	}
	var points []string
	for _, m := range parseMountInfo(string(content)) {
		if m.Point == dir || strings.HasPrefix(m.Point, dir+"/") {
			points = append(points, m.Point)
		}
	}
	slices.Reverse(points)
	slices.SortStableFunc(points, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return points, nil
}

// unmountUnder removes all mounts at dir and below.
func unmountUnder(dir string) error {
	points, err := mountsUnder(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range points {
		if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			errs = append(errs, fmt.Errorf("unmounting %s: %w", point, err))
		}
	}
	return errors.Join(errs...)
}

// mount is a line of mountinfo.
type mount struct {
	Point  string
	FSType string
	// Super are the options of the file system, which name a cgroup hierarchy's controllers.
	Super string
}

// parseMountInfo parses the format of /proc/self/mountinfo. It skips lines that it does not understand.
func parseMountInfo(content string) []mount {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []mount
	for line := range strings.Lines(content) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 6 || len(right) < 3 {
			continue
		}
		mounts = append(mounts, mount{Point: unescape.Replace(left[4]), FSType: right[0], Super: right[len(right)-1]})
	}
	return mounts
}
