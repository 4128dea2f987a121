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

	"github.com/tailgate-dev/tailgate/test/localcluster/thread"
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
	requests, answers := make(chan int), make(chan error)
	result := make(chan error, 1)
	go func() {
		result <- thread.Run(func() error {
			if err := enterNetns(n.netns()); err != nil {
				return err
			}
			err := newMountNamespace(func() error {
				requests <- unix.Gettid()
				return <-answers
			})
			if err != nil {
				return err
			}
			return populateMountNamespace(p, n, keep)
		})
	}()
	for {
		select {
		case err := <-result:
			if err != nil {
				return fmt.Errorf("making the mount namespace of %s: %w", n.Name, err)
			}
			return nil
		case tid := <-requests:
			// A mount namespace can only be mounted in a namespace with a lower number, so a thread of the host does it.
			answers <- unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/mnt", tid), pin, "", unix.MS_BIND, "")
		}
	}
}

// namespaceBatch is the number of consecutive namespace numbers that a CPU takes at a time in Linux 6.18 (COOKIE_LOCAL_BATCH).
const namespaceBatch = 4096

// newMountNamespace gives the calling thread a mount namespace that another thread can pin, with pin. The kernel refuses (EINVAL) to
// pin a namespace with a lower number than the one in which it would be pinned. In Linux 6.18, each CPU takes numbers from a batch
// of its own, so that a newer namespace can have a lower number. Then the namespace is made again on each CPU. If the older namespace
// is from a CPU that this thread may not use, one CPU is made to take another batch, which is above all earlier ones.
func newMountNamespace(pin func() error) error {
	try := func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return fmt.Errorf("unsharing: %w", err)
		}
		// Mounts and unmounts on the host propagate to the node, but not in the other direction.
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
			return fmt.Errorf("cutting mounts off from the host (in a chroot, its folder must be a mount point): %w", err)
		}
		if err := pin(); err != nil {
			return refused{err}
		}
		return nil
	}
	var no refused
	err := try()
	if !errors.As(err, &no) || !errors.Is(err, unix.EINVAL) {
		return err
	}
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		return fmt.Errorf("reading the CPUs of this thread: %w", err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &allowed) }() // The thread ends soon.
	for cpu := range len(allowed) * 64 {
		if !allowed.IsSet(cpu) {
			continue
		}
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			return fmt.Errorf("moving to CPU %d: %w", cpu, err)
		}
		if err = try(); err == nil {
			return nil
		}
	}
	for range namespaceBatch { // Namespaces of all kinds take numbers from the same batch, and this kind costs little.
		if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
			return fmt.Errorf("unsharing: %w", err)
		}
	}
	return try()
}

// refused is the error that a namespace cannot be pinned.
type refused struct{ error }

func (r refused) Error() string { return "pinning it: " + r.error.Error() }
func (r refused) Unwrap() error { return r.error }

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

