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

const (
	stepReject   stepKind = "Reject"   // the spec cannot be met now
	stepAccept   stepKind = "Accept"   // the spec can be met: record the pair
	stepWait     stepKind = "Wait"     // others have the nodes, or it is too early for the next attempt
	stepHold     stepKind = "Hold"     // the benchmark is suspended
	stepClaim    stepKind = "Claim"    // take the nodes for the next attempt
	stepExtend   stepKind = "Extend"   // the verdict is Inconclusive: plan more rounds, once
	stepComplete stepKind = "Complete" // every run is stored
	stepFail     stepKind = "Fail"     // a run has failed and is not tried again

	stepWithdraw     stepKind = "Withdraw"     // release the nodes before any pod was created
	stepCreateServer stepKind = "CreateServer" // the first pod of an attempt
	stepCreateClient stepKind = "CreateClient" // the second pod, once the first runs
	stepWatch        stepKind = "Watch"        // wait for the pods
	stepFollow       stepKind = "Follow"       // it may be over: follow the logs until they have results
	stepCollect      stepKind = "Collect"      // there are results: verify them and record their digests
	stepStore        stepKind = "Store"        // store the result with these digests in a ConfigMap
	stepConclude     stepKind = "Conclude"     // the attempt is over without a result
	stepRemove       stepKind = "Remove"       // the attempt is over: delete its pods
	stepRelease      stepKind = "Release"      // release the nodes, record the attempt, decide again
)

// step is what decide chose, and why. Reason and message are for condition Succeeded, except for
// stepReject (Accepted), stepConclude (the outcome) and stepRelease (none).
type step struct {
	kind    stepKind
	reason  string
	message string
	pair    v1alpha1.Pair // for stepAccept, and cpus are those of its ends
	cpus    v1alpha1.EndpointCPUs
	// run and attempt are for stepClaim; taken is true if the names of the run's pods were taken.
	run       plan.Run
	attempt   int32
	taken     bool
	address   string        // the server's, for stepCreateClient
	again     time.Duration // when to look again; zero: only when something happens
	continues bool          // the next step follows at once: our own status writes do not wake us
}

func do(kind stepKind, reason, format string, args ...any) step {
	return step{kind: kind, reason: reason, message: fmt.Sprintf(format, args...)}
}

func (s step) after(again time.Duration) step {
	s.again = again
	return s
}

func reject(reason, format string, args ...any) step {
	return do(stepReject, reason, format, args...).after(waitAgain)
}

func await(reason, format string, args ...any) step {
	return do(stepWait, reason, format, args...).after(waitAgain)
}

func watch(reason, format string, args ...any) step {
	return do(stepWatch, reason, format, args...).after(lookAgain)
}

func conclude(outcome, format string, args ...any) step {
	return do(stepConclude, outcome, format, args...)
}

func fail(format string, args ...any) step {
	return do(stepFail, v1alpha1.ReasonFailed, format, args...)
}

const (
	quietStart = 3 * time.Second // a pod may be pending before its events are read
	lookAgain  = 2 * time.Second // for state that no watch reports
	// lookSoon is for a server that just started, and for an older benchmark that no worker saw.
	lookSoon = 500 * time.Millisecond
	// waitAgain is for a benchmark that waits or is rejected; watches should wake it earlier.
	waitAgain = 10 * time.Second
	// retryAfter, times the failed attempts, is the pause for a device plugin or a VF to return.
	retryAfter = 5 * time.Second
	peerGrace  = time.Minute // for one agent to end after the other has ended
	// wordsGrace is how long the message of an end may take after the other end lost it.
	wordsGrace = 10 * time.Second
	nodeGrace  = 60 * time.Second // a node of the pair may be not ready
	// removeTimeout releases the nodes although a node is dead or a pod has a finalizer.
	removeTimeout = 2 * time.Minute
	// unseenGrace is for older benchmarks that no worker saw, for example after a manager starts.
	unseenGrace = 5 * time.Second
	// affinityGrace is to learn that a device plugin ended: kubelets report devices every 10 s.
	affinityGrace = 15 * time.Second
	deadlineGrace = 30 * time.Second // after the agents' own deadline
)

