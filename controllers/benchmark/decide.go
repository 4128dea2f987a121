package benchmark

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/queue"
)

// The steps that decide may choose.
const (
	stepReject       = "reject"        // the spec cannot be carried out now
	stepAccept       = "accept"        // it can: note the pair
	stepWait         = "wait"          // another benchmark has the nodes
	stepHold         = "hold"          // it is suspended
	stepClaim        = "claim"         // take the nodes for the next attempt
	stepWithdraw     = "withdraw"      // give the nodes back before any pod was made
	stepCreateServer = "create server" // the first pod of an attempt
	stepCreateClient = "create client" // the second, once the first runs
	stepWatch        = "watch"         // nothing to do but wait for the pods
	stepCollect      = "collect"       // both pods have ended well: verify the result and note its digests
	stepStore        = "store"         // the digests are noted: keep what has them in a ConfigMap
	stepConclude     = "conclude"      // the attempt is over without a result
	stepRemove       = "remove"        // delete the pods of an attempt that is over
	stepRelease      = "release"       // its pods hold nothing more: give the nodes back, note the attempt
	stepExtend       = "extend"        // every run is stored, and does not decide: plan some more, once
	stepComplete     = "complete"      // every run is stored
	stepFail         = "fail"          // a run has failed for good
)

// step is what decide chose, and why. Reason and message are those of condition Succeeded, except for
// stepReject (condition Accepted) and stepConclude (the outcome).
type step struct {
	kind    string
	reason  string
	message string
	// pair for stepAccept, and cpus for each of its ends.
	pair v1alpha1.Pair
	cpus v1alpha1.EndpointCPUs
	// run and attempt for stepClaim; taken says that the names of the run's pods were taken.
	run     plan.Run
	attempt int32
	taken   bool
	// address of the server for stepCreateClient.
	address string
	// again is when to look again if nothing happens; zero: only when something does.
	again time.Duration
}

const (
	// quietStart is how long a pod may be pending before its events are read.
	quietStart = 3 * time.Second
	// lookAgain is how often something is looked at that no watch tells of.
	lookAgain = 2 * time.Second
	// hearAgain is how soon it is looked again at which address a server listens that has only just started.
	hearAgain = 500 * time.Millisecond
	// waitAgain is a fallback for the watches that wake a benchmark that waits or is rejected.
	waitAgain = 10 * time.Second
	// retryAfter is how long a failed run rests before its next attempt, times the number of the attempt: a
	// device plugin that restarts, or a VF that is being reset, needs some seconds.
	retryAfter = 5 * time.Second
	// peerGrace is how long one agent may take to end after the other was seen to have ended.
	peerGrace = time.Minute
	// wordsGrace is how long an end that lost the other may wait for that one's own words.
	wordsGrace = 10 * time.Second
	// nodeGrace is how long a node of the pair may be unready before the attempt is given up.
	nodeGrace = 60 * time.Second
	// removeTimeout is how long the pods of an attempt that is over may take to go before its nodes are given back. A
	// pod stays when its node is dead, or when it has a finalizer.
	removeTimeout = 2 * time.Minute
	// pluginPatience is how long a benchmark that has started waits for a device plugin. A container that exits again and
	// again is started again after at most 5 minutes.
	pluginPatience = 30 * time.Minute
	// unseenGrace is for how long after its acceptance a benchmark waits for older ones that no worker has looked at yet, as
	// after a manager starts.
	unseenGrace = 5 * time.Second
	// affinityGrace is for how long a TopologyAffinityError may turn out to be that of a device plugin that ended: a kubelet
	// reports the devices of its node every 10 seconds.
	affinityGrace = 15 * time.Second
	// deadlineGrace is added to the agents' own deadline before the controller loses its patience.
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
	case (w.holds(w.server) || w.holds(w.client)) && w.now.Sub(b.Status.Active.Outcome.CompletionTime.Time) > removeTimeout:
		return step{kind: stepRelease, reason: v1alpha1.ReasonQueued, message: removing(w) + "; the nodes are given back without it"}
	case w.holds(w.server) || w.holds(w.client):
		return step{kind: stepRemove, reason: v1alpha1.ReasonEnding, message: removing(w), again: lookAgain}
	default:
		return step{kind: stepRelease, reason: v1alpha1.ReasonQueued, message: "about to start the next run"}
	}
}

