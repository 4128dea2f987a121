package benchmark

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/queue"
	"github.com/tailgate-dev/tailgate/internal/result"
	"github.com/tailgate-dev/tailgate/internal/text"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

type world struct {
	now       time.Time
	settings  Settings
	benchmark *v1alpha1.LatencyBenchmark
	driver    tool.Driver // nil if this operator does not know the tool
	runs      []plan.Run
	others    []queue.Entry // those that hold nodes or wait for them; see queue.Competes
	idle
	attempt
}

type idle struct {
	accepted preflight.Observed
	turn     bool
	blocking []blockingPod // hold resources of its nodes, or have its pods' names
	unseen   string        // "namespace/name" of an older benchmark that no manager has looked at
	// most is the number of benchmarks of its namespace if memory ends and none has more; or 0.
	most      int
	left      []*corev1.Pod // those of its own earlier attempts that have not ended yet
	undecided string        // the verdict's message if more rounds are to be measured for it
}

type attempt struct {
	ofServer             string      // the name of the server's pod
	server, client       *corev1.Pod // nil if they do not exist
	listening, noAddress string
	found                bool // both logs have results, before the kubelets report the end
	kept                 kept
	// events are the warnings about long pending pods, by UID, newest last.
	events map[types.UID][]corev1.Event
	// unplugged is a message about a resource of the run that a node cannot allocate any more.
	unplugged string
	// notReady are the nodes of the pair that do not exist or are not ready.
	notReady, cordoned []string
}

type blockingPod struct {
	name  string // "namespace/name on node"
	stuck bool   // it should have ended long ago
}

// observe reads live, except for nodes, other benchmarks and their pods. See confirm.
func (r *Reconciler) observe(ctx context.Context, b *v1alpha1.LatencyBenchmark, before *world) (*world, error) {
	w, nodes, err := r.observeCached(ctx, b)
	if err != nil {
		return nil, err
	}
	if b.Status.Active == nil {
		return w, r.observeIdle(ctx, w, nodes)
	}
	return w, r.observeActive(ctx, w, nodes, before)
}

func (r *Reconciler) observeCached(ctx context.Context, b *v1alpha1.LatencyBenchmark) (*world, []corev1.Node, error) {
	w := &world{
		now: r.Clock.Now(), settings: r.Settings, benchmark: b, driver: r.Cluster.Tools[b.Spec.Tool], runs: plan.Runs(b),
		attempt: attempt{events: map[types.UID][]corev1.Event{}},
	}
	if err := r.observeQueue(ctx, r.Client, observe.Whole, w); err != nil {
		return nil, nil, err
	}
	nodes := &corev1.NodeList{}
	if err := r.Client.List(ctx, nodes); err != nil {
		return nil, nil, fmt.Errorf("listing nodes: %w", err)
	}
	return w, nodes.Items, nil
}

// confirm reads the others live before a step that takes the nodes, and decides again. A thousand
// waiting benchmarks that did so at every look would keep the API server busy.
func (r *Reconciler) confirm(ctx context.Context, w *world, s step) (step, error) {
	if s.kind != stepClaim && s.kind != stepCreateServer {
		return s, nil
	}
	// Without the finished benchmarks, of which there may be thousands.
	most := w.most // of all benchmarks
	if err := r.observeQueue(ctx, r.Live, observe.Each, w, client.MatchingFields{"status.completionTime": ""}); err != nil {
		return step{}, err
	}
	w.most = most
	return decide(w), nil
}

// visits lists objects and visits each: observe.Whole for the cache, observe.Each for live lists.
type visits func(ctx context.Context, from client.Reader, list func() client.ObjectList, visit func(runtime.Object) error, options ...client.ListOption) error

