package gate

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/preflight"
)

// lineup holds the input of the choice of the gate's next benchmarks.
type lineup struct {
	now  time.Time
	gate *v1alpha1.LatencyGate
	// verifications are the gate's verifications, in any order.
	verifications []*v1alpha1.LatencyVerification
	// nodes are the nodes of the cluster by name.
	nodes map[string]*corev1.Node
	// standing is the state of every node that belongs to any gate.
	standing map[string]v1alpha1.VerificationState
	// busy are the nodes that any gate measures now, and their peers.
	busy map[string]bool
	// measuring is the number of the gate's nodes that are being measured.
	measuring int
	// pods are the pod settings of the template, with a toleration of the gate's own taint.
	pods *v1alpha1.PodSettings
	// fired is when the schedule was last due; zero if it never was.
	fired time.Time
}

// start is a node to be measured, with its peer.
type start struct {
	verification *v1alpha1.LatencyVerification
	peer         string
	peerVerified bool
}

// standings returns the states of nodes. A node that has several verifications, while it passes from one gate to another, is
// verified only if all of them are in state Verified.
func standings(all []v1alpha1.LatencyVerification) map[string]v1alpha1.VerificationState {
	standing := map[string]v1alpha1.VerificationState{}
	for i := range all {
		v := &all[i]
		if known, ok := standing[v.Spec.NodeName]; !ok || known == v1alpha1.VerificationVerified {
			standing[v.Spec.NodeName] = v.Status.State
		}
	}
	return standing
}

// choice is the result of a lineup.
type choice struct {
	// starts are the benchmarks to create now.
	starts []start
	// due are the nodes that are due by the schedule: they become unverified now.
	due []*v1alpha1.LatencyVerification
	// waiting is the reason why an unverified node is not measured yet, by the name of the node.
	waiting map[string]string
	// again is the time until a node that rests may be measured; zero if no node rests.
	again time.Duration
}

// choose gives the free slots to the nodes that have waited longest, each with a peer. Nodes that are due by the schedule get only
// the slots that no other node waits for. It is deterministic, and its only side effect is to add the chosen nodes to l.busy.
func choose(l lineup) choice {
	c := choice{waiting: map[string]string{}}
	free := int(l.gate.Spec.MaxParallel) - l.measuring
	peers := l.peers()
	var queue []*v1alpha1.LatencyVerification
	for _, v := range l.verifications {
		if v.Status.State == v1alpha1.VerificationUnverified {
			queue = append(queue, v)
		}
	}
	slices.SortFunc(queue, inOrder)
	turning, asked := 0, identity.KeysOf(l.gate)
	for _, v := range queue {
		if reason := l.unfit(v, asked); reason != "" {
			c.waiting[v.Spec.NodeName] = reason
			// It already has a slot, and must only be held back before it is measured.
			if v.Status.Verified().Reason == v1alpha1.ReasonScheduleDue {
				turning++
			}
			continue
		}
		rest := resting(v.Status.Setback, l.now)
		switch {
		case l.gate.Spec.Suspend:
			c.waiting[v.Spec.NodeName] = "the gate is suspended"
			continue
		case rest > 0:
			c.waiting[v.Spec.NodeName] = fmt.Sprintf("the next try is at %s: %s: %s", v.Status.Setback.RetryTime.UTC().Format(time.TimeOnly), v.Status.Setback.Reason, v.Status.Setback.Message)
			c.again = controllers.Soonest(c.again, rest)
			continue
		case len(c.starts) >= free || l.busy[v.Spec.NodeName]:
			c.waiting[v.Spec.NodeName] = "others are measured first"
			continue
		}
		peer, verified, ok := peers.of(v)
		if !ok {
			c.waiting[v.Spec.NodeName] = "there is no other node to measure it with that is ready, free and not failed"
			continue
		}
		c.starts = append(c.starts, start{v, peer, verified})
		l.busy[v.Spec.NodeName], l.busy[peer] = true, true
	}
	if left := free - len(c.starts) - turning; left > 0 && !l.gate.Spec.Suspend && peers.any() {
		c.due = l.due(left)
	}
	return c
}

// inOrder orders verifications by how long they have waited, the longest first.
func inOrder(a, b *v1alpha1.LatencyVerification) int {
	if a.Status.LastTransitionTime != nil && b.Status.LastTransitionTime != nil {
		if order := a.Status.LastTransitionTime.Compare(b.Status.LastTransitionTime.Time); order != 0 {
			return order
		}
	}
	return cmp.Compare(a.Spec.NodeName, b.Spec.NodeName)
}

// unfit returns why an unverified node cannot be measured, independent of other nodes; empty if it can.
func (l lineup) unfit(v *v1alpha1.LatencyVerification, asked identity.Keys) string {
	node := l.nodes[v.Spec.NodeName]
	switch {
	case node == nil || string(node.UID) != v.Status.NodeUID || len(identity.Changes(v.Status.Identity, asked.Of(node))) > 0:
		return "the node has just changed"
	case !published(node, publicationOf(l.gate, v)):
		return "it is being marked as not verified"
	}
	return l.unusable(node, v1alpha1.RoleClient)
}

