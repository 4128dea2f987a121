package evaluate

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// The verdicts of benchmarks in a namespace do not affect a gate whose benchmarks are in another namespace.
func TestAcceptedIsOfTheSameNamespace(t *testing.T) {
	g := &v1alpha1.LatencyGate{ObjectMeta: metav1.ObjectMeta{Name: "up"}, Spec: v1alpha1.LatencyGateSpec{Namespace: "gates"}}
	v := &v1alpha1.LatencyVerification{
		ObjectMeta: metav1.ObjectMeta{Name: "up.a"}, Status: v1alpha1.LatencyVerificationStatus{Accepted: &v1alpha1.AcceptedResult{Benchmark: "up-a-1"}},
	}
	r := &Store{Live: fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(g, v).Build()}
	for namespace, want := range map[string]bool{"gates": true, "others": false} {
		b := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "b"}}
		b.Status.Pair = &v1alpha1.Pair{ClientNode: "a", ServerNode: "b"}
		got, err := r.accepted(context.Background(), b, &compared{gate: "up"})
		if err != nil || (got != nil) != want {
			t.Errorf("in namespace %s: %+v, %v; want a result: %t", namespace, got, err, want)
		}
	}
}
