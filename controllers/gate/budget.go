package gate

import (
	"context"
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/observe"
)

// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;create;update;delete

// budgetOf returns the PodDisruptionBudget over the hold pods of a gate with a number of nodes. Its minimum is a number, because the
// disruption controller computes every other limit from the scale of the pods' controllers, and a LatencyVerification has none.
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
			// A node that is not verified may be drained in order to repair it.
			UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
		},
	}
}

// budget creates, updates or deletes the budget of a gate.
func (r *Gates) budget(ctx context.Context, s *survey) error {
	asked := s.gate.Spec.Enforcement.HoldPod != nil && s.gate.Spec.Enforcement.HoldPod.Budget != nil
	if _, none := r.unbudgeted.Load(s.gate.UID); none && !asked {
		return nil
	}
	want := budgetOf(s.gate, len(s.lineup.verifications))
	found, err := observe.Get[policyv1.PodDisruptionBudget](ctx, r.Live, want.Namespace, want.Name)
	switch ours := found != nil && metav1.IsControlledBy(found, s.gate); {
	case apierrors.IsForbidden(err) && !asked:
		err = nil // A manager of named namespaces has made none elsewhere.
	case err != nil:
	case !asked && ours:
		err = controllers.Delete(ctx, r.Client, found)
	case !asked:
	case found == nil:
		err = r.Client.Create(ctx, want)
	case !ours:
		err = fmt.Errorf("PodDisruptionBudget %s/%s exists and does not belong to this gate; delete it", found.Namespace, found.Name)
	case !equality.Semantic.DeepEqual(found.Spec, want.Spec):
		found.Spec = want.Spec
		err = r.Client.Update(ctx, found)
	}
	r.unbudgeted.Delete(s.gate.UID)
	if err == nil && !asked {
		r.unbudgeted.Store(s.gate.UID, true)
	}
	return err
}
