package standing

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/identity"
)

// makeNode returns a node that the gate selects.
func makeNode(name string, changes ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"role": "fast"}}}
	n.Status.NodeInfo.BootID, n.Status.NodeInfo.KernelVersion = "boot-1", "6.1.0"
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, change := range changes {
		change(n)
	}
	return n
}

// makeVerified returns the verification of a node in the state that makeNode returns.
func makeVerified(gate, node string, changes ...func(*v1alpha1.LatencyVerification)) *v1alpha1.LatencyVerification {
	v := &v1alpha1.LatencyVerification{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.VerificationName(gate, node)},
		Spec:       v1alpha1.LatencyVerificationSpec{GateName: gate, NodeName: node},
		Status: v1alpha1.LatencyVerificationStatus{
			State: v1alpha1.VerificationVerified, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionVerified, Reason: v1alpha1.ReasonPassed, Message: "all 2 rules pass"}}, NodeUID: "uid-" + node,
			Identity: identity.Keys{"BootID", "Kernel", "Label/role"}.Of(identity.Subject{Node: makeNode(node)}),
		},
	}
	for _, change := range changes {
		change(v)
	}
	return v
}

// clusterOf returns an API server with objects. It answers in pages of one object if a request has a limit.
func clusterOf(t *testing.T, fails error, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&v1alpha1.LatencyVerification{}, "spec.gateName", func(o client.Object) []string {
			return []string{o.(*v1alpha1.LatencyVerification).Spec.GateName}
		}).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, api client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				var o client.ListOptions
				o.ApplyOptions(options)
				if o.Limit == 0 {
					t.Error("a list without a limit")
				}
				if nodes, ok := list.(*corev1.NodeList); ok {
					if fails != nil {
						return fails
					}
					all := &corev1.NodeList{}
					if err := api.List(ctx, all, &client.ListOptions{LabelSelector: o.LabelSelector}); err != nil {
						return err
					}
					at := len(o.Continue)
					nodes.Items, nodes.Continue = all.Items[min(at, len(all.Items)):min(at+1, len(all.Items))], ""
					if at+1 < len(all.Items) {
						nodes.Continue = o.Continue + "x"
					}
					return nil
				}
				return api.List(ctx, list, &client.ListOptions{FieldSelector: o.FieldSelector})
			},
		}).Build()
}

func passedGate() *v1alpha1.LatencyGate {
	g := &v1alpha1.LatencyGate{ObjectMeta: metav1.ObjectMeta{Name: "up"}, Spec: v1alpha1.LatencyGateSpec{NodeSelector: metav1.LabelSelector{MatchLabels: map[string]string{"role": "fast"}}}}
	g.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, metav1.ConditionTrue, v1alpha1.ReasonAllVerified, "all nodes are verified"))
	return g
}

