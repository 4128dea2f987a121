package proof

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// cpusExclusive compares the CPUs that the endpoint may use with the requested CPUs and with the node's.
func cpusExclusive(e endpoint) finding {
	const advice = "set cpuManagerPolicy: static in the kubelet's configuration"
	expected := "1 exclusive CPU"
	asked := e.cpus()
	if asked != 1 {
		expected = fmt.Sprintf("%d exclusive CPUs", asked)
	}
	allowed, err := result.ParseCPUs(e.own.CPUsAllowed)
	if err != nil {
		return unknown(expected, notKnown, advice)
	}
	found := fmt.Sprintf("%s of the node's %s", e.own.CPUsAllowed, orNotKnown(e.own.OnlineCPUs))
	if allowed.Size() != asked {
		return failed(expected, found, advice)
	}
	online, err := result.ParseCPUs(e.own.OnlineCPUs)
	if err != nil {
		return unknown(expected, found, advice)
	}
	if allowed.Size() >= online.Size() {
		return failed(expected, found, "reserve CPUs for other pods (the kubelet's reservedSystemCPUs), and "+advice)
	}
	if offline := allowed.Difference(online); !offline.IsEmpty() {
		return unknown(expected, fmt.Sprintf("%s, though CPU %s is not online", found, offline), advice)
	}
	if !allowed.Contains(int(e.own.MeasuringCPU)) {
		return unknown(expected, fmt.Sprintf("%s, though it measured on CPU %d", found, e.own.MeasuringCPU), advice)
	}
	// An affinity that a process narrowed looks like exclusive CPUs, but does not narrow the cpuset.
	if list, ok := e.own.Facts["cgroup.cpus"]; ok {
		if cpus, err := result.ParseCPUs(list); err != nil || !cpus.Equals(allowed) {
			return unknown(expected, fmt.Sprintf("%s, though its cpuset is %s", found, list), advice)
		}
	}
	return proved(expected, found)
}

// cpus returns the number of CPUs that the endpoint requested. If the spec leaves the number to the operator, it is the request
// of the pod: PodUnchanged shows whether the operator built that. It returns 0 if the number is not known.
func (e endpoint) cpus() int {
	if n := e.spec.Placement.Of(e.role).CPUs; n != 0 {
		return int(n)
	}
	n, err := strconv.Atoi(e.seen.Requests["cpu"])
	if err != nil {
		return 0
	}
	return n
}

// cpuIsolated notes what the kernel keeps off the measuring CPU.
func cpuIsolated(e endpoint) finding {
	return noted(fmt.Sprintf("isolated: %s, nohz_full: %s", orNotKnown(e.own.Facts["cpu.isolated"]), orNotKnown(e.own.Facts["cpu.nohz-full"])))
}

// smtSiblings checks whether anything besides the tool may run on the core of the measuring CPU.
func smtSiblings(e endpoint) finding {
	const (
		expected = "no SMT siblings, or only its own"
		advice   = "request whole cores (leave placement.cpus unset, or make it even) with the CPU manager's option full-pcpus-only, or disable SMT"
	)
	told := e.own.Facts["cpu.smt.sibling"]
	if told == "" && e.own.Facts["cpu.smt.active"] == "0" {
		told = "none"
	}
	found := map[string]string{"none": "none", "own": "its own", "others": "other containers may run there"}[told]
	if e.own.ThreadSiblings != "" {
		found += ": core of CPUs " + e.own.ThreadSiblings
	}
	switch {
	case told == "others":
		return failed(expected, found, advice)
	case told != "own" && told != "none":
		return unknown(expected, notKnown, advice)
	case !siblingsAgree(e, told):
		return unknown(expected, fmt.Sprintf("%s, though its CPUs are %s", found, orNotKnown(e.own.CPUsAllowed)), advice)
	}
	return proved(expected, found)
}

// siblingsAgree reports whether the lists of CPUs, if they are known, confirm that the siblings are the endpoint's own, or that
// there are no siblings.
func siblingsAgree(e endpoint, told string) bool {
	siblings, err := result.ParseCPUs(e.own.ThreadSiblings)
	if err != nil {
		return e.own.ThreadSiblings == ""
	}
	if told == "none" {
		return siblings.Size() == 1
	}
	allowed, err := result.ParseCPUs(e.own.CPUsAllowed)
	return err == nil && siblings.IsSubsetOf(allowed)
}

// cpuQuota checks whether the kernel ever throttled the endpoint because it had used up its CPU time.
func cpuQuota(e endpoint) finding {
	const (
		expected = "no CFS quota, or never throttled"
		advice   = "disable the quota in the kubelet (cpuCFSQuota: false, or feature gate DisableCPUQuotaWithExclusiveCPUs) or in CRI-O (pods.annotations, cpu-quota.crio.io)"
	)
	limit, period, limited := strings.Cut(e.own.Facts["cgroup.cpu-max"], " ")
	found := "quota " + notKnown
	switch {
	case limit == "max":
		found = "no quota"
	case limited:
		found = fmt.Sprintf("%s µs in each %s µs", limit, period)
	}
	periods, counted := e.own.Deltas["cgroup.throttled"]
	switch {
	case counted && periods > 0:
		return failed(expected, fmt.Sprintf("%s; periods used up: %d", found, periods), advice)
	case limit == "max":
		return proved(expected, found)
	case counted && periods == 0:
		return proved(expected, found+", never used up")
	}
	return unknown(expected, found, advice)
}

// captureCPU checks that packet capture took no CPU time from the measurement.
func captureCPU(e endpoint) finding {
	if e.variant.Capture != v1alpha1.CaptureServer || e.role != v1alpha1.RoleServer {
		return finding{}
	}
	const (
		expected = "packets captured on another CPU than the measuring CPU"
		advice   = "set placement.cpus to 2 or more"
	)
	found := fmt.Sprintf("captured on CPU %d, measured on CPU %d", e.own.AgentCPU, e.own.MeasuringCPU)
	switch {
	case e.own.AgentCPU < 0 || e.own.MeasuringCPU < 0:
		return unknown(expected, notKnown, advice)
	case e.own.AgentCPU == e.own.MeasuringCPU:
		return failed(expected, found, advice)
	}
	return proved(expected, found)
}
