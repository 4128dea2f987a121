package benchmark

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
)

// stepKind names a step that decide may choose.
type stepKind string

// The steps that decide may choose.
const (
	stepReject       stepKind = "reject"        // the spec cannot be carried out now
	stepAccept       stepKind = "accept"        // it can: note the pair
	stepWait         stepKind = "wait"          // another benchmark has the nodes
	stepHold         stepKind = "hold"          // it is suspended
	stepClaim        stepKind = "claim"         // take the nodes for the next attempt
	stepWithdraw     stepKind = "withdraw"      // give the nodes back before any pod was made
	stepCreateServer stepKind = "create server" // the first pod of an attempt
	stepCreateClient stepKind = "create client" // the second, once the first runs
	stepWatch        stepKind = "watch"         // nothing to do but wait for the pods
	stepFollow       stepKind = "follow"        // the measurement can be over: follow the logs until they have results
	stepCollect      stepKind = "collect"       // both pods have ended well, or their logs have results: verify the result and note its digests
	stepStore        stepKind = "store"         // the digests are noted: keep what has them in a ConfigMap
	stepConclude     stepKind = "conclude"      // the attempt is over without a result
	stepRemove       stepKind = "remove"        // delete the pods of an attempt that is over
	stepRelease      stepKind = "release"       // its pods hold nothing more, or do not go: give the nodes back, note the attempt, decide again
	stepExtend       stepKind = "extend"        // every run is stored, and does not decide: plan some more, once
	stepComplete     stepKind = "complete"      // every run is stored
	stepFail         stepKind = "fail"          // a run has failed for good
)

// step is what decide chose, and why. Reason and message are those of condition Succeeded, except for
// stepReject (condition Accepted), stepConclude (the outcome) and stepRelease, which has none.
type step struct {
	kind    stepKind
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
	// lookAgain is how often something is read again that no watch reports.
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
	case (w.holds(w.server) || w.holds(w.client)) && w.now.Sub(b.Status.Active.Outcome.CompletionTime.Time) <= removeTimeout:
		return step{kind: stepRemove, reason: v1alpha1.ReasonEnding, message: removing(w), again: lookAgain}
	default:
		return step{kind: stepRelease}
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