func TestOfGateNow(t *testing.T) {
	booted := func(n *corev1.Node) { n.Status.NodeInfo.BootID = "boot-2" }
	unlabelled := func(n *corev1.Node) { n.Labels = nil }
	going := func(o client.Object) { o.SetFinalizers([]string{"x/y"}); o.SetDeletionTimestamp(new(metav1.Now())) }
	away := func(status corev1.ConditionStatus) func(*corev1.Node) {
		return func(n *corev1.Node) { n.Status.Conditions[0].Status = status }
	}
	absent := func(until time.Duration) func(*v1alpha1.LatencyVerification) {
		return func(v *v1alpha1.LatencyVerification) {
			v.Status.Absent = []v1alpha1.AbsentKey{{Key: "Label/role", EndTime: metav1.NewTime(time.Now().Add(until))}}
		}
	}
	record := func(reason string) func(*v1alpha1.LatencyVerification) {
		return func(v *v1alpha1.LatencyVerification) {
			v.Status.State, v.Status.Retained = v1alpha1.VerificationUnverified, &v1alpha1.Retention{Reason: reason}
		}
	}
	cases := map[string]struct {
		objects []client.Object
		// reason is empty for a Pass; otherwise the first of the details contains detail.
		reason, detail string
	}{
		"as they were verified": {objects: []client.Object{makeNode("a"), makeNode("b"), makeVerified("up", "a"), makeVerified("up", "b")}},
		"booted":                {[]client.Object{makeNode("a"), makeNode("b", booted), makeVerified("up", "a"), makeVerified("up", "b")}, v1alpha1.ReasonIdentityChanged, "b: IdentityChanged, it was booted"},
		"another kernel": {[]client.Object{makeNode("a", func(n *corev1.Node) { n.Status.NodeInfo.KernelVersion = "6.2.0" }), makeVerified("up", "a")},
			v1alpha1.ReasonIdentityChanged, `a: IdentityChanged, Kernel was "6.1.0" and is "6.2.0"`},
		"made again under its name": {[]client.Object{makeNode("a", func(n *corev1.Node) { n.UID = "another" }), makeVerified("up", "a")}, v1alpha1.ReasonNodeReplaced, "a: NodeReplaced"},
		"new":                       {[]client.Object{makeNode("a"), makeVerified("other", "a")}, v1alpha1.ReasonNewNode, "a: NewNode"},
		"new, on the second page":   {[]client.Object{makeNode("a"), makeNode("b"), makeVerified("up", "a")}, v1alpha1.ReasonNewNode, "b: NewNode"},
		"inconclusive": {[]client.Object{makeNode("a"), makeVerified("up", "a", func(v *v1alpha1.LatencyVerification) {
			v.Status.State, v.Status.Conditions[0].Reason = v1alpha1.VerificationInconclusive, v1alpha1.ReasonInconclusive
		})}, v1alpha1.ReasonInconclusive, "a: Inconclusive"},
		"its verification goes": {[]client.Object{makeNode("a"), makeVerified("up", "a", func(v *v1alpha1.LatencyVerification) { going(v) })}, v1alpha1.ReasonNewNode, "a: NewNode"},
		"not verified": {[]client.Object{makeNode("a"), makeVerified("up", "a", func(v *v1alpha1.LatencyVerification) {
			v.Status.State, v.Status.Conditions[0].Reason = v1alpha1.VerificationFailed, v1alpha1.ReasonFail
		})}, v1alpha1.ReasonFail, "a: Fail"},
		"never looked at":                        {[]client.Object{makeNode("a"), makeVerified("up", "a", func(v *v1alpha1.LatencyVerification) { v.Status = v1alpha1.LatencyVerificationStatus{} })}, ReasonNotObserved, "a: NotObserved"},
		"without its label":                      {[]client.Object{makeNode("a", unlabelled), makeVerified("up", "a")}, v1alpha1.ReasonIdentityChanged, `Label/role was "fast" and is ""`},
		"without its label, which is kept":       {objects: []client.Object{makeNode("a", unlabelled), makeVerified("up", "a", absent(time.Minute))}},
		"without its label for too long":         {[]client.Object{makeNode("a", unlabelled), makeVerified("up", "a", absent(-time.Minute))}, v1alpha1.ReasonIdentityChanged, `and is ""`},
		"not ready":                              {[]client.Object{makeNode("a", away(corev1.ConditionFalse)), makeVerified("up", "a")}, v1alpha1.ReasonNodeNotReady, "a: NodeNotReady, the node is not ready (False)"},
		"away":                                   {[]client.Object{makeNode("a", away(corev1.ConditionUnknown)), makeVerified("up", "a")}, v1alpha1.ReasonNodeNotReady, "identity is unknown"},
		"registered, and never ready":            {[]client.Object{makeNode("a", func(n *corev1.Node) { n.Status.Conditions = nil }), makeVerified("up", "a")}, v1alpha1.ReasonNodeNotReady, "reported nothing"},
		"away, and not selected":                 {[]client.Object{makeNode("a", unlabelled, away(corev1.ConditionUnknown)), makeVerified("up", "a", absent(time.Minute))}, v1alpha1.ReasonNodeNotReady, "identity is unknown"},
		"verified for an earlier gate":           {[]client.Object{makeNode("a"), makeVerified("up", "a", func(v *v1alpha1.LatencyVerification) { v.Status.GateUID = "earlier" })}, v1alpha1.ReasonGateReplaced, "a: GateReplaced, the gate was deleted and created again"},
		"a record of a gate that was deleted":    {[]client.Object{makeNode("a"), makeVerified("up", "a", record(v1alpha1.ReasonGateDeleted))}, v1alpha1.ReasonPassed, "a: Passed"},
		"a record of a node that does not exist": {objects: []client.Object{makeVerified("up", "a", record(v1alpha1.ReasonNodeDeleted))}},
		"failed, deleted and registered again without its label": {[]client.Object{makeNode("a", unlabelled), makeVerified("up", "a", record(v1alpha1.ReasonNodeDeleted), func(v *v1alpha1.LatencyVerification) {
			v.Status.NodeUID = "earlier"
		})}, v1alpha1.ReasonNodeReplaced, "created again"},
		"the same, and the operator did not see the deletion": {[]client.Object{makeNode("a", unlabelled), makeVerified("up", "a", func(v *v1alpha1.LatencyVerification) {
			v.Status.State, v.Status.NodeUID = v1alpha1.VerificationFailed, "earlier"
		})}, v1alpha1.ReasonNodeReplaced, "created again"},
		"booted, without its label":                      {[]client.Object{makeNode("a", unlabelled, booted), makeVerified("up", "a")}, v1alpha1.ReasonIdentityChanged, "it was booted"},
		"deleted":                                        {objects: []client.Object{makeVerified("up", "a")}},
		"being deleted, and changed":                     {objects: []client.Object{makeNode("a", booted, func(n *corev1.Node) { going(n) }), makeVerified("up", "a")}},
		"changed, of another gate":                       {objects: []client.Object{makeNode("b", booted, unlabelled), makeVerified("other", "b")}},
		"a change of a key that the gate does not count": {objects: []client.Object{makeNode("a", func(n *corev1.Node) { n.Status.NodeInfo.OSImage = "new" }), makeVerified("up", "a")}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := OfGateNow(context.Background(), clusterOf(t, nil, c.objects...), passedGate())
			if err != nil {
				t.Fatal(err)
			}
			if c.reason == "" {
				if s.Outcome != v1alpha1.VerdictPass || s.Reason != v1alpha1.ReasonAllVerified {
					t.Errorf("%+v, want a Pass", s)
				}
				return
			}
			if s.Outcome != "" || !s.Open || s.Reason != c.reason || s.Message == "" || !strings.Contains(s.Details[0], c.detail) {
				t.Errorf("%+v, want %s with %q", s, c.reason, c.detail)
			}
		})
	}
}

