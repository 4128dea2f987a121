package benchmark

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/onload"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
)

// apply carries out a step and notes in the benchmark's status (not yet written) what follows from it. It
// returns when to look again.
func (r *Reconciler) apply(ctx context.Context, w *world, s step) (time.Duration, error) {
	b := w.benchmark
	w.adopt()
	switch s.kind {
	case stepReject:
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, s.reason, s.message))
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonNotAccepted, s.message))
		return s.again, nil
	case stepHold:
		// It gives up its place in the queue: others may have begun when it goes on.
		b.Status.StartTime = nil
	case stepAccept:
		b.Status.Pair = &s.pair
	case stepClaim:
		now := metav1.NewMicroTime(w.now)
		b.Status.Active = &v1alpha1.ActiveAttempt{Run: s.run.Name, Variant: s.run.Variant.Name, Round: s.run.Round, Attempt: s.attempt, Pair: *b.Status.Pair, ClaimedAt: now}
		if b.Status.StartTime == nil {
			b.Status.StartTime = &metav1.Time{Time: w.now}
		}
	case stepWithdraw:
		// Nothing was tried: the attempt is not listed, and its number is used again. If the claim was the first one, the
		// benchmark has not started, and has no precedence over those that wait.
		if b.Status.StartTime != nil && b.Status.StartTime.Unix() == b.Status.Active.ClaimedAt.Unix() {
			b.Status.StartTime = nil
		}
		b.Status.Active = nil
	case stepCreateServer:
		if err := r.createEndpoint(ctx, w, &s, v1alpha1.RoleServer, &b.Status.Active.ServerPodUID); err != nil {
			return 0, err
		}
	case stepCreateClient:
		if err := r.createEndpoint(ctx, w, &s, v1alpha1.RoleClient, &b.Status.Active.ClientPodUID); err != nil {
			return 0, err
		}
	case stepCollect:
		if err := r.collect(ctx, w); err != nil {
			return 0, err
		}
	case stepStore:
		r.store(ctx, w, &s)
	case stepConclude:
		w.fail(&s, s.reason, s.message)
	case stepRemove:
		for _, p := range []*corev1.Pod{w.client, w.server} {
			if err := r.deletePod(ctx, b, p); err != nil {
				return 0, err
			}
		}
	case stepRelease:
		b.Status.Attempts = append(b.Status.Attempts, attemptOf(*b.Status.Active))
		b.Status.Active = nil
	case stepExtend:
		b.Status.ExtendedRounds = b.Spec.Gate.ExtendRounds
	case stepComplete, stepFail:
		b.Status.CompletionTime = &metav1.Time{Time: w.now}
	}

	status := metav1.ConditionUnknown
	switch s.kind {
	case stepComplete:
		status = metav1.ConditionTrue
	case stepFail:
		status = metav1.ConditionFalse
	}
	if b.Status.Pair != nil {
		b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted,
			fmt.Sprintf("client on %s, server on %s", b.Status.Pair.ClientNode, b.Status.Pair.ServerNode)))
	}
	b.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, status, s.reason, s.message))
	return s.again, nil
}

// adopt notes the pods of the attempt that a manager created without living, or being let, to say so.
func (w *world) adopt() {
	active := w.benchmark.Status.Active
	if active == nil || active.Outcome != nil {
		return
	}
	if active.ServerPodUID == "" && w.ours(w.server) {
		active.ServerPodUID = string(w.server.UID)
	}
	if active.ClientPodUID == "" && w.ours(w.client) {
		active.ClientPodUID = string(w.client.UID)
	}
}

// setOutcome notes how the active attempt ended.
func (w *world) setOutcome(reason, message string) {
	w.benchmark.Status.Active.Outcome = &v1alpha1.Outcome{Reason: reason, Message: message, FinishedAt: metav1.NewMicroTime(w.now)}
}

func attemptOf(a v1alpha1.ActiveAttempt) v1alpha1.Attempt {
	return v1alpha1.Attempt{Run: a.Run, Attempt: a.Attempt, ClaimedAt: a.ClaimedAt, MeasuredMilliseconds: a.MeasuredMilliseconds, Outcome: *a.Outcome}
}

// fail ends the active attempt without a result.
func (w *world) fail(s *step, reason, message string) {
	w.setOutcome(reason, message)
	active := w.benchmark.Status.Active
	s.reason, s.message = v1alpha1.ReasonEnding, fmt.Sprintf("attempt %d of %s failed (%s): %s", active.Attempt, active.Run, reason, message)
	if reason == v1alpha1.OutcomeSuspended {
		s.message = fmt.Sprintf("attempt %d of %s is ended, because spec.suspend is true", active.Attempt, active.Run)
	}
}

// refusal is why an endpoint cannot be made, as the outcome of its attempt.
type refusal struct{ reason, message string }

func (r *refusal) Error() string { return r.message }

func refusef(reason, format string, args ...any) error {
	return &refusal{reason, fmt.Sprintf(format, args...)}
}

// createEndpoint creates what the pod of a role needs, and the pod, and notes its UID. What cannot be made ends the
// attempt.
func (r *Reconciler) createEndpoint(ctx context.Context, w *world, s *step, role string, uid *string) error {
	err := r.ensureNetwork(ctx, w)
	if err == nil {
		*uid, err = r.createPod(ctx, w, role, s.address)
	}
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		w.fail(s, refused.reason, refused.message)
		return nil
	}
	return err
}

