package benchmark

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/metrics"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/standing"
	"github.com/tailgate-dev/tailgate/internal/summary"
)

func (w *world) setConditions(at step) {
	b := w.benchmark
	status, reason := metav1.ConditionUnknown, at.reason
	if at.kind == stepComplete {
		status = metav1.ConditionTrue
	}
	if at.kind == stepFail {
		status = metav1.ConditionFalse
	}
	switch {
	case at.kind == stepReject:
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, reason, at.message))
		reason = v1alpha1.ReasonNotAccepted
	case b.Status.Pair == nil:
	case w.turn:
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, w.acceptance()))
	default:
		// It remains: what its message needs is read only in the benchmark's turn.
		if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionAccepted); c != nil {
			c.ObservedGeneration = b.Generation
		}
	}
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, status, reason, at.message))
}

func (w *world) acceptance() string {
	b := w.benchmark
	pair := fmt.Sprintf("client on %s, server on %s", b.Status.Pair.ClientNode, b.Status.Pair.ServerNode)
	unproved := preflight.Notes(preflight.Observed{Benchmark: b, Nodes: w.accepted.Nodes, Claimed: w.accepted.Claimed}, *b.Status.Pair, b.CPUs())
	return strings.Join(slices.Concat([]string{pair}, preflight.Foreknown(b.Spec, 1, w.accepted.Profiles), unproved), "; ")
}

const maxAttempts = 300

// report completes the status and writes it once, if it changed; no event is about a state that was
// not stored. If a pod's report cannot be stored, the attempt ends without it and frees its nodes.
func (r *Reconciler) report(ctx context.Context, old, b *v1alpha1.LatencyBenchmark) error {
	err := r.complete(ctx, old, b)
	if active := old.Status.Active; active == nil || active.Outcome != nil || !cannotBeStored(err) {
		return err
	}
	ending := old.DeepCopy()
	ending.Status.Active.Outcome = &v1alpha1.Outcome{
		Reason: v1alpha1.OutcomeResultCorrupt, Message: "what the pods reported cannot be stored: " + oneLine(err.Error()), CompletionTime: metav1.NewMicroTime(r.Clock.Now()),
	}
	r.taken.Delete(clientKey(b))
	return r.write(ctx, old, ending)
}

func cannotBeStored(err error) bool {
	return errors.Is(err, result.ErrCorrupt) || apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) ||
		err != nil && strings.Contains(err.Error(), "request is too large") // etcd's answer
}

func (r *Reconciler) complete(ctx context.Context, old, b *v1alpha1.LatencyBenchmark) error {
	b.Status.ObservedGeneration = b.Generation
	// The API bounds the list; the newest attempts are the most useful.
	b.Status.Attempts = b.Status.Attempts[max(0, len(b.Status.Attempts)-maxAttempts):]
	if len(b.Status.Stored) != len(old.Status.Stored) {
		if err := r.Results.Summarize(ctx, b); err != nil {
			return err
		}
	}
	b.Status.Progress = progress(b)
	if err := r.judge(ctx, b); err != nil {
		return err
	}
	return r.write(ctx, old, b)
}

// rejudge is report for a finished benchmark, of which only the verdict may still change.
func (r *Reconciler) rejudge(ctx context.Context, old, b *v1alpha1.LatencyBenchmark) error {
	if err := r.judge(ctx, b); err != nil {
		return err
	}
	b.Status.ObservedGeneration = b.Generation
	for i := range b.Status.Conditions {
		b.Status.Conditions[i].ObservedGeneration = b.Generation
	}
	return r.write(ctx, old, b)
}

func (r *Reconciler) write(ctx context.Context, old, b *v1alpha1.LatencyBenchmark) error {
	standing.Publish(&b.Status.Conditions, b.Generation, r.Clock.Now(), standing.OfMeasurement(b))
	summary.Bound(&b.Status)
	if written, err := r.WriteStatus(ctx, old, b); err != nil || !written {
		return err
	}
	r.Activity.Observe(old, b)
	logNodes(ctx, old.Status.Active, b.Status.Active)
	r.Tell(ctx, b, noticesOf(old, b)...)
	return nil
}

