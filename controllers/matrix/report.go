package matrix

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/controllers"
	"github.com/tailgate-dev/tailgate/internal/plan"
	"github.com/tailgate-dev/tailgate/internal/preflight"
	"github.com/tailgate-dev/tailgate/internal/standing"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/summary"
	"github.com/tailgate-dev/tailgate/internal/text"
)

func (r *Reconciler) report(ctx context.Context, old *v1alpha1.LatencyMatrix, w *world) error {
	m := w.matrix
	m.Status.ObservedGeneration = m.Generation
	if accepted(m) {
		w.count(old)
		m.Status.Progress = w.progress()
	}
	w.setConditions()
	switch {
	case !m.Finished():
		m.Status.CompletionTime = nil
	case m.Status.CompletionTime == nil:
		m.Status.CompletionTime = &metav1.Time{Time: w.now}
	}
	w.judge()
	standing.Publish(&m.Status.Conditions, m.Generation, w.now, standing.OfMeasurement(m.Overview()))
	written, err := r.WriteStatus(ctx, old, m)
	if written {
		r.Tell(ctx, m, append(w.notices, controllers.ConditionNotices(old.Status.Conditions, m.Status.Conditions,
			v1alpha1.ConditionAccepted, v1alpha1.ConditionSucceeded, v1alpha1.ConditionPassed)...)...)
	}
	return err
}

func (w *world) setConditions() {
	m := w.matrix
	switch {
	case w.rejection != nil:
		m.SetCondition(v1alpha1.Condition(v1alpha1.ConditionAccepted, metav1.ConditionFalse, w.rejection.Reason, w.rejection.String()))
		m.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonNotAccepted, w.rejection.String()))
		return
	case !accepted(m): // Nothing is decided about a matrix that is suspended before it is accepted.
		m.SetCondition(v1alpha1.Condition(v1alpha1.ConditionSucceeded, metav1.ConditionUnknown, v1alpha1.ReasonBenchmarkSuspended,
			"suspended (spec.suspend); set it to false to resume"))
		return
	case w.chosen != nil:
		m.SetCondition(v1alpha1.Condition(v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted, w.acceptance(w.chosen.LeftOut)))
	default:
		if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionAccepted); c != nil {
			c.ObservedGeneration = m.Generation
		}
	}
	m.SetCondition(w.succeeds())
}

func (w *world) count(old *v1alpha1.LatencyMatrix) {
	status := &w.matrix.Status
	status.Slots = int32(w.slots)
	status.Counts = v1alpha1.PairCounts{Total: int32(len(w.pairs)), Running: int32(len(status.Running))}
	for i, child := range w.children {
		switch {
		case child != nil && child.Finished() && !failed(child):
			status.Counts.Complete++
		case child != nil && child.Finished(), w.ended(int32(i + 1)):
			status.Counts.Failed++
		}
	}
	before := old.Status.Counts
	if lost := before.Done() - status.Counts.Done(); lost > 0 {
		w.notices = append(w.notices, controllers.Notice{
			Type: corev1.EventTypeWarning, Reason: v1alpha1.ReasonPairDeleted, Action: "Measure",
			Message: fmt.Sprintf("the benchmarks of finished pairs were deleted (%d); their results are lost, and they are measured again", lost),
		})
	}
	// Do not summarize thousands of results each time that one more run is stored.
	if accepted(old) && (w.released || before.Complete != status.Counts.Complete || before.Failed != status.Counts.Failed) {
		measured := slices.DeleteFunc(slices.Clone(w.children), func(child *v1alpha1.LatencyBenchmark) bool {
			return child == nil || child.Succeeded() != metav1.ConditionTrue
		})
		computed := summary.SummarizePairs(measured)
		status.Slowest, status.Cells, status.Summary = computed.Slowest, computed.Cells, computed.Headline
	}
}

// progress counts all pairs' runs. The time left assumes as many pairs at once as may be.
func (w *world) progress() *v1alpha1.Progress {
	planned := plan.Runs(w.matrix.Overview())
	var each time.Duration
	for _, run := range planned {
		each += plan.MeasuringTime(run.Cells)
	}
	var p v1alpha1.Progress
	var left time.Duration
	for i, child := range w.children {
		switch {
		case w.ended(int32(i + 1)):
			p.Total += int32(len(planned))
		case child == nil || child.Status.Progress == nil:
			p.Total += int32(len(planned))
			left += each
		default:
			p.Done, p.Total = p.Done+child.Status.Progress.Done, p.Total+child.Status.Progress.Total
			if !child.Finished() {
				left += time.Duration(child.Status.Progress.MeasuringSecondsLeft) * time.Second
			}
		}
	}
	left /= time.Duration(w.parallel())
	p.Runs = fmt.Sprintf("%d/%d", p.Done, p.Total)
	p.MeasuringSecondsLeft = int64((left + time.Second - 1) / time.Second)
	return &p
}

