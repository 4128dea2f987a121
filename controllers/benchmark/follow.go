package benchmark

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// A kubelet reports up to a second late that a container has ended, and cleans up one or two seconds after that, but at once if a pod is
// deleted while its container runs. The agents therefore linger when they have written their results. The controller follows their logs
// from the moment at which the measurement may be over, and deletes the pods when both have results. If a log cannot be followed, nothing
// else is lost: the pods' phases show the end later.

// linger is how long an agent waits to be stopped. On an idle cluster the controller needs 0.2 s.
const linger = 2 * time.Second

func (r *Reconciler) follow(ctx context.Context, w *world) {
	limit := plan.Deadline(w.driver, w.activeRun().Cells)
	// The reconcile changes the original object.
	benchmark := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: w.benchmark.Namespace, Name: w.benchmark.Name}}
	for _, e := range w.ends() {
		p := e.pod
		if r.followed.has(p.UID) {
			continue
		}
		r.followed.add(p.UID)
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
			defer cancel()
			if !r.hasResult(ctx, p) {
				// The next reconcile follows it again.
				r.followed.uids.Delete(p.UID)
				return
			}
			if r.written.add(p.UID); r.haveResults(w.server, w.client) {
				select {
				case r.wake <- event.GenericEvent{Object: benchmark}:
				case <-ctx.Done():
				}
			}
		}()
	}
}

func (r *Reconciler) hasResult(ctx context.Context, p *corev1.Pod) bool {
	log, err := r.Logs(ctx, clientKey(p), true)
	if err != nil {
		return false
	}
	defer log.Close()
	return result.AwaitFrame(log) == nil
}

func (r *Reconciler) haveResults(server, client *corev1.Pod) bool {
	return server != nil && client != nil && r.written.has(server.UID) && r.written.has(client.UID)
}
