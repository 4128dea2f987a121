package plan

import (
	"slices"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Matrix returns the pairs in the fewest slots: each has a node at most once, and its pairs are
// measured at once, at most as many as the parallelism. Names must be distinct. The same names
// always give the same slots, in order; without two nodes, none. Each node is the client of Star's
// server, of the next node in a Ring, or in AllPairs as often as the server, give or take one.
func Matrix(m v1alpha1.LatencyMatrixSpec, nodes []string, server string) [][]v1alpha1.Pair {
	var pairs []v1alpha1.Pair
	switch m.Topology {
	case v1alpha1.TopologyStar:
		pairs = star(nodes, server)
	case v1alpha1.TopologyRing:
		pairs = ring(nodes)
	case v1alpha1.TopologyAllPairs, "":
		pairs = allPairs(nodes)
	}
	// The orders of ring and allPairs make each chunk disjoint: two pairs with a common node are
	// further apart than a chunk, which, with as many pairs as the nodes allow, is a whole turn.
	return slices.Collect(slices.Chunk(pairs, max(1, Parallel(m, len(nodes)))))
}

func star(clients []string, server string) []v1alpha1.Pair {
	var pairs []v1alpha1.Pair
	for _, client := range clients {
		if server != "" && client != server {
			pairs = append(pairs, v1alpha1.Pair{ClientNode: client, ServerNode: server})
		}
	}
	return pairs
}

func ring(nodes []string) []v1alpha1.Pair {
	n := len(nodes)
	if n < 3 {
		return allPairs(nodes)
	}
	var pairs []v1alpha1.Pair
	for first := range 2 {
		for i := first; i < n; i += 2 {
			pairs = append(pairs, v1alpha1.Pair{ClientNode: nodes[i], ServerNode: nodes[(i+1)%n]})
		}
	}
	return pairs
}

// allPairs is a round-robin tournament by the circle method: one seat is fixed, the others rotate,
// and opposite seats form a pair. With an odd number of nodes, the fixed seat is empty.
func allPairs(nodes []string) []v1alpha1.Pair {
	if len(nodes) < 2 {
		return nil
	}
	var pairs []v1alpha1.Pair
	circle := len(nodes) - 1 + len(nodes)%2
	for turn := range circle {
		if circle < len(nodes) {
			pairs = append(pairs, match(nodes, turn, circle))
		}
		for i := 1; i <= circle/2; i++ {
			pairs = append(pairs, match(nodes, (turn+i)%circle, (turn-i+circle)%circle))
		}
	}
	return pairs
}

// match makes the first the client if their distance is odd: a node is that of every second one.
func match(nodes []string, i, j int) v1alpha1.Pair {
	first, second := min(i, j), max(i, j)
	if (second-first)%2 == 1 {
		return v1alpha1.Pair{ClientNode: nodes[first], ServerNode: nodes[second]}
	}
	return v1alpha1.Pair{ClientNode: nodes[second], ServerNode: nodes[first]}
}

// Parallel returns how many pairs are measured at once: parallelism, or all that are disjoint.
func Parallel(m v1alpha1.LatencyMatrixSpec, nodes int) int {
	most := nodes / 2
	if m.Topology == v1alpha1.TopologyStar {
		most = 1
	}
	return min(max(1, int(m.Parallelism)), most)
}
