// Package benchmark reconciles LatencyBenchmark in five verbs: get, observe, decide, apply, report.
//
//	get      the benchmark itself, live
//	observe  the state that the decision needs: nodes, other claims, the two pods of the attempt
//	decide   pure: the next step, with its reason
//	apply    the step: create a pod, take a result, delete pods
//	report   conditions, progress, results and verdict, in one write of the version that get read
//
// If another step follows at once, all verbs but get are repeated, on the object as written.
//
// An attempt at a run goes through these situations, each of them recognised from the API alone:
//
//	nothing ──claim──▶ claimed ──create──▶ server starts ──ready──▶ client starts ──▶ measuring
//	   ▲                                                                               │ both have a result
//	   └───────────────── pods gone ◀──delete── outcome known ◀──verify, store─────────┘
//
// The claim is written before the first pod exists, and the outcome before the pods are deleted.
// When they are gone, one write ends the attempt and makes the next claim. A manager that dies
// leaves a situation that the next one recognises; a stored run is never measured again. The state
// that allows a step is read from the API server, but for the nodes: watches only wake the
// controller, and the cache of other benchmarks can only show that it is not this one's turn yet.
package benchmark

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/evaluate"
	"github.com/tailgate-dev/tailgate/internal/metrics"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/pods"
	"github.com/tailgate-dev/tailgate/internal/preflight"
)

type Settings struct {
	BenchImage     string
	PullPolicy     corev1.PullPolicy
	ServiceAccount string // of the benchmark pods; empty: the namespace's default
	StartTimeout   time.Duration
	MaxAttempts    int32
	Namespaces     controllers.Named
	preflight.Settings
}

const workers = 4

// LogReader opens the log of a pod's container, to its present end or, if followed, until it ends.
type LogReader func(ctx context.Context, pod types.NamespacedName, follow bool) (io.ReadCloser, error)

type Reconciler struct {
	// API reads from the cache only nodes, whose changes wake the controller, and other benchmarks
	// with their pods, to see whether to confirm live that this one may claim its nodes.
	controllers.API
	Logs       LogReader
	LogTimeout time.Duration
	Cluster    *observe.Cluster
	Results    *evaluate.Store
	Settings   Settings
	Activity   *metrics.Activity // nil counts nothing
	// MemoryEnds reports whether the manager's memory is nearly used up; nil: never.
	MemoryEnds func() bool
	memory
}

// +kubebuilder:rbac:groups=tailgate.dev,resources=latencybenchmarks;latencygates;latencyverifications,verbs=get;list;watch
// +kubebuilder:rbac:groups=tailgate.dev,resources=latencybenchmarks/finalizers,verbs=update
// +kubebuilder:rbac:groups=tailgate.dev,resources=latencybenchmarks/status,verbs=update;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods/log,verbs=get
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",resources=events,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=k8s.cni.cncf.io,resources=network-attachment-definitions,verbs=get;create

func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if !r.Settings.Namespaces.Has(req.Namespace) {
		return ctrl.Result{}, nil
	}
	if again, err := r.waits(ctx, req.NamespacedName); again > 0 || err != nil {
		return ctrl.Result{RequeueAfter: spread(again)}, err
	}
	b := &v1alpha1.LatencyBenchmark{}
	if err := r.Live.Get(ctx, req.NamespacedName, b); err != nil {
		r.taken.Delete(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !b.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.removePods(ctx, b)
	}
	ctx = controllers.With(ctx, "benchmark", req.String())
	if b.Finished() {
		old := b.DeepCopy()
		controllers.SettleTimes(&b.Status, r.Clock.Now())
		left, err := r.left(ctx, b)
		if err != nil {
			return ctrl.Result{}, err
		}
		setLeft(b, left)
		err = r.rejudge(ctx, old, b)
		again, expired := r.expire(ctx, b)
		return controllers.Written(again, errors.Join(err, expired))
	}
	var before *world
	for range mostSteps {
		w, at, err := r.advance(ctx, b, before)
		before = w
		if limited(b) {
			at.again = time.Millisecond
		}
		if err != nil || b.Finished() || !at.continues {
			return controllers.Written(spread(at.again), err)
		}
	}
	return ctrl.Result{RequeueAfter: time.Millisecond}, nil
}

