package benchmark

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/evaluate"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// The boot of a node is stored with a result for ever, and proves which kernel its CPUs belong to: a node that cannot be read is read again.
func TestBootOfTheNodeIsStored(t *testing.T) {
	node := readyNode("b")
	node.Status.NodeInfo.BootID = "boot-b"
	for name, c := range map[string]struct {
		objects []client.Object
		refused error
		boot    string
		fails   bool
	}{
		"the node is there":         {objects: []client.Object{&node}, boot: "boot-b"},
		"the node is gone":          {},
		"the node cannot be read":   {objects: []client.Object{&node}, refused: apierrors.NewInternalError(errors.New("etcd is down")), fails: true},
		"the manager has no rights": {objects: []client.Object{&node}, refused: apierrors.NewForbidden(corev1.Resource("nodes"), "b", nil), fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(on(active(0), withServer(succeeded(0)), withClient(succeeded(0)))...)
			w.benchmark.Status.Active.ServerDevice, w.benchmark.Status.Active.ClientDevice = "0000:3b:00.2", "0000:3b:00.3"
			document := result.Document{Version: result.Version, Run: "x-r1", Variant: plan.DefaultVariant, Attempt: 1, Role: v1alpha1.RoleServer}
			api := interceptor.NewClient(fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(c.objects...).Build(), interceptor.Funcs{
				Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if c.refused != nil {
						return c.refused
					}
					return api.Get(ctx, key, o, opts...)
				},
			})
			r := &Reconciler{API: controllers.API{Client: api}, LogTimeout: time.Minute, Logs: logs(map[string]string{w.server.Name: logOf(t, document)})}
			_, seen, err := r.takeEnd(t.Context(), w, w.ends()[0])
			if seen.NodeBootID != c.boot || (err != nil) != c.fails {
				t.Errorf("boot %q, want %q: %v", seen.NodeBootID, c.boot, err)
			}
			if !c.fails && (seen.PodUID != "uid-server" || seen.ClaimedDevice != "0000:3b:00.2") {
				t.Errorf("seen of pod %q, device %q", seen.PodUID, seen.ClaimedDevice)
			}
		})
	}
}

// An end is not taken without its result, or without what was seen of its pod. Whether a result is missing is open while its kubelet may
// still write the log.
func TestEndThatCannotBeTaken(t *testing.T) {
	node := readyNode("b")
	document := result.Document{Version: result.Version, Run: "x-r1", Variant: plan.DefaultVariant, Attempt: 1, Role: v1alpha1.RoleServer}
	unbuildable := func(w *world) {
		w.benchmark.Spec.Network = v1alpha1.Network{Type: v1alpha1.NetworkVF, VF: &v1alpha1.VFNetwork{DeviceNetwork: v1alpha1.DeviceNetwork{
			ResourceName: "amd.com/sf_vf", IPAM: &v1alpha1.IPAM{Type: v1alpha1.IPAMStatic, Range: "?"},
		}}}
	}
	for name, c := range map[string]struct {
		change  func(*world)
		log     string
		since   time.Duration // since the pod's end
		refused error
		missing bool
	}{
		"its log cannot be read":             {log: logOf(t, document), refused: errors.New("the kubelet does not answer")},
		"its pod cannot be built again":      {change: unbuildable, log: logOf(t, document)},
		"its log has no result yet":          {log: "unable to retrieve container logs\n"},
		"its log has no result for a minute": {log: "unable to retrieve container logs\n", since: peerGrace},
		"its log has no result":              {log: "unable to retrieve container logs\n", since: peerGrace + time.Second, missing: true},
	} {
		t.Run(name, func(t *testing.T) {
			changes := on(active(0), withServer(succeeded(0)), withClient(succeeded(0)), seenEnded(c.since))
			if c.change != nil {
				changes = append(changes, c.change)
			}
			w := makeWorld(changes...)
			r := &Reconciler{
				API: controllers.API{Client: fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(node.DeepCopy()).Build()}, LogTimeout: time.Minute,
				Logs: func(ctx context.Context, pod types.NamespacedName, follow bool) (io.ReadCloser, error) {
					if c.refused != nil {
						return nil, c.refused
					}
					return logs(map[string]string{w.server.Name: c.log})(ctx, pod, follow)
				},
			}
			_, seen, err := r.takeEnd(t.Context(), w, w.ends()[0])
			if err == nil || errors.Is(err, result.ErrMissing) != c.missing {
				t.Errorf("%+v, %v", seen, err)
			}
		})
	}
}

// What is wrong with a result is the outcome of the attempt; any other error is tried again.
func TestUnusableResults(t *testing.T) {
	other := errors.New("the connection was refused")
	for cause, want := range map[error]string{
		result.ErrTooLarge: v1alpha1.OutcomeResultTooLarge, result.ErrMissing: v1alpha1.OutcomeResultMissing,
		result.ErrVersion: v1alpha1.OutcomeVersionMismatch, result.ErrCorrupt: v1alpha1.OutcomeResultCorrupt, other: "",
	} {
		w := makeWorld(on(active(0), withServer(succeeded(0)), withClient(succeeded(0)))...)
		err := w.unusable(fmt.Errorf("client: %w", cause))
		got := ""
		if o := w.benchmark.Status.Active.Outcome; o != nil {
			got = o.Reason
		}
		if got != want || errors.Is(err, other) != errors.Is(cause, other) || err != nil && !errors.Is(cause, other) {
			t.Errorf("%v: outcome %q, want %q, %v", cause, got, want, err)
		}
	}
}

