//go:build e2e

package localcluster

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tailgate-dev/tailgate/test/localcluster/thread"
)

// TestNodeOnAKernelWithoutNUMA makes the mounts of a node on a sysfs without the folders for NUMA nodes and PCI devices. Names that a
// sysfs does not have stand for them.
func TestNodeOnAKernelWithoutNUMA(t *testing.T) {
	own := t.TempDir()
	if err := os.WriteFile(filepath.Join(own, "possible"), []byte("0-1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	online, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		t.Fatal(err)
	}
	err = thread.Run(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWNET); err != nil {
			return err
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
			return err
		}
		if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
			return err
		}
		for _, target := range []string{"/sys/devices/system/numa-node", "/sys/bus/no-pci/devices"} {
			tree, err := openTree(own)
			if err != nil {
				return err
			}
			defer closeFD(tree)
			if err := errors.Join(ensureTarget(target), attach(tree, target)); err != nil {
				return err
			}
			if got, err := os.ReadFile(filepath.Join(target, "possible")); err != nil || string(got) != "0-1\n" {
				t.Errorf("%s has %q, %v", target, got, err)
			}
		}
		// What was there before is there still: files, and links from elsewhere.
		for _, path := range []string{"/sys/devices/system/cpu/online", "/sys/bus/cpu/devices/cpu0/../online"} {
			if got, err := os.ReadFile(path); err != nil || string(got) != string(online) {
				t.Errorf("%s: %q, %v", path, got, err)
			}
		}
		return ensureTarget("/sys/devices/system/cpu")
	})
	if err != nil {
		t.Error(err)
	}
	for _, target := range []string{"/sys/devices/system/numa-node", "/sys/bus/no-pci"} {
		if _, err := os.Stat(target); !os.IsNotExist(err) {
			t.Errorf("%s is on the host, %v", target, err)
		}
	}
}

// TestNoMarkerWithoutMount fails to mount the folder of network namespaces, as in a container without CAP_SYS_ADMIN: nothing is left
// that Down would have to undo, and cannot.
func TestNoMarkerWithoutMount(t *testing.T) {
	if os.Getenv(helper) == "" { // in a process with its own mounts, which /proc/self/mountinfo shows
		child := exec.Command(os.Args[0], "-test.run=^TestNoMarkerWithoutMount$")
		child.Env = append(os.Environ(), helper+"=1")
		child.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		if out, err := child.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	p := paths{t.TempDir(), 0}
	err := thread.Run(func() error {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		for unix.Unmount(filepath.Clean(netnsDir), unix.MNT_DETACH) == nil {
		}
		if err := unix.Mount("tailgate", "/run", "tmpfs", 0, ""); err != nil { // without a folder for namespaces
			return err
		}
		header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		data := [2]unix.CapUserData{}
		if err := unix.Capget(header, &data[0]); err != nil {
			return err
		}
		data[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
		data[0].Permitted &^= 1 << unix.CAP_SYS_ADMIN
		if err := unix.Capset(header, &data[0]); err != nil {
			return err
		}
		if err := prepareNetnsDir(p); !errors.Is(err, unix.EPERM) {
			t.Errorf("error %v, want EPERM", err)
		}
		if _, err := os.Stat(p.netnsMarker()); !os.IsNotExist(err) {
			t.Errorf("the marker is left: %v", err)
		}
		if _, err := os.Stat(netnsDir); !os.IsNotExist(err) {
			t.Errorf("the folder is left: %v", err)
		}
		// A marker of an interrupted start, before the mount.
		if err := errors.Join(os.Mkdir(netnsDir, 0o755), os.WriteFile(p.netnsMarker(), []byte(note(folderIsOurs)), 0o600)); err != nil {
			return err
		}
		return releaseNetnsDir(p)
	})
	if err != nil {
		t.Error(err)
	}
}
