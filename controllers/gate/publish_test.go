package gate

import (
	"context"
	"fmt"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
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
		p := publicationOf(makeGate(everything), v)
		got := want{p.condition.Status, p.condition.Reason, p.label, ""}
		if p.taint != nil {
			got.effect = string(p.taint.Effect)
		}
		if got != w {
			t.Errorf("%s: got %v, want %v", state, got, w)
		}
		if p.holdsBack() != (w.status == corev1.ConditionFalse) {
			t.Errorf("%s: holds back: %t", state, p.holdsBack())
		}
		if away := publicationOf(makeGate(everything), makeVerification("a", in(state), func(v *v1alpha1.LatencyVerification) { v.Status.Conditions[0].Status = metav1.ConditionUnknown })); state == v1alpha1.VerificationVerified &&
			(away.condition.Status != corev1.ConditionUnknown || away.label != "false" || away.taint != nil || !away.holdsBack()) {
			t.Errorf("verified and not ready: %+v", away)
		}
		plain := publicationOf(makeGate(), v)
		if plain.label != "" || plain.taint != nil || plain.condition == nil {
			t.Errorf("%s: nothing but a condition was asked for: %+v", state, plain)
		}
	}
}

// A taint is added before the condition that holds a node back, and removed after it; marks that release a node are for one version.
func TestPublishOrder(t *testing.T) {
	g := makeGate(func(g *v1alpha1.LatencyGate) {
		g.Spec.Enforcement = v1alpha1.Enforcement{Label: &v1alpha1.GateLabel{}, Taint: &v1alpha1.GateTaint{Effect: corev1.TaintEffectNoSchedule}}
	})
	held, letIn := publicationOf(g, makeVerification("a", unverified(v1alpha1.ReasonNewNode))), publicationOf(g, makeVerification("a"))
	for name, c := range map[string]struct {
		before, then publication
		want         []string
	}{
		"held back": {letIn, held, []string{"metadata of version 7", "status of any version"}},
		"let in":    {held, letIn, []string{"status of version 7", "metadata of version 8"}},
	} {
		t.Run(name, func(t *testing.T) {
			node := says(makeNode("a", func(n *corev1.Node) { n.ResourceVersion = "7" }), c.before)
			var got []string
			note := func(what string, o client.Object, patch client.Patch) error {
				data, err := patch.Data(o)
				if err != nil {
					return err
				}
				version := regexp.MustCompile(`"resourceVersion":"(\d+)"`).FindSubmatch(data)
				if version == nil {
					version = [][]byte{nil, []byte("any version")}
				} else {
					version[1] = append([]byte("version "), version[1]...)
				}
				got = append(got, fmt.Sprintf("%s of %s", what, version[1]))
				// As the API server, it returns the Node as it is then.
				metadata := c.before
				if what == "metadata" {
					metadata = c.then
				}
				node := says(makeNode("a"), publication{condition: c.then.condition, regressed: c.then.regressed, label: metadata.label, taint: metadata.taint})
				node.ResourceVersion = "8"
				*o.(*corev1.Node) = *node
				return nil
			}
			api := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
				Patch: func(_ context.Context, _ client.WithWatch, o client.Object, patch client.Patch, _ ...client.PatchOption) error {
					return note("metadata", o, patch)
				},
				SubResourcePatch: func(_ context.Context, _ client.Client, name string, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
					return note(name, o, patch)
				},
			})
			b := publisher{API: controllers.API{Client: api, Live: api}, marks: marks, p: c.then, now: metav1.Time{Time: noon}}
			if err := b.publish(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[v1alpha1.NodeMark]error{"Condition": nil, "Label": nil, "Taint": nil}, b.outcomes); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
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
			p := publication{taint: c.want, condition: &corev1.NodeCondition{Status: corev1.ConditionFalse}}
			if c.free {
				p.condition.Status = corev1.ConditionTrue
			}
			if diff := cmp.Diff(c.then, p.taints(node)); diff != "" {
				t.Error(diff)
			}
			if same := cmp.Equal(c.has, c.then); p.has(node, v1alpha1.MarkTaint) != same {
				t.Errorf("published is %t", !same)
			}
		})
	}
}