// observeQueue reads the other benchmarks, which must not be changed, and the pods on the nodes.
func (r *Reconciler) observeQueue(ctx context.Context, from client.Reader, each visits, w *world, of ...client.ListOption) error {
	w.others, w.blocking, w.unseen, w.most = nil, nil, "", 0
	b := w.benchmark
	left := map[types.UID]types.NamespacedName{}
	note := func(namespace string, recorded []v1alpha1.LeftPod) {
		for _, p := range recorded {
			left[types.UID(p.UID)] = types.NamespacedName{Namespace: namespace, Name: p.Name}
			r.made.add(types.UID(p.UID))
		}
	}
	count := map[string]int{}
	// The pods that a release just recorded are not written yet.
	note(b.Namespace, b.Status.LeftPods)
	err := each(ctx, from, func() client.ObjectList { return &v1alpha1.LatencyBenchmarkList{} }, func(object runtime.Object) error {
		o := object.(*v1alpha1.LatencyBenchmark)
		if !r.Settings.Namespaces.Has(o.Namespace) {
			return nil
		}
		if o.DeletionTimestamp.IsZero() {
			note(o.Namespace, o.Status.LeftPods)
		} else {
			note(o.Namespace, recorded(o))
		}
		count[o.Namespace]++
		if unseenBefore(o, b) {
			w.unseen = o.Namespace + "/" + o.Name
		}
		if o.UID != b.UID && queue.Competes(o) {
			w.others = append(w.others, queue.EntryOf(o))
		}
		return nil
	}, of...)
	if err != nil {
		return fmt.Errorf("listing benchmarks: %w", err)
	}
	if n := count[b.Namespace]; r.MemoryEnds != nil && r.MemoryEnds() && n == slices.Max(slices.Collect(maps.Values(count))) {
		w.most = n
	}
	if b.Status.Active != nil || b.Status.Pair == nil {
		return nil
	}
	look := func(p *corev1.Pod) {
		_, isLeft := left[p.UID]
		if delete(left, p.UID); inTheWay(b, p, r.made.has(p.UID)) {
			stuck := isLeft || !p.DeletionTimestamp.IsZero() && w.now.Sub(p.DeletionTimestamp.Time) > removeTimeout
			w.blocking = append(w.blocking, blockingPod{name: fmt.Sprintf("%s/%s on %s", p.Namespace, p.Name, pods.Node(p)), stuck: stuck})
		}
	}
	// A live list would have the pods, of a megabyte each, of any user who writes our labels; ours
	// are in the cache or, for a moment, only in a status.
	ours := []client.ListOption{client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedByTailgate}, client.HasLabels{v1alpha1.LabelRole}}
	err = observe.Whole(ctx, r.Client, func() client.ObjectList { return &corev1.PodList{} }, func(o runtime.Object) error {
		look(o.(*corev1.Pod))
		return nil
	}, ours...)
	if err != nil {
		return fmt.Errorf("listing benchmark pods: %w", err)
	}
	for uid, name := range left {
		p := &corev1.Pod{}
		if err := from.Get(ctx, name, p); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading pod %s, which an attempt has left: %w", name, err)
		}
		if p.UID == uid {
			look(p)
		}
	}
	return nil
}

// inTheWay reports whether a pod holds resources of a node and is the operator's, or of an earlier
// benchmark of this name, which the garbage collector deletes. Labels of other users block nothing.
func inTheWay(b *v1alpha1.LatencyBenchmark, p *corev1.Pod, made bool) bool {
	owner := metav1.GetControllerOf(p)
	if p.Namespace == b.Namespace && owner != nil && owner.Kind == "LatencyBenchmark" && owner.Name == b.Name && owner.UID != b.UID {
		return true
	}
	node := pods.Node(p)
	return made && !givenBack(p) && (node == b.Status.Pair.ClientNode || node == b.Status.Pair.ServerNode)
}

// unseenBefore reports whether o is older than b, and no manager has looked at it yet.
func unseenBefore(o, b *v1alpha1.LatencyBenchmark) bool {
	return o.Status.ObservedGeneration <= 0 && !o.Spec.Suspend && o.DeletionTimestamp.IsZero() && queue.CompareAge(o, b) < 0
}

func (r *Reconciler) observeIdle(ctx context.Context, w *world, nodes []corev1.Node) error {
	b := w.benchmark
	w.accepted = r.Cluster.Known(b, nodes, w.others)
	var err error
	if w.left, err = r.left(ctx, b); err != nil {
		return err
	}
	if nextRun(w).run == nil {
		w.undecided, err = r.Results.Undecided(ctx, b)
		return err
	}
	return r.observeCluster(ctx, w)
}

