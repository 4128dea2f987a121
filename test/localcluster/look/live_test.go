//go:build e2e

package look

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/test/localcluster/thread"
)

// TestTheMachineOfTheTests fails if the tests' own machine is refused.
func TestTheMachineOfTheTests(t *testing.T) {
	if list := Kernel(); len(list) > 0 {
		t.Error(list)
	}
}

// TestReadOnlyTrees looks at the cgroups of version 1 as systemd mounts them: their folder is read-only, and the trees are not.
func TestReadOnlyTrees(t *testing.T) {
	for readOnly, want := range map[string]string{".": "", "./memory": "- /sys/fs/cgroup/memory can be written: it is mounted read-only"} {
		root := t.TempDir()
		trees := filepath.Join(root, "sys/fs/cgroup")
		for _, tree := range []string{"cpu", "cpuset", "memory", "pids"} {
			write(t, filepath.Join(trees, tree, "tasks"), "", 0o644)
		}
		top, err := filepath.Abs(checkout)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("/bin/sh", "-euc", `mount -t tmpfs look "$1"; cd "$1"; for tree in cpu cpuset memory pids; do mkdir $tree; mount -t tmpfs look $tree; done
			mount -o remount,ro "$2"; export PATH="$3" HOME=/no/home LOOK_CHECKOUT=/no/checkout LOOK_ROOT="$4"; cd "$5"; sh hack/look.sh -files || :`,
			"-", trees, readOnly, strings.TrimPrefix(machine(t, root, nil)[0], "PATH="), root, top)
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		if err != nil || want == "" && len(out) > 0 || !strings.HasPrefix(string(out), want) {
			t.Errorf("%s: %v, %q", readOnly, err, out)
		}
	}
}

// TestBlockedMountCalls looks from a thread whose seccomp filter rejects the new mount calls, as a kernel before 5.2 does (ENOSYS), or
// the filter of an old container runtime (EPERM).
func TestBlockedMountCalls(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOSYS, unix.EPERM} {
		err := thread.Run(func() error {
			const first, last = unix.SYS_OPEN_TREE, unix.SYS_FSPICK
			filter := []unix.SockFilter{
				{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS},
				{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, Jf: 2, K: first},
				{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, Jt: 1, K: last},
				{Code: unix.BPF_RET | unix.BPF_K, K: 0x00050000 | uint32(errno)}, // SECCOMP_RET_ERRNO
				{Code: unix.BPF_RET | unix.BPF_K, K: 0x7fff0000},                 // SECCOMP_RET_ALLOW
			}
			program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
			if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
				t.Error(err)
			}
			// Only a system call itself keeps the address right: the stack may move in a function such as Prctl.
			_, _, failed := unix.Syscall(unix.SYS_PRCTL, unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)))
			if failed != 0 {
				t.Error(failed)
			}
			return tryMounts()
		})
		if err == nil || !strings.Contains(err.Error(), "open_tree: "+errno.Error()) {
			t.Errorf("error %v, want one with open_tree", err)
		}
	}
}

// TestWithoutCapabilities looks from a thread that has lost a capability.
func TestWithoutCapabilities(t *testing.T) {
	for capability, try := range map[int]func() error{unix.CAP_SYS_ADMIN: tryMounts, unix.CAP_NET_ADMIN: tryLinks} {
		err := thread.Run(func() error {
			header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			data := [2]unix.CapUserData{}
			if err := unix.Capget(header, &data[0]); err != nil {
				t.Error(err)
			}
			data[0].Effective &^= 1 << capability
			if err := unix.Capset(header, &data[0]); err != nil {
				t.Error(err)
			}
			return try()
		})
		if err == nil || !strings.Contains(err.Error(), "operation not permitted") {
			t.Errorf("capability %d: error %v", capability, err)
		}
	}
}

// TestTheSameSubnet looks in a network namespace whose link has an address of the cluster's subnet.
func TestTheSameSubnet(t *testing.T) {
	err := thread.Run(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		if list, err := subnetConflicts(); err != nil || len(list) > 0 {
			t.Errorf("an empty network: %q, %v", list, err)
		}
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "orb0"
		link := &netlink.Veth{LinkAttrs: attrs, PeerName: "orb1"}
		address, err := netlink.ParseAddr("198.19.0.5/24")
		if err != nil {
			return err
		}
		for _, change := range []func() error{
			func() error { return netlink.LinkAdd(link) },
			func() error { return netlink.AddrAdd(link, address) },
			func() error { return netlink.LinkSetUp(link) },
		} {
			if err := change(); err != nil {
				return err
			}
		}
		list, err := subnetConflicts()
		want := "orb0 has the address 198.19.0.5"
		if got := strings.Join(list, "\n"); err != nil || !strings.Contains(got, want) || !strings.Contains(got, "a route to 198.19.0.0/24 through orb0") {
			t.Errorf("got %q, %v", list, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestInotifyInstancesInUse counts in a user namespace with a small limit, so that no other program of this machine lacks instances.
func TestInotifyInstancesInUse(t *testing.T) {
	const limit = 5
	if os.Getenv("LOOK_COUNT") != "" {
		if err := os.WriteFile("/proc/sys/user/max_inotify_instances", []byte(strconv.Itoa(limit)), 0o644); err != nil {
			t.Fatal(err)
		}
		if free := freeInotify(inotifyInstances); free != limit {
			t.Errorf("%d are free, want %d", free, limit)
		}
		return
	}
	child := exec.Command(os.Args[0], "-test.run=^TestInotifyInstancesInUse$")
	child.Env = append(os.Environ(), "LOOK_COUNT=1")
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	if out, err := child.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