func (w *world) acceptance(leftOut string) string {
	status := w.matrix.Status
	nodes := fmt.Sprintf("%d nodes", len(status.Nodes))
	if status.Server != "" {
		nodes = fmt.Sprintf("clients on %s, server on %s", nodes, status.Server)
	}
	message := fmt.Sprintf("%s: %d pairs, in %d slots of at most %d at once", nodes, len(w.pairs), w.slots, w.parallel())
	if leftOut != "" {
		message += "; left out: " + leftOut
	}
	return strings.Join(slices.Insert(preflight.Foreknown(w.matrix.Spec.Template.Benchmark(), len(w.pairs), nil), 0, message), "; ")
}

func (w *world) succeeds() metav1.Condition {
	status, counts := w.matrix.Status, w.matrix.Status.Counts
	state, reason, message := metav1.ConditionUnknown, "", ""
	switch {
	case counts.Done() < counts.Total && w.matrix.Spec.Suspend:
		reason = v1alpha1.ReasonBenchmarkSuspended
		message = fmt.Sprintf("suspended (spec.suspend) with %d of %d pairs done; set it to false to resume", counts.Done(), counts.Total)
	case counts.Done() < counts.Total:
		reason, message = w.running()
	case counts.Failed > 0:
		state, reason = metav1.ConditionFalse, v1alpha1.ReasonFailed
		message = fmt.Sprintf("%d of %d pairs failed, %s", counts.Failed, counts.Total, w.firstFailure())
	default:
		state, reason = metav1.ConditionTrue, v1alpha1.ReasonComplete
		message = fmt.Sprintf("%d of %d pairs measured", counts.Done(), counts.Total)
		if len(status.Slowest) > 0 {
			message += "; the slowest is " + status.Slowest[0].Benchmark
		}
	}
	return v1alpha1.Condition(v1alpha1.ConditionSucceeded, state, reason, message)
}

func (w *world) firstFailure() string {
	for i, child := range w.children {
		if child != nil && failed(child) {
			return fmt.Sprintf("first %s: %s", child.Name, messageOf(child.Status.Conditions, v1alpha1.ConditionSucceeded))
		}
		if number := int32(i + 1); w.ended(number) {
			return "first " + w.whyGone(number)
		}
	}
	return ""
}

func (w *world) running() (reason, message string) {
	var measuring, starting, queued, troubles []string
	reasons := map[string]bool{}
	for _, r := range w.matrix.Status.Running {
		name, child := w.matrix.PairName(r.Number), w.child(r.Number)
		blocked, isBlocked := w.blocked[r.Number]
		switch {
		case isBlocked:
			reasons[blocked.reason] = true
			troubles = append(troubles, blocked.message)
		case child == nil:
			starting = append(starting, name)
		case child.Status.Active == nil && meta.IsStatusConditionFalse(child.Status.Conditions, v1alpha1.ConditionAccepted):
			reasons[v1alpha1.ReasonNotAccepted] = true
			troubles = append(troubles, fmt.Sprintf("%s: %s", name, messageOf(child.Status.Conditions, v1alpha1.ConditionAccepted)))
		case child.Status.StartTime == nil:
			queued = append(queued, name)
		default:
			measuring = append(measuring, name)
		}
	}
	parts := []string{fmt.Sprintf("%d of %d pairs done", w.matrix.Status.Counts.Done(), w.matrix.Status.Counts.Total)}
	for _, group := range []struct {
		verb, reason string
		names        []string
	}{
		{"measuring", v1alpha1.ReasonRunning, measuring},
		{"starting", v1alpha1.ReasonStarting, starting},
		{"queued", v1alpha1.ReasonQueued, queued},
	} {
		if len(group.names) > 0 {
			reasons[group.reason] = true
			parts = append(parts, group.verb+" "+text.List(group.names, 3, ", "))
		}
	}
	if len(troubles) > 0 {
		parts = append(parts, troubles[0])
	}
	for _, candidate := range []string{
		v1alpha1.OutcomeNameTaken, v1alpha1.ReasonBenchmarkRefused, v1alpha1.ReasonRunning, v1alpha1.ReasonStarting, v1alpha1.ReasonQueued, v1alpha1.ReasonNotAccepted,
	} {
		if reasons[candidate] {
			return candidate, strings.Join(parts, "; ")
		}
	}
	return v1alpha1.ReasonQueued, strings.Join(parts, "; ")
}

func messageOf(conditions []metav1.Condition, conditionType string) string {
	return ptr.Deref(meta.FindStatusCondition(conditions, conditionType), metav1.Condition{}).Message
}

const (
	maxRules   = 32
	maxMessage = 1024
)

