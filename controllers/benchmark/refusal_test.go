package benchmark

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
)

// denied returns the error of the API server when a webhook denies a request with a code.
func denied(code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Message: `admission webhook "policy.example" denied the request: because`,
	}}
}

// Whatever the API server answers, an attempt keeps its nodes for no longer than a pod may take to start.
func TestRefusedPods(t *testing.T) {
	pod := schema.GroupResource{Resource: "pods"}
	cases := map[string]struct {
		err     error
		passing bool
	}{
		"a denial without a code":       {err: denied(400)},
		"a denial":                      {err: denied(403)},
		"a quota":                       {err: apierrors.NewForbidden(pod, "x", errors.New("exceeded quota: pods"))},
		"an object that is not valid":   {err: denied(422)},
		"a namespace that is gone":      {err: apierrors.NewNotFound(pod, "x")},
		"a denial with any code":        {err: denied(418)},
		"too many requests":             {err: apierrors.NewTooManyRequests("slow down", 1), passing: true},
		"a webhook that fails":          {err: apierrors.NewInternalError(errors.New("failed calling webhook: context deadline exceeded")), passing: true},
		"a webhook that denies by 503":  {err: denied(503), passing: true},
		"an API server that is slow":    {err: apierrors.NewTimeoutError("slow", 1), passing: true},
		"a conflict of a quota":         {err: apierrors.NewConflict(pod, "x", errors.New("again")), passing: true},
		"a pod that exists":             {err: apierrors.NewAlreadyExists(pod, "x"), passing: true},
		"a connection that is cut":      {err: fmt.Errorf("wrapped: %w", errors.New("connection reset by peer")), passing: true},
		"an answer that takes too long": {err: context.DeadlineExceeded, passing: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(active(0))
			r := &Reconciler{API: controllers.API{Client: interceptor.NewClient(nil, interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
					if _, ok := o.(*corev1.Secret); ok {
						return nil
					}
					return c.err
				},
			})}}
			s := step{kind: stepCreateServer}
			if _, err := r.apply(context.Background(), w, s); err != nil {
				t.Fatalf("the reconcile fails before it reports: %v", err)
			}
			active := w.benchmark.Status.Active
			if c.passing {
				if active.Outcome != nil || active.Refused == nil || active.Refused.Reason != v1alpha1.OutcomePodRefused {
					t.Fatalf("outcome %+v, refused %+v", active.Outcome, active.Refused)
				}
				if !strings.Contains(active.Refused.Message, oneLine(c.err.Error())) {
					t.Errorf("message %q does not have the API server's words", active.Refused.Message)
				}
				return
			}
			if active.Outcome == nil || active.Outcome.Reason != v1alpha1.OutcomePodRefused || !strings.Contains(active.Outcome.Message, oneLine(c.err.Error())) {
				t.Errorf("outcome %+v, refused %+v", active.Outcome, active.Refused)
			}
		})
	}
}

// The pauses between retries grow, and are computed from the first refusal.
func TestRefuse(t *testing.T) {
	w := makeWorld(active(0))
	for _, c := range []struct{ at, pause time.Duration }{{0, lookAgain}, {2 * time.Second, lookAgain}, {8 * time.Second, 8 * time.Second}, {time.Hour, longestPause}} {
		w.now = noon.Add(c.at)
		s := step{}
		w.refuse(&s, &refusal{reason: v1alpha1.OutcomePodRefused, message: "no"})
		refused := w.benchmark.Status.Active.Refused
		if s.again != c.pause || !refused.RetryTime.Time.Equal(w.now.Add(c.pause)) || !refused.StartTime.Time.Equal(noon) || s.reason != v1alpha1.OutcomePodRefused {
			t.Errorf("after %s: %+v, %+v", c.at, s, refused)
		}
	}
}

// A pod that this manager created is adopted even if the status could not be written after that; another pod is not.
func TestAdopt(t *testing.T) {
	r := &Reconciler{}
	r.made.add("uid-server")
	w := makeWorld(active(0), withServer(running), withClient(running))
	status := w.benchmark.Status.Active
	status.ServerPodUID, status.ClientPodUID = "", ""
	r.adopt(w)
	if status.ServerPodUID != "uid-server" || status.ClientPodUID != "" {
		t.Errorf("adopted %q, %q", status.ServerPodUID, status.ClientPodUID)
	}
	r.forget("uid-server")
	if r.made.has("uid-server") {
		t.Error("nothing is forgotten")
	}
	r.adopt(makeWorld(active(0)))
}

// No pod is created without its network: it would attach to another one of that name, or wait for ever.
func TestNoPodWithoutItsNetwork(t *testing.T) {
	for name, end := range map[string]struct {
		step   stepKind
		change func(*world)
	}{
		"the server": {stepCreateServer, func(*world) {}},
		"the client": {stepCreateClient, func(w *world) { withServer(running)(w) }},
	} {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(func(w *world) {
				w.benchmark.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkPF, PF: &v1alpha1.PFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{ResourceName: "example.com/pf", IPAM: &v1alpha1.IPAM{Type: v1alpha1.IPAMStatic}}}}
			}, active(0), end.change)
			var created []string
			api := interceptor.NewClient(nil, interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
					switch o.(type) {
					case *corev1.Secret:
						return nil
					case *corev1.Pod:
						created = append(created, o.GetName())
						return nil
					}
					return apierrors.NewForbidden(corev1.Resource("network-attachment-definitions"), o.GetName(), errors.New("no"))
				},
			})
			if _, err := (&Reconciler{API: controllers.API{Client: api, Live: api}}).apply(t.Context(), w, step{kind: end.step}); err != nil {
				t.Fatal(err)
			}
			active := w.benchmark.Status.Active
			if len(created) > 0 || active.ServerPodUID+active.ClientPodUID != "" && name == "the server" || active.Outcome == nil || active.Outcome.Reason != v1alpha1.OutcomeNetworkRefused {
				t.Errorf("pods %q, outcome %+v, refused %+v", created, active.Outcome, active.Refused)
			}
		})
	}
}

// A benchmark is judged again when anything changes with which its criteria compare.
func TestBaselineKeys(t *testing.T) {
	named := v1alpha1.ObjectName{Name: "before"}
	for name, c := range map[string]struct {
		baseline *v1alpha1.Baseline
		verdict  *v1alpha1.VerdictBaseline
		want     []string
	}{
		"no criteria that compare": {},
		"a benchmark":              {baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineBenchmark, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: named}}, want: []string{"LatencyBenchmark perf/before"}},
		"an export":                {baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineExport, Export: &v1alpha1.ExportedBaseline{ConfigMapName: "kept"}}, want: []string{"ConfigMap perf/kept"}},
		"what a gate accepted":     {baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineGate, Gate: &v1alpha1.ObjectName{Name: "up"}}, want: []string{"LatencyGate up"}},
		"what a gate accepted, and a verdict used": {
			baseline: &v1alpha1.Baseline{Type: v1alpha1.BaselineGate, Gate: &v1alpha1.ObjectName{Name: "up"}}, verdict: &v1alpha1.VerdictBaseline{Namespace: "gates", Benchmark: "up-a-1"},
			want: []string{"LatencyBenchmark gates/up-a-1", "LatencyGate up"},
		},
	} {
		b := makeWorld().benchmark
		b.Spec.Criteria = &v1alpha1.Criteria{Baseline: c.baseline}
		if c.verdict != nil {
			b.Status.Verdict = &v1alpha1.Verdict{Baseline: c.verdict}
		}
		if got := baselineKeys(b); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
