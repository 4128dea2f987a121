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
	"syscall"
	"time"

	"golang.org/x/sys/unix"
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

// start runs the command in the background. The command outlives this process, and its output goes to its log.
func (c *cluster) start(pr process) error {
	log, err := os.OpenFile(c.log(pr.Name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", pr.Name, err)
	}
	defer log.Close()
	cmd := exec.Command(pr.Args[0], pr.Args[1:]...)
	cmd.Dir = "/"
	cmd.Env = append([]string{
		"PATH=" + c.binaries + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + c.state,
		markState + "=" + c.state,
		markProcess + "=" + pr.Name,
	}, pr.Env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = inThread(func() error {
		var err error
		if pr.Node == nil {
			err = enterNetns(c.controlPlaneNetns())
		} else {
			err = enterNode(c.paths, *pr.Node)
		}
		if err != nil {
			return err
		}
		return cmd.Start()
	})
	if err != nil {
		return fmt.Errorf("starting %s: %w", pr.Name, err)
	}
	// Without Wait, it would stay a zombie until this process ends. Its log shows why it ended.
	go func() { _ = cmd.Wait() }()
	return nil
}

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
	// Cgroup is the content of /proc/PID/cgroup.
	Cgroup string
	// NetNS and MountNS identify the namespaces.
	NetNS, MountNS uint64
}

// runs returns a function that matches the process itself and not its children, which carry its mark, too.
func (c *cluster) runs(name, command string) func(found) bool {
	return func(f found) bool {
		return f.State == c.state && f.Process == name && f.Exe == filepath.Base(command)
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
		return f.State == p.state || p.inNodeCgroup(f.Cgroup) || netns[f.NetNS] || mountns[f.MountNS]
	}
}

// inNodeCgroup reports whether a process with this content of /proc/PID/cgroup is in a cgroup of a node.
func (s site) inNodeCgroup(content string) bool {
	for line := range strings.Lines(content) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && strings.HasPrefix(fields[2], "/"+s.cgroupPrefix()) {
			return true
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
		for _, f := range left {
			if err := kill(f.PID); err != nil {
				return false, err
			}
		}
		return len(left) == 0, nil
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

func kill(pid int) error {
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("killing process %d: %w", pid, err)
	}
	return nil
}
