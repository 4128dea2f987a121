package matrix

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/tailgate-dev/tailgate/api/v1alpha1"
)

// missing removes a Node that was first missing some time before noon.
func missing(name string, before time.Duration) func(*world) {
	return func(w *world) {
		w.matrix.Status.MissingNodes = []v1alpha1.MissingNode{{Name: name, StartTime: ago(before)}}
		w.lookAtNodes(name)
		w.unusable[name] = true
	}
}

// lookAtNodes observes the Nodes of the matrix without those that are missing.
func (w *world) lookAtNodes(missing ...string) { w.lookAt("", missing...) }

func (w *world) lookAt(notReady string, missing ...string) {
	planned := sets.New(w.matrix.Status.Nodes...).Insert(w.matrix.Status.Server)
	var nodes []corev1.Node
	for _, name := range sets.List(planned.Difference(sets.New(missing...))) {
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if name != notReady {
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}
		nodes = append(nodes, node)
	}
	w.observeMissing(planned, nodes)
}

// The pairs of four nodes are a-d, b-c, d-b, c-a, c-d and a-b: the first, the third and the fifth have node d.
func TestDecideWithoutANode(t *testing.T) {
	for name, c := range map[string]struct {
		world *world
		want  []string
		again time.Duration
	}{
		"it has just gone":            {makeWorld(finishedPairs(2, 4, 6), running(1), missing("d", time.Minute)), nil, goneAfter - time.Minute},
		"it has long gone":            {makeWorld(finishedPairs(2, 4, 6), running(1, rejected(time.Hour)), missing("d", goneAfter)), []string{"end [1]"}, 0},
		"a pair without a benchmark":  {makeWorld(finishedPairs(2, 4, 6), claimed(1), missing("d", time.Hour)), []string{"end [1]"}, 0},
		"pairs that wait for a place": {makeWorld(finishedPairs(2, 4), missing("d", time.Hour)), []string{"claim [6]"}, 0},
		"one that holds its nodes":    {makeWorld(finishedPairs(2, 4, 6), running(1, holdsNodes), missing("d", time.Hour)), nil, 0},
		"one that is finished":        {makeWorld(finishedPairs(2, 4, 6), running(1, complete), missing("d", time.Hour)), []string{"release [1]"}, 0},
		"a clock that was set back":   {makeWorld(finishedPairs(2, 4, 6), running(1), missing("d", -time.Hour)), nil, goneAfter},
		"a suspended matrix":          {makeWorld(finishedPairs(2, 4, 6), running(1, rejected(time.Hour)), missing("d", time.Hour), suspended), []string{"end [1]"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := decide(c.world)
			if diff := cmp.Diff(c.want, append(got.text(), numbers("end", got.end)...)); diff != "" {
				t.Error(diff)
			}
			if got.again != c.again {
				t.Errorf("again in %s, want %s", got.again, c.again)
			}
		})
	}
}

// A Node that comes back in time is measured, and after that it makes no difference.
func TestNodeComesBack(t *testing.T) {
	w := makeWorld()
	w.lookAtNodes("d")
	w.now = noon.Add(goneAfter - time.Minute)
	w.lookAtNodes()
	if len(w.matrix.Status.MissingNodes) > 0 || len(w.gone) > 0 {
		t.Errorf("a node that came back in time is %+v", w.matrix.Status.MissingNodes)
	}
	w.lookAtNodes("d")
	// The operator was away meanwhile.
	w.now = w.now.Add(2 * goneAfter)
	w.lookAtNodes()
	if len(w.matrix.Status.MissingNodes) > 0 || len(w.gone) > 0 {
		t.Errorf("a node that is there is %+v", w.matrix.Status.MissingNodes)
	}
	w.lookAtNodes("d")
	w.now = w.now.Add(goneAfter)
	w.lookAtNodes("d")
	w.lookAtNodes()
	if got := w.matrix.Status.MissingNodes; len(got) != 1 || !got[0].Gone || w.gone["d"].IsZero() {
		t.Errorf("a node that came back late is %+v", got)
	}
}

