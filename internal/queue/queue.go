// Package queue decides which benchmark may start a run now. It is pure: its input is all
// unfinished, accepted benchmarks in the API, and all callers get one answer, without a clock.
//
// Two runs on one node share memory bandwidth, caches, the PCIe root and often the NIC. A
// benchmark waits only for those that precede it on its own two nodes, in this order:
//
//  1. the benchmark that holds a claim: a claimed node is never shared;
//  2. the benchmark that has started, so that the rounds of two benchmarks never interleave;
//  3. the benchmark with the higher effective priority: spec.priority, plus one for each minute of
//     its age. If they are equal, the older one goes first, then the first by name.
//
// No benchmark waits forever: a later one overtakes only with a higher spec.priority, and within as
// many minutes as that is higher. One that is first for one node blocks both: two nodes may never
// be free together.
package queue

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// Entry is an unfinished, accepted benchmark.
type Entry struct {
	Name     string // namespace/name; UID distinguishes an earlier one
	UID      string
	Created  time.Time
	Priority int32
	Pair     v1alpha1.Pair // the nodes that its runs need
	Started  bool          // from its first claim until it is finished
	Active   bool          // while it holds the claim on its nodes
}

func EntryOf(b *v1alpha1.LatencyBenchmark) Entry {
	e := Entry{
		Name: b.Namespace + "/" + b.Name, UID: string(b.UID), Created: b.CreationTimestamp.Time, Priority: b.Spec.Priority,
		Started: b.Status.StartTime != nil, Active: b.Status.Active != nil,
	}
	if b.Status.Pair != nil {
		e.Pair = *b.Status.Pair
	}
	return e
}

// Competes reports whether a benchmark has or awaits nodes; a suspended or rejected one does not.
func Competes(b *v1alpha1.LatencyBenchmark) bool {
	if !b.DeletionTimestamp.IsZero() || b.Finished() || b.Status.Pair == nil || b.Suspended() {
		return false
	}
	return b.Status.Active != nil || !meta.IsStatusConditionFalse(b.Status.Conditions, v1alpha1.ConditionAccepted)
}

// Admit reports whether the candidate may claim its nodes, or keep its claim, given all entries. If
// not, blocker names what goes first on each node, without numbers, which would change all the time.
func Admit(candidate Entry, all []Entry) (ok bool, blocker string) {
	client, server := candidate.Pair.ClientNode, candidate.Pair.ServerNode
	var onClient, onServer *Entry // the entries that go first on these nodes
	for i := range all {
		other := &all[i]
		wantsClient, wantsServer := other.wants(client), other.wants(server)
		if !wantsClient && !wantsServer || other.UID == candidate.UID {
			continue
		}
		// If two entries claim one node, neither claim is valid, whichever entry is first.
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

func (e *Entry) before(other *Entry) bool {
	if e.Active != other.Active {
		return e.Active
	}
	if e.Started != other.Started {
		return e.Started
	}
	return cmp.Or(e.turn().Compare(other.turn()), e.Created.Compare(other.Created), cmp.Compare(e.Name, other.Name)) < 0
}

// turn orders entries without a clock: a priority of p equals a creation p minutes earlier.
func (e *Entry) turn() time.Time { return e.Created.Add(-time.Duration(e.Priority) * time.Minute) }

// on describes what an entry does with a node. It does not tell a claim from the pause between two:
// the message would change with every run in the status of every waiting benchmark.
func (e *Entry) on(node string) string {
	if e.Active || e.Started {
		return e.Name + " is measuring on node " + node
	}
	return e.Name + " precedes it on node " + node
}

// Soonest returns the shorter of two waits; 0 means no wait.
func Soonest(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// CompareAge orders objects by creation, the oldest first, within a second by namespace and name.
func CompareAge(a, b metav1.Object) int {
	return cmp.Or(a.GetCreationTimestamp().Compare(b.GetCreationTimestamp().Time),
		cmp.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName()))
}
