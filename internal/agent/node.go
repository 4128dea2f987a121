package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// Enter executes this program again in the network of a container, with a sysfs of that network and
// all cgroups of the node. Of the container, which its user controls, it takes nothing else: neither
// files nor their namespace. A namespace is that of a thread, and stays over execve.
func Enter(container string) error {
	runtime.LockOSThread()
	pids, _, err := host{root: "/"}.processesOf(container)
	if err != nil {
		return err
	}
	self, errSelf := os.Open("/proc/self/exe")
	network, errNetwork := networkOf(pids)
	if err := errors.Join(errSelf, errNetwork); err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return unix.Unshare(unix.CLONE_NEWNS) },
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "") }, // no mount reaches the node
		func() error { return unix.Setns(int(network.Fd()), unix.CLONE_NEWNET) },
		func() error { return unix.Unmount("/sys", unix.MNT_DETACH) },
		func() error { return mount("sysfs", "/sys", "") },
		mountCgroups,
		dropCapabilities,
	} {
		if err := step(); err != nil {
			return fmt.Errorf("entering the network of the container: %w; the pod must be privileged, with hostPID", err)
		}
	}
	if err := os.Setenv(plan.EnvView, plan.ViewEntered); err != nil {
		return err
	}
	return syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", self.Fd()), os.Args, os.Environ())
}

// dropCapabilities leaves what reads processes: with more, the kernel loads a module for an ioctl on an
// interface that has vanished.
func dropCapabilities() error {
	for c := uintptr(0); unix.Prctl(unix.PR_CAPBSET_READ, c, 0, 0, 0) == nil; c++ {
		if c == unix.CAP_DAC_READ_SEARCH || c == unix.CAP_SYS_PTRACE {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return err
		}
	}
	none := [2]unix.CapUserData{} // execve gives root what is inheritable, too
	return unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0])
}

// networkOf opens the network namespace that all processes of a container have.
func networkOf(pids []int) (*os.File, error) {
	path := func(pid int) string { return fmt.Sprintf("/proc/%d/ns/net", pid) }
	network, err := os.Open(path(pids[0]))
	if err != nil {
		return nil, fmt.Errorf("opening the network of the container: %w", err)
	}
	var opened, other unix.Stat_t
	err = unix.Fstat(int(network.Fd()), &opened)
	for _, pid := range pids {
		if err == nil && unix.Stat(path(pid), &other) == nil && other.Ino != opened.Ino {
			err = errors.New("its processes have several network namespaces: inspect it without --from node")
		}
	}
	return network, err
}

func mount(kind, target, options string) error {
	return unix.Mount(kind, target, kind, unix.MS_NOSUID|unix.MS_NOEXEC|unix.MS_NODEV, options)
}

// mountCgroups mounts the hierarchies of the node: that of version 2, or all of version 1.
func mountCgroups() error {
	hierarchies := host{root: "/"}.read("proc/self/cgroup")
	if strings.HasPrefix(hierarchies, "0::") && !strings.Contains(hierarchies, "\n") {
		return mount("cgroup2", "/sys/fs/cgroup", "")
	}
	if err := mount("tmpfs", "/sys/fs/cgroup", ""); err != nil {
		return err
	}
	for l := range strings.Lines(hierarchies) {
		_, rest, _ := strings.Cut(l, ":")
		controllers, _, _ := strings.Cut(rest, ":")
		if controllers == "" || strings.Contains(controllers, "=") {
			continue
		}
		dir := filepath.Join("/sys/fs/cgroup", controllers)
		if err := errors.Join(os.Mkdir(dir, 0o755), mount("cgroup", dir, controllers)); err != nil {
			return err
		}
	}
	return nil
}

// stacksOf returns the events of the Onload stacks of a workload's processes. It dumps no stack:
// onload_stackdump would read, as root, memory that these processes write.
func (h host) stacksOf(w *result.Workload) map[string]int64 {
	events := map[string]int64{}
	h.stacks(func(pid int) bool {
		return slices.ContainsFunc(w.Processes, func(p result.Process) bool { return p.PID == pid })
	}, events)
	return events
}
