package benchmark

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// logOf returns a log with a document.
func logOf(t *testing.T, d result.Document) string {
	t.Helper()
	var b strings.Builder
	if err := result.WriteFrame(&b, d); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// logs returns a reader of the logs of pods, by their names.
func logs(of map[string]string) LogReader {
	return func(_ context.Context, pod types.NamespacedName, _ bool) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(of[pod.Name])), nil
	}
}

func TestTakeResult(t *testing.T) {
	cases := map[string]struct {
		change func(*result.Document)
		want   error
	}{
		"as it should be": {func(*result.Document) {}, nil},
		"another run":     {func(d *result.Document) { d.Run = "x-r2" }, result.ErrCorrupt},
		"another variant": {func(d *result.Document) { d.Variant = "other" }, result.ErrCorrupt},
		"another attempt": {func(d *result.Document) { d.Attempt = 2 }, result.ErrCorrupt},
		"the other end":   {func(d *result.Document) { d.Role = v1alpha1.RoleServer }, result.ErrCorrupt},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			d := result.Document{Version: result.Version, Run: "x-r1", Variant: plan.DefaultVariant, Attempt: 1, Role: v1alpha1.RoleClient}
			c.change(&d)
			w := makeWorld(on(active(0), withServer(succeeded(0)), withClient(succeeded(0)))...)
			r := &Reconciler{LogTimeout: time.Minute, Logs: logs(map[string]string{w.client.Name: logOf(t, d)})}
			if _, err := r.takeResult(t.Context(), w, w.client, v1alpha1.RoleClient); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// A log that does not end, of a kubelet that hangs, blocks neither a benchmark nor its worker.
func TestHungLogs(t *testing.T) {
	hangs := func(ctx context.Context, _ types.NamespacedName, _ bool) (io.ReadCloser, error) {
		reader, writer := io.Pipe()
		context.AfterFunc(ctx, func() { _ = writer.CloseWithError(ctx.Err()) })
		return reader, nil
	}
	refuses := func(ctx context.Context, _ types.NamespacedName, _ bool) (io.ReadCloser, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, logs := range map[string]LogReader{"it sends nothing": hangs, "it does not answer": refuses} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			r := &Reconciler{LogTimeout: 10 * time.Millisecond, Logs: logs}
			w := makeWorld(on(active(0), withServer(succeeded(0)), withClient(succeeded(0)))...)
			if _, err := r.takeResult(ctx, w, w.client, v1alpha1.RoleClient); err == nil {
				t.Error("there is a result")
			}
			w = makeWorld(on(active(0), withServer(running))...)
			w.benchmark.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkHost, Host: &v1alpha1.HostNetwork{Interface: "eth1"}}
			w.runs = plan.Runs(w.benchmark)
			if address, unheard := r.listening(ctx, w); address != "" || unheard == "" {
				t.Errorf("address %q, %q", address, unheard)
			}
			if ctx.Err() != nil {
				t.Error("it waited longer than LogTimeout")
			}
		})
	}
}

func TestKeptBy(t *testing.T) {
	cm := &corev1.ConfigMap{
		BinaryData: map[string][]byte{result.KeyClient: []byte("c"), result.KeyServer: []byte("s")}, Data: map[string]string{result.KeyPods: "p"},
	}
	collected := v1alpha1.StoredResult{SHA256: digest([]byte("c")), ServerSHA256: digest([]byte("s")), PodsSHA256: digest([]byte("p"))}
	other := cm.DeepCopy()
	other.Data[result.KeyPods] = "q"
	for want, cm := range map[kept]*corev1.ConfigMap{keptAbsent: nil, keptWhole: cm, keptOther: other} {
		if got := keptBy(cm, collected); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// If another user's ConfigMap has the name, the operator uses another name, and gives up after storeGrace.
func TestStoreGivesUp(t *testing.T) {
	for since, want := range map[time.Duration]string{storeGrace - time.Second: "", storeGrace + time.Second: v1alpha1.OutcomeStoreRefused} {
		w := makeWorld(on(active(0), withServer(succeeded(0)), withClient(succeeded(0)), collectedAs(keptOther))...)
		now := w.benchmark.Status.Active
		now.CollectionTime = new(metav1.NewMicroTime(ago(since)))
		name, s := now.Collected.ConfigMap, state{}
		(&Reconciler{}).store(t.Context(), w, &s)
		got := ""
		if now.Outcome != nil {
			got = now.Outcome.Reason
		}
		if got != want || now.Collected.ConfigMap == name || len(w.benchmark.Status.Stored) > 0 {
			t.Errorf("after %s: outcome %q, want %q, under %s", since, got, want, now.Collected.ConfigMap)
		}
	}
}

// The operator waits for a result that cannot be read, but no longer than peerGrace.
func TestCollectingHasALimit(t *testing.T) {
	for since, want := range map[time.Duration]bool{peerGrace - time.Second: false, peerGrace + time.Second: true} {
		w := makeWorld(on(active(0), withServer(succeeded(0)), withClient(succeeded(0)))...)
		w.benchmark.Status.Active.EndTime = new(metav1.NewMicroTime(ago(since)))
		s := state{}
		w.cannotCollect(&s, errors.New("no log"))
		if o := w.benchmark.Status.Active.Outcome; (o != nil) != want || o != nil && o.Reason != v1alpha1.OutcomeResultMissing || !want && s.again == 0 {
			t.Errorf("after %s: %+v, again in %s", since, o, s.again)
		}
	}
}

// few returns cells with samples of 5 µs.
func few(t *testing.T) func(string, []tool.Cell) []result.Cell {
	r := result.NewRecorder()
	r.RecordN(5000, 10_000)
	h, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	return func(_ string, cells []tool.Cell) (out []result.Cell) {
		for _, planned := range cells {
			out = append(out, result.Cell{Cell: planned, Tool: "pinger", ToolVersion: "1", Histogram: h})
		}
		return out
	}
}

// small returns a benchmark of six rounds of one cell, complete and stored.
func small(t *testing.T, name string) (*v1alpha1.LatencyBenchmark, func(run string) map[string][]byte) {
	b := makeWorld().benchmark
	b.Name, b.UID = name, types.UID("uid-"+name)
	b.Spec.Tool, b.Spec.Rounds, b.Spec.LatencyType = v1alpha1.ToolPinger, 6, v1alpha1.LatencyHalfRTT
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ReasonComplete, ""))
	content := documents(t, few(t), b)
	store(b, content)
	return b, content
}

