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

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/test/netpair"
)

// podCommand makes the test's program become a pod's process.
const podCommand = "lab-pod"

// Pod is a process as a container runtime starts it: in its own namespaces, with read-only access to the guest's files, the
// usual devices and the masks of runc, and without capabilities (unless it is root), new privileges, huge pages and locked
// memory.
type Pod struct {
	// Name is also the name of its cgroup.
	Name  string
	Space *netpair.Namespace
	// CPUs of its cpuset, and MemoryMax its memory.max; empty: all.
	CPUs, MemoryMax string
	UID             int
	Args, Env       []string
	// Devices are names of further devices in /dev.
	Devices []string
	// Binds are folders and files of the guest, by their paths in the pod.
	Binds map[string]string
}

// Process is a pod that was started.
type Process struct {
	// Peak is its maximum memory usage in bytes. It is set when the process has ended.
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
	// The kubelet gives no huge pages to a pod that does not request them.
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

// Wait waits until the pod has ended, removes its cgroup, and returns its output.
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

// podRoot is where a pod's files are mounted.
const podRoot = "/run/pod"

// Beside runs a program as a runtime does an ephemeral container: with the files, the network and the processes of the pod, outside its
// cgroup, as a user without capabilities (or root). It returns what the program printed.
func (p *Process) Beside(user uint32, args, env []string) ([]byte, error) {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.Dir = env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: podRoot, Credential: &syscall.Credential{Uid: user, Gid: user}}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	started, other := make(chan error), make(chan struct{})
	var start func()
	start = func() {
		runtime.LockOSThread()            // the thread ends with this function, and nothing else gets its namespaces
		if unix.Gettid() == os.Getpid() { // except for the first thread, which never ends, and whose namespaces are those of the process
			go start()
			<-other
			runtime.UnlockOSThread()
			return
		}
		close(other)
		err := unix.Unshare(unix.CLONE_FS)
		for _, space := range []struct {
			name string
			flag int
		}{{"pid", unix.CLONE_NEWPID}, {"net", unix.CLONE_NEWNET}, {"mnt", unix.CLONE_NEWNS}} {
			file, errOpen := os.Open(fmt.Sprintf("/proc/%d/ns/%s", p.cmd.Process.Pid, space.name))
			if err = errors.Join(err, errOpen); err == nil {
				err = unix.Setns(int(file.Fd()), space.flag)
				_ = file.Close()
			}
		}
		if err == nil {
			err = cmd.Start()
		}
		started <- err
	}
	go start()
	if err := <-started; err != nil {
		return nil, err
	}
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, &stderr)
	}
	return stdout.Bytes(), nil
}

// PIDs returns the processes of the pod, as the guest sees them.
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

// becomePod makes this process the process of a Pod, which conf holds in JSON. It returns only if that fails.
func becomePod(conf string) error {
	runtime.LockOSThread()
	var p Pod
	if err := json.Unmarshal([]byte(conf), &p); err != nil {
		return err
	}
	if err := p.mount(podRoot); err != nil {
		return err
	}
	if err := errors.Join(unix.Chroot(podRoot), os.Chdir("/")); err != nil {
		return fmt.Errorf("entering the pod's files: %w", err)
	}
	// Some runtimes let a pod lock little memory, others any amount. Software that works without locked memory works with all of them.
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

// maskedFiles and maskedFolders are the paths that runc hides, fixed are those that it makes read-only.
var (
	maskedFiles   = []string{"/proc/interrupts", "/proc/keys", "/proc/timer_list", "/proc/kcore"}
	maskedFolders = []string{"/proc/acpi", "/sys/firmware"}
	fixed         = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys"}
	usualDevices  = []string{"null", "zero", "full", "random", "urandom"}
)

// mount mounts the file system of a pod.
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

// bind mounts a file or folder. It creates the target if it does not exist, which is the case only in /dev.
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
