package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers/benchmark"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/tool/all"
)

// glimpse reads as much of a cluster as the user may, or as much as there is of it without one, and notes what it did not
// see: that then looks as if there were nothing.
type glimpse struct {
	// Client of the API server; nil without a cluster.
	client.Client
	scheme *runtime.Scheme
	// nodes are those of the cluster where there is none.
	nodes []corev1.Node
	// unseen are objects and kinds, as KIND NAME and KIND.
	unseen []string
}

// Get reads an object.
func (g *glimpse) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	kind, err := apiutil.GVKForObject(into, g.scheme)
	if err != nil {
		return err
	}
	absent := apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, key.Name)
	if g.Client == nil {
		g.note(kind.Kind + " " + strings.TrimPrefix(key.String(), "/"))
		return absent
	}
	switch err := g.Client.Get(ctx, key, into, opts...); {
	case apierrors.IsForbidden(err):
		g.note(kind.Kind + " " + strings.TrimPrefix(key.String(), "/"))
		return absent
	case apierrors.IsNotFound(err) && !isAbsent(err):
		return &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
	default:
		return err
	}
}

// errNodesUnseen is returned for nodes that the user may not list.
var errNodesUnseen = errors.New("you may not list nodes: ask a user with this right for the output of `kubectl get nodes -o yaml`, and use it with --nodes")

// List reads the objects of a kind.
func (g *glimpse) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	nodes, isNodes := list.(*corev1.NodeList)
	if g.Client == nil && isNodes {
		nodes.Items = g.nodes
		return nil
	}
	kind, err := apiutil.GVKForObject(list, g.scheme)
	if err != nil {
		return err
	}
	if g.Client != nil {
		if err := g.Client.List(ctx, list, opts...); !apierrors.IsForbidden(err) {
			return err
		}
		if isNodes {
			return errNodesUnseen
		}
	}
	g.note(strings.TrimSuffix(kind.Kind, "List"))
	return nil
}

func (g *glimpse) note(what string) {
	if !slices.Contains(g.unseen, what) {
		g.unseen = append(g.unseen, what)
	}
}

// sees says whether an object was looked for and seen, or found not to exist.
func (g *glimpse) sees(kind, name string) bool { return !slices.Contains(g.unseen, kind+" "+name) }

// observe reads what the operator looks at before it accepts a benchmark, or a matrix given its overview, in the way that it does. What was not seen
// stands in the way of nothing.
func (g *glimpse) observe(ctx context.Context, b *v1alpha1.LatencyBenchmark, ofMatrix bool) (preflight.Observed, error) {
	operator := &benchmark.Reconciler{
		Client: g, Live: g, Clock: clock.RealClock{}, Tools: all.Registry(),
		// Only the operator knows whether it allows these: see hints.
		Settings: benchmark.Settings{AllowHostNetwork: true, AllowPacketCapture: true, NetworkNamespaces: []string{"*"}},
	}
	o, err := operator.Preflight(ctx, b, ofMatrix)
	if err != nil {
		return preflight.Observed{}, err
	}
	for variant, n := range o.Networks {
		if !g.sees("NetworkAttachmentDefinition", n.Name) {
			delete(o.Networks, variant)
		}
	}
	for variant, p := range o.Profiles {
		if !g.sees("ConfigMap", p.Name) {
			delete(o.Profiles, variant)
		}
	}
	if t := b.Spec.Pods; t != nil {
		if t.RuntimeClassName != "" && !g.sees("RuntimeClass", t.RuntimeClassName) {
			o.RuntimeClass = &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: t.RuntimeClassName}}
		}
		if t.PriorityClassName != "" && !g.sees("PriorityClass", t.PriorityClassName) {
			// One for which no other has to go.
			o.PriorityClass = &schedulingv1.PriorityClass{
				ObjectMeta: metav1.ObjectMeta{Name: t.PriorityClassName}, PreemptionPolicy: new(corev1.PreemptNever),
			}
		}
	}
	return o, nil
}

// hints are about what cannot be seen from here, or may take time.
func (g *glimpse) hints(b *v1alpha1.LatencyBenchmark, nodes []string, o preflight.Observed) []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if len(g.unseen) > 0 {
		why := "you have no right to read it"
		if g.Client == nil {
			why = "no cluster is configured"
		}
		add("not checked, because %s: %s", why, strings.Join(g.unseen, ", "))
	}
	for _, v := range plan.Variants(b.Spec) {
		if v.Network.Type == v1alpha1.NetworkHost {
			add("variant %s needs an operator with --allow-host-network", v.Name)
		}
		if v.Capture == v1alpha1.CaptureServer {
			add("variant %s needs an operator with --allow-packet-capture", v.Name)
		}
	}
	for _, name := range nodes {
		if n := o.Others[name]; n > 0 {
			add("node %s has %d other unfinished benchmarks, which take turns", name, n)
		}
	}
	return all
}
