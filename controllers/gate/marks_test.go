package gate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

// taintedGate asks for condition, label and taint.
func taintedGate() *v1alpha1.LatencyGate {
	return makeGate(func(g *v1alpha1.LatencyGate) {
		g.Spec.Enforcement = v1alpha1.Enforcement{Label: &v1alpha1.GateLabel{}, Taint: &v1alpha1.GateTaint{Effect: corev1.TaintEffectNoSchedule}}
	})
}

// nodeAPI is an API server with one Node. refuses returns the error of a patch; drops changes what a patch wrote.
type nodeAPI struct {
	client.Client
	refuses func(patch string) error
	drops   func(*corev1.Node)
}

func makeNodeAPI(t *testing.T, node *corev1.Node) *nodeAPI {
	t.Helper()
	api := &nodeAPI{}
	plain := fake.NewClientBuilder().WithObjects(node).WithStatusSubresource(node).Build()
	do := func(o client.Object, patch client.Patch, write func() error) error {
		data, err := patch.Data(o)
		if err != nil {
			return err
		}
		if api.refuses != nil {
			if err := api.refuses(string(data)); err != nil {
				return err
			}
		}
		if err := write(); err != nil || api.drops == nil {
			return err
		}
		changed := o.DeepCopyObject().(*corev1.Node)
		api.drops(changed)
		if err := plain.Update(t.Context(), changed); err != nil {
			return err
		}
		return plain.Get(t.Context(), client.ObjectKeyFromObject(o), o)
	}
	api.Client = interceptor.NewClient(plain, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
			return do(o, patch, func() error { return c.Patch(ctx, o, patch, options...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			return do(o, patch, func() error { return c.SubResource(name).Patch(ctx, o, patch, options...) })
		},
	})
	return api
}

func (a *nodeAPI) node(t *testing.T) *corev1.Node {
	t.Helper()
	n := &corev1.Node{}
	if err := a.Get(t.Context(), client.ObjectKey{Name: "a"}, n); err != nil {
		t.Fatal(err)
	}
	return n
}

// lacks returns the marks that a Node does not have as it should.
func lacks(n *corev1.Node, p turns.Publication) []v1alpha1.NodeMark {
	return slices.DeleteFunc(slices.Clone(turns.Marks), func(m v1alpha1.NodeMark) bool { return p.Has(n, m) })
}

// Whatever the API server refuses, or drops, the other marks are written, the status says what failed, and the mark is tried again after
// a pause that doubles up to a minute.
func TestMarksAreIndependent(t *testing.T) {
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "a", errors.New("the node pool manages this"))
	containing := func(parts ...string) func(string) error {
		return func(patch string) error {
			if slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(patch, part) }) {
				return denied
			}
			return nil
		}
	}
	held, free := turns.PublicationOf(taintedGate(), makeVerification("a", unverified(v1alpha1.ReasonIdentityChanged))), turns.PublicationOf(taintedGate(), makeVerification("a"))
	for name, c := range map[string]struct {
		refuses func(string) error
		drops   func(*corev1.Node)
		lacks   []v1alpha1.NodeMark
		reason  string
	}{
		"taints":           {containing(`"taints"`), nil, []v1alpha1.NodeMark{"Taint"}, v1alpha1.ReasonNodeRefused},
		"labels":           {containing(`"labels"`), nil, []v1alpha1.NodeMark{"Label"}, v1alpha1.ReasonNodeRefused},
		"the status":       {containing(`"conditions"`), nil, []v1alpha1.NodeMark{"Condition"}, v1alpha1.ReasonNodeRefused},
		"taints and label": {containing(`"taints"`, `"labels"`), nil, []v1alpha1.NodeMark{"Label", "Taint"}, v1alpha1.ReasonNodeRefused},
		"everything":       {func(string) error { return denied }, nil, turns.Marks, v1alpha1.ReasonNodeRefused},
		"drops the taint": {nil, func(n *corev1.Node) {
			n.Spec.Taints = nil
		}, []v1alpha1.NodeMark{"Taint"}, v1alpha1.ReasonNodeWriteDropped},
		"drops the label": {nil, func(n *corev1.Node) { delete(n.Labels, v1alpha1.NodeLabelVerified) }, []v1alpha1.NodeMark{"Label"}, v1alpha1.ReasonNodeWriteDropped},
	} {
		t.Run(name, func(t *testing.T) {
			api := makeNodeAPI(t, free.On(makeNode("a")))
			api.refuses, api.drops = c.refuses, c.drops
			clock := clocktesting.NewFakePassiveClock(noon)
			r := &Verifications{Memory: &Memory{}, API: controllers.API{Client: api, Live: api, Clock: clock, Recorder: events.NewFakeRecorder(100)}}
			v := makeVerification("a", unverified(v1alpha1.ReasonIdentityChanged))
			for try, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
				again, err := r.mark(t.Context(), api.node(t), v, held)
				if err != nil || again != pause*time.Second {
					t.Fatalf("try %d: again after %s, %v; want %ds", try, again, err, pause)
				}
				if got := lacks(api.node(t), held); fmt.Sprint(got) != fmt.Sprint(c.lacks) {
					t.Fatalf("the Node lacks %v, want %v", got, c.lacks)
				}
				var failed []v1alpha1.NodeMark
				for _, s := range v.Status.MarkFailures {
					failed = append(failed, s.Mark)
					if s.Reason != c.reason || int(s.Count) != try+1 || c.refuses != nil && !strings.Contains(s.Message, "the node pool manages this") {
						t.Errorf("%+v", s)
					}
				}
				if fmt.Sprint(failed) != fmt.Sprint(c.lacks) {
					t.Errorf("the status has %v", failed)
				}
				// During the pause, nothing is tried, but a mark that a user removes is set again.
				before := *v.Status.DeepCopy()
				if _, err := r.mark(t.Context(), api.node(t), v, held); err != nil || cmp.Diff(before, v.Status) != "" {
					t.Errorf("during the pause: %v, %+v", err, v.Status.MarkFailures)
				}
				clock.SetTime(clock.Now().Add(pause * time.Second))
			}
			api.refuses, api.drops = nil, nil
			if again, err := r.mark(t.Context(), api.node(t), v, held); err != nil || again != 0 || v.Status.MarkFailures != nil || len(lacks(api.node(t), held)) > 0 {
				t.Errorf("when it is allowed: again after %s, %v, %+v", again, err, v.Status.MarkFailures)
			}
			// A release is refused in the same way.
			api.refuses, api.drops = c.refuses, c.drops
			if _, err := r.mark(t.Context(), api.node(t), v, free); err != nil || c.refuses != nil && len(lacks(api.node(t), free)) != len(c.lacks) {
				t.Errorf("release: %v, lacks %v", err, lacks(api.node(t), free))
			}
		})
	}
}