func decide(w *world) step {
	b := w.benchmark
	switch {
	case b.Status.Active == nil:
		return decideIdle(w)
	case b.Status.Active.Outcome == nil:
		return decideActive(w)
	case (w.holds(w.server) || w.holds(w.client)) && w.now.Sub(b.Status.Active.Outcome.CompletionTime.Time) <= removeTimeout:
		return do(stepRemove, v1alpha1.ReasonEnding, "%s", removing(w)).after(lookAgain)
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
		return reject(v1alpha1.ReasonCellUnsupported,
			"spec.tool: this operator does not know %s; upgrade it, or choose another tool", b.Spec.Tool)
	}
	next := nextRun(w)
	switch {
	case next.run == nil && w.undecided != "":
		more := plan.MaxRounds(b.Spec) - b.Spec.Rounds
		return do(stepExtend, v1alpha1.ReasonQueued,
			"measuring %d more rounds, because %d rounds were not enough for a verdict: %s", more, b.Spec.Rounds, w.undecided)
	case next.run == nil:
		return do(stepComplete, v1alpha1.ReasonComplete, "%d of %d runs measured and stored", len(w.runs), len(w.runs))
	}
	if s, over := next.failed(w); over {
		return s
	}
	if b.Spec.Suspend {
		return do(stepHold, v1alpha1.ReasonBenchmarkSuspended,
			"suspended (spec.suspend) with %d of %d runs measured and stored; set it to false to resume", len(b.Status.Stored), len(w.runs))
	}
	if s, rests := next.rest(w); rests {
		return s
	}
	if used := time.Duration(b.Status.OccupiedSeconds) * time.Second; w.settings.MaxOccupation > 0 && used >= w.settings.MaxOccupation {
		return fail("%s", occupied(w, used))
	}
	for _, f := range w.blocking {
		if f.stuck {
			// A rejected benchmark does not compete for the other node.
			return reject(v1alpha1.ReasonPodStuck,
				"pod %s of a finished attempt does not terminate: bring the node back, remove the pod's finalizers, or delete the Node object", f.name)
		}
	}
	if w.most > 0 {
		return reject(v1alpha1.ReasonMemoryShort, "the operator's memory is nearly used up, and no namespace has more benchmarks than this one, which has %d: "+
			"delete finished ones, or ask the administrator to raise the manager's memory limit", w.most)
	}
	if s, accepted := decideAccepted(w, next); !accepted {
		return s
	}
	return decideTurn(w, next)
}

func (n upcoming) failed(w *world) (step, bool) {
	if n.last != nil && (n.tries >= w.settings.MaxAttempts || !curable(n.last.Outcome.Reason)) {
		return fail("run %s failed (%s) at attempt %d: %s",
			n.run.Name, n.last.Outcome.Reason, n.last.Attempt, n.last.Outcome.Message), true
	}
	if since := w.benchmark.Status.DeviceWaitStartTime; n.lastUnplugged != nil && since != nil {
		ended := n.lastUnplugged.Outcome
		if waited := ended.CompletionTime.Sub(since.Time); waited > plan.PluginPatience {
			return fail("run %s waited for a device plugin for %s: %s", n.run.Name, waited.Round(time.Second), ended.Message), true
		}
	}
	return step{}, false
}

func decideAccepted(w *world, next upcoming) (step, bool) {
	accepted, started := w.accepted, w.benchmark.Status.StartTime != nil
	if started {
		// A missing device plugin holds up only the runs that need it.
		accepted.Next = next.run.Variant.Name
	}
	pair, rejection := preflight.Accept(accepted)
	unadvertised := rejection != nil && rejection.Reason == v1alpha1.ReasonResourceNotAdvertised
	switch {
	case unadvertised && !w.turn:
		// A driver may provide it, which is read when it is the benchmark's turn.
	case unadvertised && started:
		return waitForPlugin(w, next.run.Name, rejection), false
	case rejection != nil:
		return reject(rejection.Reason, "%s", rejection), false
	}
	if w.benchmark.Status.Pair == nil {
		s := do(stepAccept, v1alpha1.ReasonQueued, "about to start")
		s.pair, s.cpus = pair, preflight.CPUs(w.accepted)
		return s, false
	}
	return step{}, true
}

