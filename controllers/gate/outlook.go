package gate

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/text"
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
		gates[i] = *g
	} else {
		g.CreationTimestamp = metav1.Time{Time: now}
		gates = append(gates, *g)
	}
	s := newSnapshot(g, now)
	s.assign(gates, nodes, verifications)
	out := s.foresee()
	if out.Never != "" && s.introduced() {
		out.Held = nil
	}
	return out
}

// foresee lets the gate measure its nodes, wave after wave, in a copy in which no mark has to be written.
func (s *snapshot) foresee() Outlook {
	var out Outlook
	l := *s
	l.gate = s.gate.DeepCopy()
	l.gate.Spec.Suspend, l.gate.Spec.Enforcement.Mode, l.measuring = false, v1alpha1.EnforcementNone, 0
	l.fired = time.Time{}
	l.nodes, l.states, l.verifications = map[string]*corev1.Node{}, map[string]v1alpha1.VerificationState{}, nil
	for name, node := range s.nodes {
		l.nodes[name], l.states[name] = unmarked(node), s.states[name]
	}
	all := slices.Clone(s.verifications)
	for _, node := range s.missing {
		v := &v1alpha1.LatencyVerification{Spec: v1alpha1.LatencyVerificationSpec{GateName: s.gate.Name, NodeName: node.Name}}
		v.Status.AsFound = older(node, s.gate)
		all = append(all, v)
	}
	slices.SortFunc(all, func(a, b *v1alpha1.LatencyVerification) int { return cmp.Compare(a.Spec.NodeName, b.Spec.NodeName) })
	asked := identity.KeysOf(s.gate)
	for _, before := range all {
		v, node := before.DeepCopy(), l.nodes[before.Spec.NodeName]
		current := asked.Of(node)
		changed := v.Status.NodeUID != string(node.UID) || len(identity.Changes(v.Status.Identity, current)) > 0
		if changed || v.Status.State == "" || v.Status.State == v1alpha1.VerificationMeasuring {
			v.Status.State = v1alpha1.VerificationUnverified
		}
		v.Status.NodeUID, v.Status.GateUID, v.Status.Identity = string(node.UID), string(s.gate.UID), current
		v.Status.Setback, v.Status.MarkSetbacks, v.Status.SuspectPeer = nil, nil, ""
		l.verifications, out.Nodes = append(l.verifications, v), append(out.Nodes, node.Name)
		if v.Status.State != v1alpha1.VerificationVerified && held(s.gate, v) {
			out.Held = append(out.Held, node.Name)
		}
		if v.Status.Accepted == nil {
			out.First = append(out.First, node.Name)
		}
	}
	for {
		l.busy = map[string]bool{}
		c := choose(&l)
		if len(c.starts) == 0 {
			for _, name := range out.Nodes {
				if why := c.waiting[name]; why != "" {
					out.Waiting = append(out.Waiting, v1alpha1.NodeLine{Name: name, State: v1alpha1.VerificationUnverified, Message: why})
				}
			}
			if len(out.Waves) == 0 && len(c.unmeasurable) > 0 && len(c.unmeasurable) == len(out.Waiting) {
				out.Never = c.unmeasurable[0] + ": " + c.waiting[c.unmeasurable[0]]
			}
			return out
		}
		if out.Benchmark == nil {
			out.Benchmark = benchmarkOf(s.gate, c.starts[0].verification, c.starts[0].peer, c.starts[0].verification.Status.Number+1)
		}
		var wave []v1alpha1.Pair
		for _, begun := range c.starts {
			name := begun.verification.Spec.NodeName
			wave = append(wave, v1alpha1.Pair{ClientNode: name, ServerNode: begun.peer})
			begun.verification.Status.State, l.states[name] = v1alpha1.VerificationVerified, v1alpha1.VerificationVerified
		}
		out.Waves = append(out.Waves, wave)
	}
}

func unmarked(node *corev1.Node) *corev1.Node {
	node = node.DeepCopy()
	delete(node.Labels, v1alpha1.NodeLabelVerified)
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == v1alpha1.NodeTaintUnverified })
	node.Status.Conditions = slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == v1alpha1.NodeConditionVerified
	})
	return node
}

// suppliersFor is how long the Modules and DaemonSets that were read count, because a gate may be reconciled twice a second.
const suppliersFor = 10 * time.Second

type suppliers struct {
	mu   sync.Mutex
	read time.Time
	all  []preflight.Supplier
}

// observeSettling records why the gate could never verify its nodes, and returns when to look again.
func (r *Gates) observeSettling(ctx context.Context, s *snapshot) (time.Duration, error) {
	if preflight.HeldBy(s.gate) != nil || preflight.MeasuresCordoned(s.gate) {
		all, err := r.suppliers.get(ctx, r.Live, s.now)
		if err != nil {
			return 0, err
		}
		nodes := append([]*corev1.Node{}, s.missing...)
		for _, v := range s.verifications {
			nodes = append(nodes, s.nodes[v.Spec.NodeName])
		}
		if reason, message := preflight.Unsettled(s.gate, nodes, all); reason != "" {
			s.cannotSettle(reason, message)
			return suppliersFor, nil
		}
	}
	s.observeIntroduction()
	return 0, nil
}

func (s *snapshot) observeIntroduction() {
	if !s.introduced() {
		return
	}
	if why := s.foresee().Never; why != "" {
		s.cannotSettle(v1alpha1.ReasonCannotSettle, fmt.Sprintf(
			"none of the %d nodes can be measured, so that the gate does not hold them back; %s", len(s.missing), text.Shorten(why, 1024)))
	}
}

func (s *snapshot) cannotSettle(reason, message string) {
	s.unsettled = new(v1alpha1.Condition(v1alpha1.ConditionOperational, metav1.ConditionFalse, reason, message))
}

func (s *snapshot) fresh() bool { return len(s.verifications)+len(s.retained)+len(s.leaving) == 0 }

// introduced reports whether the gate has no verification yet, and all its nodes were there before it. If such a gate can measure none of
// them, it does not hold them back: it would take them out of service for nothing. Nodes that join later are held back.
func (s *snapshot) introduced() bool {
	joined := func(n *corev1.Node) bool { return !older(n, s.gate) }
	return len(s.missing) > 0 && s.fresh() && !slices.ContainsFunc(s.missing, joined)
}

// get reads the suppliers, unless that was a moment ago. A kind that does not exist, or that the manager may not list, has none.
func (c *suppliers) get(ctx context.Context, live client.Reader, now time.Time) ([]preflight.Supplier, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if age := now.Sub(c.read); age >= 0 && age < suppliersFor {
		return c.all, nil
	}
	all, _, err := observe.Suppliers(ctx, live)
	if err != nil {
		return nil, err
	}
	c.read, c.all = now, all
	return all, nil
}
