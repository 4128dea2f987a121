package driven

import (
	"context"
	"fmt"
	"reflect"
	"time"
	"unsafe"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/controllers/benchmark"
	"github.com/tailgate-dev/tailgate/controllers/gate"
	"github.com/tailgate-dev/tailgate/controllers/matrix"
	"github.com/tailgate-dev/tailgate/internal/evaluate"
	"github.com/tailgate-dev/tailgate/internal/metrics"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/tool/all"
)

// Manager has the reconcilers of a manager, set up as cmd/manager does, and what they keep in memory.
type Manager struct {
	// Metrics are those of this manager.
	Metrics     *prometheus.Registry
	world       *Cluster
	caches      *caches
	client      client.Client
	controllers []*driver
	current     string
	dead        bool
	stop        context.CancelFunc
	setUp       []func()
}

// Dead reports whether the manager has died or was stopped.
func (m *Manager) Dead() bool { return m.dead }

// Stop ends the manager.
func (m *Manager) Stop() {
	m.dead = true
	m.stop()
}

// driver is a controller whose queue the world empties.
type driver struct {
	name string
	reconcile.Reconciler
	limiter workqueue.TypedRateLimiter[reconcile.Request]
	clock   interface{ Now() time.Time }
	due     map[reconcile.Request]time.Time
	// order is when a request was queued, so that those that are due at the same time come in this order.
	order map[reconcile.Request]int64
	turn  *int64
	next  reconcile.Request
}

// Start starts a manager. A fault chooses what happens to its writes; nil: they are done.
func (c *Cluster) Start(fault Fault) (*Manager, error) {
	ctx, stop := context.WithCancel(context.Background())
	m := &Manager{Metrics: prometheus.NewRegistry(), world: c, stop: stop}
	m.caches = newCaches(c.Store, controllers.CacheOptions(c.Settings.Namespaces))
	m.caches.before = func() error {
		if m.dead {
			return ErrDead
		}
		return nil
	}
	live := reader{c.Store, func(verb string, o runtime.Object) error { return m.answers(verb, o) }}
	m.client = &cachedClient{Client: &storeClient{reader: live, store: c.Store, manager: "tailgate", around: m.around(fault)}, caches: m.caches}
	c.managers = append(c.managers, m)
	mgr := &set{manager: m, elected: make(chan struct{}), live: live}
	close(mgr.elected)

	api := controllers.API{Client: m.client, Live: live, Recorder: mgr.GetEventRecorder("tailgate"), Clock: c.Clock}
	cluster := &observe.Cluster{Cache: m.client, Live: api.Live, Clock: c.Clock, Tools: all.Registry(), Settings: c.Settings.Settings}
	reconciler := &benchmark.Reconciler{
		API: api, Cluster: cluster, Results: &evaluate.Store{Live: api.Live}, Logs: c.Logs, LogTimeout: 20 * time.Second,
		Settings: c.Settings, Activity: metrics.NewActivity(m.Metrics),
	}
	m.Metrics.MustRegister(metrics.NewCollector(m.caches, mgr.elected))
	gates := &gate.Gates{API: api, Cluster: cluster, Memory: &gate.Memory{}}
	verifications := &gate.Verifications{
		API: api, Memory: gates.Memory, Activity: reconciler.Activity,
		Image: c.Settings.BenchImage, PullPolicy: c.Settings.PullPolicy,
	}
	for _, r := range []interface{ SetupWithManager(ctrl.Manager) error }{
		reconciler, &controllers.Graces{API: api, Namespaces: c.Settings.Namespaces, Made: reconciler.Made}, &matrix.Reconciler{API: api, Cluster: cluster, Namespaces: c.Settings.Namespaces}, gates, verifications, &gate.Workloads{API: api},
	} {
		if err := r.SetupWithManager(mgr); err != nil {
			return nil, err
		}
	}
	for _, take := range m.setUp {
		take()
	}
	for i := range mgr.sources {
		for _, watched := range mgr.sources[i] {
			if err := watched.Start(ctx, m.controllers[i]); err != nil {
				return nil, err
			}
			if syncing, ok := watched.(source.SyncingSource); ok {
				if err := syncing.WaitForSync(ctx); err != nil {
					return nil, err
				}
			}
		}
	}
	return m, nil
}

