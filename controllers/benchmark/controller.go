// Package benchmark reconciles LatencyBenchmark in five verbs: get, observe, decide, apply, report.
//
//	get      the benchmark itself, live
//	observe  what the decision needs of the world, live: nodes, other claims, the two pods of the attempt
//	decide   pure: the one next step, with its reason
//	apply    the step: create a pod, take a result, delete pods
//	report   conditions, progress, results and verdict, in one status write with the resourceVersion that was got
//
// After a step that leaves the benchmark in another situation, all but get are repeated, on what the API server returned.
//
// An attempt at a run goes through these situations, each of them recognised from the API alone:
//
//	nothing ──claim──▶ claimed ──create──▶ server starts ──ready──▶ client starts ──▶ measuring
//	   ▲                                                                               │ both have a result
//	   └───────────────── pods gone ◀──delete── outcome known ◀──verify, store─────────┘
//
// The claim is a status write that happens before the first pod exists, and the outcome another before the
// pods are deleted. When the pods are gone, one write ends the attempt and makes the next claim. A manager that dies
// at any point leaves a situation that the next one recognises; what was stored is never measured again. Everything
// that lets a step be taken is read from the API server, not from a cache: watches only wake the controller up, and
// the cache may only tell that it is not this one's turn yet.
package benchmark

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
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
	"github.com/tailgate-dev/tailgate/internal/metrics"
	"github.com/tailgate-dev/tailgate/internal/tool"
)

// Settings are the operator's.
type Settings struct {
	// BenchImage is the image of the benchmark pods, PullPolicy how the nodes get it.
	BenchImage string
	PullPolicy corev1.PullPolicy
	// ServiceAccount of the benchmark pods, in each namespace; empty: its default.
	ServiceAccount string
	// AllowHostNetwork lets benchmarks ask for network type Host.
	AllowHostNetwork bool
	// AllowPacketCapture lets benchmarks capture packets at the server's end, with the capability NET_RAW.
	AllowPacketCapture bool
	// StartTimeout is how long a pod may take to start before the attempt fails.
	StartTimeout time.Duration
	// MaxAttempts is how often a run is tried.
	MaxAttempts int32
	// MaxOccupation is for how long a benchmark may hold its nodes, in all; zero is without limit.
	MaxOccupation time.Duration
	// NetworkNamespaces are the namespaces whose networks benchmarks of other namespaces may name; "*" is all.
	NetworkNamespaces []string
}

// workers is how many benchmarks are reconciled at a time.
const workers = 4

// LogReader opens the log of a pod's only container, to the end that it has now or, if it is followed, until the container ends.
type LogReader func(ctx context.Context, pod types.NamespacedName, follow bool) (io.ReadCloser, error)

// Reconciler reconciles LatencyBenchmarks.
type Reconciler struct {
	// Client writes. From its cache only nodes are read, whose changes wake the controller anyway, and whether it is
	// worth to ask for a turn.
	Client client.Client
	// Live reads from the API server, past the cache.
	Live client.Reader
	// Logs opens pod logs.
	Logs LogReader
	// LogTimeout is how long it may take to read a pod's log that is not followed.
	LogTimeout time.Duration
	// Recorder emits events.
	Recorder events.EventRecorder
	// Clock tells the time.
	Clock clock.PassiveClock
	// Tools are the drivers.
	Tools tool.Registry
	// Settings of the operator.
	Settings Settings
	// Activity counts attempts and waiting times; nil counts nothing.
	Activity *metrics.Activity
	// stored is what was read of stored results.
	stored collections
	// made are the pods that managers created; ready to use when zero.
	made madePods
	// followed are the pods whose logs are or were followed, and written those of them whose logs have results; both are ready to use
	// when zero. wake is for benchmarks whose pods both have results.
	followed, written podSet
	wake              chan event.GenericEvent
	// claiming is held while nodes are claimed: of two workers that look at once both would find them free.
	claiming sync.Mutex
	// absent are the optional kinds that the cluster does not have; ready to use when zero.
	absent absentKinds
}

