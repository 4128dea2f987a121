package turns

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

func TestPublicationOf(t *testing.T) {
	everything := func(g *v1alpha1.LatencyGate) {
		g.Spec.Enforcement = v1alpha1.Enforcement{Label: &v1alpha1.GateLabel{}, Taint: &v1alpha1.GateTaint{Effect: corev1.TaintEffectNoExecute}}
	}
	type want struct {
		status        corev1.ConditionStatus
		reason        string
		label, effect string
	}
	for state, w := range map[v1alpha1.VerificationState]want{
		v1alpha1.VerificationUnverified:   {corev1.ConditionFalse, "Unverified", "false", "NoExecute"},
		v1alpha1.VerificationMeasuring:    {corev1.ConditionFalse, "Unverified", "false", "NoExecute"},
		v1alpha1.VerificationVerified:     {corev1.ConditionTrue, "Passed", "true", ""},
		v1alpha1.VerificationFailed:       {corev1.ConditionFalse, "Failed", "false", "NoExecute"},
		v1alpha1.VerificationInconclusive: {corev1.ConditionFalse, "Inconclusive", "false", "NoExecute"},
		"":                                {corev1.ConditionFalse, "Unverified", "false", "NoExecute"},
	} {
		v := makeVerification("a", in(state))
		p := PublicationOf(makeGate(everything), v)
		got := want{p.Condition.Status, p.Condition.Reason, p.Label, ""}
		if p.Taint != nil {
			got.effect = string(p.Taint.Effect)
		}
		if got != w {
			t.Errorf("%s: got %v, want %v", state, got, w)
		}
		if p.HoldsBack() != (w.status == corev1.ConditionFalse) {
			t.Errorf("%s: holds back: %t", state, p.HoldsBack())
		}
		if away := PublicationOf(makeGate(everything), makeVerification("a", in(state), func(v *v1alpha1.LatencyVerification) { v.Status.State = v1alpha1.VerificationAway })); state == v1alpha1.VerificationVerified &&
			(away.Condition.Status != corev1.ConditionUnknown || away.Label != "false" || away.Taint != nil || !away.HoldsBack()) {
			t.Errorf("verified and not ready: %+v", away)
		}
		plain := PublicationOf(makeGate(), v)
		if plain.Label != "" || plain.Taint != nil || plain.Condition == nil {
			t.Errorf("%s: nothing but a condition was asked for: %+v", state, plain)
		}
	}
}

// The message of the condition says what has changed of the node, if anything.
func TestMessageOfAPublication(t *testing.T) {
	const see = "see kubectl get latencyverifications.tailgate.dev up.a -o wide"
	changed := []v1alpha1.IdentityChange{{Key: "Kernel", From: "6.1", To: "6.2"}, {Key: string(v1alpha1.IdentityBootID)}}
	for name, c := range map[string]struct {
		state   v1alpha1.VerificationState
		changed []v1alpha1.IdentityChange
		want    string
	}{
		"a new node":         {v1alpha1.VerificationUnverified, nil, see},
		"one change":         {v1alpha1.VerificationUnverified, changed[:1], `Kernel was "6.1" and is "6.2"; ` + see},
		"two, measured now":  {v1alpha1.VerificationMeasuring, changed, `Kernel was "6.1" and is "6.2"; it was booted; ` + see},
		"before its state":   {"", changed[:1], `Kernel was "6.1" and is "6.2"; ` + see},
		"a change before it": {v1alpha1.VerificationVerified, changed, see},
	} {
		p := PublicationOf(makeGate(), makeVerification("a", in(c.state), func(v *v1alpha1.LatencyVerification) { v.Status.Changed = c.changed }))
		if p.Condition.Message != c.want {
			t.Errorf("%s: %q, want %q", name, p.Condition.Message, c.want)
		}
	}
}

func TestTaints(t *testing.T) {
	other := corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}
	own := corev1.Taint{Key: v1alpha1.NodeTaintUnverified, Effect: corev1.TaintEffectNoSchedule}
	registered := own
	registered.Value = "yes"
	evicting := own
	evicting.Effect = corev1.TaintEffectNoExecute
	cases := map[string]struct {
		has  []corev1.Taint
		want *corev1.Taint
		then []corev1.Taint
		// free is true for a node that is not held back.
		free bool
	}{
		"added to others":                   {[]corev1.Taint{other}, &own, []corev1.Taint{other, own}, false},
		"there already":                     {[]corev1.Taint{own, other}, &own, []corev1.Taint{own, other}, false},
		"as the kubelet registered it":      {[]corev1.Taint{registered}, &own, []corev1.Taint{registered}, false},
		"with another effect":               {[]corev1.Taint{own, other}, &evicting, []corev1.Taint{own, other, evicting}, false},
		"both effects":                      {[]corev1.Taint{own, evicting}, &own, []corev1.Taint{own, evicting}, false},
		"not asked for, as registered":      {[]corev1.Taint{registered, other}, nil, []corev1.Taint{registered, other}, false},
		"removed, and other taints kept":    {[]corev1.Taint{registered, other, evicting}, nil, []corev1.Taint{other}, true},
		"nothing there and nothing to come": {nil, nil, nil, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			node := makeNode("a", func(n *corev1.Node) { n.Spec.Taints = c.has })
			p := Publication{Taint: c.want, Condition: &corev1.NodeCondition{Status: corev1.ConditionFalse}}
			if c.free {
				p.Condition.Status = corev1.ConditionTrue
			}
			if diff := cmp.Diff(c.then, p.Taints(node)); diff != "" {
				t.Error(diff)
			}
			if same := cmp.Equal(c.has, c.then); p.Has(node, v1alpha1.MarkTaint) != same {
				t.Errorf("published is %t", !same)
			}
		})
	}
}

func TestPublished(t *testing.T) {
	g := makeGate(func(g *v1alpha1.LatencyGate) {
		g.Spec.Enforcement = v1alpha1.Enforcement{Label: &v1alpha1.GateLabel{}, Taint: &v1alpha1.GateTaint{Effect: corev1.TaintEffectNoSchedule}}
	})
	p := PublicationOf(g, makeVerification("a", unverified(v1alpha1.ReasonNewNode)))
	for name, change := range map[string]func(*corev1.Node){
		"the condition is gone":    func(n *corev1.Node) { n.Status.Conditions = n.Status.Conditions[:1] },
		"the condition is True":    func(n *corev1.Node) { n.Status.Conditions[1].Status = corev1.ConditionTrue },
		"the label is gone":        func(n *corev1.Node) { delete(n.Labels, v1alpha1.NodeLabelVerified) },
		"the label says otherwise": func(n *corev1.Node) { n.Labels[v1alpha1.NodeLabelVerified] = "true" },
		"the taint is gone":        func(n *corev1.Node) { n.Spec.Taints = nil },
	} {
		node := p.On(makeNode("a"))
		if !p.IsOn(node) {
			t.Fatal("all is said")
		}
		change(node)
		if p.IsOn(node) {
			t.Error(name)
		}
	}
	if !(Publication{}).IsOn(makeNode("a")) {
		t.Error("nothing is said, as it should be")
	}
}
