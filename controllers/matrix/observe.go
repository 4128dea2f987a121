package matrix

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/preflight"
)

type world struct {
	now      time.Time
	matrix   *v1alpha1.LatencyMatrix
	accepted preflight.Observed // the preflight's input until acceptance; the others follow

	pairs  []v1alpha1.Pair // the plan's, number n at n-1, in slots of disjoint pairs
	slots  int
	blocks int // how many pairs have addresses; numbers equal modulo it share them
	// children are the pairs' benchmarks, or nil, from the cache: do not change them.
	children []*v1alpha1.LatencyBenchmark
	// busy nodes are held or awaited by other benchmarks, unusable ones lack resources.
	busy, unusable map[string]bool
	gone           map[string]time.Time
	baseline       string // the matrix compared with; baselines: its pairs' benchmarks
	baselines      map[v1alpha1.Pair]string
	outdated       []int32

	rejection *preflight.Rejection
	chosen    *preflight.Nodes
	blocked   map[int32]blocker
	released  bool
	notices   []controllers.Notice
}

type blocker struct{ reason, message string }

func (r *Reconciler) observe(ctx context.Context, m *v1alpha1.LatencyMatrix) (*world, error) {
	w := &world{now: r.Clock.Now(), matrix: m, blocked: map[int32]blocker{}}
	if !accepted(m) {
		var err error
		w.accepted, err = r.Cluster.Preflight(ctx, m.Overview())
		return w, err
	}
	w.pairs, w.slots = planOf(m)
	w.blocks = blocks(m.Spec.Template.Benchmark(), len(w.pairs))
	if err := r.observeChildren(ctx, w); err != nil {
		return nil, err
	}
	if err := r.observeNodes(ctx, w); err != nil {
		return nil, err
	}
	if err := r.observeBaseline(ctx, w); err != nil {
		return nil, err
	}
	w.observeOutdated()
	return w, nil
}

func planOf(m *v1alpha1.LatencyMatrix) (pairs []v1alpha1.Pair, slots int) {
	all := plan.Matrix(m.Spec, m.Status.Nodes, m.Status.Server)
	return slices.Concat(all...), len(all)
}

func blocks(spec v1alpha1.LatencyBenchmarkSpec, limit int) int {
	for _, i := range ranges(&spec) {
		limit = min(limit, len(pods.StaticBlocks(*i, limit)))
	}
	return max(1, limit) // A matrix without addresses for a pair is not accepted.
}

func ranges(spec *v1alpha1.LatencyBenchmarkSpec) []*v1alpha1.IPAM {
	networks := []*v1alpha1.Network{&spec.Network}
	for i := range spec.Variants {
		networks = append(networks, spec.Variants[i].Network)
	}
	var all []*v1alpha1.IPAM
	for _, n := range networks {
		if n == nil {
			continue
		}
		if ipam := n.IPAM(); ipam != nil && ipam.Type == v1alpha1.IPAMStatic {
			all = append(all, ipam)
		}
	}
	return all
}

func (r *Reconciler) observeChildren(ctx context.Context, w *world) error {
	m := w.matrix
	list := &v1alpha1.LatencyBenchmarkList{}
	if err := r.Client.List(ctx, list, client.InNamespace(m.Namespace), client.MatchingFields{indexMatrix: string(m.UID)}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the benchmarks of the pairs: %w", err)
	}
	w.children = make([]*v1alpha1.LatencyBenchmark, len(w.pairs))
	for i := range list.Items {
		child := &list.Items[i]
		number, ok := numberOf(m, child.Name)
		if !ok || number > len(w.pairs) {
			continue
		}
		if !controllers.IsWhole(child) {
			var err error
			if child, err = r.live(ctx, w, int32(number)); client.IgnoreNotFound(err) != nil {
				return fmt.Errorf("getting the benchmark of pair %d: %w", number, err)
			}
		}
		if metav1.IsControlledBy(child, m) && w.measures(int32(number), child) {
			w.children[number-1] = child
		}
	}
	return nil
}

func numberOf(m *v1alpha1.LatencyMatrix, name string) (int, bool) {
	text, ok := strings.CutPrefix(name, m.Name+"-p")
	number, err := strconv.ParseInt(text, 10, 32)
	return int(number), ok && err == nil && number > 0 && m.PairName(int32(number)) == name
}

