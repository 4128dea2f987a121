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
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/tool/all"
)

// glimpse reads what the user may read, or given nodes. What it cannot read counts as absent.
type glimpse struct {
	client.Client // of the API server; nil without a cluster
	scheme        *runtime.Scheme
	nodes         []corev1.Node
	// unseen could not be read: KIND NAME, or KIND; kinds are their kinds.
	unseen []string
	kinds  []schema.GroupVersionKind
}

func (g *glimpse) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	kind, err := apiutil.GVKForObject(into, g.scheme)
	if err != nil {
		return err
	}
	absent := apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, key.Name)
	if g.Client == nil {
		g.note(kind, key.String())
		return absent
	}
	switch err := g.Client.Get(ctx, key, into, opts...); {
	case apierrors.IsForbidden(err):
		g.note(kind, key.String())
		return absent
	case apierrors.IsNotFound(err) && !isAbsent(err):
		return &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
	default:
		return err
	}
}

var errNodesUnseen = errors.New("you may not list nodes: ask a user with this right for the output of `kubectl get nodes -o yaml`, and use it with --nodes")

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
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	g.note(kind, "")
	return nil
}

func (g *glimpse) note(kind schema.GroupVersionKind, name string) {
	if what := strings.TrimSuffix(kind.Kind+" "+strings.TrimPrefix(name, "/"), " "); !slices.Contains(g.unseen, what) {
		g.unseen, g.kinds = append(g.unseen, what), append(g.kinds, kind)
	}
}

// sees reports whether an object could be read, or was found not to exist.
func (g *glimpse) sees(kind, name string) bool { return !slices.Contains(g.unseen, kind+" "+name) }

// observe reads what the operator reads before it accepts; what cannot be read is no obstacle.
func (g *glimpse) observe(ctx context.Context, b *v1alpha1.LatencyBenchmark, room bool) (preflight.Observed, error) {
	cluster := &observe.Cluster{
		Cache: g, Live: g, Clock: clock.RealClock{}, Tools: all.Registry(),
		// Only the operator knows whether it allows these; hints mentions them.
		Settings: preflight.Settings{AllowHostNetwork: true, AllowPacketCapture: true, NetworkNamespaces: []string{"*"}, CustomImages: []string{"*"}},
	}
	if !all.Limits(b.Spec.Tool).InEveryImage {
		_, args, err := managerOf(ctx, g, nil)
		if err != nil {
			return preflight.Observed{}, err
		}
		cluster.Settings.BenchTools = strings.FieldsFunc(flagValue(args, "bench-tools"), func(c rune) bool { return c == ',' })
		cluster.Settings.SfnettestImage = flagValue(args, "sfnettest-image")
	}
	o, err := cluster.Preflight(ctx, b)
	if err != nil {
		return preflight.Observed{}, err
	}
	for variant, n := range o.Networks {
		if !g.sees("NetworkAttachmentDefinition", n.Name) {
			delete(o.Networks, variant)
		}
	}
	for _, v := range plan.Variants(b.Spec) {
		if ref := v.Acceleration.OnloadSettings().ProfileRef; ref != nil && !g.sees("ConfigMap", b.Namespace+"/"+ref.Name) {
			delete(o.Profiles, v.Name)
		}
	}
	if t := b.Spec.Pods; t != nil {
		if t.RuntimeClassName != "" && !g.sees("RuntimeClass", t.RuntimeClassName) {
			o.RuntimeClass = &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: t.RuntimeClassName}}
		}
		if t.PriorityClassName != "" && !g.sees("PriorityClass", t.PriorityClassName) {
			// A class that preempts no other pod.
			o.PriorityClass = &schedulingv1.PriorityClass{
				ObjectMeta: metav1.ObjectMeta{Name: t.PriorityClassName}, PreemptionPolicy: new(corev1.PreemptNever),
			}
		}
	}
	if room {
		err = cluster.Room(ctx, &o)
	}
	return o, err
}

// hints returns notes about conditions that could not be checked, or that may take time.
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
	if b.Spec.Custom != nil {
		add("image %s needs an operator with --custom-images that contain it", b.Spec.Custom.FullImage())
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
