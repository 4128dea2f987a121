package benchmark

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// A kubelet looks at its containers once a second. It reports up to a second late that one has ended, and cleans up after it
// one or two looks later. It cleans up at once after a pod that is deleted. The controller therefore follows the logs of the two
// pods from the moment at which the measurement can be over, and takes the result and deletes the pods when both logs have their results.
// A log that cannot be followed costs nothing else: the pods' phases say the same, later.

// followedLogs are the logs that are being followed, by the pods' UIDs; true are those that have a result. Ready to use when zero.
type followedLogs struct {
	mu   sync.Mutex
	logs map[types.UID]bool
}

// begin says whether a log is not followed yet, which it is from now on.
func (f *followedLogs) begin(uid types.UID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.logs == nil {
		f.logs = map[types.UID]bool{}
	}
	_, known := f.logs[uid]
	if !known {
		f.logs[uid] = false
	}
	return !known
}

// end records whether the log has a result. One that has none may be followed again.
func (f *followedLogs) end(uid types.UID, found bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.logs[uid] = found; !found {
		delete(f.logs, uid)
	}
}

// found says whether the logs of all these pods have results.
func (f *followedLogs) found(pods ...*corev1.Pod) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range pods {
		if p == nil || !f.logs[p.UID] {
			return false
		}
	}
	return true
}

// forget is for pods that are not looked at any more.
func (f *followedLogs) forget(uids ...types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, uid := range uids {
		delete(f.logs, uid)
	}
}

// follow follows the logs of both pods of the active attempt, beyond the reconcile, until they have a result, end, or take longer
// than the agents may. It wakes the controller when it has found both.
func (r *Reconciler) follow(ctx context.Context, w *world) {
	limit := plan.Deadline(w.driver, w.activeRun().Cells)
	// The reconcile changes the object itself.
	benchmark := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: w.benchmark.Namespace, Name: w.benchmark.Name}}
	for _, p := range []*corev1.Pod{w.server, w.client} {
		if !r.followed.begin(p.UID) {
			continue
		}
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
			defer cancel()
			r.followed.end(p.UID, r.hasResult(ctx, p))
			if !r.followed.found(w.server, w.client) {
				return
			}
			select {
			case r.found <- event.GenericEvent{Object: benchmark}:
			case <-ctx.Done():
			}
		}()
	}
}

// hasResult waits until a log has a result.
func (r *Reconciler) hasResult(ctx context.Context, p *corev1.Pod) bool {
	log, err := r.Logs(ctx, clientKey(p), true)
	if err != nil {
		return false
	}
	defer log.Close()
	_, err = result.ReadFrame(log)
	return err == nil
}
