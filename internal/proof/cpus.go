package proof

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// cpusExclusive checks that a CPU manager limited the endpoint to as many CPUs as it requested. The number proves nothing: the CPUs that
// all pods share may be as many.
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
	if foreign := e.foreignKernel(); foreign != "" {
		return unknown(expected, found+", "+foreign, "measure with a runtime that runs containers on the node's kernel, such as runc or crun")
	}
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
	if e.seen.Bare {
		return e.bareCPUs(expected, found)
	}
	// An affinity that a process narrowed looks exclusive, but not the cpuset.
	if list, ok := e.own.Facts["cgroup.cpus"]; ok {
		if cpus, err := result.ParseCPUs(list); err != nil || !cpus.Equals(allowed) {
			return unknown(expected, fmt.Sprintf("%s, though its cpuset is %s", found, list), advice)
		}
	}
	// The CPU manager also writes the shared pool into other containers' cpusets.
	if class := e.seen.QOSClass; class != "" && class != string(corev1.PodQOSGuaranteed) {
		return failed(expected, fmt.Sprintf("%s, but the pod is %s: a CPU manager gives such pods the CPUs that all share", found, class),
			"find what changed the pod's requests or added a container without limits, see PodUnchanged")
	}
	set := e.own.Facts["cgroup.cpus-set"]
	switch cpus, err := result.ParseCPUs(set); {
	case set == "none":
		return failed(expected, found+", but nothing limited its container to them: other pods may run there", advice)
	case set == "" && e.own.Facts["cgroup.version"] == "1":
		return unknown(expected, found+", though cgroup version 1 does not show whether a CPU manager chose them", "use cgroup version 2")
	case err != nil || !cpus.Equals(allowed):
		return unknown(expected, fmt.Sprintf("%s, though its container was limited to %s", found, orNotKnown(set)), advice)
	}
	return proved(expected, found)
}

// bareCPUs checks that no other process of a host runs on the endpoint's CPUs: the scheduler leaves
// them alone, or they are a scheduling partition (cgroup version 2 only).
func (e endpoint) bareCPUs(expected, found string) finding {
	allowed, _ := result.ParseCPUs(e.own.CPUsAllowed) // the caller has checked it
	isolated, errIsolated := result.ParseCPUs(e.own.Facts["cpu.isolated-cpus"])
	set, errSet := result.ParseCPUs(e.own.Facts["cgroup.cpus"])
	kind := e.own.Facts["cgroup.partition"]
	switch {
	case errIsolated == nil && allowed.IsSubsetOf(isolated):
		return proved(expected, found+", which the scheduler leaves alone")
	case errSet == nil && set.Equals(allowed) && e.own.Facts["cgroup.version"] == "2" && (kind == "root" || kind == "isolated"):
		return proved(expected, found+", a scheduling partition of its own")
	}
	return unknown(expected, found+", and nothing keeps other processes of the host off them",
		"boot with isolcpus, or start the agent in a partition of cpuset (docs/bare.md)")
}

// foreignKernel describes a runtime with a kernel of its own, whose CPUs have other numbers.
func (e endpoint) foreignKernel() string {
	runtime := "its runtime"
	if t := e.spec.Pods; t != nil && t.RuntimeClassName != "" {
		runtime = "RuntimeClass " + t.RuntimeClassName
	}
	if sandbox := e.own.Facts["runtime.sandbox"]; sandbox != "" {
		runtime += " (" + sandbox + ")"
	}
	node, own := e.seen.NodeBootID, e.own.BootID
	switch {
	case e.own.Facts["runtime.sandbox"] != "", node != "" && own != "" && node != own:
		return "which are CPUs of a sandbox or a virtual machine: " + runtime + " does not run it on the node's kernel"
	case (node == "" || own == "") && strings.HasPrefix(runtime, "RuntimeClass") && e.own.Facts["cpu.hypervisor"] != "no":
		return "and it is not known whether " + runtime + " runs it on the node's kernel"
	}
	return ""
}

// cpus returns the number of CPUs that the spec or else the pod requests; 0 if unknown.
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

// siblingsAgree reports whether the known lists of CPUs confirm the agent's siblings.
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

// mostWaiting bounds the part of the measured time, 1/100, for which the tool waited for its CPU
// without another thread on it, if the kernel does not count how long a quota stopped it.
const mostWaiting = 100

// cpuQuota checks that the kernel did not throttle the endpoint for the CPU time of its cgroup or an ancestor. A pod sees only some of
// the ancestors: what the others withheld is measured.
func cpuQuota(e endpoint) finding {
	const (
		expected = "no CFS quota at any level, or never throttled"
		advice   = "disable the quota in the kubelet (cpuCFSQuota: false, or feature gate DisableCPUQuotaWithExclusiveCPUs) or in CRI-O (pods.annotations, cpu-quota.crio.io)"
	)
	limit, period, limited := strings.Cut(e.own.Facts["cgroup.cpu-max"], " ")
	found := "quota " + notKnown
	switch {
	case limit == "max":
		found = "no quota in the visible cgroups"
	case limited:
		found = fmt.Sprintf("%s µs in each %s µs", limit, period)
	}
	periods, counted := e.own.Deltas["cgroup.throttled"]
	stopped, told := e.own.Deltas["cgroup.stopped-us"]
	switch {
	case counted && periods > 0:
		return failed(expected, fmt.Sprintf("%s; periods used up: %d", found, periods), advice)
	case told && stopped > 0:
		return failed(expected, fmt.Sprintf("%s; stopped for %s by a quota of a cgroup above", found, microseconds(stopped)), advice)
	case told:
		return proved(expected, found+", never stopped by a quota")
	case limited && limit != "max" && !counted:
		return unknown(expected, found, advice)
	}
	waited, known := e.waited()
	elapsed := e.own.Deltas["elapsed-ms"] * 1000
	if !known || elapsed == 0 {
		return unknown(expected, found+"; what withheld the CPU is not known", "use a kernel since 6.7, or one that counts run delays (schedstats) or pressure (psi)")
	}
	found += fmt.Sprintf("; the tool waited %s of %s for a CPU", microseconds(waited), microseconds(elapsed))
	if _, ok := e.own.Deltas["cpu.busy-ns"]; ok {
		found += " on which nothing else ran"
	}
	if waited*mostWaiting > elapsed {
		return unknown(expected, fmt.Sprintf("%s, more than 1/%d", found, mostWaiting), "keep other threads off its CPUs, and "+advice)
	}
	return proved(expected, found)
}

// waited returns how long the measuring thread waited for a CPU, in µs, while no other thread ran
// there. A quota stops all threads of a cgroup alike, and the main thread measures, except in
// netserver, which forks: there, or where the kernel does not count, all threads count, on the CPU
// or else in the cgroup.
func (e endpoint) waited() (int64, bool) {
	delays := []struct {
		name string
		ns   int64
	}{{"tool.run-delay-ns", 1}, {"cpu.run-delay-ns", 1}, {"cgroup.pressure-us", 1000}}
	if e.spec.Tool == v1alpha1.ToolNetperf && e.role == v1alpha1.RoleServer {
		delays = delays[1:]
	}
	for _, of := range delays {
		if delay, known := e.own.Deltas[of.name]; known {
			others := max(0, e.own.Deltas["cpu.busy-ns"]-e.own.Deltas["tool.cpu-ns"])
			return max(0, delay*of.ns-others) / 1000, true
		}
	}
	return 0, false
}

func microseconds(n int64) time.Duration {
	return (time.Duration(n) * time.Microsecond).Round(time.Millisecond)
}

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
