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
			// A manager that died before it could record the pod may have created it, or another client.
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
		// The client measures at least until then, by its node's clock. Nothing reads the logs of the pods meanwhile.
		if left := pods.AgentOf(w.client).State.Running.StartedAt.Add(plan.MeasuringTime(w.activeRun().Cells)).Sub(w.now); left > 0 {
			s.kind, s.again = stepWatch, min(left, waitAgain)
		}
	}
	return s
}

// decideStore stores a verified result. If its pods are gone, a ConfigMap with its digests counts, which a manager created before it died.
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

// starting returns a message that is the same before and after the pod is created, because each change of it is a write.
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

// startsSoon reports whether the server is about to start, which its kubelet reports a second late: the client's pod needs that time.
func startsSoon(w *world) bool {
	address, _ := w.serverAddress()
	return address != "" && len(w.benchmark.Status.Stored) > 0
}

// startClient creates the client's pod once the server's address is known. Its agent tries until the server listens.
func startClient(w *world) step {
	if pods.Terminated(w.server) != nil {
		// The status of its pod will soon say how it ended. A client would find no server.
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

// concludeFailure ends an attempt. A kubelet whose device plugin ended rejects a pod with the same message as one whose free CPUs and
// devices are on different NUMA nodes. The Node shows which of the two happened, a moment later.
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

// failure returns how the attempt failed; no reason while that is not known: an end that only lost the other end knows less than that end,
// which may report the cause in a moment. If both report one, the client's is used.
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

// unreachable ends an attempt whose node is gone or not ready, or came back without its pods, or that takes longer than it may.
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

// end is an end of the active attempt: its pod, which is nil if it does not exist, and what the status has about it.
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

// drained reports whether a pod that has not ended well is evicted from a cordoned node, which no user of its namespace can cordon.
func (w *world) drained(p *corev1.Pod) bool {
	return p != nil && !p.DeletionTimestamp.IsZero() && !endedWell(p) && slices.Contains(w.cordoned, pods.Node(p)) &&
		slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "EvictionByEvictionAPI"
		})
}

// hasFailed reports whether a pod exists and has failed. The kubelet sets this phase when it knows the cause.
func hasFailed(p *corev1.Pod) bool { return p != nil && p.Status.Phase == corev1.PodFailed }

// endedWell reports whether a pod's container ended successfully, more than a second before its phase shows it.
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

// isLost reports whether a node lost a pod's container. A kubelet that does not know how one ended starts it again; one that finds a
// container without its sandbox lets the pod wait forever (computePodActions in pkg/kubelet/kuberuntime).
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

// pendingFor returns how long ago a pod of the attempt was created: by the API server's clock, but not before the claim, whose
// time is from the operator's clock. If the two clocks disagree so that it was created in the future, the claim counts.
func (w *world) pendingFor(p *corev1.Pod) time.Duration {
	since := p.CreationTimestamp.Time
	if claimed := w.benchmark.Status.Active.StartTime.Time; claimed.After(since) || since.After(w.now) {
		since = claimed
	}
	return w.now.Sub(since)
}

// holds reports whether a pod may still have CPUs, devices and an address of its node. One that is being deleted has released them when its
// phase shows that it ended: the kubelet sets the phase after it stopped the sandbox.
func (w *world) holds(p *corev1.Pod) bool { return w.ours(p) && !givenBack(p) }

func givenBack(p *corev1.Pod) bool { return pods.Ended(p) && !p.DeletionTimestamp.IsZero() }

func (w *world) ours(p *corev1.Pod) bool { return ownsPod(w.benchmark, p) }

// ownsPod reports whether a benchmark may delete a pod: the status has its UID, or it is the owner, which a client may remove.
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
