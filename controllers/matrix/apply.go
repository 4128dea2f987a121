package matrix

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/queue"
)

const (
	lookAgain  = 2 * time.Second // for state that no watch reports
	maxUpdates = 50              // of pairs' benchmarks in one reconcile: other matrices wait
)

func (r *Reconciler) apply(ctx context.Context, w *world, s steps) (time.Duration, error) {
	m := w.matrix
	switch {
	case s.rejection != nil:
		w.rejection = s.rejection
		return s.again, nil
	case s.nodes != nil:
		m.Status.Nodes, m.Status.Server = s.nodes.Names, s.nodes.Server
		w.pairs, w.slots = planOf(m)
		w.children = make([]*v1alpha1.LatencyBenchmark, len(w.pairs))
		w.chosen = s.nodes
		return s.again, nil
	case !accepted(m):
		return 0, nil // It was suspended before it was accepted.
	}
	for _, number := range s.release {
		w.release(number)
	}
	for _, number := range slices.Concat(s.end, s.postpone) {
		if err := r.withdraw(ctx, w, number); err != nil {
			return 0, err
		}
	}
	for i := range m.Status.Running {
		running := &m.Status.Running[i]
		if slices.Contains(s.create, running.Number) {
			r.create(ctx, w, running)
		} else if child := w.child(running.Number); child != nil {
			running.UID = string(child.UID)
		}
	}
	for _, number := range s.claim {
		if err := r.claim(ctx, w, number); err != nil {
			return 0, err
		}
	}
	for _, number := range s.update[:min(len(s.update), maxUpdates)] {
		if err := r.update(ctx, w, number); err != nil {
			return 0, err
		}
	}
	again := s.again
	if len(s.update) > maxUpdates {
		again = time.Millisecond
	}
	if len(w.blocked) > 0 {
		again = queue.Soonest(again, lookAgain)
	}
	return again, nil
}

func (w *world) release(number int32) {
	w.leave(number)
	w.released = true
	child, p := w.child(number), w.pair(number)
	notice := controllers.Notice{
		Type: corev1.EventTypeNormal, Reason: v1alpha1.ReasonPairMeasured, Action: "Measure", Related: child,
		Message: fmt.Sprintf("measured %s, client on %s, server on %s", child.Name, p.ClientNode, p.ServerNode),
	}
	if failed(child) {
		notice.Type, notice.Reason = corev1.EventTypeWarning, v1alpha1.ReasonPairFailed
		notice.Message = fmt.Sprintf("%s failed: %s", child.Name, messageOf(child.Status.Conditions, v1alpha1.ConditionSucceeded))
	}
	w.notices = append(w.notices, notice)
}

func (w *world) leave(number int32) {
	status := &w.matrix.Status
	status.Running = slices.DeleteFunc(status.Running, func(r v1alpha1.RunningPair) bool { return r.Number == number })
}

