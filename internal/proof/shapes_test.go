package proof

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/test/docs"
)

// shape describes a node as far as it determines which CPUs a kubelet with the static CPU manager gives to a pod. Its NUMA
// nodes have four cores each; the first core is reserved. CPU c+cores is the second thread of core c.
type shape struct {
	smt, fullPCPUsOnly bool
	numa               int
	// nic is the NUMA node of the NIC, and aligned is true if the topology manager enforces it where it has a hint.
	nic     int
	aligned bool
	// fragmented is true if every core has one thread that another pod uses.
	fragmented bool
}

func (s shape) String() string {
	var words []string
	for _, w := range []struct {
		is   bool
		word string
	}{
		{s.smt, "SMT"}, {!s.smt, "no SMT"}, {s.fullPCPUsOnly, "`full-pcpus-only`"}, {s.fragmented, "no free whole core"},
		{s.numa == 1, "one NUMA node"}, {s.numa == 2, fmt.Sprintf("two NUMA nodes, NIC on %d", s.nic)}, {s.numa == 2 && !s.aligned, "no alignment"},
	} {
		if w.is {
			words = append(words, w.word)
		}
	}
	return strings.Join(words, ", ")
}

func (s shape) cores() int { return 4 * s.numa }

func (s shape) siblings(cpu int) []int {
	core := cpu % s.cores()
	if !s.smt {
		return []int{core}
	}
	return []int{core, core + s.cores()}
}

// give returns the CPUs that the kubelet gives to a pod that requests a number of CPUs; nil if it rejects the pod. It fills one
// core after another, as the CPU manager does where whole cores are free.
func (s shape) give(cpus int, hint bool) []int {
	threads := len(s.siblings(0))
	if s.fullPCPUsOnly && cpus%threads != 0 {
		return nil
	}
	first := 1
	if hint && s.aligned && s.nic > 0 {
		first = 4 * s.nic
	}
	var given []int
	for core := first; len(given) < cpus; core++ {
		for _, cpu := range s.siblings(core) {
			if len(given) < cpus && !(s.fragmented && cpu >= s.cores()) {
				given = append(given, cpu)
			}
		}
	}
	return given
}

func list(cpus []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(cpus), " ", ","), "[]")
}

// on places both ends on nodes of a shape, with the number of CPUs that the operator chooses if the spec leaves it open, or
// that the spec sets.
func (s shape) on(network v1alpha1.NetworkType, cpus int, given []int) func(*world) {
	return func(w *world) {
		w.spec.Placement = v1alpha1.Placement{}
		for _, seen := range []*result.Seen{&w.run.ClientSeen, &w.run.ServerSeen} {
			seen.Requests["cpu"] = fmt.Sprint(cpus)
		}
		for _, e := range []*result.Evidence{w.client(), w.server()} {
			node := given[0] % s.cores() / 4
			sibling := "none"
			for _, cpu := range s.siblings(given[0])[1:] {
				sibling = "others"
				if len(given) > 1 && given[1] == cpu {
					sibling = "own"
				}
			}
			e.CPUsAllowed, e.Facts["cgroup.cpus"], e.Facts["cgroup.cpus-set"], e.MeasuringCPU, e.AgentCPU = list(given), list(given), list(given), int32(given[0]), int32(given[len(given)-1])
			e.OnlineCPUs = fmt.Sprintf("0-%d", s.cores()*len(s.siblings(0))-1)
			e.ThreadSiblings, e.Facts["cpu.smt.sibling"] = list(s.siblings(given[0])), sibling
			e.CPUNUMANode, e.AllowedNUMANodes, e.Facts["numa.nodes"] = int32(node), fmt.Sprint(node), []string{"0", "0-1"}[s.numa-1]
			e.DeviceNUMANode = int32(s.nic)
			if network == v1alpha1.NetworkPod {
				e.DeviceNUMANode = -1
			}
		}
	}
}

// ofType changes the network to a VF or PF.
func ofType(t v1alpha1.NetworkType, function string) func(*world) {
	return func(w *world) {
		w.network().Type = t
		for _, e := range []*result.Evidence{w.client(), w.server()} {
			e.Facts["nic.function"] = function
		}
	}
}

