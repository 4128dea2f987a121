package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// podCommand makes the test's program become a pod's process.
const podCommand = "lab-pod"

// Space is a network namespace of the guest.
type Space struct{ handle netns.NsHandle }

// NewSpace makes a network namespace with its loopback up.
func NewSpace() (*Space, error) {
	s := &Space{}
	err := onThread(func() (err error) {
		if s.handle, err = netns.New(); err != nil {
			return err
		}
		loopback, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(loopback)
	})
	return s, err
}

// In calls do in the namespace.
func (s *Space) In(do func() error) error {
	return onThread(func() error {
		if err := netns.Set(s.handle); err != nil {
			return err
		}
		return do()
	})
}

// Path names the namespace for other programs, as long as it is open.
func (s *Space) Path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(s.handle)) }

// Close gives the namespace up. The kernel removes it once no process is in it.
func (s *Space) Close() error { return s.handle.Close() }

// Attach moves a network device into the namespace and gives it an address with the prefix length of its subnet.
func (s *Space) Attach(device, address string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("looking for %s: %w", device, err)
	}
	if err := netlink.LinkSetNsFd(link, int(s.handle)); err != nil {
		return fmt.Errorf("moving %s: %w", device, err)
	}
	return s.In(func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrAdd(link, a), netlink.LinkSetUp(link))
	})
}

// onThread calls do on a thread of its own, which ends with it.
func onThread(do func() error) error {
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread's namespace may have changed
		failed <- do()
	}()
	return <-failed
}

// Pod is a process as a container runtime starts it: in namespaces of its own, with the guest's files but no right to
// change them, the usual devices, the masks of runc, without capabilities unless it is root, without new privileges, huge pages
// and locked memory.
type Pod struct {
	// Name is also that of its cgroup.
	Name  string
	Space *Space
	// CPUs of its cpuset, and MemoryMax its memory.max; empty: all.
	CPUs, MemoryMax string
	UID             int
	Args, Env       []string
	// Devices are names in /dev beyond the usual ones.
	Devices []string
	// Binds are folders and files of the guest by their paths in the pod.
	Binds map[string]string
}

// Process is a pod that was started.
type Process struct {
	// Peak is the most memory that it had at once, in bytes, once it has ended.
	Peak   int64
	cmd    *exec.Cmd
	output bytes.Buffer
	cgroup string
}

// Start starts a pod.
func (p Pod) Start() (*Process, error) {
	conf, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	dir := "/sys/fs/cgroup/" + p.Name
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the pod's cgroup: %w", err)
	}
	// The kubelet gives a pod that asks for no huge pages none.
	for file, value := range map[string]string{"cpuset.cpus": p.CPUs, "memory.max": p.MemoryMax, "hugetlb.2MB.max": "0"} {
		if value == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644); err != nil {
			return nil, err
		}
	}
	group, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer group.Close()
	process := &Process{cmd: exec.Command(initPath, podCommand, string(conf)), cgroup: dir}
	process.cmd.Stdout, process.cmd.Stderr = &process.output, &process.output
	process.cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP,
		UseCgroupFD: true, CgroupFD: int(group.Fd()),
	}
	return process, p.Space.In(process.cmd.Start)
}

// Wait waits until the pod has ended and returns what it wrote. Its cgroup is removed.
func (p *Process) Wait() ([]byte, error) {
	err := p.cmd.Wait()
	text, readErr := os.ReadFile(p.cgroup + "/memory.peak")
	if readErr == nil {
		p.Peak, readErr = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	}
	return p.output.Bytes(), errors.Join(err, readErr, os.Remove(p.cgroup))
}

// Kill ends the pod.
func (p *Process) Kill() error { return p.cmd.Process.Kill() }

