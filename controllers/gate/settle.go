package gate

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/text"
)

// suppliersFor is how long what was read counts: a gate may be reconciled twice a second. It is longer if the reading takes long, because any
// user may create DaemonSets.
const suppliersFor = 10 * time.Second

func (r *Gates) observeSettling(ctx context.Context, s *snapshot) (time.Duration, error) {
	if r.Cluster != nil {
		if never := preflight.Undecidable(s.Gate, r.Cluster.Tools[s.Gate.Spec.Template.Spec.Tool]); never != nil {
			s.cannotSettle(never.Reason, never.String())
			return 0, nil
		}
	}
	if preflight.HeldBy(s.Gate) != nil || preflight.MeasuresCordoned(s.Gate) {
		all, err := r.Memory.suppliers.get(ctx, r.Live, s.Now)
		if err != nil {
			return 0, err
		}
		nodes := append([]*corev1.Node{}, s.Missing...)
		for _, v := range s.Verifications {
			nodes = append(nodes, s.Nodes[v.Spec.NodeName])
		}
		if reason, message := preflight.Unsettled(s.Gate, nodes, all); reason != "" {
			s.cannotSettle(reason, message)
			return suppliersFor, nil
		}
	}
	s.observeIntroduction()
	return 0, nil
}

func (s *snapshot) observeIntroduction() {
	if !s.Introducing() {
		return
	}
	why := s.Foresee().Never
	if why != "" {
		s.cannotSettle(v1alpha1.ReasonCannotSettle, fmt.Sprintf("none of the %d nodes can be measured, so that the gate holds back only nodes that join; %s",
			len(s.Missing)+len(s.Verifications), text.Shorten(why, 1024)))
	}
	s.Settle(why)
}

func (s *snapshot) cannotSettle(reason, message string) {
	s.unsettled = new(v1alpha1.Condition(v1alpha1.ConditionOperational, metav1.ConditionFalse, reason, message))
}

// get reads the suppliers, unless that was a moment ago. A kind that does not exist, or that the manager may not list, has none.
func (c *suppliers) get(ctx context.Context, live client.Reader, now time.Time) ([]preflight.Supplier, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if age := now.Sub(c.read); age >= 0 && age < max(suppliersFor, 10*c.took) {
		return c.all, nil
	}
	started := time.Now()
	all, err := observe.Suppliers(ctx, live, nil)
	if err != nil {
		return nil, err
	}
	c.read, c.took, c.all = now, time.Since(started), all
	return all, nil
}
