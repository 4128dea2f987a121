package controllers_test

import (
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
)

// A client logs what it has done, and not what was refused.
func TestLogged(t *testing.T) {
	var lines []string
	logger := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	ctx := controllers.With(log.IntoContext(t.Context(), logger), "benchmark", "perf/x")
	c := controllers.Logged(fake.NewFakeClient())
	pod := func() *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "perf", Name: "p", Labels: map[string]string{v1alpha1.LabelRun: "x-r1"}}}
	}
	for i, write := range []error{c.Create(ctx, pod()), c.Create(ctx, pod()), c.Delete(ctx, pod()), c.Delete(ctx, pod())} {
		if refused := i%2 == 1; refused != (write != nil) {
			t.Fatalf("write %d: %v", i, write)
		}
	}
	const keys = ` "benchmark"="perf/x" "kind"="Pod" "object"="perf/p" "run"="x-r1"`
	if got, want := strings.Join(lines, "\n"), `"level"=0 "msg"="created"`+keys+"\n"+`"level"=0 "msg"="deleted"`+keys; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
