package preflight

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/text"
)

type Nodes struct {
	Names   []string // sorted; with topology Star, the clients
	Server  string   // the server's node with topology Star
	LeftOut string   // counts selected nodes that cannot be measured, by reason; or empty
}

const templateSpec = "spec.template.spec" // the path, in a matrix, of its benchmarks' spec

// AcceptMatrix runs the checks of a matrix, given its overview, and returns the first rejection or
// all nodes that could provide what is requested if empty: what occupies them is temporary.
func AcceptMatrix(o Observed, m v1alpha1.LatencyMatrixSpec) (Nodes, *Rejection) {
	o.Pods, o.Empty = nil, true
	if o.Driver == nil {
		return Nodes{}, rejectf(v1alpha1.ReasonCellUnsupported, templateSpec+".tool",
			"this operator does not know %s; upgrade it, or choose another tool", o.Benchmark.Spec.Tool)
	}
	if r := ofSpec.check(o); r != nil {
		return Nodes{}, r.InTemplate()
	}
	selected, servers := endpoints(o)
	selected.path, servers.path = "spec.nodes", "spec.server"
	var nodes Nodes
	var r *Rejection
	if m.Topology == v1alpha1.TopologyStar {
		nodes, r = chooseStar(o, selected, servers)
	} else {
		nodes, r = chooseNodes(o, m, selected)
	}
	if r == nil {
		r = addressesAtOnce(o, m, nodes).InTemplate()
	}
	if r != nil {
		return Nodes{}, r
	}
	return nodes, nil
}

func chooseNodes(o Observed, m v1alpha1.LatencyMatrixSpec, nodes *endpoint) (Nodes, *Rejection) {
	c := bothEnds(o)
	found, r := c.among(nodes)
	if r != nil {
		return Nodes{}, r
	}
	if len(found) == 1 {
		return Nodes{}, rejectf(v1alpha1.ReasonSameNode, nodes.path,
			"only node %s can be measured, and a latency between nodes needs two: change the nodeSelector%s", found[0].name, c.leftOut())
	}
	if most := v1alpha1.MaxMatrixNodes; len(found) > most {
		return Nodes{}, rejectf(v1alpha1.ReasonTooManyNodes, nodes.path,
			"%d nodes can be measured, and %s takes at most %d; select fewer, or create several matrices",
			len(found), m.Topology, most)
	}
	return Nodes{Names: sortedNames(found), LeftOut: c.reasons()}, nil
}

// chooseStar takes all clients, and a server that is not among them, if there is one.
func chooseStar(o Observed, clients, servers *endpoint) (Nodes, *Rejection) {
	c := newChoice(o, v1alpha1.RoleClient)
	from, r := c.among(clients)
	if r != nil {
		return Nodes{}, r
	}
	to, r := newChoice(o, v1alpha1.RoleServer).among(servers)
	if r != nil {
		return Nodes{}, r
	}
	among := map[string]int{}
	for _, client := range from {
		among[client.name] = 1
	}
	server := slices.MinFunc(to, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(among[a.name], among[b.name]), a.compare(b))
	})
	from = slices.DeleteFunc(from, func(c candidate) bool { return c.name == server.name })
	if len(from) == 0 {
		return Nodes{}, rejectf(v1alpha1.ReasonSameNode, "spec.nodes",
			"only node %s is suitable for clients and server, and a latency between nodes needs two: change a nodeSelector%s", server.name, c.leftOut())
	}
	if most := v1alpha1.MaxStarClients; len(from) > most {
		return Nodes{}, rejectf(v1alpha1.ReasonTooManyNodes, clients.path,
			"%d nodes can be measured, and Star takes at most %d clients; select fewer, or create several matrices", len(from), most)
	}
	return Nodes{Names: sortedNames(from), Server: server.name, LeftOut: c.reasons()}, nil
}

func bothEnds(o Observed) *choice {
	c := newChoice(o, v1alpha1.RoleClient)
	c.filters = append(c.filters, newChoice(o, v1alpha1.RoleServer).filters...)
	return c
}

func (c *choice) leftOut() string {
	if reasons := c.reasons(); reasons != "" {
		return ", or make the others available: " + reasons
	}
	return ""
}

func sortedNames(candidates []candidate) []string {
	names := text.Of(candidates, func(c candidate) string { return c.name })
	slices.Sort(names)
	return names
}

// addressesAtOnce checks ranges of type Static: each pair at the same time needs two addresses.
func addressesAtOnce(o Observed, m v1alpha1.LatencyMatrixSpec, nodes Nodes) *Rejection {
	parallel := plan.Parallel(m, len(nodes.Names))
	for _, v := range plan.Variants(o.Benchmark.Spec) {
		ipam := v.Network.IPAM()
		if ipam == nil || ipam.Type != v1alpha1.IPAMStatic {
			continue
		}
		if n := len(pods.StaticBlocks(*ipam, parallel)); n < parallel {
			return rejectf(v1alpha1.ReasonNetworkRangeTooSmall, memberPath(o, v)+".ipam",
				"%d pairs are measured at once, and %s has two addresses for each of %d; give a larger range or an earlier rangeStart, or lower spec.parallelism",
				parallel, rangeText(*ipam), n)
		}
	}
	return nil
}

func rangeText(i v1alpha1.IPAM) string {
	if i.RangeStart == "" {
		return i.Range
	}
	return fmt.Sprintf("%s from %s on", i.Range, i.RangeStart)
}

// Usable reports which nodes could be both endpoints if empty; with Star, a client or the server.
func Usable(o Observed, star string) map[string]bool {
	clients, servers := bothEnds(o), newChoice(o, v1alpha1.RoleServer)
	if star != "" {
		clients = newChoice(o, v1alpha1.RoleClient)
	}
	usable := map[string]bool{}
	for i := range o.Nodes {
		c := clients
		if o.Nodes[i].Name == star {
			c = servers
		}
		rejecting, _ := c.judge(&o.Nodes[i])
		usable[o.Nodes[i].Name] = rejecting == nil
	}
	return usable
}
