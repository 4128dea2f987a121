package benchmark

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/queue"
)

// decideIdle chooses the next step of a benchmark that holds no nodes.
func decideIdle(w *world) step {
	b := w.benchmark
	if w.driver == nil {
		return step{kind: stepReject, reason: v1alpha1.ReasonCellUnsupported, again: waitAgain,
			message: fmt.Sprintf("spec.tool: this operator does not know %s; upgrade it, or choose another tool", b.Spec.Tool)}
	}
	next := nextRun(w)
	run, last := next.run, next.last
	if run == nil && w.undecided != "" {
		return step{kind: stepExtend, reason: v1alpha1.ReasonQueued,
			message: fmt.Sprintf("measuring %d more rounds, because %d rounds were not enough for a verdict: %s", plan.MaxRounds(b.Spec)-b.Spec.Rounds, b.Spec.Rounds, w.undecided)}
	}
	if run == nil {
		return step{kind: stepComplete, reason: v1alpha1.ReasonComplete, message: fmt.Sprintf("%d of %d runs measured and stored", len(w.runs), len(w.runs))}
	}
	if last != nil && (next.tries >= w.settings.MaxAttempts || !curable(last.Outcome.Reason)) {
		return step{kind: stepFail, reason: v1alpha1.ReasonFailed,
			message: fmt.Sprintf("run %s failed (%s) at attempt %d: %s", run.Name, last.Outcome.Reason, last.Attempt, last.Outcome.Message)}
	}
	if waited := next.waitedForPlugin(b); waited > plan.PluginPatience {
		return step{kind: stepFail, reason: v1alpha1.ReasonFailed, message: fmt.Sprintf("run %s waited for a device plugin for %s: %s",
			run.Name, waited.Round(time.Second), next.lastUnplugged.Outcome.Message)}
	}
	if b.Spec.Suspend {
		return step{kind: stepHold, reason: v1alpha1.ReasonBenchmarkSuspended,
			message: fmt.Sprintf("suspended (spec.suspend) with %d of %d runs measured and stored; set it to false to resume", len(b.Status.Stored), len(w.runs))}
	}

	if wait, ok := next.rest(w); ok {
		return wait
	}
	if used := time.Duration(b.Status.OccupiedSeconds) * time.Second; w.settings.MaxOccupation > 0 && used >= w.settings.MaxOccupation {
		return step{kind: stepFail, reason: v1alpha1.ReasonFailed, message: occupied(w, used)}
	}
	for _, f := range w.blocking {
		if f.stuck {
			// A rejected benchmark does not compete for the other node meanwhile.
			return step{kind: stepReject, reason: v1alpha1.ReasonPodStuck, again: waitAgain, message: fmt.Sprintf(
				"pod %s of a finished attempt does not terminate: bring the node back, remove the pod's finalizers, or delete the Node object", f.name)}
		}
	}

	accepted := w.accepted
	if b.Status.StartTime != nil {
		// A missing device plugin holds up only the runs that need it.
		accepted.Next = run.Variant.Name
	}
	pair, rejection := preflight.Accept(accepted)
	if !w.turn && rejection != nil && rejection.Reason == v1alpha1.ReasonResourceNotAdvertised {
		rejection = nil // A driver may provide it: that is read when the turn of the benchmark has come.
	}
	if rejection != nil && rejection.Reason == v1alpha1.ReasonResourceNotAdvertised && b.Status.StartTime != nil {
		return waitForPlugin(w, run.Name, rejection.Message)
	}
	if rejection != nil {
		return step{kind: stepReject, reason: rejection.Reason, message: rejection.Message, again: waitAgain}
	}
	if b.Status.Pair == nil {
		return step{kind: stepAccept, reason: v1alpha1.ReasonQueued, message: "about to start", pair: pair, cpus: preflight.CPUs(w.accepted)}
	}
	if accepted := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionAccepted); w.unseen != "" && accepted != nil && w.now.Sub(accepted.LastTransitionTime.Time) < unseenGrace {
		return step{kind: stepWait, reason: v1alpha1.ReasonQueued, message: "waiting: " + w.unseen + " is older, and the operator has not processed it yet", again: lookSoon}
	}
	if ok, blocker := queue.Admit(queue.EntryOf(b), w.others); !ok {
		return step{kind: stepWait, reason: v1alpha1.ReasonQueued, message: "waiting: " + blocker, again: waitAgain}
	}
	if len(w.blocking) > 0 {
		return step{kind: stepWait, reason: v1alpha1.ReasonQueued, message: "waiting: pod " + w.blocking[0].name + " still exists", again: lookAgain}
	}
	return step{kind: stepClaim, reason: v1alpha1.ReasonStarting, message: fmt.Sprintf("starting run %s, attempt %d", run.Name, next.attempt), run: *run, attempt: next.attempt, taken: next.taken != nil}
}

