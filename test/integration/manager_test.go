package integration

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/controllers/benchmark"
	"github.com/tailgate-dev/tailgate/controllers/gate"
	"github.com/tailgate-dev/tailgate/controllers/matrix"
	"github.com/tailgate-dev/tailgate/internal/evaluate"
	"github.com/tailgate-dev/tailgate/internal/metrics"
	"github.com/tailgate-dev/tailgate/internal/observe"
	"github.com/tailgate-dev/tailgate/internal/tool/all"
	. "github.com/tailgate-dev/tailgate/test/specs"
)

// clock is the real clock. Specs put it forward instead of waiting, and stop it to check a state that lasts only a few seconds.
type clock struct {
	ahead   atomic.Int64
	stopped atomic.Pointer[time.Time]
}

func (c *clock) Now() time.Time {
	now := time.Now()
	if at := c.stopped.Load(); at != nil {
		now = *at
	}
	return now.Add(time.Duration(c.ahead.Load()))
}

func (c *clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Stop stops the clock. It can still be put forward.
func (c *clock) Stop() { c.stopped.CompareAndSwap(nil, new(time.Now())) }

// death reports whether the manager dies instead of performing a write: "create", "delete", "patch" or "status".
type death func(verb string, object client.Object) bool

// mortal is a client whose writes fail after its death.
type mortal struct {
	client.Client
	dies death
	dead atomic.Bool
}

var errDead = errors.New("this manager is dead")

func (m *mortal) alive(verb string, object client.Object) error {
	if m.dead.Load() || m.dies != nil && m.dies(verb, object) {
		m.dead.Store(true)
		return errDead
	}
	return nil
}

func (m *mortal) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	if err := m.alive("create", object); err != nil {
		return err
	}
	return m.Client.Create(ctx, object, options...)
}

func (m *mortal) Delete(ctx context.Context, object client.Object, options ...client.DeleteOption) error {
	if err := m.alive("delete", object); err != nil {
		return err
	}
	return m.Client.Delete(ctx, object, options...)
}

func (m *mortal) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.PatchOption) error {
	if err := m.alive("patch", object); err != nil {
		return err
	}
	return m.Client.Patch(ctx, object, patch, options...)
}

func (m *mortal) Status() client.SubResourceWriter { return &mortalStatus{m.Client.Status(), m} }

type mortalStatus struct {
	client.SubResourceWriter
	m *mortal
}

func (s *mortalStatus) Update(ctx context.Context, object client.Object, options ...client.SubResourceUpdateOption) error {
	if err := s.m.alive("status", object); err != nil {
		return err
	}
	return s.SubResourceWriter.Update(ctx, object, options...)
}

func (s *mortalStatus) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	if err := s.m.alive("status", object); err != nil {
		return err
	}
	return s.SubResourceWriter.Patch(ctx, object, patch, options...)
}

// World holds the objects and settings of one spec.
type World struct {
	Place
	Kubelet  *Kubelet
	Clock    *clock
	Settings benchmark.Settings
	// Config is that of the managers' clients; nil: managerConfig.
	Config *rest.Config
	// Logs is the managers' reader of logs, with at most LogTimeout for each; that of Kubelet, unless a spec changes it.
	Logs       benchmark.LogReader
	LogTimeout time.Duration
	// Log is the managers' own log; that of the suite, unless a spec changes it.
	Log logr.Logger
	// Outage, while it is set, makes the API server unreachable for managers.
	Outage atomic.Bool
	// failing, while it is set, answers the requests of managers.
	failing atomic.Pointer[failure]
	watches watches
	// asked, while it is set, is called with each request of managers to the API server, except watches.
	asked atomic.Pointer[func(*http.Request)]
}

// roundTripper sends the requests of managers, except during an outage or another failure of the API server.
func (w *World) roundTripper(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if w.Outage.Load() {
			return nil, errors.New("the API server does not answer")
		}
		if f := w.failing.Load(); f != nil {
			return f.answer(r)
		}
		if asked := w.asked.Load(); asked != nil && r.URL.Query().Get("watch") == "" {
			(*asked)(r)
		}
		return w.watches.follow(next.RoundTrip(r))
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// NewWorld creates a namespace with two nodes.
func NewWorld(ctx SpecContext) *World {
	GinkgoHelper()
	namespace := newNamespace(ctx)
	clock := &clock{}
	kubelet := NewKubelet(ctx, namespace, clock.Now)
	w := &World{
		Place:   Place{Namespace: namespace, A: namespace + "-a", B: namespace + "-b", Kubelets: kubelet.Kubelets},
		Kubelet: kubelet, Clock: clock,
		Settings: benchmark.Settings{BenchImage: "bench:test", PullPolicy: corev1.PullNever, StartTimeout: time.Minute, MaxAttempts: 3},
	}
	w.Patiently, w.Stays, w.LetIn = w.patiently, w.stays, w.letIn
	w.Manage = func() func() { GinkgoHelper(); return w.Start().Stop }
	w.AddNode(ctx, MakeNode(w.A))
	w.AddNode(ctx, MakeNode(w.B))
	return w
}

// addNode creates a node with the taints and status of the builder, until the spec ends.
func addNode(ctx context.Context, n *NodeBuilder) *corev1.Node {
	GinkgoHelper()
	node, status := n.Obj(), n.Status
	Expect(k8s.Create(ctx, node)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(k8s.Delete(ctx, node))).To(Succeed()) })
	// Admission taints every new node. The node controller, which does not run here, would remove the taint. A manager that runs may write
	// the new node, too.
	Edit(ctx, node, func(n *corev1.Node) {
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeNotReady })
	})
	created := node.DeepCopy()
	node.Status = status
	Expect(k8s.Status().Patch(ctx, node, client.StrategicMergeFrom(created))).To(Succeed())
	return node
}

