package gate

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	kmm "github.com/tailgate-dev/tailgate/internal/foreign"
	"github.com/tailgate-dev/tailgate/internal/preflight"
)

// suppliersFor is how long the Modules and DaemonSets that were read count, because a gate may be reconciled twice a second.
const suppliersFor = 10 * time.Second

// suppliers are the Modules and DaemonSets as they were last read, for all gates.
type suppliers struct {
	mu   sync.Mutex
	read time.Time
	all  []preflight.Supplier
}

// unsettled records why the gate could never verify its nodes, and returns when to look again.
func (r *Gates) unsettled(ctx context.Context, s *survey) (time.Duration, error) {
	if preflight.HeldBy(s.gate) == nil && !preflight.MeasuresCordoned(s.gate) {
		return 0, nil
	}
	all, err := r.suppliers.get(ctx, r.Live, s.lineup.now)
	if err != nil {
		return 0, err
	}
	nodes := append([]*corev1.Node{}, s.missing...)
	for _, v := range s.lineup.verifications {
		nodes = append(nodes, s.lineup.nodes[v.Spec.NodeName])
	}
	reason, message := preflight.Unsettled(s.gate, nodes, all)
	if reason == "" {
		return 0, nil
	}
	condition := v1alpha1.Condition(v1alpha1.ConditionOperational, metav1.ConditionFalse, reason, message)
	s.unsettled = &condition
	return suppliersFor, nil
}

// get reads the suppliers, unless they were read a moment ago. A kind that the cluster does not have, or that the manager may not list,
// has none.
func (c *suppliers) get(ctx context.Context, live client.Reader, now time.Time) ([]preflight.Supplier, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if age := now.Sub(c.read); age >= 0 && age < suppliersFor {
		return c.all, nil
	}
	modules, sets := &unstructured.UnstructuredList{}, &appsv1.DaemonSetList{}
	modules.SetGroupVersionKind(kmm.ModuleKind.GroupVersion().WithKind(kmm.ModuleKind.Kind + "List"))
	for _, list := range []client.ObjectList{modules, sets} {
		if err := live.List(ctx, list); err != nil && !meta.IsNoMatchError(err) && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("listing what supplies nodes with devices: %w", err)
		}
	}
	var all []preflight.Supplier
	for i := range modules.Items {
		m, err := kmm.Decode[kmm.Module](modules.Items[i].Object)
		if err != nil {
			return nil, err
		}
		all = append(all, preflight.OfModule(m))
	}
	for i := range sets.Items {
		all = append(all, preflight.OfDaemonSet(&sets.Items[i]))
	}
	c.read, c.all = now, all
	return all, nil
}
