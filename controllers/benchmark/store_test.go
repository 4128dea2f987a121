package benchmark

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// few returns cells with samples of 5 µs.
func few(t *testing.T, cells []tool.Cell) (out []result.Cell) {
	r := result.NewRecorder()
	r.RecordN(5000, 10_000)
	h, err := r.Histogram()
	if err != nil {
		t.Fatal(err)
	}
	for _, planned := range cells {
		out = append(out, result.Cell{Cell: planned, Tool: "pinger", ToolVersion: "1", Histogram: h})
	}
	return out
}

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
			if address, noAddress := r.listening(ctx, w); address != "" || noAddress == "" {
				t.Errorf("address %q, %q", address, noAddress)
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
	collected := v1alpha1.StoredResult{SHA256: digestOf("c"), ServerSHA256: digestOf("s"), PodsSHA256: digestOf("p")}
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
		name, s := now.Collected.ConfigMap, step{}
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
	for since, want := range map[time.Duration]bool{peerGrace: false, peerGrace + time.Second: true} {
		w := makeWorld(on(active(0), withServer(succeeded(0)), withClient(succeeded(0)))...)
		w.benchmark.Status.Active.EndTime = new(metav1.NewMicroTime(ago(since)))
		s := step{}
		w.cannotCollect(&s, errors.New("no log"))
		if o := w.benchmark.Status.Active.Outcome; (o != nil) != want || o != nil && o.Reason != v1alpha1.OutcomeResultMissing || !want && s.again == 0 {
			t.Errorf("after %s: %+v, again in %s", since, o, s.again)
		}
	}
}

// A result that a manager stored before it died is not read and stored again.
func TestStoreTakesWhatIsStored(t *testing.T) {
	w := makeWorld(on(active(0), withServer(succeeded(0)), withClient(succeeded(0)), collectedAs(keptWhole))...)
	collected := *w.benchmark.Status.Active.Collected
	(&Reconciler{Logs: func(context.Context, types.NamespacedName, bool) (io.ReadCloser, error) {
		t.Error("a log is read")
		return nil, io.ErrUnexpectedEOF
	}}).store(t.Context(), w, &step{})
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
					d.Cells = few(t, plan.Runs(makeWorld().benchmark)[0].Cells)
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
			r := &Reconciler{API: controllers.API{Client: api}, LogTimeout: time.Minute, Logs: logs(written)}
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
			if c.image != "" || c.another {
				r.taken.Clear() // as in a manager that did not collect the result
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
