package matrix

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// keptAgain is how often a matrix is looked at that would be deleted if it were not a baseline.
const keptAgain = 10 * time.Minute

// expire deletes a finished matrix when its time is over, unless another one has it as its baseline. It returns when to
// look again.
func (r *Reconciler) expire(ctx context.Context, m *v1alpha1.LatencyMatrix) (time.Duration, error) {
	if !finished(m) || m.Spec.TTLSecondsAfterFinished == nil || m.Status.CompletionTime == nil {
		return 0, nil
	}
	ttl := time.Duration(*m.Spec.TTLSecondsAfterFinished) * time.Second
	if left := m.Status.CompletionTime.Add(ttl).Sub(r.Clock.Now()); left > 0 {
		return left, nil
	}
	list := &v1alpha1.LatencyMatrixList{}
	if err := r.Client.List(ctx, list, client.InNamespace(m.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing the matrices beside it: %w", err)
	}
	for i := range list.Items {
		if user := &list.Items[i]; user.DeletionTimestamp.IsZero() && baselineOf(user) == m.Name {
			r.Recorder.Eventf(m, nil, corev1.EventTypeNormal, v1alpha1.ReasonKept, "Delete",
				"it is not deleted although spec.ttlSecondsAfterFinished is over: it is the baseline of LatencyMatrix %s; delete that one first, or give its criteria another baseline", user.Name)
			return keptAgain, nil
		}
	}
	// Of the version that was decided about: its spec may just have been edited.
	err := r.Client.Delete(ctx, m.DeepCopy(), client.Preconditions{UID: &m.UID, ResourceVersion: &m.ResourceVersion},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil {
		return 0, fmt.Errorf("deleting it: %w", err)
	}
	r.Recorder.Eventf(m, nil, corev1.EventTypeNormal, v1alpha1.ReasonExpired, "Delete",
		"deleted with its benchmarks and results: spec.ttlSecondsAfterFinished is %d, and it finished at %s",
		*m.Spec.TTLSecondsAfterFinished, m.Status.CompletionTime.UTC().Format(time.RFC3339))
	return 0, nil
}