// ipvlan changes the network to one on a NIC of the node.
func ipvlan(w *world) {
	network(v1alpha1.NetworkNAD, "net1")(w)
	other := *w.run.ClientSeen.Network
	other.MAC, other.IPs = w.server().MAC, []string{"192.0.2.2"}
	w.run.ServerSeen.Network = &other
	for _, e := range []*result.Evidence{w.client(), w.server()} {
		e.PCIAddress, e.Facts["nic.parent"] = "0000:3b:00.0", "enp59s0f0"
	}
}

// alignedIPvlan is ipvlan with a borrowed device.
func alignedIPvlan(w *world) {
	ipvlan(w)
	w.spec.Network.NAD = &v1alpha1.NADNetwork{Alignment: v1alpha1.Alignment{AlignWith: "openshift.io/sf_vf"}}
}

// ways are the networks of the table.
var ways = []struct {
	network v1alpha1.NetworkType
	// borrows is true if the pod has a device of the NIC only to align its CPUs.
	borrows bool
	on      func(*world)
}{
	{v1alpha1.NetworkPod, false, network(v1alpha1.NetworkPod, "eth0")},
	{v1alpha1.NetworkVF, false, ofType(v1alpha1.NetworkVF, "VF")},
	{v1alpha1.NetworkPF, false, ofType(v1alpha1.NetworkPF, "PF")},
	{v1alpha1.NetworkNAD, false, ipvlan},
	{v1alpha1.NetworkHost, false, hostNIC},
	{v1alpha1.NetworkNAD, true, alignedIPvlan},
	{v1alpha1.NetworkHost, true, aligned("0000:3b:02.3", "1")},
}

// shapeCase is a kind of node with the spec's number of CPUs; 0: the operator chooses.
type shapeCase struct {
	shape
	cpus int
	// blocked contains, by network, the lines that prevent a verdict, and warned the lines that only warn. The key "" stands
	// for all networks.
	blocked, warned map[v1alpha1.NetworkType]string
}

const far = "NUMALocal Failed"

var (
	// unaligned is the result where nothing ties CPUs to the NIC.
	unaligned = map[v1alpha1.NetworkType]string{v1alpha1.NetworkNAD: far, v1alpha1.NetworkHost: far}
	// distant is the result for a VF or PF that must be near and is not.
	distant = map[v1alpha1.NetworkType]string{v1alpha1.NetworkVF: far, v1alpha1.NetworkPF: far}
	shared  = map[v1alpha1.NetworkType]string{"": "SMTSiblings Failed"}
)

var shapeCases = []shapeCase{
	{shape: shape{numa: 1}},
	{shape: shape{numa: 1}, cpus: 1},
	{shape: shape{numa: 1, fullPCPUsOnly: true}},
	{shape: shape{numa: 1, smt: true}},
	{shape: shape{numa: 1, smt: true, fullPCPUsOnly: true}},
	// Half a core.
	{shape: shape{numa: 1, smt: true}, cpus: 1, blocked: shared},
	{shape: shape{numa: 1, smt: true, fullPCPUsOnly: true}, cpus: 1, blocked: map[v1alpha1.NetworkType]string{"": "rejected"}},
	// No whole core is free, and the CPU manager does not insist on one.
	{shape: shape{numa: 1, smt: true, fragmented: true}, blocked: shared},
	{shape: shape{numa: 2, aligned: true}},
	{shape: shape{numa: 2, aligned: true, nic: 1}, warned: unaligned},
	{shape: shape{numa: 2, smt: true, aligned: true, nic: 1}, warned: unaligned},
	{shape: shape{numa: 2, smt: true, fullPCPUsOnly: true, aligned: true}},
	{shape: shape{numa: 2, smt: true, fullPCPUsOnly: true, aligned: true, nic: 1}, warned: unaligned},
	// The device plugin gives no hint, or the topology manager does not use it.
	{shape: shape{numa: 2, smt: true}},
	{shape: shape{numa: 2, nic: 1}, blocked: distant, warned: unaligned},
	{shape: shape{numa: 2, smt: true, nic: 1}, blocked: distant, warned: unaligned},
	{shape: shape{numa: 2, smt: true, fullPCPUsOnly: true, nic: 1}, blocked: distant, warned: unaligned},
}