// observeNodes reads from the cache which are busy or unusable: only the order depends on it.
func (r *Reconciler) observeNodes(ctx context.Context, w *world) error {
	m := w.matrix
	others := &v1alpha1.LatencyBenchmarkList{}
	if err := r.Client.List(ctx, others, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing benchmarks: %w", err)
	}
	w.busy = map[string]bool{}
	for i := range others.Items {
		o := &others.Items[i]
		if o.Status.Pair != nil && !o.Finished() && !o.Suspended() && !metav1.IsControlledBy(o, m) {
			w.busy[o.Status.Pair.ClientNode], w.busy[o.Status.Pair.ServerNode] = true, true
		}
	}
	planned := sets.New(m.Status.Nodes...).Insert(m.Status.Server)
	nodes := &corev1.NodeList{}
	if err := r.Client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	own := slices.DeleteFunc(nodes.Items, func(n corev1.Node) bool { return !planned.Has(n.Name) })
	w.observeMissing(planned, own)
	usable := preflight.Usable(preflight.Observed{Benchmark: m.Overview(), Nodes: own, Empty: true}, m.Status.Server)
	w.unusable = map[string]bool{}
	for name := range planned {
		w.unusable[name] = !usable[name]
	}
	return nil
}

// observeMissing finds planned nodes that are missing or not ready; they stay gone after a limit.
func (w *world) observeMissing(planned sets.Set[string], nodes []corev1.Node) {
	status := &w.matrix.Status
	w.gone = map[string]time.Time{}
	var missing []v1alpha1.MissingNode
	for _, name := range sets.List(planned.Difference(sets.New(""))) {
		node := v1alpha1.MissingNode{Name: name, StartTime: metav1.Time{Time: w.now}}
		if i := slices.IndexFunc(status.MissingNodes, func(n v1alpha1.MissingNode) bool { return n.Name == name }); i >= 0 && !status.MissingNodes[i].StartTime.After(w.now) {
			node = status.MissingNodes[i]
		}
		limit, at := goneAfter, slices.IndexFunc(nodes, func(n corev1.Node) bool { return n.Name == name })
		if at >= 0 {
			if limit = awayAfter; preflight.NodeReady(nodes[at]) && !node.Gone {
				continue
			}
		}
		if node.Gone = node.Gone || w.now.Sub(node.StartTime.Time) >= limit; node.Gone {
			w.gone[name] = node.StartTime.Time
		}
		missing = append(missing, node)
	}
	status.MissingNodes = missing
}

func (w *world) goneOf(number int32) (string, time.Time) {
	p := w.pair(number)
	for _, name := range []string{p.ClientNode, p.ServerNode} {
		if since, ok := w.gone[name]; ok {
			return name, since
		}
	}
	return "", time.Time{}
}

func (w *world) ended(number int32) bool {
	name, _ := w.goneOf(number)
	child := w.child(number)
	running := slices.ContainsFunc(w.matrix.Status.Running, func(r v1alpha1.RunningPair) bool { return r.Number == number })
	return name != "" && !running && (child == nil || !child.Finished())
}

func (w *world) whyGone(number int32) string {
	name, since := w.goneOf(number)
	return fmt.Sprintf("%s: %s: node %s has not existed, or not been ready, since %s", w.matrix.PairName(number), v1alpha1.ReasonNodeGone, name, since.UTC().Format(time.RFC3339))
}

func (r *Reconciler) observeBaseline(ctx context.Context, w *world) error {
	w.baseline = baselineOf(w.matrix)
	if w.baseline == "" {
		return nil
	}
	baseline, err := observe.Get[v1alpha1.LatencyMatrix](ctx, r.Live, w.matrix.Namespace, w.baseline)
	if err != nil || baseline == nil {
		return err
	}
	w.baselines = map[v1alpha1.Pair]string{}
	pairs, _ := planOf(baseline)
	for i, pair := range pairs {
		w.baselines[pair] = baseline.PairName(int32(i + 1))
	}
	return nil
}

func (w *world) observeOutdated() {
	for i, child := range w.children {
		if number := int32(i + 1); child != nil && child.DeletionTimestamp.IsZero() && !w.upToDate(number) {
			w.outdated = append(w.outdated, number)
		}
	}
}

func baselineOf(m *v1alpha1.LatencyMatrix) string {
	return m.Spec.Template.Spec.Criteria.BaselineOf(v1alpha1.BaselineMatrix)
}

func (w *world) child(number int32) *v1alpha1.LatencyBenchmark { return w.children[number-1] }

func (w *world) pair(number int32) v1alpha1.Pair { return w.pairs[number-1] }

func (w *world) parallel() int { return plan.Parallel(w.matrix.Spec, len(w.matrix.Status.Nodes)) }