// removing says what is being removed, and what to do about a pod that cannot go because its kubelet is gone.
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

// decideIdle is for a benchmark that holds no nodes.
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
			message: fmt.Sprintf("%d rounds more are measured, because %d did not decide: %s", b.Spec.Criteria.ExtendRounds, b.Spec.Rounds, w.undecided)}
	}
	if run == nil {
		return step{kind: stepComplete, reason: v1alpha1.ReasonComplete, message: fmt.Sprintf("%d of %d runs measured and stored", len(w.runs), len(w.runs))}
	}
	if last != nil && (next.tries >= w.settings.MaxAttempts || !curable(last.Outcome.Reason)) {
		return step{kind: stepFail, reason: v1alpha1.ReasonFailed,
			message: fmt.Sprintf("run %s failed (%s) at attempt %d: %s", run.Name, last.Outcome.Reason, last.Attempt, last.Outcome.Message)}
	}
	if waited := next.waitedForPlugin(b); waited > pluginPatience {
		return step{kind: stepFail, reason: v1alpha1.ReasonFailed, message: fmt.Sprintf("run %s waited for a device plugin for %s: %s",
			run.Name, waited.Round(time.Second), next.lastUnplugged.Outcome.Message)}
	}
	if b.Spec.Suspend {
		return step{kind: stepHold, reason: v1alpha1.ReasonBenchmarkSuspended,
			message: fmt.Sprintf("suspended (spec.suspend) with %d of %d runs measured and stored; set it to false to resume", len(b.Status.Stored), len(w.runs))}
	}

	if next.taken != nil {
		if wait := next.taken.Outcome.CompletionTime.Add(retryAfter).Sub(w.now); wait > 0 {
			return step{kind: stepWait, reason: v1alpha1.ReasonRetrying, again: wait,
				message: fmt.Sprintf("run %s is tried again under other names: %s", run.Name, next.taken.Outcome.Message)}
		}
	}
	if next.unplugged > 0 {
		if wait := next.lastUnplugged.Outcome.CompletionTime.Add(time.Duration(next.unplugged) * retryAfter).Sub(w.now); wait > 0 {
			return step{kind: stepWait, reason: v1alpha1.ReasonDevicePluginUnavailable, again: wait,
				message: fmt.Sprintf("run %s is tried again when the device plugin runs: %s", run.Name, next.lastUnplugged.Outcome.Message)}
		}
	}
	if last != nil {
		if wait := last.Outcome.CompletionTime.Add(time.Duration(next.tries) * retryAfter).Sub(w.now); wait > 0 {
			return step{kind: stepWait, reason: v1alpha1.ReasonRetrying, again: wait,
				message: fmt.Sprintf("run %s failed (%s) at attempt %d of %d and is tried again: %s", run.Name, last.Outcome.Reason, next.tries, w.settings.MaxAttempts, last.Outcome.Message)}
		}
	}

	if used := time.Duration(b.Status.OccupiedSeconds) * time.Second; w.settings.MaxOccupation > 0 && used >= w.settings.MaxOccupation {
		return step{kind: stepFail, reason: v1alpha1.ReasonFailed, message: occupied(w, used)}
	}
	for _, f := range w.foreign {
		if f.stuck {
			// It does not compete for the other node meanwhile.
			return step{kind: stepReject, reason: v1alpha1.ReasonPodStuck, again: waitAgain, message: fmt.Sprintf(
				"pod %s of an attempt that is over does not end: bring the node back, remove the pod's finalizers, or delete the Node object", f.name)}
		}
	}

	accepted := w.accepted
	if b.Status.StartTime != nil {
		// A device plugin that does not run holds up only the runs that need it.
		accepted.Next = run.Variant.Name
	}
	pair, rejection := preflight.Accept(accepted)
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
		return step{kind: stepWait, reason: v1alpha1.ReasonQueued, message: "waiting: " + w.unseen + " is older and was not looked at yet", again: hearAgain}
	}
	if ok, blocker := queue.Admit(entry(b), w.others); !ok {
		return step{kind: stepWait, reason: v1alpha1.ReasonQueued, message: "waiting: " + blocker, again: waitAgain}
	}
	if len(w.foreign) > 0 {
		return step{kind: stepWait, reason: v1alpha1.ReasonQueued, message: "waiting: pod " + w.foreign[0].name + " is not gone yet", again: lookAgain}
	}
	return step{kind: stepClaim, reason: v1alpha1.ReasonStarting, message: fmt.Sprintf("starting run %s, attempt %d", run.Name, next.attempt), run: *run, attempt: next.attempt, taken: next.taken != nil}
}

