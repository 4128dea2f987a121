// Package metrics exports the state of the API's objects to Prometheus, and counts their events. Every
// label is bounded (docs/internals/metrics.md).
//
//	Collector  reads all objects from the cache at each scrape, only in the manager that leads
//	Activity   counts attempts and waiting times at their end, which the objects do not show
package metrics

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

const (
	PerNode       = 9               // series of one node of a gate
	MaxBenchmarks = 200             // unfinished ones first, then the newest
	MaxCells      = 16              // of a benchmark, in the status's order
	patience      = 5 * time.Second // for caches that are not yet filled
)

type gauge struct{ *prometheus.Desc }

var described []*prometheus.Desc

func newGauge(name, help string, labels ...string) gauge {
	desc := prometheus.NewDesc(name, help, labels, nil)
	described = append(described, desc)
	return gauge{desc}
}

func (g gauge) send(ch chan<- prometheus.Metric, value float64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(g.Desc, prometheus.GaugeValue, value, labels...)
}

func (g gauge) sendBool(ch chan<- prometheus.Metric, value bool, labels ...string) {
	number := 0.0
	if value {
		number = 1
	}
	g.send(ch, number, labels...)
}

func (g gauge) sendTime(ch chan<- prometheus.Metric, t *metav1.Time, labels ...string) {
	if !t.IsZero() {
		g.send(ch, float64(t.UnixMilli())/1000, labels...)
	}
}

func (g gauge) sendSeconds(ch chan<- prometheus.Metric, nanoseconds *int64, labels ...string) {
	if nanoseconds != nil {
		g.send(ch, float64(*nanoseconds)/1e9, labels...)
	}
}

var exporting = newGauge("tailgate_exporting",
	"1 from the manager that leads and could read all objects for this scrape; 0 from the others, which export no metrics of objects.")

// Collector reads the objects at each scrape. The zero value does not work; see NewCollector.
type Collector struct {
	reader  client.Reader
	elected <-chan struct{}
}

// NewCollector reads from a cache. Until elected is closed, it exports tailgate_exporting as 0.
func NewCollector(cache client.Reader, elected <-chan struct{}) *Collector {
	return &Collector{reader: cache, elected: elected}
}

func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range described {
		ch <- desc
	}
}

func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	select {
	case <-c.elected:
	default:
		exporting.sendBool(ch, false)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	world, err := c.read(ctx)
	if err != nil {
		log.Log.WithName("metrics").Error(err, "nothing is exported")
		exporting.sendBool(ch, false)
		return
	}
	exporting.sendBool(ch, true)
	collectGates(ch, world)
	collectBenchmarks(ch, world)
}

// NewProtection exports whether a manager finds a problem with its installation's policies.
func NewProtection(problem func() string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tailgate_protected",
		Help: "1 while the admission policies of the installation are there and apply to this manager; otherwise 0. The log, and condition Operational of gates, say what is missing.",
	}, func() float64 {
		if problem() != "" {
			return 0
		}
		return 1
	})
}

type objects struct {
	benchmarks    []v1alpha1.LatencyBenchmark
	matrices      []v1alpha1.LatencyMatrix
	gates         []v1alpha1.LatencyGate
	verifications []v1alpha1.LatencyVerification
}

func (c *Collector) read(ctx context.Context) (objects, error) {
	var benchmarks v1alpha1.LatencyBenchmarkList
	var matrices v1alpha1.LatencyMatrixList
	var gates v1alpha1.LatencyGateList
	var verifications v1alpha1.LatencyVerificationList
	for _, list := range []client.ObjectList{&benchmarks, &matrices, &gates, &verifications} {
		// Do not copy thousands of objects that are only read.
		if err := c.reader.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return objects{}, fmt.Errorf("listing %T: %w", list, err)
		}
	}
	return objects{benchmarks.Items, matrices.Items, gates.Items, verifications.Items}, nil
}

// Activity counts events of benchmarks since this manager leads. A nil Activity counts nothing.
type Activity struct {
	attempts  *prometheus.CounterVec
	measuring prometheus.Counter
	wait      prometheus.Histogram
	hold      prometheus.Histogram
}

func NewActivity(registry prometheus.Registerer) *Activity {
	register := promauto.With(registry)
	a := &Activity{
		attempts: register.NewCounterVec(prometheus.CounterOpts{
			Name: "tailgate_attempts_total",
			Help: "Finished attempts by outcome: Measured, or the reason of their failure. The measured ones are the runs.",
		}, []string{"reason"}),
		measuring: register.NewCounter(prometheus.CounterOpts{
			Name: "tailgate_measuring_seconds_total",
			Help: "Time during which tools ran, including their start and warm-ups.",
		}),
		wait: register.NewHistogram(prometheus.HistogramOpts{
			Name:    "tailgate_queue_wait_seconds",
			Help:    "Time from the creation of a benchmark until it first had its nodes.",
			Buckets: []float64{1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 48 * 3600},
		}),
		hold: register.NewHistogram(prometheus.HistogramOpts{
			Name: "tailgate_hold_seconds",
			Help: "From the last report of its kubelet (the heartbeat of condition Ready, by the node's clock, in whole seconds) to " +
				"the writes that hold back a node whose identity changed. It includes neither the time before the kubelet's report nor, " +
				"beyond the last heartbeat, the time without a leader.",
			Buckets: []float64{1, 2, 5, 10, 30, 60, 300, 900, 3600},
		}),
	}
	// The series exists from the start, so that the first run is seen as an increase.
	a.attempts.WithLabelValues(v1alpha1.OutcomeMeasured)
	return a
}

// Observe counts the changes of a benchmark whose status was just written.
func (a *Activity) Observe(old, b *v1alpha1.LatencyBenchmark) {
	if a == nil {
		return
	}
	// The first pod counts: one that gave way or was suspended starts again.
	if first := b.Status.Active; first != nil && first.ServerPodUID != "" && len(b.Status.Attempts)+len(b.Status.Stored) == 0 &&
		(old.Status.Active == nil || old.Status.Active.ServerPodUID == "") {
		a.wait.Observe(max(0, first.StartTime.Sub(b.CreationTimestamp.Time).Seconds()))
	}
	for _, attempt := range NewAttempts(old, b) {
		a.attempts.WithLabelValues(attempt.Outcome.Reason).Inc()
		a.measuring.Add((time.Duration(attempt.MeasuredMilliseconds) * time.Millisecond).Seconds())
	}
}

func (a *Activity) ObserveHold(took time.Duration) {
	if a != nil {
		a.hold.Observe(max(0, took.Seconds()))
	}
}

// NewAttempts returns the attempts that the old status lacks. The oldest may be gone.
func NewAttempts(old, b *v1alpha1.LatencyBenchmark) []v1alpha1.Attempt {
	all := b.Status.Attempts
	for i := len(all) - 1; i >= 0; i-- {
		if n := len(old.Status.Attempts); n > 0 && all[i].Run == old.Status.Attempts[n-1].Run && all[i].Attempt == old.Status.Attempts[n-1].Attempt {
			return all[i+1:]
		}
	}
	return all
}
