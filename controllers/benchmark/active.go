package benchmark

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/queue"
	"github.com/tailgate-dev/tailgate/internal/text"
)

func decideActive(w *world) step {
	b, active := w.benchmark, w.benchmark.Status.Active
	if w.driver == nil {
		return conclude(v1alpha1.OutcomeAgentFailed, "this operator does not know %s; upgrade it", b.Spec.Tool)
	}
	if active.Collected != nil {
		return decideStore(w)
	}
	for _, e := range w.ends() {
		switch p := e.pod; {
		case p != nil && !w.ours(p):
			return conclude(v1alpha1.OutcomeNameTaken, "pod %s exists and does not belong to this benchmark", p.Name)
		case p != nil && !metav1.IsControlledBy(p, b):
			return conclude(v1alpha1.OutcomePodLost, "another client removed the owner of pod %s, with which it would have been deleted", p.Name)
		}
	}
	if w.server == nil && active.ServerPodUID == "" && w.client == nil {
		return startServer(w)
	}
	if lost := lostPod(active, w.server, w.client); lost != "" {
		return conclude(v1alpha1.OutcomePodLost, "the %s's pod was deleted before the run ended", lost)
	}
	for _, e := range w.ends() {
		if w.drained(e.pod) {
			return conclude(v1alpha1.OutcomeEvicted, "a drain of node %s evicted the %s", pods.Node(e.pod), e.role)
		}
	}
	for _, end := range w.ends() {
		if end.pod != nil && *end.uid == "" {
			// Another client may have created the pod, or a manager that died before the record.
			return conclude(v1alpha1.OutcomeNameTaken, "pod %s exists, but the status does not record that the operator created it", end.pod.Name)
		}
	}
	s, over := ended(w)
	if b.Spec.Suspend && (!over || s.kind == stepWatch) {
		// A finished measurement is not discarded.
		return conclude(v1alpha1.OutcomeSuspended, "spec.suspend ended the attempt, which does not count as failed")
	}
	if over {
		return s
	}
	if s, over := unreachable(w); over {
		return s
	}
	for _, end := range w.ends() {
		if end.pod == nil || isRunning(end.pod) || pods.Terminated(end.pod) != nil {
			continue
		}
		trouble := pods.StartTrouble(end.pod, w.events[end.pod.UID])
		if trouble.Outcome == v1alpha1.OutcomeUnschedulable && w.unplugged != "" {
			return conclude(v1alpha1.OutcomeDevicePluginUnavailable, "the %s's pod cannot start: %s; the attempt does not count, and the operator waits for the device plugin", end.role, w.unplugged)
		}
		if trouble.Final {
			return conclude(trouble.Outcome, "the %s's pod cannot start: %s", end.role, trouble.Message())
		}
		if w.pendingFor(end.pod) > w.settings.StartTimeout {
			return conclude(trouble.Outcome, "the %s's pod did not start within %s: %s", end.role, w.settings.StartTimeout, trouble.Message())
		}
		if trouble.Said != "" {
			return watch(trouble.Outcome, "the %s's pod does not start: %s", end.role, trouble.Message())
		}
		if end.role == v1alpha1.RoleServer && w.client == nil && startsSoon(w) {
			return startClient(w)
		}
		return watch(v1alpha1.ReasonStarting, "%s", starting(w, end.role))
	}
	if w.client == nil {
		return startClient(w)
	}
	s = do(stepFollow, v1alpha1.ReasonRunning, "measuring %s", round(b)).after(waitAgain)
	if isRunning(w.client) {
		// The client measures until then by its node's clock; nothing reads the logs before.
		if left := pods.AgentOf(w.client).State.Running.StartedAt.Add(plan.MeasuringTime(w.activeRun().Cells)).Sub(w.now); left > 0 {
			s.kind, s.again = stepWatch, min(left, waitAgain)
		}
	}
	return s
}