// observeCluster reads live what the cluster can provide, once it is the benchmark's turn.
func (r *Reconciler) observeCluster(ctx context.Context, w *world) error {
	if w.turn = w.looksCloser(); !w.turn {
		return nil
	}
	if err := r.Cluster.Read(ctx, &w.accepted); err != nil {
		return err
	}
	return r.Cluster.Room(ctx, &w.accepted)
}

func (w *world) looksCloser() bool {
	b := w.benchmark
	if b.Status.Pair == nil || meta.IsStatusConditionFalse(b.Status.Conditions, v1alpha1.ConditionAccepted) {
		return true
	}
	turn, _ := queue.Admit(queue.EntryOf(b), w.others)
	return turn && len(w.blocking) == 0
}

func (r *Reconciler) left(ctx context.Context, b *v1alpha1.LatencyBenchmark) ([]*corev1.Pod, error) {
	var all []*corev1.Pod
	for _, recorded := range b.Status.LeftPods {
		p, err := observe.Get[corev1.Pod](ctx, r.Live, b.Namespace, recorded.Name)
		if err != nil {
			return nil, err
		}
		if p != nil && string(p.UID) == recorded.UID && !givenBack(p) {
			all = append(all, p)
		}
	}
	return all, nil
}

func (r *Reconciler) observeActive(ctx context.Context, w *world, nodes []corev1.Node, before *world) error {
	b, active := w.benchmark, w.benchmark.Status.Active
	// Pods of other owners are recorded too: decide recognises them.
	var err error
	w.ofServer = pods.NameOf(active, v1alpha1.RoleServer)
	if before != nil && before.ofServer == w.ofServer {
		w.server, w.client = before.server, before.client
	} else {
		if w.server, err = observe.Get[corev1.Pod](ctx, r.Live, b.Namespace, w.ofServer); err != nil {
			return err
		}
		// The client is created when the server runs; no pod becomes pending again.
		if active.ClientPodUID != "" || w.server == nil || w.server.Status.Phase != corev1.PodPending {
			if w.client, err = observe.Get[corev1.Pod](ctx, r.Live, b.Namespace, pods.NameOf(active, v1alpha1.RoleClient)); err != nil {
				return err
			}
		}
	}
	for _, e := range w.ends() {
		if *e.device == "" {
			if *e.device, err = r.claimedDevice(ctx, w, e.pod); err != nil {
				return err
			}
		}
		if e.pod == nil || e.pod.Status.Phase != corev1.PodPending || w.pendingFor(e.pod) < quietStart {
			continue
		}
		if w.events[e.pod.UID], err = r.warnings(ctx, e.pod); err != nil {
			return err
		}
	}
	if _, taken := r.taken.Load(clientKey(b)); active.Collected != nil && active.Outcome == nil && !taken {
		cm, err := observe.Get[corev1.ConfigMap](ctx, r.Live, b.Namespace, active.Collected.ConfigMap)
		if err != nil {
			return err
		}
		w.kept = keptBy(cm, *active.Collected)
	}
	w.notReady = notReady(active.Pair, nodes)
	for _, n := range nodes {
		if n.Spec.Unschedulable {
			w.cordoned = append(w.cordoned, n.Name)
		}
	}
	w.unplugged = unplugged(w, nodes)
	r.adopt(w)
	w.found = r.haveResults(w.server, w.client)
	w.listening, w.noAddress = r.listening(ctx, w)
	return nil
}

// mostWarnings bounds the events read of a pod, maxWarning their bytes: editors can add more.
const mostWarnings, maxWarning = 200, 4 << 10

var errEnough = errors.New("enough events were read")

func (r *Reconciler) warnings(ctx context.Context, p *corev1.Pod) (all []corev1.Event, err error) {
	about := client.MatchingFields{"involvedObject.uid": string(p.UID), "type": corev1.EventTypeWarning}
	err = observe.Each(ctx, r.Live, func() client.ObjectList { return &corev1.EventList{} }, func(o runtime.Object) error {
		e := o.(*corev1.Event)
		// Clones: a part of a text keeps all of it in memory.
		all = append(all, corev1.Event{Reason: strings.Clone(text.Ends(e.Reason, 256)), Message: strings.Clone(text.Ends(e.Message, maxWarning))})
		if len(all) == mostWarnings {
			return errEnough
		}
		return nil
	}, client.InNamespace(p.Namespace), about)
	if err != nil && !errors.Is(err, errEnough) {
		return nil, fmt.Errorf("listing events of pod %s: %w", p.Name, err)
	}
	return all, nil
}

