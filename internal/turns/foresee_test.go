package turns

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// In every wave, a node is part of one measurement, at most as many nodes are measured as maxParallel says, and all waves together measure
// each node once.
func TestForeseenWaves(t *testing.T) {
	for _, size := range []int{2, 3, 10, 57} {
		for _, parallel := range []string{"1", "10%", "50%", "100%"} {
			g := makeGate(func(g *v1alpha1.LatencyGate) { g.Spec.MaxParallel = new(intstr.Parse(parallel)) })
			var nodes []corev1.Node
			for i := range size {
				nodes = append(nodes, *makeNode(fmt.Sprintf("n%03d", i)))
			}
			out := Foresee(g, nodes, nil, nil, noon)
			most, measured := g.Spec.Parallel(size), []string{}
			for _, wave := range out.Waves {
				var busy []string
				for _, pair := range wave {
					busy, measured = append(busy, pair.ClientNode, pair.ServerNode), append(measured, pair.ClientNode)
				}
				slices.Sort(busy)
				if len(wave) > most || len(slices.Compact(slices.Clone(busy))) != len(busy) {
					t.Errorf("%d nodes, %s: a wave of %v", size, parallel, wave)
				}
			}
			slices.Sort(measured)
			if !slices.Equal(measured, out.Nodes) || len(out.Held) != size || len(out.First) != size || out.Never != "" || len(out.Waiting) != 0 {
				t.Errorf("%d nodes, %s: measured %v; %+v", size, parallel, measured, out)
			}
		}
	}
}

// What a gate has verified is not measured or held back again, but what has changed since is.
func TestForeseenOfAGateThatExists(t *testing.T) {
	g := makeGate()
	nodes := []corev1.Node{*makeNode("a"), *makeNode("b"), *makeNode("c", func(n *corev1.Node) { n.Status.NodeInfo.BootID = "boot-2" })}
	known := []v1alpha1.LatencyVerification{*makeVerification("a"), *makeVerification("b"), *makeVerification("c")}
	out := Foresee(g, nodes, []v1alpha1.LatencyGate{*g}, known, noon)
	if fmt.Sprint(out.Waves, out.Held, out.First) != "[[{c b}]] [c] []" {
		t.Errorf("%+v", out)
	}
	if known[2].Status.State != v1alpha1.VerificationVerified {
		t.Error("it changed its input")
	}
}

// What `plan` shows is what the gate would do: a gate that was created again measures its nodes again,
// and a key that a node does not report now is no change, until its limit.
func TestForeseenIsWhatHappens(t *testing.T) {
	noDevices := func(n *corev1.Node) { delete(n.Status.Allocatable, "amd.com/sf_vf") }
	for name, c := range map[string]struct {
		gate *v1alpha1.LatencyGate
		node *corev1.Node
		v    *v1alpha1.LatencyVerification
		// stale is why the verification of node a does not apply.
		stale, want string
	}{
		"a gate that was created again": {makeGate(func(g *v1alpha1.LatencyGate) { g.UID = "uid-other" }), makeNode("a"), makeVerification("a"),
			v1alpha1.ReasonGateReplaced, "[[{a b}] [{b a}]] [a b] []"},
		"another machine in a gate that could measure none": {makeGate(func(g *v1alpha1.LatencyGate) { g.Status.Unsettled = true }),
			makeNode("a", func(n *corev1.Node) { n.UID, n.Status.NodeInfo.SystemUUID = "uid-again", "uuid-2" }),
			makeVerification("a", in(v1alpha1.VerificationUnverified), func(v *v1alpha1.LatencyVerification) {
				v.Status.Introduced, v.Status.SystemUUID, v.Status.Accepted, v.Status.LastMeasurementTime = true, "uuid-1", nil, nil
			}), v1alpha1.ReasonNodeReplaced, "[[{a b}]] [a] []"},
		"a device plugin restarts":             {makeGate(), makeNode("a", noDevices), makeVerification("a"), "", "[] [] []"},
		"the same, of a node that is measured": {makeGate(), makeNode("a", noDevices), makeVerification("a", in(v1alpha1.VerificationMeasuring)), "", "[] [a] [a]"},
	} {
		gates, nodes := []v1alpha1.LatencyGate{*c.gate}, []corev1.Node{*c.node, *makeNode("b")}
		known := []v1alpha1.LatencyVerification{*c.v, *makeVerification("b")}
		out := Foresee(c.gate, nodes, gates, known, noon)
		var waiting []string
		for _, line := range out.Waiting {
			waiting = append(waiting, line.Name)
		}
		if got := fmt.Sprint(out.Waves, out.Held, waiting); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if got := New(c.gate, gates, nodes, known, nil, noon).Compare(c.v, c.node).Stale; got != c.stale {
			t.Errorf("%s: stale because %q, want %q", name, got, c.stale)
		}
	}
}
