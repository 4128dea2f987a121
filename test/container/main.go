// Command container runs a command in what `docker run --privileged --cgroupns=private` gives it: mount, PID, network, IPC, UTS and
// cgroup namespaces of its own, a root file system that is an overlay, new file systems at /proc and /sys, and cgroups below those of
// this machine, of both versions. There is no container engine and no network except the loopback.
//
//	go run ./test/container [COMMAND [ARG...]]
//	go run ./test/container -remove
//
// With -remove it removes what an interrupted run left, for make cluster-down. The processes of a container end with its first one.
//
// Without a command it runs make demo and make cluster-down, and fails if they leave anything behind. What they need from the Internet is
// built before. The checkout, Go and the caches are those of this machine, at the same paths. Root is needed.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/test/cached"
	"github.com/tailgate-dev/tailgate/test/environment"
	"github.com/tailgate-dev/tailgate/test/localcluster"
	"github.com/tailgate-dev/tailgate/test/localcluster/images"
	"github.com/tailgate-dev/tailgate/test/localcluster/install"
)

// inside is the argument with which this program calls itself in the container.
const inside = "inside"

// name of the container's cgroups.
const name = "tailgate-container"

// demo runs both commands twice over: the second one finds what the first one left.
const demo = `
state() {
  for dir in /sys/fs/cgroup /sys/fs/cgroup/unified; do
    if [ -e $dir/cgroup.subtree_control ]; then echo "$dir: $(cat $dir/cgroup.subtree_control), processes: $(wc -l < $dir/cgroup.procs)"; fi
  done
  find /sys/fs/cgroup -name '*tailgate*'
  ls -A /run
  ls -A /var/lib | grep -E 'tailgate|kube|cni|containerd' || : # the rest is that of the machine, whose other programs work on
  ip -o link | cut -d: -f2
  cut -d' ' -f5 /proc/self/mountinfo
}
before=$(state)
make demo
make cluster-down
after=$(state)
if [ "$before" != "$after" ]; then
  echo "the container is not as it was:"
  diff <(echo "$before") <(echo "$after")
  exit 1
fi
echo "make demo and make cluster-down passed in a container and left nothing behind."
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "container:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == inside {
		return enter(args[1:])
	}
	if os.Geteuid() != 0 {
		return errors.New("root is needed, as for a privileged container")
	}
	remove := len(args) > 0 && args[0] == "-remove"
	if remove && os.Getenv("TAILGATE_DISTRIBUTION") != "" {
		return nil // make demo-debian13 takes its own cluster down, and sees the cgroups of this machine, but not its lock.
	}
	release, err := localcluster.UseContainer(ctx, os.Stderr, "make demo-container or another container")
	if err != nil {
		return err
	}
	defer release()
	if err := removeAll(); err != nil || remove {
		return err
	}
	fmt.Fprintln(os.Stderr, localcluster.Killed)
	if len(args) == 0 {
		args = []string{"/bin/bash", "-eu", "-c", demo}
		// The container has no network, so that what is missing is installed before, too.
		if err := localcluster.Look(ctx, localcluster.Options{Log: os.Stderr}); err != nil {
			return err
		}
		if _, err := install.Build(ctx, os.Stderr); err != nil {
			return err
		}
		if _, err := localcluster.Binaries(ctx, os.Stderr); err != nil {
			return err
		}
	}
	trees, err := cgroupTrees()
	if err != nil {
		return err
	}
	defer func() {
		if err := removeAll(); err != nil {
			fmt.Fprintf(os.Stderr, "container: %v; make cluster-down removes what is left\n", err)
		}
	}()
	for _, t := range trees {
		if err := t.prepare(); err != nil {
			return fmt.Errorf("making a cgroup for the container: %w", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{inside}, args...)...)
	cmd.Env = os.Environ()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Minute // then, everything in the container is killed with its first process
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS, Pdeathsig: syscall.SIGKILL,
	}
	runtime.LockOSThread() // The death of this thread would kill the container.
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s in the container: %w", args[0], err)
	}
	return nil
}

// tree is a cgroup tree of this machine.
type tree struct {
	// point is where it is mounted, options are the controllers of a version 1 tree, dir is the container's cgroup.
	point, options, dir string
	v2                  bool
}

// cgroupTrees lists the trees below /sys/fs/cgroup. The container's cgroup is below that of this process in trees of version 1, whose
// parents may have processes, and below the root in version 2.
func cgroupTrees() ([]tree, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	var trees []tree
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(strings.TrimSpace(line), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if len(left) < 6 || len(right) < 3 || (left[4] != "/sys/fs/cgroup" && filepath.Dir(left[4]) != "/sys/fs/cgroup") {
			continue
		}
		switch t := (tree{point: left[4]}); right[0] {
		case "cgroup2":
			t.v2, t.dir = true, filepath.Join(t.point, name)
			trees = append(trees, t)
		case "cgroup":
			words := slices.DeleteFunc(strings.Split(right[2], ","), func(w string) bool { return w == "rw" || w == "xattr" || strings.HasPrefix(w, "release_agent=") })
			t.options = strings.Join(words, ",")
			for line := range strings.Lines(string(own)) {
				fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
				if len(fields) == 3 && fields[1] == t.options {
					t.dir = filepath.Join(t.point, fields[2], name)
				}
			}
			if t.dir == "" {
				return nil, fmt.Errorf("this process is in no cgroup of %s", t.point)
			}
			if strings.HasPrefix(t.options, "name=") {
				t.options = "none," + t.options
			}
			trees = append(trees, t)
		}
	}
	return trees, nil
}

// notes lists the controllers that this command enabled. A boot removes both.
const notes = "/run/tailgate-container.controllers"

// prepare makes the container's cgroup.
func (t tree) prepare() error {
	if t.v2 {
		if err := t.enable(); err != nil {
			return err
		}
	}
	if err := os.Mkdir(t.dir, 0o755); err != nil {
		return err
	}
	if strings.Contains(t.options, "cpuset") {
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(filepath.Dir(t.dir), file))
			if err == nil {
				err = os.WriteFile(filepath.Join(t.dir, file), value, 0o644)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// enable enables all controllers of a version 2 tree for the container, and notes those that were not.
func (t tree) enable() error {
	control := filepath.Join(t.point, "cgroup.subtree_control")
	available, err := os.ReadFile(filepath.Join(t.point, "cgroup.controllers"))
	if err != nil {
		return err
	}
	already, err := os.ReadFile(control)
	if err != nil {
		return err
	}
	list, err := os.OpenFile(notes, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer list.Close()
	for _, c := range strings.Fields(string(available)) {
		if slices.Contains(strings.Fields(string(already)), c) {
			continue
		}
		if _, err := fmt.Fprintln(list, control, c); err != nil {
			return err
		}
		if err := os.WriteFile(control, []byte("+"+c), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// removeAll removes the cgroups of the container and its folder, and disables the controllers that it enabled.
func removeAll() error {
	var left error
	deadline := time.Now().Add(patience)
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == name {
			left = errors.Join(left, removeCgroup(path, deadline))
			return filepath.SkipDir
		}
		return nil // Other cgroups come and go.
	})
	enabled, readErr := os.ReadFile(notes)
	if readErr != nil && !errors.Is(readErr, fs.ErrNotExist) {
		err = errors.Join(err, readErr)
	}
	for line := range strings.Lines(string(enabled)) {
		control, controller, _ := strings.Cut(strings.TrimSpace(line), " ")
		err = errors.Join(err, localcluster.DisableController(control, controller))
	}
	if err := errors.Join(left, err); err != nil {
		return err
	}
	for _, path := range []string{notes, workDir()} { // The container had its root mounted there, in its own mount namespace.
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// patience is how long the kernel may take to end the processes of a container on a busy machine.
const patience = 3 * time.Minute

// removeCgroup kills what runs in a cgroup of a container whose command has ended, and removes it with its children.
func removeCgroup(dir string, deadline time.Time) error {
	for {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		for _, e := range entries {
			if e.IsDir() {
				err = errors.Join(err, removeCgroup(filepath.Join(dir, e.Name()), deadline))
			}
		}
		if err != nil {
			return err
		}
		procs, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")) // It may have gone.
		for pid := range strings.FieldsSeq(string(procs)) {
			if n, err := strconv.Atoi(pid); err == nil && n > 0 {
				_ = unix.Kill(n, unix.SIGKILL)
			}
		}
		err = unix.Rmdir(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("removing cgroup %s with the processes %q, which the kernel has not ended yet: %w", dir, strings.Fields(string(procs)), err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// enter makes the container around this process, which becomes the command.
func enter(args []string) error {
	runtime.LockOSThread()
	checkout, err := images.RepositoryRoot()
	if err != nil {
		return err
	}
	trees, err := cgroupTrees()
	if err != nil {
		return err
	}
	shared, err := sharedFolders(checkout)
	if err != nil {
		return err
	}
	for _, t := range trees {
		if err := os.WriteFile(filepath.Join(t.dir, "cgroup.procs"), []byte("0"), 0o644); err != nil {
			return fmt.Errorf("entering the container's cgroup: %w", err)
		}
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("making a cgroup namespace: %w", err)
	}
	if lo, err := netlink.LinkByName("lo"); err != nil || netlink.LinkSetUp(lo) != nil {
		return fmt.Errorf("starting the loopback: %w", err)
	}
	root, err := makeRoot(trees, shared)
	if err != nil {
		return fmt.Errorf("making the container's root file system: %w", err)
	}
	// The old root is mounted on the new one, and then released.
	err = errors.Join(unix.Chdir(root), unix.PivotRoot(".", "."), unix.Unmount(".", unix.MNT_DETACH), unix.Chdir("/"), unix.Chdir(checkout))
	if err != nil {
		return fmt.Errorf("changing the root: %w", err)
	}
	if err := os.Unsetenv("TMPDIR"); err != nil { // The folder may be in the /tmp of the machine.
		return err
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	return unix.Exec(program, args, os.Environ())
}

// workDir is the folder in which the container's root is mounted.
func workDir() string { return filepath.Join(os.TempDir(), name) }

// makeRoot mounts the container's file systems.
func makeRoot(trees []tree, shared []string) (root string, err error) {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return "", err
	}
	// What the container writes is in memory, and gone with its mount namespace.
	work := workDir()
	if err := os.MkdirAll(work, 0o755); err != nil {
		return "", err
	}
	if err := unix.Mount(name, work, "tmpfs", 0, "mode=755"); err != nil {
		return "", err
	}
	root = filepath.Join(work, "root")
	for _, dir := range []string{"upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(work, dir), 0o755); err != nil {
			return "", err
		}
	}
	if err := unix.Mount("overlay", root, "overlay", 0, "lowerdir=/,upperdir="+work+"/upper,workdir="+work+"/work"); err != nil {
		return "", err
	}
	// The overlay must not show the state of this machine's clusters. Their folders are hidden, not removed: root is the overlay.
	states, err := filepath.Glob(root + "/var/lib/tailgate-localcluster*")
	if err != nil {
		return "", err
	}
	for _, dir := range states {
		if err := os.RemoveAll(dir); err != nil {
			return "", err
		}
	}
	type mount struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}
	mounts := []mount{
		{"proc", "/proc", "proc", 0, ""}, {"sysfs", "/sys", "sysfs", 0, ""}, {"/dev", "/dev", "", unix.MS_BIND | unix.MS_REC, ""},
		{name, "/run", "tmpfs", 0, "mode=755"}, {name, "/tmp", "tmpfs", 0, ""},
	}
	for _, dir := range shared {
		mounts = append(mounts, mount{dir, dir, "", unix.MS_BIND | unix.MS_REC, ""})
	}
	if len(trees) > 1 || !trees[0].v2 {
		mounts = append(mounts, mount{name, "/sys/fs/cgroup", "tmpfs", 0, "mode=755"})
	}
	for _, t := range trees {
		kind := "cgroup"
		if t.v2 {
			kind = "cgroup2"
		}
		mounts = append(mounts, mount{kind, t.point, kind, 0, t.options})
	}
	for _, m := range mounts {
		target := root + m.target
		err := os.MkdirAll(target, 0o755)
		if err == nil {
			err = unix.Mount(m.source, target, m.kind, m.flags, m.data)
		}
		if err != nil {
			return "", fmt.Errorf("mounting %s: %w", m.target, err)
		}
	}
	return root, nil
}

// sharedFolders returns the folders of this machine that the container shows at the same paths. A cache that is still missing is made, so
// that what the container builds is kept.
func sharedFolders(checkout string) ([]string, error) {
	folders, err := environment.GoFolders(context.Background())
	if err != nil {
		return nil, err
	}
	cache, err := cached.Dir()
	if err != nil {
		return nil, err
	}
	folders = append(folders, cache, checkout)
	for _, dir := range folders {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("making a folder that the container shares: %w", err)
		}
	}
	return folders, nil
}
