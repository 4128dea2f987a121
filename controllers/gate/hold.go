package gate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/turns"
)

// maxPodName is the maximum length of a host name, which a pod's name becomes.
const maxPodName = 63

// The digest distinguishes nodes a.b and a-b, and node b-c of gate a from node c of gate a-b.
func holdPodName(gate, node string) string {
	sum := sha256.Sum256([]byte(v1alpha1.VerificationName(gate, node)))
	return turns.ObjectName(gate, node, fmt.Sprintf("-%x-hold", sum[:4]), maxPodName)
}

// labelDrain makes Cluster API's drain skip a pod that would be created again for ever.
const labelDrain = "cluster.x-k8s.io/drain"

// holdPodOf returns a node's hold pod: always Running, Ready only while the node is verified. Some
// operators look at its condition Ready, which this controller sets, others, such as NVIDIA's
// k8s-operator-libs, at its containers' probe, which cannot change: the pod is created again.
func holdPodOf(gate *v1alpha1.LatencyGate, v *v1alpha1.LatencyVerification, image string, pull corev1.PullPolicy, serviceAccount string) *corev1.Pod {
	labels := foreign.OptOutLabels()
	maps.Copy(labels, turns.LabelsOf(v))
	labels[v1alpha1.LabelHold] = "true"
	labels[labelDrain] = "skip"
	labels[v1alpha1.NodeLabelVerified] = fmt.Sprint(v.Status.State.Passed())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: gate.Spec.Namespace, Name: holdPodName(gate.Name, v.Spec.NodeName),
			// The cluster autoscaler does not wait for its end: it is created again while the Node exists.
			Annotations: map[string]string{"cluster-autoscaler.kubernetes.io/daemonset-pod": "true"},
			Labels:      labels, OwnerReferences: []metav1.OwnerReference{turns.OwnedBy(v)},
		},
		Spec: corev1.PodSpec{
			NodeName:                      v.Spec.NodeName,
			ServiceAccountName:            serviceAccount,
			TerminationGracePeriodSeconds: new(int64(pods.GracePeriodSeconds)),
			Tolerations:                   []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			ReadinessGates:                []corev1.PodReadinessGate{{ConditionType: v1alpha1.NodeConditionVerified}},
			Containers: []corev1.Container{{
				Name: "hold", Image: image, ImagePullPolicy: pull,
				Command: []string{pods.Agent, "hold"}, ReadinessProbe: probeOf(gate, v),
				// No CPU, whatever a LimitRange has: it could take a whole one from other pods.
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

// probeOf returns a probe that fails while the node is held back. On a verified node it compares
// boot and kernel with the verified ones: after a boot, the container does not become ready even
// without a manager. Others have none: a kubelet delays a first probe by up to a period.
func probeOf(gate *v1alpha1.LatencyGate, v *v1alpha1.LatencyVerification) *corev1.Probe {
	probe := &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{pods.Agent, "unverified"}}},
		PeriodSeconds: 3600,
	}
	switch {
	case gate.Observes() || !v.Status.State.Passed() && !turns.Held(gate, v):
		return nil
	case v.Status.State.Passed():
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

func probes(pod *corev1.Pod) []string {
	if len(pod.Spec.Containers) == 0 || pod.Spec.Containers[0].ReadinessProbe == nil || pod.Spec.Containers[0].ReadinessProbe.Exec == nil {
		return nil
	}
	return pod.Spec.Containers[0].ReadinessProbe.Exec.Command
}

// ownsHoldPod reports whether the verification may delete a pod; an owner proves nothing else.
func ownsHoldPod(v *v1alpha1.LatencyVerification, pod *corev1.Pod) bool {
	return pod != nil && (metav1.IsControlledBy(pod, v) || v.Status.HoldPod != nil && v.Status.HoldPod.UID == string(pod.UID))
}

// forged returns why a pod is not as the gate created it; another image would decide its readiness.
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

const holdEnds = time.Minute // for a deleted hold pod to end

const holdSettled = 10 * time.Minute // after which the step failure of earlier hold pods is cleared

type holdAction string

const (
	holdNothing holdAction = ""
	holdCreate  holdAction = "created"
	// holdReplace: the pod is created again when it is gone; holdShow sets its condition.
	holdDelete  holdAction = "removed"
	holdReplace holdAction = "deleted"
	holdShow    holdAction = "changed"
)

// holdStep is an action, and the step failure to record, if it has a reason.
type holdStep struct {
	do              holdAction
	reason, message string
}

func decideHold(w *world, v *v1alpha1.LatencyVerification, pod, want *corev1.Pod, asked bool) holdStep {
	rests := turns.OfNode.Left(v.Status.HoldPodFailure, w.now) > 0
	ending := holdNothing
	if v.Status.State != v1alpha1.VerificationVerified {
		ending = holdShow // Until it is gone, its condition holds the node back.
	}
	switch {
	case !asked && ownsHoldPod(v, pod):
		return holdStep{do: holdDelete}
	case !asked:
		return holdStep{}
	case pod == nil && (rests || !w.node.DeletionTimestamp.IsZero()): // A tool that deletes a node may wait until it has no pod.
		return holdStep{}
	case pod == nil:
		return holdStep{do: holdCreate}
	case !ownsHoldPod(v, pod) && rests:
		return holdStep{}
	case !ownsHoldPod(v, pod):
		return holdStep{reason: v1alpha1.ReasonHoldPodRefused, message: "exists and does not belong to this gate; delete it if nothing uses it, or give the gate another name"}
	case controllers.Lingers(pod):
		return holdStep{do: holdReplace}
	case !pod.DeletionTimestamp.IsZero() && !rests && w.now.Sub(pod.DeletionTimestamp.Time) >= holdEnds:
		return holdStep{ending, v1alpha1.ReasonHoldPodEnded, fmt.Sprintf(
			"is being deleted since %s and does not end: remove its finalizers %q, or bring the node back", pod.DeletionTimestamp.UTC().Format(time.RFC3339), pod.Finalizers)}
	case !pod.DeletionTimestamp.IsZero():
		return holdStep{do: ending}
	case pods.Ended(pod):
		return holdStep{holdDelete, v1alpha1.ReasonHoldPodEnded, fmt.Sprintf("ended: %s %s", pod.Status.Reason, pod.Status.Message)}
	case forged(v, pod, want) != "":
		return holdStep{holdDelete, v1alpha1.ReasonHoldPodReplaced, "was deleted: " + forged(v, pod, want)}
	case rests && v.Status.HoldPodFailure.Reason == v1alpha1.ReasonHoldPodRefused:
		return holdStep{}
	case !slices.Equal(probes(pod), probes(want)), pod.Labels[v1alpha1.NodeLabelVerified] != want.Labels[v1alpha1.NodeLabelVerified]:
		return holdStep{do: holdReplace}
	}
	return holdStep{do: holdShow}
}

// hold retries after a pause what the API server refuses. It returns when to look again.
func (r *Verifications) hold(ctx context.Context, w *world, v *v1alpha1.LatencyVerification) (time.Duration, error) {
	// If another gate owns the node, only that gate has a hold pod on it.
	asked := w.gate.DeletionTimestamp.IsZero() && w.gate.Spec.Enforcement.HoldPod != nil && w.holds()
	want := holdPodOf(w.gate, v, r.Image, r.PullPolicy, r.ServiceAccount)
	reader := r.Live
	if !asked {
		reader = r.Client // There is a hold pod only if the gate requested one before, and then the cache has it.
	}
	pod, err := observe.Get[corev1.Pod](ctx, reader, want.Namespace, want.Name)
	if err != nil {
		return 0, err
	}
	if made, ok := r.Memory.held.Load(v.Name); ok && pod != nil && made.(v1alpha1.HoldPod).UID == string(pod.UID) {
		v.Status.HoldPod = new(made.(v1alpha1.HoldPod))
	}
	rest := func(p turns.Pauses, reason, message string) {
		message = fmt.Sprintf("pod %s/%s %s", want.Namespace, want.Name, message)
		v.Status.HoldPodFailure = p.StepFailure(v.Status.HoldPodFailure, reason, message, w.now)
	}
	s := decideHold(w, v, pod, want, asked)
	if s.reason != "" {
		rest(turns.OfNode, s.reason, s.message)
	}
	err = r.applyHold(ctx, w, v, s.do, pod, want)
	ending := pod != nil && !pod.DeletionTimestamp.IsZero()
	switch {
	case !asked:
		r.Memory.held.Delete(v.Name)
		v.Status.HoldPod, v.Status.HoldPodFailure = nil, nil
		return 0, err
	case err == nil && s.do == holdShow && !ending:
		return settle(pod, v, w.now), nil
	case err != nil && s.do != holdDelete && !apierrors.IsConflict(err) && (pod == nil || !apierrors.IsNotFound(err)):
		// The pause is at most a minute: a node that changed must be held back.
		rest(turns.OfMark, v1alpha1.ReasonHoldPodRefused, fmt.Sprintf("cannot be %s: %v", s.do, err))
		err = nil
	}
	again := turns.OfNode.Left(v.Status.HoldPodFailure, w.now)
	if err == nil && ending {
		again = cmp.Or(again, holdEnds)
	}
	return again, err
}

func (r *Verifications) applyHold(ctx context.Context, w *world, v *v1alpha1.LatencyVerification, do holdAction, pod, want *corev1.Pod) error {
	var shown error
	if do == holdShow || do == holdReplace && v.Status.State != v1alpha1.VerificationVerified {
		shown = r.holdCondition(ctx, pod, w.gate, v) // It holds the node back also if the pod cannot be deleted.
	}
	switch do {
	case holdNothing, holdShow:
	case holdDelete, holdReplace:
		return cmp.Or(controllers.Delete(ctx, r.Client, pod), shown)
	case holdCreate:
		// Its condition is set when the watch delivers it.
		if err := r.Client.Create(ctx, want); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		v.Status.HoldPod = &v1alpha1.HoldPod{UID: string(want.UID), Image: want.Spec.Containers[0].Image}
		r.Memory.held.Store(v.Name, *v.Status.HoldPod)
	}
	return shown
}

func settle(pod *corev1.Pod, v *v1alpha1.LatencyVerification, now time.Time) time.Duration {
	last := v.Status.HoldPodFailure
	if last == nil {
		return 0
	}
	left := holdSettled
	if pod.Status.Phase == corev1.PodRunning && pod.Status.StartTime != nil {
		left = holdSettled - now.Sub(pod.Status.StartTime.Time)
	}
	if last.Reason == v1alpha1.ReasonHoldPodRefused || left <= 0 {
		v.Status.HoldPodFailure = nil
		return 0
	}
	return min(left, holdSettled)
}

func (r *Verifications) holdCondition(ctx context.Context, pod *corev1.Pod, gate *v1alpha1.LatencyGate, v *v1alpha1.LatencyVerification) error {
	status, reason := corev1.ConditionFalse, string(v.Status.State)
	switch {
	case v.Status.State == v1alpha1.VerificationVerified, !turns.Held(gate, v):
		status = corev1.ConditionTrue
	case v.Status.State == v1alpha1.VerificationAway:
		reason = v1alpha1.ReasonNodeNotReady
	case v.Status.State == v1alpha1.VerificationMeasuring:
		reason = string(v1alpha1.VerificationUnverified)
	}
	old, ours := pod.DeepCopy(), func(c corev1.PodCondition) bool { return c.Type == v1alpha1.NodeConditionVerified }
	before := corev1.PodCondition{}
	if i := slices.IndexFunc(pod.Status.Conditions, ours); i >= 0 {
		before = pod.Status.Conditions[i]
	}
	if before.Status == status && before.Reason == reason {
		return nil
	}
	condition := corev1.PodCondition{
		Type: v1alpha1.NodeConditionVerified, Status: status, Reason: reason, LastTransitionTime: before.LastTransitionTime,
	}
	if before.Status != status {
		condition.LastTransitionTime = metav1.Time{Time: r.Clock.Now()}
	}
	pod.Status.Conditions = append(slices.DeleteFunc(pod.Status.Conditions, ours), condition)
	if err := r.Client.Status().Patch(ctx, pod, client.StrategicMergeFrom(old)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("setting the condition of pod %s: %w", pod.Name, err)
	}
	from := strings.TrimSpace(fmt.Sprint(before.Status, " ", before.Reason))
	log.FromContext(ctx).Info("condition of the hold pod", "object", pod.Namespace+"/"+pod.Name, "from", from, "to", fmt.Sprint(status, " ", reason))
	return nil
}

// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;create;update;delete

// budgetOf returns the PodDisruptionBudget over a gate's hold pods. Only a number works as its
// minimum: for others, the disruption controller needs an owner with a scale.
func budgetOf(gate *v1alpha1.LatencyGate, nodes int) *policyv1.PodDisruptionBudget {
	owner := metav1.NewControllerRef(gate, v1alpha1.GroupVersion.WithKind("LatencyGate"))
	owner.BlockOwnerDeletion = nil // to block the deletion of a gate would need one more right
	least := int32(0)
	if hold := gate.Spec.Enforcement.HoldPod; hold != nil && hold.Budget != nil {
		least = max(int32(nodes)-hold.Budget.MaxUnavailable, 0)
	}
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: gate.Spec.Namespace, Name: "tailgate-hold-" + gate.Name,
			Labels:          map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate, v1alpha1.LabelGate: gate.Name},
			OwnerReferences: []metav1.OwnerReference{*owner},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt32(least)),
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelHold: "true", v1alpha1.LabelGate: gate.Name}},
			// A node that is not verified may be drained for repair.
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
}

