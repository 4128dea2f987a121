package plan

import (
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Pairs returns which nodes are measured with which, in slots to be measured one after the other: no node is twice in
// a slot, so its pairs may be measured at once. They are at most maxParallel, where that is above 0. No plan has fewer
// slots. Names that come again do not count; the order is that of the names given, and the same names give the same
// slots.
//
//   - Star is the first server with every client, one in each slot;
//   - Ring is every node, of clients and servers, as client of the next, the last of the first;
//   - AllPairs is every node with every other, as client as often as server, or once more or less.
//
// It is empty when there are no two nodes to measure.
func Pairs(topology v1alpha1.Topology, clients, servers []string, maxParallel int) [][]v1alpha1.Pair {
	clients, servers = distinct(clients), distinct(servers)
	switch topology {
	case v1alpha1.TopologyStar:
		return star(clients, servers)
	case v1alpha1.TopologyRing:
		return pack(ring(distinct(slices.Concat(clients, servers))), maxParallel)
	default:
		return pack(allPairs(distinct(slices.Concat(clients, servers))), maxParallel)
	}
}

// Matrix returns the pairs of a matrix between nodes; server is the one of topology Star.
func Matrix(m v1alpha1.LatencyMatrixSpec, nodes []string, server string) [][]v1alpha1.Pair {
	var servers []string
	if server != "" {
		servers = []string{server}
	}
	return Pairs(m.Topology, nodes, servers, int(max(1, m.Parallelism)))
}

func star(clients, servers []string) [][]v1alpha1.Pair {
	if len(servers) == 0 {
		return nil
	}
	var slots [][]v1alpha1.Pair
	for _, client := range clients {
		if client != servers[0] {
			slots = append(slots, []v1alpha1.Pair{{ClientNode: client, ServerNode: servers[0]}})
		}
	}
	return slots
}

// ring takes two slots by turns. Around an odd ring the last pair meets both of them, and needs a third.
func ring(nodes []string) [][]v1alpha1.Pair {
	n := len(nodes)
	if n < 3 {
		return allPairs(nodes)
	}
	slots := make([][]v1alpha1.Pair, 2+n%2)
	for i, client := range nodes {
		slot := i % 2
		if n%2 == 1 && i == n-1 {
			slot = 2
		}
		slots[slot] = append(slots[slot], v1alpha1.Pair{ClientNode: client, ServerNode: nodes[(i+1)%n]})
	}
	return slots
}

// allPairs is a round-robin tournament by the circle method: one seat is fixed, the others turn by one from slot to
// slot, and who sits opposite each other is a pair. With an odd number of nodes the fixed seat is empty.
func allPairs(nodes []string) [][]v1alpha1.Pair {
	if len(nodes) < 2 {
		return nil
	}
	circle := len(nodes) - 1 + len(nodes)%2
	slots := make([][]v1alpha1.Pair, circle)
	for turn := range slots {
		if circle < len(nodes) {
			slots[turn] = append(slots[turn], match(nodes, turn, circle))
		}
		for i := 1; i <= circle/2; i++ {
			slots[turn] = append(slots[turn], match(nodes, (turn+i)%circle, (turn-i+circle)%circle))
		}
	}
	return slots
}

// match makes the first of two nodes the client if an odd number of steps is between them, and otherwise the second:
// so each is the client of every other node that follows it, and of every other one before it.
func match(nodes []string, i, j int) v1alpha1.Pair {
	first, second := min(i, j), max(i, j)
	if (second-first)%2 == 1 {
		return v1alpha1.Pair{ClientNode: nodes[first], ServerNode: nodes[second]}
	}
	return v1alpha1.Pair{ClientNode: nodes[second], ServerNode: nodes[first]}
}

// pack spreads the pairs over more slots until none has more than limit: as few slots as hold that many pairs, and
// no fewer than there were. It always succeeds, by a theorem of McDiarmid and de Werra: the edges of a graph that k
// colours are enough for can be given k colours, or more, each as often as any other, or once more or less.
func pack(slots [][]v1alpha1.Pair, limit int) [][]v1alpha1.Pair {
	if limit <= 0 {
		return slots
	}
	pairs := 0
	for _, slot := range slots {
		pairs += len(slot)
	}
	for len(slots)*limit < pairs {
		slots = append(slots, nil)
	}
	for from := range slots {
		// It ends before the slots do: were all others full too, there would be more pairs than were counted.
		for to := 0; len(slots[from]) > limit; to++ {
			switch surplus := len(slots[from]) - limit; {
			case len(slots[to]) >= limit:
			case len(slots[to]) == 0:
				take := min(surplus, limit)
				slots[to], slots[from] = slots[from][:take:take], slots[from][take:]
			default:
				slots[from], slots[to] = relieve(slots[from], slots[to], limit)
			}
		}
	}
	return slots
}

// relieve moves pairs from a slot with more than limit to one with fewer, until either has as many.
//
// A node is in at most one pair of each slot. So the pairs of both that share nodes form chains, in which the slots
// alternate, and a whole chain can change sides without a node meeting itself. One that begins and ends in the fuller
// slot takes one pair more there than it brings back, and there are at least as many of these as the difference.
func relieve(from, to []v1alpha1.Pair, limit int) (relieved, filled []v1alpha1.Pair) {
	pairs := slices.Concat(from, to)
	byNode := map[string][]int{}
	for i, p := range pairs {
		byNode[p.ClientNode] = append(byNode[p.ClientNode], i)
		byNode[p.ServerNode] = append(byNode[p.ServerNode], i)
	}
	moves := make([]bool, len(pairs))
	seen := make([]bool, len(pairs))
	left := min(len(from)-limit, limit-len(to))
	for i := range from {
		if left == 0 {
			break
		}
		if seen[i] {
			continue
		}
		seen[i] = true
		chain, surplus := []int{i}, 0
		for k := 0; k < len(chain); k++ { // it grows meanwhile
			if chain[k] < len(from) {
				surplus++
			} else {
				surplus--
			}
			p := pairs[chain[k]]
			for _, next := range slices.Concat(byNode[p.ClientNode], byNode[p.ServerNode]) {
				if !seen[next] {
					seen[next] = true
					chain = append(chain, next)
				}
			}
		}
		if surplus == 1 {
			left--
			for _, k := range chain {
				moves[k] = true
			}
		}
	}
	for i, p := range pairs {
		if (i < len(from)) != moves[i] {
			relieved = append(relieved, p)
		} else {
			filled = append(filled, p)
		}
	}
	return relieved, filled
}

// distinct returns the names without those that come again, in their order.
func distinct(names []string) []string {
	var once []string
	seen := map[string]bool{}
	for _, name := range names {
		if !seen[name] {
			seen[name] = true
			once = append(once, name)
		}
	}
	return once
}

// Parallel is how many pairs are measured at once: what parallelism asks for, as far as that many nodes make disjoint
// pairs.
func Parallel(m v1alpha1.LatencyMatrixSpec, nodes int) int {
	most := nodes / 2
	if m.Topology == v1alpha1.TopologyStar {
		most = 1
	}
	return min(max(1, int(m.Parallelism)), most)
}
