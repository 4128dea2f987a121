package metrics

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/standing"
)

var (
	latency = newGauge("tailgate_latency_seconds",
		"A percentile of a cell over all finished rounds; absent if it has too few samples or falls among the lost messages.",
		append(cellLabels(), "type", "percentile")...)
	samples = newGauge("tailgate_latency_samples",
		"Samples of a cell.", cellLabels()...)
	lost = newGauge("tailgate_lost_messages",
		"Messages of a cell that were sent and not answered, or not received; they are not among the samples.", cellLabels()...)
	bandwidth = newGauge("tailgate_stream_bytes_per_second",
		"Payload that arrived at the receiver of a stream, the median of the rounds.", cellLabels()...)
	pairsLatency = newGauge("tailgate_pairs_latency_seconds",
		"The lowest, middle and highest of the percentiles of a cell over the pairs of a LatencyMatrix.",
		"namespace", "matrix", "variant", "cell", "type", "percentile", "aggregate")
	pairs = newGauge("tailgate_pairs",
		"Pairs of a LatencyMatrix: of the plan, finished, and failed.", "namespace", "matrix", "count")

	ofBenchmark, ofMatrix = newProgress("benchmark"), newProgress("matrix")

	queueLength = newGauge("tailgate_queue_length",
		"Benchmarks of users, gates and matrices that wait because others have their nodes or precede them.")
	queueOldest = newGauge("tailgate_queue_oldest_timestamp_seconds",
		"Time since which the first of the waiting benchmarks has waited; absent if no benchmark waits.")
	active = newGauge("tailgate_active_runs",
		"Runs that currently occupy their nodes.")
	refused = newGauge("tailgate_refused_runs",
		"Runs that occupy their nodes while the API server refuses an object that they need.")
	stuckPods = newGauge("tailgate_stuck_pods",
		"Pods of finished attempts that do not terminate and block their nodes.")
	benchmarks = newGauge("tailgate_benchmarks",
		"Benchmarks by origin: User, Gate or Matrix.", "origin")
	droppedBenchmarks = newGauge("tailgate_dropped_benchmarks",
		"Benchmarks of users, and matrices, that have no series of their own because there are too many.")
	droppedCells = newGauge("tailgate_dropped_cells",
		"Cells that have no series because their benchmark has too many.", "namespace", "benchmark")
)

type progress struct{ state, passed, verdict, runs, runsDone, completion gauge }

func newProgress(of string) progress {
	return progress{
		state: newGauge("tailgate_"+of+"_state",
			"1 for where the "+of+" stands, the reason of its condition Succeeded; others have no series.",
			"namespace", of, "state"),
		passed: newGauge("tailgate_"+of+"_passed",
			"Of a "+of+" with criteria, 1 while condition Passed is True for its spec as it is now; otherwise 0.",
			"namespace", of),
		verdict: newGauge("tailgate_"+of+"_verdict",
			"Of a "+of+" with criteria, 1 for its verdict: Pass, Fail, Inconclusive or NotJudged; others have no series.",
			"namespace", of, "verdict"),
		runs: newGauge("tailgate_"+of+"_runs",
			"Runs that the plan of the "+of+" has.", "namespace", of),
		runsDone: newGauge("tailgate_"+of+"_runs_done",
			"Runs of the "+of+" whose results are stored.", "namespace", of),
		completion: newGauge("tailgate_"+of+"_completion_timestamp_seconds",
			"When the last run of the "+of+" finished, or the "+of+" failed.", "namespace", of),
	}
}

// cellLabels identify a cell. rate is empty if each message follows the answer to the one before.
func cellLabels() []string {
	return []string{"namespace", "benchmark", "variant", "cell", "protocol", "size", "rate"}
}

func collectBenchmarks(ch chan<- prometheus.Metric, all objects) {
	var own []measured
	ofGates, ofMatrices, waiting, running, denied, stuck := 0, 0, 0, 0, 0, 0
	var oldest time.Time
	for i := range all.benchmarks {
		b := &all.benchmarks[i]
		switch {
		case b.Labels[v1alpha1.LabelGate] != "":
			ofGates++
		case b.Labels[v1alpha1.LabelMatrix] != "":
			ofMatrices++
		default:
			own = append(own, measured{b, nil})
		}
		if b.Status.Active != nil {
			running++
			if b.Status.Active.Refused != nil {
				denied++
			}
		}
		stuck += len(b.Status.LeftPods)
		if since, ok := queuedSince(b); ok {
			waiting++
			if oldest.IsZero() || since.Before(oldest) {
				oldest = since
			}
		}
	}
	benchmarks.send(ch, float64(len(own)), "User")
	benchmarks.send(ch, float64(ofGates), "Gate")
	benchmarks.send(ch, float64(ofMatrices), "Matrix")
	queueLength.send(ch, float64(waiting))
	queueOldest.sendTime(ch, &metav1.Time{Time: oldest})
	active.send(ch, float64(running))
	refused.send(ch, float64(denied))
	stuckPods.send(ch, float64(stuck))

	for i := range all.matrices {
		own = append(own, measured{all.matrices[i].Overview(), &all.matrices[i]})
	}
	slices.SortFunc(own, newestFirst)
	kept := own[:min(len(own), MaxBenchmarks)]
	droppedBenchmarks.send(ch, float64(len(own)-len(kept)))
	for _, o := range kept {
		if o.matrix != nil {
			collectMatrix(ch, o)
		} else {
			collectBenchmark(ch, o.LatencyBenchmark)
		}
	}
}

