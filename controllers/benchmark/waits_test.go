package benchmark

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// A benchmark that waits as its status says is read from the cache alone; any difference makes the operator read it live.
func TestWaitingReadsTheCache(t *testing.T) {
	cases := map[string]struct {
		change func(b, other *v1alpha1.LatencyBenchmark)
		live   bool
	}{
		"as its status says":        {func(_, _ *v1alpha1.LatencyBenchmark) {}, false},
		"the other one is finished": {func(_, other *v1alpha1.LatencyBenchmark) { other.Status.Active, other.Spec.Suspend = nil, true }, true},
		"its spec has changed":      {func(b, _ *v1alpha1.LatencyBenchmark) { b.Generation++ }, true},
		"it is suspended":           {func(b, _ *v1alpha1.LatencyBenchmark) { b.Spec.Suspend = true }, true},
		"its node is gone": {func(b, other *v1alpha1.LatencyBenchmark) {
			b.Status.Pair.ClientNode, other.Status.Pair.ClientNode = "gone", "gone"
			b.Status.Conditions[1].Message = "waiting: perf/other is measuring on node gone and node b"
		}, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := makeWorld().benchmark
			other := makeWorld(active(time.Minute)).benchmark
			other.Name, other.UID = "other", "uid-other"
			b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, ""))
			b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonQueued,
				"waiting: perf/other is measuring on node a and node b"))
			b.Status.ObservedGeneration, other.Status.ObservedGeneration = 1, 1
			c.change(b, other)
			a, z := readyNode("a"), readyNode("b")
			cache := fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(b, other, &a, &z).Build()
			asked := false
			live := interceptor.NewClient(cache, interceptor.Funcs{
				Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
					asked = true
					return context.Canceled
				},
			})
			clock := clocktesting.NewFakePassiveClock(noon)
			tools := tool.Registry{v1alpha1.ToolSockperf: fakeDriver{}}
			r := &Reconciler{API: controllers.API{Client: cache, Live: live, Clock: clock}, Settings: Settings{MaxAttempts: 3},
				Cluster: &observe.Cluster{Cache: cache, Live: live, Clock: clock, Tools: tools}}
			result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: clientKey(b)})
			if asked != c.live || (err != nil) != c.live {
				t.Errorf("read live: %t, %v; want %t", asked, err, c.live)
			}
			if !c.live && (result.RequeueAfter < waitAgain || result.RequeueAfter > waitAgain*12/10) {
				t.Errorf("looks again in %s", result.RequeueAfter)
			}
		})
	}
}