func (r *Reconciler) withdraw(ctx context.Context, w *world, number int32) error {
	child := w.child(number)
	notice := controllers.Notice{Type: corev1.EventTypeWarning, Reason: v1alpha1.ReasonNodeGone, Action: "Postpone"}
	if gone, _ := w.goneOf(number); gone != "" {
		notice.Message = w.whyGone(number)
	} else {
		notice.Reason, notice.Message = v1alpha1.ReasonPairPostponed, fmt.Sprintf("%s is measured after the others, from its first round: %s",
			w.matrix.PairName(number), messageOf(child.Status.Conditions, v1alpha1.ConditionAccepted))
	}
	if child != nil {
		err := r.Client.Delete(ctx, child.DeepCopy(), client.Preconditions{UID: &child.UID, ResourceVersion: &child.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %s: %w", child.Name, err)
		}
		notice.Related = child
	}
	w.leave(number)
	w.notices = append(w.notices, notice)
	w.children[number-1] = nil
	return nil
}

func (r *Reconciler) create(ctx context.Context, w *world, running *v1alpha1.RunningPair) {
	child := w.makeChild(running.Number)
	err := r.Client.Create(ctx, child)
	if apierrors.IsAlreadyExists(err) {
		child, err = r.live(ctx, w, running.Number)
	}
	if err != nil {
		// A user must change a quota or a webhook, whatever the error; the other pairs continue.
		w.blocked[running.Number] = blocker{v1alpha1.ReasonBenchmarkRefused, fmt.Sprintf("the API server refuses LatencyBenchmark %s: %v", child.Name, err)}
		return
	}
	if why := w.obstacle(running.Number, child); why != nil {
		w.blocked[running.Number] = *why
		return
	}
	if running.UID != "" && running.UID != string(child.UID) {
		w.notices = append(w.notices, controllers.Notice{
			Type: corev1.EventTypeWarning, Reason: v1alpha1.ReasonPairDeleted, Action: "Measure", Related: child,
			Message: child.Name + " was deleted before all runs were measured; its results are lost, and it is measured again",
		})
	}
	running.UID = string(child.UID)
	w.children[running.Number-1] = child
}

func (w *world) obstacle(number int32, child *v1alpha1.LatencyBenchmark) *blocker {
	owner := metav1.GetControllerOf(child)
	switch {
	case !child.DeletionTimestamp.IsZero(), owner != nil && owner.Kind == kind && owner.Name == w.matrix.Name && owner.UID != w.matrix.UID:
		return &blocker{v1alpha1.ReasonQueued, fmt.Sprintf("LatencyBenchmark %s still exists", child.Name)}
	case !metav1.IsControlledBy(child, w.matrix):
		return &blocker{v1alpha1.OutcomeNameTaken, fmt.Sprintf(
			"LatencyBenchmark %s exists and does not belong to this matrix; delete it if no user needs its results, or give the matrix another name", child.Name)}
	case !w.measures(number, child):
		return &blocker{v1alpha1.OutcomeNameTaken, fmt.Sprintf(
			"LatencyBenchmark %s does not measure its pair as the template says: another client created it; delete it", child.Name)}
	}
	return nil
}

// measures reports whether a pair's benchmark follows the template: any author can write an owner.
func (w *world) measures(number int32, child *v1alpha1.LatencyBenchmark) bool {
	got, want, p := child.Spec, w.matrix.Spec.Template.Benchmark(), w.pair(number)
	if len(ranges(&want)) > 0 {
		want = w.makeChild(number).Spec
	}
	on := func(placed *v1alpha1.EndpointPlacement, node string) bool {
		return placed != nil && placed.NodeName == node
	}
	if !on(got.Placement.Client, p.ClientNode) || !on(got.Placement.Server, p.ServerNode) {
		return false
	}
	got.Placement.Client, got.Placement.Server = want.Placement.Client, want.Placement.Server
	got.Criteria, got.Priority, got.Suspend = want.Criteria, want.Priority, want.Suspend
	return reflect.DeepEqual(got, want) || equality.Semantic.DeepEqual(got, want)
}

// claim gives a place to a pair, unless it is measured already, which the cache may not show.
func (r *Reconciler) claim(ctx context.Context, w *world, number int32) error {
	m := w.matrix
	running := v1alpha1.RunningPair{Number: number, Pair: w.pair(number)}
	child, err := r.live(ctx, w, number)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("getting the benchmark of pair %d: %w", number, err)
	}
	w.children[number-1] = nil
	if err == nil && w.obstacle(number, child) == nil {
		running.UID = string(child.UID)
		w.children[number-1] = child
		if child.Finished() {
			return nil
		}
	}
	m.Status.Running = append(m.Status.Running, running)
	slices.SortFunc(m.Status.Running, func(x, y v1alpha1.RunningPair) int { return cmp.Compare(x.Number, y.Number) })
	m.Status.StartTime = cmp.Or(m.Status.StartTime, &metav1.Time{Time: w.now})
	return nil
}

func (r *Reconciler) update(ctx context.Context, w *world, number int32) error {
	child, err := r.live(ctx, w, number)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("getting the benchmark of pair %d: %w", number, err)
	}
	if w.obstacle(number, child) != nil {
		return nil
	}
	if w.children[number-1] = child; w.upToDate(number) {
		return nil
	}
	child.Spec.Criteria, child.Spec.Priority, child.Spec.Suspend = w.criteria(number).DeepCopy(), w.matrix.Spec.Template.Spec.Priority, w.matrix.Spec.Suspend
	if err := r.Client.Update(ctx, child); err != nil {
		return fmt.Errorf("passing criteria, priority and suspend on to %s: %w", child.Name, err)
	}
	return nil
}

func (r *Reconciler) live(ctx context.Context, w *world, number int32) (*v1alpha1.LatencyBenchmark, error) {
	child := &v1alpha1.LatencyBenchmark{}
	key := types.NamespacedName{Namespace: w.matrix.Namespace, Name: w.matrix.PairName(number)}
	return child, r.Live.Get(ctx, key, child)
}

func (w *world) makeChild(number int32) *v1alpha1.LatencyBenchmark {
	m, p := w.matrix, w.pair(number)
	child := &v1alpha1.LatencyBenchmark{
		ObjectMeta: m.Spec.Template.Metadata.ObjectMeta(metav1.ObjectMeta{
			Namespace: m.Namespace, Name: m.PairName(number),
			Labels:          map[string]string{v1alpha1.LabelMatrix: m.Name, v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(m, v1alpha1.GroupVersion.WithKind(kind))},
		}),
		Spec: m.Spec.Template.DeepCopy().Benchmark(),
	}
	child.Spec.Criteria, child.Spec.Suspend = w.criteria(number).DeepCopy(), m.Spec.Suspend
	placement := &child.Spec.Placement
	placement.Client = placement.Client.On(v1alpha1.NodeSelection{NodeName: p.ClientNode})
	placement.Server = placement.Server.On(v1alpha1.NodeSelection{NodeName: p.ServerNode})
	for _, i := range ranges(&child.Spec) { // different addresses for pairs that run at once
		if starts := pods.StaticBlocks(*i, w.blocks); len(starts) == w.blocks {
			i.RangeStart = starts[int(number-1)%w.blocks]
		}
	}
	return child
}
