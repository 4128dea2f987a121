package gate

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/pods"
)

// maxPodName is the length of a host name, which a pod's name becomes.
const maxPodName = 63

// holdPodOf is the pod that stands on a node as long as its gate asks for it: always Running, and Ready only while the node is
// verified. The bench image's agent sleeps in it. Operators look at its condition Ready, which waits for the condition that
// this controller sets, or at whether its containers are ready, as NVIDIA's k8s-operator-libs do, which a readiness gate does
// not change: the container of a node that is not verified has a probe that fails. A pod cannot get or lose a probe, so that
// it is made anew when the node comes to be verified, or does not any more.
func holdPodOf(gate *v1alpha1.LatencyGate, v *v1alpha1.LatencyVerification, image string, pull corev1.PullPolicy) *corev1.Pod {
	const agent = "/usr/local/bin/tailgate-agent"
	labels := labelsOf(v)
	labels[v1alpha1.LabelHold] = "true"
	labels[v1alpha1.NodeLabelVerified] = fmt.Sprint(v.Status.State == v1alpha1.VerificationVerified)
	var probe *corev1.Probe
	if v.Status.State != v1alpha1.VerificationVerified {
		probe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{agent, "unverified"}}},
			PeriodSeconds: 3600,
		}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: gate.Spec.Namespace, Name: baseName(gate.Name, v.Spec.NodeName, maxPodName-len("-hold")) + "-hold",
			Labels: labels, OwnerReferences: []metav1.OwnerReference{ownerOf(v)},
		},
		Spec: corev1.PodSpec{
			NodeName:                      v.Spec.NodeName,
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			TerminationGracePeriodSeconds: new(int64(2)),
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			ReadinessGates:                []corev1.PodReadinessGate{{ConditionType: v1alpha1.NodeConditionVerified}},
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), RunAsGroup: new(int64(65532)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{
				Name: "hold", Image: image, ImagePullPolicy: pull,
				Command: []string{agent, "hold"}, ReadinessProbe: probe,
				// No CPU: of a node whose CPUs are given out whole, the least request costs somebody a whole one.
				Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("16Mi")},
					Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
					Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
				},
			}},
		},
	}
}

// hold makes the hold pod of a node, or removes it, and says in its condition whether the node is verified.
func (r *Verifications) hold(ctx context.Context, gate *v1alpha1.LatencyGate, v *v1alpha1.LatencyVerification) error {
	want := holdPodOf(gate, v, r.Image, r.PullPolicy)
	pod := &corev1.Pod{}
	reader := r.Live
	if !gate.Spec.Enforcement.HoldPod {
		// There is one only if the gate asked for it before, and then the cache has it.
		reader = r.Client
	}
	switch err := reader.Get(ctx, client.ObjectKeyFromObject(want), pod); {
	case apierrors.IsNotFound(err):
		pod = nil
	case err != nil:
		return fmt.Errorf("getting pod %s: %w", want.Name, err)
	case !metav1.IsControlledBy(pod, v):
		if gate.Spec.Enforcement.HoldPod {
			return fmt.Errorf("pod %s/%s exists and is not this gate's; delete it", pod.Namespace, pod.Name)
		}
		return nil
	}
	over := pod != nil && (pods.Ended(pod) ||
		pod.Labels[v1alpha1.NodeLabelVerified] != want.Labels[v1alpha1.NodeLabelVerified])
	switch {
	case pod != nil && (!gate.Spec.Enforcement.HoldPod || over):
		if !pod.DeletionTimestamp.IsZero() {
			return nil
		}
		// One that is over, because it was evicted or speaks of another state, is made again when it is gone.
		if err := r.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting pod %s: %w", pod.Name, err)
		}
		return nil
	case !gate.Spec.Enforcement.HoldPod:
		return nil
	case pod == nil:
		// Its condition follows when the watch tells of it.
		if err := r.Client.Create(ctx, want); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating pod %s: %w", want.Name, err)
		}
		return nil
	}
	return r.holdCondition(ctx, pod, v)
}

// holdCondition sets the condition for which the pod's readiness waits.
func (r *Verifications) holdCondition(ctx context.Context, pod *corev1.Pod, v *v1alpha1.LatencyVerification) error {
	status, reason := corev1.ConditionFalse, string(v.Status.State)
	switch v.Status.State {
	case v1alpha1.VerificationVerified:
		status = corev1.ConditionTrue
	case v1alpha1.VerificationMeasuring:
		reason = string(v1alpha1.VerificationUnverified)
	}
	i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == v1alpha1.NodeConditionVerified })
	now := metav1.Time{Time: r.Clock.Now()}
	condition := corev1.PodCondition{Type: v1alpha1.NodeConditionVerified, Status: status, Reason: reason, LastTransitionTime: now}
	if i >= 0 {
		before := pod.Status.Conditions[i]
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
	return nil
}
