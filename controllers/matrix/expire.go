package matrix

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
)

// expire deletes a finished matrix when its spec.ttlSecondsAfterFinished has passed, unless another matrix has it as its baseline.
// It returns when to look again.
func (r *Reconciler) expire(ctx context.Context, m *v1alpha1.LatencyMatrix) (time.Duration, error) {
	if !m.Finished() {
		return 0, nil
	}
	why, again := controllers.Overdue(m.Spec.TTLSecondsAfterFinished, m.Status.CompletionTime, r.Clock.Now())
	if why == "" {
		return again, nil
	}
	list := &v1alpha1.LatencyMatrixList{}
	if err := r.Client.List(ctx, list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing the matrices beside it: %w", err)
	}
	for i := range list.Items {
		if user := &list.Items[i]; user.DeletionTimestamp.IsZero() && baselineOf(user) == m.Name {
			r.Recorder.Eventf(m, nil, corev1.EventTypeNormal, v1alpha1.ReasonKept, "Delete",
				"it is not deleted although spec.ttlSecondsAfterFinished has passed: it is the baseline of LatencyMatrix %s; delete that one first, or give its criteria another baseline", user.Name)
			return controllers.KeptAgain, nil
		}
	}
	if err := controllers.DeleteExpired(ctx, r.Client, m.DeepCopy()); err != nil {
		return 0, err
	}
	r.Recorder.Eventf(m, nil, corev1.EventTypeNormal, v1alpha1.ReasonExpired, "Delete", "deleted with its benchmarks and results: %s", why)
	return 0, nil
}
