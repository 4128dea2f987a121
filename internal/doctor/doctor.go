// Package doctor decides whether a cluster suits latency measurements: it turns observations of the
// command and of its inspect pods into lines with level, effect and remedy. It does no I/O.
package doctor

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
)

type Level string

const (
	Good    Level = "good"    // no problem was found
	Warning Level = "warning" // latencies are higher or less certain; benchmarks run
	Error   Level = "error"   // benchmarks cannot run, or their results are not usable
	Unknown Level = "unknown" // the check could not be made
)

// Levels are ordered from the worst. Unknown comes before Warning: it may hide an error.
var Levels = []Level{Error, Unknown, Warning, Good}

// Line is the result of a check, for one subject.
type Line struct {
	Node string `json:"node,omitempty"` // empty if the line concerns the cluster
	// Check is a stable name, see docs/internals/doctor.md.
	Check   string `json:"check"`
	Subject string `json:"subject,omitempty"` // the network or the resource, if a check has several
	Level   Level  `json:"level"`
	Found   string `json:"found"`
	// Effect is that on latency, Remedy what to do; both are empty for Good.
	Effect string `json:"effect,omitempty"`
	Remedy string `json:"remedy,omitempty"`
}

type Report struct {
	Result Level    `json:"result"`
	Nodes  []string `json:"nodes"`
	Lines  []Line   `json:"lines"` // of the cluster, then of each node, in the order of the checks
}

func (r Report) Count(level Level) int {
	n := 0
	for _, l := range r.Lines {
		if l.Level == level {
			n++
		}
	}
	return n
}

type Observed struct {
	Namespace   string            // of the inspect pods, and of networks without a namespace
	Unseen      map[string]string // why kinds could not be read, by the plural of the kind
	Manager     *Manager
	Definitions []Definition
	// Policies are those with protection.Label, and PolicyBindings all bindings.
	Policies       []admissionregistrationv1.ValidatingAdmissionPolicy
	PolicyBindings []admissionregistrationv1.ValidatingAdmissionPolicyBinding
	// Multus are DaemonSets like it; MultusKind: the kind of its networks exists.
	Multus     []appsv1.DaemonSet
	MultusKind bool
	Gates      []Gate
	// Networks were checked, NetworksLeft were too many. Asked: the user named them.
	Networks     []Network
	NetworksLeft []string
	Asked        bool
	// Onload is the resource of Onload's devices; OnloadAsked is true if the user named it.
	Onload      string
	OnloadAsked bool
	Capacity    map[corev1.ResourceName]int64  // of all nodes; of an extended resource, its devices
	Classes     map[corev1.ResourceName]string // DeviceClasses whose drivers provide the resources
	LeftOut     map[string]string              // taints of nodes that were therefore not checked
	Nodes       []Node                         // to be checked, sorted by name
	Connections []Connection                   // pairs of nodes that tried the way to each other
}

// Connection is the way between pods on two nodes.
type Connection struct {
	// Network is the network, namespace/name; empty: the pod network. Client tried to reach Server.
	Network, Client, Server string
	Reach                   *result.Reach // what the client found; nil: a Trouble, or an old image
	Trouble                 *pods.Trouble
}

type Manager struct {
	Name          string // namespace/name
	User          string // the name of its service account for the API server
	Ready, Wanted int32
	Image         string
}

// Definition is the state of the CustomResourceDefinition of one of Tailgate's kinds.
type Definition struct {
	Name         string // PLURAL.tailgate.dev
	Served, Same bool   // the API server has it; with this command's schema
}

// Gate is a LatencyGate that taints nodes.
type Gate struct {
	Name       string
	Intolerant []string // DaemonSets and Modules of its nodes that do not tolerate its taint
}

type Network struct {
	Name             string   // namespace/name
	Found            bool     // false if the user named the network and it does not exist
	Resource, Config string   // the resource that its annotation names; its CNI configuration
	Requests         []string // a benchmark's resources with it; nil if the user named none
	Made             bool     // the operator creates it for this benchmark
}

func (n Network) Resources() []string {
	if n.Requests == nil && n.Resource != "" {
		return []string{n.Resource}
	}
	return n.Requests
}