// claimedDevice returns the PCI address of a pod's claimed device. Ended pods have no claim.
func (r *Reconciler) claimedDevice(ctx context.Context, w *world, p *corev1.Pod) (string, error) {
	network := w.activeRun().Variant.Network
	if p == nil || network == nil || hasEnded(p) {
		return "", nil
	}
	return r.Cluster.ClaimedDevice(ctx, p, network.ResourceName())
}

// listening reads a server's address from its log. An unreadable log must not keep the attempt.
func (r *Reconciler) listening(ctx context.Context, w *world) (address, noAddress string) {
	network := w.activeRun().Variant.Network
	if w.server == nil || w.client != nil || !isRunning(w.server) || network == nil || network.Interface() == "" {
		return "", ""
	}
	ctx, cancel := context.WithTimeout(ctx, r.LogTimeout)
	defer cancel()
	log, err := r.Logs(ctx, clientKey(w.server), false)
	if err != nil {
		return "", oneLine(fmt.Sprintf("the log of pod %s, which contains the address at which its server listens, cannot be read: %v", w.server.Name, err))
	}
	defer log.Close()
	found, err := result.ParseListen(log)
	if err != nil {
		return "", oneLine(err.Error())
	}
	return found.String(), ""
}

func notReady(pair v1alpha1.Pair, nodes []corev1.Node) []string {
	var lost []string
	for _, name := range []string{pair.ClientNode, pair.ServerNode} {
		if !slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Name == name && preflight.NodeReady(n) }) {
			lost = append(lost, name)
		}
	}
	return lost
}

// unplugged describes a resource that a node's kubelet knows and has none of: its plugin ended.
func unplugged(w *world, nodes []corev1.Node) string {
	v := w.activeRun().Variant
	if v.Network == nil {
		return ""
	}
	pair := w.benchmark.Status.Active.Pair
	for _, n := range nodes {
		if n.Name != pair.ClientNode && n.Name != pair.ServerNode {
			continue
		}
		for _, name := range v.Resources() {
			if q, known := n.Status.Allocatable[corev1.ResourceName(name)]; known && q.IsZero() {
				return fmt.Sprintf("node %s has no allocatable %s: its device plugin does not run there", n.Name, name)
			}
		}
	}
	return ""
}

// The kubelet reports an end late (docs/internals/runs.md), so the controller follows the agents'
// logs, and deletes the pods when both have results. Without a log, the phases show the end later.

// linger is how long an agent waits to be stopped. On an idle cluster the controller needs 0.2 s.
const linger = 2 * time.Second

func (r *Reconciler) follow(ctx context.Context, w *world) {
	limit := plan.Deadline(w.driver, w.activeRun().Cells)
	// The reconcile changes the original object.
	benchmark := &v1alpha1.LatencyBenchmark{ObjectMeta: metav1.ObjectMeta{Namespace: w.benchmark.Namespace, Name: w.benchmark.Name}}
	for _, e := range w.ends() {
		p := e.pod
		if r.followed.has(p.UID) {
			continue
		}
		r.followed.add(p.UID)
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
			defer cancel()
			if !r.hasResult(ctx, p) {
				r.followed.uids.Delete(p.UID)
				return
			}
			if r.written.add(p.UID); r.haveResults(w.server, w.client) {
				select {
				case r.wake <- event.GenericEvent{Object: benchmark}:
				case <-ctx.Done():
				}
			}
		}()
	}
}

func (r *Reconciler) hasResult(ctx context.Context, p *corev1.Pod) bool {
	log, err := r.Logs(ctx, clientKey(p), true)
	if err != nil {
		return false
	}
	defer log.Close()
	return result.AwaitFrame(log) == nil
}

func (r *Reconciler) haveResults(server, client *corev1.Pod) bool {
	return server != nil && client != nil && r.written.has(server.UID) && r.written.has(client.UID)
}