// Another client that changes a mark back is noticed after five times in a minute; then the pauses double. The other marks stay, and a new
// state is written at once.
func TestContest(t *testing.T) {
	g := taintedGate()
	held, free := turns.PublicationOf(g, makeVerification("a", unverified(v1alpha1.ReasonIdentityChanged))), turns.PublicationOf(g, makeVerification("a"))
	api := makeNodeAPI(t, free.On(makeNode("a", func(n *corev1.Node) {
		n.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "srcdst", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:taints":{}}}`)}, Time: at(0)}}
	})))
	clock := clocktesting.NewFakePassiveClock(noon)
	r := &Verifications{Memory: &Memory{}, API: controllers.API{Client: api, Live: api, Clock: clock, Recorder: events.NewFakeRecorder(100)}}
	v := makeVerification("a", unverified(v1alpha1.ReasonIdentityChanged))
	writes := 0
	api.refuses = func(string) error { writes++; return nil }
	var again time.Duration
	round := func() {
		t.Helper()
		var err error
		if again, err = r.mark(t.Context(), api.node(t), v, held); err != nil {
			t.Fatal(err)
		}
	}
	strip := func() {
		n := api.node(t)
		n.Spec.Taints = nil
		if err := api.Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	for range 6 {
		round()
		strip()
		clock.SetTime(clock.Now().Add(100 * time.Millisecond))
	}
	s := stepFailureOf(v, v1alpha1.MarkTaint)
	if s == nil || s.Reason != v1alpha1.ReasonNodeContested || len(v.Status.MarkFailures) != 1 || !strings.Contains(s.Message, "another client") {
		t.Fatalf("%+v", v.Status.MarkFailures)
	}
	// For an hour, the other client is at once there.
	writes = 0
	for end := clock.Now().Add(time.Hour); clock.Now().Before(end); {
		round()
		strip()
		clock.SetTime(clock.Now().Add(max(again, 100*time.Millisecond)))
		if got := lacks(api.node(t), held); fmt.Sprint(got) != "[Taint]" {
			t.Fatalf("lacks %v", got)
		}
	}
	if writes > 70 {
		t.Errorf("%d writes in an hour", writes)
	}
	// It ends, and a minute later nothing is said about it.
	round()
	for range 3 {
		clock.SetTime(clock.Now().Add(max(again, time.Second)))
		round()
	}
	if v.Status.MarkFailures != nil || len(lacks(api.node(t), held)) > 0 {
		t.Errorf("%+v, lacks %v", v.Status.MarkFailures, lacks(api.node(t), held))
	}
	// A contest about the release: a node that then changes is held back at once.
	release := func() {
		if _, err := r.mark(t.Context(), api.node(t), v, free); err != nil {
			t.Fatal(err)
		}
		n := api.node(t)
		n.Labels[v1alpha1.NodeLabelVerified] = "maybe"
		if err := api.Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	for range 8 {
		release()
	}
	if stepFailureOf(v, v1alpha1.MarkLabel) == nil {
		t.Fatal("no contest about the label")
	}
	retryMarks(v, free, held, clock.Now())
	round()
	if got := lacks(api.node(t), held); len(got) > 0 {
		t.Errorf("lacks %v", got)
	}
}

// The other client is the one that last wrote the mark, or else the Node.
func TestOtherManager(t *testing.T) {
	entry := func(name string, since time.Duration, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: name, Time: at(since), FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)}}
	}
	n := makeNode("a")
	if got := otherManager(n, v1alpha1.MarkTaint); got != "which the managed fields do not name" {
		t.Error(got)
	}
	n.ManagedFields = []metav1.ManagedFieldsEntry{
		entry("kubelet", time.Second, `{"f:status":{}}`), entry("autoscaler", time.Minute, `{"f:spec":{"f:taints":{}}}`), entry("old", time.Hour, `{"f:spec":{"f:taints":{}}}`),
		entry("karpenter", time.Minute, `{"f:spec":{"f:taints":{}}}`),
		entry(string(fieldManager), 0, `{"f:spec":{"f:taints":{}},"f:metadata":{"f:labels":{"f:tailgate.dev/latency-verified":{}}}}`), {Manager: "nothing"},
	}
	for mark, want := range map[v1alpha1.NodeMark]string{"Taint": "perhaps karpenter", "Label": "perhaps kubelet", "Condition": "perhaps kubelet"} {
		if got := otherManager(n, mark); got != want {
			t.Errorf("%s: %s, want %s", mark, got, want)
		}
	}
}