// removePods: the garbage collector would wait for finalizers, which any user may add.
func (r *Reconciler) removePods(ctx context.Context, b *v1alpha1.LatencyBenchmark) (errs error) {
	for _, named := range recorded(b) {
		p, err := observe.Get[corev1.Pod](ctx, r.Live, b.Namespace, named.Name)
		if err == nil && ownsPod(b, p) {
			err = controllers.Delete(ctx, r.Client, p)
		}
		errs = errors.Join(errs, err)
	}
	return errs
}

func recorded(b *v1alpha1.LatencyBenchmark) []v1alpha1.LeftPod {
	all := slices.Clone(b.Status.LeftPods)
	if a := b.Status.Active; a != nil {
		all = append(all, v1alpha1.LeftPod{Name: pods.NameOf(a, v1alpha1.RoleServer), UID: a.ServerPodUID},
			v1alpha1.LeftPod{Name: pods.NameOf(a, v1alpha1.RoleClient), UID: a.ClientPodUID})
	}
	return all
}

// spread makes benchmarks that wait look again at different times.
func spread(again time.Duration) time.Duration {
	if again < waitAgain {
		return again
	}
	return wait.Jitter(again, 0.2)
}

// waits returns, by the cache alone, when to look again at a benchmark that waits; 0 for others.
func (r *Reconciler) waits(ctx context.Context, name types.NamespacedName) (time.Duration, error) {
	b := &v1alpha1.LatencyBenchmark{}
	if err := r.Client.Get(ctx, name, b); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	c := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSucceeded)
	if c == nil || c.Reason != v1alpha1.ReasonQueued || !controllers.IsWhole(b) || b.Status.Pair == nil || b.Status.Active != nil ||
		len(b.Status.LeftPods) > 0 || !b.DeletionTimestamp.IsZero() {
		return 0, nil
	}
	w, nodes, err := r.observeCached(ctx, b)
	if err != nil || w.looksCloser() {
		return 0, err
	}
	w.accepted = r.Cluster.Known(b, nodes, w.others)
	before := b.DeepCopy()
	s := decide(w)
	if w.setConditions(s); s.kind != stepWait || !equality.Semantic.DeepEqual(before.Status, b.Status) {
		return 0, nil
	}
	return s.again, nil
}

const mostSteps = 10 // of a benchmark, before other benchmarks have their turn

// advance takes one step. before is the world of the step before, or nil.
func (r *Reconciler) advance(ctx context.Context, b *v1alpha1.LatencyBenchmark, before *world) (*world, step, error) {
	old := b.DeepCopy()
	controllers.SettleTimes(&b.Status, r.Clock.Now())
	world, err := r.observe(ctx, b, before)
	if err != nil {
		return nil, step{}, err
	}
	s := decide(world)
	if s.kind == stepRelease {
		// One write records both the end of the attempt and the next step, mostly the next claim.
		r.taken.Delete(clientKey(b))
		r.forget(types.UID(b.Status.Active.ServerPodUID), types.UID(b.Status.Active.ClientPodUID))
		world.release()
		if world, err = r.observe(ctx, b, nil); err != nil {
			// The next run's state cannot be read; the nodes are released all the same.
			return nil, step{}, errors.Join(err, r.report(ctx, old, b))
		}
		s = decide(world)
	}
	if s.kind == stepClaim {
		r.claiming.Lock()
		defer r.claiming.Unlock()
	}
	if s, err = r.confirm(ctx, world, s); err != nil {
		return nil, step{}, err
	}
	log.FromContext(ctx).V(1).Info("decided", "step", s.kind, "reason", s.reason, "message", s.message)

	at, err := r.apply(ctx, world, s)
	if err != nil {
		return nil, step{}, fmt.Errorf("%s: %w", s.kind, err)
	}
	world.setConditions(at)
	return world, at, r.report(ctx, old, b)
}