func TestPublished(t *testing.T) {
	g := makeGate(func(g *v1alpha1.LatencyGate) {
		g.Spec.Enforcement = v1alpha1.Enforcement{Label: &v1alpha1.GateLabel{}, Taint: &v1alpha1.GateTaint{Effect: corev1.TaintEffectNoSchedule}}
	})
	p := publicationOf(g, makeVerification("a", unverified(v1alpha1.ReasonNewNode)))
	for name, change := range map[string]func(*corev1.Node){
		"the condition is gone":    func(n *corev1.Node) { n.Status.Conditions = n.Status.Conditions[:1] },
		"the condition is True":    func(n *corev1.Node) { n.Status.Conditions[1].Status = corev1.ConditionTrue },
		"the label is gone":        func(n *corev1.Node) { delete(n.Labels, v1alpha1.NodeLabelVerified) },
		"the label says otherwise": func(n *corev1.Node) { n.Labels[v1alpha1.NodeLabelVerified] = "true" },
		"the taint is gone":        func(n *corev1.Node) { n.Spec.Taints = nil },
	} {
		node := says(makeNode("a"), p)
		if !published(node, p) {
			t.Fatal("all is said")
		}
		change(node)
		if published(node, p) {
			t.Error(name)
		}
	}
	if !published(makeNode("a"), publication{}) {
		t.Error("nothing is said, as it should be")
	}
}

// In mode Observe no state of a node marks it, and in mode EnforceChanges the state of a node that is as it was found does not, unless
// it is verified.
func TestModes(t *testing.T) {
	all := []v1alpha1.VerificationState{"", v1alpha1.VerificationUnverified, v1alpha1.VerificationMeasuring, v1alpha1.VerificationVerified, v1alpha1.VerificationFailed, v1alpha1.VerificationInconclusive}
	for _, mode := range []v1alpha1.EnforcementMode{"", v1alpha1.EnforcementAll, v1alpha1.EnforcementChanges, v1alpha1.EnforcementNone} {
		for _, asFound := range []bool{false, true} {
			for _, state := range all {
				g := makeGate(func(g *v1alpha1.LatencyGate) {
					g.Spec.Enforcement = v1alpha1.Enforcement{Mode: mode, Label: &v1alpha1.GateLabel{}, Taint: &v1alpha1.GateTaint{Effect: corev1.TaintEffectNoSchedule}, HoldPod: &v1alpha1.GateHoldPod{}}
				})
				v := makeVerification("a", func(v *v1alpha1.LatencyVerification) { v.Status.State, v.Status.AsFound = state, asFound })
				p, probe := publicationOf(g, v), "none"
				if asked := probeOf(g, v); asked != nil {
					probe = asked.Exec.Command[1]
				}
				verified := state == v1alpha1.VerificationVerified
				free := mode == v1alpha1.EnforcementNone || mode == v1alpha1.EnforcementChanges && asFound
				if want := !verified && !free; p.holdsBack() != want || (p.taint != nil) != want || (p.label == "false") != want || (probe == "unverified") != want {
					t.Errorf("mode %q, as found %t, state %q: %+v, probe %s, expected held back %t", mode, asFound, state, p, probe, want)
				}
				// The kubelet delays the first probe after its start by up to its period, and only a free node has no reason to wait.
				if want := map[bool]string{true: "none", false: "verified"}[mode == v1alpha1.EnforcementNone || !verified]; probe != "unverified" && probe != want {
					t.Errorf("mode %q, as found %t, state %q: probe %s, expected %s", mode, asFound, state, probe, want)
				}
				if marked := p.condition != nil; marked != (!free || verified && mode != v1alpha1.EnforcementNone) {
					t.Errorf("mode %q, as found %t, state %q: marked is %t", mode, asFound, state, marked)
				}
			}
		}
	}
}
