package turns

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/foreign"
)

// started returns the starts as node-peer, with a + if the peer is verified.
func started(c Choice) []string {
	var all []string
	for _, s := range c.Starts {
		text := s.Verification.Spec.NodeName + "-" + s.Peer
		if s.PeerVerified {
			text += "+"
		}
		all = append(all, text)
	}
	return all
}

func TestChooseStarts(t *testing.T) {
	waits, verified := waitingSince(time.Minute), in(v1alpha1.VerificationVerified)
	parallel := func(n int32) func(*v1alpha1.LatencyGate) {
		return func(g *v1alpha1.LatencyGate) { g.Spec.MaxParallel = new(intstr.FromInt32(n)) }
	}
	node := func(name string, change func(*corev1.Node)) func(*Snapshot) {
		return func(l *Snapshot) { change(l.Nodes[name]) }
	}
	accepted := func(peer string) func(*v1alpha1.LatencyVerification) {
		return func(v *v1alpha1.LatencyVerification) {
			v.Status.Accepted = &v1alpha1.AcceptedResult{Peer: peer, Identity: v.Status.Identity}
		}
	}
	tolerates := func(toleration corev1.Toleration) func(*v1alpha1.LatencyGate) {
		return func(g *v1alpha1.LatencyGate) {
			g.Spec.Template.Spec.Pods = &v1alpha1.PodSettings{Tolerations: []corev1.Toleration{toleration}}
		}
	}
	ofServer := func(toleration corev1.Toleration) func(*v1alpha1.LatencyGate) {
		return func(g *v1alpha1.LatencyGate) {
			g.Spec.Template.Spec.Placement.Server.Tolerations = []corev1.Toleration{toleration}
		}
	}
	cordoned := func(n *corev1.Node) {
		n.Spec.Unschedulable = true
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	rests := func(until time.Time, peers ...string) func(*v1alpha1.LatencyVerification) {
		return func(v *v1alpha1.LatencyVerification) {
			v.Status.StepFailure = &v1alpha1.StepFailure{Reason: v1alpha1.ReasonNoProgress, Message: "why", Count: 1, RetryTime: metav1.NewTime(until), Peers: peers}
		}
	}
	type verification = v1alpha1.LatencyVerification
	makeAll := func(of map[string][]func(*verification)) []*verification {
		var all []*verification
		for _, name := range []string{"d", "c", "b", "a"} {
			if changes, ok := of[name]; ok {
				all = append(all, makeVerification(name, changes...))
			}
		}
		return all
	}
	type nodes = map[string][]func(*verification)
	cases := map[string]struct {
		gate   func(*v1alpha1.LatencyGate)
		nodes  nodes
		change func(*Snapshot)
		want   []string
		// waiting is why node a waits, as a part of it.
		waiting string
	}{
		"no node waits":                                              {nil, nodes{"a": {verified}, "b": {verified}}, nil, nil, ""},
		"with the next verified node":                                {nil, nodes{"a": {waits}, "b": {waits}, "c": {verified}, "d": {verified}}, nil, []string{"a-c+"}, ""},
		"around the ring":                                            {nil, nodes{"a": {verified}, "c": {verified}, "d": {waits}}, nil, []string{"d-a+"}, ""},
		"with the peer of the accepted result":                       {nil, nodes{"a": {waits, accepted("d")}, "c": {verified}, "d": {verified}}, nil, []string{"a-d+"}, ""},
		"but not if that is not verified":                            {nil, nodes{"a": {waits, accepted("d")}, "c": {verified}, "d": {waits}}, nil, []string{"a-c+"}, ""},
		"no node is verified":                                        {nil, nodes{"a": {waits}, "b": {waits}, "c": {waits}}, nil, []string{"a-b"}, ""},
		"inconclusive nodes are peers":                               {nil, nodes{"a": {waits}, "b": {in(v1alpha1.VerificationInconclusive)}}, nil, []string{"a-b"}, ""},
		"failed ones are not":                                        {nil, nodes{"a": {waits}, "b": {in(v1alpha1.VerificationFailed)}}, nil, nil, "no other node"},
		"nor is the node itself":                                     {nil, nodes{"a": {waits}}, nil, nil, "no other node"},
		"not the peer with which it failed":                          {nil, nodes{"a": {waits, func(v *verification) { v.Status.SuspectPeer = "b" }}, "b": {waitingSince(time.Second)}, "c": {waitingSince(time.Second)}}, nil, []string{"a-c"}, ""},
		"not a node that is being measured":                          {nil, nodes{"a": {waits}, "b": {verified}, "c": {verified}}, func(l *Snapshot) { l.Busy["b"] = true }, []string{"a-c+"}, ""},
		"not a node that is not ready":                               {nil, nodes{"a": {waits}, "b": {verified}}, node("b", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }), nil, "no other node"},
		"the node that waited longest":                               {nil, nodes{"a": {waits}, "b": {waitingSince(time.Hour)}, "c": {verified}}, nil, []string{"b-c+"}, "others are measured first"},
		"as many as there are slots":                                 {parallel(2), nodes{"a": {waits}, "b": {waits}, "c": {waits}, "d": {waits}}, nil, []string{"a-b", "c-d"}, ""},
		"never one node twice":                                       {parallel(4), nodes{"a": {waits}, "b": {waits}, "c": {verified}}, nil, []string{"a-c+"}, ""},
		"those that are measured count":                              {parallel(2), nodes{"a": {waits}, "b": {waits}, "c": {waits}, "d": {waits}}, func(l *Snapshot) { l.Measuring = 1; l.Busy["c"], l.Busy["d"] = true, true }, []string{"a-b"}, ""},
		"no slot is free":                                            {nil, nodes{"a": {waits}, "b": {verified}}, func(l *Snapshot) { l.Measuring = 1 }, nil, "others are measured first"},
		"the peer of another node waits":                             {parallel(2), nodes{"a": {waits}, "b": {verified}}, func(l *Snapshot) { l.Measuring = 1; l.Busy["a"] = true }, nil, "others are measured first"},
		"a node that rests":                                          {nil, nodes{"a": {waits, rests(noon.Add(time.Second))}, "b": {verified}}, nil, nil, "the next try is at 12:00:01: NoProgress: why"},
		"others while a node rests":                                  {nil, nodes{"a": {waits, rests(noon.Add(time.Second))}, "b": {waitingSince(time.Second)}, "c": {verified}}, nil, []string{"b-c+"}, "next try"},
		"a node that has rested":                                     {nil, nodes{"a": {waits, rests(noon)}, "b": {verified}}, nil, []string{"a-b+"}, ""},
		"with another peer than one with which nothing was measured": {nil, nodes{"a": {waits, accepted("b"), rests(noon, "b")}, "b": {verified}, "c": {waitingSince(time.Second)}}, nil, []string{"a-c"}, ""},
		"or with that, if there is no other":                         {nil, nodes{"a": {waits, rests(noon, "c", "b")}, "b": {verified}, "c": {verified}}, nil, []string{"a-b+"}, ""},
		"a suspended gate":                                           {func(g *v1alpha1.LatencyGate) { g.Spec.Suspend = true }, nodes{"a": {waits}, "b": {verified}}, nil, nil, "suspended"},
		"a node that does not say it yet": {nil, nodes{"a": {waits}, "b": {verified}}, node("a", func(n *corev1.Node) {
			n.Status.Conditions = n.Status.Conditions[:1]
		}), nil, "being marked"},
		"a taint that is not there yet": {func(g *v1alpha1.LatencyGate) { g.Spec.Enforcement.Taint = &v1alpha1.GateTaint{Effect: "NoExecute"} },
			nodes{"a": {waits}, "b": {verified}}, node("a", func(n *corev1.Node) { n.Spec.Taints = nil }), nil, "being marked"},
		"the gate's own taint excludes no node": {func(g *v1alpha1.LatencyGate) { g.Spec.Enforcement.Taint = &v1alpha1.GateTaint{Effect: "NoExecute"} },
			nodes{"a": {waits}, "b": {waits}}, nil, []string{"a-b"}, ""},
		"a node that has just changed":              {nil, nodes{"a": {waits}, "b": {verified}}, node("a", func(n *corev1.Node) { n.Status.NodeInfo.BootID = "boot-2" }), nil, "just changed"},
		"a node that was made again":                {nil, nodes{"a": {waits}, "b": {verified}}, node("a", func(n *corev1.Node) { n.UID = "other" }), nil, "just changed"},
		"a node that is not ready":                  {nil, nodes{"a": {waits}, "b": {verified}}, node("a", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }), nil, "not ready"},
		"a cordoned node":                           {nil, nodes{"a": {waits}, "b": {verified}}, node("a", cordoned), nil, "cordoned"},
		"a cordoned node, tolerated":                {tolerates(corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}), nodes{"a": {waits}, "b": {verified}}, node("a", cordoned), []string{"a-b+"}, ""},
		"a cordoned node, tolerated for the server": {ofServer(corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}), nodes{"a": {waits}, "b": {verified}}, node("a", cordoned), nil, "cordoned"},
		"a cordoned peer, tolerated for the server": {ofServer(corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}), nodes{"a": {waits}, "b": {verified}}, node("b", cordoned), []string{"a-b+"}, ""},
		"a cordoned peer":                           {nil, nodes{"a": {waits}, "b": {verified}, "c": {waitingSince(0)}}, node("b", cordoned), []string{"a-c"}, ""},
		"a taint of another program": {nil, nodes{"a": {waits}, "b": {verified}}, node("a", func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule})
		}), nil, "tainted with gpu"},
		"a tolerated taint of another program": {tolerates(corev1.Toleration{Key: "gpu", Value: "yes"}), nodes{"a": {waits}, "b": {verified}}, node("a", func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "gpu", Value: "yes", Effect: corev1.TaintEffectNoSchedule})
		}), []string{"a-b+"}, ""},
		"a taint that is only a preference": {nil, nodes{"a": {waits}, "b": {verified}}, node("a", func(n *corev1.Node) {
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectPreferNoSchedule})
		}), []string{"a-b+"}, ""},
		"peers of another kind": {func(g *v1alpha1.LatencyGate) {
			g.Spec.Template.Spec.Placement.Server.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": "reference"}}
		},
			nodes{"a": {waits}, "b": {verified}}, func(l *Snapshot) {
				l.Nodes["z"] = makeNode("z", func(n *corev1.Node) { n.Labels["role"] = "reference" })
			}, []string{"a-z"}, ""},
		"peers by name": {func(g *v1alpha1.LatencyGate) { g.Spec.Template.Spec.Placement.Server.NodeNames = []string{"c", "d"} },
			nodes{"a": {waits}, "b": {verified}, "c": {verified}}, nil, []string{"a-c+"}, ""},
		"one peer for all": {func(g *v1alpha1.LatencyGate) { g.Spec.Template.Spec.Placement.Server.NodeName = "c" },
			nodes{"a": {waits}, "b": {verified}, "c": {verified}}, nil, []string{"a-c+"}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := makeGate()
			if c.gate != nil {
				c.gate(g)
			}
			l := makeSnapshot(g, makeAll(c.nodes)...)
			if c.change != nil {
				c.change(l)
			}
			got := l.Choose(nil)
			if diff := cmp.Diff(c.want, started(got)); diff != "" {
				t.Error(diff)
			}
			if why := got.Waiting["a"]; c.waiting == "" && why != "" || !strings.Contains(why, c.waiting) {
				t.Errorf("node a waits because %q, want %q", why, c.waiting)
			}
		})
	}
}