// answers returns why a manager's request is not answered.
func (m *Manager) answers(verb string, o runtime.Object) error {
	if m.dead {
		return ErrDead
	}
	if m.world.Asked != nil {
		m.world.Asked(verb, o)
	}
	if m.world.Outage {
		return ErrOutage
	}
	return nil
}

func (m *Manager) around(fault Fault) func(string, client.Object, func() error) error {
	return func(verb string, o client.Object, do func() error) error {
		if err := m.answers(verb, o); err != nil {
			return err
		}
		m.world.writes++
		w := Write{m.world.writes, verb, m.current, o}
		effect := Nothing
		for _, f := range []Fault{fault, m.world.Fault} {
			if f != nil && effect == Nothing {
				effect = f(w)
			}
		}
		answer, done := failed(effect, o)
		var err error
		if done {
			if effect != Nothing {
				// The manager does not learn what was stored.
				o = o.DeepCopyObject().(client.Object)
			}
			err = do()
		}
		m.world.note("%s %s %T %s %s: %v", m.current, verb, o, o.GetName(), effect, err)
		if effect == DieBefore || effect == DieAfter {
			m.Stop()
		}
		if answer != nil {
			return answer
		}
		return err
	}
}

// cachedClient reads typed objects from the cache, as the client of a manager does.
type cachedClient struct {
	client.Client
	caches *caches
}

func (c *cachedClient) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, ok := o.(runtime.Unstructured); ok {
		return c.Client.Get(ctx, key, o, opts...)
	}
	return c.caches.Get(ctx, key, o, opts...)
}

func (c *cachedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(runtime.Unstructured); ok {
		return c.Client.List(ctx, list, opts...)
	}
	return c.caches.List(ctx, list, opts...)
}

// set is the manager in which controllers are set up. Methods that they do not use panic.
type set struct {
	manager.Manager
	manager *Manager
	elected chan struct{}
	live    client.Reader
	sources [][]source.TypedSource[reconcile.Request]
}

func (s *set) GetClient() client.Client             { return s.manager.client }
func (s *set) GetAPIReader() client.Reader          { return s.live }
func (s *set) GetCache() cache.Cache                { return s.manager.caches }
func (s *set) GetFieldIndexer() client.FieldIndexer { return s.manager.caches }
func (s *set) GetScheme() *runtime.Scheme           { return s.manager.world.Store.scheme }
func (s *set) GetRESTMapper() meta.RESTMapper       { return s.manager.world.Store.mapper() }
func (s *set) GetLogger() logr.Logger               { return s.manager.world.Log }
func (s *set) Elected() <-chan struct{}             { return s.elected }
func (s *set) GetEventRecorder(string) events.EventRecorder {
	return &recorder{s.manager.world, map[string]bool{}}
}

func (s *set) GetControllerOptions() config.Controller {
	common := controllers.Config()
	common.SkipNameValidation = new(true)
	return common
}