// decideStore stores a verified result. Without pods, a ConfigMap with its digests is enough.
func decideStore(w *world) step {
	active := w.benchmark.Status.Active
	if lost := lostPod(active, w.server, w.client); lost != "" && w.kept != keptWhole {
		return conclude(v1alpha1.OutcomePodLost, "the %s's pod was deleted before its result was stored", lost)
	}
	return do(stepStore, v1alpha1.ReasonRunning, "storing the result")
}

func round(b *v1alpha1.LatencyBenchmark) string {
	text := fmt.Sprintf("round %d of %d", b.Status.Active.Round, plan.Rounds(b))
	if len(b.Spec.Variants) > 0 {
		text += ", variant " + b.Status.Active.Variant
	}
	return text
}

// starting returns the same message before and after the pod is created: each change is a write.
func starting(w *world, role string) string {
	return fmt.Sprintf("starting run %s, attempt %d: %s", w.benchmark.Status.Active.Run, w.benchmark.Status.Active.Attempt, role)
}

// startServer compares the claim with all others again: two managers may have claimed one node.
func startServer(w *world) step {
	if w.benchmark.Spec.Suspend {
		return do(stepWithdraw, v1alpha1.ReasonBenchmarkSuspended, "spec.suspend was set before the first pod of the run was created")
	}
	if ok, blocker := queue.Admit(queue.EntryOf(w.benchmark), w.others); !ok {
		return do(stepWithdraw, v1alpha1.ReasonQueued, "gave way: %s", blocker)
	}
	if s, waits := refusedCreate(w); waits {
		return s
	}
	return do(stepCreateServer, v1alpha1.ReasonStarting, "%s", starting(w, v1alpha1.RoleServer)).after(lookAgain)
}

// startsSoon reports whether a server is about to start: its kubelet reports that a second late.
func startsSoon(w *world) bool {
	address, _ := w.serverAddress()
	return address != "" && len(w.benchmark.Status.Stored) > 0
}

// startClient creates the client's pod. Its agent tries until the server listens.
func startClient(w *world) step {
	if pods.Terminated(w.server) != nil {
		// Its status will soon say how it ended; a client would find no server.
		return watch(v1alpha1.ReasonStarting, "%s", starting(w, v1alpha1.RoleServer))
	}
	if s, waits := refusedCreate(w); waits {
		return s
	}
	address, missing := w.serverAddress()
	if address != "" {
		s := do(stepCreateClient, v1alpha1.ReasonStarting, "%s", starting(w, v1alpha1.RoleClient)).after(lookAgain)
		s.address = address
		return s
	}
	if w.pendingFor(w.server) > w.settings.StartTimeout {
		return conclude(v1alpha1.OutcomeNetworkFailed, "%s", missing)
	}
	return watch(v1alpha1.ReasonStarting, "%s", missing).after(lookSoon)
}

func (w *world) serverAddress() (address, missing string) {
	if v := w.activeRun().Variant; v.Network.Interface() == "" {
		return pods.Address(w.benchmark, v, w.server)
	}
	return w.listening, w.noAddress
}

func ended(w *world) (step, bool) {
	if reason, message := failure(w); reason != "" {
		return concludeFailure(w, reason, message), true
	}
	serverDone, clientDone := endedWell(w.server), endedWell(w.client)
	switch {
	case startedAgain(w.server) || startedAgain(w.client):
		return step{}, false // See unreachable.
	case w.found, serverDone && clientDone:
		return do(stepCollect, v1alpha1.ReasonRunning, "collecting the result"), true
	case serverDone && w.client == nil:
		return conclude(v1alpha1.OutcomeAgentFailed, "the server ended before there was a client"), true
	case serverDone && w.sinceEnd() > peerGrace:
		return conclude(v1alpha1.OutcomeAgentFailed, "the server has ended, and the client has not"), true
	case clientDone && w.sinceEnd() > peerGrace:
		return conclude(v1alpha1.OutcomeAgentFailed, "the client has ended, and the server has not"), true
	case serverDone || clientDone || hasFailed(w.client) || hasFailed(w.server):
		return watch(v1alpha1.ReasonRunning, "waiting for both ends to finish"), true
	}
	return step{}, false
}

