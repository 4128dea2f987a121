package turns

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
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/queue"
	"github.com/tailgate-dev/tailgate/internal/sessions"
)

// Start is a node that is measured with a peer.
type Start struct {
	Verification *v1alpha1.LatencyVerification
	Peer         string
	PeerVerified bool
}

// End is a wait that ends without a result, and why.
type End struct {
	Verification *v1alpha1.LatencyVerification
	Why          string
}

// Choice is what a gate does now.
type Choice struct {
	Starts []Start
	// Due are the nodes that become unverified by the schedule now, with peers that have room.
	// Unplaced lack room for their own pod or a peer's.
	Due      []Start
	Unplaced map[string]string
	// Ended are unmeasured turns, with the nodes as they were; Alone failed and have no other peer.
	Ended, Alone []End
	Waiting      map[string]string
	// Unmeasurable need a user; Overlong waited longer than WaitLimit.
	Unmeasurable, Overlong []string
	Overdue                int // not measured in the schedule's last interval or window
	// Again is the time until a node that rests, or had no room, may be measured; or zero.
	Again time.Duration
}

// Place is a node and a role without room there; Shortage is why, since when, and until when.
type (
	Place    struct{ Node, Role string }
	Shortage struct {
		Why          string
		Since, Until time.Time
	}
)

const WaitLimit = 30 * time.Minute // of a node, but for its turn, until Operational says so

const turnLimit = 5 * time.Minute // of a node in its turn for its marks, its peer and its slot

type obstacle struct {
	message string
	// lasting: a user must remove it; turn: others come first; brief: it ends soon; alone: no peer.
	lasting, turn, brief, alone bool
}

type chooser struct {
	*Snapshot
	peers
	Choice
	// held wait and occupy a slot: in turn, resting, or without a second peer. lent: in their turn.
	held, lent int
}

// Choose gives the free slots to the nodes that have waited longest. Nodes that are due by the
// schedule get only slots that no other node waits for. It is deterministic.
func (s *Snapshot) Choose(shortages map[Place]Shortage) Choice {
	c := chooser{Snapshot: s, peers: findPeers(s), Choice: Choice{Waiting: map[string]string{}, Unplaced: map[string]string{}}}
	outdated := s.outdated(s.Schedule.Fired)
	for of, shortage := range shortages {
		isDue := func(v *v1alpha1.LatencyVerification) bool { return v.Spec.NodeName == of.Node }
		switch {
		case of.Role == v1alpha1.RoleServer:
			c.full[of.Node] = shortage.Why
		case slices.ContainsFunc(outdated, isDue):
			c.Unplaced[of.Node] = shortage.Why
		default:
			continue
		}
		c.Again = queue.Soonest(c.Again, shortage.Until.Sub(s.Now))
	}
	free := s.Gate.Spec.Parallel(len(s.Verifications)) - s.Measuring
	c.start(free)
	if left := free - len(c.Starts) - c.held; left > 0 && !s.Gate.Spec.Suspend {
		c.turn(s.free(func(v *v1alpha1.LatencyVerification) bool { return v.Status.TurnRequestTime != nil }), left) // Users requested them.
		switch s.Schedule.phase() {
		case paused:
		case trying:
			if c.lent == 0 && len(c.Due) == 0 {
				c.turn(outdated, 1)
			}
		case running:
			c.turn(outdated, left)
		}
	}
	c.Overdue = len(s.outdated(s.Schedule.missed()))
	return c.Choice
}