// SetupWithManager registers the controller. Nodes that become free wake an unfinished benchmark.
// The inputs of its verdict (of stored results, only metadata) and its expiry wake any one.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.Client = controllers.Logged(r.Client)
	// The benchmark that releases a node goes on by itself.
	unfinished := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return controllers.Requests(ctx, mgr.GetClient(), &v1alpha1.LatencyBenchmarkList{}, func(b *v1alpha1.LatencyBenchmark) bool {
			return !b.Finished() && b.UID != o.GetUID()
		})
	})
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.LatencyBenchmark{}, indexBaseline, baselineKeys); err != nil {
		return fmt.Errorf("indexing benchmarks by their baselines: %w", err)
	}
	comparedWith := func(ctx context.Context, baseline string) []reconcile.Request {
		return controllers.Requests[*v1alpha1.LatencyBenchmark](ctx, mgr.GetClient(), &v1alpha1.LatencyBenchmarkList{}, nil,
			client.MatchingFields{indexBaseline: baseline})
	}
	r.wake = make(chan event.GenericEvent)
	ofGate := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return comparedWith(ctx, baselineGate(o.(*v1alpha1.LatencyVerification).Spec.GateName))
	})
	ofBaseline := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return comparedWith(ctx, baselineBenchmark(o.GetNamespace(), o.GetName()))
	})
	ofConfigMap := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		requests := comparedWith(ctx, baselineExport(o.GetNamespace(), o.GetName()))
		name := o.GetLabels()[v1alpha1.LabelBenchmark]
		if name == "" {
			return requests
		}
		requests = append(requests, comparedWith(ctx, baselineBenchmark(o.GetNamespace(), name))...)
		own := types.NamespacedName{Namespace: o.GetNamespace(), Name: name}
		// This controller stores the result of an active attempt.
		b := &v1alpha1.LatencyBenchmark{}
		if err := mgr.GetClient().Get(ctx, own, b); err == nil && b.Status.Active != nil {
			return requests
		}
		return append(requests, reconcile.Request{NamespacedName: own})
	})
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.LatencyBenchmark{}, builder.WithPredicates(requests)).
		Owns(&corev1.Pod{}, builder.WithPredicates(controllers.NotCreated, controllers.PodChanges)).
		Watches(&v1alpha1.LatencyBenchmark{}, unfinished, builder.WithPredicates(releases)).
		Watches(&corev1.Pod{}, unfinished, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(event.UpdateEvent) bool { return false },
			DeleteFunc: func(e event.DeleteEvent) bool { return r.gone(e.Object.GetUID()) },
		})).
		WatchesRawSource(source.Channel(r.wake, &handler.EnqueueRequestForObject{})).
		Watches(&v1alpha1.LatencyBenchmark{}, ofBaseline, builder.WithPredicates(resultChanges)).
		Watches(&v1alpha1.LatencyBenchmark{}, handler.EnqueueRequestsFromMapFunc(r.ofSeries), builder.WithPredicates(completions)).
		Watches(&v1alpha1.LatencyBenchmark{}, handler.EnqueueRequestsFromMapFunc(baselines),
			builder.WithPredicates(controllers.NotCreated, baselineChanges)).
		Watches(&v1alpha1.LatencyVerification{}, ofGate, builder.WithPredicates(acceptances)).
		Watches(&corev1.ConfigMap{}, ofConfigMap, builder.OnlyMetadata).
		Watches(&corev1.Node{}, unfinished, builder.WithPredicates(controllers.NodeChanges)).
		// Other workers go on while one waits, and world.unseen keeps the order of age.
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// requests passes what users change in a benchmark, not this controller's writes to its status.
var requests = predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})

