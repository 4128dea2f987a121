// Package doctor decides whether a cluster is suitable for latency measurements. It turns observations into one line for each
// check, with a level, the effect on latency and the remedy. It is pure: kubectl tailgate doctor makes the observations, and
// in its inspect pods the agent.
package doctor

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// Level is the result of a check.
type Level string

// The levels.
const (
	// Good: no problem was found.
	Good Level = "good"
	// Warning: latencies are higher or less certain than they could be. Benchmarks run.
	Warning Level = "warning"
	// Error: benchmarks cannot run, or their results are not usable.
	Error Level = "error"
	// Unknown: the check could not be made.
	Unknown Level = "unknown"
)

// Levels are all levels from the worst to the best. Unknown comes before Warning because it may hide an error.
var Levels = []Level{Error, Unknown, Warning, Good}

// Line is one thing that was looked at.
type Line struct {
	// Node is empty for what concerns the cluster.
	Node string `json:"node,omitempty"`
	// Check is what was looked at, in a word that stays the same from version to version. See docs/doctor.md.
	Check string `json:"check"`
	// Subject is the network or the resource, of checks that are made of several.
	Subject string `json:"subject,omitempty"`
	Level   Level  `json:"level"`
	// Found is what was found.
	Found string `json:"found"`
	// Effect is the effect on latency, and Remedy the action to take; both are empty if the level is Good.
	Effect string `json:"effect,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

// Report is what there is to say of a cluster.
type Report struct {
	// Result is the worst level of all lines.
	Result Level `json:"result"`
	// Nodes are those that were to be looked at.
	Nodes []string `json:"nodes"`
	// Lines of the cluster first, then of each node, always in the same order of checks.
	Lines []Line `json:"lines"`
}

// Count is how many lines of a level there are.
func (r Report) Count(level Level) int {
	n := 0
	for _, l := range r.Lines {
		if l.Level == level {
			n++
		}
	}
	return n
}

// Observed is what is known of a cluster.
type Observed struct {
	// Namespace is where the inspect pods ran, and the networks are.
	Namespace string
	// Unseen are kinds that could not be read, by their plural, with the reason.
	Unseen map[string]string
	// Manager is Tailgate's; nil if there is none.
	Manager *Manager
	// Definitions are those of Tailgate's kinds.
	Definitions []Definition
	// Multus are the workloads that look like Multus'. MultusKind says whether there is a kind for its networks.
	Multus     []Workload
	MultusKind bool
	// Networks are those that were looked at, and NetworksLeft those that were not, because there are so many. Asked says
	// that the user named them.
	Networks     []Network
	NetworksLeft []string
	Asked        bool
	// Onload is the resource of Onload's devices, and OnloadAsked whether the user named it.
	Onload      string
	OnloadAsked bool
	// Capacity has all devices of the cluster: how many each extended resource has on all nodes together.
	Capacity map[corev1.ResourceName]int64
	// Classes are the DeviceClasses by which drivers of Dynamic Resource Allocation provide resources, by the resource.
	Classes map[corev1.ResourceName]string
	// LeftOut are the taints of nodes that were not looked at, by node, because only who tolerates them may run there and
	// the user did not name these.
	LeftOut map[string]string
	// Nodes that were to be looked at, by name.
	Nodes []Node
}

// Manager is the Deployment of Tailgate's manager.
type Manager struct {
	// Name is namespace/name.
	Name string
	// Ready of Wanted replicas are ready.
	Ready, Wanted int32
	Image         string
}

// Definition is what there is of the definition of one of Tailgate's kinds.
type Definition struct {
	// Name is PLURAL.tailgate.dev.
	Name string
	// Found says whether it is there, Established whether the API server serves it, and Same whether it is that of this
	// command's version.
	Found, Established, Same bool
}

// Workload is a DaemonSet.
type Workload struct {
	// Name is namespace/name.
	Name string
	// Ready of Wanted pods are ready.
	Ready, Wanted int32
}

// Network is a NetworkAttachmentDefinition.
type Network struct {
	// Name is namespace/name.
	Name string
	// Found is false for one that the user named and there is not.
	Found bool
	// Resource is that of its annotation, Config its CNI configuration.
	Resource, Config string
}

// Node is what is known of one.
type Node struct {
	Node corev1.Node
	// Named says that the user named it.
	Named bool
	// Pods are those that it has, but for the inspect pods; unfinished ones only.
	Pods []corev1.Pod
	// Claimed are the resources that a driver of Dynamic Resource Allocation provides there: Node has them as if a device
	// plugin did.
	Claimed []corev1.ResourceName
	// Topology is nil where no agent writes it.
	Topology *foreign.NodeResourceTopology
	// NotLooked is why no pod was sent there; empty when some were.
	NotLooked string
	// Looks are what the inspect pods came to.
	Looks []Look
}

// Kind is what an inspect pod was to see.
type Kind string

// The kinds.
const (
	// KindShared is on the CPUs that no pod has to itself.
	KindShared Kind = "shared"
	// KindCPU has a whole CPU.
	KindCPU Kind = "cpu"
	// KindNetwork has a whole CPU, and a network with its device.
	KindNetwork Kind = "network"
	// KindOnload has a whole CPU, and Onload's devices.
	KindOnload Kind = "onload"
)

// Look is what an inspect pod came to.
type Look struct {
	Kind Kind
	// Network is that of kind network.
	Network string
	// Inspection is nil when there is a Trouble, and the other way round.
	Inspection *result.Inspection
	Trouble    *Trouble
	// ImageID is what the node's runtime made of the image.
	ImageID string
	// NetworkStatus is the pod's annotation of that name; empty when it has none.
	NetworkStatus string
}

// Diagnose looks at everything.
func Diagnose(o Observed) Report {
	r := Report{Nodes: []string{}, Lines: []Line{}}
	for _, check := range clusterChecks {
		r.Lines = append(r.Lines, check(o)...)
	}
	simulated := slices.Concat(machines(o)...)
	for _, n := range o.Nodes {
		r.Nodes = append(r.Nodes, n.Node.Name)
		for _, check := range nodeChecks {
			for _, l := range check(o, n) {
				l.Node = n.Node.Name
				if l.Level == Warning && slices.Contains(simulated, n.Node.Name) {
					// How fast a simulation is does not matter, and its results say that they are of one.
					l.Level, l.Effect, l.Remedy = Good, "", ""
				}
				r.Lines = append(r.Lines, l)
			}
		}
	}
	r.Result = worst(r.Lines)
	return r
}

// worst is the worst level of lines.
func worst(lines []Line) Level {
	level := len(Levels) - 1
	for _, l := range lines {
		level = min(level, slices.Index(Levels, l.Level))
	}
	return Levels[level]
}

// clusterChecks and nodeChecks are all checks, in the order of the lines. A check without a line has nothing to say: the
// machine does not report the fact, or another line says why the check was not possible.
var (
	clusterChecks = []func(Observed) []Line{
		manager, definitions, multus, networks, onloadAnywhere, mtus, oneMachine, alike, leftOut,
	}
	nodeChecks = []func(Observed, Node) []Line{
		nodeState, inspect, cpuManager, freeCPUs, neighbours, topology, smt, isolation, governor, idleStates, clock, mitigations,
		kernel, hypervisor, hugepages, nics, devices, attached, interfaces, onload,
	}
)

// The constructors of lines.

func good(check, subject, format string, args ...any) []Line {
	return []Line{{Check: check, Subject: subject, Level: Good, Found: fmt.Sprintf(format, args...)}}
}

func unknown(check, subject, found, remedy string) []Line {
	return []Line{{Check: check, Subject: subject, Level: Unknown, Found: found, Remedy: remedy}}
}

// advice is what a line that is not good says beyond what was found.
type advice struct{ effect, remedy string }

func (a advice) warn(check, subject, format string, args ...any) []Line {
	return []Line{{Check: check, Subject: subject, Level: Warning, Found: fmt.Sprintf(format, args...), Effect: a.effect, Remedy: a.remedy}}
}

func (a advice) err(check, subject, format string, args ...any) []Line {
	return []Line{{Check: check, Subject: subject, Level: Error, Found: fmt.Sprintf(format, args...), Effect: a.effect, Remedy: a.remedy}}
}

// look finds what the pod of a kind came to, of a network if the kind is that; nil when there was none.
func (n Node) look(kind Kind, network string) *Look {
	i := slices.IndexFunc(n.Looks, func(l Look) bool { return l.Kind == kind && l.Network == network })
	if i < 0 {
		return nil
	}
	return &n.Looks[i]
}

// seen is the inspection from a pod with a whole CPU, or else from any; nil without one.
func (n Node) seen() *result.Inspection {
	var any *result.Inspection
	for _, l := range n.Looks {
		if l.Inspection != nil && l.Kind != KindShared {
			return l.Inspection
		}
		any = cmp.Or(any, l.Inspection)
	}
	return any
}