// Manager is a running manager.
type Manager struct {
	// Metrics are those of this manager. Metrics that all managers of the process share are in controller-runtime's registry.
	Metrics *prometheus.Registry
	stop    context.CancelFunc
	done    chan struct{}
	client  *mortal
}

// Start starts a manager, as cmd/manager does. It stops at the end of the spec at the latest.
func (w *World) Start(dies ...death) *Manager {
	GinkgoHelper()
	common := controllers.Config()
	common.SkipNameValidation = new(true)
	own := observe.Bounded(cmp.Or(w.Config, managerConfig))
	own.Wrap(w.roundTripper)
	mgr, err := ctrl.NewManager(own, ctrl.Options{
		Scheme:                 scheme,
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: "0",
		// Several managers run one after the other in this process, with the same name.
		Controller: common,
		Cache:      controllers.CacheOptions(w.Settings.Namespaces),
		Logger:     w.Log,
	})
	Expect(err).NotTo(HaveOccurred())
	m := &Manager{Metrics: prometheus.NewRegistry(), done: make(chan struct{}), client: &mortal{Client: mgr.GetClient()}}
	if len(dies) > 0 {
		m.client.dies = dies[0]
	}
	if w.Logs == nil {
		w.Logs = w.Kubelet.Logs
	}
	api := controllers.API{Client: m.client, Live: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("tailgate"), Clock: w.Clock}
	cluster := &observe.Cluster{Cache: m.client, Live: api.Live, Clock: w.Clock, Tools: all.Registry(), Settings: w.Settings.Settings}
	reconciler := &benchmark.Reconciler{
		API: api, Cluster: cluster, Results: &evaluate.Store{Live: api.Live}, Logs: w.Logs, LogTimeout: cmp.Or(w.LogTimeout, 20*time.Second),
		Settings: w.Settings, Activity: metrics.NewActivity(m.Metrics),
	}
	m.Metrics.MustRegister(metrics.NewCollector(mgr.GetCache(), mgr.Elected()))
	Expect(reconciler.SetupWithManager(mgr)).To(Succeed())
	Expect((&controllers.Graces{API: api, Namespaces: w.Settings.Namespaces, Made: reconciler.Made}).SetupWithManager(mgr)).To(Succeed())
	Expect((&matrix.Reconciler{API: api, Cluster: cluster, Namespaces: w.Settings.Namespaces}).SetupWithManager(mgr)).To(Succeed())
	memory := &gate.Memory{}
	Expect((&gate.Gates{API: api, Cluster: cluster, Memory: memory}).SetupWithManager(mgr)).To(Succeed())
	Expect((&gate.Verifications{
		API: api, Memory: memory, Activity: reconciler.Activity, Image: w.Settings.BenchImage, PullPolicy: w.Settings.PullPolicy,
	}).SetupWithManager(mgr)).To(Succeed())
	var ctx context.Context
	ctx, m.stop = context.WithCancel(context.Background())
	go func() {
		defer GinkgoRecover()
		defer close(m.done)
		Expect(mgr.Start(ctx)).To(Succeed())
	}()
	DeferCleanup(m.Stop)
	return m
}

// Sees waits until the manager's cache has the version of an object that a spec has just written.
func (m *Manager) Sees(ctx SpecContext, written client.Object) {
	GinkgoHelper()
	Eventually(func() (string, error) {
		cached := written.DeepCopyObject().(client.Object)
		err := m.client.Client.Get(ctx, client.ObjectKeyFromObject(written), cached)
		return cached.GetResourceVersion(), err
	}).Should(Equal(written.GetResourceVersion()))
}

// Stop stops the manager and waits until it has.
func (m *Manager) Stop() {
	m.stop()
	<-m.done
}

// Advance puts the clock forward and wakes the controller, because its timers do not use this clock.
func (w *World) Advance(ctx context.Context, by time.Duration, b client.Object) {
	GinkgoHelper()
	w.Clock.ahead.Add(int64(by))
	Expect(client.IgnoreNotFound(wake(ctx, b))).To(Succeed())
}

// Wake makes the controllers reconcile a benchmark: it changes an annotation that only the watch notices.
func Wake(ctx context.Context, b client.Object) {
	GinkgoHelper()
	Expect(wake(ctx, b)).To(Succeed())
}

func wake(ctx context.Context, b client.Object) error {
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"test.tailgate.dev/woken":"`+time.Now().Format(time.RFC3339Nano)+`"}}}`))
	return k8s.Patch(ctx, b.DeepCopyObject().(client.Object), patch)
}

// patiently checks that a condition holds however long the controllers wait: it puts the clock forward in steps, in total by more
// than any of their timers, and makes them reconcile a benchmark after each step.
func (w *World) patiently(ctx context.Context, b client.Object, actual func() any, matcher gomegatypes.GomegaMatcher) {
	GinkgoHelper()
	// Each controller has the name of its kind. Only the reconciles of this one count.
	controller := strings.ToLower(reflect.TypeOf(b).Elem().Name())
	for range 4 {
		before := reconciles(controller)
		w.Advance(ctx, 3*time.Second, b)
		Eventually(reconciles).WithArguments(controller).Should(BeNumerically(">", before), "its controller looks at "+b.GetName())
		Expect(actual()).To(matcher)
	}
}

// reconciles returns the number of reconciles of the controllers with these names, or of all controllers of this process.
func reconciles(names ...string) float64 {
	GinkgoHelper()
	families, err := ctrlmetrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	var sum float64
	for _, f := range families {
		if f.GetName() != "controller_runtime_reconcile_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "controller" && (len(names) == 0 || slices.Contains(names, label.GetValue())) {
					sum += m.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}
