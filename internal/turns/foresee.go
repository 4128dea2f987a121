package turns

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
)

// Outlook is what a gate would do with its nodes as they are now, if each measurement passed.
type Outlook struct {
	// Nodes are the gate's nodes, and Held those that it would hold back now. Both are sorted.
	Nodes, Held []string
	// Waves are the measurements that take place at the same time, each with the measured node as the client and its peer as the server.
	Waves [][]v1alpha1.Pair
	// Waiting are the nodes that cannot be measured after all waves, with the reasons.
	Waiting []v1alpha1.NodeLine
	// Never is the reason why no node can be measured until a user acts; empty if one can, or there is none to be measured.
	Never string
	// First are the nodes without an accepted result, for which only absolute limits apply.
	First []string
	// Benchmark is the first benchmark that the gate would create; nil if there is none.
	Benchmark *v1alpha1.LatencyBenchmark
}

// Foresee returns what a gate would do, also one that does not exist yet. It has all nodes, gates and verifications of the cluster.
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
	l.Gate.Spec.Suspend, l.Gate.Spec.Enforcement.Mode = false, v1alpha1.EnforcementNone
	for name, node := range s.Nodes {
		l.Nodes[name] = Publication{}.On(node)
	}
	all := slices.Clone(s.Verifications)
	for _, node := range s.Missing {
		v := &v1alpha1.LatencyVerification{Spec: v1alpha1.LatencyVerificationSpec{GateName: s.Gate.Name, NodeName: node.Name}}
		v.Status.AsFound, v.Status.Introduced = FoundBy(s.Gate, node), Older(node, s.Gate)
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
			v.Status.AsFound = v.Status.AsFound && s.Gate.Spec.Enforcement.Mode == v1alpha1.EnforcementNone
		}
		v.Status.NodeUID, v.Status.GateUID, v.Status.Identity, v.Status.Absent = string(node.UID), string(s.Gate.UID), is.Values, is.Absent
		v.Status.Setback, v.Status.MarkSetbacks, v.Status.SuspectPeer, v.Status.Turn = nil, nil, "", nil
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
