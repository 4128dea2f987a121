package gate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

// A gate creates the verifications of its nodes in portions. A refusal of one, of which it reports the first, keeps none from the others.
func TestMembers(t *testing.T) {
	down := func(name string) error { return apierrors.NewInternalError(fmt.Errorf("no %s", name)) }
	for name, c := range map[string]struct {
		nodes   int
		refused map[string]error // by the names of nodes
		created int
		again   time.Duration
		want    string // the error
	}{
		"no node":                  {nodes: 0},
		"a portion":                {nodes: maxCreated, created: maxCreated},
		"one more":                 {nodes: maxCreated + 1, created: maxCreated, again: time.Millisecond},
		"one exists":               {nodes: 3, refused: map[string]error{"n-1": apierrors.NewAlreadyExists(schema.GroupResource{}, "n-1")}, created: 2},
		"two are refused":          {nodes: 4, refused: map[string]error{"n-1": down("n-1"), "n-2": down("n-2")}, created: 2, want: "creating the LatencyVerification of node n-1: Internal error occurred: no n-1"},
		"one of many is refused":   {nodes: maxCreated + 1, refused: map[string]error{"n-1": down("n-1")}, created: maxCreated - 1, again: time.Millisecond, want: "of node n-1"},
		"one exists, then refusal": {nodes: 3, refused: map[string]error{"n-0": apierrors.NewAlreadyExists(schema.GroupResource{}, "n-0"), "n-2": down("n-2")}, created: 1, want: "of node n-2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &snapshot{Snapshot: &turns.Snapshot{Gate: makeGate()}}
			for i := range c.nodes {
				s.Missing = append(s.Missing, makeNode(fmt.Sprintf("n-%d", i)))
			}
			created := 0
			api := interceptor.NewClient(gateServer(t), interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
					v := o.(*v1alpha1.LatencyVerification)
					if err := c.refused[v.Spec.NodeName]; err != nil {
						return err
					}
					if v.Name != "up."+v.Spec.NodeName || v.Spec.GateName != "up" || len(v.Finalizers) != 1 || v.Finalizers[0] != v1alpha1.FinalizerNode {
						t.Errorf("it creates %s, %v, %+v", v.Name, v.Finalizers, v.Spec)
					}
					created++
					return nil
				},
			})
			again, err := (&Gates{API: controllers.API{Client: api}}).members(t.Context(), s)
			if created != c.created || again != c.again || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%d created, want %d; again in %s; %v", created, c.created, again, err)
			}
		})
	}
}

// A gate that is deleted stays while a verification has the mark of its node to remove, and while it cannot know.
func TestGateThatIsDeleted(t *testing.T) {
	marked, unmarked := makeVerification("a"), makeVerification("b")
	marked.Finalizers = []string{v1alpha1.FinalizerNode}
	foreign := makeVerification("c")
	foreign.Finalizers, foreign.Spec.GateName, foreign.Name = marked.Finalizers, "other", "other.c"
	deleted := func(g *v1alpha1.LatencyGate) {
		g.Finalizers, g.DeletionTimestamp = []string{v1alpha1.FinalizerNode}, at(time.Minute)
	}
	for name, c := range map[string]struct {
		has     []client.Object
		refused error
		stays   bool
	}{
		"no verification":                     {},
		"verifications without marks":         {has: []client.Object{unmarked, foreign}},
		"a node with marks":                   {has: []client.Object{marked, unmarked}, stays: true},
		"verifications that cannot be listed": {has: []client.Object{unmarked}, refused: errors.New("etcd is down"), stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := makeGate(deleted)
			server := gateServer(t, append(deepCopies(c.has), g)...)
			live := interceptor.NewClient(server, interceptor.Funcs{
				List: func(ctx context.Context, api client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
					return unless(c.refused, func() error { return api.List(ctx, l, opts...) })
				},
			})
			err := (&Gates{API: controllers.API{Client: server, Live: live, Clock: clocktesting.NewFakePassiveClock(noon), Recorder: events.NewFakeRecorder(10)}, Memory: &Memory{}}).finalize(t.Context(), g.DeepCopy())
			if (err != nil) != (c.refused != nil) {
				t.Error(err)
			}
			left := &v1alpha1.LatencyGate{}
			err = server.Get(t.Context(), client.ObjectKeyFromObject(g), left)
			if gone := apierrors.IsNotFound(err); gone == c.stays || err != nil && !gone {
				t.Errorf("gone: %t, %v", gone, err)
			}
			if said := len(left.Status.Conditions) > 0; said != (c.stays && c.refused == nil) {
				t.Errorf("conditions %+v", left.Status.Conditions)
			}
		})
	}
}

// What a gate does with one node, and the API server refuses, is an error, and keeps the gate from none of the others.
func TestStatusOfATurnIsRefused(t *testing.T) {
	down := apierrors.NewInternalError(errors.New("etcd is down"))
	turn := func(v *v1alpha1.LatencyVerification) {
		v.Status.Turn = &v1alpha1.Turn{Reason: v1alpha1.ReasonPassed, Message: "all 2 rules pass"}
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.LatencyVerification)
		choice func(v ...*v1alpha1.LatencyVerification) turns.Choice
		want   string // the reason of the other node's state then
	}{
		"due": {func(*v1alpha1.LatencyVerification) {}, func(v ...*v1alpha1.LatencyVerification) turns.Choice {
			return turns.Choice{Due: []turns.Start{{Verification: v[0]}, {Verification: v[1]}}}
		}, v1alpha1.ReasonScheduleDue},
		"a turn that ends": {func(v *v1alpha1.LatencyVerification) {
			unverified(v1alpha1.ReasonScheduleDue)(v)
			turn(v)
		}, func(v ...*v1alpha1.LatencyVerification) turns.Choice {
			return turns.Choice{Ended: []turns.End{{Verification: v[0], Why: "no slot"}, {Verification: v[1], Why: "no slot"}}}
		}, v1alpha1.ReasonPassed},
		"a failure without another peer": {unverified(v1alpha1.ReasonNewNode), func(v ...*v1alpha1.LatencyVerification) turns.Choice {
			return turns.Choice{Alone: []turns.End{{Verification: v[0], Why: "no peer"}, {Verification: v[1], Why: "no peer"}}}
		}, v1alpha1.ReasonFail},
	} {
		t.Run(name, func(t *testing.T) {
			g, a, b := makeGate(), makeVerification("a", c.change), makeVerification("b", c.change)
			server := gateServer(t, g, a, b)
			api := interceptor.NewClient(server, interceptor.Funcs{
				SubResourceUpdate: func(ctx context.Context, api client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
					if o.GetName() == a.Name {
						return down
					}
					return api.SubResource(sub).Update(ctx, o, opts...)
				},
			})
			before := a.Status.Verified().Reason
			err := (&Gates{API: controllers.API{Client: api, Live: api, Clock: clocktesting.NewFakePassiveClock(noon)}}).start(t.Context(), makeSnapshot(g, a, b), c.choice(a, b))
			if err == nil || !strings.Contains(err.Error(), "LatencyVerification up.a: ") || !strings.Contains(err.Error(), "etcd is down") {
				t.Errorf("got %v", err)
			}
			for v, want := range map[*v1alpha1.LatencyVerification]string{a: before, b: c.want} {
				is := &v1alpha1.LatencyVerification{}
				if err := server.Get(t.Context(), client.ObjectKeyFromObject(v), is); err != nil || is.Status.Verified().Reason != want {
					t.Errorf("%s: %s, want %s, %v", v.Name, is.Status.Verified().Reason, want, err)
				}
			}
		})
	}
}