type measured struct {
	*v1alpha1.LatencyBenchmark
	matrix *v1alpha1.LatencyMatrix
}

func newestFirst(a, b measured) int {
	rank := func(b measured) int {
		if b.Finished() {
			return 1
		}
		return 0
	}
	return cmp.Or(rank(a)-rank(b), b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

func queuedSince(b *v1alpha1.LatencyBenchmark) (time.Time, bool) {
	succeeded := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionSucceeded)
	if succeeded == nil || succeeded.Status != metav1.ConditionUnknown || succeeded.Reason != v1alpha1.ReasonQueued {
		return time.Time{}, false
	}
	since := b.CreationTimestamp.Time
	if accepted := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionAccepted); accepted != nil {
		since = accepted.LastTransitionTime.Time
	}
	if n := len(b.Status.Attempts); n > 0 {
		since = b.Status.Attempts[n-1].Outcome.CompletionTime.Time
	}
	return since, true
}

// collect sends the metrics that benchmarks and matrices share; b may be an overview.
func (p progress) collect(ch chan<- prometheus.Metric, b *v1alpha1.LatencyBenchmark) {
	namespace, name, status := b.Namespace, b.Name, &b.Status
	state := v1alpha1.ReasonNotAccepted
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionSucceeded); c != nil {
		state = c.Reason
	}
	p.state.send(ch, 1, namespace, name, state)
	if b.Spec.Criteria != nil {
		p.passed.sendBool(ch, isTrue(status.Conditions, v1alpha1.ConditionPassed, b.Generation), namespace, name)
		p.verdict.send(ch, 1, namespace, name, string(cmp.Or(standing.OfBenchmark(b).Outcome, v1alpha1.ReasonNotJudged)))
	}
	if runs := status.Progress; runs != nil {
		p.runs.send(ch, float64(runs.Total), namespace, name)
		p.runsDone.send(ch, float64(runs.Done), namespace, name)
	}
	p.completion.sendTime(ch, status.CompletionTime, namespace, name)
}

func collectBenchmark(ch chan<- prometheus.Metric, b *v1alpha1.LatencyBenchmark) {
	ofBenchmark.collect(ch, b)
	cells := b.Status.Results[:min(len(b.Status.Results), MaxCells)]
	for i := range cells {
		collectCell(ch, b, &cells[i])
	}
	droppedCells.send(ch, float64(len(b.Status.Results)-len(cells)), b.Namespace, b.Name)
}

func collectMatrix(ch chan<- prometheus.Metric, o measured) {
	m := o.matrix
	ofMatrix.collect(ch, o.LatencyBenchmark)
	for name, n := range map[string]int32{"Planned": m.Status.Counts.Total, "Done": m.Status.Counts.Done(), "Failed": m.Status.Counts.Failed} {
		pairs.send(ch, float64(n), m.Namespace, m.Name, name)
	}
	for i := range m.Status.Cells[:min(len(m.Status.Cells), MaxCells)] {
		collectMatrixCell(ch, m, &m.Status.Cells[i])
	}
}

func collectCell(ch chan<- prometheus.Metric, b *v1alpha1.LatencyBenchmark, c *v1alpha1.CellResult) {
	rate := ""
	if c.OpenLoop() {
		rate = strconv.Itoa(int(c.RatePerSecond))
	}
	// The capacity has room for two more labels, so that append does not copy.
	labels := append(make([]string, 0, 9), b.Namespace, b.Name, c.Variant, c.Name, string(c.Protocol), strconv.Itoa(int(c.MessageSize)), rate)
	lost.send(ch, float64(c.Lost), labels...)
	if c.Bandwidth != nil {
		bandwidth.send(ch, float64(c.Bandwidth.BitsPerSecond)/8, labels...)
	}
	if c.Stream {
		return
	}
	samples.send(ch, float64(c.Samples), labels...)
	for _, p := range []v1alpha1.Percentile{v1alpha1.P50, v1alpha1.P90, v1alpha1.P99, v1alpha1.P999, v1alpha1.P9999} {
		latency.sendSeconds(ch, c.Percentile(p), append(labels, string(c.LatencyType), string(p))...)
	}
}

func collectMatrixCell(ch chan<- prometheus.Metric, m *v1alpha1.LatencyMatrix, c *v1alpha1.MatrixCell) {
	for _, p := range []struct {
		name v1alpha1.Percentile
		*v1alpha1.PairsLatency
	}{{v1alpha1.P50, c.P50}, {v1alpha1.P99, c.P99}} {
		if p.PairsLatency == nil {
			continue
		}
		for aggregate, ns := range map[string]*int64{"Min": p.MinNanoseconds, "Median": p.MedianNanoseconds, "Max": p.MaxNanoseconds} {
			pairsLatency.sendSeconds(ch, ns, m.Namespace, m.Name, c.Variant, c.Cell, string(c.LatencyType), string(p.name), aggregate)
		}
	}
}
