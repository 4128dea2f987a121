package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/test/localcluster/thread"
)

// Environment variables that mark the cluster's processes. Children inherit them.
const (
	markState   = "TAILGATE_LOCALCLUSTER"
	markProcess = "TAILGATE_LOCALCLUSTER_PROCESS"
)

// process is one long-running command of the cluster.
type process struct {
	// Name is unique in the cluster.
	Name string
	// Args has the command's absolute path first.
	Args []string
	// Env holds variables in addition to PATH.
	Env []string
	// Node is the node whose namespaces the command runs in. Nil means the control plane.
	Node *node
}

// of reports whether the process belongs to a node, which it must have to become ready, or to none.
func (pr process) of(n node) bool {
	return pr.Node == nil && !n.Guest || pr.Node != nil && pr.Node.Name == n.Name || pr.Name == nodeProcess("guest", n.Name)
}

// start runs the command in the background. The command outlives this process, and its output goes to its log.
func (c *cluster) start(pr process) error {
	log, err := os.OpenFile(c.log(pr.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", pr.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(pr.Args[0], pr.Args[1:]...)
	cmd.Dir = "/"
	cmd.Env = c.environment(append([]string{markState + "=" + c.state, markProcess + "=" + pr.Name}, pr.Env...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = thread.Run(func() error {
		var err error
		if pr.Node == nil {
			err = enterNetns(c.controlPlaneNetns())
		} else {
			err = enterNode(c.paths, *pr.Node)
		}
		if err != nil {
			return err
		}
		plainPriority()
		return cmd.Start()
	})
	if err != nil {
		return fmt.Errorf("starting %s: %w", pr.Name, err)
	}
	// The kernel shows the environment, by which the process is found, a moment after Start returns.
	for range 1000 {
		if environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", cmd.Process.Pid)); err != nil || len(environ) > 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	// Without Wait, it would stay a zombie until this process ends. Its log shows why it ended.
	end := make(chan *os.ProcessState, 1)
	ends.Store(c.log(pr.Name), end)
	go func() {
		_ = cmd.Wait()
		end <- cmd.ProcessState
	}()
	return nil
}

// ends has, by its log, a channel for the end of each process that this command started last under this name.
var ends sync.Map

// endOf reports whether this command had started a process that has ended and nothing killed it, or the signal that killed it.
func endOf(log string) (again bool, signal string) {
	end, ok := ends.Load(log)
	if !ok {
		return false, ""
	}
	select {
	case state := <-end.(chan *os.ProcessState):
		end.(chan *os.ProcessState) <- state // for the next caller
		if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return false, state.String() + ": "
		}
		return true, ""
	case <-time.After(time.Second): // The kernel shows the end before Wait returns.
		return false, ""
	}
}

// plainPriority undoes for the calling thread, and for processes that it starts, what taskset, nice, numactl and the like changed for
// the command that the user entered: a node must be able to use all CPUs and all memory, and pods inherit the rest.
func plainPriority() {
	var all unix.CPUSet
	for i := range all {
		all[i] = ^all[i]
	}
	// These calls can only fail in a container that forbids them. The nodes then run as the user's command does.
	_ = unix.SchedSetaffinity(0, &all)
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0)
	_, _, _ = unix.Syscall(unix.SYS_SET_MEMPOLICY, unix.MPOL_DEFAULT, 0, 0)    // numactl
	_, _, _ = unix.Syscall(unix.SYS_IOPRIO_SET, ioprioProcess, 0, 0)           // ionice
	_, _, _ = unix.Syscall(unix.SYS_PERSONALITY, 0, 0, 0)                      // setarch
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0)                         // 0 is that of the process's start
	_ = unix.Prctl(unix.PR_SCHED_CORE, unix.PR_SCHED_CORE_SHARE_FROM, 1, 0, 0) // coresched; process 1 has no cookie
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0o644)           // choom
}

// ioprioProcess means that a call of ioprio_set is about one process; 0 is this thread.
const ioprioProcess = 1

// ensure starts the command unless it runs.
func (c *cluster) ensure(pr process) error {
	running, err := c.running(pr)
	if err != nil || running {
		return err
	}
	return c.start(pr)
}

// running reports whether the command runs.
func (c *cluster) running(pr process) (bool, error) {
	found, err := findProcesses(c.runs(pr.Name, pr.Args[0]))
	return len(found) > 0, err
}

// found describes a process of the machine.
type found struct {
	PID int
	// Exe is the base name of the executable; for a script, of its interpreter.
	Exe string
	// State and Process are the values of markState and markProcess.
	State, Process string
	// Folder is the state folder as the process sees it, if State is set and the folder exists.
	Folder fileID
	// Cgroup is the content of /proc/PID/cgroup.
	Cgroup string
	// NetNS and MountNS identify the namespaces.
	NetNS, MountNS uint64
}

// fileID identifies a file of this machine.
type fileID struct{ Device, Inode uint64 }

// identify returns the zero value if there is no such file.
func identify(path string) fileID {
	var stat unix.Stat_t
	if unix.Stat(path, &stat) != nil || stat.Nlink == 0 {
		return fileID{}
	}
	return fileID{stat.Dev, stat.Ino}
}

// marked reports whether a process has the mark of this cluster. A cluster in a container of this machine has the same mark, but not the
// same folder.
func (p paths) marked(f found) bool { return f.State == p.state && f.Folder == identify(p.state) }

// runs returns a function that matches the process itself and not its children, which carry its mark, too.
func (c *cluster) runs(name, command string) func(found) bool {
	return func(f found) bool {
		return c.marked(f) && f.Process == name && f.Exe == filepath.Base(command)
	}
}

// findProcesses lists the matching processes, except this one.
func findProcesses(match func(found) bool) ([]found, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var matches []found
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if f, ok := inspect(pid); ok && match(f) {
			matches = append(matches, f)
		}
	}
	return matches, nil
}