var releases = predicate.And(controllers.NotCreated, controllers.Updates(func(before, after *v1alpha1.LatencyBenchmark) bool {
	return before.Status.Active != nil && after.Status.Active == nil || !before.Finished() && after.Finished() || !before.Suspended() && after.Suspended()
}))

var resultChanges = controllers.Updates(func(before, after *v1alpha1.LatencyBenchmark) bool {
	return before.UID != after.UID || before.Succeeded() != after.Succeeded()
})

var acceptances = controllers.Updates(func(before, after *v1alpha1.LatencyVerification) bool {
	return after.Status.Accepted != nil && (before.Status.Accepted == nil || before.Status.Accepted.Benchmark != after.Status.Accepted.Benchmark)
})

const indexBaseline = "baseline"

func baselineBenchmark(namespace, name string) string {
	return "LatencyBenchmark " + namespace + "/" + name
}
func baselineExport(namespace, name string) string { return "ConfigMap " + namespace + "/" + name }
func baselineGate(name string) string              { return "LatencyGate " + name }

func baselineKeys(o client.Object) (keys []string) {
	b := o.(*v1alpha1.LatencyBenchmark)
	if name := b.Spec.Criteria.BaselineOf(v1alpha1.BaselineBenchmark); name != "" {
		keys = append(keys, baselineBenchmark(b.Namespace, name))
	} else if v := b.Status.Verdict; v != nil && v.Baseline != nil {
		keys = append(keys, baselineBenchmark(v.Baseline.Namespace, v.Baseline.Benchmark))
	}
	if name := b.Spec.Criteria.BaselineOf(v1alpha1.BaselineGate); name != "" {
		keys = append(keys, baselineGate(name))
	}
	if name := b.Spec.Criteria.BaselineOf(v1alpha1.BaselineExport); name != "" {
		keys = append(keys, baselineExport(b.Namespace, name))
	}
	return keys
}

// memory is all that the controller keeps outside the status, besides what evaluate.Store has read.
// Nothing of it decides about a result; to lose it costs only what the fields say.
type memory struct {
	// made are the pods that a manager created: labels and owners prove nothing. The statuses have
	// the UIDs, and fill it after a restart; only a pod that no status names has then taken a name.
	made podSet
	// taken are verified ConfigMaps to be stored, by benchmark; a restart reads the logs again.
	taken sync.Map
	// followed are the pods whose logs are followed, written those whose logs have results. After a
	// restart, the logs are followed from their beginnings.
	followed, written podSet
	// wake receives benchmarks whose pods both have results, seconds before their phases show it.
	wake chan event.GenericEvent
	// claiming is held while nodes are claimed, so that two workers do not both find them free.
	// Between two managers, startServer compares the claims in the statuses once more.
	claiming sync.Mutex
}

func (m *memory) forget(uids ...types.UID) {
	for _, set := range []*podSet{&m.made, &m.followed, &m.written} {
		for _, uid := range uids {
			set.uids.Delete(uid)
		}
	}
}

type podSet struct{ uids sync.Map }

func (s *podSet) add(uid types.UID) {
	if uid != "" {
		s.uids.Store(uid, true)
	}
}

func (s *podSet) has(uid types.UID) bool {
	_, found := s.uids.Load(uid)
	return found
}

// gone forgets a deleted pod, and reports whether a manager created it, so that it held a node.
func (m *memory) gone(uid types.UID) bool {
	made := m.made.has(uid)
	m.forget(uid)
	return made
}

// Made reports whether a manager created a pod.
func (m *memory) Made(uid types.UID) bool { return m.made.has(uid) }

// adopt records the active attempt's pods that this manager created and no status write recorded.
func (m *memory) adopt(w *world) {
	for _, e := range w.ends() {
		m.made.add(types.UID(*e.uid))
		if *e.uid == "" && e.pod != nil && m.made.has(e.pod.UID) && w.benchmark.Status.Active.Outcome == nil {
			*e.uid = string(e.pod.UID)
		}
	}
}