type Node struct {
	Node      corev1.Node
	Named     bool                  // the user named the node
	Pods      []corev1.Pod          // unfinished ones, except the inspect pods
	Claimed   []corev1.ResourceName // from Dynamic Resource Allocation, in Node as if a plugin's
	NotLooked string                // why the node has no inspect pods; empty if it has
	Looks     []Look
}

// Kind is the kind of resources that an inspect pod has.
type Kind string

const (
	KindShared  Kind = "shared"  // on the CPUs that no pod has exclusively
	KindCPU     Kind = "cpu"     // a whole CPU
	KindNetwork Kind = "network" // a whole CPU, and a network with its device
	KindOnload  Kind = "onload"  // a whole CPU, and Onload's devices
)

// Look is the result of an inspect pod.
type Look struct {
	Kind          Kind
	CPUs          int
	Network       string
	Inspection    *result.Inspection // nil if there is a Trouble, and vice versa
	Trouble       *pods.Trouble
	ImageID       string // what the node's container runtime reports for the image
	NetworkStatus string // the pod's annotation network-status, or empty
}

func Diagnose(o Observed) Report {
	r := Report{Nodes: []string{}, Lines: []Line{}}
	for _, check := range clusterChecks {
		for _, l := range check.lines(o) {
			l.Check = check.name
			r.Lines = append(r.Lines, l)
		}
	}
	simulated := slices.Concat(machines(o)...)
	for _, n := range o.Nodes {
		r.Nodes = append(r.Nodes, n.Node.Name)
		for _, check := range nodeChecks {
			for _, l := range check.lines(o, n) {
				l.Node, l.Check = n.Node.Name, cmp.Or(check.name, l.Check)
				if l.Level == Warning && slices.Contains(simulated, n.Node.Name) {
					l.Level, l.Effect, l.Remedy = Good, "", "" // Results say so; its speed does not matter.
				}
				r.Lines = append(r.Lines, l)
			}
		}
	}
	r.Result = worst(r.Lines)
	return r
}

func worst(lines []Line) Level {
	level := len(Levels) - 1
	for _, l := range lines {
		level = min(level, slices.Index(Levels, l.Level))
	}
	return Levels[level]
}

// clusterChecks and nodeChecks are all, in order, by name. One without a line has nothing to say:
// the fact is not reported, or another line says why it was not checked.
var (
	clusterChecks = []struct {
		name  string
		lines func(Observed) []Line
	}{
		{"manager", manager}, {"crds", definitions}, {"policies", policies}, {"gate-taint", gateTaints}, {"multus", multus},
		{"network", networks}, {"onload", onloadAnywhere}, {"mtu", mtus}, {"connection", connections}, {"machines", oneMachine},
		{"alike", alike}, {"left-out", leftOut},
	}
	nodeChecks = []struct {
		name  string
		lines func(Observed, Node) []Line
	}{
		{"node", nodeState}, {"inspect", inspect}, {"cpu-manager", cpuManager}, {"free-cpus", freeCPUs}, {"neighbours", neighbours},
		{"topology", topology}, {"smt", seeing(smt)}, {"isolation", seeing(isolation)}, {"", seeing(disturbed)},
		{"governor", seeing(governor)}, {"c-states", seeing(idleStates)}, {"clock", seeing(clock)}, {"mitigations", seeing(mitigations)},
		{"kernel", seeing(kernel)}, {"hypervisor", seeing(hypervisor)}, {"hugepages", hugepages}, {"nics", seeing(nics)}, {"devices", devices}, {"attachment", ofNetworks(attached)}, {"interface", ofNetworks(attachedInterface)}, {"onload", onload},
	}
)

func seeing(check func(*result.Inspection) []Line) func(Observed, Node) []Line {
	return func(_ Observed, n Node) []Line {
		if i := n.seen(); i != nil {
			return check(i)
		}
		return nil
	}
}

func good(subject, format string, args ...any) []Line {
	return []Line{{Subject: subject, Level: Good, Found: fmt.Sprintf(format, args...)}}
}

func unknown(subject, found, remedy string) []Line {
	return []Line{{Subject: subject, Level: Unknown, Found: found, Remedy: remedy}}
}

func (o Observed) unseen(kinds ...string) []Line {
	for _, kind := range kinds {
		if why := o.Unseen[kind]; why != "" {
			return unknown("", why, "ask an administrator to bind the ClusterRole tailgate-doctor to you")
		}
	}
	return nil
}

