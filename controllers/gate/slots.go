package gate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/sessions"
)

type start struct {
	verification *v1alpha1.LatencyVerification
	peer         string
	peerVerified bool
}

// statesOf returns the states of nodes. One that passes from one gate to another is verified only if all its verifications are.
func statesOf(all []v1alpha1.LatencyVerification) map[string]v1alpha1.VerificationState {
	states := map[string]v1alpha1.VerificationState{}
	for i := range all {
		v := &all[i]
		if v.Status.Record() {
			continue
		}
		if known, ok := states[v.Spec.NodeName]; !ok || known == v1alpha1.VerificationVerified {
			states[v.Spec.NodeName] = v.Status.State
		}
	}
	return states
}

type choice struct {
	// starts are the benchmarks to create now.
	starts []start
	// due are the nodes that are due by the schedule, with the peers that have room for them: they become unverified now.
	due []start
	// waiting is the reason why an unverified node is not measured yet, by the name of the node.
	waiting map[string]string
	// unmeasurable are those that only a user can make measurable, and overlong those that have waited for longer than waitLimit.
	unmeasurable, overlong []string
	// overdue is the number of nodes that were not measured between the last two times of the schedule, or in its window.
	overdue int
	// again is the time until a node that rests may be measured; zero if no node rests.
	again time.Duration
}

// waitLimit is how long a node may wait for anything but its turn, such as a reboot, before condition Operational says so.
const waitLimit = 30 * time.Minute

func (c *choice) wait(s *snapshot, v *v1alpha1.LatencyVerification, why obstacle) {
	c.waiting[v.Spec.NodeName] = why.message
	since := v.Status.LastTransitionTime
	switch {
	case why.turn:
	case why.lasting:
		c.unmeasurable = append(c.unmeasurable, v.Spec.NodeName)
	case since != nil && s.now.Sub(since.Time) > waitLimit:
		c.overlong = append(c.overlong, v.Spec.NodeName)
	case since != nil:
		c.again = controllers.Soonest(c.again, since.Add(waitLimit).Sub(s.now)+time.Second)
	}
}

// obstacle is the reason why a node cannot be measured, or be the peer of another; without a message there is none.
type obstacle struct {
	message string
	// lasting is true if only a user can remove it, and turn if it ends when others have been measured.
	lasting, turn bool
}

// choose gives the free slots to the nodes that have waited longest, each with a peer. Nodes that are due by the schedule get only
// the slots that no other node waits for. It is deterministic, and its only side effect is to add the chosen nodes to s.busy.
func choose(s *snapshot) choice {
	c := choice{waiting: map[string]string{}}
	free := s.gate.Spec.Parallel(len(s.verifications)) - s.measuring
	peers := s.peers()
	peers.full = slices.Collect(maps.Keys(s.full))
	var queue []*v1alpha1.LatencyVerification
	for _, v := range s.verifications {
		if v.Status.State == v1alpha1.VerificationUnverified {
			queue = append(queue, v)
		}
	}
	slices.SortFunc(queue, inOrder)
	turning, asked := 0, identity.KeysOf(s.gate)
	for _, v := range queue {
		if why := s.unfit(v, asked); why.message != "" {
			c.wait(s, v, why)
			// It already has a slot, and must only be held back before it is measured.
			// A node that went down in its turn may not return, and does not keep the others from theirs.
			if node := s.nodes[v.Spec.NodeName]; v.Status.Verified().Reason == v1alpha1.ReasonScheduleDue && node != nil && preflight.NodeReady(*node) {
				turning++
			}
			continue
		}
		rest := ofNode.left(v.Status.Setback, s.now)
		switch {
		case s.gate.Spec.Suspend:
			c.waiting[v.Spec.NodeName] = "the gate is suspended"
			continue
		case rest > 0:
			c.waiting[v.Spec.NodeName] = fmt.Sprintf("the next try is at %s: %s: %s", v.Status.Setback.RetryTime.UTC().Format(time.TimeOnly), v.Status.Setback.Reason, v.Status.Setback.Message)
			c.again = controllers.Soonest(c.again, rest)
			continue
		case len(c.starts) >= free || s.busy[v.Spec.NodeName]:
			c.waiting[v.Spec.NodeName] = "others are measured first"
			continue
		}
		peer, verified, ok := peers.of(v)
		if !ok {
			c.wait(s, v, s.withoutPeer(v, peers))
			continue
		}
		c.starts = append(c.starts, start{v, peer, verified})
		s.busy[v.Spec.NodeName], s.busy[peer] = true, true
	}
	if left := free - len(c.starts) - turning; left > 0 && !s.gate.Spec.Suspend && !s.closed {
		c.due = s.due(left, peers)
	}
	missed := s.firedBefore
	if s.closed {
		missed = s.fired
	}
	c.overdue = len(s.outdated(missed))
	return c
}

