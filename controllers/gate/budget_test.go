package gate

import (
	"fmt"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

// The budget follows the number of nodes, goes with the option, and leaves the budget of another owner alone.
func TestBudget(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := policyv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientBuilder().WithScheme(scheme).Build()
	r := &Gates{Memory: &Memory{}, API: controllers.API{Client: api, Live: api}}
	gate := &v1alpha1.LatencyGate{ObjectMeta: metav1.ObjectMeta{Name: "g", UID: "gate"}, Spec: v1alpha1.LatencyGateSpec{Namespace: "gates"}}
	key := client.ObjectKey{Namespace: "gates", Name: "tailgate-hold-g"}
	// step reconciles the gate with a number of nodes, and returns the minimum and how unhealthy pods are evicted.
	step := func(nodes int, budget *v1alpha1.GateBudget) (string, error) {
		t.Helper()
		gate.Spec.Enforcement.HoldPod = &v1alpha1.GateHoldPod{Budget: budget}
		err := r.budget(t.Context(), &snapshot{Snapshot: &turns.Snapshot{Gate: gate, Verifications: make([]*v1alpha1.LatencyVerification, nodes)}})
		found := &policyv1.PodDisruptionBudget{}
		if got := api.Get(t.Context(), key, found); got != nil {
			return string(apierrors.ReasonForError(got)), err
		}
		return fmt.Sprint(found.Spec.MinAvailable.IntValue(), " ", *found.Spec.UnhealthyPodEvictionPolicy), err
	}
	for i, c := range []struct {
		nodes  int
		budget *v1alpha1.GateBudget
		want   string
	}{
		{3, nil, "NotFound"},
		{3, &v1alpha1.GateBudget{MaxUnavailable: 1}, "2 AlwaysAllow"},
		{5, &v1alpha1.GateBudget{MaxUnavailable: 1}, "4 AlwaysAllow"},
		{5, &v1alpha1.GateBudget{MaxUnavailable: 9}, "0 AlwaysAllow"},
		{5, nil, "NotFound"},
		{5, nil, "NotFound"},
	} {
		if got, err := step(c.nodes, c.budget); err != nil || got != c.want {
			t.Errorf("step %d: %s, %v; want %s", i, got, err, c.want)
		}
	}
	other := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	other.Spec.MinAvailable, other.Spec.UnhealthyPodEvictionPolicy = new(intstr.FromInt32(7)), new(policyv1.IfHealthyBudget)
	if err := api.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if got, err := step(3, &v1alpha1.GateBudget{MaxUnavailable: 1}); err == nil || got != "7 IfHealthyBudget" {
		t.Errorf("a budget of another owner: %s, %v", got, err)
	}
	if got, err := step(3, nil); err != nil || got != "7 IfHealthyBudget" {
		t.Errorf("a budget of another owner that is not asked for: %s, %v", got, err)
	}
}
