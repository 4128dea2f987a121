package benchmark

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/evaluate"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/queue"
	"github.com/tailgate-dev/tailgate/internal/tool/all"
)

func TestNotReady(t *testing.T) {
	unready := func(name string) corev1.Node {
		n := readyNode(name)
		n.Status.Conditions[0].Status = corev1.ConditionUnknown
		return n
	}
	cases := map[string]struct {
		nodes []corev1.Node
		want  []string
	}{
		"both are ready":   {nodes: []corev1.Node{readyNode("a"), readyNode("b"), unready("c")}},
		"one is not ready": {nodes: []corev1.Node{unready("a"), readyNode("b")}, want: []string{"a"}},
		"one is gone":      {nodes: []corev1.Node{readyNode("a")}, want: []string{"b"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, notReady(v1alpha1.Pair{ClientNode: "a", ServerNode: "b"}, c.nodes)); diff != "" {
				t.Errorf("not ready (-want +got):\n%s", diff)
			}
		})
	}
}

// Waiting times count from when this operator first saw their cause, until it is over.
func TestNote(t *testing.T) {
	w := makeWorld(active(time.Hour), withServer(running), withClient(succeeded(time.Hour)))
	w.notReady = []string{"b"}
	w.recordSeen()
	status := w.benchmark.Status.Active
	if status.EndTime == nil || !status.EndTime.Time.Equal(noon) || status.NotReadyTime == nil || !status.NotReadyTime.Time.Equal(noon) {
		t.Errorf("ended %v, not ready %v, want noon", status.EndTime, status.NotReadyTime)
	}
	w.now = noon.Add(time.Minute)
	w.recordSeen()
	if !status.EndTime.Time.Equal(noon) || !status.NotReadyTime.Time.Equal(noon) {
		t.Errorf("a minute later ended %v, not ready %v", status.EndTime, status.NotReadyTime)
	}
	w.notReady = nil
	w.recordSeen()
	if !status.EndTime.Time.Equal(noon) || status.NotReadyTime != nil {
		t.Errorf("ready again: ended %v, not ready %v", status.EndTime, status.NotReadyTime)
	}
}

// The nodes of an attempt are released although a pod cannot be removed, and that pod is recorded.
func TestRelease(t *testing.T) {
	w := makeWorld(active(90*time.Second), withServer(running, deleted), withClient(succeeded(0), deleted), withOutcome(v1alpha1.OutcomeNodeLost), heldBefore(time.Minute))
	w.release()
	want := []v1alpha1.LeftPod{{Name: "x-r1-a1-server", UID: "uid-server"}}
	if diff := cmp.Diff(want, w.benchmark.Status.LeftPods); diff != "" || w.benchmark.Status.Active != nil || w.benchmark.Status.OccupiedSeconds != 150 {
		t.Errorf("%s\n%+v", diff, w.benchmark.Status)
	}
}

// A pod that cannot be removed blocks its node from the decision after the release on, before the status with its name is written.
func TestReleasedPodIsInTheWay(t *testing.T) {
	w := makeWorld(active(90*time.Second), withServer(running), withOutcome(v1alpha1.OutcomeNodeLost))
	w.server.Labels[v1alpha1.LabelManagedBy] = v1alpha1.ManagedByTailgate
	written := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(w.benchmark.DeepCopy(), w.server).Build()
	w.release()
	// The cache has the pod, or not yet.
	for name, cache := range map[string]client.Client{"cached": written, "live": fake.NewClientBuilder().WithScheme(testScheme(t)).Build()} {
		r := &Reconciler{API: controllers.API{Client: cache, Live: written}}
		if err := r.observeQueue(t.Context(), r.Live, observe.Each, w, client.InNamespace("perf")); err != nil {
			t.Fatal(err)
		}
		want := []blockingPod{{name: "perf/x-r1-a1-server on b", stuck: true}}
		if diff := cmp.Diff(want, w.blocking, cmp.AllowUnexported(blockingPod{})); diff != "" {
			t.Errorf("%s: in the way (-want +got):\n%s", name, diff)
		}
	}
}