func inOrder(a, b *v1alpha1.LatencyVerification) int {
	if a.Status.LastTransitionTime != nil && b.Status.LastTransitionTime != nil {
		if order := a.Status.LastTransitionTime.Compare(b.Status.LastTransitionTime.Time); order != 0 {
			return order
		}
	}
	return cmp.Compare(a.Spec.NodeName, b.Spec.NodeName)
}

// unfit returns why an unverified node cannot be measured, independent of other nodes.
func (s *snapshot) unfit(v *v1alpha1.LatencyVerification, asked identity.Keys) obstacle {
	node := s.nodes[v.Spec.NodeName]
	if node == nil || string(node.UID) != v.Status.NodeUID || ofEarlierGate(v, s.gate) {
		return obstacle{message: "the node has just changed"}
	}
	current, absent := asked.Present(&v.Status, node, s.now)
	switch {
	case len(identity.Changes(v.Status.Identity, current)) > 0:
		return obstacle{message: "the node has just changed"}
	case len(absent) > 0:
		return obstacle{message: fmt.Sprintf("the node does not report %s now; until %s, the last value is kept", absent[0].Key, absent[0].EndTime.UTC().Format(time.TimeOnly))}
	case len(v.Status.MarkSetbacks) > 0 && !published(node, publicationOf(s.gate, v)):
		return obstacle{message: "it cannot be marked as not verified: " + v.Status.MarkSetbacks[0].Message}
	case !published(node, publicationOf(s.gate, v)):
		return obstacle{message: "it is being marked as not verified"}
	}
	return s.unusable(node, v1alpha1.RoleClient)
}

// unusable returns why the benchmark's pod with a role could not run on a node.
func (s *snapshot) unusable(node *corev1.Node, role string) obstacle {
	switch {
	case !preflight.NodeReady(*node):
		return obstacle{message: "the node is not ready"}
	case !node.DeletionTimestamp.IsZero():
		return obstacle{message: "the node is being deleted"}
	}
	tolerations := slices.Concat(s.pods.Tolerations, s.gate.Spec.Template.Spec.Placement.Of(role).Tolerations)
	taint := preflight.UntoleratedTaint(node, tolerations)
	if taint == nil {
		return obstacle{}
	}
	why := "the node is " + preflight.Untolerated(node, tolerations)
	switch passing := preflight.Passing(taint.Key); {
	case passing != "":
		return obstacle{message: why + ": " + passing}
	case taint.Key == controlPlane:
		return obstacle{message: why + ": exclude control planes in spec.nodeSelector, or tolerate the taint in spec.template.spec.pods.tolerations", lasting: true}
	}
	return obstacle{message: why + "; remove the taint, or tolerate it in spec.template.spec.pods.tolerations", lasting: true}
}

const controlPlane = "node-role.kubernetes.io/control-plane"

// withoutPeer returns why there is no peer for a node. Only a user can change that, unless a peer is busy or becomes usable by itself.
func (s *snapshot) withoutPeer(v *v1alpha1.LatencyVerification, p peers) obstacle {
	others := slices.DeleteFunc(slices.Concat(p.verified, p.others), func(name string) bool { return name == v.Spec.NodeName })
	switch {
	case slices.ContainsFunc(others, func(name string) bool { return p.busy[name] }):
		return obstacle{message: "every other node with which it can be measured is in use", turn: true}
	case len(others) > 0:
		return obstacle{message: "it has failed with the only other node with which it can be measured, and which of them is slow is unknown", lasting: true}
	}
	if i := slices.IndexFunc(p.passing, func(n v1alpha1.NodeLine) bool { return n.Name != v.Spec.NodeName }); i >= 0 {
		return obstacle{message: fmt.Sprintf("no other node with which it can be measured is usable now; %s: %s", p.passing[i].Name, p.passing[i].Message)}
	}
	return obstacle{message: "there is no other node to measure it with that is ready, free and not failed; add one, or change spec.template.spec.placement.server", lasting: true}
}

// due returns at most most nodes that are due, each with a peer. It adds them to s.busy, and those without a peer with room to s.unplaced.
func (s *snapshot) due(most int, p peers) []start {
	var all []start
	for _, v := range s.outdated(s.fired) {
		if len(all) == most {
			break
		}
		if len(v.Status.MarkSetbacks) > 0 || s.unplaced[v.Spec.NodeName] != "" {
			continue // It could not be held back for its turn, or not be measured.
		}
		peer, verified, ok := p.of(v)
		switch {
		case s.busy[v.Spec.NodeName], !ok:
		case s.full[peer] != "":
			s.unplaced[v.Spec.NodeName] = s.full[peer] // There is no peer with room.
		default:
			s.busy[v.Spec.NodeName], s.busy[peer] = true, true
			all = append(all, start{v, peer, verified})
		}
	}
	return all
}

