package gate

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

// A node that one gate gives up has the marks of the gate that owns it then, which hold it back until that gate has verified it, or
// those of a gate that still retains it: no change of gates leaves a moment in which the node is free.
func TestMarksAfterAGate(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	second := func(change func(*v1alpha1.LatencyGate)) v1alpha1.LatencyGate {
		g := makeGate(func(g *v1alpha1.LatencyGate) { g.Name, g.UID = "second", "uid-second" })
		if change != nil {
			change(g)
		}
		return *g
	}
	deselects := func(g *v1alpha1.LatencyGate) { g.Spec.NodeSelector.MatchLabels = map[string]string{"role": "slow"} }
	deleted := func(g *v1alpha1.LatencyGate) {
		g.DeletionTimestamp, g.Finalizers = at(0), []string{v1alpha1.FinalizerNode}
	}
	of := func(change func(*v1alpha1.LatencyVerification)) *v1alpha1.LatencyVerification {
		return makeVerification("a", func(v *v1alpha1.LatencyVerification) {
			v.Name, v.Spec.GateName, v.Status.GateUID = v1alpha1.VerificationName("second", "a"), "second", "uid-second"
			if change != nil {
				change(v)
			}
		})
	}
	waits := unverified(v1alpha1.ReasonNewNode)
	cases := map[string]struct {
		gate  v1alpha1.LatencyGate
		other *v1alpha1.LatencyVerification
		want  corev1.ConditionStatus
	}{
		"its new gate has not seen it":                  {second(nil), nil, corev1.ConditionFalse},
		"its new gate measures it":                      {second(nil), of(waits), corev1.ConditionFalse},
		"its new gate has verified it":                  {second(nil), of(nil), corev1.ConditionTrue},
		"an earlier gate of that name had verified it":  {second(nil), of(func(v *v1alpha1.LatencyVerification) { v.Status.GateUID = "uid-earlier" }), corev1.ConditionFalse},
		"another gate retains it, and holds it back":    {second(deselects), of(waits), corev1.ConditionFalse},
		"another gate retains it, and had verified it":  {second(deselects), of(nil), corev1.ConditionTrue},
		"the gate that retains it is being deleted":     {second(func(g *v1alpha1.LatencyGate) { deselects(g); deleted(g) }), of(waits), ""},
		"the other verification is of an earlier gate":  {second(deselects), of(func(v *v1alpha1.LatencyVerification) { waits(v); v.Status.GateUID = "uid-earlier" }), ""},
		"no gate owns it, and no verification is there": {second(deselects), nil, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(makeVerification("a")).
				WithIndex(&v1alpha1.LatencyVerification{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*v1alpha1.LatencyVerification).Spec.NodeName} })
			if c.other != nil {
				builder = builder.WithObjects(c.other)
			}
			node := makeNode("a", func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(noon) })
			p, err := (&Verifications{Memory: &Memory{}, API: controllers.API{Live: builder.Build()}}).afterwards(t.Context(), makeVerification("a"), node, []v1alpha1.LatencyGate{c.gate})
			if err != nil {
				t.Fatal(err)
			}
			got := corev1.ConditionStatus("")
			if p.Condition != nil {
				got = p.Condition.Status
			}
			if got != c.want {
				t.Errorf("condition %q, want %q", got, c.want)
			}
		})
	}
}

