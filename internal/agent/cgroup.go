package agent

import (
	"path/filepath"
	"slices"
	"strings"
)

// cgroup returns the folder of the agent's cgroup for a controller, and the version of its hierarchy: 2 if the folder there
// has file2, 1 if it has file1. Both are empty if neither is found.
func (h host) cgroup(controller, file2, file1 string) (dir, version string) {
	if dir := h.cgroupWith("", file2); dir != "" {
		return dir, "2"
	}
	if dir := h.cgroupWith(controller, file1); dir != "" {
		return dir, "1"
	}
	return "", ""
}

// cgroupWith returns cgroupDir of the agent, if that folder has a file.
func (h host) cgroupWith(controller, file string) string {
	dir := cgroupDir(h.read("proc/self/mountinfo"), h.read("proc/self/cgroup"), controller)
	if dir == "" || !h.exists(filepath.Join(dir, file)) {
		return ""
	}
	return dir
}

// cgroupDir returns the folder of a process's cgroup in the version 1 hierarchy of a controller, or in the version 2
// hierarchy if controller is empty. mounts is the process's mountinfo, own its cgroup file. A container may see its own
// cgroup as the root of the mount, whatever its name on the node.
func cgroupDir(mounts, own, controller string) string {
	path, found := "", false
	for l := range strings.Lines(own) {
		number, rest, _ := strings.Cut(strings.TrimSpace(l), ":")
		controllers, p, ok := strings.Cut(rest, ":")
		if !ok {
			continue
		}
		if controller == "" && number == "0" && controllers == "" ||
			controller != "" && slices.Contains(strings.Split(controllers, ","), controller) {
			path, found = p, true
		}
	}
	if !found {
		return ""
	}
	for l := range strings.Lines(mounts) {
		// 36 35 98:0 /root /mount/point rw,noatime shared:1 - cgroup2 cgroup2 rw
		before, after, ok := strings.Cut(l, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		switch {
		case controller == "" && kind[0] == "cgroup2":
		case controller != "" && kind[0] == "cgroup" && slices.Contains(strings.Split(kind[2], ","), controller):
		default:
			continue
		}
		root, point := fields[3], unescape.Replace(fields[4])
		below, ok := strings.CutPrefix(path, strings.TrimSuffix(root, "/"))
		if ok && (below == "" || below[0] == '/') && !strings.Contains(below, "..") {
			return filepath.Join(point, below)
		}
		return point
	}
	return ""
}

// unescape reverses the kernel's escaping of names in mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func (h host) cgroupFacts(f facts) {
	if dir, version := h.cgroup("cpuset", "cpuset.cpus.effective", "cpuset.effective_cpus"); dir != "" {
		in := func(name string) string { return filepath.Join(dir, name) }
		f.set("cgroup.version", version)
		f.set("cgroup.cpus", h.either(in("cpuset.cpus.effective"), in("cpuset.effective_cpus")))
		f.set("cgroup.mems", h.either(in("cpuset.mems.effective"), in("cpuset.effective_mems")))
		f.set("cgroup.partition", h.read(in("cpuset.cpus.partition")))
	}
	switch dir, version := h.cgroup("cpu", "cpu.max", "cpu.cfs_quota_us"); version {
	case "2":
		f.set("cgroup.cpu-max", h.read(filepath.Join(dir, "cpu.max")))
	case "1":
		quota, period := h.read(filepath.Join(dir, "cpu.cfs_quota_us")), h.read(filepath.Join(dir, "cpu.cfs_period_us"))
		if quota == "-1" {
			quota = "max"
		}
		if period != "" {
			f.set("cgroup.cpu-max", quota+" "+period)
		}
	}
}
