package proof

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// shape is a node as far as it matters to which CPUs a kubelet with the static CPU manager gives to a pod. Its NUMA nodes have
// four cores each; the first core is reserved. CPU c+cores is the second thread of core c.
type shape struct {
	smt, fullPCPUsOnly bool
	numa               int
	// nic is the NUMA node of the NIC, and aligned whether the topology manager enforces it where it has a hint.
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
	}{{s.smt, "SMT"}, {!s.smt, "no SMT"}, {s.fullPCPUsOnly, "full-pcpus-only"}, {s.aligned, "single-numa-node"}, {s.fragmented, "fragmented"}} {
		if w.is {
			words = append(words, w.word)
		}
	}
	return fmt.Sprintf("%s, NIC on %d of %d", strings.Join(words, ", "), s.nic, s.numa)
}

func (s shape) cores() int { return 4 * s.numa }

func (s shape) siblings(cpu int) []int {
	core := cpu % s.cores()
	if !s.smt {
		return []int{core}
	}
	return []int{core, core + s.cores()}
}

// give is what the kubelet gives to a pod that asks for so many CPUs; nothing if it rejects the pod. It fills core after core,
// as the CPU manager does where whole cores are free.
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

// on puts both ends on nodes of a shape, with as many CPUs as the operator chooses when the spec leaves that open, or as the
// spec says.
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
			e.CPUsAllowed, e.Facts["cgroup.cpus"], e.MeasuringCPU, e.AgentCPU = list(given), list(given), int32(given[0]), int32(given[len(given)-1])
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

// A benchmark that says nothing about CPUs and NUMA gets a verdict on every kind of node, but where a VF or PF and its CPUs are
// not aligned although they could be.
func TestShapes(t *testing.T) {
	networks := map[v1alpha1.NetworkType]func(*world){
		v1alpha1.NetworkPod: network(v1alpha1.NetworkPod, "eth0"),
		v1alpha1.NetworkVF:  func(*world) {},
		v1alpha1.NetworkNAD: func(w *world) {
			network(v1alpha1.NetworkNAD, "net1")(w)
			other := *w.run.ClientSeen.Network
			other.MAC, other.IPs = w.server().MAC, []string{"192.0.2.2"}
			w.run.ServerSeen.Network = &other
			for _, e := range []*result.Evidence{w.client(), w.server()} {
				e.PCIAddress, e.Facts["nic.parent"] = "0000:3b:00.0", "enp59s0f0"
			}
		},
		v1alpha1.NetworkHost: hostNIC,
	}
	const far = "NUMALocal Failed"
	shapes := []struct {
		shape
		// cpus of the spec; 0: as the operator chooses.
		cpus int
		// blocked are, by network, the lines for which there is no verdict, and warned those that only warn. Of all networks
		// by "".
		blocked, warned map[v1alpha1.NetworkType]string
	}{
		{shape: shape{numa: 1}},
		{shape: shape{numa: 1, fullPCPUsOnly: true}},
		{shape: shape{numa: 1, smt: true}},
		{shape: shape{numa: 1, smt: true, fullPCPUsOnly: true}},
		{shape: shape{numa: 2, aligned: true}},
		{shape: shape{numa: 2, smt: true, fullPCPUsOnly: true, aligned: true}},
		{
			shape:  shape{numa: 2, smt: true, fullPCPUsOnly: true, aligned: true, nic: 1},
			warned: map[v1alpha1.NetworkType]string{v1alpha1.NetworkNAD: far, v1alpha1.NetworkHost: far},
		},
		{
			shape:  shape{numa: 2, aligned: true, nic: 1},
			warned: map[v1alpha1.NetworkType]string{v1alpha1.NetworkNAD: far, v1alpha1.NetworkHost: far},
		},
		// The device plugin gives no hint, or the topology manager does not use it: a VF must be near, and is not.
		{
			shape:   shape{numa: 2, smt: true, nic: 1},
			blocked: map[v1alpha1.NetworkType]string{v1alpha1.NetworkVF: far},
			warned:  map[v1alpha1.NetworkType]string{v1alpha1.NetworkNAD: far, v1alpha1.NetworkHost: far},
		},
		// No whole core is free, and the CPU manager does not insist on one.
		{shape: shape{numa: 1, smt: true, fragmented: true}, blocked: map[v1alpha1.NetworkType]string{"": "SMTSiblings Failed"}},
		// Half a core.
		{shape: shape{numa: 1, smt: true}, cpus: 1, blocked: map[v1alpha1.NetworkType]string{"": "SMTSiblings Failed"}},
		{shape: shape{numa: 1, smt: true, fullPCPUsOnly: true}, cpus: 1, blocked: map[v1alpha1.NetworkType]string{"": "rejected"}},
		{shape: shape{numa: 1}, cpus: 1},
	}
	for _, c := range shapes {
		for way, on := range networks {
			cpus := 2
			if c.cpus != 0 {
				cpus = c.cpus
			}
			t.Run(fmt.Sprintf("%s, %d CPUs, %s", c.shape, cpus, way), func(t *testing.T) {
				blocked, warned := "", ""
				given := c.give(cpus, way.HasDevice())
				if given == nil {
					blocked = "rejected"
				} else {
					w := good(on, c.on(way, cpus, given))
					lines, _ := Endpoints(w.spec, w.variant(), w.run)
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
				}
				want := c.blocked[way] + c.blocked[""]
				if diff := cmp.Diff([]string{want, c.warned[way]}, []string{blocked, warned}); diff != "" {
					t.Errorf("blocked and warned (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// blocks says whether there is no verdict on a run because of a check.
func blocks(w *world, check string) bool {
	for _, c := range chain {
		if e := endpoints(w.spec, w.variant(), w.run); c.name == check && !e[0].blocks(c.failed) && !e[1].blocks(c.failed) {
			return false
		}
	}
	return true
}
