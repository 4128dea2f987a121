package cli

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/result"
)

// storedResults reads a benchmark and all results that its status lists, oldest first. Each is verified: that it is what
// its agents sent, and that it is the one that the status means. It is an error when there is none.
func storedResults(ctx context.Context, api client.Client, namespace, name string) (*v1alpha1.LatencyBenchmark, []result.Stored, error) {
	b := &v1alpha1.LatencyBenchmark{}
	switch err := api.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, b); {
	case apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) && apierrors.IsNotFound(err):
		return nil, nil, fmt.Errorf("the cluster does not know the kind LatencyBenchmark: install Tailgate there, or choose another cluster with --context")
	case apierrors.IsNotFound(err):
		return nil, nil, fmt.Errorf("there is no LatencyBenchmark %s in namespace %s; see `kubectl get lb -A`", name, namespace)
	case err != nil:
		return nil, nil, fmt.Errorf("getting LatencyBenchmark %s/%s: %w", namespace, name, err)
	}
	if len(b.Status.Stored) == 0 {
		return nil, nil, fmt.Errorf("LatencyBenchmark %s/%s has no results yet: %s", namespace, name, standing(b))
	}
	runs := make([]result.Stored, 0, len(b.Status.Stored))
	for _, s := range b.Status.Stored {
		cm := &corev1.ConfigMap{}
		if err := api.Get(ctx, types.NamespacedName{Namespace: namespace, Name: s.ConfigMap}, cm); apierrors.IsNotFound(err) {
			return nil, nil, fmt.Errorf("the result of run %s is gone: somebody deleted ConfigMap %s/%s", s.Run, namespace, s.ConfigMap)
		} else if err != nil {
			return nil, nil, fmt.Errorf("getting the result of run %s: %w", s.Run, err)
		}
		stored, err := result.FromStatus(cm, s)
		if err != nil {
			return nil, nil, fmt.Errorf("reading the result of run %s: %w", s.Run, err)
		}
		runs = append(runs, stored)
	}
	return b, runs, nil
}

// standing is where a benchmark without results stands.
func standing(b *v1alpha1.LatencyBenchmark) string {
	for _, conditionType := range []string{v1alpha1.ConditionSucceeded, v1alpha1.ConditionAccepted} {
		if c := meta.FindStatusCondition(b.Status.Conditions, conditionType); c != nil {
			return fmt.Sprintf("%s (%s)", c.Reason, c.Message)
		}
	}
	return "the operator has not looked at it; is it running?"
}
