// Package queue decides which benchmark may start a run now. It is pure: the entries are all benchmarks, as
// the API has them, and the answer is the same whoever asks.
//
// The conflict key is the node, deliberately coarse: two runs on one node share memory bandwidth, the last
// level cache, the PCIe root and often the NIC, and no finer key would know which of these matters. First
// come first served, by creation time: a benchmark waits for every older one that wants one of its nodes,
// until that is finished, so that the rounds of two benchmarks never interleave.
//
// What the queue does not do: it does not know of load that is not a benchmark's.
package queue

import (
	"fmt"
	"sort"
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Entry is one unfinished, accepted benchmark.
type Entry struct {
	// Name is namespace/name, and UID distinguishes a benchmark from an earlier one of that name.
	Name string
	UID  string
	// Created is its creation time; ties are broken by name.
	Created time.Time
	// Pair is the nodes that its runs need.
	Pair v1alpha1.Pair
	// Active is true while it holds the claim on its nodes.
	Active bool
}

// Admit says whether the candidate may claim its nodes, given all entries (its own may be among them). If
// not, blocker names the benchmark and the node it waits for.
func Admit(candidate Entry, all []Entry) (ok bool, blocker string) {
	others := make([]Entry, 0, len(all))
	for _, e := range all {
		if e.UID != candidate.UID {
			others = append(others, e)
		}
	}
	sort.Slice(others, func(i, j int) bool { return before(others[i], others[j]) })
	for _, e := range others {
		if node := shared(e.Pair, candidate.Pair); e.Active && node != "" {
			return false, fmt.Sprintf("%s is measuring on node %s", e.Name, node)
		}
	}
	for _, e := range others {
		if node := shared(e.Pair, candidate.Pair); before(e, candidate) && node != "" {
			return false, fmt.Sprintf("%s came first and needs node %s", e.Name, node)
		}
	}
	return true, ""
}

func before(a, b Entry) bool {
	if !a.Created.Equal(b.Created) {
		return a.Created.Before(b.Created)
	}
	return a.Name < b.Name
}

// shared returns a node that both pairs need, or "".
func shared(a, b v1alpha1.Pair) string {
	for _, x := range []string{a.ClientNode, a.ServerNode} {
		if x != "" && (x == b.ClientNode || x == b.ServerNode) {
			return x
		}
	}
	return ""
}