func (c *chooser) start(free int) {
	var waiting []*v1alpha1.LatencyVerification
	for _, v := range c.Verifications {
		if v.Status.Turn != nil {
			c.lent++
		}
		switch {
		case v.Status.State == v1alpha1.VerificationUnverified:
			waiting = append(waiting, v)
		case v.Status.State == v1alpha1.VerificationMeasuring && !c.busy[v.Spec.NodeName]:
			c.held++ // Its measurement has just ended, and how is not in the cache yet.
		}
	}
	slices.SortFunc(waiting, inOrder)
	for _, v := range waiting {
		why := c.try(v, free)
		switch {
		case why.message == "":
		case v.Status.Turn != nil:
			c.lend(v, why)
		case why.alone && v.Status.SuspectPeer != "" && c.Now.Sub(ptr.Deref(v.Status.LastTransitionTime, metav1.Time{}).Time) > turnLimit:
			c.Alone = append(c.Alone, End{v, why.message})
		default:
			c.wait(v, why)
			if why.alone && v.Status.SuspectPeer != "" {
				c.Again = queue.Soonest(c.Again, turnLimit)
			}
			if OfNode.Left(v.Status.StepFailure, c.Now) > 0 || v.Status.SuspectPeer != "" {
				c.held++
			}
		}
	}
}

func (c *chooser) try(v *v1alpha1.LatencyVerification, free int) obstacle {
	name, last := v.Spec.NodeName, v.Status.StepFailure
	if why := c.unfit(v); why.message != "" {
		return why
	}
	rest := OfNode.Left(last, c.Now)
	switch {
	case c.Gate.Spec.Suspend:
		return obstacle{message: "the gate is suspended", turn: true}
	case rest > 0 && v.Status.Turn == nil:
		c.Again = queue.Soonest(c.Again, rest)
		return obstacle{message: fmt.Sprintf("the next try is at %s: %s: %s", last.RetryTime.UTC().Format(time.TimeOnly), last.Reason, last.Message), turn: true}
	case len(c.Starts) >= free || c.busy[name]:
		return obstacle{message: "others are measured first", turn: true}
	}
	peer, verified, ok := c.peerOf(v)
	if !ok {
		return c.withoutPeer(v)
	}
	c.Starts = append(c.Starts, c.take(v, peer, verified))
	return obstacle{}
}

// lend lets a node in its turn wait for a moment, and ends the turn if that does not help.
func (c *chooser) lend(v *v1alpha1.LatencyVerification, why obstacle) {
	left := v.Status.Turn.StartTime.Add(turnLimit).Sub(c.Now)
	if !why.turn && !why.brief || c.Gate.Spec.Suspend || left <= 0 {
		c.Ended = append(c.Ended, End{v, why.message})
		return
	}
	c.held++
	c.Waiting[v.Spec.NodeName] = why.message
	c.Again = queue.Soonest(c.Again, left)
}

func (c *chooser) take(v *v1alpha1.LatencyVerification, peer string, verified bool) Start {
	c.busy[v.Spec.NodeName], c.busy[peer] = true, true
	return Start{v, peer, verified}
}

func (c *chooser) wait(v *v1alpha1.LatencyVerification, why obstacle) {
	c.Waiting[v.Spec.NodeName] = why.message
	since := v.Status.LastTransitionTime
	switch {
	case why.turn:
	case why.lasting:
		c.Unmeasurable = append(c.Unmeasurable, v.Spec.NodeName)
	case since != nil && c.Now.Sub(since.Time) > WaitLimit:
		c.Overlong = append(c.Overlong, v.Spec.NodeName)
	case since != nil:
		c.Again = queue.Soonest(c.Again, since.Add(WaitLimit).Sub(c.Now)+time.Second)
	}
}