// unusable returns why the benchmark's pod with a role could not run on a node; empty if it could.
func (l lineup) unusable(node *corev1.Node, role string) string {
	switch {
	case !preflight.NodeReady(*node):
		return "the node is not ready"
	case !node.DeletionTimestamp.IsZero():
		return "the node is being deleted"
	}
	own := l.gate.Spec.Template.Spec.Placement.Of(role).Tolerations
	if why := preflight.Untolerated(node, slices.Concat(l.pods.Tolerations, own)); why != "" {
		return "the node is " + why + "; change that, or tolerate it in spec.template.spec.pods.tolerations"
	}
	return ""
}

// due returns at most most nodes that were last measured before the schedule was last due, the longest ago first.
func (l lineup) due(most int) []*v1alpha1.LatencyVerification {
	if l.fired.IsZero() {
		return nil
	}
	var all []*v1alpha1.LatencyVerification
	for _, v := range l.verifications {
		switch v.Status.State {
		case v1alpha1.VerificationVerified, v1alpha1.VerificationFailed, v1alpha1.VerificationInconclusive:
		default:
			continue
		}
		node := l.nodes[v.Spec.NodeName]
		if last := lastMeasured(v); node == nil || l.unusable(node, v1alpha1.RoleClient) != "" || !last.Before(l.fired) && !last.After(l.now.Add(maxSkew)) {
			continue
		}
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b *v1alpha1.LatencyVerification) int {
		if order := lastMeasured(a).Compare(lastMeasured(b)); order != 0 {
			return order
		}
		return cmp.Compare(a.Spec.NodeName, b.Spec.NodeName)
	})
	return all[:min(most, len(all))]
}

// lastMeasured returns the time from which the schedule counts.
func lastMeasured(v *v1alpha1.LatencyVerification) time.Time {
	switch {
	case v.Status.LastMeasurementTime != nil:
		return v.Status.LastMeasurementTime.Time
	case v.Status.LastTransitionTime != nil:
		return v.Status.LastTransitionTime.Time
	}
	return time.Time{}
}

// peers holds the nodes with which others can be measured, each list in the order of names.
type peers struct {
	verified, others []string
	busy             map[string]bool
}

// peers returns the nodes that the template selects, that can run its pod, and that have not failed.
func (l lineup) peers() peers {
	p := peers{busy: l.busy}
	own := map[string]bool{}
	for _, v := range l.verifications {
		own[v.Spec.NodeName] = true
	}
	isPeer := peerMatcher(l.gate)
	for name, node := range l.nodes {
		if !isPeer(node, own[name]) || l.standing[name] == v1alpha1.VerificationFailed || l.unusable(node, v1alpha1.RoleServer) != "" {
			continue
		}
		if l.standing[name] == v1alpha1.VerificationVerified {
			p.verified = append(p.verified, name)
		} else {
			p.others = append(p.others, name)
		}
	}
	slices.Sort(p.verified)
	slices.Sort(p.others)
	return p
}

// peerMatcher returns a function that reports whether a gate's template selects a node as a peer. own is true if the node belongs to
// the gate: without a selection, the peers are the gate's own nodes.
func peerMatcher(gate *v1alpha1.LatencyGate) func(node *corev1.Node, own bool) bool {
	server := gate.Spec.Template.Spec.Placement.Server
	if server == nil || server.Any() {
		return func(_ *corev1.Node, own bool) bool { return own }
	}
	matches, _ := server.Matcher() // An invalid selector matches no node.
	return func(node *corev1.Node, _ bool) bool { return matches(node) }
}

// any reports whether there is a peer at all.
func (p peers) any() bool { return len(p.verified)+len(p.others) > 0 }

// of chooses the peer of a node. Peers with which a measurement made no progress come last, verified peers come before others, and
// among these the peer of the accepted result comes first, because its results compare best; otherwise the next node by name is
// chosen, with the first after the last. A node is not its own peer, and a peer with which it failed is not used again.
func (p peers) of(v *v1alpha1.LatencyVerification) (name string, verified, ok bool) {
	if v.Status.Setback != nil {
		if name, verified, ok := p.without(v, v.Status.Setback.Peers); ok {
			return name, verified, true
		}
	}
	return p.without(v, nil)
}

// without chooses the peer of a node among the nodes that are not in avoided.
func (p peers) without(v *v1alpha1.LatencyVerification, avoided []string) (name string, verified, ok bool) {
	usual := ""
	if v.Status.Accepted != nil {
		usual = v.Status.Accepted.Peer
	}
	fits := func(name string) bool {
		return name != v.Spec.NodeName && name != v.Status.SuspectPeer && !p.busy[name] && !slices.Contains(avoided, name)
	}
	for _, list := range []struct {
		names    []string
		verified bool
	}{{p.verified, true}, {p.others, false}} {
		if _, found := slices.BinarySearch(list.names, usual); found && fits(usual) {
			return usual, list.verified, true
		}
		begin, _ := slices.BinarySearch(list.names, v.Spec.NodeName)
		for i := range list.names {
			if next := list.names[(begin+i)%len(list.names)]; fits(next) {
				return next, list.verified, true
			}
		}
	}
	return "", false, false
}