func TestChooseDue(t *testing.T) {
	measuredAt := func(d time.Duration) func(*v1alpha1.LatencyVerification) {
		return func(v *v1alpha1.LatencyVerification) { v.Status.LastMeasurementTime = at(d) }
	}
	turning := func(v *v1alpha1.LatencyVerification) { unverified(v1alpha1.ReasonScheduleDue)(v); lent(v) }
	requested := func(v *v1alpha1.LatencyVerification) { v.Status.TurnRequestTime = at(time.Minute) }
	rests := func(v *v1alpha1.LatencyVerification) {
		v.Status.StepFailure = OfNode.StepFailure(nil, v1alpha1.ReasonNoProgress, "why", noon)
	}
	fruitless := func(since time.Duration) func(*Snapshot) {
		return func(l *Snapshot) {
			l.Schedule.Status = &v1alpha1.ScheduleStatus{Fruitless: v1alpha1.MaxFruitless, FruitlessTime: new(metav1.NewMicroTime(ago(since)))}
		}
	}
	cases := map[string]struct {
		parallel      int32
		verifications []*v1alpha1.LatencyVerification
		change        func(*Snapshot)
		want          []string
	}{
		"measured before and after":  {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(time.Hour)), makeVerification("b", measuredAt(3*time.Hour))}, nil, []string{"b"}},
		"longest ago first":          {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour)), makeVerification("b", measuredAt(4*time.Hour))}, nil, []string{"b"}},
		"as many as there are slots": {2, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour)), makeVerification("b", measuredAt(4*time.Hour)), makeVerification("c", measuredAt(5*time.Hour)), makeVerification("d")}, nil, []string{"c", "a"}},
		"as many as have a peer":     {2, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour)), makeVerification("b", measuredAt(4*time.Hour)), makeVerification("c", measuredAt(5*time.Hour))}, nil, []string{"c"}},
		"its only peer is cordoned": {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour)), makeVerification("b")}, func(l *Snapshot) {
			l.Nodes["b"].Spec.Unschedulable = true
		}, nil},
		"its only peer is in use": {2, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour)), makeVerification("b")}, func(l *Snapshot) {
			l.Measuring, l.Busy["b"] = 1, true
		}, nil},
		"its only peer failed":                             {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour)), makeVerification("b", in(v1alpha1.VerificationFailed))}, nil, nil},
		"it is the only node":                              {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour))}, nil, nil},
		"the only peer with which it did not fail is gone": {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour), func(v *v1alpha1.LatencyVerification) { v.Status.SuspectPeer = "b" }), makeVerification("b")}, nil, nil},
		"the window has ended":                             {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour)), makeVerification("b")}, func(l *Snapshot) { l.Schedule.Closed = true }, nil},
		"not while others wait":                            {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour)), makeVerification("b", waitingSince(0))}, nil, nil},
		"not while one is being measured":                  {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour)), makeVerification("b")}, func(l *Snapshot) { l.Measuring = 1 }, nil},
		"not while another is about to be": {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour)), makeVerification("b", turning), makeVerification("c")}, func(l *Snapshot) {
			l.Nodes["b"].Status.Conditions = l.Nodes["b"].Status.Conditions[:1]
		}, nil},
		"no failed one":                                   {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour), in(v1alpha1.VerificationFailed)), makeVerification("b")}, nil, nil},
		"nor one that could not be decided":               {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour), in(v1alpha1.VerificationInconclusive)), makeVerification("b")}, nil, nil},
		"one that a user requested":                       {1, []*v1alpha1.LatencyVerification{makeVerification("a", requested), makeVerification("b")}, nil, []string{"a"}},
		"also without a schedule, before others":          {1, []*v1alpha1.LatencyVerification{makeVerification("a", requested), makeVerification("b"), makeVerification("c")}, func(l *Snapshot) { l.Schedule = Schedule{} }, []string{"a"}},
		"but not while the gate is suspended":             {1, []*v1alpha1.LatencyVerification{makeVerification("a", requested), makeVerification("b")}, func(l *Snapshot) { l.Gate.Spec.Suspend = true }, nil},
		"not while another rests":                         {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour)), makeVerification("b", unverified(v1alpha1.ReasonIdentityChanged), rests), makeVerification("c")}, nil, nil},
		"not while it rests itself":                       {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour), rests), makeVerification("b")}, nil, nil},
		"not while another waits for a second peer":       {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour)), makeVerification("b", unverified(v1alpha1.ReasonSecondPeer), func(v *v1alpha1.LatencyVerification) { v.Status.SuspectPeer = "a" }), makeVerification("c")}, func(l *Snapshot) { l.Busy["c"] = true }, nil},
		"not while the cache does not show how one ended": {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour)), makeVerification("b", in(v1alpha1.VerificationMeasuring)), makeVerification("c")}, nil, nil},
		"the schedule is paused":                          {2, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour)), makeVerification("b")}, fruitless(time.Hour), nil},
		"a user's request is not":                         {2, []*v1alpha1.LatencyVerification{makeVerification("a", requested), makeVerification("b")}, fruitless(time.Hour), []string{"a"}},
		"it tries one at its next time":                   {2, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour)), makeVerification("b", measuredAt(4*time.Hour)), makeVerification("c"), makeVerification("d")}, fruitless(3 * time.Hour), []string{"b"}},
		"and no other meanwhile":                          {3, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour)), makeVerification("b", turning), makeVerification("c"), makeVerification("d")}, fruitless(3 * time.Hour), nil},
		"one that was never measured": {1, []*v1alpha1.LatencyVerification{makeVerification("a", func(v *v1alpha1.LatencyVerification) {
			v.Status.LastMeasurementTime, v.Status.LastTransitionTime = nil, at(3*time.Hour)
		}), makeVerification("b")}, nil, []string{"a"}},
		"not while its devices are recreated": {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour)), makeVerification("b", measuredAt(3*time.Hour))}, func(l *Snapshot) {
			l.Nodes["a"].Annotations = map[string]string{foreign.AnnotationNodeState: "Draining"}
		}, []string{"b"}},
		"one that is not ready":               {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour)), makeVerification("b")}, func(l *Snapshot) { l.Nodes["a"].Status.Conditions[0].Status = corev1.ConditionFalse }, nil},
		"one that was measured in the future": {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(-365*24*time.Hour)), makeVerification("b")}, nil, []string{"a"}},
		"clocks that differ a little":         {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(-time.Second)), makeVerification("b")}, nil, nil},
		"no schedule":                         {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(30*24*time.Hour)), makeVerification("b")}, func(l *Snapshot) { l.Schedule.Fired = time.Time{} }, nil},
		"a suspended gate":                    {1, []*v1alpha1.LatencyVerification{makeVerification("a", measuredAt(3*time.Hour)), makeVerification("b")}, func(l *Snapshot) { l.Gate.Spec.Suspend = true }, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := makeGate(func(g *v1alpha1.LatencyGate) { g.Spec.MaxParallel = new(intstr.FromInt32(c.parallel)) })
			l := makeSnapshot(g, c.verifications...)
			l.Schedule.Fired = ago(2 * time.Hour)
			if c.change != nil {
				c.change(l)
			}
			var got []string
			for _, turn := range l.Choose(nil).Due {
				v := turn.Verification
				got = append(got, v.Spec.NodeName)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Two pairs with a range of type Static would have the same two addresses.
func TestAddressesOfOnePair(t *testing.T) {
	vf := func(kind v1alpha1.IPAMType) v1alpha1.Network {
		return v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "a/vf", IPAM: &v1alpha1.IPAM{Type: kind, Range: "198.18.0.0/24"}}}}
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.MeasurementSpec)
		want   int
	}{
		"other addresses": {func(*v1alpha1.MeasurementSpec) {}, 2},
		"Whereabouts":     {func(s *v1alpha1.MeasurementSpec) { s.Network = vf(v1alpha1.IPAMWhereabouts) }, 2},
		"Static":          {func(s *v1alpha1.MeasurementSpec) { s.Network = vf(v1alpha1.IPAMStatic) }, 1},
		"Static a variant": {func(s *v1alpha1.MeasurementSpec) {
			s.Variants = []v1alpha1.Variant{{Name: "vf", Network: new(vf(v1alpha1.IPAMStatic))}}
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := makeGate(func(g *v1alpha1.LatencyGate) {
				g.Spec.MaxParallel = new(intstr.FromInt32(2))
				c.change(&g.Spec.Template.Spec)
			})
			var all []*v1alpha1.LatencyVerification
			for _, name := range []string{"a", "b", "c", "d"} {
				all = append(all, makeVerification(name, waitingSince(time.Minute)))
			}
			if got := len(makeSnapshot(g, all...).Choose(nil).Starts); got != c.want {
				t.Errorf("%d pairs at once", got)
			}
		})
	}
}