// A label of another gate, older or not, takes no node out of the hands of the gate that holds it back.
func TestFreedByAnotherGate(t *testing.T) {
	a := *makeGate()
	for name, c := range map[string]struct {
		mode  v1alpha1.EnforcementMode
		older bool
		owner string
		found bool
	}{
		"an older gate":                     {v1alpha1.EnforcementAll, true, "other", false},
		"an older gate that spares nodes":   {v1alpha1.EnforcementChanges, true, "other", false},
		"a younger gate that spares nodes":  {v1alpha1.EnforcementChanges, false, a.Name, false},
		"an older gate that only observes":  {v1alpha1.EnforcementObserve, true, a.Name, false},
		"a younger gate that only observes": {v1alpha1.EnforcementObserve, false, a.Name, false},
	} {
		other := makeGate(func(g *v1alpha1.LatencyGate) {
			g.Name, g.UID, g.Spec.Enforcement.Mode = "other", "uid-other", c.mode
			if g.CreationTimestamp = metav1.NewTime(a.CreationTimestamp.Add(time.Minute)); c.older {
				g.CreationTimestamp = metav1.NewTime(a.CreationTimestamp.Add(-time.Minute))
			}
		})
		old := makeNode("a", func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(a.CreationTimestamp.Add(-time.Hour)) })
		held := turns.PublicationOf(&a, makeVerification("a", in(v1alpha1.VerificationFailed))).On(old)
		if owner := turns.Owner(held, []v1alpha1.LatencyGate{a, *other}); owner.Name != c.owner {
			t.Errorf("%s: %s has the node", name, owner.Name)
		}
		if turns.FoundBy(other, held) != c.found || !turns.FoundBy(other, old) && c.mode != v1alpha1.EnforcementAll {
			t.Errorf("%s: found as it is: %v, without marks: %v", name, turns.FoundBy(other, held), turns.FoundBy(other, old))
		}
	}
}

// A gate that only observes frees no node that another gate retains without a Pass.
func TestObservedNodeStaysHeld(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	observing := makeGate(func(g *v1alpha1.LatencyGate) {
		g.Name, g.Spec.Enforcement.Mode = "observing", v1alpha1.EnforcementObserve
	})
	own := makeVerification("a", func(v *v1alpha1.LatencyVerification) { v.Name, v.Spec.GateName = "observing.a", "observing" })
	for name, c := range map[string]struct {
		retained *v1alpha1.LatencyVerification
		of       *v1alpha1.LatencyVerification // which would publish
		want     bool
	}{
		"the other gate holds it":       {makeVerification("a", in(v1alpha1.VerificationFailed)), own, false},
		"the other gate had passed it":  {makeVerification("a"), own, true},
		"the other gate has it no more": {makeVerification("a"), makeVerification("a"), false},
		"one that enforces has it":      {makeVerification("a", in(v1alpha1.VerificationFailed)), own, true},
	} {
		w := &world{node: makeNode("a"), owner: observing, gate: observing, verification: c.of}
		if name == "one that enforces has it" {
			w.owner = makeGate(func(g *v1alpha1.LatencyGate) { g.Name = observing.Name })
		}
		if c.of != own {
			w.gate = makeGate()
		}
		api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.retained, own.DeepCopy()).
			WithIndex(&v1alpha1.LatencyVerification{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*v1alpha1.LatencyVerification).Spec.NodeName} }).Build()
		r := &Verifications{Memory: &Memory{}, API: controllers.API{Live: api}}
		if got, err := r.publishes(t.Context(), w, turns.Publication{}); err != nil || got != c.want {
			t.Errorf("%s: publishes %v, %v", name, got, err)
		}
	}
}

// A turn of the schedule is not the request of a user, also if a user requested an earlier one.
func TestReasonOfATurn(t *testing.T) {
	asked := func(v *v1alpha1.LatencyVerification) {
		v.Status.Requests = &v1alpha1.ProcessedRequests{Verify: &v1alpha1.UserRequest{RequestedBy: "ada"}}
	}
	waits := func(v *v1alpha1.LatencyVerification) { v.Status.TurnRequestTime = at(0) }
	for want, v := range map[string]*v1alpha1.LatencyVerification{
		"VerifyRequested": makeVerification("a", asked, waits),
		"ScheduleDue":     makeVerification("a", asked),
	} {
		if s := due("@daily", v); s.reason != want {
			t.Errorf("%s, want %s: %s", s.reason, want, s.message)
		}
	}
	if s := due("@daily", makeVerification("a", waits)); s.reason != v1alpha1.ReasonScheduleDue {
		t.Errorf("%s: %s", s.reason, s.message)
	}
}