// ensureNetwork creates the network that the operator makes for the active run, unless it is there.
func (r *Reconciler) ensureNetwork(ctx context.Context, w *world) error {
	want, err := pods.Network(w.benchmark, w.activeRun().Variant)
	if err != nil || want == nil {
		return err
	}
	err = r.Client.Create(ctx, want.DeepCopy())
	if err == nil {
		return nil
	}
	if !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating NetworkAttachmentDefinition %s: %w", want.GetName(), err)
	}
	found := want.DeepCopy()
	if err := r.Live.Get(ctx, clientKey(want), found); err != nil {
		return fmt.Errorf("getting NetworkAttachmentDefinition %s: %w", want.GetName(), err)
	}
	switch {
	case !metav1.IsControlledBy(found, w.benchmark):
		return refusef(v1alpha1.OutcomeNameTaken, "NetworkAttachmentDefinition %s exists and is not this benchmark's; delete it, or give the benchmark another name", want.GetName())
	case !equality.Semantic.DeepEqual(found.Object["spec"], want.Object["spec"]) || !equality.Semantic.DeepEqual(found.GetAnnotations(), want.GetAnnotations()):
		return refusef(v1alpha1.OutcomeNetworkChanged, "somebody changed NetworkAttachmentDefinition %s, which the operator made; delete it, and it is made again", want.GetName())
	}
	return nil
}

// settings are the environment variables of the active run's tools.
func (r *Reconciler) settings(ctx context.Context, w *world) (map[string]string, error) {
	b, v := w.benchmark, w.activeRun().Variant
	var profile map[string]string
	if ref := v.Acceleration.ProfileRef; ref != nil {
		cm, err := r.configMap(ctx, b.Namespace, ref.Name)
		if err != nil {
			return nil, err
		}
		if cm == nil {
			return nil, refusef(v1alpha1.OutcomeProfileInvalid, "ConfigMap %s of acceleration.profileRef does not exist any more; create it again", ref.Name)
		}
		profile = cm.Data
	}
	env, err := onload.Environment(v, profile)
	if err != nil {
		return nil, refusef(v1alpha1.OutcomeProfileInvalid, "%v", err)
	}
	return env, nil
}

// createPod creates a pod of the active attempt. One that exists already and is ours is what we wanted: its
// name is its identity.
func (r *Reconciler) createPod(ctx context.Context, w *world, role, serverAddress string) (string, error) {
	b, active, run := w.benchmark, w.benchmark.Status.Active, w.activeRun()
	env, err := r.settings(ctx, w)
	if err != nil {
		return "", err
	}
	task := plan.Task{
		Run: run.Name, Variant: run.Variant.Name, Attempt: active.Attempt, Role: role, Tool: b.Spec.Tool, Cells: run.Cells,
		Acceleration: run.Variant.Acceleration.Type, Library: onload.Library(*run.Variant.Acceleration), Env: env,
		Deadline: plan.Deadline(w.driver, run.Cells), Interface: run.Variant.Network.Interface,
	}
	if role == v1alpha1.RoleServer {
		// The server also waits for its client to start.
		task.Deadline += w.settings.StartTimeout
		task.Capture = *run.Variant.Capture
	} else {
		task.ServerAddress, task.Token = serverAddress, active.ServerPodUID
	}
	if run.Variant.Network.Type.Attached() {
		task.Interface = pods.Interface
	}
	pod, err := pods.Build(w.endpoint(task))
	if err != nil {
		return "", err
	}
	err = r.Client.Create(ctx, pod)
	if err == nil {
		return string(pod.UID), nil
	}
	// By an admission webhook, a quota, or the namespace's Pod Security Standard.
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return "", refusef(v1alpha1.OutcomePodRefused, "the API server refuses the %s's pod: %s; change the quota, policy or label of namespace %s that it names, or the benchmark", role, oneLine(err.Error()), b.Namespace)
	}
	if !apierrors.IsAlreadyExists(err) {
		return "", fmt.Errorf("creating pod %s: %w", pod.Name, err)
	}
	existing, err := r.pod(ctx, b, active, role)
	if err != nil || existing == nil {
		return "", errors.Join(fmt.Errorf("pod %s exists and cannot be read", pod.Name), err)
	}
	return string(existing.UID), nil
}

// endpoint is the end of the active run whose task this is.
func (w *world) endpoint(task plan.Task) pods.Endpoint {
	active := w.benchmark.Status.Active
	node := active.Pair.ClientNode
	if task.Role == v1alpha1.RoleServer {
		node = active.Pair.ServerNode
	}
	return pods.Endpoint{
		Benchmark: w.benchmark, Image: w.settings.BenchImage, PullPolicy: w.settings.PullPolicy, Node: node, Variant: w.activeRun().Variant, Task: task,
	}
}

// deletePod deletes a pod of ours that is not being deleted yet.
func (r *Reconciler) deletePod(ctx context.Context, b *v1alpha1.LatencyBenchmark, p *corev1.Pod) error {
	if p == nil || !p.DeletionTimestamp.IsZero() || !metav1.IsControlledBy(p, b) {
		return nil
	}
	err := r.Client.Delete(ctx, p, client.Preconditions{UID: &p.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting pod %s: %w", p.Name, err)
	}
	return nil
}

func clientKey(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }
