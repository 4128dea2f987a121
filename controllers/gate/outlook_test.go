package gate

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// A gate that is introduced to nodes that it can never measure says so and holds none back. It holds back nodes that join, and nodes for
// which it only has to wait.
func TestNever(t *testing.T) {
	before := func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(ago(48 * time.Hour)) }
	tainted := func(n *corev1.Node) {
		n.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	}
	cases := map[string]struct {
		nodes []*corev1.Node
		known []v1alpha1.LatencyVerification
		want  string
	}{
		"two nodes":             {[]*corev1.Node{makeNode("a", before), makeNode("b", before)}, nil, ""},
		"one node":              {[]*corev1.Node{makeNode("a", before)}, nil, "a: there is no other node"},
		"one that joins":        {[]*corev1.Node{makeNode("a", func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(ago(time.Hour)) })}, nil, ""},
		"a taint on all":        {[]*corev1.Node{makeNode("a", before, tainted), makeNode("b", before, tainted)}, nil, "a: the node is tainted with gpu"},
		"a taint on one of two": {[]*corev1.Node{makeNode("a", before), makeNode("b", before, tainted)}, nil, "a: there is no other node"},
		"one is not ready":      {[]*corev1.Node{makeNode("a", before), makeNode("b", before, func(n *corev1.Node) { n.Status.Conditions = nil })}, nil, ""},
		"the gate has begun":    {[]*corev1.Node{makeNode("a", before)}, []v1alpha1.LatencyVerification{*makeVerification("x")}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := makeGate()
			s := newSnapshot(g, noon)
			nodes := []corev1.Node{*makeNode("x", func(n *corev1.Node) { n.Labels = nil })}
			for _, n := range c.nodes {
				nodes = append(nodes, *n)
			}
			s.assign([]v1alpha1.LatencyGate{*g}, nodes, c.known)
			if s.observeIntroduction(); (c.want != "") != (s.unsettled != nil) || s.unsettled != nil && !strings.Contains(s.unsettled.Message, "; "+c.want) {
				t.Fatalf("%+v", s.unsettled)
			}
			summarize(s, choose(s))
			ready := ""
			for _, condition := range g.Status.Conditions {
				if condition.Type == v1alpha1.ConditionReady {
					ready = string(condition.Status) + " " + condition.Reason
				}
			}
			if (ready == "False CannotSettle") != (c.want != "") {
				t.Errorf("Ready is %s", ready)
			}
		})
	}
}
