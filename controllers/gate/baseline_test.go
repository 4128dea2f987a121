package gate

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
)

// The gate says that the result with which it compares is gone or another one, before the next measurement finds out.
func TestBaselineTrouble(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	missing := metav1.Condition{Type: v1alpha1.ConditionPassed, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonResultsMissing}
	for name, c := range map[string]struct {
		change func(*v1alpha1.LatencyBenchmark)
		want   string
	}{
		"as it was accepted": {func(*v1alpha1.LatencyBenchmark) {}, ""},
		"deleted":            {func(b *v1alpha1.LatencyBenchmark) { b.Name = "other" }, "was deleted; accept another result"},
		"created again":      {func(b *v1alpha1.LatencyBenchmark) { b.UID = "uid-evil" }, "was deleted and created again; accept another result"},
		"without results": {
			func(b *v1alpha1.LatencyBenchmark) { b.Status.Conditions = []metav1.Condition{missing} }, "stored results of LatencyBenchmark up-a-3, ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "up-a-3", UID: "uid-3"}}
			c.change(b)
			r := &Verifications{Memory: &Memory{}, API: controllers.API{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(b).Build()}}
			got, err := r.baselineTrouble(t.Context(), makeWorld())
			if err != nil || !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("%q, %v, want %q", got, err, c.want)
			}
		})
	}
}
