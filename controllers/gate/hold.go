package gate

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/pods"
)

// maxPodName is the maximum length of a host name, because a pod's name becomes its host name.
const maxPodName = 63

// labelDrain is the label by which the drain of Cluster API skips a pod. Its drain ends only when a node has no other pod, and a hold pod
// is created again as soon as it is gone.
const labelDrain = "cluster.x-k8s.io/drain"

// holdPodOf returns the hold pod of a node, which exists while the gate requests it: always Running, and Ready only while the node is
// verified. The bench image's agent sleeps in it. Some operators look at its condition Ready, which waits for the condition that
// this controller sets; others, such as NVIDIA's k8s-operator-libs, look at whether its containers are ready, which a readiness
// gate does not change: see probeOf. The probe of a pod cannot change, so that the pod is created again when the node becomes
// verified or unverified.
func holdPodOf(gate *v1alpha1.LatencyGate, v *v1alpha1.LatencyVerification, image string, pull corev1.PullPolicy, serviceAccount string) *corev1.Pod {
	labels := labelsOf(v)
	labels[v1alpha1.LabelHold] = "true"
	labels[labelDrain] = "skip"
	labels[v1alpha1.NodeLabelVerified] = fmt.Sprint(v.Status.State == v1alpha1.VerificationVerified)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: gate.Spec.Namespace, Name: holdPodName(gate.Name, v.Spec.NodeName),
			Labels: labels, OwnerReferences: []metav1.OwnerReference{goesWith(v)},
		},
		Spec: corev1.PodSpec{
			NodeName:                      v.Spec.NodeName,
			ServiceAccountName:            serviceAccount,
			TerminationGracePeriodSeconds: new(int64(2)),
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			ReadinessGates:                []corev1.PodReadinessGate{{ConditionType: v1alpha1.NodeConditionVerified}},
			Containers: []corev1.Container{{
				Name: "hold", Image: image, ImagePullPolicy: pull,
				Command: []string{pods.Agent, "hold"}, ReadinessProbe: probeOf(gate, v),
				// No CPU, whatever a LimitRange has as its default: on a node that allocates whole CPUs, the smallest request would take a
				// whole CPU from other pods.
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: {}, corev1.ResourceMemory: resource.MustParse("16Mi")},
					Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
				},
			}},
		},
	}
	pods.Restrict(&pod.Spec)
	return pod
}

// probeOf returns the probe of a hold pod. If the node is not verified, it fails. If the node is verified, it compares the boot and
// the kernel that the container sees with the verified ones, if they are part of the identity: after a boot the kubelet
// runs the container again, and it does not become ready, whether or not a manager runs. Neither changes while the container
// runs, so that the probe need not run often.
func probeOf(gate *v1alpha1.LatencyGate, v *v1alpha1.LatencyVerification) *corev1.Probe {
	probe := &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{pods.Agent, "unverified"}}},
		PeriodSeconds: 3600,
	}
	switch {
	case gate.Spec.Enforcement.Mode == v1alpha1.EnforcementNone || v.Status.State != v1alpha1.VerificationVerified && !held(gate, v):
		probe.Exec.Command[1] = "verified"
	case v.Status.State == v1alpha1.VerificationVerified:
		probe.Exec.Command[1] = "verified"
		for _, key := range []v1alpha1.IdentityKey{v1alpha1.IdentityBootID, v1alpha1.IdentityKernel} {
			if value, ok := v.Status.Identity[string(key)]; ok {
				probe.Exec.Command = append(probe.Exec.Command, fmt.Sprintf("%s=%s", key, value))
			}
		}
		probe.PeriodSeconds, probe.TimeoutSeconds, probe.FailureThreshold = 30, 10, 1
	}
	return probe
}

// probes returns the command of a hold pod's probe.
func probes(pod *corev1.Pod) []string {
	if len(pod.Spec.Containers) == 0 || pod.Spec.Containers[0].ReadinessProbe == nil || pod.Spec.Containers[0].ReadinessProbe.Exec == nil {
		return nil
	}
	return pod.Spec.Containers[0].ReadinessProbe.Exec.Command
}