// A node with verifications of several gates is verified only if all of them are in state Verified, in any order.
func TestStandings(t *testing.T) {
	verified, failed := *makeVerification("a"), *makeVerification("a", in(v1alpha1.VerificationFailed))
	for name, c := range map[string]struct {
		all  []v1alpha1.LatencyVerification
		want v1alpha1.VerificationState
	}{
		"one":              {[]v1alpha1.LatencyVerification{verified}, v1alpha1.VerificationVerified},
		"both":             {[]v1alpha1.LatencyVerification{verified, verified}, v1alpha1.VerificationVerified},
		"the first alone":  {[]v1alpha1.LatencyVerification{verified, failed}, v1alpha1.VerificationFailed},
		"the second alone": {[]v1alpha1.LatencyVerification{failed, verified}, v1alpha1.VerificationFailed},
	} {
		if got := statesOf(c.all)["a"]; got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestChooseKeepsNodesApart checks that no node is in two benchmarks, for snapshots of many sizes and numbers of slots.
func TestChooseKeepsNodesApart(t *testing.T) {
	for size := 1; size <= 12; size++ {
		for slots := int32(1); slots <= 8; slots++ {
			for verified := 0; verified <= size; verified++ {
				var all []*v1alpha1.LatencyVerification
				for i := range size {
					v := makeVerification(fmt.Sprintf("n%02d", i), waitingSince(time.Minute))
					if i < verified {
						v = makeVerification(v.Spec.NodeName)
					}
					all = append(all, v)
				}
				got := makeSnapshot(makeGate(func(g *v1alpha1.LatencyGate) { g.Spec.MaxParallel = new(intstr.FromInt32(slots)) }), all...).Choose(nil)
				seen := map[string]bool{}
				for _, s := range got.Starts {
					for _, name := range []string{s.Verification.Spec.NodeName, s.Peer} {
						if seen[name] {
							t.Fatalf("%d nodes, %d verified, %d slots: %s twice in %v", size, verified, slots, name, started(got))
						}
						seen[name] = true
					}
				}
				waiting := size - verified
				if want := min(int(slots), waiting); waiting > 0 && size > 1 && (len(got.Starts) == 0 || len(got.Starts) > want) {
					t.Fatalf("%d nodes, %d verified, %d slots: %v", size, verified, slots, started(got))
				}
			}
		}
	}
}

func BenchmarkChoose(b *testing.B) {
	for _, waiting := range []bool{false, true} {
		b.Run(fmt.Sprintf("5000 nodes, waiting=%t", waiting), func(b *testing.B) {
			var all []*v1alpha1.LatencyVerification
			for i := range 5000 {
				v := makeVerification(fmt.Sprintf("node-%04d", i))
				if waiting && i > 10 {
					unverified(v1alpha1.ReasonIdentityChanged)(v)
				}
				all = append(all, v)
			}
			l := makeSnapshot(makeGate(), all...)
			for b.Loop() {
				if got := l.Choose(nil); waiting != (len(got.Starts) == 1) {
					b.Fatal(started(got))
				}
			}
		})
	}
}

func TestSchedule(t *testing.T) {
	zurich := func(text string) time.Time {
		zone, err := time.LoadLocation("Europe/Zurich")
		if err != nil {
			t.Fatal(err)
		}
		when, err := time.ParseInLocation("2006-01-02 15:04", text, zone)
		if err != nil {
			t.Fatal(err)
		}
		return when
	}
	cases := map[string]struct {
		schedule string
		now      string
		want     string
	}{
		"last night":                {"30 2 * * *", "2026-05-04 12:00", "2026-05-04 02:30"},
		"at the minute":             {"30 2 * * *", "2026-05-04 02:30", "2026-05-04 02:30"},
		"a minute before":           {"30 2 * * *", "2026-05-04 02:29", "2026-05-03 02:30"},
		"the last of two":           {"0,5 2 * * *", "2026-05-04 12:00", "2026-05-04 02:05"},
		"every five minutes":        {"*/5 * * * *", "2026-05-04 12:04", "2026-05-04 12:00"},
		"last Sunday":               {"@weekly", "2026-05-04 12:00", "2026-05-03 00:00"},
		"the last leap day":         {"0 3 29 2 *", "2026-05-04 12:00", "2024-02-29 03:00"},
		"across the end of summer":  {"0 4 * * *", "2026-10-25 12:00", "2026-10-25 04:00"},
		"an hour that there is not": {"30 2 * * *", "2026-03-29 12:00", "2026-03-29 03:00"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			schedule, zone, err := scheduleOf(v1alpha1.LatencyGateSpec{Schedule: c.schedule, TimeZone: "Europe/Zurich"})
			if err != nil {
				t.Fatal(err)
			}
			if got := lastFired(schedule, zurich(c.now).In(zone)); !got.Equal(zurich(c.want)) {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
	for _, spec := range []v1alpha1.LatencyGateSpec{
		{Schedule: "every day"}, {Schedule: "60 * * * *"}, {Schedule: "@daily", TimeZone: "Europe/Zuerich"}, {Schedule: "@daily", TimeZone: "Local"},
	} {
		if _, _, err := scheduleOf(spec); err == nil {
			t.Errorf("%q in %q is no schedule", spec.Schedule, spec.TimeZone)
		}
	}
	if schedule, _, err := scheduleOf(v1alpha1.LatencyGateSpec{}); schedule != nil || err != nil {
		t.Errorf("no schedule is %v, %v", schedule, err)
	}
}

func TestPeersInAnyOrder(t *testing.T) {
	// The choice must not depend on the order of a map.
	want := ""
	for range 20 {
		var all []*v1alpha1.LatencyVerification
		for _, name := range []string{"e", "b", "d", "a", "c"} {
			all = append(all, makeVerification(name, waitingSince(time.Minute)))
		}
		slices.Reverse(all)
		got := fmt.Sprint(started(makeSnapshot(makeGate(func(g *v1alpha1.LatencyGate) { g.Spec.MaxParallel = new(intstr.FromInt32(2)) }), all...).Choose(nil)))
		if want == "" {
			want = got
		}
		if got != want {
			t.Fatalf("got %s and %s", want, got)
		}
	}
}

// A node that cannot be measured, or that waits too long, is counted; one that waits for a component is not, at first.
func TestChooseSaysWhatNodesWaitFor(t *testing.T) {
	tainted := func(key string) func(*Snapshot) {
		return func(l *Snapshot) {
			l.Nodes["a"].Spec.Taints = append(l.Nodes["a"].Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
		}
	}
	for name, c := range map[string]struct {
		since                  time.Duration
		change                 func(*Snapshot)
		waiting                string
		unmeasurable, overlong bool
	}{
		"a control plane that the template does not tolerate": {time.Minute, tainted(controlPlane), "exclude control planes in spec.nodeSelector", true, false},
		"a taint of a user":                  {time.Minute, tainted("dedicated"), "tainted with dedicated; tolerate the taint in spec.template.spec.pods.tolerations, or remove the taint if no workload needs it", true, false},
		"a taint of Cilium":                  {time.Minute, tainted("node.cilium.io/agent-not-ready"), "tainted with node.cilium.io/agent-not-ready: Cilium starts its agent on the node", false, false},
		"a taint of Cilium for an hour":      {time.Hour, tainted("node.cilium.io/agent-not-ready"), "Cilium starts its agent", false, true},
		"a taint of the autoscaler":          {time.Minute, tainted("ToBeDeletedByClusterAutoscaler"), "about to delete the node", false, false},
		"a cordon":                           {time.Minute, func(l *Snapshot) { l.Nodes["a"].Spec.Unschedulable = true }, "cordoned: who cordoned", false, false},
		"a reboot":                           {time.Minute, func(l *Snapshot) { l.Nodes["a"].Status.Conditions[0].Status = corev1.ConditionFalse }, "not ready", false, false},
		"a node that does not come back":     {time.Hour, func(l *Snapshot) { l.Nodes["a"].Status.Conditions[0].Status = corev1.ConditionUnknown }, "not ready", false, true},
		"no other node":                      {time.Minute, func(l *Snapshot) { delete(l.Nodes, "b") }, "there is no other node to measure it with", true, false},
		"the other node reboots":             {time.Minute, func(l *Snapshot) { l.Nodes["b"].Status.Conditions[0].Status = corev1.ConditionFalse }, "usable now; b: the node is not ready", false, false},
		"the other node failed":              {time.Minute, func(l *Snapshot) { l.States["b"] = v1alpha1.VerificationFailed }, "there is no other node to measure it with", true, false},
		"the other node is in use":           {time.Hour, func(l *Snapshot) { l.Busy["b"] = true }, "is in use", false, false},
		"it failed with the other node":      {time.Minute, func(l *Snapshot) { l.Verifications[0].Status.SuspectPeer = "b" }, "it has failed with the only other node", true, false},
		"its turn":                           {time.Hour, func(l *Snapshot) { l.Measuring = 1 }, "others are measured first", false, false},
		"a suspended gate":                   {time.Hour, func(l *Snapshot) { l.Gate.Spec.Suspend = true }, "suspended", false, false},
		"a mark that another program undoes": {time.Hour, func(l *Snapshot) { l.Nodes["a"].Status.Conditions = l.Nodes["a"].Status.Conditions[:1] }, "being marked", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := makeSnapshot(makeGate(), makeVerification("a", waitingSince(c.since)), makeVerification("b"))
			c.change(l)
			got := l.Choose(nil)
			if !strings.Contains(got.Waiting["a"], c.waiting) || (len(got.Unmeasurable) > 0) != c.unmeasurable || (len(got.Overlong) > 0) != c.overlong || len(got.Starts) > 0 {
				t.Errorf("waits because %q, unmeasurable %v, too long %v, started %v", got.Waiting["a"], got.Unmeasurable, got.Overlong, started(got))
			}
		})
	}
}

// A schedule for every five minutes cannot be kept with many nodes, and the gate says so.
func TestScheduleTooShort(t *testing.T) {
	var all []*v1alpha1.LatencyVerification
	for i := range 20 {
		all = append(all, makeVerification(fmt.Sprintf("n%02d", i), func(v *v1alpha1.LatencyVerification) {
			v.Status.LastMeasurementTime = at(time.Duration(i) * 5 * time.Minute)
		}))
	}
	l := makeSnapshot(makeGate(), all...)
	l.Schedule.Fired, l.Schedule.Before = noon, ago(5*time.Minute)
	if got := l.Choose(nil); got.Overdue != 18 || len(got.Due) != 1 || got.Due[0].Verification.Spec.NodeName != "n19" {
		t.Errorf("%d are overdue, and due are %v", got.Overdue, got.Due)
	}
	l = makeSnapshot(makeGate(), all...)
	l.Schedule.Fired, l.Schedule.Closed = ago(7*time.Minute), true
	if got := l.Choose(nil); got.Overdue != 18 || len(got.Due) > 0 {
		t.Errorf("after the window, %d are overdue, and due are %v", got.Overdue, got.Due)
	}
	l.Schedule.Fired, l.Schedule.Closed = ago(200*time.Minute), false
	if got := l.Choose(nil); got.Overdue != 0 || len(got.Due) > 0 {
		t.Errorf("%d are overdue, and due are %v", got.Overdue, got.Due)
	}
}

// A node in its turn waits for its marks, its peer and its slot, for a moment; whatever else stands in the way, its turn ends.
func TestEndsOfTurns(t *testing.T) {
	began := func(d time.Duration) func(*v1alpha1.LatencyVerification) {
		return func(v *v1alpha1.LatencyVerification) { v.Status.Turn.StartTime = *at(d) }
	}
	for name, c := range map[string]struct {
		of     func(*v1alpha1.LatencyVerification)
		change func(*Snapshot)
		ends   string
	}{
		"nothing stands in the way": {nil, nil, ""},
		"it is being marked":        {nil, func(l *Snapshot) { l.Nodes["a"].Status.Conditions = l.Nodes["a"].Status.Conditions[:1] }, ""},
		"for too long":              {began(turnLimit), func(l *Snapshot) { l.Nodes["a"].Status.Conditions = l.Nodes["a"].Status.Conditions[:1] }, "being marked"},
		"its mark is refused": {func(v *v1alpha1.LatencyVerification) {
			v.Status.MarkFailures = []v1alpha1.MarkFailure{{StepFailure: v1alpha1.StepFailure{Message: "no"}}}
		}, func(l *Snapshot) { l.Nodes["a"].Status.Conditions = l.Nodes["a"].Status.Conditions[:1] }, "cannot be marked"},
		"its peer is in use":              {nil, func(l *Snapshot) { l.Busy["b"] = true }, ""},
		"its peer is in use for too long": {began(turnLimit), func(l *Snapshot) { l.Busy["b"] = true }, "in use"},
		"there is no slot":                {nil, func(l *Snapshot) { l.Measuring = 2 }, ""},
		"there is none for too long":      {began(time.Hour), func(l *Snapshot) { l.Measuring = 2 }, "others"},
		"the gate is suspended":           {nil, func(l *Snapshot) { l.Gate.Spec.Suspend = true }, "suspended"},
		"it is cordoned": {nil, func(l *Snapshot) {
			l.Nodes["a"].Spec.Taints = append(l.Nodes["a"].Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
		}, "cordon"},
		"it is not ready":       {nil, func(l *Snapshot) { l.Nodes["a"].Status.Conditions[0].Status = corev1.ConditionUnknown }, "not ready"},
		"its devices are away":  {nil, func(l *Snapshot) { delete(l.Nodes["a"].Status.Allocatable, "amd.com/sf_vf") }, "does not report"},
		"its peer is not ready": {nil, func(l *Snapshot) { l.Nodes["b"].Status.Conditions[0].Status = corev1.ConditionUnknown }, "not ready"},
		"its peer failed":       {nil, func(l *Snapshot) { l.States["b"] = v1alpha1.VerificationFailed }, "no other node"},
		"its peer is gone":      {nil, func(l *Snapshot) { delete(l.Nodes, "b") }, "no other node"},
	} {
		t.Run(name, func(t *testing.T) {
			a := makeVerification("a", unverified(v1alpha1.ReasonScheduleDue), lent)
			if c.of != nil {
				c.of(a)
			}
			l := makeSnapshot(makeGate(func(g *v1alpha1.LatencyGate) { g.Spec.MaxParallel = new(intstr.FromInt32(2)) }), a, makeVerification("b"))
			if c.change != nil {
				c.change(l)
			}
			got := l.Choose(nil)
			why := ""
			if len(got.Ended) > 0 {
				why = got.Ended[0].Why
			}
			if c.ends == "" && why != "" || !strings.Contains(why, c.ends) || len(got.Overlong)+len(got.Unmeasurable) > 0 {
				t.Errorf("ends because %q, want %q; %+v", why, c.ends, got)
			}
			if len(got.Ended)+len(got.Starts)+len(got.Waiting) != 1 {
				t.Errorf("starts %v, waits %v, ends %v", started(got), got.Waiting, got.Ended)
			}
		})
	}
}

// Turns in a row that end without a result pause the schedule; a result of any node ends that.
func TestFruitlessTurns(t *testing.T) {
	failed := func(d time.Duration) func(*v1alpha1.LatencyVerification) {
		return func(v *v1alpha1.LatencyVerification) {
			v.Status.StepFailure = OfNode.StepFailure(v.Status.StepFailure, v1alpha1.ReasonEnvironmentFailed, "why", ago(d))
			v.Status.LastMeasurementTime = at(24 * time.Hour)
		}
	}
	measured := func(d time.Duration) func(*v1alpha1.LatencyVerification) {
		return func(v *v1alpha1.LatencyVerification) { v.Status.LastMeasurementTime = at(d) }
	}
	broken := func(d time.Duration) func(*v1alpha1.LatencyVerification) {
		return func(v *v1alpha1.LatencyVerification) {
			v.Status.State, v.Status.LastMeasurementTime = v1alpha1.VerificationInconclusive, at(d)
			v.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionVerified, Reason: v1alpha1.ReasonBenchmarkFailed}}
		}
	}
	type changes = []func(*v1alpha1.LatencyVerification)
	known := &v1alpha1.ScheduleStatus{Fruitless: 3, FruitlessTime: new(metav1.NewMicroTime(ago(30 * time.Minute)))}
	for name, c := range map[string]struct {
		before *v1alpha1.ScheduleStatus
		nodes  []changes
		want   int32
	}{
		"none":                      {&v1alpha1.ScheduleStatus{}, []changes{{measured(time.Hour)}}, 0},
		"some at once":              {&v1alpha1.ScheduleStatus{}, []changes{{failed(time.Minute)}, {failed(time.Minute)}, {failed(2 * time.Minute)}}, 3},
		"more than before":          {known, []changes{{failed(time.Minute)}, {failed(time.Hour)}}, 4},
		"the same as before":        {known, []changes{{failed(30 * time.Minute)}, {failed(time.Hour)}}, 3},
		"a result since":            {known, []changes{{failed(30 * time.Minute)}, {measured(time.Minute)}}, 0},
		"a result, and one more":    {known, []changes{{failed(time.Minute)}, {measured(2 * time.Minute)}}, 1},
		"a failed benchmark":        {known, []changes{{failed(time.Hour), broken(time.Minute)}, {measured(31 * time.Minute)}}, 4},
		"one of before":             {known, []changes{{failed(time.Hour), broken(30 * time.Minute)}}, 3},
		"an inconclusive verdict":   {known, []changes{{in(v1alpha1.VerificationInconclusive), measured(time.Minute)}}, 0},
		"of a clock that was ahead": {known, []changes{{failed(-time.Hour)}, {measured(-time.Hour)}}, 3},
		"a changed node that rests": {known, []changes{{unverified(v1alpha1.ReasonIdentityChanged), failed(time.Minute)}}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*v1alpha1.LatencyVerification
			for i, changes := range c.nodes {
				all = append(all, makeVerification(fmt.Sprint("n", i), append(changes, func(v *v1alpha1.LatencyVerification) {
					if v.Status.LastMeasurementTime.Equal(at(time.Hour)) {
						v.Status.LastMeasurementTime = at(24 * time.Hour)
					}
				})...))
			}
			s := Schedule{Status: c.before}
			for range 2 { // The second time, nothing is new.
				if s.count(all, noon); s.Status.Fruitless != c.want {
					t.Errorf("%d turns in a row, want %d", s.Status.Fruitless, c.want)
				}
			}
		})
	}
}
