package gate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/turns"
	"github.com/tailgate-dev/tailgate/test/gatetest"
)

// refusing is an API server that refuses one of the calls that it gets, and counts them.
type refusing struct {
	client.WithWatch
	calls []string
	// at is the number of the refused call, from 1, and err the answer.
	at  int
	err error
	// written is true if a call changed an object, of which the controller gets an event, since it was set to false.
	written bool
}

func (r *refusing) call(verb string, o any) error {
	r.calls = append(r.calls, fmt.Sprintf("%s %s", verb, strings.TrimPrefix(fmt.Sprintf("%T", o), "*")))
	if len(r.calls) == r.at {
		return r.err
	}
	// A controller gets no event of what it writes to these.
	if call := r.calls[len(r.calls)-1]; call != "update status v1alpha1.LatencyGate" && !strings.HasSuffix(call, "PodDisruptionBudget") {
		r.written = r.written || verb != "get" && verb != "list"
	}
	return nil
}

func (r *refusing) client() client.WithWatch {
	return interceptor.NewClient(r.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return unless(r.call("get", o), func() error { return c.Get(ctx, key, o, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
			return unless(r.call("list", l), func() error { return c.List(ctx, l, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return unless(r.call("create", o), func() error { return c.Create(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return unless(r.call("delete", o), func() error { return c.Delete(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return unless(r.call("update", o), func() error { return c.Update(ctx, o, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			return unless(r.call("patch", o), func() error { return c.Patch(ctx, o, p, opts...) })
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return unless(r.call("update "+sub, o), func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			return unless(r.call("patch "+sub, o), func() error { return c.SubResource(sub).Patch(ctx, o, p, opts...) })
		},
	})
}

// unless makes a call that was not refused.
func unless(refused error, call func() error) error {
	if refused != nil {
		return refused
	}
	return call()
}

// deepCopies returns objects that a test may change.
func deepCopies(objects []client.Object) []client.Object {
	var all []client.Object
	for _, o := range objects {
		all = append(all, o.DeepCopyObject().(client.Object))
	}
	return all
}

// waiting reports whether a request of a verification was not processed.
func waiting(v *v1alpha1.LatencyVerification) bool {
	accept, verify := v.Requests()
	return accept != nil || verify != nil
}

// facts returns what an API server has in the end, without times and versions, and the events about the node's verification and the gate.
func facts(t *testing.T, server client.Client, recorder *events.FakeRecorder) string {
	t.Helper()
	var all []string
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	list := func(l client.ObjectList) {
		if err := server.List(t.Context(), l); err != nil {
			t.Fatal(err)
		}
	}
	gates, verifications, benchmarks := &v1alpha1.LatencyGateList{}, &v1alpha1.LatencyVerificationList{}, &v1alpha1.LatencyBenchmarkList{}
	nodes, pods, budgets := &corev1.NodeList{}, &corev1.PodList{}, &policyv1.PodDisruptionBudgetList{}
	for _, l := range []client.ObjectList{gates, verifications, benchmarks, nodes, pods, budgets} {
		list(l)
	}
	for _, g := range gates.Items {
		say("gate finalizers=%v nodes=%v %v", g.Finalizers, g.Status.Nodes, reasons(g.Status.Conditions))
	}
	if len(gates.Items) == 0 {
		say("no gate")
	}
	names := []string{}
	for _, v := range verifications.Items {
		names = append(names, v.Name)
		s := v.Status
		accepted, retained, measures := "", "", ""
		if s.Accepted != nil {
			accepted = s.Accepted.Benchmark
		}
		if s.Retained != nil {
			retained = s.Retained.Reason
		}
		if s.Benchmark != nil {
			measures = s.Benchmark.Name
		}
		say("%s: %s %s, accepted=%s retained=%s measures=%s number=%d history=%d sessions=%d+%d changed=%v waiting=%t finalizers=%v", v.Name, s.State, s.Verified().Reason,
			accepted, retained, measures, s.Number, len(s.History), len(s.Reference), len(s.Recent), s.Changed, waiting(&v), v.Finalizers)
	}
	say("verifications=%v", names)
	names = nil
	for _, b := range benchmarks.Items {
		names = append(names, b.Name)
	}
	say("benchmarks=%v", names)
	for _, n := range nodes.Items {
		taint := corev1.TaintEffect("")
		for _, found := range n.Spec.Taints {
			taint = found.Effect
		}
		say("node %s: label=%s taint=%s %v", n.Name, n.Labels[v1alpha1.NodeLabelVerified], taint, marksOf(&n).Value(v1alpha1.MarkCondition))
	}
	for _, p := range pods.Items {
		say("hold pod %s %s %v", p.Name, p.Labels[v1alpha1.NodeLabelVerified], probes(&p))
	}
	for _, b := range budgets.Items {
		say("budget %s", b.Spec.MinAvailable)
	}
	var said []string
	for range len(recorder.Events) {
		// What the operator says about the refusal itself is more than without one, and events of the Node follow its marks one by one.
		if e := <-recorder.Events; !slices.ContainsFunc([]string{"efused", "Operational", "NodeHeld", "NodeReleased"}, func(part string) bool { return strings.Contains(e, part) }) {
			said = append(said, "event "+e)
		}
	}
	slices.Sort(said)
	return strings.Join(slices.Concat(all, said), "\n") + "\n"
}

func reasons(conditions []metav1.Condition) []string {
	var all []string
	for _, c := range conditions {
		if c.Type == v1alpha1.ConditionOperational {
			continue // It says what was refused until the node is measured.
		}
		all = append(all, fmt.Sprint(c.Type, "=", c.Status, " ", c.Reason))
	}
	slices.Sort(all)
	return all
}

// gateServer returns an API server with the objects of a world, and those that are given.
func gateServer(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), appsv1.AddToScheme(scheme), policyv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	index := func(of func(*v1alpha1.LatencyVerification) string) client.IndexerFunc {
		return func(o client.Object) []string { return []string{of(o.(*v1alpha1.LatencyVerification))} }
	}
	v := &v1alpha1.LatencyVerification{}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.LatencyGate{}, v, &v1alpha1.LatencyBenchmark{}, &corev1.Node{}, &corev1.Pod{}).
		WithIndex(v, indexGate, index(func(v *v1alpha1.LatencyVerification) string { return v.Spec.GateName })).
		WithIndex(v, indexNode, index(func(v *v1alpha1.LatencyVerification) string { return v.Spec.NodeName })).
		WithIndex(v, "status.state", index(func(v *v1alpha1.LatencyVerification) string { return string(v.Status.State) })).
		WithIndex(&v1alpha1.LatencyBenchmark{}, indexOwner, func(o client.Object) []string {
			if owner := metav1.GetControllerOf(o); owner != nil {
				return []string{string(owner.UID)}
			}
			return nil
		}).Build()
}

// One call of the API server that fails, whichever it is, changes nothing in the end: the reconcile returns an error, or looks again, and
// comes to the same state and to the same events. An error that a step ignores loses a result, or writes a state that it only believes.
func TestOneRefusedCallChangesNothing(t *testing.T) {
	enforced := func(g *v1alpha1.LatencyGate) {
		g.Finalizers = []string{v1alpha1.FinalizerNode}
		g.Spec.Enforcement = v1alpha1.Enforcement{
			Mode: v1alpha1.EnforcementAll, Label: &v1alpha1.GateLabel{}, Taint: &v1alpha1.GateTaint{Effect: corev1.TaintEffectNoSchedule},
			HoldPod: &v1alpha1.GateHoldPod{Budget: &v1alpha1.GateBudget{MaxUnavailable: 1}},
		}
	}
	deletedGate := func(g *v1alpha1.LatencyGate) { enforced(g); g.DeletionTimestamp = at(time.Minute) }
	of := func(changes ...func(*v1alpha1.LatencyVerification)) *v1alpha1.LatencyVerification {
		v := makeVerification("a", changes...)
		v.Finalizers = []string{v1alpha1.FinalizerNode}
		return v
	}
	gone := func(v *v1alpha1.LatencyVerification) {
		v.Status.Retained = &v1alpha1.Retention{StartTime: *at(2 * time.Hour), EndTime: *at(time.Hour), Reason: v1alpha1.ReasonNodeDeleted}
	}
	lost := func(v *v1alpha1.LatencyVerification) {
		v.Status.Retained = &v1alpha1.Retention{StartTime: *at(2 * time.Hour), EndTime: *at(time.Hour), DueTime: at(time.Hour), Reason: v1alpha1.ReasonNotSelected}
	}
	booted := func(n *corev1.Node) { n.Status.NodeInfo.BootID = "boot-2" }
	stored := func(w *world) *v1alpha1.LatencyBenchmark {
		w.benchmark.OwnerReferences = []metav1.OwnerReference{turns.OwnedBy(w.verification)}
		digest, err := specDigest(w.benchmark.Spec)
		if err != nil {
			t.Fatal(err)
		}
		w.verification.Status.Benchmark.SpecSHA256 = digest
		return w.benchmark
	}
	pass := makeWorld(measured(metav1.ConditionTrue, v1alpha1.ReasonPass))
	fail := makeWorld(measured(metav1.ConditionFalse, v1alpha1.ReasonFail))
	for _, w := range []*world{pass, fail} {
		w.verification.Finalizers = []string{v1alpha1.FinalizerNode}
	}
	// Benchmark up-a-2 failed, and a user accepts it.
	old := turns.Benchmark(makeGate(), of(), "b", 2)
	old.UID = "uid-2"
	old.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, "10 of 10 runs"))
	old.Status.Session = &v1alpha1.Session{BootID: "boot-1", Rounds: gatetest.Rounds(1005)}
	failed := of(in(v1alpha1.VerificationFailed), func(v *v1alpha1.LatencyVerification) {
		v.Spec.Accept = &v1alpha1.AcceptRequest{Benchmark: "up-a-2", UserRequest: by}
	})
	failed.Status.History[1].ResultPin = mustPin(old)
	failed.Status.History[1].Identity = failed.Status.History[0].Identity
	// Node a has all marks of a node that waits.
	waits := of(unverified(v1alpha1.ReasonNewNode))
	marked := func(n *corev1.Node) {
		p := turns.PublicationOf(makeGate(enforced), waits)
		n.Labels[v1alpha1.NodeLabelVerified], n.Spec.Taints = p.Label, []corev1.Taint{*p.Taint}
		n.Status.Conditions = append(n.Status.Conditions, *p.Condition, *p.Regressed)
	}
	forgotten := turns.Benchmark(makeGate(), of(), "b", 1)
	forgotten.UID = "uid-forgotten"
	idle := makeGate(enforced)
	for name, c := range map[string]struct {
		// objects are what the API server has; gates reconciles the gate instead of the node.
		objects []client.Object
		gates   bool
		// want are parts of what the server has in the end.
		want []string
	}{
		"a new boot": {objects: []client.Object{makeGate(enforced), makeNode("a", booted), of()}, want: []string{"Unverified IdentityChanged", "taint=NoSchedule", "label=false", "hold pod"}},
		"a Pass":     {objects: []client.Object{makeGate(enforced), makeNode("a"), pass.verification, stored(pass), makeNode("b"), makeVerification("b")}, want: []string{"Verified Passed", "accepted=up-a-4", "label=true"}},
		"a Fail":     {objects: []client.Object{makeGate(enforced), makeNode("a"), fail.verification, stored(fail)}, want: []string{"Failed Fail", "accepted=up-a-3", "taint=NoSchedule"}},
		"a result that a user accepts": {
			objects: []client.Object{makeGate(enforced), makeNode("a"), failed, old},
			want:    []string{"Verified AcceptedByHand", "accepted=up-a-2", "sessions=1+1", "waiting=false"},
		},
		"a measurement that a user requests":                       {objects: []client.Object{makeGate(enforced), makeNode("a"), of(func(v *v1alpha1.LatencyVerification) { v.Spec.Verify = new(by) })}, want: []string{"Verified Passed", "waiting=false"}},
		"a measurement that a user requests of a node that failed": {objects: []client.Object{makeGate(enforced), makeNode("a"), of(in(v1alpha1.VerificationFailed), func(v *v1alpha1.LatencyVerification) { v.Spec.Verify = new(by) })}, want: []string{"Unverified VerifyRequested", "waiting=false"}},
		"a benchmark that nobody needs":                            {objects: []client.Object{makeGate(enforced), makeNode("a"), of(), forgotten}, want: []string{"Verified Passed", "benchmarks=[]"}},
		"a gate that is deleted":                                   {objects: []client.Object{makeGate(deletedGate), makeNode("a"), of(), forgotten}, want: []string{"retained=GateDeleted", "finalizers=[]", "benchmarks=[]"}},
		"a Node that is deleted":                                   {objects: []client.Object{makeGate(enforced), of()}, want: []string{"retained=NodeDeleted"}},
		"a Node that was gone for long enough":                     {objects: []client.Object{makeGate(enforced), of(gone)}, want: []string{"verifications=[]"}},
		"a node that is not selected any more": {
			objects: []client.Object{makeGate(enforced), makeNode("a", func(n *corev1.Node) { n.Labels = nil }), of()}, want: []string{"retained=NotSelected"},
		},
		"a node that was not selected for long enough": {
			objects: []client.Object{makeGate(enforced), makeNode("a", func(n *corev1.Node) { n.Labels = nil }), of(lost)},
			want:    []string{"verifications=[]", "event Warning Released LatencyGate up has not selected node a for 1h0m0s"},
		},
		"a verification that is deleted": {
			objects: []client.Object{makeGate(deletedGate), makeNode("a"), of(func(v *v1alpha1.LatencyVerification) { v.DeletionTimestamp = at(0) })}, want: []string{"verifications=[]"},
		},
		"nodes that join":                         {gates: true, objects: []client.Object{idle, makeNode("a"), makeNode("b")}, want: []string{"verifications=[up.a up.b]", "budget"}},
		"a node that waits":                       {gates: true, objects: []client.Object{idle, makeNode("a", marked), makeNode("b"), waits, makeVerification("b")}, want: []string{"Measuring", "benchmarks=[up-a-4]"}},
		"a gate that is deleted, and has a node":  {gates: true, objects: []client.Object{makeGate(deletedGate), makeNode("a"), of()}, want: []string{"gate finalizers=[" + v1alpha1.FinalizerNode}},
		"a gate that is deleted, and has no node": {gates: true, objects: []client.Object{makeGate(deletedGate), makeNode("a")}, want: []string{"no gate"}},
	} {
		t.Run(name, func(t *testing.T) {
			// run reconciles until nothing asks for another reconcile, and returns what the server has then.
			run := func(at int, err error) (calls []string, end string) {
				server := gateServer(t, deepCopies(c.objects)...)
				api := &refusing{WithWatch: server, at: at, err: err}
				recorder := events.NewFakeRecorder(1000)
				clock := clocktesting.NewFakePassiveClock(noon)
				access := controllers.API{Client: api.client(), Live: api.client(), Clock: clock, Recorder: recorder}
				nodes := &Verifications{API: access, Image: "bench", Memory: &Memory{}}
				gates := &Gates{API: access, Memory: nodes.Memory}
				for range 50 {
					api.written = false
					var again ctrl.Result
					var err error
					if c.gates {
						again, err = gates.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: "up"}})
					} else {
						again, err = nodes.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Name: v1alpha1.VerificationName("up", "a")}})
					}
					if err == nil && !api.written && (again.RequeueAfter == 0 || again.RequeueAfter == budgetAgain || again.RequeueAfter > 10*time.Minute) {
						return api.calls, facts(t, server, recorder)
					}
					if !api.written {
						clock.SetTime(clock.Now().Add(again.RequeueAfter))
					}
				}
				t.Fatalf("it does not settle after call %d failed", at)
				return nil, ""
			}
			calls, want := run(0, nil)
			for _, part := range c.want {
				if !strings.Contains(want, part) {
					t.Errorf("there is no %q in\n%s", part, want)
				}
			}
			if strings.Contains(want, "event Warning  ") || strings.Contains(want, "event Normal  ") {
				t.Errorf("an event without a reason in\n%s", want)
			}
			times := map[string]int{}
			for i, call := range calls {
				if times[call]++; times[call] > 2 {
					continue // It is the same call of a later reconcile.
				}
				kinds := map[string]error{"fails": apierrors.NewInternalError(errors.New("etcd is down"))}
				if !slices.Contains([]string{"get", "list"}, strings.Fields(call)[0]) {
					kinds["conflicts"] = apierrors.NewConflict(schema.GroupResource{Resource: "x"}, "x", errors.New("it changed"))
				}
				for _, kind := range slices.Sorted(maps.Keys(kinds)) {
					_, end := run(i+1, kinds[kind])
					if c.gates {
						// A benchmark that no status names is deleted by the controller of the nodes; the next number is used.
						end = strings.NewReplacer("up-a-4 up-a-5", "up-a-4", "up-a-5", "up-a-4", "number=5", "number=4").Replace(end)
					}
					if end != want {
						t.Errorf("call %d, %s, %s (-want +got):\n%s", i+1, call, kind, cmp.Diff(want, end))
					}
				}
			}
		})
	}
}