func (r *Gates) budget(ctx context.Context, s *snapshot) error {
	asked := s.Gate.Spec.Enforcement.HoldPod != nil && s.Gate.Spec.Enforcement.HoldPod.Budget != nil
	if _, none := r.Memory.unbudgeted.Load(s.Gate.UID); none && !asked {
		return nil
	}
	want := budgetOf(s.Gate, len(s.Verifications))
	found, err := observe.Get[policyv1.PodDisruptionBudget](ctx, r.Live, want.Namespace, want.Name)
	switch ours := found != nil && metav1.IsControlledBy(found, s.Gate); {
	case apierrors.IsForbidden(err) && !asked:
		err = nil // A manager of named namespaces has made none elsewhere.
	case err != nil:
	case !asked && ours:
		err = controllers.Delete(ctx, r.Client, found)
	case !asked:
	case found == nil:
		err = r.Client.Create(ctx, want)
	case !ours:
		err = fmt.Errorf("PodDisruptionBudget %s/%s exists and does not belong to this gate; delete it if nothing uses it, or give the gate another name", found.Namespace, found.Name)
	case !equality.Semantic.DeepEqual(found.Spec, want.Spec):
		found.Spec = want.Spec
		err = r.Client.Update(ctx, found)
	}
	r.Memory.unbudgeted.Delete(s.Gate.UID)
	if err == nil && !asked {
		r.Memory.unbudgeted.Store(s.Gate.UID, true)
	}
	return err
}