// concludeFailure ends an attempt. A kubelet has one message for an ended device plugin and for
// free CPUs and devices on different NUMA nodes; the Node soon shows which.
func concludeFailure(w *world, reason, message string) step {
	switch v := w.activeRun().Variant; {
	case reason != v1alpha1.OutcomeTopologyAffinity || len(v.Resources()) == 0:
		return conclude(reason, "%s", message)
	case w.unplugged != "":
		return conclude(v1alpha1.OutcomeDevicePluginUnavailable, "%s; %s; the attempt does not count, and the operator waits for the device plugin", message, w.unplugged)
	case w.sinceEnd() < affinityGrace:
		return watch(reason, "%s; waiting for the node to report its devices", message)
	}
	return conclude(reason, "%s", message)
}

// failure returns the attempt's cause, the client's first; none while an end may still report it.
func failure(w *world) (reason, message string) {
	for _, end := range []struct{ pod, other *corev1.Pod }{{w.client, w.server}, {w.server, w.client}} {
		if !hasFailed(end.pod) {
			continue
		}
		trouble := pods.FailureOf(end.pod)
		r, m := trouble.Outcome, trouble.Message()
		if r != v1alpha1.OutcomePeerUnreachable {
			return r, m
		}
		if known := end.other == nil || pods.Ended(end.other) || w.sinceEnd() > wordsGrace; known && reason == "" {
			reason, message = r, m
		}
	}
	return reason, message
}

// unreachable ends an attempt whose node is gone, not ready or lost its pods, or that is overdue.
func unreachable(w *world) (step, bool) {
	b, active := w.benchmark, w.benchmark.Status.Active
	for _, e := range w.ends() {
		switch p := e.pod; {
		case p == nil:
		case slices.Contains(w.notReady, pods.Node(p)) && w.since(active.NotReadyTime) > nodeGrace:
			return conclude(v1alpha1.OutcomeNodeLost, "node %s is gone or not ready", pods.Node(p)), true
		case isLost(p):
			return conclude(v1alpha1.OutcomeNodeLost, "node %s lost the container of the %s: did the node reboot, or did a user change the pod's image?", pods.Node(p), e.role), true
		}
	}
	held, limit := w.now.Sub(active.StartTime.Time), w.deadline()
	if held > limit { // Before the occupation: the clock may have been behind when the attempt began.
		return conclude(v1alpha1.OutcomeDeadlineExceeded, "%s took longer than %s", round(b), limit), true
	}
	used := time.Duration(b.Status.OccupiedSeconds)*time.Second + held
	if w.settings.MaxOccupation > 0 && used > w.settings.MaxOccupation {
		return conclude(v1alpha1.OutcomeOccupationExceeded, "%s", occupied(w, used)), true
	}
	return step{}, false
}

func (w *world) deadline() time.Duration {
	return plan.Deadline(w.driver, w.activeRun().Cells) + 2*w.settings.StartTimeout + deadlineGrace
}

func occupied(w *world, used time.Duration) string {
	return fmt.Sprintf("%d of %d runs are stored after the nodes were held for %s, and the operator allows %s (--max-occupation); measure fewer or shorter rounds",
		len(w.benchmark.Status.Stored), len(w.runs), used.Round(time.Second), w.settings.MaxOccupation)
}

type end struct {
	role        string
	pod         *corev1.Pod
	uid, device *string
}

func (w *world) ends() []end {
	active := w.benchmark.Status.Active
	return []end{
		{v1alpha1.RoleServer, w.server, &active.ServerPodUID, &active.ServerDevice},
		{v1alpha1.RoleClient, w.client, &active.ClientPodUID, &active.ClientDevice},
	}
}

