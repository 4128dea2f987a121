package plan

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// names returns the names of n nodes.
func names(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("node-%03d", i)
	}
	return all
}

// text writes slots as "client>server" with spaces between pairs.
func text(slots [][]v1alpha1.Pair) []string {
	var lines []string
	for _, slot := range slots {
		line := ""
		for i, p := range slot {
			if i > 0 {
				line += " "
			}
			line += p.ClientNode + ">" + p.ServerNode
		}
		lines = append(lines, line)
	}
	return lines
}

func TestMatrix(t *testing.T) {
	cases := map[string]struct {
		topology    v1alpha1.Topology
		nodes       []string
		server      string
		parallelism int32
		want        []string
	}{
		"a star": {v1alpha1.TopologyStar, []string{"b", "a", "c"}, "s", 9, []string{"b>s", "a>s", "c>s"}},
		"a star whose server is among the clients": {v1alpha1.TopologyStar, []string{"a", "s", "b"}, "s", 9, []string{"a>s", "b>s"}},
		"a star of the server alone":               {v1alpha1.TopologyStar, []string{"s"}, "s", 9, nil},
		"a star without a server":                  {v1alpha1.TopologyStar, []string{"a"}, "", 9, nil},

		"a ring without nodes":      {v1alpha1.TopologyRing, nil, "", 9, nil},
		"a ring of one":             {v1alpha1.TopologyRing, []string{"a"}, "", 9, nil},
		"a ring of two is one pair": {v1alpha1.TopologyRing, []string{"a", "b"}, "", 9, []string{"a>b"}},
		"a ring of three":           {v1alpha1.TopologyRing, []string{"a", "b", "c"}, "", 9, []string{"a>b", "c>a", "b>c"}},
		"a ring of four":            {v1alpha1.TopologyRing, []string{"a", "b", "c", "d"}, "", 9, []string{"a>b c>d", "b>c d>a"}},
		"a ring of five":            {v1alpha1.TopologyRing, []string{"a", "b", "c", "d", "e"}, "", 9, []string{"a>b c>d", "e>a b>c", "d>e"}},

		"all pairs of one":  {v1alpha1.TopologyAllPairs, []string{"a"}, "", 9, nil},
		"all pairs of two":  {v1alpha1.TopologyAllPairs, []string{"a", "b"}, "", 9, []string{"a>b"}},
		"all pairs of four": {v1alpha1.TopologyAllPairs, []string{"a", "b", "c", "d"}, "", 9, []string{"a>d b>c", "d>b c>a", "c>d a>b"}},
		"all pairs of four, one at a time": {
			v1alpha1.TopologyAllPairs, []string{"a", "b", "c", "d"}, "", 1, []string{"a>d", "b>c", "d>b", "c>a", "c>d", "a>b"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			m := v1alpha1.LatencyMatrixSpec{Topology: c.topology, Parallelism: c.parallelism}
			if diff := cmp.Diff(c.want, text(Matrix(m, c.nodes, c.server))); diff != "" {
				t.Errorf("slots (-want +got):\n%s", diff)
			}
		})
	}
}

// Checks rings and all pairs of every size, with every parallelism, against the required properties.
func TestMatrixOfEverySize(t *testing.T) {
	sizes := []int{99, 100}
	for n := 2; n <= 61; n++ {
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		nodes := names(n)
		next, every := map[[2]string]bool{}, map[[2]string]bool{}
		for i, a := range nodes {
			next[unordered(a, nodes[(i+1)%n])] = true
			for _, b := range nodes[:i] {
				every[unordered(a, b)] = true
			}
		}
		fewest := map[v1alpha1.Topology]int{
			// With an odd number of nodes, one node is idle in each slot.
			v1alpha1.TopologyAllPairs: n - 1 + n%2,
			v1alpha1.TopologyRing:     2 + n%2,
		}
		if n == 2 {
			fewest[v1alpha1.TopologyRing] = 1
		}
		for limit := range n/2 + 2 {
			t.Run(fmt.Sprintf("AllPairs of %d, at most %d", n, limit), func(t *testing.T) {
				checkSlots(t, v1alpha1.TopologyAllPairs, nodes, limit, every, fewest[v1alpha1.TopologyAllPairs])
			})
			t.Run(fmt.Sprintf("Ring of %d, at most %d", n, limit), func(t *testing.T) {
				checkSlots(t, v1alpha1.TopologyRing, nodes, limit, next, fewest[v1alpha1.TopologyRing])
			})
		}
	}
}

// checkSlots compares slots with the required pairs and with the fewest slots that these pairs need without a limit.
func checkSlots(t *testing.T, topology v1alpha1.Topology, nodes []string, limit int, want map[[2]string]bool, fewest int) {
	t.Helper()
	given := slices.Clone(nodes)
	m := v1alpha1.LatencyMatrixSpec{Topology: topology, Parallelism: int32(limit)}
	slots := Matrix(m, nodes, "")
	if !slices.Equal(given, nodes) {
		t.Error("the names given were changed")
	}
	if !slices.EqualFunc(slots, Matrix(m, nodes, ""), slices.Equal) {
		t.Error("not the same again")
	}

	limit = max(1, limit)
	got, asClient, asServer := map[[2]string]bool{}, map[string]int{}, map[string]int{}
	for i, slot := range slots {
		busy := map[string]bool{}
		for _, p := range slot {
			if busy[p.ClientNode] || busy[p.ServerNode] || p.ClientNode == p.ServerNode {
				t.Fatalf("slot %d: %v meets a node that is in it already", i, p)
			}
			busy[p.ClientNode], busy[p.ServerNode] = true, true
			if pair := unordered(p.ClientNode, p.ServerNode); got[pair] {
				t.Fatalf("slot %d: %v comes again", i, p)
			} else {
				got[pair] = true
			}
			asClient[p.ClientNode]++
			asServer[p.ServerNode]++
		}
		if len(slot) > limit {
			t.Errorf("slot %d has %d pairs, more than %d", i, len(slot), limit)
		}
	}
	if !maps.Equal(want, got) {
		t.Errorf("pairs (-want +got):\n%s", cmp.Diff(want, got))
	}
	for _, node := range nodes {
		if d := asClient[node] - asServer[node]; d < -1 || d > 1 {
			t.Errorf("%s is client %d times, and server %d times", node, asClient[node], asServer[node])
		}
	}
	fewest = max(fewest, (len(want)+limit-1)/limit)
	if len(slots) != fewest {
		t.Errorf("%d slots, want %d", len(slots), fewest)
	}
}

func unordered(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

func TestAllPairsOfAHundred(t *testing.T) {
	for limit, want := range map[int32]int{100: 99, 50: 99, 49: 102, 30: 165, 1: 4950} {
		slots := Matrix(v1alpha1.LatencyMatrixSpec{Topology: v1alpha1.TopologyAllPairs, Parallelism: limit}, names(100), "")
		if len(slots) != want {
			t.Errorf("at most %d: %d slots, want %d", limit, len(slots), want)
		}
		for i, slot := range slots {
			if want == 99 && len(slot) != 50 {
				t.Errorf("at most %d: %d pairs in slot %d, want 50", limit, len(slot), i)
			}
		}
	}
}

func BenchmarkMatrix(b *testing.B) {
	for _, limit := range []int32{50, 1, 30} {
		b.Run(fmt.Sprintf("all of 100, at most %d", limit), func(b *testing.B) {
			nodes := names(100)
			for b.Loop() {
				Matrix(v1alpha1.LatencyMatrixSpec{Topology: v1alpha1.TopologyAllPairs, Parallelism: limit}, nodes, "")
			}
		})
	}
}