// +kubebuilder:rbac:groups=tailgate.dev,resources=latencybenchmarks,verbs=get;list;watch
// +kubebuilder:rbac:groups=tailgate.dev,resources=latencybenchmarks/status,verbs=update
// +kubebuilder:rbac:groups=tailgate.dev,resources=latencybenchmarks/finalizers,verbs=update
// +kubebuilder:rbac:groups=tailgate.dev,resources=latencygates,verbs=get;list;watch
// +kubebuilder:rbac:groups=tailgate.dev,resources=latencyverifications,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods/log,verbs=get
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;list;watch;create
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create
// +kubebuilder:rbac:groups="",resources=events,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch
// +kubebuilder:rbac:groups=k8s.cni.cncf.io,resources=network-attachment-definitions,verbs=get;create

// Reconcile takes the steps of one benchmark that can be taken now.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	b := &v1alpha1.LatencyBenchmark{}
	if err := r.Live.Get(ctx, req.NamespacedName, b); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !b.DeletionTimestamp.IsZero() {
		// Owner references take pods and ConfigMaps along.
		return ctrl.Result{}, nil
	}
	if b.Finished() {
		old := b.DeepCopy()
		left, err := r.left(ctx, b)
		if err != nil {
			return ctrl.Result{}, err
		}
		setLeft(b, left)
		return controllers.Written(0, r.rejudge(ctx, old, b))
	}
	for range mostSteps {
		before := situationOf(b)
		again, err := r.advance(ctx, b)
		if err != nil || b.Finished() || situationOf(b) == before {
			return controllers.Written(again, err)
		}
	}
	return ctrl.Result{RequeueAfter: time.Millisecond}, nil
}

// mostSteps is how many steps a benchmark takes at most before others have their turn.
const mostSteps = 10

// situation is what of a status decides which step is next. A step that changes it is followed by another at once: what this
// controller writes to a status does not wake it.
type situation struct {
	accepted        bool
	extended        int32
	run             string
	attempt         int32
	collected, over bool
}

func situationOf(b *v1alpha1.LatencyBenchmark) situation {
	s := situation{accepted: b.Status.Pair != nil, extended: b.Status.ExtendedRounds}
	if a := b.Status.Active; a != nil {
		s.run, s.attempt, s.collected, s.over = a.Run, a.Attempt, a.Collected != nil, a.Outcome != nil
	}
	return s
}

// advance takes one step of a benchmark as it is in the API, and leaves it so. It returns when to look again if nothing happens.
func (r *Reconciler) advance(ctx context.Context, b *v1alpha1.LatencyBenchmark) (time.Duration, error) {
	old := b.DeepCopy()
	world, err := r.observe(ctx, b, false)
	if err != nil {
		return 0, err
	}
	step := decide(world)
	if step.kind == stepRelease {
		// One write says that the attempt is over and what follows: mostly the next claim.
		r.forget(types.UID(b.Status.Active.ServerPodUID), types.UID(b.Status.Active.ClientPodUID))
		world.release()
		if world, err = r.observe(ctx, b, false); err != nil {
			// What the next run needs cannot be read. That does not keep the nodes.
			return 0, errors.Join(err, r.report(ctx, old, b))
		}
		step = decide(world)
	}
	if step.kind == stepClaim {
		r.claiming.Lock()
		defer r.claiming.Unlock()
	}
	step, err = r.confirm(ctx, world, step)
	if err != nil {
		return 0, err
	}
	log.FromContext(ctx).V(1).Info("decided", "step", step.kind, "reason", step.reason, "message", step.message)

	again, err := r.apply(ctx, world, step)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", step.kind, err)
	}
	return again, r.report(ctx, old, b)
}