type advice struct{ effect, remedy string }

func (a advice) warn(subject, format string, args ...any) []Line {
	return []Line{{Subject: subject, Level: Warning, Found: fmt.Sprintf(format, args...), Effect: a.effect, Remedy: a.remedy}}
}

func (a advice) err(subject, format string, args ...any) []Line {
	return []Line{{Subject: subject, Level: Error, Found: fmt.Sprintf(format, args...), Effect: a.effect, Remedy: a.remedy}}
}

// look returns the result of a kind's pod, for KindNetwork of a network; nil without a pod.
func (n Node) look(kind Kind, network string) *Look {
	i := slices.IndexFunc(n.Looks, func(l Look) bool { return l.Kind == kind && l.Network == network })
	if i < 0 {
		return nil
	}
	return &n.Looks[i]
}

// Attached reports whether a pod on the node had a network, namespace/name; empty: the pod network.
func (n Node) Attached(network string) bool {
	l := n.look(KindShared, "")
	if network != "" {
		l = n.look(KindNetwork, network)
	}
	return l != nil && l.Inspection != nil && l.Inspection.Evidence.Interface != ""
}

// seen returns the inspection of a pod with a whole CPU, or else of any pod, or nil.
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

// Table returns a report as text: lines that are not good, or all, the worst first; then one for
// each place. paint colours words by level, or is nil.
func (r Report) Table(all bool, paint func(Level, string) string) string {
	if paint == nil {
		paint = func(_ Level, word string) string { return word }
	}
	lines := slices.DeleteFunc(slices.Clone(r.Lines), func(l Line) bool { return l.Level == Good && !all })
	slices.SortStableFunc(lines, func(a, b Line) int {
		return cmp.Compare(slices.Index(Levels, a.Level), slices.Index(Levels, b.Level))
	})
	whatWidth, placeWidth := 0, 0
	for _, place := range append([]string{""}, r.Nodes...) {
		placeWidth = max(placeWidth, utf8.RuneCountInString(placeOf(place)))
	}
	for _, l := range lines {
		whatWidth = max(whatWidth, utf8.RuneCountInString(l.what()))
	}
	var out strings.Builder
	begin := func(level Level, place string) {
		fmt.Fprintf(&out, "%s%*s  %-*s", paint(level, string(level)), len(Warning)-len(level), "", placeWidth, placeOf(place))
	}
	for _, l := range lines {
		begin(l.Level, l.Node)
		fmt.Fprintf(&out, "  %-*s  %s\n", whatWidth, l.what(), text.Printable(l.Found, math.MaxInt))
		for _, more := range []struct{ name, text string }{{"effect", l.Effect}, {"remedy", l.Remedy}} {
			if more.text != "" {
				fmt.Fprintf(&out, "           %-8s %s\n", more.name+":", text.Printable(more.text, math.MaxInt))
			}
		}
	}
	if len(lines) > 0 {
		out.WriteString("\n")
	}
	for _, place := range append([]string{""}, r.Nodes...) {
		of := r.of(place)
		begin(of.Result, place)
		fmt.Fprintf(&out, "  %s\n", of.counts())
	}
	nodes := "1 node"
	if len(r.Nodes) != 1 {
		nodes = fmt.Sprintf("%d nodes", len(r.Nodes))
	}
	fmt.Fprintf(&out, "\n%s: %s, %s\n", paint(r.Result, string(r.Result)), nodes, r.counts())
	return out.String()
}

func placeOf(node string) string { return cmp.Or(node, "cluster") }

func (r Report) of(node string) Report {
	part := Report{Lines: slices.DeleteFunc(slices.Clone(r.Lines), func(l Line) bool { return l.Node != node })}
	part.Result = worst(part.Lines)
	return part
}

func (l Line) what() string { return strings.TrimSuffix(l.Check+" "+l.Subject, " ") }

func (r Report) counts() string {
	var parts []string
	for _, level := range Levels {
		switch n := r.Count(level); {
		case n == 0 && level != Good:
		case n != 1 && (level == Error || level == Warning):
			parts = append(parts, fmt.Sprintf("%d %ss", n, level))
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, level))
		}
	}
	return strings.Join(parts, ", ")
}
