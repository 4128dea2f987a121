package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/cpuset"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/result"
)

func nodeState(_ Observed, n Node) []Line {
	node := n.Node
	bad := advice{effect: "benchmarks wait for it"}
	if !preflight.NodeReady(node) {
		bad.remedy = fmt.Sprintf("see `kubectl describe node %s`, and the kubelet there", node.Name)
		return bad.err("", "not ready")
	}
	var pressures, taints []string
	for _, c := range node.Status.Conditions {
		if strings.HasSuffix(string(c.Type), "Pressure") && c.Status == corev1.ConditionTrue {
			pressures = append(pressures, string(c.Type))
		}
	}
	for _, t := range node.Spec.Taints {
		if t.Effect != corev1.TaintEffectPreferNoSchedule && t.Key != corev1.TaintNodeUnschedulable && t.Key != v1alpha1.NodeTaintUnverified {
			taints = append(taints, t.ToString())
		}
	}
	switch {
	case node.Spec.Unschedulable:
		bad.effect = "no benchmark starts there, unless its template tolerates it"
		bad.remedy = fmt.Sprintf("when its maintenance is over: `kubectl uncordon %s`", node.Name)
		if n.Named {
			return bad.warn("", "cordoned")
		}
		return bad.err("", "cordoned, so it was not checked; name it on the command line to check it")
	case len(pressures) > 0:
		bad.effect = "pods are evicted, and the kernel reclaims memory or writes to disks during the measurement"
		bad.remedy = "free the resource that the condition names"
		return bad.warn("", "%s", strings.Join(pressures, ", "))
	case len(taints) > 0:
		bad.effect = "only benchmarks whose spec.pods.tolerations tolerate it start there"
		bad.remedy = "tolerate it, or remove it if no controller or LatencyGate keeps it there"
		return bad.warn("", "tainted %s", strings.Join(taints, ", "))
	}
	return good("", "ready; kubelet %s", node.Status.NodeInfo.KubeletVersion)
}

func inspect(_ Observed, n Node) []Line {
	if n.NotLooked != "" {
		if preflight.NodeReady(n.Node) && !n.Node.Spec.Unschedulable {
			return unknown("", "not checked: "+n.NotLooked, "run doctor again later")
		}
		return nil // nodeState reports this.
	}
	var image string
	for _, l := range n.Looks {
		image = cmp.Or(image, l.ImageID)
		if l.Trouble == nil || l.Kind != KindCPU && l.Kind != KindShared {
			continue
		}
		switch t := l.Trouble; {
		case t.Outcome == v1alpha1.OutcomePodRefused:
			return unknown("", "the API server refuses the inspect pod: "+t.Said, "choose another namespace with -n, or ask for the right to create pods there")
		case t.Outcome == v1alpha1.OutcomeStartTimeout:
			return unknown("", "the inspect pod did not finish: "+t.Said, "set a longer --timeout, or see `kubectl describe node "+n.Node.Name+"`")
		case lacksCPU(t), t.Outcome == v1alpha1.OutcomeTopologyAffinity:
			// freeCPUs and topology report this.
		default:
			remedy := cmp.Or(t.Remedy, "use a bench image of this command's version (--bench-image of the manager, or --image), and check the kubelet's log")
			return advice{"benchmarks fail there in the same way", remedy}.err("", "the inspect pod fails: %s", t.Said)
		}
	}
	if n.seen() == nil {
		return nil
	}
	if image == "" {
		return good("", "an unprivileged pod ran")
	}
	return good("", "an unprivileged pod ran, image %s", image)
}

func lacksCPU(t *pods.Trouble) bool {
	return t != nil && t.Outcome == v1alpha1.OutcomeUnschedulable && strings.Contains(t.Said, "Insufficient cpu")
}

