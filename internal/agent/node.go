package agent

import (
	"errors"
	"fmt"
	"os"
	goruntime "runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// Enter executes this program again with the files of the container's runtime, which are the node's,
// and the network of the container. It needs a privileged pod with hostPID. A namespace is that of a
// thread, and stays over execve.
func Enter(container string) error {
	goruntime.LockOSThread()
	pids, _, err := host{root: "/"}.processesOf(container)
	if err != nil {
		return err
	}
	self, errSelf := os.Open("/proc/self/exe")
	runtime := runtimeOf(pids[0])
	files, errFiles := os.Open(runtime + "/ns/mnt")
	cgroups, errCgroups := os.Open(runtime + "/ns/cgroup")
	network, errNetwork := os.Open(fmt.Sprintf("/proc/%d/ns/net", pids[0]))
	if err := errors.Join(errSelf, errFiles, errCgroups, errNetwork); err != nil {
		return fmt.Errorf("entering the node: %w", err)
	}
	for _, step := range []func() error{
		func() error { return unix.Unshare(unix.CLONE_FS) }, // which threads of a process share
		func() error { return unix.Setns(int(cgroups.Fd()), unix.CLONE_NEWCGROUP) },
		func() error { return unix.Setns(int(files.Fd()), unix.CLONE_NEWNS) },
		func() error { return unix.Unshare(unix.CLONE_NEWNS) }, // no mount reaches the node
		func() error { return unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") },
		func() error { return unix.Setns(int(network.Fd()), unix.CLONE_NEWNET) },
		mountSysfs,
	} {
		if err := step(); err != nil {
			return fmt.Errorf("entering the node and the network of the container: %w; the pod must be privileged, with hostPID", err)
		}
	}
	if err := os.Setenv(plan.EnvView, plan.ViewEntered); err != nil {
		return err
	}
	return syscall.Exec(fmt.Sprintf("/proc/self/fd/%d", self.Fd()), os.Args, os.Environ())
}

// runtimeOf returns the folder in /proc of the nearest ancestor of a container's process with other
// files: a runtime's shim.
func runtimeOf(pid int) string {
	h := host{root: "/"}
	files := func(dir string) string {
		name, _ := os.Readlink(dir + "/ns/mnt")
		return name
	}
	dir := fmt.Sprintf("/proc/%d", pid)
	own := files(dir)
	for files(dir) == own && dir != "/proc/1" && dir != "/proc/" {
		dir = "/proc/" + h.field(dir+"/status", "PPid")
	}
	return dir
}

// mountSysfs mounts a sysfs, which shows the interfaces of the network in which it was mounted, below
// the cgroups that the old one has.
func mountSysfs() error {
	cgroups, err := os.Open("/sys/fs/cgroup")
	if err != nil {
		return err
	}
	defer cgroups.Close()
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	return unix.Mount(fmt.Sprintf("/proc/self/fd/%d", cgroups.Fd()), "/sys/fs/cgroup", "", unix.MS_BIND|unix.MS_REC, "")
}

// stacksOf returns the events of the Onload stacks of a workload's processes, and their IDs.
func (h host) stacksOf(w *result.Workload) (events map[string]int64, ids []int) {
	events = map[string]int64{}
	return events, h.stacks(func(pid int) bool {
		return slices.ContainsFunc(w.Processes, func(p result.Process) bool { return p.PID == pid })
	}, events)
}