// waitForPlugin is for a benchmark that has started, and of which a node does not advertise a resource any more. The nodes are
// others' meanwhile.
func waitForPlugin(w *world, run, why string) step {
	if w.since(w.benchmark.Status.DeviceWaitStartTime) > pluginPatience {
		return step{kind: stepFail, reason: v1alpha1.ReasonFailed, message: fmt.Sprintf("run %s waited for a device plugin for more than %s: %s", run, pluginPatience, why)}
	}
	return step{kind: stepReject, reason: v1alpha1.ReasonDevicePluginUnavailable, again: waitAgain,
		message: fmt.Sprintf("run %s waits for a device plugin, at most %s: %s", run, pluginPatience, why)}
}

// waitedForPlugin is for how long a device plugin had not run when the latest attempt ended, if it ended because of that.
func (n upcoming) waitedForPlugin(b *v1alpha1.LatencyBenchmark) time.Duration {
	if since := b.Status.DeviceWaitStartTime; n.unplugged > 0 && since != nil {
		return n.lastUnplugged.Outcome.CompletionTime.Sub(since.Time)
	}
	return 0
}

// upcoming is what is to be measured next.
type upcoming struct {
	// run is the first without a stored result; nil when there is none.
	run *plan.Run
	// attempt is the number of its next attempt.
	attempt int32
	// tries is how many attempts at it have failed since it was last measured, and last the latest of these; nil when there
	// is no such attempt. Those that ended because the benchmark was suspended, or because a name was taken, do not count.
	tries int32
	last  *v1alpha1.Attempt
	// unplugged is how many attempts in a row ended because a device plugin did not run, and lastUnplugged the latest of these.
	// They do not count as tries.
	unplugged     int32
	lastUnplugged *v1alpha1.Attempt
	// taken is the latest attempt at it that ended because a name was taken; nil when there is none.
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
				// The run is measured again because its result was deleted or changed: nothing has failed since.
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

// curable says whether another attempt may end better.
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

// decideActive is for an attempt whose outcome is not known.
func decideActive(w *world) step {
	b, active := w.benchmark, w.benchmark.Status.Active
	if w.driver == nil {
		return conclude(v1alpha1.OutcomeAgentFailed, fmt.Sprintf("this operator does not know %s; upgrade it", b.Spec.Tool))
	}
	if active.Collected != nil {
		return decideStore(w)
	}
	for _, p := range []*corev1.Pod{w.server, w.client} {
		if p != nil && !w.ours(p) {
			return conclude(v1alpha1.OutcomeNameTaken, fmt.Sprintf("pod %s exists and is not this benchmark's", p.Name))
		}
	}
	if w.server == nil && active.ServerPodUID == "" && w.client == nil {
		return startServer(w)
	}
	if lost := lostPod(active, w.server, w.client); lost != "" {
		return conclude(v1alpha1.OutcomePodLost, fmt.Sprintf("the %s's pod was deleted before the run ended", lost))
	}
	for _, end := range []struct {
		pod      *corev1.Pod
		recorded string
	}{{w.server, active.ServerPodUID}, {w.client, active.ClientPodUID}} {
		if end.pod != nil && end.recorded == "" {
			// A manager that died before it could record the pod may have created it, or any other client.
			return conclude(v1alpha1.OutcomeNameTaken, fmt.Sprintf("pod %s exists, and it is not recorded that the operator made it", end.pod.Name))
		}
	}
	s, over := ended(w)
	if b.Spec.Suspend && (!over || s.kind == stepWatch) {
		// What is over is not thrown away.
		return conclude(v1alpha1.OutcomeSuspended, "spec.suspend ended it; it does not count as an attempt that failed")
	}
	if over {
		return s
	}
	if s, over := unreachable(w); over {
		return s
	}
	for _, end := range []struct {
		role string
		pod  *corev1.Pod
	}{{v1alpha1.RoleServer, w.server}, {v1alpha1.RoleClient, w.client}} {
		if end.pod == nil || started(end.pod) {
			continue
		}
		trouble := startTrouble(end.pod, w.events[end.pod.UID])
		if trouble.reason == v1alpha1.OutcomeUnschedulable && w.unplugged != "" {
			return conclude(v1alpha1.OutcomeDevicePluginUnavailable, fmt.Sprintf("the %s's pod cannot start: %s; the attempt does not count, and the operator waits for the device plugin", end.role, w.unplugged))
		}
		if trouble.final {
			return conclude(trouble.reason, fmt.Sprintf("the %s's pod cannot start: %s", end.role, trouble.message))
		}
		if w.pendingFor(end.pod) > w.settings.StartTimeout {
			return conclude(trouble.reason, fmt.Sprintf("the %s's pod did not start within %s: %s", end.role, w.settings.StartTimeout, trouble.message))
		}
		if trouble.message != "" {
			return step{kind: stepWatch, reason: trouble.reason, again: lookAgain,
				message: fmt.Sprintf("the %s's pod does not start: %s", end.role, trouble.message)}
		}
		return step{kind: stepWatch, reason: v1alpha1.ReasonStarting, again: lookAgain,
			message: fmt.Sprintf("starting run %s, attempt %d: %s", active.Run, active.Attempt, end.role)}
	}
	if w.client == nil {
		return startClient(w)
	}
	return step{kind: stepWatch, reason: v1alpha1.ReasonRunning, again: waitAgain,
		message: "measuring " + round(b)}
}

// decideStore is for an attempt whose result is verified, and of which the status has the digests. A ConfigMap that has
// them counts, even if the pods are gone since: a manager created it and ended before it could say so.
func decideStore(w *world) step {
	active := w.benchmark.Status.Active
	if lost := lostPod(active, w.server, w.client); lost != "" && w.kept != keptWhole {
		return conclude(v1alpha1.OutcomePodLost, fmt.Sprintf("the %s's pod was deleted before its result was stored", lost))
	}
	return step{kind: stepStore, reason: v1alpha1.ReasonRunning, message: "storing the result"}
}

// round says which part of the plan is active.
func round(b *v1alpha1.LatencyBenchmark) string {
	text := fmt.Sprintf("round %d of %d", b.Status.Active.Round, plan.Rounds(b))
	if len(b.Spec.Variants) > 0 {
		text += ", variant " + b.Status.Active.Variant
	}
	return text
}

// startServer is the first act of an attempt. Before it, the claim is compared with all others once more:
// both of two managers that claimed one node at the same moment see the other's claim here.
func startServer(w *world) step {
	if w.benchmark.Spec.Suspend {
		return step{kind: stepWithdraw, reason: v1alpha1.ReasonBenchmarkSuspended, message: "spec.suspend was set before the first pod of the run was made"}
	}
	if ok, blocker := queue.Admit(entry(w.benchmark), w.others); !ok {
		return step{kind: stepWithdraw, reason: v1alpha1.ReasonQueued, message: "gave way: " + blocker}
	}
	if s, waits := refusedCreate(w); waits {
		return s
	}
	return step{kind: stepCreateServer, reason: v1alpha1.ReasonStarting, again: lookAgain,
		message: fmt.Sprintf("starting run %s, attempt %d", w.benchmark.Status.Active.Run, w.benchmark.Status.Active.Attempt)}
}

// startClient follows once the server runs and its address is known. That it may not listen yet does not matter: the
// client's agent knocks until it does.
func startClient(w *world) step {
	active := w.benchmark.Status.Active
	message := fmt.Sprintf("starting run %s, attempt %d: client", active.Run, active.Attempt)
	if !isRunning(w.server) {
		// It has just ended; in a moment its pod says how. A client would find no server.
		return step{kind: stepWatch, reason: v1alpha1.ReasonStarting, message: fmt.Sprintf("starting run %s, attempt %d: server", active.Run, active.Attempt), again: lookAgain}
	}
	if s, waits := refusedCreate(w); waits {
		return s
	}
	address, missing := w.serverAddress()
	if address != "" {
		return step{kind: stepCreateClient, reason: v1alpha1.ReasonStarting, message: message, address: address, again: lookAgain}
	}
	if w.pendingFor(w.server) > w.settings.StartTimeout {
		return conclude(v1alpha1.OutcomeNetworkFailed, missing)
	}
	return step{kind: stepWatch, reason: v1alpha1.ReasonStarting, message: missing, again: hearAgain}
}

// serverAddress is the server's address on the measured network, or "" and what is still missing.
func (w *world) serverAddress() (address, missing string) {
	if v := w.activeRun().Variant; v.Network.Interface() == "" {
		return pods.Address(w.benchmark, v, w.server)
	}
	return w.listening, w.unheard
}

// ended is for an attempt in which a pod has ended, well or not.
func ended(w *world) (step, bool) {
	if reason, message := failure(w); reason != "" {
		return concludeFailure(w, reason, message), true
	}
	serverDone, clientDone := endedWell(w.server), endedWell(w.client)
	switch {
	case serverDone && clientDone:
		return step{kind: stepCollect, reason: v1alpha1.ReasonRunning, message: "taking the result"}, true
	case serverDone && w.client == nil:
		return conclude(v1alpha1.OutcomeAgentFailed, "the server ended before there was a client"), true
	case serverDone && w.sinceEnd() > peerGrace:
		return conclude(v1alpha1.OutcomeAgentFailed, "the server has ended, and the client has not"), true
	case clientDone && w.sinceEnd() > peerGrace:
		return conclude(v1alpha1.OutcomeAgentFailed, "the client has ended, and the server has not"), true
	case serverDone || clientDone || hasFailed(w.client) || hasFailed(w.server):
		return step{kind: stepWatch, reason: v1alpha1.ReasonRunning, message: "waiting for both ends to finish", again: lookAgain}, true
	}
	return step{}, false
}

// concludeFailure ends an attempt that failed. A kubelet whose device plugin ended has no device on any NUMA node, and rejects
// a pod with the same words as one whose free CPUs and devices are on different NUMA nodes. Its node tells the two apart, a
// moment later.
func concludeFailure(w *world, reason, message string) step {
	switch v := w.activeRun().Variant; {
	case reason != v1alpha1.OutcomeTopologyAffinity || len(v.Resources()) == 0:
		return conclude(reason, message)
	case w.unplugged != "":
		return conclude(v1alpha1.OutcomeDevicePluginUnavailable, fmt.Sprintf("%s; %s; the attempt does not count, and the operator waits for the device plugin", message, w.unplugged))
	case w.sinceEnd() < affinityGrace:
		return step{kind: stepWatch, reason: reason, message: message + "; waiting for the node to report its devices", again: lookAgain}
	}
	return conclude(reason, message)
}

// failure is how the attempt failed, the reason empty while it has not, or while it is not known why: an end that only says
// that it lost the other knows less than that one, which may tell in a moment. Of two that know, the client comes first.
func failure(w *world) (reason, message string) {
	for _, end := range []struct{ pod, other *corev1.Pod }{{w.client, w.server}, {w.server, w.client}} {
		if !hasFailed(end.pod) {
			continue
		}
		r, m := podFailure(end.pod)
		if r != v1alpha1.OutcomePeerUnreachable {
			return r, m
		}
		if known := end.other == nil || pods.Ended(end.other) || w.sinceEnd() > wordsGrace; known && reason == "" {
			reason, message = r, m
		}
	}
	return reason, message
}

// unreachable is for an attempt whose node went away, or that takes longer than it possibly should.
func unreachable(w *world) (step, bool) {
	b, active := w.benchmark, w.benchmark.Status.Active
	for _, p := range []*corev1.Pod{w.server, w.client} {
		if p != nil && slices.Contains(w.notReady, pods.Node(p)) && w.since(active.NotReadyTime) > nodeGrace {
			return conclude(v1alpha1.OutcomeNodeLost, fmt.Sprintf("node %s is gone or not ready", pods.Node(p))), true
		}
	}
	used := time.Duration(b.Status.OccupiedSeconds)*time.Second + w.now.Sub(active.StartTime.Time)
	if w.settings.MaxOccupation > 0 && used > w.settings.MaxOccupation {
		return conclude(v1alpha1.OutcomeOccupationExceeded, occupied(w, used)), true
	}
	limit := plan.Deadline(w.driver, w.activeRun().Cells) + 2*w.settings.StartTimeout + deadlineGrace
	if w.now.Sub(active.StartTime.Time) > limit {
		return conclude(v1alpha1.OutcomeDeadlineExceeded, fmt.Sprintf("%s took longer than %s", round(b), limit)), true
	}
	return step{}, false
}

// occupied says that a benchmark held its nodes for too long.
func occupied(w *world, used time.Duration) string {
	return fmt.Sprintf("%d of %d runs are stored after the nodes were held for %s, and the operator allows %s (--max-occupation); measure fewer or shorter rounds",
		len(w.benchmark.Status.Stored), len(w.runs), used.Round(time.Second), w.settings.MaxOccupation)
}

func conclude(reason, message string) step {
	return step{kind: stepConclude, reason: reason, message: message}
}

// lostPod names the role whose pod existed and does not any more.
func lostPod(active *v1alpha1.ActiveAttempt, server, client *corev1.Pod) string {
	switch {
	case server == nil || active.ServerPodUID != "" && string(server.UID) != active.ServerPodUID:
		return v1alpha1.RoleServer
	case client == nil && active.ClientPodUID != "" || client != nil && active.ClientPodUID != "" && string(client.UID) != active.ClientPodUID:
		return v1alpha1.RoleClient
	}
	return ""
}

// hasFailed says whether a pod exists and has failed, as its kubelet says when it knows why.
func hasFailed(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodFailed }

// endedWell says whether a pod exists and its container ended with success. The pod's phase says so too, but more than
// a second later: the kubelet writes it when it has cleaned up.
func endedWell(p *corev1.Pod) bool {
	if p == nil || hasFailed(p) {
		return false
	}
	end := terminated(p)
	return p.Status.Phase == corev1.PodSucceeded || end != nil && end.ExitCode == 0
}

// started says whether a pod's container runs, or did so until it ended a moment ago.
func started(p *corev1.Pod) bool {
	return terminated(p) != nil || isRunning(p)
}

// isRunning says whether a pod's container runs.
func isRunning(p *corev1.Pod) bool {
	c := agentOf(p)
	return c != nil && c.State.Running != nil
}

// terminated is how a pod's container ended; nil while it has not.
func terminated(p *corev1.Pod) *corev1.ContainerStateTerminated {
	if c := agentOf(p); c != nil {
		return c.State.Terminated
	}
	return nil
}

// agentOf is the status of a pod's only container; nil before the kubelet has reported one.
func agentOf(p *corev1.Pod) *corev1.ContainerStatus {
	for i := range p.Status.ContainerStatuses {
		if c := &p.Status.ContainerStatuses[i]; c.Name == pods.Container {
			return c
		}
	}
	return nil
}

// hasEnded says whether a pod exists and has ended, well or not.
func hasEnded(p *corev1.Pod) bool { return endedWell(p) || hasFailed(p) }

// sinceEnd is for how long it has been known that a pod of the attempt ended.
func (w *world) sinceEnd() time.Duration { return w.since(w.benchmark.Status.Active.EndTime) }

// since is how long ago something was first seen; what was not seen before is seen now.
func (w *world) since(seen *metav1.MicroTime) time.Duration {
	if seen == nil {
		return 0
	}
	return w.now.Sub(seen.Time)
}

// pendingFor is how long ago a pod of the attempt was created. The API server dates its creation; by the clock of the claim it
// was not before that.
func (w *world) pendingFor(p *corev1.Pod) time.Duration {
	since := p.CreationTimestamp.Time
	if claimed := w.benchmark.Status.Active.StartTime.Time; claimed.After(since) {
		since = claimed
	}
	return w.now.Sub(since)
}

// holds says whether a pod is ours and may still have CPUs, devices and an address of its node. A pod that is being deleted
// has given them back when its phase says that it ended: the kubelet says so after it stopped the sandbox. Its object stays
// for a second more.
func (w *world) holds(p *corev1.Pod) bool { return w.ours(p) && !givenBack(p) }

func givenBack(p *corev1.Pod) bool { return pods.Ended(p) && !p.DeletionTimestamp.IsZero() }

// ours says whether a pod exists and belongs to this benchmark, not to another user of that name.
func (w *world) ours(p *corev1.Pod) bool { return p != nil && metav1.IsControlledBy(p, w.benchmark) }

// activeRun is the run of the active attempt.
func (w *world) activeRun() plan.Run {
	for _, run := range w.runs {
		if run.Name == w.benchmark.Status.Active.Run {
			return run
		}
	}
	return plan.Run{}
}