// cpuManager checks whether a guaranteed pod got whole CPUs that a pod without them may not use.
func cpuManager(_ Observed, n Node) []Line {
	bad := advice{"other processes of the node share the CPU with the tool: stalls of milliseconds in the tail; results do not verify",
		"drain the node, stop the kubelet, set cpuManagerPolicy: static and reservedSystemCPUs, remove /var/lib/kubelet/cpu_manager_state, and start the kubelet (docs/prepare-nodes.md)"}
	for _, l := range n.Looks {
		if l.Inspection == nil || l.Kind == KindShared {
			continue
		}
		e := l.Inspection.Evidence
		own, err := result.ParseCPUs(e.CPUsAllowed)
		if err != nil {
			continue
		}
		asked := max(l.CPUs, 1)
		requested, word := "a guaranteed pod that requested 1 CPU", "CPU"
		if asked > 1 {
			requested, word = fmt.Sprintf("a guaranteed pod that requested %d CPUs", asked), "CPUs"
		}
		shared := cpuset.New()
		if s := n.look(KindShared, ""); s != nil && s.Inspection != nil {
			shared, _ = result.ParseCPUs(s.Inspection.Evidence.CPUsAllowed) // empty if not known
		}
		online, err := result.ParseCPUs(e.OnlineCPUs)
		switch {
		case own.Size() != asked:
			return bad.err("", "%s may use CPUs %s", requested, e.CPUsAllowed)
		case err == nil && online.Size() == asked:
			return bad.err("", "the node has no more CPUs, and everything runs there")
		case own.Intersection(shared).Size() > 0, e.Facts["cgroup.cpus-set"] == "none":
			return bad.err("", "%s may use CPUs %s, as other pods may", requested, e.CPUsAllowed)
		}
		return good("", "%s got the exclusive %s %s of %s", requested, word, e.CPUsAllowed, cmp.Or(e.OnlineCPUs, "an unknown number"))
	}
	return nil
}

func freeCPUs(o Observed, n Node) []Line {
	if unseen := o.unseen("pods"); unseen != nil {
		return unseen
	}
	free := n.FreeCPUs()
	found := fmt.Sprintf("%d of %d whole CPUs%s", free, n.Node.Status.Allocatable.Cpu().MilliValue()/1000, perNUMANode(n))
	l := n.look(KindCPU, "")
	switch {
	case free == 0 || l != nil && lacksCPU(l.Trouble):
		return advice{"benchmarks wait for a free CPU", "move pods with CPU requests to other nodes, or let the kubelet reserve fewer CPUs"}.
			err("", "%s", found)
	case free == 1:
		return advice{"agent and tool share the CPU between the cells, and tools that need two CPUs (sfnt-stream) cannot run",
			"free a second one, and set spec.placement.cpus: 2"}.warn("", "%s", found)
	}
	return good("", "%s", found)
}

func (n Node) FreeCPUs() int64 {
	return max(n.Node.Status.Allocatable.Cpu().MilliValue()-n.Requested()[corev1.ResourceCPU], 0) / 1000
}

// perNUMANode returns the free CPUs of each NUMA node, by a pod without exclusive CPUs: all that no
// pod has exclusively, and without strict-cpu-reservation those reserved; or nothing.
func perNUMANode(n Node) string {
	l := n.look(KindShared, "")
	if l == nil || l.Inspection == nil {
		return ""
	}
	shared, err := result.ParseCPUs(l.Inspection.Evidence.CPUsAllowed)
	if err != nil || len(l.Inspection.NUMA) == 0 {
		return ""
	}
	var parts []string
	byNumber := func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) } // no leading zeros
	for _, node := range slices.SortedFunc(maps.Keys(l.Inspection.NUMA), byNumber) {
		cpus, err := result.ParseCPUs(l.Inspection.NUMA[node])
		if err != nil {
			return ""
		}
		parts = append(parts, fmt.Sprintf("%d of %d on NUMA node %s", cpus.Intersection(shared).Size(), cpus.Size(), node))
	}
	reserved := n.Node.Status.Capacity.Cpu().MilliValue() - n.Node.Status.Allocatable.Cpu().MilliValue()
	return fmt.Sprintf("; shared CPU pool at the time of the check: %s; the kubelet reserves %s, which are in this pool without strict-cpu-reservation",
		strings.Join(parts, ", "), millis(reserved))
}

