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
	"github.com/tailgate-dev/tailgate/internal/turns"
)

// A taint is added before the condition that holds a node back, and removed after it; marks that release a node are for one version.
func TestPublishOrder(t *testing.T) {
	g := makeGate(func(g *v1alpha1.LatencyGate) {
		g.Spec.Enforcement = v1alpha1.Enforcement{Label: &v1alpha1.GateLabel{}, Taint: &v1alpha1.GateTaint{Effect: corev1.TaintEffectNoSchedule}}
	})
	held, letIn := turns.PublicationOf(g, makeVerification("a", unverified(v1alpha1.ReasonNewNode))), turns.PublicationOf(g, makeVerification("a"))
	for name, c := range map[string]struct {
		before, then turns.Publication
		want         []string
	}{
		"held back": {letIn, held, []string{"metadata of version 7", "status of any version"}},
		"let in":    {held, letIn, []string{"status of version 7", "metadata of version 8"}},
	} {
		t.Run(name, func(t *testing.T) {
			node := c.before.On(makeNode("a", func(n *corev1.Node) { n.ResourceVersion = "7" }))
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
				node := turns.Publication{Condition: c.then.Condition, Regressed: c.then.Regressed, Label: metadata.Label, Taint: metadata.Taint}.On(makeNode("a"))
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
			b := publisher{API: controllers.API{Client: api, Live: api}, marks: turns.Marks, p: c.then, now: metav1.Time{Time: noon}}
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

// In mode Observe no state of a node marks it, and in mode EnforceChanges the state of a node that is as it was found does not, unless
// it is verified.
func TestModes(t *testing.T) {
	all := []v1alpha1.VerificationState{"", v1alpha1.VerificationUnverified, v1alpha1.VerificationMeasuring, v1alpha1.VerificationVerified, v1alpha1.VerificationFailed, v1alpha1.VerificationInconclusive}
	for _, mode := range []v1alpha1.EnforcementMode{"", v1alpha1.EnforcementAll, v1alpha1.EnforcementChanges, v1alpha1.EnforcementObserve} {
		for _, preexisting := range []bool{false, true} {
			for _, state := range all {
				g := makeGate(func(g *v1alpha1.LatencyGate) {
					g.Spec.Enforcement = v1alpha1.Enforcement{Mode: mode, Label: &v1alpha1.GateLabel{}, Taint: &v1alpha1.GateTaint{Effect: corev1.TaintEffectNoSchedule}, HoldPod: &v1alpha1.GateHoldPod{}}
				})
				v := makeVerification("a", func(v *v1alpha1.LatencyVerification) { v.Status.State, v.Status.Preexisting = state, preexisting })
				p, probe := turns.PublicationOf(g, v), "none"
				if asked := probeOf(g, v); asked != nil {
					probe = asked.Exec.Command[1]
				}
				verified := state == v1alpha1.VerificationVerified
				free := mode == v1alpha1.EnforcementObserve || mode == v1alpha1.EnforcementChanges && preexisting
				if want := !verified && !free; p.HoldsBack() != want || (p.Taint != nil) != want || (p.Label == "false") != want || (probe == "unverified") != want {
					t.Errorf("mode %q, preexisting %t, state %q: %+v, probe %s, expected held back %t", mode, preexisting, state, p, probe, want)
				}
				// The kubelet delays the first probe after its start by up to its period, and only a free node has no reason to wait.
				if want := map[bool]string{true: "none", false: "verified"}[mode == v1alpha1.EnforcementObserve || !verified]; probe != "unverified" && probe != want {
					t.Errorf("mode %q, preexisting %t, state %q: probe %s, expected %s", mode, preexisting, state, probe, want)
				}
				if marked := p.Condition != nil; marked != (!free || verified && mode != v1alpha1.EnforcementObserve) {
					t.Errorf("mode %q, preexisting %t, state %q: marked is %t", mode, preexisting, state, marked)
				}
			}
		}
	}
}