// populateMountNamespace fills the mount namespace of the calling thread with the node's view of the machine.
func populateMountNamespace(p paths, n node, keep []string) error {
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
		if err := ensureTarget(target); err != nil {
			return err
		}
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

// ensureTarget makes a folder that a file system of the kernel does not have: without NUMA, sysfs has no devices/system/node, and
// without PCI no bus/pci. A tmpfs with the same entries covers the nearest parent that exists. The calling thread has a mount namespace
// of its own.
func ensureTarget(target string) error {
	if _, err := os.Lstat(target); err == nil {
		return nil
	}
	parent := filepath.Dir(target)
	for ; parent != "/"; parent = filepath.Dir(parent) {
		if _, err := os.Stat(parent); err == nil {
			break
		}
	}
	entries, err := os.ReadDir(parent)
	if err != nil {
		return fmt.Errorf("making %s: %w", target, err)
	}
	links, trees := map[string]string{}, map[string]int{}
	for _, entry := range entries {
		path := filepath.Join(parent, entry.Name())
		if entry.Type() == os.ModeSymlink {
			if links[path], err = os.Readlink(path); err != nil {
				return fmt.Errorf("making %s: %w", target, err)
			}
			continue
		}
		if trees[path], err = openTree(path); err != nil {
			return err
		}
		defer closeFD(trees[path])
	}
	if err := unix.Mount("tailgate", parent, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("making %s: mounting on %s: %w", target, parent, err)
	}
	for path, link := range links {
		if err := os.Symlink(link, path); err != nil {
			return fmt.Errorf("making %s: %w", target, err)
		}
	}
	for _, entry := range entries {
		path := filepath.Join(parent, entry.Name())
		tree, ok := trees[path]
		if !ok {
			continue
		}
		if entry.IsDir() {
			err = os.Mkdir(path, 0o755)
		} else {
			err = os.WriteFile(path, nil, 0o644)
		}
		if err := errors.Join(err, attach(tree, path)); err != nil {
			return fmt.Errorf("making %s: %w", target, err)
		}
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return fmt.Errorf("making %s: %w", target, err)
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

// repairNamespaces pins the namespaces that are not pinned any more, or not where this command can see it, again: those of a process that
// runs in them. A cluster that was started in another mount namespace, whose pins this command cannot see, is kept. It returns why a new cluster is needed if no such process runs, and an error if the cluster cannot be repaired.
func (c *cluster) repairNamespaces() (why string, err error) {
	running, err := findProcesses(func(f found) bool { return c.marked(f) && f.Process != "" })
	if err != nil {
		return "", err
	}
	if len(running) == 0 {
		return "its namespaces and processes are gone", nil
	}
	processes := map[string]found{}
	for _, f := range running {
		processes[f.Process] = f
	}
	member := func(names ...string) (found, error) {
		for _, name := range names {
			if f, ok := processes[name]; ok {
				return f, nil
			}
		}
		return found{}, fmt.Errorf("the cluster in %s has lost a namespace, and none of %s runs in it any more, but others of its %d processes run: "+
			"`make cluster-down` removes it", c.state, strings.Join(names, ", "), len(running))
	}
	cp, err := member(Etcd, APIServer, ControllerManager, Scheduler)
	if err != nil {
		return "", err
	}
	if cp.MountNS != inode("/proc/self/ns/mnt") {
		return "", fmt.Errorf("the cluster in %s runs and was started in another mount namespace. Run this command there (nsenter --target %d --mount), "+
			"or remove the cluster with `make cluster-down`", c.state, cp.PID)
	}
	if err := errors.Join(prepareNetnsDir(c.paths), ensureNamespaceDir(c.paths)); err != nil {
		return "", err
	}
	if err := repin(cp, "net", netnsDir+c.controlPlaneNetns()); err != nil {
		return "", err
	}
	if !netnsExists(c.fabricNetns()) { // No process runs in it, and ensureNetwork makes its links.
		if err := createNetns(c.fabricNetns()); err != nil {
			return "", err
		}
	}
	for _, n := range c.nodes {
		names := []string{nodeProcess("containerd", n.Name), nodeProcess("kubelet", n.Name), nodeProcess("deviceplugin", n.Name), nodeProcess("dradriver", n.Name)}
		if n.Guest {
			continue // its network namespace is empty
		}
		f, err := member(names...)
		if err == nil {
			err = errors.Join(repin(f, "net", netnsDir+n.netns()), repin(f, "mnt", c.mountNamespace(n)))
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

// repin mounts a namespace of a process on a file, unless one is mounted there.
func repin(f found, kind, target string) error {
	if isMountOf(target, unix.NSFS_MAGIC) {
		return nil
	}
	err := os.WriteFile(target, nil, 0o600)
	if err == nil {
		err = unix.Mount(fmt.Sprintf("/proc/%d/ns/%s", f.PID, kind), target, "", unix.MS_BIND, "")
	}
	if err != nil {
		return fmt.Errorf("pinning the namespaces of the running cluster again at %s: %w. Run this command where the cluster was started, or `make cluster-down`", target, err)
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
	err := thread.Run(func() error {
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
	content, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("reading the mounts: %w", err)
	}
	real := dir // The kernel lists mounts without symbolic links.
	if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		real = resolved
	}
	var points []string
	for _, m := range parseMountInfo(string(content)) {
		if m.Point == real || strings.HasPrefix(m.Point, real+"/") {
			points = append(points, dir+strings.TrimPrefix(m.Point, real))
		}
	}
	slices.Reverse(points)
	slices.SortStableFunc(points, func(a, b string) int { return strings.Count(b, "/") - strings.Count(a, "/") })
	return points, nil
}

// ownMounts lists the mounts below the state folder, without those of the user; see claimFolder.
func ownMounts(p paths) ([]string, error) {
	points, err := mountsUnder(p.state)
	if err != nil {
		return nil, err
	}
	kept, err := keptEntries(p)
	return slices.DeleteFunc(points, func(point string) bool {
		entry, _, _ := strings.Cut(strings.TrimPrefix(point, p.state+"/"), "/")
		return point == p.state || slices.Contains(kept, entry)
	}), err
}

// unmountOwn removes the mounts below the state folder.
func unmountOwn(p paths) error {
	points, err := ownMounts(p)
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
	// Root is the folder of the file system that is mounted at Point.
	Root, Point string
	FSType      string
	// Super are the options of the file system, which name a cgroup hierarchy's controllers.
	Super string
}

// parseMountInfo parses the format of /proc/thread-self/mountinfo. It skips lines that it does not understand.
func parseMountInfo(content string) []mount {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []mount
	for line := range strings.Lines(content) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 6 || len(right) < 3 {
			continue
		}
		mounts = append(mounts, mount{Root: unescape.Replace(left[3]), Point: unescape.Replace(left[4]), FSType: right[0], Super: right[len(right)-1]})
	}
	return mounts
}
