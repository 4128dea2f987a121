package driven

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers/benchmark"
)

// Began is the time at which the clock of each cluster begins: a Monday.
var Began = time.Date(2026, time.January, 5, 12, 0, 0, 0, time.UTC)

// Cluster is a store with managers and the stand-ins for everything else in a cluster. Nothing happens in it, and its clock stands
// still, until Step, Settle or Pass is called.
type Cluster struct {
	Store    *Store
	Clock    *clocktesting.FakePassiveClock
	Kubelet  *Kubelet
	Settings benchmark.Settings
	// Logs is the managers' reader of logs; that of Kubelet, unless a spec changes it.
	Logs benchmark.LogReader
	Log  logr.Logger
	// Fault chooses what happens to the writes of all managers; nil: they are done.
	Fault Fault
	// Outage makes the API server unreachable for managers, which also see no changes meanwhile.
	Outage bool
	// LateCache lets managers see changes only when they have nothing else to do.
	LateCache bool
	// Uncollected keeps the objects that the garbage collector would delete.
	Uncollected bool
	// Asked, while it is set, is called with each request of managers to the API server, except watches.
	Asked func(verb string, o runtime.Object)
	// Actors are stand-ins of a spec. Each does at most one thing when it is called, and returns whether it did and when to call it
	// again at the latest; zero if it waits for a change.
	Actors []func(now time.Time) (acted bool, next time.Time)

	managers   []*Manager
	writes     int
	turns      int64
	reconciles map[string]int
	trace      []string
}

// NewScheme returns the scheme of the manager.
func NewScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}

var scheme = NewScheme()

// New returns a cluster with one namespace.
func New(namespace string) *Cluster {
	clock := clocktesting.NewFakePassiveClock(Began)
	c := &Cluster{
		Store: NewStore(scheme, clock), Clock: clock, Log: ctrl.Log, reconciles: map[string]int{},
		Settings: benchmark.Settings{BenchImage: "bench:test", PullPolicy: corev1.PullNever, StartTimeout: time.Minute, MaxAttempts: 3},
	}
	c.Kubelet = newKubelet(c, namespace)
	c.Logs = c.Kubelet.Logs
	c.Store.watch(func(change change) {
		for _, m := range c.managers {
			m.caches.pending = append(m.caches.pending, change)
		}
	})
	if err := c.Store.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, writing{}); err != nil {
		panic(err)
	}
	if err := c.Store.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceDefault}}, writing{}); err != nil {
		panic(err)
	}
	return c
}

// Writes returns the number of writes of managers so far.
func (c *Cluster) Writes() int { return c.writes }

// Reconciles returns the number of reconciles of a controller so far.
func (c *Cluster) Reconciles(controller string) int { return c.reconciles[controller] }

// mostTrace is the number of lines that a cluster remembers.
const mostTrace = 200

func (c *Cluster) note(format string, args ...any) {
	if len(c.trace) == mostTrace {
		c.trace = c.trace[1:]
	}
	c.trace = append(c.trace, c.Clock.Now().Format("02 15:04:05.000 ")+fmt.Sprintf(format, args...))
}

// Trace returns the last things that happened, a line each.
func (c *Cluster) Trace() string { return strings.Join(c.trace, "\n") }

// Step lets one thing happen that is due now, and reports whether there was one.
func (c *Cluster) Step() bool {
	acted, _ := c.step()
	return acted
}

// step lets one thing happen. If there is none, it returns when the next one is due; zero for never.
func (c *Cluster) step() (acted bool, next time.Time) {
	if !c.LateCache {
		for c.deliver() {
		}
	}
	now := c.Clock.Now()
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	var first *driver
	var of *Manager
	for _, m := range c.managers {
		if m.dead {
			continue
		}
		for _, d := range m.controllers {
			for r, when := range d.due {
				sooner(when)
				if when.After(now) {
					continue
				}
				if first == nil || d.before(r, first) {
					first, of = d, m
					first.next = r
				}
			}
		}
	}
	if first != nil {
		of.reconcile(first, first.next)
		return true, now
	}
	if c.deliver() || !c.Uncollected && c.Store.collectGarbage() {
		return true, now
	}
	for _, act := range append([]func(time.Time) (bool, time.Time){c.Kubelet.act}, c.Actors...) {
		acted, again := act(now)
		if acted {
			return true, now
		}
		sooner(again)
	}
	return false, next
}

// before reports whether a request of a controller comes before the one that another controller has next.
func (d *driver) before(r reconcile.Request, other *driver) bool {
	a, b := d.due[r], other.due[other.next]
	return a.Before(b) || a.Equal(b) && d.order[r] < other.order[other.next]
}

func (c *Cluster) deliver() bool {
	if c.Outage {
		return false
	}
	any := false
	for _, m := range c.managers {
		any = !m.dead && m.caches.deliver() || any
	}
	return any
}

// mostSteps bounds what can happen at one time: more of it never ends.
const mostSteps = 200_000

// Jump sets the clock, as a user or NTP does. Timers go on: what was due in a minute is due in a minute.
func (c *Cluster) Jump(by time.Duration) {
	c.Clock.SetTime(c.Clock.Now().Add(by))
	for _, m := range c.managers {
		for _, d := range m.controllers {
			for r := range d.due {
				d.due[r] = d.due[r].Add(by)
			}
		}
	}
}

// Settle lets everything happen that is due now.
func (c *Cluster) Settle() { c.Pass(0) }

// Pass lets time pass, and everything happen that is due meanwhile, each at its time.
func (c *Cluster) Pass(by time.Duration) {
	c.until(by, func() bool { return false })
}

// until lets things happen, one at a time, until a condition holds or time has passed. It reports whether the condition holds.
func (c *Cluster) until(limit time.Duration, holds func() bool) bool {
	end := c.Clock.Now().Add(limit)
	for range mostSteps {
		if holds() {
			return true
		}
		acted, next := c.step()
		switch {
		case acted:
		case next.IsZero() || next.After(end):
			if c.Clock.Now().Before(end) {
				c.Clock.SetTime(end)
				continue
			}
			return holds()
		default:
			c.Clock.SetTime(next)
		}
	}
	panic("more than " + fmt.Sprint(mostSteps) + " steps:\n" + c.Trace())
}
