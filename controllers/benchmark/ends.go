package benchmark

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// lostPod returns the role whose pod existed and does not exist any more.
func lostPod(active *v1alpha1.ActiveAttempt, server, client *corev1.Pod) string {
	switch {
	case server == nil || active.ServerPodUID != "" && string(server.UID) != active.ServerPodUID:
		return v1alpha1.RoleServer
	case client == nil && active.ClientPodUID != "" || client != nil && active.ClientPodUID != "" && string(client.UID) != active.ClientPodUID:
		return v1alpha1.RoleClient
	}
	return ""
}

// hasFailed reports whether a pod exists and has failed. The kubelet sets this phase when it knows the cause.
func hasFailed(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodFailed }

// endedWell reports whether a pod exists and its container ended successfully. The pod's phase shows it too, but more than
// a second later: the kubelet writes it when it has cleaned up.
func endedWell(p *corev1.Pod) bool {
	if p == nil || hasFailed(p) {
		return false
	}
	end := pods.Terminated(p)
	return p.Status.Phase == corev1.PodSucceeded || end != nil && end.ExitCode == 0
}

// started reports whether a pod's container runs, or has ended.
func started(p *corev1.Pod) bool {
	return pods.Terminated(p) != nil || isRunning(p)
}

// isRunning reports whether a pod's container runs.
func isRunning(p *corev1.Pod) bool {
	c := pods.AgentOf(p)
	return c != nil && c.State.Running != nil
}

// isLost reports whether a node lost a pod's container, for example in a power failure. A kubelet that does not know how a
// container ended starts it again, whatever the pod's restartPolicy is; a kubelet that finds a container without its sandbox lets
// the pod wait forever (computePodActions in pkg/kubelet/kuberuntime).
func isLost(p *corev1.Pod) bool {
	c := pods.AgentOf(p)
	if c == nil {
		return false
	}
	noSandbox := slices.ContainsFunc(p.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReadyToStartContainers && condition.Status == corev1.ConditionFalse
	})
	return startedAgain(p) || c.State.Waiting != nil && c.ContainerID != "" && noSandbox
}

// startedAgain reports whether a pod's container was started again. Its log, and the program that wrote it, may be those of another image:
// a user who may update pods can set one, and the kubelet restarts the container whatever the pod's restartPolicy is.
func startedAgain(p *corev1.Pod) bool {
	if p == nil {
		return false
	}
	c := pods.AgentOf(p)
	return c != nil && (c.RestartCount > 0 || c.LastTerminationState.Terminated != nil)
}

// maxSaid is the maximum length, in bytes, of a foreign message inside one of ours.
const maxSaid = 400

// oneLine shortens a foreign message to one line of at most maxSaid bytes.
func oneLine(s string) string { return text.OneLine(s, maxSaid) }

// hasEnded reports whether a pod exists and has ended, successfully or not.
func hasEnded(p *corev1.Pod) bool { return endedWell(p) || hasFailed(p) }

// sinceEnd returns how long ago the operator first saw that a pod of the attempt had ended.
func (w *world) sinceEnd() time.Duration { return w.since(w.benchmark.Status.Active.EndTime) }

// since returns how long ago something was first seen; 0 if it has not been recorded before.
func (w *world) since(seen *metav1.MicroTime) time.Duration {
	if seen == nil {
		return 0
	}
	return w.now.Sub(seen.Time)
}

// pendingFor returns how long ago a pod of the attempt was created: by the API server's clock, but not before the claim, whose
// time is from the operator's clock. If the two clocks disagree so that it was created in the future, the claim counts.
func (w *world) pendingFor(p *corev1.Pod) time.Duration {
	since := p.CreationTimestamp.Time
	if claimed := w.benchmark.Status.Active.StartTime.Time; claimed.After(since) || since.After(w.now) {
		since = claimed
	}
	return w.now.Sub(since)
}

// holds reports whether a pod belongs to this benchmark and may still have CPUs, devices and an address of its node. A pod that is
// being deleted has released them when its phase shows that it ended: the kubelet sets the phase after it stopped the sandbox. The
// object remains for a second more.
func (w *world) holds(p *corev1.Pod) bool { return w.ours(p) && !givenBack(p) }

func givenBack(p *corev1.Pod) bool { return pods.Ended(p) && !p.DeletionTimestamp.IsZero() }

// ours reports whether a pod exists and belongs to this benchmark, and not to another owner that uses its name.
func (w *world) ours(p *corev1.Pod) bool { return ownsPod(w.benchmark, p) }

// ownsPod reports whether a benchmark may delete a pod and waits for it: the status has its UID, or the benchmark is its owner. Any client
// that may change the pod can remove the owner.
func ownsPod(b *v1alpha1.LatencyBenchmark, p *corev1.Pod) bool {
	if p == nil || metav1.IsControlledBy(p, b) {
		return p != nil
	}
	uid := string(p.UID)
	return b.Status.Active != nil && (b.Status.Active.ServerPodUID == uid || b.Status.Active.ClientPodUID == uid) ||
		slices.ContainsFunc(b.Status.LeftPods, func(left v1alpha1.LeftPod) bool { return left.UID == uid })
}

// activeRun returns the run of the active attempt, or an empty run if the plan does not have it.
func (w *world) activeRun() plan.Run {
	for _, run := range w.runs {
		if run.Name == w.benchmark.Status.Active.Run {
			return run
		}
	}
	return plan.Run{}
}
