// Package turns decides which nodes a LatencyGate measures next, with which peers and when, and
// which nodes it holds back. It is pure: its input is what was observed, which it does not change.
// The controller of the gates acts on its answers; `kubectl tailgate plan` shows them in advance.
package turns

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/queue"
)

// Snapshot is a gate and the nodes of the cluster as they were observed.
type Snapshot struct {
	Now  time.Time
	Gate *v1alpha1.LatencyGate
	// Nodes are the nodes of the cluster by name, and States those that belong to any gate.
	Nodes         map[string]*corev1.Node
	States        map[string]v1alpha1.VerificationState
	Verifications []*v1alpha1.LatencyVerification // of the gate's own nodes, in any order
	// Missing are the gate's nodes without a verification, Retained verifications of nodes it lost.
	Missing  []*corev1.Node
	Retained []*v1alpha1.LatencyVerification
	// Leaving are failed nodes that are being deleted; others being deleted are not the gate's.
	Leaving []*v1alpha1.LatencyVerification
	Taken   map[string][]string // nodes that it selects and an older gate has, by that gate's name
	// Busy are all nodes being measured, and their peers; Measuring counts the gate's own.
	Busy      map[string]bool
	Measuring int
	Schedule  Schedule
}

// New returns a gate's snapshot, given all gates, nodes and verifications, and those measured.
func New(g *v1alpha1.LatencyGate, gates []v1alpha1.LatencyGate, nodes []corev1.Node, verifications, measuring []v1alpha1.LatencyVerification,
	now time.Time) *Snapshot {
	s := &Snapshot{
		Now: now, Gate: g, Nodes: map[string]*corev1.Node{}, States: statesOf(verifications), Taken: map[string][]string{}, Busy: map[string]bool{},
		Schedule: Consult(g, now),
	}
	for i := range measuring {
		v := &measuring[i]
		s.Busy[v.Spec.NodeName] = true
		if v.Status.Benchmark != nil {
			s.Busy[v.Status.Benchmark.Peer] = true
		}
		if v.Spec.GateName == g.Name {
			s.Measuring++
		}
	}
	own := map[string]*v1alpha1.LatencyVerification{}
	for i := range verifications {
		if v := &verifications[i]; v.Spec.GateName == g.Name {
			own[v.Spec.NodeName] = v
		}
	}
	for i := range nodes {
		node := &nodes[i]
		s.Nodes[node.Name] = node
		v := own[node.Name]
		switch {
		case !node.DeletionTimestamp.IsZero():
			// The deletion of a node that failed does not remove the cause.
			if v != nil && v.Status.State == v1alpha1.VerificationFailed {
				s.Leaving = append(s.Leaving, v)
			}
			delete(own, node.Name)
		case !selects(g, node):
		default:
			if owner := Owner(node, gates); owner != nil && owner.Name != g.Name {
				s.Taken[owner.Name] = append(s.Taken[owner.Name], node.Name)
			} else if v != nil {
				s.Verifications = append(s.Verifications, v)
				delete(own, node.Name)
			} else {
				s.Missing = append(s.Missing, node)
			}
		}
	}
	for _, v := range own {
		// A Node of a record that registers again counts at once.
		if s.Nodes[v.Spec.NodeName] != nil && !v.Status.OfDeletedGate() {
			s.Retained = append(s.Retained, v)
		}
	}
	s.Schedule.count(s.Verifications, now)
	slices.SortFunc(s.Missing, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

// Introducing reports whether the gate found nodes and has measured none. If it can measure none,
// it does not hold those back: that would serve nothing. Nodes that join are held back.
func (s *Snapshot) Introducing() bool {
	found := slices.ContainsFunc(s.Missing, func(n *corev1.Node) bool { return Older(n, s.Gate) }) ||
		slices.ContainsFunc(s.Verifications, func(v *v1alpha1.LatencyVerification) bool { return v.Status.Introduced })
	return found && !slices.ContainsFunc(slices.Concat(s.Verifications, s.Retained, s.Leaving), measured)
}

func measured(v *v1alpha1.LatencyVerification) bool {
	return v.Status.LastMeasurementTime != nil || v.Status.Accepted != nil
}

// Settle notes whether the gate can measure none of the nodes that it found, and why: never, as
// Foresee says. If it can by itself later, because a node joined, it still does not hold them back
// before they are measured. An edit of the gate begins again.
func (s *Snapshot) Settle(never string) {
	status := &s.Gate.Status
	if s.Introducing() {
		status.Unsettled = never != "" || status.Unsettled && status.ObservedGeneration == s.Gate.Generation
	}
}

func (s *Snapshot) Compare(v *v1alpha1.LatencyVerification, node *corev1.Node) identity.Comparison {
	return identity.KeysOf(s.Gate).Compare(v, s.Gate.UID, identity.Subject{Node: node}, s.Now)
}

func selects(g *v1alpha1.LatencyGate, node *corev1.Node) bool {
	selector, err := metav1.LabelSelectorAsSelector(&g.Spec.NodeSelector)
	return err == nil && selector.Matches(labels.Set(node.Labels))
}

// Owner returns the oldest gate that selects a node and is not being deleted, those that only observe
// last; nil without one.
func Owner(node *corev1.Node, gates []v1alpha1.LatencyGate) *v1alpha1.LatencyGate {
	var owner *v1alpha1.LatencyGate
	for i := range gates {
		g := &gates[i]
		switch {
		case node == nil, !g.DeletionTimestamp.IsZero(), !selects(g, node):
		case owner == nil, owner.Observes() && !g.Observes(), owner.Observes() == g.Observes() && queue.CompareAge(g, owner) < 0:
			owner = g
		}
	}
	return owner
}

// statesOf returns the nodes' states: verified only if all verifications of the node are.
func statesOf(all []v1alpha1.LatencyVerification) map[string]v1alpha1.VerificationState {
	states := map[string]v1alpha1.VerificationState{}
	for i := range all {
		v := &all[i]
		if v.Status.Record() {
			continue
		}
		if known, ok := states[v.Spec.NodeName]; !ok || known.Passed() {
			states[v.Spec.NodeName] = v.Status.State
		}
	}
	return states
}

// Outlook is what a gate would do with its nodes as they are now, if each measurement passed.
type Outlook struct {
	Nodes, Held []string            // the gate's, and those that it would hold back; sorted
	Waves       [][]v1alpha1.Pair   // at once, with the measured node as the client
	Waiting     []v1alpha1.NodeLine // not measured after all waves, with the reasons
	// Never is why no node can be measured until a user acts; empty if one can, or none is left.
	Never     string
	First     []string                   // without an accepted result: only absolute limits apply
	Benchmark *v1alpha1.LatencyBenchmark // the first that the gate would create; or nil
}

// Foresee returns what a gate would do, also a new one, given all that the cluster has.
func Foresee(g *v1alpha1.LatencyGate, nodes []corev1.Node, gates []v1alpha1.LatencyGate, verifications []v1alpha1.LatencyVerification,
	now time.Time) Outlook {
	g = g.DeepCopy()
	gates = slices.Clone(gates)
	if i := slices.IndexFunc(gates, func(other v1alpha1.LatencyGate) bool { return other.Name == g.Name }); i >= 0 {
		g.UID, g.CreationTimestamp = gates[i].UID, gates[i].CreationTimestamp
		g.Generation, g.Status.Unsettled, g.Status.ObservedGeneration = gates[i].Generation, gates[i].Status.Unsettled, gates[i].Status.ObservedGeneration
		gates[i] = *g
	} else {
		g.CreationTimestamp = metav1.Time{Time: now}
		gates = append(gates, *g)
	}
	s := New(g, gates, nodes, verifications, nil, now)
	out := s.Foresee()
	if s.Settle(out.Never); s.Gate.Status.Unsettled {
		out = s.Foresee()
	}
	return out
}

// Foresee lets the gate measure its nodes, wave after wave, in a copy without marks.
func (s *Snapshot) Foresee() Outlook {
	var out Outlook
	l := s.begun(&out)
	for {
		c := l.Choose(nil)
		if len(c.Starts) == 0 {
			for _, name := range out.Nodes {
				if why := c.Waiting[name]; why != "" {
					out.Waiting = append(out.Waiting, v1alpha1.NodeLine{Name: name, State: v1alpha1.VerificationUnverified, Message: why})
				}
			}
			if len(out.Waves) == 0 && len(c.Unmeasurable) > 0 && len(c.Unmeasurable) == len(out.Waiting) {
				out.Never = c.Unmeasurable[0] + ": " + c.Waiting[c.Unmeasurable[0]]
			}
			return out
		}
		if first := c.Starts[0]; out.Benchmark == nil {
			out.Benchmark = Benchmark(s.Gate, first.Verification, first.Peer, first.Verification.Status.Number+1)
		}
		var wave []v1alpha1.Pair
		for _, begun := range c.Starts {
			name := begun.Verification.Spec.NodeName
			wave = append(wave, v1alpha1.Pair{ClientNode: name, ServerNode: begun.Peer})
			begun.Verification.Status.State, l.States[name] = v1alpha1.VerificationVerified, v1alpha1.VerificationVerified
		}
		out.Waves = append(out.Waves, wave)
	}
}

// begun returns a copy without obstacles, in which stale nodes are unverified, and notes them.
func (s *Snapshot) begun(out *Outlook) *Snapshot {
	l := &Snapshot{Now: s.Now, Gate: s.Gate.DeepCopy(), Nodes: map[string]*corev1.Node{}, States: maps.Clone(s.States)}
	l.Gate.Spec.Suspend, l.Gate.Spec.Enforcement.Mode = false, v1alpha1.EnforcementObserve
	for name, node := range s.Nodes {
		l.Nodes[name] = Publication{}.On(node)
	}
	all := slices.Clone(s.Verifications)
	for _, node := range s.Missing {
		v := &v1alpha1.LatencyVerification{Spec: v1alpha1.LatencyVerificationSpec{GateName: s.Gate.Name, NodeName: node.Name}}
		v.Status.Preexisting, v.Status.Introduced = FoundBy(s.Gate, node), Older(node, s.Gate)
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b *v1alpha1.LatencyVerification) int { return cmp.Compare(a.Spec.NodeName, b.Spec.NodeName) })
	for _, before := range all {
		v, node := before.DeepCopy(), l.Nodes[before.Spec.NodeName]
		is := s.Compare(v, node)
		if is.Stale != "" || v.Status.State == v1alpha1.VerificationMeasuring {
			v.Status.State, l.States[node.Name] = v1alpha1.VerificationUnverified, v1alpha1.VerificationUnverified
		}
		if is.Stale == v1alpha1.ReasonNodeReplaced && identity.OtherMachine(v.Status.SystemUUID, node.Status.NodeInfo.SystemUUID) {
			v.Status = v1alpha1.LatencyVerificationStatus{State: v1alpha1.VerificationUnverified, Number: v.Status.Number}
		}
		if len(is.Changes) > 0 || is.Stale == v1alpha1.ReasonNodeReplaced {
			v.Status.Preexisting = v.Status.Preexisting && s.Gate.Observes()
		}
		v.Status.NodeUID, v.Status.GateUID, v.Status.Identity, v.Status.Absent = string(node.UID), string(s.Gate.UID), is.Values, is.Absent
		v.Status.StepFailure, v.Status.MarkFailures, v.Status.SuspectPeer, v.Status.Turn = nil, nil, "", nil
		l.Verifications, out.Nodes = append(l.Verifications, v), append(out.Nodes, node.Name)
		if !v.Status.State.Passed() && Held(s.Gate, v) {
			out.Held = append(out.Held, node.Name)
		}
		if v.Status.Accepted == nil {
			out.First = append(out.First, node.Name)
		}
	}
	return l
}