// A verdict needs every planned result of both sides, unchanged since the status recorded it.
func TestJudgeNeedsEveryResult(t *testing.T) {
	succeeded := func(b *v1alpha1.LatencyBenchmark, status metav1.ConditionStatus) {
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, status, "Reason", ""))
	}
	cases := map[string]struct {
		// change is made after a first verdict, which is a Pass, and is detected by new versions.
		change func(after, before *v1alpha1.LatencyBenchmark, spoiled map[string]bool)
		reason string
	}{
		"as stored":        {func(_, _ *v1alpha1.LatencyBenchmark, _ map[string]bool) {}, v1alpha1.ReasonWithinLimit},
		"a changed result": {func(_, _ *v1alpha1.LatencyBenchmark, spoiled map[string]bool) { spoiled["after-r3"] = true }, v1alpha1.ReasonResultsMissing},
		"a result that the status does not name": {func(after, _ *v1alpha1.LatencyBenchmark, _ map[string]bool) {
			after.Status.Stored = after.Status.Stored[:4]
		},
			v1alpha1.ReasonResultsMissing},
		"a failed benchmark":               {func(after, _ *v1alpha1.LatencyBenchmark, _ map[string]bool) { succeeded(after, metav1.ConditionFalse) }, v1alpha1.ReasonBenchmarkFailed},
		"a changed result of the baseline": {func(_, _ *v1alpha1.LatencyBenchmark, spoiled map[string]bool) { spoiled["before-r5"] = true }, v1alpha1.ReasonBaselineResultsMissing},
		"a baseline that failed": {func(_, before *v1alpha1.LatencyBenchmark, _ map[string]bool) {
			succeeded(before, metav1.ConditionFalse)
		}, v1alpha1.ReasonBaselineNotComplete},
		"a baseline that is not finished": {func(_, before *v1alpha1.LatencyBenchmark, _ map[string]bool) {
			succeeded(before, metav1.ConditionUnknown)
		}, v1alpha1.ReasonBaselineNotComplete},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			after, ofAfter := small(t, "after")
			before, ofBefore := small(t, "before")
			spoiled := map[string]bool{}
			api := &keeper{benchmarks: map[string]*v1alpha1.LatencyBenchmark{"after": after, "before": before}}
			api.content = func(run string) map[string][]byte {
				of := ofBefore
				if strings.HasPrefix(run, "after") {
					of = ofAfter
				}
				content := of(run)
				if spoiled[run] {
					content[result.KeyServer] = append(bytes.Clone(content[result.KeyServer]), 0)
				}
				return content
			}
			r := &Reconciler{Live: api}
			judged := func() string {
				t.Helper()
				v, err := judgedBy(t, r, after, &v1alpha1.Criteria{
					Baseline: &v1alpha1.Baseline{BenchmarkRef: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: "before"}}},
					Rules:    []v1alpha1.Rule{{Metric: v1alpha1.MetricP50, MaxIncrease: "5%"}},
				})
				if err != nil {
					t.Fatal(err)
				}
				if (v.Outcome == v1alpha1.VerdictPass) != (v.Rules[0].Reason == v1alpha1.ReasonWithinLimit) {
					t.Errorf("%s: %s", v.Outcome, v.Message)
				}
				return v.Rules[0].Reason
			}
			if got := judged(); got != v1alpha1.ReasonWithinLimit {
				t.Fatalf("got %s at first", got)
			}
			c.change(after, before, spoiled)
			api.version = "2"
			if got := judged(); got != c.reason {
				t.Errorf("got %s, want %s", got, c.reason)
			}
		})
	}
}