// ownsHoldPod reports whether a pod is the verification's to delete: the recorded hold pod, or one whose owner it is. Anyone who may create pods
// can write an owner, which therefore proves nothing else.
func ownsHoldPod(v *v1alpha1.LatencyVerification, pod *corev1.Pod) bool {
	return pod != nil && (metav1.IsControlledBy(pod, v) || v.Status.HoldPod != nil && v.Status.HoldPod.UID == string(pod.UID))
}

// forged returns why a pod with the name of the hold pod is not the one that the gate created, as it created it; empty if it is. Of the
// spec of a pod, only the image can change so that another program decides whether the pod is ready.
func forged(v *v1alpha1.LatencyVerification, pod, want *corev1.Pod) string {
	recorded := v.Status.HoldPod
	switch {
	case recorded == nil || recorded.UID != string(pod.UID):
		return "the operator did not create it, or could not record that it did"
	case !metav1.IsControlledBy(pod, v):
		return "another client removed its owner"
	case !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == want.Spec.Containers[0].Name && c.Image == recorded.Image
	}):
		return "another client changed its image"
	}
	for _, key := range []string{v1alpha1.LabelHold, v1alpha1.LabelGate, v1alpha1.LabelNode} {
		if pod.Labels[key] != want.Labels[key] {
			return "another client changed its label " + key
		}
	}
	return ""
}

// holdSettled is how long a hold pod must run before the setback of earlier hold pods that ended is cleared.
const holdSettled = 10 * time.Minute

// hold creates the hold pod of a node, or removes it, and sets its condition to whether the node is verified. An error with the
// pod is recorded in the verification's status, and retried after a pause. It returns when to look again.
func (r *Verifications) hold(ctx context.Context, w *world, v *v1alpha1.LatencyVerification) (time.Duration, error) {
	// If another gate owns the node, only that gate has a hold pod on it.
	asked := w.gate.Spec.Enforcement.HoldPod != nil && w.node != nil && (w.owner == nil || !w.disowned())
	want := holdPodOf(w.gate, v, r.Image, r.PullPolicy, r.ServiceAccount)
	reader := r.Live
	if !asked {
		reader = r.Client // There is a hold pod only if the gate requested one before, and then the cache has it.
	}
	pod, err := observe.Get[corev1.Pod](ctx, reader, want.Namespace, want.Name)
	if err != nil {
		return 0, err
	}
	if made, ok := r.held.Load(v.Name); ok && pod != nil && made.(v1alpha1.HoldPod).UID == string(pod.UID) {
		v.Status.HoldPod = new(made.(v1alpha1.HoldPod))
	}
	if !asked {
		ours := ownsHoldPod(v, pod)
		r.held.Delete(v.Name)
		v.Status.HoldPod, v.Status.HoldPodSetback = nil, nil
		if ours {
			return 0, controllers.Delete(ctx, r.Client, pod)
		}
		return 0, nil
	}
	again := ofNode.left(v.Status.HoldPodSetback, w.now)
	// A refusal is retried after at most a minute, because a node that changed must be held back.
	refused := func(what string, err error) error {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) && pod != nil {
			return err
		}
		v.Status.HoldPodSetback = markSetback(v.Status.HoldPodSetback, v1alpha1.ReasonHoldPodRefused, fmt.Sprintf("pod %s/%s cannot be %s: %v", want.Namespace, want.Name, what, err), w.now)
		again = ofNode.left(v.Status.HoldPodSetback, w.now)
		return nil
	}
	rest := func(reason, message string) {
		v.Status.HoldPodSetback = ofNode.setback(v.Status.HoldPodSetback, reason, message, w.now)
		again = ofNode.left(v.Status.HoldPodSetback, w.now)
	}
	switch {
	case pod == nil && (again > 0 || !w.node.DeletionTimestamp.IsZero()): // A tool that deletes a node may wait until it has no pod.
	case pod == nil:
		// Its condition is set when the watch delivers it.
		if err := r.Client.Create(ctx, want); err != nil && !apierrors.IsAlreadyExists(err) {
			err = refused("created", err)
			return again, err
		}
		v.Status.HoldPod = &v1alpha1.HoldPod{UID: string(want.UID), Image: want.Spec.Containers[0].Image}
		r.held.Store(v.Name, *v.Status.HoldPod)
	case !ownsHoldPod(v, pod):
		if again == 0 {
			rest(v1alpha1.ReasonHoldPodRefused, fmt.Sprintf("pod %s/%s exists and does not belong to this gate; delete it", pod.Namespace, pod.Name))
		}
	case !pod.DeletionTimestamp.IsZero():
	case pods.Ended(pod):
		rest(v1alpha1.ReasonHoldPodEnded, fmt.Sprintf("pod %s/%s ended: %s %s", pod.Namespace, pod.Name, pod.Status.Reason, pod.Status.Message))
		return again, controllers.Delete(ctx, r.Client, pod)
	case forged(v, pod, want) != "":
		rest(v1alpha1.ReasonHoldPodReplaced, fmt.Sprintf("pod %s/%s was deleted: %s", pod.Namespace, pod.Name, forged(v, pod, want)))
		return again, controllers.Delete(ctx, r.Client, pod)
	case again > 0 && v.Status.HoldPodSetback.Reason == v1alpha1.ReasonHoldPodRefused:
	case !slices.Equal(probes(pod), probes(want)):
		// Its probe is for another state; the pod is created again when it is gone. If it cannot be deleted, its condition holds the
		// node back.
		var err error
		if !v.Status.Free() {
			err = r.holdCondition(ctx, pod, w.gate, v)
		}
		if err = cmp.Or(controllers.Delete(ctx, r.Client, pod), err); err != nil {
			err = refused("deleted", err)
		}
		return again, err
	default:
		if err := r.holdCondition(ctx, pod, w.gate, v); err != nil {
			err = refused("changed", err)
			return again, err
		}
		return settle(pod, v, w.now), nil
	}
	return again, nil
}

