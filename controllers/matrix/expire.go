package matrix

import (
	"context"
	"fmt"
	"time"

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
	why, again := controllers.Overdue(m.Spec.TTLSecondsAfterFinished, m.CreationTimestamp, m.Status.CompletionTime, r.Clock.Now())
	if why == "" {
		return again, nil
	}
	list := &v1alpha1.LatencyMatrixList{}
	if err := r.Client.List(ctx, list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing the matrices beside it: %w", err)
	}
	user := ""
	for i := range list.Items {
		if o := &list.Items[i]; o.DeletionTimestamp.IsZero() && baselineOf(o) == m.Name {
			user = o.Name
		}
	}
	return r.Expire(ctx, m.DeepCopy(), why, user)
}