// Each step sets both conditions: whether the spec can be met, and how far the benchmark is.
func TestConditionsOfSteps(t *testing.T) {
	for name, c := range map[string]struct {
		changes             []func(*world)
		accepted, succeeded string
	}{
		"a spec that cannot be met": {on(notAccepted, withNodes(readyNode("a"))), "False", "Unknown NotAccepted"},
		"accepted":                  {on(), "True Accepted", "Unknown"},
		"complete":                  {on(withStored("x-r1"), withStored("x-r2")), "True Accepted", "True Complete"},
		"failed": {on(withAttempt("x-r1", 3, v1alpha1.OutcomeToolFailed, time.Hour), withAttempt("x-r1", 2, v1alpha1.OutcomeToolFailed, time.Hour), withAttempt("x-r1", 1, v1alpha1.OutcomeToolFailed, time.Hour)),
			"True Accepted", "False Failed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := makeWorld(c.changes...)
			s := decide(w)
			w.setConditions(s)
			for conditionType, want := range map[string]string{v1alpha1.ConditionAccepted: c.accepted, v1alpha1.ConditionSucceeded: c.succeeded} {
				found := meta.FindStatusCondition(w.benchmark.Status.Conditions, conditionType)
				if found == nil {
					t.Fatalf("no condition %s after %+v", conditionType, s)
				}
				reason := found.Reason
				if want == string(found.Status) {
					reason = "" // any reason
				}
				if got := string(found.Status) + " " + reason; got != want && string(found.Status) != want {
					t.Errorf("%s is %s %s (%s), want %s", conditionType, found.Status, found.Reason, found.Message, want)
				}
				if conditionType == v1alpha1.ConditionAccepted && found.Status == metav1.ConditionFalse && (found.Reason == v1alpha1.ReasonNotAccepted || found.Message != s.message) {
					t.Errorf("it does not say why: %s %s", found.Reason, found.Message)
				}
			}
		})
	}
}

// Without a pair, nothing is accepted. While others have the nodes, the benchmark stays accepted, also with a changed spec.
func TestAcceptedOfSteps(t *testing.T) {
	w := makeWorld(on(notAccepted, suspended)...)
	w.setConditions(decide(w))
	if c := meta.FindStatusCondition(w.benchmark.Status.Conditions, v1alpha1.ConditionAccepted); c != nil {
		t.Errorf("without a pair: %+v", c)
	}
	w = makeWorld(on(withOther(2*time.Hour, true))...)
	before := v1alpha1.Condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, "client on a, server on b")
	w.benchmark.SetCondition(before)
	w.benchmark.Generation = 7
	w.setConditions(decide(w))
	c := meta.FindStatusCondition(w.benchmark.Status.Conditions, v1alpha1.ConditionAccepted)
	if w.turn || c == nil || c.Status != metav1.ConditionTrue || c.Message != before.Message || c.ObservedGeneration != 7 {
		t.Errorf("while it waits (turn: %t): %+v", w.turn, c)
	}
}

// A pod that was left keeps its nodes until it is known to be gone: if it cannot be read, it may still be there.
func TestLeftPods(t *testing.T) {
	running := makePod(makeWorld().benchmark, v1alpha1.RoleServer, running)
	for name, c := range map[string]struct {
		uid     string
		refused error
		want    int
		fails   bool
	}{
		"it runs":                              {uid: string(running.UID), want: 1},
		"it is gone, and another has its name": {uid: "uid-earlier"},
		"it cannot be read":                    {uid: string(running.UID), refused: apierrors.NewInternalError(errors.New("etcd is down")), fails: true},
	} {
		api := interceptor.NewClient(fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(running.DeepCopy()).Build(), interceptor.Funcs{
			Get: func(ctx context.Context, api client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if c.refused != nil {
					return c.refused
				}
				return api.Get(ctx, key, o, opts...)
			},
		})
		b := makeWorld().benchmark
		b.Status.LeftPods = []v1alpha1.LeftPod{{Name: running.Name, UID: c.uid}}
		left, err := (&Reconciler{API: controllers.API{Live: api}}).left(t.Context(), b)
		if len(left) != c.want || (err != nil) != c.fails {
			t.Errorf("%s: %d pods, %v", name, len(left), err)
		}
	}
}

// A benchmark whose baseline cannot be read is not complete: whether it needs more rounds is not known.
func TestBaselineThatCannotBeRead(t *testing.T) {
	api := interceptor.NewClient(fake.NewClientBuilder().WithScheme(testScheme(t)).Build(), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewInternalError(errors.New("etcd is down"))
		},
	})
	w := makeWorld(undecided, withStored("x-r1"), withStored("x-r2"))
	w.undecided = ""
	w.benchmark.Spec.Criteria.Baseline = &v1alpha1.Baseline{Type: v1alpha1.BaselineBenchmark, Benchmark: &v1alpha1.BenchmarkReference{ObjectName: v1alpha1.ObjectName{Name: "before"}}}
	r := &Reconciler{API: controllers.API{Client: api, Live: api}, Cluster: &observe.Cluster{Cache: api, Live: api}, Results: &evaluate.Store{Live: api}}
	if err := r.observeIdle(t.Context(), w, nil); err == nil {
		t.Errorf("it goes on without the baseline: %q", w.undecided)
	}
}
