package plan

import (
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Matrix returns the pairs of nodes to measure, in slots that are measured one after the other. No node occurs twice in a slot,
// so the pairs of a slot may be measured at the same time. A slot has at most as many pairs as the parallelism. The number of
// slots is minimal. No name may occur twice. Slots follow the order of the given names, and the same names always give the same
// slots.
//
//   - Star pairs the server with every other node as its client, one in each slot;
//   - Ring makes every node the client of the next node, and the last node the client of the first;
//   - AllPairs pairs every node with every other, as client as often as server, give or take one.
//
// The result is empty if there are no two nodes to measure.
func Matrix(m v1alpha1.LatencyMatrixSpec, nodes []string, server string) [][]v1alpha1.Pair {
	limit := int(max(1, m.Parallelism))
	switch m.Topology {
	case v1alpha1.TopologyStar:
		return star(nodes, server)
	case v1alpha1.TopologyRing:
		return pack(ring(nodes), limit)
	default:
		return pack(allPairs(nodes), limit)
	}
}

func star(clients []string, server string) [][]v1alpha1.Pair {
	var slots [][]v1alpha1.Pair
	for _, client := range clients {
		if server != "" && client != server {
			slots = append(slots, []v1alpha1.Pair{{ClientNode: client, ServerNode: server}})
		}
	}
	return slots
}

// ring alternates between two slots. In an odd ring the last pair shares nodes with pairs of both slots and needs a third slot.
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

// allPairs is a round-robin tournament by the circle method: one seat is fixed, the others rotate by one from slot to slot, and
// the nodes in opposite seats form a pair. With an odd number of nodes, the fixed seat is empty.
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

// match makes the first of two nodes the client if their distance is odd, and otherwise the second. Each node is thus the
// client of every second node that follows it, and of every second node before it.
func match(nodes []string, i, j int) v1alpha1.Pair {
	first, second := min(i, j), max(i, j)
	if (second-first)%2 == 1 {
		return v1alpha1.Pair{ClientNode: nodes[first], ServerNode: nodes[second]}
	}
	return v1alpha1.Pair{ClientNode: nodes[second], ServerNode: nodes[first]}
}

// pack spreads the pairs over more slots until none has more than limit: the fewest slots that hold that many pairs, but no
// fewer than before. It always succeeds, by a theorem of McDiarmid and de Werra: if k colours are enough for the edges of a
// graph, then k or more colours can be assigned so that their frequencies differ by at most one.
func pack(slots [][]v1alpha1.Pair, limit int) [][]v1alpha1.Pair {
	pairs := 0
	for _, slot := range slots {
		pairs += len(slot)
	}
	for len(slots)*limit < pairs {
		slots = append(slots, nil)
	}
	for from := range slots {
		// This loop ends before the slots run out: if all other slots were full too, there would be more pairs than were
		// counted.
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

// relieve moves pairs from a slot with more than limit pairs to a slot with fewer, until one of them has limit pairs.
//
// A node is in at most one pair of each slot. The pairs of both slots that share nodes therefore form chains in which the slots
// alternate, and a whole chain can change slots without pairing a node twice in one slot. A chain that begins and ends in the
// fuller slot moves one pair more than it brings back, and there are at least as many of these chains as the difference.
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
		for k := 0; k < len(chain); k++ { // the loop extends chain
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

// Parallel returns the number of pairs that are measured at once: parallelism, limited by the number of disjoint pairs of
// nodes.
func Parallel(m v1alpha1.LatencyMatrixSpec, nodes int) int {
	most := nodes / 2
	if m.Topology == v1alpha1.TopologyStar {
		most = 1
	}
	return min(max(1, int(m.Parallelism)), most)
}
