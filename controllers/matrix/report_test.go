package matrix

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
)

func conditionText(c metav1.Condition) string {
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

// earlier returns the matrix with an earlier number of measured pairs.
func earlier(complete int32) *v1alpha1.LatencyMatrix {
	m := makeWorld().matrix
	m.Status.Counts.Complete = complete
	return m
}

// blockedBy sets why the benchmark of a pair with a place cannot be created.
func blockedBy(number int32, reason, message string) func(*world) {
	return func(w *world) {
		claimed(number)(w)
		w.blocked[number] = blocker{reason, message}
	}
}

func TestSucceeds(t *testing.T) {
	cases := map[string]struct {
		world *world
		want  string
	}{
		"nothing is begun":      {makeWorld(), "Unknown Queued: 0 of 6 pairs done"},
		"the first are claimed": {makeWorld(claimed(1), claimed(2)), "Unknown Starting: 0 of 6 pairs done; starting x-p1, x-p2"},
		"one measures, one waits": {
			makeWorld(finishedPairs(1, 2), running(3, measuring), running(4)), "Unknown Running: 2 of 6 pairs done; measuring x-p3; queued x-p4",
		},
		"they wait": {makeWorld(running(1), running(2)), "Unknown Queued: 0 of 6 pairs done; queued x-p1, x-p2"},
		"many": {
			worldOf(8, 4, running(1, measuring), running(2, measuring), running(3, measuring), running(4, measuring)),
			"Unknown Running: 0 of 28 pairs done; measuring x-p1, x-p2, x-p3, and 1 more",
		},
		"a node is not ready":  {makeWorld(running(1, rejected(0))), "Unknown NotAccepted: 0 of 6 pairs done; x-p1: node d is not ready"},
		"another one is":       {makeWorld(running(1, rejected(0)), running(2, measuring)), "Unknown Running: 0 of 6 pairs done; measuring x-p2; x-p1: node d is not ready"},
		"a name is taken":      {makeWorld(running(1, measuring), blockedBy(2, v1alpha1.OutcomeNameTaken, "delete it")), "Unknown NameTaken: 0 of 6 pairs done; measuring x-p1; delete it"},
		"one is refused":       {makeWorld(running(1, measuring), blockedBy(2, v1alpha1.ReasonBenchmarkRefused, "quota")), "Unknown BenchmarkRefused: 0 of 6 pairs done; measuring x-p1; quota"},
		"an earlier one goes":  {makeWorld(blockedBy(2, v1alpha1.ReasonQueued, "not gone")), "Unknown Queued: 0 of 6 pairs done; not gone"},
		"a failure is not all": {makeWorld(withChild(1, failing), running(2, measuring)), "Unknown Running: 1 of 6 pairs done; measuring x-p2"},
		"all are measured":     {makeWorld(finishedPairs(1, 2, 3, 4, 5, 6)), "True Complete: 6 of 6 pairs measured"},
		"all but one are":      {makeWorld(finishedPairs(1, 2, 4, 5, 6), withChild(3, failing)), "False Failed: 1 of 6 pairs failed, first x-p3: run x-p3-r2 failed"},
		"the slowest is reported": {makeWorld(finishedPairs(1, 2, 3, 4, 5, 6), func(w *world) {
			w.children[4].Status.Results = []v1alpha1.CellResult{{Variant: "default", Name: "tcp-64", Percentiles: []v1alpha1.PercentileResult{{Name: v1alpha1.P99, Nanoseconds: 5}}}}
		}), "True Complete: 6 of 6 pairs measured; the slowest is x-p5"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			c.world.count(earlier(0))
			if diff := cmp.Diff(c.want, conditionText(c.world.succeeds())); diff != "" {
				t.Errorf("condition Succeeded (-want +got):\n%s", diff)
			}
		})
	}
}

// eventSink is an API server that records the notes of events.
type eventSink struct {
	events.EventSink
	notes chan string
}

func (s eventSink) Create(_ context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	if e.Reason == v1alpha1.ReasonPairMeasured {
		s.notes <- e.Note
	}
	return e, nil
}

func (s eventSink) Patch(_ context.Context, e *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	s.notes <- "a repetition of: " + e.Note
	return e, nil
}