func logNodes(ctx context.Context, before, now *v1alpha1.ActiveAttempt) {
	if before != nil && now != nil && before.Run == now.Run && before.Attempt == now.Attempt {
		return
	}
	note := func(what string, a *v1alpha1.ActiveAttempt) {
		if a != nil {
			log.FromContext(ctx).Info(what, "run", a.Run, "attempt", a.Attempt, "client", a.Pair.ClientNode, "server", a.Pair.ServerNode)
		}
	}
	note("nodes released", before)
	note("nodes claimed", now)
}

func (r *Reconciler) judge(ctx context.Context, b *v1alpha1.LatencyBenchmark) error {
	if err := r.Results.Judge(ctx, b); err != nil {
		return err
	}
	switch {
	case b.Spec.Criteria == nil:
		meta.RemoveStatusCondition(&b.Status.Conditions, v1alpha1.ConditionPassed)
	case !b.Finished():
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonNotJudged, notJudged(b)))
	default:
		b.SetCondition(standing.Passed(b.Status.Verdict))
	}
	return nil
}

func notJudged(b *v1alpha1.LatencyBenchmark) string {
	if n := b.Status.ExtendedRounds; n > 0 {
		return fmt.Sprintf(
			"the verdict of the planned rounds is Inconclusive; the rules are evaluated again, for the last time, when %d more rounds are measured", n)
	}
	return "the rules are evaluated when all runs are measured"
}

func progress(b *v1alpha1.LatencyBenchmark) *v1alpha1.Progress {
	runs := plan.Runs(b)
	done := len(b.Status.Stored)
	var left time.Duration
	for _, run := range runs[min(done, len(runs)):] {
		left += plan.MeasuringTime(run.Cells)
	}
	return &v1alpha1.Progress{
		Runs: fmt.Sprintf("%d/%d", done, len(runs)), Done: int32(done), Total: int32(len(runs)),
		MeasuringSecondsLeft: int64((left + time.Second - 1) / time.Second),
	}
}

func noticesOf(old, b *v1alpha1.LatencyBenchmark) []controllers.Notice {
	var out []controllers.Notice
	for _, a := range metrics.NewAttempts(old, b) {
		n := controllers.Notice{
			Type: corev1.EventTypeNormal, Reason: a.Outcome.Reason, Action: "Measure",
			Message: fmt.Sprintf("attempt %d of %s: %s", a.Attempt, a.Run, a.Outcome.Message),
		}
		switch a.Outcome.Reason {
		case v1alpha1.OutcomeMeasured:
			n.Message = fmt.Sprintf("measured %s at attempt %d", a.Run, a.Attempt)
		case v1alpha1.OutcomeSuspended:
			n.Action = "Suspend"
		default:
			n.Type = corev1.EventTypeWarning
		}
		out = append(out, n)
	}
	if before, now := collected(old), collected(b); before.SHA256 != "" && now.SHA256 != "" && before.Run == now.Run && before.ConfigMap != now.ConfigMap {
		out = append(out, controllers.Notice{Type: corev1.EventTypeWarning, Reason: v1alpha1.OutcomeNameTaken, Action: "Store", Message: fmt.Sprintf(
			"ConfigMap %s, intended for the result of %s, exists with other content; the operator uses ConfigMap %s instead", before.ConfigMap, now.Run, now.ConfigMap)})
	}
	if b.Status.ExtendedRounds != old.Status.ExtendedRounds {
		if c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSucceeded); c != nil {
			out = append(out, controllers.Notice{Type: corev1.EventTypeNormal, Reason: v1alpha1.ReasonExtended, Action: "Extend", Message: c.Message})
		}
	}
	return append(out, controllers.ConditionNotices(old.Status.Conditions, b.Status.Conditions, v1alpha1.ConditionAccepted, v1alpha1.ConditionSucceeded, v1alpha1.ConditionPassed)...)
}

func collected(b *v1alpha1.LatencyBenchmark) v1alpha1.StoredResult {
	if b.Status.Active == nil || b.Status.Active.Collected == nil {
		return v1alpha1.StoredResult{}
	}
	return *b.Status.Active.Collected
}
