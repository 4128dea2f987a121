package agent

import (
	"cmp"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/internal/result"
)

// cgroups returns the agent's cgroup and visible ancestors with a file, nearest first; the version.
func (h host) cgroups(controller, file2, file1 string) (dirs []string, version string) {
	for _, way := range []struct{ version, controller, file string }{{"2", "", file2}, {"1", controller, file1}} {
		dir, top := h.cgroupDir(way.controller)
		for ; len(dir) >= len(top) && dir != ""; dir = filepath.Dir(dir) {
			if h.exists(filepath.Join(dir, way.file)) {
				dirs = append(dirs, dir)
			}
			if len(dir) == len(top) {
				break
			}
		}
		if len(dirs) > 0 {
			return dirs, way.version
		}
	}
	return nil, ""
}

func (h host) cgroupDir(controller string) (dir, top string) {
	own, mounts := h.read(h.proc("cgroup")), h.proc("mountinfo")
	if h.node {
		mounts = "proc/self/mountinfo"
		if strings.Contains(own, ":/..") { // above the agent's namespace of cgroups
			return "", ""
		}
	}
	dir, top = cgroupDir(h.read(mounts), own, controller)
	if h.pid != 0 && !h.node && dir != "" {
		dir, top = filepath.Join(h.proc("root"), dir), filepath.Join(h.proc("root"), top)
	}
	return dir, top
}

// cgroupDir returns the folder of a process's cgroup, by mountinfo and the cgroup file, and its
// mount, which may show only the container's own cgroup. Without a controller, it is version 2.
func cgroupDir(mounts, own, controller string) (dir, top string) {
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
		return "", ""
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
			return filepath.Join(point, below), point
		}
		return point, point
	}
	return "", ""
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func (h host) cgroupFacts(f facts) {
	if dirs, version := h.cgroups("cpuset", "cpuset.cpus.effective", "cpuset.effective_cpus"); len(dirs) > 0 {
		in := func(name string) string { return filepath.Join(dirs[0], name) }
		f.set("cgroup.version", version)
		f.set("cgroup.cpus", h.effectiveCPUs(dirs[0]))
		f.set("cgroup.mems", h.either(in("cpuset.mems.effective"), in("cpuset.effective_mems")))
		f.set("cgroup.partition", h.partition(dirs, version))
		if f["cgroup.partition"] == isolatedPartition { // its CPUs have no scheduling domain, as with isolcpus
			f.set("cpu.isolated", yesNo(true))
		}
		f.set("cgroup.cpus-set", h.cpusSet(dirs, version))
	}
	f.set("cgroup.cpu-max", h.cpuMax())
}

func (h host) effectiveCPUs(dir string) string {
	return h.either(filepath.Join(dir, "cpuset.cpus.effective"), filepath.Join(dir, "cpuset.effective_cpus"))
}

// cpuMax returns the tightest CPU quota of the agent's cgroup and its visible ancestors.
func (h host) cpuMax() string {
	tightest, least := "", math.Inf(1)
	dirs, version := h.cgroups("cpu", "cpu.max", "cpu.cfs_quota_us")
	for _, dir := range dirs {
		limit := h.read(filepath.Join(dir, "cpu.max"))
		if version == "1" {
			quota := h.read(filepath.Join(dir, "cpu.cfs_quota_us"))
			if quota == "-1" {
				quota = "max"
			}
			limit = quota + " " + h.read(filepath.Join(dir, "cpu.cfs_period_us"))
		}
		quota, period, _ := strings.Cut(limit, " ")
		q, errQuota := strconv.ParseFloat(quota, 64)
		p, errPeriod := strconv.ParseFloat(period, 64)
		switch {
		case errPeriod != nil || p <= 0 || errQuota != nil && quota != "max":
			// A limit that cannot be read may be the tightest.
			return ""
		case quota == "max" && tightest == "", quota != "max" && q/p < least:
			tightest = limit
		}
		if quota != "max" {
			least = min(least, q/p)
		}
	}
	return tightest
}

// podLevel matches the names of the cgroups of a pod, of a QoS class, or of all pods.
var podLevel = regexp.MustCompile(`(^|-)(kubepods|pod)`)

// cpusSet returns the CPUs to which the container was limited on purpose, as by a CPU manager; none
// if it inherited the pod's; empty if unknown. Version 2 shows it in cpuset.cpus of the container's
// own cgroup: crun's is named container, in a scope to which systemd may have written. In version
// 1, runtimes copy the parent's CPUs into an empty file, so only the parent shows it, which is
// seldom visible. With a shared process namespace, process 1 is the sandbox, with the pod's CPUs.
func (h host) cpusSet(dirs []string, version string) string {
	own, above := h.read(filepath.Join(dirs[0], "cpuset.cpus")), ""
	for i, dir := range dirs[1:] {
		cpus, name := h.effectiveCPUs(dir), filepath.Base(dir)
		if podLevel.MatchString(name) || version == "1" && i == 0 && cpus != h.effectiveCPUs(dirs[0]) {
			above = cpus
			break
		}
		if strings.HasSuffix(name, ".scope") || i == 0 && filepath.Base(dirs[0]) == "container" {
			own = cmp.Or(own, h.read(filepath.Join(dir, "cpuset.cpus")))
		}
	}
	if first := h.read("proc/1/cgroup"); above == "" && first != "" && first != h.read(h.proc("cgroup")) {
		above = h.field("proc/1/status", "Cpus_allowed_list")
	}
	limits, err := result.ParseCPUs(own)
	pod, errAbove := result.ParseCPUs(above)
	switch {
	case err != nil, errAbove == nil && pod.IsSubsetOf(limits):
		return none
	case version == "1" && (errAbove != nil || !limits.IsSubsetOf(pod)): // a runtime may put all sandboxes on CPUs of their own
		return ""
	}
	return own
}

// partition returns isolated, root or member; in version 1, isolated if no visible cpuset balances.
func (h host) partition(dirs []string, version string) string {
	kind := ""
	for _, dir := range dirs {
		if version == "1" {
			if h.read(filepath.Join(dir, "cpuset.sched_load_balance")) != "0" {
				return ""
			}
			kind = isolatedPartition
			continue
		}
		// A member has the partition of its parent.
		if here := h.read(filepath.Join(dir, "cpuset.cpus.partition")); here != "" {
			if kind = here; here != "member" {
				break
			}
		}
	}
	return kind
}

const isolatedPartition = "isolated"