// An attempt ends, and releases its nodes, even if the state that the next run needs cannot be read.
func TestReleaseWithoutTheNextRun(t *testing.T) {
	w := makeWorld(active(time.Minute), withOutcome(v1alpha1.OutcomeMeasured))
	w.benchmark.Spec.Pods = &v1alpha1.PodSettings{PriorityClassName: "high"}
	written := fake.NewClientBuilder().WithScheme(testScheme(t)).WithStatusSubresource(w.benchmark).WithObjects(w.benchmark).Build()
	forbidden := errors.New("forbidden")
	api := interceptor.NewClient(written, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if _, ok := o.(*schedulingv1.PriorityClass); ok {
				return forbidden
			}
			return c.Get(ctx, key, o, options...)
		},
	})
	r := &Reconciler{API: controllers.API{Client: api, Live: api, Clock: clocktesting.NewFakePassiveClock(noon), Recorder: events.NewFakeRecorder(10)}, Cluster: &observe.Cluster{Cache: api, Live: api, Clock: clocktesting.NewFakePassiveClock(noon), Tools: all.Registry()}, Results: &evaluate.Store{Live: api}}
	key := clientKey(w.benchmark)
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); !errors.Is(err, forbidden) {
		t.Errorf("got %v, want %v", err, forbidden)
	}
	b := &v1alpha1.LatencyBenchmark{}
	if err := written.Get(t.Context(), key, b); err != nil {
		t.Fatal(err)
	}
	if b.Status.Active != nil || len(b.Status.Attempts) != 1 {
		t.Errorf("active %+v, %d attempts", b.Status.Active, len(b.Status.Attempts))
	}
}

// The cache has no pages: a list from it with a limit would leave out the other benchmarks, without a word. Live lists are read in pages.
func TestOnlyLiveListsHavePages(t *testing.T) {
	w := makeWorld(active(time.Minute))
	stored := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(w.benchmark).Build()
	reader := func(pages bool) client.WithWatch {
		return interceptor.NewClient(stored, interceptor.Funcs{
			List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				o := client.ListOptions{}
				if o.ApplyOptions(options); o.Limit > 0 != pages {
					t.Errorf("pages: %t, and %T is listed with limit %d", pages, list, o.Limit)
				}
				if _, ok := list.(*corev1.PodList); ok && pages {
					t.Error("live, the pods of all who write our labels are read")
				}
				if !pages {
					list.SetContinue("continue-not-supported") // as the cache does
				}
				return nil
			},
		})
	}
	r := &Reconciler{API: controllers.API{Client: reader(false), Live: reader(true)}}
	w.benchmark.Status.Active = nil
	if err := r.observeQueue(t.Context(), r.Client, observe.Whole, w); err != nil {
		t.Error(err)
	}
	if err := r.observeQueue(t.Context(), r.Live, observe.Each, w, client.MatchingFields{"status.completionTime": ""}); err != nil {
		t.Error(err)
	}
}

// An attempt that has failed is ended, and its pods are deleted, without another event in between.
func TestReconcileGoesOn(t *testing.T) {
	w := makeWorld(active(time.Minute), withServer(refused("Evicted", "the node had no memory left")))
	api := fake.NewClientBuilder().WithScheme(testScheme(t)).WithStatusSubresource(w.benchmark).WithObjects(w.benchmark, w.server).Build()
	r := &Reconciler{API: controllers.API{Client: api, Live: api, Clock: clocktesting.NewFakePassiveClock(noon), Recorder: events.NewFakeRecorder(10)}, Cluster: &observe.Cluster{Cache: api, Live: api, Clock: clocktesting.NewFakePassiveClock(noon), Tools: all.Registry()}, Results: &evaluate.Store{Live: api}}
	if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: clientKey(w.benchmark)}); err != nil {
		t.Fatal(err)
	}
	b := &v1alpha1.LatencyBenchmark{}
	if err := api.Get(t.Context(), clientKey(w.benchmark), b); err != nil {
		t.Fatal(err)
	}
	if b.Status.Active == nil || b.Status.Active.Outcome == nil {
		t.Errorf("the attempt has no outcome: %+v", b.Status.Active)
	}
	if err := api.Get(t.Context(), clientKey(w.server), w.server); !apierrors.IsNotFound(err) {
		t.Errorf("the server's pod exists: %v", err)
	}
}