// A Node that is not ready for a day ends its pairs, as one that is gone.
func TestNodeIsAwayForLong(t *testing.T) {
	w := makeWorld()
	for after, gone := range map[time.Duration]bool{0: false, awayAfter - time.Minute: false, awayAfter: true} {
		w.matrix.Status.MissingNodes = []v1alpha1.MissingNode{{Name: "d", StartTime: metav1.Time{Time: noon}}}
		w.now = noon.Add(after)
		if w.lookAt("d"); w.gone["d"].IsZero() == gone {
			t.Errorf("after %s: gone %v", after, w.gone)
		}
	}
	w.matrix.Status.MissingNodes, w.now = []v1alpha1.MissingNode{{Name: "d", StartTime: metav1.Time{Time: noon}}}, noon.Add(awayAfter-time.Minute)
	if w.lookAtNodes(); len(w.matrix.Status.MissingNodes) > 0 {
		t.Errorf("a node that is ready again is %v", w.matrix.Status.MissingNodes)
	}
}

// A matrix without one of its nodes ends, and is no pass.
func TestMatrixWithoutANodeEnds(t *testing.T) {
	const gone = "x-p1: NodeGone: node d has not existed, or not been ready, since 2026-"
	others := func(outcome v1alpha1.VerdictOutcome, reason string) *world {
		return makeWorld(withGate(2*time.Microsecond), withChild(2, judgedAs(outcome, reason)), withChild(4, judgedAs(v1alpha1.VerdictPass, v1alpha1.ReasonPass)),
			withChild(6, judgedAs(v1alpha1.VerdictPass, v1alpha1.ReasonPass)), missing("d", time.Hour))
	}
	for name, c := range map[string]struct {
		world          *world
		status, reason string
		message        string
	}{
		"the others pass":         {others(v1alpha1.VerdictPass, v1alpha1.ReasonPass), "Unknown", v1alpha1.ReasonNodeGone, gone},
		"another fails":           {others(v1alpha1.VerdictFail, v1alpha1.ReasonFail), "False", v1alpha1.ReasonFail, "3 could not be measured"},
		"another is inconclusive": {others(v1alpha1.VerdictInconclusive, v1alpha1.ReasonInconclusive), "Unknown", v1alpha1.ReasonInconclusive, "3 could not be measured"},
		"another is not measured": {makeWorld(withGate(2*time.Microsecond), withChild(2, judgedAs(v1alpha1.VerdictPass, v1alpha1.ReasonPass)), missing("d", time.Hour)), "Unknown", v1alpha1.ReasonNotJudged, "2 not judged yet"},
		"the node has just gone":  {makeWorld(withGate(2*time.Microsecond), missing("d", time.Minute)), "Unknown", v1alpha1.ReasonNotJudged, "6 not judged yet"},
	} {
		t.Run(name, func(t *testing.T) {
			w := c.world
			w.count(w.matrix.DeepCopy())
			w.matrix.SetCondition(w.succeeds())
			w.judge()
			passed := meta.FindStatusCondition(w.matrix.Status.Conditions, v1alpha1.ConditionPassed)
			if string(passed.Status) != c.status || passed.Reason != c.reason || !strings.Contains(passed.Message, c.message) {
				t.Errorf("Passed is %s %s: %s", passed.Status, passed.Reason, passed.Message)
			}
			succeeded := meta.FindStatusCondition(w.matrix.Status.Conditions, v1alpha1.ConditionSucceeded)
			if ends := c.reason != v1alpha1.ReasonNotJudged; (succeeded.Status == metav1.ConditionFalse) != ends || ends && !strings.Contains(succeeded.Message, "3 of 6 pairs failed, first "+gone) {
				t.Errorf("Succeeded is %s: %s", succeeded.Status, succeeded.Message)
			}
		})
	}
}