// outdated returns the nodes that could be measured and were last measured before a time of the schedule, the longest ago first.
func (s *snapshot) outdated(fired time.Time) []*v1alpha1.LatencyVerification {
	if fired.IsZero() {
		return nil
	}
	var all []*v1alpha1.LatencyVerification
	for _, v := range s.verifications {
		node, last := s.nodes[v.Spec.NodeName], lastMeasured(v)
		if !slices.Contains(concluded, v.Status.State) || node == nil || s.unusable(node, v1alpha1.RoleClient).message != "" {
			continue
		}
		if last.Before(fired) || last.After(s.now.Add(maxSkew)) {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b *v1alpha1.LatencyVerification) int {
		return cmp.Or(lastMeasured(a).Compare(lastMeasured(b)), cmp.Compare(a.Spec.NodeName, b.Spec.NodeName))
	})
	return all
}

// lastMeasured returns the time from which the schedule counts.
func lastMeasured(v *v1alpha1.LatencyVerification) time.Time {
	return ptr.Deref(cmp.Or(v.Status.LastMeasurementTime, v.Status.LastTransitionTime), metav1.Time{}).Time
}

// peers holds the nodes with which others can be measured, each list in the order of names.
type peers struct {
	verified, others []string
	busy             map[string]bool
	// full are nodes without room for a peer, which come last.
	full []string
	// passing are nodes that cannot be peers now because of something that passes by itself.
	passing []v1alpha1.NodeLine
}

// peers returns the nodes that the template selects, that can run its pod, and that have not failed.
func (s *snapshot) peers() peers {
	p := peers{busy: s.busy}
	own := map[string]bool{}
	for _, v := range s.verifications {
		own[v.Spec.NodeName] = true
	}
	isPeer := peerMatcher(s.gate)
	for name, node := range s.nodes {
		if !isPeer(node, own[name]) || s.states[name] == v1alpha1.VerificationFailed {
			continue
		}
		if why := s.unusable(node, v1alpha1.RoleServer); why.message != "" {
			if !why.lasting && node.DeletionTimestamp.IsZero() {
				p.passing = append(p.passing, v1alpha1.NodeLine{Name: name, Message: why.message})
			}
			continue
		}
		if s.states[name] == v1alpha1.VerificationVerified {
			p.verified = append(p.verified, name)
		} else {
			p.others = append(p.others, name)
		}
	}
	slices.Sort(p.verified)
	slices.Sort(p.others)
	slices.SortFunc(p.passing, func(a, b v1alpha1.NodeLine) int { return cmp.Compare(a.Name, b.Name) })
	return p
}

// peerMatcher returns which nodes can be peers by the template. own is true for the gate's nodes, which are the peers if it selects none.
func peerMatcher(gate *v1alpha1.LatencyGate) func(node *corev1.Node, own bool) bool {
	server := gate.Spec.Template.Spec.Placement.Server
	if server == nil || server.Any() {
		return func(_ *corev1.Node, own bool) bool { return own }
	}
	matches, _ := server.Matcher() // An invalid selector matches no node.
	return func(node *corev1.Node, _ bool) bool { return matches(node) }
}

// of chooses the peer of a node. Peers without room come last, before them those with which a measurement made no progress. Of the others,
// verified peers come first, and among these those of the reference, because a pair of nodes differs from another; otherwise the next node
// by name, with the first after the last. A node is not its own peer, and a peer with which it failed is not used again.
func (p peers) of(v *v1alpha1.LatencyVerification) (name string, verified, ok bool) {
	var failed []string
	if v.Status.Setback != nil {
		failed = v.Status.Setback.Peers
	}
	for _, avoided := range [][]string{slices.Concat(p.full, failed), p.full, nil} {
		if name, verified, ok = p.without(v, avoided); ok {
			break
		}
	}
	return name, verified, ok
}

func (p peers) without(v *v1alpha1.LatencyVerification, avoided []string) (name string, verified, ok bool) {
	usual := sessions.Peers(v.Status.Reference)
	if v.Status.Accepted != nil {
		usual = append(usual, v.Status.Accepted.Peer)
	}
	fits := func(name string) bool {
		return name != v.Spec.NodeName && name != v.Status.SuspectPeer && !p.busy[name] && !slices.Contains(avoided, name)
	}
	for _, list := range []struct {
		names    []string
		verified bool
	}{{p.verified, true}, {p.others, false}} {
		for _, name := range usual {
			if _, found := slices.BinarySearch(list.names, name); found && fits(name) {
				return name, list.verified, true
			}
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