func TestCompetes(t *testing.T) {
	condition := func(conditionType string, status metav1.ConditionStatus) func(*world) {
		return func(w *world) { w.benchmark.SetCondition(v1alpha1.Condition(conditionType, status, "Reason", "")) }
	}
	cases := map[string]struct {
		changes []func(*world)
		want    bool
	}{
		"accepted":                        {changes: on(condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue)), want: true},
		"accepted, not said so yet":       {want: true},
		"not accepted yet":                {changes: on(notAccepted)},
		"rejected after it was accepted":  {changes: on(condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse))},
		"rejected while it holds a claim": {changes: on(active(0), condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse)), want: true},
		"still running":                   {changes: on(condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown)), want: true},
		"complete":                        {changes: on(condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue))},
		"failed":                          {changes: on(condition(v1alpha1.ConditionSucceeded, metav1.ConditionFalse))},
		"being deleted":                   {changes: on(active(0), func(w *world) { w.benchmark.DeletionTimestamp = &metav1.Time{Time: noon} })},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := queue.Competes(makeWorld(c.changes...).benchmark); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}

// A node's heartbeat must not wake a benchmark, but a change of the fields that the preflight reads must.
func TestNodeChanges(t *testing.T) {
	cases := map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"a heartbeat": {change: func(n *corev1.Node) {
			n.ResourceVersion = "2"
			n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(noon)
		}},
		"an image more":          {change: func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{SizeBytes: 1}} }},
		"a label":                {change: func(n *corev1.Node) { n.Labels = map[string]string{"rack": "1"} }, want: true},
		"cordoned":               {change: func(n *corev1.Node) { n.Spec.Unschedulable = true }, want: true},
		"tainted":                {change: func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "busy", Effect: "NoSchedule"}} }, want: true},
		"not ready":              {change: func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown }, want: true},
		"a device is advertised": {change: func(n *corev1.Node) { n.Status.Allocatable["amd.com/sf_vf"] = resource.MustParse("4") }, want: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before, after := readyNode("a"), readyNode("a")
			c.change(&after)
			if got := controllers.NodeChanges.Update(event.UpdateEvent{ObjectOld: &before, ObjectNew: &after}); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}

func TestReleases(t *testing.T) {
	complete := func(w *world) {
		w.benchmark.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, ""))
	}
	cases := map[string]struct {
		before, after []func(*world)
		want          bool
	}{
		"a claim that is given up":      {before: on(active(0)), want: true},
		"a claim that is taken":         {after: on(active(0))},
		"a claim that is kept":          {before: on(active(0)), after: on(active(0))},
		"the last run":                  {after: on(complete), want: true},
		"a change of one that is ended": {before: on(complete), after: on(complete)},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e := event.UpdateEvent{ObjectOld: makeWorld(c.before...).benchmark, ObjectNew: makeWorld(c.after...).benchmark}
			if got := releases.Update(e); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
	if !releases.Delete(event.DeleteEvent{}) {
		t.Error("a benchmark that goes wakes no controller")
	}
}

func TestUnseenBefore(t *testing.T) {
	b := makeWorld().benchmark
	cases := map[string]struct {
		change func(*v1alpha1.LatencyBenchmark)
		want   bool
	}{
		"older":                      {change: func(o *v1alpha1.LatencyBenchmark) { o.CreationTimestamp.Time = ago(2 * time.Hour) }, want: true},
		"of the same second, before": {change: func(o *v1alpha1.LatencyBenchmark) { o.Name = "w" }, want: true},
		"of the same second, after":  {change: func(o *v1alpha1.LatencyBenchmark) { o.Name = "y" }},
		"younger":                    {change: func(o *v1alpha1.LatencyBenchmark) { o.CreationTimestamp.Time = ago(time.Minute) }},
		"itself":                     {change: func(*v1alpha1.LatencyBenchmark) {}},
		"older, looked at": {change: func(o *v1alpha1.LatencyBenchmark) {
			o.CreationTimestamp.Time, o.Status.ObservedGeneration = ago(2*time.Hour), 1
		}},
		"older, suspended": {change: func(o *v1alpha1.LatencyBenchmark) {
			o.CreationTimestamp.Time, o.Spec.Suspend = ago(2*time.Hour), true
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			o := b.DeepCopy()
			c.change(o)
			if got := unseenBefore(o, b); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
		})
	}
}

