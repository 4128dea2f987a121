package matrix

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// passing adds the benchmarks of pairs that pass.
func passing(numbers ...int32) func(*world) {
	return func(w *world) {
		for _, number := range numbers {
			withChild(number, judgedAs(v1alpha1.VerdictPass, v1alpha1.ReasonPass))(w)
		}
	}
}

func TestJudge(t *testing.T) {
	fails := judgedAs(v1alpha1.VerdictFail, v1alpha1.ReasonFail)
	inconclusive := judgedAs(v1alpha1.VerdictInconclusive, v1alpha1.ReasonInconclusive)
	missing := judgedAs(v1alpha1.VerdictInconclusive, v1alpha1.ReasonBaselineMissing)
	stale := func(b *v1alpha1.LatencyBenchmark) {
		fails(b)
		b.Generation++
	}
	gate := withGate(2 * time.Microsecond)
	cases := map[string]struct {
		world   *world
		want    string
		outcome v1alpha1.VerdictOutcome
	}{
		"there is no gate":     {makeWorld(finishedPairs(1, 2, 3, 4, 5, 6)), "", ""},
		"nothing is judged":    {makeWorld(gate), "Unknown NotJudged: 0 of 6 pairs pass, 6 not judged yet", ""},
		"some pass":            {makeWorld(gate, passing(1, 2)), "Unknown NotJudged: 2 of 6 pairs pass, 4 not judged yet; x-p1: p99 is what it is", ""},
		"one fails":            {makeWorld(gate, passing(1), withChild(2, fails)), "False Fail: 1 of 6 pairs pass, 1 failed, 4 not judged yet; x-p2: p99 is what it is", v1alpha1.VerdictFail},
		"all pass":             {makeWorld(gate, passing(1, 2, 3, 4, 5, 6)), "True Pass: 6 of 6 pairs pass; x-p1: p99 is what it is", v1alpha1.VerdictPass},
		"one is not decided":   {makeWorld(gate, passing(1, 2, 3, 4, 5), withChild(6, inconclusive)), "Unknown Inconclusive: 5 of 6 pairs pass, 1 inconclusive; x-p6: p99 is what it is", v1alpha1.VerdictInconclusive},
		"one has no baseline":  {makeWorld(gate, passing(1, 2, 3, 4, 5), withChild(6, missing)), "Unknown BaselineMissing: 5 of 6 pairs pass, 1 inconclusive; x-p6: p99 is what it is", v1alpha1.VerdictInconclusive},
		"not decided, not all": {makeWorld(gate, passing(1), withChild(6, inconclusive)), "Unknown NotJudged: 1 of 6 pairs pass, 1 inconclusive, 4 not judged yet; x-p6: p99 is what it is", ""},
		"a verdict on another generation": {
			makeWorld(gate, passing(1, 2, 3, 4, 5), withChild(6, stale)), "Unknown NotJudged: 5 of 6 pairs pass, 1 not judged yet; x-p1: p99 is what it is", "",
		},
		"a verdict on rules of before": {
			makeWorld(gate, passing(1, 2, 3, 4, 5), withChild(6, fails), withGate(3*time.Microsecond), observed), "Unknown NotJudged: 0 of 6 pairs pass, 6 not judged yet", "",
		},
		"before it is accepted": {makeWorld(gate, func(w *world) { w.children, w.matrix.Status.Nodes = nil, nil }), "Unknown NotJudged: the rules are evaluated when all pairs are measured", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := c.world.matrix
			c.world.judge()
			got := ""
			if found := meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionPassed); found != nil {
				got = conditionText(*found)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("condition Passed (-want +got):\n%s", diff)
			}
			var outcome v1alpha1.VerdictOutcome
			if b.Status.Verdict != nil {
				outcome = b.Status.Verdict.Outcome
			}
			if outcome != c.outcome {
				t.Errorf("outcome %q, want %q", outcome, c.outcome)
			}
		})
	}
}

func TestMerge(t *testing.T) {
	w := makeWorld(withGate(2*time.Microsecond), passing(1, 2), withChild(3, judgedAs(v1alpha1.VerdictFail, v1alpha1.ReasonFail)), withChild(4, judgedAs(v1alpha1.VerdictInconclusive, v1alpha1.ReasonInconclusive)))
	got := merge(w.judged(), 6, 0)
	want := []v1alpha1.RuleVerdict{{
		Rule: "p99 max 2us", Outcome: v1alpha1.VerdictFail, Reason: v1alpha1.ReasonFail, Message: "x-p3: p99 is what it is", Passed: 2, Failed: 1, Inconclusive: 1,
	}}
	if diff := cmp.Diff(want, got.Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	if got.Comparisons != 4 || got.BeyondOneIn != 1_000/6 {
		t.Errorf("%d comparisons, one in %d", got.Comparisons, got.BeyondOneIn)
	}
	// A pair that fails by itself is not certain among a hundred.
	if got := merge(w.judged(), 100, 0); got.Outcome != v1alpha1.VerdictInconclusive || !strings.Contains(got.Message, "no pair fails with enough certainty among 100") {
		t.Errorf("%s: %s", got.Outcome, got.Message)
	}
}

// The texts of a verdict fit into the status.
func TestMergeIsBounded(t *testing.T) {
	long := func(b *v1alpha1.LatencyBenchmark) {
		judgedAs(v1alpha1.VerdictPass, v1alpha1.ReasonPass)(b)
		v := b.Status.Verdict
		v.Message, v.Rules[0].Message = strings.Repeat("µ", 512), strings.Repeat("µ", 512)
		for range 40 {
			rule := v.Rules[0]
			rule.Rule += " and more" + v.Rules[len(v.Rules)-1].Rule
			v.Rules = append(v.Rules, rule)
		}
	}
	got := merge(makeWorld(withGate(2*time.Microsecond), withChild(1, long)).judged(), 6, 0)
	if len(got.Rules) != maxRules {
		t.Errorf("%d rules", len(got.Rules))
	}
	for _, message := range []string{got.Message, got.Rules[0].Message} {
		if len(message) > maxMessage || !strings.HasSuffix(message, "µ…") {
			t.Errorf("%d bytes: %s", len(message), message)
		}
	}
}
