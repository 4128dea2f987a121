package benchmark

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/queue"
)

type stepKind string

// The steps that decide may choose.
const (
	stepReject       stepKind = "reject"        // the spec cannot be met now
	stepAccept       stepKind = "accept"        // the spec can be met: record the pair
	stepWait         stepKind = "wait"          // another benchmark has the nodes
	stepHold         stepKind = "hold"          // the benchmark is suspended
	stepClaim        stepKind = "claim"         // take the nodes for the next attempt
	stepWithdraw     stepKind = "withdraw"      // release the nodes before any pod was created
	stepCreateServer stepKind = "create server" // the first pod of an attempt
	stepCreateClient stepKind = "create client" // the second pod, once the first runs
	stepWatch        stepKind = "watch"         // wait for the pods
	stepFollow       stepKind = "follow"        // the measurement may be over: follow the logs until they have results
	stepCollect      stepKind = "collect"       // both pods have succeeded, or their logs have results: verify the result and record its digests
	stepStore        stepKind = "store"         // the digests are recorded: store the result with these digests in a ConfigMap
	stepConclude     stepKind = "conclude"      // the attempt is over without a result
	stepRemove       stepKind = "remove"        // delete the pods of an attempt that is over
	stepRelease      stepKind = "release"       // its pods hold nothing more, or cannot be removed: release the nodes, record the attempt, decide again
	stepExtend       stepKind = "extend"        // every run is stored, and the verdict is Inconclusive: plan more rounds, once
	stepComplete     stepKind = "complete"      // every run is stored
	stepFail         stepKind = "fail"          // a run has failed and is not retried
)

// step is the step that decide chose, and why. Reason and message are for condition Succeeded, except for
// stepReject (condition Accepted), stepConclude (the outcome) and stepRelease, which has neither.
type step struct {
	kind    stepKind
	reason  string
	message string
	// pair is for stepAccept, and cpus has the CPUs of its ends.
	pair v1alpha1.Pair
	cpus v1alpha1.EndpointCPUs
	// run and attempt are for stepClaim; taken is true if the names of the run's pods were taken.
	run     plan.Run
	attempt int32
	taken   bool
	// address is the server's address, for stepCreateClient.
	address string
	// again is when to look again if nothing happens; zero: only when something does.
	again time.Duration
	// continues is true if the next step follows at once, because this controller's own status writes do not wake it.
	continues bool
}

const (
	// quietStart is how long a pod may be pending before its events are read.
	quietStart = 3 * time.Second
	// lookAgain is the interval at which state that no watch reports is read again.
	lookAgain = 2 * time.Second
	// lookSoon is for the address of a server that has just started, and for an older benchmark that no worker has looked at.
	lookSoon = 500 * time.Millisecond
	// waitAgain is the fallback interval for a benchmark that waits or is rejected; watches should wake it earlier.
	waitAgain = 10 * time.Second
	// retryAfter is the pause after a failed attempt, times their number: a device plugin that restarts, or a VF that is reset, needs it.
	retryAfter = 5 * time.Second
	// peerGrace is how long one agent may take to end after the other was seen to have ended.
	peerGrace = time.Minute
	// wordsGrace is how long an attempt in which one end lost the other waits for the other end's own message.
	wordsGrace = 10 * time.Second
	// nodeGrace is how long a node of the pair may be not ready before the attempt ends.
	nodeGrace = 60 * time.Second
	// removeTimeout is how long the removal of pods may take before their nodes are released: a node may be dead, a pod have a finalizer.
	removeTimeout = 2 * time.Minute
	// unseenGrace is how long a benchmark waits for older ones that no worker has looked at, for example after a manager starts.
	unseenGrace = 5 * time.Second
	// affinityGrace is how long it may take to learn that a device plugin ended: a kubelet reports devices every 10 seconds.
	affinityGrace = 15 * time.Second
	// deadlineGrace is added to the agents' own deadline before the operator ends the attempt.
	deadlineGrace = 30 * time.Second
)

// decide chooses the next step. It is pure.
func decide(w *world) step {
	b := w.benchmark
	switch {
	case b.Status.Active == nil:
		return decideIdle(w)
	case b.Status.Active.Outcome == nil:
		return decideActive(w)
	case (w.holds(w.server) || w.holds(w.client)) && w.now.Sub(b.Status.Active.Outcome.CompletionTime.Time) <= removeTimeout:
		return step{kind: stepRemove, reason: v1alpha1.ReasonEnding, message: removing(w), again: lookAgain}
	default:
		return step{kind: stepRelease}
	}
}

func removing(w *world) string {
	for _, p := range []*corev1.Pod{w.client, w.server} {
		if !w.holds(p) {
			continue
		}
		if slices.Contains(w.notReady, pods.Node(p)) {
			return fmt.Sprintf("pod %s cannot be removed while node %s is not ready: bring the node back, or delete its Node object", p.Name, pods.Node(p))
		}
	}
	return "removing the pods of " + w.benchmark.Status.Active.Run
}

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
	if unplugged := next.lastUnplugged; unplugged != nil && b.Status.DeviceWaitStartTime != nil {
		if waited := unplugged.Outcome.CompletionTime.Sub(b.Status.DeviceWaitStartTime.Time); waited > plan.PluginPatience {
			return step{kind: stepFail, reason: v1alpha1.ReasonFailed, message: fmt.Sprintf("run %s waited for a device plugin for %s: %s",
				run.Name, waited.Round(time.Second), unplugged.Outcome.Message)}
		}
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
		return waitForPlugin(w, run.Name, rejection.String())
	}
	if rejection != nil {
		return step{kind: stepReject, reason: rejection.Reason, message: rejection.String(), again: waitAgain}
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

// waitForPlugin lets other benchmarks use the nodes while a resource is not advertised there any more.
func waitForPlugin(w *world, run, why string) step {
	if w.since(w.benchmark.Status.DeviceWaitStartTime) > plan.PluginPatience {
		return step{kind: stepFail, reason: v1alpha1.ReasonFailed, message: fmt.Sprintf("run %s waited for a device plugin for more than %s: %s", run, plan.PluginPatience, why)}
	}
	return step{kind: stepReject, reason: v1alpha1.ReasonDevicePluginUnavailable, again: waitAgain,
		message: fmt.Sprintf("run %s waits for a device plugin, at most %s: %s", run, plan.PluginPatience, why)}
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
	// unplugged counts the consecutive attempts that ended because a device plugin did not run, which are no tries.
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

func curable(outcome string) bool {
	return !slices.Contains([]string{
		v1alpha1.OutcomeImagePullFailed, v1alpha1.OutcomeContainerConfig, v1alpha1.OutcomeToolMissing,
		v1alpha1.OutcomeAccelerationFailed, v1alpha1.OutcomeWrongNetwork, v1alpha1.OutcomeResultTooLarge,
		v1alpha1.OutcomeOOMKilled, v1alpha1.OutcomeSMTAlignment, v1alpha1.OutcomeOccupationExceeded,
	}, outcome)
}