// PIDs are the processes of the pod, as the guest sees them.
func (p *Process) PIDs() ([]int, error) {
	text, err := os.ReadFile(p.cgroup + "/cgroup.procs")
	if err != nil {
		return nil, err
	}
	var pids []int
	for field := range bytes.FieldsSeq(text) {
		var pid int
		if _, err := fmt.Sscan(string(field), &pid); err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// becomePod makes this process the one that a Pod in JSON describes. It returns only when that fails.
func becomePod(conf string) error {
	runtime.LockOSThread()
	var p Pod
	if err := json.Unmarshal([]byte(conf), &p); err != nil {
		return err
	}
	const root = "/run/pod"
	if err := p.mount(root); err != nil {
		return err
	}
	if err := errors.Join(unix.Chroot(root), os.Chdir("/")); err != nil {
		return fmt.Errorf("entering the pod's files: %w", err)
	}
	// Runtimes let a pod lock little memory or all; what works with none works with each.
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("limiting locked memory: %w", err)
	}
	if p.UID != 0 {
		for capability := range unix.CAP_LAST_CAP + 1 {
			if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(capability), 0, 0, 0); err != nil {
				return fmt.Errorf("dropping capability %d: %w", capability, err)
			}
		}
	}
	if err := errors.Join(syscall.Setgroups([]int{p.UID}), syscall.Setgid(p.UID), syscall.Setuid(p.UID)); err != nil {
		return fmt.Errorf("becoming user %d: %w", p.UID, err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return syscall.Exec(p.Args[0], p.Args, p.Env)
}

// masked and fixed are what runc hides and what it makes read-only.
var (
	maskedFiles   = []string{"/proc/interrupts", "/proc/keys", "/proc/timer_list", "/proc/kcore"}
	maskedFolders = []string{"/proc/acpi", "/sys/firmware"}
	fixed         = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"}
	usualDevices  = []string{"null", "zero", "full", "random", "urandom"}
)

// mount makes the file system of a pod.
func (p Pod) mount(root string) error {
	const safe = unix.MS_NOSUID | unix.MS_NOEXEC | unix.MS_NODEV
	if err := errors.Join(os.MkdirAll(root, 0o755), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")); err != nil {
		return err
	}
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"/", "", "", unix.MS_BIND},
		{"", "", "", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY},
		{"proc", "/proc", "proc", safe},
		{"sysfs", "/sys", "sysfs", safe | unix.MS_RDONLY},
		{"cgroup2", "/sys/fs/cgroup", "cgroup2", safe | unix.MS_RDONLY},
		{"tmpfs", "/dev", "tmpfs", unix.MS_NOSUID | unix.MS_NOEXEC},
		{"tmpfs", "/tmp", "tmpfs", safe},
		{"tmpfs", "/run", "tmpfs", safe},
	} {
		if err := unix.Mount(m.source, root+m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mounting %s: %w", m.target, err)
		}
	}
	binds := maps.Clone(p.Binds)
	if binds == nil {
		binds = map[string]string{}
	}
	for _, d := range slices.Concat(usualDevices, p.Devices) {
		binds["/dev/"+d] = "/dev/" + d
	}
	for _, f := range maskedFiles {
		if _, err := os.Stat(root + f); err == nil {
			binds[f] = "/dev/null"
		}
	}
	for inPod, source := range binds {
		if err := bind(source, root+inPod); err != nil {
			return err
		}
	}
	for _, f := range maskedFolders {
		if err := unix.Mount("tmpfs", root+f, "tmpfs", unix.MS_RDONLY, ""); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("masking %s: %w", f, err)
		}
	}
	for _, f := range fixed {
		err := errors.Join(bind(root+f, root+f), unix.Mount("", root+f, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
		if err != nil {
			return fmt.Errorf("making %s read-only: %w", f, err)
		}
	}
	return nil
}

// bind mounts a file or folder. What it is mounted on is made in /dev, where nothing is yet; elsewhere it is there.
func bind(source, target string) error {
	if _, err := os.Stat(target); errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(target, nil, 0o644); err != nil {
			return err
		}
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s on %s: %w", source, target, err)
	}
	return nil
}