// asks returns the number of CPUs that each endpoint requests.
func (c shapeCase) asks() int { return cmp.Or(c.cpus, 2) }

// proofOn returns the proof on such nodes; nil if the kubelet rejects the pods.
func (c shapeCase) proofOn(way v1alpha1.NetworkType, borrows bool, on func(*world)) (*world, []v1alpha1.ProofLine) {
	given := c.give(c.asks(), way.HasDevice() || borrows)
	if given == nil {
		return nil, nil
	}
	w := good(on, c.on(way, c.asks(), given), func(w *world) {
		for _, e := range []*result.Evidence{w.client(), w.server()} {
			if borrows && e.DeviceNUMANode >= 0 { // the borrowed device is one of the NIC
				e.Facts["numa.borrowed"] = fmt.Sprint(e.DeviceNUMANode)
			}
		}
	})
	lines, _ := Endpoints(w.spec, w.variant(), w.run)
	return w, lines
}

// A benchmark that sets neither CPUs nor a NUMA policy gets a verdict on every kind of node, except where a VF or PF and its
// CPUs are not aligned although they could be.
func TestShapes(t *testing.T) {
	for _, c := range shapeCases {
		for _, way := range ways {
			t.Run(fmt.Sprintf("%s, %d CPUs, %s, borrows %t", c.shape, c.asks(), way.network, way.borrows), func(t *testing.T) {
				blocked, warned := "", ""
				w, lines := c.proofOn(way.network, way.borrows, way.on)
				if lines == nil {
					blocked = "rejected"
				}
				for _, l := range lines {
					if l.State != isFailed && l.State != isUnknown {
						continue
					}
					if line := l.Check + " " + string(l.State); blocks(w, l.Check) {
						blocked += line
					} else {
						warned += line
					}
				}
				// A borrowed device makes the host's network as near, and as strict, as a VF.
				as := way.network
				if way.borrows {
					as = v1alpha1.NetworkVF
				}
				want := c.blocked[as] + c.blocked[""]
				if diff := gocmp.Diff([]string{want, c.warned[as]}, []string{blocked, warned}); diff != "" {
					t.Errorf("blocked and warned (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// markdown returns a table that shows whether a verdict is possible, with the failed lines about CPUs and NUMA nodes.
func markdown() string {
	var out strings.Builder
	out.WriteString("| node | `placement.cpus` | Pod | VF | PF | NAD | Host | NAD, aligned | Host, aligned |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, c := range shapeCases {
		fmt.Fprintf(&out, "| %s | %s |", c.shape, map[bool]string{true: "unset", false: fmt.Sprint(c.cpus)}[c.cpus == 0])
		for _, way := range ways {
			w, lines := c.proofOn(way.network, way.borrows, way.on)
			verdict, others := "yes", ""
			if lines == nil {
				verdict = "no: the kubelet rejects the pod"
			}
			for _, l := range lines {
				about := l.Check == v1alpha1.ProofCPUsExclusive || l.Check == v1alpha1.ProofSMTSiblings || l.Check == v1alpha1.ProofCPUsOnNUMANode || l.Check == v1alpha1.ProofNUMALocal
				if !about || badness(l.State) == 0 {
					continue
				}
				if blocks(w, l.Check) {
					verdict = "no"
				}
				others += fmt.Sprintf("; `%s` %s", l.Check, l.State)
			}
			fmt.Fprintf(&out, " %s%s |", verdict, others)
		}
		out.WriteString("\n")
	}
	return out.String()
}

// TestShapesPage checks that docs/internals/shapes.md contains the table.
func TestShapesPage(t *testing.T) {
	docs.CheckTable(t, filepath.Join("..", ".."), "internals/shapes.md", "internal/proof", markdown())
}

// blocks reports whether a check prevents a verdict on a run.
func blocks(w *world, check string) bool {
	for _, c := range chain {
		if e := endpoints(w.spec, w.variant(), w.run); c.name == check && !e[0].blocks(c.failed) && !e[1].blocks(c.failed) {
			return false
		}
	}
	return true
}