// settle clears the setback of earlier hold pods, at once if they could not be created, and if they ended when this one has run for
// holdSettled. It returns when to look again.
func settle(pod *corev1.Pod, v *v1alpha1.LatencyVerification, now time.Time) time.Duration {
	last := v.Status.HoldPodSetback
	if last == nil {
		return 0
	}
	left := holdSettled
	if pod.Status.Phase == corev1.PodRunning && pod.Status.StartTime != nil {
		left = holdSettled - now.Sub(pod.Status.StartTime.Time)
	}
	if last.Reason == v1alpha1.ReasonHoldPodRefused || left <= 0 {
		v.Status.HoldPodSetback = nil
		return 0
	}
	return min(left, holdSettled)
}

// holdCondition sets the condition for which the pod's readiness waits.
func (r *Verifications) holdCondition(ctx context.Context, pod *corev1.Pod, gate *v1alpha1.LatencyGate, v *v1alpha1.LatencyVerification) error {
	status, reason := corev1.ConditionFalse, string(v.Status.State)
	switch {
	case v.Status.Free(), !held(gate, v):
		status = corev1.ConditionTrue
	case v.Status.State == v1alpha1.VerificationVerified:
		reason = v1alpha1.ReasonNodeNotReady
	case v.Status.State == v1alpha1.VerificationMeasuring:
		reason = string(v1alpha1.VerificationUnverified)
	}
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == v1alpha1.NodeConditionVerified })
	now := metav1.Time{Time: r.Clock.Now()}
	condition := corev1.PodCondition{Type: v1alpha1.NodeConditionVerified, Status: status, Reason: reason, LastTransitionTime: now}
	from := ""
	if i >= 0 {
		before := pod.Status.Conditions[i]
		from = fmt.Sprint(before.Status, " ", before.Reason)
		if before.Status == status && before.Reason == reason {
			return nil
		}
		if before.Status == status {
			condition.LastTransitionTime = before.LastTransitionTime
		}
	}
	data, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{condition}}})
	if err != nil {
		return fmt.Errorf("encoding a condition: %w", err)
	}
	err = r.Client.Status().Patch(ctx, pod, client.RawPatch(types.StrategicMergePatchType, data))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("setting the condition of pod %s: %w", pod.Name, err)
	}
	log.FromContext(ctx).Info("condition of the hold pod", "object", pod.Namespace+"/"+pod.Name, "from", from, "to", fmt.Sprint(status, " ", reason))
	return nil
}
