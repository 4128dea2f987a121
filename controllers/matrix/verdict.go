package matrix

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
	"github.com/tailgate-dev/tailgate/internal/stats"
	"github.com/tailgate-dev/tailgate/internal/text"
)

const (
	maxRules   = 32
	maxMessage = 1024
)

// judge updates verdict and condition Passed: it passes when all pairs do, and fails as soon as a
// pair fails for certain among all by Hochberg's procedure, so that pairs within their limits make
// it fail with the probability of one benchmark.
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

// merge merges pairs' verdicts; total is the number of all pairs, ended of those that will have
// none. Each rule has the line of the worst pair, judged by itself, and all pairs' cells.
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
		merged.Comparisons, merged.Looks = merged.Comparisons+v.Comparisons, v.Looks
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
