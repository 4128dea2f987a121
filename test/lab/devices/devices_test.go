//go:build e2e

// Package devices runs the project's agents, tools and proof over real physical and virtual functions in a guest with two
// NUMA nodes. CNI plugins attach them with the configuration that the operator generates. The client is always on NUMA
// node 0 and the server on NUMA node 1.
package devices

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/tailgate-dev/tailgate/test/lab"
	"github.com/tailgate-dev/tailgate/test/localcluster"
)

const (
	cniPath = "/opt/cni/bin"
	pci     = "/sys/bus/pci/devices/"
	// vfsPerPF is one more than a run uses, so that there is a second VF.
	vfsPerPF = 2
)

func TestMain(m *testing.M) {
	lab.Main(m, func() (*lab.Machine, string) {
		plugins, err := localcluster.CNI(context.Background(), os.Stderr)
		if err != nil {
			fmt.Fprintln(os.Stderr, "building the CNI plugins:", err)
			os.Exit(1)
		}
		files := map[string]string{}
		for _, name := range []string{"host-device", "static", "tuning"} {
			files[filepath.Join(cniPath, name)] = filepath.Join(plugins, name)
		}
		// sriov-cni is not available as a Go module. For a VF without a VLAN it does what host-device does: both move the
		// netdevice of the function that pciBusID or deviceID names.
		files[filepath.Join(cniPath, "sriov")] = filepath.Join(plugins, "host-device")
		return &lab.Machine{
			CPUs: 4, MemoryMiB: 1024, NUMA: true, Files: files,
			TestCPUs: "1,3", // tools measure on CPUs 0 and 2
			Modules:  []string{"virtio_pci", "virtio_console", "igb", "igbvf", "macvlan", "bonding max_bonds=0"},
		}, ""
	})
}

// read returns the content of a file of sysfs.
func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// netdevice returns the name of a function's netdevice in the guest's own network namespace, or "" if there is none.
func netdevice(function string) string {
	entries, err := os.ReadDir(pci + function + "/net")
	if err != nil || len(entries) == 0 {
		return ""
	}
	return entries[0].Name()
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if !within(patience, holds) {
		t.Fatalf("waited %s until %s", patience, what)
	}
}

// within reports whether a condition holds within a time.
func within(limit time.Duration, holds func() bool) bool {
	for began := time.Now(); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Since(began) > limit {
			return false
		}
	}
	return true
}

// physical returns the PFs of the NUMA nodes.
func physical(t *testing.T) (pfs [2]string) {
	t.Helper()
	drivers, err := filepath.Glob("/sys/bus/pci/drivers/igb/0000:*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range drivers {
		pf := filepath.Base(path)
		node, err := strconv.Atoi(read(t, pci+pf+"/numa_node"))
		if err != nil || node < 0 || node > 1 {
			t.Fatalf("%s is on NUMA node %d: %v", pf, node, err)
		}
		pfs[node] = pf
	}
	if slices.Contains(pfs[:], "") {
		t.Fatalf("the PFs of the NUMA nodes are %q", pfs)
	}
	return pfs
}

// makeVFs creates the VFs of each PF while its link is down, and then brings the PF up, because otherwise a VF has no link.
func makeVFs(t *testing.T) (vfs [2][]string) {
	t.Helper()
	for node, pf := range physical(t) {
		if err := os.WriteFile(pci+pf+"/sriov_numvfs", []byte(strconv.Itoa(vfsPerPF)), 0o644); err != nil {
			t.Fatal(err)
		}
		for i := range vfsPerPF {
			target, err := os.Readlink(fmt.Sprintf("%s%s/virtfn%d", pci, pf, i))
			if err != nil {
				t.Fatal(err)
			}
			vf := filepath.Base(target)
			eventually(t, vf+" has a driver", func() bool { return netdevice(vf) != "" })
			vfs[node] = append(vfs[node], vf)
		}
		setUp(t, pf, true)
	}
	return vfs
}

// setUp brings the netdevice of a function up or down.
func setUp(t *testing.T, function string, up bool) {
	t.Helper()
	link, err := netlink.LinkByName(netdevice(function))
	if err == nil && up {
		err = netlink.LinkSetUp(link)
	} else if err == nil {
		err = netlink.LinkSetDown(link)
	}
	if err != nil {
		t.Fatalf("changing the link of %s: %v", function, err)
	}
}

// removeVFs removes the VFs of both PFs.
func removeVFs(t *testing.T) {
	t.Helper()
	for _, pf := range physical(t) {
		if err := os.WriteFile(pci+pf+"/sriov_numvfs", []byte("0"), 0o644); err != nil {
			t.Error(err)
		}
	}
}