// inspect describes a process. It returns false for kernel threads, zombies and processes that have ended meanwhile,
// which hold no resources.
func inspect(pid int) (found, bool) {
	dir := fmt.Sprintf("/proc/%d/", pid)
	f := found{PID: pid}
	exe, err := os.Readlink(dir + "exe")
	if err != nil {
		return f, false
	}
	f.Exe = filepath.Base(strings.TrimSuffix(exe, " (deleted)"))
	environ, err := os.ReadFile(dir + "environ")
	if err != nil {
		return f, false
	}
	for variable := range strings.SplitSeq(string(environ), "\x00") {
		if value, ok := strings.CutPrefix(variable, markState+"="); ok {
			f.State = value
		}
		if value, ok := strings.CutPrefix(variable, markProcess+"="); ok {
			f.Process = value
		}
	}
	if f.State != "" {
		f.Folder = identify(dir + "root" + f.State)
	}
	cgroup, err := os.ReadFile(dir + "cgroup")
	if err != nil {
		return f, false
	}
	f.Cgroup = string(cgroup)
	f.NetNS, f.MountNS = inode(dir+"ns/net"), inode(dir+"ns/mnt")
	return f, true
}

// inode returns the inode of a namespace's file, which identifies the namespace, or 0 if there is no such file.
func inode(path string) uint64 {
	var stat unix.Stat_t
	if unix.Stat(path, &stat) != nil {
		return 0
	}
	return stat.Ino
}

// ours returns a function that matches every process of the cluster with this state folder: a process that has the mark,
// or is in a cgroup of a node or in a namespace of the cluster.
func ours(p paths) func(found) bool {
	trees, _ := hierarchies() // If they cannot be listed, removeCgroups fails.
	netns, mountns := map[uint64]bool{}, map[uint64]bool{}
	for _, name := range p.netnsNames() {
		if netnsExists(name) {
			netns[inode(netnsDir+name)] = true
		}
	}
	// The CPUs of the nodes do not matter here.
	for _, n := range p.nodes([2][]int{}) {
		if isMountOf(p.mountNamespace(n), unix.NSFS_MAGIC) {
			mountns[inode(p.mountNamespace(n))] = true
		}
	}
	return func(f found) bool {
		return p.marked(f) || p.inNodeCgroup(trees, f.Cgroup) || netns[f.NetNS] || mountns[f.MountNS]
	}
}

// inNodeCgroup reports whether a process with this content of /proc/PID/cgroup is in a cgroup of a node. Its paths begin at the root of
// the cgroup namespace, which in a container may be above the root of the mounted tree.
func (s site) inNodeCgroup(trees []hierarchy, content string) bool {
	for line := range strings.Lines(content) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		for _, h := range trees {
			for _, name := range s.cgroups() {
				if len(fields) == 3 && strings.HasPrefix(fields[2]+"/", strings.TrimSuffix(h.Root, "/")+"/"+name+"/") {
					return true
				}
			}
		}
	}
	return false
}

// killAll kills the matching processes until none is left.
func killAll(ctx context.Context, match func(found) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var left []found
	err := poll(ctx, func() (bool, error) {
		var err error
		if left, err = findProcesses(match); err != nil {
			return false, err
		}
		var ends []unix.PollFd
		for _, f := range left {
			// A kernel before 5.3 has no such descriptor, nor has a process that has ended meanwhile.
			if fd, err := unix.PidfdOpen(f.PID, 0); err == nil {
				defer closeFD(fd)
				ends = append(ends, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			}
			if err := kill(f.PID); err != nil {
				return false, err
			}
		}
		return len(left) == 0, awaitEnds(ctx, ends)
	})
	if err != nil {
		names := make([]string, 0, len(left))
		for _, f := range left {
			names = append(names, fmt.Sprintf("%s (%d)", f.Exe, f.PID))
		}
		slices.Sort(names)
		return fmt.Errorf("killing %s: %w", strings.Join(names, ", "), err)
	}
	return nil
}

// awaitEnds waits until processes have released everything. A process whose first thread has ended is no longer found, but its other
// threads can still hold its sockets. Each descriptor is that of a process.
func awaitEnds(ctx context.Context, ends []unix.PollFd) error {
	for i := range ends {
		for ends[i].Revents == 0 {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if _, err := unix.Poll(ends[i:i+1], 100); err != nil && !errors.Is(err, unix.EINTR) {
				return fmt.Errorf("waiting for the end of a process: %w", err)
			}
		}
	}
	return nil
}

func kill(pid int) error {
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("killing process %d: %w", pid, err)
	}
	return nil
}