// turn begins turns of the given nodes, each with a peer that has room, until most have begun.
func (c *chooser) turn(all []*v1alpha1.LatencyVerification, most int) {
	for _, v := range all {
		name := v.Spec.NodeName
		if len(c.Due) >= most {
			return
		}
		if len(v.Status.MarkFailures) > 0 || c.Unplaced[name] != "" {
			continue // It could not be held back for its turn, or not be measured.
		}
		if rest := OfNode.Left(v.Status.StepFailure, c.Now); rest > 0 {
			c.Again = queue.Soonest(c.Again, rest)
			continue
		}
		if absent := c.Compare(v, c.Nodes[name]).Absent; len(absent) > 0 {
			c.Unplaced[name] = missing(absent[0])
			continue
		}
		peer, verified, ok := c.peerOf(v)
		switch {
		case c.busy[name], !ok:
		case c.full[peer] != "":
			c.Unplaced[name] = c.full[peer] // There is no peer with room.
		default:
			c.Due = append(c.Due, c.take(v, peer, verified))
		}
	}
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
func (s *Snapshot) unfit(v *v1alpha1.LatencyVerification) obstacle {
	node := s.Nodes[v.Spec.NodeName]
	if node == nil {
		return obstacle{message: "the node has just changed", brief: true}
	}
	is, marked := s.Compare(v, node), PublicationOf(s.Gate, v).IsOn(node)
	switch {
	case is.Stale != "":
		return obstacle{message: "the node has just changed", brief: true}
	case len(is.Absent) > 0:
		return obstacle{message: missing(is.Absent[0])}
	case !marked && len(v.Status.MarkFailures) > 0:
		return obstacle{message: "it cannot be marked as not verified: " + v.Status.MarkFailures[0].Message}
	case !marked:
		return obstacle{message: "it is being marked as not verified", brief: true}
	}
	return s.unusable(node, v1alpha1.RoleClient)
}

func missing(key v1alpha1.AbsentKey) string {
	if key.Renewed {
		return fmt.Sprintf("the SR-IOV network operator recreates %s; if it was removed or its drain does not end, set annotation %s of the Node to %s",
			key.Key, foreign.AnnotationNodeState, foreign.SriovIdle)
	}
	return fmt.Sprintf("the node does not report %s now; until %s, the last value is kept", key.Key, key.EndTime.UTC().Format(time.TimeOnly))
}

func (s *Snapshot) unusable(node *corev1.Node, role string) obstacle {
	switch {
	case !preflight.NodeReady(*node):
		return obstacle{message: "the node is not ready"}
	case !node.DeletionTimestamp.IsZero():
		return obstacle{message: "the node is being deleted"}
	}
	template, tolerations := &s.Gate.Spec.Template.Spec, []corev1.Toleration{ofGate}
	if template.Pods != nil {
		tolerations = append(tolerations, template.Pods.Tolerations...)
	}
	tolerations = append(tolerations, template.Placement.Of(role).Tolerations...)
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
	return obstacle{message: why + "; tolerate the taint in spec.template.spec.pods.tolerations, or remove the taint if no workload needs it", lasting: true}
}

const controlPlane = "node-role.kubernetes.io/control-plane"

// withoutPeer returns why there is no peer: for good, unless one is busy or becomes usable.
func (p peers) withoutPeer(v *v1alpha1.LatencyVerification) obstacle {
	others := slices.DeleteFunc(slices.Concat(p.verified, p.others), func(name string) bool { return name == v.Spec.NodeName })
	passing := slices.IndexFunc(p.passing, func(n v1alpha1.NodeLine) bool { return n.Name != v.Spec.NodeName && n.Name != v.Status.SuspectPeer })
	switch {
	case slices.ContainsFunc(others, func(name string) bool { return p.busy[name] }):
		return obstacle{message: "every other node with which it can be measured is in use", turn: true}
	case passing >= 0:
		return obstacle{message: fmt.Sprintf("no other node with which it can be measured is usable now; %s: %s", p.passing[passing].Name, p.passing[passing].Message)}
	case len(others) > 0:
		return obstacle{message: "it has failed with the only other node with which it can be measured, and which of them is slow is unknown", lasting: true, alone: true}
	}
	return obstacle{message: "there is no other node to measure it with that is ready, free and not failed; add one, or change spec.template.spec.placement.server", lasting: true, alone: true}
}

func (s *Snapshot) outdated(fired time.Time) []*v1alpha1.LatencyVerification {
	if fired.IsZero() {
		return nil
	}
	return s.free(func(v *v1alpha1.LatencyVerification) bool {
		last := lastMeasured(v)
		return last.Before(fired) || last.After(s.Now.Add(maxSkew))
	})
}

// free returns the verified nodes to be measured among the chosen ones. Another look at a failed or
// inconclusive node would add to the error of the first.
func (s *Snapshot) free(chosen func(*v1alpha1.LatencyVerification) bool) []*v1alpha1.LatencyVerification {
	var all []*v1alpha1.LatencyVerification
	for _, v := range s.Verifications {
		node := s.Nodes[v.Spec.NodeName]
		if v.Status.State == v1alpha1.VerificationVerified && chosen(v) && node != nil && s.unusable(node, v1alpha1.RoleClient).message == "" {
			all = append(all, v)
		}
	}
	slices.SortFunc(all, func(a, b *v1alpha1.LatencyVerification) int {
		return cmp.Or(lastMeasured(a).Compare(lastMeasured(b)), cmp.Compare(a.Spec.NodeName, b.Spec.NodeName))
	})
	return all
}

func lastMeasured(v *v1alpha1.LatencyVerification) time.Time {
	return ptr.Deref(cmp.Or(v.Status.LastMeasurementTime, v.Status.LastTransitionTime), metav1.Time{}).Time
}

type peers struct {
	verified, others []string
	busy             map[string]bool     // those measured and their peers, also the chosen ones
	full             map[string]string   // nodes without room for a peer, and why; they come last
	passing          []v1alpha1.NodeLine // no peers now, for a reason that passes by itself
}

// findPeers returns the nodes that the template selects, that are usable, and have not failed.
func findPeers(s *Snapshot) peers {
	p := peers{busy: map[string]bool{}, full: map[string]string{}}
	maps.Copy(p.busy, s.Busy)
	own := map[string]bool{}
	for _, v := range s.Verifications {
		own[v.Spec.NodeName] = true
	}
	isPeer := peerMatcher(s.Gate)
	for name, node := range s.Nodes {
		if !isPeer(node, own[name]) || s.States[name] == v1alpha1.VerificationFailed {
			continue
		}
		if why := s.unusable(node, v1alpha1.RoleServer); why.message != "" {
			if !why.lasting && node.DeletionTimestamp.IsZero() {
				p.passing = append(p.passing, v1alpha1.NodeLine{Name: name, Message: why.message})
			}
			continue
		}
		if s.States[name].Passed() {
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

// OtherPeer reports whether a node could be measured with another peer than a given one.
func OtherPeer(g *v1alpha1.LatencyGate, node, current string, nodes []corev1.Node, verifications []v1alpha1.LatencyVerification) bool {
	own, states, isPeer := map[string]bool{}, statesOf(verifications), peerMatcher(g)
	for i := range verifications {
		v := &verifications[i]
		own[v.Spec.NodeName] = own[v.Spec.NodeName] || v.Spec.GateName == g.Name && v.Status.Retained == nil
	}
	return slices.ContainsFunc(nodes, func(n corev1.Node) bool {
		return n.Name != current && n.Name != node && isPeer(&n, own[n.Name]) && states[n.Name] != v1alpha1.VerificationFailed
	})
}

// peerMatcher returns which nodes can be peers: the gate's own if the template selects none.
func peerMatcher(gate *v1alpha1.LatencyGate) func(node *corev1.Node, own bool) bool {
	server := gate.Spec.Template.Spec.Placement.Server
	if server == nil || server.Any() {
		return func(_ *corev1.Node, own bool) bool { return own }
	}
	matches, _ := server.Matcher() // An invalid selector matches no node.
	return func(node *corev1.Node, _ bool) bool { return matches(node) }
}

// peerOf chooses the peer of a node. Peers without room come last, before them those without
// progress. Of the others, verified peers come first, and among these the reference's, because
// pairs differ; otherwise the next by name, in a ring. A peer with which it failed is not used.
func (p peers) peerOf(v *v1alpha1.LatencyVerification) (name string, verified, ok bool) {
	var failed []string
	if v.Status.StepFailure != nil {
		failed = v.Status.StepFailure.Peers
	}
	full := slices.Collect(maps.Keys(p.full))
	for _, avoided := range [][]string{slices.Concat(full, failed), full, nil} {
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