// A verdict reads the results without merging them, but a later summary needs them merged.
func TestSummarizeAfterJudge(t *testing.T) {
	b, content := small(t, "x")
	r := &Reconciler{Live: &keeper{benchmarks: map[string]*v1alpha1.LatencyBenchmark{"x": b}, content: content}}
	limit := &v1alpha1.Criteria{Rules: []v1alpha1.Rule{{Metric: v1alpha1.MetricP50, MaxLatency: metav1.Duration{Duration: time.Second}}}}
	for range 2 {
		if v, err := judgedBy(t, r, b, limit); err != nil || v.Outcome != v1alpha1.VerdictPass {
			t.Fatalf("%+v, %v", v, err)
		}
		if err := r.summarize(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if got := b.Status.Results[0].Samples; got != 60_000 {
			t.Errorf("%d samples in all rounds", got)
		}
	}
	if kept := r.stored.kept; len(kept) != 1 || !kept[0].rounds.Merges {
		t.Errorf("%d benchmarks are kept, or one that is not merged", len(kept))
	}
}

// A result that a manager stored before it died is not read and stored again.
func TestStoreTakesWhatIsStored(t *testing.T) {
	w := makeWorld(on(active(0), withServer(succeeded(0)), withClient(succeeded(0)), collectedAs(keptWhole))...)
	collected := *w.benchmark.Status.Active.Collected
	(&Reconciler{Logs: func(context.Context, types.NamespacedName, bool) (io.ReadCloser, error) {
		t.Error("a log is read")
		return nil, io.ErrUnexpectedEOF
	}}).store(t.Context(), w, &state{})
	if stored := w.benchmark.Status.Stored; len(stored) != 1 || stored[0] != collected || w.benchmark.Status.Active.Outcome.Reason != v1alpha1.OutcomeMeasured {
		t.Errorf("stored %v, outcome %+v", stored, w.benchmark.Status.Active.Outcome)
	}
}

// A result that a webhook changes while it is created is not accepted as the measured result.
func TestCreateResultVerifiesWhatIsStored(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.ConfigMap)
		// image is the image of the server's pod, if it changes after the digests were recorded.
		image  string
		stored int
		// another is true if the server's log has another result by then.
		another bool
	}{
		"as it was made":        {func(*corev1.ConfigMap) {}, "", 1, false},
		"changed by a webhook":  {func(cm *corev1.ConfigMap) { cm.Data[result.KeyPods] += " " }, "", 0, false},
		"of pods that changed":  {func(*corev1.ConfigMap) {}, "sha256:ff", 0, false},
		"of a log that changed": {func(*corev1.ConfigMap) {}, "", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			written := map[string]string{}
			end := func(role string) func(*corev1.Pod) {
				d := result.Document{Version: result.Version, Run: "x-r1", Variant: plan.DefaultVariant, Attempt: 1, Role: role}
				if role == v1alpha1.RoleClient {
					d.Cells = few(t)("", plan.Runs(makeWorld().benchmark)[0].Cells)
				}
				return func(p *corev1.Pod) {
					succeeded(0)(p)
					written[p.Name] = logOf(t, d)
				}
			}
			w := makeWorld(on(active(0), withServer(end(v1alpha1.RoleServer)), withClient(end(v1alpha1.RoleClient)))...)
			api := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
					c.change(o.(*corev1.ConfigMap))
					return nil
				},
			})
			r := &Reconciler{Client: api, LogTimeout: time.Minute, Logs: logs(written)}
			if err := r.collect(t.Context(), w); err != nil || w.benchmark.Status.Active.Outcome != nil {
				t.Fatalf("%v, %+v", err, w.benchmark.Status.Active.Outcome)
			}
			noted := w.benchmark.Status.Active.Collected.PodsSHA256
			if c.image != "" {
				w.server.Status.ContainerStatuses[0].ImageID = c.image
			}
			if c.another {
				written[w.server.Name] = logOf(t, result.Document{
					Version: result.Version, Run: "x-r1", Variant: plan.DefaultVariant, Attempt: 1, Role: v1alpha1.RoleServer, Evidence: result.Evidence{Node: "c"},
				})
			}
			err := r.createResult(t.Context(), w)
			if o := w.benchmark.Status.Active.Outcome; c.another && (o == nil || o.Reason != v1alpha1.OutcomeResultCorrupt) {
				t.Errorf("the outcome is %+v", o)
			}
			if changed := w.benchmark.Status.Active.Collected.PodsSHA256 != noted; changed != (c.image != "") {
				t.Errorf("what was seen of the pods is noted again: %t", changed)
			}
			if got := len(w.benchmark.Status.Stored); got != c.stored || (err == nil) != (c.stored == 1 || c.another) {
				t.Errorf("%d results are stored, want %d: %v", got, c.stored, err)
			}
		})
	}
}
