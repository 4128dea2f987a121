package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

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

// ObserveHold records how long it took to hold back a node that changed.
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