// judge updates verdict and Passed: it passes when all pairs do, and fails as soon as one fails for
// certain by Hochberg's procedure, with the probability of an error of one benchmark.
func (w *world) judge() {
	m := w.matrix
	m.Status.Verdict = nil
	if m.Spec.Template.Spec.Criteria == nil {
		meta.RemoveStatusCondition(&m.Status.Conditions, v1alpha1.ConditionPassed)
		return
	}
	if !accepted(m) {
		m.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, metav1.ConditionUnknown, v1alpha1.ReasonNotJudged, "the rules are evaluated when all pairs are measured"))
		return
	}
	judged := w.judged()
	ended := 0
	for i := range w.children {
		if w.ended(int32(i + 1)) {
			ended++
		}
	}
	verdict := merge(judged, len(w.children), ended)
	state, reason := metav1.ConditionUnknown, v1alpha1.ReasonNotJudged
	switch {
	case verdict.Outcome == v1alpha1.VerdictFail:
		state, reason = metav1.ConditionFalse, v1alpha1.ReasonFail
	case len(judged)+ended < len(w.children):
		m.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, state, reason, verdict.Message))
		return
	case ended > 0 && verdict.Outcome == v1alpha1.VerdictPass:
		reason, verdict.Outcome = v1alpha1.ReasonNodeGone, v1alpha1.VerdictInconclusive
		verdict.Message = text.Shorten(verdict.Message+"; "+w.firstFailure(), maxMessage)
	case verdict.Outcome == v1alpha1.VerdictPass:
		state, reason = metav1.ConditionTrue, v1alpha1.ReasonPass
	default:
		reason = v1alpha1.ReasonInconclusive
		if first := slices.IndexFunc(judged, func(c *v1alpha1.LatencyBenchmark) bool {
			return c.Status.Verdict.Outcome == v1alpha1.VerdictInconclusive
		}); first >= 0 {
			reason = meta.FindStatusCondition(judged[first].Status.Conditions, v1alpha1.ConditionPassed).Reason
		}
	}
	m.Status.Verdict = verdict
	m.SetCondition(v1alpha1.Condition(v1alpha1.ConditionPassed, state, reason, verdict.Message))
}

func (w *world) judged() []*v1alpha1.LatencyBenchmark {
	var all []*v1alpha1.LatencyBenchmark
	for i, child := range w.children {
		if _, outdated := slices.BinarySearch(w.outdated, int32(i+1)); child == nil || child.Status.Verdict == nil || outdated {
			continue
		}
		c := meta.FindStatusCondition(child.Status.Conditions, v1alpha1.ConditionPassed)
		if c != nil && c.ObservedGeneration == child.Generation {
			all = append(all, child)
		}
	}
	return all
}

// merge merges verdicts of total pairs; ended have none. A rule has the line of its worst pair.
func merge(judged []*v1alpha1.LatencyBenchmark, total, ended int) *v1alpha1.Verdict {
	merged := &v1alpha1.Verdict{Outcome: v1alpha1.VerdictPass, Rules: []v1alpha1.RuleVerdict{}}
	count := map[v1alpha1.VerdictOutcome]int{}
	rules := map[string]int{}
	decided := ""
	beyond := make([]stats.OneIn, total) // A pair that is not judged yet has no part in a Fail.
	for i, child := range judged {
		beyond[i] = stats.OneIn(child.Status.Verdict.BeyondOneIn)
	}
	failsAt, together := stats.Hochberg(beyond)
	merged.BeyondOneIn = int64(together)
	for _, child := range judged {
		v := child.Status.Verdict
		count[v.Outcome]++
		if decided == "" || v.Outcome.Compare(merged.Outcome) > 0 {
			merged.Outcome, decided = v.Outcome, child.Name+": "+v.Message
		}
		merged.Comparisons, merged.Evaluations = merged.Comparisons+v.Comparisons, v.Evaluations
		for _, rule := range v.Rules {
			rule.Message = text.Shorten(child.Name+": "+rule.Message, maxMessage)
			at, ok := rules[rule.Rule]
			if !ok {
				if len(merged.Rules) < maxRules {
					rules[rule.Rule] = len(merged.Rules)
					merged.Rules = append(merged.Rules, *rule.DeepCopy())
				}
				continue
			}
			line := &merged.Rules[at]
			passed, failed, inconclusive := line.Passed+rule.Passed, line.Failed+rule.Failed, line.Inconclusive+rule.Inconclusive
			if rule.Outcome.Compare(line.Outcome) > 0 {
				*line = *rule.DeepCopy()
			}
			line.Passed, line.Failed, line.Inconclusive = passed, failed, inconclusive
		}
	}
	if merged.Outcome == v1alpha1.VerdictFail && failsAt == 0 {
		merged.Outcome = v1alpha1.VerdictInconclusive
		decided = fmt.Sprintf("no pair fails with enough certainty among %d; %s", total, decided)
	}
	merged.Message = text.Shorten(strings.TrimSuffix(tally(count, total, ended)+"; "+decided, "; "), maxMessage)
	return merged
}

func tally(count map[v1alpha1.VerdictOutcome]int, total, ended int) string {
	parts := []string{fmt.Sprintf("%d of %d pairs pass", count[v1alpha1.VerdictPass], total)}
	open := total - ended
	for _, n := range count {
		open -= n
	}
	for _, part := range []struct {
		n    int
		text string
	}{
		{count[v1alpha1.VerdictFail], "failed"}, {count[v1alpha1.VerdictInconclusive], "inconclusive"}, {ended, "could not be measured"}, {open, "not judged yet"},
	} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.text))
		}
	}
	return strings.Join(parts, ", ")
}