// Add takes a controller, with its watches and its rate limiter, instead of starting it: controller-runtime has no other way to
// reconcile the requests that the watches of a controller make.
func (s *set) Add(r manager.Runnable) error {
	controller, ok := r.(interface {
		reconcile.Reconciler
		GetLogger() logr.Logger
	})
	if !ok {
		return fmt.Errorf("%T is no controller", r)
	}
	fields := reflect.ValueOf(r).Elem()
	c := s.manager.world
	d := &driver{
		name: fields.FieldByName("Name").String(), Reconciler: controller, clock: c.Clock, turn: &c.turns,
		limiter: fields.FieldByName("RateLimiter").Interface().(workqueue.TypedRateLimiter[reconcile.Request]),
		due:     map[reconcile.Request]time.Time{}, order: map[reconcile.Request]int64{},
	}
	s.manager.controllers = append(s.manager.controllers, d)
	i := len(s.sources)
	s.sources = append(s.sources, nil)
	s.manager.setUp = append(s.manager.setUp, func() {
		watches := fields.FieldByName("startWatches")
		s.sources[i] = *(*[]source.TypedSource[reconcile.Request])(unsafe.Pointer(watches.UnsafeAddr())) //nolint:gosec // See the comment.
	})
	return nil
}

// The queue of a controller. It implements workqueue.TypedRateLimitingInterface.

func (d *driver) Add(r reconcile.Request) { d.AddAfter(r, 0) }

func (d *driver) AddAfter(r reconcile.Request, after time.Duration) {
	when := d.clock.Now().Add(after)
	if earlier, ok := d.due[r]; ok && !when.Before(earlier) {
		return
	}
	*d.turn++
	d.due[r], d.order[r] = when, *d.turn
}

func (d *driver) AddRateLimited(r reconcile.Request)     { d.AddAfter(r, d.limiter.When(r)) }
func (d *driver) Forget(r reconcile.Request)             { d.limiter.Forget(r) }
func (d *driver) NumRequeues(r reconcile.Request) int    { return d.limiter.NumRequeues(r) }
func (d *driver) Len() int                               { return len(d.due) }
func (d *driver) Get() (r reconcile.Request, ended bool) { return r, true }
func (d *driver) Done(reconcile.Request)                 {}
func (d *driver) ShutDown()                              {}
func (d *driver) ShutDownWithDrain()                     {}
func (d *driver) ShuttingDown() bool                     { return false }

// reconcile reconciles a request, and queues it again as a controller of controller-runtime does.
func (m *Manager) reconcile(d *driver, r reconcile.Request) {
	delete(d.due, r)
	m.current = d.name
	defer func() { m.current = "" }()
	ctx := log.IntoContext(context.Background(), m.world.Log.WithValues("controller", d.name, "name", r.Name))
	result, err := d.Reconcile(ctx, r)
	m.world.reconciles[d.name]++
	m.world.note("%s reconciled %s: again %s, %v", d.name, r.NamespacedName, result.RequeueAfter, err)
	switch {
	case err != nil:
		d.AddRateLimited(r)
	case result.RequeueAfter > 0:
		d.Forget(r)
		d.AddAfter(r, result.RequeueAfter)
	default:
		d.Forget(r)
	}
}

// recorder stores events, and of two about the same version of an object that differ only in their note, the first.
type recorder struct {
	world *Cluster
	sent  map[string]bool
}

// Eventf implements events.EventRecorder.
func (r *recorder) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) {
	about := regarding.(client.Object)
	gvk, err := r.world.Store.kindOf(regarding)
	if err != nil {
		return
	}
	beside := types.UID("")
	if o, ok := related.(client.Object); ok {
		beside = o.GetUID()
	}
	key := fmt.Sprint(about.GetUID(), about.GetResourceVersion(), kind, reason, action, beside)
	if r.sent[key] {
		return
	}
	r.sent[key] = true
	namespace := about.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	e := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: about.GetName() + "."},
		EventTime:  metav1.MicroTime{Time: r.world.Clock.Now()}, Type: kind, Reason: reason, Action: action, Note: fmt.Sprintf(note, args...),
		Regarding: corev1.ObjectReference{Kind: gvk.Kind, Namespace: about.GetNamespace(), Name: about.GetName(), UID: about.GetUID(), ResourceVersion: about.GetResourceVersion()},
	}
	if err := r.world.Store.create(e, writing{}); err != nil {
		r.world.note("event: %v", err)
	}
}