func TestInTheWay(t *testing.T) {
	benchmark := makeWorld().benchmark
	earlier := benchmark.DeepCopy()
	earlier.UID = "uid-earlier"
	other := earlier.DeepCopy()
	other.Name = "other"
	elsewhere := func(p *corev1.Pod) { p.Spec.NodeName = "c" }
	cases := map[string]struct {
		of      *v1alpha1.LatencyBenchmark
		changes []func(*corev1.Pod)
		forged  bool
		want    bool
	}{
		"on a node of the pair, with labels and owner that another user wrote": {of: other, changes: []func(*corev1.Pod){running}, forged: true},
		"running on a node of the pair":                                        {of: other, changes: []func(*corev1.Pod){running}, want: true},
		"not scheduled yet, for a node of the pair":                            {of: other, want: true},
		"ended, and not deleted":                                               {of: other, changes: []func(*corev1.Pod){succeeded(time.Second)}, want: true},
		"deleted, and not ended":                                               {of: other, changes: []func(*corev1.Pod){succeeded(time.Second), stillRunning, deleted}, want: true},
		"deleted and ended":                                                    {of: other, changes: []func(*corev1.Pod){succeeded(time.Second), deleted}},
		"on another node":                                                      {of: other, changes: []func(*corev1.Pod){running, elsewhere}},
		"our own, of the run before":                                           {of: benchmark, changes: []func(*corev1.Pod){succeeded(time.Second), deleted}},
		"of an earlier benchmark of the same name, though it has ended elsewhere": {
			of: earlier, changes: []func(*corev1.Pod){succeeded(time.Second), deleted, elsewhere}, want: true,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := makePod(c.of, v1alpha1.RoleClient, c.changes...)
			p.Labels[v1alpha1.LabelBenchmark] = c.of.Name
			if got := inTheWay(benchmark, p, !c.forged); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// A benchmark outside of the named namespaces is never read by itself, and one that is older holds up no other.
func TestNamedNamespaces(t *testing.T) {
	w := makeWorld()
	elsewhere := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "x", CreationTimestamp: metav1.NewTime(ago(2 * time.Hour))}}
	api := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(w.benchmark, elsewhere).Build()
	for unseen, named := range map[string]controllers.Named{"elsewhere/x": nil, "": {w.benchmark.Namespace}} {
		r := &Reconciler{API: controllers.API{Client: api}, Settings: Settings{Namespaces: named}}
		if err := r.observeQueue(t.Context(), api, observe.Whole, w); err != nil || w.unseen != unseen {
			t.Errorf("of %v, %q comes first, want %q; %v", named, w.unseen, unseen, err)
		}
	}
	r := &Reconciler{Settings: Settings{Namespaces: controllers.Named{w.benchmark.Namespace}}} // Without a client, it can read nothing.
	if again, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(elsewhere)}); err != nil || again != (ctrl.Result{}) {
		t.Errorf("%v, %v", again, err)
	}
}

// Any editor of a namespace can create thousands of events about its own pod, each with megabytes of annotations.
func TestWarningsAreBounded(t *testing.T) {
	pages := 0
	live := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		options := client.ListOptions{}
		options.ApplyOptions(opts)
		uid, _ := options.FieldSelector.RequiresExactMatch("involvedObject.uid")
		of, _ := options.FieldSelector.RequiresExactMatch("type")
		if options.Limit == 0 || uid != "uid-server" || of != "Warning" || options.Namespace != "perf" {
			t.Fatalf("%+v", options)
		}
		pages++
		for range options.Limit {
			list.(*corev1.EventList).Items = append(list.(*corev1.EventList).Items, corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": strings.Repeat("x", 1<<10)}}, Reason: strings.Repeat("FailedMount", 1<<10),
				Message: strings.Repeat("y", 1<<12) + strings.Repeat(" ", 1<<20), // A part of it must not keep all of it.
			})
		}
		list.SetContinue("more")
		return nil
	}})
	r := &Reconciler{API: controllers.API{Live: live}}
	got, err := r.warnings(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "x", UID: "uid-server"}})
	if err != nil || len(got) != mostWarnings || pages > mostWarnings/32+1 {
		t.Fatalf("%d events of %d pages, %v", len(got), pages, err)
	}
	list := runtime.MemStats{}
	runtime.GC()
	runtime.ReadMemStats(&list)
	if kept := list.HeapAlloc >> 20; kept > 64 {
		t.Errorf("%d MiB are kept", kept)
	}
	if e := got[0]; e.Annotations != nil || len(e.Reason) > 256 || !strings.HasPrefix(e.Reason, "FailedMount") || len(e.Message) > maxWarning {
		t.Errorf("kept: %d annotations, %q, a message of %d bytes", len(e.Annotations), e.Reason, len(e.Message))
	}
}