func millis(n int64) string {
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%d.%03d", n/1000, n%1000), "0"), ".")
}

// Requested returns what the node's pods request, by resource; CPU in thousandths.
func (n Node) Requested() map[corev1.ResourceName]int64 {
	sum := map[corev1.ResourceName]int64{}
	for i := range n.Pods {
		if p, occupies := preflight.Occupying(&n.Pods[i]); occupies {
			for name, amount := range p.Requests {
				sum[name] += amount
			}
		}
	}
	return sum
}

func neighbours(o Observed, n Node) []Line {
	if o.Unseen["pods"] != "" {
		return nil
	}
	allocatable := n.Node.Status.Allocatable.Cpu().MilliValue()
	asked := n.Requested()[corev1.ResourceCPU]
	var limits int64
	unlimited := 0
	for i := range n.Pods {
		all := true
		for _, c := range n.Pods[i].Spec.Containers {
			limit := c.Resources.Limits.Cpu().MilliValue()
			limits += limit
			all = all && limit > 0
		}
		if !all {
			unlimited++
		}
	}
	found := fmt.Sprintf("%d pods; they request %s of %s CPUs, their limits are %s, and %d are without limit",
		len(n.Pods), millis(asked), millis(allocatable), millis(limits), unlimited)
	const remedy = "reserve a pool of nodes for latency-sensitive workloads with a taint that only they tolerate"
	switch {
	case limits > allocatable:
		return advice{"CPUs are overcommitted: the pods may load caches, memory and the NIC, which they share with the measurement, at any time", remedy}.
			warn("", "%s", found)
	case asked*2 > allocatable:
		return advice{"the pods share caches, memory bandwidth and the power of the socket with the measurement, which affects its tail", remedy}.
			warn("", "%s", found)
	}
	return good("", "%s", found)
}

// TroubleOf returns why an inspect pod did not succeed, given its warnings, oldest first; or nil.
func TroubleOf(p *corev1.Pod, warnings []corev1.Event) *pods.Trouble {
	var t pods.Trouble
	switch p.Status.Phase {
	case corev1.PodFailed:
		t = pods.FailureOf(p)
	case corev1.PodPending:
		t = pods.StartTrouble(p, warnings)
	}
	if t.Said == "" {
		return nil
	}
	return &t
}

// Passing reports whether a trouble often ends by itself, so that a caller should wait.
func Passing(t *pods.Trouble) bool {
	return t.Outcome == v1alpha1.OutcomeUnschedulable || t.Outcome == v1alpha1.OutcomeNetworkFailed
}

func unclear(t *pods.Trouble) bool {
	return slices.Contains([]string{
		v1alpha1.OutcomePodRefused, v1alpha1.OutcomeStartTimeout, v1alpha1.OutcomeDeadlineExceeded, v1alpha1.OutcomeEvicted,
		v1alpha1.OutcomeAgentFailed, v1alpha1.OutcomePodLost,
	}, t.Outcome)
}

// perCore matches the kubelet's words for a request that is no multiple of the CPUs of a core.
var perCore = regexp.MustCompile(`not multiple cpus per core = (\d{1,3})\b`)

// WholeCore returns how many CPUs a core has if a kubelet with full-pcpus-only rejected the pod.
func WholeCore(t *pods.Trouble) int {
	if t == nil || t.Outcome != v1alpha1.OutcomeSMTAlignment {
		return 0
	}
	if found := perCore.FindStringSubmatch(t.Said); found != nil {
		n, _ := strconv.Atoi(found[1]) // the pattern is a number
		return n
	}
	return 0
}