func decideTurn(w *world, next upcoming) step {
	b := w.benchmark
	accepted := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionAccepted)
	if w.unseen != "" && accepted != nil && w.now.Sub(accepted.LastTransitionTime.Time) < unseenGrace {
		return await(v1alpha1.ReasonQueued,
			"waiting: %s is older, and the operator has not processed it yet", w.unseen).after(lookSoon)
	}
	if ok, blocker := queue.Admit(queue.EntryOf(b), w.others); !ok {
		return await(v1alpha1.ReasonQueued, "waiting: %s", blocker)
	}
	if len(w.blocking) > 0 {
		return await(v1alpha1.ReasonQueued, "waiting: pod %s still exists", w.blocking[0].name).after(lookAgain)
	}
	s := do(stepClaim, v1alpha1.ReasonStarting, "starting run %s, attempt %d", next.run.Name, next.attempt)
	s.run, s.attempt, s.taken = *next.run, next.attempt, next.taken != nil
	return s
}

func (n upcoming) rest(w *world) (step, bool) {
	pause := func(a *v1alpha1.Attempt, times int32) time.Duration {
		if a == nil {
			return 0
		}
		return a.Outcome.CompletionTime.Add(time.Duration(times) * retryAfter).Sub(w.now)
	}
	if left := pause(n.taken, 1); left > 0 {
		return await(v1alpha1.ReasonRetrying, "run %s is tried again under other names: %s",
			n.run.Name, n.taken.Outcome.Message).after(left), true
	}
	if left := pause(n.lastUnplugged, n.unplugged); left > 0 {
		return await(v1alpha1.ReasonDevicePluginUnavailable, "run %s is tried again when the device plugin runs: %s",
			n.run.Name, n.lastUnplugged.Outcome.Message).after(left), true
	}
	if left := pause(n.last, n.tries); left > 0 {
		return await(v1alpha1.ReasonRetrying, "run %s failed (%s) at attempt %d of %d and is tried again: %s",
			n.run.Name, n.last.Outcome.Reason, n.tries, w.settings.MaxAttempts, n.last.Outcome.Message).after(left), true
	}
	return step{}, false
}

// waitForPlugin lets others use the nodes while a resource is no longer advertised there.
func waitForPlugin(w *world, run string, why *preflight.Rejection) step {
	if w.since(w.benchmark.Status.DeviceWaitStartTime) > plan.PluginPatience {
		return fail("run %s waited for a device plugin for more than %s: %s", run, plan.PluginPatience, why)
	}
	return reject(v1alpha1.ReasonDevicePluginUnavailable,
		"run %s waits for a device plugin, at most %s: %s", run, plan.PluginPatience, why)
}

type upcoming struct {
	run     *plan.Run // the first run without a stored result; nil if there is none
	attempt int32     // the number of its next attempt
	// tries counts the failed attempts since it was last measured, and last is the latest, or nil.
	// A suspension, and mostly a taken name, does not count.
	tries int32
	last  *v1alpha1.Attempt
	// unplugged counts the last attempts that ended for lack of a device plugin; they are no tries.
	unplugged     int32
	lastUnplugged *v1alpha1.Attempt
	taken         *v1alpha1.Attempt // the latest one that ended because a name was taken; or nil
	names         int               // how many ended so; each tenth is a try
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
				if next.names++; next.names%10 == 0 {
					next.tries++
					next.last = a
				}
			case v1alpha1.OutcomeMeasured:
				// The result was deleted or changed: earlier failures do not count.
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
