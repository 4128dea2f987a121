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
}

const (
	// quietStart is how long a pod may be pending before its events are read.
	quietStart = 3 * time.Second
	// lookAgain is the interval at which state that no watch reports is read again.
	lookAgain = 2 * time.Second
	// lookSoon is the interval at which the operator looks for the address of a server that has just started, or waits for an older
	// benchmark that no worker has looked at.
	lookSoon = 500 * time.Millisecond
	// waitAgain is the fallback interval for a benchmark that waits or is rejected; watches should wake it earlier.
	waitAgain = 10 * time.Second
	// retryAfter is the pause between a failed attempt and the next one, multiplied by the number of failed attempts: a
	// device plugin that restarts, or a VF that is being reset, needs some seconds.
	retryAfter = 5 * time.Second
	// peerGrace is how long one agent may take to end after the other was seen to have ended.
	peerGrace = time.Minute
	// wordsGrace is how long an attempt in which one end lost the other waits for the other end's own message.
	wordsGrace = 10 * time.Second
	// nodeGrace is how long a node of the pair may be not ready before the attempt ends.
	nodeGrace = 60 * time.Second
	// removeTimeout is how long the removal of the pods of a finished attempt may take before its nodes are released. A
	// pod remains when its node is dead, or when it has a finalizer.
	removeTimeout = 2 * time.Minute
	// unseenGrace is how long after its acceptance a benchmark waits for older ones that no worker has looked at yet, for example
	// after a manager starts.
	unseenGrace = 5 * time.Second
	// affinityGrace is how long it may take to learn that a TopologyAffinityError was caused by a device plugin that ended: a
	// kubelet reports the devices of its node every 10 seconds.
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

// removing returns a message about the pods that are being removed, with advice if a pod cannot be removed because its kubelet is gone.
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
