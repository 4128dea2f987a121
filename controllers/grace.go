package controllers

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/tailgate-dev/tailgate/internal/pods"
)

// Graces shortens the grace period of the operator's pods that are being deleted. Whoever deletes a pod can give it a year, in which a
// process that ignores SIGTERM holds the CPUs of a node, whether or not the pod's benchmark still exists.
type Graces struct {
	API
	Namespaces Named
}

// Reconcile deletes a pod again, with its own grace period.
func (g *Graces) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pod := &corev1.Pod{}
	if err := g.Client.Get(ctx, req.NamespacedName, pod); err != nil || !Lingers(pod) || !g.Namespaces.Has(pod.Namespace) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	err := Delete(With(ctx, "why", "its grace period is too long"), g.Client, pod)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		return ctrl.Result{}, nil // A policy refuses the deletion of a pod that only has the operator's labels.
	}
	return Written(0, err)
}

func (g *Graces) SetupWithManager(mgr ctrl.Manager) error {
	g.Client = Logged(g.Client)
	lingers := predicate.NewPredicateFuncs(Lingers)
	return ctrl.NewControllerManagedBy(mgr).Named("graces").For(&corev1.Pod{}, builder.WithPredicates(lingers)).Complete(g)
}

// Lingers reports whether a pod is being deleted with a longer grace period than its own.
func Lingers(o client.Object) bool {
	grace := o.GetDeletionGracePeriodSeconds()
	return !o.GetDeletionTimestamp().IsZero() && grace != nil && *grace > pods.GracePeriodSeconds
}