// A Node says that it is held back, or released, only when all marks that were tried were written.
func TestEventsOfMarks(t *testing.T) {
	g := makeGate()
	held, letIn := turns.PublicationOf(g, makeVerification("a", in(v1alpha1.VerificationFailed))), turns.PublicationOf(g, makeVerification("a"))
	written := map[v1alpha1.NodeMark]error{v1alpha1.MarkCondition: nil, v1alpha1.MarkTaint: nil}
	for name, c := range map[string]struct {
		before, then turns.Publication
		outcomes     map[v1alpha1.NodeMark]error
		want         string
	}{
		"held":              {letIn, held, written, "NodeHeld"},
		"released":          {held, letIn, written, "NodeReleased"},
		"one mark refused":  {letIn, held, map[v1alpha1.NodeMark]error{v1alpha1.MarkCondition: nil, v1alpha1.MarkTaint: errDropped}, ""},
		"nothing was tried": {letIn, held, nil, ""},
		"held already":      {held, held, written, ""},
	} {
		recorder := events.NewFakeRecorder(10)
		b := publisher{API: controllers.API{Recorder: recorder}, p: c.then, outcomes: c.outcomes}
		b.tell(t.Context(), c.before.On(makeNode("a")), makeVerification("a"))
		got := ""
		for len(recorder.Events) > 0 {
			got += <-recorder.Events
		}
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
