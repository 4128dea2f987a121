package plan

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// names are those of n nodes.
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

func TestPairs(t *testing.T) {
	cases := map[string]struct {
		topology         v1alpha1.Topology
		clients, servers []string
		maxParallel      int
		want             []string
	}{
		"a star": {topology: v1alpha1.TopologyStar, clients: []string{"b", "a", "c"}, servers: []string{"s"}, maxParallel: 9, want: []string{"b>s", "a>s", "c>s"}},
		"a star whose server is among the clients": {
			topology: v1alpha1.TopologyStar, clients: []string{"a", "s", "b", "a"}, servers: []string{"s", "t"}, want: []string{"a>s", "b>s"},
		},
		"a star of the server alone": {topology: v1alpha1.TopologyStar, clients: []string{"s"}, servers: []string{"s"}},
		"a star without a server":    {topology: v1alpha1.TopologyStar, clients: []string{"a"}},

		"a ring without nodes":          {topology: v1alpha1.TopologyRing},
		"a ring of one":                 {topology: v1alpha1.TopologyRing, clients: []string{"a", "a"}},
		"a ring of two is one pair":     {topology: v1alpha1.TopologyRing, clients: []string{"a", "b"}, want: []string{"a>b"}},
		"a ring of three":               {topology: v1alpha1.TopologyRing, clients: []string{"a", "b", "c"}, want: []string{"a>b", "b>c", "c>a"}},
		"a ring of four":                {topology: v1alpha1.TopologyRing, clients: []string{"a", "b", "c", "d"}, want: []string{"a>b c>d", "b>c d>a"}},
		"a ring of clients and servers": {topology: v1alpha1.TopologyRing, clients: []string{"a", "b"}, servers: []string{"b", "c", "d"}, want: []string{"a>b c>d", "b>c d>a"}},
		"a ring of five":                {topology: v1alpha1.TopologyRing, clients: []string{"a", "b", "c", "d", "e"}, want: []string{"a>b c>d", "b>c d>e", "e>a"}},

		"all pairs of one":  {topology: v1alpha1.TopologyAllPairs, clients: []string{"a"}, servers: []string{"a"}},
		"all pairs of two":  {topology: v1alpha1.TopologyAllPairs, clients: []string{"a", "b", "a", "b"}, want: []string{"a>b"}},
		"all pairs of four": {topology: v1alpha1.TopologyAllPairs, clients: []string{"a", "b", "c", "d"}, want: []string{"a>d b>c", "d>b c>a", "c>d a>b"}},
		"all pairs of four, one at a time": {
			topology: v1alpha1.TopologyAllPairs, clients: []string{"a", "b", "c", "d"}, maxParallel: 1, want: []string{"b>c", "c>a", "a>b", "a>d", "d>b", "c>d"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, text(Pairs(c.topology, c.clients, c.servers, c.maxParallel))); diff != "" {
				t.Errorf("slots (-want +got):\n%s", diff)
			}
		})
	}
}

// Rings and all pairs of every size, under every limit, are held against what makes them right.
func TestPairsOfEverySize(t *testing.T) {
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
			// Of an odd number of nodes one is idle in each slot.
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

// checkSlots holds slots against the pairs that they must have and the fewest slots that these take without a limit.
func checkSlots(t *testing.T, topology v1alpha1.Topology, nodes []string, limit int, want map[[2]string]bool, fewest int) {
	t.Helper()
	given := slices.Clone(nodes)
	slots := Pairs(topology, nodes, nil, limit)
	if !slices.Equal(given, nodes) {
		t.Error("the names given were changed")
	}
	if !slices.EqualFunc(slots, Pairs(topology, nodes, nil, limit), slices.Equal) {
		t.Error("not the same again")
	}

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
		if limit > 0 && len(slot) > limit {
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
	if limit > 0 {
		fewest = max(fewest, (len(want)+limit-1)/limit)
	}
	if len(slots) != fewest {
		t.Errorf("%d slots, want %d", len(slots), fewest)
	}
}

func unordered(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

func TestAllPairsOfAHundred(t *testing.T) {
	for limit, want := range map[int]int{0: 99, 50: 99, 49: 102, 30: 165, 1: 4950} {
		slots := Pairs(v1alpha1.TopologyAllPairs, names(100), nil, limit)
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

func BenchmarkPairs(b *testing.B) {
	for _, limit := range []int{0, 1, 30} {
		b.Run(fmt.Sprintf("all of 100, at most %d", limit), func(b *testing.B) {
			nodes := names(100)
			for b.Loop() {
				Pairs(v1alpha1.TopologyAllPairs, nodes, nil, limit)
			}
		})
	}
}
