// Package queue decides which benchmark may start a run now. It is pure: the entries are all benchmarks, as
// the API has them, and the answer is the same for each caller at any time: it needs no clock.
//
// The conflict key is the node, deliberately coarse: two runs on one node share memory bandwidth, the last
// level cache, the PCIe root and often the NIC, and no finer key would know which of these matters. A benchmark
// waits for those that want one of its own two nodes and go before it, and for no other. These go first:
//
//  1. who holds a claim: a node that is claimed is never shared;
//  2. who has started: it keeps its place between its runs, so that the rounds of two benchmarks never interleave;
//  3. who has the higher effective priority: spec.priority, plus one for each minute since its creation. Of equal
//     ones the older goes first, then the first by name.
//
// No benchmark waits forever: all that wait gain at the same pace, so one that is created later overtakes only by a higher
// spec.priority, and only if it is created within as many minutes as that is higher.
//
// One that is first for one of its nodes and waits for the other keeps both from those behind it: without that, it
// could wait forever for two nodes that are never free at the same moment.
//
// What the queue does not do: it does not know of load that is not a benchmark's.
package queue

import (
	"time"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Entry is one unfinished, accepted benchmark.
type Entry struct {
	// Name is namespace/name, and UID distinguishes a benchmark from an earlier one of that name.
	Name string
	UID  string
	// Created is its creation time.
	Created time.Time
	// Priority is spec.priority.
	Priority int32
	// Pair is the nodes that its runs need.
	Pair v1alpha1.Pair
	// Started is true since its first claim, until it is finished.
	Started bool
	// Active is true while it holds the claim on its nodes.
	Active bool
}

// Admit says whether the candidate may claim its nodes, or keep its claim if it is active, given all entries, in any
// order (its own may be among them). If not, blocker names who goes first on each node that it has to wait for:
// "default/a is measuring on node x". It does not say how many go first: a number that changes whenever any of them
// finishes would be written as often to everybody that waits. The time that it takes grows with the number of entries; nothing is sorted or kept.
func Admit(candidate Entry, all []Entry) (ok bool, blocker string) {
	client, server := candidate.Pair.ClientNode, candidate.Pair.ServerNode
	var onClient, onServer *Entry // who goes first there
	for i := range all {
		other := &all[i]
		wantsClient, wantsServer := other.wants(client), other.wants(server)
		if !wantsClient && !wantsServer || other.UID == candidate.UID {
			continue
		}
		// Of two claims on one node neither is right, whichever is first.
		if !other.Active && !other.before(&candidate) {
			continue
		}
		if wantsClient && (onClient == nil || other.before(onClient)) {
			onClient = other
		}
		if wantsServer && (onServer == nil || other.before(onServer)) {
			onServer = other
		}
	}
	switch {
	case onClient == nil && onServer == nil:
		return true, ""
	case onServer == nil:
		blocker = onClient.on(client)
	case onClient == nil:
		blocker = onServer.on(server)
	case onClient == onServer:
		blocker = onClient.on(client) + " and node " + server
	default:
		blocker = onClient.on(client) + ", " + onServer.on(server)
	}
	return false, blocker
}

func (e *Entry) wants(node string) bool {
	return node != "" && (node == e.Pair.ClientNode || node == e.Pair.ServerNode)
}

// before is the order of the package's comment.
func (e *Entry) before(other *Entry) bool {
	if e.Active != other.Active {
		return e.Active
	}
	if e.Started != other.Started {
		return e.Started
	}
	if order := e.turn().Compare(other.turn()); order != 0 {
		return order < 0
	}
	if order := e.Created.Compare(other.Created); order != 0 {
		return order < 0
	}
	return e.Name < other.Name
}

// turn orders by effective priority, the earliest first, without knowing the time: as all that wait gain one a minute,
// it comes to the same that one of priority p counts as created p minutes before it was.
func (e *Entry) turn() time.Time { return e.Created.Add(-time.Duration(e.Priority) * time.Minute) }

// on says what an entry does with a node. It does not tell a claim from the pause between two: a message that changed
// with every run would be written as often to everybody that waits.
func (e *Entry) on(node string) string {
	if e.Active || e.Started {
		return e.Name + " is measuring on node " + node
	}
	return e.Name + " precedes it on node " + node
}