// rest returns the wait of a run that was attempted a moment ago, and whether there is one.
func (n upcoming) rest(w *world) (step, bool) {
	pause := func(a *v1alpha1.Attempt, times int32) time.Duration {
		return a.Outcome.CompletionTime.Add(time.Duration(times) * retryAfter).Sub(w.now)
	}
	if n.taken != nil {
		if wait := pause(n.taken, 1); wait > 0 {
			return step{kind: stepWait, reason: v1alpha1.ReasonRetrying, again: wait,
				message: fmt.Sprintf("run %s is tried again under other names: %s", n.run.Name, n.taken.Outcome.Message)}, true
		}
	}
	if n.unplugged > 0 {
		if wait := pause(n.lastUnplugged, n.unplugged); wait > 0 {
			return step{kind: stepWait, reason: v1alpha1.ReasonDevicePluginUnavailable, again: wait,
				message: fmt.Sprintf("run %s is tried again when the device plugin runs: %s", n.run.Name, n.lastUnplugged.Outcome.Message)}, true
		}
	}
	if n.last != nil {
		if wait := pause(n.last, n.tries); wait > 0 {
			return step{kind: stepWait, reason: v1alpha1.ReasonRetrying, again: wait,
				message: fmt.Sprintf("run %s failed (%s) at attempt %d of %d and is tried again: %s",
					n.run.Name, n.last.Outcome.Reason, n.tries, w.settings.MaxAttempts, n.last.Outcome.Message)}, true
		}
	}
	return step{}, false
}

// waitForPlugin returns the step of a benchmark that has started, and one of whose nodes does not advertise a resource any more.
// Other benchmarks can use the nodes meanwhile.
func waitForPlugin(w *world, run, why string) step {
	if w.since(w.benchmark.Status.DeviceWaitStartTime) > plan.PluginPatience {
		return step{kind: stepFail, reason: v1alpha1.ReasonFailed, message: fmt.Sprintf("run %s waited for a device plugin for more than %s: %s", run, plan.PluginPatience, why)}
	}
	return step{kind: stepReject, reason: v1alpha1.ReasonDevicePluginUnavailable, again: waitAgain,
		message: fmt.Sprintf("run %s waits for a device plugin, at most %s: %s", run, plan.PluginPatience, why)}
}

// waitedForPlugin returns how long a device plugin had not run when the latest attempt ended, if it ended for that reason.
func (n upcoming) waitedForPlugin(b *v1alpha1.LatencyBenchmark) time.Duration {
	if since := b.Status.DeviceWaitStartTime; n.unplugged > 0 && since != nil {
		return n.lastUnplugged.Outcome.CompletionTime.Sub(since.Time)
	}
	return 0
}

// upcoming is the run to be measured next, with its history.
type upcoming struct {
	// run is the first run without a stored result; nil if there is none.
	run *plan.Run
	// attempt is the number of its next attempt.
	attempt int32
	// tries is the number of attempts at it that have failed since it was last measured, and last is the latest of them; nil if
	// there is none. Attempts that ended because the benchmark was suspended, or because a name was taken, do not count.
	tries int32
	last  *v1alpha1.Attempt
	// unplugged is the number of consecutive attempts that ended because a device plugin did not run, and lastUnplugged is the latest
	// of them. They do not count as tries.
	unplugged     int32
	lastUnplugged *v1alpha1.Attempt
	// taken is the latest attempt at it that ended because a name was taken; nil if there is none.
	taken *v1alpha1.Attempt
}

func nextRun(w *world) upcoming {
	stored := map[string]bool{}
	for _, s := range w.benchmark.Status.Stored {
		stored[s.Run] = true
	}
	for i := range w.runs {
		if stored[w.runs[i].Name] {
			continue
		}
		next := upcoming{run: &w.runs[i], attempt: 1}
		for j := range w.benchmark.Status.Attempts {
			a := &w.benchmark.Status.Attempts[j]
			if a.Run != next.run.Name {
				continue
			}
			next.attempt = a.Attempt + 1
			if a.Outcome.Reason != v1alpha1.OutcomeDevicePluginUnavailable {
				next.unplugged, next.lastUnplugged = 0, nil
			}
			switch a.Outcome.Reason {
			case v1alpha1.OutcomeDevicePluginUnavailable:
				next.unplugged++
				next.lastUnplugged = a
			case v1alpha1.OutcomeSuspended:
			case v1alpha1.OutcomeNameTaken:
				next.taken = a
			case v1alpha1.OutcomeMeasured:
				// The run is measured again because its result was deleted or changed: earlier failures do not count.
				next.tries, next.last = 0, nil
			default:
				next.tries++
				next.last = a
			}
		}
		return next
	}
	return upcoming{}
}

// curable reports whether another attempt may succeed.
func curable(outcome string) bool {
	switch outcome {
	case v1alpha1.OutcomeImagePullFailed, v1alpha1.OutcomeContainerConfig, v1alpha1.OutcomeToolMissing,
		v1alpha1.OutcomeAccelerationFailed, v1alpha1.OutcomeWrongNetwork, v1alpha1.OutcomeResultTooLarge,
		v1alpha1.OutcomeOOMKilled, v1alpha1.OutcomeSMTAlignment, v1alpha1.OutcomeOccupationExceeded:
		return false
	default:
		return true
	}
}
