package gate

import (
	"context"
	"fmt"
	"slices"
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
	"github.com/tailgate-dev/tailgate/internal/text"
)

// suppliersFor is how long the Modules and DaemonSets that were read count, because a gate may be reconciled twice a second.
const suppliersFor = 10 * time.Second

// suppliers are the Modules and DaemonSets as they were last read, for all gates.
type suppliers struct {
	mu   sync.Mutex
	read time.Time
	all  []preflight.Supplier
}

// observeSettling records why the gate could never verify its nodes, and returns when to look again.
func (r *Gates) observeSettling(ctx context.Context, s *snapshot) (time.Duration, error) {
	if preflight.HeldBy(s.gate) != nil || preflight.MeasuresCordoned(s.gate) {
		all, err := r.suppliers.get(ctx, r.Live, s.now)
		if err != nil {
			return 0, err
		}
		nodes := append([]*corev1.Node{}, s.missing...)
		for _, v := range s.verifications {
			nodes = append(nodes, s.nodes[v.Spec.NodeName])
		}
		if reason, message := preflight.Unsettled(s.gate, nodes, all); reason != "" {
			s.cannotSettle(reason, message)
			return suppliersFor, nil
		}
	}
	s.observeIntroduction()
	return 0, nil
}

// observeIntroduction records why a gate that is introduced to nodes could never measure one of them.
func (s *snapshot) observeIntroduction() {
	if !s.introduced() {
		return
	}
	if why := s.foresee().Never; why != "" {
		s.cannotSettle(v1alpha1.ReasonCannotSettle, fmt.Sprintf(
			"none of the %d nodes can be measured, so that the gate does not hold them back; %s", len(s.missing), text.Shorten(why, 1024)))
	}
}

func (s *snapshot) cannotSettle(reason, message string) {
	s.unsettled = new(v1alpha1.Condition(v1alpha1.ConditionOperational, metav1.ConditionFalse, reason, message))
}

// fresh reports whether the gate has no verification yet.
func (s *snapshot) fresh() bool { return len(s.verifications)+len(s.retained)+len(s.leaving) == 0 }

// introduced reports whether the gate has no verification yet, and all its nodes were there before it. If such a gate can measure none of
// them, it does not hold them back: it would take them out of service for nothing. Nodes that join later are held back.
func (s *snapshot) introduced() bool {
	joined := func(n *corev1.Node) bool { return !older(n, s.gate) }
	return len(s.missing) > 0 && s.fresh() && !slices.ContainsFunc(s.missing, joined)
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