// What a pod reports, and the API server refuses to store, ends the attempt: it would keep its nodes for ever.
func TestWhatCannotBeStored(t *testing.T) {
	long := strings.Repeat("A", 64)
	w := makeWorld(active(time.Minute))
	stored := fake.NewClientBuilder().WithScheme(testScheme(t)).WithStatusSubresource(w.benchmark).WithObjects(w.benchmark).Build()
	for name, refusal := range map[string]error{
		"the schema refuses it": apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind("LatencyBenchmark").GroupKind(), "x", nil),
		"etcd refuses it":       errors.New("rpc error: etcdserver: request is too large"),
	} {
		api := interceptor.NewClient(stored, interceptor.Funcs{
			SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, options ...client.SubResourceUpdateOption) error {
				if o.(*v1alpha1.LatencyBenchmark).Status.Active.Outcome.Reason == long {
					return refusal
				}
				return c.SubResource(sub).Update(ctx, o, options...)
			},
		})
		r := &Reconciler{API: controllers.API{Client: api, Live: api, Clock: clocktesting.NewFakePassiveClock(noon), Recorder: events.NewFakeRecorder(10)}, Results: &evaluate.Store{Live: api}}
		old := &v1alpha1.LatencyBenchmark{}
		if err := stored.Get(t.Context(), clientKey(w.benchmark), old); err != nil {
			t.Fatal(err)
		}
		old.Status.Active.Outcome = nil
		next := old.DeepCopy()
		next.Status.Active.Outcome = &v1alpha1.Outcome{Reason: long}
		if err := r.report(t.Context(), old, next); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := stored.Get(t.Context(), clientKey(w.benchmark), old); err != nil {
			t.Fatal(err)
		}
		if o := old.Status.Active.Outcome; o == nil || o.Reason != v1alpha1.OutcomeResultCorrupt || !strings.Contains(o.Message, "cannot be stored") {
			t.Errorf("%s: the outcome is %+v", name, o)
		}
	}
}

// While the manager's memory ends, only the namespace with most benchmarks begins nothing new.
func TestMostOfTheMemory(t *testing.T) {
	w := makeWorld()
	objects := []client.Object{w.benchmark}
	for _, name := range []string{"a", "b"} {
		objects = append(objects, &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: "hostile", Name: name}})
	}
	api := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(objects...).Build()
	for ends, want := range map[bool][2]int{false: {0, 0}, true: {0, 2}} {
		r := &Reconciler{API: controllers.API{Client: api}, MemoryEnds: func() bool { return ends }}
		for i, b := range []client.Object{w.benchmark, objects[1]} {
			w.benchmark = b.(*v1alpha1.LatencyBenchmark)
			if err := r.observeQueue(t.Context(), api, observe.Whole, w); err != nil || w.most != want[i] {
				t.Errorf("memory ends: %t, %s: %d, %v", ends, b.GetNamespace(), w.most, err)
			}
			if i > 0 {
				continue
			}
			// The live list before a claim lacks the benchmarks that are finished, which need memory, too.
			live := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(b).WithIndex(&v1alpha1.LatencyBenchmark{}, "status.completionTime", func(client.Object) []string { return []string{""} }).Build()
			r.Live = live
			if _, err := r.confirm(t.Context(), w, step{kind: stepClaim}); err != nil || w.most != 0 {
				t.Errorf("memory ends: %t, before a claim: %d, %v", ends, w.most, err)
			}
		}
		w.benchmark = objects[0].(*v1alpha1.LatencyBenchmark)
	}
}