// The verdict about one node, which HTTP and the command ask for, counts no result of an earlier gate of the same name, whether or not a
// manager has seen the new one. The results of a gate that is gone stay.
func TestVerificationOfAnEarlierGate(t *testing.T) {
	for reason, gate := range map[string]client.Object{
		v1alpha1.ReasonGateReplaced: &v1alpha1.LatencyGate{ObjectMeta: metav1.ObjectMeta{Name: "up", UID: "new"}},
		v1alpha1.ReasonPassed:       &v1alpha1.LatencyGate{ObjectMeta: metav1.ObjectMeta{Name: "another", UID: "new"}},
	} {
		v := makeVerified("up", "a", func(v *v1alpha1.LatencyVerification) { v.Status.GateUID = "earlier" })
		s, err := Of(t.Context(), clusterOf(t, nil, gate, makeNode("a"), v), v)
		if err != nil || s.Reason != reason || (s.Outcome == v1alpha1.VerdictPass) != (reason == v1alpha1.ReasonPassed) {
			t.Errorf("%+v, %v, want %s", s, err, reason)
		}
	}
}

// A standing other than Pass needs only the gate; a Pass is not given if the nodes cannot be read.
func TestOfGateNowReads(t *testing.T) {
	down := errors.New("down")
	api := clusterOf(t, down, makeVerified("up", "a"))
	if _, err := OfGateNow(context.Background(), api, passedGate()); !errors.Is(err, down) {
		t.Errorf("%v, want the API server's error", err)
	}
	failed := passedGate()
	failed.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, metav1.ConditionFalse, v1alpha1.ReasonNodesFailed, "1 of 1 nodes failed"))
	if s, err := OfGateNow(context.Background(), api, failed); err != nil || s.Outcome != v1alpha1.VerdictFail {
		t.Errorf("%+v, %v; want a Fail", s, err)
	}
}
