package gate

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

// A gate that finds nodes that it can never measure says so and holds none of them back. It holds back nodes that join, and nodes for
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
		"another one joins":     {[]*corev1.Node{makeNode("a", before, tainted), makeNode("b", tainted, func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(ago(time.Hour)) })}, nil, "a: the node is tainted with gpu"},
		"the gate has begun":    {[]*corev1.Node{makeNode("a", before)}, []v1alpha1.LatencyVerification{*makeVerification("x")}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := makeGate()
			nodes := []corev1.Node{*makeNode("x", func(n *corev1.Node) { n.Labels = nil })}
			for _, n := range c.nodes {
				nodes = append(nodes, *n)
			}
			s := &snapshot{Snapshot: turns.New(g, []v1alpha1.LatencyGate{*g}, nodes, c.known, nil, noon)}
			if s.observeIntroduction(); (c.want != "") != (s.unsettled != nil) || s.unsettled != nil && !strings.Contains(s.unsettled.Message, "; "+c.want) {
				t.Fatalf("%+v", s.unsettled)
			}
			summarize(s, s.Choose(nil))
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

// Any user may create DaemonSets: a gate does not spend its time with reading them.
func TestSuppliersThatTakeLong(t *testing.T) {
	reads := 0
	api := interceptor.NewClient(nil, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		reads++
		return &meta.NoKindMatchError{}
	}})
	for after, want := range map[time.Duration]bool{5 * time.Second: false, 30 * time.Second: false, 6 * time.Minute: true, -time.Second: true} {
		c := suppliers{read: noon, took: 30 * time.Second}
		reads = 0
		if _, err := c.get(t.Context(), api, noon.Add(after)); err != nil || reads > 0 != want {
			t.Errorf("%s after a read of 30s: %d reads, %v", after, reads, err)
		}
	}
}