// SetupWithManager registers the controller: it is woken by its benchmarks, their pods, the nodes, and, for
// those that wait, by every benchmark and every benchmark pod that goes. What a verdict was made of wakes those
// that it is about: stored results, of which only the metadata is watched, and the benchmark that is a baseline.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	unfinished := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		return controllers.Requests(ctx, mgr.GetClient(), &v1alpha1.LatencyBenchmarkList{}, func(b *v1alpha1.LatencyBenchmark) bool { return !b.Finished() })
	})
	comparedWith := func(ctx context.Context, baseline client.MatchingFields) []reconcile.Request {
		return controllers.Requests[*v1alpha1.LatencyBenchmark](ctx, mgr.GetClient(), &v1alpha1.LatencyBenchmarkList{}, nil, baseline)
	}
	for field, names := range baselineIndices {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.LatencyBenchmark{}, field, names); err != nil {
			return fmt.Errorf("indexing benchmarks by their baselines: %w", err)
		}
	}
	r.wake = make(chan event.GenericEvent)
	ofGate := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return comparedWith(ctx, client.MatchingFields{indexBaselineGate: o.(*v1alpha1.LatencyVerification).Spec.GateName})
	})
	ofBaseline := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return comparedWith(ctx, client.MatchingFields{indexBaseline: client.ObjectKeyFromObject(o).String()})
	})
	ofResult := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		name := o.GetLabels()[v1alpha1.LabelBenchmark]
		if name == "" {
			return nil
		}
		own := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}
		return append(comparedWith(ctx, client.MatchingFields{indexBaseline: own.String()}), own)
	})
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.LatencyBenchmark{}, builder.WithPredicates(requests)).
		Owns(&corev1.Pod{}, builder.WithPredicates(controllers.NotCreated)).
		Watches(&v1alpha1.LatencyBenchmark{}, unfinished, builder.WithPredicates(releases)).
		Watches(&corev1.Pod{}, unfinished, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(event.CreateEvent) bool { return false },
			UpdateFunc: func(event.UpdateEvent) bool { return false },
			DeleteFunc: func(e event.DeleteEvent) bool {
				r.forget(e.Object.GetUID())
				return true
			},
		})).
		WatchesRawSource(source.Channel(r.wake, &handler.EnqueueRequestForObject{})).
		Watches(&v1alpha1.LatencyBenchmark{}, ofBaseline, builder.WithPredicates(resultChanges)).
		Watches(&v1alpha1.LatencyVerification{}, ofGate, builder.WithPredicates(acceptances)).
		Watches(&corev1.ConfigMap{}, ofResult, builder.OnlyMetadata).
		Watches(&corev1.Node{}, unfinished, builder.WithPredicates(NodeChanges)).
		// A second worker goes on when one waits for an answer, and observe.unseen keeps them from overtaking.
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(r)
}

// requests passes the events after which a benchmark is to be looked at, by its users: not what this controller writes to its status.
var requests = predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})

// releases passes the events after which a node may have become free.
var releases = predicate.And(controllers.NotCreated, controllers.Updates(func(before, after *v1alpha1.LatencyBenchmark) bool {
	return before.Status.Active != nil && after.Status.Active == nil || !before.Finished() && after.Finished() || !before.Suspended() && after.Suspended()
}))

// resultChanges passes the events after which a benchmark is another baseline than before.
var resultChanges = controllers.Updates(func(before, after *v1alpha1.LatencyBenchmark) bool {
	return before.UID != after.UID || succeededStatus(before) != succeededStatus(after)
})

// acceptances passes the events after which a LatencyGate has accepted another result of a node.
var acceptances = controllers.Updates(func(before, after *v1alpha1.LatencyVerification) bool {
	return after.Status.Accepted != nil && (before.Status.Accepted == nil || before.Status.Accepted.Benchmark != after.Status.Accepted.Benchmark)
})

const (
	// indexBaseline finds benchmarks by the one that is their baseline, as namespace/name.
	indexBaseline = "baseline"
	// indexBaselineGate finds those that look for a baseline at a LatencyGate, by its name.
	indexBaselineGate = "baselineGate"
)

// baselineIndices are what the indices find a benchmark by.
var baselineIndices = map[string]client.IndexerFunc{
	indexBaseline: func(o client.Object) []string {
		b := o.(*v1alpha1.LatencyBenchmark)
		if name := b.Spec.Criteria.BaselineBenchmark(); name != "" {
			return []string{types.NamespacedName{Namespace: b.Namespace, Name: name}.String()}
		}
		if v := b.Status.Verdict; v != nil && v.Baseline != nil {
			return []string{types.NamespacedName{Namespace: v.Baseline.Namespace, Name: v.Baseline.Benchmark}.String()}
		}
		return nil
	},
	indexBaselineGate: func(o client.Object) []string {
		if accepted := o.(*v1alpha1.LatencyBenchmark).Spec.Criteria.BaselineAccepted(); accepted != nil {
			return []string{accepted.GateName}
		}
		return nil
	},
}

// NodeChanges passes the changes of a node that can change what Accept says; heartbeats are not among them.
var NodeChanges = controllers.Updates(func(before, after *corev1.Node) bool { return nodeFacts(before) != nodeFacts(after) })