// The recorder treats events about the same version of an object as one repeated event if only their messages differ.
func TestPairsReleasedAtOnceHaveAnEventEach(t *testing.T) {
	w := makeWorld(running(1, complete), running(2, complete))
	w.release(1)
	w.release(2)
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(w.matrix).WithStatusSubresource(w.matrix).Build()
	sink := eventSink{notes: make(chan string, 10)}
	broadcaster := events.NewBroadcaster(sink)
	defer broadcaster.Shutdown()
	if err := broadcaster.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{API: controllers.API{Client: c, Recorder: broadcaster.NewRecorder(scheme, "tailgate"), Clock: clock.RealClock{}}}
	if err := r.report(t.Context(), makeWorld().matrix, w); err != nil {
		t.Fatal(err)
	}
	got := []string{<-sink.notes, <-sink.notes}
	slices.Sort(got)
	want := []string{"measured x-p1, client on a, server on d", "measured x-p2, client on b, server on c"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestCount(t *testing.T) {
	w := makeWorld(finishedPairs(1), withChild(2, failing), running(3, measuring))
	w.count(earlier(3))
	status := w.matrix.Status
	if diff := cmp.Diff(v1alpha1.PairCounts{Total: 6, Running: 1, Complete: 1, Failed: 1}, status.Counts); diff != "" || status.Slots != 3 {
		t.Errorf("%d slots, counts (-want +got):\n%s", status.Slots, diff)
	}
	if len(w.notices) != 1 || w.notices[0].Reason != v1alpha1.ReasonPairDeleted {
		t.Errorf("a finished pair that is gone was reported: %+v", w.notices)
	}
}

// When one pair is finished while the benchmark of another is deleted, the number of finished pairs is the same, but the pairs differ.
func TestCountComparesAgain(t *testing.T) {
	results := func(b *v1alpha1.LatencyBenchmark) {
		complete(b)
		b.Status.Results = []v1alpha1.CellResult{{Variant: "default", Name: "tcp-64", Percentiles: []v1alpha1.PercentileResult{{Name: v1alpha1.P99, Nanoseconds: 5}}}}
	}
	for released, want := range map[bool]string{true: "x-p2", false: "x-p1"} {
		w := makeWorld(withChild(2, results))
		w.released = released
		w.matrix.Status.Slowest = []v1alpha1.MatrixPair{{Benchmark: "x-p1"}}
		w.count(earlier(1))
		if got := w.matrix.Status.Slowest[0].Benchmark; got != want {
			t.Errorf("released %t: the slowest is %s, want %s", released, got, want)
		}
	}
}

// Two rounds of 3 s each are planned for each of six pairs, and two pairs run at once.
func TestProgress(t *testing.T) {
	cases := map[string]struct {
		world *world
		want  v1alpha1.Progress
	}{
		"nothing is begun": {makeWorld(), v1alpha1.Progress{Runs: "0/12", Total: 12, MeasuringSecondsLeft: 18}},
		"one at a time":    {worldOf(4, 0), v1alpha1.Progress{Runs: "0/12", Total: 12, MeasuringSecondsLeft: 36}},
		"in the middle":    {makeWorld(finishedPairs(1), running(2, measuring)), v1alpha1.Progress{Runs: "3/12", Done: 3, Total: 12, MeasuringSecondsLeft: 14}},
		"a failed one":     {makeWorld(finishedPairs(1, 2, 3, 4, 5), withChild(6, failing)), v1alpha1.Progress{Runs: "11/12", Done: 11, Total: 12}},
		"all":              {makeWorld(finishedPairs(1, 2, 3, 4, 5, 6)), v1alpha1.Progress{Runs: "12/12", Done: 12, Total: 12}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(&c.want, c.world.progress()); diff != "" {
				t.Errorf("progress (-want +got):\n%s", diff)
			}
		})
	}
}

// A matrix outside of the named namespaces is not read.
func TestNamedNamespaces(t *testing.T) {
	r := &Reconciler{Namespaces: controllers.Named{"perf"}} // Without a client, it can read nothing.
	again, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "elsewhere", Name: "m"}})
	if err != nil || again != (ctrl.Result{}) {
		t.Errorf("%v, %v", again, err)
	}
}
