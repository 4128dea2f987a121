package localcluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// tree is a small folder tree: contents of files by path. The target of a symbolic link has the prefix linkTo. A path that
// ends in a slash is a folder.
type tree map[string]string

const linkTo = "-> "

// write writes the tree to dir.
func (t tree) write(dir string) error {
	for path, content := range t {
		full := filepath.Join(dir, path)
		parent := filepath.Dir(full)
		if strings.HasSuffix(path, "/") {
			parent = full
		}
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return fmt.Errorf("writing a sysfs tree: %w", err)
		}
		var err error
		target, isLink := strings.CutPrefix(content, linkTo)
		switch {
		case parent == full:
		case isLink:
			err = os.Symlink(target, full)
		default:
			err = os.WriteFile(full, []byte(content+"\n"), 0o644)
		}
		if err != nil {
			return fmt.Errorf("writing a sysfs tree: %w", err)
		}
	}
	return nil
}

// numaTree returns the content of /sys/devices/system/node on a machine with the given CPUs on its two NUMA nodes, each
// with half of the memory.
func numaTree(numa [2][]int, totalMemoryKiB uint64) tree {
	t := tree{"online": "0-1", "possible": "0-1", "has_cpu": "0-1", "has_memory": "0-1", "has_normal_memory": "0-1"}
	for i, cpus := range numa {
		dir := fmt.Sprintf("node%d/", i)
		t[dir+"cpulist"] = cpuList(cpus)
		t[dir+"cpumap"] = cpuMap(cpus)
		t[dir+"distance"] = [2]string{"10 20", "20 10"}[i]
		t[dir+"meminfo"] = fmt.Sprintf("Node %d MemTotal:       %d kB", i, totalMemoryKiB/2)
		t[dir+"hugepages/"] = ""
		for _, cpu := range cpus {
			t[fmt.Sprintf("%scpu%d", dir, cpu)] = fmt.Sprintf("%s../../cpu/cpu%d", linkTo, cpu)
		}
	}
	return t
}

// pciTree returns the content of /sys/bus/pci/devices for the cards: the files that distinguish PFs, VFs and cards and
// show their NUMA nodes.
func pciTree(cards []nic, numa [2][]int) tree {
	t := tree{}
	// Solarflare's vendor number; the devices are the PF of an X2522 and its VFs.
	add := func(n nic, device string) string {
		dir := n.BDF + "/"
		t[dir+"vendor"] = "0x1924"
		t[dir+"device"] = device
		t[dir+"numa_node"] = strconv.Itoa(n.NUMA)
		t[dir+"local_cpulist"] = cpuList(numa[n.NUMA])
		t[dir+"net/"+n.Name+"/address"] = n.MAC
		// The link must have a target: host-device follows it to check whether a DPDK driver has the device.
		t[dir+".driver/sfc/"] = ""
		t[dir+"driver"] = linkTo + ".driver/sfc"
		return dir
	}
	for _, pf := range cards {
		dir := add(pf, "0x0b03")
		t[dir+"sriov_numvfs"] = strconv.Itoa(len(pf.VFs))
		t[dir+"sriov_totalvfs"] = strconv.Itoa(maxVFs)
		for i, vf := range pf.VFs {
			t[fmt.Sprintf("%svirtfn%d", dir, i)] = linkTo + "../" + vf.BDF
			t[add(vf, "0x1b03")+"physfn"] = linkTo + "../" + pf.BDF
		}
	}
	return t
}

// totalMemoryKiB returns the size of the machine's memory in KiB.
func totalMemoryKiB() (uint64, error) {
	content, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("reading the size of the memory: %w", err)
	}
	var kib uint64
	if _, err := fmt.Sscanf(string(content), "MemTotal: %d kB", &kib); err != nil {
		return 0, fmt.Errorf("reading the size of the memory: %w", err)
	}
	return kib, nil
}