func lostPod(active *v1alpha1.ActiveAttempt, server, client *corev1.Pod) string {
	switch {
	case server == nil || active.ServerPodUID != "" && string(server.UID) != active.ServerPodUID:
		return v1alpha1.RoleServer
	case client == nil && active.ClientPodUID != "" || client != nil && active.ClientPodUID != "" && string(client.UID) != active.ClientPodUID:
		return v1alpha1.RoleClient
	}
	return ""
}

// drained reports whether a pod is evicted from a cordoned node: no user of a namespace can cordon.
func (w *world) drained(p *corev1.Pod) bool {
	return p != nil && !p.DeletionTimestamp.IsZero() && !endedWell(p) && slices.Contains(w.cordoned, pods.Node(p)) &&
		slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "EvictionByEvictionAPI"
		})
}

// hasFailed reports whether a pod failed. The kubelet sets this phase when it knows the cause.
func hasFailed(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodFailed }

// endedWell reports whether a container succeeded, a second before the pod's phase shows it.
func endedWell(p *corev1.Pod) bool {
	if p == nil || hasFailed(p) {
		return false
	}
	end := pods.Terminated(p)
	return p.Status.Phase == corev1.PodSucceeded || end != nil && end.ExitCode == 0
}

func isRunning(p *corev1.Pod) bool {
	c := pods.AgentOf(p)
	return c != nil && c.State.Running != nil
}

// isLost reports whether a node lost a pod's container: the kubelet then starts it again, or lets a
// pod without sandbox wait for ever (computePodActions in pkg/kubelet/kuberuntime).
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

// startedAgain reports whether a container was restarted, as the kubelet does if a user sets
// another image, whatever the restartPolicy is: log and program may be of that image.
func startedAgain(p *corev1.Pod) bool {
	if p == nil {
		return false
	}
	c := pods.AgentOf(p)
	return c != nil && (c.RestartCount > 0 || c.LastTerminationState.Terminated != nil)
}

const maxSaid = 400

func oneLine(s string) string { return text.OneLine(s, maxSaid) }

func hasEnded(p *corev1.Pod) bool { return endedWell(p) || hasFailed(p) }

func (w *world) sinceEnd() time.Duration { return w.since(w.benchmark.Status.Active.EndTime) }

func (w *world) since(seen *metav1.MicroTime) time.Duration {
	if seen == nil {
		return 0
	}
	return w.now.Sub(seen.Time)
}

// pendingFor returns how long ago a pod was created by the API server's clock. The claim, by the
// operator's clock, counts if it is later, or if the creation is in the future.
func (w *world) pendingFor(p *corev1.Pod) time.Duration {
	since := p.CreationTimestamp.Time
	if claimed := w.benchmark.Status.Active.StartTime.Time; claimed.After(since) || since.After(w.now) {
		since = claimed
	}
	return w.now.Sub(since)
}

// holds: a pod may still have CPUs, devices and address. The phase is set after the sandbox stops.
func (w *world) holds(p *corev1.Pod) bool { return w.ours(p) && !givenBack(p) }

func givenBack(p *corev1.Pod) bool { return pods.Ended(p) && !p.DeletionTimestamp.IsZero() }

func (w *world) ours(p *corev1.Pod) bool { return ownsPod(w.benchmark, p) }

// ownsPod reports whether a benchmark may delete a pod: by the status's UID, or as its owner.
func ownsPod(b *v1alpha1.LatencyBenchmark, p *corev1.Pod) bool {
	if p == nil || metav1.IsControlledBy(p, b) {
		return p != nil
	}
	uid := string(p.UID)
	return b.Status.Active != nil && (b.Status.Active.ServerPodUID == uid || b.Status.Active.ClientPodUID == uid) ||
		slices.ContainsFunc(b.Status.LeftPods, func(left v1alpha1.LeftPod) bool { return left.UID == uid })
}

func (w *world) activeRun() plan.Run {
	i := slices.IndexFunc(w.runs, func(run plan.Run) bool { return run.Name == w.benchmark.Status.Active.Run })
	if i < 0 {
		return plan.Run{}
	}
	return w.runs[i]
}
